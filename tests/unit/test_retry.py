"""What follows from a failed attempt."""

from __future__ import annotations

from typing import Any

import pytest

from scrape_assets.rules.retry import Decision, RetryPolicy, decide
from scrape_assets.rules.states import FailureClass, TaskState


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
