"""The HTTP client against loopback servers that say exactly what they are told to, hostile ones included."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import struct
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import httpx
import pytest

from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.page import Request as page_request
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources import http
from scrape_assets.sources.http import MAX_REDIRECTS, HttpSource, parse_connect_to
from scrape_assets.sources.inflate import inflate

slow = pytest.mark.slow
"""What waits for a hostile server, or feeds on one."""

PAGE = b"<html><h1>Lamp</h1>" + b"<p>an ordinary page</p>" * 400 + b"</html>"


class Request:
    def __init__(self, head: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.path = lines[0].split(" ")[1]
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}


Answer = bytes | Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class Site:
    """Answers each path with the bytes, or by the function, it was given; records what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = Request((await reader.readuntil(b"\r\n\r\n"))[:-4])
                self.requests.append(request)
                answer = self.answers.get(request.path, reply(b"", "404 Not Found"))
                if callable(answer):
                    await answer(request, writer)
                    return
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def running(site: Site) -> AsyncIterator[Site]:
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


def reply(body: bytes = PAGE, status: str = "200 OK", **headers: str) -> bytes:
    fields = {"Content-Length": str(len(body)), "Content-Type": "text/html"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    return (
        "".join(
            [f"HTTP/1.1 {status}\r\n", *(f"{name}: {value}\r\n" for name, value in fields.items() if value), "\r\n"]
        ).encode("latin-1")
        + body
    )


def redirect(to: str, **headers: str) -> bytes:
    return reply(b"", "302 Found", Location=to, **headers)


def closing(raw: bytes) -> Answer:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return answer


def dripping(head: bytes, drop: bytes, pause: float) -> Answer:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(pause)

    return answer


async def resetting(_request: Request, writer: asyncio.StreamWriter) -> None:
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def get(
    answers: Mapping[str, Answer] | None = None,
    path: str = "/",
    *,
    site: str | None = None,
    url: str | None = None,
    named: str | None = None,
    visited: Site | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 60.0,
    max_body_bytes: int = 8_000_000,
    **options: Any,
) -> Response | FetchFailure:
    """One fetch of a path on a site with these answers; `named` reaches it under a host name instead."""

    async def main() -> Response | FetchFailure:
        async with running(visited or Site()) as there:
            there.answers |= answers or {}
            connect_to = {named: ("127.0.0.1", there.port)} if named else {}
            base = f"https://{named}" if named else there.url
            async with HttpSource(connect_to=connect_to) as source:
                return await source.fetch(
                    (url or base + path).replace("PORT", str(there.port)),
                    site=(site or base).replace("PORT", str(there.port)),
                    headers=headers or {"user-agent": "tests"},
                    timeout_seconds=timeout_seconds,
                    max_body_bytes=max_body_bytes,
                    **options,
                )

    return asyncio.run(main())


def page(answers: Mapping[str, Answer], path: str = "/", **options: Any) -> Response:
    found = get(answers, path, **options)
    assert isinstance(found, Response), found
    return found


def failure(answers: Mapping[str, Answer] | None = None, path: str = "/", **options: Any) -> FetchFailure:
    found = get(answers, path, **options)
    assert isinstance(found, FetchFailure), (found.status, found.final_url, len(found.body))
    return found


def test_a_header_that_comes_twice_is_read_whole() -> None:
    raw = reply(b"", "429 Busy", Retry_After="120").replace(b"\r\n\r\n", b"\r\nRetry-After: 5\r\n\r\n", 1)
    assert page({"/": raw}).headers["retry-after"] == "120, 5"


# What is read


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone", "429 Too Many Requests", "403 Forbidden"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda status: reply(PAGE, status, Content_Encoding="br", Retry_After="7"),
        lambda status: reply(PAGE, status, Content_Encoding="gzip", Retry_After="7"),
        lambda status: reply(PAGE * 100, status, Retry_After="7"),
        lambda status: closing(reply(PAGE, status, Content_Length="999999", Retry_After="7")),
    ],
)
def test_a_status_counts_whatever_came_of_its_body(status: str, wrong: Callable[[str], Answer]) -> None:
    found = page({"/": wrong(status)}, max_body_bytes=100_000)
    assert (found.status, found.body, found.headers["retry-after"]) == (int(status[:3]), b"", "7")


