"""The ground of a drill: a scratch database, a site, processes that are hurt, and how what it cost is counted.

What was lost or doubled is computed from the site and from what was published, never from the run's own word.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from scrape_assets import failpoints
from scrape_assets.demo import plain
from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.flow import drilled, rehearse, verify
from scrape_assets.flow.drilled import Job
from scrape_assets.store import drill as store
from scrape_assets.store import embedded, postgres, publication
from scrape_assets.store.postgres import Pool

CONCURRENCY = 4

SLOW_SECONDS = 0.4

LEASE_SECONDS = 2.0

ALLOWED_SECONDS = {"terminated": 2.0}
"""How long a window may cost where that is not the lease of a dead worker and five seconds (promise of the docs)."""

PATIENCE_SECONDS = 600.0
"""A process that has not come to its end, or to its failpoint, by then is stuck."""

DECLARATION = """\
dataset: drill
window: {every: day, at: "00:00", timezone: UTC, start: 1990-01-01}
accept: {coverage: 1.0}
retry: {attempts: 100, base: 0.1s, cap: 0.5s}
lease: {for: LEASEs, task_deadline: 10m}
publish: {to: {api: {http: {url: "SITE/deliveries", timeout: 1s}}, lake: {files: {path: published, format: jsonl}}}}
"""

RETAILER = """\
site: SITE
basis: a site of our own, on this machine
urls: {file: site.csv}
fetch: {rate: none, concurrency: CONCURRENCY, timeout: 60s, allow_private: true, robots: ignore}
key: [sku]
"""

OTHERS = {
    "request_cut": "the connection is cut at COMMIT, before the server has it",
    "answer_cut": "the connection is cut at COMMIT, after the server has it",
    "postgres": "Postgres is killed",
    "stopped": "a worker is stopped for longer than its leases, and comes back",
    "terminated": "a worker is told to stop by SIGTERM",
    "disk_full": "there is no space for an artifact",
    "clock": "the worker's clock is two hours ahead, and it is killed",
}
"""What is drilled besides the failpoints."""


@dataclass(slots=True)
class Outcome:
    """What one window cost. Figures are over all its firings.

    `seconds_lost` is the longest time from a death until all that was in flight could be claimed again.
    """

    window: str
    what: str
    fired: int = 0
    lost: int = 0
    duplicated: int = 0
    refetched: int = 0
    in_flight: int = 0
    acknowledged_missing: int = 0
    seconds_lost: float = 0.0
    wrong: list[str] = field(default_factory=list)
    skipped: str = ""
    flights: dict[datetime, set[UUID]] = field(default_factory=dict)
    """What was in flight at each death, by the database's time of it."""

    @property
    def seconds_allowed(self) -> float:
        """What `seconds_lost` should not exceed; on a machine that stalls it may, and no row is wrong for that."""
        return ALLOWED_SECONDS.get(self.window, LEASE_SECONDS + 5)

    @property
    def ok(self) -> bool:
        """Nothing lost, nothing doubled, nothing fetched again that was not in flight, no promise broken."""
        return not (self.wrong or self.lost or self.duplicated or self.acknowledged_missing)

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        seconds = {"seconds_lost": round(self.seconds_lost, 2), "seconds_allowed": self.seconds_allowed}
        record = {**asdict(self), **seconds, "in_time": self.seconds_lost <= self.seconds_allowed, "ok": self.ok}
        del record["flights"]
        return record


@dataclass(frozen=True, slots=True)
class Ground:
    """Where it happens: a scratch database, a site, a project folder; `state` is set where Postgres may be killed."""

    url: str
    owner_url: str
    project: Path
    site: plain.Site
    state: Path | None
    today: date
    say: Callable[[str], None]

    def job(self, number: int, **more: Any) -> Job:
        """A process for the `number`-th window of the drill."""
        day = self.today - timedelta(days=number)
        fired, told = self.project / f"fired-{number}", self.project / f"acknowledged-{number}"
        return Job(more.pop("url", self.url), self.project, day.isoformat(), fired=fired, acknowledged=told, **more)


def windows() -> dict[str, str]:
    """Every window that can be drilled, and what happens in it."""
    return {**failpoints.WINDOWS, **OTHERS}


class Scratch(NamedTuple):
    """A database and a folder that are gone at the end; `state` is set where the server is the drill's own."""

    url: str
    owner_url: str
    folder: Path
    state: Path | None


@contextmanager
def scratch(database_url: str | None) -> Iterator[Scratch]:
    """A scratch database on the user's server, or on one of the drill's own where none is named."""
    name = f"drill_{datetime.now(UTC):%Y%m%d_%H%M%S}_{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="scrape-assets-drill-") as folder:
        root = Path(folder)
        root.chmod(0o755)  # another account may have to reach the server's data folder
        state = None if database_url else root / "state"
        owner_url = database_url or embedded.ensure(root / "state").owner_url
        try:
            mine = postgres.create_database(owner_url, name)
            try:
                postgres.migrate(mine)
                yield Scratch(mine, owner_url, root, state)
            finally:
                postgres.drop_database(owner_url, name)
        finally:
            if state is not None:
                embedded.stop(state)


@contextmanager
def ground(database_url: str | None, pages: int, say: Callable[[str], None]) -> Iterator[Ground]:
    """A scratch database, a site and a project that declares it."""
    with plain.running(pages) as site, scratch(database_url) as own:
        _declare(own.folder / "project", site.url, pages)
        yield Ground(own.url, own.owner_url, own.folder / "project", site, own.state, datetime.now(UTC).date(), say)


