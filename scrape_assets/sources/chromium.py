"""One running Chromium: found, started without a network of its own, measured with all its processes, ended for sure.

Playwright drives it. What a page asks for is answered by `sources.browser_page`; nothing else leads out, since no host
resolves and the only proxy is none. `sources.chromium_child` ends it with the worker.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from scrape_assets.errors import ScrapeAssetsError

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
"""Under which Debian, Fedora, Ubuntu and its makers put it on PATH."""

START_SECONDS = 60.0
"""A browser that does not answer by then does not start; a busy machine takes its time."""

CLOSE_SECONDS = 5.0
"""A browser, or a page of it, that is not closed by then hangs, and is ended."""

_MB = 1024 * 1024
_CHILD = Path(__file__).with_name("chromium_child.py")
# Secrets of ours (the database's address) are no business of a process that shows hostile pages.
_PRIVATE_ENVIRONMENT = "SCRAPE_ASSETS_"

ARGUMENTS = (
    # Requests of pages are answered by us. What goes past that (a preconnect, a redirect, a worker's websocket, the
    # browser's own errands) finds no host and no way: every connection is for a proxy whose name nothing resolves.
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://no-network.invalid:1",
    "--proxy-bypass-list=<-loopback>",
    "--disable-quic",
    # The older and the newer name of one switch.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--deny-permission-prompts",
)


class BrowserUnavailable(ScrapeAssetsError):
    """A retailer is fetched by a browser, and there is none that starts."""


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """The machine's browser: its program, else found on PATH; memory of all its processes; pages at a time."""

    program: str | None = None
    memory_bytes: int = 1_000_000_000
    pages: int = 4


def find(options: BrowserOptions) -> str | None:
    """The program that is started, as a path; None where there is none."""
    if options.program is not None:
        return shutil.which(options.program)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def problem(options: BrowserOptions) -> str | None:
    """Why no page can be fetched by a browser here, and what to install; None when all is there."""
    if importlib.util.find_spec("playwright") is None:
        return "via: browser needs Playwright; install the extra: pip install 'scrape-assets[browser]'"
    if find(options) is not None:
        return None
    if options.program is not None:
        return f"SCRAPE_ASSETS_CHROMIUM={options.program}: there is no such program; expected the path of a Chromium"
    return (
        f"via: browser needs Chromium, and none of {', '.join(NAMES)} is on PATH; install it (Debian: apt install "
        "chromium), or name it: SCRAPE_ASSETS_CHROMIUM=/path/to/chromium"
    )


