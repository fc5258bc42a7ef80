"""Fetch: one page of a retailer by the source that it declares. An answer is a value, also when it is a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from scrape_assets.datasets import declaration
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.sources import chromium
from scrape_assets.sources.browser import BrowserSource
from scrape_assets.sources.chromium import BrowserOptions, BrowserUnavailable
from scrape_assets.sources.http import HttpSource

Charge = Callable[[str], Awaitable[None]]
"""Awaited with the origin before each request that no claim has paid for: redirects, what a browser's page needs."""


async def charged_to_nobody(_origin: str) -> None:
    """The budget knows of claims alone: a redirect, or a request of a browser's page, is sent at once."""


class Sources:
    """The ways to a page, open inside `async with`; a browser is started for the first page that wants one."""

    def __init__(
        self,
        connect_to: Mapping[str, tuple[str, int]] | None = None,
        browser: BrowserOptions | None = None,
        *,
        charge: Charge = charged_to_nobody,
    ) -> None:
        self._charge = charge
        self._stack = AsyncExitStack()
        self._http = HttpSource(connect_to=connect_to)
        self.browser = BrowserSource(self._http, browser)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._http)
        await self._stack.enter_async_context(self.browser)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def page(self, dataset: Dataset, retailer: Retailer, url: str) -> Response | FetchFailure:
        """The retailer's page at this address, whose first request is paid for."""
        fetch, headers = retailer.fetch, declaration.request_headers(dataset, retailer)
        if fetch.via == "browser":
            return await self.browser.fetch(
                url,
                site=retailer.site,
                headers=headers,
                timeout_seconds=fetch.timeout_seconds,
                max_body_bytes=fetch.max_body_bytes,
                allow_private=fetch.allow_private,
                look=fetch.look,
                charge=self._charge,
            )
        return await self._http.fetch(
            url,
            site=retailer.site,
            headers=headers,
            timeout_seconds=fetch.timeout_seconds,
            max_body_bytes=fetch.max_body_bytes,
            allow_private=fetch.allow_private,
            charge=self._charge,
        )


def problem(retailer: Retailer, browser: BrowserOptions) -> str | None:
    """Why this machine cannot fetch the retailer's pages, and what to install; None when it can."""
    said = chromium.problem(browser) if retailer.fetch.via == "browser" else None
    return said and f"{retailer.name}: {said}"


def require(retailers: Iterable[Retailer], browser: BrowserOptions) -> None:
    """This machine can fetch the pages of all of them; else BrowserUnavailable, before any of them is asked for."""
    if said := next(filter(None, (problem(retailer, browser) for retailer in retailers)), None):
        raise BrowserUnavailable(said)
