"""Pages that kill whoever reads them: each costs its own child process and its own tries, and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scrape_assets.flow import plan, run, verify
from scrape_assets.flow.run import Machine
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.site import Site, site

WINDOW = "2026-03-05"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
POISON = ("eats", "hangs", "dies")
PAGES = """
import os
import signal


def Product(page):
    sku = page.css("h1")[0].split()[-1]
    if sku == "eats":
        hoard = [bytearray(8_000_000) for _ in range(1000)]
    if sku == "hangs":
        while True:
            pass
    if sku == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"sku": sku, "name": "a product", "price": "1.00", "currency": "EUR"}
"""


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_poison_is_quarantined_with_its_reason_and_everything_else_finishes(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    home = tmp_path / "datasets/prices"
    home.mkdir(parents=True)
    (home / "pages.py").write_text(PAGES)
    good = [f"n{i}" for i in range(20)]
    dataset = make.dataset(
        tmp_path,
        {"north": (shop.url, [f"/p/{name}" for name in [*good[:10], *POISON, *good[10:]]])},
        more="key: [sku]\nproduct: {page_object: 'pages.py:Product'}",
        attempts=5,
        lease="120s",
        timeout="900s",
        task_deadline="1h",
    )
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    tally = asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", f"w-{os.getpid()}", {}), work))
    with postgres.transaction(pool) as tx:
        tasks = tx.execute(
            "select url, state, attempt_count, last_failure_class, a.reason"
            " from scrape.tasks t join scrape.attempts a using (attempt_id)"
        ).fetchall()
    ended = {row.url.rpartition("/")[2]: row for row in tasks}
    assert {name for name, row in ended.items() if row.state == "committed"} == set(good)
    for name in POISON:
        # The first time may be chance; the second is a fact, and no third child is spent on it.
        assert (ended[name].state, ended[name].last_failure_class) == ("quarantined", "extractor_crashed"), name
        assert ended[name].attempt_count == 2, name
    assert "512 MB" in ended["eats"].reason
    assert re.search(r"peak memory \d+ MB", ended["eats"].reason)
    assert "peak memory" in ended["hangs"].reason
    assert "SIGKILL" in ended["dies"].reason and "peak memory" in ended["dies"].reason
    assert tally.failures["extractor_crashed"] == 6
    assert verify.verify(pool).violations == []
