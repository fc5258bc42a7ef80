"""One judgement per page: challenge before status, status before content, declared signs before general ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from scrape_assets.rules.judge import Judged, judge
from scrape_assets.rules.page import Response
from scrape_assets.rules.page_object import PageView
from scrape_assets.rules.spec import ExtractRule, FieldRule, PageRule
from scrape_assets.rules.states import FailureClass, PageState

URL = "https://shop.test/p/1"
PRODUCT = (
    '<script type="application/ld+json">'
    + json.dumps({"@type": "Product", "name": "Cup", "offers": {"price": "19.99", "priceCurrency": "EUR"}})
    + "</script>"
)
CHALLENGE = "<title>Just a moment...</title><script>window._cf_chl_opt={}</script>"


def judged(
    body: str | bytes,
    page: PageRule | None = None,
    *,
    status: int = 200,
    final: str = URL,
    content_type: str = "text/html",
) -> Judged:
    raw = body.encode() if isinstance(body, str) else body
    redirects = () if final == URL else (URL,)
    response = Response(URL, final, status, {"content-type": content_type}, raw, redirects)
    return judge(response, ExtractRule(retailer="shop", page=page or PageRule()))


def test_a_page_that_gives_its_rows_is_expected() -> None:
    result = judged(PRODUCT)
    assert (result.page_state, result.failure_class) == (PageState.EXPECTED, None)
    assert result.rows[0].values["price"] == "19.99"


# BC046
def test_block_markers_on_a_product_page_do_not_count() -> None:
    page = PRODUCT + (
        "<title>Just a moment cup</title><form><div class=g-recaptcha></div><script src=recaptcha/api.js></script></form>"
        "<div>We use cookies <button>Accept all</button></div><p>Just a moment, are you a robot?</p>"
    )
    result = judged(page)
    assert result.page_state is PageState.EXPECTED
    assert [row.values["price"] for row in result.rows] == ["19.99"]


@pytest.mark.parametrize("status", [200, 202, 401, 403, 429, 503])
def test_a_challenge_beats_the_status(status: int) -> None:
    result = judged(CHALLENGE, status=status)
    assert (result.page_state, result.failure_class) == (PageState.CHALLENGE, FailureClass.CHALLENGE)


def test_otherwise_the_status_decides_whatever_the_body_says() -> None:
    assert judged(PRODUCT, status=503).failure_class is FailureClass.HTTP_5XX
    assert judged(PRODUCT, status=404).page_state is PageState.REMOVED


# BC042
@pytest.mark.parametrize("body", [b"", b"\r\n ", b"<!-- -->", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("status", [200, 204])
def test_an_empty_document_is_an_empty_shell(body: bytes, status: int) -> None:
    for page in (PageRule(), PageRule(expect="h1"), PageRule(fields={"name": FieldRule(css="h1")})):
        assert judged(body, page, status=status).failure_class is FailureClass.EMPTY_SHELL


# BC048
def test_a_redirect_elsewhere_is_no_product_even_with_product_data() -> None:
    assert judged(PRODUCT, final="https://shop.test/").failure_class is FailureClass.REDIRECTED
    assert judged(PRODUCT, final="https://shop.test/login?next=/p/1").failure_class is FailureClass.LOGIN
    assert judged(PRODUCT, final="https://shop.test/p/1-cup").failure_class is None


def test_the_sites_own_sign_makes_a_page_removed() -> None:
    result = judged(PRODUCT + "<p class=ended>", PageRule(removed=".ended", expect=".product"))
    assert (result.page_state, result.failure_class) == (PageState.REMOVED, FailureClass.GONE)


def test_not_found_in_words_only_is_a_soft_404_for_a_person() -> None:
    result = judged("<title>Page not found</title><p>Sorry</p>")
    assert (result.page_state, result.failure_class) == (PageState.SOFT_404, FailureClass.WRONG_TEMPLATE)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (CHALLENGE, PageState.CHALLENGE),
        ("<title>Before you continue</title><button>I agree</button>", PageState.CONSENT),
        ("<title>Log in</title><form><input name=u><input type=password></form>", PageState.LOGIN),
        ("<div id=app></div><script></script>", PageState.EMPTY_SHELL),
        ("<h1>404</h1><p>There is nothing at this address.</p>", PageState.SOFT_404),
        ("<h1>Saucers</h1><p>All of our saucers.</p>" + PRODUCT, PageState.WRONG_TEMPLATE),
    ],
)
def test_a_page_without_the_expected_part_is_named_by_its_signs(body: str, state: PageState) -> None:
    result = judged(body, PageRule(expect=".product"))
    assert result.page_state is state
    assert "'.product' is not on the page" in result.reason


def test_a_page_with_the_expected_part_and_without_its_price_is_a_failed_extraction() -> None:
    page = PageRule(expect="h1", fields={"price": FieldRule(css=".now", money="EUR")})
    result = judged("<title>Log in</title><h1>Cup</h1><form><input name=u><input type=password></form>", page)
    assert (result.page_state, result.failure_class) == (PageState.EXPECTED, FailureClass.EXTRACTION)


def test_fields_found_on_a_robot_check_are_no_evidence() -> None:
    page = PageRule(fields={"name": FieldRule(css="h1")})
    assert judged(CHALLENGE + "<h1>One more step</h1>", page).failure_class is FailureClass.CHALLENGE


@pytest.mark.parametrize("title", ["Security Check Valve DN50", "Un momento de paz", "Access Denied (DVD)", "Captcha"])
def test_a_title_makes_no_robot_check_of_a_page_with_a_price(title: str) -> None:
    page = PageRule(fields={"name": FieldRule(css="h1"), "price": FieldRule(css="b", money="EUR")})
    result = judged(f"<title>{title}</title><h1>{title}</h1><b>19,99 €</b>", page)
    assert (result.page_state, result.failure_class) == (PageState.EXPECTED, None)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ("<title>Before you continue</title><h1>Cookies</h1><button>I agree</button>", PageState.CONSENT),
        ("<title>Log in</title><h1>Log in</h1><form><input name=u><input type=password></form>", PageState.LOGIN),
        ("<title>Page not found</title><h1>Oops</h1>", PageState.SOFT_404),
        ("<h1>An article</h1><p>About login forms and cookies.</p>", PageState.EXPECTED),
    ],
)
def test_a_heading_found_on_another_page_is_no_row(body: str, state: PageState) -> None:
    page = PageRule(fields={"title": FieldRule(css="h1")})
    raw = Response(URL, URL, 200, {"content-type": "text/html"}, body.encode(), ())
    assert judge(raw, ExtractRule(retailer="shop", page=page, schema_name="articles")).page_state is state


def test_declared_fields_that_find_nothing_are_a_failed_extraction() -> None:
    page = PageRule(fields={"name": FieldRule(css="h1")})
    result = judged("<p>Some other page, with enough words to read.</p>", page)
    assert (result.page_state, result.failure_class) == (PageState.WRONG_TEMPLATE, FailureClass.EXTRACTION)


def test_a_listing_with_its_empty_sign_has_no_rows_and_no_failure() -> None:
    page = PageRule(rows=".offer", empty=".none", fields={"name": FieldRule(css="b")})
    result = judged("<p class=none>Nothing fits your search today</p>", page)
    assert (result.page_state, result.failure_class, result.rows) == (PageState.EXPECTED, None, ())


# BC043
def test_a_required_text_in_the_wrong_encoding_is_not_accepted() -> None:
    page = PageRule(fields={"name": FieldRule(css="h1")})
    result = judged("<h1>Größe</h1>".encode("cp1252"), page, content_type="text/html; charset=utf-8")
    assert result.failure_class is FailureClass.BAD_ENCODING


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe\xfd" * 1000,
        b"\0" * 1000,
        bytes(range(256)) * 50,
        b"<div>" * 100_000,
        b'<script type="application/ld+json">' + b"[" * 200_000 + b"</script>",
        b"<p title='" + b"a" * 2_000_000 + b"'>",
        b'{"just": "json"}',
        b"<base href='http://[bad'><link rel=canonical href='http://[worse'>" + PRODUCT.encode() * 2,
    ],
)
def test_no_body_makes_it_raise(body: bytes) -> None:
    for page in (PageRule(), PageRule(expect="h1"), PageRule(fields={"a": FieldRule(xpath="//h1")})):
        assert isinstance(judged(body, page), Judged)


WAIT_PAGES = [
    "<title>Access denied | shop.test used Cloudflare to restrict access</title><h1>Error 1015</h1><p>You are being rate limited</p>",
    "<title>Too many requests</title><p>We have detected automated requests from your network.</p>",
    "<title>Just a moment</title><p>Unusual traffic from your network. Try again later.</p>",
    "<h1>Forbidden</h1>",
]


@pytest.mark.parametrize("body", WAIT_PAGES)
@pytest.mark.parametrize(
    ("status", "headers", "failure"),
    [
        (429, {}, FailureClass.RATE_LIMITED),
        (429, {"retry-after": "120"}, FailureClass.RATE_LIMITED),
        (503, {"retry-after": "120"}, FailureClass.HTTP_5XX),
    ],
)
def test_a_site_that_says_when_to_come_back_is_no_challenge(
    body: str, status: int, headers: dict[str, str], failure: FailureClass
) -> None:
    rule = ExtractRule(retailer="shop", page=PageRule())
    response = Response(URL, URL, status, {"content-type": "text/html", **headers}, body.encode())
    assert judge(response, rule).failure_class is failure
    marked = Response(URL, URL, status, {"content-type": "text/html", **headers}, CHALLENGE.encode())
    assert judge(marked, rule).failure_class is FailureClass.CHALLENGE


def by_object(
    body: str, given: Callable[[PageView], Any], *, schema: str = "product_offer", status: int = 200
) -> Judged:
    rule = ExtractRule(retailer="shop", page=PageRule(page_object="pages.py:given"), schema_name=schema)
    return judge(Response(URL, URL, status, {"content-type": "text/html"}, body.encode()), rule, page_object=given)


def sold_out_without_a_price(view: PageView) -> dict[str, Any]:
    """The common mistake: no price is taken for no stock."""
    price = (view.css(".price") or [None])[0]
    return {
        "name": (view.css("h1") or [None])[0],
        "price": price,
        "currency": price and "EUR",
        "availability": "InStock" if price else "OutOfStock",
    }


@pytest.mark.parametrize(
    ("body", "status", "state"),
    [
        ("", 200, PageState.EMPTY_SHELL),
        ("\ufeff<!-- nothing -->", 202, PageState.EMPTY_SHELL),
        (CHALLENGE + "<h1>shop.test</h1>", 200, PageState.CHALLENGE),
        ("<title>Robot Check</title><h1>Enter the characters you see below</h1>", 202, PageState.CHALLENGE),
        (
            "<title>Sign in</title><h1>Sign in</h1><form><input name=u><input type=password></form>",
            200,
            PageState.LOGIN,
        ),
        ("<title>Page not found</title><h1>Sorry</h1><p>This page does not exist.</p>", 200, PageState.SOFT_404),
    ],
)
def test_a_page_object_makes_no_sold_out_product_of_another_page(body: str, status: int, state: PageState) -> None:
    result = by_object(body, sold_out_without_a_price, status=status)
    assert (result.page_state, result.rows) == (state, ())
    assert result.failure_class is not None


def test_a_page_object_may_say_that_a_product_is_sold_out_and_then_needs_its_name() -> None:
    words = "<p>A cup of fine clay, made by hand and fired twice in an oven of wood.</p>" * 5
    good = by_object(f"<title>Cup</title><h1>Cup</h1>{words}", sold_out_without_a_price)
    assert good.page_state is PageState.EXPECTED
    assert good.rows[0].values == {"name": "Cup", "availability": "out_of_stock"}
    nameless = by_object(f"<title>Cup</title>{words}", sold_out_without_a_price)
    assert nameless.failure_class is FailureClass.EXTRACTION
    assert "name" in nameless.reason


@pytest.mark.parametrize("given", [{}, {"title": None}, {"title": "", "tags": None}, [{"title": "a"}, {}]])
def test_a_row_of_a_page_object_without_a_value_is_none(given: Any) -> None:
    result = by_object("<h1>Anything</h1>" + "<p>words of a page</p>" * 9, lambda _: given, schema="pages.py:Thing")
    assert result.failure_class is FailureClass.EXTRACTION
    assert "without any value" in result.reason


# BC044
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("<html><head><script src=/c.js></script></head><body></body></html>", 202),
        ("<script>document.cookie='k=1';location.reload()</script>", 203),
        (
            "<html><body><noscript>Please enable JavaScript and cookies to continue</noscript><script></script></body>",
            200,
        ),
    ],
)
def test_scripts_alone_that_are_accepted_rather_than_served_are_a_challenge(body: str, status: int) -> None:
    assert judged(body, status=status).page_state is PageState.CHALLENGE


@pytest.mark.parametrize("title", ["Security check officer (m/f/d)", "Captcha and privacy: what to know"])
def test_an_article_about_robot_checks_is_none(title: str) -> None:
    page = PageRule(fields={"name": FieldRule(css="h1"), "place": FieldRule(css=".place")})
    words = "<p>Many words about the work at the airport and what it asks of those who do it.</p>" * 40
    body = f"<title>{title}</title><h1>{title}</h1><p class=place>Berlin</p>"
    rule = ExtractRule(retailer="shop", page=page, schema_name="pages.py:Thing")

    def state(text: str) -> PageState | None:
        return judge(Response(URL, URL, 200, {"content-type": "text/html"}, text.encode()), rule).page_state

    assert state(body + words) is PageState.EXPECTED
    assert state(body) is PageState.CHALLENGE
