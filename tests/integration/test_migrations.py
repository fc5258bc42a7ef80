"""Migrations: each once, however many start together, and none over a history that this version does not know."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.store import embedded, embedded_cluster, postgres

NAME = "migrations_under_test"
NAMES = [name for name, _, _ in postgres.migrations()]


@pytest.fixture
def empty(server: embedded.Server) -> Iterator[str]:
    """The owner's URL of a new, empty database."""
    yield postgres.create_database(server.owner_url, NAME)
    postgres.drop_database(server.owner_url, NAME)


def applied(owner_url: str) -> list[tuple[str, str]]:
    with postgres.connect(owner_url) as tx:
        return [tuple(row) for row in tx.execute("select name, sha256 from scrape.migrations order by name")]


def test_three_that_migrate_at_once_apply_each_migration_once(server: embedded.Server, empty: str) -> None:
    together = threading.Barrier(3)

    def migrate(_: int) -> list[str]:
        together.wait(60)
        return postgres.migrate(empty, application_role=embedded_cluster.APPLICATION_ROLE)

    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(migrate, range(3)))
    assert sorted(done) == [[], [], NAMES]
    assert applied(empty) == [(name, digest) for name, _, digest in postgres.migrations()]
    postgres.ensure_migrated(postgres.with_database(server.url, NAME))


def test_migrating_again_applies_nothing(empty: str) -> None:
    assert postgres.migrate(empty) == NAMES
    before = applied(empty)
    assert postgres.migrate(empty) == []
    assert applied(empty) == before


def test_a_migration_that_changed_after_it_was_applied_is_refused_in_words(empty: str) -> None:
    postgres.migrate(empty)
    with postgres.connect(empty) as tx:
        tx.execute("update scrape.migrations set sha256 = repeat('0', 64) where name = %s", (NAMES[0],))
    before = applied(empty)
    with pytest.raises(ScrapeAssetsError, match="differs from what was applied") as refused:
        postgres.migrate(empty)
    assert f"sql/migrations/{NAMES[0]}" in str(refused.value)
    assert f"database {NAME}" in str(refused.value)
    assert "only go forward" in str(refused.value)
    assert applied(empty) == before


def test_a_database_of_a_newer_version_is_refused_in_words(empty: str) -> None:
    postgres.migrate(empty)
    with postgres.connect(empty) as tx:
        tx.execute("insert into scrape.migrations (name, sha256) values ('9999_tomorrow.sql', repeat('0', 64))")
    before = applied(empty)
    with pytest.raises(ScrapeAssetsError, match=r"9999_tomorrow\.sql, which this version does not know"):
        postgres.migrate(empty)
    assert applied(empty) == before


def test_a_database_that_was_never_migrated_names_the_command_that_does_it(empty: str) -> None:
    with pytest.raises(ScrapeAssetsError, match=f"lacks migration {NAMES[0]}: run `scrape-assets db migrate`"):
        postgres.ensure_migrated(empty)
    with postgres.connect(empty) as tx:
        assert tx.execute("select to_regnamespace('scrape')").fetchone() == (None,), "asking changes nothing"
    postgres.migrate(empty)
    postgres.ensure_migrated(empty)
