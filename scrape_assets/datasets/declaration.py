"""The declaration: dataset.yaml and the retailers' files as models, resolved, and the part of it that is frozen.

`DatasetFile` and `RetailerFile` are the files as they are written; `Dataset` and `Retailer` what they come to
when defaults, overrides and paths are resolved. `manifest` is what a run freezes of them; everything else is
live and takes effect at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from scrape_assets.datasets.contexts import Context, ContextFile, ContextRule
from scrape_assets.datasets.discovery import UrlsRule
from scrape_assets.datasets.units import (
    USER_IN_ADDRESS,
    Bytes,
    Name,
    Rate,
    Seconds,
    Share,
    Site,
    holds_user,
    interval_seconds,
    seconds,
)
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import subrequests, urls, windows
from scrape_assets.rules.acceptance import Limits
from scrape_assets.rules.budget import Budget, strictest
from scrape_assets.rules.discover import DiscoverRule
from scrape_assets.rules.keys import payload_hash
from scrape_assets.rules.retry import RetryPolicy
from scrape_assets.rules.spec import CssSelector, ExtractRule, PageRule
from scrape_assets.rules.states import PageState
from scrape_assets.rules.subrequests import Look
from scrape_assets.rules.versions import Policy
from scrape_assets.rules.windows import WindowRule

PRODUCT = "scrape_assets"
"""Our name towards the sites."""

BROWSER_LEASE_SECONDS = 180.0
"""How long a page that a browser shows is leased for, where nothing is declared (protocol)."""

_OWNED_HEADERS = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "expect", "host", "te", "trailer"),
        *("transfer-encoding", "upgrade", "user-agent"),
    }
)
_SECRET = re.compile(r"auth|cookie|token|secret|passw|credential|signature|session|api[-_]?key", re.IGNORECASE)
"""Parts of names that say: what follows is a secret."""

_SECRET_PARAMETERS = frozenset(("key", "pass", "pwd", "sig", "code", "access_key"))


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is not a header name")
        if name.lower() in _OWNED_HEADERS:
            raise ValueError(f"{name!r} is set by the collector itself; remove it (contact: goes into the user agent)")
        if _SECRET.search(name):
            raise ValueError(f"{name!r} carries a secret, and a declaration is stored and shown; remove it")
        if not re.fullmatch(r"[\x20-\x7e]*", value):
            raise ValueError(f"{name!r} has a value of other than printable ASCII characters")
    return headers


def _contact(contact: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]*", contact) or re.search(r"[()\\]", contact):
        raise ValueError(f"{contact!r} does not fit into a user agent; expected an address, as https://example.com/bot")
    return contact


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _path(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"{str(path)!r}: {error}") from error


def _host(host: str) -> str:
    try:
        if host != host.lower() or subrequests.allowed_site(host).partition("//")[2] != host:
            raise ValueError("the name alone, perhaps with a port, in lower case")
    except ValueError as error:
        raise ValueError(f"{host!r} is no host: {error}; expected one as api.shop.example") from error
    return host


class FetchRule(_Declared):
    """How pages are asked for.

    Frozen with a run are `via`, `headers` and `allow_private`, and what a browser shows: `wait_for`, `block` and
    `hosts`. The rest is live.
    """

    via: Literal["http", "browser"] = "http"
    rate: Rate = Field(default="5/s", description="requests per time and origin, as 5/s, 30/min or none")
    concurrency: int = Field(default=8, ge=1, le=256, description="requests in flight per origin, over all workers")
    timeout_seconds: Seconds = Field(default=60.0, alias="timeout")
    max_body_bytes: Bytes = Field(default=10_000_000, alias="max_body")
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)
    allow_private: bool = False
    gap: Literal["start", "response"] = Field(
        default="start", description="what the rate's gap counts from: the last request's start, or its answer's end"
    )
    per_day: int | None = Field(default=None, ge=1, description="requests of one day (UTC)")
    open_tasks: int = Field(
        default=250_000, ge=1, description="open tasks of a retailer at one origin; what else is known waits for room"
    )
    revalidate: bool = Field(
        default=True, description="whether a site that tells by ETag or Last-Modified is asked for changed pages only"
    )
    robots: Literal["obey", "ignore"] = Field(default="obey", description="whether robots.txt is obeyed")
    wait_for: CssSelector | None = Field(default=None, description="CSS selector of what scripts put on the page")
    block: tuple[subrequests.Blockable, ...] = Field(
        default=("font", "image", "media"), description="kinds of requests that a page does not make"
    )
    hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = Field(
        default=(), description="others that a page may ask, as api.shop.example"
    )
    max_requests: int = Field(default=200, ge=1, le=5000, description="of one page, itself included")

    @property
    def look(self) -> Look:
        """How a browser looks at a page."""
        return Look(self.wait_for, frozenset(self.block), tuple(self.hosts), self.max_requests)

    @property
    def interval_seconds(self) -> float:
        """Seconds between the starts of two requests; 0 without a rate."""
        return interval_seconds(self.rate)


class RangeRule(_Declared):
    """The ends between which every present value lies; either may be left out."""

    min: float | None = Field(default=None, allow_inf_nan=False)
    max: float | None = Field(default=None, allow_inf_nan=False)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("a range has no end; expected min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


class DriftRule(_Declared):
    """How far a window may lie from the last accepted ones."""

    rows: Share = Field(default=0.05, description="around the median number of rows, as 5%")
    moved: Share = Field(default=0.3, description="of the prices that may have moved, as 20%")
    over: int = Field(default=7, ge=1, le=60, description="how many accepted windows are looked at")


class AcceptRule(_Declared):
    """When a retailer's rows are good enough. Without `required`, what the schema requires."""

    coverage: Share = Field(default=0.995, gt=0)
    required: tuple[str, ...] | None = None
    fill: dict[str, Share] = Field(default_factory=dict, description="share of rows that have a field, as {gtin: 80%}")
    ranges: dict[str, RangeRule] = Field(default_factory=dict, description="as {price: {min: 0.5, max: 5000}}")
    unique: tuple[str, ...] = Field(default=(), description="fields of which no two rows have the same value")
    drift: DriftRule = Field(default_factory=DriftRule)
    warm_up: int = Field(default=3, ge=1, le=60, description="accepted windows before drift holds anything back")
    gone: Share | None = Field(default=None, description="of pages that may be gone; else three times the usual share")
    page_states: dict[PageState, Share] = Field(default_factory=dict, description="as {challenge: 1%}")
    template: Share = Field(default=0.1, description="of pages that may be laid out as never before")
    source_age_seconds: Seconds | None = Field(
        default=None, alias="source_age", description="how old source_revised_at may be, as 30d"
    )
    canary: int | None = Field(default=None, ge=1, description="so many pages first; the rest only if they are good")
    mode: Literal["gate", "dry_run"] = Field(default="gate", description="dry_run only says what it would have blocked")
    on_unrepaired: Literal["keep", "withdraw"] = Field(
        default="keep", description="published rows of a page that cannot be read again"
    )

    @property
    def limits(self) -> Limits:
        """The same for `rules.acceptance`."""
        return Limits(
            coverage=self.coverage,
            required=self.required or (),
            fill=dict(self.fill),
            ranges={name: (ends.min, ends.max) for name, ends in self.ranges.items()},
            unique=self.unique,
            drift_rows=self.drift.rows,
            drift_moved=self.drift.moved,
            drift_over=self.drift.over,
            warm_up=self.warm_up,
            gone=self.gone,
            page_states={str(state): limit for state, limit in self.page_states.items()},
            template=self.template,
            source_age_seconds=self.source_age_seconds,
            canary=self.canary or 0,
            dry_run=self.mode == "dry_run",
            keep_unverified=self.on_unrepaired == "keep",
        )


