"""The protocol as a state machine: two workers, a clock that jumps, people who interfere; after every step it holds.

Everything goes through the functions that the product itself uses, on real Postgres. Time is the one thing that is
played: a lease is made to have run out, a waiting task to be due.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from scrape_assets.errors import CandidateRejected, DeclarationError
from scrape_assets.flow import accept, control, plan, publish, recover, run, verify
from scrape_assets.rules import keys, retry
from scrape_assets.rules.recovery import Selection
from scrape_assets.rules.retry import RetryPolicy
from scrape_assets.rules.states import FailureClass, Outcome, TaskState
from scrape_assets.rules.versions import Policy
from scrape_assets.store import commit, discovery, lease, postgres, recovery
from scrape_assets.store.commit import Result
from scrape_assets.store.discovery import Discovered
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool, Transaction
from tests.helpers import make

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
SITE = "http://127.0.0.1:9"
PAGES = 4
WORKERS = ("one", "two")
RETAILERS = ("north", "south", "west")
LISTED = "west"
"""The retailer whose site lists its pages: one list page at first, which names others."""
ROOM = 2
"""How many of its tasks may be open at once; what else is known waits in the frontier."""
FAILURES = (FailureClass.TIMEOUT, FailureClass.RATE_LIMITED, FailureClass.ACCESS_REFUSED, FailureClass.EXTRACTION, FailureClass.GONE)  # fmt: skip

workers = st.sampled_from(WORKERS)
retailers = st.sampled_from(RETAILERS)
picks = st.integers(0, 7)


class Protocol(RuleBasedStateMachine):
    """What may happen to one window of two retailers, in any order."""

    pool: Pool
    empty: Callable[[], None]
    policy: Policy

    def __init__(self) -> None:
        super().__init__()
        self.empty()
        self._folder = tempfile.TemporaryDirectory(prefix="sa-protocol-")
        sites = {name: (SITE, [f"/{name}/{i}" for i in range(PAGES)]) for name in RETAILERS}
        folder = Path(self._folder.name)
        make.dataset(folder, sites, coverage=0.5)
        file = folder / f"datasets/prices/retailers/{LISTED}.yaml"
        links = f"urls: {{links: /{LISTED}/list/0, item: a.item, follow: a.list}}"
        file.write_text(file.read_text().replace(f"urls: {{file: {LISTED}.csv}}", links))
        declared = make.load.dataset(folder, "prices")
        self.dataset = replace(declared, publish=declared.publish.model_copy(update={"when": self.policy}))
        self.held: dict[str, list[tuple[str, Claim]]] = {name: [] for name in WORKERS}
        self.lost: list[tuple[str, Claim]] = []
        """Claims whose answer somebody has already: whatever they bring now, the fence must drop it."""
        self.committed: set[Any] = set()
        self.named: set[Any] = set()
        """Pages that a committed page named: none of them may be lost, whatever happened since."""
        self.versions: dict[int, int] = {}

    def teardown(self) -> None:
        self._folder.cleanup()

    # -- the planner

    @rule(retailer=retailers)
    def plan(self, retailer: str) -> None:
        [planned] = plan.plan(self.pool, self.dataset, WINDOW, now=NOW, retailers=[retailer])
        assert planned.problem is None
        assert retailer == LISTED or planned.planned == PAGES

    # -- two workers

    @rule(worker=workers, retailer=retailers, wanted=st.integers(1, 3))
    def claim(self, worker: str, retailer: str, wanted: int) -> None:
        for work in run.assignments(self.pool, self.dataset, WINDOW, [retailer]) if self._planned() else []:
            with postgres.transaction(self.pool) as tx:
                claims = lease.claim(
                    tx, run_id=RUN, retailer=retailer, origin=SITE, manifest_hash=work.frozen.manifest_hash,
                    worker_id=worker, wanted=wanted, lease_seconds=3600.0, deadline_seconds=7200.0,
                )  # fmt: skip
            assert len(claims) <= wanted
            assert not {c.task_key for c in claims} & self.committed, "a committed page was leased again"
            self.held[worker] += [(retailer, claim) for claim in claims]

    @precondition(lambda self: any(self.held.values()))
    @rule(worker=workers)
    def heartbeat(self, worker: str) -> None:
        mine = [claim.lease for _, claim in self.held[worker]]
        with postgres.transaction(self.pool) as tx:
            kept = lease.heartbeat(tx, mine, 3600.0)
        self.lost += [one for one in self.held[worker] if one[1].attempt_id not in kept]
        self.held[worker] = [one for one in self.held[worker] if one[1].attempt_id in kept]

    @precondition(lambda self: any(self.held.values()))
    @rule(worker=workers, many=st.integers(1, 3), same=st.booleans(), price=st.integers(1, 3), names=st.sets(picks))
    def commit(self, worker: str, many: int, same: bool, price: int, names: set[int]) -> None:
        group = [self.held[worker].pop() for _ in range(min(many, len(self.held[worker])))]
        for retailer in RETAILERS:
            mine = [claim for name, claim in group if name == retailer]
            passed = self._finish(
                [
                    self._names(claim, names) if claim.discovers else _rows(retailer, claim, same=same, price=price)
                    for claim in mine
                ]
            )
            if any(claim.discovers and claim.attempt_id in passed for claim in mine):
                self.named |= {child["task_key"] for child in _children(names)}
            self.committed |= {claim.task_key for claim in mine if claim.attempt_id in passed}
            self.lost += [(retailer, claim) for claim in mine]

    @precondition(lambda self: any(self.held.values()))
    @rule(worker=workers, failure=st.sampled_from(FAILURES))
    def fail(self, worker: str, failure: FailureClass) -> None:
        if self.held[worker]:
            retailer, claim = self.held[worker].pop()
            self._finish([_failure(claim, failure)])
            control.stop_if_refused(self.pool, RUN, retailer)
            self.lost.append((retailer, claim))

    @precondition(lambda self: any(self.held.values()))
    @rule(worker=workers)
    def release_all(self, worker: str) -> None:
        self._finish([_released(claim) for _, claim in self.held[worker]])
        self.lost += self.held[worker]
        self.held[worker] = []

    @precondition(lambda self: any(self.held.values()))
    @rule(worker=workers)
    def die(self, worker: str) -> None:
        self.lost += self.held[worker]
        self.held[worker] = []

    @precondition(lambda self: self.lost)
    @rule(pick=picks, failed=st.booleans())
    def come_back_late(self, pick: int, failed: bool) -> None:
        """A dead worker that still holds the lease may commit; one whose lease is another's, or spent, may not."""
        retailer, claim = self.lost[pick % len(self.lost)]
        with postgres.transaction(self.pool) as tx:
            [task] = tx.execute(
                "select state = 'leased' and attempt_id = %s as mine from scrape.tasks where task_key = %s",
                [claim.attempt_id, claim.task_key],
            ).fetchall()
        passed = self._finish(
            [
                _failure(claim, FailureClass.GONE)
                if failed
                else self._names(claim, set())
                if claim.discovers
                else _rows(retailer, claim, same=False, price=9)
            ]
        )
        assert passed == ({claim.attempt_id} if task.mine else set())
        if task.mine and not failed:
            self.committed.add(claim.task_key)
        self.held = {name: [one for one in held if one[1] != claim] for name, held in self.held.items()}

    # -- time, and what is done when it has passed

    @rule(worker=workers)
    def leases_run_out(self, worker: str) -> None:
        self._play(
            "update scrape.tasks set lease_until = clock_timestamp() - interval '1 minute'"
            " where state = 'leased' and lease_owner = %s",
            worker,
        )

    @rule()
    def waiting_tasks_are_due(self) -> None:
        self._play(
            "update scrape.tasks set next_attempt_at = clock_timestamp() where state in ('pending', 'retry_wait')"
        )
        self._play("update scrape.origins set paused_until = null, pause_reason = null")

    @rule(by=workers)
    def reap(self, by: str) -> None:
        mine = [claim.lease for _, claim in self.held[by]]
        with postgres.transaction(self.pool) as tx:
            lease.reap(tx, by, mine)
        control.step(self.pool)

    @precondition(lambda self: self.named)
    @rule()
    def admit(self) -> None:
        with postgres.transaction(self.pool) as tx:
            discovery.admit(tx, RUN, LISTED, ROOM)

    # -- people

    @precondition(lambda self: self._planned())
    @rule(retailer=retailers, what=st.sampled_from(["pause", "resume", "resume", "resume"]))
    def pause_or_resume(self, retailer: str, what: str) -> None:
        if retailer in self._planned():
            if what == "pause":
                control.pause(self.pool, RUN, [retailer], "by hand")
            else:
                control.resume(self.pool, RUN, [retailer])

    @precondition(lambda self: self._planned())
    @rule(retailer=retailers, sure=st.integers(0, 5))
    def deadline_passes(self, retailer: str, sure: int) -> None:
        if sure == 0:
            self._play("update scrape.run_partitions set deadline_at = clock_timestamp() where retailer = %s", retailer)

    @precondition(lambda self: self._planned())
    @rule(retailer=retailers, pick=picks, everything=st.booleans())
    def repair(self, retailer: str, pick: int, everything: bool) -> None:
        """What had ended is open again under a batch; while anything of it is under way, it is refused."""
        if retailer not in self._planned():
            return
        page = f"{SITE}/{retailer}/{pick % PAGES}"
        wanted = Selection((retailer,), mode="refetch", urls=None if everything else (page,))
        with postgres.transaction(self.pool) as tx:
            leased = recovery.leased(tx, RUN, retailer).leased
        try:
            [begun] = recover.begin(
                self.pool, self.dataset, RUN, wanted, recover.select(self.pool, self.dataset, RUN, wanted)
            )
        except DeclarationError:
            return
        assert not leased
        self.committed -= {task.task_key for task in begun.repair.tasks}

    # -- acceptance and publication

    @rule()
    def judge(self) -> None:
        for retailer in self._planned():
            accept.accept_retailer(self.pool, self.dataset, RUN, retailer)
        accept.accept_dataset(self.pool, self.dataset, RUN)

    @rule()
    def publish(self) -> None:
        try:
            done = publish.publish(self.pool, self.dataset, RUN)
        except CandidateRejected:
            return
        assert self.versions.setdefault(done.dataset_version, done.rows) == done.rows, "a version changed"

    # -- what always holds

    @invariant()
    def every_promise_holds(self) -> None:
        assert {v.name: v.keys for v in verify.verify(self.pool).violations} == {}

    @invariant()
    def what_was_committed_stays(self) -> None:
        with postgres.transaction(self.pool) as tx:
            rows = tx.execute("select task_key from scrape.tasks where state = 'committed'").fetchall()
        assert {row.task_key for row in rows} == self.committed

    @invariant()
    def what_was_named_is_a_task_or_waits(self) -> None:
        with postgres.transaction(self.pool) as tx:
            known = tx.execute("select task_key from scrape.tasks union all select task_key from scrape.frontier")
            keys_ = [str(row.task_key) for row in known.fetchall()]
            judged = tx.execute(
                "select c.retailer from scrape.candidates c"
                " where c.state in ('candidate', 'accepted', 'rejected')"
                "   and exists (select from scrape.frontier f where f.run_id = c.run_id and f.retailer = c.retailer)"
            ).fetchall()
        assert len(keys_) == len(set(keys_))
        assert self.named <= set(keys_)
        assert judged == [], "judged while pages were still waiting"

    def _names(self, claim: Claim, names: set[int]) -> Result:
        """A list page that names these; the commit makes tasks of them as far as there is room."""
        found = Discovered(
            retailer=LISTED, children=_children(names), next=None, again=None, problem=None, mode="links", page=claim.canonical_url,
            barren=0, max_attempts=3, open_tasks=ROOM, budget=self.dataset.budget,
        )  # fmt: skip
        result = _result(claim, TaskState.COMMITTED, Outcome.COMMITTED)
        return replace(result, row_count=0, discovered=found, again=claim.recovery_batch_id is not None)

    def _planned(self) -> list[str]:
        with postgres.transaction(self.pool) as tx:
            rows = tx.execute(
                "select retailer from scrape.run_partitions where planned_at is not null order by 1"
            ).fetchall()
        return [row.retailer for row in rows]

    def _finish(self, results: list[Result]) -> set[Any]:
        if not results:
            return set()
        with postgres.transaction(self.pool) as tx:
            return set(commit.finish(tx, RUN, WINDOW, results, []))

    def _play(self, statement: str, *values: Any) -> None:
        with postgres.transaction(self.pool) as tx:
            tx.execute(statement.encode(), values)


