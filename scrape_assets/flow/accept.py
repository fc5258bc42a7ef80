"""Accept: a retailer's rows are judged when nothing of it is open, the dataset when every retailer is decided.

Judging happens outside the locks; accepting compares, under them, what was judged with what is there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from scrape_assets import failpoints
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.rules import acceptance
from scrape_assets.rules.acceptance import Check
from scrape_assets.store import candidates, postgres, publication, runs
from scrape_assets.store.candidates import Candidate, Content, Counts
from scrape_assets.store.postgres import Pool

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

    An earlier verdict over the same rows and the same rules stands and is returned.
    """
    for _ in range(TRIES):
        with postgres.transaction(pool) as tx:
            partition = runs.lock_partition(tx, run_id, retailer)
            candidate = candidates.current(tx, run_id, retailer)
            if candidate is None:
                return Verdict(retailer, "collecting", [], "it is not planned")
            open_tasks = candidates.count_open(tx, run_id, retailer)
            if open_tasks:
                paused = f", and it is paused: {partition.pause_reason}" if partition and partition.pause_reason else ""
                return Verdict(retailer, "collecting", [], f"{open_tasks} tasks are open{paused}", candidate.generation)
            content = candidates.content(tx, run_id, retailer)
            rules = dataset.accept_rules(retailer)
            if standing := _standing(candidate, content, rules):
                return Verdict(retailer, candidate.state, standing["checks"], generation=candidate.generation)
            if candidate.state != "candidate":
                candidates.to_candidate(tx, run_id, retailer, candidate.generation)
            counts = candidates.counts(tx, run_id, retailer)
        judged = _judge(pool, dataset, run_id, retailer, counts, content)
        accepted, checks = acceptance.accepted(judged), [check.record() for check in judged]
        verdict = {"accepted": accepted, "rows": content.rows, "rules": rules, "checks": checks}
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


def _standing(candidate: Candidate, content: Content, rules: dict[str, Any]) -> dict[str, Any] | None:
    """The verdict that still holds: same rows, same rules."""
    verdict = candidate.verdict
    if candidate.state not in ("accepted", "rejected") or verdict is None:
        return None
    return verdict if (candidate.content_hash, verdict["rules"]) == (content.content_hash, rules) else None


def _judge(pool: Pool, dataset: Dataset, run_id: str, retailer: str, counts: Counts, content: Content) -> list[Check]:
    # pandas and pandera take seconds to import and 100 MB to hold; a worker that only collects needs neither.
    from scrape_assets.datasets import schemas  # noqa: PLC0415
    from scrape_assets.rules import validate  # noqa: PLC0415

    rules = dataset.accept_for(retailer)
    with postgres.transaction(pool) as tx:
        planned_at = runs.partitions(tx, run_id)[retailer].planned_at
        # Rows carry the database's time: this machine's clock has no say in whether they are of the future.
        now = candidates.clock(tx)
        table = validate.frame(candidates.rows(tx, run_id, retailer), dataset.columns)
    assert planned_at is not None
    return [
        acceptance.not_empty(content.rows),
        acceptance.coverage(
            planned=counts.planned, committed=counts.committed, gone=counts.gone, at_least=rules.coverage
        ),
        acceptance.collisions(counts.collisions),
        *validate.judge(
            table,
            schemas.load(dataset),
            rules.required,
            collected_from=planned_at.timestamp(),
            now=now,
        ),
    ]


def accept_dataset(pool: Pool, run_id: str) -> Verdict:
    """The dataset candidate is accepted or rejected once every retailer of the run's scope is decided.

    The same members in the same state are not judged twice, and those of the version that stands are that version.
    """
    with postgres.transaction(pool) as tx:
        if publication.lock(tx, run_id) is None:
            return Verdict(run_id, "collecting", [], "it was never planned")
        members = candidates.members(tx, run_id)
        waited_for = [m for m in members if m.state not in ("accepted", "rejected")]
        if waited_for:
            waiting = ", ".join(f"{m.retailer} is {m.state or 'not planned'}" for m in waited_for)
            return Verdict(run_id, "collecting", [], waiting)
        named = [member.named for member in members]
        version = candidates.standing(tx, run_id)
        if version and version.verdict and version.members == named:
            return Verdict(run_id, version.state, version.verdict["checks"], sequence=version.sequence)
        newest = candidates.dataset_candidate(tx, run_id)
        if newest and newest.verdict and acceptance.still_holds(named, newest.members, newest.verdict):
            return Verdict(run_id, newest.state, newest.verdict["checks"], sequence=newest.sequence)
        content_hash = hashlib.sha256("\n".join(str(m.content_hash) for m in members).encode()).hexdigest()
        checks = [
            acceptance.members_accepted({m.retailer: m.state for m in members}),
            acceptance.not_empty(sum(int(member["rows"]) for member in named)),
            acceptance.unique_entities(candidates.duplicate_entities(tx, run_id)),
        ]
        records = [check.record() for check in checks]
        accepted = acceptance.accepted(checks)
        sequence = candidates.open_dataset_candidate(tx, run_id, named, content_hash)
        candidates.decide_dataset(
            tx,
            run_id,
            sequence=sequence,
            accepted=accepted,
            content_hash=content_hash,
            verdict={"accepted": accepted, "checks": records},
        )
        return Verdict(run_id, "accepted" if accepted else "rejected", records, sequence=sequence)
