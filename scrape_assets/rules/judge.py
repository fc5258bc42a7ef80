"""One judgement per page: is it the page that was asked for, and what does it say? Never raises for any body."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scrape_assets.rules import classify, context
from scrape_assets.rules.classify import Finding
from scrape_assets.rules.document import Document, UnreadablePage
from scrape_assets.rules.extract import extract
from scrape_assets.rules.fingerprint import fingerprint
from scrape_assets.rules.page import Response
from scrape_assets.rules.page_object import PageView
from scrape_assets.rules.row import Failed, Row
from scrape_assets.rules.spec import ExtractRule, PageRule
from scrape_assets.rules.states import FailureClass, PageState

__all__ = ["Judged", "Row", "judge"]


_DOUBTFUL = frozenset((FailureClass.EXTRACTION, FailureClass.WRONG_TEMPLATE))
"""The failures that may only mean that this is another page."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the page is and what it says. Without a failure class its rows are good, even if there are none.

    `template` is the fingerprint of a page that gives rows, or that should and is laid out in another way.
    """

    page_state: PageState | None
    failure_class: FailureClass | None
    reason: str
    rows: tuple[Row, ...] = ()
    template: str | None = None


def judge(
    response: Response,
    rule: ExtractRule,
    *,
    page_object: Callable[[PageView], Any] | None = None,
    in_context: str = "",
) -> Judged:
    """The page's state and its rows, or the failure class that decides what happens to the task.

    A page that does not prove `in_context`, where that has a proof, is not read.

    A challenge beats the status, the status beats the content, a declared sign beats a general one; general signs
    are read only when the evidence that the declaration asks for is missing. Where the site says when to come back,
    only a protection service's own mark beats that: a page about too many requests reads like a challenge.
    """
    try:
        document = Document.of(response)
        judged = _judge(document, response, rule, page_object, in_context)
    except UnreadablePage as error:
        return Judged(PageState.WRONG_TEMPLATE, FailureClass.WRONG_TEMPLATE, f"unreadable page: {error}")
    # What came in the way of the page has a state of its own, and no template to speak of.
    laid_out = judged.page_state in (PageState.EXPECTED, PageState.WRONG_TEMPLATE)
    return replace(judged, template=fingerprint(document.text)) if laid_out else judged


def _judge(
    document: Document,
    response: Response,
    rule: ExtractRule,
    page_object: Callable[[PageView], Any] | None,
    in_context: str,
) -> Judged:
    page = rule.page
    if not 200 <= response.status < 300:
        waits = response.status == 429 or (response.status == 503 and "retry-after" in response.headers)
        challenge = classify.challenge_mark if waits else classify.challenge
        return _from(challenge(document) or classify.by_status(response.status))
    # Before anything that the page says: what another store has no longer may well be sold in this one.
    if (doubt := context.unproven(document, rule.proofs.get(in_context, ()))) is not None:
        return _elsewhere(doubt, document, response)
    if page.removed is not None and document.has(page.removed):
        return Judged(PageState.REMOVED, FailureClass.GONE, f"removed: {page.removed!r} is on the page")
    if (redirected := classify.by_redirect(response)) is not None:
        return _from(classify.challenge(document) or redirected)
    if page.expect is not None and not document.has(page.expect):
        missing = f"expect: {page.expect!r} is not on the page"
        if (found := classify.unexpected(document, response)) is not None:
            return _from(found, missing)
        return Judged(PageState.WRONG_TEMPLATE, FailureClass.WRONG_TEMPLATE, missing)
    if document.is_blank:
        return Judged(PageState.EMPTY_SHELL, FailureClass.EMPTY_SHELL, "the document is empty")
    result = extract(document, response.url, rule, page_object)
    if isinstance(result, Failed):
        return _failed(result, document, response, rule)
    if (found := _doubted(result, document, response, page)) is not None:
        return _from(found)
    return Judged(PageState.EXPECTED, None, "", result)


def _elsewhere(doubt: context.Doubt, document: Document, response: Response) -> Judged:
    """A page of another context, or one that is no page of the shop at all and so proves nothing."""
    if doubt.absent:
        found = (
            classify.challenge(document) or classify.by_redirect(response) or classify.unexpected(document, response)
        )
        if found is not None:
            return _from(found, doubt.reason)
    return Judged(PageState.WRONG_CONTEXT, FailureClass.WRONG_CONTEXT, f"wrong context: {doubt.reason}")


def _doubted(rows: tuple[Row, ...], document: Document, response: Response, page: PageRule) -> Finding | None:
    """What the page is instead, where only texts or a visible price were found and nothing was declared to be expected.

    A heading may well be found on any page, and two texts on a robot check; a number that fits its field is not.
    A page object without a number may have taken the lack of a price for a product that is sold out.
    """
    if page.expect is not None:
        return None
    if not (page.fields or page.page_object):
        # Data name their product. A price alone may as well stand on a page that says "not found" and recommends.
        by_sight = any(row.sources.get("price", "").startswith("page: ") for row in rows)
        found = classify.unexpected(document, response) if by_sight else None
        return None if found is not None and found.page_state is PageState.EMPTY_SHELL else found
    if _has_number(rows, page):
        return None
    if page.rows is not None or any(len(set(row.values) & set(page.fields)) > 1 for row in rows):
        # An ordinary page may have such a title: an article about captchas, an officer of security checks.
        short = len(classify.visible_text(document)) <= classify.SHORT_PAGE
        return classify.challenge_title(document) if short else None
    found = classify.unexpected(document, response)
    return None if found is not None and found.page_state is PageState.EMPTY_SHELL else found


def _has_number(rows: tuple[Row, ...], page: PageRule) -> bool:
    if page.page_object:
        return any(_is_number(value) for row in rows for value in row.values.values())
    numbers = [name for name, spec in page.fields.items() if spec.kind in ("money", "decimal", "int")]
    return any(name in row.values for row in rows for name in numbers)


def _is_number(value: object) -> bool:
    """Whether a page object gave a number: as one, or as the plain text that it becomes."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (
        isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is not None
    )


def _failed(failed: Failed, document: Document, response: Response, rule: ExtractRule) -> Judged:
    if rule.page.expect is None and failed.failure_class in _DOUBTFUL and (not failed.evidence or rule.page.fields):
        found = classify.unexpected(document, response)
        # A page that gave some of its fields is short, perhaps, but no empty shell.
        if found is not None and not (failed.evidence and found.page_state is PageState.EMPTY_SHELL):
            return _from(found, failed.reason)
    known = rule.page.expect is not None or failed.evidence
    return Judged(PageState.EXPECTED if known else PageState.WRONG_TEMPLATE, failed.failure_class, failed.reason)


def _from(finding: Finding, also: str = "") -> Judged:
    reason = f"{finding.reason} ({also})" if also else finding.reason
    return Judged(finding.page_state, finding.failure_class, reason)
