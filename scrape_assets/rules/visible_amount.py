"""A text with a number on the visible page, read as a price: the amount, its currency, and what it is a price of.

The number may be split over elements (`249<sup>99</sup> <i>zł</i>`), the words that say what it is may stand before it,
behind it, in a class name or nowhere. What is no price of the page's product is left out; what could be one and cannot
be read is kept as a refusal, for it may be the very price that is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from selectolax.lexbor import LexborNode

from scrape_assets.rules import price_words
from scrape_assets.rules import visible_words as words
from scrape_assets.rules.currency import WITHOUT_DECIMALS, codes_at_numbers, live_codes, signs_in
from scrape_assets.rules.document import text_of
from scrape_assets.rules.money import APART, Money, Refusal, fold, parse_money
from scrape_assets.rules.place import Place
from scrape_assets.rules.spec import PageRule
from scrape_assets.rules.visible_main import NEAR, Main, is_another, roles_of
from scrape_assets.rules.visible_scan import Text, short_text

MAX_PRICE_TEXT = 60
NO_MONEY = " is no money any more"
THREE_DECIMALS = frozenset("BHD IQD JOD KWD LYD OMR TND".split())
"""ISO 4217 currencies of a thousand parts, the only ones in which three decimals are a price."""

_DIGIT = re.compile(r"\d")
_WHOLE = re.compile(r"^\D*\d[\d.,' ]*$")
_DECIMALS = re.compile(r"[.,]\d\d?\D*$")
_PIECE = re.compile(r"^(?:€\s?)?(\d+)\s?(\D{0,8})$")
# What is a price without a sign: cents, groups of thousands, or at least a hundred. "4" may count anything.
_BARE = re.compile(r"\d[.,]\d\d(?!\d)|\d[., ']\d{3}|\d{3}")
_DASH = re.compile(r"^[-–—~～]$")
_MINUS = re.compile(r"^[\s|]*[-−–]\s?\W?\s?\d|\d\s?%")
_IN_ELEMENTS = (
    "sup, sub, small, [class*=cent], [class*=Cent], [class*=decimal], [class*=frac], [class*=penn], [class*=minor]"
)
_PARTS = (
    'h1, h2, h3, h4, h5, button, form, input, select, img, [hidden], [style*="display:none"], [style*="display: none"]'
)
"""What no price has inside: an element that holds one of these is a part of the page."""

_STRUCK = frozenset(("del", "s", "strike"))
_SIGN_BEHIND = re.compile(r"^[\s|]*(?:[€$£¥₽₴₹]|[A-Z]{3}(?![A-Za-z])|(?:kr|zł|Kč|Ft|лв|руб|р|円|元)\.?(?![^\W\d_]))")
_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]{2,}(?![^\W\d_])")


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
        """The amount and its currency, of one that could be read."""
        assert isinstance(self.money, Money)
        return self.money.amount, self.money.currency


def seen(text: Text, main: Main, place: Place, page: PageRule) -> Seen | None:
    """The text as a price of the page's product; None for what is none, and for another's."""
    own = text.text
    if len(own) > MAX_PRICE_TEXT or ("%" in own and len(_DIGIT.findall(own)) <= 3):
        return None
    depth, passed = main.way(text.node)
    written = _written(text) if depth else None
    if written is None:
        return None
    folded = fold(written)
    signs = _signs(folded, place)
    kinds = _kinds(text, written, passed) if signs or any("price" in roles_of(node) for node in passed[:NEAR]) else None
    if kinds is None:
        return None
    is_marked = "price" in kinds
    if not is_marked and (not signs or _unknown_words(folded, place)):
        return None
    if not signs and not _BARE.search(folded):
        return None
    if "other" in kinds or _MINUS.search(folded) or is_another(passed, main):
        return None
    money, from_place = _read(folded, signs, place, page)
    if isinstance(money, Refusal) and money.reason.endswith(NO_MONEY):
        kinds |= {"dead"}
    if "bound" in kinds and "old" not in kinds:
        money = Refusal(f"ambiguous price {folded!r}: a bound of a range", True)
    if isinstance(money, Money):
        return Seen(text.node, depth, kinds, money, from_place) if money.amount else None
    return Seen(text.node, depth, kinds, money, False) if money.ambiguous and is_marked and signs else None


def _signs(folded: str, place: Place) -> list[frozenset[str]]:
    """What each sign or code at the number may stand for, those included that are signs in this country only."""
    local = [code for sign, code in place.signs.items() if _has(folded, sign)]
    return signs_in(folded) or [frozenset((code,)) for code in codes_at_numbers(folded) or local]


def _unknown_words(folded: str, place: Place) -> bool:
    """Whether words stand there that neither label a price nor name a currency: the number may be of anything."""
    return any(
        price_words.counts(word) and not signs_in(word) and word not in place.signs for word in _WORD.findall(folded)
    )


def _written(text: Text) -> str | None:
    """The number with what stands at it in the elements around: its cents, its currency, a word or two.

    None for what is the cents of another text. Two numbers that may be one stay two, and are refused by the reading.
    """
    whole, around = _around(text)
    parts = _with_signs_between([part for part in (part.strip() for part in whole.split(APART)) if part])
    plain = text.text.strip(" |:")
    at = next((number for number, part in enumerate(parts) if part.strip(" |:") == plain), None)
    if at is None:
        # Joined with its cents by the reading already: "39" and ",99".
        holding = [part for part in parts if plain in part]
        if len(holding) != 1:
            return text.text
        if not holding[0].startswith(plain):
            return None if re.search(rf"[\d.,]{re.escape(plain)}", holding[0]) else text.text
        at = parts.index(holding[0])
    own, before, after = parts[at], parts[:at], parts[at + 1 :]
    if len(before) > 1 and _DASH.match(before[-1]) and _DIGIT.search(before[-2]):
        return f"{before[-2]} - {own}"
    if len(after) > 1 and _DASH.match(after[0]) and _DIGIT.search(after[1]):
        return f"{own} - {after[1]}"
    if before and _is_split(before[-1], own):
        return None if _is_cents(own, around) else f"{before[-1]} | {own}"
    if after and _is_split(own, after[0]):
        if not _is_cents(after[0], around):
            return f"{own} | {after[0]}"
        own = _joined(own, after[0])
        after = after[1:]
    left = _until_a_digit(reversed(before))[::-1]
    right = [] if signs_in(" ".join((*left, own))) else _until_a_digit(after)
    return " ".join((*left, own, *right))


def _with_signs_between(parts: list[str]) -> list[str]:
    """The parts, a euro sign between a number and two digits joined to the digits: `12<sup>€</sup><sup>50</sup>`."""
    joined: list[str] = []
    for part in parts:
        if len(joined) > 1 and joined[-1] == "€" and re.fullmatch(r"\d\d", part) and _WHOLE.match(joined[-2]):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def _joined(whole: str, cents: str) -> str:
    """The number with its cents behind the separator that its thousands do not use."""
    if cents.startswith("€"):
        return whole + cents.replace(" ", "")
    return f"{whole.rstrip('.,')}{',' if '.' in whole.rstrip('.') else '.'}{cents}"


def _around(text: Text) -> tuple[str, LexborNode]:
    """The text of the largest element around that holds no more than a price may, and the element."""
    node: LexborNode | None = text.node
    whole, around = text.text, text.node
    for level in range(NEAR):
        if node is None or (level and node.tag in ("body", "html", "li", "tr")):
            break
        # Measured in bounded time before it is read or searched.
        if short_text(node, 4 * MAX_PRICE_TEXT) is None or (level and node.css_first(_PARTS) is not None):
            break
        shown = text_of(node, joint=APART)
        if len(shown) > MAX_PRICE_TEXT:
            break
        whole, around, node = shown, node, node.parent
    return whole, around


def _is_split(first: str, second: str) -> bool:
    """Whether two neighbouring texts may be one number: a whole one, then digits and a sign."""
    if not _WHOLE.match(first) or _DECIMALS.search(first):
        return False
    piece = _PIECE.match(second)
    return piece is not None and (not piece.group(2).strip() or bool(signs_in(piece.group(2))))


def _is_cents(text: str, around: LexborNode) -> bool:
    """Whether two digits stand in an element of their own that says that they are cents."""
    piece = _PIECE.match(text)
    if piece is None or len(piece.group(1)) != 2:
        return False
    return any(text_of(node).strip(" .,€") == piece.group(1) for node in around.css(_IN_ELEMENTS)[:20])


def _until_a_digit(parts: Iterable[str]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if _DIGIT.search(part):
            break
        found.append(part)
    return found


def _kinds(text: Text, written: str, passed: list[LexborNode]) -> frozenset[str]:
    """What markup and words around the price say it is."""
    kinds = _by_markup(passed) | _by_words(text, written)
    if "old" in kinds:
        kinds.discard("other")
    if "strong" in kinds:
        kinds.discard("weak old")
    return frozenset(kinds)


def _by_markup(passed: list[LexborNode]) -> set[str]:
    kinds: set[str] = set()
    for level, node in enumerate(passed):
        if node.tag in _STRUCK:
            kinds.add("old")
        if level < NEAR:
            if "line-through" in (node.attributes.get("style") or "")[:300]:
                kinds.add("old")
            kinds |= roles_of(node) - {"elsewhere"}
            if node.tag == "ins":
                kinds.add("strong")
    return kinds


def _by_words(text: Text, written: str) -> set[str]:
    label = re.split(r"\d", f"{text.before} ")[-1].strip()
    is_of_the_number_before = re.search(r"\d", text.before) is not None and ":" not in label
    inside = re.split(r"\d", written, maxsplit=1)[0].strip(" €$£¥|")
    kinds: set[str] = {kind for kind, pattern in words.LABEL_KINDS if pattern.search(label) or pattern.search(inside)}
    if is_of_the_number_before:
        # "£10.00 ex VAT (£12.00": what stands between two numbers says it of the first.
        kinds.discard("net")
    # A times sign or a quantity stands before the words that the last digit ends.
    if words.TIMES.search(text.before) or words.UNIT_LABEL.search(text.before) or words.LOWEST.search(text.before):
        kinds.add("other")
    behind = _SIGN_BEHIND.sub("", re.split(r"\d", written)[-1] + " " + text.after)[:40]
    said = re.split(r"\d", behind)[0]
    if words.UNIT_WORDS.search(behind) or price_words.is_instalment(said):
        kinds.add("other")
    if words.NET_WORDS.search(said):
        kinds.add("net")
    if beside := price_words.not_asked(fold(written)):
        kinds.add("old" if beside == price_words.OLDER else "other")
    return kinds


def _has(folded: str, sign: str) -> bool:
    at = re.escape(sign)
    return re.search(rf"\d\s?{at}(?![^\W\d_])|(?<![^\W\d_]){at}\.?\s?\d", folded) is not None


def _read(folded: str, signs: list[frozenset[str]], place: Place, page: PageRule) -> tuple[Money | Refusal, bool]:
    """The amount, and whether its currency came from the page's place rather than from the text."""
    code, from_place = _currency(folded, signs, place, page)
    if isinstance(code, Refusal):
        return code, False
    bare = folded
    for sign in place.signs:
        if not signs_in(bare) and _has(bare, sign):
            bare = " ".join(bare.replace(sign, " ").split())
    money = parse_money(bare, currency=code, decimal=page.decimal)
    decimal = page.decimal or place.decimal
    if isinstance(money, Refusal) and money.ambiguous and decimal:
        money = parse_money(bare, decimal=decimal, currency=code)
    if isinstance(money, Refusal):
        return money, False
    exponent = money.amount.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -2 and code not in THREE_DECIMALS:
        return Refusal(f"ambiguous price {folded!r}: three decimals", True), False
    if code in WITHOUT_DECIMALS and money.amount != money.amount.to_integral_value():
        return Refusal(f"ambiguous price {folded!r}: {code} has no decimals", True), False
    return Money(money.amount, code), from_place


def _currency(
    folded: str, signs: list[frozenset[str]], place: Place, page: PageRule
) -> tuple[str | Refusal | None, bool]:
    """The declared currency, else what the signs mean here, else the place's; None where nobody can tell."""
    if not signs:
        if page.money:
            return page.money, False
        # A word or letter at the number that nobody here knows may be a currency's.
        rest = _WORD.sub(lambda hit: hit.group() if price_words.counts(hit.group()) else "", folded)
        return (None if re.search(r"[^\W\d_]", rest) else place.currency), True
    common = frozenset.intersection(*signs)
    if not common or (page.money and page.money not in common):
        return Refusal(f"ambiguous price {folded!r}: more than one currency", True), False
    code = page.money or place.settle(common)
    if code is not None and code not in live_codes():
        return Refusal(f"ambiguous price {folded!r}: {code}{NO_MONEY}", True), False
    return code, len(common) > 1 and not page.money
