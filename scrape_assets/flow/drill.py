"""Drill: workers are hurt in every crash window, then the run goes on in peace, and what it cost is counted.

Everything happens in a database of its own, against a site on this machine. What was lost or doubled is computed
from that site and from what was published, never from the run's own word.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from uuid import UUID

from scrape_assets import failpoints
from scrape_assets.demo import plain, proxy
from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.flow import drilled, rehearse, verify
from scrape_assets.flow.drilled import Job
from scrape_assets.store import drill as store
from scrape_assets.store import embedded, outbox, postgres, publication
from scrape_assets.store.postgres import Pool

PAGES = 40
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
publish: {to: {api: {http: {url: "SITE/deliveries"}}, lake: {files: {path: published, format: jsonl}}}}
"""
RETAILER = """\
site: SITE
basis: a site of our own, on this machine
urls: {file: site.csv}
fetch: {rate: none, concurrency: CONCURRENCY, timeout: 60s, allow_private: true}
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

WORKER_WINDOWS = ("K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10")
"""Those that every worker comes by as long as there is work."""


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


def drill(ground: Ground, names: Sequence[str], *, times: int, first: int = 1) -> list[Outcome]:
    """Each of the windows is fired `times` times, and the run goes on to its end after that.

    Each has a collection window of its own, counted back in days from today; `first` is the first of them.
    """
    outcomes = []
    for number, name in enumerate(names, first):
        outcome = Outcome(name, windows()[name])
        ground.say(f"{name}: {outcome.what}")
        _one(ground, number, outcome, times)
        if not outcome.skipped and outcome.fired < times:
            outcome.wrong.append(f"fired {outcome.fired} of {times} times")
        outcomes.append(outcome)
    return outcomes


def kills(count: int, *, seed: int) -> list[str]:
    """Which point ends each of the workers, and the how manieth time it gets there."""
    dice = random.Random(seed)
    return [f"{dice.choice(WORKER_WINDOWS)}=kill@{dice.randint(1, 4)}" for _ in range(count)]


def drill_at_random(ground: Ground, count: int, seed: int, *, postgres_kills: int = 0) -> Outcome:
    """One run over many pages whose workers die `kills` times, in windows and at moments that the seed decides."""
    outcome = Outcome("random", f"{count} kills in windows that seed {seed} decides")
    between = set(random.Random(seed).sample(range(count), min(postgres_kills, count))) if ground.state else set()
    for number, failpoint in enumerate(kills(count, seed=seed)):
        if number in between:
            _kill_postgres_under(ground, ground.job(1), outcome, to_the_end=False)
        _hurt(ground, ground.job(1, failpoint=failpoint), outcome)
        ground.say(f"kill {number + 1} of {count}: {failpoint}")
    _finish(ground, ground.job(1), outcome)
    return outcome


def _one(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    if outcome.window == "postgres" and ground.state is None:
        outcome.skipped = "this server is yours: nobody kills it"
        return
    ground.site.requests.clear()
    # Some things happen only while a page is under way.
    slow = outcome.window in ("K11", "stopped", "terminated", "postgres")
    ground.site.delay_seconds = SLOW_SECONDS if slow else 0.0
    _SCENARIOS.get(outcome.window, _killed)(ground, number, outcome, times)
    if outcome.window not in ("K17", "K18", "K19", "K22", "stopped"):
        _finish(ground, ground.job(number), outcome)


def _killed(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Worker after worker dies at the point of that name."""
    for _ in range(times):
        _hurt(ground, ground.job(number, failpoint=f"{outcome.window}=kill"), outcome)


