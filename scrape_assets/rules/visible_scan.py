"""One walk over the visible page: its texts with numbers, its buttons, its words of stock and its labelled codes, in order.

What is hidden is not read, nor are scripts, drop-downs and text fields. The walk ends after a bounded number of nodes:
a page that is larger than that is no product page that a reader could use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from selectolax.lexbor import LexborNode

from scrape_assets.rules import visible_words as words
from scrape_assets.rules.document import Document, text_of

MAX_NODES = 60_000
MAX_NUMBERS = 2_000
"""Texts with a number in them; a page with more is a table."""

MAX_CLIMB = 60
"""Ancestors that are asked what they hold."""

_SKIPPED = frozenset("script style noscript template svg iframe select textarea datalist canvas video audio object math".split())
_STARTS_ANEW = frozenset("h1 h2 h3 h4 h5 h6 p li tr section article form dl table ul ol nav footer header aside main fieldset".split())
_HIDING = re.compile(r"display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden", re.IGNORECASE)
_ADDRESS = re.compile(r"\.(?:jpe?g|png|webp|gif|avif|pdf|mp4)(?:$|\?)", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
LABEL = 60


@dataclass(slots=True)
class Text:
    """A text with a number, the element it stands in, and the words before and after it in the same part of the page."""

    node: LexborNode
    text: str
    before: str
    after: str = ""


@dataclass(slots=True)
class Button:
    """Something to buy with; `words` is what it says."""

    node: LexborNode
    words: str
    is_enabled: bool


@dataclass(slots=True)
class Sign:
    """A short text that speaks of stock, or a labelled value."""

    node: LexborNode
    kind: str
    value: str


@dataclass(slots=True)
class Scan:
    """What one walk found, each in document order. `is_whole` is false where it was ended early."""

    numbers: list[Text] = field(default_factory=list)
    buttons: list[Button] = field(default_factory=list)
    signs: list[Sign] = field(default_factory=list)
    is_whole: bool = True


def scan(document: Document) -> Scan:
    """The page's texts, buttons and signs."""
    found = Scan()
    body = document.tree.body
    if body is None:
        return found
    recent, label = "", ""
    for node in _visible(body, found):
        if not node.is_text_node:
            if node.tag in _STARTS_ANEW:
                recent = ""
            if button := _button(node):
                found.buttons.append(button)
            if node.tag == "input":
                continue
            if (named := node.attributes.get("itemprop")) in ("sku", "productID") and (
                code := node.attributes.get("content") or text_of(node)
            ):
                found.signs.append(Sign(node, "itemprop sku", code.strip()))
            continue
        text = " ".join((node.text_content or "").split())
        parent = node.parent
        if not text or parent is None:
            continue
        label = _signs(found, parent, text, label)
        if found.numbers and len(found.numbers[-1].after) < LABEL and recent:
            found.numbers[-1].after += " " + text[:LABEL]
        if _DIGIT.search(text):
            if len(found.numbers) >= MAX_NUMBERS:
                found.is_whole = False
                return found
            found.numbers.append(Text(parent, text, recent))
        recent = (recent + " " + text)[-LABEL:]
    return found


def _visible(body: LexborNode, found: Scan) -> Iterator[LexborNode]:
    """Elements and texts in document order, past the insides of what is not shown."""
    end = body.mem_id
    node: LexborNode | None = body.first_child
    for _ in range(MAX_NODES):
        if node is None:
            return
        enter = node.is_text_node
        if not enter and node.tag not in _SKIPPED and not is_hidden(node):
            enter = True
        following = None
        if enter:
            yield node
            following = node.first_child
        while following is None:
            following = node.next
            if following is None:
                node = node.parent
                if node is None or node.mem_id == end:
                    return
        node = following
    found.is_whole = False


def is_hidden(node: LexborNode) -> bool:
    """Whether the element's own attributes hide it."""
    attributes = node.attributes
    if "hidden" in attributes and attributes.get("hidden") != "until-found":
        return True
    style = attributes.get("style")
    return bool(style) and _HIDING.search(style[:500]) is not None


