"""What is declared about a page: which page is the right one, where its rows and fields are, what identifies them.

These models are the `product:` and `key:` parts of a retailer's file as they are written, and, dumped to JSON,
the `extract` block of the frozen manifest that extraction processes work from.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Literal, Self

from parsel import Selector
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from selectolax.lexbor import LexborHTMLParser, SelectolaxError

from scrape_assets.rules.currency import COMMON, live_codes
from scrape_assets.rules.near import near

FieldType = Literal["text", "money", "decimal", "int", "datetime", "url", "list"]


@cache
def _css(selector: str) -> str:
    if re.search(r"::(text|attr)\b", selector):
        raise ValueError(f"css {selector!r}: text is read as it is; for an attribute write attr: beside css")
    try:
        LexborHTMLParser("<p></p>").css(selector)
    except SelectolaxError as error:
        raise ValueError(f"{selector!r} is not a CSS selector") from error
    return selector


@cache
def _xpath(expression: str) -> str:
    try:
        Selector(text="<p></p>").xpath(expression)
    except ValueError as error:
        raise ValueError(f"{expression!r} is not an XPath: {error}") from error
    return expression


@cache
def _pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


def _currency(code: str) -> str:
    if code not in live_codes():
        meant = near(code.upper(), [*COMMON, *sorted(live_codes())])
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise ValueError(f"{code!r} is not a current ISO 4217 code, as EUR{hint}")
    return code


def _page_object(reference: str) -> str:
    if not re.fullmatch(r"pages\.py:[A-Za-z_]\w*", reference):
        raise ValueError(f"{reference!r} names no page object; expected pages.py:Name")
    return reference


CssSelector = Annotated[str, AfterValidator(_css)]
XPath = Annotated[str, AfterValidator(_xpath)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Currency = Annotated[str, AfterValidator(_currency)]
PageObject = Annotated[str, AfterValidator(_page_object)]


class FieldRule(BaseModel):
    """Where one field stands and how its text is read. `money: EUR` implies the type money and gives the currency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    css: CssSelector | None = None
    xpath: XPath | None = None
    attr: str | None = Field(default=None, description="read this attribute instead of the text")
    match: Pattern | None = Field(default=None, description="regular expression; its first group, else the whole match")
    type: FieldType = "text"
    money: Currency | None = Field(default=None, description="ISO 4217 code of the amount")
    decimal: Literal[",", "."] | None = Field(default=None, description="the decimal separator the site uses")
    format: str | None = Field(default=None, description="strptime format of a datetime; ISO 8601 without one")
    optional: bool = False

    @model_validator(mode="after")
    def _one_selector(self) -> Self:
        if (self.css is None) == (self.xpath is None):
            raise ValueError("expected exactly one of css and xpath")
        if self.money is not None and self.type not in ("text", "money"):
            raise ValueError(f"money is given, but type is {self.type}; expected one of the two")
        if self.format is not None and self.type != "datetime":
            raise ValueError("format is for type: datetime only")
        return self

    @property
    def kind(self) -> FieldType:
        """The declared type, money when a currency is declared."""
        return "money" if self.money else self.type


class ProofRule(BaseModel):
    """What a page shows only in its own context: every text that the selector finds is this one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    css: CssSelector | None = None
    xpath: XPath | None = None
    attr: str | None = Field(default=None, description="read this attribute instead of the text")
    match: Pattern | None = Field(default=None, description="regular expression; its first group, else the whole match")
    equals: str = Field(min_length=1, description='the text, as "28001", or a value of the context, as "{postcode}"')

    @model_validator(mode="after")
    def _one_selector(self) -> Self:
        if (self.css is None) == (self.xpath is None):
            raise ValueError("expected exactly one of css and xpath")
        return self

    @property
    def shown(self) -> str:
        """Where the text is looked for, as messages name it."""
        return f"css {self.css}" if self.css is not None else f"xpath {self.xpath}"


class PageRule(BaseModel):
    """One page type of one retailer: `product:` in its file. Without fields and page object: zero-config."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    expect: CssSelector | None = Field(default=None, description="CSS selector that only the right page has")
    rows: CssSelector | None = Field(default=None, description="CSS selector of the rows, where a page holds many")
    fields: dict[str, FieldRule] = Field(default_factory=dict)
    page_object: PageObject | None = Field(default=None, description="pages.py:Name in the dataset's folder")
    removed: CssSelector | None = Field(
        default=None, description="CSS selector of the site's own 'no longer sold' sign"
    )
    money: Currency | None = Field(default=None, description="currency where the page does not name one")
    decimal: Literal[",", "."] | None = Field(default=None, description="decimal separator where the text is unclear")
    empty: CssSelector | None = Field(default=None, description="CSS selector of a listing's 'no results' sign")
    duplicates: Literal["first", "last", "refuse"] | None = Field(
        default=None,
        description="two contradicting rows of one entity on one page; refuse, but first where rows is set",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.page_object is not None and (self.fields or self.rows):
            raise ValueError("expected either fields and rows or a page_object, which gives its rows itself")
        if self.rows is not None and not self.fields:
            raise ValueError("rows is given without fields; expected the fields of a row")
        return self


class ExtractRule(BaseModel):
    """All that an extraction process needs to know of a retailer; frozen in the manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    retailer: str
    page: PageRule
    key: tuple[str, ...] = ()
    schema_name: str = "product_offer"
    proofs: dict[str, tuple[ProofRule, ...]] = Field(default_factory=dict, description="by context")
