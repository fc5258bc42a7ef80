"""Price text to a number, or a refusal with its reason. A wrong price is worse than none: nothing is guessed."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from scrape_assets.rules import price_words
from scrape_assets.rules.currency import (
    WITHOUT_DECIMALS,
    codes_at_numbers,
    dead_codes_at_numbers,
    live_codes,
    signs_in,
)

DecimalSeparator = Literal[",", "."]
MAX_TEXT = 200
"""A longer text is no price but a passage; which of its numbers would be meant is anybody's guess."""
MAX_DIGITS = 18

APART = "|"
"""What keeps the texts of two elements from being read as one number, as a space between them would not."""

_FOLDED = str.maketrans(
    {
        "，": ",", "．": ".", "。": ".", "﹐": ",", "﹒": ".",
        "’": "'", "‘": "'", "′": "'", "´": "'", "`": "'", "＇": "'",
        "−": "-", "–": "-", "—": "-", "‒": "-", "－": "-", "\N{HYPHEN}": "-", "\N{NON-BREAKING HYPHEN}": "-",
        "\N{SMALL HYPHEN-MINUS}": "-", "\N{SOFT HYPHEN}": None, "\N{ZERO WIDTH SPACE}": None,
        "\N{LEFT-TO-RIGHT MARK}": None, "\N{RIGHT-TO-LEFT MARK}": None, "\N{ZERO WIDTH NO-BREAK SPACE}": None,
    }
)  # fmt: skip
_ATTACHED_SMALL = re.compile(r"[0-9.,][¹²³⁰⁴-⁹₀-₉¼-¾]|[¹²³⁰⁴-⁹₀-₉¼-¾][0-9]")
_EURO_BETWEEN = re.compile(r"(?<![0-9.,])([0-9]{1,4})€([0-9]{2})(?![0-9.,])")
# A space groups only in threes from the front: "1 099,00" is one number, "39 99" is two.
_NUMBER = re.compile(
    r"[0-9]{1,3}(?:[ '][0-9]{3})+(?![0-9])(?:[.,][0-9]+)?(?![0-9'])"
    # A dot after a letter or a slash ends an abbreviation: "Rs.99" is 99.
    r"|(?:(?<![^\W\d_])(?<!/)[.,])?[0-9]+(?:[.,'٫٬][0-9]+)*"
)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount that the text states beyond doubt, and its currency where that is beyond doubt too."""

    amount: Decimal
    currency: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no value was taken; `ambiguous` when there was something to take, but more than one way.

    `among` are the amounts that it may have been, for a range its two ends; empty where nobody can tell.
    """

    reason: str
    ambiguous: bool = False
    among: tuple[Decimal, ...] = ()
    is_range: bool = False
    lacks_currency: bool = False

    def allows(self, amount: Decimal) -> bool:
        """Whether better evidence for the amount settles what was ambiguous, rather than contradicting it."""
        if self.is_range:
            return bool(self.among) and min(self.among) <= amount <= max(self.among)
        return amount in self.among


def parse_money(text: str, *, decimal: DecimalSeparator | None = None, currency: str | None = None) -> Money | Refusal:
    """The one amount in the text. `decimal` and `currency` are what the declaration or the data state.

    >>> parse_money("1 099,00 EUR"), parse_money("1.299 €", decimal=",").amount
    (Money(amount=Decimal('1099.00'), currency='EUR'), Decimal('1299'))
    >>> parse_money("1.299 €").reason
    "ambiguous price '1.299 €': '1.299' is 1299 or 1.299; declare decimal"
    """
    if len(text) > MAX_TEXT:
        return Refusal(f"ambiguous price: {len(text)} characters of text where a price was expected", True)
    folded = fold(text)
    shown = repr(text.strip())
    found = signs_in(folded)
    stated = _currency(folded, shown, found, currency)
    if isinstance(stated, Refusal):
        return stated
    currency = stated
    if what := price_words.not_a_price(folded):
        return Refusal(f"ambiguous price {shown}: {what}, not a price", True)
    number = _one_number(folded, shown, "price", decimal, currency)
    if isinstance(number, Refusal):
        return number
    if currency in WITHOUT_DECIMALS and number != number.to_integral_value():
        return Refusal(f"ambiguous price {shown}: {currency} has no decimals", True)
    is_whole = number.as_tuple().exponent == 0
    if is_whole and not (found or codes_at_numbers(folded)) and price_words.counts(folded):
        return Refusal(f"ambiguous price {shown}: a count, perhaps; no currency stands there", True)
    return Money(number, currency)


