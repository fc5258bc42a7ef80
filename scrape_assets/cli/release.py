"""What happens to versions: `deliver` sends them, `export` reads them, `show` tells what one is made of."""

from __future__ import annotations

import random
import sys
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import orjson
import typer

from scrape_assets.cli.output import (
    DatasetName,
    Json,
    LookedAt,
    declared,
    emit,
    harmless,
    looked_at,
    opened,
    out,
    run_of,
    say,
)
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.datasets.problems import nearest
from scrape_assets.errors import DeclarationError, ScrapeAssetsError
from scrape_assets.flow import deliver, provenance, publish
from scrape_assets.flow.deliver import Delivered
from scrape_assets.sinks import files
from scrape_assets.sinks.files import Format
from scrape_assets.sinks.outcome import Record
from scrape_assets.store import outbox, postgres, publication, runs
from scrape_assets.store.postgres import Pool

FORMATS: tuple[str, ...] = get_args(Format)
UNSENT = "not everything could be delivered; what waits for a next try, and what for you, stands above"
SHOWN = 50
"""Deliveries that `deliver --status` lists, and unsettled ones that `deliver` names."""


def add_to(app: typer.Typer) -> None:
    """The commands of this module belong to the program."""
    for command in (deliver_command, export_command, show_command):
        app.command(command.__name__.removesuffix("_command"))(command)


def deliver_command(
    dataset: DatasetName,
    status: Annotated[bool, typer.Option("--status", help="only show what was sent, and what was not")] = False,
    event: Annotated[
        str | None, typer.Option("--event", help="send this event now, whatever became of it, under the same key")
    ] = None,
    destination: Annotated[str | None, typer.Option("--destination", help="with --event: only there")] = None,
    reconcile: Annotated[
        bool, typer.Option("--reconcile", help="ask destinations for what they said they have, and send what they lack")
    ] = False,
    json: Json = False,
) -> None:
    """Send what is due to the declared destinations; nothing is collected."""
    if destination is not None and event is None:
        raise DeclarationError("--destination goes with --event")
    with opened(dataset) as (settings, _, pool):
        declaration = declared(settings, dataset)
        if status:
            _status(pool, declaration, json=json)
            return
        if event is not None:
            _again(pool, declaration, event, destination, quiet=json)
        asked = deliver.reconcile(pool, declaration) if reconcile else []
        publish.say_late(pool, declaration)
        done = deliver.deliver(pool, declaration, jitter=random.random())
        left = deliver.unsettled(pool, declaration, SHOWN)
    if json:
        emit(
            {
                "deliveries": [_record(d) for d in done],
                **({"reconciled": [_record(d) for d in asked]} if reconcile else {}),
            }
        )
    else:
        if reconcile:
            _tell_asked(asked)
        if not done:
            say("nothing is due")
        for d in done:
            say(f"{d.destination}: {what(d.run_id, d.dataset_version)} {d.state} {d.detail}")
        say_unsettled(dataset, left)
    if any(d.state != "delivered" for d in done) or any(d.state == "failed" for d in asked):
        raise ScrapeAssetsError(UNSENT)


def _tell_asked(asked: list[Delivered]) -> None:
    for d in asked:
        if d.state != "delivered" or d.detail != "it is there":
            say(f"{d.destination}: {what(d.run_id, d.dataset_version)}: {d.detail}")
    other = sum(d.state == "failed" for d in asked)
    say(
        f"{len(asked)} deliveries asked for, {sum(d.state == 'unsent' for d in asked)} missing"
        + (f", {other} with something else under their key" if other else "")
    )


def what(run_id: str, dataset_version: int | None) -> str:
    """What an event tells of: a version of a window, or that there is none in time."""
    return f"{run_id} version {dataset_version}" if dataset_version else f"{run_id} is late"


def say_unsettled(dataset: str, left: Sequence[Any]) -> None:
    """What is not delivered, when it is tried next, and the command that does not wait for that."""
    for row in left:
        now = f"scrape-assets deliver {dataset} --event {row.event_id} --destination {row.destination}"
        then = {
            "failed": f"failed, and waits for you: mend the destination, then {now}",
            "sending": "is being sent by another process",
        }.get(row.state, f"{row.state}, next try {row.next_try_at:%Y-%m-%d %H:%M:%S} UTC (now: {now})")
        say(f"{row.destination}: {what(row.run_id, row.dataset_version)} {then}")


def _record(d: Delivered) -> dict[str, Any]:
    return {
        "destination": d.destination,
        "state": d.state,
        "run_id": d.run_id,
        "dataset_version": d.dataset_version,
        "event_id": d.event_id,
        "detail": d.detail,
    }


def _again(pool: Pool, dataset: Dataset, event: str, destination: str | None, *, quiet: bool) -> None:
    try:
        event_id = uuid.UUID(event)
    except ValueError as error:
        raise DeclarationError(
            f"{event!r} is no event; expected its id, as `deliver {dataset.dataset} --status` shows it"
        ) from error
    names = deliver.send_again(pool, dataset, event_id, destination)
    if not quiet:
        say(f"{event} is sent now to {', '.join(names)}, under the same key; who may have it is asked first")


