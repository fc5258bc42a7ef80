"""Laws of the keys, of canonical URLs and of the pauses between tries, over generated input."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrape_assets.rules import keys
from scrape_assets.rules.retry import RETRY_AFTER_CAP_SECONDS, RetryPolicy, backoff, retry_after
from scrape_assets.rules.urls import canonical, origin, within

# These are laws, not measurements: a busy machine must not fail them.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
parts = st.lists(texts, min_size=1, max_size=4)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**40), max_value=10**40)
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()
)
values = st.recursive(
    st.one_of(texts, numbers),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
payloads = st.dictionaries(texts, values, max_size=6)
url_text = st.text(st.sampled_from("abÄß/?&=#%2F3B+;!.:@ []|~'\"<>\\{}^`"), max_size=40)


def through_jsonb(payload: Any) -> Any:
    """What a jsonb column gives back: keys in an order of its own, every number through `numeric`."""

    def number(text: str) -> int | float:
        plain = format(Decimal(text), "f")
        plain = plain.removeprefix("-") if Decimal(text) == 0 else plain
        return float(plain) if "." in plain else int(plain)

    text = json.dumps(dict(reversed(list(payload.items()))))
    return json.loads(text, parse_float=number, parse_int=number)


@given(parts, parts)
def test_different_parts_have_different_encodings_and_keys(one: list[str], other: list[str]) -> None:
    same = keys.encode(one) == keys.encode(other)
    assert same == ([keys.encode([part]) for part in one] == [keys.encode([part]) for part in other])
    assert (keys.entity_key("shop", one) == keys.entity_key("shop", other)) == same


@given(st.lists(texts, min_size=6, max_size=6), st.integers(0, 5))
def test_a_task_key_depends_on_each_of_its_parts_and_on_nothing_else(fields: list[str], index: int) -> None:
    dataset, retailer, context, page_type, url, window = fields
    key = keys.task_key(dataset, retailer, context, page_type, url, window)
    assert key == keys.task_key(dataset, retailer, context, page_type, url, window)
    changed = [*fields]
    changed[index] += "x"
    assert key != keys.task_key(*changed)


@given(texts, texts, texts, texts)
def test_neighbouring_parts_do_not_run_into_each_other(a: str, b: str, c: str, d: str) -> None:
    assert keys.observation_key(a + "x", b, c, d) != keys.observation_key(a, "x" + b, c, d)


@given(st.text(min_size=0, max_size=3000))
def test_an_entity_key_is_never_longer_than_the_limit(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        with pytest.raises(ValueError, match="no JSON form"):
            keys.entity_key("shop", [text])
    else:
        assert len(keys.entity_key("shop", [text, text]).encode()) <= keys.ENTITY_KEY_BYTES


def test_no_id_can_spell_the_hash_of_a_longer_one() -> None:
    hashed = keys.entity_key("shop", ["x" * 600])
    inner = json.loads(hashed)[1]
    for spelt in (json.dumps(inner), "#" + str(inner), str(inner)):
        assert keys.entity_key("shop", [spelt]) != hashed


def test_text_is_compared_in_its_composed_form_and_with_its_case() -> None:
    assert keys.entity_key("shop", ["café"]) == keys.entity_key("shop", ["cafe\u0301"])
    assert keys.entity_key("shop", ["A-1"]) != keys.entity_key("shop", ["a-1"])


@given(decimals, st.integers(0, 12))
def test_a_plain_number_is_exact_and_does_not_show_its_trailing_zeros(number: Decimal, zeros: int) -> None:
    text = keys.plain(number)
    assert Decimal(text) == number
    assert "e" not in text.lower()
    longer = Decimal(format(number, "f") + "0" * zeros)
    assert keys.plain(longer) == text


@pytest.mark.parametrize("number", ["NaN", "sNaN", "Infinity", "-Infinity", "1e999999999", "1e-999999999"])
def test_a_number_that_cannot_be_written_out_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match="not finite, or too large or small"):
        keys.plain(Decimal(number))


@given(payloads)
def test_a_payload_hashes_the_same_before_and_after_storage(payload: dict[str, Any]) -> None:
    assert keys.payload_hash(through_jsonb(payload)) == keys.payload_hash(payload)


@given(decimals, decimals)
def test_money_hashes_by_its_value(one: Decimal, other: Decimal) -> None:
    assert keys.payload_hash({"price": one}) == keys.payload_hash({"price": keys.plain(one)})
    same = keys.payload_hash({"price": one}) == keys.payload_hash({"price": other})
    assert same == (one == other)


def test_ten_is_ten_however_it_is_written() -> None:
    written = [Decimal("10"), Decimal("10.0"), Decimal("10.00"), Decimal("1E+1")]
    assert len({keys.payload_hash({"price": number}) for number in written}) == 1
    assert len({keys.payload_hash({"rating": number}) for number in (10, 10.0)}) == 1
    assert keys.payload_hash({"a": True}) != keys.payload_hash({"a": 1})


def test_not_a_number_has_no_hash() -> None:
    with pytest.raises(ValueError, match="not finite"):
        keys.payload_hash({"rating": float("nan")})


# BC057
@given(
    st.sampled_from(["http://", "https://", "HTTP://"]),
    st.sampled_from(["shop.example", "Faß.de", "[::1]:81", "1.2.3.4"]),
    url_text,
)
def test_a_canonical_url_is_its_own_canonical_form(scheme: str, host: str, rest: str) -> None:
    try:
        once = canonical(f"{scheme}{host}/{rest}")
    except ValueError:
        return
    assert canonical(once) == once
    assert origin(once) == origin(f"{scheme}{host}")
    assert within(f"{scheme}{host}", once)


@given(st.text(max_size=60))
def test_any_text_is_a_canonical_url_or_a_value_error(text: str) -> None:
    for url in (text, "https://" + text, "https://shop.example/" + text):
        try:
            once = canonical(url)
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            assert once.isascii()
            assert canonical(once) == once


# BC031
@given(
    st.integers(0, 100_000),
    st.floats(0.001, 1e6),
    st.floats(0.001, 1e6),
    st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_never_negative_nor_over_its_bounds(attempt: int, base: float, cap: float, jitter: float) -> None:
    pause = backoff(attempt, RetryPolicy(base_seconds=base, cap_seconds=cap), jitter)
    assert 0 <= pause <= cap
    if attempt <= 60:
        assert pause <= base * 2**attempt
    assert backoff(attempt, RetryPolicy(base_seconds=base, cap_seconds=cap), 0.0) == 0.0


# BC029
@pytest.mark.parametrize("value", ["", "-5", "0", "00", "soon", "1_0", "5.5", "+5", "٥", "1e3", "0, 0", ",", "-0000"])
def test_a_retry_after_that_asks_for_nothing_usable_is_none(value: str) -> None:
    assert retry_after(value, None, NOW) is None


# BC029
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("120, 5", 120),
        ("5, 120", 120),
        ("5, soon", 5),
        ("9" * 400, RETRY_AFTER_CAP_SECONDS),
    ],
)
def test_a_retry_after_in_seconds_is_obeyed_up_to_a_day(value: str, seconds: float) -> None:
    assert retry_after(value, None, NOW) == seconds


@pytest.mark.parametrize(
    "form",
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y", "%a, %d %b %Y %H:%M:%S -0000"],
)
def test_a_retry_after_date_counts_from_the_responses_own_clock(form: str) -> None:
    until = (NOW + timedelta(minutes=2)).strftime(form)
    assert retry_after(until, None, NOW) == 120
    wrong_clock = NOW + timedelta(minutes=1)
    assert retry_after(until, wrong_clock.strftime(form), NOW) == 60
    assert retry_after(until, "no date", NOW) == 120
    assert retry_after(NOW.strftime(form), None, NOW) is None
    assert retry_after((NOW - timedelta(days=400)).strftime(form), None, NOW) is None
    assert retry_after((NOW + timedelta(days=400)).strftime(form), None, NOW) == RETRY_AFTER_CAP_SECONDS


# BC029
@given(
    st.one_of(
        st.text(max_size=40),
        st.datetimes(timezones=st.just(UTC)).map(lambda t: format_datetime(t)),
        st.integers().map(str),
        st.none(),
    ),
    st.one_of(st.none(), st.text(max_size=40), st.datetimes(timezones=st.just(UTC)).map(lambda t: format_datetime(t))),
)
def test_no_retry_after_is_negative_instant_or_endless(value: str | None, date: str | None) -> None:
    seconds = retry_after(value, date, NOW)
    assert seconds is None or 0 < seconds <= RETRY_AFTER_CAP_SECONDS
