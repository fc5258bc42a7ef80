"""Assets: four for each dataset. A body opens the store, calls one verb of `flow`, and says what happened."""

# Without `from __future__ import annotations`: Dagster compares the annotation of a context with its own classes.

import asyncio
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Optional, TypeAlias

import dagster as dg
from pydantic import Field

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.defs import checks, metadata, names, partitions
from scrape_assets.defs.resources import StoreResource
from scrape_assets.errors import CandidateRejected, Interrupted, ScrapeAssetsError
from scrape_assets.flow import accept, publish, recover, run
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.collect import Tally, Worker
from scrape_assets.flow.commit import Item
from scrape_assets.flow.run import Machine
from scrape_assets.rules import keys, urls
from scrape_assets.rules.recovery import Mode, Selection
from scrape_assets.settings import Settings
from scrape_assets.store.postgres import Pool

COLLECT_POOL = "collect"
"""Runs that collect on this machine at the same time; its size is in dagster.yaml and in the UI."""

REPORT_SECONDS = 10.0

if TYPE_CHECKING:
    Materialized: TypeAlias = dg.MaterializeResult[None]
else:
    # With a parameter Dagster does not know its own result, and refuses an asset that has several checks.
    Materialized = dg.MaterializeResult


class RepairConfig(dg.Config):
    """What to repair when a partition is materialized again. Without any of it: whatever its declaration changed."""

    failure_class: Optional[str] = None  # noqa: UP045 - Dagster reads this form alone
    page_type: Optional[str] = None  # noqa: UP045
    rule: Optional[str] = None  # noqa: UP045
    urls: list[str] = Field(default_factory=list)
    refetch: bool = False
    from_artifacts: bool = False

    def selection(self) -> Selection:
        """The same for `flow.recover`."""
        mode: Mode = "refetch" if self.refetch else "artifacts" if self.from_artifacts else "auto"
        return Selection(
            page_type=self.page_type,
            failure_class=self.failure_class,
            rule=self.rule,
            urls=tuple(map(urls.canonical, self.urls)) or None,
            mode=mode,
        )


def task_plan(dataset: Dataset) -> dg.AssetsDefinition:
    """The pages of one retailer in one window, frozen."""

    @dg.asset(
        name="task_plan",
        key_prefix=dataset.dataset,
        group_name=names.of(dataset.dataset),
        partitions_def=partitions.windows_and_retailers(dataset),
        kinds={"postgres"},
        metadata={"owner": dataset.owner},
        description="The retailer's inventory of this window as tasks, frozen with the declaration they are collected "
        "under. Materializing it again adds nothing; a changed declaration is refused and takes effect with the next "
        "window.",
    )
    def plan(context: dg.AssetExecutionContext, store: StoreResource) -> Materialized:
        window, retailer = partitions.split(context)
        with store.open() as (_, pool), stopping_the_run():
            planned, refused = run.plan_or_refuse(
                pool, dataset, window, [retailer], now=datetime.now(UTC), repairable=True
            )
            if refused:
                raise refused
            return dg.MaterializeResult(metadata=metadata.task_plan(pool, dataset, window, planned[0]))

    return plan


def observations(dataset: Dataset) -> dg.AssetsDefinition:
    """Every page of one retailer in one window has ended, and its rows are judged."""
    specs = checks.of_retailer(dataset)

    @dg.asset(
        name="observations",
        key_prefix=dataset.dataset,
        group_name=names.of(dataset.dataset),
        partitions_def=partitions.windows_and_retailers(dataset),
        deps=[dg.AssetKey([dataset.dataset, "task_plan"])],
        check_specs=specs,
        pool=COLLECT_POOL,
        kinds={"postgres", "pandera"},
        metadata={"owner": dataset.owner},
        description="What the retailer's pages say in this window: fetched, extracted and committed page by page, then "
        "judged by the declared rules. It resumes where it stopped: pages that ended are never fetched again. "
        "Materialized again after its declaration was changed, or with a selection in the config, it is repaired: from "
        "stored pages where only their reading changed.",
    )
    def collect(context: dg.AssetExecutionContext, store: StoreResource, config: RepairConfig) -> Materialized:
        window, retailer = partitions.split(context)
        run_id = keys.run_id(dataset.dataset, window)
        with store.open() as (where, pool), stopping_the_run():
            for begun in recover.rematerialize(pool, dataset, run_id, retailer, config.selection()):
                context.log.info(
                    "recovery batch %s: %d pages, %d from stored pages",
                    begun.recovery_batch_id,
                    begun.taken,
                    len(begun.repair.stored),
                )
            # Planned already, as a rule; asked again, since this step may be started alone or long after.
            _, refused = run.plan_or_refuse(pool, dataset, window, [retailer], now=datetime.now(UTC))
            if refused:
                raise refused
            work = run.assignments(pool, dataset, window, [retailer])
            tally = collect_here(pool, machine(where, context.run.run_id), work, context.log.info)
            context.log.info("this run: %s in %.1f s, %d rows", dict(tally.outcomes), tally.seconds, tally.rows)
            verdict = accept.accept_retailer(pool, dataset, run_id, retailer)
            if verdict.state == "collecting":
                raise Interrupted(f"{retailer} of {run_id} cannot be judged yet: {verdict.waiting_for}")
            return dg.MaterializeResult(
                metadata=metadata.observations(pool, dataset, window, retailer),
                check_results=list(checks.results(specs, verdict, "candidate generation", verdict.generation or 0)),
            )

    return collect


