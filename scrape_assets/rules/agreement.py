"""Whether the price in a page's data is the one that its readers see: a page that contradicts itself is not believed.

The cheap question comes first and answers for nearly all pages: is the amount written anywhere in the page's text, and
not only struck through? Only where it is not is the visible page read.
"""

from __future__ import annotations

import re
from decimal import Decimal

from scrape_assets.rules.document import Document
from scrape_assets.rules.keys import plain
from scrape_assets.rules.money import Refusal
from scrape_assets.rules.row import Row
from scrape_assets.rules.visible import Visible
from scrape_assets.rules.visible_price import VisiblePrice

MAX_HITS = 20
STRUCK_WITHIN = 250
"""Characters of markup before an amount in which a struck-through element may begin."""

_GROUPS = (
    "",
    ",",
    ".",
    " ",
    "\N{NO-BREAK SPACE}",
    "\N{NARROW NO-BREAK SPACE}",
    "&nbsp;",
    "'",
    "\N{RIGHT SINGLE QUOTATION MARK}",
)
_MARKS = (
    "<del", "<s>", "<s ", "<strike", "line-through", "old", "was", "regular", "list", "rrp", "uvp", "compare", "strike",
    "cross", "original", "before",
)  # fmt: skip
_STRUCK = re.compile(
    r"<(?:del|s|strike)[\s>]|line-through|(?:old|was|regular|list|rrp|uvp|compare|strike|cross|original|before)"
    r"[\w-]{0,20}[\"'\s]"
)
_UNSTRUCK = re.compile(r"</(?:del|s|strike)>")


def agreed(row: Row, document: Document, visible: Visible) -> Row | Refusal:
    """The row where the page does not contradict its price.

    Where the data state what the page shows struck through, the page's lower price is taken and theirs becomes the
    list price. Any other contradiction is refused when the page's own price is beyond doubt; where it is not, the
    data are believed.
    """
    stated = row.values.get("price")
    if stated is None or is_shown(document.text, amount := Decimal(stated)):
        return row
    visible.known_name = str(row.values.get("name") or "")
    seen = visible.price
    if not isinstance(seen, VisiblePrice) or not visible.is_product or seen.money.amount == amount:
        return row
    if seen.money.currency != row.values.get("currency"):
        return row
    shown = seen.money.amount
    if seen.list_price == amount and shown < amount:
        values = {**row.values, "price": plain(shown), "list_price": plain(amount)}
        return Row(values, {**row.sources, "price": seen.source, "list_price": row.sources["price"]})
    if seen.is_marked or _is_power_of_ten(amount / shown):
        reason = f"ambiguous price: {row.sources['price']} says {plain(amount)}, the page shows {plain(shown)}"
        return Refusal(reason, True)
    return row


def _is_power_of_ten(ratio: Decimal) -> bool:
    return ratio.normalize().as_tuple().digits == (1,)


def is_shown(text: str, amount: Decimal) -> bool:
    """Whether the amount stands in the text between tags, in any usual spelling, and not only struck through."""
    whole, _, fraction = plain(amount).partition(".")
    endings = (f".{fraction.ljust(2, '0')}", f",{fraction.ljust(2, '0')}") if fraction else (",00", ".00", "")
    short = (f".{fraction}", f",{fraction}") if len(fraction) == 1 else ()
    for group in _GROUPS if len(whole) > 3 else ("",):
        digits = f"{int(whole):,}".replace(",", group)
        if any(_stands(text, digits + ending) for ending in (*endings, *short)):
            return True
    return False


def _stands(text: str, spelled: str) -> bool:
    at = text.find(spelled)
    for _ in range(MAX_HITS):
        if at < 0:
            return False
        end = at + len(spelled)
        if _is_whole(text, at, end) and _is_read(text, at):
            return True
        at = text.find(spelled, end)
    return False


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether the number ends where the spelling does; cents of nothing may follow."""
    before, after = text[max(start - 2, 0) : start], text[end : end + 4]
    if before[-1:].isdigit() or (before[-1:] in (".", ",") and before[:-1].isdigit()):
        return False
    return re.match(r"\d|[.,](?!00?(?!\d))\d", after) is None


def _is_read(text: str, at: int) -> bool:
    """Whether the place is text for readers: not in a tag, a script or a comment, and not struck through."""
    opened = text.rfind("<", 0, at)
    if opened < 0:
        return True
    if text.rfind(">", opened, at) < 0 or text[opened : opened + 7].lower() in ("<script", "<style>", "<title>"):
        return False
    around = text[max(at - STRUCK_WITHIN, 0) : at].lower()
    if not any(mark in around for mark in _MARKS):
        return True
    struck = [hit.start() for hit in _STRUCK.finditer(around)]
    return not struck or _UNSTRUCK.search(around, struck[-1]) is not None
