"""Validate: a candidate's rows against its schema, as a frame whose types do not depend on what it holds.

pandera judges columns; what it lets pass (an empty frame, infinity, a column that is all null, a value that
cannot be coerced) has a rule of its own here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import orjson
import pandas as pd
import pandera.pandas as pa
from pandera.errors import SchemaErrors

from scrape_assets.rules.acceptance import SAMPLES, Check, Limits

ARTIFACT, PAYLOAD_HASH = "_artifact", "_payload_hash"
HIDDEN = (ARTIFACT, PAYLOAD_HASH)
"""Columns of a frame that are no business of a schema's."""

IDENTITY = ("entity_key", "context", "page", ARTIFACT, PAYLOAD_HASH, "observed_at")
"""Columns that every frame has beside the schema's; `page` is the task's URL, `url` the offer's own."""

LIST_PRICES = 5
"""So few list prices may all equal their price by chance."""

MONEY = ("price", "list_price", "unit_price")

CLOCK_SKEW_SECONDS = 300.0
"""How far ahead of the database's clock a row's time may lie (R119: 300 s)."""

WITHOUT_PRICE = ("out_of_stock", "discontinued")
"""Availabilities under which an offer may lack price and currency (design, product_offer)."""


def frame(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The candidate's rows, each its identity and its payload as JSON text.

    Each schema column is exact text or null, lists and numbers as JSON has them.
    """
    data: dict[str, list[Any]] = {name: [] for name in (*IDENTITY, *columns)}
    for *identity, payload in rows:
        for name, value in zip(IDENTITY, identity, strict=True):
            data[name].append(value)
        values = orjson.loads(payload)
        for name in columns:
            data[name].append(values.get(name))
    types: dict[str, Any] = dict.fromkeys(columns, "object") | {"observed_at": "float64"}
    return pd.DataFrame({name: pd.Series(v, dtype=types.get(name, "object")) for name, v in data.items()})


def judge(
    table: pd.DataFrame,
    schema: pa.DataFrameSchema,
    limits: Limits,
    *,
    collected_from: float,
    now: float,
) -> list[Check]:
    """Every rule over the rows of one retailer alone; times are epoch seconds."""
    return [
        *(_required(table, name) for name in limits.required),
        *(_filled(table, name, share) for name, share in sorted(limits.fill.items())),
        *(_money(table, name) for name in MONEY if name in table.columns),
        *(_within(table, name, *ends) for name, ends in sorted(limits.ranges.items())),
        _unique(table, ["entity_key"], "unique"),
        *(_unique(table, [name], f"unique:{name}") for name in limits.unique),
        _list_price(table),
        _schema(table, schema),
        _freshness(table, collected_from, now),
        *([_source_age(table, limits.source_age_seconds)] if limits.source_age_seconds else []),
    ]


def samples(table: pd.DataFrame, bad: Any, column: str) -> list[dict[str, Any]]:
    """A few of the bad rows: page, entity, the field and its value, and where the page's bytes are."""
    found = table[bad].head(SAMPLES)
    return [
        {
            "url": row["page"],
            "entity_key": row["entity_key"],
            "field": column,
            "value": _shown(row[column]),
            "artifact": row[ARTIFACT],
        }
        for _, row in found.iterrows()
    ]


def pages(table: pd.DataFrame, bad: Any) -> frozenset[str]:
    """The pages of all bad rows."""
    return frozenset(table.loc[bad, "page"])


def over_rows(table: pd.DataFrame, rule: str, bad: pd.Series[bool], column: str, expected: str, wrong: str) -> Check:
    """A rule that every row keeps."""
    count = int(bad.sum())
    return Check(
        rule,
        count == 0,
        expected,
        f"{count} of {len(table)} rows {wrong}",
        samples=samples(table, bad, column),
        pages=pages(table, bad),
    )


def numbers(column: pd.Series[Any]) -> pd.Series[float]:
    """The column's plain decimals as floats, for comparisons; what is none is NaN."""
    return pd.to_numeric(column, errors="coerce").astype("float64")


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(value: Any) -> str | None:
    return None if _missing(value) else str(value)[:200]


def _blank(table: pd.DataFrame, column: str) -> pd.Series[bool]:
    """Null, or text without a character; price and currency may be missing from offers that cannot be bought."""
    missing = table[column].isna() | table[column].map(lambda value: isinstance(value, str) and not value.strip())
    if column in ("price", "currency") and "availability" in table.columns:
        missing &= ~table["availability"].isin(WITHOUT_PRICE)
    return missing.astype(bool)


def _required(table: pd.DataFrame, column: str) -> Check:
    rule = f"required:{column}"
    if column not in table.columns:
        return Check(rule, False, f"a column {column}", f"columns {', '.join(_shown_columns(table))}")
    expected = f"{column} in every row"
    if column in ("price", "currency") and "availability" in table.columns:
        expected += " that is not out of stock or discontinued"
    return over_rows(table, rule, _blank(table, column), column, expected, "without")


def _filled(table: pd.DataFrame, column: str, share: float) -> Check:
    """So many of the rows have the field."""
    rule = f"fill:{column}"
    if column not in table.columns:
        return Check(rule, False, f"a column {column}", f"columns {', '.join(_shown_columns(table))}")
    missing = _blank(table, column)
    filled = 1 - float(missing.mean()) if len(table) else 0.0
    return Check(
        rule,
        filled >= share,
        f"{column} in at least {share:.1%} of the rows",
        f"{filled:.1%}",
        samples=samples(table, missing, column),
        pages=pages(table, missing),
    )


def _shown_columns(table: pd.DataFrame) -> list[str]:
    return [str(name) for name in table.columns if name not in HIDDEN]


def _money(table: pd.DataFrame, column: str) -> Check:
    """Present amounts are finite and positive; a price list may give something away, so zero is refused as a guess."""
    bad = table[column].map(lambda value: not _missing(value) and not _is_amount(value)).astype(bool)
    return over_rows(table, f"money:{column}", bad, column, "finite amounts above zero", "with another value")


def _within(table: pd.DataFrame, column: str, low: float | None, high: float | None) -> Check:
    """Present values are numbers between the declared ends, which belong to it."""
    said = f"{column} " + " and ".join(
        [*([f"at least {low:g}"] if low is not None else []), *([f"at most {high:g}"] if high is not None else [])]
    )
    if column not in table.columns:
        return Check(f"range:{column}", False, f"a column {column}", f"columns {', '.join(_shown_columns(table))}")
    value = numbers(table[column])
    inside = value.between(-math.inf if low is None else low, math.inf if high is None else high)
    bad = table[column].notna() & ~(inside & value.map(math.isfinite))
    return over_rows(table, f"range:{column}", bad.astype(bool), column, said, "outside")


def _unique(table: pd.DataFrame, columns: list[str], rule: str) -> Check:
    """No two rows of one context agree in these columns; rows without a value do not count."""
    if missing := [name for name in columns if name not in table.columns]:
        return Check(rule, False, f"a column {missing[0]}", f"columns {', '.join(_shown_columns(table))}")
    given = table[columns].notna().all(axis=1)
    doubled = table.assign(**{name: table[name].astype(str) for name in columns}).duplicated(
        [*columns, "context"], keep=False
    )
    what = "entity" if columns == ["entity_key"] else columns[0]
    return over_rows(
        table, rule, (given & doubled).astype(bool), columns[0], f"one row for each {what} and context", "share one"
    )


def _list_price(table: pd.DataFrame) -> Check:
    """A list price is what the price was reduced from: below it, or the same all over, one was read as the other."""
    expected = "list prices above prices"
    if not {"price", "list_price"} <= set(table.columns):
        return Check("list_price", True, expected, "the schema has no two prices")
    price, before = numbers(table["price"]), numbers(table["list_price"])
    both = price.notna() & before.notna()
    below, same = both & (before < price), both & (before == price)
    total = int(both.sum())
    # Now and then a shop writes nonsense, or strikes a price through that did not change.
    swapped = int(below.sum()) > max(1.0, 0.01 * total)
    doubled = total >= LIST_PRICES and int(same.sum()) > 0.5 * total
    bad = below if swapped else same & doubled
    return Check(
        "list_price",
        not (swapped or doubled),
        expected,
        f"{int(below.sum())} below the price and {int(same.sum())} equal to it, of {total}",
        samples=samples(table, bad, "list_price"),
        pages=pages(table, bad),
    )


def _is_amount(value: Any) -> bool:
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return False
    return amount.is_finite() and amount > 0


def _schema(table: pd.DataFrame, schema: pa.DataFrameSchema) -> Check:
    expected = f"rows of schema {schema.name}"
    try:
        schema.validate(table.drop(columns=list(HIDDEN)), lazy=True)
    except SchemaErrors as error:
        cases = error.failure_cases
        first = cases.head(SAMPLES)
        said = "; ".join(
            f"{case['column']} fails {case['check']}"
            for _, case in first.drop_duplicates(["column", "check"]).iterrows()
        )
        return Check(
            "schema",
            False,
            expected,
            f"{len(cases)} values refused: {said}",
            samples=[_case(table, case) for _, case in first.iterrows()],
            pages=_pages_of(table, cases),
        )
    return Check("schema", True, expected, f"{len(table)} rows pass")


def _case(table: pd.DataFrame, case: Any) -> dict[str, Any]:
    sample: dict[str, Any] = {
        "field": str(case["column"]),
        "value": _shown(case["failure_case"]),
        "check": str(case["check"]),
    }
    index = case["index"]
    if not _missing(index) and int(index) in table.index:
        row = table.loc[int(index)]
        sample |= {"url": row["page"], "entity_key": row["entity_key"], "artifact": row[ARTIFACT]}
    return sample


def _pages_of(table: pd.DataFrame, cases: pd.DataFrame) -> frozenset[str]:
    index = cases["index"].dropna()
    return frozenset(table.loc[table.index.isin(index.astype(int)), "page"])


def _freshness(table: pd.DataFrame, collected_from: float, now: float) -> Check:
    """Rows were observed while this run collected: not before it was planned, and not in the future.

    Judged against the window's own collection, never against the time of judging: a late repair is not stale.
    """
    bad = (table["observed_at"] < collected_from - CLOCK_SKEW_SECONDS) | (
        table["observed_at"] > now + CLOCK_SKEW_SECONDS
    )
    since = datetime.fromtimestamp(collected_from, UTC).isoformat(timespec="seconds")
    return over_rows(table, "freshness", bad, "observed_at", f"observed after {since} and not in the future", "outside")


def _source_age(table: pd.DataFrame, at_most: float) -> Check:
    """When the source itself last changed a row, before it was seen: a fresh fetch of a stale page is stale."""
    rule, column = "source_age", "source_revised_at"
    if column not in table.columns:
        return Check(rule, False, f"a column {column}", f"columns {', '.join(_shown_columns(table))}")
    revised = pd.to_datetime(table[column], errors="coerce", utc=True, format="ISO8601")
    age = table["observed_at"] - (revised - pd.Timestamp(0, tz=UTC)).dt.total_seconds()
    return over_rows(
        table,
        rule,
        (age > at_most).astype(bool),
        column,
        f"revised by the source within {at_most / 86400:g} days",
        "older",
    )
