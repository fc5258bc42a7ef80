"""What a page object sees of a page: a small, stable face over `Document`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from selectolax.lexbor import LexborHTMLParser

from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.structured import json_ld


@dataclass(frozen=True, slots=True)
class PageView:
    """What a page object is given: the page's address, its text and ways to look into it."""

    url: str
    text: str
    document: Document

    @property
    def tree(self) -> LexborHTMLParser:
        """The parsed page (selectolax)."""
        return self.document.tree

    def css(self, selector: str) -> list[str]:
        """The texts of the elements that the CSS selector finds."""
        return [text_of(node) for node in self.document.css(selector)]

    def xpath(self, expression: str) -> list[str]:
        """What the XPath expression finds, as text."""
        return [str(found) for found in self.document.selector.xpath(expression).getall()]

    def json_ld(self) -> list[Any]:
        """The page's JSON-LD blocks that could be read, in order."""
        return json_ld(self.document).blocks

    def absolute(self, address: str) -> str | None:
        """The http(s) address that a link on this page means."""
        return self.document.absolute(address)
