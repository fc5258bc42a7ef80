"""Planning on real Postgres: what stops one retailer stops no other, and planning again makes it whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import plan, run, verify
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make

WINDOW, NOW = "2026-03-05", datetime(2026, 3, 5, 12, tzinfo=UTC)
NORTH, SOUTH = "http://127.0.0.1:9", "http://127.0.0.1:10"
PAGES = """
import shop_words


def product(page):
    return {"name": shop_words.NAME, "sku": page.url.rsplit("/", 1)[1], "price": "1.00", "currency": "EUR"}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a dataset with the retailers north (3 pages) and south (2)."""
    make.dataset(tmp_path, {"north": (NORTH, ["/p/1", "/p/2", "/p/3"]), "south": (SOUTH, ["/p/1", "/p/2"])})
    return tmp_path / "datasets" / "prices"


def loaded(home: Path) -> Dataset:
    return make.load.dataset(home.parents[1], "prices")


def tasks(pool: Pool) -> dict[str, int]:
    with postgres.transaction(pool) as tx:
        return {row[0]: row[1] for row in tx.execute("select retailer, count(*) from scrape.tasks group by 1")}


def workable(pool: Pool, dataset: Dataset) -> list[str]:
    return [found.retailer.name for found in run.assignments(pool, dataset, WINDOW, ["north", "south"])]


def assert_sound(pool: Pool) -> None:
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


def test_a_module_beside_pages_py_that_changed_stops_its_retailer_alone(pool: Pool, home: Path) -> None:
    words = home / "shop_words.py"
    (home / "pages.py").write_text(PAGES)
    words.write_text('NAME = "Lamp"\n')
    file = home / "retailers" / "north.yaml"
    file.write_text(file.read_text() + "product: {page_object: pages.py:product}\n")
    assert [p.problem for p in plan.plan(pool, loaded(home), WINDOW, now=NOW)] == [None, None]
    words.write_text('NAME = "Another lamp"\n')
    changed = loaded(home)
    north, south = plan.plan(pool, changed, WINDOW, now=NOW)
    assert north.problem is not None
    assert "pages.py" in north.problem
    assert (south.planned, south.resumed, south.problem) == (2, True, None)
    assert run.assignments(pool, changed, WINDOW, ["north"]) == []
    assert workable(pool, changed) == ["south"]
    words.write_text('NAME = "Lamp"\n')
    again = loaded(home)
    assert [p.problem for p in plan.plan(pool, again, WINDOW, now=NOW)] == [None, None]
    assert workable(pool, again) == ["north", "south"]
    assert tasks(pool) == {"north": 3, "south": 2}
    assert_sound(pool)


def test_an_inventory_that_breaks_after_the_load_leaves_its_retailer_unplanned(pool: Pool, home: Path) -> None:
    dataset = loaded(home)
    inventory = home / "north.csv"
    good = inventory.read_text()
    inventory.write_text(good.replace("url\n", "address,title\n"))
    north, south = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert (north.planned, north.resumed) == (0, False)
    assert north.problem is not None
    assert "north.csv" in north.problem
    assert "url" in north.problem
    assert (south.planned, south.problem) == (2, None)
    assert tasks(pool) == {"south": 2}
    assert workable(pool, dataset) == ["south"]
    assert_sound(pool)
    inventory.write_text(good)
    north, south = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert (north.planned, north.resumed, north.problem) == (3, False, None)
    assert (south.planned, south.resumed, south.problem) == (2, True, None)
    assert tasks(pool) == {"north": 3, "south": 2}
    assert workable(pool, dataset) == ["north", "south"]
    assert_sound(pool)


def test_a_retailer_whose_file_is_gone_is_named_and_the_others_go_on(pool: Pool, home: Path) -> None:
    plan.plan(pool, loaded(home), WINDOW, now=NOW)
    (home / "retailers" / "north.yaml").unlink()
    without = loaded(home)
    north, south = plan.plan(pool, without, WINDOW, now=NOW)
    assert north.problem is not None
    assert "no longer declared" in north.problem
    assert (south.planned, south.resumed, south.problem) == (2, True, None)
    assert workable(pool, without) == ["south"]
    assert tasks(pool) == {"north": 3, "south": 2}
    assert_sound(pool)