class RetryRule(_Declared):
    """How often a task is tried and how the pauses grow."""

    attempts: int = Field(default=5, ge=1, le=100)
    base_seconds: Seconds = Field(default=30.0, alias="base")
    cap_seconds: Seconds = Field(default=1800.0, alias="cap")

    @property
    def policy(self) -> RetryPolicy:
        """The same for `rules.retry`."""
        return RetryPolicy(self.attempts, self.base_seconds, self.cap_seconds)


class LeaseRule(_Declared):
    """How long a worker may be silent, and how long one task may take in all."""

    lease_seconds: Seconds = Field(default=90.0, alias="for")
    deadline_seconds: Seconds = Field(default=900.0, alias="task_deadline")

    def seconds_for(self, fetch: FetchRule) -> float:
        """How long a task of a retailer that is fetched so is leased for; what is declared holds for all."""
        if fetch.via == "browser" and "lease_seconds" not in self.model_fields_set:
            return BROWSER_LEASE_SECONDS
        return self.lease_seconds


class FilesDestination(_Declared):
    """A folder that versions are written to; a relative path counts from the project folder."""

    path: Annotated[Path, AfterValidator(_path)]
    format: Literal["parquet", "csv", "jsonl"]
    payload: Literal["full", "delta"] = "full"


def _environment_name(value: str) -> str:
    match = re.fullmatch(r"env:([A-Z][A-Z0-9_]*)", value)
    if match is None:
        raise ValueError("a secret stands in the environment, never in a file; expected env:NAME, as env:PRICES_SECRET")
    return match[1]


