"""What the demo shop really sells, which page shows it, and which page misbehaves how.

Everything here follows from `SEED` through a hash, so two processes, machines or Python versions agree
without talking: the shop serves this catalogue and whoever judges a run compares with it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import TypedDict

from scrape_assets.rules.keys import plain

SEED = 20261101
OFFERS_PER_LISTING = 12


class Fault(StrEnum):
    """What is wrong with a page. The first group passes after a few requests, the second stays for ever."""

    RATE_LIMITED = "429"
    UNAVAILABLE = "503"
    DRIP = "drip"
    TRUNCATED = "truncated"
    MESSY = "messy"

    NOT_FOUND = "404"
    WITHDRAWN = "410"
    CONSENT = "consent"
    LOGIN = "login"
    BROKEN = "broken"


GONE = frozenset({Fault.NOT_FOUND, Fault.WITHDRAWN})
UNUSABLE = frozenset({Fault.CONSENT, Fault.LOGIN, Fault.BROKEN})


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing for sale, with the path of its own page; `list_price` is the old price, struck through."""

    path: str
    sku: str
    name: str
    brand: str
    price: Decimal
    currency: str
    availability: str
    list_price: Decimal | None


@dataclass(frozen=True, slots=True)
class Page:
    """One line of the inventory. `fault` hits its first `times` requests, every request when `times` is 0."""

    retailer: str
    path: str
    number: int
    offers: tuple[Offer, ...]
    fault: Fault | None = None
    times: int = 0
    gzip: bool = False

    @property
    def obtainable(self) -> bool:
        """Whether a patient collector gets this page's offers in the end."""
        return self.fault not in GONE | UNUSABLE


class Truth(TypedDict):
    """One offer that a complete and correct collection publishes; money as a plain decimal string."""

    retailer: str
    page: str
    url: str
    entity: str
    name: str
    price: str
    currency: str
    availability: str
    list_price: str | None


class Expected(TypedDict):
    """How the tasks of one complete run end, and how many observations they leave."""

    tasks: int
    committed: int
    gone: int
    quarantined: int
    observations: int


# Kind of product → its cheapest and dearest price in whole units.
_GEAR = {
    "Down Jacket": (180, 1480), "Trekking Pack": (90, 420), "Shell Parka": (240, 1650),
    "Merino Base Layer": (45, 130),
    "Hiking Boots": (110, 380), "Two-Person Tent": (260, 1390), "Sleeping Bag": (120, 890),
    "Camp Stove": (35, 210),
    "Headlamp": (25, 160), "Touring Skis": (480, 1890),
}  # fmt: skip
_FJORDS = (
    "Aurland", "Bjerke", "Dovre", "Eikesdal", "Folgefonn", "Geiranger", "Hardanger",
    "Isfjord", "Jotunheim", "Kvaløya", "Lysefjord", "Nordkapp", "Oksefjord", "Romsdal",
)  # fmt: skip
_FASHION = {
    "Abrigo de lana": (140, 1890), "Vestido midi": (49, 320), "Blusa de seda": (39, 260),
    "Falda plisada": (29, 180),
    "Chaqueta de piel": (190, 2100), "Pantalón ancho": (35, 150), "Pañuelo estampado": (12, 90),
    "Bolso & cartera": (45, 1250),
    "Jersey de punto": (29, 210), "Zapatos de tacón": (55, 640),
}  # fmt: skip
_QUARTERS = (
    "Alhambra", "Benicàssim", "Cádiz", "Doñana", "L'Eixample", "Finisterre",
    "Girona", "Huelva", "Ibiza", "Jávea", "Lavapiés", "Mérida",
)  # fmt: skip
_STATIONERY: dict[str, dict[str, tuple[int, int]]] = {
    "escrita": {
        "Caneta de gel": (1, 6), "Esferográfica": (1, 45), "Marcador": (1, 9), "Lápis": (1, 4),
        "Lapiseira": (2, 60),
    },
    "cadernos": {
        "Caderno A4": (2, 18), "Caderno A5": (2, 14), "Bloco": (1, 9), "Agenda": (8, 48),
        "Sebenta": (3, 12),
    },
    "arquivo": {
        "Dossier": (2, 11), "Capa": (1, 7), "Separador": (1, 5), "Caixa de arquivo": (3, 16),
        "Pasta": (4, 85),
    },
    "papel": {
        "Resma A4": (4, 12), "Resma A3": (8, 24), "Cartolina": (1, 6), "Papel vegetal": (5, 30),
        "Envelopes": (2, 28),
    },
    "desenho": {
        "Aguarelas": (6, 120), "Pincel": (2, 48), "Tela": (5, 90), "Guache": (4, 38),
        "Cavalete": (39, 1290),
    },
    "escritório": {
        "Cadeira": (89, 1150), "Secretária": (149, 1890), "Candeeiro": (19, 240), "Agrafador": (5, 45),
        "Estante": (59, 690),
    },
    "máquinas": {
        "Impressora": (79, 1690), "Plotter": (890, 2990), "Destruidora": (45, 1150),
        "Calculadora": (6, 160), "Plastificadora": (29, 380),
    },
    "presentes": {
        "Globo": (19, 280), "Puzzle": (9, 60), "Caneta-tinteiro": (25, 1240), "Vela": (6, 40),
        "Postal": (1, 4),
    },
}  # fmt: skip
_CITIES = (
    "Aveiro", "Braga", "Coimbra", "Douro", "Évora", "Faro", "Guimarães", "Lisboa", "Óbidos", "Porto",
    "Sintra", "Tomar",
)  # fmt: skip

