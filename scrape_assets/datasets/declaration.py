"""The declaration: dataset.yaml and the retailers' files as models, resolved, and the part of it that is frozen.

`DatasetFile` and `RetailerFile` are the files as they are written; `Dataset` and `Retailer` what they come to
when defaults, overrides and paths are resolved. `manifest` is what a run freezes of them; everything else is
live and takes effect at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from scrape_assets.datasets.units import Bytes, Name, Rate, Seconds, Site, interval_seconds
from scrape_assets.errors import DeclarationError
from scrape_assets.rules.keys import payload_hash
from scrape_assets.rules.retry import RetryPolicy
from scrape_assets.rules.spec import ExtractRule, PageRule
from scrape_assets.rules.windows import WindowRule

PRODUCT = "scrape_assets"
"""Our name towards the sites."""

_OWNED_HEADERS = frozenset(
    {
        *("accept-encoding", "connection", "content-length", "expect", "host", "te", "trailer"),
        *("transfer-encoding", "upgrade", "user-agent"),
    }
)
_SECRET_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization"))


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
            raise ValueError(f"{name!r} is not a header name")
        if name.lower() in _OWNED_HEADERS:
            raise ValueError(f"{name!r} is set by the collector itself; remove it (contact: goes into the user agent)")
        if name.lower() in _SECRET_HEADERS:
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


class FetchRule(_Declared):
    """How pages are asked for. `via`, `headers` and `allow_private` are frozen with a run, the rest is live."""

    via: Literal["http"] = "http"
    rate: Rate = Field(default="5/s", description="requests per time and origin, as 5/s, 30/min or none")
    concurrency: int = Field(default=8, ge=1, le=256)
    timeout_seconds: Seconds = Field(default=60.0, alias="timeout")
    max_body_bytes: Bytes = Field(default=10_000_000, alias="max_body")
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)
    allow_private: bool = False

    @property
    def interval_seconds(self) -> float:
        """Seconds between the starts of two requests; 0 without a rate."""
        return interval_seconds(self.rate)


class AcceptRule(_Declared):
    """When a retailer's rows are good enough. Without `required`, what the schema requires."""

    coverage: float = Field(default=0.995, gt=0, le=1, allow_inf_nan=False)
    required: tuple[str, ...] | None = None


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


class FilesDestination(_Declared):
    """A folder that versions are written to; a relative path counts from the project folder."""

    path: Annotated[Path, AfterValidator(_path)]
    format: Literal["parquet", "csv", "jsonl"]


class Destination(_Declared):
    """One place that versions are delivered to."""

    files: FilesDestination


class PublishRule(_Declared):
    """When a version is made, and where it goes."""

    when: Literal["complete"] = "complete"
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


class UrlsRule(_Declared):
    """Where the pages are listed: an inventory file in the dataset's folder or beside the retailer's file."""

    file: str = Field(min_length=1)


class RetailerFile(_Declared):
    """One retailer's file as it is written; the file's name is the retailer's."""

    site: Site = Field(description="the site's address, as https://www.shop.example")
    basis: str = ""
    urls: UrlsRule = Field(description="{file: inventory.csv}")
    key: tuple[str, ...] = ()
    fetch: FetchRule = Field(default_factory=FetchRule)
    product: PageRule = Field(default_factory=PageRule)
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
    inventory_path: Path
    key: tuple[str, ...]
    fetch: FetchRule
    product: PageRule
    accept: AcceptRule


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

    def accept_for(self, retailer: str) -> RequiredRule:
        """The acceptance rule of a retailer; the dataset's own for one that is no longer declared."""
        found = self.retailers.get(retailer)
        rule = found.accept if found else self.accept
        return RequiredRule(rule.coverage, rule.required or ())

    def accept_rules(self, retailer: str) -> dict[str, Any]:
        """The same as JSON, with the schema: what a verdict was reached under."""
        rule = self.accept_for(retailer)
        return {"coverage": rule.coverage, "required": list(rule.required), "schema": self.schema_columns}


@dataclass(frozen=True, slots=True)
class RequiredRule:
    """An acceptance rule with nothing left to default."""

    coverage: float
    required: tuple[str, ...]


def user_agent(contact: str) -> str:
    """How we name ourselves: never as a browser, and with the address of a person to ask."""
    return f"{PRODUCT} (+{contact})" if contact else PRODUCT


def request_headers(dataset: Dataset, retailer: Retailer) -> dict[str, str]:
    """The headers of every request of this retailer, names in lower case."""
    return {
        **{name.lower(): value for name, value in retailer.fetch.headers.items()},
        "user-agent": user_agent(dataset.contact),
    }


def extract_rule(dataset: Dataset, retailer: Retailer) -> ExtractRule:
    """What an extraction process needs to know of this retailer."""
    return ExtractRule(retailer=retailer.name, page=retailer.product, key=retailer.key, schema_name=dataset.schema_name)


def manifest(dataset: Dataset, retailer: Retailer) -> dict[str, Any]:
    """The frozen part: scope, fetch identity, extraction, entity and schema, resolved.

    Keys without a value are left out, so that a key which a later version adds changes no running run.
    """
    return {
        "scope": {"site": retailer.site, "urls": retailer.urls.model_dump()},
        "fetch": {
            "via": retailer.fetch.via,
            "headers": dict(retailer.fetch.headers),
            "allow_private": retailer.fetch.allow_private,
        },
        "extract": _extract_block(dataset, retailer),
        "entity": {"key": list(retailer.key)},
        "schema": {"name": dataset.schema_name, "columns": dataset.schema_columns},
    }


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
    return extract_rule(dataset, retailer).model_dump(mode="json", exclude_none=True)