def test_a_page_comes_back_whole_with_its_headers_in_lower_case() -> None:
    found = page({"/": reply(X_One="1", ETag='"abc"')})
    assert (found.status, found.body, found.redirects) == (200, PAGE, ())
    assert found.url == found.final_url
    assert found.headers["etag"] == '"abc"'
    assert found.headers["x-one"] == "1"


def test_the_request_carries_the_declared_headers_and_asks_for_gzip_or_nothing() -> None:
    site = Site()
    page({"/": reply()}, visited=site, headers={"user-agent": "shop-bot", "accept-language": "es"})
    sent = site.requests[0].headers
    assert sent["accept-encoding"] == "gzip, identity"
    assert (sent["user-agent"], sent["accept-language"]) == ("shop-bot", "es")
    assert sent["host"] == f"127.0.0.1:{site.port}"


@pytest.mark.parametrize("path", ["/p%2F1?b&a=1+2", "/p?x=%20+&y=", "/a%7Eb", "/caf%C3%A9?q=%26", "/p?next=%2Fa%3Fb"])
def test_the_site_is_asked_for_the_address_as_it_was_planned(path: str) -> None:
    site = Site()
    assert page({path: reply()}, path, visited=site).body == PAGE
    assert site.requests[0].path == path


@pytest.mark.parametrize("status", ["404 Not Found", "429 Too Many Requests", "503 Busy", "403 Forbidden", "500 Oops"])
def test_any_status_is_an_answer_with_its_body(status: str) -> None:
    found = page({"/": reply(b"<title>Just a moment</title>", status, Retry_After="30")})
    assert found.status == int(status[:3])
    assert found.body == b"<title>Just a moment</title>"
    assert found.headers["retry-after"] == "30"


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
def test_gzip_is_inflated(coding: str) -> None:
    assert page({"/": reply(gzip.compress(PAGE), Content_Encoding=coding)}).body == PAGE


def test_deflate_is_inflated_with_and_without_its_wrapper() -> None:
    bare = zlib.compressobj(wbits=-15)
    raw = bare.compress(PAGE) + bare.flush()
    assert page({"/": reply(zlib.compress(PAGE), Content_Encoding="deflate")}).body == PAGE
    assert page({"/": reply(raw, Content_Encoding="deflate")}).body == PAGE


def test_gzip_members_in_a_row_are_one_body_and_padding_is_ignored() -> None:
    body = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0" * 20
    assert page({"/": reply(body, Content_Encoding="gzip")}).body == b"one two"
    assert inflate(gzip.compress(b"one"), "gzip", 100) == b"one"


def test_a_gzip_file_that_declares_no_encoding_is_left_as_it_is() -> None:
    packed = gzip.compress(PAGE)
    assert page({"/": reply(packed)}).body == packed


# BC036
def test_gzip_inside_gzip_is_inflated_once_as_declared() -> None:
    inner = gzip.compress(PAGE)
    assert page({"/": reply(gzip.compress(inner), Content_Encoding="gzip")}).body == inner


def test_an_empty_body_is_a_page_whatever_its_encoding_says() -> None:
    assert page({"/": reply(b"", Content_Encoding="gzip")}).body == b""
    assert page({"/": reply(b"", "204 No Content", Content_Length="")}).body == b""


def test_a_chunked_page_and_one_that_ends_with_its_connection_are_whole() -> None:
    chunked = reply(b"4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n", Content_Length="", Transfer_Encoding="chunked")
    assert page({"/": chunked}).body == b"abcdef"
    assert page({"/": closing(reply(PAGE, Content_Length=""))}).body == PAGE


def test_a_nonsense_charset_or_header_value_does_no_harm() -> None:
    found = page({"/": reply(Content_Type="text/html; charset=utf8mb4\xff; =;;", X="\xe9")})
    assert found.body == PAGE
    assert "utf8mb4" in found.headers["content-type"]


def test_connections_are_used_again() -> None:
    async def main() -> int:
        async with running(Site()) as site, HttpSource() as source:
            site.answers["/"] = reply()
            for _ in range(20):
                found = await source.fetch(
                    site.url, site=site.url, headers={}, timeout_seconds=60, max_body_bytes=1_000_000
                )
                assert isinstance(found, Response)
            return site.connections

    assert asyncio.run(main()) == 1


