"""Golden pages: recorded pages read as a worker reads them, and compared with what a person says that they say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from scrape_assets.datasets import cases, declaration
from scrape_assets.datasets.cases import Case
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.flow import plan, stored, trial
from scrape_assets.flow.sessions import Unready
from scrape_assets.rules import fields, golden, urls
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.sources.extractor import ExtractorPool, Judgement
from scrape_assets.store.observe import StoredPage

_NUMBERS = frozenset(("money", "number", "count"))
_NUMERIC_FIELDS = frozenset(("money", "decimal", "int"))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A page that is to become a golden one, and what it says now."""

    url: str
    context: str
    answer: Response
    judged: Judgement


async def compare(dataset: Dataset, now: datetime) -> tuple[list[dict[str, Any]], list[str]]:
    """Each golden page of the dataset with its differences, as plain JSON; and a line for each broken one.

    The pages are read by an extraction process, as those of a run are.
    """
    found, problems = cases.read(dataset)
    if not found:
        return [], [str(problem) for problem in problems]
    window = plan.current_window(dataset, now)
    setups = {name: trial.setup(dataset, dataset.retailers[name], window) for name in {case.retailer for case in found}}
    async with ExtractorPool(1) as extractors:
        judged = await asyncio.gather(
            *(
                extractors.judge(
                    case.answer,
                    setups[case.retailer],
                    canonical_url=urls.canonical(case.answer.url),
                    context=case.context,
                )
                for case in found
            )
        )
    results = [_compared(dataset, case, one) for case, one in zip(found, judged, strict=True)]
    return results, [str(problem) for problem in problems]


def _compared(dataset: Dataset, case: Case, judged: Judgement) -> dict[str, Any]:
    retailer = dataset.retailers[case.retailer]
    declared = retailer.product.fields
    numeric = {name for name, kind in dataset.schema_columns.items() if isinstance(kind, str) and kind in _NUMBERS}
    numeric |= {name for name, spec in declared.items() if spec.kind in _NUMERIC_FIELDS}
    rows = judged.observations()
    differences = golden.differences(
        golden.Said(
            judged.page_state,
            judged.failure_class,
            judged.reason,
            [row["payload"] for row in rows],
            [row["sources"] for row in rows],
        ),
        page_state=case.expected.page_state,
        failure_class=case.expected.failure_class,
        rows=case.expected.rows,
        key=retailer.key,
        numeric=numeric,
        sought={name: fields.shown(spec) for name, spec in declared.items()},
    )
    return {
        "retailer": case.retailer,
        "name": case.name,
        "ok": not differences,
        "page_state": judged.page_state,
        "failure_class": judged.failure_class,
        "reason": judged.reason,
        "rows": len(rows),
        "differences": [
            {"row": one.row, "field": one.field, "expected": one.expected, "got": one.got, "from": one.source}
            for one in differences
        ],
    }


async def fetched(
    dataset: Dataset,
    retailer: Retailer,
    url: str,
    *,
    window: str,
    connect_to: Mapping[str, tuple[str, int]],
    browser: BrowserOptions | None = None,
    context: str,
) -> Recorded:
    """The page as the site answers now; ScrapeAssetsError when there is no whole answer."""
    try:
        answer, judged = await trial.ask(
            dataset, retailer, url, window=window, connect_to=connect_to, browser=browser, context=context
        )
    except Unready as unready:
        why = unready.answer.reason if isinstance(unready.answer, FetchFailure) else f"status {unready.answer.status}"
        reason = unready.judged.reason if unready.judged else why
        raise ScrapeAssetsError(f"{url} was not asked for: {reason}") from unready
    if isinstance(answer, FetchFailure):
        raise ScrapeAssetsError(f"{url} gave no page to record: {answer.failure_class}: {answer.reason}")
    assert judged is not None
    return Recorded(url, context, answer, judged)


async def from_store(
    dataset: Dataset, retailer: Retailer, page: StoredPage, *, window: str, artifacts: Path
) -> Recorded:
    """The page as it was stored in that window; ScrapeAssetsError when it cannot be read."""
    answer = stored.page(artifacts, page.place, page.sha256, page.canonical_url)
    if answer is None:
        raise ScrapeAssetsError(f"the stored page of {page.url} cannot be read; it lies in {page.place.segment}")
    async with ExtractorPool(1) as extractors:
        judged = await extractors.judge(
            answer[0],
            trial.setup(dataset, retailer, window),
            canonical_url=page.canonical_url,
            context=page.context,
            entity=page.entity,
        )
    return Recorded(page.url, page.context, answer[0], judged)


def record(
    dataset: Dataset, retailer: Retailer, recorded: Recorded, *, name: str | None, replace: bool
) -> dict[str, Any]:
    """The page is a golden one that expects what the rules say now; what was written, and what it says, as JSON."""
    named = name or cases.slug(urls.canonical(recorded.answer.url), recorded.context)
    expected = expectation(dataset, retailer, recorded.judged)
    written = cases.write(
        dataset, retailer, named, recorded.answer, expected, context=recorded.context, replace=replace
    )
    rule = declaration.extract_rule(dataset, retailer)
    return {
        "case": named,
        "written": [str(path) for path in written],
        "expected": expected,
        **trial.told(recorded.url, recorded.answer, recorded.judged, rule, recorded.context),
    }


def expectation(dataset: Dataset, retailer: Retailer, judged: Judgement) -> dict[str, Any]:
    """What is expected of a page from now on: what it says now, and that declared fields it lacks are absent."""
    if judged.failure_class is not None:
        state = {"page_state": judged.page_state} if judged.page_state else {}
        return {**state, "failure_class": judged.failure_class}
    rows = [
        {
            name: row["payload"].get(name)
            for name in dataset.columns
            if name in row["payload"] or name in retailer.product.fields
        }
        for row in judged.observations()
    ]
    return {"page_state": judged.page_state, "rows": rows}
