"""Accept: a retailer's rows are judged when nothing of it is open, the dataset when every retailer is decided.

Judging happens outside the locks; accepting compares, under them, what was judged with what is there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scrape_assets import failpoints
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.flow import judging
from scrape_assets.rules import acceptance, refusals, versions
from scrape_assets.rules.versions import Proposal
from scrape_assets.store import candidates, postgres, publication, runs
from scrape_assets.store.candidates import Candidate, Content, DatasetCandidate
from scrape_assets.store.postgres import Pool, Transaction
from scrape_assets.store.runs import Run

TRIES = 5
"""A candidate that changes while it is judged is judged again, this often."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One judgement. `state` is accepted, rejected, or `collecting` when there is nothing to judge yet."""

    subject: str
    state: str
    checks: list[dict[str, Any]]
    waiting_for: str = ""
    generation: int | None = None
    sequence: int | None = None

    @property
    def reasons(self) -> list[str]:
        """One line for each rule that stopped it."""
        return acceptance.reasons(self.checks)


def accept_retailer(pool: Pool, dataset: Dataset, run_id: str, retailer: str) -> Verdict:
    """The retailer is accepted or rejected under the acceptance rules as declared now, or still collects.

    An earlier verdict over the same rows and the same rules stands and is returned; a rejection only while it would be
    compared with the same windows, of which one may have been repaired. A canary that nobody judged yet is
    judged first: the retailer was closed before the rest could follow.
    """
    for _ in range(TRIES):
        _judge_forgotten_canary(pool, dataset, run_id, retailer)
        with postgres.transaction(pool) as tx:
            partition = runs.lock_partition(tx, run_id, retailer)
            candidate = candidates.current(tx, run_id, retailer)
            if candidate is None:
                return Verdict(retailer, "collecting", [], "it is not planned")
            open_tasks = candidates.count_open(tx, run_id, retailer)
            if open_tasks:
                paused = (
                    f", and it is {refusals.in_words(partition.pause_reason)}"
                    if partition and partition.pause_reason
                    else ""
                )
                return Verdict(retailer, "collecting", [], f"{open_tasks} tasks are open{paused}", candidate.generation)
            content = candidates.content(tx, run_id, retailer)
            waivers = candidates.waivers(tx, run_id, retailer)
            rules = {**dataset.accept_rules(retailer), "waivers": [waiver.record() for waiver in waivers]}
            run = runs.find(tx, run_id)
            assert run is not None
            beside = judging.named(judging.compared_with(tx, dataset, run, retailer))
            if standing := _standing(candidate, content, rules, beside):
                return Verdict(retailer, candidate.state, standing["checks"], generation=candidate.generation)
            if candidate.state != "candidate":
                candidates.to_candidate(tx, run_id, retailer, candidate.generation)
            counts = candidates.counts(tx, run_id, retailer)
        found, figures = judging.judge(pool, dataset, run, retailer, counts, content)
        waived = frozenset(waiver.rule for waiver in waivers)
        judged = acceptance.settled(found, dry_run=dataset.accept_for(retailer).dry_run, waived=waived)
        accepted, checks = acceptance.accepted(judged), [check.record() for check in judged]
        verdict = {
            "accepted": accepted,
            "rows": content.rows,
            "rules": rules,
            "checks": checks,
            "figures": figures,
            # Only those that somebody needed: they are what the version rests on.
            "waivers": [
                waiver.record()
                for waiver in waivers
                if any(check.rule == waiver.rule and check.held == "waived" for check in judged)
            ],
        }
        failpoints.reach("K14")
        with postgres.transaction(pool) as tx:
            runs.lock_partition(tx, run_id, retailer)
            current = candidates.current(tx, run_id, retailer)
            if current is None or current.generation != candidate.generation or current.state != "candidate":
                continue
            if candidates.content(tx, run_id, retailer) != content:
                continue
            candidates.decide(
                tx,
                run_id,
                retailer,
                generation=candidate.generation,
                accepted=accepted,
                content_hash=content.content_hash,
                verdict=verdict,
            )
            return Verdict(retailer, "accepted" if accepted else "rejected", checks, generation=candidate.generation)
    raise ScrapeAssetsError(f"{retailer} of {run_id} changed each of the {TRIES} times it was judged; run it again")


def undecided(pool: Pool, dataset: Dataset) -> list[tuple[str, str, str]]:
    """(run_id, retailer, window) of declared retailers of which nothing is open and that nobody judged."""
    with postgres.transaction(pool) as tx:
        return [one for one in candidates.undecided(tx, dataset.dataset) if one[1] in dataset.retailers]


def _standing(
    candidate: Candidate, content: Content, rules: dict[str, Any], beside: list[list[str]]
) -> dict[str, Any] | None:
    """The verdict that still holds: same rows, same rules; for a rejection, also the same windows beside them."""
    verdict = candidate.verdict
    if candidate.state not in ("accepted", "rejected") or verdict is None:
        return None
    if candidate.state == "rejected" and verdict.get("figures", {}).get("beside", {}).get("windows") != beside:
        return None
    return verdict if (candidate.content_hash, verdict["rules"]) == (content.content_hash, rules) else None


def _judge_forgotten_canary(pool: Pool, dataset: Dataset, run_id: str, retailer: str) -> None:
    with postgres.transaction(pool) as tx:
        partition = runs.partitions(tx, run_id).get(retailer)
        forgotten = partition is not None and partition.canary == "running"
        forgotten = forgotten and not candidates.count_open(tx, run_id, retailer)
    if forgotten:
        judge_canary(pool, dataset, run_id, retailer)


