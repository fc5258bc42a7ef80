"""One page in a browser, shown until it is settled, and read as its scripts left it.

The browser has no network: whatever the page asks for goes through `sources.browser_requests`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
from playwright.async_api import Error as PlaywrightError

from scrape_assets.rules import subrequests
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources.browser_requests import NOT_FOR_BROWSER, Asking, Requests, quietly
from scrape_assets.sources.http import HttpSource, Jar

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, CDPSession

QUIET_SECONDS = 0.5
"""A loaded page that has asked for nothing for so long is settled; Playwright's own `networkidle` waits as long."""

PATIENT_QUIET_SECONDS = 5.0
"""So long must it be quiet where `wait_for` is not there: then it is another page, and reading it tells which."""

LOOK_SECONDS = 0.1
"""How often it is looked whether the page is settled."""

CRASHED = "the browser's process of this page ended: a crash, or more memory than its pages may take"

# Run in a world of our own, which scripts of the page cannot reach into.
_STATE = "[document.readyState === 'complete', CSS_SELECTOR !== null && document.querySelector(CSS_SELECTOR) !== null]"
_CONTENT = """(() => {
  const html = document.documentElement ? document.documentElement.outerHTML : '';
  const type = document.doctype ? new XMLSerializer().serializeToString(document.doctype) : '';
  return [location.href, html.length, html.length > LIMIT ? '' : type + html];
})()"""


class Visit:
    """One page, shown once."""

    def __init__(self, http: HttpSource, first: Response, jar: Jar, asking: Asking) -> None:
        self._asked = first.url
        self._asking = asking
        self._requests = Requests(http, first, jar, asking, self._end)
        self._ended: asyncio.Future[FetchFailure] = asyncio.get_running_loop().create_future()

    async def show(self, context: BrowserContext, seconds: float) -> Response | FetchFailure:
        """The page as its scripts left it, or why it never settled; PlaywrightError when the browser is lost.

        `context` is this page's own and is left to the caller to close.
        """
        requests = self._requests
        reading = asyncio.create_task(self._open(context))
        try:
            outcomes: set[asyncio.Future[Any]] = {reading, self._ended}
            await self._within(seconds, outcomes)
            if requests.fault is not None:
                raise requests.fault
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
            left = {reading, *requests.under_way}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self._ended.cancel()

    async def _within(self, seconds: float, outcomes: set[asyncio.Future[Any]]) -> None:
        """One of them is there, or the page had so long without what it waited for its turns."""
        clock, waits = asyncio.get_running_loop().time, self._asking.waits
        ends = clock() + seconds - waits.seconds
        while (left := ends + waits.seconds - clock()) > 0:
            done, _ = await asyncio.wait(outcomes, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return

    def _end(self, failure_class: FailureClass, reason: str) -> None:
        """The visit is over, for this reason, unless it had one."""
        if not self._ended.done():
            self._ended.set_result(self._failed(failure_class, reason))

    def _failed(self, failure_class: FailureClass, reason: str) -> FetchFailure:
        document, chain = self._requests.document, tuple(self._requests.chain)
        said = f"{reason}; {self._requests.told()}"
        return FetchFailure(failure_class, said, document.status, document.final_url, chain)

    def _unsettled(self) -> str:
        if waited := self._asking.look.wait_for:
            return f"{waited!r} is not there"
        under_way = len(self._requests.under_way)
        return f"{under_way} requests in flight" if under_way else "its scripts do not rest"

    async def _open(self, context: BrowserContext) -> Response | FetchFailure:
        requests, everything = self._requests, re.compile("")
        await context.route(everything, requests.routed)
        await context.route_web_socket(everything, requests.refuse_socket)
        requests.page = page = await context.new_page()
        context.on("page", lambda other: requests.track(quietly(other.close)))
        page.on("crash", lambda _: self._end(FailureClass.EXTRACTOR_CRASHED, CRASHED))
        page.on("dialog", lambda dialog: requests.track(quietly(dialog.dismiss)))
        page.on("download", lambda download: requests.track(quietly(download.cancel)))
        devtools = await context.new_cdp_session(page)
        await page.goto(requests.document.final_url, wait_until="commit", timeout=0)
        requests.active = asyncio.get_running_loop().time()
        while not await self._settled(devtools):  # noqa: ASYNC110 - what happens in the page tells nobody
            await asyncio.sleep(LOOK_SECONDS)
        return await self._read(devtools)

    async def _settled(self, devtools: CDPSession) -> bool:
        selector = orjson.dumps(self._asking.look.wait_for).decode()
        state = await _evaluated(devtools, _STATE.replace("CSS_SELECTOR", selector), FailureClass.EXTRACTION)
        if state is None:
            return False
        loaded, found = state
        if found:
            return True
        enough = QUIET_SECONDS if self._asking.look.wait_for is None else PATIENT_QUIET_SECONDS
        return bool(loaded) and self._requests.quiet_seconds() >= enough

    async def _read(self, devtools: CDPSession) -> Response | FetchFailure:
        requests, limit = self._requests, self._asking.max_body_bytes
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
        document = requests.document
        kept = {name: value for name, value in document.headers.items() if name not in NOT_FOR_BROWSER}
        final_url = address if subrequests.scope(address, site=self._asking.site, hosts=()) else document.final_url
        return replace(
            document,
            url=self._asked,
            final_url=final_url.partition("#")[0] if "#!" not in final_url else final_url,
            headers={**kept, "content-type": "text/html; charset=utf-8"},
            body=body,
            redirects=tuple(requests.chain),
            remark=requests.told(),
        )


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
