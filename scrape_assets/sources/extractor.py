"""Extraction in child processes: no page can starve the event loop, take the worker with it, or its memory.

Each child has one page in work and a few more on their way, so that it is never idle for want of the parent. When a
child dies, the page it worked on is charged with it and the others go to another child. A page that takes long holds
nobody up: another child stands in, and those behind it are read there.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import orjson

from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.rules.page import Response
from scrape_assets.rules.states import FailureClass, PageState
from scrape_assets.sources.frames import LENGTHS, frame

PAGES_PER_CHILD = 8
SLOW_SECONDS = 3.0
"""From then on others do not wait behind a page; nearly all are read in a hundredth of it."""

MAX_FAILED_STARTS = 3
START_SECONDS = 120.0
"""A child that is not ready by then is replaced; a busy machine takes its time."""

_PACKAGE_ROOT = Path(__file__).parents[2]
# Secrets of ours (the database's address) are no business of a process that reads hostile pages.
_PRIVATE_ENVIRONMENT = "SCRAPE_ASSETS_"


class ExtractorUnavailable(ScrapeAssetsError):
    """Extraction processes do not start; no page can be read."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a child needs to know of one retailer in one window; sent once per child and remembered by `key`."""

    key: str
    rule_json: str
    pages_folder: str | None
    page_object: str | None
    dataset_id: str
    retailer: str
    collection_window: str
    page_sources: Mapping[str, str]
    """The frozen texts of pages.py and what it imports: they are what runs, whatever the folder holds by then."""
    discover_json: str | None = None
    """How pages that name others are read; None where none does."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a page says: `rows` is a JSON array ready for the database, good when `failure_class` is None."""

    page_state: PageState | None
    failure_class: FailureClass | None
    reason: str
    rows: str = "[]"
    row_count: int = 0
    collisions: int = 0
    peak_memory_mb: float = 0.0
    seconds: float = 0.0
    discovered: str | None = None
    """What the page names, as a JSON object, where it is one that names others."""
    template: str | None = None
    """What the page is laid out like, where it gives rows or should."""

    def observations(self) -> list[dict[str, Any]]:
        """The rows as objects, for those who do not hand them to the database."""
        found: list[dict[str, Any]] = orjson.loads(self.rows)
        return found


@dataclass(slots=True, eq=False)
class _Page:
    header: dict[str, Any]
    body: bytes
    setup: Setup
    answer: asyncio.Future[Judgement]


