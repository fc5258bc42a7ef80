"""What a page is instead of the one asked for: general signs, and what must not be taken for one."""

from __future__ import annotations

import pytest

from scrape_assets.rules import classify
from scrape_assets.rules.document import Document
from scrape_assets.rules.page import Response
from scrape_assets.rules.states import FailureClass, PageState

LONG = "<p>" + "An ordinary sentence about cups and saucers. " * 80 + "</p>"


def state_of(body: str, *, url: str = "https://shop.test/p/1") -> PageState | None:
    response = Response(url, url, 200, {}, body.encode())
    found = classify.unexpected(Document.of(response), response)
    return found.page_state if found else None


@pytest.mark.parametrize(
    "body",
    [
        "<title>Just a moment...</title><p>Checking your browser</p>",
        "<title>x</title><script>window._cf_chl_opt={}</script>" + LONG,
        "<title>shop.test</title><p>Please verify you are human to continue.</p>",
        "<title></title><script>if (navigator.webdriver) fp()</script>",
        "Forbidden",
        "<h1>Access denied</h1>",
    ],
)
def test_a_robot_check_is_a_challenge(body: str) -> None:
    assert state_of(body) is PageState.CHALLENGE


# BC046
@pytest.mark.parametrize(
    "body",
    [
        f"<title>Cups</title><form><div class=g-recaptcha></div></form><script src=recaptcha/api.js></script>{LONG}",
        f"<title>Cups</title>{LONG}<p>Just a moment, I thought, are you a robot?</p>",
        f"<title>Cups</title><div>We use cookies. <button>Accept all</button></div>{LONG}",
        f"<title>Cups</title>{LONG}<form><input name=u><input type=password></form><form><input><input></form>",
        f"<title>Cups</title>{LONG}<form action=/login><input name=u><input type=password></form>",
        "<title>Cups</title><p>We write to you at <a href=/mail>hello</a> only</p>",
    ],
)
def test_an_ordinary_page_with_such_a_part_is_none_of_these(body: str) -> None:
    assert state_of(body) is None


@pytest.mark.parametrize(
    ("body", "url"),
    [
        ("<title>Before you continue</title><form><button>I agree</button></form>", "https://shop.test/p/1"),
        ("<p>Choose</p><a href=x>more</a>", "https://consent.shop.test/m?continue=x"),
        (
            "<title>Shop</title><p>We value your privacy and use cookies</p><button>Accept all</button>",
            "https://s.test/",
        ),
        ("<p>Alles oder nichts hier</p><form action=https://consent.s.test/save></form>", "https://s.test/"),
    ],
)
def test_a_page_that_only_asks_for_agreement_is_consent(body: str, url: str) -> None:
    assert state_of(body, url=url) is PageState.CONSENT


def test_a_page_whose_only_form_asks_for_a_password_is_login() -> None:
    form = "<form><input name=user><input type=password></form>"
    search = "<form action=/search><input name=q></form>"
    assert state_of(f"<title>Welcome</title>{search}{form}") is PageState.LOGIN
    assert state_of(f"<title>ログイン</title>{LONG}{form}") is PageState.LOGIN


@pytest.mark.parametrize("title", ["404 – Shop", "Page not found", "Seite nicht gefunden", "Product does not exist"])
def test_a_page_that_says_not_found_is_a_soft_404(title: str) -> None:
    assert state_of(f"<title>{title}</title>{LONG}") is PageState.SOFT_404


@pytest.mark.parametrize("title", ["1 item found", "Page 2 of 4040", "Lost and found products"])
def test_a_page_that_found_something_is_no_soft_404(title: str) -> None:
    assert state_of(f"<title>{title}</title>{LONG}") is None


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<!-- -->",
        "<title>Shop</title><div id=root></div><script src=app.js></script>",
        "<noscript>You need to enable JavaScript</noscript><div id=app>Loading the shop…</div><script></script>",
    ],
)
def test_a_page_with_nothing_to_read_is_an_empty_shell(body: str) -> None:
    assert state_of(body) is PageState.EMPTY_SHELL


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (401, FailureClass.ACCESS_REFUSED),
        (403, FailureClass.ACCESS_REFUSED),
        (404, FailureClass.GONE),
        (410, FailureClass.GONE),
        (429, FailureClass.RATE_LIMITED),
        (500, FailureClass.HTTP_5XX),
        (503, FailureClass.HTTP_5XX),
        (501, FailureClass.HTTP_OTHER),
        (304, FailureClass.HTTP_OTHER),
        (418, FailureClass.HTTP_OTHER),
    ],
)
def test_each_status_has_its_class(status: int, failure: FailureClass) -> None:
    assert classify.by_status(status).failure_class is failure


# BC048
@pytest.mark.parametrize(
    ("final", "failure"),
    [
        ("https://shop.test/login?next=/p/1", FailureClass.LOGIN),
        ("https://shop.test/user/sign_in", FailureClass.LOGIN),
        ("https://consent.shop.test/m", FailureClass.CONSENT),
        ("https://shop.test/", FailureClass.REDIRECTED),
        ("https://shop.test/en-gb/", FailureClass.REDIRECTED),
        ("https://shop.test/index.php", FailureClass.REDIRECTED),
        ("https://shop.test/404", FailureClass.WRONG_TEMPLATE),
    ],
)
def test_a_redirect_to_another_kind_of_page_is_seen(final: str, failure: FailureClass) -> None:
    found = classify.by_redirect(Response("https://shop.test/p/1", final, 200, {}, b"", ("https://shop.test/p/1",)))
    assert found is not None
    assert found.failure_class is failure


@pytest.mark.parametrize(
    ("asked", "final"),
    [
        ("https://shop.test/p/1", "https://shop.test/p/1-cup"),
        ("http://shop.test/", "https://shop.test/en/"),
        ("https://shop.test/p/1", "https://shop.test/?p=1"),
        ("https://shop.test/p/1", "https://shop.test/p/login-cup"),
    ],
)
def test_a_redirect_within_the_same_kind_is_followed(asked: str, final: str) -> None:
    assert classify.by_redirect(Response(asked, final, 200, {}, b"", (asked,))) is None
