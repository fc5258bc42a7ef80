"""Connections, transactions and migrations: how the rest of `store` reaches Postgres."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import orjson
import psycopg
from psycopg import sql as composed
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import namedtuple_row
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import ConnectionPool

from scrape_assets import failpoints, packaged
from scrape_assets.errors import ScrapeAssetsError, StoreUnreachable

set_json_loads(orjson.loads)
set_json_dumps(orjson.dumps)

MIGRATION_LOCK = 7_305_808_861_211
"""The advisory lock that every migration run takes: any constant that nobody else uses in this database."""

Transaction = psycopg.Connection[Any]
Pool = ConnectionPool[psycopg.Connection[Any]]


NETWORK: dict[str, Any] = {
    "connect_timeout": 30,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""A server that vanished without a word is noticed within half a minute; the kernel's own limits are hours."""


class DataRefused(ScrapeAssetsError):
    """Postgres or its driver refused the data itself (SQLSTATE class 22, 23, 54): the page's fault, not the store's."""


def is_url(text: str) -> bool:
    """Whether the text is a connection string of Postgres. The driver's reason is left out: it may show a password."""
    try:
        conninfo_to_dict(text)
    except psycopg.ProgrammingError:
        return False
    return True


IDLE_SECONDS = 45
"""A process that stands still inside a transaction loses it after this; those that wait for its locks wait longer."""

LOCK_SECONDS = 60
STATEMENT_SECONDS = 3600
"""One that stands still inside a COPY is not idle, as far as Postgres knows."""


def connect(url: str, *, autocommit: bool = False) -> Transaction:
    """An open connection with named-tuple rows; StoreUnreachable, with the reason, when there is none to be had."""
    try:
        return psycopg.connect(
            url, autocommit=autocommit, row_factory=namedtuple_row, application_name="scrape_assets", **NETWORK
        )
    except psycopg.OperationalError as error:
        raise StoreUnreachable(f"cannot reach Postgres at {masked(url)}: {_first_line(error)}") from error


@contextmanager
def open_pool(url: str, *, size: int = 4) -> Iterator[Pool]:
    """A pool of up to `size` connections, closed at the end; StoreUnreachable when the first cannot be opened."""
    connect(url).close()  # its error names the reason; the pool's own says only that it waited
    with ConnectionPool(
        url,
        min_size=1,
        max_size=size,
        kwargs={"row_factory": namedtuple_row, "application_name": "scrape_assets", **NETWORK},
        configure=_end_what_stands_still,
        check=ConnectionPool.check_connection,
        timeout=30,
        open=True,
    ) as pool:
        yield pool


def _end_what_stands_still(connection: Transaction) -> None:
    limits = {"idle_in_transaction_session": IDLE_SECONDS, "lock": LOCK_SECONDS, "statement": STATEMENT_SECONDS}
    connection.execute("; ".join(f"set {name}_timeout = '{limit}s'" for name, limit in limits.items()).encode())
    connection.commit()


@contextmanager
def transaction(pool: Pool) -> Iterator[Transaction]:
    """One transaction: committed at the end, rolled back on an exception.

    A refusal of the data becomes DataRefused, every fault of the store StoreUnreachable: the first may be
    blamed on a page, the second never.
    """
    try:
        with pool.connection() as connection:
            yield connection
    except psycopg.Error as error:
        raise translated(error) from error


def lose(tx: Transaction) -> NoReturn:
    """The connection is gone, as if the network had cut it."""
    tx.close()
    raise StoreUnreachable("the connection was cut on purpose")


def send_commit(tx: Transaction) -> None:
    """COMMIT is on its way, and nobody reads the answer: what the server makes of it is not known here."""
    tx.pgconn.send_query(b"commit")
    while tx.pgconn.flush():
        pass