EnvironmentName = Annotated[str, AfterValidator(_environment_name)]


def _without_secrets(value: str) -> None:
    """ValueError for an address that holds a secret, without saying it."""
    if holds_user(value):
        raise ValueError(f"{USER_IN_ADDRESS}. `secret: env:NAME` signs what is sent")
    for name, _ in parse_qsl(urlsplit(value).query, keep_blank_values=True):
        if _SECRET.search(name) or name.lower() in _SECRET_PARAMETERS:
            raise ValueError(
                f"the address has the parameter {name!r}, which looks like a secret, and a declaration is stored and "
                "shown; remove it. `secret: env:NAME` signs what is sent; a secret in an address or header is not "
                "supported yet"
            )


def _endpoint(value: str) -> str:
    _without_secrets(value)
    try:
        urls.canonical(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is no address: {error}; expected one as https://api.example.com/prices") from error
    return value.rstrip("/")


def _find(value: str) -> str:
    _without_secrets(value)
    if "{key}" not in value or re.search(r"\{(?!url\}|key\})", value):
        raise ValueError(f"{value!r} names no key; expected an address with {{key}}, as {{url}}/{{key}}, or none")
    return value


def _table(value: str) -> str:
    if not re.fullmatch(r"([A-Za-z_]\w*\.)?[A-Za-z_]\w*", value, re.ASCII):
        raise ValueError(f"{value!r} is not a table; expected its name, as analytics.prices")
    return value


def _by(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value, re.ASCII):
        return value
    try:
        return seconds(value)
    except ValueError as error:
        raise ValueError(f'{value!r} is not a time; expected "HH:MM" or a duration after the start, as 3h') from error


class HttpDestination(_Declared):
    """An endpoint that takes versions by POST, signed as Standard Webhooks has it."""

    url: Annotated[str, AfterValidator(_endpoint)]
    secret: EnvironmentName | None = Field(default=None, description="env:NAME of a whsec_... secret")
    payload: Literal["full", "delta", "notice"] = "full"
    find: Annotated[str, AfterValidator(_find)] | Literal["none"] = Field(
        default="{url}/{key}", description="where it is asked whether it has a key; none: it cannot be asked"
    )
    at_least_once: bool = Field(default=False, description="it takes no keys, and may get a version twice")
    timeout_seconds: Seconds = Field(default=30.0, alias="timeout")

    @model_validator(mode="after")
    def _can_be_settled(self) -> Self:
        if self.find == "none" and not self.at_least_once:
            raise ValueError(
                "find is none, so that nobody can tell whether a version arrived; expected at_least_once: true, "
                "which says that it may arrive twice, or a find"
            )
        return self


class PostgresDestination(_Declared):
    """A table of the user's own that versions are upserted into, by entity, guarded by window and version."""

    url: EnvironmentName = Field(description="env:NAME of a postgresql:// URL")
    table: Annotated[str, AfterValidator(_table)] = Field(description="as analytics.prices; made where it is missing")
    payload: Literal["full", "delta"] = "full"


class Destination(_Declared):
    """One place that versions are delivered to."""

    files: FilesDestination | None = None
    http: HttpDestination | None = None
    postgres: PostgresDestination | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.files, self.http, self.postgres)) != 1:
            raise ValueError("expected exactly one of files, http and postgres")
        return self


class PublishRule(_Declared):
    """When a version is made, and where it goes."""

    when: Policy = "complete"
    by: Annotated[str | float | None, BeforeValidator(_by)] = Field(
        default=None,
        description='when consumers count on a version: "09:00" in the window\'s zone, or 3h after its start',
    )
    to: dict[Name, Destination] = Field(default_factory=dict)


class DefaultsRule(_Declared):
    """What holds for every retailer that does not say otherwise."""

    fetch: FetchRule = Field(default_factory=FetchRule)


