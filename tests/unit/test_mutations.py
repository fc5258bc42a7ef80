"""The breaks that `tests/mutations.py` plants are breaks of lines that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_break_finds_its_line(mutation: Mutation) -> None:
    assert mutation.old in (ROOT / mutation.file).read_text()
    assert mutation.old != mutation.new
