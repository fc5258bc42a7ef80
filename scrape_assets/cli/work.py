"""`worker`, and what `run` shares with it: this process as a worker of partitions, told to stop by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from scrape_assets.cli.output import Json, declared, emit, opened, progress, run_of, say
from scrape_assets.cli.stopping import unwind_on_signals
from scrape_assets.errors import DeclarationError, StoreUnreachable
from scrape_assets.flow import control, fetch, run, status
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.collect import Tally, Worker
from scrape_assets.flow.commit import Item
from scrape_assets.flow.run import Machine
from scrape_assets.settings import Settings
from scrape_assets.store import observe, postgres, runs
from scrape_assets.store.postgres import Pool

STANDSTILL_SECONDS = 10.0
"""So long nothing ended: it is said why, and again when that changed."""

Processes = Annotated[int, typer.Option("--processes", min=1, help="extraction processes")]


def add_to(app: typer.Typer) -> None:
    """The command of this module belongs to the program."""
    app.command("worker")(worker_command)


def worker_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="only this dataset")] = None,
    processes: Processes = 1,
    wait: Annotated[bool, typer.Option("--wait", help="stay and look for new work every second")] = False,
    json: Json = False,
) -> None:
    """Work open tasks of planned windows, on this machine, until there are none; needs no Dagster."""
    total = Tally()
    waiting: set[str] = set()
    with opened(dataset) as (settings, _, pool):
        machine = machine_of(settings, processes)
        while True:
            work = _open_work(settings, pool, dataset, waiting)
            if work:
                tally = collect(pool, machine, work, quiet=json)
                total.add(tally)
            elif not wait:
                break
            else:
                control.tidy(pool)  # paused and waiting partitions have deadlines too
                time.sleep(1)
    if json:
        emit(
            {
                "worker": machine.worker_id,
                "outcomes": dict(total.outcomes),
                "fenced": total.fenced,
                "seconds": round(total.seconds, 3),
                "browser": dict(total.browser),
            }
        )
    else:
        left = f"{len(waiting)} retailers wait, see above" if waiting else "no open work left"
        mine = ", ".join(f"{count} {outcome}" for outcome, count in total.outcomes.most_common())
        say(f"{left}; this worker: {mine or 'nothing to do'}")


def _open_work(settings: Settings, pool: Pool, only: str | None, waiting: set[str]) -> list[Assignment]:
    """Open partitions that this machine's declaration matches; the others wait; each is said once."""
    with postgres.transaction(pool) as tx:
        rows = runs.open_work(tx, only)
    found: list[Assignment] = []
    known = waiting.copy()
    waiting.clear()
    for dataset_id, window in sorted({(row.dataset_id, row.collection_window) for row in rows}):
        names = [r.retailer for r in rows if (r.dataset_id, r.collection_window) == (dataset_id, window)]
        why = "waits for the declaration it was planned with; this project's differs"
        try:
            mine = run.assignments(pool, declared(settings, dataset_id), window, names)
        except DeclarationError as error:
            if only:
                raise
            mine, why = [], f"waits: {error}"
        reasons = dict.fromkeys(set(names) - {a.retailer.name for a in mine}, why)
        reasons |= {
            a.retailer.name: f"waits for another machine: {said}"
            for a in mine
            if (said := fetch.problem(a.retailer, settings.browser))
        }
        still = {f"{run_of(dataset_id, window)} {name}": said for name, said in reasons.items()}
        for partition in sorted(still.keys() - known):
            say(f"{partition}: {still[partition]}")
        waiting.update(still)
        found += [a for a in mine if a.retailer.name not in reasons]
    return found


def machine_of(settings: Settings, processes: int) -> Machine:
    """This process as a worker; its name says where it runs and is never a fence."""
    name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    return Machine(settings.artifacts, name, settings.connect_to, processes, settings.browser)


def collect(pool: Pool, machine: Machine, work: list[Assignment], *, quiet: bool) -> Tally:
    """The partitions are drained by this process; SIGTERM and Ctrl-C give back what is under way."""
    if not work:
        return Tally()
    planned: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    mine = {(a.run.run_id, a.retailer.name) for a in work}
    with postgres.transaction(pool) as tx:
        for run_id in {run_id for run_id, _ in mine}:
            for row in observe.partition_counts(tx, run_id):
                if (run_id, row.retailer) in mine:
                    planned[row.retailer] += row.planned
                    ended[row.retailer] += row.planned - row.pending - row.retry_wait - row.leased - row.waiting
    with progress(quiet) as shown:
        # One bar for a retailer, however many windows and datasets it is worked for.
        bars = {name: shown.add_task(name, total=planned[name], completed=ended[name], note="") for name in planned}
        retries: dict[str, int] = dict.fromkeys(bars, 0)
        over: Counter[str] = Counter()

        def on_progress(item: Item) -> None:
            bar = bars[item.retailer]
            if item.result.outcome in ("committed", "quarantined", "gone"):
                shown.advance(bar)
                over[item.retailer] += 1
            else:
                retries[item.retailer] += 1
                shown.update(bar, note=f"{retries[item.retailer]} attempts in vain")

        async def work_until_done() -> Tally:
            loop = asyncio.get_running_loop()

            def stop_on_signals(worker: Worker) -> None:
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, worker.stop)

            telling = asyncio.create_task(
                _tell_standstill(pool, machine, mine, lambda: sum(over.values()), quiet=quiet)
            )
            try:
                return await run.collect_partitions(
                    pool, machine, work, on_worker=stop_on_signals, on_progress=on_progress
                )
            finally:
                telling.cancel()

        try:
            return asyncio.run(work_until_done())
        finally:
            unwind_on_signals()  # the loop's own handlers went with it


async def _tell_standstill(
    pool: Pool, machine: Machine, mine: set[tuple[str, str]], ended: Callable[[], int], *, quiet: bool
) -> None:
    """While no page ends, what they wait for is said."""
    told = ""
    while not quiet:
        before = ended()
        await asyncio.sleep(STANDSTILL_SECONDS)
        if ended() == before:
            standing = await asyncio.to_thread(_standstill, pool, machine.worker_id, mine)
            if standing and standing != told:
                say(standing)
                told = standing


def _standstill(pool: Pool, worker: str, mine: set[tuple[str, str]]) -> str:
    """What pages met that are to be tried again, and until when others have pages: a dead worker's come back then.

    Nothing where there are none, or the store does not answer.
    """
    with suppress(StoreUnreachable), postgres.transaction(pool) as tx:
        waiting = [
            row
            for run_id in sorted({run_id for run_id, _ in mine})
            for row in observe.to_try_again(tx, run_id)
            if (run_id, row.retailer) in mine
        ]
        held = [
            leased_in_words(row)
            for run_id in sorted({run_id for run_id, _ in mine})
            for row in observe.leased_elsewhere(tx, run_id, worker)
            if (run_id, row.retailer) in mine
        ]
        tried = [
            f"{row.retailer}: {row.pages} {'pages wait' if row.pages != 1 else 'page waits'}, "
            f"the next try at {row.next_at:%H:%M:%S} UTC; "
            f"last {status.in_words(row.failure_class, row.reason)}"
            for row in waiting
        ]
        return "\n".join([*held, *tried])
    return ""


def leased_in_words(row: Any) -> str:
    """Pages that another worker has: until then it works on them, or is dead and they come back."""
    pages = "page" if row.pages == 1 else "pages"
    return f"{row.retailer}: {row.pages} {pages} leased elsewhere until {row.until:%H:%M:%S} UTC"
