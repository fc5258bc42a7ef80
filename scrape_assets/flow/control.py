"""Control: what a person, a deadline or a refusing site does to a partition while it is collected."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scrape_assets.errors import DeclarationError
from scrape_assets.rules import refusals, template
from scrape_assets.rules.states import FailureClass
from scrape_assets.store import candidates, control, lease, origins, postgres, runs
from scrape_assets.store.postgres import Pool, Transaction

STOP_GRACE_SECONDS = 6 * 3600.0
"""How long a person has to resume a stopped retailer before its open tasks are quarantined (protocol)."""

STEP_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed retailer, and how many of its tasks were quarantined by that."""

    retailer: str
    quarantined: int


def pause(pool: Pool, run_id: str, retailers: Sequence[str], reason: str) -> list[str]:
    """Nothing further of these is claimed; what is under way ends. Returns those that were not paused before."""
    with postgres.transaction(pool) as tx:
        return [name for name in _planned(tx, run_id, retailers) if control.pause(tx, run_id, name, reason)]


def resume(pool: Pool, run_id: str, retailers: Sequence[str]) -> list[str]:
    """These are claimed from again. Returns those that were paused."""
    with postgres.transaction(pool) as tx:
        return [name for name in _planned(tx, run_id, retailers) if control.resume(tx, run_id, name)]


def given_up(pool: Pool, run_id: str, retailers: Sequence[str]) -> dict[str, int]:
    """Of these retailers, those with pages that nobody asks for again by himself, and how many."""
    with postgres.transaction(pool) as tx:
        found = {name: candidates.counts(tx, run_id, name).quarantined for name in retailers}
    return {name: pages for name, pages in found.items() if pages}


def close(pool: Pool, run_id: str, retailers: Sequence[str], say: Callable[[str], None]) -> list[Closed]:
    """Nothing of these is open, and nothing is ever claimed again: what was open is quarantined `window_closed`.

    Pages under way end first, each as its worker says; the leases of dead workers run out.
    """
    with postgres.transaction(pool) as tx:
        names = [name for name in _planned(tx, run_id, retailers) if control.close(tx, run_id, name)]
    said = False
    while True:
        tidy(pool)
        with postgres.transaction(pool) as tx:
            left = sum(candidates.count_open(tx, run_id, name) for name in names)
            if not left:
                closed = FailureClass.WINDOW_CLOSED
                return [Closed(name, control.count_ended(tx, run_id, name, closed)) for name in names]
        if not said:
            say(f"{left} pages are under way; they end, or their leases run out")
            said = True
        time.sleep(STEP_SECONDS)


def tidy(pool: Pool) -> None:
    """What a living worker does every second, done to its end where there may be none: the reaper, the closing step."""
    reaped = 1
    while reaped:
        with postgres.transaction(pool) as tx:
            reaped = lease.reap(tx, "")
    while step(pool):
        pass


def step(pool: Pool) -> int:
    """The closing step, run by every worker beside the reaper: deadlines hold, and nothing waits in vain.

    At most some thousands of tasks at once; returns how many.
    """
    with postgres.transaction(pool) as tx:
        control.close_overdue(tx)
    with postgres.transaction(pool) as tx:
        return control.quarantine_unclaimable(tx, STOP_GRACE_SECONDS)


def stop_if_refused(pool: Pool, run_id: str, retailer: str) -> str | None:
    """The retailer is stopped when its newest attempts say that it refuses us; returns why.

    Its origins rest for everybody else, longer each time, and are asked more slowly then.
    """
    with postgres.transaction(pool) as tx:
        # First: whoever resumed it meanwhile has forgiven what would be read otherwise.
        runs.lock_partition(tx, run_id, retailer)
        newest = control.recent_failures(tx, run_id, retailer, refusals.OF_THE_LAST)
        why = refusals.stops(newest)
        if why and control.pause(tx, run_id, retailer, f"stopped: {why}", stopped=True):
            partition = runs.partitions(tx, run_id)[retailer]
            for origin in sorted(partition.origins):
                origins.rest(tx, origin, f"{retailer} of {run_id} was stopped: {why}")
            return why
    return None


def stop_if_changed(pool: Pool, run_id: str, retailer: str, unlike: Sequence[bool]) -> str | None:
    """The retailer is stopped when its newest pages are laid out as never before; returns why."""
    why = template.stops(unlike)
    if why is None:
        return None
    with postgres.transaction(pool) as tx:
        runs.lock_partition(tx, run_id, retailer)
        return why if control.stop_changed(tx, run_id, retailer, why) else None


def _planned(tx: Transaction, run_id: str, retailers: Sequence[str]) -> list[str]:
    """The named retailers, or all planned ones of the run; in name order, as locks are taken."""
    planned = {name for name, partition in runs.partitions(tx, run_id).items() if partition.planned_at}
    if not planned:
        raise DeclarationError(f"{run_id} was never planned; `scrape-assets run` plans a window")
    if unknown := sorted(set(retailers) - planned):
        raise DeclarationError(
            f"{run_id} has no planned retailer {', '.join(unknown)}; it has {', '.join(sorted(planned))}"
        )
    return sorted(retailers or planned)