@dataclass(slots=True, eq=False)
class _Child(asyncio.Protocol):
    """One extraction process, seen from the parent."""

    process: subprocess.Popen[bytes]
    parent_peak_mb: float
    now: Callable[[], float]
    on_ready: Callable[[], None]
    on_answer: Callable[[], None]
    on_lost: Callable[[_Child], None]
    since: float
    """When the child was started, then when the page at its head became the head."""
    transport: asyncio.WriteTransport | None = None
    pages: deque[_Page] = field(default_factory=deque)
    known: set[str] = field(default_factory=set)
    buffer: bytearray = field(default_factory=bytearray)
    ready: bool = False
    leaving: bool = False
    hung: bool = False
    slow: bool = False
    """The page at its head takes long; those behind it were given to others as well."""
    surplus: bool = False
    """One that stood in and is needed no more: it ends with the pages that it has."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= LENGTHS.size:
            header_length, body_length = LENGTHS.unpack_from(self.buffer)
            start, end = LENGTHS.size + header_length, LENGTHS.size + header_length + body_length
            if len(self.buffer) < end:
                return
            header, body = bytes(self.buffer[LENGTHS.size : start]), bytes(self.buffer[start:end])
            del self.buffer[:end]
            self._answered(orjson.loads(header), body)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 # the process's end says more
        self.on_lost(self)

    @property
    def free(self) -> bool:
        """Whether it may be given another page."""
        resting = self.leaving or self.slow or self.surplus
        return self.ready and not resting and len(self.pages) < PAGES_PER_CHILD

    def send(self, page: _Page) -> None:
        """The page is on its way to the child, which must be ready."""
        if self.transport is None:
            raise RuntimeError("a page was given to an extraction process that is not connected")
        if page.setup.key not in self.known:
            self.known.add(page.setup.key)
            setup = page.setup
            described = {name: getattr(setup, name) for name in Setup.__slots__}
            self.transport.write(frame({"setup": described, "key": setup.key}, b""))
        if not self.pages:
            self.since = self.now()
        self.pages.append(page)
        self.transport.write(frame(page.header, page.body))

    def _answered(self, header: dict[str, Any], rows: bytes) -> None:
        if "ready" in header:
            self.ready = True
            self.on_ready()
            return
        if not self.pages:
            return  # what it still said of pages that others read meanwhile
        page = self.pages.popleft()
        self.since = self.now()
        self.leaving = header["leaving"]
        if not page.answer.done():
            state, failure = header["page_state"], header["failure_class"]
            page.answer.set_result(
                Judgement(
                    PageState(state) if state is not None else None,
                    FailureClass(failure) if failure is not None else None,
                    header["reason"],
                    "[]" if "discovered" in header else rows.decode() or "[]",
                    header["count"],
                    header["collisions"],
                    header["peak"],
                    header["seconds"],
                    rows.decode() if "discovered" in header else None,
                    header.get("template"),
                )
            )
        if self.slow and self.pages:
            # Others read what it was given behind that page: it would only read it once more.
            self.pages.clear()
            self.leaving = True
            os.kill(self.process.pid, signal.SIGKILL)
        self.slow = False
        self.on_answer()


class ExtractorPool:
    """A number of child processes that judge pages, alive inside `async with`.

    A page may take `timeout_seconds` and make its child grow by `memory_bytes`; what takes more is stopped
    and answered as a crash of that page alone.
    """

    def __init__(self, processes: int, *, memory_bytes: int = 512 * 1024 * 1024, timeout_seconds: float = 30.0) -> None:
        self._processes = processes
        self._memory_bytes = memory_bytes
        self._timeout_seconds = timeout_seconds
        self._children: list[_Child] = []
        self._waiting: deque[_Page] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed_starts = 0
        self._broken: ExtractorUnavailable | None = None
        self._closing = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        for _ in range(self._processes):
            await self._spawn()
        self._run(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        for page in [*self._waiting, *(page for child in self._children for page in child.pages)]:
            page.answer.cancel()
        self._waiting.clear()
        # They hold nothing durable: ending them at once is as good as asking.
        for child in self._children:
            if child.transport is not None:
                child.transport.abort()
            child.process.kill()
            await asyncio.to_thread(child.process.wait)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def process_ids(self) -> list[int]:
        """The children now alive."""
        return [child.process.pid for child in self._children]

    async def judge(
        self,
        response: Response,
        setup: Setup,
        *,
        canonical_url: str,
        context: str = "",
        entity: str | None = None,
        page_type: str = "product",
        depth: int | None = None,
        of_pages: int = 0,
    ) -> Judgement:
        """What the page says, from the next free child; with a `depth`, what it names instead."""
        more = {"canonical_url": canonical_url, "context": context, "entity": entity, "page_type": page_type}
        return await self._ask(
            response, setup, {**more, "discovers": depth is not None, "depth": depth, "of_pages": of_pages}
        )

    async def call(self, response: Response, setup: Setup, function: str, values: Mapping[str, str]) -> Judgement:
        """What the page function of the user's `pages.py` gives for this page: a list of mappings, as rows."""
        code = replace(setup, key=f"{setup.key}/{function}", page_object=function)
        return await self._ask(response, code, {"values": dict(values)})

    async def _ask(self, response: Response, setup: Setup, more: Mapping[str, Any]) -> Judgement:
        if self._broken is not None:
            raise self._broken
        header = {
            "key": setup.key,
            "url": response.url,
            "final_url": response.final_url,
            "status": response.status,
            "headers": response.headers,
            "redirects": response.redirects,
            **more,
        }
        page = _Page(header, response.body, setup, self._loop.create_future())
        self._waiting.append(page)
        self._feed()
        return await page.answer

    def _feed(self) -> None:
        while self._waiting:
            free = [child for child in self._children if child.free]
            if not free:
                return
            page = self._waiting.popleft()
            if not page.answer.done():
                min(free, key=lambda child: len(child.pages)).send(page)

    def _started(self) -> None:
        self._failed_starts = 0
        self._feed()

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-u", "-m", "scrape_assets.sources.extractor_child"]
            process = subprocess.Popen(  # noqa: ASYNC220 # a few milliseconds; asyncio's own kind hides how it ended
                [*command, str(theirs.fileno()), str(os.getpid()), str(self._memory_bytes)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                # What a page object prints must not end up in a command's output.
                stdout=2,
                env=_environment(),
            )
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        child = _Child(process, peak_mb, self._now, self._started, self._feed, self._lost, since=self._now())
        self._children.append(child)
        await self._loop.create_unix_connection(lambda: child, sock=ours)

    def _lost(self, child: _Child) -> None:
        if self._closing:
            return
        self._children.remove(child)
        charged = child.pages.popleft() if child.pages and child.ready and not child.leaving else None
        if not child.slow:
            self._waiting.extendleft(reversed(child.pages))
        if not child.ready:
            self._failed_starts += 1
        self._run(self._replace(child, charged))

    async def _replace(self, child: _Child, charged: _Page | None) -> None:
        """The dead child is buried, its page answered, and another child takes its place."""
        # A child that only closed its socket is of no use either; one that already died keeps its status.
        os.kill(child.process.pid, signal.SIGKILL)
        _, status, usage = await asyncio.to_thread(os.wait4, child.process.pid, 0)
        code = child.process.returncode = os.waitstatus_to_exitcode(status)
        if charged is not None and not charged.answer.done():
            peak_mb = usage.ru_maxrss / 1024
            # A process inherits its parent's peak when it starts; below that the kernel's figure says little.
            peak = f"{peak_mb:.0f} MB" if peak_mb > child.parent_peak_mb else f"under {child.parent_peak_mb:.0f} MB"
            what = f"hung for {self._timeout_seconds:g} s and was stopped" if child.hung else _end(code)
            reason = f"the extraction process {what} while it read this page; peak memory {peak}"
            charged.answer.set_result(
                Judgement(
                    None,
                    FailureClass.EXTRACTOR_CRASHED,
                    reason,
                    peak_memory_mb=peak_mb,
                    seconds=self._now() - child.since,
                )
            )
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._give_up(f"the last one {_end(code)} before it was ready; its own message is on stderr")
        elif not self._closing and self._wanted() > 0:
            try:
                await self._spawn()
            except OSError as error:
                self._give_up(f"{type(error).__name__}: {error}")

    def _wanted(self) -> int:
        """How many children are missing, or with a minus, are more than needed; a slow one is as good as none."""
        return self._processes - sum(1 for child in self._children if not (child.slow or child.surplus))

    def _give_up(self, reason: str) -> None:
        """No further page will be read; whoever waits for one, or asks later, is told why."""
        self._broken = ExtractorUnavailable(f"extraction processes do not start: {reason}")
        for page in self._waiting:
            if not page.answer.done():
                page.answer.set_exception(self._broken)
        self._waiting.clear()

    async def _watch(self) -> None:
        """Ends children that hang, in their page or in their start, and has others stand in before that."""
        while True:
            await asyncio.sleep(min(self._timeout_seconds / 4, SLOW_SECONDS / 3))
            for child in self._children:
                allowed = self._timeout_seconds if child.ready else START_SECONDS
                busy = bool(child.pages) or not child.ready
                if busy and self._now() - child.since > allowed:
                    child.hung = True
                    os.kill(child.process.pid, signal.SIGKILL)
                elif child.pages and child.ready and not child.slow and self._now() - child.since > SLOW_SECONDS:
                    self._go_round(child)
                elif child.surplus and not child.pages:
                    os.kill(child.process.pid, signal.SIGKILL)
            await self._keep_number()

    def _go_round(self, child: _Child) -> None:
        """The pages behind a slow one are read elsewhere; the child's own answers to them come too late, if ever."""
        child.slow = True
        self._waiting.extendleft(page for page in reversed(child.pages) if page is not child.pages[0])
        self._feed()

    async def _keep_number(self) -> None:
        """A child stands in for each slow one that holds pages up, and one that is needed no more gets none."""
        wanted = self._wanted()
        if wanted > 0 and self._waiting and not self._closing and len(self._children) < 2 * self._processes:
            with suppress(OSError):  # there is no room for another one: those that wait, wait
                await self._spawn()
        elif wanted < 0 and (ready := [one for one in self._children if one.ready and not (one.slow or one.surplus)]):
            min(ready, key=lambda one: len(one.pages)).surplus = True

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE_ENVIRONMENT)}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), kept.get("PYTHONPATH")]))
    return kept
