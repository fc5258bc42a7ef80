"""`run`, the whole flow of one window, and `publish`, its judging alone."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from scrape_assets.cli.look import say_retailers, window_status
from scrape_assets.cli.output import (
    DatasetName,
    Json,
    RetailerName,
    Window,
    complain,
    declared,
    emit,
    opened,
    run_of,
    say,
    window_key,
)
from scrape_assets.cli.release import SHOWN, UNSENT, say_unsettled, what
from scrape_assets.cli.work import Processes, collect, leased_in_words, machine_of
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import CandidateRejected, DeclarationError, ManifestChanged, ScrapeAssetsError
from scrape_assets.flow import accept, control, deliver, publish, run, status
from scrape_assets.flow.plan import PlannedRetailer
from scrape_assets.rules import acceptance, refusals
from scrape_assets.settings import Settings, Store
from scrape_assets.store import observe, postgres
from scrape_assets.store.postgres import Pool


def add_to(app: typer.Typer) -> None:
    """The commands of this module belong to the program."""
    for command in (run_command, publish_command):
        app.command(command.__name__.removesuffix("_command"))(command)


def run_command(
    dataset: DatasetName,
    window: Window = "current",
    retailer: RetailerName = None,
    processes: Processes = 1,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="go on with what the window was planned with, whatever was edited since")
    ] = False,
    json: Json = False,
) -> None:
    """Collect, judge, publish and deliver one window; started again, it resumes."""
    with opened(dataset) as (settings, store, pool):
        declaration = declared(settings, dataset)
        if retailer is not None and retailer not in declaration.retailers:
            raise DeclarationError(
                f"dataset {dataset} has no retailer {retailer}; it has {', '.join(sorted(declaration.retailers))}"
            )
        result = run_window(
            settings,
            store,
            pool,
            declaration,
            window_key(declaration, window),
            None if retailer is None else [retailer],
            processes,
            frozen=frozen,
            quiet=json,
        )
    if json:
        emit(result.summary)
    conclude(result, None if retailer is None else [retailer], json=json)


def conclude(result: RunResult, retailers: Sequence[str] | None, *, json: bool) -> None:
    """The error with whose code the command ends, where a person must act on these retailers, or on all of them."""
    if result.refused:
        # A person was told before the collecting began, and was told why the candidate is rejected.
        raise result.refused if json else ManifestChanged("not every retailer went on; why is said above")
    if result.rejected:
        if json or result.summary["acceptance"]["state"] != "rejected":
            raise result.rejected
        run_id = result.summary["run_id"]
        raise CandidateRejected(f"{run_id} is rejected, see above: nothing is published, the last good version stands")
    mine = [r for r in result.summary["retailers"] if retailers is None or r["retailer"] in retailers]
    if paused := [r for r in mine if r["waits"]]:
        at = f"{result.summary['dataset']} --window {result.summary['window']}"
        raise ScrapeAssetsError(_paused(paused, at, tell=json))
    if any(sent["state"] != "delivered" for sent in result.summary["sent"]):
        raise ScrapeAssetsError(UNSENT)


def _paused(retailers: Sequence[dict[str, Any]], at: str, *, tell: bool) -> str:
    """What lets them go on; `tell`: and why they do not, which a person read above."""
    why = [f"{r['retailer']} is {refusals.in_words(r['paused']) if tell else 'paused, see above'}" for r in retailers]
    ways = f"`scrape-assets resume {at}` lets it go on, `scrape-assets close {at}` ends it"
    if broken := [r["retailer"] for r in retailers if r["canary"] == "failed"]:
        one = f"{at} --retailer {broken[0]}"
        ways = (
            f"Correct what reads its pages, and `scrape-assets recover {one}` begins with the canary again; or {ways}"
        )
    return f"{'; '.join(why)}. {ways}"


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one `run` did: its summary, and what a person must act on."""

    summary: dict[str, Any]
    refused: ManifestChanged | None
    rejected: CandidateRejected | None


