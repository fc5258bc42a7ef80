"""Breaks the product on purpose, one line at a time: each break must make the named tests fail.

    python tests/mutations.py            all of them
    python tests/mutations.py reap       those whose name contains the word
    python tests/mutations.py --list

Each break is made in a copy of the tree, never in the tree itself. Exit 1 names the breaks that no test noticed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = (
    "scrape_assets",
    "sql",
    "tests",
    "docs",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "dagster.yaml",
    "workspace.yaml",
)


class Mutation(NamedTuple):
    """One break: the first `old` in `file` becomes `new`; the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


LOCKED = """
           offset 0
              for update) t
     where """
FENCE = f"t.lease_owner is not null and t.lease_token = r.lease_token{LOCKED}t.attempt_id = r.attempt_id"
LEASE = "sql/queries/20_lease.sql"
COMMIT = "sql/queries/40_commit.sql"
PUBLISH = "sql/queries/60_publish.sql"
ORIGINS = "sql/queries/25_origins.sql"
DISCOVER = "sql/queries/45_discover.sql"
TESTS = "tests/integration/"
RULES = "scrape_assets/rules/"
READING = ("tests/unit/test_zero_config.py", "tests/pages/test_visible_pages.py")

MUTATIONS = (
    Mutation(
        "a browser with a network",
        "scrape_assets/sources/chromium.py",
        '"--proxy-bypass-list=<-loopback>",',
        "",
        (f"{TESTS}test_browser_source.py",),
    ),
    Mutation(
        "a browser that nobody ends with its worker",
        "scrape_assets/sources/chromium_child.py",
        "for pid in (driver, started, chromium, worker) if",
        "for pid in (started, chromium) if",
        (f"{TESTS}test_browser_flow.py",),
    ),
    Mutation(
        "requests of a page that nobody pays for",
        "scrape_assets/sources/browser_requests.py",
        "jar=jar,\n                gate=gate,",
        "jar=jar,\n                gate=None,",
        (f"{TESTS}test_browser_source.py",),
    ),
    Mutation(
        "a browser's requests beyond what is in flight at most",
        "scrape_assets/flow/turns.py",
        "while self._slots(origin) <= self._busy(origin):",
        "while False:",
        (f"{TESTS}test_browser_origins.py",),
    ),
    Mutation(
        "a browser's given-up request that keeps its turn",
        "scrape_assets/sources/http.py",
        "            if taken:",
        "            if False:",
        (f"{TESTS}test_browser_origins.py",),
    ),
    Mutation(
        "a browser's page that pays for its turns with its time",
        "scrape_assets/sources/browser_page.py",
        "(left := ends + waits.seconds - clock())",
        "(left := ends - clock())",
        (f"{TESTS}test_browser_origins.py",),
    ),
    Mutation(
        "a browser's page that moves where robots.txt forbids",
        "scrape_assets/sources/browser_requests.py",
        "            if objection is not None:",
        "            if False:",
        (f"{TESTS}test_browser_origins.py",),
    ),
    Mutation(
        "a browser's page without its context's cookies",
        "scrape_assets/sources/browser_requests.py",
        "await self._remember(self._first_jar)",
        "pass",
        (f"{TESTS}test_browser_origins.py",),
    ),
    Mutation(
        "pages that are claimed in vain while an origin is paused that they need",
        "scrape_assets/flow/collect.py",
        "if self._needs(assignment) & self._turns.paused:",
        "if False:",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "a browser that is never replaced",
        "scrape_assets/sources/browser.py",
        "if grown > limit:",
        "if grown > 10 * limit:",
        (f"{TESTS}test_browser_source.py",),
    ),
    Mutation(
        "a redesign stops nobody",
        RULES + "template.py",
        "count <= SHARE * PAGES",
        "count <= PAGES",
        ("tests/unit/test_template.py", f"{TESTS}test_templates.py"),
    ),
    Mutation(
        "a redesign passes when its values look fine",
        RULES + "template.py",
        "passed = share <= limit or len(unlike) <= FEW",
        "passed = True",
        (f"{TESTS}test_templates.py",),
    ),
    Mutation(
        "templates are not stored",
        COMMIT,
        "template = r.template",
        "template = null",
        (f"{TESTS}test_templates.py",),
    ),
    Mutation(
        "what was waived is no baseline",
        RULES + "template.py",
        "for one in history:\n        for page_type",
        "for one in list(history)[1:]:\n        for page_type",
        ("tests/unit/test_template.py", f"{TESTS}test_templates.py"),
    ),
    Mutation("no fence at all", COMMIT, FENCE, f"true{LOCKED}true", (f"{TESTS}test_fence.py",)),
    Mutation(
        "no attempt_id in the fence",
        COMMIT,
        FENCE,
        f"t.lease_owner is not null and t.lease_token = r.lease_token{LOCKED}true",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "no token in the fence",
        COMMIT,
        FENCE,
        f"t.lease_owner is not null{LOCKED}t.attempt_id = r.attempt_id",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "no state in the fence",
        COMMIT,
        FENCE,
        f"t.lease_token = r.lease_token{LOCKED}t.attempt_id = r.attempt_id",
        (f"{TESTS}test_fence.py", f"{TESTS}test_commit.py"),
    ),
    Mutation(
        "a heartbeat without a fence",
        LEASE,
        "t.lease_owner is not null and t.lease_token = m.lease_token\n           offset 0\n              for no key update) t\n"
        "     where t.attempt_id = m.attempt_id",
        "t.lease_owner is not null\n           offset 0\n              for no key update) t\n     where true",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "a heartbeat past the task's deadline",
        LEASE,
        "least(clock_timestamp() + make_interval(secs => %(lease_seconds)s), t.deadline_at)",
        "clock_timestamp() + make_interval(secs => %(lease_seconds)s)",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "a claim without a cap on attempts",
        LEASE,
        "       and t.attempt_count < t.max_attempts\n",
        "",
        (f"{TESTS}test_fence.py", f"{TESTS}test_commit.py"),
    ),
    Mutation(
        "attempts that the claim does not count",
        LEASE,
        "attempt_count = t.attempt_count + 1, ",
        "",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "no attempt row at the claim",
        LEASE,
        "           lease_started_at\n      from claimed\n",
        "           lease_started_at\n      from claimed where false\n",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "a reaper that does not look at the lease",
        LEASE,
        "t.state = 'leased' and t.lease_until < (select clock_timestamp())",
        "t.state = 'leased'",
        (f"{TESTS}test_fence.py", f"{TESTS}test_worker.py"),
    ),
    Mutation(
        "a reaper that takes what its own worker holds",
        LEASE,
        "and not (t.attempt_id = any(%(held)s::uuid[]) and t.deadline_at > (select clock_timestamp()))",
        "and (%(held)s::uuid[] is not null)",
        (f"{TESTS}test_worker.py",),
    ),
    Mutation(
        "a reaper that lets an exhausted task loop",
        LEASE,
        "set state = case when t.attempt_count < t.max_attempts then 'pending' else 'quarantined' end",
        "set state = 'pending'",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "a reaper that gives the token back",
        LEASE,
        "           next_attempt_at = clock_timestamp(),\n           lease_owner = null",
        "           next_attempt_at = clock_timestamp(), lease_token = t.lease_token - 1,\n           lease_owner = null",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "an upsert without the rule of who wins",
        COMMIT,
        "        or (excluded.observed_at, excluded.generation, excluded.lease_token, excluded.source_task_key)\n"
        "           > (o.observed_at, o.generation, o.lease_token, o.source_task_key)",
        "        or true",
        (f"{TESTS}test_fence.py", f"{TESTS}test_commit.py"),
    ),
    Mutation(
        "a commit that starts from the index of what is leased",
        COMMIT,
        "t.lease_owner is not null and",
        "t.state = 'leased' and",
        (f"{TESTS}test_reads.py",),
    ),
    Mutation(
        "a heartbeat that starts from the index of what is leased",
        LEASE,
        "t.lease_owner is not null and",
        "t.state = 'leased' and",
        (f"{TESTS}test_reads.py",),
    ),
    Mutation(
        "a group that one bad row takes with it",
        "scrape_assets/flow/commit.py",
        "if len(items) > 1:",
        "if False:",
        (f"{TESTS}test_commit.py",),
    ),
    Mutation(
        "a COMMIT whose answer was lost is taken for none",
        "scrape_assets/flow/commit.py",
        "known = passed | store.closed(tx, results) if repeated else passed",
        "known = passed",
        (f"{TESTS}test_commit.py",),
    ),
    Mutation(
        "bytes that are not synced",
        "scrape_assets/flow/commit.py",
        "            writer.sync()\n",
        "            pass\n",
        (f"{TESTS}test_artifacts.py",),
    ),
    Mutation(
        "bytes that are written after BEGIN",
        "scrape_assets/flow/commit.py",
        "            places = self._keep_bytes(items)\n",
        "            with postgres.transaction(self._pool) as tx:\n"
        "                tx.execute('select')\n"
        "                places = self._keep_bytes(items)\n",
        (f"{TESTS}test_artifacts.py",),
    ),
    Mutation(
        "a candidate that is closed with open tasks",
        "scrape_assets/flow/accept.py",
        "            if open_tasks:\n",
        "            if False:\n",
        (f"{TESTS}test_worked_examples.py::test_verify_is_content_while_work_is_open_and_acceptance_is_not",),
    ),
    Mutation(
        "closing in one statement: what is open is read before the wait for the lock",
        "scrape_assets/flow/accept.py",
        "            partition = runs.lock_partition(tx, run_id, retailer)\n",
        "            before = candidates.count_open(tx, run_id, retailer)\n"
        "            candidates.count_open = lambda *_: before\n"
        "            partition = runs.lock_partition(tx, run_id, retailer)\n",
        (f"{TESTS}test_control.py::test_a_partition_that_is_opened_again_while_acceptance_waits_for_it_is_not_closed",),
    ),
    Mutation(
        "a publication that does not compare generations",
        "scrape_assets/flow/publish.py",
        'current.get(member["retailer"]) != (\n            member["generation"],\n',
        'current.get(member["retailer"], (0,))[1:] != (\n',
        (f"{TESTS}test_publish.py",),
    ),
    Mutation(
        "a stale worker that pauses an origin",
        "scrape_assets/store/commit.py",
        "r.pause_origin_seconds and r.lease.attempt_id in passed",
        "r.pause_origin_seconds",
        (f"{TESTS}test_fence.py",),
    ),
    Mutation(
        "a claim that reads before its turn",
        "scrape_assets/store/lease.py",
        '    sql.maybe(tx, "lock_origin", origin=origin)\n',
        "",
        (f"{TESTS}test_control.py::test_a_claim_that_waited_for_its_turn_takes_nothing_of_what_was_paused_meanwhile",),
    ),
    Mutation(
        "an acceptance that does not look whether the rows moved",
        "scrape_assets/flow/accept.py",
        "            if candidates.content(tx, run_id, retailer) != content:\n                continue\n",
        "",
        (f"{TESTS}test_publish.py", f"{TESTS}test_flow.py"),
    ),
    Mutation(
        "a publication that does not look whether its members moved",
        "scrape_assets/flow/publish.py",
        "if moved := _moved(newest.members, members):",
        "if moved := None:",
        (f"{TESTS}test_publish.py", f"{TESTS}test_flow.py"),
    ),
    Mutation(
        "a version without its event",
        "scrape_assets/flow/publish.py",
        '    publication.write_event(\n        tx,\n        run.run_id,\n        event_id,\n        "dataset.published"',
        '    (lambda *_: None)(\n        tx,\n        run.run_id,\n        event_id,\n        "dataset.published"',
        (f"{TESTS}test_publish.py", f"{TESTS}test_flow.py"),
    ),
    Mutation(
        "rows that a page no longer gives stay",
        "scrape_assets/store/commit.py",
        '        sql.execute(tx, "drop_unyielded", **left)\n',
        "",
        (f"{TESTS}test_commit.py",),
    ),
    Mutation(
        "a closed partition whose tasks wait for ever",
        "sql/queries/30_control.sql",
        "and (p.closing_at is not null\n",
        "and (false\n",
        (f"{TESTS}test_control.py::test_a_partition_past_its_deadline_is_closed_by_any_worker",),
    ),
    Mutation(
        "a repair that does not see a claim that was answered meanwhile",
        "scrape_assets/flow/recover.py",
        "            _refuse_while_leased(tx, run_id, repair.retailer)\n            runs.apply_live",
        "            runs.apply_live",
        (f"{TESTS}test_recover.py::test_a_claim_between_the_look_and_the_taking_is_seen",),
    ),
    Mutation(
        "two windows that are published at once without a turn",
        "scrape_assets/store/publication.py",
        '    sql.one(tx, "lock_latest", dataset_id=run.dataset_id)\n',
        "",
        (f"{TESTS}test_versions.py",),
    ),
    Mutation(
        "a canary's verdict that decides another canary",
        "sql/queries/50_accept.sql",
        "   and p.recovery_batch_id is not distinct from %(recovery_batch_id)s\n",
        "   and (%(recovery_batch_id)s::uuid is null or true)\n",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a publication without its locks",
        PUBLISH,
        "   for no key update;\n\n-- name: lock_partitions :many\nselect retailer\n  from scrape.run_partitions\n"
        " where run_id = %(run_id)s\n order by retailer\n   for no key update;",
        ";\n\n-- name: lock_partitions :many\nselect retailer\n  from scrape.run_partitions\n where run_id = %(run_id)s\n"
        " order by retailer;",
        (f"{TESTS}test_versions.py", f"{TESTS}test_publish.py"),
    ),
    Mutation(
        "a recovery in place",
        "scrape_assets/store/recovery.py",
        "    if not collecting:\n",
        "    if False:\n",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "rows of a repaired page that stay valid",
        "scrape_assets/store/recovery.py",
        'rows = [row.observation_key for row in sql.many(tx, "revert_observations", task_keys=keys)]',
        "rows = []",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a repair under a working worker",
        "scrape_assets/flow/recover.py",
        "    if under_way.leased:\n",
        "    if False:\n",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a repair that gives no new budget",
        "sql/queries/80_recover.sql",
        "attempt_count = 0, release_count = 0, rate_limited_count = 0,\n           budget_base_token = t.lease_token, ",
        "",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a claim with the declaration of before the repair",
        LEASE,
        "       and coalesce(b.manifest_hash, p.manifest_hash) = %(manifest_hash)s\n       for update of o",
        "       and (p.manifest_hash = %(manifest_hash)s or b.manifest_hash is not null)\n       for update of o",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a stored page that is read with the declaration of before the repair",
        LEASE,
        "       and coalesce(b.manifest_hash, p.manifest_hash) = %(manifest_hash)s\n), picked",
        "       and (p.manifest_hash = %(manifest_hash)s or b.manifest_hash is not null)\n), picked",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a canary that the rest does not wait for",
        LEASE,
        "       and (t.canary or not (select canary from gate))\n",
        "",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a stored page that nobody compares with its hash",
        "scrape_assets/flow/stored.py",
        "        if hashlib.sha256(body).hexdigest() != sha256:\n            return None\n",
        "",
        ("tests/unit/test_stored.py",),
    ),
    Mutation(
        "a correction of rows that did not change",
        PUBLISH,
        "        or (s.payload_hash <> m.payload_hash\n            and m.payload - array",
        "        or (true or m.payload - array",
        (f"{TESTS}test_versions.py", f"{TESTS}test_recover.py"),
    ),
    Mutation(
        "a withdrawal of what could not be read again",
        "scrape_assets/store/publication.py",
        '    sql.one(tx, "carry_unverified", **version, run_id=run.run_id, kept=list(kept))\n',
        "",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "latest rows compared without their window",
        PUBLISH,
        " where (excluded.window_end, excluded.dataset_version, excluded.observed_at)\n"
        "       > (l.window_end, l.dataset_version, l.observed_at);",
        " where (excluded.dataset_version, excluded.observed_at) > (l.dataset_version, l.observed_at);",
        (f"{TESTS}test_publish.py",),
    ),
    Mutation(
        "a withdrawn entity that stays in the latest rows",
        "scrape_assets/store/publication.py",
        '    sql.execute(tx, "withdraw_latest", run_id=run.run_id, dataset_version=dataset_version)\n',
        "",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a database that publishes whatever it is given",
        "sql/migrations/0005_recovery_and_corrections.sql",
        "     where c.state is distinct from 'accepted'\n",
        "     where false\n",
        (f"{TESTS}test_versions.py",),
    ),
    Mutation(
        "an outbox with a watermark",
        "sql/queries/70_deliver.sql",
        "     where d.state = 'unsent' and d.next_try_at",
        "     where e.created_at > coalesce((select max(o.created_at) from scrape.outbox o join scrape.deliveries x\n"
        "           using (event_id) where x.state = 'delivered'), '-infinity')\n       and d.state = 'unsent' and d.next_try_at",
        (f"{TESTS}test_deliver.py",),
    ),
    Mutation(
        "a delivery that is marked before it is sent",
        "scrape_assets/flow/deliver.py",
        "        answer = _send(pool, dataset, sending)\n",
        "        with postgres.transaction(pool) as tx:\n            outbox.delivered(tx, sending, {})\n"
        "        answer = _send(pool, dataset, sending)\n",
        (f"{TESTS}test_destinations.py",),
    ),
    Mutation(
        "an uncertain delivery that is sent again unasked",
        "scrape_assets/flow/deliver.py",
        "        answer = _find(pool, dataset, sending)\n        rest",
        '        answer: Found = NotApplied("")\n        rest',
        (f"{TESTS}test_destinations.py",),
    ),
    Mutation(
        "a table whose older windows come back",
        "scrape_assets/sinks/postgres.py",
        "where (excluded.window_end, excluded.dataset_version) > (t.window_end, t.dataset_version)",
        "where true",
        (f"{TESTS}test_destinations.py",),
    ),
    Mutation(
        "a baseline that only a dry run let pass",
        "sql/queries/50_accept.sql",
        """ and not c.verdict @> '{"checks": [{"held": "dry_run"}]}'""",
        "",
        (f"{TESTS}test_acceptance_rules.py",),
    ),
    Mutation(
        "a rejection that outlives what it was compared with",
        "scrape_assets/flow/accept.py",
        'if candidate.state == "rejected" and ',
        "if False and ",
        (f"{TESTS}test_acceptance_rules.py",),
    ),
    Mutation(
        "a correction that is compared with windows after it",
        "scrape_assets/flow/judging.py",
        "    if before or retailer in candidates.published_content(tx, run.run_id):\n",
        "    if before:\n",
        (f"{TESTS}test_acceptance_rules.py",),
    ),
    Mutation(
        "a backfill that looks backward alone",
        "scrape_assets/flow/judging.py",
        "    if before or retailer in candidates.published_content(tx, run.run_id):\n",
        "    if True:\n",
        (f"{TESTS}test_acceptance_rules.py",),
    ),
    Mutation(
        "rules of an incomplete dataset",
        "scrape_assets/flow/accept.py",
        "        if found[0].passed:\n",
        "        if True:\n",
        (f"{TESTS}test_versions.py",),
    ),
    Mutation(
        "a secret that comes and is not noticed",
        "scrape_assets/flow/deliver.py",
        "                outbox.wake(tx, dataset.dataset, destination, _missing(name))\n",
        "                pass\n",
        (f"{TESTS}test_destinations.py",),
    ),
    Mutation(
        "something else under the key that stays delivered",
        "scrape_assets/flow/deliver.py",
        "                outbox.disprove(tx, sending, answer.error)\n",
        "                pass\n",
        (f"{TESTS}test_destinations.py",),
    ),
    Mutation(
        "a person who wants it now and has to wait",
        "scrape_assets/flow/deliver.py",
        "        names = outbox.hurry(tx, dataset.dataset, event_id, asked)\n",
        "        names: list[str] = []\n",
        (f"{TESTS}test_destinations.py",),
    ),
    Mutation(
        "a missing schema that is final",
        "scrape_assets/sinks/postgres.py",
        '        if code == "42501" or code[:2] in _OWNERS:\n',
        '        if code == "none":\n',
        (f"{TESTS}test_destinations.py",),
    ),
    Mutation(
        "a waiver without an end",
        "sql/queries/50_accept.sql",
        " and until > clock_timestamp()",
        "",
        (f"{TESTS}test_acceptance_rules.py::test_an_expired_waiver_does_not_count",),
    ),
    Mutation(
        "an absence that is a withdrawal",
        "scrape_assets/rules/versions.py",
        '    return [member["retailer"] for member in members if member["state"] == "accepted"]',
        '    return [member["retailer"] for member in members]',
        (f"{TESTS}test_versions.py",),
    ),
    Mutation(
        "a struck price in the data is the price",
        f"{RULES}agreement.py",
        "if seen.list_price == amount and shown < amount:",
        "if False:",
        READING,
    ),
    Mutation(
        "data that the page contradicts are believed", f"{RULES}agreement.py", "if seen.is_marked or", "if", READING
    ),
    Mutation(
        "the page outvotes ambiguous data",
        f"{RULES}zero_config.py",
        "not refused.allows(seen.money.amount)",
        "not seen.money.amount",
        READING,
    ),
    Mutation(
        "any two-letter name is a country", f"{RULES}place.py", "if last not in _GENERIC and", "if True and", READING
    ),
    Mutation(
        "a dollar is American",
        f"{RULES}place.py",
        'known = _LANGUAGES.get(self.language or "")',
        'known = _LANGUAGES.get(self.language or "", "USD")',
        READING,
    ),
    Mutation(
        "other products' cards count",
        f"{RULES}visible_main.py",
        "if _is_one_of_several(node, main):",
        "if False:",
        READING,
    ),
    Mutation(
        "struck prices count", f"{RULES}visible_amount.py", "if node.tag in _STRUCK:", "if node.tag is None:", READING
    ),
    Mutation(
        "any two digits are cents",
        f"{RULES}visible_amount.py",
        "return any(text_of(node).strip",
        "return True or any(text_of(node).strip",
        READING,
    ),
    Mutation(
        "the first of two prices",
        f"{RULES}visible_price.py",
        "if len({price.what for price in left}) == 1 or",
        "if left or",
        READING,
    ),
    Mutation("a bound is a price", f"{RULES}visible_amount.py", 'if "bound" in kinds and', "if False and", READING),
    Mutation(
        "a broken block is mended by a pattern without end",
        f"{RULES}structured.py",
        '(?:[^"\\\\]|\\\\.)*+(?:"|\\Z)',
        '(?:[^"\\\\]|\\\\.)*"',
        READING,
    ),
    Mutation(
        "tags of other vocabularies are RDFa", f"{RULES}rdfa.py", "if not _FOREIGN.match(name)", "if name", READING
    ),
    Mutation(
        "a page is read whatever its context proves",
        "scrape_assets/rules/judge.py",
        "(doubt := context.unproven(document, rule.proofs.get(in_context, ()))) is not None",
        "(doubt := context.unproven(document, ())) is not None",
        ("tests/unit/test_contexts.py",),
    ),
    Mutation(
        "one jar for all contexts",
        "scrape_assets/flow/sessions.py",
        "assignment.frozen.manifest_hash, context)",
        'assignment.frozen.manifest_hash, "")',
        (f"{TESTS}test_contexts.py",),
    ),
    Mutation(
        "a session that ended is not renewed",
        "scrape_assets/flow/sessions.py",
        "if session.jar is not None and session.jar is not stale:",
        "if session.jar is not None:",
        (f"{TESTS}test_contexts.py",),
    ),
    Mutation(
        "every page that waits sets its context up",
        "scrape_assets/flow/sessions.py",
        "if session.under_way is None:",
        "if True:",
        (f"{TESTS}test_sessions.py",),
    ),
    Mutation(
        "the answer of a set-up is stored as the page",
        "scrape_assets/flow/collect.py",
        "result.body = result.content_type = None",
        "result.content_type = None",
        (f"{TESTS}test_contexts.py",),
    ),
    Mutation(
        "a host's cookies go to its subdomains",
        "scrape_assets/sources/http.py",
        "httpx.Cookies(CookieJar(policy))",
        "httpx.Cookies()",
        (f"{TESTS}test_http_source.py",),
    ),
    Mutation(
        "a golden page forgives a field that is gone",
        "scrape_assets/rules/golden.py",
        "return expected is got",
        "return True",
        ("tests/unit/test_golden.py",),
    ),
    Mutation(
        "a golden page that fails is as expected",
        "scrape_assets/rules/golden.py",
        "(rows is not None and said.failure_class is not None)",
        "False",
        ("tests/unit/test_golden.py",),
    ),
    Mutation(
        "a turn while another one's is running",
        ORIGINS,
        "or a.next_start_at > a.at or",
        "or",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "a turn of a paused origin",
        ORIGINS,
        "case when a.paused_until > a.at or",
        "case when",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "a day without an end",
        ORIGINS,
        "o.day_count + g.starts",
        "g.starts",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "shares without a look at what others have",
        ORIGINS,
        "least(a.wanted, a.concurrency - o.taken,",
        "least(a.wanted, a.concurrency,",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "a worker that refills what it should give back",
        ORIGINS,
        "select a.origin, m.allowed as slots,",
        "select a.origin, m.held as slots,",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "room that each partition of a worker takes for its own",
        "scrape_assets/flow/collect.py",
        "with self._turns.reserved(origin, wanted,",
        "with self._turns.reserved(origin, 0,",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "shares without the origin's lock",
        "scrape_assets/store/origins.py",
        'sql.many(tx, "lock_origins"',
        'sql.many(tx, "paused_origins"',
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "a second trouble no longer than the first",
        ORIGINS,
        "else power(2, scrape.pressure_left(o)) end",
        "else 1 end",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "a page is asked for although robots.txt cannot be read",
        "scrape_assets/flow/robots.py",
        "                return _failure(answer)\n",
        "                return True\n",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "what is declared private opens the subdomains too",
        "scrape_assets/sources/http.py",
        "if host == _host(site) and (allow_private or address_text is not None):",
        "if allow_private or (host == _host(site) and address_text is not None):",
        (f"{TESTS}test_http_source.py",),
    ),
    Mutation(
        "a redirect is followed as it is written",
        "scrape_assets/sources/http.py",
        "text = joined(str(parsed), location)",
        "text = str(parsed.join(location))",
        (f"{TESTS}test_http_source.py",),
    ),
    Mutation(
        "the next hop takes no turn",
        "scrape_assets/sources/http.py",
        "if self._gate is None:\n            return await transport",
        "if self._gate is None or self._chain:\n            return await transport",
        (f"{TESTS}test_origins.py",),
    ),
    Mutation(
        "what a page names is not counted under its partition's lock",
        "scrape_assets/store/commit.py",
        'sql.maybe(tx, "lock_partition", run_id=run_id, retailer=retailer)',
        "pass",
        (f"{TESTS}test_discovery.py", f"{TESTS}test_commit.py"),
    ),
    Mutation(
        "what a stale page names is kept",
        "scrape_assets/store/commit.py",
        "if result.discovered and result.lease.attempt_id in passed:",
        "if result.discovered:",
        (f"{TESTS}test_discovery.py", f"{TESTS}test_protocol.py"),
    ),
    Mutation(
        "what waits for room is forgotten",
        DISCOVER,
        "limit greatest(0, r.free)",
        "limit 1000000",
        (f"{TESTS}test_discovery.py",),
    ),
    Mutation(
        "a retailer is judged while pages wait for room",
        "sql/queries/50_accept.sql",
        "(select count(*) from scrape.frontier where run_id = %(run_id)s and retailer = %(retailer)s) as open",
        "0 as open",
        (f"{TESTS}test_discovery.py", f"{TESTS}test_protocol.py"),
    ),
    Mutation(
        "a list that comes back to itself has ended well",
        "scrape_assets/rules/chain.py",
        "if named_before_by is not None:",
        "if False:",
        (f"{TESTS}test_discovery.py", "tests/unit/test_discover.py"),
    ),
    Mutation(
        "an answer without a page stands for the newest page of any address",
        "scrape_assets/sources/http.py",
        "if name not in _CONDITIONS}",
        "if name}",
        (f"{TESTS}test_revalidate.py",),
    ),
    Mutation(
        "an older look replaces a newer one",
        COMMIT,
        "where known.verified_at <= excluded.verified_at",
        "where true",
        (f"{TESTS}test_revalidate.py",),
    ),
    Mutation(
        "a repair believes that a page is what it was",
        "sql/queries/20_lease.sql",
        "and claimed.recovery_batch_id is null",
        "",
        (f"{TESTS}test_revalidate.py",),
    ),
    Mutation(
        "a page that nobody asked for counts as seen",
        "scrape_assets/flow/revalidate.py",
        "verified_at = before.verified_at",
        "pass",
        (f"{TESTS}test_revalidate.py",),
    ),
    Mutation(
        "a page asked for in another way is the same page",
        "scrape_assets/rules/keys.py",
        '"fetch": fetch',
        '"fetch": {}',
        (f"{TESTS}test_revalidate.py",),
    ),
    Mutation(
        "a repair that names nobody takes along what stands published",
        "scrape_assets/rules/recovery.py",
        "return changed and not stands",
        "return changed",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "nobody says that today's prices would be those of a past window",
        "scrape_assets/flow/recover.py",
        "if not (self.stands and",
        "if True or not (self.stands and",
        (f"{TESTS}test_recover.py",),
    ),
    Mutation(
        "a correction that is not delivered ends as if it were",
        "scrape_assets/cli/repair.py",
        "    conclude(result, [batch",
        "    False and conclude(result, [batch",
        (f"{TESTS}test_repair_commands.py",),
    ),
    Mutation(
        "a version forgets the rules that were held back",
        "scrape_assets/flow/publish.py",
        "return sum(len(acceptance.held_back(",
        "return 0 * sum(len(acceptance.held_back(",
        (f"{TESTS}test_repair_commands.py",),
    ),
    Mutation(
        "a version rests on a waiver that was revoked",
        "scrape_assets/flow/publish.py",
        'ends = until.get(waiver["waiver_id"], datetime.fromisoformat(waiver["until"]))',
        'ends = datetime.fromisoformat(waiver["until"])',
        (f"{TESTS}test_acceptance_rules.py",),
    ),
    Mutation(
        "what was delivered waits for a secret that is wrong",
        "scrape_assets/flow/deliver.py",
        "if names and not waiting:",
        "if False:",
        (f"{TESTS}test_destinations.py",),
    ),
)


