"""The group commit and the claim against real Postgres: refused data, lost answers, claims at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from scrape_assets.errors import ScrapeAssetsError, StoreUnreachable
from scrape_assets.flow import plan, verify
from scrape_assets.flow.commit import Committer, Item
from scrape_assets.rules import keys
from scrape_assets.store import commit as store
from scrape_assets.store import lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool, Transaction
from tests.helpers import make

RUN, WINDOW, SITE = "prices@2026-03-05", "2026-03-05", "http://127.0.0.1:9"
PATIENCE_SECONDS = 300.0


@pytest.fixture
def planned(pool: Pool, tmp_path: Path) -> str:
    dataset = make.dataset(tmp_path, {"north": (SITE, [f"/p/{i}" for i in range(5)])})
    plan.plan(pool, dataset, WINDOW, now=datetime(2026, 3, 5, 12, tzinfo=UTC))
    return plan.freeze(dataset, dataset.retailers["north"]).manifest_hash


def claim(tx: Transaction, manifest_hash: str, worker_id: str = "w") -> list[Claim]:
    return lease.claim(
        tx, run_id=RUN, retailer="north", origin=SITE, manifest_hash=manifest_hash, worker_id=worker_id,
        wanted=5, lease_seconds=900.0, deadline_seconds=900.0,
    )  # fmt: skip


def claimed(pool: Pool, manifest_hash: str) -> list[Claim]:
    with postgres.transaction(pool) as tx:
        found = claim(tx, manifest_hash)
    assert len(found) == 5
    return found


def row(one: Claim, *, name: str = "x", entity: str | None = None) -> dict[str, Any]:
    payload = {"name": name, "price": "10"}
    entity = entity or keys.entity_key("north", [one.url])
    return make.row(entity, payload, WINDOW)


def committed(one: Claim, its: dict[str, Any]) -> Result:
    rows = orjson.dumps([its]).decode()
    return Result(one.lease, SITE, "committed", "committed", one.leased_at, make.version(), rows=rows, row_count=1)


def items(*results: Result) -> list[Item]:
    return [Item(RUN, WINDOW, "north", result) for result in results]


def committer(pool: Pool, folder: Path) -> Committer:
    return Committer(pool, folder / "artifacts", "w", lambda _item, _passed: None)


def rows_of(pool: Pool, query: str) -> list[tuple[Any, ...]]:
    with postgres.transaction(pool) as tx:
        return [tuple(found) for found in tx.execute(query)]


def assert_sound(pool: Pool) -> None:
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("fault", [{"name": "a\x00b"}, {"entity": "e" * 513}], ids=["nul", "entity_key"])
def test_a_row_that_postgres_refuses_is_quarantined_alone(
    pool: Pool, planned: str, tmp_path: Path, fault: dict[str, str], place: int
) -> None:
    claims = claimed(pool, planned)
    group = items(*(committed(one, row(one, **(fault if n == place else {}))) for n, one in enumerate(claims)))
    assert committer(pool, tmp_path)._finish(group, []) == {one.attempt_id for one in claims}
    guilty = claims[place]
    ends = rows_of(pool, "select task_key, state, last_failure_class, rows_committed from scrape.tasks")
    assert set(ends) == {
        (one.task_key, "quarantined", "unstorable", None) if one is guilty else (one.task_key, "committed", None, 1)
        for one in claims
    }
    ((reason,),) = rows_of(pool, "select reason from scrape.attempts where outcome = 'quarantined'")
    assert "Postgres refused" in reason
    stored = rows_of(pool, "select source_task_key from scrape.observations")
    assert sorted(stored) == sorted((one.task_key,) for one in claims if one is not guilty)
    assert_sound(pool)


@pytest.mark.parametrize("was_done", [True, False], ids=["after_the_commit", "before_the_commit"])
def test_a_commit_whose_answer_was_lost_is_looked_up(
    pool: Pool, planned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_done: bool
) -> None:
    claims = claimed(pool, planned)
    uses: list[str] = []

    @contextmanager
    def unlucky(its: Pool) -> Iterator[Transaction]:
        uses.append("whole" if uses else "lost")
        with postgres.transaction(its) as tx:
            yield tx
            if uses == ["lost"] and not was_done:
                raise StoreUnreachable("the connection broke before the COMMIT")
        if uses == ["lost"]:
            raise StoreUnreachable("the answer to the COMMIT was lost")

    # Only the committer's own name for the module: the rest of the test reaches the store as ever.
    monkeypatch.setattr("scrape_assets.flow.commit.postgres", SimpleNamespace(transaction=unlucky))
    group = items(*(committed(one, row(one)) for one in claims))
    assert committer(pool, tmp_path)._finish(group, []) == {one.attempt_id for one in claims}
    assert uses == ["lost", "whole"]
    assert rows_of(pool, "select state, attempt_count, count(*) from scrape.tasks group by 1, 2") == [
        ("committed", 1, 5)
    ]
    assert rows_of(pool, "select outcome, count(*) from scrape.attempts group by 1") == [("committed", 5)]
    assert rows_of(
        pool, "select count(*) as rows, count(distinct source_task_key) as tasks from scrape.observations"
    ) == [(5, 5)]
    assert rows_of(pool, "select count(*) from scrape.observation_collisions") == [(0,)]
    assert_sound(pool)


THREADS = 8
"""As many as the tests' pool has connections."""


