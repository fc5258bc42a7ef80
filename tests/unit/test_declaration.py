"""A wrong declaration is told in one line: file, line, field, what was expected, the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrape_assets.datasets import declaration, load, page_objects, schemas
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.datasets.units import name_problem
from scrape_assets.errors import DeclarationError
from scrape_assets.rules.spec import ExtractRule
from tests.helpers import make

DATASET = """\
dataset: prices
owner: data-team
contact: https://example.com/bot
window: {every: day, at: "06:00", timezone: Europe/Madrid, start: 2026-11-01}
schema: product_offer
accept: {coverage: 0.99}
publish:
  when: complete
  to:
    lake: {files: {path: out, format: parquet}}
retry: {attempts: 4, base: 10s, cap: 5m}
lease: {for: 60s, task_deadline: 10m}
defaults: {fetch: {rate: 30/min, concurrency: 4, headers: {Accept-Language: es}}}
"""

RETAILER = """\
site: https://books.example.com
basis: "robots and terms read 2026-10"
urls: {file: bookshop.csv}
key: [sku, seller]
product:
  expect: article.product_page
  rows: .offer
  fields:
    sku: {css: .offer, attr: data-sku}
    price: {css: .now, money: EUR, decimal: ","}
    list_price: {xpath: "//s", money: EUR, optional: true}
    seller: {css: .seller}
fetch: {concurrency: 2}
accept: {required: [name, price]}
"""

PAGES = """\
import pandera.pandas as pa
from helpers import PRICE

class Offer(pa.DataFrameModel):
    title: str
    price: float = pa.Field(gt=0, nullable=True)

def detail(response):
    return [{"price": PRICE}]

