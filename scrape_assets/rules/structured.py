"""The JSON-LD a page carries for machines, and which of its schema.org nodes are things for sale."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from scrape_assets.rules.document import Document

Node = dict[str, Any]

# What sites put around a block: comment and CDATA markers, themselves commented out, and semicolons.
_BEFORE = re.compile(r"(?:[\s;\ufeff]|<!--|<!\[CDATA\[|//|/\*|\*/)+", re.IGNORECASE)
_AFTER = re.compile(r"(?:[\s;\ufeff]|-->|\]\]>|//|/\*|\*/)+$")
# The whole block as text of HTML: its first string begins with an entity.
_ESCAPED = re.compile(r"\s*[\[{][\s\[{]*&(?:quot|#34|#x22|amp;quot);")
# A string, which is kept; a comment, a comma before the end, which are not. Each takes one pass over any input.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|,(?=\s*+[}\]])|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)|//[^\n]*+', re.DOTALL)
_GAP = re.compile(r"[\s;,]*")
MAX_MENDED = 1_000_000
"""Characters up to which a broken block is mended; no product's data are larger."""

_VOCABULARY = re.compile(r"^(?:https?://(?:www\.)?schema\.org/|schema:)", re.IGNORECASE)
_PRODUCTS = frozenset("Product ProductGroup ProductModel IndividualProduct SomeProducts Vehicle Car Motorcycle".split())
_OF_AN_OFFER = ("price", "priceCurrency", "availability", "priceSpecification", "lowPrice", "highPrice", "url")
# Things that name offers without being what is offered.
_SELLERS = frozenset(
    "Organization Corporation LocalBusiness Store OnlineStore OnlineBusiness Person Brand WebSite Offer AggregateOffer"
    " OfferCatalog ItemList CollectionPage SearchResultsPage Service".split()
)


@dataclass(frozen=True, slots=True)
class JsonLd:
    """The JSON-LD blocks that could be read, in document order, and how many could not."""

    blocks: list[Any]
    broken: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing for sale that the page describes: its node, where it stands, and the nodes that ids refer to."""

    node: Node
    source: str
    by_id: dict[str, Node]

    def resolve(self, value: Any) -> Any:
        """The node that `{"@id": …}` refers to, where the page has it; any other value as it is."""
        if isinstance(value, dict) and len(value) == 1 and isinstance(reference := value.get("@id"), str):
            return self.by_id.get(reference, value)
        return value


def json_ld(document: Document) -> JsonLd:
    """Each script's JSON-LD on its own: a broken block hides no other, the usual dirt around a good one is removed."""
    blocks: list[Any] = []
    broken = 0
    if "ld+json" not in document.text and "LD+JSON" not in document.text.upper():
        return JsonLd(blocks, broken)
    for script in document.css("script[type]"):
        if not (script.attributes.get("type") or "").strip().lower().startswith("application/ld+json"):
            continue
        text = script.text()
        if not text.strip():
            continue
        try:
            blocks.append(_load(text))
        except (ValueError, RecursionError):
            broken += 1
    return JsonLd(blocks, broken)


def _load(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    bare = _unwrap(text)
    for _ in range(2):
        if _ESCAPED.match(bare):
            bare = _unwrap(html.unescape(bare))
    try:
        # Line breaks inside strings and half character pairs are let through here; `row.checked` sees the latter.
        return json.loads(bare, strict=False)
    except ValueError:
        if len(bare) > MAX_MENDED:
            raise
    return _several(_mended(bare))


def _mended(text: str) -> str:
    """The block without what only a script may write: comments, commas before a closing bracket, escaped apostrophes.

    Nothing inside a string is touched but the escape that JSON does not know.
    """

    def kept(hit: re.Match[str]) -> str:
        token = hit.group()
        return token.replace("\\'", "'") if token[0] == '"' else ""

    return _TOKEN.sub(kept, text)


def _several(text: str) -> Any:
    """The values in the text, where a block holds one after the other; a list of them when there are several."""
    decoder = json.JSONDecoder(strict=False)
    values: list[Any] = []
    at = 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        values.append(value)
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
    if not values:
        raise ValueError("no JSON")
    return values[0] if len(values) == 1 else values


def _unwrap(text: str) -> str:
    if before := _BEFORE.match(text):
        text = text[before.end() :]
    # Only the last characters are searched: the pattern would be quadratic over a hostile block.
    return text[:-100] + _AFTER.sub("", text[-100:])


def candidates(blocks: list[Any], source: str) -> list[Candidate]:
    """The things for sale that the blocks describe as their own subject, not as related or listed ones.

    Products first; only where there are none, another named thing with offers (an event, a book, an app).
    """
    nodes = list(_subjects(blocks))
    by_id = {node["@id"]: node for node in nodes if isinstance(node.get("@id"), str) and len(node) > 1}
    products = [node for node in nodes if _PRODUCTS & types(node)]
    if not products:
        products = [node for node in nodes if node.get("offers") and node.get("name") and not _SELLERS & types(node)]
    elif not any(node.get("offers") or node.get("hasVariant") for node in products):
        products = _offered(products, nodes)
    return [Candidate(node, f"{source} {_shown_type(node)}", by_id) for node in products]


def _offered(products: list[Node], nodes: list[Node]) -> list[Node]:
    """Products with the offers that were not put inside them: the price beside the name, or a lone offer."""
    offers = [node for node in nodes if {"Offer", "AggregateOffer"} & types(node) and not node.get("itemOffered")]
    if len(products) == 1 and len(offers) == 1:
        return [{**products[0], "offers": offers[0]}]
    return [
        {**node, "offers": {key: node[key] for key in _OF_AN_OFFER if key in node}} if node.get("price") else node
        for node in products
    ]


def _subjects(blocks: list[Any]) -> Iterator[Node]:
    """The nodes at the top: of blocks, arrays and graphs, and what a page or a sole offer is about."""
    todo = list(reversed(blocks))
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            todo.extend(reversed(item))
        elif isinstance(item, dict):
            yield item
            kinds = types(item)
            inner = [item.get("@graph")]
            if any(kind.endswith("Page") for kind in kinds):
                inner += [item.get("mainEntity"), item.get("mainEntityOfPage")]
            if "Offer" in kinds and isinstance(item.get("itemOffered"), dict):
                inner.append({**item["itemOffered"], "offers": item})
            todo.extend(part for part in reversed(inner) if isinstance(part, (dict, list)))


def types(node: Node) -> frozenset[str]:
    """The node's schema.org types by their bare names."""
    declared = node.get("@type")
    names = declared if isinstance(declared, list) else [declared]
    return frozenset(_VOCABULARY.sub("", name.strip()) for name in names if isinstance(name, str))


def _shown_type(node: Node) -> str:
    return min(_PRODUCTS & types(node) or types(node), default="node")
