"""The commands as a person types them: what they print, and the exit code they end with."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pytest

from scrape_assets.cli.output import Outage
from scrape_assets.flow import plan, run
from scrape_assets.store import lease, postgres
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.command import Command, command
from tests.helpers.site import Site, site

__all__ = ["command"]  # a fixture


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


def today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


def test_a_worker_collects_a_planned_window_and_status_shows_it(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, [f"/p/n{i}" for i in range(10)])})
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    worked = command("worker", "--json")
    assert (worked.code, worked.json["outcomes"]) == (0, {"committed": 10})
    assert "no open work left" in command("worker").err
    verdict = command("verify", "--json")
    assert verdict.code == 0
    assert verdict.json["violations"] == []
    assert verdict.json["checked"] >= 20
    shown = command("status", "prices", "--window", "current", "--json").json
    assert shown["tasks"] == {
        "planned": 10,
        "committed": 10,
        "gone": 0,
        "quarantined": 0,
        "open": 0,
        "leased": 0,
    }
    assert today() in command("status", "prices").out


@pytest.fixture
def without_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster is left out: to import it takes longer than all of these tests; tests/dagster sees what it is told."""
    monkeypatch.setattr("scrape_assets.cli.operate._record_history", lambda *_, **__: None)


@pytest.mark.usefixtures("without_history")
def test_publish_and_deliver_do_their_part_once(command: Command, pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, [f"/p/n{i}" for i in range(3)])})
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    early = command("publish", "prices")
    assert (early.code, early.out) == (3, "")
    assert "not complete" in early.err
    assert command("worker", "--json").code == 0
    first, again = command("publish", "prices", "--json"), command("publish", "prices", "--json")
    assert (first.code, first.json["new"], first.json["rows"]) == (0, True, 3)
    assert (again.code, again.json["new"], again.json["dataset_version"]) == (0, False, 1)
    sent = command("deliver", "prices", "--json")
    assert [(d["state"], d["dataset_version"]) for d in sent.json["deliveries"]] == [("delivered", 1)]
    assert command("deliver", "prices", "--json").json == {"deliveries": []}


@pytest.mark.usefixtures("without_history")
def test_run_ends_with_exit_code_3_over_a_rejected_candidate_and_says_what_it_resumes(
    command: Command, tmp_path: Path, shop: Site
) -> None:
    shop.answer = lambda _path: (200, {}, b"<h1>New design</h1>" + b"<p>None of these things is marked up.</p>" * 60)
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/2"])})
    ended = command("run", "prices", "--json")
    assert ended.code == 3
    assert (ended.json["acceptance"]["state"], ended.json["published"]) == ("rejected", None)
    assert "coverage" in ended.err
    again = command("run", "prices")
    assert again.code == 3
    assert "resuming: 2 done, 0 pending, 0 leased elsewhere" in again.err
    assert sum(shop.requests.values()) == 2


