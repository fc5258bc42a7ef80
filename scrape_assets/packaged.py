"""Files that come with the product: inside the package in a wheel, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def path(name: str) -> Path:
    """The packaged file or folder of that name (`sql`, `dagster.yaml`, ...)."""
    inside = _PACKAGE / "_packaged" / name
    return inside if inside.exists() else _PACKAGE.parent / name
