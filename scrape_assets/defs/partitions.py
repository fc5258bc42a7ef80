"""Partitions: windows in time, and windows times retailers. Tasks are never partitions."""

from __future__ import annotations

import dagster as dg

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.rules.windows import WindowRule

WINDOW = "window"
RETAILER = "retailer"


def windows(rule: WindowRule) -> dg.TimeWindowPartitionsDefinition:
    """The windows under the same keys as `rules.windows`, the open one included: it is collected while open."""
    return dg.TimeWindowPartitionsDefinition(
        start=rule.start_local,
        fmt=rule.key_format,
        timezone=rule.timezone,
        cron_schedule=rule.cron_schedule,
        end_offset=1,
    )


def windows_and_retailers(dataset: Dataset) -> dg.MultiPartitionsDefinition:
    """Each retailer of each window; the key is `retailer|window`."""
    return dg.MultiPartitionsDefinition(
        {WINDOW: windows(dataset.window), RETAILER: dg.StaticPartitionsDefinition(sorted(dataset.retailers))}
    )


def of_window() -> dg.MultiToSingleDimensionPartitionMapping:
    """What stands for a whole window needs all its retailers."""
    return dg.MultiToSingleDimensionPartitionMapping(partition_dimension_name=WINDOW)


def key(window: str, retailer: str) -> dg.MultiPartitionKey:
    """The key of one retailer of one window."""
    return dg.MultiPartitionKey({WINDOW: window, RETAILER: retailer})


def split(context: dg.AssetExecutionContext) -> tuple[str, str]:
    """The window and the retailer that this step works on."""
    dimensions = context.partition_key
    assert isinstance(dimensions, dg.MultiPartitionKey)
    return dimensions.keys_by_dimension[WINDOW], dimensions.keys_by_dimension[RETAILER]
