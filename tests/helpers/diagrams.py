"""The state diagrams of docs/architecture.md, drawn from rules/states.py.

python -m tests.helpers.diagrams      writes them into the page again
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from scrape_assets.rules import states

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

MACHINES: Mapping[str, Mapping[StrEnum | None, frozenset[StrEnum]]] = {
    "Task": states.TASK_TRANSITIONS,  # type: ignore[dict-item]  # a table of one enum is a table of StrEnum
    "Candidate": states.CANDIDATE_TRANSITIONS,  # type: ignore[dict-item]
    "Dataset candidate": states.DATASET_CANDIDATE_TRANSITIONS,  # type: ignore[dict-item]
    "Delivery": states.DELIVERY_TRANSITIONS,  # type: ignore[dict-item]
}


def diagram(table: Mapping[StrEnum | None, frozenset[StrEnum]]) -> str:
    """One machine as a Mermaid state diagram; terminal states end."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for old, moves in table.items():
        lines += [f"    {old or '[*]'} --> {new}" for new in sorted(moves)]
        if old is not None and not moves:
            lines.append(f"    {old} --> [*]")
    return "\n".join([*lines, "```"])


def section() -> str:
    """All machines, as the page holds them between its markers."""
    return "\n\n".join(f"### {name}\n\n{diagram(table)}" for name, table in MACHINES.items())


def rewritten(page: str) -> str:
    """The page with its diagrams as the code is now."""
    return re.sub(
        r"(<!-- states:begin -->\n).*(<!-- states:end -->)",
        lambda m: f"{m[1]}\n{section()}\n\n{m[2]}",
        page,
        flags=re.S,
    )


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
