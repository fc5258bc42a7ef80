"""One embedded Postgres and one migrated database for the session; every test begins with empty tables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrape_assets.store import embedded, embedded_cluster, postgres
from scrape_assets.store.postgres import Pool, Transaction

DATABASE = "tests"


@pytest.fixture(scope="session")
def server() -> Iterator[embedded.Server]:
    """A server of this test session's own, gone at its end."""
    with tempfile.TemporaryDirectory(prefix="scrape-assets-tests-") as folder:
        state = Path(folder)
        # Another account may have to reach the data folder when the tests run as root.
        os.chmod(state, 0o755)
        yield embedded.ensure(state)
        embedded.stop(state)


@pytest.fixture(scope="session")
def shared_pool(server: embedded.Server) -> Iterator[Pool]:
    """A pool of the application role on the session's database."""
    owner_url = postgres.create_database(server.owner_url, DATABASE)
    postgres.migrate(owner_url, application_role=embedded_cluster.APPLICATION_ROLE)
    with postgres.open_pool(postgres.with_database(server.url, DATABASE), size=8) as pool:
        yield pool


@pytest.fixture(scope="session")
def owner(shared_pool: Pool, server: embedded.Server) -> Iterator[Transaction]:
    """A connection that may empty the tables: one for all tests, since a new one costs more than many a test."""
    with postgres.connect(postgres.with_database(server.owner_url, DATABASE), autocommit=True) as connection:
        yield connection


@pytest.fixture
def pool(shared_pool: Pool, owner: Transaction) -> Iterator[Pool]:
    """The session's pool, on tables that are empty."""
    yield shared_pool
    # What a failed test left open would hold its locks for ever.
    owner.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'"
    )
    names = owner.execute(
        "select format('%I.%I', schemaname, tablename) from pg_tables"
        " where schemaname = 'scrape' and tablename <> 'migrations'"
    ).fetchall()
    owner.execute(f"truncate {', '.join(row[0] for row in names)}".encode())


@pytest.fixture
def url(pool: Pool, server: embedded.Server) -> str:
    """The application role's URL of this test's database."""
    return postgres.with_database(server.url, DATABASE)


@pytest.fixture
def tx(pool: Pool) -> Iterator[Transaction]:
    """A transaction that is rolled back."""
    with pool.connection() as connection:
        yield connection
        connection.rollback()
