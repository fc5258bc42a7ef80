"""Pages that may be what they were: asked for by what their site tells by, and read from the bytes that we have.

They pass through the same extraction and commit as any other page, so that a row says when its values were last seen
to hold, and never that something changed.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from scrape_assets.flow import stored
from scrape_assets.flow.assignment import Assignment
from scrape_assets.rules import revalidation
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.store.commit import Page, Result
from scrape_assets.store.lease import Claim


class Standing(NamedTuple):
    """The page as it was, for it still is; `status`: what the site said, None when it was not asked."""

    page: Response
    status: int | None
    reason: str | None
    headers: dict[str, str]


def unasked(folder: Path, claim: Claim) -> Standing | None:
    """The page as we have it, where its sitemap says that it is older than that."""
    known = claim.known
    if known is None or claim.modified_at is None or known.verified_at <= claim.modified_at:
        return None
    reason = f"not asked for: its sitemap says that it was last changed before {claim.modified_at:%Y-%m-%d %H:%M} UTC"
    return _stands(folder, claim, None, reason, {})


def confirmed(folder: Path, claim: Claim, answer: Response | FetchFailure) -> Standing | None:
    """The page as we have it, where its site says that it still is that."""
    if not isinstance(answer, Response) or answer.status != HTTPStatus.NOT_MODIFIED or answer.redirects:
        return None
    return _stands(folder, claim, answer.status, None, dict(answer.headers))


def remember(
    result: Result, assignment: Assignment, claim: Claim, answer: Response | FetchFailure, still: Standing | None
) -> None:
    """What the next window asks by goes with the result; a page that was stored tells of the site as it was."""
    if assignment.pages_of is None or claim.from_artifact is not None or not isinstance(answer, Response):
        return
    before = claim.known
    verified_at = result.observed_at
    etag, modified = revalidation.validators(answer.headers if still is None else still.headers)
    if still is not None:
        assert before is not None
        etag, modified = etag or before.etag, modified or before.last_modified
        result.body_status, result.http_status = result.http_status, still.status
        result.reason = result.reason or still.reason
        result.reached = None if still.status is None else True
        if still.status is None:
            # Nobody looked: a change that its sitemap tells of only later would lie before this window for ever.
            verified_at = before.verified_at
    elif answer.redirects:
        # They speak of another page than the one that is asked for next time.
        etag = modified = None
    result.page = Page(assignment.pages_of, etag, modified, verified_at, before.sha256 if before else None)


def _stands(
    folder: Path, claim: Claim, status: int | None, reason: str | None, headers: dict[str, str]
) -> Standing | None:
    assert claim.known is not None
    found = stored.page(folder, claim.known.place, claim.known.sha256, claim.canonical_url)
    return None if found is None else Standing(found[0], status, reason, headers)
