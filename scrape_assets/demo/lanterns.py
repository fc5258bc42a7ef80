"""A lantern shop whose prices exist only after JavaScript ran: its pages come empty and ask for what they show.

It lies at the front door, open to everyone. A collector without a browser gets a name and an empty place.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from decimal import Decimal

from scrape_assets.demo.catalogue import Truth, slug
from scrape_assets.demo.pages import shell
from scrape_assets.rules.keys import plain

RETAILER = "lanterns"
"""Its name in the demo's second dataset, and that dataset's own."""


@dataclass(frozen=True, slots=True)
class Lantern:
    """One lantern; what it costs is told to scripts only."""

    ref: str
    name: str
    price: Decimal
    in_stock: bool = True

    @property
    def path(self) -> str:
        """Where its page is."""
        return f"/lanterns/{slug(self.name)}"

    @property
    def data_path(self) -> str:
        """Where its page's script asks for the price."""
        return f"/lanterns/api/{self.ref}"


LANTERNS = (
    Lantern("LN-01", "Storm Lantern Skagerrak", Decimal("48.00")),
    Lantern("LN-02", "Pocket Lantern Ember", Decimal("14.50")),
    Lantern("LN-03", "Harbour Lamp Number Nine", Decimal("129.00")),
    Lantern("LN-04", "Carbide Lamp Old Shaft", Decimal("87.25"), in_stock=False),
    Lantern("LN-05", "Paper Lantern Three Moons", Decimal("9.95")),
    Lantern("LN-06", "Signal Lantern Red Over Green", Decimal("1240.00")),
    Lantern("LN-07", "Barn Lantern Hayloft", Decimal("36.40")),
    Lantern("LN-08", "Candle Lantern Vestibule", Decimal("22.00")),
)

APP = """\
const place = document.getElementById('lantern');
fetch('/lanterns/api/' + place.dataset.ref).then(answer => answer.json()).then(found => {
  const line = (kind, text) => {
    const made = document.createElement('p');
    made.className = kind;
    made.textContent = text;
    place.append(made);
  };
  line('price big', found.price);
  line('stock', found.stock);
});
"""


def lantern_page(lantern: Lantern) -> str:
    """The page of one lantern as it comes: without its price."""
    return shell(
        f"{lantern.name} | The Lantern Room",
        f"""<article class="card">
<h1>{html.escape(lantern.name)}</h1>
<div id="lantern" data-ref="{lantern.ref}"></div>
<p><small>Reference <span class="ref">{lantern.ref}</span></small></p>
</article>
<script src="/lanterns/app.js"></script>""",
        brand="The Lantern Room",
        tagline="Nothing here works without JavaScript",
        language="en",
        accent="#6b4a1b",
    )


def data(lantern: Lantern) -> str:
    """What a page's script is told."""
    stock = "in stock" if lantern.in_stock else "sold out"
    return json.dumps({"ref": lantern.ref, "price": f"€{lantern.price:,.2f}", "stock": stock}, ensure_ascii=False)


def truth(base_url: str) -> list[Truth]:
    """Every lantern as a complete and correct collection publishes it."""
    return [
        Truth(
            retailer=RETAILER,
            page=base_url + lantern.path,
            url=base_url + lantern.path,
            entity=lantern.ref,
            name=lantern.name,
            price=plain(lantern.price),
            currency="EUR",
            availability="in_stock" if lantern.in_stock else "out_of_stock",
            list_price=None,
        )
        for lantern in LANTERNS
    ]
