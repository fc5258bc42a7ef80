"""Bytes come first: they are whole and synced before the transaction that points to them begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from scrape_assets import failpoints
from scrape_assets.flow.commit import Committer, Item
from scrape_assets.store import artifacts
from scrape_assets.store.artifacts import SegmentWriter
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Lease
from scrape_assets.store.postgres import Pool

OPEN = """
    select query from pg_stat_activity
     where datname = current_database() and state like 'idle in transaction%' and pid <> pg_backend_pid()
"""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("", None)


def fetched(body: bytes) -> Item:
    now = datetime.now(UTC)
    result = Result(Lease(uuid4(), 1, uuid4()), "http://127.0.0.1:9", "committed", "committed", now, "v1", body=body)
    return Item("prices@2026-03-05", "2026-03-05", "north", result)


def test_what_a_transaction_will_point_to_is_synced_before_it_begins(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    really = os.fdatasync

    def watched(file: int) -> None:
        with psycopg.connect(pool.conninfo) as look:
            assert look.execute(OPEN).fetchall() == [], "a transaction is open while bytes are written"
        really(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fdatasync", watched)
    failpoints.arm("K6=raise", str(tmp_path / "fired"))
    committer = Committer(pool, tmp_path, "w", lambda _item, _passed: None)
    with pytest.raises(failpoints.Reached):
        committer._make_durable([fetched(b"one" * 1000), fetched(b"two" * 1000)])
    [segment] = tmp_path.rglob("*.zst")
    assert synced == [segment.stat().st_size], "one sync for the group, over all of its bytes"
    assert (tmp_path / "fired").read_text().startswith("K6 raise")


def test_a_torn_tail_is_written_behind_and_never_read(tmp_path: Path) -> None:
    failpoints.arm("K5=raise@2", None)
    writer = SegmentWriter(tmp_path, "prices@2026-03-05", "north", "w", failed=False)
    whole = writer.append({"url": "a"}, b"first" * 100)
    with pytest.raises(failpoints.Reached):
        writer.append({"url": "b"}, b"torn" * 100)
    writer.close()
    again = SegmentWriter(tmp_path, "prices@2026-03-05", "north", "w", failed=False)
    behind = again.append({"url": "c"}, b"third" * 100)
    again.sync()
    again.close()
    assert behind.segment_offset > whole.segment_offset + whole.length, "nothing was torn"
    assert artifacts.read(tmp_path, whole) == ({"url": "a"}, b"first" * 100)
    assert artifacts.read(tmp_path, behind) == ({"url": "c"}, b"third" * 100)
