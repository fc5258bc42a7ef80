"""What a page's scripts and attributes say to statistics and carts about its product: evidence, never a price alone.

Such numbers may be net, in cents or of another variant. They settle which of two visible prices is meant, no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from scrape_assets.rules.document import Document
from scrape_assets.rules.money import parse_number

MAX_EVENTS = 40
WINDOW = 1_500
"""Characters behind the name of an event in which its values stand."""

_EVENT = re.compile(
    r"view_?item\b|ViewContent|productdetail|\"detail\"|'detail'|\bdetail\s{0,3}:|product_?view|viewProduct|var meta ="
    r"|ec:addProduct|current_?product|product_?page|view_product",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"[\"']?(?<![\w-])(?:price|value|final_?price|sale_?price|current_?price|selling_?price|product_?price|price_?value|prodprice)[\"']?"
    r"\s{0,3}[:=]\s{0,3}[\"']?([0-9][0-9.,]{0,14})",
    re.IGNORECASE,
)
_ATTRIBUTES = ("data-price", "data-product-price", "data-price-amount", "data-price-value", "data-product_price")


def stated_amounts(document: Document) -> frozenset[Decimal]:
    """The amounts that the page's product events and price attributes name."""
    return frozenset(_from_events(document.text)) | frozenset(_from_attributes(document))


def _from_events(text: str) -> Iterator[Decimal]:
    for number, event in enumerate(_EVENT.finditer(text)):
        if number >= MAX_EVENTS:
            return
        for value in _VALUE.findall(text, event.end(), event.end() + WINDOW)[:6]:
            amount = parse_number(value.rstrip(".,"))
            if isinstance(amount, Decimal) and amount:
                yield amount
                if amount == amount.to_integral_value() and amount >= 100:
                    yield amount / 100


def _from_attributes(document: Document) -> Iterator[Decimal]:
    if "data-p" not in document.text and 'itemprop="price"' not in document.text:
        return
    for node in document.css('[data-price], [data-product-price], [data-price-amount], [itemprop="price"][content]')[
        :MAX_EVENTS
    ]:
        attributes = node.attributes
        if "oldPrice" in (attributes.get("data-price-type") or ""):
            continue
        for name in (*_ATTRIBUTES, "content"):
            amount = parse_number(attributes.get(name) or "")
            if isinstance(amount, Decimal) and amount:
                yield round(amount, 2)
