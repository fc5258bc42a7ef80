"""The environment as one frozen value, and the store it names.

SCRAPE_ASSETS_PROJECT        the folder that holds `datasets/`; else the working directory
SCRAPE_ASSETS_STATE          where the embedded server, artifacts and Dagster's files lie; else <project>/.scrape_assets
SCRAPE_ASSETS_DATABASE_URL   a PostgreSQL 16 or newer; else an embedded one under the state folder
SCRAPE_ASSETS_DATABASE       another database on that server, as `demo` makes one for each of its runs
SCRAPE_ASSETS_CHROMIUM       the browser for `via: browser`; else chromium or Chrome on PATH
SCRAPE_ASSETS_BROWSER_MEMORY how much all processes of a browser may take, as 1GB, before it is replaced
SCRAPE_ASSETS_BROWSER_PAGES  how many pages one worker's browser shows at a time
SCRAPE_ASSETS_CONNECT_TO     "www.shop.example=127.0.0.1:8801,...": rehearsal and tests of real pages
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from scrape_assets.datasets.units import size_bytes
from scrape_assets.errors import DeclarationError
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.sources.http import parse_connect_to
from scrape_assets.store import embedded, embedded_cluster, postgres

DEMO_FOLDER = "demo"
"""Below the state folder: the project of the last `demo`, and the name of its database."""

MAX_BROWSER_PAGES = 64
"""More than that many pages at a time no browser shows well; a second worker does."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are. `database` names another database on the same server: the last demo's."""

    project: Path
    state: Path
    database_url: str | None
    database: str | None
    connect_to: Mapping[str, tuple[str, int]]
    browser: BrowserOptions = field(default_factory=BrowserOptions)

    def chosen(self, url: str) -> str:
        """The server's URL with the database that was chosen on it."""
        return postgres.with_database(url, self.database) if self.database else url

    @property
    def artifacts(self) -> Path:
        """The folder of the segments, one for each database: two databases may hold a run of one name."""
        return self.state / "artifacts" / (self.database or "main")

    @property
    def dagster_home(self) -> Path:
        """Dagster's own files; its runs and events are in Postgres."""
        return self.state / "dagster"


@dataclass(frozen=True, slots=True)
class Store:
    """A migrated database: `url` for all work, `owner_url` for migrations and databases."""

    url: str
    owner_url: str
    started: bool


def load(environment: Mapping[str, str] | None = None, working_directory: Path | None = None) -> Settings:
    """The settings as the environment stands; DeclarationError for a value that cannot be read.

    A working directory without `datasets/` in which `demo` ran shows that demo: its project and its database.
    """
    env = os.environ if environment is None else environment
    here = (working_directory or Path.cwd()).resolve()
    named = env.get("SCRAPE_ASSETS_PROJECT")
    project = _folder("SCRAPE_ASSETS_PROJECT", named) if named else here
    if named and not project.is_dir():
        raise DeclarationError(f"SCRAPE_ASSETS_PROJECT={named}: there is no such folder")
    state = _folder("SCRAPE_ASSETS_STATE", env.get("SCRAPE_ASSETS_STATE") or str(project / ".scrape_assets"))
    database = env.get("SCRAPE_ASSETS_DATABASE")
    last_demo = state / DEMO_FOLDER / "last"
    database_url = env.get("SCRAPE_ASSETS_DATABASE_URL") or None
    if database_url and not postgres.is_url(database_url):
        raise DeclarationError("SCRAPE_ASSETS_DATABASE_URL is no URL; expected postgresql://user@host:5432/database")
    if not named and not (project / "datasets").is_dir() and (demo := _last_demo(last_demo, database_url)):
        project, database = demo[0], database or demo[1]
    try:
        connect_to = parse_connect_to(env.get("SCRAPE_ASSETS_CONNECT_TO", ""))
    except ValueError as error:
        raise DeclarationError(f"SCRAPE_ASSETS_CONNECT_TO: {error}") from error
    return Settings(project, state, database_url, database, connect_to, _browser(env))


