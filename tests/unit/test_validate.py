"""Frames and rules over rows, without a database."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from scrape_assets.datasets import schemas
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import deliver
from scrape_assets.rules import validate
from scrape_assets.rules.acceptance import Check, Limits

COLUMNS = tuple(schemas.PRODUCT_OFFER_COLUMNS)
GOOD = {
    "name": "Lamp",
    "url": "http://shop.example/lamp",
    "sku": "L1",
    "price": "19.99",
    "currency": "EUR",
    "availability": "in_stock",
}


def judged(*payloads: dict[str, Any], observed_at: float = 1000.0) -> dict[str, Check]:
    rows = [
        (
            f"entity {n}",
            "",
            f"http://shop.example/page{n}",
            "ab" * 32,
            "cd" * 16,
            observed_at,
            orjson.dumps(payload).decode(),
        )
        for n, payload in enumerate(payloads)
    ]
    table = validate.frame(rows, COLUMNS)
    assert len(table) == len(payloads)
    checks = validate.judge(
        table,
        schemas.of("product_offer", Path()),
        Limits(coverage=0.9, required=schemas.PRODUCT_OFFER_REQUIRED),
        collected_from=900.0,
        now=1100.0,
    )
    return {check.rule: check for check in checks}


def failed(checks: dict[str, Check]) -> set[str]:
    return {rule for rule, check in checks.items() if not check.passed}


def test_good_rows_pass_every_rule() -> None:
    assert failed(judged(GOOD, {**GOOD, "sku": "L2"})) == set()


@pytest.mark.parametrize("field", schemas.PRODUCT_OFFER_REQUIRED)
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_required_field_that_is_missing_is_named_with_its_page(field: str, value: object) -> None:
    check = judged(GOOD, {**GOOD, field: value})[f"required:{field}"]
    assert not check.passed
    assert check.samples[0]["url"] == "http://shop.example/page1"


def test_an_offer_that_is_sold_out_needs_no_price() -> None:
    sold_out = {"name": "Lamp", "sku": "L1", "availability": "out_of_stock"}
    assert failed(judged(GOOD, sold_out)) == set()


@pytest.mark.parametrize("price", ["NaN", "Infinity", "-1", "0"])
def test_an_amount_that_is_none_is_refused(price: str) -> None:
    assert "money:price" in failed(judged(GOOD, {**GOOD, "price": price}))


def test_a_column_that_is_all_null_is_caught_where_it_is_required() -> None:
    rows = [{key: value for key, value in GOOD.items() if key != "currency"}] * 3
    assert judged(*rows)["required:currency"].got == "3 of 3 rows without"


def test_values_stay_what_they_are_beside_a_null() -> None:
    rows = [
        ("e1", "", "p", None, "", 1.0, '{"gtin": "0012345", "sku": 9007199254740993, "promotion": ["a"]}'),
        ("e2", "", "p", None, "", 1.0, '{"gtin": null, "name": null}'),
    ]
    table = validate.frame(rows, COLUMNS)
    assert table["gtin"].tolist() == ["0012345", None]
    assert table["sku"].tolist() == [9007199254740993, None]
    assert table["promotion"].tolist() == [["a"], None]


OWN = """
import pandera.pandas as pa
from pandera.typing import Series

class Thing(pa.DataFrameModel):
    title: str
    stock: int = pa.Field(nullable=True)
    in_stock: bool = pa.Field(nullable=True)
