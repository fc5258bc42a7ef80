"""One worker at its edges: a page slower than its lease, a lease that may have run out, and being told to stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import Interrupted, ScrapeAssetsError
from scrape_assets.flow import collect, plan, run, verify
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.collect import Worker
from scrape_assets.flow.commit import Item
from scrape_assets.flow.fetch import Sources
from scrape_assets.flow.leases import Held, now
from scrape_assets.flow.run import Machine
from scrape_assets.sources.extractor import ExtractorPool
from scrape_assets.store import lease, postgres
from scrape_assets.store.lease import Lease
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.site import Site, product, site

WINDOW = "2026-03-05"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
PATIENCE_SECONDS = 120.0
"""For one thing to happen."""

EXTENDED = """
select exists (select 1 from scrape.tasks
                where state = 'leased' and lease_token = 1
                  and lease_until > lease_started_at + interval '46 seconds')
"""
ALL_EXTENDED = """
select count(*) = 4 and bool_and(lease_until > lease_started_at + interval '46 seconds')
  from scrape.tasks where state = 'leased' and lease_token = 1
"""


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


WAITS = """
import os
import time


def waits(page):
    while not os.path.exists(GO):
        time.sleep(0.05)
    return {"name": "thing", "sku": page.url.rsplit("/", 1)[1], "price": "1.00", "currency": "EUR"}
