"""Rows of the things for sale that a page's data describe: those of the one that the page is about, or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

from scrape_assets.rules.document import Document
from scrape_assets.rules.money import Refusal
from scrape_assets.rules.offers import first_text, rows_of
from scrape_assets.rules.row import Row
from scrape_assets.rules.spec import ExtractRule
from scrape_assets.rules.structured import Candidate
from scrape_assets.rules.subject import is_variant_at, of_this_page, own_addresses, rivals, same_thing


def described(
    found: list[Candidate], document: Document, requested_url: str, rule: ExtractRule, unpriced: list[Candidate]
) -> list[Row] | Refusal | None:
    """The rows of the candidate that the page is about; None when there is no candidate.

    `unpriced` are the page's own products in stronger kinds of data, to which those that name no price are added:
    a price found elsewhere on the page must be theirs.
    """
    if not found:
        return None
    meant = of_this_page(found, document, requested_url)
    if not meant:
        return _ambiguous_product(found)
    chosen = [one for one in meant if _sells(one)]
    if not chosen:
        # What is meant may be said in two places, the price in the one that does not name the address.
        chosen = [one for one in found if _sells(one) and any(same_thing(one, other) for other in meant)]
    if not chosen:
        unpriced += meant
        return Refusal(f"price missing: {meant[0].source} has no offers")
    for other in [*unpriced, *rivals(meant, chosen, document, requested_url)]:
        if not any(same_thing(other, one) for one in chosen):
            return _ambiguous_product([other, *chosen])
    outcomes = [rows_of(one, document, rule.page) for one in chosen]
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            unpriced += chosen
            return outcome if len(chosen) == 1 else _ambiguous_product(chosen)
    rows = [row for outcome in outcomes if isinstance(outcome, list) for row in outcome]
    return _one_thing(chosen, rows, rule, unpriced, lambda: own_addresses(document, requested_url))


def _one_thing(
    chosen: list[Candidate],
    rows: list[Row],
    rule: ExtractRule,
    unpriced: list[Candidate],
    here: Callable[[], set[str]],
) -> list[Row] | Refusal:
    """The rows of the chosen candidates, where those say the same of one thing."""
    if not rows:
        unpriced += chosen
        return Refusal(f"price missing: {chosen[0].source} has offers that say nothing")
    if len(chosen) > 1 and len({_shown(row, ("name", "price", "currency")) for row in rows}) > 1:
        return _ambiguous_product(chosen)
    return _told_apart(rows, rule.key, here)


def _ambiguous_product(chosen: list[Candidate]) -> Refusal:
    names = ", ".join(repr((first_text(one.node.get("name")) or "?")[:40]) for one in chosen[:3])
    return Refusal(f"ambiguous product: {len(chosen)} on the page and none alone matches its address ({names})", True)


def _sells(one: Candidate) -> bool:
    return bool(one.node.get("offers") or one.node.get("hasVariant"))


def _shown(row: Row, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(row.values.get(name, "")) for name in names)


def _told_apart(rows: list[Row], key: tuple[str, ...], here: Callable[[], set[str]]) -> list[Row] | Refusal:
    """Several rows only where the key tells them apart; one that is at this address or speaks for all."""
    if len(rows) == 1:
        return rows
    shown = [_shown(row, key) for row in rows]
    if key and all(all(parts) for parts in shown) and len(set(shown)) == len(rows):
        return rows
    prices = {_shown(row, ("price", "currency")) for row in rows}
    if len(prices) > 1:
        addresses = here()
        at_this_address = [row for row in rows if is_variant_at(str(row.values.get("url", "")), addresses)]
        if len(at_this_address) == 1:
            return at_this_address
        several = ", ".join(sorted(" ".join(price) for price in prices)[:4])
        reason = f"ambiguous price: {len(rows)} offers ({several}) that the key {list(key)} does not tell apart"
        return Refusal(reason, True, tuple(Decimal(price) for price, _ in sorted(prices) if price))
    first = rows[0]
    values = {name: value for name, value in first.values.items() if all(row.values.get(name) == value for row in rows)}
    stock = {row.values.get("availability") for row in rows}
    if len(stock) > 1 and "in_stock" in stock:
        values["availability"] = "in_stock"
    sources = {name: first.sources.get(name, "any of the offers") for name in values}
    return [Row(values, sources)]
