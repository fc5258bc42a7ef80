"""What tests of the browser share: whether there is one, which processes it has, and who must not hear from it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable

import psutil
import pytest

from scrape_assets.sources import chromium
from scrape_assets.sources.chromium import BrowserOptions

PROGRAM = os.environ.get("SCRAPE_ASSETS_CHROMIUM") or None

needs_chromium = pytest.mark.skipif(
    chromium.problem(BrowserOptions(PROGRAM)) is not None,
    reason=f"no browser: {chromium.problem(BrowserOptions(PROGRAM))}",
)


def browsers(of: int | None = None) -> list[psutil.Process]:
    """The driver and all processes of the browsers that this process, or another, has started."""
    found: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(of).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words = child.cmdline()
                if "run-driver" in words or any(word.startswith(("--user-data-dir=", "--type=")) for word in words):
                    found.append(child)
    return found


def main_process(of: int | None = None) -> psutil.Process:
    """Chromium itself: neither the one that watches over it nor one of its helpers."""
    (found,) = (
        one
        for one in browsers(of)
        if any(word.startswith("--user-data-dir=") for word in one.cmdline())
        and not any(word.startswith("--type=") or word.endswith("chromium_child.py") for word in one.cmdline())
    )
    return found


def live(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and _status(one) != psutil.STATUS_ZOMBIE]


def _status(one: psutil.Process) -> str:
    try:
        return one.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def all_gone(processes: list[psutil.Process], seconds: float = 20.0) -> bool:
    give_up = time.monotonic() + seconds
    while live(processes) and time.monotonic() < give_up:
        time.sleep(0.1)
    return not live(processes)


def stop(process: psutil.Process) -> None:
    """It hangs from now on."""
    process.send_signal(signal.SIGSTOP)


async def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


class Internal:
    """A service of ours that no page may reach: it counts connections and datagrams."""

    def __init__(self) -> None:
        self.port = 0
        self.heard: list[bytes] = []

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(b"tcp")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self.heard[-1] = await asyncio.wait_for(reader.read(200), 1)
        writer.close()


@contextlib.asynccontextmanager
async def internal() -> AsyncIterator[Internal]:
    it = Internal()
    server = await asyncio.start_server(it._connected, "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    servers = [server]
    with contextlib.suppress(OSError):
        servers.append(await asyncio.start_server(it._connected, "::1", it.port))

    class Datagrams(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, _addr: object) -> None:
            it.heard.append(data)

    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", it.port))
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Datagrams, sock=udp)
    try:
        yield it
    finally:
        transport.close()
        for one in servers:
            one.close()
