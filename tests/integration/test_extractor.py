"""The extraction processes against page objects that crash, eat memory, hang and print."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from scrape_assets.datasets import page_objects
from scrape_assets.rules.page import Response
from scrape_assets.rules.spec import ExtractRule, PageRule
from scrape_assets.rules.states import FailureClass, PageState
from scrape_assets.sources.extractor import ExtractorPool, ExtractorUnavailable, Judgement, Setup

pytestmark = pytest.mark.slow  # starts and kills many processes

ROOT = Path(__file__).parents[2]
MB = 1024 * 1024
HTML = b"<html><head><title>Lamp</title></head><body><h1>Lamp</h1>" + b"<p>words</p>" * 100 + b"</body></html>"

PAGES = """
import os, sys, time

kept = []

def behave(page):
    name = page.url.rsplit("/", 1)[-1]
    if name.startswith("exit"):
        os._exit(137)
    if name.startswith("quit"):
        sys.exit("enough")
    if name.startswith("eat"):
        while True:
            kept.append(bytearray(8 * 1024 * 1024))
    if name.startswith("grow"):
        block = bytearray(os.urandom(1024)) * (40 * 1024)
    if name.startswith("hang"):
        open(os.path.join(os.path.dirname(__file__), "hanging"), "w").close()
        while True:
            pass
    if name.startswith("nap"):
        time.sleep(0.5)
    if name.startswith("raise"):
        raise RuntimeError("no such\\nlamp")
    if name.startswith("close"):
        os.closerange(3, 256)
    if name.startswith("print"):
        print("printed by a page object")
    if name.startswith("nul"):
        return {"sku": name, "name": "a\\0b"}
    if name.startswith("keyless"):
        return {"name": name}
    if name.startswith("twins"):
        return [{"sku": "t", "price": 1}, {"sku": "t", "price": 2}]
    return {"sku": name, "name": page.css("h1")[0], "process": os.getpid()}
"""


def response(name: str, body: bytes = HTML, status: int = 200) -> Response:
    url = f"https://shop.example/{name}"
    return Response(url, url, status, {"content-type": "text/html; charset=utf-8"}, body)


class Shop:
    """A retailer read by the page object above, and the pool it is read in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pages.py").write_text(PAGES, encoding="utf-8")

    def setup(self, page_object: str = "pages.py:behave", **page: Any) -> Setup:
        rule = ExtractRule(
            retailer="shop",
            page=PageRule(page_object=page_object, **page),
            key=("sku",),
            schema_name="pages.py:Lamp",
        )
        return Setup(
            f"{page_object}{page}", rule.model_dump_json(), str(self.folder), page_object, "lamps", "shop", "2026-11-20",
            page_objects.sources(self.folder),
        )  # fmt: skip

    async def judge(self, pool: ExtractorPool, name: str, **page: Any) -> Judgement:
        found = response(name)
        return await pool.judge(found, self.setup(**page), canonical_url=found.url)

    def run(self, work: Callable[[ExtractorPool], Coroutine[Any, Any, Any]], processes: int = 1, **options: Any) -> Any:
        # Long where nothing is said: a busy machine must not look like a page that hangs.
        options = {"timeout_seconds": 250.0} | options

        async def main() -> Any:
            async with ExtractorPool(processes, **options) as pool:
                return await work(pool)

        return asyncio.run(main())

    def judgements(self, *names: str, processes: int = 1, **options: Any) -> list[Judgement]:
        async def work(pool: ExtractorPool) -> list[Judgement]:
            return await asyncio.gather(*(self.judge(pool, name) for name in names))

        found: list[Judgement] = self.run(work, processes, **options)
        return found


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def good(judgement: Judgement) -> bool:
    return judgement.failure_class is None and judgement.row_count == 1


