"""Real worker processes and a real server, killed with SIGKILL in the middle of the work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import plan, status, verify
from scrape_assets.store import embedded, observe, postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.site import Site, site

PATIENCE_SECONDS = 800.0
"""For one thing to happen; a busy machine takes minutes to start a process."""


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


def environment(folder: Path, **more: str) -> dict[str, str]:
    ours = {"SCRAPE_ASSETS_PROJECT": str(folder), "SCRAPE_ASSETS_STATE": str(folder / "state"), **more}
    return {name: value for name, value in os.environ.items() if not name.startswith("SCRAPE_ASSETS_")} | ours


def start(env: dict[str, str], *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scrape_assets.cli", *command],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(what: str, true: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        for process in processes:
            if process.poll() is not None:
                raise AssertionError(f"exit code {process.returncode} before {what}: {process.communicate()}")
        assert time.monotonic() < give_up, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
        time.sleep(0.2)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, and proof that it was still there to be killed."""
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def ended(pid: int) -> bool:
    """Whether the process does nothing any more; as a child of this one it stays a zombie until it is waited for."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def committed(pool: Pool, run_id: str) -> set[str]:
    with postgres.transaction(pool) as tx:
        return set(observe.urls(tx, run_id, "committed"))


def declared(folder: Path, shop: Site, pages: int, lease: str, timeout: str = "30s") -> Dataset:
    paths = [f"/p/n{i}" for i in range(pages)]
    return make.dataset(folder, {"north": (shop.url, paths)}, lease=lease, attempts=5, timeout=timeout)


def test_of_300_tasks_204_were_committed_and_96_remain(
    pool: Pool, url: str, tmp_path: Path, shop: Site
) -> None:  # R178
    dataset = declared(tmp_path, shop, 300, "15s")
    now = datetime.now(UTC)
    window = f"{now:%Y-%m-%d}"
    run_id = f"prices@{window}"
    plan.plan(pool, dataset, window, now=now)
    shop.served_limit = 204
    env = environment(tmp_path, SCRAPE_ASSETS_DATABASE_URL=url)
    worker = start(env, "worker", "prices", "--json")
    until("204 commits", lambda: len(committed(pool, run_id)) == 204, worker)
    kill(worker)
    before = committed(pool, run_id)
    asked_before = dict(shop.requests)
    in_flight = {path for path, times in asked_before.items() if f"{shop.url}{path}" not in before}
    assert len(before) == 204
    assert 0 < len(in_flight) <= 8, "as many as the declared concurrency were in flight"
    with postgres.transaction(pool) as tx:
        leased = set(observe.urls(tx, run_id, "leased"))
    assert {f"{shop.url}{path}" for path in in_flight} <= leased, "what is in flight is leased, not done"
    shop.served_limit = None
    shop.gate.set()

    resumed = start(env, "worker", "prices", "--json")
    said, _ = resumed.communicate(timeout=PATIENCE_SECONDS)
    assert resumed.returncode == 0
    assert json.loads(said)["outcomes"]["committed"] == 96
    assert len(committed(pool, run_id)) == 300
    again = {path for path, times in shop.requests.items() if times > asked_before.get(path, 0) > 0}
    assert again <= in_flight, "nothing was fetched again that was committed"
    standing = status.run_status(pool, run_id)
    assert standing is not None
    assert standing["observations"] == 300
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, complained = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, complained
    return json.loads(said)


@pytest.mark.slow
@pytest.mark.timeout(5000)
def test_run_completes_after_its_process_and_postgres_were_killed(tmp_path: Path, shop: Site) -> None:
    tmp_path.chmod(0o755)
    declared(tmp_path, shop, 200, "15s")
    run_id = f"prices@{datetime.now(UTC):%Y-%m-%d}"
    env = environment(tmp_path)
    state = tmp_path / "state"
    try:
        server = embedded.ensure(state)
        assert result(start(env, "db", "migrate", "--json"))["applied"]
        shop.served_limit = 60
        first = start(env, "run", "prices", "--json")
        with postgres.open_pool(server.url) as pool:
            until("60 commits", lambda: len(committed(pool, run_id)) == 60, first)
        kill(first)

        shop.served_limit = 120
        shop.gate.set()
        shop.gate.clear()
        second = start(env, "run", "prices", "--json")
        with postgres.open_pool(server.url) as pool:
            until("more commits", lambda: len(committed(pool, run_id)) > 80, second)
        pid = embedded.status(state).pid
        assert pid is not None
        psutil.Process(pid).send_signal(signal.SIGKILL)
        until("the end of the server", lambda: ended(pid))
        shop.served_limit = None
        shop.gate.set()

        # The one that was under way may live through it or end with exit code 4; the next one completes.
        third = start(env, "run", "prices", "--json")
        summary = result(third)
        second.communicate(timeout=PATIENCE_SECONDS)
        assert second.returncode in (0, 4)
        assert summary["tasks"]["committed"] == 200
        assert summary["observations"] == 200
        assert summary["published"]["rows"] == 200
        assert result(start(env, "verify", "--json"))["violations"] == []
        part = tmp_path / "published" / "prices" / run_id.partition("@")[2] / "v1" / "part-0000.jsonl"
        assert len({json.loads(line)["sku"] for line in part.read_text().splitlines()}) == 200
    finally:
        shop.gate.set()
        embedded.stop(state)


def test_a_worker_that_is_terminated_gives_its_pages_back_at_once_and_uncharged(
    pool: Pool, url: str, tmp_path: Path, shop: Site
) -> None:
    now = datetime.now(UTC)
    plan.plan(pool, declared(tmp_path, shop, 20, "90s", "100s"), f"{now:%Y-%m-%d}", now=now)
    shop.served_limit = 0
    worker = start(environment(tmp_path, SCRAPE_ASSETS_DATABASE_URL=url), "worker", "prices", "--json")
    until("eight requests", lambda: len(shop.requests) == 8, worker)
    worker.send_signal(signal.SIGTERM)
    _, complained = worker.communicate(timeout=PATIENCE_SECONDS)
    assert worker.returncode == 5, complained
    with postgres.transaction(pool) as tx:
        left = tx.execute(
            "select state, attempt_count, release_count, next_attempt_at <= clock_timestamp() as due, count(*) as n"
            " from scrape.tasks group by 1, 2, 3, 4"
        ).fetchall()
        ended = tx.execute("select outcome, failure_class, count(*) from scrape.attempts group by 1, 2").fetchall()
    assert {tuple(row) for row in left} == {("pending", 0, 1, True, 8), ("pending", 0, 0, True, 12)}
    assert [tuple(row) for row in ended] == [("released", None, 8)]
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}
