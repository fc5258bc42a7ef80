"""Plan: a run, its scope, and one task per inventory line. Planning again adds nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urljoin

from scrape_assets.datasets import declaration, inventory, page_objects
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import keys, urls, windows
from scrape_assets.rules.budget import Budget
from scrape_assets.rules.discover import page_types
from scrape_assets.store import candidates, postgres, runs
from scrape_assets.store.postgres import Pool, Transaction
from scrape_assets.store.runs import Partition, PlannedTask, Rejection, Run


@dataclass(frozen=True, slots=True)
class Frozen:
    """A retailer's manifest as it would be, or was, frozen."""

    manifest: dict[str, Any]
    manifest_hash: str
    extractor_version: str
    page_sources: dict[str, str]


@dataclass(frozen=True, slots=True)
class PlannedRetailer:
    """What planning one retailer did. `problem` says why it cannot go on; the other retailers do."""

    retailer: str
    planned: int = 0
    rejected: int = 0
    resumed: bool = False
    problem: str | None = None


def freeze(dataset: Dataset, retailer: Retailer) -> Frozen:
    """The retailer's frozen part as the declaration stands now."""
    manifest = declaration.manifest(dataset, retailer)
    # An edit of pages.py concerns those that extract with it; a schema of pages.py is in the manifest itself.
    sources = page_objects.sources(dataset.folder) if retailer.page_functions else {}
    # The text of page objects is part of what is frozen: a worker with other code is no worker of this run.
    whole = {**manifest, "pages": sources} if sources else manifest
    return Frozen(
        manifest, keys.manifest_hash(whole), declaration.extractor_version(dataset, retailer, sources), sources
    )


def frozen_of(partition: Partition) -> Frozen:
    """What a planned partition was frozen with."""
    assert partition.manifest is not None
    assert partition.manifest_hash is not None
    assert partition.extractor_version is not None
    return Frozen(
        partition.manifest, partition.manifest_hash, partition.extractor_version, partition.page_sources or {}
    )


def lines(retailer: Retailer) -> Iterator[inventory.Line | inventory.Rejected]:
    """What the window begins with: the inventory's lines, or the first pages of what the site itself lists."""
    rule = declaration.discover_rule(retailer)
    if rule is None:
        assert retailer.inventory_path is not None
        yield from inventory.read(retailer.inventory_path, site=retailer.site, contexts=retailer.contexts)
        return
    for number, start in enumerate(retailer.urls.starts, 1):
        first = urls.canonical(urljoin(retailer.site + "/", start))
        for context in retailer.contexts or ("",):
            # Its list is what a further page belongs to.
            yield inventory.Line(number, first, first, first, page_types(rule)[0], context, 0)


def no_pages(retailer: Retailer, rejected: Sequence[Rejection], count: int) -> str:
    """An inventory without a page, in words: a window planned with it would be over before it began."""
    refused = f": {count} lines were refused, line {rejected[0].line}: {rejected[0].reason}" if rejected else ""
    return f"{retailer.inventory_path or retailer.urls.mode} names no page to collect{refused}"


def current_window(dataset: Dataset, now: datetime) -> str:
    """The key of the window that is open now; DeclarationError while the first has not begun."""
    try:
        return windows.current_key(dataset.window, now)
    except ValueError as error:
        raise DeclarationError(f"dataset {dataset.dataset}: {error}") from error


def describe_run(dataset: Dataset, window: str, now: datetime) -> Run:
    """The run that collects this window; DeclarationError for a key that is none, or that has not begun."""
    try:
        start, end = windows.bounds(dataset.window, window)
    except ValueError as error:
        raise DeclarationError(f"dataset {dataset.dataset}: {error}") from error
    if start > now:
        raise DeclarationError(
            f"window {window} of dataset {dataset.dataset} begins at {start:%Y-%m-%d %H:%M} UTC, which has not "
            f"come yet; `current` names the one that is open now"
        )
    return Run(keys.run_id(dataset.dataset, window), dataset.dataset, window, start, end)


def plan(
    pool: Pool,
    dataset: Dataset,
    window: str,
    *,
    now: datetime,
    retailers: list[str] | None = None,
    frozen: bool = False,
    repairable: bool = False,
) -> list[PlannedRetailer]:
    """The run exists, and each named retailer (default: all of its scope) is planned or says why not.

    One transaction per retailer: a kill leaves each planned whole or not at all. `frozen`: a retailer whose frozen
    part changed since then goes on all the same, with what it was planned with. `repairable`: one of which nothing is
    open may have changed, since its observations are repaired with what is declared now.
    """
    run = describe_run(dataset, window, now)
    with postgres.transaction(pool) as tx:
        runs.open_run(tx, run, sorted(dataset.retailers))
        scope = runs.partitions(tx, run.run_id)
    wanted = sorted(scope) if retailers is None else retailers
    how = _How(frozen, repairable)
    return [_plan_retailer(pool, dataset, run, name, in_scope=name in scope, how=how) for name in wanted]


class _How(NamedTuple):
    keep_frozen: bool
    repairable: bool


