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
    assert shown.out.startswith("north: 10 pages, 10 read from stored pages, 0 requests")
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
    assert "(none changed)" in again.err
    assert command("why", *AT).out.startswith(f"prices@{WINDOW}: version 1 is published and holds what is accepted")


def test_a_correction_is_exported_as_of_each_version(command: Command, story: Story, tmp_path: Path) -> None:
    story.accept = "{mode: dry_run}"
    story.declare(north=".was")
    assert command("run", *AT).code == 0
    story.declare(north=".now")
    unnamed = command("recover", *AT)
    assert (unnamed.code, "stands (north declared otherwise" in unnamed.err) == (2, True)
    done = command("recover", *AT, "--retailer", "north", "--json")
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
    bare = command("export", "prices", "--as-of", "1")
    assert f"window {WINDOW}, the newest that has a version" in bare.err
    assert bare.out == command("export", *AT, "--as-of", "1").out
    shown = command("show", "prices")
    assert "15 rows: 0 new, 10 corrected, 0 withdrawn since version 1" in shown.out
    assert "10 pages (no selection), 10 from stored pages, 0 requests" in shown.out
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
    assert "nothing needs this waiver" in command("waive", "coverage", *named, "--retailer", "north").err
    kept = command("waive", "--list", "--run", f"prices@{WINDOW}", "--json").json["waivers"]
    assert [(one["rule"], one["retailer"], one["counts"]) for one in kept][1:] == [
        ("drift:moved", "south", True),
        ("coverage", "north", True),
    ]
    revoked = command("waive", "--revoke", kept[2]["waiver_id"], "--run", f"prices@{WINDOW}")
    assert (revoked.code, "the waiver of coverage of north by ana is over" in revoked.err) == (0, True)
    assert "coverage of north, by ana, ended 20" in command("waive", "--list", "--run", f"prices@{WINDOW}").out
    both = command("waive", "coverage", "--list", "--run", f"prices@{WINDOW}")
    assert (both.code, "expected one of RULE, --list and --revoke" in both.err) == (2, True)
    assert "missing: RULE, --owner, --reason, --until" in command("waive", "--run", f"prices@{WINDOW}").err
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
    assert "no row before; now a row: price 1" in tried.err
    assert "None" not in tried.err
    seen = command("recover", *AT, "--dry-run")
    assert "a row: price 10, name Product n0, sku n0" in seen.out
    assert "None" not in seen.out


def test_a_repair_that_would_fail_says_so_before_all_else(command: Command, story: Story) -> None:
    story.declare(north=".was")
    assert command("run", *AT).code == 3
    story.declare(north="b, i")
    shown = command("recover", *AT, "--dry-run")
    assert shown.code == 0
    assert "north: 10 of 10 sampled pages would FAIL (extraction: price" in shown.out
    (seen,) = command("recover", *AT, "--dry-run", "--json").json["previews"]
    assert (seen["would_fail"], seen["failed"][0]["failure_class"]) == (10, "extraction")


def test_a_repair_that_asks_the_site_for_what_is_published_warns(command: Command, story: Story) -> None:
    story.whole(WINDOW)
    told = f"warning: north: 10 pages will be fetched now for the past window {WINDOW}; their prices are today's"
    words = ("--retailer", "north", "--refetch")
    assert told in command("recover", *AT, *words, "--dry-run").out
    assert (
        command("recover", *AT, *words, "--dry-run", "--json").json["repairs"][0]["warning"] == told.split(": ", 2)[2]
    )
    assert told in command("recover", *AT, *words).err


def test_a_correction_that_cannot_be_delivered_ends_as_run_would(command: Command, story: Story) -> None:
    with receiver() as api:
        story.publish = f"{{to: {{api: {{http: {{url: '{api.url}', timeout: 1s}}}}}}}}"
        story.accept = "{mode: dry_run}"
        story.declare(north=".was")
        assert command("run", *AT).code == 0
        api.behave = "refuse"
        story.declare(north=".now")
        ended = command("recover", *AT, "--retailer", "north")
        assert (ended.code, "error: not everything could be delivered" in ended.err) == (1, True)


