"""The suite `discovery`: catalogues that change while workers that are killed read them, by every mode."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Any

from scrape_assets.datasets import load
from scrape_assets.demo.lists import MODES, Catalogue
from scrape_assets.flow import accept, drilled, verify
from scrape_assets.flow.drill_cases import Case, Stage, stage
from scrape_assets.flow.drill_ground import Scratch, end_of
from scrape_assets.store import drill as store
from scrape_assets.store import postgres

STABLE = 2_000
KILLS = 6
EVERY = 4
"""Something changes with every so manieth answer that names items."""


def run(scratch: Scratch, say: Callable[[str], None], *, stable: int = STABLE, seed: int = 1) -> dict[str, Any]:
    """Every mode, with what each run says of what it cannot know."""
    cases = []
    for mode in MODES:
        say(mode)
        cases.append(_mode(scratch, mode, stable, seed))
    return {"cases": [case.record() for case in cases], "ok": all(case.ok for case in cases)}


def _mode(scratch: Scratch, mode: str, stable: int, seed: int) -> Case:
    shop = Catalogue(stable, every=EVERY, seed=seed)
    fetch = "{rate: none, concurrency: 8, allow_private: true, open_tasks: 500}"
    with stage(scratch, mode, fetch=fetch, pages=[], answer=shop.answer, urls=MODES[mode]) as it:
        shop.url = it.site.url
        kills = _killed(it, random.Random(seed))
        with postgres.open_pool(scratch.url, size=2) as pool:
            dataset = load.dataset(it.project, drilled.DATASET)
            verdict = accept.accept_retailer(pool, dataset, it.job.run_id, "site")
            with postgres.transaction(pool) as tx:
                seen = store.skus(tx, it.job.run_id)
                twice = store.accepted_twice(tx, it.job.run_id)
            broken = [violation.name for violation in verify.verify(pool).violations]
    report = next(check["got"] for check in verdict.checks if check["rule"] == "discovery")
    missing = [item for item in shop.stable if seen.get(f"SKU-{item:06d}", 0) != 1]
    return Case(
        f"{mode}: {stable} items that stay among others that come, go and move, {KILLS} workers killed",
        "each of them observed once, no page accepted twice, every invariant holds",
        f"{len(missing)} missing or doubled, {twice} accepted twice, {kills} killed, broken: {broken or 'none'}; "
        f"{sum(seen.values())} rows; {report}",
        not missing and not twice and not broken and kills == KILLS,
    )


def _killed(it: Stage, dice: random.Random) -> int:
    """Two workers work on it, one of them is killed again and again; then one goes on in peace."""
    kills = 0
    processes = it.workers(2)
    while kills < KILLS:
        time.sleep(dice.uniform(0.3, 1.2))
        victim = processes.pop(0)
        if victim.is_alive():
            victim.kill()
        kills += end_of(victim) == -signal.SIGKILL
        processes += it.workers(1)
        if victim.exitcode == 0:
            break
    for process in processes:
        end_of(process)
    it.work(1)
    return kills
