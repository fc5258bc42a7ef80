"""Why a window is not published, and what a person does about it: `why`, `recover`, `waive`."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Annotated, Any

import typer

from scrape_assets.cli.operate import RunResult, conclude, run_window
from scrape_assets.cli.output import (
    DatasetName,
    Json,
    LookedAt,
    RetailerName,
    Window,
    declared,
    emit,
    harmless,
    looked_at,
    opened,
    out,
    run_of,
    say,
    table,
    window_key,
)
from scrape_assets.cli.work import Processes
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.datasets.problems import nearest
from scrape_assets.errors import DeclarationError, ScrapeAssetsError
from scrape_assets.flow import recover, waive, why
from scrape_assets.flow.recover import Repair
from scrape_assets.rules import urls
from scrape_assets.rules.recovery import Mode, Selection
from scrape_assets.rules.states import FailureClass
from scrape_assets.settings import Settings
from scrape_assets.store.postgres import Pool

SHOWN_PAGES, SHOWN_CHANGES = 10, 15


def add_to(app: typer.Typer) -> None:
    """The commands of this module belong to the program."""
    for command in (why_command, recover_command, waive_command):
        app.command(command.__name__.removesuffix("_command"))(command)


def why_command(dataset: DatasetName, window: LookedAt = None, json: Json = False) -> None:
    """Say why a window is not published: retailer, rule, expected, got, rows with their pages, and what to run next."""
    with opened(dataset) as (settings, _, pool):
        declaration = declared(settings, dataset)
        said = why.explain(pool, declaration, run_of(dataset, looked_at(pool, declaration, window)))
    if json:
        emit(said)
        return
    for line in why.text(said):
        out.print(harmless(line), highlight=False, markup=False)


def recover_command(
    dataset: DatasetName,
    window: Window = "current",
    retailer: Annotated[list[str] | None, typer.Option("--retailer", help="only this one; may be given again")] = None,
    page_type: Annotated[str | None, typer.Option("--page-type", help="only pages of this type")] = None,
    failure_class: Annotated[str | None, typer.Option("--failure-class", help="pages that ended in this class")] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="pages whose rows break this acceptance rule")] = None,
    urls_file: Annotated[
        Path | None, typer.Option("--urls", help="pages that this file lists, an address a line")
    ] = None,
    refetch: Annotated[bool, typer.Option("--refetch", help="ask the site for every one of them")] = False,
    from_artifacts: Annotated[
        bool, typer.Option("--from-artifacts", help="read stored pages wherever there are any, whatever changed")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what it would take and change")] = False,
    processes: Processes = 1,
    json: Json = False,
) -> None:
    """Repair a window under its own run: just what is broken, from stored pages where only their reading changed.

    Without a selection: of retailers that are rejected, or lack pages, or are declared otherwise; what is published and
    stands is only taken when it is named.
    """
    if refetch and from_artifacts:
        raise DeclarationError("--refetch asks the site, --from-artifacts does not; expected one of the two")
    if failure_class is not None and failure_class not in (classes := [one.value for one in FailureClass]):
        raise DeclarationError(f"there is no failure class {failure_class!r}{nearest(failure_class, classes)}")
    mode: Mode = "refetch" if refetch else "artifacts" if from_artifacts else "auto"
    wanted = Selection(
        tuple(retailer or ()), page_type, failure_class, rule, _listed(urls_file) if urls_file else None, mode
    )
    with opened(dataset) as (settings, store, pool):
        declaration = declared(settings, dataset)
        key = window_key(declaration, window)
        run_id = run_of(dataset, key)
        repairs = recover.select(pool, declaration, run_id, wanted)
        if dry_run:
            _dry_run(settings, pool, declaration, run_id, repairs, json=json)
            return
        if not json:
            for one in repairs:
                say(_intent(one))
                if one.warning:
                    say(f"warning: {one.retailer}: {one.warning}")
        before = recover.contents(pool, run_id)
        begun = recover.begin(pool, declaration, run_id, wanted, repairs)
        names = [one.retailer for one in repairs]
        result = run_window(settings, store, pool, declaration, key, names, processes, quiet=json)
        moved = recover.proof(before, recover.contents(pool, run_id), names)
        batches = recover.progress(pool, begun)
    _tell(result, batches, moved, json=json)


def _listed(file: Path) -> tuple[str, ...]:
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"--urls {file}: it cannot be read: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            found.append(urls.canonical(line))
        except ValueError as error:
            raise DeclarationError(f"--urls {file}:{number}: {line!r:.200}: {error}") from error
    if not found:
        raise DeclarationError(f"--urls {file} lists no page")
    return tuple(found)


def _intent(one: Repair) -> str:
    joined = f", and {one.joined} open ones with them" if one.joined else ""
    stored = len(one.stored) + one.joined_stored
    changed = f" ({', '.join(one.changed)} changed)" if one.changed else ""
    canary = "; its canary failed, and begins again with this repair" if one.canary_failed else ""
    return (
        f"{one.retailer}: {len(one.tasks)} pages{joined}, {stored} read from stored pages, "
        f"{one.requests} requests; extractor {one.frozen.extractor_version}{changed}{canary}"
    )


def _dry_run(
    settings: Settings, pool: Pool, dataset: Dataset, run_id: str, repairs: list[Repair], *, json: bool
) -> None:
    previews = [
        asyncio.run(recover.preview(pool, dataset, run_id, one, settings.artifacts)) for one in repairs if one.stored
    ]
    if json:
        emit({"run_id": run_id, "dry_run": True, "repairs": [one.record() for one in repairs], "previews": previews})
        return
    for one in repairs:
        out.print(_intent(one), highlight=False, markup=False)
        if one.warning:
            out.print(f"warning: {one.retailer}: {one.warning}", highlight=False, markup=False)
        stored = {task.task_key for task in one.stored}
        for task in one.tasks[:SHOWN_PAGES]:
            how = "stored page" if task.task_key in stored else "request"
            why_ = f" {task.last_failure_class}" if task.state != "committed" else ""
            out.print(harmless(f"  {task.state}{why_}, {how}: {task.url}"), highlight=False, markup=False)
        if len(one.tasks) > SHOWN_PAGES:
            say(f"  and {len(one.tasks) - SHOWN_PAGES} more; --json lists all of them")
    for seen in previews:
        changes = seen["changes"]
        if seen["would_fail"]:
            # Before any change of a value: it is what matters most.
            ((cause, _),) = Counter(p["reason"] for p in seen["failed"] if p["failure_class"]).most_common(1)
            out.print(
                harmless(
                    f"{seen['retailer']}: {seen['would_fail']} of {seen['pages']} sampled pages would FAIL ({cause})"
                ),
                highlight=False,
                markup=False,
            )
        table(
            f"{seen['retailer']}: {len(changes)} values of {seen['pages']} stored pages would change",
            ("entity", "field", "now", "then"),
            [
                (c["entity_key"], c["field"], c["before"] or "no row", c["after"] or "no row")
                if not c["field"]
                else (c["entity_key"], c["field"], c["before"], c["after"])
                for c in changes[:SHOWN_CHANGES]
            ],
        )
        if len(changes) > SHOWN_CHANGES:
            say(f"and {len(changes) - SHOWN_CHANGES} more; --json has all of them")
        for page in seen["failed"]:
            out.print(harmless(f"  {page['url']}: {page['reason']}"), highlight=False, markup=False)
    say("nothing was changed; without --dry-run it is done")


def _tell(result: RunResult, batches: list[dict[str, Any]], moved: list[dict[str, Any]], *, json: bool) -> None:
    others = [one["retailer"] for one in moved if one["moved"] and not one["repaired"]]
    if json:
        emit(
            {
                **result.summary,
                "recovery": {"batches": batches, "partitions": moved, "other_partitions_moved": len(others)},
            }
        )
    else:
        for batch in batches:
            lost = f", {batch['unreadable']} stored pages could not be read" if batch["unreadable"] else ""
            say(
                f"{batch['retailer']}: {batch['tasks']} pages repaired with {batch['requests']} requests{lost}: "
                f"{batch['committed']} committed, {batch['quarantined']} quarantined, {batch['gone']} gone"
            )
        kept = [one["retailer"] for one in moved if not one["repaired"]]
        if kept and not others:
            say(f"not moved, by the hash over their rows: {', '.join(kept)}")
    if others:
        raise ScrapeAssetsError(f"{', '.join(others)} moved while others were repaired; somebody else works on them")
    conclude(result, [batch["retailer"] for batch in batches], json=json)


def waive_command(
    run: Annotated[str, typer.Option("--run", help="the run, as prices@2026-11-20 or prices@current")],
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="the rule's name, as `why` shows it", show_default=False)
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="who answers for it")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="why it may be broken this time")] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="a day or time from which it no longer counts, in UTC")
    ] = None,
    retailer: RetailerName = None,
    show: Annotated[bool, typer.Option("--list", help="only show the run's waivers, also those that are over")] = False,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="ID", help="end this waiver now; it stays on record")
    ] = None,
    json: Json = False,
) -> None:
    """Answer for a failing rule of one run, for a time; it stays in the provenance of what is published with it."""
    dataset, at, window = run.partition("@")
    if not at:
        raise DeclarationError(f"--run {run!r} is no run; expected dataset@window, as prices@2026-11-20")
    if show or revoke is not None:
        if rule is not None or (show and revoke is not None):
            raise DeclarationError("expected one of RULE, --list and --revoke")
        _waivers(dataset, window, revoke, json=json)
        return
    if rule is None or owner is None or reason is None or until is None:
        named = (("RULE", rule), ("--owner", owner), ("--reason", reason), ("--until", until))
        missing = ", ".join(name for name, given in named if given is None)
        raise DeclarationError(f"a waiver names RULE, --owner, --reason and --until; missing: {missing}")
    with opened(dataset) as (settings, _, pool):
        run = run_of(dataset, window_key(declared(settings, dataset), window))
        done, needed = waive.waive(
            pool,
            run,
            rule,
            retailer=retailer,
            owner=owner,
            reason=reason,
            until=_moment(until),
            now=datetime.now(UTC),
        )
    if json:
        emit({"run_id": run, "retailer": retailer, **done.record(), "needed": needed})
    else:
        whose = f" of {retailer}" if retailer else ""
        say(f"{rule}{whose} of {run} is waived by {done.owner} until {done.until:%Y-%m-%d %H:%M} UTC")
        if not needed:
            say(f"{rule}{whose} did not fail when it was judged last: nothing needs this waiver yet")
        say(f"it counts when the window is judged: scrape-assets publish {dataset} --window {run.partition('@')[2]}")


def _waivers(dataset: str, window: str, revoke: str | None, *, json: bool) -> None:
    with opened(dataset) as (settings, _, pool):
        run = run_of(dataset, window_key(declared(settings, dataset), window))
        ended = None if revoke is None else waive.revoke(pool, run, revoke)
        found = waive.listed(pool, run)
    if json:
        emit(
            {
                "run_id": run,
                "waivers": [{"retailer": one.retailer, **one.record(), "counts": counts} for one, counts in found],
            }
        )
    elif ended is not None:
        whose = f" of {ended.retailer}" if ended.retailer else ""
        say(f"the waiver of {ended.rule}{whose} by {ended.owner} is over; a version that rests on it stands")
        say(f"it counts when the window is judged: scrape-assets publish {dataset} --window {run.partition('@')[2]}")
    else:
        out.print(f"[bold]{run}: {len(found)} waivers[/]", highlight=False)
        # Not a table: an id that is folded cannot be copied.
        for one, counts in found:
            until = f"{'until' if counts else 'ended'} {one.until:%Y-%m-%d %H:%M} UTC"
            whose = one.retailer or "all retailers together"
            for line in (f"{one.waiver_id}  {one.rule} of {whose}, by {one.owner}, {until}", f"  {one.reason}"):
                out.print(harmless(line), highlight=False, markup=False)


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise DeclarationError(f"--until {text!r} is no time; expected a day or time, as 2026-12-01") from error
    if len(text) <= len("2026-12-01"):
        found = datetime.combine(found.date(), time())
    return found if found.tzinfo else found.replace(tzinfo=UTC)
