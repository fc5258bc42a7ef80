"""What a data team is afraid of, planted one by one: each is caught by the check that names it, and nothing is published."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from scrape_assets.errors import CandidateRejected, DeclarationError
from scrape_assets.flow import accept, provenance, publish, verify, waive, why
from scrape_assets.store import candidates
from scrape_assets.store.postgres import Pool
from tests.helpers.site import Site, site
from tests.helpers.story import NOW, Story, page

GOOD = ("2026-03-02", "2026-03-03", "2026-03-04")
WINDOW = "2026-03-05"


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def story(pool: Pool, tmp_path: Path, shop: Site) -> Story:
    return Story(pool, tmp_path, shop, {"north": 20})


def assert_sound(story: Story) -> None:
    assert {v.name: v.keys for v in verify.verify(story.pool).violations} == {}


def raised(story: Story, factor: float) -> None:
    """Every price, and the list price beside it."""
    for prices in (story.prices, story.was):
        prices.update({sku: round(price * factor, 2) for sku, price in prices.items()})


def ten_percent_less(story: Story) -> None:
    story.more["north"] = "accept: {coverage: 0.5}"
    for sku in ("n3", "n7"):
        story.answers[sku] = (200, {}, b"<html><body><p>Our shop has a new and better design now.</p></body></html>")


def dearer(story: Story) -> None:
    raised(story, 1.07)


def another_currency(story: Story) -> None:
    story.selectors["north"] = ".now"
    story.more["north"] = ""
    file = story.folder / "datasets" / "prices" / "retailers" / "north.yaml"
    file.write_text(file.read_text().replace("money: EUR", "money: USD"))


def without_brand(story: Story) -> None:
    for sku, price in story.prices.items():
        story.answers[sku] = (200, {}, page(sku, price, story.was.get(sku), brand=""))


def many_gone(story: Story) -> None:
    story.more["north"] = "accept: {coverage: 0.5, drift: {rows: 90%}}"
    for sku in ("n1", "n4", "n6", "n9"):
        story.answers[sku] = (410, {}, b"gone")


def list_prices(story: Story) -> None:
    story.selectors["north"] = ".was"


def in_cents(story: Story) -> None:
    story.selectors["north"] = ".cents"


def with_tax(story: Story) -> None:
    raised(story, 1.21)


def nothing(story: Story) -> None:
    for sku in story.prices:
        story.answers[sku] = (200, {}, b"<html><body><p>Our shop has a new and better design now.</p></body></html>")


FAULTS: dict[str, tuple[Callable[[Story], None], str]] = {
    "an empty frame": (nothing, "not_empty"),
    "a column that is all null": (without_brand, "columns"),
    "a tenth of the rows lost": (ten_percent_less, "drift:rows"),
    "prices times 100": (in_cents, "drift:ratio"),
    "prices with tax": (with_tax, "drift:ratio"),
    "prices in another currency": (another_currency, "drift:currency"),
    "list prices read as prices": (list_prices, "drift:list_price"),
    "all prices moved": (dearer, "drift:moved"),
    "a wave of pages that are gone": (many_gone, "gone"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught_by_the_check_that_names_it(story: Story, fault: str) -> None:
    story.windows(*GOOD)
    plant, rule = FAULTS[fault]
    plant(story)
    if plant is not another_currency:
        story.declare()
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    assert rule in story.failed(WINDOW, "north")
    with pytest.raises(CandidateRejected, match=f"north: {rule}: expected"):
        story.release(WINDOW)
    assert {window for window, _ in story.latest().values()} == {GOOD[-1]}
    said = why.text(why.explain(story.pool, story.dataset, story.run_id(WINDOW), NOW))
    assert f"north: {rule}" in said
    assert any(line.strip().startswith("scrape-assets recover") for line in said)
    assert_sound(story)


def test_good_windows_pass_every_rule(story: Story) -> None:
    story.windows(*GOOD, WINDOW)
    failed = [check for check in story.checks(WINDOW, "north").values() if not check["passed"]]
    assert failed == []


def test_a_page_that_is_served_frozen_for_three_windows_is_noticed(story: Story) -> None:
    story.windows(*GOOD)
    story.whole(WINDOW)
    assert story.checks(WINDOW, "north")["frozen"]["passed"], "it may rest for a window"
    later = "2026-03-06"
    story.collect(later)
    story.judge(later)
    assert story.failed(later, "north") == {"frozen"}


def test_a_site_that_never_changes_is_only_worth_a_look(story: Story) -> None:
    for window in (*GOOD, WINDOW):
        story.whole(window)
    check = story.checks(WINDOW, "north")["frozen"]
    assert (check["passed"], check["severity"]) == (False, "warn")


def test_a_new_retailer_warms_up_and_is_told_what_it_would_fail(story: Story) -> None:
    story.windows(*GOOD[:2])
    raised(story, 100)
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    check = story.checks(WINDOW, "north")["drift:ratio"]
    assert (check["passed"], check["severity"], check["held"]) == (False, "error", "warm_up")
    said = why.explain(story.pool, story.dataset, story.run_id(WINDOW), NOW)
    assert any("does not gate while the retailer is new" in held for held in said["retailers"][0]["held"])


def test_a_dry_run_publishes_and_says_what_it_would_have_blocked(story: Story) -> None:
    story.windows(*GOOD)
    story.accept = "{mode: dry_run}"
    raised(story, 100)
    story.declare()
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    assert story.checks(WINDOW, "north")["drift:ratio"]["held"] == "dry_run"
    assert story.release(WINDOW).rows == 20
    nothing(story)
    story.collect("2026-03-06")
    story.judge("2026-03-06")
    assert "not_empty" in story.failed("2026-03-06", "north"), "nothing is no dataset, rehearsal or not"


def test_what_only_a_dry_run_let_pass_is_nothing_to_compare_with(story: Story) -> None:
    """However it was held back, with a version of it or without: right values are not rejected for wrong ones."""
    story.windows(*GOOD)
    story.more["north"] = "accept: {mode: dry_run}"
    story.declare(north=".was")
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    assert story.checks(WINDOW, "north")["drift:moved"]["held"] == "dry_run"
    story.release(WINDOW)
    story.more["north"] = ""
    story.declare(north=".now")
    story.whole("2026-03-06")
    check = story.checks("2026-03-06", "north")["drift:moved"]
    assert check["expected"] == f"at most 30% of the prices moved since {GOOD[-1]}, the last accepted window"


def test_a_wrong_window_that_right_values_are_compared_with_is_named_and_can_be_repaired(story: Story) -> None:
    """Nobody noticed while the retailer was new: the repair of that window lets the right one pass, without a waiver."""
    story.accept = "{coverage: 0.9, warm_up: 1, drift: {rows: 5%, moved: 30%}}"
    wrong = "2026-03-04"
    story.was.clear()
    story.declare(north=".cents")
    story.collect(wrong)
    assert story.judge(wrong).state == "accepted"
    story.declare(north=".now")
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    said = why.explain(story.pool, story.dataset, story.run_id(WINDOW), NOW)
    assert (
        f"north: compared with {wrong}, which was never published and was read by another extractor: if that one is "
        "wrong, repair it, and publish this one"
    ) in why.text(said)
    assert f"scrape-assets recover prices --window {wrong} --retailer north --dry-run" in said["next"]
    assert f"scrape-assets publish prices --window {WINDOW}" in said["next"]
    assert story.judge(WINDOW).state == "rejected", "it stands while nothing changed"
    assert len(story.rows("select 1 as one from scrape.verdicts where run_id = %s", story.run_id(WINDOW))) == 2
    story.repair(wrong)
    story.judge(wrong)
    assert story.judge(WINDOW).state == "accepted"
    assert story.release(WINDOW).rows == 20
    assert_sound(story)


def test_a_backfill_in_descending_order_is_compared_with_the_windows_after_it(story: Story) -> None:
    for window in reversed(GOOD):
        story.whole(window)
    story.declare(north=".cents")
    earlier = "2026-03-01"
    story.collect(earlier)
    assert story.judge(earlier).state == "rejected"
    assert story.failed(earlier, "north") >= {"drift:ratio", "drift:moved"}
    expected = story.checks(earlier, "north")["drift:moved"]["expected"]
    assert expected.endswith(f"since {GOOD[0]}, an accepted later window")
    assert "not discovered" not in story.checks(earlier, "north")["coverage"]["got"]
    story.declare(north=".now")
    story.repair(earlier)
    assert story.judge(earlier).state == "accepted"
    assert story.checks(earlier, "north")["frozen"]["passed"], "the same pages, fetched within one hour"
    assert_sound(story)


def test_a_correction_of_the_first_window_is_compared_with_what_it_corrects(story: Story) -> None:
    """All windows are wrong: the first to be repaired is not held back by those that are not repaired yet."""
    raised(story, 1.5)
    for window in (*GOOD, WINDOW):
        story.whole(window)
    raised(story, 1 / 1.5)
    story.repair(GOOD[0], retailers=("north",), mode="refetch")
    assert story.judge(GOOD[0]).state == "accepted", story.failed(GOOD[0], "north")
    assert story.release(GOOD[0]).changes["corrected"] == 20


@pytest.mark.parametrize("there", [0, 1, 2, 3])
def test_it_is_said_while_nothing_can_be_said_of_drift(story: Story, there: int) -> None:
    windows = (*GOOD, WINDOW)
    story.windows(*windows[:there])
    story.whole(windows[there])
    run_id, line = story.run_id(windows[there]), f"drift is not judged yet: {there} of 3 accepted windows"
    said = [
        *why.text(why.explain(story.pool, story.dataset, run_id, NOW)),
        *provenance.text(provenance.of_version(story.pool, run_id, None)),
    ]
    assert [text.strip().removeprefix("north: ") for text in said if "drift" in text and "judged" in text] == (
        [line] * 2 if there < 3 else []
    )


def test_a_waiver_that_nobody_judged_yet_is_said_with_the_command_that_does(story: Story) -> None:
    story.windows(*GOOD)
    raised(story, 1.5)
    story.collect(WINDOW)
    story.judge(WINDOW)
    run_id, now = story.run_id(WINDOW), datetime.now(UTC)
    waive.waive(
        story.pool, run_id, "drift:moved", retailer="north", owner="ana", reason="spring", now=now,
        until=now + timedelta(hours=1),
    )  # fmt: skip
    said = why.explain(story.pool, story.dataset, run_id, NOW)
    assert any("drift:moved is waived by ana until" in line and "not judged since" in line for line in why.text(said))
    assert said["next"][0] == f"scrape-assets publish prices --window {WINDOW}"
    story.judge(WINDOW)
    said = why.explain(story.pool, story.dataset, run_id, NOW)
    assert not any("not judged since" in line for line in why.text(said))


def test_a_waiver_of_all_retailers_together_is_said_as_well(story: Story) -> None:
    story.accept = "{coverage: 0.1, mode: dry_run}"
    story.declare()
    story.windows(*GOOD)
    file = story.folder / "datasets" / "prices" / "retailers" / "north.yaml"
    file.write_text(file.read_text() + "accept: {mode: dry_run}\n")
    dataset = story.folder / "datasets" / "prices" / "dataset.yaml"
    dataset.write_text(dataset.read_text().replace(", mode: dry_run", ""))
    for i in range(10):
        story.answers[f"n{i}"] = (410, {}, b"gone")
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected", "a retailer's rehearsal is not the dataset's"
    run_id, now = story.run_id(WINDOW), datetime.now(UTC)
    said = why.explain(story.pool, story.dataset, run_id, NOW)
    assert [check["rule"] for check in said["dataset_checks"]] == ["dataset_rows"]
    assert any("drift:rows would have blocked (dry run)" in line for line in why.text(said))
    assert said["next"][:2] == [
        f"scrape-assets try prices/north --window {WINDOW} --sample 5",
        f"scrape-assets recover prices --window {WINDOW} --retailer north --dry-run",
    ], "to answer for it is the last thing to do"
    waive.waive(
        story.pool, run_id, "dataset_rows", retailer=None, owner="ana", reason="summer", now=now,
        until=now + timedelta(hours=1),
    )  # fmt: skip
    said = why.explain(story.pool, story.dataset, run_id, NOW)
    assert any(
        line.startswith("all retailers together: dataset_rows is waived by ana until") for line in why.text(said)
    )
    assert said["next"][0] == f"scrape-assets publish prices --window {WINDOW}"


@pytest.mark.parametrize(
    ("declared", "rule"),
    [
        ("fill: {brand: 90%}", "fill:brand"),
        ("ranges: {price: {min: 12, max: 1000}}", "range:price"),
        ("unique: [brand]", "unique:brand"),
        ("page_states: {wrong_template: 1%}", "page_states"),
        ("gone: 1%", "gone"),
    ],
)
def test_a_declared_rule_is_kept_from_the_first_window_on(story: Story, declared: str, rule: str) -> None:
    story.accept = "{coverage: 0.5, " + declared + "}"
    story.declare()
    if rule == "fill:brand":
        without_brand(story)
    elif rule in ("page_states", "gone"):
        answer = (410, {}, b"gone") if rule == "gone" else (200, {}, b"<html><body><p>Another page.</p></body></html>")
        story.answers["n0"] = answer
    story.collect(WINDOW)
    story.judge(WINDOW)
    assert story.failed(WINDOW, "north") == {rule}


def test_what_is_missing_is_three_numbers(story: Story) -> None:
    story.whole(GOOD[0])
    story.answers["n0"] = (410, {}, b"gone")
    story.answers["n1"] = (403, {}, b"no")
    story.pages["north"] = 18
    story.declare()
    story.collect(WINDOW)
    story.judge(WINDOW)
    said = story.checks(WINDOW, "north")["coverage"]["got"]
    assert said.endswith("(18 planned, 1 gone, 1 failed, 2 of the last window not discovered)")


def test_the_last_windows_of_the_same_weekday_are_the_band_where_there_are_enough(story: Story) -> None:
    story.accept = "{coverage: 0.1, drift: {rows: 10%, moved: 100%, over: 40}, gone: 100%, warm_up: 60}"
    story.declare()
    for week in (1, 8, 15):  # Sundays of March 2026, with half of the offers
        story.answers = {f"n{i}": (410, {}, b"gone") for i in range(10)}
        story.whole(f"2026-03-{week:02}")
        story.answers.clear()
        raised(story, 1.01)
        if week < 15:
            story.whole(f"2026-03-{week + 1:02}")
    story.answers = {f"n{i}": (410, {}, b"gone") for i in range(10)}
    story.collect("2026-03-22")
    check = story.checks("2026-03-22", "north")["drift:rows"]
    assert check["passed"], check
    assert "accepted windows of this weekday" in check["expected"]


def test_a_waiver_holds_a_rule_back_for_a_time_and_stays_with_the_version(story: Story) -> None:
    story.windows(*GOOD)
    raised(story, 1.5)
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    assert story.failed(WINDOW, "north") == {"drift:moved"}
    run_id, until = story.run_id(WINDOW), datetime.now(UTC) + timedelta(hours=1)

    def waived(rule: str = "drift:moved", **named: object) -> object:
        given = {"retailer": "north", "owner": "ana", "reason": "spring prices", "until": until, **named}
        return waive.waive(story.pool, run_id, rule, now=datetime.now(UTC), **given)  # type: ignore[arg-type]

    for wrong, message in (
        ({"rule": "drift:move"}, "was not judged by a rule drift:move for north; did you mean 'drift:moved'"),
        ({"rule": "members_accepted", "retailer": None}, "nobody can waive it"),
        ({"owner": " "}, "--owner and --reason"),
        ({"until": NOW - timedelta(days=9)}, "is over"),
        ({"retailer": "south"}, "has no retailer south"),
    ):
        with pytest.raises(DeclarationError, match=message):
            waived(**wrong)
    waived()
    assert story.judge(WINDOW).state == "accepted"
    assert story.checks(WINDOW, "north")["drift:moved"]["held"] == "waived"
    story.release(WINDOW)
    said = provenance.of_version(story.pool, run_id, None)
    assert [one["owner"] for one in said["retailers"][0]["waivers"]] == ["ana"]
    assert any("drift:moved waived by ana until" in line for line in provenance.text(said))
    assert_sound(story)


def test_an_expired_waiver_does_not_count(story: Story) -> None:
    story.windows(*GOOD)
    raised(story, 1.5)
    story.collect(WINDOW)
    story.judge(WINDOW)
    run_id = story.run_id(WINDOW)
    now = datetime.now(UTC)
    waive.waive(
        story.pool, run_id, "drift:moved", retailer="north", owner="ana", reason="spring", now=now,
        until=now + timedelta(hours=1),
    )  # fmt: skip
    assert story.judge(WINDOW).state == "accepted"
    over = "update scrape.waivers set until = clock_timestamp() - interval '1 second' returning 1 as one"
    verdicts = (
        "update scrape.candidates set verdict = jsonb_set(verdict, '{waivers,0,until}', to_jsonb(%s::text))"
        " where run_id = %s returning 1 as one"
    )
    assert story.rows(over) == [(1,)]
    story.rows(verdicts, (now - timedelta(seconds=1)).isoformat(), run_id)
    with pytest.raises(CandidateRejected, match="rests on a waiver of drift:moved by ana that ended"):
        story.release(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    with pytest.raises(CandidateRejected, match=r"\nnorth: the waiver of drift:moved by ana ended 20"):
        publish.publish(story.pool, story.dataset, run_id)
    told = why.text(why.explain(story.pool, story.dataset, run_id))
    assert any(line.startswith("north: the waiver of drift:moved by ana ended 20") for line in told)
    assert accept.accept_retailer(story.pool, story.dataset, run_id, "north").state == "rejected"


def test_a_revoked_waiver_holds_nothing_back_and_stays_on_record(story: Story) -> None:
    story.windows(*GOOD)
    raised(story, 1.5)
    story.collect(WINDOW)
    story.judge(WINDOW)
    run_id, now = story.run_id(WINDOW), datetime.now(UTC)

    def waived(rule: str) -> tuple[candidates.Waiver, bool]:
        until = now + timedelta(hours=1)
        return waive.waive(
            story.pool, run_id, rule, retailer="north", owner="ana", reason="spring", now=now, until=until
        )

    assert waived("coverage")[1] is False, "it passes"
    one, needed = waived("drift:moved")
    assert needed
    assert story.judge(WINDOW).state == "accepted"
    assert waive.revoke(story.pool, run_id, str(one.waiver_id)).rule == "drift:moved"
    with pytest.raises(CandidateRejected, match="rests on a waiver of drift:moved by ana that ended"):
        publish.publish(story.pool, story.dataset, run_id)
    assert story.judge(WINDOW).state == "rejected"
    assert [(kept.rule, counts) for kept, counts in waive.listed(story.pool, run_id)] == [
        ("coverage", True),
        ("drift:moved", False),
    ]
    for wrong, said in (
        (str(one.waiver_id), "ended .* already"),
        (str(uuid.uuid4()), "has no waiver"),
        ("x", "is no waiver"),
    ):
        with pytest.raises(DeclarationError, match=said):
            waive.revoke(story.pool, run_id, wrong)


def test_where_there_is_no_row_no_waiver_is_offered(story: Story) -> None:
    story.windows(*GOOD)
    story.declare(north="i.none")
    story.collect(WINDOW)
    story.judge(WINDOW)
    failed = story.failed(WINDOW, "north")
    assert {"not_empty", "coverage"} <= failed
    assert not any(
        "waive" in command for command in why.explain(story.pool, story.dataset, story.run_id(WINDOW))["next"]
    )


def test_list_prices_are_somebodys_to_answer_for(story: Story) -> None:
    story.was = {sku: price / 2 for sku, price in story.prices.items()}
    story.collect(WINDOW)
    story.judge(WINDOW)
    assert "list_price" in story.failed(WINDOW, "north")
    offered = why.explain(story.pool, story.dataset, story.run_id(WINDOW))["next"]
    assert any(command.startswith("scrape-assets waive list_price --run") for command in offered)
