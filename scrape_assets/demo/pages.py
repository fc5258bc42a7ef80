"""The shop's pages as text: one template a retailer, with the price where its kind of site writes it.

fjordgear says everything in JSON-LD, casamoda in microdata, papelaria only in class names. Struck-through
prices, shipping costs, instalments and neighbours' prices stand around the real one, because real pages have
them. A `broken` template is a redesign: it looks the same to a person, and the price is not where it was.
"""

from __future__ import annotations

import html
import json
from decimal import Decimal

from scrape_assets.demo.catalogue import Fault, Offer, Page, pages

BRANDS = {
    "fjordgear": ("Fjordgear", "Outdoor equipment from the far north", "en", "#1f5673"),
    "casamoda": ("Casa Moda", "Moda sin prisa", "es", "#8c2f52"),
    "papelaria": ("Papelaria Atlântica", "Papel, tinta e paciência", "pt", "#7a5c1e"),
}
LOGIN_PATHS = {"fjordgear": "/login", "casamoda": "/es/acceso", "papelaria": "/entrar"}

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:0;color:#222;background:#faf9f7}
header{background:ACCENT;color:#fff;padding:1rem 2rem}
header a{color:#fff;text-decoration:none;font-size:1.4rem}
main{max-width:60rem;margin:2rem auto;padding:0 2rem}
footer{max-width:60rem;margin:3rem auto;padding:0 2rem;color:#777}
.card,.oferta,.book{background:#fff;border:1px solid #e3e0da;border-radius:8px;
padding:1.2rem 1.5rem;margin:0 0 1rem}
.big{font-size:1.6rem;color:ACCENT}del{color:#888}small{color:#777}li{margin:.2rem 0}
"""
_AVAILABILITY = {"in_stock": "InStock", "out_of_stock": "OutOfStock", "preorder": "PreOrder"}
_STOCK_TEXT = {
    "en": {"in_stock": "In stock", "out_of_stock": "Sold out", "preorder": "Coming soon: order now"},
    "es": {"in_stock": "Disponible", "out_of_stock": "Agotado", "preorder": "Próximamente"},
    "pt": {"in_stock": "Em stock", "out_of_stock": "Esgotado", "preorder": "Pré-venda"},
}


def us(money: Decimal) -> str:
    """The amount as an American shop writes it: `$1,299.00`."""
    return f"${money:,.2f}"


def european(money: Decimal) -> str:
    """The amount as a Spanish or Portuguese shop writes it: `1.299,00 €`."""
    return f"{money:,.2f}".translate(str.maketrans(",.", ".,")) + " €"


def shell(title: str, body: str, *, brand: str, tagline: str, language: str, accent: str, head: str = "") -> str:
    """A whole HTML document around `body`."""
    return f"""<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{_STYLE.replace("ACCENT", accent)}</style>
{head}</head>
<body>
<header><a href="/">{html.escape(brand)}</a> <span>{html.escape(tagline)}</span></header>
<main>
{body}
</main>
<footer>A demonstration shop on your own machine. Nothing here is for sale.</footer>
</body>
</html>
"""


def page(page: Page, *, broken: bool = False) -> str:
    """The page when nothing transient is in the way; `broken`: after its template was redesigned."""
    match page.fault:
        case Fault.CONSENT:
            return consent(page.retailer)
        case Fault.BROKEN:
            return _defective(page)
        case Fault.MESSY:
            return _mess(_sound(page, broken=broken))
        case _:
            return _sound(page, broken=broken)


def _sound(page: Page, *, broken: bool) -> str:
    match page.retailer:
        case "fjordgear":
            return _gear(page, broken=broken)
        case "casamoda":
            return _fashion(page, broken=broken)
        case _:
            return _stationery(page, broken=broken)


def _site(retailer: str, title: str, body: str, head: str = "") -> str:
    brand, tagline, language, accent = BRANDS[retailer]
    return shell(f"{title} | {brand}", body, brand=brand, tagline=tagline, language=language, accent=accent, head=head)


def _neighbours(page: Page) -> list[Offer]:
    others = pages(page.retailer)
    return [others[(page.number + step) % len(others)].offers[0] for step in (1, 5, 9)]


def _was(offer: Offer, text: str, css: str) -> str:
    return f'<del class="{css}">{text}</del> ' if offer.list_price is not None else ""


def _gear(page: Page, *, broken: bool) -> str:
    (offer,) = page.offers
    amount = f"{offer.price:.2f}"
    # Sites write one number as text, as a JSON number, or with the thousands separator of the visible price.
    written = (amount, float(offer.price), f"{offer.price:,.2f}")[page.number % 3]
    product = {
        "@type": "Product",
        "name": offer.name,
        "sku": offer.sku,
        "brand": {"@type": "Brand", "name": offer.brand} if page.number % 2 else offer.brand,
        "description": f"{offer.name}: made for wet rock, long light and short weather windows.",
        "offers": {
            "@type": "Offer",
            # The redesigned template moved the amount to a name that no vocabulary knows.
            ("amountToPay" if broken else "price"): written,
            "priceCurrency": offer.currency,
            "availability": f"https://schema.org/{_AVAILABILITY[offer.availability]}",
            "itemCondition": "https://schema.org/NewCondition",
            "url": offer.path,
        },
    }
    crumbs = {
        "@type": "BreadcrumbList",
        "itemListElement": [{"@type": "ListItem", "position": 1, "name": "Gear"}],
    }
    data: object = {"@context": "https://schema.org", **product}
    if page.number % 4 == 1:
        data = {"@context": "https://schema.org", "@graph": [crumbs, product]}
    elif page.number % 4 == 2:
        data = [{"@context": "https://schema.org", **crumbs}, {"@context": "https://schema.org", **product}]
    script = json.dumps(data, indent=1, ensure_ascii=False)
    visible = "<strong>See price in cart</strong>" if broken else f'<span class="now big">{us(offer.price)}</span>'
    was = _was(offer, us(offer.list_price or Decimal(0)), "was")
    others = "".join(f'<li><a href="{o.path}">{o.name}</a> <b>{us(o.price)}</b></li>' for o in _neighbours(page))
    return _site(
        "fjordgear",
        offer.name,
        f"""<article class="card">
<h1>{offer.name}</h1>
<p>{was}{visible}</p>
<p><small>Free shipping over $75.00 · or 4 payments of {us(offer.price / 4)}</small></p>
<p class="stock">{_STOCK_TEXT["en"][offer.availability]}</p>
<p><small>Item {offer.sku}</small></p>
</article>
<h2>You may also like</h2>
<ul>{others}</ul>""",
        head=f'<script type="application/ld+json">\n{script}\n</script>\n',
    )


def _fashion(page: Page, *, broken: bool) -> str:
    (offer,) = page.offers
    name = html.escape(offer.name)
    # Half of the pages give the amount only as people read it, half as an attribute beside it.
    attribute = f' content="{offer.price:.2f}"' if page.number % 2 else ""
    price = f'<span class="big" itemprop="price"{attribute}>{european(offer.price)}</span>'
    if broken:
        price = f'<span class="big" data-precio>{european(offer.price)}</span>'
    was = _was(offer, european(offer.list_price or Decimal(0)), "antes")
    others = "".join(
        f'<li><a href="{o.path}">{html.escape(o.name)}</a> <b>{european(o.price)}</b></li>' for o in _neighbours(page)
    )
    return _site(
        "casamoda",
        offer.name,
        f"""<article class="card ficha" itemscope itemtype="https://schema.org/Product">
<h1 itemprop="name">{name}</h1>
<p>Ref. <span itemprop="sku">{offer.sku}</span> · <span itemprop="brand">{offer.brand}</span></p>
<div itemprop="offers" itemscope itemtype="https://schema.org/Offer">
<p>{was}{price}<meta itemprop="priceCurrency" content="{offer.currency}"></p>
<link itemprop="availability" href="https://schema.org/{_AVAILABILITY[offer.availability]}">
<p>{_STOCK_TEXT["es"][offer.availability]}</p>
</div>
<p><small>Envío 4,95 € · 3 plazos de {european(offer.price / 3)} sin intereses</small></p>
</article>
<h2>Combínalo con</h2>
<ul>{others}</ul>""",
    )


def _stationery(page: Page, *, broken: bool) -> str:
    shown = list(page.offers)
    if page.number % 10 == 0:
        shown.insert(0, shown[-1])  # the advertised thing of the week stands on the page twice
    rows = "\n".join(_row(offer, broken=broken) for offer in shown)
    kind = page.offers[0].name.rsplit(" ", 1)[0]
    return _site(
        "papelaria",
        kind,
        f"""<h1>{kind}</h1>
<p><small>Portes 3,90 € · grátis a partir de 29,00 €</small></p>
<section class="lista">
{rows}
</section>""",
    )


def _row(offer: Offer, *, broken: bool) -> str:
    was = _was(offer, european(offer.list_price or Decimal(0)), "antes")
    css = "valor" if broken else "preco"
    stock = _STOCK_TEXT["pt"][offer.availability]
    return f"""<div class="oferta">
<h2 class="nome"><a href="{offer.path}">{html.escape(offer.name)}</a></h2>
<p>{was}<span class="{css} big">{european(offer.price)}</span>
<small class="iva">IVA {european(offer.price / 5)} incl.</small></p>
<p class="disponibilidade" data-stock="{_AVAILABILITY[offer.availability]}">{stock}</p>
<button data-ref="{offer.sku}" data-cents="{offer.price * 100:.0f}">Comprar</button>
</div>"""


def stationery_detail(offer: Offer) -> str:
    """The page behind a link of a papelaria listing; it is in no inventory."""
    return _site("papelaria", offer.name, _row(offer, broken=False))


def _mess(text: str) -> str:
    """The same page as a careless template writes it; every browser shows the same values."""
    text = text.replace("<!doctype html>\n", "").replace("</head>\n<body>\n", "</div><body bgcolor=white <br>\n")
    text = text.replace("</p>", "").replace("</article>", "</b></article></span>").replace("</li>", "")
    return text.replace("</main>", "<p>Terms & conditions <3 &nbsp</td></i>").replace("</body>\n</html>\n", "")


def _defective(page: Page) -> str:
    """A page that answers 200 without its facts: data cut short, a price that is none, a missing part."""
    text = _sound(page, broken=False)
    match page.retailer:
        case "fjordgear":
            start, end = text.index('"offers"') + 12, text.index("</script>")
            return text[:start] + text[end:]
        case "casamoda":
            start = text.index('<span class="big" itemprop="price"')
            end = text.index("</span>", start)
            text = text[:start] + '<span class="big" itemprop="price" content="NaN">consultar' + text[end:]
            # Nor whether it can be had: a sold-out product without a price would be a fact, not a fault.
            said = _STOCK_TEXT["es"][page.offers[0].availability]
            return text.replace('<link itemprop="availability"', '<link rel="estado"').replace(f"<p>{said}</p>", "")
        case _:
            start, end = text.index('<section class="lista">'), text.index("</section>")
            instead = "<!-- componente 'lista' indisponível -->\n<p>Ocorreu um erro.</p>"
            return text[:start] + instead + text[end + len("</section>") :]


def consent(retailer: str) -> str:
    """What a site shows to a visitor who has not agreed to its cookies: 200, and nothing else."""
    if BRANDS[retailer][2] == "es":
        title, ask = (
            "Antes de continuar",
            "Utilizamos cookies y tecnologías similares. Elige cómo tratamos tus datos.",
        )
        yes, no, more = "Aceptar todo", "Rechazar todo", "Configurar cookies"
    else:
        title, ask = (
            "Before you continue",
            "We use cookies and similar technologies. Choose how we use your data.",
        )
        yes, no, more = "Accept all", "Reject all", "Manage cookie preferences"
    return _site(
        retailer,
        title,
        f"""<div id="cookie-consent" class="card consent" role="dialog" aria-label="{title}">
<h1>{title}</h1>
<p>{ask}</p>
<form method="post" action="/consent">
<button name="choice" value="accept">{yes}</button> <button name="choice" value="reject">{no}</button>
<a href="/privacy">{more}</a>
</form>
</div>""",
    )


def login(retailer: str) -> str:
    """The form that a page for members redirects to."""
    title, user, password = {
        "en": ("Sign in", "E-mail", "Password"),
        "es": ("Iniciar sesión", "Correo electrónico", "Contraseña"),
        "pt": ("Iniciar sessão", "E-mail", "Palavra-passe"),
    }[BRANDS[retailer][2]]
    return _site(
        retailer,
        title,
        f"""<div class="card"><h1>{title}</h1>
<form method="post" action="{LOGIN_PATHS[retailer]}">
<p><label>{user} <input type="email" name="username" autocomplete="username"></label></p>
<p><label>{password} <input type="password" name="password" autocomplete="current-password"></label></p>
<button>{title}</button>
</form></div>""",
    )


def home(retailer: str) -> str:
    """The retailer's front page, with a link to every page of its inventory."""
    items = "\n".join(f'<li><a href="{one.path}">{html.escape(one.offers[0].name)}</a></li>' for one in pages(retailer))
    return _site(retailer, BRANDS[retailer][1], f"<h1>{html.escape(BRANDS[retailer][1])}</h1>\n<ul>\n{items}\n</ul>")


def refusal(retailer: str, status: int, reason: str) -> str:
    """The body of an answer that is not the page."""
    return _site(retailer, reason, f'<div class="card"><h1>{status} {reason}</h1></div>')
