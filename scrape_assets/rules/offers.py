"""A thing for sale and its offers, as schema.org nodes, to `product_offer` rows. Refuses rather than guesses."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from stdnum import ean

from scrape_assets.rules.currency import WITHOUT_DECIMALS, currency_code, dead_codes, signs_in
from scrape_assets.rules.document import Document
from scrape_assets.rules.keys import plain
from scrape_assets.rules.money import Money, Refusal, not_asked, parse_money, parse_number, readings
from scrape_assets.rules.row import Row
from scrape_assets.rules.spec import PageRule
from scrape_assets.rules.structured import Candidate, Node, types

NOT_FOR_SALE = frozenset(("out_of_stock", "discontinued"))
"""The availabilities that need no price."""

_AVAILABILITY = {
    "instock": "in_stock", "instoreonly": "in_stock", "onlineonly": "in_stock", "available": "in_stock",
    "notsold": "in_stock",
    "outofstock": "out_of_stock", "soldout": "out_of_stock", "oos": "out_of_stock", "unavailable": "out_of_stock",
    "notavailable": "out_of_stock", "currentlyunavailable": "out_of_stock",
    "preorder": "preorder", "presale": "preorder", "backorder": "backorder", "availablefororder": "backorder",
    "limitedavailability": "limited", "limited": "limited", "limitedstock": "limited", "discontinued": "discontinued",
}  # fmt: skip
_CONDITION = {
    "newcondition": "new", "new": "new", "usedcondition": "used", "used": "used", "refurbishedcondition": "refurbished",
    "refurbished": "refurbished", "damagedcondition": "damaged", "damaged": "damaged",
}  # fmt: skip
_LIST_PRICES = ("listprice", "strikethroughprice", "msrp", "srp", "suggestedretailprice", "regularprice")


@dataclass(slots=True)
class _Facts:
    """Values and their sources while a row is being put together."""

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: Any, path: str) -> None:
        if value is not None and value != "" and name not in self.values:
            self.values[name] = value
            self.sources[name] = path if path.startswith(("declared", "page", "opengraph")) else f"{self.source}.{path}"


def texts(value: Any) -> list[str]:
    """The distinct texts in a value: numbers as plain text, entities resolved, of a node its name."""
    if value is None:  # most of what is asked for is not there
        return []
    found: list[str] = []
    for item in value if isinstance(value, list) else [value]:
        text = _text(item)
        if text and text not in found:
            found.append(text)
    return found


def _text(item: Any) -> str:
    if isinstance(item, dict):
        item = next((item[key] for key in ("name", "@value", "value", "url", "@id") if item.get(key)), None)
        item = item[0] if isinstance(item, list) else item
    if isinstance(item, float):
        # Beyond 2**53 digits were lost in reading: better nothing than a wrong number.
        item = plain(Decimal(repr(item))) if math.isfinite(item) and abs(item) < 2**53 else ""
    if isinstance(item, bool) or not isinstance(item, (str, int)):
        return ""
    return " ".join((html.unescape(item) if isinstance(item, str) and "&" in item else str(item)).split())


def amounts(value: Any) -> list[str | Decimal]:
    """The distinct amounts in a value: numbers of the data as they are, everything else as text."""
    found: list[str | Decimal] = []
    for item in value if isinstance(value, list) else [value]:
        text = _text(item)
        is_number = isinstance(item, (int, float)) and not isinstance(item, bool)
        if text and text not in map(str, found):
            found.append(Decimal(text) if is_number else text)
    return found


def first_text(value: Any) -> str | None:
    """The first text in a value."""
    return next(iter(texts(value)), None)


_NOUGHT_OR_DATE = re.compile(r"(?<![\w.,])0(?!\w|[.,]\d)|\d[.-]\d{1,2}[.-]")
"""A stock of zero, and a day from which there is one, are no stock."""


def availability(text: str) -> str:
    """One of the seven words of `product_offer`; `unknown` for a text that states none of them clearly.

    >>> [availability(text) for text in ("http://schema.org/InStock", "Sold out", "In stock (22 left)", "Auf Lager")]
    ['in_stock', 'out_of_stock', 'in_stock', 'unknown']
    """
    last = text.rsplit("/", 1)[-1]
    word = "".join(char for char in last.lower() if char.isalpha())
    known = _AVAILABILITY.get(word)
    if known is None:
        none = ("outofstock", "soldout", "notavailable", "currentlyunavailable", "notinstock")
        known = "out_of_stock" if word.startswith(none) else "in_stock" if word.startswith("instock") else "unknown"
    return "unknown" if known == "in_stock" and _NOUGHT_OR_DATE.search(last) else known


def gtin(text: str) -> str | None:
    """The digits of a valid GTIN-8, -12, -13 or -14 (or ISBN-13); None for anything else, zeros included."""
    digits = "".join(char for char in text if char not in " -")
    if digits.isascii() and digits.isdigit() and digits.strip("0") and len(digits) in (8, 12, 13, 14):
        return digits if ean.is_valid(digits) else None
    return None


def iso_utc(text: str) -> str | None:
    """An ISO 8601 time in UTC; without a zone it is taken as UTC. None for anything else."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def priced(text: str | Decimal, page: PageRule, currency: str | None) -> Money | Refusal:
    """The amount in machine-readable text: as it stands, else with the separator that the declaration names.

    A number of the data has one reading, whatever the separators of the page's texts are.
    """
    if isinstance(text, Decimal):
        # Beyond six decimals a number of the data is what a float left of it: 41.989999999999995.
        return parse_money(plain(round(text, 6)), decimal=".", currency=currency)
    money = parse_money(text, currency=currency)
    if isinstance(money, Refusal) and money.ambiguous and page.decimal:
        return parse_money(text, decimal=page.decimal, currency=currency)
    return money


