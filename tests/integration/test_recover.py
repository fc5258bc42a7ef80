"""Repair under the original run: the same task keys, mostly no request, and nothing else moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrape_assets import failpoints
from scrape_assets.errors import CandidateRejected, DeclarationError
from scrape_assets.flow import accept, control, judging, plan, recover, run, verify
from scrape_assets.rules.recovery import Mode, Selection
from scrape_assets.store import lease, postgres
from scrape_assets.store import recovery as store
from scrape_assets.store.postgres import Pool, Transaction
from tests.helpers.site import Site, site
from tests.helpers.story import NOW, Story, page

GOOD = ("2026-03-02", "2026-03-03", "2026-03-04")
WINDOW = "2026-03-05"
QUARANTINED = "select count(*) from scrape.tasks where last_failure_class = %s and state = 'quarantined'"


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def story(pool: Pool, tmp_path: Path, shop: Site) -> Story:
    return Story(pool, tmp_path, shop, {"north": 20, "south": 12})


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("", None)


def assert_sound(story: Story) -> None:
    assert {v.name: v.keys for v in verify.verify(story.pool).violations} == {}


def test_a_broken_selector_publishes_nothing_and_its_repair_needs_no_request(story: Story, shop: Site) -> None:
    story.windows(*GOOD)
    story.declare(north=".was")
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    assert {"drift:moved", "drift:list_price", "list_price"} <= story.failed(WINDOW, "north")
    assert story.failed(WINDOW, "south") == set()
    with pytest.raises(CandidateRejected, match="north: "):
        story.release(WINDOW)
    assert {window for window, _ in story.latest().values()} == {GOOD[-1]}, "the last good version is served"

    asked = shop.requests.total()
    before = recover.contents(story.pool, story.run_id(WINDOW))
    keys = story.rows("select task_key, attempt_id from scrape.tasks where run_id = %s", story.run_id(WINDOW))
    story.declare(north=".now")
    (begun,) = story.repair(WINDOW)
    assert (begun.repair.retailer, begun.taken, len(begun.repair.stored), begun.repair.requests) == ("north", 20, 20, 0)
    assert shop.requests.total() == asked, "the pages are stored"
    assert story.judge(WINDOW).state == "accepted"
    published = story.release(WINDOW)
    assert (published.dataset_version, published.rows) == (1, 32)
    after = recover.contents(story.pool, story.run_id(WINDOW))
    assert before["south"] == after["south"]
    assert before["north"] != after["north"]
    again = story.rows("select task_key, attempt_id from scrape.tasks where run_id = %s", story.run_id(WINDOW))
    assert {key for key, _ in again} == {key for key, _ in keys}, "the same task keys"
    assert len({attempt for _, attempt in again} - {attempt for _, attempt in keys}) == 20, (
        "new attempts of north alone"
    )
    assert {sku: float(row["price"]) for sku, row in story.as_of(WINDOW, 1).items()} == story.prices
    (progress,) = recover.progress(story.pool, [begun])
    assert (progress["committed"], progress["requests"], progress["unreadable"]) == (20, 0, 0)
    assert_sound(story)


def test_what_was_published_wrong_gets_a_correction_and_stays_readable(story: Story, shop: Site) -> None:
    story.declare(north=".was")
    story.accept = "{coverage: 0.9, mode: dry_run}"
    story.declare()
    story.whole(WINDOW)
    wrong = story.as_of(WINDOW, 1)
    asked = shop.requests.total()
    story.declare(north=".now")
    story.repair(WINDOW, retailers=("north",))
    assert story.judge(WINDOW).state == "accepted"
    published = story.release(WINDOW)
    assert (published.dataset_version, published.rows, published.new) == (2, 32, True)
    assert published.changes == {"new": 0, "corrected": 20, "withdrawn": 0}
    assert shop.requests.total() == asked
    assert story.as_of(WINDOW, 1) == wrong, "as of the old version, exactly"
    assert {sku: float(row["price"]) for sku, row in story.as_of(WINDOW, 2).items()} == story.prices
    states = story.rows("select dataset_version, state from scrape.dataset_candidates order by sequence")
    assert states == [(1, "superseded"), (2, "published")]
    batches = story.rows(
        "select count(*) as rows, count(recovery_batch_id) as repaired, min(supersedes_version) as old from scrape.published_observations"
        " where dataset_version = 2"
    )
    assert batches == [(20, 20, 1)]
    assert {price for window, price in story.latest().values() if window == WINDOW} == {
        f"{price:g}" for price in story.prices.values()
    }
    assert_sound(story)


def test_a_repair_that_changes_nothing_makes_no_version(story: Story) -> None:
    story.whole(WINDOW)
    story.repair(WINDOW, retailers=("north",), mode="artifacts")
    assert story.judge(WINDOW).state == "published"
    assert story.release(WINDOW).new is False
    assert story.rows("select max(dataset_version) from scrape.dataset_candidates") == [(1,)]
    assert_sound(story)


@pytest.mark.parametrize("status", [503, 403])
def test_given_up_pages_are_taken_by_their_class_with_a_new_budget(story: Story, shop: Site, status: int) -> None:
    """Case BC027: those very rows, and nothing taken is an error."""
    for sku in ("n0", "n1", "n2"):
        story.answers[sku] = (status, {}, b"not now")
    story.accept = "{coverage: 0.8}"
    story.declare()
    story.whole(WINDOW)
    failure = "retries_exhausted" if status == 503 else "access_refused"
    assert story.rows(QUARANTINED, failure) == [(3,)]
    asked = shop.requests.copy()
    with pytest.raises(DeclarationError, match="fits no page"):
        story.begin(WINDOW, failure_class="login")
    story.answers.clear()
    (begun,) = story.repair(WINDOW, failure_class=failure)
    assert (begun.taken, begun.repair.requests) == (3, 3)
    assert (shop.requests - asked).total() == 3
    spent = story.rows(
        "select attempt_count, budget_base_token, generation from scrape.tasks where recovery_batch_id is not null"
    )
    assert {row[0] for row in spent} == {1}
    assert {row[2] for row in spent} == {2}
    assert all(base > 0 for _, base, _ in spent), "the old attempts are another budget's"
    assert story.judge(WINDOW).state == "accepted"
    assert story.release(WINDOW).changes == {"new": 3, "corrected": 0, "withdrawn": 0}
    assert_sound(story)


def test_only_the_pages_whose_rows_break_a_rule_are_taken(story: Story) -> None:
    story.more["north"] = "accept: {ranges: {price: {max: 25}}}"
    story.declare()
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    assert story.failed(WINDOW, "north") == {"range:price"}
    (begun,) = story.begin(WINDOW, rule="range:price")
    assert sorted(task.url.rsplit("/", 1)[1] for task in begun.repair.tasks) == ["n16", "n17", "n18", "n19"]
    with pytest.raises(DeclarationError, match="north, south are not judged by a rule range:name"):
        story.begin(WINDOW, rule="range:name")


def test_named_pages_are_taken_whatever_they_were(story: Story, shop: Site) -> None:
    story.whole(WINDOW)
    asked = shop.requests.copy()
    urls = (f"{shop.url}/p/n3", f"{shop.url}/p/s4")
    story.prices["n3"] = 99.0
    begun = story.repair(WINDOW, urls=urls, mode="refetch")
    assert [(one.repair.retailer, one.taken) for one in begun] == [("north", 1), ("south", 1)]
    assert (shop.requests - asked) == {"/p/n3": 1, "/p/s4": 1}
    story.judge(WINDOW)
    assert story.release(WINDOW).changes == {"new": 0, "corrected": 1, "withdrawn": 0}


def test_an_unchanged_declaration_repairs_what_was_not_obtained(story: Story, shop: Site) -> None:
    story.answers["n0"] = (403, {}, b"no")
    story.accept = "{coverage: 0.99}"
    story.declare()
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    story.answers.clear()
    (begun,) = story.begin(WINDOW)
    assert [task.url.rsplit("/", 1)[1] for task in begun.repair.tasks] == ["n0"], "no good page is asked for again"


def test_a_canary_that_is_closed_before_the_rest_is_judged_and_rejects(story: Story) -> None:
    story.accept = "{coverage: 0.9, warm_up: 1, canary: 4}"
    story.declare()
    story.windows(GOOD[0])
    story.declare(north=".was")
    story.collect(WINDOW)
    with postgres.transaction(story.pool) as tx:
        tx.execute(
            "update scrape.run_partitions set closing_at = clock_timestamp() where retailer = 'north' and run_id = %s",
            (story.run_id(WINDOW),),
        )
    control.tidy(story.pool)
    assert story.judge(WINDOW).state == "rejected"
    assert {"canary", "coverage"} <= story.failed(WINDOW, "north")


def test_a_stopped_retailer_is_repaired_from_its_pages_and_has_its_grace_again(story: Story, shop: Site) -> None:
    story.whole(WINDOW)
    with postgres.transaction(story.pool) as tx:
        tx.execute(
            "update scrape.run_partitions set paused_at = clock_timestamp(), pause_reason = 'stopped: it refuses',"
            " stopped_at = clock_timestamp() - interval '7 hours' where retailer = 'north'"
        )
    asked = shop.requests.total()
    story.declare(north="b")
    story.repair(WINDOW, retailers=("north",))
    assert shop.requests.total() == asked
    assert story.judge(WINDOW).state == "published"
    story.begin(WINDOW, urls=(f"{shop.url}/p/n1",), mode="refetch")
    control.tidy(story.pool)
    states = story.rows("select state, count(*) as n from scrape.tasks where retailer = 'north' group by 1 order by 1")
    assert states == [("committed", 19), ("pending", 1)], "it waits for somebody who resumes"


def test_a_stored_page_that_cannot_be_read_is_asked_for_and_counted(story: Story, shop: Site, tmp_path: Path) -> None:
    story.whole(WINDOW)
    for segment in (tmp_path / "artifacts").rglob("north/pages-*.zst"):
        whole = segment.read_bytes()
        segment.write_bytes(whole[: len(whole) // 2] + b"\0" * (len(whole) - len(whole) // 2))
    asked = shop.requests.total()
    story.declare(north="b")
    (begun,) = story.repair(WINDOW, retailers=("north",))
    (progress,) = recover.progress(story.pool, [begun])
    assert progress["committed"] == 20
    assert 0 < progress["unreadable"] < 20
    assert shop.requests.total() - asked == progress["unreadable"] == progress["requests"]
    assert_sound(story)


def test_pages_under_way_are_not_taken_from_a_worker(story: Story) -> None:
    story.whole(WINDOW)
    run_id = story.run_id(WINDOW)
    story.begin(WINDOW, urls=tuple(f"{story.shop.url}/p/n{i}" for i in range(3)), mode="refetch")
    work = plan.freeze(story.dataset, story.dataset.retailers["north"])
    with postgres.transaction(story.pool) as tx:
        claims = lease.claim(
            tx, run_id=run_id, retailer="north", origin=story.shop.url, manifest_hash=work.manifest_hash,
            worker_id="w", wanted=2, lease_seconds=45.0, deadline_seconds=600.0,
        )  # fmt: skip
    assert len(claims) == 2
    with pytest.raises(DeclarationError, match=r"2 pages of north .* are under way; .* in 4\d s at the latest"):
        story.begin(WINDOW, urls=(f"{story.shop.url}/p/n19",))


def test_a_claim_between_the_look_and_the_taking_is_seen(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims take no lock of the partition's."""
    plan.plan(story.pool, story.dataset, WINDOW, now=NOW)
    work = plan.freeze(story.dataset, story.dataset.retailers["north"])
    really, claimed = store.open_batch, []

    def claim_first(tx: Transaction, *arguments: Any, **named: Any) -> int:
        with postgres.transaction(story.pool) as other:
            claimed.extend(lease.claim(
                other, run_id=story.run_id(WINDOW), retailer="north", origin=story.shop.url,
                manifest_hash=work.manifest_hash, worker_id="w", wanted=3, lease_seconds=60.0,
                deadline_seconds=600.0,
            ))  # fmt: skip
        return really(tx, *arguments, **named)

    monkeypatch.setattr("scrape_assets.flow.recover.recovery.open_batch", claim_first)
    story.declare(north="b")
    with pytest.raises(DeclarationError, match=r"3 pages of north .* are under way"):
        story.begin(WINDOW)
    assert len(claimed) == 3
    assert story.rows("select count(*) from scrape.recovery_batches") == [(0,)]


