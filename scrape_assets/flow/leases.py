"""The leases that one worker holds: extended while it works; and those that nobody extended are reaped for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from scrape_assets import failpoints
from scrape_assets.errors import StoreUnreachable
from scrape_assets.flow import control
from scrape_assets.flow.assignment import Assignment
from scrape_assets.store import lease, postgres
from scrape_assets.store.lease import Lease
from scrape_assets.store.postgres import Pool

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds that pass also while the machine is suspended, as leases and prices do."""
    return time.clock_gettime(_CLOCK)


REAP_SECONDS = 1.0
"""How often a worker looks for expired leases."""

RETRY_SECONDS = 0.1
"""How soon a heartbeat that the store did not take is tried again."""


@dataclass(slots=True)
class Held:
    """A lease of mine: its partition, the work on it, who waits for room, and since when it surely runs."""

    assignment: Assignment
    task: asyncio.Task[None]
    room: asyncio.Event
    confirmed: float
    body_bytes: int = 0

    @property
    def granted_seconds(self) -> float:
        """How long a claim is granted for: its lease, or its deadline where that comes first."""
        return min(self.assignment.lease_seconds, self.assignment.dataset.lease.deadline_seconds)


class Leases:
    """What a worker holds."""

    def __init__(self, pool: Pool, worker_id: str) -> None:
        self._pool = pool
        self._worker_id = worker_id
        self._extending = asyncio.Lock()
        self._extended = 0.0
        self._held: dict[Lease, Held] = {}
        # Look-ups of names, claims and commits may fill the loop's shared threads; leases are extended all the same.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leases")
        self.body_bytes = 0
        """Of fetched pages that wait to be judged and stored."""

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        """Those that are held now; one may be let go meanwhile."""
        return iter(list(self._held.values()))

    def received(self, one: Lease, body_bytes: int) -> None:
        """The page of this lease is here, and takes room until the lease is let go."""
        if held := self._held.get(one):
            # The page may have come twice: once more with a new session.
            self.body_bytes += body_bytes - held.body_bytes
            held.body_bytes = body_bytes

    def hold(self, one: Lease, held: Held) -> None:
        """The lease is extended from now on."""
        self._held[one] = held

    def let_go(self, one: Lease) -> Held | None:
        """The lease is not mine any more, which may make room for another page: a full backlog waits for this."""
        held = self._held.pop(one, None)
        if held:
            self.body_bytes -= held.body_bytes
            held.room.set()
        return held

    def surely_mine(self, one: Lease) -> bool:
        """Whether the lease surely runs still; a process that was stopped meanwhile finds that it may not."""
        held = self._held.get(one)
        return held is not None and now() - held.confirmed < held.granted_seconds

    async def still_mine(self, one: Lease) -> bool:
        """Whether the lease is mine: as far as is known here, else as the store says when it is asked now."""
        if self.surely_mine(one):
            return True
        since = now()
        with suppress(StoreUnreachable):
            async with self._extending:
                if self._extended < since:
                    await self._extend()
            return one in self._held
        return False

    async def keep(self, lease_seconds: float) -> None:
        """Until cancelled: every third of a lease mine are extended, and expired ones that nobody holds are reaped."""
        every = lease_seconds / 3
        due = now() + every
        while True:
            with suppress(StoreUnreachable):
                if now() >= due:
                    async with self._extending:
                        await self._extend()
                    due = now() + every
                await self._apart(self._reap)
            await asyncio.sleep(max(RETRY_SECONDS, min(REAP_SECONDS, due - now())))

    async def _extend(self) -> None:
        """My leases run on; work on those that were lost is abandoned."""
        mine = dict(self._held)
        if not mine:
            return
        asked = now()
        seconds = min(held.granted_seconds for held in mine.values())
        kept = await self._apart(self._heartbeat, list(mine), seconds)
        self._extended = asked
        for one in mine:
            if one.attempt_id not in kept:
                # Whoever asks for its own lease is told, and needs not be cancelled.
                if (lost := self.let_go(one)) and lost.task is not asyncio.current_task():
                    lost.task.cancel()
            elif held := self._held.get(one):
                held.confirmed = max(held.confirmed, asked + seconds - held.granted_seconds)

    async def _apart(self, act: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act, *arguments)

    def close(self) -> None:
        """Nothing is extended or reaped any more; what was begun ends by itself."""
        self._thread.shutdown(wait=False)

    def _heartbeat(self, mine: Sequence[Lease], lease_seconds: float) -> set[UUID]:
        with postgres.transaction(self._pool) as tx:
            kept = lease.heartbeat(tx, mine, lease_seconds)
            failpoints.reach("K11", lambda: postgres.lose(tx))
            return kept

    def _reap(self) -> None:
        with postgres.transaction(self._pool) as tx:
            # Read here and not before: to get a connection may have taken longer than a lease.
            if lease.reap(tx, self._worker_id, list(self._held)):
                failpoints.reach("K12", lambda: postgres.lose(tx))
        control.step(self._pool)
