"""The whole flow of one window, in the order of the verbs: what `run` does and what Dagster's assets do in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from scrape_assets.datasets import declaration
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import Interrupted, ManifestChanged
from scrape_assets.flow import accept, collect, fetch, judging
from scrape_assets.flow import plan as planning
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.collect import Tally
from scrape_assets.flow.commit import Item
from scrape_assets.flow.plan import PlannedRetailer
from scrape_assets.rules import keys
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.store import lease, postgres, runs
from scrape_assets.store.postgres import Pool


@dataclass(frozen=True, slots=True)
class Machine:
    """What a worker needs of the machine it runs on."""

    artifacts: Path
    worker_id: str
    connect_to: Mapping[str, tuple[str, int]]
    processes: int = 1
    browser: BrowserOptions = field(default_factory=BrowserOptions)


def assignments(
    pool: Pool, dataset: Dataset, window: str, retailers: Sequence[str], *, frozen: bool = False
) -> list[Assignment]:
    """The planned partitions among `retailers`, with the declaration as it stands.

    Where its frozen part changed since, a partition is left out, or with `frozen` comes as it was planned.
    """
    run_id = keys.run_id(dataset.dataset, window)
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        partitions = runs.partitions(tx, run_id)
        if run is None:
            return []
        templates = {
            name: judging.known_templates(tx, dataset, run, partitions[name])
            for name in retailers
            if name in dataset.retailers
        }
    found = []
    for name in retailers:
        partition = partitions[name]
        retailer = dataset.retailers.get(name)
        if partition.planned_at is None or retailer is None:
            continue
        now = planning.freeze(dataset, retailer)
        if now.manifest_hash == partition.manifest_hash and now.page_sources == partition.page_sources:
            meant, frozen_part = (dataset, retailer), now
        elif frozen:
            frozen_part = planning.frozen_of(partition)
            meant = declaration.thaw(dataset, retailer, frozen_part.manifest)
        else:
            continue
        found.append(
            Assignment(run, *meant, frozen_part, tuple(partition.origins), partition.recovery_batch_id, templates[name])
        )
    return found


async def collect_partitions(
    pool: Pool,
    machine: Machine,
    work: Sequence[Assignment],
    *,
    on_worker: Callable[[collect.Worker], None] = lambda _worker: None,
    on_progress: Callable[[Item], None] = lambda _item: None,
) -> Tally:
    """Nothing of these partitions is open; Interrupted when the worker was stopped before that.

    A partition with a canary is collected in two steps: the rest follows only when the canary was judged good.
    BrowserUnavailable, before anything is claimed, when one needs a browser and this machine has none.
    """
    fetch.require((one.retailer for one in work), machine.browser)
    total = Tally()
    left = list(work)
    while left:
        total.add(await _collect(pool, machine, left, on_worker, on_progress))
        left = [one for one in left if await asyncio.to_thread(_goes_on, pool, one)]
    return total


def _goes_on(pool: Pool, work: Assignment) -> bool:
    """Whether there is more to collect: the partition's canary is over, and is judged good now or was meanwhile."""
    run_id, name = work.run.run_id, work.retailer.name
    with postgres.transaction(pool) as tx:
        waiting = lease.waiting(tx, run_id, name, work.frozen.manifest_hash)
    if waiting.canary_over:
        return accept.judge_canary(pool, work.dataset, run_id, name)
    return waiting.open and not waiting.paused and not waiting.other_manifest


async def _collect(
    pool: Pool,
    machine: Machine,
    work: Sequence[Assignment],
    on_worker: Callable[[collect.Worker], None],
    on_progress: Callable[[Item], None],
) -> Tally:
    async with collect.worker(
        pool,
        artifacts=machine.artifacts,
        worker_id=machine.worker_id,
        connect_to=machine.connect_to,
        processes=machine.processes,
        browser=machine.browser,
        on_progress=on_progress,
    ) as worker:
        on_worker(worker)
        tally = await worker.run(work)
    if worker.stopped:
        raise Interrupted("stopped; what was under way is given back. Run the same command again to resume")
    return tally


def plan_or_refuse(
    pool: Pool,
    dataset: Dataset,
    window: str,
    retailers: Sequence[str] | None,
    *,
    now: datetime,
    frozen: bool = False,
    repairable: bool = False,
) -> tuple[list[PlannedRetailer], ManifestChanged | None]:
    """Every retailer's plan, and one error that names all that cannot go on; the others can."""
    planned = planning.plan(
        pool,
        dataset,
        window,
        now=now,
        retailers=None if retailers is None else list(retailers),
        frozen=frozen,
        repairable=repairable,
    )
    problems = [f"{p.retailer}: {p.problem}" for p in planned if p.problem]
    return planned, ManifestChanged("\n".join(problems)) if problems else None
