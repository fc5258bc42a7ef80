"""Signals: a command that is told to stop unwinds, whatever it is doing."""

from __future__ import annotations

import signal
from typing import Any

from scrape_assets.errors import Interrupted


def unwind_on_signals() -> None:
    """From now on SIGINT and SIGTERM raise Interrupted: children end, and a server that was started here stops."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell that starts us in the background has SIGINT ignored; that is its word, not ours to change.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _unwind)


def _unwind(*_: Any) -> None:
    raise Interrupted("interrupted; run the same command again to resume")