"""


@pytest.mark.parametrize("stock", [[1, 2], [1, None], [None, None], ["abc", 1], [[1], {"a": 1}]])
@pytest.mark.parametrize("flag", [[True, None], [None, None], ["perhaps", True]])
def test_a_schema_of_ones_own_gives_a_verdict_for_whatever_the_columns_hold(
    tmp_path: Path, stock: list[Any], flag: list[Any]
) -> None:
    (tmp_path / "pages.py").write_text(OWN)
    rows = [
        (
            f"e{n}",
            "",
            f"http://shop.example/{n}",
            None,
            "",
            1.0,
            orjson.dumps({"title": "x", "stock": a, "in_stock": b}).decode(),
        )
        for n, (a, b) in enumerate(zip(stock, flag, strict=True))
    ]
    table = validate.frame(rows, ("title", "stock", "in_stock"))
    schema = schemas.of("pages.py:Thing", tmp_path)
    checks = {c.rule: c for c in validate.judge(table, schema, Limits(0.9, ("title",)), collected_from=0.0, now=2.0)}
    assert checks["required:title"].passed
    good = all(value is None or type(value) is int for value in stock)
    honest = all(value is None or type(value) is bool for value in flag)
    assert checks["schema"].passed is (good and honest), checks["schema"]
    refused = {sample["field"] for sample in checks["schema"].samples}
    assert refused == {name for name, fine in (("stock", good), ("in_stock", honest)) if not fine}


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"title": "x", "stock": None, "in_stock": True}, "stock"),
        ({"title": "x", "stock": 1, "in_stock": None}, "in_stock"),
    ],
)
def test_a_null_in_a_column_that_may_not_hold_one_fails_the_schema(
    tmp_path: Path, row: dict[str, Any], field: str
) -> None:
    (tmp_path / "pages.py").write_text(OWN.replace("pa.Field(nullable=True)", "pa.Field()"))
    rows = [("e", "", "http://shop.example/1", None, "", 1.0, orjson.dumps(row).decode())]
    table = validate.frame(rows, ("title", "stock", "in_stock"))
    schema = schemas.of("pages.py:Thing", tmp_path)
    checks = {c.rule: c for c in validate.judge(table, schema, Limits(0.9, ("title",)), collected_from=0.0, now=2.0)}
    assert not checks["schema"].passed
    assert {sample["field"] for sample in checks["schema"].samples} == {field}


@pytest.mark.parametrize(("days", "fresh"), [(6, True), (8, False)])
def test_the_sources_own_age_counts_from_when_a_row_was_seen(days: int, fresh: bool) -> None:
    revised = datetime.fromtimestamp(1e9 - days * 86400, UTC).isoformat()
    payload = orjson.dumps({**GOOD, "source_revised_at": revised}).decode()
    table = validate.frame([("e", "", "p", None, "", 1e9, payload)], COLUMNS)
    limits = Limits(0.9, (), source_age_seconds=7 * 86400)
    checks = validate.judge(table, schemas.of("product_offer", Path()), limits, collected_from=1e9, now=1.1e9)
    assert {c.rule: c.passed for c in checks}["source_age"] is fresh


@pytest.mark.parametrize(("at", "fresh"), [(599.0, False), (601.0, True), (1399.0, True), (1401.0, False)])
def test_rows_must_stem_from_this_collection(at: float, fresh: bool) -> None:
    assert judged(GOOD, observed_at=at)["freshness"].passed is fresh


def test_a_schema_that_drops_invalid_rows_judges_them_all_the_same(tmp_path: Path) -> None:
    lenient = (
        OWN.replace("stock: int = pa.Field(", "stock: int = pa.Field(ge=0, ")
        + "\n    class Config:\n        drop_invalid_rows = True\n"
    )
    (tmp_path / "pages.py").write_text(lenient)
    rows = [
        ("e", "", "http://shop.example/1", None, "", 1.0, b'{"title": "x", "stock": -1, "in_stock": true}'.decode())
    ]
    table = validate.frame(rows, ("title", "stock", "in_stock"))
    schema = schemas.of("pages.py:Thing", tmp_path)
    checks = {c.rule: c for c in validate.judge(table, schema, Limits(0.9, ("title",)), collected_from=0.0, now=2.0)}
    assert not checks["schema"].passed


@pytest.mark.parametrize("titles", [["x", None], [None, None]])
def test_a_missing_text_is_no_text_and_its_page_is_named(tmp_path: Path, titles: list[str | None]) -> None:
    (tmp_path / "pages.py").write_text(OWN)
    rows = [
        (
            f"e{n}",
            "",
            f"http://shop.example/{n}",
            None,
            "",
            1.0,
            orjson.dumps({"title": one, "stock": 1, "in_stock": True}).decode(),
        )
        for n, one in enumerate(titles)
    ]
    table = validate.frame(rows, ("title", "stock", "in_stock"))
    schema = schemas.of("pages.py:Thing", tmp_path)
    checks = {c.rule: c for c in validate.judge(table, schema, Limits(0.9, ()), collected_from=0.0, now=2.0)}
    assert not checks["schema"].passed
    pages = {sample["url"] for sample in checks["schema"].samples}
    assert pages == {f"http://shop.example/{n}" for n, one in enumerate(titles) if one is None}


def test_a_large_number_beside_a_null_keeps_its_last_digit(tmp_path: Path) -> None:
    (tmp_path / "pages.py").write_text(
        OWN.replace("stock: int = pa.Field(", "stock: int = pa.Field(eq=9007199254740993, ")
    )
    rows = [
        (
            f"e{n}",
            "",
            f"http://shop.example/{n}",
            None,
            "",
            1.0,
            orjson.dumps({"title": "x", "stock": one, "in_stock": True}).decode(),
        )
        for n, one in enumerate([9007199254740993, None])
    ]
    table = validate.frame(rows, ("title", "stock", "in_stock"))
    schema = schemas.of("pages.py:Thing", tmp_path)
    checks = {c.rule: c for c in validate.judge(table, schema, Limits(0.9, ()), collected_from=0.0, now=2.0)}
    assert checks["schema"].passed, checks["schema"]


def test_a_strict_schema_is_strict_about_its_own_columns_and_not_about_ours(tmp_path: Path) -> None:
    strict = OWN + "\n    class Config:\n        strict = True\n"
    (tmp_path / "pages.py").write_text(strict)
    row = {"title": "x", "stock": 1, "in_stock": True}
    rows = [("e", "", "http://shop.example/1", None, "", 1.0, orjson.dumps(row).decode())]
    table = validate.frame(rows, ("title", "stock", "in_stock"))
    schema = schemas.of("pages.py:Thing", tmp_path)
    checks = {c.rule: c for c in validate.judge(table, schema, Limits(0.9, ("title",)), collected_from=0.0, now=2.0)}
    assert checks["schema"].passed, checks["schema"]


def test_a_schema_may_not_have_a_column_that_every_row_has(tmp_path: Path) -> None:
    (tmp_path / "pages.py").write_text(
        "import pandera.pandas as pa\n\n\nclass Offer(pa.DataFrameModel):\n    page: str\n    title: str\n"
    )
    with pytest.raises(DeclarationError, match="columns named page"):
        schemas.of("pages.py:Offer", tmp_path)
    assert {*validate.IDENTITY, *deliver.FIRST_COLUMNS, *deliver.LAST_COLUMNS} == schemas.OURS
