"""Turns: when this worker may ask an origin. The budget is the store's, one for all workers; only its use is here.

A request goes out only in a turn that the store has just given, so that a store that is gone stops the requests. What
has no gap, no daily limit and no trouble takes no turns: there the share of requests in flight is the whole budget.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from scrape_assets.errors import StoreUnreachable
from scrape_assets.flow.leases import now
from scrape_assets.rules import retry
from scrape_assets.rules.budget import MAX_ORIGINS, Budget
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.retry import RetryPolicy
from scrape_assets.rules.robots import RobotsRules
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.urls import origin as origin_of
from scrape_assets.store import origins, postgres
from scrape_assets.store.origins import Share
from scrape_assets.store.postgres import Pool

SHARE_SECONDS = 1.0
"""How often a worker's shares are looked at again: how soon a new worker gets its part."""

SLOT_SECONDS = 0.02
"""How soon a browser's request looks again for room at an origin that has none."""

MAX_NEEDED = 100
"""Origins remembered of one retailer's pages in a browser."""

SLOW_GAP_SECONDS = 1.0
"""From this gap on only one request waits with an open connection: a site would not keep more open for so long."""

SILENT = 5
"""So many requests in a row that reached nothing hold this worker back, until the store says what all of them met."""

ASK_AGAIN_SECONDS = 1.0
"""The longest sleep before the store is asked again, so that a pause or a new rate is noticed."""

STORE_SECONDS = 0.2
"""How soon a store that was not there is asked again."""


class NotNow(Exception):
    """The page is given back unasked."""

    reason = ""


class OriginPaused(NotNow):
    """Nobody asks the origin now."""

    reason = "its origin is paused"


class TurnLost(NotNow):
    """The lease was lost while the page waited."""

    reason = "its lease was lost before its turn"


@dataclass(slots=True)
class _Block:
    """Starts that are mine, `gap` apart, none after `until`."""

    left: int
    gap: float
    until: float
    last: float
    fresh: bool = True


