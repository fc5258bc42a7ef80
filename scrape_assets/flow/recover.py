"""Recover: a repair under the original run. The same task keys, new attempts, and nothing else moves.

A batch opens the selected tasks of one retailer again, with the declaration as it stands now; collecting, judging and
publishing then go on as ever. Where the page is stored and only its reading changed, no request is made.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scrape_assets.datasets import declaration
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import judging, plan, stored
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.plan import Frozen
from scrape_assets.rules import recovery as rules
from scrape_assets.rules import versions
from scrape_assets.rules.recovery import PAGE_RULES, Selection
from scrape_assets.sources.extractor import ExtractorPool, Judgement
from scrape_assets.store import candidates, observe, postgres, recovery, runs
from scrape_assets.store.observe import StoredPage
from scrape_assets.store.postgres import Pool, Transaction
from scrape_assets.store.recovery import Batch, EndedTask
from scrape_assets.store.runs import Partition, Run

SAMPLE = 20
"""Stored pages that a preview reads."""


class NothingToRepair(DeclarationError):
    """The selection fits nothing: an error for whoever asked, and a quiet end for a partition materialized again."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What a recovery batch of one retailer would take, or took. `joined` are open tasks that come along."""

    retailer: str
    tasks: tuple[EndedTask, ...]
    stored: tuple[EndedTask, ...]
    joined: int
    joined_stored: int
    changed: tuple[str, ...]
    frozen: Frozen
    interval_seconds: float
    stands: bool
    """Rows of it are published in the version that stands."""
    canary_failed: bool
    """It was stopped by its canary, which begins anew."""
    past_window: str | None
    """The window, where it is over: what is fetched now is of today."""

    @property
    def warning(self) -> str:
        """What asking the site now would do to what is published of a past window; nothing where it does nothing."""
        if not (self.stands and self.past_window and self.requests):
            return ""
        pages = "1 page" if self.requests == 1 else f"{self.requests} pages"
        return f"{pages} will be fetched now for the past window {self.past_window}; their prices are today's"

    @property
    def requests(self) -> int:
        """How many pages the site is asked for, if every stored one can be read."""
        return len(self.tasks) - len(self.stored) + self.joined - self.joined_stored

    def record(self) -> dict[str, Any]:
        """As plain JSON, with every task."""
        bytes_of = {task.task_key for task in self.stored}
        return {
            "retailer": self.retailer,
            "tasks": len(self.tasks) + self.joined,
            "selected": len(self.tasks),
            "joined": self.joined,
            "from_artifacts": len(self.stored) + self.joined_stored,
            "requests": self.requests,
            "warning": self.warning or None,
            "canary_failed": self.canary_failed,
            "seconds_at_declared_rate": self.requests * self.interval_seconds,
            "changed": list(self.changed),
            "extractor_version": self.frozen.extractor_version,
            "urls": [
                {
                    "url": task.url,
                    "state": task.state,
                    "failure_class": task.last_failure_class if task.state != "committed" else None,
                    "from_artifact": task.task_key in bytes_of,
                }
                for task in self.tasks
            ],
        }


@dataclass(frozen=True, slots=True)
class Begun:
    """A batch that was opened."""

    recovery_batch_id: uuid.UUID
    repair: Repair
    taken: int


