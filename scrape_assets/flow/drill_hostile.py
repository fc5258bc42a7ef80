"""The suite `hostile`: a site that means harm, and what it costs the worker, its neighbours and the own network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil

from scrape_assets.demo import hostile, internal, scripted
from scrape_assets.flow import drilled
from scrape_assets.flow.drill_cases import Case, Stage, stage
from scrape_assets.flow.drill_ground import Scratch, end_of, start
from scrape_assets.store import drill as store
from scrape_assets.store import postgres

MEMORY_MB = 300.0
"""What the worker and its extraction processes may take together."""

CALM_PAGES = 480
CALM_RATE = 8
"""Pages a second of an ordinary site that the same worker collects meanwhile."""

PACE = 0.75
"""The share of that rate at which they must be committed; a busy machine alone takes some of it."""

WAIT_SECONDS = 15.0
"""How long one of them may take: some seconds behind a page that hangs, until others go round it."""

Ends = Mapping[tuple[str, str], Any]
"""How each page ended, by retailer and path."""


def run(
    scratch: Scratch, say: Callable[[str], None], *, calm_pages: int = CALM_PAGES, hangs: bool = True
) -> dict[str, Any]:
    """What every hostile page ended as, while one worker collected them beside an ordinary site.

    Without `hangs` there is no page that hangs its reader: it alone takes a minute.
    """
    with internal.listening() as service, scripted.running() as calm:
        say(f"{len(hostile.traps())} hostile pages and {calm_pages} ordinary ones for one worker")
        fetch = f"{{rate: none, timeout: {hostile.TIMEOUT_SECONDS:g}s, allow_private: true}}"
        pages = [hostile.path(name) for name in hostile.traps()]
        answer = hostile.site(service.port)
        with stage(scratch, "hostile", fetch=fetch, pages=pages, answer=answer, attempts=hostile.ATTEMPTS) as it:
            if hangs:
                _declare(it, "hangs", it.site.url, [hostile.HANGS], fetch, hostile.HANGS_DECLARED)
            _declare(it, "lists", it.site.url, [], fetch, urls=f"{{links: {hostile.LISTS}, item: a.item, follow: b a}}")
            # Nobody allowed it to be private, and its name leads to this machine.
            _declare(it, "named", f"http://localhost:{service.port}", ["/"], "{robots: ignore}")
            _declare(
                it,
                "calm",
                calm.url,
                [f"/p/{number}" for number in range(calm_pages)],
                f"{{rate: {CALM_RATE}/s, allow_private: true}}",
            )
            counts = service.counts()
            # Not forked: what it shared with its parent would count as its own.
            worker = start(drilled.collect, it.job, anew=True)
            with _watched(worker.pid or 0) as memory:
                end_of(worker)
            ends = _ends(it)
        cases = [
            _ended(name, trap.expected, ends, "site", hostile.path(name)) for name, trap in hostile.traps().items()
        ]
        if hangs:
            cases.append(_ended("a page that hangs its reader", hostile.CRASHED, ends, "hangs", hostile.HANGS))
        cases += [
            _ended("a name that leads to this machine", hostile.NOT_ASKED, ends, "named", "/"),
            _links(ends),
            _calm([end for (retailer, _), end in ends.items() if retailer == "calm"], calm_pages),
            Case(
                "memory of the worker with its children",
                f"under {MEMORY_MB:g} MB",
                f"{memory.peak_mb:.0f} MB",
                0 < memory.peak_mb < MEMORY_MB,
            ),
            Case(
                "a service of this machine",
                "it counts, and nobody connects to it",
                f"{'counts' if counts else 'does NOT count'} on {', '.join(service.listeners)}; "
                f"{len(service.connections)} connections",
                counts and not service.connections,
            ),
        ]
    return {
        "cases": [case.record() for case in cases],
        "internal_connections": len(service.connections),
        "peak_memory_mb": round(memory.peak_mb, 1),
        "ok": all(case.ok for case in cases),
    }


def _declare(
    it: Stage, name: str, site: str, pages: Sequence[str], fetch: str, more: str = "", urls: str | None = None
) -> None:
    """One retailer more in the stage's dataset, at a site of its own or the stage's."""
    home = it.project / "datasets" / drilled.DATASET
    (home / f"{name}.csv").write_text("url\n" + "".join(f"{site}{page}\n" for page in pages))
    (home / "retailers" / f"{name}.yaml").write_text(
        f"site: {site}\nbasis: a site of our own, on this machine\nurls: {urls or f'{{file: {name}.csv}}'}\n"
        f"fetch: {fetch}\nkey: [sku]\n{more}"
    )


def _ends(it: Stage) -> Ends:
    with postgres.open_pool(it.scratch.url, size=1) as pool, postgres.transaction(pool) as tx:
        return {(end.retailer, "/" + end.url.split("/", 3)[3]): end for end in store.ends(tx, it.job.run_id)}


def _ended(name: str, expected: str, ends: Ends, retailer: str, path: str) -> Case:
    end = ends.get((retailer, path))
    if end is None:
        return Case(name, expected, "never tried", ok=False)
    read = f" {end.name!r}" if end.name is not None else ""
    got = f"{end.state}: {', '.join(end.attempts)}{read}"
    return Case(name, expected, got if got == expected else f"{got} ({end.reason})", got == expected)


def _links(ends: Ends) -> Case:
    known = {path: end.state for (retailer, path), end in ends.items() if retailer == "lists"}
    return Case(
        "a page of links to everywhere",
        "the one page of the site is collected, nothing else is even noted",
        ", ".join(f"{path} {state}" for path, state in sorted(known.items())),
        known == {hostile.LISTS: "committed", hostile.LISTED: "committed"},
    )


def _calm(pages: Sequence[Any], planned: int) -> Case:
    done = sorted(page.last_at for page in pages if page.state == "committed")
    seconds = (done[-1] - done[0]).total_seconds() if len(done) > 1 else 0.0
    share = (len(done) - 1) / CALM_RATE / seconds if seconds else 0.0
    slowest = max((page.last_at - page.first_at).total_seconds() for page in pages if page.last_at) if done else 0.0
    return Case(
        "an ordinary site beside it",
        f"all {planned} pages at {PACE:.0%} of their {CALM_RATE}/s at least, none in more than {WAIT_SECONDS:g} s",
        f"{len(done)} pages at {share:.0%}, the slowest in {slowest:.1f} s",
        len(done) == planned and share >= PACE and slowest <= WAIT_SECONDS,
    )


@dataclass
class Memory:
    """The most that a process and all below it took together, seen so far."""

    peak_mb: float = 0.0

    def look(self, process: psutil.Process) -> None:
        """Measures once more; what children share with others counts for each in its part, where the system tells."""
        total = process.memory_info().rss
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                taken = child.memory_full_info()
                total += getattr(taken, "pss", taken.rss)
        self.peak_mb = max(self.peak_mb, total / 2**20)


@contextmanager
def _watched(pid: int) -> Iterator[Memory]:
    """The memory of the process and its children is watched while the block lasts."""
    memory, over = Memory(), threading.Event()

    def watch() -> None:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            while not over.wait(0.1):
                memory.look(process)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield memory
    finally:
        over.set()
        watching.join()
