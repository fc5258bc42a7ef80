"""Check: what a window would plan and how long its rate takes, without a request and without a store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from scrape_assets.flow import check, plan
from tests.helpers import make

SITE = "https://shop.example"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


def test_check_counts_tasks_and_refused_lines_and_says_how_long_the_rate_takes(tmp_path: Path) -> None:
    declared = make.dataset(
        tmp_path,
        {"north": (SITE, [f"/p/{i}" for i in range(5)])},
        more="key: [sku]\nfetch: {rate: 30/min}",
    )
    inventory = tmp_path / "datasets" / "prices" / "north.csv"
    inventory.write_text(inventory.read_text() + "ftp://elsewhere/x\nhttp://other.example/p\n")
    found = check.check(declared, NOW)
    assert (found["dataset"], found["window"]["current"]) == ("prices", "2026-03-05")
    assert found["window"]["start"] == datetime(2026, 3, 5, tzinfo=UTC)
    (north,) = found["retailers"]
    assert (north["retailer"], north["tasks"], north["rejected"]) == ("north", 5, 2)
    assert north["origins"] == {SITE: 5}
    assert north["seconds_at_declared_rate"] == 10
    frozen = plan.freeze(declared, declared.retailers["north"])
    assert north["extractor_version"] == frozen.extractor_version
    assert north["manifest_hash"] == frozen.manifest_hash
    assert [(line["line"], line["content"]) for line in north["rejected_lines"]] == [
        (7, "ftp://elsewhere/x"),
        (8, "http://other.example/p"),
    ]
    assert all(line["reason"] for line in north["rejected_lines"])


def test_check_lists_the_first_refused_lines_and_counts_all(tmp_path: Path) -> None:
    declared = make.dataset(tmp_path, {"north": (SITE, ["/p/1"])})
    inventory = tmp_path / "datasets" / "prices" / "north.csv"
    inventory.write_text(inventory.read_text() + "nonsense\n" * (check.SHOWN_REJECTIONS + 3))
    (north,) = check.check(declared, NOW)["retailers"]
    assert north["rejected"] == check.SHOWN_REJECTIONS + 3
    assert [line["line"] for line in north["rejected_lines"]] == list(range(3, 3 + check.SHOWN_REJECTIONS))


def test_check_gives_no_time_for_a_retailer_without_a_rate(tmp_path: Path) -> None:
    declared = make.dataset(tmp_path, {"north": (SITE, ["/p/1", "/p/2"])})
    (north,) = check.check(declared, NOW)["retailers"]
    assert (north["tasks"], north["seconds_at_declared_rate"]) == (2, None)
