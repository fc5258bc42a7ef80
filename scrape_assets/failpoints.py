"""Crash windows as named points of the program. Nothing happens at one unless the environment arms it.

SCRAPE_ASSETS_FAILPOINT      `K7=kill`, `K9=drop@3,K1=kill`: what happens when this process gets there for the n-th
                             time (the first, where no number stands)
SCRAPE_ASSETS_FAILPOINT_LOG  the file to which each firing is appended before it happens

`kill` ends the process by SIGKILL, `pause` lets it sleep for PAUSE_SECONDS, `raise` raises Reached, `full` raises
the operating system's "no space left on device", `drop` does what the point itself offers, which is to cut its
connection to Postgres. The names are those of the recovery protocol; `docs/recovery.md` lists them.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

WINDOWS = {
    "K1": "after the claim",
    "K2": "request sent, no body yet",
    "K3": "half a body received",
    "K4": "page fetched",
    "K5": "artifact half written",
    "K6": "artifact synced, before BEGIN",
    "K7": "after the fence update",
    "K8": "after the rows",
    "K9": "COMMIT sent, answer unread",
    "K10": "COMMIT returned, before anybody is told",
    "K11": "in a heartbeat",
    "K12": "in the reaper",
    "K13": "half-planned partition",
    "K14": "between validation and accept",
    "K15": "between the version and its outbox event",
    "K16": "after the publish COMMIT",
    "K17": "marked as being sent, before it is",
    "K18": "sent and applied, no answer seen",
    "K19": "answered, before it is marked delivered",
    "K22": "in a migration",
    "K24": "half-built recovery batch",
}
"""Every point that the program has, and where it lies."""

ACTIONS = ("kill", "pause", "raise", "full", "drop")

PAUSE_SECONDS = 5.0


class Reached(Exception):
    """A point that was armed with `raise`: a fault of ours, as far as the program can tell."""


@dataclass(slots=True)
class _Point:
    action: str
    nth: int
    times: int = 0


_armed: dict[str, _Point] = {}
_log: str | None = None


def arm(text: str, log: str | None) -> None:
    """The points named in `text` fire from now on, each once; all others are inert. ValueError says what is wrong."""
    global _log  # noqa: PLW0603 - one process has one set of points
    points: dict[str, _Point] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = item.partition("=")
        action, _, nth = rest.partition("@")
        if name not in WINDOWS or action not in ACTIONS or (nth and not (nth.isdecimal() and int(nth))):
            raise ValueError(
                f"SCRAPE_ASSETS_FAILPOINT: {item!r} is none; expected {next(iter(WINDOWS))}=kill or K9=drop@3, "
                f"with a window of {', '.join(WINDOWS)} and an action of {', '.join(ACTIONS)}"
            )
        points[name] = _Point(action, int(nth or 1))
    _armed.clear()
    _armed.update(points)
    _log = log


def reach(name: str, drop: Callable[[], object] | None = None, *, first: Callable[[], object] | None = None) -> None:
    """The program is at this point. If it is armed and this is its time, `first` is done and then the action."""
    if not _armed or (point := _armed.get(name)) is None:
        return
    point.times += 1
    if point.times != point.nth:
        return
    if first is not None:
        first()
    if _log is not None:
        with open(_log, "ab", buffering=0) as log:  # noqa: PTH123 - one write, whole, even if the next line kills us
            log.write(f"{name} {point.action} {os.getpid()}\n".encode())
    if point.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif point.action == "pause":
        time.sleep(PAUSE_SECONDS)
    elif point.action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    elif point.action == "drop" and drop is not None:
        drop()
    else:
        raise Reached(f"{name}: {WINDOWS[name]}")


try:
    arm(os.environ.get("SCRAPE_ASSETS_FAILPOINT", ""), os.environ.get("SCRAPE_ASSETS_FAILPOINT_LOG"))
except ValueError as wrong:
    sys.stderr.write(f"error: {wrong}\n")  # before any command could say it
    sys.exit(2)
