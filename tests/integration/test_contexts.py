"""Contexts: one page under several postcodes, each with a session of its own that every page proves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.datasets import load
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.flow import accept, plan, publish, recover, run, verify
from scrape_assets.flow.run import Machine
from scrape_assets.rules.recovery import Selection
from scrape_assets.store import postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.command import Command, command
from tests.helpers.market import SURCHARGE, Market, market

__all__ = ["command"]  # a fixture

WINDOW = "2026-03-05"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
POSTCODES = {"bilbao": "48001", "madrid": "28001", "sevilla": "41001"}

FIELDS = """\
key: [sku]
product:
  expect: .offer
  fields:
    name: {css: h1}
    sku: {css: .sku}
    price: {css: .now, money: EUR, decimal: "."}
"""
CONTEXTS = """\
contexts:
  madrid: {postcode: "28001"}
  bilbao: {postcode: "48001"}
  sevilla: {postcode: 41001}
context:
  setup: {url: /set-zip, form: {zip: "{postcode}"}}
  prove: {css: .zip, equals: "{postcode}"}
"""


@pytest.fixture
def shop() -> Iterator[Market]:
    with market() as it:
        yield it


def declared(
    folder: Path, shop: Market, *, pages: int = 4, contexts: str = CONTEXTS, rate: str = "none", concurrency: int = 8
) -> Dataset:
    paths = [f"/p/n{i}" for i in range(pages)]
    make.dataset(folder, {"north": (shop.url, paths)}, more=FIELDS + contexts)
    file = folder / "datasets/prices/dataset.yaml"
    text = file.read_text().replace("rate: none, concurrency: 8", f"rate: {rate}, concurrency: {concurrency}")
    file.write_text(text)
    return load.dataset(folder, "prices")


def collect(pool: Pool, folder: Path, dataset: Dataset, window: str = WINDOW) -> None:
    planned = plan.plan(pool, dataset, window, now=datetime.now(UTC))
    assert not [p.problem for p in planned if p.problem], planned
    work = run.assignments(pool, dataset, window, sorted(dataset.retailers))
    asyncio.run(run.collect_partitions(pool, Machine(folder / "artifacts", "test-worker", {}), work))


def rows(pool: Pool, query: str) -> list[tuple[Any, ...]]:
    with postgres.transaction(pool) as tx:
        return [tuple(row) for row in tx.execute(query.encode()).fetchall()]


def prices(pool: Pool) -> set[tuple[str, str, str]]:
    return {
        (context, payload["sku"], payload["price"])
        for context, payload in rows(pool, "select context, payload from scrape.observations")
    }


def expected(pages: int, *names: str) -> set[tuple[str, str, str]]:
    return {(name, f"n{i}", str(10 + SURCHARGE[POSTCODES[name]])) for name in names or POSTCODES for i in range(pages)}


def outcomes(pool: Pool) -> Counter[tuple[str, str | None, str | None]]:
    found = rows(
        pool,
        "select t.state, t.last_failure_class, a.page_state from scrape.tasks t join scrape.attempts a using (attempt_id)",
    )
    return Counter((state, failure, page_state) for state, failure, page_state in found)


def test_each_page_is_a_task_and_a_row_in_each_context_with_the_price_of_its_own_session(
    pool: Pool, tmp_path: Path, shop: Market
) -> None:
    shop.setup_seconds = 0.2
    dataset = declared(tmp_path, shop, pages=20)
    collect(pool, tmp_path, dataset)
    assert prices(pool) == expected(20)
    assert len(shop.setups()) == 3, "one set-up for each context, however many pages waited for it"
    assert {one.body for one in shop.setups()} == {f"zip={postcode}" for postcode in POSTCODES.values()}
    assert len(shop.pages()) == 60
    asked = Counter((shop.sessions[one.cookie.removeprefix("sid=")], one.path) for one in shop.pages())
    assert set(asked.values()) == {1}, "no cookie reached another context"
    assert rows(pool, "select count(*) from scrape.tasks") == [(60,)]
    accept.accept_retailer(pool, dataset, f"prices@{WINDOW}", "north")
    assert accept.accept_dataset(pool, dataset, f"prices@{WINDOW}", now=NOW).state == "accepted"
    assert publish.publish(pool, dataset, f"prices@{WINDOW}", now=NOW).rows == 60
    published = rows(pool, "select context, count(*) from scrape.latest_observations group by 1 order by 1")
    assert published == [("bilbao", 20), ("madrid", 20), ("sevilla", 20)]
    assert verify.verify(pool).violations == []


def test_an_inventory_line_may_name_its_context_and_an_unknown_one_is_refused(
    pool: Pool, tmp_path: Path, shop: Market
) -> None:
    dataset = declared(tmp_path, shop)
    (tmp_path / "datasets/prices/north.csv").write_text(
        f"url,context\n{shop.url}/p/n0,\n{shop.url}/p/n1,madrid\n{shop.url}/p/n2,madrit\n{shop.url}/p/n0,bilbao\n"
    )
    (planned,) = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert (planned.planned, planned.rejected) == (4, 2)
    reasons = [reason for (reason,) in rows(pool, "select reason from scrape.inventory_rejections order by line")]
    assert reasons[0] == "no context 'madrit' is declared; did you mean 'madrid'?"
    assert reasons[1].startswith("the same page is on line 2")


def test_a_session_that_ended_is_set_up_again_and_the_page_asked_for_once_more(
    pool: Pool, tmp_path: Path, shop: Market
) -> None:
    shop.expires_after = 9
    dataset = declared(tmp_path, shop, pages=10, concurrency=4)
    collect(pool, tmp_path, dataset)
    assert prices(pool) == expected(10)
    assert outcomes(pool) == {("committed", None, "expected"): 30}
    assert rows(pool, "select count(*) from scrape.attempts") == [(30,)], "it costs no attempt"
    assert 4 <= len(shop.setups()) <= 6, "each context once, and once more where its session ended"


def test_a_shop_that_ignores_the_set_up_publishes_nothing_and_stops_its_retailer(
    pool: Pool, tmp_path: Path, shop: Market
) -> None:
    shop.ignores = True
    dataset = declared(tmp_path, shop, pages=3)
    collect(pool, tmp_path, dataset)
    assert outcomes(pool) == {("quarantined", "wrong_context", "wrong_context"): 9}
    assert prices(pool) == set()
    ((reason,),) = rows(pool, "select distinct reason from scrape.attempts where reason like '%48001%'")
    assert reason == "wrong context: prove: css .zip found '00000', expected '48001'"
    asked = Counter(one.path for one in shop.pages())
    assert set(asked.values()) == {6}, "twice in each context: once with a new session"
    verdict = accept.accept_retailer(pool, dataset, f"prices@{WINDOW}", "north")
    assert verdict.state == "rejected"


def test_ten_pages_of_the_wrong_context_in_a_row_leave_the_site_alone(pool: Pool, tmp_path: Path, shop: Market) -> None:
    shop.ignores = True
    dataset = declared(tmp_path, shop, pages=30, concurrency=2)
    collect(pool, tmp_path, dataset)
    ((paused, why),) = rows(pool, "select paused_at is not null, pause_reason from scrape.run_partitions")
    assert paused
    assert "its last 10 attempts were refused (wrong_context)" in why
    assert outcomes(pool)["quarantined", "wrong_context", "wrong_context"] < 40


@pytest.mark.parametrize(
    ("status", "state", "failure_class"),
    [
        (503, "quarantined", "retries_exhausted"),
        (403, "quarantined", "access_refused"),
        (404, "quarantined", "wrong_context"),
        (400, "quarantined", "wrong_context"),
    ],
)
def test_a_set_up_that_fails_ends_the_page_by_its_class_and_asks_for_no_page(
    pool: Pool, tmp_path: Path, shop: Market, status: int, state: str, failure_class: str
) -> None:
    shop.setup_status = status
    dataset = declared(tmp_path, shop, pages=1)
    collect(pool, tmp_path, dataset)
    assert {(s, c) for s, c, _ in outcomes(pool)} == {(state, failure_class)}
    assert shop.pages() == []
    found = rows(pool, "select distinct split_part(reason, ' ', 4), http_status, artifact_sha256 from scrape.attempts")
    assert {row[0].rstrip(":") for row in found} == set(POSTCODES)
    assert {row[1:] for row in found} == {(status, None)}, "what the set-up answered is no page to read again"


def test_a_rate_limit_at_the_set_up_pauses_the_origin_and_costs_no_page(
    pool: Pool, tmp_path: Path, shop: Market
) -> None:
    shop.setup_status = 429
    dataset = declared(
        tmp_path, shop, pages=1, contexts=CONTEXTS.replace("  bilbao", "  #").replace("  sevilla", "  #")
    )
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])

    async def until_it_recovers() -> None:
        collecting = asyncio.create_task(
            run.collect_partitions(pool, Machine(tmp_path / "artifacts", "test-worker", {}), work)
        )
        while not shop.setups():
            await asyncio.sleep(0.02)
        shop.setup_status = 200
        await collecting

    asyncio.run(until_it_recovers())
    assert prices(pool) == expected(1, "madrid")
    assert rows(pool, "select outcome from scrape.attempts order by started_at")[0] == ("released",)


def test_set_ups_and_second_requests_keep_the_rate_of_the_origin(pool: Pool, tmp_path: Path, shop: Market) -> None:
    shop.expires_after = 5
    dataset = declared(tmp_path, shop, pages=4, rate="20/s")
    collect(pool, tmp_path, dataset)
    assert prices(pool) == expected(4)
    at = sorted(one.at for one in shop.asked)
    gaps = [later - earlier for earlier, later in pairwise(at)]
    # The store's clock spaces the starts by 50 ms; a busy machine may see one request a little late.
    assert sum(gap < 0.03 for gap in gaps) == 0, sorted(gaps)[:5]
    assert len(shop.setups()) >= 4


def test_cookies_of_one_retailer_never_reach_another_on_the_same_host(pool: Pool, tmp_path: Path) -> None:
    with market() as one, market() as other:
        make.dataset(
            tmp_path,
            {"north": (one.url, ["/p/n0", "/p/n1"]), "south": (other.url, ["/p/n0", "/p/n1"])},
            more=FIELDS + CONTEXTS,
        )
        collect(pool, tmp_path, load.dataset(tmp_path, "prices"))
        for shop in (one, other):
            assert {part for asked in shop.pages() for part in asked.cookie.split("; ")} <= {
                f"sid={number}" for number in shop.sessions
            }
            assert len(shop.sessions) == 3


def test_without_contexts_no_cookie_outlives_its_page(pool: Pool, tmp_path: Path, shop: Market) -> None:
    dataset = declared(tmp_path, shop, contexts="")
    collect(pool, tmp_path, dataset)
    assert {one.cookie for one in shop.asked} == {""}
    assert {context for context, _, _ in prices(pool)} == {""}


PAGES = """
def choose(page, context):
    token = page.xpath("//input[@name='csrf']/@value")[0]
    return {"url": "/set-zip", "form": {"csrf": token, "zip": context["postcode"]}}


