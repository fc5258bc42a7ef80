"""Identity: who a run, a task, an entity and an observation are. No clock, no randomness, no version.

Every key is made from text parts over one unambiguous encoding (a compact JSON array), so that
("a", "bc") and ("ab", "c") differ. Keys that index a table are 16 bytes of BLAKE2b as a UUID: a hostile
4,000-character URL is an attribute, never an index key.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson

ENTITY_KEY_BYTES = 512
"""A longer entity key is replaced by its hash (protocol, Identity)."""


PLAIN_EXPONENT = 1000
"""A number of more digits than this is hostile: written out, `1e999999999` would fill the memory."""


def encode(parts: Sequence[str]) -> bytes:
    """The parts as one unambiguous byte string, Unicode in form NFC; ValueError for text that no encoding has."""
    return _dumps([unicodedata.normalize("NFC", part) for part in parts])


def _dumps(value: Any, option: int = 0) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"the value has no JSON form: {error}") from error


def _uuid(kind: bytes, parts: Sequence[str]) -> UUID:
    return UUID(bytes=hashlib.blake2b(encode(parts), digest_size=16, person=kind).digest())


def run_id(dataset_id: str, collection_window: str) -> str:
    """One intended collection: `prices@2026-11-20`."""
    return f"{dataset_id}@{collection_window}"


def task_key(
    dataset_id: str, retailer: str, context: str, page_type: str, canonical_url: str, collection_window: str
) -> UUID:
    """The page in its window; the same for every attempt and every extractor version."""
    return _uuid(b"task", (dataset_id, retailer, context, page_type, canonical_url, collection_window))


def pages_of(dataset_id: str, retailer: str, fetch: Mapping[str, Any]) -> str:
    """All pages that one dataset asks one retailer for in this way, in whatever window; `scrape.page_key` goes on.

    `fetch` is what of the manifest decides which page a site gives.
    """
    return payload_hash({"dataset": dataset_id, "retailer": retailer, "fetch": fetch})


def entity_key(retailer: str, parts: Sequence[str]) -> str:
    """The real thing behind a row: the retailer and the source's own ids, readable; hashed when over 512 bytes."""
    encoded = encode((retailer, *parts))
    if len(encoded) > ENTITY_KEY_BYTES:
        # An object where ids stand: no id of a source, however chosen, can spell another one's hash.
        encoded = _dumps([retailer, {"blake2b": hashlib.blake2b(encoded, digest_size=16).hexdigest()}])
    return encoded.decode()


def observation_key(dataset_id: str, entity: str, context: str, collection_window: str) -> UUID:
    """The entity's state in one window and context."""
    return _uuid(b"observation", (dataset_id, entity, context, collection_window))


def plain(number: Decimal) -> str:
    """The number as a plain decimal string, trailing zeros dropped: 10.0 and 10.00 are both `10`.

    Exact at any length. ValueError for NaN, infinity and numbers of absurd size.

    >>> plain(Decimal("10.00")), plain(Decimal("1E+2")), plain(Decimal("0.50")), plain(Decimal("-0.0"))
    ('10', '100', '0.5', '0')
    """
    if not number.is_finite() or (number and abs(number.adjusted()) > PLAIN_EXPONENT):
        raise ValueError("the number is not finite, or too large or small to be written out")
    if not number:
        return "0"
    # Not Decimal.normalize(), which rounds to the context's 28 digits.
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _canonical(value: Any) -> Any:
    match value:
        case Decimal():
            return plain(value)
        case bool() | None:
            return value
        case int() | float():
            # As jsonb gives it back: 1e16 becomes an integer there, and -0.0 loses its sign.
            return orjson.Fragment(plain(Decimal(repr(value))))
        case str():
            return unicodedata.normalize("NFC", value)
        case Mapping():
            return {key: _canonical(item) for key, item in value.items()}
        case list() | tuple():
            return [_canonical(item) for item in value]
        case _:
            return value


def payload_hash(payload: Mapping[str, Any]) -> str:
    """32 hex digits over the canonical payload: equal values hash equally before and after storage, on any machine."""
    text = _dumps(_canonical(payload), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """32 hex digits over a manifest, whatever the order of its keys."""
    return payload_hash(manifest)


def idempotency_key(event_id: UUID, destination: str) -> str:
    """What a destination is asked by; stable for life."""
    return f"{event_id}@{destination}"
