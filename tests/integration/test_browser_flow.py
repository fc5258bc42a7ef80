"""Pages by a real browser through the whole flow: nothing lost or doubled, whatever of it is killed."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from scrape_assets.datasets import declaration, load
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.demo import lanterns
from scrape_assets.demo.project import write_lanterns
from scrape_assets.demo.running import running_shop
from scrape_assets.flow import plan, run, verify
from scrape_assets.flow.run import Machine
from scrape_assets.sources.chromium import BrowserOptions, BrowserUnavailable
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.chromium import PROGRAM, all_gone, browsers, live, main_process, needs_chromium, stop, until
from tests.helpers.command import Command, command
from tests.helpers.site import Site, site
from tests.integration.test_kills import environment, start
from tests.integration.test_kills import until as happened

__all__ = ["command"]  # a fixture

pytestmark = [needs_chromium, pytest.mark.timeout(600)]

SHELL = b"""<!doctype html><html><head><title>Lamp</title></head><body><div id=app></div>
<script>
const sku = location.pathname.slice(3);
fetch('/api/' + sku).then(answer => answer.json()).then(found => {
  const data = document.createElement('script');
  data.type = 'application/ld+json';
  data.textContent = JSON.stringify(found);
  document.head.append(data);
  document.getElementById('app').innerHTML = '<article class=product><h1>' + found.name + '</h1></article>';
});
</script></body></html>"""


def answers(path: str) -> tuple[int, dict[str, str], bytes]:
    if path.startswith("/p/"):
        return 200, {}, SHELL
    sku = path.removeprefix("/api/")
    offer = {"@type": "Offer", "price": "19.99", "priceCurrency": "EUR", "availability": "https://schema.org/InStock"}
    product = {"@context": "https://schema.org", "@type": "Product", "name": f"Lamp {sku}", "sku": sku, "offers": offer}
    return 200, {"content-type": "application/json"}, json.dumps(product).encode()


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        it.answer = answers
        yield it


def declared(folder: Path, shop: Site, pages: int, more: str = "", **named: Any) -> Dataset:
    extra = f"key: [sku]\nfetch: {{via: browser, wait_for: .product, concurrency: 3{more}}}"
    return make.dataset(folder, {"north": (shop.url, [f"/p/n{i}" for i in range(pages)])}, more=extra, **named)


def machine(folder: Path, **named: Any) -> Machine:
    return Machine(folder / "artifacts", "test-worker", {}, browser=BrowserOptions(PROGRAM, **named))


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def planned(pool: Pool, dataset: Dataset) -> list[Any]:
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    return run.assignments(pool, dataset, today(), ["north"])


def rows(pool: Pool, query: str) -> list[tuple[Any, ...]]:
    with postgres.transaction(pool) as tx:
        return [tuple(row) for row in tx.execute(query.encode()).fetchall()]


def assert_whole(pool: Pool, pages: int) -> None:
    """One committed task and one row a page, and every promise holds."""
    assert rows(pool, "select state, count(*) from scrape.tasks group by 1") == [("committed", pages)]
    assert rows(pool, "select count(*) as rows, count(distinct entity_key) as entities from scrape.observations") == [
        (pages, pages)
    ]
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


def test_a_browser_killed_while_it_shows_pages_costs_them_an_attempt_and_nothing_else(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    work = planned(pool, declared(tmp_path, shop, 9))
    shop.served_limit = 6

    async def scenario() -> run.Tally:
        collecting = asyncio.create_task(run.collect_partitions(pool, machine(tmp_path), work))
        # What is asked for beyond waits, so that a page is surely under way.
        await until(lambda: shop.requests.total() > len(shop.served))
        main_process().kill()
        shop.gate.set()
        return await collecting

    tally = asyncio.run(scenario())
    assert tally.browser == {"started": 2, "lost": 1}
    assert 1 <= tally.failures["transport"] <= 3
    assert tally.outcomes["committed"] == 9
    assert_whole(pool, 9)
    assert not live(browsers())


SLOW = pytest.mark.slow


@pytest.mark.parametrize("window", ["K4", *(pytest.param(name, marks=SLOW) for name in ("K1", "K2", "K3", "K5", "K6"))])
def test_a_worker_killed_at_a_crash_window_takes_its_browser_with_it_and_the_next_one_goes_on(
    pool: Pool, url: str, tmp_path: Path, shop: Site, window: str
) -> None:
    dataset = declared(tmp_path, shop, 6, lease="4s", attempts=5)
    planned(pool, dataset)
    log = tmp_path / "fired"
    env = environment(tmp_path, SCRAPE_ASSETS_DATABASE_URL=url)
    nth = "" if window in ("K1", "K6") else "@3"
    armed = {"SCRAPE_ASSETS_FAILPOINT": f"{window}=kill{nth}", "SCRAPE_ASSETS_FAILPOINT_LOG": str(log)}
    first = start(env | armed, "worker", "prices", "--json")
    mine = []
    if window != "K1":
        happened("a browser", lambda: first.poll() is not None or mine.extend(browsers(first.pid)) or len(mine) > 3)
    first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL
    assert log.read_text().startswith(window)
    assert all_gone(mine)
    second = start(env, "worker", "prices", "--json")
    said, complained = second.communicate(timeout=240)
    assert second.returncode == 0, complained
    assert json.loads(said)["browser"] == {"started": 1}
    assert_whole(pool, 6)


@pytest.mark.parametrize("hanging", [False, True])
def test_nothing_of_a_browser_survives_its_worker(
    pool: Pool, url: str, tmp_path: Path, shop: Site, hanging: bool
) -> None:
    planned(pool, declared(tmp_path, shop, 3))
    shop.served_limit = 3  # the pages come, what they ask for does not
    places = Path(tempfile.mkdtemp(dir="/tmp"))  # a profile's path must be short: it holds a socket
    env = environment(tmp_path, SCRAPE_ASSETS_DATABASE_URL=url, TMPDIR=str(places))
    worker = start(env, "worker", "prices", "--json")
    happened("pages in a browser", lambda: shop.requests.total() >= 6, worker)
    mine = browsers(worker.pid)
    assert len([*places.glob("*browser*"), *places.glob("playwright*")]) >= 2
    assert len([one for one in mine if "--type=renderer" in one.cmdline()]) >= 3
    if hanging:
        # The driver would end the browser in an orderly way: now the one that watches over it is alone.
        stop(next(one for one in mine if "run-driver" in one.cmdline()))
    worker.kill()
    assert worker.wait(60) == -signal.SIGKILL
    assert all_gone(mine), live(mine)
    worker.communicate()
    assert not [*places.glob("*browser*"), *places.glob("playwright*")]
    shutil.rmtree(places)


def test_a_worker_told_to_stop_gives_its_pages_back_and_leaves_no_browser(
    pool: Pool, url: str, tmp_path: Path, shop: Site
) -> None:
    planned(pool, declared(tmp_path, shop, 3))
    shop.served_limit = 3
    worker = start(environment(tmp_path, SCRAPE_ASSETS_DATABASE_URL=url), "worker", "prices", "--json")
    happened("pages in a browser", lambda: shop.requests.total() >= 6, worker)
    mine = browsers(worker.pid)
    worker.terminate()
    worker.communicate(timeout=60)
    assert worker.returncode == 5
    assert all_gone(mine)
    assert rows(pool, "select distinct state, attempt_count from scrape.tasks") == [("pending", 0)]


def test_the_commands_show_what_a_browser_gave(
    command: Command, pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(pool, declared(tmp_path, shop, 2))
    tried = command("try", "north", f"{shop.url}/p/n1", "--json")
    assert tried.code == 0, tried.err
    assert tried.json["rows"][0]["fields"]["price"]["value"] == "19.99"
    assert tried.json["remark"] == "requests: 2"
    recorded = command("record", "north", f"{shop.url}/p/n1", "--json")
    assert recorded.code == 0, recorded.err
    assert recorded.json["rows"][0]["fields"]["price"]["value"] == "19.99"
    assert "lease_seconds" in command("check", "--json").json["datasets"][0]["retailers"][0]
    assert command("worker", "--json").json["outcomes"] == {"committed": 2}
    raw = command("try", "north", f"{shop.url}/p/n1", "--window", today(), "--raw")
    assert '<article class="product"><h1>Lamp n1</h1></article>' in raw.out
    assert "ld+json" in raw.out
    assert rows(pool, "select distinct reason, content_type from scrape.attempts") == [
        ("requests: 2", "text/html; charset=utf-8")
    ]
    again = command("try", "north", f"{shop.url}/p/n1", "--window", today(), "--json")
    assert again.json["pages"][0]["rows"][0]["fields"]["price"]["value"] == "19.99"


def test_a_machine_without_a_browser_says_so_before_any_page(
    command: Command, pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = declared(tmp_path, shop, 2)
    work = planned(pool, dataset)
    monkeypatch.setenv("SCRAPE_ASSETS_CHROMIUM", "/no/such/browser")
    said = "north: SCRAPE_ASSETS_CHROMIUM=/no/such/browser: there is no such program"
    checked = command("check")
    assert (checked.code, said in checked.err) == (2, True)
    tried = command("try", "north", f"{shop.url}/p/n1")
    assert (tried.code, said in tried.err) == (1, True)
    worked = command("worker")
    assert worked.code == 0
    assert "waits for another machine: north: SCRAPE_ASSETS_CHROMIUM" in worked.err
    assert "1 retailers wait" in worked.err
    with pytest.raises(BrowserUnavailable, match="no such program"):
        asyncio.run(
            run.collect_partitions(pool, Machine(tmp_path / "a", "w", {}, browser=BrowserOptions("/no/such")), work)
        )
    assert shop.requests == {}
    assert rows(pool, "select sum(attempt_count) from scrape.tasks") == [(0,)]
    monkeypatch.delenv("SCRAPE_ASSETS_CHROMIUM")
    monkeypatch.setenv("PATH", "")
    assert "apt install chromium" in command("check").err
    monkeypatch.setenv("SCRAPE_ASSETS_BROWSER_PAGES", "0")
    assert "SCRAPE_ASSETS_BROWSER_PAGES=0: expected" in command("check").err


def test_how_a_browser_looks_at_pages_is_frozen(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = declared(tmp_path, shop, 1)
    planned(pool, dataset)
    before = plan.freeze(dataset, dataset.retailers["north"])
    assert before.manifest["fetch"] == {
        "via": "browser", "headers": {}, "allow_private": False, "wait_for": ".product",
        "block": ["font", "image", "media"], "hosts": [],
    }  # fmt: skip
    changed = declared(tmp_path, shop, 1, more=", hosts: [api.lamps.example], max_requests: 7")
    (refused,) = plan.plan(pool, changed, today(), now=datetime.now(UTC))
    assert refused.problem and "fetch.hosts" in refused.problem and "max_requests" not in refused.problem
    _, thawed = declaration.thaw(changed, changed.retailers["north"], before.manifest)
    assert (thawed.fetch.look.hosts, thawed.fetch.look.max_requests) == ((), 7)
    (work,) = run.assignments(pool, changed, today(), ["north"], frozen=True)
    assert work.frozen.manifest_hash == before.manifest_hash
    assert plan.freeze(changed, thawed).manifest_hash == before.manifest_hash


@pytest.mark.slow
def test_two_hundred_pages_stay_within_the_declared_memory(pool: Pool, tmp_path: Path, shop: Site) -> None:
    work = planned(pool, declared(tmp_path, shop, 200, lease="120s"))
    limit = 1_000_000_000
    seen: list[int] = []

    async def scenario() -> run.Tally:
        collecting = asyncio.create_task(run.collect_partitions(pool, machine(tmp_path, memory_bytes=limit), work))
        while not collecting.done():
            seen.append(sum(_share(one) for one in live(browsers())))
            await asyncio.sleep(0.5)
        return await collecting

    tally = asyncio.run(scenario())
    assert_whole(pool, 200)
    assert max(seen) < 1.2 * limit
    print(f"peak {max(seen) / 1e6:.0f} MB, {tally.seconds:.0f} s, {dict(tally.browser)}")


def _share(one: Any) -> int:
    try:
        return int(one.memory_full_info().pss)
    except Exception:
        return 0


def test_the_demos_lanterns_have_no_price_before_their_scripts_ran_and_the_right_one_after(
    pool: Pool, tmp_path: Path
) -> None:
    with running_shop() as front:
        write_lanterns(tmp_path, front.url)
        dataset = load.dataset(tmp_path, lanterns.RETAILER)
        truth = {one["url"]: (one["name"], one["price"], one["availability"]) for one in lanterns.truth(front.url)}
        for url in truth:
            assert "€" not in httpx.get(url, trust_env=False).text
        plan.plan(pool, dataset, window := plan.current_window(dataset, datetime.now(UTC)), now=datetime.now(UTC))
        work = run.assignments(pool, dataset, window, [lanterns.RETAILER])
        asyncio.run(run.collect_partitions(pool, machine(tmp_path), work))
    found = rows(pool, "select payload->>'url' as url, payload->>'name' as name, payload->>'price' as price, payload->>'availability' as stock from scrape.observations")  # fmt: skip
    assert {url: (name, price, stock) for url, name, price, stock in found} == truth
