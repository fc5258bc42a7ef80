"""Candidates: a retailer's rows under test, and the dataset's attempts to become a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from scrape_assets.rules.template import Page
from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction
from scrape_assets.store.runs import Run


class Candidate(NamedTuple):
    """A retailer's current generation."""

    generation: int
    state: str
    verdict: dict[str, Any] | None
    content_hash: str | None


class Member(NamedTuple):
    """One retailer of a dataset candidate; all but the name is None for a retailer that was never planned."""

    retailer: str
    generation: int | None
    state: str | None
    content_hash: str | None
    verdict: dict[str, Any] | None


class DatasetCandidate(NamedTuple):
    """An attempt to make a version of a run."""

    sequence: int
    state: str
    members: list[dict[str, Any]]
    verdict: dict[str, Any] | None
    content_hash: str
    dataset_version: int | None
    publication: dict[str, Any] | None


class PublishedContent(NamedTuple):
    """What the version that stands holds of one retailer."""

    dataset_version: int
    retailer: str
    rows: int
    content_hash: str


class Earlier(NamedTuple):
    """An accepted window of a retailer that another one is compared with, with the figures of its verdict."""

    run_id: str
    collection_window: str
    window_start: datetime
    figures: dict[str, Any]
    content_hash: str


class Waiver(NamedTuple):
    """Somebody's responsibility for one failing rule, until then."""

    waiver_id: UUID
    run_id: str
    retailer: str | None
    rule: str
    owner: str
    reason: str
    until: datetime

    def record(self) -> dict[str, str]:
        """As a verdict and the provenance of a version keep it."""
        return {
            "waiver_id": str(self.waiver_id),
            "rule": self.rule,
            "owner": self.owner,
            "reason": self.reason,
            "until": self.until.isoformat(),
        }


class Content(NamedTuple):
    """What a candidate holds: rows, and a hash over all of them."""

    rows: int
    content_hash: str


class Counts(NamedTuple):
    """A partition's tasks by how they ended."""

    planned: int
    committed: int
    gone: int
    quarantined: int
    collisions: int


def current(tx: Transaction, run_id: str, retailer: str) -> Candidate | None:
    """The retailer's newest generation, if it was planned."""
    row = sql.maybe(tx, "get_candidate", run_id=run_id, retailer=retailer)
    return Candidate(*row) if row else None


def count_open(tx: Transaction, run_id: str, retailer: str) -> int:
    """Tasks that are pending, waiting or leased."""
    return int(sql.one(tx, "count_open", run_id=run_id, retailer=retailer).open)


def to_candidate(tx: Transaction, run_id: str, retailer: str, generation: int) -> None:
    """The generation is up for judgement; versions that relied on its old verdict can no longer be published."""
    sql.execute(tx, "to_candidate", run_id=run_id, retailer=retailer, generation=generation)
    sql.execute(tx, "reject_moved_dataset_candidates", run_id=run_id, retailer=retailer)


def content(tx: Transaction, run_id: str, retailer: str) -> Content:
    """The valid rows' number and hash."""
    return Content(*sql.one(tx, "content_hash", run_id=run_id, retailer=retailer))


def counts(tx: Transaction, run_id: str, retailer: str) -> Counts:
    """The partition's logical tasks; attempts do not count."""
    by_state = {row.state: row.tasks for row in sql.many(tx, "count_tasks", run_id=run_id, retailer=retailer)}
    collisions = sql.one(tx, "count_collisions", run_id=run_id, retailer=retailer).collisions
    return Counts(
        sum(by_state.values()),
        by_state.get("committed", 0),
        by_state.get("gone", 0),
        by_state.get("quarantined", 0),
        collisions,
    )


def rows(tx: Transaction, run_id: str, retailer: str) -> Iterator[tuple[Any, ...]]:
    """Every valid row, streamed.

    entity_key, context, the task's URL, SHA-256 of the page's bytes, payload_hash, observed_at as epoch seconds, and
    the payload as JSON text.
    """
    query = sql.queries()["copy_candidate_rows"].text.encode()
    with tx.cursor().copy(query, {"run_id": run_id, "retailer": retailer}) as copy:
        copy.set_types(["text", "text", "text", "text", "text", "float8", "text"])
        yield from copy.rows()


