"""Commands that look: where a window stands, what was not obtained, whether every promise holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from scrape_assets.cli.output import (
    DatasetName,
    Json,
    LookedAt,
    RetailerName,
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
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.datasets.problems import nearest
from scrape_assets.datasets.units import written
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import run, series, status, verify
from scrape_assets.rules import acceptance, refusals
from scrape_assets.rules.states import FailureClass
from scrape_assets.store import observe, postgres, runs
from scrape_assets.store.postgres import Pool

SHOWN_REJECTIONS = 20
"""Refused inventory lines of a retailer that are listed for a person."""

ALL = 2**31 - 1


def add_to(app: typer.Typer) -> None:
    """The commands of this module belong to the program."""
    for command in (status_command, pages_command, verify_command, failed_command):
        app.command(command.__name__.removesuffix("_command"))(command)


def _show_windows(pool: Pool, dataset: str, *, json: bool) -> None:
    """The recent windows, newest first, one line each."""
    with postgres.transaction(pool) as tx:
        recent = runs.recent(tx, dataset, 30)
    found = [status.run_status(pool, row.run_id) for row in recent]
    known = [s for s in found if s]
    if json:
        emit({"dataset": dataset, "runs": known})
        return
    if not known:
        say(f"dataset {dataset} has no runs yet; begin with: scrape-assets run {dataset} --window current")
    table(
        dataset,
        ("window", "planned", "committed", "gone", "quarantined", "open", "candidate", "version", "rows", "gaps"),
        [
            (
                s["window"],
                *(s["tasks"].get(key, 0) for key in ("planned", "committed", "gone", "quarantined", "open")),
                _candidate(s),
                *((v["dataset_version"], v["rows"], ", ".join(v["gaps"])) if (v := s["version"]) else ("", "", "")),
            )
            for s in known
        ],
        without_zeros=True,
    )


def _candidate(shown: dict[str, Any]) -> str:
    """The newest attempt to make a version; where that is not the version that stands, that one is named too."""
    newest, standing = shown["candidate"], shown["version"]
    if newest is None:
        return "collecting"
    if standing is None or newest["dataset_version"] == standing["dataset_version"]:
        return str(newest["state"])
    return f"{newest['state']} (version {standing['dataset_version']} stands)"


def window_status(pool: Pool, dataset: str, window: str) -> dict[str, Any]:
    """Where the window stands; DeclarationError when it was never planned."""
    run_id = run_of(dataset, window)
    if (shown := status.run_status(pool, run_id)) is None:
        raise DeclarationError(f"{run_id} was never planned; scrape-assets run {dataset} --window {window}")
    return shown


def status_command(
    dataset: DatasetName,
    window: Annotated[str | None, typer.Option("--window", help="one window in detail")] = None,
    json: Json = False,
) -> None:
    """Show where a window stands, or all recent windows."""
    with opened(dataset) as (settings, _, pool):
        declaration = declared(settings, dataset)
        if window is None:
            _show_windows(pool, dataset, json=json)
            return
        key = window_key(declaration, window)
        shown = window_status(pool, dataset, key)
        waiting = _waiting_for_a_manifest(pool, declaration, shown)
        with postgres.transaction(pool) as tx:
            rejected = {
                r["retailer"]: runs.rejections(tx, shown["run_id"], r["retailer"], ALL if json else SHOWN_REJECTIONS)
                for r in shown["retailers"]
                if r["rejected_lines"]
            }
    if json:
        lines = {name: [r._asdict() for r in rows] for name, rows in rejected.items()}
        emit({**shown, "rejected_lines": lines, "waiting_for_manifest": waiting})
        return
    say_retailers(shown)
    _say_version(shown)
    for name, manifest_hash in waiting.items():
        say(f"{name} waits for manifest {manifest_hash}, with which it was planned; the declaration here differs")
    for origin in shown["paused_origins"]:
        say(f"{origin['origin']} is paused until {origin['until']:%Y-%m-%d %H:%M:%S} UTC: {origin['reason']}")
    for name, rows in rejected.items():
        count = next(r["rejected_lines"] for r in shown["retailers"] if r["retailer"] == name)
        some = f"{len(rows)} of " if len(rows) < count else ""
        more = "; --json has all of them" if some else ""
        table(
            f"{name}: {some}{count} refused inventory lines{more}",
            ("line", "content", "reason"),
            [tuple(r) for r in rows],
        )
    for d in shown["deliveries"]:
        say(f"{d['destination']}: version {d['dataset_version']} {d['state']} {d['last_error'] or ''}".rstrip())


def _say_version(shown: dict[str, Any]) -> None:
    """The newest attempt to make a version, and the version that stands."""
    newest, version = shown["candidate"], shown["version"]
    if newest:
        say(f"dataset candidate {newest['sequence']}: {_candidate(shown)}")
        for line in (*newest["reasons"], *newest["held"]):
            say(f"  {line}")
    if version:
        held = [line for r in shown["retailers"] if r["state"] == "accepted" for line in r["held"]]
        held += newest["held"] if newest["state"] == "published" else []
        noted = f"; {acceptance.in_number(len(held))}, see above" if held else ""
        say(f"version {version['dataset_version']}: {version['rows']} rows{noted}")
        for name, gap in version["gaps"].items():
            say(f"{name} is a gap: {gap}")


def pages_command(
    dataset: DatasetName,
    retailer: RetailerName = None,
    windows: Annotated[int, typer.Option("--windows", min=1, help="so many of the newest")] = 7,
    json: Json = False,
) -> None:
    """Show what pages turned out to be, window after window, and whether they are laid out as before."""
    with opened(dataset) as (settings, _, pool):
        declaration = declared(settings, dataset)
        if retailer is not None and retailer not in declaration.retailers:
            raise DeclarationError(
                f"{dataset} has no retailer {retailer!r}{nearest(retailer, sorted(declaration.retailers))}"
            )
        found = series.of_pages(pool, declaration, windows, retailer)
    if json:
        emit({"dataset": dataset, "series": found})
        return
    if not found:
        say(f"no page of dataset {dataset} has ended yet; begin with: scrape-assets run {dataset} --window current")
        return
    states = list(dict.fromkeys(name for line in found for name in line["states"]))

    def share(part: float | None) -> str:
        return "" if part is None else f"{part:.1%}"

    table(
        f"{dataset}: what pages turned out to be",
        ("window", "retailer", "pages", *states, "one template", "as before"),
        [
            (
                line["window"],
                line["retailer"],
                line["pages"],
                *(share(line["states"].get(name, 0) / line["pages"] or None) for name in states),
                share(line["commonest_template"]),
                share(line["as_before"]),
            )
            for line in found
        ],
        without_zeros=True,
    )


def _waiting_for_a_manifest(pool: Pool, declaration: Dataset, shown: dict[str, Any]) -> dict[str, str]:
    """Retailers with open tasks that no worker of this declaration takes, and what they were planned with."""
    names = [r["retailer"] for r in shown["retailers"] if r["tasks"]["open"] and not r["waits"]]
    mine = {work.retailer.name for work in run.assignments(pool, declaration, shown["window"], names)}
    with postgres.transaction(pool) as tx:
        partitions = runs.partitions(tx, shown["run_id"])
    return {name: str(partitions[name].manifest_hash) for name in names if name not in mine}


def verify_command(json: Json = False) -> None:
    """Check every promise of the protocol over live data; exit 1 and the keys when one is broken."""
    with opened() as (_, _, pool):
        found = verify.verify(pool)
    if json:
        emit(
            {
                "checked": len(found.checked),
                "violations": [{"invariant": v.name, "sentence": v.sentence, "keys": v.keys} for v in found.violations],
                "seconds": round(found.seconds, 3),
            }
        )
    else:
        for invariant in found.checked:
            mark = "[red]broken[/]" if invariant.keys else "[green]holds[/] "
            out.print(f"{mark} {invariant.sentence}", highlight=False)
            for key in invariant.keys[:10]:
                out.print(f"         {key}", highlight=False, markup=False)
        say(f"{len(found.checked)} invariants in {found.seconds:.2f} s, {len(found.violations)} broken")
    if found.violations:
        raise typer.Exit(1)


def failed_command(
    dataset: DatasetName,
    window: LookedAt = None,
    retailer: RetailerName = None,
    failure_class: Annotated[str | None, typer.Option("--failure-class", help="only this class")] = None,
    json: Json = False,
) -> None:
    """List what ended quarantined or gone: page, class and reason."""
    if failure_class is not None and failure_class not in (classes := [one.value for one in FailureClass]):
        raise DeclarationError(f"there is no failure class {failure_class!r}{nearest(failure_class, classes)}")
    with opened(dataset) as (settings, _, pool):
        key = looked_at(pool, declared(settings, dataset), window)
        known = sorted(r["retailer"] for r in window_status(pool, dataset, key)["retailers"])
        if retailer is not None and retailer not in known:
            raise DeclarationError(f"{run_of(dataset, key)} has no retailer {retailer}; it has {', '.join(known)}")
        with postgres.transaction(pool) as tx:
            rows = observe.failed_tasks(tx, run_of(dataset, key), retailer, failure_class)
    if json:
        emit({"run_id": run_of(dataset, key), "failed": [row._asdict() for row in rows]})
        return
    out.print(f"[bold]{run_of(dataset, key)}: {len(rows)} not obtained[/]", highlight=False)
    # Not a table: an address that is folded cannot be copied.
    for r in rows:
        seen = ", ".join(str(fact) for fact in (r.http_status, r.page_state) if fact)
        tries = f"{r.attempt_count} tries" if r.attempt_count != 1 else "1 try"
        where = f"{r.retailer}  {r.context}" if r.context else r.retailer
        facts = f"{where}  {r.state}  {r.last_failure_class}  {tries}" + (f" ({seen})" if seen else "")
        for line in (facts, f"  {r.url}", f"  {r.reason}" if r.reason else ""):
            if line:
                out.print(harmless(line), highlight=False, markup=False)


def say_retailers(summary: dict[str, Any]) -> None:
    """A row for each retailer of a run, why a rejected one was, and what was held back of an accepted one."""
    table(
        summary["run_id"],
        (
            "retailer",
            "state",
            "planned",
            "committed",
            "gone",
            "quarantined",
            "open",
            "coverage",
            "rows",
        ),
        [
            (
                r["retailer"],
                r["state"],
                *(r["tasks"][key] for key in ("planned", "committed", "gone", "quarantined", "open")),
                "" if r["coverage"] is None else f"{r['coverage']:.1%}",
                r["observations"],
            )
            for r in summary["retailers"]
        ],
        without_zeros=True,
    )
    for r in summary["retailers"]:
        _say_pages(r)
        if not r["planned"]:
            say(f"{r['retailer']} is not planned: `scrape-assets run` plans it, or says why not")
        if r["waits"]:
            ends = " Its open tasks are quarantined 6 h after that, unless it is resumed." if r["stopped_at"] else ""
            say(f"{r['retailer']} is {refusals.in_words(r['paused'])}.{ends}")
        elif r["closing_at"]:
            say(f"{r['retailer']} was closed at {r['closing_at']:%Y-%m-%d %H:%M} UTC")
        for reason in r["reasons"]:
            say(f"{r['retailer']}: {reason}")
        for sample in r["samples"]:
            say(f"  {r['retailer']}: {acceptance.in_words(sample)}")
        for held in r["held"]:
            say(f"{r['retailer']}: {held}")
        if r["drift"]:
            say(f"{r['retailer']}: {r['drift']}")


def _say_pages(r: dict[str, Any]) -> None:
    """What its lists gave, what was met on the way, what waits and why, and why pages were given up."""
    name = r["retailer"]
    if lists := r["lists"]:
        problem = f"; {lists['problem']}" if lists["problem"] else ""
        say(f"{name}: {lists['read']} of {lists['pages']} pages that name others read{problem}")
    for one in r["waiting_for_room"]:
        wait = written(round(one["oldest_seconds"]))
        say(f"{name}: {one['pages']} pages wait for room at {one['origin']}, the oldest for {wait} (fetch.open_tasks)")
    if met := ", ".join(f"{kind} {count}" for kind, count in r["failure_classes"].items()):
        say(f"{name}: {r['attempts']} attempts, among them {met}")
    if again := r["to_try_again"]:
        met = status.in_words(again["failure_class"], again["reason"])
        say(f"{name}: {again['pages']} to try again, the next at {again['next_at']:%H:%M:%S} UTC; last {met}")
    for one in r["given_up"]:
        say(f"{name}: {one['pages']} given up, {status.in_words(one['failure_class'], one['reason'])}")
