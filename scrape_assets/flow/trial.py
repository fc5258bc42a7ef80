"""Try: pages of one retailer, fetched now or stored before, judged as a run would, and nothing stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scrape_assets.datasets import declaration, page_objects
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.datasets.problems import nearest
from scrape_assets.errors import DeclarationError, ScrapeAssetsError
from scrape_assets.flow import fetch, plan, recover, sessions, stored
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.fetch import Sources
from scrape_assets.rules import fields, urls
from scrape_assets.rules import recovery as rules
from scrape_assets.rules.page import FetchFailure, Request, Response
from scrape_assets.rules.spec import ExtractRule
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.sources.extractor import ExtractorPool, Judgement, Setup
from scrape_assets.sources.http import Jar
from scrape_assets.store import observe, postgres, recovery, runs
from scrape_assets.store.observe import StoredPage
from scrape_assets.store.postgres import Pool


async def ask(
    dataset: Dataset,
    retailer: Retailer,
    url: str,
    *,
    window: str,
    connect_to: Mapping[str, tuple[str, int]],
    browser: BrowserOptions | None = None,
    context: str = "",
) -> tuple[Response | FetchFailure, Judgement | None]:
    """The site's answer in this context, and what it says; outside the origin's rate, and nothing is stored.

    Unready when the context could not be set up.
    """
    try:
        canonical = urls.canonical(url)
    except ValueError as error:
        raise DeclarationError(f"{url!r}: {error}") from error
    if not urls.within(retailer.site, canonical):
        raise DeclarationError(f"{url} is not on {retailer.name}'s site {retailer.site}")
    read_by = setup(dataset, retailer, window)
    browser = browser or BrowserOptions()
    fetch.require([retailer], browser)
    async with Sources(connect_to, browser) as sources, ExtractorPool(1) as extractors:

        async def asked(request: Request, jar: Jar | None) -> Response | FetchFailure:
            return await sources.ask(dataset, retailer, request, jar=jar)

        jar = await sessions.set_up(context, retailer, asked, extractors, read_by) if context else None
        if retailer.fetch.via == "browser":
            answer = await sources.show(dataset, retailer, canonical, jar=jar)
        else:
            answer = await asked(Request(canonical), jar)
        if isinstance(answer, FetchFailure):
            return answer, None
        return answer, await extractors.judge(answer, read_by, canonical_url=canonical, context=context)


def context_of(retailer: Retailer, named: str | None) -> str:
    """The context that is meant: the one named, else the only one there is; DeclarationError where that is unclear."""
    names = sorted(retailer.contexts)
    if named is None and len(names) > 1:
        raise DeclarationError(f"{retailer.name} has contexts; name one: --context {names[0]}, of {', '.join(names)}")
    if named is not None and named not in names:
        said = nearest(named, names) if names else "; it has none"
        raise DeclarationError(f"{retailer.name} has no context {named!r}{said}")
    return named or (names[0] if names else "")


def setup(dataset: Dataset, retailer: Retailer, window: str) -> Setup:
    """What an extraction process needs to know of the retailer as it is declared now."""
    rule = declaration.extract_rule(dataset, retailer)
    return Setup(
        key=f"{dataset.dataset}/{retailer.name}",
        rule_json=rule.model_dump_json(),
        pages_folder=str(dataset.folder) if retailer.page_functions else None,
        page_object=rule.page.page_object,
        dataset_id=dataset.dataset,
        retailer=retailer.name,
        collection_window=window,
        page_sources=page_objects.sources(dataset.folder),
    )


async def try_page(
    dataset: Dataset,
    retailer: Retailer,
    url: str,
    *,
    window: str,
    connect_to: Mapping[str, tuple[str, int]],
    browser: BrowserOptions | None = None,
    context: str = "",
) -> dict[str, Any]:
    """The page's state, and every field of every row with what gave it."""
    try:
        answer, judged = await ask(
            dataset, retailer, url, window=window, connect_to=connect_to, browser=browser, context=context
        )
    except sessions.Unready as unready:
        answer, judged = unready.answer, unready.judged
    if isinstance(answer, FetchFailure):
        return {
            "url": url,
            "context": context,
            "final_url": answer.final_url,
            "http_status": answer.status,
            "page_state": None,
            "failure_class": answer.failure_class,
            "reason": answer.reason,
            "rows": [],
        }
    assert judged is not None
    return told(url, answer, judged, declaration.extract_rule(dataset, retailer), context)


def told(url: str, answer: Response, judged: Judgement, rule: ExtractRule, context: str) -> dict[str, Any]:
    """The page's state, and every field of every row with what gave it; declared ones that found nothing too."""
    return {
        "url": url,
        "context": context,
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


def stored_pages(
    pool: Pool, run_id: str, retailer: Retailer, *, url: str | None, at_most: int, context: str | None = None
) -> list[StoredPage]:
    """Pages of the retailer that the run stored, a fair sample or the one named; DeclarationError for none."""
    try:
        named = None if url is None else [urls.canonical(url)]
    except ValueError as error:
        raise DeclarationError(f"{url!r}: {error}") from error
    with postgres.transaction(pool) as tx:
        found = observe.stored_pages(tx, run_id, retailer.name, urls=named, context=context, at_most=at_most)
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
    found: list[dict[str, Any]] = []
    for page, judged in await recover.extract_again(work, pages, artifacts):
        answer = stored.page(artifacts, page.place, page.sha256, page.canonical_url)
        if judged is None or answer is None:
            found.append(
                {
                    "url": page.url,
                    "context": page.context,
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
        found.append(
            {
                **told(page.url, answer[0], judged, rule, page.context),
                "changes": rules.value_changes(now[page.task_key], rows),
            }
        )
    return found
