"""The embedded PostgreSQL: one supervised server per state folder, shared by every process that works there.

Three file locks in `<state folder>/postgres` carry the whole protocol; the kernel frees each when its last
holder dies, so nothing is left registered by a process that was killed:

- `start.lock`: held while somebody initialises, starts or stops. The server never inherits it.
- `server.lock`: inherited by the server and all its children on purpose. Whoever holds it alone knows that
  nothing of an earlier server lives, even in another container that shares the folder.
- `users.lock`: held shared by every process that called `ensure`; `stop(only_if_idle=True)` needs it alone.

Whether the server serves is decided by a query over a connection, never by a pid. No process is signalled
unless the process table shows it to be `postgres` working in our data directory. What it lies on
(paths, account, `initdb`, log) is in `embedded_cluster`; this file is the protocol, to be read in one piece.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import tuple_row

from scrape_assets.errors import StoreUnreachable
from scrape_assets.store.embedded_cluster import (
    APPLICATION_ROLE,
    BOOTSTRAP_ROLE,
    DATABASE,
    OWNER_ROLE,
    PORT,
    START_LIMIT_SECONDS,
    Account,
    Place,
    binaries_folder,
    choose_account,
    initialise,
    initialised,
    last_words,
    make_home,
    open_log,
    scrubbed_environment,
    turn_log,
    user_name,
    words,
)

OLDEST_VERSION = 16
STOP_LIMIT_SECONDS = 300.0
_SOCKET_LIMIT_SECONDS = 30.0
_IDLE_GRACE_SECONDS = 2.0
_LEFTOVER_GRACE_SECONDS = 3.0

_ROLES = f"""
do $$ begin
  if not exists (select from pg_roles where rolname = '{OWNER_ROLE}') then create role {OWNER_ROLE} nologin; end if;
  if not exists (select from pg_roles where rolname = '{APPLICATION_ROLE}') then
    create role {APPLICATION_ROLE} nologin; end if;
end $$;
alter role {OWNER_ROLE} login nosuperuser createdb nocreaterole noreplication nobypassrls;
alter role {OWNER_ROLE} set statement_timeout = 0;
alter role {OWNER_ROLE} set idle_in_transaction_session_timeout = '5min';
alter role {OWNER_ROLE} set lock_timeout = '1min';
alter role {APPLICATION_ROLE} nosuperuser nocreatedb nocreaterole noreplication nobypassrls;
alter role {APPLICATION_ROLE} set statement_timeout = '10min';
alter role {APPLICATION_ROLE} set idle_in_transaction_session_timeout = '5min';
alter role {APPLICATION_ROLE} set lock_timeout = '1min';
"""


@dataclass(frozen=True)
class Server:
    """A server that answered a query. `started` says whether this very call started it."""

    url: str
    owner_url: str
    pid: int
    started: bool


@dataclass(frozen=True)
class Status:
    """What is known of a state folder's server now; `reason` says why it serves or does not."""

    running: bool
    url: str | None
    pid: int | None
    data_dir: Path
    reason: str


def ensure(state_dir: Path) -> Server:
    """A server of this state folder has answered a query; it was initialised and started if need be.

    Any number of processes may call this at once: one starts it, all get the same one. Until this process ends
    or stops it, `stop(only_if_idle=True)` elsewhere leaves the server alone.
    """
    place = Place.of(state_dir)
    with _explained(place):
        make_home(place)
        _register_use(place)
        if _probe(place)[0] is _Answer.READY:
            return _server(place, started=False)
        with _held(place.start_lock, START_LIMIT_SECONDS):
            return _ensure_alone(place)


def status(state_dir: Path) -> Status:
    """What the server of this state folder does now; nothing is created or changed by asking."""
    place = Place.of(state_dir)
    pid: int | None = None
    try:
        with _explained(place):
            if not place.data.exists():
                return Status(False, None, None, place.data, "never initialised here: `scrape-assets db up` does it")
            postmaster = _postmaster(_processes(place))
            pid = postmaster.pid if postmaster else None
            answer, reason = _probe(place)
    except StoreUnreachable as error:
        return Status(False, None, pid, place.data, str(error))
    if answer is _Answer.READY:
        return Status(True, place.url(APPLICATION_ROLE), pid, place.data, reason)
    return Status(False, None, pid, place.data, reason)


