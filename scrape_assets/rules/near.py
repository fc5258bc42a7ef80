"""Which known name somebody probably meant."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

NEAR = 0.55
"""How much alike two names must be for one to be suggested for the other."""


def near(name: str, names: Sequence[str], cutoff: float = NEAR) -> str | None:
    """The name that is one slip of a finger away, the first of several; else the most similar one, if any is.

    >>> near("GPB", ["EUR", "PAB", "GBP"]), near("challange", ["challenge", "consent"]), near("x", ["price"])
    ('GBP', 'challenge', None)
    """
    if slipped := next((known for known in names if _one_slip(name, known)), None):
        return slipped
    return next(iter(get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def _one_slip(one: str, other: str) -> bool:
    """A character more, less or another one; or two neighbours swapped."""
    if min(len(one), len(other)) < 2 or abs(len(one) - len(other)) > 1:
        return False
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
