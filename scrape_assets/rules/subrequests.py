"""What a page in a browser may ask for: its own site and the hosts that are allowed, by ways that can be counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from scrape_assets.rules import urls

Blockable = Literal["image", "media", "font", "stylesheet"]
"""What a price may do without. Scripts and the data they ask for are what a browser is for."""

METHODS = frozenset({"GET", "POST"})
"""Shops ask for data with both; a page that is only looked at has nothing to put or delete."""

_NEVER = {"eventsource": "an event stream", "ping": "a beacon", "cspreport": "a report", "websocket": "a websocket"}
"""Without an end, or without an answer that a page could show."""

_SHOWN_HOSTS = 5


@dataclass(frozen=True, slots=True)
class Look:
    """How a retailer's pages are looked at: until when, and what they may ask for on the way."""

    wait_for: str | None = None
    block: frozenset[str] = frozenset({"image", "media", "font"})
    hosts: tuple[str, ...] = ()
    max_requests: int = 200


def allowed_site(host: str) -> str:
    """The site that an allowed host stands for: with a port exactly that, else the host and its subdomains.

    >>> allowed_site("api.shop.example"), allowed_site("127.0.0.1:8802")
    ('https://api.shop.example', 'http://127.0.0.1:8802')
    """
    return urls.origin(f"{'http' if urlsplit(f'//{host}').port else 'https'}://{host}")


def scope(url: str, *, site: str, hosts: tuple[str, ...]) -> str | None:
    """The site within which this address is asked for, its redirects included; None where it is none of them.

    >>> scope("https://cdn.shop.example/a", site="https://shop.example", hosts=())
    'https://shop.example'
    >>> scope("https://ads.example/a", site="https://shop.example", hosts=("api.example",)) is None
    True
    """
    try:
        return next((one for one in (site, *map(allowed_site, hosts)) if urls.within(one, url)), None)
    except ValueError:
        return None  # no address of the web: file:, chrome:, a host that cannot be one


def refused(method: str, kind: str, look: Look) -> str | None:
    """Why a request is not sent wherever it goes, in the words it is counted under; None when it may be.

    >>> refused("GET", "image", Look()), refused("PUT", "fetch", Look()), refused("GET", "fetch", Look())
    ('image', 'PUT', None)
    """
    if kind in look.block:
        return kind
    if kind in _NEVER:
        return _NEVER[kind]
    return None if method in METHODS else method[:20]


def told(sent: int, kinds: Mapping[str, int], hosts: Mapping[str, int]) -> str:
    """What a page asked for, in a sentence for a person.

    >>> told(3, {"image": 2}, {"ads.example": 1})
    'requests: 3; not sent: 2 image; to hosts that are not allowed: ads.example (1)'
    """
    parts = [f"requests: {sent}"]
    if kinds:
        parts.append("not sent: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())))
    if hosts:
        # The most asked first: the one that holds the price is among the few, and a page can name any number.
        first = Counter(hosts).most_common(_SHOWN_HOSTS)
        more = f" and {len(hosts) - len(first)} more" if len(hosts) > len(first) else ""
        parts.append(
            "to hosts that are not allowed: " + ", ".join(f"{host[:100]} ({count})" for host, count in first) + more
        )
    return "; ".join(parts)