def claim_together(pool: Pool, manifest_hash: str) -> list[Claim]:
    start = threading.Barrier(THREADS, timeout=PATIENCE_SECONDS)

    def one(number: int) -> list[Claim]:
        with pool.connection(timeout=PATIENCE_SECONDS) as tx:
            start.wait()
            return claim(tx, manifest_hash, f"w{number}")

    with ThreadPoolExecutor(THREADS) as threads:
        return [found for claims in threads.map(one, range(THREADS)) for found in claims]


def unclaim(pool: Pool) -> None:
    """All tasks are as they were planned."""
    with postgres.transaction(pool) as tx:
        tx.execute("delete from scrape.attempts")
        tx.execute(
            "update scrape.tasks set state = 'pending', attempt_count = 0, lease_token = 0, attempt_id = null,"
            " lease_owner = null, lease_until = null, lease_started_at = null, deadline_at = null,"
            " next_attempt_at = clock_timestamp()"
        )


def test_claims_at_the_same_moment_share_the_tasks(pool: Pool, planned: str) -> None:
    expected = 5
    for _ in range(3):
        unclaim(pool)
        claims = claim_together(pool, planned)
        assert len(claims) == expected
        assert len({one.task_key for one in claims}) == expected
        assert len({one.attempt_id for one in claims}) == expected
        assert {one.lease_token for one in claims} == {1}
        running = rows_of(pool, "select attempt_id from scrape.attempts where outcome = 'running'")
        assert sorted(running) == sorted((one.attempt_id,) for one in claims)


def test_a_page_that_postgres_refuses_keeps_what_it_can_store(pool: Pool, planned: str, tmp_path: Path) -> None:
    one = claimed(pool, planned)[0]
    result = replace(
        committed(one, row(one)), final_url=f"{SITE}/\x00" + "x" * 600, content_type="text/\x00html", http_status=200
    )
    assert committer(pool, tmp_path)._finish(items(result), []) == {one.attempt_id}
    ((final_url, content_type, status),) = rows_of(
        pool, "select final_url, content_type, http_status from scrape.attempts where outcome = 'quarantined'"
    )
    assert final_url.startswith(f"{SITE}/\N{REPLACEMENT CHARACTER}x")
    assert len(final_url) == 500
    assert (content_type, status) == ("text/\N{REPLACEMENT CHARACTER}html", 200)


def reopened(pool: Pool, one: Claim) -> None:
    """As a recovery batch leaves a task; the first to be claimed."""
    make.reopened(pool, RUN, "north", one.task_key)
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set priority = 9 where task_key = %s", (one.task_key,))


def of(pool: Pool, one: Claim) -> list[tuple[Any, ...]]:
    return rows_of(
        pool,
        "select entity_key, payload ->> 'name', validation_state from scrape.observations"
        f" where source_task_key = '{one.task_key}' order by 1",
    )


