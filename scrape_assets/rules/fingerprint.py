"""A page's template as 256 bits: alike for two products of one shop, unlike once the layout is redone.

What counts is which classes and which elements there are, not how many, in which order, or with which texts. The set is
hashed to a simhash: the share of bits in which two of them differ is the angle between the sets.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import shake_128
from itertools import islice

BITS = 256
"""With 64 bits, pages of two shops came as near as a redone product area of one; with 256 they do not."""

NEAR = 40
"""Bits in which pages of one template may differ. Of real pages, two products of one shop differ in 21, two lists in
23; a list and the home page of one shop, which share header and footer, in 55; pages of two shops in 96 or more."""

MOST_FEATURES = 5_000
"""Real product pages have 100 to 700. The first ones speak for a page that has more."""

MOST_LETTERS = 100
"""A longer class is no name but a page's content."""

# From the text: a page whose data say everything is read without a tree, and building one costs more than this.
_CLASSES = re.compile(r"class=[\"']([^\"']*)")
_ELEMENT = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)")
_NUMBER = re.compile(r"[0-9]+")
# `css-1dbjc4n`: made by a build, and another one after the next.
_GENERATED = re.compile(r"[0-9][a-zA-Z]")
# Sixteen bits to count in for each bit of the fingerprint.
_LANES = int.from_bytes(b"\1\0" * BITS, "little")
_HIGHEST = 2**15
_DIGITS = b"0" * 128 + b"1" * 128


def fingerprint(text: str) -> str | None:
    """The page's template as hexadecimal digits; None for what is no markup, as JSON, or has nothing to go by."""
    if text.lstrip()[:1] != "<":
        return None
    classes = " ".join(dict.fromkeys(_CLASSES.findall(text))).split()
    elements = dict.fromkeys(f"<{name.lower()}" for name in dict.fromkeys(_ELEMENT.findall(text)))
    # `postid-4711` is the same class on every page of its kind.
    named = (_NUMBER.sub("", name) for name in dict.fromkeys(classes) if _is_a_name(name))
    features = list(islice(dict.fromkeys([*elements, *named]), MOST_FEATURES))
    if not features:
        return None
    # What lifts a count of more than half of the votes, and no smaller one, over the highest bit of its lane.
    lift = (_HIGHEST - 1 - len(features) // 2) * _LANES
    lanes = (sum(map(_votes, features)) + lift).to_bytes(2 * BITS, "little")[1::2]
    return f"{int(lanes.translate(_DIGITS), 2):0{BITS // 4}x}"


def distance(one: str, other: str) -> int:
    """In how many bits two fingerprints differ.

    >>> distance("0" * 64, "f" + "0" * 63)
    4
    """
    return (int(one, 16) ^ int(other, 16)).bit_count()


def _is_a_name(written: str) -> bool:
    return len(written) <= MOST_LETTERS and _GENERATED.search(written) is None


@lru_cache(maxsize=8192)  # pages of a shop share nearly all of them; 5 MB at most
def _votes(feature: str) -> int:
    """A one or a zero for each bit, in a lane of its own, so that votes are counted by adding."""
    return int.from_bytes(shake_128(feature.encode("utf-8", "replace")).digest(2 * BITS), "little") & _LANES
