"""One walk over the visible page: its texts with numbers, its buttons, words of stock and labelled codes, in order.

What is hidden is not read, nor are scripts, drop-downs and text fields. The walk ends after a bounded number of nodes:
a page that is larger than that is no product page that a reader could use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from selectolax.lexbor import LexborNode

from scrape_assets.rules import visible_words as words
from scrape_assets.rules.document import Document

MAX_NODES = 60_000
MAX_NUMBERS = 2_000
"""Texts with a number in them; a page with more is a table."""

_SKIPPED = frozenset(
    "script style noscript template svg iframe select textarea datalist canvas video audio object math".split()
)
_STARTS_ANEW = frozenset(
    "h1 h2 h3 h4 h5 h6 p li tr section article form dl table ul ol nav footer header aside main fieldset".split()
)
_HIDING = re.compile(r"display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
LABEL = 60
MAX_PARTS = 200
"""Nodes inside an element whose text is a label or a price; one with more is a part of the page."""


@dataclass(slots=True)
class Text:
    """A text with a number, its element, and the words before and after it in the same part of the page."""

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
            recent = "" if node.tag in _STARTS_ANEW else recent
            _element(found, node)
            continue
        text = " ".join((node.text_content or "").split())
        parent = node.parent
        if not text or parent is None:
            continue
        label = _signs(found, parent, text, label)
        if found.numbers and recent and len(found.numbers[-1].after) < LABEL:
            found.numbers[-1].after += " " + text[:LABEL]
        if _DIGIT.search(text):
            if len(found.numbers) >= MAX_NUMBERS:
                found.is_whole = False
                return found
            found.numbers.append(Text(parent, text, recent))
        recent = (recent + " " + text)[-LABEL:]
    return found


def _element(found: Scan, node: LexborNode) -> None:
    """Notes what the element itself says: that it buys, or a number in microdata that belongs to no item."""
    if button := _button(node):
        found.buttons.append(button)
    if node.tag == "input" or node.attributes.get("itemprop") not in ("sku", "productID"):
        return
    if code := node.attributes.get("content") or short_text(node, LABEL):
        found.signs.append(Sign(node, "itemprop sku", code.strip()))


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
    return style is not None and _HIDING.search(style[:500]) is not None


def _button(node: LexborNode) -> Button | None:
    tag = node.tag
    if tag not in ("button", "input", "a", "div", "span"):
        return None
    attributes = node.attributes
    if tag == "input" and (attributes.get("type") or "").lower() not in ("submit", "button", "image"):
        return None
    name = f"{attributes.get('class') or ''} {attributes.get('id') or ''} {attributes.get('name') or ''}"[
        : words.MAX_NAME
    ]
    if tag in ("div", "span"):
        # Only where the element says that it is a button.
        if attributes.get("role") != "button" and not ("btn" in name or "button" in name):
            return None
        if _is_in_button(node):
            return None
    said = attributes.get("value") or attributes.get("alt") or "" if tag == "input" else short_text(node, 300) or ""
    said = said or attributes.get("aria-label") or attributes.get("title") or ""
    said = " ".join(said.split())[:80]
    buys = words.BUY_WORDS.match(said[:60]) is not None
    named = words.BUY_NAME.search(name) is not None
    if tag == "a" and named and not buys and not said:
        return None
    if not buys and (not named or tag in ("div", "span")):
        return None
    disabled = (
        "disabled" in attributes
        or attributes.get("aria-disabled") == "true"
        or re.search(r"(?:^|[\s-])disabled(?:$|\s)", name)
    )
    return Button(node, said, not disabled)


def _is_in_button(node: LexborNode) -> bool:
    at = node.parent
    for _ in range(3):
        if at is None:
            return False
        if at.tag in ("button", "a"):
            return True
        at = at.parent
    return False


def short_text(node: LexborNode, limit: int) -> str | None:
    """The element's text where it is at most so long and of few parts, else None: in bounded time for any element."""
    parts: list[str] = []
    size = steps = 0
    at: LexborNode | None = node.first_child
    while at is not None:
        steps += 1
        if at.is_text_node:
            text = at.text_content or ""
            size += len(text.strip())
            parts.append(text)
        if size > limit or steps > MAX_PARTS:
            return None
        following = at.first_child if at.tag not in _SKIPPED else None
        while following is None and at is not None:
            following = at.next
            if following is None:
                at = at.parent
                if at is None or at.mem_id == node.mem_id:
                    return " ".join(" ".join(parts).split())
        at = following
    return ""


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
            if value := next((group.strip() for group in hit.groups() if group), ""):
                found.signs.append(Sign(parent, name, value))
                return ""
            return name
    # A lone colon between label and value.
    return label if label and not text.strip(" :：#") else ""
