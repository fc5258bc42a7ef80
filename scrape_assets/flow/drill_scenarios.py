"""How each window of a drill is made to happen: one scenario for each kind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from scrape_assets.demo import proxy
from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.flow import drilled
from scrape_assets.flow.drill_ground import (
    SLOW_SECONDS,
    Ground,
    Outcome,
    after_a_death,
    committed,
    end_of,
    finish,
    fired,
    hurt,
    leases_of,
    pool_on,
    start,
    until,
    windows,
)
from scrape_assets.flow.drilled import Job
from scrape_assets.store import drill as store
from scrape_assets.store import embedded, outbox, postgres


def killed(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Worker after worker dies at the point of that name."""
    for _ in range(times):
        hurt(ground, ground.job(number, failpoint=f"{outcome.window}=kill"), outcome)


def _reaper(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Something must have expired first; its killed reapers leave it so for the next."""
    hurt(ground, ground.job(number, failpoint="K1=kill@2"), outcome)
    outcome.fired = 0
    killed(ground, number, outcome, times)


def _disk_full(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Half an artifact is written, then there is no space: the worker says so and ends."""
    for _ in range(times):
        hurt(ground, ground.job(number, failpoint="K5=full"), outcome, by=1)


def _clock(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Workers die whose clock is wrong; no lease and no due time is measured by it."""
    for _ in range(times):
        hurt(ground, ground.job(number, failpoint="K6=kill", clock_is_ahead=True), outcome)


def _migration(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """A database whose migration was killed is migrated whole by the next one."""
    name = f"drill_migration_{os.getpid()}_{number}"
    empty = postgres.create_database(ground.owner_url, name)
    try:
        for at in range(1, times + 1):
            job = ground.job(number)
            nth = (at - 1) % len(postgres.migrations()) + 1
            code = end_of(start(drilled.migrate, empty, f"K22=kill@{nth}", job.fired))
            outcome.fired += int(fired(job) and code == -signal.SIGKILL)
        postgres.migrate(empty)
        postgres.ensure_migrated(empty)
    finally:
        postgres.drop_database(ground.owner_url, name)


def cut(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """The worker talks to Postgres through a proxy that cuts the connection at the COMMIT of results."""
    if postgres.needs_tls(ground.url):
        outcome.skipped = "this server is reached by TLS, whose COMMIT a proxy cannot see"
        return
    host, port = postgres.place(ground.url)
    with proxy.running(host, port) as between:
        between.cut, between.left = outcome.window.removesuffix("cut"), times
        job = ground.job(number, url=postgres.through(ground.url, "127.0.0.1", between.port))
        code = end_of(start(drilled.work, job))
        outcome.fired = between.times
    if code:
        outcome.wrong.append(f"the worker did not live through it: exit code {code}")


def _kill_postgres(state: Path) -> None:
    pid = embedded.status(state).pid
    if pid is None:
        raise ScrapeAssetsError("the drill's own Postgres is gone already")
    os.kill(pid, signal.SIGKILL)


def kill_postgres_under(ground: Ground, job: Job, outcome: Outcome, *, to_the_end: bool) -> None:
    """Postgres is killed under a process that has pages in flight, and started again; the process lives through it."""
    state = ground.state
    assert state is not None
    process = start(drilled.work, job)
    try:
        until(lambda: process.exitcode is not None or bool(leases_of(ground, job, process)), "a worker with leases")
        if process.exitcode is not None:
            outcome.wrong.append("the run was over before Postgres could be killed")
            return
        before = embedded.status(state).pid
        _kill_postgres(state)
        outcome.fired += int(embedded.ensure(state).pid != before)
        after_a_death(ground, job, outcome)
        if to_the_end:
            if code := end_of(process):
                outcome.wrong.append(f"the worker did not live through it: exit code {code}")
            return
        done = committed(ground, job)
        until(lambda: process.exitcode is not None or committed(ground, job) > done, "a commit after the restart")
    finally:
        process.kill()
        process.join()
    after_a_death(ground, job, outcome)


def _postgres_dies(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    for turn in range(times):
        kill_postgres_under(ground, ground.job(number), outcome, to_the_end=turn == times - 1)


def _stopped(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    """Each time in a window of its own, since two workers bring it to its end."""
    for turn in range(times):
        ground.site.requests.clear()
        outcome.flights.clear()
        job = ground.job(number + turn * len(windows()))
        ground.site.delay_seconds = SLOW_SECONDS
        _stop_one(ground, job, outcome)
        finish(ground, job, outcome)


def _stop_one(ground: Ground, job: Job, outcome: Outcome) -> None:
    """A process stands still until its leases are somebody else's; what it then brings is fenced off."""
    process = start(drilled.work, job)
    other: BaseProcess | None = None
    try:
        until(lambda: process.exitcode is not None or bool(leases_of(ground, job, process)), "a worker with leases")
        if process.exitcode is not None or process.pid is None:
            outcome.wrong.append("the run was over before its worker could be stopped")
            return
        os.kill(process.pid, signal.SIGSTOP)
        mine = leases_of(ground, job, process)
        after_a_death(ground, job, outcome)
        other = start(drilled.work, job)
        until(lambda: not leases_of(ground, job, process), "the reaper")
        with pool_on(ground) as pool, postgres.transaction(pool) as tx:
            # Their COMMIT may have been on its way when it was stopped.
            before = store.given_up(tx, sorted(mine)).committed
        ground.site.delay_seconds = 0.0  # it was slow so that there are leases to lose; what is left need not be
        os.kill(process.pid, signal.SIGCONT)
        outcome.fired += int(before < len(mine))
        for one in (process, other):
            if code := end_of(one):
                outcome.wrong.append(f"a worker did not end well: exit code {code}")
        with pool_on(ground) as pool, postgres.transaction(pool) as tx:
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
    with pool_on(ground) as pool, postgres.transaction(pool) as tx:
        outcome.in_flight += store.released(tx, ground.job(number).run_id)


def _terminate_one(ground: Ground, job: Job, outcome: Outcome) -> None:
    """A process that is told to stop gives back what it has, at once and for nothing."""
    process = start(drilled.work, job)
    try:
        until(lambda: process.exitcode is not None or bool(leases_of(ground, job, process)), "a worker with leases")
        began = time.monotonic()
        process.terminate()
        code = end_of(process)
    finally:
        process.kill()
        process.join()
    outcome.seconds_lost = max(outcome.seconds_lost, time.monotonic() - began)
    with pool_on(ground) as pool, postgres.transaction(pool) as tx:
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
        hurt(ground, ground.job(at, failpoint=f"{outcome.window}=kill"), outcome)
        finish(ground, ground.job(at), outcome)
        with pool_on(ground) as pool, postgres.transaction(pool) as tx:
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
    if code := end_of(start(drilled.work, ground.job(number))):
        outcome.wrong.append(f"the run that is repaired did not end well: exit code {code}")
        return
    for _ in range(times):
        job = ground.job(number, failpoint="K24=kill")
        code = end_of(start(drilled.repair, job))
        if not fired(job) or code != -signal.SIGKILL:
            outcome.wrong.append(f"{job.failpoint} did not fire: the process ended with {code}")
        outcome.fired += 1
        after_a_death(ground, job, outcome)
    if code := end_of(start(drilled.repair, ground.job(number))):
        outcome.wrong.append(f"the repair did not end well: exit code {code}")


SCENARIOS: dict[str, Callable[[Ground, int, Outcome, int], None]] = {
    "K12": _reaper,
    "K17": _delivery,
    "K18": _delivery,
    "K19": _delivery,
    "K22": _migration,
    "K24": _repair,
    "request_cut": cut,
    "answer_cut": cut,
    "postgres": _postgres_dies,
    "stopped": _stopped,
    "terminated": _terminated,
    "disk_full": _disk_full,
    "clock": _clock,
}
