"""The points of the crash windows: inert unless armed, each fires once, and says so before it does."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scrape_assets import failpoints

SOURCES = Path(failpoints.__file__).parent


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.arm("", None)


def test_a_point_that_is_not_armed_does_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    failpoints.arm("K2=raise", str(log))
    for name in failpoints.WINDOWS.keys() - {"K2"}:
        failpoints.reach(name, lambda: pytest.fail("dropped"), first=lambda: pytest.fail("done"))
    assert not log.exists()


def test_a_point_fires_at_its_time_once_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    failpoints.arm("K2=raise@3, K5=full", str(log))
    failpoints.reach("K2")
    failpoints.reach("K2")
    with pytest.raises(failpoints.Reached, match="K2: request sent"):
        failpoints.reach("K2")
    failpoints.reach("K2")
    with pytest.raises(OSError, match="space") as full:
        failpoints.reach("K5")
    assert full.value.errno == errno.ENOSPC
    assert [line.split()[:2] for line in log.read_text().splitlines()] == [["K2", "raise"], ["K5", "full"]]


def test_a_drop_is_what_the_point_offers_and_what_comes_first_is_done_first() -> None:
    order: list[str] = []
    failpoints.arm("K9=drop", None)
    failpoints.reach("K9", lambda: order.append("dropped"), first=lambda: order.append("sent"))
    assert order == ["sent", "dropped"]


def test_a_kill_ends_the_process_after_it_was_written_down(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "from scrape_assets import failpoints; failpoints.reach('K1'); failpoints.reach('K1'); print('alive')"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "SCRAPE_ASSETS_FAILPOINT": "K1=kill@2",
            "SCRAPE_ASSETS_FAILPOINT_LOG": str(log),
            "PYTHONPATH": str(SOURCES.parent),
        },
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (-9, b"")
    assert log.read_text().startswith("K1 kill ")


@pytest.mark.parametrize("text", ["K99=kill", "K1", "K1=explode", "K1=kill@x", "K1=kill@0", "=kill"])
def test_what_cannot_be_armed_is_said_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is none; expected K1=kill"):
        failpoints.arm(text, None)


def test_every_window_has_its_point_in_the_program_and_no_point_is_without_a_window() -> None:
    found = {
        name
        for file in SOURCES.rglob("*.py")
        if file.name != "failpoints.py"
        for name in re.findall(r"failpoints\.reach\(\s*\"(K\d+)\"", file.read_text())
    }
    assert found == failpoints.WINDOWS.keys()
