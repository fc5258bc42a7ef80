"""Pages that did not change are asked for by what their site tells by: verified, and not fetched anew."""

from __future__ import annotations

import asyncio
import hashlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.demo.plain import page, truth
from scrape_assets.flow import plan, recover, run, verify
from scrape_assets.flow.run import Machine
from scrape_assets.rules.recovery import Selection
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make

FIRST, SECOND, THIRD = "2026-03-05", "2026-03-06", "2026-03-07"
PATHS = ["/p/1", "/p/2"]


class Shop:
    """Two products; `tells_by` says by which header, if any. `whole` and `confirmed` are what it was asked for."""

    def __init__(self) -> None:
        self.url = ""
        self.body = {path: page(truth(9)[number]) for number, path in enumerate(PATHS)}
        self.tells_by: str | None = "etag"
        self.whole: list[str] = []
        self.confirmed: list[str] = []
        self.map = b""
        self.lies = False
        self.moved: dict[str, str] = {}

    def change(self, path: str) -> None:
        """The page is another product's from now on."""
        self.body[path] = page(truth(9)[7])

    def answer(self, path: str, asked: Callable[[str], str | None]) -> tuple[int, dict[str, str], bytes]:
        if path == "/robots.txt":
            return 404, {}, b""
        if path == "/sitemap.xml":
            return 200, {}, self.map
        if path in self.moved:
            return 302, {"location": self.moved[path]}, b""
        mark = hashlib.sha256(self.body[path]).hexdigest()[:8]
        date = f"Wed, 04 Mar 2026 10:{int(mark, 16) % 60:02d}:00 GMT"
        tells = {"etag": {"etag": f'"{mark}"'}, "last-modified": {"last-modified": date}}.get(self.tells_by or "", {})
        if self.lies or asked("if-none-match") == f'"{mark}"' or asked("if-modified-since") == date:
            self.confirmed.append(path)
            return 304, tells, b""
        self.whole.append(path)
        return 200, tells, self.body[path]


