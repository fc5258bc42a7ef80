"""When a candidate is accepted, and what is said when it is not."""

from __future__ import annotations

import pytest

from scrape_assets.rules import acceptance
from scrape_assets.rules.acceptance import Check


@pytest.mark.parametrize(
    ("planned", "committed", "gone"),
    [(0, 0, 0), (5, 0, 5), (5, 0, 0), (5, 0, 2)],
    ids=["nothing planned", "all gone", "all quarantined", "what is not gone is quarantined"],
)
def test_a_retailer_of_which_nothing_was_obtained_has_no_coverage(planned: int, committed: int, gone: int) -> None:
    check = acceptance.coverage(planned=planned, committed=committed, gone=gone, at_least=0.01)
    assert not check.passed
    assert check.severity == "error"
    assert f"{planned} planned, {gone} gone" in check.got


@pytest.mark.parametrize(
    ("planned", "committed", "gone", "at_least", "passed"),
    [
        (10, 9, 0, 0.9, True),
        (10, 8, 0, 0.9, False),
        (10, 8, 1, 0.9, False),
        (10, 8, 2, 1.0, True),
        (200, 199, 0, 0.995, True),
    ],
)
def test_coverage_is_of_what_can_be_obtained_and_the_threshold_itself_passes(
    planned: int, committed: int, gone: int, at_least: float, passed: bool
) -> None:
    check = acceptance.coverage(planned=planned, committed=committed, gone=gone, at_least=at_least)
    assert check.passed is passed


def test_no_row_is_a_failure_of_its_own() -> None:
    assert not acceptance.not_empty(0).passed
    assert acceptance.not_empty(1).passed


def test_a_failed_warning_rejects_nothing_and_a_failed_error_does() -> None:
    warning = acceptance.collisions(3)
    assert (warning.passed, warning.severity) == (False, "warn")
    good = acceptance.not_empty(1)
    assert acceptance.accepted([good, warning])
    assert acceptance.reasons([good.record(), warning.record()]) == []
    error = acceptance.unique_entities(1)
    assert not acceptance.accepted([good, warning, error])
    (reason,) = acceptance.reasons([good.record(), warning.record(), error.record()])
    assert reason.startswith("unique_entities: expected ")


def test_each_member_that_is_not_accepted_is_named_with_its_state() -> None:
    assert acceptance.members_accepted({"north": "accepted", "south": "accepted"}).passed
    check = acceptance.members_accepted({"north": "accepted", "south": "rejected", "west": None})
    assert not check.passed
    assert check.got == "south: rejected, west: not planned"


def test_a_check_is_stored_with_all_that_it_said() -> None:
    check = Check("rule", False, "one", "two", "warn", [{"field": "price"}])
    assert Check(**check.record()) == check
