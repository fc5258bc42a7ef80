"""A page's template: alike for other products of one layout, unlike once the layout is redone."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrape_assets.rules.fingerprint import BITS, MOST_FEATURES, NEAR, distance, fingerprint

WORDS = "alpha beta gamma delta cobalt crimson amber teal".split()
TAGS = "div section span ul li p a h2 b figure".split()


def layout(seed: int, blocks: int = 100) -> list[tuple[str, str]]:
    """Elements with classes, as one team would write them."""
    chance = random.Random(seed)
    return [
        (chance.choice(TAGS), "".join(chance.choices("abcdefghijklmnop", k=5)) + f"__{chance.choice(WORDS)}")
        for _ in range(blocks)
    ]


def page(parts: list[tuple[str, str]], *, words: str = "", repeat: int = 3, number: int = 1) -> str:
    """A page of these parts: each with a text, the last ones repeated as related products are."""
    body = "".join(f'<{tag} class="{name}">{words}</{tag}>' for tag, name in parts)
    again = "".join(f'<{tag} class="{name}">{words}</{tag}>' for tag, name in parts[-4:]) * repeat
    return (
        f'<!doctype html><html><head><title>{words}</title></head><body class="postid-{number} css-{number}x{number}y">'
        f"{body}{again}</body></html>"
    )


def bits(one: str, other: str) -> int:
    first, second = fingerprint(one), fingerprint(other)
    assert first is not None
    assert second is not None
    return distance(first, second)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    words=st.text(alphabet=st.characters(exclude_characters="<>\"'&="), max_size=60),
    repeat=st.integers(0, 40),
    number=st.integers(0, 10**9),
)
def test_another_product_of_the_same_layout_is_near(seed: int, words: str, repeat: int, number: int) -> None:
    parts = layout(seed)
    assert bits(page(parts), page(parts, words=words, repeat=repeat, number=number)) == 0


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000), dropped=st.sets(st.integers(0, 39), max_size=2), renamed=st.integers(0, 39))
def test_a_few_parts_more_or_less_are_near(seed: int, dropped: set[int], renamed: int) -> None:
    parts = layout(seed)
    changed = [(tag, "renamed" if n == renamed else name) for n, (tag, name) in enumerate(parts) if n not in dropped]
    assert bits(page(parts), page(changed)) <= NEAR


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_a_redone_layout_is_far_though_the_words_are_the_same(seed: int) -> None:
    redone = [(tag, f"new-{name[::-1]}") for tag, name in layout(seed)]
    assert bits(page(layout(seed), words="Lamp 10.00"), page(redone, words="Lamp 10.00")) > NEAR


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=300))
def test_any_text_has_a_fingerprint_or_none_and_always_the_same(text: str) -> None:
    found = fingerprint("<p>" + text)
    assert found is not None
    assert len(found) * 4 == BITS
    assert set(found) <= set("0123456789abcdef")
    assert fingerprint("<p>" + text) == found


@pytest.mark.parametrize("text", ["", "   ", '{"a": "<b class=x>"}', "[1]", "plain"])
def test_what_is_no_markup_has_no_template(text: str) -> None:
    assert fingerprint(text) is None


def test_numbers_and_names_that_a_build_made_up_do_not_count() -> None:
    one = '<div class="col-4 item-17 css-1dbjc4n"></div><p class="text"></p>'
    other = '<div class="col-6 item-92 css-9x0qqa1"></div><p class="text"></p>'
    assert bits(one, other) == 0


def test_lone_surrogates_and_endless_classes_are_read() -> None:
    assert fingerprint('<p class="\ud800">') is not None
    assert bits("<p>", f'<p class="{"x" * 1000}">') == 0


def test_a_hostile_page_is_read_in_bounded_time() -> None:
    many = "".join(f'<p class="q{chr(97 + n % 26)}{"".join(chr(97 + int(d)) for d in str(n))}">' for n in range(70_000))
    began = time.perf_counter()
    assert fingerprint(many) == fingerprint(many)
    assert fingerprint("<" + "class='" * 100_000) is not None
    assert fingerprint("<p " + 'class="' * 100_000) is not None
    assert time.perf_counter() - began < 5
    assert MOST_FEATURES < 2**15  # votes are counted in fifteen bits