def broken_copy(mutation: Mutation | None, folder: Path) -> str | None:
    """The copy holds the break; what is wrong when it cannot be made any more."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    if mutation is None:
        return None
    file = folder / mutation.file
    text = file.read_text()
    if mutation.old not in text:
        return f"{mutation.file} does not hold the line any more: {mutation.old.strip()[:80]}"
    file.write_text(text.replace(mutation.old, mutation.new, 1))
    return None


def tried(mutation: Mutation | None, tests: Sequence[str]) -> tuple[int, str]:
    """How pytest ends over these tests with the break, or without any; and the first test that failed, or its last line."""
    with tempfile.TemporaryDirectory(prefix="scrape-assets-mutation-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if problem := broken_copy(mutation, folder):
            return -1, problem
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    if failed:
        return ended.returncode, failed[0].removeprefix("FAILED ").partition(" - ")[0]
    last = (ended.stdout.strip().splitlines() or [ended.stderr.strip()[-200:]])[-1]
    # An error of a fixture is no test that failed.
    return ended.returncode if ended.returncode != 1 else 3, f"pytest ended with {ended.returncode}: {last}"


def main() -> int:
    """Plants every break, and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="", help="only the breaks whose name contains this")
    parser.add_argument("--list", action="store_true", help="the breaks, without trying them")
    options = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if options.word in mutation.name]
    if options.list:
        print("\n".join(f"{m.name}: {m.file}" for m in chosen))
        return 0
    code, what = tried(None, sorted({test for mutation in chosen for test in mutation.tests}))
    if code:
        print(f"the tests fail without any break, so that they show nothing: {what}")
        return 1
    unnoticed = 0
    for mutation in chosen:
        began = time.monotonic()
        code, what = tried(mutation, mutation.tests)
        found = code == 1
        unnoticed += not found
        print(
            f"{'noticed ' if found else 'UNNOTICED'}  {mutation.name}: {what} ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    print(f"{len(chosen) - unnoticed} of {len(chosen)} breaks were noticed")
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