def test_a_second_repair_leaves_pages_stored_that_the_first_would_have_read(story: Story, shop: Site) -> None:
    story.whole(WINDOW)
    asked = shop.requests.total()
    story.declare(north="i.cents")
    (first,) = story.begin(WINDOW, retailers=("north",))
    story.declare(north="b")
    (second,) = story.begin(WINDOW)
    assert (len(first.repair.stored), second.taken, second.repair.requests) == (20, 20, 0)
    story.collect(WINDOW)
    assert shop.requests.total() == asked
    assert story.judge(WINDOW).state == "published"


def test_a_partial_repair_is_completed_from_stored_pages(story: Story, shop: Site) -> None:
    story.whole(WINDOW)
    asked = shop.requests.total()
    story.declare(north="b")
    (few,) = story.repair(WINDOW, urls=(f"{shop.url}/p/n1", f"{shop.url}/p/n2"))
    assert few.taken == 2
    (rest,) = story.repair(WINDOW)
    assert (rest.taken, len(rest.repair.stored)) == (18, 18), "those that the first extractor read"
    assert shop.requests.total() == asked
    with pytest.raises(DeclarationError, match=r"nothing of .* is rejected"):
        story.begin(WINDOW)


def test_an_edited_page_object_is_another_declaration_for_every_claim(story: Story) -> None:
    pages = story.folder / "datasets" / "prices" / "pages.py"
    code = "def detail(page):\n    return {{'name': 'x', 'sku': page.url[-2:], 'price': '{}', 'currency': 'EUR'}}\n"
    pages.write_text(code.format(1))
    file = story.folder / "datasets" / "prices" / "retailers" / "north.yaml"
    text = file.read_text()
    file.write_text(text[: text.index("product:")] + "product: {page_object: 'pages.py:detail'}\n")
    dataset = story.dataset
    first = plan.freeze(dataset, dataset.retailers["north"])
    pages.write_text(code.format(2))
    second = plan.freeze(story.dataset, story.dataset.retailers["north"])
    assert first.manifest == second.manifest
    assert first.manifest_hash != second.manifest_hash


