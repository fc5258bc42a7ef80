"""Drift in numbers: what shops do every week passes, and what only a broken reader does is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import orjson
import pandas as pd
import pytest

from scrape_assets.rules import drift, validate
from scrape_assets.rules.acceptance import Check, Limits
from scrape_assets.rules.drift import Baseline, Window

COLUMNS = ("price", "list_price", "currency")
START = datetime(2026, 3, 5, tzinfo=UTC)
Offer = tuple[str | None, str | None, str]
"""Price, list price, currency."""


def beside(now: Sequence[Offer], then: Sequence[Offer]) -> pd.DataFrame:
    rows = [
        (
            f"e{n}",
            "",
            f"p{n}",
            None,
            f"hash {offer}",
            0.0,
            orjson.dumps(dict(zip(COLUMNS, offer, strict=True))).decode(),
        )
        for n, offer in enumerate(now)
    ]
    earlier = [(f"e{n}", "", *offer, f"hash {offer}") for n, offer in enumerate(then)]
    return drift.beside(validate.frame(rows, COLUMNS), drift.frame(earlier))


def judged(now: Sequence[Offer], then: Sequence[Offer]) -> dict[str, Check]:
    return {check.rule: check for check in drift.values(beside(now, then), Baseline("window"))}


def shop(count: int = 100) -> list[Offer]:
    return [(f"{10 + n * 0.37:.2f}", None, "EUR") for n in range(count)]


def times(offers: Sequence[Offer], factor: float, which: Callable[[int], bool]) -> list[Offer]:
    return [
        (f"{float(price or 0) * factor:.4f}" if which(n) else price, was, currency)
        for n, (price, was, currency) in enumerate(offers)
    ]


def reduced(offers: Sequence[Offer], factor: float, which: Callable[[int], bool]) -> list[Offer]:
    """A sale that says so."""
    return [
        (f"{float(price or 0) * factor:.4f}", price, currency) if which(n) else (price, was, currency)
        for n, (price, was, currency) in enumerate(offers)
    ]


@pytest.mark.parametrize("factor", [10, 100, 1000, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_a_misread_separator_is_named(factor: float, share: float) -> None:
    check = judged(times(shop(), factor, lambda n: n < 100 * share), shop())["drift:ratio"]
    assert not check.passed
    assert f"{100 * share:.0f} near x" in check.got
    assert len(check.pages) == 100 * share


@pytest.mark.parametrize("count", [1, 3])
def test_in_a_small_shop_every_row_counts(count: int) -> None:
    assert not judged(times(shop(count), 100, lambda n: n == 0), shop(count))["drift:ratio"].passed


@pytest.mark.parametrize("rate", [0.055, 0.19, 0.2, 0.21, 0.23, 0.255])
def test_prices_with_and_without_tax_are_named(rate: float) -> None:
    for factor in (1 + rate, 1 / (1 + rate)):
        check = judged(times(shop(), factor, lambda _: True), shop())["drift:ratio"]
        assert not check.passed
        assert "as with and without VAT" in check.got


def test_what_shops_do_passes() -> None:
    before = shop()
    for name, now in {
        "nothing": before,
        "a fifth off four tenths, unsaid": times(before, 0.8, lambda n: n % 10 < 4),
        "a fifth off everything, said": reduced(before, 0.8, lambda _: True),
        "one product at a tenth": times(before, 0.1, lambda n: n == 7),
        "two at a tenth": times(before, 0.1, lambda n: n in (7, 8)),
        "a price round": times(before, 1.034, lambda _: True),
    }.items():
        failed = [check for check in judged(now, before).values() if not check.passed]
        assert failed == [], name


def test_a_sale_that_ends_for_all_but_one_is_a_sale_that_ends() -> None:
    before = [(f"{8 + n}", f"{10 + n}", "EUR") for n in range(20)] + shop(80)
    after = [before[0], *((was, None, currency) for _, was, currency in before[1:20]), *before[20:]]
    assert judged(after, before)["drift:list_price"].passed
    misread = [(was, was, currency) for _, was, currency in before[:20]] + before[20:]
    assert not judged(misread, before)["drift:list_price"].passed


def test_another_currency_is_named_with_its_rows() -> None:
    check = judged([(price, was, "USD") for price, was, _ in shop()], shop())["drift:currency"]
    assert not check.passed
    assert check.samples[0]["before"] == "EUR"
    assert judged([(p, w, "USD" if n == 0 else c) for n, (p, w, c) in enumerate(shop(300))], shop(300))[
        "drift:currency"
    ].passed


def history(unchanged: Sequence[float | None], every: timedelta) -> list[Window]:
    """Newest first, of windows before START."""
    return [Window(START - every * (n + 1), {"rows": 100, "unchanged": share}) for n, share in enumerate(unchanged)]


@pytest.mark.parametrize(
    ("unchanged", "every", "now", "passed", "severity"),
    [
        ([1.0, 0.8, 0.8, 0.7], timedelta(days=1), 1.0, False, "error"),
        ([1.0, 0.8, 0.8, 0.7], timedelta(days=1), 0.9995, False, "error"),
        ([1.0, 0.8, 0.8, 0.7], timedelta(days=1), 0.9, True, "error"),
        ([0.8, 0.8, 0.8, 0.7], timedelta(days=1), 1.0, True, "error"),
        ([1.0] * 5 + [0.8, 1.0], timedelta(hours=1), 1.0, True, "error"),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 1.0], timedelta(days=1), 1.0, False, "warn"),
        ([1.0] * 7, timedelta(days=1), 1.0, False, "warn"),
        ([], timedelta(days=1), 1.0, True, "error"),
        ([None], timedelta(days=1), None, True, "error"),
    ],
    ids=["stands", "one row moves", "moves", "one window", "hourly", "weekly shop", "never moved", "first", "small"],
)
def test_a_page_that_stands_still_is_told_from_a_shop_that_rests(
    unchanged: Sequence[float | None], every: timedelta, now: float | None, passed: bool, severity: str
) -> None:
    check = drift.frozen(now, history(unchanged, every), Limits(0.9, ()), START)
    assert (check.passed, check.severity) == (passed, severity), check.got


def test_without_prices_there_is_nothing_to_compare() -> None:
    nothing = beside([], [])
    assert drift.moved_share(nothing) is None
    assert drift.unchanged_share(nothing) is None
    assert all(check.passed for check in drift.rules(validate.frame([], COLUMNS), Limits(0.9, ())))
    gone = beside([(None, None, "EUR")] * 20, shop(20))
    assert drift.moved_share(gone) is None
    assert all(check.passed for check in drift.values(gone, Baseline("window")))