def refuses(page, context):
    raise ValueError("no such store")


def leaves(page, context):
    return [{"url": "https://elsewhere.example/"}]


def chatters(page, context):
    return [{"url": "/set-zip", "from": {}}]
"""


@pytest.mark.parametrize("name", ["choose", "refuses", "leaves", "chatters"])
def test_a_page_function_reads_the_form_and_gives_the_requests_that_set_the_context_up(
    pool: Pool, tmp_path: Path, shop: Market, name: str
) -> None:
    shop.needs_token = True
    (tmp_path / "datasets/prices").mkdir(parents=True)
    (tmp_path / "datasets/prices/pages.py").write_text(PAGES)
    setup = f"setup: {{url: /store, page_function: 'pages.py:{name}'}}"
    dataset = declared(
        tmp_path, shop, contexts=CONTEXTS.replace('setup: {url: /set-zip, form: {zip: "{postcode}"}}', setup)
    )
    collect(pool, tmp_path, dataset)
    if name == "choose":
        assert prices(pool) == expected(4)
        assert {one.body for one in shop.setups()} == {f"csrf=t-1&zip={one}" for one in POSTCODES.values()}
        return
    assert outcomes(pool).keys() == {("quarantined", "wrong_context", None)}
    said = {"refuses": "no such store", "leaves": "is not on the site", "chatters": "from: Extra inputs"}[name]
    reasons = {reason for (reason,) in rows(pool, "select reason from scrape.attempts")}
    assert all(said in reason for reason in reasons), reasons


def test_an_edited_page_function_refuses_to_resume_the_window(pool: Pool, tmp_path: Path, shop: Market) -> None:
    (tmp_path / "datasets/prices").mkdir(parents=True)
    file = tmp_path / "datasets/prices/pages.py"
    file.write_text(PAGES)
    contexts = CONTEXTS.replace('form: {zip: "{postcode}"}', "page_function: 'pages.py:choose'")
    plan.plan(pool, declared(tmp_path, shop, contexts=contexts), WINDOW, now=NOW)
    file.write_text(PAGES + "\n# edited\n")
    (again,) = plan.plan(pool, load.dataset(tmp_path, "prices"), WINDOW, now=NOW)
    assert again.problem is not None
    assert "pages.py" in again.problem


def test_contexts_are_frozen_with_the_window_and_kept_by_frozen(pool: Pool, tmp_path: Path, shop: Market) -> None:
    plan.plan(pool, declared(tmp_path, shop), WINDOW, now=NOW)
    edited = declared(tmp_path, shop, contexts=CONTEXTS.replace('"48001"', '"99999"'))
    (again,) = plan.plan(pool, edited, WINDOW, now=NOW)
    assert "contexts.bilbao.values.postcode" in (again.problem or "")
    (planned,) = plan.plan(pool, edited, WINDOW, now=NOW, frozen=True)
    assert planned.problem is None
    work = run.assignments(pool, edited, WINDOW, ["north"], frozen=True)
    asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "test-worker", {}), work))
    assert prices(pool) == expected(4)


def test_a_wrong_proof_is_repaired_from_the_stored_pages_and_a_gone_context_is_refused(
    pool: Pool, tmp_path: Path, shop: Market
) -> None:
    wrong = declared(tmp_path, shop, pages=3, contexts=CONTEXTS.replace("css: .zip", "css: .sku"))
    collect(pool, tmp_path, wrong)
    assert outcomes(pool) == {("quarantined", "wrong_context", "wrong_context"): 9}
    fewer = declared(tmp_path, shop, pages=3, contexts=CONTEXTS.replace("  bilbao", "  # bilbao"))
    run_id = f"prices@{WINDOW}"
    with pytest.raises(Exception, match=r"scope\.contexts changed"):
        recover.begin(
            pool, fewer, run_id, Selection(retailers=("north",)),
            recover.select(pool, fewer, run_id, Selection(retailers=("north",))),
        )  # fmt: skip
    right = declared(tmp_path, shop, pages=3)
    before = len(shop.asked)
    selection = Selection(retailers=("north",))
    recover.begin(pool, right, run_id, selection, recover.select(pool, right, run_id, selection))
    collect(pool, tmp_path, right)
    assert prices(pool) == expected(3)
    assert len(shop.asked) == before, "the stored pages prove it as well"


def test_a_killed_worker_is_resumed_with_new_sessions_and_no_row_is_lost_or_of_another_context(
    pool: Pool, url: str, tmp_path: Path, shop: Market
) -> None:
    dataset = declared(tmp_path, shop, pages=40, rate="60/s")
    file = tmp_path / "datasets/prices/dataset.yaml"
    file.write_text(file.read_text().replace("for: 30s", "for: 1s"))
    dataset = load.dataset(tmp_path, "prices")
    now = datetime.now(UTC)
    window = f"{now:%Y-%m-%d}"
    plan.plan(pool, dataset, window, now=now)
    ours = {
        "SCRAPE_ASSETS_PROJECT": str(tmp_path),
        "SCRAPE_ASSETS_STATE": str(tmp_path / "state"),
        "SCRAPE_ASSETS_DATABASE_URL": url,
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPE_ASSETS_")} | ours
    worker = subprocess.Popen(
        [sys.executable, "-m", "scrape_assets.cli", "worker", "--json"],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    give_up = time.monotonic() + 200
    while len(prices(pool)) < 20:
        assert worker.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.05)
    worker.send_signal(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert rows(pool, "select count(*) from scrape.tasks where state in ('pending', 'leased')") != [(0,)]
    sessions = set(shop.sessions)
    collect(pool, tmp_path, dataset, window)
    assert prices(pool) == expected(40)
    assert set(shop.sessions) > sessions, "cookies died with the worker"
    assert verify.verify(pool).violations == []


def test_try_and_record_take_a_context_and_a_golden_page_proves_it(
    command: Command, tmp_path: Path, shop: Market
) -> None:
    declared(tmp_path, shop)
    page = f"{shop.url}/p/n1"
    unclear = command("try", "north", page)
    assert (unclear.code, "--context bilbao" in unclear.err) == (2, True)
    wrong = command("try", "north", page, "--context", "madrit")
    assert (wrong.code, "did you mean 'madrid'?" in wrong.err) == (2, True)
    assert shop.asked == []
    tried = command("try", "north", page, "--context", "madrid", "--json")
    assert (tried.code, tried.json["context"]) == (0, "madrid")
    assert Decimal(tried.json["rows"][0]["fields"]["price"]["value"]) == 11
    assert command("record", "north", page, "--context", "sevilla").code == 0
    (case,) = (tmp_path / "datasets/prices/cases/north").iterdir()
    assert json.loads((case / "page.json").read_text())["context"] == "sevilla"
    assert "sid=" not in "".join(path.read_text() for path in case.iterdir())
    assert command("check").code == 0
    text = (case / "page.html").read_text()
    (case / "page.html").write_text(text.replace("41001", "28001"))
    told = command("check", "--json")
    assert told.code == 1
    (failed,) = told.json["datasets"][0]["cases"]
    assert [(d["field"], d["got"]) for d in failed["differences"]] == [
        ("page_state", "wrong_context"),
        ("failure_class", "wrong_context"),
    ]
    shop.ignores = True
    ignored = command("try", "north", page, "--context", "madrid")
    assert (ignored.code, "expected '28001'" in ignored.err) == (1, True)
    shop.setup_status = 503
    failing = command("try", "north", page, "--context", "madrid")
    assert (failing.code, "setting up context madrid: status 503" in failing.err) == (1, True)
    assert command("record", "north", page, "--context", "madrid").code == 1


def test_check_counts_a_task_for_each_context_and_names_them(command: Command, tmp_path: Path, shop: Market) -> None:
    declared(tmp_path, shop, pages=5)
    shown = command("check")
    assert "    tasks       15" in shown.out.splitlines()
    assert "    contexts    bilbao (postcode 48001); madrid (postcode 28001); sevilla (postcode 41001)" in (
        shown.out.splitlines()
    )
    assert shop.asked == []


def test_a_stored_page_is_tried_and_recorded_in_its_own_context_and_failed_names_it(
    command: Command, pool: Pool, tmp_path: Path, shop: Market
) -> None:
    dataset = declared(tmp_path, shop, pages=2)
    now = datetime.now(UTC)
    plan.plan(pool, dataset, f"{now:%Y-%m-%d}", now=now)
    assert command("worker").code == 0
    before = len(shop.asked)
    page = f"{shop.url}/p/n1"
    tried = command("try", "north", page, "--window", "current", "--context", "bilbao", "--json")
    assert [one["context"] for one in tried.json["pages"]] == ["bilbao"]
    assert command("record", "north", page, "--window", "current", "--context", "bilbao").code == 0
    assert len(shop.asked) == before
    (case,) = (tmp_path / "datasets/prices/cases/north").iterdir()
    assert "48001" in (case / "page.html").read_text()
    shop.ignores = True
    declared(tmp_path, shop, pages=2)
    later = f"{now - timedelta(days=1):%Y-%m-%d}"
    collect(pool, tmp_path, dataset, later)
    shown = command("failed", "prices", "--window", later)
    assert "north  bilbao  quarantined  wrong_context  1 try (200, wrong_context)" in shown.out
