"""What a page in a browser may ask for."""

from __future__ import annotations

import pytest

from scrape_assets.rules.subrequests import Look, allowed_site, refused, scope, told

SITE = "https://shop.example"


@pytest.mark.parametrize(
    ("url", "within"),
    [
        ("https://shop.example/a", SITE),
        ("http://www.shop.example/a?b", SITE),
        ("https://api.partner.example/v1", "https://api.partner.example"),
        ("https://eu.api.partner.example/v1", "https://api.partner.example"),
        ("http://127.0.0.1:8802/x", "http://127.0.0.1:8802"),
        ("http://127.0.0.1:8803/x", None),
        ("https://shop.example:8443/a", None),
        ("https://shop.example.evil.example/", None),
        ("https://partner.example/", None),
        ("https://user@shop.example/", None),
        ("file:///etc/passwd", None),
        ("chrome://version", None),
        ("ftp://shop.example/", None),
        ("http://[::1]:80/", None),
        ("http://2130706433/", None),
        ("https://", None),
        ("", None),
    ],
)
def test_an_address_is_asked_for_within_the_site_or_an_allowed_host(url: str, within: str | None) -> None:
    assert scope(url, site=SITE, hosts=("api.partner.example", "127.0.0.1:8802")) == within


def test_a_host_with_a_port_is_exactly_that() -> None:
    assert allowed_site("cdn.example:8080") == "http://cdn.example:8080"
    with pytest.raises(ValueError):
        allowed_site("cdn.example:99999")


@pytest.mark.parametrize("kind", ["eventsource", "ping", "cspreport", "websocket"])
def test_what_has_no_end_or_no_answer_is_never_sent(kind: str) -> None:
    assert refused("GET", kind, Look(block=frozenset())) is not None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "x" * 50])
def test_a_page_asks_by_get_and_post_alone(method: str) -> None:
    assert refused(method, "fetch", Look()) == method[:20]


def test_many_hosts_are_told_in_a_few_words() -> None:
    said = told(1, {}, {f"host{i}.example": i + 1 for i in range(40)})
    assert said.startswith("requests: 1; to hosts that are not allowed: host39.example (40), ")
    assert said.endswith("and 35 more")
    assert len(told(1, {}, {"x" * 5000: 1})) < 250