def test_a_task_that_commits_again_leaves_only_the_rows_it_still_has(pool: Pool, planned: str) -> None:
    first = claimed(pool, planned)[0]
    three = [row(first, name="old", entity=name) for name in ("a", "b", "c")]
    result = replace(committed(first, three[0]), rows=orjson.dumps(three).decode(), row_count=3)
    with postgres.transaction(pool) as tx:
        assert store_finish(tx, result) == {first.attempt_id}
    reopened(pool, first)
    with postgres.transaction(pool) as tx:
        second = next(one for one in claim(tx, planned) if one.task_key == first.task_key)
    two = [row(second, name="new", entity=name) for name in ("b", "d")]
    again = replace(
        committed(second, two[0]),
        rows=orjson.dumps(two).decode(),
        row_count=2,
        again=second.recovery_batch_id is not None,
    )
    with postgres.transaction(pool) as tx:
        assert store_finish(tx, again) == {second.attempt_id}
    assert of(pool, first) == [("b", "new", "valid"), ("d", "new", "valid")]


def test_a_row_whose_page_is_repaired_is_replaced_by_the_best_one_that_had_lost(pool: Pool, planned: str) -> None:
    owner, second, third = claimed(pool, planned)[:3]
    with postgres.transaction(pool) as tx:
        for one, seconds in ((second, 1), (third, 2), (owner, 3)):
            its = committed(one, row(one, name=f"of {seconds}", entity="same"))
            assert store_finish(tx, replace(its, observed_at=its.observed_at + timedelta(seconds=seconds)))
    assert [name for _, name, _ in of(pool, owner)] == ["of 3"]
    assert_sound(pool)
    reopened(pool, owner)
    with postgres.transaction(pool) as tx:
        again = next(one for one in claim(tx, planned) if one.task_key == owner.task_key)
        assert store_finish(tx, replace(committed(again, row(again, entity="another")), again=True))
    assert [entity for entity, _, _ in of(pool, owner)] == ["another"]
    assert [name for _, name, _ in of(pool, third)] == ["of 2"], "the newest of those that had lost"
    assert of(pool, second) == []
    lost = rows_of(pool, "select payload ->> 'name' from scrape.observation_collisions")
    assert lost == [("of 1",)]


def test_a_statement_that_postgres_refuses_for_another_reason_is_said_in_words(pool: Pool) -> None:
    with pytest.raises(ScrapeAssetsError, match="42703"):
        with postgres.transaction(pool) as tx:
            tx.execute("select no_such_column")


def store_finish(tx: Transaction, result: Result) -> set[Any]:
    return set(store.finish(tx, RUN, WINDOW, [result], []))


@pytest.mark.parametrize("code", ["08006", "25P03", "40P01", "40001", "53200", "55P03", "57014", "58030"])
def test_a_fault_of_the_store_is_repeated_whole_and_charged_to_no_page(
    pool: Pool, planned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    claims = claimed(pool, planned)
    really, tries = store.finish, []

    def unlucky(tx: Transaction, *arguments: Any) -> Any:
        passed = really(tx, *arguments)
        tries.append(len(passed))
        if len(tries) == 1:
            tx.execute(f"do $$ begin raise exception 'not now' using errcode = '{code}'; end $$".encode())
        return passed

    monkeypatch.setattr("scrape_assets.flow.commit.store.finish", unlucky)
    group = items(*(committed(one, row(one)) for one in claims))
    assert committer(pool, tmp_path)._finish(group, []) == {one.attempt_id for one in claims}
    assert tries == [5, 5], "the first was rolled back whole"
    assert rows_of(
        pool, "select state, attempt_count, last_failure_class, count(*) from scrape.tasks group by 1, 2, 3"
    ) == [("committed", 1, None, 5)]
    assert rows_of(pool, "select outcome, count(*) from scrape.attempts group by 1") == [("committed", 5)]
    assert_sound(pool)


def test_a_payload_read_back_from_the_database_has_the_hash_it_was_stored_with(pool: Pool, planned: str) -> None:
    """jsonb orders names by their length and writes numbers its own way."""
    one = claimed(pool, planned)[0]
    payload = {"price": "19.9", "name": "x", "a": 1, "rating": 1e2, "big": 1e16, "z": {"bb": 1.50, "a": -0.0}}
    its = row(one) | {"payload": payload, "payload_hash": keys.payload_hash(payload)}
    with postgres.transaction(pool) as tx:
        assert set(store.finish(tx, RUN, WINDOW, [committed(one, its)], [])) == {one.attempt_id}
        stored = tx.execute("select payload, payload_hash from scrape.observations").fetchone()
    assert stored is not None
    assert list(stored.payload) != list(payload), "nothing was reordered, so this shows nothing"
    assert keys.payload_hash(stored.payload) == stored.payload_hash
