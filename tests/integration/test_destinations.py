"""Three kinds of destination, each with its own bad days: every version arrives, and none is applied twice."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from standardwebhooks.webhooks import Webhook

from scrape_assets import failpoints
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import deliver, publish, verify
from scrape_assets.sinks import http
from scrape_assets.store import embedded, embedded_cluster, postgres
from scrape_assets.store.postgres import Pool
from tests.helpers.receiver import Receiver, receiver
from tests.helpers.site import Site, site
from tests.helpers.story import Story

EARLIER, WINDOW = "2026-03-04", "2026-03-05"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def api() -> Iterator[Receiver]:
    with receiver() as it:
        yield it


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PRICES_SECRET", SECRET)
    yield
    failpoints.arm("", None)


@pytest.fixture
def story(pool: Pool, tmp_path: Path, shop: Site, api: Receiver) -> Story:
    story = Story(pool, tmp_path, shop, {"north": 6})
    to_api(story, api)
    return story


def to_api(story: Story, api: Receiver, more: str = "") -> None:
    story.publish = f"{{to: {{api: {{http: {{url: '{api.url}', secret: 'env:PRICES_SECRET', timeout: 1s{more}}}}}}}}}"
    story.declare()


def state(story: Story) -> list[tuple[Any, ...]]:
    return story.rows("select destination, state, tries from scrape.deliveries order by 1")


def due(story: Story) -> None:
    story.rows(
        "update scrape.deliveries set next_try_at = clock_timestamp() - interval '1 second',"
        " send_until = case when state = 'sending' then clock_timestamp() - interval '1 second' end returning 1 as one"
    )


def assert_sound(story: Story) -> None:
    assert {v.name: v.keys for v in verify.verify(story.pool).violations} == {}


def test_a_version_is_posted_signed_and_under_its_key(story: Story, api: Receiver) -> None:
    story.whole(WINDOW)
    (sent,) = story.delivered()
    assert sent.state == "delivered"
    ((headers, body),) = api.posts
    said = Webhook(SECRET).verify(body.decode(), headers)
    assert said["type"] == "dataset.published"
    data = said["data"]
    assert headers["idempotency-key"] == f"{data['event_id']}@api"
    assert headers["webhook-id"] == data["event_id"]
    assert (data["dataset"], data["window"], data["dataset_version"], data["payload"]) == ("prices", WINDOW, 1, "full")
    assert {row["sku"]: float(row["price"]) for row in data["rows"]} == story.prices
    assert {row["change"] for row in data["rows"]} == {"new"}
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(SECRET).verify(body.decode().replace("10", "11"), headers)
    assert_sound(story)


@pytest.mark.parametrize("bad_day", ["apply and fail", "apply and hang", "apply and reset"])
def test_a_destination_that_applies_and_does_not_say_so_is_asked_and_not_sent_to_again(
    story: Story, api: Receiver, shop: Site, bad_day: str
) -> None:
    story.whole(WINDOW)
    asked = shop.requests.total()
    api.behave = bad_day
    (sent,) = story.delivered()
    assert sent.state == "uncertain"
    assert state(story) == [("api", "uncertain", 1)]
    (settled,) = story.delivered()
    assert settled.state == "delivered"
    assert len(api.posts) == 1
    assert list(api.applied.values()) == [1]
    assert shop.requests.total() == asked, "nothing is collected again"
    assert_sound(story)


def test_a_destination_that_lies_is_found_by_asking_it_for_what_it_has(story: Story, api: Receiver) -> None:
    story.whole(WINDOW)
    api.behave = "lie"
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert api.held == {}
    assert [one.state for one in deliver.reconcile(story.pool, story.dataset)] == ["unsent"]
    api.behave = "well"
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert [one.detail for one in deliver.reconcile(story.pool, story.dataset)] == ["it is there"]
    assert list(api.applied.values()) == [1]
    assert len({headers["idempotency-key"] for headers, _ in api.posts}) == 1, "under the same key"


def test_an_hour_of_unavailability_needs_patience_and_no_page(story: Story, api: Receiver, shop: Site) -> None:
    story.whole(WINDOW)
    asked = shop.requests.total()
    api.behave = "unavailable"
    for turn in range(1, 8):
        due(story)
        states = {sent.state for sent in story.delivered()}
        assert states == {"uncertain"}, "asked, it does not have it; sent again, it is still away"
        assert state(story) == [("api", "uncertain", turn)]
    api.behave = "well"
    due(story)
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert list(api.applied.values()) == [1]
    assert shop.requests.total() == asked
    assert_sound(story)


def test_too_many_requests_is_surely_not_applied_and_waits_as_told(story: Story, api: Receiver) -> None:
    story.whole(WINDOW)
    api.behave = "busy"
    assert [sent.state for sent in story.delivered()] == ["unsent"]
    ((wait,),) = story.rows(
        "select next_try_at - clock_timestamp() > interval '5 seconds' as waits from scrape.deliveries"
    )
    assert wait
    assert api.asked == []


def test_nobody_there_is_surely_not_applied(story: Story, api: Receiver) -> None:
    to_api(story, api)
    story.publish = story.publish.replace(api.url, "http://127.0.0.1:9/nobody")
    story.declare()
    story.whole(WINDOW)
    (sent,) = story.delivered()
    assert (sent.state, state(story)) == ("unsent", [("api", "unsent", 1)])
    assert "127.0.0.1:9" in sent.detail


@pytest.mark.parametrize("answer", ["refuse", "redirect"])
def test_a_definitive_refusal_waits_for_a_person_who_sends_it_again_under_the_same_key(
    story: Story, api: Receiver, answer: str
) -> None:
    story.whole(WINDOW)
    api.behave = answer
    (sent,) = story.delivered()
    assert sent.state == "failed"
    due(story)
    assert story.delivered() == [], "nobody tries by himself"
    api.behave = "well"
    event_id = uuid.UUID(sent.event_id)
    with pytest.raises(DeclarationError, match="no destination lake"):
        deliver.send_again(story.pool, story.dataset, event_id, "lake")
    with pytest.raises(DeclarationError, match="there is no event"):
        deliver.send_again(story.pool, story.dataset, uuid.uuid4(), None)
    assert deliver.send_again(story.pool, story.dataset, event_id, None) == ["api"]
    assert [one.state for one in story.delivered()] == ["delivered"]
    assert len({headers["idempotency-key"] for headers, _ in api.posts}) == 1
    assert_sound(story)


def later(story: Story) -> None:
    story.rows("update scrape.deliveries set next_try_at = clock_timestamp() + interval '1 hour' returning 1 as one")


def event_of(story: Story) -> uuid.UUID:
    ((event_id,),) = story.rows("select event_id from scrape.outbox")
    return uuid.UUID(str(event_id))


@pytest.mark.parametrize("bad_day", ["busy", "apply and fail", "refuse"])
def test_a_person_does_not_wait_for_the_next_try(story: Story, api: Receiver, bad_day: str) -> None:
    """Whatever state a delivery is in, it is seen to now; what may have arrived is asked for and never sent blindly."""
    story.whole(WINDOW)
    api.behave = bad_day
    story.delivered()
    later(story)
    api.behave = "well"
    assert story.delivered() == []
    assert deliver.send_again(story.pool, story.dataset, event_of(story), None) == ["api"]
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert list(api.applied.values()) == [1]
    assert len(api.asked) == (bad_day == "apply and fail")
    assert_sound(story)


def test_an_event_is_sent_to_those_that_lack_it_and_to_all_only_when_none_does(
    story: Story, api: Receiver, tmp_path: Path
) -> None:
    lake = "lake: {files: {path: published, format: csv}}"
    story.publish = f"{{to: {{api: {{http: {{url: '{api.url}'}}}}, {lake}}}}}"
    story.declare()
    api.behave = "refuse"
    story.whole(WINDOW)
    story.delivered()
    event_id = event_of(story)
    api.behave = "well"
    assert deliver.send_again(story.pool, story.dataset, event_id, None) == ["api"]
    story.delivered()
    assert deliver.send_again(story.pool, story.dataset, event_id, None) == ["api", "lake"]
    assert deliver.send_again(story.pool, story.dataset, event_id, "lake") == ["lake"], "it waits already"
    story.rows("update scrape.deliveries set state = 'sending', send_until = 'infinity' returning 1 as one")
    with pytest.raises(DeclarationError, match="is on its way"):
        deliver.send_again(story.pool, story.dataset, event_id, None)
    story.publish = f"{{to: {{other: {{http: {{url: '{api.url}'}}}}}}}}"
    story.declare()
    with pytest.raises(DeclarationError, match="goes to api, lake, and not to other"):
        deliver.send_again(story.pool, story.dataset, event_id, "other")


def test_what_waited_for_a_secret_is_due_when_the_secret_is_there(
    story: Story, api: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.whole(WINDOW)
    monkeypatch.delenv("PRICES_SECRET")
    assert [sent.state for sent in story.delivered()] == ["unsent"]
    later(story)
    assert deliver.count_due(story.pool, story.dataset) == 0
    assert story.delivered() == []
    monkeypatch.setenv("PRICES_SECRET", SECRET)
    assert deliver.count_due(story.pool, story.dataset) == 1
    assert [sent.state for sent in story.delivered()] == ["delivered"]

    deliver.send_again(story.pool, story.dataset, event_of(story), None)
    api.behave = "busy"
    story.delivered()
    later(story)
    assert story.delivered() == [], "it waits for something else"


def test_something_else_under_the_key_of_what_was_delivered_waits_for_a_person(story: Story, api: Receiver) -> None:
    story.whole(WINDOW)
    story.delivered()
    (held,) = api.held.values()
    held["data"]["content_hash"] = "0" * 64
    (asked,) = deliver.reconcile(story.pool, story.dataset)
    assert (asked.state, "something else under this key" in asked.detail) == ("failed", True)
    ((now, error),) = story.rows("select state, last_error from scrape.deliveries")
    assert (now, "something else under this key" in str(error)) == ("failed", True)
    assert story.delivered() == [], "sending cannot mend it"
    assert deliver.reconcile(story.pool, story.dataset) == []
    assert_sound(story)


def test_after_three_days_a_person_decides(story: Story, api: Receiver) -> None:
    story.whole(WINDOW)
    story.rows("update scrape.outbox set created_at = created_at - interval '99 hours' returning 1 as one")
    story.publish = story.publish.replace(api.url, "http://127.0.0.1:9/nobody")
    story.declare()
    assert [sent.state for sent in story.delivered()] == ["unsent"], "its first try, however old it is"
    story.rows("update scrape.deliveries set first_try_at = first_try_at - interval '73 hours' returning 1 as one")
    due(story)
    (sent,) = story.delivered()
    assert (sent.state, "given up after 72 h" in sent.detail) == ("failed", True)


@pytest.mark.parametrize(("answer", "then"), [(405, "uncertain"), (500, "uncertain"), (200, "uncertain")])
def test_an_answer_that_says_nothing_settles_nothing(story: Story, api: Receiver, answer: int, then: str) -> None:
    story.whole(WINDOW)
    api.behave = "apply and fail"
    story.delivered()
    api.find_status = answer
    assert [sent.state for sent in story.delivered()] == [then]
    assert len(api.posts) == 1, "never marked, and never sent blindly"


def test_something_else_under_the_key_waits_for_a_person(story: Story, api: Receiver) -> None:
    story.whole(WINDOW)
    api.behave = "apply and fail"
    story.delivered()
    (held,) = api.held.values()
    held["data"]["content_hash"] = "0" * 64
    (settled,) = story.delivered()
    assert settled.state == "failed"
    assert "something else under this key" in settled.detail


def test_a_destination_without_keys_is_declared_so_and_gets_it_again(story: Story, api: Receiver) -> None:
    with pytest.raises(DeclarationError, match="expected at_least_once: true"):
        to_api(story, api, ", find: none")
    to_api(story, api, ", find: none, at_least_once: true")
    story.whole(WINDOW)
    api.behave = "apply and fail"
    assert [sent.state for sent in story.delivered()] == ["uncertain"]
    api.behave = "well"
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert len(api.posts) == 2


def test_what_cannot_be_asked_is_not_sent_again_by_reconciling(story: Story, api: Receiver) -> None:
    to_api(story, api, ", find: none, at_least_once: true")
    story.whole(WINDOW)
    story.delivered()
    assert [one.detail for one in deliver.reconcile(story.pool, story.dataset)] == [
        "nobody can tell: it cannot be asked"
    ]
    assert story.delivered() == []
    assert len(api.posts) == 1


def test_lateness_is_settled_like_a_version(story: Story, api: Receiver) -> None:
    story.publish = story.publish.replace("{to:", '{by: "09:00", to:')
    story.declare()
    story.collect(WINDOW)
    at = datetime(2026, 3, 5, 10, tzinfo=UTC)
    assert publish.say_late(story.pool, story.dataset, at + timedelta(days=30)) == [], "nobody waits for it any more"
    assert publish.say_late(story.pool, story.dataset, at) == [WINDOW]
    api.behave = "apply and fail"
    assert [sent.state for sent in story.delivered()] == ["uncertain"]
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert len(api.posts) == 1


def test_a_delta_is_what_changed_and_a_notice_has_no_rows(story: Story, api: Receiver) -> None:
    to_api(story, api, ", payload: delta")
    story.whole(WINDOW)
    story.delivered()
    story.prices["n0"] = 50.0
    story.answers["n1"] = (404, {}, b"gone")
    story.accept = "{coverage: 0.5}"
    to_api(story, api, ", payload: delta")
    story.repair(WINDOW, retailers=tuple(story.pages), mode="refetch")
    assert story.judge(WINDOW).state == "accepted"
    story.release(WINDOW)
    story.delivered()
    data = json.loads(api.posts[-1][1])["data"]
    assert {(row["sku"], row["change"]) for row in data["rows"]} == {("n0", "corrected"), ("n1", "withdrawn")}
    assert (data["dataset_version"], data["supersedes_version"]) == (2, 1)
    assert data["changes"] == {"new": 0, "corrected": 1, "withdrawn": 1}
    to_api(story, api, ", payload: notice")
    with postgres.transaction(story.pool) as tx:
        (event,) = tx.execute("select event_id from scrape.outbox order by created_at desc limit 1").fetchall()
    api.held.clear()
    deliver.send_again(story.pool, story.dataset, event.event_id, None)
    story.delivered()
    assert json.loads(api.posts[-1][1])["data"]["rows"] == []


@pytest.mark.parametrize("window", ["K17", "K18", "K19"])
def test_a_sender_that_dies_leaves_a_question_and_the_destination_gets_it_once(
    story: Story, api: Receiver, tmp_path: Path, window: str
) -> None:
    story.whole(WINDOW)
    log = tmp_path / "fired"
    failpoints.arm(f"{window}=raise", str(log))
    with pytest.raises(failpoints.Reached):
        story.delivered()
    assert log.read_text().startswith(f"{window} raise")
    assert state(story) == [("api", "sending", 1)]
    assert story.delivered() == [], "it may still be at work"
    due(story)
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert list(api.applied.values()) == [1]
    assert len(api.posts) == 1
    assert state(story) == [("api", "delivered", 2 if window == "K17" else 1)]
    assert_sound(story)


def test_several_destinations_fail_alone(
    story: Story, api: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_URL", raising=False)
    story.publish = (
        f"{{to: {{api: {{http: {{url: '{api.url}'}}}}, lake: {{files: {{path: published, format: csv}}}},"
        " table: {postgres: {url: 'env:NO_SUCH_URL', table: prices}}}}"
    )
    story.declare()
    api.behave = "refuse"
    story.whole(WINDOW)
    told = {sent.destination: sent for sent in story.delivered()}
    assert {name: sent.state for name, sent in told.items()} == {
        "api": "failed",
        "lake": "delivered",
        "table": "unsent",
    }
    assert told["table"].detail == "NO_SUCH_URL is not set in the environment of this process; the declaration names it"


@pytest.mark.parametrize("secret", ["whsec_!!!", "whsec_"])
def test_a_secret_that_is_none_is_refused_without_being_told(secret: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        http.check_secret(secret)
    assert "!!!" not in str(refused.value)


def test_an_address_that_is_none_is_not_told(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUMER_URL", "postgresql//ana:hunter2@db prices")
    story.publish = "{to: {table: {postgres: {url: 'env:CONSUMER_URL', table: prices}}}}"
    story.declare()
    story.whole(WINDOW)
    (sent,) = story.delivered()
    assert sent.state == "unsent"
    said = str(story.rows("select last_error from scrape.deliveries"))
    assert "hunter2" not in said
    assert "expected postgresql://" in said


@pytest.fixture
def table(story: Story, server: embedded.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """A database of the consumer's own."""
    url = postgres.create_database(server.owner_url, "consumer")
    monkeypatch.setenv("CONSUMER_URL", url)
    story.publish = "{to: {table: {postgres: {url: 'env:CONSUMER_URL', table: public.Prices}}}}"
    story.accept = "{coverage: 0.5, drift: {moved: 100%}}"
    story.declare()
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection
    postgres.drop_database(server.owner_url, "consumer")