NUMBER = 3
"""


def test_two_datasets_that_dagster_could_not_tell_apart_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("my-shop", "my_shop", "myshop"):
        make.dataset(tmp_path, {"north": ("https://shop.example", ["/p/1"])}, name=name)
    with pytest.raises(DeclarationError, match="datasets my-shop and my_shop differ only in - and _"):
        load.project(tmp_path)
    assert load.dataset(tmp_path, "my-shop").dataset == "my-shop"


def project(folder: Path, **files: str) -> Path:
    """A project with one dataset and one retailer; `files` replace or add, keyed by path with __ for / and _dot_ for a dot."""
    default = {
        "dataset.yaml": DATASET,
        "retailers/bookshop.yaml": RETAILER,
        "retailers/bookshop.csv": "url\nhttps://books.example.com/1\n",
    }
    given = {name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()}
    for name, text in {**default, **given}.items():
        path = folder / "datasets" / "prices" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def loaded(folder: Path, **files: str) -> tuple[Dataset, Retailer]:
    dataset = load.dataset(project(folder, **files), "prices")
    return dataset, dataset.retailers["bookshop"]


def said(folder: Path, **files: str) -> list[str]:
    with pytest.raises(DeclarationError) as error:
        load.project(project(folder, **files))
    return str(error.value).splitlines()


def test_a_declaration_is_resolved_with_defaults_under_the_retailers_own_values(tmp_path: Path) -> None:
    dataset, retailer = loaded(tmp_path)
    assert retailer.fetch.interval_seconds == 2.0
    assert retailer.fetch.concurrency == 2
    assert retailer.fetch.headers == {"Accept-Language": "es"}
    assert retailer.inventory_path == tmp_path / "datasets/prices/retailers/bookshop.csv"
    assert (dataset.accept_for("bookshop").coverage, dataset.accept_for("bookshop").required) == (
        0.99,
        ("name", "price"),
    )
    assert dataset.accept_for("no longer declared").required == ("name", "price", "currency")
    assert dataset.retry.policy.cap_seconds == 300.0
    assert (dataset.lease.lease_seconds, dataset.lease.deadline_seconds) == (60.0, 600.0)
    assert dataset.publish.to["lake"].files.path == tmp_path / "out"
    assert declaration.request_headers(dataset, retailer) == {
        "accept-language": "es",
        "user-agent": "scrape_assets (+https://example.com/bot)",
    }


def test_every_key_that_may_be_left_out_has_a_cautious_default(tmp_path: Path) -> None:
    dataset, retailer = loaded(
        tmp_path,
        dataset_dot_yaml="dataset: prices\nwindow: {every: day, start: 2026-11-01}\n",
        retailers__bookshop_dot_yaml="site: https://books.example.com\nurls: {file: bookshop.csv}\n",
    )
    assert (retailer.fetch.rate, retailer.fetch.concurrency, retailer.fetch.timeout_seconds) == ("5/s", 8, 60.0)
    assert (retailer.fetch.max_body_bytes, retailer.fetch.allow_private) == (10_000_000, False)
    assert dataset.accept_for("bookshop").coverage == 0.995
    assert dataset.accept_for("bookshop").required == ("name", "price", "currency")
    assert (dataset.retry.attempts, dataset.lease.lease_seconds, dataset.publish.to) == (5, 90.0, {})
    assert declaration.user_agent("") == "scrape_assets"


def test_yaml_keeps_what_was_written(tmp_path: Path) -> None:
    dataset, _ = loaded(tmp_path, dataset_dot_yaml=DATASET.replace('"06:00"', "16:30").replace("data-team", "no"))
    assert (dataset.window.at, dataset.owner) == ("16:30", "no")


def test_an_inventory_may_lie_in_the_datasets_folder(tmp_path: Path) -> None:
    _, retailer = loaded(
        tmp_path,
        retailers__bookshop_dot_yaml=RETAILER.replace("bookshop.csv", "all.txt"),
        all_dot_txt="https://books.example.com/1\n",
    )
    assert retailer.inventory_path == tmp_path / "datasets/prices/all.txt"


D = "datasets/prices/dataset.yaml"
R = "datasets/prices/retailers/bookshop.yaml"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("owner:", "ownr:", f"{D}:2: ownr: unknown key 'ownr'; did you mean 'owner'?"),
        ("dataset: prices", "dataset: price", f"{D}:1: dataset: 'price' differs from its folder's name, 'prices'"),
        ("dataset: prices", "dataset: Prices!", f"{D}:1: dataset: 'Prices!' is not a name; expected 1 to 40 of a-z, 0-9, _ and -, beginning with a letter or digit"),
        ("every: day", "every: days", f"{D}:4: window.every: 'days' is not possible; did you mean 'day'?"),
        ("Europe/Madrid", "Europe/Madird", f"{D}:4: window: timezone 'Europe/Madird' is unknown; expected an IANA name, as Europe/Madrid"),
        ("2026-11-01", "2026-13-01", f"{D}:4: window.start: '2026-13-01' is not a start; expected a local date or time, as 2026-11-01"),
        (", start: 2026-11-01", "", f"{D}:4: window.start: the key is missing; expected local date or time from which windows exist"),
        ("window: {", "windw: {", f"{D}:4: windw: unknown key 'windw'; did you mean 'window'?"),
        ("product_offer", "product_ofer", f"{D}:5: schema: schema 'product_ofer' is unknown; expected product_offer, or pages.py:Name of your own"),
        ("0.99", "99", f"{D}:6: accept.coverage: 99 is not a share; expected 0 to 1, or a percentage, as 0.05 or 5%"),
        ("coverage: 0.99", "required: [name, prise]", f"{D}:6: accept.required.1: schema product_offer has no field 'prise'; did you mean 'price'?"),
        ("coverage: 0.99", "required: name", f"{D}:6: accept.required: 'name' is not possible; expected a list, as [a, b]"),
        ("when: complete", "when: complet", f"{D}:8: publish.when: 'complet' is not possible; did you mean 'complete'?"),
        ("format: parquet", "format: parket", f"{D}:10: publish.to.lake.files.format: 'parket' is not possible; did you mean 'parquet'?"),
        ("lake: {files: {path: out,", "sea: {files: {path: ./out, format: csv}}\n    lake: {files: {path: out,", f"{D}:11: publish.to.lake.files.path: sea writes to this folder too, and one would replace the other's manifest"),
        ("path: out", "path: ~nosuch/out", f"{D}:10: publish.to.lake.files.path: '~nosuch/out': Could not determine home directory."),
        ("lake: {files", "lake: {file", f"{D}:10: publish.to.lake.file: unknown key 'file'; did you mean 'files'?"),
        ("base: 10s", "base: 10", f"{D}:11: retry.base: 10 is not a duration; expected a number above zero and its unit, as 90s, 15m, 2h or 14d"),
        ("attempts: 4", "attempts: many", f"{D}:11: retry.attempts: 'many' is not possible; expected a whole number"),
        ("for: 60s", "seconds: 60s", f"{D}:12: lease.seconds: unknown key 'seconds'; expected one of for, task_deadline"),
        ("30/min", "30 per min", f"{D}:13: defaults.fetch.rate: '30 per min' is not a rate; expected requests per time, as 5/s or 30/min, or none"),
        ("concurrency: 4", "concurency: 4", f"{D}:13: defaults.fetch.concurency: unknown key 'concurency'; did you mean 'concurrency'?"),
        ("Accept-Language: es", "Cookie: a=b", f"{D}:13: defaults.fetch.headers: 'Cookie' carries a secret, and a declaration is stored and shown; remove it"),
        ("Accept-Language: es", "User-Agent: Mozilla", f"{D}:13: defaults.fetch.headers: 'User-Agent' is set by the collector itself; remove it (contact: goes into the user agent)"),
        ("owner: data-team", "dataset: prices", f"{D}:2: dataset: the key is on line 1 already"),
        ("owner: data-team", "owner: [a", f"{D}:3: the file is not YAML: expected ',' or ']', but got ':'"),
        ("owner: data-team", "owner: 5", f"{D}:2: owner: 5 is not possible; expected text (quote it)"),
        ("https://example.com/bot", "bot (mail us)", f"{D}:3: contact: 'bot (mail us)' does not fit into a user agent; expected an address, as https://example.com/bot"),
    ],
)  # fmt: skip
def test_a_wrong_dataset_file_gives_one_clear_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in DATASET
    assert said(tmp_path, dataset_dot_yaml=DATASET.replace(old, new, 1)) == [line]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("css: .now", "cs: .now", f"{R}:10: product.fields.price.cs: unknown key 'cs'; did you mean 'css'?"),
        ("css: .now", "css: '.now['", f"{R}:10: product.fields.price.css: '.now[' is not a CSS selector"),
        ("css: .now", "css: .now::text", f"{R}:10: product.fields.price.css: css '.now::text': text is read as it is; for an attribute write attr: beside css"),
        ("css: .now", "css: .now, xpath: //s", f"{R}:10: product.fields.price: expected exactly one of css and xpath"),
        ("//s", "//s[", f"{R}:11: product.fields.list_price.xpath: '//s[' is not an XPath: XPath error: Invalid expression in //s["),
        ("css: .now", "css: .now, match: '('", f"{R}:10: product.fields.price.match: '(' is not a regular expression: missing ), unterminated subpattern at position 0"),
        ("money: EUR", "money: EURO", f"{R}:10: product.fields.price.money: 'EURO' is not a current ISO 4217 code, as EUR; did you mean 'EUR'?"),
        ('decimal: ","', 'decimal: ";"', f"{R}:10: product.fields.price.decimal: ';' is not possible; expected one of ,, ."),
        ("    price:", "    pirce:", f"{R}:10: product.fields.pirce: schema product_offer has no field 'pirce'; did you mean 'price'?"),
        ("attr: data-sku", "type: integer", f"{R}:9: product.fields.sku.type: 'integer' is not possible; did you mean 'int'?"),
        ("expect: article", "expect: '>>'\n  #", f"{R}:6: product.expect: '>>' is not a CSS selector"),
        ("[sku, seller]", "[sku, selller]", f"{R}:4: key.1: schema product_offer has no field 'selller'; did you mean 'seller'?"),
        ("[sku, seller]", "sku", f"{R}:4: key: 'sku' is not possible; expected a list, as [a, b]"),
        ("key: [sku, seller]", "", f"{R}:1: key: the key is missing; expected the fields that tell the rows of a page apart, as key: [sku]"),
        ("[sku, seller]", "[gtin]", f"{R}:4: key: gtin is none of the declared fields; expected one of sku, price, list_price, seller"),
        ("[sku, seller]", "[sku, sku]", f"{R}:4: key: a field is named twice"),
        ("bookshop.csv", "bokshop.csv", f"{R}:3: urls.file: inventory 'bokshop.csv' is not in datasets/prices/retailers or datasets/prices; did you mean 'bookshop.csv'?"),
        ("{file: bookshop.csv}", "{file: bookshop.csv, sitemap: x}", f"{R}:3: urls: expected exactly one of file, sitemap, listing, cursor, links, offset"),
        ("{file: bookshop.csv}", "{fil: bookshop.csv}", f"{R}:3: urls.fil: unknown key 'fil'; did you mean 'file'?"),
        ("urls: {file: bookshop.csv}", "", f"{R}:1: urls: the key is missing; expected {{file: inventory.csv}}, or sitemap, listing, cursor, links, offset"),
        ("https://books.example.com", "books.example.com", f"{R}:1: site: 'books.example.com' is not a site: the URL must start with http:// or https://; expected its address, as https://www.shop.example"),
        ("https://books.example.com", "https://books.example.com/es", f"{R}:1: site: 'https://books.example.com/es' names a page; expected the site alone, as https://books.example.com"),
        ("concurrency: 2", "concurrency: 0", f"{R}:13: fetch.concurrency: 0 is out of range; expected at least 1"),
        ("concurrency: 2", "via: browsers", f"{R}:13: fetch.via: 'browsers' is not possible; did you mean 'browser'?"),
        ("concurrency: 2", "wait_for: .now", f"{R}:13: fetch.wait_for: wait_for is for pages that a browser shows; expected via: browser beside it"),
        ("concurrency: 2", "via: browser, wait_for: '>>'", f"{R}:13: fetch.wait_for: '>>' is not a CSS selector"),
        ("concurrency: 2", "via: browser, block: [images]", f"{R}:13: fetch.block.0: 'images' is not possible; did you mean 'image'?"),
        ("concurrency: 2", "via: browser, hosts: ['https://api.example']", f"{R}:13: fetch.hosts.0: 'https://api.example' is no host: the name alone, perhaps with a port, in lower case; expected one as api.shop.example"),
        ("concurrency: 2", "rate: 5", f"{R}:13: fetch.rate: 5 is not possible; expected requests per time and origin, as 5/s, 30/min or none"),
        ("css: .now", "css: #now", f"{R}:11: the file is not YAML: expected ',' or '}}', but got ':'; a # after a space begins a comment, quote a selector that has one"),
        ("concurrency: 2", "max_body: 10", f"{R}:13: fetch.max_body: 10 is not a size; expected a number above zero and its unit, as 10MB"),
        ("concurrency: 2", "allow_private: perhaps", f"{R}:13: fetch.allow_private: 'perhaps' is not possible; expected true or false"),
        ("[name, price]", "[name, prices]", f"{R}:14: accept.required.1: schema product_offer has no field 'prices'; did you mean 'price'?"),
        ("product:", "produkt:", f"{R}:5: produkt: unknown key 'produkt'; did you mean 'product'?"),
    ],
)  # fmt: skip
def test_a_wrong_retailer_file_gives_one_clear_line(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in RETAILER
    assert said(tmp_path, retailers__bookshop_dot_yaml=RETAILER.replace(old, new, 1)) == [line]


PAGE_OBJECT = "site: https://books.example.com\nurls: {file: bookshop.csv}\nproduct: {page_object: 'pages.py:%s'}\n"


@pytest.mark.parametrize(
    ("pages", "name", "problem"),
    [
        (PAGES, "detial", "pages.py has no 'detial'; did you mean 'detail'?"),
        (PAGES, "NUMBER", "pages.py:NUMBER is a int; expected a function or a class"),
        (PAGES, "9", "'pages.py:9' names no page object; expected pages.py:Name"),
        ("import nowhere_to_be_found\n", "x", "pages.py cannot be imported: pages.py:1: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("x = 1\ndef broken(:\n", "x", "pages.py cannot be imported: pages.py:2: invalid syntax"),
        ("import sys\nsys.exit('bye\\nbye')\n", "x", "pages.py cannot be imported: pages.py:2: SystemExit: bye bye"),
        ("from helpers import missing\n", "x", "pages.py cannot be imported: pages.py:1: ImportError: cannot import name 'missing' from 'helpers'"),
    ],
)  # fmt: skip
def test_a_page_object_that_cannot_be_had_gives_one_clear_line(
    tmp_path: Path, pages: str, name: str, problem: str
) -> None:
    files = {"pages_dot_py": pages, "helpers_dot_py": "PRICE = 7\n", "retailers__bookshop_dot_yaml": PAGE_OBJECT % name}
    (line,) = said(tmp_path, **files)
    assert line.startswith(f"{R}:3: product.page_object: {problem}")


def test_what_pages_py_prints_is_no_output_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pages.py").write_text("print('hello')\ndef detail(page):\n    return []\n")
    page_objects.load(tmp_path, "pages.py:detail")
    assert tuple(capsys.readouterr()) == ("", "hello\n")


def test_a_page_object_is_loaded_with_the_modules_beside_it_and_afresh(tmp_path: Path) -> None:
    for shop, price in (("a", 1), ("b", 2)):
        folder = tmp_path / shop
        folder.mkdir()
        (folder / "pages.py").write_text(PAGES)
        (folder / "helpers.py").write_text(f"PRICE = {price}\n")
        assert page_objects.load(folder, "pages.py:detail")(None) == [{"price": price}]
    (tmp_path / "a" / "pages.py").write_text("def detail(response):\n    return []\n")
    assert page_objects.load(tmp_path / "a", "pages.py:detail")(None) == []


def test_a_schema_of_ones_own_gives_the_columns_and_what_is_required(tmp_path: Path) -> None:
    dataset, _ = loaded(
        tmp_path,
        dataset_dot_yaml=DATASET.replace("product_offer", "pages.py:Offer"),
        pages_dot_py=PAGES,
        helpers_dot_py="PRICE = 7\n",
        retailers__bookshop_dot_yaml=PAGE_OBJECT % "detail",
    )
    assert dataset.columns == ("title", "price")
    assert dataset.accept_for("bookshop").required == ("title",)
    assert schemas.load(dataset).name == "pages.py:Offer"
    assert said(
        tmp_path,
        dataset_dot_yaml=DATASET.replace("product_offer", "pages.py:Ofer"),
        retailers__bookshop_dot_yaml=PAGE_OBJECT % "detail",
    ) == [f"{D}:5: schema: pages.py has no 'Ofer'; did you mean 'Offer'?"]


def test_all_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    files = {
        "dataset_dot_yaml": DATASET.replace("owner:", "ownr:").replace("base: 10s", "base: x"),
        "retailers__bookshop_dot_yaml": RETAILER.replace("css: .now", "cs: .now").replace("bookshop.csv", "none.csv"),
        "retailers__Shop_dot_yaml": RETAILER,
        "retailers__bookshop_dot_yml": RETAILER,
        "retailers__empty_dot_yaml": "",
        "retailers__list_dot_yaml": "- a\n",
    }
    lines = said(tmp_path, **files)
    assert [line.split(": ")[0] for line in lines] == [
        f"{D}:2",
        f"{D}:11",
        "datasets/prices/retailers/Shop.yaml:1",
        f"{R}:10",
        "datasets/prices/retailers/bookshop.yml:1",
        "datasets/prices/retailers/empty.yaml:1",
        "datasets/prices/retailers/list.yaml:1",
    ]
    assert lines[2].endswith("beginning with a letter or digit")
    assert lines[4].endswith("the retailer 'bookshop' is declared in bookshop.yaml already")
    assert lines[5].endswith("the file is empty")


def test_a_dataset_without_its_file_or_without_retailers_says_so(tmp_path: Path) -> None:
    (tmp_path / "datasets" / "prices").mkdir(parents=True)
    with pytest.raises(DeclarationError) as error:
        load.project(tmp_path)
    assert str(error.value).splitlines() == [
        f"{D}:1: the file is missing",
        "datasets/prices/retailers: there is no retailer; expected a file for each, as bookshop.yaml",
    ]


@pytest.mark.parametrize(
    "name", ["shop.a-1.0", "a/b", "../x", "a,b", "a b", "a...b", "[x]", "Ü", "a\n", "", "-a", "A", "a" * 41, "a|b"]
)
def test_a_name_that_no_partition_key_or_path_can_hold_is_refused(name: str) -> None:
    assert name_problem(name)


def test_an_unknown_dataset_names_the_nearest_and_a_folder_without_any_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="expected a project folder"):
        load.project(tmp_path)
    project(tmp_path)
    with pytest.raises(DeclarationError, match=r"there is no dataset 'price' in .*; did you mean 'prices'"):
        load.dataset(tmp_path, "price")
    with pytest.raises(DeclarationError, match="there is no dataset"):
        load.dataset(tmp_path, "../prices")


def test_a_file_that_is_not_utf_8_says_where(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / R).write_bytes(RETAILER.encode() + b"# caf\xe9\n")
    with pytest.raises(DeclarationError) as error:
        load.project(tmp_path)
    assert str(error.value) == f"{R}:15: the file is not UTF-8"


FROZEN = [
    ("retailers__bookshop_dot_yaml", "css: .now", "css: .new", ["extract.page.fields.price.css"]),
    ("retailers__bookshop_dot_yaml", "[sku, seller]", "[sku]", ["entity.key", "extract.key"]),
    ("retailers__bookshop_dot_yaml", "optional: true", "optional: false", ["extract.page.fields.list_price.optional"]),
    ("retailers__bookshop_dot_yaml", "concurrency: 2", "allow_private: true", ["fetch.allow_private"]),
    ("dataset_dot_yaml", "Accept-Language: es", "Accept-Language: ca", ["fetch.headers.Accept-Language"]),
]


@pytest.mark.parametrize(("file", "old", "new", "keys"), FROZEN)
def test_a_change_of_the_frozen_part_names_its_keys(
    tmp_path: Path, file: str, old: str, new: str, keys: list[str]
) -> None:
    before = declaration.manifest(*loaded(tmp_path))
    text = DATASET if file.startswith("dataset") else RETAILER
    after = declaration.manifest(*loaded(tmp_path, **{file: text.replace(old, new)}))
    assert declaration.differences(before, after) == keys
    assert declaration.differences(before, before) == []


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("dataset_dot_yaml", "30/min", "none"),
        ("dataset_dot_yaml", "coverage: 0.99", "coverage: 0.5"),
        ("dataset_dot_yaml", "attempts: 4", "attempts: 9"),
        ("dataset_dot_yaml", "for: 60s", "for: 2s"),
        ("dataset_dot_yaml", "path: out", "path: elsewhere"),
        ("dataset_dot_yaml", "example.com/bot", "example.com/robot"),
        ("retailers__bookshop_dot_yaml", "concurrency: 2", "timeout: 9s"),
        ("retailers__bookshop_dot_yaml", "read 2026-10", "read 2026-11"),
    ],
)
def test_a_live_key_is_not_in_the_manifest(tmp_path: Path, file: str, old: str, new: str) -> None:
    before = declaration.manifest_text(declaration.manifest(*loaded(tmp_path)))
    text = DATASET if file.startswith("dataset") else RETAILER
    assert old in text
    assert (
        declaration.manifest_text(declaration.manifest(*loaded(tmp_path, **{file: text.replace(old, new)}))) == before
    )


def test_the_extract_block_of_a_manifest_gives_the_rule_back(tmp_path: Path) -> None:
    dataset, retailer = loaded(tmp_path)
    frozen = declaration.manifest(dataset, retailer)
    assert ExtractRule.model_validate(frozen["extract"]) == declaration.extract_rule(dataset, retailer)


def test_an_extractor_version_follows_the_rule_and_the_sources_that_it_uses(tmp_path: Path) -> None:
    files = {"pages_dot_py": PAGES, "helpers_dot_py": "PRICE = 7\n"}
    plain = loaded(tmp_path, **files)
    sources = page_objects.sources(plain[0].folder)
    assert sorted(sources) == ["helpers.py", "pages.py"]
    version = declaration.extractor_version(*plain, sources)
    assert declaration.extractor_version(*plain, {**sources, "helpers.py": ""}) == version
    changed = loaded(tmp_path, retailers__bookshop_dot_yaml=RETAILER.replace(".now", ".new"))
    assert declaration.extractor_version(*changed, sources) != version
    coded = loaded(tmp_path, retailers__bookshop_dot_yaml=PAGE_OBJECT % "detail")
    assert declaration.extractor_version(*coded, sources) != declaration.extractor_version(
        *coded, {**sources, "helpers.py": ""}
    )


def offers(**columns: list[object]) -> object:
    import pandas as pd

    rows = len(next(iter(columns.values())))
    full = {name: columns.get(name, [None] * rows) for name in schemas.PRODUCT_OFFER_COLUMNS}
    return pd.DataFrame({name: pd.Series(values, dtype="object") for name, values in full.items()})


def test_the_built_in_schema_accepts_stored_values_and_refuses_what_they_cannot_be() -> None:
    from pandera.errors import SchemaErrors

    schema = schemas.of("product_offer", Path())
    good = offers(
        name=["A", "B"], price=["12.5", None], currency=["EUR", None], availability=["in_stock", None],
        review_count=[3, "4"], rating=["4.5", 5], gtin=["4006381333931", None], url=["https://shop.example/1", None],
    )  # fmt: skip
    schema.validate(good, lazy=True)
    wrong: dict[str, object] = {
        "name": " ", "price": "1,5", "currency": "XXX", "availability": "maybe", "review_count": -1, "rating": "NaN",
        "gtin": "12", "url": "javascript:x", "source_revised_at": "yesterday", "unit_price": 1.5,
    }  # fmt: skip
    for column, value in wrong.items():
        with pytest.raises(SchemaErrors) as error:
            schema.validate(offers(**{column: [value]}), lazy=True)
        assert set(error.value.failure_cases["column"]) == {column}


@pytest.mark.parametrize(
    "name", ["Authorization", "Cookie", "X-Api-Key", "api-key", "APIKEY", "X-Auth-Token", "x-shop-secret", "X-Password"]
)
def test_a_header_that_looks_like_a_secret_is_refused_and_its_value_is_not_told(tmp_path: Path, name: str) -> None:
    text = RETAILER.replace("{concurrency: 2}", f"{{headers: {{{name}: hunter2}}}}")
    with pytest.raises(DeclarationError, match=f"'{name}' carries a secret") as refused:
        loaded(tmp_path, retailers__bookshop_dot_yaml=text)
    assert "hunter2" not in str(refused.value)


def test_an_ordinary_header_is_none(tmp_path: Path) -> None:
    text = RETAILER.replace("{concurrency: 2}", "{headers: {Accept: text/html, X-Requested-With: XMLHttpRequest}}")
    assert loaded(tmp_path, retailers__bookshop_dot_yaml=text)[1].fetch.headers["Accept"] == "text/html"


@pytest.mark.parametrize("key", ["url", "find"])
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://api.example.com/in?token=hunter2", "the parameter 'token'"),
        ("https://api.example.com/in?a=1&API_KEY=hunter2", "the parameter 'API_KEY'"),
        ("https://api.example.com/in?key=hunter2", "the parameter 'key'"),
        ("https://api.example.com/in?sig=hunter2", "the parameter 'sig'"),
        ("https://api.example.com/in?X-Signature=hunter2", "the parameter 'X-Signature'"),
        ("https://api.example.com/in?client_secret=hunter2", "the parameter 'client_secret'"),
        ("https://api.example.com/in?password=hunter2", "the parameter 'password'"),
        ("https://ana:hunter2@api.example.com/in", "holds a user or password"),
        ("https://hunter2@api.example.com/in", "holds a user or password"),
    ],
)
def test_an_address_that_holds_a_secret_is_refused_without_telling_it(
    tmp_path: Path, key: str, address: str, said: str
) -> None:
    given = f"url: '{address}'" if key == "url" else f"url: 'https://api.example.com', find: '{address}/{{key}}'"
    text = DATASET.replace("{files: {path: out, format: parquet}}", f"{{http: {{{given}}}}}")
    with pytest.raises(DeclarationError, match="a declaration is stored and shown; remove it") as refused:
        loaded(tmp_path, dataset_dot_yaml=text)
    assert said in str(refused.value)
    assert "`secret: env:NAME` signs what is sent" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_site_with_a_password_is_refused_without_telling_it(tmp_path: Path) -> None:
    text = RETAILER.replace("https://books", "https://ana:hunter2@books")
    with pytest.raises(DeclarationError, match="holds a user or password") as refused:
        loaded(tmp_path, retailers__bookshop_dot_yaml=text)
    assert "hunter2" not in str(refused.value)


def test_an_address_with_ordinary_parameters_is_taken(tmp_path: Path) -> None:
    http = "{http: {url: 'https://api.example.com/in?tenant=7&keys=all'}}"
    dataset, _ = loaded(tmp_path, dataset_dot_yaml=DATASET.replace("{files: {path: out, format: parquet}}", http))
    assert dataset.publish.to["lake"].http is not None


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("dataset_dot_yaml", "{coverage: 0.99}", "{page_states: {challange: 1%}}", "did you mean 'challenge'?"),
        ("retailers__bookshop_dot_yaml", "money: EUR, decimal", "money: GPB, decimal", "did you mean 'GBP'?"),
        ("retailers__bookshop_dot_yaml", "money: EUR, decimal", "money: USA, decimal", "did you mean 'USD'?"),
        ("retailers__bookshop_dot_yaml", "money: EUR, decimal", "money: ERU, decimal", "did you mean 'EUR'?"),
        ("dataset_dot_yaml", "coverage: 0.99", "covreage: 0.99", "did you mean 'coverage'?"),
    ],
)
def test_a_slip_of_the_finger_is_understood(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    text = DATASET if file.startswith("dataset") else RETAILER
    assert old in text
    with pytest.raises(DeclarationError) as refused:
        loaded(tmp_path, **{file: text.replace(old, new)})
    assert said in str(refused.value)
    assert "Input should be" not in str(refused.value)


def test_a_host_that_pages_in_a_browser_may_ask_has_the_budget_of_those_who_ask_it(tmp_path: Path) -> None:
    for name, via, rate in (("north", "browser", "1/s"), ("south", "http", "10s")):
        hosts = "wait_for: .price, hosts: [api.example]" if via == "browser" else "concurrency: 8"
        more = f"fetch: {{via: {via}, rate: {rate.replace('10s', '2/s')}, {hosts}}}"
        make.dataset(tmp_path, {name: (f"https://{name}.example", ["/p/1"])}, more=more)
    dataset = load.dataset(tmp_path, "prices")
    assert dataset.budget("https://api.example").interval_seconds == 1.0
    assert dataset.budget("https://eu.api.example").interval_seconds == 1.0
    assert dataset.budget("https://south.example").interval_seconds == 0.5
    assert dataset.budget("https://elsewhere.example").interval_seconds == 0.2
