"""One page in a browser: its document and everything it asks for come through our own client, until it is settled.

The browser has no network. Each request that Playwright shows is refused, or sent by `sources.http`, with the same
checks of addresses, the same bounds and one charge to its origin; the answer is handed to the browser. A redirected
document is moved to in the page, so that its address is the one that answered.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
from playwright.async_api import Error as PlaywrightError

from scrape_assets.rules import subrequests, urls
from scrape_assets.rules.page import Cookie, FetchFailure, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.subrequests import Look
from scrape_assets.sources.http import MAX_REDIRECTS, HttpSource

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession, Frame, Page, Request, Route, WebSocketRoute

QUIET_SECONDS = 0.5
"""A loaded page that has asked for nothing for so long is settled; Playwright's own `networkidle` waits as long."""

PATIENT_QUIET_SECONDS = 5.0
"""So long must it be quiet where `wait_for` is not there: then it is another page, and reading it tells which."""

LOOK_SECONDS = 0.1
"""How often it is looked whether the page is settled."""

LANES = 6
"""Requests of one page in flight, as many as browsers open to one host."""

CRASHED = "the browser's process of this page ended: a crash, or more memory than its pages may take"

MAX_PAGE_BODIES = 5
"""All that a page loads may be as large as so many bodies of the declared size."""

_HTML = frozenset({"", "text/html", "application/xhtml+xml"})
# Headers that describe the transfer between us and the site, or would send the browser where it cannot go:
# what HSTS upgrades, it asks for by a redirect of its own. A page is shown even where it is sent for saving.
_NOT_FOR_BROWSER = frozenset(
    "alt-svc connection content-disposition content-encoding content-length keep-alive strict-transport-security "
    "transfer-encoding".split()
)
_NOT_FOR_SITE = frozenset(
    "accept-encoding connection content-length cookie host proxy-authorization te transfer-encoding upgrade "
    "user-agent".split()
)

# Run in a world of our own, which scripts of the page cannot reach into.
_STATE = "[document.readyState === 'complete', CSS_SELECTOR !== null && document.querySelector(CSS_SELECTOR) !== null]"
_CONTENT = """(() => {
  const html = document.documentElement ? document.documentElement.outerHTML : '';
  const type = document.doctype ? new XMLSerializer().serializeToString(document.doctype) : '';
  return [location.href, html.length, html.length > LIMIT ? '' : type + html];
})()"""


@dataclass(frozen=True, slots=True)
class Asking:
    """How the site is asked for a page and for what that needs, as `HttpSource.fetch` has it."""

    site: str
    headers: Mapping[str, str]
    timeout_seconds: float
    max_body_bytes: int
    allow_private: bool
    look: Look
    charge: Callable[[str], Awaitable[None]]


def is_page(answer: Response) -> bool:
    """Whether there is something to show: HTML with a good status. All else is judged as it came."""
    return 200 <= answer.status < 300 and is_html(answer)


def is_html(answer: Response) -> bool:
    """Whether it says that it is HTML, or says nothing."""
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower() in _HTML


