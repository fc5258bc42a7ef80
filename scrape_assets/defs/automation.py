"""Automation: when a window is collected, released and delivered without anybody asking."""

# Without `from __future__ import annotations`: Dagster compares the annotation of a context with its own classes.

import random
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.defs import metadata, names
from scrape_assets.defs.resources import StoreResource
from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.flow import accept, control, deliver, publish
from scrape_assets.rules import windows

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

REPEAT_SECONDS = 300.0
"""How long a release that failed rests before it is asked for again: Postgres may have been away for a moment."""


def collect_job(dataset: Dataset) -> Any:
    """Plans and collects retailers of a window."""
    return dg.define_asset_job(
        f"collect_{names.of(dataset.dataset)}",
        selection=dg.AssetSelection.assets([dataset.dataset, "task_plan"], [dataset.dataset, "observations"]),
        description="Plan and collect retailers of a window. Safe to start again at any time: it resumes.",
    )


def release_job(dataset: Dataset) -> Any:
    """Judges and publishes a window."""
    return dg.define_asset_job(
        f"release_{names.of(dataset.dataset)}",
        selection=dg.AssetSelection.assets(
            [dataset.dataset, "candidate_dataset"], [dataset.dataset, "published_dataset"]
        ),
        description="Judge a window's candidate and, if it is accepted, publish it.",
    )


def schedule(dataset: Dataset, job: Any) -> Any:
    """Collects each window from its first moment on, one run for each retailer."""
    return dg.build_schedule_from_partitioned_job(
        job,
        name=f"collect_{names.of(dataset.dataset)}_each_window",
        description="Starts when a window begins and collects that window, one run for each retailer.",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def release_sensor(dataset: Dataset, job: Any) -> dg.SensorDefinition:
    """Releases a window when its last retailer was accepted.

    It asks Postgres, which knows what the window's scope was and what was accepted. Dagster's own conditions would
    wait for retailers that came later, and would not ask again after a release that failed.
    """

    @dg.sensor(
        job=job,
        name=f"release_{names.of(dataset.dataset)}_when_complete",
        description="Judges and publishes a window when all its retailers are collected and accepted.",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
    )
    def look(context: dg.SensorEvaluationContext, store: StoreResource) -> Iterator[dg.RunRequest | dg.SkipReason]:
        with store.open() as (_, pool):
            control.tidy(pool)  # deadlines hold, and leases of dead workers run out, while no worker is there
            for run_id, retailer, window in accept.undecided(pool, dataset):
                # Else its own run judges it: this one ended before its partition did, by a deadline or a stop.
                if not _under_way(context.instance, f"{retailer}|{window}"):
                    try:
                        accept.accept_retailer(pool, dataset, run_id, retailer)
                    except ScrapeAssetsError as error:  # the other windows are looked at all the same
                        context.log.warning("%s of %s cannot be judged: %s", retailer, run_id, error)
            publish.say_late(pool, dataset)
            due = [window for window in publish.releasable(pool, dataset) if windows.exists(dataset.window, window)]
        requested = [window for window in due if _may_release(context.instance, job.name, window)]
        for window in requested:
            yield dg.RunRequest(partition_key=window)
        if not due:
            yield dg.SkipReason("every window whose retailers are all accepted has its version")
        elif not requested:
            yield dg.SkipReason(f"being released, or its release failed a moment ago: {', '.join(due)}")

    return look


def _may_release(instance: dg.DagsterInstance, job_name: str, window: str) -> bool:
    """Whether nobody releases the window now, a backfill included, and the last release that failed is long ago."""
    if _under_way(instance, window):
        return False
    of_window = {"dagster/partition": window}
    last = instance.get_run_records(dg.RunsFilter(job_name=job_name, tags=of_window), limit=1)
    return not last or last[0].end_time is None or time.time() - last[0].end_time > REPEAT_SECONDS


def _under_way(instance: dg.DagsterInstance, partition: str) -> bool:
    """Whether a run of that partition is not over, whoever launched it."""
    return bool(instance.get_runs(dg.RunsFilter(tags={"dagster/partition": partition}, statuses=UNFINISHED), limit=1))


def deliver_job(dataset: Dataset) -> dg.JobDefinition:
    """Sends what is due of the dataset's published versions."""

    @dg.op(name=f"deliver_{names.of(dataset.dataset)}_versions", out=dg.Out(dg.Nothing))
    def send(store: StoreResource) -> Iterator[Any]:
        with store.open() as (_, pool):
            done = deliver.deliver(pool, dataset, jitter=random.random())
        for event in done:
            yield dg.AssetObservation(
                [dataset.dataset, "published_dataset"],
                partition=event.run_id.partition("@")[2],
                description=f"version {event.dataset_version or 'late'} at {event.destination}: {event.state}",
                metadata={
                    "destination": event.destination,
                    "delivery": event.state,
                    "dataset_version": event.dataset_version or 0,
                    "detail": metadata.capped(event.detail),
                },
            )
        if unsent := [event for event in done if event.state != "delivered"]:
            lacking = (
                f"{e.destination} {e.state} {f'version {e.dataset_version}' if e.dataset_version else 'lateness'} of "
                f"{e.run_id}: {e.detail}"
                for e in unsent
            )
            again = "It is tried again" if any(e.state != "failed" for e in unsent) else "A person has to decide"
            raise dg.Failure(description="; ".join(lacking) + f". {again}", allow_retries=False)
        yield dg.Output(None)

    @dg.job(
        name=f"deliver_{names.of(dataset.dataset)}",
        description="Send published versions to the destinations that do not have them yet. Collects nothing.",
    )
    def delivery() -> None:
        send()

    return delivery


def deliver_sensor(dataset: Dataset, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Starts a delivery when one is due and none is under way."""

    @dg.sensor(
        job=job,
        name=f"deliver_{names.of(dataset.dataset)}_when_due",
        description="Starts a delivery when a destination lacks a published version and no delivery is under way.",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
    )
    def look(context: dg.SensorEvaluationContext, store: StoreResource) -> dg.RunRequest | dg.SkipReason:
        if context.instance.get_runs(dg.RunsFilter(job_name=job.name, statuses=UNFINISHED), limit=1):
            return dg.SkipReason("a delivery is under way")
        with store.open() as (_, pool):
            due = deliver.count_due(pool, dataset)
        return dg.RunRequest() if due else dg.SkipReason("every destination has every version")

    return look
