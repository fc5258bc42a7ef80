"""The price that a reader of the page would name: the one that stands with the title, is not struck, and is alone.

Refuses where two could be meant. The order of the questions: is it in the title's part of the page, is it another
product's, is it an older price, a saving, a charge, an instalment, a price per unit; then which of those left is it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal

from selectolax.lexbor import LexborNode

from scrape_assets.rules import visible_words as words
from scrape_assets.rules.currency import WITHOUT_DECIMALS, live_codes, signs_in
from scrape_assets.rules.document import text_of
from scrape_assets.rules.money import APART, DecimalSeparator, Money, Refusal, fold, not_asked, parse_money
from scrape_assets.rules.place import Place
from scrape_assets.rules.price_words import counts
from scrape_assets.rules.spec import PageRule
from scrape_assets.rules.visible_scan import Main, Scan, Text

MAX_PRICE_TEXT = 60
NEAR = 5
"""Levels up to which a class name speaks of the price rather than of a part of the page."""

THREE_DECIMALS = frozenset("BHD IQD JOD KWD LYD OMR TND".split())

_WHOLE = re.compile(r"^\D*\d[\d.,' ]*$")
_DECIMALS = re.compile(r"[.,]\d\d?\D*$")
_CENTS = re.compile(r"^\d\d(?![\d.,%])\D{0,8}$")
_DIGITS = re.compile(r"\d")
_SIGNED = re.compile(r"^[\s|]*[-−–]\s?\d|%")
_STRUCK = frozenset(("del", "s", "strike"))


@dataclass(slots=True)
class Seen:
    """One price on the page: its element, its place relative to the title, what it is, and how it reads."""

    node: LexborNode
    depth: int
    kinds: frozenset[str]
    money: Money | Refusal
    from_place: bool

    @property
    def what(self) -> tuple[Decimal, str | None]:
        assert isinstance(self.money, Money)
        return self.money.amount, self.money.currency


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
    seen = [price for text in found.numbers if (price := _seen(text, main, place, page)) is not None]
    left = [price for price in seen if "old" not in price.kinds]
    if not left:
        return None
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
        for price in seen
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


def _narrowed(
    group: list[Seen], found: Scan, main: Main, stated: Callable[[], frozenset[Decimal]]
) -> Seen | Refusal:
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
    return len({price.what[0] for price in prices}) == 1 and prices[0].what[1] is not None and len(
        {price.what[1] for price in prices} - {None}
    ) == 1


def _nearest_to_button(prices: list[Seen], found: Scan, main: Main) -> list[Seen]:
    """The prices that stand closest to the button that buys the page's product."""
    buttons = [(main.way(button.node), button) for button in found.buttons]
    own = [(way[0], button) for way, button in buttons if not is_another(way[1], main)]
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


def _seen(text: Text, main: Main, place: Place, page: PageRule) -> Seen | None:
    """The text as a price of the page's product; None when it is no price, another product's, or an amount beside it."""
    own = text.text
    if len(own) > MAX_PRICE_TEXT or "%" in own and len(_DIGITS.findall(own)) <= 3:
        return None
    written = _written(text)
    if written is None:
        return None
    depth, passed = main.way(text.node)
    if not depth:
        return None
    kinds = _kinds(text, written, passed)
    folded = fold(written.replace(APART, " "))
    signs = signs_in(folded) or [frozenset((code,)) for sign, code in place.signs.items() if _has(folded, sign)]
    if not signs and "price" not in kinds:
        return None
    if "other" in kinds or is_another(passed, main) or _SIGNED.search(folded):
        return None
    if counts(folded) and "price" not in kinds:
        return None
    money, from_place = _read(folded, signs, place, page)
    if isinstance(money, Refusal) and not money.ambiguous:
        return None
    if isinstance(money, Money) and not money.amount:
        return None
    if isinstance(money, Refusal) and "price" not in kinds and len(_DIGITS.findall(folded)) > 12:
        return None
    return Seen(text.node, depth, kinds, money, from_place)


