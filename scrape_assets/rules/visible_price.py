"""The price that a reader of the page would name: the one that stands with the title, is not struck, and is alone.

Refuses where two could be meant. The order of the questions: is it in the title's part of the page, is it another
product's, is it an older price, a saving, a charge, an instalment, a price per unit; then which of those left is it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from selectolax.lexbor import LexborNode

from scrape_assets.rules.document import text_of
from scrape_assets.rules.money import Money, Refusal
from scrape_assets.rules.place import Place
from scrape_assets.rules.spec import PageRule
from scrape_assets.rules.visible_amount import Seen, seen
from scrape_assets.rules.visible_main import Main, is_another, shown_path
from scrape_assets.rules.visible_scan import Scan

MAX_PRICES = 300
"""A page that shows more of them is a price list."""


@dataclass(frozen=True, slots=True)
class VisiblePrice:
    """The page's price, the struck one beside it, and what gave them."""

    money: Money
    list_price: Decimal | None
    source: str
    from_place: bool
    depth: int
    is_marked: bool


def visible_price(
    found: Scan, main: Main, place: Place, page: PageRule, stated: Callable[[], frozenset[Decimal]]
) -> VisiblePrice | Refusal | None:
    """The one price of the page's main part; None where there is none at all."""
    if not found.is_whole:
        return Refusal("ambiguous price: more texts with numbers than a product page has", True)
    all_seen = [price for text in found.numbers if (price := seen(text, main, place, page)) is not None]
    left = [price for price in all_seen if "old" not in price.kinds]
    if not left:
        return None
    if len(left) > MAX_PRICES:
        return Refusal(f"ambiguous price: {len(left)} prices on the page", True)
    nearest = max(price.depth for price in left)
    group = [price for price in left if price.depth == nearest]
    first = group[0].money
    if isinstance(first, Refusal):
        return first
    readable = [price for price in group if isinstance(price.money, Money)]
    chosen = _narrowed(readable, found, main, stated)
    if isinstance(chosen, Refusal):
        return chosen
    assert isinstance(chosen.money, Money)
    if chosen.money.currency is None:
        return Refusal(f"ambiguous price {snippet_of(chosen)}: no currency is stated; declare money", True)
    older = {
        price.money.amount
        for price in all_seen
        if ({"old", "weak old"} & price.kinds and isinstance(price.money, Money) and price.depth >= nearest - 2)
        and price.money.amount > chosen.money.amount
        and price.money.currency in (None, chosen.money.currency)
    }
    return VisiblePrice(
        chosen.money,
        older.pop() if len(older) == 1 else None,
        f"page: {shown_path(chosen.node)}",
        chosen.from_place,
        chosen.depth,
        "price" in chosen.kinds,
    )


def snippet_of(price: Seen) -> str:
    """The price's text, quoted, for a message."""
    return repr(text_of(price.node)[:40])


def _narrowed(group: list[Seen], found: Scan, main: Main, stated: Callable[[], frozenset[Decimal]]) -> Seen | Refusal:
    """The one price that is meant, by one question after the other until one amount is left."""

    def lowest(prices: list[Seen]) -> Decimal:
        return min(price.what[0] for price in prices)

    questions: tuple[Callable[[list[Seen]], list[Seen]], ...] = (
        lambda some: [price for price in some if "price" in price.kinds],
        lambda some: [price for price in some if "net" not in price.kinds],
        lambda some: [price for price in some if "weak old" not in price.kinds or price.what[0] == lowest(some)],
        lambda some: [price for price in some if "strong" in price.kinds and price.what[0] == lowest(some)],
        lambda some: _nearest_to_button(some, found, main),
        lambda some: [price for price in some if price.what[0] in stated()],
    )
    left = group
    for question in (None, *questions):
        if question is not None:
            left = question(left) or left
        if len({price.what for price in left}) == 1 or _one_of_two_currencies(left):
            return next(price for price in left if price.money)
    several = ", ".join(dict.fromkeys(text_of(price.node)[:20] for price in left[:4]))
    return Refusal(f"ambiguous price: the page shows {several} beside its title", True)


def _one_of_two_currencies(prices: list[Seen]) -> bool:
    """Whether one amount is there with and without its currency: the reader takes them for one."""
    return (
        len({price.what[0] for price in prices}) == 1
        and prices[0].what[1] is not None
        and len({price.what[1] for price in prices} - {None}) == 1
    )


def _nearest_to_button(prices: list[Seen], found: Scan, main: Main) -> list[Seen]:
    """The prices that stand closest to the button that buys the page's product."""
    buttons = [(main.way(button.node), button) for button in found.buttons]
    own = [(way[0], button) for way, button in buttons if not is_another(way[1][1:], main)]
    if not own:
        return []
    _, button = max(own, key=lambda pair: pair[0])
    chain: dict[int, int] = {}
    at: LexborNode | None = button.node
    while at is not None and len(chain) < 200:
        chain[at.mem_id] = len(chain)
        at = at.parent
    away: list[tuple[int, Seen]] = []
    for price in prices:
        at, steps = price.node, 0
        while at is not None and at.mem_id not in chain and steps < 200:
            at, steps = at.parent, steps + 1
        away.append((chain.get(at.mem_id, 999) if at is not None else 999, price))
    least = min(distance for distance, _ in away)
    return [price for distance, price in away if distance == least]
