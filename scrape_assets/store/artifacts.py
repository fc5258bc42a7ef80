"""Raw bytes of attempts: append-only segments of zstd frames, one per worker and partition.

A frame holds a small header (URL, status, content type) and the decoded body. Bytes are synced before the
transaction that points to them begins; what a crash leaves behind the last synced frame is never pointed to.
Failed attempts go to segments of their own, because they are kept for another time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
import zstandard

from scrape_assets import failpoints
from scrape_assets.errors import ScrapeAssetsError

LEVEL = 1
"""zstd's quickest level: on 10 KB pages level 3 saves a few percent of space for twice the time."""

MAX_RECORD_BYTES = 256 * 2**20
"""No record inflates to more; fetches are bounded far below."""


class Place(NamedTuple):
    """Where one record lies: the segment's path below the artifact folder, offset and length in bytes."""

    segment: str
    segment_offset: int
    length: int


class SegmentWriter:
    """Appends records of one partition; nothing counts as stored before `sync` returned."""

    def __init__(self, folder: Path, run_id: str, retailer: str, worker_id: str, *, failed: bool) -> None:
        kind = "failed" if failed else "pages"
        self._name = f"{quote(run_id, safe='@')}/{retailer}/{kind}-{quote(worker_id, safe='')}.zst"
        self._path = folder / self._name
        self._file: int | None = None
        self._offset = 0
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)

    def append(self, header: Mapping[str, Any], body: bytes) -> Place:
        """The record's place; durable after the next `sync`."""
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
            # A segment that a crash left with a torn tail is continued behind it: offsets come from the real end.
            self._offset = os.lseek(self._file, 0, os.SEEK_END)
            for folder in (self._path.parent, *self._path.parent.parents[:3]):
                _sync_folder(folder)  # each may be new, and is named by the one above
        head = orjson.dumps(header)
        frame = self._compressor.compress(len(head).to_bytes(4, "big") + head + body)
        place = Place(self._name, self._offset, len(frame))
        file, view = self._file, memoryview(frame)
        failpoints.reach("K5", first=lambda: os.write(file, view[: len(view) // 2]))
        while view:
            view = view[os.write(file, view) :]
        self._offset += len(frame)
        return place

    def sync(self) -> None:
        """Everything appended so far is on disk."""
        if self._file is not None:
            _sync_data(self._file)

    def close(self) -> None:
        """The file is closed; a later append opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _sync_data(file: int) -> None:
    getattr(os, "fdatasync", os.fsync)(file)  # macOS has only the other


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(folder: Path, place: Place) -> tuple[dict[str, Any], bytes]:
    """One record's header and body; an error that names segment and offset when it cannot be read."""
    try:
        with (folder / place.segment).open("rb") as file:
            file.seek(place.segment_offset)
            record = zstandard.ZstdDecompressor().decompress(file.read(place.length), max_output_size=MAX_RECORD_BYTES)
        size = int.from_bytes(record[:4], "big")
        return orjson.loads(record[4 : 4 + size]), record[4 + size :]
    except (OSError, zstandard.ZstdError, orjson.JSONDecodeError) as error:
        raise ScrapeAssetsError(
            f"artifact in {folder / place.segment} at byte {place.segment_offset} cannot be read: {error}"
        ) from error
