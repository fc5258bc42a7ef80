"""Pages through a real Chromium on loopback: what they may ask for, how they end, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.subrequests import Look
from scrape_assets.sources import chromium
from scrape_assets.sources.browser import BrowserSource
from scrape_assets.sources.chromium import BrowserOptions, BrowserUnavailable
from scrape_assets.sources.http import HttpSource
from tests.helpers.chromium import (
    PROGRAM,
    Internal,
    all_gone,
    browsers,
    internal,
    live,
    main_process,
    needs_chromium,
    stop,
    until,
)
from tests.helpers.site import Site, site

pytestmark = [needs_chromium, pytest.mark.timeout(240)]

HTML = {"content-type": "text/html; charset=utf-8"}
JS = {"content-type": "text/javascript"}
JSON = {"content-type": "application/json"}
Answer = tuple[int, dict[str, str], bytes]


def html(text: str) -> Answer:
    return 200, HTML, f"<!doctype html><html><head><title>t</title></head><body>{text}</body></html>".encode()


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


class Counting:
    """Gates that let everything through and count by origin; a turn takes so long."""

    def __init__(self, turn_seconds: float = 0.0) -> None:
        self.stood: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        self.answered_: Counter[str] = Counter()
        self.heeded: list[tuple[str, int]] = []
        self.pages: list[str] = []
        self.turn_seconds = turn_seconds
        self.forbidden = "/nowhere"

    @asynccontextmanager
    async def stand(self, origin: str, *, page: bool) -> AsyncIterator[Any]:
        self.stood[origin] += 1
        if page:
            self.pages.append(origin)
        yield self

    async def heed(self, origin: str, answer: Response) -> None:
        self.heeded.append((origin, answer.status))

    async def objection(self, url: str) -> str | None:
        return "robots.txt disallows it" if self.forbidden in url else None

    async def take(self, origin: str) -> None:
        self.taken[origin] += 1
        await asyncio.sleep(self.turn_seconds)

    async def answered(self, origin: str) -> None:
        self.answered_[origin] += 1


def serving(pages: dict[str, Answer]) -> Any:
    return lambda path: pages.get(path, (404, HTML, b"not here"))


async def shown(source: BrowserSource, shop: Site, path: str = "/p", **named: Any) -> Response | FetchFailure:
    how: dict[str, Any] = {
        "site": shop.url,
        "headers": {"user-agent": "scrape_assets (+http://example.com/bot)"},
        "timeout_seconds": 30.0,
        "max_body_bytes": 1_000_000,
    }
    return await source.fetch(shop.url + path, **how | named)


def show(shop: Site, path: str = "/p", **named: Any) -> Response | FetchFailure:
    """One page, by a browser of its own."""

    async def once() -> Response | FetchFailure:
        async with HttpSource() as http, BrowserSource(http, BrowserOptions(PROGRAM)) as source:
            return await shown(source, shop, path, **named)

    return asyncio.run(once())


def page(shop: Site, path: str = "/p", **named: Any) -> Response:
    answer = show(shop, path, **named)
    assert isinstance(answer, Response), answer
    return answer


def failure(shop: Site, path: str = "/p", **named: Any) -> FetchFailure:
    answer = show(shop, path, **named)
    assert isinstance(answer, FetchFailure), answer
    return answer


PRICED = """
<h1>Lamp</h1><p class=wait>loading</p>
<script src=/app.js></script>
"""
APP = b"""
fetch('/api/price', {method: 'POST', headers: {'content-type': 'application/json', 'x-app': '1'},
                     body: JSON.stringify({sku: 'L1'})})
  .then(answer => answer.json())
  .then(found => { document.querySelector('.wait').outerHTML = '<p class=price>' + found.price + '</p>' })
