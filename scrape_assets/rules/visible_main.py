"""The product's own part of a page: its title, what stands near it, and what belongs to another product."""

from __future__ import annotations

import re

from selectolax.lexbor import LexborNode

from scrape_assets.rules import visible_words as words
from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.visible_scan import is_hidden, short_text

MAX_CLIMB = 60
"""Ancestors that are asked what they hold."""

NEAR = 5
"""Levels up to which a class name speaks of the price rather than of a part of the page."""

_NAMED = '[class*="name"], [class*="Name"], [class*="title"], [class*="Title"]'
MAX_HEADINGS = 100
MAX_TITLE = 300

CARD = 400
"""Characters up to which an element is one product's card; a product's own part of the page says more."""

_ADDRESS = re.compile(r"\.(?:jpe?g|png|webp|gif|avif|pdf|mp4)(?:$|\?)", re.IGNORECASE)


_SURE = (
    "h1",
    (
        ".product-title, .product_title, .product-name, .product_name, .productname, .prod-name, .goods-name"
        ", .goods_name, .product-single__title, .product__title"
    ),
)
"""Where a lone text is the title, whatever the page's head says."""


class Main:
    """The page's title and how near another element stands to it: by the depth of the element that holds both."""

    def __init__(self, document: Document, title: LexborNode) -> None:
        self.document = document
        self.title = title
        self.name = text_of(title)
        self.cards: dict[int, bool] = {}
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
        if (
            not href
            or href.startswith(("#", "javascript:", "mailto:", "tel:", "?", "data:"))
            or _ADDRESS.search(href[:2000])
        ):
            return False
        there = self.document.absolute(href[:2000])
        return there is not None and _page(there) != _page(self.document.url)


def _page(url: str) -> str:
    return url.split("#", 1)[0].split("?", 1)[0].rstrip("/")


def title_of(document: Document, name: str | None) -> LexborNode | None:
    """The heading that names the product: of several the one that the page's title or data name too."""
    root = document.tree.css_first("title")
    meta = document.tree.css_first('meta[property="og:title"]')
    stated = (name or "", (meta.attributes.get("content") or "") if meta else "", text_of(root) if root else "")
    known = [" ".join(text.casefold().split()) for text in stated if text]
    for selector in (*_SURE, '[itemprop="name"]', "h2, h3", _NAMED):
        headings = [
            (node, text)
            for node in document.css(selector)[:MAX_HEADINGS]
            if (text := (short_text(node, MAX_TITLE) or "").casefold())
            and not _is_away(node)
            and not _is_logo(node, text, document)
        ]
        for text_known in known:
            matching = [(node, text) for node, text in headings if _is_same(text, text_known)]
            if matching:
                return max(matching, key=lambda pair: len(pair[1]))[0]
        if selector in _SURE and headings and len({text for _, text in headings}) == 1:
            return headings[-1][0]
    return None


def _is_same(text: str, known: str) -> bool:
    """Whether one of the two names is in the other, and is no chance word."""
    return (len(text) > 2 and text in known) or (len(known) > 4 and known in text)


def _is_logo(node: LexborNode, text: str, document: Document) -> bool:
    """Whether the heading is the shop's own name, not the product's."""
    for link in node.css("a[href]")[:2]:
        if _page(document.absolute(link.attributes.get("href") or "") or "").count("/") <= 2:
            return True
    site = document.tree.css_first('meta[property="og:site_name"]')
    return site is not None and " ".join((site.attributes.get("content") or "").casefold().split()) == text


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


def roles_of(node: LexborNode) -> frozenset[str]:
    """What the element's class, id and property say about a price inside it."""
    return words.roles(name_of(node))


def name_of(node: LexborNode) -> str:
    """The element's class, id and property, as far as they are read."""
    attributes = node.attributes
    name = f"{attributes.get('class') or ''} {attributes.get('id') or ''} {attributes.get('itemprop') or ''}"
    return name[: words.MAX_NAME]


def is_another(passed: list[LexborNode], main: Main) -> bool:
    """Whether the element belongs to another product's card, or to a part of the page that is not the product's."""
    for level, node in enumerate(passed):
        tag = node.tag
        if tag in ("nav", "footer"):
            return True
        if "elsewhere" in roles_of(node):
            return True
        if tag == "a" and main.is_link_elsewhere(node):
            return True
        if level < NEAR + 1 and tag in ("li", "article", "div", "figure", "td", "section") and _is_card(node, main):
            return True
    return False


def _is_card(node: LexborNode, main: Main) -> bool:
    """Whether the element shows one product that has its own page: a heading or a picture that leads there."""
    known = main.cards.get(node.mem_id)
    if known is None:
        known = main.cards[node.mem_id] = _leads_elsewhere(node, main)
    return known


def _leads_elsewhere(node: LexborNode, main: Main) -> bool:
    if _is_one_of_several(node, main):
        return True
    if short_text(node, CARD) is None:
        return False
    links = [link for link in node.css("a[href]")[:12] if main.is_link_elsewhere(link)]
    if any(link.css_first("h2, h3, h4, h5") is not None for link in links) or any(
        main.is_link_elsewhere(link) for link in node.css("h2 a, h3 a, h4 a, h5 a")[:3]
    ):
        return True
    pictures = {link.attributes.get("href") for link in links if link.css_first("img") is not None}
    named = {link.attributes.get("href") for link in links if text_of(link)}
    return bool(pictures & named) or (bool(pictures) and node.tag in ("li", "article"))


def _is_one_of_several(node: LexborNode, main: Main) -> bool:
    """Whether an element like it stands beside it, and both lead elsewhere: a list, even without headings."""
    like = f"{node.tag} {node.attributes.get('class')}"
    beside = [node.prev, node.next, node.prev and node.prev.prev, node.next and node.next.next]
    for other in beside:
        if other and not other.is_text_node and f"{other.tag} {other.attributes.get('class')}" == like:
            links = [one.css_first("a[href]") for one in (node, other)]
            if all(link is not None and main.is_link_elsewhere(link) for link in links):
                return True
    return False


def shown_path(node: LexborNode) -> str:
    """A CSS selector, short and readable, that names where the element stands."""
    steps: list[str] = []
    at: LexborNode | None = node
    while at is not None and len(steps) < 3 and at.tag not in ("body", "html"):
        name = at.tag or "?"
        attributes = at.attributes
        identity, classes = attributes.get("id") or "", (attributes.get("class") or "").split()
        if re.fullmatch(r"[A-Za-z][\w-]{0,40}", identity):
            steps.append(f"{name}#{identity}")
            break
        plain = [word for word in classes if re.fullmatch(r"[A-Za-z][\w-]{0,40}", word)]
        steps.append(name + "".join(f".{word}" for word in plain[:2]))
        at = at.parent
    return " > ".join(reversed(steps)) or (node.tag or "body")
