"""A partition's life against its tasks: paused, resumed, stopped, closed."""

from __future__ import annotations

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction

AT_ONCE = 10_000
"""So many pages of a partition that has ended are given up in one step."""


def pause(tx: Transaction, run_id: str, retailer: str, reason: str, *, stopped: bool = False) -> bool:
    """Nothing further of it is claimed; False when it was paused already, whose reason stays."""
    return (
        sql.maybe(tx, "pause_partition", run_id=run_id, retailer=retailer, reason=reason, stopped=stopped) is not None
    )


def stop_changed(tx: Transaction, run_id: str, retailer: str, reason: str) -> bool:
    """It waits for a person, because its pages are laid out as never before; False where one has answered already."""
    return sql.maybe(tx, "stop_changed", run_id=run_id, retailer=retailer, reason=reason) is not None


def resume(tx: Transaction, run_id: str, retailer: str) -> bool:
    """It is claimed from again; False when it was not paused."""
    return sql.maybe(tx, "resume_partition", run_id=run_id, retailer=retailer) is not None


def close(tx: Transaction, run_id: str, retailer: str) -> bool:
    """Nothing further of it is ever claimed; False when it was never planned."""
    return sql.maybe(tx, "close_partition", run_id=run_id, retailer=retailer) is not None


def set_deadline(tx: Transaction, run_id: str, retailer: str, deadline_seconds: float | None) -> None:
    """When it is closed by itself: so long after its window's end; without a length, one window length."""
    sql.execute(tx, "set_deadline", run_id=run_id, retailer=retailer, deadline_seconds=deadline_seconds)


def close_overdue(tx: Transaction) -> int:
    """Partitions past their deadline are closed; returns how many."""
    return len(sql.many(tx, "close_overdue"))


def quarantine_unclaimable(tx: Transaction, grace_seconds: float) -> int:
    """Open tasks of closed partitions, and of those that were stopped for longer than the grace, are quarantined.

    At most some thousands of each at once; returns how many.
    """
    quarantined = 0
    for ended in sql.many(tx, "lock_ended", grace_seconds=grace_seconds):
        # What waited for room has none any more.
        sql.one(tx, "admit", run_id=ended.run_id, retailer=ended.retailer, open=AT_ONCE)
        quarantined += int(sql.one(tx, "quarantine_unclaimable", **ended._asdict()).quarantined)
    return quarantined


def count_ended(tx: Transaction, run_id: str, retailer: str, failure_class: str) -> int:
    """How many tasks of the partition were quarantined with this class."""
    return int(sql.one(tx, "count_ended", run_id=run_id, retailer=retailer, failure_class=failure_class).ended)


def recent_failures(tx: Transaction, run_id: str, retailer: str, at_most: int) -> list[str | None]:
    """The failure classes of its newest attempts, newest first; None where one gave rows."""
    rows = sql.many(tx, "recent_failures", run_id=run_id, retailer=retailer, at_most=at_most)
    return [row.failure_class for row in rows]
