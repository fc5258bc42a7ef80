"""A site of plain product pages on loopback, in a thread of the process that drills against it."""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from scrape_assets.rules.keys import plain


def truth(pages: int) -> list[dict[str, Any]]:
    """What the pages 0 to `pages` - 1 sell, one offer each."""
    return [
        {
            "retailer": "site",
            "entity": f"SKU-{number:06d}",
            "name": f"Product {number}",
            "price": plain(Decimal(f"{number % 90 + 10}.{number % 100:02d}")),
            "currency": "EUR",
            "availability": "in_stock",
        }
        for number in range(pages)
    ]


def page(offer: dict[str, Any]) -> bytes:
    """The offer as a product page with JSON-LD."""
    product = {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": offer["name"],
        "sku": offer["entity"],
        "offers": {
            "@type": "Offer",
            "price": offer["price"],
            "priceCurrency": offer["currency"],
            "availability": "https://schema.org/InStock",
        },
    }
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{offer["name"]}</title>'
        f'<script type="application/ld+json">{json.dumps(product)}</script></head>'
        f"<body><h1>{offer['name']}</h1></body></html>"
    ).encode()


class Site:
    """A running site. `requests` counts by path; every answer waits `delay_seconds` and comes in two halves.

    Below `/deliveries` it is a destination: `held` is the content hash of what it has, by key, and `posts` counts what
    it was sent.

    The second half waits some 40 ms for the first one's acknowledgement, and should: where all pages came at once they
    would all be committed at once, and a point in a commit be reached only once.
    """

    def __init__(self, pages: int) -> None:
        self.bodies = [page(offer) for offer in truth(pages)]
        self.requests: Counter[str] = Counter()
        self.posts: Counter[str] = Counter()
        self.held: dict[str, str] = {}
        self.delay_seconds = 0.0
        self.lock = threading.Lock()
        self.url = ""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_POST(self) -> None:
        """`/deliveries`: applied once under its key."""
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["idempotency-key"]
        with self.site.lock:
            self.site.posts[key] += 1
            self.site.held.setdefault(key, said["data"]["content_hash"])
        self._say(200, b"{}")

    def _say(self, status: int, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:  # a client that was killed
            self.close_connection = True

    def do_GET(self) -> None:
        """`/p/NUMBER`, and `/deliveries/KEY`."""
        if self.path.startswith("/deliveries/"):
            held = self.site.held.get(unquote(self.path.removeprefix("/deliveries/")))
            self._say(200 if held else 404, json.dumps({"content_hash": held}).encode() if held else b"")
            return
        if self.path == "/robots.txt":
            self._say(404, b"")
            return
        with self.site.lock:
            self.site.requests[self.path] += 1
        number = self.path.removeprefix("/p/")
        known = number.isdecimal() and int(number) < len(self.site.bodies)
        body = self.site.bodies[int(number)] if known else b"no such page"
        time.sleep(self.site.delay_seconds)
        try:
            self.send_response(200 if known else 404)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            for half in (body[: len(body) // 2], body[len(body) // 2 :]):
                self.wfile.write(half)
                self.wfile.flush()
        except OSError:  # a client that was killed
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """`requests` tells."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are killed here all the time; anything else is a fault of ours and is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def running(pages: int) -> Iterator[Site]:
    """The site answers for as long as the block lasts."""
    site = Site(pages)
    handler = type("_Handler", (_Handler,), {"site": site})
    server = _Server(("127.0.0.1", 0), handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
