"""Whether a page is still what it was: what sites tell by, and how far that is believed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from scrape_assets.rules.retry import http_date

MAX_ETAG = 256

# RFC 9110, 8.8.3, without what no header may hold.
_ETAG = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_LASTMOD = re.compile(
    r"(?P<year>\d{4})(-(?P<month>\d\d)(-(?P<day>\d\d)(T(?P<hour>\d\d):(?P<minute>\d\d)(:(?P<second>\d\d)(\.\d+)?)?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)?)?)?)?",
    re.IGNORECASE,
)

ANYWHERE_ON_EARTH = timedelta(hours=12)
"""How much later than in Greenwich a day, or a time without a zone, may end."""


def validators(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The ETag and the Last-Modified of an answer, where they are such and speak of every asker's page.

    >>> validators({"etag": '"a1"', "last-modified": "yesterday"})
    ('"a1"', None)
    """
    if headers.get("vary", "").strip() == "*":
        return None, None
    etag, modified = headers.get("etag", "").strip(), headers.get("last-modified", "").strip()
    return (
        etag if len(etag) <= MAX_ETAG and _ETAG.fullmatch(etag) else None,
        modified if len(modified) <= MAX_ETAG and http_date(modified) is not None else None,
    )


def modified_at(text: str) -> datetime | None:
    """The last moment that a sitemap's `lastmod` may mean (W3C datetime); None where it is none.

    >>> modified_at("2026-03-04"), modified_at("2026-03-04T10:00:00+02:00")
    (datetime.datetime(2026, 3, 5, 12, 0, tzinfo=datetime.timezone.utc), \
datetime.datetime(2026, 3, 4, 8, 0, 1, tzinfo=datetime.timezone.utc))
    """
    found = _LASTMOD.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second = (
        int(found[name]) if found[name] else None for name in ("year", "month", "day", "hour", "minute", "second")
    )
    assert year is not None
    try:
        start = datetime(year, month or 1, day or 1, hour or 0, minute or 0, second or 0, tzinfo=UTC)
        if month is None:
            end = start.replace(year=year + 1)
        elif day is None:
            end = (start + timedelta(days=31)).replace(day=1)
        elif hour is None:
            end = start + timedelta(days=1)
        else:
            end = start + (timedelta(minutes=1) if second is None else timedelta(seconds=1))
        if hour is None or found["zone"] is None:
            return end + ANYWHERE_ON_EARTH
        return end - _offset(found["zone"])
    except (ValueError, OverflowError):
        return None


def _offset(zone: str) -> timedelta:
    if zone.upper() == "Z":
        return timedelta(0)
    sign = -1 if zone[0] == "-" else 1
    return sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
