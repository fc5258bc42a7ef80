"""A shop with prices and list prices, collected window after window: what acceptance and repair are tested on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scrape_assets.datasets import load
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import accept, deliver, plan, publish, recover, run
from scrape_assets.flow.publish import Published
from scrape_assets.flow.recover import Begun
from scrape_assets.flow.run import Machine
from scrape_assets.rules.recovery import Selection
from scrape_assets.store import postgres, publication
from scrape_assets.store.postgres import Pool
from tests.helpers.site import Site

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 31, tzinfo=UTC)
"""All windows of that month may be collected."""

DATASET = """\
dataset: prices
owner: data-team
window: {{every: day, at: "00:00", timezone: UTC, start: 2026-03-01}}
accept: {accept}
retry: {{attempts: 3, base: 0.05s, cap: 0.2s}}
lease: {{for: 30s}}
deadline: 900d
publish: {publish}
defaults: {{fetch: {{rate: none, concurrency: 8, timeout: 20s, allow_private: true}}}}
"""

RETAILER = """\
site: {site}
basis: our own site
urls: {{file: {name}.csv}}
key: [sku]
product:
  expect: .offer
  removed: .no-longer-sold
  fields:
    name: {{css: h1}}
    sku: {{css: .offer, attr: data-sku}}
    price: {{css: "{selector}", money: EUR, decimal: "."}}
    list_price: {{css: .was, money: EUR, decimal: ".", optional: true}}
    brand: {{css: .brand, optional: true}}
{more}
"""


def page(sku: str, price: float, was: float | None = None, brand: str = "Acme", css: str = "now") -> bytes:
    """A product page; `was` is its list price."""
    before = "" if was is None else f'<del class="was">{was:.2f}</del>'
    return (
        f"<!doctype html><html><body><article class='offer' data-sku='{sku}'><h1>Product {sku}</h1>"
        f"<p class='brand'>{brand}</p>{before}<b class='{css}'>{price:.2f}</b><i class='cents'>{price * 100:.0f}</i>"
        f"</article></body></html>"
    ).encode()


class Story:
    """One dataset in a folder, its shop, and its windows."""

    def __init__(self, pool: Pool, folder: Path, shop: Site, pages: Mapping[str, int]) -> None:
        self.pool, self.folder, self.shop, self.pages = pool, folder, shop, dict(pages)
        self.prices: dict[str, float] = {
            f"{name[0]}{i}": 10.0 + i for name, count in pages.items() for i in range(count)
        }
        self.was: dict[str, float] = {sku: round(price * 1.3, 2) for sku, price in self.prices.items()}
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        shop.answer = self.answer
        self.selectors = dict.fromkeys(pages, ".now")
        self.accept: str = "{coverage: 0.9, drift: {rows: 5%, moved: 30%}}"
        self.publish: str = "{to: {lake: {files: {path: published, format: jsonl}}}}"
        self.more: dict[str, str] = {}
        self.declare()

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """The shop's answer; `answers` overrides it for one product."""
        sku = path.rsplit("/", 1)[1]
        return self.answers.get(sku) or (200, {}, page(sku, self.prices[sku], self.was.get(sku)))

    def declare(self, **selectors: str) -> Dataset:
        """The files say this from now on."""
        self.selectors |= selectors
        home = self.folder / "datasets" / "prices"
        (home / "retailers").mkdir(parents=True, exist_ok=True)
        (home / "dataset.yaml").write_text(DATASET.format(accept=self.accept, publish=self.publish))
        for name, count in self.pages.items():
            text = RETAILER.format(
                site=self.shop.url, name=name, selector=self.selectors[name], more=self.more.get(name, "")
            )
            (home / "retailers" / f"{name}.yaml").write_text(text)
            lines = "".join(f"{self.shop.url}/p/{name[0]}{i}\n" for i in range(count))
            (home / f"{name}.csv").write_text("url\n" + lines)
        return self.dataset

    @property
    def dataset(self) -> Dataset:
        """As the files say."""
        return load.dataset(self.folder, "prices")

    @property
    def machine(self) -> Machine:
        """A worker of this test."""
        return Machine(self.folder / "artifacts", "test-worker", {})

    def run_id(self, window: str) -> str:
        """The window's run."""
        return f"prices@{window}"

    def collect(self, window: str, *names: str) -> None:
        """Planned where it was not, and drained."""
        dataset = self.dataset
        planned = plan.plan(self.pool, dataset, window, now=LATER, retailers=list(names) or None)
        assert not [p.problem for p in planned if p.problem], planned
        work = run.assignments(self.pool, dataset, window, sorted(names or dataset.retailers))
        asyncio.run(run.collect_partitions(self.pool, self.machine, work))

    def judge(self, window: str, *names: str, now: datetime = NOW) -> accept.Verdict:
        """Every retailer, then all of them together."""
        dataset = self.dataset
        for name in sorted(names or dataset.retailers):
            accept.accept_retailer(self.pool, dataset, self.run_id(window), name)
        return accept.accept_dataset(self.pool, dataset, self.run_id(window), now=now)

    def checks(self, window: str, retailer: str) -> dict[str, dict[str, Any]]:
        """The retailer's verdict by rule."""
        verdict = accept.accept_retailer(self.pool, self.dataset, self.run_id(window), retailer)
        return {check["rule"]: check for check in verdict.checks}

    def failed(self, window: str, retailer: str) -> set[str]:
        """The rules that stop the retailer."""
        return {
            rule
            for rule, check in self.checks(window, retailer).items()
            if not check["passed"] and check["severity"] == "error" and not check["held"]
        }

    def release(self, window: str, *, now: datetime = NOW) -> Published:
        """Published as the policy says."""
        return publish.publish(self.pool, self.dataset, self.run_id(window), now=now)

    def whole(self, window: str) -> Published:
        """Collected, judged good, published."""
        self.collect(window)
        verdict = self.judge(window)
        assert verdict.state == "accepted", (
            verdict, {name: self.failed(window, name) for name in self.dataset.retailers},
        )  # fmt: skip
        return self.release(window)

    def windows(self, *windows: str, step: float = 0.5) -> None:
        """Good windows, one after the other, in which a fifth of the prices moves."""
        for number, window in enumerate(windows):
            for place, sku in enumerate(sorted(self.prices)):
                if place % 5 == number % 5:
                    self.prices[sku] = round(self.prices[sku] + step, 2)
            self.whole(window)

    def begin(self, window: str, **named: Any) -> list[Begun]:
        """A recovery batch of each selected retailer."""
        selection = Selection(**named)
        run_id = self.run_id(window)
        return recover.begin(
            self.pool, self.dataset, run_id, selection, recover.select(self.pool, self.dataset, run_id, selection)
        )

    def repair(self, window: str, **named: Any) -> list[Begun]:
        """Selected, opened again, and collected."""
        begun = self.begin(window, **named)
        self.collect(window, *(one.repair.retailer for one in begun))
        return begun

    def as_of(self, window: str, version: int) -> dict[str, dict[str, Any]]:
        """What the window held as of that version, by SKU."""
        with postgres.transaction(self.pool) as tx:
            return {
                json.loads(row.payload)["sku"]: json.loads(row.payload)
                for row in publication.rows(tx, "prices", window, version, "full")
            }

    def latest(self) -> dict[str, tuple[str, str]]:
        """Window and price of every entity's newest published row, by SKU."""
        with postgres.transaction(self.pool) as tx:
            return {
                (payload := json.loads(row.payload))["sku"]: (row.collection_window, payload["price"])
                for row in publication.latest(tx, "prices")
            }

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the store says."""
        with postgres.transaction(self.pool) as tx:
            return [tuple(row) for row in tx.execute(query.encode(), values)]

    def delivered(self) -> list[deliver.Delivered]:
        """What one call of `deliver` did."""
        return deliver.deliver(self.pool, self.dataset, jitter=0.5, rest_seconds=0.0)
