"""OpenGraph's `product:price:*` meta tags: one row, where a page has nothing better."""

from __future__ import annotations

from scrape_assets.rules.document import Document
from scrape_assets.rules.keys import plain
from scrape_assets.rules.money import Money, Refusal
from scrape_assets.rules.offers import NOT_FOR_SALE, availability, currency_or_refusal, first_text, gtin, priced
from scrape_assets.rules.row import Row
from scrape_assets.rules.spec import PageRule

_PRICES = ("product:sale_price", "product:price", "og:price")


def from_open_graph(document: Document, page: PageRule) -> list[Row] | Refusal | None:
    """One row from the page's price tags; None when it has none."""
    tags = _tags(document)
    prefix = next((name for name in _PRICES if f"{name}:amount" in tags), None)
    if prefix is None:
        return None
    stock = first_text(tags.get("product:availability") or tags.get("og:availability"))
    found: dict[str, tuple[str | None, str]] = {
        "availability": (availability(stock) if stock else None, "opengraph product:availability")
    }
    stated = tags.get(f"{prefix}:currency") or tags.get("product:price:currency") or []
    money = _money(tags[f"{prefix}:amount"], stated, page)
    if isinstance(money, Refusal):
        return money
    if money.amount:
        found["price"] = (plain(money.amount), f"opengraph {prefix}:amount")
        found["currency"] = (money.currency, f"opengraph {prefix}:currency" if stated else "declared money")
    elif found["availability"][0] not in NOT_FOR_SALE:
        return Refusal(f"price is zero in {prefix}:amount", True)
    if prefix == "product:sale_price":
        regular = _money(tags.get("product:price:amount", []), stated, page)
        if isinstance(regular, Money) and regular.amount >= money.amount:
            found["list_price"] = (plain(regular.amount), "opengraph product:price:amount")
    for name, tag in (("name", "og:title"), ("brand", "product:brand"), ("sku", "product:retailer_item_id")):
        found[name] = (first_text(tags.get(tag)), f"opengraph {tag}")
    found["gtin"] = (gtin(first_text(tags.get("product:ean")) or ""), "opengraph product:ean")
    for name, tag in (("url", "og:url"), ("image_url", "og:image")):
        address = first_text(tags.get(tag))
        found[name] = (document.absolute(address) if address else None, f"opengraph {tag}")
    if found["url"][0] is None:
        found["url"] = (document.url, "page address")
    return [
        Row(
            {name: value for name, (value, _) in found.items() if value},
            {name: source for name, (value, source) in found.items() if value},
        )
    ]


def _money(amounts: list[str], stated: list[str], page: PageRule) -> Money | Refusal:
    if len(amounts) != 1:
        return Refusal(f"ambiguous price: OpenGraph states {' and '.join(amounts[:3]) or 'none'}", True)
    currency = currency_or_refusal(stated, page)
    money = currency if isinstance(currency, Refusal) else priced(amounts[0], page, currency)
    if isinstance(money, Money) and money.amount and money.currency is None:
        reason = f"ambiguous price {amounts[0]!r}: no currency is stated; declare money"
        return Refusal(reason, True, (money.amount,), lacks_currency=True)
    return money


def _tags(document: Document) -> dict[str, list[str]]:
    """The page's `og:` and `product:` meta tags, each with its distinct values in order."""
    found: dict[str, list[str]] = {}
    if ":price" not in document.text and ":sale_price" not in document.text:
        return found
    for meta in document.css("meta[content]"):
        attributes = meta.attributes
        name = attributes.get("property") or attributes.get("name") or ""
        value = (attributes.get("content") or "").strip()
        if value and name.startswith(("og:", "product:")) and value not in found.setdefault(name, []):
            found[name].append(value)
    return found
