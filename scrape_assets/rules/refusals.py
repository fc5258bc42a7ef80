"""When a site is left alone: it refuses again and again, and asking on would only be held against us."""

from __future__ import annotations

from collections.abc import Sequence

from scrape_assets.rules.states import FailureClass

REFUSALS = frozenset(
    {
        FailureClass.ACCESS_REFUSED,
        FailureClass.LOGIN,
        FailureClass.CHALLENGE,
        FailureClass.CONSENT,
        FailureClass.WRONG_CONTEXT,
    }
)
"""The classes that say "not you", not "not this page" (protocol, vocabulary)."""

IN_A_ROW = 10
OF_THE_LAST = 200
SHARE = 0.05
"""A retailer stops after 10 refusals in a row, or 5 % of its last 200 attempts once there are 200 (protocol)."""


def stops(newest: Sequence[str | None]) -> str | None:
    """Why the retailer stops, given the failure classes of its newest attempts, newest first; None to go on.

    >>> stops(["challenge"] * 9 + [None])
    >>> stops(["challenge"] * 10)
    'its last 10 attempts were refused (challenge)'
    """
    refused = [failure if failure in REFUSALS else None for failure in newest[:OF_THE_LAST]]
    classes = ", ".join(sorted({str(failure) for failure in refused if failure}))
    if len(refused) >= IN_A_ROW and all(refused[:IN_A_ROW]):
        return f"its last {IN_A_ROW} attempts were refused ({', '.join(sorted({str(f) for f in refused[:IN_A_ROW]}))})"
    count = sum(1 for failure in refused if failure)
    if len(refused) == OF_THE_LAST and count >= SHARE * OF_THE_LAST:
        return f"{count} of its last {OF_THE_LAST} attempts were refused ({classes})"
    return None


def in_words(reason: str) -> str:
    """What a paused retailer is, and why, without saying twice that it was stopped.

    >>> in_words("paused by hand"), in_words("stopped: 10 in a row were refused")
    ('paused: paused by hand', 'stopped: 10 in a row were refused')
    """
    return reason if reason.startswith("stopped: ") else f"paused: {reason}"
