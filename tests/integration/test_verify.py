"""Every invariant is shown the fault that it is there to find, planted where the schema would not stop it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import accept, deliver, plan, publish, run, verify
from scrape_assets.flow.run import Machine
from scrape_assets.store import embedded, postgres, sql
from scrape_assets.store.postgres import Pool, Transaction
from tests.conftest import DATABASE
from tests.helpers import make
from tests.helpers.site import Site, site

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)

ONE_TASK = "(select task_key from scrape.tasks order by task_key limit 1)"
ONE_ATTEMPT = "(select attempt_id from scrape.attempts order by attempt_id limit 1)"
ONE_ROW = "(select observation_key from scrape.observations order by observation_key limit 1)"
REOPEN_ONE_TASK = f"update scrape.tasks set state = 'pending', rows_committed = null where task_key = {ONE_TASK}"

BREAKS: dict[str, list[str]] = {
    "invariant_one_committed_attempt": [
        f"update scrape.attempts set outcome = 'fenced' where attempt_id = {ONE_ATTEMPT}",
    ],
    "invariant_observation_has_its_attempt": [
        f"update scrape.observations set attempt_id = gen_random_uuid() where observation_key = {ONE_ROW}",
    ],
    "invariant_one_row_per_entity": [
        (
            "update scrape.observations set entity_key = (select max(entity_key) from scrape.observations)"
            " where observation_key in (select observation_key from scrape.observations order by entity_key limit 1)"
        ),
    ],
    "invariant_committed_rows_are_there": [
        f"delete from scrape.observations where observation_key = {ONE_ROW}",
    ],
    "invariant_attempts_are_counted": [
        "alter table scrape.tasks drop constraint every_claim_counted",
        f"update scrape.tasks set attempt_count = attempt_count - 1 where task_key = {ONE_TASK}",
    ],
    "invariant_extractor_is_frozen": [
        f"update scrape.attempts set extractor_version = 'another' where attempt_id = {ONE_ATTEMPT}",
    ],
    "invariant_one_attempt_per_token": [
        f"delete from scrape.attempts where attempt_id = {ONE_ATTEMPT}",
    ],
    "invariant_running_is_leased": [
        f"update scrape.attempts set outcome = 'running', finished_at = null where attempt_id = {ONE_ATTEMPT}",
    ],
    "invariant_no_lease_outlives_its_deadline": [
        (
            "update scrape.tasks set state = 'leased', rows_committed = null, lease_owner = 'w',"
            " lease_started_at = clock_timestamp(), deadline_at = clock_timestamp() + interval '1 hour',"
            f" lease_until = clock_timestamp() + interval '2 hours' where task_key = {ONE_TASK}"
        ),
    ],
    "invariant_exhausted_is_closed": [
        (
            "update scrape.tasks set state = 'pending', rows_committed = null, max_attempts = attempt_count"
            f" where task_key = {ONE_TASK}"
        ),
    ],
    "invariant_only_legal_moves": [
        REOPEN_ONE_TASK,
    ],
    "invariant_tokens_rise": [
        (
            "insert into scrape.state_log (kind, key, run_id, old_state, new_state, token)"
            " select kind, key, run_id, old_state, new_state, token from scrape.state_log"
            " where kind = 'task' and new_state = 'leased' order by id limit 1"
        ),
    ],
    "invariant_no_task_lost": [
        f"delete from scrape.observations where source_task_key = {ONE_TASK}",
        f"delete from scrape.attempts where task_key = {ONE_TASK}",
        f"delete from scrape.tasks where task_key = {ONE_TASK}",
    ],
    "invariant_closed_has_no_open_task": [
        REOPEN_ONE_TASK,
    ],
    "invariant_frontier_is_no_task": [
        (
            "insert into scrape.frontier (task_key, run_id, retailer, context, page_type, discovers, url, canonical_url,"
            " origin, priority, depth, barren, max_attempts, generation)"
            " select task_key, run_id, retailer, context, page_type, discovers, url, canonical_url, origin, priority,"
            f" depth, barren, max_attempts, generation from scrape.tasks where task_key = {ONE_TASK}"
        ),
    ],
    "invariant_named_by_a_page": [
        f"update scrape.tasks set depth = 1 where task_key = {ONE_TASK}",
    ],
    "invariant_accepted_content_stands": [
        f"update scrape.observations set payload_hash = repeat('0', 32) where observation_key = {ONE_ROW}",
    ],
    "invariant_published_was_accepted": [
        "alter table scrape.published_observations disable trigger user",
        f"update scrape.published_observations set payload_hash = repeat('0', 32) where observation_key = {ONE_ROW}",
    ],
    "invariant_one_event_per_version": [
        "delete from scrape.deliveries",
        "delete from scrape.outbox",
    ],
    "invariant_versions_are_gapless": [
        "update scrape.dataset_candidates set dataset_version = 2 where state = 'published'",
    ],
    "invariant_latest_is_published": [
        f"update scrape.latest_observations set dataset_version = 2 where observation_key = {ONE_ROW}",
    ],
    "invariant_latest_is_newest": [
        f"delete from scrape.latest_observations where observation_key = {ONE_ROW}",
    ],
    "invariant_correction_supersedes": [
        "alter table scrape.published_observations disable trigger user",
        (
            "insert into scrape.published_observations (dataset_id, collection_window, dataset_version, retailer, context,"
            " observation_key, entity_key, observed_at, extractor_version, payload, payload_hash, change,"
            " supersedes_version, run_id) select dataset_id, collection_window, 3, retailer, context, observation_key,"
            " entity_key, observed_at, extractor_version, payload, payload_hash, 'corrected', 2, run_id"
            f" from scrape.published_observations where observation_key = {ONE_ROW}"
        ),
    ],
    "invariant_repaired_under_a_batch": [
        f"update scrape.tasks set generation = 2 where task_key = {ONE_TASK}",
    ],
    "invariant_one_current_generation": [
        f"insert into scrape.candidates (run_id, retailer, generation) values ('{RUN}', 'north', 2)",
    ],
    "invariant_delivered_has_a_receipt": [
        "alter table scrape.deliveries drop constraint delivered_iff_receipt",
        "update scrape.deliveries set receipt = null where state = 'delivered'",
    ],
    "invariant_artifact_is_known": [
        "delete from scrape.artifacts where sha256 = (select min(sha256) from scrape.artifacts)",
    ],
}


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def delivered(pool: Pool, tmp_path: Path, shop: Site) -> Dataset:
    """Two retailers of three pages, through all verbs."""
    dataset = make.dataset(
        tmp_path,
        {name: (shop.url, [f"/p/{name[0]}{i}" for i in range(3)]) for name in ("north", "south")},
    )
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, sorted(dataset.retailers))
    asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "test-worker", {}), work))
    for name in sorted(dataset.retailers):
        accept.accept_retailer(pool, dataset, RUN, name)
    assert accept.accept_dataset(pool, dataset, RUN).state == "accepted"
    assert publish.publish(pool, dataset, RUN).rows == 6
    assert [sent.state for sent in deliver.deliver(pool, dataset, jitter=0.5)] == ["delivered"]
    return dataset


@pytest.fixture
def breaker(pool: Pool, server: embedded.Server) -> Iterator[Transaction]:
    """The owner's connection, which alone may take a constraint or a trigger away; rolled back at the end."""
    with postgres.connect(postgres.with_database(server.owner_url, DATABASE)) as connection:
        yield connection
        connection.rollback()


def broken(tx: Transaction, invariant: str) -> list[str]:
    return [row.key for row in sql.many(tx, invariant)]


def test_every_invariant_has_its_fault_here() -> None:
    assert BREAKS.keys() == {name for name in sql.queries() if name.startswith("invariant_")}


def test_each_invariant_finds_what_breaks_it(pool: Pool, delivered: Dataset, breaker: Transaction) -> None:
    assert {name: keys for name in BREAKS if (keys := broken(breaker, name))} == {}
    breaker.rollback()
    found: dict[str, list[str]] = {}
    for name, statements in BREAKS.items():
        for statement in statements:
            assert breaker.execute(statement).rowcount != 0, f"{name}: nothing was broken by {statement}"
        found[name] = broken(breaker, name)
        breaker.rollback()
    assert [name for name, keys in found.items() if not keys] == []
    assert [name for name, keys in found.items() if not all(keys)] == [], "a key that is null names nothing"
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}, "every fault was rolled back"


def test_the_runbook_tells_what_each_invariant_means() -> None:
    runbook = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
    told = re.findall(r"(?m)^\| `(\w+)` \|", runbook[runbook.index("## A broken invariant") :])
    assert sorted(f"invariant_{name}" for name in told) == sorted(BREAKS)
