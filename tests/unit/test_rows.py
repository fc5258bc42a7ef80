from __future__ import annotations

import math
from typing import Any

import orjson
import pytest

from scrape_assets.rules import keys
from scrape_assets.rules.row import Row
from scrape_assets.rules.rows import Duplicates, Identified, Place, RowFault, identify
from scrape_assets.rules.states import FailureClass

PLACE = Place("prices", "bookshop", "", "2026-11-20", "https://shop.example/p/1")


def rows_of(*values: dict[str, Any]) -> list[Row]:
    return [Row(one, dict.fromkeys(one, "css .x")) for one in values]


def identified(
    *values: dict[str, Any], key: tuple[str, ...] = ("sku",), duplicates: Duplicates = "refuse", place: Place = PLACE
) -> Identified:
    found = identify(rows_of(*values), place, key=key, duplicates=duplicates)
    assert isinstance(found, Identified), found
    return found


def fault(*values: dict[str, Any], key: tuple[str, ...] = ("sku",), duplicates: Duplicates = "refuse") -> RowFault:
    found = identify(rows_of(*values), PLACE, key=key, duplicates=duplicates)
    assert isinstance(found, RowFault), found
    return found


def test_a_row_carries_the_keys_and_the_hash_of_its_values() -> None:
    (row,) = identified({"sku": "A1", "price": "10.00"}).rows
    entity = keys.entity_key("bookshop", ["A1"])
    assert row == {
        "observation_key": str(keys.observation_key("prices", entity, "", "2026-11-20")),
        "entity_key": entity,
        "payload": {"sku": "A1", "price": "10.00"},
        "payload_hash": keys.payload_hash({"sku": "A1", "price": "10.00"}),
        "sources": {"sku": "css .x", "price": "css .x"},
    }
    assert orjson.loads(orjson.dumps([row])) == [row]


def test_context_and_window_give_another_observation_of_the_same_entity() -> None:
    one = identified({"sku": "A1"}).rows[0]
    madrid = Place("prices", "bookshop", "postcode=28001", "2026-11-20", PLACE.canonical_url)
    two = identified({"sku": "A1"}, place=madrid).rows[0]
    assert one["entity_key"] == two["entity_key"]
    assert one["observation_key"] != two["observation_key"]


def test_a_whole_number_is_a_key_part_and_equals_its_text() -> None:
    assert (
        identified({"sku": 15, "price": "1"}).rows[0]["entity_key"]
        == identified({"sku": "15", "price": "1"}).rows[0]["entity_key"]
    )


@pytest.mark.parametrize("seller", [None, "", "  ", [], ["a"], True, 1.5])
def test_a_key_field_without_one_plain_value_fails_the_page_by_name(seller: Any) -> None:
    found = fault({"sku": "A1", "seller": seller}, key=("sku", "seller"))
    assert found.failure_class is FailureClass.EXTRACTION
    assert "row 1" in found.reason
    assert "'seller'" in found.reason


def test_an_absent_key_field_fails_the_page_by_name() -> None:
    assert "row 2: key field 'sku'" in fault({"sku": "A1"}, {"price": "1"}).reason


def test_without_a_declared_key_the_task_says_what_the_page_is_about() -> None:
    by_url = identified({"price": "1"}, key=()).rows[0]
    place = Place("prices", "bookshop", "", "2026-11-20", PLACE.canonical_url, entity="A1")
    by_entity = identified({"price": "1"}, key=(), place=place).rows[0]
    assert by_url["entity_key"] == keys.entity_key("bookshop", [PLACE.canonical_url])
    assert by_entity["entity_key"] == keys.entity_key("bookshop", ["A1"])


def test_equal_rows_of_one_entity_are_one_observation() -> None:
    found = identified({"sku": "A1", "price": "1"}, {"sku": "B2"}, {"price": "1", "sku": "A1"})
    assert [row["payload"]["sku"] for row in found.rows] == ["A1", "B2"]
    assert found.collisions == 0


@pytest.mark.parametrize(("duplicates", "kept"), [("first", "1"), ("last", "3")])
def test_of_contradicting_rows_the_declared_one_stays_and_the_others_are_counted(
    duplicates: Duplicates, kept: str
) -> None:
    found = identified(
        {"sku": "A1", "price": "1"},
        {"sku": "A1", "price": "2"},
        {"sku": "A1", "price": "3"},
        duplicates=duplicates,
    )
    assert [row["payload"]["price"] for row in found.rows] == [kept]
    assert found.collisions == 2


def test_contradicting_rows_are_refused_with_the_field_they_contradict_in() -> None:
    found = fault({"sku": "A1", "price": "1"}, {"sku": "A1", "price": "2"})
    assert found.failure_class is FailureClass.EXTRACTION
    assert "'price': '1' and '2'" in found.reason
    assert "duplicates: first" in found.reason


def test_two_offers_of_a_page_without_a_key_are_told_to_declare_one() -> None:
    assert "declare a `key`" in fault({"price": "1"}, {"price": "2"}, key=()).reason


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("a\x00b", "NUL"),
        ("a\ud83db", "half a character pair"),
        (["fine", "\x00"], "NUL"),
        ({"\x00": 1}, "NUL"),
        ({1: "x"}, "names must be text"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (2**63, "64 bits"),
        (nested(40), "nested"),
        ({1, 2}, "type set"),
    ],
)
def test_what_the_database_would_refuse_is_unstorable_and_named(value: Any, word: str) -> None:
    found = fault({"sku": "A1", "note": value})
    assert found.failure_class is FailureClass.UNSTORABLE
    assert "row 1, field 'note'" in found.reason
    assert word in found.reason


@pytest.mark.parametrize("value", ["€ 😀", None, True, -(2**63), 1.5, ["a", {"b": [1]}], nested(30)])
def test_ordinary_values_are_stored_as_they_are(value: Any) -> None:
    assert identified({"sku": "A1", "note": value}).rows[0]["payload"]["note"] == value