def _declare(project: Path, site: str, pages: int) -> None:
    home = project / "datasets" / drilled.DATASET
    (home / "retailers").mkdir(parents=True)
    (home / "dataset.yaml").write_text(DECLARATION.replace("LEASE", str(LEASE_SECONDS)).replace("SITE", site))
    (home / "retailers" / "site.yaml").write_text(
        RETAILER.replace("SITE", site).replace("CONCURRENCY", str(CONCURRENCY))
    )
    (home / "site.csv").write_text("url\n" + "".join(f"{site}/p/{number}\n" for number in range(pages)))


def start(target: Callable[..., None], *arguments: Any, anew: bool = False) -> BaseProcess:
    """A process of its own, forked from one that has imported everything; `anew`: with imports of its own only."""
    process: BaseProcess
    if anew:
        process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    else:
        context = multiprocessing.get_context("forkserver")
        # The second is what a child imports as its main module when the program itself was started.
        context.set_forkserver_preload(["scrape_assets.flow.drilled", "scrape_assets.cli", *drilled.JUDGING])
        process = context.Process(target=target, args=arguments)
    process.start()
    return process


def end_of(process: BaseProcess) -> int:
    """Its exit code, once it has one; one that does nothing for too long is ended."""
    try:
        process.join(PATIENCE_SECONDS)
    except BaseException:  # Ctrl-C: it would keep the scratch database from being dropped
        process.kill()
        process.join()
        raise
    if process.exitcode is None:
        process.kill()
        process.join()
        raise ScrapeAssetsError(f"a drilled process did nothing for {PATIENCE_SECONDS:.0f} s and was ended")
    return process.exitcode


def hurt(ground: Ground, job: Job, outcome: Outcome, *, by: int = -signal.SIGKILL) -> None:
    """A process works until its failpoint ends it; what it had in flight is what may be fetched again."""
    code = end_of(start(drilled.work, job))
    if not fired(job) or code != by:
        outcome.wrong.append(f"{job.failpoint} did not fire: the process ended with {code}")
        return
    outcome.fired += 1
    after_a_death(ground, job, outcome)


def after_a_death(ground: Ground, job: Job, outcome: Outcome) -> None:
    """Notes what was in flight, and how long it takes until the run goes on."""
    with pool_on(ground) as pool, postgres.transaction(pool) as tx:
        outcome.flights[store.clock(tx)] = {lease.attempt_id for lease in store.in_flight(tx, job.run_id)}


def fired(job: Job) -> bool:
    """Whether the failpoint said so before it fired; told once."""
    assert job.fired is not None
    if not job.fired.exists():
        return False
    job.fired.unlink()
    return True


def finish(ground: Ground, job: Job, outcome: Outcome) -> None:
    """The run goes on in peace to its end, and what was hurt is measured against the site."""
    ground.site.delay_seconds = 0.0
    if code := end_of(start(drilled.work, job)):
        outcome.wrong.append(f"the run did not end well afterwards: exit code {code}")
        return
    with pool_on(ground) as pool:
        with postgres.transaction(pool) as tx:
            version = publication.last_version(tx, job.run_id)
            for since, attempts in outcome.flights.items():
                over = store.given_up(tx, sorted(attempts))
                if over.ended < len(attempts):
                    outcome.wrong.append(f"{len(attempts) - over.ended} pages of a dead worker are still its own")
                elif attempts:
                    outcome.seconds_lost = max(outcome.seconds_lost, (over.last_at - since).total_seconds())
            outcome.in_flight += len(set().union(*outcome.flights.values()))
            assert job.acknowledged is not None
            told = job.acknowledged.read_text().split() if job.acknowledged.exists() else []
            # A last line without its end was being written by a process that died.
            outcome.acknowledged_missing = store.acknowledged_missing(tx, [one for one in told if len(one) == 36])
        compared = rehearse.compare(pool, job.run_id, version, plain.truth(len(ground.site.bodies)))
        outcome.lost += compared["lost"]
        outcome.duplicated += compared["duplicates"]
        if compared["wrong_values"] or compared["invented"]:
            outcome.wrong.append(f"{compared['wrong_values']}, {compared['invented']} invented")
        outcome.refetched += sum(ground.site.requests.values()) - len(ground.site.requests)
        if outcome.refetched > outcome.in_flight:
            outcome.wrong.append(f"{outcome.refetched} pages were fetched again, {outcome.in_flight} were in flight")
        outcome.wrong += [f"{v.name}: {', '.join(v.keys[:3])}" for v in verify.verify(pool).violations]


@contextmanager
def pool_on(ground: Ground) -> Iterator[Pool]:
    """A small pool on the scratch database."""
    with postgres.open_pool(ground.url, size=2) as pool:
        yield pool


def until(true: Callable[[], bool], what: str) -> None:
    """Returns when it is true."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if time.monotonic() > give_up:
            raise ScrapeAssetsError(f"waited {PATIENCE_SECONDS:.0f} s for {what}")
        time.sleep(0.05)


def leases_of(ground: Ground, job: Job, process: BaseProcess) -> set[UUID]:
    """What this very process holds now; the leases of dead ones are not its own."""
    with pool_on(ground) as pool, postgres.transaction(pool) as tx:
        found = store.in_flight(tx, job.run_id)
    return {lease.attempt_id for lease in found if lease.lease_owner == drilled.worker_id(process.pid or 0)}


def committed(ground: Ground, job: Job) -> int:
    """How many of the run's pages are committed."""
    with pool_on(ground) as pool, postgres.transaction(pool) as tx:
        return store.committed(tx, job.run_id)
