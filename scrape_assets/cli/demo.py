"""`demo`: a small shop is collected, the worker is killed on the way, the run resumes, and the result is compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from scrape_assets import settings as environment
from scrape_assets.cli.output import Json, emit, out, say, table
from scrape_assets.datasets import load
from scrape_assets.demo import lanterns
from scrape_assets.demo.project import MENDED, read_prices, write_lanterns, write_project
from scrape_assets.demo.running import RunningShop, running_shop
from scrape_assets.errors import CandidateRejected, DeclarationError, ScrapeAssetsError
from scrape_assets.flow import accept, plan, publish, rehearse, status
from scrape_assets.rules import keys, windows
from scrape_assets.settings import DEMO_FOLDER, Settings
from scrape_assets.sources import chromium
from scrape_assets.store import observe, postgres
from scrape_assets.store.postgres import Pool

DATASET = "shop"
KILL_AT = 2 / 3
"""The worker is killed when this share of the tasks has ended."""

WORKER_SECONDS = 900.0
"""A worker that has not come that far by then is stuck."""


def add_to(app: typer.Typer) -> None:
    """The command of this module belongs to the program."""
    app.command("demo")(demo)


def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="only serve the shop, to declare a retailer of your own against it")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65532, help="with --serve: the first of the shop's four ports")
    ] = 0,
    json: Json = False,
) -> None:
    """Collect a small shop on this machine, kill the worker, resume, publish; then repair what was read wrong."""
    if serve:
        _serve(port, json=json)
        return
    if port:
        raise DeclarationError("--port goes with --serve")
    # The database of an earlier demo is none of this one's, and may be gone.
    settings = replace(environment.load(working_directory=Path.cwd()), database=None)
    with environment.open_store(settings), running_shop() as shop:
        name = f"demo_{datetime.now(UTC):%Y%m%d_%H%M%S}_{uuid.uuid4().hex[:4]}"
        folder = settings.state / DEMO_FOLDER / name
        write_project(folder, shop.sites)
        read_prices(folder, "first amount")
        environment.create_database(settings, name)
        mine = replace(settings, project=folder, database=name)
        with environment.open_store(mine) as store, postgres.open_pool(store.url) as pool:
            env = environment.environment(mine, store)
            result = _play(mine, env, pool, shop, quiet=json)
            _show_lanterns(mine, env, pool, shop, quiet=json)
        last = settings.state / DEMO_FOLDER / "last"
        part = last.with_name(f".last-{os.getpid()}")
        part.write_text(f"{folder}\n{name}\n{environment.server_of(settings.database_url)}\n")
        part.replace(last)
    if json:
        emit(result)
    else:
        _tell(result)
        _say_next(mine)
    wrong = (result["lost"], result["duplicates"], result["invented"], result["wrong_values"], result["tasks"]["open"])
    crash = result["crash"]
    if crash["refetched"] > crash["in_flight"] or crash["committed_fetched_again"]:
        raise ScrapeAssetsError("more pages were fetched again than were in flight when the worker was killed")
    repair = result["repair"]
    if repair["requests"] or repair["other_partitions_moved"] or not repair["corrected_rows"]:
        raise ScrapeAssetsError("the repair asked the site, moved other retailers, or corrected nothing")
    if any(wrong):
        raise ScrapeAssetsError("the published rows are not what the shop holds; `scrape-assets verify` looks further")


def _serve(port: int, *, json: bool) -> None:
    with running_shop(port) as shop:
        if json:
            emit({"pid": shop.pid, "url": shop.url, "sites": dict(shop.sites)})
        else:
            for name, url in shop.sites.items():
                out.print(f"{name:12} {url}", highlight=False)
            out.print(f"{'bookshop':12} {shop.url}/books/  for a declaration of your own", highlight=False)
            say("Ctrl-C stops it")
        stopped = signal.sigwait({signal.SIGINT, signal.SIGTERM}) if _block() else None
        say(f"stopped by {signal.Signals(stopped).name}" if stopped else "stopped")


def _block() -> bool:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    return True


def _play(settings: Settings, env: dict[str, str], pool: Pool, shop: RunningShop, *, quiet: bool) -> dict[str, Any]:
    dataset = load.dataset(settings.project, DATASET)
    now = datetime.now(UTC)
    window = windows.current_key(dataset.window, now)
    run_id = keys.run_id(DATASET, window)
    planned = plan.plan(pool, dataset, window, now=now)
    total = sum(p.planned for p in planned)
    if not quiet:
        say(f"planned {total} pages of {len(planned)} retailers ({', '.join(p.retailer for p in planned)}) as {run_id}")

    worker = subprocess.Popen(
        [sys.executable, "-m", "scrape_assets.cli", "worker", DATASET, "--json"],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for(pool, run_id, worker, int(total * KILL_AT))
    finally:
        worker.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        worker.wait()
    ended_before = _urls(pool, run_id, "committed", "gone", "quarantined")
    committed_before = _urls(pool, run_id, "committed")
    in_flight = _urls(pool, run_id, "leased")
    requests_before = shop.log()["paths"]
    if not quiet:
        say(
            f"killed the worker (pid {worker.pid}, SIGKILL) with {len(committed_before)} pages committed and "
            f"{len(in_flight)} in flight; running it again"
        )
    resumed = subprocess.Popen(
        [sys.executable, "-m", "scrape_assets.cli", "run", DATASET, "--window", window, "--json"],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    first_commit: float | None = None
    try:
        while resumed.poll() is None and first_commit is None:
            if _ended(pool, run_id) > len(ended_before):
                first_commit = time.monotonic() - killed_at
            time.sleep(0.2)
        said, _ = resumed.communicate()
    finally:
        if resumed.poll() is None:
            resumed.terminate()
            resumed.wait()
    if resumed.returncode:
        raise ScrapeAssetsError(f"the resumed run ended with exit code {resumed.returncode}; its messages are above")
    first = orjson.loads(said)
    requests = shop.log()["paths"]
    rejected, summary, repair = _mend(settings, env, pool, shop, run_id, window, quiet=quiet)

    def fetched_again(urls: list[str]) -> int:
        return sum(1 for url in urls if requests.get(url, 0) > requests_before.get(url, 0) > 0)

    compared = rehearse.compare(pool, run_id, summary["published"]["dataset_version"], shop.truth())
    standing = status.run_status(pool, run_id)
    assert standing is not None
    return {
        "run_id": run_id,
        "tasks": {name: summary["tasks"][name] for name in ("planned", "committed", "gone", "quarantined", "open")},
        "observations": summary["observations"],
        "attempts": first["attempts"],
        "duplicates": compared["duplicates"],
        "lost": compared["lost"],
        "invented": compared["invented"],
        "wrong_values": compared["wrong_values"],
        "offers_in_the_shop": compared["offers"],
        "crash": {
            "committed_before": len(committed_before),
            "in_flight": len(in_flight),
            # Of pages that had ended none should be; one that is counts here, against those that were in flight.
            "refetched": fetched_again([*in_flight, *ended_before]),
            "committed_fetched_again": fetched_again(committed_before),
            "seconds_lost": round(first_commit or 0.0, 2),
        },
        "acceptance": {"state": summary["acceptance"]["state"], "checks": summary["acceptance"]["checks"]},
        "first_version": {"rows": first["published"]["rows"], "wrong_values": repair.pop("wrong_before")},
        "rejected": rejected,
        "repair": repair,
        "published": {
            "dataset_version": summary["published"]["dataset_version"],
            "rows": summary["published"]["rows"],
        },
        "deliveries": [
            {"destination": d["destination"], "state": d["state"], "manifest": (d["receipt"] or {}).get("manifest")}
            for d in standing["deliveries"]
        ],
        "retailers": [
            {"retailer": r["retailer"], "failure_classes": r["failure_classes"], **r["tasks"]}
            for r in standing["retailers"]
        ],
    }


def _show_lanterns(settings: Settings, env: dict[str, str], pool: Pool, shop: RunningShop, *, quiet: bool) -> None:
    """Where there is a browser: prices that exist only after JavaScript ran, collected and compared; else it is said.

    In a dataset of its own, so that the demo is the same, and its project complete, on a machine without one.
    """
    if (missing := chromium.problem(settings.browser)) is not None:
        say(f"left out: {lanterns.RETAILER}, whose prices exist only after JavaScript ran. {missing}")
        return
    write_lanterns(settings.project, shop.url)
    dataset = load.dataset(settings.project, lanterns.RETAILER)
    now = datetime.now(UTC)
    window = windows.current_key(dataset.window, now)
    run_id = keys.run_id(lanterns.RETAILER, window)
    plan.plan(pool, dataset, window, now=now)
    # A worker knows nothing of Dagster, which would take longer to start than the browser.
    ended = subprocess.run(
        [sys.executable, "-m", "scrape_assets.cli", "worker", lanterns.RETAILER, "--json"],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode:
        raise ScrapeAssetsError(f"{run_id}: its worker ended with exit code {ended.returncode}; its messages are above")
    accept.accept_retailer(pool, dataset, run_id, lanterns.RETAILER)
    accept.accept_dataset(pool, dataset, run_id)
    published = publish.publish(pool, dataset, run_id)
    compared = rehearse.compare(pool, run_id, published.dataset_version, lanterns.truth(shop.url))
    if compared["lost"] or compared["invented"] or compared["duplicates"] or compared["wrong_values"]:
        raise ScrapeAssetsError(f"{run_id}: the published rows are not what the shop shows in a browser: {compared}")
    if not quiet:
        say(f"by a browser: {compared['rows']} prices that exist only after JavaScript ran, as {run_id}, all right")


def _mend(
    settings: Settings,
    env: dict[str, str],
    pool: Pool,
    shop: RunningShop,
    run_id: str,
    window: str,
    *,
    quiet: bool,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """One retailer's list prices were published as prices; a wrong repair is rejected, the right one is a correction.

    Returns what rejected the wrong one, the summary of the right one, and what that cost.
    """
    truth = shop.truth()
    wrong_before = rehearse.compare(pool, run_id, 1, truth)["wrong_values"]
    if not quiet:
        say(f"version 1 has {len(wrong_before)} wrong prices: {MENDED}'s selector takes list prices for prices")
    read_prices(settings.project, "cents")
    code, wrong = _recover(env, window)
    if code != CandidateRejected.exit_code:
        raise ScrapeAssetsError(f"a repair that reads cents as euros ended with exit code {code}, not as rejected")
    failed = next(
        check
        for check in wrong["acceptance"]["checks"]
        if check["retailer"] == MENDED and not check["passed"] and check["severity"] == "error" and not check["held"]
    )
    if not quiet:
        say(f"a first repair reads cents as euros; rejected by {failed['rule']}: {failed['got']}. Version 1 stands")
    read_prices(settings.project, "right")
    asked = shop.log()["total"]
    code, right = _recover(env, window)
    if code:
        raise ScrapeAssetsError(f"the repair ended with exit code {code}; its messages are above")
    moved = right["recovery"]["partitions"]
    return (
        {"retailer": MENDED, **{name: failed[name] for name in ("rule", "expected", "got")}},
        right,
        {
            "tasks": sum(batch["tasks"] for batch in right["recovery"]["batches"]),
            "requests": shop.log()["total"] - asked,
            "corrected_rows": right["published"]["changes"]["corrected"],
            "other_partitions_moved": right["recovery"]["other_partitions_moved"],
            "partitions": [{name: one[name] for name in ("retailer", "before", "after")} for one in moved],
            "wrong_before": len(wrong_before),
        },
    )


def _recover(env: dict[str, str], window: str) -> tuple[int, dict[str, Any]]:
    """`recover` from stored pages, in a process of its own; its exit code and its one object."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "scrape_assets.cli", "recover", DATASET, "--window", window),
            *("--retailer", MENDED, "--from-artifacts", "--json"),
        ],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if not ended.stdout:
        raise ScrapeAssetsError(ended.stderr.decode("utf-8", "replace").strip() or "recover said nothing")
    return ended.returncode, orjson.loads(ended.stdout)


