"""Deliver: outbox events reach their destinations; delivering again never collects again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from scrape_assets import failpoints
from scrape_assets.datasets.declaration import Dataset, Destination, user_agent
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import retry
from scrape_assets.rules.retry import RetryPolicy
from scrape_assets.sinks import files, http
from scrape_assets.sinks import postgres as table
from scrape_assets.sinks.outcome import (
    LATE,
    PAYLOAD,
    PAYLOAD_HASH,
    ROW_VERSION,
    Applied,
    Found,
    NotApplied,
    Record,
    Refused,
    Sent,
    Shipment,
    Uncertain,
)
from scrape_assets.store import outbox, postgres, publication
from scrape_assets.store.outbox import Sending
from scrape_assets.store.postgres import Pool
from scrape_assets.store.publication import Part, VersionRow

SEND_SECONDS = 600.0
"""How long one send may take before its event counts as uncertain and the destination is asked."""

RETRY = RetryPolicy(base_seconds=30, cap_seconds=3600)
"""Between tries of an event that was surely not applied, and between questions about one that is uncertain."""

REST_SECONDS = 60.0
"""The shortest rest of an event that failed, so that one call of `deliver` tries it once."""

GIVE_UP_SECONDS = 72 * 3600.0
"""An event that could not be delivered for so long waits for a person (protocol, Delivery)."""

ASKED_AGAIN = 200
"""So many of the newest delivered events are asked for by `reconcile`."""

FIRST_COLUMNS = ("dataset", "window", "dataset_version", "retailer", "context", "entity_key", "observed_at", "known_at")
LAST_COLUMNS = ("extractor_version", "change", "unverified")


@dataclass(frozen=True, slots=True)
class Delivered:
    """One event's fate at one destination in this call; without a version, the event says that there is none."""

    destination: str
    state: str
    run_id: str
    dataset_version: int | None
    detail: str
    event_id: str = ""


def deliver(
    pool: Pool,
    dataset: Dataset,
    *,
    jitter: float,
    rest_seconds: float = REST_SECONDS,
    send_seconds: float = SEND_SECONDS,
) -> list[Delivered]:
    """Every due event of the declared destinations was sent or is due again; uncertain ones were asked for.

    A destination that fails, or is not configured on this machine, fails alone. `rest_seconds` and `send_seconds` are
    shorter where time is scaled down.
    """
    _wake(pool, dataset)
    done = _settle(pool, dataset, jitter, rest_seconds)
    while True:
        with postgres.transaction(pool) as tx:
            sending = outbox.claim(tx, dataset.dataset, dict.fromkeys(sorted(dataset.publish.to), send_seconds))
        if sending is None:
            return done
        failpoints.reach("K17")
        answer = _send(pool, dataset, sending)
        failpoints.reach("K19")
        done.append(_note(pool, sending, answer, jitter, rest_seconds))


def count_due(pool: Pool, dataset: Dataset) -> int:
    """How many deliveries `deliver` would see to now."""
    _wake(pool, dataset)
    with postgres.transaction(pool) as tx:
        return outbox.count_due(tx, dataset.dataset, sorted(dataset.publish.to))


def reconcile(pool: Pool, dataset: Dataset) -> list[Delivered]:
    """Destinations are asked for what they said they have; what they do not have after all is due again.

    One that has something else under the key has failed: sending cannot mend that, and a person decides.
    """
    with postgres.transaction(pool) as tx:
        claimed = outbox.confirmed(tx, dataset.dataset, sorted(dataset.publish.to), ASKED_AGAIN)
    found = []
    for sending in claimed:
        to = dataset.publish.to[sending.destination].http
        if to is not None and to.find == "none":
            found.append(_told(sending, "delivered", "nobody can tell: it cannot be asked"))
            continue
        answer = _find(pool, dataset, sending)
        if isinstance(answer, NotApplied):
            with postgres.transaction(pool) as tx:
                outbox.send_again(tx, dataset.dataset, sending.event_id, [sending.destination], ["delivered"])
            found.append(_told(sending, "unsent", f"it said that it had it, and does not: {answer.error}"))
        elif isinstance(answer, Refused):
            with postgres.transaction(pool) as tx:
                outbox.disprove(tx, sending, answer.error)
            found.append(_told(sending, "failed", answer.error))
        elif isinstance(answer, Applied):
            found.append(_told(sending, "delivered", "it is there"))
        else:
            found.append(_told(sending, "delivered", f"nobody can tell: {answer.error}"))
    return found


