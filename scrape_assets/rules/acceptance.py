"""Whether a candidate is accepted: every rule with what was expected, what was got, and a few rows to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Severity = Literal["error", "warn"]
Held = Literal["", "warm_up", "dry_run", "waived"]
"""Why a failed rule does not stop the candidate: the retailer is new, the gate rehearses, somebody answers for it."""

SAMPLES = 3
"""Rows shown per failed rule; the rest is counted."""

GONE_FACTOR, GONE_FLOOR, GONE_PAGES = 3.0, 0.05, 3
"""A share of gone pages is far above the band at three times its median, never below one in twenty or for so few."""

SHORT = 12
"""Characters that tell stored bytes apart for a reader; `why` has all of them."""

ALWAYS_GATE = frozenset({"not_empty"})
"""Rules that a dry run leaves alone: nothing at all is no dataset."""

NEVER_WAIVED = frozenset({"members_accepted", "schema_versions", "unique_entities"})
"""Rules that keep the versions of one window together; nobody can answer for breaking them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The acceptance rule of one retailer with nothing left to default; shares are 0 to 1, times seconds."""

    coverage: float
    required: tuple[str, ...]
    fill: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    unique: tuple[str, ...] = ()
    drift_rows: float = 0.05
    drift_moved: float = 0.3
    drift_over: int = 7
    warm_up: int = 3
    gone: float | None = None
    page_states: Mapping[str, float] = field(default_factory=dict)
    template: float = 0.1
    source_age_seconds: float | None = None
    canary: int = 0
    dry_run: bool = False
    keep_unverified: bool = True


@dataclass(frozen=True, slots=True)
class Check:
    """One rule's judgement. `samples` are rows that break it: url, entity_key, field, value, artifact.

    `pages` are the addresses of all pages whose rows break it, for a repair of just those.
    """

    rule: str
    passed: bool
    expected: str
    got: str
    severity: Severity = "error"
    samples: list[dict[str, Any]] = field(default_factory=list)
    held: Held = ""
    pages: frozenset[str] = frozenset()

    def record(self) -> dict[str, Any]:
        """The check as plain JSON; the pages are found again by judging again."""
        return {name: value for name, value in asdict(self).items() if name != "pages"}


def accepted(checks: Sequence[Check]) -> bool:
    """No rule of severity error failed that nothing holds back."""
    return all(check.passed or check.severity == "warn" or check.held for check in checks)


def settled(checks: Sequence[Check], *, dry_run: bool, waived: frozenset[str]) -> list[Check]:
    """The checks as they count: failed ones that somebody answers for, or that a dry run only reports, are held."""

    def held(check: Check) -> Held:
        if check.passed or check.severity == "warn" or check.held:
            return check.held
        if check.rule in waived and check.rule not in NEVER_WAIVED:
            return "waived"
        return "dry_run" if dry_run and check.rule not in ALWAYS_GATE | NEVER_WAIVED else ""

    return [replace(check, held=held(check)) for check in checks]


def coverage(*, planned: int, committed: int, gone: int, at_least: float, undiscovered: int | None = None) -> Check:
    """Committed over planned less gone: logical tasks, never attempts. Nothing planned or obtainable is no coverage.

    What is missing because it failed, because it is gone, and because nobody planned it any more are three numbers.
    """
    obtainable = planned - gone
    share = committed / obtainable if obtainable > 0 else 0.0
    never = "" if undiscovered is None else f", {undiscovered} of the last window not discovered"
    return Check(
        "coverage",
        share >= at_least,
        f"at least {at_least:.2%} of the obtainable tasks committed",
        f"{share:.2%}: {committed} of {obtainable} ({planned} planned, {gone} gone, "
        f"{obtainable - committed} failed{never})",
    )


def gone(*, planned: int, gone: int, limit: float | None, before: Sequence[float], warm_up: int = 0) -> Check:
    """Pages that the source says are no more: beyond the declared share, or far above what it was, something broke."""
    share = gone / planned if planned else 0.0
    allowed = limit
    said = "the declared share"
    if allowed is None and before:
        middle = sorted(before)[len(before) // 2]
        allowed, said = max(GONE_FLOOR, GONE_FACTOR * middle), f"{middle:.2%} in the last accepted windows"
    if allowed is None:
        expected = "no more pages gone than declared, or than in the last accepted windows"
        return Check("gone", True, expected, f"{share:.2%}, and no accepted window to compare with")
    passed = share <= allowed or (limit is None and gone <= GONE_PAGES)
    return Check(
        "gone",
        passed,
        f"at most {allowed:.2%} gone ({said})",
        f"{share:.2%}: {gone} of {planned}",
        held="warm_up" if not passed and limit is None and len(before) < warm_up else "",
    )


def page_states(states: Mapping[str, int], limits: Mapping[str, float]) -> Check:
    """What the pages turned out to be, against the declared shares."""
    total = sum(states.values())
    shares = {state: count / total for state, count in states.items()}
    over = {name: shares[name] for name, limit in limits.items() if shares.get(name, 0.0) > limit}
    seen = ", ".join(f"{name} {share:.1%}" for name, share in shares.items() if name not in ("expected", "unchanged"))
    declared = ", ".join(f"{name} at most {limit:.1%}" for name, limit in sorted(limits.items()))
    return Check(
        "page_states", not over, declared or "no more unexpected pages than declared", seen or "only expected pages"
    )


def canary(state: str, pages: int) -> Check:
    """The first pages were good enough to ask for the rest, or nobody wanted to know."""
    return Check(
        "canary",
        state != "failed",
        "a canary that passed, where there is one",
        f"{state} ({pages} pages)" if pages else state,
    )


def discovery(
    *, pages: int, read: int, problem: str | None, unseen: float | None, items: int, at_least: float
) -> Check:
    """Every page that names others was read and ended well; of a list walked twice, hardly anything was unseen.

    `unseen` is how many items such a list has beyond those that were named, by an estimate.
    """
    share = 0.0 if not unseen else unseen / (items + unseen)
    said = [f"{read} of {pages} pages that name others were read"]
    said += [problem] if problem else []
    said += [] if unseen is None else [f"two passes leave {unseen:.0f} of {items + unseen:.0f} unseen, as estimated"]
    return Check(
        "discovery",
        read == pages and problem is None and share <= 1 - at_least,
        "every page that names others read to the end of its list",
        "; ".join(said),
    )


def expected(items: int, ends: tuple[int, int]) -> Check:
    """As many items as the declaration expects: half a sitemap is complete in its own eyes."""
    return Check("expect", ends[0] <= items <= ends[1], f"{ends[0]:,} to {ends[1]:,} items", f"{items:,}")


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


def members_accepted(states: Mapping[str, str | None], *, all_of_them: bool = True) -> Check:
    """Every retailer of the run's scope is accepted; under other policies at least one, and the rest is labelled."""
    missing = sorted(name for name, state in states.items() if state != "accepted")
    passed = not missing if all_of_them else len(missing) < len(states)
    told = ", ".join(f"{name}: {states[name] or 'not planned'}" for name in missing)
    return Check(
        "members_accepted",
        passed,
        f"all {len(states)} retailers accepted" if all_of_them else "at least one retailer accepted",
        told or "all accepted",
        samples=[{"retailer": name, "state": states[name] or "not planned"} for name in missing[:SAMPLES]],
    )