def _status(pool: Pool, dataset: Dataset, *, json: bool) -> None:
    with postgres.transaction(pool) as tx:
        rows = outbox.newest(tx, dataset.dataset, SHOWN)
    if json:
        emit({"dataset": dataset.dataset, "deliveries": [row._asdict() for row in rows]})
        return
    out.print(f"[bold]deliveries of {dataset.dataset}: the newest {len(rows)}[/]", highlight=False)
    # Not a table: an event that is folded cannot be copied.
    for row in rows:
        tries = f"{row.tries} tries" if row.tries != 1 else "1 try"
        waits = f", next {row.next_try_at:%Y-%m-%d %H:%M:%S} UTC" if row.state in ("unsent", "uncertain") else ""
        then = f", {row.delivered_at:%Y-%m-%d %H:%M:%S} UTC" if row.delivered_at else waits
        facts = f"{what(row.run_id, row.dataset_version)}  {row.destination}  {row.state}  {tries}{then}"
        for line in (facts, f"  event {row.event_id}", f"  {row.last_error}" if row.last_error else ""):
            if line:
                out.print(harmless(line), highlight=False, markup=False)
    if any(row.state not in ("delivered", "sending") for row in rows):
        say(
            f"scrape-assets deliver {dataset.dataset} --event EVENT sends one now, also one that failed: mend the "
            "destination first"
        )


def _format(value: str) -> str:
    if value not in FORMATS:
        raise DeclarationError(f"--format {value!r} is not possible{nearest(value, FORMATS)}")
    return value


def export_command(
    dataset: DatasetName,
    window: LookedAt = None,
    as_of: Annotated[int | None, typer.Option("--as-of", min=1, help="this version of the window")] = None,
    latest: Annotated[bool, typer.Option("--latest", help="the newest row of every entity, over all windows")] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="csv|jsonl|parquet", callback=_format, help="how it is written")
    ] = "csv",
    output: Annotated[Path | None, typer.Option("--output", help="a file; else standard output")] = None,
    changes: Annotated[bool, typer.Option("--changes", help="only what the version changed in the one before")] = False,
) -> None:
    """Write a published version, exactly as it was, to a file or standard output; however large, it is streamed."""
    if latest and (as_of is not None or changes):
        raise DeclarationError("--latest is over all windows; --as-of and --changes are of one")
    if output is None and form == "parquet" and sys.stdout.isatty():
        raise DeclarationError("parquet is no text; name a file: --output prices.parquet")
    chosen = cast("Format", form)
    with opened(dataset) as (settings, _, pool):
        declaration = declared(settings, dataset)
        if latest:
            rows = _latest(pool, declaration)
        else:
            key = looked_at(pool, declaration, window, published=True)
            rows = _version(pool, declaration, key, as_of, changes=changes)
        counted = 0

        def counting() -> Iterator[Record]:
            nonlocal counted
            for row in rows:
                counted += 1
                yield row

        try:
            if output is None:
                files.write(sys.stdout.buffer, chosen, deliver.columns(declaration), counting())
                sys.stdout.buffer.flush()
            else:
                files.replace(output, chosen, deliver.columns(declaration), counting())
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            # Its own words name a file beside it, which nobody asked for.
            why = error.strerror or str(error)
            raise ScrapeAssetsError(f"{output or 'standard output'} cannot be written: {why}") from error
    say(f"{counted} rows" + (f" in {output}" if output else ""))


def _version(pool: Pool, dataset: Dataset, window: str, as_of: int | None, *, changes: bool) -> Iterator[Record]:
    run_id = run_of(dataset.dataset, window)
    with postgres.transaction(pool) as tx:
        last = publication.last_version(tx, run_id) if runs.find(tx, run_id) else 0
    if not last or (as_of or 0) > last:
        there = f"it has {', '.join(str(number + 1) for number in range(last))}" if last else "it has none yet"
        raise DeclarationError(f"{run_id} has no version{f' {as_of}' if as_of else ''}; {there}")
    event = {"dataset": dataset.dataset, "window": window, "dataset_version": as_of or last}
    return deliver.records(pool, event, "delta" if changes else "full")


def _latest(pool: Pool, dataset: Dataset) -> Iterator[Record]:
    with postgres.transaction(pool) as tx:
        for row in publication.latest(tx, dataset.dataset):
            yield {
                **orjson.loads(row.payload),
                "dataset": dataset.dataset,
                "window": row.collection_window,
                "dataset_version": str(row.dataset_version),
                "retailer": row.retailer,
                "context": row.context,
                "entity_key": row.entity_key,
                "observed_at": datetime.fromtimestamp(row.observed_at, UTC),
                "known_at": datetime.fromtimestamp(row.known_at, UTC),
            }


def show_command(
    dataset: DatasetName,
    window: LookedAt = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="else the one that stands")] = None,
    json: Json = False,
) -> None:
    """Show what a version is made of: retailers, extractors, checks, waivers, repairs, gaps, deliveries."""
    with opened(dataset) as (settings, _, pool):
        declaration = declared(settings, dataset)
        run_id = run_of(dataset, looked_at(pool, declaration, window, published=True))
        said = provenance.of_version(pool, run_id, version)
    if json:
        emit(said)
        return
    for line in provenance.text(said):
        out.print(line, highlight=False, markup=False)
