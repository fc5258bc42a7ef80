"""The outbox: published versions on their way to destinations. Every write of a sender is fenced by its token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from psycopg.types.json import Jsonb

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction


class Sending(NamedTuple):
    """One event for one destination, under the token of whoever writes of it next."""

    event_id: UUID
    destination: str
    send_token: int
    tries: int
    idempotency_key: str
    run_id: str
    event_type: str
    payload: dict[str, Any]
    created_at: datetime
    age_seconds: float

    @property
    def dataset_version(self) -> int | None:
        """The version that the event tells of; None where it tells that there is none."""
        version = self.payload.get("dataset_version")
        return None if version is None else int(version)

    @property
    def fence(self) -> dict[str, Any]:
        """What every write about it must still match."""
        return {"event_id": self.event_id, "destination": self.destination, "send_token": self.send_token}


def claim(tx: Transaction, dataset_id: str, send_seconds: Mapping[str, float]) -> Sending | None:
    """The next due event of these destinations, the oldest first, marked as being sent for so long; None for none."""
    row = sql.maybe(
        tx,
        "claim_delivery",
        dataset_id=dataset_id,
        destinations=list(send_seconds),
        send_seconds=orjson.dumps(dict(send_seconds)).decode(),
    )
    return Sending(*row) if row else None


def count_due(tx: Transaction, dataset_id: str, destinations: Sequence[str]) -> int:
    """How many deliveries wait for a sender now, those of a stopped one included."""
    return int(sql.one(tx, "count_due", dataset_id=dataset_id, destinations=list(destinations)).due)


def go_on(tx: Transaction, sending: Sending, seconds: float) -> bool:
    """Nobody takes the send over for so long; False when somebody did already."""
    return sql.maybe(tx, "go_on_sending", **sending.fence, seconds=seconds) is not None


def delivered(tx: Transaction, sending: Sending, receipt: Mapping[str, Any]) -> bool:
    """The destination has it; False when another sender took over."""
    return sql.maybe(tx, "mark_delivered", **sending.fence, receipt=Jsonb(receipt)) is not None


def not_applied(tx: Transaction, sending: Sending, error: str, delay_seconds: float) -> bool:
    """Surely not there: due again after the delay; False when another sender took over."""
    return sql.maybe(tx, "mark_unsent", **sending.fence, error=error, delay_seconds=delay_seconds) is not None


def uncertain(tx: Transaction, sending: Sending, error: str, delay_seconds: float) -> bool:
    """Perhaps there: the destination is asked after the delay; False when another sender took over."""
    return sql.maybe(tx, "mark_uncertain", **sending.fence, error=error, delay_seconds=delay_seconds) is not None


def failed(tx: Transaction, sending: Sending, error: str) -> bool:
    """A person decides; False when another sender took over."""
    return sql.maybe(tx, "mark_failed", **sending.fence, error=error) is not None


def ask_again(tx: Transaction, sending: Sending, error: str, delay_seconds: float) -> bool:
    """Still not known: asked once more after the delay."""
    return sql.maybe(tx, "ask_again", **sending.fence, error=error, delay_seconds=delay_seconds) is not None


def disprove(tx: Transaction, sending: Sending, error: str) -> bool:
    """What it said that it had is something else, and a person decides; False when it is no longer delivered."""
    return sql.maybe(tx, "disprove", **sending.fence, error=error) is not None


def send_again(
    tx: Transaction, dataset_id: str, event_id: UUID, destinations: Sequence[str], states: Sequence[str]
) -> list[str]:
    """The event is unsent once more at those of the destinations where it is in these states; returns their names.

    `states`: delivered, failed or both.
    """
    rows = sql.many(
        tx,
        "send_again",
        dataset_id=dataset_id,
        event_id=event_id,
        destinations=list(destinations),
        states=list(states),
    )
    return sorted(row.destination for row in rows)


def hurry(tx: Transaction, dataset_id: str, event_id: UUID, destinations: Sequence[str]) -> list[str]:
    """Where the event is unsent or uncertain among these destinations it is due now; returns their names."""
    rows = sql.many(tx, "hurry", dataset_id=dataset_id, event_id=event_id, destinations=list(destinations))
    return sorted(row.destination for row in rows)


def wake(tx: Transaction, dataset_id: str, destination: str, error: str) -> int:
    """What waits at that destination for no other reason than this one is due now; returns how many."""
    return len(sql.many(tx, "wake", dataset_id=dataset_id, destination=destination, error=error))


def of_event(tx: Transaction, dataset_id: str, event_id: UUID) -> dict[str, str]:
    """The event's state at each of its destinations; nothing when the dataset has no such event."""
    rows = sql.many(tx, "get_event_deliveries", dataset_id=dataset_id, event_id=event_id)
    return {row.destination: row.state for row in rows}


def unsettled(tx: Transaction, dataset_id: str, destinations: Sequence[str], at_most: int) -> list[Any]:
    """What these destinations do not have yet, or perhaps not, the oldest first."""
    return sql.many(tx, "get_unsettled", dataset_id=dataset_id, destinations=list(destinations), at_most=at_most)


def expire(tx: Transaction) -> int:
    """Senders that stopped in the middle leave their events uncertain; returns how many."""
    return len(sql.many(tx, "expire_sending"))


def to_be_asked(tx: Transaction, dataset_id: str, destinations: Sequence[str]) -> list[Sending]:
    """Uncertain events whose destination is to be asked now."""
    rows = sql.many(tx, "get_uncertain", dataset_id=dataset_id, destinations=list(destinations))
    return [Sending(*row) for row in rows]


def confirmed(tx: Transaction, dataset_id: str, destinations: Sequence[str], at_most: int) -> list[Sending]:
    """The newest events that these destinations said they have."""
    rows = sql.many(tx, "get_delivered", dataset_id=dataset_id, destinations=list(destinations), at_most=at_most)
    return [Sending(*row) for row in rows]


def settle(tx: Transaction, sending: Sending, receipt: Mapping[str, Any] | None) -> None:
    """Delivered under the receipt that the destination showed, or unsent when it has nothing."""
    sql.execute(tx, "settle_uncertain", **sending.fence, receipt=Jsonb(receipt) if receipt is not None else None)


def deliveries(tx: Transaction, run_id: str) -> list[Any]:
    """Every delivery of the run's events, oldest event first."""
    return sql.many(tx, "get_deliveries", run_id=run_id)


def newest(tx: Transaction, dataset_id: str, at_most: int) -> list[Any]:
    """The newest deliveries of a dataset, those that wait for a person first."""
    return sql.many(tx, "list_deliveries", dataset_id=dataset_id, at_most=at_most)
