"""A page's own data in all their forms, held against what the page shows: contradictions, gaps, dirt and attacks."""

from __future__ import annotations

import html
import json
import time
from decimal import Decimal
from typing import Any

import pytest

from scrape_assets.rules.agreement import is_shown
from scrape_assets.rules.document import Document, UnreadablePage, decode
from scrape_assets.rules.extract import extract
from scrape_assets.rules.money import Refusal, readings
from scrape_assets.rules.place import place_of
from scrape_assets.rules.rdfa import rdfa
from scrape_assets.rules.row import Failed, Row
from scrape_assets.rules.spec import ExtractRule, PageRule
from scrape_assets.rules.structured import candidates, json_ld

URL = "https://shop.test/p/cup-8812"


def document(body: str, url: str = URL) -> Document:
    return Document(decode(body.encode(), "text/html; charset=utf-8"), url)


def run(body: str, *, url: str = URL, page: PageRule | None = None) -> tuple[Row, ...] | Failed:
    return extract(document(body, url), url, ExtractRule(retailer="shop", page=page or PageRule()))


def row(body: str, *, url: str = URL, page: PageRule | None = None) -> Row:
    result = run(body, url=url, page=page)
    assert isinstance(result, tuple), result
    assert len(result) == 1
    return result[0]


def reason(body: str, *, url: str = URL) -> str:
    result = run(body, url=url)
    assert isinstance(result, Failed), result
    return result.reason


def ld(*nodes: Any) -> str:
    return "".join(f'<script type="application/ld+json">{json.dumps(node)}</script>' for node in nodes)


def product(**changes: Any) -> dict[str, Any]:
    return {"@type": "Product", "name": "Cup", "sku": "8812", "offers": offer("4.50"), **changes}


def offer(price: Any, **more: Any) -> dict[str, Any]:
    stock = "https://schema.org/InStock"
    return {"@type": "Offer", "price": price, "priceCurrency": "EUR", "availability": stock, **more}


def seen(price: str, more: str = "", title: str = "Cup") -> str:
    return f"<h1>{title}</h1><div class=buy><span class=price>{price}</span>{more}<button>Add to cart</button></div>"


# Dirt around JSON-LD: each of these is read; what cannot be read is counted and hides nothing else.
CUP = json.dumps(product())
DIRT = {
    "semicolon": CUP + ";",
    "html comment": f"<!-- {CUP} -->",
    "cdata": f"<![CDATA[ {CUP} ]]>",
    "cdata in comments": f"//<![CDATA[\n{CUP}\n//]]>",
    "block comments": f"/*<![CDATA[*/ {CUP} /*]]>*/",
    "escaped as html": html.escape(CUP),
    "escaped twice": html.escape(html.escape(CUP)).replace("&amp;amp;", "&amp;"),
    "comma before a brace": CUP.replace('"}}', '",},}'),
    "comma before a bracket": f"[{CUP},]",
    "a comment inside": CUP.replace('{"@type": "Product"', '{/* the product */ "@type": "Product"'),
    "a line comment inside": CUP.replace('{"@type": "Product",', '{"@type": "Product", // the product\n'),
    "an escaped apostrophe": CUP.replace('"Cup"', '"Cup", "note": "it\\\'s"'),
    "a line break in a string": CUP.replace('"Cup"', '"Cup", "note": "a\nb"'),
    "a byte-order mark": "\ufeff" + CUP,
    "two blocks in one": f'{{"@type": "WebSite"}}\n{CUP}',
    "two blocks and a comma": f'{{"@type": "WebSite"}},\n{CUP},',
    "an array of arrays": f"[[{CUP}]]",
    "a graph": f'{{"@context": "https://schema.org", "@graph": [{{"@type": "BreadcrumbList"}}, {CUP}]}}',
    "a web page's main entity": f'{{"@type": "ItemPage", "mainEntity": {CUP}}}',
    "types in a list": CUP.replace('"Product"', '["Product", "Thing"]'),
    "full type names": CUP.replace('"Product"', '"http://schema.org/Product"'),
    "offers in a list": json.dumps(product(offers=[offer("4.50")])),
    "numbers": json.dumps(product(offers=offer(4.5))),
    "a comma for a point": json.dumps(product(offers=offer("4,50"))),
    "a sign with the number": json.dumps(product(offers=offer("4,50 €"))),
    "an aggregate of one price": json.dumps(
        product(offers={**offer(None), "@type": "AggregateOffer", "lowPrice": "4.50", "highPrice": 4.5})
    ),
    "a price specification": json.dumps(
        product(offers={**offer(None), "priceSpecification": {"price": "4.50", "priceCurrency": "EUR"}})
    ),
    "the price beside the name": json.dumps(
        {"@type": "Product", "name": "Cup", "sku": "8812", "price": "4.50", "priceCurrency": "EUR"}
    ),
}


