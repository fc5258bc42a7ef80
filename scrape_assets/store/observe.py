"""What people and metadata ask of the store: counts, failures, invariants. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from scrape_assets.store import sql
from scrape_assets.store.artifacts import Place
from scrape_assets.store.postgres import Transaction


class Invariant(NamedTuple):
    """One promise over live data: its name, its sentence, and the keys that break it."""

    name: str
    sentence: str
    keys: list[str]


def partition_counts(tx: Transaction, run_id: str) -> list[Any]:
    """Tasks by state, attempts, rows and verdict of each retailer."""
    return sql.many(tx, "partition_counts", run_id=run_id)


def failure_counts(tx: Transaction, run_id: str) -> list[Any]:
    """Attempts by retailer and failure class."""
    return sql.many(tx, "failure_counts", run_id=run_id)


def pauses(tx: Transaction, run_id: str) -> list[Any]:
    """Origins of the run that nobody may ask now, until when and why."""
    return sql.many(tx, "pauses_of_run", run_id=run_id)


def page_state_counts(tx: Transaction, run_id: str) -> list[Any]:
    """Attempts by retailer and page state."""
    return sql.many(tx, "page_state_counts", run_id=run_id)


def page_series(tx: Transaction, run_ids: Sequence[str], retailer: str | None) -> list[Any]:
    """Pages that have ended by window, newest first, retailer, page type, state, failure class and template."""
    return sql.many(tx, "page_series", run_ids=list(run_ids), retailer=retailer)


def to_try_again(tx: Transaction, run_id: str) -> list[Any]:
    """By retailer: pages that wait to be tried again, when the next is due, what the latest of them met."""
    return sql.many(tx, "to_try_again", run_id=run_id)


def leased_elsewhere(tx: Transaction, run_id: str, worker: str = "") -> list[Any]:
    """By retailer: pages that a worker of another name has, and until when."""
    return sql.many(tx, "leased_elsewhere", run_id=run_id, worker=worker)


def given_up(tx: Transaction, run_id: str, most: int) -> list[Any]:
    """By retailer: up to `most` reasons of its quarantined pages, the commonest first."""
    return sql.many(tx, "given_up", run_id=run_id, most=most)


def failed_tasks(tx: Transaction, run_id: str, retailer: str | None, failure_class: str | None) -> list[Any]:
    """Quarantined and gone tasks with their last attempt."""
    return sql.many(tx, "failed_tasks", run_id=run_id, retailer=retailer, failure_class=failure_class)


def artifact(tx: Transaction, run_id: str, sha256: str) -> Place | None:
    """Where stored bytes lie."""
    row = sql.maybe(tx, "get_artifact", run_id=run_id, sha256=sha256)
    return Place(row.segment, row.segment_offset, row.length) if row else None


def invariants(tx: Transaction) -> list[Invariant]:
    """Every invariant, checked in one consistent, read-only view; the transaction must be a new one."""
    tx.execute("set transaction isolation level repeatable read, read only")
    return [
        Invariant(
            query.name.removeprefix("invariant_"),
            query.description,
            [row.key for row in sql.many(tx, query.name)],
        )
        for query in sql.queries().values()
        if query.name.startswith("invariant_")
    ]


class StoredPage(NamedTuple):
    """A task whose last attempt has its bytes stored."""

    task_key: UUID
    url: str
    canonical_url: str
    context: str
    entity: str | None
    state: str
    last_failure_class: str | None
    page_state: str | None
    reason: str | None
    sha256: str
    place: Place


def stored_pages(
    tx: Transaction,
    run_id: str,
    retailer: str,
    *,
    urls: Sequence[str] | None = None,
    context: str | None = None,
    sha256: str | None = None,
    at_most: int,
) -> list[StoredPage]:
    """Up to so many tasks of the retailer whose bytes are stored, a fair sample; or those of these pages."""
    rows = sql.many(
        tx,
        "stored_pages",
        run_id=run_id,
        retailer=retailer,
        urls=None if urls is None else list(urls),
        context=context,
        sha256=sha256,
        at_most=at_most,
    )
    return [StoredPage._make((*row[:10], Place(*row[10:]))) for row in rows]


def urls(tx: Transaction, run_id: str, *states: str) -> list[str]:
    """The pages of the run whose tasks are in one of these states."""
    return [row.url for row in sql.many(tx, "urls_in_state", run_id=run_id, states=list(states))]