def _written(text: Text) -> str | None:
    """The number with what stands at it in the elements around: its cents, its currency, a word or two."""
    node, whole = text.node, ""
    for _ in range(NEAR):
        if node is None or node.tag in ("body", "html", "td", "li", "tr"):
            break
        # A long text is measured before it is read.
        if len(node.text(deep=True)) > 4 * MAX_PRICE_TEXT:
            break
        around = text_of(node, joint=APART)
        if len(around) > MAX_PRICE_TEXT:
            break
        whole, node = around, node.parent
    if not whole:
        return text.text
    parts = [part.strip() for part in whole.split(APART)]
    at = next((n for n, part in enumerate(parts) if part == text.text or _plain(part) == _plain(text.text)), None)
    if at is None:
        # Joined with its cents by the reading already: "39" and ",99".
        holding = [part for part in parts if text.text in part]
        if len(holding) != 1 or holding[0].startswith(text.text) is False:
            return text.text if not holding else None if len(holding) == 1 and _CENTS.match(text.text) else holding[0]
        at = parts.index(holding[0])
    own = parts[at]
    before, after = parts[:at], parts[at + 1 :]
    if before and _WHOLE.match(before[-1]) and not _DECIMALS.search(before[-1]) and _CENTS.match(own):
        return None
    if _WHOLE.match(own) and not _DECIMALS.search(own) and after and _DIGITS.match(after[0]):
        if not _CENTS.match(after[0]):
            return f"{own} | {after[0]}"
        own = f"{own}.{after[0]}" if _WHOLE.match(own) and not re.search(r"[.,]$", own) else own + after[0]
        after = after[1:]
    left: list[str] = []
    for part in reversed(before):
        if _DIGITS.search(part):
            break
        left.insert(0, part)
    right: list[str] = []
    if not signs_in(" ".join(left)):
        for part in after:
            if _DIGITS.search(part):
                break
            right.append(part)
    return " ".join((*left, own, *right))


def _plain(text: str) -> str:
    return text.strip(" |:")


def _kinds(text: Text, written: str, passed: Iterable[LexborNode]) -> frozenset[str]:
    """What markup and words around the price say it is."""
    kinds: set[str] = set()
    for level, node in enumerate(passed):
        if node.tag in _STRUCK:
            kinds.add("old")
        attributes = node.attributes
        if level < NEAR:
            if "line-through" in (attributes.get("style") or "")[:300]:
                kinds.add("old")
            found = words.roles(f"{attributes.get('class') or ''} -- {attributes.get('id') or ''}"[: words.MAX_NAME])
            kinds |= found - {"elsewhere"}
            if attributes.get("itemprop") in ("price", "lowPrice"):
                kinds.add("price")
            if node.tag == "ins":
                kinds.add("strong")
    label = re.split(r"\d", f"{text.before} ")[-1].strip()
    own_label = re.split(r"\d", written, maxsplit=1)[0]
    after = re.split(r"\d", written)[-1] + " " + text.after
    for said in (label, own_label.strip(" €$£¥|")):
        if words.OLD_LABEL.search(said):
            kinds.add("old")
        if words.BESIDE_LABEL.search(said) or words.UNIT_LABEL.search(said):
            kinds.add("other")
        if words.NET_WORDS.search(said):
            kinds.add("net")
    after = re.sub(r"^[\s|]*(?:[€$£¥₽]|[A-Z]{3}(?![A-Za-z])|kr\.?|zł|Kč|Ft|лв\.?|руб\.?|円|元)", "", after)
    if words.UNIT_WORDS.search(after) or words.TIMES.search(text.before) or words.UNIT_LABEL.search(text.before):
        kinds.add("other")
    if words.NET_WORDS.search(after[:30]):
        kinds.add("net")
    if not_asked(written[:200]):
        kinds.add("other")
    if "strong" in kinds and "weak old" in kinds:
        kinds.discard("weak old")
    return frozenset(kinds)


def is_another(passed: list[LexborNode], main: Main) -> bool:
    """Whether the element belongs to another product's card, or to a part of the page that is not the product's."""
    for level, node in enumerate(passed):
        tag = node.tag
        if tag in ("nav", "footer"):
            return True
        attributes = node.attributes
        if "elsewhere" in words.roles(f"{attributes.get('class') or ''} -- {attributes.get('id') or ''}"[: words.MAX_NAME]):
            return True
        if tag == "a" and main.is_link_elsewhere(node):
            return True
        if level < NEAR + 1 and tag in ("li", "article", "div", "figure", "td", "section") and _is_card(node, main):
            return True
    return False


