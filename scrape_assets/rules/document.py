"""From bytes to text and tree: the encoding a page is really in, its DOM, its base address. Nothing is fetched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urljoin

from parsel import Selector
from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode
from w3lib.encoding import html_body_declared_encoding, http_content_type_encoding, read_bom, to_unicode

from scrape_assets.rules.money import APART
from scrape_assets.rules.page import Response

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

MANY_TAGS = 20_000
"""From this many tags on the nesting is measured before a tree is built."""

MAX_DEPTH = 8_000
"""Tree building takes time quadratic in the nesting: a deeper page is refused, not parsed for minutes."""

_NUL_OR_SURROGATE = re.compile("[\0\ud800-\udfff]")
_FOREIGN_RUN = re.compile(rb"[\x80-\xff]{4}")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_TAG = re.compile(r"<(/?)([a-z][a-z0-9-]*)", re.IGNORECASE)
_APART = re.compile(r"\s*\|[\s|]*")
# Where the page itself writes the separator, the cents beside it are cents: "39|,99", "39,|99".
_WRITTEN_CENTS = re.compile(r"(?<=\d)\|(?=[.,]\|?\d\d(?!\d))|(?:(?<=\d[.,])|(?<=\d\|[.,]))\|(?=\d\d(?!\d))")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_SINGLE_BYTE = ("cp125", "iso8859", "mac", "koi8", "cp866", "cp874", "ascii")
_NOT_OF_THE_WEB = frozenset(("unicode-escape", "raw-unicode-escape", "punycode", "idna", "undefined", "utf-7"))
# Elements that HTML closes by itself or that hold nothing: without an end tag they nest no deeper.
_UNNESTED = frozenset(
    "area base br col dd dt embed hr img input li link meta option p param source".split()
    + "tbody td tfoot th thead tr track wbr".split()
)
_INLINE = frozenset(
    "a abbr b bdi bdo big cite code data del dfn em font i ins kbd label mark q s samp small span strike strong"
    " sub sup time tt u var wbr -comment".split()
)
_COMMENT_TAG = "-comment"
_UNSEEN = frozenset(("script", "style", "noscript", "template"))


class UnreadablePage(Exception):
    """The page cannot be turned into a tree in bounded time."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body as text, the encoding that gave it, and how many characters could not be read."""

    text: str
    encoding: str
    replacements: int


def decode(body: bytes, content_type: str | None) -> Decoded:
    """The body's text: by its byte-order mark, else the header's charset, else the page's own, else by detection.

    A label that no codec knows is passed over, and so is one that the bytes contradict. Undeclared text that is
    not UTF-8 is read as windows-1252 only where that is plausible; else the unreadable characters stay marked.
    """
    bom_encoding, bom = read_bom(body)
    if bom_encoding and bom:
        return _marked(body[len(bom) :], bom_encoding)
    if body[:2] in (b"<\0", b"\0<"):
        return _marked(body, "utf-16-le" if body[:1] == b"<" else "utf-16-be")
    header = _usable(http_content_type_encoding(content_type))
    if header in (None, "utf-8") and b"\x1b$" not in body and (text := _strict(body, "utf-8")) is not None:
        # The common case in one pass. The escape is that of ISO-2022-JP, which is all ASCII bytes.
        return Decoded(text, "utf-8", text.count(REPLACEMENT))
    meta = _usable(html_body_declared_encoding(body))
    declared = [encoding for encoding in (header, meta) if encoding]
    if all(encoding.startswith(_SINGLE_BYTE) for encoding in declared) and not body.isascii():
        # A single-byte codec reads anything, so it proves nothing; text that is UTF-8 by chance is practically none.
        declared.insert(0, "utf-8")
    if declared[:1] in ([], ["utf-8"]) and _is_mostly_utf8(body):
        return _marked(body, "utf-8")
    for encoding in declared:
        if (text := _strict(body, encoding)) is not None:
            return Decoded(text, encoding, text.count(REPLACEMENT))
    if header or meta:
        return _marked(body, header or meta or "utf-8")
    # Runs of high bytes are not Western text: guessing would turn another alphabet into plausible nonsense.
    if not _FOREIGN_RUN.search(body) and (text := _strict(body, "cp1252")) is not None:
        return Decoded(text, "cp1252", 0)
    return _marked(body, "utf-8")


def _usable(encoding: str | None) -> str | None:
    """The codec's name where it is one of the web's text encodings."""
    if encoding is None or encoding.startswith(("utf-16", "utf-32")) or encoding in _NOT_OF_THE_WEB:
        # UTF-16 without a mark was tested for already; elsewhere the web reads that label as a mistake.
        return None
    try:
        # Python also registers codecs that give no text ("hex", "rot13").
        b"ab".decode(encoding, "replace")
    except (LookupError, ValueError):
        return None
    return encoding


def _strict(body: bytes, encoding: str) -> str | None:
    try:
        if encoding == "gb18030":
            text = to_unicode(body, encoding)  # knows the euro sign's lone byte
            return None if REPLACEMENT in text else text
        return body.decode(encoding)
    except UnicodeError:
        return None


def _marked(body: bytes, encoding: str) -> Decoded:
    text = to_unicode(body, encoding)
    return Decoded(text, encoding, text.count(REPLACEMENT))


