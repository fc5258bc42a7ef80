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
from contextvars import ContextVar
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from httpx_aiohttp import AiohttpTransport
from httpx_aiohttp.transport import AiohttpResponseStream
from yarl import URL

from scrape_assets import failpoints
from scrape_assets.rules.addresses import disguised, literal, refused
from scrape_assets.rules.page import FetchFailure, Request, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.urls import canonical, joined, origin, within
from scrape_assets.sources.inflate import Inflater

if TYPE_CHECKING:
    from aiohttp import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

MAX_REDIRECTS = 10
MAX_COOKIES = 180
"""Kept in one jar; browsers keep as many of a site."""

MAX_HEADER_LINE_BYTES = 32 * 1024
"""A longer status or header line is refused; sites' security policies alone pass 8 KB."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HOST = re.compile(r"[a-z0-9._-]+")
_KEEPALIVE_SECONDS = 30.0
# Never sent on to another host of the site, nor from https to http.
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})

_CONDITIONS = ("if-none-match", "if-modified-since")


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


class Gate(Protocol):
    """Leave to ask: one for each fetch, asked for each of its requests."""

    async def objection(self, url: str) -> str | None:
        """Why this redirect target is not followed; None to follow."""

    async def take(self, origin: str) -> None:
        """Returns when a request to the origin may go out, at once; raises what ends the fetch otherwise."""

    async def answered(self, origin: str) -> None:
        """The request's answer has ended."""


_TURN: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("turn", default=None)


class _Connector(aiohttp.TCPConnector):
    """Waits for a request's turn when its connection stands: a gap between requests is one between their arrivals."""

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the name that it overrides
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        turn = _TURN.get()
        if turn is None:
            return connection
        try:
            await turn()
        except BaseException:
            connection.close()
            raise
        if connection.protocol is not None and connection.protocol.is_connected():
            return connection
        # The site did not want to wait.
        connection.close()
        return await super().connect(req, traces, timeout)


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


class Cookie(NamedTuple):
    """A cookie that a site set, with where it is sent."""

    name: str
    value: str
    domain: str
    path: str
    secure: bool


class Jar:
    """The cookies of one context of one retailer, kept from page to page; they never leave the process."""

    def __init__(self) -> None:
        # By default a host's own cookies go to its subdomains too, which no browser does (RFC 6265, 5.4).
        policy = DefaultCookiePolicy(strict_ns_domain=DefaultCookiePolicy.DomainStrictNonDomain)
        self._cookies = httpx.Cookies(CookieJar(policy))

    def keep(self, answer: httpx.Response) -> None:
        """What the answer sets, for as long as there is room: a site that sets a new one each time fills no memory."""
        if len(self._cookies.jar) < MAX_COOKIES:
            self._cookies.extract_cookies(answer)

    def send(self, request: httpx.Request) -> None:
        """The request carries the cookies that belong to its address."""
        self._cookies.set_cookie_header(request)

    def cookies(self) -> tuple[Cookie, ...]:
        """All that is in it, for a browser to have as well."""
        return tuple(Cookie(one.name, one.value or "", one.domain, one.path, one.secure) for one in self._cookies.jar)


