"""Memory that hostile pages took is given back to the machine, where its C library would keep it for the next ones."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 256 * 1024


def give_back() -> None:
    """From now on: bodies are mapped one by one and unmapped when they are done with, and few heaps hold the rest.

    glibc moves its threshold up to 32 MB with the first large body that is freed, and a worker that has met some
    hostile pages keeps their size for ever.
    """
    if sys.platform != "linux":
        return
    with suppress(OSError, AttributeError):  # another C library has other habits
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in (
            (_M_ARENA_MAX, 2),
            (_M_MMAP_THRESHOLD, _LARGE_BYTES),
            (_M_TRIM_THRESHOLD, _LARGE_BYTES),
        ):
            mallopt(parameter, value)
