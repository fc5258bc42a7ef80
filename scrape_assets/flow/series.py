"""Series: what a retailer's pages turned out to be, window after window, and whether they are laid out as before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import judging
from scrape_assets.rules import template
from scrape_assets.rules.states import FailureClass, PageState
from scrape_assets.rules.template import Known
from scrape_assets.store import observe, postgres, runs
from scrape_assets.store.postgres import Pool

WORDS: dict[str | None, str] = {
    PageState.EXPECTED: "product",
    PageState.UNCHANGED: "product",
    PageState.REMOVED: "gone",
    PageState.SOFT_404: "gone",
    PageState.EMPTY_SHELL: "empty",
    FailureClass.ACCESS_REFUSED: "refused",
    None: "not asked",
}
"""What a page is called that is not called by its state, or without one by its failure class."""

FIRST = ("product", "gone", "challenge", "consent", "login", "refused", "empty")
"""The states that every line tells, in this order; others follow where there are any."""


def in_words(state: str | None) -> str:
    """What a page in this state is called, or one that ended in this failure class without being any."""
    return WORDS.get(state) or str(state)


def of_pages(pool: Pool, dataset: Dataset, windows: int, retailer: str | None = None) -> list[dict[str, Any]]:
    """A line for each of the newest windows and each retailer that has pages in it: counts, and shares of layouts."""
    with postgres.transaction(pool) as tx:
        recent = [row.run_id for row in runs.recent(tx, dataset.dataset, windows)]
        rows = observe.page_series(tx, recent, retailer)
        found = []
        for (run_id, name), group in groupby(rows, lambda row: (row.run_id, row.retailer)):
            run = runs.find(tx, run_id)
            assert run is not None
            before = judging.compared_with(tx, dataset, run, name) if name in dataset.retailers else []
            beside = template.known(one.figures for one in before)
            found.append({"window": run.collection_window, "retailer": name, **_line(list(group), beside)})
    return found


def _line(rows: Sequence[Any], beside: Known) -> dict[str, Any]:
    states: Counter[str] = Counter()
    laid_out: dict[str, Counter[str]] = defaultdict(Counter)
    like = compared = 0
    for row in rows:
        states[in_words(row.page_state or row.failure_class)] += row.pages
        if row.template is None or row.outcome != "committed":
            continue
        laid_out[row.page_type][row.template] += row.pages
        if (unlike := template.is_unlike(row.template, row.page_type, beside)) is not None:
            compared += row.pages
            like += 0 if unlike else row.pages
    total = sum(count for counts in laid_out.values() for count in counts.values())
    tops = [next(iter(template.layouts(counts).values()), 0.0) * counts.total() for counts in laid_out.values()]
    return {
        "pages": states.total(),
        "states": {name: states[name] for name in (*FIRST, *sorted(set(states) - {*FIRST}))},
        "templates": {page_type: template.layouts(counts) for page_type, counts in sorted(laid_out.items())},
        "commonest_template": round(sum(tops) / total, 4) if total else None,
        "as_before": round(like / compared, 4) if compared else None,
    }
