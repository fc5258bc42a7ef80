"""What an origin may be asked, and what holds where several declarations speak of one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

MAX_ORIGINS = 100
"""Origins that the pages of one retailer may be on or lead to, beyond which no further one is asked. A judgement: shops
have a handful, and a site that answers under every name would have one budget, share and robots.txt for each."""


class Budget(NamedTuple):
    """Seconds between two starts, requests in flight, whether the gap counts from an answer's end, requests a day.

    `calm_seconds` without trouble forgive one doubling of the gap. `obeys_robots`: whether what robots.txt asks for
    holds as well. `dataset_id`: whose declaration it is.
    """

    interval_seconds: float
    concurrency: int
    gap_through_response: bool = False
    per_day: int | None = None
    calm_seconds: float = 30.0
    obeys_robots: bool = True
    dataset_id: str = ""


def beyond(known: Collection[str], named: Iterable[str]) -> set[str]:
    """Those of the origins that are named now for which a retailer has no room, beside those it has; the first have it.

    >>> beyond({f"o{n}" for n in range(99)}, ["o1", "new", "newer"])
    {'newer'}
    """
    new = [origin for origin in dict.fromkeys(named) if origin not in known]
    return set(new[max(0, MAX_ORIGINS - len(known)) :])


def strictest(budgets: Iterable[Budget]) -> Budget:
    """The slowest, smallest, most patient of each: retailers that share an origin share what the careful one allows.

    >>> strictest([Budget(0.2, 8), Budget(1.0, 16, per_day=100)])
    Budget(interval_seconds=1.0, concurrency=8, gap_through_response=False, per_day=100, calm_seconds=30.0, \
obeys_robots=True, dataset_id='')
    """
    found = list(budgets)
    return Budget(
        max(one.interval_seconds for one in found),
        min(one.concurrency for one in found),
        any(one.gap_through_response for one in found),
        min((one.per_day for one in found if one.per_day is not None), default=None),
        max(one.calm_seconds for one in found),
        any(one.obeys_robots for one in found),
        found[0].dataset_id,
    )
