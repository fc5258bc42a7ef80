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

from scrape_assets.rules.acceptance import SAMPLES, Check

IDENTITY = ("entity_key", "context", "page", "observed_at")
"""Columns that every frame has beside the schema's; `page` is the task's URL, `url` the offer's own."""

MONEY = ("price", "list_price", "unit_price")

CLOCK_SKEW_SECONDS = 300.0
"""How far ahead of the database's clock a row's time may lie (R119: 300 s)."""

WITHOUT_PRICE = ("out_of_stock", "discontinued")
"""Availabilities under which an offer may lack price and currency (design, product_offer)."""


def frame(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The candidate's rows: identity columns; each schema column as exact text or null (lists and numbers as JSON)."""
    data: dict[str, list[Any]] = {name: [] for name in (*IDENTITY, *columns)}
    for entity, context, page, observed_at, payload in rows:
        data["entity_key"].append(entity)
        data["context"].append(context)
        data["page"].append(page)
        data["observed_at"].append(observed_at)
        values = orjson.loads(payload)
        for name in columns:
            data[name].append(values.get(name))
    types: dict[str, Any] = dict.fromkeys(columns, "object") | {"observed_at": "float64"}
    return pd.DataFrame({name: pd.Series(v, dtype=types.get(name, "object")) for name, v in data.items()})


def judge(
    table: pd.DataFrame,
    schema: pa.DataFrameSchema,
    required: Sequence[str],
    *,
    collected_from: float,
    now: float,
) -> list[Check]:
    """Every rule over the rows of one retailer; times are epoch seconds."""
    return [
        *(_required(table, name) for name in required),
        *(_money(table, name) for name in MONEY if name in table.columns),
        _schema(table, schema),
        _freshness(table, collected_from, now),
    ]


def _samples(table: pd.DataFrame, bad: Any, column: str) -> list[dict[str, Any]]:
    found = table[bad].head(SAMPLES)
    return [
        {"url": row["page"], "entity_key": row["entity_key"], "field": column, "value": _shown(row[column])}
        for _, row in found.iterrows()
    ]


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(value: Any) -> str | None:
    return None if _missing(value) else str(value)[:200]


def _required(table: pd.DataFrame, column: str) -> Check:
    """No null and no blank text; price and currency may be missing from offers that cannot be bought."""
    rule = f"required:{column}"
    if column not in table.columns:
        return Check(rule, False, f"a column {column}", f"columns {', '.join(table.columns)}")
    missing = table[column].isna() | table[column].map(lambda value: isinstance(value, str) and not value.strip())
    expected = f"{column} in every row"
    if column in ("price", "currency") and "availability" in table.columns:
        missing &= ~table["availability"].isin(WITHOUT_PRICE)
        expected += " that is not out of stock or discontinued"
    count = int(missing.sum())
    return Check(
        rule, count == 0, expected, f"{count} of {len(table)} rows without", samples=_samples(table, missing, column)
    )


def _money(table: pd.DataFrame, column: str) -> Check:
    """Present amounts are finite and positive; a price list may give something away, so zero is refused as a guess."""
    bad = table[column].map(lambda value: not _missing(value) and not _is_amount(value)).astype(bool)
    count = int(bad.sum())
    return Check(
        f"money:{column}",
        count == 0,
        "finite amounts above zero",
        f"{count} of {len(table)} rows with another value",
        samples=_samples(table, bad, column),
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
        schema.validate(table, lazy=True)
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
        sample |= {"url": row["page"], "entity_key": row["entity_key"]}
    return sample


def _freshness(table: pd.DataFrame, collected_from: float, now: float) -> Check:
    """Rows were observed while this run collected: not before it was planned, and not in the future.

    Judged against the window's own collection, never against the time of judging: a late repair is not stale.
    """
    bad = (table["observed_at"] < collected_from - CLOCK_SKEW_SECONDS) | (
        table["observed_at"] > now + CLOCK_SKEW_SECONDS
    )
    count = int(bad.sum())
    since = datetime.fromtimestamp(collected_from, UTC).isoformat(timespec="seconds")
    return Check(
        "freshness",
        count == 0,
        f"observed after {since} and not in the future",
        f"{count} of {len(table)} rows outside",
        samples=_samples(table, bad, "observed_at"),
    )
