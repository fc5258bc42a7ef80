"""Fetch: one page of a retailer by the source that it declares. An answer is a value, also when it is a failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from scrape_assets.datasets import declaration
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.rules.page import FetchFailure, Request, Response
from scrape_assets.sources import chromium
from scrape_assets.sources.browser import BrowserSource
from scrape_assets.sources.chromium import BrowserOptions, BrowserUnavailable
from scrape_assets.sources.http import Gate, HttpSource, Jar

if TYPE_CHECKING:
    from scrape_assets.sources.browser_requests import Gates


class Sources:
    """The ways to a page, open inside `async with`; a browser is started for the first page that wants one."""

    def __init__(
        self, connect_to: Mapping[str, tuple[str, int]] | None = None, browser: BrowserOptions | None = None
    ) -> None:
        self._stack = AsyncExitStack()
        self.http = HttpSource(connect_to=connect_to)
        self.browser = BrowserSource(self.http, browser)

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.http)
        await self._stack.enter_async_context(self.browser)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def ask(
        self,
        dataset: Dataset,
        retailer: Retailer,
        request: Request,
        *,
        jar: Jar | None = None,
        gate: Gate | None = None,
        at_least_bytes: int = 0,
    ) -> Response | FetchFailure:
        """The site's answer to one request, which no browser sees: of a retailer without one, or a set-up."""
        fetch = retailer.fetch
        return await self.http.fetch(
            request,
            site=retailer.site,
            headers=declaration.request_headers(dataset, retailer),
            timeout_seconds=fetch.timeout_seconds,
            max_body_bytes=max(fetch.max_body_bytes, at_least_bytes),
            allow_private=fetch.allow_private,
            jar=jar,
            gate=gate,
        )

    async def show(
        self,
        dataset: Dataset,
        retailer: Retailer,
        url: str,
        *,
        jar: Jar | None = None,
        gates: Gates | None = None,
        lists: bool = False,
        at_least_bytes: int = 0,
    ) -> Response | FetchFailure:
        """The retailer's page as a browser shows it; `lists`: it names pages, and has not what those are waited for.

        No condition goes with it: an unchanged document says nothing of what its scripts put there.
        """
        fetch = retailer.fetch
        return await self.browser.fetch(
            url,
            site=retailer.site,
            headers=declaration.request_headers(dataset, retailer),
            timeout_seconds=fetch.timeout_seconds,
            max_body_bytes=max(fetch.max_body_bytes, at_least_bytes),
            allow_private=fetch.allow_private,
            look=replace(fetch.look, wait_for=None) if lists else fetch.look,
            jar=jar,
            gates=gates,
        )


def problem(retailer: Retailer, browser: BrowserOptions) -> str | None:
    """Why this machine cannot fetch the retailer's pages, and what to install; None when it can."""
    said = chromium.problem(browser) if retailer.fetch.via == "browser" else None
    return said and f"{retailer.name}: {said}"


def require(retailers: Iterable[Retailer], browser: BrowserOptions) -> None:
    """This machine can fetch the pages of all of them; else BrowserUnavailable, before any of them is asked for."""
    if said := next(filter(None, (problem(retailer, browser) for retailer in retailers)), None):
        raise BrowserUnavailable(said)
