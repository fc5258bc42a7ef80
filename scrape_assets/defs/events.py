"""Events of work that was done outside Dagster, each as Dagster's own step would have written it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.instance.utils import RUNLESS_RUN_ID
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.defs import checks, metadata, partitions
from scrape_assets.flow.accept import Verdict
from scrape_assets.flow.plan import PlannedRetailer
from scrape_assets.flow.publish import Published
from scrape_assets.store.postgres import Pool


class Events:
    """Writes one window's events."""

    def __init__(self, instance: dg.DagsterInstance, dataset: Dataset, window: str) -> None:
        self._instance = instance
        self._dataset = dataset
        self._window = window

    def task_plan(self, pool: Pool, planned: PlannedRetailer) -> None:
        """The retailer is planned."""
        about = metadata.task_plan(pool, self._dataset, self._window, planned)
        self._materialized("task_plan", planned.retailer, about)

    def observations(self, pool: Pool, verdict: Verdict) -> None:
        """The retailer is collected and judged."""
        retailer, judged = verdict.subject, ("candidate generation", verdict.generation or 0)
        about = metadata.observations(pool, self._dataset, self._window, retailer)
        self._materialized("observations", retailer, about)
        self._checked("observations", retailer, checks.of_retailer(self._dataset), verdict, judged)

    def candidate_dataset(self, pool: Pool, verdict: Verdict) -> None:
        """The window's candidate is judged."""
        about = metadata.candidate_dataset(pool, self._dataset, self._window, verdict)
        self._materialized("candidate_dataset", None, about)
        judged = ("candidate", verdict.sequence or 0)
        self._checked("candidate_dataset", None, checks.of_dataset(self._dataset), verdict, judged)

    def published_dataset(self, published: Published) -> None:
        """The window has a version."""
        about = metadata.published_dataset(self._dataset, self._window, published)
        self._materialized("published_dataset", None, about)

    def _partition(self, retailer: str | None) -> str:
        return str(partitions.key(self._window, retailer)) if retailer else self._window

    def _materialized(self, asset: str, retailer: str | None, about: dict[str, Any]) -> None:
        dimensions = {partitions.WINDOW: self._window, partitions.RETAILER: retailer} if retailer else {}
        self._instance.report_runless_asset_event(
            dg.AssetMaterialization(
                [self._dataset.dataset, asset],
                description="by the command line",
                partition=self._partition(retailer),
                metadata=about,
                tags={f"dagster/partition/{name}": str(value) for name, value in dimensions.items()},
            )
        )

    def _checked(
        self,
        asset: str,
        retailer: str | None,
        specs: Sequence[dg.AssetCheckSpec],
        verdict: Verdict,
        judged: tuple[str, int],
    ) -> None:
        key, partition = dg.AssetKey([self._dataset.dataset, asset]), self._partition(retailer)
        # A check counts for the materialization that it names: the one written just now.
        newest = self._instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition]), limit=1
        ).records[0]
        target = AssetCheckEvaluationTargetMaterializationData(
            storage_id=newest.storage_id, run_id=newest.run_id, timestamp=newest.timestamp
        )
        self._forget(key, partition)
        for spec, result in zip(specs, checks.results(specs, verdict, *judged), strict=True):
            self._instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=key,
                    check_name=spec.name,
                    passed=result.passed,
                    metadata=result.metadata,
                    severity=result.severity,
                    description=result.description,
                    target_materialization_data=target,
                    blocking=spec.blocking,
                    partition=partition,
                )
            )

    def _forget(self, asset: dg.AssetKey, partition: str) -> None:
        """The checks that no run made are gone: Dagster keeps one for each partition, and inserts, never replaces."""
        storage, checks_table = self._instance.event_log_storage, AssetCheckExecutionsTable.c
        if isinstance(storage, SqlEventLogStorage):
            with storage.index_connection() as connection:
                connection.execute(
                    AssetCheckExecutionsTable.delete().where(
                        checks_table.asset_key == asset.to_string(),
                        checks_table.run_id == RUNLESS_RUN_ID,
                        checks_table.partition == partition,
                    )
                )
