"""Pages over HTTP: httpx on the aiohttp transport, and nothing else in the product knows of either.

The target is hostile. One wall deadline covers a fetch with its redirects, bodies are bounded after
inflation, resolved addresses are checked and the connection goes to the checked ones, redirects stay on
the site. Whatever the network or a site does comes back as a value.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from types import TracebackType
from typing import Self

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from httpx_aiohttp import AiohttpTransport
from httpx_aiohttp.transport import AiohttpResponseStream
from yarl import URL

from scrape_assets import failpoints
from scrape_assets.rules.addresses import disguised, literal, refused
from scrape_assets.rules.page import Cookie, FetchFailure, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.urls import canonical, origin, within
from scrape_assets.sources.inflate import Inflater

MAX_REDIRECTS = 10
MAX_HEADER_LINE_BYTES = 32 * 1024
"""A longer status or header line is refused; sites' security policies alone pass 8 KB."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HOST = re.compile(r"[a-z0-9._-]+")
_KEEPALIVE_SECONDS = 30.0
# Never sent on to another host of the site, nor from https to http.
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


class AddressRefused(OSError):
    """A host resolves only to addresses that no page is fetched from."""


class _GuardedResolver(AbstractResolver):
    """Resolves to public addresses only; the connector then connects to exactly these."""

    def __init__(self) -> None:
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        usable = [one for one in found if refused(one["host"]) is None]
        if found and not usable:
            address = found[0]["host"]
            raise AddressRefused(_refusal(host, address))
        return usable

    async def close(self) -> None:
        await self._resolver.close()


class _Transport(AiohttpTransport):
    """The aiohttp transport, except that the address goes out as it is written.

    The original lets the address be normalised once more, and `?next=%2Fa` is asked for as `?next=/a`,
    which may be another page.
    """

    def __init__(self, session: aiohttp.ClientSession, context: ssl.SSLContext) -> None:
        super().__init__(client=session, verify=context, trust_env=False)
        self._session = session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._session.request(
            request.method,
            URL(str(request.url), encoded=True),
            headers=request.headers,
            data=request.content or None,
            allow_redirects=False,
        )
        return httpx.Response(
            answer.status, headers=answer.raw_headers, stream=AiohttpResponseStream(answer), request=request
        )


class HttpSource:
    """A pool of connections, open inside `async with`; hosts in `connect_to` are reached at a loopback port."""

    def __init__(self, *, connect_to: Mapping[str, tuple[str, int]] | None = None) -> None:
        self._connect_to = dict(connect_to or {})
        self._guarded: _Transport
        self._open: _Transport

    async def __aenter__(self) -> Self:
        context = httpx.create_ssl_context(trust_env=False)

        def transport(resolver: AbstractResolver) -> _Transport:
            connector = aiohttp.TCPConnector(
                limit=0, ssl=context, resolver=resolver, keepalive_timeout=_KEEPALIVE_SECONDS
            )
            session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                # Its limits are per read or connection; the one deadline over everything is ours.
                timeout=aiohttp.ClientTimeout(),
                max_line_size=MAX_HEADER_LINE_BYTES,
                max_field_size=MAX_HEADER_LINE_BYTES,
            )
            return _Transport(session, context)

        # Two pools, so that a connection opened for a declared private site is never reused for another one.
        self._guarded = transport(_GuardedResolver())
        self._open = transport(aiohttp.ThreadedResolver())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._guarded.aclose()
        await self._open.aclose()

    async def fetch(
        self,
        url: str,
        *,
        site: str,
        headers: Mapping[str, str],
        timeout_seconds: float,
        max_body_bytes: int,
        allow_private: bool = False,
        permit: Callable[[str], str | None] | None = None,
        charge: Callable[[str], Awaitable[None]] | None = None,
        content: bytes | None = None,
    ) -> Response | FetchFailure:
        """The site's whole answer, whatever its status, within the deadline; else why there is none.

        `permit` is asked about each redirect target and may refuse it with a reason. `charge` is awaited with the
        origin of each before it is asked; the first request is the caller's to charge. With `content` it is a POST.
        """
        fetch = _Fetch(
            url,
            headers,
            site=site,
            limit=max_body_bytes,
            choose=lambda target: self._choose(target, site, allow_private=allow_private),
            permit=permit,
            charge=charge,
            content=content,
        )
        deadline = asyncio.timeout(timeout_seconds)
        try:
            async with deadline:
                return await fetch.follow()
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, ValueError) as error:
            if deadline.expired():
                return FetchFailure(
                    FailureClass.TIMEOUT, f"no whole answer within {timeout_seconds:g} s", final_url=fetch.url
                )
            return _failure(error, fetch.url)

    def _choose(self, url: httpx.URL, site: str, *, allow_private: bool) -> tuple[_Transport, httpx.URL] | str:
        """Which pool reaches the host, and the address to ask for there; or why it is not asked."""
        host = url.raw_host.decode("ascii")
        if host in self._connect_to:
            address, port = self._connect_to[host]
            return self._open, url.copy_with(scheme="http", host=address, port=port)
        address_text = literal(host)
        if address_text is None and _HOST.fullmatch(host) is None:
            return f"{host!r:.100} is not a host name"
        if allow_private or (address_text is not None and address_text == literal(_host(site))):
            return self._open, url
        if disguised(host):
            return f"host {host} would be read as an IPv4 address; write it as four decimal numbers"
        if address_text is not None and refused(address_text) is not None:
            return _refusal(host, address_text)
        return self._guarded, url


