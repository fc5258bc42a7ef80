"""Delivered folders: exact values in each format, a manifest that names what lies there, and nothing by halves."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from scrape_assets.sinks import files
from scrape_assets.sinks.files import Format, Record
from scrape_assets.sinks.outcome import Applied, NotApplied, Shipment

FORMATS: tuple[Format, ...] = ("parquet", "csv", "jsonl")
WINDOW = "2026-10-25-02:00+0100"
FOLDER = "prices/2026-10-25-02%3A00%2B0100/v1"
KEY = "5d5b4ab9-5b62-4f54-9d5a-8e3d7cf4f2c1@lake"
COLUMNS = ("window", "observed_at", "gtin", "price", "list_price", "tags", "review_count")
SEEN = datetime(2026, 10, 25, 1, 30, 0, 250_000, tzinfo=UTC)
FULL = {
    "window": WINDOW,
    "observed_at": SEEN,
    "gtin": "0012345",
    "price": "10.00",
    "list_price": "1234567890.10",
    "tags": ['größe "M"', "a, b"],
    "review_count": 12,
}
EMPTY = {"window": WINDOW, "observed_at": SEEN, "gtin": None}
TAGS = '["größe \\"M\\"", "a, b"]'
EXPECTED: dict[str, list[dict[str, Any]]] = {
    "parquet": [
        {**FULL, "tags": TAGS, "review_count": "12"},
        {**dict.fromkeys(COLUMNS), **EMPTY},
    ],
    "csv": [
        {**FULL, "tags": TAGS, "review_count": "12", "observed_at": SEEN.isoformat()},
        {**dict.fromkeys(COLUMNS, ""), "window": WINDOW, "observed_at": SEEN.isoformat()},
    ],
    "jsonl": [
        {**FULL, "observed_at": SEEN.isoformat()},
        {"window": WINDOW, "observed_at": SEEN.isoformat()},
    ],
}


def event(version: int = 1) -> dict[str, Any]:
    return {
        "event_id": KEY.partition("@")[0],
        "dataset": "prices",
        "window": WINDOW,
        "window_start": "2026-10-25T01:00:00+00:00",
        "window_end": "2026-10-25T02:00:00+00:00",
        "dataset_version": version,
        "supersedes_version": None,
        "changes": {"new": 2, "corrected": 0, "withdrawn": 0},
        "gaps": {},
        "held": 0,
        "unverified": {},
        "content_hash": "ab" * 32,
    }


def send(
    path: Path, form: Format, rows: Iterator[Record] | list[Record], columns: tuple[str, ...] = COLUMNS, **more: int
) -> dict[str, Any]:
    sent = files.send(path, form, shipment(rows, columns, **more))
    assert isinstance(sent, Applied), sent
    return sent.receipt


def shipment(
    rows: Iterator[Record] | list[Record] = (),
    columns: tuple[str, ...] = COLUMNS,
    key: str = KEY,
    **more: int,
) -> Shipment:
    its = event(**more)
    return Shipment(
        its["event_id"], "dataset.published", "2026-10-25T03:00:00+00:00", key, its, "full", columns,
        lambda: iter(rows), lambda: iter(()),
    )  # fmt: skip


def find(path: Path, version: int = 1, key: str = KEY) -> dict[str, Any] | None:
    found = files.find(path, shipment(key=key, version=version))
    return found.receipt if isinstance(found, Applied) else None


def read(form: Format, data: bytes) -> list[dict[str, Any]]:
    if form == "parquet":
        return pq.ParquetFile(io.BytesIO(data)).read().to_pylist()
    if form == "csv":
        return list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    return [json.loads(line) for line in data.decode().splitlines()]


def below(path: Path) -> dict[str, bytes]:
    """Every file, hidden ones too, by its relative name."""
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("form", FORMATS)
def test_values_arrive_exactly_and_what_is_null_stays_null(tmp_path: Path, form: Format) -> None:
    send(tmp_path, form, [FULL, EMPTY])
    assert read(form, (tmp_path / FOLDER / f"part-0000.{form}").read_bytes()) == EXPECTED[form]


@pytest.mark.parametrize("form", FORMATS)
def test_more_rows_than_fit_a_batch_all_arrive_in_order(
    tmp_path: Path, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 2)
    assert send(tmp_path, form, [{**FULL, "gtin": f"000{i}"} for i in range(5)])["rows"] == 5
    rows = read(form, (tmp_path / FOLDER / f"part-0000.{form}").read_bytes())
    assert [row["gtin"] for row in rows] == ["0000", "0001", "0002", "0003", "0004"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_version_lies_in_a_folder_whose_name_can_be_read_back(tmp_path: Path, form: Format) -> None:
    receipt = send(tmp_path, form, [FULL])
    assert below(tmp_path).keys() == {f"{FOLDER}/part-0000.{form}", f"{FOLDER}/manifest.json"}
    folder = files.folder_of(tmp_path, event())
    assert folder == tmp_path / FOLDER
    assert unquote(folder.parent.name) == WINDOW
    assert receipt["manifest"] == str(folder / "manifest.json")


@pytest.mark.parametrize("form", FORMATS)
def test_the_manifest_says_what_the_file_is(tmp_path: Path, form: Format) -> None:
    receipt = send(tmp_path, form, [FULL, EMPTY])
    data = (tmp_path / FOLDER / f"part-0000.{form}").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    manifest = json.loads((tmp_path / FOLDER / "manifest.json").read_text())
    assert manifest == {
        **event(),
        "payload": "full",
        "idempotency_key": KEY,
        "rows": 2,
        "files": [{"name": f"part-0000.{form}", "bytes": len(data), "sha256": digest, "rows": 2}],
    }
    assert (receipt["sha256"], receipt["rows"]) == (digest, 2)


@pytest.mark.parametrize("form", FORMATS)
def test_a_version_without_rows_is_whole_too(tmp_path: Path, form: Format) -> None:
    receipt = send(tmp_path, form, [])
    assert receipt["rows"] == 0
    assert read(form, (tmp_path / FOLDER / f"part-0000.{form}").read_bytes()) == []
    assert find(tmp_path) == receipt


def cut_short() -> Iterator[Record]:
    yield FULL
    raise ConnectionError("the rows ended early")


@pytest.mark.parametrize("form", FORMATS)
def test_rows_that_end_early_leave_nothing_and_what_was_there_as_it_was(tmp_path: Path, form: Format) -> None:
    receipt = send(tmp_path, form, [FULL, EMPTY])
    before = below(tmp_path)
    for version in (1, 2):
        sent = files.send(tmp_path, form, shipment(cut_short(), version=version))
        assert isinstance(sent, NotApplied)
        assert "ended early" in sent.error
    assert below(tmp_path) == before
    assert find(tmp_path) == receipt
    assert find(tmp_path, 2) is None


@pytest.mark.parametrize("form", FORMATS)
def test_sending_again_writes_the_same_and_gives_the_same_receipt(tmp_path: Path, form: Format) -> None:
    receipt = send(tmp_path, form, [FULL, EMPTY])
    before = below(tmp_path)
    assert send(tmp_path, form, [FULL, EMPTY]) == receipt
    assert below(tmp_path) == before


@pytest.mark.parametrize("form", FORMATS)
def test_an_earlier_delivery_is_found_by_its_key_while_its_files_are_whole(tmp_path: Path, form: Format) -> None:
    assert find(tmp_path) is None
    receipt = send(tmp_path, form, [FULL, EMPTY])
    part = tmp_path / FOLDER / f"part-0000.{form}"
    whole = part.read_bytes()
    assert find(tmp_path) == receipt
    assert find(tmp_path, key=KEY.replace("lake", "pond")) is None
    assert find(tmp_path / "elsewhere") is None
    middle = len(whole) // 2
    part.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    assert find(tmp_path) is None
    part.write_bytes(whole[:-1])
    assert find(tmp_path) is None
    part.unlink()
    assert find(tmp_path) is None
    part.write_bytes(whole)
    assert find(tmp_path) == receipt


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"idempotency_key": 1}', json.dumps({"idempotency_key": KEY})]
)
def test_a_manifest_that_says_nothing_usable_is_no_delivery(tmp_path: Path, text: str) -> None:
    send(tmp_path, "jsonl", [FULL])
    (tmp_path / FOLDER / "manifest.json").write_text(text)
    assert find(tmp_path) is None


CELLS = {
    "=1+1": "'=1+1",
    "@x": "'@x",
    "+a": "'+a",
    "+1+1": "'+1+1",
    "-a": "'-a",
    "-1+1": "'-1+1",
    "\t=1": "'\t=1",
    " =1": "' =1",
    "\uff1d1": "'\uff1d1",
    " -5": " -5",
    "-5": "-5",
    "+5.20": "+5.20",
    "10.00": "10.00",
    "a=1": "a=1",
}


def test_csv_holds_nothing_that_a_spreadsheet_runs_and_leaves_numbers_alone(tmp_path: Path) -> None:
    send(tmp_path, "csv", [{"name": cell} for cell in CELLS], columns=("name",))
    rows = read("csv", (tmp_path / FOLDER / "part-0000.csv").read_bytes())
    assert [row["name"] for row in rows] == list(CELLS.values())
    assert files.neutral("\r=1") == "'\r=1"
    assert files.neutral("\n=1") == "'\n=1"


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_only_csv_is_written_for_spreadsheets(tmp_path: Path, form: Format) -> None:
    send(tmp_path, form, [{"name": cell} for cell in CELLS], columns=("name",))
    rows = read(form, (tmp_path / FOLDER / f"part-0000.{form}").read_bytes())
    assert [row["name"] for row in rows] == list(CELLS)


def test_a_lone_carriage_return_begins_no_row_of_a_csv(tmp_path: Path) -> None:
    send(tmp_path, "csv", [{**FULL, "gtin": "x\r=1+1"}])
    data = (tmp_path / FOLDER / "part-0000.csv").read_bytes()
    assert b'"x\r=1+1"' in data
    assert [row["gtin"] for row in read("csv", data)] == ["x\r=1+1"]
