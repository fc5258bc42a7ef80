"""Golden pages: recorded pages of a retailer beside what a person says that they say.

datasets/<dataset_id>/cases/<retailer>/<name>/page.html       the page itself, byte for byte after inflation
datasets/<dataset_id>/cases/<retailer>/<name>/page.json       optional: its address, status and the like
datasets/<dataset_id>/cases/<retailer>/<name>/expected.json   what it should say; only what is named is compared
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import orjson
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.datasets.problems import Problem, Source, nearest, validated
from scrape_assets.datasets.units import name_problem
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import urls
from scrape_assets.rules.page import Response
from scrape_assets.rules.states import FailureClass, PageState

FOLDER = "cases"
PAGE, ABOUT, EXPECTED = "page.html", "page.json", "expected.json"

KEPT_HEADERS = ("content-type", "retry-after")
"""The headers that a page is judged by; no other is written down, for it may hold what belongs to one visitor."""

_SLUG_LENGTH = 30

_File = TypeVar("_File", bound=BaseModel)


class _Written(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _address(url: str) -> str:
    urls.canonical(url)
    return url


Address = Annotated[str, AfterValidator(_address)]


class About(_Written):
    """page.json: what an answer is besides its body. Without it: the site's first page, status 200, HTML."""

    url: Address | None = Field(default=None, description="the address that was asked for")
    final_url: Address | None = Field(default=None, description="where the redirects led")
    redirects: tuple[str, ...] = ()
    status: int = Field(default=200, ge=100, le=599)
    context: str = Field(default="", description="the context that the page must prove")
    headers: dict[str, str] = Field(default_factory=lambda: {"content-type": "text/html"})


class Expected(_Written):
    """expected.json: a page state, a failure class, or rows; of a row only the fields that are named. null: absent."""

    page_state: PageState | None = None
    failure_class: FailureClass | None = None
    rows: tuple[dict[str, Any], ...] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.page_state is None and self.failure_class is None and self.rows is None:
            raise ValueError("nothing is expected; expected rows, page_state or failure_class")
        if self.failure_class is not None and self.rows is not None:
            raise ValueError("a page that fails gives no rows; expected either rows or failure_class")
        return self


@dataclass(frozen=True, slots=True)
class Case:
    """One golden page."""

    retailer: str
    name: str
    context: str
    answer: Response
    expected: Expected


def read(dataset: Dataset) -> tuple[list[Case], list[Problem]]:
    """Every golden page of the dataset that can be judged, in order, and a line for each thing that is wrong."""
    cases: list[Case] = []
    problems: list[Problem] = []
    root = dataset.folder.parent.parent
    for place in _folders(dataset.folder / FOLDER):
        retailer = dataset.retailers.get(place.name)
        if retailer is None:
            said = f"no retailer {place.name!r} is declared{nearest(place.name, sorted(dataset.retailers))}"
            problems.append(Problem(_shown(place, root), 0, "", said))
            continue
        if stray := next((name for name in (PAGE, ABOUT, EXPECTED) if (place / name).is_file()), None):
            said = "it lies in no case; expected a folder of its own for each page"
            problems.append(Problem(_shown(place / stray, root), 0, "", said))
        for folder in _folders(place):
            found = _case(root, dataset, retailer, folder)
            if isinstance(found, Case):
                cases.append(found)
            else:
                problems += found
    return cases, problems


