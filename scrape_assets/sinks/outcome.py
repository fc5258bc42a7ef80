"""What a destination is given, and what it answers: never an exception for an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]

PAYLOAD, PAYLOAD_HASH, ROW_VERSION = "_payload", "_payload_hash", "_row_version"
"""What a record holds beside its columns: the values as one object, their hash, the version that the row came with."""

LATE = "dataset.late"
"""The event that tells of no version: its time passed, and the last good one stands."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """One event for one destination. `rows` streams what it carries, `withdrawn` the rows that are no more.

    Nobody has to hold the rows: each call reads them anew.
    """

    event_id: str
    event_type: str
    created_at: str
    idempotency_key: str
    event: Mapping[str, Any]
    payload: str
    columns: Sequence[str]
    rows: Callable[[], Iterator[Record]]
    withdrawn: Callable[[], Iterator[Record]]

    @property
    def content_hash(self) -> str:
        """What tells this content from any other; a destination that has it can name it."""
        given = self.event.get("content_hash")
        if given:
            return str(given)
        return hashlib.sha256(json.dumps(self.event, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """The destination has it, and this is what it showed for that."""

    receipt: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NotApplied:
    """Surely not there; the destination may have said when to come back, in seconds."""

    error: str
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Perhaps there."""

    error: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It will never be taken as it is."""

    error: str


Sent = Applied | NotApplied | Uncertain | Refused

Found = Applied | NotApplied | Uncertain | Refused
"""The same answers to a question: it is there, it is not, nobody can tell now, something else is there."""
