"""`drill --suite hostile` in small, case by case, and whole; what one worker does with a site that means harm."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from scrape_assets.demo import hostile, internal
from scrape_assets.flow import drill_hostile
from scrape_assets.flow.drill_ground import scratch
from scrape_assets.store import embedded

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


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_suite_holds(server: embedded.Server) -> None:
    with scratch(server.owner_url) as own:
        result = drill_hostile.run(own, print)
    assert result["ok"], [case for case in result["cases"] if not case["ok"]]