def test_what_was_held_back_is_said_with_the_version(command: Command, story: Story) -> None:
    story.windows(*GOOD[:2])
    for prices in (story.prices, story.was):
        prices.update({sku: price * 100 for sku, price in prices.items() if sku.startswith("n")})
    ran = command("run", *AT)
    assert ran.code == 0, ran.err
    held = len(command("status", *AT, "--json").json["retailers"][0]["held"])
    assert held > 1
    noted = f"15 rows; {held} rules failed and were held back, see above"
    assert f"version 1 published: {noted}" in ran.err
    assert f"version 1: {noted}" in command("status", *AT).err
    assert f"; {held} rules failed and were held back: scrape-assets why prices" in command("publish", *AT).err
    assert command("publish", *AT, "--json").json["held"] == held
    (manifest,) = story.folder.glob(f"published/prices/{WINDOW}/v1/manifest.json")
    assert json.loads(manifest.read_text())["held"] == held


def test_the_windows_say_which_version_stands_and_what_it_lacks(command: Command, story: Story) -> None:
    story.publish = "{when: available}"
    story.declare(south=".nothing")
    assert command("run", *AT).code == 0
    shown = command("status", "prices", "--json").json["runs"][0]
    assert shown["version"] == {"dataset_version": 1, "rows": 10, "gaps": {"south": "rejected, missing"}}
    head, row = command("status", "prices").out.splitlines()[1::2][:2]
    assert head.split()[-4:] == ["candidate", "version", "rows", "gaps"]
    assert row.split()[-4:] == ["published", "1", "10", "south"]
    assert "south is a gap: rejected, missing" in command("status", *AT).err
    story.publish = "{when: complete}"
    story.declare(north=".was")
    command("recover", *AT, "--retailer", "north")
    assert "rejected (version 1 stands)" in command("status", "prices").out
    assert "rejected (version 1 stands)" in command("status", *AT).err


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


def test_a_secret_that_the_environment_lacks_is_said_before_anything_is_collected(
    command: Command, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    story.publish = "{to: {api: {http: {url: 'http://127.0.0.1:9', secret: 'env:NO_SUCH_SECRET', timeout: 1s}}}}"
    story.declare()
    told = "warning: deliveries to api would wait: NO_SUCH_SECRET is not set in the environment of this process"
    checked = command("check")
    assert (checked.code, told in checked.err) == (0, True)
    assert command("check", "--json").json["datasets"][0]["warnings"][0] == told.partition(" ")[2] + (
        "; the declaration names it"
    )
    assert command("run", *AT).err.startswith(told)


def test_rows_that_break_a_rule_are_shown_in_the_form_of_why(command: Command, story: Story, shop: Site) -> None:
    story.windows(*GOOD)
    story.declare(north=".was")
    ran = command("run", *AT)
    (row, *_) = [line for line in ran.err.splitlines() if line.startswith("  north: drift:moved ")]
    assert f" {shop.url}/p/n" in row
    assert " price = '" in row
    assert ", before '" in row
    assert row.endswith(")") and len(row.rpartition("(page ")[2]) == 12 + len(")")


def test_a_site_that_answers_503_is_asked_again_and_no_stored_page_is_read(command: Command, story: Story) -> None:
    story.answers = {f"n{number}": (503, {}, b"later") for number in range(10)}
    story.declare()
    command("run", *AT)
    offered = command("why", *AT, "--json").json["next"]
    assert not any(line.startswith("scrape-assets try prices/north") for line in offered), offered
    assert f"scrape-assets recover prices --window {WINDOW} --retailer north --dry-run" in offered


def test_a_repair_of_what_its_canary_stopped_says_that_the_canary_begins_again(command: Command, story: Story) -> None:
    story.accept = "{canary: 3}"
    story.declare(north="i.none")
    command("run", *AT)
    story.declare(north=".now")
    shown = command("recover", *AT, "--retailer", "north", "--dry-run")
    assert "; its canary failed, and begins again with this repair" in shown.out
    assert command("recover", *AT, "--retailer", "north", "--dry-run", "--json").json["repairs"][0]["canary_failed"]


def test_who_resumes_is_told_what_was_given_up(command: Command, story: Story) -> None:
    story.answers = {"n3": (200, {}, b"<html><body>another shop</body></html>")}
    story.declare()
    story.collect(WINDOW)
    assert command("pause", *AT, "--retailer", "north").code == 0
    told = f"north: 1 page was given up and stays so until: scrape-assets recover prices --window {WINDOW} --retailer north"
    assert told in command("resume", *AT).err
    command("pause", *AT)
    assert command("resume", *AT, "--json").json["given_up"] == {"north": 1}
