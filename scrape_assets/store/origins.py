"""Origins: one budget for each over all workers, retailers and runs. Only the database's clock moves it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from scrape_assets.rules.budget import Budget
from scrape_assets.store import sql
from scrape_assets.store.postgres import Transaction

TURN_SECONDS = 0.05
"""Of requests that may follow each other faster than this, a turn holds as many as fit into it."""

REST_SECONDS = 3600.0
"""The longest rest of an origin that refuses one of its retailers."""

EARLY_SECONDS = 0.01
"""How long before a turn ends the next one may be asked for; the asker waits in the database."""

ROBOTS_DAYS = 30
"""How long an earlier copy of a robots.txt holds while the site does not give it (RFC 9309, 2.4 and 2.3.1.4)."""


class Share(NamedTuple):
    """A worker's part: requests in flight, seconds between starts, whether it is paused, whether turns are taken."""

    origin: str
    slots: int
    gap: float
    paused: bool
    paced: bool


class Turn(NamedTuple):
    """`starts` requests may begin now, `gap` seconds apart; without any, ask again in `wait_seconds`."""

    starts: int
    gap: float
    wait_seconds: float
    paused: bool
    held_until: datetime | None


class RobotsFile(NamedTuple):
    """A robots.txt as it was read; `of_this_run`: by this run, not by an earlier one."""

    origin: str
    http_status: int | None
    body: str
    note: str | None
    of_this_run: bool


def declare(tx: Transaction, origins: Sequence[str], budget: Budget) -> None:
    """The budget holds for every worker from now on."""
    asked = {"origins": list(origins), **budget._asdict()}
    sql.execute(tx, "keep_budgets", **asked)
    # What another dataset declares at this very moment is seen once its line here is passed.
    sql.many(tx, "lock_origins", origins=asked["origins"])
    sql.execute(tx, "declare_origins", origins=asked["origins"])


def share(
    tx: Transaction, worker_id: str, asked: Mapping[str, tuple[int, int]], *, seconds: float, patience_seconds: float
) -> dict[str, Share]:
    """This worker's part of each origin for so long; `asked` has how many it could use, and how many it uses now.

    Of an origin that is asked slowly nobody gets more than may start within `patience_seconds`.
    """
    sql.many(tx, "lock_origins", origins=sorted(asked))
    text = orjson.dumps([{"origin": o, "wanted": w, "in_use": u} for o, (w, u) in sorted(asked.items())]).decode()
    rows = sql.many(
        tx, "share_origins", worker_id=worker_id, asked=text, seconds=seconds, patience_seconds=patience_seconds
    )
    return {row.origin: Share(*row) for row in rows}


def leave(tx: Transaction, worker_id: str) -> None:
    """The worker's part is free for others."""
    sql.execute(tx, "leave_origins", worker_id=worker_id)


def take_turn(tx: Transaction, origin: str, hold_seconds: float) -> Turn:
    """The next starts at this origin are mine, or somebody else's are running."""
    sql.maybe(tx, "lock_origin", origin=origin)
    asked = {"origin": origin, "turn_seconds": TURN_SECONDS, "hold_seconds": hold_seconds}
    turn = Turn(*sql.one(tx, "take_turn", **asked))
    if turn.starts or turn.paused or turn.wait_seconds > EARLY_SECONDS:
        return turn
    # Whoever comes a moment too early waits here, in front of all others, and not for a timer and a round trip more.
    sql.one(tx, "wait_for_turn", seconds=turn.wait_seconds)
    return Turn(*sql.one(tx, "take_turn", **asked))


def push_turn(tx: Transaction, origin: str) -> None:
    """A request has gone out just now, later than its turn: the next one is a whole gap away."""
    sql.execute(tx, "push_turn", origin=origin)


def end_turn(tx: Transaction, origin: str, held_until: datetime) -> None:
    """The answer of a turn that was held through it has ended."""
    sql.execute(tx, "end_turn", origin=origin, held_until=held_until)


def pause(tx: Transaction, origin: str, seconds: float, reason: str, *, doubles: bool, cap_seconds: float) -> None:
    """Nobody asks the origin before then; `doubles`: the site did not say for how long, so it is longer each time."""
    sql.execute(
        tx, "pause_origin", origin=origin, seconds=seconds, reason=reason, doubles=doubles, cap_seconds=cap_seconds
    )


def rest(tx: Transaction, origin: str, reason: str) -> None:
    """Nobody asks the origin for as long as its calm time, twice as long each time, at most an hour."""
    asked = {"origin": origin, "reason": reason, "seconds": None, "doubles": True, "cap_seconds": REST_SECONDS}
    sql.execute(tx, "pause_origin", **asked)


def unreachable(tx: Transaction, origin: str, failures: int, seconds: float, reason: str) -> None:
    """So many first tries did not reach the site; enough of them in a row pause it."""
    sql.execute(tx, "note_unreachable", origin=origin, failures=failures, seconds=seconds, reason=reason)


def reached(tx: Transaction, origins: Collection[str]) -> None:
    """These answered."""
    sql.execute(tx, "note_reached", origins=sorted(origins))


def paused(tx: Transaction, origins: Iterable[str]) -> set[str]:
    """Those of the origins that are paused now."""
    return {row.origin for row in sql.many(tx, "paused_origins", origins=list(origins))}


def robots(tx: Transaction, run_id: str, origin: str) -> RobotsFile | None:
    """What this run read of the origin's robots.txt, else what an earlier one read not long ago."""
    row = sql.maybe(tx, "find_robots", run_id=run_id, origin=origin, days=ROBOTS_DAYS)
    return RobotsFile(*row) if row else None


def ask_robots(tx: Transaction, run_id: str, origin: str, seconds: float) -> bool:
    """Whether it is this worker that asks; another one's try counts for so long."""
    return sql.maybe(tx, "ask_robots", run_id=run_id, origin=origin, seconds=seconds) is not None


def forget_robots(tx: Transaction, run_id: str, origin: str) -> None:
    """Nothing came of asking."""
    sql.execute(tx, "forget_robots", run_id=run_id, origin=origin)


def keep_robots(
    tx: Transaction, run_id: str, origin: str, http_status: int | None, body: str, note: str | None
) -> None:
    """It holds for the whole run, whoever of its workers asks."""
    sql.execute(tx, "keep_robots", run_id=run_id, origin=origin, http_status=http_status, body=body, note=note)


def set_robots_delay(tx: Transaction, origin: str, seconds: float) -> None:
    """What robots.txt asks for between two requests; 0 where it asks for nothing, or is not obeyed."""
    sql.execute(tx, "set_robots_delay", origin=origin, seconds=seconds)
