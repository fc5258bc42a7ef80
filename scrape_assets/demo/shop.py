"""The demo shop as a process: three retailers on ports of their own, and a front door with the bookshop.

    python -m scrape_assets.demo.shop --port 8800

serves the front door at 8800 and the retailers at 8801 to 8803, on 127.0.0.1 only; port 0 takes free ones.
The front door also answers for the tests: `/_log` (what was requested), `/_truth` (what is really sold) and
`POST /_control` (break the shop while it runs).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import html
import json
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import psutil
from aiohttp import web

from scrape_assets.demo import books, catalogue, lanterns, pages
from scrape_assets.demo.catalogue import RETAILERS, Fault, Page

FRONT = "front"
RETRY_AFTER_SECONDS = 1
DRIP_SECONDS = 0.25
"""A dripping page sends one byte this often: a page of 3,000 bytes would take over ten minutes."""

FAILURES = frozenset({"403", "404", "429", "500", "503"})
CONTROLS = frozenset({"fail_all", "delay_ms", "break_template", "reset"})
ROBOTS = "User-agent: *\nDisallow: /cart\nDisallow: /_\n"


@dataclass(frozen=True, slots=True)
class Body:
    """A rendered page, also compressed, so that serving it costs nothing but the socket."""

    plain: bytes
    packed: bytes

    @classmethod
    def of(cls, text: str) -> Body:
        """The text in UTF-8; the compressed form has no timestamp in it, so it is the same each time."""
        data = text.encode()
        return cls(data, gzip.compress(data, mtime=0))


@dataclass(slots=True)
class Shop:
    """What the shop serves and what it has seen. `sites` maps each retailer and `front` to its base URL."""

    sites: Mapping[str, str]
    fail_all: str | None = None
    delay_ms: float = 0.0
    break_template: str | None = None
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    requests: list[tuple[float, str, str, int, str | None]] = field(default_factory=list)
    _bodies: dict[tuple[str, str, bool], Body] = field(default_factory=dict)
    _pages: dict[tuple[str, str], Page] = field(default_factory=dict)
    _extras: dict[tuple[str, str], Body] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Renders everything once, before the first request."""
        for retailer in RETAILERS:
            self._extras[retailer, "/"] = Body.of(pages.home(retailer))
            self._extras[retailer, pages.LOGIN_PATHS[retailer]] = Body.of(pages.login(retailer))
            for page in catalogue.pages(retailer):
                self._pages[retailer, page.path] = page
                for broken in (False, True):
                    self._bodies[retailer, page.path, broken] = Body.of(pages.page(page, broken=broken))
                if retailer == "papelaria":
                    for offer in page.offers:
                        self._extras[retailer, offer.path] = Body.of(pages.stationery_detail(offer))
        self._extras[FRONT, "/"] = Body.of(_front_page(self.sites))
        self._extras[FRONT, "/books/"] = self._extras[FRONT, "/books"] = Body.of(books.shelf())
        for book in books.BOOKS:
            self._extras[FRONT, book.path] = Body.of(books.book_page(book))
        for lantern in lanterns.LANTERNS:
            self._extras[FRONT, lantern.path] = Body.of(lanterns.lantern_page(lantern))

    async def serve(self, site: str, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request, and records every one that is not a test's own."""
        if site == FRONT and request.path.startswith("/_"):
            return await self._answer_test(request)
        if self.delay_ms:
            await asyncio.sleep(self.delay_ms / 1000)
        if request.method not in ("GET", "HEAD"):
            return self._note(site, request, web.Response(status=405, headers={"Allow": "GET, HEAD"}))
        if request.path == "/robots.txt":
            return self._note(site, request, web.Response(text=ROBOTS))
        if site == FRONT and request.path == "/books/urls.txt":
            return self._note(site, request, web.Response(text=books.urls(self.sites[FRONT])))
        if site == FRONT and (script := _for_scripts(request.path)) is not None:
            kind, text = script
            return self._note(site, request, web.Response(text=text, content_type=kind))
        page = self._pages.get((site, request.path))
        if page is not None:
            return await self._answer_page(page, request)
        extra = self._extras.get((site, request.path))
        if extra is not None:
            return self._note(site, request, _html(extra, request, packed=False))
        return self._note(site, request, self._refuse(site, HTTPStatus.NOT_FOUND))

    async def _answer_page(self, page: Page, request: web.BaseRequest) -> web.StreamResponse:
        site, fault = page.retailer, page.fault
        body = self._bodies[site, page.path, self.break_template == site]
        if request.method == "GET":
            self.hits[site, page.path] += 1
        if self.fail_all:
            return self._note(site, request, self._refuse(site, HTTPStatus(int(self.fail_all))))
        if page.times and self.hits[site, page.path] > page.times:
            fault = None
        match fault:
            case Fault.RATE_LIMITED | Fault.UNAVAILABLE | Fault.NOT_FOUND | Fault.WITHDRAWN:
                return self._note(site, request, self._refuse(site, HTTPStatus(int(fault))), fault)
            case Fault.LOGIN:
                moved = web.Response(status=302, headers={"Location": pages.LOGIN_PATHS[site]})
                return self._note(site, request, moved, fault)
            case Fault.DRIP | Fault.TRUNCATED:
                return await self._answer_badly(page, body, request, fault)
            case _:
                # Consent, broken and messy pages are in the body; the answer itself is in order.
                return self._note(site, request, _html(body, request, packed=page.gzip), fault)

    async def _answer_badly(self, page: Page, body: Body, request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
        """Promises the whole body, then drips it or stops half-way."""
        packed = page.gzip and _accepts_gzip(request)
        data = body.packed if packed else body.plain
        headers = _headers(packed=packed) | {"Content-Length": str(len(data))}
        answer = web.StreamResponse(headers=headers)
        await answer.prepare(request)
        self._note(page.retailer, request, answer, fault)
        with contextlib.suppress(ConnectionError):
            if fault is Fault.DRIP:
                for at in range(len(data)):
                    await answer.write(data[at : at + 1])
                    await asyncio.sleep(DRIP_SECONDS)
            else:
                await answer.write(data[: len(data) // 2])
                if request.transport is not None:
                    request.transport.close()
        return answer

    def _refuse(self, site: str, status: HTTPStatus) -> web.Response:
        headers = {"Content-Type": "text/html; charset=utf-8"}
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
        retailer = site if site in RETAILERS else RETAILERS[0]
        text = pages.refusal(retailer, status.value, status.phrase) if site in RETAILERS else status.phrase
        return web.Response(status=status.value, body=text.encode(), headers=headers)

    def _note(
        self, site: str, request: web.BaseRequest, answer: web.StreamResponse, fault: Fault | None = None
    ) -> web.StreamResponse:
        self.requests.append((time.time(), site, request.path, answer.status, fault))
        return answer

    async def _answer_test(self, request: web.BaseRequest) -> web.Response:
        match request.method, request.path:
            case "GET", "/_log":
                return web.json_response(self.log())
            case "GET", "/_truth":
                return web.json_response(catalogue.truth(self.sites))
            case "POST", "/_control":
                try:
                    return web.json_response(self.control(await request.json()))
                except ValueError as error:  # of the JSON itself, or what it says
                    return web.json_response({"error": str(error)}, status=400)
            case _:
                return web.json_response({"error": "GET /_log, GET /_truth or POST /_control"}, status=404)

    def log(self) -> dict[str, Any]:
        """Every recorded request, and how many there were in all, of each URL, status and fault."""
        return {
            "total": len(self.requests),
            "paths": Counter(self.sites[site] + path for _, site, path, _, _ in self.requests),
            "statuses": Counter(str(status) for *_, status, _ in self.requests),
            "faults": Counter(str(fault) for *_, fault in self.requests if fault),
            "requests": [
                {"time": at, "site": site, "url": self.sites[site] + path, "status": status, "fault": fault}
                for at, site, path, status, fault in self.requests
            ],
        }

    def control(self, wanted: object) -> dict[str, Any]:
        """Changes how the shop behaves from the next request on, and says how it behaves now."""
        if not isinstance(wanted, dict) or not wanted.keys() <= CONTROLS:
            raise ValueError(f"expected an object with keys of {', '.join(sorted(CONTROLS))}; got {wanted!r}")
        fail_all = wanted.get("fail_all", self.fail_all)
        delay_ms = wanted.get("delay_ms", self.delay_ms)
        break_template = wanted.get("break_template", self.break_template)
        if fail_all is not None and fail_all not in FAILURES:
            raise ValueError(f"fail_all: expected null or one of {', '.join(sorted(FAILURES))}; got {fail_all!r}")
        if not isinstance(delay_ms, int | float) or not 0 <= delay_ms <= 60_000:
            raise ValueError(f"delay_ms: expected 0 to 60000; got {delay_ms!r}")
        if break_template is not None and break_template not in RETAILERS:
            raise ValueError(f"break_template: expected null or one of {', '.join(RETAILERS)}; got {break_template!r}")
        self.fail_all, self.delay_ms, self.break_template = fail_all, float(delay_ms), break_template
        if wanted.get("reset"):
            self.hits.clear()
            self.requests.clear()
        return {"fail_all": self.fail_all, "delay_ms": self.delay_ms, "break_template": self.break_template}


def _accepts_gzip(request: web.BaseRequest) -> bool:
    return "gzip" in request.headers.get("Accept-Encoding", "").lower()


def _headers(*, packed: bool) -> dict[str, str]:
    headers = {"Content-Type": "text/html; charset=utf-8", "Vary": "Accept-Encoding"}
    return headers | {"Content-Encoding": "gzip"} if packed else headers


def _html(body: Body, request: web.BaseRequest, *, packed: bool) -> web.Response:
    packed = packed and _accepts_gzip(request)
    return web.Response(body=body.packed if packed else body.plain, headers=_headers(packed=packed))


def _for_scripts(path: str) -> tuple[str, str] | None:
    """What the lantern shop's pages ask for once a browser runs them: its type and text."""
    if path == "/lanterns/app.js":
        return "text/javascript", lanterns.APP
    found = next((lantern for lantern in lanterns.LANTERNS if lantern.data_path == path), None)
    return None if found is None else ("application/json", lanterns.data(found))


def _front_page(sites: Mapping[str, str]) -> str:
    shops = "\n".join(
        f'<li><a href="{sites[name]}/">{html.escape(pages.BRANDS[name][0])}</a>: '
        f"{len(catalogue.pages(name))} pages, {html.escape(pages.BRANDS[name][1])}</li>"
        for name in RETAILERS
    )
    return pages.shell(
        "The demo shop",
        f"""<h1>The demo shop</h1>
<p>Three retailers that the demo collects, faults included:</p>
<ul>
{shops}
</ul>
<p>And one that waits for a file of yours: <a href="/books/">The Dry Harbour Bookshop</a>,
twelve pages, listed in <a href="/books/urls.txt">urls.txt</a>.</p>
<p>And one whose prices exist only after JavaScript ran: The Lantern Room, as
<a href="{lanterns.LANTERNS[0].path}">{html.escape(lanterns.LANTERNS[0].name)}</a>.</p>
<p><small>For tests: <a href="/_log">what was requested</a>,
<a href="/_truth">what is really sold</a>.</small></p>""",
        brand="The demo shop",
        tagline="on your own machine",
        language="en",
        accent="#333",
    )


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.close()
        raise
    return listener


async def _until_gone(parent: int | None) -> None:
    """Returns when the process `parent` has ended; never when there is none to watch."""
    if parent is None:
        await asyncio.Event().wait()
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(parent)
        # is_running compares the start time too, so that a reused pid does not keep the shop alive.
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(1.0)


async def _main(port: int, *, json_ready: bool, parent: int | None) -> None:
    listeners = {name: _listen(port and port + step) for step, name in enumerate((FRONT, *RETAILERS))}
    sites = {name: f"http://127.0.0.1:{one.getsockname()[1]}" for name, one in listeners.items()}
    shop = Shop(sites)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runners = []
    for name, listener in listeners.items():

        async def handle(request: web.BaseRequest, name: str = name) -> web.StreamResponse:
            return await shop.serve(name, request)

        runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.SockSite(runner, listener, backlog=1024).start()
        runners.append(runner)
    if json_ready:
        front = listeners[FRONT].getsockname()[1]
        retailers = {name: url for name, url in sites.items() if name != FRONT}
        print(json.dumps({"port": front, "url": sites[FRONT], "sites": retailers}), flush=True)
    else:
        print(f"The demo shop is open at {sites[FRONT]}/ (Ctrl-C closes it).", flush=True)
        for name in RETAILERS:
            print(f"  {name:10} {sites[name]}/", flush=True)
        print(f"  {'bookshop':10} {sites[FRONT]}/books/  (pages: {sites[FRONT]}/books/urls.txt)", flush=True)
    waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(_until_gone(parent))]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    for runner in runners:
        await runner.cleanup()


def main(arguments: list[str] | None = None) -> int:
    """Serves until SIGTERM, SIGINT or the end of `--parent`; returns 0, or 2 when a port is not free."""
    parser = argparse.ArgumentParser(
        prog="python -m scrape_assets.demo.shop",
        description="A small shop on this machine (127.0.0.1 only) to collect from: three retailers with "
        "300 pages of three templates, with the faults of real sites, and a bookshop to declare yourself.",
        epilog="The front door lists everything. /_log says what was requested, /_truth what is really sold; "
        'POST /_control {"fail_all": "503", "delay_ms": 200, "break_template": "papelaria", "reset": true} '
        "breaks it while it runs (null repairs).",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8800,
        metavar="N",
        help="port of the front door, the retailers get the next three; 0: free ones (default: %(default)s)",
    )
    parser.add_argument(
        "--json-ready",
        action="store_true",
        help="when ready, print one line of JSON with the addresses, nothing else",
    )
    parser.add_argument("--parent", type=int, metavar="PID", help="close when the process with this id has ended")
    chosen = parser.parse_args(arguments)
    if not 0 <= chosen.port <= 65535 - len(RETAILERS):
        parser.error(f"--port {chosen.port}: expected 0, or 1 to {65535 - len(RETAILERS)}")
    try:
        asyncio.run(_main(chosen.port, json_ready=chosen.json_ready, parent=chosen.parent))
    except OSError as error:
        last = chosen.port + len(RETAILERS)
        print(
            f"The demo shop cannot listen on ports {chosen.port} to {last} of 127.0.0.1: "
            f"{error.strerror or error}. Give another --port, or 0 for free ones.",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