def _currency(folded: str, shown: str, found: list[frozenset[str]], declared: str | None) -> str | Refusal | None:
    """The declared currency, which nothing in the text contradicts, else the one that the text states, else None."""
    if not found and (dead := dead_codes_at_numbers(folded)):
        return Refusal(f"ambiguous price {shown}: {dead[0]} is no money any more", True)
    if declared is not None:
        stated = found or [frozenset((code,)) for code in codes_at_numbers(folded)]
        if any(declared not in possible for possible in stated):
            return Refusal(f"ambiguous price {shown}: another currency than {declared}", True)
        return declared
    if not found:
        return None
    if common := frozenset.intersection(*found):
        code = next(iter(common))
        if code not in live_codes():
            return Refusal(f"ambiguous price {shown}: {code} is no money any more", True)
        return code if len(common) == 1 else None
    return Refusal(f"ambiguous price {shown}: more than one currency", True)


def not_asked(text: str) -> Refusal | None:
    """Why the amount in the text is not what is asked for the thing now: a saving, a charge, or an older price.

    >>> not_asked("Save $20").reason, not_asked("19,99 € zzgl. Versand")
    ("ambiguous price 'Save $20': a saving or a charge, not the price", None)
    """
    what = price_words.not_asked(fold(text[:MAX_TEXT]))
    return Refusal(f"ambiguous price {text.strip()!r}: {what}, not the price", True) if what else None


def readings(text: str) -> tuple[Decimal, ...]:
    """Every amount that a number in the text may be, by either meaning of its separators; none beside words of a bound.

    >>> readings("10,75 € 11,95 €"), readings("1.299"), readings("from 5")
    ((Decimal('10.75'), Decimal('11.95')), (Decimal('1.299'), Decimal('1299')), ())
    """
    folded = fold(text[:MAX_TEXT])
    if price_words.not_a_price(folded):
        return ()
    separators: tuple[DecimalSeparator, ...] = (".", ",")
    found = [_read(hit.group(), mark, None, False) for hit in _NUMBER.finditer(folded) for mark in separators]
    return tuple(dict.fromkeys(amount for amount in found if isinstance(amount, Decimal)))


def parse_number(text: str, *, decimal: DecimalSeparator | None = None, whole: bool = False) -> Decimal | Refusal:
    """The one number in the text; with `whole`, one without decimals, so that `1,234` can only be 1234."""
    if len(text) > MAX_TEXT:
        return Refusal(f"ambiguous number: {len(text)} characters of text where a number was expected", True)
    number = _one_number(fold(text), repr(text.strip()), "number", decimal, None, whole=whole, signed=True)
    if whole and isinstance(number, Decimal) and number != number.to_integral_value():
        return Refusal(f"{text.strip()!r} is not a whole number")
    return number


def fold(text: str) -> str:
    """The text with every script's digits, spaces, dashes and apostrophes as their ASCII forms, spaces single.

    Superscripts and fractions stay what they are: `19,99²` carries a footnote.
    """
    if not text.isascii():
        text = "".join(
            str(unicodedata.decimal(char)) if char.isdecimal() and not char.isascii() else char
            for char in text.translate(_FOLDED)
        )
    return " ".join(text.split())


def _one_number(
    folded: str,
    shown: str,
    what: str,
    decimal: DecimalSeparator | None,
    currency: str | None,
    *,
    whole: bool = False,
    signed: bool = False,
) -> Decimal | Refusal:
    if _ATTACHED_SMALL.search(folded):
        return Refusal(f"ambiguous {what} {shown}: raised or lowered digits", True)
    folded = _EURO_BETWEEN.sub(r"\1.\2 €", folded) if "€" in folded else folded
    amounts: dict[Decimal, str] = {}
    negative = False
    for match in _NUMBER.finditer(folded):
        token = match.group()
        before, after = folded[: match.start()], folded[match.end() :]
        if after.lstrip(" |")[:1] == "%":
            continue
        if _is_glued(before, after):
            return Refusal(f"ambiguous {what} {shown}: {token!r} is part of a word", True)
        amount = _read(token, decimal, currency, whole)
        if isinstance(amount, Refusal):
            return Refusal(f"ambiguous {what} {shown}: {amount.reason}", True)
        negative = negative or _is_negative(before)
        amounts.setdefault(amount, token)
        if len(amounts) > 1:
            return Refusal(f"ambiguous {what} {shown}: more than one number", True)
    if not amounts:
        return Refusal(f"no {what} in {shown}")
    amount, token = next(iter(amounts.items()))
    if not token.isdigit() or folded.count(token) == 1:
        if negative and not signed:
            return Refusal(f"negative {what} {shown}")
        return -amount if negative else amount
    # "2 for 2": an integer said twice may be a quantity and a price.
    return Refusal(f"ambiguous {what} {shown}: more than one number", True)


