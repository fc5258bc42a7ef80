"""A destination on loopback that behaves as destinations do: it applies and fails to say so, hangs, refuses, lies."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote


class Receiver:
    """`behave` says how the next POSTs are answered; `held` is what it has, by key; `posts` counts what it was sent."""

    def __init__(self) -> None:
        self.behave = "well"
        self.held: dict[str, dict[str, Any]] = {}
        self.applied: Counter[str] = Counter()
        self.posts: list[tuple[dict[str, str], bytes]] = []
        self.asked: list[str] = []
        self.find_status: int | None = None
        self.url = ""

    def post(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str]] | None:
        """Applied as `behave` says; the answer, or none at all."""
        self.posts.append((headers, body))
        key = headers["idempotency-key"]
        match self.behave:
            case "lie":
                return 200, {}
            case "refuse":
                return 422, {}
            case "busy":
                return 429, {"retry-after": "7"}
            case "unavailable":
                return 503, {}
            case "redirect":
                return 302, {"location": self.url + "/elsewhere"}
        if key not in self.held:
            self.applied[key] += 1
            self.held[key] = json.loads(body)
        if self.behave == "apply and fail":
            return 500, {}
        if self.behave in ("apply and hang", "apply and reset"):
            return None
        return 200, {}


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A destination for as long as the block lasts."""
    it = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            if "content-length" in self.headers:
                body = self.rfile.read(int(self.headers["content-length"]))
            else:
                body = b""
            answer = it.post({name.lower(): value for name, value in self.headers.items()}, body)
            if answer is None:
                if it.behave == "apply and hang":
                    time.sleep(5)
                self.close_connection = True
                return
            self._say(answer[0], answer[1], b"{}")

        def do_GET(self) -> None:
            key = unquote(self.path.rsplit("/", 1)[1])
            it.asked.append(key)
            if it.find_status:
                self._say(it.find_status, {}, b"")
            elif key in it.held:
                self._say(200, {}, json.dumps({"content_hash": it.held[key]["data"].get("content_hash")}).encode())
            else:
                self._say(404, {}, b"")

        def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests read `posts`."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    it.url = f"http://127.0.0.1:{server.server_address[1]}/prices"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield it
    finally:
        server.shutdown()
        server.server_close()