class _Fetch:
    """One fetch with its redirects and its own cookies."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        site: str,
        limit: int,
        choose: Callable[[httpx.URL], tuple[_Transport, httpx.URL] | str],
        permit: Callable[[str], str | None] | None,
        charge: Callable[[str], Awaitable[None]] | None,
        content: bytes | None,
    ) -> None:
        self.url = url
        self._first = url
        self._headers = {**headers, "accept-encoding": "gzip, identity"}
        self._site = site
        self._limit = limit
        self._choose = choose
        self._permit = permit
        self._charge = charge
        self._content = content
        self._cookies: httpx.Cookies | None = None
        self._chain: list[str] = []

    async def follow(self) -> Response | FetchFailure:
        """The answer at the end of the redirects."""
        # One reading of the address decides both whose it is and whom it is sent to: the WHATWG's, as browsers do.
        parsed = httpx.URL(canonical(self.url))
        if not within(self._site, str(parsed)):
            return self._end(FailureClass.HTTP_OTHER, f"{self.url[:200]!r} is outside the site {self._site}")
        while True:
            chosen = self._choose(parsed)
            if isinstance(chosen, str):
                return self._end(FailureClass.HTTP_OTHER, chosen)
            if self._chain and self._charge is not None:
                await self._charge(origin(str(parsed)))
            transport, target = chosen
            method = "GET" if self._content is None else "POST"
            request = httpx.Request(method, target, headers=self._headers, content=self._content)
            if target is not parsed:
                request.headers["host"] = parsed.netloc.decode("ascii")
            if self._cookies is not None:
                self._send_cookies(request, parsed)
            answer = await transport.handle_async_request(request)
            failpoints.reach("K2")
            try:
                if answer.status_code in _REDIRECTS and "location" in answer.headers:
                    following = self._redirected(answer, parsed)
                    if isinstance(following, FetchFailure):
                        return following
                    parsed = following
                    continue
                return await self._whole(answer)
            finally:
                await answer.stream.aclose()  # type: ignore[union-attr]  # the transport's streams are async ones

    async def _whole(self, answer: httpx.Response) -> Response | FetchFailure:
        raw = answer.headers.raw
        headers: dict[str, str] = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            # A cookie's own expiry date has a comma in it.
            between = "\n" if name == "set-cookie" else ", "
            headers[name] = f"{headers[name]}{between}{value}" if name in headers else value
        body = await self._body(answer, headers)
        if isinstance(body, FetchFailure):
            if answer.is_success:
                return self._end(body.failure_class, body.reason, answer.status_code)
            # What the status says, "gone" or "later", holds without the words that came with it.
            body = b""
        jar = () if self._cookies is None else self._cookies.jar
        cookies = tuple(Cookie(one.name, one.value or "", one.domain, one.path, one.secure) for one in jar)
        return Response(self._first, self.url, answer.status_code, headers, body, tuple(self._chain), cookies)

    async def _body(self, answer: httpx.Response, headers: Mapping[str, str]) -> bytes | FetchFailure:
        coding = headers.get("content-encoding", "").strip().lower() or "identity"
        inflater = Inflater(coding, self._limit)
        try:
            async for chunk in answer.stream:  # type: ignore[union-attr]  # as above
                failpoints.reach("K3")
                inflater.feed(chunk)
                if inflater.failure is not None:
                    break
        except (httpx.HTTPError, aiohttp.ClientError, OSError) as error:
            reason = f"the transfer stopped after {inflater.raw_bytes} bytes: {_words(error)}"
            return FetchFailure(FailureClass.TRUNCATED, reason)
        return inflater.finish()

    def _redirected(self, answer: httpx.Response, parsed: httpx.URL) -> httpx.URL | FetchFailure:
        """The next hop, when it is one we may take."""
        location = _location(answer)
        target = parsed.join(location)
        text = str(target)
        self._chain.append(self.url)
        status = answer.status_code
        if len(self._chain) > MAX_REDIRECTS:
            what = "redirect loop after" if text in self._chain else "still redirecting after"
            return self._end(FailureClass.REDIRECTED, f"{what} {MAX_REDIRECTS} hops, to {text[:500]}", status, text)
        try:
            on_site = within(self._site, text)
        except ValueError as error:
            return self._end(FailureClass.REDIRECTED, f"redirected to {location[:500]!r}: {error}", status, location)
        if not on_site:
            reason = f"redirected to {text[:500]}, which is outside the site {self._site}"
            return self._end(FailureClass.REDIRECTED, reason, status, text)
        if self._permit is not None and (objection := self._permit(text)) is not None:
            reason = f"redirected to {text[:500]}: {objection}"
            return self._end(FailureClass.REDIRECTED, reason, status, text)
        if "set-cookie" in answer.headers:
            if self._cookies is None:
                self._cookies = httpx.Cookies()
            answer.request = httpx.Request("GET", parsed)
            self._cookies.extract_cookies(answer)
        if target.host != parsed.host or (parsed.scheme, target.scheme) == ("https", "http"):
            self._headers = {name: value for name, value in self._headers.items() if name.lower() not in _CREDENTIALS}
        if self._content is not None and status not in (307, 308):
            # As browsers do: what was posted is answered, and that answer is somewhere else.
            self._content = None
            self._headers = {name: value for name, value in self._headers.items() if name.lower() != "content-type"}
        self.url = text
        return target

    def _send_cookies(self, request: httpx.Request, parsed: httpx.URL) -> None:
        # Which cookies belong to the site's own address is decided there, not at the port it is rehearsed at.
        asked = httpx.Request("GET", parsed)
        if self._cookies is not None:
            self._cookies.set_cookie_header(asked)
        both = [one.headers["cookie"] for one in (request, asked) if "cookie" in one.headers]
        if both:
            request.headers["cookie"] = "; ".join(both)

    def _end(
        self, failure_class: FailureClass, reason: str, status: int | None = None, final_url: str | None = None
    ) -> FetchFailure:
        return FetchFailure(failure_class, reason, status, final_url or self.url, tuple(self._chain))


def parse_connect_to(text: str) -> dict[str, tuple[str, int]]:
    """The hosts and loopback ports of `www.shop.example=127.0.0.1:8801,…`; ValueError says which item is wrong.

    >>> parse_connect_to("www.shop.example=127.0.0.1:8801")
    {'www.shop.example': ('127.0.0.1', 8801)}
    """
    targets: dict[str, tuple[str, int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, _, place = item.partition("=")
        address, _, port = place.strip().rpartition(":")
        address_text = literal(address)
        if not host.strip() or address_text is None or refused(address_text) != "loopback":
            raise ValueError(f"{item!r}: expected host=127.0.0.1:port, with a loopback address")
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{item!r}: expected a port from 1 to 65535 after the last colon, got {port!r}")
        targets[host.strip().lower()] = (address_text, int(port))
    return targets


@lru_cache(maxsize=1024)
def _host(site: str) -> str:
    return httpx.URL(site).host


def _refusal(host: str, address: str) -> str:
    return (
        f"address {address} of host {host} is {refused(address)}; pages are fetched from public addresses only, "
        "unless the site is declared by its IP address or with allow_private"
    )


def _location(answer: httpx.Response) -> str:
    raw = next(value for name, value in answer.headers.raw if name.lower() == b"location")
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        return raw.decode("latin-1").strip()


def _failure(error: Exception, url: str) -> FetchFailure:
    causes = _causes(error)
    for cause in causes:
        if isinstance(cause, AddressRefused):
            return FetchFailure(FailureClass.HTTP_OTHER, str(cause), final_url=url)
        if type(cause).__name__ == "LineTooLong":
            reason = f"a header is over {MAX_HEADER_LINE_BYTES} bytes"
            return FetchFailure(FailureClass.TOO_LARGE, reason, final_url=url)
    # An error of a certificate is a ValueError too, and passes when the site has a new one.
    certificate = any(isinstance(cause, ssl.SSLError) for cause in causes)
    wrong = (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError)
    if not certificate and any(isinstance(cause, wrong) for cause in causes):
        return FetchFailure(FailureClass.HTTP_OTHER, f"cannot be asked for: {_words(error)}", final_url=url)
    return FetchFailure(FailureClass.TRANSPORT, _words(error), final_url=url)


def _causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in found:
        found.append(following)
        following = following.__cause__ or getattr(following, "os_error", None) or following.__context__
    return found


def _words(error: Exception) -> str:
    # What the transport's stream wraps says more than its wrapping.
    cause = error.__cause__ or error if isinstance(error, httpx.HTTPError) else error
    text = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {text[:300]}" if text else type(cause).__name__
