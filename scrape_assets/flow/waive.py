"""Waive: a person answers for one failing rule of one run, for a time, in their own name."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime

from scrape_assets.errors import DeclarationError
from scrape_assets.rules import acceptance
from scrape_assets.rules.near import near
from scrape_assets.store import candidates, postgres, runs
from scrape_assets.store.candidates import Waiver
from scrape_assets.store.postgres import Pool, Transaction

PLACEHOLDERS = ("YOU", "WHY")
"""What the command that `why` offers says in place of owner and reason."""


def waive(
    pool: Pool, run_id: str, rule: str, *, retailer: str | None, owner: str, reason: str, until: datetime, now: datetime
) -> tuple[Waiver, bool]:
    """The waiver counts when the run is judged next; it stays in the provenance of a version that needed it.

    Returned with whether it is needed: whether the rule failed when it was judged last.

    DeclarationError for a rule that the last verdict does not know, that nobody may waive, or for a time that is over.
    """
    if not owner.strip() or not reason.strip():
        raise DeclarationError("a waiver names who answers for it and why: --owner and --reason")
    if owner.strip() == PLACEHOLDERS[0] or reason.strip() == PLACEHOLDERS[1]:
        raise DeclarationError(
            f"{' and '.join(PLACEHOLDERS)} stand for a name and a reason, which stay with the version; put in yours"
        )
    if until <= now:
        raise DeclarationError(f"--until {until.isoformat()} is over; a waiver ends in the future")
    if rule in acceptance.NEVER_WAIVED:
        raise DeclarationError(f"{rule} keeps the versions of a window together; nobody can waive it")
    with postgres.transaction(pool) as tx:
        if runs.find(tx, run_id) is None:
            raise DeclarationError(f"{run_id} was never planned")
        members = {member.retailer: member for member in candidates.members(tx, run_id)}
        if retailer is not None and retailer not in members:
            raise DeclarationError(f"{run_id} has no retailer {retailer}; it has {', '.join(sorted(members))}")
        newest = candidates.dataset_candidate(tx, run_id)
        verdict = members[retailer].verdict if retailer is not None else newest and newest.verdict
        checks = list((verdict or {}).get("checks", []))
        if retailer is not None:
            checks += runs.partitions(tx, run_id)[retailer].canary_checks or []
        known = sorted({check["rule"] for check in checks})
        if rule not in known:
            whose = retailer or "the retailers together"
            meant = near(rule, known)
            raise DeclarationError(
                f"{run_id} was not judged by a rule {rule} for {whose}; "
                + (f"did you mean {meant!r}? " if meant else "")
                + (f"there are {', '.join(known)}" if known else "it was not judged yet")
                + ("" if retailer else ". --retailer names whose rule it is")
            )
        waiver = Waiver(uuid.uuid4(), run_id, retailer, rule, owner.strip(), reason.strip(), until)
        candidates.add_waiver(tx, waiver)
        needed = any(check["rule"] == rule and not check["passed"] for check in checks)
    return waiver, needed


def listed(pool: Pool, run_id: str) -> list[tuple[Waiver, bool]]:
    """All waivers of the run, each with whether it still counts; DeclarationError for a run never planned."""
    with postgres.transaction(pool) as tx:
        if runs.find(tx, run_id) is None:
            raise DeclarationError(f"{run_id} was never planned")
        return candidates.all_waivers(tx, run_id)


def revoke(pool: Pool, run_id: str, waiver_id: str) -> Waiver:
    """The waiver counts no more and stays on record; DeclarationError for one that is over, or none of the run."""
    try:
        wanted = uuid.UUID(waiver_id)
    except ValueError as error:
        raise DeclarationError(
            f"--revoke {waiver_id!r} is no waiver; expected its id, as `waive --list` shows"
        ) from error
    with postgres.transaction(pool) as tx:
        if ended := candidates.end_waiver(tx, run_id, wanted):
            return ended
        over = {waiver.waiver_id: waiver for waiver, _ in candidates.all_waivers(tx, run_id)}.get(wanted)
    if over is None:
        raise DeclarationError(f"{run_id} has no waiver {waiver_id}; `scrape-assets waive --list --run {run_id}`")
    raise DeclarationError(f"the waiver {waiver_id} of {over.rule} ended {over.until:%Y-%m-%d %H:%M} UTC already")


def ended(tx: Transaction, run_id: str, retailer: str | None, failing: Iterable[str]) -> list[str]:
    """Waivers that these failing rules had and have no more, in words."""
    return ended_of(candidates.all_waivers(tx, run_id), retailer, failing)


def ended_of(waivers: Sequence[tuple[Waiver, bool]], retailer: str | None, failing: Iterable[str]) -> list[str]:
    """Those of this retailer, or of all together, that are over and whose rule fails."""
    rules = set(failing)
    counting = {waiver.rule for waiver, counts in waivers if counts and waiver.retailer == retailer}
    return [
        f"the waiver of {waiver.rule} by {waiver.owner} ended {waiver.until:%Y-%m-%d %H:%M} UTC"
        for waiver, counts in waivers
        if not counts and waiver.retailer == retailer and waiver.rule in rules - counting
    ]
