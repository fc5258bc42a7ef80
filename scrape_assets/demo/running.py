"""The demo shop as somebody's child process: started, asked, and gone when its user is."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from scrape_assets.errors import ScrapeAssetsError


@dataclass(frozen=True, slots=True)
class RunningShop:
    """A shop that answers now. `url` is its front door, `sites` maps each retailer to its base URL."""

    pid: int
    url: str
    sites: Mapping[str, str]
    _client: httpx.Client

    def log(self) -> dict[str, Any]:
        """What was requested so far: `total`, `paths` (URL → count), `statuses`, `faults`, `requests`."""
        return self._ask("GET", "/_log")  # type: ignore[no-any-return]

    def truth(self) -> list[dict[str, Any]]:
        """The offers that the shop really serves on its obtainable pages."""
        return self._ask("GET", "/_truth")  # type: ignore[no-any-return]

    def control(self, **settings: Any) -> dict[str, Any]:
        """Changes `fail_all`, `delay_ms` or `break_template`; `reset=True` forgets all requests."""
        return self._ask("POST", "/_control", settings)  # type: ignore[no-any-return]

    def _ask(self, method: str, path: str, payload: object = None) -> Any:
        answer = self._client.request(method, path, json=payload)
        if answer.status_code != 200:
            raise ScrapeAssetsError(f"the demo shop at {self.url} refused {method} {path}: {answer.text}")
        return answer.json()


@contextlib.contextmanager
def running_shop(port: int = 0) -> Iterator[RunningShop]:
    """A shop in a process of its own for as long as the block lasts; it also ends when this process dies."""
    command = [sys.executable, "-m", "scrape_assets.demo.shop", "--json-ready"]
    command += ["--port", str(port), "--parent", str(os.getpid())]
    with tempfile.TemporaryFile("w+") as errors:
        # A session of its own: Ctrl-C in the terminal is for the collector, which stops the shop last.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
            if not ready:
                child.wait()
                errors.seek(0)
                raise ScrapeAssetsError(f"the demo shop did not start: {errors.read().strip() or 'it said nothing'}")
            said = json.loads(ready)
            # trust_env off: a proxy of the environment has no business between this machine and itself.
            with httpx.Client(base_url=said["url"], trust_env=False, timeout=30) as client:
                yield RunningShop(child.pid, said["url"], said["sites"], client)
        finally:
            child.terminate()
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close() if child.stdout else None
