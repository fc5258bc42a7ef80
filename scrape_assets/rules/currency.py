"""Currencies: which codes are money today, and what a sign in a text may stand for. Never a guess."""

from __future__ import annotations

import re
from functools import cache

from babel.core import get_global

_SIGNS = {
    "€": "EUR", "£": "GBP", "zł": "PLN", "Kč": "CZK", "₽": "RUB", "руб": "RUB", "₹": "INR", "₩": "KRW", "₪": "ILS",
    "₫": "VND", "₴": "UAH", "грн": "UAH", "₺": "TRY", "₦": "NGN", "₱": "PHP", "฿": "THB", "₸": "KZT", "₾": "GEL",
    "₼": "AZN", "₲": "PYG", "₡": "CRC", "৳": "BDT", "円": "JPY", "₮": "MNT", "֏": "AMD", "₭": "LAK", "៛": "KHR",
    "R$": "BRL", "US$": "USD", "U$S": "USD", "CA$": "CAD", "C$": "CAD", "AU$": "AUD", "A$": "AUD", "NZ$": "NZD",
    "HK$": "HKD", "NT$": "TWD", "S$": "SGD", "MX$": "MXN", "CLP$": "CLP", "Ft": "HUF", "RM": "MYR", "Rp": "IDR",
    "Br": "BYN", "CN¥": "CNY", "JP¥": "JPY", "EURO": "EUR", "Euro": "EUR", "euro": "EUR", "SFr": "CHF", "Fr.": "CHF",
    "лв": "BGN", "원": "KRW", "RD$": "DOP", "VNĐ": "VND", "TL": "TRY",
}  # fmt: skip
_DOLLARS = frozenset(
    "USD CAD AUD NZD SGD HKD TWD MXN ARS CLP COP UYU BBD BMD BND BSD BZD DOP FJD GYD JMD KYD LRD NAD SBD SRD TTD XCD"
    " CUP CVE NIO MOP TOP WST XCG".split()
)
_SHARED_SIGNS = {
    "$": _DOLLARS,
    "kr": frozenset(("SEK", "NOK", "DKK", "ISK")),
    "Kr": frozenset(("SEK", "NOK", "DKK", "ISK")),
    "¥": frozenset(("JPY", "CNY")),
    "￥": frozenset(("JPY", "CNY")),
    "元": frozenset(("CNY", "TWD", "HKD")),
    "lei": frozenset(("RON", "MDL")),
    "Lei": frozenset(("RON", "MDL")),
    "Rs": frozenset(("INR", "PKR", "LKR", "NPR", "MUR", "SCR")),
    "₨": frozenset(("INR", "PKR", "LKR", "NPR", "MUR", "SCR")),
}
WITHOUT_DECIMALS = frozenset("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split())
"""ISO 4217 currencies with no minor unit: `1.299` of them can only be 1299."""
COMMON = tuple("EUR USD GBP JPY CNY CHF CAD AUD SEK NOK DKK PLN CZK HUF RON BRL MXN INR KRW TRY".split())
"""What a code that is none was most probably meant to be, in this order."""
# Codes that are also words in capitals: alone in a text they prove nothing.
_WORDS = frozenset("ALL BAM COP CUP GEL LAK MOP PEN RON SOS TOP TRY".split())
_WORD_AT_NUMBER = re.compile(
    rf"[0-9][\s|]?({'|'.join(sorted(_WORDS))})(?!\w)|(?<!\w)({'|'.join(sorted(_WORDS - {'ALL', 'TOP'}))})[\s|]?[0-9]"
)

_CODE_AT_NUMBER = re.compile(r"[0-9][\s|]?([A-Z]{3})(?!\w)|(?<!\w)([A-Z]{3})[\s|]?[0-9]")


@cache
def live_codes() -> frozenset[str]:
    """The ISO 4217 codes that are legal tender somewhere today: no dead ones, no funds, metals or `XXX`."""
    tenders = get_global("territory_currencies")
    return frozenset(
        code for history in tenders.values() for code, _, until, tender in history if tender and until is None
    )


@cache
def dead_codes() -> frozenset[str]:
    """The codes that were legal tender once and are not any more: an amount of them is an amount of nothing."""
    tenders = get_global("territory_currencies")
    return (
        frozenset(code for history in tenders.values() for code, _, until, tender in history if tender and until)
        - live_codes()
    )


@cache
def _pattern() -> re.Pattern[str]:
    # A sign made of letters must not be a part of a word, one made of symbols may touch anything.
    signs = sorted({*_SIGNS, *_SHARED_SIGNS}, key=len, reverse=True)
    parts = [
        (r"(?<![^\W\d_])" if sign[0].isalpha() else "")
        + re.escape(sign)
        # In scripts without spaces the next word touches: "1980円税込".
        + (r"(?![^\W\d_])" if sign[-1].isalpha() and sign not in "円元원" else "")
        for sign in signs
    ]
    return re.compile("|".join([r"(?<![^\W\d_])[A-Z]{3}(?![^\W\d_])\$?", *parts]))


def signs_in(text: str) -> list[frozenset[str]]:
    """For each currency sign or code in the text, the currencies it may stand for.

    >>> [sorted(found) for found in signs_in("USD 12.99 or 11 €")]
    [['USD'], ['EUR']]
    >>> sorted(signs_in("12 kr")[0])
    ['DKK', 'ISK', 'NOK', 'SEK']
    """
    found: list[frozenset[str]] = []
    for sign in _pattern().findall(text):
        bare = sign.rstrip("$") if len(sign) == 4 else sign
        if bare in live_codes():
            if bare not in _WORDS:
                found.append(frozenset((bare,)))
        elif sign in _SIGNS:
            found.append(frozenset((_SIGNS[sign],)))
        elif sign in _SHARED_SIGNS:
            found.append(_SHARED_SIGNS[sign])
    return found


def codes_at_numbers(text: str) -> list[str]:
    """The codes among the words that stand right at a number: enough to contradict a declared currency.

    >>> codes_at_numbers("199 RON"), codes_at_numbers("ALL for 12"), codes_at_numbers("TOP 19,99")
    (['RON'], [], [])
    """
    return [after or before for after, before in _WORD_AT_NUMBER.findall(text)]


def dead_codes_at_numbers(text: str) -> list[str]:
    """The dead codes that stand right at a number.

    >>> dead_codes_at_numbers("100,50 HRK"), dead_codes_at_numbers("HRK, 100 EUR")
    (['HRK'], [])
    """
    return [code for pair in _CODE_AT_NUMBER.findall(text) for code in pair if code in dead_codes()]


def currency_code(text: str) -> str | None:
    """The currency that a data field names, by code or by a sign that only one currency has; else None.

    >>> currency_code(" eur "), currency_code("€"), currency_code("$"), currency_code("XXX"), currency_code("HRK")
    ('EUR', 'EUR', None, None, None)
    """
    code = text.strip()
    if code.upper() in live_codes():
        return code.upper()
    if code.upper() == "RUR":
        # Dead since 1998, and what many shops still write for the rouble.
        return "RUB"
    known = _SIGNS.get(code)
    return known if known in live_codes() else None
