"""Drift: a retailer's rows beside its nearest accepted windows, and beside the version that they would correct.

Shares are 0 to 1. A rule needs a history: while there is none the retailer is warming up, and the rule is told but
holds nothing. A version of the same window is history enough for what cannot change within one window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import pandas as pd

from scrape_assets.rules import validate
from scrape_assets.rules.acceptance import Check, Held, Limits

RATIOS = {"10": 10.0, "100": 100.0, "1000": 1000.0, "1/10": 0.1, "1/100": 0.01, "1/1000": 0.001}
"""A decimal separator that was misread multiplies by these."""

RATIO_WIDTH, RATIO_SHARE = 0.005, 0.005
"""A price within half a percent of such a multiple is one, and one price in two hundred is one too many."""

VAT_RATES = (
    *(0.05, 0.055, 0.06, 0.07, 0.08, 0.09, 0.1, 0.12, 0.13, 0.135, 0.14, 0.15, 0.16, 0.17, 0.18, 0.19),
    *(0.2, 0.21, 0.22, 0.23, 0.24, 0.25, 0.255, 0.27),
)
"""Standard and reduced rates in use (European Commission and OECD tables of 2025); rarer ones are not named."""

VAT_WIDTH, VAT_SHARE = 0.001, 0.6
"""Prices that move by one rate, to a tenth of a percent: most of them at once is no coincidence."""

CURRENCY_SHARE = 0.005
RESET_SHARE, RESET_ROWS = 0.8, 5
"""So many of the reduced prices, and at least so many rows, at their list price at once."""

FROZEN_ROWS, FROZEN_SHARE, FROZEN_DAYS = 10, 0.999, 2.0
"""Fewer rows, or for a shorter time, may stay as they are by chance."""

WEEKDAYS = 3
"""So many windows of the same weekday are compared with alone (R: a Sunday has other rows than a Monday)."""

COLUMN_WAS_FILLED = 0.2
"""A column that this share of the rows had, and none has now, was lost."""

COMPARED = ("entity_key", "context", "price", "list_price", "currency", "payload_hash")


@dataclass(frozen=True, slots=True)
class Window:
    """An accepted window to compare with: when it began, and the figures of its verdict."""

    start: datetime
    figures: Mapping[str, Any]

    @property
    def rows(self) -> int:
        """How many rows it had."""
        return int(self.figures["rows"])


@dataclass(frozen=True, slots=True)
class Baseline:
    """Rows to compare with, and whether what differs holds the candidate."""

    kind: Literal["none", "window", "version"]
    held: Held = ""


def baseline(history: int, *, warm_up: int, has_version: bool) -> Baseline:
    """What the values are compared with: a settled history first, then the version of this window, then a young one."""
    if history and history >= warm_up:
        return Baseline("window")
    if has_version:
        return Baseline("version")
    return Baseline("window", "warm_up") if history else Baseline("none")


def frame(rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """Earlier rows: entity_key, context, price, list_price, currency, payload_hash."""
    return pd.DataFrame(list(rows), columns=list(COMPARED), dtype="object")


def beside(table: pd.DataFrame, earlier: pd.DataFrame) -> pd.DataFrame:
    """The candidate's rows that were there before, with what they said then as `…_then`, and prices as numbers."""
    now = table.copy()
    for name in ("price", "list_price", "currency"):
        if name not in now.columns:
            now[name] = None
    both = now.merge(earlier, on=["entity_key", "context"], suffixes=("", "_then"))
    return both.assign(
        now=validate.numbers(both["price"]),
        then=validate.numbers(both["price_then"]),
        list_then=validate.numbers(both["list_price_then"]),
    )


def values(both: pd.DataFrame, base: Baseline) -> list[Check]:
    """What does not happen to prices between two looks: other units, another currency, list prices for prices."""
    checks = (_ratios(both), _currency(both), _reset(both))
    if base.kind == "none":
        return [replace(check, passed=True, got="nothing to compare with") for check in checks]
    return [_held(check, base.held) for check in checks]


