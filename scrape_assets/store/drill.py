"""What a drill asks the store: what was in flight, when it went on, whether what was told is there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction


def in_flight(tx: Transaction, run_id: str) -> list[Any]:
    """The run's leases: (task_key, url, attempt_id, lease_owner)."""
    return sql.many(tx, "drill_in_flight", run_id=run_id)


def clock(tx: Transaction) -> datetime:
    """The database's time."""
    return sql.one(tx, "drill_clock").now  # type: ignore[no-any-return]


def expired(tx: Transaction, run_id: str) -> set[UUID]:
    """The run's attempts whose leases ran out."""
    return {row.attempt_id for row in sql.many(tx, "drill_expired", run_id=run_id)}


def given_up(tx: Transaction, attempt_ids: Sequence[UUID]) -> Any:
    """How many of the attempts are over (`ended`), how many of those `committed`, and when the last was (`last_at`)."""
    return sql.one(tx, "drill_given_up", attempt_ids=list(attempt_ids))


def released(tx: Transaction, run_id: str) -> int:
    """How many attempts of the run were given back."""
    return int(sql.one(tx, "drill_released", run_id=run_id).released)


def committed(tx: Transaction, run_id: str) -> int:
    """How many tasks of the run are committed."""
    return int(sql.one(tx, "drill_committed", run_id=run_id).committed)


def acknowledged_missing(tx: Transaction, attempt_ids: Sequence[str]) -> int:
    """How many of the attempts that were told to be durable are not."""
    return int(sql.one(tx, "drill_acknowledged", attempt_ids=list(attempt_ids)).missing)


def states(tx: Transaction, run_id: str) -> dict[str, int]:
    """How many tasks of the run are in each state."""
    return {row.state: row.tasks for row in sql.many(tx, "count_states", run_id=run_id)}


def hold_origins(tx: Transaction, seconds: float) -> None:
    """No request starts for so long; 0: at once."""
    sql.execute(tx, "hold_origins", seconds=seconds)


def workers(tx: Transaction) -> int:
    """How many workers have a share of an origin."""
    return int(sql.one(tx, "count_workers").workers)


def skus(tx: Transaction, run_id: str) -> dict[str, int]:
    """How many valid rows the run has of each item."""
    return {row.sku: row.rows for row in sql.many(tx, "rows_by_sku", run_id=run_id)}


def accepted_twice(tx: Transaction, run_id: str) -> int:
    """How many tasks have more than one committed attempt."""
    return int(sql.one(tx, "accepted_twice", run_id=run_id).tasks)


def ends(tx: Transaction, run_id: str) -> list[Any]:
    """How each page of the run ended: where it is, its attempts, the last one's reason, and what it was called."""
    return sql.many(tx, "drill_ends", run_id=run_id)
