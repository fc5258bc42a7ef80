"""Runs and their partitions: what is frozen of each, and the tasks that planning makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from scrape_assets import failpoints
from scrape_assets.rules.budget import Budget
from scrape_assets.store import control, origins, postgres, sql
from scrape_assets.store.postgres import Transaction


class Run(NamedTuple):
    """One intended collection; bounds are UTC, half-open."""

    run_id: str
    dataset_id: str
    collection_window: str
    window_start: datetime
    window_end: datetime


class Partition(NamedTuple):
    """One retailer of a run; everything but the name is empty until it is planned.

    Its manifest, and what follows from it, is that of the newest recovery batch where there is one.
    """

    run_id: str
    retailer: str
    manifest: dict[str, Any] | None
    manifest_hash: str | None
    extractor_version: str | None
    page_sources: dict[str, str] | None
    origins: list[str]
    planned_at: datetime | None
    planned: int
    rejected: int
    closing_at: datetime | None
    paused_at: datetime | None
    pause_reason: str | None
    recovery_batch_id: UUID | None
    canary: str
    canary_checks: list[dict[str, Any]] | None


class PlannedTask(NamedTuple):
    """One inventory line that became a task, in the order of the COPY."""

    task_key: UUID
    context: str
    page_type: str
    url: str
    canonical_url: str
    origin: str
    entity: str | None
    priority: int
    discovers: bool = False


class Rejection(NamedTuple):
    """One inventory line that could not become a task."""

    line: int
    content: str
    reason: str


def open_run(tx: Transaction, run: Run, retailers: Sequence[str]) -> None:
    """The run exists with a scope: `retailers` when it is new, else what it was given when it was made."""
    if sql.maybe(tx, "open_run", **run._asdict()):
        sql.execute(tx, "open_partitions", run_id=run.run_id, retailers=list(retailers))


def find(tx: Transaction, run_id: str) -> Run | None:
    """The run, if it was ever opened."""
    row = sql.maybe(tx, "get_run", run_id=run_id)
    return Run(*row) if row else None


def partitions(tx: Transaction, run_id: str) -> dict[str, Partition]:
    """The run's scope by retailer."""
    return {row.retailer: Partition(*row) for row in sql.many(tx, "get_partitions", run_id=run_id)}


def lock_partition(tx: Transaction, run_id: str, retailer: str) -> Any | None:
    """The partition's row, locked; what is decided under the lock is read in a later statement."""
    return sql.maybe(tx, "lock_partition", run_id=run_id, retailer=retailer)


def insert_tasks(
    tx: Transaction,
    run_id: str,
    retailer: str,
    tasks: Iterable[PlannedTask],
    *,
    max_attempts: int,
    canary: int,
    open_tasks: int,
) -> tuple[int, list[str]]:
    """How many tasks are new, and their origins; `canary` of them are. The lines stream through COPY, never held.

    Beyond `open_tasks` of an origin they wait in the frontier.
    """
    sql.execute(tx, "create_planned_lines")
    with tx.cursor().copy(sql.queries()["copy_planned_lines"].text.encode()) as copy:
        for task in tasks:
            copy.write_row(task)
    failpoints.reach("K13", lambda: postgres.lose(tx))
    asked = {"run_id": run_id, "retailer": retailer, "max_attempts": max_attempts, "canary": canary, "open": open_tasks}
    row = sql.one(tx, "insert_tasks", **asked)
    return row.planned, sorted(row.origins)


def record_rejections(tx: Transaction, run_id: str, retailer: str, rejections: Iterable[Rejection]) -> None:
    """Every refused inventory line is listed with its reason."""
    with tx.cursor().copy(sql.queries()["copy_inventory_rejections"].text.encode()) as copy:
        for rejection in rejections:
            copy.write_row((run_id, retailer, *rejection))


def freeze(
    tx: Transaction,
    run_id: str,
    retailer: str,
    *,
    manifest: Mapping[str, Any],
    manifest_hash: str,
    extractor_version: str,
    page_sources: Mapping[str, str],
    origin_names: Sequence[str],
    planned: int,
    rejected: int,
    canary: int,
) -> None:
    """The partition is planned: its manifest and counts stand, and its first candidate collects.

    A `canary` of less than all tasks runs first; of all of them it would say nothing that acceptance does not.
    """
    sql.execute(
        tx,
        "freeze_partition",
        run_id=run_id,
        retailer=retailer,
        manifest=Jsonb(manifest),
        manifest_hash=manifest_hash,
        extractor_version=extractor_version,
        page_sources=Jsonb(page_sources),
        origins=list(origin_names),
        planned=planned,
        rejected=rejected,
        canary=canary,
    )
    sql.execute(tx, "open_candidate", run_id=run_id, retailer=retailer)


def apply_live(
    tx: Transaction,
    run_id: str,
    retailer: str,
    *,
    budgets: Mapping[str, Budget],
    max_attempts: int,
    deadline_seconds: float | None,
) -> None:
    """The declaration's live keys hold for every worker from now on."""
    sql.execute(tx, "apply_max_attempts", run_id=run_id, retailer=retailer, max_attempts=max_attempts)
    control.set_deadline(tx, run_id, retailer, deadline_seconds)
    # Last: every claim waits for the rows of its origin.
    for name in sorted(budgets):
        origins.declare(tx, [name], budgets[name])


def rejections(tx: Transaction, run_id: str, retailer: str, at_most: int) -> list[Rejection]:
    """The first refused inventory lines of a partition."""
    return [
        Rejection(*row)
        for row in sql.many(tx, "get_inventory_rejections", run_id=run_id, retailer=retailer, at_most=at_most)
    ]


def recent(tx: Transaction, dataset_id: str, at_most: int) -> list[Any]:
    """The dataset's newest windows with the version that stands of each."""
    return sql.many(tx, "list_runs", dataset_id=dataset_id, at_most=at_most)


def newest(tx: Transaction, dataset_id: str, *, published: bool) -> str | None:
    """The newest window that was planned, or the newest that has a version; None without one."""
    row = sql.maybe(tx, "newest_window", dataset_id=dataset_id, published=published)
    return None if row is None else str(row.collection_window)


def open_work(tx: Transaction, dataset_id: str | None) -> list[Any]:
    """Partitions that still have open tasks, oldest window first."""
    return sql.many(tx, "open_work", dataset_id=dataset_id)
