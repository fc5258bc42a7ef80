"""Windows are Dagster's own: the same keys and the same bounds, through both switches of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.partitions.utils.time_window import TimeWindow
from pydantic import ValidationError

from scrape_assets.rules import windows
from scrape_assets.rules.windows import WindowRule

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
# Clocks that move at midnight, by less than the usual, the other way round, or stand between the hours.
ODD_ZONES = ("America/Havana", "America/Santiago", "Europe/Dublin", "Asia/Kathmandu", "Africa/Casablanca")
DAYS = (None, "00:30", "01:45", "02:00", "02:15", "02:30", "03:00", "06:00", "23:30")
HOURS = (None, "00:15", "00:45")
CRONS = (
    "0 0 * * *",
    "30 2,3 * * *",
    "0,45 2,3 * * *",
    "*/15 * * * *",
    "*/30 1-3 * * *",
    "15 0,23 * * *",
    "0 */6 * * 1-5",
    "30 2 * * 0",
    "0 6 * * 7",
    "0 6 1 * *",
    "0 6 31 * *",
    "30 1 29 * *",
    "0 6 1,15 * 1",
    "0 2 */2 * 0",
    "0 12 * 3,10 *",
)


def dagsters(rule: WindowRule) -> dg.TimeWindowPartitionsDefinition:
    hour, minute = (int(part) for part in (rule.at or "00:00").split(":"))
    start = rule.start_local
    match rule.every:
        case "day":
            return dg.DailyPartitionsDefinition(start, timezone=rule.timezone, hour_offset=hour, minute_offset=minute)
        case "hour":
            return dg.HourlyPartitionsDefinition(start, timezone=rule.timezone, minute_offset=minute)
        case "cron":
            return dg.TimeWindowPartitionsDefinition(
                start=start, timezone=rule.timezone, fmt=windows.TIME_FORMAT, cron_schedule=rule.cron_schedule
            )


def switches(zone: str, years: range) -> list[date]:
    """The days on which the zone's clock moves."""
    found = []
    for day in (date(year, 1, 1) + timedelta(days=n) for year in years for n in range(365)):
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
        if noon.utcoffset() != (noon - timedelta(days=1)).utcoffset():
            found.append(day)
    return found


def assert_same(rule: WindowRule, start: datetime, end: datetime) -> None:
    theirs = dagsters(rule)
    keys = windows.keys_between(rule, start, end)
    assert keys == list(theirs.get_partition_keys_in_time_window(TimeWindow(start, end)))
    for key in islice(keys, 0, None, max(1, len(keys) // 60)):
        window = theirs.time_window_for_partition_key(key)
        assert windows.bounds(rule, key) == (window.start.astimezone(UTC), window.end.astimezone(UTC))
        assert windows.key_at(rule, window.start) == key
        assert windows.key_at(rule, window.end.astimezone(UTC) - timedelta(microseconds=1)) == key


@pytest.mark.parametrize("at", DAYS)
@pytest.mark.parametrize("zone", ZONES)
def test_days_are_dagsters_days_over_years(zone: str, at: str | None) -> None:
    rule = WindowRule(every="day", at=at, timezone=zone, start=date(2025, 1, 1))
    zoned = ZoneInfo(zone)
    assert_same(rule, datetime(2025, 1, 1, tzinfo=zoned), datetime(2028, 1, 1, tzinfo=zoned))


@pytest.mark.parametrize("at", HOURS)
@pytest.mark.parametrize("zone", [zone for zone in (*ZONES, *ODD_ZONES) if zone != "Australia/Lord_Howe"])
def test_hours_are_dagsters_hours_around_every_switch(zone: str, at: str | None) -> None:
    rule = WindowRule(every="hour", at=at, timezone=zone, start=date(2025, 1, 1))
    days = switches(zone, range(2025, 2029)) or [date(2026, 3, 29)]
    for day in days:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
        assert_same(rule, noon - timedelta(days=2), noon + timedelta(days=1))


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize("zone", (*ZONES, *ODD_ZONES))
def test_cron_windows_are_dagsters_around_every_switch(zone: str, cron: str) -> None:
    if cron == "*/15 * * * *" and zone == "Australia/Lord_Howe":
        pytest.skip("refused: see the test of half-hour switches")
    rule = WindowRule(every="cron", cron=cron, timezone=zone, start=date(2025, 1, 1))
    days = switches(zone, range(2026, 2028)) or [date(2026, 3, 29)]
    width = 1 if "/15" in cron else 40
    for day in days:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
        assert_same(rule, noon - timedelta(days=width), noon + timedelta(days=width))


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
        ({"every": "day"}, "2026-13-01", "window '2026-13-01' is not a key; expected YYYY-MM-DD, as 2026-11-01"),
        ({"every": "day"}, "2026-11-1", "expected YYYY-MM-DD"),
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