def test_a_proxy_named_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert page({"/": reply()}).body == PAGE


# Bodies that lie


# BC038
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(closing(reply(PAGE[:6000], Content_Length="10000")), id="short content-length"),
        pytest.param(
            closing(reply(b"4\r\nabcd\r\n", Content_Length="", Transfer_Encoding="chunked")), id="no last chunk"
        ),
        pytest.param(reply(gzip.compress(PAGE)[:-9], Content_Encoding="gzip"), id="gzip without its end"),
        pytest.param(reply(gzip.compress(PAGE)[:-4], Content_Encoding="gzip"), id="half a gzip trailer"),
        pytest.param(reply(gzip.compress(PAGE)[:-8] + b"\1" * 8, Content_Encoding="gzip"), id="wrong gzip checksum"),
        pytest.param(
            reply(gzip.compress(PAGE) + gzip.compress(PAGE)[:30], Content_Encoding="gzip"), id="half a second member"
        ),
        pytest.param(reply(zlib.compress(PAGE)[:-2], Content_Encoding="deflate"), id="deflate without its end"),
    ],
)
def test_a_body_that_stopped_early_is_truncated(answer: Answer) -> None:
    assert failure({"/": answer}).failure_class is FailureClass.TRUNCATED


def test_a_reset_in_the_body_is_truncated() -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(PAGE[:3000], Content_Length=str(len(PAGE))))
        await writer.drain()
        await asyncio.sleep(0.3)
        await resetting(request, writer)

    found = failure({"/": answer})
    assert found.failure_class is FailureClass.TRUNCATED
    assert found.status == 200


def test_a_body_that_is_not_what_it_declares_is_of_bad_encoding() -> None:
    assert failure({"/": reply(Content_Encoding="gzip")}).failure_class is FailureClass.BAD_ENCODING


# BC036
@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
def test_an_encoding_nobody_asked_for_is_refused_by_name(coding: str) -> None:
    found = failure({"/": reply(b"\x1b\x00\x00", Content_Encoding=coding)})
    assert found.failure_class is FailureClass.HTTP_OTHER
    assert coding in found.reason


# BC036
@slow
def test_a_gzip_bomb_is_too_large_and_takes_no_memory() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(50)) + packer.flush()
    assert len(bomb) < 60_000
    tracemalloc.start()
    try:
        found = failure({"/": reply(bomb, Content_Encoding="gzip")}, max_body_bytes=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.failure_class is FailureClass.TOO_LARGE
    assert peak < 8_000_000


@slow
@pytest.mark.parametrize(
    ("head", "drop"),
    [
        pytest.param(reply(b"", Content_Length=""), b"x" * 65536, id="endless body"),
        pytest.param(
            reply(b"", Content_Length="", Content_Encoding="gzip"), gzip.compress(b"") * 3000, id="endless empty gzip"
        ),
    ],
)
def test_an_endless_body_is_too_large(head: bytes, drop: bytes) -> None:
    found = failure({"/": dripping(head, drop, 0)}, max_body_bytes=300_000)
    assert found.failure_class is FailureClass.TOO_LARGE


def test_a_body_of_exactly_the_limit_is_whole_and_one_byte_more_is_not() -> None:
    for packed in (False, True):
        answer = reply(gzip.compress(PAGE), Content_Encoding="gzip") if packed else reply()
        assert page({"/": answer}, max_body_bytes=len(PAGE)).body == PAGE
        found = failure({"/": answer}, max_body_bytes=len(PAGE) - 1)
        assert found.failure_class is FailureClass.TOO_LARGE


# BC040
@slow
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(dripping(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.05), id="drip in the headers"),
        pytest.param(dripping(reply(b"", Content_Length="100000"), b"y", 0.05), id="drip in the body"),
        pytest.param(dripping(b"", b"", 0.5), id="silence"),
    ],
)
def test_a_server_that_drips_meets_the_deadline(answer: Answer) -> None:
    start = time.monotonic()
    found = failure({"/": answer}, timeout_seconds=0.6)
    assert found.failure_class is FailureClass.TIMEOUT
    assert "0.6 s" in found.reason
    assert time.monotonic() - start < 20


