"""HTML microdata and RDFa as schema.org nodes, read off the tree that selectors see.

Sources: https://html.spec.whatwg.org, 5; https://www.w3.org/TR/rdfa-lite/, of which GoodRelations is the older use.
Own code, because the library for it loads an RDF stack for seconds and builds a second, different tree.
"""

from __future__ import annotations

import re
from typing import Any

from selectolax.lexbor import LexborNode

from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.money import APART

MAX_PROPERTIES = 10_000
"""A page with more items or properties is a catalogue or an attack, not a product."""

MAX_ANCESTORS = 500
_RDFA_NAMES = {
    "hasPriceSpecification": "priceSpecification", "hasCurrencyValue": "price", "hasCurrency": "priceCurrency",
    "hasMaxCurrencyValue": "highPrice", "hasMinCurrencyValue": "lowPrice", "Offering": "Offer",
    "hasStockKeepingUnit": "sku", "hasEAN_UCC-13": "gtin13", "hasMPN": "mpn", "hasManufacturer": "brand",
}  # fmt: skip
"""GoodRelations' words for what schema.org calls otherwise."""
_RDFA_SHOP = re.compile(r"""typeof\s{0,9}=\s{0,9}["'][^"'>]{0,99}(?:Product|Offer)""", re.IGNORECASE)
_FOREIGN = re.compile(r"^(?:og|fb|twitter|article|product|dc|dcterms|foaf|al|business|place):", re.IGNORECASE)
_SOURCE_TAGS = frozenset("audio embed iframe img source track video".split())


def microdata(document: Document) -> list[Any]:
    """The page's items that are no property of another, each with its properties, `itemref` followed."""
    if "itemprop" not in document.text:
        return []
    scopes = document.css("[itemscope]")
    properties = document.css("[itemprop]")
    if len(scopes) + len(properties) > MAX_PROPERTIES:
        return []
    items: dict[int, dict[str, Any]] = {}
    referring: dict[str, list[int]] = {}
    tops: list[int] = []
    for scope in scopes:
        attributes = scope.attributes
        items[scope.mem_id] = {"@type": (attributes.get("itemtype") or "").split()}
        for reference in (attributes.get("itemref") or "").split():
            referring.setdefault(reference, []).append(scope.mem_id)
        if "itemprop" not in attributes:
            tops.append(scope.mem_id)
    for element in properties:
        attributes = element.attributes
        owners = _owners(element, items, referring)
        if not owners:
            if element.mem_id in items:
                # A part whose whole was not marked, as an offer without its product.
                tops.append(element.mem_id)
            continue
        value: Any = items[element.mem_id] if "itemscope" in attributes else _value(element, attributes, document)
        for name in (attributes.get("itemprop") or "").split():
            for owner in owners:
                items[owner].setdefault(name, []).append(value)
    return [items[top] for top in tops]


def rdfa(document: Document) -> list[Any]:
    """The page's RDFa items that are no property of another, GoodRelations' names turned into schema.org's."""
    if _RDFA_SHOP.search(document.text) is None:
        return []
    scopes = document.css("[typeof]")
    properties = document.css("[property], [rel][typeof]")
    if len(scopes) + len(properties) > MAX_PROPERTIES:
        return []
    items: dict[int, dict[str, Any]] = {}
    tops: list[int] = []
    for scope in scopes:
        attributes = scope.attributes
        items[scope.mem_id] = {"@type": [_bare(name) for name in (attributes.get("typeof") or "").split()]}
        if address := attributes.get("about") or attributes.get("resource"):
            items[scope.mem_id]["@id"] = address
        if "property" not in attributes and not _names(attributes, "rel"):
            tops.append(scope.mem_id)
    for element in properties:
        attributes = element.attributes
        owners = _owners(element, items, {})
        if not owners:
            if element.mem_id in items:
                tops.append(element.mem_id)
            continue
        value: Any = (
            items[element.mem_id] if element.mem_id in items else _value(element, attributes, document, "property")
        )
        for name in _names(attributes, "property") or _names(attributes, "rel"):
            for owner in owners:
                items[owner].setdefault(name, []).append(value)
    return [items[top] for top in tops]


def _names(attributes: dict[str, str | None], attribute: str) -> list[str]:
    """The schema.org names in the attribute; tags of other vocabularies, OpenGraph above all, are none."""
    return [_bare(name) for name in (attributes.get(attribute) or "").split() if not _FOREIGN.match(name)]


def _bare(name: str) -> str:
    bare = re.split(r"[:/#]", name)[-1]
    return _RDFA_NAMES.get(bare, bare)


def _owners(element: LexborNode, items: dict[int, Any], referring: dict[str, list[int]]) -> list[int]:
    """The items that the property belongs to: the nearest around it, and those that refer to a part it stands in."""
    owners: list[int] = []
    node: LexborNode | None = element
    for _ in range(MAX_ANCESTORS):
        if node is None:
            break
        if node.mem_id in items and node.mem_id != element.mem_id:
            return [*owners, node.mem_id]
        if referring and node.id:
            owners += referring.get(node.id, [])
        node = node.parent
    return owners


def _value(
    element: LexborNode, attributes: dict[str, str | None], document: Document, attribute: str = "itemprop"
) -> str:
    tag = element.tag
    name = (attributes.get(attribute) or "").lower()
    if attributes.get("content") and "price" in name:
        # On an image or a link too, where nobody looks.
        return attributes.get("content") or ""
    if tag == "meta":
        return attributes.get("content") or ""
    if tag in _SOURCE_TAGS:
        return document.absolute(attributes.get("src") or "") or ""
    if tag in ("a", "area", "link"):
        return document.absolute(attributes.get("href") or "") or ""
    if tag in ("data", "meter") and attributes.get("value"):
        return attributes.get("value") or ""
    if tag == "time" and attributes.get("datetime"):
        return attributes.get("datetime") or ""
    # Not in the standard, but what sites write: the value for machines beside the text for readers.
    is_price = "price" in name or "currencyvalue" in name
    return attributes.get("content") or text_of(element, joint=APART if is_price else "")