def _reaper(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Something must have expired first; its killed reapers leave it so for the next."""
    _hurt(ground, ground.job(number, failpoint="K1=kill@2"), outcome)
    outcome.fired = 0
    _killed(ground, number, outcome, times)


def _disk_full(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Half an artifact is written, then there is no space: the worker says so and ends."""
    for _ in range(times):
        _hurt(ground, ground.job(number, failpoint="K5=full"), outcome, by=1)


def _clock(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Workers die whose clock is wrong; no lease and no due time is measured by it."""
    for _ in range(times):
        _hurt(ground, ground.job(number, failpoint="K6=kill", clock_is_ahead=True), outcome)


def _start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    # The second is what a child imports as its main module when the program itself was started.
    context.set_forkserver_preload(["scrape_assets.flow.drilled", "scrape_assets.cli"])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def _end_of(process: BaseProcess) -> int:
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


def _hurt(ground: Ground, job: Job, outcome: Outcome, *, by: int = -signal.SIGKILL) -> None:
    """A process works until its failpoint ends it; what it had in flight is what may be fetched again."""
    code = _end_of(_start(drilled.work, job))
    if not _fired(job) or code != by:
        outcome.wrong.append(f"{job.failpoint} did not fire: the process ended with {code}")
        return
    outcome.fired += 1
    _after_a_death(ground, job, outcome)


def _after_a_death(ground: Ground, job: Job, outcome: Outcome) -> None:
    """Notes what was in flight, and how long it takes until the run goes on."""
    with _pool(ground) as pool, postgres.transaction(pool) as tx:
        outcome.flights[store.clock(tx)] = {lease.attempt_id for lease in store.in_flight(tx, job.run_id)}


def _fired(job: Job) -> bool:
    """Whether the failpoint said so before it fired; told once."""
    assert job.fired is not None
    if not job.fired.exists():
        return False
    job.fired.unlink()
    return True


def _finish(ground: Ground, job: Job, outcome: Outcome) -> None:
    """The run goes on in peace to its end, and what was hurt is measured against the site."""
    ground.site.delay_seconds = 0.0
    if code := _end_of(_start(drilled.work, job)):
        outcome.wrong.append(f"the run did not end well afterwards: exit code {code}")
        return
    with _pool(ground) as pool:
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
def _pool(ground: Ground) -> Iterator[Pool]:
    with postgres.open_pool(ground.url, size=2) as pool:
        yield pool


def _until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if time.monotonic() > give_up:
            raise ScrapeAssetsError(f"waited {PATIENCE_SECONDS:.0f} s for {what}")
        time.sleep(0.05)


def _leases_of(ground: Ground, job: Job, process: BaseProcess) -> set[UUID]:
    """What this very process holds now; the leases of dead ones are not its own."""
    with _pool(ground) as pool, postgres.transaction(pool) as tx:
        found = store.in_flight(tx, job.run_id)
    return {lease.attempt_id for lease in found if lease.lease_owner == drilled.worker_id(process.pid or 0)}


def _migration(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """A database whose migration was killed is migrated whole by the next one."""
    name = f"drill_migration_{os.getpid()}_{number}"
    empty = postgres.create_database(ground.owner_url, name)
    try:
        for at in range(1, times + 1):
            job = ground.job(number)
            nth = (at - 1) % len(postgres.migrations()) + 1
            code = _end_of(_start(drilled.migrate, empty, f"K22=kill@{nth}", job.fired))
            outcome.fired += int(_fired(job) and code == -signal.SIGKILL)
        postgres.migrate(empty)
        postgres.ensure_migrated(empty)
    finally:
        postgres.drop_database(ground.owner_url, name)


def _cut(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """The worker talks to Postgres through a proxy that cuts the connection at the COMMIT of results."""
    if postgres.needs_tls(ground.url):
        outcome.skipped = "this server is reached by TLS, whose COMMIT a proxy cannot see"
        return
    host, port = postgres.place(ground.url)
    with proxy.running(host, port) as between:
        between.cut, between.left = outcome.window.removesuffix("_cut"), times
        job = ground.job(number, url=postgres.through(ground.url, "127.0.0.1", between.port))
        code = _end_of(_start(drilled.work, job))
        outcome.fired = between.times
    if code:
        outcome.wrong.append(f"the worker did not live through it: exit code {code}")


def _kill_postgres(state: Path) -> None:
    pid = embedded.status(state).pid
    if pid is None:
        raise ScrapeAssetsError("the drill's own Postgres is gone already")
    os.kill(pid, signal.SIGKILL)


def _kill_postgres_under(ground: Ground, job: Job, outcome: Outcome, *, to_the_end: bool) -> None:
    """Postgres is killed under a process that has pages in flight, and started again; the process lives through it."""
    state = ground.state
    assert state is not None
    process = _start(drilled.work, job)
    try:
        _until(lambda: process.exitcode is not None or bool(_leases_of(ground, job, process)), "a worker with leases")
        if process.exitcode is not None:
            outcome.wrong.append("the run was over before Postgres could be killed")
            return
        before = embedded.status(state).pid
        _kill_postgres(state)
        outcome.fired += int(embedded.ensure(state).pid != before)
        _after_a_death(ground, job, outcome)
        if to_the_end:
            if code := _end_of(process):
                outcome.wrong.append(f"the worker did not live through it: exit code {code}")
            return
        done = _committed(ground, job)
        _until(lambda: process.exitcode is not None or _committed(ground, job) > done, "a commit after the restart")
    finally:
        process.kill()
        process.join()
    _after_a_death(ground, job, outcome)


def _committed(ground: Ground, job: Job) -> int:
    with _pool(ground) as pool, postgres.transaction(pool) as tx:
        return store.committed(tx, job.run_id)


def _postgres_dies(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    for turn in range(times):
        _kill_postgres_under(ground, ground.job(number), outcome, to_the_end=turn == times - 1)


def _stopped(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Each time in a window of its own, since two workers bring it to its end."""
    for turn in range(times):
        ground.site.requests.clear()
        outcome.flights.clear()
        job = ground.job(number + turn * len(windows()))
        ground.site.delay_seconds = SLOW_SECONDS
        _stop_one(ground, job, outcome)
        _finish(ground, job, outcome)


def _stop_one(ground: Ground, job: Job, outcome: Outcome) -> None:
    """A process stands still until its leases are somebody else's; what it then brings is fenced off."""
    process = _start(drilled.work, job)
    other: BaseProcess | None = None
    try:
        _until(lambda: process.exitcode is not None or bool(_leases_of(ground, job, process)), "a worker with leases")
        if process.exitcode is not None or process.pid is None:
            outcome.wrong.append("the run was over before its worker could be stopped")
            return
        os.kill(process.pid, signal.SIGSTOP)
        mine = _leases_of(ground, job, process)
        _after_a_death(ground, job, outcome)
        other = _start(drilled.work, job)
        _until(lambda: not _leases_of(ground, job, process), "the reaper")
        with _pool(ground) as pool, postgres.transaction(pool) as tx:
            # Their COMMIT may have been on its way when it was stopped.
            before = store.given_up(tx, sorted(mine)).committed
        ground.site.delay_seconds = 0.0  # it was slow so that there are leases to lose; what is left need not be
        os.kill(process.pid, signal.SIGCONT)
        outcome.fired += int(before < len(mine))
        for one in (process, other):
            if code := _end_of(one):
                outcome.wrong.append(f"a worker did not end well: exit code {code}")
        with _pool(ground) as pool, postgres.transaction(pool) as tx:
            # Two workers live now, and a slow machine lets either lose a lease to the other.
            outcome.in_flight += len(store.expired(tx, job.run_id) - set().union(*outcome.flights.values()))
            if late := store.given_up(tx, sorted(mine)).committed - before:
                outcome.wrong.append(f"{late} results passed the fence although their leases were another's")
    finally:
        # One that stands still would never be joined.
        for left in (process, other):
            if left is not None:
                left.kill()
                left.join()


def _terminated(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    for _ in range(times):
        _terminate_one(ground, ground.job(number), outcome)
    with _pool(ground) as pool, postgres.transaction(pool) as tx:
        outcome.in_flight += store.released(tx, ground.job(number).run_id)


def _terminate_one(ground: Ground, job: Job, outcome: Outcome) -> None:
    """A process that is told to stop gives back what it has, at once and for nothing."""
    process = _start(drilled.work, job)
    try:
        _until(lambda: process.exitcode is not None or bool(_leases_of(ground, job, process)), "a worker with leases")
        began = time.monotonic()
        process.terminate()
        code = _end_of(process)
    finally:
        process.kill()
        process.join()
    outcome.seconds_lost = max(outcome.seconds_lost, time.monotonic() - began)
    with _pool(ground) as pool, postgres.transaction(pool) as tx:
        left = len(store.in_flight(tx, job.run_id))
    if left:
        outcome.wrong.append(f"{left} leases were not given back")
    outcome.fired += int(code == 1)


def _delivery(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Senders die, each with an event of its own, since the next one settles it; every version arrives once."""
    for turn in range(times):
        ground.site.requests.clear()
        outcome.flights.clear()
        at = number + turn * len(windows())
        _hurt(ground, ground.job(at, failpoint=f"{outcome.window}=kill"), outcome)
        _finish(ground, ground.job(at), outcome)
        with _pool(ground) as pool, postgres.transaction(pool) as tx:
            sent = outbox.deliveries(tx, ground.job(at).run_id)
        for row in sent:
            if row.state != "delivered":
                outcome.wrong.append(f"{row.destination} is {row.state}: {row.last_error}")
            elif outcome.flights:
                waited = row.delivered_at - min(outcome.flights)
                outcome.seconds_lost = max(outcome.seconds_lost, waited.total_seconds())
        keys = {row.idempotency_key for row in sent if row.destination == "api"}
        outcome.lost += len(keys - ground.site.held.keys())
        outcome.duplicated += sum(ground.site.posts[key] - 1 for key in keys)


def _repair(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """A recovery batch is killed half-built, again and again; then one is built, and repairs from stored pages."""
    if code := _end_of(_start(drilled.work, ground.job(number))):
        outcome.wrong.append(f"the run that is repaired did not end well: exit code {code}")
        return
    for _ in range(times):
        job = ground.job(number, failpoint="K24=kill")
        code = _end_of(_start(drilled.repair, job))
        if not _fired(job) or code != -signal.SIGKILL:
            outcome.wrong.append(f"{job.failpoint} did not fire: the process ended with {code}")
        outcome.fired += 1
        _after_a_death(ground, job, outcome)
    if code := _end_of(_start(drilled.repair, ground.job(number))):
        outcome.wrong.append(f"the repair did not end well: exit code {code}")


_SCENARIOS: dict[str, Callable[[Ground, int, Outcome, int], None]] = {
    "K12": _reaper,
    "K17": _delivery,
    "K18": _delivery,
    "K19": _delivery,
    "K22": _migration,
    "K24": _repair,
    "request_cut": _cut,
    "answer_cut": _cut,
    "postgres": _postgres_dies,
    "stopped": _stopped,
    "terminated": _terminated,
    "disk_full": _disk_full,
    "clock": _clock,
}


@contextmanager
def ground(database_url: str | None, pages: int, say: Callable[[str], None]) -> Iterator[Ground]:
    """A scratch database on the user's server, or on one of the drill's own where none is named; gone at the end."""
    name = f"drill_{datetime.now(UTC):%Y%m%d_%H%M%S}_{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="scrape-assets-drill-") as folder, plain.running(pages) as site:
        root = Path(folder)
        root.chmod(0o755)  # another account may have to reach the server's data folder
        state = None if database_url else root / "state"
        owner_url = database_url or embedded.ensure(root / "state").owner_url
        _declare(root / "project", site.url, pages)
        try:
            mine = postgres.create_database(owner_url, name)
            try:
                postgres.migrate(mine)
                yield Ground(mine, owner_url, root / "project", site, state, datetime.now(UTC).date(), say)
            finally:
                postgres.drop_database(owner_url, name)
        finally:
            if state is not None:
                embedded.stop(state)


def _declare(project: Path, site: str, pages: int) -> None:
    home = project / "datasets" / drilled.DATASET
    (home / "retailers").mkdir(parents=True)
    (home / "dataset.yaml").write_text(DECLARATION.replace("LEASE", str(LEASE_SECONDS)).replace("SITE", site))
    (home / "retailers" / "site.yaml").write_text(
        RETAILER.replace("SITE", site).replace("CONCURRENCY", str(CONCURRENCY))
    )
    (home / "site.csv").write_text("url\n" + "".join(f"{site}/p/{number}\n" for number in range(pages)))
