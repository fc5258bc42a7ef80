"""Commit: results gather for a moment and become durable together, each under its own fence.

The order is the protocol's: bytes are synced, then one transaction writes states, rows and places; nobody is told
before COMMIT has answered, and an answer that was lost is looked up, never assumed.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from scrape_assets import failpoints
from scrape_assets.errors import ScrapeAssetsError, StoreUnreachable
from scrape_assets.flow import control
from scrape_assets.rules import refusals, template
from scrape_assets.rules.states import FailureClass, Outcome, PageState, TaskState
from scrape_assets.store import commit as store
from scrape_assets.store import postgres
from scrape_assets.store.artifacts import SegmentWriter
from scrape_assets.store.commit import Result
from scrape_assets.store.postgres import DataRefused, Pool

GROUP = 200
"""Most results in one transaction; beyond a few hundred a larger group gains nothing."""

GATHER_SECONDS = 0.02
"""How long the first result of a group waits for others."""

PATIENCE_SECONDS = 150.0
"""How long a worker holds finished results while Postgres does not answer, before it gives up: longer than two waits
for a lock or a connection, and than the minute in which a pool tries again."""


AGAIN = "When Postgres answers, start the same command again: it goes on where it was"


class Item:
    """One result with the run it belongs to."""

    __slots__ = ("collection_window", "result", "retailer", "run_id")

    def __init__(self, run_id: str, collection_window: str, retailer: str, result: Result) -> None:
        self.run_id = run_id
        self.collection_window = collection_window
        self.retailer = retailer
        self.result = result


class Committer:
    """Takes results one by one and commits them in groups, in one thread, on one connection at a time."""

    def __init__(self, pool: Pool, artifacts: Path, worker_id: str, on_closed: Callable[[Item, bool], None]) -> None:
        self._pool = pool
        self._artifacts = artifacts
        self._worker_id = worker_id
        self._on_closed = on_closed
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue()
        self._writers: dict[tuple[str, str, bool], SegmentWriter] = {}
        self._unlike: dict[tuple[str, str], deque[bool]] = defaultdict(lambda: deque(maxlen=template.PAGES))

    def put(self, item: Item) -> None:
        """The result waits for the next group."""
        self._queue.put_nowait(item)

    def close(self) -> None:
        """`run` returns once everything put before is committed."""
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Commits group after group until closed; the segments are closed then."""
        more = True
        while more and (first := await self._queue.get()):
            if self._queue.qsize() < GROUP - 1:
                await asyncio.sleep(GATHER_SECONDS)
            group = [first]
            while len(group) < GROUP and not self._queue.empty():
                item = self._queue.get_nowait()
                if item is None:
                    more = False
                    break
                group.append(item)
            await self._commit_runs(group)
        for writer in self._writers.values():
            writer.close()

    async def _commit_runs(self, group: list[Item]) -> None:
        group.sort(key=lambda item: item.run_id)
        for _, items in groupby(group, key=lambda item: item.run_id):
            batch = list(items)
            passed = await asyncio.to_thread(self._make_durable, batch)
            await asyncio.to_thread(self._leave_alone_who_refuses, batch)
            await asyncio.to_thread(self._wait_for_a_person_who_changed, batch, passed)
            for item in batch:
                self._on_closed(item, item.result.lease.attempt_id in passed)

    def _make_durable(self, items: list[Item]) -> set[UUID]:
        try:
            places = self._keep_bytes(items)
        except OSError as error:
            raise ScrapeAssetsError(
                f"cannot write artifacts below {self._artifacts}: {error}. "
                "Nothing of these pages was committed; their leases run out and they are fetched again"
            ) from error
        failpoints.reach("K6")
        passed = self._finish(items, places)
        failpoints.reach("K10")
        return passed

    def _leave_alone_who_refuses(self, items: Sequence[Item]) -> None:
        """A transaction of its own, after the tasks' locks are gone; it is decided by what is durable.

        If it is lost with the process, the next refusal decides again.
        """
        for run_id, retailer in sorted(
            {(i.run_id, i.retailer) for i in items if i.result.failure_class in refusals.REFUSALS}
        ):
            with suppress(StoreUnreachable):
                control.stop_if_refused(self._pool, run_id, retailer)

    def _wait_for_a_person_who_changed(self, items: Sequence[Item], passed: set[UUID]) -> None:
        """Counted in memory, so that good pages cost no statement; what another worker saw, it counts itself."""
        for item in items:
            if item.result.unlike is None or item.result.lease.attempt_id not in passed:
                continue
            newest = self._unlike[item.run_id, item.retailer]
            newest.append(item.result.unlike)
            if template.stops(list(newest)):
                with suppress(StoreUnreachable):
                    control.stop_if_changed(self._pool, item.run_id, item.retailer, list(newest))
                # Stopped, or somebody has answered: both are asked about again after as many pages.
                newest.clear()

    def _keep_bytes(self, items: Sequence[Item]) -> list[dict[str, Any]]:
        """The bodies are appended to their segments and synced; returns where each lies."""
        places: dict[str, dict[str, Any]] = {}
        touched: set[SegmentWriter] = set()
        # Committed ones first: of the same bytes those are the ones that are kept longer.
        for item in sorted(items, key=lambda item: item.result.outcome != Outcome.COMMITTED):
            result = item.result
            if result.body is None:
                continue
            sha256 = result.artifact_sha256 = hashlib.sha256(result.body).hexdigest()
            if result.page and result.page.sha256 == sha256 and result.page_state == PageState.EXPECTED:
                result.page_state = PageState.UNCHANGED
            if sha256 in places:
                continue
            failed = result.outcome != Outcome.COMMITTED
            key = (item.run_id, item.retailer, failed)
            writer = self._writers.get(key)
            if writer is None:
                writer = self._writers[key] = SegmentWriter(
                    self._artifacts, item.run_id, item.retailer, self._worker_id, failed=failed
                )
            header = {
                "url": result.final_url,
                "redirects": result.redirects,
                "status": result.body_status or result.http_status,
                "content_type": result.content_type,
                "observed_at": result.observed_at,
            }
            place = writer.append(header, result.body)
            touched.add(writer)
            places[sha256] = {
                **place._asdict(),
                "sha256": sha256,
                "retailer": item.retailer,
                "body_bytes": len(result.body),
            }
        for writer in touched:
            writer.sync()
        return list(places.values())

    def _finish(self, items: list[Item], places: list[dict[str, Any]]) -> set[UUID]:
        """One transaction; on refused data the group is halved until the guilty task stands alone."""
        try:
            return self._finish_whole(items, places)
        except DataRefused as refused:
            if len(items) > 1:
                middle = len(items) // 2
                return self._finish(items[:middle], places) | self._finish(items[middle:], places)
            return self._finish_whole([_unstorable(items[0], str(refused))], places)

    def _finish_whole(self, items: list[Item], places: list[dict[str, Any]]) -> set[UUID]:
        results = [item.result for item in items]
        give_up = time.monotonic() + PATIENCE_SECONDS
        pause = 0.05
        repeated = False
        while True:
            try:
                with postgres.transaction(self._pool) as tx:
                    passed = store.finish(tx, items[0].run_id, items[0].collection_window, results, places)
                    # An earlier COMMIT may have been done although its answer was lost: the attempts tell. They are
                    # asked last, when the fence has waited for whatever of it was still under way.
                    known = passed | store.closed(tx, results) if repeated else passed
                    failpoints.reach("K9", lambda: postgres.lose(tx), first=lambda: postgres.send_commit(tx))
                    return known
            except StoreUnreachable as error:
                if time.monotonic() > give_up:
                    raise StoreUnreachable(f"{error}. {AGAIN}") from error
                repeated = True
                time.sleep(pause)
                pause = min(2.0, pause * 2)


def _unstorable(item: Item, why: str) -> Item:
    result = item.result
    result.state, result.outcome = TaskState.QUARANTINED, Outcome.QUARANTINED
    result.task_class = result.failure_class = FailureClass.UNSTORABLE
    result.reason = f"Postgres refused the page's data: {_storable(why)}"
    result.rows = result.row_count = result.discovered = result.page = None
    result.final_url, result.content_type = _storable(result.final_url), _storable(result.content_type)
    result.redirects = ()
    return item


def _storable(text: str | None) -> str | None:
    """What surely fits: no NUL, no lone surrogate, not too long."""
    if text is None:
        return None
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()[:500]
