"""Contexts: the store, postcode or currency under which a page is asked for, how it is set up and what proves it.

`ContextFile` and `ContextRule` are `contexts:` and `context:` of a retailer's file as they are written; `Context` is
one of them resolved, with its values in place of `{postcode}` and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from scrape_assets.datasets.problems import Place, nearest
from scrape_assets.rules.context import SetupRule, request_of
from scrape_assets.rules.page import Request
from scrape_assets.rules.spec import ProofRule

_NAMED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|api_?key|session|cookie|authori[sz]ation|credential", re.IGNORECASE
)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, Mapping) else value


Proofs = Annotated[tuple[ProofRule, ...], BeforeValidator(_listed)]


class ContextRule(BaseModel):
    """`context:`, what holds for every context that does not say otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    setup: SetupRule | None = Field(default=None, description='{url: /set-zip, form: {zip: "{postcode}"}}')
    prove: Proofs = Field(default=(), description='{css: .zip, equals: "{postcode}"}')


class ContextFile(BaseModel):
    """One of `contexts:`: its values, and where it differs, a set-up and a proof of its own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    setup: SetupRule | None = None
    prove: Proofs | None = None

    @model_validator(mode="before")
    @classmethod
    def _values_are_text(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        said: dict[Any, Any] = {}
        for name, value in given.items():
            if name in cls.model_fields:
                said[name] = value
                continue
            if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", str(name)):
                raise ValueError(f"{str(name)[:60]!r} is not the name of a value; expected a-z, 0-9 and _, as postcode")
            if _SECRET.search(name):
                raise ValueError(f"{name!r} names a secret, and a declaration is stored and shown; remove it")
            if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
                raise ValueError(f'{name} is {value!r:.60}; expected text, as postcode: "28001"')
            said[name] = str(value)
        return said

    @property
    def values(self) -> dict[str, str]:
        """Postcode, store, currency or whatever it is made of."""
        return dict(self.model_extra or {})


class Context(BaseModel):
    """One context, resolved: nothing in it is left to be filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    values: dict[str, str]
    setup: SetupRule | None = None
    prove: tuple[ProofRule, ...]

    def request(self, site: str) -> Request | None:
        """What sets it up; None where nothing has to."""
        return None if self.setup is None else request_of(self.setup, base=f"{site}/", site=site)

    @property
    def page_function(self) -> str | None:
        """The user's code that takes part in its set-up."""
        return None if self.setup is None else self.setup.page_function


Wrong = tuple[Place, str]
"""Where something is wrong, and what."""


def resolve(
    rule: ContextRule, declared: Mapping[str, ContextFile], site: str
) -> tuple[dict[str, Context], list[Wrong]]:
    """Each context by its name, and all that is wrong with them."""
    found: dict[str, Context] = {}
    wrong: list[Wrong] = []
    if not declared and (rule.setup is not None or rule.prove):
        wrong.append((("context",), 'there are no contexts; expected contexts, as {madrid: {postcode: "28001"}}'))
    for name, one in declared.items():
        values = {"name": name, **one.values}
        own = ("contexts", name)
        setup, prove = one.setup or rule.setup, rule.prove if one.prove is None else one.prove
        setup_at: Place = (*own, "setup") if one.setup else ("context", "setup")
        prove_at: Place = (*own, "prove") if one.prove is not None else ("context", "prove")
        if not prove:
            said = 'the key is missing; expected what shows that the site obeyed, as {css: .zip, equals: "{postcode}"}'
            wrong.append(((*own, "prove"), said))
        lacking = [
            *((setup_at, lack) for lack in (_lacking(setup.model_dump(), values) if setup else ())),
            *((prove_at, lack) for proof in prove for lack in _lacking(proof.equals, values)),
        ]
        wrong += [(place, f"context {name} has no value {lack!r}{nearest(lack, [*values])}") for place, lack in lacking]
        if lacking or not prove:
            continue
        filled = None if setup is None else SetupRule.model_validate(_filled(setup.model_dump(), values))
        proofs = tuple(proof.model_copy(update={"equals": _fill(proof.equals, values)}) for proof in prove)
        context = Context(values=one.values, setup=filled, prove=proofs)
        try:
            context.request(site)
        except ValueError as error:
            wrong.append(((*setup_at, "url"), str(error)))
        found[name] = context
    return found, wrong


def _lacking(value: Any, values: Mapping[str, str]) -> Iterator[str]:
    match value:
        case str():
            yield from (name for name in _NAMED.findall(value) if name not in values)
        case Mapping():
            for one in value.values():
                yield from _lacking(one, values)
        case list() | tuple():
            for one in value:
                yield from _lacking(one, values)


def _fill(text: str, values: Mapping[str, str], *, as_part_of_url: bool = False) -> str:
    def value(hit: re.Match[str]) -> str:
        return quote(values[hit[1]], safe="") if as_part_of_url else values[hit[1]]

    return _NAMED.sub(value, text)


def _filled(value: Any, values: Mapping[str, str], key: str = "") -> Any:
    match value:
        case str():
            return _fill(value, values, as_part_of_url=key == "url")
        case Mapping():
            return {name: _filled(one, values, str(name) if not key else "…") for name, one in value.items()}
        case list() | tuple():
            return [_filled(one, values, "…") for one in value]
        case _:
            return value