def exists(state_dir: Path) -> bool:
    """Whether a server was ever initialised for this state folder, running or not."""
    return Place.of(state_dir).data.exists()


def stop(state_dir: Path, *, only_if_idle: bool = False) -> bool:
    """The server no longer runs, and True if this call stopped it.

    Running transactions are rolled back, committed ones are on disk. With `only_if_idle` a server that another
    process still uses or is connected to is left alone, and the answer is False.
    """
    place = Place.of(state_dir)
    with _explained(place):
        if not place.home.exists():
            return False
        with _held(place.start_lock, START_LIMIT_SECONDS):
            return _stop_alone(place, only_if_idle=only_if_idle)


def url(state_dir: Path) -> str:
    """The URL of the application role, whether or not the server runs: `ensure` first, it checks who listens."""
    return Place.of(state_dir).url(APPLICATION_ROLE)


def owner_url(state_dir: Path) -> str:
    """The URL of the role that owns the database and runs migrations, whether or not the server runs."""
    return Place.of(state_dir).url(OWNER_ROLE)


def check_durable(connection: psycopg.Connection[Any]) -> None:
    """The server is new enough and a commit seen by this connection's role survives a crash.

    Raises StoreUnreachable otherwise: a commit is a checkpoint here, and one that can be lost is none.
    """
    try:
        refusal = _durability_refusal(connection)
    except psycopg.Error as error:
        raise StoreUnreachable(f"the server could not be asked whether it is durable: {words(error)}") from error
    if refusal is not None:
        raise StoreUnreachable(refusal)


def _durability_refusal(connection: psycopg.Connection[Any]) -> str | None:
    version = connection.info.server_version // 10000
    if version < OLDEST_VERSION:
        return (
            f"the server is PostgreSQL {version}, but {OLDEST_VERSION} or newer is needed: upgrade it, or let "
            "SCRAPE_ASSETS_DATABASE_URL name a newer one"
        )
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("select name from pg_settings where name in ('fsync', 'synchronous_commit') and setting = 'off'")
        off = sorted(name for (name,) in cursor.fetchall())
    if off:
        return (
            f"the server runs with {' and '.join(off)} off, so a crash may lose committed work: turn it on in its "
            f"configuration (and for role {connection.info.user}), reload it, and try again"
        )
    return None


# --- locks ---


def _open_lock(path: Path) -> int:
    # Read-only is enough for flock, and lets a user take a lock whose file root has made.
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _lock(descriptor: int, operation: int, limit_seconds: float) -> bool:
    """Whether the lock was had within the limit."""
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)


@contextmanager
def _held(path: Path, limit_seconds: float) -> Iterator[None]:
    descriptor = _open_lock(path)
    try:
        if not _lock(descriptor, fcntl.LOCK_EX, limit_seconds):
            raise StoreUnreachable(
                f"another process has been starting or stopping the server for {limit_seconds:.0f} s (it holds "
                f"{path}): wait for it or end it, and try again"
            )
        try:
            yield
        finally:
            # Unlocked, not only closed: a child that another thread forked meanwhile has a copy of it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


_uses: dict[tuple[int, Path], int] = {}
"""Our shared locks, by process: a forked child must not act on its parent's."""
_uses_guard = threading.Lock()


def _register_use(place: Place) -> None:
    with _uses_guard:
        if (os.getpid(), place.home) in _uses:
            return
        descriptor = _open_lock(place.users_lock)
        if not _lock(descriptor, fcntl.LOCK_SH, STOP_LIMIT_SECONDS):  # somebody is stopping it: wait for the end
            os.close(descriptor)
            raise StoreUnreachable(f"another process has been stopping the server for {STOP_LIMIT_SECONDS:.0f} s")
        _uses[os.getpid(), place.home] = descriptor


def _use_alone(place: Place) -> bool:
    """Whether no other process uses the server; if so, none can begin to until our lock is shared or released."""
    with _uses_guard:
        key = os.getpid(), place.home
        if key not in _uses:
            _uses[key] = _open_lock(place.users_lock)
        return _lock(_uses[key], fcntl.LOCK_EX, 0)


def _share_use(place: Place) -> None:
    with _uses_guard:
        _lock(_uses[os.getpid(), place.home], fcntl.LOCK_SH, STOP_LIMIT_SECONDS)


def _release_use(place: Place) -> None:
    with _uses_guard:
        descriptor = _uses.pop((os.getpid(), place.home), None)
        if descriptor is not None:
            os.close(descriptor)


