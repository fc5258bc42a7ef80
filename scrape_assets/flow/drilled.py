"""One process of a drill: the whole flow of one window, as `run` does it, with a crash window armed.

It is forked from a process that has imported everything, so that a kill costs no minute of imports.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

from scrape_assets import failpoints
from scrape_assets.datasets import load
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import Interrupted, ScrapeAssetsError
from scrape_assets.flow import accept, deliver, plan, publish, recover, run
from scrape_assets.flow.collect import Worker
from scrape_assets.flow.commit import Item
from scrape_assets.flow.run import Machine
from scrape_assets.rules import keys
from scrape_assets.rules.recovery import Selection
from scrape_assets.store import outbox, postgres
from scrape_assets.store.postgres import Pool

DATASET = "drill"
CLOCK_AHEAD = timedelta(hours=2)
DELIVERY_SECONDS = 60.0
"""How long a drilled process waits for what a dead sender left."""

__all__ = ["DATASET", "JUDGING", "Job", "collect", "migrate", "repair", "work", "worker_id"]

JUDGING = ("scrape_assets.rules.validate", "scrape_assets.datasets.schemas", "scrape_assets.rules.drift")
"""What a process that judges needs besides, and one that only collects does not: a hundred megabytes."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the process works on, and how it is to be hurt."""

    url: str
    project: Path
    window: str
    failpoint: str = ""
    fired: Path | None = None
    acknowledged: Path | None = None
    clock_is_ahead: bool = False

    @property
    def run_id(self) -> str:
        """The run that this window is."""
        return keys.run_id(DATASET, self.window)


def work(job: Job) -> None:
    """The window is planned, collected, judged, published and delivered, unless the process dies on the way."""
    failpoints.arm(job.failpoint, str(job.fired) if job.fired else None)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # that a server is away is what a drill is about
    if job.clock_is_ahead:
        _put_the_clock_ahead()
    try:
        _work(job)
    except (ScrapeAssetsError, failpoints.Reached) as error:
        expected = job.failpoint or isinstance(error, Interrupted)
        sys.exit(1 if expected else f"drilled process {os.getpid()}: {error}")


class _Ahead(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + CLOCK_AHEAD


def _put_the_clock_ahead() -> None:
    """Whatever of ours asks this process for the time is told a wrong one; leases and due times are the database's."""
    really, ours = time.time, datetime  # this module's own name is replaced on the way, too
    time.time = lambda: really() + CLOCK_AHEAD.total_seconds()
    for name, module in list(sys.modules.items()):
        if name.startswith("scrape_assets.") and getattr(module, "datetime", None) is ours:
            module.datetime = _Ahead  # type: ignore[attr-defined]


def worker_id(pid: int) -> str:
    """The name under which a drilled process of that id holds its leases."""
    return f"drill-{pid}"


def _work(job: Job) -> None:
    dataset = load.dataset(job.project, DATASET)
    told = job.acknowledged.open("ab", buffering=0) if job.acknowledged else None

    def on_progress(item: Item) -> None:
        if told is not None and item.result.outcome == "committed":
            told.write(f"{item.result.lease.attempt_id}\n".encode())

    def on_worker(worker: Worker) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)

    with postgres.open_pool(job.url) as pool:
        plan.plan(pool, dataset, job.window, now=datetime.now(UTC))
        machine = Machine(job.project / "artifacts", worker_id(os.getpid()), {})
        assignments = run.assignments(pool, dataset, job.window, sorted(dataset.retailers))
        asyncio.run(run.collect_partitions(pool, machine, assignments, on_worker=on_worker, on_progress=on_progress))
        for name in sorted(dataset.retailers):
            accept.accept_retailer(pool, dataset, job.run_id, name)
        accept.accept_dataset(pool, dataset, job.run_id)
        publish.publish(pool, dataset, job.run_id)
        _deliver(pool, dataset, job)


def _deliver(pool: Pool, dataset: Dataset, job: Job) -> None:
    """Everything of the run is delivered; what a dead sender left is asked for once its time is over."""
    lease = dataset.lease.lease_seconds
    give_up = time.monotonic() + DELIVERY_SECONDS
    while True:
        deliver.deliver(pool, dataset, jitter=random.random(), rest_seconds=0.1, send_seconds=lease)
        with postgres.transaction(pool) as tx:
            left = [row for row in outbox.deliveries(tx, job.run_id) if row.state != "delivered"]
        if not left or time.monotonic() > give_up:
            return
        time.sleep(0.2)


def collect(job: Job) -> None:
    """The window is planned and collected, with whoever else works on it; told to stop, it ends well."""
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    dataset = load.dataset(job.project, DATASET)

    def on_worker(worker: Worker) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)

    with postgres.open_pool(job.url) as pool:
        plan.plan(pool, dataset, job.window, now=datetime.now(UTC))
        machine = Machine(job.project / "artifacts", worker_id(os.getpid()), {})
        assignments = run.assignments(pool, dataset, job.window, sorted(dataset.retailers))
        with suppress(Interrupted):
            asyncio.run(run.collect_partitions(pool, machine, assignments, on_worker=on_worker))


def repair(job: Job) -> None:
    """The window, which was published, is repaired from its stored pages, unless the process dies on the way."""
    failpoints.arm(job.failpoint, str(job.fired) if job.fired else None)
    dataset = load.dataset(job.project, DATASET)
    wanted = Selection(tuple(sorted(dataset.retailers)), mode="artifacts")
    with postgres.open_pool(job.url) as pool:
        recover.begin(pool, dataset, job.run_id, wanted, recover.select(pool, dataset, job.run_id, wanted))
    _work(job)


def migrate(owner_url: str, failpoint: str, fired: Path | None) -> None:
    """The database is migrated, unless the process dies on the way."""
    failpoints.arm(failpoint, str(fired) if fired else None)
    postgres.migrate(owner_url)
