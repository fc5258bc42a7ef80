"""What a page names: items to collect, further pages that name some, and where its list goes on. Nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

import orjson

from scrape_assets.rules import classify, sitemaps, urls
from scrape_assets.rules.document import Document, UnreadablePage
from scrape_assets.rules.page import Response
from scrape_assets.rules.revalidation import modified_at
from scrape_assets.rules.states import FailureClass, PageState

Mode = Literal["file", "sitemap", "listing", "cursor", "links", "offset"]

REPEATED_SEGMENTS = 3
"""A path that repeats a segment so often was built by a page that links relative to itself, and has no end."""

BARREN_PAGES = 3
"""So many pages of a list in a row that name nothing new are no list any more, wherever they lead."""

MANY_PAGES = 100_000
"""The most pages of one list that `page 1 of N` is believed."""


@dataclass(frozen=True, slots=True)
class DiscoverRule:
    """How pages of a retailer are found. CSS selectors for web pages, dotted paths for JSON."""

    mode: Mode
    site: str
    item: str | None = None
    items: str | None = None
    page: str | None = None
    pages: str | None = None
    next: str | None = None
    follow: str | None = None
    empty: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    depth: int = 5
    per_page: int = 50_000
    step: int = 0
    passes: int = 1
    trust_lastmod: bool = False


@dataclass(slots=True)
class Found:
    """What a page names, in its order, as canonical addresses. `dropped` counts what it named in vain, by why.

    `problem`: why what it names cannot be all of it. `modified`: when it says that they were last changed, where that
    is to be believed. `of_pages`: N, where it is one page of N.
    """

    items: list[str] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    next: str | None = None
    modified: dict[str, datetime] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    problem: str | None = None
    of_pages: int = 0

    def drop(self, why: str) -> None:
        """One more is left out for this reason."""
        self.dropped[why] = self.dropped.get(why, 0) + 1


@dataclass(frozen=True, slots=True)
class NotRead:
    """It names nothing that can be believed."""

    page_state: PageState | None
    failure_class: FailureClass
    reason: str


def read(response: Response, rule: DiscoverRule, *, first: str, depth: int, of_pages: int = 0) -> Found | NotRead:
    """What the page names. `first` is the address that its list began with. Never raises for any body.

    `of_pages`: N, as the page before it in `page 1 of N` had it.
    """
    try:
        return _read(response, rule, first, depth, of_pages)
    except UnreadablePage as error:
        return NotRead(PageState.WRONG_TEMPLATE, FailureClass.WRONG_TEMPLATE, f"unreadable page: {error}")


def page_types(rule: DiscoverRule) -> tuple[str, ...]:
    """The names of its pages; a list that is walked twice has one for each pass."""
    if rule.mode not in ("listing", "offset"):
        return (rule.mode,)
    return tuple(f"{rule.mode}-{number}" for number in range(1, rule.passes + 1))


def estimate(first: int, second: int, both: int) -> float:
    """How many items a list has, of which two independent looks saw so many (Chapman's estimator).

    >>> estimate(50, 50, 50), round(estimate(90, 90, 81), 1)
    (50.0, 100.0)
    """
    return (first + 1) * (second + 1) / (both + 1) - 1


def _read(response: Response, rule: DiscoverRule, first: str, depth: int, of_pages: int) -> Found | NotRead:
    refused = _refused(response)
    if refused is not None:
        return refused
    if rule.mode == "sitemap":
        return _sitemap(response, rule)
    data = _json(response)
    if data is not None:
        return _from_json(data, response, rule, first, depth)
    if rule.items is not None:
        return _instead(response, "the answer is no JSON")
    return _from_page(response, rule, first, depth, of_pages)


def _refused(response: Response) -> NotRead | None:
    document = Document.of(response)
    if not 200 <= response.status < 300:
        waits = response.status == 429 or (response.status == 503 and "retry-after" in response.headers)
        challenge = classify.challenge_mark if waits else classify.challenge
        finding = challenge(document) or classify.by_status(response.status)
        return NotRead(finding.page_state, finding.failure_class, finding.reason)
    if (redirected := classify.by_redirect(response)) is not None:
        finding = classify.challenge(document) or redirected
        return NotRead(finding.page_state, finding.failure_class, finding.reason)
    return None


def _instead(response: Response, missing: str) -> NotRead:
    """What the page is, where it is not what was looked for."""
    document = Document.of(response)
    found = classify.unexpected(document, response)
    if found is not None:
        return NotRead(found.page_state, found.failure_class, f"{found.reason} ({missing})")
    return NotRead(PageState.WRONG_TEMPLATE, FailureClass.WRONG_TEMPLATE, missing)


# Sitemaps and feeds


def _sitemap(response: Response, rule: DiscoverRule) -> Found | NotRead:
    try:
        sitemap = sitemaps.read(response.body, response.final_url)
    except (SyntaxError, ValueError) as error:
        return _instead(response, f"the sitemap cannot be read: {error}")
    found = Found()
    _keep(found, rule, sitemap.pages, found.items, response.final_url)
    _keep(found, rule, sitemap.maps, found.pages, response.final_url, filtered=False)
    for address, text in sitemap.changed.items() if rule.trust_lastmod else ():
        page, at = _canonical(address), modified_at(text)
        if page is not None and at is not None:
            found.modified[page] = at
    if sitemap.hidden:
        found.problem = f"it is no sound XML, and {sitemap.hidden} of its addresses cannot be read"
    if not sitemap.pages and not sitemap.maps:
        return _instead(response, "no sitemap, feed or list of addresses names a page")
    return found


# JSON


def _json(response: Response) -> Any | None:
    if response.body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return None
    try:
        return orjson.loads(response.body.lstrip(b"\xef\xbb\xbf"))
    except (orjson.JSONDecodeError, RecursionError):
        return None


def _at(data: Any, path: str | None) -> Any:
    """What stands at a dotted path, as `data.products` or `pages.0.url`; None without it."""
    for step in (path or "").split(".") if path else ():
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data


def _from_json(data: Any, response: Response, rule: DiscoverRule, first: str, depth: int) -> Found | NotRead:
    rows = _at(data, rule.items)
    if not isinstance(rows, list):
        return _instead(response, f"items: nothing is a list at {rule.items!r} of the answer")
    addresses = [address for row in rows if (address := _address(row, rule.item)) is not None]
    if len(addresses) < len(rows):
        return NotRead(
            PageState.WRONG_TEMPLATE,
            FailureClass.EXTRACTION,
            f"item: {len(rows) - len(addresses)} of {len(rows)} items have no address at {rule.item!r}",
        )
    found = Found()
    _keep(found, rule, addresses, found.items, first)
    following = _at(data, rule.next)
    if isinstance(following, str | int) and not isinstance(following, bool) and str(following).strip():
        found.next = _going_on(str(following).strip(), rule, first)
    if rule.mode == "offset" and rows:
        found.next = _offset_page(rule, first, depth)
    if not rows and not depth and (rule.empty is None or _at(data, rule.empty)):
        return _instead(response, f"items: the list at {rule.items!r} is empty on the first page")
    return found


def _address(row: Any, item: str | None) -> str | None:
    """An item's address: at the dotted path, or a template that names its values, as `/p/{id}`."""
    if item is not None and "{" in item:
        values = {name: _at(row, name) for name in re.findall(r"\{([^{}]+)\}", item)}
        if any(value is None or isinstance(value, dict | list) for value in values.values()):
            return None
        return re.sub(r"\{([^{}]+)\}", lambda match: quote(str(values[match[1]]), safe=""), item)
    value = _at(row, item)
    return value if isinstance(value, str) and value.strip() else None


def _going_on(cursor: str, rule: DiscoverRule, first: str) -> str | None:
    if rule.page is not None:
        return _further(rule, first, "cursor", cursor)
    return _canonical(urljoin(first, cursor))


# Web pages


def _from_page(response: Response, rule: DiscoverRule, first: str, depth: int, of_pages: int) -> Found | NotRead:
    document = Document.of(response)
    found = Found()
    hrefs = _hrefs(document, rule.item)
    _keep(found, rule, hrefs, found.items, document.base_url)
    if rule.mode == "links":
        return _linked(found, document, response, rule, depth)
    if not hrefs:
        if rule.empty is not None and document.has(rule.empty):
            return found
        # A listing that grew shorter meanwhile says so.
        shorter = depth and 0 < _page_count(document, rule) <= depth
        if not depth or (rule.mode == "listing" and not shorter):
            return _instead(response, f"item: {rule.item!r} finds no link, and nothing says that the list is empty")
    if rule.mode == "listing":
        _count_on(found, rule, first, depth, _page_count(document, rule) or of_pages)
    elif rule.mode == "offset":
        found.next = _offset_page(rule, first, depth) if hrefs else None
    elif following := _hrefs(document, rule.next):
        found.next = _canonical(urljoin(document.base_url, following[0]))
    return found


def _linked(found: Found, document: Document, response: Response, rule: DiscoverRule, depth: int) -> Found | NotRead:
    further = _hrefs(document, rule.follow)
    if depth < rule.depth:
        _keep(found, rule, further, found.pages, document.base_url, filtered=False)
    elif further:
        found.dropped["beyond depth"] = len(further)
    if not found.items and not found.pages and not depth:
        return _instead(response, f"neither item {rule.item!r} nor follow {rule.follow!r} finds a link")
    return found


def _count_on(found: Found, rule: DiscoverRule, first: str, depth: int, count: int) -> None:
    """The next page of `page 1 of N`. One after the other: in any order they miss whatever moves between."""
    found.of_pages = min(count, MANY_PAGES)
    if depth + 1 < found.of_pages:
        found.next = _further(rule, first, "page", str(depth + 2))
    if count > MANY_PAGES:
        found.problem = f"it counts {count} pages, of which {MANY_PAGES} are believed"


def _hrefs(document: Document, selector: str | None) -> list[str]:
    """The addresses of what the selector finds: its own, or its first link's."""
    if selector is None:
        return []
    found = []
    for node in document.tree.css(selector):
        link = node if node.attributes.get("href") is not None else node.css_first("a[href]")
        href = link.attributes.get("href") if link is not None else None
        if href is not None and (cleaned := re.sub(r"[\t\r\n]", "", href).strip()):
            found.append(cleaned)
    return found


def _page_count(document: Document, rule: DiscoverRule) -> int:
    """N of `page 1 of N`: the last number where the marker stands; 0 where none does."""
    if rule.pages is None:
        return 0
    texts = [node.text(separator=" ") for node in document.tree.css(rule.pages)]
    numbers = [
        int(number) for text in texts for number in re.findall(r"\d{1,9}", re.sub(r"(?<=\d)[.,\s](?=\d{3})", "", text))
    ]
    return numbers[-1] if numbers else 0


def _offset_page(rule: DiscoverRule, first: str, depth: int) -> str | None:
    return _further(rule, first, "offset", str((depth + 1) * rule.step))


def _further(rule: DiscoverRule, first: str, name: str, value: str) -> str | None:
    """A further page of the list that began with `first`; what is only a query joins what `first` asks for already."""
    template = rule.page or f"?{name}={{{name}}}"
    text = template.replace(f"{{{name}}}", quote(value, safe=""))
    if text.startswith("?"):
        new = parse_qsl(text[1:], keep_blank_values=True)
        replaced = {key for key, _ in new}
        old = [pair for pair in parse_qsl(urlsplit(first).query, keep_blank_values=True) if pair[0] not in replaced]
        text = "?" + urlencode([*old, *new])
    return _canonical(urljoin(first, text))


# Addresses


def _keep(
    found: Found,
    rule: DiscoverRule,
    addresses: Iterable[str],
    into: list[str],
    base: str,
    *,
    filtered: bool = True,
) -> None:
    """Those of the addresses that are pages of the site, once each; the others are counted by why."""
    seen = set(into)
    for address in addresses:
        why, page = _judged(rule, urljoin(base, address), filtered=filtered)
        if page is None:
            found.drop(why)
        elif page not in seen and len(into) >= rule.per_page:
            found.drop("beyond per_page")
            # Who follows links says so how many; a list that is cut is no whole.
            if rule.mode != "links":
                found.problem = f"it names more than {rule.per_page} addresses (urls.per_page)"
        elif page not in seen:
            seen.add(page)
            into.append(page)


def _judged(rule: DiscoverRule, address: str, *, filtered: bool) -> tuple[str, str | None]:
    page = _canonical(address)
    if page is None:
        return "no address of a page", None
    if not urls.within(rule.site, page):
        return "outside the site", None
    path = "/" + page.split("/", 3)[3] if page.count("/") > 2 else "/"
    segments = [segment for segment in path.partition("?")[0].split("/") if segment]
    # Who follows links may breed them; what a list names is its own word.
    if rule.mode == "links" and any(segments.count(segment) >= REPEATED_SEGMENTS for segment in set(segments)):
        return f"a path that repeats itself {REPEATED_SEGMENTS} times", None
    if filtered and rule.include and not _fits(path, rule.include):
        return "not in include", None
    if filtered and _fits(path, rule.exclude):
        return "in exclude", None
    return "", page


def _fits(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _canonical(address: str) -> str | None:
    try:
        return urls.canonical(address)
    except ValueError:
        return None


__all__ = ["BARREN_PAGES", "DiscoverRule", "Found", "NotRead", "estimate", "page_types", "read"]
