"""Rows of a page that the user's own code reads: what it is given, how it is called, how its values are taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from scrape_assets.rules.currency import currency_code
from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.fields import PRODUCT_OFFER
from scrape_assets.rules.keys import plain
from scrape_assets.rules.money import APART, Money, Refusal, not_asked
from scrape_assets.rules.offers import NOT_FOR_SALE, availability, priced
from scrape_assets.rules.row import Failed, Row, checked, snippet
from scrape_assets.rules.spec import ExtractRule
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.structured import json_ld

_AMOUNTS = ("price", "list_price", "unit_price")


@dataclass(frozen=True, slots=True)
class PageView:
    """What a page object is given: the page's address, its text and ways to look into it."""

    url: str
    text: str
    document: Document

    @property
    def tree(self) -> LexborHTMLParser:
        """The parsed page (selectolax)."""
        return self.document.tree

    def css(self, selector: str, *, apart: bool = False) -> list[str]:
        """The texts of the elements that the CSS selector finds.

        With `apart`, what stands in different elements is divided by `|`, as a price needs: `19<sup>99</sup>` is
        then `19|99`, which is refused as a price instead of being read as another one.
        """
        return [text_of(node, joint=APART if apart else "") for node in self.document.css(selector)]

    def xpath(self, expression: str) -> list[str]:
        """What the XPath expression finds, as text."""
        return [str(found) for found in self.document.selector.xpath(expression).getall()]

    def json_ld(self) -> list[Any]:
        """The page's JSON-LD blocks that could be read, in order."""
        return json_ld(self.document).blocks

    def absolute(self, address: str) -> str | None:
        """The http(s) address that a link on this page means."""
        return self.document.absolute(address)


def by_page_object(
    document: Document, rule: ExtractRule, page_object: Callable[[PageView], Any]
) -> tuple[Row, ...] | Failed:
    """The rows that the user's code reads; whatever it raises is a failure of this page, never of the worker."""
    name = rule.page.page_object or str(getattr(page_object, "__name__", "page object"))
    try:
        result = page_object(PageView(document.url, document.text, document))
        items = result.to_items() if hasattr(result, "to_items") else result
    except Exception as error:  # noqa: BLE001 -- the code is the user's: whatever it raises is this page's failure
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Failed(FailureClass.EXTRACTION, f"{name} raised {reason}", evidence=False)
    if items is None or items == []:
        if items is not None and rule.page.empty and document.has(rule.page.empty):
            return ()
        return Failed(FailureClass.EXTRACTION, f"{name} gave no rows", evidence=False)
    rows: list[Row] = []
    for number, item in enumerate(items if isinstance(items, (list, tuple)) else [items], 1):
        row = _row(item, document, rule, name)
        if isinstance(row, Failed):
            return Failed(row.failure_class, f"row {number}: {row.reason}")
        rows.append(row)
    return tuple(rows)


def _row(item: Any, document: Document, rule: ExtractRule, name: str) -> Row | Failed:
    if not isinstance(item, Mapping) or not all(isinstance(key, str) for key in item):
        return Failed(FailureClass.EXTRACTION, f"{name} gave {snippet(repr(item))} where a dict of fields was expected")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    is_offer = rule.schema_name == PRODUCT_OFFER
    for key, given in item.items():
        value = _converted(given)
        if isinstance(value, str) and is_offer:
            value = _as_offer_field(key, given, value, item, document=document, rule=rule)
            if isinstance(value, Money):
                if value.currency and "currency" not in item:
                    values.setdefault("currency", value.currency)
                    sources.setdefault("currency", name)
                value = plain(value.amount)
        elif is_offer and key in _AMOUNTS and isinstance(value, int):
            value = str(value)
        if isinstance(value, Refusal):
            return Failed(FailureClass.EXTRACTION, f"{key}: {name} gave {snippet(repr(given))}: {value.reason}")
        if value is not None and value != "":
            values[key], sources[key] = value, name
    if not values:
        return Failed(FailureClass.EXTRACTION, f"{name} gave a row without any value")
    return _offer(values, sources, rule, name) if is_offer else checked(Row(values, sources), rule.key)


def _offer(values: dict[str, Any], sources: dict[str, str], rule: ExtractRule, name: str) -> Row | Failed:
    """The values as an offer: with a price, or of something that cannot be bought and at least has a name."""
    if "price" in values and "currency" not in values and rule.page.money:
        values["currency"], sources["currency"] = rule.page.money, "declared money"
    lacking = [needed for needed in ("price", "currency") if needed not in values]
    if lacking and values.get("availability") not in NOT_FOR_SALE:
        return Failed(FailureClass.EXTRACTION, f"{lacking[0]}: {name} gave none")
    if lacking and "name" not in values:
        return Failed(FailureClass.EXTRACTION, f"name: {name} gave none, and no price either")
    return checked(Row(values, sources), ("name", "price", "currency", *rule.key))


def _converted(value: Any) -> Any:
    """The value as JSON holds it: numbers as plain text, times as UTC text, lists of text."""
    match value:
        case None | bool() | int():
            return value
        case Decimal():
            return plain(value) if value.is_finite() else Refusal("it is no finite number")
        case float():
            return plain(Decimal(repr(value))) if math.isfinite(value) else Refusal("it is no finite number")
        case str():
            return value.strip()
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC).isoformat()
        case list() | tuple():
            parts = [_converted(part) for part in value]
            if all(isinstance(part, (str, int)) for part in parts):
                return [str(part) for part in parts]
            return Refusal("lists hold texts and numbers only")
        case _:
            return Refusal(f"{type(value).__name__} is none of text, number, time and list")


def _as_offer_field(
    key: str, given: Any, value: str, item: Mapping[str, Any], *, document: Document, rule: ExtractRule
) -> Any:
    """A text value of a `product_offer` field in that field's own form."""
    if key in _AMOUNTS and isinstance(given, str):
        if key == "price" and (refused := not_asked(value)):
            return refused
        stated = item.get("currency")
        return priced(value, rule.page, (currency_code(stated) if isinstance(stated, str) else None) or rule.page.money)
    if key == "currency":
        return currency_code(value) or Refusal("it names no single currency in use")
    if key == "availability":
        return value if value == "unknown" else availability(value)
    if key in ("url", "image_url"):
        return document.absolute(value) or Refusal("it is no http address")
    return value
