"""Golden pages on the command line: `record` makes one, `check` shows what differs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from scrape_assets import settings as environment
from scrape_assets.cli.output import Json, emit, find, opened, out, run_of, say, show_page, table, window_key
from scrape_assets.datasets import load
from scrape_assets.flow import golden, plan, trial


def add_to(app: typer.Typer) -> None:
    """The command of this module belongs to the program."""
    app.command("record")(record)


def record(
    retailer: Annotated[
        str, typer.Argument(metavar="RETAILER", help="its name; DATASET/RETAILER where two datasets have it")
    ],
    url: Annotated[str, typer.Argument(metavar="URL", help="a page of its site")],
    window: Annotated[
        str | None, typer.Option("--window", help="take the page that was stored in this window; no request is made")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="in this context, where the retailer has several")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="the case's name; else one made from the address")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a case of that name")] = False,
    json: Json = False,
) -> None:
    """Keep a page and what it says as a golden page, for a person to correct and for `check` to compare."""
    settings = environment.load()
    dataset, found = find(load.project(settings.project), retailer)
    within = trial.context_of(found, context)
    if window is None:
        now = plan.current_window(dataset, datetime.now(UTC))
        fetching = golden.fetched(
            dataset,
            found,
            url,
            window=now,
            connect_to=settings.connect_to,
            browser=settings.browser,
            context=within,
        )
        page = asyncio.run(fetching)
    else:
        with opened(dataset.dataset) as (_, _, pool):
            key = window_key(dataset, window)
            stored = trial.stored_pages(
                pool, run_of(dataset.dataset, key), found, url=url, at_most=1, context=within or None
            )
            page = asyncio.run(golden.from_store(dataset, found, stored[0], window=key, artifacts=settings.artifacts))
    recorded = golden.record(dataset, found, page, name=name, replace=force)
    if json:
        emit(recorded)
        return
    show_page(recorded)
    for path in recorded["written"]:
        say(f"wrote {path}")
    say(f"read {Path(recorded['written'][-1]).name}: correct what is wrong, remove what may change; then:")
    say(f"  scrape-assets check {dataset.dataset}")


def show_cases(cases: Sequence[dict[str, Any]], problems: Sequence[str]) -> None:
    """How many golden pages say what they should; of each other one every difference, with what gave the value."""
    differing = [case for case in cases if not case["ok"]]
    if cases:
        told = f"{len(cases) - len(differing)} of {len(cases)} are as expected"
        out.print(f"\n  golden pages  {told}", highlight=False, markup=False)
    for case in differing:
        told_apart = any(one["row"] for one in case["differences"])
        columns = (*(("row",) if told_apart else ()), "field", "expected", "got", "from")
        table(
            f"{case['retailer']}/{case['name']}",
            columns,
            [
                (
                    *((one["row"],) if told_apart else ()),
                    one["field"] or "(row)",
                    _value(one["expected"]),
                    _value(one["got"]),
                    one["from"],
                )
                for one in case["differences"]
            ],
        )
    if cases and problems:
        say(f"{len(problems)} golden pages cannot be read")


def _value(value: Any) -> str:
    return "nothing" if value is None else orjson.dumps(value).decode()
