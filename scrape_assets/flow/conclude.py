"""What the store is told of one attempt: its rows, or its failure with what follows from it. Nothing happens here."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

from scrape_assets.flow.assignment import Assignment
from scrape_assets.rules import retry, template
from scrape_assets.rules.page import FetchFailure, Response
from scrape_assets.rules.states import FailureClass, Outcome, PageState, TaskState
from scrape_assets.sources.extractor import Judgement
from scrape_assets.store.commit import Result
from scrape_assets.store.discovery import Discovered
from scrape_assets.store.lease import Claim


def conclude(
    assignment: Assignment,
    claim: Claim,
    origin: str,
    answer: Response | FetchFailure,
    judged: Judgement | None,
    observed_at: datetime,
    jitter: float,
) -> Result:
    """What the database is told of one attempt: rows, or a failure with what follows from it."""
    result = Result(
        claim.lease,
        origin,
        TaskState.COMMITTED,
        Outcome.COMMITTED,
        observed_at,
        assignment.frozen.extractor_version,
        final_url=answer.final_url,
        redirects=answer.redirects,
        http_status=answer.status,
    )
    if isinstance(answer, Response):
        result.reached = True
        result.body = answer.body
        result.content_type = answer.headers.get("content-type")
        result.reason = answer.remark or None
    if judged is not None:
        result.page_state = judged.page_state
        result.reason = "; ".join(filter(None, (judged.reason, result.reason))) or None
        result.collisions = judged.collisions
        result.template = judged.template
        # A page that was stored tells of the site as it was.
        if claim.from_artifact is None:
            result.unlike = template.is_unlike(judged.template, claim.page_type, assignment.templates)
        if judged.failure_class is None and judged.discovered is not None:
            result.row_count = 0
            result.discovered = _discovered(assignment, claim, judged.discovered)
            return result
        if judged.failure_class is None:
            result.rows, result.row_count = judged.rows, judged.row_count
            result.again = claim.generation > 1 or claim.recovery_batch_id is not None
            return result
    if isinstance(answer, FetchFailure):
        failure, result.reason, wait = answer.failure_class, answer.reason, None
    else:
        assert judged is not None
        assert judged.failure_class is not None
        failure = judged.failure_class
        wait = retry.retry_after(answer.headers.get("retry-after"), answer.headers.get("date"), datetime.now(UTC))
    decision = retry.decide(
        failure,
        attempt=claim.attempt_count,
        policy=assignment.dataset.retry.policy,
        max_attempts=claim.max_attempts,
        earlier=frozenset(FailureClass(name) for name in claim.earlier_failures),
        rate_limited_before=claim.rate_limited_count,
        retry_after_seconds=wait,
        jitter=jitter,
        http_status=answer.status,
    )
    result.state, result.outcome = decision.state, decision.outcome
    result.failure_class, result.task_class = failure, decision.task_class
    result.delay_seconds = decision.delay_seconds
    result.refund = int(decision.refund)
    result.rate_limited = int(failure is FailureClass.RATE_LIMITED)
    result.pause_origin_seconds = decision.pause_origin_seconds
    result.pause_doubles = wait is None
    # What was tried before waits for itself already, and one page that never answers is no outage; nor is one that a
    # browser had from the site and could not show.
    silent = failure in (FailureClass.TRANSPORT, FailureClass.TIMEOUT) and answer.status is None
    if silent and claim.attempt_count == 1:
        result.reached = False
        result.unreached_pause_seconds = assignment.dataset.retry.base_seconds
    if failure is FailureClass.GONE and result.page_state is None:
        result.page_state = PageState.REMOVED
    return result


def _discovered(assignment: Assignment, claim: Claim, described: str) -> Discovered:
    said = orjson.loads(described)
    return Discovered(
        retailer=assignment.retailer.name,
        children=said["children"],
        next=said["next"],
        again=said["again"],
        problem=said["problem"],
        mode=assignment.retailer.urls.mode,
        page=claim.canonical_url,
        barren=claim.barren,
        max_attempts=assignment.dataset.retry.attempts,
        open_tasks=assignment.retailer.fetch.open_tasks,
        budget=assignment.dataset.budget,
    )
