"""What one worker is given: a planned partition, with everything that its pages are fetched and judged by."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

import orjson

from scrape_assets.datasets import declaration
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.flow.plan import Frozen
from scrape_assets.rules import keys
from scrape_assets.rules.template import Known
from scrape_assets.sources.extractor import Setup
from scrape_assets.store.runs import Run


@dataclass(frozen=True)  # without slots, which a cached property cannot live with
class Assignment:
    """One partition to work on, with the declaration's live keys and the frozen part it was planned with."""

    run: Run
    dataset: Dataset
    retailer: Retailer
    frozen: Frozen
    origins: tuple[str, ...]
    recovery_batch_id: UUID | None = None
    templates: Known = field(default_factory=dict)
    """Layouts that its pages are compared with while they come in; none where nothing would follow."""

    @property
    def lease_seconds(self) -> float:
        """How long its tasks are leased for."""
        return self.dataset.lease.seconds_for(self.retailer.fetch)

    @cached_property
    def pages_of(self) -> str | None:
        """What its pages are known by from window to window; None where each is asked for whole.

        Pages in a context prove it each time, and an answer without a page proves nothing.
        """
        if not self.retailer.fetch.revalidate or self.retailer.contexts:
            return None
        return keys.pages_of(self.dataset.dataset, self.retailer.name, self.frozen.manifest["fetch"])

    @cached_property
    def setup(self) -> Setup:
        """What an extraction process needs to know of this partition, once."""
        rule = declaration.extract_rule(self.dataset, self.retailer)
        discover = declaration.discover_rule(self.retailer)
        return Setup(
            key=f"{self.run.run_id}/{self.retailer.name}/{self.frozen.manifest_hash}",
            rule_json=rule.model_dump_json(),
            pages_folder=str(self.dataset.folder) if self.retailer.page_functions else None,
            page_object=rule.page.page_object,
            dataset_id=self.dataset.dataset,
            retailer=self.retailer.name,
            collection_window=self.run.collection_window,
            page_sources=self.frozen.page_sources,
            discover_json=None if discover is None else orjson.dumps(discover).decode(),
        )