def _button(node: LexborNode) -> Button | None:
    tag = node.tag
    if tag not in ("button", "input", "a", "div", "span"):
        return None
    attributes = node.attributes
    if tag == "input" and (attributes.get("type") or "").lower() not in ("submit", "button", "image"):
        return None
    name = f"{attributes.get('class') or ''} {attributes.get('id') or ''} {attributes.get('name') or ''}"[: words.MAX_NAME]
    if tag in ("div", "span"):
        # Only where the element says that it is a button.
        if attributes.get("role") != "button" and not ("btn" in name or "button" in name):
            return None
        if node.css_first("button, a, input") is not None:
            return None
    said = attributes.get("value") or attributes.get("alt") or "" if tag == "input" else _short(node)
    said = said or attributes.get("aria-label") or attributes.get("title") or ""
    said = " ".join(said.split())[:80]
    buys = words.BUY_WORDS.match(said[:60]) is not None
    named = words.BUY_NAME.search(name) is not None
    if tag == "a" and named and not buys and not said:
        return None
    if not buys and not (named and tag != "div" and tag != "span"):
        return None
    disabled = "disabled" in attributes or attributes.get("aria-disabled") == "true" or re.search(r"(?:^|[\s-])disabled(?:$|\s)", name)
    return Button(node, said, not disabled)


def _short(node: LexborNode) -> str:
    """The element's text where it is short: that of a button."""
    text = node.text(deep=True, separator=" ", strip=False)
    return text if len(text) <= 300 else ""


def _signs(found: Scan, parent: LexborNode, text: str, label: str) -> str:
    """Notes what the text says of stock or codes; answers the label that the next text may be the value of."""
    if label:
        found.signs.append(Sign(parent, label, text[:LABEL].lstrip(":：# ").strip()))
    if len(text) > 90:
        return ""
    if words.SOLD_OUT.search(text):
        found.signs.append(Sign(parent, "sold out", text))
    elif words.IN_STOCK.match(text):
        found.signs.append(Sign(parent, "in stock", text))
    for name, pattern in words.LABELS.items():
        if hit := pattern.match(text):
            if value := (hit.group(1) or "").strip():
                found.signs.append(Sign(parent, name, value))
                return ""
            return name
    # A lone colon between label and value.
    return label if label and not text.strip(" :：#") else ""


class Main:
    """The page's title and how near another element stands to it: by the depth of the element that holds both."""

    def __init__(self, document: Document, title: LexborNode) -> None:
        self.document = document
        self.title = title
        self.name = text_of(title)
        chain: list[int] = []
        node: LexborNode | None = title
        while node is not None and len(chain) < 10_000:
            chain.append(node.mem_id)
            node = node.parent
        self._depth = {identity: len(chain) - at for at, identity in enumerate(chain)}

    def way(self, node: LexborNode) -> tuple[int, list[LexborNode]]:
        """The depth of what holds both the title and the element, and the elements from the element up to it."""
        passed: list[LexborNode] = []
        at: LexborNode | None = node
        for _ in range(MAX_CLIMB):
            if at is None:
                break
            if (depth := self._depth.get(at.mem_id)) is not None:
                return depth, passed
            passed.append(at)
            at = at.parent
        return 0, passed

    def is_link_elsewhere(self, link: LexborNode) -> bool:
        """Whether the link leads to another page of things, not to a picture, a script or this page."""
        href = (link.attributes.get("href") or "").strip()
        if not href or href.startswith(("#", "javascript:", "mailto:", "tel:", "?", "data:")) or _ADDRESS.search(href[:2000]):
            return False
        there = self.document.absolute(href[:2000])
        return there is not None and _page(there) != _page(self.document.url)


def _page(url: str) -> str:
    return url.split("#", 1)[0].split("?", 1)[0].rstrip("/")


def title_of(document: Document, name: str | None) -> LexborNode | None:
    """The heading that names the product: of several the one that the page's title or data name too."""
    root = document.tree.css_first("title")
    meta = document.tree.css_first('meta[property="og:title"]')
    known = [text.casefold() for text in (name or "", (meta.attributes.get("content") or "") if meta else "", text_of(root) if root else "") if text]
    for selector in ("h1", '[itemprop="name"]', ".product-title, .product_title, .product-name, .productname, .product-single__title", "h2, h3"):
        headings = [(node, " ".join(text_of(node)[:400].casefold().split())) for node in document.css(selector)[:40]]
        headings = [(node, text) for node, text in headings if text and not _is_away(node)]
        for stated in known:
            matching = [node for node, text in headings if len(text) > 2 and (text in stated or (len(stated) > 4 and stated in text))]
            if matching:
                return max(matching, key=lambda node: len(text_of(node)))
        if selector == "h1" and len(headings) == 1:
            return headings[0][0]
    return None


def _is_away(node: LexborNode) -> bool:
    """Whether the element is hidden or stands in the page's navigation or foot."""
    at: LexborNode | None = node
    for _ in range(MAX_CLIMB):
        if at is None or at.tag in ("body", "html"):
            return False
        if at.tag in ("nav", "footer") or is_hidden(at):
            return True
        at = at.parent
    return False
