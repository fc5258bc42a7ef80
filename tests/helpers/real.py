"""The real pages, served under their own hosts' names on loopback and collected by the real program.

    python -m tests.helpers.real        (`make real`; the pages lie where REAL_PAGES says)

Every page gets a retailer for its host, nothing is declared about its markup. The tables show what zero-config
extraction gave beside what the index of the pages says, the precision and recall of each field, and each miss with
its explanation, which `docs/real_pages.md` holds; a miss that nobody explained is shown as such.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from scrape_assets import settings as environment
from scrape_assets.datasets import load
from scrape_assets.flow import plan
from scrape_assets.store import postgres

PAGES = Path(os.environ.get("REAL_PAGES") or Path(__file__).parents[2].parent / "shared" / "pages")
INDEX = PAGES / "index.tsv"
DATASET = """\
dataset: real
window: {every: day, at: "00:00", timezone: UTC, start: 2026-01-01}
retry: {attempts: 1, base: 0.1s, cap: 0.5s}
publish: {to: {lake: {files: {path: published, format: jsonl}}}}
defaults: {fetch: {rate: none}}
"""
THOUSANDS = {"puntoticket"}
"""Pages whose annotated price lost its thousands separator: 3.34 stands for 3340."""

SIGNS = {"€": {"EUR"}, "£": {"GBP"}, "zł": {"PLN"}, "$": {"CAD", "CLP", "USD"}, "Kn": {"HRK"}}
"""What the annotator's signs can stand for."""

EXPLANATIONS = Path(__file__).parents[2] / "docs" / "real_pages.md"
FIELDS = ("price", "currency", "availability", "sku", "gtin", "brand", "name")

AVAILABILITIES = {"InStock": "in_stock", "OutOfStock": "out_of_stock"}


@dataclass
class Page:
    """One page of the index, and what became of it."""

    file: str
    kind: str
    url: str
    status: int
    truth: dict[str, str]
    state: str = ""
    page_state: str = ""
    reason: str = ""
    values: dict[str, Any] | None = None

    def checked(self, name: str) -> str:
        """What a person noted for the field; empty where nobody did, and for a name that is only the page's title."""
        return "" if name == "name" and "not checked" in self.truth.get("name_is", "") else self.truth.get(name) or ""

    def given(self, name: str) -> str | None:
        """What we gave for the field; None for nothing, which `unknown` is too."""
        value = (self.values or {}).get(name)
        return None if value in (None, "", "unknown") else str(value)

    def is_right(self, name: str) -> bool:
        """Whether what we gave is what the person noted."""
        ours, truth = self.given(name) or "", self.checked(name)
        if name == "price":
            scale = 1000 if any(part in self.file for part in THOUSANDS) else 1
            return Decimal(ours) == Decimal(truth) * scale
        if name == "currency":
            return ours == truth or ours in SIGNS.get(truth, set())
        if name == "availability":
            return ours == AVAILABILITIES.get(truth, truth)
        one, others = (" ".join(text.casefold().split()) for text in (ours, truth))
        return one.lstrip("0") in [other.strip().lstrip("0") for other in others.split("|")]

    def differences(self) -> dict[str, str]:
        """Fields we gave that the annotator denies: worse than a field we did not give."""
        return {
            name: f"{self.given(name)} for {self.checked(name)}"
            for name in FIELDS
            if self.checked(name) and self.given(name) is not None and not self.is_right(name)
        }

    def misses(self) -> list[str]:
        """Fields that a person noted and we did not give, or gave otherwise."""
        return [name for name in FIELDS if self.checked(name) and (self.given(name) is None or not self.is_right(name))]


def index() -> list[Page]:
    """The pages of the index; empty where there are none. A page whose address nobody noted gets one."""
    if not INDEX.is_file():
        return []
    with INDEX.open(encoding="utf-8", newline="") as lines:
        records = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Page(
            file=record["file"],
            kind=record["kind"],
            url=record["url"] or f"https://{Path(record['file']).stem.lower().replace('_', '-')}.test/page",
            status=int(record["http_status"] or 200),
            truth=record,
        )
        for record in records
    ]


@contextmanager
def served(pages: list[Page]) -> Iterator[int]:
    """The port of a server that answers for every host of these pages."""
    answers = {_address(page.url): page for page in pages}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            page = answers.get((self.headers["host"], self.path))
            body = (PAGES / page.file).read_bytes() if page else b"no such page"
            self.send_response(page.status if page else 404)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The table tells what happened."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def collect(folder: Path) -> list[Page]:
    """Every page, after `scrape-assets worker` collected them in a project and a database of their own."""
    pages = index()
    by_host: dict[str, list[Page]] = defaultdict(list)
    for page in pages:
        by_host[urlsplit(page.url).netloc].append(page)
    home = folder / "datasets" / "real"
    (home / "retailers").mkdir(parents=True)
    (home / "dataset.yaml").write_text(DATASET)
    for host, its in by_host.items():
        name = host.replace(".", "-")
        (home / f"{name}.jsonl").write_text("".join(json.dumps({"url": page.url}) + "\n" for page in its))
        (home / "retailers" / f"{name}.yaml").write_text(
            f"site: {urlsplit(its[0].url).scheme}://{host}\nbasis: stored pages, served on loopback\n"
            f"urls: {{file: {name}.jsonl}}\n"
        )
    with served(pages) as port:
        given = {
            **os.environ,
            "SCRAPE_ASSETS_PROJECT": str(folder),
            "SCRAPE_ASSETS_STATE": str(folder / "state"),
            "SCRAPE_ASSETS_CONNECT_TO": ",".join(f"{host}=127.0.0.1:{port}" for host in by_host),
        }
        settings = environment.load(given, working_directory=folder)
        with environment.open_store(settings) as store:
            now = datetime.now(UTC)
            with postgres.open_pool(store.url) as pool:
                plan.plan(pool, load.dataset(folder, "real"), f"{now:%Y-%m-%d}", now=now)
            ended = subprocess.run(
                [sys.executable, "-m", "scrape_assets.cli", "worker", "real", "--json"],
                env=given,
                capture_output=True,
                text=True,
                check=False,
            )
            _read(store.url, pages, ended.stderr)
    return pages


