"""`product_offer` rows of a page nobody described: from its own JSON-LD, microdata or OpenGraph, in that order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import unquote, urlsplit

from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.microdata import microdata
from scrape_assets.rules.money import Refusal
from scrape_assets.rules.offers import first_text, rows_of, texts
from scrape_assets.rules.open_graph import from_open_graph
from scrape_assets.rules.row import Failed, Row, checked
from scrape_assets.rules.spec import ExtractRule
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.structured import Candidate, candidates, json_ld

MIN_SKU_CHARACTERS = 4
"""A shorter article number may stand in any address by chance."""

_CODE_KEYS = ("sku", "productID", "mpn", "gtin13", "gtin", "gtin14", "gtin12", "gtin8")


def zero_config(document: Document, requested_url: str, rule: ExtractRule) -> tuple[Row, ...] | Failed:
    """The page's offers, or why there is none that can be trusted.

    The first kind of data that names a price decides; a weaker one never overrules an ambiguous stronger one.
    """
    blocks = json_ld(document)
    refused: Refusal | None = None
    unpriced: list[Candidate] = []
    readers: tuple[Callable[[], list[Row] | Refusal | None], ...] = (
        lambda: _from(candidates(blocks.blocks, "json-ld"), document, requested_url, rule, unpriced),
        lambda: _from(candidates(microdata(document), "microdata"), document, requested_url, rule, unpriced),
        lambda: from_open_graph(document, rule.page),
    )
    for read in readers:
        found = read()
        if isinstance(found, list):
            return _all_checked(found, ("name", "price", "currency", *rule.key))
        if found is not None:
            refused = refused or found
            if found.ambiguous:
                break
    if refused is not None:
        return Failed(FailureClass.EXTRACTION, refused.reason)
    broken = f"; {blocks.broken} JSON-LD block(s) could not be read" if blocks.broken else ""
    return Failed(
        FailureClass.EXTRACTION if blocks.broken else FailureClass.WRONG_TEMPLATE,
        f"no product in JSON-LD, microdata or OpenGraph data{broken}; declare fields",
        evidence=False,
    )


def _all_checked(rows: Iterable[Row], required: tuple[str, ...]) -> tuple[Row, ...] | Failed:
    good: list[Row] = []
    for row in rows:
        result = checked(row, required)
        if isinstance(result, Failed):
            return result
        good.append(result)
    return tuple(good)


def _from(
    found: list[Candidate], document: Document, requested_url: str, rule: ExtractRule, unpriced: list[Candidate]
) -> list[Row] | Refusal | None:
    """The rows of the candidate that the page is about; None when there is no candidate.

    `unpriced` are the page's own products in stronger kinds of data, to which those that name no price are added:
    a price found elsewhere on the page must be theirs.
    """
    if not found:
        return None
    meant = _of_this_page(found, document, requested_url)
    if not meant:
        return _ambiguous_product(found)
    chosen = [one for one in meant if _sells(one)]
    if not chosen:
        # What is meant may be said in two places, the price in the one that does not name the address.
        chosen = [one for one in found if _sells(one) and any(_same_thing(one, other) for other in meant)]
    if not chosen:
        unpriced += meant
        return Refusal(f"price missing: {meant[0].source} has no offers")
    for other in [*unpriced, *_rivals(meant, chosen, document, requested_url)]:
        if not any(_same_thing(other, one) for one in chosen):
            return _ambiguous_product([other, *chosen])
    outcomes = [rows_of(one, document, rule.page) for one in chosen]
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            unpriced += chosen
            return outcome if len(chosen) == 1 else _ambiguous_product(chosen)
    rows = [row for outcome in outcomes if isinstance(outcome, list) for row in outcome]
    return _one_thing(chosen, rows, rule, unpriced)


def _one_thing(
    chosen: list[Candidate], rows: list[Row], rule: ExtractRule, unpriced: list[Candidate]
) -> list[Row] | Refusal:
    """The rows of the chosen candidates, where those say the same of one thing."""
    if not rows:
        unpriced += chosen
        return Refusal(f"price missing: {chosen[0].source} has offers that say nothing")
    if len(chosen) > 1 and len({_shown(row, ("name", "price", "currency")) for row in rows}) > 1:
        return _ambiguous_product(chosen)
    return _told_apart(rows, rule.key)


def _ambiguous_product(chosen: list[Candidate]) -> Refusal:
    names = ", ".join(repr((first_text(one.node.get("name")) or "?")[:40]) for one in chosen[:3])
    return Refusal(f"ambiguous product: {len(chosen)} on the page and none alone matches its address ({names})", True)


def _sells(one: Candidate) -> bool:
    return bool(one.node.get("offers") or one.node.get("hasVariant"))


def _rivals(meant: list[Candidate], chosen: list[Candidate], document: Document, requested_url: str) -> list[Candidate]:
    """The unpriced candidates that the page may be about as well as about the chosen ones."""
    here: set[tuple[str, ...]] = {_address(url)[:2] for url in _own_addresses(document, requested_url)}
    others = [one for one in meant if one not in chosen]
    if any(_is_elsewhere(one, document, here) for one in chosen):
        return others
    return [one for one in others if not _is_elsewhere(one, document, here)]


def _is_elsewhere(one: Candidate, document: Document, here: set[tuple[str, ...]]) -> bool:
    """Whether the candidate names addresses, and none of them is this page's: a related product."""
    stated = {_address(url)[:2] for url in _addresses(one, document)}
    return bool(stated) and not stated & here


