"""The four state machines and the vocabulary around them: every state, every legal move, in one place.

`sql/` declares each statement's moves in a `-- transition:` line, a test holds them against these tables,
and `docs/architecture.md` draws its diagrams from them. Three machines have a state of the same name, and
StrEnum members of equal text hash alike, so each machine keeps a table of its own.
"""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """One page in one window: what is known of it durably."""

    PENDING = "pending"
    LEASED = "leased"
    RETRY_WAIT = "retry_wait"
    COMMITTED = "committed"
    QUARANTINED = "quarantined"
    GONE = "gone"


TASK_TRANSITIONS: dict[TaskState | None, frozenset[TaskState]] = {
    None: frozenset({TaskState.PENDING}),
    TaskState.PENDING: frozenset({TaskState.LEASED, TaskState.QUARANTINED, TaskState.PENDING}),
    TaskState.RETRY_WAIT: frozenset({TaskState.LEASED, TaskState.QUARANTINED, TaskState.PENDING}),
    TaskState.LEASED: frozenset(
        {
            TaskState.LEASED,
            TaskState.PENDING,
            TaskState.RETRY_WAIT,
            TaskState.COMMITTED,
            TaskState.QUARANTINED,
            TaskState.GONE,
        }
    ),
    # Back to pending by a recovery batch alone.
    TaskState.COMMITTED: frozenset({TaskState.PENDING}),
    TaskState.QUARANTINED: frozenset({TaskState.PENDING}),
    TaskState.GONE: frozenset({TaskState.PENDING}),
}

OPEN_TASK_STATES = (TaskState.PENDING, TaskState.RETRY_WAIT, TaskState.LEASED)


class CandidateState(StrEnum):
    """One retailer's rows of one run and generation, under test."""

    COLLECTING = "collecting"
    CANDIDATE = "candidate"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    REPLACED = "replaced"


CANDIDATE_TRANSITIONS: dict[CandidateState | None, frozenset[CandidateState]] = {
    None: frozenset({CandidateState.COLLECTING}),
    CandidateState.COLLECTING: frozenset({CandidateState.CANDIDATE}),
    CandidateState.CANDIDATE: frozenset({CandidateState.ACCEPTED, CandidateState.REJECTED, CandidateState.REPLACED}),
    CandidateState.ACCEPTED: frozenset({CandidateState.CANDIDATE, CandidateState.REPLACED}),
    CandidateState.REJECTED: frozenset({CandidateState.CANDIDATE, CandidateState.REPLACED}),
    CandidateState.REPLACED: frozenset(),
}


class DatasetCandidateState(StrEnum):
    """One attempt to make a version out of accepted retailers."""

    CANDIDATE = "candidate"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    PUBLISHED = "published"
    SUPERSEDED = "superseded"


DATASET_CANDIDATE_TRANSITIONS: dict[DatasetCandidateState | None, frozenset[DatasetCandidateState]] = {
    None: frozenset({DatasetCandidateState.CANDIDATE}),
    DatasetCandidateState.CANDIDATE: frozenset({DatasetCandidateState.ACCEPTED, DatasetCandidateState.REJECTED}),
    DatasetCandidateState.ACCEPTED: frozenset({DatasetCandidateState.PUBLISHED, DatasetCandidateState.REJECTED}),
    DatasetCandidateState.REJECTED: frozenset(),
    DatasetCandidateState.PUBLISHED: frozenset({DatasetCandidateState.SUPERSEDED}),
    DatasetCandidateState.SUPERSEDED: frozenset(),
}


class DeliveryState(StrEnum):
    """One outbox event on its way to one destination."""

    UNSENT = "unsent"
    SENDING = "sending"
    DELIVERED = "delivered"
    UNCERTAIN = "uncertain"
    FAILED = "failed"


DELIVERY_TRANSITIONS: dict[DeliveryState | None, frozenset[DeliveryState]] = {
    None: frozenset({DeliveryState.UNSENT}),
    DeliveryState.UNSENT: frozenset({DeliveryState.SENDING}),
    DeliveryState.SENDING: frozenset(
        {DeliveryState.DELIVERED, DeliveryState.UNSENT, DeliveryState.UNCERTAIN, DeliveryState.FAILED}
    ),
    DeliveryState.UNCERTAIN: frozenset({DeliveryState.DELIVERED, DeliveryState.UNSENT, DeliveryState.FAILED}),
    # Sent once more, because a person says so or because the destination does not have it after all; failed when it
    # turns out to have something else instead.
    DeliveryState.DELIVERED: frozenset({DeliveryState.UNSENT, DeliveryState.FAILED}),
    DeliveryState.FAILED: frozenset({DeliveryState.UNSENT}),
}


class PageState(StrEnum):
    """What an answered page turned out to be."""

    EXPECTED = "expected"
    UNCHANGED = "unchanged"
    """Expected, and byte for byte what it was when it was last read."""
    CONSENT = "consent"
    CHALLENGE = "challenge"
    LOGIN = "login"
    WRONG_CONTEXT = "wrong_context"
    WRONG_TEMPLATE = "wrong_template"
    EMPTY_SHELL = "empty_shell"
    SOFT_404 = "soft_404"
    REMOVED = "removed"


class Outcome(StrEnum):
    """How one attempt ended; `running` until it did."""

    RUNNING = "running"
    COMMITTED = "committed"
    REVERTED = "reverted"
    RETRY = "retry"
    QUARANTINED = "quarantined"
    GONE = "gone"
    LEASE_EXPIRED = "lease_expired"
    RELEASED = "released"


class FailureClass(StrEnum):
    """Why an attempt gave no rows; `rules.retry.decide` says what happens next."""

    TRANSPORT = "transport"
    TIMEOUT = "timeout"
    HTTP_5XX = "http_5xx"
    TRUNCATED = "truncated"
    RATE_LIMITED = "rate_limited"
    ACCESS_REFUSED = "access_refused"
    LOGIN = "login"
    CHALLENGE = "challenge"
    CONSENT = "consent"
    WRONG_CONTEXT = "wrong_context"
    REDIRECTED = "redirected"
    HTTP_OTHER = "http_other"
    TOO_LARGE = "too_large"
    BAD_ENCODING = "bad_encoding"
    UNSTORABLE = "unstorable"
    WRONG_TEMPLATE = "wrong_template"
    EMPTY_SHELL = "empty_shell"
    EXTRACTION = "extraction"
    VALIDATION = "validation"
    EXTRACTOR_CRASHED = "extractor_crashed"
    ROBOTS = "robots"
    LEASE_EXHAUSTED = "lease_exhausted"
    WINDOW_CLOSED = "window_closed"
    RETRIES_EXHAUSTED = "retries_exhausted"
    GONE = "gone"
