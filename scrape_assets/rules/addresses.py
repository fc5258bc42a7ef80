"""Which network addresses a site may be reached at: the public ones, unless a person declared otherwise."""

from __future__ import annotations

import ipaddress
import re

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses that carry another one inside: a gateway on our side of the network would unwrap them, and
# the standard library calls most of them global.
_CARRIERS = (
    (ipaddress.IPv6Network("64:ff9b::/96"), "a NAT64 address"),
    (ipaddress.IPv6Network("64:ff9b:1::/48"), "a NAT64 address"),
    (ipaddress.IPv6Network("2002::/16"), "a 6to4 address"),
    (ipaddress.IPv6Network("2001::/32"), "a Teredo address"),
)
# The last label decides: resolvers read `0x7f.1`, `127.1`, `0177.0.0.1` and `2130706433` as IPv4 addresses.
_ENDS_IN_A_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?$")


def refused(address: str) -> str | None:
    """Why no page is fetched from this address, in the words of the registry; None when it is a public one.

    >>> refused("127.0.0.1"), refused("10.1.2.3"), refused("93.184.216.34")
    ('loopback', 'private', None)
    """
    try:
        parsed: _Address = ipaddress.ip_address(address)
    except ValueError:
        return "not an address"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return refused(str(parsed.ipv4_mapped))
        for network, name in _CARRIERS:
            if parsed in network:
                return name
    for claim, name in (
        (parsed.is_unspecified, "unspecified"),
        (parsed.is_loopback, "loopback"),
        (parsed.is_link_local, "link-local"),
        (parsed.is_multicast, "multicast"),
        (parsed.is_private, "private"),
        (parsed.is_reserved, "reserved"),
        (not parsed.is_global, "not globally routable"),
    ):
        if claim:
            return name
    # The old site-local block is not in the standard library's private list.
    return "private" if isinstance(parsed, ipaddress.IPv6Address) and parsed.is_site_local else None


def literal(host: str) -> str | None:
    """The address a host is written as, in canonical form; None for a name. IPv6 may have brackets.

    >>> literal("127.0.0.1"), literal("[::1]"), literal("0x7f.1"), literal("shop.example")
    ('127.0.0.1', '::1', None, None)
    """
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None


def disguised(host: str) -> bool:
    """The host is no canonical address, yet a resolver would read it as one.

    >>> disguised("2130706433"), disguised("0x7f.1"), disguised("127.0.0.1"), disguised("shop.example")
    (True, True, False, False)
    """
    return literal(host) is None and _ENDS_IN_A_NUMBER.search(host) is not None
