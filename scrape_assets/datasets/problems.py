"""What is wrong with a declaration, as one line for each: file, line, field, what was expected, the nearest name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from scrape_assets.rules.near import near

Place = tuple[str | int, ...]
_COMMENTED = re.compile(r"\{[^}\n]*\s#\w")

_Model = TypeVar("_Model", bound=BaseModel)


class Problem(NamedTuple):
    """One thing to correct. Its text is the whole line that a person reads. Line 0: it is no place inside a file."""

    file: str
    line: int
    field: str
    said: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (where, self.field, self.said) if part)


class _Loader(yaml.SafeLoader):
    """YAML with the scalars of its current version: `16:30` is text, as are `no`, `on`, `010` and dates."""

    yaml_implicit_resolvers = {}  # noqa: RUF012, an attribute that PyYAML reads from the class


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"^(?:{_pattern})$"),
        [*_first.replace("\0", ""), *([""] if "\0" in _first else [])],
    )


@dataclass(slots=True)
class Source:
    """A parsed file: its values, and where each of them stands."""

    file: str
    values: dict[str, Any]
    root: yaml.MappingNode

    def line(self, place: Place) -> int:
        """The line of the key or list item; of the nearest thing around it where it does not exist."""
        node: yaml.Node = self.root
        line = node.start_mark.line + 1
        for part in place:
            found = _child(node, part)
            if found is None:
                break
            mark, node = found
            line = mark.start_mark.line + 1
        return line

    def has(self, place: Place) -> bool:
        """Whether this is written in the file."""
        node: yaml.Node = self.root
        for part in place:
            found = _child(node, part)
            if found is None:
                return False
            node = found[1]
        return True

    def problem(self, place: Place, said: str) -> Problem:
        """A problem at this place of this file."""
        return Problem(self.file, self.line(place), ".".join(str(part) for part in place), said)


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The node that marks the child (its key, or the item itself) and the child."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key, value
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge" and (found := _child(value, part)):
                return found
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def parse(file: str, content: bytes) -> Source | Problem:
    """The file's keys and values, or the first thing that keeps it from being read."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return Problem(file, line, "", "the file is not UTF-8")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        line = mark.line + 1 if mark else 1
        # An unquoted `#main` begins a comment, and what is wrong for YAML comes only after it.
        near = text.splitlines()[max(0, line - 2) : line]
        hint = (
            "; a # after a space begins a comment, quote a selector that has one"
            if _COMMENTED.search("\n".join(near))
            else ""
        )
        return Problem(file, line, "", f"the file is not YAML: {said}{hint}")
    if node is None:
        return Problem(file, 1, "", "the file is empty")
    if not isinstance(node, yaml.MappingNode):
        return Problem(
            file, node.start_mark.line + 1, "", "expected keys and values, as site: https://www.shop.example"
        )
    if problem := _twice(file, node, (), set()):
        return problem
    try:
        values = loader.construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        return Problem(
            file, mark.line + 1 if mark else 1, "", f"the file is not YAML: {getattr(error, 'problem', error)}"
        )
    return Source(file, values, node)


