"""Judging: what every rule says of a retailer's rows, read in one go. Nothing is decided here, and nothing is locked.

pandas and pandera take seconds to import and 100 MB to hold; a worker that only collects needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.rules import acceptance, discover, template
from scrape_assets.rules.acceptance import Check, Held, Limits
from scrape_assets.rules.template import Known
from scrape_assets.store import candidates, discovery, postgres, runs
from scrape_assets.store.candidates import Content, Counts, Earlier
from scrape_assets.store.postgres import Pool, Transaction
from scrape_assets.store.runs import Partition, Run

if TYPE_CHECKING:
    import pandas as pd

    from scrape_assets.rules import drift


def judge(
    pool: Pool, dataset: Dataset, run: Run, retailer: str, counts: Counts, content: Content
) -> tuple[list[Check], dict[str, Any]]:
    """Every rule over the retailer's rows, and the figures that later windows are compared with."""
    from scrape_assets.datasets import schemas  # noqa: PLC0415
    from scrape_assets.rules import drift, validate  # noqa: PLC0415

    limits = dataset.accept_for(retailer)
    with postgres.transaction(pool) as tx:
        partition = runs.partitions(tx, run.run_id)[retailer]
        planned_at, first_pages = partition.planned_at, candidates.canary_counts(tx, run.run_id, retailer).planned
        # Rows carry the database's time: this machine's clock has no say in whether they are of the future.
        now = candidates.clock(tx)
        table = validate.frame(candidates.rows(tx, run.run_id, retailer), dataset.columns)
        before = compared_with(tx, dataset, run, retailer)
        # What a later window has and this one has not is new there, and not lost here.
        backward = bool(before) and before[0].window_start < run.window_start
        missed = candidates.undiscovered(tx, run.run_id, retailer, before[0].run_id) if backward else None
        states = candidates.page_states(tx, run.run_id, retailer)
        since = _beside(tx, table, retailer, before[0].run_id) if before else None
        base, both = _baseline(tx, table, run, retailer, limits, before, since)
        found = _discovery(tx, dataset, run, retailer, limits)
        laid_out = candidates.templates(tx, run.run_id, retailer)
    assert planned_at is not None
    changed = _template(laid_out, run, before, limits, limits.template)
    history = [drift.Window(one.window_start, one.figures) for one in before]
    warming: Held = "warm_up" if len(history) < limits.warm_up else ""
    filled = drift.filled_shares(table, dataset.columns)
    unchanged = None if since is None else drift.unchanged_share(since)
    figures: dict[str, Any] = {
        "rows": content.rows,
        "gone": round(counts.gone / counts.planned, 6) if counts.planned else 0.0,
        "moved": None if since is None else drift.moved_share(since),
        "unchanged": unchanged,
        "filled": filled,
        "page_states": states,
        "templates": template.figures(laid_out),
        "as_before": template.as_before(laid_out, template.known(one.figures for one in before)),
        "beside": {"kind": base.kind, "windows": named(before)},
    }
    checks = [
        acceptance.not_empty(content.rows),
        acceptance.coverage(
            planned=counts.planned,
            committed=counts.committed,
            gone=counts.gone,
            at_least=limits.coverage,
            undiscovered=missed,
        ),
        acceptance.gone(
            planned=counts.planned,
            gone=counts.gone,
            limit=limits.gone,
            before=[float(one.figures["gone"]) for one in history],
            warm_up=limits.warm_up,
        ),
        *found,
        acceptance.canary(partition.canary, first_pages),
        acceptance.page_states(states, limits.page_states),
        changed,
        acceptance.collisions(counts.collisions),
        *validate.judge(table, schemas.load(dataset), limits, collected_from=planned_at.timestamp(), now=now),
        drift.rows(content.rows, history, limits, run.window_start),
        drift.columns(filled, history, limits),
        drift.frozen(unchanged, history, limits, run.window_start),
        drift.moved(both.iloc[0:0] if since is None else since, limits.drift_moved, warming, _label(run, before)),
        *drift.values(both, base),
    ]
    return checks, figures


def _discovery(tx: Transaction, dataset: Dataset, run: Run, retailer: str, limits: Limits) -> list[Check]:
    """What the site listed itself: whether all of it was read, and whether it is as much as there should be."""
    declared = dataset.retailers.get(retailer)
    if declared is None:
        return []
    checks = []
    if declared.urls.mode != "file":
        came = discovery.of_retailer(tx, run.run_id, retailer)
        unseen = None
        if came.second_pass:
            seen = came.first_pass + came.second_pass - came.both_passes
            unseen = max(0.0, discover.estimate(came.first_pass, came.second_pass, came.both_passes) - seen)
        checks.append(
            acceptance.discovery(
                pages=came.pages,
                read=came.read,
                problem=came.problem,
                unseen=unseen,
                items=came.items,
                at_least=limits.coverage,
            )
        )
    if (ends := declared.urls.expected) is not None:
        checks.append(acceptance.expected(discovery.addresses(tx, run.run_id, retailer), ends))
    return checks