"""


def test_a_price_that_scripts_put_there_is_read_and_each_request_takes_a_turn_of_its_origin(shop: Site) -> None:
    shop.answer = serving(
        {"/p": html(PRICED), "/app.js": (200, JS, APP), "/api/price": (200, JSON, b'{"price": "19.99"}')}
    )
    counting = Counting()
    answer = page(shop, gates=counting)
    assert b'<p class="price">19.99</p>' in answer.body
    assert answer.body.startswith(b"<!DOCTYPE html>")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "content-length" not in answer.headers
    assert shop.requests == {"/p": 1, "/app.js": 1, "/api/price": 1}
    assert shop.posted["/api/price"] == b'{"sku":"L1"}'
    assert counting.taken == counting.answered_ == counting.stood == {shop.url: 3}
    assert counting.pages == [shop.url]
    assert answer.remark == "requests: 3"


def test_every_request_names_us_and_carries_the_declared_headers(shop: Site) -> None:
    seen: dict[str, Any] = {}
    shop.answer = serving(
        {"/p": html("<script>document.write('<p>' + navigator.userAgent)</script><script src=/a.js></script>")}
    )
    import http.server  # the helper's handler does not show headers; what the site gets is asked of a raw one

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen[self.path] = dict(self.headers.items())
            status, headers, body = shop.answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    import threading

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shop.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        answer = page(shop, headers={"user-agent": "scrape_assets", "x-agreed": "yes"})
    finally:
        server.shutdown()
        server.server_close()
    assert b"<p>scrape_assets" in answer.body
    for path in ("/p", "/a.js"):
        names = {name.lower(): value for name, value in seen[path].items()}
        assert (names["user-agent"], names["x-agreed"]) == ("scrape_assets", "yes")
        assert not any(name.startswith("sec-ch-") for name in names), "nothing claims to be Chrome"


def test_the_final_address_is_the_one_that_answered_and_cookies_of_the_way_are_kept(shop: Site) -> None:
    shop.answer = serving(
        {
            "/p": (302, {"location": "/es/p", "set-cookie": "currency=EUR; Path=/"}, b""),
            "/es/p": (
                200, {**HTML, "set-cookie": "seen=1; Expires=Wed, 01 Jan 2031 00:00:00 GMT; Path=/"},
                b"<p id=x></p><script>document.cookie = 'js=2; path=/';fetch('data').then(a => a.text()).then(t => {x.textContent = t})</script>",
            ),
            "/es/data": (200, JSON, b"the data"),
        }
    )  # fmt: skip
    answer = page(shop)
    assert (answer.final_url, answer.redirects) == (f"{shop.url}/es/p", (f"{shop.url}/p",))
    assert b"the data" in answer.body, "relative addresses are those of the page that answered"
    assert dict(pair.split("=") for pair in shop.cookies["/es/data"].split("; ")) == {
        "currency": "EUR",
        "seen": "1",
        "js": "2",
    }


def test_a_page_that_moves_on_is_followed_on_the_site_and_no_further(shop: Site) -> None:
    shop.answer = serving(
        {
            "/p": html("<script>location.href = '/next'</script>"),
            "/next": (301, {"location": "/there/"}, b""),
            "/there/": html(
                "<p id=x></p><script>fetch('a').then(a => a.text()).then(t => {x.textContent = t})</script>"
            ),
            "/there/a": (200, JSON, b"arrived"),
            "/out": html("<script>location.href = 'http://login.example/?from=shop'</script>"),
            "/round": html("<script>location.href = '/round?' + Math.random()</script>"),
            "/gone": html("<script>location.replace('/nothing')</script>"),
        }
    )
    answer = page(shop)
    assert answer.final_url == f"{shop.url}/there/"
    assert b"arrived" in answer.body
    assert answer.redirects == (f"{shop.url}/p", f"{shop.url}/next")
    out = failure(shop, "/out")
    assert out.failure_class is FailureClass.REDIRECTED
    assert "http://login.example/?from=shop, which is outside the site" in out.reason
    shop.answer = lambda _: html("<script>location.href = '/round?' + Math.random()</script>")
    assert failure(shop, "/round").failure_class is FailureClass.REDIRECTED
    shop.answer = serving({"/p": html("<script>location.replace('/nothing')</script>")})
    assert page(shop).status == 404


def test_other_hosts_are_not_asked_unless_they_are_allowed_and_are_named(shop: Site) -> None:
    with site() as other:
        other.answer = lambda _: (200, {**JSON, "access-control-allow-origin": "*"}, b"from elsewhere")
        foreign = other.url.removeprefix("http://")
        shop.answer = serving(
            {
                "/p": html(
                    f"<p id=x></p><img src=//{foreign}/i.png><img src=/i.png><script src=http://ads.example/a.js></script>"
                    f"<script>fetch('//{foreign}/a').then(a => a.text()).then(t => {{x.textContent = t}})</script>"
                )
            }
        )
        answer = page(shop)
        assert other.requests == {}
        assert shop.requests == {"/p": 1}
        assert answer.remark == (
            f"requests: 1; not sent: 2 image; to hosts that are not allowed: ads.example (1), {foreign} (1)"
        )
        counting = Counting()
        answer = page(shop, look=Look(hosts=(foreign,)), gates=counting)
        assert b"from elsewhere" in answer.body
        assert other.requests == {"/a": 1}
        assert counting.taken == {shop.url: 1, other.url: 1}
        assert other.cookies["/a"] == ""


REACHING = """
<link rel=preconnect href=http://{at}/><link rel=dns-prefetch href=http://{at}/><link rel=prefetch href=http://{at}/1>
<link rel=stylesheet href=http://{at}/2><link rel=preload as=script href=http://{at}/3><link rel=icon href=http://{at}/4>
<img src=http://{at}/5><img src=/to-internal><script src=http://{at}/6></script><iframe src=http://{at}/7></iframe>
<iframe src=/to-internal></iframe><object data=http://{at}/8></object><embed src=http://{at}/9><video src=http://{at}/10></video>
<iframe src=file:///etc/passwd></iframe><iframe srcdoc='<img src=http://{at}/11>'></iframe>
<form id=f action=http://{at}/12 target=inner method=post></form><iframe name=inner></iframe>
<div style='background: url(http://{at}/13)'>x</div><p id=done></p>
<script type=speculationrules>{{"prefetch": [{{"source": "list", "urls": ["http://{at}/14"]}}]}}</script>
<script>
const tries = [
  () => fetch('http://{at}/a', {{mode: 'no-cors'}}), () => fetch('/to-internal'), () => fetch('file:///etc/passwd'),
  () => fetch('http://localhost:{port}/'), () => fetch('http://0x7f.1:{port}/'), () => fetch('http://2130706433:{port}/'),
  () => fetch('http://[::1]:{port}/'), () => fetch('http://[::ffff:127.0.0.1]:{port}/'), () => fetch('http://169.254.169.254/latest'),
  () => fetch('http://127.0.0.1.nip.example:{port}/'), () => new WebSocket('ws://{at}/b'), () => new EventSource('http://{at}/c'),
  () => navigator.sendBeacon('http://{at}/d', 'x'), () => document.getElementById('f').submit(),
  () => {{ const x = new XMLHttpRequest(); x.open('GET', 'http://{at}/e'); x.send() }},
  () => window.open('http://{at}/f'), () => navigator.serviceWorker.register('/sw.js'),
  () => new Worker(URL.createObjectURL(new Blob(["new WebSocket('ws://{at}/g'); fetch('http://{at}/h'); importScripts('http://{at}/i')"]))),
  () => new SharedWorker('/worker.js'),
  () => new WebTransport('https://{at}/').ready,
  () => {{ const c = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{at}'}}, {{urls: 'turn:{at}?transport=tcp', username: 'a', credential: 'b'}}]}});
           c.createDataChannel('x'); return c.createOffer().then(o => c.setLocalDescription(o)) }},
  () => {{ const a = document.createElement('a'); a.href = '/p'; a.ping = 'http://{at}/k'; a.target = '_blank'; a.click() }},
  () => import('http://{at}/l'),
];
let ended = 0;
for (const one of tries) Promise.resolve().then(one).catch(() => 0).finally(() => {{ ended += 1 }});
setTimeout(() => {{ document.getElementById('done').className = 'tried' }}, 3000);
</script>
"""


def test_a_page_asks_no_more_than_twenty_origins(shop: Site) -> None:
    hosts = [f"127.0.0.{number}:9" for number in range(2, 32)]
    asked = "".join(f"<script>fetch('http://{host}/a')</script>" for host in hosts)
    shop.answer = serving({"/p": html(f"{asked}<script>fetch('/own')</script>"), "/own": (200, JSON, b"1")})
    counting = Counting()
    answer = page(shop, look=Look(hosts=tuple(hosts)), gates=counting)
    assert len(counting.stood) == 20
    assert shop.requests == {"/p": 1, "/own": 1}
    assert "not sent: 11 of more than 20 hosts" in answer.remark


def test_nothing_that_a_page_does_reaches_an_internal_service(shop: Site) -> None:
    async def scenario() -> tuple[Response | FetchFailure, Internal]:
        async with internal() as it, HttpSource() as http, BrowserSource(http, BrowserOptions(PROGRAM)) as source:
            at = f"127.0.0.1:{it.port}"
            worker = f"new WebSocket('ws://{at}/w'); fetch('http://{at}/x')".encode()
            shop.answer = serving(
                {
                    "/p": html(REACHING.format(at=at, port=it.port)),
                    "/to-internal": (302, {"location": f"http://{at}/secret"}, b""),
                    "/worker.js": (200, JS, worker),
                    "/sw.js": (200, JS, worker),
                }
            )
            answer = await shown(source, shop, look=Look(wait_for=".tried", block=frozenset()))
            await asyncio.sleep(1)
            return answer, it

    answer, it = asyncio.run(scenario())
    assert it.heard == []
    assert isinstance(answer, Response), answer
    assert shop.requests["/to-internal"] >= 2, "the redirect was met, and not taken"
    assert b"root:" not in answer.body
    assert f"127.0.0.1:{it.port} (" in answer.remark
    assert "websocket" in answer.remark


def test_without_our_client_the_browser_has_no_way_out(shop: Site) -> None:
    """What goes past the interception finds no network: here everything goes past it, and the arguments are alone."""
    from playwright.async_api import Route, async_playwright

    async def scenario() -> list[bytes]:
        async with internal() as it, async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium.find(BrowserOptions(PROGRAM)),
                args=list(chromium.ARGUMENTS),
                chromium_sandbox=os.geteuid() != 0,
            )
            page = await browser.new_page()

            async def passing(route: Route) -> None:
                if route.request.url != "http://shop.example/p":
                    await route.continue_()
                    return
                text = REACHING.format(at=f"127.0.0.1:{it.port}", port=it.port)
                await route.fulfill(status=200, headers=HTML, body=text.encode())

            await page.route("**/*", passing)
            await page.goto("http://shop.example/p", wait_until="commit")
            await page.wait_for_selector(".tried", state="attached")
            await asyncio.sleep(3)
            for address in (
                f"http://127.0.0.1:{it.port}/",
                f"http://localhost:{it.port}/",
                f"http://[::1]:{it.port}/",
                shop.url,
            ):
                with pytest.raises(Exception, match="ERR_"):
                    await page.goto(address)
            await browser.close()
            return it.heard

    assert asyncio.run(scenario()) == []
    assert shop.requests == {}


def test_a_page_that_never_rests_ends_at_its_wall_limit(shop: Site) -> None:
    polling = "<p class=price>1</p><script>setInterval(() => fetch('/tick'), 100)</script>"
    shop.answer = serving(
        {"/p": html(polling), "/tick": (200, JSON, b"1"), "/loop": html("<script>while (true) {}</script>")}
    )
    began = time.monotonic()
    answer = failure(shop, timeout_seconds=3.0)
    assert answer.failure_class is FailureClass.TIMEOUT
    assert "not settled within" in answer.reason
    assert time.monotonic() - began < 20
    assert shop.requests["/tick"] > 5
    began = time.monotonic()
    assert failure(shop, "/loop", timeout_seconds=3.0).failure_class is FailureClass.TIMEOUT
    assert time.monotonic() - began < 25, "a page whose scripts never return is given up as well"
    assert b"price" in page(shop, look=Look(wait_for=".price")).body, "what was waited for is there, all the same"


def test_what_is_waited_for_is_waited_for_and_its_lack_is_no_timeout(shop: Site) -> None:
    late = "<p id=x></p><script>setTimeout(() => { x.innerHTML = '<b class=price>5</b>' }, 2000)</script>"
    shop.answer = serving({"/p": html(late)})
    assert b'"price"' not in page(shop).body
    assert b'class="price"' in page(shop, look=Look(wait_for=".price")).body
    shop.answer = serving({"/p": html("<h1>No longer sold</h1>")})
    began = time.monotonic()
    assert b"No longer sold" in page(shop, look=Look(wait_for=".price")).body
    assert 5 <= time.monotonic() - began < 15
    bad = failure(shop, look=Look(wait_for="p:has-no-such("))
    assert bad.failure_class is FailureClass.EXTRACTION
    assert "not a valid selector" in bad.reason


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the test's browser puts what is temporary; a short path, since a profile holds a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(folder)


def test_dialogs_popups_downloads_and_permissions_come_to_nothing(shop: Site, places: Path) -> None:
    shop.answer = serving(
        {
            "/p": html(
                "<p id=x>no</p><script>alert(1); confirm(2); prompt(3); addEventListener('beforeunload', e => { e.preventDefault(); e.returnValue = 'stay' });"
                "const w = window.open('/popup'); print(); location.href = '/file.bin';"
                "navigator.geolocation.getCurrentPosition(() => { x.className = 'told' }, () => 0);"
                "Notification.requestPermission().then(p => { document.title = p });"
                "x.textContent = 'popup ' + (w === null)</script>"
            ),
            "/popup": html("popped up"),
            "/file.bin": (
                200,
                {"content-type": "application/octet-stream", "content-disposition": "attachment"},
                b"\0" * 1000,
            ),
        }
    )
    answer = page(shop)
    assert b'<p id="x">popup' in answer.body, "the scripts went on"
    assert answer.remark.endswith("not sent: 1 download, 1 popup")
    assert (answer.final_url, answer.redirects) == (f"{shop.url}/p", ())
    assert b'class="told"' not in answer.body
    assert b"<title>granted" not in answer.body
    assert shop.requests["/popup"] == 0
    assert list(places.iterdir()) == [], "nothing was saved"


def test_pages_without_bounds_end_by_them(shop: Site) -> None:
    growing = "<script>setInterval(() => { document.body.append('x'.repeat(100000)) }, 50)</script>"
    many = "<script>for (let i = 0; i < 500; i++) fetch('/a?' + i)</script>"
    heavy = "<script>for (let i = 0; i < 20; i++) fetch('/heavy?' + i)</script>"
    shop.answer = lambda path: (
        html({"/growing": growing, "/many": many, "/heavy": heavy}[path])
        if path in ("/growing", "/many", "/heavy")
        else (200, JSON, b"1" * (90_000 if "heavy" in path else 1))
    )
    grown = failure(shop, "/growing", max_body_bytes=100_000)
    assert grown.failure_class is FailureClass.TOO_LARGE
    assert "characters" in grown.reason
    asked = failure(shop, "/many", look=Look(max_requests=20))
    assert asked.failure_class is FailureClass.TOO_LARGE
    assert "more than 20 requests" in asked.reason
    assert sum(shop.requests.values()) <= 1 + 20
    assert failure(shop, "/heavy", max_body_bytes=100_000).failure_class is FailureClass.TOO_LARGE
    flood = "<script>for (let i = 0; i < 3000; i++) new Image().src = 'http://ads.example/' + i</script>"
    shop.answer = serving({"/p": html(flood)})
    flooded = failure(shop, look=Look(max_requests=20))
    assert flooded.failure_class is FailureClass.TOO_LARGE
    assert "tries more than 200 requests" in flooded.reason


@pytest.mark.slow
def test_an_endless_page_is_ended_for_its_memory_alone(shop: Site) -> None:
    endless = "<script>const kept = []; setInterval(() => { for (let i = 0; i < 2e5; i++) { const e = document.createElement('p'); e.textContent = 'x' + i; kept.push(e) } fetch('/tick') }, 10)</script>"
    shop.answer = serving({"/endless": html(endless), "/p": html("<p>a quiet one</p>"), "/tick": (200, JSON, b"1")})

    async def scenario() -> tuple[Response | FetchFailure, Response | FetchFailure, Counter[str], int]:
        options = BrowserOptions(PROGRAM, memory_bytes=700_000_000)
        async with HttpSource() as http, BrowserSource(http, options) as source:
            bad = asyncio.create_task(
                shown(source, shop, "/endless", timeout_seconds=60.0, look=Look(max_requests=5000))
            )
            await asyncio.sleep(1)
            good = await shown(source, shop, look=Look(wait_for=".never"))
            return await bad, good, source.counts, source.peak_memory_bytes

    bad, good, counts, peak = asyncio.run(scenario())
    assert isinstance(bad, FetchFailure)
    assert bad.failure_class is FailureClass.EXTRACTOR_CRASHED, bad
    assert isinstance(good, Response), good
    assert counts["ended"] >= 1
    assert peak < 2_500_000_000


def test_a_browser_over_its_memory_is_replaced_between_pages(shop: Site) -> None:
    slow = "<p id=x></p><script>setTimeout(() => fetch('/done').then(() => { x.className = 'price' }), 4000)</script>"
    shop.answer = serving({"/p": html("<p class=price>1</p>"), "/slow": html(slow), "/done": (200, JSON, b"1")})

    async def scenario() -> tuple[list[Response | FetchFailure], Counter[str]]:
        # A browser that has just started is over this, and below the size at which a page of it would be ended.
        async with (
            HttpSource() as http,
            BrowserSource(http, BrowserOptions(PROGRAM, memory_bytes=400_000_000, pages=4)) as source,
        ):
            look = Look(wait_for=".price")
            first = asyncio.create_task(shown(source, shop, "/slow", look=look))
            await asyncio.sleep(3)
            others = [asyncio.create_task(shown(source, shop, look=look)) for _ in range(3)]
            found = [await first, *[await one for one in others]]
            assert len([one for one in live(browsers()) if "run-driver" in one.cmdline()]) == 1
            return found, source.counts

    found, counts = asyncio.run(scenario())
    assert all(isinstance(one, Response) for one in found), found
    assert b'class="price"' in found[0].body, "the page in flight was shown to its end"
    assert counts["recycled"] >= 1
    assert counts["started"] == counts["recycled"] + 1
    assert counts["lost"] == counts["ended"] == 0


@pytest.mark.parametrize("which", ["browser", "driver", "renderer"])
def test_a_killed_browser_takes_only_its_pages_with_it(shop: Site, which: str) -> None:
    waiting = "<script>setInterval(() => fetch('/tick'), 200)</script>"
    shop.answer = serving({"/p": html("<p>1</p>"), "/wait": html(waiting), "/tick": (200, JSON, b"1")})

    async def scenario() -> tuple[FetchFailure, Response, Counter[str], list[psutil.Process]]:
        async with HttpSource() as http, BrowserSource(http, BrowserOptions(PROGRAM)) as source:
            under_way = asyncio.create_task(shown(source, shop, "/wait"))
            await until(lambda: shop.requests["/tick"])
            mine = browsers()
            if which == "browser":
                main_process().kill()
            elif which == "driver":
                next(one for one in mine if "run-driver" in one.cmdline()).kill()
            else:
                for one in mine:
                    if "--type=renderer" in one.cmdline():
                        one.kill()
            lost, next_one = await under_way, await shown(source, shop)
            assert isinstance(lost, FetchFailure)
            assert isinstance(next_one, Response), next_one
            return lost, next_one, source.counts, mine

    lost, _, counts, mine = asyncio.run(scenario())
    if which == "renderer":
        assert lost.failure_class is FailureClass.EXTRACTOR_CRASHED
        assert counts == {"started": 1}
    else:
        assert lost.failure_class is FailureClass.TRANSPORT
        assert counts == {"started": 2, "lost": 1}
    assert all_gone(mine)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["browser", "driver"])
def test_a_browser_that_hangs_is_ended_and_started_again(shop: Site, which: str) -> None:
    shop.answer = serving(
        {
            "/p": html("<p>1</p>"),
            "/wait": html("<script>setInterval(() => fetch('/tick'), 200)</script>"),
            "/tick": (200, JSON, b"1"),
        }
    )

    async def scenario() -> tuple[FetchFailure, list[psutil.Process]]:
        async with HttpSource() as http, BrowserSource(http, BrowserOptions(PROGRAM)) as source:
            under_way = asyncio.create_task(shown(source, shop, "/wait", timeout_seconds=5.0))
            await until(lambda: shop.requests["/tick"])
            mine = browsers()
            stop(main_process() if which == "browser" else next(one for one in mine if "run-driver" in one.cmdline()))
            lost = await under_way
            assert isinstance(lost, FetchFailure)
            assert isinstance(await shown(source, shop), Response)
            return lost, mine

    lost, mine = asyncio.run(scenario())
    assert lost.failure_class in (FailureClass.TIMEOUT, FailureClass.TRANSPORT)
    assert all_gone(mine)


def test_what_is_no_good_page_is_the_sites_own_answer_and_starts_no_browser(shop: Site) -> None:
    pages = {
        "/404": (404, HTML, b"gone"),
        "/503": (503, {**HTML, "retry-after": "7"}, b"later"),
        "/json": (200, JSON, b"{}"),
    }
    shop.answer = serving(pages)

    async def scenario() -> None:
        async with HttpSource() as http, BrowserSource(http, BrowserOptions("/no/such/browser")) as source:
            for path, (status, _, body) in pages.items():
                answer = await shown(source, shop, path)
                assert isinstance(answer, Response)
                assert (answer.status, answer.body) == (status, body)
            assert source.counts == {}
            shop.answer = serving({"/p": html("x")})
            with pytest.raises(
                BrowserUnavailable, match="SCRAPE_ASSETS_CHROMIUM=/no/such/browser: there is no such program"
            ):
                await shown(source, shop)

    asyncio.run(scenario())


def test_a_program_that_is_no_browser_is_told_once_in_its_own_words(shop: Site) -> None:
    shop.answer = serving({"/p": html("x")})

    async def scenario() -> None:
        async with HttpSource() as http, BrowserSource(http, BrowserOptions("/bin/false")) as source:
            with pytest.raises(BrowserUnavailable, match="/bin/false does not start"):
                await shown(source, shop)

    asyncio.run(scenario())
    assert not live(browsers())


def test_nothing_is_left_of_a_browser_that_was_closed(shop: Site, places: Path) -> None:
    shop.answer = serving({"/p": html("<p>1</p>")})
    mine: list[psutil.Process] = []

    async def scenario() -> None:
        async with HttpSource() as http, BrowserSource(http, BrowserOptions(PROGRAM)) as source:
            await shown(source, shop)
            mine.extend(browsers())
            assert len(list(places.iterdir())) >= 2

    asyncio.run(scenario())
    assert len(mine) > 3
    assert all_gone(mine)
    assert list(places.iterdir()) == []
