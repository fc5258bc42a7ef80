"""Pages through a browser, with the same shape of answer as `sources.http`: whatever happens comes back as a value.

One Chromium serves all retailers of a worker, each page in a context of its own. It is replaced between two pages when
its processes have grown over the declared memory, and started again when it is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from scrape_assets.rules import urls
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.subrequests import Look
from scrape_assets.sources.chromium import CLOSE_SECONDS, BrowserOptions, BrowserUnavailable, Chromium
from scrape_assets.sources.http import HttpSource, Jar

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

    from scrape_assets.sources.browser_requests import Gates

MAX_FAILED_STARTS = 3

OPEN_SECONDS = 20.0
"""A browser that has no place for a page by then hangs, and is ended."""

MEASURE_SECONDS = 0.5
"""How often the memory of a browser that shows pages is measured."""

OVERGROWN = 1.5
"""At so many times its memory a browser does not wait for its pages: the process of the largest is ended."""


class BrowserSource:
    """Pages shown by Chromium, which is started for the first one, while inside `async with`."""

    def __init__(self, http: HttpSource, options: BrowserOptions | None = None) -> None:
        self._http = http
        self._options = options or BrowserOptions()
        self._places = asyncio.Semaphore(self._options.pages)
        self._turn = asyncio.Lock()
        self._chromium: Chromium | None = None
        self._idle = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self.counts: Counter[str] = Counter()
        """Browsers `started`, `recycled` for their memory, `lost` without being asked; pages `ended` for memory."""
        self.peak_memory_bytes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._chromium is not None:
            await self._chromium.close()
            self._chromium = None

    async def fetch(
        self,
        url: str,
        *,
        site: str,
        headers: Mapping[str, str],
        timeout_seconds: float,
        max_body_bytes: int,
        allow_private: bool = False,
        look: Look | None = None,
        jar: Jar | None = None,
        gates: Gates | None = None,
    ) -> Response | FetchFailure:
        """The page as its scripts left it, within the deadline; waiting for a free place does not count.

        An answer that is no page, or no good one, is the site's own, as without a browser. The page's cookies are
        those of `jar`, which keeps what the page itself sets. `gates` are asked for leave before each request; their
        waiting does not count either, and what they raise is raised. BrowserUnavailable when no browser starts.
        """
        from playwright.async_api import Error as PlaywrightError  # noqa: PLC0415 # an extra, imported where it is used

        from scrape_assets.sources.browser_page import Visit  # noqa: PLC0415
        from scrape_assets.sources.browser_requests import Asking, NoGates, Waits, is_page, stand  # noqa: PLC0415

        gates, waits, jar = gates or NoGates(), Waits(), jar or Jar()
        asking = Asking(site, headers, timeout_seconds, max_body_bytes, allow_private, look or Look(), gates, waits)
        clock = asyncio.get_running_loop().time
        async with self._places:
            began = clock()
            async with stand(gates, urls.origin(url), waits, page=True) as gate:
                first = await self._http.fetch(
                    url,
                    site=site,
                    headers=headers,
                    timeout_seconds=timeout_seconds,
                    max_body_bytes=max_body_bytes,
                    allow_private=allow_private,
                    jar=jar,
                    gate=gate,
                )
            if isinstance(first, FetchFailure) or not is_page(first):
                return first
            left = max(0.0, timeout_seconds - (clock() - began - waits.seconds))
            async with self._browser() as chromium:
                try:
                    async with _context(chromium, headers["user-agent"]) as context:
                        return await Visit(self._http, first, jar, asking).show(context, left)
                except (PlaywrightError, TimeoutError) as error:
                    chromium.failed()
                    said = " ".join(str(error).split())[:300]
                    reason = f"the browser ended or failed while it showed this page: {said or 'it does not answer'}"
                    return FetchFailure(FailureClass.TRANSPORT, reason, first.status, first.final_url, first.redirects)

    @asynccontextmanager
    async def _browser(self) -> AsyncIterator[Chromium]:
        """A browser that may show one more page. One that must go is waited for, so that there are never two."""
        async with self._turn:
            if self._chromium is not None and self._chromium.must_go:
                while self._chromium.showing:
                    self._idle.clear()
                    await self._idle.wait()
                self.counts["lost" if self._chromium.lost else "recycled"] += 1
                gone, self._chromium = self._chromium, None
                await gone.close()
            if self._chromium is None:
                self._chromium = await self._start()
            chromium = self._chromium
            chromium.showing += 1
        try:
            yield chromium
        finally:
            chromium.showing -= 1
            self._idle.set()

    async def _start(self) -> Chromium:
        for failed in range(MAX_FAILED_STARTS):
            try:
                chromium = await Chromium.start(self._options)
            except BrowserUnavailable:
                if failed + 1 == MAX_FAILED_STARTS:
                    raise
            else:
                self.counts["started"] += 1
                if self._watching is None:
                    self._watching = asyncio.create_task(self._watch())
                return chromium
        raise AssertionError("not reached")

    async def _watch(self) -> None:
        """Measures the browser while it shows pages; one that has grown too much gets no further one."""
        limit = self._options.memory_bytes
        while True:
            await asyncio.sleep(MEASURE_SECONDS)
            chromium = self._chromium
            if chromium is None or not chromium.showing:
                continue
            grown = await asyncio.to_thread(chromium.measure)
            self.peak_memory_bytes = max(self.peak_memory_bytes, grown)
            if grown > limit:
                chromium.must_go = True
            if grown > OVERGROWN * limit:
                self.counts["ended"] += 1
                await asyncio.to_thread(chromium.end_largest)


@asynccontextmanager
async def _context(chromium: Chromium, user_agent: str) -> AsyncIterator[BrowserContext]:
    """A profile of its own for one page, gone afterwards; a browser that does not let go of it is ended."""
    from playwright.async_api import Error as PlaywrightError  # noqa: PLC0415 # as above

    try:
        async with asyncio.timeout(OPEN_SECONDS):
            context = await chromium.browser.new_context(
                user_agent=user_agent, service_workers="block", accept_downloads=False
            )
    except TimeoutError:
        await chromium.kill()
        raise
    try:
        yield context
    finally:
        try:
            with suppress(PlaywrightError):  # it is gone with its browser
                async with asyncio.timeout(CLOSE_SECONDS):
                    await context.close()
        except TimeoutError:
            await chromium.kill()
