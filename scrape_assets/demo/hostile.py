"""Pages of a site that means harm, each with what should become of it. All of it stays on this machine's loopback."""

from __future__ import annotations

import gzip
import itertools
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from scrape_assets.demo.scripted import Answer

BOMB_BYTES = 50_000_000
DEEP = 200_000
LONG_URL = 5_000_000
DRIP_SECONDS = 0.3

ATTEMPTS = 2
"""How often the pages are tried that another try may help."""

TIMEOUT_SECONDS = 5.0

_NAME = "Größe"
_WORDS = "<p>Words that somebody may read on an ordinary page.</p>" * 9
_OK = "200 OK"


class Trap(NamedTuple):
    """One page: how it answers, given the port of a service that is none of its business, and what it should end as."""

    answer: Callable[[int], Answer]
    expected: str


_skus = itertools.count(1)


def product(*, name: str = _NAME, head: str = "", more: Mapping[str, object] | None = None) -> str:
    """A page that would be read well, of a product of its own."""
    data = {
        "@type": "Product",
        "name": name,
        "sku": f"H-{next(_skus)}",
        "offers": {"price": "19.99", "priceCurrency": "EUR", "availability": "https://schema.org/InStock"},
        **(more or {}),
    }
    text = json.dumps(data, ensure_ascii=False)
    return (
        f'<!doctype html><html><head>{head}<script type="application/ld+json">{text}</script></head>'
        f"<body><h1>{name}</h1></body></html>"
    )


def _head(*lines: str, status: str = _OK) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: text/html", *lines, "", ""]).encode("latin-1")


def _raw(*chunks: bytes) -> Callable[[int], Answer]:
    return lambda _: Answer(raw=chunks)


def _endless(head: bytes, drop: bytes, seconds: float = 0.0) -> Callable[[int], Answer]:
    def drops() -> Iterator[bytes]:
        yield head
        for _ in itertools.count():
            yield drop
            time.sleep(seconds)

    return lambda _: Answer(raw=drops())


