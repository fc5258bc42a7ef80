"""robots.txt: what a site asks robots not to fetch, and how fast they may come. RFC 9309, with what real files hold."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import protego

AGENT = "scrape_assets"
"""The name that rules for us alone are found under."""

MAX_BYTES = 512 * 1024
"""What is read of a file: RFC 9309, 2.5, asks for 500 KiB at least."""

MAX_DELAY_SECONDS = 60.0
"""The longest `Crawl-delay` that is obeyed; a longer one would keep a window from ever ending, and is clamped."""

_MARKUP = re.compile(r"\s*<(!doctype|html|head|body|\?xml)", re.IGNORECASE)


class RobotsRules:
    """A site's rules for us."""

    def __init__(self, text: str) -> None:
        # Unlike its reader, some files end their lines as they did in 1999.
        self._rules = protego.Protego.parse(re.sub(r"\r\n?", "\n", text))

    def allows(self, url: str) -> bool:
        """Whether a robot of our name may fetch it."""
        return bool(self._rules.can_fetch(url, AGENT))

    @property
    def declared_delay(self) -> float | None:
        """The `Crawl-delay` for us in seconds; None without a usable one."""
        delay = self._rules.crawl_delay(AGENT)
        return float(delay) if delay is not None and math.isfinite(delay) and delay > 0 else None

    @property
    def delay_seconds(self) -> float:
        """What is obeyed of it; 0 for none."""
        return min(self.declared_delay or 0.0, MAX_DELAY_SECONDS)


class Read(NamedTuple):
    """A robots.txt answer: the rules' text, empty for none, and what is odd about it."""

    text: str
    note: str | None = None


def read(status: int, body: bytes) -> Read | None:
    """What an answer says; None where it says nothing, so that nothing may be fetched yet (RFC 9309, 2.3.1).

    >>> read(404, b"")
    Read(text='', note='status 404: no rules')
    >>> read(503, b"") is None
    True
    """
    if status == 429 or status >= 500:
        return None
    if not 200 <= status < 300:
        return Read("", f"status {status}: no rules")
    cut = body[:MAX_BYTES]
    # A byte-order mark before the first line would hide its group, and with it what it forbids.
    text = (
        cut.decode("utf-16", "replace") if cut[:2] in (b"\xff\xfe", b"\xfe\xff") else cut.decode("utf-8-sig", "replace")
    )
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    if _MARKUP.match(text):
        return Read("", "it is a web page, not a robots.txt: no rules")
    return Read(text, f"only its first {MAX_BYTES // 1024} KiB are read" if len(body) > MAX_BYTES else None)