def translated(error: psycopg.Error) -> Exception:
    """The driver's error as ours, by its SQLSTATE class (protocol, Task)."""
    state = (error.sqlstate or "")[:2]
    if state in ("22", "23", "54") or (not state and isinstance(error, psycopg.DataError)):
        return DataRefused(_first_line(error))
    # 25P03: this process stood still inside a transaction, and the server ended it.
    if state in ("08", "25", "40", "53", "55", "57", "58") or not state:
        return StoreUnreachable(f"Postgres: {_first_line(error)}")
    return ScrapeAssetsError(f"Postgres refused a statement ({error.sqlstate}): {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def masked(url: str) -> str:
    """The URL without its password, fit for messages and logs."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "(a URL that cannot be parsed)"
    where = parts.get("host") or "its default host"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"{where}{port}, database {parts.get('dbname') or 'default'}, user {parts.get('user') or 'default'}"


def migrations() -> list[tuple[str, str, str]]:
    """(name, text, SHA-256) of every migration, in order."""
    files = sorted(packaged.path("sql").joinpath("migrations").glob("*.sql"))
    return [(file.name, text := file.read_text(), hashlib.sha256(text.encode()).hexdigest()) for file in files]


def migrate(owner_url: str, *, application_role: str | None = None) -> list[str]:
    """All migrations are applied, each once, in one transaction; returns the names of those applied now.

    Runs that start together wait for each other. A migration whose text changed after it was applied is refused.
    The schemas `scrape` and `dagster` exist afterwards; `application_role`, when given, may use both.
    """
    with connect(owner_url) as tx:
        try:
            return _migrate(tx, application_role)
        except psycopg.Error as error:
            raise ScrapeAssetsError(
                f"migrating {masked(owner_url)} failed and left nothing: {_first_line(error)}"
            ) from error


def _migrate(tx: Transaction, application_role: str | None) -> list[str]:
    tx.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
    tx.execute("create schema if not exists scrape")
    tx.execute("create schema if not exists dagster")
    tx.execute(
        "create table if not exists scrape.migrations (name text primary key, sha256 text not null, "
        "applied_at timestamptz not null default clock_timestamp())"
    )
    applied = {row.name: row.sha256 for row in tx.execute("select name, sha256 from scrape.migrations")}
    done = []
    for name, text, digest in migrations():
        if name in applied:
            if applied[name] != digest:
                raise ScrapeAssetsError(
                    f"sql/migrations/{name} differs from what was applied to {masked(tx.info.dsn)}: "
                    "migrations only go forward; put the text back and add a new file"
                )
            continue
        tx.execute(text.encode())
        tx.execute("insert into scrape.migrations (name, sha256) values (%s, %s)", (name, digest))
        done.append(name)
        failpoints.reach("K22", tx.close)
    if unknown := sorted(set(applied) - {name for name, _, _ in migrations()}):
        raise ScrapeAssetsError(
            f"the database holds migration {unknown[-1]}, which this version does not know: use a newer scrape-assets"
        )
    if application_role:
        role = composed.Identifier(application_role)
        for grant in (
            "grant usage on schema scrape to {role}",
            "grant select, insert, update, delete on all tables in schema scrape to {role}",
            "grant usage on all sequences in schema scrape to {role}",
            "grant usage, create on schema dagster to {role}",
        ):
            tx.execute(composed.SQL(grant).format(role=role))
    return done


def ensure_migrated(url: str) -> None:
    """Nothing to apply; else an error that names the command to run."""
    with connect(url) as tx:
        known = tx.execute("select to_regclass('scrape.migrations') is not null as known").fetchone()
        try:
            applied = (
                {row.name for row in tx.execute("select name from scrape.migrations")}
                if known and known.known
                else set()
            )
        except psycopg.errors.InsufficientPrivilege as error:
            raise ScrapeAssetsError(
                f"{masked(url)}: {_first_line(error)}; `scrape-assets db migrate` was run by another role"
            ) from error
    names = [name for name, _, _ in migrations()]
    if unknown := sorted(applied.difference(names)):
        raise ScrapeAssetsError(f"{masked(url)} holds migration {unknown[-1]}, which this version does not know")
    if missing := [name for name in names if name not in applied]:
        raise ScrapeAssetsError(f"{masked(url)} lacks migration {missing[0]}: run `scrape-assets db migrate`")


def create_database(owner_url: str, name: str) -> str:
    """An empty database of that name beside this one; returns its owner URL."""
    with connect(owner_url, autocommit=True) as connection:
        try:
            connection.execute(composed.SQL("create database {}").format(composed.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege as error:
            raise ScrapeAssetsError(
                f"{masked(owner_url)}: {_first_line(error)}; this needs a role that may create databases"
            ) from error
    return with_database(owner_url, name)


def drop_database(owner_url: str, name: str, *, patience_seconds: float = 60.0) -> None:
    """The database is gone. Clients that just closed may take a moment to leave it; those that stay are an error."""
    give_up = time.monotonic() + patience_seconds
    with connect(owner_url, autocommit=True) as connection:
        while True:
            try:
                connection.execute(composed.SQL("drop database if exists {}").format(composed.Identifier(name)))
            except psycopg.errors.ObjectInUse as error:
                if time.monotonic() > give_up:
                    raise ScrapeAssetsError(f"database {name} cannot be dropped: {_first_line(error)}") from error
                time.sleep(0.2)
            else:
                return


def with_database(url: str, name: str) -> str:
    """The same server and user, another database."""
    return make_conninfo(url, dbname=name)


def place(url: str) -> tuple[str, int]:
    """The host, or the folder of the socket, and the port at which this server really answers."""
    with connect(url) as connection:
        return connection.info.host, connection.info.port


def needs_tls(url: str) -> bool:
    """Whether the address forbids plain text."""
    return str(conninfo_to_dict(url).get("sslmode") or "") in ("require", "verify-ca", "verify-full")


def through(url: str, host: str, port: int) -> str:
    """The same database by way of a proxy, in plain text."""
    return make_conninfo(url, host=host, port=port, sslmode="disable", gssencmode="disable")


def dagster_url(url: str) -> str:
    """The same database for Dagster's storage: its own schema, and psycopg2 by name.

    Without the driver's name SQLAlchemy may pick psycopg 3, under which Dagster's event notifications fail.
    """
    parts = conninfo_to_dict(url)
    user = quote(str(parts.pop("user", "") or ""), safe="")
    password = parts.pop("password", None)
    login = f"{user}:{quote(str(password), safe='')}" if password else user
    database = quote(str(parts.pop("dbname", "") or ""), safe="")
    parts.pop("options", None)
    query = urlencode({**parts, "options": "-csearch_path=dagster"}, quote_via=quote)
    return f"postgresql+psycopg2://{login}{'@' if login else ''}/{database}?{query}"