class Turns:
    """A worker's shares and turns at its origins."""

    def __init__(self, pool: Pool, worker_id: str) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._shares: dict[str, Share] = {}
        self._told: dict[str, int] = {}
        """What the store is told to be in use, while its answer is on its way: others may have all the rest by then."""
        self._confirmed = 0.0
        self._granted = 0.0
        self._wanted: dict[str, int] = {}
        self._patience = 300.0
        self._in_flight: Counter[str] = Counter()
        self._shown: Counter[str] = Counter()
        """Of those in flight, pages by a browser, whose requests are counted one by one instead."""
        self._requests: Counter[str] = Counter()
        self._queued: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()
        self._blocks: dict[str, _Block] = {}
        self._held: dict[str, datetime] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._lines: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._refreshing = asyncio.Lock()
        self._pushing: set[asyncio.Task[None]] = set()
        # Turns must not wait behind commits, look-ups and claims.
        self._thread = ThreadPoolExecutor(2, thread_name_prefix="turns")
        self.paused: set[str] = set()

    def use(self, wanted: Mapping[str, int], *, lease_seconds: float, patience_seconds: float) -> None:
        """These origins are worked on, with so many requests in flight at most."""
        self._wanted = dict(wanted)
        self._granted = lease_seconds
        self._patience = patience_seconds

    def also(self, names: Iterable[str], wanted: int) -> None:
        """These are worked on too, from now on."""
        for name in names:
            self._wanted.setdefault(name, wanted)

    async def keep(self) -> None:
        """Until cancelled: the shares are renewed, and what others leave is taken."""
        while True:
            await asyncio.sleep(SHARE_SECONDS)
            with suppress(StoreUnreachable):
                await self.refresh()

    async def refresh(self) -> None:
        """What is mine now at each origin is known."""
        async with self._refreshing:
            asked = now()
            uses = {
                name: (wanted, max(self._in_flight[name], self._busy(name))) for name, wanted in self._wanted.items()
            }
            self._told = {name: in_use for name, (_, in_use) in uses.items()}
            if uses:
                self._shares.update(await self._apart(self._share, uses))
            self._told = {}
            self._confirmed = asked
            self.paused = {share.origin for share in self._shares.values() if share.paused}

    async def leave(self) -> None:
        """Nothing is mine any more."""
        with suppress(StoreUnreachable):
            await self._apart(self._leave)
        self._thread.shutdown(wait=False)

    def room(self, origin: str) -> int:
        """How many more requests may be in flight at the origin; none on a share that has run out meanwhile."""
        return self._slots(origin) - max(self._in_flight[origin], self._busy(origin) + self._queued[origin])

    def is_unknown(self, origin: str) -> bool:
        """Whether nobody said yet what this worker's part of it is."""
        return origin not in self._shares

    async def get_to_know(self, origin: str, budget: Budget, is_mine: Callable[[], bool], wanted: int = 1) -> None:
        """The origin has its budget, and this worker a share of it, however long the store is not there for it.

        OriginPaused, or TurnLost, as `take`.
        """
        while self.is_unknown(origin):
            self._may_wait(origin, is_mine)
            try:
                await self._apart(self._declare, origin, budget)
                self._wanted.setdefault(origin, wanted)
                await self.refresh()
            except StoreUnreachable:
                await asyncio.sleep(STORE_SECONDS)

    @contextmanager
    def reserved(self, origin: str, places: int, *, shown: bool = False) -> Iterator[None]:
        """Room that nobody else has meanwhile; the pages that come of it `begin` inside, before anything is awaited."""
        self._in_flight[origin] += places
        self._shown[origin] += places if shown else 0
        try:
            yield
        finally:
            self._in_flight[origin] -= places
            self._shown[origin] -= places if shown else 0

    def begin(self, origin: str, *, shown: bool = False) -> None:
        """A page of the origin is on its way; `shown`: a browser has it, and asks for `slot` for each request."""
        self._in_flight[origin] += 1
        self._shown[origin] += shown

    def end(self, origin: str, *, shown: bool = False) -> None:
        """It has its answer, or was given up."""
        self._in_flight[origin] -= 1
        self._shown[origin] -= shown

    @asynccontextmanager
    async def slot(self, origin: str, is_mine: Callable[[], bool]) -> AsyncIterator[None]:
        """One of this worker's requests in flight, for a browser's. OriginPaused, or TurnLost, as `take`.

        Its page's own place stands for one of them, so that a page is never waited for by its own requests; nothing
        is waited for with one in hand but the turn and the answer.
        """
        self._queued[origin] += 1
        try:
            while self._slots(origin) <= self._busy(origin):
                self._may_wait(origin, is_mine)
                await asyncio.sleep(SLOT_SECONDS)
        finally:
            self._queued[origin] -= 1
        self._requests[origin] += 1
        try:
            yield
        finally:
            self._requests[origin] -= 1

    def _busy(self, origin: str) -> int:
        """Requests in flight, those of browsers among them."""
        return self._in_flight[origin] - self._shown[origin] + self._requests[origin]

    def _slots(self, origin: str) -> int:
        """What is mine; nothing on a share that has run out meanwhile."""
        share = self._shares.get(origin)
        if share is None or now() - self._confirmed > self._granted:
            return 0
        return min(share.slots, self._told.get(origin, share.slots))

    def _may_wait(self, origin: str, is_mine: Callable[[], bool]) -> None:
        if not is_mine():
            raise TurnLost
        if origin in self.paused:
            raise OriginPaused

    def is_slow(self, origin: str) -> bool:
        """Whether requests wait in line before they open a connection."""
        share = self._shares.get(origin)
        return share is not None and share.gap >= SLOW_GAP_SECONDS

    def line(self, origin: str) -> asyncio.Lock:
        """Where they wait."""
        return self._lines[origin]

    async def take(self, origin: str, hold_seconds: float, is_mine: Callable[[], bool]) -> None:
        """Returns when a request may go out, at once. OriginPaused, or TurnLost, when it may not."""
        share = self._shares.get(origin)
        if share is not None and not share.paced and not share.paused:
            return
        async with self._locks[origin]:
            while True:
                self._may_wait(origin, is_mine)
                if await self._start(origin):
                    return
                await self._ask(origin, hold_seconds)

    async def heed(self, origin: str, answer: Response | FetchFailure, policy: RetryPolicy) -> None:
        """A 429, or silence again and again, is no news of one page: nobody asks on while its result is on its way."""
        if isinstance(answer, Response):
            self._silent[origin] = 0
            if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                return
            said = retry.retry_after(answer.headers.get("retry-after"), answer.headers.get("date"), datetime.now(UTC))
            self.paused.add(origin)
            with suppress(StoreUnreachable):
                await self._apart(self._pause, origin, said, policy)
        elif answer.failure_class in (FailureClass.TRANSPORT, FailureClass.TIMEOUT) and answer.status is None:
            self._silent[origin] += 1
            if self._silent[origin] >= SILENT:
                # Until the next look at the store, which counts what all workers met.
                self.paused.add(origin)

    async def answered(self, origin: str) -> None:
        """Where the gap is held through the response, it begins now."""
        if held_until := self._held.pop(origin, None):
            with suppress(StoreUnreachable):
                await self._apart(self._end_turn, origin, held_until)

    async def _start(self, origin: str) -> bool:
        """Whether one of the starts that are mine was used."""
        block = self._blocks.get(origin)
        if block is None or not block.left:
            return False
        start = max(now(), block.last + block.gap)
        late = start - block.until
        # A first start may be a little late, and the next turn is moved for it; a machine that stood still asks again.
        if late > 0 and not (block.fresh and late < block.gap / 2):
            block.left = 0
            return False
        if (wait := start - now()) > 0:
            await asyncio.sleep(wait)
        block.last = now()
        block.fresh = False
        block.left -= 1
        # Looked at when the request is out: a busy machine may stand still between this line and that.
        asyncio.get_running_loop().call_soon(self._sent, origin, block)
        return True

    def _sent(self, origin: str, block: _Block) -> None:
        """The request is out; if that was too late for its turn, the next one is moved."""
        if block.gap and now() > block.until:
            block.left = 0
            self._push_soon(origin)

    async def _ask(self, origin: str, hold_seconds: float) -> None:
        """A turn is mine, or the time that it is somebody else's has passed, or the store was not there."""
        asked = now()
        try:
            turn = await self._apart(self._take, origin, hold_seconds)
        except StoreUnreachable:
            await asyncio.sleep(STORE_SECONDS)
            return
        if turn.paused:
            self.paused.add(origin)
        elif turn.starts:
            slack = turn.gap * turn.starts * 0.02 + 0.002
            until = asked + turn.gap * (turn.starts - 1) + slack
            if turn.held_until is not None:
                self._held[origin] = turn.held_until
                until = asked + hold_seconds / 2
            elif not turn.gap:
                until = asked + ASK_AGAIN_SECONDS
            self._blocks[origin] = _Block(turn.starts, turn.gap, until, last=asked - turn.gap)
        else:
            early = turn.wait_seconds - origins.EARLY_SECONDS / 2
            await asyncio.sleep(min(ASK_AGAIN_SECONDS, max(0.001, early)))

    def _push_soon(self, origin: str) -> None:
        task = asyncio.create_task(self._push(origin))
        self._pushing.add(task)
        task.add_done_callback(self._pushing.discard)

    async def _push(self, origin: str) -> None:
        with suppress(StoreUnreachable):
            await self._apart(self._push_turn, origin)

    async def _apart(self, act: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(act, *arguments))

    def _pause(self, origin: str, said: float | None, policy: RetryPolicy) -> None:
        with postgres.transaction(self._pool) as tx:
            origins.pause(
                tx,
                origin,
                said or policy.base_seconds / 2,
                "it answered 429",
                doubles=said is None,
                cap_seconds=retry.RETRY_AFTER_CAP_SECONDS,
            )

    def _share(self, uses: Mapping[str, tuple[int, int]]) -> dict[str, Share]:
        with postgres.transaction(self._pool) as tx:
            return origins.share(tx, self._worker_id, uses, seconds=self._granted, patience_seconds=self._patience)

    def _declare(self, origin: str, budget: Budget) -> None:
        with postgres.transaction(self._pool) as tx:
            origins.declare(tx, [origin], budget)

    def _leave(self) -> None:
        with postgres.transaction(self._pool) as tx:
            origins.leave(tx, self._worker_id)

    def _take(self, origin: str, hold_seconds: float) -> origins.Turn:
        with postgres.transaction(self._pool) as tx:
            return origins.take_turn(tx, origin, hold_seconds)

    def _push_turn(self, origin: str) -> None:
        with postgres.transaction(self._pool) as tx:
            origins.push_turn(tx, origin)

    def _end_turn(self, origin: str, held_until: datetime) -> None:
        with postgres.transaction(self._pool) as tx:
            origins.end_turn(tx, origin, held_until)


