"""Recovery batches: tasks that had ended are open again, under the original run, with a declaration of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from psycopg.types.json import Jsonb

from scrape_assets import failpoints
from scrape_assets.store import postgres, sql
from scrape_assets.store.artifacts import Place
from scrape_assets.store.postgres import Transaction


class EndedTask(NamedTuple):
    """A task that has ended, with the failure of its last attempt and, where they are stored, that attempt's bytes."""

    task_key: UUID
    url: str
    canonical_url: str
    context: str
    entity: str | None
    page_type: str
    discovers: bool
    state: str
    last_failure_class: str | None
    failure_class: str | None
    page_state: str | None
    problem: str | None
    """Why what the page named cannot be all of it."""
    extractor_version: str | None
    sha256: str | None
    place: Place | None


class Batch(NamedTuple):
    """A recovery batch of one retailer as it is opened. `selected` maps each task to the bytes it reads, if any."""

    recovery_batch_id: UUID
    run_id: str
    retailer: str
    manifest: Mapping[str, Any]
    manifest_hash: str
    extractor_version: str
    page_sources: Mapping[str, str]
    selection: Mapping[str, Any]
    selected: Mapping[UUID, str | None]
    max_attempts: int
    canary: bool
    refetch: bool = False


class Leased(NamedTuple):
    """How much of a partition is under way, and after how many seconds the last lease is over at the latest."""

    leased: int
    free_in_seconds: float | None


class Progress(NamedTuple):
    """What a batch came to."""

    committed: int
    gone: int
    quarantined: int
    open: int
    unreadable: int
    requests: int


def leased(tx: Transaction, run_id: str, retailer: str) -> Leased:
    """What is under way now."""
    return Leased(*sql.one(tx, "count_leased", run_id=run_id, retailer=retailer))


def ended(
    tx: Transaction,
    run_id: str,
    retailer: str,
    *,
    page_type: str | None,
    failure_class: str | None,
    urls: Sequence[str] | None,
) -> list[EndedTask]:
    """The partition's ended tasks that fit; None asks for nothing."""
    rows = sql.many(
        tx,
        "select_tasks",
        run_id=run_id,
        retailer=retailer,
        page_type=page_type,
        failure_class=failure_class,
        urls=None if urls is None else list(urls),
    )
    return [EndedTask._make((*row[:14], Place(*row[14:]) if row.segment is not None else None)) for row in rows]


def joining(tx: Transaction, run_id: str, retailer: str) -> tuple[int, int]:
    """Open tasks that a batch would take along, and those of them that wait for their stored page."""
    row = sql.one(tx, "count_joining", run_id=run_id, retailer=retailer)
    return row.joined, row.stored


def has_other_extractor(tx: Transaction, run_id: str, retailer: str, extractor_version: str) -> bool:
    """Whether rows of the partition were read by another extractor than this."""
    asked = {"run_id": run_id, "retailer": retailer, "extractor_version": extractor_version}
    return bool(sql.one(tx, "has_other_extractor", **asked).other)


def open_batch(tx: Transaction, batch: Batch, *, generation: int, collecting: bool) -> int:
    """The selected tasks, and all open ones, are pending under the batch; their rows are reverted.

    `generation` and `collecting` are the partition's current candidate's: a batch joins it while it collects, else it
    opens the next. The partition's lock is held, and nothing of it is leased. Returns how many tasks it took.
    """
    key = {"run_id": batch.run_id, "retailer": batch.retailer}
    if not collecting:
        sql.maybe(tx, "replace_candidate", **key, generation=generation)
        generation += 1
        sql.execute(tx, "open_generation", **key, generation=generation)
    sql.execute(tx, "reject_moved_dataset_candidates", **key)
    sql.execute(
        tx,
        "open_batch",
        **key,
        recovery_batch_id=batch.recovery_batch_id,
        generation=generation,
        manifest=Jsonb(batch.manifest),
        manifest_hash=batch.manifest_hash,
        extractor_version=batch.extractor_version,
        page_sources=Jsonb(batch.page_sources),
        selection=Jsonb(batch.selection),
        selected=len(batch.selected),
    )
    failpoints.reach("K24", lambda: postgres.lose(tx))
    wanted = [{"task_key": task, "sha256": sha256} for task, sha256 in batch.selected.items()]
    taken = sql.many(
        tx,
        "take_tasks",
        **key,
        selected=orjson.dumps(wanted).decode(),
        max_attempts=batch.max_attempts,
        refetch=batch.refetch,
        generation=generation,
        recovery_batch_id=batch.recovery_batch_id,
    )
    reverted = [row for row in taken if row.state == "committed"]
    if reverted:
        keys = [row.task_key for row in reverted]
        sql.execute(tx, "revert_attempts", attempt_ids=[row.attempt_id for row in reverted])
        sql.execute(tx, "revert_lost", task_keys=keys)
        rows = [row.observation_key for row in sql.many(tx, "revert_observations", task_keys=keys)]
        sql.execute(tx, "promote_over_reverted", observation_keys=rows)
    sql.execute(
        tx,
        "close_batch",
        recovery_batch_id=batch.recovery_batch_id,
        joined=len(taken) - len(batch.selected),
        from_artifacts=sum(row.stored for row in taken),
    )
    sql.execute(tx, "join_frontier", **key, recovery_batch_id=batch.recovery_batch_id, generation=generation)
    sql.execute(
        tx,
        "enter_batch",
        **key,
        recovery_batch_id=batch.recovery_batch_id,
        canary="running" if batch.canary else "none",
    )
    return len(taken)


def contents(tx: Transaction, run_id: str) -> dict[str, tuple[int, str]]:
    """Rows and content hash of every partition of a run."""
    return {row.retailer: (row.rows, row.content_hash) for row in sql.many(tx, "content_hashes", run_id=run_id)}


def rows_of(tx: Transaction, task_keys: Sequence[UUID]) -> dict[UUID, dict[str, dict[str, Any]]]:
    """What these tasks say, by task and entity."""
    found: dict[UUID, dict[str, dict[str, Any]]] = {key: {} for key in task_keys}
    for row in sql.many(tx, "rows_of_tasks", task_keys=list(task_keys)):
        found[row.task_key][row.entity_key] = row.payload
    return found


def progress(tx: Transaction, recovery_batch_id: UUID) -> Progress:
    """What the batch came to."""
    return Progress(*sql.one(tx, "batch_progress", recovery_batch_id=recovery_batch_id))
