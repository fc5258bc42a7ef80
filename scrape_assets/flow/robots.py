"""robots.txt: read once for each origin of a run, before anything else is asked of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus

from scrape_assets.datasets import declaration
from scrape_assets.errors import StoreUnreachable
from scrape_assets.flow.assignment import Assignment
from scrape_assets.rules import retry
from scrape_assets.rules import robots as rules
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.robots import Read, RobotsRules
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources.http import Gate, HttpSource
from scrape_assets.store import origins, postgres
from scrape_assets.store.postgres import Pool

CAP_SECONDS = 3600.0
"""The longest pause before a robots.txt that could not be read is asked for again."""


class Robots:
    """The rules of the origins that a worker asks, by run."""

    def __init__(self, pool: Pool, source: HttpSource) -> None:
        self._pool = pool
        self._source = source
        self._known: dict[tuple[str, str], RobotsRules] = {}
        self._unkept: dict[tuple[str, str], tuple[int | None, Read]] = {}
        """Read, and not in the store yet, which did not answer."""
        self._unread: dict[tuple[str, str], Response | FetchFailure] = {}

    def known(self, run_id: str, origin: str) -> RobotsRules | None:
        """What was read of it, if it was."""
        return self._known.get((run_id, origin))

    async def read(self, assignment: Assignment, origin: str, gate: Gate) -> bool | FetchFailure:
        """Whether the origin's rules are known now; if not, somebody else asks for them, or they cannot be read.

        After a failure comes `rest`. StoreUnreachable: the next call goes on.
        """
        run_id = assignment.run.run_id
        if assignment.retailer.fetch.robots == "ignore" or (run_id, origin) in self._known:
            return True
        kept = await asyncio.to_thread(self._find, run_id, origin)
        if kept is None or not kept.of_this_run:
            if (run_id, origin) not in self._unkept:
                if not await asyncio.to_thread(self._is_mine_to_ask, assignment, origin):
                    return False
                try:
                    answer = await self._fetch(assignment, origin, gate)
                except BaseException:
                    await asyncio.to_thread(self._forget, run_id, origin)
                    raise
                said = _said(answer)
                if said is None and kept is not None:
                    said = Read(kept.body, f"it cannot be read ({_why(answer)}); the copy of an earlier run holds")
                if said is None:
                    self._unread[run_id, origin] = answer
                    return _failure(answer)
                self._unkept[run_id, origin] = answer.status, said
            kept = await asyncio.to_thread(self._keep, run_id, origin, *self._unkept[run_id, origin])
        found = RobotsRules(kept.body)
        await asyncio.to_thread(self._delay, origin, found.delay_seconds)
        self._known[run_id, origin] = found
        self._unkept.pop((run_id, origin), None)
        return True

    async def rest(self, assignment: Assignment, origin: str) -> None:
        """The origin is paused before its rules are asked for again."""
        answer = self._unread.pop((assignment.run.run_id, origin))
        with suppress(StoreUnreachable):
            await asyncio.to_thread(self._wait, assignment, origin, answer)

    async def _fetch(self, assignment: Assignment, origin: str, gate: Gate) -> Response | FetchFailure:
        fetch = assignment.retailer.fetch
        return await self._source.fetch(
            f"{origin}/robots.txt",
            site=assignment.retailer.site,
            headers=declaration.request_headers(assignment.dataset, assignment.retailer),
            timeout_seconds=fetch.timeout_seconds,
            max_body_bytes=4 * rules.MAX_BYTES,
            allow_private=fetch.allow_private,
            gate=gate,
        )

    def _is_mine_to_ask(self, assignment: Assignment, origin: str) -> bool:
        with postgres.transaction(self._pool) as tx:
            # As long as a page's lease: who died over it holds nobody up for longer, and asked twice does no harm.
            return origins.ask_robots(tx, assignment.run.run_id, origin, assignment.dataset.lease.lease_seconds)

    def _forget(self, run_id: str, origin: str) -> None:
        with suppress(StoreUnreachable), postgres.transaction(self._pool) as tx:
            origins.forget_robots(tx, run_id, origin)

    def _find(self, run_id: str, origin: str) -> origins.RobotsFile | None:
        with postgres.transaction(self._pool) as tx:
            return origins.robots(tx, run_id, origin)

    def _keep(self, run_id: str, origin: str, status: int | None, said: Read) -> origins.RobotsFile:
        with postgres.transaction(self._pool) as tx:
            origins.keep_robots(tx, run_id, origin, status, said.text, said.note)
            kept = origins.robots(tx, run_id, origin)
        assert kept is not None
        return kept

    def _delay(self, origin: str, seconds: float) -> None:
        with postgres.transaction(self._pool) as tx:
            origins.set_robots_delay(tx, origin, seconds)

    def _wait(self, assignment: Assignment, origin: str, answer: Response | FetchFailure) -> None:
        asked = None
        if isinstance(answer, Response):
            asked = retry.retry_after(answer.headers.get("retry-after"), answer.headers.get("date"), datetime.now(UTC))
        with postgres.transaction(self._pool) as tx:
            origins.forget_robots(tx, assignment.run.run_id, origin)
            origins.pause(
                tx,
                origin,
                asked or assignment.dataset.retry.base_seconds,
                _failure(answer).reason,
                doubles=asked is None,
                cap_seconds=max(CAP_SECONDS, asked or 0.0),
            )


def _said(answer: Response | FetchFailure) -> Read | None:
    if isinstance(answer, Response):
        return rules.read(answer.status, answer.body)
    if answer.failure_class is FailureClass.REDIRECTED:
        return Read("", f"{answer.reason}: no rules")
    return None


def _failure(answer: Response | FetchFailure) -> FetchFailure:
    """What a page that waits for it meets."""
    reason = f"its robots.txt cannot be read ({_why(answer)}), and nothing is asked for before it is"
    if isinstance(answer, FetchFailure):
        return FetchFailure(answer.failure_class, reason)
    limited = answer.status == HTTPStatus.TOO_MANY_REQUESTS
    return FetchFailure(FailureClass.RATE_LIMITED if limited else FailureClass.HTTP_5XX, reason)


def _why(answer: Response | FetchFailure) -> str:
    return f"status {answer.status}" if isinstance(answer, Response) else answer.reason[:200]
