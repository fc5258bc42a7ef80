"""A catalogue that is listed in every way there is, and that may change while somebody reads it."""

from __future__ import annotations

import gzip
import json
import random
import threading
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

from scrape_assets.demo.scripted import Answer, product

PER_PAGE = 50
PER_SITEMAP = 500


class Catalogue:
    """Items 0 to `stable` - 1 stay; others come, go and move before every `every`-th answer that lists some."""

    def __init__(self, stable: int, *, every: int = 0, seed: int = 0) -> None:
        self.url = ""
        self.items = list(range(stable))
        self.stable = frozenset(self.items)
        self._dice = random.Random(seed)
        self._every = every
        self._next = stable
        self._answers = 0
        self._lock = threading.Lock()

    def answer(self, path: str) -> Answer:
        """Whatever of the catalogue stands there."""
        parts = urlsplit(path)
        asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.path.startswith("/p/"):
            return product(int(parts.path.rpartition("/")[2]))
        with self._lock:
            self._change()
            items = list(self.items)
        if parts.path == "/sitemap.xml":
            return self._index(len(items))
        if parts.path.startswith("/sitemap-"):
            return self._sitemap(items, int(parts.path.removeprefix("/sitemap-").removesuffix(".xml.gz")))
        if parts.path == "/list":
            return self._page(items, int(asked.get("page", "1")))
        if parts.path == "/offset":
            return self._from(items, int(asked.get("offset", "0")))
        if parts.path == "/api":
            return self._after(items, asked.get("after"))
        if parts.path.startswith("/tree"):
            return self._tree(items, parts.path)
        return Answer(404)

    def _change(self) -> None:
        self._answers += 1
        if not self._every or self._answers % self._every:
            return
        kind = self._dice.choice(("insert", "move", "remove"))
        if kind == "insert":
            self.items.insert(self._dice.randrange(len(self.items)), self._next)
            self._next += 1
        elif kind == "move":
            self.items.insert(
                self._dice.randrange(len(self.items)), self.items.pop(self._dice.randrange(len(self.items)))
            )
        elif passing := [item for item in self.items if item not in self.stable]:
            self.items.remove(self._dice.choice(passing))

    def _index(self, count: int) -> Answer:
        maps = range(-(-count // PER_SITEMAP))
        places = "".join(f"<sitemap><loc>{self.url}/sitemap-{number}.xml.gz</loc></sitemap>" for number in maps)
        return Answer(
            headers={"content-type": "application/xml"}, body=f"<sitemapindex>{places}</sitemapindex>".encode()
        )

    def _sitemap(self, items: Sequence[int], number: int) -> Answer:
        # By number, as sites do it: what moves in a list stays in its sitemap.
        mine = sorted(items)[number * PER_SITEMAP : (number + 1) * PER_SITEMAP]
        text = "".join(f"<url><loc>{self.url}/p/{item}</loc><lastmod>2026-01-01</lastmod></url>" for item in mine)
        body = gzip.compress(f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{text}</urlset>'.encode())
        return Answer(headers={"content-type": "application/gzip"}, body=body)

    def _page(self, items: Sequence[int], number: int) -> Answer:
        pages = -(-len(items) // PER_PAGE)
        mine = items[(number - 1) * PER_PAGE : number * PER_PAGE] or items[-PER_PAGE:]
        return _html(mine, f'<p class="pager">Page {number} of {pages}</p>')

    def _from(self, items: Sequence[int], offset: int) -> Answer:
        return _html(items[offset : offset + PER_PAGE] or items[-PER_PAGE:], "")

    def _after(self, items: Sequence[int], after: str | None) -> Answer:
        # A cursor is a place among all that there ever was, not a number of items.
        rest = sorted(item for item in items if after is None or item > int(after))
        mine = rest[:PER_PAGE]
        said = {
            "data": {"products": [{"id": item, "url": f"/p/{item}"} for item in mine]},
            "next": mine[-1] if len(rest) > PER_PAGE else None,
        }
        return Answer(headers={"content-type": "application/json"}, body=json.dumps(said).encode())

    def _tree(self, items: Sequence[int], path: str) -> Answer:
        steps = [int(step) for step in path.split("/")[2:] if step]
        if len(steps) == 2:
            return _html([item for item in items if item % 10 == steps[0] and item // 10 % 10 == steps[1]], "")
        below = "".join(f'<a class="more" href="{path.rstrip("/")}/{number}">{number}</a>' for number in range(10))
        return _html([], f"<nav>{below}</nav>")


def _html(items: Sequence[int], more: str) -> Answer:
    links = "".join(f'<li class="item"><a href="/p/{item}">Product {item}</a></li>' for item in items)
    return Answer(body=f"<!doctype html><title>Catalogue</title><ul>{links}</ul>{more}".encode())


MODES = {
    "sitemap": "{sitemap: /sitemap.xml}",
    "listing": '{listing: /list, item: li.item, pages: .pager, page: "?page={page}"}',
    "cursor": '{cursor: /api, items: data.products, item: url, next: next, page: "?after={cursor}"}',
    "links": "{links: /tree, follow: a.more, item: li.item}",
    "offset": f'{{offset: /offset, item: li.item, step: {PER_PAGE}, page: "?offset={{offset}}"}}',
}
"""How the catalogue is declared, by what finds its pages."""
