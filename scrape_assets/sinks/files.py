"""Delivery to a folder: one directory per version, the data files first, `manifest.json` last.

    <path>/<dataset>/<window>/v<version>/part-0000.parquet
    <path>/<dataset>/<window>/v<version>/manifest.json
    <path>/<dataset>/<window>/late.json                     when the window has no version in time

Every file is written whole under another name, synced and renamed. A reader that waits for the manifest never
sees half a version, and the manifest names each file's SHA-256. Sending again writes the same content again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO
from urllib.parse import quote

from scrape_assets import failpoints
from scrape_assets.sinks.outcome import LATE, Applied, Found, NotApplied, Record, Sent, Shipment

Format = Literal["parquet", "csv", "jsonl"]

BATCH_ROWS = 20_000
"""Rows held at a time: a Parquet row group, whatever the size of the version."""

LEFTOVER_SECONDS = 3600.0
"""After which a half-written file is nobody's any more."""

MANIFEST = "manifest.json"
LATE_FILE = "late.json"
"""Beside the versions of a window: it was promised by then, and there was none."""

TIMES = ("observed_at", "known_at")


def folder_of(path: Path, event: Mapping[str, Any]) -> Path:
    """Where one version lies; what might not be a file name is percent-encoded, reversibly."""
    return _window(path, event) / f"v{event['dataset_version']}"


def _window(path: Path, event: Mapping[str, Any]) -> Path:
    return path / quote(event["dataset"], safe="") / quote(event["window"], safe="")


def send(path: Path, form: Format, shipment: Shipment) -> Sent:
    """The version lies in its folder, complete; or nothing half-written is visible.

    The receipt is the manifest's path and what it says. That a window is late is said beside its versions.
    """
    try:
        if shipment.event_type == LATE:
            return Applied(_say_late(path, shipment))
        return Applied(_send(path, form, shipment))
    except (OSError, ValueError, TypeError) as error:
        # The folder's fault, or that of a value that the format cannot hold.
        return NotApplied(str(error))


def _send(path: Path, form: Format, shipment: Shipment) -> dict[str, Any]:
    event = shipment.event
    folder = folder_of(path, event)
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"part-0000.{form}"
    for left in folder.glob(f".{part.name}.*"):
        # Of a writer that was killed; one that still writes is younger.
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > LEFTOVER_SECONDS:
                left.unlink()
    counted = _Counting(shipment.rows())
    digest, size = _replace(part, lambda file: write(file, form, shipment.columns, counted))
    manifest = {
        **{
            key: event.get(key)
            for key in (
                *("event_id", "dataset", "window", "window_start", "window_end", "dataset_version"),
                *("supersedes_version", "changes", "gaps", "held", "unverified"),
            )
        },
        "payload": shipment.payload,
        "idempotency_key": shipment.idempotency_key,
        "rows": counted.count,
        "content_hash": event["content_hash"],
        "files": [{"name": part.name, "bytes": size, "sha256": digest, "rows": counted.count}],
    }
    text = (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
    _replace(folder / MANIFEST, lambda file: _write(file, text))
    failpoints.reach("K18")
    return {"manifest": str(folder / MANIFEST), "sha256": digest, "rows": counted.count}


def _say_late(path: Path, shipment: Shipment) -> dict[str, Any]:
    folder = _window(path, shipment.event)
    folder.mkdir(parents=True, exist_ok=True)
    said = {**shipment.event, "idempotency_key": shipment.idempotency_key}
    text = (json.dumps(said, indent=2, sort_keys=True) + "\n").encode()
    digest, _ = _replace(folder / LATE_FILE, lambda file: _write(file, text))
    return {"manifest": str(folder / LATE_FILE), "sha256": digest, "rows": 0}


def find(path: Path, shipment: Shipment) -> Found:
    """Whether an earlier delivery under this key is there, its files verified."""
    late = shipment.event_type == LATE
    file = _window(path, shipment.event) / LATE_FILE if late else folder_of(path, shipment.event) / MANIFEST
    absent = NotApplied(f"{file} does not hold it")
    try:
        manifest = json.loads(file.read_text())
        if manifest["idempotency_key"] != shipment.idempotency_key:
            return absent
        if late:
            return Applied({"manifest": str(file), "sha256": None, "rows": 0})
        for part in manifest["files"]:
            with (file.parent / part["name"]).open("rb") as data:
                if hashlib.file_digest(data, "sha256").hexdigest() != part["sha256"]:
                    return absent
        return Applied({"manifest": str(file), "sha256": manifest["files"][0]["sha256"], "rows": manifest["rows"]})
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return absent


def write(file: BinaryIO, form: Format, columns: Sequence[str], rows: Iterator[Record]) -> None:
    """The rows in that format, however many they are."""
    writer: dict[Format, Callable[[BinaryIO, Sequence[str], Iterator[Record]], None]] = {
        "parquet": _parquet,
        "csv": _csv,
        "jsonl": _jsonl,
    }
    writer[form](file, columns, rows)


def replace(target: Path, form: Format, columns: Sequence[str], rows: Iterator[Record]) -> None:
    """The file holds the rows, whole, or what it held before."""
    _replace(target, lambda file: write(file, form, columns, rows))


def _write(file: BinaryIO, text: bytes) -> None:
    file.write(text)


class _Counting:
    """An iterator that knows how many items it gave."""

    def __init__(self, rows: Iterator[Record]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        row = next(self._rows)
        self.count += 1
        return row


def _replace(target: Path, write: Callable[[BinaryIO], None]) -> tuple[str, int]:
    """The target holds all that `write` wrote, durably, or what it held before; returns SHA-256 and size."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        Path(name).chmod(0o644)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return digest, size


def _batches(rows: Iterator[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _parquet(file: BinaryIO, columns: Sequence[str], rows: Iterator[Record]) -> None:
    # Only this format needs it, and it takes its time to import.
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    # Money and every other field stay text, exactly as accepted; what is ours has a type of its own.
    types = {"unverified": pa.bool_(), **dict.fromkeys(TIMES, pa.timestamp("us", tz="UTC"))}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            arrays = [
                pa.array([row.get(name) if name in types else _text(row.get(name)) for row in batch], type=field.type)
                for name, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def _csv(file: BinaryIO, columns: Sequence[str], rows: Iterator[Record]) -> None:
    with _AsText(file) as text:
        # RFC 4180; and only a character of the line's end is sure to be quoted: Python before 3.11.9 left a lone
        # carriage return bare, which ends the line for a spreadsheet and begins another cell.
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(
                ["" if row.get(name) is None else neutral(_text(_plain(row[name])) or "") for name in columns]
            )


def neutral(text: str) -> str:
    """Text that a spreadsheet will not run as a formula: a leading = + - @, tab or line end gets an apostrophe.

    Plain numbers keep their sign. Space before such a sign does not hide it, and a full-width one counts as well.
    """
    first = text.lstrip()[:1]
    risky = text[:1] in ("\t", "\r", "\n") or first in ("=", "@", "\uff1d", "\uff20", "\uff0b", "\uff0d")
    if risky or (first in ("+", "-") and not _is_number(text)):
        return "'" + text
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _jsonl(file: BinaryIO, columns: Sequence[str], rows: Iterator[Record]) -> None:
    for row in rows:
        record = {name: _plain(row[name]) for name in columns if row.get(name) is not None}
        file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")


class _AsText:
    """The binary file as text for the csv module, left open when done."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __enter__(self) -> TextIO:
        self._text = io.TextIOWrapper(self._file, encoding="utf-8", newline="", write_through=True)
        return self._text

    def __exit__(self, *_: object) -> None:
        self._text.detach()
