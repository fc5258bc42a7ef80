"""Real pages, where the machine has them: each ends in its state, and no price that is taken is a wrong one."""

from __future__ import annotations

import csv
from decimal import Decimal
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from scrape_assets.rules.document import decode
from scrape_assets.rules.fingerprint import NEAR, distance, fingerprint
from scrape_assets.rules.judge import Judged, judge
from scrape_assets.rules.page import Response
from scrape_assets.rules.spec import ExtractRule, PageRule
from scrape_assets.rules.states import FailureClass, PageState
from tests.helpers import real
from tests.helpers.real import INDEX, PAGES

BLOCKED = {PageState.CHALLENGE, PageState.CONSENT, PageState.LOGIN, PageState.EMPTY_SHELL, PageState.SOFT_404}
KINDS = {
    "challenge": PageState.CHALLENGE,
    "consent": PageState.CONSENT,
    "login": PageState.LOGIN,
    "empty shell": PageState.EMPTY_SHELL,
}
SIGNS = {"€": "EUR", "£": "GBP", "zł": "PLN"}
DOLLARS = {"product_puntoticket.com_3f5c52.html": "CLP", "product_usedvictoria.com_557975.html": "CAD"}
LEAST_PRICED = 11
"""How many of the product pages name a price and currency beyond doubt, in their data or to a reader."""

SAME_TEMPLATE = (
    ("product_nay.sk_2b9b46.html", "product_oos_nay.sk_ccbaa8.html"),
    ("listing_autopager_17.html", "listing_autopager_19.html"),
)
"""Two products of one shop, one of them sold out; two pages of one list."""

NO_PAGES = pytest.mark.skipif(not INDEX.is_file(), reason=f"no real pages at {PAGES}; set REAL_PAGES to their folder")


def _index() -> list[dict[str, str]]:
    if not INDEX.is_file():
        return []
    with INDEX.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _judged(page: dict[str, str]) -> Judged:
    url = page["url"] or "https://page.test/p/1"
    status = int(page["http_status"] or 200)
    body = (PAGES / page["file"]).read_bytes()
    return judge(
        Response(url, url, status, {"content-type": "text/html"}, body), ExtractRule(retailer="r", page=PageRule())
    )


def _of_kind(*kinds: str) -> list[dict[str, str]]:
    return [page for page in _index() if page["kind"].startswith(kinds)]


@NO_PAGES
@pytest.mark.parametrize("page", _of_kind(*KINDS), ids=lambda page: page["file"])
def test_a_page_in_the_way_ends_in_its_state(page: dict[str, str]) -> None:
    assert _judged(page).page_state is KINDS[page["kind"]]


@NO_PAGES
@pytest.mark.parametrize("page", _of_kind("product", "listing", "ok", "other"), ids=lambda page: page["file"])
def test_an_ordinary_page_is_never_taken_for_a_blocked_one(page: dict[str, str]) -> None:
    assert _judged(page).page_state not in BLOCKED


@NO_PAGES
@pytest.mark.parametrize("page", _of_kind("listing"), ids=lambda page: page["file"])
def test_a_listing_gives_no_product_of_its_own_accord(page: dict[str, str]) -> None:
    assert _judged(page).rows == ()


@NO_PAGES
@pytest.mark.parametrize("page", _of_kind("product"), ids=lambda page: page["file"])
def test_a_price_that_is_taken_is_the_annotated_one(page: dict[str, str]) -> None:
    result = _judged(page)
    if not result.rows:
        assert result.failure_class in {FailureClass.EXTRACTION, FailureClass.WRONG_TEMPLATE}
        assert result.reason
        return
    (row,) = result.rows
    if page["price"]:
        scale = 1000 if any(name in page["file"] for name in real.THOUSANDS) else 1
        assert Decimal(row.values["price"]) == Decimal(page["price"]) * scale
    if known := SIGNS.get(page["currency"]) or DOLLARS.get(page["file"]):
        assert row.values["currency"] == known
    if page["gtin"] and "gtin" in row.values:
        assert row.values["gtin"] == page["gtin"]
    if page["sku"] and "sku" in row.values:
        assert row.values["sku"] in page["sku"].split("|")


def _template(file: str) -> str:
    found = fingerprint(decode((PAGES / file).read_bytes(), "text/html").text)
    assert found is not None
    return found


@NO_PAGES
@pytest.mark.parametrize(("one", "other"), SAME_TEMPLATE)
def test_pages_of_one_template_are_near(one: str, other: str) -> None:
    assert distance(_template(one), _template(other)) <= NEAR


@NO_PAGES
def test_pages_of_two_shops_are_far_and_so_is_another_kind_of_page() -> None:
    pages = [page["file"] for page in _of_kind("product", "listing") if page["url"] or page["kind"] == "listing"]
    alike = [
        (one, other)
        for one, other in combinations(pages, 2)
        if distance(_template(one), _template(other)) <= 2 * NEAR and (one, other) not in SAME_TEMPLATE
    ]
    assert alike == []
    home, lists = "listing_autopager_16.html", SAME_TEMPLATE[1]
    assert all(distance(_template(home), _template(one)) > NEAR for one in lists), "the same header and footer"


@pytest.mark.skipif(len(_of_kind("product")) < LEAST_PRICED, reason="another collection of pages")
def test_most_product_pages_give_their_price() -> None:
    assert sum(bool(_judged(page).rows) for page in _of_kind("product")) >= LEAST_PRICED


def page_of(**changes: Any) -> real.Page:
    truth = {"price": "10.50", "currency": "€", "availability": "InStock", "sku": "a1|0042", "name_is": "not checked"}
    given = {"price": "10.5", "currency": "EUR", "availability": "in_stock", "sku": "42", **changes}
    return real.Page("product_shop.test_1.html", "product", "https://shop.test/p", 200, truth, values=given)


def test_the_table_counts_right_wrong_and_missing_values() -> None:
    assert page_of().misses() == []
    assert page_of(price="10.51").differences() == {"price": "10.51 for 10.50"}
    assert page_of(currency="USD", availability="unknown", sku=None).misses() == ["currency", "availability", "sku"]
    assert page_of(availability="unknown").differences() == {}
    console = Console(width=200, record=True, file=StringIO())
    real.tell([page_of(), page_of(price="9"), page_of(sku=None)], console)
    text = console.export_text()
    rows = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in text.splitlines() if line.count("│") == 9}
    assert [cell.strip() for cell in rows["price"]] == ["3", "3", "2", "1", "0", "0.667", "0.667"]
    assert [cell.strip() for cell in rows["sku"]] == ["3", "2", "2", "0", "1", "1.000", "0.667"]
    assert text.count("NOT EXPLAINED") == 2


@NO_PAGES
@pytest.mark.slow
def test_the_program_itself_collects_them_under_their_own_hosts(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    pages = real.collect(tmp_path)
    known = real.explanations()
    assert {page.file for page in pages if page.kind != "product" and page.values} == set()
    assert {page.file: page.page_state for page in pages if page.kind in KINDS} == {
        page.file: KINDS[page.kind].value for page in pages if page.kind in KINDS
    }
    assert {page.file: list(page.differences()) for page in pages if page.differences()} == {}
    products = [page for page in pages if page.kind == "product"]
    assert [] == [
        (page.file, name) for page in products for name in page.misses() if (real.short(page.file), name) not in known
    ]
    assert sum(bool(page.values) for page in pages if page.kind == "product") >= LEAST_PRICED
