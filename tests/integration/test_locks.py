"""Whoever touches the same tasks at the same moment locks them in the same order: nobody is told of a deadlock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson

from scrape_assets.flow import control, plan, run, verify
from scrape_assets.rules import keys
from scrape_assets.store import commit, lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool
from tests.helpers import make

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
SITE = "http://127.0.0.1:9"
SECONDS = 5.0


def rows(claim: Claim, entity: str) -> Result:
    payload = {"name": "x", "price": "1"}
    row = make.row(entity, payload, WINDOW)
    return Result(
        claim.lease,
        SITE,
        "committed",
        "committed",
        claim.leased_at,
        make.version(),
        rows=orjson.dumps([row]).decode(),
        row_count=1,
    )


def test_claims_heartbeats_commits_the_reaper_and_a_plan_never_wait_for_each_other_crosswise(
    pool: Pool, tmp_path: Path
) -> None:
    """postgres.transaction repeats nothing by itself, so that a deadlock would come out as an error of its thread."""
    dataset = make.dataset(tmp_path, {"north": (SITE, [f"/p/{i}" for i in range(3000)])}, attempts=90)
    plan.plan(pool, dataset, WINDOW, now=NOW)
    [work] = run.assignments(pool, dataset, WINDOW, ["north"])
    give_up = time.monotonic() + SECONDS
    errors: list[BaseException] = []
    turns: dict[str, int] = {}
    held: list[Claim] = []

    def again_and_again(name: str, act: Callable[[], object]) -> threading.Thread:
        def loop() -> None:
            try:
                while time.monotonic() < give_up or not turns.get(name):
                    act()
                    turns[name] = turns.get(name, 0) + 1
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=loop, name=name)
        thread.start()
        return thread

    def claim_and_commit(*, backwards: bool) -> None:
        with postgres.transaction(pool) as tx:
            claims = lease.claim(
                tx, run_id=RUN, retailer="north", origin=SITE, manifest_hash=work.frozen.manifest_hash, worker_id="w",
                wanted=40, lease_seconds=0.2 if backwards else 60.0, deadline_seconds=600.0,
            )  # fmt: skip
        held[:] = claims
        # The same few entities from everybody, in both directions.
        results = [rows(one, keys.entity_key("north", [str(number % 7)])) for number, one in enumerate(claims)]
        with postgres.transaction(pool) as tx:
            commit.finish(tx, RUN, WINDOW, results[::-1] if backwards else results, [])

    def heartbeat() -> None:
        with postgres.transaction(pool) as tx:
            lease.heartbeat(tx, [one.lease for one in held[::-1]], 60.0)

    def reap() -> None:
        with postgres.transaction(pool) as tx:
            lease.reap(tx, "another")
        control.step(pool)

    threads = [
        again_and_again("forwards", lambda: claim_and_commit(backwards=False)),
        again_and_again("backwards", lambda: claim_and_commit(backwards=True)),
        again_and_again("heartbeat", heartbeat),
        again_and_again("reap", reap),
        again_and_again("plan", lambda: plan.plan(pool, dataset, WINDOW, now=NOW)),
    ]
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(turns) == {"forwards", "backwards", "heartbeat", "reap", "plan"}
    assert verify.verify(pool).violations == []