class DatasetFile(_Declared):
    """dataset.yaml as it is written."""

    dataset: Name = Field(description="the name of its folder")
    owner: str = ""
    contact: Annotated[str, AfterValidator(_contact)] = ""
    window: WindowRule = Field(description='{every: day, at: "06:00", timezone: Europe/Madrid, start: 2026-11-01}')
    schema_name: str = Field(default="product_offer", alias="schema")
    accept: AcceptRule = Field(default_factory=AcceptRule)
    publish: PublishRule = Field(default_factory=PublishRule)
    retry: RetryRule = Field(default_factory=RetryRule)
    lease: LeaseRule = Field(default_factory=LeaseRule)
    deadline_seconds: Seconds | None = Field(
        default=None, alias="deadline", description="how long after its window's end a retailer may collect, as 36h"
    )
    defaults: DefaultsRule = Field(default_factory=DefaultsRule)


class RetailerFile(_Declared):
    """One retailer's file as it is written; the file's name is the retailer's."""

    site: Site = Field(description="the site's address, as https://www.shop.example")
    basis: str = ""
    urls: UrlsRule = Field(description="{file: inventory.csv}, or sitemap, listing, cursor, links, offset")
    key: tuple[str, ...] = ()
    fetch: FetchRule = Field(default_factory=FetchRule)
    product: PageRule = Field(default_factory=PageRule)
    contexts: dict[Name, ContextFile] = Field(
        default_factory=dict, description='{madrid: {postcode: "28001"}}: every page is asked for in each of them'
    )
    context: ContextRule = Field(default_factory=ContextRule, description="how they are set up and proved")
    accept: AcceptRule = Field(default_factory=AcceptRule)


@dataclass(frozen=True, slots=True)
class Retailer:
    """One retailer, resolved: the dataset's defaults under its own values.

    Without a `key`, a page is one entity: the inventory's `entity`, else the page's canonical URL, identifies it.
    """

    name: str
    file: Path
    site: str
    basis: str
    urls: UrlsRule
    inventory_path: Path | None
    key: tuple[str, ...]
    fetch: FetchRule
    product: PageRule
    accept: AcceptRule
    contexts: Mapping[str, Context] = field(default_factory=dict)

    @property
    def page_functions(self) -> list[str]:
        """What of pages.py it uses: the page object, and what takes part in setting up a context."""
        used = [self.product.page_object, *(context.page_function for context in self.contexts.values())]
        return sorted({reference for reference in used if reference})


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset, resolved. `columns` are the schema's, `schema_columns` what they must hold, as JSON."""

    dataset: str
    folder: Path
    owner: str
    contact: str
    window: WindowRule
    schema_name: str
    columns: tuple[str, ...]
    schema_columns: dict[str, Any]
    accept: AcceptRule
    publish: PublishRule
    retry: RetryRule
    lease: LeaseRule
    deadline_seconds: float | None
    retailers: dict[str, Retailer]

    def _accept(self, retailer: str) -> AcceptRule:
        """The rule of a retailer; the dataset's own for one that is no longer declared."""
        found = self.retailers.get(retailer)
        return found.accept if found else self.accept

    def accept_for(self, retailer: str) -> Limits:
        """What a retailer is judged by."""
        return self._accept(retailer).limits

    def accept_rules(self, retailer: str) -> dict[str, Any]:
        """The same as JSON, with the schema: what a verdict was reached under."""
        rule = self._accept(retailer).model_dump(mode="json", by_alias=True, exclude={"canary", "on_unrepaired"})
        declared = self.retailers.get(retailer)
        expect = {"expect": declared.urls.expect} if declared and declared.urls.expect else {}
        return {**rule, **expect, "required": list(rule["required"] or ()), "schema": self.schema_columns}

    def budget(self, origin: str) -> Budget:
        """What the origin may be asked by all retailers together whose site it belongs to, or whose pages ask it."""
        rules = [
            one.fetch
            for one in self.retailers.values()
            if subrequests.scope(origin, site=one.site, hosts=one.fetch.hosts if one.fetch.via == "browser" else ())
        ]
        return strictest(
            Budget(
                rule.interval_seconds,
                rule.concurrency,
                rule.gap == "response",
                rule.per_day,
                self.retry.base_seconds,
                rule.robots == "obey",
                self.dataset,
            )
            for rule in rules or [FetchRule()]
        )

    def promised_at(self, window_start: datetime) -> datetime | None:
        """When consumers count on a version of the window that begins then; None where nothing is promised."""
        by = self.publish.by
        return None if by is None else windows.promised_at(self.window, window_start, by)


