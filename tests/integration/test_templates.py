"""A redesign is met before its values are: the retailer stops and asks, acceptance rejects, a waiver lets it through."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.errors import CandidateRejected
from scrape_assets.flow import accept, control, series, verify, waive, why
from scrape_assets.flow.collect import BACKLOG
from scrape_assets.flow.commit import GROUP
from scrape_assets.rules import template
from scrape_assets.rules.recovery import Selection
from scrape_assets.store.postgres import Pool
from tests.helpers.command import Command, command
from tests.helpers.site import Site, site
from tests.helpers.story import NOW, Story

__all__ = ["command"]  # a fixture

GOOD = ("2026-03-02", "2026-03-03", "2026-03-04")
WINDOW, NEXT = "2026-03-05", "2026-03-06"
ANY_PRICE = "{coverage: 0.9, drift: {rows: 90%, moved: 100%}}"
"""As far as values go, anything passes."""


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        yield it


@pytest.fixture
def story(pool: Pool, tmp_path: Path, shop: Site) -> Story:
    story = Story(pool, tmp_path, shop, {"north": 20})
    story.accept = ANY_PRICE
    story.declare()
    return story


def redesigned(sku: str, price: float) -> tuple[int, dict[str, str], bytes]:
    """Every selector still finds something, in a page that is laid out anew: the price is that of a subscription."""
    return (
        200,
        {},
        (
            f"<!doctype html><html><body><header class='top-bar'><nav class='mega-menu'><ul class='menu-row'></ul></nav>"
            f"</header><main class='grid wide'><section class='offer hero-card' data-sku='{sku}'><h1>Product {sku}</h1>"
            f"<div class='brand pill'>Acme</div><div class='buy-box'><del class='was'>{price * 1.3:.2f}</del><span class='now strong'>{price * 0.96:.2f}</span>"
            f"<span class='per-month'>with a subscription</span><button class='cta'>Buy</button></div></section></main>"
            f"<footer class='site-map'></footer></body></html>"
        ).encode(),
    )


def redesign(story: Story, *skus: str) -> None:
    for sku in skus or story.prices:
        story.answers[sku] = redesigned(sku, story.prices[sku])


def waived(story: Story, window: str) -> None:
    now = datetime.now(UTC)
    waive.waive(
        story.pool, story.run_id(window), "template", retailer="north", owner="ana", reason="a new design, looked at",
        until=now + timedelta(hours=1), now=now,
    )  # fmt: skip


def paused(story: Story, window: str) -> str | None:
    query = "select pause_reason from scrape.run_partitions where run_id = %s"
    return story.rows(query, story.run_id(window))[0][0]


def assert_sound(story: Story) -> None:
    assert {v.name: v.keys for v in verify.verify(story.pool).violations} == {}


def test_a_page_that_gives_rows_is_stored_with_its_template_and_nothing_else_is(story: Story) -> None:
    story.answers["n0"] = (200, {}, b"<html><head><title>Just a moment...</title></head><body></body></html>")
    story.answers["n1"] = (404, {}, b"<p>gone</p>")
    story.answers["n2"] = (200, {}, b"<html><body><p class='x'>Our shop has a new design now.</p></body></html>")
    story.collect(WINDOW)
    found = dict(story.rows("select coalesce(page_state, '-'), count(template) from scrape.attempts group by 1"))
    assert found == {"expected": 17, "challenge": 0, "removed": 0, "wrong_template": 1}
    assert len(story.rows("select distinct template from scrape.attempts where page_state = 'expected'")) == 1


def test_a_redesign_with_plausible_values_is_rejected_and_nothing_of_it_is_published(story: Story) -> None:
    story.windows(*GOOD)
    redesign(story)
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "rejected"
    assert story.failed(WINDOW, "north") == {"template"}, "every value looks fine"
    check = story.checks(WINDOW, "north")["template"]
    assert check["got"] == "100.0%: 20 of 20 pages"
    assert len(check["samples"]) == 3
    assert all(sample["artifact"] and sample["url"] and sample["entity_key"] for sample in check["samples"])
    with pytest.raises(CandidateRejected, match="north: template: expected at most 10% of the pages"):
        story.release(WINDOW)
    assert {window for window, _ in story.latest().values()} == {GOOD[-1]}
    said = why.explain(story.pool, story.dataset, story.run_id(WINDOW), NOW)
    assert any(line.startswith("scrape-assets waive template --run") for line in said["next"])
    assert_sound(story)


def test_a_waiver_lets_it_through_and_the_window_is_what_later_ones_are_compared_with(story: Story) -> None:
    story.windows(*GOOD)
    redesign(story)
    story.collect(WINDOW)
    story.judge(WINDOW)
    waived(story, WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    assert story.release(WINDOW).rows == 20
    for sku in story.prices:
        story.prices[sku] += 1
    redesign(story)
    story.whole(NEXT)
    check = story.checks(NEXT, "north")["template"]
    assert (check["passed"], check["held"]) == (True, "")
    assert_sound(story)


def test_the_first_windows_do_not_gate_and_say_so(story: Story) -> None:
    story.windows(*GOOD[:2])
    redesign(story)
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    check = story.checks(WINDOW, "north")["template"]
    assert (check["passed"], check["held"]) == (False, "warm_up")
    assert story.release(WINDOW).rows == 20


def test_a_dry_run_says_what_it_would_have_blocked_and_stops_nobody(story: Story) -> None:
    story.windows(*GOOD)
    story.accept = ANY_PRICE.replace("{coverage", "{mode: dry_run, coverage")
    story.declare()
    redesign(story)
    story.collect(WINDOW)
    assert story.judge(WINDOW).state == "accepted"
    assert story.checks(WINDOW, "north")["template"]["held"] == "dry_run"


def test_the_share_is_declared(story: Story) -> None:
    story.windows(*GOOD)
    redesign(story, *(f"n{i}" for i in range(5)))
    story.collect(WINDOW)
    story.judge(WINDOW)
    assert story.failed(WINDOW, "north") == {"template"}
    story.accept = ANY_PRICE.replace("{coverage", "{template: 25%, coverage")
    story.declare()
    assert story.judge(WINDOW).state == "accepted"


def test_a_canary_meets_the_redesign_first(story: Story, shop: Site) -> None:
    story.windows(*GOOD)
    story.accept = ANY_PRICE.replace("{coverage", "{canary: 8, coverage")
    story.declare()
    redesign(story)
    shop.requests.clear()
    story.collect(WINDOW)
    assert shop.requests.total() == 8
    assert "its canary of 8 pages failed: template: expected" in (paused(story, WINDOW) or "")


@pytest.fixture
def large(pool: Pool, tmp_path: Path, shop: Site) -> Story:
    """A retailer with more pages than a worker may have under way, one accepted window, and a redesign in the next."""
    story = Story(pool, tmp_path, shop, {"north": 600})
    story.accept = ANY_PRICE.replace("{coverage", "{warm_up: 1, coverage")
    story.declare()
    story.whole(GOOD[0])
    shop.requests.clear()
    good = story.answer

    def after_a_while(path: str) -> tuple[int, dict[str, str], bytes]:
        sku = path.rsplit("/", 1)[1]
        return redesigned(sku, story.prices[sku]) if shop.requests.total() > 100 else good(path)

    shop.answer = after_a_while
    return story


def test_a_redesign_in_mid_window_stops_the_retailer_and_a_person_is_asked(large: Story, shop: Site) -> None:
    large.collect(WINDOW)
    asked = shop.requests.total()
    # 100 good pages, 26 bad ones, and at most those that were under way, waited to be read, and to be committed.
    assert asked <= 100 + 26 + 8 + BACKLOG + GROUP < 600
    reason = paused(large, WINDOW) or ""
    assert reason.startswith("its template changed: ")
    assert "of its last 50 pages are laid out unlike those of the last accepted windows" in reason
    assert accept.accept_retailer(large.pool, large.dataset, large.run_id(WINDOW), "north").state == "collecting"
    said = why.explain(large.pool, large.dataset, large.run_id(WINDOW), NOW)
    assert any("it is paused: its template changed" in line for line in why.text(said))
    assert said["next"][:3] == [
        f"scrape-assets try prices/north --window {WINDOW} --sample 5",
        f"scrape-assets recover prices --window {WINDOW} --retailer north --dry-run",
        f"scrape-assets resume prices --window {WINDOW} --retailer north",
    ]
    assert large.rows("select stopped_at from scrape.run_partitions where run_id = %s", large.run_id(WINDOW)) == [
        (None,)
    ], "nothing of it is given up after six hours as if it had refused us"

    # Whoever resumes has looked at it: it is not stopped again, and acceptance still has the last word.
    assert control.resume(large.pool, large.run_id(WINDOW), ["north"]) == ["north"]
    large.collect(WINDOW)
    assert paused(large, WINDOW) is None
    assert shop.requests.total() == 600
    assert large.judge(WINDOW).state == "rejected"
    assert large.failed(WINDOW, "north") == {"template"}
    waived(large, WINDOW)
    assert large.judge(WINDOW).state == "accepted"
    assert_sound(large)


def test_a_repair_lets_a_stopped_retailer_go_on(large: Story, shop: Site) -> None:
    large.collect(WINDOW)
    assert (paused(large, WINDOW) or "").startswith(template.PAUSED)
    assert large.begin(WINDOW, **Selection(retailers=("north",), mode="refetch")._asdict())
    assert paused(large, WINDOW) is None
    large.collect(WINDOW)
    assert paused(large, WINDOW) is None
    assert len(shop.requests) == 600
    assert large.failed(WINDOW, "north") == {"template"}


def test_pages_of_a_known_layout_and_first_windows_stop_nobody(pool: Pool, tmp_path: Path, shop: Site) -> None:
    story = Story(pool, tmp_path, shop, {"north": 120})
    story.accept = ANY_PRICE
    story.declare()
    story.windows(*GOOD[:2])
    redesign(story)
    story.collect(GOOD[2])
    assert paused(story, GOOD[2]) is None, "two windows are no history"
    story.judge(GOOD[2])
    story.release(GOOD[2])
    story.answers.clear()
    redesign(story, *(f"n{i}" for i in range(60)))
    story.collect(WINDOW)
    assert paused(story, WINDOW) is None, "half of the pages are of a layout that was accepted"
    assert story.judge(WINDOW).state == "accepted"


def test_whoever_has_waived_the_rule_is_not_asked_again(large: Story, shop: Site) -> None:
    large.collect(WINDOW)
    large.rows("update scrape.run_partitions set paused_at = null, pause_reason = null returning run_id")
    large.rows(
        "insert into scrape.waivers (waiver_id, run_id, retailer, rule, owner, reason, until)"
        " values (gen_random_uuid(), %s, 'north', 'template', 'ana', 'why', now() + interval '1 hour') returning run_id",
        large.run_id(WINDOW),
    )
    large.collect(WINDOW)
    assert paused(large, WINDOW) is None
    assert shop.requests.total() == 600


def lines(story: Story) -> dict[str, dict[str, Any]]:
    return {line["window"]: line for line in series.of_pages(story.pool, story.dataset, 7)}


def test_the_series_tells_a_retailers_pages_window_after_window(story: Story, command: Command) -> None:
    assert command("pages", "prices").out == ""
    story.windows(*GOOD)
    redesign(story, "n0", "n1", "n2", "n3", "n4")
    story.answers["n5"] = (404, {}, b"gone")
    story.answers["n6"] = (200, {}, b"<html><head><title>Just a moment...</title></head><body></body></html>")
    story.answers["n7"] = (401, {}, b"no")
    story.answers["n8"] = (200, {}, b"<html><body><p class='x'>Our shop has a new design now.</p></body></html>")
    story.collect(WINDOW)
    found = lines(story)
    assert list(found) == [WINDOW, *reversed(GOOD)]
    newest = found[WINDOW]
    assert newest["retailer"] == "north"
    assert newest["pages"] == 20
    assert newest["states"] == {
        "product": 16, "gone": 1, "challenge": 1, "consent": 0, "login": 0, "refused": 1, "empty": 0,
        "wrong_template": 1,
    }  # fmt: skip
    assert newest["as_before"] == round(11 / 16, 4)
    assert newest["commonest_template"] == round(11 / 16, 4)
    assert [found[window]["as_before"] for window in GOOD] == [None, 1.0, 1.0]
    assert all(found[window]["states"]["product"] == 20 for window in GOOD)

    said = command("pages", "prices", "--windows", "2", "--retailer", "north")
    assert said.code == 0
    assert "80.0%" in said.out
    assert "68.8%" in said.out
    assert WINDOW in said.out
    assert GOOD[0] not in said.out
    shown = command("pages", "prices", "--json").json
    assert shown["series"] == list(found.values())
    assert command("pages", "prices", "--retailer", "nort").code == 2


def test_dagster_has_the_shares_as_numbers(story: Story) -> None:
    from scrape_assets.defs import metadata  # seconds, which no other test here needs

    story.windows(*GOOD)
    redesign(story, "n0", "n1")
    story.answers["n5"] = (404, {}, b"gone")
    story.collect(WINDOW)
    story.judge(WINDOW)
    about = metadata.observations(story.pool, story.dataset, WINDOW, "north")
    assert about["share of product pages"] == 0.95
    assert about["share of gone pages"] == 0.05
    assert about["share of pages laid out as before"] == round(17 / 19, 4)
