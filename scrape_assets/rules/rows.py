"""From a page's rows to observations: each row gets its keys and hash, and rows of one key become one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scrape_assets.rules import keys
from scrape_assets.rules.document import is_storable
from scrape_assets.rules.row import Row
from scrape_assets.rules.states import FailureClass

Duplicates = Literal["first", "last", "refuse"]

MAX_DEPTH = 32
"""Lists and objects inside one value; deeper ones are no facts about a product."""
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page's rows belong: its dataset, retailer, context and window, and the task's own identity."""

    dataset_id: str
    retailer: str
    context: str
    collection_window: str
    canonical_url: str
    entity: str | None = None


@dataclass(frozen=True, slots=True)
class Identified:
    """The observations of one page as the database reads them, and how many contradicting rows were dropped."""

    rows: tuple[dict[str, Any], ...]
    collisions: int = 0


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why none of the page's rows may be stored."""

    failure_class: FailureClass
    reason: str


def identify(rows: Sequence[Row], place: Place, *, key: Sequence[str], duplicates: Duplicates) -> Identified | RowFault:
    """One observation per key, in the page's order; equal rows merge, contradicting ones follow `duplicates`.

    Without a declared key the entity is the task's own, else the page's canonical URL.
    """
    found: dict[str, dict[str, Any]] = {}
    collisions = 0
    for number, row in enumerate(rows, 1):
        for name, value in row.values.items():
            if objection := unstorable(name) or unstorable(value):
                return RowFault(FailureClass.UNSTORABLE, f"row {number}, field {name!a:.80}: {objection}")
        parts = [_key_part(row.values.get(name)) for name in key] if key else [place.entity or place.canonical_url]
        missing = next((name for name, part in zip(key, parts, strict=False) if part is None), None)
        if missing is not None:
            return RowFault(
                FailureClass.EXTRACTION,
                f"row {number}: key field {missing!r} is missing or empty; the key is {', '.join(key)}",
            )
        entity = keys.entity_key(place.retailer, [part for part in parts if part is not None])
        identity = str(keys.observation_key(place.dataset_id, entity, place.context, place.collection_window))
        observation = {
            "observation_key": identity,
            "entity_key": entity,
            "payload": row.values,
            "payload_hash": keys.payload_hash(row.values),
            "sources": row.sources,
        }
        other = found.get(identity)
        if other is None or other["payload_hash"] == observation["payload_hash"]:
            found.setdefault(identity, observation)
            continue
        collisions += 1
        match duplicates:
            case "refuse":
                return RowFault(FailureClass.EXTRACTION, _contradiction(entity, other["payload"], row.values, key))
            case "last":
                found[identity] = observation
            case "first":
                pass
    return Identified(tuple(found.values()), collisions)


def unstorable(value: Any, depth: int = 0) -> str | None:
    """Why the database would refuse the value; None when it can be stored as it is."""
    why: str | None = None
    match value:
        case None | bool():
            pass
        case str():
            why = None if is_storable(value) else "the text holds a NUL or half a character pair"
        case int():
            why = None if value in _INT64 else "the whole number needs more than 64 bits"
        case float():
            why = None if math.isfinite(value) else f"the number is {value}"
        case Mapping() | list() | tuple():
            why = _unstorable_inside(value, depth + 1)
        case _:
            why = f"a value of type {type(value).__name__} is none of JSON's"
    return why


def _unstorable_inside(value: Mapping[Any, Any] | Sequence[Any], depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"the value is nested over {MAX_DEPTH} levels deep"
    if not isinstance(value, Mapping):
        return next((why for one in value if (why := unstorable(one, depth))), None)
    if not all(isinstance(name, str) for name in value):
        return "an object's names must be text"
    return next((why for one in (*value, *value.values()) if (why := unstorable(one, depth))), None)


def _key_part(value: Any) -> str | None:
    """The value as a part of a key; None when it says nothing or is no single value."""
    if isinstance(value, str):
        return value if value.strip() else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _contradiction(entity: str, one: Mapping[str, Any], two: Mapping[str, Any], key: Sequence[str]) -> str:
    name = next(name for name in [*one, *two] if one.get(name) != two.get(name))
    advice = "declare `duplicates: first` or `last`" if key else "declare a `key` that tells them apart"
    return (
        f"two rows of {entity[:200]} contradict each other in {name!r}: "
        f"{one.get(name)!r:.80} and {two.get(name)!r:.80}; {advice}"
    )
