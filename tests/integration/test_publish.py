"""Publishing on real Postgres: whole or not at all, once, never backwards; and what the demo's figures count."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from scrape_assets.datasets.declaration import Dataset
from scrape_assets.errors import CandidateRejected, ScrapeAssetsError
from scrape_assets.flow import accept, judging, plan, publish, rehearse, run, verify
from scrape_assets.flow.publish import Published
from scrape_assets.flow.run import Machine
from scrape_assets.rules import keys
from scrape_assets.store import commit, lease, postgres, publication
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.site import Site, site

SITE = "http://127.0.0.1:9"
OLDER, NEWER = "2026-03-05", "2026-03-06"
NOW = datetime(2026, 3, 6, 12, tzinfo=UTC)
PAGES = ("a", "b", "c")


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


def declared(folder: Path, url: str = SITE) -> Dataset:
    return make.dataset(folder, {"north": (url, [f"/p/{page}" for page in PAGES])})


def offer(sku: str, price: str = "10.00") -> dict[str, Any]:
    return {"name": f"Product {sku}", "sku": sku, "price": price, "currency": "EUR", "availability": "in_stock"}


def offers(price: str = "10.00") -> dict[str, dict[str, Any]]:
    """What each page offers."""
    return {page: offer(page, price) for page in PAGES}


def committed(claim: Claim, window: str, page: str, payload: dict[str, Any]) -> Result:
    entity = keys.entity_key("north", [page])
    row = make.row(entity, payload, window)
    rows = orjson.dumps([row]).decode()
    return Result(claim.lease, SITE, "committed", "committed", claim.leased_at, make.version(), rows=rows, row_count=1)


def accepted(pool: Pool, dataset: Dataset, window: str, pages: Mapping[str, dict[str, Any]]) -> str:
    """The run of a window whose pages gave these offers: judged good, not published."""
    run_id = f"prices@{window}"
    (planned,) = plan.plan(pool, dataset, window, now=NOW)
    assert (planned.planned, planned.problem) == (len(pages), None)
    north = dataset.retailers["north"]
    with postgres.transaction(pool) as tx:
        claims = lease.claim(
            tx, run_id=run_id, retailer="north", origin=north.site,
            manifest_hash=plan.freeze(dataset, north).manifest_hash, worker_id="w", wanted=len(pages),
            lease_seconds=900.0, deadline_seconds=900.0,
        )  # fmt: skip
        results = []
        for claim in claims:
            page = claim.url.rsplit("/", 1)[1]
            results.append(committed(claim, window, page, pages[page]))
        assert len(commit.finish(tx, run_id, window, results, [])) == len(pages)
    verdict = judged(pool, dataset, run_id)
    assert verdict.state == "accepted", verdict.reasons
    assert accept.accept_dataset(pool, dataset, run_id).state == "accepted"
    return run_id


def judged(pool: Pool, dataset: Dataset, run_id: str) -> accept.Verdict:
    return accept.accept_retailer(pool, dataset, run_id, "north")


def rows_of(pool: Pool, query: str) -> list[tuple[Any, ...]]:
    with postgres.transaction(pool) as tx:
        return [tuple(row) for row in tx.execute(query)]


def count(pool: Pool, *tables: str) -> dict[str, int]:
    return {table: rows_of(pool, f"select count(*) from scrape.{table}")[0][0] for table in tables}


def last_version(pool: Pool, run_id: str) -> int:
    with postgres.transaction(pool) as tx:
        return publication.last_version(tx, run_id)


def assert_sound(pool: Pool) -> None:
    assert {v.name: v.keys for v in verify.verify(pool).violations} == {}


def test_a_publication_without_its_event_is_none(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = declared(tmp_path)
    run_id = accepted(pool, dataset, OLDER, offers())
    asked: list[str] = []

    def broken(_tx: object, its_run_id: str, *_: object) -> None:
        asked.append(its_run_id)
        raise RuntimeError("no event today")

    with monkeypatch.context() as fault:
        fault.setattr("scrape_assets.flow.publish.publication.write_event", broken)
        with pytest.raises(RuntimeError, match="no event today"):
            publish.publish(pool, dataset, run_id)
    assert asked == [run_id]
    tables = ("published_observations", "latest_observations", "outbox", "deliveries")
    assert count(pool, *tables) == dict.fromkeys(tables, 0)
    assert rows_of(pool, "select state, dataset_version from scrape.dataset_candidates") == [("accepted", None)]
    assert publish.publish(pool, dataset, run_id) == Published(1, 3, new=True)
    assert count(pool, *tables) == dict(zip(tables, (3, 3, 1, 1), strict=True))
    assert_sound(pool)


def test_two_publishers_make_one_version(pool: Pool, tmp_path: Path) -> None:
    dataset = declared(tmp_path)
    run_id = accepted(pool, dataset, OLDER, offers())
    start = threading.Barrier(2, timeout=300)

    def one(_number: int) -> Published:
        start.wait()
        return publish.publish(pool, dataset, run_id)

    with ThreadPoolExecutor(2) as threads:
        published = list(threads.map(one, range(2)))
    assert sorted(p.new for p in published) == [False, True]
    assert {(p.dataset_version, p.rows) for p in published} == {(1, 3)}
    assert count(pool, "published_observations", "outbox", "deliveries") == {
        "published_observations": 3,
        "outbox": 1,
        "deliveries": 1,
    }
    assert_sound(pool)


def test_a_published_row_is_neither_changed_nor_taken_away(pool: Pool, tmp_path: Path) -> None:
    dataset = declared(tmp_path)
    publish.publish(pool, dataset, accepted(pool, dataset, OLDER, offers()))
    before = rows_of(pool, "select * from scrape.published_observations order by observation_key")
    for statement in (
        "update scrape.published_observations set change = 'new'",
        "delete from scrape.published_observations",
    ):
        with pytest.raises(ScrapeAssetsError, match="append-only"):
            with postgres.transaction(pool) as tx:
                tx.execute(statement)
    assert rows_of(pool, "select * from scrape.published_observations order by observation_key") == before
    assert len(before) == 3


LATEST = "select collection_window, dataset_version, payload ->> 'price' from scrape.latest_observations"


def test_an_older_window_never_replaces_the_latest_rows(pool: Pool, tmp_path: Path) -> None:
    dataset = declared(tmp_path)
    publish.publish(pool, dataset, accepted(pool, dataset, NEWER, offers("12.00")))
    older = publish.publish(pool, dataset, accepted(pool, dataset, OLDER, offers("10.00")))
    assert older == Published(1, 3, new=True)
    assert rows_of(pool, LATEST) == [(NEWER, 1, "12.00")] * 3
    assert count(pool, "published_observations", "outbox") == {"published_observations": 6, "outbox": 2}
    assert_sound(pool)


def test_a_window_without_a_row_is_rejected_and_the_last_version_stands(pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = declared(tmp_path, shop.url)
    older = accepted(pool, dataset, OLDER, offers())
    publish.publish(pool, dataset, older)
    stored = rows_of(pool, "select * from scrape.latest_observations order by entity_key")
    shop.answer = lambda _path: (401, {}, b"no")
    newer = f"prices@{NEWER}"
    plan.plan(pool, dataset, NEWER, now=NOW)
    work = run.assignments(pool, dataset, NEWER, ["north"])
    asyncio.run(run.collect_partitions(pool, Machine(tmp_path / "artifacts", "test-worker", {}), work))
    assert shop.requests == {f"/p/{page}": 1 for page in PAGES}
    verdict = judged(pool, dataset, newer)
    assert verdict.state == "rejected"
    assert {"not_empty", "coverage"} <= {reason.partition(":")[0] for reason in verdict.reasons}
    assert accept.accept_dataset(pool, dataset, newer).state == "rejected"
    with pytest.raises(CandidateRejected, match="north: rejected"):
        publish.publish(pool, dataset, newer)
    assert (last_version(pool, older), last_version(pool, newer)) == (1, 0)
    assert len(stored) == 3
    assert rows_of(pool, "select * from scrape.latest_observations order by entity_key") == stored
    assert count(pool, "published_observations", "outbox") == {"published_observations": 3, "outbox": 1}
    assert_sound(pool)


def test_the_rehearsal_counts_what_is_lost_invented_and_wrong(pool: Pool, tmp_path: Path) -> None:
    dataset = declared(tmp_path)

    def truth(*skus: str, price: str = "10.00") -> list[dict[str, Any]]:
        return [{**offer(sku, price), "retailer": "north", "entity": sku} for sku in skus]

    def compared(run_id: str, *sold: dict[str, Any]) -> dict[str, Any]:
        return rehearse.compare(pool, run_id, 1, sold)

    run_id = accepted(pool, dataset, OLDER, offers())
    publish.publish(pool, dataset, run_id)
    good = {"offers": 3, "rows": 3, "lost": 0, "invented": 0, "duplicates": 0, "wrong_values": []}
    assert compared(run_id, *truth("a", "b", "c")) == good
    assert compared(run_id, *truth("a", "b", "c", "d")) == {**good, "offers": 4, "lost": 1}
    assert compared(run_id, *truth("a", "b")) == {**good, "offers": 2, "invented": 1}
    wrong = {"retailer": "north", "sku": "b", "field": "price", "shop": "11.00", "published": "10.00"}
    assert compared(run_id, *truth("a", "c"), *truth("b", price="11.00")) == {**good, "wrong_values": [wrong]}

    # Two pages that publish one offer under two keys.
    doubled = accepted(pool, dataset, NEWER, offers() | {"c": offer("b")})
    publish.publish(pool, dataset, doubled)
    assert compared(doubled, *truth("a", "b")) == {**good, "offers": 2, "duplicates": 1}


def test_rows_that_move_while_they_are_judged_are_judged_again(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judging is outside the locks; what is accepted is what is there when the lock is taken."""
    dataset = declared(tmp_path)
    run_id = accepted(pool, dataset, NEWER, offers())
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.candidates set state = 'candidate', verdict = null, decided_at = null")
    really, times = judging.judge, []

    def moved_meanwhile(*arguments: Any) -> Any:
        checks = really(*arguments)
        times.append(len(checks))
        if len(times) == 1:
            with postgres.transaction(pool) as tx:
                tx.execute("update scrape.observations set payload_hash = md5(payload_hash)")
        return checks

    monkeypatch.setattr("scrape_assets.flow.judging.judge", moved_meanwhile)
    assert judged(pool, dataset, run_id).state == "accepted"
    assert len(times) == 2
    assert_sound(pool)


def test_a_version_is_made_of_what_was_accepted_or_not_at_all(pool: Pool, tmp_path: Path) -> None:
    run_id = accepted(pool, dataset := declared(tmp_path), NEWER, offers())
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.candidates set content_hash = 'another'")
    with pytest.raises(CandidateRejected, match="accepted with other rows than north has now"):
        publish.publish(pool, dataset, run_id)
    assert count(pool, "published_observations", "outbox") == {"published_observations": 0, "outbox": 0}


def test_a_version_is_made_of_the_generation_that_was_accepted(pool: Pool, tmp_path: Path) -> None:
    """A recovery that gave the same rows is another generation all the same, and is judged for itself."""
    run_id = accepted(pool, dataset := declared(tmp_path), NEWER, offers())
    with postgres.transaction(pool) as tx:
        tx.execute("update scrape.candidates set generation = 2")
    with pytest.raises(CandidateRejected, match="accepted with other rows than north has now"):
        publish.publish(pool, dataset, run_id)
    assert count(pool, "published_observations", "outbox") == {"published_observations": 0, "outbox": 0}