"""


def assigned(
    pool: Pool, folder: Path, shop: Site, *, pages: int, lease: str, concurrency: int, more: str = "key: [sku]"
) -> Assignment:
    """A planned partition in which nothing but its lease can end a page, however long the machine stalls."""
    make.dataset(folder, {"north": (shop.url, [f"/p/n{i}" for i in range(pages)])}, lease=lease, more=more)
    file = folder / "datasets/prices/dataset.yaml"
    text = file.read_text().replace("timeout: 30s", "timeout: 900s").replace("task_deadline: 120s", "task_deadline: 1h")
    file.write_text(text.replace("concurrency: 8", f"concurrency: {concurrency}"))
    dataset: Dataset = make.load.dataset(folder, "prices")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    (assignment,) = run.assignments(pool, dataset, WINDOW, ["north"])
    return assignment


def machine(folder: Path) -> Machine:
    return Machine(folder / "artifacts", "test-worker", {})


def tasks(pool: Pool) -> list[tuple[Any, ...]]:
    """State, attempts charged, releases and claims of each task."""
    with postgres.transaction(pool) as tx:
        rows = tx.execute("select state, attempt_count, release_count, lease_token from scrape.tasks").fetchall()
    return [tuple(row) for row in rows]


def outcomes(pool: Pool) -> list[tuple[str, int]]:
    with postgres.transaction(pool) as tx:
        rows = tx.execute("select outcome, count(*) from scrape.attempts group by 1 order by 1").fetchall()
    return [tuple(row) for row in rows]


def reaped_by_another(pool: Pool, held: Lease) -> None:
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set lease_until = clock_timestamp() - interval '1 second'")
        with pytest.MonkeyPatch.context() as patient:
            patient.setattr(lease, "CLAIM_ANSWER_SECONDS", 3600.0)  # a slow machine takes seconds from line to line
            assert lease.reap(tx, "w", [held]) == 0, "nobody reaps what he holds"
            assert lease.reap(tx, "w") == 0, "the answer of the claim may be on its way"
        assert lease.reap(tx, "another worker") == 1


def expired(pool: Pool) -> int:
    with postgres.transaction(pool) as tx:
        return tx.execute("select count(*) from scrape.tasks where lease_until < clock_timestamp()").fetchone()[0]


def assert_sound(pool: Pool) -> None:
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


def became_true(pool: Pool, query: str) -> bool:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        with postgres.transaction(pool) as tx:
            if tx.execute(query).fetchone()[0]:
                return True
        time.sleep(0.2)
    return False


async def until(true: Callable[[], bool], work: asyncio.Task[Any]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert not work.done(), f"ended too early: {work}"
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


def test_the_lease_of_a_slow_page_is_extended_and_the_page_fetched_once(pool: Pool, tmp_path: Path, shop: Site) -> None:
    work = assigned(pool, tmp_path, shop, pages=1, lease="45s", concurrency=8)
    extended: list[bool] = []

    def slow(path: str) -> tuple[int, dict[str, str], bytes]:
        # The site answers each request in a thread of its own: this one may wait.
        extended.append(became_true(pool, EXTENDED))
        return 200, {}, product(path[3:])

    shop.answer = slow

    async def bounded() -> None:
        await asyncio.wait_for(run.collect_partitions(pool, machine(tmp_path), [work]), 4 * PATIENCE_SECONDS)

    asyncio.run(bounded())
    assert extended == [True]
    assert shop.requests == {"/p/n0": 1}
    assert tasks(pool) == [("committed", 1, 0, 1)]
    assert outcomes(pool) == [("committed", 1)]
    assert_sound(pool)


def test_pages_that_wait_for_extraction_keep_their_leases_beside_an_idle_worker(
    pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    home = tmp_path / "datasets/prices"
    home.mkdir(parents=True)
    (home / "pages.py").write_text(WAITS.replace("GO", repr(str(go))))
    # Else the page that waits would be taken for one that hangs.
    monkeypatch.setattr("scrape_assets.flow.collect.ExtractorPool", partial(ExtractorPool, timeout_seconds=900.0))
    more = "key: [sku]\nproduct: {page_object: 'pages.py:waits'}"
    work = assigned(pool, tmp_path, shop, pages=4, lease="45s", concurrency=4, more=more)
    idle = Machine(tmp_path / "artifacts", "idle-worker", {})
    kept: list[bool] = []

    def let_go() -> None:
        kept.append(became_true(pool, ALL_EXTENDED))
        go.touch()

    async def both() -> None:
        first = asyncio.create_task(run.collect_partitions(pool, machine(tmp_path), [work]))
        await until(lambda: len(shop.requests) == 4, first)
        second = asyncio.create_task(run.collect_partitions(pool, idle, [work]))
        await asyncio.to_thread(let_go)
        await asyncio.wait_for(asyncio.gather(first, second), 4 * PATIENCE_SECONDS)

    asyncio.run(both())
    assert kept == [True]
    assert shop.requests == {f"/p/n{i}": 1 for i in range(4)}
    assert tasks(pool) == [("committed", 1, 0, 1)] * 4
    assert outcomes(pool) == [("committed", 4)]
    assert_sound(pool)


def test_a_heartbeat_waits_for_no_other_work_of_its_process(pool: Pool, tmp_path: Path, shop: Site) -> None:
    work = assigned(pool, tmp_path, shop, pages=1, lease="45s", concurrency=1)
    shop.served_limit = 0
    go = threading.Event()
    extended: list[bool] = []

    async def crowded() -> None:
        loop = asyncio.get_running_loop()
        collecting = asyncio.create_task(run.collect_partitions(pool, machine(tmp_path), [work]))
        await until(lambda: len(shop.requests) == 1, collecting)
        busy = [loop.run_in_executor(None, go.wait, 4 * PATIENCE_SECONDS) for _ in range(64)]
        try:
            with ThreadPoolExecutor(1) as apart:
                extended.append(await loop.run_in_executor(apart, became_true, pool, EXTENDED))
        finally:
            go.set()
            shop.served_limit = None
            shop.gate.set()
        await asyncio.gather(*busy)
        await asyncio.wait_for(collecting, 4 * PATIENCE_SECONDS)

    asyncio.run(crowded())
    assert extended == [True]
    assert tasks(pool) == [("committed", 1, 0, 1)]


@pytest.mark.parametrize(
    ("silent_seconds", "taken", "requests", "task"),
    [
        (0.0, False, 1, ("quarantined", 1, 0, 1)),
        (601.0, False, 1, ("quarantined", 1, 0, 1)),
        (601.0, True, 0, ("pending", 1, 0, 1)),
    ],
)
def test_a_lease_that_may_have_run_out_is_asked_for_before_its_fetch(
    pool: Pool, tmp_path: Path, shop: Site, silent_seconds: float, taken: bool, requests: int, task: tuple[Any, ...]
) -> None:
    work = assigned(pool, tmp_path, shop, pages=1, lease="600s", concurrency=1)
    # A redirect off the site is a result without a page to judge: no extraction process is needed.
    shop.answer = lambda _path: (302, {"location": "http://elsewhere.example/"}, b"")
    (origin,) = work.origins

    async def turn() -> tuple[Worker, Item]:
        async with Sources() as source:
            worker = Worker(pool, source, ExtractorPool(1), artifacts=tmp_path / "artifacts", worker_id="w")
            (claim,) = worker._claim(work, origin, 1)
            if taken:
                reaped_by_another(pool, claim.lease)
            room = asyncio.Event()
            fetching = {claim.lease}
            its = asyncio.create_task(worker._work(work, claim, origin, now(), fetching, room))
            worker._leases.hold(claim.lease, Held(work, its, room, now() - silent_seconds))
            await asyncio.gather(its, return_exceptions=True)
            assert room.is_set()
            assert fetching == set()
            assert worker._committer._queue.qsize() == 1
            return worker, worker._committer._queue.get_nowait()

    worker, item = asyncio.run(turn())
    assert sum(shop.requests.values()) == requests
    assert item is not None
    assert item.result.outcome == ("released" if taken else "quarantined")
    passed = set() if taken else {item.result.lease.attempt_id}
    assert worker._committer._finish([item], []) == passed, "the fence drops what was lost"
    assert tasks(pool) == [task]
    assert_sound(pool)


def test_a_machine_that_stood_still_for_longer_than_a_lease_costs_no_attempt(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    work = assigned(pool, tmp_path, shop, pages=4, lease="9s", concurrency=4)
    shop.served_limit = 0

    async def stalled() -> None:
        collecting = asyncio.create_task(run.collect_partitions(pool, machine(tmp_path), [work]))
        await until(lambda: len(shop.requests) == 4, collecting)
        # Nothing of this process goes on meanwhile, as when a laptop sleeps: it neither extends nor reaps.
        time.sleep(15)
        assert expired(pool) == 4
        shop.served_limit = None
        shop.gate.set()
        await asyncio.wait_for(collecting, 4 * PATIENCE_SECONDS)

    asyncio.run(stalled())
    assert shop.requests == {f"/p/n{i}": 1 for i in range(4)}
    assert tasks(pool) == [("committed", 1, 0, 1)] * 4
    assert outcomes(pool) == [("committed", 4)]
    assert_sound(pool)


async def claimed(pool: Pool, folder: Path, work: Assignment) -> Lease:
    """A claim of worker `w` that nobody works on."""
    async with Sources() as source:
        worker = Worker(pool, source, ExtractorPool(1), artifacts=folder / "artifacts", worker_id="w")
        (claim,) = worker._claim(work, work.origins[0], 1)
        return claim.lease


def test_a_claim_whose_answer_was_lost_is_taken_back_by_the_worker_that_asked(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    work = assigned(pool, tmp_path, shop, pages=1, lease="600s", concurrency=1)
    asyncio.run(claimed(pool, tmp_path, work))
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set lease_until = clock_timestamp() - interval '6 seconds'")
        assert lease.reap(tx, "w", []) == 1, "long before the task's deadline"
    assert tasks(pool) == [("pending", 1, 0, 1)]


def test_a_task_past_its_deadline_is_taken_from_its_own_worker_too(pool: Pool, tmp_path: Path, shop: Site) -> None:
    work = assigned(pool, tmp_path, shop, pages=1, lease="600s", concurrency=1)

    held = asyncio.run(claimed(pool, tmp_path, work))
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set lease_until = clock_timestamp() - interval '1 minute'")
        assert lease.reap(tx, "w", [held]) == 0
        tx.execute("update scrape.tasks set deadline_at = clock_timestamp() - interval '1 minute'")
        assert lease.reap(tx, "w", [held]) == 1
    assert tasks(pool) == [("pending", 1, 0, 1)]


def test_a_worker_told_to_stop_gives_its_pages_back_uncharged(pool: Pool, tmp_path: Path, shop: Site) -> None:
    # As many pages as places: no claim is under way when the stop comes, which could take pages just given back.
    work = assigned(pool, tmp_path, shop, pages=6, lease="600s", concurrency=6)
    shop.served_limit = 0
    workers: list[Worker] = []

    async def stopped() -> None:
        collecting = asyncio.create_task(
            run.collect_partitions(pool, machine(tmp_path), [work], on_worker=workers.append)
        )
        await until(lambda: len(shop.requests) == 6, collecting)
        workers[0].stop()
        with pytest.raises(Interrupted):
            await asyncio.wait_for(collecting, PATIENCE_SECONDS)

    asyncio.run(stopped())
    assert tasks(pool) == [("pending", 0, 1, 1)] * 6
    assert outcomes(pool) == [("released", 6)]
    assert workers[0].tally.outcomes == {"released": 6}
    assert_sound(pool)

    shop.served_limit = None
    shop.gate.set()
    asyncio.run(run.collect_partitions(pool, machine(tmp_path), [work]))
    assert shop.requests == {f"/p/n{i}": 2 for i in range(6)}
    assert tasks(pool) == [("committed", 1, 1, 2)] * 6
    assert outcomes(pool) == [("committed", 6), ("released", 6)]
    assert_sound(pool)


@pytest.mark.parametrize("turn", range(3))
def test_a_worker_whose_artifacts_find_no_room_ends_whatever_makes_room_just_then(
    pool: Pool, tmp_path: Path, shop: Site, turn: int
) -> None:
    """Each page that its end cancels makes room for another one, which must not keep it alive."""
    work = assigned(pool, tmp_path, shop, pages=400, lease="60s", concurrency=4 + 8 * turn)
    full = tmp_path / "artifacts"
    full.write_text("a file where a folder should be")

    async def drained() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await run.collect_partitions(pool, Machine(full, "w", {}), [work])

    with pytest.raises(ScrapeAssetsError, match="cannot write artifacts"):
        asyncio.run(drained())


@pytest.mark.parametrize("steps", range(6))
def test_work_that_is_cancelled_while_room_is_made_for_it_ends(
    pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    work = assigned(pool, tmp_path, shop, pages=4, lease="60s", concurrency=4)
    rooms: list[asyncio.Event] = []

    class Room(asyncio.Event):
        def __init__(self) -> None:
            super().__init__()
            rooms.append(self)

    async def cancelled() -> bool:
        worker = Worker(pool, Sources(), ExtractorPool(1), artifacts=tmp_path, worker_id="w")
        worker._leases.body_bytes = 2 * collect.BACKLOG_BYTES  # there is no room
        monkeypatch.setattr(asyncio, "Event", Room)
        driving = asyncio.create_task(worker._drive(work))
        await asyncio.sleep(0.05)
        rooms[-1].set()
        for _ in range(steps):
            await asyncio.sleep(0)
        driving.cancel()
        await asyncio.wait([driving], timeout=5.0)
        ended = driving.cancelled()
        driving.cancel()
        return ended

    assert asyncio.run(cancelled())


def test_a_partition_ends_with_its_last_page_and_not_with_the_next_look(
    pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = assigned(pool, tmp_path, shop, pages=3, lease="60s", concurrency=4)
    really = lease.waiting
    monkeypatch.setattr(collect, "REAP_SECONDS", 3600.0)
    monkeypatch.setattr(lease, "waiting", lambda *arguments: really(*arguments)._replace(due_in_seconds=3600.0))

    async def drained() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await run.collect_partitions(pool, Machine(tmp_path / "artifacts", "w", {}), [work])

    asyncio.run(drained())
    assert sum(shop.requests.values()) == 3
