"""`product_offer` rows of a page nobody described: from its own data, checked against and completed by what it shows.

The data are read in the order JSON-LD, microdata, RDFa, OpenGraph. The visible page is read only where they leave
something open: no price, an ambiguous one, one that no reader sees, no stock, no article number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from scrape_assets.rules.agreement import agreed
from scrape_assets.rules.described import described
from scrape_assets.rules.document import Document
from scrape_assets.rules.keys import plain
from scrape_assets.rules.microdata import microdata
from scrape_assets.rules.money import Refusal
from scrape_assets.rules.offers import identity
from scrape_assets.rules.open_graph import from_open_graph
from scrape_assets.rules.rdfa import rdfa
from scrape_assets.rules.row import Failed, Row, checked
from scrape_assets.rules.spec import ExtractRule, PageRule
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.structured import Candidate, candidates, json_ld, types
from scrape_assets.rules.visible import Visible
from scrape_assets.rules.visible_price import VisiblePrice

_OTHER_PAGES = frozenset(
    "CollectionPage SearchResultsPage ItemList NewsArticle BlogPosting Recipe ContactPage AboutPage FAQPage"
    " OfferCatalog JobPosting VideoObject".split()
)
"""What a page says that it is instead of a product's."""


MAX_NAME = 500
"""Characters of a title heading that are a name; more is a text."""


@dataclass(slots=True)
class _Reading:
    """One page being read: what is asked, and what stronger data left open for weaker ones."""

    document: Document
    requested_url: str
    rule: ExtractRule
    visible: Visible
    unpriced: list[Candidate] = field(default_factory=list)
    kinds: frozenset[str] = frozenset()


def zero_config(document: Document, requested_url: str, rule: ExtractRule) -> tuple[Row, ...] | Failed:
    """The page's offers, or why there is none that can be trusted.

    The first kind of data that names a price decides; a weaker one never overrules an ambiguous stronger one. What
    the page shows may only settle it, by an amount among those that were stated.
    """
    blocks = json_ld(document)
    reading = _Reading(document, requested_url, rule, Visible(document, rule.page))
    required = ("name", "price", "currency", *rule.key)
    refused: Refusal | None = None
    readers: tuple[Callable[[PageRule], list[Row] | Refusal | None], ...] = (
        lambda page: _described(candidates(blocks.blocks, "json-ld"), reading, page),
        lambda page: _described(candidates(microdata(document), "microdata"), reading, page),
        lambda page: _described(candidates(rdfa(document), "rdfa"), reading, page),
        lambda page: from_open_graph(document, page),
    )
    for read in readers:
        found = _in_its_currency(read, reading)
        if isinstance(found, list):
            result = _against_the_page(found, reading)
            return _all_checked(result, required) if isinstance(result, list) else _failed(result)
        if found is not None:
            refused = refused or found
            if found.ambiguous:
                break
    reading.kinds = frozenset(kind for block in _tops(blocks.blocks) for kind in types(block))
    if (shown := _from_page(reading, refused)) is not None:
        return _all_checked([shown], required)
    if refused is not None:
        return _failed(refused)
    broken = f"; {blocks.broken} JSON-LD block(s) could not be read" if blocks.broken else ""
    seen = reading.visible.price
    why = f"; on the page: {seen.reason}" if isinstance(seen, Refusal) else ""
    return Failed(
        FailureClass.EXTRACTION if blocks.broken else FailureClass.WRONG_TEMPLATE,
        f"no product in JSON-LD, microdata, RDFa or OpenGraph data, and none that the page alone shows{broken}{why};"
        " declare fields",
        evidence=False,
    )


def _described(found: list[Candidate], reading: _Reading, page: PageRule) -> list[Row] | Refusal | None:
    rule = reading.rule if page is reading.rule.page else reading.rule.model_copy(update={"page": page})
    return described(found, reading.document, reading.requested_url, rule, reading.unpriced)


def _failed(refused: Refusal) -> Failed:
    return Failed(FailureClass.EXTRACTION, refused.reason)


def _tops(blocks: list[Any]) -> list[dict[str, Any]]:
    """The nodes at the top of the blocks."""
    found: list[dict[str, Any]] = []
    for block in blocks:
        for item in block if isinstance(block, list) else [block]:
            if isinstance(item, dict):
                graph = item.get("@graph")
                found += [
                    item,
                    *(node for node in (graph if isinstance(graph, list) else []) if isinstance(node, dict)),
                ]
    return found


def _all_checked(rows: Iterable[Row], required: tuple[str, ...]) -> tuple[Row, ...] | Failed:
    good: list[Row] = []
    for row in rows:
        result = checked(row, required)
        if isinstance(result, Failed):
            return result
        good.append(result)
    return tuple(good)