def _is_mostly_utf8(body: bytes) -> bool:
    """Whether some bytes are broken UTF-8 but more characters beyond ASCII are whole."""
    text = body.decode("utf-8", "replace")
    broken = text.count(REPLACEMENT)
    return 0 < broken < len(_BEYOND_ASCII.findall(text)) - broken


class Document:
    """A page as text, with its tree, XPath selector and base address made when first asked for."""

    def __init__(self, decoded: Decoded, url: str) -> None:
        self.text = decoded.text
        self.encoding = decoded.encoding
        self.replacements = decoded.replacements
        self.url = url

    @classmethod
    def of(cls, response: Response) -> Document:
        """The response's body, read in the encoding it is really in."""
        return cls(decode(response.body, response.headers.get("content-type")), response.final_url)

    @property
    def is_blank(self) -> bool:
        """Nothing there: no characters but space, byte-order marks and comments."""
        head = self.text[:10_000].strip(" \t\r\n\f\v\ufeff\0")
        if head and not head.startswith("<!--"):
            return False
        return not _COMMENT.sub("", self.text).strip(" \t\r\n\f\v\ufeff\0")

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The page as browsers would build it. Raises UnreadablePage for a hostile nesting."""
        if self.text.count("<") > MANY_TAGS and (depth := _depth(self.text)) > MAX_DEPTH:
            raise UnreadablePage(f"elements are nested {depth} deep, more than the {MAX_DEPTH} that are read")
        # Mutation events would only cost time: nothing listens.
        return LexborHTMLParser(self.text, options=LexborDocumentOptions.WO_EVENTS)

    @cached_property
    def selector(self) -> Selector:
        """For XPath only: building it takes several times as long as the tree."""
        if self.text.count("<") > MANY_TAGS and _depth(self.text) > MAX_DEPTH:
            raise UnreadablePage("the nesting is too deep for XPath")
        return Selector(text=self.text.replace("\0", ""), type="html")

    @cached_property
    def base_url(self) -> str:
        """What relative addresses are relative to: the first `<base href>`, else the page's own address."""
        if "<base" not in self.text and "<BASE" not in self.text:
            return self.url
        node = self.tree.css_first("base[href]")
        return self.absolute(node.attributes.get("href") or "", self.url) or self.url if node else self.url

    def absolute(self, address: str, base: str | None = None) -> str | None:
        """The http(s) address that a link's text means here; None when it is none."""
        try:
            joined = urljoin(base or self.base_url, address.strip())
        except ValueError:
            return None
        return joined if joined.startswith(("http://", "https://")) else None

    def css(self, selector: str) -> list[LexborNode]:
        """The elements that the CSS selector finds, in document order."""
        return self.tree.css(selector)

    def has(self, selector: str) -> bool:
        """Whether the CSS selector finds anything."""
        return self.tree.css_first(selector) is not None


def _depth(text: str) -> int:
    """The deepest nesting of any one element name, end tags counted by their own name only."""
    open_now: dict[str, int] = {}
    deepest = 0
    for slash, written in _TAG.findall(text):
        name = written.lower()
        if name in _UNNESTED:
            continue
        count = open_now.get(name, 0) + (-1 if slash else 1)
        open_now[name] = max(count, 0)
        deepest = max(deepest, count)
    return deepest


def text_of(node: LexborNode, *, joint: str = "") -> str:
    """The element's text with single spaces, as a reader sees it: scripts are left out, blocks stand apart.

    `joint` is what stands where an inline element begins or ends. Two digits are kept apart there in any case:
    `19<sup>99</sup>` must never become 1999. With `APART` they are not even thousands of one number.
    """
    child = node.first_child
    if child is not None and child.next is None and child.is_text_node:
        return " ".join((child.text_content or "").split())
    parts: list[str] = []
    boundary = False
    for item in node.traverse(include_text=True):
        if not item.is_text_node:
            if _is_block(item) or _is_block(item.prev):
                parts.append(" ")
            boundary = boundary or item.tag != _COMMENT_TAG
            continue
        parent, before = item.parent, item.prev
        if parent is not None and parent.tag in _UNSEEN:
            continue
        while before is not None and before.tag == _COMMENT_TAG:
            before = before.prev
        text = item.text_content or ""
        if before is not None and not before.is_text_node:
            boundary = True
            if _is_block(before):
                parts.append(" ")
        if boundary:
            digits = parts and parts[-1][-1:].isdigit() and text[:1].isdigit()
            parts.append(joint or (" " if digits else ""))
        parts.append(text)
        boundary = False
    text = " ".join("".join(parts).split())
    return apart(text) if joint == APART else text


def _is_block(node: LexborNode | None) -> bool:
    return node is not None and not node.is_text_node and node.tag not in _INLINE


def apart(text: str) -> str:
    """The text with one `|` at most between two parts and none around them, nor where cents are written as cents."""
    return _WRITTEN_CENTS.sub("", _APART.sub(APART, text).strip(APART))


def is_storable(text: str) -> bool:
    """Whether Postgres can hold the text: no NUL, no lone surrogates."""
    return _NUL_OR_SURROGATE.search(text) is None