def schema_versions(misfits: Sequence[str], version: int | None) -> Check:
    """A correction has the columns of what it corrects, and perhaps more."""
    return Check(
        "schema_versions",
        not misfits,
        "a schema that fits the version before",
        f"since version {version}: {', '.join(misfits)}. Put the schema back to correct this window; the new one "
        "begins with the next window"
        if misfits
        else "it fits",
    )


def dataset_rows(rows: int, before: Sequence[int], limit: float, warm_up: int) -> Check:
    """As many rows as the last published windows had, within the limit."""
    rule = "dataset_rows"
    if not before:
        expected = f"as many rows as the last published windows had, within {limit:.0%}"
        return Check(rule, True, expected, f"{rows} rows, and no published window to compare with")
    middle = sorted(before)[len(before) // 2]
    low, high = middle * (1 - limit), middle * (1 + limit)
    return Check(
        rule,
        low <= rows <= high,
        f"{low:.0f} to {high:.0f} rows, {limit:.0%} around the median of the last {len(before)} published windows",
        f"{rows} rows",
        held="warm_up" if len(before) < warm_up and not low <= rows <= high else "",
    )


def samples(checks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows that broke the failed checks of a stored verdict, each with its rule."""
    return [{"rule": check["rule"], **sample} for check in failing(checks) for sample in check["samples"]]


def reasons(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each failed check of a stored verdict that stopped the candidate."""
    return [f"{check['rule']}: expected {check['expected']}, got {check['got']}" for check in failing(checks)]


HELD_WORDS = {
    "warm_up": "does not gate while the retailer is new",
    "dry_run": "would have blocked (dry run)",
    "waived": "waived",
}


def held_back(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each failed check that did not stop the candidate, and why it did not."""
    return [
        f"{check['rule']} {HELD_WORDS[check['held']]}: expected {check['expected']}, got {check['got']}"
        for check in checks
        if not check["passed"] and check.get("held")
    ]


def in_words(sample: Mapping[str, Any]) -> str:
    """A row that breaks a rule, in one line: its page, what it says, what it said before; the bytes by their beginning.

    >>> in_words({"rule": "drift:moved", "url": "https://x/1", "field": "price", "value": "9", "before": "7"})
    "drift:moved https://x/1 price = '9', before '7'"
    """
    value = f"{sample['field']} = {sample['value']!r}" if sample.get("field") else ""
    before = f", before {sample['before']!r}" if sample.get("before") is not None else ""
    page = f"(page {str(sample['artifact'])[:SHORT]})" if sample.get("artifact") else ""
    where = str(sample.get("url") or sample.get("retailer") or "")
    return " ".join(filter(None, (sample.get("rule"), where, value + before, page)))


def in_number(held: int) -> str:
    """What a version says of the rules that failed and did not stop it; nothing where there are none."""
    if not held:
        return ""
    return f"{held} {'rules failed and were' if held != 1 else 'rule failed and was'} held back"


def drift_unjudged(verdict: Mapping[str, Any] | None) -> str:
    """What a stored verdict does not say of drift yet, in words; nothing once there were enough windows."""
    beside = ((verdict or {}).get("figures") or {}).get("beside")
    if verdict is None or beside is None:
        return ""
    there, wanted = len(beside["windows"]), int(verdict["rules"]["warm_up"])
    if there >= wanted:
        return ""
    alone = "; values are compared with the version of this window alone" if beside["kind"] == "version" else ""
    return f"drift is not judged yet: {there} of {wanted} accepted windows{alone}"


def failing(checks: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The checks of a stored verdict that stopped the candidate."""
    return [check for check in checks if not check["passed"] and check["severity"] == "error" and not check.get("held")]
