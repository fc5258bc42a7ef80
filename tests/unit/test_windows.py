"""Windows are half-open, in UTC, and named by the local time they begin; wrong keys and rules say what was expected."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from scrape_assets.rules import windows
from scrape_assets.rules.windows import WindowRule


def test_the_repeated_hour_is_two_windows_and_the_second_carries_its_offset() -> None:
    rule = WindowRule(every="hour", timezone="Europe/Berlin", start=date(2026, 1, 1))
    first, second = "2026-10-25-02:00", "2026-10-25-02:00+0100"
    assert windows.key_at(rule, datetime(2026, 10, 25, 0, 30, tzinfo=UTC)) == first
    assert windows.key_at(rule, datetime(2026, 10, 25, 1, 30, tzinfo=UTC)) == second
    assert windows.bounds(rule, first)[1] == windows.bounds(rule, second)[0] == datetime(2026, 10, 25, 1, tzinfo=UTC)


@pytest.mark.parametrize(("key", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_a_day_is_one_window_however_long_it_is(key: str, hours: int) -> None:
    rule = WindowRule(every="day", timezone="Europe/Berlin", start=date(2026, 1, 1))
    start, end = windows.bounds(rule, key)
    assert end - start == timedelta(hours=hours)


def test_each_instant_belongs_to_exactly_one_window() -> None:
    rule = WindowRule(every="cron", cron="30 2,14 * * *", timezone="Europe/Berlin", start=date(2026, 10, 20))
    keys = windows.keys_between(rule, datetime(2026, 10, 20, tzinfo=UTC), datetime(2026, 10, 30, tzinfo=UTC))
    bounds = [windows.bounds(rule, key) for key in keys]
    assert all(one[1] == other[0] for one, other in pairwise(bounds))
    almost_midnight = datetime(2026, 10, 24, 23, 59, 59, 900_000, tzinfo=ZoneInfo("Europe/Berlin"))
    assert windows.key_at(rule, almost_midnight) == "2026-10-24-14:30"


def test_windows_begin_at_the_first_boundary_from_start_on() -> None:
    rule = WindowRule(every="day", at="06:00", timezone="Europe/Madrid", start=datetime(2026, 11, 1, 7))  # noqa: DTZ001
    assert windows.keys_between(rule, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 11, 4, tzinfo=UTC)) == [
        "2026-11-02",
        "2026-11-03",
    ]
    with pytest.raises(ValueError, match="lies before the first window, 2026-11-02, which begins 2026-11-02T05:00:00Z"):
        windows.current_key(rule, datetime(2026, 11, 1, 12, tzinfo=UTC))
    assert windows.current_key(rule, datetime(2026, 11, 2, 5, tzinfo=UTC)) == "2026-11-02"


@pytest.mark.parametrize(
    ("rule", "key", "said"),
    [
        (
            {"every": "day"},
            "2026-13-01",
            "window '2026-13-01' is not a key: there is no such day to collect; expected YYYY-MM-DD, as 2026-11-01",
        ),
        ({"every": "day"}, "2026-11-1", "expected YYYY-MM-DD"),
        ({"every": "day"}, "9999-12-31", "expected YYYY-MM-DD"),
        ({"every": "day"}, "0001-01-01", "expected YYYY-MM-DD"),
        ({"every": "hour"}, "9999-12-31-23:00", "expected YYYY-MM-DD-HH:MM"),
        ({"every": "day"}, "２０２６-11-20", "expected YYYY-MM-DD"),
        ({"every": "day"}, "2026-11-20-00:00", "expected YYYY-MM-DD"),
        ({"every": "day"}, "../../etc", "expected YYYY-MM-DD"),
        ({"every": "day"}, "2026-10-31", "window '2026-10-31' lies before the first one, 2026-11-01"),
        ({"every": "hour"}, "2026-11-20", "expected YYYY-MM-DD-HH:MM, as 2026-11-01-00:00"),
        (
            {"every": "hour"},
            "2026-11-20-06:30",
            "not a boundary of '0 * * * *' in Europe/Berlin; expected one like 2026-11-20-07:00",
        ),
        ({"every": "hour"}, "2027-03-28-02:00", "not a boundary"),
        ({"every": "hour"}, "2027-10-31-02:00+0200", "not a boundary"),
        ({"every": "cron", "cron": "0 6 * * 1-5"}, "2026-11-21-06:00", "expected one like 2026-11-23-06:00"),
    ],
)
def test_a_wrong_key_says_what_was_expected(rule: dict[str, str], key: str, said: str) -> None:
    declared = WindowRule.model_validate({"timezone": "Europe/Berlin", "start": "2026-11-01", **rule})
    with pytest.raises(ValueError) as error:
        windows.bounds(declared, key)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timezone": "Europe/Atlantis"}, "timezone 'Europe/Atlantis' is unknown"),
        ({"timezone": "../../etc/passwd"}, "is unknown"),
        ({"at": "6:00"}, 'expected "HH:MM"'),
        ({"at": "24:00"}, 'expected "HH:MM"'),
        ({"every": "hour", "at": "06:15"}, 'as "00:15"'),
        ({"every": "cron"}, "needs cron"),
        ({"cron": "0 6 * * *"}, "expected every: cron"),
        ({"every": "cron", "cron": "0 6 * *"}, "expected five fields"),
        ({"every": "cron", "cron": "61 6 * * *"}, "expected five fields"),
        ({"every": "cron", "cron": "H 6 * * *"}, "expected five fields"),
        ({"every": "cron", "cron": "0 6 * * 5#2"}, "expected five fields"),
        ({"every": "cron", "cron": "0 6 30 2 *"}, "never comes"),
        ({"start": "2026-13-01"}, "is not a start"),
        ({"start": "2026-11-01T06:00:00Z"}, "carries an offset"),
        ({"start": 20261101}, "is not a start"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_a_reason(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError) as error:
        WindowRule.model_validate({"every": "day", "start": "2026-11-01", **change})
    assert said in str(error.value)


def test_hours_are_refused_where_the_clock_moves_by_half_of_one() -> None:
    # Dagster's own keys depend there on where an iteration begins, so none could be relied on.
    with pytest.raises(ValidationError, match="moves by part of an hour"):
        WindowRule(every="hour", timezone="Australia/Lord_Howe", start=date(2026, 1, 1))
    assert WindowRule(every="day", timezone="Australia/Lord_Howe", start=date(2026, 1, 1)).cron_schedule == "0 0 * * *"
    assert WindowRule(every="hour", timezone="Asia/Kolkata", start=date(2026, 1, 1)).every == "hour"
