"""Collect: lease, fetch, classify, extract, commit. Safe to kill at any line.

One worker is one process: this event loop claims, fetches and keeps leases alive, a few child processes judge
pages, one committer makes results durable. A worker claims only what it can start now, and stops by giving back
what it has not finished.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from scrape_assets import failpoints
from scrape_assets.errors import StoreUnreachable
from scrape_assets.flow import revalidate, stored
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.commit import AGAIN, PATIENCE_SECONDS, Committer, Item
from scrape_assets.flow.conclude import conclude
from scrape_assets.flow.fetch import Sources
from scrape_assets.flow.leases import REAP_SECONDS, Held, Leases, now
from scrape_assets.flow.revalidate import Standing
from scrape_assets.flow.robots import Robots
from scrape_assets.flow.sessions import Sessions, Unready
from scrape_assets.flow.turns import BrowserGates, NotNow, OriginPaused, PageGate, TurnLost, Turns
from scrape_assets.rules import urls
from scrape_assets.rules.page import FetchFailure, Request, Response
from scrape_assets.rules.robots import RobotsRules
from scrape_assets.rules.sitemaps import SITEMAP_BYTES
from scrape_assets.rules.states import FailureClass, Outcome, TaskState
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.sources.extractor import ExtractorPool, Judgement
from scrape_assets.sources.http import Jar
from scrape_assets.sources.memory import give_back
from scrape_assets.store import discovery, lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim, Known, Lease
from scrape_assets.store.postgres import Pool

ROBOTS_TRIES = 20
"""So often another worker's reading of a robots.txt is looked for, before a page that leads there is given up."""

NO_ROOM_SECONDS = 0.2
"""How soon a worker looks again for a slot at an origin whose slots are all taken."""

ASKING = 2
"""Partitions that wait for the store at one time; the pool's other connections are the commits' and the heartbeats'."""

STOPPED = "the worker was stopped"

