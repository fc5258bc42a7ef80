"""Checks: every acceptance rule is a partitioned asset check, so the verdict of one window never speaks for another.

The verdict itself is reached and kept in Postgres; these show it, and stop what follows inside the same run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import dagster as dg

from scrape_assets.datasets import schemas
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.defs import metadata, names, partitions
from scrape_assets.flow.accept import Verdict
from scrape_assets.rules import acceptance, drift, template, validate
from scrape_assets.rules.acceptance import Check, Limits


def name(rule: str) -> str:
    """The rule's name as Dagster allows it: `required:price` is `required_price`."""
    kind, colon, column = rule.partition(":")
    return f"{kind}_{names.of(column)}" if colon else names.of(rule)


def of_retailer(dataset: Dataset) -> list[dg.AssetCheckSpec]:
    """One check for each rule that any retailer of the dataset is judged by.

    An empty table is judged to learn their names: what `accept` will say is the only list of them.
    """
    table = validate.frame([], dataset.columns)
    asked = [dataset.accept_for(retailer) for retailer in dataset.retailers]
    limits = Limits(
        coverage=1.0,
        required=tuple(sorted({column for one in asked for column in one.required})),
        fill={column: 0.0 for one in asked for column in one.fill},
        ranges={column: (0.0, None) for one in asked for column in one.ranges},
        unique=tuple(sorted({column for one in asked for column in one.unique})),
        source_age_seconds=next((one.source_age_seconds for one in asked if one.source_age_seconds), None),
    )
    judged = [
        acceptance.not_empty(0),
        acceptance.coverage(planned=0, committed=0, gone=0, at_least=1),
        acceptance.gone(planned=0, gone=0, limit=None, before=[]),
        acceptance.canary("none", 0),
        acceptance.page_states({}, {}),
        template.check([], [], limits.template, warm_up=limits.warm_up),
        acceptance.collisions(0),
        *validate.judge(table, schemas.load(dataset), limits, collected_from=0, now=0),
        *drift.rules(table, limits),
    ]
    return _specs(judged, [dataset.dataset, "observations"], partitions.windows_and_retailers(dataset))


def of_dataset(dataset: Dataset) -> list[dg.AssetCheckSpec]:
    """One check for each rule that the whole dataset is judged by."""
    judged = [
        acceptance.members_accepted({}),
        acceptance.not_empty(0),
        acceptance.unique_entities(0),
        acceptance.dataset_rows(0, [], 0.0, 0),
        acceptance.schema_versions([], None),
    ]
    return _specs(judged, [dataset.dataset, "candidate_dataset"], partitions.windows(dataset.window))


def _specs(
    judged: Iterable[Check], asset: list[str], partitions_def: dg.PartitionsDefinition
) -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():
        # Partitioned checks are in preview; tests/ui would notice if they changed.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(
                name(check.rule),
                asset=asset,
                description=f"{check.rule}: {check.expected}."
                if check.severity == "error"
                else f"{check.expected} (a warning).",
                blocking=check.severity == "error",
                partitions_def=partitions_def,
            )
            for check in judged
        ]


def results(
    specs: Iterable[dg.AssetCheckSpec], verdict: Verdict, candidate: str, number: int
) -> Iterator[dg.AssetCheckResult]:
    """The verdict, rule by rule; a rule that was not asked passes and says so."""
    records = {name(record["rule"]): record for record in verdict.checks}
    for spec in specs:
        record = records.get(spec.name)
        if record is None:
            yield dg.AssetCheckResult(
                passed=True,
                check_name=spec.name,
                description="not asked of this retailer"
                if verdict.sequence is None
                else "not asked while a retailer is missing",
                metadata={candidate: number},
            )
            continue
        held = record.get("held") or ""
        warns = record["severity"] == "warn" or bool(held)
        said = f"expected {record['expected']}; got {record['got']}"
        yield dg.AssetCheckResult(
            passed=record["passed"],
            check_name=spec.name,
            severity=dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
            description=metadata.capped(f"{acceptance.HELD_WORDS[held]}; {said}" if held else said),
            metadata=metadata.check(record, candidate, number),
        )