class Visit:
    """One page, shown once."""

    def __init__(self, http: HttpSource, first: Response, asking: Asking) -> None:
        self._http = http
        self._asking = asking
        self._asked = first.url
        self._first: Response | None = first
        self._document = first
        """The answer that the page in the main frame came with."""
        self._chain: list[str] = list(first.redirects)
        self._moved: dict[str, Response] = {}
        """Documents that were fetched through redirects and wait for the frame to move to their address."""
        self._answering: set[asyncio.Task[None]] = set()
        self._lanes = asyncio.Semaphore(LANES)
        self._clock = asyncio.get_running_loop().time
        self._active = self._clock()
        self._sent = 1
        self._moves = 0
        self._bytes = len(first.body)
        self._kinds: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()
        self._ended: asyncio.Future[FetchFailure] = asyncio.get_running_loop().create_future()
        self._page: Page
        self._context: BrowserContext

    async def show(self, context: BrowserContext, seconds: float) -> Response | FetchFailure:
        """The page as its scripts left it, or why it never settled; PlaywrightError when the browser is lost.

        `context` is this page's own and is left to the caller to close.
        """
        self._context = context
        reading = asyncio.create_task(self._open())
        try:
            outcomes: set[asyncio.Future[Any]] = {reading, self._ended}
            await asyncio.wait(outcomes, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                return self._ended.result()
            if not reading.done():
                return self._failed(FailureClass.TIMEOUT, f"not settled within {seconds:.3g} s: {self._unsettled()}")
            try:
                return reading.result()
            except _NoValue as error:
                return self._failed(error.failure_class, error.reason)
            except PlaywrightError as error:
                if "crashed" in str(error):
                    return self._failed(FailureClass.EXTRACTOR_CRASHED, CRASHED)
                raise
        finally:
            await _end({reading, *self._answering})
            self._ended.cancel()

    async def _open(self) -> Response | FetchFailure:
        context, everything = self._context, re.compile("")
        await context.route(everything, self._routed)
        await context.route_web_socket(everything, self._refuse_socket)
        self._page = page = await context.new_page()
        context.on("page", lambda other: self._track(_quietly(other.close)))
        page.on("crash", lambda _: self.end(FailureClass.EXTRACTOR_CRASHED, CRASHED))
        page.on("dialog", lambda dialog: self._track(_quietly(dialog.dismiss)))
        page.on("download", lambda download: self._track(_quietly(download.cancel)))
        return await self._read(page)

    def end(self, failure_class: FailureClass, reason: str) -> None:
        """The visit is over, for this reason, unless it had one."""
        if not self._ended.done():
            self._ended.set_result(self._failed(failure_class, reason))

    def _failed(self, failure_class: FailureClass, reason: str) -> FetchFailure:
        document = self._document
        said = f"{reason}; {self._remark()}"
        return FetchFailure(failure_class, said, document.status, document.final_url, tuple(self._chain))

    def _remark(self) -> str:
        return subrequests.told(self._sent, self._kinds, self._hosts)

    def _unsettled(self) -> str:
        if waited := self._asking.look.wait_for:
            return f"{waited!r} is not there"
        return f"{len(self._answering)} requests in flight" if self._answering else "its scripts do not rest"

    # -- what the page is, in the end

    async def _read(self, page: Page) -> Response | FetchFailure:
        devtools = await self._context.new_cdp_session(page)
        await page.goto(self._document.final_url, wait_until="commit", timeout=0)
        self._active = self._clock()
        while not await self._settled(devtools):  # noqa: ASYNC110 - what happens in the page tells nobody
            await asyncio.sleep(LOOK_SECONDS)
        limit = self._asking.max_body_bytes
        content = _CONTENT.replace("LIMIT", str(limit))
        while (found := await _evaluated(devtools, content, FailureClass.TOO_LARGE)) is None:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        address, length, html = found
        if address.startswith("chrome-error:"):
            return self._failed(FailureClass.TRANSPORT, "the browser shows an error of its own in place of the page")
        # Of a lone surrogate, which no encoding has, a question mark is left.
        body = html.encode("utf-8", "replace")
        if length > limit or len(body) > limit:
            return self._failed(FailureClass.TOO_LARGE, f"the page grew to {length:,} characters; {limit:,} are read")
        first = self._document
        kept = {name: value for name, value in first.headers.items() if name not in _NOT_FOR_BROWSER}
        final_url = address if subrequests.scope(address, site=self._asking.site, hosts=()) else first.final_url
        return replace(
            first,
            url=self._asked,
            final_url=final_url.partition("#")[0] if "#!" not in final_url else final_url,
            headers={**kept, "content-type": "text/html; charset=utf-8"},
            body=body,
            redirects=tuple(self._chain),
            remark=self._remark(),
        )

    async def _settled(self, devtools: CDPSession) -> bool:
        selector = orjson.dumps(self._asking.look.wait_for).decode()
        state = await _evaluated(devtools, _STATE.replace("CSS_SELECTOR", selector), FailureClass.EXTRACTION)
        if state is None:
            return False
        loaded, found = state
        if found:
            return True
        quiet = 0.0 if self._answering else self._clock() - self._active
        enough = QUIET_SECONDS if self._asking.look.wait_for is None else PATIENT_QUIET_SECONDS
        return bool(loaded) and quiet >= enough

    # -- what the page asks for

    def _routed(self, route: Route) -> None:
        self._track(self._answer(route))

    def _track(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._answering.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._active = self._clock()
        if not task.cancelled() and (error := task.exception()) and not self._ended.done():
            self._ended.set_exception(error)

    async def _answer(self, route: Route) -> None:
        with suppress(PlaywrightError):  # a page that is gone wants no answer
            answer = await self._obtain(route.request)
            if answer is None:
                # A document that does not come leaves the page where it is; other codes would show an error's page.
                await route.abort("aborted" if route.request.is_navigation_request() else "blockedbyclient")
                return
            headers = {name: value for name, value in answer.headers.items() if name not in _NOT_FOR_BROWSER}
            await route.fulfill(status=answer.status, headers=headers, body=answer.body)

    def _refuse_socket(self, socket: WebSocketRoute) -> None:
        self._kinds["websocket"] += 1
        self._track(_quietly(socket.close))

    def _frame(self, request: Request) -> Frame | None:
        """The frame of this page that asks; None for what another page asks."""
        try:
            frame = request.frame
        except PlaywrightError:  # a popup's first request has none yet
            return None
        return frame if frame.page == self._page else None

    async def _obtain(self, request: Request) -> Response | None:
        """What the browser is given; None for what is refused or cannot be had."""
        if (frame := self._frame(request)) is None:
            self._kinds["popup"] += 1
            return None
        document = request.is_navigation_request()
        main = document and frame == self._page.main_frame
        url = request.url
        if main and self._first is not None:
            first, self._first = self._first, None
            await self._remember(first.cookies)
            return first
        if document and (moved := self._moved.pop(url, None)) is not None:
            return moved
        scope = self._permitted(request, url, main=main)
        if scope is None or not self._counted():
            return None
        answer = await self._fetched(request, url, scope)
        if isinstance(answer, FetchFailure):
            if main:
                self.end(answer.failure_class, f"the page moved to {url[:300]}: {answer.reason}")
            return None
        self._bytes += len(answer.body)
        if self._bytes > MAX_PAGE_BODIES * self._asking.max_body_bytes:
            self.end(FailureClass.TOO_LARGE, f"the page loaded more than {self._bytes:,} bytes in all")
            return None
        await self._remember(answer.cookies)
        if main and not self._may_move(answer):
            return None
        if document and answer.redirects:
            self._moved[answer.final_url.partition("#")[0]] = answer
            return _moving(answer)
        return answer

    def _permitted(self, request: Request, url: str, *, main: bool) -> str | None:
        """The site within which it is asked for; None where it is not, which is counted."""
        if said := subrequests.refused(request.method, request.resource_type, self._asking.look):
            self._kinds[said] += 1
            return None
        # The main frame stays on the site, as a redirect does; what a page loads may come from allowed hosts too.
        hosts = () if main else self._asking.look.hosts
        scope = subrequests.scope(url, site=self._asking.site, hosts=hosts)
        if scope is None:
            self._hosts[urlsplit(url).netloc or urlsplit(url).scheme] += 1
            if main:
                reason = f"the page moved to {url[:300]}, which is outside the site {self._asking.site}"
                self.end(FailureClass.REDIRECTED, reason)
        return scope

    def _counted(self) -> bool:
        limit = self._asking.look.max_requests
        if self._sent >= limit:
            self.end(FailureClass.TOO_LARGE, f"the page makes more than {limit} requests (fetch.max_requests)")
            return False
        self._sent += 1
        return True

    async def _fetched(self, request: Request, url: str, scope: str) -> Response | FetchFailure:
        asking = self._asking
        own = scope == asking.site
        declared = asking.headers if own else {"user-agent": asking.headers["user-agent"]}
        headers = {name: value for name, value in request.headers.items() if _is_for_site(name)} | {**declared}
        if own and (cookies := await self._context.cookies(url)):
            headers["cookie"] = "; ".join(f"{one['name']}={one['value']}" for one in cookies)
        async with self._lanes:
            await asking.charge(urls.origin(url))
            return await self._http.fetch(
                url,
                site=scope,
                headers=headers,
                timeout_seconds=asking.timeout_seconds,
                max_body_bytes=asking.max_body_bytes,
                allow_private=asking.allow_private and own,
                charge=asking.charge,
                content=(request.post_data_buffer or b"") if request.method == "POST" else None,
            )

    def _may_move(self, answer: Response) -> bool:
        """The main frame takes this document from now on, unless it moves without end."""
        if not is_html(answer) or "content-disposition" in answer.headers:
            self._kinds["download"] += 1
            return False
        self._moves += 1
        self._chain += [self._document.final_url, *answer.redirects]
        self._document = answer
        if self._moves > MAX_REDIRECTS:
            self.end(FailureClass.REDIRECTED, f"the page is still moving after {MAX_REDIRECTS} documents")
            return False
        return True

    async def _remember(self, cookies: tuple[Cookie, ...]) -> None:
        if cookies:
            await self._context.add_cookies([{**one._asdict()} for one in cookies])  # type: ignore[typeddict-item]


def _is_for_site(name: str) -> bool:
    return name not in _NOT_FOR_SITE and not name.startswith((":", "sec-ch-"))


def _moving(answer: Response) -> Response:
    """A document that moves its frame to where the answer came from."""
    target = orjson.dumps(answer.final_url).decode().replace("<", "\\u003c")
    body = f"<!doctype html><script>location.replace({target})</script>".encode()
    return replace(answer, status=200, headers={"content-type": "text/html; charset=utf-8"}, body=body)


class _NoValue(Exception):
    """The document cannot be asked that."""

    def __init__(self, failure_class: FailureClass, reason: str) -> None:
        super().__init__(reason)
        self.failure_class, self.reason = failure_class, reason


async def _evaluated(devtools: CDPSession, expression: str, otherwise: FailureClass) -> Any:
    """Its value in the main frame's document; None while that is being replaced. Else _NoValue, of that class."""
    try:
        tree = await devtools.send("Page.getFrameTree")
        frame = tree["frameTree"]["frame"]["id"]
        world = await devtools.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "scrape_assets"})
        answer = await devtools.send(
            "Runtime.evaluate",
            {"contextId": world["executionContextId"], "expression": expression, "returnByValue": True},
        )
    except PlaywrightError as error:
        if any(words in str(error) for words in _REPLACED):
            return None
        raise
    if thrown := answer.get("exceptionDetails"):
        said = thrown.get("exception", {}).get("description") or thrown.get("text", "")
        raise _NoValue(otherwise, f"the browser refuses to look: {said.splitlines()[0][:300]}")
    return answer["result"]["value"]


_REPLACED = ("Cannot find context", "context was destroyed", "navigated or closed", "No frame", "Frame with the given")


async def _quietly(act: Callable[[], Awaitable[object]]) -> None:
    with suppress(PlaywrightError):
        await act()


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