def _page(body: bytes, content_type: str = "text/html", **headers: str) -> Callable[[int], Answer]:
    fields = {"content-type": content_type, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return lambda _: Answer(headers=fields, body=body)


def _to(target: str) -> Callable[[int], Answer]:
    # A header is bytes; beyond ASCII most servers write them as UTF-8.
    return lambda port: Answer(302, {"location": target.replace("PORT", str(port)).encode().decode("latin-1")})


def _bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(1_000_000)) for _ in range(BOMB_BYTES // 1_000_000)) + packer.flush()


_BROTLI_HEAD = b"\x1b\xff\xff\x8f" + b"\0" * 60
"""Never decoded: an encoding that nobody asked for is refused by its name."""

_CHUNK = b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"
_LINES = [f"X-{number}: {'y' * 4000}" for number in range(400)]

INTERNAL = {
    "another port": "http://127.0.0.1:PORT/",
    "one number": "http://2130706433:PORT/",
    "octal": "http://0177.0.0.1:PORT/",
    "hexadecimal": "http://0x7f000001:PORT/",
    "short": "http://127.1:PORT/",
    "mapped into IPv6": "http://[::ffff:127.0.0.1]:PORT/",
    "IPv6": "http://[::1]:PORT/",
    "unspecified": "http://0.0.0.0:PORT/",
    "another loopback address": "http://127.0.0.2:PORT/",
    "a name": "http://localhost:PORT/",
    "full-width digits": "http://１２７.0.0.1:PORT/",
    "behind a user name": "http://127.0.0.1@127.0.0.2:PORT/",
    "behind a backslash": "http://127.0.0.2:PORT\\@127.0.0.1/",
}
"""Redirects to a service of the own machine, each the same or nearly so in other words."""

METADATA = {
    "IPv4": "http://169.254.169.254/latest/meta-data/",
    "IPv6": "http://[fd00:ec2::254]/latest/meta-data/",
    "another cloud": "http://100.100.100.200/latest/meta-data/",
    "a name": "http://metadata.google.internal/computeMetadata/v1/",
}

NO_WEB = {
    "file": "file:///etc/passwd",
    "ftp": "ftp://127.0.0.1:PORT/x",
    "data": "data:text/html,<h1>x</h1>",
    "javascript": "javascript:alert(1)",
}

_TIMEOUT = f"quarantined: {', '.join(['timeout'] * ATTEMPTS)}"
_TRUNCATED = f"quarantined: {', '.join(['truncated'] * ATTEMPTS)}"
_TOO_LARGE = "quarantined: too_large"
_REDIRECTED = "quarantined: redirected"
_READ = f"committed: committed {_NAME!r}"
CRASHED = "quarantined: extractor_crashed, extractor_crashed"
NOT_ASKED = "quarantined: http_other"


@cache
def traps() -> dict[str, Trap]:
    """Every page, by what it does. Made when first asked for: some of them are large."""
    page, bomb = product().encode(), _bomb()
    return {
        "drip in the headers": Trap(_endless(b"HTTP/1.1 200 OK\r\nX: ", b"y", DRIP_SECONDS), _TIMEOUT),
        "drip in the body": Trap(_endless(_head("Content-Length: 100000"), b"y", DRIP_SECONDS), _TIMEOUT),
        "endless body": Trap(_endless(_head(), b"x" * 65536), _TOO_LARGE),
        "endless chunks": Trap(
            _endless(_head("Transfer-Encoding: chunked"), b"ffff\r\n" + b"x" * 65535 + b"\r\n"), _TOO_LARGE
        ),
        "endless empty gzip": Trap(_endless(_head("Content-Encoding: gzip"), gzip.compress(b"") * 3000), _TOO_LARGE),
        "gzip bomb": Trap(_page(bomb, content_encoding="gzip"), _TOO_LARGE),
        "gzip bomb in gzip, declared once": Trap(
            # Inflated once, as declared: what comes of it is no page.
            _page(gzip.compress(bomb), content_encoding="gzip"),
            "quarantined: wrong_template",
        ),
        "gzip bomb in gzip, declared twice": Trap(
            _page(gzip.compress(bomb), content_encoding="gzip, gzip"), "quarantined: http_other"
        ),
        "brotli bomb": Trap(_page(_BROTLI_HEAD, content_encoding="br"), "quarantined: http_other"),
        "a huge header": Trap(_raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2_000_000 + b"\r\n\r\n"), _TOO_LARGE),
        "many headers": Trap(_raw(_head(*_LINES, f"Content-Length: {len(page)}"), page), _TOO_LARGE),
        "redirect loop": Trap(_to("/redirect-loop"), _REDIRECTED),
        **{f"redirect to {name}": Trap(_to(target), _REDIRECTED) for name, target in INTERNAL.items()},
        **{f"redirect to metadata, {name}": Trap(_to(target), _REDIRECTED) for name, target in METADATA.items()},
        **{f"redirect to {name}:": Trap(_to(target), _REDIRECTED) for name, target in NO_WEB.items()},
        "redirect to a login": Trap(_to("/login?next=/p/1"), "quarantined: login"),
        "redirect to 5 MB": Trap(_to("/" + "u" * LONG_URL), _TOO_LARGE),
        "redirect to 20 kB": Trap(_to("/" + "u" * 20_000), _REDIRECTED),
        "5 MB of address in the data": Trap(
            _page(product(more={"url": "/" + "u" * LONG_URL}).encode()), "quarantined: extraction"
        ),
        "invalid UTF-8 in the name": Trap(
            _page(product().encode().replace("ö".encode(), b"\xc3\xc3"), "text/html; charset=utf-8"),
            "quarantined: bad_encoding",
        ),
        "invalid UTF-8 beside the data": Trap(
            _page(product().encode() + b"<p>\xff\xfe\xc3(", "text/html; charset=utf-8"), _READ
        ),
        "an unknown charset": Trap(_page(product().encode(), "text/html; charset=utf8mb4"), _READ),
        "a charset that the bytes contradict": Trap(
            _page(product(head='<meta charset="windows-1252">').encode("cp1252"), "text/html; charset=utf-8"), _READ
        ),
        "UTF-16 under a header that says UTF-8": Trap(
            _page(b"\xff\xfe" + product().encode("utf-16-le"), "text/html; charset=utf-8"), _READ
        ),
        "NUL in the page": Trap(_page(product().encode().replace(b"<body>", b"<body>\0\0")), _READ),
        "NUL in the name": Trap(_page(product(name="a\0b").encode()), "quarantined: unstorable"),
        "a lone surrogate": Trap(
            _page(product(name="SURROGATE").replace("SURROGATE", "\\ud800").encode()), "quarantined: unstorable"
        ),
        "JSON 200,000 deep": Trap(
            _page(f'<script type="application/ld+json">{"[" * DEEP}</script><h1>A page</h1>{_WORDS}'.encode()),
            "quarantined: extraction",
        ),
        "JSON 200,000 deep before the product": Trap(
            _page(f'<script type="application/ld+json">{"[" * DEEP}</script>{product()}'.encode()), _READ
        ),
        "HTML 200,000 deep": Trap(_page(page + b"<div>" * DEEP), "quarantined: wrong_template"),
        "cut by its length": Trap(_raw(_head(f"Content-Length: {len(page) + 4000}"), page), _TRUNCATED),
        "cut before the last chunk": Trap(
            _raw(_head("Transfer-Encoding: chunked"), f"{len(page):x}\r\n".encode() + page + b"\r\n"), _TRUNCATED
        ),
        "an empty page": Trap(_page(b""), "quarantined: empty_shell"),
    }


def path(name: str) -> str:
    """Where the page of this name stands."""
    return "/" + "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in name.lower()).split())


HANGS = "/hangs"
HANGS_DECLARED = 'product: {fields: {name: {css: h1, match: "^(a+)+$"}, sku: {css: i}, price: {css: b, money: EUR}}}\n'
"""A page for which its reader needs longer than the world is old: a careless expression and a heading made for it."""

LISTS, LISTED = "/lists", "/listed"
"""A page whose links lead everywhere, one of them to a product."""


def site(port: int) -> Callable[[str], Answer]:
    """The site's answer by path; `port` is that of the service that it tries to reach through whoever reads it."""
    by_path = {path(name): trap for name, trap in traps().items()}

    def answer(asked: str) -> Answer:
        if asked == HANGS:
            return Answer(body=f"<h1>{'a' * 64}!</h1>".encode())
        if asked == LISTS:
            return Answer(body=_links(port))
        if asked == LISTED:
            return Answer(body=product().encode())
        if asked.startswith("/login"):
            return Answer(body=product().encode())
        return by_path[asked].answer(port)

    return answer


def _links(port: int) -> bytes:
    targets = [*INTERNAL.values(), *METADATA.values(), *NO_WEB.values(), "/" + "u" * LONG_URL, LISTED]
    return "".join(f'<a class="item" href="{one.replace("PORT", str(port))}">x</a>' for one in targets).encode()
