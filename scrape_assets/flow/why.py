"""Why: what keeps a window from being published, down to rows and pages, and the command to run next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import accept, publish, recover, status, waive
from scrape_assets.rules import acceptance, advice, keys, recovery, refusals, versions
from scrape_assets.store import candidates, observe, outbox, postgres, publication, runs
from scrape_assets.store.candidates import Member, Waiver
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
        again = {row.retailer: row for row in observe.to_try_again(tx, run_id)}
        said_late = publication.is_said_late(tx, run_id)
        waivers, all_waivers = candidates.waivers(tx, run_id, None), candidates.all_waivers(tx, run_id)
        retailers = [
            _retailer(
                tx,
                dataset,
                run,
                member,
                partitions[member.retailer],
                _waits_for(
                    dataset, member, partitions[member.retailer], counts[member.retailer], again.get(member.retailer)
                ),
            )
            for member in members
        ]
    promised = dataset.promised_at(run.window_start)
    judged = newest if newest and versions.still_holds(proposal.members, newest.members, newest.verdict) else None
    checks = (judged.verdict or {}).get("checks", []) if judged else []
    of_dataset = [check for check in acceptance.failing(checks) if check["rule"] != "members_accepted"]
    considered = (judged.verdict or {}).get("considered", []) if judged else []
    waived = _waiting_waivers(waivers, considered, of_dataset)
    ended = waive.ended_of(all_waivers, None, [check["rule"] for check in of_dataset])
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
        "late": standing is None and (said_late or publish.is_announced(promised, now)),
        "promise_passed": standing is None and versions.late(promised, now),
        "published": published,
        "dataset_version": standing.dataset_version if standing else None,
        "gaps": publish.gaps_of(standing.members) if standing else {},
        "last_good": None
        if good is None
        else {"window": good.collection_window, "dataset_version": good.dataset_version},
        "retailers": retailers,
        "dataset_checks": [_shown(check, []) for check in of_dataset],
        "dataset_held": acceptance.held_back(checks),
        "dataset_waived": waived,
        "dataset_waivers_ended": ended,
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
        "next": [
            *advice.commands(
                dataset.dataset,
                run.collection_window,
                retailers,
                [check["rule"] for check in of_dataset],
                judge_again=bool(waived) or any(one["waived"] for one in retailers),
                publish=not (published or waits or of_dataset),
            ),
            *(
                f"scrape-assets deliver {dataset.dataset} --event {row.event_id} --destination {row.destination}"
                for row in unsent
                if row.state != "sending" and row.destination in dataset.publish.to
            ),
        ],
    }


def text(said: Mapping[str, Any]) -> list[str]:
    """The explanation in lines, as a person reads it; the same in the terminal and in Dagster."""
    lines = [_headline(said)]
    for one in said["retailers"]:
        if one["waits_for"]:
            lines.append(f"{one['retailer']}: {one['waits_for']}")
        for check in one["failed"]:
            lines += _check_lines(one["retailer"], check)
        notes = [*one["held"], one["drift"], *one["waived"], *one["waivers_ended"]]
        notes += [(one["compared_with"] or {}).get("said"), one["declared"]]
        lines += [f"{one['retailer']}: {note}" for note in notes if note]
    ended = said["dataset_waivers_ended"]
    for check in said["dataset_checks"]:
        lines += _check_lines("all retailers together", check)
    lines += [f"all retailers together: {note}" for note in (*said["dataset_held"], *said["dataset_waived"], *ended)]
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
    if said["published"] and said["gaps"]:
        gaps = "; ".join(f"{name} {gap}" for name, gap in said["gaps"].items())
        return f"{window}: version {version} is published with gaps: {gaps}"
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
    late = ""
    if said["late"]:
        late = f", and it is late: it was promised by {said['promised_at']:%Y-%m-%d %H:%M} UTC"
    elif said["promise_passed"]:
        days = publish.LATE_SINCE.days
        late = f"; it was promised by {said['promised_at']:%Y-%m-%d %H:%M} UTC (older than {days} days: no event)"
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
    tx: Transaction, dataset: Dataset, run: Run, member: Member, partition: Partition, waits_for: str
) -> dict[str, Any]:
    verdict = member.verdict or {}
    checks = verdict.get("checks", [])
    if partition.canary == "failed":
        checks = partition.canary_checks or []
    failed = acceptance.failing(checks) if member.state == "rejected" or partition.canary == "failed" else []
    considered = [waiver["waiver_id"] for waiver in verdict.get("rules", {}).get("waivers", [])]
    changed: list[str] = []
    if partition.planned_at is not None and member.retailer in dataset.retailers:
        changed = recover.differences(dataset, member.retailer, partition)
    repairable = bool(changed) and not recovery.obstacles(changed, left_out=0)
    return {
        "retailer": member.retailer,
        "state": member.state or "not planned",
        "generation": member.generation,
        "canary": partition.canary,
        "waits_for": waits_for,
        "failed": [_shown(check, _pages(tx, run, member.retailer, check)) for check in failed],
        "held": acceptance.held_back(checks),
        "drift": acceptance.drift_unjudged(verdict),
        "waived": _waiting_waivers(candidates.waivers(tx, run.run_id, member.retailer), considered, failed),
        "waivers_ended": waive.ended(tx, run.run_id, member.retailer, [check["rule"] for check in failed]),
        "compared_with": _compared_with(tx, run, member) if failed else None,
        "changed": changed,
        "repairable": repairable,
        "declared": _declared(changed),
        "classes": {
            row.failure_class: row.tasks
            for row in observe.failure_counts(tx, run.run_id)
            if row.retailer == member.retailer
        },
    }


def _declared(changed: Sequence[str]) -> str:
    """How the declaration differs from that of this window, and when what changed takes effect."""
    if not changed:
        return ""
    beyond = recovery.obstacles(changed, left_out=0)
    then = "; it takes effect with the next window" if beyond else "; a repair would read the pages with it"
    return f"declared otherwise now ({', '.join(changed)}){then}"


def _waiting_waivers(
    waivers: Sequence[Waiver], considered: Sequence[str], failed: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Waivers of failed rules that came after the verdict: they count as soon as somebody judges again."""
    rules = {check["rule"] for check in failed}
    return [
        f"{one.rule} is waived by {one.owner} until {one.until:%Y-%m-%d %H:%M} UTC, and not judged since"
        for one in waivers
        if one.rule in rules and str(one.waiver_id) not in considered
    ]