class HttpSource:
    """A pool of connections, open inside `async with`; hosts in `connect_to` are reached at a loopback port."""

    def __init__(self, *, connect_to: Mapping[str, tuple[str, int]] | None = None) -> None:
        self._connect_to = dict(connect_to or {})
        self._guarded: _Transport
        self._open: _Transport

    async def __aenter__(self) -> Self:
        context = httpx.create_ssl_context(trust_env=False)

        def transport(resolver: AbstractResolver) -> _Transport:
            connector = _Connector(limit=0, ssl=context, resolver=resolver, keepalive_timeout=_KEEPALIVE_SECONDS)
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
        asked: str | Request,
        *,
        site: str,
        headers: Mapping[str, str],
        timeout_seconds: float,
        max_body_bytes: int,
        allow_private: bool = False,
        jar: Jar | None = None,
        gate: Gate | None = None,
    ) -> Response | FetchFailure:
        """The site's whole answer, whatever its status, within the deadline; else why there is none.

        With a `jar`, cookies are kept there and sent from there; without, they last as long as this fetch.
        `gate` is asked for leave before each request; its waiting does not count against the deadline, and what it
        raises is raised.
        """
        fetch = _Fetch(
            Request(asked) if isinstance(asked, str) else asked,
            headers,
            jar=jar,
            site=site,
            limit=max_body_bytes,
            choose=lambda target: self._choose(target, site, allow_private=allow_private),
            gate=gate,
        )
        deadline = asyncio.timeout(timeout_seconds)
        try:
            async with deadline:
                return await fetch.follow(deadline)
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
        # Declared for this one host: a subdomain is another one, and whoever answers for it may point it anywhere.
        if host == _host(site) and (allow_private or address_text is not None):
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
        asked: Request,
        headers: Mapping[str, str],
        *,
        jar: Jar | None,
        site: str,
        limit: int,
        choose: Callable[[httpx.URL], tuple[_Transport, httpx.URL] | str],
        gate: Gate | None,
    ) -> None:
        self.url = asked.url
        self._first = asked.url
        self._method, self._content = asked.method, asked.body
        self._headers = {**headers, "accept-encoding": "gzip, identity"}
        conditions = zip(_CONDITIONS, (asked.etag, asked.last_modified), strict=True)
        self._headers |= {name: value for name, value in conditions if value is not None}
        if asked.content_type is not None:
            self._headers["content-type"] = asked.content_type
        self._site = site
        self._limit = limit
        self._choose = choose
        self._gate = gate
        # One of its own is made when the first cookie is set: most pages set none.
        self._jar, self._keeps = jar, jar is not None
        self._chain: list[str] = []

    async def follow(self, deadline: asyncio.Timeout) -> Response | FetchFailure:
        """The answer at the end of the redirects."""
        # One reading of the address decides both whose it is and whom it is sent to: the WHATWG's, as browsers do.
        parsed = httpx.URL(canonical(self.url))
        if not within(self._site, str(parsed)):
            return self._end(FailureClass.HTTP_OTHER, f"{self.url[:200]!r} is outside the site {self._site}")
        while True:
            chosen = self._choose(parsed)
            if isinstance(chosen, str):
                return self._end(FailureClass.HTTP_OTHER, chosen)
            transport, target = chosen
            request = httpx.Request(self._method, target, headers=self._headers, content=self._content)
            if target is not parsed:
                request.headers["host"] = parsed.netloc.decode("ascii")
            if self._jar is not None:
                self._send_cookies(request, parsed, self._jar)
            asked = origin(str(parsed))
            answer = await self._ask(transport, request, asked, deadline)
            failpoints.reach("K2")
            try:
                if answer.status_code in _REDIRECTS and "location" in answer.headers:
                    following = self._redirected(answer, parsed)
                    if isinstance(following, FetchFailure):
                        return following
                    if self._gate is not None and (objection := await self._gate.objection(self.url)) is not None:
                        return self._end(
                            FailureClass.REDIRECTED, f"redirected to {self.url[:500]}: {objection}", answer.status_code
                        )
                    parsed = following
                    continue
                return await self._whole(answer, parsed)
            finally:
                await answer.stream.aclose()  # type: ignore[union-attr]  # the transport's streams are async ones
                if self._gate is not None:
                    await self._gate.answered(asked)

    async def _ask(
        self, transport: _Transport, request: httpx.Request, asked: str, deadline: asyncio.Timeout
    ) -> httpx.Response:
        if self._gate is None:
            return await transport.handle_async_request(request)
        gate, taken = self._gate, False

        async def turn() -> None:
            nonlocal taken
            await _wait(gate, asked, deadline)
            taken = True

        token = _TURN.set(turn)
        try:
            return await transport.handle_async_request(request)
        except BaseException:
            # Given up or broken off: it has no answer to come, and the origin's next request need not wait for one.
            if taken:
                await gate.answered(asked)
            raise
        finally:
            _TURN.reset(token)

    async def _whole(self, answer: httpx.Response, parsed: httpx.URL) -> Response | FetchFailure:
        if self._keeps:
            self._keep_cookies(answer, parsed)
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
        return Response(self._first, self.url, answer.status_code, headers, body, tuple(self._chain))

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
        self._chain.append(self.url)
        status = answer.status_code
        try:
            text = joined(str(parsed), location)
            if on_site := within(self._site, text):
                text = canonical(text)
        except ValueError as error:
            return self._end(FailureClass.REDIRECTED, f"redirected to {location[:500]!r}: {error}", status, location)
        if len(self._chain) > MAX_REDIRECTS:
            what = "redirect loop after" if text in self._chain else "still redirecting after"
            return self._end(FailureClass.REDIRECTED, f"{what} {MAX_REDIRECTS} hops, to {text[:500]}", status, text)
        if not on_site:
            reason = f"redirected to {location[:500]}, which is outside the site {self._site}"
            return self._end(FailureClass.REDIRECTED, reason, status, text)
        target = httpx.URL(text)
        self._keep_cookies(answer, parsed)
        # They speak of the page that was asked for, not of where it sends to.
        self._headers = {name: value for name, value in self._headers.items() if name not in _CONDITIONS}
        if self._method == "POST" and status not in (307, 308):
            # As browsers do, and as shops expect that answer a form with a redirect (RFC 9110, 15.4).
            self._method, self._content = "GET", None
            self._headers.pop("content-type", None)
        if target.host != parsed.host or (parsed.scheme, target.scheme) == ("https", "http"):
            self._headers = {name: value for name, value in self._headers.items() if name.lower() not in _CREDENTIALS}
        self.url = text
        return target

    def _keep_cookies(self, answer: httpx.Response, parsed: httpx.URL) -> None:
        if "set-cookie" in answer.headers:
            self._jar = self._jar or Jar()
            answer.request = httpx.Request("GET", parsed)
            self._jar.keep(answer)

    def _send_cookies(self, request: httpx.Request, parsed: httpx.URL, jar: Jar) -> None:
        # Which cookies belong to the site's own address is decided there, not at the port it is rehearsed at.
        asked = httpx.Request("GET", parsed)
        jar.send(asked)
        both = [one.headers["cookie"] for one in (request, asked) if "cookie" in one.headers]
        if both:
            request.headers["cookie"] = "; ".join(both)

    def _end(
        self, failure_class: FailureClass, reason: str, status: int | None = None, final_url: str | None = None
    ) -> FetchFailure:
        return FetchFailure(failure_class, reason, status, final_url or self.url, tuple(self._chain))


async def _wait(gate: Gate, asked: str, deadline: asyncio.Timeout) -> None:
    """The turn has come; the time until then is no time that the site took."""
    began = asyncio.get_running_loop().time()
    ends = deadline.when()
    deadline.reschedule(None)
    try:
        await gate.take(asked)
    finally:
        if ends is not None:
            deadline.reschedule(ends + asyncio.get_running_loop().time() - began)


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
    return httpx.URL(canonical(site)).raw_host.decode("ascii")


def _refusal(host: str, address: str) -> str:
    return (
        f"address {address} of host {host} is {refused(address)}; pages are fetched from public addresses only, "
        "unless it is the very host of `site`, declared by its IP address or with allow_private"
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
        if "Too many headers" in str(cause):
            return FetchFailure(FailureClass.TOO_LARGE, "the answer has too many headers", final_url=url)
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
