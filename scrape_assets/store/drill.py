"""What a drill asks the store: what was in flight, when it went on, whether what was told is there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction


def in_flight(tx: Transaction, run_id: str) -> list[Any]:
    """The run's leases: (task_key, url, attempt_id)."""
    return sql.many(tx, "drill_in_flight", run_id=run_id)


def clock(tx: Transaction) -> datetime:
    """The database's time."""
    return sql.one(tx, "drill_clock").now  # type: ignore[no-any-return]


def progress_after(tx: Transaction, run_id: str, since: datetime) -> float | None:
    """Seconds from then to the run's next durable progress."""
    return sql.one(tx, "drill_progress_after", run_id=run_id, since=since).seconds  # type: ignore[no-any-return]


def acknowledged_missing(tx: Transaction, attempt_ids: Sequence[str]) -> int:
    """How many of the attempts that were told to be durable are not."""
    return int(sql.one(tx, "drill_acknowledged", attempt_ids=list(attempt_ids)).missing)
