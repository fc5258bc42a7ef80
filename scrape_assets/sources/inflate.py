"""Bounded inflation: a compressed body gives at most so many bytes, or a failure that says why not."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from scrape_assets.rules.page import FetchFailure
from scrape_assets.rules.states import FailureClass

_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_WBITS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


class Inflater:
    """Takes a body's raw chunks in order; `failure` is set as soon as it can no longer become a whole body.

    The limit holds for the decoded bytes and for the raw ones, because a stream of empty blocks is endless
    without decoding to anything.
    """

    def __init__(self, coding: str, limit: int) -> None:
        self.failure: FetchFailure | None = None
        self.raw_bytes = 0
        self._coding = coding
        self._limit = limit
        self._parts: list[bytes] = []
        self._decoded = 0
        self._inflate: zlib._Decompress | None = None
        self._take: Callable[[bytes], None] = self._identity
        if coding != "identity":
            if coding in _WBITS:
                self._inflate = zlib.decompressobj(_WBITS[coding])
                self._take = self._compressed
            else:
                self._fail(FailureClass.HTTP_OTHER, f"content-encoding {coding[:60]!r}, asked for gzip or identity")

    def feed(self, chunk: bytes) -> None:
        """The chunk's bytes are decoded and kept, unless the body failed."""
        self.raw_bytes += len(chunk)
        self._take(chunk)
        if self.raw_bytes > self._limit and self.failure is None:
            self._too_large()

    def finish(self) -> bytes | FetchFailure:
        """The whole body, once its last chunk was fed; truncated when a compressed stream has no end."""
        if self.failure is not None:
            return self.failure
        if self._inflate is not None and self.raw_bytes and not self._inflate.eof:
            self._fail(
                FailureClass.TRUNCATED,
                f"the {self._coding} stream stopped before its end, after {self.raw_bytes} bytes",
            )
            return self.finish()
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _identity(self, chunk: bytes) -> None:
        if self.raw_bytes <= self._limit:
            self._parts.append(chunk)

    def _compressed(self, chunk: bytes) -> None:
        inflate = self._inflate
        while chunk and inflate is not None and self.failure is None:
            if inflate.eof:
                # RFC 1952 lets members follow one another; anything else after the end is padding.
                if "deflate" in self._coding or not chunk.startswith(b"\x1f\x8b"[: len(chunk)]):
                    return
                inflate = self._inflate = zlib.decompressobj(_GZIP)
            try:
                decoded = inflate.decompress(chunk, self._limit - self._decoded + 1)
            except zlib.error as error:
                # The library's words are all that tells a body of another kind from one that was damaged.
                other_kind = any(word in str(error) for word in ("header", "method", "window"))
                if other_kind and self._coding == "deflate" and self.raw_bytes == len(chunk):
                    # Servers send the bare stream under this name as often as the wrapped one.
                    inflate = self._inflate = zlib.decompressobj(_RAW)
                    self._coding = "raw deflate"
                    continue
                self._fail(
                    FailureClass.BAD_ENCODING
                    if other_kind or self._coding == "raw deflate"
                    else FailureClass.TRUNCATED,
                    f"the body is declared {self._coding} and cannot be inflated: {error}",
                )
                return
            self._decoded += len(decoded)
            if self._decoded > self._limit:
                self._too_large()
                return
            if decoded:
                self._parts.append(decoded)
            chunk = inflate.unused_data if inflate.eof else inflate.unconsumed_tail

    def _too_large(self) -> None:
        self._fail(FailureClass.TOO_LARGE, f"the body is over {self._limit} bytes decoded")

    def _fail(self, failure_class: FailureClass, reason: str) -> None:
        self._parts.clear()
        self._take = _drop
        self.failure = FetchFailure(failure_class, reason)


def _drop(chunk: bytes) -> None:
    """What follows a failure is of no use."""


def inflate(data: bytes, coding: str, limit: int) -> bytes | FetchFailure:
    """The decoded bytes of one whole body, at most `limit` of them."""
    inflater = Inflater(coding, limit)
    inflater.feed(data)
    return inflater.finish()
