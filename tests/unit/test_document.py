"""Bytes to text and tree: the encoding a page is really in, and bounded work for hostile ones."""

from __future__ import annotations

import pytest

from scrape_assets.rules.document import REPLACEMENT, Document, UnreadablePage, decode, text_of
from scrape_assets.rules.money import APART

PRICE = "<p>19,99 € – Größe</p>"


def document(text: str, url: str = "https://shop.test/a/b") -> Document:
    return Document(decode(text.encode(), None), url)


# BC043
def test_the_byte_order_mark_beats_a_header() -> None:
    decoded = decode(b"\xff\xfe" + PRICE.encode("utf-16-le"), "text/html; charset=utf-8")
    assert (decoded.text, decoded.replacements) == (PRICE, 0)


def test_utf_16_without_a_mark_is_seen() -> None:
    assert decode(PRICE.encode("utf-16-be"), "text/html; charset=utf-8").text == PRICE


# BC043
def test_the_pages_own_charset_holds_where_the_header_names_none() -> None:
    body = b'<meta charset="windows-1252">' + PRICE.encode("cp1252")
    assert decode(body, "text/html").text.endswith(PRICE)


# BC043
def test_an_unquoted_meta_of_a_chinese_page_is_read() -> None:
    text = "<meta http-equiv=Content-Type content=text/html;charset=gbk><p>羊肉餐盒</p>"
    assert decode(text.encode("gbk"), None).text == text


# BC043
@pytest.mark.parametrize("label", ["utf8mb4", "hex", "rot13", "unicode_escape", "utf-7", "none", '"'])
def test_an_unknown_label_does_no_harm(label: str) -> None:
    assert decode(PRICE.encode(), f"text/html; charset={label}").text == PRICE


def test_a_header_that_the_bytes_contradict_yields_to_the_page() -> None:
    body = b'<meta charset="windows-1252">' + PRICE.encode("cp1252")
    assert decode(body, "text/html; charset=utf-8").text.endswith(PRICE)


def test_utf_8_under_a_latin_1_header_is_utf_8() -> None:
    assert decode(PRICE.encode(), "text/html; charset=iso-8859-1").text == PRICE


def test_undeclared_western_text_is_read_as_windows_1252() -> None:
    assert decode("<p>19,99 € – Größe</p>".encode("cp1252"), None).text == PRICE


def test_undeclared_text_of_another_alphabet_is_not_guessed_at() -> None:
    decoded = decode("<p>купить недорого</p>".encode("cp1251"), None)
    assert decoded.replacements > 0
    assert REPLACEMENT in decoded.text


def test_one_broken_character_does_not_turn_a_utf_8_page_into_another_encoding() -> None:
    body = b'<meta charset="iso-8859-1">' + "Größe für Mädchen".encode() + b"\xc3"
    decoded = decode(body, None)
    assert "Größe für Mädchen" in decoded.text
    assert decoded.replacements == 1


# BC042
@pytest.mark.parametrize("body", [b"", b"\r\n ", b"<!-- -->", b"\xef\xbb\xbf", b"\xef\xbb\xbf<!-- a --> <!-- b"])
def test_a_document_with_nothing_in_it_is_blank(body: bytes) -> None:
    blank = Document(decode(body, None), "https://shop.test/")
    assert blank.is_blank
    assert blank.css("p") == []


# BC042
def test_an_xml_declaration_does_not_stop_xpath() -> None:
    page = document('<?xml version="1.0" encoding="utf-8"?><html><body><p>a</p></body></html>')
    assert page.selector.xpath("//p/text()").getall() == ["a"]


def test_addresses_are_relative_to_the_base_element() -> None:
    page = document('<base href="/shop/"><a href="x">')
    assert page.absolute("x?a=1") == "https://shop.test/shop/x?a=1"
    assert page.absolute("javascript:alert(1)") is None
    assert page.absolute("http://[broken") is None


def test_text_keeps_words_apart_and_scripts_out() -> None:
    page = document("<div><p>A <b>b</b>c</p><p>D<br>E</p><script>x</script></div>")
    assert text_of(page.css("div")[0]) == "A bc D E"


def test_raised_cents_never_join_the_euros() -> None:
    page = document("<div>19<sup>99</sup></div>")
    assert (text_of(page.css("div")[0]), text_of(page.css("div")[0], joint=APART)) == ("19 99", "19|99")


@pytest.mark.parametrize("markup", ["39<b>,99</b> €", "39,<sup>99</sup> €", "<i>39</i><i>,</i><i>99</i> €"])
def test_cents_behind_a_written_separator_belong_to_their_euros(markup: str) -> None:
    assert text_of(document(f"<div>{markup}</div>").css("div")[0], joint=APART).startswith("39,99")


def test_an_inline_element_after_a_block_stands_apart() -> None:
    assert text_of(document("<h1><div>Acme</div><span>Widget</span></h1>").css("h1")[0]) == "Acme Widget"


def test_a_hostile_nesting_is_refused_before_it_is_parsed() -> None:
    page = document("<div>" * 200_000)
    with pytest.raises(UnreadablePage):
        page.css("div")
    assert "tree" not in page.__dict__
