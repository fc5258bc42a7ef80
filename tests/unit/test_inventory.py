"""Every line of an inventory is a task or a rejection with a reason; nothing is dropped."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from scrape_assets.datasets import inventory
from scrape_assets.datasets.inventory import Line, Rejected
from scrape_assets.errors import DeclarationError

SITE = "https://shop.example"


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path) -> list[Line | Rejected]:
    return list(inventory.read(path, site=SITE))


def lines(path: Path) -> list[Line]:
    return [line for line in read(path) if isinstance(line, Line)]


def rejected(path: Path) -> list[Rejected]:
    return [line for line in read(path) if isinstance(line, Rejected)]


def test_a_csv_gives_its_columns_in_any_order_and_defaults_for_the_rest(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.csv",
        "# exported on Monday\n\npriority,URL,entity,note,context,page_type\n"
        "7,https://shop.example/1,sku-1,x,es,\n"
        ',"https://shop.example/2?a=1,2",,,,listing\n',
    )
    assert read(path) == [
        Line(4, "https://shop.example/1", "https://shop.example/1", "sku-1", "product", "es", 7),
        Line(5, "https://shop.example/2?a=1,2", "https://shop.example/2?a=1,2", None, "listing", "", 0),
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_may_use_the_separators_that_spreadsheets_use(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, "a.csv", f"entity{delimiter}url\r\ns1{delimiter}https://shop.example/1\r\n")
    assert [(line.entity, line.url) for line in lines(path)] == [("s1", "https://shop.example/1")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_may_be_quoted(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, "a.csv", f'"url"{delimiter}"entity"\n"https://shop.example/1"{delimiter}"s1"\n')
    assert [(line.entity, line.url) for line in lines(path)] == [("s1", "https://shop.example/1")]


def test_a_csv_of_addresses_alone_takes_them_with_any_separator_in_them(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'url\nhttps://shop.example/cup,123.html\n"https://shop.example/2?a=1,2;3"\n')
    assert [line.url for line in lines(path)] == ["https://shop.example/cup,123.html", "https://shop.example/2?a=1,2;3"]


def test_a_csv_without_a_header_and_a_text_file_are_one_url_a_line(tmp_path: Path) -> None:
    content = "# pages\n\nhttps://shop.example/1\n  https://shop.example/2  \n"
    for name in ("a.txt", "a.csv", "a.list"):
        assert [(line.number, line.url) for line in lines(write(tmp_path, name, content))] == [
            (3, "https://shop.example/1"),
            (4, "https://shop.example/2"),
        ]


def test_jsonl_gives_one_page_an_object(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.jsonl",
        '{"url": "https://shop.example/1", "entity": 17, "priority": -3, "context": null}\n'
        "\n"
        "[1]\n"
        "{broken\n"
        '{"url": ["https://shop.example/2"]}\n'
        '{"url": "https://shop.example/3", "priorty": 1}\n',
    )
    assert lines(path) == [Line(1, "https://shop.example/1", "https://shop.example/1", "17", priority=-3)]
    assert [(line.number, line.reason.split(":")[0]) for line in rejected(path)] == [
        (3, 'the line is not a JSON object; expected one, as {"url"'),
        (4, "the line is not JSON"),
        (5, "url is ['https"),
        (6, "'priorty' is unknown; did you mean 'priority'?"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("shop.example/1", "the URL must start with http:// or https://"),
        ("https://other.example/1", "the URL lies outside the site https://shop.example"),
        ("https://shop.example/" + "x" * 9000, "the URL has 9,021 characters; at most 8,192 are accepted"),
        ("https://shop.example/\x01", "the URL contains U+0001"),
        ("https://shop.example/a\x00b", "the line contains a NUL character"),
        ("https://shop.example/a\rhttps://shop.example/b", "the URL contains U+000D"),
        ("https://u:p@shop.example/", "the URL carries a user name or password"),
    ],
)
def test_a_line_that_is_no_page_of_the_site_is_rejected_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path, "a.txt", f"https://shop.example/ok\n{line}\nhttps://shop.example/ok2\n")
    found = read(path)
    assert [type(entry) for entry in found] == [Line, Rejected, Line]
    bad = found[1]
    assert isinstance(bad, Rejected)
    assert bad.number == 2
    assert reason in bad.reason
    assert len(bad.text) <= 200
    assert "\x00" not in bad.text


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("https://shop.example/1,high,", "priority is 'high'; expected a whole number"),
        ("https://shop.example/1,1_0,", "priority is '1_0'"),
        ("https://shop.example/1,99999,", "priority is '99999'"),
        ("https://shop.example/1,1.5,", "priority is '1.5'"),
        ("https://shop.example/1,,Front Page", "page_type 'Front Page' is not a name"),
        (",1,", "the line names no url"),
        ("https://shop.example/1,1,product,extra", "the line has 4 cells and the header 3"),
        ('"https://shop.example/1,1,', "the line's quotes do not close"),
    ],
)
def test_a_bad_cell_rejects_its_line_alone(tmp_path: Path, cells: str, reason: str) -> None:
    path = write(tmp_path, "a.csv", f"url,priority,page_type\n{cells}\nhttps://shop.example/2\n")
    assert [reason in line.reason for line in rejected(path)] == [True]
    assert [line.number for line in lines(path)] == [3]


def test_a_page_that_is_listed_twice_names_its_first_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "https://shop.example/1\nhttps://shop.example/2\nHTTPS://SHOP.EXAMPLE:443/1#top\n")
    assert [(line.number, line.reason) for line in rejected(path)] == [
        (3, "the same page is on line 1: both are https://shop.example/1")
    ]


def test_one_page_in_two_contexts_is_two_tasks(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "url,context\nhttps://shop.example/1,28001\nhttps://shop.example/1,08001\n")
    assert [line.context for line in lines(path)] == ["28001", "08001"]


def test_long_urls_that_differ_in_the_last_character_are_two_tasks(tmp_path: Path) -> None:
    long = "https://shop.example/?t=" + bytes(range(256)).hex() * 7
    path = write(tmp_path, "a.txt", f"{long}a\n{long}b\n")
    assert [line.canonical_url[-1] for line in lines(path)] == ["a", "b"]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    assert lines(write(tmp_path, "a.csv", b"\xef\xbb\xbfurl\r\nhttps://shop.example/1\r\n"))[0].number == 2
    assert lines(write(tmp_path, "a.txt", b"\xef\xbb\xbfhttps://shop.example/1"))[0].number == 1


def test_a_line_in_another_encoding_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"https://shop.example/caf\xe9\nhttps://shop.example/2\n")
    assert [line.reason for line in rejected(path)] == ["the line is not UTF-8 at its byte 25"]
    assert [line.number for line in lines(path)] == [2]


def test_an_endless_line_is_rejected_without_being_held(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"x" * 30_000_000 + b"\nhttps://shop.example/2\n")
    tracemalloc.start()
    found = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(entry) for entry in found] == [Rejected, Line]
    assert [entry.number for entry in found] == [1, 2]
    assert peak < 5_000_000


def test_an_inventory_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "".join(f"https://shop.example/{n}\n" for n in range(50_000)))
    reader = inventory.read(path, site=SITE)
    tracemalloc.start()
    for _ in range(1000):
        next(reader)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"link,sku\nhttps://shop.example/1,2\n", "'link,sku' is no header"),
        ("a.csv", b"https://shop.example/1,sku-1\n", "is no header"),
        ("a.csv", b"url,priorty\n", "'priorty' is unknown; did you mean 'priority'?"),
        ("a.csv", b"url,page type\n", "did you mean 'page_type'?"),
        ("a.csv", b"url,url\n", "a column is named twice"),
        ("a.csv", "url\n".encode("utf-16"), "is UTF-16; expected UTF-8"),
    ],
)
def test_a_file_whose_form_is_unclear_is_refused_before_anything_is_planned(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(DeclarationError) as error:
        inventory.check(path)
    assert said in str(error.value)
    with pytest.raises(DeclarationError):
        read(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name in ("missing.csv", "folder.csv"):
        with pytest.raises(DeclarationError, match="cannot be read"):
            read(tmp_path / name)


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    for name in ("a.csv", "a.txt", "a.jsonl"):
        assert read(write(tmp_path, name, "")) == []


def test_a_column_that_nobody_reads_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", f"url;prio\n{SITE}/1;3\n")
    assert [(line.url, line.priority) for line in lines(path)] == [(f"{SITE}/1", 0)]
    (said,) = inventory.unread_columns(path)
    assert "a column that is not read: prio; known are url, entity" in said
    for name, content in (("b.csv", f"url,priority\n{SITE}/1,3\n"), ("c.csv", f"{SITE}/1\n"), ("d.txt", "a;b\n")):
        assert inventory.unread_columns(write(tmp_path, name, content)) == []
