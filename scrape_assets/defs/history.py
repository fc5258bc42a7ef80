"""History: what `run` did without Dagster, told to Dagster, so that its pages show one story."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml

from scrape_assets import packaged
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow.accept import Verdict
from scrape_assets.flow.plan import PlannedRetailer
from scrape_assets.flow.publish import Published
from scrape_assets.settings import Settings, Store
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool

if TYPE_CHECKING:
    import dagster as dg

INSTANCE_FILE = "dagster.yaml"


def record(
    settings: Settings,
    store: Store,
    pool: Pool,
    dataset: Dataset,
    window: str,
    *,
    planned: Sequence[PlannedRetailer],
    verdicts: Sequence[Verdict],
    candidate: Verdict | None = None,
    published: Published | None = None,
) -> str | None:
    """Dagster's history shows the work as its own would; returns what went wrong with that, if anything did.

    Pass what this call of `run` did: retailers planned without a problem, verdicts that are reached. A history
    that cannot be written is a warning and never a failed run: nothing is decided by it.
    """
    try:
        # Seconds of imports, and only here: most commands never come this way.
        with open_instance(settings, store) as instance:
            told = _Told(instance, dataset, window)
            for plan in planned:
                if plan.problem is None:
                    told.plan(pool, plan)
            for verdict in verdicts:
                if verdict.state in ("accepted", "rejected"):
                    told.observations(pool, verdict)
            if candidate is not None and candidate.state in ("accepted", "rejected"):
                told.candidate(pool, candidate)
            if published is not None:
                told.published(published)
    except Exception as error:  # noqa: BLE001 - whatever Dagster raises, the work itself is done
        said = " ".join(str(error).split())[:300]
        return f"Dagster's history does not show this run: {type(error).__name__}: {said}"
    return None


def write_instance(settings: Settings) -> None:
    """DAGSTER_HOME holds the instance's configuration: the project's own dagster.yaml if it has one, else ours."""
    own = settings.project / INSTANCE_FILE
    source = own if own.is_file() else packaged.path(INSTANCE_FILE)
    settings.dagster_home.mkdir(parents=True, exist_ok=True)
    target, text = settings.dagster_home / INSTANCE_FILE, f"# A copy of {source}, made at each start.\n{source.read_text()}"
    if not target.is_file() or target.read_text() != text:
        written = target.with_name(f"{target.name}.new")
        written.write_text(text)
        written.replace(target)


def open_instance(settings: Settings, store: Store) -> dg.DagsterInstance:
    """Dagster's instance of this project, without its environment variables; close it with a `with` block."""
    from dagster import DagsterInstance
    from dagster._core.instance.ref import InstanceRef

    write_instance(settings)
    configured = yaml.safe_load((settings.dagster_home / INSTANCE_FILE).read_text())
    url = postgres.dagster_url(store.url)
    overrides: dict[str, Any] = {"storage": {"postgres": {"postgres_url": url}}}
    if configured.get("storage", {}).get("postgres", {}).get("postgres_url") != {"env": "SCRAPE_ASSETS_DAGSTER_URL"}:
        overrides = {}
    return DagsterInstance.from_ref(InstanceRef.from_dir(str(settings.dagster_home), overrides=overrides))


class _Told:
    """One window's events, each as Dagster's own step would have written it."""

    def __init__(self, instance: dg.DagsterInstance, dataset: Dataset, window: str) -> None:
        self._instance = instance
        self._dataset = dataset
        self._window = window

    def plan(self, pool: Pool, planned: PlannedRetailer) -> None:
        from scrape_assets.defs import metadata

        self._materialized(
            "task_plan", planned.retailer, metadata.task_plan(pool, self._dataset, self._window, planned)
        )

    def observations(self, pool: Pool, verdict: Verdict) -> None:
        from scrape_assets.defs import checks, metadata

        retailer = verdict.subject
        about = metadata.observations(pool, self._dataset, self._window, retailer)
        self._materialized("observations", retailer, about)
        self._checked(
            "observations",
            retailer,
            checks.of_retailer(self._dataset),
            verdict,
            ("candidate generation", verdict.generation or 0),
        )

    def candidate(self, pool: Pool, verdict: Verdict) -> None:
        from scrape_assets.defs import checks, metadata

        about = metadata.candidate_dataset(pool, self._dataset, self._window, verdict)
        self._materialized("candidate_dataset", None, about)
        self._checked(
            "candidate_dataset", None, checks.of_dataset(self._dataset), verdict, ("candidate", verdict.sequence or 0)
        )

    def published(self, published: Published) -> None:
        from scrape_assets.defs import metadata

        about = metadata.published_dataset(self._dataset, self._window, published)
        self._materialized("published_dataset", None, about)

    def _partition(self, retailer: str | None) -> str:
        from scrape_assets.defs import partitions

        return str(partitions.key(self._window, retailer)) if retailer else self._window

    def _materialized(self, asset: str, retailer: str | None, about: dict[str, Any]) -> None:
        import dagster as dg

        tags = (
            {"dagster/partition/window": self._window, "dagster/partition/retailer": retailer} if retailer else None
        )
        self._instance.report_runless_asset_event(
            dg.AssetMaterialization(
                [self._dataset.dataset, asset],
                description="by the command line",
                partition=self._partition(retailer),
                metadata=about,
                tags=tags,
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
        import dagster as dg
        from dagster._core.definitions.asset_checks.asset_check_evaluation import (
            AssetCheckEvaluationTargetMaterializationData,
        )

        from scrape_assets.defs import checks

        key, partition = dg.AssetKey([self._dataset.dataset, asset]), self._partition(retailer)
        # A check counts for the materialization that it names: the one written just now.
        newest = self._instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition]), limit=1
        ).records[0]
        target = AssetCheckEvaluationTargetMaterializationData(
            storage_id=newest.storage_id, run_id=newest.run_id, timestamp=newest.timestamp
        )
        blocking = {spec.name: spec.blocking for spec in specs}
        for result in checks.results(specs, verdict, *judged):
            assert result.check_name is not None
            self._instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=key,
                    check_name=result.check_name,
                    passed=result.passed,
                    metadata=result.metadata,
                    severity=result.severity,
                    description=result.description,
                    target_materialization_data=target,
                    blocking=blocking[result.check_name],
                    partition=partition,
                )
            )