def test_a_cancelled_fetch_is_cancelled_and_not_answered() -> None:
    async def main() -> None:
        async with running(Site()) as site, HttpSource() as source:
            site.answers["/"] = dripping(b"", b"", 0.1)
            fetch = asyncio.create_task(
                source.fetch(site.url, site=site.url, headers={}, timeout_seconds=60, max_body_bytes=1000)
            )
            await asyncio.sleep(0.2)
            fetch.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetch

    asyncio.run(main())


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000, b"HTTP/1.1 200 " + b"y" * 200_000], ids=["field", "status"]
)
def test_a_huge_header_is_refused(head: bytes) -> None:
    found = failure({"/": closing(head + b"\r\n\r\n")})
    assert found.failure_class is FailureClass.TOO_LARGE
    assert "header" in found.reason


@slow
def test_endless_header_lines_are_refused() -> None:
    found = failure({"/": dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000, 0)})
    assert found.failure_class is FailureClass.TOO_LARGE


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(resetting, id="reset"),
        pytest.param(closing(b""), id="closed at once"),
        pytest.param(closing(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), id="another protocol"),
        pytest.param(closing(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"), id="nonsense length"),
    ],
)
def test_no_answer_or_nonsense_is_a_transport_failure(answer: Answer) -> None:
    found = failure({"/": answer})
    assert found.failure_class is FailureClass.TRANSPORT
    assert found.reason


def test_a_refused_connection_is_a_transport_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = failure(url=f"http://127.0.0.1:{port}/", site=f"http://127.0.0.1:{port}")
    assert found.failure_class is FailureClass.TRANSPORT


def test_an_unknown_host_is_a_transport_failure() -> None:
    found = failure(url="http://no-such-shop.invalid/", site="http://no-such-shop.invalid")
    assert found.failure_class is FailureClass.TRANSPORT
    assert "no-such-shop.invalid" in found.reason


@pytest.mark.parametrize(
    "url", ["", "shop.example/p", "file:///etc/passwd", "http://", "http://[::1", "http://a b/", "ftp://127.0.0.1/"]
)
def test_what_is_no_web_address_is_a_value_too(url: str) -> None:
    found = failure(url=url or " ", site="http://127.0.0.1")
    assert found.failure_class is FailureClass.HTTP_OTHER


@pytest.mark.parametrize("host", ["elsewhere.example", "127.0.0.1:PORT", "169.254.169.254"])
def test_an_address_that_parsers_read_differently_goes_to_the_host_that_it_was_planned_for(host: str) -> None:
    site = Site()
    found = get({f"/@{host}/x": reply()}, url=f"https://shop.example\\@{host}/x", named="shop.example", visited=site)
    assert isinstance(found, Response), found
    assert [request.headers["host"] for request in site.requests] == ["shop.example"]


def test_the_first_address_must_lie_on_the_site_too() -> None:
    site = Site()
    found = failure(url="http://127.0.0.1:PORT/p", site="https://shop.example", visited=site)
    assert found.failure_class is FailureClass.HTTP_OTHER
    assert "outside the site" in found.reason
    assert site.requests == []


def test_a_header_that_cannot_be_sent_is_a_value_too() -> None:
    found = failure({"/": reply()}, headers={"x": "a\r\nb: c"})
    assert found.failure_class in (FailureClass.HTTP_OTHER, FailureClass.TRANSPORT)


# Redirects


def test_redirects_within_the_site_are_followed_and_the_chain_is_told() -> None:
    site = Site()
    found = page({"/a": redirect("/b"), "/b": redirect("c?x=1#top"), "/c?x=1": reply()}, "/a", visited=site)
    assert [request.path for request in site.requests] == ["/a", "/b", "/c?x=1"]
    assert found.url == f"{site.url}/a"
    assert found.redirects == (f"{site.url}/a", f"{site.url}/b")
    assert found.final_url.startswith(f"{site.url}/c?x=1")


def test_a_redirect_without_a_target_is_an_answer() -> None:
    assert page({"/": reply(b"", "302 Found")}).status == 302


