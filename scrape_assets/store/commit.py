"""The group commit: many results in one transaction, each under its own fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from scrape_assets import failpoints
from scrape_assets.store import discovery, origins, postgres, sql
from scrape_assets.store.discovery import Discovered
from scrape_assets.store.lease import Lease
from scrape_assets.store.postgres import Transaction


class Page(NamedTuple):
    """A page over all windows: what it is known by, and by what the site tells whether it changed.

    `verified_at`: when the site last gave or confirmed its bytes. `sha256`: the bytes that it had before.
    """

    pages_of: str
    etag: str | None
    last_modified: str | None
    verified_at: datetime
    sha256: str | None


@dataclass(slots=True)
class Result:
    """How one attempt ended, ready for the database. `rows` is the JSON array of its observations."""

    lease: Lease
    origin: str
    state: str
    outcome: str
    observed_at: datetime
    extractor_version: str
    rows: str | None = None
    row_count: int | None = None
    delay_seconds: float = 0.0
    refund: int = 0
    rate_limited: int = 0
    task_class: str | None = None
    http_status: int | None = None
    page_state: str | None = None
    failure_class: str | None = None
    reason: str | None = None
    final_url: str | None = None
    redirects: Sequence[str] = ()
    content_type: str | None = None
    artifact_sha256: str | None = None
    pause_origin_seconds: float | None = None
    pause_doubles: bool = False
    """The site did not say for how long."""
    pause_cap_seconds: float = 86400.0
    reached: bool | None = None
    """Whether the site answered at all; None when it was not asked, or not for the first time and in vain."""
    unreached_pause_seconds: float = 30.0
    body: bytes | None = None
    collisions: int = 0
    again: bool = False
    """Whether the task may have committed before, under an earlier batch or generation."""
    discovered: Discovered | None = None
    """What the page names, where it is one that names others."""
    page: Page | None = None
    """What is remembered of the page when it is committed."""
    body_status: int | None = None
    """What the site answered with when it gave these bytes, where it did not give them now."""
    unreadable: bool = False
    """The stored page could not be read: from now on it is an ordinary task."""
    template: str | None = None
    unlike: bool | None = None
    """Whether the page just fetched is laid out unlike those of the accepted windows; None where nobody can say."""

    def record(self) -> dict[str, Any]:
        """The result without its rows, as the fence and the attempt take it."""
        return {
            "task_key": self.lease.task_key,
            "lease_token": self.lease.lease_token,
            "attempt_id": self.lease.attempt_id,
            "state": self.state,
            "outcome": self.outcome,
            "delay_seconds": self.delay_seconds,
            "refund": self.refund,
            "rate_limited": self.rate_limited,
            "task_class": self.task_class,
            "row_count": self.row_count,
            "http_status": self.http_status,
            "page_state": self.page_state,
            "failure_class": self.failure_class,
            "reason": self.reason,
            "final_url": self.final_url,
            "redirects": self.redirects,
            "content_type": self.content_type,
            "artifact_sha256": self.artifact_sha256,
            "extractor_version": self.extractor_version,
            "collisions": self.collisions,
            "unreadable": self.unreadable,
            "template": self.template,
            **self._remembered(),
        }

    def _remembered(self) -> dict[str, Any]:
        page = self.page
        if page is None:
            return {}
        return {
            "pages_of": page.pages_of,
            "etag": page.etag,
            "last_modified": page.last_modified,
            "verified_at": page.verified_at,
        }

    def yielded(self) -> dict[str, Any]:
        """Its rows, with what they are stored under."""
        return {
            "task_key": self.lease.task_key,
            "lease_token": self.lease.lease_token,
            "attempt_id": self.lease.attempt_id,
            "extractor_version": self.extractor_version,
            "observed_at": self.observed_at,
            "rows": orjson.Fragment(self.rows or "[]"),
        }


def finish(
    tx: Transaction,
    run_id: str,
    collection_window: str,
    results: Sequence[Result],
    artifacts: Sequence[Mapping[str, Any]],
) -> set[UUID]:
    """The attempts whose fence held: their tasks moved, their attempts are closed, their rows and artifacts stored.

    A result whose lease was lost is not among them and leaves nothing.
    """
    # First of all locks: what pages name is counted in their partition.
    for retailer in sorted({r.discovered.retailer for r in results if r.discovered}):
        sql.maybe(tx, "lock_partition", run_id=run_id, retailer=retailer)
    text = orjson.dumps([result.record() for result in results]).decode()
    passed = {row.attempt_id for row in sql.many(tx, "finish_tasks", run_id=run_id, results=text)}
    failpoints.reach("K7", lambda: postgres.lose(tx))
    if yielding := [r for r in results if r.row_count and r.lease.attempt_id in passed]:
        text = orjson.dumps([result.yielded() for result in yielding]).decode()
        stored = sql.one(tx, "store_observations", results=text, collection_window=collection_window).stored
        if stored < sum(r.row_count or 0 for r in yielding):
            sql.execute(tx, "keep_lost_observations", results=text, collection_window=collection_window)
    if again := [r.lease for r in results if r.again and r.row_count is not None and r.lease.attempt_id in passed]:
        left = {"tasks": [one.task_key for one in again], "attempts": [one.attempt_id for one in again]}
        sql.execute(tx, "drop_lost", **left)
        sql.execute(tx, "drop_unyielded", **left)
    for result in results:
        if result.discovered and result.lease.attempt_id in passed:
            discovery.add(tx, run_id, result.lease.task_key, result.discovered)
    kept = {r.artifact_sha256 for r in results if r.lease.attempt_id in passed}
    if wanted := [artifact for artifact in artifacts if artifact["sha256"] in kept]:
        sql.execute(tx, "store_artifacts", run_id=run_id, artifacts=orjson.dumps(wanted).decode())
    failpoints.reach("K8", lambda: postgres.lose(tx))
    # One origin after the other in name order: two workers that pause the same origins must not lock them crosswise.
    pausing = (r for r in results if r.pause_origin_seconds and r.lease.attempt_id in passed)
    for result in sorted(pausing, key=lambda r: r.origin):
        origins.pause(
            tx,
            result.origin,
            result.pause_origin_seconds or 0.0,
            result.reason or "429",
            doubles=result.pause_doubles,
            cap_seconds=result.pause_cap_seconds,
        )
    _note_reached(tx, [r for r in results if r.lease.attempt_id in passed])
    return passed


def _note_reached(tx: Transaction, results: Sequence[Result]) -> None:
    answered = {r.origin for r in results if r.reached}
    silent = [r for r in results if r.reached is False and r.origin not in answered]
    if answered:
        origins.reached(tx, answered)
    for name, group in groupby(sorted(silent, key=lambda r: r.origin), key=lambda r: r.origin):
        failed = list(group)
        origins.unreachable(
            tx,
            name,
            len(failed),
            failed[0].unreached_pause_seconds,
            f"{len(failed)} pages in a row, and more before, did not reach it ({failed[0].reason})",
        )


def closed(tx: Transaction, results: Sequence[Result]) -> set[UUID]:
    """After a COMMIT whose answer was lost: the attempts that it did close."""
    ids = [r.lease.attempt_id for r in results]
    return {row.attempt_id for row in sql.many(tx, "find_closed_attempts", attempt_ids=ids)}
