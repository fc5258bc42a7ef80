"""The demo shop over real HTTP: it sells what its catalogue says, and each of its faults really fires.

Pages are read here with selectolax and plain string work, not with the product's own extraction.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import httpx
import psutil
import pytest
import yaml
from selectolax.lexbor import LexborHTMLParser, LexborNode

from scrape_assets.demo import catalogue
from scrape_assets.demo.catalogue import RETAILERS, Fault, Page
from scrape_assets.demo.project import write_project
from scrape_assets.demo.running import RunningShop, running_shop
from scrape_assets.errors import ScrapeAssetsError

pytestmark = pytest.mark.slow  # reads every page of the shop


@pytest.fixture(scope="module")
def process() -> Iterator[RunningShop]:
    with running_shop() as shop:
        yield shop


@pytest.fixture
def shop(process: RunningShop) -> RunningShop:
    process.control(fail_all=None, delay_ms=0, break_template=None, reset=True)
    return process


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=30) as one:
        yield one


def pages_with(fault: Fault | None) -> list[Page]:
    found = [page for retailer in RETAILERS for page in catalogue.pages(retailer) if page.fault is fault]
    assert found, f"no page of the catalogue has the fault {fault}"
    return found


def dollars(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", ""))


def euros(text: str) -> Decimal:
    return Decimal(text.replace("€", "").replace(".", "").replace(",", ".").strip())


def plain(money: Decimal) -> str:
    text = format(money, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def text_of(node: LexborHTMLParser | LexborNode, css: str) -> str:
    found = node.css_first(css)
    assert found is not None, f"nothing matches {css}"
    return found.text(strip=True)


def attribute_of(node: LexborHTMLParser | LexborNode, css: str, name: str) -> str:
    found = node.css_first(css)
    value = found.attributes.get(name) if found is not None else None
    assert value, f"nothing matches {css}[{name}]"
    return value


def says(retailer: str, body: str) -> dict[str, tuple[str, str, str | None]]:
    """What a person reads on the page: sku → name, price, struck-through price."""
    tree = LexborHTMLParser(body)
    read = dollars if retailer == "fjordgear" else euros
    rows: list[LexborHTMLParser | LexborNode] = [tree]
    name, price, was, sku = "h1", ".now", ".was", ""
    if retailer == "casamoda":
        price, was, sku = "[itemprop=price]", ".antes", "[itemprop=sku]"
    if retailer == "papelaria":
        rows, name, price, was = list(tree.css(".oferta")), ".nome", ".preco", ".antes"
    found: dict[str, tuple[str, str, str | None]] = {}
    for row in rows:
        if retailer == "fjordgear":
            ident = next(e.text(strip=True) for e in row.css("small") if "Item " in e.text()).removeprefix("Item ")
        elif retailer == "papelaria":
            ident = attribute_of(row, "button", "data-ref")
        else:
            ident = text_of(row, sku)
        old = row.css_first(was)
        amount = plain(read(text_of(row, price)))
        old_amount = plain(read(old.text(strip=True))) if old is not None else None
        said = (text_of(row, name), amount, old_amount)
        assert found.setdefault(ident, said) == said, f"{ident} contradicts itself"
    return found


def structured(retailer: str, body: str) -> tuple[str, str, str, str]:
    """Sku, price, currency and availability as a fjordgear or casamoda page tells machines."""
    tree = LexborHTMLParser(body)
    if retailer == "casamoda":
        price = tree.css_first("[itemprop=price]")
        assert price is not None
        written = price.attributes.get("content")
        amount = Decimal(written) if written else euros(price.text())
        currency = attribute_of(tree, "[itemprop=priceCurrency]", "content")
        return (
            text_of(tree, "[itemprop=sku]"),
            plain(amount),
            currency,
            attribute_of(tree, "link[itemprop]", "href"),
        )
    data = json.loads(text_of(tree, "script[type='application/ld+json']"))
    nodes = data if isinstance(data, list) else data.get("@graph", [data])
    (product,) = [node for node in nodes if node["@type"] == "Product"]
    offer = product["offers"]
    return product["sku"], plain(dollars(str(offer["price"]))), offer["priceCurrency"], offer["availability"]


def get(client: httpx.Client, url: str) -> tuple[int, str] | None:
    """Status and text of the page, or None when it does not arrive whole."""
    try:
        with client.stream("GET", url) as answer:
            chunks = answer.iter_raw()
            first = next(chunks, b"")
            if len(first) < 100 < int(answer.headers["content-length"]):
                return None  # dripping: nobody waits for the rest
            body = first + b"".join(chunks)
    except httpx.RemoteProtocolError:
        return None
    packed = answer.headers.get("content-encoding") == "gzip"
    return answer.status_code, (gzip.decompress(body) if packed else body).decode()


def get_patiently(client: httpx.Client, url: str) -> tuple[int, str]:
    """The page as a collector gets it that tries again after what passes."""
    for _ in range(4):
        answer = get(client, url)
        if answer is not None and answer[0] not in (429, 503):
            return answer
    raise AssertionError(f"{url} never came")


def test_the_inventory_has_exactly_300_distinct_pages_and_their_ends_add_up() -> None:
    urls = [url for retailer in RETAILERS for url in catalogue.inventory(retailer, f"http://{retailer}.example")]
    expected = catalogue.expected()
    assert len(urls) == len(set(urls)) == expected["tasks"] == 300
    assert expected["committed"] + expected["gone"] + expected["quarantined"] == 300
    for key, total in expected.items():
        assert total == sum(catalogue.expected(retailer)[key] for retailer in RETAILERS)  # type: ignore[literal-required]


def test_every_kind_of_fault_is_there_and_the_declared_coverage_is_just_reached() -> None:
    there = {page.fault for retailer in RETAILERS for page in catalogue.pages(retailer)}
    assert there == {*Fault, None}
    shares = []
    for retailer in RETAILERS:
        counts = catalogue.expected(retailer)
        shares.append(counts["committed"] / (counts["tasks"] - counts["gone"]))
    assert min(shares) - 0.01 < catalogue.coverage() <= min(shares)


def test_the_catalogue_is_the_same_in_every_process() -> None:
    program = (
        "import hashlib; from scrape_assets.demo import catalogue, pages\n"
        "text = ''.join(pages.page(p) for r in catalogue.RETAILERS for p in catalogue.pages(r))\n"
        "print(hashlib.sha256((text + repr(catalogue.expected())).encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_the_truth_is_what_every_obtainable_page_says_and_nothing_else(shop: RunningShop, client: httpx.Client) -> None:
    read: dict[tuple[str, str], tuple[str, str, str | None]] = {}
    ends = {"committed": 0, "gone": 0, "other": 0}
    for retailer in RETAILERS:
        for page in catalogue.pages(retailer):
            status, body = get_patiently(client, shop.sites[retailer] + page.path)
            if status in (404, 410):
                ends["gone"] += 1
            elif status != 200 or page.fault in (Fault.CONSENT, Fault.BROKEN):
                ends["other"] += 1
            else:
                ends["committed"] += 1
                for sku, said in says(retailer, body).items():
                    assert read.setdefault((retailer, sku), said) == said, f"{sku} is on two pages that disagree"
    expected = catalogue.expected()
    assert ends == {
        "committed": expected["committed"],
        "gone": expected["gone"],
        "other": expected["quarantined"],
    }
    truth = shop.truth()
    assert len(truth) == len(read) == expected["observations"]
    assert {(t["retailer"], t["entity"]): (t["name"], t["price"], t["list_price"]) for t in truth} == read


def test_structured_data_agrees_with_the_visible_page(shop: RunningShop, client: httpx.Client) -> None:
    words = {"in_stock": "InStock", "out_of_stock": "OutOfStock", "preorder": "PreOrder"}
    wanted = {t["page"]: t for t in shop.truth() if t["retailer"] != "papelaria"}
    assert {t["availability"] for t in wanted.values()} == set(words)
    for url, t in wanted.items():
        _, body = get_patiently(client, url)
        availability = f"https://schema.org/{words[t['availability']]}"
        assert structured(t["retailer"], body) == (t["entity"], t["price"], t["currency"], availability)


def test_prices_are_written_the_american_and_the_european_way_with_old_prices_beside_them(
    shop: RunningShop, client: httpx.Client
) -> None:
    for retailer, css, shape in (
        ("fjordgear", ".now", r"\$\d,\d{3}\.\d\d"),
        ("casamoda", "[itemprop=price]", r"\d\.\d{3},\d\d €"),
        ("papelaria", ".preco", r"\d\.\d{3},\d\d €"),
    ):
        dear = next(t for t in shop.truth() if t["retailer"] == retailer and Decimal(t["price"]) >= 1000)
        tree = LexborHTMLParser(get_patiently(client, dear["page"])[1])
        assert any(re.fullmatch(shape, node.text(strip=True)) for node in tree.css(css))
        assert any(t["list_price"] for t in shop.truth() if t["retailer"] == retailer)


@pytest.mark.parametrize("fault", [Fault.RATE_LIMITED, Fault.UNAVAILABLE])
def test_a_refusal_lasts_for_its_declared_requests_and_then_the_page_is_normal(
    shop: RunningShop, client: httpx.Client, fault: Fault
) -> None:
    for page in pages_with(fault):
        url = shop.sites[page.retailer] + page.path
        answers = [client.get(url) for _ in range(page.times + 2)]
        assert [a.status_code for a in answers] == [int(fault)] * page.times + [200, 200]
        assert says(page.retailer, answers[-1].text)
        for refused in answers[: page.times]:
            assert refused.headers.get("retry-after") == ("1" if fault is Fault.RATE_LIMITED else None)
    assert shop.log()["faults"] == {fault: sum(page.times for page in pages_with(fault))}


def test_a_truncated_body_is_shorter_than_promised_the_first_time_only(shop: RunningShop, client: httpx.Client) -> None:
    for page in pages_with(Fault.TRUNCATED):
        url = shop.sites[page.retailer] + page.path
        with pytest.raises(httpx.RemoteProtocolError), client.stream("GET", url) as answer:
            assert answer.status_code == 200
            answer.read()
        assert says(page.retailer, client.get(url).text)


def test_a_dripping_page_sends_a_few_bytes_a_second_and_is_normal_the_next_time(
    shop: RunningShop, client: httpx.Client
) -> None:
    for page in pages_with(Fault.DRIP):
        url = shop.sites[page.retailer] + page.path
        began, got = time.monotonic(), 0
        with client.stream("GET", url) as answer:
            promised = int(answer.headers["content-length"])
            for chunk in answer.iter_raw():
                got += len(chunk)
                if time.monotonic() - began > 1.5:
                    break
        # At four bytes a second even a small page needs far longer than the declared time-out.
        assert 1 <= got <= 4 * (time.monotonic() - began) + 4
        assert promised / 4 > 60
        assert says(page.retailer, client.get(url).text)
    assert shop.log()["faults"] == {"drip": len(pages_with(Fault.DRIP))}


@pytest.mark.parametrize("fault", [Fault.NOT_FOUND, Fault.WITHDRAWN])
def test_a_page_that_is_gone_stays_gone(shop: RunningShop, client: httpx.Client, fault: Fault) -> None:
    for page in pages_with(fault):
        url = shop.sites[page.retailer] + page.path
        assert [client.get(url).status_code for _ in range(3)] == [int(fault)] * 3


def test_a_consent_page_answers_200_every_time_and_names_no_product(shop: RunningShop, client: httpx.Client) -> None:
    for page in pages_with(Fault.CONSENT):
        for _ in range(2):
            answer = client.get(shop.sites[page.retailer] + page.path)
            assert answer.status_code == 200 and "cookies" in answer.text
            assert "schema.org" not in answer.text and page.offers[0].name not in answer.text


def test_a_page_for_members_redirects_to_a_form_with_a_password(shop: RunningShop, client: httpx.Client) -> None:
    for page in pages_with(Fault.LOGIN):
        url = shop.sites[page.retailer] + page.path
        assert client.get(url).status_code == 302
        answer = client.get(url, follow_redirects=True)
        assert answer.status_code == 200 and str(answer.url) != url
        assert LexborHTMLParser(answer.text).css_first("input[type=password]") is not None


def test_a_broken_page_answers_200_and_its_price_cannot_be_read_by_machines(
    shop: RunningShop, client: httpx.Client
) -> None:
    for page in pages_with(Fault.BROKEN):
        answer = client.get(shop.sites[page.retailer] + page.path)
        assert answer.status_code == 200
        tree = LexborHTMLParser(answer.text)
        if page.retailer == "fjordgear":
            with pytest.raises(json.JSONDecodeError):
                json.loads(text_of(tree, "script[type='application/ld+json']"))
        elif page.retailer == "casamoda":
            assert attribute_of(tree, "[itemprop=price]", "content") == "NaN"
        else:
            assert not tree.css(".oferta, .preco")


def test_a_messy_page_breaks_the_rules_of_html_and_still_says_its_values(
    shop: RunningShop, client: httpx.Client
) -> None:
    for page in pages_with(Fault.MESSY):
        text = client.get(shop.sites[page.retailer] + page.path).text
        assert "</html>" not in text and text.count("<p>") > text.count("</p>")
        assert {sku: said[:2] for sku, said in says(page.retailer, text).items()} == {
            offer.sku: (offer.name, plain(offer.price)) for offer in page.offers
        }


def test_bodies_are_really_compressed_for_those_who_can_read_it(shop: RunningShop, client: httpx.Client) -> None:
    page = next(p for p in pages_with(None) if p.gzip)
    url = shop.sites[page.retailer] + page.path
    with client.stream("GET", url, headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    bare = client.get(url, headers={"Accept-Encoding": "identity"})
    assert answer.headers["content-encoding"] == "gzip" and "content-encoding" not in bare.headers
    assert packed[:2] == b"\x1f\x8b" and gzip.decompress(packed) == bare.content
    assert all(p.gzip for p in catalogue.pages("casamoda"))


def test_some_listings_show_one_offer_twice_with_equal_values(shop: RunningShop, client: httpx.Client) -> None:
    doubled = 0
    for page in (p for p in pages_with(None) if p.retailer == "papelaria"):
        body = client.get(shop.sites["papelaria"] + page.path).text
        shown = len(LexborHTMLParser(body).css(".oferta"))
        assert shown - len(says("papelaria", body)) in (0, 1)
        doubled += shown > len(says("papelaria", body))
    assert doubled > 0


def test_the_log_counts_every_request_by_url_and_status(shop: RunningShop, client: httpx.Client) -> None:
    good, gone = pages_with(None)[0], pages_with(Fault.NOT_FOUND)[0]
    for page, times in ((good, 3), (gone, 2)):
        for _ in range(times):
            client.get(shop.sites[page.retailer] + page.path)
    log = shop.log()
    assert log["total"] == 5 and log["statuses"] == {"200": 3, "404": 2}
    assert log["paths"] == {
        shop.sites[good.retailer] + good.path: 3,
        shop.sites[gone.retailer] + gone.path: 2,
    }
    assert [one["status"] for one in log["requests"]] == [200, 200, 200, 404, 404]


def test_the_whole_shop_can_be_made_to_fail_and_be_repaired(shop: RunningShop, client: httpx.Client) -> None:
    url = shop.sites["fjordgear"] + next(p for p in pages_with(None) if p.retailer == "fjordgear").path
    shop.control(fail_all="503")
    assert client.get(url).status_code == 503
    shop.control(fail_all=None, delay_ms=300)
    began = time.monotonic()
    assert client.get(url).status_code == 200
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("retailer", RETAILERS)
def test_a_redesigned_template_hides_the_price_from_machines_until_it_is_repaired(
    shop: RunningShop, client: httpx.Client, retailer: str
) -> None:
    url = shop.sites[retailer] + next(p for p in pages_with(None) if p.retailer == retailer).path
    before = client.get(url).text
    shop.control(break_template=retailer)
    after = client.get(url).text
    for sign in ('"price":', 'itemprop="price"', 'class="preco'):
        assert sign not in after
    assert any(sign in before for sign in ('"price":', 'itemprop="price"', 'class="preco'))
    shop.control(break_template=None)
    assert client.get(url).text == before


def test_a_wrong_control_is_refused_and_changes_nothing(shop: RunningShop) -> None:
    for wrong in ({"fail_all": "200"}, {"delay_ms": -1}, {"break_template": "nobody"}, {"fail": "503"}):
        with pytest.raises(ScrapeAssetsError, match="expected"):
            shop.control(**wrong)
    assert shop.control() == {"fail_all": None, "delay_ms": 0, "break_template": None}


def test_a_newcomer_finds_twelve_books_listed_as_text_with_a_page_each(shop: RunningShop, client: httpx.Client) -> None:
    urls = client.get(shop.url + "/books/urls.txt").text.split()
    assert len(set(urls)) == 12
    for url in urls:
        tree = LexborHTMLParser(client.get(url).text)
        assert re.fullmatch(r"£[\d,]+\.\d\d", text_of(tree, "article.book .now"))
        assert text_of(tree, "h1.title") and text_of(tree, ".ref")
    links = LexborHTMLParser(client.get(shop.url + "/books/").text).css("main li a")
    assert {shop.url + str(link.attributes["href"]) for link in links} == set(urls)


def test_every_link_of_the_front_page_leads_somewhere(shop: RunningShop, client: httpx.Client) -> None:
    links = [a.attributes["href"] for a in LexborHTMLParser(client.get(shop.url).text).css("a")]
    assert len(links) >= 7
    for link in links:
        assert client.get(str(httpx.URL(shop.url).join(str(link)))).status_code == 200


def test_the_written_project_lists_the_shop_as_it_runs(shop: RunningShop, tmp_path: Path) -> None:
    write_project(tmp_path, shop.sites, start=date(2026, 11, 1))
    folder = tmp_path / "datasets" / "shop"
    dataset = yaml.safe_load((folder / "dataset.yaml").read_text())
    assert dataset["window"]["start"] == date(2026, 11, 1)
    assert dataset["accept"]["coverage"] == catalogue.coverage()
    for retailer in RETAILERS:
        declared = yaml.safe_load((folder / "retailers" / f"{retailer}.yaml").read_text())
        assert declared["site"] == shop.sites[retailer]
        lines = (folder / "retailers" / declared["urls"]["file"]).read_text().splitlines()
        assert lines == ["url", *catalogue.inventory(retailer, shop.sites[retailer])]
    leftovers = [path for path in folder.rglob("*") if path.is_file() and "${" in path.read_text()]
    assert leftovers == []


def test_the_shop_ends_soon_after_the_process_it_serves() -> None:
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    command = [sys.executable, "-m", "scrape_assets.demo.shop", "--port", "0", "--json-ready"]
    child = subprocess.Popen([*command, "--parent", str(parent.pid)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline())["port"] > 0
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert child.wait(timeout=60) == 0
        assert child.stdout.read() == ""
        child.stdout.close()
    finally:
        for process in (parent, child):
            if process.poll() is None:
                process.kill()
                process.wait()


def test_the_shop_is_closed_when_its_block_ends_even_while_a_page_drips() -> None:
    with running_shop() as one, httpx.Client(trust_env=False) as client:
        page = pages_with(Fault.DRIP)[0]
        with client.stream("GET", one.sites[page.retailer] + page.path) as answer:
            next(answer.iter_raw())
            began = time.monotonic()
            os.kill(one.pid, signal.SIGTERM)
            psutil.wait_procs([psutil.Process(one.pid)], timeout=0)
    assert time.monotonic() - began < 60  # the page would drip for ten minutes
    assert not psutil.pid_exists(one.pid)


def test_a_port_in_use_is_one_clear_message(shop: RunningShop) -> None:
    port = str(httpx.URL(shop.url).port)
    done = subprocess.run(
        [sys.executable, "-m", "scrape_assets.demo.shop", "--port", port], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"cannot listen on ports {port}" in done.stderr and "Traceback" not in done.stderr