def _browser(env: Mapping[str, str]) -> BrowserOptions:
    found = BrowserOptions(env.get("SCRAPE_ASSETS_CHROMIUM") or None)
    if memory := env.get("SCRAPE_ASSETS_BROWSER_MEMORY"):
        try:
            found = replace(found, memory_bytes=size_bytes(memory))
        except ValueError as error:
            raise DeclarationError(f"SCRAPE_ASSETS_BROWSER_MEMORY: {error}") from error
    if pages := env.get("SCRAPE_ASSETS_BROWSER_PAGES"):
        if not pages.isascii() or not pages.isdigit() or not 1 <= int(pages) <= MAX_BROWSER_PAGES:
            raise DeclarationError(
                f"SCRAPE_ASSETS_BROWSER_PAGES={pages}: expected a whole number from 1 to {MAX_BROWSER_PAGES}"
            )
        found = replace(found, pages=int(pages))
    return found


def _folder(name: str, value: str) -> Path:
    try:
        return Path(value).expanduser().resolve()
    except (RuntimeError, ValueError) as error:
        raise DeclarationError(f"{name}={value!r}: {error}") from error


def server_of(database_url: str | None) -> str:
    """What tells servers apart in a file: the user's without its password, nothing for the embedded one."""
    return postgres.masked(database_url) if database_url else ""


def _last_demo(file: Path, database_url: str | None) -> tuple[Path, str] | None:
    """Project and database of the last demo on this server, while its project is there. No file holds a password."""
    try:
        project, name, server = [*file.read_text().splitlines(), "", ""][:3]
    except OSError:
        return None
    return (Path(project), name) if name and Path(project).is_dir() and server == server_of(database_url) else None


def environment(settings: Settings, store: Store) -> dict[str, str]:
    """The environment under which a child process sees the same project, state and database."""
    return {
        **os.environ,
        "SCRAPE_ASSETS_PROJECT": str(settings.project),
        "SCRAPE_ASSETS_STATE": str(settings.state),
        **({"SCRAPE_ASSETS_DATABASE": settings.database} if settings.database else {}),
        "SCRAPE_ASSETS_DAGSTER_URL": postgres.dagster_url(store.url),
        "DAGSTER_HOME": str(settings.dagster_home),
        # Besides `telemetry: {enabled: false}`, which does not stop the thread that uploads DAGSTER_HOME/logs.
        "DAGSTER_DISABLE_TELEMETRY": "1",
        # A run is launched and a sensor evaluated within this time, or it fails: a minute is too short for the
        # imports of a process on a machine that is busy collecting.
        "DAGSTER_GRPC_TIMEOUT_SECONDS": os.environ.get("DAGSTER_GRPC_TIMEOUT_SECONDS", "600"),
    }


@contextmanager
def open_store(settings: Settings, *, keep: bool = False) -> Iterator[Store]:
    """The database answers and is migrated; an embedded server that this call started stops again when idle.

    An embedded database is migrated here. A server of the user's is not touched unasked: `db migrate` does it.
    """
    if settings.database_url:
        url = settings.chosen(settings.database_url)
        with postgres.connect(url) as connection:
            embedded.check_durable(connection)
        postgres.ensure_migrated(url)
        yield Store(url, url, started=False)
        return
    server = embedded.ensure(settings.state)
    url, owner_url = settings.chosen(server.url), settings.chosen(server.owner_url)
    try:
        postgres.migrate(owner_url, application_role=embedded_cluster.APPLICATION_ROLE)
        yield Store(url, owner_url, server.started)
    finally:
        if server.started and not keep:
            embedded.stop(settings.state, only_if_idle=True)


def create_database(settings: Settings, name: str) -> None:
    """An empty, migrated database of that name on the same server."""
    if settings.database_url:
        postgres.migrate(postgres.create_database(settings.database_url, name))
        return
    owner_url = postgres.create_database(embedded.ensure(settings.state).owner_url, name)
    postgres.migrate(owner_url, application_role=embedded_cluster.APPLICATION_ROLE)
