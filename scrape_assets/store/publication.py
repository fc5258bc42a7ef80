"""Versions: the statements of the one transaction that publishes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
from psycopg.types.json import Jsonb

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction
from scrape_assets.store.runs import Run


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


def publish(tx: Transaction, run_id: str, sequence: int, dataset_version: int) -> int:
    """The accepted dataset candidate is the published version; returns its number of rows."""
    if sql.maybe(tx, "mark_published", run_id=run_id, sequence=sequence, dataset_version=dataset_version) is None:
        raise LookupError(f"dataset candidate {sequence} of {run_id} is not accepted")
    rows = sql.one(tx, "publish_observations", run_id=run_id, dataset_version=dataset_version).rows
    sql.execute(tx, "advance_latest", run_id=run_id, dataset_version=dataset_version)
    return int(rows)


def write_event(
    tx: Transaction, run_id: str, event_id: UUID, payload: Mapping[str, Any], destinations: Mapping[str, str]
) -> None:
    """The publication's outbox event, and one unsent delivery for each destination name and idempotency key."""
    sql.execute(tx, "write_event", run_id=run_id, event_id=event_id, payload=Jsonb(payload))
    text = orjson.dumps([{"destination": n, "idempotency_key": k} for n, k in destinations.items()]).decode()
    sql.execute(tx, "open_deliveries", event_id=event_id, destinations=text)
