"""`drill`: what a crash costs, measured on your own Postgres."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from scrape_assets import settings as environment
from scrape_assets.cli.output import Json, emit, say, table
from scrape_assets.errors import DeclarationError, ScrapeAssetsError
from scrape_assets.flow import drill, drill_discovery, drill_hostile, drill_politeness
from scrape_assets.flow.drill_ground import Scratch, scratch
from scrape_assets.store import embedded, postgres


def add_to(app: typer.Typer) -> None:
    """The command of this module belongs to the program."""
    app.command("drill")(drill_command)


class Suite(StrEnum):
    """What `drill` tries."""

    RECOVERY = "recovery"
    DISCOVERY = "discovery"
    HOSTILE = "hostile"
    POLITENESS = "politeness"


SUITES: dict[Suite, Callable[[Scratch, Callable[[str], None]], dict[str, Any]]] = {
    Suite.DISCOVERY: drill_discovery.run,
    Suite.HOSTILE: drill_hostile.run,
    Suite.POLITENESS: drill_politeness.run,
}


def drill_command(
    window: Annotated[str | None, typer.Option("--window", help="only this window, as K9")] = None,
    times: Annotated[
        int | None, typer.Option("--times", min=1, help="how often each window is fired", show_default="3")
    ] = None,
    at_random: Annotated[
        int | None, typer.Option("--random", min=0, help="kill workers this often, anywhere, over one long run")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="which kills; the same seed gives the same")] = None,
    suite: Annotated[Suite, typer.Option("--suite", help="what is tried")] = Suite.RECOVERY,
    json: Json = False,
) -> None:
    """Kill workers in every crash window and count what it cost; in a scratch database, never your data.

    The other suites try a site's budget instead: what the site saw is held against what was declared.
    """
    if suite is not Suite.RECOVERY:
        given = {"--window": window, "--times": times, "--random": at_random, "--seed": seed}
        if odd := [name for name, value in given.items() if value is not None]:
            raise DeclarationError(f"{odd[0]} belongs to the suite recovery; {suite.value} always tries the same cases")
        _cases(suite, json=json)
        return
    times, at_random = times or 3, at_random or 0
    known = drill.windows()
    if window is not None and window not in known:
        raise DeclarationError(f"there is no window {window}; there are {', '.join(known)}")
    if window is not None and at_random:
        raise DeclarationError("--window fires one window, --random kills anywhere; expected one of the two")
    settings = environment.load()
    if settings.database_url:
        with postgres.connect(settings.database_url) as connection:
            embedded.check_durable(connection)
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    began = time.monotonic()
    pages = max(drill.PAGES, 100 * at_random if at_random else 0, 80 * times)
    with drill.ground(settings.database_url, pages, (lambda _: None) if json else say) as ground:
        if at_random:
            outcomes = [drill.drill_at_random(ground, at_random, seed, postgres_kills=at_random // 20)]
        else:
            outcomes = drill.drill(ground, [window] if window else list(known), times=times)
    records = [outcome.record() for outcome in outcomes]
    result = {
        "suite": "recovery",
        "seed": seed,
        "windows": records,
        **{
            name: sum(getattr(outcome, name) for outcome in outcomes)
            for name in ("lost", "duplicated", "acknowledged_missing")
        },
        "seconds": round(time.monotonic() - began, 1),
        "in_time": all(record["in_time"] for record in records),
        "ok": all(outcome.ok for outcome in outcomes),
    }
    if json:
        emit(result)
    else:
        table(
            f"drill, seed {seed}",
            ("window", "", "fired", "lost", "duplicated", "refetched", "seconds lost", "verdict"),
            [
                (
                    r["window"],
                    r["what"],
                    *(r[name] for name in ("fired", "lost", "duplicated", "refetched")),
                    f"{r['seconds_lost']} of {r['seconds_allowed']:g}",
                    f"skipped: {r['skipped']}"
                    if r["skipped"]
                    else "ok"
                    if r["ok"]
                    else "; ".join(r["wrong"]) or "NOT ok",
                )
                for r in records
            ],
        )
    if not result["ok"]:
        raise ScrapeAssetsError("the drill found a promise that does not hold; the windows above name it")


def _cases(suite: Suite, *, json: bool) -> None:
    settings = environment.load()
    began = time.monotonic()
    with scratch(settings.database_url) as own:
        result = SUITES[suite](own, (lambda _: None) if json else say)
    result = {"suite": suite.value, **result, "seconds": round(time.monotonic() - began, 1)}
    if json:
        emit(result)
    else:
        table(
            f"drill, suite {suite.value}",
            ("case", "expected", "got", ""),
            [
                (case["name"], case["expected"], case["got"], "ok" if case["ok"] else "NOT ok")
                for case in result["cases"]
            ],
        )
    if not result["ok"]:
        raise ScrapeAssetsError("the drill found a promise that does not hold; the cases above name it")
