"""Try: one page of one retailer, fetched and judged as a run would, and nothing stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scrape_assets.datasets import declaration, page_objects
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import fields, urls
from scrape_assets.rules.page import FetchFailure
from scrape_assets.sources.extractor import ExtractorPool, Setup
from scrape_assets.sources.http import HttpSource


async def try_page(
    dataset: Dataset, retailer: Retailer, url: str, *, window: str, connect_to: Mapping[str, tuple[str, int]]
) -> dict[str, Any]:
    """The page's state, and every field of every row with what gave it."""
    try:
        canonical = urls.canonical(url)
    except ValueError as error:
        raise DeclarationError(f"{url!r}: {error}") from error
    if not urls.within(retailer.site, canonical):
        raise DeclarationError(f"{url} is not on {retailer.name}'s site {retailer.site}")
    rule = declaration.extract_rule(dataset, retailer)
    setup = Setup(
        key="try",
        rule_json=rule.model_dump_json(),
        pages_folder=str(dataset.folder) if rule.page.page_object else None,
        page_object=rule.page.page_object,
        dataset_id=dataset.dataset,
        retailer=retailer.name,
        collection_window=window,
        page_sources=page_objects.sources(dataset.folder),
    )
    async with HttpSource(connect_to=connect_to) as source, ExtractorPool(1) as extractors:
        answer = await source.fetch(
            url,
            site=retailer.site,
            headers=declaration.request_headers(dataset, retailer),
            timeout_seconds=retailer.fetch.timeout_seconds,
            max_body_bytes=retailer.fetch.max_body_bytes,
            allow_private=retailer.fetch.allow_private,
        )
        if isinstance(answer, FetchFailure):
            return {
                "url": url,
                "final_url": answer.final_url,
                "http_status": answer.status,
                "page_state": None,
                "failure_class": answer.failure_class,
                "reason": answer.reason,
                "rows": [],
            }
        judged = await extractors.judge(answer, setup, canonical_url=canonical)
    return {
        "url": url,
        "final_url": answer.final_url,
        "http_status": answer.status,
        "body_bytes": len(answer.body),
        "page_state": judged.page_state,
        "failure_class": judged.failure_class,
        "reason": judged.reason,
        "milliseconds": round(judged.seconds * 1000, 1),
        "rows": [
            {
                "entity_key": row["entity_key"],
                "fields": {
                    name: {"value": value, "from": row["sources"].get(name)} for name, value in row["payload"].items()
                }
                | {
                    name: {"value": None, "from": f"{fields.shown(spec)} found nothing that fits"}
                    for name, spec in rule.page.fields.items()
                    if name not in row["payload"]
                },
            }
            for row in judged.observations()
        ],
    }
