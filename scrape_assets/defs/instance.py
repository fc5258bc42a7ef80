"""Dagster's instance of a project: its configuration in DAGSTER_HOME, its tables beside ours."""

from __future__ import annotations

from typing import Any

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef

from scrape_assets import packaged
from scrape_assets.settings import Settings, Store
from scrape_assets.store import postgres

FILE = "dagster.yaml"

OUR_STORAGE = {"env": "SCRAPE_ASSETS_DAGSTER_URL"}
"""How our own dagster.yaml names the database; a project that names another one is left with it."""


def write(settings: Settings) -> None:
    """DAGSTER_HOME holds the configuration: a copy of the project's own dagster.yaml if it has one, else of ours."""
    own = settings.project / FILE
    source = own if own.is_file() else packaged.path(FILE)
    settings.dagster_home.mkdir(parents=True, exist_ok=True)
    target = settings.dagster_home / FILE
    text = f"# A copy of {source}, made at each start.\n{source.read_text()}"
    if not target.is_file() or target.read_text() != text:
        written = target.with_name(f"{FILE}.new")
        written.write_text(text)
        written.replace(target)


def opened(settings: Settings, store: Store) -> dg.DagsterInstance:
    """The instance, without need of the environment that Dagster's own processes have; close it with a `with` block."""
    write(settings)
    configured = yaml.safe_load((settings.dagster_home / FILE).read_text()) or {}
    overrides: dict[str, Any] = {}
    if configured.get("storage", {}).get("postgres", {}).get("postgres_url") == OUR_STORAGE:
        overrides = {"storage": {"postgres": {"postgres_url": postgres.dagster_url(store.url)}}}
    return dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(settings.dagster_home), overrides=overrides))
