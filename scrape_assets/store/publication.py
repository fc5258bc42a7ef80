"""Versions: the statements of the one transaction that publishes, and what is known of a version afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import orjson
from psycopg.types.json import Jsonb

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction
from scrape_assets.store.runs import Run

Part = Literal["full", "delta", "withdrawn"]


class VersionRow(NamedTuple):
    """One row of a version; times are epoch seconds, `payload` is JSON text.

    `dataset_version` is the version that the row came with, `known_at` when that was published.
    """

    retailer: str
    context: str
    entity_key: str
    dataset_version: int
    change: str
    unverified: bool
    observed_at: float
    known_at: float
    extractor_version: str
    payload_hash: str
    payload: str


class LatestRow(NamedTuple):
    """The newest published row of one entity; times are epoch seconds, `payload` is JSON text."""

    retailer: str
    context: str
    entity_key: str
    collection_window: str
    dataset_version: int
    observed_at: float
    known_at: float
    payload: str


class Standing(NamedTuple):
    """The newest window before another that has a version."""

    collection_window: str
    dataset_version: int
    published_at: datetime


def lock(tx: Transaction, run_id: str) -> Run | None:
    """The run and then all its partitions are locked, in name order; what is tested next is read after this.

    None for a run that was never planned.
    """
    row = sql.maybe(tx, "lock_run", run_id=run_id)
    sql.many(tx, "lock_partitions", run_id=run_id)
    return Run(*row) if row else None


def last_version(tx: Transaction, run_id: str) -> int:
    """The newest published version, 0 when there is none."""
    return int(sql.one(tx, "last_version", run_id=run_id).dataset_version)


def publish(
    tx: Transaction,
    run: Run,
    sequence: int,
    dataset_version: int,
    *,
    retailers: Sequence[str],
    added: Mapping[int, Sequence[str]],
    kept: Sequence[str],
) -> dict[str, Any]:
    """The accepted dataset candidate is the version that stands; the one before stands no more.

    `retailers` are its accepted members, `kept` those whose rows stay although their page could not be read again,
    `added` the columns that the schema has now and had not in an earlier version, by its number. Returns what it comes
    to: rows, changes by kind, and each retailer's rows, hash and unverified rows.
    """
    version = {
        "dataset_id": run.dataset_id,
        "collection_window": run.collection_window,
        "dataset_version": dataset_version,
    }
    of_members = {**version, "run_id": run.run_id, "retailers": list(retailers)}
    sql.execute(tx, "supersede", run_id=run.run_id)
    if sql.maybe(tx, "mark_published", run_id=run.run_id, sequence=sequence, dataset_version=dataset_version) is None:
        raise LookupError(f"dataset candidate {sequence} of {run.run_id} is not accepted")
    sql.one(tx, "carry_unverified", **version, run_id=run.run_id, kept=list(kept))
    sql.execute(tx, "keep_carried", **of_members)
    since = {str(number): list(names) for number, names in added.items()}
    changed = sql.many(tx, "publish_observations", **of_members, added=Jsonb(since))
    changes = {row.change: row.rows for row in changed}
    sql.one(tx, "lock_latest", dataset_id=run.dataset_id)
    sql.execute(tx, "advance_latest", run_id=run.run_id, dataset_version=dataset_version)
    sql.execute(tx, "withdraw_latest", run_id=run.run_id, dataset_version=dataset_version)
    held = sql.many(tx, "describe_version", **version)
    publication = {
        "rows": sum(row.rows for row in held),
        "changes": {kind: changes.get(kind, 0) for kind in ("new", "corrected", "withdrawn")},
        "added": sorted({name for names in added.values() for name in names}),
        "retailers": {
            row.retailer: {"rows": row.rows, "content_hash": row.content_hash, "unverified": row.unverified}
            for row in held
        },
    }
    sql.execute(
        tx,
        "record_publication",
        run_id=run.run_id,
        dataset_version=dataset_version,
        publication=Jsonb(publication),
    )
    return publication


def write_event(
    tx: Transaction,
    run_id: str,
    event_id: UUID,
    event_type: str,
    payload: Mapping[str, Any],
    destinations: Mapping[str, str],
) -> bool:
    """The outbox event, and one unsent delivery for each destination name and idempotency key.

    False when the same was said before, which only lateness can be.
    """
    written = sql.maybe(
        tx, "write_event", run_id=run_id, event_id=event_id, event_type=event_type, payload=Jsonb(payload)
    )
    if written is None:
        return False
    text = orjson.dumps([{"destination": n, "idempotency_key": k} for n, k in destinations.items()]).decode()
    sql.execute(tx, "open_deliveries", event_id=event_id, destinations=text)
    return True


def is_said_late(tx: Transaction, run_id: str) -> bool:
    """Whether consumers were told that the window has no version in time."""
    return bool(sql.one(tx, "is_said_late", run_id=run_id).said)


def without_version(tx: Transaction, dataset_id: str, at_most: int) -> list[Run]:
    """Windows of which no version exists and nobody has said so, the newest first."""
    rows = sql.many(tx, "find_without_version", dataset_id=dataset_id, at_most=at_most)
    return [Run(row.run_id, dataset_id, row.collection_window, row.window_start, row.window_end) for row in rows]


def last_good(tx: Transaction, dataset_id: str, window_start: datetime) -> Standing | None:
    """What consumers go on reading while a window that begins then has no version."""
    row = sql.maybe(tx, "last_good", dataset_id=dataset_id, window_start=window_start)
    return Standing(*row) if row else None


def rows(tx: Transaction, dataset_id: str, window: str, dataset_version: int, part: Part) -> Iterator[VersionRow]:
    """A version's rows, streamed: all of them, what it changed, or what is withdrawn as of it."""
    # A reader may take its time between two rows.
    sql.one(tx, "stay_idle")
    queries = {
        "full": sql.queries()["copy_version"],
        "delta": sql.queries()["copy_changes"],
        "withdrawn": sql.queries()["copy_withdrawn"],
    }
    asked = {"dataset_id": dataset_id, "collection_window": window, "dataset_version": dataset_version}
    with tx.cursor().copy(queries[part].text.encode(), asked) as copy:
        copy.set_types(["text", "text", "text", "int4", "text", "bool", "float8", "float8", "text", "text", "text"])
        for row in copy.rows():
            yield VersionRow(*row)


def latest(tx: Transaction, dataset_id: str) -> Iterator[LatestRow]:
    """The newest published row of every entity, streamed."""
    sql.one(tx, "stay_idle")
    with tx.cursor().copy(sql.queries()["copy_latest"].text.encode(), {"dataset_id": dataset_id}) as copy:
        copy.set_types(["text", "text", "text", "text", "int4", "float8", "float8", "text"])
        for row in copy.rows():
            yield LatestRow(*row)


def versions(tx: Transaction, run_id: str) -> list[Any]:
    """Every version of one window, oldest first."""
    return sql.many(tx, "get_versions", run_id=run_id)


def batches(tx: Transaction, run_id: str) -> list[Any]:
    """The run's recovery batches, oldest first."""
    return sql.many(tx, "get_batches", run_id=run_id)


def extractors(tx: Transaction, dataset_id: str, window: str, dataset_version: int) -> list[Any]:
    """Rows of a version by retailer and extractor version."""
    return sql.many(
        tx,
        "version_extractors",
        dataset_id=dataset_id,
        collection_window=window,
        dataset_version=dataset_version,
    )