def test_a_page_gives_rows_that_the_database_reads(shop: Shop) -> None:
    (found,) = shop.judgements("a1")
    assert (found.page_state, found.failure_class, found.row_count) == (PageState.EXPECTED, None, 1)
    (row,) = found.observations()
    assert set(row) == {"observation_key", "entity_key", "payload", "payload_hash", "sources"}
    assert (row["payload"]["sku"], row["payload"]["name"]) == ("a1", "Lamp")
    assert row["payload"]["process"] != os.getpid()
    assert json.loads(found.rows) == [row]
    assert found.peak_memory_mb > 10
    assert found.seconds > 0


def test_a_crash_is_charged_to_its_page_alone_and_the_pool_goes_on(shop: Shop) -> None:
    names = [f"a{number}" for number in range(200)]
    names[50:50] = ["exit1"]
    names[120:120] = ["exit2"]
    found = dict(zip(names, shop.judgements(*names, processes=2), strict=True))
    crashed = {name for name, one in found.items() if one.failure_class is FailureClass.EXTRACTOR_CRASHED}
    assert crashed == {"exit1", "exit2"}
    assert "exit code 137" in found["exit1"].reason
    assert "MB" in found["exit1"].reason
    assert sum(good(one) for one in found.values()) == 200
    processes = {one.observations()[0]["payload"]["process"] for one in found.values() if good(one)}
    assert len(processes) >= 3


def test_a_page_that_eats_memory_is_stopped_at_the_limit_and_its_process_replaced(shop: Shop) -> None:
    first, eater, after = shop.judgements("a1", "eat", "a2", memory_bytes=64 * MB)
    assert eater.failure_class is FailureClass.EXTRACTOR_CRASHED
    assert "64 MB" in eater.reason
    assert eater.peak_memory_mb < first.peak_memory_mb + 64
    assert good(first)
    assert good(after)
    assert first.observations()[0]["payload"]["process"] != after.observations()[0]["payload"]["process"]


