"""Every named query compiles, is used, and declares moves that the state machines know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scrape_assets.rules import states
from scrape_assets.store import embedded, postgres, sql
from scrape_assets.store.postgres import Transaction

PACKAGE = Path(__file__).parents[2] / "scrape_assets"
MACHINES: Mapping[str, Mapping[object, frozenset[object]]] = {
    "task": states.TASK_TRANSITIONS,
    "candidate": states.CANDIDATE_TRANSITIONS,
    "dataset_candidate": states.DATASET_CANDIDATE_TRANSITIONS,
    "delivery": states.DELIVERY_TRANSITIONS,
}


@pytest.fixture(scope="module")
def connection(server: embedded.Server) -> Iterator[Transaction]:
    """One migrated database for all queries: compiling changes nothing."""
    owner_url = postgres.create_database(server.owner_url, "compiled")
    postgres.migrate(owner_url)
    with postgres.connect(owner_url) as connection:
        yield connection
    postgres.drop_database(server.owner_url, "compiled")


@pytest.fixture
def tx(connection: Transaction) -> Iterator[Transaction]:
    yield connection
    connection.rollback()


def _numbered(text: str) -> str:
    """psycopg's %(name)s as $1, $2, ... so that Postgres can plan it without values."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return re.sub(r"%\((\w+)\)s", number, text)


@pytest.mark.parametrize("name", sorted(sql.queries()))
def test_a_named_query_compiles(tx: Transaction, name: str) -> None:
    query = sql.queries()[name]
    text = query.text
    if query.shape == "copy":
        inner = re.search(r"copy \(\n(.*)\n\) to stdout", text, re.S)
        if inner is None:
            table, columns = re.fullmatch(r"copy (\S+) \((.*)\) from stdin", text, re.S).groups()
            text = f"select {columns} from {table}"
        else:
            text = inner[1]
    if name in ("copy_planned_lines", "insert_tasks"):
        tx.execute(sql.queries()["create_planned_lines"].text)
    if name == "create_planned_lines":
        tx.execute(text)
        return
    tx.execute(f"explain (generic_plan) {_numbered(text)}")


def test_a_query_with_a_wrong_column_does_not_compile(tx: Transaction) -> None:
    with pytest.raises(Exception, match="does not exist"):
        tx.execute("explain (generic_plan) select lease_untl from scrape.tasks where run_id = $1")


def test_every_query_is_used_and_every_used_name_exists() -> None:
    code = "\n".join(p.read_text() for p in PACKAGE.rglob("*.py"))
    used = set(re.findall(r'(?:execute|one|maybe|many)\(\s*tx,\s*"(\w+)"', code))
    used |= set(re.findall(r'queries\(\)\["(\w+)"\]', code))
    known = {name for name in sql.queries() if not name.startswith("invariant_")}
    assert used == known


def test_queries_and_state_machines_declare_the_same_moves() -> None:
    in_sql: dict[str, set[tuple[str, str]]] = {machine: set() for machine in MACHINES}
    for query in sql.queries().values():
        for machine, old, new in query.transitions:
            in_sql[machine].add((old, new))
    in_rules = {
        machine: {(str(old or "-"), str(new)) for old, moves in table.items() for new in moves}
        for machine, table in MACHINES.items()
    }
    assert in_sql == in_rules


@pytest.mark.parametrize(
    ("constraint", "enum"),
    [
        ("task_state_known", states.TaskState),
        ("candidate_state_known", states.CandidateState),
        ("dataset_candidate_state_known", states.DatasetCandidateState),
        ("delivery_state_known", states.DeliveryState),
    ],
)
def test_the_database_knows_the_same_states(tx: Transaction, constraint: str, enum: type[states.TaskState]) -> None:
    row = tx.execute(
        "select pg_get_constraintdef(oid) as text from pg_constraint where conname = %s", (constraint,)
    ).fetchone()
    assert set(re.findall(r"'(\w+)'", row.text)) == {str(state) for state in enum}
