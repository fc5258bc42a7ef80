"""One budget per origin: turns, shares, pauses and their pressure, whoever asks. On the database's clock alone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.demo import scripted
from scrape_assets.errors import StoreUnreachable
from scrape_assets.flow import accept, plan, run, turns
from scrape_assets.flow.run import Machine
from scrape_assets.flow.turns import Turns
from scrape_assets.rules import budget
from scrape_assets.rules.budget import Budget
from scrape_assets.store import origins, postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.site import Site, product, site

ORIGIN = "https://shop.example"
WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


def declared(pool: Pool, budget: Budget, origin: str = ORIGIN) -> None:
    with postgres.transaction(pool) as tx:
        origins.declare(tx, [origin], budget)


def turn(pool: Pool, hold_seconds: float = 60.0) -> origins.Turn:
    with postgres.transaction(pool) as tx:
        return origins.take_turn(tx, ORIGIN, hold_seconds)


def share(pool: Pool, worker: str, wanted: int, in_use: int = 0, seconds: float = 60.0, patience: float = 300.0) -> int:
    with postgres.transaction(pool) as tx:
        asked = {ORIGIN: (wanted, in_use)}
        return origins.share(tx, worker, asked, seconds=seconds, patience_seconds=patience)[ORIGIN].slots


def changed(pool: Pool, what: str) -> None:
    with postgres.transaction(pool) as tx:
        tx.execute(f"update scrape.origins set {what}".encode())


def gap(pool: Pool) -> float:
    with postgres.transaction(pool) as tx:
        return tx.execute("select scrape.gap_seconds(o) from scrape.origins o").fetchone()[0]


def pause(pool: Pool, seconds: float, *, doubles: bool) -> float:
    """How many seconds it is paused for now."""
    with postgres.transaction(pool) as tx:
        origins.pause(tx, ORIGIN, seconds, "it said so", doubles=doubles, cap_seconds=1000.0)
        left = "select extract(epoch from paused_until - clock_timestamp())::float8 from scrape.origins"
        return round(tx.execute(left).fetchone()[0])


def test_a_turn_is_one_workers_and_the_next_one_a_gap_later(pool: Pool) -> None:
    declared(pool, Budget(100.0, 8))
    assert turn(pool).starts == 1
    waits = turn(pool)
    assert waits.starts == 0
    assert 99 < waits.wait_seconds <= 102.1
    changed(pool, "next_start_at = clock_timestamp()")
    assert turn(pool).starts == 1


def test_of_turns_asked_for_at_one_moment_one_is_given(pool: Pool) -> None:
    declared(pool, Budget(100.0, 8))
    together = threading.Barrier(6)

    def ask(_: int) -> int:
        together.wait()
        return turn(pool).starts

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(ask, range(6))) == [0, 0, 0, 0, 0, 1]


def test_a_turn_of_a_fast_origin_holds_several_starts_that_last_as_long_as_their_gaps(pool: Pool) -> None:
    declared(pool, Budget(0.01, 8))
    given = turn(pool)
    assert (given.starts, given.gap) == (5, 0.01)
    with postgres.transaction(pool) as tx:
        left = "select extract(epoch from next_start_at - clock_timestamp())::float8 from scrape.origins"
        assert tx.execute(left).fetchone()[0] <= 0.06


def test_a_gap_through_the_response_begins_when_it_ends_or_its_worker_cannot_live_any_more(pool: Pool) -> None:
    declared(pool, Budget(10.0, 8, gap_through_response=True))
    given = turn(pool, hold_seconds=60.0)
    assert given.starts == 1
    assert given.held_until is not None
    assert turn(pool).starts == 0
    with postgres.transaction(pool) as tx:
        origins.end_turn(tx, ORIGIN, given.held_until)
        left = tx.execute("select extract(epoch from next_start_at - clock_timestamp())::float8 from scrape.origins")
        assert 9 < left.fetchone()[0] <= 10
        # A worker that comes back late ends no turn but its own.
        origins.end_turn(tx, ORIGIN, given.held_until)
        again = tx.execute("select extract(epoch from next_start_at - clock_timestamp())::float8 from scrape.origins")
        assert again.fetchone()[0] <= 10


def test_the_requests_of_a_day_are_counted_for_all_and_the_next_day_begins_anew(pool: Pool) -> None:
    declared(pool, Budget(0.0, 8, per_day=3))
    assert [turn(pool).starts for _ in range(4)] == [1, 1, 1, 0]
    spent = turn(pool)
    assert spent.paused
    with postgres.transaction(pool) as tx:
        until, reason = tx.execute("select paused_until, pause_reason from scrape.origins").fetchone()
    assert (until.hour, until.minute, until.second) == (0, 0, 0)
    assert "3 requests of this day" in reason
    changed(pool, "day = day - 1, paused_until = clock_timestamp()")
    assert turn(pool).starts == 1


def test_the_rate_of_robots_txt_holds_where_it_is_the_slower_one(pool: Pool) -> None:
    declared(pool, Budget(1.0, 8))
    for delay, expected in ((5.0, 5.0), (0.5, 1.0)):
        with postgres.transaction(pool) as tx:
            origins.set_robots_delay(tx, ORIGIN, delay)
        assert gap(pool) == expected


def test_a_site_that_names_no_time_is_left_alone_twice_as_long_each_time_until_it_was_calm(pool: Pool) -> None:
    declared(pool, Budget(1.0, 8, calm_seconds=50.0))
    over = "paused_until = clock_timestamp() - interval '1 second'"
    lengths = []
    for _ in range(4):
        lengths.append(pause(pool, 10.0, doubles=True))
        assert pause(pool, 10.0, doubles=True) == lengths[-1], "what was asked before it presses no further"
        changed(pool, over)
    assert lengths == [10, 20, 40, 80]
    assert gap(pool) == 16.0, "it comes back slowly"
    # A calm time forgives one doubling.
    for calm, expected in ((51, 8.0), (101, 4.0), (1000, 1.0)):
        changed(pool, f"paused_until = clock_timestamp() - interval '{calm} seconds'")
        assert gap(pool) == expected
    assert pause(pool, 10.0, doubles=True) == 10


def test_a_site_that_names_a_time_is_left_alone_for_that_and_a_longer_pause_is_never_shortened(pool: Pool) -> None:
    declared(pool, Budget(1.0, 8))
    assert pause(pool, 600.0, doubles=False) == 600
    assert pause(pool, 5.0, doubles=False) == 600
    changed(pool, "paused_until = clock_timestamp() - interval '1 second'")
    assert pause(pool, 5.0, doubles=False) == 5


# BC032
def test_an_unpaced_origin_comes_back_slowly_too(pool: Pool) -> None:
    declared(pool, Budget(0.0, 8))
    assert gap(pool) == 0
    pause(pool, 10.0, doubles=True)
    changed(pool, "paused_until = clock_timestamp()")
    assert gap(pool) == 0.2


# BC035
def test_what_reaches_nothing_pauses_its_origin_at_the_fifth_time_in_a_row_and_sooner_while_it_comes_back(
    pool: Pool,
) -> None:
    declared(pool, Budget(0.0, 8))

    def failing(times: int) -> bool:
        with postgres.transaction(pool) as tx:
            origins.unreachable(tx, ORIGIN, times, 10.0, "nobody there")
            return bool(origins.paused(tx, [ORIGIN]))

    assert not failing(4)
    with postgres.transaction(pool) as tx:
        origins.reached(tx, [ORIGIN])
    assert not failing(4), "an answer in between says that it is there"
    assert failing(1)
    changed(pool, "paused_until = clock_timestamp()")
    assert not failing(1)
    assert failing(1)


def test_shares_are_never_more_than_the_origin_allows_whoever_asks_at_one_moment(pool: Pool) -> None:
    """Case BC014."""
    declared(pool, Budget(0.0, 2))
    together = threading.Barrier(8)

    def ask(worker: int) -> int:
        together.wait()
        return share(pool, f"w{worker}", wanted=8)

    for _ in range(50):
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(ask, range(8)))
        with postgres.transaction(pool) as tx:
            assert tx.execute("select sum(slots) from scrape.origin_shares").fetchone()[0] <= 2


def test_a_worker_that_comes_later_gets_its_part_when_the_first_gives_back(pool: Pool) -> None:
    declared(pool, Budget(0.0, 8))
    assert share(pool, "first", wanted=8, in_use=0) == 8
    assert share(pool, "second", wanted=8) == 0, "all of them are the first one's"
    assert share(pool, "first", wanted=8, in_use=6) == 4, "it begins no further one above its part"
    assert share(pool, "second", wanted=8) == 2, "requests that are under way are no one else's"
    assert share(pool, "first", wanted=8, in_use=3) == 4
    assert share(pool, "second", wanted=8, in_use=2) == 4


def test_a_worker_alone_has_all_of_it_again(pool: Pool) -> None:
    declared(pool, Budget(0.0, 8))
    share(pool, "first", wanted=8)
    share(pool, "second", wanted=8)
    assert share(pool, "first", wanted=8) == 4
    with postgres.transaction(pool) as tx:
        origins.leave(tx, "second")
    assert share(pool, "first", wanted=8) == 8


def test_what_a_dead_worker_had_is_free_when_its_time_is_over(pool: Pool) -> None:
    """Case BC012."""
    declared(pool, Budget(0.0, 1))
    assert share(pool, "dead", wanted=8, seconds=0.3) == 1
    assert share(pool, "next", wanted=8) == 0
    time.sleep(0.35)
    assert share(pool, "next", wanted=8) == 1


def test_more_workers_than_slots_take_turns(pool: Pool) -> None:
    declared(pool, Budget(0.0, 1))
    assert [share(pool, name, wanted=4) for name in "abc"] == [1, 0, 0]
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.origin_shares set since = clock_timestamp() - interval '6 seconds'")
    assert share(pool, "a", wanted=4, in_use=1) == 0, "it begins no further one"
    assert share(pool, "c", wanted=4) == 0, "not before that request has ended"
    assert share(pool, "a", wanted=4) == 0
    assert share(pool, "c", wanted=4) == 1
    assert share(pool, "a", wanted=4) == 0


@pytest.mark.slow  # half a minute of turns of five seconds
def test_a_busy_worker_lets_one_that_comes_later_have_its_turns(pool: Pool, tmp_path: Path) -> None:
    with scripted.running() as shop:
        shop.answer = lambda path: scripted.product(int(path[3:]) % 1000)._replace(seconds=0.2)
        datasets = {}
        for number, name in enumerate(("early", "late")):
            paths = [f"/p/{1000 * number + page}" for page in range(200)]
            make.dataset(tmp_path, {"north": (shop.url, paths)}, name=name)
            file = tmp_path / f"datasets/{name}/retailers/north.yaml"
            file.write_text(file.read_text() + "fetch: {concurrency: 1, rate: none, robots: ignore}\n")
            datasets[name] = make.load.dataset(tmp_path, name)
            plan.plan(pool, datasets[name], WINDOW, now=NOW)

        async def collect(name: str, begins: float) -> None:
            await asyncio.sleep(begins)
            workers: list[Any] = []
            work = run.assignments(pool, datasets[name], WINDOW, ["north"])
            machine = Machine(tmp_path / name, name, {})
            collecting = asyncio.create_task(run.collect_partitions(pool, machine, work, on_worker=workers.append))
            await asyncio.wait([collecting], timeout=30.0 - begins)
            workers[0].stop()
            await asyncio.gather(collecting, return_exceptions=True)

        async def both() -> None:
            await asyncio.gather(collect("early", 0.0), collect("late", 1.0))

        asyncio.run(both())
        askers = [len(path) > len("/p/999") for path in shop.requests]
    assert sum(askers) >= 5, "the later one got nothing"
    changes = sum(one != other for one, other in pairwise(askers))
    assert changes >= 2, "the first one got nothing back"
    assert shop.peak == 1


def test_partitions_of_one_worker_take_no_room_twice(pool: Pool, tmp_path: Path) -> None:
    with scripted.running() as shop:
        shop.answer = lambda path: scripted.product(int(path[3:]))._replace(seconds=0.1)
        sites = {f"r{n}": (shop.url, [f"/p/{20 * n + page}" for page in range(20)]) for n in range(4)}
        dataset = make.dataset(tmp_path, sites)
        plan.plan(pool, dataset, WINDOW, now=NOW)
        work = run.assignments(pool, dataset, WINDOW, sorted(sites))
        asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "w", {}), work))
    with postgres.transaction(pool) as tx:
        assert shop.peak <= tx.execute("select concurrency from scrape.origins").fetchone()[0]
    assert len(shop.requests) == 80


def test_what_the_store_is_told_to_be_in_use_does_not_grow_before_it_answers(pool: Pool) -> None:
    declared(pool, Budget(0.0, 8))

    async def grown() -> tuple[int, int]:
        mine = Turns(pool, "w")
        mine.use({ORIGIN: 8}, lease_seconds=60.0, patience_seconds=300.0)
        await mine.refresh()
        mine.begin(ORIGIN)
        looking = asyncio.create_task(mine.refresh())
        await asyncio.sleep(0)
        meanwhile = mine.room(ORIGIN)
        await looking
        room = mine.room(ORIGIN)
        await mine.leave()
        return meanwhile, room

    assert asyncio.run(grown()) == (0, 7)


def test_nobody_holds_more_pages_of_a_slow_origin_than_may_start_in_time(pool: Pool) -> None:
    declared(pool, Budget(60.0, 8))
    assert share(pool, "w", wanted=8, patience=300.0) == 5
    declared(pool, Budget(3600.0, 8))
    assert share(pool, "w", wanted=8, patience=300.0) == 1


def test_retailers_that_share_an_origin_share_what_the_careful_one_allows(pool: Pool, tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, {"north": (ORIGIN, ["/p/1"]), "south": (ORIGIN, ["/p/2"])})
    file = tmp_path / "datasets/prices/retailers/south.yaml"
    file.write_text(file.read_text() + "fetch: {rate: 1/s, concurrency: 2, per_day: 50}\n")
    dataset = make.load.dataset(tmp_path, "prices")
    for name in ("north", "south"):
        plan.plan(pool, dataset, WINDOW, now=NOW, retailers=[name])
        with postgres.transaction(pool) as tx:
            row = tx.execute("select interval_seconds, concurrency, per_day from scrape.origins").fetchone()
        assert tuple(row) == (1.0, 2, 50)


@pytest.mark.parametrize("first", ["careful", "hasty"])
def test_datasets_that_share_an_origin_share_what_the_careful_one_allows(pool: Pool, first: str) -> None:
    budgets = {
        "careful": Budget(1.0, 2, per_day=50, calm_seconds=60.0, dataset_id="careful"),
        "hasty": Budget(0.1, 16, gap_through_response=True, dataset_id="hasty"),
    }
    for name in (first, *(set(budgets) - {first}), first):
        declared(pool, budgets[name])
    with postgres.transaction(pool) as tx:
        row = tx.execute(
            "select interval_seconds, concurrency, gap_through_response, per_day, calm_seconds from scrape.origins"
        ).fetchone()
    assert tuple(row) == (1.0, 2, True, 50, 60.0)
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.origin_budgets set declared_at = declared_at - interval '31 days'")
    declared(pool, budgets["hasty"])
    assert gap(pool) == 0.1, "one that nobody planned for a month binds nobody"


def test_of_two_datasets_that_declare_at_one_moment_the_strict_one_holds(pool: Pool) -> None:
    strict, lax = Budget(10.0, 1, per_day=100, dataset_id="a"), Budget(0.0, 8, dataset_id="b")
    with pool.connection() as first:
        origins.declare(first, [ORIGIN], strict)
        second = threading.Thread(target=declared, args=(pool, lax))
        second.start()
        time.sleep(0.3)
        first.commit()
    second.join()
    with postgres.transaction(pool) as tx:
        row = tx.execute("select interval_seconds, concurrency, per_day from scrape.origins").fetchone()
    assert tuple(row) == (10.0, 1, 100)


def test_a_day_that_was_over_goes_on_when_more_is_allowed(pool: Pool) -> None:
    declared(pool, Budget(0.0, 8, per_day=1))
    assert turn(pool).starts == 1
    assert turn(pool).paused
    declared(pool, Budget(0.0, 8, per_day=1))
    assert turn(pool).paused
    declared(pool, Budget(0.0, 8, per_day=2))
    assert turn(pool).starts == 1


def test_a_delay_of_robots_txt_holds_while_anybody_obeys_it(pool: Pool) -> None:
    obeying, ignoring = (
        Budget(0.0, 8, obeys_robots=obeys, dataset_id=name) for obeys, name in ((True, "one"), (False, "two"))
    )
    declared(pool, obeying)
    with postgres.transaction(pool) as tx:
        origins.set_robots_delay(tx, ORIGIN, 3.0)
    declared(pool, ignoring)
    assert gap(pool) == 3.0
    declared(pool, obeying._replace(obeys_robots=False))
    assert gap(pool) == 0.0


# robots.txt


def collected(
    pool: Pool, folder: Path, shop: Site, paths: list[str], *, fetch: str = "", seconds: float = 60.0
) -> None:
    """The window is collected as far as it comes in that time."""
    dataset = robotic(folder, shop, paths, fetch)
    plan.plan(pool, dataset, WINDOW, now=NOW)

    async def collect() -> None:
        workers: list[Any] = []
        work = run.assignments(pool, dataset, WINDOW, ["north"])
        collecting = asyncio.create_task(
            run.collect_partitions(pool, Machine(folder / "artifacts", "w", {}), work, on_worker=workers.append)
        )
        done, _ = await asyncio.wait([collecting], timeout=seconds)
        if not done:
            workers[0].stop()
        await asyncio.gather(collecting, return_exceptions=True)

    asyncio.run(collect())


def robotic(folder: Path, shop: Site, paths: list[str], fetch: str) -> Dataset:
    more = "key: [sku]\n" + (f"fetch: {fetch}\n" if fetch else "")
    return make.dataset(folder, {"north": (shop.url, paths)}, more=more)


def ended(pool: Pool) -> dict[str, str]:
    with postgres.transaction(pool) as tx:
        rows = tx.execute("select url, state || coalesce(' ' || last_failure_class, '') from scrape.tasks").fetchall()
    return {url.partition("/p/")[2]: text for url, text in rows}


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        (BOM + b"User-agent: *\nDisallow: /p/b\n", "a"),
        (b"User-agent: *\rDisallow: /p/b\r", "a"),
        ("User-agent: *\r\nDisallow: /p/b\r\n".encode("utf-16"), "a"),
        (b"User-agent: scrape_assets\nDisallow: /p/b\n\nUser-agent: *\nDisallow: /\n", "a"),
        (b"User-agent: other\nDisallow: /\n", "ab"),
        (b"<!doctype html><title>User-agent: *\nDisallow: /</title>", "ab"),
        (b"User-agent: *\nDisallow: /\nAllow: /p/a$\n", "a"),
        (b"", "ab"),
    ],
    ids=["bom", "cr", "utf16", "ours", "others", "html", "longest", "empty"],
)
def test_what_robots_txt_forbids_is_not_asked_for(
    pool: Pool, tmp_path: Path, shop: Site, body: bytes, allowed: str
) -> None:
    """Case BC066."""
    shop.robots = (200, body)
    collected(pool, tmp_path, shop, ["/p/a", "/p/b"])
    assert ended(pool) == {name: "committed" if name in allowed else "quarantined robots" for name in "ab"}
    assert sorted(shop.requests) == [f"/p/{name}" for name in allowed]
    assert shop.robots_requests == 1


# BC066
@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.5", 0.5), ("86400", 60.0), ("nan", 0.0), ("-5", 0.0), ("inf", 0.0), ("soon", 0.0), ("0", 0.0)],
)
def test_a_crawl_delay_is_obeyed_as_far_as_a_window_can_end(
    pool: Pool, tmp_path: Path, shop: Site, text: str, expected: float
) -> None:
    shop.robots = (200, f"User-agent: *\nCrawl-delay: {text}\n".encode())
    collected(pool, tmp_path, shop, ["/p/a"])
    with postgres.transaction(pool) as tx:
        assert tx.execute("select robots_delay from scrape.origins").fetchone()[0] == expected


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_robots_txt_that_is_not_there_forbids_nothing(pool: Pool, tmp_path: Path, shop: Site, status: int) -> None:
    shop.robots = (status, b"User-agent: *\nDisallow: /\n")
    collected(pool, tmp_path, shop, ["/p/a"])
    assert ended(pool) == {"a": "committed"}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_nothing_is_asked_for_before_robots_txt_can_be_read(
    pool: Pool, tmp_path: Path, shop: Site, status: int
) -> None:
    shop.robots = (status, b"")
    collected(pool, tmp_path, shop, [f"/p/{name}" for name in "abcdef"], seconds=2.0)
    assert shop.requests == {}
    with postgres.transaction(pool) as tx:
        met = tx.execute(
            "select failure_class, count(*), min(reason) from scrape.attempts where failure_class is not null group by 1"
        ).fetchall()
    (failure_class, pages, reason), *others = met
    assert (failure_class, others) == ("rate_limited" if status == 429 else "http_5xx", [])
    assert reason.startswith(f"its robots.txt cannot be read (status {status})")
    assert pages <= shop.robots_requests, "one page for each answer, not all that wait"
    assert shop.robots_requests >= 2, "it is asked for again"
    with postgres.transaction(pool) as tx:
        assert "robots.txt cannot be read" in tx.execute("select pause_reason from scrape.origins").fetchone()[0]
    shop.robots = (200, b"")
    collected(pool, tmp_path, shop, [f"/p/{name}" for name in "abcdef"])
    assert {name: state.split()[0] for name, state in ended(pool).items()} == dict.fromkeys("abcdef", "committed")


def test_a_site_that_never_gives_its_robots_txt_has_an_end(pool: Pool, tmp_path: Path, shop: Site) -> None:
    shop.robots = (503, b"")
    collected(pool, tmp_path, shop, ["/p/a"])
    assert ended(pool) == {"a": "quarantined retries_exhausted"}
    assert shop.requests == {}


def test_the_copy_of_an_earlier_run_holds_while_the_site_gives_none(pool: Pool, tmp_path: Path, shop: Site) -> None:
    with postgres.transaction(pool) as tx:
        tx.execute(
            "insert into scrape.runs (run_id, dataset_id, collection_window, window_start, window_end)"
            " values ('prices@2026-03-04', 'prices', '2026-03-04', '2026-03-04', '2026-03-05')"
        )
        origins.ask_robots(tx, "prices@2026-03-04", shop.url, 60)
        origins.keep_robots(tx, "prices@2026-03-04", shop.url, 200, "User-agent: *\nDisallow: /p/b", None)
    shop.robots = (503, b"")
    collected(pool, tmp_path, shop, ["/p/a", "/p/b"])
    assert ended(pool) == {"a": "committed", "b": "quarantined robots"}


@pytest.mark.parametrize("act", ["robots", "ask_robots", "keep_robots", "set_robots_delay"])
def test_a_store_that_is_gone_for_a_moment_at_robots_txt_ends_no_worker(
    pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    shop.robots = (200, b"User-agent: *\nCrawl-delay: 0.1\n")
    once_gone(monkeypatch, act)
    collected(pool, tmp_path, shop, ["/p/a"])
    assert ended(pool) == {"a": "committed"}
    assert shop.robots_requests == 1
    assert gap(pool) == 0.1


def once_gone(monkeypatch: pytest.MonkeyPatch, act: str, about: str = "") -> None:
    """The store does not answer the first time that this is asked about that."""
    real, failures = getattr(origins, act), [StoreUnreachable("gone for a moment")]

    def asked(*arguments: Any, **more: Any) -> Any:
        if failures and about in str(arguments):
            raise failures.pop()
        return real(*arguments, **more)

    monkeypatch.setattr(origins, act, asked)


def test_a_robots_txt_is_kept_although_another_asker_forgot_that_it_is_asked_for(pool: Pool) -> None:
    with postgres.transaction(pool) as tx:
        tx.execute(
            "insert into scrape.runs (run_id, dataset_id, collection_window, window_start, window_end)"
            f" values ('{RUN}', 'prices', '{WINDOW}', '{WINDOW}', '2026-03-06')".encode()
        )
        assert origins.ask_robots(tx, RUN, ORIGIN, 60)
        origins.forget_robots(tx, RUN, ORIGIN)
        for text in ("first", "second"):
            origins.keep_robots(tx, RUN, ORIGIN, 200, text, None)
            kept = origins.robots(tx, RUN, ORIGIN)
            assert kept is not None
            assert (kept.body, kept.of_this_run) == ("first", True)


def test_whoever_answers_for_the_site_may_ignore_it(pool: Pool, tmp_path: Path, shop: Site) -> None:
    shop.robots = (200, b"User-agent: *\nDisallow: /\n")
    collected(pool, tmp_path, shop, ["/p/a"], fetch="{rate: none, robots: ignore}")
    assert ended(pool) == {"a": "committed"}
    assert shop.robots_requests == 0


def test_a_redirect_to_what_robots_txt_forbids_is_not_followed(pool: Pool, tmp_path: Path, shop: Site) -> None:
    """Case BC048."""
    shop.robots = (200, b"User-agent: *\nDisallow: /private\n")
    shop.answer = lambda path: (302, {"location": "/private/a"}, b"") if path == "/p/a" else (200, {}, product("b"))
    collected(pool, tmp_path, shop, ["/p/a"])
    assert ended(pool) == {"a": "quarantined redirected"}
    assert sorted(shop.requests) == ["/p/a"]


@pytest.fixture
def deals() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.mark.parametrize(
    ("robots", "end"),
    [
        ((200, b"User-agent: *\nDisallow: /p\n"), "quarantined redirected"),
        ((404, b""), "committed"),
        ((503, b""), "quarantined redirected"),
    ],
)
def test_the_robots_txt_of_a_host_that_a_redirect_leads_to_is_read_first(
    pool: Pool, tmp_path: Path, shop: Site, deals: Site, robots: tuple[int, bytes], end: str
) -> None:
    deals.robots = robots
    redirected(pool, tmp_path, shop, deals)
    assert ended(pool) == {"a": end}
    assert deals.robots_requests >= 1
    assert dict(deals.requests) == ({"/p/a": 1} if end == "committed" else {})


def reached(shop: Site, deals: Site) -> dict[str, tuple[str, int]]:
    """Where the hosts of the site are."""
    return {
        name: ("127.0.0.1", int(one.url.rpartition(":")[2]))
        for name, one in (("shop.example", shop), ("deals.shop.example", deals))
    }


def redirected(pool: Pool, folder: Path, shop: Site, deals: Site, fetch: str = "{rate: none}") -> None:
    """A page is collected that moved to another host of the site."""
    shop.answer = lambda path: (302, {"location": f"http://deals.shop.example{path}"}, b"")
    make.dataset(folder, {"north": ("http://shop.example", ["/p/a"])})
    file = folder / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + f"fetch: {fetch}\n")
    dataset = make.load.dataset(folder, "prices")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(folder / "artifacts", "w", reached(shop, deals)), work))


@pytest.mark.parametrize("robots", ["obey", "ignore"])
def test_a_store_that_is_gone_for_a_moment_at_a_new_origin_ends_no_worker(
    pool: Pool, tmp_path: Path, shop: Site, deals: Site, monkeypatch: pytest.MonkeyPatch, robots: str
) -> None:
    once_gone(monkeypatch, "declare", "deals.shop.example")
    redirected(pool, tmp_path, shop, deals, f"{{rate: none, robots: {robots}}}")
    assert ended(pool) == {"a": "committed"}


def test_a_site_under_every_name_is_redirected_to_on_few_origins(
    pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MAX_ORIGINS", 3)
    shop.answer = lambda path: (
        (302, {"location": f"http://h{path[3:]}.shop.example/q/"}, b"") if path[1] == "p" else (200, {}, product("q"))
    )
    everywhere(pool, tmp_path, shop, "{file: north.csv}")
    with postgres.transaction(pool) as tx:
        asked = tx.execute("select count(*) from scrape.origins").fetchone()[0]
        reasons = tx.execute("select reason from scrape.attempts where failure_class = 'redirected'").fetchall()
    assert asked == 1 + 3
    assert shop.robots_requests == 1 + 3
    assert ["led to 3 origins before it" in row.reason for row in reasons] == [True] * 7
    assert sorted(ended(pool).values()) == ["committed"] * 3 + ["quarantined redirected"] * 7


def test_a_list_under_every_name_has_pages_on_few_origins_and_is_not_taken_for_whole(
    pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "MAX_ORIGINS", 3)
    named = "".join(f"<url><loc>http://h{n}.shop.example/p/{n}</loc></url>" for n in range(10))
    listed = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{named}</urlset>'.encode()
    shop.answer = lambda path: (200, {}, listed if path == "/sitemap.xml" else product(path[3:]))
    dataset = everywhere(pool, tmp_path, shop, "{sitemap: /sitemap.xml}")
    with postgres.transaction(pool) as tx:
        assert tx.execute("select count(*) from scrape.origins").fetchone()[0] == 3
    assert shop.requests.total() == 1 + 2
    checks = {check["rule"]: check for check in accept.accept_retailer(pool, dataset, RUN, "north").checks}
    assert not checks["discovery"]["passed"]
    assert "pages on more than 3 origins" in checks["discovery"]["got"]


def everywhere(pool: Pool, folder: Path, shop: Site, urls: str) -> Dataset:
    """Collected, with the same site under ten more names."""
    make.dataset(folder, {"north": ("http://shop.example", [f"/p/{n}" for n in range(10)])})
    file = folder / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text().replace("{file: north.csv}", urls))
    dataset = make.load.dataset(folder, "prices")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    port = int(shop.url.rpartition(":")[2])
    there = dict.fromkeys(("shop.example", *(f"h{n}.shop.example" for n in range(10))), ("127.0.0.1", port))
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(folder / "artifacts", "w", there), work))
    return dataset


CONTEXTS = """\
key: [sku]
fetch: {rate: none, robots: ignore}
contexts: {berlin: {zip: "10115"}}
context: {setup: {url: /set}, prove: {css: .price, equals: "19.99"}}
"""


def test_nothing_is_claimed_while_the_origin_is_paused_that_sets_its_context_up(
    pool: Pool, tmp_path: Path, shop: Site, deals: Site
) -> None:
    make.dataset(tmp_path, {"north": ("http://deals.shop.example", [f"/p/{n}" for n in range(100)])}, more=CONTEXTS)
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text().replace("site: http://deals.", "site: http://"))
    dataset = make.load.dataset(tmp_path, "prices")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    declared(pool, dataset.budget("http://shop.example"), "http://shop.example")
    with postgres.transaction(pool) as tx:
        origins.pause(tx, "http://shop.example", 3.0, "it said so", doubles=False, cap_seconds=1000.0)
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "w", reached(shop, deals)), work))
    assert set(ended(pool).values()) == {"committed"}
    assert dict(shop.requests) == {"/set": 1}
    with postgres.transaction(pool) as tx:
        given_back = tx.execute("select count(*) from scrape.attempts where outcome = 'released'").fetchone()[0]
    assert given_back <= 8, "no more than were under way when it was noticed"


def test_who_dies_over_robots_txt_holds_the_others_up_for_a_lease_and_no_longer(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/a"])}, lease="2s", timeout="60s")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    with postgres.transaction(pool) as tx:
        assert origins.ask_robots(tx, f"prices@{WINDOW}", shop.url, 2.0), "as one did that died then"
    began = time.monotonic()
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "w", {}), work))
    assert ended(pool) == {"a": "committed"}
    assert 1.0 < time.monotonic() - began < 10.0


def test_a_robots_txt_without_an_end_is_none_that_was_read(pool: Pool, tmp_path: Path, shop: Site) -> None:
    shop.robots = (200, b"User-agent: *\nDisallow: /p/zzz\n" + b"# a comment\n" * 300_000)
    collected(pool, tmp_path, shop, ["/p/a"], seconds=1.5)
    assert shop.requests == {}


def test_each_hop_of_a_redirect_takes_a_turn(pool: Pool, tmp_path: Path, shop: Site) -> None:
    seen: list[float] = []

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        seen.append(time.monotonic())
        hop = int(path[3:])
        return (302, {"location": f"/p/{hop + 1}"}, b"") if hop < 4 else (200, {}, product("b"))

    shop.answer = answer
    collected(pool, tmp_path, shop, ["/p/1"], fetch="{rate: 5/s, robots: ignore}")
    assert len(seen) == 4
    assert min(later - earlier for earlier, later in pairwise(seen)) >= 0.199


def test_a_429_holds_all_back_at_once_and_costs_no_page_its_attempts(pool: Pool, tmp_path: Path, shop: Site) -> None:
    """Case BC032."""
    until = time.monotonic() + 4.0
    early: list[str] = []

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if time.monotonic() < until:
            early.append(path)
            return 429, {"retry-after": "2"}, b""
        return 200, {}, product(path[3:])

    shop.answer = answer
    collected(pool, tmp_path, shop, [f"/p/{n}" for n in range(60)], fetch="{rate: 20/s, robots: ignore}")
    assert {text.split()[0] for text in ended(pool).values()} == {"committed"}
    assert 1 <= len(early) < 10, "every worker went on asking"
    with postgres.transaction(pool) as tx:
        assert tx.execute("select max(attempt_count) from scrape.tasks").fetchone()[0] == 1
