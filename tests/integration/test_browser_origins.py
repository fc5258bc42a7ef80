"""A page in a browser asks for many things: each is a request of its origin's one budget. By the sites' own logs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.demo import scripted
from scrape_assets.demo.scripted import Answer
from scrape_assets.flow import plan, run
from scrape_assets.flow.collect import Tally
from scrape_assets.flow.fetch import Sources
from scrape_assets.flow.run import Machine
from scrape_assets.rules.page import Response
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.store import origins, postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.chromium import PROGRAM, needs_chromium
from tests.helpers.market import SURCHARGE, Market, market
from tests.helpers.site import Site, product, site
from tests.integration.test_kills import environment, start

pytestmark = [needs_chromium, pytest.mark.timeout(300)]

AnySite = Site | scripted.Site

WINDOW = "2026-03-05"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
OPEN = {"access-control-allow-origin": "*", "content-type": "application/json"}

NOISE_SECONDS = 0.05
"""So late a busy machine may let a site see a request: next to a Chromium, on two cores."""


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def other() -> Iterator[Site]:
    with site() as it:
        yield it


def page(path: str, own: int, elsewhere: int, api: str) -> bytes:
    """A product that shows its price when all that the page asked for has come."""
    sku = path.removeprefix("/p/")
    asked = [f"/d/{sku}-{n}" for n in range(own)] + [f"{api}/d/{sku}-{n}" for n in range(elsewhere)]
    shown = product(sku).decode().replace("<article", "<article hidden", 1).replace("class=", "id=product class=", 1)
    script = (
        f"Promise.all({asked!r}.map(one => fetch(one).then(answer => answer.text())))"
        ".then(() => document.body.insertAdjacentHTML('beforeend', '<i class=all></i>'))"
    )
    return shown.replace("</body>", f"<script>{script}</script></body>").encode()


def declared(folder: Path, shop: AnySite, other: AnySite, pages: int, fetch: str, extra: str = "") -> Dataset:
    hosts = other.url.removeprefix("http://")
    more = f"key: [sku]\nfetch: {{via: browser, wait_for: .all, hosts: ['{hosts}'], {fetch}}}{extra}"
    return make.dataset(folder, {"north": (shop.url, [f"/p/n{n}" for n in range(pages)])}, more=more)


def collected(pool: Pool, folder: Path, dataset: Dataset, window: str = WINDOW) -> Tally:
    """What one worker did."""
    plan.plan(pool, dataset, window, now=datetime.fromisoformat(f"{window}T12:00:00Z"))

    machine = Machine(folder / "artifacts", "w", {}, browser=BrowserOptions(PROGRAM))
    return asyncio.run(run.collect_partitions(pool, machine, run.assignments(pool, dataset, window, ["north"])))


def rows(pool: Pool, query: str) -> list[tuple[Any, ...]]:
    with postgres.transaction(pool) as tx:
        return [tuple(row) for row in tx.execute(query.encode()).fetchall()]


def turns_of_today(pool: Pool) -> dict[str, int]:
    return dict(rows(pool, "select origin, day_count from scrape.origins"))  # type: ignore[arg-type]


def asked(one: scripted.Site) -> list[str]:
    return [path for _, path in sorted(one.arrivals)]


def states(pool: Pool) -> dict[str, int]:
    return dict(rows(pool, "select state, count(*) from scrape.tasks group by 1"))  # type: ignore[arg-type]


def by_workers(pool: Pool, url: str, folder: Path, dataset: Dataset, workers: int) -> Tally:
    """What so many processes did together; these have not the sites in them, which then see requests when they come."""
    plan.plan(pool, dataset, WINDOW, now=NOW)
    env = environment(folder, SCRAPE_ASSETS_DATABASE_URL=url)
    started = [start(env, "worker", "prices", "--json") for _ in range(workers)]
    total = Tally()
    for one in started:
        said, complained = one.communicate(timeout=200)
        assert one.returncode == 0, complained
        total.outcomes.update(json.loads(said)["outcomes"])
    return total


def selling(own: int, elsewhere: int, api: scripted.Site, seconds: float = 0.0) -> Callable[[str], Answer]:
    """A site of such pages and of what they ask for, each after so long."""

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return Answer(body=page(path, own, elsewhere, api.url), seconds=seconds)
        return Answer(headers=OPEN, body=b"1", seconds=seconds)

    return answer


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_request_of_a_page_takes_one_turn_of_its_own_origin_and_keeps_its_gap(
    pool: Pool, url: str, tmp_path: Path, workers: int
) -> None:
    """Thirty requests of a page on a gap of 200 ms: longer than its timeout, in which no waiting counts."""
    with scripted.running() as shop, scripted.running() as api:
        shop.answer = api.answer = selling(30, 5, api)
        dataset = declared(tmp_path, shop, api, 3, "rate: 5/s, per_day: 1000, concurrency: 2, timeout: 5s")
        tally = by_workers(pool, url, tmp_path, dataset, workers)
    assert states(pool) == {"committed": 3}
    assert tally.outcomes == {"committed": 3}, "no page was given back or tried again"
    # The shop's robots.txt is one request more; that of a host which pages only ask for data is not read.
    assert (len(shop.arrivals), len(api.arrivals)) == (3 * 31 + 1, 3 * 5)
    assert set(shop.requests.values()) == {1}
    turns = turns_of_today(pool)
    for one in (shop, api):
        # A turn whose time was over before a busy machine could use it was taken in vain; a request never goes without.
        assert len(one.arrivals) <= turns[one.url] <= len(one.arrivals) + 5
    assert min(shop.gaps()) >= 0.2 - NOISE_SECONDS
    assert min(api.gaps()) >= 0.2 - NOISE_SECONDS


def test_without_a_gap_the_requests_in_flight_are_the_budget(pool: Pool, tmp_path: Path) -> None:
    with scripted.running() as shop, scripted.running() as api:
        shop.answer = api.answer = selling(12, 12, api, seconds=0.08)
        collected(pool, tmp_path, declared(tmp_path, shop, api, 5, "rate: none, concurrency: 3"))
    assert states(pool) == {"committed": 5}
    assert (shop.requests.total(), api.requests.total()) == (5 * 13, 5 * 12)
    assert (shop.peak, api.peak) == (3, 3)


def test_a_gap_through_the_response_is_held_by_one_request_and_by_none_that_was_given_up(
    pool: Pool, url: str, tmp_path: Path
) -> None:
    with scripted.running() as shop, scripted.running() as api:

        def answer(path: str) -> Answer:
            if path.startswith("/p/"):
                # The last one is on its way when the page is read, and is given up.
                late = b"fetch('/late'); setTimeout(() => document.body.insertAdjacentHTML("
                body = page(path, 2, 0, api.url).replace(b"document.body.insertAdjacentHTML(", b"{ " + late, 1)
                body = body.replace(b"</i>'))", b"</i>'), 1500) })", 1)
                return Answer(body=body, seconds=0.1)
            return Answer(headers=OPEN, body=b"1", seconds=6.0 if path == "/late" else 0.1)

        shop.answer = answer
        dataset = declared(tmp_path, shop, api, 3, "rate: 5/s, gap: response, concurrency: 1, timeout: 60s")
        began = time.monotonic()
        by_workers(pool, url, tmp_path, dataset, 1)
        took = time.monotonic() - began
    assert states(pool) == {"committed": 3}
    assert shop.requests["/late"] == 3
    kept = [gap for gap, path in zip(shop.gaps(), asked(shop), strict=False) if path not in ("/late", "/robots.txt")]
    assert min(kept) >= 0.3 - NOISE_SECONDS
    assert took < 45, "a request that was given up held its origin until its timeout"


def test_a_429_to_what_a_page_needs_holds_its_origin_back_and_costs_no_attempt(
    pool: Pool, tmp_path: Path, shop: Site, other: Site
) -> None:
    until: list[float] = []
    early: list[str] = []

    def api(path: str) -> tuple[int, dict[str, str], bytes]:
        until.append(time.monotonic() + 3)
        if time.monotonic() < until[0]:
            early.append(path)
            return 429, {**OPEN, "retry-after": "3"}, b""
        return 200, OPEN, b"1"

    other.answer = api
    shop.answer = lambda path: (200, {}, page(path, 0, 1, other.url))
    tally = collected(pool, tmp_path, declared(tmp_path, shop, other, 6, "rate: none, concurrency: 2"))
    assert states(pool) == {"committed": 6}
    assert rows(pool, "select max(attempt_count) from scrape.tasks") == [(1,)]
    assert 1 <= len(early) <= 2, "other pages asked on"
    assert tally.failures["rate_limited"] == len(early)
    reasons = rows(pool, "select distinct reason from scrape.attempts where failure_class = 'rate_limited'")
    assert f"{other.url} answered 429 to what the page needs" in reasons[0][0]


def test_no_page_is_asked_for_in_vain_while_an_origin_is_paused_that_its_like_need(
    pool: Pool, tmp_path: Path, shop: Site, other: Site
) -> None:
    def api(path: str) -> tuple[int, dict[str, str], bytes]:
        if not other.requests[path + "seen"] and other.requests.total() == 1:
            with postgres.transaction(pool) as tx:
                origins.pause(tx, other.url, 4.0, "a person said so", doubles=False, cap_seconds=1000.0)
        return 200, OPEN, b"1"

    other.answer = api
    shop.answer = lambda path: (200, {}, page(path, 0, 1, other.url))
    # Slow enough for the pause to be known by the second page.
    dataset = declared(tmp_path, shop, other, 6, "rate: 1/s, concurrency: 1")
    collected(pool, tmp_path, dataset)
    assert states(pool) == {"committed": 6}
    assert rows(pool, "select max(attempt_count) from scrape.tasks") == [(1,)]
    assert shop.requests.total() <= 7, "each page was asked for and given back"
    assert other.requests.total() == 6


def test_robots_txt_is_obeyed_for_pages_wherever_they_move_and_not_for_what_they_need(
    pool: Pool, tmp_path: Path, shop: Site, other: Site
) -> None:
    shop.robots = (200, b"User-agent: *\nDisallow: /p/n1\nDisallow: /d/\nDisallow: /private\n")

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/p/n2":
            return 200, {}, b"<!doctype html><title>t</title><script>location.href = '/private/n2'</script>"
        return 200, {} if path.startswith("/p/") else OPEN, page(path, 1, 0, other.url)

    shop.answer = answer
    collected(pool, tmp_path, declared(tmp_path, shop, other, 3, "rate: none, concurrency: 3"))
    found = rows(pool, "select url, state, last_failure_class from scrape.tasks order by url")
    assert [(url[-2:], state, failure) for url, state, failure in found] == [
        ("n0", "committed", None),
        ("n1", "quarantined", "robots"),
        ("n2", "quarantined", "redirected"),
    ]
    assert sorted(shop.requests) == ["/d/n0-0", "/p/n0", "/p/n2"]
    said = rows(pool, "select reason from scrape.attempts where failure_class = 'redirected'")
    assert f"the page moved to {shop.url}/private/n2: robots.txt disallows it" in said[0][0]


# Contexts


CONTEXTS = """\
key: [sku]
fetch: {via: browser, wait_for: .offer, concurrency: 2}
product:
  expect: .offer
  fields:
    name: {css: h1}
    sku: {css: .sku}
    price: {css: .now, money: EUR, decimal: "."}
