"""What a site tells by whether a page is still what it was."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scrape_assets.rules import discover
from scrape_assets.rules.page import Response
from scrape_assets.rules.revalidation import modified_at, validators

DATE = "Wed, 04 Mar 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, (None, None)),
        ({"etag": '"a"'}, ('"a"', None)),
        ({"etag": 'W/"a-1"', "last-modified": DATE}, ('W/"a-1"', DATE)),
        ({"etag": "a"}, (None, None)),
        ({"etag": '"a", "b"'}, (None, None)),
        ({"etag": '"' + "a" * 300 + '"'}, (None, None)),
        ({"etag": '"a\n"'}, (None, None)),
        ({"last-modified": "0"}, (None, None)),
        ({"last-modified": "recently"}, (None, None)),
        ({"etag": '"a"', "vary": "*"}, (None, None)),
        ({"etag": '"a"', "vary": "accept-encoding"}, ('"a"', None)),
    ],
)
def test_only_what_can_be_sent_back_counts(headers: dict[str, str], found: tuple[str | None, str | None]) -> None:
    assert validators(headers) == found


@pytest.mark.parametrize(
    ("text", "latest"),
    [
        ("2026", datetime(2027, 1, 1, 12, tzinfo=UTC)),
        ("2026-02", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-12-31", datetime(2027, 1, 1, 12, tzinfo=UTC)),
        (" 2026-03-04T10:20Z ", datetime(2026, 3, 4, 10, 21, tzinfo=UTC)),
        ("2026-03-04T10:20:30.5+01:00", datetime(2026, 3, 4, 9, 20, 31, tzinfo=UTC)),
        ("2026-03-04T10:20:30-0500", datetime(2026, 3, 4, 15, 20, 31, tzinfo=UTC)),
        ("2026-03-04T10:20:30", datetime(2026, 3, 4, 22, 20, 31, tzinfo=UTC)),
        ("yesterday", None),
        ("2026-13-04", None),
        ("2026-02-30", None),
        ("9999-12-31", None),
        ("", None),
    ],
)
def test_a_lastmod_means_the_last_moment_that_it_may(text: str, latest: datetime | None) -> None:
    assert modified_at(text) == latest


@pytest.mark.parametrize("trusted", [True, False])
def test_a_sitemap_says_when_its_pages_changed_whatever_comes_first(trusted: bool) -> None:
    body = b"""<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
      <url><loc>https://shop.example/p/1</loc><lastmod>2026-03-04T10:00:00Z</lastmod></url>
      <url><lastmod>2026-03-04T11:00:00Z</lastmod><loc>https://shop.example/p/2</loc></url>
      <url><loc>https://shop.example/p/3</loc></url>
      <url><loc>https://shop.example/p/4</loc><lastmod>soon</lastmod></url></urlset>"""
    page = Response("https://shop.example/s.xml", "https://shop.example/s.xml", 200, {}, body)
    rule = discover.DiscoverRule(mode="sitemap", site="https://shop.example", trust_lastmod=trusted)
    found = discover.read(page, rule, first="https://shop.example/s.xml", depth=0)
    assert isinstance(found, discover.Found)
    assert [item[-1] for item in found.items] == ["1", "2", "3", "4"]
    at = {
        "https://shop.example/p/1": datetime(2026, 3, 4, 10, 0, 1, tzinfo=UTC),
        "https://shop.example/p/2": datetime(2026, 3, 4, 11, 0, 1, tzinfo=UTC),
    }
    assert found.modified == (at if trusted else {})