def rules(table: pd.DataFrame, limits: Limits) -> list[Check]:
    """Every rule of this module, asked of no history: their names and what they say of themselves."""
    nothing = beside(table, frame([]))
    return [
        rows(0, [], limits, None),
        columns({}, [], limits),
        frozen(None, [], limits, None),
        moved(nothing, limits.drift_moved, ""),
        *values(nothing, Baseline("none")),
    ]


def moved_share(both: pd.DataFrame) -> float | None:
    """The share of prices that are others than then; None without any."""
    priced = both["now"].notna() & both["then"].notna()
    return float((both["now"] != both["then"])[priced].mean()) if priced.any() else None


def unchanged_share(both: pd.DataFrame) -> float | None:
    """The share of entities that say exactly what they said then; None without enough of them."""
    if len(both) < FROZEN_ROWS:
        return None
    return float((both[validate.PAYLOAD_HASH] == both["payload_hash"]).mean())


def moved(both: pd.DataFrame, limit: float, held: Held, since: str = "the last accepted window") -> Check:
    """No more prices moved than shops move; `since` names what they are compared with."""
    share = moved_share(both)
    changed = (both["now"] != both["then"]) & both["now"].notna() & both["then"].notna()
    check = Check(
        "drift:moved",
        share is None or share <= limit,
        f"at most {limit:.0%} of the prices moved since {since}",
        "nothing to compare with" if share is None else f"{share:.1%} of {len(both)}",
        samples=_samples(both, changed),
        pages=validate.pages(both, changed),
    )
    return _held(check, held)


def of_a_sample(limit: float, rows: int) -> float:
    """The limit for a share that a sample of so many rows estimates: two standard errors wider.

    >>> round(of_a_sample(0.3, 200), 3), of_a_sample(0.3, 1)
    (0.365, 1.0)
    """
    return min(1.0, limit + 2 * math.sqrt(limit * (1 - limit) / max(1, rows)))


