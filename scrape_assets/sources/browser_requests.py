"""What a page in a browser asks for: refused, or sent by our own client, and the answer handed to the browser.

A redirected document is moved to in the page, so that its address is the one that answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import orjson
from playwright.async_api import Error as PlaywrightError

from scrape_assets.rules import page as pages
from scrape_assets.rules import subrequests, urls
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.subrequests import Look
from scrape_assets.sources.http import MAX_REDIRECTS, Gate, HttpSource, Jar

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Request, Route, WebSocketRoute

LANES = 6
"""Requests of one page to one origin under way, as many as browsers open connections to one host."""

MAX_ORIGINS = 20
"""Origins that one page may ask: a site can answer for any number of subdomains, and each would have a budget."""

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


class Gates(Protocol):
    """Leave to ask for a page with all that it needs."""

    def stand(self, origin: str, *, page: bool) -> AbstractAsyncContextManager[Gate | None]:
        """One request's place in line at its origin, until it has its answer. `page`: it is for the page itself."""

    async def objection(self, url: str) -> str | None:
        """Why the page does not move there; asked before its place in line, as it may be a request of its own."""

    async def heed(self, origin: str, answer: Response) -> None:
        """That is what the origin answered to what a page needs."""


class NoGates:
    """Leave at once, where nobody counts."""

    @asynccontextmanager
    async def stand(self, _origin: str, *, page: bool) -> AsyncIterator[None]:  # noqa: ARG002
        """Now."""
        yield

    async def objection(self, _url: str) -> None:
        """None."""

    async def heed(self, _origin: str, _answer: Response) -> None:
        """Nobody listens."""


class Waits:
    """For how long a page has waited for its turns: time that neither it nor its site took."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._waiting = 0
        self._since = 0.0
        self._seconds = 0.0

    def __enter__(self) -> None:
        if not self._waiting:
            self._since = self._clock()
        self._waiting += 1

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._seconds += self._clock() - self._since

    @property
    def seconds(self) -> float:
        """Until now; what is waited for side by side counts once."""
        return self._seconds + (self._clock() - self._since if self._waiting else 0.0)


class _Waiting:
    """A gate whose waiting is seen."""

    def __init__(self, gate: Gate, waits: Waits) -> None:
        self._gate = gate
        self._waits = waits
        self.objection = gate.objection
        self.answered = gate.answered

    async def take(self, origin: str) -> None:
        """As the gate does."""
        with self._waits:
            await self._gate.take(origin)


@asynccontextmanager
async def stand(gates: Gates, origin: str, waits: Waits, *, page: bool) -> AsyncIterator[Gate | None]:
    """A request's place in line; what it waits for is seen."""
    async with AsyncExitStack() as stack:
        with waits:
            gate = await stack.enter_async_context(gates.stand(origin, page=page))
        yield None if gate is None else _Waiting(gate, waits)


@dataclass(frozen=True, slots=True)
class Asking:
    """How the site is asked for a page and for what that needs, as `HttpSource.fetch` has it."""

    site: str
    headers: Mapping[str, str]
    timeout_seconds: float
    max_body_bytes: int
    allow_private: bool
    look: Look
    gates: Gates
    waits: Waits


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
        self, http: HttpSource, first: Response, jar: Jar, asking: Asking, end: Callable[[FailureClass, str], None]
    ) -> None:
        self._http = http
        self._asking = asking
        self._end = end
        self._first: Response | None = first
        self._first_jar = jar
        self._moved: dict[str, Response] = {}
        """Documents that were fetched through redirects and wait for the frame to move to their address."""
        self._lanes: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(LANES))
        self._clock = asyncio.get_running_loop().time
        self._tries = 0
        self._sent = 1
        self._moves = 0
        self._bytes = len(first.body)
        self._kinds: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()
        self._origins = {urls.origin(first.final_url)}
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
            await self._remember(self._first_jar)
            return first
        if document and (moved := self._moved.pop(url, None)) is not None:
            return moved
        scope = self._permitted(request, url, main=main)
        if scope is None or not self._counted():
            return None
        jar = Jar()
        answer = await self._fetched(request, url, scope, jar, main=main)
        if isinstance(answer, FetchFailure):
            if main:
                self._end(answer.failure_class, f"the page moved to {url[:300]}: {answer.reason}")
            return None
        if not await self._may_go_on(answer):
            return None
        await self._remember(jar)
        if main and not self._may_move(answer):
            return None
        if document and answer.redirects:
            self._moved[answer.final_url.partition("#")[0]] = answer
            return _moving(answer)
        return answer

    async def _may_go_on(self, answer: Response) -> bool:
        """Whether the page may ask for more after this answer."""
        self._bytes += len(answer.body)
        if self._bytes > MAX_PAGE_BODIES * self._asking.max_body_bytes:
            self._end(FailureClass.TOO_LARGE, f"the page loaded more than {self._bytes:,} bytes in all")
            return False
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
            asked = urls.origin(answer.final_url)
            await self._asking.gates.heed(asked, answer)
            self._end(FailureClass.RATE_LIMITED, f"{asked} answered 429 to what the page needs")
            return False
        return True

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
            return None
        asked = urls.origin(url)
        if asked not in self._origins and len(self._origins) >= MAX_ORIGINS:
            self._kinds[f"of more than {MAX_ORIGINS} hosts"] += 1
            return None
        self._origins.add(asked)
        return scope

    def _counted(self) -> bool:
        limit = self._asking.look.max_requests
        if self._sent >= limit:
            self._end(FailureClass.TOO_LARGE, f"the page makes more than {limit} requests (fetch.max_requests)")
            return False
        self._sent += 1
        return True

    async def _fetched(
        self, request: Request, url: str, scope: str, jar: Jar, *, main: bool
    ) -> Response | FetchFailure:
        asking, asked = self._asking, urls.origin(url)
        own = scope == asking.site
        declared = asking.headers if own else {"user-agent": asking.headers["user-agent"]}
        headers = {name: value for name, value in request.headers.items() if _is_for_site(name)} | {**declared}
        if own and (cookies := await self._cookies(url)):
            headers["cookie"] = cookies
        posted = (request.post_data_buffer or b"") if request.method == "POST" else None
        if main:
            with asking.waits:
                objection = await asking.gates.objection(url)
            if objection is not None:
                return FetchFailure(FailureClass.REDIRECTED, objection)
        async with self._lanes[asked], stand(asking.gates, asked, asking.waits, page=main) as gate:
            return await self._http.fetch(
                pages.Request(url, request.method, posted),
                site=scope,
                headers=headers,
                timeout_seconds=asking.timeout_seconds,
                max_body_bytes=asking.max_body_bytes,
                allow_private=asking.allow_private and own,
                jar=jar,
                gate=gate,
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

    async def _remember(self, jar: Jar) -> None:
        """What was set on the way is sent from now on; what Chromium refuses is as lost as it would be there."""
        for one in jar.cookies():
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
