"""Inventories: the pages of one retailer, read line by line. What cannot be a task is reported, never dropped.

    CSV     a header with `url`, and optionally `entity`, `page_type`, `context`, `priority`; separated by , ; or tab
    text    one address a line; a .csv without a header and with one column is text
    JSONL   one object a line with the same keys

Blank lines are skipped everywhere, lines that begin with # in CSV and text.

Memory holds a 16-byte hash and a line number per accepted line, for duplicates, and nothing else.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from scrape_assets.datasets.units import NAME_PATTERN
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import keys, urls

MAX_LINE_BYTES = 65_536
SHOWN_CHARACTERS = 200
MAX_TEXT_CHARACTERS = 500
"""Of an entity or a context."""

PRIORITIES = range(-32_768, 32_768)
KEYS = ("url", "entity", "page_type", "context", "priority")

_BOM = b"\xef\xbb\xbf"
_TABLES = (".csv", ".tsv")
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Line:
    """One page to collect. Without an `entity`, its canonical URL identifies what is on it."""

    number: int
    url: str
    canonical_url: str
    entity: str | None = None
    page_type: str = "product"
    context: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that is no task: its text, shortened and printable, and a sentence that says why."""

    number: int
    text: str
    reason: str


class _Raw(NamedTuple):
    number: int
    text: str
    problem: str | None


def check(path: Path) -> None:
    """The file can be read and its form is known; DeclarationError otherwise."""
    with _open(path) as file:
        _form(path, file)


def read(path: Path, *, site: str, contexts: Collection[str] = ()) -> Iterator[Line | Rejected]:
    """Every line of the inventory as a task or a rejection, in order; a page's first line is the one that counts.

    Where contexts are declared, a line is a task in each of them, or in the one that it names.
    DeclarationError when the file cannot be read or its header is wrong.
    """
    with _open(path) as file:
        parse, header_lines = _form(path, file)
        first_lines: dict[bytes, int] = {}
        try:
            file.seek(0)
            for raw in _lines(file):
                if raw.number <= header_lines or (raw.problem is None and not raw.text.strip()):
                    continue
                try:
                    if raw.problem is not None:
                        raise ValueError(raw.problem)
                    values = parse(raw.text)
                    if values is not None:
                        yield from _in_contexts(_line(raw.number, values, site), contexts, first_lines)
                except ValueError as error:
                    yield Rejected(raw.number, _shown(raw.text), str(error))
        except OSError as error:
            raise _unreadable(path, error) from error


def unread_columns(path: Path) -> list[str]:
    """What a CSV's header names that nobody reads: one's own remark, or a slip that is too far off to be guessed."""
    if path.suffix.lower() not in _TABLES:
        return []
    with _open(path) as file:
        first = _first(file)
    header = first and _header(path, first)
    unread = [name for name in header[0] if name not in KEYS] if header else []
    if not unread:
        return []
    are = "columns that are" if len(unread) > 1 else "a column that is"
    return [f"inventory {path} has {are} not read: {', '.join(unread)[:SHOWN_CHARACTERS]}; known are {', '.join(KEYS)}"]


_Values = dict[str, Any]
_Parse = Callable[[str], _Values | None]


def contexts_of(named: str, declared: Collection[str]) -> Sequence[str]:
    """The contexts in which a page is asked for: all that are declared, or the one that it names.

    ValueError for one that is not declared; without any, what stands there is part of the page's identity alone.
    """
    if not declared:
        return (named,)
    if not named:
        return sorted(declared)
    if named not in declared:
        near = get_close_matches(named, declared, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; expected one of {', '.join(sorted(declared)[:10])}"
        raise ValueError(f"no context {named[:60]!r} is declared{hint}")
    return (named,)


def _in_contexts(line: Line, declared: Collection[str], first_lines: dict[bytes, int]) -> Iterator[Line]:
    """The line once for each of its contexts, but for those in which the page was listed before."""
    new = False
    first = line.number
    for context in contexts_of(line.context, declared):
        # One page in two contexts, or as two page types, is two tasks: what a task's key is made of decides.
        parts = (context, line.page_type, line.canonical_url)
        same = hashlib.blake2b(keys.encode(parts), digest_size=16).digest()
        first = first_lines.setdefault(same, line.number)
        if first == line.number:
            new = True
            yield replace(line, context=context) if context != line.context else line
    if not new:
        raise ValueError(f"the same page is on line {first}: both are {line.canonical_url[:SHOWN_CHARACTERS]}")


def _line(number: int, values: _Values, site: str) -> Line:
    url = _text(values, "url", urls.MAX_URL_LENGTH)
    if not url:
        raise ValueError("the line names no url")
    canonical_url = urls.canonical(url)
    if not urls.within(site, canonical_url):
        raise ValueError(f"the URL lies outside the site {site}")
    page_type = _text(values, "page_type", MAX_TEXT_CHARACTERS) or "product"
    if not re.fullmatch(NAME_PATTERN, page_type):
        raise ValueError(f"page_type {page_type[:60]!r} is not a name; expected a-z, 0-9, _ and -, as product")
    entity = _text(values, "entity", MAX_TEXT_CHARACTERS) or None
    context = _text(values, "context", MAX_TEXT_CHARACTERS)
    priority = _priority(values.get("priority"))
    return Line(number, url, canonical_url, entity, page_type, context, priority)


def _text(values: _Values, key: str, limit: int) -> str:
    value = values.get(key)
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r:.60}; expected text")  # noqa: TRY004, a rejection is a ValueError
    text = value.strip(" \t")
    if key != "url":
        if len(text) > limit:
            raise ValueError(f"{key} has {len(text):,} characters; at most {limit:,} are accepted")
        if found := _NOT_TEXT.search(text):
            raise ValueError(f"{key} contains the control character U+{ord(found.group()):04X}")
    return text