class PageGate:
    """Leave to ask for one page: its turns, and what the robots.txt of each origin on the way says."""

    def __init__(
        self,
        turns: Turns,
        *,
        hold_seconds: float,
        budget: Callable[[str], Budget],
        is_mine: Callable[[], bool],
        rules: Callable[[str], Awaitable[RobotsRules | FetchFailure | None]] | None,
        led_to: set[str],
    ) -> None:
        self._turns = turns
        self._budget = budget
        self._hold_seconds = hold_seconds
        self._is_mine = is_mine
        self._rules = rules
        self._led_to = led_to
        """Origins that only redirects of this retailer led to."""
        self._lined: asyncio.Lock | None = None

    async def line_up(self, origin: str) -> None:
        """At a slow origin one page after the other opens its connection."""
        if self._turns.is_slow(origin):
            await self._turns.line(origin).acquire()
            self._lined = self._turns.line(origin)

    def step_out(self) -> None:
        """The next in line may open its connection."""
        if self._lined is not None:
            self._lined.release()
            self._lined = None

    async def objection(self, url: str) -> str | None:
        """What keeps a redirect there from being followed."""
        origin = origin_of(url)
        if self._turns.is_unknown(origin) and origin not in self._led_to:
            if len(self._led_to) >= MAX_ORIGINS:
                return f"redirects of this retailer led to {MAX_ORIGINS} origins before it, and no further one is asked"
            self._led_to.add(origin)
        return await self.forbidden(url)

    async def forbidden(self, url: str) -> str | None:
        """What robots.txt says against it, or what keeps it from being read."""
        rules = None if self._rules is None else await self._rules(origin_of(url))
        if isinstance(rules, FetchFailure):
            return rules.reason
        return "robots.txt disallows it" if rules is not None and not rules.allows(url) else None

    async def take(self, origin: str) -> None:
        """The page's next request may go out."""
        # A redirect may lead to another host of the site, which has a budget like any other.
        await self._turns.get_to_know(origin, self._budget(origin), self._is_mine)
        await self._turns.take(origin, self._hold_seconds, self._is_mine)
        self.step_out()

    async def answered(self, origin: str) -> None:
        """That request has its answer."""
        await self._turns.answered(origin)


