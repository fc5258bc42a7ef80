"""`db`: the store itself."""

from __future__ import annotations

import typer

from scrape_assets import settings as environment
from scrape_assets.cli.output import Json, emit, say
from scrape_assets.errors import DeclarationError
from scrape_assets.store import embedded, embedded_cluster, postgres

app = typer.Typer(
    help="The Postgres store: the embedded server, its URL, migrations.", no_args_is_help=True, rich_markup_mode=None
)


def _embedded() -> environment.Settings:
    settings = environment.load()
    if settings.database_url:
        raise DeclarationError(
            "SCRAPE_ASSETS_DATABASE_URL names a server that we neither start nor stop; unset it to use the embedded one"
        )
    return settings


@app.command()
def up(json: Json = False) -> None:
    """Start the embedded server and keep it running."""
    settings = _embedded()
    with environment.open_store(settings, keep=True) as store:
        pid = embedded.status(settings.state).pid
    if json:
        emit({"running": True, "started": store.started, "pid": pid, "url": store.url})
    else:
        say(f"Postgres {'started' if store.started else 'was running already'} (pid {pid})")
        typer.echo(store.url)


@app.command()
def down(json: Json = False) -> None:
    """Stop the embedded server; its data stays."""
    settings = _embedded()
    stopped = embedded.stop(settings.state)
    if json:
        emit({"running": False, "stopped": stopped})
    else:
        say("Postgres stopped" if stopped else "Postgres was not running")


@app.command()
def status(json: Json = False) -> None:
    """Say whether the store answers; exit 4 when it does not."""
    settings = environment.load()
    if settings.database_url:
        with postgres.connect(settings.chosen(settings.database_url)) as connection:
            embedded.check_durable(connection)
        where = postgres.masked(settings.chosen(settings.database_url))
        answer = {"running": True, "embedded": False, "where": where, "reason": ""}
    else:
        found = embedded.status(settings.state)
        answer = {
            "running": found.running,
            "embedded": True,
            "where": str(found.data_dir),
            "pid": found.pid,
            "reason": found.reason,
        }
    if json:
        emit(answer)
    else:
        why = f" ({answer['reason']})" if answer["reason"] else ""
        typer.echo(f"{'running' if answer['running'] else 'not running'}: {answer['where']}{why}")
    if not answer["running"]:
        raise typer.Exit(4)


@app.command()
def url(
    json: Json = False,
    dagster: bool = typer.Option(False, "--dagster", help="the URL of Dagster's storage in the same database"),
) -> None:
    """Print the store's URL, for psql or another machine's worker."""
    settings = environment.load()
    found = settings.chosen(settings.database_url or embedded.url(settings.state))
    if dagster:
        found = postgres.dagster_url(found)
    if json:
        emit({"url": found})
    else:
        typer.echo(found)


@app.command()
def migrate(json: Json = False) -> None:
    """Apply the migrations that are missing, each once."""
    settings = environment.load()
    if settings.database_url:
        done = postgres.migrate(settings.chosen(settings.database_url))
    else:
        server = embedded.ensure(settings.state)
        try:
            owner_url = settings.chosen(server.owner_url)
            done = postgres.migrate(owner_url, application_role=embedded_cluster.APPLICATION_ROLE)
        finally:
            if server.started:
                embedded.stop(settings.state, only_if_idle=True)
    if json:
        emit({"applied": done})
    else:
        say(f"applied {', '.join(done)}" if done else "nothing to apply: the schema is current")
