"""Sessions: the cookies of each context of each retailer, set up once and again when a page no longer proves them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import ValidationError

from scrape_assets.datasets.contexts import Context
from scrape_assets.datasets.declaration import Retailer
from scrape_assets.flow.assignment import Assignment
from scrape_assets.rules import urls
from scrape_assets.rules.context import SetupRule, request_of, setup_failed
from scrape_assets.rules.page import FetchFailure, Request, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources.extractor import ExtractorPool, Judgement, Setup
from scrape_assets.sources.http import Jar
from scrape_assets.store.lease import Claim, Known

Answer = Response | FetchFailure


class Ask(Protocol):
    """One request of a worker."""

    async def __call__(
        self, assignment: Assignment, request: Request, jar: Jar | None, claim: Claim | None, *, more: bool
    ) -> Answer:
        """The answer, asked in its origin's turn; raises NotNow when it may not be. `more`: no claim counted it."""


class Unready(Exception):
    """A context could not be set up: what the site answered, and what follows for the page that needed it."""

    def __init__(self, origin: str, answer: Answer, judged: Judgement | None) -> None:
        super().__init__(answer.reason if isinstance(answer, FetchFailure) else "")
        self.origin, self.answer, self.judged = origin, answer, judged


@dataclass(slots=True)
class _Session:
    jar: Jar | None = None
    under_way: asyncio.Task[Jar] | None = None
    again: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Pages whose proof failed are asked for once more one after the other: a session that ended fails them all."""


class Sessions:
    """What one worker keeps of them; nothing of it is durable, and no cookie goes to another context or retailer."""

    def __init__(self, extractors: ExtractorPool, ask: Ask) -> None:
        self._extractors = extractors
        self._ask = ask
        self._sessions: dict[tuple[str, str, str, str], _Session] = {}

    async def page(self, assignment: Assignment, claim: Claim, known: Known | None = None) -> tuple[Answer, Jar | None]:
        """The page in its context, which is set up first where that is needed; and the cookies it was asked with.

        A page that is `known` may be answered with 304. Unready when the set-up fails.
        """
        jar = None
        if claim.context in assignment.retailer.contexts:
            session = self._session(assignment, claim.context)
            jar = await self._renewed(assignment, claim.context, session, stale=None)
        # The text that was planned and keyed: another parser might read another host in the original.
        request = Request(
            claim.canonical_url,
            etag=known.etag if known else None,
            last_modified=known.last_modified if known else None,
        )
        return await self._ask(assignment, request, jar, claim, more=False), jar

    async def page_again(self, assignment: Assignment, claim: Claim, stale: Jar) -> Answer:
        """The page with new cookies, since it did not prove its context with those."""
        session = self._session(assignment, claim.context)
        async with session.again:
            jar = await self._renewed(assignment, claim.context, session, stale)
            return await self._ask(assignment, Request(claim.canonical_url), jar, claim, more=True)

    async def close(self) -> None:
        """Nothing is under way any more."""
        tasks = [one.under_way for one in self._sessions.values() if one.under_way is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renewed(self, assignment: Assignment, name: str, session: _Session, stale: Jar | None) -> Jar:
        """The context is set up, by this call or another that is under way; anew if its cookies are the stale ones."""
        if session.jar is not None and session.jar is not stale:
            return session.jar
        if session.under_way is None:
            session.under_way = asyncio.create_task(self._set_up(assignment, name, session))
            # Everybody who waits for it may be gone when it fails.
            session.under_way.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Whoever began it may lose its lease; the others still wait for it.
        return await asyncio.shield(session.under_way)

    async def _set_up(self, assignment: Assignment, name: str, session: _Session) -> Jar:
        async def ask(request: Request, jar: Jar) -> Answer:
            return await self._ask(assignment, request, jar, None, more=True)

        session.jar = None
        try:
            session.jar = await set_up(name, assignment.retailer, ask, self._extractors, assignment.setup)
            return session.jar
        finally:
            session.under_way = None

    def _session(self, assignment: Assignment, context: str) -> _Session:
        key = (assignment.dataset.dataset, assignment.retailer.name, assignment.frozen.manifest_hash, context)
        return self._sessions.setdefault(key, _Session())


async def set_up(
    name: str,
    retailer: Retailer,
    ask: Callable[[Request, Jar], Awaitable[Answer]],
    extractors: ExtractorPool,
    setup: Setup,
) -> Jar:
    """Fresh cookies with which the site was asked to be in this context; whether it obeys, each page must prove.

    Unready when one of its requests fails.
    """
    context = retailer.contexts[name]
    jar = Jar()
    first = context.request(retailer.site)
    waiting = [] if first is None else [first]
    function = context.page_function
    while waiting:
        request = waiting.pop(0)
        answer = await ask(request, jar)
        origin = urls.origin(request.url)
        if isinstance(answer, FetchFailure):
            reason = f"setting up context {name}: {answer.reason}"
            failed = FetchFailure(answer.failure_class, reason, answer.status, answer.final_url, answer.redirects)
            raise Unready(origin, failed, None)
        problem: tuple[FailureClass, str] | None = None
        if failure := setup_failed(answer.status):
            problem = (failure, f"status {answer.status}")
        elif function is not None:
            waiting, problem = await _asked_by(function, context, origin, answer, extractors, setup)
            function = None
        if problem is not None:
            said = f"setting up context {name}: {problem[1]}"
            raise Unready(origin, answer, Judgement(None, problem[0], said))
    return jar


async def _asked_by(
    function: str, context: Context, origin: str, answer: Response, extractors: ExtractorPool, setup: Setup
) -> tuple[list[Request], tuple[FailureClass, str] | None]:
    """The requests to this origin that the user's code asks for, now that it has seen the page; or why none."""
    judged = await extractors.call(answer, setup, function, context.values)
    if judged.failure_class is not None:
        crashed = judged.failure_class is FailureClass.EXTRACTOR_CRASHED
        return [], (judged.failure_class if crashed else FailureClass.WRONG_CONTEXT, judged.reason)
    try:
        rules = [SetupRule.model_validate(one) for one in judged.observations()]
        return [request_of(rule, base=answer.final_url, site=origin) for rule in rules], None
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except ValueError as error:
        said = str(error)
    return [], (FailureClass.WRONG_CONTEXT, f"{function} gave no request: {said}")