def compared_with(tx: Transaction, dataset: Dataset, run: Run, retailer: str) -> list[Earlier]:
    """The accepted windows that this one is compared with, the nearest first.

    They come before it. A window that begins the history, as a backfill in descending order collects it, is compared
    with those after it; not so a correction of it, which has the version that it corrects.
    """
    at_most = dataset.accept_for(retailer).drift_over
    before = candidates.accepted_windows(tx, run.run_id, retailer, at_most)
    if before or retailer in candidates.published_content(tx, run.run_id):
        return before
    return candidates.accepted_windows(tx, run.run_id, retailer, at_most, later=True)


def named(before: Sequence[Earlier]) -> list[list[str]]:
    """The windows as a verdict keeps them: their keys and what they held then."""
    return [[one.collection_window, one.content_hash] for one in before]


def _label(run: Run, before: Sequence[Earlier]) -> str:
    """What prices are said to have moved since."""
    if not before:
        return "the last accepted window"
    which = "the last accepted window" if before[0].window_start < run.window_start else "an accepted later window"
    return f"{before[0].collection_window}, {which}"


def _template(
    laid_out: Sequence[template.Page], run: Run, before: Sequence[Earlier], limits: Limits, limit: float
) -> Check:
    return template.check(
        laid_out, [one.figures for one in before], limit, warm_up=limits.warm_up, since=_windows(run, before)
    )


def _windows(run: Run, before: Sequence[Earlier]) -> str:
    """Which windows the pages are compared with."""
    later = bool(before) and before[0].window_start > run.window_start
    return "accepted later windows" if later else "the last accepted windows"


def known_templates(tx: Transaction, dataset: Dataset, run: Run, partition: Partition) -> Known:
    """The layouts whose change stops the retailer while it is collected; none where acceptance would let it pass.

    Nor during a repair, whose pages somebody has looked at.
    """
    limits = dataset.accept_for(partition.retailer)
    if limits.dry_run or limits.template >= template.SHARE or partition.recovery_batch_id is not None:
        return {}
    history = [one.figures for one in compared_with(tx, dataset, run, partition.retailer)]
    return template.known(history) if template.windows(history) >= limits.warm_up else {}


def now_says(pool: Pool, dataset: Dataset, run: Run, retailer: str) -> list[Check]:
    """What every rule says of the rows that are there now, with the pages that break it; nothing is decided."""
    with postgres.transaction(pool) as tx:
        counts = candidates.counts(tx, run.run_id, retailer)
        content = candidates.content(tx, run.run_id, retailer)
    return judge(pool, dataset, run, retailer, counts, content)[0]


def _beside(tx: Transaction, table: pd.DataFrame, retailer: str, earlier_run_id: str) -> pd.DataFrame:
    from scrape_assets.rules import drift  # noqa: PLC0415

    return drift.beside(table, drift.frame(candidates.earlier_rows(tx, earlier_run_id, retailer)))


def _baseline(
    tx: Transaction,
    table: pd.DataFrame,
    run: Run,
    retailer: str,
    limits: Limits,
    before: Sequence[Earlier],
    since: pd.DataFrame | None,
) -> tuple[drift.Baseline, pd.DataFrame]:
    """What prices are compared with, and the rows beside it."""
    from scrape_assets.rules import drift  # noqa: PLC0415

    published = candidates.published_content(tx, run.run_id).get(retailer)
    base = drift.baseline(len(before), warm_up=limits.warm_up, has_version=published is not None)
    if base.kind == "window" and since is not None:
        return base, since
    if base.kind == "version" and published is not None:
        earlier = drift.frame(candidates.published_rows(tx, run, retailer, published.dataset_version))
        return base, drift.beside(table, earlier)
    return base, drift.beside(table, drift.frame([]))


def canary(pool: Pool, dataset: Dataset, run: Run, retailer: str) -> tuple[list[Check], int]:
    """What the rules say of a canary's rows, alone and beside earlier ones, and of how many pages it is.

    How many rows there are says nothing yet, and a share is known as well as a sample of its size knows it.
    """
    from scrape_assets.datasets import schemas  # noqa: PLC0415
    from scrape_assets.rules import drift, validate  # noqa: PLC0415

    limits = dataset.accept_for(retailer)
    with postgres.transaction(pool) as tx:
        planned_at = runs.partitions(tx, run.run_id)[retailer].planned_at
        counts = candidates.canary_counts(tx, run.run_id, retailer)
        now = candidates.clock(tx)
        table = validate.frame(candidates.rows(tx, run.run_id, retailer), dataset.columns)
        before = compared_with(tx, dataset, run, retailer)
        since = _beside(tx, table, retailer, before[0].run_id) if before else None
        base, both = _baseline(tx, table, run, retailer, limits, before, since)
        laid_out = candidates.templates(tx, run.run_id, retailer)
    assert planned_at is not None
    checks = [
        acceptance.not_empty(len(table)),
        acceptance.coverage(
            planned=counts.planned,
            committed=counts.committed,
            gone=counts.gone,
            at_least=1 - drift.of_a_sample(1 - limits.coverage, counts.planned),
        ),
        *validate.judge(table, schemas.load(dataset), limits, collected_from=planned_at.timestamp(), now=now),
        *drift.values(both, base),
        _template(laid_out, run, before, limits, drift.of_a_sample(limits.template, len(laid_out))),
    ]
    if since is not None:
        checks.append(
            drift.moved(since, drift.of_a_sample(limits.drift_moved, len(since)), base.held, _label(run, before))
        )
    return checks, counts.planned
