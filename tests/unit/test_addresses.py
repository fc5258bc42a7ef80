from __future__ import annotations

import pytest

from scrape_assets.rules.addresses import disguised, literal, refused


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("192.168.255.255", "private"),
        ("fc00::1", "private"),
        ("fec0::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("240.0.0.1", "private"),
        ("255.255.255.255", "private"),
        ("100.64.0.1", "not globally routable"),
        ("64:ff9b::7f00:1", "a NAT64 address"),
        ("64:ff9b::808:808", "a NAT64 address"),
        ("64:ff9b:1::1", "a NAT64 address"),
        ("2002:7f00:1::", "a 6to4 address"),
        ("2001:0:4136:e378::1", "a Teredo address"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.1.2.3", "private"),
        ("::127.0.0.1", "reserved"),
        ("shop.example", "not an address"),
        ("2130706433", "not an address"),
        ("", "not an address"),
    ],
)
def test_an_address_that_is_not_public_is_refused_by_its_name(address: str, word: str) -> None:
    assert refused(address) == word


@pytest.mark.parametrize("address", ["93.184.216.34", "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "172.32.0.1"])
def test_a_public_address_is_not_refused(address: str) -> None:
    assert refused(address) is None


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f.1", "0x7f000001", "127.1", "0177.0.0.1", "1.2.3.4.5", "127.0.0.1.", "256.1.1.1"]
)
def test_a_number_that_resolvers_read_as_an_address_is_disguised(host: str) -> None:
    assert disguised(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "shop.example", "1.shop.example", "0x7f.example", "shop1"])
def test_names_and_canonical_addresses_are_not_disguised(host: str) -> None:
    assert not disguised(host)


def test_a_literal_is_given_in_its_canonical_form() -> None:
    assert literal("[2001:DB8:0::1]") == "2001:db8::1"
    assert literal("127.0.0.1") == "127.0.0.1"
    assert literal("127.1") is None
    assert literal("shop.example") is None