def test_a_pause_of_a_persons_is_not_lifted_by_a_repair(story: Story) -> None:
    story.accept = "{coverage: 0.9, warm_up: 1, canary: 4}"
    story.declare()
    story.windows(GOOD[0])
    plan.plan(story.pool, story.dataset, WINDOW, now=NOW)
    story.rows(
        "update scrape.run_partitions set canary = 'failed', canary_checks = '[]', paused_at = clock_timestamp(),"
        " pause_reason = 'legal said stop' where run_id = %s and retailer = 'north' returning 1 as one",
        story.run_id(WINDOW),
    )
    story.declare(north="b")
    story.begin(WINDOW, retailers=("north",))
    assert story.rows("select pause_reason from scrape.run_partitions where pause_reason is not null") == [
        ("legal said stop",)
    ]


@pytest.mark.parametrize("closed", [False, True])
def test_the_verdict_over_an_earlier_canary_decides_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    story.accept = "{coverage: 0.9, warm_up: 1, canary: 4}"
    story.declare()
    story.windows(GOOD[0])
    really = judging.canary

    def repaired_meanwhile(*arguments: Any) -> Any:
        found = really(*arguments)
        if arguments[3] == "north":
            monkeypatch.setattr("scrape_assets.flow.judging.canary", really)
            story.declare(north=".was")
            story.begin(WINDOW, retailers=("north",), mode="refetch")
            if closed:
                with postgres.transaction(story.pool) as tx:
                    tx.execute(
                        "update scrape.run_partitions set closing_at = clock_timestamp() where canary = 'running'"
                    )
                control.tidy(story.pool)
        return found

    monkeypatch.setattr("scrape_assets.flow.judging.canary", repaired_meanwhile)
    story.collect(WINDOW)
    state = story.rows(
        "select canary from scrape.run_partitions where run_id = %s and retailer = 'north'", story.run_id(WINDOW)
    )
    assert state == [("running",)]