def judge_canary(pool: Pool, dataset: Dataset, run_id: str, retailer: str) -> bool:
    """Whether the rest of the retailer may follow its canary; if not, it is stopped and the reason says why."""
    with postgres.transaction(pool) as tx:
        run, partition = runs.find(tx, run_id), runs.partitions(tx, run_id)[retailer]
        waived = frozenset(waiver.rule for waiver in candidates.waivers(tx, run_id, retailer))
    if run is None or partition.canary != "running":
        return partition.canary in ("none", "passed")
    found, pages = judging.canary(pool, dataset, run, retailer)
    judged = acceptance.settled(found, dry_run=dataset.accept_for(retailer).dry_run, waived=waived)
    passed, checks = acceptance.accepted(judged), [check.record() for check in judged]
    reason = f"its canary of {pages} pages failed: {'; '.join(acceptance.reasons(checks))}"
    with postgres.transaction(pool) as tx:
        runs.lock_partition(tx, run_id, retailer)
        decided = candidates.decide_canary(
            tx,
            run_id,
            retailer,
            recovery_batch_id=partition.recovery_batch_id,
            passed=passed,
            checks=checks,
            reason=reason,
        )
    return decided and passed


def accept_dataset(pool: Pool, dataset: Dataset, run_id: str, *, now: datetime | None = None) -> Verdict:
    """The dataset candidate is accepted or rejected once the policy says that its time has come; `now`: this moment.

    The same members in the same state are not judged twice, and those of the version that stands are that version.
    """
    with postgres.transaction(pool) as tx:
        run = publication.lock(tx, run_id)
        if run is None:
            return Verdict(run_id, "collecting", [], "it was never planned")
        proposal = proposed(tx, dataset, run, now or datetime.now(UTC))
        if not proposal.members:
            return Verdict(run_id, "collecting", [], proposal.waiting_for)
        members = proposal.members
        standing = candidates.standing(tx, run_id)
        if standing and standing.verdict and is_published(dataset, members, standing):
            return Verdict(run_id, standing.state, standing.verdict["checks"], sequence=standing.sequence)
        waivers = candidates.waivers(tx, run_id, None)
        newest = candidates.dataset_candidate(tx, run_id)
        if (
            newest
            and newest.verdict
            and versions.still_holds(members, newest.members, newest.verdict)
            and newest.verdict.get("considered", []) == [str(waiver.waiver_id) for waiver in waivers]
        ):
            return Verdict(run_id, newest.state, newest.verdict["checks"], sequence=newest.sequence)
        content_hash = hashlib.sha256("\n".join(str(member["content_hash"]) for member in members).encode()).hexdigest()
        taken = versions.accepted_members(members)
        limits = dataset.accept.limits
        before = versions.rows_before(
            taken, [row.retailers for row in candidates.versions_before(tx, run_id, limits.drift_over)]
        )
        rows = versions.row_count(dataset.publish.when, members)
        then = (standing.verdict or {}).get("columns") if standing else None
        _, misfits = versions.schema_changes(then, dataset.schema_columns)
        found = [
            acceptance.members_accepted(
                {member["retailer"]: member["state"] for member in members},
                all_of_them=dataset.publish.when == "complete",
            )
        ]
        if found[0].passed:
            # Of an incomplete whole nothing else can be said.
            found += [
                acceptance.not_empty(rows),
                acceptance.unique_entities(candidates.duplicate_entities(tx, run_id, taken)),
                acceptance.dataset_rows(rows, before, limits.drift_rows, limits.warm_up),
                acceptance.schema_versions(misfits, standing.dataset_version if standing else None),
            ]
        checks = acceptance.settled(found, dry_run=limits.dry_run, waived=frozenset(waiver.rule for waiver in waivers))
        records = [check.record() for check in checks]
        accepted = acceptance.accepted(checks)
        sequence = candidates.open_dataset_candidate(tx, run_id, members, content_hash)
        candidates.decide_dataset(
            tx,
            run_id,
            sequence=sequence,
            accepted=accepted,
            content_hash=content_hash,
            verdict={
                "accepted": accepted,
                "checks": records,
                "columns": dataset.schema_columns,
                "considered": [str(waiver.waiver_id) for waiver in waivers],
                # Only those that somebody needed: they are what the version rests on.
                "waivers": [
                    waiver.record()
                    for waiver in waivers
                    if any(check.rule == waiver.rule and check.held == "waived" for check in checks)
                ],
                "member_drift": {
                    m.retailer: said
                    for m in candidates.members(tx, run_id)
                    if m.retailer in taken and (said := acceptance.drift_unjudged(m.verdict))
                },
                "member_waivers": {
                    m.retailer: m.verdict["waivers"]
                    for m in candidates.members(tx, run_id)
                    if m.retailer in taken and m.verdict and m.verdict.get("waivers")
                },
            },
        )
        return Verdict(run_id, "accepted" if accepted else "rejected", records, sequence=sequence)


def proposed(tx: Transaction, dataset: Dataset, run: Run, now: datetime) -> Proposal:
    """What a version of this window would be made of now, under the declared policy."""
    return versions.propose(
        dataset.publish.when,
        candidates.members(tx, run.run_id),
        candidates.published_content(tx, run.run_id),
        due=versions.late(dataset.promised_at(run.window_start), now),
    )


def is_published(dataset: Dataset, members: Sequence[dict[str, Any]], standing: DatasetCandidate | None) -> bool:
    """Whether a version of these members would hold what stands; `complete` wants all of them accepted besides."""
    wanted = dataset.publish.when != "complete" or len(versions.accepted_members(members)) == len(members)
    return standing is not None and wanted and versions.same_content(members, standing.members)
