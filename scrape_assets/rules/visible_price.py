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
from scrape_assets.rules.visible_main import MAX_CLIMB, Main, is_another, shown_path
from scrape_assets.rules.visible_scan import Scan

AWAY = 1
"""Levels by which a price may stand farther from the title than the button does; beyond, it is another thing's."""

BESIDE = 6
"""Levels of markup between a price and what holds it and the button."""

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
    node: LexborNode


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
    if nearest < _depth_of_button(found, main) - AWAY:
        return None
    readable = [price for price in group if isinstance(price.money, Money)]
    # Beside live money, an amount of a currency that is gone is only its reckoning.
    first = next((price for price in group if "dead" not in price.kinds or not readable), group[0]).money
    if isinstance(first, Refusal):
        return first
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
        chosen.node,
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


def _own_buttons(found: Scan, main: Main) -> list[tuple[int, LexborNode]]:
    """The buttons that buy the page's product, with the depth of what holds them and the title."""
    ways = [(main.way(button.node), button.node) for button in found.buttons[:MAX_PRICES]]
    return [(depth, node) for (depth, passed), node in ways if not is_another(passed[1:], main)]


def _depth_of_button(found: Scan, main: Main) -> int:
    return max((depth for depth, _ in _own_buttons(found, main)), default=0)


def _nearest_to_button(prices: list[Seen], found: Scan, main: Main) -> list[Seen]:
    """The prices that stand closest to the button that buys the page's product."""
    own = _own_buttons(found, main)
    if not own:
        return []
    _, button = max(own, key=lambda pair: pair[0])
    away = [(steps_between(price.node, button)[1], price) for price in prices]
    least = min(distance for distance, _ in away)
    return [price for distance, price in away if distance == least]


def is_beside_a_button(price: VisiblePrice, found: Scan, main: Main) -> bool:
    """Whether a button that buys the product stands next to the price, within a few levels of markup."""
    own = _own_buttons(found, main)
    if price.depth < max((depth for depth, _ in own), default=0):
        return False
    return any(steps_between(price.node, node)[0] <= BESIDE for _, node in own)


def steps_between(one: LexborNode, other: LexborNode) -> tuple[int, int]:
    """The levels from each of the two elements up to the first that holds both; many where none does."""
    chain: dict[int, int] = {}
    at: LexborNode | None = other
    while at is not None and len(chain) < MAX_CLIMB:
        chain[at.mem_id] = len(chain)
        at = at.parent
    at = one
    for steps in range(MAX_CLIMB):
        if at is None:
            break
        if at.mem_id in chain:
            return steps, chain[at.mem_id]
        at = at.parent
    return MAX_CLIMB, MAX_CLIMB