class BrowserGates:
    """Leave for each request of one page in a browser: a slot and a turn of its own origin, asked for one by one."""

    def __init__(
        self,
        turns: Turns,
        gate: Callable[[bool], PageGate],
        *,
        budget: Callable[[str], Budget],
        concurrency: int,
        policy: RetryPolicy,
        is_mine: Callable[[], bool],
        asked: set[str],
    ) -> None:
        self._turns = turns
        self._gate = gate
        self._budget = budget
        self._concurrency = concurrency
        self._policy = policy
        self._is_mine = is_mine
        self._asked = asked
        """All origins that this retailer's pages have asked."""

    @asynccontextmanager
    async def stand(self, origin: str, *, page: bool) -> AsyncIterator[PageGate]:
        """The gate of one request, when it may open its connection. OriginPaused, or TurnLost, when it may not.

        Only a page is held against robots.txt, not what it needs.
        """
        if len(self._asked) < MAX_NEEDED:
            self._asked.add(origin)
        await self._turns.get_to_know(origin, self._budget(origin), self._is_mine, self._concurrency)
        gate = self._gate(page)
        async with self._turns.slot(origin, self._is_mine):
            try:
                await gate.line_up(origin)
                yield gate
            finally:
                gate.step_out()

    async def objection(self, url: str) -> str | None:
        """What keeps the page from moving there."""
        return await self._gate(True).objection(url)

    async def heed(self, origin: str, answer: Response) -> None:
        """A 429 to what a page needs is the origin's word like any other."""
        await self._turns.heed(origin, answer, self._policy)
