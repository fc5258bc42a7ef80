"""Publish: the accepted dataset candidate becomes the version that stands, its event in the same transaction.

The first version of a window is all its rows; each further one is a correction, and holds only what it changes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from scrape_assets import failpoints
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import CandidateRejected
from scrape_assets.flow import accept, waive
from scrape_assets.rules import acceptance, keys, versions
from scrape_assets.store import candidates, postgres, publication, runs
from scrape_assets.store.candidates import DatasetCandidate, Member
from scrape_assets.store.postgres import Pool, Transaction
from scrape_assets.store.runs import Run

LATE_SINCE = timedelta(days=2)
"""A promise that is declared today does not make last month late."""

LATE_WINDOWS = 60
"""The newest windows without a version that are looked at for one that is late."""


@dataclass(frozen=True, slots=True)
class Published:
    """The version that stands. `new` is false when this candidate had been published before.

    `changes` counts its rows that are new, corrected and withdrawn, `gaps` names retailers that it lacks or carries,
    `held` counts the rules that failed and did not stop it.
    """

    dataset_version: int
    rows: int
    new: bool
    changes: dict[str, int] = field(default_factory=dict, compare=False)
    gaps: dict[str, str] = field(default_factory=dict, compare=False)
    held: int = field(default=0, compare=False)


def publish(pool: Pool, dataset: Dataset, run_id: str, *, now: datetime | None = None) -> Published:
    """The newest dataset candidate is published, once; CandidateRejected with the reasons when it may not be.

    The run is locked, then its partitions in name order; only what is read after that is believed. This is the
    lock that holds, whoever asks: a check in Dagster acts inside one run alone.
    """
    published = _publish(pool, dataset, run_id, now or datetime.now(UTC))
    failpoints.reach("K16")
    return published


def _publish(pool: Pool, dataset: Dataset, run_id: str, now: datetime) -> Published:
    with postgres.transaction(pool) as tx:
        run = publication.lock(tx, run_id)
        if run is None:
            raise CandidateRejected(f"{run_id} was never planned: collect the window first")
        members = candidates.members(tx, run_id)
        standing = candidates.standing(tx, run_id)
        proposal = accept.proposed(tx, dataset, run, now)
        if standing and proposal.members and accept.is_published(dataset, proposal.members, standing):
            return _stands(standing, members)
        newest = candidates.dataset_candidate(tx, run_id)
        if newest is None:
            raise CandidateRejected(
                f"{run_id} has no dataset candidate yet: {proposal.waiting_for or 'run the window to judge it'}"
            )
        if newest.state == "published":
            if proposal.members:
                raise CandidateRejected(
                    f"{run_id} changed since version {newest.dataset_version}, and nobody judged it together yet; "
                    "run the window again to judge what is there. The version stands"
                )
            return _stands(newest, members)
        if newest.state != "accepted":
            # Each in a line of its own: they are read one by one.
            reasons = _reasons(tx, run_id, newest, members) or ["it was not judged yet"]
            raise CandidateRejected(
                f"candidate {newest.sequence} of {run_id} is {newest.state}, not accepted; nothing is published and "
                "the last good version stands\n" + "\n".join(reasons)
            )
        if moved := _moved(newest.members, members):
            raise CandidateRejected(
                f"candidate {newest.sequence} of {run_id} was accepted with other rows than {moved} has now; "
                "run the window again to judge what is there"
            )
        if expired := _expired(tx, run_id, newest, members):
            raise CandidateRejected(f"{run_id} rests on {expired}; run the window again to judge it without")
        version = publication.last_version(tx, run_id) + 1
        columns = (newest.verdict or {}).get("columns") or dataset.schema_columns
        changes = {
            row.dataset_version: versions.schema_changes((row.verdict or {}).get("columns"), columns)
            for row in publication.versions(tx, run_id)
        }
        misfits = changes[version - 1][1] if version > 1 else []
        if misfits:
            raise CandidateRejected(f"{run_id}: {', '.join(misfits)} since version {version - 1}; it stands")
        retailers = versions.accepted_members(newest.members)
        held = publication.publish(
            tx,
            run,
            newest.sequence,
            version,
            retailers=retailers,
            added={number: added for number, (added, _) in changes.items()},
            kept=[name for name in retailers if dataset.accept_for(name).keep_unverified],
        )
        failpoints.reach("K15", lambda: postgres.lose(tx))
        unheeded = _held(newest, members)
        _announce(tx, dataset, run, newest, version, held, unheeded)
        return Published(version, held["rows"], True, held["changes"], gaps_of(newest.members), unheeded)


def _announce(
    tx: Transaction,
    dataset: Dataset,
    run: Run,
    candidate: DatasetCandidate,
    version: int,
    held: dict[str, Any],
    unheeded: int,
) -> None:
    """The event of a version, due at every declared destination."""
    event_id = uuid.uuid4()
    publication.write_event(
        tx,
        run.run_id,
        event_id,
        "dataset.published",
        {
            **_about(run, event_id),
            "dataset_version": version,
            "supersedes_version": version - 1 if version > 1 else None,
            "rows": held["rows"],
            "changes": held["changes"],
            "content_hash": candidate.content_hash,
            "columns": sorted((candidate.verdict or {}).get("columns") or dataset.schema_columns),
            "members": candidate.members,
            "gaps": gaps_of(candidate.members),
            "held": unheeded,
            "unverified": {name: one["unverified"] for name, one in held["retailers"].items() if one["unverified"]},
        },
        {name: keys.idempotency_key(event_id, name) for name in dataset.publish.to},
    )


def _about(run: Run, event_id: uuid.UUID) -> dict[str, Any]:
    return {
        "event_id": str(event_id),
        "dataset": run.dataset_id,
        "window": run.collection_window,
        "window_start": run.window_start.isoformat(),
        "window_end": run.window_end.isoformat(),
    }


def say_late(pool: Pool, dataset: Dataset, now: datetime | None = None) -> list[str]:
    """Windows whose `publish.by` passed without a version are said to be late, each once; returns their keys.

    The event names the last good version, which stands, and why there is no newer one. A window whose time passed days
    ago, or whose run does not exist, is not said to be late.
    """
    if dataset.publish.by is None:
        return []
    now = now or datetime.now(UTC)
    found = []
    with postgres.transaction(pool) as tx:
        for run in publication.without_version(tx, dataset.dataset, LATE_WINDOWS):
            promised = dataset.promised_at(run.window_start)
            if promised is None or not is_announced(promised, now):
                continue
            event_id = uuid.uuid4()
            good = publication.last_good(tx, dataset.dataset, run.window_start)
            told = {
                **_about(run, event_id),
                "promised_at": promised.isoformat(),
                "reasons": why_not(tx, run),
                "last_good": None
                if good is None
                else {"window": good.collection_window, "dataset_version": good.dataset_version},
            }
            said = publication.write_event(
                tx,
                run.run_id,
                event_id,
                "dataset.late",
                # A destination is asked by it whether it has the event.
                {**told, "content_hash": keys.payload_hash(told)},
                {name: keys.idempotency_key(event_id, name) for name in dataset.publish.to},
            )
            if said:
                found.append(run.collection_window)
    return found


def is_announced(promised: datetime | None, now: datetime) -> bool:
    """Whether a window that has no version now is one that consumers are told of as late."""
    return promised is not None and versions.late(promised, now) and now - promised <= LATE_SINCE


def why_not(tx: Transaction, run: Run) -> list[str]:
    """Why a window has no version, or no newer one: what is undecided, and every reason of what was rejected."""
    members = candidates.members(tx, run.run_id)
    partitions = runs.partitions(tx, run.run_id)
    reasons = []
    for member in members:
        paused = partitions[member.retailer].pause_reason
        if member.state == "rejected" and member.verdict:
            reasons += [f"{member.retailer}: {why}" for why in acceptance.reasons(member.verdict["checks"])]
        elif member.state not in versions.DECIDED:
            reasons.append(
                f"{member.retailer} is {member.state or 'not planned'}" + (f", and paused: {paused}" if paused else "")
            )
    newest = candidates.dataset_candidate(tx, run.run_id)
    if newest and newest.state == "rejected":
        reasons += acceptance.reasons((newest.verdict or {}).get("checks", []))
    return reasons


def releasable(pool: Pool, dataset: Dataset, now: datetime | None = None) -> list[str]:
    """The windows that only wait for somebody to judge their retailers together and publish them."""
    now = now or datetime.now(UTC)
    windows = []
    with postgres.transaction(pool) as tx:
        for run_id, window in candidates.perhaps_releasable(tx, dataset.dataset):
            run = runs.find(tx, run_id)
            assert run is not None
            members = accept.proposed(tx, dataset, run, now).members
            standing, newest = candidates.standing(tx, run_id), candidates.dataset_candidate(tx, run_id)
            rejected = (
                newest is not None
                and newest.state == "rejected"
                and versions.still_holds(members, newest.members, newest.verdict)
            )
            wanted = dataset.publish.when != "complete" or len(versions.accepted_members(members)) == len(members)
            if wanted and versions.waits_for_release(
                members, published=standing and standing.members, rejected=rejected
            ):
                windows.append(window)
    return windows


def _stands(candidate: DatasetCandidate, members: Sequence[Member]) -> Published:
    assert candidate.dataset_version is not None
    held = candidate.publication or {}
    return Published(
        candidate.dataset_version,
        int(held.get("rows", 0)),
        False,
        held.get("changes", {}),
        gaps_of(candidate.members),
        _held(candidate, members),
    )


def _held(candidate: DatasetCandidate, members: Sequence[Member]) -> int:
    """How many rules failed, of the whole and of its accepted retailers, and were held back."""
    taken = versions.accepted_members(candidate.members)
    verdicts = [candidate.verdict, *(m.verdict for m in members if m.retailer in taken)]
    return sum(len(acceptance.held_back((verdict or {}).get("checks", []))) for verdict in verdicts)


def gaps_of(members: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Retailers that a version lacks, or carries from an earlier one, and what they are instead."""
    return {
        member["retailer"]: f"{member['state'] or 'not planned'}, "
        + (f"kept from version {member['carried_from_version']}" if member["carried_from_version"] else "missing")
        for member in members
        if member["state"] != "accepted"
    }


