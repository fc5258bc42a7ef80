"""Drill: workers are hurt in every crash window, then the run goes on in peace, and what it cost is counted.

Everything happens in a database of its own, against a site on this machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from scrape_assets.flow.drill_ground import SLOW_SECONDS, Ground, Outcome, finish, ground, hurt, windows
from scrape_assets.flow.drill_scenarios import SCENARIOS, kill_postgres_under, killed

__all__ = ["Ground", "Outcome", "drill", "drill_at_random", "ground", "kills", "windows"]

PAGES = 40

WORKER_WINDOWS = ("K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10")
"""Those that every worker comes by as long as there is work."""


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
            kill_postgres_under(ground, ground.job(1), outcome, to_the_end=False)
        hurt(ground, ground.job(1, failpoint=failpoint), outcome)
        ground.say(f"kill {number + 1} of {count}: {failpoint}")
    finish(ground, ground.job(1), outcome)
    return outcome


def _one(ground: Ground, number: int, outcome: Outcome, times: int) -> None:
    if outcome.window == "postgres" and ground.state is None:
        outcome.skipped = "this server is yours: nobody kills it"
        return
    ground.site.requests.clear()
    # Some things happen only while a page is under way.
    slow = outcome.window in ("K11", "stopped", "terminated", "postgres")
    ground.site.delay_seconds = SLOW_SECONDS if slow else 0.0
    SCENARIOS.get(outcome.window, killed)(ground, number, outcome, times)
    if outcome.window not in ("K17", "K18", "K19", "K22", "stopped"):
        finish(ground, ground.job(number), outcome)
