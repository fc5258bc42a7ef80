"""Price texts: what is sure gives its number, everything else a refusal with its reason."""

from __future__ import annotations

from decimal import Decimal

import pytest

from scrape_assets.rules.currency import currency_code, live_codes, signs_in
from scrape_assets.rules.money import Money, Refusal, not_asked, parse_money, parse_number

SURE = [
    ("٢٩٫٩٩", "29.99", None),
    ("1'299.50 CHF", "1299.50", "CHF"),
    ("1\u202f099,00 EUR", "1099.00", "EUR"),
    ("1\u00a0099,00 €", "1099.00", "EUR"),
    ("１，２９９円", "1299", "JPY"),
    ("-15% 59,90 EUR", "59.90", "EUR"),
    ("１９，９９ EUR", "19.99", "EUR"),
    ("3.3500 EUR", "3.35", "EUR"),
    (",89 EUR", "0.89", "EUR"),
    ("1,234,567.890", "1234567.890", None),
    ("1,23,456.00 ₹", "123456.00", "INR"),
    ("1.234.567 Ft", "1234567", "HUF"),
    ("35€99", "35.99", "EUR"),
    ("$39.99 $39.99", "39.99", None),
    ("39,- kr", "39", None),
    ("USD19.99", "19.99", "USD"),
    ("AU$ 12", "12", "AUD"),
    ("TOP 19,99 €", "19.99", "EUR"),
    ("0.350 €", "0.350", "EUR"),
    ("500 руб.", "500", "RUB"),
    ("Fr. 39.90", "39.90", "CHF"),
    ("Rs.99", "99", None),
    ("Rs.1,234.50", "1234.50", None),
    ("kr.99", "99", None),
    ("Fr.50", "50", "CHF"),
    ("S/.99", "99", None),
    ("$.99", "0.99", None),
    ("15|%|59,90 EUR", "59.90", "EUR"),
    ("19,99 € + Versand", "19.99", "EUR"),
    ("Promo 19,99 €", "19.99", "EUR"),
    ("PROMO|19,99 €", "19.99", "EUR"),
    ("$39.99+GST", "39.99", None),
    ("Price:-₹500", "500", "INR"),
]


# BC054
@pytest.mark.parametrize(("text", "amount", "currency"), SURE)
def test_a_text_with_one_meaning_gives_its_amount_and_currency(text: str, amount: str, currency: str | None) -> None:
    assert parse_money(text) == Money(Decimal(amount), currency)


REFUSED = [
    "$39 99",
    "3 for $10",
    "3 for 14,85 EUR",
    "Was 49.99 Now 39.99",
    "Was $120.00 Now $60.00",
    "1.299",
    "3.350 EUR",
    "$1,299",
    "10-20 EUR",
    "20 € - 30 €",
    "2 pairs from $349",
    "from $349",
    "ab 19,99 €",
    "fr. 99 kr",
    "fr.99 kr",
    "EUR.99",
    "$349+",
    "349 €+",
    "1,000円～",
    "~ 20 €",
    "$25 a month",
    "25 € im Monat",
    "25 € je Woche",
    "9,99 €|/|mes",
    "3,5 Mio. €",
    "$1.2 million",
    "2 lakh ₹",
    "19|99",
    "19|500 DT",
    "1|799 €",
    "iPhone 15 Pro $999",
    "4 options from $439.34",
    "19,99²",
    "2 for 2",
    "19.99 $/month",
    "1.2k",
    "12,34.56",
    "1.2.3",
    "99 USD 99 EUR",
    "9" * 30,
    "1 " * 150,
]


# BC055
@pytest.mark.parametrize("text", REFUSED)
def test_a_text_with_more_than_one_meaning_is_refused_as_ambiguous(text: str) -> None:
    result = parse_money(text)
    assert isinstance(result, Refusal)
    assert result.ambiguous
    assert result.reason.startswith("ambiguous price")


@pytest.mark.parametrize(
    "text",
    [
        "Was $120.00", "WAS £120", "UVP 49,99 €", "UVP des Herstellers: 49,99 €", "RRP $20", "statt 29,90 €",
        "Prix conseillé : 30 €", "Avant 30,00 €", "antes 30,00 €", "anziché 30 €", "adviesprijs € 30",
        "Save $20", "You save: 20.00", "Sie sparen 5,00 €", "Économisez 10 €", "Ahorra 5 €", "$20 off", "20 € Rabatt",
        "10 € de descuento", "Coupon $5", "zzgl. 4,95 € Versand", "Versand 4,95 €", "+ 4,95 € Versandkosten",
        "Versandkosten: 4,95 EUR", "Shipping: $5.00", "$5.00 shipping", "4,95 EUR delivery", "Livraison 5,90 €",
        "+ 0,25 € Pfand", "Free delivery over $20", "envío 3,99 €",
    ],
)  # fmt: skip
def test_what_stands_beside_a_price_is_not_what_is_asked(text: str) -> None:
    refused = not_asked(text)
    assert refused is not None
    assert refused.ambiguous
    assert repr(text) in refused.reason


@pytest.mark.parametrize(
    "text",
    [
        "19,99 €", "19,99 € zzgl. Versand", "19,99 € inkl. MwSt. zzgl. Versandkosten", "£19.99 free delivery",
        "19,99 € + Versand", "19,99 € Versand gratis", "19,99 € Versandkostenfrei", "Now $99", "Sale price $99",
        "Regular price $20.00", "Our price: 19.99", "Angebot 20 €", "PVP 19,99 €", "Cena: 20 zł", "Wasser 0,99 €",
        "Rabattpreis 20 €", "Saver Pack $20", "Precio 19,99 € IVA incl.", "20,00 € TTC, livraison offerte",
    ],
)  # fmt: skip
def test_a_price_with_words_about_other_things_stays_a_price(text: str) -> None:
    assert not_asked(text) is None
    assert isinstance(parse_money(text), Money)