ELSEWHERE_SECONDS = 5.0
"""How soon a page is tried again whose context is set up at another origin than its own, which is paused."""

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
        self._turns = Turns(pool, worker_id)
        self._robots = Robots(pool, sources.http)
        self._sessions = Sessions(extractors, self._ask)
        self._asking = asyncio.Semaphore(ASKING)
        self._stopping = asyncio.Event()
        self._broken: asyncio.Future[None]
        self._backlog = BACKLOG
        self._origins: dict[int, Sequence[str]] = {}
        self._needed: defaultdict[str, set[str]] = defaultdict(set)
        """Origins that pages need beside their own, by retailer: of set-ups, and of what pages in a browser asked."""
        self._led_to: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """Origins that redirects led to, by run and retailer."""
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
        shortest = min((assignment.lease_seconds for assignment in assignments), default=60.0)
        deadline = min((assignment.dataset.lease.deadline_seconds for assignment in assignments), default=900.0)
        self._turns.use(_wanted(assignments), lease_seconds=shortest, patience_seconds=deadline / 3)
        self._broken = asyncio.get_running_loop().create_future()
        # One queue to the extraction processes: what all partitions let wait there must be read within a lease's time.
        self._backlog = max(1, BACKLOG // max(1, len(assignments)))
        committing = asyncio.create_task(self._committer.run())
        keeping = asyncio.create_task(self._leases.keep(shortest))
        sharing = asyncio.create_task(self._turns.keep())
        drives = [asyncio.create_task(self._drive(assignment)) for assignment in assignments]
        try:
            await _first_failure(drives, [committing, keeping, sharing, self._broken])
            under_way = [held.task for held in self._leases]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            self._committer.close()
            await committing
        finally:
            for pending in [*drives, keeping, sharing, committing, *(held.task for held in self._leases)]:
                pending.cancel()
            await asyncio.gather(*drives, keeping, sharing, return_exceptions=True)
            await self._sessions.close()
            self._leases.close()
            await self._turns.leave()
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
            taken = await self._take(assignment, free, fetching, room)
            if taken:
                continue
            waiting = await self._patiently(self._waiting, assignment)
            # Pages may have named others on an origin that nobody knew when this began.
            self._origins[id(assignment)] = waiting.origins
            self._turns.also(waiting.origins, assignment.retailer.fetch.concurrency)
            has_stored = waiting.stored
            if not waiting.open or (waiting.nothing_for_me and not self._held(assignment)):
                return
            wait = min(REAP_SECONDS, max(0.01, waiting.due_in_seconds))
            if len(self._leases):
                wait = max(wait, 0.05)
            await self._rest(assignment, room, wait if taken is not None else max(wait, NO_ROOM_SECONDS))

    async def _take(self, assignment: Assignment, free: int, fetching: set[Lease], room: asyncio.Event) -> int | None:
        """How many tasks are mine now; None where an origin may not be asked yet, or has no room for more."""
        if self._needs(assignment) & self._turns.paused:
            # They would be given back at once, one after the other, for as long as the pause lasts.
            return None
        taken, full = 0, False
        for origin in self._origins.get(id(assignment), assignment.origins):
            if free - taken <= 0 or origin in self._turns.paused:
                continue
            may = await self._may_ask(assignment, origin)
            if isinstance(may, FetchFailure):
                taken += await self._fail_one(assignment, origin, may)
                continue
            wanted = min(free - taken, self._turns.room(origin)) if may else 0
            if wanted <= 0:
                full = True
                continue
            asked = now()
            # Other partitions of this worker ask for the same room while this one waits for the store.
            with self._turns.reserved(origin, wanted, shown=_is_shown(assignment)):
                claims = await self._patiently(self._claim, assignment, origin, wanted)
                for claim in claims:
                    self._begin(assignment, claim, origin, asked, fetching, room)
            taken += len(claims)
        return None if full and not taken else taken

    async def _fail_one(self, assignment: Assignment, origin: str, unread: FetchFailure) -> int:
        """The next page has met what its origin's robots.txt met; how many pages there were."""
        claims = await self._patiently(self._claim, assignment, origin, 1)
        for claim in claims:
            self._put(assignment, conclude(assignment, claim, origin, unread, None, claim.leased_at, random.random()))
        await self._robots.rest(assignment, origin)
        return len(claims)

    async def _may_ask(self, assignment: Assignment, origin: str) -> bool | FetchFailure:
        """Whether this worker's share of the origin and the origin's robots.txt are known.

        A robots.txt that cannot be read fails the next page in its stead, so that a site that never gives one is a
        failure with a reason and an end, and not a run that stands still. A store that does not answer is no failure
        of the site's: it is asked again.
        """
        if self._turns.is_unknown(origin):
            with suppress(StoreUnreachable):
                await self._turns.refresh()
        if self._robots.known(assignment.run.run_id, origin) or assignment.retailer.fetch.robots == "ignore":
            return True
        async with self._turns.line(origin):
            gate = self._gate(assignment, lambda: not self.stopped, page=False)
            try:
                return await self._robots.read(assignment, origin, gate)
            except (NotNow, StoreUnreachable):
                return False

    async def _rules(self, assignment: Assignment, origin: str) -> RobotsRules | FetchFailure | None:
        """What the origin's robots.txt says; read now where a redirect or a set-up is the first that leads there."""
        for _ in range(ROBOTS_TRIES):
            if (known := self._robots.known(assignment.run.run_id, origin)) is not None:
                return known
            may = await self._may_ask(assignment, origin)
            if isinstance(may, FetchFailure):
                await self._robots.rest(assignment, origin)
                return may
            if not may:
                await asyncio.sleep(REAP_SECONDS)
        return FetchFailure(FailureClass.ROBOTS, f"the robots.txt of {origin} is not read yet")

    def _gate(self, assignment: Assignment, is_mine: Callable[[], bool], *, page: bool = True) -> PageGate:
        obeyed = assignment.retailer.fetch.robots == "obey" and page
        return PageGate(
            self._turns,
            hold_seconds=assignment.retailer.fetch.timeout_seconds,
            budget=assignment.dataset.budget,
            is_mine=is_mine,
            rules=partial(self._rules, assignment) if obeyed else None,
            led_to=self._led_to[assignment.run.run_id, assignment.retailer.name],
        )

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
        if origin:
            self._turns.begin(origin, shown=_is_shown(assignment))
        work = asyncio.create_task(self._work(assignment, claim, origin, now(), fetching, room))
        work.add_done_callback(partial(self._ended, assignment, claim, origin))
        # Whatever became of it, also when it was cancelled before its first step.
        work.add_done_callback(lambda _: self._fetched(assignment, claim, origin, fetching, room))
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
        jar: Jar | None = None
        still: Standing | None = None
        try:
            if origin in self._turns.paused:
                raise OriginPaused
            if not await self._leases.still_mine(claim.lease):
                raise TurnLost
            answer: Response | FetchFailure
            if claim.from_artifact is not None:
                page = await asyncio.to_thread(stored.read, self._artifacts, claim)
                if page is None:
                    self._put(assignment, stored.unreadable(assignment, claim))
                    return
                answer, observed_at = page
            else:
                answer, jar, still = await self._page(assignment, claim, origin)
                observed_at = claim.leased_at + timedelta(seconds=now() - received)
            failpoints.reach("K4")
            self._fetched(assignment, claim, origin, fetching, room)
            judged = await self._judge(assignment, claim, answer)
            if jar is not None and judged is not None and judged.failure_class is FailureClass.WRONG_CONTEXT:
                # Perhaps the session ended: its context is set up anew, and the page asked for once more.
                answer = await self._sessions.page_again(assignment, claim, jar)
                observed_at = claim.leased_at + timedelta(seconds=now() - received)
                judged = await self._judge(assignment, claim, answer)
            result = conclude(assignment, claim, origin, answer, judged, observed_at, random.random())
            revalidate.remember(result, assignment, claim, answer, still)
            if claim.from_artifact is not None:
                stored.keep(result, claim)
            self._put(assignment, result)
        except Unready as unready:
            self._put_unready(assignment, claim, unready, received)
        except NotNow as why:
            elsewhere = isinstance(why, OriginPaused) and origin not in self._turns.paused
            self._release(assignment, claim, origin, why.reason, ELSEWHERE_SECONDS if elsewhere else 0.0)
        except asyncio.CancelledError:
            # Cancelled by `stop`, or by a lost lease: then the fence drops the release.
            self._release(assignment, claim, origin, STOPPED)
        finally:
            self._fetched(assignment, claim, origin, fetching, room)

    def _fetched(
        self, assignment: Assignment, claim: Claim, origin: str, fetching: set[Lease], room: asyncio.Event
    ) -> None:
        """Its request is over, which makes room for another one."""
        if claim.lease in fetching:
            fetching.discard(claim.lease)
            if origin:
                self._turns.end(origin, shown=_is_shown(assignment))
        room.set()

    async def _page(
        self, assignment: Assignment, claim: Claim, origin: str
    ) -> tuple[Response | FetchFailure, Jar | None, Standing | None]:
        """The page, asked for as far as it may have changed."""
        if claim.known is None:
            answer, jar = await self._asked(assignment, claim, origin)
            return answer, jar, None
        if (still := await asyncio.to_thread(revalidate.unasked, self._artifacts, claim)) is not None:
            return still.page, None, still
        answer, jar = await self._asked(assignment, claim, origin, claim.known)
        if (still := await asyncio.to_thread(revalidate.confirmed, self._artifacts, claim, answer)) is not None:
            return still.page, jar, still
        if isinstance(answer, Response) and answer.status == HTTPStatus.NOT_MODIFIED:
            # Its bytes are gone, or are not what they were.
            answer, jar = await self._asked(assignment, claim, origin)
        return answer, jar, None

    async def _asked(
        self, assignment: Assignment, claim: Claim, origin: str, known: Known | None = None
    ) -> tuple[Response | FetchFailure, Jar | None]:
        answer, jar = await self._sessions.page(assignment, claim, known)
        await self._turns.heed(origin, answer, assignment.dataset.retry.policy)
        return answer, jar

    async def _judge(self, assignment: Assignment, claim: Claim, answer: Response | FetchFailure) -> Judgement | None:
        """What the page says; None when there is none."""
        if isinstance(answer, FetchFailure):
            return None
        self._leases.received(claim.lease, len(answer.body))
        return await self._extractors.judge(
            answer,
            assignment.setup,
            entity=claim.entity,
            context=claim.context,
            canonical_url=claim.canonical_url,
            page_type=claim.page_type,
            depth=claim.depth if claim.discovers else None,
            of_pages=claim.of_pages,
        )

    async def _ask(
        self, assignment: Assignment, request: Request, jar: Jar | None, claim: Claim | None, *, more: bool
    ) -> Response | FetchFailure:
        """What the site says, asked in its turn; within the limits of its robots.txt."""
        origin = urls.origin(request.url)
        if claim is None:
            self._needs(assignment).add(origin)
        # A context is set up without a browser, which has its cookies then.
        shown = claim is not None and _is_shown(assignment)
        mine = claim is None or partial(self._leases.surely_mine, claim.lease)

        def is_mine() -> bool:
            return (mine is True or mine()) and not self.stopped

        gate = self._gate(assignment, is_mine)
        if objection := await gate.forbidden(request.url):
            return FetchFailure(FailureClass.ROBOTS, f"{objection}; it was not asked for (fetch.robots: ignore asks)")
        lists = claim is not None and claim.discovers
        size = SITEMAP_BYTES if lists and assignment.retailer.urls.mode == "sitemap" else 0
        dataset, retailer = assignment.dataset, assignment.retailer
        if more:
            self._turns.begin(origin, shown=shown)
        try:
            if shown:
                gates = self._browser_gates(assignment, is_mine)
                return await self._sources.show(
                    dataset, retailer, request.url, jar=jar, gates=gates, lists=lists, at_least_bytes=size
                )
            await gate.line_up(origin)
            return await self._sources.ask(dataset, retailer, request, jar=jar, gate=gate, at_least_bytes=size)
        finally:
            gate.step_out()
            if more:
                self._turns.end(origin, shown=shown)

    def _needs(self, assignment: Assignment) -> set[str]:
        """Origins that its pages need, as far as that is known."""
        return self._needed[f"{assignment.dataset.dataset}/{assignment.retailer.name}"]

    def _browser_gates(self, assignment: Assignment, is_mine: Callable[[], bool]) -> BrowserGates:
        """For one page. OriginPaused when it would be asked for in vain, as its like need an origin that is paused."""
        needed = self._needs(assignment)
        if needed & self._turns.paused:
            raise OriginPaused
        return BrowserGates(
            self._turns,
            lambda page: self._gate(assignment, is_mine, page=page),
            budget=assignment.dataset.budget,
            concurrency=assignment.retailer.fetch.concurrency,
            policy=assignment.dataset.retry.policy,
            is_mine=is_mine,
            asked=needed,
        )

    def _put_unready(self, assignment: Assignment, claim: Claim, unready: Unready, received: float) -> None:
        """The page was not asked for: what its context's set-up ran into is the attempt's failure."""
        at = claim.leased_at + timedelta(seconds=now() - received)
        result = conclude(assignment, claim, unready.origin, unready.answer, unready.judged, at, random.random())
        # These are no bytes of the page, and no repair may read them as if they were.
        result.body = result.content_type = None
        self._put(assignment, result)

    def _release(self, assignment: Assignment, claim: Claim, origin: str, why: str, delay_seconds: float = 0.0) -> None:
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
                delay_seconds=delay_seconds,
            ),
        )

    def _put(self, assignment: Assignment, result: Result) -> None:
        if result.pause_origin_seconds:
            self._turns.paused.add(result.origin)
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
                lease_seconds=assignment.lease_seconds,
                deadline_seconds=assignment.dataset.lease.deadline_seconds,
                pages_of=assignment.pages_of,
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
        run_id, retailer = assignment.run.run_id, assignment.retailer.name
        with postgres.transaction(self._pool) as tx:
            discovery.admit_unless_busy(tx, run_id, retailer, assignment.retailer.fetch.open_tasks)
            return lease.waiting(tx, run_id, retailer, assignment.frozen.manifest_hash)

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


def _is_shown(assignment: Assignment) -> bool:
    """Whether a browser has its pages."""
    return assignment.retailer.fetch.via == "browser"


def _wanted(assignments: Sequence[Assignment]) -> dict[str, int]:
    """How many requests in flight each origin could have of this worker."""
    wanted: Counter[str] = Counter()
    for assignment in assignments:
        wanted.update(dict.fromkeys(assignment.origins, assignment.retailer.fetch.concurrency))
    return dict(wanted)


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
    give_back()
    async with Sources(connect_to, browser) as sources, ExtractorPool(processes) as extractors:
        worker = Worker(pool, sources, extractors, artifacts=artifacts, worker_id=worker_id, on_progress=on_progress)
        try:
            yield worker
        finally:
            worker.tally.browser.update(sources.browser.counts)