# BC048
@pytest.mark.parametrize(
    "target",
    [
        "http://other.example/landing",
        "//other.example/landing",
        "https://shop.example.evil.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://127.0.0.1:PORT/admin",
        "http://2130706433:PORT/admin",
        "http://[::1]:PORT/admin",
        "http://user:secret@other.example/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0177.0.0.1:PORT/admin",
        "http://0x7f.1:PORT/admin",
        "http://0.0.0.0:PORT/admin",
        "/\\127.0.0.1:PORT/admin",
        "http://other.example\\@shop.example/",
        "http://[fd00:ec2::254]/latest",
        "http://[broken",
        "data:text/html,x",
        "ftp://other.example/",
    ],
)
def test_a_redirect_off_the_site_is_not_followed_and_names_its_target(target: str) -> None:
    site = Site()

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(redirect(target.replace("PORT", str(site.port))))
        await writer.drain()

    found = failure({"/p/1": answer, "/admin": reply()}, "/p/1", named="shop.example", visited=site)
    assert found.failure_class is FailureClass.REDIRECTED
    assert target.replace("PORT", str(site.port)).removeprefix("//") in found.reason
    assert found.final_url is not None
    assert found.status == 302
    assert [request.path for request in site.requests] == ["/p/1"]


# BC049
def test_a_page_that_redirects_to_itself_after_setting_a_cookie_is_fetched() -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        known = "seen=yes" in request.headers.get("cookie", "")
        writer.write(reply() if known else redirect("/p/9", Set_Cookie="seen=yes; Path=/; Secure; HttpOnly"))
        await writer.drain()

    assert page({"/p/9": answer}, "/p/9", named="shop.example").body == PAGE


def test_cookies_join_the_declared_ones_and_are_forgotten_after_the_fetch() -> None:
    async def main() -> list[str | None]:
        async with running(Site()) as site, HttpSource() as source:
            site.answers |= {"/a": redirect("/b", Set_Cookie="seen=yes"), "/b": reply(Set_Cookie="late=1")}
            for path in ("/a", "/b"):
                await source.fetch(
                    site.url + path,
                    site=site.url,
                    headers={"Cookie": "store=12"},
                    timeout_seconds=60,
                    max_body_bytes=1_000_000,
                )
            return [request.headers.get("cookie") for request in site.requests]

    assert asyncio.run(main()) == ["store=12", "store=12; seen=yes", "store=12"]


@pytest.mark.parametrize(
    ("status", "second"),
    [("302 Found", "GET /b"), ("303 See Other", "GET /b"), ("307 Temporary Redirect", "POST /b"), ("308 X", "POST /b")],
)
def test_a_form_is_sent_once_and_again_only_where_the_redirect_says_so(status: str, second: str) -> None:
    seen: list[tuple[str, bytes, str | None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
        headers = Request(head).headers
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        seen.append((head.decode().split(" HTTP")[0], body, headers.get("content-type")))
        writer.write(
            reply(b"", status, Location="/b", Connection="close") if len(seen) == 1 else reply(Connection="close")
        )
        await writer.drain()
        writer.close()

    async def main() -> Response | FetchFailure:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        form = page_request(f"{url}/a", "POST", b"zip=28001", "application/x-www-form-urlencoded")
        async with server, HttpSource() as source:
            return await source.fetch(form, site=url, headers={}, timeout_seconds=60, max_body_bytes=1_000_000)

    answer = asyncio.run(main())
    assert isinstance(answer, Response)
    sent = (b"zip=28001", "application/x-www-form-urlencoded")
    assert seen == [("POST /a", *sent), (second, *(sent if second.startswith("POST") else (b"", None)))]


def test_a_jar_keeps_cookies_between_pages_of_their_own_host_and_only_so_many() -> None:
    site = Site()

    async def main() -> None:
        async with running(site) as there:
            many = {f"/{i}": reply(Set_Cookie=f"c{i}=1") for i in range(http.MAX_COOKIES + 5)}
            there.answers |= {
                "/a": reply(Set_Cookie="sid=7; HttpOnly"),
                "/b": redirect("https://cdn.shop.example/c"),
                **many,
            }
            at = ("127.0.0.1", there.port)
            async with HttpSource(connect_to={"shop.example": at, "cdn.shop.example": at}) as source:
                jar = http.Jar()

                async def fetch(path: str, jar: http.Jar | None) -> None:
                    await source.fetch(
                        f"https://shop.example{path}", site="https://shop.example", headers={}, jar=jar,
                        timeout_seconds=60, max_body_bytes=1_000_000,
                    )  # fmt: skip

                for path in ("/a", "/b"):
                    await fetch(path, jar)
                await fetch("/a", None)
                await fetch("/a", http.Jar())
                for path in (*many, "/a"):
                    await fetch(path, jar)

    asyncio.run(main())
    cookies = [request.headers.get("cookie") for request in site.requests]
    assert cookies[:5] == [None, "sid=7", None, None, None], "neither another host, nor another jar, nor none"
    assert len((cookies[-1] or "").split("; ")) == http.MAX_COOKIES


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "http://[::ffff:127.0.0.1]/x", "http://169.254.169.254/"])
def test_a_form_is_sent_to_no_address_that_no_page_is_asked_of(url: str) -> None:
    async def main() -> Response | FetchFailure:
        async with HttpSource() as source:
            return await source.fetch(
                page_request(url, "POST", b"x=1", "text/plain"), site="http://shop.example", headers={},
                timeout_seconds=9, max_body_bytes=1000,
            )  # fmt: skip

    found = asyncio.run(main())
    assert isinstance(found, FetchFailure)
    assert "outside the site" in found.reason


