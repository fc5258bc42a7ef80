"""The embedded server under real processes, real kills and real files: nothing here is a stand-in."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from scrape_assets.errors import StoreUnreachable
from scrape_assets.store import embedded
from scrape_assets.store.embedded_cluster import (
    BOOTSTRAP_ROLE,
    Place,
    choose_account,
    make_home,
    scrubbed_environment,
)

REPO = Path(__file__).resolve().parents[2]
PACKAGES = Path(psycopg.__file__).resolve().parents[1]

PATIENCE_SECONDS = 240
"""Only tells a hang from a busy machine; no test measures time."""

ENSURE = """
import dataclasses, json, sys
from pathlib import Path
from scrape_assets.store import embedded

print(json.dumps(dataclasses.asdict(embedded.ensure(Path(sys.argv[1])))), flush=True)
"""

pytestmark = pytest.mark.slow  # starts and kills many servers

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to find an account to run the server as")


def python(
    script: str, state_dir: Path, *, interpreter: str = sys.executable, **environment: str
) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of another process that runs `script`."""
    command = [interpreter, "-c", script, str(state_dir)]
    return command, {**os.environ, "PYTHONPATH": f"{REPO}{os.pathsep}{PACKAGES}", **environment}


def output_of(script: str, state_dir: Path, **environment: str) -> dict[str, Any]:
    command, env = python(script, state_dir, **environment)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def bootstrap(state_dir: Path) -> psycopg.Connection[Any]:
    return psycopg.connect(Place.of(state_dir).url(BOOTSTRAP_ROLE, "postgres"), autocommit=True)


def server_processes(state_dir: Path) -> list[psutil.Process]:
    """Every process whose working directory is the data directory, found without the module's help."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if os.path.samefile(process.cwd(), state_dir / "postgres" / "data"):
                found.append(process)
    return found


def alive(process: psutil.Process) -> bool:
    """Whether it still runs: one that ended but was not reaped by its new parent does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def kill_server(state_dir: Path) -> None:
    processes = server_processes(state_dir)
    assert processes
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def until(condition: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)


def forget(state_dir: Path) -> None:
    """Nothing of this state folder's server is left: no process, no file, no socket folder."""
    with suppress(StoreUnreachable):
        embedded.stop(state_dir)
    for process in server_processes(state_dir):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    shutil.rmtree(Place.of(state_dir).socket_dir, ignore_errors=True)
    shutil.rmtree(state_dir, ignore_errors=True)


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A folder that every user can enter, in memory if possible: these tests kill processes, not machines."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 << 30
    folder = Path(tempfile.mkdtemp(prefix="embedded-tests-", dir=memory if roomy else None))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def initialised(base: Path) -> Path:
    """A state folder whose server was initialised, then stopped."""
    state_dir = base / "template"
    assert embedded.ensure(state_dir).started
    assert embedded.stop(state_dir)
    return state_dir


