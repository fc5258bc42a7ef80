"""What extraction gives: rows of named values with the source of each, or the failure that says why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scrape_assets.rules.document import REPLACEMENT, is_storable
from scrape_assets.rules.states import FailureClass

MAX_VALUE_CHARACTERS = 100_000
SNIPPET = 80


@dataclass(frozen=True, slots=True)
class Row:
    """One row's values, ready for JSON and never null, and for each what on the page gave it."""

    values: dict[str, Any]
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """No rows, and why. `evidence`: the page did show that it is the kind of page that was asked for."""

    failure_class: FailureClass
    reason: str
    evidence: bool = True


def snippet(text: str) -> str:
    """At most 80 characters of scraped text on one line, quoted, fit for a message."""
    line = " ".join(text[: SNIPPET * 4].split())
    return repr(line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…")


def checked(row: Row, required: Iterable[str]) -> Row | Failed:
    """The row when all of it can be stored and read.

    A required value with unreadable characters fails the page; an optional one is left out, for it says nothing.
    """
    unreadable: set[str] = set()
    needed = frozenset(required)
    for name, value in row.values.items():
        for text in value if isinstance(value, list) else (value,):
            if not isinstance(text, str):
                continue
            if len(text) > MAX_VALUE_CHARACTERS:
                return Failed(FailureClass.EXTRACTION, f"{name} is {len(text)} characters long: {snippet(text)}")
            if text.isascii() and "\0" not in text:
                continue
            if not is_storable(text):
                return Failed(FailureClass.UNSTORABLE, f"{name} holds a NUL or half a character pair: {snippet(text)}")
            if REPLACEMENT in text:
                unreadable.add(name)
    if lost := sorted(unreadable & needed):
        text = str(row.values[lost[0]])
        return Failed(FailureClass.BAD_ENCODING, f"{lost[0]} holds unreadable characters: {snippet(text)}")
    if not unreadable:
        return row
    return Row(
        {name: value for name, value in row.values.items() if name not in unreadable},
        {name: source for name, source in row.sources.items() if name not in unreadable},
    )
