"""The server behind `dev`: Dagster's UI and daemon as children of one process, which ends with them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

from scrape_assets import settings as environment_settings
from scrape_assets.datasets import load
from scrape_assets.defs import instance
from scrape_assets.errors import DeclarationError, ScrapeAssetsError
from scrape_assets.settings import Settings, Store

READY_SECONDS = 900.0
"""How long Dagster may take to answer: a cold start on a busy machine is minutes of imports."""

STOP_SECONDS = 30.0
"""How long a collecting run may take to give its leases back before it is ended."""

CODE_SERVER_SILENCE_SECONDS = 120
"""A code server that hears nothing for so long ends. Dagster's own 20 s are less than a busy machine may stall."""

LOG_TAIL = 2000

_IS_LOADED = """{ workspaceOrError { __typename ... on Workspace { locationEntries {
  loadStatus locationOrLoadError { __typename ... on PythonError { message } } } } } }"""

# Run by the child before it becomes Dagster. It asks to be ended when its parent dies, and takes back its
# signals: a shell that starts us in the background has them ignored, and Dagster's SIGTERM does what SIGINT does.
# Imports are the long part of a start: who waits for the code server does its own meanwhile.
_TETHERED = """
import importlib, os, runpy, signal, socket, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
awaited, commands, module = sys.argv[2:5]
importlib.import_module(commands)
while awaited:
    with socket.socket(socket.AF_UNIX) as code_server:
        if code_server.connect_ex(awaited) == 0:
            break
    time.sleep(0.2)
sys.argv = sys.argv[4:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def serve(settings: Settings, *, host: str = "127.0.0.1", port: int, on_ready: Callable[[str], None]) -> int:
    """Dagster served until SIGINT or SIGTERM, or until one of its processes ended by itself, which is an error.

    Port 0 takes a free one.
    `on_ready` is called once, with the UI's address, when Dagster answers and has loaded the project. The
    embedded Postgres is left running; everything else that was started here has ended on return.
    """
    load.project(settings.project)
    with environment_settings.open_store(settings, keep=True) as store, _asked_to_stop() as asked:
        cleared = clear_dead_runs(settings, store)
        # Not in DAGSTER_HOME/logs: that folder is Dagster's telemetry, which uploads and empties it.
        logs = settings.state / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "cleared_runs.log").write_text("".join(f"{run_id}\n" for run_id in cleared))
        env = environment_settings.environment(settings, store)
        port = _free_port(host, port)
        url = f"http://{host}:{port}"
        children: list[_Child] = []
        with tempfile.TemporaryDirectory(prefix="scrape-assets-dev-") as meeting:
            try:
                for child in _processes(Path(meeting), host, port):
                    child.start(env, logs)
                    children.append(child)
                if _wait_until_ready(url, children, asked):
                    on_ready(url)
                while not asked.wait(0.5):
                    _all_alive(children)
            finally:
                _stop(children)
    return 0


def _free_port(host: str, port: int) -> int:
    """That port, or any free one for 0; DeclarationError when nobody can listen there.

    Found out before Dagster is started: another server at this address would answer in its place.
    """
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
            return int(listening.getsockname()[1])
    except (OSError, OverflowError) as error:
        raise DeclarationError(
            f"the UI cannot listen at {host}, port {port}: {error}; name another --port, or 0 for a free one"
        ) from error


class _Child:
    """One of Dagster's own processes, in a session of its own, its output in a file."""

    def __init__(self, name: str, module: str, commands: str, arguments: list[str], *, awaits: str = "") -> None:
        self.name = name
        self._words = [awaits, commands, module, *arguments]

    def start(self, env: dict[str, str], logs: Path) -> None:
        """It runs, and is ended when this process is."""
        self.log = logs / f"{self.name}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _TETHERED, str(os.getpid()), *self._words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )


def _processes(meeting: Path, host: str, port: int) -> list[_Child]:
    """The server of our definitions, and the two that ask it: one copy of the code for both."""
    code = str(meeting / "code_server")
    load = meeting / "workspace.yaml"
    load.write_text(json.dumps({"load_from": [{"grpc_server": {"socket": code, "location_name": "scrape_assets"}}]}))
    serving = ["code-server", "start", "-m", "scrape_assets.definitions", "--location-name", "scrape_assets"]
    silence = ["--heartbeat-ttl", str(CODE_SERVER_SILENCE_SECONDS)]
    return [
        _Child("code_server", "dagster", "dagster._cli", [*serving, "--socket", code, *silence]),
        _Child(
            "webserver",
            "dagster_webserver",
            "dagster_webserver.cli",
            ["-h", host, "-p", str(port), "-w", str(load)],
            awaits=code,
        ),
        _Child("daemon", "dagster._daemon", "dagster._daemon.cli", ["run", "-w", str(load)], awaits=code),
    ]