def templates(tx: Transaction, run_id: str, retailer: str) -> list[Page]:
    """Every page that gave a row that stands, and whose template is known."""
    query = sql.queries()["copy_templates"].text.encode()
    with tx.cursor().copy(query, {"run_id": run_id, "retailer": retailer}) as copy:
        copy.set_types(["text"] * 5)
        return [Page(*row) for row in copy.rows()]


def earlier_rows(tx: Transaction, run_id: str, retailer: str) -> Iterator[tuple[Any, ...]]:
    """Of an earlier run's valid rows: entity_key, context, price, list_price, currency, payload_hash."""
    query = sql.queries()["copy_earlier_rows"].text.encode()
    with tx.cursor().copy(query, {"run_id": run_id, "retailer": retailer}) as copy:
        copy.set_types(["text"] * 6)
        yield from copy.rows()


def published_rows(tx: Transaction, run: Run, retailer: str, dataset_version: int) -> Iterator[tuple[Any, ...]]:
    """The same of a published version of this window."""
    query = sql.queries()["copy_published_rows"].text.encode()
    asked = {
        "dataset_id": run.dataset_id,
        "collection_window": run.collection_window,
        "dataset_version": dataset_version,
        "retailer": retailer,
    }
    with tx.cursor().copy(query, asked) as copy:
        copy.set_types(["text"] * 6)
        yield from copy.rows()


def accepted_windows(
    tx: Transaction, run_id: str, retailer: str, at_most: int, *, later: bool = False
) -> list[Earlier]:
    """The retailer's accepted windows before that of this run, or after it, the nearest first."""
    rows = sql.many(tx, "accepted_windows", run_id=run_id, retailer=retailer, at_most=at_most, later=later)
    return [Earlier(*row) for row in rows]


def extractors(tx: Transaction, run_id: str, retailer: str) -> set[str]:
    """The extractor versions that gave the retailer's rows."""
    return {row.extractor_version for row in sql.many(tx, "get_extractors", run_id=run_id, retailer=retailer)}


def published_content(tx: Transaction, run_id: str) -> dict[str, PublishedContent]:
    """What the version of this run that stands holds, by retailer."""
    return {row.retailer: PublishedContent(*row) for row in sql.many(tx, "published_content", run_id=run_id)}


def undiscovered(tx: Transaction, run_id: str, retailer: str, earlier_run_id: str) -> int:
    """Pages that gave rows in the earlier window and that are no task of this one."""
    return int(sql.one(tx, "count_undiscovered", run_id=run_id, retailer=retailer, earlier_run_id=earlier_run_id).pages)


def page_states(tx: Transaction, run_id: str, retailer: str) -> dict[str, int]:
    """Ended tasks by what their last answer turned out to be."""
    return {row.page_state: row.tasks for row in sql.many(tx, "last_page_states", run_id=run_id, retailer=retailer)}


def canary_counts(tx: Transaction, run_id: str, retailer: str) -> Any:
    """planned, committed, gone and quarantined among the canary's tasks."""
    return sql.one(tx, "count_canary", run_id=run_id, retailer=retailer)


def decide_canary(
    tx: Transaction,
    run_id: str,
    retailer: str,
    *,
    recovery_batch_id: UUID | None,
    passed: bool,
    checks: Sequence[Mapping[str, Any]],
    reason: str,
) -> bool:
    """The canary is over: the rest may follow, or the retailer is stopped.

    False when somebody decided before, or when the canary is another one than that of this batch.
    """
    row = sql.maybe(
        tx,
        "decide_canary",
        run_id=run_id,
        retailer=retailer,
        recovery_batch_id=recovery_batch_id,
        passed=passed,
        checks=Jsonb(checks),
        reason=reason,
    )
    return row is not None


def versions_before(tx: Transaction, run_id: str, at_most: int) -> list[Any]:
    """What the last published earlier windows hold of each retailer, newest first."""
    return sql.many(tx, "versions_before", run_id=run_id, at_most=at_most)


def add_waiver(tx: Transaction, waiver: Waiver) -> None:
    """The waiver counts from now on."""
    sql.execute(tx, "add_waiver", **waiver._asdict())


def waivers(tx: Transaction, run_id: str, retailer: str | None) -> list[Waiver]:
    """Those that count now, of one retailer, or of the dataset."""
    return [Waiver(*row) for row in sql.many(tx, "get_waivers", run_id=run_id, retailer=retailer)]