# How many pages have which fault, and on how many requests (0: always).
_FAULTS: dict[str, tuple[tuple[Fault, int, int], ...]] = {
    "fjordgear": (
        (Fault.RATE_LIMITED, 2, 1), (Fault.RATE_LIMITED, 1, 2), (Fault.UNAVAILABLE, 3, 1),
        (Fault.UNAVAILABLE, 1, 2),
        (Fault.DRIP, 2, 1), (Fault.TRUNCATED, 2, 1), (Fault.MESSY, 4, 0), (Fault.NOT_FOUND, 4, 0),
        (Fault.WITHDRAWN, 2, 0),
        (Fault.CONSENT, 2, 0), (Fault.LOGIN, 1, 0), (Fault.BROKEN, 2, 0),
    ),
    "casamoda": (
        (Fault.RATE_LIMITED, 2, 1), (Fault.UNAVAILABLE, 2, 1), (Fault.UNAVAILABLE, 1, 2), (Fault.DRIP, 1, 1),
        (Fault.TRUNCATED, 2, 1), (Fault.MESSY, 4, 0), (Fault.NOT_FOUND, 3, 0), (Fault.WITHDRAWN, 1, 0),
        (Fault.CONSENT, 1, 0), (Fault.LOGIN, 2, 0), (Fault.BROKEN, 2, 0),
    ),
    "papelaria": (
        (Fault.RATE_LIMITED, 1, 1), (Fault.UNAVAILABLE, 2, 1), (Fault.DRIP, 1, 1), (Fault.TRUNCATED, 1, 1),
        (Fault.MESSY, 2, 0), (Fault.NOT_FOUND, 1, 0), (Fault.WITHDRAWN, 1, 0), (Fault.BROKEN, 1, 0),
    ),
}  # fmt: skip

RETAILERS = tuple(_FAULTS)