# --- who answers ---


class _Answer(Enum):
    READY = "it answered a query"
    INCOMPLETE = "it answers, but its roles or database are not made yet"
    BUSY = "something listens, but does not serve"
    ABSENT = "nothing listens"


def _connect(place: Place, role: str, database: str = DATABASE) -> psycopg.Connection[Any]:
    return psycopg.connect(
        place.url(role, database), autocommit=True, connect_timeout=5, application_name="scrape_assets supervisor"
    )


def _probe(place: Place) -> tuple[_Answer, str]:
    """Who answers on our socket. Raises StoreUnreachable when it is not ours or must not be used."""
    if not _socket_dir_is_ours(place):
        return _Answer.ABSENT, f"nothing listens at {place.socket}"
    try:
        with _connect(place, APPLICATION_ROLE) as connection:
            refusal = _durability_refusal(connection)
    except psycopg.OperationalError as error:
        reason = words(error)
    else:
        if refusal is not None:
            raise StoreUnreachable(refusal)
        return _Answer.READY, "it answered a query"
    with socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(5)
        try:
            plain.connect(str(place.socket))
        except (FileNotFoundError, ConnectionRefusedError):
            return _Answer.ABSENT, f"nothing listens at {place.socket}"
        except OSError as refused:
            return _Answer.BUSY, words(refused)
    try:
        with _connect(place, BOOTSTRAP_ROLE, "postgres") as connection:
            made = connection.execute(
                "select from pg_roles where rolname = %s and rolcanlogin", [APPLICATION_ROLE]
            ).fetchall()
    except psycopg.OperationalError as error:
        return _Answer.BUSY, words(error)
    return (_Answer.BUSY if made else _Answer.INCOMPLETE), reason


def _socket_dir_is_ours(place: Place) -> bool:
    """Whether our socket folder is there; a foreign one of that name is refused: its owner could pose as us."""
    try:
        found = place.socket_dir.lstat()
    except FileNotFoundError:
        return False
    owners = {os.geteuid()}
    with suppress(OSError):
        owners.add(place.data.stat().st_uid)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners or found.st_mode & 0o077:
        raise StoreUnreachable(
            f"{place.socket_dir} should be a private folder of user {' or '.join(map(user_name, sorted(owners)))}, "
            f"but is {stat.filemode(found.st_mode)} of {user_name(found.st_uid)}: find out who made it, remove it, "
            "and try again"
        )
    return True


def _processes(place: Place) -> list[psutil.Process]:
    """Every living process that is verifiably a postgres working in our data directory."""
    return [process for process in psutil.process_iter() if _is_ours(process, place)]


def _is_ours(process: psutil.Process, place: Place) -> bool:
    try:  # a server and all its children have the data directory as their working directory
        return process.name() == "postgres" and place.data.samefile(process.cwd())
    except (psutil.Error, OSError):
        return False


def _postmaster(ours: Sequence[psutil.Process]) -> psutil.Process | None:
    """The one whose parent is none of them; an orphan of a killed postmaster is told by its changed title."""
    pids = {process.pid for process in ours}
    for process in ours:
        with suppress(psutil.Error):
            title = " ".join(process.cmdline()[:1])
            if process.ppid() not in pids and not title.startswith("postgres: "):
                return process
    return None


def _server(place: Place, *, started: bool) -> Server:
    postmaster = _recorded_postmaster(place) or _postmaster(_processes(place))
    if postmaster is None:
        raise StoreUnreachable(
            f"a server answers at {place.socket}, but no process here works in {place.data}: another container "
            "shares both; use only one of them"
        )
    return Server(place.url(APPLICATION_ROLE), place.url(OWNER_ROLE), postmaster.pid, started)


def _recorded_postmaster(place: Place) -> psutil.Process | None:
    """The process that the pid file names, if it is ours: saves looking through the whole process table."""
    try:
        process = psutil.Process(int((place.data / "postmaster.pid").read_bytes().split(b"\n")[0]))
    except (OSError, ValueError, OverflowError, psutil.Error):
        return None
    return process if _is_ours(process, place) else None


# --- start ---


