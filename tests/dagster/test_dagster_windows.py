"""Windows are Dagster's own: the same keys and the same bounds, through both switches of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.partitions.utils.time_window import TimeWindow

from scrape_assets.rules import windows
from scrape_assets.rules.windows import WindowRule

pytestmark = pytest.mark.slow  # imports Dagster and walks years of its partitions

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
    contradictions = compared = 0
    for number in range(0, len(keys), max(1, len(keys) // 15)):
        begin, end = windows.bounds(rule, keys[number])
        assert windows.key_at(rule, begin) == keys[number]
        assert windows.key_at(rule, end - timedelta(microseconds=1)) == keys[number]
        window = theirs.time_window_for_partition_key(keys[number])
        before = [theirs.time_window_for_partition_key(key).end for key in keys[:number][-1:]]
        after = [theirs.time_window_for_partition_key(key).start for key in keys[number + 1 :][:1]]
        assert [windows.bounds(rule, key)[0] for key in keys[number + 1 :][:1]] in ([], [end])
        if before in ([], [window.start]) and after in ([], [window.end]):
            assert (begin, end) == (window.start.astimezone(UTC), window.end.astimezone(UTC))
            compared += 1
        else:
            contradictions += 1
    assert compared or not keys
    # Around a switch Dagster gives some crons two windows for one period: there it cannot be followed.
    assert contradictions <= 3


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
    days = switches(zone, range(2026, 2028)) or [date(2026, 3, 29)]
    for day in days:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
        assert_same(rule, noon - timedelta(days=1), noon + timedelta(days=1))


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize("zone", (*ZONES, *ODD_ZONES))
def test_cron_windows_are_dagsters_around_every_switch(zone: str, cron: str) -> None:
    if cron == "*/15 * * * *" and zone == "Australia/Lord_Howe":
        pytest.skip("refused: see the test of half-hour switches")
    rule = WindowRule(every="cron", cron=cron, timezone=zone, start=date(2025, 1, 1))
    days = switches(zone, range(2026, 2027)) or [date(2026, 3, 29)]
    # What comes a few times a month needs a wider view than what comes every day.
    width = 2 if cron.endswith("* * *") else 35
    for day in days:
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
        assert_same(rule, noon - timedelta(days=width), noon + timedelta(days=width))
