"""The commands. `--json` prints one object on stdout and nothing else there; people read stderr.

Exit codes: 0 done, 1 a check or invariant failed, 2 usage or declaration error, 3 candidate rejected (nothing
published, the last good version stands), 4 store unreachable, 5 interrupted (run the command again to resume).
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from importlib import metadata
from typing import Annotated

import typer

from scrape_assets.cli import (
    control,
    database,
    declare,
    demo,
    develop,
    golden,
    look,
    operate,
    prove,
    release,
    repair,
    work,
)
from scrape_assets.cli.output import Outage, complain
from scrape_assets.cli.stopping import unwind_on_signals
from scrape_assets.errors import ScrapeAssetsError


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(metadata.version("scrape-assets"))
        raise typer.Exit


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Collect the same facts from many sites, window after window. Kill it anywhere; it resumes.",
    rich_markup_mode=None,
)
app.add_typer(database.app, name="db")
for module in (demo, declare, golden, develop, operate, work, look, repair, release, control, prove):
    module.add_to(app)


@app.callback()
def about(
    version: Annotated[  # acted on by its callback
        bool, typer.Option("--version", help="say which version this is", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    """What holds for every command."""


def program() -> None:
    """`main` as a process of its own, which ends at once.

    Taking a heap of Dagster's size apart takes seconds, minutes on a busy machine, and nothing in it is worth it: what
    matters is durable or was closed by then.
    """
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def main() -> None:
    """Runs one command; what a person must act on becomes a message and an exit code, never a traceback."""
    unwind_on_signals()
    # The pool says each of its tries in several lines; one a while is enough.
    logging.getLogger("psycopg.pool").addHandler(Outage())
    try:
        app(standalone_mode=True)
    except ScrapeAssetsError as error:
        complain(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(1)