def run_window(
    settings: Settings,
    store: Store,
    pool: Pool,
    dataset: Dataset,
    window: str,
    retailers: Sequence[str] | None,
    processes: int,
    *,
    frozen: bool = False,
    quiet: bool,
) -> RunResult:
    """The whole flow of one window, or of these retailers of it; every step is durable before the next begins."""
    began = time.monotonic()
    run_id = run_of(dataset.dataset, window)
    before = status.run_status(pool, run_id)
    with postgres.transaction(pool) as tx:
        leased = observe.leased_elsewhere(tx, run_id)
    planned, refused = run.plan_or_refuse(pool, dataset, window, retailers, now=datetime.now(UTC), frozen=frozen)
    if not quiet:
        for lacking in deliver.unready(dataset):
            say(f"warning: {lacking}")
        _say_plan(run_id, planned, before)
        for row in leased:
            say(leased_in_words(row))
        if retailers is None:
            for late in sorted(set(dataset.retailers) - {p.retailer for p in planned}):
                say(f"{late} was declared after {run_id} was made: it begins with the next window, or in another one")
    names = [p.retailer for p in planned if not p.problem]
    work = run.assignments(pool, dataset, window, names, frozen=frozen)
    tally = collect(pool, machine_of(settings, processes), work, quiet=quiet)
    control.tidy(pool)
    verdicts = [accept.accept_retailer(pool, dataset, run_id, name) for name in names]
    verdict = accept.accept_dataset(pool, dataset, run_id)
    published, rejected = None, None
    try:
        if verdict.state != "collecting":
            published = publish.publish(pool, dataset, run_id)
    except CandidateRejected as error:
        rejected = error
    publish.say_late(pool, dataset)
    deliveries = deliver.deliver(pool, dataset, jitter=random.random())
    warning = _record_history(
        settings,
        store,
        pool,
        dataset,
        window,
        planned=planned,
        verdicts=verdicts,
        candidate=verdict,
        published=published,
    )
    standing = status.run_status(pool, run_id)
    assert standing is not None
    summary = {
        **standing,
        "acceptance": {
            "state": verdict.state,
            "checks": [{"retailer": v.subject, **check} for v in verdicts for check in v.checks]
            + [{"retailer": None, **check} for check in verdict.checks],
            "waiting_for": verdict.waiting_for,
        },
        "published": None
        if published is None
        else {
            "dataset_version": published.dataset_version,
            "rows": published.rows,
            "new": published.new,
            "changes": published.changes,
            "gaps": published.gaps,
            "held": published.held,
        },
        "sent": [
            {
                "destination": d.destination,
                "state": d.state,
                "detail": d.detail,
                "run_id": d.run_id,
                "dataset_version": d.dataset_version,
                "event_id": d.event_id,
            }
            for d in deliveries
        ],
        "this_command": {
            "attempts": sum(tally.outcomes.values()),
            "outcomes": dict(tally.outcomes),
            "fenced": tally.fenced,
            "collecting_seconds": round(tally.seconds, 3),
            "seconds": round(time.monotonic() - began, 3),
        },
    }
    if not quiet:
        if warning:
            say(f"warning: {warning}")
        _say_result(summary, dataset.dataset, window)
        say_unsettled(dataset.dataset, deliver.unsettled(pool, dataset, SHOWN))
    return RunResult(summary, refused, rejected)


def _say_plan(run_id: str, planned: list[PlannedRetailer], before: dict[str, Any] | None) -> None:
    if before and before["tasks"].get("planned"):
        tasks = before["tasks"]
        done = tasks["committed"] + tasks["gone"] + tasks["quarantined"]
        pending = tasks["open"] - tasks["leased"]
        say(f"{run_id} resuming: {done} done, {pending} pending, {tasks['leased']} leased elsewhere")
    for p in planned:
        if p.problem:
            complain(f"{p.retailer}: {p.problem}")
        elif not p.resumed:
            refused = f", {p.rejected} inventory lines refused (`status` lists them)" if p.rejected else ""
            say(f"{run_id} {p.retailer}: {p.planned} tasks planned{refused}")