def rows(count: int, history: Sequence[Window], limits: Limits, start: datetime | None) -> Check:
    """As many rows as there were: a band around the median of the last accepted windows."""
    same_day = [one for one in history if start is not None and one.start.weekday() == start.weekday()]
    chosen = same_day if len(same_day) >= WEEKDAYS else list(history)
    if not chosen:
        expected = f"as many rows as the last accepted windows had, within {limits.drift_rows:.0%}"
        return Check("drift:rows", True, expected, f"{count} rows, and no accepted window to compare with")
    counts = sorted(one.rows for one in chosen)
    middle = counts[len(counts) // 2]
    low, high = middle * (1 - limits.drift_rows), middle * (1 + limits.drift_rows)
    which = "accepted windows of this weekday" if chosen is same_day else "accepted windows"
    check = Check(
        "drift:rows",
        low <= count <= high,
        f"{low:.0f} to {high:.0f} rows, {limits.drift_rows:.0%} around {middle}, the median of the last {len(chosen)} "
        f"{which}",
        f"{count} rows",
    )
    return _held(check, _warming(history, limits))


def columns(filled: Mapping[str, float], history: Sequence[Window], limits: Limits) -> Check:
    """No column that rows used to fill is empty in all of them."""
    lost = []
    for name, share in filled.items():
        before = sorted(float(one.figures.get("filled", {}).get(name, 0.0)) for one in history)
        if before and share == 0 and before[len(before) // 2] >= COLUMN_WAS_FILLED:
            lost.append(f"{name}, {before[len(before) // 2]:.0%} before")
    check = Check(
        "columns",
        not lost,
        "every column that was filled before",
        f"empty: {', '.join(lost)}" if lost else "all of them",
    )
    return _held(check, _warming(history, limits))


def frozen(unchanged: float | None, history: Sequence[Window], limits: Limits, start: datetime | None) -> Check:
    """A site that shows the same page window after window, where it used to change, shows a page that is not alive."""
    rule, expected = "frozen", "something that changes within three windows"
    before = [one.figures.get("unchanged") for one in history]
    still = next((n for n, share in enumerate(before) if share is None or share < FROZEN_SHARE), len(before))
    # The window that the oldest of the unchanged ones was compared with; as far back as is remembered.
    since = history[min(still, len(history) - 1)].start if history else start
    days = (start - since).total_seconds() / 86400 if start and since else 0.0
    stands = unchanged is not None and unchanged >= FROZEN_SHARE and still > 0
    if not stands or days < FROZEN_DAYS:
        return Check(
            rule, True, expected, "nothing to compare with" if unchanged is None else f"{1 - unchanged:.1%} changed"
        )
    earlier = before[still:]
    lively = 2 * sum(share is not None and share < FROZEN_SHARE for share in earlier) > len(earlier) > 0
    check = Check(
        rule,
        False,
        expected,
        f"not one value in a thousand changed in {still + 1} windows, {days:g} days",
        severity="error" if lively else "warn",
    )
    return _held(check, _warming(history, limits))


def filled_shares(table: pd.DataFrame, names: Sequence[str]) -> dict[str, float]:
    """Which share of the rows has each column."""
    return {name: round(float(table[name].notna().mean()), 4) if len(table) else 0.0 for name in names}


def _warming(history: Sequence[Window], limits: Limits) -> Held:
    return "warm_up" if len(history) < limits.warm_up else ""


def _held(check: Check, held: Held) -> Check:
    return replace(check, held=held) if held and not check.passed else check


def _ratios(both: pd.DataFrame) -> Check:
    ratio = both["now"] / both["then"]
    many = pd.Series(False, index=both.index)
    found = []
    for name, factor in RATIOS.items():
        near = (ratio / factor - 1).abs() <= RATIO_WIDTH
        if near.any():
            found.append(f"{int(near.sum())} near x{name}")
        many |= near
    # One product of a hundred may well be sold for a tenth of its price.
    few = 0 if len(both) < FROZEN_ROWS else 2
    if int(many.sum()) <= max(few, RATIO_SHARE * int(ratio.notna().sum())):
        many[:] = False
    # What says itself that it was reduced from the old price is a sale, whatever its rate.
    sale = validate.numbers(both["list_price"]) == both["then"]
    taxed = pd.Series(False, index=both.index)
    for rate in VAT_RATES:
        near = ((ratio / (1 + rate) - 1).abs() <= VAT_WIDTH) | ((ratio * (1 + rate) - 1).abs() <= VAT_WIDTH)
        near &= ~sale
        if len(both) >= FROZEN_ROWS and near.sum() > max(VAT_SHARE * ratio.notna().sum(), taxed.sum()):
            taxed = near
            found.append(f"{int(near.sum())} by {rate:.0%}, as with and without VAT")
    bad = many | taxed
    return Check(
        "drift:ratio",
        not bad.any(),
        "no prices times 10, 100 or 1000, and no one tax rate between many",
        f"{', '.join(found)} of {len(both)}" if bad.any() else f"none of {len(both)}",
        samples=_samples(both, bad),
        pages=validate.pages(both, bad),
    )


def _currency(both: pd.DataFrame) -> Check:
    other = both["currency"].notna() & both["currency_then"].notna() & (both["currency"] != both["currency_then"])
    count = int(other.sum())
    return Check(
        "drift:currency",
        count <= CURRENCY_SHARE * len(both),
        "prices in the currency they were in",
        f"{count} of {len(both)} in another one",
        samples=_samples(both, other, "currency"),
        pages=validate.pages(both, other),
    )


def _reset(both: pd.DataFrame) -> Check:
    reduced = both["list_then"].notna() & (both["list_then"] > both["then"])
    # A sale that ended takes its list price along; read as the price, it still stands beside it, or nobody has one.
    beside_it = both["list_price"].notna()
    reset = reduced & (both["now"] == both["list_then"]) & (beside_it | (not beside_it.any()))
    count, total = int(reset.sum()), int(reduced.sum())
    passed = count < max(RESET_ROWS, RESET_SHARE * total)
    return Check(
        "drift:list_price",
        passed,
        "prices, not the list prices beside them",
        f"{count} of {total} reduced prices are what their list price was",
        samples=_samples(both, reset),
        pages=validate.pages(both, reset),
    )


def _samples(both: pd.DataFrame, bad: Any, column: str = "price") -> list[dict[str, Any]]:
    then = dict(zip(both["entity_key"], both[f"{column}_then"], strict=True))
    return [{**one, "before": then[one["entity_key"]]} for one in validate.samples(both, bad, column)]
