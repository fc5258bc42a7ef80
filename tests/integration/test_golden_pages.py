"""Golden pages as a person works with them: recorded, corrected, and told apart by `check`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scrape_assets.demo import catalogue
from scrape_assets.demo.project import MENDED, read_prices, write_project
from scrape_assets.flow import plan
from scrape_assets.store.postgres import Pool
from tests.helpers import make
from tests.helpers.command import Command, command
from tests.helpers.site import Site, site

__all__ = ["command"]  # a fixture

FIELDS = """\
key: [sku]
product:
  expect: .offer
  fields:
    name: {css: h1}
    sku: {css: .sku}
    price: {css: .now, money: EUR, decimal: "."}
    list_price: {css: .was, money: EUR, decimal: ".", optional: true}
"""


def page(sku: str) -> bytes:
    return (
        f"<article class=offer><h1>L\u00e1mpara {sku}</h1><i class=sku>{sku}</i><b class=now>19.90</b>"
        f"<i class=other>24.00</i></article>"
    ).encode()


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as it:
        it.answer = lambda path: (200, {"set-cookie": "sid=secret"}, page(path[3:].upper()))
        yield it


def folder(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "datasets/prices/cases/north").iterdir()
    return found


def edit(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_recorded_page_holds_until_a_selector_is_edited_and_the_difference_names_both(
    command: Command, tmp_path: Path, shop: Site
) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/n1"])}, more=FIELDS)
    recorded = command("record", "prices/north", f"{shop.url}/p/n1", "--json")
    assert recorded.code == 0, recorded.err
    case = folder(tmp_path)
    assert (case / "page.html").read_bytes() == page("N1")
    assert b"secret" not in b"".join(path.read_bytes() for path in case.iterdir())
    expected = json.loads((case / "expected.json").read_text())
    assert expected == recorded.json["expected"]
    assert expected["rows"][0]["price"] == "19.9"
    assert expected["rows"][0]["list_price"] is None
    shop.requests.clear()

    assert command("check").code == 0
    edit(tmp_path, "css: .now", "css: .other")
    wrong = command("check")
    assert wrong.code == 1
    (line,) = [line for line in wrong.out.splitlines() if line.startswith("price ")]
    assert [word in line for word in ('"19.9"', '"24"', "css .other")] == [True] * 3
    ((one,),) = [d["cases"] for d in command("check", "--json").json["datasets"]]
    assert (one["ok"], one["differences"]) == (
        False,
        [{"row": "", "field": "price", "expected": "19.9", "got": "24", "from": "css .other"}],
    )
    edit(tmp_path, "css: .other", "css: .nowhere")
    broken = command("check", "--json")
    assert broken.code == 1
    ((one,),) = [d["cases"] for d in broken.json["datasets"]]
    assert "price: css .nowhere found nothing" in one["differences"][0]["from"]
    edit(tmp_path, "css: .nowhere", "css: .now")
    assert command("check").code == 0
    assert not shop.requests, "check asks no site"


def test_record_prints_the_page_and_overwrites_only_by_force(command: Command, tmp_path: Path, shop: Site) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/n1"])}, more=FIELDS)
    first = command("record", "north", f"{shop.url}/p/n1")
    assert first.code == 0, first.err
    assert "19.9" in first.out and "css .now" in first.out
    assert "expected.json" in first.err
    expected = folder(tmp_path) / "expected.json"
    expected.write_text('{"rows": [{"name": "mine"}]}')
    again = command("record", "north", f"{shop.url}/p/n1")
    assert (again.code, json.loads(expected.read_text())) == (2, {"rows": [{"name": "mine"}]})
    assert "--force" in again.err
    assert command("record", "north", f"{shop.url}/p/n1", "--force").code == 0
    assert json.loads(expected.read_text())["rows"][0]["name"] == "L\u00e1mpara N1"
    assert command("record", "north", f"{shop.url}/p/n1", "--name", "another").code == 0
    assert command("record", "north", f"{shop.url}/p/n1", "--name", "../up").code == 2
    assert command("record", "nort", f"{shop.url}/p/n1").code == 2


def test_a_stored_page_is_recorded_without_a_request(command: Command, pool: Pool, tmp_path: Path, shop: Site) -> None:
    dataset = make.dataset(tmp_path, {"north": (shop.url, ["/p/n1"])}, more=FIELDS)
    now = datetime.now(UTC)
    plan.plan(pool, dataset, f"{now:%Y-%m-%d}", now=now)
    assert command("worker").code == 0
    shop.requests.clear()
    recorded = command("record", "north", f"{shop.url}/p/n1", "--window", "current")
    assert recorded.code == 0, recorded.err
    assert not shop.requests
    assert (folder(tmp_path) / "page.html").read_bytes() == page("N1")
    assert json.loads((folder(tmp_path) / "page.json").read_text())["headers"] == {
        "content-type": "text/html; charset=utf-8"
    }
    assert command("check").code == 0
    assert command("record", "north", f"{shop.url}/p/n2", "--window", "current").code == 2


def test_a_page_that_is_none_is_recorded_with_its_state_and_no_answer_is_not(
    command: Command, tmp_path: Path, shop: Site
) -> None:
    body = b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>"
    shop.answer = lambda _path: (403, {}, body)
    make.dataset(tmp_path, {"north": (shop.url, ["/p/n1"])}, more=FIELDS)
    assert command("record", "north", f"{shop.url}/p/n1").code == 0
    assert json.loads((folder(tmp_path) / "expected.json").read_text()) == {
        "page_state": "challenge",
        "failure_class": "challenge",
    }
    assert command("check").code == 0
    (folder(tmp_path) / "page.html").write_bytes(page("N1"))
    told = command("check", "--json")
    assert told.code == 1
    ((one,),) = [d["cases"] for d in told.json["datasets"]]
    assert [(d["field"], d["expected"], d["got"]) for d in one["differences"]] == [
        ("page_state", "challenge", None),
        ("failure_class", "challenge", "access_refused"),
    ]
    shop.answer = lambda _path: (302, {"location": "https://elsewhere.example/"}, b"")
    none = command("record", "north", f"{shop.url}/p/n2")
    assert (none.code, "redirected" in none.err) == (1, True)


def test_a_page_object_reads_a_golden_page_in_a_process_of_its_own(
    command: Command, tmp_path: Path, shop: Site
) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/n1"])}, more="key: [sku]")
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "def detail(page):\n"
        f"    Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "    return {'name': page.css('h1')[0], 'sku': page.css('.sku')[0], 'price': '5', 'currency': 'EUR'}\n"
    )
    (tmp_path / "datasets/prices/pages.py").write_text(code)
    file = tmp_path / "datasets/prices/retailers/north.yaml"
    file.write_text(file.read_text() + "product: {page_object: 'pages.py:detail'}\n")
    assert command("record", "north", f"{shop.url}/p/n1").code == 0
    (tmp_path / "datasets/prices/pages.py").write_text(code.replace("'5'", "'6'"))
    told = command("check", "--json")
    assert told.code == 1, told.err
    ((one,),) = [d["cases"] for d in told.json["datasets"]]
    assert [(d["field"], d["got"], d["from"]) for d in one["differences"]] == [("price", "6", "pages.py:detail")]
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def test_a_broken_case_ends_with_exit_code_2_after_the_others_were_compared(
    command: Command, tmp_path: Path, shop: Site
) -> None:
    make.dataset(tmp_path, {"north": (shop.url, ["/p/n1"])}, more=FIELDS)
    assert command("record", "north", f"{shop.url}/p/n1", "--name", "good").code == 0
    assert command("record", "north", f"{shop.url}/p/n1", "--name", "bad").code == 0
    (tmp_path / "datasets/prices/cases/north/bad/expected.json").write_text('{"rows": [{"pric": "1"}]}')
    told = command("check", "--json")
    assert told.code == 2
    assert told.err.count("error:") == 1
    assert "datasets/prices/cases/north/bad/expected.json:1: rows.0.pric" in told.err
    assert [case["name"] for case in told.json["datasets"][0]["cases"]] == ["good"]
    assert command("run", "prices", "--help").code == 0


def test_the_demo_carries_a_golden_page_that_catches_its_wrong_selector(command: Command, tmp_path: Path) -> None:
    write_project(tmp_path, {name: f"http://127.0.0.1:{9000 + i}" for i, name in enumerate(catalogue.RETAILERS)})
    right = command("check", "--json")
    assert right.code == 0, right.err
    assert [(c["retailer"], c["ok"], c["rows"]) for c in right.json["datasets"][0]["cases"]] == [(MENDED, True, 12)]
    read_prices(tmp_path, "first amount")
    wrong = command("check")
    assert wrong.code == 1
    assert "@class='antes'" in wrong.out