def _result(claim: Claim, state: str, outcome: str) -> Result:
    retailer = claim.url.split("/")[3]
    return Result(claim.lease, SITE, state, outcome, claim.leased_at, make.version(retailer))


def _children(names: set[int]) -> list[dict[str, Any]]:
    """The last two of the eight that may be named are list pages themselves."""
    found = []
    for position, name in enumerate(sorted(names)):
        discovers = name >= 6
        page_type = "links" if discovers else "product"
        url = f"{SITE}/{LISTED}/{page_type}/{name}"
        found.append(
            {
                "task_key": str(keys.task_key("prices", LISTED, "", page_type, url, WINDOW)),
                "page_type": page_type,
                "discovers": discovers,
                "url": url,
                "canonical_url": url,
                "origin": SITE,
                "entity": None,
                "depth": 1,
                "barren": 0,
                "position": position,
                "modified_at": None,
            }
        )
    return found


def _rows(retailer: str, claim: Claim, *, same: bool, price: int) -> Result:
    """One row; pages that are the `same` entity collide with each other."""
    payload = {
        "name": "x",
        "price": str(price),
        "currency": "EUR",
        "availability": "in_stock",
        "url": claim.canonical_url,
    }
    entity = keys.entity_key(retailer, ["same" if same else claim.url])
    row = make.row(entity, payload, WINDOW)
    return replace(
        _result(claim, TaskState.COMMITTED, Outcome.COMMITTED),
        rows=orjson.dumps([row]).decode(),
        row_count=1,
        again=claim.recovery_batch_id is not None,
    )


