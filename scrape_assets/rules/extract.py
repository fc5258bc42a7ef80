"""From a page to rows: by the user's page object, by declared fields, else by the page's own data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrape_assets.rules.document import Document
from scrape_assets.rules.fields import declared
from scrape_assets.rules.page_object import PageView, by_page_object
from scrape_assets.rules.row import Failed, Row
from scrape_assets.rules.spec import ExtractRule
from scrape_assets.rules.states import FailureClass
from scrape_assets.rules.zero_config import zero_config

PageObject = Callable[[PageView], Any]


def extract(
    document: Document, requested_url: str, rule: ExtractRule, page_object: PageObject | None = None
) -> tuple[Row, ...] | Failed:
    """The page's rows, checked and ready to store, or the failure that says which field and what was found."""
    if rule.page.page_object is not None or page_object is not None:
        if page_object is None:
            return Failed(
                FailureClass.EXTRACTION, f"{rule.page.page_object} is declared but was not loaded", evidence=False
            )
        return by_page_object(document, rule, page_object)
    if rule.page.fields:
        return declared(document, rule)
    return zero_config(document, requested_url, rule)
