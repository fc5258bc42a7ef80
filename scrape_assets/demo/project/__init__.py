"""The demo's declaration, packaged as templates because the shop's ports are known only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from string import Template

from scrape_assets.demo import catalogue, lanterns

DATASET = "shop"
WINDOWS_BEFORE_TODAY = 7

MENDED = "papelaria"
"""The retailer whose selectors the demo gets wrong and repairs."""

GOLDEN_PAGE = f"cases/{MENDED}/escrita-2"
"""One of its pages as it was recorded, with what a person says that it says: `check` compares."""

READINGS = {
    "right": """\
    price: {css: .preco, money: EUR, decimal: ","}
    list_price: {css: .antes, money: EUR, decimal: ",", optional: true}
""",
    # What a hurried selector takes: the first amount of a row, which is the list price where there is one.
    "first amount": """\
    price: {xpath: "(.//*[@class='antes'] | .//span[contains(@class, 'preco')])[1]", money: EUR, decimal: ","}
""",
    # And its hurried repair: the button knows the price, in cents.
    "cents": """\
    price: {css: button, attr: data-cents, money: EUR}
""",
}
"""Ways to declare its prices; one of them is right."""

_TEMPLATES = Path(__file__).resolve().parent / "datasets"


def write_lanterns(folder: Path, front: str, *, start: date | None = None) -> None:
    """Adds the dataset whose pages need a browser to the project in `folder`; the shop's front door is at `front`."""
    target = folder / "datasets" / lanterns.RETAILER
    (target / "retailers").mkdir(parents=True, exist_ok=True)
    _render("dataset.yaml", target, start=_first(start))
    _render(f"retailers/{lanterns.RETAILER}.yaml", target, site=front)
    lines = ["url", *(front + lantern.path for lantern in lanterns.LANTERNS)]
    (target / "retailers" / f"{lanterns.RETAILER}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_project(folder: Path, sites: Mapping[str, str], *, start: date | None = None) -> None:
    """Writes a project into `folder` that collects the shop with its retailers at `sites` (name → base URL).

    Its first window is `start`, a week ago by default. Files of an earlier demo are replaced, others stay.
    """
    target = folder / "datasets" / DATASET
    (target / "retailers").mkdir(parents=True, exist_ok=True)
    _render("dataset.yaml", target, start=_first(start), coverage=f"{catalogue.coverage():.2f}")
    for retailer in catalogue.RETAILERS:
        _render(f"retailers/{retailer}.yaml", target, site=sites[retailer])
        lines = ["url", *catalogue.inventory(retailer, sites[retailer])]
        (target / "retailers" / f"{retailer}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    case = target / GOLDEN_PAGE
    case.mkdir(parents=True, exist_ok=True)
    _render(f"{GOLDEN_PAGE}/page.json", target, site=sites[MENDED])
    for name in ("page.html", "expected.json"):
        (case / name).write_bytes((_TEMPLATES / DATASET / GOLDEN_PAGE / name).read_bytes())


def read_prices(folder: Path, reading: str) -> None:
    """The retailer of the demo's repair is declared to read its prices like this."""
    file = folder / "datasets" / DATASET / "retailers" / f"{MENDED}.yaml"
    text = file.read_text(encoding="utf-8")
    declared = next(said for said in READINGS.values() if said in text)
    file.write_text(text.replace(declared, READINGS[reading]), encoding="utf-8")


def _first(start: date | None) -> str:
    return (start or datetime.now(UTC).date() - timedelta(days=WINDOWS_BEFORE_TODAY)).isoformat()


def _render(name: str, target: Path, **values: str) -> None:
    """The template of the dataset in whose folder it is written."""
    template = Template((_TEMPLATES / target.name / name).read_text(encoding="utf-8"))
    (target / name).write_text(template.substitute(values), encoding="utf-8")
