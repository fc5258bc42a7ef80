"""Waive: a person answers for one failing rule of one run, for a time, in their own name."""

from __future__ import annotations

import uuid
from datetime import datetime

from scrape_assets.errors import DeclarationError
from scrape_assets.rules import acceptance
from scrape_assets.store import candidates, postgres, runs
from scrape_assets.store.candidates import Waiver
from scrape_assets.store.postgres import Pool

PLACEHOLDERS = ("YOU", "WHY")
"""What the command that `why` offers says in place of owner and reason."""


def waive(
    pool: Pool, run_id: str, rule: str, *, retailer: str | None, owner: str, reason: str, until: datetime, now: datetime
) -> Waiver:
    """The waiver counts when the run is judged next; it stays in the provenance of a version that needed it.

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
            raise DeclarationError(
                f"{run_id} was not judged by a rule {rule} for {whose}; "
                + (f"there are {', '.join(known)}" if known else "it was not judged yet")
                + ("" if retailer else ". --retailer names whose rule it is")
            )
        waiver = Waiver(uuid.uuid4(), run_id, retailer, rule, owner.strip(), reason.strip(), until)
        candidates.add_waiver(tx, waiver)
    return waiver
