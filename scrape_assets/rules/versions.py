"""Which retailers make the next version of a window, and how its schema may differ from the version before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

Policy = Literal["complete", "available", "at_once"]

DECIDED = ("accepted", "rejected")


class Part(Protocol):
    """One retailer of the run's scope as it stands."""

    @property
    def retailer(self) -> str:
        """Its name."""

    @property
    def generation(self) -> int | None:
        """Its current one, None before it is planned."""

    @property
    def state(self) -> str | None:
        """Its candidate's."""

    @property
    def content_hash(self) -> str | None:
        """Over the rows that were judged."""

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The last judgement."""


class Held(Protocol):
    """What the version that stands holds of one retailer."""

    @property
    def dataset_version(self) -> int:
        """The version that stands."""

    @property
    def rows(self) -> int:
        """How many it holds."""

    @property
    def content_hash(self) -> str:
        """Over those."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The members of the next dataset candidate; or, without any, what it waits for."""

    members: list[dict[str, Any]]
    waiting_for: str = ""


def propose(policy: Policy, parts: Sequence[Part], published: Mapping[str, Held], *, due: bool) -> Proposal:
    """What a version would be made of now.

    `complete`: everybody, once all are decided. `available`: the accepted ones, once all are decided or the window is
    `due`. `at_once`: the accepted ones, whenever there is one. Who is not accepted keeps what was published of it in
    this window, labelled with that version, or is a labelled gap; absence is never a withdrawal.
    """
    undecided = [f"{part.retailer} is {part.state or 'not planned'}" for part in parts if part.state not in DECIDED]
    nobody = not any(part.state == "accepted" for part in parts)
    waits = bool(undecided) and (policy == "complete" or (policy == "available" and not due) or nobody)
    if waits or not parts:
        return Proposal([], ", ".join(undecided) or "it has no retailer")
    return Proposal([_named(part, published.get(part.retailer)) for part in parts])


def _named(part: Part, held: Held | None) -> dict[str, Any]:
    """As a dataset candidate names it: exactly this generation, these rows and this verdict."""
    carried = part.state != "accepted" and held is not None
    return {
        "retailer": part.retailer,
        "generation": part.generation,
        "content_hash": held.content_hash if carried and held else part.content_hash,
        "state": part.state,
        "rows": held.rows if carried and held else (part.verdict or {}).get("rows", 0) if part.state in DECIDED else 0,
        "carried_from_version": held.dataset_version if carried and held else None,
    }


def accepted_members(members: Sequence[Mapping[str, Any]]) -> list[str]:
    """The retailers whose rows a version takes."""
    return [member["retailer"] for member in members if member["state"] == "accepted"]


def row_count(policy: Policy, members: Sequence[Mapping[str, Any]]) -> int:
    """How many rows a version of these members would have; `complete` counts all, since it takes all or nothing."""
    return sum(
        int(member["rows"])
        for member in members
        if policy == "complete" or member["state"] == "accepted" or member["carried_from_version"] is not None
    )


def rows_before(taken: Sequence[str], before: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[int]:
    """How many rows earlier versions had of these retailers; one that lacked any of them says nothing."""
    counted = [sum(int(held[name]["rows"]) for name in taken) for held in before if all(name in held for name in taken)]
    return [rows for rows in counted if rows]


def same_content(members: Sequence[Mapping[str, Any]], published: Sequence[Mapping[str, Any]] | None) -> bool:
    """Whether a version of these members would hold what the published one holds already.

    What is carried is what is published; only accepted rows can be others.
    """
    if published is None:
        return False
    held = {member["retailer"]: member["content_hash"] for member in published if member["state"] == "accepted"}
    return all(
        held.get(member["retailer"]) == member["content_hash"] for member in members if member["state"] == "accepted"
    )


def still_holds(
    members: Sequence[Mapping[str, Any]], judged: Sequence[Mapping[str, Any]], verdict: Mapping[str, Any] | None
) -> bool:
    """Whether a verdict over the `judged` members is one over the members as they are now."""
    return verdict is not None and list(judged) == list(members) and "member_moved" not in verdict


def waits_for_release(
    members: Sequence[Mapping[str, Any]], *, published: Sequence[Mapping[str, Any]] | None, rejected: bool
) -> bool:
    """Whether these members lack a version and were not rejected together."""
    return bool(accepted_members(members)) and not rejected and not same_content(members, published)


def schema_changes(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The columns that the schema has now and had not in the version before; and why the two do not fit together.

    A new column that may be empty is no correction of rows that were published without it. A column that is gone, or
    that holds something else, would make the same row mean another thing within one window.
    """
    if before is None:
        return [], []
    added = sorted(set(now) - set(before))
    wrong = [f"{name} is gone" for name in sorted(set(before) - set(now))]
    wrong += [
        f"{name} is another kind" for name in sorted(set(before) & set(now)) if _kind(before[name]) != _kind(now[name])
    ]
    wrong += [f"{name} is new and may not be empty" for name in added if not _may_be_empty(now[name])]
    return added, wrong


def _kind(column: Any) -> Any:
    return column.get("dtype") if isinstance(column, Mapping) else column


def _may_be_empty(column: Any) -> bool:
    return bool(column.get("nullable")) if isinstance(column, Mapping) else True


def late(by: datetime | None, now: datetime) -> bool:
    """Whether the time at which consumers count on a version has passed."""
    return by is not None and now >= by