def _say_result(summary: dict[str, Any], dataset: str, window: str) -> None:
    say_retailers(summary)
    acceptance_state = summary["acceptance"]["state"]
    published = summary["published"]
    of_all = [check for check in summary["acceptance"]["checks"] if check["retailer"] is None]
    for held in acceptance.held_back(of_all):
        say(f"all retailers together: {held}")
    if published:
        word = "published" if published["new"] else "was published already"
        held_back = acceptance.in_number(published["held"])
        say(
            f"version {published['dataset_version']} {word}: {published['rows']} rows{_changed(published)}"
            + (f"; {held_back}, see above" if held_back else "")
        )
        for name, gap in published["gaps"].items():
            say(f"{name} is a gap: {gap}")
    elif acceptance_state == "collecting":
        say(f"not judged yet: {summary['acceptance']['waiting_for']}")
    elif not any(r["state"] == "rejected" for r in summary["retailers"]):
        for reason in acceptance.reasons(of_all):
            say(reason)
    for sent in summary["sent"]:
        say(f"{sent['destination']}: {what(sent['run_id'], sent['dataset_version'])} {sent['state']} {sent['detail']}")
    tasks = summary["tasks"]
    if tasks["quarantined"] or tasks["gone"]:
        unusable = f"{tasks['quarantined']} quarantined, {tasks['gone']} gone"
        say(f"{unusable}: scrape-assets failed {dataset} --window {window}")


def _changed(published: dict[str, Any]) -> str:
    """What a correction changed; a first version is all new."""
    if published["dataset_version"] == 1:
        return ""
    counts = ", ".join(f"{count} {kind}" for kind, count in published["changes"].items())
    return f"; {counts} since version {published['dataset_version'] - 1}"


def _record_history(*arguments: Any, **named: Any) -> str | None:
    """Dagster's history shows what this command did; a problem there is a warning, never a failure."""
    from scrape_assets.defs import history  # noqa: PLC0415  # Dagster takes seconds to import

    return history.record(*arguments, **named)


def publish_command(dataset: DatasetName, window: Window = "current", json: Json = False) -> None:
    """Judge what is collected of a window and publish it if it is accepted; no request is made."""
    with opened(dataset) as (settings, store, pool):
        declaration = declared(settings, dataset)
        key = window_key(declaration, window)  # once: the next one may begin meanwhile
        run_id = run_of(dataset, key)
        scope = [r["retailer"] for r in window_status(pool, dataset, key)["retailers"]]
        control.tidy(pool)
        verdicts = [
            accept.accept_retailer(pool, declaration, run_id, name)
            for name in sorted(set(scope) & set(declaration.retailers))
        ]
        verdict = accept.accept_dataset(pool, declaration, run_id)
        if verdict.state == "collecting":
            raise CandidateRejected(f"{run_id} is not complete: {verdict.waiting_for}")
        done = publish.publish(pool, declaration, run_id)
        warning = _record_history(
            settings,
            store,
            pool,
            declaration,
            key,
            planned=[],
            verdicts=verdicts,
            candidate=verdict,
            published=done,
        )
    if warning:
        say(f"warning: {warning}")
    if json:
        emit(
            {
                "run_id": run_id,
                "dataset_version": done.dataset_version,
                "rows": done.rows,
                "new": done.new,
                "changes": done.changes,
                "gaps": done.gaps,
                "held": done.held,
            }
        )
    else:
        held_back = acceptance.in_number(done.held)
        say(
            f"{run_id}: version {done.dataset_version} {'published' if done.new else 'stands'}, {done.rows} rows"
            + (f"; {held_back}: scrape-assets why {dataset} --window {key}" if held_back else "")
        )
        if done.new:
            say(f"next: scrape-assets deliver {dataset} sends it")
