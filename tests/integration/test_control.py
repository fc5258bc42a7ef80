"""A partition that is paused, resumed, stopped by a site that refuses, closed by a person or by its deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import accept, control, plan, run, verify
from scrape_assets.flow.collect import BACKLOG
from scrape_assets.flow.commit import GROUP
from scrape_assets.flow.run import Machine
from scrape_assets.rules import refusals
from scrape_assets.store import lease, postgres, runs
from scrape_assets.store.postgres import Pool, Transaction
from tests.helpers import make
from tests.helpers.site import Site, product, site

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
LOGIN = (302, {"location": "/login?next=/p"}, b"")


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


def declared(folder: Path, shop: Site, pages: int = 30, **more: Any) -> Dataset:
    return make.dataset(
        folder, {"north": (shop.url, [f"/p/n{i}" for i in range(pages)]), "south": (shop.url, ["/p/s1"])}, **more
    )


def planned(pool: Pool, folder: Path, shop: Site, pages: int = 30, **more: Any) -> Dataset:
    dataset = declared(folder, shop, pages, **more)
    assert [p.problem for p in plan.plan(pool, dataset, WINDOW, now=NOW)] == [None, None]
    return dataset


def collect(pool: Pool, folder: Path, dataset: Dataset, *, frozen: bool = False) -> None:
    work = run.assignments(pool, dataset, WINDOW, sorted(dataset.retailers), frozen=frozen)
    asyncio.run(run.collect_partitions(pool, Machine(folder / "artifacts", "test-worker", {}), work))


def states(pool: Pool, retailer: str = "north") -> dict[str, int]:
    with postgres.transaction(pool) as tx:
        rows = tx.execute(
            "select coalesce(nullif(state, 'quarantined'), last_failure_class) as state, count(*) as n"
            " from scrape.tasks where retailer = %s group by 1",
            [retailer],
        ).fetchall()
    return {row.state: row.n for row in rows}


def partition(pool: Pool, retailer: str = "north") -> Any:
    with postgres.transaction(pool) as tx:
        return tx.execute("select * from scrape.run_partitions where retailer = %s", [retailer]).fetchone()


def claim(pool: Pool, dataset: Dataset, wanted: int = 1, lease_seconds: float = 60.0) -> list[lease.Claim]:
    (work,) = run.assignments(pool, dataset, WINDOW, ["north"])
    with postgres.transaction(pool) as tx:
        return lease.claim(
            tx,
            run_id=RUN,
            retailer="north",
            origin=work.origins[0],
            manifest_hash=work.frozen.manifest_hash,
            worker_id="another",
            wanted=wanted,
            lease_seconds=lease_seconds,
            deadline_seconds=600.0,
        )


def assert_sound(pool: Pool) -> None:
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


def test_a_paused_retailer_is_asked_nothing_and_resumes_where_it_was(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = planned(pool, tmp_path, shop)
    assert control.pause(pool, RUN, ["north"], "the shop asked for it") == ["north"]
    assert control.pause(pool, RUN, ["north"], "another reason") == []
    collect(pool, tmp_path, dataset)
    assert {path for path in shop.requests if "/n" in path} == set()
    assert states(pool, "south") == {"committed": 1}
    verdict = accept.accept_retailer(pool, dataset, RUN, "north")
    assert verdict.state == "collecting"
    assert "the shop asked for it" in verdict.waiting_for
    assert control.resume(pool, RUN, []) == ["north"]
    assert control.resume(pool, RUN, []) == []
    collect(pool, tmp_path, dataset)
    assert states(pool) == {"committed": 30}
    assert set(shop.requests.values()) == {1}
    assert_sound(pool)


def test_a_pause_in_the_middle_lets_pages_under_way_end(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = planned(pool, tmp_path, shop, pages=60)
    shop.served_limit = 10

    def pause_and_open() -> None:
        while len(shop.served) < 10:
            shop.gate.wait(0.05)
        control.pause(pool, RUN, ["north"], "in the middle")
        shop.served_limit = None
        shop.gate.set()

    pausing = threading.Thread(target=pause_and_open)
    pausing.start()
    collect(pool, tmp_path, dataset)
    pausing.join()
    left = states(pool)
    assert left["pending"] > 0
    assert left["committed"] >= 10
    assert set(left) == {"pending", "committed"}
    assert set(shop.requests.values()) == {1}, "a page that was under way was given back, and would be asked for again"
    assert_sound(pool)


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ((401, {}, b"who are you"), "access_refused"),
        (LOGIN, "login"),
        ((200, {}, b"<html><head><title>Just a moment...</title></head><body>cf-challenge</body></html>"), "challenge"),
    ],
)
def test_a_site_that_refuses_is_left_alone_and_a_person_may_go_on(
    pool: Pool, tmp_path: Path, shop: Site, answer: Any, refused: str
) -> None:
    dataset = planned(pool, tmp_path, shop, pages=400, coverage=0.5)
    shop.answer = lambda path: answer if "/p/n" in path else (200, {}, product(path[3:]))
    collect(pool, tmp_path, dataset)
    found = states(pool)
    assert 10 <= found[refused] <= 8 + BACKLOG + GROUP < 400, "it went on"
    assert found["pending"] == 400 - found[refused]
    stopped = partition(pool)
    assert stopped.stopped_at and refused in stopped.pause_reason
    assert states(pool, "south") == {"committed": 1}, "the other retailer goes on"
    with postgres.transaction(pool) as tx:
        rested = tx.execute("select pressure, pause_reason from scrape.origins").fetchone()
    assert rested.pressure >= 1, "its site rests for everybody"
    assert f"north of {RUN} was stopped: " in rested.pause_reason

    control.resume(pool, RUN, ["north"])
    shop.answer = lambda path: (200, {}, product(path[3:]))
    collect(pool, tmp_path, dataset)
    assert states(pool) == {refused: found[refused], "committed": 400 - found[refused]}
    assert_sound(pool)


def test_a_resumed_retailer_that_still_refuses_is_stopped_by_new_refusals_only(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = planned(pool, tmp_path, shop, pages=200)
    shop.answer = lambda path: (401, {}, b"") if "/p/n" in path else (200, {}, product(path[3:]))
    collect(pool, tmp_path, dataset)
    first = states(pool)["access_refused"]
    control.resume(pool, RUN, ["north"])
    collect(pool, tmp_path, dataset)
    assert states(pool)["access_refused"] >= first + refusals.IN_A_ROW
    assert partition(pool).stopped_at


def test_a_stopped_retailer_that_nobody_resumes_ends_after_its_grace(
    pool: Pool, owner: Transaction, tmp_path: Path, shop: Site
) -> None:
    dataset = planned(pool, tmp_path, shop, pages=200)
    shop.answer = lambda path: (401, {}, b"") if "/p/n" in path else (200, {}, product(path[3:]))
    collect(pool, tmp_path, dataset)
    control.step(pool)
    assert states(pool)["pending"] > 0, "the grace was not waited for"
    owner.execute(
        "update scrape.run_partitions set stopped_at = stopped_at - make_interval(secs => %s)",
        [control.STOP_GRACE_SECONDS],
    )
    control.step(pool)
    assert states(pool) == {"access_refused": 200}
    verdict = accept.accept_retailer(pool, dataset, RUN, "north")
    assert verdict.state == "rejected"
    assert any("coverage" in reason for reason in verdict.reasons)
    assert_sound(pool)


def test_closing_quarantines_what_is_open_and_lets_leased_pages_end(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = planned(pool, tmp_path, shop)
    claim(pool, dataset, wanted=3, lease_seconds=15.0)  # of a worker that is dead
    said: list[str] = []
    [closed] = control.close(pool, RUN, ["north"], said.append)
    assert closed.quarantined == 30
    assert said == ["3 pages are under way; they end, or their leases run out"]
    assert states(pool) == {"window_closed": 30}
    assert states(pool, "south") == {"pending": 1}
    assert claim(pool, dataset) == []
    assert accept.accept_retailer(pool, dataset, RUN, "north").state == "rejected"
    assert_sound(pool)


def test_what_was_collected_before_closing_can_be_accepted(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = planned(pool, tmp_path, shop, coverage=0.3)
    shop.answer = lambda path: (503, {}, b"") if path.endswith(("7", "8", "9")) else (200, {}, product(path[3:]))
    file = tmp_path / "datasets/prices/dataset.yaml"
    file.write_text(file.read_text().replace("base: 0.1s, cap: 0.5s", "base: 1h, cap: 1h"))
    dataset = make.load.dataset(tmp_path, "prices")

    def close_when_only_retries_are_left() -> None:
        while states(pool).get("committed", 0) < 21 or states(pool).get("retry_wait", 0) < 9:
            threading.Event().wait(0.1)
        control.close(pool, RUN, ["north"], lambda _: None)

    closing = threading.Thread(target=close_when_only_retries_are_left)
    closing.start()
    collect(pool, tmp_path, dataset)  # returns by itself, hours before the retries are due
    closing.join()
    assert states(pool) == {"committed": 21, "window_closed": 9}
    assert accept.accept_retailer(pool, dataset, RUN, "north").state == "accepted"
    assert_sound(pool)


def test_a_partition_past_its_deadline_is_closed_by_any_worker(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = planned(pool, tmp_path, shop)
    file = tmp_path / "datasets/prices/dataset.yaml"
    file.write_text(file.read_text() + "deadline: 1s\n")
    dataset = make.load.dataset(tmp_path, "prices")
    control.pause(pool, RUN, ["north"], "so that nothing of it is collected")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    with postgres.transaction(pool) as tx:
        tx.execute("select pg_sleep(1.1)")
    shop.answer = lambda path: (200, {}, product(path[3:]))
    control.step(pool)
    assert states(pool) == {"window_closed": 30}
    assert partition(pool).closing_at
    assert_sound(pool)


def test_the_deadline_is_one_window_after_the_window_or_the_planning_and_live(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    planned(pool, tmp_path, shop)
    late = partition(pool)
    assert (late.deadline_at - late.planned_at).total_seconds() == 86400, "a window of long ago has its day from now on"
    file = tmp_path / "datasets/prices/dataset.yaml"
    file.write_text(file.read_text() + "deadline: 36h\n")
    plan.plan(pool, make.load.dataset(tmp_path, "prices"), WINDOW, now=NOW)
    assert (partition(pool).deadline_at - late.planned_at).total_seconds() == 36 * 3600
    today = datetime.now(UTC).date().isoformat()
    plan.plan(pool, make.load.dataset(tmp_path, "prices"), today, now=datetime.now(UTC))
    with postgres.transaction(pool) as tx:
        row = tx.execute(
            "select deadline_at - window_end as after from scrape.run_partitions join scrape.runs using (run_id)"
            " where collection_window = %s and retailer = 'north'",
            [today],
        ).fetchone()
    assert row.after.total_seconds() == 36 * 3600


def test_frozen_resumes_with_what_was_planned_and_nothing_of_what_was_edited(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    planned(pool, tmp_path, shop)
    shop.served_limit = None
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + "product: {expect: .nothing-has-this}\n")
    changed = make.load.dataset(tmp_path, "prices")
    north, south = plan.plan(pool, changed, WINDOW, now=NOW)
    assert north.problem and "--frozen" in north.problem
    assert [p.problem for p in plan.plan(pool, changed, WINDOW, now=NOW, frozen=True)] == [None, None]
    assert south.problem is None
    collect(pool, tmp_path, changed, frozen=True)
    assert states(pool) == {"committed": 30}
    with postgres.transaction(pool) as tx:
        versions = tx.execute(
            "select count(distinct o.extractor_version) as n from scrape.observations o"
            " join scrape.run_partitions p using (run_id, retailer, extractor_version)"
        ).fetchone()
    assert versions.n == 2, "rows carry another extractor than the one that was planned"
    assert_sound(pool)


def test_frozen_extracts_with_the_page_object_as_it_was(pool: Pool, tmp_path: Path, shop: Site) -> None:
    pages = tmp_path / "datasets/prices/pages.py"
    pages.parent.mkdir(parents=True)
    source = (
        "def Product(page):\n"
        "    return {'sku': page.css('h1')[0].split()[-1], 'name': 'WHO', 'price': '1.00', 'currency': 'EUR'}\n"
    )
    pages.write_text(source.replace("WHO", "old"))
    make.dataset(
        tmp_path,
        {"north": (shop.url, ["/p/n1"]), "south": (shop.url, ["/p/s1"])},
        more="key: [sku]\nproduct: {page_object: 'pages.py:Product'}",
    )
    dataset = make.load.dataset(tmp_path, "prices")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    pages.write_text(source.replace("WHO", "new"))
    changed = make.load.dataset(tmp_path, "prices")
    collect(pool, tmp_path, changed)
    assert sum(shop.requests.values()) == 0
    collect(pool, tmp_path, changed, frozen=True)
    with postgres.transaction(pool) as tx:
        names = tx.execute("select distinct payload ->> 'name' as name from scrape.observations").fetchall()
    assert [row.name for row in names] == ["old"]


def test_a_twentieth_of_two_hundred_attempts_refused_stops_as_well(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = planned(pool, tmp_path, shop, pages=900)
    shop.answer = lambda path: (401, {}, b"no") if path.endswith("7") else (200, {}, product(path[3:]))
    collect(pool, tmp_path, dataset)
    stopped = partition(pool)
    assert stopped.stopped_at
    assert "of its last 200 attempts were refused (access_refused)" in stopped.pause_reason
    asked = sum(times for path, times in shop.requests.items() if "/p/n" in path)
    assert 200 <= asked <= 200 + 8 + BACKLOG + 2 * GROUP < 900
    assert_sound(pool)


def test_what_was_never_planned_cannot_be_controlled(pool: Pool, tmp_path: Path, shop: Site) -> None:
    with pytest.raises(DeclarationError, match="was never planned"):
        control.pause(pool, RUN, [], "why not")
    planned(pool, tmp_path, shop)
    with pytest.raises(DeclarationError, match="has no planned retailer nrth; it has north, south"):
        control.close(pool, RUN, ["nrth"], print)


def test_a_site_that_answers_403_to_everything_is_not_asked_for_everything(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    """A first 403 is tried once more, and all first tries come before any second."""
    dataset = planned(pool, tmp_path, shop, pages=400)
    shop.answer = lambda path: (
        (403, {}, b"<p>You shall not pass.</p>") if "/p/n" in path else (200, {}, product(path[3:]))
    )
    collect(pool, tmp_path, dataset)
    assert partition(pool).stopped_at
    assert sum(times for path, times in shop.requests.items() if "/p/n" in path) <= 8 + BACKLOG + GROUP
    assert_sound(pool)


def test_frozen_is_refused_where_the_schema_changed(pool: Pool, tmp_path: Path, shop: Site) -> None:
    """All retailers of a window are judged by one schema."""
    dataset = planned(pool, tmp_path, shop)
    other = replace(dataset, schema_columns={**dataset.schema_columns, "more": {"type": "text", "required": True}})
    north, south = plan.plan(pool, other, WINDOW, now=NOW, frozen=True)
    assert north.problem and "schema.columns.more" in north.problem
    assert south.problem


def until_somebody_waits_for_a_lock(pool: Pool) -> None:
    give_up = time.monotonic() + 300
    while True:
        with postgres.transaction(pool) as tx:
            if tx.execute(
                "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            ).fetchall():
                return
        assert time.monotonic() < give_up
        time.sleep(0.05)


def test_a_claim_that_waited_for_its_turn_takes_nothing_of_what_was_paused_meanwhile(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = planned(pool, tmp_path, shop)
    with ThreadPoolExecutor(1) as thread:
        with postgres.transaction(pool) as tx:
            tx.execute("select from scrape.origins for update")
            waiting = thread.submit(claim, pool, dataset, 5)
            until_somebody_waits_for_a_lock(pool)
            assert control.pause(pool, RUN, ["north"], "now") == ["north"]
        assert waiting.result() == []
    assert states(pool) == {"pending": 30}


def test_a_partition_that_is_opened_again_while_acceptance_waits_for_it_is_not_closed(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    """What is open is asked in a statement after the lock: the lock's own statement still sees what was before it."""
    dataset = planned(pool, tmp_path, shop, pages=2)
    collect(pool, tmp_path, dataset)
    with ThreadPoolExecutor(1) as thread:
        with postgres.transaction(pool) as tx:
            runs.lock_partition(tx, RUN, "north")
            waiting = thread.submit(accept.accept_retailer, pool, dataset, RUN, "north")
            until_somebody_waits_for_a_lock(pool)
            tx.execute(
                "update scrape.tasks set state = 'pending', rows_committed = null where retailer = 'north'"
                " and task_key = (select max(task_key::text)::uuid from scrape.tasks where retailer = 'north')"
            )
        assert waiting.result().state == "collecting"
