"""`drill --suite hostile` in small, case by case, and whole; what one worker does with a site that means harm."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.demo import hostile, internal, scripted
from scrape_assets.demo.scripted import Answer, product
from scrape_assets.flow import drill_hostile, plan, run, verify
from scrape_assets.flow.drill_ground import scratch
from scrape_assets.flow.run import Machine
from scrape_assets.sources.http import MAX_REDIRECTS
from scrape_assets.store import drill, embedded, postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make

OTHERS = (
    "a name that leads to this machine",
    "a page of links to everywhere",
    "memory of the worker with its children",
    "a service of this machine",
)


@pytest.fixture(scope="module")
def outcome(server: embedded.Server) -> Iterator[dict[str, Any]]:
    with scratch(server.owner_url) as own:
        yield drill_hostile.run(own, lambda _: None, calm_pages=20, hangs=False)


@pytest.mark.parametrize("name", [*hostile.traps(), *OTHERS])
def test_a_hostile_page_ends_as_it_should(outcome: dict[str, Any], name: str) -> None:
    """Cases BC036, BC038, BC040, BC042, BC043 and BC048 through a whole worker, among others."""
    [case] = [case for case in outcome["cases"] if case["name"] == name]
    assert case["ok"], case


def test_nothing_of_this_machine_was_connected_to_and_an_ordinary_site_was_collected(outcome: dict[str, Any]) -> None:
    assert outcome["internal_connections"] == 0
    assert 50 < outcome["peak_memory_mb"] < drill_hostile.MEMORY_MB
    [calm] = [case for case in outcome["cases"] if case["name"] == "an ordinary site beside it"]
    assert calm["got"].startswith("20 pages")


def test_the_service_counts_who_comes() -> None:
    with internal.listening() as service:
        assert service.counts()
        assert service.connections == []
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            assert connection.recv(1)
        assert service.connections == ["127.0.0.1"]


def test_a_command_loads_no_more_than_a_worker_needs() -> None:
    said = "import sys, scrape_assets.cli; print(sorted({'pandas', 'pandera', 'dagster'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", said], text=True).strip() == "[]"


WINDOW = "2026-03-05"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


def collected(
    pool: Pool, folder: Path, sites: dict[str, tuple[str, list[str]]], base: str = "0.1s", **more: Any
) -> dict[str, Any]:
    """How each page ended, by its path, of a dataset that one worker has collected."""
    make.dataset(folder, sites, **more)
    file = folder / "datasets/prices/dataset.yaml"
    file.write_text(file.read_text().replace("base: 0.1s, cap: 0.5s", f"base: {base}, cap: 60s"))
    dataset = make.load.dataset(folder, "prices")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, sorted(sites))
    asyncio.run(run.collect_partitions(pool, Machine(folder / "artifacts", "w", {}), work))
    with postgres.transaction(pool) as tx:
        ended = {"/" + end.url.split("/", 3)[3]: end for end in drill.ends(tx, f"prices@{WINDOW}")}
        assert {v.name: v.keys for v in verify.verify(pool).violations} == {}
    return ended


def test_a_page_that_leads_elsewhere_is_no_product_and_its_way_is_kept(pool: Pool, tmp_path: Path) -> None:
    """Cases BC048 and BC049."""
    ways = {
        "/p/off": "http://127.0.0.1:9/landing",
        "/p/in": "/login?next=/p/in",
        "/p/home": "/",
        "/p/self": "/p/self",
        "/p/a": "/p/b",
        "/p/b": "/p/a",
    }

    visited: list[str] = []

    def answer(path: str) -> Answer:
        visited.append(path)
        if path == "/p/8" and visited.count(path) == 1:
            return Answer(302, {"location": path, "set-cookie": "seen=yes"})
        return Answer(302, {"location": ways[path]}) if path in ways else product(8 if path == "/p/8" else 7)

    with scripted.running(answer) as shop:
        ended = collected(pool, tmp_path, {"north": (shop.url, [*ways, "/p/7", "/p/8"])})
    classes = {path: (end.state, *end.attempts) for path, end in ended.items()}
    assert classes == {
        "/p/off": ("quarantined", "redirected"),
        "/p/in": ("quarantined", "login"),
        "/p/home": ("quarantined", "redirected"),
        "/p/self": ("quarantined", "redirected"),
        "/p/a": ("quarantined", "redirected"),
        "/p/b": ("quarantined", "redirected"),
        "/p/7": ("committed", "committed"),
        "/p/8": ("committed", "committed"),
    }
    with postgres.transaction(pool) as tx:
        kept = tx.execute(
            "select t.url, a.final_url, a.redirects from scrape.attempts a join scrape.tasks t using (task_key)"
        ).fetchall()
        assert tx.execute("select count(*) from scrape.observations").fetchone() == (2,)
    found = {url.removeprefix(shop.url): (final, list(chain or [])) for url, final, chain in kept}
    assert found["/p/off"] == ("http://127.0.0.1:9/landing", [f"{shop.url}/p/off"])
    assert found["/p/in"] == (f"{shop.url}/login?next=/p/in", [f"{shop.url}/p/in"])
    assert found["/p/8"] == (f"{shop.url}/p/8", [f"{shop.url}/p/8"])
    assert found["/p/7"] == (f"{shop.url}/p/7", [])
    assert len(found["/p/self"][1]) == MAX_REDIRECTS + 1


class Outage:
    """Sites that are not there until they are; each connection ends without an answer."""

    def __init__(self) -> None:
        self.over = False
        self.refused = 0

    def answer(self, path: str) -> Answer:
        if not self.over:
            self.refused += 1
            raise ConnectionAbortedError
        return product(int(path[3:]))


def test_where_nothing_can_be_reached_pages_are_not_used_up(pool: Pool, tmp_path: Path) -> None:
    """Case BC035: every site at once, for as long as the attempts of any page would last; the declared base is scaled."""
    outage = Outage()
    threading.Timer(4.0, lambda: setattr(outage, "over", True)).start()
    pages = [f"/p/{number}" for number in range(100)]
    with scripted.running(outage.answer) as one, scripted.running(outage.answer) as other:
        ended = collected(
            pool, tmp_path, {"north": (one.url, pages[:50]), "south": (other.url, pages[50:])}, attempts=3, base="1s"
        )
        given_up = [path for path, end in ended.items() if end.state == "quarantined"]
        assert outage.refused < 150, "pages were tried one after the other, and given up"
        assert len(given_up) <= 10
        assert {end.state for end in ended.values()} <= {"committed", "quarantined"}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_suite_holds(server: embedded.Server) -> None:
    with scratch(server.owner_url) as own:
        result = drill_hostile.run(own, print)
    assert result["ok"], [case for case in result["cases"] if not case["ok"]]
