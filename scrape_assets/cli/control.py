"""`pause`, `resume` and `close`: what a person does to a window that is being collected."""

from __future__ import annotations

from typing import Annotated

import typer

from scrape_assets.cli.output import (
    DatasetName,
    Json,
    RetailerName,
    Window,
    declared,
    emit,
    opened,
    run_of,
    say,
    window_key,
)
from scrape_assets.flow import control


def add_to(app: typer.Typer) -> None:
    """The commands of this module belong to the program."""
    for command in (pause_command, resume_command, close_command):
        app.command(command.__name__.removesuffix("_command"))(command)


def pause_command(
    dataset: DatasetName,
    window: Window = "current",
    retailer: RetailerName = None,
    reason: Annotated[str, typer.Option("--reason", help="what `status` says to those who ask")] = "paused by hand",
    json: Json = False,
) -> None:
    """Ask nothing further of a window, or of one retailer of it, until it is resumed; what is under way ends."""
    with opened(dataset) as (settings, _, pool):
        run_id = run_of(dataset, window_key(declared(settings, dataset), window))
        done = control.pause(pool, run_id, [retailer] if retailer else [], reason)
    if json:
        emit({"run_id": run_id, "paused": done})
    else:
        say(f"{run_id}: paused {', '.join(done)}" if done else f"{run_id}: was paused already")


def resume_command(
    dataset: DatasetName, window: Window = "current", retailer: RetailerName = None, json: Json = False
) -> None:
    """Let paused or stopped retailers of a window go on; earlier refusals are forgiven."""
    with opened(dataset) as (settings, _, pool):
        key = window_key(declared(settings, dataset), window)
        run_id = run_of(dataset, key)
        done = control.resume(pool, run_id, [retailer] if retailer else [])
        lost = control.given_up(pool, run_id, done)
    if json:
        emit({"run_id": run_id, "resumed": done, "given_up": lost})
    else:
        for name, pages in lost.items():
            said = "pages were given up and stay" if pages > 1 else "page was given up and stays"
            say(f"{name}: {pages} {said} so until: scrape-assets recover {dataset} --window {key} --retailer {name}")
        say(
            f"{run_id}: resumed {', '.join(done)}; workers go on, or: scrape-assets run {dataset} --window {key}"
            if done
            else f"{run_id}: nothing was paused"
        )


def close_command(
    dataset: DatasetName, window: Window = "current", retailer: RetailerName = None, json: Json = False
) -> None:
    """End a window, or one retailer of it, as it is: what is open is quarantined `window_closed`, for good."""
    with opened(dataset) as (settings, _, pool):
        key = window_key(declared(settings, dataset), window)
        run_id = run_of(dataset, key)
        done = control.close(pool, run_id, [retailer] if retailer else [], (lambda _: None) if json else say)
    if json:
        emit({"run_id": run_id, "closed": {one.retailer: one.quarantined for one in done}})
    else:
        for one in done:
            say(f"{run_id} {one.retailer}: closed, {one.quarantined} tasks quarantined")
        say(f"judge and publish what there is: scrape-assets publish {dataset} --window {key}")
