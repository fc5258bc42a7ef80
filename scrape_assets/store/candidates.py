"""Candidates: a retailer's rows under test, and the dataset's attempts to become a version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction


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

    @property
    def named(self) -> dict[str, Any]:
        """As a dataset candidate names it: exactly this generation, these rows and this verdict."""
        return {
            "retailer": self.retailer,
            "generation": self.generation,
            "content_hash": self.content_hash,
            "state": self.state,
            "rows": (self.verdict or {}).get("rows", 0),
            "carried_from_version": None,
        }


class DatasetCandidate(NamedTuple):
    """An attempt to make a version of a run."""

    sequence: int
    state: str
    members: list[dict[str, Any]]
    verdict: dict[str, Any] | None
    content_hash: str
    dataset_version: int | None


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
    """(entity_key, context, url, observed_at as epoch seconds, payload as JSON text) of every valid row, streamed."""
    query = sql.queries()["copy_candidate_rows"].text.encode()
    with tx.cursor().copy(query, {"run_id": run_id, "retailer": retailer}) as copy:
        copy.set_types(["text", "text", "text", "float8", "text"])
        yield from copy.rows()


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


def dataset_candidate(tx: Transaction, run_id: str) -> DatasetCandidate | None:
    """The newest attempt to make a version."""
    row = sql.maybe(tx, "get_dataset_candidate", run_id=run_id)
    return DatasetCandidate(*row) if row else None


def standing(tx: Transaction, run_id: str) -> DatasetCandidate | None:
    """The attempt that became the version that stands."""
    row = sql.maybe(tx, "get_published_candidate", run_id=run_id)
    return DatasetCandidate(*row) if row else None


def with_all_accepted(tx: Transaction, dataset_id: str) -> list[tuple[str, str]]:
    """(run_id, window) where all retailers are accepted and that may lack a version of it, the oldest first."""
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


def duplicate_entities(tx: Transaction, run_id: str) -> int:
    """Entities with more than one valid row over all retailers of the run."""
    return int(sql.one(tx, "count_duplicate_entities", run_id=run_id).entities)


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