def _folders(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from sorted(path for path in place.iterdir() if path.is_dir() and path.name[0] not in "._")


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _case(root: Path, dataset: Dataset, retailer: Retailer, folder: Path) -> Case | list[Problem]:
    problems: list[Problem] = []
    if said := name_problem(folder.name):
        problems.append(Problem(_shown(folder, root), 0, "", f"the folder's name is the case's: {said}"))
    body = _bytes(root, folder / PAGE, problems)
    about = _read(root, folder / ABOUT, About, problems) if (folder / ABOUT).exists() else About()
    expected = _read(root, folder / EXPECTED, Expected, problems, columns=dataset.columns)
    if about is not None and about.context and about.context not in retailer.contexts:
        said = f"{retailer.name} has no context {about.context!r}{nearest(about.context, sorted(retailer.contexts))}"
        problems.append(Problem(_shown(folder / ABOUT, root), 0, "context", said))
    if problems or body is None or about is None or expected is None:
        return problems
    url = about.url or f"{retailer.site}/"
    headers = {name.lower(): value for name, value in about.headers.items()}
    answer = Response(url, about.final_url or url, about.status, headers, body, about.redirects)
    return Case(retailer.name, folder.name, about.context, answer, expected)


def _bytes(root: Path, path: Path, problems: list[Problem]) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        said = "the file is missing" if isinstance(error, FileNotFoundError) else f"it cannot be read: {error.strerror}"
        problems.append(Problem(_shown(path, root), 0, "", said))
        return None


def _read(
    root: Path, path: Path, model: type[_File], problems: list[Problem], *, columns: tuple[str, ...] = ()
) -> _File | None:
    content = _bytes(root, path, problems)
    if content is None:
        return None
    source = _json(_shown(path, root), content)
    if isinstance(source, Problem):
        problems.append(source)
        return None
    found = validated(source, model)
    if isinstance(found, list):
        problems += found
        return None
    rows = found.rows or () if isinstance(found, Expected) else ()
    unknown = [
        source.problem(("rows", number, name), f"the schema has no field {name!r}{nearest(name, columns)}")
        for number, row in enumerate(rows)
        for name in row
        if name not in columns
    ]
    problems += unknown
    return None if unknown else found


class _Twice(ValueError):
    """A name that one object has twice: parsers keep the last and say nothing."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _Twice(twice)
    return dict(pairs)


def _json(shown: str, content: bytes) -> Source | Problem:
    """The file's values and where they stand, or the first thing that keeps it from being read."""
    try:
        text = content.decode("utf-8-sig")
        values = json.loads(text, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        return Problem(shown, content[: error.start].count(b"\n") + 1, "", "the file is not UTF-8")
    except json.JSONDecodeError as error:
        return Problem(shown, error.lineno, "", f"the file is not JSON: {error.msg}")
    except _Twice as error:
        return Problem(shown, 0, str(error), "the name is written twice in one object")
    except RecursionError:
        return Problem(shown, 1, "", "the file is nested too deeply")
    if not isinstance(values, dict):
        return Problem(shown, 1, "", 'expected a JSON object, as {"rows": [{"price": "19.99"}]}')
    try:
        # JSON is YAML but for tabs and the like, and a YAML tree knows the lines.
        root = yaml.compose(text)
    except yaml.YAMLError:
        root = None
    if not isinstance(root, yaml.MappingNode):
        root = yaml.MappingNode("tag:yaml.org,2002:map", [], yaml.Mark(shown, 0, 0, 0, None, 0))
    return Source(shown, values, root)


def slug(canonical_url: str, context: str = "") -> str:
    """A name for the case of this page in its context: safe in any file system, and for no other page.

    >>> slug("https://shop.example/p/Blue%20Lamp.html?id=1")
    'blue-lamp-html-6011bb'
    """
    path = canonical_url.split("#", 1)[0].split("?", 1)[0].split("/", 3)[-1]
    words = re.findall(r"[a-z0-9]+", re.sub(r"%[0-9A-Fa-f]{2}", "-", path.rstrip("/").rpartition("/")[2]).lower())
    mark = hashlib.blake2b(f"{context} {canonical_url}".lstrip().encode(), digest_size=3).hexdigest()
    return f"{'-'.join(words)[:_SLUG_LENGTH].strip('-') or 'page'}-{mark}"


def write(
    dataset: Dataset,
    retailer: Retailer,
    name: str,
    answer: Response,
    expected: Mapping[str, Any],
    *,
    context: str = "",
    replace: bool,
) -> list[Path]:
    """The case is on disk; its files. DeclarationError for a name that is none, or for one that is taken."""
    if said := name_problem(name):
        raise DeclarationError(f"--name: {said}")
    folder = dataset.folder / FOLDER / retailer.name / name
    if folder.exists() and not replace:
        raise DeclarationError(f"{folder} is there already; --force replaces it, --name NAME makes another one")
    about = {
        "url": answer.url,
        "final_url": answer.final_url,
        "redirects": list(answer.redirects),
        "status": answer.status,
        **({"context": context} if context else {}),
        "headers": {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers},
    }
    files = {folder / PAGE: answer.body, folder / ABOUT: _text(about), folder / EXPECTED: _text(expected)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)
    except OSError as error:
        raise DeclarationError(f"cannot write {folder}: {error.strerror or error}") from error
    return list(files)


def _text(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"