@pytest.mark.parametrize(
    "text", ["Only 2 left", "4 options", "12 reviews", "3 Stück", "5 in stock", "noch 3 verfügbar", "2 pieces", "Lot 7"]
)
def test_a_count_without_a_currency_is_no_price_whatever_money_is_declared(text: str) -> None:
    refused = parse_money(text, currency="EUR")
    assert isinstance(refused, Refusal)
    assert refused.ambiguous


@pytest.mark.parametrize(
    "text", ["20", "Price: 20", "Preis 20", "Only 20", "20 incl. VAT", "20,00 per Stück", "20 EUR left"]
)
def test_a_number_that_is_surely_an_amount_needs_no_sign(text: str) -> None:
    assert parse_money(text, currency="EUR") == Money(Decimal("20.00"), "EUR")


@pytest.mark.parametrize("text", ["$349 and up", "349 € and more", "$20 or more", "$20 or less"])
def test_a_bound_that_is_said_behind_the_number_is_one(text: str) -> None:
    assert isinstance(parse_money(text), Refusal)


@pytest.mark.parametrize("text", ["Free", "", "n/a", "50%"])
def test_a_text_without_a_price_is_no_zero(text: str) -> None:
    result = parse_money(text)
    assert isinstance(result, Refusal)
    assert not result.ambiguous


@pytest.mark.parametrize(
    "text",
    [
        "-5 €",
        "EUR -12",
        "- 15 €",
        "Rabatt|-5,00 €",
        "-|5 €",
        "- € 5",
        "€-5.00",
        "$-5.00",
        "\u20115,00 €",
        "\u20105,00 €",
    ],
)
def test_a_negative_price_is_refused(text: str) -> None:
    assert parse_money(text) == Refusal(f"negative price {text!r}")


# BC054
def test_the_declared_separator_decides_three_digits() -> None:
    assert parse_money("3.350", decimal=".", currency="GBP") == Money(Decimal("3.350"), "GBP")
    assert parse_money("3.350", decimal=",", currency="EUR") == Money(Decimal(3350), "EUR")


def test_a_text_against_the_declared_separator_is_refused() -> None:
    assert isinstance(parse_money("12.99", decimal=","), Refusal)
    assert isinstance(parse_money("1.299,00", decimal="."), Refusal)


def test_a_currency_without_decimals_settles_three_digits_and_refuses_a_fraction() -> None:
    assert parse_money("1.299", currency="CLP") == Money(Decimal(1299), "CLP")
    assert isinstance(parse_money("12.99", currency="JPY"), Refusal)


def test_the_declared_currency_must_fit_the_sign_in_the_text() -> None:
    assert parse_money("$12", currency="CAD") == Money(Decimal(12), "CAD")
    assert isinstance(parse_money("$12", currency="EUR"), Refusal)
    assert isinstance(parse_money("12 GBP", currency="EUR"), Refusal)


@pytest.mark.parametrize("text", ["199 RON", "1.499,00 TRY", "50 GEL", "30|PEN", "900 ALL", "TRY 1.499,00", "PEN50"])
def test_a_code_that_is_also_a_word_contradicts_a_declared_currency_at_its_number(text: str) -> None:
    assert isinstance(parse_money(text, decimal=",", currency="EUR"), Refusal)


def test_a_word_that_is_also_a_code_does_not_contradict_elsewhere() -> None:
    assert parse_money("TOP 19,99", currency="EUR") == Money(Decimal("19.99"), "EUR")
    assert parse_money("199 RON", currency="RON") == Money(Decimal(199), "RON")
    assert parse_money("TRY IT 19,99 €", currency="EUR") == Money(Decimal("19.99"), "EUR")


@pytest.mark.parametrize("sign", ["$", "kr", "¥"])
def test_a_sign_that_several_currencies_share_names_none(sign: str) -> None:
    assert parse_money(f"12 {sign}") == Money(Decimal(12), None)
    assert currency_code(sign) is None


def test_dead_currencies_and_placeholders_are_no_currencies() -> None:
    assert {"EUR", "USD", "BYN", "JPY"} <= live_codes()
    assert not {"XXX", "HRK", "DEM", "XAU", "CLF"} & live_codes()


@pytest.mark.parametrize("currency", ["EUR", None])
def test_an_amount_of_a_dead_currency_is_not_one_of_the_declared(currency: str | None) -> None:
    refused = parse_money("100,50 HRK", currency=currency)
    assert isinstance(refused, Refusal)
    assert "HRK is no money any more" in refused.reason
    assert parse_money("HRK: 100 EUR", currency=currency) == Money(Decimal(100), "EUR")


def test_a_lev_is_no_euro() -> None:
    assert isinstance(parse_money("38,25 лв.", currency="EUR"), Refusal)


def test_a_code_that_is_also_a_word_proves_nothing_in_a_text() -> None:
    assert signs_in("ALL for 12") == []
    assert currency_code("all") == "ALL"


def test_a_whole_number_reads_any_separator_as_thousands() -> None:
    assert parse_number("(1,234 reviews)", whole=True) == Decimal(1234)
    assert isinstance(parse_number("12.5", whole=True), Refusal)


def test_a_minus_stays_with_its_number_across_elements() -> None:
    assert parse_number("Change|-3.5") == Decimal("-3.5")


def test_a_number_may_be_negative_but_not_one_of_two() -> None:
    assert parse_number("-3,5") == Decimal("-3.5")
    assert isinstance(parse_number("4.5 out of 5"), Refusal)