def send_again(pool: Pool, dataset: Dataset, event_id: UUID, destination: str | None) -> list[str]:
    """The event is due now at that destination, or at all that do not have it; returns their names.

    What is uncertain is asked for first, as ever. Where everybody has it, it is sent to them once more.
    DeclarationError where that cannot be, with the reason.
    """
    if destination is not None and destination not in dataset.publish.to:
        known = ", ".join(sorted(dataset.publish.to)) or "none"
        raise DeclarationError(f"dataset {dataset.dataset} has no destination {destination}; it has {known}")
    asked = sorted(dataset.publish.to) if destination is None else [destination]
    with postgres.transaction(pool) as tx:
        names = outbox.hurry(tx, dataset.dataset, event_id, asked)
        names += outbox.send_again(tx, dataset.dataset, event_id, asked, ["failed"])
        waiting = bool(names)
        names = names or outbox.send_again(tx, dataset.dataset, event_id, asked, ["delivered"])
        goes_to = outbox.of_event(tx, dataset.dataset, event_id)
        if names and not waiting:
            # What was delivered must not wait for a secret: nothing of this is done where one is missing or wrong.
            for name in names:
                _reachable(dataset.publish.to[name])
    if names:
        return sorted(names)
    if not goes_to:
        raise DeclarationError(f"there is no event {event_id} of {dataset.dataset}; `deliver --status` lists them")
    if not set(asked) & set(goes_to):
        raise DeclarationError(
            f"event {event_id} goes to {', '.join(goes_to)}, and not to {', '.join(asked) or 'any other'}: a "
            "destination gets what is published while it is declared; `export` writes any version"
        )
    raise DeclarationError(
        f"event {event_id} is on its way; a sender that stopped is noticed after {SEND_SECONDS / 60:.0f} minutes"
    )


def unready(dataset: Dataset) -> list[str]:
    """What deliveries would wait for on this machine: secrets that the environment lacks, or that are none."""
    found = []
    for name, to in sorted(dataset.publish.to.items()):
        try:
            _reachable(to)
        except DeclarationError as error:
            found.append(f"deliveries to {name} would wait: {error}")
    return found


def unsettled(pool: Pool, dataset: Dataset, at_most: int) -> list[Any]:
    """What the declared destinations do not have yet, or perhaps not, the oldest first."""
    with postgres.transaction(pool) as tx:
        return outbox.unsettled(tx, dataset.dataset, sorted(dataset.publish.to), at_most)


def _wake(pool: Pool, dataset: Dataset) -> None:
    """What only waited for a secret that the environment holds by now is due."""
    with postgres.transaction(pool) as tx:
        for destination, to in dataset.publish.to.items():
            name = to.http.secret if to.http else to.postgres.url if to.postgres else None
            if name is not None and os.environ.get(name):
                outbox.wake(tx, dataset.dataset, destination, _missing(name))


def _settle(pool: Pool, dataset: Dataset, jitter: float, rest_seconds: float) -> list[Delivered]:
    """What nobody knows of is asked for at its destination: delivered (returned), unsent, or asked again later."""
    with postgres.transaction(pool) as tx:
        outbox.expire(tx)
        open_events = outbox.to_be_asked(tx, dataset.dataset, sorted(dataset.publish.to))
    settled: list[Delivered] = []
    for sending in open_events:
        answer = _find(pool, dataset, sending)
        rest = max(rest_seconds, retry.backoff(sending.tries, RETRY, jitter))
        with postgres.transaction(pool) as tx:
            if isinstance(answer, Applied):
                outbox.settle(tx, sending, answer.receipt)
                settled.append(_told(sending, "delivered", _shown(answer.receipt)))
            elif isinstance(answer, NotApplied):
                outbox.settle(tx, sending, None)
            elif isinstance(answer, Refused) or sending.age_seconds > GIVE_UP_SECONDS:
                outbox.failed(tx, sending, answer.error)
                settled.append(_told(sending, "failed", answer.error))
            else:
                outbox.ask_again(tx, sending, answer.error, rest)
                settled.append(_told(sending, "uncertain", answer.error))
    return settled


def _note(pool: Pool, sending: Sending, answer: Sent, jitter: float, rest_seconds: float) -> Delivered:
    """The answer is durable, if this sender is still the one whose word counts."""
    rest = max(rest_seconds, retry.backoff(sending.tries, RETRY, jitter))
    with postgres.transaction(pool) as tx:
        match answer:
            case Applied(receipt):
                mine, state, detail = outbox.delivered(tx, sending, receipt), "delivered", _shown(receipt)
            case NotApplied(error, wait) if sending.age_seconds <= GIVE_UP_SECONDS:
                mine, state, detail = outbox.not_applied(tx, sending, error, max(rest, wait or 0.0)), "unsent", error
            case Uncertain(error):
                mine, state, detail = outbox.uncertain(tx, sending, error, rest_seconds), "uncertain", error
            case NotApplied(error):
                said = f"{error}; given up after {GIVE_UP_SECONDS / 3600:.0f} h"
                mine, state, detail = outbox.failed(tx, sending, said), "failed", said
            case Refused(error):
                mine, state, detail = outbox.failed(tx, sending, error), "failed", error
    return _told(sending, state, detail) if mine else _told(sending, "sending", "another sender took over")