def _is_glued(before: str, after: str) -> bool:
    """Whether the number touches letters that are no currency: `A4`, `15GB`, `2.5M`, `10K`."""
    left = re.search(r"[^\W\d_]+\.?\$?$", before)
    if left is not None and re.fullmatch(r"[A-Z]{3}\.", left.group()):
        # A code is no abbreviation: "EUR.99" may be 99 cents.
        return True
    right = re.match(r"[^\W\d_]+", after)
    return any(touch is not None and not signs_in(touch.group()) for touch in (left, right))


def _is_negative(before: str) -> bool:
    """Whether a minus belongs to the number: at its front, after nothing, a space or a sign, perhaps before a currency.

    After a digit it is a range, and after a colon the stroke that some shops write there: "Price:-₹500".
    """
    before = before.replace(APART, " ")
    return re.search(r"(?:^|[^\w.,':-])-\s?[^\w\s-]?\s?$|^-\s?[A-Z]{3}\s?$", before) is not None


def _read(token: str, decimal: DecimalSeparator | None, currency: str | None, whole: bool) -> Decimal | Refusal:
    """The token's value by its separators, each of which must have exactly one possible meaning."""
    digits = re.split(r"[.,' ٫٬]", token)
    separators = re.findall(r"[.,' ٫٬]", token)
    if sum(map(len, digits)) > MAX_DIGITS:
        return Refusal(f"{token!r} has more than {MAX_DIGITS} digits")
    if not separators:
        return Decimal(token)
    last, fraction = separators[-1], digits[-1]
    if digits[0] == "":
        return (
            Decimal(f"0.{fraction}") if len(digits) == 2 and len(fraction) <= 2 else Refusal(f"{token!r} is no number")
        )
    if last == "٫":
        last, point = ".", True
    elif last in "' ٬":
        point = False
    else:
        point = _is_point(digits, separators, decimal)
        if point and decimal is None and _is_either(digits):
            if not whole and currency not in WITHOUT_DECIMALS:
                return Refusal(f"{token!r} is {''.join(digits)} or {digits[0]}.{fraction}; declare decimal")
            point = False
    groups = digits[:-1] if point else digits
    if point and decimal is not None and last != decimal:
        return Refusal(f"{token!r} contradicts the declared decimal {decimal!r}")
    if not _is_grouped(groups, separators[: len(groups) - 1], decimal):
        return Refusal(f"{token!r} is no number that is written one way")
    return Decimal("".join(groups) + ("." + fraction if point else ""))


def _is_either(digits: list[str]) -> bool:
    """Whether one separator before three digits may mark thousands as well as decimals: `1.299`, but not `0.299`."""
    return len(digits) == 2 and len(digits[1]) == 3 and len(digits[0]) <= 3 and digits[0] != "0"


def _is_point(digits: list[str], separators: list[str], decimal: DecimalSeparator | None) -> bool:
    """Whether the last separator marks decimals: always when it stands once after others, or is the declared one."""
    last = separators[-1]
    if separators.count(last) > 1:
        return False
    if decimal is not None and len(digits[-1]) == 3:
        return last == decimal
    return True


def _is_grouped(groups: list[str], separators: list[str], decimal: DecimalSeparator | None) -> bool:
    """Whether the digits stand in thousands behind one kind of separator (or in the Indian way, twos then a three)."""
    if not separators:
        return True
    if len(set(separators)) > 1 or separators[0] == decimal or len(groups[-1]) != 3:
        return False
    if not 1 <= len(groups[0]) <= 3 or groups[0][0] == "0":
        return False
    middle = {len(group) for group in groups[1:-1]}
    return middle <= {3} or (middle == {2} and separators[0] == "," and len(groups[0]) <= 2)
