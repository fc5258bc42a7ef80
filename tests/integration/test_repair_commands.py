"""`why`, `recover`, `waive`, `show`, `export`, `deliver` and `try --window`, as a person types them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scrape_assets.cli import output
from scrape_assets.store.postgres import Pool
from tests.helpers.command import Command, command
from tests.helpers.receiver import receiver
from tests.helpers.site import Site, site
from tests.helpers.story import Story, page

__all__ = ["command"]  # a fixture

GOOD = ("2026-03-02", "2026-03-03", "2026-03-04")
WINDOW = "2026-03-05"
AT = ("prices", "--window", WINDOW)


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def story(pool: Pool, tmp_path: Path, shop: Site) -> Story:
    story = Story(pool, tmp_path, shop, {"north": 10, "south": 5})
    # Where a command of this project keeps its pages.
    (tmp_path / "state" / "artifacts").mkdir(parents=True)
    (tmp_path / "artifacts").symlink_to(tmp_path / "state" / "artifacts" / "main")
    (tmp_path / "state" / "artifacts" / "main").mkdir()
    return story


def test_the_whole_repair_by_hand(command: Command, story: Story, shop: Site) -> None:
    story.windows(*GOOD)
    story.declare(north=".was")
    rejected = command("run", *AT)
    assert rejected.code == 3
    told = command("why", *AT)
    assert told.code == 0
    assert told.out.startswith(f"prices@{WINDOW} has no version; 2026-03-04 version 1 is the last good one")
    assert "north: drift:list_price" in told.out
    assert "    expected prices, not the list prices beside them" in told.out
    assert f"http://127.0.0.1:{shop.url.rsplit(':', 1)[1]}/p/n" in told.out
    assert f"scrape-assets recover prices --window {WINDOW} --retailer north --dry-run" in told.out
    said = command("why", *AT, "--json").json
    (north,) = [one for one in said["retailers"] if one["retailer"] == "north"]
    sample = next(check for check in north["failed"] if check["rule"] == "drift:moved")["samples"][0]
    assert sample["before"] != sample["value"]
    raw = command("try", "north", sample["url"], "--window", WINDOW, "--raw")
    assert raw.out.encode() == page(
        sample["url"].rsplit("/", 1)[1],
        story.prices[sample["url"].rsplit("/", 1)[1]],
        story.was[sample["url"].rsplit("/", 1)[1]],
    )

    asked = shop.requests.total()
    story.declare(north=".now")
    tried = command("try", "north", "--window", WINDOW, "--sample", "2", "--json")
    assert tried.code == 0
    assert [{c["field"] for c in one["changes"]} for one in tried.json["pages"]] == [{"price"}] * 2
    planned = command("recover", *AT, "--dry-run", "--json").json
    (repair,) = planned["repairs"]
    assert (repair["retailer"], repair["tasks"], repair["from_artifacts"], repair["requests"]) == ("north", 10, 10, 0)
    assert len(repair["urls"]) == 10
    assert {change["field"] for change in planned["previews"][0]["changes"]} == {"price"}
    shown = command("recover", *AT, "--dry-run")
    assert "north: 10 pages, 10 read from stored pages, 0 requests" in shown.err
    assert "nothing was changed" in shown.err
    done = command("recover", *AT)
    assert done.code == 0, done.err
    assert "north: 10 pages repaired with 0 requests: 10 committed, 0 quarantined, 0 gone" in done.err
    assert "not moved, by the hash over their rows: south" in done.err
    assert "version 1 published: 15 rows" in done.err
    assert shop.requests.total() == asked

    again = command("recover", *AT)
    assert again.code == 2
    assert "nothing of prices@2026-03-05 is rejected" in again.err
    assert command("why", *AT).out.startswith(f"prices@{WINDOW}: version 1 is published and holds what is accepted")


def test_a_correction_is_exported_as_of_each_version(command: Command, story: Story, tmp_path: Path) -> None:
    story.accept = "{mode: dry_run}"
    story.declare(north=".was")
    assert command("run", *AT).code == 0
    story.declare(north=".now")
    done = command("recover", *AT, "--json")
    assert done.code == 0, done.err
    assert done.json["published"]["changes"] == {"new": 0, "corrected": 10, "withdrawn": 0}
    assert done.json["recovery"]["other_partitions_moved"] == 0
    assert [p["moved"] for p in done.json["recovery"]["partitions"]] == [True, False]

    def prices(*options: str) -> dict[str, float]:
        out = command("export", *AT, *options)
        assert out.code == 0, out.err
        return {row["sku"]: float(row["price"]) for row in csv.DictReader(io.StringIO(out.out))}

    right = story.prices
    wrong = {**right, **{sku: story.was[sku] for sku in right if sku[0] == "n"}}
    assert prices("--as-of", "1") == wrong
    assert prices("--as-of", "2") == prices() == right
    assert prices("--changes") == {sku: price for sku, price in right.items() if sku[0] == "n"}
    lines = command("export", *AT, "--format", "jsonl").out.splitlines()
    assert {json.loads(line)["sku"] for line in lines} == set(right)
    file = tmp_path / "out.parquet"
    assert command("export", *AT, "--format", "parquet", "--output", str(file)).code == 0
    assert pq.read_table(file).num_rows == 15
    latest = command("export", "prices", "--latest")
    assert {row["sku"]: float(row["price"]) for row in csv.DictReader(io.StringIO(latest.out))} == right
    for wrong_options, message in (
        (("--as-of", "3"), "has no version 3; it has 1, 2"),
        (("--latest", "--as-of", "1"), "--latest is over all windows"),
    ):
        refused = command("export", *AT, *wrong_options)
        assert (refused.code, message in refused.err) == (2, True)
    shown = command("show", *AT)
    assert "15 rows: 0 new, 10 corrected, 0 withdrawn since version 1" in shown.out
    assert "10 pages (everything), 10 from stored pages, 0 requests" in shown.out
    assert command("show", *AT, "--version", "1", "--json").json["state"] == "superseded"
    assert command("show", *AT, "--version", "9").code == 2


def test_a_waiver_by_hand(command: Command, story: Story) -> None:
    story.windows(*GOOD)
    story.prices = {sku: round(price * 1.2345, 2) for sku, price in story.prices.items()}
    story.was = {sku: round(price * 1.2345, 2) for sku, price in story.was.items()}
    assert command("run", *AT).code == 3
    tomorrow = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}"
    named = ("--run", f"prices@{WINDOW}", "--owner", "ana", "--reason", "spring", "--until", tomorrow)
    refused = command("waive", "drift:moved", *named)
    assert refused.code == 2
    assert "--retailer names whose rule it is" in refused.err
    for retailer in ("north", "south"):
        assert command("waive", "drift:moved", *named, "--retailer", retailer).code == 0
    assert command("publish", *AT).code == 0
    assert f"drift:moved waived by ana until {tomorrow}" in command("show", *AT).out
    for placed, left in (("--owner", "YOU"), ("--reason", "WHY")):
        words = list(named)
        words[words.index(placed) + 1] = left
        ended = command("waive", "drift:moved", *words, "--retailer", "north")
        assert (ended.code, "YOU and WHY stand for a name and a reason" in ended.err) == (2, True)
    never = command("waive", "drift:moved", "--run", "prices@current", *named[2:], "--retailer", "north")
    assert (never.code, f"prices@{datetime.now(UTC):%Y-%m-%d} was never planned" in never.err) == (2, True)
    for wrong, message in (("prices", "is no run"), (f"prices@{GOOD[0]}", "was not judged by a rule drift:mooved")):
        gone = command("waive", "drift:mooved", "--run", wrong, *named[2:], "--retailer", "north")
        assert (gone.code, message in gone.err) == (2, True)
    assert "is no time" in command("waive", "gone", *named[:-1], "tomorrow", "--retailer", "north").err


def test_what_recover_refuses(command: Command, story: Story, tmp_path: Path) -> None:
    assert command("recover", *AT).code == 2
    story.whole(WINDOW)
    listed = tmp_path / "urls.txt"
    listed.write_text(f"# two of them\n{story.shop.url}/p/n1\nnot an address\n")
    for words, message in (
        (("--refetch", "--from-artifacts"), "expected one of the two"),
        (("--failure-class", "extracton"), "did you mean 'extraction'?"),
        (("--retailer", "west"), "has no planned retailer west"),
        (("--urls", str(tmp_path / "no.txt")), "cannot be read"),
        (("--urls", str(listed)), f"{listed}:3: 'not an address'"),
        (("--failure-class", "login"), "fits no page"),
    ):
        ended = command("recover", *AT, *words)
        assert (ended.code, message in ended.err) == (2, True), ended.err


def test_deliveries_are_listed_sent_again_and_reconciled(
    command: Command, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as api:
        story.publish = f"{{to: {{api: {{http: {{url: '{api.url}', timeout: 1s}}}}}}}}"
        story.declare()
        api.behave = "refuse"
        ran = command("run", *AT)
        assert ran.code == 1
        listed = command("deliver", "prices", "--status")
        assert "failed" in listed.out
        assert "--event EVENT" in listed.err
        (one,) = command("deliver", "prices", "--status", "--json").json["deliveries"]
        assert f"api: prices@{WINDOW} version 1 failed" in ran.err
        assert f"then scrape-assets deliver prices --event {one['event_id']} --destination api" in ran.err
        assert "due again by itself" not in ran.err, "a failed one is not"
        monkeypatch.setattr(output.out, "width", 80)
        lines = command("deliver", "prices", "--status").out.splitlines()
        assert f"  event {one['event_id']}" in lines, "however narrow the terminal"
        assert f"  {one['last_error']}" in lines
        api.behave = "busy"
        waits = command("deliver", "prices", "--event", one["event_id"])
        assert waits.code == 1
        again = command("deliver", "prices")
        assert (again.code, "nothing is due" in again.err) == (0, True)
        told = f"version 1 unsent, next try {datetime.now(UTC):%Y-%m-%d}"
        assert told in again.err
        assert f"(now: scrape-assets deliver prices --event {one['event_id']} --destination api)" in again.err
        assert ", next 20" in command("deliver", "prices", "--status").out
        assert f"deliver prices --event {one['event_id']} --destination api" in command("why", *AT).out
        api.behave = "lie"
        assert command("deliver", "prices", "--event", one["event_id"]).code == 0
        api.behave = "well"
        done = command("deliver", "prices", "--reconcile", "--json")
        assert (done.code, [d["state"] for d in done.json["reconciled"]]) == (0, ["unsent"])
        assert [d["state"] for d in done.json["deliveries"]] == ["delivered"]
        assert "1 deliveries asked for, 0 missing" in command("deliver", "prices", "--reconcile").err
        assert list(api.applied.values()) == [1]
        (held,) = api.held.values()
        held["data"]["content_hash"] = "0" * 64
        other = command("deliver", "prices", "--reconcile")
        assert (other.code, "1 with something else under their key" in other.err) == (1, True)
        assert "failed, and waits for you" in other.err
        for words, message in (
            (("--event", "x"), "is no event"),
            (("--destination", "api"), "goes with --event"),
            (("--event", "00000000-0000-0000-0000-000000000000"), "there is no event"),
        ):
            refused = command("deliver", "prices", *words)
            assert (refused.code, message in refused.err) == (2, True)


def test_check_explains_acceptance_and_destinations(command: Command, story: Story) -> None:
    story.accept = "{canary: 200, mode: dry_run, drift: {moved: 20%}}"
    story.publish = (
        '{when: available, by: "09:00", to: {api: {http: {url: "https://api.example.com/prices"}},'
        " t: {postgres: {url: 'env:DB', table: a.b}}}}"
    )
    story.declare()
    shown = command("check", "prices").out
    assert "published when available, by 09:00" in shown
    assert "delivered to api: full versions by POST to https://api.example.com/prices" in shown
    assert "delivered to t: full versions into table a.b of $DB" in shown
    assert "5% of the rows, 20% of the prices, after 3 windows; a canary of 200 pages; a dry run" in shown


def test_an_export_that_cannot_be_written_names_the_file_that_was_asked_for(
    command: Command, story: Story, tmp_path: Path
) -> None:
    story.whole(WINDOW)
    output = tmp_path / "nowhere" / "x.csv"
    refused = command("export", *AT, "--output", str(output))
    assert refused.err == f"error: {output} cannot be written: No such file or directory\n"


def test_a_window_without_a_version_is_shown_as_one(command: Command, story: Story) -> None:
    story.declare(north=".was")
    assert command("run", *AT).code == 3
    shown = command("show", *AT)
    assert (shown.code, "has no version yet; `scrape-assets why prices --window " + WINDOW in shown.err) == (2, True)


def test_a_row_that_a_page_did_not_give_before_is_said_to_be_new(command: Command, story: Story) -> None:
    story.declare(north=".nothing")
    assert command("run", *AT).code == 3
    story.declare(north=".now")
    tried = command("try", "north", "--window", WINDOW, "--sample", "1")
    assert "no row before, a row now" in tried.err
    assert "None" not in tried.err


def test_a_rehearsal_says_what_it_would_have_blocked(command: Command, story: Story) -> None:
    story.windows(*GOOD)
    story.more["north"] = "accept: {mode: dry_run}"
    story.declare(north=".cents")
    ran = command("run", *AT)
    assert ran.code == 0, ran.err
    assert "north: drift:ratio would have blocked (dry run): expected no prices times 10" in ran.err
    assert "drift:ratio would have blocked (dry run)" in command("show", *AT).out
    story.more.clear()
    story.accept = "{coverage: 0.1, gone: 100%, drift: {rows: 5%}, mode: dry_run}"
    story.declare(north=".now")
    story.answers = {sku: (410, {}, b"gone") for sku in story.prices if sku not in ("n1", "s1")}
    ran = command("run", "prices", "--window", "2026-03-06")
    assert ran.code == 0, ran.err
    held = "all retailers together: dataset_rows would have blocked (dry run): expected 14 to 16 rows"
    assert held in ran.err
    assert held in command("why", "prices", "--window", "2026-03-06").out


def test_a_new_retailer_is_said_to_be_new(command: Command, story: Story) -> None:
    ran = command("run", *AT)
    assert "north: drift is not judged yet: 0 of 3 accepted windows" in ran.err
    assert "drift is not judged yet" in command("show", *AT).out
    assert "drift is not judged yet" in command("why", *AT).out


def test_a_failed_canary_offers_the_repair_and_says_why_once(command: Command, story: Story) -> None:
    story.accept = "{coverage: 0.9, warm_up: 1, canary: 4}"
    story.declare()
    story.whole(GOOD[0])
    story.declare(north=".cents")
    ran = command("run", *AT)
    assert ran.code == 1
    assert ran.err.count("its canary of 4 pages failed") == 1
    assert f"`scrape-assets recover prices --window {WINDOW} --retailer north` begins with the canary again" in ran.err
    assert f"`scrape-assets resume prices --window {WINDOW}` lets it go on" in ran.err
    assert "its canary of 4 pages failed" in command("run", *AT, "--json").err, "where nothing else is said"
    story.declare(north=".now")
    assert command("recover", *AT, "--retailer", "north").code == 0


def test_a_run_names_the_window_of_every_version_that_it_sends(command: Command, story: Story) -> None:
    story.whole(GOOD[0])
    ran = command("run", *AT)
    for window in (GOOD[0], WINDOW):
        assert f"lake: prices@{window} version 1 delivered" in ran.err
