"""A bookshop of twelve plain pages that no dataset declares: write your first retailer file against it.

There is no structured data on purpose: name, price and stock are found by class names.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from decimal import Decimal

from scrape_assets.demo.catalogue import slug
from scrape_assets.demo.pages import shell


@dataclass(frozen=True, slots=True)
class Book:
    """One title on the shelf; `was` is the price before a reduction."""

    ref: str
    title: str
    author: str
    price: Decimal
    was: Decimal | None = None
    in_stock: bool = True

    @property
    def path(self) -> str:
        """Where its page is."""
        return f"/books/{slug(self.title)}"


BOOKS = (
    Book("BK-01", "The Lighthouse Ledger", "Ada Brannigan", Decimal("12.50")),
    Book("BK-02", "A Field Guide to Puddles", "Tom Ashworth", Decimal("9.99"), Decimal("14.99")),
    Book("BK-03", "Seven Quiet Machines", "Ines Calloway", Decimal("18.00")),
    Book("BK-04", "Salt, Tin & Thunder", "Morwenna Pascoe", Decimal("11.25")),
    Book("BK-05", "The Patient Cartographer", "Owen Llewellyn", Decimal("24.95")),
    Book("BK-06", "How Bread Remembers", "Greta Lindqvist", Decimal("16.40"), Decimal("20.50")),
    Book("BK-07", "Notes from a Slow Train", "Farid Haddad", Decimal("8.75"), in_stock=False),
    Book("BK-08", "The Clockmaker's Other Daughter", "Ruth Adeyemi", Decimal("13.60")),
    Book("BK-09", "Rivers That Change Their Minds", "Pia Sorensen", Decimal("21.00")),
    Book("BK-10", "An Atlas of Small Rooms", "Hugh Pemberton", Decimal("1150.00")),
    Book("BK-11", "Winter Arithmetic", "Lena Kowalska", Decimal("10.10")),
    Book("BK-12", "The Last Honest Receipt", "Jun Takeda", Decimal("15.30"), Decimal("19.00"), in_stock=False),
)


def _shell(title: str, body: str) -> str:
    return shell(
        f"{title} | The Dry Harbour Bookshop",
        body,
        brand="The Dry Harbour Bookshop",
        tagline="Twelve books, well chosen",
        language="en",
        accent="#2f5d3a",
    )


def book_page(book: Book) -> str:
    """The page of one book."""
    was = f' <del class="was">£{book.was:,.2f}</del>' if book.was is not None else ""
    stock, text = ("in_stock", "In stock, posted today") if book.in_stock else ("out_of_stock", "Out of print for now")
    return _shell(
        book.title,
        f"""<article class="book">
<h1 class="title">{html.escape(book.title)}</h1>
<p class="author">{html.escape(book.author)}</p>
<p class="price"><span class="now big">£{book.price:,.2f}</span>{was}</p>
<p class="stock" data-availability="{stock}">{text}</p>
<p><small>Reference <span class="ref">{book.ref}</span> · Postage £2.80</small></p>
</article>""",
    )


def shelf() -> str:
    """The bookshop's front page."""
    items = "\n".join(
        f'<li><a href="{book.path}">{html.escape(book.title)}</a>, {html.escape(book.author)}</li>' for book in BOOKS
    )
    return _shell(
        "On the shelf",
        f"""<h1>On the shelf</h1>
<ul>
{items}
</ul>
<p><a href="/books/urls.txt">All addresses as text</a></p>""",
    )


def urls(base_url: str) -> str:
    """The addresses of all books, one a line."""
    return "".join(f"{base_url}{book.path}\n" for book in BOOKS)