def rows_of(candidate: Candidate, document: Document, page: PageRule) -> list[Row] | Refusal:
    """One row for each offer of the candidate, or why one of them cannot be read. Empty: it names no offer."""
    rows: list[Row] = []
    for node, offer, path in _offers(candidate):
        row = _row(candidate, node, offer, path, document=document, page=page)
        if isinstance(row, Refusal):
            return row
        if row.values not in [known.values for known in rows]:
            rows.append(row)
    return rows


def identity(candidate: Candidate, document: Document) -> Row:
    """What the candidate says of the thing itself, without an offer: name, numbers, brand, address."""
    facts = _Facts(candidate.source)
    _put_identity(facts, candidate, candidate.node, {}, "offers", document=document)
    return Row(facts.values, facts.sources)


def _offers(candidate: Candidate) -> Iterator[tuple[Node, Node, str]]:
    """Each (product or variant, offer, path of the offer). Nodes may refer in circles: each is entered once."""
    for node, prefix in _variants(candidate):
        todo = [(node.get("offers"), f"{prefix}offers")]
        entered: set[int] = set()
        while todo:
            value, path = todo.pop()
            value = candidate.resolve(value)
            if isinstance(value, list):
                todo += [(item, path) for item in reversed(value)]
            elif isinstance(value, dict) and id(value) not in entered:
                entered.add(id(value))
                if isinstance(value.get("offers"), (dict, list)) and value["offers"]:
                    todo.append((value["offers"], f"{path}.offers"))
                else:
                    yield node, value, path


def _variants(candidate: Candidate) -> Iterator[tuple[Node, str]]:
    group = candidate.node
    variants = candidate.resolve(group.get("hasVariant"))
    yield group, ""
    if group.get("offers"):
        return
    inherited = {key: value for key, value in group.items() if key not in ("hasVariant", "offers", "url", "@id", "sku")}
    for listed in variants if isinstance(variants, list) else [variants]:
        variant = candidate.resolve(listed)
        if isinstance(variant, dict):
            yield {**inherited, **variant}, "hasVariant."


def _row(
    candidate: Candidate, node: Node, offer: Node, path: str, *, document: Document, page: PageRule
) -> Row | Refusal:
    facts = _Facts(candidate.source)
    stock = first_text(offer.get("availability"))
    if stock:
        facts.put("availability", availability(stock), f"{path}.availability")
    refusal = _put_price(facts, candidate, offer, path, page)
    if refusal is not None and (refusal.ambiguous or facts.values.get("availability") not in NOT_FOR_SALE):
        return refusal
    _put_identity(facts, candidate, node, offer, path, document=document)
    rating = node.get("aggregateRating")
    rating = candidate.resolve(rating[0] if isinstance(rating, list) and rating else rating)
    if isinstance(rating, dict):
        _put_rating(facts, rating)
    image = node.get("image")
    for item in image if isinstance(image, list) else [image]:
        address = first_text((item.get("url") or item.get("contentUrl")) if isinstance(item, dict) else item)
        if address and (absolute := document.absolute(address)):
            facts.put("image_url", absolute, "image")
            break
    if revised := first_text(node.get("dateModified")):
        facts.put("source_revised_at", iso_utc(revised), "dateModified")
    return Row(facts.values, facts.sources)


