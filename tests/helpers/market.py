"""A shop whose prices depend on a cookie: the postcode of the session, set by a form; one port of loopback."""

from __future__ import annotations

import http.server
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import parse_qs

SURCHARGE = {"28001": 1, "48001": 2, "41001": 3}
"""Euros on top of the price, by postcode; nobody's own page has none."""


class Asked(NamedTuple):
    at: float
    method: str
    path: str
    cookie: str
    body: str


class Market:
    """`sessions` holds the postcode of each cookie; the rest says how the shop misbehaves. `asked` has every request."""

    def __init__(self) -> None:
        self.url = ""
        self.sessions: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.ignores = False
        self.setup_status = 200
        self.setup_seconds = 0.0
        self.needs_token = False
        self.expires_after: int | None = None
        self.by_script = False
        self.lock = threading.Lock()
        self._numbers = itertools.count(1)

    def pages(self, path: str | None = None) -> list[Asked]:
        """The requests for products."""
        return [one for one in self.asked if one.path.startswith(path or "/p/")]

    def setups(self) -> list[Asked]:
        """The requests that set a postcode."""
        return [one for one in self.asked if one.path == "/set-zip"]

    def expire(self) -> None:
        """Nobody is known any more."""
        with self.lock:
            self.sessions.clear()


@contextmanager
def market() -> Iterator[Market]:
    """The shop, for as long as the block lasts."""
    it = Market()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._note("")
            if self.path == "/robots.txt":
                self._say(404, "")
            elif it.by_script and self.path.startswith("/p/"):
                self._expire()
                self._say(
                    200,
                    "<!doctype html><div id=app></div><script>fetch('/part' + location.pathname)"
                    ".then(answer => answer.text()).then(text => { app.innerHTML = text })</script>",
                )
            elif self.path == "/store":
                self._say(200, "<form action=/set-zip><input name=csrf value=t-1></form>", {"set-cookie": "seen=1"})
            else:
                self._page()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            # Before anybody who waits for this request can see it.
            status = it.setup_status
            self._note(body)
            time.sleep(it.setup_seconds)
            if status != 200:
                self._say(status, "not now")
                return
            form = {name: values[0] for name, values in parse_qs(body).items()}
            if it.needs_token and (form.get("csrf") != "t-1" or "seen=1" not in self.headers.get("cookie", "")):
                self._say(400, "no token")
                return
            with it.lock:
                number = f"s{next(it._numbers)}"
                it.sessions[number] = "00000" if it.ignores else form["zip"]
            self._say(302, "", {"set-cookie": f"sid={number}; Path=/; HttpOnly", "location": "/welcome"})

        def _page(self) -> None:
            cookies = dict(part.split("=", 1) for part in self.headers.get("cookie", "").split("; ") if part)
            with it.lock:
                postcode = it.sessions.get(cookies.get("sid", ""), "00000")
            self._expire()
            price = 10 + SURCHARGE.get(postcode, 0)
            sku = self.path.rpartition("/")[2]
            self._say(
                200,
                f"<!doctype html><html><body><header>Delivery to <b class=zip>{postcode}</b></header><article class=offer>"
                f"<h1>Product {sku}</h1><i class=sku>{sku}</i><b class=now>{price}.00</b></article></body></html>",
            )

        def _expire(self) -> None:
            with it.lock:
                if it.expires_after is not None and self.path.startswith("/p/"):
                    it.expires_after -= 1
                    if it.expires_after < 0:
                        it.expires_after = None
                        it.sessions.clear()

        def _note(self, body: str) -> None:
            with it.lock:
                it.asked.append(Asked(time.monotonic(), self.command, self.path, self.headers.get("cookie", ""), body))

        def _say(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
            body = text.encode()
            self.send_response(status)
            for name, value in {"content-type": "text/html; charset=utf-8", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests read `asked`."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    it.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield it
    finally:
        server.shutdown()
        server.server_close()
