"""Pages of shops that say nothing to machines, in the markup of many platforms and countries: read right, or refused.

All markup is written for these tests, after the templates that the platforms ship.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from scrape_assets.rules.judge import Judged, judge
from scrape_assets.rules.page import Response
from scrape_assets.rules.spec import ExtractRule, PageRule
from scrape_assets.rules.states import PageState


@dataclass(frozen=True)
class Case:
    """One page: what it is, where it stands, its language, its body, and what a person reads on it."""

    name: str
    url: str
    lang: str
    body: str
    expected: dict[str, Any]
    head: str = ""


def read(case: Case) -> Judged:
    page = (
        f'<!doctype html><html lang="{case.lang}"><head><meta charset="utf-8"><title>Shop</title>{case.head}</head>'
        f"<body>{case.body}</body></html>"
    )
    answer = Response(case.url, case.url, 200, {"content-type": "text/html; charset=utf-8"}, page.encode())
    return judge(answer, ExtractRule(retailer="shop", page=PageRule()))


CARDS = "".join(
    f'<li class="item"><a href="/p/other-{n}"><img src="/o{n}.jpg" alt=""></a><h3><a href="/p/other-{n}">Other {n}</a></h3>'
    f'<span class="price">{n}9,90 €</span><button>Add to cart</button></li>'
    for n in range(1, 5)
)

WOO = """<header><a class="cart-contents" href="/warenkorb"><span class="woocommerce-Price-amount amount"><bdi>0,00 €
</bdi></span></a></header><div id="product-77" class="product type-product instock"><div class="woocommerce-product-gallery">
<a href="/i/1.jpg"><img src="/i/1s.jpg"></a></div><div class="summary entry-summary"><h1 class="product_title">Eichentisch</h1>
<p class="price"><del aria-hidden="true"><span class="woocommerce-Price-amount amount"><bdi>1.299,00&nbsp;<span
class="woocommerce-Price-currencySymbol">&euro;</span></bdi></span></del> <span class="screen-reader-text">Ursprünglicher
Preis war: 1.299,00&nbsp;&euro;</span><ins aria-hidden="true"><span class="woocommerce-Price-amount amount"><bdi>999,00&nbsp;
<span class="woocommerce-Price-currencySymbol">&euro;</span></bdi></span></ins></p><p class="wc-gzd-additional-info">inkl. 19
% MwSt. zzgl. <a href="/versand">Versandkosten</a></p><p class="stock in-stock">12 vorrätig</p><form class="cart"
method="post"><input type="number" name="quantity" value="1"><button type="submit" name="add-to-cart" value="77"
class="single_add_to_cart_button button">In den Warenkorb</button></form><div class="product_meta"><span
class="sku_wrapper">Artikelnummer: <span class="sku">ET-4411</span></span></div></div><section class="related products">
<h2>Ähnliche Produkte</h2><ul class="products columns-4"><li class="product"><a href="/produkt/stuhl"><h2>Stuhl</h2><span
class="price"><span class="amount"><bdi>89,00&nbsp;<span>&euro;</span></bdi></span></span></a></li></ul></section></div>"""

DAWN = """<div class="product__info-wrapper"><product-info id="ProductInfo-1" class="product__info-container"><div
class="product__title"><h1>Merino Beanie</h1></div><p class="product__sku"><span class="visually-hidden">SKU:</span> MB-002
</p><div id="price-1" role="status"><div class="price price--large price--on-sale"><div class="price__container"><div
class="price__regular"><span class="visually-hidden">Regular price</span><span class="price-item price-item--regular">
$45.00 CAD</span></div><div class="price__sale"><span class="visually-hidden">Regular price</span><span><s
class="price-item price-item--regular">$60.00 CAD</s></span><span class="visually-hidden">Sale price</span><span
class="price-item price-item--sale price-item--last">$45.00 CAD</span></div></div><span class="badge">Sale</span></div></div>
<form action="/cart/add"><button type="submit" name="add" class="product-form__submit button">Add to cart</button></form>
</product-info></div><product-recommendations class="related-products"><ul><li class="grid__item"><a href="/products/x">Scarf
</a><span class="price-item">$70.00 CAD</span></li></ul></product-recommendations>"""

MAGENTO = """<div class="page-title-wrapper product"><h1 class="page-title"><span class="base">Lampka nocna Ola</span></h1></div>
<div class="product-info-main"><div class="product-info-price"><div class="price-box price-final_price"
data-product-id="9"><span class="special-price"><span class="price-container price-final_price tax weee"><span
class="price-label">Cena specjalna</span><span id="product-price-9" data-price-amount="149.9" data-price-type="finalPrice"
class="price-wrapper"><span class="price">149,90&nbsp;zł</span></span></span></span><span class="old-price"><span
class="price-label">Cena regularna</span><span id="old-price-9" data-price-amount="199" data-price-type="oldPrice"
class="price-wrapper"><span class="price">199,00&nbsp;zł</span></span></span></div><div class="product-info-stock-sku"><div
class="stock available" title="Dostępność"><span>Dostępny</span></div><div class="product attribute sku"><strong
class="type">SKU</strong><div class="value" itemprop="sku">LN-0091</div></div></div></div><p>Darmowa dostawa od 200,00 zł</p>
<form id="product_addtocart_form"><button type="submit" class="action primary tocart" id="product-addtocart-button"><span>Dodaj
do koszyka</span></button></form></div><div class="block upsell"><ol class="products list items product-items">
<li class="item product product-item"><a href="/inna" class="product-item-photo"><img src="/x.png"></a><span class="price">
59,00&nbsp;zł</span></li></ol></div>"""

PRESTA = """<section id="main"><div class="row product-container"><div class="col-md-6"><img src="/1.jpg"></div><div
class="col-md-6"><h1 class="h1">Carafe en verre</h1><div class="product-prices"><div class="product-discount"><span
class="regular-price">29,90&nbsp;€</span></div><div class="product-price h5 has-discount"><div class="current-price"><span
class="current-price-value" content="23.92">23,92&nbsp;€</span><span class="discount discount-percentage">Économisez 20%</span>
</div></div><p class="product-unit-price sub">(31,89&nbsp;€ / litre)</p><div class="tax-shipping-delivery-label">TTC</div></div>
<form action="/panier"><button class="btn btn-primary add-to-cart" data-button-action="add-to-cart">Ajouter au panier</button>
<span id="product-availability">En stock</span></form><div class="product-reference"><label class="label">Référence </label>
<span>CV_100</span></div></div></div></section>"""

SHOPWARE = """<div class="product-detail"><div class="row product-detail-headline"><h1 class="product-detail-name">Bohrmaschine
500 W</h1></div><div class="product-detail-buy"><p class="product-detail-price with-list-price">1.079,95&nbsp;€<span
class="list-price-label">statt</span><span class="list-price-price">1.199,00&nbsp;€</span></p><div
class="product-detail-price-unit"><span>Inhalt: 1 Stück</span></div><p class="product-detail-tax">inkl. MwSt. zzgl.
Versandkosten</p><p class="delivery-information delivery-available">Sofort verfügbar, Lieferzeit: 1-3 Tage</p><form><button
class="btn btn-primary btn-buy">In den Warenkorb</button></form></div><div class="product-detail-ordernumber-container"><span
class="product-detail-ordernumber-label">Produktnummer:</span> <span class="product-detail-ordernumber">SW10178</span></div>
</div>"""

OPENCART = """<div id="content"><div class="row"><div class="col-sm-8"><ul class="thumbnails"><li><a class="thumbnail"
href="/image/cache/a-500.jpg"><img src="/image/cache/a-228.jpg"></a></li></ul></div><div class="col-sm-4"><h1>Чайник
электрический</h1><ul class="list-unstyled"><li>Производитель: <a href="/bosch">Bosch</a></li><li>Код товара: TWK3A</li><li>
Наличие: В наличии</li></ul><ul class="list-unstyled"><li><span style="text-decoration: line-through;">3 990 р.</span></li><li>
<h2>3 490 р.</h2></li><li>Без налога: 2 908 р.</li></ul><div id="product"><button type="button" id="button-cart"
class="btn btn-primary">Купить</button></div></div></div></div>"""

SFCC = """<div class="product-detail"><h1 class="product-name">Trail Shoe</h1><div class="prices"><div class="price"><span><del>
<span class="strike-through list"><span class="value" content="140.00">Price reduced from £140.00 to </span></span></del><span
class="sales"><span class="value" content="98.00">£98.00</span></span></span></div></div><div class="klarna">or 3 instalments of
£32.66</div><button class="add-to-cart btn btn-primary">Add to Bag</button></div>"""

BITRIX = """<div class="bx-catalog-element"><h1 class="bx-title">Дрель ударная</h1><div class="product-item-detail-pay-block">
<div class="product-item-detail-price-old">12 500 ₽</div><div class="product-item-detail-price-current">9 990 ₽</div>
<div class="item_economy_price">Экономия 2 510 ₽</div></div><a class="btn btn-default product-item-detail-buy-button"
href="javascript:void(0);"><span>В корзину</span></a><div>Артикул: <span>DU-13</span></div></div>"""

BIGCOMMERCE = """<div class="productView"><section class="productView-details"><h1 class="productView-title">Canvas Tote</h1>
<div class="productView-price"><div class="price-section price-section--withoutTax rrp-price--withoutTax"
style="display: none;">MSRP: <span class="price price--rrp"></span></div><div class="price-section price-section--withoutTax">
<span class="price price--withoutTax">A$39.95</span></div><div class="price-section price-section--saving price"
style="display: none;">(You save <span class="price price--saving"></span>)</div></div><dl class="productView-info"><dt
class="productView-info-name">SKU:</dt><dd class="productView-info-value">TOTE-1</dd></dl><form><input id="form-action-addToCart"
class="button button--primary" type="submit" value="Add to Cart"></form></section></div>"""

JAPAN = """<main><h1>有田焼 マグカップ</h1><p class="price">価格 <span class="price-main">¥2,980</span> <small>(税込)</small></p><p>
商品番号：AR-2041</p><p>在庫あり</p><p>送料 ¥550</p><button>カートに入れる</button></main>"""
BRAZIL = """<div class="produto"><h1>Cafeteira Italiana</h1><div class="preco"><span class="preco-antigo">De: <s>R$ 189,90</s></span>
<span class="preco-atual">Por: R$ 149,90</span><span class="parcelas">ou 3x de R$ 49,97 sem juros</span></div><button
class="comprar">Adicionar ao carrinho</button><p>Código: CAF-77</p></div>"""
SWEDEN = """<article><h1>Ullfilt</h1><div class="product-price"><span class="ord">Ord. pris <span>1 299 kr</span></span><span
class="now">899 kr</span></div><p>I lager, skickas inom 1-2 dagar</p><button>Lägg i varukorgen</button><p>Art.nr: 55120</p>
<p>Fri frakt över 499 kr</p></article>"""
CZECH = """<div class="detail"><h1>Vrtačka Pro</h1><table><tr><td>Cena bez DPH:</td><td class="cena">1 652 Kč</td></tr><tr><td>Cena s
DPH:</td><td class="cena"><strong>1 999 Kč</strong></td></tr></table><p>Skladem</p><p>Katalogové číslo: <b>VR-220</b></p>
<input type="submit" value="Do košíku"></div>"""
SWISS = """<div class="pdp"><h1>Taschenmesser</h1><span class="price">CHF 1&rsquo;249.50</span><button>In den Warenkorb</button>
<span>Art.-Nr. 40012</span></div>"""
RAISED = """<div class="produkt"><h1>Blender kielichowy</h1><div class="price"><span class="whole">249</span><sup
class="cents">99</sup> <span class="currency">zł</span></div><button>Do koszyka</button></div>"""
INDIA = """<div class="pdp"><h1>Steel Bottle</h1><div class="pdp-price"><span class="selling">₹1,299</span> <del>₹1,999</del>
<span class="off">35% off</span></div><button>Add to Bag</button></div>"""
SOUTH_AFRICA = (
    """<div class="pdp"><h1>Braai Grid</h1><div class="price">R 1 299,00</div><button>Add to Cart</button></div>"""
)
TAIWAN = """<div class="pdp"><h1>保溫瓶</h1><div class="price">$1,280</div><p>商品編號：TW-88</p><button>加入購物車</button></div>"""
KOREA = """<div class="goods"><h1>머그컵</h1><span class="price">12,900원</span><a href="#" class="btn_buy">바로구매</a></div>"""
HUNGARY = """<div class="termek"><h1>Kerti szék</h1><span class="old">24 990 Ft</span> <span class="price">19 990 Ft</span>
<p>Cikkszám: KS-9</p><p>Raktáron</p><button>Kosárba teszem</button></div>"""
TURKEY = """<div class="urun"><h1>Çaydanlık</h1><div class="fiyat"><span class="price">1.249,90 TL</span></div><p>Stokta var</p>
<button>Sepete Ekle</button></div>"""
CHILE = """<div class="pdp"><h1>Mochila Andina</h1><div class="price">$24.990</div><p>SKU: MOCH-1</p><button>Agregar al carro</button>
</div>"""
GREECE = """<div><h1>Κούπα</h1><span class="price">12,50 €</span><p>Κωδικός: KP-100</p><p>Άμεσα διαθέσιμο</p>
<button>Προσθήκη στο καλάθι</button></div>"""
ALL_IN_LINK = (
    """<div class="product-page"><h1>Oak Stool</h1><div class="offer"><span class="price">£89.00</span></div><button>Add to
