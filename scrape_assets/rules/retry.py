"""What happens after a failed attempt, and when: the retry table of the protocol as one function."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import assert_never

from scrape_assets.rules.states import FailureClass, Outcome, TaskState

RETRY_AFTER_CAP_SECONDS = 24 * 3600.0
"""A site may ask for a pause of at most a day; a longer one is clamped, not obeyed for ever."""

RATE_LIMIT_REFUNDS = 3
"""How often a 429 gives the attempt back; from then on it counts (protocol, Task)."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast: the declaration's `retry` block. Seconds."""

    attempts: int = 5
    base_seconds: float = 30.0
    cap_seconds: float = 1800.0


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the task goes, how the attempt is closed, and after how many seconds it is due again."""

    state: TaskState
    outcome: Outcome
    task_class: FailureClass
    delay_seconds: float = 0.0
    refund: bool = False
    pause_origin_seconds: float | None = None


def backoff(attempt: int, policy: RetryPolicy, jitter: float) -> float:
    """Full jitter: `jitter` of [0, 1) times min(cap, base * 2**attempt); never over the cap at any attempt.

    >>> backoff(1, RetryPolicy(base_seconds=30, cap_seconds=1800), 0.5)
    30.0
    >>> backoff(100_000, RetryPolicy(), 1.0)
    1800.0
    """
    # 2**63 already exceeds any cap, and a larger exponent would overflow the float.
    return jitter * min(policy.cap_seconds, policy.base_seconds * 2.0 ** min(attempt, 63))


def retry_after(value: str | None, response_date: str | None, now: datetime) -> float | None:
    """Seconds a `Retry-After` header asks for (RFC 9110, 10.2.3); None when it says nothing usable.

    Delta-seconds or an HTTP date; the date is measured against the response's own `Date` where it has one,
    so that a site's wrong clock does no harm. Of several joined values the largest usable one holds.
    """
    if value is None:
        return None
    found = []
    # A header that came twice is joined by commas; a date has one of its own, behind the day's name.
    for part in re.split(r",(?!\s*[0-9]{1,2}[ -][A-Za-z]{3})", value):
        if re.fullmatch(r"\s*[0-9]+\s*", part):
            found.append(float(part))
        elif (until := http_date(part)) is not None:
            found.append((until - (http_date(response_date) or now)).total_seconds())
    usable = [seconds for seconds in found if seconds > 0]
    return min(max(usable), RETRY_AFTER_CAP_SECONDS) if usable else None


def http_date(text: str | None) -> datetime | None:
    """The moment that an HTTP date names, however sloppily it is written; None when it names none."""
    if not text or not re.search(r"[A-Za-z]{3}", text):
        return None
    try:
        parsed = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def decide(
    failure: FailureClass,
    *,
    attempt: int,
    policy: RetryPolicy,
    max_attempts: int,
    earlier: AbstractSet[FailureClass],
    rate_limited_before: int,
    retry_after_seconds: float | None,
    jitter: float,
    http_status: int | None = None,
) -> Decision:
    """What follows from a failed attempt.

    `attempt` is the task's attempt count with this one included, `earlier` the classes of its failures before,
    `rate_limited_before` how many 429s were refunded already.
    """
    quarantine = Decision(TaskState.QUARANTINED, Outcome.QUARANTINED, failure)
    delay = backoff(attempt, policy, jitter)
    match failure:
        case FailureClass.GONE:
            return Decision(TaskState.GONE, Outcome.GONE, failure)
        case FailureClass.RATE_LIMITED:
            # Never zero: without a usable Retry-After the pause still has a floor of half the backoff.
            pause = retry_after_seconds or max(delay, policy.base_seconds / 2)
            if rate_limited_before < RATE_LIMIT_REFUNDS:
                return Decision(TaskState.PENDING, Outcome.RELEASED, failure, refund=True, pause_origin_seconds=pause)
            if attempt >= max_attempts:
                return Decision(
                    TaskState.QUARANTINED,
                    Outcome.QUARANTINED,
                    FailureClass.RETRIES_EXHAUSTED,
                    pause_origin_seconds=pause,
                )
            return Decision(TaskState.RETRY_WAIT, Outcome.RETRY, failure, pause, pause_origin_seconds=pause)
        case FailureClass.TRANSPORT | FailureClass.TIMEOUT | FailureClass.HTTP_5XX | FailureClass.TRUNCATED:
            retry = True
        case FailureClass.ACCESS_REFUSED | FailureClass.EXTRACTOR_CRASHED:
            # A first one may be chance, the second on the same task is a fact; a 401 says it at once.
            retry = failure not in earlier and http_status != HTTPStatus.UNAUTHORIZED
        case (
            FailureClass.LOGIN
            | FailureClass.CHALLENGE
            | FailureClass.CONSENT
            | FailureClass.WRONG_CONTEXT
            | FailureClass.REDIRECTED
            | FailureClass.HTTP_OTHER
            | FailureClass.TOO_LARGE
            | FailureClass.BAD_ENCODING
            | FailureClass.UNSTORABLE
            | FailureClass.WRONG_TEMPLATE
            | FailureClass.EMPTY_SHELL
            | FailureClass.EXTRACTION
            | FailureClass.VALIDATION
            | FailureClass.ROBOTS
            | FailureClass.LEASE_EXHAUSTED
            | FailureClass.WINDOW_CLOSED
            | FailureClass.RETRIES_EXHAUSTED
        ):
            return quarantine
        case _:
            assert_never(failure)
    if not retry:
        return quarantine
    if attempt >= max_attempts:
        return Decision(TaskState.QUARANTINED, Outcome.QUARANTINED, FailureClass.RETRIES_EXHAUSTED)
    # A 503 may carry Retry-After too: it is honoured for the task, beside the backoff.
    return Decision(TaskState.RETRY_WAIT, Outcome.RETRY, failure, max(delay, retry_after_seconds or 0.0))