def _in_its_currency(
    read: Callable[[PageRule], list[Row] | Refusal | None], reading: _Reading
) -> list[Row] | Refusal | None:
    """What the reader finds; where only the currency is missing, in the one of the page's country or data."""
    page = reading.rule.page
    found = read(page)
    if not isinstance(found, Refusal) or not found.lacks_currency:
        return found
    place = reading.visible.place
    if place.currency is None:
        return found
    again = read(page.model_copy(update={"money": place.currency}))
    if not isinstance(again, list):
        return found
    for row in again:
        if row.sources.get("currency") == "declared money":
            row.sources["currency"] = place.source
    return again


def _against_the_page(rows: list[Row], reading: _Reading) -> list[Row] | Refusal:
    """The rows as they are, or the one row held against the page and completed from it."""
    if len(rows) != 1:
        return rows
    row = agreed(rows[0], reading.document, reading.visible)
    return row if isinstance(row, Refusal) else [_completed(row, reading)]


def _completed(row: Row, reading: _Reading) -> Row:
    """The row with the stock and numbers that only the visible page names.

    A page that says "sold out" and disables its button is believed against data that say in stock.
    """
    values, visible = row.values, reading.visible
    visible.known_name = visible.known_name or str(values.get("name") or "")
    stock = values.get("availability")
    added: dict[str, tuple[str, str]] = {}
    if stock in (None, "unknown"):
        if visible.availability is not None:
            added["availability"] = visible.availability
    elif stock == "in_stock" and visible.is_closed and visible.availability is not None:
        if visible.availability[0] == "out_of_stock":
            added["availability"] = visible.availability
    elif "sku" in values:
        return row
    if stock in (None, "unknown") or "sku" not in values:
        numbers = (("sku", visible.sku), ("gtin", visible.gtin), ("brand", visible.brand))
        added |= {name: shown for name, shown in numbers if name not in values and shown is not None}
    if not added:
        return row
    return Row(
        {**values, **{name: value for name, (value, _) in added.items()}},
        {**row.sources, **{name: source for name, (_, source) in added.items()}},
    )


def _from_page(reading: _Reading, refused: Refusal | None) -> Row | None:
    """A row by what the page shows, where that settles what the data left open, or where there are no data."""
    visible, document = reading.visible, reading.document
    known = [identity(one, document) for one in reading.unpriced]
    if not _may_be_settled(reading, refused):
        return None
    visible.known_name = next((str(row.values["name"]) for row in known if row.values.get("name")), None)
    if visible.main is None or not visible.main.name:
        return None
    name = visible.main.name
    own = [row for row in known if _names_the_same(str(row.values.get("name") or ""), name)]
    priced = _shown_price(reading, refused, bool(own))
    if (known and not own) or priced is None:
        return None
    row = Row({"name": name[:MAX_NAME], "url": document.url}, {"name": "page: title heading", "url": "page address"})
    for part in (priced, *own[: len({str(one.values.get("sku")) for one in own}) == 1]):
        row.values.update(part.values)
        row.sources.update(part.sources)
    row = _completed(row, reading)
    _put_tags(document, row.values, row.sources)
    return row


def _may_be_settled(reading: _Reading, refused: Refusal | None) -> bool:
    """Whether the visible page may be asked: the data leave a choice, or name a product without a price, or nothing."""
    if refused is not None and refused.ambiguous:
        return bool(refused.among)
    is_other = reading.kinds & _OTHER_PAGES or urlsplit(reading.document.url).path in ("", "/")
    return bool(reading.unpriced) or not is_other


def _shown_price(reading: _Reading, refused: Refusal | None, is_product: bool) -> Row | None:
    """The price that the page shows, or that it needs none; None when it may be of anything, or against the data."""
    visible = reading.visible
    seen = visible.price
    if not isinstance(seen, VisiblePrice):
        sold_out = visible.availability is not None and visible.availability[0] == "out_of_stock"
        unclear = seen is not None or (refused is not None and refused.ambiguous)
        return Row({}, {}) if is_product and sold_out and not unclear else None
    if not (is_product or visible.is_product):
        return None
    if refused is not None and refused.ambiguous and not refused.allows(seen.money.amount):
        return None
    currency = visible.place.source if seen.from_place else seen.source
    row = Row(
        {"price": plain(seen.money.amount), "currency": seen.money.currency},
        {"price": seen.source, "currency": currency},
    )
    if seen.list_price is not None:
        row.values["list_price"], row.sources["list_price"] = plain(seen.list_price), "page: struck beside the price"
    return row


def _names_the_same(stated: str, shown: str) -> bool:
    one, other = (" ".join(text.casefold().split()) for text in (stated, shown))
    return not one or one in other or other in one


def _put_tags(document: Document, values: dict[str, Any], sources: dict[str, str]) -> None:
    """Adds brand, picture and number from OpenGraph, which many pages have that have no price there."""
    tags = (("brand", "product:brand"), ("image_url", "og:image"), ("sku", "product:retailer_item_id"))
    for name, tag in tags:
        node = document.tree.css_first(f'meta[property="{tag}"][content]')
        text = " ".join((node.attributes.get("content") or "").split()) if node is not None else ""
        value = document.absolute(text) if name == "image_url" and text else text
        if value and name not in values:
            values[name], sources[name] = value, f"opengraph {tag}"