@pytest.fixture
def shop() -> Iterator[Shop]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        shop: ClassVar[Shop] = Shop()

        def do_GET(self) -> None:
            status, headers, body = self.shop.answer(self.path, self.headers.get)
            self.send_response(status)
            for name, value in {"content-type": "text/html; charset=utf-8", **headers}.items():
                self.send_header(name, value)
            if status != 304:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """`whole` and `confirmed` tell."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.shop.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Handler.shop
    server.shutdown()
    server.server_close()


class Read(NamedTuple):
    page_state: str | None
    http_status: int | None
    name: str | None
    reason: str | None


def declared(folder: Path, shop: Shop, more: str = "", urls: str = "") -> Dataset:
    dataset = make.dataset(folder, {"north": (shop.url, PATHS)})
    file = folder / "datasets/prices/retailers/north.yaml"
    text = file.read_text()
    file.write_text((text.replace("urls: {file: north.csv}", f"urls: {urls}") if urls else text) + more)
    return make.load.dataset(folder, dataset.dataset)


def collect(pool: Pool, folder: Path, dataset: Dataset, window: str) -> dict[str, Read]:
    """How each page ended, by its path."""
    plan.plan(pool, dataset, window, now=datetime.fromisoformat(f"{window}T12:00").replace(tzinfo=UTC))
    return worked(pool, folder, dataset, window)


def worked(pool: Pool, folder: Path, dataset: Dataset, window: str) -> dict[str, Read]:
    work = run.assignments(pool, dataset, window, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(folder / "artifacts", "w", {}), work))
    assert verify.verify(pool).violations == []
    with postgres.transaction(pool) as tx:
        rows = tx.execute(
            "select t.url, a.page_state, a.http_status, o.payload ->> 'name', a.reason"
            "  from scrape.tasks t join scrape.attempts a using (attempt_id)"
            "  left join scrape.observations o on o.source_task_key = t.task_key"
            " where t.run_id = %s and not t.discovers",
            [f"prices@{window}"],
        ).fetchall()
    return {"/" + url.removeprefix("http://").partition("/")[2]: Read(*rest) for url, *rest in rows}


@pytest.mark.parametrize("tells_by", ["etag", "last-modified"])
def test_a_page_that_did_not_change_is_verified_and_one_that_did_is_read(
    pool: Pool, tmp_path: Path, shop: Shop, tells_by: str
) -> None:
    shop.tells_by = tells_by
    dataset = declared(tmp_path, shop)
    before = collect(pool, tmp_path, dataset, FIRST)
    assert {read.page_state for read in before.values()} == {"expected"}
    shop.change("/p/2")
    shop.whole.clear()
    after = collect(pool, tmp_path, dataset, SECOND)
    assert (shop.confirmed, shop.whole) == (["/p/1"], ["/p/2"])
    assert after["/p/1"] == Read("unchanged", 304, before["/p/1"].name, None)
    assert after["/p/2"].page_state == "expected"
    assert after["/p/2"].name not in (None, before["/p/2"].name)
    with postgres.transaction(pool) as tx:
        verified = tx.execute(
            "select verified_at > changed_at as later, verified_at = o.observed_at as same"
            "  from scrape.pages p join scrape.observations o on o.run_id = p.run_id and o.payload ->> 'name' = %s",
            [before["/p/1"].name],
        ).fetchall()
    assert (True, True) in [tuple(row) for row in verified], "its values were seen to hold in the second window"
    shop.confirmed.clear()
    third = collect(pool, tmp_path, dataset, THIRD)
    assert sorted(shop.confirmed) == PATHS, "a page that was verified is asked for by the same again"
    assert {read.page_state for read in third.values()} == {"unchanged"}


def test_the_same_bytes_are_no_change_where_a_site_tells_by_nothing(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    shop.tells_by = None
    dataset = declared(tmp_path, shop)
    collect(pool, tmp_path, dataset, FIRST)
    shop.change("/p/2")
    shop.whole.clear()
    after = collect(pool, tmp_path, dataset, SECOND)
    assert sorted(shop.whole) == PATHS
    assert {path: (read.page_state, read.http_status) for path, read in after.items()} == {
        "/p/1": ("unchanged", 200),
        "/p/2": ("expected", 200),
    }


def test_without_revalidation_each_page_is_asked_for_whole(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    dataset = declared(tmp_path, shop, "fetch: {revalidate: false}\n")
    collect(pool, tmp_path, dataset, FIRST)
    after = collect(pool, tmp_path, dataset, SECOND)
    assert (sorted(shop.whole), shop.confirmed) == (sorted(PATHS * 2), [])
    assert {read.page_state for read in after.values()} == {"expected"}


def test_a_page_whose_bytes_are_lost_is_asked_for_whole(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    dataset = declared(tmp_path, shop)
    before = collect(pool, tmp_path, dataset, FIRST)
    for segment in (tmp_path / "artifacts").rglob("*"):
        if segment.is_file():
            segment.unlink()
    shop.whole.clear()
    after = collect(pool, tmp_path, dataset, SECOND)
    assert (sorted(shop.confirmed), sorted(shop.whole)) == (PATHS, PATHS)
    assert after == {path: read._replace(page_state="unchanged") for path, read in before.items()}


def test_a_304_that_nobody_asked_for_is_no_page(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    shop.lies = True
    read = collect(pool, tmp_path, declared(tmp_path, shop), FIRST)
    assert {(one.page_state, one.name) for one in read.values()} == {(None, None)}
    assert {one.http_status for one in read.values()} == {304}


def test_a_page_behind_a_redirect_is_asked_for_whole(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    shop.moved = {"/p/1": "/p/one"}
    shop.body["/p/one"] = shop.body["/p/1"]
    dataset = declared(tmp_path, shop)
    collect(pool, tmp_path, dataset, FIRST)
    collect(pool, tmp_path, dataset, SECOND)
    assert (shop.whole.count("/p/one"), shop.confirmed) == (2, ["/p/2"])


def test_what_is_asked_for_is_not_what_a_redirect_leads_to(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    dataset = declared(tmp_path, shop)
    collect(pool, tmp_path, dataset, FIRST)
    shop.moved = {"/p/1": "/p/one"}
    shop.body["/p/one"] = shop.body["/p/1"]
    shop.whole.clear()
    after = collect(pool, tmp_path, dataset, SECOND)
    assert shop.whole == ["/p/one"], "the mark of one address is not sent to another"
    assert after["/p/1"].http_status == 200


def test_a_repair_that_asks_the_site_asks_for_whole_pages(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    dataset = declared(tmp_path, shop)
    collect(pool, tmp_path, dataset, FIRST)
    collect(pool, tmp_path, dataset, SECOND)
    shop.whole.clear()
    shop.confirmed.clear()
    selection = Selection(retailers=("north",), mode="refetch")
    run_id = f"prices@{SECOND}"
    recover.begin(pool, dataset, run_id, selection, recover.select(pool, dataset, run_id, selection))
    worked(pool, tmp_path, dataset, SECOND)
    assert (sorted(shop.whole), shop.confirmed) == (PATHS, [])


SITEMAP = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>{url}/p/1</loc><lastmod>{first}</lastmod></url><url><loc>{url}/p/2</loc><lastmod>{second}</lastmod></url>
</urlset>"""