def test_declared_credentials_do_not_follow_a_redirect_to_another_host_of_the_site() -> None:
    site = Site()

    async def main() -> None:
        async with running(site) as there:
            there.answers |= {"/a": redirect("https://cdn.shop.example/b"), "/b": reply()}
            at = ("127.0.0.1", there.port)
            async with HttpSource(connect_to={"shop.example": at, "cdn.shop.example": at}) as source:
                await source.fetch(
                    "https://shop.example/a",
                    site="https://shop.example",
                    headers={"Authorization": "Bearer x", "Cookie": "a=b", "X-Store": "12"},
                    timeout_seconds=60,
                    max_body_bytes=1_000_000,
                )

    asyncio.run(main())
    first, second = (request.headers for request in site.requests)
    assert (first["authorization"], first["cookie"], first["x-store"]) == ("Bearer x", "a=b", "12")
    assert "authorization" not in second
    assert "cookie" not in second
    assert second["x-store"] == "12"


# BC049
@pytest.mark.parametrize("answers", [{"/a": redirect("/a")}, {"/a": redirect("/b"), "/b": redirect("/a")}])
def test_a_redirect_loop_ends_after_the_hop_limit(answers: dict[str, Answer]) -> None:
    site = Site()
    found = failure(answers, "/a", visited=site)
    assert found.failure_class is FailureClass.REDIRECTED
    assert f"redirect loop after {MAX_REDIRECTS} hops" in found.reason
    assert len(site.requests) == MAX_REDIRECTS + 1


def test_a_long_chain_of_redirects_ends_after_the_hop_limit() -> None:
    found = failure({f"/{n}": redirect(f"/{n + 1}") for n in range(30)}, "/0")
    assert found.failure_class is FailureClass.REDIRECTED
    assert "still redirecting" in found.reason


class Refusing:
    """Leave for everything but one address."""

    async def objection(self, url: str) -> str | None:
        return "robots.txt disallows it" if url.endswith("/private") else None

    async def take(self, origin: str) -> None:
        """At once."""

    async def answered(self, origin: str) -> None:
        """Nothing is held."""


def test_a_redirect_may_be_refused_by_the_caller() -> None:
    site = Site()
    found = failure(
        {"/a": redirect("/private"), "/private": reply()},
        "/a",
        visited=site,
        gate=Refusing(),
    )
    assert found.failure_class is FailureClass.REDIRECTED
    assert "robots.txt disallows it" in found.reason
    assert len(site.requests) == 1


