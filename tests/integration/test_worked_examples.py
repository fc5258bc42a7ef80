"""The examples that the field's own articles reckon with, at their size and with their numbers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import accept, plan, run, verify
from scrape_assets.flow.collect import Worker
from scrape_assets.flow.run import Machine
from scrape_assets.rules import keys
from scrape_assets.store import commit, lease, postgres
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool, Transaction
from tests.helpers import make
from tests.helpers.site import Site, site

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
SITE = "http://127.0.0.1:9"
GROUP = 500


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


class Queue:
    """The store as a worker uses it, without the web: claims, and commits of one row for each task."""

    def __init__(self, pool: Pool, dataset: Dataset) -> None:
        [planned] = plan.plan(pool, dataset, WINDOW, now=NOW)
        self.pool, self.planned = pool, planned.planned
        [self.work] = run.assignments(pool, dataset, WINDOW, ["north"])

    def claim(self, wanted: int, worker: str) -> list[Claim]:
        with postgres.transaction(self.pool) as tx:
            return lease.claim(
                tx, run_id=RUN, retailer="north", origin=SITE, manifest_hash=self.work.frozen.manifest_hash,
                worker_id=worker, wanted=wanted, lease_seconds=3600.0, deadline_seconds=3600.0,
            )  # fmt: skip

    def commit(self, claims: Sequence[Claim]) -> int:
        """How many passed the fence."""
        with postgres.transaction(self.pool) as tx:
            return len(commit.finish(tx, RUN, WINDOW, [_done(claim) for claim in claims], []))

    def work_off(self, tasks: int, worker: str) -> int:
        """How many tasks this worker committed, of so many that it tried to."""
        done = 0
        while done < tasks and (claims := self.claim(min(GROUP, tasks - done), worker)):
            done += self.commit(claims)
        return done

    def expire(self) -> int:
        """Every lease has run out, and is reaped by another worker; how many there were."""
        with postgres.transaction(self.pool) as tx:
            tx.execute(
                "update scrape.tasks set lease_until = clock_timestamp() - interval '1 s' where state = 'leased'"
            )
            return lease.reap(tx, "another")

    def states(self) -> dict[str, int]:
        with postgres.transaction(self.pool) as tx:
            rows = tx.execute("select state, count(*) as n from scrape.tasks group by 1").fetchall()
        return {row.state: row.n for row in rows}

    def outcomes(self) -> tuple[int, int]:
        """Logical outcomes, and attempts made for them."""
        with postgres.transaction(self.pool) as tx:
            row = tx.execute(
                "select (select count(*) from scrape.observations where validation_state = 'valid') as rows,"
                " (select count(*) from scrape.attempts) as attempts"
            ).fetchone()
        assert row is not None
        return row.rows, row.attempts


def _done(claim: Claim) -> Result:
    payload = {"name": "x", "price": "10.00"}
    entity = keys.entity_key("north", [claim.url])
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


def queue_of(pool: Pool, folder: Path, tasks: int) -> Queue:
    return Queue(pool, make.dataset(folder, {"north": (SITE, [f"/p/{i}" for i in range(tasks)])}))


@pytest.fixture
def hundred_thousand(pool: Pool, tmp_path: Path) -> tuple[Queue, list[Claim]]:
    """63,700 accepted, 35,900 pending, 400 leased by a worker that is about to die."""
    queue = queue_of(pool, tmp_path, 100_000)
    assert queue.planned == 100_000
    assert queue.work_off(63_700, "first") == 63_700
    leased = queue.claim(400, "first")
    assert queue.states() == {"committed": 63_700, "pending": 35_900, "leased": 400}
    return queue, leased


def resumed(queue: Queue, *, repeats: int) -> None:
    """The second worker does what is left, and the end is 100,000 outcomes and not a row more."""
    before = queue.outcomes()[0]
    assert queue.work_off(100_000, "second") == 100_000 - before
    assert queue.states() == {"committed": 100_000}
    assert queue.outcomes() == (100_000, 100_000 + repeats)
    assert verify.verify(queue.pool).violations == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_100_000_tasks_where_state_and_result_share_a_transaction(hundred_thousand: tuple[Queue, list[Claim]]) -> None:
    """Our own model. Nothing of the 400 had committed, since otherwise none of them would be leased."""
    queue, leased = hundred_thousand
    assert queue.expire() == 400
    resumed(queue, repeats=400)
    assert queue.commit(leased) == 0, "the dead worker came back, and its results passed the fence"
    assert queue.outcomes()[0] == 100_000


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_100_000_tasks_whose_acknowledgements_were_lost_for_280(hundred_thousand: tuple[Queue, list[Claim]]) -> None:
    """The article's model: a queue beside the store. Of 400 messages 280 are delivered again after they were done.

    Here a delivery is a claim, and a repeat is refused by the fence: 280 collide, 120 complete, no row is extra.
    """
    queue, leased = hundred_thousand
    assert queue.commit(leased[:280]) == 280
    # The queue knows nothing of it and delivers all 400 again, to a worker that does them all.
    assert queue.commit(leased) == 120
    assert queue.states() == {"committed": 64_100, "pending": 35_900}
    resumed(queue, repeats=0)


def test_1_247_chunks_stopped_at_41(pool: Pool, tmp_path: Path, shop: Site) -> None:
    """A real worker, told to stop after 41: 1,206 are left, and not one of the 41 is asked for again."""
    pages = [f"/p/{i}" for i in range(1_247)]
    dataset = make.dataset(tmp_path, {"north": (shop.url, pages)}, timeout="900s", task_deadline="1h")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    [assignment] = run.assignments(pool, dataset, WINDOW, ["north"])
    shop.served_limit = 41
    committed: list[Any] = []

    async def until_stopped() -> None:
        def on_worker(worker: Worker) -> None:
            async def stop_at_41() -> None:
                while len(committed) < 41:
                    await asyncio.sleep(0.02)
                worker.stop()

            stopping.append(asyncio.create_task(stop_at_41()))

        stopping: list[Any] = []
        await run.collect_partitions(
            pool,
            Machine(tmp_path / "artifacts", "stopped", {}),
            [assignment],
            on_worker=on_worker,
            on_progress=lambda item: committed.append(item) if item.result.outcome == "committed" else None,
        )

    with pytest.raises(Exception, match="stopped; what was under way is given back"):
        asyncio.run(until_stopped())
    with postgres.transaction(pool) as tx:
        rows = tx.execute(
            "select state, count(*) as n, sum(attempt_count) as tries from scrape.tasks group by 1"
        ).fetchall()
    assert {row.state: (row.n, row.tries) for row in rows} == {"committed": (41, 41), "pending": (1_206, 0)}
    assert verify.verify(pool).violations == []


PAGES = '''
import json
from datetime import datetime


def Record(page):
    """The lab's own rules: a record has a name and a price, and is not of an earlier day."""
    record = json.loads(page.css("pre")[0])
    if record["observed_at"] < "2026-03-05":
        raise ValueError("an old observation")
    return {"sku": record["sku"], "name": record["name"], "price": record["price"], "currency": "EUR"}
