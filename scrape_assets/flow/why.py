"""Why: what keeps a window from being published, down to rows and pages, and the command to run next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import accept
from scrape_assets.rules import acceptance, recovery, versions
from scrape_assets.store import candidates, observe, outbox, postgres, publication, runs
from scrape_assets.store.candidates import Member
from scrape_assets.store.postgres import Pool, Transaction
from scrape_assets.store.runs import Partition, Run


def explain(pool: Pool, dataset: Dataset, run_id: str, now: datetime | None = None) -> dict[str, Any]:
    """Where the window stands, every reason with its rows, and what to do; DeclarationError for one never planned."""
    now = now or datetime.now(UTC)
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        if run is None:
            raise DeclarationError(f"{run_id} was never planned; `scrape-assets run` collects it")
        members = candidates.members(tx, run_id)
        partitions = runs.partitions(tx, run_id)
        counts = {row.retailer: row for row in observe.partition_counts(tx, run_id)}
        proposal = accept.proposed(tx, dataset, run, now)
        newest, standing = candidates.dataset_candidate(tx, run_id), candidates.standing(tx, run_id)
        good = publication.last_good(tx, dataset.dataset, run.window_start)
        unsent = [row for row in outbox.deliveries(tx, run_id) if row.state != "delivered"]
        retailers = [
            _retailer(tx, dataset, run, member, partitions[member.retailer], counts[member.retailer])
            for member in members
        ]
    promised = dataset.promised_at(run.window_start)
    judged = newest if newest and versions.still_holds(proposal.members, newest.members, newest.verdict) else None
    checks = (judged.verdict or {}).get("checks", []) if judged else []
    of_dataset = [check for check in acceptance.failing(checks) if check["rule"] != "members_accepted"]
    published = (
        standing is not None and bool(proposal.members) and accept.is_published(dataset, proposal.members, standing)
    )
    waits = [one for one in retailers if one["failed"] or one["waits_for"]]
    return {
        "run_id": run_id,
        "dataset": dataset.dataset,
        "window": run.collection_window,
        "policy": dataset.publish.when,
        "promised_at": promised,
        "late": standing is None and versions.late(promised, now),
        "published": published,
        "dataset_version": standing.dataset_version if standing else None,
        "last_good": None
        if good is None
        else {"window": good.collection_window, "dataset_version": good.dataset_version},
        "retailers": retailers,
        "dataset_checks": [_shown(check, []) for check in of_dataset],
        "deliveries": [
            {
                "destination": row.destination,
                "state": row.state,
                "error": row.last_error,
                "event_id": str(row.event_id),
                "next_try_at": row.next_try_at if row.state in ("unsent", "uncertain") else None,
            }
            for row in unsent
        ],
        "next": _next(dataset, run, retailers, of_dataset, unsent, published=published, anything=bool(waits)),
    }


def text(said: Mapping[str, Any]) -> list[str]:
    """The explanation in lines, as a person reads it; the same in the terminal and in Dagster."""
    lines = [_headline(said)]
    for one in said["retailers"]:
        if one["waits_for"]:
            lines.append(f"{one['retailer']}: {one['waits_for']}")
        for check in one["failed"]:
            lines += _check_lines(one["retailer"], check)
        lines += [f"{one['retailer']}: {held}" for held in one["held"]]
    for check in said["dataset_checks"]:
        lines += _check_lines("all retailers together", check)
    lines += [
        f"{one['destination']}: {one['state']}"
        + (f", next try {one['next_try_at']:%Y-%m-%d %H:%M:%S} UTC" if one["next_try_at"] else "")
        + (f", {one['error']}" if one["error"] else "")
        for one in said["deliveries"]
    ]
    if said["next"]:
        lines.append("next:")
        lines += [f"  {command}" for command in said["next"]]
    return lines


def _headline(said: Mapping[str, Any]) -> str:
    window, version = said["run_id"], said["dataset_version"]
    if said["published"]:
        return f"{window}: version {version} is published and holds what is accepted"
    good = said["last_good"]
    stands = (
        f"version {version} stands"
        if version
        else f"{good['window']} version {good['dataset_version']} is the last good one"
        if good
        else "nothing was published before it"
    )
    late = f", and it is late: it was promised by {said['promised_at']:%Y-%m-%d %H:%M} UTC" if said["late"] else ""
    return f"{window} has no {'newer ' if version else ''}version{late}; {stands}"


def _check_lines(name: str, check: Mapping[str, Any]) -> list[str]:
    lines = [f"{name}: {check['rule']}", f"    expected {check['expected']}", f"    got      {check['got']}"]
    for row in check["samples"]:
        value = f"{row['field']} = {row['value']!r}" if row.get("field") else ""
        before = f", before {row['before']!r}" if row.get("before") is not None else ""
        lines.append(
            "    " + " ".join(filter(None, (str(row.get("url") or row.get("retailer") or ""), value + before)))
        )
        if row.get("artifact"):
            lines.append(f"      page {row['artifact']}")
    return lines


def _retailer(
    tx: Transaction, dataset: Dataset, run: Run, member: Member, partition: Partition, counts: Any
) -> dict[str, Any]:
    checks = (member.verdict or {}).get("checks", [])
    if partition.canary == "failed":
        checks = partition.canary_checks or []
    failed = acceptance.failing(checks) if member.state == "rejected" or partition.canary == "failed" else []
    return {
        "retailer": member.retailer,
        "state": member.state or "not planned",
        "generation": member.generation,
        "canary": partition.canary,
        "waits_for": _waits_for(dataset, member, partition, counts),
        "failed": [_shown(check, _pages(tx, run, member.retailer, check)) for check in failed],
        "held": acceptance.held_back(checks),
        "classes": {
            row.failure_class: row.tasks
            for row in observe.failure_counts(tx, run.run_id)
            if row.retailer == member.retailer
        },
    }


def _pages(tx: Transaction, run: Run, retailer: str, check: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where a rule about pages has no rows to show, pages that failed, with their bytes."""
    if check["samples"] or check["rule"] not in recovery.PAGE_RULES:
        return []
    failed = observe.failed_tasks(tx, run.run_id, retailer, None)
    wanted = "gone" if check["rule"] == "gone" else "quarantined"
    return [
        {"url": row.url, "field": row.last_failure_class, "value": row.reason, "artifact": row.artifact_sha256}
        for row in failed
        if row.state == wanted
    ][: acceptance.SAMPLES]