@pytest.fixture
def state_dir(base: Path, initialised: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A copy of an initialised state folder with a stopped server."""
    folder = base / f"copy {request.node.name[:60].replace('/', ' ')}"
    subprocess.run(["cp", "-a", str(initialised), str(folder)], check=True)
    yield folder
    forget(folder)


@pytest.fixture
def fresh(base: Path) -> Iterator[Path]:
    """A state folder that does not exist yet, with a space and quotes in its name."""
    folder = base / 'a shop\'s "own" data'
    yield folder
    forget(folder)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that has nothing to do with any server."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


# --- the first start ---


def test_a_first_start_works_in_a_folder_with_spaces_and_quotes_under_an_unknown_locale(fresh: Path) -> None:
    server = output_of(ENSURE, fresh, LC_ALL="xx_YY", LANG="xx_YY.nonsense")
    assert server["started"]
    with psycopg.connect(server["url"]) as connection:
        row = connection.execute(
            "select lower('ÄÖ'), datcollate, pg_encoding_to_char(encoding), datlocprovider "
            "from pg_database where datname = current_database()"
        ).fetchone()
    assert row == ("äö", "C", "UTF8", "b")


def test_six_processes_that_start_at_once_initialise_once_and_share_one_server(fresh: Path) -> None:
    command, env = python(ENSURE, fresh)
    starters = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    servers = [json.loads(starter.communicate(timeout=PATIENCE_SECONDS)[0]) for starter in starters]
    assert len({server["pid"] for server in servers}) == 1
    assert sorted(server["started"] for server in servers) == [False] * 5 + [True]
    assert psutil.pid_exists(servers[0]["pid"])


def test_a_kill_in_the_middle_of_initdb_leaves_nothing_half(fresh: Path) -> None:
    command, env = python(ENSURE, fresh)
    home = fresh / "postgres"
    with subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.DEVNULL) as starter:
        until(lambda: any(home.glob("initdb-*/base")))
        os.killpg(starter.pid, signal.SIGKILL)
    assert not (home / "data").exists()
    assert any(home.glob("initdb-*")), "the kill came too late to leave a half data directory"
    assert embedded.ensure(fresh).started
    assert not any(home.glob("initdb-*"))


def test_a_command_substitution_does_not_hang_on_the_server_left_behind(state_dir: Path) -> None:
    command, env = python(ENSURE, state_dir)
    done = subprocess.run(
        ["sh", "-c", 'x=$("$@" 2>&1); echo "got $x"', "sh", *command],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert done.stdout.startswith("got {")
    assert embedded.status(state_dir).running


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open descriptors are read from /proc")
def test_the_server_inherits_no_descriptor_but_the_lock_that_says_it_lives(state_dir: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        pid = embedded.ensure(state_dir).pid
        pipe = os.readlink(f"/proc/self/fd/{writer}")
    finally:
        os.close(reader)
        os.close(writer)
    held = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
    assert str(state_dir / "postgres" / "server.lock") in held
    assert not {str(state_dir / "postgres" / name) for name in ("start.lock", "users.lock")} & held
    assert pipe not in held


def test_a_second_call_finds_the_server_and_a_stopped_one_starts_again(state_dir: Path) -> None:
    assert not embedded.status(state_dir).running
    first = embedded.ensure(state_dir)
    second = embedded.ensure(state_dir)
    assert (first.started, second.started, second.pid) == (True, False, first.pid)
    found = embedded.status(state_dir)
    assert (found.running, found.url, found.pid) == (True, first.url, first.pid)
    assert embedded.url(state_dir) == first.url
    assert embedded.stop(state_dir)
    assert not embedded.status(state_dir).running
    assert not embedded.stop(state_dir)
    assert embedded.ensure(state_dir).started


def test_asking_about_a_folder_that_was_never_used_creates_nothing(base: Path) -> None:
    nowhere = base / "nowhere"
    found = embedded.status(nowhere)
    assert not found.running
    assert "never initialised" in found.reason
    assert not embedded.stop(nowhere)
    assert not nowhere.exists()


def test_two_projects_have_two_servers_and_stopping_one_leaves_the_other(state_dir: Path, base: Path) -> None:
    other = base / "other project"
    subprocess.run(["cp", "-a", str(state_dir), str(other)], check=True)
    try:
        ours, theirs = embedded.ensure(state_dir), embedded.ensure(other)
        assert ours.pid != theirs.pid
        assert ours.url != theirs.url
        assert embedded.stop(state_dir)
        with psycopg.connect(theirs.url) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
    finally:
        forget(other)


# --- what is refused ---


def test_a_data_directory_of_another_major_version_is_refused_by_name(state_dir: Path) -> None:
    (state_dir / "postgres" / "data" / "PG_VERSION").write_text("17\n")
    with pytest.raises(StoreUnreachable, match=r"made by PostgreSQL 17, but the installed one is \d\d"):
        embedded.ensure(state_dir)


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(fresh: Path) -> None:
    data = fresh / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "letter.txt").write_text("dear reader")
    with pytest.raises(StoreUnreachable, match="not a PostgreSQL data directory"):
        embedded.ensure(fresh)
    assert [path.name for path in data.iterdir()] == ["letter.txt"]


def test_a_server_that_cannot_start_says_so_in_its_own_words(state_dir: Path) -> None:
    with (state_dir / "postgres" / "data" / "postgresql.conf").open("a") as configuration:
        configuration.write("\nno_such_setting = 1\n")
    with pytest.raises(StoreUnreachable, match='unrecognized configuration parameter "no_such_setting"'):
        embedded.ensure(state_dir)


def test_a_socket_folder_that_others_could_have_made_is_refused(state_dir: Path) -> None:
    folder = Place.of(state_dir).socket_dir
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(StoreUnreachable, match="should be a private folder"):
        embedded.ensure(state_dir)
    if os.geteuid() == 0:
        folder.chmod(0o700)
        os.chown(folder, 65534, 65534)
        with pytest.raises(StoreUnreachable, match="should be a private folder"):
            embedded.ensure(state_dir)
    assert not server_processes(state_dir)


def test_a_server_with_fsync_off_is_refused_wherever_it_is_met(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    with psycopg.connect(server.url) as connection:
        embedded.check_durable(connection)
    with bootstrap(state_dir) as superuser:
        superuser.execute("alter system set fsync = off")
        superuser.execute("select pg_reload_conf()")
        until(lambda: superuser.execute("show fsync").fetchone() == ("off",))
    with psycopg.connect(server.url) as connection, pytest.raises(StoreUnreachable, match="fsync off"):
        embedded.check_durable(connection)
    with pytest.raises(StoreUnreachable, match="fsync off"):
        embedded.ensure(state_dir)
    assert "fsync off" in embedded.status(state_dir).reason


def test_a_role_with_synchronous_commit_off_is_refused(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    with bootstrap(state_dir) as superuser:
        superuser.execute("alter role scrape_assets set synchronous_commit = off")
    with psycopg.connect(server.url) as connection, pytest.raises(StoreUnreachable, match="synchronous_commit off"):
        embedded.check_durable(connection)
    with psycopg.connect(server.owner_url) as connection:
        embedded.check_durable(connection)


def test_a_server_older_than_sixteen_is_refused_by_its_version(fresh: Path) -> None:
    older = [found for found in Path("/usr/lib/postgresql").glob("*/bin") if int(found.parent.name) < 16]
    if not older:
        pytest.skip("no server older than PostgreSQL 16 is installed under /usr/lib/postgresql")
    place = Place.of(fresh)
    make_home(place)
    account = choose_account(place, older[0])
    run_as: dict[str, Any] = {
        **account.switch(),
        "env": scrubbed_environment(),
        "cwd": "/",
        "stdout": subprocess.DEVNULL,
    }
    place.data.mkdir(mode=0o700)
    os.chown(place.data, account.uid, account.gid)
    initdb: list[str | Path] = [older[0] / "initdb", "-D", place.data, "-U", BOOTSTRAP_ROLE, "-A", "trust", "--no-sync"]
    subprocess.run([*account.prefix, *initdb], check=True, **run_as)
    place.socket_dir.mkdir(mode=0o700)
    os.chown(place.socket_dir, account.uid, account.gid)
    command: list[str | Path] = [
        older[0] / "postgres",
        "-D",
        place.data,
        "-k",
        place.socket_dir,
        "-c",
        "listen_addresses=",
    ]
    with subprocess.Popen([*account.prefix, *command], stderr=subprocess.DEVNULL, **run_as) as server:
        try:
            until(lambda: answers(fresh))  # a socket is there before the server takes anybody
            with (
                bootstrap(fresh) as connection,
                pytest.raises(StoreUnreachable, match=r"PostgreSQL 1\d, but 16 or newer"),
            ):
                embedded.check_durable(connection)
        finally:
            server.send_signal(signal.SIGINT)


def answers(fresh: Path) -> bool:
    try:
        bootstrap(fresh).close()
    except psycopg.OperationalError:
        return False
    return True


# --- roles ---


def test_the_product_has_no_superuser_and_cannot_run_programs(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    for url in (server.url, server.owner_url):
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.execute("show is_superuser").fetchone() == ("off",)
            connection.execute("create temporary table lines (line text)")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("copy lines from program 'id'")


def test_the_owner_may_create_databases_and_the_application_may_not(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    with psycopg.connect(server.owner_url, autocommit=True) as owner:
        assert owner.execute(
            "select datdba::regrole::text from pg_database where datname = current_database()"
        ).fetchone() == ("scrape_assets_owner",)
        owner.execute("create database drill")
    with (
        psycopg.connect(server.url, autocommit=True) as application,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        application.execute("create database another")


def test_roles_carry_their_limits_and_the_server_listens_on_no_network(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout")
    expected = {server.url: ["10min", "5min", "1min"], server.owner_url: ["0", "5min", "1min"]}
    for url, limits in expected.items():
        with psycopg.connect(url) as connection:
            assert [connection.execute(f"show {name}").fetchone() for name in names] == [(limit,) for limit in limits]
            assert connection.execute("show listen_addresses").fetchone() == ("",)
            assert connection.execute("show max_connections").fetchone() == ("300",)
    assert not psutil.Process(server.pid).net_connections(kind="inet")


# --- kills and stale files ---


def test_a_committed_row_survives_the_kill_of_the_whole_server(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    with psycopg.connect(server.owner_url) as connection:
        connection.execute("create table kept (value int)")
        connection.execute("insert into kept values (42)")
    kill_server(state_dir)
    again = embedded.ensure(state_dir)  # at once: the pid file is stale, and the dead may still be zombies
    assert again.started
    assert again.pid != server.pid
    with psycopg.connect(again.owner_url) as connection:
        assert connection.execute("select value from kept").fetchall() == [(42,)]


def test_a_busy_backend_of_a_killed_server_is_ended_before_the_next_one_starts(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    with closing(psycopg.connect(server.url, autocommit=True)) as client:
        backend = psutil.Process(client.info.backend_pid)

        def never_ends() -> None:
            with suppress(psycopg.OperationalError):
                client.execute("do $$ begin loop end loop; end $$")

        query = threading.Thread(target=never_ends)
        query.start()
        with bootstrap(state_dir) as superuser:
            until(
                lambda: (
                    superuser.execute("select state from pg_stat_activity where pid = %s", [backend.pid]).fetchone()
                    == ("active",)
                )
            )
        psutil.Process(server.pid).kill()
        assert not embedded.status(state_dir).running
        assert alive(backend), "the backend ended on its own, so nothing was tested"
        again = embedded.ensure(state_dir)
        assert again.started
        assert not alive(backend)
        query.join(timeout=PATIENCE_SECONDS)
        assert not query.is_alive()


def test_a_starter_killed_before_the_server_answers_leaves_a_server_that_the_next_one_completes(
    state_dir: Path,
) -> None:
    embedded.ensure(state_dir)
    with bootstrap(state_dir) as superuser:  # as if killed between `initdb` and the making of roles and database
        superuser.execute("drop database scrape_assets")
        superuser.execute("drop role scrape_assets")
    server = embedded.ensure(state_dir)
    assert not server.started
    with psycopg.connect(server.url) as connection:
        assert connection.execute("select current_user, current_database()").fetchone() == ("scrape_assets",) * 2


@pytest.mark.parametrize(
    "content", [b"", b"12", b"not a pid\n", b"999999999\n/da"], ids=["empty", "cut", "text", "gone"]
)
def test_a_half_written_pid_file_does_not_stop_a_start(state_dir: Path, content: bytes) -> None:
    (state_dir / "postgres" / "data" / "postmaster.pid").write_bytes(content)
    assert not embedded.status(state_dir).running
    assert embedded.ensure(state_dir).started


def test_a_pid_reused_by_a_foreign_process_is_neither_believed_nor_signalled(
    state_dir: Path, stranger: subprocess.Popen[bytes]
) -> None:
    server = embedded.ensure(state_dir)
    pid_file = state_dir / "postgres" / "data" / "postmaster.pid"
    socket_lock = Path(f"{Place.of(state_dir).socket}.lock")
    forged = {
        path: path.read_text().replace(f"{server.pid}\n", f"{stranger.pid}\n", 1) for path in (pid_file, socket_lock)
    }
    kill_server(state_dir)
    for path, text in forged.items():
        path.write_text(text)
    found = embedded.status(state_dir)
    assert (found.running, found.pid) == (False, None)
    assert not embedded.stop(state_dir)
    assert embedded.ensure(state_dir).started
    assert embedded.stop(state_dir)
    assert stranger.poll() is None


def test_a_server_whose_socket_was_removed_is_named_and_can_still_be_stopped(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_SOCKET_LIMIT_SECONDS", 0.3)
    server = embedded.ensure(state_dir)
    Place.of(state_dir).socket.unlink()
    with pytest.raises(StoreUnreachable, match=rf"process {server.pid} serves .* but not at"):
        embedded.ensure(state_dir)
    assert embedded.stop(state_dir)
    assert not server_processes(state_dir)


# --- stop ---


def test_an_idle_stop_leaves_a_server_with_another_client_and_stops_it_afterwards(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    with psycopg.connect(server.url) as client:
        assert not embedded.stop(state_dir, only_if_idle=True)
        assert client.execute("select 1").fetchone() == (1,)
    assert embedded.stop(state_dir, only_if_idle=True)
    assert not server_processes(state_dir)


def test_an_idle_stop_leaves_a_server_to_a_process_that_has_it_but_is_not_connected_yet(state_dir: Path) -> None:
    embedded.ensure(state_dir)
    command, env = python(ENSURE + "sys.stdin.read()", state_dir)
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert json.loads(other.stdout.readline())["started"] is False
        assert not embedded.stop(state_dir, only_if_idle=True)
        other.kill()  # killed, not closed: a dead user must not count
    assert embedded.stop(state_dir, only_if_idle=True)


def test_an_explicit_stop_ends_clients_and_leaves_no_process_and_no_socket(state_dir: Path) -> None:
    server = embedded.ensure(state_dir)
    with closing(psycopg.connect(server.owner_url)) as client:
        client.execute("create table open_work (value int)")
        assert embedded.stop(state_dir)
        with pytest.raises(psycopg.OperationalError):
            client.execute("select 1")
    assert not server_processes(state_dir)
    assert not Place.of(state_dir).socket_dir.exists()
    server = embedded.ensure(state_dir)
    with psycopg.connect(server.url) as connection:
        assert connection.execute("select to_regclass('open_work')").fetchone() == (None,)


# --- accounts ---


def ordinary_user() -> tuple[pwd.struct_passwd, str]:
    """An existing unprivileged user, and a Python that this user can run with our packages; skips without."""
    try:
        user = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("there is no user named nobody")
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for interpreter in (sys.executable, f"/usr/bin/{minor}", f"/usr/local/bin/{minor}"):
        command, env = python("import psycopg, psutil, scrape_assets.store.embedded", Path(), interpreter=interpreter)
        with suppress(OSError):
            tried = subprocess.run(
                command,
                env=env,
                capture_output=True,
                cwd="/",
                check=False,
                user=user.pw_uid,
                group=user.pw_gid,
                extra_groups=[],
            )
            if tried.returncode == 0:
                return user, interpreter
    pytest.skip(f"nobody can reach no {minor} with the packages in {PACKAGES} and {REPO}")


@as_root
def test_an_ordinary_user_starts_uses_and_stops_a_server(fresh: Path) -> None:
    user, interpreter = ordinary_user()
    fresh.mkdir()
    os.chown(fresh, user.pw_uid, user.pw_gid)
    script = ENSURE + (
        "import psycopg\n"
        "with psycopg.connect(embedded.url(Path(sys.argv[1]))) as connection:\n"
        "    connection.execute('select 1')\n"
        "assert embedded.stop(Path(sys.argv[1]), only_if_idle=True)\n"
    )
    command, env = python(script, fresh, interpreter=interpreter, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        command,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd="/",
        check=False,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["started"]
    assert (fresh / "postgres" / "data").stat().st_uid == user.pw_uid
    # Root, coming later, runs it as that user again, and leaves the folder in that user's hands.
    server = embedded.ensure(fresh)
    assert psutil.Process(server.pid).uids().effective == user.pw_uid
    assert embedded.stop(fresh)
    done = subprocess.run(
        command,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd="/",
        check=False,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
    )
    assert done.returncode == 0, done.stderr


@as_root
def test_root_runs_the_server_as_an_ordinary_user_where_one_can_reach_it(fresh: Path) -> None:
    ordinary_user()
    process = psutil.Process(embedded.ensure(fresh).pid)
    assert 0 not in (*process.uids(), *process.gids())


@as_root
def test_without_user_namespaces_root_uses_an_existing_user_and_keeps_to_it(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary_user()
    with monkeypatch.context() as no_unshare:
        no_unshare.setenv("PATH", "/nonexistent")
        first = embedded.ensure(fresh)
    uid = psutil.Process(first.pid).uids().effective
    assert uid != 0
    assert embedded.stop(fresh)
    assert psutil.Process(embedded.ensure(fresh).pid).uids().effective == uid


@as_root
def test_root_in_a_folder_that_nobody_else_can_enter_is_served_or_told_why_and_no_parent_is_opened(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = base / "locked"
    locked.mkdir(mode=0o700)
    state_dir = locked / "state"
    try:
        try:
            with psycopg.connect(embedded.ensure(state_dir).url) as connection:
                connection.execute("select 1")
            shutil.rmtree(state_dir) if embedded.stop(state_dir) else None
        except StoreUnreachable as error:
            assert "user namespace" in str(error)
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(StoreUnreachable, match="as an ordinary user"):
            embedded.ensure(state_dir)
        assert locked.stat().st_mode & 0o777 == 0o700
        assert not any(state_dir.glob("postgres/*data*"))
    finally:
        forget(state_dir)