def test_a_half_built_batch_is_none(story: Story, tmp_path: Path) -> None:
    """K24."""
    story.whole(WINDOW)
    log = tmp_path / "fired"
    before = story.rows("select task_key, state, attempt_id from scrape.tasks order by 1")
    failpoints.arm("K24=raise", str(log))
    with pytest.raises(failpoints.Reached):
        story.begin(WINDOW, retailers=("north",), mode="refetch")
    assert log.read_text().startswith("K24 raise")
    assert story.rows("select task_key, state, attempt_id from scrape.tasks order by 1") == before
    assert story.rows("select count(*) from scrape.recovery_batches") == [(0,)]
    assert_sound(story)
    assert story.begin(WINDOW, retailers=("north",), mode="refetch")[0].taken == 20


@pytest.mark.parametrize("repaired_before", [False, True])
@pytest.mark.parametrize("mode", ["auto", "refetch"])
def test_a_worker_of_the_old_declaration_claims_nothing_of_a_batch(
    story: Story, mode: Mode, repaired_before: bool
) -> None:
    story.whole(WINDOW)
    if repaired_before:
        # Only a worker of a repair asks for stored pages.
        story.declare(north=".was")
        story.begin(WINDOW, retailers=("north",), mode=mode)
    old = run.assignments(story.pool, story.dataset, WINDOW, ["north"])
    story.declare(north="b")
    story.begin(WINDOW, retailers=("north",), mode=mode)
    tally = asyncio.run(run.collect_partitions(story.pool, story.machine, old))
    assert tally.outcomes == {}, "it ends, and leaves the pages to a worker with the new declaration"
    assert run.assignments(story.pool, story.dataset, WINDOW, ["north"])[0].recovery_batch_id is not None


