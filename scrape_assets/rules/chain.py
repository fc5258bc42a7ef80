"""Whether a list goes on from one of its pages: decided with what is known of all its pages so far."""

from __future__ import annotations

from typing import NamedTuple

from scrape_assets.rules.discover import BARREN_PAGES


class Step(NamedTuple):
    """How a list goes on: `barren` pages in a row named nothing new; a `problem` says that it did not end well."""

    goes_on: bool
    barren: int = 0
    problem: str | None = None


def step(*, mode: str, has_next: bool, new_items: int, barren: int, named_before_by: str | None, page: str) -> Step:
    """What follows after a page of a list that gave `new_items`, after `barren` pages that gave none.

    A list that is asked for by offset ends with the first page that names nothing new: some sites answer the last page
    for ever. One that names its next page itself ends where it names none; coming back, or going on without anything
    new, is no end.
    """
    barren = 0 if new_items else barren + 1
    if not has_next:
        return Step(False)
    if mode == "offset":
        return Step(new_items > 0)
    if named_before_by is not None:
        return Step(
            False,
            problem=f"cursor_cycle: {page} leads back to a page that {named_before_by} named before; "
            "what is beyond it, nobody knows",
        )
    if barren >= BARREN_PAGES:
        return Step(False, problem=f"cursor_cycle: {barren} pages in a row, up to {page}, named nothing new and no end")
    return Step(True, barren)