def user_agent(contact: str) -> str:
    """How we name ourselves: never as a browser, and with the address of a person to ask."""
    return f"{PRODUCT} (+{contact})" if contact else PRODUCT


def request_headers(dataset: Dataset, retailer: Retailer) -> dict[str, str]:
    """The headers of every request of this retailer, names in lower case."""
    return {
        **{name.lower(): value for name, value in retailer.fetch.headers.items()},
        "user-agent": user_agent(dataset.contact),
    }


def discover_rule(retailer: Retailer) -> DiscoverRule | None:
    """How its pages are found; None where a file lists them."""
    return None if retailer.urls.mode == "file" else retailer.urls.rule(retailer.site)


def extract_rule(dataset: Dataset, retailer: Retailer) -> ExtractRule:
    """What an extraction process needs to know of this retailer."""
    return ExtractRule(
        retailer=retailer.name,
        page=retailer.product,
        key=retailer.key,
        schema_name=dataset.schema_name,
        proofs={name: context.prove for name, context in retailer.contexts.items()},
    )


def manifest(dataset: Dataset, retailer: Retailer) -> dict[str, Any]:
    """The frozen part: scope, fetch identity, extraction, entity and schema, resolved.

    Keys without a value are left out, so that a key which a later version adds changes no running run.
    """
    contexts = {name: one.model_dump(mode="json", exclude_none=True) for name, one in retailer.contexts.items()}
    return {
        "scope": {
            "site": retailer.site,
            "urls": retailer.urls.model_dump(mode="json", exclude_defaults=True, exclude={"expect"}),
            # Which tasks there are; what each context is made of stands below.
            **({"contexts": sorted(contexts)} if contexts else {}),
        },
        **({"contexts": contexts} if contexts else {}),
        "fetch": _fetch_identity(retailer.fetch),
        "extract": _extract_block(dataset, retailer),
        "entity": {"key": list(retailer.key)},
        "schema": {"name": dataset.schema_name, "columns": dataset.schema_columns},
    }


def _fetch_identity(fetch: FetchRule) -> dict[str, Any]:
    identity: dict[str, Any] = {"via": fetch.via, "headers": dict(fetch.headers)}
    identity["allow_private"] = fetch.allow_private
    if fetch.via == "browser":
        identity |= {"wait_for": fetch.wait_for, "block": sorted(fetch.block), "hosts": sorted(fetch.hosts)}
    return identity


def thaw(dataset: Dataset, retailer: Retailer, frozen: Mapping[str, Any]) -> tuple[Dataset, Retailer]:
    """The declaration with its frozen part as that manifest has it; what is live stays as it stands now."""
    try:
        extract = ExtractRule.model_validate(frozen["extract"])
    except ValidationError as error:
        raise DeclarationError(
            f"what {retailer.name} was planned with is nothing that this version can read: {error.errors()[0]['msg']}"
        ) from error
    return (
        replace(dataset, schema_name=extract.schema_name),
        replace(
            retailer,
            site=frozen["scope"]["site"],
            urls=UrlsRule.model_validate(frozen["scope"]["urls"]),
            key=extract.key,
            fetch=retailer.fetch.model_copy(update=frozen["fetch"]),
            product=extract.page,
            contexts={name: Context.model_validate(one) for name, one in frozen.get("contexts", {}).items()},
        ),
    )


def manifest_text(frozen: Mapping[str, Any]) -> str:
    """The manifest as text, the same for equal manifests."""
    return orjson.dumps(frozen, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2).decode()


def extractor_version(dataset: Dataset, retailer: Retailer, sources: Mapping[str, str]) -> str:
    """Twelve hex digits over the extract block and, where a page object extracts, the sources of pages.py."""
    used = dict(sources) if retailer.product.page_object else {}
    return payload_hash({"extract": _extract_block(dataset, retailer), "sources": used})[:12]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The dotted keys at which two manifests differ, in order."""
    return sorted(set(_differences(old, new, "")))


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key in {*old, *new}:
        one, other = old.get(key), new.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differences(one, other, f"{prefix}{key}.")
        elif one != other or (key in old) != (key in new):
            yield f"{prefix}{key}"


def _extract_block(dataset: Dataset, retailer: Retailer) -> dict[str, Any]:
    block = extract_rule(dataset, retailer).model_dump(mode="json", exclude_none=True)
    return block if block["proofs"] else {name: value for name, value in block.items() if name != "proofs"}
