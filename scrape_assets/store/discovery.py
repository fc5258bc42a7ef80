"""What pages name: children under the lock of their partition, in the transaction of the page that names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from scrape_assets.rules import budget, chain
from scrape_assets.rules.budget import Budget
from scrape_assets.store import origins, sql
from scrape_assets.store.postgres import Transaction


@dataclass(frozen=True, slots=True)
class Discovered:
    """What one page named, as its extraction process wrote it down, with what it is admitted under."""

    retailer: str
    children: Sequence[dict[str, Any]]
    next: dict[str, Any] | None
    again: dict[str, Any] | None
    """The first page of the list's next pass, where there is one."""
    problem: str | None
    """Why what it names cannot be all of it."""
    mode: str
    page: str
    barren: int
    max_attempts: int
    open_tasks: int
    budget: Callable[[str], Budget]


def add(tx: Transaction, run_id: str, parent: UUID, found: Discovered) -> None:
    """What the page named is known, its list goes on or has ended, and what there is room for is a task.

    The partition's lock is held, and the page's fence has passed.
    """
    retailer = found.retailer
    sql.execute(tx, "forget_links", run_id=run_id, parent=parent)
    added = _children(tx, run_id, parent, found, found.children)
    if found.problem is not None:
        sql.execute(tx, "set_discovery_problem", parent=parent, problem=found.problem)
    before = None
    if found.next is not None:
        asked = {"run_id": run_id, "child": found.next["task_key"], "parent": parent}
        row = sql.maybe(tx, "named_elsewhere", **asked)
        before = row.canonical_url if row else None
    step = chain.step(
        mode=found.mode,
        has_next=found.next is not None,
        new_items=added,
        barren=found.barren,
        named_before_by=before,
        page=found.page,
    )
    if step.goes_on and found.next is not None:
        _children(tx, run_id, parent, found, [{**found.next, "barren": step.barren}])
    elif step.problem:
        sql.execute(tx, "set_discovery_problem", parent=parent, problem=step.problem)
    elif found.again is not None:
        _children(tx, run_id, parent, found, [found.again])
    admit(tx, run_id, retailer, found.open_tasks)


def _children(tx: Transaction, run_id: str, parent: UUID, found: Discovered, children: Sequence[dict[str, Any]]) -> int:
    """How many of their items no page before it in its list has named."""
    children = _on_few_origins(tx, run_id, found.retailer, parent, children)
    if not children:
        return 0
    text = orjson.dumps(children).decode()
    row = sql.one(tx, "add_children", children=text, parent=parent, max_attempts=found.max_attempts)
    for name in row.origins:
        origins.declare(tx, [name], found.budget(name))
    return int(row.fresh)


def _on_few_origins(
    tx: Transaction, run_id: str, retailer: str, parent: UUID, children: Sequence[dict[str, Any]]
) -> Sequence[dict[str, Any]]:
    """Those on origins that the retailer has pages on, or has room for; that others were left out is a problem."""
    if not children:
        return children
    known = sql.one(tx, "origins_of_partition", run_id=run_id, retailer=retailer).origins
    left_out = budget.beyond(known, (child["origin"] for child in children))
    if not left_out:
        return children
    more = f"it names pages on more than {budget.MAX_ORIGINS} origins"
    problem = f"{more}; those on {min(left_out)} and the like were left out"
    sql.execute(tx, "set_discovery_problem", parent=parent, problem=problem)
    return [child for child in children if child["origin"] not in left_out]


def admit(tx: Transaction, run_id: str, retailer: str, open_tasks: int) -> int:
    """How many pages of the frontier are tasks now; no origin has more open ones than that. The partition is locked."""
    return int(sql.one(tx, "admit", run_id=run_id, retailer=retailer, open=open_tasks).admitted)


def admit_unless_busy(tx: Transaction, run_id: str, retailer: str, open_tasks: int) -> int:
    """The same by whoever has no lock; none while somebody else decides about the partition, who lets them in too."""
    if sql.maybe(tx, "try_lock_partition", run_id=run_id, retailer=retailer) is None:
        return 0
    return admit(tx, run_id, retailer, open_tasks)


def waiting(tx: Transaction, run_id: str) -> list[Any]:
    """What waits for room, by retailer and origin, with how long the oldest has."""
    return sql.many(tx, "frontier_of_run", run_id=run_id)


def addresses(tx: Transaction, run_id: str, retailer: str) -> int:
    """How many different pages that give rows it has, in whatever contexts they are read."""
    return int(sql.one(tx, "count_addresses", run_id=run_id, retailer=retailer).addresses)


def of_retailer(tx: Transaction, run_id: str, retailer: str) -> Any:
    """How far discovery came, and what it came to."""
    return sql.one(tx, "discovery_of_retailer", run_id=run_id, retailer=retailer)
