"""Automation: when a window is collected, released and delivered without anybody asking."""

# Without `from __future__ import annotations`: Dagster compares the annotation of a context with its own classes.

import random
from collections.abc import Iterator
from typing import Any

import dagster as dg

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.defs import metadata
from scrape_assets.defs.resources import StoreResource
from scrape_assets.flow import deliver

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

Condition = dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]


def all_retailers_passed() -> Condition:
    """Something new was collected, nothing is missing or under way, and every blocking check of every retailer passed.

    `all_deps_blocking_checks_passed` would be satisfied by one passing retailer of a window.
    """
    not_passed = dg.AutomationCondition.any_checks_match(~dg.AutomationCondition.check_passed(), blocking_only=True)
    return (
        (dg.AutomationCondition.newly_missing() | dg.AutomationCondition.any_deps_updated()).since_last_handled()
        & ~dg.AutomationCondition.any_deps_missing()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
        & ~dg.AutomationCondition.any_deps_match(not_passed)
    ).with_label("all retailers of the window are collected and passed")


def with_its_candidate() -> Condition:
    """Requested together with its candidate, in one run, and never alone: a rejected candidate asks for nothing."""
    return dg.AutomationCondition.any_deps_match(dg.AutomationCondition.will_be_requested()).with_label(
        "its candidate is being judged"
    )


def collect_job(dataset: Dataset) -> Any:
    """Plans and collects retailers of a window."""
    return dg.define_asset_job(
        f"collect_{dataset.dataset}",
        selection=dg.AssetSelection.assets([dataset.dataset, "task_plan"], [dataset.dataset, "observations"]),
        description="Plan and collect retailers of a window. Safe to start again at any time: it resumes.",
    )


def release_job(dataset: Dataset) -> Any:
    """Judges and publishes a window."""
    return dg.define_asset_job(
        f"release_{dataset.dataset}",
        selection=dg.AssetSelection.assets(
            [dataset.dataset, "candidate_dataset"], [dataset.dataset, "published_dataset"]
        ),
        description="Judge a window's candidate and, if it is accepted, publish it.",
    )


def schedule(dataset: Dataset, job: Any) -> Any:
    """Collects each window from its first moment on, one run for each retailer."""
    return dg.build_schedule_from_partitioned_job(
        job,
        name=f"collect_{dataset.dataset}_each_window",
        description="Starts when a window begins and collects that window, one run for each retailer.",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def release_sensor(datasets: list[Dataset]) -> dg.AutomationConditionSensorDefinition:
    """Releases a window when its last retailer has passed."""
    return dg.AutomationConditionSensorDefinition(
        "release_when_complete",
        target=dg.AssetSelection.assets(
            *([d.dataset, asset] for d in datasets for asset in ("candidate_dataset", "published_dataset"))
        ),
        description="Judges and publishes a window when all its retailers are collected and their checks passed.",
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=30,
    )


def deliver_job(dataset: Dataset) -> dg.JobDefinition:
    """Sends what is due of the dataset's published versions."""

    @dg.op(name=f"deliver_{dataset.dataset}_versions", out=dg.Out(dg.Nothing))
    def send(store: StoreResource) -> Iterator[Any]:
        with store.open() as (_, pool):
            done = deliver.deliver(pool, dataset, jitter=random.random())
        for event in done:
            yield dg.AssetObservation(
                [dataset.dataset, "published_dataset"],
                partition=event.run_id.partition("@")[2],
                description=f"version {event.dataset_version} at {event.destination}: {event.state}",
                metadata={
                    "destination": event.destination,
                    "delivery": event.state,
                    "dataset_version": event.dataset_version,
                    "detail": metadata.capped(event.detail),
                },
            )
        if unsent := [event for event in done if event.state == "unsent"]:
            lacking = (f"{e.destination} lacks version {e.dataset_version} of {e.run_id}: {e.detail}" for e in unsent)
            raise dg.Failure(description="; ".join(lacking) + ". It is tried again", allow_retries=False)
        yield dg.Output(None)

    @dg.job(
        name=f"deliver_{dataset.dataset}",
        description="Send published versions to the destinations that do not have them yet. Collects nothing.",
    )
    def delivery() -> None:
        send()

    return delivery


def deliver_sensor(dataset: Dataset, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Starts a delivery when one is due and none is under way."""

    @dg.sensor(
        job=job,
        name=f"deliver_{dataset.dataset}_when_due",
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
