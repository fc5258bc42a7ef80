"""`dev`: Postgres, the Dagster UI and its daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from scrape_assets import settings as environment
from scrape_assets.cli.output import say


def add_to(app: typer.Typer) -> None:
    """The command of this module belongs to the program."""
    app.command("dev")(dev)


def dev(
    port: Annotated[int, typer.Option("--port", help="the UI's port; 0 picks a free one")] = 3000,
    host: Annotated[str, typer.Option("--host", help="where the UI listens; it has no login")] = "127.0.0.1",
) -> None:
    """Start Postgres, the Dagster UI and its daemon; Ctrl-C stops UI and daemon."""
    from scrape_assets.defs import server  # noqa: PLC0415  # Dagster takes seconds to import

    settings = environment.load()
    say(f"project {settings.project}")
    code = server.serve(
        settings, host=host, port=port, on_ready=lambda url: say(f"Dagster UI: {url}  (Ctrl-C stops it)")
    )
    raise typer.Exit(code)