def held(table: psycopg.Connection[Any]) -> dict[str, tuple[Any, ...]]:
    query = (
        """select payload ->> 'sku', payload ->> 'price', collection_window, dataset_version, deleted from "Prices" """
    )
    return {row[0]: row[1:] for row in table.execute(query)}


def test_a_table_has_one_row_for_each_entity_and_the_newest_wins_in_any_order(
    story: Story, table: psycopg.Connection[Any]
) -> None:
    story.whole(EARLIER)
    story.prices = {sku: price + 1 for sku, price in story.prices.items()}
    story.whole(WINDOW)
    with postgres.transaction(story.pool) as tx:
        # The older window's event arrives last.
        tx.execute("update scrape.outbox set created_at = clock_timestamp() where run_id = 'prices@2026-03-04'")
    assert [sent.state for sent in story.delivered()] == ["delivered"] * 2
    assert held(table)["n1"] == ("12", WINDOW, 1, False)

    story.prices["n1"] = 80.0
    story.answers["n2"] = (404, {}, b"gone")
    story.repair(WINDOW, retailers=tuple(story.pages), mode="refetch")
    story.judge(WINDOW)
    story.release(WINDOW)
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert held(table)["n1"] == ("80", WINDOW, 2, False)
    assert held(table)["n2"][1:] == (WINDOW, 2, True), "a tombstone"
    assert held(table)["n3"] == ("14", WINDOW, 1, False)
    now = held(table)
    with postgres.transaction(story.pool) as tx:
        events = tx.execute("select event_id from scrape.outbox").fetchall()
    for event in events:
        deliver.send_again(story.pool, story.dataset, event.event_id, None)
    story.delivered()
    assert held(table) == now, "sent again, in any order, it is the same"
    counted = table.execute("""select count(*), count(distinct idempotency_key) from "Prices_deliveries" """).fetchone()
    assert counted == (3, 3)
    assert_sound(story)