# BC050
@pytest.mark.parametrize("name", DIRT)
def test_the_product_is_read_through_the_usual_dirt(name: str) -> None:
    broken = '<script type="application/ld+json">{"@type": "Product", "name": "6" tall cup"}</script>'
    body = f'{broken}<script type="application/ld+json; charset=utf-8">{DIRT[name]}</script>'
    for page in (body, f"<html><body></body></html>{body}", body.replace("application/ld+json", "Application/LD+JSON")):
        values = row(page).values
        assert (values["name"], values["price"], values["currency"], values["sku"]) == ("Cup", "4.5", "EUR", "8812")
    assert json_ld(document(body)).broken == 1


def test_mending_touches_nothing_inside_a_string() -> None:
    name = "a, ] /* b */ // c &quot;d&quot;,}"
    block = json.dumps({"@type": "Product", "name": name})[:-1] + ",}"
    [found] = candidates(json_ld(document(f'<script type="application/ld+json">{block}</script>')).blocks, "json-ld")
    assert found.node["name"] == name


# BC050
def test_where_no_product_remains_the_page_is_a_failed_extraction() -> None:
    assert "1 JSON-LD block(s) could not be read" in reason('<script type="application/ld+json">{"a" "b"}</script>')


MICRO = (
    """<div itemscope itemtype="https://schema.org/Product"><span itemprop="name">Cup</span>{inside}</div>{outside}"""
)
OFFER = (
    '<div itemprop="offers" itemscope itemtype="https://schema.org/Offer"><meta itemprop="priceCurrency" content="EUR">'
    '<link itemprop="availability" href="https://schema.org/InStock">{price}</div>'
)


@pytest.mark.parametrize(
    "price",
    [
        '<meta itemprop="price" content="4.50">',
        '<span itemprop="price" content="4.50">4,50 €</span>',
        '<data itemprop="price" value="4.50">4,50 €</data>',
        '<span itemprop="price">4,50</span> €',
        '<span itemprop="price"><b>4</b>,<i>50</i> €</span>',
        '<link itemprop="price" href="" content="4.50">',
        '<img itemprop="price" src="p.png" content="4.50">',
        '<meta itemprop="lowPrice" content="4.50"><meta itemprop="highPrice" content="4.50">',
    ],
)
def test_microdata_prices_in_every_carrier(price: str) -> None:
    assert row(MICRO.format(inside=OFFER.format(price=price), outside="")).values["price"] == "4.5"


def test_an_offer_outside_its_product_is_the_products() -> None:
    lone = OFFER.format(price='<meta itemprop="price" content="4.50">')
    for apart in (lone, lone.replace('itemprop="offers" ', "")):
        assert row(MICRO.format(inside="", outside=apart)).values["price"] == "4.5"
    by_reference = MICRO.replace("itemscope ", 'itemscope itemref="o" ', 1).format(
        inside="", outside=lone.replace("<div", '<div id="o"', 1)
    )
    assert row(by_reference).values["price"] == "4.5"
    two = MICRO.format(inside="", outside=lone + lone.replace("4.50", "5.50"))
    assert isinstance(run(two), Failed)


