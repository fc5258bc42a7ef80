"""The outbox: deliveries on their way, every write fenced by the send token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction


class Sending(NamedTuple):
    """One event claimed for one destination."""

    event_id: UUID
    destination: str
    send_token: int
    tries: int
    idempotency_key: str
    run_id: str
    payload: dict[str, Any]
    created_at: datetime


class Uncertain(NamedTuple):
    """One event of which nobody knows whether the destination has it."""

    event_id: UUID
    destination: str
    send_token: int
    idempotency_key: str
    run_id: str
    payload: dict[str, Any]


def claim(tx: Transaction, dataset_id: str, destinations: Sequence[str], send_seconds: float) -> Sending | None:
    """The next due event of these destinations, marked as being sent by this token; None when there is none."""
    row = sql.maybe(
        tx, "claim_delivery", dataset_id=dataset_id, destinations=list(destinations), send_seconds=send_seconds
    )
    return Sending(*row) if row else None


def count_due(tx: Transaction, dataset_id: str, destinations: Sequence[str]) -> int:
    """How many deliveries wait for a sender now, those of a stopped one included."""
    return int(sql.one(tx, "count_due", dataset_id=dataset_id, destinations=list(destinations)).due)


def delivered(tx: Transaction, sending: Sending, receipt: Mapping[str, Any]) -> bool:
    """The destination has it; False when another sender took over."""
    return (
        sql.maybe(
            tx,
            "mark_delivered",
            event_id=sending.event_id,
            destination=sending.destination,
            send_token=sending.send_token,
            receipt=Jsonb(receipt),
        )
        is not None
    )


def not_applied(tx: Transaction, sending: Sending, error: str, delay_seconds: float) -> bool:
    """Surely not there: due again after the delay; False when another sender took over."""
    return (
        sql.maybe(
            tx,
            "mark_unsent",
            event_id=sending.event_id,
            destination=sending.destination,
            send_token=sending.send_token,
            error=error,
            delay_seconds=delay_seconds,
        )
        is not None
    )


def expire(tx: Transaction) -> int:
    """Senders that stopped in the middle leave their events uncertain; returns how many."""
    return len(sql.many(tx, "expire_sending"))


def uncertain(tx: Transaction, dataset_id: str, destinations: Sequence[str]) -> list[Uncertain]:
    """Events whose destination has to be asked."""
    rows = sql.many(tx, "get_uncertain", dataset_id=dataset_id, destinations=list(destinations))
    return [Uncertain(*row) for row in rows]


def settle(tx: Transaction, event: Uncertain, receipt: Mapping[str, Any] | None) -> None:
    """Delivered under the receipt that the destination showed, or unsent when it has nothing."""
    sql.execute(
        tx,
        "settle_uncertain",
        event_id=event.event_id,
        destination=event.destination,
        send_token=event.send_token,
        receipt=Jsonb(receipt) if receipt is not None else None,
    )


def version_rows(tx: Transaction, run_id: str, dataset_version: int) -> Iterator[tuple[Any, ...]]:
    """(retailer, context, entity_key, observed_at as epoch seconds, extractor_version, payload JSON) of a version."""
    sql.one(tx, "stay_idle")
    query = sql.queries()["copy_version"].text.encode()
    with tx.cursor().copy(query, {"run_id": run_id, "dataset_version": dataset_version}) as copy:
        copy.set_types(["text", "text", "text", "float8", "text", "text"])
        yield from copy.rows()


def deliveries(tx: Transaction, run_id: str) -> list[Any]:
    """Every delivery of the run's versions, oldest event first."""
    return sql.many(tx, "get_deliveries", run_id=run_id)
