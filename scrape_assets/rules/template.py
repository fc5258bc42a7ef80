"""Templates over many pages: what a window's layouts are, and whether pages are unlike those that were accepted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scrape_assets.rules.acceptance import SAMPLES, Check
from scrape_assets.rules.fingerprint import BITS, NEAR, distance

RULE = "template"

FEW = 3
"""So few unlike pages are a product or two that the shop shows in a way of its own, whatever their share."""

LEAST_SHARE = 0.01
"""A layout that fewer pages of a window have is none that later windows are compared with."""

MOST_LAYOUTS = 64
"""A site that makes up a layout for every page has no template; comparing must end all the same."""

PAGES = 50
"""A retailer stops when more than half of its newest 50 pages are unlike. Ours, and not the protocol's: a thousandth of
a large retailer's pages. Where a tenth of them is unlike, which acceptance still lets pass, 26 of 50 come up by chance
once in 10^13 times, and where it is a fifth, once in 10^6: what stops is what would be rejected."""

SHARE = 0.5

PAUSED = "its template changed"
"""How the reason of such a stop begins; a repair lets the retailer go on by it."""

TO_DO = (
    "If what is read from them is right, `resume` it, and `waive template` once it is judged; "
    "else mend what reads them, and `recover`"
)

Known = Mapping[str, Sequence[str]]
"""By page type, the fingerprints that stand for the layouts of accepted windows."""


class Page(NamedTuple):
    """A page that gave rows: its address, type and fingerprint, its bytes, and the first entity it told of."""

    url: str
    page_type: str
    template: str
    artifact: str | None
    entity_key: str


def layouts(counts: Mapping[str, int]) -> dict[str, float]:
    """The layouts that so many pages have, by fingerprints that stand for them, with their shares, commonest first."""
    total = sum(counts.values())
    grouped: Counter[str] = Counter()
    for one, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        near = min(grouped, key=lambda other: distance(one, other), default=None)
        if near is not None and distance(one, near) <= NEAR:
            grouped[near] += count
        elif len(grouped) < MOST_LAYOUTS:
            grouped[one] = count
    return {one: round(n / total, 4) for one, n in grouped.most_common() if n >= LEAST_SHARE * total}


def figures(pages: Iterable[Page]) -> dict[str, dict[str, float]]:
    """By page type, the layouts of a window as its verdict keeps them."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for page in pages:
        counts[page.page_type][page.template] += 1
    return {page_type: layouts(found) for page_type, found in sorted(counts.items())}


def known(history: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The layouts in the figures of accepted windows, all of them: a shop may go back to what it had."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for one in history:
        for page_type, shares in one.get("templates", {}).items():
            found[page_type] |= dict.fromkeys(shares)
    return {page_type: list(prints) for page_type, prints in found.items()}


def windows(history: Iterable[Mapping[str, Any]]) -> int:
    """How many of these windows say what their layouts were; those from before templates were kept do not."""
    return sum(bool(one.get("templates")) for one in history)


def is_unlike(template: str | None, page_type: str, beside: Known) -> bool | None:
    """Whether the page is laid out like none of them; None where nothing can be said."""
    prints = beside.get(page_type)
    if template is None or not prints:
        return None
    return all(distance(template, one) > NEAR for one in prints)


def as_before(pages: Iterable[Page], beside: Known) -> float | None:
    """The share of the pages that are laid out like one of them; None where nothing can be said."""
    found = [unlike for page in pages if (unlike := is_unlike(page.template, page.page_type, beside)) is not None]
    return round(found.count(False) / len(found), 4) if found else None


def check(
    pages: Sequence[Page], history: Sequence[Mapping[str, Any]], limit: float, *, warm_up: int, since: str = ""
) -> Check:
    """No more pages than the limit are laid out unlike those of accepted windows, however good their values look."""
    beside = known(history)
    judged = [(page, is_unlike(page.template, page.page_type, beside)) for page in pages]
    compared = [page for page, unlike in judged if unlike is not None]
    unlike = [page for page, found in judged if found]
    share = len(unlike) / len(compared) if compared else 0.0
    passed = share <= limit or len(unlike) <= FEW
    shown = sorted(unlike, key=lambda page: page.url)[:SAMPLES]
    return Check(
        RULE,
        passed,
        f"at most {limit:.0%} of the pages laid out unlike those of {since or 'the last accepted windows'}",
        f"{share:.1%}: {len(unlike)} of {len(compared)} pages" if compared else "nothing to compare with",
        samples=[
            {
                "url": page.url,
                "entity_key": page.entity_key,
                "field": RULE,
                "value": f"{_nearest(page, beside)} of {BITS} bits differ, {NEAR} at most in one template",
                "artifact": page.artifact,
            }
            for page in shown
        ],
        held="warm_up" if not passed and windows(history) < warm_up else "",
        pages=frozenset(page.url for page in unlike),
    )


def stops(newest: Sequence[bool]) -> str | None:
    """Why the retailer stops, given whether each of its newest pages is unlike; None to go on.

    >>> stops([True] * 49)
    >>> (stops([False] * 24 + [True] * 26) or "").partition(". ")[0]
    'its template changed: 26 of its last 50 pages are laid out unlike those of the last accepted windows'
    """
    count = sum(newest[-PAGES:])
    if len(newest) < PAGES or count <= SHARE * PAGES:
        return None
    return (
        f"{PAUSED}: {count} of its last {PAGES} pages are laid out unlike those of the last accepted windows. {TO_DO}"
    )


def _nearest(page: Page, beside: Known) -> int:
    return min(distance(page.template, one) for one in beside[page.page_type])
