"""`drill` in small: windows that stand for the others fire, cost what they may, and a broken promise is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from psycopg.conninfo import make_conninfo

from scrape_assets.flow import drill, drill_scenarios
from scrape_assets.flow.drill import Ground
from scrape_assets.store import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def ground(server: embedded.Server) -> Iterator[Ground]:
    with drill.ground(server.owner_url, drill.PAGES, print) as it:
        yield it


@pytest.mark.parametrize("name", [name for name in drill.windows() if name != "postgres"])
def test_a_window_fires_and_costs_nothing_but_time(ground: Ground, name: str) -> None:
    number = list(drill.windows()).index(name) + 1
    [outcome] = drill.drill(ground, [name], times=2, first=number)
    if not outcome.record()["in_time"]:
        # A machine that stood still for a moment is late once; a promise that does not hold is late twice.
        [outcome] = drill.drill(ground, [name], times=2, first=100 + number)
        assert outcome.record()["in_time"], outcome
    assert outcome.ok, outcome
    assert outcome.fired == 2
    assert (outcome.lost, outcome.duplicated, outcome.acknowledged_missing) == (0, 0, 0)
    assert outcome.refetched <= outcome.in_flight


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_commit_that_no_proxy_can_see_is_not_cut(ground: Ground, mode: str) -> None:
    guarded = replace(ground, url=make_conninfo(ground.url, sslmode=mode))
    outcome = drill.Outcome("answer_cut", "cut")
    drill_scenarios.cut(guarded, 90, outcome, 1)
    assert "TLS" in outcome.skipped
    assert not outcome.fired


def test_the_same_seed_gives_the_same_kills() -> None:
    assert drill.kills(20, seed=7) == drill.kills(20, seed=7)
    assert drill.kills(20, seed=7) != drill.kills(20, seed=8)
