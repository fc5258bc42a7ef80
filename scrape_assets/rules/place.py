"""Where a page's shop sells, as far as the page says so: it settles a `$`, and a comma that may mean two things.

Evidence in this order, the first that there is: the currency code that the page's own scripts and tags name, when they
name one only; the country of the host (`.se`, `.co.uk`); the country in the address (`/en-ca/`); the country in the
language tag (`en-CA`). A language alone settles only what one country of that language can mean: `kr` on a Danish page.
A contradiction is no evidence. Country codes that are sold as names of something else (`.io`, `.co`) say nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal
from urllib.parse import urlsplit

from babel.core import Locale, UnknownLocaleError, get_global
from babel.numbers import get_decimal_symbol

from scrape_assets.rules.currency import live_codes
from scrape_assets.rules.document import Document

_GENERIC = frozenset(
    "ac ad ag ai am as bz cc cd cx dj eu fm gd gg gl gs im io je la ly me ms mu nu pn sc sh sr st su tk to tv vc vg"
    " ws".split()
)
"""Top-level domains of two letters that are sold everywhere, or belong to no country."""

_AT_THE_SECOND_LEVEL_ONLY = frozenset(("co", "ht"))
"""`.com.co` is Colombia; `.co` is anywhere."""

_LANGUAGES = {"sv": "SEK", "da": "DKK", "nb": "NOK", "nn": "NOK", "no": "NOK", "is": "ISK", "ja": "JPY"}
_CODE = re.compile(
    r"(?i:currency(?:_?(?:code|iso))?)[\"']?\s{0,3}(?:[:=,]|\scontent=)\s{0,3}[\"']([A-Z]{3})[\"']", re.ASCII
)
_ACTIVE = re.compile(r"Shopify\.currency\s{0,3}=\s{0,3}\{\s{0,3}\"active\"\s{0,3}:\s{0,3}\"([A-Z]{3})\"")
_PATH = re.compile(r"^/(?:([a-z]{2})[-_]([a-z]{2}))(?:/|$)", re.IGNORECASE)
_TAG = re.compile(r"^\s{0,9}([a-z]{2,3})(?:[-_][A-Za-z]{4})?(?:[-_]([A-Za-z]{2}))?\s{0,9}$", re.IGNORECASE)
_LOCAL_SIGNS = {
    "ZA": {"R": "ZAR"}, "RU": {"р": "RUB", "Р": "RUB"}, "BY": {"р": "BYN", "руб": "BYN", "б.р": "BYN"},
    "RS": {"din": "RSD", "дин": "RSD"}, "BA": {"KM": "BAM"}, "MK": {"ден": "MKD", "den": "MKD"},
    "PE": {"S/": "PEN", "S/.": "PEN"}, "BO": {"Bs": "BOB", "Bs.": "BOB"}, "GT": {"Q": "GTQ"},
    "KE": {"KSh": "KES", "Ksh": "KES"}, "AE": {"Dhs": "AED", "د.إ": "AED"},
    "SA": {"SR": "SAR", "ر.س": "SAR", "ريال": "SAR"},
    "MA": {"DH": "MAD", "Dh": "MAD", "dh": "MAD", "DHS": "MAD"}, "TN": {"DT": "TND"}, "VN": {"đ": "VND"},
    "TH": {"บาท": "THB"}, "KZ": {"тг": "KZT", "тнг": "KZT"}, "RO": {"LEI": "RON"}, "EG": {"LE": "EGP", "ج.م": "EGP"},
    "QA": {"QR": "QAR"}, "DK": {",-": "DKK"}, "NO": {",-": "NOK"}, "CZ": {",-": "CZK"}, "SE": {":-": "SEK"},
}  # fmt: skip
"""What shops of one country write beside a price, and what no reader of another country would know."""


@dataclass(frozen=True)
class Place:
    """What a page says about its country. Empty parts are not known."""

    code: str | None
    country: str | None
    language: str | None

    @cached_property
    def currency(self) -> str | None:
        """The one currency of the page where a price carries no sign at all."""
        return self.code or (_of_country(self.country) if self.country else None)

    def settle(self, possible: frozenset[str]) -> str | None:
        """Which of the currencies that a sign may stand for it is here; None when the page does not say."""
        if len(possible) == 1:
            return next(iter(possible))
        for known in (self.code, _of_country(self.country) if self.country else None):
            if known is not None:
                return known if known in possible else None
        known = _LANGUAGES.get(self.language or "")
        return known if known in possible else None

    @cached_property
    def source(self) -> str:
        """What gave the currency, as a row's sources name it."""
        if self.code:
            return "page: currency named in its data"
        return f"page: country {self.country}" if self.country else f"page: language {self.language}"

    @cached_property
    def decimal(self) -> Literal[",", "."] | None:
        """The separator that the page's language and country write before decimals."""
        return _decimal(self.language, self.country)

    @cached_property
    def signs(self) -> dict[str, str]:
        """Currency signs that only mean something in this country."""
        return _LOCAL_SIGNS.get(self.country or "", {})


def place_of(document: Document) -> Place:
    """What the page's data, address and language say about its country."""
    language, region = _language(document)
    return Place(_named(document.text), _country(document.url) or region, language)


def _named(text: str) -> str | None:
    if active := _ACTIVE.search(text):
        return active.group(1) if active.group(1) in live_codes() else None
    codes = {code for code in _CODE.findall(text) if code in live_codes()}
    return codes.pop() if len(codes) == 1 else None


def _language(document: Document) -> tuple[str | None, str | None]:
    root = document.tree.css_first("html")
    stated = root.attributes.get("lang") or root.attributes.get("xml:lang") if root is not None else None
    found = _TAG.match((stated or "")[:40])
    if found is None:
        return None, None
    return found.group(1).lower(), _territory(found.group(2))


def _country(url: str) -> str | None:
    parts = urlsplit(url)
    labels = (parts.hostname or "").split(".")
    if len(labels) > 1 and len(labels[-1]) == 2:
        last = labels[-1]
        second = len(labels) > 2 and labels[-2] in ("com", "co", "net", "org")
        if last not in _GENERIC and (last not in _AT_THE_SECOND_LEVEL_ONLY or second):
            return _territory("GB" if last == "uk" else last)
        return None
    found = _PATH.match(parts.path[:9])
    if found is None:
        return None
    # "/en-ca/" and, less often, "/ca-en/": whichever half is English, the other is the country.
    first, last = found.groups()
    return _territory(first if last.lower() == "en" else last)


def _territory(code: str | None) -> str | None:
    return code.upper() if code and code.upper() in get_global("territory_currencies") else None


@cache
def _of_country(country: str) -> str | None:
    """The country's currency, where it has exactly one."""
    history = get_global("territory_currencies").get(country, ())
    now = {code for code, _, until, tender in history if tender and until is None}
    return now.pop() if len(now) == 1 else None


@cache
def _decimal(language: str | None, country: str | None) -> Literal[",", "."] | None:
    if language is None:
        return None
    for tag in ([f"{language}_{country}"] if country else []) + [language]:
        try:
            symbol = get_decimal_symbol(Locale.parse(tag))
        except (ValueError, UnknownLocaleError):
            continue
        return "," if symbol == "," else "." if symbol == "." else None
    return None
