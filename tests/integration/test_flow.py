"""The main line on real Postgres and real HTTP: plan, collect, accept, publish, deliver, and their refusals."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import CandidateRejected
from scrape_assets.flow import accept, deliver, plan, publish, run, status, verify
from scrape_assets.flow.run import Machine
from scrape_assets.store import observe, postgres, sql
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.site import Site, product, site

WINDOW = "2026-03-05"
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
NEW_DESIGN = (
    b"<html><body><h1>New design</h1>"
    + b"<p>We sell many things, and none of them is marked up here.</p>" * 20
    + b"</body></html>"
)


def collect(pool: Pool, folder: Path, dataset: Dataset, *names: str) -> None:
    work = run.assignments(pool, dataset, WINDOW, list(names) or sorted(dataset.retailers))
    machine = Machine(folder / "artifacts", "test-worker", {})
    asyncio.run(run.collect_partitions(pool, machine, work))


def judge(pool: Pool, dataset: Dataset) -> accept.Verdict:
    for name in sorted(dataset.retailers):
        verdict = accept.accept_retailer(pool, dataset, f"prices@{WINDOW}", name)
        print(name, verdict.state, verdict.reasons)
    return accept.accept_dataset(pool, dataset, f"prices@{WINDOW}")


def whole(pool: Pool, folder: Path, dataset: Dataset) -> accept.Verdict:
    plan.plan(pool, dataset, WINDOW, now=NOW)
    collect(pool, folder, dataset)
    return judge(pool, dataset)


def assert_sound(pool: Pool) -> None:
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


@pytest.fixture
def shop() -> Site:
    with site() as it:
        yield it


def two_retailers(folder: Path, shop: Site, **more: object) -> Dataset:
    return make.dataset(
        folder,
        {"north": (shop.url, [f"/p/n{i}" for i in range(12)]), "south": (shop.url, [f"/p/s{i}" for i in range(8)])},
        **more,  # type: ignore[arg-type]
    )


def test_a_window_is_collected_published_and_delivered_once(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = two_retailers(tmp_path, shop)
    assert whole(pool, tmp_path, dataset).state == "accepted"
    first = publish.publish(pool, dataset, f"prices@{WINDOW}")
    again = publish.publish(pool, dataset, f"prices@{WINDOW}")
    assert (first.dataset_version, first.rows, first.new) == (1, 20, True)
    assert (again.dataset_version, again.rows, again.new) == (1, 20, False)
    sent = deliver.deliver(pool, dataset, jitter=0.5)
    assert [d.state for d in sent] == ["delivered"]
    assert deliver.deliver(pool, dataset, jitter=0.5) == []
    folder = tmp_path / "published" / "prices" / WINDOW / "v1"
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = [json.loads(line) for line in (folder / "part-0000.jsonl").read_text().splitlines()]
    assert manifest["rows"] == len(rows) == 20
    assert {row["sku"] for row in rows} == {f"n{i}" for i in range(12)} | {f"s{i}" for i in range(8)}
    assert {row["price"] for row in rows} == {"19.99"}
    assert set(shop.requests.values()) == {1}
    assert_sound(pool)


def test_planning_again_adds_nothing_and_collecting_again_asks_nothing(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = two_retailers(tmp_path, shop)
    whole(pool, tmp_path, dataset)
    again = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert [(p.planned, p.resumed, p.problem) for p in again] == [(12, True, None), (8, True, None)]
    collect(pool, tmp_path, dataset)
    assert sum(shop.requests.values()) == 20
    assert_sound(pool)


def test_a_changed_frozen_part_refuses_its_retailer_and_names_the_keys(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = two_retailers(tmp_path, shop)
    plan.plan(pool, dataset, WINDOW, now=NOW)
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + "product: {expect: article.product}\n")
    changed = make.load.dataset(tmp_path, "prices")
    north, south = plan.plan(pool, changed, WINDOW, now=NOW)
    assert north.problem is not None and "extract.page.expect" in north.problem
    assert south.problem is None
    collect(pool, tmp_path, changed)
    assert not [path for path in shop.requests if path.startswith("/p/n")]


def test_live_keys_take_effect_on_a_planned_run(pool: Pool, tmp_path: Path, shop: Site) -> None:
    plan.plan(pool, two_retailers(tmp_path, shop), WINDOW, now=NOW)
    file = tmp_path / "datasets/prices/dataset.yaml"
    file.write_text(file.read_text().replace("rate: none", "rate: 50/s").replace("attempts: 3", "attempts: 7"))
    again = plan.plan(pool, make.load.dataset(tmp_path, "prices"), WINDOW, now=NOW)
    assert [p.problem for p in again] == [None, None]
    with postgres.transaction(pool) as tx:
        assert tx.execute("select interval_seconds from scrape.origins").fetchone().interval_seconds == 0.02
        assert tx.execute("select distinct max_attempts from scrape.tasks").fetchall() == [(7,)]


def test_refused_inventory_lines_are_counted_and_listed(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/1#again", "/p/2"])})
    file = tmp_path / "datasets/prices/north.csv"
    file.write_text(file.read_text() + "ftp://elsewhere/x\nhttp://other.example/p\n")
    (planned,) = plan.plan(pool, dataset, WINDOW, now=NOW)
    assert (planned.planned, planned.rejected) == (2, 3)
    from scrape_assets.store import runs

    with postgres.transaction(pool) as tx:
        reasons = runs.rejections(tx, f"prices@{WINDOW}", "north", 10)
    assert [r.line for r in reasons] == [3, 5, 6]
    assert all(r.reason for r in reasons)


def test_a_broken_selector_publishes_nothing_and_the_reason_is_readable(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = two_retailers(tmp_path, shop)
    shop.answer = lambda path: (200, {}, NEW_DESIGN if "/p/s" in path else product(path[3:]))
    assert whole(pool, tmp_path, dataset).state == "rejected"
    with pytest.raises(CandidateRejected, match="south: rejected"):
        publish.publish(pool, dataset, f"prices@{WINDOW}")
    standing = status.run_status(pool, f"prices@{WINDOW}")
    south = standing["retailers"][1]
    assert south["state"] == "rejected" and any("coverage" in reason for reason in south["reasons"])
    with postgres.transaction(pool) as tx:
        assert tx.execute("select count(*) from scrape.published_observations").fetchone()[0] == 0
        assert tx.execute("select count(*) from scrape.outbox").fetchone()[0] == 0
        assert {row.failure_class for row in observe.failed_tasks(tx, f"prices@{WINDOW}", "south", None)} == {
            "wrong_template"
        }
    assert_sound(pool)


def test_relaxed_acceptance_is_judged_again_without_a_request(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = two_retailers(tmp_path, shop, coverage=1.0)
    shop.answer = lambda path: (
        (404, {}, b"") if path == "/p/s0" else (500, {}, b"") if path == "/p/s1" else (200, {}, product(path[3:]))
    )
    assert whole(pool, tmp_path, dataset).state == "rejected"
    asked = sum(shop.requests.values())
    relaxed = two_retailers(tmp_path, shop, coverage=0.8)
    assert judge(pool, relaxed).state == "accepted"
    assert publish.publish(pool, relaxed, f"prices@{WINDOW}").rows == 18
    assert sum(shop.requests.values()) == asked
    with postgres.transaction(pool) as tx:
        verdicts = tx.execute(
            "select accepted from scrape.verdicts where retailer = 'south' order by verdict_id"
        ).fetchall()
    assert verdicts == [(False,), (True,)]
    assert_sound(pool)


def test_failures_end_in_their_class_and_a_server_fault_is_tried_again(pool: Pool, tmp_path: Path, shop: Site) -> None:
    answers = {
        "/p/gone": (410, {}, b""),
        "/p/teapot": (418, {}, b""),
        "/p/down": (503, {}, b""),
        "/p/refused": (403, {}, b"no"),
        "/p/empty": (200, {}, b""),
    }
    dataset = make.dataset(tmp_path, {"north": (shop.url, [*answers, "/p/ok"])}, attempts=2)
    shop.answer = lambda path: answers.get(path, (200, {}, product("ok")))
    whole(pool, tmp_path, dataset)
    with postgres.transaction(pool) as tx:
        rows = tx.execute(
            "select substr(url, strpos(url, '/p/')) as path, state, last_failure_class as why, attempt_count as tries from scrape.tasks"
        ).fetchall()
    assert {tuple(row) for row in rows} == {
        ("/p/gone", "gone", "gone", 1),
        ("/p/teapot", "quarantined", "http_other", 1),
        ("/p/down", "quarantined", "retries_exhausted", 2),
        ("/p/refused", "quarantined", "access_refused", 2),
        ("/p/empty", "quarantined", "empty_shell", 1),
        ("/p/ok", "committed", None, 1),
    }
    assert_sound(pool)


def test_a_429_pauses_the_origin_and_costs_no_attempt(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, [f"/p/{i}" for i in range(4)])}, attempts=1)
    first = {"/p/0": True}
    shop.answer = lambda path: (
        (429, {"retry-after": "1"}, b"") if first.pop(path, False) else (200, {}, product(path[3:]))
    )
    whole(pool, tmp_path, dataset)
    with postgres.transaction(pool) as tx:
        task = tx.execute(
            "select state, attempt_count, lease_token, release_count from scrape.tasks where url like '%%/p/0'"
        ).fetchone()
        origin = tx.execute("select paused_until, pause_reason from scrape.origins").fetchone()
    assert tuple(task) == ("committed", 1, 2, 1)
    assert origin.paused_until is not None and "429" in origin.pause_reason
    with postgres.transaction(pool) as tx:
        paused = tx.execute(
            "select o.paused_until - a.finished_at as wait from scrape.origins o, scrape.attempts a"
            " where a.outcome = 'released' and a.http_status = 429"
        ).fetchone()
    # Our own backoff would be a fifth of it: the second is the site's word.
    assert paused.wait.total_seconds() >= 0.9
    assert_sound(pool)


def test_one_page_with_a_character_that_cannot_be_stored_is_quarantined_alone(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, [f"/p/{i}" for i in range(6)])})
    shop.answer = lambda path: (200, {}, product(path[3:], **({"brand": "a\x00b"} if path == "/p/3" else {})))
    whole(pool, tmp_path, dataset)
    with postgres.transaction(pool) as tx:
        rows = tx.execute(
            "select state, last_failure_class as why, count(*) as n from scrape.tasks group by 1, 2"
        ).fetchall()
    assert {tuple(row) for row in rows} == {("committed", None, 5), ("quarantined", "unstorable", 1)}


def test_two_pages_of_one_entity_leave_one_row_and_a_collision(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/a", "/p/b"])})
    shop.answer = lambda path: (200, {}, product("same", price="10.00" if path == "/p/a" else "12.00"))
    whole(pool, tmp_path, dataset)
    with postgres.transaction(pool) as tx:
        assert tx.execute("select count(*) from scrape.observations").fetchone()[0] == 1
        assert tx.execute("select count(*) from scrape.observation_collisions").fetchone()[0] == 1
    assert_sound(pool)


def test_rows_of_one_listing_that_contradict_each_other_are_told_by_a_check(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    listing = "key: [sku]\nproduct:\n  rows: li\n  fields: {sku: {css: b}, name: {css: i}, price: {css: s, money: EUR}}"
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/list"])}, more=listing)
    rows = [("a", "10.00"), ("a", "12.00"), ("b", "5.00"), ("b", "5.00"), ("c", "1.00"), ("a", "13.00")]
    body = "".join(f"<li><b>{sku}</b><i>Thing {sku}</i><s>{price}</s></li>" for sku, price in rows)
    shop.answer = lambda _path: (200, {}, body.encode())
    assert whole(pool, tmp_path, dataset).state == "accepted", "it warns, and the first of them stands"
    with postgres.transaction(pool) as tx:
        stored = tx.execute(
            "select payload ->> 'sku' as sku, payload ->> 'price' as price from scrape.observations order by 1"
        ).fetchall()
        verdict = tx.execute("select checks from scrape.verdicts where retailer = 'north'").fetchone()[0]
    assert [tuple(row) for row in stored] == [("a", "10"), ("b", "5"), ("c", "1")]
    [check] = [check for check in verdict if check["rule"] == "collisions"]
    assert (check["passed"], check["severity"]) == (False, "warn")
    assert check["got"].startswith("2 ")
    assert_sound(pool)


def test_the_way_to_a_page_is_kept_with_its_attempt_and_its_bytes(pool: Pool, tmp_path: Path, shop: Site) -> None:
    from scrape_assets.store import artifacts

    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/away"])}, coverage=0.5)
    moves = {"/p/1": "/p/2", "/p/2": "/p/3?x=1", "/p/away": "https://elsewhere.example/p"}
    shop.answer = lambda path: (302, {"location": moves[path]}, b"") if path in moves else (200, {}, product("3"))
    whole(pool, tmp_path, dataset)
    with postgres.transaction(pool) as tx:
        attempts = {a.outcome: a for a in tx.execute("select * from scrape.attempts").fetchall()}
        place = observe.artifact(tx, attempts["committed"].run_id, attempts["committed"].artifact_sha256)
    assert attempts["committed"].redirects == [f"{shop.url}/p/1", f"{shop.url}/p/2"]
    assert attempts["committed"].final_url == f"{shop.url}/p/3?x=1"
    assert attempts["quarantined"].redirects == [f"{shop.url}/p/away"]
    header, _ = artifacts.read(tmp_path / "artifacts", place)
    assert header["redirects"] == [f"{shop.url}/p/1", f"{shop.url}/p/2"]


def test_every_answer_is_kept_and_can_be_read_back(pool: Pool, tmp_path: Path, shop: Site) -> None:
    from scrape_assets.store import artifacts

    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/broken"])})
    shop.answer = lambda path: (200, {}, product("1") if path == "/p/1" else b"<html>nothing</html>")
    whole(pool, tmp_path, dataset)
    with postgres.transaction(pool) as tx:
        attempts = tx.execute("select run_id, artifact_sha256 as sha, outcome from scrape.attempts").fetchall()
        places = {a.outcome: observe.artifact(tx, a.run_id, a.sha) for a in attempts}
    assert artifacts.read(tmp_path / "artifacts", places["committed"])[1] == product("1")
    assert artifacts.read(tmp_path / "artifacts", places["quarantined"])[1] == b"<html>nothing</html>"
    assert "failed-" in places["quarantined"].segment


SLOW_PAGES = """
import time