def candidate_dataset(dataset: Dataset) -> dg.AssetsDefinition:
    """All retailers of one window as one candidate, accepted or rejected."""
    specs = checks.of_dataset(dataset)

    @dg.asset(
        name="candidate_dataset",
        key_prefix=dataset.dataset,
        group_name=names.of(dataset.dataset),
        partitions_def=partitions.windows(dataset.window),
        deps=[dg.AssetDep([dataset.dataset, "observations"], partition_mapping=partitions.of_window())],
        check_specs=specs,
        kinds={"postgres", "pandera"},
        metadata={"owner": dataset.owner},
        description="All retailers of the window together, as they were judged: the candidate for a version. "
        "It is rejected when one of them was, and then nothing is published.",
    )
    def judge(context: dg.AssetExecutionContext, store: StoreResource) -> Materialized:
        window = context.partition_key
        run_id = keys.run_id(dataset.dataset, window)
        with store.open() as (_, pool), stopping_the_run():
            verdict = accept.accept_dataset(pool, dataset, run_id)
            if verdict.state == "collecting":
                raise CandidateRejected(f"{run_id} is no candidate yet: {verdict.waiting_for}. Collect first")
            return dg.MaterializeResult(
                metadata=metadata.candidate_dataset(pool, dataset, window, verdict),
                check_results=list(checks.results(specs, verdict, "candidate", verdict.sequence or 0)),
            )

    return judge


def published_dataset(dataset: Dataset) -> dg.AssetsDefinition:
    """The version that stands. The lock is in `publish`: whoever starts this, only an accepted candidate passes."""

    @dg.asset(
        name="published_dataset",
        key_prefix=dataset.dataset,
        group_name=names.of(dataset.dataset),
        partitions_def=partitions.windows(dataset.window),
        deps=[dg.AssetKey([dataset.dataset, "candidate_dataset"])],
        kinds={"postgres"},
        metadata={"owner": dataset.owner},
        description="The version of this window that stands. Only an accepted candidate is published, whoever asks; "
        "otherwise this fails with the reasons and the last good version stays.",
    )
    def make_version(context: dg.AssetExecutionContext, store: StoreResource) -> Materialized:
        window = context.partition_key
        with store.open() as (_, pool), stopping_the_run():
            published = publish.publish(pool, dataset, keys.run_id(dataset.dataset, window))
            return dg.MaterializeResult(metadata=metadata.published_dataset(dataset, window, published))

    return make_version


@contextmanager
def stopping_the_run() -> Iterator[None]:
    """What a person must act on fails the run once, in its own words; Dagster is never asked to try again."""
    try:
        yield
    except ScrapeAssetsError as error:
        raise dg.Failure(description=str(error), allow_retries=False) from error


def machine(where: Settings, dagster_run_id: str) -> Machine:
    """This process as a worker."""
    return Machine(
        artifacts=where.artifacts,
        worker_id=f"{socket.gethostname()}:{os.getpid()}:dagster:{dagster_run_id[:8]}",
        connect_to=where.connect_to,
        browser=where.browser,
    )


def collect_here(pool: Pool, here: Machine, work: list[Assignment], say: Callable[[str], None]) -> Tally:
    """Nothing of the work is open. A terminated run stops the worker, which gives back what it has not finished."""
    outcomes: Counter[str] = Counter()
    said = time.monotonic()

    def progress(item: Item) -> None:
        nonlocal said
        outcomes[item.result.outcome] += 1
        if time.monotonic() - said > REPORT_SECONDS:
            said = time.monotonic()
            say(f"so far: {dict(outcomes)}")

    async def collecting(stop: _Stop) -> Tally:
        loop = asyncio.get_running_loop()

        def on_worker(worker: Worker) -> None:
            stop.means(lambda: loop.call_soon_threadsafe(worker.stop))

        return await run.collect_partitions(pool, here, work, on_worker=on_worker, on_progress=progress)

    try:
        with _signals() as stop:
            return asyncio.run(collecting(stop))
    except Interrupted as error:
        # Dagster's own word for a terminated run: any other would be a failure of the step.
        raise dg.DagsterExecutionInterruptedError(str(error)) from error


class _Stop:
    """A request to stop that may come before there is anything to be stopped."""

    def __init__(self) -> None:
        self._asked = False
        self._act: Callable[[], object] | None = None

    def means(self, act: Callable[[], object]) -> None:
        self._act = act
        if self._asked:
            act()

    def ask(self, *_: object) -> None:
        self._asked = True
        if self._act:
            self._act()


@contextmanager
def _signals() -> Iterator[_Stop]:
    """SIGINT (Dagster's Terminate) and SIGTERM ask to stop.

    Dagster's own handler raises wherever the program happens to be, which inside an event loop is anywhere.
    """
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