def _plan_retailer(pool: Pool, dataset: Dataset, run: Run, name: str, *, in_scope: bool, how: _How) -> PlannedRetailer:
    retailer = dataset.retailers.get(name)
    if not in_scope:
        return PlannedRetailer(
            name,
            problem=f"retailer {name} is not in the scope of {run.run_id}, which was fixed when the run was made; "
            "it begins with the next window",
        )
    if retailer is None:
        return PlannedRetailer(
            name,
            problem=f"retailer {name} is in the scope of {run.run_id} but no longer declared; put its file back",
        )
    try:
        with postgres.transaction(pool) as tx:
            return _plan_in(tx, dataset, run, retailer, how)
    except DeclarationError as error:
        return PlannedRetailer(name, problem=str(error))


def _plan_in(tx: Transaction, dataset: Dataset, run: Run, retailer: Retailer, how: _How) -> PlannedRetailer:
    runs.lock_partition(tx, run.run_id, retailer.name)
    partition = runs.partitions(tx, run.run_id)[retailer.name]
    frozen = freeze(dataset, retailer)
    if partition.planned_at is not None:
        changed_since = frozen.manifest_hash != partition.manifest_hash or frozen.page_sources != partition.page_sources
        changed = declaration.differences(partition.manifest or {}, frozen.manifest)
        if how.keep_frozen and any(key.startswith("schema.") for key in changed):
            return PlannedRetailer(
                retailer.name,
                partition.planned,
                partition.rejected,
                resumed=True,
                problem=f"the schema changed since {run.run_id} was planned: {', '.join(changed)}. All retailers are "
                "judged by one schema, so --frozen cannot go on with the old one; put it back to finish this run",
            )
        open_tasks = candidates.count_open(tx, run.run_id, retailer.name)
        if changed_since and not how.keep_frozen and not (how.repairable and not open_tasks):
            at = f"{dataset.dataset} --window {run.collection_window}"
            repair = f"repair it with the new ones: scrape-assets recover {at} --retailer {retailer.name}. "
            way_out = (
                "Put the old values back to resume this run, go on with what it was planned with: "
                f"scrape-assets run {at} --frozen; or {repair}"
                if open_tasks
                else "Nothing of it is open: its pages were collected with the old values and are not asked for again. "
                f"To {repair}"
            )
            return PlannedRetailer(
                retailer.name,
                partition.planned,
                partition.rejected,
                resumed=True,
                problem=f"the frozen part of {retailer.name} changed since {run.run_id} was planned: "
                f"{', '.join(changed or ['pages.py'])}. {way_out}"
                "The new values take effect with the next window, or at once in another one (--window)",
            )
        runs.apply_live(
            tx,
            run.run_id,
            retailer.name,
            budgets=_budgets(dataset, retailer, partition.origins),
            max_attempts=dataset.retry.attempts,
            deadline_seconds=dataset.deadline_seconds,
        )
        return PlannedRetailer(retailer.name, partition.planned, partition.rejected, resumed=True)

    rejected: list[Rejection] = []

    def tasks() -> Iterator[PlannedTask]:
        for line in lines(retailer):
            if isinstance(line, inventory.Rejected):
                rejected.append(Rejection(line.number, line.text, line.reason))
                continue
            yield PlannedTask(
                keys.task_key(
                    dataset.dataset,
                    retailer.name,
                    line.context,
                    line.page_type,
                    line.canonical_url,
                    run.collection_window,
                ),
                line.context,
                line.page_type,
                line.url,
                line.canonical_url,
                urls.origin(line.canonical_url),
                line.entity,
                line.priority,
                retailer.urls.mode != "file",
            )

    canary = dataset.accept_for(retailer.name).canary
    planned, origins = runs.insert_tasks(
        tx,
        run.run_id,
        retailer.name,
        tasks(),
        max_attempts=dataset.retry.attempts,
        canary=canary,
        open_tasks=retailer.fetch.open_tasks,
    )
    if not planned:
        raise DeclarationError(f"{no_pages(retailer, rejected, len(rejected))}; nothing of it was planned")
    runs.record_rejections(tx, run.run_id, retailer.name, rejected)
    runs.freeze(
        tx,
        run.run_id,
        retailer.name,
        manifest=frozen.manifest,
        manifest_hash=frozen.manifest_hash,
        extractor_version=frozen.extractor_version,
        page_sources=frozen.page_sources,
        origin_names=origins,
        planned=planned,
        rejected=len(rejected),
        canary=canary,
    )
    runs.apply_live(
        tx,
        run.run_id,
        retailer.name,
        budgets=_budgets(dataset, retailer, origins),
        max_attempts=dataset.retry.attempts,
        deadline_seconds=dataset.deadline_seconds,
    )
    return PlannedRetailer(retailer.name, planned, len(rejected))


def _budgets(dataset: Dataset, retailer: Retailer, origins: Sequence[str]) -> dict[str, Budget]:
    """Of every origin that its pages, and the set-ups of its contexts, are asked of."""
    setups = [context.request(retailer.site) for context in retailer.contexts.values()]
    whole = {*origins, *(urls.origin(request.url) for request in setups if request is not None)}
    return {origin: dataset.budget(origin) for origin in sorted(whole)}
