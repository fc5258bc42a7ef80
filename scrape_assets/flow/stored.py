"""Stored pages: the bytes of an earlier attempt, read as if the site had answered with them now."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

from scrape_assets.errors import ScrapeAssetsError
from scrape_assets.flow.assignment import Assignment
from scrape_assets.rules.page import Response
from scrape_assets.rules.states import Outcome, TaskState
from scrape_assets.store import artifacts
from scrape_assets.store.artifacts import Place
from scrape_assets.store.commit import Result
from scrape_assets.store.lease import Claim


def page(folder: Path, place: Place, sha256: str, url: str) -> tuple[Response, datetime] | None:
    """The answer that the site gave then, and when it did; None when it cannot be read, or is not what it was."""
    try:
        header, body = artifacts.read(folder, place)
        if hashlib.sha256(body).hexdigest() != sha256:
            return None
        headers = {"content-type": header["content_type"]} if header.get("content_type") else {}
        response = Response(
            url, header["url"] or url, int(header["status"]), headers, body, tuple(header.get("redirects") or ())
        )
        return response, datetime.fromisoformat(header["observed_at"])
    except (ScrapeAssetsError, KeyError, TypeError, ValueError):
        return None


def read(folder: Path, claim: Claim) -> tuple[Response, datetime] | None:
    """The page that this claim stands for."""
    if claim.stored is None or claim.from_artifact is None:
        return None
    return page(folder, claim.stored, claim.from_artifact, claim.canonical_url)


def unreadable(assignment: Assignment, claim: Claim) -> Result:
    """The task is an ordinary one from now on: the site is asked, and nothing was spent."""
    return Result(
        claim.lease,
        "",
        TaskState.PENDING,
        Outcome.RELEASED,
        claim.leased_at,
        assignment.frozen.extractor_version,
        refund=1,
        reason="its stored page cannot be read, so that the site is asked",
        unreadable=True,
    )


def keep(result: Result, claim: Claim) -> None:
    """The bytes stay where they are, but those of a failed attempt that are good now, which are kept for longer."""
    result.pause_origin_seconds = None
    result.reached = None
    failed = claim.stored is not None and claim.stored.segment.rpartition("/")[2].startswith("failed-")
    if not (failed and result.outcome == Outcome.COMMITTED):
        result.body, result.artifact_sha256 = None, claim.from_artifact