@slow
def test_the_deadline_covers_all_hops_together() -> None:
    async def slow(_request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(redirect("/a"))

    found = failure({"/a": slow}, "/a", timeout_seconds=1.0)
    assert found.failure_class is FailureClass.TIMEOUT


# Addresses


def test_a_named_host_on_a_private_address_is_refused_by_address() -> None:
    site = Site()
    found = failure({"/": reply()}, url="http://localhost:PORT/", site="http://localhost:PORT", visited=site)
    assert found.failure_class is FailureClass.HTTP_OTHER
    assert "of host localhost is loopback" in found.reason
    assert site.connections == 0


def test_a_named_host_on_a_private_address_is_opened_by_declaration_only() -> None:
    async def main() -> list[Response | FetchFailure]:
        async with running(Site()) as site, HttpSource() as source:
            site.answers["/"] = reply()
            url = f"http://localhost:{site.port}/"
            # The open connection of the declared site must not serve the other one.
            return [
                await source.fetch(
                    url, site=url, headers={}, timeout_seconds=60, max_body_bytes=1_000_000, allow_private=allowed
                )
                for allowed in (True, False)
            ]

    declared, other = asyncio.run(main())
    assert isinstance(declared, Response)
    assert isinstance(other, FetchFailure)


@pytest.mark.parametrize(
    "url", ["http://2130706433:PORT/", "http://0x7f.1:PORT/", "http://127.1:PORT/", "http://[::ffff:127.0.0.1]:PORT/"]
)
def test_a_disguised_loopback_address_is_refused(url: str) -> None:
    site = Site()
    found = failure({"/": reply()}, url=url, site="http://shop.example", visited=site)
    assert found.failure_class is FailureClass.HTTP_OTHER
    assert site.connections == 0


def test_what_is_declared_private_is_the_declared_host_and_not_what_its_subdomains_lead_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def resolve(_self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        asked.append(host)
        assert family in (socket.AF_UNSPEC, socket.AF_INET)
        found = {"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
        return [found]

    monkeypatch.setattr("aiohttp.ThreadedResolver.resolve", resolve)
    site = "http://shop.example"

    async def main() -> list[Response | FetchFailure]:
        async with HttpSource() as source:
            return [
                await source.fetch(
                    url, site=site, headers={}, timeout_seconds=60, max_body_bytes=1000, allow_private=True
                )
                for url in ("http://shop.example/", "http://admin.shop.example/")
            ]

    own, other = asyncio.run(main())
    assert isinstance(other, FetchFailure)
    assert other.failure_class is FailureClass.HTTP_OTHER
    assert "of host admin.shop.example is loopback" in other.reason
    # Nothing listens at port 80 here, or something does; in any case it was asked for.
    assert not isinstance(own, FetchFailure) or own.failure_class is not FailureClass.HTTP_OTHER
    assert asked == ["shop.example", "admin.shop.example"]


def test_an_address_literal_is_opened_by_its_own_site_only() -> None:
    assert page({"/": reply()}).status == 200
    found = failure({"/": reply()}, site="http://shop.example")
    assert found.failure_class is FailureClass.HTTP_OTHER
    assert "127.0.0.1" in found.reason


# Rehearsal


def test_a_rehearsed_host_is_asked_in_clear_text_under_its_own_name() -> None:
    site = Site()
    found = page({"/a": redirect("/b"), "/b": reply()}, "/a", named="shop.example", visited=site)
    assert found.final_url == "https://shop.example/b"
    assert found.redirects == ("https://shop.example/a",)
    assert {request.headers["host"] for request in site.requests} == {"shop.example"}


def test_rehearsal_targets_are_read_from_text() -> None:
    assert parse_connect_to("") == {}
    assert parse_connect_to(" WWW.shop.example=127.0.0.1:8801 , b.example=[::1]:9,") == {
        "www.shop.example": ("127.0.0.1", 8801),
        "b.example": ("::1", 9),
    }


@pytest.mark.parametrize(
    "text",
    ["shop.example", "shop.example=8801", "a=10.0.0.1:80", "a=127.0.0.1:", "a=127.0.0.1:0", "=127.0.0.1:1", "a=b:1"],
)
def test_a_wrong_rehearsal_target_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        parse_connect_to(f"ok.example=127.0.0.1:1,{text}")
    assert repr(text) in str(caught.value)


def test_an_expired_certificate_is_a_fault_that_passes() -> None:
    error = httpx.ConnectError("cannot connect")
    error.__cause__ = ssl.SSLCertVerificationError(1, "certificate verify failed: certificate has expired")
    assert http._failure(error, "https://shop.example/").failure_class is FailureClass.TRANSPORT
