"""Versions of a window: three policies, labelled gaps, lateness, schemas that change, and two publishers at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from scrape_assets.errors import CandidateRejected
from scrape_assets.flow import accept, provenance, publish, verify, why
from scrape_assets.rules import versions
from scrape_assets.store import embedded, postgres
from scrape_assets.store.postgres import Pool
from tests.conftest import DATABASE
from tests.helpers.site import Site, site
from tests.helpers.story import NOW, Story

FIRST, WINDOW = "2026-03-04", "2026-03-05"
BEFORE, AFTER = datetime(2026, 3, 5, 8, 59, tzinfo=UTC), datetime(2026, 3, 5, 9, tzinfo=UTC)
REDESIGN = (200, {}, b"<html><body><p>Our shop has a new and better design now.</p></body></html>")


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def story(pool: Pool, tmp_path: Path, shop: Site) -> Story:
    return Story(pool, tmp_path, shop, {"north": 6, "south": 4})


def policy(story: Story, when: str, by: str = "") -> None:
    story.publish = f"{{when: {when}{by}, to: {{lake: {{files: {{path: published, format: jsonl}}}}}}}}"
    story.declare()


def assert_sound(story: Story) -> None:
    assert {v.name: v.keys for v in verify.verify(story.pool).violations} == {}


def broken_south(story: Story) -> None:
    for i in range(4):
        story.answers[f"s{i}"] = REDESIGN


def test_available_waits_for_everybody_until_its_hour_and_labels_the_gap(story: Story) -> None:
    policy(story, "available", ', by: "09:00"')
    story.collect(WINDOW, "north")
    assert story.judge(WINDOW, "north", now=BEFORE).state == "collecting"
    assert publish.releasable(story.pool, story.dataset, BEFORE) == []
    assert publish.releasable(story.pool, story.dataset, AFTER) == [WINDOW]
    assert story.judge(WINDOW, "north", now=AFTER).state == "accepted"
    published = story.release(WINDOW, now=AFTER)
    assert (published.rows, published.gaps) == (6, {"south": "not planned, missing"})
    (sent,) = story.delivered()
    manifest = json.loads(Path(sent.detail).read_text())
    assert manifest["gaps"] == {"south": "not planned, missing"}
    assert publish.releasable(story.pool, story.dataset, AFTER) == []

    story.collect(WINDOW, "south")
    assert story.judge(WINDOW, now=AFTER).state == "accepted"
    published = story.release(WINDOW, now=AFTER)
    assert (published.dataset_version, published.rows, published.gaps) == (2, 10, {})
    assert published.changes == {"new": 4, "corrected": 0, "withdrawn": 0}
    assert_sound(story)


def test_available_publishes_what_is_good_when_all_are_decided(story: Story) -> None:
    policy(story, "available", ', by: "09:00"')
    broken_south(story)
    story.collect(WINDOW)
    assert story.judge(WINDOW, now=BEFORE).state == "accepted"
    published = story.release(WINDOW, now=BEFORE)
    assert (published.rows, published.gaps) == (6, {"south": "rejected, missing"})
    assert story.rows("select distinct retailer from scrape.published_observations") == [("north",)]
    assert_sound(story)


def test_at_once_makes_a_version_of_each_acceptance(story: Story) -> None:
    policy(story, "at_once")
    story.collect(WINDOW, "south")
    assert story.judge(WINDOW, "south").state == "accepted"
    assert story.release(WINDOW).rows == 4
    assert publish.releasable(story.pool, story.dataset, NOW) == []
    story.collect(WINDOW, "north")
    accept.accept_retailer(story.pool, story.dataset, story.run_id(WINDOW), "north")
    assert publish.releasable(story.pool, story.dataset, NOW) == [WINDOW]
    assert story.judge(WINDOW).state == "accepted"
    published = story.release(WINDOW)
    assert (published.dataset_version, published.rows) == (2, 10)
    assert_sound(story)


@pytest.mark.parametrize("answer", [REDESIGN, (404, {}, b"gone")], ids=["redesigned", "gone"])
@pytest.mark.parametrize("when", ["available", "at_once"])
def test_a_retailer_whose_repair_fails_keeps_what_was_published_of_it(
    story: Story, when: str, answer: tuple[int, dict[str, str], bytes]
) -> None:
    policy(story, when)
    story.whole(WINDOW)
    for i in range(4):
        story.answers[f"s{i}"] = answer
    story.prices["n0"] = 77.0
    story.repair(WINDOW, retailers=("north", "south"), mode="refetch")
    assert story.judge(WINDOW).state == "accepted"
    published = story.release(WINDOW)
    assert (published.dataset_version, published.rows) == (2, 10)
    assert published.gaps == {"south": "rejected, kept from version 1"}
    assert published.changes == {"new": 0, "corrected": 1, "withdrawn": 0}, "absence is never a withdrawal"
    assert_sound(story)


@pytest.mark.parametrize("when", ["available", "at_once"])
def test_a_gap_is_published_after_months_of_full_versions_too(story: Story, when: str) -> None:
    story.accept = "{coverage: 0.9, warm_up: 1}"
    policy(story, when)
    story.windows("2026-03-01", "2026-03-02", "2026-03-03", FIRST)
    broken_south(story)
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    assert story.release(WINDOW).gaps == {"south": "rejected, missing"}


def test_of_an_incomplete_dataset_nothing_else_is_said(story: Story) -> None:
    """Whatever was published before: no band around windows that have nothing to do with it, and nothing to waive."""
    story.accept = "{coverage: 0.9, warm_up: 1}"
    story.declare()
    story.windows("2026-03-01", "2026-03-02", FIRST)
    for sku in story.prices:
        story.answers[sku] = REDESIGN
    story.collect(WINDOW)
    verdict = story.judge(WINDOW)
    assert (verdict.state, [check["rule"] for check in verdict.checks]) == ("rejected", ["members_accepted"])
    said = why.explain(story.pool, story.dataset, story.run_id(WINDOW), NOW)
    assert said["dataset_checks"] == []
    assert not any("dataset_rows" in line for line in (*why.text(said), *said["next"]))


@pytest.mark.parametrize(
    ("taken", "before", "counts"),
    [
        (["a"], [{"a": {"rows": 5}}, {"a": {"rows": 0}}], [5]),
        ([], [{"a": {"rows": 5}}, {}], []),
        (["a", "b"], [{"a": {"rows": 5}}, {"a": {"rows": 2}, "b": {"rows": 3}}], [5]),
    ],
)
def test_a_version_without_rows_says_nothing_of_how_many_there_should_be(
    taken: list[str], before: list[dict[str, dict[str, int]]], counts: list[int]
) -> None:
    assert versions.rows_before(taken, before) == counts


def test_a_dry_run_publishes_no_incomplete_dataset(story: Story) -> None:
    story.accept = "{mode: dry_run}"
    story.declare()
    broken_south(story)
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    with pytest.raises(CandidateRejected, match="members_accepted"):
        story.release(WINDOW)


def test_what_is_unverified_stays_so_while_its_retailer_is_carried(story: Story) -> None:
    policy(story, "at_once")
    story.accept = "{coverage: 0.8}"
    story.declare()
    story.whole(WINDOW)
    story.answers["n0"] = REDESIGN
    story.repair(WINDOW, retailers=("north",), mode="refetch")
    story.judge(WINDOW)
    story.prices["n1"] = 40.0
    story.answers.clear()
    story.answers["n0"] = REDESIGN
    story.repair(WINDOW, retailers=("north",), urls=(f"{story.shop.url}/p/n1",), mode="refetch")
    story.judge(WINDOW)
    assert story.release(WINDOW).dataset_version == 2
    for i in range(6):
        story.answers[f"n{i}"] = REDESIGN
    story.repair(WINDOW, retailers=("north",), mode="refetch")
    assert story.judge(WINDOW).state == "published", "what is carried is what is published"
    assert story.release(WINDOW).new is False
    story.prices["s1"] = 41.0
    story.repair(WINDOW, urls=(f"{story.shop.url}/p/s1",), mode="refetch")
    story.judge(WINDOW)
    assert story.release(WINDOW).changes == {"new": 0, "corrected": 1, "withdrawn": 0}
    held = story.rows("select payload ->> 'sku' as sku from scrape.as_of('prices', %s, 3) where unverified", WINDOW)
    assert held == [("n0",)]
    assert_sound(story)


def test_complete_publishes_nothing_of_a_repair_that_fails(story: Story) -> None:
    story.whole(WINDOW)
    before = story.as_of(WINDOW, 1)
    broken_south(story)
    story.prices["n0"] = 77.0
    story.repair(WINDOW, retailers=("north", "south"), mode="refetch")
    assert story.judge(WINDOW).state == "rejected"
    with pytest.raises(CandidateRejected, match="south: "):
        story.release(WINDOW)
    assert story.as_of(WINDOW, 1) == before
    assert story.rows("select max(dataset_version) from scrape.dataset_candidates") == [(1,)]
    assert {window for window, _ in story.latest().values()} == {WINDOW}
    assert_sound(story)


def test_a_window_that_is_late_is_said_to_be_once_with_the_reasons_and_what_stands(story: Story) -> None:
    policy(story, "complete", ', by: "09:00"')
    story.whole(FIRST)
    story.delivered()
    broken_south(story)
    story.collect(WINDOW)
    story.judge(WINDOW)
    assert publish.say_late(story.pool, story.dataset, BEFORE) == []
    assert publish.say_late(story.pool, story.dataset, AFTER) == [WINDOW]
    assert publish.say_late(story.pool, story.dataset, AFTER) == []
    (sent,) = story.delivered()
    assert (sent.state, sent.dataset_version) == ("delivered", None)
    said = json.loads(Path(sent.detail).read_text())
    assert said["last_good"] == {"window": FIRST, "dataset_version": 1}
    assert said["promised_at"] == "2026-03-05T09:00:00+00:00"
    assert any(reason.startswith("south: not_empty: expected at least one row") for reason in said["reasons"])
    explained = why.explain(story.pool, story.dataset, story.run_id(WINDOW), AFTER)
    assert explained["late"] is True
    assert (
        "it is late: it was promised by 2026-03-05 09:00 UTC; 2026-03-04 version 1 is the last good one"
        in why.text(explained)[0]
    )
    assert_sound(story)


def test_what_was_promised_long_ago_is_late_only_where_consumers_were_told(story: Story) -> None:
    policy(story, "complete", ', by: "09:00"')
    broken_south(story)
    story.collect(WINDOW)
    story.judge(WINDOW)
    days_later = AFTER + publish.LATE_SINCE + timedelta(minutes=1)

    def headline() -> str:
        return why.text(why.explain(story.pool, story.dataset, story.run_id(WINDOW), days_later))[0]

    assert publish.say_late(story.pool, story.dataset, days_later) == []
    assert "it was promised by 2026-03-05 09:00 UTC (older than 2 days: no event)" in headline()
    assert "late" not in headline()
    assert publish.say_late(story.pool, story.dataset, AFTER) == [WINDOW]
    assert "and it is late: it was promised by 2026-03-05 09:00 UTC" in headline()


def test_a_version_with_a_gap_does_not_read_as_complete(story: Story) -> None:
    policy(story, "at_once")
    broken_south(story)
    story.collect(WINDOW)
    story.judge(WINDOW)
    story.release(WINDOW)

    def told() -> tuple[str, str]:
        shown = provenance.text(provenance.of_version(story.pool, story.run_id(WINDOW), None))
        explained = why.text(why.explain(story.pool, story.dataset, story.run_id(WINDOW), NOW))
        return next(line for line in shown if line.startswith("south")), explained[0]

    south, headline = told()
    assert south.startswith("south: a gap, rejected, generation 1, 0 rows in this version")
    assert headline == f"prices@{WINDOW}: version 1 is published with gaps: south rejected, missing"
    story.answers.clear()
    story.repair(WINDOW, retailers=("south",), mode="refetch")
    story.judge(WINDOW)
    story.release(WINDOW)
    south, headline = told()
    assert south.startswith("south: accepted, generation 2, 4 rows in this version")
    assert headline == f"prices@{WINDOW}: version 2 is published and holds what is accepted"
    broken_south(story)
    story.prices["n0"] = 77.0
    story.repair(WINDOW, mode="refetch", retailers=("north", "south"))
    story.judge(WINDOW)
    story.release(WINDOW)
    south, headline = told()
    assert south.startswith("south: a gap, rejected, kept from version 2, generation 3, 4 rows in this version")
    assert headline.endswith("version 3 is published with gaps: south rejected, kept from version 2")


def test_a_declaration_that_differs_from_what_was_collected_is_said(story: Story) -> None:
    story.whole(WINDOW)

    def told() -> list[str]:
        said = why.explain(story.pool, story.dataset, story.run_id(WINDOW), NOW)
        return [*why.text(said)[1:]]

    assert told() == [
        "north: drift is not judged yet: 0 of 3 accepted windows",
        "south: drift is not judged yet: 0 of 3 accepted windows",
        "lake: unsent, next try "
        + story.rows("select to_char(next_try_at, 'YYYY-MM-DD HH24:MI:SS') from scrape.deliveries")[0][0]
        + " UTC",
        "next:",
        f"  scrape-assets deliver prices --event {story.rows('select event_id from scrape.outbox')[0][0]} --destination lake",
    ]
    story.delivered()
    story.declare(south=".was")
    assert told() == [
        "north: drift is not judged yet: 0 of 3 accepted windows",
        "south: drift is not judged yet: 0 of 3 accepted windows",
        "south: declared otherwise now (extract.page.fields.price.css); a repair would read the pages with it",
        "next:",
        f"  scrape-assets recover prices --window {WINDOW} --retailer south --dry-run",
    ]
    file = story.folder / "datasets" / "prices" / "retailers" / "south.yaml"
    file.write_text(file.read_text().replace("127.0.0.1", "127.0.0.2"))
    (story.folder / "datasets" / "prices" / "south.csv").write_text("url\n")
    assert any("scope.site); it takes effect with the next window" in line for line in told())
    assert not any("recover" in line for line in told())


def test_a_window_with_a_version_is_never_late(story: Story) -> None:
    policy(story, "complete", ", by: 2h")
    story.whole(WINDOW)
    assert publish.say_late(story.pool, story.dataset, AFTER) == []


def test_a_field_that_a_later_schema_adds_corrects_nothing(story: Story, tmp_path: Path) -> None:
    pages = tmp_path / "datasets" / "prices" / "pages.py"
    schema = (
        "import pandera.pandas as pa\n\n\nclass Offer(pa.DataFrameModel):\n    name: str\n    sku: str\n"
        "    price: str\n    currency: str\n    list_price: str = pa.Field(nullable=True)\n"
    )
    pages.write_text(schema)
    file = tmp_path / "datasets" / "prices" / "dataset.yaml"
    declare = story.declare

    def with_schema(brand: bool) -> None:
        declare()
        file.write_text(file.read_text() + "schema: pages.py:Offer\n")
        for name in story.pages:
            its = tmp_path / "datasets" / "prices" / "retailers" / f"{name}.yaml"
            if not brand:
                its.write_text("\n".join(line for line in its.read_text().splitlines() if "brand" not in line))

    with_schema(brand=False)
    story.whole(WINDOW)
    pages.write_text(schema + "    brand: str = pa.Field(nullable=True)\n")
    with_schema(brand=True)
    story.prices["n1"] = 55.0
    story.repair(WINDOW, retailers=tuple(story.pages), mode="refetch")
    assert story.judge(WINDOW).state == "accepted"
    assert story.release(WINDOW).changes == {"new": 0, "corrected": 1, "withdrawn": 0}
    assert_sound(story)

    story.prices["n2"], story.was["n2"] = 56.0, 80.0
    story.repair(WINDOW, retailers=tuple(story.pages), mode="refetch")
    story.judge(WINDOW)
    assert story.release(WINDOW).changes["corrected"] == 1, "rows of the first version are still without it"

    pages.write_text(schema.replace("    list_price: str = pa.Field(nullable=True)\n", ""))
    with_schema(brand=False)
    for name in story.pages:
        its = tmp_path / "datasets" / "prices" / "retailers" / f"{name}.yaml"
        its.write_text("\n".join(line for line in its.read_text().splitlines() if "list_price" not in line))
    story.repair(WINDOW, retailers=tuple(story.pages), mode="refetch")
    assert story.judge(WINDOW).state == "rejected"
    with pytest.raises(
        CandidateRejected, match=r"since version 3: brand is gone, list_price is gone\. Put the schema back"
    ):
        story.release(WINDOW)
    assert_sound(story)


@pytest.mark.parametrize(
    ("before", "now", "added", "wrong"),
    [
        ({"a": "text"}, {"a": "text"}, [], []),
        ({"a": "text"}, {"a": "text", "b": "money"}, ["b"], []),
        ({"a": "text", "b": "money"}, {"a": "text"}, [], ["b is gone"]),
        ({"a": "text"}, {"a": "money"}, [], ["a is another kind"]),
        ({"a": {"dtype": "str", "checks": []}}, {"a": {"dtype": "str", "checks": ["ge"]}}, [], []),
        ({}, {"a": {"dtype": "str", "nullable": False}}, ["a"], ["a is new and may not be empty"]),
        (None, {"a": "text"}, [], []),
    ],
)
def test_schemas_of_one_window_must_fit(before: object, now: object, added: object, wrong: object) -> None:
    assert versions.schema_changes(before, now) == (added, wrong)  # type: ignore[arg-type]


def test_two_publishers_of_a_correction_make_one_version(story: Story) -> None:
    story.whole(WINDOW)
    story.prices["n0"] = 50.0
    story.repair(WINDOW, retailers=("north",), mode="refetch")
    assert story.judge(WINDOW).state == "accepted"
    start = threading.Barrier(4, timeout=60)

    def one(_: int) -> publish.Published:
        start.wait()
        return story.release(WINDOW)

    with ThreadPoolExecutor(4) as threads:
        published = list(threads.map(one, range(4)))
    assert [p.dataset_version for p in published] == [2] * 4
    assert sum(p.new for p in published) == 1
    assert_sound(story)


def test_two_windows_that_are_published_at_once_leave_each_entity_its_newest_row(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.accept = "{coverage: 0.5, drift: {moved: 100%}}"
    story.declare()
    story.whole(FIRST)
    story.whole(WINDOW)
    story.prices["n1"] = 77.0
    story.repair(FIRST, urls=(f"{story.shop.url}/p/n1",), mode="refetch")
    story.judge(FIRST)
    story.answers["n1"] = (404, {}, b"gone")
    story.repair(WINDOW, urls=(f"{story.shop.url}/p/n1",), mode="refetch")
    story.judge(WINDOW)
    inside, go_on = threading.Event(), threading.Event()
    really = publish.publication.write_event

    def slowly(tx: object, run_id: str, *more: object) -> bool:
        if run_id == story.run_id(FIRST):
            inside.set()
            assert go_on.wait(60)
        return really(tx, run_id, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("scrape_assets.flow.publish.publication.write_event", slowly)
    with ThreadPoolExecutor(2) as threads:
        older = threads.submit(story.release, FIRST)
        assert inside.wait(60)
        newer = threads.submit(story.release, WINDOW)
        waiting = (
            "select 1 as one from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )
        for _ in range(400):
            if story.rows(waiting):
                break
            time.sleep(0.05)
        go_on.set()
        assert older.result().dataset_version == newer.result().dataset_version == 2
    assert story.latest()["n1"] == (FIRST, "77")
    assert_sound(story)


def test_the_database_itself_refuses_rows_of_what_was_not_accepted(story: Story, server: embedded.Server) -> None:
    """The last lock, whoever asks: even the owner of the tables cannot publish a quarantined or rejected row."""
    broken_south(story)
    story.collect(WINDOW)
    story.judge(WINDOW)
    insert = (
        "insert into scrape.published_observations (dataset_id, collection_window, dataset_version, retailer, context,"
        " observation_key, entity_key, observed_at, extractor_version, payload, payload_hash, change, run_id)"
        " select 'prices', collection_window, 1, %s, context, observation_key, entity_key, observed_at,"
        " extractor_version, payload, payload_hash, 'new', run_id from scrape.observations limit 1"
    )
    with postgres.connect(postgres.with_database(server.owner_url, DATABASE)) as tx:
        with pytest.raises(
            psycopg.errors.CheckViolation, match="rows of south cannot be published: its candidate is rejected"
        ):
            tx.execute(insert, ("south",))
        tx.rollback()
        tx.execute("update scrape.observations set validation_state = 'reverted'")
        with pytest.raises(psycopg.errors.CheckViolation, match="that no committed page gives"):
            tx.execute(insert, ("north",))
        tx.rollback()


def test_a_version_tells_what_it_is_made_of(story: Story) -> None:
    story.whole(WINDOW)
    story.prices["n0"] = 50.0
    story.repair(WINDOW, retailers=("north",), mode="refetch")
    story.judge(WINDOW)
    story.release(WINDOW)
    said = provenance.of_version(story.pool, story.run_id(WINDOW), None)
    assert (said["dataset_version"], said["state"], said["supersedes_version"]) == (2, "published", 1)
    (batch,) = said["recovery_batches"]
    assert (batch["retailer"], batch["tasks"], batch["requests"]) == ("north", 6, 6)
    assert {one["retailer"]: one["generation"] for one in said["retailers"]} == {"north": 2, "south": 1}
    first = provenance.of_version(story.pool, story.run_id(WINDOW), 1)
    assert (first["state"], first["recovery_batches"]) == ("superseded", [])
    text = provenance.text(said)
    assert text[3] == "10 rows: 0 new, 1 corrected, 0 withdrawn since version 1"


def test_known_at_is_when_it_was_published_and_observed_at_when_it_was_seen(story: Story) -> None:
    story.whole(WINDOW)
    story.prices["n0"] = 50.0
    story.repair(WINDOW, urls=(f"{story.shop.url}/p/n0",), mode="refetch")
    story.judge(WINDOW)
    story.release(WINDOW)
    rows = story.rows(
        "select payload ->> 'sku' as sku, observed_at < known_at as seen, known_at = (select published_at from scrape.dataset_candidates"
        " where dataset_version = (case when payload ->> 'sku' = 'n0' then 2 else 1 end)) as its_version"
        " from scrape.as_of('prices', '2026-03-05', 2)"
    )
    assert len(rows) == 10
    assert {(seen, its) for _, seen, its in rows} == {(True, True)}