def select(pool: Pool, dataset: Dataset, run_id: str, selection: Selection) -> list[Repair]:
    """What a repair would take of each retailer; DeclarationError when it would take nothing, or cannot be.

    A retailer whose published rows stand is taken only when it is named, or its pages are.
    """
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        partitions = {name: p for name, p in runs.partitions(tx, run_id).items() if p.planned_at is not None}
        states = {member.retailer: member.state for member in candidates.members(tx, run_id)}
        published = set(candidates.published_content(tx, run_id))
        given_up = {name: candidates.counts(tx, run_id, name).quarantined for name in partitions}
    if run is None or not partitions:
        raise DeclarationError(f"{run_id} was never planned; `scrape-assets run` collects it")
    if unknown := sorted(set(selection.retailers) - set(partitions)):
        raise DeclarationError(
            f"{run_id} has no planned retailer {', '.join(unknown)}; it has {', '.join(sorted(partitions))}"
        )
    if gone := sorted(set(selection.retailers) - set(dataset.retailers)):
        raise DeclarationError(f"{', '.join(gone)} is no longer declared; put its file back")
    declared = [name for name in sorted(partitions) if name in dataset.retailers]
    changed = (
        set()
        if selection.retailers or selection.names_pages
        else {name for name in declared if _differs(pool, dataset, name, partitions[name])}
    )
    names = selection.retailers or tuple(
        name
        for name in declared
        if selection.names_pages
        or rules.repaired_unnamed(
            state=states[name], stands=name in published, quarantined=given_up[name], changed=name in changed
        )
    )
    if not names:
        otherwise = f"{', '.join(sorted(changed))} declared otherwise than collected" if changed else "none changed"
        raise DeclarationError(
            f"nothing of {run_id} is rejected or lacks pages, and what is published of it stands ({otherwise}); name "
            "what to repair: --retailer, --failure-class, --rule or --urls"
        )
    if selection.rule is not None:
        failing = _failing(pool, dataset, run, names, selection.rule)
        names = selection.retailers or tuple(name for name in names if name in failing or name not in published)
    found = [_select(pool, dataset, run, partitions[name], selection, stands=name in published) for name in names]
    repairs = [one for one in found if one.tasks or (one.joined and one.changed)]
    if not repairs:
        raise NothingToRepair(f"the selection fits no page of {run_id} that has ended; nothing was done")
    return repairs


def _differs(pool: Pool, dataset: Dataset, name: str, partition: Partition) -> bool:
    """Whether the retailer is declared otherwise than it was collected, or than a part of it was."""
    if differences(dataset, name, partition):
        return True
    with postgres.transaction(pool) as tx:
        return recovery.has_other_extractor(tx, partition.run_id, name, str(partition.extractor_version))


def _failing(pool: Pool, dataset: Dataset, run: Run, names: Sequence[str], rule: str) -> set[str]:
    """Those that fail the rule as it judges now; DeclarationError for a rule that none of them is judged by."""
    judged = [(name, check) for name in names for check in judging.now_says(pool, dataset, run, name)]
    known = {check.rule for _, check in judged}
    if rule not in known:
        raise DeclarationError(
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not judged by a rule {rule}; "
            f"there are {', '.join(sorted(known))}"
        )
    return {name for name, check in judged if check.rule == rule and not check.passed}


def differences(dataset: Dataset, name: str, partition: Partition) -> list[str]:
    """The keys in which the retailer is declared otherwise now than the partition's newest plan or repair has it."""
    now = plan.freeze(dataset, dataset.retailers[name])
    changed = declaration.differences(partition.manifest or {}, now.manifest)
    return changed or (["pages.py"] if now.page_sources != partition.page_sources else [])


def _select(
    pool: Pool, dataset: Dataset, run: Run, partition: Partition, selection: Selection, *, stands: bool
) -> Repair:
    retailer = dataset.retailers[partition.retailer]
    frozen = plan.freeze(dataset, retailer)
    with postgres.transaction(pool) as tx:
        ended = recovery.ended(
            tx,
            run.run_id,
            retailer.name,
            page_type=selection.page_type,
            failure_class=selection.failure_class,
            urls=selection.urls,
        )
        committed = candidates.counts(tx, run.run_id, retailer.name).committed
        joined, joined_stored = recovery.joining(tx, run.run_id, retailer.name)
    if selection.rule is not None:
        ended = _breaking(pool, dataset, run, retailer, ended, selection.rule)
    elif selection.failure_class is None and selection.urls is None:
        ended = [
            task
            for task in ended
            if rules.taken_by_default(
                task.state,
                task.failure_class,
                mode=selection.mode,
                extractor_changed=task.extractor_version != frozen.extractor_version,
            )
        ]
    changed = differences(dataset, retailer.name, partition)
    left_out = committed - sum(1 for task in ended if task.state == "committed")
    if wrong := rules.obstacles(changed, left_out=left_out):
        raise DeclarationError(
            f"{retailer.name} of {run.run_id} cannot be repaired under this declaration: {'; '.join(wrong)}. "
            "What changed takes effect with the next window"
        )
    return Repair(
        retailer.name,
        tuple(ended),
        tuple(
            task
            for task in ended
            if rules.reads_bytes(
                selection.mode,
                stored=task.place is not None,
                from_page=rules.decided_by_extractor(task.state, task.failure_class),
                extractor_changed=task.extractor_version != frozen.extractor_version,
            )
        ),
        joined,
        0 if selection.mode == "refetch" else joined_stored,
        tuple(changed),
        frozen,
        retailer.fetch.interval_seconds,
        stands,
        partition.canary == "failed",
        run.collection_window if run.window_end <= datetime.now(UTC) else None,
    )


