"""Rows of a page whose fields are declared: each selector's text read as its declared type, or the reason why not."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, assert_never

from parsel import Selector
from selectolax.lexbor import LexborHTMLParser, LexborNode

from scrape_assets.rules.currency import currency_code
from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.keys import plain
from scrape_assets.rules.money import APART, Money, Refusal, not_asked, parse_money, parse_number
from scrape_assets.rules.offers import NOT_FOR_SALE, availability, iso_utc, priced
from scrape_assets.rules.row import Failed, Row, checked, snippet
from scrape_assets.rules.spec import ExtractRule, FieldRule, PageRule
from scrape_assets.rules.states import FailureClass

PRODUCT_OFFER = "product_offer"
_ADDRESS_ATTRIBUTES = ("href", "src", "content")


class _Unfit(Exception):
    """A field of the row at hand has no usable value; `missing` when its selector found nothing at all."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


def declared(document: Document, rule: ExtractRule) -> tuple[Row, ...] | Failed:
    """The page's rows by its declared fields. One row that fails, fails the page: a dropped row would be lost data."""
    page = rule.page
    if page.rows is None:
        row = _row(document, None, rule)
        return (row,) if isinstance(row, Row) else row
    scopes = document.css(page.rows)
    if not scopes:
        if page.empty is not None and document.has(page.empty):
            return ()
        sign = f"nor does the empty sign {page.empty!r}" if page.empty else "and no empty sign is declared"
        return Failed(FailureClass.EXTRACTION, f"no rows: {page.rows!r} finds nothing, {sign}", evidence=False)
    rows: list[Row] = []
    for number, scope in enumerate(scopes, 1):
        row = _row(document, scope, rule)
        if isinstance(row, Failed):
            return Failed(row.failure_class, f"row {number} of {len(scopes)}: {row.reason}")
        rows.append(row)
    return tuple(rows)


def _row(document: Document, scope: LexborNode | None, rule: ExtractRule) -> Row | Failed:
    page = rule.page
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems: dict[str, _Unfit] = {}
    # The currency first: the amounts of the row are read in it.
    for name in sorted(page.fields, key=lambda name: name != "currency"):
        spec = page.fields[name]
        try:
            value = _value(document, scope, name, rule, currency=values.get("currency"))
        except _Unfit as why:
            if not spec.optional:
                problems[name] = why
            continue
        source = shown(spec)
        if isinstance(value, Money):
            if value.currency:
                if values.setdefault("currency", value.currency) != value.currency:
                    return Failed(FailureClass.EXTRACTION, f"{name}: {source} is in another currency than the row")
                sources.setdefault("currency", "declared money" if spec.money or page.money else source)
            value = plain(value.amount)
        values[name], sources[name] = value, source
    if rule.schema_name == PRODUCT_OFFER and values.get("availability") in NOT_FOR_SALE:
        # What cannot be bought needs no price; but a price that is there and unclear is still a fault.
        problems = {n: p for n, p in problems.items() if not (p.missing and n in ("price", "currency"))}
    if problems:
        reason = "; ".join(f"{name}: {shown(page.fields[name])} {problem}" for name, problem in problems.items())
        return Failed(FailureClass.EXTRACTION, reason, evidence=bool(values))
    required = [name for name, spec in page.fields.items() if not spec.optional]
    if rule.schema_name == PRODUCT_OFFER and scope is None and "url" not in page.fields:
        # As without declared fields: a row says where it is from. The rows of a listing are not of its address.
        values["url"], sources["url"] = document.url, "page address"
    return checked(Row(values, sources), [*required, *rule.key])


def shown(spec: FieldRule) -> str:
    """Where a field is looked for, as messages name it."""
    attribute = f" attr {spec.attr}" if spec.attr is not None else ""
    return (f"css {spec.css}" if spec.css is not None else f"xpath {spec.xpath}") + attribute


def _value(document: Document, scope: LexborNode | None, name: str, rule: ExtractRule, *, currency: str | None) -> Any:
    """The field's value; raises _Unfit with what was found instead."""
    spec = rule.page.fields[name]
    raw = _texts(document, scope, spec)
    if not raw:
        raise _Unfit("found nothing", missing=True)
    texts = raw
    if spec.match is not None:
        found = [re.search(spec.match, text) for text in raw]
        texts = [text for hit in found if hit and (text := (hit.group(1) if hit.re.groups else hit.group()) or "")]
        if not texts:
            raise _Unfit(f"found {snippet(raw[0])}, which {spec.match!r} does not match")
    if rule.schema_name == PRODUCT_OFFER and spec.kind == "text" and name in ("currency", "availability"):
        if name == "availability":
            return availability(texts[0])
        if code := currency_code(texts[0]):
            return code
        raise _Unfit(f"found {snippet(texts[0])}, which names no single currency in use")
    if spec.kind in ("money", "decimal", "int"):
        is_offer = rule.schema_name == PRODUCT_OFFER
        value = _only(texts, spec, rule.page, currency, asked=is_offer and name == "price")
        if is_offer and isinstance(value, Money) and not value.amount:
            raise _Unfit(f"found {snippet(texts[0])}: an amount of zero", missing=True)
        return value
    return _read(document, texts, spec)