def _priority(value: Any) -> int:
    if value is None or value == "":
        return 0
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,6}", text, re.ASCII) or int(text) not in PRIORITIES:
        raise ValueError(f"priority is {text[:40]!r}; expected a whole number from -32,768 to 32,767")
    return int(text)


def _shown(text: str) -> str:
    printable = _NOT_TEXT.sub("\ufffd", text[: SHOWN_CHARACTERS + 1])
    return printable if len(printable) <= SHOWN_CHARACTERS else printable[: SHOWN_CHARACTERS - 1] + "…"


def _unreadable(path: Path, error: OSError) -> DeclarationError:
    return DeclarationError(f"inventory {path} cannot be read: {error.strerror or error}")


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise _unreadable(path, error) from error


def _lines(file: BinaryIO) -> Iterator[_Raw]:
    """Physical lines, decoded one by one, so that one bad line costs one line and one endless line no memory."""
    number = 0
    while chunk := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        problem = None
        if len(chunk) > MAX_LINE_BYTES and not chunk.endswith(b"\n"):
            problem = f"the line is longer than {MAX_LINE_BYTES:,} bytes"
            while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        if number == 1:
            chunk = chunk.removeprefix(_BOM)
        chunk = chunk.rstrip(b"\r\n")
        try:
            text = chunk.decode()
        except UnicodeDecodeError as error:
            text = chunk.decode(errors="replace")
            problem = problem or f"the line is not UTF-8 at its byte {error.start + 1}"
        if problem is None and "\0" in text:
            problem = "the line contains a NUL character"
        yield _Raw(number, text, problem)


def _form(path: Path, file: BinaryIO) -> tuple[_Parse, int]:
    """How a line of this file is parsed, and the number of lines that its header takes."""
    try:
        if file.read(2) in _UTF16_BOMS:
            raise DeclarationError(f"inventory {path} is UTF-16; expected UTF-8")
        file.seek(0)
        suffix = path.suffix.lower()
        if suffix in (".jsonl", ".ndjson"):
            return _json, 0
        if suffix not in _TABLES:
            return _plain, 0
        first = _first(file)
    except OSError as error:
        raise _unreadable(path, error) from error
    header = first and _header(path, first)
    return (_csv(*header), first.number) if first and header else (_plain, 0)


def _first(file: BinaryIO) -> _Raw | None:
    """The first line that says anything."""
    return next((raw for raw in _lines(file) if raw.text.strip() and not _is_comment(raw.text)), None)


def _header(path: Path, first: _Raw) -> tuple[list[str], str] | None:
    """The names of a table's columns and what separates them; nothing where its first line is an address alone."""
    unclosed: ValueError | None = None
    for delimiter in (",", ";", "\t"):
        try:
            names = [name.strip().lower() for name in _split(first.text, delimiter)]
        except ValueError as error:
            unclosed = unclosed or error
            continue
        if "url" in names:
            if len(set(names) & set(KEYS)) != len([name for name in names if name in KEYS]):
                raise DeclarationError(f"inventory {path}, line {first.number}: a column is named twice")
            if misspelt := next((reason for name in names if (reason := _misspelt(name))), None):
                raise DeclarationError(f"inventory {path}, line {first.number}: {misspelt}")
            return names, delimiter
    if unclosed:
        raise DeclarationError(f"inventory {path}, line {first.number}: {unclosed}") from unclosed
    if "://" in first.text and not re.search("[,;\t]", first.text):
        return None
    raise DeclarationError(
        f"inventory {path}, line {first.number}: {_shown(first.text)[:80]!r} is no header; expected the names of the"
        f" columns with url among them, as {','.join(KEYS)}"
    )


def _split(text: str, delimiter: str) -> list[str]:
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration) as error:
        raise ValueError("the line's quotes do not close") from error


@lru_cache(maxsize=1024)
def _misspelt(name: str) -> str | None:
    """Why a column that we do not know is probably one that we do."""
    if name in KEYS:
        return None
    near = get_close_matches(name.lower().replace(" ", "_").replace("-", "_"), KEYS, n=1, cutoff=0.8)
    return f"{name[:60]!r} is unknown; did you mean {near[0]!r}?" if near else None


def _csv(names: list[str], delimiter: str) -> _Parse:
    def parse(text: str) -> _Values | None:
        if _is_comment(text):
            return None
        # With one column there is nothing to divide: an address may hold any of the characters that do.
        cells = _split(text, delimiter) if len(names) > 1 or '"' in text else [text]
        if len(cells) > len(names):
            raise ValueError(
                f"the line has {len(cells)} cells and the header {len(names)}; quote a cell that holds {delimiter!r}"
            )
        return dict(zip(names, cells, strict=False))

    return parse


def _plain(text: str) -> _Values | None:
    return None if _is_comment(text) else {"url": text}


def _is_comment(text: str) -> bool:
    return text.lstrip(" \t").startswith("#")


def _json(text: str) -> _Values:
    try:
        values = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the line is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError('the line is not a JSON object; expected one, as {"url": "https://…"}')  # noqa: TRY004, as above
    for name in values:
        if reason := _misspelt(name):
            raise ValueError(reason)
    return values
