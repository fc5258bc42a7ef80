"""Rows of a page: from its own data, from declared fields, from a page object; or the reason why not."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from scrape_assets.rules import fields
from scrape_assets.rules.document import Document, decode
from scrape_assets.rules.extract import PageObject, extract
from scrape_assets.rules.page_object import PageView
from scrape_assets.rules.row import Failed, Row
from scrape_assets.rules.spec import ExtractRule, FieldRule, PageRule
from scrape_assets.rules.states import FailureClass

URL = "https://shop.test/p/cup-8812"


def run(
    body: str,
    page: PageRule | None = None,
    *,
    key: tuple[str, ...] = (),
    schema: str = "product_offer",
    by: PageObject | None = None,
) -> tuple[Row, ...] | Failed:
    rule = ExtractRule(retailer="shop", page=page or PageRule(), key=key, schema_name=schema)
    return extract(Document(decode(body.encode(), "text/html; charset=utf-8"), URL), URL, rule, by)


def ld(*nodes: dict[str, Any]) -> str:
    return "".join(f'<script type="application/ld+json">{json.dumps(node)}</script>' for node in nodes)


def product(**changes: Any) -> dict[str, Any]:
    return {
        "@type": "Product",
        "name": "Cup",
        "sku": "8812",
        "offers": {
            "@type": "Offer",
            "price": "4.50",
            "priceCurrency": "EUR",
            "availability": "http://schema.org/InStock",
        },
        **changes,
    }


def offer(price: Any, **more: Any) -> dict[str, Any]:
    return {"@type": "Offer", "price": price, "priceCurrency": "EUR", **more}


def rows(result: tuple[Row, ...] | Failed) -> list[dict[str, Any]]:
    assert isinstance(result, tuple), result
    return [row.values for row in result]


def reason(result: tuple[Row, ...] | Failed) -> str:
    assert isinstance(result, Failed), result
    return result.reason


def test_json_ld_gives_an_offer_with_the_source_of_each_value() -> None:
    result = run(ld(product(gtin13="4006381333931", brand={"name": "Pottery &amp; Co"}, image=["/a.jpg"])))
    assert rows(result) == [
        {
            "availability": "in_stock",
            "price": "4.5",
            "currency": "EUR",
            "name": "Cup",
            "sku": "8812",
            "gtin": "4006381333931",
            "brand": "Pottery & Co",
            "url": URL,
            "image_url": "https://shop.test/a.jpg",
        }
    ]
    assert isinstance(result, tuple)
    assert result[0].sources["price"] == "json-ld Product.offers.price"
    assert result[0].sources["url"] == "page address"


@pytest.mark.parametrize("number", ["0000000000000", "4006381333932", "12", "abc"])
def test_a_wrong_gtin_is_left_out(number: str) -> None:
    assert "gtin" not in rows(run(ld(product(gtin13=number))))[0]


# BC052
def test_the_main_product_is_the_one_whose_address_or_number_is_the_pages() -> None:
    other = product(name="Advert", sku="1111", offers=offer("1.00"))
    by_url = product(url="/p/cup-8812/", sku="", offers=offer("2.00"))
    assert rows(run(ld(other, by_url)))[0]["price"] == "2"
    assert rows(run(ld(other, product())))[0]["price"] == "4.5"


# BC052
def test_several_products_without_a_match_are_refused() -> None:
    first, second = product(sku="a", offers=offer("1")), product(sku="b", name="Saucer", offers=offer("2"))
    assert reason(run(ld(first, second))).startswith("ambiguous product: 2 on the page")


# BC052
@pytest.mark.parametrize("by", [{"url": URL, "sku": "none"}, {"sku": "8812"}, {"url": "", "@id": URL}])
def test_the_product_of_the_page_is_found_behind_a_list_of_others_and_a_carousel(by: dict[str, str]) -> None:
    others = [
        {
            "@type": "ListItem",
            "item": product(name=f"Other {n}", sku=f"x{n}", url=f"/p/other-{n}", offers=offer("1.00")),
        }
        for n in range(6)
    ]
    crumbs = {"@type": "BreadcrumbList", "itemListElement": [{"@type": "ListItem", "item": "/shop"}]}
    graph = [crumbs, {"@type": "ItemList", "itemListElement": others}, {**product(), **by}]
    carousel = "<aside><a href=/p/other-1>Other 1</a> <b class=price>1,00 €</b></aside>"
    body = carousel + ld({"@context": "https://schema.org", "@graph": graph}) + "<h1>Cup</h1><b class=price>4,50 €</b>"
    assert [(row["name"], row["price"]) for row in rows(run(body))] == [("Cup", "4.5")]
    # The same products without the one of this page: none of them is taken for it.
    assert isinstance(run(carousel + ld(*(other["item"] for other in others))), Failed)


def test_several_products_that_all_claim_the_address_are_refused() -> None:
    first, second = product(url=URL, sku="a"), product(url=URL, sku="b", name="Saucer", offers=offer("2"))
    assert reason(run(ld(first, second))).startswith("ambiguous product: 2 on the page")


SOLD_OUT = {"@type": "Product", "name": "Teapot", "url": URL, "sku": "1"}
LID = product(name="Lid", sku="2", url="https://shop.test/p/lid")
MICRODATA_LID = (
    '<div itemscope itemtype="http://schema.org/Product"><b itemprop="name">Lid</b><div itemprop="offers" itemscope>'
    '<meta itemprop="price" content="4.50"><meta itemprop="priceCurrency" content="EUR"></div></div>'
)


@pytest.mark.parametrize(
    "body",
    [
        ld(SOLD_OUT, LID),
        ld({**SOLD_OUT, "url": "https://shop.test/other"}, LID),
        ld(SOLD_OUT) + MICRODATA_LID,
        ld({**SOLD_OUT, "offers": {"priceCurrency": "EUR"}}) + MICRODATA_LID,
        ld({**SOLD_OUT, "offers": {"priceCurrency": "EUR"}}, LID),
    ],
)
def test_the_price_of_another_product_is_never_that_of_one_without(body: str) -> None:
    assert re.match("price missing|ambiguous product", reason(run(body)))


@pytest.mark.parametrize(
    "body",
    [
        ld(LID),
        "<title>Teapot</title><h1>Teapot</h1>" + ld(LID),
        '<script type="application/ld+json">{"@type": "Product", "name": "Teapot",,}</script>' + ld(LID),
        ld({**LID, "url": None, "offers": offer("3.00", url="https://shop.test/p/lid")}),
        MICRODATA_LID.replace(
            '<b itemprop="name">', '<link itemprop="url" href="https://shop.test/p/lid"><b itemprop="name">'
        ),
    ],
)
def test_the_only_product_of_a_page_is_not_its_own_when_it_says_so(body: str) -> None:
    assert reason(run(body)).startswith("ambiguous product: 1 on the page")


@pytest.mark.parametrize(
    "body",
    [
        "<title>Lid | Shop</title>" + ld(LID),
        "<h1>Our Lid</h1>" + ld(LID),
        ld({**LID, "sku": "8812"}),
        f'<link rel="canonical" href="{LID["url"]}">' + ld(LID),
        ld({**LID, "url": URL + "?ref=1"}),
    ],
)
def test_the_only_product_of_a_page_may_go_by_another_address_of_it(body: str) -> None:
    assert rows(run(body))[0]["price"] == "4.5"


def test_a_product_without_offers_may_have_its_price_in_a_weaker_kind_of_data() -> None:
    [row] = rows(run(ld({"@type": "Product", "name": "Lid (blue)"}) + MICRODATA_LID))
    assert (row["name"], row["price"]) == ("Lid", "4.5")


def test_an_address_on_another_node_of_the_product_does_not_hide_its_price() -> None:
    review = {"@type": "Product", "@id": URL, "name": "Cup", "aggregateRating": {"ratingValue": 4}}
    [row] = rows(run(ld(review, product(sku="7", offers=offer("4.50", url=URL + "?variant=1")))))
    assert row["price"] == "4.5"


def test_related_products_without_offers_make_no_page_ambiguous() -> None:
    related = [{"@type": "Product", "name": f"Cup {n}", "url": f"https://shop.test/p/{n}"} for n in range(3)]
    [row] = rows(run(ld(product(name="Teapot", sku="7"), *related)))
    assert row["name"] == "Teapot"


def test_a_minus_in_another_element_than_its_label_is_kept() -> None:
    schema = PageRule(fields={"change": FieldRule(type="decimal", xpath="//td"), "name": FieldRule(css="i")})
    [row] = rows(run("<i>x</i><td>\n <span>-3.5</span></td>", schema, schema="own"))
    assert row["change"] == "-3.5"


def test_a_product_without_a_name_contradicts_nothing() -> None:
    [row] = rows(run(ld({"@type": "Product", "aggregateRating": {"ratingValue": 4}}, product())))
    assert row["price"] == "4.5"


@pytest.mark.parametrize("decimal", [",", ".", None])
def test_a_number_of_the_data_has_one_reading(decimal: Any) -> None:
    rated = product(offers=offer(1.299), aggregateRating={"ratingValue": 4.333, "reviewCount": 1234})
    [row] = rows(run(ld(rated), PageRule(decimal=decimal)))
    assert (row["price"], row["rating"], row["review_count"]) == ("1.299", "4.333", 1234)


def test_raised_cents_are_never_read_as_euros() -> None:
    body = MICRODATA_LID.replace('<meta itemprop="price" content="4.50">', '<b itemprop="price">19<sup>99</sup></b>')
    assert "more than one number" in reason(run(body))
    body = body.replace("19<sup>99</sup>", "1<sup>799</sup>")
    assert "more than one number" in reason(run(body))
    field = PageRule(fields={"price": FieldRule(type="money", css="b"), "name": FieldRule(css="i")}, money="TND")
    assert "more than one number" in reason(run("<i>Cup</i><b>19<sup>500</sup> DT</b>", field))
    by_xpath = PageRule(fields={"price": FieldRule(type="money", xpath="//b"), "name": FieldRule(css="i")}, money="TND")
    assert "more than one number" in reason(run("<i>Cup</i><b>19<sup>500</sup> DT</b>", by_xpath))

    def by(page: PageView) -> dict[str, Any]:
        return {"name": "Cup", "price": page.css("b")[0]}

    assert "more than one number" in reason(run("<b>19<sup>99</sup></b>", PageRule(money="EUR"), by=by))

    def apart(page: PageView) -> dict[str, Any]:
        return {"name": "Cup", "price": page.css("b", apart=True)[0]}

    assert "more than one number" in reason(run("<b>19<sup>500</sup></b>", PageRule(money="TND"), by=apart))


def test_a_comment_divides_no_number() -> None:
    field = PageRule(fields={"price": FieldRule(type="money", css="b"), "name": FieldRule(css="i")}, money="EUR")
    [row] = rows(run("<i>Cu<!-- -->p</i><b>19<!-- -->,<!-- -->99 €</b>", field))
    assert (row["name"], row["price"]) == ("Cup", "19.99")


def test_the_same_product_said_twice_is_one_row() -> None:
    rated = {"@type": "Product", "name": "Cup", "aggregateRating": {"ratingValue": "4"}}
    assert len(rows(run(ld(product(), rated, product())))) == 1


def test_offers_give_several_rows_only_where_the_key_tells_them_apart() -> None:
    offers = [offer("1", seller={"name": "A"}), offer("2", seller={"name": "B"})]
    assert [row["seller"] for row in rows(run(ld(product(offers=offers)), key=("sku", "seller")))] == ["A", "B"]
    assert reason(run(ld(product(offers=offers)), key=("sku",))).startswith("ambiguous price: 2 offers (1 EUR, 2 EUR)")


def test_offers_of_one_price_are_one_row_without_what_differs() -> None:
    offers = [
        offer("1", seller={"name": "A"}, availability="OutOfStock"),
        offer("1", seller={"name": "B"}, availability="InStock"),
    ]
    row = rows(run(ld(product(offers=offers))))[0]
    assert (row["price"], row["availability"], "seller" in row) == ("1", "in_stock", False)


def test_a_range_of_offers_is_a_price_only_when_its_ends_meet() -> None:
    span = {"@type": "AggregateOffer", "priceCurrency": "EUR", "lowPrice": 5, "highPrice": 9, "offerCount": 1}
    assert "offers from 5 to 9" in reason(run(ld(product(offers=span))))
    assert rows(run(ld(product(offers={**span, "highPrice": 5}))))[0]["price"] == "5"
    inner = {**span, "offers": [offer("5")]}
    assert rows(run(ld(product(offers=inner))))[0]["price"] == "5"


def test_variants_of_a_group_are_rows_with_their_own_numbers() -> None:
    variants = [
        {"@type": "Product", "sku": "r1", "color": "red", "offers": offer("1")},
        {"@type": "Product", "sku": "b1", "color": "blue", "offers": offer("2")},
    ]
    group = {"@type": "ProductGroup", "name": "Cup", "hasVariant": variants}
    found = rows(run(ld(group), key=("sku",)))
    assert [(row["name"], row["sku"], row["variant"]) for row in found] == [("Cup", "r1", "red"), ("Cup", "b1", "blue")]


def test_nodes_that_refer_to_each_other_in_circles_end() -> None:
    graph = {"@graph": [product(offers={"@id": "#o"}), {"@id": "#o", "@type": "Offer", "offers": [{"@id": "#o"}]}]}
    assert isinstance(run(ld(graph)), Failed)


def test_an_offer_is_found_behind_its_id() -> None:
    graph = {"@graph": [product(offers={"@id": "#o"}), {"@id": "#o", **offer("3")}]}
    assert rows(run(ld(graph)))[0]["price"] == "3"


def test_the_list_price_is_never_the_price() -> None:
    specs = [
        {
            "@type": "UnitPriceSpecification",
            "priceType": "https://schema.org/ListPrice",
            "price": 9,
            "priceCurrency": "EUR",
        },
        {"@type": "UnitPriceSpecification", "price": 7, "priceCurrency": "EUR"},
    ]
    row = rows(run(ld(product(offers={"@type": "Offer", "priceSpecification": specs}))))[0]
    assert (row["price"], row["list_price"]) == ("7", "9")
    assert reason(run(ld(product(offers={"@type": "Offer", "priceSpecification": specs[:1]})))).startswith(
        "price missing"
    )


def test_a_sold_out_offer_needs_no_price_but_a_sold_one_does() -> None:
    gone = {"@type": "Offer", "availability": "SoldOut"}
    assert rows(run(ld(product(offers=gone))))[0]["availability"] == "out_of_stock"
    assert reason(run(ld(product(offers={**gone, "availability": "InStock"})))).startswith("price missing")


@pytest.mark.parametrize("currency", ["XXX", "$", "kr", None])
def test_a_price_without_a_sure_currency_needs_the_declared_one(currency: str | None) -> None:
    body = ld(product(offers={"@type": "Offer", "price": "5", "priceCurrency": currency}))
    assert "declare money" in reason(run(body))
    money = "SEK" if currency == "kr" else "USD"
    row = run(body, PageRule(money=money))
    assert rows(row)[0]["currency"] == money
    assert isinstance(row, tuple)
    assert row[0].sources["currency"] == "declared money"


@pytest.mark.parametrize("price", ["1.299", "10,75 € 11,95 €", "0", ["1", "2"], "from 5"])
def test_an_ambiguous_price_is_not_rescued_by_a_weaker_source(price: Any) -> None:
    graph = (
        '<meta property="product:price:amount" content="10.14"><meta property="product:price:currency" content="EUR">'
    )
    result = run(graph + ld(product(offers=offer(price))))
    assert isinstance(result, Failed)
    assert result.evidence


def test_the_declared_separator_settles_a_price_in_the_data() -> None:
    assert rows(run(ld(product(offers=offer("1.299"))), PageRule(decimal=",")))[0]["price"] == "1299"
    assert rows(run(ld(product(offers=offer("1299.00"))), PageRule(decimal=",")))[0]["price"] == "1299"


def test_microdata_and_open_graph_are_read_where_there_is_nothing_better() -> None:
    micro = (
        '<div itemscope itemtype="http://schema.org/Product"><b itemprop="name">Pot</b><div itemprop="offers" itemscope>'
        '<b itemprop="price">1 099,00 €</b></div></div>'
    )
    graph = (
        '<meta property="og:title" content="Pan"><meta property="product:price:amount" content="12.00">'
        '<meta property="product:sale_price:amount" content="9.00"><meta property="product:price:currency" content="GBP">'
    )
    assert rows(run(graph + micro)) == [{"name": "Pot", "price": "1099", "currency": "EUR", "url": URL}]
    assert rows(run(graph)) == [{"name": "Pan", "price": "9", "currency": "GBP", "list_price": "12", "url": URL}]


def test_a_page_without_data_says_what_to_do() -> None:
    result = run("<h1>Cup</h1>")
    assert isinstance(result, Failed)
    assert (result.failure_class, result.evidence) == (FailureClass.WRONG_TEMPLATE, False)
    broken = run('<script type="application/ld+json">{</script>')
    assert isinstance(broken, Failed)
    assert broken.failure_class is FailureClass.EXTRACTION
    assert "1 JSON-LD block(s)" in broken.reason


@pytest.mark.parametrize(
    ("name", "failure"), [("C\ufffdp", FailureClass.BAD_ENCODING), ("C\0p", FailureClass.UNSTORABLE)]
)
def test_a_required_text_that_cannot_be_read_or_stored_fails_the_page(name: str, failure: FailureClass) -> None:
    result = run(ld(product(name=name)))
    assert isinstance(result, Failed)
    assert result.failure_class is failure


def test_half_a_character_pair_is_unstorable() -> None:
    result = run('<script type="application/ld+json">' + json.dumps(product()).replace("Cup", "\\ud800") + "</script>")
    assert isinstance(result, Failed)
    assert result.failure_class is FailureClass.UNSTORABLE


def test_an_optional_text_that_cannot_be_read_is_left_out() -> None:
    assert "brand" not in rows(run(ld(product(brand="\ufffd"))))[0]


def test_a_huge_value_fails_the_page() -> None:
    assert "characters long" in reason(run(ld(product(name="x" * 200_000))))


FIELDS = PageRule(
    fields={
        "name": FieldRule(css="h1"),
        "price": FieldRule(css=".now", money="EUR", decimal=","),
        "list_price": FieldRule(css=".was", money="EUR", optional=True),
    }
)


def test_declared_fields_give_a_row_and_the_declared_currency() -> None:
    result = run("<h1>Cup <b>blue</b></h1><i class=now>1.299,00 €</i>", FIELDS)
    assert rows(result) == [
        {"name": "Cup blue", "price": "1299", "currency": "EUR", "url": "https://shop.test/p/cup-8812"}
    ]
    assert isinstance(result, tuple)
    assert result[0].sources == {
        "name": "css h1",
        "price": "css .now",
        "currency": "declared money",
        "url": "page address",
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("<h1>Cup</h1>", "price: css .now found nothing"),
        (
            "<h1>Cup</h1><i class=now>Was 49,99 Now 39,99</i>",
            "price: css .now found 'Was 49,99 Now 39,99': ambiguous price",
        ),
        (
            "<h1>Cup</h1><i class=now>1,00</i><i class=now>2,00</i>",
            "price: css .now found 2 elements with different numbers",
        ),
        ("<h1>Cup</h1><i class=now>12 $</i>", "price: css .now found '12 $': ambiguous price '12 $': another currency"),
        ("<h1>Cup</h1><i class=now>19<sup>99</sup> €</i>", "price: css .now found '19|99|€': ambiguous price"),
        ("<h1> </h1><i class=now>1,00</i>", "name: css h1 found nothing"),
    ],
)
def test_a_required_field_that_fails_names_its_selector_and_what_was_found(body: str, expected: str) -> None:
    assert reason(run(body, FIELDS)).startswith(expected)


def test_a_sold_out_page_needs_no_declared_price() -> None:
    page = PageRule(fields={**FIELDS.fields, "availability": FieldRule(css=".stock")})
    assert rows(run("<h1>Cup</h1><i class=stock>Out of stock</i>", page)) == [
        {"name": "Cup", "availability": "out_of_stock", "url": "https://shop.test/p/cup-8812"}
    ]
    assert isinstance(run("<h1>Cup</h1><i class=stock>In stock</i>", page), Failed)
    assert isinstance(run("<h1>Cup</h1><i class=stock>Out of stock</i><i class=now>1-2</i>", page), Failed)


def test_every_type_is_read() -> None:
    page = PageRule(
        fields={
            "n": FieldRule(css=".n", type="int"),
            "d": FieldRule(xpath="//i[@class='d']", type="decimal", decimal=","),
            "when": FieldRule(css="time", attr="datetime", type="datetime"),
            "day": FieldRule(css=".day", type="datetime", format="%d.%m.%Y"),
            "link": FieldRule(css="a", type="url"),
            "tags": FieldRule(xpath="//li", type="list"),
            "count": FieldRule(xpath="count(//li)", type="int"),
            "id": FieldRule(css="a", attr="href", match=r"p=(\d+)"),
        }
    )
    body = (
        "<i class=n>(1,234)</i><i class=d>1.299,5</i><time datetime=2026-11-20T06:00:00+01:00></time>"
        "<i class=day>20.11.2026</i><a href='?p=7'>x</a><li>a</li><li> b <script>no</script></li>"
    )
    assert rows(run(body, page, schema="other")) == [
        {
            "n": 1234,
            "d": "1299.5",
            "when": "2026-11-20T05:00:00+00:00",
            "day": "2026-11-20T00:00:00+00:00",
            "link": URL + "?p=7",
            "tags": ["a", "b"],
            "count": 2,
            "id": "7",
        }
    ]


LIST = PageRule(
    rows=".offer",
    empty=".none",
    fields={"seller": FieldRule(css="b"), "price": FieldRule(xpath=".//i", money="EUR")},
)


def test_each_row_of_a_page_is_read_in_its_own_scope() -> None:
    body = "<p class=offer><b>A</b><i>1,50</i><p class=offer><b>B</b><i>2,50</i>"
    assert [(row["seller"], row["price"]) for row in rows(run(body, LIST))] == [("A", "1.5"), ("B", "2.5")]


def test_one_failing_row_fails_the_page_and_is_named() -> None:
    body = "<p class=offer><b>A</b><i>1,50</i><p class=offer><b>B</b>"
    assert reason(run(body, LIST)).startswith("row 2 of 2: price: xpath .//i found nothing")


def test_no_rows_is_a_result_only_with_the_empty_sign() -> None:
    assert run("<p class=none>Nothing</p>", LIST) == ()
    assert reason(run("<p>Nothing</p>", LIST)).startswith("no rows: '.offer' finds nothing")


def test_a_page_object_gives_rows_through_the_same_forms() -> None:
    class Offers:
        def __init__(self, page: PageView) -> None:
            self.page = page

        def to_items(self) -> list[dict[str, Any]]:
            return [
                {
                    "name": self.page.css("h1")[0],
                    "price": self.page.xpath("//i/text()")[0],
                    "currency": "eur",
                    "rating": Decimal("4.50"),
                    "review_count": 3,
                    "source_revised_at": datetime(2026, 11, 20, tzinfo=UTC),
                    "url": "/x",
                    "brand": None,
                    "sku": self.page.json_ld()[0]["sku"],
                }
            ]

    body = "<h1>Cup</h1><i>1 099,00 €</i>" + ld({"sku": "s"})
    assert rows(run(body, PageRule(page_object="pages.py:Offers"), by=Offers)) == [
        {
            "name": "Cup",
            "price": "1099",
            "currency": "EUR",
            "rating": "4.5",
            "review_count": 3,
            "source_revised_at": "2026-11-20T00:00:00+00:00",
            "url": "https://shop.test/x",
            "sku": "s",
        }
    ]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ValueError("no\nsuch part"), "pages.py:Cup raised ValueError: no such part"),
        (None, "pages.py:Cup gave no rows"),
        ([1], "row 1: pages.py:Cup gave '1' where a dict"),
        ({"name": "Cup"}, "row 1: price: pages.py:Cup gave none"),
        (
            {"name": "Cup", "price": "1-2", "currency": "EUR"},
            "row 1: price: pages.py:Cup gave \"'1-2'\": ambiguous price",
        ),
        ({"name": {}, "price": 1, "currency": "EUR"}, "row 1: name: pages.py:Cup gave '{}': dict is none of"),
        ({"rating": float("nan"), "price": 1, "currency": "EUR"}, "row 1: rating: pages.py:Cup gave 'nan'"),
    ],
)
def test_a_page_object_that_fails_is_a_reason_of_one_line(result: Any, expected: str) -> None:
    def cup(_page: PageView) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    failed = reason(run("<h1>Cup</h1>", PageRule(page_object="pages.py:Cup"), by=cup))
    assert failed.startswith(expected)
    assert "\n" not in failed


@pytest.mark.parametrize("money", ["USD", None])
def test_a_price_in_a_dead_currency_is_not_one_of_the_declared(money: str | None) -> None:
    body = ld(product(offers={"@type": "Offer", "price": "100", "priceCurrency": "HRK"}))
    assert "no money any more" in reason(run(body, PageRule(money=money)))


def test_a_range_is_no_price_whatever_else_the_offer_states() -> None:
    spread = {"@type": "AggregateOffer", "priceCurrency": "EUR", "lowPrice": "19.99", "highPrice": "59.99"}
    assert "no single one" in reason(run(ld(product(offers={**spread, "price": "19.99"}))))
    assert "no single one" in reason(run(ld(product(offers={**spread, "lowPrice": ["10", "59.99"]}))))
    for high in ("19.90", 19.9, "19.9"):
        same = {**spread, "lowPrice": "19.90", "highPrice": high, "price": "19.90"}
        assert rows(run(ld(product(offers=same))))[0]["price"] == "19.9"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("0 in stock", "unknown"),
        ("In stock: 0", "unknown"),
        ("Available 12.05.2027", "unknown"),
        ("In stock (10 left)", "in_stock"),
        ("https://schema.org/InStock", "in_stock"),
        ("20 in stock", "in_stock"),
        ("In stock, delivered in 1-2 days", "in_stock"),
        ("Available 12.05.", "unknown"),
        ("Out of stock (0 left)", "out_of_stock"),
        ("Sold out until 12.05.2027", "out_of_stock"),
    ],
)
def test_a_stock_of_zero_and_a_day_to_come_are_no_stock(text: str, word: str) -> None:
    body = ld(product(offers=offer("5", availability=text)))
    assert rows(run(body))[0]["availability"] == word


def test_what_a_float_left_of_a_price_is_the_price() -> None:
    assert rows(run(ld(product(offers=offer(41.989999999999995)))))[0]["price"] == "41.99"


def test_a_seller_that_is_named_elsewhere_on_the_page_has_its_name() -> None:
    graph = {
        "@graph": [
            {"@type": "Organization", "@id": "https://x/#org", "name": "The Shop"},
            product(offers=offer("5", seller={"@id": "https://x/#org"}), brand={"@id": "https://x/#org"}),
        ]
    }
    assert [(row["seller"], row["brand"]) for row in rows(run(ld(graph)))] == [("The Shop", "The Shop")]


@pytest.mark.parametrize("stated", ["4.667", 4.667, "4,667"])
def test_a_rating_with_three_decimals_is_a_rating_where_that_is_sure(stated: Any) -> None:
    [row] = rows(run(ld(product(aggregateRating={"ratingValue": stated, "reviewCount": 3}))))
    assert row.get("rating") == (None if stated == "4,667" else "4.667")


def test_a_currency_on_the_page_does_not_overrule_the_one_declared_for_the_price() -> None:
    fields = {
        "name": FieldRule(css="h1"),
        "price": FieldRule(css=".p", money="EUR"),
        "currency": FieldRule(css=".c"),
    }
    body = "<h1>Cup</h1><b class=p>19.99</b><i class=c>USD</i>"
    assert "another currency" in reason(run(body, PageRule(fields=fields)))
    assert rows(run(body.replace("USD", "EUR"), PageRule(fields=fields)))[0]["currency"] == "EUR"


def test_an_amount_of_zero_is_none_and_costs_at_most_its_own_page() -> None:
    fields = {
        "name": FieldRule(css="h1"),
        "price": FieldRule(css=".p", money="EUR"),
        "list_price": FieldRule(css=".was", money="EUR", optional=True),
    }
    body = "<h1>Cup</h1><b class=p>19.99</b><s class=was>0,00</s>"
    [row] = rows(run(body, PageRule(fields=fields)))
    assert (row["price"], "list_price" in row) == ("19.99", False)
    assert "an amount of zero" in reason(run(body.replace("19.99", "0.00"), PageRule(fields=fields)))


@pytest.mark.parametrize("selector", [{"css": "h1"}, {"xpath": "//h1"}])
def test_css_and_xpath_read_the_same_text(selector: dict[str, str]) -> None:
    fields = {
        "name": FieldRule.model_validate(selector),
        "price": FieldRule(css=".p", money="EUR"),
    }
    body = "<h1><span>Acme</span><br>Drill <noscript>no</noscript></h1><b class=p>5.00</b>"
    assert rows(run(body, PageRule(fields=fields)))[0]["name"] == "Acme Drill"


def test_a_price_of_a_page_object_keeps_the_currency_that_it_states() -> None:
    def cup(_page: PageView) -> dict[str, Any]:
        return {"name": "Cup", "price": "19,99 €"}

    [row] = rows(run("<h1>Cup</h1>", PageRule(page_object="pages.py:cup"), by=cup))
    assert (row["price"], row["currency"]) == ("19.99", "EUR")


def test_where_a_field_is_looked_for_names_its_attribute() -> None:
    assert fields.shown(FieldRule(css="article", attr="data-sku")) == "css article attr data-sku"
    assert fields.shown(FieldRule(xpath="//b")) == "xpath //b"