@pytest.mark.parametrize("keep", [True, False])
def test_rows_of_a_page_that_cannot_be_read_again_are_kept_and_say_so(story: Story, keep: bool) -> None:
    if not keep:
        story.accept = "{coverage: 0.8, on_unrepaired: withdraw}"
        story.declare()
    story.whole(WINDOW)
    story.answers["n0"] = (200, {}, b"<html><body><p>Something else entirely, and a good deal of it.</p></body></html>")
    story.answers["n1"] = (404, {}, b"gone")
    story.answers["n2"] = (200, {}, page("n2b", 7.0))
    story.repair(WINDOW, retailers=("north",), mode="refetch")
    assert story.judge(WINDOW).state == "accepted"
    published = story.release(WINDOW)
    held = story.as_of(WINDOW, 2)
    assert "n1" not in held, "its page is gone"
    assert "n2" not in held and "n2b" in held, "its page gives another row"
    assert ("n0" in held) is keep
    assert published.changes == {"new": 1, "corrected": 0, "withdrawn": 2 if keep else 3}
    with postgres.transaction(story.pool) as tx:
        query = "select entity_key from scrape.as_of('prices', %s, 2) where unverified"
        unverified = tx.execute(query, (WINDOW,)).fetchall()
    assert len(unverified) == int(keep)
    assert set(story.as_of(WINDOW, 1)) == {*story.prices}, "the first version has all of them"
    assert_sound(story)


def test_a_withdrawn_entity_shows_its_row_of_an_earlier_window_again(story: Story) -> None:
    story.whole(GOOD[0])
    story.prices = {sku: price + 1 for sku, price in story.prices.items()}
    story.accept = "{coverage: 0.8, drift: {moved: 100%}}"
    story.declare()
    story.whole(WINDOW)
    assert story.latest()["n1"] == (WINDOW, "12")
    story.answers["n1"] = (404, {}, b"gone")
    story.repair(WINDOW, retailers=("north",), mode="refetch")
    story.judge(WINDOW)
    story.release(WINDOW)
    assert story.latest()["n1"] == (GOOD[0], "11")
    assert story.latest()["n3"] == (WINDOW, "14")
    story.answers.clear()
    story.repair(WINDOW, failure_class="gone")
    story.judge(WINDOW)
    story.release(WINDOW)
    assert story.latest()["n1"] == (WINDOW, "12"), "given back by the third version"
    assert_sound(story)


def test_a_scope_cannot_be_repaired_and_a_key_only_as_a_whole(story: Story, shop: Site) -> None:
    story.whole(WINDOW)
    file = story.folder / "datasets" / "prices" / "retailers" / "north.yaml"
    file.write_text(file.read_text().replace("key: [sku]", "key: [name]"))
    with pytest.raises(DeclarationError, match=r"entity\.key changed, and 19 pages that are not selected"):
        recover.select(story.pool, story.dataset, story.run_id(WINDOW), Selection(urls=(f"{shop.url}/p/n1",)))
    (whole,) = recover.select(story.pool, story.dataset, story.run_id(WINDOW), Selection(("north",)))
    assert len(whole.tasks) == 20
    other = story.folder / "datasets" / "prices" / "other.csv"
    other.write_text(f"url\n{shop.url}/p/n1\n")
    file.write_text(file.read_text().replace("file: north.csv", "file: other.csv"))
    with pytest.raises(DeclarationError, match=r"scope\.urls\.file changed"):
        recover.select(story.pool, story.dataset, story.run_id(WINDOW), Selection(("north",)))