def _failure(claim: Claim, failure: FailureClass) -> Result:
    decision = retry.decide(
        failure,
        attempt=claim.attempt_count,
        policy=RetryPolicy(3, 30.0, 60.0),
        max_attempts=claim.max_attempts,
        earlier=frozenset(FailureClass(name) for name in claim.earlier_failures),
        rate_limited_before=claim.rate_limited_count,
        retry_after_seconds=None,
        jitter=0.5,
    )
    return replace(
        _result(claim, decision.state, decision.outcome),
        failure_class=failure,
        task_class=decision.task_class,
        delay_seconds=decision.delay_seconds,
        refund=int(decision.refund),
        rate_limited=int(failure is FailureClass.RATE_LIMITED),
        pause_origin_seconds=decision.pause_origin_seconds,
    )


def _released(claim: Claim) -> Result:
    return replace(_result(claim, TaskState.PENDING, Outcome.RELEASED), refund=1)


def _explore(pool: Pool, owner: Transaction, examples: int, steps: int, policy: Policy) -> None:
    def empty() -> None:
        names = owner.execute(
            "select format('%I.%I', schemaname, tablename) from pg_tables"
            " where schemaname = 'scrape' and tablename <> 'migrations'"
        ).fetchall()
        owner.execute(f"truncate {', '.join(row[0] for row in names)}".encode())

    machine = type("Protocol", (Protocol,), {"pool": pool, "empty": staticmethod(empty), "policy": policy})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


@pytest.mark.parametrize("policy", ["complete", "at_once"])
def test_the_protocol_holds_in_any_order_of_events(pool: Pool, owner: Transaction, policy: Policy) -> None:
    _explore(pool, owner, examples=8, steps=30, policy=policy)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("policy", ["complete", "available", "at_once"])
def test_the_protocol_holds_in_many_orders_of_events(pool: Pool, owner: Transaction, policy: Policy) -> None:
    _explore(pool, owner, examples=120, steps=60, policy=policy)