@pytest.mark.parametrize("trusted", [True, False])
def test_a_page_that_its_sitemap_calls_older_than_ours_is_not_asked_for(
    pool: Pool, tmp_path: Path, shop: Shop, trusted: bool
) -> None:
    shop.tells_by = None
    later = "2199-01-01T00:00:00Z"
    shop.map = SITEMAP.format(url=shop.url, first="2026-03-01", second=later).encode()
    urls = "{sitemap: /sitemap.xml, lastmod: " + ("trust" if trusted else "ignore") + "}"
    dataset = declared(tmp_path, shop, urls=urls)
    before = collect(pool, tmp_path, dataset, FIRST)
    assert sorted(shop.whole) == PATHS, "what nobody read yet is asked for"
    shop.whole.clear()
    after = collect(pool, tmp_path, dataset, SECOND)
    assert sorted(shop.whole) == (["/p/2"] if trusted else PATHS)
    assert after["/p/1"].name == before["/p/1"].name
    if trusted:
        assert after["/p/1"][:2] == ("unchanged", None)
        assert str(after["/p/1"].reason).startswith("not asked for: its sitemap says that it was last changed before")


def test_a_change_that_its_sitemap_tells_of_late_is_not_lost(pool: Pool, tmp_path: Path, shop: Shop) -> None:
    shop.tells_by = None
    old = "2026-03-01T00:00:00Z"
    shop.map = SITEMAP.format(url=shop.url, first=old, second=old).encode()
    dataset = declared(tmp_path, shop, urls="{sitemap: /sitemap.xml, lastmod: trust}")
    before = collect(pool, tmp_path, dataset, FIRST)
    shop.change("/p/1")
    changed = datetime.now(UTC).isoformat()
    time.sleep(1.1)  # a lastmod holds until its second is over
    shop.whole.clear()
    collect(pool, tmp_path, dataset, SECOND)
    assert shop.whole == [], "its sitemap is as it was"
    shop.map = SITEMAP.format(url=shop.url, first=changed, second=old).encode()
    third = collect(pool, tmp_path, dataset, THIRD)
    assert shop.whole == ["/p/1"], "a window that did not look verified nothing"
    assert third["/p/1"].name != before["/p/1"].name
    assert third["/p/2"][:2] == ("unchanged", None), "and its bytes are kept with each window all the same"


@pytest.mark.parametrize("tells_by", ["etag", "last-modified"])
def test_a_site_that_is_asked_in_another_way_is_asked_for_whole_pages(
    pool: Pool, tmp_path: Path, shop: Shop, tells_by: str
) -> None:
    shop.tells_by = tells_by
    collect(pool, tmp_path, declared(tmp_path, shop), FIRST)
    shop.whole.clear()
    other = "fetch: {headers: {x-country: de}}\n"
    collect(pool, tmp_path, declared(tmp_path, shop, other), SECOND)
    assert (sorted(shop.whole), shop.confirmed) == (PATHS, []), (
        "what it gave the others says nothing of what it gives us"
    )
    collect(pool, tmp_path, declared(tmp_path, shop, other), THIRD)
    assert sorted(shop.confirmed) == PATHS
