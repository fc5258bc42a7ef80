"""Pages that the site itself lists: found while they are collected, waiting where there is no room, never lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from scrape_assets import failpoints
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.demo import scripted
from scrape_assets.demo.lists import MODES, PER_PAGE, Catalogue
from scrape_assets.demo.scripted import Answer, product
from scrape_assets.flow import accept, control, plan, recover, run, status, verify
from scrape_assets.flow.run import Machine
from scrape_assets.rules import keys
from scrape_assets.rules.recovery import Selection
from scrape_assets.store import commit, discovery, lease, observe, postgres, runs, sql
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.command import Command, command

__all__ = ["command"]  # a fixture

WINDOW = "2026-03-05"
RUN = f"prices@{WINDOW}"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
WALK = Selection(rule="discovery")


@pytest.fixture
def shop() -> Iterator[scripted.Site]:
    with scripted.running() as it:
        yield it


def declared(folder: Path, shop: scripted.Site, urls: str, more: str = "", fetch: str = "") -> Dataset:
    dataset = make.dataset(folder, {"north": (shop.url, ["/p/1"])})
    file = folder / "datasets/prices/retailers/north.yaml"
    text = file.read_text().replace("urls: {file: north.csv}", f"urls: {urls}")
    file.write_text(text + more + (f"fetch: {fetch}\n" if fetch else ""))
    return make.load.dataset(folder, dataset.dataset)


def collect(pool: Pool, folder: Path, dataset: Dataset) -> None:
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(folder / "artifacts", "w", {}), work))


def judged(pool: Pool, dataset: Dataset) -> tuple[str, dict[str, dict[str, Any]]]:
    verdict = accept.accept_retailer(pool, dataset, RUN, "north")
    return verdict.state, {check["rule"]: check for check in verdict.checks}


def rows(pool: Pool, query: str) -> list[tuple[Any, ...]]:
    with postgres.transaction(pool) as tx:
        return [tuple(row) for row in tx.execute(query.encode()).fetchall()]


def skus(pool: Pool) -> list[str]:
    return [sku for (sku,) in rows(pool, "select payload ->> 'sku' from scrape.observations order by 1")]


def assert_sound(pool: Pool) -> None:
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


@pytest.mark.parametrize("mode", MODES)
def test_every_item_of_a_catalogue_is_found_and_collected_once(
    pool: Pool, tmp_path: Path, shop: scripted.Site, mode: str
) -> None:
    catalogue = Catalogue(120)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, MODES[mode][:-1] + ", expect: 100..130}")
    collect(pool, tmp_path, dataset)
    assert skus(pool) == [f"SKU-{number:06d}" for number in range(120)]
    products = {path: count for path, count in shop.requests.items() if path.startswith("/p/")}
    assert set(products.values()) == {1}
    state, checks = judged(pool, dataset)
    assert state == "accepted", checks
    assert checks["discovery"]["passed"]
    assert checks["expect"]["got"] == "120"
    assert "120 of 120 (120 planned" in checks["coverage"]["got"], "pages that name others are no coverage"
    assert_sound(pool)


def test_half_a_sitemap_is_not_taken_for_the_whole(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(40)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, "{sitemap: /sitemap.xml, expect: 80..100}")
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert (checks["expect"]["expected"], checks["expect"]["got"]) == ("80 to 100 items", "40")


def test_a_page_that_names_others_and_cannot_be_read_is_a_gap_of_nobody_knows_how_much(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    catalogue = Catalogue(3 * PER_PAGE)
    catalogue.url = shop.url
    broken = {"/list?page=2"}
    shop.answer = lambda path: (
        Answer(body=b"<p>maintenance, come back</p>") if path in broken else catalogue.answer(path)
    )
    dataset = declared(tmp_path, shop, MODES["listing"])
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert "pages that name others were read" in checks["discovery"]["got"]
    assert checks["coverage"]["passed"], "of what is known nothing is missing"
    # Repaired, it names the rest, which is collected under the same run and the repair's batch.
    broken.clear()
    shop.arrivals.clear()
    repairs = recover.select(pool, dataset, RUN, Selection(rule="discovery"))
    recover.begin(pool, dataset, RUN, Selection(rule="discovery"), repairs)
    collect(pool, tmp_path, dataset)
    assert len(skus(pool)) == 3 * PER_PAGE
    assert judged(pool, dataset)[0] == "accepted"
    asked = [path for path in shop.requests if path.startswith("/p/")]
    assert len(asked) == 2 * PER_PAGE, "what was obtained is not asked for again"
    assert rows(pool, "select count(*) from scrape.tasks where recovery_batch_id is not null")[0][0] > PER_PAGE
    assert_sound(pool)


CYCLES = {
    "back to an earlier page": {None: ("a", 10), "a": ("b", 20), "b": ("a", 30)},
    "to itself": {None: ("a", 10), "a": ("a", 20)},
    "on for ever without anything": {None: ("n1", 10), **{f"n{i}": (f"n{i + 1}", None) for i in range(1, 50)}},
}


@pytest.mark.parametrize("kind", CYCLES)
def test_a_list_that_comes_back_to_itself_has_no_end_and_is_no_whole(
    pool: Pool, tmp_path: Path, shop: scripted.Site, kind: str
) -> None:
    """Case BC061."""
    pages = CYCLES[kind]

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        following, item = pages[path.partition("after=")[2] or None]
        items = [] if item is None else [{"url": f"/p/{item}"}]
        body = f'{{"data": {{"products": {items}}}, "next": "{following}"}}'.replace("'", '"')
        return Answer(body=body.encode())

    shop.answer = answer
    dataset = declared(tmp_path, shop, MODES["cursor"])
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert "cursor_cycle" in checks["discovery"]["got"]
    assert sum(shop.requests.values()) < 12
    assert_sound(pool)


def test_a_list_that_comes_back_to_itself_is_known_by_who_goes_on_with_it(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    """Case BC061: across a restart in the middle."""
    after = {"": ("a", 10), "a": ("b", 20), "b": ("c", 30), "c": ("a", 40)}

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        following, item = after[path.partition("after=")[2]]
        return Answer(body=orjson.dumps({"data": {"products": [{"url": f"/p/{item}"}]}, "next": following}))

    shop.answer = answer
    dataset = declared(tmp_path, shop, MODES["cursor"])
    for _ in range(3):
        failpoints.arm("K10=raise", None)
        with pytest.raises(failpoints.Reached):
            collect(pool, tmp_path, dataset)
        failpoints.arm("", None)
        with postgres.transaction(pool) as tx:
            tx.execute(
                "update scrape.tasks set lease_until = clock_timestamp() - interval '1 hour' where state = 'leased'"
            )
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert "cursor_cycle" in checks["discovery"]["got"]
    assert sum(count for path, count in shop.requests.items() if path.startswith("/api")) <= 8
    assert_sound(pool)


def test_a_list_that_shifts_while_it_is_read_is_told_and_what_stayed_is_there(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    """Case BC063: three items come at the top behind page 1, two go behind page 2."""
    items, asked = list(range(100, 153)), []

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        asked.append(path)
        if len(asked) == 2:
            items[:0] = [1, 2, 3]
        if len(asked) == 3:
            del items[30:32]
        # Clamped, as such services do it.
        offset = min(int(path.partition("offset=")[2] or 0), len(items) - 13)
        return Answer(body="".join(f'<a class="i" href="/p/{n}">x</a>' for n in items[offset : offset + 20]).encode())

    shop.answer = answer
    dataset = declared(tmp_path, shop, '{offset: /l, item: a.i, step: 20, page: "?offset={offset}"}')
    collect(pool, tmp_path, dataset)
    seen = skus(pool)
    assert len(seen) == len(set(seen))
    assert {f"SKU-{n:06d}" for n in items} <= set(seen), "the second pass found what the first one missed"
    assert "two passes" in judged(pool, dataset)[1]["discovery"]["got"]
    assert_sound(pool)


TRAPS = {
    "a page that breeds itself": lambda _path: '<a href="www.other.example/x">x</a><a href="more/">x</a>',
    "a calendar": lambda path: f'<a href="/month/{int(path.rpartition("/")[2] or 0) + 1}">next month</a>',
    "a counter behind a question mark": lambda path: f'<a href="?n={len(path)}&{path.partition("?")[2]}">x</a>',
}


@pytest.mark.parametrize("kind", TRAPS)
def test_a_site_that_breeds_pages_is_left_with_a_reason(
    pool: Pool, tmp_path: Path, shop: scripted.Site, kind: str
) -> None:
    """Case BC064: every address answers, without end."""
    links = TRAPS[kind]
    shop.answer = lambda path: (
        product(1) if path == "/p/1" else Answer(body=f'<a class="i" href="/p/1">x</a>{links(path)}'.encode())
    )
    dataset = declared(tmp_path, shop, "{links: /, follow: a, item: a.i, depth: 30}")
    collect(pool, tmp_path, dataset)
    assert sum(shop.requests.values()) < 100
    reasons = rows(pool, "select reason from scrape.attempts where reason like 'left out: %'")
    assert reasons, "it says why it went no further"
    assert skus(pool) == ["SKU-000001"]


def test_offsets_that_are_clamped_to_the_last_page_end(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    """Case BC063."""

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        offset = min(int(path.partition("offset=")[2] or 0), 40)
        items = "".join(f'<a class="i" href="/p/{n}">x</a>' for n in range(offset, min(offset + 20, 53)))
        return Answer(body=f"<title>List</title>{items}".encode())

    shop.answer = answer
    dataset = declared(tmp_path, shop, '{offset: /l, item: a.i, step: 20, page: "?offset={offset}"}')
    collect(pool, tmp_path, dataset)
    assert len(skus(pool)) == 53
    state, checks = judged(pool, dataset)
    assert state == "accepted"
    assert "two passes leave 0 of 53 unseen" in checks["discovery"]["got"]


def test_what_two_passes_saw_differently_is_told_and_rejected_when_it_is_much(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    looks = iter(range(10_000))

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        offset = int(path.partition("offset=")[2] or 0)
        # A list that is sorted anew for every look shows each page other items.
        shift = next(looks) * 7
        items = sorted((n * 37 + shift) % 200 for n in range(offset, min(offset + 20, 100)))
        return Answer(body="".join(f'<a class="i" href="/p/{n}">x</a>' for n in items).encode() or b"<p>the end</p>")

    shop.answer = answer
    dataset = declared(tmp_path, shop, '{offset: /l, item: a.i, step: 20, page: "?offset={offset}"}')
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert "unseen, as estimated" in checks["discovery"]["got"]
    assert not checks["discovery"]["passed"]


def test_what_there_is_no_room_for_waits_and_is_told(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(120)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(
        tmp_path, shop, MODES["sitemap"], fetch="{rate: none, concurrency: 4, robots: ignore, open_tasks: 10}"
    )
    most: list[int] = []
    really = discovery.admit

    def watched(tx: Any, run_id: str, retailer: str, open_tasks: int) -> int:
        admitted = really(tx, run_id, retailer, open_tasks)
        open_now = "select count(*) from scrape.tasks where state in ('pending', 'retry_wait', 'leased')"
        most.append(tx.execute(open_now).fetchone()[0])
        waiting.append(len(discovery.waiting(tx, run_id)))
        return admitted

    waiting: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrape_assets.store.discovery.admit", watched)
        collect(pool, tmp_path, dataset)
    assert len(skus(pool)) == 120
    assert max(most) <= 10
    assert max(waiting) == 1
    assert_sound(pool)


def test_a_list_in_a_file_waits_too_where_there_is_no_room(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, [f"/p/{n}" for n in range(50)])})
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + "fetch: {rate: none, open_tasks: 8, robots: ignore}\n")
    dataset = make.load.dataset(tmp_path, "prices")
    (planned,) = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert planned.planned == 50
    assert rows(pool, "select count(*) from scrape.tasks") == [(8,)]
    shown = status.run_status(pool, RUN)
    assert shown is not None
    (waits,) = shown["retailers"][0]["waiting_for_room"]
    assert (waits["pages"], waits["origin"]) == (42, shop.url)
    assert waits["oldest_seconds"] >= 0
    assert shown["retailers"][0]["oldest_due_seconds"] >= 0
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set next_attempt_at = clock_timestamp() - interval '1 hour'")
    later = status.run_status(pool, RUN)
    assert later is not None
    assert 3600 <= later["retailers"][0]["oldest_due_seconds"] < 3700
    collect(pool, tmp_path, dataset)
    assert len(skus(pool)) == 50
    assert_sound(pool)


def test_a_partition_that_is_closed_gives_up_what_waits_as_well(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    make.dataset(tmp_path, {"north": (shop.url, [f"/p/{n}" for n in range(50)])})
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + "fetch: {rate: none, open_tasks: 8, robots: ignore}\n")
    dataset = make.load.dataset(tmp_path, "prices")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    assert accept.accept_retailer(pool, dataset, RUN, "north").state == "collecting"
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.run_partitions set closing_at = clock_timestamp()")
    control.tidy(pool)
    assert rows(pool, "select state, count(*) from scrape.tasks group by 1") == [("quarantined", 50)]
    assert accept.accept_retailer(pool, dataset, RUN, "north").state == "rejected"
    assert_sound(pool)


@pytest.mark.parametrize("point", ["K7", "K8", "K9"])
def test_what_a_page_names_is_there_with_its_commit_or_not_at_all(
    pool: Pool, tmp_path: Path, shop: scripted.Site, point: str
) -> None:
    catalogue = Catalogue(60)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, MODES["cursor"])
    log = tmp_path / "fired"
    failpoints.arm(f"{point}=raise", str(log))
    with pytest.raises(failpoints.Reached):
        collect(pool, tmp_path, dataset)
    assert log.exists()
    failpoints.arm("", None)
    committed = rows(pool, "select count(*) from scrape.tasks where state = 'committed'")
    known = rows(pool, "select count(*) from scrape.links")
    assert (committed[0][0] > 0) == (known[0][0] > 0)
    with postgres.transaction(pool) as tx:
        tx.execute(
            "update scrape.tasks set lease_until = clock_timestamp() - interval '1 hour',"
            " deadline_at = clock_timestamp() where state = 'leased'"
        )
    collect(pool, tmp_path, dataset)
    assert len(skus(pool)) == 60
    assert rows(pool, "select max(n) from (select count(*) as n from scrape.observations group by entity_key) x") == [
        (1,)
    ]
    assert_sound(pool)


def test_two_workers_that_walk_one_listing_begin_its_second_pass_once(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    catalogue = Catalogue(6 * PER_PAGE)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, MODES["listing"])
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])

    async def both() -> None:
        machines = [Machine(tmp_path / "artifacts", name, {}) for name in ("w1", "w2")]
        await asyncio.gather(*(run.collect_partitions(pool, one, work) for one in machines))

    asyncio.run(both())
    passes = rows(pool, "select page_type, count(*) from scrape.tasks where discovers group by 1 order by 1")
    assert passes == [("listing-1", 6), ("listing-2", 6)]
    assert shop.requests["/list"] == 2
    assert len(skus(pool)) == 6 * PER_PAGE


def test_what_robots_txt_forbids_is_no_list_that_ended(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(10)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    shop.robots = Answer(body=b"User-agent: *\nDisallow: /list\n")
    dataset = declared(tmp_path, shop, MODES["listing"])
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert checks["discovery"]["got"].startswith("0 of 1")


def test_a_repair_of_products_leaves_the_lists_alone(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(30)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, MODES["sitemap"])
    collect(pool, tmp_path, dataset)
    assert judged(pool, dataset)[0] == "accepted"
    wanted = Selection(retailers=("north",), page_type="product", mode="refetch")
    recover.begin(pool, dataset, RUN, wanted, recover.select(pool, dataset, RUN, wanted))
    before = shop.requests["/sitemap.xml"]
    collect(pool, tmp_path, dataset)
    assert shop.requests["/sitemap.xml"] == before
    assert judged(pool, dataset)[0] == "accepted"
    assert len(skus(pool)) == 30
    assert_sound(pool)


@pytest.mark.parametrize("mode", ["cursor", "offset"])
def test_lists_that_share_items_are_each_read_to_their_end(
    pool: Pool, tmp_path: Path, shop: scripted.Site, mode: str
) -> None:
    """Two categories of the same shop; the second names much of what the first did."""
    lists = {"/a": range(70), "/b": range(10, 100)}

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        start = int(path.partition("from=")[2] or 0)
        mine = lists[path.partition("?")[0]][start : start + 10]
        items = [{"url": f"/p/{number}"} for number in mine]
        following = start + 10 if start + 10 < len(lists[path.partition("?")[0]]) else None
        return Answer(body=orjson.dumps({"items": items, "next": following}))

    shop.answer = answer
    keys = {"cursor": 'next: next, page: "?from={cursor}"', "offset": 'step: 10, page: "?from={offset}"'}[mode]
    dataset = declared(tmp_path, shop, f"{{{mode}: [/a, /b], items: items, item: url, {keys}}}")
    collect(pool, tmp_path, dataset)
    assert len(skus(pool)) == 100
    state, checks = judged(pool, dataset)
    assert (state, checks["discovery"]["passed"]) == ("accepted", True), checks["discovery"]
    assert_sound(pool)


def test_a_list_that_is_cut_is_rejected(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(40)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, "{sitemap: /sitemap.xml, per_page: 30}")
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert "it names more than 30 addresses (urls.per_page)" in checks["discovery"]["got"]


def test_another_expectation_is_judged_by(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(40)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, "{sitemap: /sitemap.xml, expect: 80..100}")
    collect(pool, tmp_path, dataset)
    assert judged(pool, dataset)[0] == "rejected"
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text().replace("80..100", "30..50"))
    dataset = make.load.dataset(tmp_path, "prices")
    assert judged(pool, dataset)[0] == "accepted"


def test_what_is_expected_is_counted_once_for_all_contexts(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(40)
    catalogue.url = shop.url

    def answer(path: str) -> Answer:
        answered = catalogue.answer(path)
        return answered._replace(body=answered.body.replace(b"<h1>", b"<p id=zip>1</p><h1>"))

    shop.answer = answer
    proof = '{prove: {css: "#zip", equals: "1"}}'
    dataset = declared(
        tmp_path, shop, "{sitemap: /sitemap.xml, expect: 35..45}", f"contexts: {{a: {proof}, b: {proof}}}\n"
    )
    collect(pool, tmp_path, dataset)
    assert len(skus(pool)) == 80
    assert judged(pool, dataset)[1]["expect"]["got"] == "40"


def test_a_list_page_that_is_gone_is_asked_for_by_a_repair(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    catalogue = Catalogue(3 * PER_PAGE)
    catalogue.url = shop.url
    gone = {"/list?page=2"}
    shop.answer = lambda path: Answer(404) if path in gone else catalogue.answer(path)
    dataset = declared(tmp_path, shop, MODES["listing"])
    collect(pool, tmp_path, dataset)
    assert judged(pool, dataset)[0] == "rejected"
    whole = status.run_status(pool, RUN)
    assert whole is not None
    (shown,) = whole["retailers"]
    assert shown["coverage"] == 1.0, "a list page that is gone is no product that is"
    assert shown["tasks"]["gone"] in (1, 2), "once or twice, as the second pass began"
    gone.clear()
    recover.begin(pool, dataset, RUN, WALK, recover.select(pool, dataset, RUN, WALK))
    collect(pool, tmp_path, dataset)
    assert (len(skus(pool)), judged(pool, dataset)[0]) == (3 * PER_PAGE, "accepted")


def test_a_list_that_did_not_end_well_is_walked_again_by_a_repair(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    following = {"": "a", "a": "a"}

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        at = path.partition("after=")[2]
        item = {"": 1, "a": 2, "b": 3}[at]
        return Answer(body=orjson.dumps({"data": {"products": [{"url": f"/p/{item}"}]}, "next": following.get(at)}))

    shop.answer = answer
    dataset = declared(tmp_path, shop, MODES["cursor"])
    collect(pool, tmp_path, dataset)
    assert "cursor_cycle" in judged(pool, dataset)[1]["discovery"]["got"]
    following["a"] = "b"
    recover.begin(pool, dataset, RUN, WALK, recover.select(pool, dataset, RUN, WALK))
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert (len(skus(pool)), state) == (3, "accepted"), checks["discovery"]
    assert_sound(pool)


def test_what_a_repair_would_change_is_shown_of_pages_that_give_rows(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    catalogue = Catalogue(30)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(tmp_path, shop, MODES["sitemap"])
    collect(pool, tmp_path, dataset)
    selection = Selection(mode="artifacts", retailers=("north",))
    (found,) = recover.select(pool, dataset, RUN, selection)
    shown = asyncio.run(recover.preview(pool, dataset, RUN, found, tmp_path / "artifacts", 100))
    assert (shown["pages"], shown["would_fail"], shown["failed"]) == (30, 0, [])
    with postgres.transaction(pool) as tx:
        pages = observe.stored_pages(tx, RUN, "north", at_most=100)
    assert len(pages) == 30
    assert all("/p/" in page.url for page in pages)


def test_a_worker_that_is_told_no_window_finds_what_only_waits(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, [f"/p/{n}" for n in range(20)])})
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + "fetch: {rate: none, open_tasks: 8, robots: ignore}\n")
    plan.plan(pool, make.load.dataset(tmp_path, "prices"), WINDOW, now=NOW)
    with postgres.transaction(pool) as tx:
        # As a worker leaves it that is killed between its last page and the next look at what waits.
        tx.execute("update scrape.tasks set state = 'quarantined', last_failure_class = 'timeout'")
        assert [(row.run_id, row.retailer) for row in runs.open_work(tx, None)] == [(RUN, "north")]
        control.pause(pool, RUN, ["north"], "by hand")
    with postgres.transaction(pool) as tx:
        assert runs.open_work(tx, None) == []
    shown = status.run_status(pool, RUN)
    assert shown is not None
    assert shown["retailers"][0]["waits"]


def test_status_says_how_far_the_lists_were_read_and_what_waits(
    pool: Pool, tmp_path: Path, shop: scripted.Site, command: Command
) -> None:
    catalogue = Catalogue(40)
    shop.answer, catalogue.url = catalogue.answer, shop.url
    dataset = declared(
        tmp_path, shop, "{sitemap: /sitemap.xml, per_page: 30}", fetch="{rate: none, robots: ignore, open_tasks: 9}"
    )
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])

    async def until_it_is_known() -> None:
        workers: list[Any] = []
        shop.answer = lambda path: catalogue.answer(path)._replace(seconds=0.3 if path.startswith("/p/") else 0.0)
        collecting = asyncio.create_task(
            run.collect_partitions(pool, Machine(tmp_path / "artifacts", "w", {}), work, on_worker=workers.append)
        )
        while not rows(pool, "select 1 from scrape.frontier"):
            await asyncio.sleep(0.02)
        workers[0].stop()
        await asyncio.gather(collecting, return_exceptions=True)

    asyncio.run(until_it_is_known())
    said = command("status", "prices", "--window", WINDOW).err
    assert "north: 2 of 2 pages that name others read; " in said
    assert "it names more than 30 addresses (urls.per_page)" in said
    assert f"pages wait for room at {shop.url}, the oldest for " in said


def lists_of_links(table: dict[str, tuple[str | None, int]]) -> Callable[[str], Answer]:
    """A shop of list pages by their path: where each goes on, and its one item."""

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        following, item = table[path]
        more = f'<a rel=next href="{following}">next</a>' if following else ""
        return Answer(body=f"<title>list</title><a class=card href=/p/{item}>x</a>{more}".encode())

    return answer


LISTS = "item: a.card, next: 'a[rel=next]'"


def test_a_list_that_comes_back_to_its_first_page_is_no_whole(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    """As a cursor does that ran out, on sites that answer it with the first page."""
    shop.answer = lists_of_links({"/new": ("/new?c=a", 10), "/new?c=a": ("/new", 20)})
    dataset = declared(tmp_path, shop, f"{{cursor: /new, {LISTS}}}")
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "rejected"
    assert "leads back to a page that the declaration named before" in checks["discovery"]["got"]


def test_the_repair_of_one_list_leaves_what_is_wrong_with_another(
    pool: Pool, tmp_path: Path, shop: scripted.Site
) -> None:
    table: dict[str, tuple[str | None, int]] = {
        "/a": ("/a?c=1", 10),
        "/a?c=1": ("/a?c=2", 20),
        "/a?c=2": ("/a?c=1", 30),
        "/b": (None, 40),
    }
    good = lists_of_links(table)
    shop.answer = lambda path: Answer(404) if path == "/b" else good(path)
    dataset = declared(tmp_path, shop, f"{{cursor: [/a, /b], {LISTS}}}")
    collect(pool, tmp_path, dataset)
    assert judged(pool, dataset)[0] == "rejected"
    shop.answer = good
    (b,) = (Selection(urls=(f"{shop.url}/b",)),)
    recover.begin(pool, dataset, RUN, b, recover.select(pool, dataset, RUN, b))
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert (state, len(skus(pool))) == ("rejected", 4)
    assert "cursor_cycle" in checks["discovery"]["got"]
    table |= {"/a?c=2": ("/a?c=3", 30), "/a?c=3": (None, 50)}
    recover.begin(pool, dataset, RUN, WALK, recover.select(pool, dataset, RUN, WALK))
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert (state, len(skus(pool))) == ("accepted", 5), checks["discovery"]
    assert_sound(pool)


@pytest.mark.parametrize("everything", [True, False])
def test_a_list_that_moved_meanwhile_is_walked_again(
    pool: Pool, tmp_path: Path, shop: scripted.Site, everything: bool
) -> None:
    items = list(range(10, 90))
    broken = True

    def answer(path: str) -> Answer:
        if path.startswith("/p/"):
            return product(int(path[3:]))
        after = path.partition("after=")[2]
        at = items.index(int(after)) + 1 if after else 0
        mine = items[at : at + 10]
        following = mine[-1] if at + 10 < len(items) else None
        if broken and at >= 50:
            following = items[9]
        return Answer(body=orjson.dumps({"data": {"products": [{"url": f"/p/{n}"} for n in mine]}, "next": following}))

    shop.answer = answer
    dataset = declared(tmp_path, shop, MODES["cursor"])
    collect(pool, tmp_path, dataset)
    assert "cursor_cycle" in judged(pool, dataset)[1]["discovery"]["got"]
    broken = False
    items.insert(0, 5)
    again = Selection(page_type="cursor", mode="refetch") if everything else WALK
    recover.begin(pool, dataset, RUN, again, recover.select(pool, dataset, RUN, again))
    collect(pool, tmp_path, dataset)
    state, checks = judged(pool, dataset)
    assert state == "accepted", checks["discovery"]
    assert len(skus(pool)) == 81 if everything else 80
    assert_sound(pool)


def test_what_is_let_in_is_not_named_anew_meanwhile(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    """A worker lets a page in from the frontier while a list page that names it too is committed."""
    dataset = declared(tmp_path, shop, MODES["listing"], fetch="{rate: none, open_tasks: 1, robots: ignore}")
    plan.plan(pool, dataset, WINDOW, now=NOW)
    ((parent,),) = rows(pool, "select task_key from scrape.tasks")
    address = f"{shop.url}/p/1"
    key = keys.task_key("prices", "north", "", "product", address, WINDOW)
    child = {
        "task_key": str(key),
        "page_type": "product",
        "discovers": False,
        "url": address,
        "canonical_url": address,
        "origin": shop.url,
        "entity": None,
        "depth": 1,
        "barren": 0,
        "position": 0,
        "modified_at": None,
    }
    named = {"children": orjson.dumps([child]).decode(), "parent": parent, "max_attempts": 3}
    with postgres.transaction(pool) as tx:
        sql.one(tx, "add_children", **named)
    locked = threading.Event()

    def commit() -> None:
        with postgres.transaction(pool) as tx:
            locked.set()
            sql.maybe(tx, "lock_partition", run_id=RUN, retailer="north")
            sql.one(tx, "add_children", **named)

    with pool.connection() as admitting:
        assert discovery.admit_unless_busy(admitting, RUN, "north", 100) == 1
        committing = threading.Thread(target=commit)
        committing.start()
        locked.wait()
        time.sleep(0.3)
        admitting.commit()
    committing.join()
    assert rows(pool, "select task_key from scrape.frontier") == []
    assert rows(pool, "select planned from scrape.run_partitions") == [(2,)]
    with pool.connection() as deciding:
        sql.maybe(deciding, "lock_partition", run_id=RUN, retailer="north")
        with postgres.transaction(pool) as tx:
            assert discovery.admit_unless_busy(tx, RUN, "north", 100) == 0, "it waits for nobody"
    assert_sound(pool)


def test_what_a_page_names_whose_lease_was_lost_is_not_kept(pool: Pool, tmp_path: Path, shop: scripted.Site) -> None:
    dataset = declared(tmp_path, shop, MODES["sitemap"])
    plan.plan(pool, dataset, WINDOW, now=NOW)
    (work,) = run.assignments(pool, dataset, WINDOW, ["north"])
    with postgres.transaction(pool) as tx:
        (claim,) = lease.claim(
            tx, run_id=RUN, retailer="north", origin=shop.url, manifest_hash=work.frozen.manifest_hash, worker_id="w",
            wanted=1, lease_seconds=60.0, deadline_seconds=600.0,
        )  # fmt: skip
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.tasks set lease_until = clock_timestamp() - interval '1 minute'")
        assert lease.reap(tx, "another") == 1
    address = f"{shop.url}/p/1"
    child = {
        "task_key": str(keys.task_key("prices", "north", "", "product", address, WINDOW)),
        "page_type": "product",
        "discovers": False,
        "url": address,
        "canonical_url": address,
        "origin": shop.url,
        "entity": None,
        "depth": 1,
        "barren": 0,
        "of_pages": 0,
        "position": 0,
        "modified_at": None,
    }
    named = discovery.Discovered(
        retailer="north", children=[child], next=None, again=None, problem=None, mode="sitemap",
        page=claim.canonical_url, barren=0, max_attempts=3, open_tasks=9, budget=dataset.budget,
    )  # fmt: skip
    late = commit.Result(
        claim.lease, shop.url, "committed", "committed", claim.leased_at, work.frozen.extractor_version, row_count=0,
        discovered=named,
    )  # fmt: skip
    with postgres.transaction(pool) as tx:
        assert commit.finish(tx, RUN, WINDOW, [late], []) == set()
    assert rows(pool, "select (select count(*) from scrape.tasks), (select count(*) from scrape.frontier) as f") == [
        (1, 0)
    ]
    assert_sound(pool)