class Chromium:
    """A browser with its driver and its folder, until `close`."""

    def __init__(self, playwright: Playwright, driver: psutil.Process, folder: Path) -> None:
        self._playwright = playwright
        self._driver = driver
        self._folder = folder
        self.browser: Browser
        self.lost = False
        """Whether it ended without being asked."""
        self.must_go = False
        """Whether it gets no further page: over its memory, or lost."""
        self.showing = 0
        """Pages in flight."""
        self.memory_bytes = 0
        """Of all its processes, as last measured."""

    @classmethod
    async def start(cls, options: BrowserOptions) -> Self:
        """A browser that answers; BrowserUnavailable with its own words for one that does not."""
        if said := problem(options):
            raise BrowserUnavailable(said)
        from playwright.async_api import Error, async_playwright  # noqa: PLC0415 # an extra, imported where it is used

        program = find(options)
        assert program is not None
        folder = Path(tempfile.mkdtemp(prefix="scrape-assets-browser-"))
        known = {child.pid for child in psutil.Process().children()}
        started: Chromium | None = None
        try:
            manager = async_playwright()
            playwright = await manager.start()
            _retrieve_errors(manager)
            driver = next(
                child for child in psutil.Process().children() if child.pid not in known and _is_driver(child)
            )
            started = cls(playwright, driver, folder)
            started.browser = await playwright.chromium.launch(
                executable_path=_script(folder, program),
                artifacts_dir=folder,
                headless=True,
                # Chromium refuses to build its sandbox as root.
                chromium_sandbox=os.geteuid() != 0,
                args=list(ARGUMENTS),
                env=_environment(),
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
                timeout=START_SECONDS * 1000,
            )
            started.browser.on("disconnected", lambda _: started.failed())
            return started
        except BaseException as error:
            if started is None:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                await started.kill()
            if isinstance(error, Error | OSError | StopIteration):
                raise BrowserUnavailable(f"{program} does not start: {_words(error)}") from error
            raise

    def measure(self) -> int:
        """Bytes of memory of all its processes together, what they share counted once; takes some 20 ms."""
        self.memory_bytes = sum(_memory(process) for process in self._processes())
        return self.memory_bytes

    def end_largest(self) -> None:
        """The process that shows the largest page has ended; the page's own visit is told so by Playwright."""
        pages = [process for process in self._processes() if "--type=renderer" in _command(process)]
        with suppress(psutil.Error):
            max(pages, key=_memory).kill() if pages else self._driver.kill()

    def _processes(self) -> Iterator[psutil.Process]:
        with suppress(psutil.Error):
            yield from self._driver.children(recursive=True)
            yield self._driver

    def failed(self) -> None:
        """It did something that it should not: no page can count on it any more."""
        self.lost = self.must_go = True

    async def close(self) -> None:
        """It has ended, by itself or by force, with all its processes, and its folder is gone."""
        # A driver that is lost fails in many ways, or says nothing; what counts is that nothing is left.
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.browser.close()
        await self.kill()

    async def kill(self) -> None:
        """None of its processes is left, however they hang."""
        self.must_go = True
        await asyncio.to_thread(self._kill_browser)
        stopping = asyncio.ensure_future(self._playwright.stop())
        await asyncio.wait({stopping}, timeout=CLOSE_SECONDS)
        with suppress(psutil.Error):
            # Not waited for by psutil: it is a child of ours, and asyncio's to bury.
            self._driver.kill()
        await asyncio.wait({stopping}, timeout=CLOSE_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _kill_browser(self) -> None:
        processes = [process for process in self._processes() if process != self._driver]
        for process in processes:
            # The one that watches over the browser ends by itself, after it has removed the folders.
            if not any(word.endswith(_CHILD.name) for word in _command(process)):
                with suppress(psutil.Error):
                    process.kill()
        _, left = psutil.wait_procs(processes, timeout=CLOSE_SECONDS)
        for process in left:
            with suppress(psutil.Error):
                process.kill()


def _retrieve_errors(manager: Any) -> None:
    """The end of the driver is told by each act that fails; asyncio need not tell it once more on stderr."""
    with suppress(AttributeError):
        error = manager._client._transport.on_error_future  # noqa: SLF001 - nothing public leads there
        error.add_done_callback(lambda future: future.cancelled() or future.exception())


def _script(folder: Path, program: str) -> str:
    """Playwright starts one program with its own arguments; this one watches over the browser."""
    script = folder / "chromium"
    command = shlex.join([sys.executable, "-I", "-S", str(_CHILD), str(os.getpid()), str(folder), program])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o700)
    return str(script)


def _environment() -> dict[str, str | float | bool]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE_ENVIRONMENT)}


def _is_driver(process: psutil.Process) -> bool:
    return "run-driver" in _command(process)


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        full = process.memory_full_info()
        # Only Linux knows a process's share of what it shares; elsewhere the sum is too large, which is the safe side.
        return int(getattr(full, "pss", full.rss))
    return 0


def _words(error: BaseException) -> str:
    """The browser's own complaint among what Playwright says, or the first lines of that."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = list(dict.fromkeys(line.partition("[err]")[2].strip() for line in lines if "[err]" in line))
    return " ".join((own or lines or [type(error).__name__])[:3])[:600]
