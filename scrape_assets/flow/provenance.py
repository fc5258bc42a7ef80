"""Provenance: what a version is made of and why it was accepted, as one document."""

from __future__ import annotations

from typing import Any

from scrape_assets.errors import DeclarationError
from scrape_assets.rules import acceptance
from scrape_assets.store import candidates, outbox, postgres, publication, runs
from scrape_assets.store.postgres import Pool


def of_version(pool: Pool, run_id: str, version: int | None) -> dict[str, Any]:
    """Runs, generations, extractors, checks, waivers, batches and gaps of a version; the one that stands without one.

    DeclarationError when there is no such version.
    """
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        known = publication.versions(tx, run_id) if run else []
        chosen = next((row for row in known if row.dataset_version == (version or known[-1].dataset_version)), None)
        if run is None or chosen is None:
            dataset, _, window = run_id.partition("@")
            at = f"{dataset} --window {window}"
            if run is None:
                raise DeclarationError(f"{run_id} was never planned; `scrape-assets run {at}` collects it")
            if not known:
                raise DeclarationError(f"{run_id} has no version yet; `scrape-assets why {at}` says what it waits for")
            there = ", ".join(str(row.dataset_version) for row in known)
            raise DeclarationError(f"{run_id} has no version {version}; it has {there}")
        number = chosen.dataset_version
        held = (chosen.publication or {}).get("retailers", {})
        extractors = publication.extractors(tx, run.dataset_id, run.collection_window, number)
        verdicts = {
            (row.retailer, row.generation): row for row in candidates.verdicts(tx, run_id) if row.retailer is not None
        }
        batches = [row for row in publication.batches(tx, run_id) if row.created_at <= chosen.published_at]
        deliveries = [row for row in outbox.deliveries(tx, run_id) if row.dataset_version == number]
    return {
        "run_id": run_id,
        "dataset": run.dataset_id,
        "window": run.collection_window,
        "window_start": run.window_start,
        "window_end": run.window_end,
        "dataset_version": number,
        "state": chosen.state,
        "published_at": chosen.published_at,
        "supersedes_version": number - 1 if number > 1 else None,
        "versions": [
            {"dataset_version": row.dataset_version, "published_at": row.published_at, "state": row.state}
            for row in known
        ],
        "rows": (chosen.publication or {}).get("rows"),
        "changes": (chosen.publication or {}).get("changes", {}),
        "checks": (chosen.verdict or {}).get("checks", []),
        "waivers": [*(chosen.verdict or {}).get("waivers", [])],
        "columns": sorted((chosen.verdict or {}).get("columns", {})),
        "retailers": [
            {
                **member,
                # What it collected is `rows`; of a gap the version may hold other ones, or none.
                "rows_in_version": held.get(member["retailer"], {}).get("rows", 0),
                "unverified": held.get(member["retailer"], {}).get("unverified", 0),
                "drift": (chosen.verdict or {}).get("member_drift", {}).get(member["retailer"], ""),
                "extractors": {
                    row.extractor_version: row.rows for row in extractors if row.retailer == member["retailer"]
                },
                "waivers": (chosen.verdict or {}).get("member_waivers", {}).get(member["retailer"], []),
                **_judged(verdicts.get((member["retailer"], member["generation"]))),
            }
            for member in chosen.members
        ],
        "recovery_batches": [
            {
                "recovery_batch_id": str(row.recovery_batch_id),
                "retailer": row.retailer,
                "generation": row.generation,
                "began": row.created_at,
                "selection": row.selection,
                "tasks": row.selected + row.joined,
                "from_artifacts": row.from_artifacts,
                "requests": row.requests,
                "extractor_version": row.extractor_version,
            }
            for row in batches
        ],
        "deliveries": [
            {
                "destination": row.destination,
                "state": row.state,
                "delivered_at": row.delivered_at,
                "receipt": row.receipt,
            }
            for row in deliveries
        ],
    }


def _judged(verdict: Any) -> dict[str, Any]:
    if verdict is None:
        return {"checks": [], "held": []}
    return {"checks": verdict.checks, "held": acceptance.held_back(verdict.checks)}


def text(said: dict[str, Any]) -> list[str]:
    """The document in lines."""
    changes = said["changes"]
    lines = [
        f"{said['run_id']} version {said['dataset_version']}, {said['state']}",
        f"published {said['published_at']:%Y-%m-%d %H:%M:%S} UTC",
        f"window {said['window_start']:%Y-%m-%d %H:%M} to {said['window_end']:%Y-%m-%d %H:%M} UTC",
        f"{said['rows']} rows: {changes.get('new', 0)} new, {changes.get('corrected', 0)} corrected, "
        f"{changes.get('withdrawn', 0)} withdrawn"
        + (f" since version {said['supersedes_version']}" if said["supersedes_version"] else ""),
    ]
    for one in said["retailers"]:
        extractors = ", ".join(f"{version} ({rows} rows)" for version, rows in one["extractors"].items())
        carried = f", kept from version {one['carried_from_version']}" if one["carried_from_version"] else ""
        unverified = f", {one['unverified']} of them unverified" if one["unverified"] else ""
        gap = "" if one["state"] == "accepted" else "a gap, "
        lines.append(
            f"{one['retailer']}: {gap}{one['state'] or 'not planned'}{carried}, generation {one['generation'] or 0}, "
            f"{one['rows_in_version']} rows in this version{unverified}; extractor {extractors or 'none'}"
        )
        lines += [f"    {said}" for said in (*one["held"], one["drift"]) if said]
        lines += [_waived(waiver) for waiver in one["waivers"]]
    lines += [_waived(waiver) for waiver in said["waivers"]]
    for batch in said["recovery_batches"]:
        named = ", ".join(f"{name} {value}" for name, value in batch["selection"].items() if name != "retailers")
        lines.append(
            f"recovery {batch['recovery_batch_id']} of {batch['retailer']}, {batch['began']:%Y-%m-%d %H:%M} UTC: "
            f"{batch['tasks']} pages ({named or 'no selection'}), {batch['from_artifacts']} from stored pages, "
            f"{batch['requests']} requests, extractor {batch['extractor_version']}"
        )
    passed = [check["rule"] for check in said["checks"] if check["passed"]]
    lines.append(f"checks of all retailers together: {', '.join(passed)} passed")
    lines += [f"    {held}" for held in acceptance.held_back(said["checks"])]
    for one in said["deliveries"]:
        when = f" {one['delivered_at']:%Y-%m-%d %H:%M} UTC" if one["delivered_at"] else ""
        lines.append(f"delivered to {one['destination']}: {one['state']}{when}")
    return lines


def _waived(waiver: dict[str, Any]) -> str:
    return f"    {waiver['rule']} waived by {waiver['owner']} until {waiver['until']}: {waiver['reason']}"
