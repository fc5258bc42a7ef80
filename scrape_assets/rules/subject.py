"""Which of the things for sale that a page describes is the one that the page is about."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.offers import texts
from scrape_assets.rules.structured import Candidate

MIN_SKU_CHARACTERS = 4
"""A shorter article number may stand in any address by chance."""

_CODE_KEYS = ("sku", "productID", "mpn", "gtin13", "gtin", "gtin14", "gtin12", "gtin8")


def of_this_page(found: list[Candidate], document: Document, requested_url: str) -> list[Candidate]:
    """Of several candidates, the one whose address or number is the page's; all that are left when none is alone.

    A single one is the page's, unless it says that it is another page's.
    """
    if len(found) == 1:
        return [] if _is_another(found[0], document, requested_url) else found
    whole = {_address(url) for url in own_addresses(document, requested_url)}
    paths = {address[:2] for address in whole}
    tests: tuple[Callable[[Candidate], bool], ...] = (
        lambda one: any(_address(url) in whole for url in _addresses(one, document)),
        lambda one: any(_address(url)[:2] in paths for url in _addresses(one, document)),
        lambda one: _has_code_in(one, document, requested_url),
        lambda one: bool(_headings(document) & {name.casefold() for name in texts(one.node.get("name"))}),
    )
    left = found
    for test in tests:
        matching = [one for one in left if test(one)]
        if len(matching) == 1:
            return matching
        left = matching or left
    return left


def _headings(document: Document) -> set[str]:
    """The page's own name for what it shows."""
    return {text_of(node).casefold() for node in document.css("h1")[:5]}


def _has_code_in(one: Candidate, document: Document, requested_url: str) -> bool:
    """Whether one of the candidate's numbers stands in the page's address."""
    words = " ".join(
        unquote(urlsplit(url).path + "?" + urlsplit(url).query).lower() for url in (document.url, requested_url)
    )
    return any(_names(words, code) for key in _CODE_KEYS for code in texts(one.node.get(key)))


def own_addresses(document: Document, requested_url: str) -> set[str]:
    """The page's addresses: the one asked for, the one that answered, its canonical one."""
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


def is_variant_at(url: str, here: set[str]) -> bool:
    """Whether the address is this page's down to its query, which is what names a variant: `?variant=123`."""
    return bool(urlsplit(url).query) and _address(url) in {_address(own) for own in here}


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


def rivals(meant: list[Candidate], chosen: list[Candidate], document: Document, requested_url: str) -> list[Candidate]:
    """The unpriced candidates that the page may be about as well as about the chosen ones."""
    here: set[tuple[str, ...]] = {_address(url)[:2] for url in own_addresses(document, requested_url)}
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
    here: set[tuple[str, ...]] = {_address(url)[:2] for url in own_addresses(document, requested_url)}
    if not _is_elsewhere(one, document, here) or _has_code_in(one, document, requested_url):
        return False
    shown = " ".join(text_of(node) for node in document.css("title, h1")).casefold()
    return not any(name.casefold() in shown for name in texts(one.node.get("name")))


def same_thing(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates may be one product: by a number, or by a name that is the other's or a part of it."""
    for key in _CODE_KEYS:
        if set(texts(one.node.get(key))) & set(texts(other.node.get(key))):
            return True
    names, others = ([name.casefold() for name in texts(each.node.get("name"))] for each in (one, other))
    return not names or not others or any(a in b or b in a for a in names for b in others)
