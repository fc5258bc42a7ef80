"""HTML microdata as schema.org nodes, read off the tree that selectors see (https://html.spec.whatwg.org, 5).

Own code, because the library for it loads an RDF stack for seconds and builds a second, different tree.
"""

from __future__ import annotations

from typing import Any

from selectolax.lexbor import LexborNode

from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.money import APART

MAX_PROPERTIES = 10_000
"""A page with more items or properties is a catalogue or an attack, not a product."""

MAX_ANCESTORS = 500
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
        is_item = "itemscope" in attributes
        owners = owners_of(element, items, referring)
        if is_item and not owners:
            # A part whose whole was not marked, as an offer without its product.
            tops.append(element.mem_id)
        if owners:
            value: Any = items[element.mem_id] if is_item else value_of(element, document, "itemprop")
            put(items, owners, (attributes.get("itemprop") or "").split(), value)
    return [items[top] for top in tops]


def put(items: dict[int, dict[str, Any]], owners: list[int], names: list[str], value: Any) -> None:
    """Adds the value to each of the owners' properties of these names."""
    for owner in owners:
        for name in names:
            items[owner].setdefault(name, []).append(value)


def owners_of(element: LexborNode, items: dict[int, Any], referring: dict[str, list[int]]) -> list[int]:
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


def value_of(element: LexborNode, document: Document, attribute: str) -> str:
    """The value for machines that the element carries, else the address it links to, else its text."""
    attributes = element.attributes
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