RDFA = """<div vocab="https://schema.org/" typeof="Product"><h1 property="name">Cup</h1><span property="sku">8812</span>
<div property="offers" typeof="Offer"><span property="price" content="4.50">4,50 €</span><meta property="priceCurrency"
content="EUR"><link property="availability" href="https://schema.org/InStock"></div></div>"""
GOOD_RELATIONS = """<div typeof="gr:Offering" about="#o"><div property="gr:name">Cup</div><div rel="gr:hasPriceSpecification"
typeof="gr:UnitPriceSpecification"><span property="gr:hasCurrency" content="EUR"></span><span property="gr:hasCurrencyValue"
content="4.50"></span></div></div>"""


def test_rdfa_gives_the_offer_and_names_itself() -> None:
    found = row(RDFA)
    assert {name: found.values[name] for name in ("name", "price", "currency", "availability", "sku")} == {
        "name": "Cup", "price": "4.5", "currency": "EUR", "availability": "in_stock", "sku": "8812",
    }  # fmt: skip
    assert found.sources["price"] == "rdfa Product.offers.price"
    prefixed = RDFA.replace('typeof="Product"', 'typeof="schema:Product"').replace('property="', 'property="schema:')
    assert row(prefixed.replace('typeof="Offer"', 'typeof="schema:Offer"')).values["price"] == "4.5"


def test_rdfa_is_not_the_tags_of_other_vocabularies() -> None:
    tags = '<html typeof="Product"><meta property="og:title" content="Cup"><meta property="product:price" content="9">'
    assert rdfa(document(tags)) == [{"@type": ["Product"]}]
    items = rdfa(document(GOOD_RELATIONS))
    assert items[0]["priceSpecification"][0]["price"] == ["4.50"]


# What the data say against what the page shows.


def test_data_that_the_page_shows_are_believed() -> None:
    for spelled in ("4,50 €", "€4.50", "4.50", "EUR&nbsp;4,50"):
        assert row(ld(product()) + seen(spelled)).sources["price"].startswith("json-ld")
    assert row(ld(product())).values["price"] == "4.5"
    assert row(ld(product()) + "<h1>Cup</h1><p>Price on request</p>").values["price"] == "4.5"


@pytest.mark.parametrize(
    ("stated", "shown"), [("450", "4,50 €"), ("0.45", "4,50 €"), ("4500", "4,50 €"), ("5.36", "4,50 €")]
)
def test_data_that_the_page_contradicts_are_refused(stated: str, shown: str) -> None:
    assert "the page shows 4.5" in reason(ld(product(offers=offer(stated))) + seen(shown))


def test_a_list_price_in_the_data_is_not_the_price() -> None:
    markup = seen("<del>49,99 €</del> <ins>39,99 €</ins>")
    found = row(ld(product(offers=offer("49.99"))) + markup)
    assert (found.values["price"], found.values["list_price"]) == ("39.99", "49.99")
    assert found.sources["price"].startswith("page: ")
    assert row(ld(product(offers=offer("39.99"))) + markup).values["price"] == "39.99"


def test_another_products_price_contradicts_nothing() -> None:
    card = (
        '<ul><li><a href="/p/x"><img src="/x.jpg"></a><h3><a href="/p/x">X</a></h3><b class=price>9,99 €</b></li></ul>'
    )
    assert row(ld(product()) + "<h1>Cup</h1>" + card).values["price"] == "4.5"


@pytest.mark.parametrize(
    ("text", "amount", "expected"),
    [
        ("<b>1.299,00 €</b>", "1299", True),
        ("<b>1 299 €</b>", "1299", True),
        ("<b>1299.50</b>", "1299.5", True),
        ("<b>1299.505</b>", "1299.5", False),
        ("<b>11299</b>", "1299", False),
        ("<b>1299,99</b>", "1299", False),
        ('<b data-price="1299">ask</b>', "1299", False),
        ("<script>var p = 1299;</script>", "1299", False),
        ("<del>1299</del>", "1299", False),
        ("<del>1499</del> <b>1299</b>", "1299", True),
        ('<span class="old-price">1299</span>', "1299", False),
        ("4.5 kg, <b>4.50 €</b>", "4.5", True),
    ],
)
def test_an_amount_is_shown_where_a_reader_can_read_it(text: str, amount: str, expected: bool) -> None:
    assert is_shown(text, Decimal(amount)) is expected


