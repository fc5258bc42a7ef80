"""Rehearse: what `demo` proves, computed from the shop and from what was published, never from the run's own word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from scrape_assets.store import postgres, publication, runs
from scrape_assets.store.postgres import Pool

COMPARED = ("name", "price", "currency", "availability")
"""Fields in which a published offer must equal the shop's."""


def compare(pool: Pool, run_id: str, dataset_version: int, truth: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Offers of the shop that are not published, published ones that the shop does not have, doubles, wrong values."""
    with postgres.transaction(pool) as tx:
        run = runs.find(tx, run_id)
        assert run is not None
        rows = [
            (row.retailer, orjson.loads(row.payload))
            for row in publication.rows(tx, run.dataset_id, run.collection_window, dataset_version, "full")
        ]
    published = Counter((retailer, payload["sku"]) for retailer, payload in rows)
    payloads = {(retailer, payload["sku"]): payload for retailer, payload in rows}
    offers = {(offer["retailer"], offer["entity"]): offer for offer in truth}
    wrong = [
        {
            "retailer": key[0],
            "sku": key[1],
            "field": name,
            "shop": offer.get(name),
            "published": payloads[key].get(name),
        }
        for key, offer in offers.items()
        if key in payloads
        for name in COMPARED
        if offer.get(name) != payloads[key].get(name)
    ]
    return {
        "offers": len(offers),
        "rows": len(rows),
        "lost": len(offers.keys() - published.keys()),
        "invented": len(published.keys() - offers.keys()),
        "duplicates": sum(count - 1 for count in published.values()),
        "wrong_values": wrong,
    }
