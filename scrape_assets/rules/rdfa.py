"""RDFa as schema.org nodes (https://www.w3.org/TR/rdfa-lite/), and the older GoodRelations."""

from __future__ import annotations

import re
from typing import Any

from scrape_assets.rules.document import Document
from scrape_assets.rules.microdata import MAX_PROPERTIES, owners_of, put, value_of

_RDFA_NAMES = {
    "hasPriceSpecification": "priceSpecification", "hasCurrencyValue": "price", "hasCurrency": "priceCurrency",
    "hasMaxCurrencyValue": "highPrice", "hasMinCurrencyValue": "lowPrice", "Offering": "Offer",
    "hasStockKeepingUnit": "sku", "hasEAN_UCC-13": "gtin13", "hasMPN": "mpn", "hasManufacturer": "brand",
}  # fmt: skip
"""GoodRelations' words for what schema.org calls otherwise."""
_RDFA_SHOP = re.compile(r"""typeof\s{0,9}=\s{0,9}["'][^"'>]{0,99}(?:Product|Offer)""", re.IGNORECASE)
_FOREIGN = re.compile(r"^(?:og|fb|twitter|article|product|dc|dcterms|foaf|al|business|place):", re.IGNORECASE)


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
        is_item = element.mem_id in items
        owners = owners_of(element, items, {})
        if is_item and not owners:
            tops.append(element.mem_id)
        if owners:
            value: Any = items[element.mem_id] if is_item else value_of(element, document, "property")
            put(items, owners, _names(attributes, "property") or _names(attributes, "rel"), value)
    return [items[top] for top in tops]


def _names(attributes: dict[str, str | None], attribute: str) -> list[str]:
    """The schema.org names in the attribute; tags of other vocabularies, OpenGraph above all, are none."""
    return [_bare(name) for name in (attributes.get(attribute) or "").split() if not _FOREIGN.match(name)]


def _bare(name: str) -> str:
    bare = re.split(r"[:/#]", name)[-1]
    return _RDFA_NAMES.get(bare, bare)
