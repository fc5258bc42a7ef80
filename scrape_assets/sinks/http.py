"""Delivery by HTTP: one POST for each version, under an Idempotency-Key, signed as Standard Webhooks has it.

    POST <url>                webhook-id, webhook-timestamp, webhook-signature, Idempotency-Key
    {"type": "dataset.published", "timestamp": ..., "data": {..., "rows": [...]}}
    GET <url>/<key>           200 {"content_hash": ...}: it has it; 404: it does not

Only what is known is said: an answer that is lost, late or broken leaves the delivery uncertain, and the destination
is asked. The body is written to a file first, so that neither its size nor its signature needs memory.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO
from urllib.parse import quote

import httpx

from scrape_assets import failpoints
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import retry
from scrape_assets.sinks.outcome import Applied, Found, NotApplied, Refused, Sent, Shipment, Uncertain

CHUNK = 64 * 1024
ANSWER_BYTES = 64 * 1024
"""How much of an answer is read; more says nothing more."""

BYTES_PER_SECOND = 250_000
"""A body is given this much time beside the timeout, which counts for the answer."""

SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix, as Standard Webhooks defines it


def send(
    url: str,
    secret: str | None,
    shipment: Shipment,
    *,
    timeout_seconds: float,
    user_agent: str,
    going_on: Callable[[float], object] = lambda _seconds: None,
) -> Sent:
    """The event was posted, once, and this is what its answer says.

    `going_on` is told how many seconds that may take, when the size of the body is known.
    """
    with tempfile.TemporaryFile(prefix="scrape-assets-delivery-") as body:
        size, digest = _write(body, shipment)
        going_on(2 * timeout_seconds + size / BYTES_PER_SECOND)
        headers = {
            "content-type": "application/json",
            "content-length": str(size),
            "user-agent": user_agent,
            "idempotency-key": shipment.idempotency_key,
            **_signed(secret, shipment.event_id, body),
        }
        return asyncio.run(_post(url, headers, body, size, digest, timeout_seconds))


def find(
    url: str, template: str, secret: str | None, shipment: Shipment, *, timeout_seconds: float, user_agent: str
) -> Found:
    """What the destination answers when it is asked for the key: it has this content, has nothing, or cannot say."""
    asked = template.replace("{url}", url).replace("{key}", quote(shipment.idempotency_key, safe=""))
    headers = {"user-agent": user_agent, "accept": "application/json"}
    with tempfile.TemporaryFile() as nothing:
        headers |= _signed(secret, shipment.event_id, nothing)
    return asyncio.run(_ask(asked, headers, shipment.content_hash, timeout_seconds))


def check_secret(secret: str) -> bytes:
    """The key of a secret; DeclarationError when it is none, without saying what it is."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise DeclarationError(
            f"the secret of a webhook is no base64 text; expected {SECRET_PREFIX} and 24 to 64 bytes in base64"
        ) from error
    if not key:
        raise DeclarationError("the secret of a webhook is empty")
    return key


def _write(body: BinaryIO, shipment: Shipment) -> tuple[int, str]:
    """The JSON of the event with its rows, streamed; returns its size and SHA-256."""
    # The event counts its rows under the name that the rows themselves have here.
    data = {"row_count" if name == "rows" else name: value for name, value in shipment.event.items()}
    data["payload"] = shipment.payload
    head = json.dumps({"type": shipment.event_type, "timestamp": shipment.created_at, "data": data}, ensure_ascii=False)
    digest = hashlib.sha256()

    def put(text: str) -> None:
        written = text.encode()
        digest.update(written)
        body.write(written)

    put(head[:-2])
    put(', "rows": [')
    for number, row in enumerate(shipment.rows()):
        record = {name: _plain(row[name]) for name in shipment.columns if row.get(name) is not None}
        put(("," if number else "") + "\n" + json.dumps(record, ensure_ascii=False))
    put("]}}")
    return body.tell(), digest.hexdigest()


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _signed(secret: str | None, event_id: str, body: BinaryIO) -> dict[str, str]:
    """The three headers of Standard Webhooks 1.0: HMAC-SHA256 over id, timestamp and body."""
    stamp = str(int(time.time()))
    headers = {"webhook-id": event_id, "webhook-timestamp": stamp}
    if secret is not None:
        mac = hmac.new(check_secret(secret), f"{event_id}.{stamp}.".encode(), hashlib.sha256)
        body.seek(0)
        while chunk := body.read(CHUNK):
            mac.update(chunk)
        headers["webhook-signature"] = "v1," + base64.b64encode(mac.digest()).decode()
    return headers


