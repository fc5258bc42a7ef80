"""Golden pages: how what a page says is compared with what it should say, and what is wrong with their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scrape_assets.datasets import cases
from scrape_assets.datasets.declaration import Dataset
from scrape_assets.datasets.units import name_problem
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import golden, urls
from scrape_assets.rules.golden import Difference, Said
from scrape_assets.rules.page import Response
from scrape_assets.rules.states import FailureClass, PageState
from tests.helpers import make

SITE = "https://shop.example"


def said(*rows: dict[str, Any], **sources: str) -> Said:
    return Said(PageState.EXPECTED, None, "", rows, [sources] * len(rows))


def compared(page: Said, *rows: dict[str, Any], **more: Any) -> list[Difference]:
    return golden.differences(page, page_state=None, failure_class=None, rows=rows, **more)


def test_only_named_fields_are_compared_and_null_means_absent() -> None:
    page = said({"name": "Lamp", "price": "5"}, price="css .now")
    assert compared(page, {"name": "Lamp"}) == []
    assert compared(page, {"list_price": None}) == []
    assert compared(page, {"price": None}) == [Difference("", "price", None, "5", "css .now")]
    assert compared(page, {"brand": "Acme"}, sought={"brand": "css .maker"}) == [
        Difference("", "brand", "Acme", None, "css .maker found nothing that fits")
    ]


@pytest.mark.parametrize(
    ("expected", "got", "numeric", "alike"),
    [
        ("19.90", "19.9", True, True),
        (19.9, "19.9", False, True),
        (7, "7", False, True),
        ("007", "7", False, False),
        ("19.91", "19.9", True, False),
        ("Cafe\u0301", "Caf\u00e9", False, True),
        (["a", "b"], ["a", "b"], False, True),
        (["a"], ["a", "b"], False, False),
        (True, 1, False, False),
        ("NaN", "NaN", True, True),
        (None, "", False, False),
    ],
)
def test_a_number_is_compared_as_a_number_only_where_one_is_meant(
    expected: Any, got: Any, numeric: bool, alike: bool
) -> None:
    assert golden.same(expected, got, numeric=numeric) is alike


def test_rows_are_paired_by_their_key_whatever_their_order_and_told_by_it() -> None:
    page = said({"sku": "b", "price": "2"}, {"sku": "c", "price": "3"}, price="css .now")
    found = compared(page, {"sku": "a", "price": "1"}, {"sku": "b", "price": "9"}, key=("sku",))
    assert found == [
        Difference("sku a", "", "a row", None, None),
        Difference("sku b", "price", "9", "2", "css .now"),
        Difference("sku c", "", None, "a row", None),
    ]


def test_where_the_key_itself_is_read_wrongly_rows_are_paired_by_their_order() -> None:
    page = said({"sku": "x1"}, {"sku": "x2"}, sku="css .ref")
    found = compared(page, {"sku": "a1"}, {"sku": "a2"}, key=("sku",))
    assert [(one.row, one.field, one.source) for one in found] == [
        ("row 1", "sku", "css .ref"),
        ("row 2", "sku", "css .ref"),
    ]


def test_a_row_too_many_and_a_row_too_few_are_differences() -> None:
    one, two = {"name": "a"}, {"name": "b"}
    assert compared(said(one, two), one) == [Difference("row 2", "", None, "a row", None)]
    assert compared(said(one), one, two) == [Difference("row 2", "", "a row", None, None)]
    assert compared(said(one)) == [Difference("", "", None, "a row", None)]
    assert compared(said()) == []


def test_a_page_that_fails_where_rows_are_expected_says_why() -> None:
    page = Said(PageState.EXPECTED, FailureClass.EXTRACTION, "price: css .now found nothing")
    assert compared(page, {"price": "5"}) == [
        Difference("", "failure_class", None, FailureClass.EXTRACTION, "price: css .now found nothing")
    ]


def test_a_page_state_or_a_failure_class_may_be_all_that_is_expected() -> None:
    page = Said(PageState.CHALLENGE, FailureClass.CHALLENGE, "challenge: title")

    def found(**named: Any) -> list[Difference]:
        return golden.differences(page, **{"page_state": None, "failure_class": None, "rows": None, **named})

    assert found(page_state=PageState.CHALLENGE) == []
    assert found(failure_class=FailureClass.CHALLENGE) == []
    assert [(d.field, d.expected, d.got) for d in found(page_state=PageState.LOGIN)] == [
        ("page_state", PageState.LOGIN, PageState.CHALLENGE)
    ]
    assert [(d.field, d.expected, d.got) for d in found(failure_class=FailureClass.GONE)] == [
        ("failure_class", FailureClass.GONE, FailureClass.CHALLENGE)
    ]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make.dataset(tmp_path, {"north": (SITE, ["/p/1"])})


def case(dataset: Dataset, expected: str = '{"rows": []}', place: str = "north/lamp", **files: str) -> Path:
    folder = dataset.folder / "cases" / place
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"page.html": "<h1>Lamp</h1>", "expected.json": expected, **files}.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ('{"rows": [\n', "expected.json:2: the file is not JSON: "),
        ('{"rows": [{"pric": 1}]}', "expected.json:1: rows.0.pric: the schema has no field 'pric'; did you mean 'pri"),
        (
            '{\n "rows": [],\n "page_stat": "login"}',
            "expected.json:3: page_stat: unknown key 'page_stat'; did you mean 'page_state'?",
        ),
        ('{"page_state": "chalenge"}', "page_state: 'chalenge' is not possible; did you mean 'challenge'?"),
        ('{"failure_class": "extraction", "rows": []}', "expected either rows or failure_class"),
        ("{}", "nothing is expected"),
        ("[]", "expected a JSON object"),
        ('{"rows": [{"name": "a", "name": "b"}]}', "expected.json: name: the name is written twice in one object"),
        ("\t{}", "nothing is expected"),
    ],
)
def test_a_wrong_expectation_is_one_line_with_file_and_field(dataset: Dataset, expected: str, line: str) -> None:
    case(dataset, expected)
    found, problems = cases.read(dataset)
    assert found == []
    (problem,) = map(str, problems)
    assert problem.startswith("datasets/prices/cases/north/lamp/expected.json")
    assert line in problem


def test_what_is_missing_misplaced_or_unknown_is_told_and_the_other_cases_are_read(dataset: Dataset) -> None:
    case(dataset)
    case(dataset, place="nort/lamp")
    (case(dataset, place="north/a") / "page.html").unlink()
    (case(dataset, place="north/b") / "expected.json").unlink()
    case(dataset, place="north/C d")
    case(dataset, place="north/e", **{"page.json": '{"url": "ftp://x"}'})
    (dataset.folder / "cases/north/page.html").write_text("")
    (dataset.folder / "cases/README.md").write_text("ours")
    found, problems = cases.read(dataset)
    assert [one.name for one in found] == ["lamp"]
    lines = "\n".join(map(str, problems))
    for said in (
        "cases/nort: no retailer 'nort' is declared; did you mean 'north'?",
        "cases/north/a/page.html: the file is missing",
        "cases/north/b/expected.json: the file is missing",
        "cases/north/C d: the folder's name is the case's: 'C d' is not a name",
        "cases/north/e/page.json:1: url: the URL must start with http:// or https://",
        "cases/north/page.html: it lies in no case",
    ):
        assert said in lines
    assert len(problems) == 6


def test_a_case_without_page_json_is_an_ordinary_page_of_the_site(dataset: Dataset) -> None:
    case(dataset)
    (found,), _ = cases.read(dataset)
    assert found.answer == Response(f"{SITE}/", f"{SITE}/", 200, {"content-type": "text/html"}, b"<h1>Lamp</h1>")


def test_what_is_written_is_read_back_and_is_never_overwritten_unasked(dataset: Dataset) -> None:
    north = dataset.retailers["north"]
    headers = {"content-type": "text/html; charset=latin-1", "set-cookie": "sid=secret", "retry-after": "9"}
    answer = Response(f"{SITE}/p/1", f"{SITE}/p/one", 503, headers, b"caf\xe9\r\n", (f"{SITE}/p/1",))
    written = cases.write(dataset, north, "lamp", answer, {"failure_class": "http_5xx"}, replace=False)
    assert not any(b"secret" in path.read_bytes() for path in written)
    ((found,), problems) = cases.read(dataset)
    assert problems == []
    del headers["set-cookie"]
    assert found.answer == Response(f"{SITE}/p/1", f"{SITE}/p/one", 503, headers, b"caf\xe9\r\n", (f"{SITE}/p/1",))
    assert found.expected.failure_class is FailureClass.HTTP_5XX
    with pytest.raises(DeclarationError, match="--force"):
        cases.write(dataset, north, "lamp", answer, {"rows": []}, replace=False)
    cases.write(dataset, north, "lamp", answer, {"rows": []}, replace=True)
    for name in ("../up", "a/b", "", "A", ".."):
        with pytest.raises(DeclarationError, match="--name"):
            cases.write(dataset, north, name, answer, {"rows": []}, replace=True)


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/p/%2e%2e%2f", "/" + "a" * 4000, "/", "/p/\u202e\u540d", "/CON"]
)
def test_the_name_of_a_case_is_a_name_whatever_the_address(path: str) -> None:
    made = cases.slug(urls.canonical(SITE + path))
    assert name_problem(made) is None
    assert made != cases.slug(urls.canonical(SITE + path + "?x=1"))
    assert json.dumps(made) == f'"{made}"'
