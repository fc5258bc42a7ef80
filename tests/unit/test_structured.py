"""JSON-LD, microdata and their dirt: what can be read is read, what is broken hides nothing."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest

from scrape_assets.rules.document import Document, decode
from scrape_assets.rules.microdata import microdata
from scrape_assets.rules.structured import candidates, json_ld

PRODUCT = {"@context": "https://schema.org", "@type": "Product", "name": "Cup", "offers": {"price": "4.50"}}
TEXT = json.dumps(PRODUCT)


def document(*scripts: str, kind: str = "application/ld+json", after: str = "") -> Document:
    body = "".join(f'<script type="{kind}">{script}</script>' for script in scripts)
    return Document(decode(f"<html><body>{body}</body></html>{after}".encode(), None), "https://shop.test/p")


def names(blocks: list[Any]) -> list[str]:
    return [one.node["name"] for one in candidates(blocks, "json-ld")]


@pytest.mark.parametrize(
    "block",
    [
        TEXT + ";",
        f"<!--\n{TEXT}\n-->",
        f"//<![CDATA[\n{TEXT}\n//]]>",
        f"/*<![CDATA[*/ {TEXT} /*]]>*/",
        f"<![CDATA[{TEXT}]]>",
        html.escape(TEXT),
        "\ufeff" + TEXT,
        f"[{TEXT}]",
        json.dumps({"@graph": [{"@type": "BreadcrumbList"}, PRODUCT]}),
        json.dumps({"@type": "ItemPage", "mainEntity": PRODUCT}),
        json.dumps({"@type": ["Thing", "http://schema.org/Product"], "name": "Cup", "offers": {}}),
        json.dumps({"@type": "Offer", "price": 1, "itemOffered": {"@type": "Product", "name": "Cup"}}),
    ],
)
def test_the_usual_shapes_and_dirt_give_the_product(block: str) -> None:
    assert names(json_ld(document(block)).blocks) == ["Cup"]


def test_a_line_break_inside_a_string_is_read() -> None:
    assert json_ld(document('{"name": "a\nb"}')).blocks == [{"name": "a\nb"}]


def test_a_charset_in_the_type_and_a_script_after_the_end_are_read() -> None:
    page = document(after=f'<script type="Application/ld+json; charset=utf-8">{TEXT}</script>')
    assert names(json_ld(page).blocks) == ["Cup"]


# BC050
def test_one_broken_block_is_counted_and_hides_no_other() -> None:
    read = json_ld(document('{"name": "12" screen"}', TEXT, "{"))
    assert (names(read.blocks), read.broken) == (["Cup"], 2)


# BC050
def test_three_dirty_blocks_and_a_broken_one_give_the_three() -> None:
    one, two, three = (json.dumps({**PRODUCT, "name": name}) for name in ("S", "M", "L"))
    read = json_ld(document(one + ";", f"<!-- {two} -->", html.escape(three), '{"@type": "Product", "name": "6" cup"}'))
    assert (names(read.blocks), read.broken) == (["S", "M", "L"], 1)


def test_a_commented_out_block_is_not_on_the_page() -> None:
    page = document(after=f'<!-- <script type="application/ld+json">{TEXT}</script> -->')
    assert json_ld(page).blocks == []


@pytest.mark.parametrize("block", ["[" * 200_000, "[" * 200_000 + "]" * 200_000, '{"a":' * 200_000, "9" * 10_000])
def test_a_hostile_block_is_counted_as_broken(block: str) -> None:
    read = json_ld(document(block, TEXT))
    assert names(read.blocks) == ["Cup"]
    assert read.broken <= 1


# BC052
def test_related_and_listed_products_are_no_candidates() -> None:
    block = {
        "@graph": [
            {"@type": "ItemList", "itemListElement": [{"@type": "ListItem", "item": {**PRODUCT, "name": "Other"}}]},
            {**PRODUCT, "isRelatedTo": {**PRODUCT, "name": "Related"}},
        ]
    }
    assert names([block]) == ["Cup"]


def test_another_thing_with_offers_counts_only_without_a_product() -> None:
    event = {"@type": "Event", "name": "Concert", "offers": {"price": 1}}
    assert names([event]) == ["Concert"]
    assert names([event, PRODUCT]) == ["Cup"]
    assert names([{"@type": "Organization", "name": "Shop", "offers": {}}]) == []


def microdata_of(markup: str) -> list[Any]:
    return microdata(Document(decode(markup.encode(), None), "https://shop.test/p"))


def test_microdata_gives_nested_items_and_machine_values() -> None:
    items = microdata_of(
        '<div itemscope itemtype="http://schema.org/Product"><b itemprop="name">Cup</b>'
        '<img itemprop="image" src="a.jpg"><div itemprop="offers" itemscope><meta itemprop="price" content="4.50">'
        '<link itemprop="availability" href=" http://schema.org/InStock"></div></div>'
    )
    offer = {"@type": [], "price": ["4.50"], "availability": ["http://schema.org/InStock"]}
    assert items == [
        {
            "@type": ["http://schema.org/Product"],
            "name": ["Cup"],
            "image": ["https://shop.test/a.jpg"],
            "offers": [offer],
        }
    ]


def test_microdata_follows_itemref_but_not_into_another_item() -> None:
    items = microdata_of(
        '<div itemscope itemref="more none"></div><div id="more"><i itemprop="sku">7</i>'
        '<div itemscope><i itemprop="sku">8</i></div></div>'
    )
    assert items == [{"@type": [], "sku": ["7"]}, {"@type": [], "sku": ["8"]}]


def test_microdata_with_too_many_properties_is_left_alone() -> None:
    assert microdata_of("<div itemscope>" + "<i itemprop=a>x</i>" * 10_001 + "</div>") == []
