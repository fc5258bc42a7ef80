"""When a retailer is left alone."""

from __future__ import annotations

import pytest

from scrape_assets.rules import refusals
from scrape_assets.rules.states import FailureClass


@pytest.mark.parametrize("failure", sorted(refusals.REFUSALS))
def test_ten_in_a_row_stop_and_nine_do_not(failure: FailureClass) -> None:
    assert refusals.stops([failure] * 9) is None
    assert refusals.stops([failure] * 9 + [None] + [failure] * 9) is None
    why = refusals.stops([failure] * 10 + [None] * 500)
    assert why is not None and failure in why


def test_a_twentieth_of_two_hundred_stops_once_there_are_two_hundred() -> None:
    spread = ([FailureClass.CHALLENGE] + [None] * 19) * 10
    assert len(spread) == 200
    assert refusals.stops(spread[:199]) is None
    assert "10 of its last 200" in (refusals.stops(spread) or "")
    assert refusals.stops([None, *spread[:199], *spread]) == refusals.stops([None, *spread[:199]])
    assert refusals.stops([None, *spread[1:]]) is None


@pytest.mark.parametrize("failure", sorted(set(FailureClass) - refusals.REFUSALS))
def test_what_is_wrong_with_a_page_does_not_stop_its_retailer(failure: FailureClass) -> None:
    assert refusals.stops([failure] * 500) is None
