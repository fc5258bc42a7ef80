"""`urls:` of a retailer's file: where its pages are listed, by a file or by the site itself."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from scrape_assets.rules.discover import DiscoverRule, Mode
from scrape_assets.rules.spec import CssSelector

FOUND_BY_SITE: tuple[Mode, ...] = ("sitemap", "listing", "cursor", "links", "offset")

_WHICH = frozenset({"include", "exclude", "per_page"})
_KEYS: dict[Mode, frozenset[str]] = {
    "file": frozenset(),
    "sitemap": _WHICH | {"lastmod"},
    "listing": _WHICH | {"item", "page", "pages", "empty", "passes"},
    "cursor": _WHICH | {"item", "items", "page", "next", "empty"},
    "links": _WHICH | {"item", "follow", "depth"},
    "offset": _WHICH | {"item", "items", "page", "step", "empty", "passes"},
}
"""What may stand beside each."""

_COUNT = re.compile(r"(\d+(?:\.\d+)?)([km]?)", re.IGNORECASE)


def _places(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def count_range(text: str) -> tuple[int, int]:
    """The ends of a range of counts.

    >>> count_range("45k..55k"), count_range("900..1.2k")
    ((45000, 55000), (900, 1200))
    """
    ends = [_COUNT.fullmatch(part.strip()) for part in str(text).split("..")]
    if len(ends) != 2 or None in ends:
        raise ValueError(f"{text!r} is not a range of counts; expected two, as 45k..55k")
    low, high = (round(float(end[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[end[2].lower()]) for end in ends if end)
    if low > high:
        raise ValueError(f"{text!r} begins above its end")
    return low, high


def _count_range(text: str) -> str:
    count_range(text)
    return text


Patterns = Annotated[tuple[str, ...], BeforeValidator(_places)]
Places = Annotated[tuple[str, ...], BeforeValidator(_places), Field(min_length=1)]


class UrlsRule(BaseModel):
    """Exactly one of file, sitemap, listing, cursor, links and offset, with what belongs to it.

    Addresses are absolute, or count from the site. `item` finds what is collected: a CSS selector, or in JSON a dotted
    path or a template as `/p/{id}`. `include` and `exclude` are patterns of paths, as `/p/*`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str | None = Field(default=None, min_length=1, description="an inventory beside the retailer's file")
    sitemap: Places | None = Field(default=None, description="sitemaps, sitemap indexes or feeds")
    listing: Places | None = Field(default=None, description="first pages of categories: page 1 of N")
    cursor: Places | None = Field(default=None, description="lists that name their next page, also as JSON")
    links: Places | None = Field(default=None, description="pages whose links are followed")
    offset: Places | None = Field(default=None, description="lists that are asked for from an offset on")
    item: str | None = None
    items: str | None = Field(default=None, description="dotted path of the list of items, where the answer is JSON")
    page: str | None = Field(default=None, description="a further page's address, with {page}, {cursor} or {offset}")
    pages: CssSelector | None = Field(default=None, description="where `page 1 of N` stands")
    next: str | None = Field(default=None, description="the link to the next page, or in JSON the cursor's path")
    follow: CssSelector | None = Field(default=None, description="links to pages that name further ones")
    empty: str | None = Field(
        default=None,
        description="the sign of a list that is empty; in JSON a path where 0, false or nothing stands then",
    )
    include: Patterns = ()
    exclude: Patterns = ()
    depth: int = Field(default=5, ge=1, le=100, description="how many links away from the first pages")
    per_page: int = Field(default=50_000, ge=1, description="the most addresses of one kind that one page may name")
    step: int | None = Field(default=None, ge=1, description="how far apart two offsets are")
    passes: int = Field(default=2, ge=1, le=2, description="how often a listing, or a list with offsets, is walked")
    lastmod: Literal["ignore", "trust"] = Field(
        default="ignore", description="trust: a page that its sitemap calls older than our copy is not asked for"
    )
    expect: Annotated[str, AfterValidator(_count_range)] | None = Field(
        default=None, description="how many items there are, as 45k..55k"
    )

    @model_validator(mode="after")
    def _one_mode(self) -> Self:
        given = [mode for mode in ("file", *FOUND_BY_SITE) if getattr(self, mode) is not None]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of file, {', '.join(FOUND_BY_SITE)}")
        mode = given[0]
        needs: dict[str, tuple[str, ...]] = {
            "listing": ("item",),
            "cursor": ("item", "next"),
            "links": ("item", "follow"),
            "offset": ("item", "step"),
        }
        missing = [name for name in needs.get(mode, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{mode} needs {' and '.join(missing)} beside it")
        allowed = _KEYS[mode]
        if unknown := sorted(self.model_fields_set - allowed - {mode, "expect"}):
            raise ValueError(
                f"{unknown[0]} means nothing with {mode}; it knows {', '.join(sorted(allowed)) or 'no more'}"
            )
        mark = {"listing": "{page}", "cursor": "{cursor}", "offset": "{offset}"}.get(mode)
        if self.page is not None and (mark is None or mark not in self.page):
            raise ValueError(f"page: expected an address with {mark}" if mark else f"page means nothing with {mode}")
        if mode in ("listing", "links") or (mode in ("cursor", "offset") and self.items is None):
            for name in ("item", "next", "empty"):
                selector = getattr(self, name)
                if selector is not None:
                    _css(name, selector)
        return self

    @property
    def mode(self) -> Mode:
        """Which of them it is."""
        return next(mode for mode in ("file", *FOUND_BY_SITE) if getattr(self, mode) is not None)

    @property
    def starts(self) -> tuple[str, ...]:
        """The first pages of what the site itself lists; none for a file."""
        return () if self.mode == "file" else getattr(self, self.mode)

    @property
    def expected(self) -> tuple[int, int] | None:
        """The ends of `expect`."""
        return None if self.expect is None else count_range(self.expect)

    def rule(self, site: str) -> DiscoverRule:
        """The same for `rules.discover`."""
        return DiscoverRule(
            mode=self.mode,
            site=site,
            item=self.item,
            items=self.items,
            page=self.page,
            pages=self.pages,
            next=self.next,
            follow=self.follow,
            empty=self.empty,
            include=self.include,
            exclude=self.exclude,
            depth=self.depth,
            per_page=self.per_page,
            step=self.step or 0,
            passes=self.passes,
            trust_lastmod=self.lastmod == "trust",
        )


def _css(name: str, selector: str) -> None:
    from pydantic import TypeAdapter  # noqa: PLC0415 - one check, by the type that fields have

    try:
        TypeAdapter(CssSelector).validate_python(selector)
    except ValueError as error:
        raise ValueError(f"{name}: {selector!r} is not a CSS selector") from error