def _told(sending: Sending, state: str, detail: str) -> Delivered:
    return Delivered(sending.destination, state, sending.run_id, sending.dataset_version, detail, str(sending.event_id))


def _shown(receipt: dict[str, Any]) -> str:
    return str(receipt.get("manifest") or ", ".join(f"{name} {value}" for name, value in receipt.items()))


def _send(pool: Pool, dataset: Dataset, sending: Sending) -> Sent:
    target = dataset.publish.to[sending.destination]
    shipment = _shipment(pool, dataset, target, sending)
    try:
        if target.files is not None:
            return files.send(target.files.path, target.files.format, shipment)
        if target.http is not None:
            to = target.http
            return http.send(
                to.url,
                _secret(to.secret),
                shipment,
                timeout_seconds=to.timeout_seconds,
                user_agent=user_agent(dataset.contact),
                going_on=lambda seconds: _go_on(pool, sending, seconds),
            )
        assert target.postgres is not None
        return table.send(_secret(target.postgres.url) or "", target.postgres.table, shipment)
    except (DeclarationError, OSError) as error:
        # A secret that is missing, or no room for a body: the others are sent all the same.
        return NotApplied(str(error))


def _go_on(pool: Pool, sending: Sending, seconds: float) -> None:
    with postgres.transaction(pool) as tx:
        outbox.go_on(tx, sending, seconds)


def _find(pool: Pool, dataset: Dataset, sending: Sending) -> Found:
    target = dataset.publish.to[sending.destination]
    shipment = _shipment(pool, dataset, target, sending)
    try:
        if target.files is not None:
            return files.find(target.files.path, shipment)
        if target.http is not None:
            to = target.http
            if to.find == "none":
                return NotApplied("it cannot be asked, and is declared to bear getting an event twice")
            return http.find(
                to.url,
                to.find,
                _secret(to.secret),
                shipment,
                timeout_seconds=to.timeout_seconds,
                user_agent=user_agent(dataset.contact),
            )
        assert target.postgres is not None
        return table.find(_secret(target.postgres.url) or "", target.postgres.table, shipment)
    except DeclarationError as error:
        return Uncertain(str(error))


def _reachable(to: Destination) -> None:
    """DeclarationError where the environment does not hold what this destination is sent with."""
    if to.http is not None and (secret := _secret(to.http.secret)) is not None:
        http.check_secret(secret)
    if to.postgres is not None:
        _secret(to.postgres.url)


def _secret(name: str | None) -> str | None:
    """What the environment holds under that name; it is nowhere else, and nobody writes it down."""
    if name is None:
        return None
    if not (value := os.environ.get(name)):
        raise DeclarationError(_missing(name))
    return value


def _missing(name: str) -> str:
    """The error of a delivery that waits for this secret; what waits for it is found by it."""
    return f"{name} is not set in the environment of this process; the declaration names it"


def _shipment(pool: Pool, dataset: Dataset, target: Destination, sending: Sending) -> Shipment:
    kind = target.files or target.http or target.postgres
    assert kind is not None
    part: Part | None = None
    if sending.event_type != LATE and kind.payload != "notice":
        part = kind.payload
    return Shipment(
        event_id=str(sending.event_id),
        event_type=sending.event_type,
        created_at=sending.created_at.isoformat(),
        idempotency_key=sending.idempotency_key,
        event=sending.payload,
        payload=kind.payload,
        columns=columns(dataset),
        rows=lambda: records(pool, sending.payload, part),
        withdrawn=lambda: records(pool, sending.payload, part and "withdrawn"),
    )


def columns(dataset: Dataset) -> tuple[str, ...]:
    """What a delivered or exported row has, in this order."""
    return (*FIRST_COLUMNS, *dataset.columns, *LAST_COLUMNS)


def records(pool: Pool, event: dict[str, Any], part: Part | None) -> Iterator[Record]:
    """A version's rows as destinations take them, streamed; none without a part."""
    if part is None:
        return
    version = int(event["dataset_version"])
    with postgres.transaction(pool) as tx:
        for row in publication.rows(tx, event["dataset"], event["window"], version, part):
            yield record(row, event["dataset"], event["window"], version)


def record(row: VersionRow, dataset: str, window: str, version: int) -> dict[str, Any]:
    """One row of a version with everything that is known of it."""
    payload = orjson.loads(row.payload)
    return {
        **payload,
        PAYLOAD: payload,
        PAYLOAD_HASH: row.payload_hash,
        ROW_VERSION: row.dataset_version,
        "dataset": dataset,
        "window": window,
        "dataset_version": str(version),
        "retailer": row.retailer,
        "context": row.context,
        "entity_key": row.entity_key,
        "observed_at": datetime.fromtimestamp(row.observed_at, UTC),
        "known_at": datetime.fromtimestamp(row.known_at, UTC),
        "extractor_version": row.extractor_version,
        "change": row.change,
        "unverified": row.unverified,
    }