def _moved(named: Sequence[dict[str, Any]], members: Sequence[Member]) -> str | None:
    """The first accepted retailer that is not any more what the candidate names."""
    current = {m.retailer: (m.generation, m.content_hash, m.state) for m in members}
    for member in named:
        if member["state"] == "accepted" and current.get(member["retailer"]) != (
            member["generation"],
            member["content_hash"],
            "accepted",
        ):
            return str(member["retailer"])
    return None


def _expired(tx: Transaction, run_id: str, candidate: DatasetCandidate, members: Sequence[Member]) -> str | None:
    """A waiver that the candidate or one of its members needed, and that is over, or was revoked since."""
    now = candidates.clock(tx)
    until = {str(one.waiver_id): one.until for one, _ in candidates.all_waivers(tx, run_id)}
    taken = set(versions.accepted_members(candidate.members))
    used = [*((candidate.verdict or {}).get("waivers", []))]
    used += [one for m in members if m.retailer in taken for one in (m.verdict or {}).get("waivers", [])]
    for waiver in used:
        ends = until.get(waiver["waiver_id"], datetime.fromisoformat(waiver["until"]))
        if ends.timestamp() <= now:
            return f"a waiver of {waiver['rule']} by {waiver['owner']} that ended {ends.isoformat()}"
    return None


def _reasons(tx: Transaction, run_id: str, candidate: DatasetCandidate, members: Sequence[Member]) -> list[str]:
    checks = (candidate.verdict or {}).get("checks", [])
    waivers = candidates.all_waivers(tx, run_id)
    reasons = acceptance.reasons(checks)
    reasons += waive.ended_of(waivers, None, [check["rule"] for check in acceptance.failing(checks)])
    for member in members:
        if member.state == "rejected" and member.verdict:
            failing = [check["rule"] for check in acceptance.failing(member.verdict["checks"])]
            told = acceptance.reasons(member.verdict["checks"]) + waive.ended_of(waivers, member.retailer, failing)
            reasons += [f"{member.retailer}: {why}" for why in told]
    return reasons
