"""What a row must be: the built-in `product_offer`, or the user's own pandera model in pages.py.

Rows reach a schema as they are stored: exact text, whole numbers, lists, or null. The built-in one judges that
text and changes nothing; a user's schema has its declared types applied first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrape_assets.datasets import page_objects
from scrape_assets.errors import DeclarationError
from scrape_assets.rules.currency import live_codes

if TYPE_CHECKING:
    import pandera.pandas as pa

    from scrape_assets.datasets.declaration import Dataset

PRODUCT_OFFER = "product_offer"

AVAILABILITIES = ("in_stock", "out_of_stock", "preorder", "backorder", "limited", "discontinued", "unknown")

PRODUCT_OFFER_COLUMNS: dict[str, str] = {
    "name": "text",
    "url": "url",
    "sku": "text",
    "gtin": "gtin",
    "mpn": "text",
    "brand": "text",
    "variant": "text",
    "seller": "text",
    "condition": "text",
    "price": "money",
    "list_price": "money",
    "currency": "currency",
    "unit_price": "money",
    "unit": "text",
    "promotion": "text",
    "availability": "availability",
    "rating": "number",
    "review_count": "count",
    "image_url": "url",
    "source_revised_at": "time",
}
"""The built-in schema: each column and what its values are."""

PRODUCT_OFFER_REQUIRED = ("name", "price", "currency")
"""Required by default; price and currency only of offers that can be bought."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_GTIN = re.compile(r"\d{8}|\d{12,14}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?", re.ASCII)

_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("text, not blank", lambda value: isinstance(value, str) and bool(value.strip())),
    "url": ("an http or https address", lambda value: isinstance(value, str) and bool(re.match(r"https?://[^/\s]", value))),
    "gtin": ("8, 12, 13 or 14 digits", lambda value: isinstance(value, str) and bool(_GTIN.fullmatch(value))),
    "money": ("a plain decimal number", lambda value: isinstance(value, str) and bool(_NUMBER.fullmatch(value))),
    "number": ("a plain decimal number", lambda value: _is_int(value) or isinstance(value, str) and bool(_NUMBER.fullmatch(value))),
    "count": ("a whole number from 0", lambda value: _is_int(value) and value >= 0 or isinstance(value, str) and value.isdecimal()),
    "currency": ("a current ISO 4217 code", lambda value: value in live_codes()),
    "availability": ("one of " + ", ".join(AVAILABILITIES), lambda value: value in AVAILABILITIES),
    "time": ("an ISO 8601 time", lambda value: isinstance(value, str) and bool(_TIME.fullmatch(value))),
}  # fmt: skip


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def load(dataset: Dataset) -> pa.DataFrameSchema:
    """The dataset's schema, ready to validate frames; its `name` is the declared one."""
    return of(dataset.schema_name, dataset.folder)


def of(schema_name: str, folder: Path) -> pa.DataFrameSchema:
    """The schema of this name; DeclarationError with one line when it is neither built in nor in pages.py."""
    if schema_name == PRODUCT_OFFER:
        return _product_offer()
    return _users(schema_name, folder)


def describe(schema_name: str, folder: Path) -> dict[str, Any]:
    """Each column and what it must hold, as JSON: the schema's resolved text in a manifest."""
    if schema_name == PRODUCT_OFFER:
        return dict(PRODUCT_OFFER_COLUMNS)
    return {
        name: {
            "dtype": str(column.dtype),
            "nullable": column.nullable,
            "required": column.required,
            "checks": sorted(_check_text(check) for check in column.checks),
        }
        for name, column in _users(schema_name, folder).columns.items()
    }


def required(schema_name: str, columns: dict[str, Any]) -> tuple[str, ...]:
    """The columns that every row must have by default, from the schema's description."""
    if schema_name == PRODUCT_OFFER:
        return PRODUCT_OFFER_REQUIRED
    return tuple(name for name, column in columns.items() if column["required"] and not column["nullable"])


def _check_text(check: Any) -> str:
    return f"{check.name}({', '.join(f'{key}={value!r}' for key, value in sorted(check.statistics.items()))})"


@cache
def _product_offer() -> pa.DataFrameSchema:
    # pandera and pandas take seconds to import; only judging rows needs them.
    import pandera.pandas as pa

    def column(kind: str) -> pa.Column:
        said, holds = _KINDS[kind]
        return pa.Column(
            object, checks=pa.Check(holds, element_wise=True, name=kind, error=said), nullable=True, required=True
        )

    return pa.DataFrameSchema({name: column(kind) for name, kind in PRODUCT_OFFER_COLUMNS.items()}, name=PRODUCT_OFFER)


def _users(reference: str, folder: Path) -> pa.DataFrameSchema:
    import pandera.pandas as pa

    if not reference.startswith(page_objects.PAGES + ":"):
        raise DeclarationError(f"schema {reference!r} is unknown; expected {PRODUCT_OFFER}, or pages.py:Name of your own")
    found = page_objects.attribute(folder, reference)
    try:
        if isinstance(found, type) and issubclass(found, pa.DataFrameModel):
            found = found.to_schema()
        if not isinstance(found, pa.DataFrameSchema):
            raise DeclarationError(f"{reference} is a {type(found).__name__}; expected a pandera DataFrameModel or DataFrameSchema")
    except DeclarationError:
        raise
    except Exception as error:
        raise DeclarationError(f"{reference} is not a usable pandera schema: {' '.join(str(error).split())[:300]}") from error
    if not found.columns:
        raise DeclarationError(f"{reference} has no columns")
    # Rows come as text: the declared types are applied, and what cannot be coerced fails.
    schema = copy(found)
    schema.coerce = True
    schema.name = reference
    return schema
