"""What a heartbeat and a commit read grows with their own size, not with what the window already holds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from scrape_assets.flow import plan, run
from scrape_assets.rules import keys
from scrape_assets.store import commit, lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool, Transaction
from tests.helpers import make

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
SITE = "http://127.0.0.1:9"
GROUP = 50
GROUPS = 60
QUEUE = ("tasks", "attempts", "observations")


@pytest.fixture
def undisturbed(owner: Transaction, pool: Pool) -> object:
    """What the planner knows of the tables is what it knew when the window was planned."""
    for table in QUEUE:
        owner.execute(f"alter table scrape.{table} set (autovacuum_enabled = off)".encode())
    yield None
    for table in QUEUE:
        owner.execute(f"alter table scrape.{table} reset (autovacuum_enabled)".encode())


def read(tx: Transaction) -> Counter[str]:
    """Rows and index entries that this connection read so far, by table and by index."""
    return Counter(
        {
            row.relname: row.read
            for row in tx.execute(
                "select c.relname, pg_stat_get_xact_tuples_returned(c.oid)::integer as read from pg_class c"
                " where c.relnamespace = 'scrape'::regnamespace and c.relkind in ('r', 'i')"
            )
        }
    )


def result(claim: Claim) -> Result:
    entity = keys.entity_key("north", [claim.canonical_url])
    payload = {"name": "x", "price": "1"}
    row = make.row(entity, payload, WINDOW)
    text = orjson.dumps([row]).decode()
    return Result(claim.lease, SITE, "committed", "committed", claim.leased_at, make.version(), rows=text, row_count=1)


def test_the_last_group_of_a_window_reads_as_little_as_the_first(
    pool: Pool, owner: Transaction, undisturbed: object, tmp_path: Path
) -> None:
    dataset = make.dataset(tmp_path, {"north": (SITE, [f"/p/{i}" for i in range(GROUP * GROUPS)])})
    plan.plan(pool, dataset, WINDOW, now=datetime(2026, 3, 5, 12, tzinfo=UTC))
    [work] = run.assignments(pool, dataset, WINDOW, ["north"])

    for number in range(GROUPS):
        if number in (0, GROUPS // 6):
            # Nothing is leased or committed, then; or the tables are so small that a walk through them is cheap.
            for table in QUEUE:
                owner.execute(f"analyze scrape.{table}".encode())
        with postgres.transaction(pool) as tx:
            claims = lease.claim(
                tx, run_id=RUN, retailer="north", origin=SITE, manifest_hash=work.frozen.manifest_hash, worker_id="w",
                wanted=GROUP, lease_seconds=60.0, deadline_seconds=600.0,
            )  # fmt: skip
        with postgres.transaction(pool) as tx:
            before = read(tx)
            assert len(lease.heartbeat(tx, [one.lease for one in claims], 60.0)) == GROUP
            extended = read(tx) - before
        with postgres.transaction(pool) as tx:
            before = read(tx)
            assert len(commit.finish(tx, RUN, WINDOW, [result(one) for one in claims], [])) == GROUP
            finished = read(tx) - before

    # Each task and attempt a few times: by the fence, by the update, by the rows that refer to it.
    assert extended["tasks_pkey"] >= GROUP, extended
    assert finished["tasks_pkey"] >= GROUP, finished
    assert max(extended.values()) <= 10 * GROUP, extended
    assert max(finished.values()) <= 10 * GROUP, finished