def all_waivers(tx: Transaction, run_id: str) -> list[tuple[Waiver, bool]]:
    """All of the run, the oldest first, each with whether it still counts."""
    return [(Waiver(*row[:-1]), row[-1]) for row in sql.many(tx, "get_run_waivers", run_id=run_id)]


def end_waiver(tx: Transaction, run_id: str, waiver_id: UUID) -> Waiver | None:
    """It counts no more, and stays on record; None when it was over, or is none of this run."""
    row = sql.maybe(tx, "end_waiver", run_id=run_id, waiver_id=waiver_id)
    return Waiver(*row) if row else None


def clock(tx: Transaction) -> float:
    """The database's time, as epoch seconds."""
    return float(sql.one(tx, "clock").now)


def decide(
    tx: Transaction,
    run_id: str,
    retailer: str,
    *,
    generation: int,
    accepted: bool,
    content_hash: str,
    verdict: Mapping[str, Any],
) -> None:
    """The candidate is accepted or rejected, and the verdict is appended to the record of all verdicts."""
    sql.execute(
        tx,
        "decide_candidate",
        run_id=run_id,
        retailer=retailer,
        generation=generation,
        accepted=accepted,
        content_hash=content_hash,
        verdict=Jsonb(verdict),
    )
    _append(tx, run_id, retailer, generation, None, accepted, content_hash, verdict)


def members(tx: Transaction, run_id: str) -> list[Member]:
    """Every retailer of the run's scope with its current generation."""
    return [Member(*row) for row in sql.many(tx, "get_members", run_id=run_id)]


def verdicts(tx: Transaction, run_id: str) -> list[Any]:
    """The last judgement of every generation of the run's retailers."""
    return sql.many(tx, "get_verdicts", run_id=run_id)


def dataset_candidate(tx: Transaction, run_id: str) -> DatasetCandidate | None:
    """The newest attempt to make a version."""
    row = sql.maybe(tx, "get_dataset_candidate", run_id=run_id)
    return DatasetCandidate(*row) if row else None


def standing(tx: Transaction, run_id: str) -> DatasetCandidate | None:
    """The attempt that became the version that stands."""
    row = sql.maybe(tx, "get_published_candidate", run_id=run_id)
    return DatasetCandidate(*row) if row else None


def perhaps_releasable(tx: Transaction, dataset_id: str) -> list[tuple[str, str]]:
    """(run_id, window) of which something is accepted and that may lack a version of it, the oldest first."""
    return [(row.run_id, row.collection_window) for row in sql.many(tx, "find_releasable", dataset_id=dataset_id)]


def undecided(tx: Transaction, dataset_id: str) -> list[tuple[str, str, str]]:
    """(run_id, retailer, window) of which nothing is open and that nobody judged, the oldest window first."""
    return [
        (row.run_id, row.retailer, row.collection_window)
        for row in sql.many(tx, "find_undecided", dataset_id=dataset_id)
    ]


def open_dataset_candidate(
    tx: Transaction, run_id: str, members: Sequence[Mapping[str, Any]], content_hash: str
) -> int:
    """A new attempt that names its members; returns its sequence."""
    row = sql.one(tx, "open_dataset_candidate", run_id=run_id, members=Jsonb(members), content_hash=content_hash)
    return int(row.sequence)


def decide_dataset(
    tx: Transaction, run_id: str, *, sequence: int, accepted: bool, content_hash: str, verdict: Mapping[str, Any]
) -> None:
    """The dataset candidate is accepted or rejected, and the verdict is appended."""
    sql.execute(
        tx, "decide_dataset_candidate", run_id=run_id, sequence=sequence, accepted=accepted, verdict=Jsonb(verdict)
    )
    _append(tx, run_id, None, None, sequence, accepted, content_hash, verdict)


def duplicate_entities(tx: Transaction, run_id: str, retailers: Sequence[str]) -> int:
    """Entities with more than one valid row over these retailers of the run."""
    return int(sql.one(tx, "count_duplicate_entities", run_id=run_id, retailers=list(retailers)).entities)


def _append(
    tx: Transaction,
    run_id: str,
    retailer: str | None,
    generation: int | None,
    sequence: int | None,
    accepted: bool,
    content_hash: str,
    verdict: Mapping[str, Any],
) -> None:
    sql.execute(
        tx,
        "append_verdict",
        run_id=run_id,
        retailer=retailer,
        generation=generation,
        sequence=sequence,
        accepted=accepted,
        content_hash=content_hash,
        checks=Jsonb(verdict["checks"]),
    )
