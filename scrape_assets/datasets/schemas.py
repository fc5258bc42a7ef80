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

OURS = frozenset(
    "dataset window dataset_version retailer context entity_key page observed_at known_at extractor_version change"
    " unverified _artifact _payload_hash".split()
)
"""Columns that a row has besides those of its schema, in a frame or in a delivered file."""

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


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _matches(pattern: str) -> Callable[[Any], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and bool(compiled.fullmatch(value))


_is_number = _matches(r"-?\d+(\.\d+)?")
_is_count = _matches(r"\d+")

_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("text, not blank", _is_text),
    "url": ("an http or https address", _matches(r"https?://[^/\s][\S\s]*")),
    "gtin": ("8, 12, 13 or 14 digits", _matches(r"\d{8}|\d{12,14}")),
    "money": ("a plain decimal number", _is_number),
    "number": ("a plain decimal number", lambda value: _is_int(value) or _is_number(value)),
    "count": ("a whole number from 0", lambda value: (_is_int(value) and value >= 0) or _is_count(value)),
    "currency": ("a current ISO 4217 code", lambda value: value in live_codes()),
    "availability": ("one of " + ", ".join(AVAILABILITIES), lambda value: value in AVAILABILITIES),
    "time": (
        "an ISO 8601 time",
        _matches(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?"),
    ),
}
"""What each kind of column holds, in words and as a test of one value."""


_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


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
    import pandera.pandas as pa  # noqa: PLC0415

    def column(kind: str) -> pa.Column:
        said, holds = _KINDS[kind]
        return pa.Column(
            object, checks=pa.Check(holds, element_wise=True, name=kind, error=said), nullable=True, required=True
        )

    return pa.DataFrameSchema({name: column(kind) for name, kind in PRODUCT_OFFER_COLUMNS.items()}, name=PRODUCT_OFFER)


def _users(reference: str, folder: Path) -> pa.DataFrameSchema:
    import pandera.pandas as pa  # noqa: PLC0415, as above

    if not reference.startswith(page_objects.PAGES + ":"):
        raise DeclarationError(
            f"schema {reference!r} is unknown; expected {PRODUCT_OFFER}, or pages.py:Name of your own"
        )
    found = page_objects.attribute(folder, reference)
    try:
        if isinstance(found, type) and issubclass(found, pa.DataFrameModel):
            found = found.to_schema()
        if not isinstance(found, pa.DataFrameSchema):
            raise DeclarationError(
                f"{reference} is a {type(found).__name__}; expected a pandera DataFrameModel or DataFrameSchema"
            )
    except DeclarationError:
        raise
    except Exception as error:
        raise DeclarationError(
            f"{reference} is not a usable pandera schema: {' '.join(str(error).split())[:300]}"
        ) from error
    if not found.columns:
        raise DeclarationError(f"{reference} has no columns")
    if taken := sorted(OURS.intersection(found.columns)):
        raise DeclarationError(
            f"{reference} has columns named {', '.join(taken)}, which every row has already; name them otherwise"
        )
    # Rows come as text: the declared types are applied, and what cannot be coerced fails.
    schema = copy(found).update_columns(
        {name: {"dtype": dtype} for name, column in found.columns.items() if (dtype := _with_nulls(column))}
    )
    schema.coerce = True
    schema.strict = False  # every row has columns of ours besides the schema's
    schema.drop_invalid_rows = False  # such a row decides the verdict; dropped, it would be published all the same
    schema.name = reference
    return schema


def _with_nulls(column: Any) -> str | None:
    """The type that can hold a null where NumPy's cannot: an int would fail for it, a bool would become False."""
    kind = str(column.dtype)
    if kind == "bool":
        return "boolean"
    return kind.replace("i", "I", 1).replace("u", "U", 1) if column.nullable and kind in _INTEGERS else None
