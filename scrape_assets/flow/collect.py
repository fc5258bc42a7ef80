"""Collect: lease, fetch, classify, extract, commit. Safe to kill at any line.

One worker is one process: this event loop claims, fetches and keeps leases alive, a few child processes judge
pages, one committer makes results durable. A worker claims only what it can start now, and stops by giving back
what it has not finished.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from scrape_assets import failpoints
from scrape_assets.errors import StoreUnreachable
from scrape_assets.flow import stored
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.commit import AGAIN, PATIENCE_SECONDS, Committer, Item
from scrape_assets.flow.conclude import conclude
from scrape_assets.flow.fetch import Sources
from scrape_assets.flow.leases import REAP_SECONDS, Held, Leases, now
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.states import Outcome, TaskState
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.sources.extractor import ExtractorPool
from scrape_assets.store import lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim, Lease
from scrape_assets.store.postgres import Pool

CLAIM_AHEAD_SECONDS = 1.0
"""A claim takes what the origin's rate lets start within this time: little is held, no start waits for a round trip."""

ASKING = 2
"""Partitions that wait for the store at one time; the pool's other connections are the commits' and the heartbeats'."""

STOPPED = "the worker was stopped"

BACKLOG = 128
"""Fetched pages of one worker that may wait for extraction and commit, beside those in flight."""

BACKLOG_BYTES = 64 * 2**20
"""Bytes of such pages at which no further one is asked for: a few hundred of the largest would fill a machine."""


