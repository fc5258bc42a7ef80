"""A stored page is the one that was stored, or none at all."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.flow import stored
from scrape_assets.store.artifacts import Place, SegmentWriter

BODY = b"<html>a page</html>"
SHA256 = hashlib.sha256(BODY).hexdigest()
HEADER: dict[str, Any] = {
    "url": "http://shop.example/final",
    "redirects": ["http://shop.example/p"],
    "status": 200,
    "content_type": "text/html",
    "observed_at": "2026-03-05T12:00:00+00:00",
}


def written(folder: Path, header: dict[str, Any], body: bytes = BODY) -> Place:
    writer = SegmentWriter(folder, "prices@2026-03-05", "north", "w", failed=False)
    place = writer.append(header, body)
    writer.sync()
    writer.close()
    return place


def test_it_is_what_the_site_answered_then(tmp_path: Path) -> None:
    found = stored.page(tmp_path, written(tmp_path, HEADER), SHA256, "http://shop.example/p")
    assert found is not None
    answer, observed_at = found
    assert (answer.url, answer.final_url, answer.status, answer.body) == (
        "http://shop.example/p", "http://shop.example/final", 200, BODY,
    )  # fmt: skip
    assert (answer.headers, answer.redirects) == ({"content-type": "text/html"}, ("http://shop.example/p",))
    assert observed_at.isoformat() == HEADER["observed_at"]


@pytest.mark.parametrize(
    "header", [{}, {**HEADER, "status": None}, {**HEADER, "observed_at": "then"}, {"url": "x"}], ids=str
)
def test_a_record_without_what_it_needs_is_none(tmp_path: Path, header: dict[str, Any]) -> None:
    assert stored.page(tmp_path, written(tmp_path, header), SHA256, "http://shop.example/p") is None


def test_bytes_of_another_page_are_none(tmp_path: Path) -> None:
    place = written(tmp_path, HEADER, b"another page")
    assert stored.page(tmp_path, place, SHA256, "http://shop.example/p") is None


def test_a_segment_that_is_gone_cut_or_spoilt_is_none(tmp_path: Path) -> None:
    place = written(tmp_path, HEADER)
    file = tmp_path / place.segment
    whole = file.read_bytes()
    for spoilt in (whole[:10], bytes([whole[0] ^ 255]) + whole[1:], b""):
        file.write_bytes(spoilt)
        assert stored.page(tmp_path, place, SHA256, "http://shop.example/p") is None
    file.unlink()
    assert stored.page(tmp_path, place, SHA256, "http://shop.example/p") is None