def _draw(bound: int, *parts: object) -> int:
    """A number in [0, bound) that depends on the seed and the parts alone."""
    text = "/".join(map(str, (SEED, *parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % bound


def slug(text: str) -> str:
    """The text as a path segment: lower case, ASCII, words joined by hyphens."""
    ascii_text = text.lower().translate(str.maketrans("àáâãçèéêíñóôõøú", "aaaaceeeinoooou"))
    return "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in ascii_text).split())


def _offer(path: str, sku: str, name: str, brand: str, currency: str, low: int, high: int) -> Offer:
    whole = low + _draw(high - low + 1, sku, "price")
    price = Decimal(whole) + Decimal(("0.00", "0.50", "0.95", "0.99")[_draw(4, sku, "cents")])
    # Every fifth thing or so is on sale; the old price stands on the page beside the new one, as a trap.
    list_price = None
    if _draw(5, sku, "sale") == 0:
        list_price = Decimal(math.ceil(price * (115 + _draw(40, sku, "was")) / 100)) + Decimal("0.90")
    fate = _draw(20, sku, "stock")
    availability = {0: "out_of_stock", 1: "out_of_stock", 2: "preorder"}.get(fate, "in_stock")
    return Offer(path, sku, name, brand, price, currency, availability, list_price)


Draft = tuple[str, tuple[Offer, ...]]
"""A page's path and what it shows."""


def _gear() -> list[Draft]:
    found: list[Draft] = []
    for number, (place, kind) in enumerate((p, k) for k in _GEAR for p in _FJORDS):
        name, sku = f"{place} {kind}", f"FG-{1001 + number}"
        path = f"/p/{slug(name)}-{sku.lower()}"
        found.append((path, (_offer(path, sku, name, "Fjordgear", "USD", *_GEAR[kind]),)))
    return found


def _fashion() -> list[Draft]:
    found: list[Draft] = []
    for number, (place, kind) in enumerate((p, k) for k in _FASHION for p in _QUARTERS):
        name, sku = f"{kind} {place}", f"CM{20417 + 3 * number}"
        path = f"/es/producto/{slug(name)}-{sku.lower()}.html"
        found.append((path, (_offer(path, sku, name, "Casa Moda", "EUR", *_FASHION[kind]),)))
    return found


def _stationery() -> list[Draft]:
    found: list[Draft] = []
    number = 0
    for category, kinds in _STATIONERY.items():
        for page, (kind, (low, high)) in enumerate(kinds.items(), start=1):
            offers = []
            for city in _CITIES[:OFFERS_PER_LISTING]:
                number += 1
                sku, name = f"P.{number:04}", f"{kind} {city}"
                offers.append(_offer(f"/produto/{slug(name)}", sku, name, "Atlântica", "EUR", low, high))
            found.append((f"/catalogo/{slug(category)}/pagina-{page}", tuple(offers)))
    return found


@lru_cache
def pages(retailer: str) -> tuple[Page, ...]:
    """The retailer's inventory, faults included, in the order of its file."""
    drafts = {"fjordgear": _gear, "casamoda": _fashion, "papelaria": _stationery}[retailer]()
    chosen = iter(sorted(range(len(drafts)), key=lambda n: _draw(1 << 32, retailer, "fault", n)))
    faults = {next(chosen): (fault, times) for fault, count, times in _FAULTS[retailer] for _ in range(count)}
    found = []
    for n, (path, offers) in enumerate(drafts):
        fault, times = faults.get(n, (None, 0))
        # casamoda compresses everything, the others now and then.
        packed = retailer == "casamoda" or n % 4 == 0
        found.append(Page(retailer, path, n, offers, fault, times, packed))
    return tuple(found)


def inventory(retailer: str, base_url: str) -> list[str]:
    """The URLs to collect from the retailer whose site is at `base_url`."""
    return [base_url + page.path for page in pages(retailer)]


def truth(sites: Mapping[str, str]) -> list[Truth]:
    """Every offer on a page that a patient collector gets; `sites` maps each retailer to its base URL."""
    return [
        Truth(
            retailer=retailer,
            page=sites[retailer] + page.path,
            url=sites[retailer] + offer.path,
            entity=offer.sku,
            name=offer.name,
            price=plain(offer.price),
            currency=offer.currency,
            availability=offer.availability,
            list_price=None if offer.list_price is None else plain(offer.list_price),
        )
        for retailer in RETAILERS
        for page in pages(retailer)
        if page.obtainable
        for offer in page.offers
    ]


def expected(retailer: str | None = None) -> Expected:
    """How the tasks of one retailer end, or of all."""
    chosen = [page for name in ([retailer] if retailer else RETAILERS) for page in pages(name)]
    return Expected(
        tasks=len(chosen),
        committed=sum(page.obtainable for page in chosen),
        gone=sum(page.fault in GONE for page in chosen),
        quarantined=sum(page.fault in UNUSABLE for page in chosen),
        observations=sum(len(page.offers) for page in chosen if page.obtainable),
    )


def coverage() -> float:
    """The highest whole percentage that every retailer's lasting faults allow to be committed, gone pages aside."""
    counts = [expected(retailer) for retailer in RETAILERS]
    return min(100 * one["committed"] // (one["tasks"] - one["gone"]) for one in counts) / 100
