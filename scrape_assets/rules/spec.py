"""What is declared about a page: which page is the right one, where its rows and fields are, what identifies them.

These models are the `product:` and `key:` parts of a retailer's file as they are written, and, dumped to JSON,
the `extract` block of the frozen manifest that extraction processes work from.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

FieldType = Literal["text", "money", "decimal", "int", "datetime", "url", "list"]


class FieldRule(BaseModel):
    """Where one field stands and how its text is read. `money: EUR` implies the type money and gives the currency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    css: str | None = None
    xpath: str | None = None
    attr: str | None = Field(default=None, description="read this attribute instead of the text")
    match: str | None = Field(default=None, description="regular expression; its first group, else the whole match")
    type: FieldType = "text"
    money: str | None = Field(default=None, description="ISO 4217 code of the amount")
    decimal: Literal[",", "."] | None = Field(default=None, description="the decimal separator the site uses")
    format: str | None = Field(default=None, description="strptime format of a datetime; ISO 8601 without one")
    optional: bool = False

    @model_validator(mode="after")
    def _one_selector(self) -> Self:
        if (self.css is None) == (self.xpath is None):
            raise ValueError("give exactly one of css and xpath")
        return self

    @property
    def kind(self) -> FieldType:
        """The declared type, money when a currency is declared."""
        return "money" if self.money else self.type


class PageRule(BaseModel):
    """One page type of one retailer: `product:` in its file. Without fields and page object: zero-config."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    expect: str | None = Field(default=None, description="CSS selector that only the right page has")
    rows: str | None = Field(default=None, description="CSS selector of the rows, where a page holds many")
    fields: dict[str, FieldRule] = Field(default_factory=dict)
    page_object: str | None = Field(default=None, description="pages.py:Name in the dataset's folder")
    removed: str | None = Field(default=None, description="CSS selector of the site's own 'no longer sold' sign")
    money: str | None = Field(default=None, description="currency where the page does not name one")
    decimal: Literal[",", "."] | None = Field(default=None, description="decimal separator where the text is unclear")
    empty: str | None = Field(default=None, description="CSS selector of a listing's 'no results' sign")
    duplicates: Literal["first", "last", "refuse"] | None = Field(
        default=None, description="two contradicting rows of one entity on one page; refuse, but first where rows is set"
    )


class ExtractRule(BaseModel):
    """All that an extraction process needs to know of a retailer; frozen in the manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    retailer: str
    page: PageRule
    key: tuple[str, ...] = ()
    schema_name: str = "product_offer"