def _breaking(
    pool: Pool, dataset: Dataset, run: Run, retailer: Retailer, ended: Sequence[EndedTask], rule: str
) -> list[EndedTask]:
    """Those whose page, or whose rows, break the rule."""
    if rule in PAGE_RULES:
        return [task for task in ended if rules.breaks_page_rule(rule, task.state, task.page_state)]
    check = next((check for check in judging.now_says(pool, dataset, run, retailer.name) if check.rule == rule), None)
    if check is None:
        return []
    if rule == "discovery":
        broken = [task for task in ended if task.discovers and (task.state != "committed" or task.problem)]
        # Where all of them were read well, what they named is not all: the lists are walked again.
        return broken or [task for task in ended if task.discovers and not check.passed]
    if check.pages:
        return [task for task in ended if task.state == "committed" and task.url in check.pages]
    # A rule about all rows together, as their number: each of them may be the cause.
    return [] if check.passed else [task for task in ended if task.state == "committed"]


def begin(pool: Pool, dataset: Dataset, run_id: str, selection: Selection, repairs: Sequence[Repair]) -> list[Begun]:
    """A batch for each: its tasks are open again and work with the declaration as it stands.

    One transaction for each retailer, under its lock; DeclarationError while pages of it are under way.
    """
    begun = []
    for repair in repairs:
        bytes_of = {task.task_key: task.sha256 for task in repair.stored}
        batch = Batch(
            recovery_batch_id=uuid.uuid4(),
            run_id=run_id,
            retailer=repair.retailer,
            manifest=repair.frozen.manifest,
            manifest_hash=repair.frozen.manifest_hash,
            extractor_version=repair.frozen.extractor_version,
            page_sources=repair.frozen.page_sources,
            selection=selection.record(),
            selected={task.task_key: bytes_of.get(task.task_key) for task in repair.tasks},
            max_attempts=dataset.retry.attempts,
            canary=bool(dataset.accept_for(repair.retailer).canary),
            refetch=selection.mode == "refetch",
        )
        with postgres.transaction(pool) as tx:
            partition = runs.lock_partition(tx, run_id, repair.retailer)
            candidate = candidates.current(tx, run_id, repair.retailer)
            assert partition is not None
            assert candidate is not None
            _refuse_while_leased(tx, run_id, repair.retailer)
            taken = recovery.open_batch(
                tx, batch, generation=candidate.generation, collecting=candidate.state == "collecting"
            )
            # Claims take no lock of the partition's: one that was answered meanwhile is seen now.
            _refuse_while_leased(tx, run_id, repair.retailer)
            runs.apply_live(
                tx,
                run_id,
                repair.retailer,
                budgets={
                    origin: dataset.budget(origin) for origin in runs.partitions(tx, run_id)[repair.retailer].origins
                },
                max_attempts=dataset.retry.attempts,
                deadline_seconds=dataset.deadline_seconds,
            )
        begun.append(Begun(batch.recovery_batch_id, repair, taken))
    return begun


def _refuse_while_leased(tx: Transaction, run_id: str, retailer: str) -> None:
    under_way = recovery.leased(tx, run_id, retailer)
    if under_way.leased:
        raise DeclarationError(
            f"{under_way.leased} pages of {retailer} of {run_id} are under way; pause it and try again "
            f"when they have ended, in {under_way.free_in_seconds or 0:.0f} s at the latest"
        )


def rematerialize(pool: Pool, dataset: Dataset, run_id: str, retailer: str, selection: Selection) -> list[Begun]:
    """Materializing a partition once more repairs it where there is something to repair; nothing begins otherwise."""
    with postgres.transaction(pool) as tx:
        partition = runs.partitions(tx, run_id).get(retailer)
        candidate = candidates.current(tx, run_id, retailer)
        open_tasks = candidates.count_open(tx, run_id, retailer)
    if partition is None or partition.planned_at is None or candidate is None:
        return []
    wanted = rules.rematerializing_repairs(
        decided=candidate.state in versions.DECIDED and not open_tasks,
        changed=_differs(pool, dataset, retailer, partition),
        selected=selection.names_tasks,
    )
    if not wanted:
        return []
    mine = selection._replace(retailers=(retailer,))
    try:
        repairs = select(pool, dataset, run_id, mine)
    except NothingToRepair:
        return []
    return begin(pool, dataset, run_id, mine, repairs)