def _shown(check: Mapping[str, Any], pages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "rule": check["rule"],
        "expected": check["expected"],
        "got": check["got"],
        "samples": [*check["samples"], *pages][: acceptance.SAMPLES],
    }


def _waits_for(dataset: Dataset, member: Member, partition: Partition, counts: Any) -> str:
    """What an undecided retailer waits for, in words; nothing for one that is decided."""
    if member.state in versions.DECIDED:
        return ""
    if partition.planned_at is None:
        known = "" if member.retailer in dataset.retailers else ", and it is no longer declared"
        return f"it is not planned{known}"
    if partition.pause_reason:
        return f"it is paused: {partition.pause_reason}"
    left = counts.pending + counts.retry_wait + counts.leased
    return f"{left} of its pages are open" if left else "nobody judged it yet"


def _next(
    dataset: Dataset,
    run: Run,
    retailers: Sequence[Mapping[str, Any]],
    of_dataset: Sequence[Mapping[str, Any]],
    unsent: Sequence[Any],
    *,
    published: bool,
    anything: bool,
) -> list[str]:
    """Commands that can be copied, the most likely first."""
    at = f"{dataset.dataset} --window {run.collection_window}"
    commands: list[str] = []
    for one in retailers:
        name, rules = one["retailer"], [check["rule"] for check in one["failed"]]
        if one["waits_for"].startswith("it is paused") and one["canary"] != "failed":
            commands.append(f"scrape-assets resume {at} --retailer {name}")
        elif one["waits_for"] and not rules:
            commands.append(f"scrape-assets run {at}")
        if not rules:
            continue
        if any(rule in recovery.PAGE_RULES for rule in rules):
            commands.append(f"scrape-assets failed {at} --retailer {name}")
        commands.append(f"scrape-assets try {dataset.dataset}/{name} --window {run.collection_window} --sample 5")
        commands.append(f"scrape-assets recover {at} --retailer {name} --dry-run")
        if one["canary"] == "failed":
            commands.append(f"scrape-assets resume {at} --retailer {name}")
            continue
        commands += [
            f"scrape-assets waive {rule} --run {run.run_id} --retailer {name} --owner YOU --reason WHY --until DATE"
            for rule in rules
            if rule not in acceptance.NEVER_WAIVED
            and rule.startswith(("drift:", "gone", "frozen", "columns", "coverage"))
        ]
    commands += [
        f"scrape-assets waive {check['rule']} --run {run.run_id} --owner YOU --reason WHY --until DATE"
        for check in of_dataset
        if check["rule"] not in acceptance.NEVER_WAIVED
    ]
    if not published and not anything and not of_dataset:
        commands.append(f"scrape-assets publish {at}")
    commands += [
        f"scrape-assets deliver {dataset.dataset} --event {row.event_id} --destination {row.destination}"
        for row in unsent
        if row.state != "sending" and row.destination in dataset.publish.to
    ]
    return list(dict.fromkeys(commands))
