"""Try: pages of one retailer, fetched now or stored before, judged as a run would, and nothing stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scrape_assets.datasets import declaration, page_objects
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.errors import DeclarationError, ScrapeAssetsError
from scrape_assets.flow import fetch, plan, recover, stored
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.fetch import Sources
from scrape_assets.rules import fields, urls
from scrape_assets.rules import recovery as rules
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.spec import ExtractRule
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.sources.extractor import ExtractorPool, Judgement, Setup
from scrape_assets.store import observe, postgres, recovery, runs
from scrape_assets.store.observe import StoredPage
from scrape_assets.store.postgres import Pool


async def try_page(
    dataset: Dataset,
    retailer: Retailer,
    url: str,
    *,
    window: str,
    connect_to: Mapping[str, tuple[str, int]],
    browser: BrowserOptions | None = None,
) -> dict[str, Any]:
    """The page's state, and every field of every row with what gave it."""
    try:
        canonical = urls.canonical(url)
    except ValueError as error:
        raise DeclarationError(f"{url!r}: {error}") from error
    if not urls.within(retailer.site, canonical):
        raise DeclarationError(f"{url} is not on {retailer.name}'s site {retailer.site}")
    rule = declaration.extract_rule(dataset, retailer)
    setup = Setup(
        key="try",
        rule_json=rule.model_dump_json(),
        pages_folder=str(dataset.folder) if rule.page.page_object else None,
        page_object=rule.page.page_object,
        dataset_id=dataset.dataset,
        retailer=retailer.name,
        collection_window=window,
        page_sources=page_objects.sources(dataset.folder),
    )
    browser = browser or BrowserOptions()
    fetch.require([retailer], browser)
    async with Sources(connect_to, browser) as sources, ExtractorPool(1) as extractors:
        answer = await sources.page(dataset, retailer, url)
        if isinstance(answer, FetchFailure):
            return {
                "url": url,
                "final_url": answer.final_url,
                "http_status": answer.status,
                "page_state": None,
                "failure_class": answer.failure_class,
                "reason": answer.reason,
                "rows": [],
            }
        judged = await extractors.judge(answer, setup, canonical_url=canonical)
    return _told(url, answer, judged, rule)


def _told(url: str, answer: Response, judged: Judgement, rule: ExtractRule) -> dict[str, Any]:
    """The page's state, and every field of every row with what gave it; declared ones that found nothing too."""
    return {
        "url": url,
        "final_url": answer.final_url,
        "http_status": answer.status,
        "body_bytes": len(answer.body),
        "page_state": judged.page_state,
        "failure_class": judged.failure_class,
        "reason": judged.reason,
        "remark": answer.remark,
        "milliseconds": round(judged.seconds * 1000, 1),
        "rows": [
            {
                "entity_key": row["entity_key"],
                "fields": {
                    name: {"value": value, "from": row["sources"].get(name)} for name, value in row["payload"].items()
                }
                | {
                    name: {"value": None, "from": f"{fields.shown(spec)} found nothing that fits"}
                    for name, spec in rule.page.fields.items()
                    if name not in row["payload"]
                },
            }
            for row in judged.observations()
        ],
    }


def stored_pages(pool: Pool, run_id: str, retailer: Retailer, *, url: str | None, at_most: int) -> list[StoredPage]:
    """Pages of the retailer that the run stored, a fair sample or the one named; DeclarationError for none."""
    try:
        named = None if url is None else [urls.canonical(url)]
    except ValueError as error:
        raise DeclarationError(f"{url!r}: {error}") from error
    with postgres.transaction(pool) as tx:
        found = observe.stored_pages(tx, run_id, retailer.name, urls=named, at_most=at_most)
    if not found:
        what = f"{url} of {retailer.name}" if url else f"no page of {retailer.name}"
        raise DeclarationError(f"{what} is {'not ' if url else ''}stored in {run_id}; --window names another one")
    return found


def stored_bytes(artifacts: Path, page: StoredPage) -> bytes:
    """The page itself; ScrapeAssetsError when it cannot be read."""
    answer = stored.page(artifacts, page.place, page.sha256, page.canonical_url)
    if answer is None:
        raise ScrapeAssetsError(f"the stored page of {page.url} cannot be read; it lies in {page.place.segment}")
    return answer[0].body


async def try_stored(
    pool: Pool, dataset: Dataset, retailer: Retailer, run_id: str, pages: Sequence[StoredPage], artifacts: Path
) -> list[dict[str, Any]]:
    """What stored pages give as the retailer is declared now, and what that would change in the rows there are."""
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        now = recovery.rows_of(tx, [page.task_key for page in pages])
    if run is None:
        raise DeclarationError(f"{run_id} was never planned")
    work = Assignment(run, dataset, retailer, plan.freeze(dataset, retailer), ())
    rule = declaration.extract_rule(dataset, retailer)
    told: list[dict[str, Any]] = []
    for page, judged in await recover.extract_again(work, pages, artifacts):
        answer = stored.page(artifacts, page.place, page.sha256, page.canonical_url)
        if judged is None or answer is None:
            told.append(
                {
                    "url": page.url,
                    "final_url": None,
                    "http_status": None,
                    "page_state": None,
                    "failure_class": FailureClass.TRUNCATED,
                    "reason": "its stored page cannot be read",
                    "rows": [],
                    "changes": [],
                }
            )
            continue
        rows = [] if judged.failure_class else judged.observations()
        told.append(
            {**_told(page.url, answer[0], judged, rule), "changes": rules.value_changes(now[page.task_key], rows)}
        )
    return told