def _only(texts: list[str], spec: FieldRule, page: PageRule, currency: str | None, *, asked: bool) -> Any:
    """The one number that all the selected texts state: two different prices are not a choice to make here."""
    found: list[Any] = []
    for text in texts:
        number: Any
        if spec.kind == "money":
            number = _money(text, spec, page, currency)
        else:
            number = parse_number(text, decimal=spec.decimal or page.decimal, whole=spec.kind == "int")
        if asked and isinstance(number, Money):
            number = not_asked(text) or number
        if isinstance(number, Refusal):
            raise _Unfit(f"found {snippet(text)}: {number.reason}")
        if number not in found:
            found.append(number)
    if len(found) > 1:
        raise _Unfit(f"found {len(texts)} elements with different numbers, {snippet(texts[0])} first")
    if isinstance(found[0], Decimal):
        return int(found[0]) if spec.kind == "int" else plain(found[0])
    return found[0]


def _money(text: str, spec: FieldRule, page: PageRule, currency: str | None) -> Money | Refusal:
    known = spec.money or currency or page.money
    # A field's own separator is a statement about its text; the page's helps only where the text is unclear.
    return parse_money(text, decimal=spec.decimal, currency=known) if spec.decimal else priced(text, page, known)


def _read(document: Document, texts: list[str], spec: FieldRule) -> Any:
    kind = spec.kind
    match kind:
        case "text":
            return texts[0]
        case "list":
            return texts
        case "url":
            if address := document.absolute(texts[0]):
                return address
            raise _Unfit(f"found {snippet(texts[0])}, which is no http address")
        case "datetime":
            moment = _moment(texts[0], spec.format)
            if moment is None:
                raise _Unfit(f"found {snippet(texts[0])}, which is no time as {spec.format or 'ISO 8601'}")
            return moment
        case "money" | "decimal" | "int":
            raise AssertionError("numbers are read by _only")
        case _:
            assert_never(kind)


def _moment(text: str, pattern: str | None) -> str | None:
    if pattern is None:
        return iso_utc(text)
    try:
        moment = datetime.strptime(text, pattern)  # noqa: DTZ007 -- the next line gives it a zone
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def _texts(document: Document, scope: LexborNode | None, spec: FieldRule) -> list[str]:
    """What the selector finds, as texts with single spaces; empty ones are nothing."""
    found = _by_css(document, scope, spec) if spec.css is not None else _by_xpath(document, scope, spec)
    return [text for text in found if text]


def _joint(spec: FieldRule) -> str:
    """What stands between the texts of two elements. A pattern of the user's is written for spaces."""
    if spec.kind not in ("money", "decimal", "int"):
        return ""
    return APART if spec.match is None else " "


def _by_css(document: Document, scope: LexborNode | None, spec: FieldRule) -> list[str]:
    nodes = document.css(spec.css or "") if scope is None else scope.css(spec.css or "")
    if spec.attr is None and spec.kind != "url":
        return [text_of(node, joint=_joint(spec)) for node in nodes]
    names = (spec.attr,) if spec.attr else _ADDRESS_ATTRIBUTES
    found: list[str] = []
    for node in nodes:
        attributes = node.attributes
        value = next((attributes[name] for name in names if attributes.get(name)), None)
        if value is None and spec.attr is None:
            value = text_of(node)
        found.append(" ".join((value or "").split()))
    return found


def _by_xpath(document: Document, scope: LexborNode | None, spec: FieldRule) -> list[str]:
    root = document.selector if scope is None else Selector(text=(scope.html or "").replace("\0", ""), type="html")
    found: list[str] = []
    for hit in root.xpath(spec.xpath or ""):
        if not hasattr(hit.root, "tag"):
            text = str(hit.root)
        elif spec.attr is not None or (spec.kind == "url" and any(name in hit.attrib for name in _ADDRESS_ATTRIBUTES)):
            names = (spec.attr,) if spec.attr else _ADDRESS_ATTRIBUTES
            text = next((hit.attrib[name] for name in names if hit.attrib.get(name)), "")
        else:
            root_of_hit = LexborHTMLParser(hit.get()).root
            text = text_of(root_of_hit, joint=_joint(spec)) if root_of_hit is not None else ""
        found.append(" ".join(text.split()))
    return found