def _is_another(one: Candidate, document: Document, requested_url: str) -> bool:
    """Whether the only product on the page says that it is another page's, and nothing here says that it is not."""
    here: set[tuple[str, ...]] = {_address(url)[:2] for url in _own_addresses(document, requested_url)}
    if not _is_elsewhere(one, document, here) or _has_code_in(one, document, requested_url):
        return False
    shown = " ".join(text_of(node) for node in document.css("title, h1")).casefold()
    return not any(name.casefold() in shown for name in texts(one.node.get("name")))


def _same_thing(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates may be one product: by a number, or by a name that is the other's or a part of it."""
    for key in _CODE_KEYS:
        if set(texts(one.node.get(key))) & set(texts(other.node.get(key))):
            return True
    names, others = ([name.casefold() for name in texts(each.node.get("name"))] for each in (one, other))
    return not names or not others or any(a in b or b in a for a in names for b in others)


def _shown(row: Row, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(row.values.get(name, "")) for name in names)


def _told_apart(rows: list[Row], key: tuple[str, ...]) -> list[Row] | Refusal:
    """Several rows only where the key tells them apart; one where they agree on the price; else a refusal."""
    if len(rows) == 1:
        return rows
    shown = [_shown(row, key) for row in rows]
    if key and all(all(parts) for parts in shown) and len(set(shown)) == len(rows):
        return rows
    prices = {_shown(row, ("price", "currency")) for row in rows}
    if len(prices) > 1:
        several = ", ".join(sorted(" ".join(price) for price in prices)[:4])
        return Refusal(
            f"ambiguous price: {len(rows)} offers ({several}) that the key {list(key)} does not tell apart", True
        )
    first = rows[0]
    values = {name: value for name, value in first.values.items() if all(row.values.get(name) == value for row in rows)}
    stock = {row.values.get("availability") for row in rows}
    if len(stock) > 1 and "in_stock" in stock:
        values["availability"] = "in_stock"
    sources = {name: first.sources.get(name, "any of the offers") for name in values}
    return [Row(values, sources)]


def _of_this_page(found: list[Candidate], document: Document, requested_url: str) -> list[Candidate]:
    """Of several candidates, the one whose address or number is the page's; all that are left when none is alone.

    A single one is the page's, unless it says that it is another page's.
    """
    if len(found) == 1:
        return [] if _is_another(found[0], document, requested_url) else found
    whole = {_address(url) for url in _own_addresses(document, requested_url)}
    paths = {address[:2] for address in whole}
    tests: tuple[Callable[[Candidate], bool], ...] = (
        lambda one: any(_address(url) in whole for url in _addresses(one, document)),
        lambda one: any(_address(url)[:2] in paths for url in _addresses(one, document)),
        lambda one: _has_code_in(one, document, requested_url),
    )
    left = found
    for test in tests:
        matching = [one for one in left if test(one)]
        if len(matching) == 1:
            return matching
        left = matching or left
    return left


def _has_code_in(one: Candidate, document: Document, requested_url: str) -> bool:
    """Whether one of the candidate's numbers stands in the page's address."""
    words = " ".join(
        unquote(urlsplit(url).path + "?" + urlsplit(url).query).lower() for url in (document.url, requested_url)
    )
    return any(_names(words, code) for key in _CODE_KEYS for code in texts(one.node.get(key)))


def _own_addresses(document: Document, requested_url: str) -> set[str]:
    addresses = {document.url, requested_url}
    for node in document.css('link[rel="canonical"][href]'):
        if address := document.absolute(node.attributes.get("href") or ""):
            addresses.add(address)
    return addresses


def _addresses(candidate: Candidate, document: Document) -> list[str]:
    node = candidate.node
    offers = node.get("offers")
    stated = [node.get("url"), node.get("@id"), node.get("mainEntityOfPage")]
    stated += [
        offer.get("url") for offer in (offers if isinstance(offers, list) else [offers]) if isinstance(offer, dict)
    ]
    found = [text for value in stated for text in ([value] if isinstance(value, str) else texts(value))]
    return [absolute for text in found if (absolute := document.absolute(text))]


def _address(url: str) -> tuple[str, str, str]:
    """What makes two addresses the same page: host, path and query, not scheme, `www.`, last slash or fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, "", ""
    return parts.netloc.lower().removeprefix("www."), unquote(parts.path).rstrip("/"), parts.query


def _names(words: str, code: str) -> bool:
    if len(code) < MIN_SKU_CHARACTERS:
        return False
    return re.search(rf"(?<![^\W_]){re.escape(code.lower())}(?![^\W_])", words) is not None
