"""One embedded Postgres for the session, one migrated template database, a clone per test."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrape_assets.store import embedded, embedded_cluster, postgres
from scrape_assets.store.postgres import Pool, Transaction


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
def template(server: embedded.Server) -> str:
    """The name of a migrated database that tests clone."""
    name = f"template_{uuid.uuid4().hex[:8]}"
    postgres.migrate(
        postgres.create_database(server.owner_url, name), application_role=embedded_cluster.APPLICATION_ROLE
    )
    return name


@pytest.fixture
def owner_url(server: embedded.Server, template: str) -> Iterator[str]:
    """The owner's URL of an empty, migrated database that only this test sees."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with postgres.connect(server.owner_url, autocommit=True) as connection:
        connection.execute(f'create database "{name}" template "{template}"')
    yield postgres.with_database(server.owner_url, name)
    postgres.drop_database(server.owner_url, name)


@pytest.fixture
def url(owner_url: str, server: embedded.Server) -> str:
    """The application role's URL of this test's database."""
    with postgres.connect(owner_url) as connection:
        return postgres.with_database(server.url, connection.info.dbname)


@pytest.fixture
def pool(url: str) -> Iterator[Pool]:
    """A pool of the application role on this test's database."""
    with postgres.open_pool(url, size=8) as pool:
        yield pool


@pytest.fixture
def tx(pool: Pool) -> Iterator[Transaction]:
    """A transaction that is rolled back."""
    with pool.connection() as connection:
        yield connection
        connection.rollback()
