"""The commands that a person runs next, given what is wrong with a window; each can be copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scrape_assets.rules import acceptance, keys, recovery, template

REPAIRS = 3
"""Retailers whose repair is offered where a rule over all of them failed."""

JUDGEMENTS = ("drift:", "gone", "frozen", "columns", "coverage", "list_price", "template")
"""Rules that a shop may break by itself: somebody can answer for it. What other rules name is wrong."""


def commands(
    dataset: str,
    window: str,
    retailers: Sequence[Mapping[str, Any]],
    of_dataset: Sequence[str],
    *,
    judge_again: bool,
    publish: bool,
) -> list[str]:
    """The most likely first. `retailers` as `why` describes them, `of_dataset` the failed rules over all of them.

    `judge_again`: a waiver came after the verdict. `publish`: nothing else is missing.
    """
    at = f"{dataset} --window {window}"
    found: list[str] = [f"scrape-assets publish {at}"] if judge_again else []
    for one in retailers:
        found += _of_retailer(dataset, window, one)
    if of_dataset:
        # What is wrong with the whole is wrong with a part: most likely with one that only passed because it was held.
        doubtful = [one["retailer"] for one in retailers if one["held"]] or [one["retailer"] for one in retailers]
        for name in doubtful[:REPAIRS]:
            found += _repair(dataset, window, name)
    found += [_waiver(rule, dataset, window) for rule in of_dataset if rule not in acceptance.NEVER_WAIVED]
    if publish:
        found.append(f"scrape-assets publish {at}")
    return list(dict.fromkeys(found))


def _of_retailer(dataset: str, window: str, one: Mapping[str, Any]) -> list[str]:
    at, name, rules = f"{dataset} --window {window}", one["retailer"], [check["rule"] for check in one["failed"]]
    found: list[str] = []
    if one["waits_for"].startswith(("it is paused", "it is stopped")) and one["canary"] != "failed":
        changed = template.PAUSED in one["waits_for"]
        found += _repair(dataset, window, name) if changed else ()
        found.append(f"scrape-assets resume {at} --retailer {name}")
    elif one["waits_for"] and not rules:
        found.append(f"scrape-assets run {at}")
    if not rules:
        return [*found, *(_repair(dataset, window, name)[1:] if one["repairable"] else ())]
    if any(rule in recovery.PAGE_RULES for rule in rules):
        found.append(f"scrape-assets failed {at} --retailer {name}")
    # Pages of a site that did not answer say nothing about how they are read: they are only asked for again.
    found += _repair(dataset, window, name)[1 if _without_pages(one, rules) else 0 :]
    if one["compared_with"] and one["compared_with"]["doubts"]:
        # Repaired, it is another one to be compared with.
        found += [*_repair(dataset, one["compared_with"]["window"], name)[1:], f"scrape-assets publish {at}"]
    if "not_empty" in rules:
        # Where there is no row, answering for the other rules helps nobody.
        return found
    if one["canary"] == "failed":
        return [*found, f"scrape-assets resume {at} --retailer {name}"]
    return found + [
        _waiver(rule, dataset, window, f" --retailer {name}")
        for rule in rules
        if rule not in acceptance.NEVER_WAIVED and rule.startswith(JUDGEMENTS)
    ]


def _without_pages(one: Mapping[str, Any], rules: Sequence[str]) -> bool:
    """Whether what failed is that pages were not obtained, and none that was is read wrongly."""
    misread = set(one["classes"]) & recovery.READ_FROM_THE_PAGE
    return bool(one["classes"]) and not misread and ("not_empty" in rules or set(rules) <= {*recovery.PAGE_RULES})


def _repair(dataset: str, window: str, retailer: str) -> list[str]:
    """Find the right reading on stored pages, then see what a repair with it takes and changes."""
    return [
        f"scrape-assets try {dataset}/{retailer} --window {window} --sample 5",
        f"scrape-assets recover {dataset} --window {window} --retailer {retailer} --dry-run",
    ]


def _waiver(rule: str, dataset: str, window: str, whose: str = "") -> str:
    run_id = keys.run_id(dataset, window)
    return f"scrape-assets waive {rule} --run {run_id}{whose} --owner YOU --reason WHY --until DATE"