# What the page settles of what the data left open.


def test_a_range_in_the_data_is_settled_by_one_price_within_it() -> None:
    span = {"@type": "AggregateOffer", "priceCurrency": "EUR", "lowPrice": "10", "highPrice": "20"}
    found = row(ld(product(offers=span)) + seen("12,00 €"))
    assert (found.values["price"], found.values["sku"], found.values["availability"]) == ("12", "8812", "in_stock")
    assert "offers from 10 to 20" in reason(ld(product(offers=span)) + seen("25,00 €"))
    assert "offers from 10 to 20" in reason(ld(product(offers=span)) + seen("10,00 € – 20,00 €"))
    assert "offers from 10 to 20" in reason(ld(product(offers=span)) + seen("ab 10,00 €"))


def test_two_stated_prices_are_settled_by_the_one_that_is_shown() -> None:
    both = product(offers=[offer("10"), offer("12")])
    assert row(ld(both) + seen("<del>12,00 €</del> <b>10,00 €</b>")).values["price"] == "10"
    assert "ambiguous price" in reason(ld(both) + seen("11,00 €"))


def test_a_separator_with_two_meanings_is_settled_by_the_page() -> None:
    assert row('<html lang="de">' + ld(product(offers=offer("1.299"))) + seen("1.299,00 €")).values["price"] == "1299"
    assert "declare decimal" in reason(ld(product(offers=offer("1.299"))))


def test_the_variant_at_this_address_is_the_one() -> None:
    both = product(offers=[offer("10", url=f"{URL}?variant=1"), offer("12", url=f"{URL}?variant=2")])
    assert row(ld(both), url=f"{URL}?variant=2").values["price"] == "12"
    assert "ambiguous price" in reason(ld(both))


def test_a_product_without_offers_has_the_price_that_its_page_shows() -> None:
    bare = {"@type": "Product", "name": "Cup", "sku": "8812", "brand": {"name": "Pottery"}}
    found = row('<html lang="de">' + ld(bare) + seen("4,50 €"))
    assert (found.values["price"], found.values["sku"], found.values["brand"]) == ("4.5", "8812", "Pottery")
    assert "price missing" in reason(ld({**bare, "name": "Teapot"}) + seen("4,50 €"))


def test_a_sold_out_product_needs_no_price() -> None:
    bare = {"@type": "Product", "name": "Cup", "sku": "8812"}
    found = row(ld(bare) + "<h1>Cup</h1><p class=stock>Sold out</p>")
    assert (found.values["availability"], "price" in found.values) == ("out_of_stock", False)


def test_stock_and_numbers_that_the_data_lack_come_from_the_page() -> None:
    bare = {"@type": "Product", "name": "Cup", "offers": {"price": "4.50", "priceCurrency": "EUR"}}
    found = row(ld(bare) + seen("4,50 €", "<p>Artikelnummer: C-17</p><p>EAN: 4006381333931</p>"))
    assert (found.values["availability"], found.values["sku"], found.values["gtin"]) == (
        "in_stock",
        "C-17",
        "4006381333931",
    )
    assert found.sources["sku"].startswith("page: ")
    wrong = row(ld(bare) + seen("4,50 €", "<p>EAN: 0000000000000</p><p>SKU: a or b</p>"))
    assert not {"gtin", "sku"} & set(wrong.values)


SOLD = "<h1>Cup</h1><div class=buy><span class=price>4,50 €</span>{said}<button disabled>Add to cart</button></div>"


def test_a_page_on_which_nothing_can_be_bought_is_believed_against_its_data() -> None:
    found = row(ld(product()) + SOLD.format(said="<p class=stock>Currently unavailable</p>"))
    assert found.values["availability"] == "out_of_stock"
    assert found.sources["availability"].startswith("page: ")