def test_a_worker_collects_all_that_is_planned_of_several_datasets_and_windows(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    now = datetime.now(UTC)
    prices = make.dataset(tmp_path, {"north": (shop.url, ["/p/n1", "/p/n2"])})
    plan.plan(pool, prices, f"{now - timedelta(days=1):%Y-%m-%d}", now=now)
    both = make.dataset(tmp_path, {"north": (shop.url, ["/p/n1"]), "south": (shop.url, ["/p/s1"])})
    plan.plan(pool, both, today(), now=now)
    plan.plan(pool, make.dataset(tmp_path, {"east": (shop.url, ["/p/e1"])}, name="jobs"), today(), now=now)
    worked = command("worker")
    assert worked.code == 0, worked.err
    assert "no open work left" in command("worker").err
    with pool.connection() as connection:
        rows = connection.execute("select run_id, retailer, state from scrape.tasks order by 1, 2").fetchall()
    assert [row.state for row in rows] == ["committed"] * 5


def test_failed_lists_what_was_not_obtained_with_the_reason(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    ordinary = shop.answer
    lost = "/p/n" + "1" * 400
    shop.answer = lambda path: (404, {}, b"gone") if path == lost else ordinary(path)
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/n0", lost, "/p/n2"])})
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    assert command("worker", "--json").code == 0
    (failed,) = command("failed", "prices", "--json").json["failed"]
    assert (failed["url"], failed["state"], failed["http_status"]) == (f"{shop.url}{lost}", "gone", 404)
    shown = command("failed", "prices").out.splitlines()
    assert f"  {shop.url}{lost}" in shown, "an address stands whole on a line of its own"
    assert "north  gone  gone  1 try (404" in "".join(shown)
    other = command("failed", "prices", "--retailer", "nort")
    assert (other.code, other.out) == (2, "")
    assert "it has north" in other.err


@pytest.mark.usefixtures("without_history")
def test_a_retailer_that_is_declared_after_the_window_was_made_is_named_and_not_collected(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    north = {"north": (shop.url, ["/p/n1"])}
    plan.plan(pool, make.dataset(tmp_path, north), today(), now=datetime.now(UTC))
    make.dataset(tmp_path, {**north, "south": (shop.url, ["/p/s1"])})
    ended = command("run", "prices")
    assert ended.code == 0, ended.err
    assert "south was declared after" in ended.err
    assert set(shop.requests) == {"/p/n1"}


WRONG = [
    ("run price", "did you mean 'prices'"),
    ("run prices --retailer nort", "it has north"),
    ("failed prices --window yesterday", "2026-01-01"),
    ("failed prices", "never planned"),
    ("run prices --window 9999-12-31", "2026-01-01"),
    ("run prices --window 0001-01-01", "2026-01-01"),
    ("worker price", "did you mean 'prices'"),
    ("demo --port 8800", "--serve"),
    ("drill --window K99", "K1, K2"),
    ("drill --window K9 --random 5", "one of the two"),
    ("pause price", "did you mean 'prices'"),
    ("pause prices", "never planned"),
    ("init y --site shop.example", "https://"),
    ("status prices --window current", "never planned"),
    ("publish prices", "never planned"),
    ("init x --dataset ../up", "--dataset"),
    ("try south http://127.0.0.1/", "north"),
    ("try nort http://127.0.0.1/", "did you mean 'north'"),
    ("failed prices --failure-class xtraction", "did you mean 'extraction'"),
    ("run prices --window 2026-02-30", "there is no such day"),
    ("run prices --window 2025-12-31", "window.start"),
    ("close prices", "`scrape-assets run` plans"),
]


def test_a_wrong_word_ends_with_exit_code_2_and_what_is_right(command: Command, tmp_path: Path, shop: Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    ended = {words: command(*words.split()) for words, _ in WRONG}
    assert {words: end.code for words, end in ended.items()} == {words: 2 for words, _ in WRONG}
    assert [(words, ended[words].err) for words, said in WRONG if said not in ended[words].err] == []
    assert {end.out for end in ended.values()} == {""}
    assert not Path("x").exists() and not Path("y").exists(), "what is wrong is not written"


@pytest.mark.parametrize("words", ["verify", "worker", "status prices", "run prices", "deliver prices"])
def test_a_folder_that_is_no_project_starts_no_server(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.delenv("SCRAPE_ASSETS_DATABASE_URL")
    ended = command(*words.split())
    assert (ended.code, ended.out) == (2, "")
    assert str(tmp_path) in ended.err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("inventory", ["", "url\n", "url\nnot an address\n", "url\nhttp://elsewhere.example/p\n"])
@pytest.mark.usefixtures("without_history")
def test_an_inventory_without_a_page_is_refused_before_it_uses_a_window_up(
    command: Command, tmp_path: Path, shop: Site, inventory: str
) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"]), "south": (shop.url, ["/p/2"])})
    file = tmp_path / "datasets/prices/north.csv"
    good = file.read_text()
    file.write_text(inventory)
    for words in (("check",), ("run", "prices")):
        ended = command(*words)
        assert ended.code == 2, words
        assert f"{file} names no page to collect" in ended.err or "the file is empty" in ended.err, ended.err
    file.write_text(good)
    assert command("check").code == 0
    assert command("run", "prices").code == 0
    assert set(shop.requests) == {"/p/1", "/p/2"}


@pytest.mark.usefixtures("without_history")
def test_a_window_that_is_over_is_not_told_to_be_resumed_with_an_older_declaration(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    before = file.read_text()
    file.write_text(before + "product: {expect: article.product}\n")
    open_window = command("run", "prices")
    assert open_window.code == 2
    assert "--frozen" in open_window.err
    assert open_window.err.count("the frozen part of north changed") == 1, "it is said once"
    file.write_text(before)
    assert command("run", "prices").code == 0
    file.write_text(before + "product: {expect: article.product}\n")
    over = command("run", "prices")
    assert over.code == 2
    assert "Nothing of it is open" in over.err
    assert "--frozen" not in over.err


@pytest.mark.usefixtures("without_history")
def test_a_rejected_window_says_the_cause_once_and_fits_a_terminal(
    command: Command, pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.answer = lambda _path: (200, {}, b"<h1>Lamp</h1><b class=sku>1</b>" + b"<p>A lamp for a desk.</p>" * 60)
    more = "product: {expect: h1, fields: {name: {css: .nam}, sku: {css: .sku}, price: {css: .pric, money: EUR}}}"
    make.dataset(tmp_path, {"north": (shop.url, [f"/p/{i}" for i in range(12)])}, more=more)
    ended = command("run", "prices")
    assert ended.code == 3
    told = "north: 12 given up, extraction: name: css .nam found nothing; price: css .pric found nothing"
    assert told in ended.err.splitlines()
    assert ended.err.count("not_empty: expected") == 1
    for wide in ("run prices", "status prices --window current", "status prices"):
        assert max(map(len, command(*wide.split()).out.splitlines())) <= 80, wide


def test_status_says_why_pages_wait_and_when_they_are_tried_again(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/2"])})
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    shop.answer = lambda _path: (503, {}, b"later")
    assert command("worker", "--json").code == 0
    with pool.connection() as connection:
        connection.execute(
            "update scrape.tasks set state = 'retry_wait', max_attempts = 9,"
            " next_attempt_at = clock_timestamp() + interval '1 hour'"
        )
    ended = command("status", "prices", "--window", "current")
    (told,) = [line for line in ended.err.splitlines() if "to try again" in line]
    assert told.startswith("north: 2 to try again, the next at ")
    assert told.endswith("UTC; last http_5xx: status 503")
    (told,) = [line for line in command("why", "prices").out.splitlines() if "of its pages are open" in line]
    assert told.startswith("north: 2 of its pages are open, 2 of them to try again, the next at ")
    assert told.endswith("UTC; last http_5xx: status 503")


def test_a_worker_counts_what_it_did_in_words(command: Command, pool: Pool, tmp_path: Path, shop: Site) -> None:
    plan.plan(pool, make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])}), today(), now=datetime.now(UTC))
    assert command("worker").err.splitlines()[-1] == "no open work left; this worker: 1 committed"


def test_an_outage_of_postgres_is_said_once_in_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    pool_says = logging.getLogger("tests.of.outage")
    pool_says.addHandler(Outage())
    for _ in range(5):
        pool_says.warning("error connecting in 'pool-1': connection is bad\nAnd more of it")
    assert capsys.readouterr().err.count("Postgres does not answer") == 1


def test_check_shows_each_retailer_and_the_window(command: Command, tmp_path: Path, shop: Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/2"])})
    shown = command("check")
    assert shown.code == 0, shown.err
    assert f"window {today()} ({today()} 00:00 to " in shown.out
    assert f"  north  {shop.url}" in shown.out.splitlines()
    assert "    tasks       2" in shown.out.splitlines()
    for line in (
        "  retry attempts 3, base 0.1s, cap 0.5s",
        "  lease for 30s, task_deadline 2m",
        "  deadline: closed one window after its end",
        f"  delivered to lake: full versions as jsonl in {tmp_path / 'published'}",
    ):
        assert line in shown.out.splitlines()
    assert command("check", "--json").json["datasets"][0]["retailers"][0]["tasks"] == 2


def test_a_dataset_whose_first_window_has_not_begun_says_so(command: Command, tmp_path: Path, shop: Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    file = tmp_path / "datasets/prices/dataset.yaml"
    file.write_text(file.read_text().replace("start: 2026-01-01", "start: 2099-01-01"))
    for words in (("check",), ("failed", "prices"), ("try", "north", f"{shop.url}/p/1")):
        ended = command(*words)
        assert ended.code == 2, words
        assert "2099-01-01" in ended.err, words


def test_a_store_that_does_not_answer_ends_with_exit_code_4(
    command: Command, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    monkeypatch.setenv("SCRAPE_ASSETS_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    ended = command("status", "prices")
    assert ended.code == 4
    assert "127.0.0.1" in ended.err


def test_try_shows_each_field_with_what_gave_it(command: Command, tmp_path: Path, shop: Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    tried = command("try", "north", f"{shop.url}/p/1")
    assert tried.code == 0
    assert "19.99" in tried.out
    assert "json" in tried.out.lower()


def test_try_names_every_field_that_it_does_not_find(command: Command, tmp_path: Path, shop: Site) -> None:
    shop.answer = lambda _path: (200, {}, b"<h1>Lamp</h1><b class=sku>1</b>" + b"<p>A lamp for a desk.</p>" * 60)
    fields = "name: {css: h1}, sku: {css: .sku}, brand: {css: .maker, optional: true}"
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])}, more=f"product: {{expect: h1, fields: {{{fields}}}}}")
    tried = command("try", "north", f"{shop.url}/p/1")
    assert tried.code == 0, tried.err
    assert any("brand" in line and "css .maker found nothing" in line for line in tried.out.splitlines())
    wrong = fields.replace("h1", ".titel").replace(".sku", ".ref")
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])}, more=f"product: {{expect: h1, fields: {{{wrong}}}}}")
    tried = command("try", "north", f"{shop.url}/p/1")
    assert tried.code == 1
    assert "name: css .titel found nothing; sku: css .ref found nothing" in tried.err


def test_status_names_an_origin_that_is_paused(command: Command, pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    with pool.connection() as connection:
        connection.execute(
            "update scrape.origins set paused_until = clock_timestamp() + interval '1 hour', pause_reason = 'status 429'"
        )
    ended = command("status", "prices", "--window", "current")
    assert shop.url in ended.err
    assert "status 429" in ended.err


def test_a_worker_says_once_that_a_declaration_differs_and_leaves_the_work_open(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + "product: {expect: article.product}\n")
    ended = command("worker")
    assert ended.code == 0
    assert "this project's differs" in ended.err
    assert "no open work" not in ended.err
    assert not shop.requests
    assert "north waits for manifest " in command("status", "prices", "--window", "current").err
    assert list(command("status", "prices", "--window", "current", "--json").json["waiting_for_manifest"]) == ["north"]


def test_verify_ends_with_exit_code_1_and_names_the_broken_invariant_and_its_key(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    day = today()
    plan.plan(pool, make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/2"])}), day, now=datetime.now(UTC))
    assert command("verify").code == 0
    with pool.connection() as connection:
        connection.execute("update scrape.run_partitions set planned = planned + 1")
    ended = command("verify", "--json")
    assert ended.code == 1
    (violation,) = ended.json["violations"]
    assert (violation["invariant"], violation["keys"]) == ("no_task_lost", [f"prices@{day} north"])
    assert violation["sentence"]
    shown = command("verify")
    assert shown.code == 1
    assert f"prices@{day} north" in shown.out


@pytest.mark.usefixtures("without_history")
def test_a_run_that_stands_still_says_what_it_waits_for(
    command: Command, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrape_assets.cli.work.STANDSTILL_SECONDS", 0.02)
    dataset = make.dataset(tmp_path, {"north": ("http://127.0.0.1:9", ["/p/1", "/p/2", "/p/3"])}, attempts=4)
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    worked = command("worker")
    lines = [line for line in worked.err.splitlines() if ", the next try at " in line]
    assert lines, worked.err
    assert lines[0].startswith("north: 1 page waits")
    assert "UTC; last transport: its robots.txt cannot be read (" in lines[0]
    assert "annot connect to" in lines[0]
    assert all(one != then for one, then in pairwise(lines)), "said again only when it changed"
    monkeypatch.setattr("scrape_assets.cli.work.STANDSTILL_SECONDS", 30.0)
    assert "wait, the next" not in command("worker").err


@pytest.mark.usefixtures("without_history")
def test_pages_that_a_dead_worker_had_are_said_with_the_time_when_they_come_back(
    command: Command, pool: Pool, tmp_path: Path, shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrape_assets.cli.work.STANDSTILL_SECONDS", 0.2)
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1", "/p/2"])})
    shop.answer = lambda _path: (404, {}, b"")
    plan.plan(pool, dataset, today(), now=datetime.now(UTC))
    (work,) = run.assignments(pool, dataset, today(), ["north"])
    with postgres.transaction(pool) as tx:
        lost = lease.claim(
            tx,
            run_id=f"prices@{today()}",
            retailer="north",
            origin=work.origins[0],
            manifest_hash=work.frozen.manifest_hash,
            worker_id="dead",
            wanted=2,
            lease_seconds=3.0,
            deadline_seconds=600.0,
        )
        ((until,),) = tx.execute("select max(lease_until) from scrape.tasks").fetchall()
    assert len(lost) == 2
    told = f"north: 2 pages leased elsewhere until {until.astimezone(UTC):%H:%M:%S} UTC"
    lines = command("run", "prices").err.splitlines()
    assert told in lines[:3], "before anything is waited for"
    assert lines.count(told) == 2, "and once while nothing ends"


def test_who_looks_and_names_no_window_sees_the_newest_that_there_is(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    assert f"prices@{today()} was never planned" in command("why", "prices").err
    day = f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"
    plan.plan(pool, dataset, day, now=datetime.now(UTC))
    looked = command("why", "prices")
    assert looked.out.startswith(f"prices@{day} has no version")
    assert f"window {day}, the newest that was planned" in looked.err
    assert command("failed", "prices", "--json").json["run_id"] == f"prices@{day}"
    assert f"prices@{today()} " in command("why", "prices", "--window", "current").err
    for words in (("show", "prices"), ("export", "prices")):
        assert f"prices@{today()}" in command(*words).err, "no window has a version"


def test_init_says_what_it_left_alone(command: Command, tmp_path: Path) -> None:
    first = ("init", str(tmp_path), "--retailer", "books", "--site", "https://books.example.com")
    assert command(*first).code == 0
    again = command(*first[:-1], "https://other.example.com")
    assert again.code == 0
    file = tmp_path / "datasets" / "prices" / "retailers" / "books.yaml"
    assert f"{file} exists and was left alone; its site is https://books.example.com" in again.err
    assert "wrote" not in again.err


def test_what_a_person_types_wrong_is_told_in_plain_words(command: Command, tmp_path: Path, shop: Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    wrong = command("export", "prices", "--format", "xml")
    assert (wrong.code, wrong.err) == (
        2,
        "error: --format 'xml' is not possible; expected one of parquet, csv, jsonl\n",
    )
    assert "did you mean 'parquet'?" in command("export", "prices", "--format", "parqeut").err
    for window, hint in ((today(), f"was never planned; `scrape-assets run prices --window {today()}` collects it"),):
        shown = command("show", "prices", "--window", window)
        assert (shown.code, hint in shown.err) == (2, True), shown.err


def test_durations_are_shown_as_they_are_written(command: Command, tmp_path: Path, shop: Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])})
    file = tmp_path / "datasets" / "prices" / "dataset.yaml"
    text = file.read_text().replace("publish: {to:", "publish: {by: 2d, to:").replace("cap: 0.5s", "cap: 30m")
    file.write_text(text)
    shown = command("check").out
    assert "published when complete, within 2d of its start" in shown
    assert "retry attempts 3, base 0.1s, cap 30m" in shown
    assert "0:00" not in shown.replace("00:00 ", "")


def test_the_program_says_which_version_it_is(command: Command) -> None:
    assert command("--version") == (0, f"{version('scrape-assets')}\n", "")


def test_a_retailer_of_two_datasets_is_offered_once(command: Command, tmp_path: Path, shop: Site) -> None:
    for name in ("prices", "stock"):
        make.dataset(tmp_path, {"alpha": (shop.url, ["/p/1"]), "beta": (shop.url, ["/p/1"])}, name=name)
    assert "expected one of alpha, beta" in command("try", "zzzzzz", f"{shop.url}/p/1").err


def test_a_stopped_retailer_is_said_to_be_stopped_and_not_also_paused(
    command: Command, pool: Pool, tmp_path: Path, shop: Site
) -> None:
    plan.plan(pool, make.dataset(tmp_path, {"north": (shop.url, ["/p/1"])}), today(), now=datetime.now(UTC))
    with postgres.transaction(pool) as tx:
        tx.execute(
            "update scrape.run_partitions set paused_at = clock_timestamp(), stopped_at = clock_timestamp(),"
            " pause_reason = 'stopped: its last 10 were refused'"
        )
    assert "north is stopped: its last 10 were refused." in command("status", "prices", "--window", "current").err
    looked = command("why", "prices").out
    assert "north: it is stopped: its last 10 were refused" in looked
    assert "scrape-assets resume prices" in looked


def test_the_stores_status_says_why_apart_from_where(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRAPE_ASSETS_DATABASE_URL")
    assert re.fullmatch(r"not running: \S+ \(.+\)\n", command("db", "status").out)
