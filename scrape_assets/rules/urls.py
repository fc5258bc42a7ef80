"""Which address is which page: one canonical text per page, and what belongs to a site.

The canonical form changes only what no server can tell apart: the case of scheme and host, the default
port, dot segments, characters that must be percent-encoded, the fragment. Everything else may name another
page and is kept as it came: parameters and their order, `b` beside `b=`, `%2F` beside `/`, `+` beside `%20`.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import urlsplit

import ada_url

MAX_HOST_LENGTH = 253 + len(":65535")
"""Characters of the longest name that DNS knows, and of a port."""

MAX_URL_LENGTH = 8192
"""Characters; what is longer is refused with a reason, never cut."""

_START = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, which browsers drop silently, and lone surrogates, which no encoding has."""


@lru_cache(maxsize=512)  # a fetch asks for its own address and its site's more than once
def canonical(url: str) -> str:
    """The one text of this page's address; the canonical form of a canonical address is itself.

    Raises ValueError with a sentence for anything that is not the address of a page on the web.

    >>> canonical("HTTP://Shop.Example:80/a/../p%2F1?b&a=1+2#top")
    'http://shop.example/p%2F1?b&a=1+2'
    >>> canonical("https://faß.example/#!/p/1")
    'https://xn--fa-hia.example/#!/p/1'
    """
    if len(url) > MAX_URL_LENGTH:
        raise ValueError(f"the URL has {len(url):,} characters; at most {MAX_URL_LENGTH:,} are accepted")
    if found := _NOT_TEXT.search(url):
        raise ValueError(f"the URL contains U+{ord(found.group()):04X}, which no address may hold")
    start = _START.fullmatch(url.strip())
    if start is None or start["scheme"].lower() not in ("http", "https"):
        raise ValueError("the URL must start with http:// or https://")
    # A browser repairs `http:host` and `http:///host`; in an inventory they are mistakes.
    if not start["rest"].startswith("//") or start["rest"][2:3] in ("", "/", "\\", "?", "#"):
        raise ValueError("the URL names no host")
    try:
        # Encoding escaped and non-ASCII hosts differently is how one shop becomes two: ada follows the
        # WHATWG rules that browsers follow.
        whole = ada_url.normalize_url(start[0])
    except ValueError as error:
        raise ValueError("the URL cannot be parsed; its host or port is not valid") from error
    page, mark, fragment = whole.partition("#")
    if len(host := page.split("/", 3)[2]) > MAX_HOST_LENGTH:
        raise ValueError(f"the URL's host has {len(host):,} characters; no host has more than {MAX_HOST_LENGTH}")
    if "@" in page.split("/", 3)[2]:
        raise ValueError("the URL carries a user name or password; credentials do not belong in an inventory")
    if fragment.startswith("!"):
        page += mark + fragment
    if len(page) > MAX_URL_LENGTH:
        raise ValueError(f"the URL has {len(page):,} characters once encoded; at most {MAX_URL_LENGTH:,} are accepted")
    return page


def joined(base: str, reference: str) -> str:
    r"""What a redirect or link of the page at `base` leads to, as browsers read it; ValueError where that is nothing.

    >>> joined("https://shop.example/a/b", "../p/1"), joined("https://shop.example/a", "/\\other.example")
    ('https://shop.example/p/1', 'https://other.example/')
    """
    try:
        return ada_url.join_url(base, reference)
    except ValueError as error:
        raise ValueError("it cannot be parsed; its host or port is not valid") from error


def origin(url: str) -> str:
    """Scheme, host and port, where the port is not the scheme's own: what a rate and a pause belong to.

    >>> origin("https://Shop.Example:443/p/1"), origin("http://127.0.0.1:8801/p?x=1")
    ('https://shop.example', 'http://127.0.0.1:8801')
    """
    return "/".join(canonical(url).split("/", 3)[:3])


def within(site: str, url: str) -> bool:
    """Whether the address lies on the site: its host or a subdomain of it.

    A site that names a port or an IP address means exactly that: no subdomains, no other port.

    >>> within("https://shop.example", "http://www.shop.example/p"), within("https://shop.example", "https://x.example")
    (True, False)
    """
    host, port, exact = _place(origin(site))
    other, other_port, _ = _place(origin(url))
    if exact:
        return (host, port) == (other, other_port)
    return other_port in (80, 443) and (other == host or other.endswith("." + host))


@lru_cache(maxsize=4096)
def _place(authority: str) -> tuple[str, int, bool]:
    """Host, effective port, and whether only this very host and port are meant."""
    parts = urlsplit(authority)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return host, port, parts.port is not None or is_ip_literal(host)


def is_ip_literal(host: str) -> bool:
    """Whether the host is an address rather than a name; IPv6 without its brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