@pytest.mark.parametrize(
    "page",
    [
        SOLD.format(said=""),
        SOLD.format(said="<p>In stock</p><p>Sold out</p>"),
        SOLD.format(said='<ul class="sizes"><li class="size">S <i>sold out</i></li></ul>'),
        SOLD.format(said="<p>Sold out</p>").replace(" disabled", "") + "<button disabled>x</button>",
        seen("4,50 €") + '<section class="related"><p class="sold-out">Sold out</p></section>',
    ],
)
def test_less_than_that_does_not_overrule_the_data(page: str) -> None:
    assert row(ld(product()) + page).values["availability"] == "in_stock"


def test_two_labelled_numbers_are_none() -> None:
    bare = {"@type": "Product", "name": "Cup", "offers": {"price": "4.50", "priceCurrency": "EUR"}}
    assert "sku" not in row(ld(bare) + seen("4,50 €", "<p>SKU: C-17</p><p>SKU: C-18</p>")).values


def test_an_identifier_says_which_number_it_is() -> None:
    def identified(text: str) -> dict[str, Any]:
        return row(ld(product(sku=None, productID=text))).values

    assert identified("sku:C-17")["sku"] == "C-17"
    assert identified("isbn:9780552173742")["gtin"] == "9780552173742"
    assert "sku" not in identified("mpn:77")


def test_reckoned_decimals_are_paid_in_cents() -> None:
    assert row(ld(product(offers=offer("10.748401")))).values["price"] == "10.75"
    assert row(ld(product(offers=offer("10.7500")))).values["price"] == "10.75"
    assert row(ld(product(offers=offer(1.299)))).values["price"] == "1.299"


# The currency of the page's country.


@pytest.mark.parametrize(
    ("url", "lang", "price", "currency"),
    [
        ("https://shop.example.com.au/p", "", "$ 5.00", "AUD"),
        ("https://shop.example.se/p", "", "5 kr", "SEK"),
        ("https://shop.example.com/p", "da", "5 kr", "DKK"),
        ("https://shop.example.com/p", "nb-NO", "5 kr", "NOK"),
        ("https://shop.example.com/p", "ja", "¥500", "JPY"),
        ("https://shop.example.com/en-nz/p", "en", "$5.00", "NZD"),
        ("https://shop.example.com/ca-fr/p", "fr", "5,00 $", None),
        ("https://shop.example.com/p", "en", "$5.00", None),
        ("https://shop.example.io/p", "en", "$5.00", None),
        ("https://shop.example.co/p", "es", "$5.00", None),
        ("https://shop.example.com.co/p", "es", "$5.00", "COP"),
        ("https://shop.example.de/p", "en-US", "$5.00", None),
        ("https://shop.example.com/p", "en", "US$5.00", "USD"),
        ("https://shop.example.fi/p", "sv", "5 kr", None),
    ],
)
def test_a_shared_sign_is_settled_by_the_country_only(url: str, lang: str, price: str, currency: str | None) -> None:
    result = run(f'<html lang="{lang}"><body>{seen(price)}', url=url)
    assert (result[0].values["currency"] if isinstance(result, tuple) else None) == currency
    if isinstance(result, Failed):
        assert "no currency" in result.reason


def test_a_code_in_the_data_of_the_page_beats_its_country() -> None:
    body = '<script>window.shop = {"currency": "USD"}</script>' + seen("$5.00")
    found = row(body, url="https://shop.example.ca/p")
    assert (found.values["currency"], found.sources["currency"]) == ("USD", "page: currency named in its data")
    two = '<script>var a = [{"currency": "USD"}, {"currency": "CAD"}]</script>' + seen("$5.00")
    assert row(two, url="https://shop.example.ca/p").values["currency"] == "CAD"
    assert "no currency" in reason(two)
    active = '<script>Shopify.currency = {"active":"NZD","rate":"1.0"}</script>' + two
    assert row(active).values["currency"] == "NZD"


