"""Dagster keeps its own tables in the database, so each of these tests has a database to itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from scrape_assets.store import embedded, embedded_cluster, postgres
from scrape_assets.store.postgres import Pool


@pytest.fixture
def url(server: embedded.Server) -> Iterator[str]:
    """The application role's URL of a migrated database that only this test sees."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    owner_url = postgres.create_database(server.owner_url, name)
    postgres.migrate(owner_url, application_role=embedded_cluster.APPLICATION_ROLE)
    yield postgres.with_database(server.url, name)
    postgres.drop_database(server.owner_url, name)


@pytest.fixture
def pool(url: str) -> Iterator[Pool]:
    """A pool of the application role on this test's database."""
    with postgres.open_pool(url, size=8) as pool:
        yield pool