'''


def test_the_labs_six_submissions(pool: Pool, tmp_path: Path, shop: Site) -> None:
    """Six submitted, one twice: five jobs, eight requests, two records; good 1, retry 2, bad 1, stale 1, exhaust 3."""
    starts: list[float] = []

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        name = path.removeprefix("/p/")
        starts.append(time.monotonic())
        if name == "exhaust" or (name == "retry" and shop.requests[path] == 1):
            return 503, {}, b"not now"
        record = {"sku": name, "name": name, "price": "9.99", "observed_at": "2026-03-05"}
        if name == "bad":
            del record["price"]
        if name == "stale":
            record["observed_at"] = "2026-03-04"
        return 200, {}, b"<html><body><h1>A record</h1><pre>" + orjson.dumps(record) + b"</pre></body></html>"

    shop.answer = answer
    home = tmp_path / "datasets/prices"
    home.mkdir(parents=True)
    (home / "pages.py").write_text(PAGES)
    submitted = ["good", "retry", "bad", "stale", "exhaust", "good"]
    make.dataset(
        tmp_path,
        {"north": (shop.url, [f"/p/{name}" for name in submitted])},
        more="key: [sku]\nfetch: {rate: 5/s}\nproduct: {page_object: 'pages.py:Record'}",
        attempts=3,
    )
    dataset = make.load.dataset(tmp_path, "prices")  # type: ignore[attr-defined]
    [planned] = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert (planned.planned, planned.rejected) == (5, 1)
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "lab", {}), work))
    with postgres.transaction(pool) as tx:
        tasks = tx.execute("select url, state, attempt_count, last_failure_class from scrape.tasks").fetchall()
        records = tx.execute("select payload ->> 'sku' as sku from scrape.observations order by 1").fetchall()
    ended = {row.url.rpartition("/")[2]: (row.state, row.attempt_count) for row in tasks}
    assert ended == {
        "good": ("committed", 1),
        "retry": ("committed", 2),
        "bad": ("quarantined", 1),
        "stale": ("quarantined", 1),
        "exhaust": ("quarantined", 3),
    }
    assert sum(shop.requests.values()) == 8
    assert [row.sku for row in records] == ["good", "retry"]
    # Of eight starts a fifth of a second apart; a slow first request makes the span look shorter.
    assert starts[-1] - starts[0] >= 1.0, "the declared rate is five a second"
    assert verify.verify(pool).violations == []


class Fault:
    """A fault of the manifest tutorial, planted by hand in a store that is complete otherwise."""

    def __init__(self, invariant: str, *statements: str) -> None:
        self.invariant, self.statements = invariant, statements


ONE = "(select task_key from scrape.tasks order by task_key limit 1)"
OTHER = "(select task_key from scrape.tasks order by task_key desc limit 1)"
TUTORIAL = {
    "chunks that were never made": Fault(
        "no_task_lost",
        f"delete from scrape.observations where source_task_key = {ONE}",
        f"delete from scrape.attempts where task_key = {ONE}",
        f"delete from scrape.tasks where task_key = {ONE}",
    ),
    "a loss and a gain that cancel out": Fault(
        "committed_rows_are_there",
        f"update scrape.observations set source_task_key = {OTHER} where source_task_key = {ONE}",
    ),
    "one product on two pages, stored twice": Fault(
        "one_row_per_entity",
        f"update scrape.observations set entity_key = (select entity_key from scrape.observations where source_task_key = {OTHER})"
        f" where source_task_key = {ONE}",
    ),
    "an attempt that was counted in memory only": Fault(
        "one_attempt_per_token",
        f"delete from scrape.attempts where task_key = {ONE}",
    ),
}


@pytest.mark.parametrize("name", TUTORIAL)
def test_verify_finds_what_the_manifest_tutorial_misses(
    pool: Pool, owner: Transaction, tmp_path: Path, name: str
) -> None:
    fault = TUTORIAL[name]
    queue = queue_of(pool, tmp_path, 5)
    assert queue.work_off(5, "first") == 5
    assert verify.verify(pool).violations == []
    for statement in fault.statements:
        owner.execute(statement.encode())
    assert fault.invariant in {violation.name for violation in verify.verify(pool).violations}


def test_verify_is_content_while_work_is_open_and_acceptance_is_not(pool: Pool, tmp_path: Path) -> None:
    """299 of 300 pending broke nothing; it is acceptance, not verify, that must not pass it."""
    dataset = make.dataset(tmp_path, {"north": (SITE, [f"/p/{i}" for i in range(300)])})
    queue = Queue(pool, dataset)
    assert queue.work_off(1, "first") == 1
    assert verify.verify(pool).violations == []
    verdict = accept.accept_retailer(pool, dataset, RUN, "north")
    assert (verdict.state, verdict.waiting_for) == ("collecting", "299 tasks are open")
