"""`demo` as a newcomer runs it: a worker killed at two thirds, a resumed run, and figures compared with the shop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scrape_assets.store import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_the_demo_loses_doubles_and_refetches_nothing_and_says_so_in_one_object(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPE_ASSETS_")}
    command = [sys.executable, "-m", "scrape_assets.cli", "demo", "--json"]
    try:
        ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    finally:
        embedded.stop(tmp_path / ".scrape_assets")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert {
        "run_id", "tasks", "observations", "attempts", "duplicates", "lost", "crash", "acceptance", "published",
        "deliveries",
    } <= said.keys()  # fmt: skip
    assert (said["duplicates"], said["lost"], said["invented"], said["wrong_values"]) == (0, 0, 0, [])
    tasks = said["tasks"]
    assert tasks["open"] == 0
    assert tasks["planned"] == 300 == tasks["committed"] + tasks["gone"] + tasks["quarantined"]
    crash = said["crash"]
    assert 0 < crash["committed_before"] < tasks["committed"]
    assert crash["refetched"] <= crash["in_flight"]
    assert crash["committed_fetched_again"] == 0
    assert said["first_version"]["wrong_values"] > 0, "version 1 was accepted with list prices for prices"
    rejected = said["rejected"]
    assert (rejected["retailer"], rejected["rule"]) == ("papelaria", "drift:ratio")
    assert "near x100" in rejected["got"]
    assert "10, 100 or 1000" in rejected["expected"]
    repair = said["repair"]
    assert (repair["tasks"], repair["requests"], repair["other_partitions_moved"]) == (38, 0, 0)
    assert repair["corrected_rows"] >= said["first_version"]["wrong_values"]
    assert [one["retailer"] for one in repair["partitions"] if one["before"] != one["after"]] == ["papelaria"]
    assert said["published"]["dataset_version"] == 2
    assert said["published"]["rows"] == said["offers_in_the_shop"] == said["observations"]
    assert said["acceptance"]["state"] in ("accepted", "published")
    assert [delivery["state"] for delivery in said["deliveries"]] == ["delivered", "delivered"]
