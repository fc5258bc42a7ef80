"""What Dagster can see, listed by name, for every dataset of the project that the environment names."""

from __future__ import annotations

import dagster as dg

from scrape_assets import settings
from scrape_assets.datasets import load
from scrape_assets.defs import assets, automation
from scrape_assets.defs.resources import StoreResource


def definitions(project: settings.Settings) -> dg.Definitions:
    """All definitions of a project; none but the resource for a folder without `datasets/`."""
    datasets = list(load.project(project.project).values()) if (project.project / "datasets").is_dir() else []
    collecting = {dataset.dataset: automation.collect_job(dataset) for dataset in datasets}
    releasing = {dataset.dataset: automation.release_job(dataset) for dataset in datasets}
    delivering = {dataset.dataset: automation.deliver_job(dataset) for dataset in datasets}
    return dg.Definitions(
        assets=[
            *(assets.task_plan(dataset) for dataset in datasets),
            *(assets.observations(dataset) for dataset in datasets),
            *(assets.candidate_dataset(dataset) for dataset in datasets),
            *(assets.published_dataset(dataset) for dataset in datasets),
        ],
        jobs=[
            *collecting.values(),
            *releasing.values(),
            *delivering.values(),
        ],
        schedules=[automation.schedule(dataset, collecting[dataset.dataset]) for dataset in datasets],
        sensors=[
            *(automation.release_sensor(dataset, releasing[dataset.dataset]) for dataset in datasets),
            *(automation.deliver_sensor(dataset, delivering[dataset.dataset]) for dataset in datasets),
        ],
        resources={"store": StoreResource()},
        # A process for each step would cost seconds and gain nothing: a worker is one loop over many pages.
        executor=dg.in_process_executor,
    )


defs = definitions(settings.load())
