"""What the network gave, as values: a response that was read whole, or a failure with its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scrape_assets.rules.states import FailureClass


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a site: a page, or with a body, the set-up of a context."""

    url: str
    method: str = "GET"
    body: bytes | None = field(default=None, repr=False)
    content_type: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    """With these, a site whose page is still what it was may answer 304, and nothing more."""


@dataclass(frozen=True, slots=True)
class Response:
    """A site's answer, whole and inflated, not yet judged.

    Header names are lower case; a header that came twice is joined by commas, `set-cookie` by line feeds. `remark`
    says what else was asked for to get it, where that is worth a word.
    """

    url: str
    final_url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    redirects: tuple[str, ...] = field(default=())
    remark: str = ""


@dataclass(frozen=True, slots=True)
class FetchFailure:
    """No whole answer: why, in a class and a sentence."""

    failure_class: FailureClass
    reason: str
    status: int | None = None
    final_url: str | None = None
    redirects: tuple[str, ...] = field(default=())
