"""The named queries of `sql/queries/`, each with the shape of its answer and the state moves it makes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from psycopg import Connection, Cursor

from scrape_assets import packaged

Shape = Literal["one", "maybe", "many", "none", "copy"]


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """One statement of `sql/queries/`: `-- name: claim :many`, its `-- transition:` lines, its words, its text."""

    name: str
    shape: Shape
    transitions: tuple[tuple[str, str, str], ...]
    description: str
    text: str
    file: str


@cache
def queries() -> dict[str, NamedQuery]:
    """Every named query by its name; a name given twice is an error."""
    found: dict[str, NamedQuery] = {}
    for file in sorted(packaged.path("sql").joinpath("queries").glob("*.sql")):
        for block in re.split(r"(?m)^(?=-- name: )", file.read_text())[1:]:
            head = re.match(r"-- name: (\w+) :(one|maybe|many|none|copy)\n", block)
            if head is None or head[1] in found:
                raise ValueError(f"{file}: expected a new '-- name: NAME :SHAPE', got {block.splitlines()[0]!r}")
            comments = re.findall(r"(?m)^-- (.*)$", block)[1:]
            moves = [re.fullmatch(r"transition: (\w+) (\S+) -> (\w+)", line) for line in comments]
            found[head[1]] = NamedQuery(
                name=head[1],
                shape=head[2],  # type: ignore[arg-type]  # the pattern allows these words only
                transitions=tuple((m[1], m[2], m[3]) for m in moves if m),
                description=" ".join(line for line, m in zip(comments, moves, strict=True) if not m),
                text=re.sub(r"(?m)^--.*\n?", "", block).strip().rstrip(";"),
                file=file.name,
            )
    return found


def execute(tx: Connection[Any], name: str, **parameters: Any) -> Cursor[Any]:
    """The named query, executed in the caller's transaction."""
    return tx.execute(queries()[name].text.encode(), parameters)


def one(tx: Connection[Any], name: str, **parameters: Any) -> Any:
    """The one row of a query that always has one."""
    row = execute(tx, name, **parameters).fetchone()
    if row is None:
        raise LookupError(f"query {name} gave no row for {parameters}")
    return row


def maybe(tx: Connection[Any], name: str, **parameters: Any) -> Any | None:
    """The row, or None."""
    return execute(tx, name, **parameters).fetchone()


def many(tx: Connection[Any], name: str, **parameters: Any) -> list[Any]:
    """All rows."""
    return execute(tx, name, **parameters).fetchall()