def _is_card(node: LexborNode, main: Main) -> bool:
    """Whether the element shows one product that has its own page: a heading or a picture that leads there."""
    for link in node.css("h2 a, h3 a, h4 a, h5 a")[:3]:
        if main.is_link_elsewhere(link):
            return True
    for link in node.css("a[href]")[:12]:
        if link.css_first("h2, h3, h4, h5") is not None and main.is_link_elsewhere(link):
            return True
        if link.css_first("img") is not None and main.is_link_elsewhere(link):
            href = link.attributes.get("href")
            named = [other for other in node.css("a[href]")[:12] if other.attributes.get("href") == href and text_of(other)]
            if named or node.tag in ("li", "article"):
                return True
    return False


def _has(folded: str, sign: str) -> bool:
    at = re.escape(sign)
    return re.search(rf"\d\s?{at}(?![^\W\d_])|(?<![^\W\d_]){at}\.?\s?\d", folded) is not None


def _read(folded: str, signs: list[frozenset[str]], place: Place, page: PageRule) -> tuple[Money | Refusal, bool]:
    """The amount, and whether its currency came from the page's place rather than from the text."""
    from_place = False
    if page.money:
        code: str | None = page.money
        if signs and not any(code in possible for possible in signs):
            return Refusal(f"ambiguous price {folded!r}: another currency than {code}", True), False
    elif signs:
        common = frozenset.intersection(*signs)
        if not common:
            return Refusal(f"ambiguous price {folded!r}: more than one currency", True), False
        code = place.settle(common)
        from_place = len(common) > 1
        if code is not None and code not in live_codes():
            return Refusal(f"ambiguous price {folded!r}: {code} is no money any more", True), False
    else:
        # A word at the number that nobody here knows may be a currency's.
        code = place.currency if not re.search(r"[^\W\d_]", _without_labels(folded)) else None
        from_place = True
    bare = folded
    for sign in place.signs:
        if _has(bare, sign) and not signs_in(bare):
            bare = bare.replace(sign, " ")
    stated = code if code is None or not signs_in(bare) or any(code in possible for possible in signs_in(bare)) else None
    money = parse_money(bare, currency=stated, decimal=page.decimal)
    decimal: DecimalSeparator | None = page.decimal or place.decimal
    if isinstance(money, Refusal) and money.ambiguous and decimal:
        money = parse_money(bare, decimal=decimal, currency=stated)
    if isinstance(money, Refusal):
        return money, False
    exponent = money.amount.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -2 and code not in THREE_DECIMALS:
        return Refusal(f"ambiguous price {folded!r}: three decimals", True), False
    if code in WITHOUT_DECIMALS and money.amount != money.amount.to_integral_value():
        return Refusal(f"ambiguous price {folded!r}: {code} has no decimals", True), False
    return Money(money.amount, code), from_place


_LABEL_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]{2,}(?![^\W\d_])")


def _without_labels(folded: str) -> str:
    """The text without the words that label a price and no currency."""
    return _LABEL_WORD.sub(lambda hit: "x" if counts(hit.group()) else "", folded)


def shown_path(node: LexborNode) -> str:
    """A CSS selector, short and readable, that names where the element stands."""
    steps: list[str] = []
    at: LexborNode | None = node
    while at is not None and len(steps) < 3 and at.tag not in ("body", "html"):
        name = at.tag
        attributes = at.attributes
        identity, classes = attributes.get("id") or "", (attributes.get("class") or "").split()
        if re.fullmatch(r"[A-Za-z][\w-]{0,40}", identity):
            steps.append(f"{name}#{identity}")
            break
        plain = [word for word in classes if re.fullmatch(r"[A-Za-z][\w-]{0,40}", word)]
        steps.append(name + "".join(f".{word}" for word in plain[:2]))
        at = at.parent
    return " > ".join(reversed(steps)) or (node.tag or "body")
