"""Templates over pages: layouts of a window, unlike pages, when acceptance objects and when a retailer stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from scrape_assets.rules import template
from scrape_assets.rules.fingerprint import NEAR
from scrape_assets.rules.template import Page

OLD, NEW = "0" * 64, "f" * 64


def off(base: str, bits: int) -> str:
    """A fingerprint that differs from the base in so many bits."""
    return f"{int(base, 16) ^ (2**bits - 1):064x}"


def pages(old: int, new: int = 0, page_type: str = "product") -> list[Page]:
    return [
        Page(f"https://shop.test/{n}", page_type, OLD if n < old else NEW, f"sha{n}", f"e{n}") for n in range(old + new)
    ]


def history(*windows: Sequence[Page]) -> list[dict[str, Any]]:
    return [{"templates": template.figures(window)} for window in windows]


def judged(found: Sequence[Page], before: Sequence[dict[str, Any]], limit: float = 0.1) -> Any:
    return template.check(found, before, limit, warm_up=3)


THREE = history(pages(50), pages(50), pages(50))


def test_pages_near_to_each_other_are_one_layout_and_rare_ones_none() -> None:
    assert template.layouts({OLD: 60, off(OLD, NEAR): 40}) == {OLD: 1.0}
    assert template.layouts({OLD: 60, off(OLD, NEAR + 1): 40}) == {OLD: 0.6, off(OLD, NEAR + 1): 0.4}
    assert template.layouts({OLD: 995, NEW: 5}) == {OLD: 0.995}
    assert template.layouts({}) == {}


def test_a_site_without_templates_ends_in_bounded_time() -> None:
    made_up = {f"{hash(str(n)) % 2**256:064x}": 1 for n in range(2000)}
    assert len(template.layouts(made_up)) <= template.MOST_LAYOUTS


def test_a_redesign_is_objected_to_with_pages_to_look_at() -> None:
    check = judged(pages(0, 50), THREE)
    assert (check.passed, check.severity, check.held) == (False, "error", "")
    assert check.expected.startswith("at most 10% of the pages")
    assert check.got == "100.0%: 50 of 50 pages"
    assert [sample["url"] for sample in check.samples] == [f"https://shop.test/{n}" for n in (0, 1, 10)]
    assert check.samples[0]["artifact"] == "sha0"
    assert check.samples[0]["value"].startswith("256 of 256 bits differ")
    assert len(check.pages) == 50


@pytest.mark.parametrize(
    ("old", "new", "limit", "passed"),
    [
        (50, 0, 0.1, True),
        (90, 10, 0.1, True),
        (89, 11, 0.1, False),
        (0, 3, 0.1, True),
        (0, 4, 0.1, False),
        (0, 50, 1.0, True),
    ],
)
def test_the_share_decides_but_for_a_few_pages(old: int, new: int, limit: float, passed: bool) -> None:
    assert judged(pages(old, new), THREE, limit).passed is passed


def test_the_first_windows_do_not_gate() -> None:
    assert judged(pages(0, 50), []).passed
    assert judged(pages(0, 50), THREE[:2]).held == "warm_up"
    # Windows that were judged before templates were kept are no history of them.
    assert judged(pages(0, 50), [*THREE[:2], {"rows": 50}, {"templates": {}}]).held == "warm_up"


def test_what_an_accepted_window_had_is_known_from_then_on() -> None:
    assert judged(pages(25, 25), history(pages(0, 50), pages(50), pages(50))).passed
    assert judged(pages(0, 50), history(pages(0, 50), pages(50), pages(50))).passed


def test_page_types_have_templates_of_their_own() -> None:
    assert judged(pages(0, 50, "bundle"), THREE).got == "nothing to compare with"
    both = history([*pages(50), *pages(0, 50, "bundle")])
    assert not template.check(pages(50, 0, "bundle"), both * 3, 0.1, warm_up=3).passed
    assert template.is_unlike(None, "product", {"product": [OLD]}) is None


@pytest.mark.parametrize(
    ("newest", "stops"),
    [
        ([True] * 49, False),
        ([True] * 50, True),
        ([False] * 25 + [True] * 25, False),
        ([False] * 24 + [True] * 26, True),
        ([True] * 26 + [False] * 24, True),
        ([True] * 500 + [False] * 25 + [True] * 25, False),
    ],
)
def test_more_than_half_of_the_newest_fifty_stop_a_retailer(newest: list[bool], stops: bool) -> None:
    why = template.stops(newest)
    assert (why is not None) is stops
    if why:
        assert why.startswith(template.PAUSED)
        assert "`resume`" in why
        assert "`recover`" in why
