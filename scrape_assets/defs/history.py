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

MET = ("23505", "42P07")
"""What Postgres calls it when two write the same row, or make the same table: unique_violation, duplicate_table."""


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
    for last in (False, True):
        try:
            _record(settings, store, pool, dataset, window, planned, verdicts, candidate, published)
        except Exception as error:  # noqa: BLE001 - whatever Dagster raises, the work itself is done
            # Two commands that write to Dagster's tables for the first time meet there; the second try finds the rows.
            if last or not _is_met(error):
                return f"Dagster's history does not show this run: {_in_words(error)}"
        else:
            return None
    raise AssertionError("the last try returns")


def _record(
    settings: Settings,
    store: Store,
    pool: Pool,
    dataset: Dataset,
    window: str,
    planned: Sequence[PlannedRetailer],
    verdicts: Sequence[Verdict],
    candidate: Verdict | None,
    published: Published | None,
) -> None:
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


def _is_met(error: Exception) -> bool:
    """Whether somebody else wrote the same row, or made the same table, at the same time."""
    from sqlalchemy.exc import IntegrityError, ProgrammingError  # noqa: PLC0415  # comes with Dagster

    state = getattr(getattr(error, "orig", None), "pgcode", None)
    return isinstance(error, IntegrityError | ProgrammingError) and state in MET


def _in_words(error: Exception) -> str:
    """The first line of it, without the statement and the values that a driver adds."""
    said = str(error).strip().partition("[SQL:")[0].partition("\n")[0]
    return f"{type(error).__name__}: {said.strip()[:300]}"
