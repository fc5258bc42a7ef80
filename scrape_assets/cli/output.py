"""What people and programs read: one JSON object on stdout, everything for eyes on stderr or as tables."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from scrape_assets import settings as environment
from scrape_assets.datasets import load
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.datasets.problems import nearest
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import plan
from scrape_assets.rules import keys
from scrape_assets.settings import Settings, Store
from scrape_assets.store import embedded, postgres, runs
from scrape_assets.store.postgres import Pool

WIDTH_OF_A_PIPE = 1000
"""In a file or a pipe nothing is folded: each row of a table is one line of text."""

_CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}

out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
err = Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, typer.Option("--json", help="print one JSON object on stdout and nothing else there")]
DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="the dataset's folder name below datasets/")]
Window = Annotated[
    str, typer.Option("--window", help="a window's key, as 2026-11-20; `current` for the one that runs now")
]
LookedAt = Annotated[
    str | None,
    typer.Option("--window", help="a window's key, as 2026-11-20, or `current`; else the newest that there is"),
]
RetailerName = Annotated[str | None, typer.Option("--retailer", help="only this retailer")]


def emit(value: Any) -> None:
    """The one object of `--json`."""
    typer.echo(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())


def harmless(text: str) -> str:
    """The text without what a terminal would obey; scraped text may hold such."""
    return text.translate(_CONTROL)


def say(text: str) -> None:
    """A line for the person at the terminal."""
    err.print(escape(harmless(text)), highlight=False)


def complain(text: str) -> None:
    """What went wrong, each line of it."""
    for line in text.splitlines() or ["(no message)"]:
        err.print(f"[red]error:[/] {escape(harmless(line))}", highlight=False)


class Outage(logging.Handler):
    """Says that Postgres does not answer, at most twice a minute."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._silent_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """The first line of what the connection pool says of a connection that it does not get."""
        told = record.getMessage().startswith(("error connecting", "reconnection attempt"))
        if told and time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + 30
            say(f"Postgres does not answer and is asked again: {record.getMessage().splitlines()[0]}")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, without_zeros: bool = False) -> None:
    """A table on stdout; scraped text is shown as it is, never as markup. Numbers stand to the right.

    `without_zeros`: a column of zeros, or of nothing, is left out, so that it fits a terminal of 80 columns.
    """
    drawn = Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        header_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    hidden = (0, "", None) if without_zeros and rows else ()
    shown = [index for index in range(len(columns)) if not hidden or any(row[index] not in hidden for row in rows)]
    for index in shown:
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        drawn.add_column(columns[index], justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        cells = (row[index] for index in shown)
        drawn.add_row(*("" if cell is None else escape(harmless(str(cell))) for cell in cells))
    out.print(drawn)


@contextmanager
def opened(dataset: str | None = None) -> Iterator[tuple[Settings, Store, Pool]]:
    """The settings, a migrated store and a pool on it.

    In a folder that is no project, or that does not declare this dataset, no server is started; DeclarationError.
    """
    settings = environment.load()
    if dataset is not None:
        declared(settings, dataset)
    elif not settings.database_url and not embedded.exists(settings.state):
        raise DeclarationError(
            f"nothing was collected in {settings.project} yet: there is no store in {settings.state}"
        )
    with environment.open_store(settings) as store, postgres.open_pool(store.url) as pool:
        yield settings, store, pool


def declared(settings: Settings, name: str) -> Dataset:
    """The named dataset; an error with file, line and field when the declaration is wrong."""
    return load.dataset(settings.project, name)


def window_key(dataset: Dataset, window: str) -> str:
    """The window's key; `current` is the one that runs now. DeclarationError for a key that names none."""
    now = datetime.now(UTC)
    key = plan.current_window(dataset, now) if window == "current" else window
    plan.describe_run(dataset, key, now)
    return key


def looked_at(pool: Pool, dataset: Dataset, window: str | None, *, published: bool = False) -> str:
    """The key of the window that a person looks at: without one, the newest that was planned, or has a version.

    Which one it is, is said. Where there is none, it is the current one, of which the command says what it lacks.
    """
    if window is not None:
        return window_key(dataset, window)
    with postgres.transaction(pool) as tx:
        newest = runs.newest(tx, dataset.dataset, published=published)
    if newest is None:
        return window_key(dataset, "current")
    say(f"window {newest}, the newest {'that has a version' if published else 'that was planned'}")
    return newest


def run_of(dataset: str, window: str) -> str:
    """The run that collects this window."""
    return keys.run_id(dataset, window)


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """A progress display on stderr; nothing when quiet or when nobody looks."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=err,
        disable=quiet or not err.is_terminal,
    ) as shown:
        yield shown


def find(project: dict[str, Dataset], name: str) -> tuple[Dataset, Retailer]:
    """The retailer of that name, `DATASET/RETAILER` where two datasets have it; DeclarationError for none."""
    wanted, _, inner = name.rpartition("/")
    found = [
        (dataset, dataset.retailers[inner])
        for dataset in project.values()
        if inner in dataset.retailers and wanted in ("", dataset.dataset)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise DeclarationError(f"{len(found)} datasets have a retailer {inner}; say {found[0][0].dataset}/{inner}")
    known = sorted({retailer for dataset in project.values() for retailer in dataset.retailers})
    raise DeclarationError(f"no retailer {name} is declared{nearest(name, known)}")


def show_page(tried: dict[str, Any]) -> None:
    """A page's state, and each field with what gave it."""
    within = f"  in context {tried['context']}" if tried["context"] else ""
    say(f"{tried['http_status'] or ''} {tried['final_url'] or tried['url']}{within}".strip())
    say(
        f"page state: {tried['page_state'] or 'no page'}"
        + (f", {tried['failure_class']}" if tried["failure_class"] not in (None, tried["page_state"]) else "")
    )
    if tried["reason"]:
        say(str(tried["reason"]))
    if tried.get("remark"):
        say(str(tried["remark"]))
    for row in tried["rows"]:
        table(
            row["entity_key"],
            ("field", "value", "from"),
            [(name, field["value"], field["from"]) for name, field in row["fields"].items()],
        )
    for change in tried.get("changes", []):
        if change["field"]:
            say(f"  {change['field']}: {change['before']!r} would become {change['after']!r}")
        else:
            before, after = (f"{change[side] or 'no row'}" for side in ("before", "after"))
            say(f"  {change['entity_key']}: {before} before; now {after}")
