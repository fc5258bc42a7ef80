"""What follows from a failed attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from scrape_assets.rules.retry import RATE_LIMIT_REFUNDS, Decision, RetryPolicy, decide, retry_after
from scrape_assets.rules.states import FailureClass, Outcome, TaskState


def decided(failure: FailureClass, **given: Any) -> Decision:
    usual: dict[str, Any] = {
        "attempt": 1,
        "policy": RetryPolicy(base_seconds=30, cap_seconds=600),
        "max_attempts": 4,
        "earlier": frozenset(),
        "rate_limited_before": 0,
        "retry_after_seconds": None,
        "jitter": 0.5,
    }
    return decide(failure, **(usual | given))


@pytest.mark.parametrize(
    ("status", "earlier", "state"),
    [
        (401, set(), TaskState.QUARANTINED),
        (403, set(), TaskState.RETRY_WAIT),
        (403, {FailureClass.TIMEOUT}, TaskState.RETRY_WAIT),
        (403, {FailureClass.ACCESS_REFUSED}, TaskState.QUARANTINED),
        (403, {FailureClass.ACCESS_REFUSED, FailureClass.TIMEOUT}, TaskState.QUARANTINED),
    ],
)
def test_a_401_is_a_refusal_at_once_and_a_403_when_it_persists(
    status: int, earlier: set[FailureClass], state: TaskState
) -> None:
    assert decided(FailureClass.ACCESS_REFUSED, http_status=status, earlier=earlier).state is state


@pytest.mark.parametrize(
    "failure", [FailureClass.TRANSPORT, FailureClass.TIMEOUT, FailureClass.HTTP_5XX, FailureClass.TRUNCATED]
)
def test_what_may_pass_is_tried_again_until_the_attempts_are_used_up(failure: FailureClass) -> None:
    again = decided(failure, attempt=3)
    assert again.state is TaskState.RETRY_WAIT
    assert again.delay_seconds > 0
    last = decided(failure, attempt=4)
    assert (last.state, last.task_class) == (TaskState.QUARANTINED, FailureClass.RETRIES_EXHAUSTED)


@pytest.mark.parametrize(
    "failure",
    [
        FailureClass.TOO_LARGE,
        FailureClass.BAD_ENCODING,
        FailureClass.HTTP_OTHER,
        FailureClass.REDIRECTED,
        FailureClass.UNSTORABLE,
        FailureClass.EMPTY_SHELL,
        FailureClass.EXTRACTION,
        FailureClass.WRONG_TEMPLATE,
    ],
)
def test_what_another_try_cannot_change_is_quarantined_at_once(failure: FailureClass) -> None:
    assert decided(failure).state is TaskState.QUARANTINED


# BC031
@pytest.mark.parametrize("attempt", [5, 62, 63, 64, 1023, 1024, 1025, 100_000])
def test_however_many_attempts_there_were_the_wait_is_the_cap_with_its_jitter(attempt: int) -> None:
    waits = [
        decided(FailureClass.TIMEOUT, attempt=attempt, max_attempts=attempt + 1, jitter=jitter).delay_seconds
        for jitter in (0.0, 0.5, 1.0)
    ]
    assert waits == sorted(waits)
    assert waits[-1] == 600.0
    assert waits[1] == (waits[0] + waits[2]) / 2


def test_a_429_waits_as_long_as_the_site_says_and_costs_no_attempt() -> None:
    decision = decided(FailureClass.RATE_LIMITED, retry_after_seconds=120.0)
    assert (decision.state, decision.outcome) == (TaskState.PENDING, Outcome.RELEASED)
    assert decision.refund
    assert decision.pause_origin_seconds == 120.0


# BC029
def test_a_429_that_names_no_time_pauses_for_half_the_base_at_least() -> None:
    decision = decided(FailureClass.RATE_LIMITED, jitter=0.0)
    assert decision.state is TaskState.PENDING
    assert decision.pause_origin_seconds == 15.0


def test_the_last_attempt_is_refunded_too_while_refunds_are_left() -> None:
    decision = decided(FailureClass.RATE_LIMITED, attempt=4, rate_limited_before=RATE_LIMIT_REFUNDS - 1)
    assert (decision.state, decision.refund) == (TaskState.PENDING, True)


@pytest.mark.parametrize("wait", [None, 90.0])
def test_a_429_after_the_refunds_counts_as_an_attempt_and_pauses_all_the_same(wait: float | None) -> None:
    given: dict[str, Any] = {"rate_limited_before": RATE_LIMIT_REFUNDS, "retry_after_seconds": wait}
    again = decided(FailureClass.RATE_LIMITED, attempt=3, **given)
    assert (again.state, again.outcome, again.refund) == (TaskState.RETRY_WAIT, Outcome.RETRY, False)
    # The backoff of attempt 3 at jitter 0.5, or the site's own word.
    assert again.pause_origin_seconds == again.delay_seconds == (wait or 120.0)
    last = decided(FailureClass.RATE_LIMITED, attempt=4, **given)
    assert (last.state, last.task_class) == (TaskState.QUARANTINED, FailureClass.RETRIES_EXHAUSTED)
    assert not last.refund
    assert last.pause_origin_seconds == (wait or 240.0)


@pytest.mark.parametrize(("wait", "delay"), [(120.0, 120.0), (5.0, 30.0), (None, 30.0)])
def test_a_503_is_tried_again_no_sooner_than_it_asked_and_than_our_own_backoff(
    wait: float | None, delay: float
) -> None:
    decision = decided(FailureClass.HTTP_5XX, retry_after_seconds=wait)
    assert decision.state is TaskState.RETRY_WAIT
    assert decision.delay_seconds == delay
    assert decision.pause_origin_seconds is None


DATE = "Mon, 30 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Mon, 30 Nov 2026 12:02:00 GMT", 120.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT, 90", 90.0),
        ("90, Mon, 30 Nov 2026 11:00:00 GMT", 90.0),
        ("Mon, 30 Nov 2026 12:01:00 GMT, Mon, 30 Nov 2026 12:05:00 GMT", 300.0),
        ("Monday, 30-Nov-26 12:05:00 GMT, 10", 300.0),
        ("10,20", 20.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", None),
        ("soon, later", None),
    ],
)
def test_of_several_retry_after_values_the_longest_that_can_be_used_holds(value: str, seconds: float | None) -> None:
    assert retry_after(value, DATE, datetime(2026, 1, 1, tzinfo=UTC)) == seconds
