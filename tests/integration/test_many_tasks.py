"""Case BC079: a window of hundreds of thousands of tasks is looked at, judged and repaired within a statement's time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from scrape_assets.flow import accept, deliver, plan, publish, recover, status, verify, why
from scrape_assets.rules.recovery import Selection
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
PAGES = 200_000
SITE = "http://127.0.0.1:9"

LEASE_ALL = """
    update scrape.tasks
       set state = 'leased', lease_token = 1, attempt_count = 1, attempt_id = gen_random_uuid(), lease_owner = 'w',
           lease_started_at = clock_timestamp(), lease_until = clock_timestamp(), deadline_at = clock_timestamp()
"""
COMMIT_ALL = """
    with claimed as (
        update scrape.tasks t
           set state = 'committed', rows_committed = 1, lease_owner = null, lease_started_at = null, lease_until = null,
               deadline_at = null
        returning t.*
    ), tried as (
        insert into scrape.attempts (attempt_id, task_key, run_id, retailer, lease_token, generation, worker_id, finished_at,
                                     outcome, page_state, extractor_version)
        select attempt_id, task_key, run_id, retailer, 1, 1, 'w', clock_timestamp(), 'committed', 'expected', %(version)s
          from claimed
    )
    insert into scrape.observations (observation_key, run_id, retailer, context, entity_key, collection_window,
                                     source_task_key, attempt_id, generation, lease_token, observed_at, payload,
                                     payload_hash, extractor_version)
    select gen_random_uuid(), run_id, retailer, context, '["north","' || task_key || '"]', %(window)s, task_key, attempt_id,
           1, 1, clock_timestamp(),
           jsonb_build_object('name', 'x', 'sku', task_key, 'price', '10', 'currency', 'EUR'), md5(task_key::text), %(version)s
      from claimed
"""


def test_no_look_at_a_large_window_takes_longer_than_a_statement_may(pool: Pool, tmp_path: Path) -> None:
    dataset = make.dataset(tmp_path, {"north": (SITE, [f"/p/{i}" for i in range(PAGES)])})
    (planned,) = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert planned.planned == PAGES
    with postgres.transaction(pool) as tx:
        tx.execute("set local statement_timeout = '600s'")
        tx.execute(LEASE_ALL)
        tx.execute(COMMIT_ALL.encode(), {"version": make.version(), "window": WINDOW})
    assert accept.accept_retailer(pool, dataset, RUN, "north").state == "accepted"
    assert accept.accept_dataset(pool, dataset, RUN).state == "accepted"
    assert publish.publish(pool, dataset, RUN).rows == PAGES

    with postgres.open_pool(pool.conninfo, size=1) as hasty:
        with hasty.connection() as connection:
            connection.execute("set statement_timeout = '5s'")
        with postgres.transaction(hasty) as tx:
            assert tx.execute("show statement_timeout").fetchone() == ("5s",), "nothing is bounded"
        shown = status.run_status(hasty, RUN)
        assert shown is not None
        assert shown["tasks"]["committed"] == PAGES
        assert publish.releasable(hasty, dataset) == []
        assert accept.undecided(hasty, dataset) == []
        assert deliver.count_due(hasty, dataset) == 1
        assert why.explain(hasty, dataset, RUN)["published"]
        (one,) = recover.select(hasty, dataset, RUN, Selection(urls=(f"{SITE}/p/77",)))
        assert len(one.tasks) == 1
        (begun,) = recover.begin(hasty, dataset, RUN, Selection(), [one])
        assert begun.taken == 1
        assert status.run_status(hasty, RUN) is not None
    assert verify.verify(pool).violations == []
