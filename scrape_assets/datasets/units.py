"""How durations, sizes, rates, names and addresses are written in a declaration, and what they mean."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from scrape_assets.rules import urls

NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,39}"
"""Dataset, retailer, page type and destination names: safe in partition keys, paths and file names."""

_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_BYTES = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", re.ASCII)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*([a-z]+)", re.ASCII)


def _measure(value: Any, units: dict[str, Any], what: str, example: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in units or float(match[1]) == 0:
        raise ValueError(f"{value!r} is not {what}; expected a number above zero and its unit, as {example}")
    return float(match[1]) * float(units[match[2]])


def seconds(value: Any) -> float:
    """The duration in seconds.

    >>> seconds("90s"), seconds("15m"), seconds("2h"), seconds("14d"), seconds("0.5s")
    (90.0, 900.0, 7200.0, 1209600.0, 0.5)
    """
    return _measure(value, _DURATION_SECONDS, "a duration", "90s, 15m, 2h or 14d")


def written(seconds: float) -> str:
    """The duration as a declaration writes it, in two units at most.

    >>> written(172800), written(1800), written(5400), written(0.5), written(0), written(90061)
    ('2d', '30m', '1h 30m', '0.5s', '0s', '1d 1h')
    """
    if seconds < 1:
        return f"{seconds:g}s"
    left, parts = round(seconds), []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_DURATION_SECONDS[unit]))
        parts += [f"{count}{unit}"] if count else []
    return " ".join(parts[:2])


def size_bytes(value: Any) -> int:
    """The size in bytes; MB counts in thousands, MiB in 1,024s.

    >>> size_bytes("10MB"), size_bytes("1MiB")
    (10000000, 1048576)
    """
    return int(_measure(value, _SIZE_BYTES, "a size", "10MB"))


def share(value: Any) -> float:
    """The share, 0 to 1, of a number or a percentage.

    >>> share("3%"), share(0.995), share("99.5%")
    (0.03, 0.995, 0.995)
    """
    said = f"{value!r} is not a share; expected 0 to 1, or a percentage, as 0.05 or 5%"
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", value.strip(), re.ASCII)):
        found = round(float(match[1]) / 100, 9)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    else:
        raise ValueError(said)
    if not 0 <= found <= 1:
        raise ValueError(said)
    return found


def interval_seconds(rate: str) -> float:
    """Seconds between the starts of two requests at this rate; 0 for the rate `none`.

    >>> interval_seconds("5/s"), interval_seconds("30/min"), interval_seconds("none")
    (0.2, 2.0, 0.0)
    """
    if rate == "none":
        return 0.0
    match = _RATE.fullmatch(rate)
    unit = _DURATION_SECONDS.get(match[2]) if match else None
    if match is None or unit is None or float(match[1]) == 0:
        raise ValueError(f"{rate!r} is not a rate; expected requests per time, as 5/s or 30/min, or none")
    return unit / float(match[1])


def _rate(value: str) -> str:
    interval_seconds(value)
    return value


def name_problem(value: str) -> str | None:
    """Why this cannot be a name; None when it can."""
    if re.fullmatch(NAME_PATTERN, value):
        return None
    return f"{value[:60]!r} is not a name; expected 1 to 40 of a-z, 0-9, _ and -, beginning with a letter or digit"


def _name(value: str) -> str:
    if problem := name_problem(value):
        raise ValueError(problem)
    return value


USER_IN_ADDRESS = "the address holds a user or password, and a declaration is stored and shown; remove it"


def holds_user(address: str) -> bool:
    """Whether a user or password stands before the host; such an address is refused without being told."""
    return re.search(r"//[^/?#]*@", address) is not None


def _site(value: str) -> str:
    if holds_user(value):
        raise ValueError(USER_IN_ADDRESS)
    try:
        page = urls.canonical(value)
    except ValueError as error:
        raise ValueError(
            f"{value!r} is not a site: {error}; expected its address, as https://www.shop.example"
        ) from error
    if page != urls.origin(page) + "/":
        raise ValueError(f"{value!r} names a page; expected the site alone, as {urls.origin(page)}")
    return urls.origin(page)


def site_problem(value: str) -> str | None:
    """Why this is not the address of a site, or None."""
    try:
        _site(value)
    except ValueError as error:
        return str(error)
    return None


Seconds = Annotated[float, BeforeValidator(seconds)]
Share = Annotated[float, BeforeValidator(share)]
Bytes = Annotated[int, BeforeValidator(size_bytes)]
Rate = Annotated[str, AfterValidator(_rate)]
Name = Annotated[str, AfterValidator(_name)]
Site = Annotated[str, AfterValidator(_site)]
