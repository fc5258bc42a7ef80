"""What a page in a browser asks for: refused, or sent by our own client, and the answer handed to the browser.

A redirected document is moved to in the page, so that its address is the one that answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson
from playwright.async_api import Error as PlaywrightError

from scrape_assets.rules import subrequests, urls
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.subrequests import Look
from scrape_assets.sources.http import MAX_REDIRECTS, HttpSource

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Request, Route, WebSocketRoute

LANES = 6
"""Requests of one page in flight, as many as browsers open to one host."""

MAX_PAGE_BODIES = 5
"""All that a page loads may be as large as so many bodies of the declared size."""

MAX_TRIES = 10
"""A page may try so many times the requests it may make: what is refused costs us time as well."""

_HTML = frozenset({"", "text/html", "application/xhtml+xml"})
# Headers that describe the transfer between us and the site, or would send the browser where it cannot go:
# what HSTS upgrades, it asks for by a redirect of its own. A page is shown even where it is sent for saving.
NOT_FOR_BROWSER = frozenset(
    "alt-svc connection content-disposition content-encoding content-length keep-alive strict-transport-security "
    "transfer-encoding".split()
)
_NOT_FOR_SITE = frozenset(
    "accept-encoding connection content-length cookie host proxy-authorization te transfer-encoding upgrade "
    "user-agent".split()
)


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


class Requests:
    """The requests of one page, counted, and the documents that its main frame came to.

    `end` is told why the page is to be given up.
    """

    def __init__(
        self, http: HttpSource, first: Response, asking: Asking, end: Callable[[FailureClass, str], None]
    ) -> None:
        self._http = http
        self._asking = asking
        self._end = end
        self._first: Response | None = first
        self._moved: dict[str, Response] = {}
        """Documents that were fetched through redirects and wait for the frame to move to their address."""
        self._lanes = asyncio.Semaphore(LANES)
        self._clock = asyncio.get_running_loop().time
        self._tries = 0
        self._sent = 1
        self._moves = 0
        self._bytes = len(first.body)
        self._kinds: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()
        self.page: Page
        self.document = first
        """The answer that the page in the main frame came with."""
        self.chain: list[str] = list(first.redirects)
        """Addresses on the way to it."""
        self.under_way: set[asyncio.Task[None]] = set()
        self.fault: BaseException | None = None
        """A mistake of ours in answering, which is not the page's."""
        self.active = self._clock()
        """When the last one began or ended."""

    def told(self) -> str:
        """What was asked for, in a sentence."""
        return subrequests.told(self._sent, self._kinds, self._hosts)

    def quiet_seconds(self) -> float:
        """For how long nothing has been asked for."""
        return 0.0 if self.under_way else self._clock() - self.active

    def routed(self, route: Route) -> None:
        """Playwright's handler of every request."""
        self._tries += 1
        if self._tries > MAX_TRIES * self._asking.look.max_requests:
            self._end(FailureClass.TOO_LARGE, f"the page tries more than {self._tries - 1} requests")
            return
        self.track(self._answer(route))

    def refuse_socket(self, socket: WebSocketRoute) -> None:
        """Playwright's handler of every websocket."""
        self._kinds["websocket"] += 1
        self.track(quietly(socket.close))

    def track(self, work: Coroutine[Any, Any, None]) -> None:
        """It is done beside the rest; the page is not quiet meanwhile."""
        task = asyncio.ensure_future(work)
        self.under_way.add(task)
        self.active = self._clock()
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.under_way.discard(task)
        self.active = self._clock()
        if not task.cancelled() and (error := task.exception()):
            self.fault = error
            self._end(FailureClass.TRANSPORT, "a request was not answered")

    async def _answer(self, route: Route) -> None:
        document = route.request.is_navigation_request()
        answer = await self._obtain(route.request, document=document)
        with suppress(PlaywrightError):  # a page that is gone wants no answer
            if answer is not None:
                headers = {name: value for name, value in answer.headers.items() if name not in NOT_FOR_BROWSER}
                try:
                    await route.fulfill(status=answer.status, headers=headers, body=answer.body)
                    return
                except PlaywrightError:
                    self._kinds["answer that the browser does not take"] += 1
            # A document that does not come leaves the page where it is; other codes would show an error's page.
            await route.abort("aborted" if document else "blockedbyclient")

    def _frame(self, request: Request) -> Frame | None:
        """The frame of this page that asks; None for what another page asks."""
        try:
            frame = request.frame
        except PlaywrightError:  # a popup's first request has none yet
            return None
        return frame if frame.page == self.page else None

    async def _obtain(self, request: Request, *, document: bool) -> Response | None:
        """What the browser is given; None for what is refused or cannot be had."""
        if (frame := self._frame(request)) is None:
            self._kinds["popup"] += 1
            return None
        main = document and frame == self.page.main_frame
        url = request.url
        if main and self._first is not None:
            first, self._first = self._first, None
            await self._remember(first)
            return first
        if document and (moved := self._moved.pop(url, None)) is not None:
            return moved
        scope = self._permitted(request, url, main=main)
        if scope is None or not self._counted():
            return None
        answer = await self._fetched(request, url, scope)
        if isinstance(answer, FetchFailure):
            if main:
                self._end(answer.failure_class, f"the page moved to {url[:300]}: {answer.reason}")
            return None
        self._bytes += len(answer.body)
        if self._bytes > MAX_PAGE_BODIES * self._asking.max_body_bytes:
            self._end(FailureClass.TOO_LARGE, f"the page loaded more than {self._bytes:,} bytes in all")
            return None
        await self._remember(answer)
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
                self._end(FailureClass.REDIRECTED, reason)
        return scope

    def _counted(self) -> bool:
        limit = self._asking.look.max_requests
        if self._sent >= limit:
            self._end(FailureClass.TOO_LARGE, f"the page makes more than {limit} requests (fetch.max_requests)")
            return False
        self._sent += 1
        return True

    async def _fetched(self, request: Request, url: str, scope: str) -> Response | FetchFailure:
        asking = self._asking
        own = scope == asking.site
        declared = asking.headers if own else {"user-agent": asking.headers["user-agent"]}
        headers = {name: value for name, value in request.headers.items() if _is_for_site(name)} | {**declared}
        if own and (cookies := await self._cookies(url)):
            headers["cookie"] = cookies
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

    async def _cookies(self, url: str) -> str:
        with suppress(PlaywrightError):
            return "; ".join(f"{one['name']}={one['value']}" for one in await self.page.context.cookies(url))
        return ""

    def _may_move(self, answer: Response) -> bool:
        """The main frame takes this document from now on, unless it moves without end."""
        if not is_html(answer) or "content-disposition" in answer.headers:
            self._kinds["download"] += 1
            return False
        self._moves += 1
        self.chain += [self.document.final_url, *answer.redirects]
        self.document = answer
        if self._moves > MAX_REDIRECTS:
            self._end(FailureClass.REDIRECTED, f"the page is still moving after {MAX_REDIRECTS} documents")
            return False
        return True

    async def _remember(self, answer: Response) -> None:
        """What its redirects set is sent from now on; one that Chromium refuses is as lost as it would be there."""
        for one in answer.cookies:
            await quietly(partial(self.page.context.add_cookies, [{**one._asdict()}]))  # type: ignore[typeddict-item]


def _is_for_site(name: str) -> bool:
    return name not in _NOT_FOR_SITE and not name.startswith((":", "sec-ch-"))


def _moving(answer: Response) -> Response:
    """A document that moves its frame to where the answer came from."""
    target = orjson.dumps(answer.final_url).decode().replace("<", "\\u003c")
    body = f"<!doctype html><script>location.replace({target})</script>".encode()
    return replace(answer, status=200, headers={"content-type": "text/html; charset=utf-8"}, body=body)


async def quietly(act: Callable[[], Awaitable[object]]) -> None:
    """It is done, unless its page is gone."""
    with suppress(PlaywrightError):
        await act()
