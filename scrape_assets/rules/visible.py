"""The visible page of a product, read as a reader would: title, price, stock, number. Read when first asked for."""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property

from scrape_assets.rules import visible_words as words
from scrape_assets.rules.document import Document
from scrape_assets.rules.money import Refusal
from scrape_assets.rules.offers import gtin
from scrape_assets.rules.page_data import stated_amounts
from scrape_assets.rules.place import Place, place_of
from scrape_assets.rules.spec import PageRule
from scrape_assets.rules.visible_main import NEAR, Main, is_another, name_of, shown_path, title_of
from scrape_assets.rules.visible_price import VisiblePrice, is_beside_a_button, visible_price
from scrape_assets.rules.visible_scan import Scan, Sign, scan

MAX_SKU = 40
_CLOSED = "button[disabled], input[type=submit][disabled]"


class Visible:
    """One page's visible facts. Each is there only when one reading of it is left."""

    def __init__(self, document: Document, page: PageRule) -> None:
        self._document = document
        self._page = page
        self.known_name: str | None = None

    @cached_property
    def place(self) -> Place:
        """The country and currency that the page speaks of."""
        return place_of(self._document)

    @cached_property
    def main(self) -> Main | None:
        """The page's title, where one heading is it."""
        title = title_of(self._document, self.known_name)
        return Main(self._document, title) if title is not None else None

    @cached_property
    def scan(self) -> Scan:
        """What a walk over the page found."""
        return scan(self._document)

    @cached_property
    def _stated(self) -> frozenset[Decimal]:
        return stated_amounts(self._document)

    @cached_property
    def price(self) -> VisiblePrice | Refusal | None:
        """The price beside the title; None when no price stands there."""
        if self.main is None:
            return None
        return visible_price(self.scan, self.main, self.place, self._page, lambda: self._stated)

    @cached_property
    def can_be_bought(self) -> bool:
        """Whether a button of the page's own product buys it."""
        return self._buttons(enabled=True) or self._buttons(enabled=False)

    @cached_property
    def is_product(self) -> bool:
        """Whether the page shows, beside its price, that one thing is sold on it."""
        price = self.price
        if not isinstance(price, VisiblePrice):
            return False
        if price.money.amount in self._stated:
            return True
        if not price.is_marked:
            # Nothing but a button next to it says that the amount is the product's, and not of shipping.
            return self.main is not None and is_beside_a_button(price, self.scan, self.main)
        if self.can_be_bought or self._is_product_by_tag():
            return True
        return bool(self.sku or self.gtin or self._stock("in stock") or self._stock("sold out"))

    def _is_product_by_tag(self) -> bool:
        document = self._document
        return document.has(
            'meta[property="og:type"][content^="product"], meta[property="og:type"][content="og:product"]'
        )

    @cached_property
    def is_closed(self) -> bool:
        """Whether the page may say that nothing can be bought, by a disabled button: cheap to ask."""
        return "disabled" in self._document.text and self._document.has(_CLOSED)

    @cached_property
    def availability(self) -> tuple[str, str] | None:
        """in_stock, out_of_stock or preorder with what said it; None when nothing, or two things, were said."""
        sold_out, stocked = self._stock("sold out"), self._stock("in stock")
        button = self._button(enabled=True)
        if sold_out is not None:
            return None if button is not None or stocked is not None else ("out_of_stock", f"page: {sold_out}")
        if button is not None and words.PRE_ORDER.search(button[1]):
            return "preorder", f"page: {button[0]}"
        if stocked is not None:
            return "in_stock", f"page: {stocked}"
        return ("in_stock", f"page: {button[0]}") if button is not None else None

    def _stock(self, kind: str) -> str | None:
        signs = self._nearest(kind)
        return shown_path(signs[0].node) if signs else None

    def _buttons(self, *, enabled: bool) -> bool:
        return self._button(enabled=enabled) is not None

    def _button(self, *, enabled: bool) -> tuple[str, str] | None:
        main = self.main
        if main is None:
            return None
        for button in self.scan.buttons:
            if button.is_enabled != enabled or words.SOLD_OUT.search(button.words):
                continue
            depth, passed = main.way(button.node)
            # A link that buys leads elsewhere, of course.
            if depth >= self._least_depth and not is_another(passed[1:], main):
                return shown_path(button.node), button.words
        return None

    @cached_property
    def _least_depth(self) -> int:
        """How deep what holds a sign and the title must stand for the sign to be the product's: near its price."""
        price = self.price
        return max(price.depth - 4, 1) if isinstance(price, VisiblePrice) else 3

    def _nearest(self, kind: str) -> list[Sign]:
        """The signs of the kind in the product's part of the page that stand nearest to the title."""
        main = self.main
        if main is None:
            return []
        own: list[tuple[int, Sign]] = []
        for sign in [sign for sign in self.scan.signs if sign.kind == kind][:60]:
            depth, passed = main.way(sign.node)
            if depth < self._least_depth or is_another(passed, main):
                continue
            if kind != "sold out" or not any(words.OF_A_VARIANT.search(name_of(node)) for node in passed[:NEAR]):
                own.append((depth, sign))
        nearest = max((depth for depth, _ in own), default=0)
        return [sign for depth, sign in own if depth == nearest]

    @cached_property
    def sku(self) -> tuple[str, str] | None:
        """The article number that the page labels as one, where it labels one only."""
        for kind in ("itemprop sku", "sku"):
            found = {sign.value.strip(" .,;"): sign for sign in self._nearest(kind)}
            codes = {code: sign for code, sign in found.items() if words.CODE.match(code) and len(code) <= MAX_SKU}
            if len(codes) == 1:
                code, sign = next(iter(codes.items()))
                return code, f"page: {shown_path(sign.node)}"
        return None

    @cached_property
    def gtin(self) -> tuple[str, str] | None:
        """The valid GTIN that the page labels as one, where it labels one only."""
        found = {code: sign for sign in self._nearest("gtin") if (code := gtin(sign.value))}
        return (
            next(((code, f"page: {shown_path(sign.node)}") for code, sign in found.items()), None)
            if len(found) == 1
            else None
        )

    @cached_property
    def brand(self) -> tuple[str, str] | None:
        """The brand that the page labels as one, where it labels one only."""
        found = {sign.value: sign for sign in self._nearest("brand") if 1 < len(sign.value) <= MAX_SKU}
        return (
            next(((name, f"page: {shown_path(sign.node)}") for name, sign in found.items()), None)
            if len(found) == 1
            else None
        )
