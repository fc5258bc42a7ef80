"""Whether a candidate is accepted: every rule with what was expected, what was got, and a few rows to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warn"]

SAMPLES = 3
"""Rows shown per failed rule; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Check:
    """One rule's judgement. `samples` are rows that break it: url, entity_key, field and value."""

    rule: str
    passed: bool
    expected: str
    got: str
    severity: Severity = "error"
    samples: list[dict[str, Any]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """The check as plain JSON."""
        return asdict(self)


def accepted(checks: Sequence[Check]) -> bool:
    """No rule of severity error failed."""
    return all(check.passed or check.severity == "warn" for check in checks)


def still_holds(
    named: Sequence[dict[str, Any]], judged: Sequence[dict[str, Any]], verdict: dict[str, Any] | None
) -> bool:
    """Whether a verdict over the `judged` members is one over the members as they are `named` now."""
    return verdict is not None and judged == named and "member_moved" not in verdict


def waits_for_release(
    named: Sequence[dict[str, Any]], *, published: Sequence[dict[str, Any]] | None, rejected: bool
) -> bool:
    """Whether accepted members, as `named`, lack a version of exactly them and were not rejected together."""
    return not rejected and published != named


def coverage(*, planned: int, committed: int, gone: int, at_least: float) -> Check:
    """Committed over planned less gone: logical tasks, never attempts. Nothing planned or obtainable is no coverage."""
    obtainable = planned - gone
    share = committed / obtainable if obtainable > 0 else 0.0
    return Check(
        "coverage",
        share >= at_least,
        f"at least {at_least:.2%} of the obtainable tasks committed",
        f"{share:.2%}: {committed} of {obtainable} ({planned} planned, {gone} gone)",
    )


def not_empty(rows: int) -> Check:
    """At least one row: an empty frame passes every column rule, so it needs a rule of its own."""
    return Check("not_empty", rows > 0, "at least one row", f"{rows} rows")


def collisions(count: int) -> Check:
    """Rows that disagree about one entity are worth a look: the newer page was kept, or the page's first row."""
    return Check(
        "collisions", count == 0, "one set of values for each entity", f"{count} that contradict it", severity="warn"
    )


def unique_entities(doubled: int) -> Check:
    """One valid row per entity and context over the whole dataset."""
    return Check("unique_entities", doubled == 0, "one row per entity and context", f"{doubled} entities with more")


def members_accepted(states: dict[str, str | None]) -> Check:
    """Policy `complete`: every retailer of the run's scope is accepted."""
    missing = sorted(name for name, state in states.items() if state != "accepted")
    return Check(
        "members_accepted",
        not missing,
        f"all {len(states)} retailers accepted",
        "all accepted" if not missing else ", ".join(f"{name}: {states[name] or 'not planned'}" for name in missing),
        samples=[{"retailer": name, "state": states[name] or "not planned"} for name in missing[:SAMPLES]],
    )


def samples(checks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that broke the failed checks of a stored verdict, each with its rule."""
    return [{"rule": check["rule"], **sample} for check in _failed(checks) for sample in check["samples"]]


def reasons(checks: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each failed check of a stored verdict."""
    return [f"{check['rule']}: expected {check['expected']}, got {check['got']}" for check in _failed(checks)]


def _failed(checks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [check for check in checks if not check["passed"] and check["severity"] == "error"]
