"""How parent and child talk: two lengths, a JSON header, raw bytes. No pickle: a child is not to be trusted."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import orjson

LENGTHS = struct.Struct("!II")
"""Header and body length, before every frame."""


def frame(header: Mapping[str, Any], body: bytes) -> bytes:
    """The header and the body as one frame."""
    text = orjson.dumps(header)
    return b"".join((LENGTHS.pack(len(text), len(body)), text, body))