def _put_identity(
    facts: _Facts, candidate: Candidate, node: Node, offer: Node, path: str, *, document: Document
) -> None:
    names = texts(node.get("name"))
    if len(names) > 1:
        # Microdata scoped over the whole page gathers other products' names as well.
        title = (document.tree.css_first("title") or document.tree.root).text()[:500] if document.tree.root else ""
        names = [name for name in names if name in " ".join(title.split())][:1]
    facts.put("name", next(iter(names), None), "name")
    for where, at in ((offer, f"{path}."), (node, "")):
        facts.put("sku", first_text(where.get("sku")), f"{at}sku")
        facts.put("mpn", first_text(where.get("mpn")), f"{at}mpn")
        for key in ("gtin13", "gtin", "gtin14", "gtin12", "gtin8", "isbn"):
            if code := first_text(where.get(key)):
                facts.put("gtin", gtin(code), f"{at}{key}")
        if condition := first_text(where.get("itemCondition")):
            word = condition.rsplit("/", 1)[-1].lower()
            facts.put("condition", _CONDITION.get(word), f"{at}itemCondition")
    _put_product_id(facts, texts(node.get("productID")))
    facts.put("brand", first_text(candidate.resolve(node.get("brand"))), "brand")
    seller = candidate.resolve(offer.get("seller") or offer.get("offeredBy"))
    facts.put("seller", first_text(seller), f"{path}.seller")
    if path.startswith("hasVariant."):
        features = [text for key in ("color", "size", "material", "pattern") for text in texts(node.get(key))[:1]]
        facts.put("variant", " / ".join(features), "hasVariant")
    for where, at in ((node, "url"), (offer, f"{path}.url")):
        if address := first_text(where.get("url")):
            facts.put("url", document.absolute(address), at)
    facts.put("url", document.url, "page address")


def _put_product_id(facts: _Facts, stated: list[str]) -> None:
    """Writes `sku:123` and `isbn:978…` by the scheme that says which number it is; without one it is the shop's own."""
    for text in stated:
        scheme, _, code = text.rpartition(":")
        facts.put("gtin", gtin(code), "productID")
        if scheme.lower() in ("", "sku"):
            facts.put("sku", code, "productID")


def _put_rating(facts: _Facts, rating: Node) -> None:
    score = _number(rating.get("ratingValue"))
    best = _number(rating.get("bestRating") or 5)
    if isinstance(score, Decimal) and isinstance(best, Decimal) and 0 < score <= best:
        # Stated out of five, whatever the site's own scale.
        scaled = score if best == 5 else (score * 5 / best).quantize(Decimal("0.01"))
        facts.put("rating", plain(scaled), "aggregateRating.ratingValue")
    for key in ("reviewCount", "ratingCount"):
        count = _number(rating.get(key), whole=True)
        if isinstance(count, Decimal) and count >= 0:
            facts.put("review_count", int(count), f"aggregateRating.{key}")


def _number(value: Any, *, whole: bool = False) -> Decimal | Refusal:
    stated = next(iter(amounts(value)), "")
    if isinstance(stated, Decimal):
        return parse_number(plain(stated), decimal=".", whole=whole)
    # A rating of 4.667 is no 4667; of a count that could be either, nothing is taken.
    return parse_number(stated, decimal=None if whole or "," in stated else ".", whole=whole)


def _put_price(facts: _Facts, candidate: Candidate, offer: Node, path: str, page: PageRule) -> Refusal | None:
    """Writes price, currency and list price; else says why there is no price that could be trusted."""
    specifications = _specifications(candidate, offer)
    price = _stated_price(candidate, offer, specifications)
    if isinstance(price, Refusal):
        return price
    text, where = price
    if isinstance(text, str) and (refused := not_asked(text)):
        return refused
    stated = [code for part in (offer, *specifications) for code in texts(part.get("priceCurrency"))]
    currency = currency_or_refusal(stated, page)
    money = currency if isinstance(currency, Refusal) else priced(text, page, currency)
    if isinstance(money, Refusal):
        return replace(money, among=readings(str(text))) if money.ambiguous else money
    money = _payable(money)
    if money.amount == 0:
        return Refusal(f"price is zero in {candidate.source}", facts.values.get("availability") not in NOT_FOR_SALE)
    if money.currency is None:
        reason = f"ambiguous price {str(text)!r}: no currency is stated; declare money"
        return Refusal(reason, True, (money.amount,), lacks_currency=True)
    facts.put("price", plain(money.amount), f"{path}.{where}")
    if any(currency_code(code) for code in stated):
        facts.put("currency", money.currency, f"{path}.priceCurrency")
    facts.put("currency", money.currency, "declared money" if currency else f"{path}.{where}")
    for spec in specifications:
        _put_other_price(facts, spec, f"{path}.priceSpecification", page, money)
    return None


