"""Collection windows: which period a run stands for, named by Dagster's own partition key.

A window is half-open and kept in UTC; each instant from the first window on belongs to exactly one. The key
is the local time of the window's start, so a day of 23 or 25 hours is one window, the hour that the clock
skips is none, and the second run of the hour that it repeats carries its offset. Dagster's conventions at
the switches are reproduced here, since the state store must know a window without asking Dagster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from croniter import CroniterBadCronError, croniter
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

DAY_FORMAT = "%Y-%m-%d"
TIME_FORMAT = "%Y-%m-%d-%H:%M"

_DAY_KEY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME_KEY = re.compile(r"\d{4}-\d{2}-\d{2}-\d{2}:\d{2}([+-]\d{4})?", re.ASCII)
_SWITCH_HOURS = (1, 2, 3)
_YEARS = range(1900, 9000)
"""Of windows; beyond them lie the ends of the calendar, where a day has no next one."""

_SEARCH_DAYS = 366 * 9
"""The rarest cron that ever fires, 29 February, may rest for eight years."""


def _local_start(value: Any) -> datetime | date:
    wrong = f"{value!r:.60} is not a start; expected a local date or time, as 2026-11-01"
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value) if len(value) <= 10 else datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(wrong) from error
    if not isinstance(value, date):
        raise ValueError(wrong)  # noqa: TRY004, pydantic collects ValueErrors
    if value.year not in _YEARS:
        raise ValueError(f"{value.isoformat()} is no start; expected a year from {_YEARS[0]} to {_YEARS[-1]}")
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise ValueError(
            f"{value.isoformat()} carries an offset; expected a local time without one, as 2026-11-01T06:00"
        )
    return value


class WindowRule(BaseModel):
    """The declaration's `window:`: how time is cut into windows, in which time zone, from when on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: Literal["day", "hour", "cron"] = Field(description="day, hour or cron")
    at: str | None = Field(default=None, description='local time "HH:MM" at which a day begins; "00:MM" for hours')
    cron: str | None = Field(default=None, description='five fields, as "0 6 * * 1-5"')
    timezone: str = Field(default="UTC", description="an IANA name, as Europe/Madrid")
    start: Annotated[datetime | date, BeforeValidator(_local_start)] = Field(
        description="local date or time from which windows exist"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        try:
            _zone(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"timezone {self.timezone!r} is unknown; expected an IANA name, as "
                f"{next(iter(get_close_matches(self.timezone, sorted(available_timezones()), 1)), 'Europe/Madrid')}"
            ) from error
        if self.every == "cron":
            if self.cron is None or self.at is not None:
                raise ValueError('every: cron needs cron, as "0 6 * * 1-5", and no at')
        elif self.cron is not None:
            raise ValueError(f"cron is given, but every is {self.every}; expected every: cron")
        if self.at is not None:
            match = re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", self.at, re.ASCII)
            if match is None:
                raise ValueError(f'at is {self.at!r}; expected "HH:MM", as "06:00"')
            if self.every == "hour" and not self.at.startswith("00:"):
                raise ValueError(f'at is {self.at!r}, but hours begin at a minute; expected "00:MM", as "00:15"')
        cron = _parsed(self.cron_schedule)
        if cron.every_hour and _moves_by_part_of_an_hour(self.timezone, self.start.year):
            raise ValueError(
                f"hourly windows in {self.timezone}, whose clock moves by part of an hour, have no fixed keys;"
                " expected timezone: UTC or windows of a day"
            )
        if next(_ticks(self, self.start_local.date()), None) is None:
            raise ValueError(f"cron {self.cron_schedule!r} never comes")
        return self

    @property
    def cron_schedule(self) -> str:
        """The rule as five cron fields."""
        hour, _, minute = (self.at or "00:00").partition(":")
        match self.every:
            case "day":
                return f"{int(minute)} {int(hour)} * * *"
            case "hour":
                return f"{int(minute)} * * * *"
            case "cron":
                return " ".join((self.cron or "").split())

    @property
    def key_format(self) -> str:
        """How a key is written, for strftime; a repeated hour's second run has its offset appended."""
        return DAY_FORMAT if self.every == "day" else TIME_FORMAT

    @property
    def start_local(self) -> datetime:
        """`start` as a local time without an offset; windows begin at the first boundary at or after it."""
        if isinstance(self.start, datetime):
            return self.start
        return datetime.combine(self.start, time())


def bounds(rule: WindowRule, key: str) -> tuple[datetime, datetime]:
    """The window's begin and end in UTC, the end belonging to the next one.

    Raises ValueError, with what was expected and an example, for a key that names no window of the rule.
    """
    begin = _tick_named(rule, key)
    return begin, _tick_after(rule, begin)


def exists(rule: WindowRule, key: str) -> bool:
    """Whether the key names a window of the rule; the rule may have changed since it did."""
    try:
        bounds(rule, key)
    except ValueError:
        return False
    return True


def promised_at(rule: WindowRule, start: datetime, by: str | float) -> datetime:
    """When consumers count on a version of the window that begins at `start`.

    That is the first local time "HH:MM" at or after the start, or so many seconds after it.
    """
    if not isinstance(by, str):
        return start + timedelta(seconds=by)
    local = _local(rule, start)
    at = datetime.combine(local.date(), time.fromisoformat(by), tzinfo=local.tzinfo)
    if at.astimezone(UTC) < start:
        at = datetime.combine(local.date() + timedelta(days=1), time.fromisoformat(by), tzinfo=local.tzinfo)
    return at.astimezone(UTC)


def key_at(rule: WindowRule, instant: datetime) -> str:
    """The key of the window that the instant belongs to."""
    moment = instant.astimezone(UTC)
    first = _first(rule)
    if moment < first.instant:
        raise ValueError(
            f"{moment:%Y-%m-%dT%H:%M:%SZ} lies before the first window, {first.key},"
            f" which begins {first.instant:%Y-%m-%dT%H:%M:%SZ}; `window.start` names it"
        )
    return _tick_at_or_before(rule, moment).key


def keys_between(rule: WindowRule, start: datetime, end: datetime) -> list[str]:
    """The keys of the windows that begin at or after `start` and before `end`, in order."""
    first = max(start.astimezone(UTC), _first(rule).instant)
    last = end.astimezone(UTC)
    keys: list[str] = []
    for tick in _ticks(rule, _local(rule, first).date() - timedelta(days=1)):
        if tick.instant >= last:
            break
        if tick.instant >= first:
            keys.append(tick.key)
    return keys


def current_key(rule: WindowRule, now: datetime) -> str:
    """The key of the window that is open now; ValueError while the first has not begun."""
    return key_at(rule, now)


class _Tick(NamedTuple):
    """A boundary between two windows: the instant, and the key of the window that begins there."""

    instant: datetime
    key: str


class _Cron(NamedTuple):
    """A cron's fields as sets of numbers; None stands for `*`."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int] | None
    months: frozenset[int] | None
    weekdays: frozenset[int] | None
    every_hour: bool
    plain: bool

    def falls_on(self, day: date) -> bool:
        if self.months is not None and day.month not in self.months:
            return False
        by_day = self.days is None or day.day in self.days
        by_weekday = self.weekdays is None or day.isoweekday() % 7 in self.weekdays
        # As cron has it: of two restrictions either is enough.
        if self.days is not None and self.weekdays is not None:
            return by_day or by_weekday
        return by_day and by_weekday


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(maxsize=256)
def _parsed(schedule: str) -> _Cron:
    wrong = f'cron is {schedule!r}; expected five fields of numbers, "*", ranges and lists, as "0 6 * * 1-5"'
    # Hashed, random and "last" fields are croniter's own and have no counterpart that names a window.
    if len(schedule.split()) != 5 or re.search(r"[#?]|\b[LHR]\b|[LHR]\(", schedule, re.IGNORECASE):
        raise ValueError(wrong)
    try:
        expanded, _ = croniter.expand(schedule)
    except (CroniterBadCronError, ValueError, KeyError) as error:
        raise ValueError(wrong) from error
    fields: list[frozenset[int] | None] = []
    for values in expanded:
        numbers = frozenset(value for value in values if isinstance(value, int))
        if not numbers and list(values) != ["*"]:
            raise ValueError(wrong)
        fields.append(numbers or None)
    minutes, hours, days, months, weekdays = fields
    single = minutes is not None and len(minutes) == 1 and hours is not None and len(hours) == 1 and months is None
    return _Cron(
        tuple(sorted(minutes if minutes is not None else range(60))),
        tuple(sorted(hours if hours is not None else range(24))),
        days,
        months,
        weekdays if weekdays is None else frozenset(day % 7 for day in weekdays),
        every_hour=hours is None,
        plain=single and (days is None or (len(days) == 1 and max(days) <= 28 and weekdays is None)),
    )


def _moves_by_part_of_an_hour(timezone: str, year: int) -> bool:
    zone = _zone(timezone)
    offsets = {
        datetime(year + later, month, 1, tzinfo=zone).utcoffset() for later in range(10) for month in range(1, 13)
    }
    remainders = {offset % timedelta(hours=1) for offset in offsets if offset is not None}
    return len(remainders) > 1


def _local(rule: WindowRule, instant: datetime) -> datetime:
    return instant.astimezone(_zone(rule.timezone))


def _exists(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) == local.replace(tzinfo=None)


def _is_ambiguous(local: datetime) -> bool:
    return _exists(local) and local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()


def _moments(cron: _Cron, local: datetime) -> list[datetime]:
    """The local times that a scheduled one stands for: none, one, or both runs of a repeated hour."""
    if cron.every_hour:
        if not _exists(local):
            return []
        return [local, local.replace(fold=1)] if _is_ambiguous(local) else [local]
    # Dagster looks for a switch between one and four o'clock only; a clock that moves at midnight keeps the
    # wall time, which names the right instant all the same.
    if not _exists(local):
        if local.hour not in _SWITCH_HOURS:
            return [local]
        shift = (local + timedelta(hours=1)).dst() or timedelta()
        return [local.replace(minute=0) + shift]
    if _is_ambiguous(local) and (not cron.plain or local.hour in _SWITCH_HOURS):
        return [local.replace(fold=1)]
    return [local]


@lru_cache(maxsize=1024)
def _ticks_of(rule: WindowRule, day: date) -> tuple[_Tick, ...]:
    """The boundaries of one local day, in order."""
    cron = _parsed(rule.cron_schedule)
    if not cron.falls_on(day):
        return ()
    zone = _zone(rule.timezone)
    found: dict[datetime, _Tick] = {}
    for hour in cron.hours:
        for minute in cron.minutes:
            for local in _moments(cron, datetime.combine(day, time(hour, minute), tzinfo=zone)):
                key = local.strftime(rule.key_format)
                if cron.every_hour and local.fold and _is_ambiguous(local):
                    key = local.strftime(rule.key_format + "%z")
                instant = local.astimezone(UTC)
                found.setdefault(instant, _Tick(instant, key))
    return tuple(found[instant] for instant in sorted(found))


def _ticks(rule: WindowRule, day: date) -> Iterator[_Tick]:
    """All boundaries from a local day on; ends only where the schedule never comes again."""
    empty = 0
    while empty < _SEARCH_DAYS:
        ticks = _ticks_of(rule, day)
        empty = 0 if ticks else empty + 1
        yield from ticks
        if day >= date.max - timedelta(days=1):
            return
        day += timedelta(days=1)


def _tick_after(rule: WindowRule, instant: datetime) -> datetime:
    day = _local(rule, instant).date()
    return next(tick.instant for tick in _ticks(rule, day - timedelta(days=1)) if tick.instant > instant)


def _tick_at_or_before(rule: WindowRule, instant: datetime) -> _Tick:
    day = _local(rule, instant).date() + timedelta(days=1)
    while True:
        for tick in reversed(_ticks_of(rule, day)):
            if tick.instant <= instant:
                return tick
        day -= timedelta(days=1)


@lru_cache(maxsize=256)
def _first(rule: WindowRule) -> _Tick:
    start = rule.start_local.replace(tzinfo=_zone(rule.timezone)).astimezone(UTC)
    day = _local(rule, start).date()
    return next(tick for tick in _ticks(rule, day - timedelta(days=1)) if tick.instant >= start)


def _tick_named(rule: WindowRule, key: str) -> datetime:
    by_day = rule.key_format == DAY_FORMAT
    first = _first(rule)
    form = "YYYY-MM-DD" if by_day else "YYYY-MM-DD-HH:MM"
    if not (_DAY_KEY if by_day else _TIME_KEY).fullmatch(key):
        raise ValueError(f"window {key[:60]!r} is not a key; expected {form}, as {first.key}")
    try:
        day = date.fromisoformat(key[:10])
        if day.year not in _YEARS:
            raise ValueError
    except ValueError as error:
        raise ValueError(
            f"window {key!r} is not a key: there is no such day to collect; expected {form}, as {first.key}"
        ) from error
    ticks = _ticks_of(rule, day)
    named = next((tick.instant for tick in ticks if tick.key == key), None)
    if named is None:
        raise ValueError(
            f"window {key!r} is not a boundary of {rule.cron_schedule!r} in {rule.timezone};"
            f" expected one like {_near(rule, day, key)}"
        )
    if named < first.instant:
        raise ValueError(f"window {key!r} lies before the first one, {first.key}; `window.start` names it")
    return named


def _near(rule: WindowRule, day: date, key: str) -> str:
    """The boundary whose key is closest from above, for a message."""
    following = (tick.key for tick in _ticks(rule, max(day, _first(rule).instant.date())) if tick.key > key)
    return next(following, _first(rule).key)
