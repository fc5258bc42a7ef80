"""Declarations for tests: sensible defaults, keyword overrides, written as a user would write them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from scrape_assets.datasets import load
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import plan
from scrape_assets.rules import keys
from scrape_assets.store import candidates, postgres, recovery, runs
from scrape_assets.store.postgres import Pool
from scrape_assets.store.recovery import Batch

DATASET = """\
dataset: {name}
window: {{every: day, at: "00:00", timezone: UTC, start: 2026-01-01}}
accept: {{coverage: {coverage}}}
retry: {{attempts: {attempts}, base: 0.1s, cap: 0.5s}}
lease: {{for: {lease}, task_deadline: {task_deadline}}}
publish: {{to: {{lake: {{files: {{path: published, format: {format}}}}}}}}}
defaults: {{fetch: {{rate: none, concurrency: 8, timeout: {timeout}}}}}
"""

RETAILER = """\
site: {site}
basis: "our own site"
urls: {{file: {name}.csv}}
{more}
"""


def dataset(
    folder: Path,
    sites: dict[str, tuple[str, Sequence[str]]],
    *,
    name: str = "prices",
    coverage: float = 0.9,
    attempts: int = 3,
    lease: str = "30s",
    timeout: str = "30s",
    task_deadline: str = "120s",
    format: str = "jsonl",
    more: str = "key: [sku]",
) -> Dataset:
    """A declared dataset; `sites` maps each retailer to its site and the paths of its inventory."""
    home = folder / "datasets" / name
    (home / "retailers").mkdir(parents=True, exist_ok=True)
    (home / "dataset.yaml").write_text(
        DATASET.format(
            name=name,
            coverage=coverage,
            attempts=attempts,
            lease=lease,
            timeout=timeout,
            task_deadline=task_deadline,
            format=format,
        )
    )
    for retailer, (site, paths) in sites.items():
        (home / "retailers" / f"{retailer}.yaml").write_text(RETAILER.format(site=site, name=retailer, more=more))
        (home / f"{retailer}.csv").write_text("url\n" + "".join(f"{site}{path}\n" for path in paths))
    return load.dataset(folder, name)


@cache
def version(retailer: str = "north") -> str:
    """The extractor version of a retailer declared here without `more`: what its results are committed with."""
    with tempfile.TemporaryDirectory() as folder:
        made = dataset(Path(folder), {retailer: ("http://127.0.0.1:9", ["/p/1"])})
        return plan.freeze(made, made.retailers[retailer]).extractor_version


def row(entity: str, payload: dict[str, Any], window: str) -> dict[str, Any]:
    """One observation of dataset `prices` as an extraction process gives it, ready for a result's `rows`."""
    return {
        "observation_key": str(keys.observation_key("prices", entity, "", window)),
        "entity_key": entity,
        "payload": payload,
        "payload_hash": keys.payload_hash(payload),
        "sources": {},
    }


def reopened(pool: Pool, run_id: str, retailer: str, *tasks: UUID, canary: bool = False) -> UUID:
    """These tasks are open again under a recovery batch, with the declaration they were planned with."""
    with postgres.transaction(pool) as tx:
        runs.lock_partition(tx, run_id, retailer)
        partition = runs.partitions(tx, run_id)[retailer]
        current = candidates.current(tx, run_id, retailer)
        assert partition.manifest is not None and current is not None
        batch = Batch(
            uuid4(), run_id, retailer, partition.manifest, str(partition.manifest_hash),
            str(partition.extractor_version), {}, {}, dict.fromkeys(tasks), 3, canary,
        )  # fmt: skip
        recovery.open_batch(tx, batch, generation=current.generation, collecting=current.state == "collecting")
        return batch.recovery_batch_id
