"""History: what `run` did without Dagster, told to Dagster, so that its pages show one story."""

from __future__ import annotations

from collections.abc import Sequence

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow.accept import Verdict
from scrape_assets.flow.plan import PlannedRetailer
from scrape_assets.flow.publish import Published
from scrape_assets.settings import Settings, Store
from scrape_assets.store.postgres import Pool

DECIDED = ("accepted", "rejected")


def record(
    settings: Settings,
    store: Store,
    pool: Pool,
    dataset: Dataset,
    window: str,
    *,
    planned: Sequence[PlannedRetailer],
    verdicts: Sequence[Verdict],
    candidate: Verdict | None = None,
    published: Published | None = None,
) -> str | None:
    """Dagster's history shows the work as its own would; returns what went wrong with that, if anything did.

    What is not decided and whom planning refused is left out. A history that cannot be written is a warning and
    never a failed run: nothing is decided by it.
    """
    try:
        # Dagster takes seconds to import: only a call pays them.
        from scrape_assets.defs import instance  # noqa: PLC0415
        from scrape_assets.defs.events import Events  # noqa: PLC0415

        with instance.opened(settings, store) as opened:
            events = Events(opened, dataset, window)
            for plan in planned:
                if plan.problem is None:
                    events.task_plan(pool, plan)
            for verdict in verdicts:
                if verdict.state in DECIDED:
                    events.observations(pool, verdict)
            if candidate is not None and candidate.state in DECIDED:
                events.candidate_dataset(pool, candidate)
            if published is not None:
                events.published_dataset(published)
    except Exception as error:  # noqa: BLE001 - whatever Dagster raises, the work itself is done
        said = " ".join(str(error).split())[:300]
        return f"Dagster's history does not show this run: {type(error).__name__}: {said}"
    return None
