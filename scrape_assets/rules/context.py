"""Contexts: what a set-up asks the site for, and whether a page was made for the context it was asked in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlencode, urljoin

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from scrape_assets.rules import urls
from scrape_assets.rules.classify import by_status
from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.page import Request
from scrape_assets.rules.row import snippet
from scrape_assets.rules.spec import PageObject, ProofRule
from scrape_assets.rules.states import FailureClass

MAX_STEPS = 8
"""Requests that a page function may ask for: shops take one or two, and a loop must end."""


class SetupRule(BaseModel):
    """The request after which a session is in its context. With a page function, the page that it reads first."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    url: str = Field(min_length=1, description="a page of the site, as /set-zip")
    method: Literal["GET", "POST"] | None = Field(default=None, description="GET or POST; POST with form or json")
    form: dict[str, str] = Field(default_factory=dict, description='as {zip: "{postcode}"}')
    json_body: dict[str, Any] | None = Field(default=None, alias="json", description="a JSON body instead of a form")
    page_function: PageObject | None = Field(
        default=None, description="pages.py:Name, which reads the answer and gives the requests to make"
    )

    @model_validator(mode="after")
    def _one_body(self) -> Self:
        if self.form and self.json_body is not None:
            raise ValueError("expected either form or json")
        if self.method == "GET" and (self.form or self.json_body is not None):
            raise ValueError("a GET has no form or json; write the values into the url, or expect method: POST")
        return self


def request_of(rule: SetupRule, *, base: str, site: str) -> Request:
    """The request as it goes out; ValueError when its address is none, or is not on the site."""
    url = urls.canonical(urljoin(base, rule.url))
    if not urls.within(site, url):
        raise ValueError(f"{url[:200]} is not on the site {site}")
    if rule.json_body is not None:
        return Request(url, "POST", orjson.dumps(rule.json_body), "application/json")
    if rule.form or rule.method == "POST":
        return Request(url, "POST", urlencode(rule.form).encode(), "application/x-www-form-urlencoded")
    return Request(url)


def setup_failed(status: int) -> FailureClass | None:
    """What the status of a set-up's answer means for the page that needs it; None when it may have worked."""
    if 200 <= status < 300:
        return None
    found = by_status(status).failure_class
    # That a set-up is not there says nothing of the page.
    return FailureClass.WRONG_CONTEXT if found in (FailureClass.GONE, FailureClass.HTTP_OTHER) else found


class Doubt(NamedTuple):
    """Why a page does not prove its context; `absent`: it shows nothing at all where the proof should be."""

    reason: str
    absent: bool


def unproven(document: Document, proofs: Sequence[ProofRule]) -> Doubt | None:
    """The first proof that the page does not give; None when it gives all of them."""
    return next((doubt for proof in proofs if (doubt := _unproven(document, proof)) is not None), None)


def _unproven(document: Document, proof: ProofRule) -> Doubt | None:
    texts = [text for found in _texts(document, proof) if (text := " ".join(found.split()))]
    if not texts:
        return Doubt(f"prove: {proof.shown} found nothing, expected {snippet(proof.equals)}", absent=True)
    for text in texts:
        shown: str | None = text
        if proof.match is not None:
            hit = re.search(proof.match, text)
            shown = None if hit is None else (hit.group(1) if hit.re.groups else hit.group()) or ""
        if shown is None or _plain(shown) != _plain(proof.equals):
            return Doubt(f"prove: {proof.shown} found {snippet(text)}, expected {snippet(proof.equals)}", absent=False)
    return None


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _texts(document: Document, proof: ProofRule) -> list[str]:
    if proof.css is not None:
        nodes = document.css(proof.css)
        return [text_of(node) if proof.attr is None else node.attributes.get(proof.attr) or "" for node in nodes]
    found = document.selector.xpath(proof.xpath or "")
    if proof.attr is not None:
        return [one.attrib.get(proof.attr, "") for one in found]
    # The text of an element; an attribute or a text is one already.
    texts = ((one.xpath("string()").get(), one) for one in found)
    return [one.get() or "" if text is None else text for text, one in texts]
