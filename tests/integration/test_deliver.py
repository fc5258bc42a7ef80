"""Delivery when it does not go well: a folder in the way, a sender that stopped, a late commit, a stale token."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import StoreUnreachable
from scrape_assets.flow import accept, deliver, plan, publish, run, verify
from scrape_assets.flow.run import Machine
from scrape_assets.rules import keys
from scrape_assets.sinks import files
from scrape_assets.sinks.outcome import Applied, Shipment
from scrape_assets.store import outbox, postgres, publication
from scrape_assets.store.postgres import Pool, Transaction
from tests.helpers import make
from tests.helpers.site import Site, site

WINDOW, NEXT_WINDOW = "2026-03-05", "2026-03-06"
NOW = datetime(2026, 3, 7, 12, tzinfo=UTC)
RECEIPT = {"manifest": "somewhere/manifest.json", "sha256": "ab" * 32, "rows": 0}


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def published(pool: Pool, tmp_path: Path, shop: Site) -> Dataset:
    """One window of three pages, collected and published; its event waits for a sender."""
    dataset = make.dataset(tmp_path, {"north": (shop.url, [f"/p/n{i}" for i in range(3)])})
    run_id = f"prices@{WINDOW}"
    plan.plan(pool, dataset, WINDOW, now=NOW)
    work = run.assignments(pool, dataset, WINDOW, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "test-worker", {}), work))
    assert accept.accept_retailer(pool, dataset, run_id, "north").state == "accepted"
    assert accept.accept_dataset(pool, dataset, run_id).state == "accepted"
    assert publish.publish(pool, dataset, run_id).rows == 3
    return dataset


@pytest.fixture
def dataset(pool: Pool, tmp_path: Path) -> Dataset:
    """Two windows that are planned; nothing is collected, so a version of them has no rows."""
    declared = make.dataset(tmp_path, {"north": ("http://127.0.0.1:9", ["/p/1"])})
    for window in (WINDOW, NEXT_WINDOW):
        plan.plan(pool, declared, window, now=NOW)
    return declared


def write_event(tx: Transaction, window: str) -> None:
    event_id = uuid4()
    payload = {
        "event_id": str(event_id),
        "dataset": "prices",
        "window": window,
        "window_start": f"{window}T00:00:00+00:00",
        "window_end": f"{window}T23:59:59+00:00",
        "dataset_version": 1,
        "rows": 0,
        "content_hash": "cd" * 32,
        "members": [],
    }
    to = {"lake": keys.idempotency_key(event_id, "lake")}
    assert publication.write_event(tx, f"prices@{window}", event_id, "dataset.published", payload, to)


def standing(pool: Pool) -> Any:
    """The one delivery that there is."""
    with postgres.transaction(pool) as tx:
        (row,) = tx.execute(
            "select d.state, d.send_token, d.tries, d.receipt, d.last_error, d.idempotency_key, e.payload,"
            " d.next_try_at > clock_timestamp() as waits from scrape.deliveries d join scrape.outbox e using (event_id)"
        ).fetchall()
    return row


def on_disk(path: Path, row: Any) -> dict[str, Any] | None:
    """What the folder shows for the delivery."""
    shipment = Shipment(
        str(row.payload["event_id"]), "dataset.published", "", row.idempotency_key, row.payload, "full", (),
        lambda: iter(()), lambda: iter(()),
    )  # fmt: skip
    found = files.find(path, shipment)
    return found.receipt if isinstance(found, Applied) else None


def overdue(pool: Pool) -> None:
    """Time passes: whoever is sending has taken too long, what waits is due."""
    with postgres.transaction(pool) as tx:
        tx.execute(
            "update scrape.deliveries set next_try_at = clock_timestamp() - interval '1 second',"
            " send_until = case when state = 'sending' then clock_timestamp() - interval '1 second' end"
        )


def test_what_could_not_be_written_is_due_again_later_and_needs_no_request_to_the_site(
    pool: Pool, published: Dataset, tmp_path: Path, shop: Site
) -> None:
    asked = shop.requests.copy()
    in_the_way = tmp_path / "published"
    in_the_way.write_text("a file where the folder should be")
    # Without jitter it would be due at once: one call tries it once all the same.
    (failed,) = deliver.deliver(pool, published, jitter=0.0)
    assert failed.state == "unsent"
    row = standing(pool)
    assert (row.state, row.tries, row.receipt, row.waits) == ("unsent", 1, None, True)
    assert str(in_the_way) in row.last_error
    assert failed.detail == row.last_error
    assert deliver.count_due(pool, published) == 0
    assert deliver.deliver(pool, published, jitter=1.0) == []

    in_the_way.unlink()
    overdue(pool)
    assert deliver.count_due(pool, published) == 1
    assert [sent.state for sent in deliver.deliver(pool, published, jitter=1.0)] == ["delivered"]
    row = standing(pool)
    assert (row.state, row.tries, row.last_error) == ("delivered", 2, None)
    assert row.receipt == on_disk(in_the_way, row)
    assert row.receipt["rows"] == 3
    assert shop.requests == asked
    assert verify.verify(pool).violations == []


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_stopped_sender_left_is_looked_at_and_sent_again_only_if_it_is_not_whole(
    pool: Pool, published: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    def stops(*_: object) -> bool:
        raise StoreUnreachable("the sender stops between the files and the mark")

    with monkeypatch.context() as fault:
        fault.setattr(outbox, "delivered", stops)
        with pytest.raises(StoreUnreachable):
            deliver.deliver(pool, published, jitter=1.0)
    assert standing(pool).state == "sending"
    assert deliver.deliver(pool, published, jitter=1.0) == [], "it may still be at work"
    assert standing(pool).state == "sending"

    folder = tmp_path / "published" / "prices" / WINDOW / "v1"
    part = folder / "part-0000.jsonl"
    whole = part.read_bytes()
    assert whole.count(b"\n") == 3
    if damaged:
        part.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    written = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    overdue(pool)
    assert deliver.count_due(pool, published) == 1
    sent = deliver.deliver(pool, published, jitter=1.0)
    row = standing(pool)
    assert row.state == "delivered"
    assert row.receipt == on_disk(tmp_path / "published", row)
    assert part.read_bytes() == whole
    assert [one.state for one in sent] == ["delivered"]
    assert row.last_error is None
    if damaged:
        assert (row.send_token, row.tries) == (2, 2)
    else:
        assert (row.send_token, row.tries) == (1, 1)
        assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()} == written
    assert deliver.count_due(pool, published) == 0
    assert verify.verify(pool).violations == []


def test_an_event_that_commits_after_a_newer_one_was_delivered_is_delivered_too(
    pool: Pool, dataset: Dataset, tmp_path: Path
) -> None:
    """Case BC070: what is sent is what is unsent, never what is newer than the last one sent."""
    with postgres.transaction(pool) as late:
        write_event(late, WINDOW)
        with postgres.transaction(pool) as tx:
            write_event(tx, NEXT_WINDOW)
        sent = deliver.deliver(pool, dataset, jitter=1.0)
        assert [(one.run_id, one.state) for one in sent] == [(f"prices@{NEXT_WINDOW}", "delivered")]
    with postgres.transaction(pool) as tx:
        in_order = tx.execute("select run_id from scrape.outbox order by created_at").fetchall()
    assert [row.run_id for row in in_order] == [f"prices@{WINDOW}", f"prices@{NEXT_WINDOW}"]
    sent = deliver.deliver(pool, dataset, jitter=1.0)
    assert [(one.run_id, one.state) for one in sent] == [(f"prices@{WINDOW}", "delivered")]
    for window in (WINDOW, NEXT_WINDOW):
        assert (tmp_path / "published" / "prices" / window / "v1" / "manifest.json").is_file()


def test_a_stale_token_marks_nothing(pool: Pool, dataset: Dataset) -> None:
    with postgres.transaction(pool) as tx:
        write_event(tx, WINDOW)
    with postgres.transaction(pool) as tx:
        first = outbox.claim(tx, "prices", {"lake": 600.0})
        assert outbox.claim(tx, "prices", {"lake": 600.0}) is None
    assert first is not None
    overdue(pool)
    with postgres.transaction(pool) as tx:
        assert outbox.expire(tx) == 1
        (unknown,) = outbox.to_be_asked(tx, "prices", ["lake"])
        outbox.settle(tx, unknown, None)
    with postgres.transaction(pool) as tx:
        second = outbox.claim(tx, "prices", {"lake": 600.0})
    assert second is not None
    assert (second.event_id, second.send_token) == (first.event_id, first.send_token + 1)

    with postgres.transaction(pool) as tx:
        assert not outbox.delivered(tx, first, RECEIPT)
        assert not outbox.not_applied(tx, first, "late", 0.0)
        outbox.settle(tx, unknown, RECEIPT)
    row = standing(pool)
    assert (row.state, row.send_token, row.receipt) == ("sending", second.send_token, None)

    overdue(pool)
    with postgres.transaction(pool) as tx:
        assert outbox.expire(tx) == 1
        outbox.settle(tx, unknown, RECEIPT)
        assert not outbox.delivered(tx, second, RECEIPT), "only what the destination shows decides now"
    row = standing(pool)
    assert (row.state, row.send_token, row.receipt) == ("uncertain", second.send_token, None)


def test_a_sender_that_was_overtaken_says_so_and_leaves_the_mark_to_the_other(
    pool: Pool, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.transaction(pool) as tx:
        write_event(tx, WINDOW)
    send = files.send

    def overtaken(*arguments: Any) -> Any:
        receipt = send(*arguments)
        with postgres.transaction(pool) as tx:
            tx.execute("update scrape.deliveries set send_token = send_token + 1, tries = tries + 1")
        return receipt

    monkeypatch.setattr(files, "send", overtaken)
    (sent,) = deliver.deliver(pool, dataset, jitter=1.0)
    assert (sent.state, sent.run_id) == ("sending", f"prices@{WINDOW}")
    row = standing(pool)
    assert (row.state, row.send_token, row.receipt) == ("sending", 2, None)
