"""The program's commands as a fixture: what they print, and the exit code they end with."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scrape_assets import cli


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture
def command(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Command]:
    """Runs one command of the program in the project `tmp_path` on this test's database."""
    monkeypatch.setenv("SCRAPE_ASSETS_PROJECT", str(tmp_path))
    monkeypatch.setenv("SCRAPE_ASSETS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SCRAPE_ASSETS_DATABASE_URL", url)
    monkeypatch.delenv("SCRAPE_ASSETS_DATABASE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["scrape-assets", *words])
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
