"""Status: what a run stands at, as one plain value that commands and Dagster's metadata show."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from scrape_assets.flow import publish
from scrape_assets.rules import acceptance
from scrape_assets.store import candidates, discovery, observe, outbox, postgres, runs
from scrape_assets.store.postgres import Pool

REASONS = 3
"""The commonest reasons that are told for a retailer's given up pages; `failed` has them all."""


def run_status(pool: Pool, run_id: str) -> dict[str, Any] | None:
    """The run's retailers, verdicts, version and deliveries; None when it was never planned."""
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        if run is None:
            return None
        failures: dict[str, dict[str, int]] = defaultdict(dict)
        for row in observe.failure_counts(tx, run_id):
            failures[row.retailer][row.failure_class] = row.attempts
        pages: dict[str, dict[str, int]] = defaultdict(dict)
        for row in observe.page_state_counts(tx, run_id):
            pages[row.retailer][row.page_state] = row.attempts
        again = {row.retailer: row._asdict() for row in observe.to_try_again(tx, run_id)}
        given_up: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in observe.given_up(tx, run_id, REASONS):
            given_up[row.retailer].append(
                {"failure_class": row.failure_class, "reason": row.reason, "pages": row.pages}
            )
        waiting: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in discovery.waiting(tx, run_id):
            waiting[row.retailer].append(
                {"origin": row.origin, "pages": row.pages, "oldest_seconds": round(row.oldest_seconds, 1)}
            )
        retailers = [
            {
                **_retailer(row, failures[row.retailer], pages[row.retailer]),
                "waiting_for_room": waiting[row.retailer],
                "to_try_again": again.get(row.retailer),
                "given_up": given_up[row.retailer],
            }
            for row in observe.partition_counts(tx, run_id)
        ]
        newest, standing = candidates.dataset_candidate(tx, run_id), candidates.standing(tx, run_id)
        paused = observe.pauses(tx, run_id)
        deliveries = [
            {
                "destination": row.destination,
                "state": row.state,
                "dataset_version": row.dataset_version,
                "tries": row.tries,
                "receipt": row.receipt,
                "last_error": row.last_error,
            }
            for row in outbox.deliveries(tx, run_id)
        ]
    return {
        "run_id": run.run_id,
        "dataset": run.dataset_id,
        "window": run.collection_window,
        "window_start": run.window_start,
        "window_end": run.window_end,
        "retailers": retailers,
        "tasks": {key: sum(r["tasks"][key] for r in retailers) for key in retailers[0]["tasks"]} if retailers else {},
        "attempts": sum(r["attempts"] for r in retailers),
        "observations": sum(r["observations"] for r in retailers),
        "candidate": None
        if newest is None
        else {
            "sequence": newest.sequence,
            "state": newest.state,
            "dataset_version": newest.dataset_version,
            "reasons": acceptance.reasons((newest.verdict or {}).get("checks", [])),
            "held": acceptance.held_back((newest.verdict or {}).get("checks", [])),
        },
        "version": None
        if standing is None
        else {
            "dataset_version": standing.dataset_version,
            "rows": (standing.publication or {}).get("rows"),
            "gaps": publish.gaps_of(standing.members),
        },
        "paused_origins": [
            {"origin": row.origin, "until": row.paused_until, "reason": row.pause_reason} for row in paused
        ],
        "deliveries": deliveries,
    }


def in_words(failure_class: str, reason: str | None) -> str:
    """The failure class and its reason, which may begin with that very word."""
    if not reason:
        return failure_class
    return reason if reason.startswith(f"{failure_class}: ") else f"{failure_class}: {reason}"


def _retailer(row: Any, failures: dict[str, int], pages: dict[str, int]) -> dict[str, Any]:
    # Pages that only name others are no part of what is to be obtained.
    obtainable = row.planned - row.lists - (row.gone - row.lists_gone)
    open_ = row.pending + row.retry_wait + row.leased + row.waiting
    return {
        "retailer": row.retailer,
        "planned": row.planned_at is not None,
        "tasks": {
            "planned": row.planned,
            "committed": row.committed,
            "gone": row.gone,
            "quarantined": row.quarantined,
            "open": open_,
            "leased": row.leased,
        },
        "oldest_due_seconds": None if row.oldest_due_seconds is None else round(row.oldest_due_seconds, 1),
        "rejected_lines": row.rejected,
        "coverage": (row.committed - row.lists_read) / obtainable if obtainable else None,
        "lists": {"pages": row.lists, "read": row.lists_read, "problem": row.discovery_problem} if row.lists else None,
        "attempts": row.attempts,
        "pages_per_second": round(row.attempts / row.seconds, 2) if row.seconds else None,
        "observations": row.observations,
        "failure_classes": failures,
        "page_states": pages,
        "paused": row.pause_reason,
        "canary": row.canary,
        "recovery_batch_id": row.recovery_batch_id and str(row.recovery_batch_id),
        "stopped_at": row.stopped_at,
        "closing_at": row.closing_at,
        "deadline_at": row.deadline_at,
        # It has work, and nobody may do it.
        "waits": row.paused_at is not None and row.closing_at is None and open_ > 0,
        "generation": row.generation,
        "state": row.candidate_state or "not planned",
        "reasons": acceptance.reasons((row.verdict or {}).get("checks", [])),
        "samples": acceptance.samples((row.verdict or {}).get("checks", [])),
        "held": acceptance.held_back((row.verdict or {}).get("checks", [])),
        "drift": acceptance.drift_unjudged(row.verdict),
        "extractor_version": row.extractor_version,
    }