def _ensure_alone(place: Place) -> Server:
    """`ensure` for the holder of the start lock."""
    deadline = time.monotonic() + START_LIMIT_SECONDS
    hidden_until: float | None = None
    started = False
    while True:
        answer, reason = _probe(place)
        if answer is _Answer.READY:
            return _server(place, started=started)
        if time.monotonic() > deadline:
            raise StoreUnreachable(
                f"the server of {place.data} did not serve within {START_LIMIT_SECONDS:.0f} s: {reason}. Look into "
                f"{place.log}, then try again; a long crash recovery goes on meanwhile"
            )
        if answer is _Answer.INCOMPLETE:
            _bootstrap(place)
        elif answer is _Answer.ABSENT:
            living = _postmaster(_processes(place))
            if living is not None:  # just started by somebody who was killed, or just ending
                hidden_until = hidden_until or time.monotonic() + _SOCKET_LIMIT_SECONDS
                if time.monotonic() > hidden_until:
                    raise StoreUnreachable(
                        f"process {living.pid} serves {place.data}, but not at {place.socket}: its folder was moved "
                        "or its socket removed. Stop it with `scrape-assets db down`, and try again"
                    )
            elif started:
                raise StoreUnreachable(
                    f"the server of {place.data} ended right after its start. {last_words(place, 0)}"
                )
            else:
                _start(place, deadline)
                started = True
                continue
        time.sleep(0.1)


_children: list[subprocess.Popen[bytes]] = []
"""Servers that this process has started: kept, so that none stays a zombie once it has ended."""


