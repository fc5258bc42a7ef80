"""The database of an hour ago: after a restore the work runs again, nothing doubles, old workers are fenced."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from scrape_assets.flow import accept, plan, publish, run, verify
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.collect import Worker
from scrape_assets.flow.run import Machine
from scrape_assets.rules.states import Outcome, TaskState
from scrape_assets.store import commit, embedded, embedded_cluster, lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.site import Site, site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
PAGES = 1000


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """A server of this test's own, since it is crashed and restored."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "state"
    server = embedded.ensure(folder)
    postgres.migrate(server.owner_url, application_role=embedded_cluster.APPLICATION_ROLE)
    yield folder
    embedded.stop(folder)


def crash(state: Path) -> None:
    """Postgres is told to shut down immediately: no checkpoint, connections cut, recovery at the next start."""
    pid = embedded.status(state).pid
    assert pid is not None
    server = psutil.Process(pid)
    server.send_signal(signal.SIGQUIT)
    give_up = time.monotonic() + 120
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < give_up, "the server did not go"
        time.sleep(0.1)


def base_backup(state: Path, folder: Path) -> None:
    """What `pg_basebackup` makes of the running server."""
    place = embedded_cluster.Place.of(state)
    url = place.url(embedded_cluster.BOOTSTRAP_ROLE, "postgres")
    command = [str(embedded_cluster.binaries_folder() / "pg_basebackup"), "-d", url, "-D", str(folder)]
    subprocess.run([*command, "--wal-method=stream", "--checkpoint=fast"], check=True)


def collect(pool: Pool, folder: Path, work: Assignment, *, until: Callable[[int], bool] | None = None) -> None:
    """By a worker that is told of each commit's number, and stopped once the answer is yes."""
    done = 0
    workers: list[Worker] = []

    def count(item: object) -> None:
        nonlocal done
        done += 1
        if until is not None and until(done):
            workers[0].stop()

    machine = Machine(folder / "artifacts", f"w-{os.getpid()}-{time.monotonic_ns()}", {})
    going = run.collect_partitions(pool, machine, [work], on_worker=workers.append, on_progress=count)
    if until is None:
        asyncio.run(going)
    else:
        with pytest.raises(Exception, match="stopped"):
            asyncio.run(going)


def claim(pool: Pool, work: Assignment) -> list[Claim]:
    with postgres.transaction(pool) as tx:
        return lease.claim(
            tx, run_id=RUN, retailer="north", origin=work.origins[0], manifest_hash=work.frozen.manifest_hash,
            worker_id="old", wanted=3, lease_seconds=3600.0, deadline_seconds=3600.0,
        )  # fmt: skip


def test_a_restored_store_works_again_doubles_nothing_and_fences_the_workers_of_before(
    state: Path, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, [f"/p/n{i}" for i in range(PAGES)])})
    with postgres.open_pool(embedded.ensure(state).url) as pool:
        plan.plan(pool, dataset, WINDOW, now=NOW)
        [work] = run.assignments(pool, dataset, WINDOW, ["north"])
        backup = tmp_path / "backup"
        copying = threading.Thread(target=base_backup, args=(state, backup))
        after = 0

        def copied_while_working(done: int) -> bool:
            """The copy begins at the 20th commit and is over before the last: 15 more tell that work went on."""
            nonlocal after
            if done == 20:
                copying.start()
            after += done > 20 and not copying.is_alive()
            return after > 15

        collect(pool, tmp_path, work, until=copied_while_working)
        copying.join()
        assert after > 15, "the copy was not over before the work was, so this shows nothing"
    crash(state)
    with postgres.open_pool(embedded.ensure(state).url) as pool:
        assert verify.verify(pool).violations == [], "an immediate shutdown broke something"
        old = claim(pool, work)
        assert len(old) == 3
        asked_then = dict(shop.requests)
    crash(state)

    data = state / "postgres" / "data"
    owner = data.stat()
    shutil.rmtree(data)
    shutil.copytree(backup, data)
    for path in [data, *data.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    with postgres.open_pool(embedded.ensure(state).url) as pool:
        assert verify.verify(pool).violations == []
        with postgres.transaction(pool) as tx:
            known = {row.url for row in tx.execute("select url from scrape.tasks where state = 'committed'").fetchall()}
            tx.execute("update scrape.tasks set lease_until = clock_timestamp() where state = 'leased'")
            keys = [one.task_key for one in old]
            tx.execute("update scrape.tasks set priority = 9 where task_key = any(%s)", (keys,))
        with postgres.transaction(pool) as tx:
            lease.reap(tx, "another worker")
        assert 20 <= len(known) < PAGES
        # The restored store hands out the tokens once more that the old worker holds.
        new = {one.task_key: one for one in claim(pool, work)}
        assert [new[one.task_key].lease_token for one in old] == [one.lease_token for one in old], (
            "no token was handed out twice, so this shows nothing"
        )
        late = [
            Result(
                o.lease,
                o.url,
                TaskState.GONE,
                Outcome.GONE,
                o.leased_at,
                make.version(),
                failure_class="gone",
                task_class="gone",
            )
            for o in old
        ]
        with postgres.transaction(pool) as tx:
            assert commit.finish(tx, RUN, WINDOW, late, []) == set()
            released = [
                Result(n.lease, n.url, TaskState.PENDING, Outcome.RELEASED, n.leased_at, make.version(), refund=1)
                for n in new.values()
            ]
            assert len(commit.finish(tx, RUN, WINDOW, released, [])) == 3
        collect(pool, tmp_path, work)
        for one in known:
            path = one.removeprefix(shop.url)
            assert shop.requests[path] == asked_then[path], "a page that the restored store knows was fetched again"
        assert accept.accept_retailer(pool, dataset, RUN, "north").state == "accepted"
        accept.accept_dataset(pool, dataset, RUN)
        assert publish.publish(pool, dataset, RUN).rows == PAGES
        assert verify.verify(pool).violations == []