def test_the_answer_of_a_process_that_leaves_is_not_lost_to_a_page_that_is_sent_meanwhile(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> list[Judgement]:
        await shop.judge(pool, "a1")
        grown = asyncio.ensure_future(shop.judge(pool, "grow"))
        await asyncio.sleep(0)
        time.sleep(3.0)  # the answer is here, and the loop has not read it
        return await asyncio.gather(grown, shop.judge(pool, "a2"))

    grown, after = shop.run(work, memory_bytes=64 * MB)
    assert good(grown), grown
    assert good(after), after


def test_a_process_that_grew_is_replaced_between_two_pages(shop: Shop) -> None:
    before, grown, after = shop.judgements("a1", "grow", "a2", memory_bytes=64 * MB)
    assert all(good(one) for one in (before, grown, after))
    processes = [one.observations()[0]["payload"]["process"] for one in (before, grown, after)]
    assert processes[0] == processes[1] != processes[2]


def test_a_page_that_hangs_is_stopped_and_the_page_behind_it_is_read(shop: Shop) -> None:
    hung, after = shop.judgements("hang", "a1", timeout_seconds=6.0)
    assert hung.failure_class is FailureClass.EXTRACTOR_CRASHED
    assert "hung for 6 s" in hung.reason
    assert good(after)


def test_a_page_that_hangs_holds_nobody_up(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> tuple[list[Judgement], bool]:
        hanging = asyncio.create_task(shop.judge(pool, "hang"))
        behind = await asyncio.gather(*(shop.judge(pool, f"a{number}") for number in range(30)))
        still = not hanging.done()
        hanging.cancel()
        return behind, still

    behind, still_hanging = shop.run(work)
    assert all(good(one) for one in behind)
    assert still_hanging


def test_a_page_that_was_only_slow_is_read_and_so_are_those_behind_it(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> tuple[list[Judgement], int]:
        pages = [shop.judge(pool, "nap"), *(shop.judge(pool, f"a{n}") for n in range(20))]
        reading = asyncio.gather(*pages)
        while len(pool.process_ids) < 2:
            await asyncio.sleep(0.01)
        found = await reading
        while len(pool.process_ids) != 1:
            await asyncio.sleep(0.05)
        found += await asyncio.gather(*(shop.judge(pool, f"b{n}") for n in range(20)))
        return found, len(pool.process_ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrape_assets.sources.extractor.SLOW_SECONDS", 0.1)
        found, processes = shop.run(work)
    assert all(good(one) for one in found)
    assert processes == 1, "who stood in has gone"


def test_a_slow_page_is_no_crash(shop: Shop) -> None:
    assert all(good(one) for one in shop.judgements("nap1", "nap2", "nap3", timeout_seconds=60.0))


def test_the_loop_stays_responsive_while_a_page_blocks(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> int:
        page = asyncio.create_task(shop.judge(pool, "hang"))
        beats = 0
        while not page.done():
            await asyncio.sleep(0.05)
            beats += 1
        return beats

    assert shop.run(work, timeout_seconds=3.0) >= 10


def test_a_process_killed_from_outside_is_named_by_its_signal_and_replaced(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> list[Judgement]:
        waiting = [asyncio.create_task(shop.judge(pool, name)) for name in ("hang", "a1", "a2")]
        while not (shop.folder / "hanging").exists():
            await asyncio.sleep(0.05)
        (process,) = pool.process_ids
        os.kill(process, signal.SIGKILL)
        found = await asyncio.gather(*waiting)
        assert pool.process_ids != [process]
        return found

    hung, *others = shop.run(work)
    assert hung.failure_class is FailureClass.EXTRACTOR_CRASHED
    assert "SIGKILL" in hung.reason
    assert all(good(one) for one in others)


def test_a_process_that_lost_its_connection_is_replaced(shop: Shop) -> None:
    lost, after = shop.judgements("close", "a1")
    assert lost.failure_class is FailureClass.EXTRACTOR_CRASHED
    assert good(after)


@pytest.mark.parametrize(
    ("name", "failure_class", "words"),
    [
        ("raise", FailureClass.EXTRACTION, "RuntimeError: no such lamp"),
        ("quit", FailureClass.EXTRACTION, "SystemExit: enough"),
        ("nul", FailureClass.UNSTORABLE, "name"),
        ("keyless", FailureClass.EXTRACTION, "'sku'"),
        ("twins", FailureClass.EXTRACTION, "contradict"),
    ],
)
def test_a_fault_of_a_page_is_its_judgement(shop: Shop, name: str, failure_class: FailureClass, words: str) -> None:
    found, after = shop.judgements(name, "a1")
    assert found.failure_class is failure_class
    assert words in found.reason
    assert "\n" not in found.reason
    assert found.observations() == []
    assert good(after)


def test_the_declared_choice_decides_between_contradicting_rows(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> Judgement:
        return await shop.judge(pool, "twins", duplicates="last")

    found = shop.run(work)
    assert found.collisions == 1
    assert [row["payload"]["price"] for row in found.observations()] == [2]


def test_a_page_object_that_cannot_be_loaded_fails_its_pages_and_no_others(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> list[Judgement]:
        return await asyncio.gather(shop.judge(pool, "a1", page_object="pages.py:behav"), shop.judge(pool, "a2"))

    broken, fine = shop.run(work)
    assert broken.failure_class is FailureClass.EXTRACTION
    assert "pages.py" in broken.reason
    assert "did you mean 'behave'" in broken.reason
    assert good(fine)


def test_a_large_body_and_an_empty_one_pass_through(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> list[Judgement]:
        pages = [response("big", HTML + b"<!--" + b"x" * 5_000_000 + b"-->"), response("none", b"")]
        return await asyncio.gather(*(pool.judge(one, shop.setup(), canonical_url=one.url) for one in pages))

    big, none = shop.run(work)
    assert good(big)
    assert none.failure_class not in (None, FailureClass.EXTRACTOR_CRASHED)


def test_a_status_is_judged_without_the_page_object(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> Judgement:
        gone = response("exit", status=404)
        return await pool.judge(gone, shop.setup(), canonical_url=gone.url)

    assert shop.run(work).failure_class is FailureClass.GONE


def test_the_entity_of_the_task_is_the_key_where_none_is_declared(shop: Shop) -> None:
    rule = ExtractRule(retailer="shop", page=PageRule(page_object="pages.py:behave"), schema_name="pages.py:Lamp")
    setup = Setup("k", rule.model_dump_json(), str(shop.folder), "pages.py:behave", "lamps", "shop", "2026-11-20", page_objects.sources(shop.folder))  # fmt: skip

    async def work(pool: ExtractorPool) -> list[str]:
        page = response("a1")
        both = await asyncio.gather(
            pool.judge(page, setup, canonical_url=page.url, entity="E1"),
            pool.judge(page, setup, canonical_url=page.url),
        )
        return [one.observations()[0]["entity_key"] for one in both]

    assert shop.run(work) == ['["shop","E1"]', '["shop","https://shop.example/a1"]']


def test_a_run_goes_on_with_the_pages_py_that_it_was_planned_with(shop: Shop) -> None:
    planned = shop.setup()
    (shop.folder / "pages.py").write_text("def behave(page):\n    raise RuntimeError('edited for tomorrow')\n")

    async def work(pool: ExtractorPool) -> tuple[Judgement, Judgement]:
        page = response("a1")
        return (
            await pool.judge(page, planned, canonical_url=page.url),
            await pool.judge(page, replace(shop.setup(), key="tomorrow"), canonical_url=page.url),
        )

    today, tomorrow = shop.run(work)
    assert good(today)
    assert "edited for tomorrow" in tomorrow.reason


def test_a_cancelled_judgement_does_not_disturb_the_next(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> Judgement:
        first = asyncio.create_task(shop.judge(pool, "nap"))
        await asyncio.sleep(0)
        first.cancel()
        return await shop.judge(pool, "a1")

    assert good(shop.run(work))


def test_closing_the_pool_ends_its_processes_even_in_the_middle_of_a_page(shop: Shop) -> None:
    async def work(pool: ExtractorPool) -> list[int]:
        page = asyncio.create_task(shop.judge(pool, "hang"))
        while not (shop.folder / "hanging").exists():
            await asyncio.sleep(0.05)
        assert not page.done()
        return pool.process_ids

    start = time.monotonic()
    processes = shop.run(work, processes=2)
    assert len(processes) == 2
    assert not any(psutil.pid_exists(process) for process in processes)
    assert time.monotonic() - start < 120


def test_processes_that_cannot_start_are_an_error_that_says_so(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken-python"
    broken.write_text("#!/bin/sh\nexit 7\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(ExtractorUnavailable, match="exit code 7"):
        shop.judgements("a1")


PARENT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_extractor import Shop, response
from scrape_assets.sources.extractor import ExtractorPool


async def main():
    shop = Shop(Path({folder!r}))
    async with ExtractorPool(2) as pool:
        page = asyncio.create_task(shop.judge(pool, "hang"))
        await shop.judge(pool, "print")
        print(*pool.process_ids, flush=True)
        await page

asyncio.run(main())
"""


def test_no_process_survives_a_killed_parent_and_nothing_is_printed_on_its_stdout(tmp_path: Path) -> None:
    script = PARENT.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        line = parent.stdout.readline()
        processes = [psutil.Process(int(word)) for word in line.split()]
        assert len(processes) == 2
        parent.kill()
        # Its end of file comes when the last process that holds stderr is gone.
        said = parent.stderr.read()
        _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []
    assert b"printed by a page object" in said


def test_a_parent_that_vanished_with_an_unread_answer_is_an_end_without_words() -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "scrape_assets.sources.extractor_child"]
    with theirs:
        child = subprocess.Popen(
            [*command, str(theirs.fileno()), str(os.getpid()), str(512 * MB)],
            pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
        )
    with ours:
        # It says that it is ready, and nobody reads that: so it is told of a reset, not of an end.
        until_readable, _, _ = select.select([ours], [], [], 60)
        assert until_readable
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (0, b"")
