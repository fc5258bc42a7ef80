"""Check: what the declaration comes to, and what a window of it would plan. No request, no store."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from scrape_assets.datasets import inventory
from scrape_assets.datasets.declaration import Dataset, Retailer, user_agent
from scrape_assets.flow import deliver, fetch, plan
from scrape_assets.rules import urls, windows
from scrape_assets.sources.chromium import BrowserOptions
from scrape_assets.store.runs import Rejection

SHOWN_REJECTIONS = 20
"""Refused inventory lines listed per retailer; all of them are counted."""


def check(dataset: Dataset, now: datetime, browser: BrowserOptions | None = None) -> dict[str, Any]:
    """The resolved dataset as plain JSON: per retailer versions, tasks, refused lines and how long its rate takes."""
    key = plan.current_window(dataset, now)
    start, end = windows.bounds(dataset.window, key)
    return {
        "dataset": dataset.dataset,
        "owner": dataset.owner,
        "user_agent": user_agent(dataset.contact),
        "schema": dataset.schema_name,
        "columns": list(dataset.columns),
        "window": {
            "current": key,
            "start": start,
            "end": end,
            "rule": dataset.window.model_dump(mode="json", exclude_none=True),
        },
        "retry": dataset.retry.model_dump(mode="json"),
        "lease": dataset.lease.model_dump(mode="json"),
        "deadline_seconds": dataset.deadline_seconds,
        "publish": dataset.publish.model_dump(mode="json"),
        "warnings": [
            *deliver.unready(dataset),
            *(
                f"{name}: {said}"
                for name, retailer in sorted(dataset.retailers.items())
                if retailer.inventory_path is not None
                for said in inventory.unread_columns(retailer.inventory_path)
            ),
        ],
        "retailers": [
            _retailer(dataset, retailer, browser or BrowserOptions())
            for _, retailer in sorted(dataset.retailers.items())
        ],
    }


def _retailer(dataset: Dataset, retailer: Retailer, browser: BrowserOptions) -> dict[str, Any]:
    frozen = plan.freeze(dataset, retailer)
    tasks, refused = 0, 0
    origins: dict[str, int] = {}
    rejected: list[Rejection] = []
    for line in plan.lines(retailer):
        if isinstance(line, inventory.Rejected):
            refused += 1
            if len(rejected) < SHOWN_REJECTIONS:
                rejected.append(Rejection(line.number, line.text, line.reason))
            continue
        tasks += 1
        origin = urls.origin(line.canonical_url)
        origins[origin] = origins.get(origin, 0) + 1
    rules = dataset.accept_for(retailer.name)
    interval = retailer.fetch.interval_seconds
    return {
        "retailer": retailer.name,
        "site": retailer.site,
        "basis": retailer.basis,
        "inventory": None if retailer.inventory_path is None else str(retailer.inventory_path),
        "urls": retailer.urls.model_dump(mode="json", exclude_defaults=True),
        "key": list(retailer.key) or ["the inventory's entity, else the page's canonical URL"],
        "extraction": _extraction(retailer),
        "product": retailer.product.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
        "contexts": {
            name: one.model_dump(mode="json", exclude_none=True) for name, one in sorted(retailer.contexts.items())
        },
        "fetch": retailer.fetch.model_dump(mode="json"),
        "accept": asdict(rules),
        "extractor_version": frozen.extractor_version,
        "manifest_hash": frozen.manifest_hash,
        "tasks": tasks,
        "origins": origins,
        "rejected": refused,
        "rejected_lines": [line._asdict() for line in rejected],
        "lease_seconds": dataset.lease.seconds_for(retailer.fetch),
        "problem": fetch.problem(retailer, browser) if tasks else plan.no_pages(retailer, rejected, refused),
        "seconds_at_declared_rate": max(origins.values(), default=0) * interval if interval else None,
    }


def _extraction(retailer: Retailer) -> str:
    if retailer.product.page_object:
        return retailer.product.page_object
    if retailer.product.fields:
        return f"{len(retailer.product.fields)} declared fields"
    return "zero-config (JSON-LD, microdata, RDFa, OpenGraph, then the visible page)"
