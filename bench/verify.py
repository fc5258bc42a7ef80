"""How long `verify` and `status` take over a store of many tasks, all committed, one row each.

    python bench/verify.py [--tasks N] [--json]       one million tasks

The store is filled by SQL, in the states that a finished window leaves; the log of moves is as long as theirs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

FILL = """
insert into scrape.runs (run_id, dataset_id, collection_window, window_start, window_end)
values ('bench@2026-01-01', 'bench', '2026-01-01', '2026-01-01', '2026-01-02');

insert into scrape.run_partitions (run_id, retailer, manifest, manifest_hash, extractor_version, planned_at, planned)
values ('bench@2026-01-01', 'site', '{{}}', 'x', 'v1', now(), {tasks});

insert into scrape.candidates (run_id, retailer, generation) values ('bench@2026-01-01', 'site', 1);

insert into scrape.tasks (task_key, run_id, retailer, page_type, url, canonical_url, origin, max_attempts)
select md5('t' || n)::uuid, 'bench@2026-01-01', 'site', 'product', u, u, 'https://site.example', 5
  from generate_series(1, {tasks}) n, lateral (select 'https://site.example/p/' || n as u) as urls;

update scrape.tasks
   set state = 'leased', lease_owner = 'w', lease_until = now(), lease_started_at = now(), deadline_at = now(),
       lease_token = 1, attempt_count = 1, attempt_id = md5('a' || task_key)::uuid;

insert into scrape.attempts (attempt_id, task_key, run_id, retailer, lease_token, generation, worker_id, finished_at,
                             outcome, http_status, page_state, extractor_version)
select attempt_id, task_key, run_id, retailer, 1, 1, 'w', now(), 'committed', 200, 'expected', 'v1' from scrape.tasks;

update scrape.tasks
   set state = 'committed', rows_committed = 1,
       lease_owner = null, lease_until = null, lease_started_at = null, deadline_at = null;

insert into scrape.observations (observation_key, run_id, retailer, context, entity_key, collection_window,
                                 source_task_key, attempt_id, generation, lease_token, observed_at, payload,
                                 payload_hash, extractor_version)
select md5('o' || task_key)::uuid, run_id, retailer, '', url, '2026-01-01', task_key, attempt_id, 1, 1, now(),
       jsonb_build_object('name', 'A product', 'price', '19.99', 'currency', 'EUR', 'url', url),
       md5(url), 'v1'
  from scrape.tasks;
"""


def main() -> None:
    """Fill a server of its own, and time what reads all of it."""
    from scrape_assets.flow import status, verify
    from scrape_assets.store import embedded, postgres

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scrape-assets-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = embedded.ensure(folder / "state")
        try:
            url = postgres.create_database(server.owner_url, "bench")
            postgres.migrate(url)
            began = time.monotonic()
            with postgres.connect(url, autocommit=True) as owner:
                for statement in FILL.format(tasks=given.tasks).split(";\n"):
                    if statement.strip():
                        owner.execute(statement.encode())
                owner.execute("vacuum analyze")
            filled = time.monotonic() - began
            print(f"filled with {given.tasks} tasks in {filled:.0f} s", file=sys.stderr)
            with postgres.open_pool(url) as pool:
                verified = verify.verify(pool)
                began = time.monotonic()
                standing = status.run_status(pool, "bench@2026-01-01")
                looked = time.monotonic() - began
        finally:
            embedded.stop(folder / "state")
    assert standing is not None
    assert standing["observations"] == given.tasks
    assert verified.violations == [], verified.violations
    result = {
        "tasks": given.tasks,
        "verify, s": round(verified.seconds, 2),
        "invariants": len(verified.checked),
        "status, s": round(looked, 2),
        "fill (for scale), s": round(filled, 1),
    }
    print(json.dumps(result, indent=2) if given.json else "\n".join(f"{k:>20}  {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
