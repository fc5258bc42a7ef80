"""One canonical text per page, and never one text for two pages."""

from __future__ import annotations

import pytest

from scrape_assets.rules.urls import MAX_URL_LENGTH, canonical, origin, within


# BC057
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/p/a%23b", "/p/a"),
        ("/p/a%2Fb", "/p/a/b"),
        ("/p?q=a%2Bb", "/p?q=a+b"),
        ("/p?q=a%2Bb", "/p?q=a%20b"),
        ("/p%3Bv=1", "/p;v=1"),
        ("/p?a=1&a=2", "/p?a=2&a=1"),
        ("/p?b=1&a=2", "/p?a=2&b=1"),
        ("/p?a", "/p?a="),
        ("/p?", "/p"),
        ("/p/", "/p"),
        ("/P", "/p"),
        ("/p#!/a", "/p#!/b"),
        ("/p?utm_source=x", "/p"),
    ],
)
def test_addresses_that_may_name_two_pages_stay_apart(one: str, other: str) -> None:
    assert canonical("https://shop.example" + one) != canonical("https://shop.example" + other)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("HTTPS://Shop.Example/P", "https://shop.example/P"),
        ("https://shop.example:443/p", "https://shop.example/p"),
        ("http://shop.example:80", "http://shop.example/"),
        ("http://shop.example:443/p", "http://shop.example:443/p"),
        ("https://shop.example/a/../b/./c//d", "https://shop.example/b/c//d"),
        ("https://shop.example/p#reviews", "https://shop.example/p"),
        ("https://shop.example/#!/p/1", "https://shop.example/#!/p/1"),
        ("https://faß.de/", "https://xn--fa-hia.de/"),
        ("https://bücher.example/ä?ö=ü", "https://xn--bcher-kva.example/%C3%A4?%C3%B6=%C3%BC"),
        ("  https://shop.example/a b ", "https://shop.example/a%20b"),
        ("http://[::1]:8801/p", "http://[::1]:8801/p"),
        ("https://shop.example/p%3Bv=1", "https://shop.example/p%3Bv=1"),
        ("https://shop.example/@seller/p", "https://shop.example/@seller/p"),
    ],
)
def test_what_no_server_can_tell_apart_is_written_in_one_way(given: str, expected: str) -> None:
    assert canonical(given) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "must start with http:// or https://"),
        ("/p/1", "must start with http:// or https://"),
        ("ftp://shop.example/p", "must start with http:// or https://"),
        ("javascript:alert(1)", "must start with http:// or https://"),
        ("https:shop.example/p", "names no host"),
        ("https:///p", "names no host"),
        ("https://?q=1", "names no host"),
        ("https://shop example/p", "cannot be parsed"),
        ("https://shop.example:99999/p", "cannot be parsed"),
        ("https://user:secret@shop.example/p", "user name or password"),
        ("https://user@shop.example/p", "user name or password"),
        ("https://shop.example/a\tb", "U+0009"),
        ("https://shop.example/a\x00b", "U+0000"),
        ("https://shop.example/\ud800", "U+D800"),
        ("https://shop.example/" + "a" * MAX_URL_LENGTH, "8,213 characters; at most 8,192"),
        ("https://" + "a." * 1500 + "shop.example/", "host has 3,012 characters"),
        ("https://shop.example/" + "ä" * 4000, "24,021 characters once encoded"),
    ],
)
def test_what_is_no_address_of_a_page_is_refused_with_a_reason(url: str, said: str) -> None:
    with pytest.raises(ValueError) as error:
        canonical(url)
    assert said in str(error.value)
    assert "secret" not in str(error.value)


def test_a_long_address_is_kept_whole() -> None:
    tail = "x" * (MAX_URL_LENGTH - len("https://shop.example/?t="))
    assert canonical("https://shop.example/?t=" + tail) == "https://shop.example/?t=" + tail


def test_an_origin_is_scheme_host_and_port() -> None:
    assert origin("https://Shop.Example:443/p?x=1") == "https://shop.example"
    assert origin("http://127.0.0.1:8801/p") == "http://127.0.0.1:8801"
    assert origin("https://shop.example/p") != origin("http://shop.example/p")


@pytest.mark.parametrize(
    ("site", "url", "inside"),
    [
        ("https://shop.example", "https://shop.example/p", True),
        ("https://shop.example", "http://shop.example/p", True),
        ("https://shop.example", "https://www.shop.example/p", True),
        ("https://shop.example", "https://notshop.example/p", False),
        ("https://shop.example", "https://shop.example:6379/p", False),
        ("https://shop.example", "https://www.shop.example:8443/p", False),
        ("https://shop.example", "https://shop.example.evil.example/p", False),
        ("https://www.shop.example", "https://shop.example/p", False),
        ("https://faß.de", "https://xn--fa-hia.de/p", True),
        ("https://faß.de", "https://fass.de/p", False),
        ("http://127.0.0.1:8801", "http://127.0.0.1:8801/p", True),
        ("http://127.0.0.1:8801", "http://127.0.0.1:8802/p", False),
        ("http://127.0.0.1", "http://127.0.0.1:8802/p", False),
        ("http://localhost:8801", "http://a.localhost:8801/p", False),
        ("http://[::1]:8801", "http://[::1]:8801/p", True),
        ("http://10.0.0.1", "http://a.10.0.0.1.example/p", False),
    ],
)
def test_a_site_holds_its_host_and_subdomains_and_one_with_a_port_only_itself(
    site: str, url: str, inside: bool
) -> None:
    assert within(site, url) is inside
