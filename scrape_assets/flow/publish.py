"""Publish: the accepted dataset candidate becomes the version that stands, its event in the same transaction."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from scrape_assets import failpoints
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import CandidateRejected
from scrape_assets.rules import acceptance, keys
from scrape_assets.store import candidates, postgres, publication
from scrape_assets.store.postgres import Pool


@dataclass(frozen=True, slots=True)
class Published:
    """The version that stands. `new` is false when this candidate had been published before."""

    dataset_version: int
    rows: int
    new: bool


def publish(pool: Pool, dataset: Dataset, run_id: str) -> Published:
    """The newest dataset candidate is published, once; CandidateRejected with the reasons when it may not be.

    The run is locked, then its partitions in name order; only what is read after that is believed. This is the
    lock that holds, whoever asks: a check in Dagster acts inside one run alone.
    """
    published = _publish(pool, dataset, run_id)
    failpoints.reach("K16")
    return published


def _publish(pool: Pool, dataset: Dataset, run_id: str) -> Published:
    with postgres.transaction(pool) as tx:
        run = publication.lock(tx, run_id)
        if run is None:
            raise CandidateRejected(f"{run_id} was never planned: collect the window first")
        members = candidates.members(tx, run_id)
        standing = candidates.standing(tx, run_id)
        if standing and standing.dataset_version and standing.members == [member.named for member in members]:
            return Published(standing.dataset_version, _rows(standing.members), new=False)
        newest = candidates.dataset_candidate(tx, run_id)
        if newest is None:
            raise CandidateRejected(f"{run_id} has no dataset candidate yet: {_still_missing(members)}")
        if newest.state == "published" and newest.dataset_version is not None:
            return Published(newest.dataset_version, _rows(newest.members), new=False)
        if newest.state != "accepted":
            reasons = acceptance.reasons((newest.verdict or {}).get("checks", []))
            for member in members:
                if member.state == "rejected" and member.verdict:
                    reasons += [f"{member.retailer}: {why}" for why in acceptance.reasons(member.verdict["checks"])]
            raise CandidateRejected(
                f"candidate {newest.sequence} of {run_id} is {newest.state}, not accepted; nothing is published and "
                f"the last good version stands. {'; '.join(reasons) or 'It was not judged yet'}"
            )
        if moved := _moved(newest.members, members):
            raise CandidateRejected(
                f"candidate {newest.sequence} of {run_id} was accepted with other rows than {moved} has now; "
                "run the window again to judge what is there"
            )
        version = publication.last_version(tx, run_id) + 1
        rows = publication.publish(tx, run_id, newest.sequence, version)
        failpoints.reach("K15", lambda: postgres.lose(tx))
        event_id = uuid.uuid4()
        publication.write_event(
            tx,
            run_id,
            event_id,
            {
                "event_id": str(event_id),
                "dataset": run.dataset_id,
                "window": run.collection_window,
                "window_start": run.window_start.isoformat(),
                "window_end": run.window_end.isoformat(),
                "dataset_version": version,
                "rows": rows,
                "content_hash": newest.content_hash,
                "members": newest.members,
            },
            {name: keys.idempotency_key(event_id, name) for name in dataset.publish.to},
        )
        return Published(version, rows, new=True)


def releasable(pool: Pool, dataset: Dataset) -> list[str]:
    """The windows that only wait for somebody to judge their retailers together and publish them."""
    windows = []
    with postgres.transaction(pool) as tx:
        for run_id, window in candidates.with_all_accepted(tx, dataset.dataset):
            named = [member.named for member in candidates.members(tx, run_id)]
            standing, newest = candidates.standing(tx, run_id), candidates.dataset_candidate(tx, run_id)
            rejected = (
                newest is not None
                and newest.state == "rejected"
                and acceptance.still_holds(named, newest.members, newest.verdict)
            )
            if acceptance.waits_for_release(named, published=standing and standing.members, rejected=rejected):
                windows.append(window)
    return windows


def _moved(named: list[dict[str, Any]], members: list[candidates.Member]) -> str | None:
    """The first retailer that is not any more what the candidate names."""
    current = {m.retailer: (m.generation, m.content_hash, m.state) for m in members}
    for member in named:
        if current.get(member["retailer"]) != (member["generation"], member["content_hash"], "accepted"):
            return str(member["retailer"])
    return None


def _still_missing(members: list[candidates.Member]) -> str:
    undecided = [m for m in members if m.state not in ("accepted", "rejected")]
    return ", ".join(f"{m.retailer} is {m.state or 'not planned'}" for m in undecided) or "run the window to judge it"


def _rows(members: list[dict[str, Any]]) -> int:
    return sum(int(member["rows"]) for member in members)
