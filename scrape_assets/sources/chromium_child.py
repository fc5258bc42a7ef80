"""Chromium under watch: whatever ends the worker, the driver or Chromium itself, all of its processes end with it.

    python -I -S chromium_child.py WORKER_PID FOLDER CHROMIUM [ARGUMENT ...]

A program of its own that imports nothing of ours: it is started for each browser and lives as long as that does. At
the end it removes FOLDER and the browser's profile, which a driver that was killed leaves behind.
Where the system does not tell a process of another's end, it is looked for twice a second.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.5
_LINUX = sys.platform == "linux"


def main(arguments: list[str]) -> int:
    """Runs Chromium; its exit code, or 1 when it was ended because nobody needs it any more."""
    worker, folder, command, driver = int(arguments[0]), arguments[1], arguments[2:], os.getppid()
    profiles = [one.partition("=")[2] for one in command if one.startswith("--user-data-dir=")]
    started = os.getpid()
    if (watcher := os.fork()) != 0:
        # The driver ends its browser by killing this process's whole group: whoever cleans up is of another one.
        _close_pipes()
        return os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1])
    os.setsid()
    if _LINUX:
        # Whatever Chromium leaves behind becomes a child of this process, which ends it.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    chromium = os.fork()
    if chromium == 0:
        if _LINUX:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            os.execv(command[0], command)  # noqa: S606 - the command is ours
        finally:
            os._exit(127)
    _close_pipes()
    held: dict[int, int] = {}
    try:
        held = _until_one_ends(worker, driver, started, chromium)
    finally:
        code = _end_all(chromium)
        # Without its worker the driver ends by itself; one that hangs would stay.
        if driver in held and not _lives(worker):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(held[driver], signal.SIGKILL)
        for left in (folder, *profiles):
            shutil.rmtree(left, ignore_errors=True)
    return code


def _close_pipes() -> None:
    """The driver talks to Chromium through these: held here too, neither would see the other's end."""
    for descriptor in (0, 3, 4):
        with suppress(OSError):
            os.close(descriptor)


def _until_one_ends(worker: int, driver: int, started: int, chromium: int) -> dict[int, int]:
    """Returns when one of them has ended, with what Linux holds them by: an id alone may be another's by then."""
    held: dict[int, int] = {}
    try:
        for pid in (driver, started, chromium, worker) if _LINUX else ():
            held[pid] = os.pidfd_open(pid)
    except ProcessLookupError:
        return held
    except OSError:  # a container may forbid the call
        held.clear()
    waiting = select.poll()
    for descriptor in held.values():
        waiting.register(descriptor, select.POLLIN)
    peek = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.getppid() == started and _lives(worker) and os.waitid(os.P_PID, chromium, peek) is None:
        if waiting.poll(_LOOK_SECONDS * 1000):
            break
    return held


def _lives(pid: int) -> bool:
    """Whether it runs; one that nobody has buried yet does not."""
    try:
        os.kill(pid, 0)
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith(("Z", "X"))
    except FileNotFoundError:
        return not _LINUX
    except ProcessLookupError:
        return False


def _end_all(chromium: int) -> int:
    """Every descendant has ended; Chromium's own exit code, where it had one."""
    code, waits = 1, {chromium}
    while True:
        for child in waits | _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        waits.discard(ended)
        if ended == chromium and os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)


def _children() -> set[int]:
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    except OSError:
        return set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