def _twice(file: str, node: yaml.Node, place: Place, seen: set[int]) -> Problem | None:
    """The first key that is written twice: YAML parsers keep the last and say nothing. Or one that is not text."""
    if id(node) in seen:
        return None
    seen.add(id(node))
    children: list[tuple[str | int, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (
                "tag:yaml.org,2002:str",
                "tag:yaml.org,2002:merge",
            ):
                shown = key.value if isinstance(key, yaml.ScalarNode) else "…"
                return Problem(
                    file, key.start_mark.line + 1, ".".join(map(str, place)), f"expected a name as key, not {shown!r}"
                )
            if key.value in lines and key.value != "<<":
                field = ".".join(map(str, (*place, key.value)))
                return Problem(file, key.start_mark.line + 1, field, f"the key is on line {lines[key.value]} already")
            lines[key.value] = key.start_mark.line + 1
            children.append((key.value, value))
    elif isinstance(node, yaml.SequenceNode):
        children = list(enumerate(node.value))
    for part, child in children:
        if problem := _twice(file, child, (*place, part), seen):
            return problem
    return None


def validated(source: Source, model: type[_Model]) -> _Model | list[Problem]:
    """The file as this model, or all that is wrong with it."""
    try:
        return model.model_validate(source.values)
    except ValidationError as error:
        found: dict[tuple[int, str], Problem] = {}
        all_details = error.errors(include_url=False)
        misspelt = {_meant(details["loc"], model) for details in all_details if details["type"] == "extra_forbidden"}
        for details in all_details:
            place = tuple(details["loc"])
            if details["type"] == "missing" and place in misspelt:
                continue
            if details["type"] not in ("missing", "extra_forbidden"):
                # The parts that pydantic adds for unions and dictionary keys are not in the file.
                while place and not source.has(place):
                    place = place[:-1]
            problem = source.problem(place, _said(details, model))
            found.setdefault((problem.line, problem.field), problem)
        return sorted(found.values(), key=lambda problem: problem.line)


def _meant(place: Place, model: type[BaseModel]) -> Place | None:
    """The key that an unknown key was probably meant to be."""
    owner = _model_at(model, place[:-1])
    meant = near(str(place[-1]), _keys(owner) if owner else [])
    return (*place[:-1], meant) if meant else None


def nearest(name: str, names: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or all that would be right where nothing is near; begins with a semicolon."""
    if meant := near(name, names):
        return f"; did you mean {meant!r}?"
    return f"; expected {'one of ' if len(names) > 1 else ''}{', '.join(names)}" if names else ""


def _said(details: Any, model: type[BaseModel]) -> str:
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    place = details["loc"]
    expected = _EXPECTED.get(kind)
    match kind:
        case "extra_forbidden":
            owner = _model_at(model, place[:-1])
            return f"unknown key {str(place[-1])!r}{nearest(str(place[-1]), _keys(owner) if owner else [])}"
        case "missing":
            example = _described(place, model)
            return "the key is missing" + (f"; expected {example}" if example else "")
        case "literal_error" | "enum":
            choices = re.findall(r"'([^']*)'", context["expected"])
            return f"{_shown(given)} is not possible{nearest(str(given), choices)}"
        case "value_error":
            return str(context["error"])
        case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than":
            word = {
                "greater_than_equal": "at least",
                "greater_than": "more than",
                "less_than_equal": "at most",
                "less_than": "less than",
            }[kind]
            return f"{_shown(given)} is out of range; expected {word} {next(iter(context.values()))}"
        case "string_type" if isinstance(given, int | float) and (described := _described(place, model)):
            return f"{_shown(given)} is not possible; expected {described}"
        case _:
            return f"{_shown(given)} is not possible; expected {expected or details['msg']}"


def _described(place: Place, model: type[BaseModel]) -> str | None:
    """What the model says of the key at this place."""
    owner = _model_at(model, place[:-1])
    fields = owner.model_fields.items() if owner else ()
    return next((field.description for name, field in fields if (field.alias or name) == place[-1]), None)


_EXPECTED = {
    "string_type": "text (quote it)",
    "path_type": "the path of a folder",
    "string_too_short": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list, as [a, b]",
    "dict_type": "keys and values",
    "model_type": "keys and values",
}


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_at(model: type[BaseModel], place: Sequence[Any]) -> type[BaseModel] | None:
    """The model that describes what stands at this place."""
    current: Any = model
    for part in place:
        if not isinstance(current, type) or not issubclass(current, BaseModel):
            return None
        field = next((f for n, f in current.model_fields.items() if (f.alias or n) == part), None)
        if field is None:
            # A name in a mapping of models: the model stays what it was found to be.
            continue
        current = _inner(field.annotation)
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _inner(annotation: Any) -> Any:
    """The model inside an annotation: of an optional value, or of the values of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for argument in get_args(annotation) if (found := _inner(argument)) is not None), None)