async def _post(
    url: str, headers: dict[str, str], body: BinaryIO, size: int, digest: str, timeout_seconds: float
) -> Sent:
    sent = False

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        body.seek(0)
        while chunk := body.read(CHUNK):
            sent = True
            yield chunk

    try:
        async with (
            asyncio.timeout(timeout_seconds + size / BYTES_PER_SECOND),
            _client(timeout_seconds) as client,
            client.stream("POST", url, headers=headers, content=chunks()) as response,
        ):
            failpoints.reach("K18")
            said = await _start_of(response)
            return _sent(response, said, {"sha256": digest, "bytes": size})
    except (TimeoutError, httpx.TimeoutException) as error:
        what = f"no answer within {timeout_seconds:g} s"
        if not sent or isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
            return NotApplied(f"{url}: {what}, and nothing was sent")
        return Uncertain(f"{url}: {what}")
    except (httpx.HTTPError, OSError) as error:
        told = f"{url}: {type(error).__name__}: {error}"
        return Uncertain(told) if sent and not isinstance(error, httpx.ConnectError) else NotApplied(told)


def _sent(response: httpx.Response, said: str, receipt: dict[str, Any]) -> Sent:
    status = response.status_code
    told = f"{response.request.url} answered {status}{f': {said[:200]}' if said else ''}"
    if 200 <= status < 300:
        return Applied({"status": status, **receipt})
    if status == 429:
        wait = retry.retry_after(response.headers.get("retry-after"), response.headers.get("date"), datetime.now(UTC))
        return NotApplied(told, wait)
    if status >= 500 or status in (408, 409):
        return Uncertain(told)
    if 300 <= status < 400:
        return Refused(f"{told}; a delivery follows no redirect, declare the address it points to")
    return Refused(told)


async def _ask(url: str, headers: dict[str, str], content_hash: str, timeout_seconds: float) -> Found:
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            _client(timeout_seconds) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            said = await _start_of(response)
            status = response.status_code
    except (TimeoutError, httpx.HTTPError, OSError) as error:
        return Uncertain(f"{url}: {type(error).__name__}: {error or 'no answer'}")
    if status == 404:
        return NotApplied(f"{url} answered 404")
    if status != 200:
        return Uncertain(f"{url} answered {status}; expected 200 with the content hash, or 404")
    known: Any = None
    with suppress(ValueError):
        known = json.loads(said)
    held = known.get("content_hash") if isinstance(known, dict) else None
    if held is None:
        return Uncertain(f'{url} answered 200 without {{"content_hash": ...}}; nobody can tell what it has')
    if held != content_hash:
        return Refused(f"{url} has something else under this key: {str(held)[:80]}, expected {content_hash}")
    return Applied({"status": 200, "content_hash": held, "found": True})


def _client(timeout_seconds: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=timeout_seconds, follow_redirects=False, trust_env=False)


async def _start_of(response: httpx.Response) -> str:
    """As much of the answer as may be quoted; the status came first and counts, whatever happens to the rest."""
    read = bytearray()
    with suppress(httpx.HTTPError):
        async for chunk in response.aiter_bytes():
            read += chunk
            if len(read) >= ANSWER_BYTES:
                break
    return read.decode("utf-8", "replace").strip()
