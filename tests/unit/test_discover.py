"""What a page names, by every way of naming it, and what looks like it and is not."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest

from scrape_assets.datasets.discovery import UrlsRule
from scrape_assets.rules import chain
from scrape_assets.rules.discover import Found, NotRead, estimate, read
from scrape_assets.rules.page import Response
from scrape_assets.rules.states import FailureClass, PageState

SITE = "https://shop.example"


def named(
    declared: dict[str, Any],
    body: bytes | str,
    *,
    at: str = "/",
    depth: int = 0,
    of_pages: int = 0,
    status: int = 200,
    **headers: str,
) -> Found | NotRead:
    rule = UrlsRule.model_validate(declared).rule(SITE)
    raw = body.encode() if isinstance(body, str) else body
    url = f"{SITE}{at}"
    return read(Response(url, url, status, headers, raw), rule, first=f"{SITE}/", depth=depth, of_pages=of_pages)


def found(*given: Any, **more: Any) -> Found:
    it = named(*given, **more)
    assert isinstance(it, Found), it
    return it


def refused(*given: Any, **more: Any) -> NotRead:
    it = named(*given, **more)
    assert isinstance(it, NotRead), it
    return it


def paths(addresses: list[str]) -> list[str]:
    assert all(address.startswith(SITE) for address in addresses), addresses
    return [address.removeprefix(SITE) for address in addresses]


URLSET = '<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{}</urlset>'
RSS = "<rss><channel><item><link>https://shop.example/p/1</link></item><item><link>/p/2</link></item></channel></rss>"
ATOM = (
    '<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://shop.example/"/>'
    '<entry><link rel="self" href="/x"/><link href="https://shop.example/p/1"/></entry>'
    '<entry><link rel="alternate" href="/p/2"/></entry></feed>'
)


@pytest.mark.parametrize(
    "body",
    [
        URLSET.format(
            "<url><loc> https://shop.example/p/1\n</loc></url><url><loc>https://shop.example/p/2</loc></url>"
        ),
        "<urlset><url><loc>https://shop.example/p/1</loc></url><url><loc>/p/2</loc><lastmod>2026</lastmod></url></urlset>",
        "\ufeff"
        + URLSET.format("<url><loc>/p/1</loc></url><url><loc>/p/2</loc><image><loc>/i.png</loc></image></url>"),
        "<urlset><url><loc>/p/1</loc></url><url><loc>/p/2</loc></url><url><loc>/p/1</loc></url></urlset><!-- 3 -->\n",
        "https://shop.example/p/1\r\nhttps://shop.example/p/2\r\n# no address\r\n",
        RSS,
        ATOM,
    ],
    ids=["plain", "bare", "bom", "twice", "text", "rss", "atom"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_sitemap_or_feed_names_its_pages_once_each(body: str, packed: bool) -> None:
    raw = gzip.compress(body.encode()) if packed else body.encode()
    it = found({"sitemap": "/sitemap.xml"}, raw)
    assert paths(it.items) == ["/p/1", "/p/2"]
    assert it.pages == []


def test_an_index_names_further_sitemaps_whatever_is_included() -> None:
    body = (
        "<sitemapindex><sitemap><loc>/s-1.xml.gz</loc></sitemap><sitemap><loc>/s-2.xml</loc></sitemap></sitemapindex>"
    )
    it = found({"sitemap": "/sitemap.xml", "include": ["/p/*"]}, body)
    assert (it.items, paths(it.pages)) == ([], ["/s-1.xml.gz", "/s-2.xml"])


def test_what_is_not_wanted_is_left_out_and_counted() -> None:
    body = "".join(
        f"<url><loc>{loc}</loc></url>"
        for loc in ("/p/1", "/p/2?x=1", "/blog/1", "https://other.example/p/3", "ftp://shop.example/p/4", "/p/old/5")
    )
    it = found({"sitemap": "/s", "include": ["/p/*"], "exclude": ["/p/old/*"]}, f"<urlset>{body}</urlset>")
    assert paths(it.items) == ["/p/1", "/p/2?x=1"]
    assert it.dropped == {"not in include": 1, "outside the site": 1, "no address of a page": 1, "in exclude": 1}


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (b"", FailureClass.EMPTY_SHELL),
        (b"<urlset></urlset>", None),
        (gzip.compress(b"<urlset><url><loc>/p/1</loc></url></urlset>")[:-9], None),
        (b"\x1f\x8bnot gzip", None),
        (
            b"<!doctype html><title>Just a moment...</title><script src=/cdn-cgi/challenge-platform/x></script>",
            FailureClass.CHALLENGE,
        ),
        (
            b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><urlset><url><loc>&b;</loc></url></urlset>',
            None,
        ),
    ],
    ids=["nothing", "empty", "cut_gzip", "no_gzip", "challenge", "entities"],
)
def test_what_is_no_sitemap_is_no_empty_shop(body: bytes, failure: FailureClass | None) -> None:
    """Case BC044, for a page that names others."""
    it = named({"sitemap": "/s"}, body)
    assert isinstance(it, NotRead) or it.items == [], it
    if isinstance(it, NotRead) and failure:
        assert it.failure_class is failure
    assert isinstance(it, NotRead)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("at", [20, 75, 100, 140])
def test_a_sitemap_that_stops_in_the_middle_is_no_sitemap(at: int, packed: bool) -> None:
    body = URLSET.format("<url><loc>/p/1</loc></url><url><loc>/p/2</loc></url>").encode()[:at]
    assert "stops in the middle" in refused({"sitemap": "/s"}, gzip.compress(body) if packed else body).reason


@pytest.mark.parametrize(
    ("fault", "kept"),
    [
        ("<url><loc>/p/2?a=1&b=2</loc></url>", ["/p/2?a=1&b=2"]),
        ("<url><loc>/p/2?a=1&amp;b=2&#38;c=3</loc></url>", ["/p/2?a=1&b=2&c=3"]),
        ("<url><loc>/p/2?a=1&nosuch;b=2</loc></url>", None),
        ("<url><loc>/p/2</loc><note>a < b</note></url>", None),
        ("<url><loc>/p/2</loc><x:y>1</x:y></url>", ["/p/2"]),
        ("<url><loc>/p/2</loc></urll>", None),
        ("<url><loc>/p/2\x01</loc></url>", None),
        ("<!-- a -- b --><url><loc>/p/2</loc></url>", None),
    ],
)
def test_a_fault_in_a_sitemap_hides_nothing_in_silence(fault: str, kept: list[str] | None) -> None:
    more = "".join(f"<url><loc>/p/{number}</loc></url>" for number in range(3, 60))
    it = found({"sitemap": "/s"}, URLSET.format("<url><loc>/p/1</loc></url>" + fault + more))
    names = paths(it.items)
    assert names[0] == "/p/1"
    if kept is not None:
        assert names[1] == kept[0]
    hidden = {f"/p/{number}" for number in range(3, 60)} - set(names)
    assert it.problem == (f"it is no sound XML, and {len(hidden)} of its addresses cannot be read" if hidden else None)


def test_a_sitemap_that_inflates_without_end_is_refused_in_little_memory() -> None:
    it = refused({"sitemap": "/s"}, gzip.compress(b" " * (70 * 2**20)))
    assert "60 MB inflated" in it.reason


LISTING = {"listing": "/c", "item": "a.product", "pages": ".pager", "page": "?page={page}", "passes": 1}
ITEM = '<a class="product" href="/p/1">1</a>'


@pytest.mark.parametrize(
    ("pager", "pages"),
    [
        ("Page 1 of 4", 4),
        ("1 / 4", 4),
        ("Seite <b>1</b> von <b>1.004</b>", 1004),
        ("page 1 sur 1 004", 1004),
        ("no number", 1),
        ("", 1),
    ],
)
def test_a_listing_has_as_many_pages_as_its_marker_says(pager: str, pages: int) -> None:
    marker = f'<p class="pager">{pager}</p>' if pager else ""
    it = found(LISTING, ITEM + marker)
    assert paths(it.items) == ["/p/1"]
    assert it.next == (f"{SITE}/?page=2" if pages > 1 else None)
    assert found(LISTING, ITEM + marker, depth=max(0, pages - 1)).next is None


def test_a_listing_goes_on_as_its_first_page_said_where_another_says_nothing() -> None:
    assert found(LISTING, ITEM, depth=2, of_pages=4).next == f"{SITE}/?page=4"
    assert found(LISTING, ITEM, depth=3, of_pages=4).next is None
    assert found(LISTING, ITEM + '<p class="pager">4 of 6</p>', depth=3, of_pages=4).next == f"{SITE}/?page=5"


def test_a_listing_that_grew_shorter_says_so() -> None:
    """A page that nobody needs any more is no failure; one that is broken says nothing."""
    gone = '<p class="pager">3 of 3</p>'
    assert found(LISTING, gone, depth=3, of_pages=4).next is None
    assert "finds no link" in refused(LISTING, gone, depth=1, of_pages=4).reason
    assert "finds no link" in refused(LISTING, "<p>oops</p>", depth=3, of_pages=4).reason


def test_a_count_that_nobody_believes_is_a_problem() -> None:
    it = found(LISTING, ITEM + '<p class="pager">99999999</p>')
    assert it.of_pages == 100_000
    assert it.problem == "it counts 99999999 pages, of which 100000 are believed"


@pytest.mark.parametrize(
    "declared", [{"sitemap": "/s"}, {"listing": "/c", "item": "a"}, {"cursor": "/c", "item": "a", "next": "b"}]
)
def test_a_list_that_is_cut_is_no_whole(declared: dict[str, Any]) -> None:
    names = range(1, 31)
    body = (
        URLSET.format("".join(f"<url><loc>/p/{number}</loc></url>" for number in names))
        if "sitemap" in declared
        else "<title>x</title>" + "".join(f'<a href="/p/{number}">x</a>' for number in names)
    )
    it = found({**declared, "per_page": 20}, body)
    assert (len(it.items), it.dropped) == (20, {"beyond per_page": 10})
    assert it.problem == "it names more than 20 addresses (urls.per_page)"
    assert found({**declared, "per_page": 30}, body).problem is None


def test_a_listed_path_may_repeat_itself() -> None:
    assert paths(found({"sitemap": "/s"}, URLSET.format("<url><loc>/p/1/1/1</loc></url>")).items) == ["/p/1/1/1"]


@pytest.mark.parametrize(
    ("page", "further"),
    [
        (None, "/c?cat=3&page=2"),
        ("?p={page}", "/c?cat=3&p=2"),
        ("?cat=4&p={page}", "/c?cat=4&p=2"),
        ("/c/{page}", "/c/2"),
        ("/c?p={page}", "/c?p=2"),
    ],
)
def test_what_the_first_page_asks_for_is_asked_for_by_the_others(page: str | None, further: str) -> None:
    declared = {"listing": "/c?cat=3", "item": "a", "pages": "p", **({"page": page} if page else {})}
    rule = UrlsRule.model_validate(declared).rule(SITE)
    first = f"{SITE}/c?cat=3"
    it = read(Response(first, first, 200, {}, b'<a href="/p/1">x</a><p>1 of 2</p>'), rule, first=first, depth=0)
    assert isinstance(it, Found)
    assert it.next == SITE + further


def test_a_listing_without_items_is_a_failure_unless_it_says_so() -> None:
    assert refused(LISTING, "<p>hello, this is a page</p>").failure_class is FailureClass.WRONG_TEMPLATE
    assert found({**LISTING, "empty": ".none"}, '<p class="none">nothing here</p>').items == []


def api(items: list[Any], **more: Any) -> str:
    return json.dumps({"data": {"products": items}, **more})


CURSOR = {"cursor": "/api", "items": "data.products", "item": "url", "next": "next", "page": "/api?after={cursor}"}


def test_an_answer_for_programs_names_its_items_and_where_it_goes_on() -> None:
    it = found(CURSOR, api([{"url": "/p/1"}, {"url": f"{SITE}/p/2"}], next="a b/c"))
    assert paths(it.items) == ["/p/1", "/p/2"]
    assert it.next == f"{SITE}/api?after=a%20b%2Fc"
    assert found(CURSOR, api([{"url": "/p/1"}], next=None)).next is None
    assert found(CURSOR, api([{"url": "/p/1"}], next=17)).next == f"{SITE}/api?after=17"
    assert found({**CURSOR, "page": None}, api([{"url": "/p/1"}], next="/api?p=2")).next == f"{SITE}/api?p=2"


def test_items_without_an_address_are_made_by_a_template() -> None:
    it = found({**CURSOR, "item": "/p/{id}-{name}"}, api([{"id": 1, "name": "a/b"}]))
    assert paths(it.items) == ["/p/1-a%2Fb"]


@pytest.mark.parametrize(
    ("body", "depth", "why"),
    [
        (api([]), 0, "empty on the first page"),
        (json.dumps({"data": {}}), 0, "nothing is a list"),
        (api([{"url": "/p/1"}, {"uri": "/p/2"}]), 0, "1 of 2 items have no address"),
        ("<p>maintenance</p>", 0, "no JSON"),
        ("[" * 200_000, 0, "no JSON"),
        ('{"data": {"products": [', 0, "no JSON"),
    ],
)
def test_an_answer_that_cannot_be_read_names_nothing(body: str, depth: int, why: str) -> None:
    assert why in refused(CURSOR, body, depth=depth).reason


@pytest.mark.parametrize("total", [0, "", None, False, []])
def test_an_answer_for_programs_says_that_its_list_is_empty(total: Any) -> None:
    assert found({**CURSOR, "empty": "total"}, api([], total=total)).items == []
    assert "empty on the first page" in refused({**CURSOR, "empty": "total"}, api([], total=3)).reason


def test_a_list_may_end_with_an_empty_page() -> None:
    assert found(CURSOR, api([]), depth=3).items == []


def test_a_list_of_web_pages_goes_on_with_its_link() -> None:
    declared = {"cursor": "/new", "item": "a.product", "next": "a[rel=next]"}
    assert found(declared, ITEM + '<a rel="next" href="?p=2">next</a>', at="/new").next == f"{SITE}/new?p=2"
    assert found(declared, ITEM, at="/new").next is None


OFFSET = {"offset": "/list", "item": "a.product", "step": 20, "page": "/list?from={offset}"}


def test_offsets_follow_each_other_while_there_is_something() -> None:
    assert found(OFFSET, ITEM, depth=0).next == f"{SITE}/list?from=20"
    assert found(OFFSET, ITEM, depth=4).next == f"{SITE}/list?from=100"
    assert found(OFFSET, "<p>nothing more on this page</p>", depth=4).next is None


LINKS = {"links": "/", "item": "a.product", "follow": "a", "depth": 3}


def test_links_are_read_as_browsers_read_them_and_junk_is_dropped() -> None:
    """Case BC064."""
    body = (
        '<base href="/shop/"><a class="product" href="p/1">x</a><a href="next">x</a><a href="\tne\nxt ">x</a>'
        '<a href="javascript:go()">x</a><a href="mailto:a@b.example">x</a><a href="#top">x</a><a href="">x</a>'
        '<a href="//other.example/x">x</a><a href="data:text/html,x">x</a>'
    )
    it = found(LINKS, body, at="/deep/page")
    assert paths(it.items) == ["/shop/p/1"]
    assert paths(it.pages) == ["/shop/p/1", "/shop/next", "/shop/"]
    assert it.dropped["no address of a page"] == 3
    assert it.dropped["outside the site"] == 1


def test_a_page_that_links_relative_to_itself_has_an_end() -> None:
    """Case BC064."""
    at = "/event/1"
    for depth in range(20):
        it = found(
            {**LINKS, "depth": 50}, '<a href="www.other.example/x">x</a><a href="more/">x</a>', at=at, depth=depth
        )
        if not it.pages:
            break
        at = it.pages[-1].removeprefix(SITE)
    assert depth < 5
    assert "a path that repeats itself 3 times" in it.dropped


def test_no_page_is_followed_beyond_the_depth_and_no_more_than_a_page_may_name() -> None:
    body = "".join(f'<a href="/c/{number}">x</a>' for number in range(30))
    at_the_end = found(LINKS, body, depth=3)
    assert (at_the_end.pages, at_the_end.dropped) == ([], {"beyond depth": 30})
    it = found({**LINKS, "per_page": 10}, body)
    assert len(it.pages) == 10
    assert it.dropped == {"beyond per_page": 20}


@pytest.mark.parametrize("declared", [LISTING, CURSOR, OFFSET, LINKS, {"sitemap": "/s"}], ids=["l", "c", "o", "k", "s"])
@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (404, FailureClass.GONE),
        (503, FailureClass.HTTP_5XX),
        (429, FailureClass.RATE_LIMITED),
        (403, FailureClass.ACCESS_REFUSED),
    ],
)
def test_a_status_is_what_it_is_for_any_page(declared: dict[str, Any], status: int, failure: FailureClass) -> None:
    assert refused(declared, "<p>sorry</p>", status=status).failure_class is failure


def test_a_challenge_with_another_2xx_is_no_list_that_ended() -> None:
    """Case BC044."""
    body = "<title>Just a moment...</title><script src=/cdn-cgi/challenge-platform/x></script>"
    it = refused(LISTING, body, status=202)
    assert (it.page_state, it.failure_class) == (PageState.CHALLENGE, FailureClass.CHALLENGE)


@pytest.mark.parametrize(
    ("given", "goes_on", "problem"),
    [
        ({"new_items": 5}, True, None),
        ({"new_items": 0}, True, None),
        ({"new_items": 0, "barren": 2}, False, "named nothing new"),
        ({"new_items": 5, "barren": 2}, True, None),
        ({"new_items": 5, "named_before_by": "/a"}, False, "cursor_cycle"),
        ({"new_items": 0, "has_next": False, "barren": 9}, False, None),
        ({"new_items": 0, "mode": "offset"}, False, None),
        ({"new_items": 1, "mode": "offset", "named_before_by": "/a"}, True, None),
    ],
)
def test_a_list_ends_goes_on_or_comes_back_to_itself(given: dict[str, Any], goes_on: bool, problem: str | None) -> None:
    """Cases BC061 and BC063."""
    usual: dict[str, Any] = {"mode": "cursor", "has_next": True, "barren": 0, "named_before_by": None, "page": "/b"}
    step = chain.step(**{**usual, **given})
    assert step.goes_on is goes_on
    assert (problem is None) == (step.problem is None)
    assert problem is None or problem in (step.problem or "")


def test_two_looks_tell_how_much_neither_saw() -> None:
    assert estimate(100, 100, 100) == 100
    assert round(estimate(900, 900, 810)) == 1000


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({}, "exactly one of"),
        ({"file": "x.csv", "sitemap": "/s"}, "exactly one of"),
        ({"listing": "/c"}, "listing needs item"),
        ({"links": "/c", "item": "a"}, "links needs follow"),
        ({"offset": "/c", "item": "a"}, "offset needs step"),
        ({"cursor": "/c", "item": "a"}, "cursor needs next"),
        ({**LISTING, "page": "?p=2"}, "expected an address with {page}"),
        ({"sitemap": "/s", "page": "?p={page}"}, "means nothing"),
        ({**LISTING, "item": "a[["}, "not a CSS selector"),
        ({"sitemap": "/s", "expect": "many"}, "range of counts"),
        ({"sitemap": "/s", "expect": "10..5"}, "begins above its end"),
    ],
)
def test_a_declaration_that_cannot_work_says_why(declared: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("{", r"\{").replace("}", r"\}")):
        UrlsRule.model_validate(declared)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (
            {"sitemap": "/s", "depth": 3},
            "depth means nothing with sitemap; it knows exclude, include, lastmod, per_page",
        ),
        ({"listing": "/c", "item": "a", "items": "x"}, "items means nothing with listing"),
        ({"listing": "/c", "item": "a", "lastmod": "trust"}, "lastmod means nothing with listing"),
        ({"links": "/", "item": "a", "follow": "a", "passes": 1}, "passes means nothing with links"),
        ({"file": "a.csv", "include": "/p/*"}, "include means nothing with file; it knows no more"),
        ({"listing": "/c", "item": "a", "empty": "a["}, "empty: 'a[' is not a CSS selector"),
    ],
)
def test_a_key_that_means_nothing_is_refused(declared: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        UrlsRule.model_validate(declared)


def test_one_pattern_needs_no_list() -> None:
    assert UrlsRule.model_validate({"sitemap": "/s", "include": "/p/*"}).include == ("/p/*",)
