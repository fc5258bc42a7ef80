"""A site on loopback that answers as it is told, and remembers when each request came and how many were under way."""

from __future__ import annotations

import http.server
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from scrape_assets.demo.plain import page, truth


class Answer(NamedTuple):
    """A status, headers and a body, after so many seconds; or `raw`: exactly these bytes as they come, and the end."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    seconds: float = 0.0
    raw: Iterable[bytes] | None = None


def product(number: int) -> Answer:
    """The page of one product, as `demo.plain` sells it."""
    return Answer(body=page(truth(number + 1)[number]))


@dataclass
class Site:
    """`answer` is asked for each path; `arrivals` are (monotonic seconds, path), `peak` the most at one time."""

    answer: Callable[[str], Answer]
    robots: Answer = field(default_factory=lambda: Answer(404))
    url: str = ""
    arrivals: list[tuple[float, str]] = field(default_factory=list)
    peak: int = 0
    under_way: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def requests(self) -> Counter[str]:
        """How often each path was asked for, robots.txt left out."""
        with self.lock:
            return Counter(path for _, path in self.arrivals if path != "/robots.txt")

    def gaps(self) -> list[float]:
        """Seconds between one request's arrival and the next."""
        with self.lock:
            times = sorted(at for at, _ in self.arrivals)
        return [later - earlier for earlier, later in pairwise(times)]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def parse_request(self) -> bool:
        """The time of a request is when its first line is there."""
        self.arrived = time.monotonic()
        return super().parse_request()

    def do_GET(self) -> None:
        """Whatever the site's `answer` says."""
        site = self.site
        with site.lock:
            site.arrivals.append((self.arrived, self.path))
            site.under_way += 1
            site.peak = max(site.peak, site.under_way)
        answer = site.robots if self.path == "/robots.txt" else site.answer(self.path)
        if answer.seconds:
            time.sleep(answer.seconds)
        with site.lock:
            site.under_way -= 1
        try:
            if answer.raw is not None:
                self.close_connection = True
                for chunk in answer.raw:
                    self.wfile.write(chunk)
                return
            self.send_response(answer.status)
            for name, value in {"content-type": "text/html; charset=utf-8", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """`arrivals` tells."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news here."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def running(answer: Callable[[str], Answer] | None = None) -> Iterator[Site]:
    """The site answers for as long as the block lasts; by itself with the product of `/p/NUMBER`."""
    site = Site(answer or (lambda path: product(int(path.rpartition("/")[2]))))
    server = _Server(("127.0.0.1", 0), type("_Handler", (_Handler,), {"site": site}))
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
