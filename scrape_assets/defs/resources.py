"""Resources: the store as every step opens it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from scrape_assets import settings
from scrape_assets.settings import Settings
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool


class StoreResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The Postgres state store that the environment names."""

    @contextmanager
    def open(self) -> Iterator[tuple[Settings, Pool]]:
        """The settings, and connections that end with the block. Each step opens its own: none outlives a fork."""
        where = settings.load()
        with settings.open_store(where) as store, postgres.open_pool(store.url) as pool:
            yield where, pool