basket</button></div><div class="row">"""
    + "".join(
        f'<div class="cell"><a href="/p/{n}"><img src="/{n}.jpg"><b>Thing {n}</b><span class="price">£{n}.00</span></a></div>'
        for n in (12, 13, 14)
    )
    + "</div>"
)
SOLD_OUT = """<div class="product"><h1>Vinyl Record</h1><p class="price">£24.00</p><p class="stock out-of-stock">Out of stock</p>
<button disabled>Sold out</button></div>"""
VARIANT_WORDS = """<div class="product"><h1>Linen Shirt</h1><p class="price">€59.00</p><select><option>S - sold out</option><option>M
</option></select><button>Add to cart</button></div>"""

RIGHT = [
    Case("woocommerce", "https://moebel.example.de/produkt/eichentisch", "de-DE", WOO, {
        "name": "Eichentisch", "price": "999", "list_price": "1299", "currency": "EUR", "availability": "in_stock",
        "sku": "ET-4411"}),
    Case("shopify dawn", "https://shop.example.com/products/beanie", "en", DAWN, {
        "price": "45", "list_price": "60", "currency": "CAD", "availability": "in_stock", "sku": "MB-002"}),
    Case("magento", "https://sklep.example.pl/lampka", "pl", MAGENTO, {
        "price": "149.9", "list_price": "199", "currency": "PLN", "availability": "in_stock", "sku": "LN-0091"}),
    Case("prestashop", "https://boutique.example.fr/carafe", "fr", PRESTA, {
        "price": "23.92", "list_price": "29.9", "currency": "EUR", "availability": "in_stock", "sku": "CV_100"}),
    Case("shopware", "https://werkzeug.example.de/bohr", "de-DE", SHOPWARE, {
        "price": "1079.95", "list_price": "1199", "currency": "EUR", "availability": "in_stock", "sku": "SW10178"}),
    Case("opencart", "https://magazin.example.ru/chainik", "ru", OPENCART, {
        "price": "3490", "list_price": "3990", "currency": "RUB", "availability": "in_stock", "sku": "TWK3A"}),
    Case("salesforce", "https://run.example.co.uk/trail-shoe", "en-GB", SFCC, {
        "price": "98", "currency": "GBP", "availability": "in_stock"}),
    Case("bitrix", "https://tools.example.ru/drel", "ru", BITRIX, {
        "price": "9990", "list_price": "12500", "currency": "RUB", "availability": "in_stock", "sku": "DU-13"}),
    Case("bigcommerce", "https://bags.example.com/tote", "en-AU", BIGCOMMERCE, {
        "price": "39.95", "currency": "AUD", "availability": "in_stock", "sku": "TOTE-1"}),
    Case("japan", "https://utsuwa.example.jp/p/1", "ja", JAPAN, {
        "price": "2980", "currency": "JPY", "availability": "in_stock", "sku": "AR-2041"}),
    Case("brazil", "https://loja.example.com.br/cafeteira", "pt-BR", BRAZIL, {
        "price": "149.9", "list_price": "189.9", "currency": "BRL", "availability": "in_stock", "sku": "CAF-77"}),
    Case("sweden", "https://butik.example.se/ullfilt", "sv", SWEDEN, {
        "price": "899", "list_price": "1299", "currency": "SEK", "availability": "in_stock", "sku": "55120"}),
    Case("czech net and gross", "https://naradi.example.cz/vrtacka", "cs", CZECH, {
        "price": "1999", "currency": "CZK", "availability": "in_stock", "sku": "VR-220"}),
    Case("swiss", "https://messer.example.ch/p/1", "de-CH", SWISS, {"price": "1249.5", "currency": "CHF", "sku": "40012"}),
    Case("raised cents", "https://agd.example.pl/blender", "pl", RAISED, {"price": "249.99", "currency": "PLN"}),
    Case("india", "https://shop.example.in/bottle", "en", INDIA, {"price": "1299", "list_price": "1999", "currency": "INR"}),
    Case("south africa", "https://shop.example.co.za/braai", "en", SOUTH_AFRICA, {"price": "1299", "currency": "ZAR"}),
    Case("taiwan", "https://shop.example.com.tw/p/88", "zh-TW", TAIWAN, {
        "price": "1280", "currency": "TWD", "availability": "in_stock", "sku": "TW-88"}),
    Case("korea", "https://shop.example.kr/goods/1", "ko", KOREA, {"price": "12900", "currency": "KRW"}),
    Case("hungary", "https://bolt.example.hu/kerti-szek", "hu", HUNGARY, {
        "price": "19990", "list_price": "24990", "currency": "HUF", "availability": "in_stock", "sku": "KS-9"}),
    Case("turkey", "https://dukkan.example.com.tr/caydanlik", "tr", TURKEY, {"price": "1249.9", "currency": "TRY"}),
    Case("chile", "https://tienda.example.cl/mochila", "es", CHILE, {"price": "24990", "currency": "CLP", "sku": "MOCH-1"}),
    Case("greece", "https://shop.example.gr/koupa", "el", GREECE, {
        "price": "12.5", "currency": "EUR", "availability": "in_stock", "sku": "KP-100"}),
    Case("cards that are links", "https://shop.example.co.uk/oak-stool", "en", ALL_IN_LINK, {"price": "89", "currency": "GBP"}),
    Case("cards of others", "https://shop.example.de/tisch", "de", "<div class=p><h1>Tisch</h1><span class=price>149,00 €</span>"
         f"<button>In den Warenkorb</button></div><ul>{CARDS}</ul>", {"price": "149", "currency": "EUR"}),
    Case("sold out", "https://shop.example.co.uk/vinyl", "en", SOLD_OUT, {
        "price": "24", "currency": "GBP", "availability": "out_of_stock"}),
    Case("a variant that is sold out", "https://shop.example.ie/shirt", "en", VARIANT_WORDS, {
        "price": "59", "currency": "EUR", "availability": "in_stock"}),
    Case("dollar with a Canadian language", "https://shop.example.com/p/1", "en-CA",
         "<h1>Mug</h1><span class=price>$12.00</span><button>Add to cart</button>", {"price": "12", "currency": "CAD"}),
    Case("dollar with a code in a script", "https://shop.example.com/p/1", "en",
         '<script>var c = {"currency":"NZD"}</script><h1>Mug</h1><span class=price>$12.00</span><button>Add to cart</button>',
         {"price": "12", "currency": "NZD"}),
    Case("two prices, one in the product's event", "https://shop.example.de/p/1", "de",
         "<script>dataLayer.push({event:'view_item',ecommerce:{currency:'EUR',value:17.5,items:[{item_id:'a1',price:17.5}]}})"
         "</script><h1>Tasse</h1><div><span class=price>17,50 €</span><span class=price>21,00 €</span></div>"
         "<button>In den Warenkorb</button>", {"price": "17.5", "currency": "EUR"}),
]  # fmt: skip


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_the_visible_page_is_read_as_a_reader_reads_it(case: Case) -> None:
    result = read(case)
    assert len(result.rows) == 1, result.reason
    values = result.rows[0].values
    assert {name: values.get(name) for name in case.expected} == case.expected
    assert result.rows[0].sources["price"].startswith("page: ")
    if "list_price" not in case.expected:
        assert "list_price" not in values


def buy(price: str, more: str = "", title: str = "Mug") -> str:
    return f"<h1>{title}</h1><div>{price}</div>{more}<button>Add to cart</button>"


REFUSED = {
    "a dollar of nobody's country": ("https://shop.example.com/p/1", "en", buy("<span class=price>$12.00</span>")),
    "a crown of nobody's country": ("https://shop.example.com/p/1", "en", buy("<span class=price>120 kr</span>")),
    "a yen or a yuan": ("https://shop.example.com/p/1", "en", buy("<span class=price>¥1200</span>")),
    "a range": ("https://shop.example.de/p/1", "de", buy("<p class=price>10,00 € – 20,00 €</p>")),
    "a range in two elements": (
        "https://shop.example.de/p/1", "de", buy("<p class=price><span>10,00 €</span> – <span>20,00 €</span></p>")),
    "a lower bound": ("https://shop.example.de/p/1", "de", buy("<p class=price>ab 10,00 €</p>")),
    "a lower bound in another element": (
        "https://shop.example.de/p/1", "de", buy("<p class=price><small>ab</small> <b>10,00 €</b></p>")),
    "an instalment alone": (
        "https://shop.example.de/p/1", "de", buy("<p class=price>9,99 € / Monat</p>")),
    "times an instalment": ("https://loja.example.com.br/p", "pt-BR", buy("<p class=preco>10x de <b>R$ 19,90</b></p>")),
    "a struck price alone": ("https://shop.example.de/p/1", "de", buy("<p class=price><del>19,99 €</del></p>")),
    "a recommended price alone": ("https://shop.example.de/p/1", "de", buy("<p>UVP: <b class=price>19,99 €</b></p>")),
    "a saving alone": ("https://shop.example.co.uk/p/1", "en", buy("<p>You save <b class=price>£5.00</b></p>")),
    "shipping alone": ("https://shop.example.co.uk/p/1", "en", buy("<p>Delivery: <b>£4.99</b></p>")),
    "a price per kilogram alone": ("https://shop.example.de/p/1", "de", buy("<p class=price>19,90 €/kg</p>")),
    "two prices of equal rank": (
        "https://shop.example.de/p/1", "de", buy("<span class=price>19,90 €</span> <span class=price>24,90 €</span>")),
    "a listing": ("https://shop.example.de/tische", "de", f"<h1>Tische</h1><ul>{CARDS}</ul>"),
    "a listing of one": (
        "https://shop.example.de/tische", "de", f"<h1>Tische</h1><ul>{CARDS.split('</li>', maxsplit=1)[0]}</li></ul>"),
    "a listing of equal prices": (
        "https://shop.example.de/tische", "de", "<h1>Tische</h1><ul>" + "".join(
            f'<li><a href="/p/{n}"><img src="/{n}.jpg"></a><h3><a href="/p/{n}">T{n}</a></h3><b class=price>9,90 €</b></li>'
            for n in range(4)) + "</ul>"),
    "an article about money": (
        "https://news.example.de/a/1", "de", "<article><h1>Teuer</h1><p>Die Tasse kostet 12,50 € im Laden.</p></article>"),
    "a cart total": (
        "https://shop.example.de/agb", "de", '<h1>Bedingungen</h1><div class="mini-cart"><span class=price>12,50 €</span></div>'),
    "only a recommended product": (
        "https://shop.example.de/p/1", "de", buy("Preis auf Anfrage", f'<section class="recommendations">{CARDS}</section>')),
    "an amount of zero": ("https://shop.example.de/p/1", "de", buy("<span class=price>0,00 €</span>")),
    "dead money": ("https://shop.example.hr/p/1", "hr", buy("<span class=price>270,00 kn</span>")),
    "two currencies": ("https://shop.example.com/p/1", "en", buy("<span class=price>£10.00 / €12.00</span>")),
    "a number with two readings": ("https://shop.example.com/p/1", "", buy("<span class=price>€ 1.299</span>")),
    "an unknown sign": ("https://shop.example.de/p/1", "de", buy("<span class=price>19,90 Taler</span>")),
    "a quantity price": ("https://shop.example.de/p/1", "de", buy("<span class=price>3 für 14,85 €</span>")),
    "a fraction of a split number": (
        "https://shop.example.de/p/1", "de", buy("<span class=price><b>1</b><b>299</b> €</span>")),
    "two numbers that are no cents": (
        "https://shop.example.de/p/1",
        "de",
        buy("<span class=price>€20 <b>30</b></span>"),
    ),
    "a lower bound in another cell": (
        "https://shop.example.de/p/1",
        "de",
        buy("<table><tr><td>ab</td><td class=price>10,00 €</td></tr></table>"),
    ),
    "three raised digits": ("https://shop.example.tn/p/1", "fr", buy("<span class=price>19<sup>500</sup> DT</span>")),
    "a financing rate beside nothing": (
        "https://shop.example.de/p/1", "de", buy('<div class="financing"><span class=price>29,90 €</span> mtl.</div>')),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_looks_like_a_price_is_refused(name: str) -> None:
    url, lang, body = REFUSED[name]
    result = read(Case(name, url, lang, body, {}))
    assert result.rows == (), result.rows
    assert result.failure_class is not None
    assert result.reason
    assert result.page_state in (PageState.WRONG_TEMPLATE, PageState.EXPECTED)


# Name, address, language, page, and what a reader would say: amount and currency, or that nobody can tell.
SPELLINGS: list[tuple[str, str, str, str, str | None]] = [
    (
        "bg dual",
        "https://s.example.bg/p/1",
        "bg",
        buy('<span class="price">19,99 €</span> <span class="price">39,10 лв.</span>'),
        "19.99 EUR",
    ),
    (
        "bg dual2",
        "https://s.example.bg/p/1",
        "bg",
        buy('<span class="price">39,10 лв.</span> <span class="price">19,99 €</span>'),
        "19.99 EUR",
    ),
    ("dash nl", "https://s.example.nl/p/1", "nl", buy('<span class="price">€ 12,-</span>'), "12 EUR"),
    ("dash nl2", "https://s.example.nl/p/1", "nl", buy('<span class="price">1.299,-</span>'), "1299 EUR"),
    ("dash se", "https://s.example.se/p/1", "sv", buy('<span class="price">1 599:-</span>'), "1599 SEK"),
    ("dk", "https://s.example.dk/p/1", "da", buy('<span class="price">1.299,00 kr.</span>'), "1299 DKK"),
    ("dk2", "https://s.example.dk/p/1", "da", buy('<span class="price">599,-</span>'), "599 DKK"),
    ("rs", "https://s.example.in/p/1", "en", buy('<span class="price">Rs. 1,299/-</span>'), "1299 INR"),
    ("star", "https://s.example.de/p/1", "de", buy('<span class="price">12,50 €*</span>'), "12.5 EUR"),
    ("foot", "https://s.example.de/p/1", "de", buy('<span class="price">12,50 €<sup>1</sup></span>'), "12.5 EUR"),
    (
        "woo ex inc",
        "https://s.example.co.uk/p/1",
        "en-GB",
        buy(
            '<p class="price"><span class="amount">£10.00</span> <small>ex VAT</small> (<span class="amount">£12.00</span> <small>inc VAT</small>)</p>'
        ),
        "12 GBP",
    ),
    (
        "jp zei",
        "https://s.example.jp/p/1",
        "ja",
        buy('<p class="price"><span>1,980円</span>(税抜) <span>2,178円</span>(税込)</p>'),
        "2178 JPY",
    ),
    (
        "amazonish",
        "https://s.example.com/p/1",
        "en-US",
        buy(
            '<span class="a-price"><span class="a-offscreen">$19.99</span><span aria-hidden="true"><span class="a-price-symbol">$</span><span class="a-price-whole">19<span class="a-price-decimal">.</span></span><span class="a-price-fraction">99</span></span></span>'
        ),
        "19.99 USD",
    ),
    (
        "emag",
        "https://s.example.ro/p/1",
        "ro",
        buy(
            '<p class="product-old-price"><s>1.599<sup>99</sup> Lei</s></p><p class="product-new-price">1.299<sup>99</sup> <span>Lei</span></p>'
        ),
        "1299.99 RON",
    ),
    ("car", "https://s.example.co.uk/p/1", "en", buy('<span class="price">£12,995</span>'), "12995 GBP"),
    (
        "delivery only",
        "https://s.example.co.uk/p/1",
        "en",
        "<div><h1>Mug</h1><button>Add to cart</button></div><section><h3>Delivery</h3><p>£3.99</p></section>",
        None,
    ),
    (
        "js related",
        "https://s.example.co.uk/p/1",
        "en",
        "<div id=main><div class=info><h1>Mug</h1><form><button>Add to cart</button></form></div></div><div class=rel><div onclick=x()><b>Other</b><span class=price>£9.99</span></div></div>",
        None,
    ),
    (
        "rel same",
        "https://s.example.co.uk/p/1",
        "en",
        "<div id=main><div class=info><h1>Mug</h1><form><button>Add to cart</button></form></div></div><div class=rel>"
        + "<div onclick=x()><b>Other</b><span class=price>£9.99</span></div>" * 3
        + "</div>",
        None,
    ),
    (
        "code attr",
        "https://s.example.com/p/1",
        "en",
        buy('<span class="price" data-currency="GBP">£9.99</span>'),
        "9.99 GBP",
    ),
    ("euro mid", "https://s.example.fr/p/1", "fr", buy('<span class="price">12€50</span>'), "12.5 EUR"),
    ("euro mid el", "https://s.example.fr/p/1", "fr", buy('<span class="price">12<sup>€50</sup></span>'), "12.5 EUR"),
    (
        "pl cents",
        "https://s.example.pl/p/1",
        "pl",
        buy('<div class="price"><span>249</span><span class="penny">,99 zł</span></div>'),
        "249.99 PLN",
    ),
    ("de cents", "https://s.example.de/p/1", "de", buy('<div class="price">249.<sup>99</sup></div>'), "249.99 EUR"),
    (
        "ru",
        "https://s.example.ru/p/1",
        "ru",
        buy('<div class="price">1 290 <span class="rub">руб.</span></div>'),
        "1290 RUB",
    ),
    ("ru2", "https://s.example.ru/p/1", "ru", buy('<div class="price">1290 <i class="fa-rub"></i></div>'), "1290 RUB"),
    ("ua", "https://s.example.ua/p/1", "uk", buy('<div class="price">1 290 грн</div>'), "1290 UAH"),
    ("kz", "https://s.example.kz/p/1", "ru", buy('<div class="price">12 900 тг</div>'), "12900 KZT"),
    ("il", "https://s.example.co.il/p/1", "he", buy('<div class="price">₪ 129.90</div>'), "129.9 ILS"),
    ("ae", "https://s.example.ae/p/1", "en", buy('<div class="price">AED 1,299.00</div>'), "1299 AED"),
    ("sa", "https://s.example.sa/p/1", "ar", buy('<div class="price">199 ر.س</div>'), "199 SAR"),
    ("th", "https://s.example.co.th/p/1", "th", buy('<div class="price">฿1,290</div>'), "1290 THB"),
    ("id", "https://s.example.co.id/p/1", "id", buy('<div class="price">Rp 129.000</div>'), "129000 IDR"),
    ("vn", "https://s.example.vn/p/1", "vi", buy('<div class="price">129.000 ₫</div>'), "129000 VND"),
    ("vn2", "https://s.example.vn/p/1", "vi", buy('<div class="price">1.290.000đ</div>'), "1290000 VND"),
    ("co", "https://s.example.com.co/p/1", "es-CO", buy('<div class="price">$ 129.900</div>'), "129900 COP"),
    ("mx", "https://s.example.com.mx/p/1", "es-MX", buy('<div class="price">$1,299.00</div>'), "1299 MXN"),
    ("ar", "https://s.example.com.ar/p/1", "es-AR", buy('<div class="price">$ 1.299,00</div>'), "1299 ARS"),
    ("pe", "https://s.example.pe/p/1", "es", buy('<div class="price">S/ 129.90</div>'), "129.9 PEN"),
    ("uy", "https://s.example.com.uy/p/1", "es", buy('<div class="price">$ 1.290</div>'), "1290 UYU"),
    ("us en-us", "https://s.example.com/p/1", "en-US", buy('<div class="price">$19.99</div>'), "19.99 USD"),
    ("hk", "https://s.example.hk/p/1", "zh-HK", buy('<div class="price">HK$199.00</div>'), "199 HKD"),
    ("cn", "https://s.example.cn/p/1", "zh-CN", buy('<div class="price">￥199.00</div>'), "199 CNY"),
    ("ro", "https://s.example.ro/p/1", "ro", buy('<div class="price">129,99 RON</div>'), "129.99 RON"),
    ("rs2", "https://s.example.rs/p/1", "sr", buy('<div class="price">1.299,00 RSD</div>'), "1299 RSD"),
    ("tr", "https://s.example.com.tr/p/1", "tr", buy('<div class="price">₺1.299,00</div>'), "1299 TRY"),
    ("no", "https://s.example.no/p/1", "nb", buy('<div class="price">kr 1 299,-</div>'), "1299 NOK"),
    (
        "fi",
        "https://s.example.fi/p/1",
        "fi",
        buy('<div class="price">12,50 €</div><div class="unit">(25,00 €/kg)</div>'),
        "12.5 EUR",
    ),
    (
        "unit same cls",
        "https://s.example.de/p/1",
        "de",
        buy('<div class="price">12,50 €</div><div class="price-info">1 kg = 25,00 €</div>'),
        "12.5 EUR",
    ),
    (
        "instal",
        "https://s.example.com.br/p/1",
        "pt-BR",
        buy('<div class="price">R$ 199,00</div><div class="price-installments">10x de R$ 19,90</div>'),
        "199 BRL",
    ),
    (
        "pix",
        "https://s.example.com.br/p/1",
        "pt-BR",
        buy('<div class="price">R$ 199,00</div><div class="price">R$ 189,05 no Pix</div>'),
        None,
    ),
    (
        "omnibus",
        "https://s.example.pl/p/1",
        "pl",
        buy(
            '<div class="price">99,00 zł</div><div class="price-history">Najniższa cena z 30 dni: <span class="price">89,00 zł</span></div>'
        ),
        "99 PLN",
    ),
    (
        "omnibus de",
        "https://s.example.de/p/1",
        "de",
        buy(
            '<div class="price">99,00 €</div><div>Niedrigster Preis der letzten 30 Tage: <span class="price">89,00 €</span></div>'
        ),
        "99 EUR",
    ),
    (
        "member",
        "https://s.example.de/p/1",
        "de",
        buy('<div class="price">99,00 €</div><div class="price member">89,00 € für Mitglieder</div>'),
        None,
    ),
    (
        "per month phone",
        "https://s.example.de/p/1",
        "de",
        buy('<div class="price">999,00 €</div><div class="price">oder 41,63 € mtl. in 24 Raten</div>'),
        "999 EUR",
    ),
    (
        "logo h1",
        "https://s.example.co.uk/mug",
        "en",
        '<h1 class=logo><a href="/">Pots</a></h1><div class=p><h2 class="product-title">Blue Mug</h2><span class=price>£9.00</span><button>Add to basket</button></div>',
        "9 GBP",
    ),
    (
        "shipping class",
        "https://s.example.de/p/1",
        "de",
        buy('<div class="price">12,50 €</div><p>Versand: <span class="price">4,90 €</span></p>'),
        "12.5 EUR",
    ),
    (
        "save",
        "https://s.example.co.uk/p/1",
        "en",
        buy(
            '<div class="price">£80.00</div><div class="was-price">Was £100.00</div><div class="save-price">Save £20.00</div>'
        ),
        "80 GBP",
    ),
    ("was now", "https://s.example.co.uk/p/1", "en", buy('<p class="price">Was £100.00 Now £80.00</p>'), None),
    (
        "was now el",
        "https://s.example.co.uk/p/1",
        "en",
        buy('<p class="price"><span>Was £100.00</span> <span>Now £80.00</span></p>'),
        "80 GBP",
    ),
    ("free", "https://s.example.co.uk/p/1", "en", buy('<p class="price">Free</p>'), None),
    (
        "table specs",
        "https://s.example.co.uk/p/1",
        "en",
        buy("<table><tr><th>Price</th><td>£12.00</td></tr><tr><th>Shipping</th><td>£3.00</td></tr></table>"),
        "12 GBP",
    ),
    (
        "dl",
        "https://s.example.co.uk/p/1",
        "en",
        buy("<dl><dt>RRP</dt><dd>£15.00</dd><dt>Our price</dt><dd>£12.00</dd></dl>"),
        "12 GBP",
    ),
    (
        "dup mobile",
        "https://s.example.co.uk/p/1",
        "en",
        "<div class=mob><h1>Mug</h1></div><div class=desk><h1>Mug</h1><span class=price>£12.00</span><button>Add to cart</button></div>",
        "12 GBP",
    ),
    (
        "listing text links",
        "https://s.example.co.uk/mugs",
        "en",
        "<h1>Mugs</h1><div class=grid>"
        + "".join(
            f"<div class=cell><a href=/p/{i}>Mug {i}</a><span class=price>£12.00</span><button>Add to cart</button></div>"
            for i in range(3)
        )
        + "</div>",
        None,
    ),
]


@pytest.mark.parametrize(("name", "url", "lang", "body", "expected"), SPELLINGS, ids=[case[0] for case in SPELLINGS])
def test_prices_are_read_in_the_spellings_of_their_countries(
    name: str, url: str, lang: str, body: str, expected: str | None
) -> None:
    result = read(Case(name, url, lang, body, {}))
    found = [f"{row.values['price']} {row.values['currency']}" for row in result.rows]
    assert found == ([expected] if expected else [])


def test_a_page_that_says_not_found_gives_no_price() -> None:
    body = "<h1>Page not found</h1><div><span class=price>£12.00</span><button>Add to cart</button></div>"
    result = read(Case("soft 404", "https://shop.example.co.uk/p/1", "en", body, {}))
    assert (result.rows, result.page_state) == ((), PageState.SOFT_404)


def test_the_home_page_and_a_page_of_another_kind_are_no_product() -> None:
    body = buy("<span class=price>£12.00</span>")
    assert read(Case("product", "https://shop.example.co.uk/p/1", "en", body, {})).rows
    assert not read(Case("home", "https://shop.example.co.uk/", "en", body, {})).rows
    listing = '<script type="application/ld+json">{"@type": "CollectionPage"}</script>' + body
    assert not read(Case("listing", "https://shop.example.co.uk/p/1", "en", listing, {})).rows


# More platforms, and what a reader would say of them: amount, currency, stock.
PLATFORMS: list[tuple[str, str, str, str, str | None]] = [
    (
        "magento1",
        "https://s.example.de/p/1",
        "de",
        '<div class="product-view"><div class="product-shop"><div class="product-name"><h1>Lampe</h1></div><div class="price-box"><p class="old-price"><span class="price-label">Regulärer Preis:</span><span class="price" id="old-price-9">129,00 €</span></p><p class="special-price"><span class="price-label">Sonderpreis</span><span class="price" id="product-price-9">99,00 €</span></p></div><p class="availability in-stock">Verfügbarkeit: <span>Auf Lager</span></p><button class="button btn-cart">In den Warenkorb</button></div></div><div class="block-related"><ol><li class="item"><a class="product-image" href="/b"><img src=b></a><div class="price-box"><span class="price">9,00 €</span></div></li></ol></div>',
        "99 EUR in_stock",
    ),
    (
        "oscommerce",
        "https://s.example.it/p/1",
        "it",
        '<form name="cart_quantity"><table><tr><td class="pageHeading"><h1>Vaso</h1></td><td class="pageHeading" align="right"><s>30,00€</s> <span class="productSpecialPrice">25,00€</span></td></tr></table><input type="image" alt="Aggiungi al carrello" src="b.gif"></form>',
        "25 EUR in_stock",
    ),
    (
        "tilda",
        "https://s.example.ru/p/1",
        "ru",
        '<div class="t-store__product-snippet"><h1 class="js-store-prod-name t-store__prod-popup__name">Лампа</h1><div class="t-store__prod-popup__price-wrapper"><div class="t-store__prod-popup__price"><div class="js-product-price js-store-prod-price-val t-store__prod-popup__price-value">4 500</div><div class="t-store__prod-popup__price-currency">р.</div></div></div><a class="t-store__prod-popup__btn" href="#order">Добавить в корзину</a></div>',
        "4500 RUB in_stock",
    ),
    (
        "insales",
        "https://s.example.ru/p/1",
        "ru",
        '<div class="product"><h1 class="product__title">Стул</h1><div class="product__price"><span class="product__price-old">5 990 руб</span><span class="product__price-cur">4 990 руб</span></div><div class="product__available">В наличии</div><button class="btn">В корзину</button></div>',
        "4990 RUB in_stock",
    ),
    (
        "shoptet",
        "https://s.example.cz/p/1",
        "cs",
        '<div class="p-detail-inner"><h1>Hrnek</h1><div class="p-final-price-wrapper"><span class="price-standard"><span>399 Kč</span></span><span class="price-save">–25 %</span><strong class="price-final"><span class="price-final-holder">299 Kč</span></strong><span class="price-additional">247 Kč bez DPH</span></div><span class="availability-label">Skladem</span><button class="add-to-cart-button">Do košíku</button></div>',
        "299 CZK in_stock",
    ),
    (
        "unas",
        "https://s.example.hu/p/1",
        "hu",
        '<div class="artdet"><h1 class="artdet__name">Lámpa</h1><div class="artdet__price"><div class="artdet__price-base product-price--base"><span class="product-price__regular"><span id="price_netto_brutto_x">12 990</span> Ft</span></div></div><div class="artdet__stock">Raktáron</div><button class="artdet__cart-btn">Kosárba</button></div>',
        "12990 HUF in_stock",
    ),
    (
        "nuvem",
        "https://s.example.com.br/p/1",
        "pt-BR",
        '<div id="single-product"><h1 class="js-product-name">Camiseta</h1><div class="price-container"><span class="js-price-display" id="price_display" data-product-price="8990">R$89,90</span><span class="js-compare-price-display price-compare" id="compare_price_display">R$119,90</span></div><div class="js-max-installments"><span class="js-installment-amount">3</span> x <span class="js-installment-price">R$29,97</span> sem juros</div><input type="submit" class="js-addtocart btn" value="Comprar"></div>',
        "89.9 BRL in_stock",
    ),
    (
        "vtex",
        "https://s.example.com.br/p/1",
        "pt-BR",
        '<div class="vtex-product"><h1><span class="vtex-store-components-3-x-productBrand">Panela</span></h1><span class="vtex-product-price-1-x-listPrice"><span class="vtex-product-price-1-x-listPriceValue"><span class="currencyContainer"><span>R$</span><span>&nbsp;</span><span>199</span><span>,</span><span>90</span></span></span></span><span class="vtex-product-price-1-x-sellingPrice"><span class="vtex-product-price-1-x-sellingPriceValue"><span class="currencyContainer"><span>R$</span><span>&nbsp;</span><span>149</span><span>,</span><span>90</span></span></span></span><button class="vtex-button">Comprar</button></div>',
        "149.9 BRL in_stock",
    ),
    (
        "squarespace",
        "https://s.example.com/p/1",
        "en-US",
        '<section class="ProductItem-details"><h1 class="ProductItem-details-title">Print</h1><div class="ProductItem-product-price"><div class="product-price"><span class="sqs-money-native">45.00</span></div></div><script>Static.SQUARESPACE_CONTEXT={"currency":"USD"}</script><div class="sqs-add-to-cart-button" role="button"><div>Add To Cart</div></div></section>',
        "45 USD in_stock",
    ),
    (
        "wix",
        "https://s.example.com/p/1",
        "en",
        '<div data-hook="product-page"><h1 data-hook="product-title">Soap</h1><div data-hook="product-prices-wrapper"><span data-hook="formatted-primary-price" data-wix-price="£6.50">£6.50</span></div><button data-hook="add-to-cart"><span>Add to Cart</span></button></div>',
        "6.5 GBP in_stock",
    ),
    (
        "jtl",
        "https://s.example.de/p/1",
        "de",
        '<div id="product-offer"><h1 class="product-title">Tasse</h1><div class="price_wrapper"><strong class="price text-nowrap"><span>12,90 €</span></strong> <div class="base-price text-muted">12,90 € pro 1 l</div><div class="text-stroke">UVP: 15,90 €</div></div><div class="delivery-status"><span class="status-2">sofort verfügbar</span></div><button name="inWarenkorb">In den Warenkorb</button></div>',
        "12.9 EUR in_stock",
    ),
    (
        "gambio-table",
        "https://s.example.de/p/1",
        "de",
        '<div class="product-info"><h1>Tasse</h1><div class="price-container"><div class="current-price-container">Nur 12,90 EUR<p class="tax-shipping-text">inkl. 19% MwSt.</p></div></div><input type="submit" class="btn-add-to-cart" value="In den Warenkorb"></div>',
        "12.9 EUR in_stock",
    ),
    (
        "ccv",
        "https://s.example.nl/p/1",
        "nl",
        '<div class="product-page"><h1>Kop</h1><span class="price" style="x"><s class="from-price">€ 24,95</s> <span class="to-price">€ 19,95</span></span><span class="stock">Op voorraad</span><button>Toevoegen aan winkelwagen</button></div>',
        "19.95 EUR in_stock",
    ),
    (
        "idosell",
        "https://s.example.pl/p/1",
        "pl",
        '<div id="projector_form"><h1 class="product_name__name">Kubek</h1><div class="projector_prices"><strong class="projector_prices__price" id="projector_price_value">49,00 zł</strong><span class="projector_prices__unit">/ szt.</span><div class="projector_prices__lowest">Najniższa cena w okresie 30 dni: 45,00 zł</div></div><button id="projector_button_basket" class="projector_buy__button">Dodaj do koszyka</button></div>',
        "49 PLN in_stock",
    ),
    (
        "cafe24",
        "https://s.example.kr/p/1",
        "ko",
        '<div class="infoArea"><h2 class="product_name">머그</h2><table><tr><th>판매가</th><td><strong id="span_product_price_text">12,000원</strong></td></tr><tr><th>배송비</th><td>3,000원</td></tr></table><a href="#none" class="btnSubmit">구매하기</a></div>',
        "12000 KRW in_stock",
    ),
    (
        "rakuten",
        "https://s.example.jp/p/1",
        "ja",
        '<div><h1>皿</h1><span class="price2">3,300円</span> <span class="tax_postage">税込</span><span>送料別</span><button>かごに追加</button></div>',
        "3300 JPY in_stock",
    ),
    (
        "ecwid soldout",
        "https://s.example.com/p/1",
        "en-GB",
        '<div class="ecwid-productBrowser-details"><h1 class="product-details__product-title">Jam</h1><div class="details-product-price__value">£4.20</div><div class="details-product-purchase__place"><span>Sold out</span></div></div>',
        "4.2 GBP out_of_stock",
    ),
    (
        "amount sale parent",
        "https://s.example.fr/p/1",
        "fr",
        '<div class="fiche"><h1>Lampe</h1><div class="prix"><span class="prix-barre">59,90€</span><span class="prix-promo">49,90€</span></div><p>En stock</p><button>Ajouter au panier</button></div>',
        "49.9 EUR in_stock",
    ),
    (
        "es",
        "https://s.example.es/p/1",
        "es",
        '<div class="ficha"><h1>Silla</h1><p class="precio">PVP: <span>59,90 €</span></p><p>Disponible</p><button>Añadir al carrito</button></div>',
        None,
    ),
    (
        "eco tax",
        "https://s.example.fr/p/1",
        "fr",
        '<div class="fiche"><h1>TV</h1><div class="price">499,00 €</div><div class="ecotax">dont 12,00 € d\'éco-participation</div><button>Ajouter au panier</button></div>',
        "499 EUR in_stock",
    ),
    (
        "ru bonus",
        "https://s.example.ru/p/1",
        "ru",
        '<div><h1>Чайник</h1><div class="price">2 490 ₽</div><div class="bonus">+124 бонуса</div><button>Купить</button></div>',
        "2490 RUB in_stock",
    ),
    (
        "hidden old",
        "https://s.example.de/p/1",
        "de",
        '<div><h1>Tasse</h1><span class="price" style="display:none">99,00 €</span><span class="price">12,90 €</span><button>In den Warenkorb</button></div>',
        "12.9 EUR in_stock",
    ),
    (
        "next data",
        "https://s.example.de/p/1",
        "de",
        '<div><h1>Tasse</h1><button>In den Warenkorb</button></div><script id="__NEXT_DATA__" type="application/json">{"props":{"product":{"name":"Tasse","price":12.9,"currency":"EUR"}}}</script>',
        None,
    ),
]


@pytest.mark.parametrize(("name", "url", "lang", "body", "expected"), PLATFORMS, ids=[case[0] for case in PLATFORMS])
def test_more_platforms_are_read(name: str, url: str, lang: str, body: str, expected: str | None) -> None:
    result = read(Case(name, url, lang, body, {}))
    found = [" ".join(row.values[part] for part in ("price", "currency", "availability")) for row in result.rows]
    assert found == ([expected] if expected else [])
