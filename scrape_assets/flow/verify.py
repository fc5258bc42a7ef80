"""Verify: every promise of the protocol, checked over live data. Reads only."""

from __future__ import annotations

import time
from dataclasses import dataclass

from scrape_assets.store import observe, postgres
from scrape_assets.store.observe import Invariant
from scrape_assets.store.postgres import Pool


@dataclass(frozen=True, slots=True)
class Verified:
    """Which invariants were checked, which are violated and by what, and how long it took."""

    checked: list[Invariant]
    seconds: float

    @property
    def violations(self) -> list[Invariant]:
        """The invariants that do not hold, with the violating keys."""
        return [invariant for invariant in self.checked if invariant.keys]


def verify(pool: Pool) -> Verified:
    """Every invariant is checked in one consistent, read-only view of the store."""
    began = time.monotonic()
    with postgres.transaction(pool) as tx:
        checked = observe.invariants(tx)
    return Verified(checked, time.monotonic() - began)