def _compared_with(tx: Transaction, run: Run, member: Member) -> dict[str, Any] | None:
    """The window that a rejected retailer's values were compared with, and what speaks against that one instead."""
    verdict = member.verdict or {}
    beside = verdict.get("figures", {}).get("beside", {})
    rules = [check["rule"] for check in acceptance.failing(verdict.get("checks", []))]
    if not any(rule.startswith(("drift:", "columns", "frozen")) for rule in rules) or not beside.get("windows"):
        return None
    if beside["kind"] == "version":
        return {"window": run.collection_window, "doubts": [], "said": "compared with the version of this window"}
    window = beside["windows"][0][0]
    other = keys.run_id(run.dataset_id, window)
    read_by = candidates.extractors(tx, other, member.retailer)
    doubts = ["was never published"] if not publication.last_version(tx, other) else []
    if read_by != candidates.extractors(tx, run.run_id, member.retailer):
        doubts.append("was read by another extractor")
    doubt = f", which {' and '.join(doubts)}: if that one is wrong, repair it, and publish this one" if doubts else ""
    return {"window": window, "doubts": doubts, "said": f"compared with {window}{doubt}"}


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


def _waits_for(dataset: Dataset, member: Member, partition: Partition, counts: Any, again: Any) -> str:
    """What an undecided retailer waits for, in words; nothing for one that is decided."""
    if member.state in versions.DECIDED:
        return ""
    if partition.planned_at is None:
        known = "" if member.retailer in dataset.retailers else ", and it is no longer declared"
        return f"it is not planned{known}"
    if partition.pause_reason:
        return f"it is {refusals.in_words(partition.pause_reason)}"
    left = counts.pending + counts.retry_wait + counts.leased + counts.waiting
    if again is not None:
        return (
            f"{left} of its pages are open, {again.pages} of them to try again, the next at "
            f"{again.next_at:%H:%M:%S} UTC; last {status.in_words(again.failure_class, again.reason)}"
        )
    return f"{left} of its pages are open" if left else "nobody judged it yet"