def _all_alive(children: list[_Child]) -> None:
    for child in children:
        if (code := child.process.poll()) is not None:
            said = child.log.read_bytes()[-LOG_TAIL:].decode(errors="replace").strip()
            raise ScrapeAssetsError(f"Dagster's {child.name} ended with {code}; {child.log} ends with:\n{said}")


def _wait_until_ready(url: str, children: list[_Child], asked: threading.Event) -> bool:
    """True when Dagster answered a query and has loaded the project; False when asked to stop before that."""
    deadline = time.monotonic() + READY_SECONDS
    while not asked.wait(0.3):
        _all_alive(children)
        with suppress(OSError, ValueError):
            found = query(url, _IS_LOADED)["workspaceOrError"].get("locationEntries", [])
            if found and all(entry["loadStatus"] == "LOADED" for entry in found):
                wrong = [e["locationOrLoadError"].get("message") for e in found]
                if any(wrong):
                    raise ScrapeAssetsError(f"Dagster cannot load the project: {'; '.join(w for w in wrong if w)}")
                return True
        if time.monotonic() > deadline:
            raise ScrapeAssetsError(
                f"Dagster did not answer at {url} within {READY_SECONDS:.0f} s; its words are in {children[0].log}"
            )
    return False


def query(url: str, text: str, variables: dict[str, Any] | None = None, *, timeout: float = 60) -> dict[str, Any]:
    """The data of a GraphQL answer; OSError when nobody answers, ValueError with the errors it has."""
    body = json.dumps({"query": text, "variables": variables or {}}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"content-type": "application/json"})  # noqa: S310 - our own server
    # Without proxies: one of the environment has no business between this machine and itself.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answer:
        said = json.load(answer)
    if said.get("errors"):
        raise ValueError(json.dumps(said["errors"])[:LOG_TAIL])
    return dict(said["data"])


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Set by SIGINT or SIGTERM."""
    asked = threading.Event()
    before = {n: signal.signal(n, lambda *_: asked.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(children: list[_Child]) -> None:
    """The children have ended and everything that they started, runs first: those give their leases back."""
    family: list[psutil.Process] = []
    runs: list[psutil.Process] = []
    for child in children:
        with suppress(psutil.Error):
            process = psutil.Process(child.process.pid)
            family += [process, *process.children(recursive=True)]
    for process in family:
        with suppress(psutil.Error):
            if "grpc" in process.cmdline():
                runs += process.children()
    # The daemon at once too, so that it starts no further run; the code server only when its runs have ended.
    asking = {child.process.pid for child in children if child.name != "code_server"}
    _end([*(p for p in family if p.pid in asking), *runs], STOP_SECONDS)
    _end(family, STOP_SECONDS / 3)
    for process in family:
        with suppress(psutil.Error):
            process.kill()
    for child in children:
        child.process.wait()


def _end(processes: list[psutil.Process], seconds: float) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(processes, timeout=seconds)


def clear_dead_runs(settings: Settings, store: Store) -> list[str]:
    """Runs that Dagster believes under way although their process is gone are failed; returns their ids.

    Without this a killed run would keep its place and its retailer until its time limit. On a server that
    other machines may use, only runs that left their output in this DAGSTER_HOME are looked at.
    """
    cleared = []
    with instance.opened(settings, store) as dagster:
        for run in dagster.get_runs(
            dg.RunsFilter(
                statuses=[
                    dg.DagsterRunStatus.STARTING,
                    dg.DagsterRunStatus.STARTED,
                    dg.DagsterRunStatus.CANCELING,
                ]
            )
        ):
            if settings.database_url and not (settings.dagster_home / "storage" / run.run_id).exists():
                continue
            events = dagster.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
            started = [(e.timestamp, _process_id(e)) for e in events if _process_id(e) is not None]
            # One that has not said its process yet was launched by a server of ours, which is gone as well.
            is_dead = not _lives(*started[-1]) if started else not settings.database_url
            if not is_dead:
                continue
            message = (
                "The process of this run is gone, the server found at its start. Run the partition again to resume it."
            )
            if run.status is dg.DagsterRunStatus.CANCELING:
                dagster.report_run_canceled(run, message)
            else:
                dagster.report_run_failed(run, message)
            dagster.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            cleared.append(run.run_id)
    return cleared


def _process_id(entry: Any) -> int | None:
    data = entry.dagster_event.engine_event_data if entry.dagster_event else None
    found = data.metadata.get("pid") if data else None
    return int(found.value) if found is not None else None


def _lives(since: float, pid: int | None) -> bool:
    """Whether the process of that time still runs; a later one under its number is another."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= since + 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
