"""Deliver: outbox events reach their destinations; delivering again never collects again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.rules import retry
from scrape_assets.rules.retry import RetryPolicy
from scrape_assets.sinks import files
from scrape_assets.store import outbox, postgres
from scrape_assets.store.outbox import Sending
from scrape_assets.store.postgres import Pool, Transaction

SEND_SECONDS = 600.0
"""How long one send may take before its event counts as uncertain and the destination is asked."""

RETRY = RetryPolicy(base_seconds=30, cap_seconds=3600)
"""Between tries of an event that was surely not applied."""

REST_SECONDS = 60.0
"""The shortest rest of an event that failed, so that one call of `deliver` tries it once."""

FIRST_COLUMNS = ("dataset", "window", "dataset_version", "retailer", "context", "entity_key", "observed_at")


@dataclass(frozen=True, slots=True)
class Delivered:
    """One event's fate at one destination in this call."""

    destination: str
    state: str
    run_id: str
    dataset_version: int
    detail: str


def deliver(pool: Pool, dataset: Dataset, *, jitter: float) -> list[Delivered]:
    """Every due event of the declared destinations was sent or is due again; uncertain ones were asked for."""
    names = sorted(dataset.publish.to)
    done = _settle(pool, dataset, names)
    while True:
        with postgres.transaction(pool) as tx:
            sending = outbox.claim(tx, dataset.dataset, names, SEND_SECONDS)
        if sending is None:
            return done
        done.append(_send(pool, dataset, sending, jitter))


def count_due(pool: Pool, dataset: Dataset) -> int:
    """How many deliveries `deliver` would see to now."""
    with postgres.transaction(pool) as tx:
        return outbox.count_due(tx, dataset.dataset, sorted(dataset.publish.to))


def _settle(pool: Pool, dataset: Dataset, names: list[str]) -> list[Delivered]:
    """What a stopped sender left behind is asked for at the destination, then delivered (returned) or unsent."""
    found: list[Delivered] = []
    with postgres.transaction(pool) as tx:
        outbox.expire(tx)
        open_events = outbox.uncertain(tx, dataset.dataset, names)
    for event in open_events:
        target = dataset.publish.to[event.destination].files
        receipt = files.find(target.path, event.payload, event.idempotency_key)
        with postgres.transaction(pool) as tx:
            outbox.settle(tx, event, receipt)
        if receipt is not None:
            version = int(event.payload["dataset_version"])
            found.append(Delivered(event.destination, "delivered", event.run_id, version, receipt["manifest"]))
    return found


def _send(pool: Pool, dataset: Dataset, sending: Sending, jitter: float) -> Delivered:
    target = dataset.publish.to[sending.destination].files
    version = int(sending.payload["dataset_version"])
    began = time.monotonic()
    try:
        with postgres.transaction(pool) as tx:
            receipt = files.send(
                target.path,
                target.format,
                sending.payload,
                sending.idempotency_key,
                (*FIRST_COLUMNS, *dataset.columns, "extractor_version"),
                _records(tx, sending),
            )
    except (OSError, ValueError, TypeError) as error:
        # The destination's fault, or that of a value it cannot hold: it is told, and the others are sent all the same.
        rest = max(REST_SECONDS, time.monotonic() - began, retry.backoff(sending.tries, RETRY, jitter))
        with postgres.transaction(pool) as tx:
            outbox.not_applied(tx, sending, str(error), rest)
        return Delivered(sending.destination, "unsent", sending.run_id, version, str(error))
    with postgres.transaction(pool) as tx:
        mine = outbox.delivered(tx, sending, receipt)
    detail = receipt["manifest"] if mine else "another sender took over and will mark it"
    return Delivered(sending.destination, "delivered" if mine else "sending", sending.run_id, version, detail)


def _records(tx: Transaction, sending: Sending) -> Iterator[dict[str, Any]]:
    event = sending.payload
    for retailer, context, entity, observed_at, extractor, payload in outbox.version_rows(
        tx, sending.run_id, int(event["dataset_version"])
    ):
        yield {
            **orjson.loads(payload),
            "dataset": event["dataset"],
            "window": event["window"],
            "dataset_version": str(event["dataset_version"]),
            "retailer": retailer,
            "context": context,
            "entity_key": entity,
            "observed_at": datetime.fromtimestamp(observed_at, UTC),
            "extractor_version": extractor,
        }