def _reap_children() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def _start(place: Place, deadline: float) -> None:
    """A server that nothing else of ours can be running beside has started, with roles and database made."""
    _reap_children()
    binaries = binaries_folder()
    account = choose_account(place, binaries)
    turn_log(place)
    begin = place.log.stat().st_size if place.log.exists() else 0
    if not initialised(place, binaries):
        initialise(place, binaries, account, deadline)
    server_lock = _open_lock(place.server_lock)
    try:
        if not _lock(server_lock, fcntl.LOCK_EX, 0):
            _end_leftovers(place)
            if not _lock(server_lock, fcntl.LOCK_EX, 5):
                raise StoreUnreachable(
                    f"a server on {place.data} runs where this process cannot see it (it holds {place.server_lock}), "
                    "perhaps in another container: stop it there, or use another state folder here"
                )
        _end_leftovers(place)  # of a server that was started by hand, without our lock
        _clear_stale_pid_file(place)
        _make_socket_dir(place, account)
        with open_log(place) as log:
            process = subprocess.Popen(
                [*account.prefix, str(binaries / "postgres"), "-D", str(place.data), *_settings(place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(server_lock,),
                start_new_session=True,
                umask=0o077,
                cwd="/",
                env=scrubbed_environment(),
                **account.switch(),
            )
    finally:
        os.close(server_lock)  # closed, not unlocked: from here on the server is its holder
    _children.append(process)
    try:
        _await_bootstrap(place, process, deadline, begin)
    except StoreUnreachable:
        # It ended, or it recovers from a crash: that goes on, or the next start would only begin it again.
        raise
    except BaseException:
        process.send_signal(signal.SIGINT)
        raise


def _settings(place: Place) -> list[str]:
    # fsync and synchronous_commit keep their default, on; `check_durable` refuses a server where they were changed.
    settings = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": str(place.socket_dir),
        "unix_socket_permissions": "0700",
        "max_connections": "300",
        "logging_collector": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _await_bootstrap(place: Place, process: subprocess.Popen[bytes], deadline: float, begin: int) -> None:
    while True:
        if process.poll() is not None:
            raise StoreUnreachable(
                f"the server of {place.data} ended with status {process.returncode} while it started. "
                f"{last_words(place, begin)}"
            )
        try:
            _bootstrap(place)
            return
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                raise StoreUnreachable(
                    f"the server of {place.data} did not serve within {START_LIMIT_SECONDS:.0f} s: {words(error)}. "
                    f"{last_words(place, begin)}"
                ) from error
        time.sleep(0.1)


def _bootstrap(place: Place) -> None:
    """Roles, their limits and the database are as this version wants them; safe to repeat and to cut anywhere."""
    with _connect(place, BOOTSTRAP_ROLE, "postgres") as connection:
        with connection.transaction():
            connection.execute(_ROLES.encode())
        if not connection.execute("select from pg_database where datname = %s", [DATABASE]).fetchall():
            connection.execute(f"create database {DATABASE} owner {OWNER_ROLE}".encode())
        # Last of all: whoever can connect as the application role finds everything made.
        connection.execute(f"alter role {APPLICATION_ROLE} login".encode())


def _end_leftovers(place: Place) -> None:
    """No child of a killed server works in our data directory: they had time to end, then were ended."""
    for ending in (signal.SIGQUIT, signal.SIGKILL, None):
        deadline = time.monotonic() + _LEFTOVER_GRACE_SECONDS
        while left := _processes(place):
            if (living := _postmaster(left)) is not None:
                raise StoreUnreachable(f"process {living.pid} already serves {place.data}: stop it, and try again")
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if not left:
            return
        if ending is not None:
            for process in left:
                with suppress(psutil.Error):  # psutil refuses to signal a pid that was reused since
                    process.send_signal(ending)
    raise StoreUnreachable(
        f"processes {', '.join(str(process.pid) for process in left)} of an earlier server still work in {place.data} "
        "and could not be ended: end them, and try again"
    )


def _clear_stale_pid_file(place: Place) -> None:
    """Only called by the holder of the server lock: whatever process the file names, it is not our server.

    A whole file that names a dead process is left to the server, which also checks its shared memory.
    """
    pid_file = place.data / "postmaster.pid"
    try:
        first = pid_file.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    whole = len(first) >= 7 and first[0].isdigit() and len(first[0]) < 10
    if not whole or psutil.pid_exists(int(first[0])):
        pid_file.unlink()


def _make_socket_dir(place: Place, account: Account) -> None:
    if not _socket_dir_is_ours(place):
        place.socket_dir.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(place.socket_dir, account.uid, account.gid, follow_symlinks=False)
    for name in (place.socket.name, f"{place.socket.name}.lock"):  # a lock naming a reused pid would stop the start
        (place.socket_dir / name).unlink(missing_ok=True)


# --- stop ---


def _stop_alone(place: Place, *, only_if_idle: bool) -> bool:
    """`stop` for the holder of the start lock."""
    if not _processes(place):
        _release_use(place)
        return False
    was_user = (os.getpid(), place.home) in _uses
    stopped = False
    try:
        if not only_if_idle or (_use_alone(place) and _nobody_connected(place)):
            _shut_down(place)
            stopped = True
    finally:
        if was_user and not stopped:
            _share_use(place)
        else:
            _release_use(place)
    return stopped


def _nobody_connected(place: Place) -> bool:
    """Whether no client but us is connected; a client that has just left gets a moment to be gone."""
    deadline = time.monotonic() + _IDLE_GRACE_SECONDS
    try:
        with _connect(place, BOOTSTRAP_ROLE, "postgres") as connection:
            while connection.execute(
                "select from pg_stat_activity where pid <> pg_backend_pid() "
                "and backend_type in ('client backend', 'walsender')"
            ).fetchall():
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            return True
    except psycopg.OperationalError:
        return False  # it starts, stops or is full: not known to be idle


def _shut_down(place: Place) -> None:
    """Nothing of the server is left: a fast shutdown, or, if its postmaster was killed, the end of its children."""
    postmaster = _postmaster(_processes(place))
    if postmaster is None:
        _end_leftovers(place)
        return
    with suppress(psutil.NoSuchProcess):
        postmaster.send_signal(signal.SIGINT)
    deadline = time.monotonic() + STOP_LIMIT_SECONDS
    server_lock = _open_lock(place.server_lock)
    try:
        while _is_ours(postmaster, place) or not _lock(server_lock, fcntl.LOCK_EX, 0):
            if time.monotonic() > deadline:
                raise StoreUnreachable(
                    f"the server of {place.data} (process {postmaster.pid}) did not stop within "
                    f"{STOP_LIMIT_SECONDS:.0f} s and was left alone. {last_words(place, 0)}"
                )
            time.sleep(0.05)
    finally:
        os.close(server_lock)
    _reap_children()
    with suppress(OSError):
        place.socket_dir.rmdir()


@contextmanager
def _explained(place: Place) -> Iterator[None]:
    try:
        yield
    except (OSError, psycopg.Error, psutil.Error, subprocess.SubprocessError) as error:
        raise StoreUnreachable(
            f"the embedded PostgreSQL in {place.home} could not be used: {words(error)}. Look into {place.log} if it "
            "is there; the folder must be writable, and on a local disk with room"
        ) from error