def test_a_price_in_the_data_without_currency_is_in_the_countrys() -> None:
    bare = product(offers={"price": "5", "availability": "InStock"})
    found = row(ld(bare), url="https://shop.example.pl/p/8812")
    assert (found.values["currency"], found.sources["currency"]) == ("PLN", "page: country PL")
    assert "declare money" in reason(ld(bare))
    dollars = product(offers={"price": "5", "priceCurrency": "$"})
    assert "declare money" in reason(ld(dollars), url="https://shop.example.pl/p/8812")


def test_a_sign_of_dead_money_is_no_currency() -> None:
    bare = product(offers={"price": "39,10 лв.", "availability": "InStock"})
    assert "BGN is no money any more" in reason(ld(bare), url="https://shop.example.bg/p/8812")
    assert row(ld(product(offers=offer("5", priceCurrency="RUR")))).values["currency"] == "RUB"


def test_the_country_of_a_page_is_known_by_its_address_or_language() -> None:
    assert place_of(document("<html lang='pt-br'>")).country == "BR"
    assert place_of(document("<html lang='de'>", "https://a.example.ch/")).decimal == "."
    assert place_of(document("<html lang='de'>", "https://a.example.at/")).decimal == ","
    assert place_of(document("<html lang='x y z'>")).language is None


def test_readings_of_a_text_are_what_may_settle_it() -> None:
    assert readings("3 350") == (Decimal(3350),)
    refusal = Refusal("?", True, (Decimal(5), Decimal(9)), is_range=True)
    assert [refusal.allows(Decimal(n)) for n in (4, 5, 7, 9, 10)] == [False, True, True, True, False]
    assert not Refusal("?", True).allows(Decimal(5))


# Hostile pages: bounded, whatever they hold.
BIG = 1_000_000
MENDED = 40_000
"""Repetitions that stay below the size up to which a block is mended."""
HOSTILE = {
    "deep json": '<script type="application/ld+json">' + "[" * 200_000 + "</script>",
    "deep objects": '<script type="application/ld+json">' + '{"a":' * 200_000 + "</script>",
    "an open string": '<script type="application/ld+json">{"@type": "Product", "name": "' + '\\"' * MENDED,
    "open comments": '<script type="application/ld+json">{' + "/*" * MENDED,
    "commas": '<script type="application/ld+json">[' + " ," * MENDED,
    "slashes": '<script type="application/ld+json">{' + "/" * MENDED,
    "a huge attribute": f'<h1>Cup</h1><span class="{"price " * BIG}">4,50 €</span><button>Buy now</button>',
    "a huge title": f"<h1>{'Cup ' * BIG}</h1><span class=price>4,50 €</span><button>Buy now</button>",
    "numbers without end": "<h1>Cup</h1><button>Buy now</button>" + "<b class=price>4,50 €</b>" * 60_000,
    "numbers in one element": "<h1>Cup</h1><button>Buy now</button>" + "4,50 €<br>" * 100_000,
    "nested numbers": "<h1>Cup</h1>" + "<div class=price>4,50 € " * 7_000,
    "nested buttons": "<h1>Cup</h1><b class=price>4,50 €</b>" + "<div class=btn>x" * 7_000 + "y" * BIG,
    "headings": "<h2>Cup</h2>" * 50_000 + "<b class=price>4,50 €</b>",
    "price spaces": "<h1>Cup</h1><b class=price>4" + " " * BIG + "50 €</b>",
    "words of stock": "<h1>Cup</h1>" + "<p>in stock in stock in stock</p>" * 30_000,
    "currencies": "currency " * 300_000 + seen("4,50 €"),
    "events": "view_item price " * 200_000 + seen("4,50 €") + seen("5,50 €"),
    "typeof": '<i typeof="' * 200_000,
    "scopes": "<div itemscope itemprop=offers itemtype=Product><b itemprop=price>4</b>" * 4_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_takes_bounded_time(name: str) -> None:
    started = time.monotonic()
    try:
        run(HOSTILE[name], url="https://shop.example.de/p/1")
    except UnreadablePage:
        assert name in ("nested numbers", "nested buttons", "typeof", "scopes")
    assert time.monotonic() - started < 5
