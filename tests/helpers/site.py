"""A small site that tests own: pages by path, scripted answers, every request recorded; one thread, one port."""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def product(sku: str, price: str = "19.99", currency: str = "EUR", **more: str) -> bytes:
    """A page with one JSON-LD product."""
    data = {
        "@context": "https://schema.org",
        "@type": "Product",
        "name": f"Product {sku}",
        "sku": sku,
        "offers": {
            "@type": "Offer",
            "price": price,
            "priceCurrency": currency,
            "availability": "https://schema.org/InStock",
        },
        **more,
    }
    return (
        f"<!doctype html><html><head><title>Product {sku}</title>"
        f'<script type="application/ld+json">{json.dumps(data)}</script></head>'
        f'<body><article class="product"><h1>Product {sku}</h1><p class="price">{price}</p></article></body></html>'
    ).encode()


class Site:
    """`answer(path)` gives (status, headers, body), `requests` counts by path; robots.txt is apart of both.

    `cookies`, `posted` and `conditions` (`If-None-Match`) are the last ones of each path. `served_limit` paths are answered, others wait for `gate`.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.answer: Callable[[str], tuple[int, dict[str, str], bytes]] = lambda path: (200, {}, product(path[3:]))
        self.cookies: dict[str, str] = {}
        self.posted: dict[str, bytes] = {}
        self.conditions: dict[str, str] = {}
        self.served_limit: int | None = None
        self.gate = threading.Event()
        self.served: set[str] = set()
        self.lock = threading.Lock()
        self.robots: tuple[int, bytes] = (404, b"")
        self.robots_requests = 0
        self.url = ""


@contextmanager
def site() -> Iterator[Site]:
    """A site on loopback for as long as the block lasts."""
    it = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/robots.txt":
                self.do_robots()
                return
            with it.lock:
                it.requests[self.path] += 1
                it.cookies[self.path] = self.headers.get("cookie", "")
                it.conditions[self.path] = self.headers.get("if-none-match", "")
                it.posted[self.path] = self.rfile.read(int(self.headers.get("content-length", 0)))
                held = it.served_limit is not None and len(it.served | {self.path}) > it.served_limit
                if not held:
                    it.served.add(self.path)
            if held:
                it.gate.wait(600)
            status, headers, body = it.answer(self.path)
            try:
                self.send_response(status)
                for name, value in {"content-type": "text/html; charset=utf-8", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        do_POST = do_GET

        def do_robots(self) -> None:
            with it.lock:
                it.robots_requests += 1
            status, body = it.robots
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests read `requests`."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    it.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        it.gate.set()
        server.shutdown()
        server.server_close()
