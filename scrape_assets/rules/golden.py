"""Golden pages: what a recorded page should say beside what it says now, field by field."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from scrape_assets.rules.states import FailureClass, PageState

Rows = Sequence[Mapping[str, Any]]


class Difference(NamedTuple):
    """One thing that is not as it should be. `row` tells rows of one page apart; `source` is what gave the value."""

    row: str
    field: str
    expected: Any
    got: Any
    source: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """What the page says now; `rows` and `sources` go together."""

    page_state: PageState | None
    failure_class: FailureClass | None
    reason: str
    rows: Rows = ()
    sources: Sequence[Mapping[str, str]] = ()


def differences(
    said: Said,
    *,
    page_state: PageState | None,
    failure_class: FailureClass | None,
    rows: Rows | None,
    key: Sequence[str] = (),
    numeric: Collection[str] = (),
    sought: Mapping[str, str] | None = None,
) -> list[Difference]:
    """Everything in which the page differs from what is expected of it; what is None is not asked for.

    `rows` asks for a page without a failure. `numeric` fields are compared as numbers; `sought` says where each
    declared field is looked for.
    """
    found: list[Difference] = []
    if page_state is not None and page_state != said.page_state:
        found.append(Difference("", "page_state", page_state, said.page_state, said.reason or None))
    wanted_failure = failure_class is not None and failure_class != said.failure_class
    if wanted_failure or (rows is not None and said.failure_class is not None):
        found.append(Difference("", "failure_class", failure_class, said.failure_class, said.reason or None))
    elif rows is not None:
        found += _rows(rows, said, key, numeric, sought or {})
    return found


def _rows(
    expected: Rows, said: Said, key: Sequence[str], numeric: Collection[str], sought: Mapping[str, str]
) -> list[Difference]:
    found: list[Difference] = []
    wanted, there = _labels(expected, said.rows, key)
    left = {label: index for index, label in enumerate(there)}
    for label, row in zip(wanted, expected, strict=True):
        index = left.pop(label, None)
        if index is None:
            found.append(Difference(label, "", "a row", None, None))
            continue
        got, sources = said.rows[index], said.sources[index]
        for name, value in row.items():
            if not same(value, got.get(name), numeric=name in numeric):
                source = sources.get(name) if got.get(name) is not None else _lacking(name, sought)
                found.append(Difference(label, name, value, got.get(name), source))
    return [*found, *(Difference(label, "", None, "a row", None) for label in left)]


def _lacking(name: str, sought: Mapping[str, str]) -> str | None:
    if name in sought:
        return f"{sought[name]} found nothing that fits"
    return "it is none of the declared fields" if sought else None


def _labels(expected: Rows, there: Rows, key: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words by which rows are paired and told: their keys, else their order.

    Order as well where no key of one is a key of the other: then it is the key that is read wrongly.
    """
    if max(len(expected), len(there)) > 1:
        wanted, found = ([_key_of(row, key) for row in rows] for rows in (expected, there))
        if all(wanted) and len(set(wanted)) == len(wanted) and set(wanted) & set(found):
            return wanted, found
        return [f"row {n + 1}" for n in range(len(expected))], [f"row {n + 1}" for n in range(len(there))]
    return [""] * len(expected), [""] * len(there)


def _key_of(row: Mapping[str, Any], key: Sequence[str]) -> str:
    parts = [(name, row.get(name)) for name in key]
    return "" if any(value is None for _, value in parts) else ", ".join(f"{name} {value}" for name, value in parts)


def same(expected: Any, got: Any, *, numeric: bool) -> bool:
    """Whether the value is the one that a person wrote down: 19.90 is 19.9 where numbers are meant, as text it is not.

    >>> same("19.90", "19.9", numeric=True), same("007", "7", numeric=False), same(3, "3", numeric=False)
    (True, False, True)
    """
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        return len(expected) == len(got) and all(
            same(one, other, numeric=numeric) for one, other in zip(expected, got, strict=True)
        )
    if isinstance(expected, bool) or isinstance(got, bool) or expected is None or got is None:
        return expected is got
    if numeric or isinstance(expected, int | float) or isinstance(got, int | float):
        one, other = _number(expected), _number(got)
        if one is not None and other is not None:
            return one == other
    if isinstance(expected, str) and isinstance(got, str):
        return unicodedata.normalize("NFC", expected) == unicodedata.normalize("NFC", got)
    return bool(expected == got)


def _number(value: Any) -> Decimal | None:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
