"""What a repair takes: which ended tasks, which of them need the site again, and what must not change under them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from scrape_assets.rules.states import FailureClass, PageState, TaskState

Mode = Literal["auto", "artifacts", "refetch"]

READ_FROM_THE_PAGE = frozenset(
    {
        FailureClass.EXTRACTION,
        FailureClass.WRONG_TEMPLATE,
        FailureClass.WRONG_CONTEXT,
        FailureClass.EMPTY_SHELL,
        FailureClass.VALIDATION,
        FailureClass.EXTRACTOR_CRASHED,
        FailureClass.BAD_ENCODING,
        FailureClass.UNSTORABLE,
    }
)
"""Failures that another extractor may turn into rows without another look at the site."""

PAGE_RULES = ("coverage", "page_states", "gone")
"""Rules that pages break, not rows."""


SHOWN_CHARACTERS = 200
"""Of a row that comes or goes as a whole."""


class Selection(NamedTuple):
    """What a person names; without failure class, rule or URLs, what `taken_by_default` says."""

    retailers: tuple[str, ...] = ()
    page_type: str | None = None
    failure_class: str | None = None
    rule: str | None = None
    urls: tuple[str, ...] | None = None
    mode: Mode = "auto"

    @property
    def names_tasks(self) -> bool:
        """Whether it says which tasks, or how, and not only whose."""
        named = any(one is not None for one in (self.page_type, self.failure_class, self.rule, self.urls))
        return named or self.mode != "auto"

    @property
    def names_pages(self) -> bool:
        """Whether it says which pages, so that whose they are need not be said."""
        return any(one is not None for one in (self.failure_class, self.rule, self.urls))

    def record(self) -> dict[str, Any]:
        """As a recovery batch keeps it."""
        mode = None if self.mode == "auto" else self.mode
        urls = None if self.urls is None else sorted(self.urls)
        return {name: value for name, value in {**self._asdict(), "urls": urls, "mode": mode}.items() if value}


def repaired_unnamed(*, state: str | None, stands: bool, quarantined: int, changed: bool) -> bool:
    """Whether a repair that names no retailer takes this one: what is broken, and never what stands published.

    `stands`: its accepted rows are those of the version that stands. `quarantined`: pages that were given up.
    """
    if state == "rejected":
        return True
    if state == "accepted":
        return changed and not stands
    return changed or quarantined > 0


def decided_by_extractor(state: str, failure_class: str | None) -> bool:
    """Whether another extractor may give another result for a task that ended like this."""
    if state == TaskState.COMMITTED:
        return True
    return state == TaskState.QUARANTINED and failure_class in READ_FROM_THE_PAGE


def taken_by_default(state: str, failure_class: str | None, *, mode: Mode, extractor_changed: bool) -> bool:
    """Whether a repair takes a task that nobody named.

    Another extractor, or stored pages that are to be read again: what the extractor decides. The site is to be asked
    again: everything but what it says is gone. Neither: what was not obtained.
    """
    if mode == "refetch":
        return state != TaskState.GONE
    if mode == "artifacts" or extractor_changed:
        return decided_by_extractor(state, failure_class)
    return state == TaskState.QUARANTINED


def breaks_page_rule(rule: str, state: str, page_state: str | None) -> bool:
    """Whether a task that ended like this is one of those that a rule about pages counts."""
    if rule == "coverage":
        return state == TaskState.QUARANTINED
    if rule == "gone":
        return state == TaskState.GONE
    return page_state not in (None, PageState.EXPECTED, PageState.UNCHANGED)


def reads_bytes(mode: Mode, *, stored: bool, from_page: bool, extractor_changed: bool) -> bool:
    """Whether a task is read from its stored page instead of the site.

    By itself a repair reads stored pages where that can change anything: the same extractor says the same again.
    """
    if mode == "refetch" or not stored or not from_page:
        return False
    return mode == "artifacts" or extractor_changed


def obstacles(changed: Sequence[str], *, left_out: int) -> list[str]:
    """Why a declaration cannot repair a run, given the manifest keys that differ; what is left out keeps its keys."""
    wrong = [f"{key} changed, and with it which pages there are" for key in changed if key.startswith("scope.")]
    if left_out and (keys := [key for key in changed if key.startswith("entity.")]):
        wrong.append(
            f"{', '.join(keys)} changed, and {left_out} pages that are not selected would keep rows under the old key; "
            "select the whole retailer"
        )
    return wrong


def rematerializing_repairs(*, decided: bool, changed: bool, selected: bool) -> bool:
    """Whether materializing a partition once more begins a repair: it is over, and something is to be different."""
    return decided and (changed or selected)


def in_words(row: Mapping[str, Any]) -> str:
    """The row's values in one line, its price first.

    >>> in_words({"name": "A book", "price": "31.39", "sku": "B1"})
    'price 31.39, name A book, sku B1'
    """
    names = sorted(row, key=lambda name: name != "price")
    line = ", ".join(f"{name} {row[name]}" for name in names)
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"


def value_changes(before: Mapping[str, Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Field by field, what rows of one page would say that they do not say now; a row that comes or goes is one."""
    rows = {row["entity_key"]: row["payload"] for row in after}
    found: list[dict[str, Any]] = []
    for entity in sorted({*before, *rows}):
        one, other = before.get(entity), rows.get(entity)
        if one is None or other is None:
            found.append(
                {
                    "entity_key": entity,
                    "field": "",
                    "before": one and f"a row: {in_words(one)}",
                    "after": other and f"a row: {in_words(other)}",
                }
            )
            continue
        found += [
            {"entity_key": entity, "field": name, "before": one.get(name), "after": other.get(name)}
            for name in sorted({*one, *other})
            if one.get(name) != other.get(name)
        ]
    return found
