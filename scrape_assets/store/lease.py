"""Leases: claim, heartbeat, reap. Only the database's clock moves them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from scrape_assets.store import sql
from scrape_assets.store.artifacts import Place
from scrape_assets.store.postgres import Transaction

CLAIM_ANSWER_SECONDS = 5.0
"""How long after its lease ran out a claim's answer may still be on its way to the worker that asked."""


class Lease(NamedTuple):
    """The fence of one claim: every later write of this attempt must still match it."""

    task_key: UUID
    lease_token: int
    attempt_id: UUID


class Known(NamedTuple):
    """A page as it was last read: what the site tells by whether it still is that, its bytes, and when it last was."""

    etag: str | None
    last_modified: str | None
    verified_at: datetime
    sha256: str
    place: Place


class Claim(NamedTuple):
    """One leased task. `leased_at` is the database's time."""

    task_key: UUID
    url: str
    canonical_url: str
    context: str
    entity: str | None
    page_type: str
    attempt_id: UUID
    lease_token: int
    attempt_count: int
    max_attempts: int
    rate_limited_count: int
    generation: int
    recovery_batch_id: UUID | None
    leased_at: datetime
    priority: int
    discovers: bool
    depth: int
    barren: int
    of_pages: int
    modified_at: datetime | None
    """When the site says that the page was last changed, where that is believed."""
    earlier_failures: list[str]
    from_artifact: str | None = None
    """SHA-256 of the stored page that this attempt reads instead of asking the site."""
    stored: Place | None = None
    """Where that lies; None when nobody knows any more."""
    known: Known | None = None
    """What the page was when it was last read, in any window."""

    @property
    def lease(self) -> Lease:
        """The fence alone."""
        return Lease(self.task_key, self.lease_token, self.attempt_id)


class Waiting(NamedTuple):
    """What is left of a partition: is anything open, and seconds until the next may start.

    `paused`: the site is not asked until a person resumes it. `canary_over`: nothing more is claimed until the canary
    is judged. `other_manifest`: it is worked on with another declaration. `stored`: there are pages that need no site.
    `origins`: all that its pages lie on, as far as they are known.
    """

    open: bool
    paused: bool
    canary_over: bool
    other_manifest: bool
    stored: bool
    due_in_seconds: float
    origins: list[str]

    @property
    def nothing_for_me(self) -> bool:
        """Whether nothing of it can be claimed until somebody else did something."""
        return self.canary_over or self.other_manifest or (self.paused and not self.stored)


def claim(
    tx: Transaction,
    *,
    run_id: str,
    retailer: str,
    origin: str,
    manifest_hash: str,
    worker_id: str,
    wanted: int,
    lease_seconds: float,
    deadline_seconds: float,
    pages_of: str | None = None,
) -> list[Claim]:
    """Up to `wanted` due tasks of this origin, leased, unless it is paused.

    `pages_of`: what its pages are known by, where they need not be asked for whole.
    """
    sql.maybe(tx, "lock_origin", origin=origin)
    rows = sql.many(
        tx,
        "claim",
        run_id=run_id,
        retailer=retailer,
        origin=origin,
        manifest_hash=manifest_hash,
        worker_id=worker_id,
        wanted=wanted,
        lease_seconds=lease_seconds,
        deadline_seconds=deadline_seconds,
        pages_of=pages_of,
    )
    return [Claim._make((*row[:21], None, None, _known(row))) for row in rows]


def _known(row: Any) -> Known | None:
    if row.sha256 is None:
        return None
    place = Place(row.segment, row.segment_offset, row.length)
    return Known(row.etag, row.last_modified, row.verified_at, row.sha256, place)


def claim_stored(
    tx: Transaction,
    *,
    run_id: str,
    retailer: str,
    manifest_hash: str,
    worker_id: str,
    wanted: int,
    lease_seconds: float,
    deadline_seconds: float,
) -> list[Claim]:
    """Up to `wanted` due tasks whose page is stored, leased; no site is asked, so none is looked at."""
    rows = sql.many(
        tx,
        "claim_stored",
        run_id=run_id,
        retailer=retailer,
        manifest_hash=manifest_hash,
        worker_id=worker_id,
        wanted=wanted,
        lease_seconds=lease_seconds,
        deadline_seconds=deadline_seconds,
    )
    return [Claim(*row[:22])._replace(stored=Place(*row[22:]) if row.segment is not None else None) for row in rows]


def heartbeat(tx: Transaction, leases: Sequence[Lease], lease_seconds: float) -> set[UUID]:
    """The attempts whose lease is still mine and runs on; the others were lost."""
    text = orjson.dumps([lease._asdict() for lease in leases]).decode()
    return {row.attempt_id for row in sql.many(tx, "heartbeat", leases=text, lease_seconds=lease_seconds)}


def reap(tx: Transaction, worker_id: str, held: Sequence[Lease] = ()) -> int:
    """Expired leases are pending again, or quarantined when their budget is spent; returns how many.

    Those that this worker holds stay, until their tasks are past their deadline; its own that it does not hold go a
    little later, since the answer of their claim may still be on its way.
    """
    ids = [one.attempt_id for one in held]
    return len(sql.many(tx, "reap", worker_id=worker_id, held=ids, answer_seconds=CLAIM_ANSWER_SECONDS))


def waiting(tx: Transaction, run_id: str, retailer: str, manifest_hash: str) -> Waiting:
    """What this partition still waits for, for a worker with that declaration."""
    asked = {"run_id": run_id, "retailer": retailer, "manifest_hash": manifest_hash}
    return Waiting(*sql.one(tx, "next_due", **asked))