async def preview(
    pool: Pool, dataset: Dataset, run_id: str, repair: Repair, artifacts: Path, sample: int = SAMPLE
) -> dict[str, Any]:
    """What a sample of the stored pages would say: pages read, those that would fail, every value that would change."""
    tasks = [task for task in repair.stored if not task.discovers][:sample]
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        now = recovery.rows_of(tx, [task.task_key for task in tasks])
    assert run is not None
    work = Assignment(run, dataset, dataset.retailers[repair.retailer], repair.frozen, ())
    pages = [
        StoredPage(
            task.task_key, task.url, task.canonical_url, task.context, task.entity, task.state,
            task.last_failure_class, task.page_state, None, task.sha256 or "", task.place,
        )
        for task in tasks
        if task.place is not None
    ]  # fmt: skip
    changes: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for page, judged in await extract_again(work, pages, artifacts):
        if judged is None:
            reason = "its stored page cannot be read; the site is asked"
            failed.append({"url": page.url, "failure_class": None, "reason": reason})
        elif judged.failure_class is not None:
            failed.append(
                {
                    "url": page.url,
                    "failure_class": judged.failure_class,
                    "reason": f"{judged.failure_class}: {judged.reason}",
                }
            )
        else:
            changes += [
                {"url": page.url, **change} for change in rules.value_changes(now[page.task_key], judged.observations())
            ]
    return {
        "retailer": repair.retailer,
        "pages": len(pages),
        "would_fail": sum(one["failure_class"] is not None for one in failed),
        "failed": failed,
        "changes": changes,
    }


async def extract_again(
    work: Assignment, pages: Sequence[StoredPage], artifacts: Path
) -> list[tuple[StoredPage, Judgement | None]]:
    """What each stored page says as `work` declares it; None for one that cannot be read. Nothing is stored."""
    found: list[tuple[StoredPage, Judgement | None]] = []
    async with ExtractorPool(1) as extractors:
        for page in pages:
            answer = stored.page(artifacts, page.place, page.sha256, page.canonical_url)
            judged = None
            if answer is not None:
                judged = await extractors.judge(
                    answer[0],
                    work.setup,
                    canonical_url=page.canonical_url,
                    context=page.context,
                    entity=page.entity,
                )
            found.append((page, judged))
    return found


def contents(pool: Pool, run_id: str) -> dict[str, tuple[int, str]]:
    """Rows and hash of every partition of a run, to be compared before and after."""
    with postgres.transaction(pool) as tx:
        return recovery.contents(tx, run_id)


def proof(
    before: Mapping[str, tuple[int, str]], after: Mapping[str, tuple[int, str]], repaired: Sequence[str]
) -> list[dict[str, Any]]:
    """Every partition by its hash before and after, and whether it moved and was meant to."""
    return [
        {
            "retailer": name,
            "repaired": name in repaired,
            "rows_before": before[name][0],
            "rows": after[name][0],
            "before": before[name][1],
            "after": after[name][1],
            "moved": before[name] != after[name],
        }
        for name in sorted(before)
    ]


def progress(pool: Pool, begun: Sequence[Begun]) -> list[dict[str, Any]]:
    """What became of each batch's tasks, and how often the site was asked."""
    with postgres.transaction(pool) as tx:
        return [
            {
                "recovery_batch_id": str(one.recovery_batch_id),
                "retailer": one.repair.retailer,
                "tasks": one.taken,
                "selected": len(one.repair.tasks),
                "joined": one.repair.joined,
                "from_artifacts": len(one.repair.stored) + one.repair.joined_stored,
                "extractor_version": one.repair.frozen.extractor_version,
                **recovery.progress(tx, one.recovery_batch_id)._asdict(),
            }
            for one in begun
        ]


def stored_sample(pool: Pool, run_id: str, retailer: str, at_most: int) -> list[StoredPage]:
    """A fair sample of the retailer's pages whose bytes are stored."""
    with postgres.transaction(pool) as tx:
        return observe.stored_pages(tx, run_id, retailer, at_most=at_most)