@dataclass(slots=True)
class Tally:
    """What one worker did: attempts by outcome, fenced ones among them, rows committed, seconds."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    browser: Counter[str] = field(default_factory=Counter)
    """Browsers started, recycled for their memory, lost; pages ended for memory."""
    fenced: int = 0
    rows: int = 0
    seconds: float = 0.0

    def add(self, other: Tally) -> None:
        """What another worker, or this one before, did as well."""
        self.outcomes += other.outcomes
        self.failures += other.failures
        self.browser += other.browser
        self.fenced += other.fenced
        self.rows += other.rows
        self.seconds += other.seconds


class Worker:
    """Works partitions until nothing of them is open, or until it is told to stop."""

    def __init__(
        self,
        pool: Pool,
        sources: Sources,
        extractors: ExtractorPool,
        *,
        artifacts: Path,
        worker_id: str,
        on_progress: Callable[[Item], None] = lambda _item: None,
    ) -> None:
        self._pool = pool
        self._sources = sources
        self._extractors = extractors
        self._worker_id = worker_id
        self._on_progress = on_progress
        self._artifacts = artifacts
        self._committer = Committer(pool, artifacts, worker_id, self._closed)
        self._leases = Leases(pool, worker_id)
        self._asking = asyncio.Semaphore(ASKING)
        self._stopping = asyncio.Event()
        self._broken: asyncio.Future[None]
        self._backlog = BACKLOG
        self.tally = Tally()

    def stop(self) -> None:
        """No further claim; pages under way are given back, finished ones are committed."""
        self._stopping.set()
        for held in self._leases:
            held.task.cancel()

    @property
    def stopped(self) -> bool:
        """Whether somebody asked it to stop."""
        return self._stopping.is_set()

    async def run(self, assignments: Sequence[Assignment]) -> Tally:
        """Nothing of these partitions can be claimed any more, or the worker was stopped; what is done is durable."""
        began = time.monotonic()
        origins = sorted({origin for assignment in assignments for origin in assignment.origins})
        shortest = min((assignment.lease_seconds for assignment in assignments), default=60.0)
        self._broken = asyncio.get_running_loop().create_future()
        # One queue to the extraction processes: what all partitions let wait there must be read within a lease's time.
        self._backlog = max(1, BACKLOG // max(1, len(assignments)))
        committing = asyncio.create_task(self._committer.run())
        keeping = asyncio.create_task(self._leases.keep(origins, shortest))
        drives = [asyncio.create_task(self._drive(assignment)) for assignment in assignments]
        try:
            await _first_failure(drives, [committing, keeping, self._broken])
            under_way = [held.task for held in self._leases]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            self._committer.close()
            await committing
        finally:
            for pending in [*drives, keeping, committing, *(held.task for held in self._leases)]:
                pending.cancel()
            await asyncio.gather(*drives, keeping, return_exceptions=True)
            self._leases.close()
        self.tally.seconds = time.monotonic() - began
        return self.tally

    async def _drive(self, assignment: Assignment) -> None:
        """Claims for one partition whenever it has room, until nothing of it can be claimed any more."""
        fetching: set[Lease] = set()
        room = asyncio.Event()
        has_stored = assignment.recovery_batch_id is not None
        while not self.stopped:
            room.clear()
            free = self._free(assignment, len(fetching))
            # A quarter of the slots at once: a round trip for each page would cost more than it gains.
            if free < max(1, assignment.retailer.fetch.concurrency // 4):
                # Looked at again even so: the room may be made by another partition of this worker.
                # Not wait_for: on Python 3.11 a page that makes room just now would swallow a cancellation.
                with suppress(TimeoutError):
                    async with asyncio.timeout(REAP_SECONDS):
                        await room.wait()
                continue
            if has_stored and await self._take_stored(assignment, free, fetching, room):
                continue
            latest_start = await self._take(assignment, free, fetching, room)
            if latest_start is not None:
                wait = latest_start - CLAIM_AHEAD_SECONDS / 2
            else:
                waiting = await self._patiently(self._waiting, assignment)
                has_stored = waiting.stored
                if not waiting.open or (waiting.nothing_for_me and not self._held(assignment)):
                    return
                wait = min(REAP_SECONDS, max(0.01, waiting.due_in_seconds))
                if len(self._leases):
                    wait = max(wait, 0.05)
            if wait > 0:
                await self._rest(assignment, room, wait)

    async def _take(self, assignment: Assignment, free: int, fetching: set[Lease], room: asyncio.Event) -> float | None:
        """Tasks that may start soon are mine; in how many seconds the last of them starts, None without any."""
        latest_start: float | None = None
        for origin in assignment.origins:
            if free <= 0 or origin in self._leases.paused:
                continue
            asked = now()
            claims = await self._patiently(self._claim, assignment, origin, free)
            free -= len(claims)
            for claim in claims:
                self._begin(assignment, claim, origin, asked, fetching, room)
                latest_start = max(latest_start or 0.0, claim.start_in_seconds)
        return latest_start

    async def _take_stored(self, assignment: Assignment, free: int, fetching: set[Lease], room: asyncio.Event) -> bool:
        """Tasks whose page is stored are mine, if there are any."""
        asked = now()
        claims = await self._patiently(self._claim_stored, assignment, free)
        for claim in claims:
            self._begin(assignment, claim, "", asked, fetching, room)
        return bool(claims)

    async def _rest(self, assignment: Assignment, room: asyncio.Event, seconds: float) -> None:
        """Until then; or until the last page that I hold is let go, for it may be done; holding none, until stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if not self._held(assignment):
                    await self._stopping.wait()
                while self._held(assignment):
                    room.clear()
                    await room.wait()

    def _free(self, assignment: Assignment, fetching: int) -> int:
        """How many pages of the partition may be claimed now."""
        if self._leases.body_bytes > BACKLOG_BYTES:
            return 0
        concurrency = assignment.retailer.fetch.concurrency
        return min(concurrency - fetching, concurrency + self._backlog - self._held(assignment))

    def _held(self, assignment: Assignment) -> int:
        """How many pages of the partition are mine now."""
        return sum(1 for mine in self._leases if mine.assignment is assignment)

    def _begin(
        self,
        assignment: Assignment,
        claim: Claim,
        origin: str,
        asked: float,
        fetching: set[Lease],
        room: asyncio.Event,
    ) -> None:
        """The claimed task is mine and being worked on; a claim that was answered after `stop` is given back."""
        if self.stopped:
            self._release(assignment, claim, origin, STOPPED)
            return
        fetching.add(claim.lease)
        work = asyncio.create_task(self._work(assignment, claim, origin, now(), fetching, room))
        work.add_done_callback(partial(self._ended, assignment, claim, origin))
        self._leases.hold(claim.lease, Held(assignment, work, room, asked))

    def _ended(self, assignment: Assignment, claim: Claim, origin: str, work: asyncio.Task[None]) -> None:
        """A fault of ours, not of a page, ends the worker: swallowed, it would hold the lease for ever."""
        if work.cancelled():
            # Before its first step: from then on it gives the page back itself.
            self._release(assignment, claim, origin, STOPPED)
        elif (error := work.exception()) and not self._broken.done():
            self._broken.set_exception(error)

    async def _work(
        self,
        assignment: Assignment,
        claim: Claim,
        origin: str,
        received: float,
        fetching: set[Lease],
        room: asyncio.Event,
    ) -> None:
        """One claimed task: its page is fetched and judged, and the result is with the committer."""
        try:
            if claim.start_in_seconds:
                await asyncio.sleep(claim.start_in_seconds)
            if origin in self._leases.paused:
                self._release(assignment, claim, origin, "its origin is paused")
                return
            if not await self._leases.still_mine(claim.lease):
                self._release(assignment, claim, origin, "its lease was lost before its turn")
                return
            answer: Response | FetchFailure
            if claim.from_artifact is not None:
                page = await asyncio.to_thread(stored.read, self._artifacts, claim)
                if page is None:
                    self._put(assignment, stored.unreadable(assignment, claim))
                    return
                answer, observed_at = page
            else:
                # The text that was planned and keyed: another parser might read another host in the original.
                answer = await self._sources.page(assignment.dataset, assignment.retailer, claim.canonical_url)
                observed_at = claim.leased_at + timedelta(seconds=now() - received)
            failpoints.reach("K4")
            fetching.discard(claim.lease)
            room.set()
            judged = None
            if isinstance(answer, Response):
                self._leases.received(claim.lease, len(answer.body))
                judged = await self._extractors.judge(
                    answer,
                    assignment.setup,
                    entity=claim.entity,
                    context=claim.context,
                    canonical_url=claim.canonical_url,
                )
            result = conclude(assignment, claim, origin, answer, judged, observed_at, random.random())
            if claim.from_artifact is not None:
                stored.keep(result, claim)
            if result.pause_origin_seconds:
                self._leases.paused.add(origin)
            self._put(assignment, result)
        except asyncio.CancelledError:
            # Cancelled by `stop`, or by a lost lease: then the fence drops the release.
            self._release(assignment, claim, origin, STOPPED)
        finally:
            fetching.discard(claim.lease)
            room.set()

    def _release(self, assignment: Assignment, claim: Claim, origin: str, why: str) -> None:
        self._put(
            assignment,
            Result(
                claim.lease,
                origin,
                TaskState.PENDING,
                Outcome.RELEASED,
                claim.leased_at,
                assignment.frozen.extractor_version,
                refund=1,
                reason=why,
            ),
        )

    def _put(self, assignment: Assignment, result: Result) -> None:
        self._committer.put(
            Item(assignment.run.run_id, assignment.run.collection_window, assignment.retailer.name, result)
        )

    def _closed(self, item: Item, passed: bool) -> None:
        """The committer's word on one result: durable, or fenced off because the lease was lost."""
        self._leases.let_go(item.result.lease)
        if not passed:
            self.tally.fenced += 1
            return
        self.tally.outcomes[item.result.outcome] += 1
        self.tally.rows += item.result.row_count or 0
        if item.result.failure_class:
            self.tally.failures[item.result.failure_class] += 1
        self._on_progress(item)

    def _claim(self, assignment: Assignment, origin: str, wanted: int) -> list[Claim]:
        with postgres.transaction(self._pool) as tx:
            claims = lease.claim(
                tx,
                run_id=assignment.run.run_id,
                retailer=assignment.retailer.name,
                origin=origin,
                manifest_hash=assignment.frozen.manifest_hash,
                worker_id=self._worker_id,
                wanted=wanted,
                ahead_seconds=CLAIM_AHEAD_SECONDS,
                lease_seconds=assignment.lease_seconds,
                deadline_seconds=assignment.dataset.lease.deadline_seconds,
            )
        if claims:
            failpoints.reach("K1")
        return claims

    def _claim_stored(self, assignment: Assignment, wanted: int) -> list[Claim]:
        with postgres.transaction(self._pool) as tx:
            claims = lease.claim_stored(
                tx,
                run_id=assignment.run.run_id,
                retailer=assignment.retailer.name,
                manifest_hash=assignment.frozen.manifest_hash,
                worker_id=self._worker_id,
                wanted=wanted,
                lease_seconds=assignment.lease_seconds,
                deadline_seconds=assignment.dataset.lease.deadline_seconds,
            )
        if claims:
            failpoints.reach("K1")
        return claims

    def _waiting(self, assignment: Assignment) -> lease.Waiting:
        with postgres.transaction(self._pool) as tx:
            return lease.waiting(
                tx,
                assignment.run.run_id,
                assignment.retailer.name,
                assignment.frozen.manifest_hash,
                assignment.origins,
            )

    async def _patiently(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of a store act; a store that does not answer is asked again for as long as results are held."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        pause = 0.1
        while True:
            try:
                async with self._asking:
                    return await asyncio.to_thread(act, *arguments)
            except StoreUnreachable as error:
                if time.monotonic() > give_up or self.stopped:
                    raise StoreUnreachable(f"{error}. {AGAIN}") from error
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)


async def _first_failure(drives: Sequence[asyncio.Task[None]], background: Sequence[asyncio.Future[None]]) -> None:
    """Returns when all drives are done; raises as soon as any task fails."""
    open_drives = set(drives)
    while open_drives:
        done, _ = await asyncio.wait([*open_drives, *background], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        open_drives -= done


@asynccontextmanager
async def worker(
    pool: Pool,
    *,
    artifacts: Path,
    worker_id: str,
    connect_to: Mapping[str, tuple[str, int]],
    processes: int = 1,
    browser: BrowserOptions | None = None,
    on_progress: Callable[[Item], None] = lambda _item: None,
) -> AsyncIterator[Worker]:
    """A worker with its sources and extraction processes, all of which end with it."""
    async with Sources(connect_to, browser) as sources, ExtractorPool(processes) as extractors:
        worker = Worker(pool, sources, extractors, artifacts=artifacts, worker_id=worker_id, on_progress=on_progress)
        try:
            yield worker
        finally:
            worker.tally.browser.update(sources.browser.counts)