contexts: {madrid: {postcode: "28001"}, bilbao: {postcode: "48001"}}
context:
  setup: {url: /set-zip, form: {zip: "{postcode}"}}
  prove: {css: .zip, equals: "{postcode}"}
"""


@pytest.fixture
def stores() -> Iterator[Market]:
    with market() as it:
        it.by_script = True
        yield it


def prices(pool: Pool) -> set[tuple[str, str, str]]:
    query = "select context, payload ->> 'sku' as sku, payload ->> 'price' as price from scrape.observations"
    return {(context, sku, price) for context, sku, price in rows(pool, query)}


EXPECTED = {
    (name, f"n{n}", f"{10 + SURCHARGE[postcode]}")
    for name, postcode in (("madrid", "28001"), ("bilbao", "48001"))
    for n in range(3)
}


def test_a_page_in_a_browser_and_what_it_asks_for_are_in_the_context_that_was_set_up(
    pool: Pool, tmp_path: Path, stores: Market
) -> None:
    dataset = make.dataset(tmp_path, {"north": (stores.url, [f"/p/n{n}" for n in range(3)])}, more=CONTEXTS)
    collected(pool, tmp_path, dataset)
    assert prices(pool) == EXPECTED
    assert len(stores.setups()) == 2, "once for each context, not for each page"
    assert len(stores.pages("/part/")) == 6


def test_a_session_that_ended_is_set_up_anew_for_a_page_in_a_browser(
    pool: Pool, tmp_path: Path, stores: Market
) -> None:
    stores.expires_after = 3
    dataset = make.dataset(tmp_path, {"north": (stores.url, [f"/p/n{n}" for n in range(3)])}, more=CONTEXTS)
    collected(pool, tmp_path, dataset)
    assert prices(pool) == EXPECTED
    assert len(stores.setups()) > 2


def test_a_page_in_a_browser_that_proves_another_context_is_kept_out(
    pool: Pool, tmp_path: Path, stores: Market
) -> None:
    stores.ignores = True
    dataset = make.dataset(tmp_path, {"north": (stores.url, ["/p/n0"])}, more=CONTEXTS)
    tally = collected(pool, tmp_path, dataset)
    assert prices(pool) == set()
    assert tally.failures == {"wrong_context": 2}


# What the document alone does not tell


def test_a_page_in_a_browser_is_asked_for_whole_though_its_document_did_not_change(
    pool: Pool, tmp_path: Path, shop: Site, other: Site
) -> None:
    names = iter(("before", "after"))
    script = "fetch('/name').then(a => a.text()).then(text => { it.textContent = text; it.className = 'all' })"

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/name":
            return 200, OPEN, next(names).encode()
        if shop.conditions[path] == '"same"':
            return 304, {"etag": '"same"'}, b""
        html = product(path[3:]).decode().replace("<h1>", "<h1 id=it>", 1)
        return 200, {"etag": '"same"'}, html.replace("</body>", f"<script>{script}</script></body>").encode()

    shop.answer = answer
    read = "name: {css: h1}, sku: {css: title, match: 'n.$'}, price: {css: .price, money: EUR}"
    fields = f"product: {{expect: .product, fields: {{{read}}}}}"
    for window, name in ((WINDOW, "before"), ("2026-03-06", "after")):
        dataset = declared(tmp_path, shop, other, 1, "rate: none", extra=f"\n{fields}")
        collected(pool, tmp_path, dataset, window)
        found = rows(
            pool, f"select payload ->> 'name' as name from scrape.observations where run_id = 'prices@{window}'"
        )
        assert found == [(name,)]


def test_a_list_in_a_browser_is_not_searched_for_what_products_are_waited_for(
    tmp_path: Path, shop: Site, other: Site
) -> None:
    shop.answer = lambda _: (200, {}, b"<!doctype html><title>t</title><a href=/p/n1>one</a>")
    dataset = declared(tmp_path, shop, other, 1, "rate: none")
    north = dataset.retailers["north"]

    async def took(sources: Sources, *, lists: bool) -> float:
        began = time.monotonic()
        answer = await sources.show(dataset, north, f"{shop.url}/list", lists=lists)
        assert isinstance(answer, Response)
        return time.monotonic() - began

    async def both() -> tuple[float, float]:
        async with Sources({}, BrowserOptions(PROGRAM)) as sources:
            await took(sources, lists=True)  # starts the browser
            return await took(sources, lists=False), await took(sources, lists=True)

    patient, short = asyncio.run(both())
    assert patient > 5 > short
