"""The fence and the reaper: a worker that lost its lease leaves nothing, whatever it wants to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import orjson
import pytest

from scrape_assets.flow import plan, verify
from scrape_assets.rules import keys
from scrape_assets.store import commit, lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool
from tests.helpers import make

RUN, WINDOW, SITE = "prices@2026-03-05", "2026-03-05", "http://127.0.0.1:9"


@pytest.fixture
def planned(pool: Pool, tmp_path: Path) -> str:
    dataset = make.dataset(tmp_path, {"north": (SITE, [f"/p/{i}" for i in range(5)])}, attempts=2)
    plan.plan(pool, dataset, WINDOW, now=datetime(2026, 3, 5, 12, tzinfo=UTC))
    return plan.freeze(dataset, dataset.retailers["north"]).manifest_hash


def claim(pool: Pool, manifest_hash: str, wanted: int = 1, **more: object) -> list[Claim]:
    arguments: dict[str, object] = {
        "run_id": RUN, "retailer": "north", "origin": SITE, "manifest_hash": manifest_hash, "worker_id": "w",
        "wanted": wanted, "lease_seconds": 60.0, "deadline_seconds": 600.0, **more,
    }  # fmt: skip
    with postgres.transaction(pool) as tx:
        return lease.claim(tx, **arguments)  # type: ignore[arg-type]


def committed(claimed: Claim, price: str = "10") -> Result:
    payload = {"name": "x", "price": price}
    entity = keys.entity_key("north", [claimed.url])
    row = make.row(entity, payload, WINDOW)
    return Result(
        claimed.lease,
        SITE,
        "committed",
        "committed",
        claimed.leased_at,
        make.version(),
        rows=orjson.dumps([row]).decode(),
        row_count=1,
    )


def finish(pool: Pool, *results: Result) -> set[object]:
    with postgres.transaction(pool) as tx:
        return set(commit.finish(tx, RUN, WINDOW, results, []))


def prices(pool: Pool) -> list[str]:
    with postgres.transaction(pool) as tx:
        return [row[0] for row in tx.execute("select payload ->> 'price' from scrape.observations order by 1")]


def expire(pool: Pool) -> None:
    with postgres.transaction(pool) as tx:
        tx.execute(
            "update scrape.tasks set lease_until = clock_timestamp() - interval '1 second' where state = 'leased'"
        )
    with postgres.transaction(pool) as tx:
        lease.reap(tx, "another worker")


def test_a_stale_worker_cannot_commit_fail_or_extend(pool: Pool, planned: str) -> None:
    (first,) = claim(pool, planned)
    expire(pool)
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set priority = 9 where task_key = %s", (first.task_key,))
    (second,) = claim(pool, planned)
    assert second.task_key == first.task_key and second.lease_token == first.lease_token + 1
    failure = Result(
        first.lease,
        SITE,
        "quarantined",
        "quarantined",
        first.leased_at,
        make.version(),
        task_class="login",
        failure_class="login",
    )
    assert finish(pool, committed(first, "10")) == set()
    assert finish(pool, failure) == set()
    with postgres.transaction(pool) as tx:
        assert lease.heartbeat(tx, [first.lease], 60) == set()
        assert lease.heartbeat(tx, [second.lease], 60) == {second.attempt_id}
    assert finish(pool, committed(second, "12")) == {second.attempt_id}
    assert prices(pool) == ["12"]
    assert verify.verify(pool).violations == []


def test_a_stale_worker_pauses_no_origin(pool: Pool, planned: str) -> None:
    (first,) = claim(pool, planned)
    refused = Result(
        first.lease, SITE, "retry_wait", "retry", first.leased_at, make.version(),
        failure_class="rate_limited", task_class="rate_limited", delay_seconds=1.0, pause_origin_seconds=3600.0,
    )  # fmt: skip
    expire(pool)
    assert finish(pool, refused) == set()
    assert len(claim(pool, planned)) == 1, "the origin is open"


@pytest.mark.parametrize("part", ["lease_token", "attempt_id"])
def test_each_part_of_the_fence_is_needed(pool: Pool, planned: str, part: str) -> None:
    (mine,) = claim(pool, planned)
    other = {"lease_token": mine.lease_token + 1, "attempt_id": uuid4()}[part]
    result = committed(mine)
    assert finish(pool, replace(result, lease=mine.lease._replace(**{part: other}))) == set()
    assert prices(pool) == []
    assert finish(pool, result) == {mine.attempt_id}


def test_a_group_loses_only_the_task_whose_lease_was_lost(pool: Pool, planned: str) -> None:
    claimed = claim(pool, planned, wanted=3)
    stale = replace(committed(claimed[1]), lease=claimed[1].lease._replace(attempt_id=uuid4()))
    passed = finish(pool, committed(claimed[0]), stale, committed(claimed[2]))
    assert passed == {claimed[0].attempt_id, claimed[2].attempt_id}
    assert len(prices(pool)) == 2


def failed(claimed: Claim) -> Result:
    return Result(
        claimed.lease, SITE, "quarantined", "quarantined", claimed.leased_at, make.version(),
        task_class="login", failure_class="login",
    )  # fmt: skip


def released(claimed: Claim) -> Result:
    return Result(
        claimed.lease, SITE, "pending", "released", claimed.leased_at, make.version(), refund=1, reason="stopped"
    )


def reclaimed(pool: Pool, manifest_hash: str) -> tuple[Claim, Claim]:
    """A lease that ran out, and the one that the same worker took on the same task after it."""
    (stale,) = claim(pool, manifest_hash)
    expire(pool)
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set priority = 9 where task_key = %s", (stale.task_key,))
    (fresh,) = claim(pool, manifest_hash)
    assert fresh.task_key == stale.task_key
    return stale, fresh


@pytest.mark.parametrize("late", [committed, failed, released])
@pytest.mark.parametrize("due", [committed, failed, released])
@pytest.mark.parametrize("order", [1, -1])
def test_a_group_with_a_stale_and_a_fresh_result_of_one_task_takes_the_fresh_one(
    pool: Pool, planned: str, late: Callable[[Claim], Result], due: Callable[[Claim], Result], order: int
) -> None:
    stale, fresh = reclaimed(pool, planned)
    expected = due(fresh)
    passed = finish(pool, *[late(stale), expected][::order])
    assert passed == {fresh.attempt_id}
    with postgres.transaction(pool) as tx:
        task = tx.execute("select state, rows_committed from scrape.tasks where task_key = %s", (fresh.task_key,))
        assert tuple(task.fetchone() or ()) == (expected.state, expected.row_count)
        closed = tx.execute("select attempt_id, outcome from scrape.attempts").fetchall()
        assert {tuple(row) for row in closed} == {
            (stale.attempt_id, "lease_expired"),
            (fresh.attempt_id, expected.outcome),
        }
    assert len(prices(pool)) == (expected.row_count or 0)
    assert verify.verify(pool).violations == []


def test_a_heartbeat_extends_the_fresh_lease_of_two_and_names_it(pool: Pool, planned: str) -> None:
    stale, fresh = reclaimed(pool, planned)
    with postgres.transaction(pool) as tx:
        assert lease.heartbeat(tx, [stale.lease, fresh.lease], 60) == {fresh.attempt_id}


def test_a_claim_is_told_the_failures_before_it(pool: Pool, planned: str) -> None:
    (first,) = claim(pool, planned)
    assert first.earlier_failures == []
    again = replace(failed(first), state="retry_wait", outcome="retry", failure_class="access_refused")
    assert finish(pool, again) == {first.attempt_id}
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set priority = 9 where task_key = %s", (first.task_key,))
    (second,) = claim(pool, planned)
    assert second.task_key == first.task_key
    assert second.earlier_failures == ["access_refused"]


def test_bytes_that_a_committed_page_has_too_are_kept_as_long_as_it(pool: Pool, planned: str) -> None:
    first, second = claim(pool, planned, wanted=2)
    bytes_ = {"sha256": "ab" * 32, "retailer": "north", "segment_offset": 0, "length": 9, "body_bytes": 5}

    def stored(result: Result, segment: str) -> str:
        with postgres.transaction(pool) as tx:
            commit.finish(
                tx, RUN, WINDOW, [replace(result, artifact_sha256="ab" * 32)], [{**bytes_, "segment": segment}]
            )
            (row,) = tx.execute("select segment from scrape.artifacts").fetchall()
            return str(row[0])

    assert stored(failed(first), "r/north/failed-w.zst") == "r/north/failed-w.zst"
    assert stored(committed(second), "r/north/pages-w.zst") == "r/north/pages-w.zst"
    (third,) = claim(pool, planned)
    assert stored(failed(third), "r/north/failed-w.zst") == "r/north/pages-w.zst"


def test_committing_twice_after_a_lost_answer_changes_nothing(pool: Pool, planned: str) -> None:
    (mine,) = claim(pool, planned)
    result = committed(mine)
    assert finish(pool, result) == {mine.attempt_id}
    assert finish(pool, result) == set()
    with postgres.transaction(pool) as tx:
        assert commit.closed(tx, [result]) == {mine.attempt_id}
    assert prices(pool) == ["10"]


def test_a_page_that_kills_its_workers_ends_quarantined(pool: Pool, planned: str) -> None:
    for _ in range(2):
        assert len(claim(pool, planned, wanted=5)) == 5
        expire(pool)
    assert claim(pool, planned, wanted=5) == []
    with postgres.transaction(pool) as tx:
        rows = tx.execute("select state, last_failure_class, attempt_count from scrape.tasks").fetchall()
        traces = tx.execute("select outcome, count(*) from scrape.attempts group by 1").fetchall()
    assert {tuple(row) for row in rows} == {("quarantined", "lease_exhausted", 2)}
    assert traces == [("lease_expired", 10)]
    assert verify.verify(pool).violations == []


def test_a_heartbeat_never_passes_the_deadline(pool: Pool, planned: str) -> None:
    (mine,) = claim(pool, planned, lease_seconds=5.0, deadline_seconds=20.0)
    with postgres.transaction(pool) as tx:
        lease.heartbeat(tx, [mine.lease], 3600)
        row = tx.execute(
            "select lease_until = deadline_at as bounded from scrape.tasks where state = 'leased'"
        ).fetchone()
    assert row.bounded


def test_a_worker_with_another_manifest_claims_nothing(pool: Pool, planned: str) -> None:
    assert claim(pool, "0" * 32, wanted=5) == []
    assert len(claim(pool, planned, wanted=5)) == 5


def test_a_paused_origin_gives_nothing_until_its_time(pool: Pool, planned: str) -> None:
    with postgres.transaction(pool) as tx:
        tx.execute(
            "update scrape.origins set paused_until = clock_timestamp() + interval '1 hour', pause_reason = 'test'"
        )
    assert claim(pool, planned, wanted=5) == []
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.origins set paused_until = clock_timestamp() - interval '1 second'")
    assert len(claim(pool, planned, wanted=5)) == 5


@pytest.mark.parametrize("together", [True, False], ids=["one_group", "two_groups"])
@pytest.mark.parametrize("order", [1, -1])
def test_of_two_rows_fetched_at_one_moment_the_same_one_stays_in_any_order(
    pool: Pool, planned: str, order: int, together: bool
) -> None:
    low, high = sorted(claim(pool, planned, wanted=2), key=lambda one: one.task_key)
    loser = committed(low, "10")
    assert loser.rows is not None
    winner = replace(committed(high, "12"), rows=loser.rows.replace('"10"', '"12"'), observed_at=loser.observed_at)
    pair = [loser, winner][::order]
    for group in [pair] if together else [[one] for one in pair]:
        assert finish(pool, *group) == {one.lease.attempt_id for one in group}
    assert prices(pool) == ["12"]
    with postgres.transaction(pool) as tx:
        assert tx.execute("select payload ->> 'price' from scrape.observation_collisions").fetchall() == [("10",)]
    assert verify.verify(pool).violations == []


def test_an_older_observation_never_replaces_a_newer_one(pool: Pool, planned: str) -> None:
    newer, older = claim(pool, planned, wanted=2)
    row = committed(newer, "12")
    finish(pool, row)
    late = replace(
        committed(older, "10"), rows=row.rows.replace('"12"', '"10"'), observed_at=datetime(2020, 1, 1, tzinfo=UTC)
    )
    assert finish(pool, late) == {older.attempt_id}
    assert prices(pool) == ["12"]
    with postgres.transaction(pool) as tx:
        assert tx.execute("select payload ->> 'price' from scrape.observation_collisions").fetchall() == [("10",)]
    assert verify.verify(pool).violations == []


def test_a_task_whose_budget_is_spent_is_never_claimed(pool: Pool, planned: str) -> None:
    """The claim itself refuses it, however it came to be waiting."""
    (first,) = claim(pool, planned)
    expire(pool)
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set max_attempts = attempt_count where task_key = %s", (first.task_key,))
    assert {one.task_key for one in claim(pool, planned, wanted=5)} & {first.task_key} == set()


def test_nobody_reaps_a_lease_that_runs(pool: Pool, planned: str) -> None:
    (mine,) = claim(pool, planned)
    with postgres.transaction(pool) as tx:
        assert lease.reap(tx, "another worker") == 0
    assert finish(pool, committed(mine)) == {mine.attempt_id}
