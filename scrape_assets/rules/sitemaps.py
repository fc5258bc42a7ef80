"""Sitemaps, sitemap indexes, feeds and lists of addresses: what they name, and what of it a fault in them hides."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urljoin

SITEMAP_BYTES = 60 * 2**20
"""The largest sitemap that is read, inflated: the format's own limit is 50 MB (sitemaps.org)."""

PIECE_BYTES = 64 * 1024

_BARE_AMPERSAND = re.compile(rb"&(?!(?:[a-zA-Z][a-zA-Z0-9]*|#[0-9]+|#[xX][0-9a-fA-F]+);)")
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_ENDED = re.compile(
    rb"(</\s*(?:[\w.-]+:)?(?:urlset|sitemapindex|rss|feed|RDF)\s*>|<(?:urlset|sitemapindex|rss|feed)[^<>]*/>)\s*$"
)
_NAMING = re.compile(rb"<(?:[\w.-]+:)?(?:loc|item|entry)[\s/>]")


@dataclass(slots=True)
class Sitemap:
    """The addresses of pages and of further sitemaps, absolute, in their order.

    `changed`: what it says of their last change. `hidden`: how many addresses a fault in it hides.
    """

    pages: list[str] = field(default_factory=list)
    maps: list[str] = field(default_factory=list)
    changed: dict[str, str] = field(default_factory=dict)
    hidden: int = 0


def read(body: bytes, base: str) -> Sitemap:
    """What it names; ValueError for what is none, or is not whole."""
    try:
        body = _inflated(body)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    found = Sitemap()
    if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        _from_xml(body, base, found)
    else:
        # A sitemap may be a plain list of addresses (sitemaps.org, "Text file").
        lines = (line.strip() for line in body.decode("utf-8-sig", "replace").splitlines())
        found.pages += [line for line in lines if line.lower().startswith(("http://", "https://"))]
    return found


def _inflated(body: bytes) -> bytes:
    if body[:2] != b"\x1f\x8b":
        return body
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    whole = stream.decompress(body, SITEMAP_BYTES + 1)
    if not stream.eof and len(whole) <= SITEMAP_BYTES:
        raise ValueError("its compressed data end too early")
    if len(whole) > SITEMAP_BYTES:
        raise ValueError(f"it has more than {SITEMAP_BYTES // 2**20} MB inflated")
    return whole


def _from_xml(body: bytes, base: str, found: Sitemap) -> None:
    from lxml import etree  # noqa: PLC0415 - a start that most retailers do not need

    if b"\0" not in body[:4]:
        body = _COMMENT.sub(b"", body)
    if not _ENDED.search(body[-1024:].replace(b"\0", b"")):
        raise ValueError("it stops in the middle")
    # The commonest fault, and one that a forgiving reader mends into another address.
    body = _BARE_AMPERSAND.sub(b"&amp;", body)
    elements = naming = 0
    parser = etree.XMLPullParser(events=("end",), recover=True, resolve_entities=False, no_network=True, load_dtd=False)
    for at in range(0, len(body) + PIECE_BYTES, PIECE_BYTES):
        if at < len(body):
            parser.feed(body[at : at + PIECE_BYTES])
        else:
            # What comes after a fault is kept back until then.
            parser.close()
        for _, element in parser.read_events():
            elements += 1
            naming += _name(element) in ("loc", "item", "entry")
            _take(element, base, found)
    if not elements:
        raise ValueError("it is no XML")
    found.hidden = max(0, len(_NAMING.findall(body)) - naming)


def _take(element: Any, base: str, found: Sitemap) -> None:
    name, around = _name(element), _name(element.getparent())
    address = (_named_by(element, name, around) or "").strip()
    if address:
        (found.maps if around == "sitemap" else found.pages).append(urljoin(base, address))
    if name in ("url", "sitemap", "item", "entry"):
        parts = {_name(part): (part.text or "").strip() for part in element}
        if parts.get("loc") and parts.get("lastmod"):
            found.changed[urljoin(base, parts["loc"])] = parts["lastmod"]
        # What was read is let go: such a file has tens of thousands of them.
        element.clear()
        while element.getprevious() is not None:
            del element.getparent()[0]


def _name(element: Any) -> str:
    tag = None if element is None else element.tag
    return tag.rpartition("}")[2].lower() if isinstance(tag, str) else ""


def _named_by(element: Any, name: str, around: str) -> str | None:
    """The address that an element of a sitemap or feed names. RSS has it as text, Atom as an attribute."""
    if name == "loc" and around in ("url", "sitemap"):
        return cast("str | None", element.text)
    if name == "link" and around in ("item", "entry") and element.get("rel", "alternate") == "alternate":
        return cast("str | None", element.get("href") or element.text)
    return None
