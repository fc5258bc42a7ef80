"""Commands around a declaration: write one, check it, try a page of it."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from scrape_assets import settings as environment
from scrape_assets.cli.golden import show_cases
from scrape_assets.cli.output import (
    Json,
    declared,
    emit,
    find,
    opened,
    out,
    run_of,
    say,
    show_page,
    window_key,
)
from scrape_assets.datasets import load
from scrape_assets.datasets.declaration import Dataset, Retailer
from scrape_assets.datasets.units import name_problem, site_problem, written
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import check, golden, plan, trial

DATASET_YAML = """\
# What to collect and when it counts as good. Other keys have cautious defaults: `scrape-assets check --json`.
dataset: {dataset}
owner: ""                        # who is asked when something is rejected
contact: ""                      # an address for site owners; goes into the user agent
window: {{every: day, at: "06:00", timezone: UTC, start: {start}}}
schema: product_offer
accept: {{coverage: 0.995, required: [name, price, currency]}}
publish: {{to: {{lake: {{files: {{path: published, format: csv}}}}}}}}
defaults: {{fetch: {{rate: 5/s, concurrency: 8}}}}
"""

RETAILER_YAML = """\
site: {site}
basis: ""                        # why we may collect this site: robots and terms read, when, by whom
urls: {{file: {retailer}.csv}}       # url, and optionally entity, page_type, context, priority
# key: [sku]                     # what identifies an offer; else the inventory's entity, else the page's address
# Without fields, JSON-LD, microdata, RDFa, OpenGraph and the visible page are read. Where that is not enough:
# product:
#   expect: article.product      # only the right page has this
#   fields:
#     name: {{css: h1}}
#     price: {{css: .price, money: EUR, decimal: ","}}
"""

INVENTORY = """\
url
"""


def add_to(app: typer.Typer) -> None:
    """The commands of this module belong to the program."""
    app.command("init")(init)
    app.command("check")(check_command)
    app.command("try")(try_command)


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the project folder; it may exist")],
    dataset: Annotated[str, typer.Option("--dataset", help="the dataset's name")] = "prices",
    retailer: Annotated[str, typer.Option("--retailer", help="the first retailer's name")] = "bookshop",
    site: Annotated[str, typer.Option("--site", help="its address")] = "https://www.example.com",
    json: Json = False,
) -> None:
    """Write a dataset with one retailer to begin with; files that exist are left alone."""
    for option, given in (("--dataset", dataset), ("--retailer", retailer)):
        if said := name_problem(given):
            raise DeclarationError(f"{option}: {said}")
    if said := site_problem(site):
        raise DeclarationError(f"--site: {said}")
    home = folder / "datasets" / dataset
    start = datetime.now(UTC).date() - timedelta(days=7)
    site = site.rstrip("/")
    files = {
        home / "dataset.yaml": DATASET_YAML.format(dataset=dataset, start=start),
        home / "retailers" / f"{retailer}.yaml": RETAILER_YAML.format(site=site, retailer=retailer),
        home / f"{retailer}.csv": INVENTORY,
        folder / ".gitignore": ".scrape_assets/\npublished/\n",
    }
    kept = [str(path) for path in files if path.exists()]
    made = []
    try:
        for path, text in files.items():
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                made.append(str(path))
    except OSError as error:
        raise DeclarationError(f"cannot write below {folder}: {error}") from error
    try:
        found = load.dataset(folder.resolve(), dataset)
    except DeclarationError as error:
        raise DeclarationError(f"written, but not yet right:\n{error}") from error
    if json:
        emit({"written": made, "left_alone": kept})
        return
    for name in kept:
        its = f"; its site is {found.retailers[retailer].site}" if Path(name).name == f"{retailer}.yaml" else ""
        say(f"{name} exists and was left alone{its}")
    _say_next(folder, home, dataset, retailer, made)


def _say_next(folder: Path, home: Path, dataset: str, retailer: str, written: list[str]) -> None:
    for name in written:
        say(f"wrote {name}")
    say(f"next: put pages into {home / f'{retailer}.csv'}, one address a line, then in {folder}:")
    for command, what in (
        (f"try {retailer} URL", "what a page gives"),
        (f"record {retailer} URL", "keep it as a golden page"),
        ("check", "what a window would plan"),
        (f"run {dataset}", "collect, judge, publish"),
    ):
        say(f"  scrape-assets {command:<{len(retailer) + 11}}  {what}")


def check_command(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="only this dataset")] = None,
    json: Json = False,
) -> None:
    """Explain the declaration, what a window plans and how long it takes; read golden pages and show what differs."""
    settings = environment.load()
    found = [declared(settings, dataset)] if dataset else list(load.project(settings.project).values())
    if not found:
        raise DeclarationError(
            f"{settings.project} declares no dataset; begin with: scrape-assets init {settings.project}"
        )
    now = datetime.now(UTC)
    checked = [check.check(d, now, settings.browser) for d in found]
    for declared_one, one in zip(found, checked, strict=True):
        one["cases"], one["broken_cases"] = asyncio.run(golden.compare(declared_one, now))
    if json:
        emit({"datasets": checked})
    else:
        for one in checked:
            _show(one)
            for warning in one["warnings"]:
                say(f"warning: {warning}")
            show_cases(one["cases"], one["broken_cases"])
    problems = [r["problem"] for one in checked for r in one["retailers"] if r["problem"]]
    if problems := [*problems, *(line for one in checked for line in one["broken_cases"])]:
        raise DeclarationError("\n".join(problems))
    if any(not case["ok"] for one in checked for case in one["cases"]):
        raise typer.Exit(1)


def _show(one: dict[str, Any]) -> None:
    window = one["window"]
    out.print(
        f"\n[bold]{one['dataset']}[/]  window {window['current']} "
        f"({window['start']:%Y-%m-%d %H:%M} to {window['end']:%Y-%m-%d %H:%M} UTC)",
        highlight=False,
    )
    out.print(f"  schema {one['schema']}, user agent {one['user_agent']}", highlight=False, markup=False)
    retry, lease, deadline = one["retry"], one["lease"], one["deadline_seconds"]
    by = one["publish"]["by"]
    promised = "" if by is None else f", by {by}" if isinstance(by, str) else f", within {_duration(by)} of its start"
    tries = f"base {written(retry['base_seconds'])}, cap {written(retry['cap_seconds'])}"
    lines = [
        f"published when {one['publish']['when']}{promised}",
        f"retry attempts {retry['attempts']}, {tries}",
        f"lease for {written(lease['lease_seconds'])}, task_deadline {written(lease['deadline_seconds'])}",
        f"deadline: closed {'one window' if deadline is None else _duration(deadline)} after its end",
    ]
    for name, to in one["publish"]["to"].items():
        lines.append(f"delivered to {name}: {_destination(to)}")
    for line in lines:
        out.print(f"  {line}", highlight=False, markup=False)
    for r in one["retailers"]:
        refused = f", {r['rejected']} inventory lines refused" if r["rejected"] else ""
        required = ", ".join(r["accept"]["required"]) or "any fields"
        fetch, product = r["fetch"], r["product"]
        fields = ", ".join(product.get("fields", {}))
        facts = {
            "basis": r["basis"] or "not said",
            **_pages(r, refused),
            "fetch": f"{_shown(fetch)}concurrency {fetch['concurrency']}, timeout {written(fetch['timeout_seconds'])}, "
            f"max_body {fetch['max_body_bytes'] / 1e6:g}MB",
            "asked": ", ".join(
                [f"robots.txt {'obeyed' if fetch['robots'] == 'obey' else 'ignored'}"]
                + [f"at most {fetch['per_day']} requests a day"] * (fetch["per_day"] is not None)
                + ["the gap counts from an answer's end"] * (fetch["gap"] == "response")
                + ["changed pages only, where the site tells"] * (fetch["revalidate"] and fetch["via"] == "http")
            ),
            **({"contexts": _contexts(r["contexts"])} if r["contexts"] else {}),
            "expect": product.get("expect", "not declared"),
            "extraction": f"{r['extraction']}{f' ({fields})' if fields else ''}, version {r['extractor_version']}",
            "key": ", ".join(r["key"]),
            "accepted": f"coverage {r['accept']['coverage']:.1%}, with {required}",
            "drift": f"{r['accept']['drift_rows']:.0%} of the rows, {r['accept']['drift_moved']:.0%} of the prices, "
            f"after {r['accept']['warm_up']} windows"
            + (f"; a canary of {r['accept']['canary']} pages" if r["accept"]["canary"] else "")
            + ("; a dry run" if r["accept"]["dry_run"] else ""),
        }
        out.print(f"\n  [bold]{r['retailer']}[/]  {escape(r['site'])}", highlight=False)
        for name, fact in facts.items():
            out.print(f"    {name:<11} {fact}", highlight=False, markup=False)
        for line in r["rejected_lines"]:
            out.print(
                f"  {r['inventory']}:{line['line']}: {line['reason']}: {line['content']}", highlight=False, markup=False
            )


def _shown(fetch: dict[str, Any]) -> str:
    if fetch["via"] != "browser":
        return ""
    until = f" until {fetch['wait_for']} is there" if fetch["wait_for"] else ""
    return f"by a browser{until}, without {', '.join(fetch['block']) or 'blocking anything'}, "


def _pages(r: dict[str, Any], refused: str) -> dict[str, str]:
    """Where the pages come from, how many, and how long their rate takes."""
    mode, *more = r["urls"]
    if mode == "file":
        needs = _duration(r["seconds_at_declared_rate"])
        least = "at least " if r["fetch"]["via"] == "browser" else ""
        return {"tasks": f"{r['tasks']}{refused}", "rate": f"{r['fetch']['rate']}, a window takes {least}{needs}"}
    starts = r["urls"][mode]
    named = ", ".join(f"{key} {_listed(r['urls'][key])}" for key in more)
    return {
        "pages": f"{mode} {_listed(starts)}" + (f" ({named})" if named else ""),
        "rate": f"{r['fetch']['rate']}, for as many pages as the site names",
    }


def _listed(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _contexts(contexts: dict[str, Any]) -> str:
    """Each with what it is made of, as `madrid (postcode 28001)`."""
    made_of = {
        name: ", ".join(f"{key} {value}" for key, value in one["values"].items()) for name, one in contexts.items()
    }
    return "; ".join(f"{name} ({values})" if values else name for name, values in made_of.items())


def _destination(to: dict[str, Any]) -> str:
    if to["files"]:
        return f"{to['files']['payload']} versions as {to['files']['format']} in {to['files']['path']}"
    if to["http"]:
        return f"{to['http']['payload']} versions by POST to {to['http']['url']}"
    return f"{to['postgres']['payload']} versions into table {to['postgres']['table']} of ${to['postgres']['url']}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "as long as the site needs"
    return written(round(seconds))


def try_command(
    retailer: Annotated[
        str, typer.Argument(metavar="RETAILER", help="its name; DATASET/RETAILER where two datasets have it")
    ],
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="a page of its site")] = None,
    window: Annotated[
        str | None, typer.Option("--window", help="read pages that were stored in this window; no request is made")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="in this context, where the retailer has several")
    ] = None,
    sample: Annotated[int, typer.Option("--sample", min=1, help="with --window: so many of them")] = 3,
    raw: Annotated[
        bool, typer.Option("--raw", help="with --window and URL: print the page itself, byte for byte")
    ] = False,
    json: Json = False,
) -> None:
    """Read a page as declared now and show its state, and each field with what gave it; nothing is stored."""
    settings = environment.load()
    dataset, found = find(load.project(settings.project), retailer)
    if window is not None:
        tried = _stored(dataset, found, window, url, sample, context, raw=raw)
        if tried is None:
            return
    elif url is None or raw:
        raise DeclarationError("name a page of its site: an URL; or a window whose stored pages are read: --window")
    else:
        now = plan.current_window(dataset, datetime.now(UTC))
        trying = trial.try_page(
            dataset,
            found,
            url,
            window=now,
            connect_to=settings.connect_to,
            browser=settings.browser,
            context=trial.context_of(found, context),
        )
        tried = [asyncio.run(trying)]
    if json:
        emit(tried[0] if window is None else {"pages": tried})
    else:
        for one in tried:
            show_page(one)
    if any(one["failure_class"] for one in tried):
        raise typer.Exit(1)


def _stored(
    dataset: Dataset, retailer: Retailer, window: str, url: str | None, sample: int, context: str | None, *, raw: bool
) -> list[dict[str, Any]] | None:
    """What stored pages of the window give as declared now; None when the page itself was printed."""
    with opened(dataset.dataset) as (settings, _, pool):
        run_id = run_of(dataset.dataset, window_key(dataset, window))
        pages = trial.stored_pages(pool, run_id, retailer, url=url, at_most=sample, context=context)
        if raw:
            if url is None:
                raise DeclarationError("--raw prints one page; name it: its URL")
            sys.stdout.buffer.write(trial.stored_bytes(settings.artifacts, pages[0]))
            sys.stdout.buffer.flush()
            return None
        return asyncio.run(trial.try_stored(pool, dataset, retailer, run_id, pages, settings.artifacts))
