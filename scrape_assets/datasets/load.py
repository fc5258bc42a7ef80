"""Reads a project folder: every dataset with its retailers, resolved; or every problem of every file at once.

datasets/<dataset_id>/dataset.yaml
datasets/<dataset_id>/retailers/<retailer>.yaml     inventory files beside these, or in the dataset's folder
datasets/<dataset_id>/pages.py                      optional: page objects and schemas of one's own
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin

from scrape_assets.datasets import contexts, inventory, page_objects, schemas
from scrape_assets.datasets.contexts import Context
from scrape_assets.datasets.declaration import (
    AcceptRule,
    Dataset,
    DatasetFile,
    Destination,
    FetchRule,
    PublishRule,
    Retailer,
    RetailerFile,
)
from scrape_assets.datasets.problems import Problem, Source, nearest, parse, validated
from scrape_assets.datasets.units import name_problem
from scrape_assets.errors import DeclarationError
from scrape_assets.rules import urls

FOLDER = "datasets"
_YAML = (".yaml", ".yml")

_File = TypeVar("_File", DatasetFile, RetailerFile)
_Rule = TypeVar("_Rule", FetchRule, AcceptRule)


def project(root: Path) -> dict[str, Dataset]:
    """All datasets of the project folder, by name; DeclarationError with a line for each problem of any of them."""
    names = _names(root)
    if not names:
        raise DeclarationError(f"{root / FOLDER} holds no dataset; expected a folder with a dataset.yaml for each")
    problems: list[Problem] = []
    found = {name: _dataset(root, name, problems) for name in names}
    for one, other in pairwise(sorted(names, key=_as_identifier)):
        if _as_identifier(one) == _as_identifier(other):
            raise DeclarationError(
                f"datasets {one} and {other} differ only in - and _, which Dagster's step names do not tell apart; "
                "rename one of them"
            )
    if problems:
        raise _told(problems)
    return {name: dataset for name, dataset in found.items() if dataset is not None}


def dataset(root: Path, name: str) -> Dataset:
    """The named dataset; DeclarationError with a line for each of its problems, or with the nearest name."""
    names = _names(root)
    if name not in names:
        raise DeclarationError(f"there is no dataset {name!r} in {root / FOLDER}{nearest(name, names)}")
    problems: list[Problem] = []
    found = _dataset(root, name, problems)
    if found is None:
        raise _told(problems)
    return found


def _as_identifier(name: str) -> str:
    return name.replace("-", "_")


def _told(problems: list[Problem]) -> DeclarationError:
    return DeclarationError("\n".join(str(problem) for problem in dict.fromkeys(problems)))


def _names(root: Path) -> list[str]:
    folder = root / FOLDER
    try:
        return sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")
    except OSError as error:
        raise DeclarationError(
            f"{folder} cannot be read: {error.strerror}; expected a project folder (SCRAPE_ASSETS_PROJECT, else the"
            " working directory); scrape-assets init DIR makes one"
        ) from error


def _dataset(root: Path, name: str, problems: list[Problem]) -> Dataset | None:
    """The dataset, or None with its problems added. Retailers are read even when dataset.yaml is wrong."""
    folder = root / FOLDER / name
    before = len(problems)
    files = [folder / f"dataset{suffix}" for suffix in _YAML if (folder / f"dataset{suffix}").is_file()]
    if len(files) != 1:
        shown = (folder / "dataset.yaml").relative_to(root).as_posix()
        said = "there is a dataset.yml too; expected one of the two" if files else "the file is missing"
        problems.append(Problem(shown, 1, "", said))
    source, declared = _read(root, files[0], DatasetFile, problems) if len(files) == 1 else (None, None)
    columns: dict[str, Any] = {}
    if source is not None and declared is not None:
        if declared.dataset != name:
            problems.append(
                source.problem(("dataset",), f"{declared.dataset!r} differs from its folder's name, {name!r}")
            )
        try:
            columns = schemas.describe(declared.schema_name, folder)
        except DeclarationError as error:
            problems.append(source.problem(("schema",), str(error)))
        problems.extend(_unknown_in_rules(source, declared.accept, declared, columns))
        first: dict[Path, str] = {}
        for destination, to in _publish(root, declared.publish).to.items():
            if to.files is None:
                continue
            path = to.files.path.resolve()
            if (other := first.setdefault(path, destination)) != destination:
                said = f"{other} writes to this folder too, and one would replace the other's manifest"
                problems.append(source.problem(("publish", "to", destination, "files", "path"), said))
    retailers = _retailers(root, folder, declared, columns, problems)
    if declared is None or len(problems) > before:
        return None
    return Dataset(
        dataset=declared.dataset,
        folder=folder,
        owner=declared.owner,
        contact=declared.contact,
        window=declared.window,
        schema_name=declared.schema_name,
        columns=tuple(columns),
        schema_columns=columns,
        accept=_accept(declared, AcceptRule(), columns),
        publish=_publish(root, declared.publish),
        retry=declared.retry,
        lease=declared.lease,
        deadline_seconds=declared.deadline_seconds,
        retailers=retailers,
    )


def _read(root: Path, file: Path, model: type[_File], problems: list[Problem]) -> tuple[Source | None, _File | None]:
    shown = file.relative_to(root).as_posix()
    try:
        source = parse(shown, file.read_bytes())
    except OSError as error:
        source = Problem(shown, 1, "", f"the file cannot be read: {error.strerror}")
    if isinstance(source, Problem):
        problems.append(source)
        return None, None
    found = validated(source, model)
    if isinstance(found, list):
        problems.extend(found)
        return source, None
    return source, found


def _retailers(
    root: Path, folder: Path, declared: DatasetFile | None, columns: dict[str, Any], problems: list[Problem]
) -> dict[str, Retailer]:
    place = folder / "retailers"
    files = sorted(path for path in place.iterdir() if path.suffix in _YAML) if place.is_dir() else []
    if not files:
        shown = place.relative_to(root).as_posix()
        problems.append(Problem(shown, 0, "", "there is no retailer; expected a file for each, as bookshop.yaml"))
    found: dict[str, Retailer] = {}
    first: dict[str, Path] = {}
    for file in files:
        shown = file.relative_to(root).as_posix()
        if said := name_problem(file.stem):
            problems.append(Problem(shown, 1, "", f"the file's name is the retailer's: {said}"))
        if file.stem in first:
            problems.append(
                Problem(shown, 1, "", f"the retailer {file.stem!r} is declared in {first[file.stem].name} already")
            )
            continue
        first[file.stem] = file
        source, retailer = _read(root, file, RetailerFile, problems)
        if source is None or retailer is None:
            continue
        path = _inventory(root, folder, file, source, retailer, problems)
        _check(folder, source, retailer, declared, columns, problems)
        fetch = retailer.fetch if declared is None else _over(declared.defaults.fetch, retailer.fetch)
        problems.extend(_only_for_browsers(source, retailer.fetch, fetch))
        by_all = declared is not None and declared.accept.canary is not None
        if by_all and "canary" not in retailer.accept.model_fields_set:
            _no_canary(source, retailer, ("urls", retailer.urls.mode), problems)
        in_contexts, wrong = contexts.resolve(retailer.context, retailer.contexts, retailer.site)
        problems.extend(source.problem(place, said) for place, said in wrong)
        _check_page_functions(folder, source, in_contexts, problems)
        if declared is not None and (path is not None or retailer.urls.mode != "file"):
            found[file.stem] = Retailer(
                name=file.stem,
                file=file,
                site=retailer.site,
                basis=retailer.basis,
                urls=retailer.urls,
                inventory_path=path,
                key=retailer.key,
                fetch=fetch,
                product=retailer.product,
                accept=_accept(declared, retailer.accept, columns),
                contexts=in_contexts,
            )
    return found


def _check_page_functions(
    folder: Path, source: Source, in_contexts: dict[str, Context], problems: list[Problem]
) -> None:
    for name, context in in_contexts.items():
        if context.page_function is None:
            continue
        own = ("contexts", name, "setup", "page_function")
        place = own if source.has(own) else ("context", "setup", "page_function")
        try:
            page_objects.load(folder, context.page_function)
        except DeclarationError as error:
            problems.append(source.problem(place, str(error)))


def _inventory(
    root: Path, folder: Path, file: Path, source: Source, retailer: RetailerFile, problems: list[Problem]
) -> Path | None:
    """The inventory's path: beside the retailer's file, else in the dataset's folder."""
    given = retailer.urls.file
    if given is None:
        _starts(source, retailer, problems)
        return None
    path = next((place / given for place in (file.parent, folder) if (place / given).is_file()), None)
    if path is None:
        near = sorted(
            {
                p.name
                for place in (file.parent, folder)
                for p in place.iterdir()
                if p.suffix in (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
            }
        )
        places = " or ".join(place.relative_to(root).as_posix() for place in (file.parent, folder))
        said = f"inventory {given!r} is not in {places}"
        problems.append(source.problem(("urls", "file"), said + (nearest(given, near) if near else "")))
        return None
    try:
        inventory.check(path)
    except DeclarationError as error:
        problems.append(source.problem(("urls", "file"), str(error).replace(f"{root}/", "")))
    return path


def _starts(source: Source, retailer: RetailerFile, problems: list[Problem]) -> None:
    """The first pages of what the site lists lie on the site."""
    for start in retailer.urls.starts:
        address = urljoin(retailer.site + "/", start)
        try:
            wrong = None if urls.within(retailer.site, address) else f"{address} is outside the site {retailer.site}"
        except ValueError as error:
            wrong = f"{start!r}: {error}"
        if wrong:
            problems.append(source.problem(("urls", retailer.urls.mode), wrong))
    if retailer.accept.canary is not None:
        _no_canary(source, retailer, ("accept", "canary"), problems)


def _no_canary(source: Source, retailer: RetailerFile, place: tuple[str, ...], problems: list[Problem]) -> None:
    if retailer.urls.mode != "file":
        said = "a canary needs pages that are known beforehand; expected urls: {file: ...} beside it, or no canary"
        by_all = " (dataset.yaml asks for one of every retailer; accept: {canary: null} here for none)"
        problems.append(source.problem(place, said + (by_all if place[0] == "urls" else "")))


def _check(
    folder: Path,
    source: Source,
    retailer: RetailerFile,
    declared: DatasetFile | None,
    columns: dict[str, Any],
    problems: list[Problem],
) -> None:
    """What only the schema and pages.py can tell about a retailer's file."""
    if retailer.product.rows is not None and not retailer.key:
        said = "the key is missing; expected the fields that tell the rows of a page apart, as key: [sku]"
        problems.append(source.problem(("key",), said))
    fields = retailer.product.fields
    given = {*fields, *(("currency",) if "price" in fields else ())}
    known = columns or retailer.key
    if fields and (lacking := [name for name in retailer.key if name in known and name not in given]):
        said = f"{lacking[0]} is none of the declared fields; expected one of {', '.join(fields)}"
        problems.append(source.problem(("key",), said))
    if len(set(retailer.key)) != len(retailer.key):
        problems.append(source.problem(("key",), "a field is named twice"))
    if reference := retailer.product.page_object:
        try:
            page_objects.load(folder, reference)
        except DeclarationError as error:
            problems.append(source.problem(("product", "page_object"), str(error)))
    if declared is not None:
        problems.extend(_unknown_columns(source, ("key",), retailer.key, declared, columns))
        problems.extend(_unknown_in_rules(source, retailer.accept, declared, columns))
        problems.extend(
            source.problem(("product", "fields", field), _no_column(declared, field, columns))
            for field in retailer.product.fields
            if columns and field not in columns
        )


def _unknown_columns(
    source: Source, place: tuple[str, ...], names: tuple[str, ...], declared: DatasetFile, columns: dict[str, Any]
) -> list[Problem]:
    return [
        source.problem((*place, index), _no_column(declared, name, columns))
        for index, name in enumerate(names)
        if columns and name not in columns
    ]


def _unknown_in_rules(
    source: Source, rule: AcceptRule, declared: DatasetFile, columns: dict[str, Any]
) -> list[Problem]:
    """Fields that an acceptance rule names and the schema does not have."""
    listed = [("required", rule.required or ()), ("unique", rule.unique)]
    named = [("fill", [*rule.fill]), ("ranges", [*rule.ranges])]
    return [
        *(one for key, names in listed for one in _unknown_columns(source, ("accept", key), names, declared, columns)),
        *(
            source.problem(("accept", key, name), _no_column(declared, name, columns))
            for key, names in named
            for name in names
            if columns and name not in columns
        ),
    ]


def _only_for_browsers(source: Source, own: FetchRule, fetch: FetchRule) -> list[Problem]:
    """Keys of a retailer's own that mean nothing, since no browser shows its pages."""
    if fetch.via == "browser":
        return []
    said = "is for pages that a browser shows; expected via: browser beside it"
    named = [name for name in ("wait_for", "block", "hosts", "max_requests") if name in own.model_fields_set]
    return [source.problem(("fetch", name), f"{name} {said}") for name in named]


def _no_column(declared: DatasetFile, name: str, columns: dict[str, Any]) -> str:
    return f"schema {declared.schema_name} has no field {name!r}{nearest(name, list(columns))}"


def _over(default: _Rule, own: _Rule) -> _Rule:
    """The default with everything replaced that the retailer's own file says."""
    return default.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})


def _accept(declared: DatasetFile, own: AcceptRule, columns: dict[str, Any]) -> AcceptRule:
    rule = _over(declared.accept, own)
    if "drift" in own.model_fields_set:
        said = {name: getattr(own.drift, name) for name in own.drift.model_fields_set}
        rule = rule.model_copy(update={"drift": declared.accept.drift.model_copy(update=said)})
    if rule.required is not None or not columns:
        return rule
    return rule.model_copy(update={"required": schemas.required(declared.schema_name, columns)})


def _publish(root: Path, rule: PublishRule) -> PublishRule:
    def placed(to: Destination) -> Destination:
        if to.files is None:
            return to
        return to.model_copy(update={"files": to.files.model_copy(update={"path": root / to.files.path})})

    return rule.model_copy(update={"to": {name: placed(to) for name, to in rule.to.items()}})