def _wait_for(pool: Pool, run_id: str, worker: subprocess.Popen[bytes], ended: int) -> None:
    give_up = time.monotonic() + WORKER_SECONDS
    while _ended(pool, run_id) < ended:
        if worker.poll() is not None:
            raise ScrapeAssetsError(
                f"the worker ended by itself with exit code {worker.returncode} before it could be killed"
            )
        if time.monotonic() > give_up:
            raise ScrapeAssetsError(f"the worker has not finished {ended} pages in {WORKER_SECONDS:.0f} s")
        time.sleep(0.2)


def _ended(pool: Pool, run_id: str) -> int:
    with postgres.transaction(pool) as tx:
        return sum(row.committed + row.gone + row.quarantined for row in observe.partition_counts(tx, run_id))


def _urls(pool: Pool, run_id: str, *states: str) -> list[str]:
    with postgres.transaction(pool) as tx:
        return observe.urls(tx, run_id, *states)


def _tell(result: dict[str, Any]) -> None:
    crash, published = result["crash"], result["published"]
    table(
        "what became of the pages",
        ("retailer", "planned", "committed", "gone", "quarantined", "met on the way"),
        [
            (
                r["retailer"],
                *(r[key] for key in ("planned", "committed", "gone", "quarantined")),
                ", ".join(f"{name} {count}" for name, count in r["failure_classes"].items()),
            )
            for r in result["retailers"]
        ],
    )
    say(
        f"crash: {crash['committed_before']} pages were committed, {crash['in_flight']} in flight; "
        f"{crash['refetched']} of those fetched again, {crash['committed_fetched_again']} committed ones too, "
        f"{crash['seconds_lost']} s from the kill to the next commit"
    )
    rejected, repair = result["rejected"], result["repair"]
    say(
        f"version 1: {result['first_version']['wrong_values']} wrong prices of {rejected['retailer']} were published; "
        f"a wrong repair was rejected by {rejected['rule']} ({rejected['got']}), version 1 stood"
    )
    say(
        f"repair from stored pages: {repair['tasks']} pages, {repair['requests']} requests, {repair['corrected_rows']} "
        f"rows corrected, {repair['other_partitions_moved']} other retailers moved"
    )
    say(
        f"shop and version {published['dataset_version']}: {result['offers_in_the_shop']} offers, "
        f"{published['rows']} rows, {result['lost']} lost, {result['duplicates']} doubled, "
        f"{len(result['wrong_values'])} wrong values"
    )
    for d in result["deliveries"]:
        say(f"delivered to {d['destination']}: {d['manifest']}")


def _say_next(mine: Settings) -> None:
    """Commands that can be copied: they name the demo where a project of the user's would be taken instead."""
    seen = environment.load()
    named = ""
    if (seen.project, seen.database) != (mine.project, mine.database):
        named = f"SCRAPE_ASSETS_PROJECT={mine.project} SCRAPE_ASSETS_STATE={mine.state} "
        named += f"SCRAPE_ASSETS_DATABASE={mine.database} "
    say("next:")
    for command, what in (
        ("dev", "this run in the Dagster UI"),
        (f"status {DATASET}", "where it stands"),
        (f"failed {DATASET}", "what was not obtained, and why"),
        (f"show {DATASET}", "what version 2 is made of"),
        (f"export {DATASET} --as-of 1", "version 1, exactly as it was"),
        ("verify", "whether every invariant holds"),
    ):
        say(f"  {named}scrape-assets {command:<24} {what}")