@pytest.mark.parametrize("window", ["K18", "K19"])
def test_a_table_is_asked_whether_a_version_arrived(
    story: Story, table: psycopg.Connection[Any], tmp_path: Path, window: str
) -> None:
    story.whole(WINDOW)
    failpoints.arm(f"{window}=raise", str(tmp_path / "fired"))
    with pytest.raises(failpoints.Reached):
        story.delivered()
    due(story)
    (sent,) = story.delivered()
    assert (sent.state, "found True" in sent.detail) == ("delivered", True)
    assert len(held(table)) == 6


def test_a_role_that_may_only_write_finds_its_tables(
    story: Story, table: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    story.whole(EARLIER)
    story.delivered()
    role = embedded_cluster.APPLICATION_ROLE
    table.execute(f"grant select, insert, update on all tables in schema public to {role}".encode())
    monkeypatch.setenv("CONSUMER_URL", os.environ["CONSUMER_URL"].replace(embedded_cluster.OWNER_ROLE, role))
    with psycopg.connect(os.environ["CONSUMER_URL"], autocommit=True) as it:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            it.execute("create table public.another (x int)")
    story.whole(WINDOW)
    assert [sent.state for sent in story.delivered()] == ["delivered"]


def mended_by(owner: psycopg.Connection[Any], detail: str) -> None:
    """The owner runs what the error says, word for word."""
    said = detail.partition("Its owner runs: ")[2]
    schema, _, tables = said.partition("; and where the tables are there: ")
    for statement in schema.split("; "):
        owner.execute(statement.encode())
    if owner.execute("select to_regclass('analytics.prices')").fetchone() != (None,):
        owner.execute(tables.encode())


@pytest.mark.parametrize("lacking", ["schema", "right to create", "right to write"])
def test_what_the_owner_of_a_database_has_to_allow_is_waited_for(
    story: Story, table: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """The guide's example at a database that nobody prepared: said with the statements that help, and never given up."""
    role = embedded_cluster.APPLICATION_ROLE
    story.publish = "{to: {table: {postgres: {url: 'env:CONSUMER_URL', table: analytics.prices}}}}"
    story.declare()
    if lacking != "schema":
        table.execute("create schema analytics")
    if lacking == "right to write":
        story.whole(EARLIER)
        assert [sent.state for sent in story.delivered()] == ["delivered"], "by its owner"
    monkeypatch.setenv("CONSUMER_URL", os.environ["CONSUMER_URL"].replace(embedded_cluster.OWNER_ROLE, role))
    story.whole(WINDOW)
    (sent,) = story.delivered()
    assert sent.state == "unsent"
    mended_by(table, sent.detail)
    due(story)
    assert [sent.state for sent in story.delivered()] == ["delivered"]
    assert_sound(story)


@pytest.mark.usefixtures("table")
def test_a_database_that_is_not_there_is_waited_for(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSUMER_URL", postgres.with_database(os.environ["CONSUMER_URL"], "nowhere"))
    story.whole(WINDOW)
    (sent,) = story.delivered()
    assert (sent.state, 'database "nowhere" does not exist' in sent.detail) == ("unsent", True)


def test_a_table_that_cannot_hold_it_is_a_definitive_refusal(story: Story, table: psycopg.Connection[Any]) -> None:
    table.execute("""create table "Prices" (entity_key text)""")
    story.whole(WINDOW)
    (sent,) = story.delivered()
    assert sent.state == "failed"
    assert "dataset" in sent.detail


def test_a_warehouse_merges_deltas_of_files_in_any_number_of_turns(story: Story, tmp_path: Path) -> None:
    """The recipe of the guide, with DuckDB for the warehouse."""
    story.publish = "{to: {lake: {files: {path: published, format: parquet, payload: delta}}}}"
    story.accept = "{coverage: 0.5, drift: {moved: 100%}}"
    story.declare()
    story.whole(EARLIER)
    story.prices = {sku: price + 1 for sku, price in story.prices.items()}
    story.whole(WINDOW)
    story.prices["n1"] = 80.0
    story.answers["n2"] = (404, {}, b"gone")
    story.repair(WINDOW, retailers=tuple(story.pages), mode="refetch")
    story.judge(WINDOW)
    story.release(WINDOW)
    assert {sent.state for sent in story.delivered()} == {"delivered"}
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    recipe = guide.partition("```sql\n-- merge a version")[2].partition("```")[0]
    assert recipe, "the guide lost its recipe"
    create, merge = recipe.partition(";\n")[0] + ";", recipe.partition(";\n")[2]
    warehouse = duckdb.connect()
    warehouse.execute("-- merge a version" + create)
    manifests = sorted((tmp_path / "published").rglob("manifest.json"))
    assert len(manifests) == 3
    for manifest in [*manifests, *reversed(manifests), *manifests]:
        warehouse.execute(merge, {"files": str(manifest.parent / "*.parquet")})
    rows = warehouse.execute('select sku, price, "window", deleted from prices order by sku').fetchall()
    assert [(sku, float(price), window) for sku, price, window, deleted in rows if not deleted] == [
        (sku, price, WINDOW) for sku, price in sorted(story.prices.items()) if sku != "n2"
    ]
    assert [sku for sku, _, _, deleted in rows if deleted] == ["n2"]


GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()


def test_the_guides_example_of_a_body_has_what_bodies_have(story: Story, api: Receiver) -> None:
    to_api(story, api, ", payload: delta")
    story.whole(WINDOW)
    story.delivered()
    body = api.posts[0][1].decode()

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        assert len(set(names)) == len(names), f"a name that stands twice: {names}"
        return dict(pairs)

    sent = json.loads(body, object_pairs_hook=once)
    example = json.loads(GUIDE.partition("```json\n")[2].partition("```")[0])
    assert list(example) == list(sent)
    assert set(example["data"]) == set(sent["data"])
    assert set(example["data"]["members"][0]) == set(sent["data"]["members"][0])
    assert set(example["data"]["rows"][0]) <= set(deliver.columns(story.dataset))
    assert set(example["data"]["rows"][0]) == set(sent["data"]["rows"][0]) - {"url", "brand", "list_price"}
    assert sent["data"]["row_count"] == len(sent["data"]["rows"]) == 6


def test_the_guides_receiver_gets_every_version_once(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = GUIDE.partition("```python\n# receiver.py")[2].partition("```")[0]
    assert recipe, "the guide lost its recipe"
    (tmp_path / "receiver.py").write_text(recipe)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "receiver.py", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(200):
                with socket.socket() as there:
                    if there.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            story.accept = "{coverage: 0.5, drift: {moved: 100%}}"
            story.publish = (
                f"{{to: {{api: {{http: {{url: 'http://127.0.0.1:{port}/in', secret: 'env:PRICES_SECRET',"
                " payload: delta}}}}"
            )
            story.declare()
            story.whole(EARLIER)
            story.whole(WINDOW)
            story.prices["n1"] = 80.0
            story.answers["n2"] = (404, {}, b"gone")
            story.repair(WINDOW, retailers=tuple(story.pages), mode="refetch")
            story.judge(WINDOW)
            story.release(WINDOW)
            assert [sent.state for sent in story.delivered()] == ["delivered"] * 3
            for event_id, *_ in story.rows("select event_id from scrape.outbox order by created_at desc"):
                deliver.send_again(story.pool, story.dataset, uuid.UUID(str(event_id)), None)
            assert [sent.state for sent in story.delivered()] == ["delivered"] * 3, "in any order, as often as you like"
            assert {one.detail for one in deliver.reconcile(story.pool, story.dataset)} == {"it is there"}
            with sqlite3.connect(tmp_path / "prices.sqlite") as it:
                rows = it.execute("select row, version, deleted from prices").fetchall()
            held = {json.loads(row)["sku"]: (json.loads(row)["price"], *more) for row, *more in rows}
            assert (held["n1"], held["n3"]) == (("80", 2, 0), ("13", 1, 0))
            assert held["n2"][1:] == (2, 1)
            assert len(held) == 6
            monkeypatch.setenv("PRICES_SECRET", "whsec_" + "b" * 32)
            deliver.send_again(story.pool, story.dataset, uuid.UUID(str(event_id)), None)
            assert [sent.state for sent in story.delivered()] == ["failed"], "signed by somebody else"
        finally:
            process.kill()


def test_csv_has_the_columns_that_the_guide_lists(story: Story, tmp_path: Path) -> None:
    story.publish = "{to: {lake: {files: {path: published, format: csv}}}}"
    story.declare()
    story.whole(WINDOW)
    story.delivered()
    text = (tmp_path / "published" / "prices" / WINDOW / "v1" / "part-0000.csv").read_text()
    (row, *_) = csv.DictReader(io.StringIO(text))
    assert list(row) == list(deliver.columns(story.dataset))
    assert (row["change"], row["unverified"]) == ("new", "false")


def test_what_was_delivered_does_not_wait_for_a_secret_that_is_wrong(
    story: Story, api: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.whole(WINDOW)
    story.delivered()
    for value, said in (("whsec_!!!", "is no base64 text"), ("", "PRICES_SECRET is not set")):
        monkeypatch.setenv("PRICES_SECRET", value)
        with pytest.raises(DeclarationError, match=said):
            deliver.send_again(story.pool, story.dataset, event_of(story), None)
        assert state(story) == [("api", "delivered", 1)]
        (lacking,) = deliver.unready(story.dataset)
        assert lacking.startswith("deliveries to api would wait: ")
        assert said in lacking
    monkeypatch.setenv("PRICES_SECRET", SECRET)
    assert deliver.unready(story.dataset) == []
    assert deliver.send_again(story.pool, story.dataset, event_of(story), None) == ["api"]