def _stated_price(candidate: Candidate, offer: Node, specifications: list[Node]) -> tuple[str | Decimal, str] | Refusal:
    """The one price of the offer and the property that holds it."""
    prices, where = amounts(offer.get("price")), "price"
    low, high = first_text(offer.get("lowPrice")), first_text(offer.get("highPrice"))
    if low and high and parse_number(low) != parse_number(high):
        return _range(low, high)
    if not prices:
        plain_ones = [spec for spec in specifications if _role(spec) == "price"]
        prices, where = [text for spec in plain_ones for text in amounts(spec.get("price"))], "priceSpecification.price"
    if not prices and (lowest := amounts(offer.get("lowPrice"))):
        if len(lowest) > 1 or not (high or first_text(offer.get("offerCount")) == "1"):
            return _range(low or "", high or "more")
        prices, where = lowest[:1], "lowPrice"
    if not prices:
        return Refusal(f"price missing in {candidate.source}")
    if len(set(map(str, prices))) > 1:
        among = tuple(amount for price in prices for amount in readings(str(price)))
        reason = f"ambiguous price: {candidate.source} states {' and '.join(map(str, prices[:3]))}"
        return Refusal(reason, True, among)
    return prices[0], where


def _range(low: str, high: str) -> Refusal:
    ends = tuple(end for end in (parse_number(low), parse_number(high)) if isinstance(end, Decimal))
    # An open range has no upper end that a price on the page could be held against.
    reason = f"ambiguous price: offers from {low} to {high}, and no single one"
    return Refusal(reason, True, ends if len(ends) == 2 else (), is_range=True)


def _payable(money: Money) -> Money:
    """The amount as it is asked: four and more decimals are a reckoning of the shop's, 10.748401 is paid as 10.75.

    Currencies without decimals are left alone; three decimals may be meant.
    """
    exponent = money.amount.normalize().as_tuple().exponent
    if not isinstance(exponent, int) or exponent > -4 or money.currency in WITHOUT_DECIMALS:
        return money
    return Money(money.amount.quantize(Decimal("0.01"), ROUND_HALF_UP), money.currency)


def _put_other_price(facts: _Facts, spec: Node, path: str, page: PageRule, money: Money) -> None:
    """Writes what the specification states beside the price: a list price, or a price per unit."""
    other = priced(next(iter(amounts(spec.get("price"))), ""), page, money.currency)
    if isinstance(other, Refusal):
        return
    role = _role(spec)
    if role == "list_price" and other.amount >= money.amount:
        facts.put("list_price", plain(other.amount), f"{path}.price")
    if role == "unit_price" and other.amount:
        facts.put("unit_price", plain(other.amount), f"{path}.price")
        quantity = spec.get("referenceQuantity")
        if isinstance(quantity, dict):
            unit = [*texts(quantity.get("value"))[:1], *texts(quantity.get("unitCode") or quantity.get("unitText"))[:1]]
            facts.put("unit", " ".join(unit), f"{path}.referenceQuantity")


def currency_or_refusal(stated: list[str], page: PageRule) -> str | Refusal | None:
    """The currency that the data names, else the declared one, else None; a contradiction is refused."""
    codes = {code for text in stated if (code := currency_code(text))}
    if len(codes) > 1:
        return Refusal(f"ambiguous price: more than one currency ({', '.join(sorted(codes))})", True)
    if codes:
        return codes.pop()
    if dead := next((text for text in stated if text.strip().upper() in dead_codes()), None):
        return Refusal(f"ambiguous price: the page says {dead!r}, which is no money any more", True)
    for text in stated:
        if page.money and any(page.money not in possible for possible in signs_in(text)):
            return Refusal(f"ambiguous price: the page says {text!r}, the declaration {page.money}", True)
    return page.money


def _specifications(candidate: Candidate, offer: Node) -> list[Node]:
    value = candidate.resolve(offer.get("priceSpecification"))
    found = [candidate.resolve(item) for item in value] if isinstance(value, list) else [value]
    return [item for item in found if isinstance(item, dict)]


def _role(specification: Node) -> str:
    """What a price specification states: the price, a list price, a price per unit, or a cost that is none of these."""
    kind = (first_text(specification.get("priceType")) or "").rsplit("/", 1)[-1].lower()
    if kind in _LIST_PRICES:
        return "list_price"
    if specification.get("referenceQuantity"):
        return "unit_price"
    if kind not in ("", "saleprice") or types(specification) & {
        "DeliveryChargeSpecification",
        "PaymentChargeSpecification",
    }:
        return "other"
    return "price"