def _read(url: str, pages: list[Page], said: str) -> None:
    with postgres.open_pool(url) as pool, postgres.transaction(pool) as tx:
        tasks = tx.execute(
            "select t.url, t.state, a.page_state, a.reason, o.payload::text from scrape.tasks t"
            " join scrape.attempts a using (attempt_id)"
            " left join scrape.observations o on o.source_task_key = t.task_key"
        ).fetchall()
    if len(tasks) != len(pages):
        raise SystemExit(f"{len(tasks)} of {len(pages)} pages came to an end; the program said:\n{said}")
    by_url = {page.url: page for page in pages}
    for task_url, state, page_state, reason, payload in tasks:
        page = by_url[task_url]
        page.state, page.page_state, page.reason = state, page_state or "", reason or ""
        page.values = json.loads(payload) if payload else None


def _address(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.netloc, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def tell(pages: list[Page], console: Console) -> None:
    """The products beside their true values, then the other pages with their states."""
    products = Table(title="product pages: ours | index", title_justify="left", show_lines=False)
    for heading in ("page", "name", "price", "currency", "availability", "sku", "verdict"):
        products.add_column(heading, overflow="fold")
    for page in (p for p in pages if p.kind == "product"):
        ours = page.values or {}
        both = [
            f"{ours.get(name) or '-'} | {page.truth[name] or '-'}"
            for name in ("price", "currency", "availability", "sku")
        ]
        wrong = page.differences()
        verdict = (
            f"WRONG: {', '.join(f'{name} {text}' for name, text in wrong.items())}"
            if wrong
            else "ok"
            if page.values
            else f"{page.state}: {page.reason}"
        )
        products.add_row(page.file.removeprefix("product_"), (ours.get("name") or "-")[:40], *both, verdict[:120])
    others = Table(title="other pages", title_justify="left")
    for heading in ("page", "what it is", "page state", "task"):
        others.add_column(heading, overflow="fold")
    for page in (p for p in pages if p.kind != "product"):
        others.add_row(page.file, page.kind, page.page_state, page.state + (" (rows!)" if page.values else ""))
    console.print(products)
    console.print(others)
    measured = [page for page in pages if page.kind == "product"]
    console.print(_by_field(measured))
    console.print(_missed(measured))
    priced = sum(page.given("price") is not None for page in measured)
    console.print(
        f"{priced} of {len(measured)} product pages gave a price, "
        f"{sum('price' in page.differences() for page in measured)} of them a wrong one"
    )


def _by_field(pages: list[Page]) -> Table:
    """Precision and recall of each field over the pages on which a person noted it."""
    table = Table(title="by field, over the pages on which it was checked", title_justify="left")
    for heading in ("field", "checked", "given", "right", "wrong", "missing", "precision", "recall"):
        table.add_column(heading, justify="left" if heading == "field" else "right")
    for name in FIELDS:
        checked = [page for page in pages if page.checked(name)]
        given = [page for page in checked if page.given(name) is not None]
        right = sum(page.is_right(name) for page in given)
        counts = (len(checked), len(given), right, len(given) - right, len(checked) - len(given))
        table.add_row(name, *map(str, counts), _share(right, len(given)), _share(right, len(checked)))
    return table


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def _missed(pages: list[Page]) -> Table:
    """Each miss and each wrong value, with what the documentation says of it."""
    known = explanations()
    table = Table(title="each miss: ours | index, explained in docs/real_pages.md", title_justify="left")
    for heading in ("page", "field", "ours", "index", "why"):
        table.add_column(heading, overflow="fold")
    for page in pages:
        for name in page.misses():
            why = known.get((short(page.file), name)) or f"NOT EXPLAINED; the program says: {page.reason or 'nothing'}"
            table.add_row(short(page.file), name, page.given(name) or "-", page.checked(name), why)
    return table


def short(file: str) -> str:
    """The page as the documentation names it."""
    return Path(file).stem.removeprefix("product_")


def explanations() -> dict[tuple[str, str], str]:
    """What the table of misses in the documentation says, by page and field."""
    found: dict[tuple[str, str], str] = {}
    for line in EXPLANATIONS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3:
            found.update({(cells[0], name.strip()): cells[2] for name in cells[1].split(",")})
    return found


def main() -> int:
    """0 when no price is wrong and no page in the way became an observation."""
    if not INDEX.is_file():
        print(f"skipped: no real pages at {PAGES}; set REAL_PAGES to their folder")
        return 0
    with tempfile.TemporaryDirectory(prefix="scrape-assets-real-") as folder:
        Path(folder).chmod(0o755)
        pages = collect(Path(folder))
    tell(pages, Console(width=200))
    return int(any("price" in page.differences() or (page.kind != "product" and page.values) for page in pages))


if __name__ == "__main__":
    sys.exit(main())
