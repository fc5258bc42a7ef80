"""Sessions of one worker under concurrency: who sets a context up, who waits for it, and who is told that it failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from scrape_assets.datasets import declaration, load
from scrape_assets.flow import plan
from scrape_assets.flow.assignment import Assignment
from scrape_assets.flow.sessions import Answer, Sessions, Unready
from scrape_assets.rules.page import FetchFailure, Request, Response
from scrape_assets.rules.states import FailureClass
from scrape_assets.sources.extractor import ExtractorPool
from scrape_assets.sources.http import HttpSource, Jar
from scrape_assets.store.lease import Claim
from tests.helpers import make
from tests.helpers.market import Market, market

CONTEXTS = """\
contexts: {madrid: {postcode: "28001"}, bilbao: {postcode: "48001"}}
context:
  setup: {url: /set-zip, form: {zip: "{postcode}"}}
  prove: {css: .zip, equals: "{postcode}"}
"""


@pytest.fixture
def shop() -> Iterator[Market]:
    with market() as it:
        it.setup_seconds = 0.3
        yield it


def assignment(folder: Path, shop: Market) -> Assignment:
    make.dataset(folder, {"north": (shop.url, ["/p/1"])}, more=CONTEXTS)
    dataset = load.dataset(folder, "prices")
    north = dataset.retailers["north"]
    run = plan.describe_run(dataset, "2026-03-05", datetime.now(UTC))
    return Assignment(run, dataset, north, plan.freeze(dataset, north), (shop.url,))


def claim(shop: Market, number: int, context: str) -> Claim:
    url = f"{shop.url}/p/n{number}"
    return Claim(
        uuid4(), url, url, context, None, "product", uuid4(), 1, 1, 3, 0, 1, None, datetime.now(UTC), 0, False, 0, 0, 0, None, []
    )  # fmt: skip


@asynccontextmanager
async def sessions(work: Assignment) -> AsyncIterator[Sessions]:
    async with HttpSource() as source, ExtractorPool(1) as extractors:

        async def ask(
            _work: Assignment, request: Request, jar: Jar | None, _claim: Claim | None, *, more: bool
        ) -> Answer:
            assert more == (request.method == "POST" or "again" in request.url)
            return await source.fetch(
                request,
                site=work.retailer.site,
                headers=declaration.request_headers(work.dataset, work.retailer),
                timeout_seconds=30,
                max_body_bytes=100_000,
                jar=jar,
            )

        made = Sessions(extractors, ask)
        yield made
        await made.close()


def postcode(answer: Answer) -> str:
    assert isinstance(answer, Response)
    return answer.body.decode().split("class=zip>")[1].split("<")[0]


def test_pages_that_wait_at_the_same_time_share_one_set_up_of_their_context(tmp_path: Path, shop: Market) -> None:
    work = assignment(tmp_path, shop)

    async def main() -> list[tuple[str, Answer]]:
        async with sessions(work) as mine:
            names = ["madrid", "bilbao"] * 10
            pages = await asyncio.gather(*(mine.page(work, claim(shop, n, name)) for n, name in enumerate(names)))
            return [(name, answer) for name, (answer, _) in zip(names, pages, strict=True)]

    found = asyncio.run(main())
    assert {(name, postcode(answer)) for name, answer in found} == {("madrid", "28001"), ("bilbao", "48001")}
    assert sorted(one.body for one in shop.setups()) == ["zip=28001", "zip=48001"]


def test_pages_of_one_ended_session_share_one_new_set_up(tmp_path: Path, shop: Market) -> None:
    work = assignment(tmp_path, shop)

    async def main() -> list[Answer]:
        async with sessions(work) as mine:
            _, stale = await mine.page(work, claim(shop, 0, "madrid"))
            assert stale is not None
            shop.expire()
            again = [claim(shop, n, "madrid")._replace(canonical_url=f"{shop.url}/p/again{n}") for n in range(8)]
            return await asyncio.gather(*(mine.page_again(work, one, stale) for one in again))

    assert {postcode(answer) for answer in asyncio.run(main())} == {"28001"}
    assert len(shop.setups()) == 2


def test_whoever_began_a_set_up_may_leave_and_the_others_get_it_all_the_same(tmp_path: Path, shop: Market) -> None:
    work = assignment(tmp_path, shop)

    async def main() -> Answer:
        async with sessions(work) as mine:
            first = asyncio.create_task(mine.page(work, claim(shop, 0, "madrid")))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(mine.page(work, claim(shop, 1, "madrid")))
            await asyncio.sleep(0.05)
            first.cancel()
            return (await second)[0]

    assert postcode(asyncio.run(main())) == "28001"
    assert len(shop.setups()) == 1


def test_all_that_wait_are_told_of_a_failure_and_the_next_one_tries_again(tmp_path: Path, shop: Market) -> None:
    shop.setup_status = 503
    work = assignment(tmp_path, shop)

    async def main() -> tuple[list[object], str]:
        async with sessions(work) as mine:
            waiting = (mine.page(work, claim(shop, n, "madrid")) for n in range(5))
            failed = await asyncio.gather(*waiting, return_exceptions=True)
            shop.setup_status = 200
            answer, _ = await mine.page(work, claim(shop, 9, "madrid"))
            return list(failed), postcode(answer)

    failed, after = asyncio.run(main())
    assert [one.judged.failure_class for one in failed if isinstance(one, Unready) and one.judged] == [
        FailureClass.HTTP_5XX
    ] * 5
    assert (after, len(shop.setups()), len(shop.pages())) == ("28001", 2, 1)


def test_a_set_up_that_gets_no_answer_says_so_with_its_context(tmp_path: Path, shop: Market) -> None:
    work = assignment(tmp_path, shop)
    shop.setup_status = 302
    shop_gone = claim(shop, 0, "madrid")

    async def main() -> Unready:
        async with sessions(work) as mine:
            try:
                await mine.page(work, shop_gone)
            except Unready as unready:
                return unready
        raise AssertionError("it was set up")

    # A redirect without a target is an answer, of a status that no set-up has.
    found = asyncio.run(main())
    assert not isinstance(found.answer, FetchFailure)
    assert found.judged is not None
    assert (found.judged.failure_class, found.judged.reason) == (
        FailureClass.WRONG_CONTEXT,
        "setting up context madrid: status 302",
    )