def test_a_preview_says_what_would_change_and_changes_nothing(story: Story, shop: Site) -> None:
    story.whole(WINDOW)
    asked = shop.requests.total()
    story.declare(north=".was")
    run_id = story.run_id(WINDOW)
    (repair,) = recover.select(story.pool, story.dataset, run_id, Selection(("north",)))
    seen = asyncio.run(recover.preview(story.pool, story.dataset, run_id, repair, story.machine.artifacts, sample=5))
    assert seen["pages"] == 5
    assert {change["field"] for change in seen["changes"]} == {"price"}
    assert len(seen["changes"]) == 5
    one = seen["changes"][0]
    sku = one["url"].rsplit("/", 1)[1]
    assert (float(one["before"]), float(one["after"])) == (story.prices[sku], story.was[sku])
    assert shop.requests.total() == asked
    assert story.rows("select count(*) from scrape.recovery_batches") == [(0,)]


def test_a_repair_joins_a_generation_that_still_collects(story: Story) -> None:
    story.collect(WINDOW, "south")
    plan.plan(story.pool, story.dataset, WINDOW, now=NOW)
    story.declare(north="b")
    (begun,) = story.begin(WINDOW, retailers=("north",))
    assert (begun.taken, begun.repair.joined) == (20, 20)
    assert story.rows("select generation, state from scrape.candidates where retailer = 'north'") == [(1, "collecting")]
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    assert_sound(story)


def test_a_canary_that_reads_other_prices_stops_its_retailer_before_the_rest(story: Story, shop: Site) -> None:
    story.accept = "{coverage: 0.9, warm_up: 1, canary: 4}"
    story.declare()
    story.windows(*GOOD)
    story.declare(north=".was")
    asked = shop.requests.copy()
    story.collect(WINDOW)
    north = sum(count for path, count in (shop.requests - asked).items() if path.startswith("/p/n"))
    assert north == 4, "nothing after the canary"
    reason = story.rows(
        "select canary, pause_reason from scrape.run_partitions where run_id = %s and retailer = 'north'",
        story.run_id(WINDOW),
    )
    assert reason[0][0] == "failed"
    assert "its canary of 4 pages failed: " in reason[0][1]
    verdict = accept.accept_retailer(story.pool, story.dataset, story.run_id(WINDOW), "north")
    assert verdict.state == "collecting"
    assert story.failed(WINDOW, "south") == set(), "its own canary was good"

    story.declare(north=".now")
    (begun,) = story.repair(WINDOW, retailers=("north",))
    assert begun.taken == 20
    north = sum(count for path, count in (shop.requests - asked).items() if path.startswith("/p/n"))
    assert north == 20, "the canary's pages are stored"
    assert story.judge(WINDOW).state == "accepted"
    assert story.release(WINDOW).rows == 32
    assert_sound(story)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_four_thousand_pages_are_repaired_without_one_request(pool: Pool, tmp_path: Path, shop: Site) -> None:
    """Requirement 177, in its own size: rejected before it is published, and corrected after it was."""
    story = Story(pool, tmp_path, shop, {"north": 4000, "south": 200, "west": 100})
    story.windows(GOOD[0])
    story.accept = "{coverage: 0.99, warm_up: 1}"
    story.declare(north=".was")
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    assert "drift:list_price" in story.failed(WINDOW, "north")
    assert {window for window, _ in story.latest().values()} == {GOOD[0]}
    before = recover.contents(pool, story.run_id(WINDOW))
    asked = shop.requests.total()
    story.declare(north=".now")
    (begun,) = story.repair(WINDOW)
    assert (begun.taken, begun.repair.requests) == (4000, 0)
    assert story.judge(WINDOW).state == "accepted"
    assert story.release(WINDOW).rows == 4300
    after = recover.contents(pool, story.run_id(WINDOW))
    assert [name for name in before if before[name] != after[name]] == ["north"]

    story.accept = "{coverage: 0.99, mode: dry_run}"
    story.declare(north=".was")
    later = "2026-03-06"
    story.whole(later)
    wrong = story.as_of(later, 1)
    asked_now = shop.requests.total()
    assert asked_now - asked == 4300
    story.accept = "{coverage: 0.99, warm_up: 1}"
    story.declare(north=".now")
    story.repair(later, retailers=("north",))
    assert story.judge(later).state == "accepted"
    assert story.release(later).changes == {"new": 0, "corrected": 4000, "withdrawn": 0}
    assert shop.requests.total() == asked_now
    assert story.as_of(later, 1) == wrong
    assert {sku: float(row["price"]) for sku, row in story.as_of(later, 2).items()} == story.prices
    assert_sound(story)


