"""How long everything around the pages takes in one large window, and the memory it needs.

    python bench/large_window.py [--tasks N] [--json]       one retailer of one million pages

The window is planned, judged, published and repaired by the program; that its pages were collected is written by SQL,
in the states that a worker leaves. The log of moves is as long as theirs.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrape_assets.datasets.declaration import Dataset

WINDOW, RUN = "2026-01-01", "prices@2026-01-01"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

DATASET = """\
dataset: prices
window: {every: day, at: "00:00", timezone: UTC, start: 2026-01-01}
publish: {to: {lake: {files: {path: published, format: jsonl}}}}
"""
RETAILER = """\
site: http://127.0.0.1:9
basis: "nothing is fetched"
urls: {file: site.csv}
fetch: {open_tasks: 10000000}
key: [sku]
"""

COLLECT = (
    """
    update scrape.tasks
       set state = 'leased', lease_owner = 'w', lease_until = now(), lease_started_at = now(), deadline_at = now(),
           lease_token = 1, attempt_count = 1, attempt_id = md5('a' || task_key)::uuid
    """,
    """
    insert into scrape.attempts (attempt_id, task_key, run_id, retailer, lease_token, generation, worker_id,
                                 finished_at, outcome, http_status, page_state, extractor_version)
    select t.attempt_id, t.task_key, t.run_id, t.retailer, 1, 1, 'w', now(), 'committed', 200, 'expected',
           p.extractor_version
      from scrape.tasks t
      join scrape.run_partitions p using (run_id, retailer)
    """,
    """
    update scrape.tasks
       set state = 'committed', rows_committed = 1,
           lease_owner = null, lease_until = null, lease_started_at = null, deadline_at = null
    """,
    """
    insert into scrape.observations (observation_key, run_id, retailer, context, entity_key, collection_window,
                                     source_task_key, attempt_id, generation, lease_token, observed_at, payload,
                                     payload_hash, extractor_version)
    select md5('o' || t.task_key)::uuid, t.run_id, t.retailer, '', '["site","' || t.task_key || '"]', '2026-01-01',
           t.task_key, t.attempt_id, 1, 1, now(),
           jsonb_build_object('name', 'A product', 'sku', t.task_key, 'price', '19.99', 'currency', 'EUR',
                              'url', t.url),
           md5(t.url), p.extractor_version
      from scrape.tasks t
      join scrape.run_partitions p using (run_id, retailer)
    """,
    "vacuum analyze",
)


def main() -> None:
    """A server and a project of its own, and one step after the other."""
    from scrape_assets.datasets import load
    from scrape_assets.store import embedded

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scrape-assets-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        home = folder / "datasets" / "prices"
        (home / "retailers").mkdir(parents=True)
        (home / "dataset.yaml").write_text(DATASET)
        (home / "retailers" / "site.yaml").write_text(RETAILER)
        with (home / "site.csv").open("w") as inventory:
            inventory.write("url\n")
            inventory.writelines(f"http://127.0.0.1:9/p/{number}\n" for number in range(given.tasks))
        server = embedded.ensure(folder / "state")
        try:
            result = {"tasks": given.tasks, **_steps(server.owner_url, load.dataset(folder, "prices"), given.tasks)}
        finally:
            embedded.stop(folder / "state")
    print(json.dumps(result, indent=2) if given.json else "\n".join(f"{k:>28}  {v}" for k, v in result.items()))


def _steps(server_url: str, dataset: Dataset, tasks: int) -> dict[str, Any]:
    from scrape_assets.flow import accept, deliver, plan, publish, recover, status, verify, why
    from scrape_assets.rules.recovery import Selection
    from scrape_assets.store import postgres

    took: dict[str, Any] = {}

    def timed(step: str, act: Callable[[], Any]) -> Any:
        began = time.monotonic()
        result = act()
        took[f"{step}, s"] = round(time.monotonic() - began, 1)
        print(f"{step}: {took[f'{step}, s']} s", file=sys.stderr)
        return result

    url = postgres.create_database(server_url, "bench")
    postgres.migrate(url)
    with postgres.open_pool(url) as pool:
        (planned,) = timed("plan", lambda: plan.plan(pool, dataset, WINDOW, now=NOW))
        assert planned.planned == tasks, planned
        with postgres.connect(url, autocommit=True) as owner:
            for statement in COLLECT:
                owner.execute(statement.encode())
        judged = timed("judge the retailer", lambda: accept.accept_retailer(pool, dataset, RUN, "site"))
        together = timed("judge the dataset", lambda: accept.accept_dataset(pool, dataset, RUN))
        assert (judged.state, together.state) == ("accepted", "accepted"), (judged, together)
        version = timed("publish", lambda: publish.publish(pool, dataset, RUN))
        assert version.rows == tasks, version
        (sent,) = timed("deliver to a folder", lambda: deliver.deliver(pool, dataset, jitter=0.5))
        assert sent.state == "delivered", sent
        timed("status", lambda: status.run_status(pool, RUN))
        timed("why", lambda: why.explain(pool, dataset, RUN))
        verified = timed("verify", lambda: verify.verify(pool))
        assert verified.violations == [], verified.violations
        chosen = timed(
            "select for a repair", lambda: recover.select(pool, dataset, RUN, Selection(("site",), mode="refetch"))
        )
        assert [len(one.tasks) for one in chosen] == [tasks]
    took["invariants"] = len(verified.checked)
    took["most memory of this process, MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return took


if __name__ == "__main__":
    main()