def slow(page):
    time.sleep(0.1)
    return {"name": "thing", "sku": page.url.rsplit("/", 1)[1], "price": "1.00", "currency": "EUR"}
"""


@pytest.mark.parametrize(("bound", "value"), [("BACKLOG", 4), ("BACKLOG_BYTES", 2_000)])
def test_a_backlog_of_extraction_that_was_full_goes_on_when_it_shrinks(
    pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """Pages come faster than they are read, so the worker stops claiming; every commit must make room again."""
    monkeypatch.setattr(f"scrape_assets.flow.collect.{bound}", value)
    (tmp_path / "datasets" / "prices").mkdir(parents=True)
    (tmp_path / "datasets" / "prices" / "pages.py").write_text(SLOW_PAGES)
    dataset = make.dataset(
        tmp_path,
        {"north": (shop.url, [f"/p/n{i}" for i in range(40)])},
        more="key: [sku]\nproduct: {page_object: pages.py:slow}",
    )
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])

    async def bounded() -> None:
        machine = Machine(tmp_path / "artifacts", "test-worker", {})
        await asyncio.wait_for(run.collect_partitions(pool, machine, work), 600)

    asyncio.run(bounded())
    with postgres.transaction(pool) as tx:
        assert len(observe.urls(tx, f"prices@{WINDOW}", "committed")) == 40


def test_a_window_waits_for_its_release_from_its_last_acceptance_to_its_version(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = two_retailers(tmp_path, shop)
    run_id = f"prices@{WINDOW}"
    plan.plan(pool, dataset, WINDOW, now=NOW)
    assert publish.releasable(pool, dataset) == []
    collect(pool, tmp_path, dataset)
    accept.accept_retailer(pool, dataset, run_id, "north")
    assert publish.releasable(pool, dataset) == []
    accept.accept_retailer(pool, dataset, run_id, "south")
    assert publish.releasable(pool, dataset) == [WINDOW]
    accept.accept_dataset(pool, dataset, run_id)
    assert publish.releasable(pool, dataset) == [WINDOW], "judged, but a release that died here must be asked for again"
    # A retailer that comes later belongs to later windows: this one does not wait for it.
    later = make.dataset(tmp_path, {"west": (shop.url, ["/p/w1"])})
    assert publish.releasable(pool, later) == [WINDOW]
    publish.publish(pool, later, run_id)
    assert publish.releasable(pool, later) == []


def test_a_rejected_window_does_not_wait_for_a_release(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = two_retailers(tmp_path, shop)
    ordinary = shop.answer
    shop.answer = lambda path: (200, {}, NEW_DESIGN) if path.startswith("/p/s") else ordinary(path)
    assert whole(pool, tmp_path, dataset).state == "rejected"
    assert publish.releasable(pool, dataset) == []


def test_rows_rejected_and_accepted_again_are_the_version_that_stands(pool: Pool, tmp_path: Path, shop: Site) -> None:
    ordinary = shop.answer
    shop.answer = lambda path: (200, {}, NEW_DESIGN) if path == "/p/s1" else ordinary(path)
    dataset = two_retailers(tmp_path, shop, coverage=0.8)
    run_id = f"prices@{WINDOW}"
    assert whole(pool, tmp_path, dataset).state == "accepted"
    first = publish.publish(pool, dataset, run_id)
    strict = two_retailers(tmp_path, shop, coverage=1.0)
    assert judge(pool, strict).state == "rejected"
    assert publish.releasable(pool, strict) == []
    with pytest.raises(CandidateRejected, match="south"):
        publish.publish(pool, strict, run_id)
    relaxed = two_retailers(tmp_path, shop, coverage=0.8)
    assert judge(pool, relaxed).state == "published"
    again = publish.publish(pool, relaxed, run_id)
    assert (again.dataset_version, again.rows, again.new) == (first.dataset_version, first.rows, False)
    assert publish.releasable(pool, relaxed) == []
    with postgres.transaction(pool) as tx:
        assert tx.execute("select count(*) from scrape.outbox").fetchone()[0] == 1
    assert_sound(pool)


def test_a_retailer_is_judged_while_another_judges_the_window(pool: Pool, tmp_path: Path, shop: Site) -> None:
    """The row of a verdict refers to its run: that must not wait for whoever holds the run, who waits for us."""
    dataset = two_retailers(tmp_path, shop)
    plan.plan(pool, dataset, WINDOW, now=NOW)
    collect(pool, tmp_path, dataset)
    with postgres.transaction(pool) as tx:
        tx.execute("select from scrape.runs where run_id = %s for no key update", (f"prices@{WINDOW}",))
        verdict = accept.accept_retailer(pool, dataset, f"prices@{WINDOW}", "north")
    assert verdict.state == "accepted"
    for query in ("lock_run", "lock_partitions", "lock_partition"):
        assert "for no key update" in sql.queries()[query].text


def test_two_long_addresses_that_differ_in_their_last_character_are_two_whole_tasks(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    """Of random digits, which no index could compress below its limit."""
    long = "/p?t=" + random.Random(18).randbytes(2000).hex()
    paths = [long + "0", long + "1"]
    shop.answer = lambda _path: (200, {}, product("same"))
    dataset = make.dataset(tmp_path, {"north": (shop.url, paths)}, more="")
    assert whole(pool, tmp_path, dataset).state == "accepted"
    with postgres.transaction(pool) as tx:
        rows = tx.execute("select url, canonical_url, state from scrape.tasks").fetchall()
        entities = tx.execute("select entity_key from scrape.observations").fetchall()
    assert {tuple(row) for row in rows} == {(shop.url + path, shop.url + path, "committed") for path in paths}
    assert shop.requests == dict.fromkeys(paths, 1)
    assert len({row.entity_key for row in entities}) == 2
    assert all(len(row.entity_key.encode()) <= 512 for row in entities)
    assert_sound(pool)


def test_half_a_character_and_a_nul_cost_their_own_pages_alone_and_no_second_try(
    pool: Pool, tmp_path: Path, shop: Site
) -> None:
    names = {"/p/4": "Lamp \ud83d", "/p/7": "a\x00b"}
    dataset = make.dataset(tmp_path, {"north": (shop.url, [f"/p/{i}" for i in range(10)])}, coverage=0.8)
    shop.answer = lambda path: (200, {}, product(path[3:], **({"name": names[path]} if path in names else {})))
    assert whole(pool, tmp_path, dataset).state == "accepted"
    with postgres.transaction(pool) as tx:
        failed = tx.execute(
            "select right(url, 4) as path, state, last_failure_class, attempt_count from scrape.tasks"
            " where state <> 'committed'"
        ).fetchall()
        stored = tx.execute("select from scrape.observations").fetchall()
    assert {tuple(row) for row in failed} == {(path, "quarantined", "unstorable", 1) for path in names}
    assert len(stored) == 8
    assert set(shop.requests.values()) == {1}
    assert_sound(pool)