def test_what_stands_published_is_repaired_only_where_it_is_named(pool: Pool, tmp_path: Path, shop: Site) -> None:
    story = Story(pool, tmp_path, shop, {"north": 6, "south": 4, "west": 4})
    story.publish = "{when: available, to: {lake: {files: {path: published, format: jsonl}}}}"
    story.declare(west="i.none")
    story.collect(WINDOW)
    story.judge(WINDOW)
    assert story.release(WINDOW).gaps == {"west": "rejected, missing"}
    asked = shop.requests.total()
    story.declare(west="b", north="b")
    assert [one.repair.retailer for one in story.repair(WINDOW)] == ["west"], "north is published and stands"
    assert shop.requests.total() == asked
    story.judge(WINDOW)
    assert story.release(WINDOW).gaps == {}

    def taken(**named: Any) -> list[str]:
        found = recover.select(story.pool, story.dataset, story.run_id(WINDOW), Selection(**named))
        return [one.retailer for one in found]

    for mode in ("auto", "artifacts", "refetch"):
        with pytest.raises(DeclarationError, match=r"what is published of it stands \(north declared otherwise"):
            taken(mode=mode)
    with pytest.raises(DeclarationError, match="what is published of it stands"):
        taken(page_type="product")
    assert taken(retailers=("north",)) == ["north"]
    assert taken(urls=(f"{shop.url}/p/s1",)) == ["south"]
    with pytest.raises(recover.NothingToRepair):
        taken(rule="coverage")
    story.more["south"] = "accept: {ranges: {price: {max: 10}}}"
    story.declare()
    assert taken(rule="range:price") == ["south"], "it fails now"


def test_pages_that_were_given_up_are_taken_while_the_retailer_is_undecided(story: Story, shop: Site) -> None:
    story.answers = {"n3": (200, {}, b"<html><body>another shop</body></html>")}
    story.pages["north"] = 10
    story.declare()
    story.collect(WINDOW)
    story.answers.clear()
    (begun,) = story.begin(WINDOW)
    assert [task.url for task in begun.repair.tasks] == [f"{shop.url}/p/n3"]
    assert begun.repair.warning == "", "nothing of it is published"


def test_who_asks_the_site_for_a_published_window_that_is_over_is_told(story: Story, shop: Site) -> None:
    story.whole(WINDOW)

    def warned(**named: Any) -> str:
        (one,) = recover.select(story.pool, story.dataset, story.run_id(WINDOW), Selection(**named))
        assert one.record()["warning"] == (one.warning or None)
        return one.warning

    asked = f"will be fetched now for the past window {WINDOW}; their prices are today's"
    assert warned(retailers=("north",), mode="refetch") == f"20 pages {asked}"
    assert warned(urls=(f"{shop.url}/p/n1",)) == f"1 page {asked}"
    assert warned(retailers=("north",), mode="artifacts") == ""
    with postgres.transaction(story.pool) as tx:
        tx.execute("update scrape.runs set window_end = clock_timestamp() + interval '1 hour'")
    assert warned(retailers=("north",), mode="refetch") == "", "it is not over"


def test_a_preview_says_that_pages_would_fail(story: Story) -> None:
    story.whole(WINDOW)
    story.declare(north="i.none")
    run_id = story.run_id(WINDOW)
    (repair,) = recover.select(story.pool, story.dataset, run_id, Selection(("north",)))
    seen = asyncio.run(recover.preview(story.pool, story.dataset, run_id, repair, story.machine.artifacts))
    assert (seen["pages"], seen["would_fail"], seen["changes"]) == (20, 20, [])
