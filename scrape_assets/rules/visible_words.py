"""What shops of many countries write beside a price: names of classes, buttons, words of stock, labels of codes.

A list of words has holes. What it misses costs a value; no value is ever made from a word alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

Role = Literal["old", "weak old", "strong", "net", "other", "elsewhere", "price", ""]
MAX_NAME = 300

_ELSEWHERE = re.compile(
    r"related|recommend|up-?sell|cross-?sell|similar|also-?(?:bought|viewed|like)|recently|last-?viewed"
    r"|viewed-products"
    r"|carousel|swiper-(?:slide|wrapper)|slick-(?:slide|track)|owl-|splide|(?:mini|side|header|top|off-?canvas"
    r"|mobile)-?(?:cart|basket|bag)"
    r"|(?:cart|basket|bag)-?(?:drawer|popup|modal|summary|totals?|preview|widget|sidebar|content|subtotal|count"
    r"|header|icon|link|mini|dropdown|block|box)"
    r"|compar(?:e|ison)-(?:list|bar|table)|wish-?list|newsletter|cookie|modal|popup|lightbox|accessor|zubehoer"
    r"|add-?ons?(?:-|$)|bundle"
    r"|frequently|bought-?together|combo(?!box)|insurance|warrant|garantie|protection-plan|review|comments?(?:-|$)"
    r"|testimonial|faq"
    r"|filter|facet|layered-nav|product-?(?:list|grid|items|tiles|cards?)(?:-|$)|products-(?:grid|list)|(?:^"
    r"|-)products(?:-|$)|grid-item"
    r"|search-results?|advert|sponsor|mega-?menu|breadcrumb|trade-?in|quick-?view|tooltip|you-may|alternativ"
    r"|autocomplete"
)
_OLD = re.compile(
    r"(?:^|-)(?:old|was|before|previous|prev|rrp|msrp|uvp|strike|striked|strikethrough|struck|through|crossed"
    r"|cross|compare|compareat|barre|barred|antes|anterior"
    r"|ancien|statt|alter|stary|stara|puvodni|tachado|scratch|priceold|oldprice|wasprice|listprice"
    r"|lineprice)(?:-|$)|old-?price|price-?old|(?:price|preis)-?was"
    r"|line-?through|compare-?at|list-?price|market-?price|crossed|recommended-retail"
    r"|price-?before|regular-?price-?old"
    r"|original-?price|price-?original|price-?original|precio-?(?:antes|anterior|tachado)"
)
_WEAK_OLD = re.compile(r"(?:^|-)(?:regular|original|list|retail|full|base|standard|normal|catalog|msrp)(?:-|$)")
_STRONG = re.compile(
    r"(?:^|-)(?:special|sale|final|current|now|promo|promotion|our|actual|offer|new|aktuell|discounted|selling"
    r"|pricenew|newprice"
    r"|today|akce|main)(?:-|$)|price-?new|final-?price|special-?price|sale-?price|current-?price"
)
_NET = re.compile(
    r"excl(?:uding|usive)?-?(?:tax|vat)|without-?(?:tax|vat)|(?:^|-)(?:ex-?(?:tax|vat)|no-?vat|net|netto|nett"
    r"|net-price|ht|bez-?dph|zonder-?btw)(?:-|$)"
    r"|price-?(?:ex|net|ht)(?:-|$)"
)
_OTHER = re.compile(
    r"shipping|delivery|versand|livraison|envio|frete|spedizion|postage|install?ment|parcel(?:a|o)|financ"
    r"|leasing|klarna|afterpay|clearpay"
    r"|affirm|sezzle|zip-?pay|monthly|per-?month|mensual|cuota|(?:^|-)sav(?:e|ed|ing|ings)(?:-|$)"
    r"|discount-?(?:amount|value|percent|label|badge)"
    r"|(?:^|-)(?:rabatt|economy|deposit|pfand|pledge|points?|loyalty|rewards?|cashback|bonus|gift|voucher|coupon"
    r"|omnibus|lowest|history)(?:-|$)"
    r"|unit-?price|price-?(?:per-?)?unit(?:-|$)|base-?price|grundpreis|price-?per|per-?(?:unit|kg|liter|litre"
    r"|100)|free-?shipping|threshold|(?:^|-)rating"
    r"|tier-?price|price-?tier|bulk|quantity-?(?:price|discount|break)|volume|(?:^|-)pum(?:-|$)|per-?measure"
    r"|countdown|savings|price-?range"
)
_PRICE = re.compile(
    r"price|preis|prix|precio|prezzo|preco|(?:^|-)(?:prijs|cena|cenu|pris|hinta|ar|pret|fiyat|tsena|kaina|cijena"
    r"|amount|pvp|money|prc)(?:-|$)|woocommerce-price"
)
_SPLIT = re.compile(r"[^a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_OF_A_NEIGHBOUR = ("with-", "has-", "without-", "no-", "not-", "is-not-", "show-", "hide-")
"""`with-list-price` says what stands beside, not what this is."""


@lru_cache(maxsize=8192)
def roles(name: str) -> frozenset[Role]:
    """What an element's class and id say about the price inside it."""
    found: set[Role] = set()
    for token in name[:MAX_NAME].split():
        tokens = _SPLIT.sub("-", _CAMEL.sub("-", token).lower()).strip("-")
        if tokens.startswith(_OF_A_NEIGHBOUR):
            continue
        of_token = {role for role, pattern in _ROLES if pattern.search(tokens)}
        # The block before "__" names what this is a part of, which the block's own element says for itself.
        element = _SPLIT.sub("-", token.rsplit("__", 1)[-1].lower()).strip("-") if "__" in token else tokens
        if "price" not in of_token and _ELSEWHERE.search(element):
            of_token.add("elsewhere")
        found |= of_token
    return frozenset(found)


_ROLES: tuple[tuple[Role, re.Pattern[str]], ...] = (
    ("old", _OLD), ("weak old", _WEAK_OLD), ("strong", _STRONG), ("net", _NET),
    ("other", _OTHER), ("price", _PRICE),
)  # fmt: skip

BUY_NAME = re.compile(
    r"add-?_?to-?_?(?:cart|basket|bag|trolley)|addtocart|addtobasket|btn-?_?(?:cart|buy)|buy-?_?(?:now|btn"
    r"|button|it)"
    r"|product-form__(?:submit|cart)|tocart|to-?_?basket|in-den-warenkorb|add_cart|addcart|cart-add|js-buy"
    r"|button-cart",
    re.IGNORECASE,
)
BUY_WORDS = re.compile(
    r"^\W*(?:add (?:item )?to (?:my |your |shopping )?(?:cart|basket|bag|trolley)|add to order"
    r"|buy(?: it)?(?: now)?|order(?: now)?|purchase|pre-?order(?: now)?"
    r"|(?:jetzt )?in den (?:waren|einkaufs)?(?:korb|wagen)(?: legen)?|zum warenkorb hinzufügen|jetzt (?:kaufen"
    r"|bestellen|vorbestellen)|kaufen|bestellen|vorbestellen"
    r"|ajouter (?:au|à mon|à la) (?:panier|commande)|acheter(?: maintenant)?|commander|précommander"
    r"|(?:añadir|agregar|agrega|añade|meter)(?: a(?:l| la)? (?:carrito|carro|cesta|bolsa|compra))?"
    r"|comprar(?: ahora| agora|-)?|compra(?: ora)?|cómpralo ya"
    r"|(?:adicionar|adiciona|colocar)(?: ao| no| à)? (?:carrinho|cesto|sacola)|eu quero"
    r"|aggiungi al (?:carrello|cestino)|acquista(?: ora| subito)?|ordina|(?:toevoegen aan|in"
    r"|plaats in) (?:mijn )?(?:winkelwagen|winkelmand(?:je)?|winkelmandje|winkelwagentje)"
    r"|in winkelwagen|(?:nu )?bestel(?:len)?|(?:dodaj |wrzuć )?do koszyka|kup(?: teraz)?|zamów"
    r"|(?:přidat |vložit |dát )?do košíku|koupit|(?:pridať |vložiť |dať )?do košíka|kúpiť|kosárba(?: teszem"
    r"| rakom| vele)?|(?:megveszem|megrendelem|vásárlás)"
    r"|adaug[aă] (?:în|in) co[sș]|cump[aă]r[aă](?: acum)?|comand[aă]|(?:dodaj )?u košaricu|(?:dodaj )?v košarico"
    r"|kupi(?:te)?(?: odmah)?|(?:dodaj )?u korpu|naruči"
    r"|купи(?:ть)?(?: сейчас)?|(?:добави |добавяне )?в (?:количката|кошницата)|(?:добавить |положить )?в корзину"
    r"|заказать|купити|(?:додати )?(?:в|до|у) кошика?"
    r"|(?:προσθήκη )?στο καλάθι|αγορά|αγόρασε(?: τώρα)?|sepete (?:ekle|at)|(?:hemen )?satın al|hemen al"
    r"|köp(?: nu)?|lägg i (?:varukorg(?:en)?|kundvagn(?:en)?|kassen)|kjøp(?: nå)?|legg i handle(?:kurv"
    r"|vogn)(?:en)?|læg i (?:kurv(?:en)?|indkøbskurv(?:en)?)|køb(?: nu)?"
    r"|lisää (?:ostos)?koriin|osta(?: nüüd| heti)?|ostoskoriin|lisa (?:ostu)?korvi|(?:ielikt|pievienot"
    r"|likt) groz(?:ā|am)|pirkt|(?:į|dėti į) krepšelį|pirkti"
    r"|カートに(?:入れる|追加)(?:する)?|(?:買い物)?かごに(?:入れる|追加)|今すぐ(?:購入|買う)|購入(?:する"
    r"|手続きへ)?|注文する"
    r"|加入?(?:购物车|購物車|購物袋|购物袋)|放入購物車|(?:立即|马上|馬上|直接)(?:购买|購買|結帳)"
    r"|장바구니(?: ?담기)?|(?:바로 ?)?구매(?:하기)?"
    r"|หยิบใส่(?:ตะกร้า|รถเข็น)|เพิ่มลงตะกร้า|ซื้อ(?:เลย|ทันที|สินค้า)?|thêm vào giỏ(?: hàng)?|mua(?: ngay"
    r"| hàng)?|(?:tambah(?:kan)? ke|masukkan) keranjang|beli(?: sekarang)?"
    r"|أضف (?:إلى|الى) (?:السلة|عربة التسوق)|إضافة (?:إلى|الى) (?:السلة|عربة التسوق)|اشتر[يِ]? الآن|הוס(?:ף"
    r"|פה) ל(?:סל|עגלה)|קנ(?:ה|ייה)(?: עכשיו)?|افزودن به سبد(?: خرید)?)\W*$",
    re.IGNORECASE,
)
OF_A_VARIANT = re.compile(r"size|swatch|variant|variation|option|attribute|configurable|colou?r", re.IGNORECASE)
PRE_ORDER = re.compile(
    r"pre-?order|vorbestell|précommand|preventa|reservar|予約|предзаказ|před?objedn|przedsprzeda", re.IGNORECASE
)

SOLD_OUT = re.compile(
    r"out of stock|sold ?out|(?:currently|temporarily) (?:unavailable|not available)|(?:product"
    r"|item) (?:is )?(?:unavailable|not available)|^unavailable$"
    r"|no longer available|not in stock|(?:notify|email|e-mail) me when|ausverkauft|nicht (?:mehr )?(?:lieferbar"
    r"|verfügbar|auf lager|vorrätig)|vergriffen"
    r"|rupture(?: de stock| temporaire)?$|en rupture|épuisé|indisponible|plus disponible|agotad[oa]|sin (?:stock"
    r"|existencias)|no disponible|fuera de stock"
    r"|esgotad[oa]|indispon[ií]vel|(?:sem|fora de) (?:estoque|stock)|avise-me|esaurit[oa]"
    r"|non (?:più )?disponibile|uitverkocht|niet (?:meer )?(?:op voorraad|leverbaar|beschikbaar)"
    r"|brak (?:towaru|w magazynie|na stanie)|niedostępn|wyprzedan|powiadom (?:mnie )?o dostępności|vyprodán"
    r"|není skladem|nedostupn|vypredan|nie je (?:na sklade|skladom|dostupn)"
    r"|nie je možné (?:produkt )?kúpiť|nincs (?:raktáron|készleten)|elfogyott|nem (?:rendelhető|elérhető"
    r"|kapható)|stoc epuizat|indisponibil|nu este (?:in|în) stoc|f[aă]r[aă] stoc"
    r"|rasprodan|nema na (?:zalihi|stanju|skladištu|lageru)|nije dostup|ni na zalogi|razprodan|няма наличност"
    r"|изчерпан|не е налич|неналич"
    r"|нет в наличии|распродан|товар закончился|нет на складе|снят с производства|немає в наявності|закінчився"
    r"|εξαντλ|μη διαθέσιμο|χωρίς απόθεμα"
    r"|tükendi|stokta (?:yok|bulunmamaktadır)|temin edilemiyor|slutså?ld|slut i lager|ej i lager|finns ej i"
    r"|tillfälligt slut|utsolgt|udsolgt|ikke på lager"
    r"|loppuunmyyty|ei varastossa|loppu varastosta|läbi müüdud|laost otsas|išparduot|nėra (?:sandėlyje|prekės)"
    r"|izpārdots|nav (?:pieejams|noliktavā)"
    r"|在庫切れ|売り切れ|品切れ|完売|在庫なし|入荷待ち|販売終了|缺货|售罄|已售完|无货|補貨中|售完|缺貨|完售"
    r"|품절|สินค้าหมด|hết hàng|stok (?:habis|kosong)"
    r"|غير متوفر|نفذت? (?:الكمية|من المخزون)|אזל|לא במלאי|ناموجود",
    re.IGNORECASE,
)
IN_STOCK = re.compile(
    r"^\W*(?:(?:\d+ |only \d+ (?:left )?)?in stock|available(?: now| immediately)?|in stock\W.{0,40}"
    r"|ready to ship|(?:sofort |ab lager )?(?:auf lager|lieferbar|verfügbar|vorrätig).{0,40}"
    r"|en stock.{0,30}|disponible(?: de suite| inmediatamente| en stock)?|em (?:estoque|stock).{0,20}"
    r"|dispon[ií]vel(?: em stock)?|disponibile(?: subito)?|disponibilità immediata"
    r"|op voorraad.{0,40}|(?:direct )?leverbaar.{0,20}|(?:na|w) (?:skladzie|magazynie|stanie).{0,20}"
    r"|dostępn[yae].{0,20}|(?:ihned )?sklad(?:em|om).{0,30}|na sklad[ěe].{0,20}|raktáron.{0,20}|készleten"
    r"|(?:în|in) stoc.{0,20}|na (?:zalihi|skladištu|lageru|stanju|zalogi).{0,20}|dostupno(?: odmah)?|в наличност"
    r"|налич[ен]{1,3}о?|(?:есть |товар )?в наличии.{0,30}|на складе.{0,20}|(?:є )?в наявності.{0,20}"
    r"|διαθέσιμο.{0,20}|άμεσα διαθέσιμο|σε απόθεμα|stokta(?: var)?|(?:finns )?i lager.{0,20}|på lager.{0,30}"
    r"|varastossa.{0,20}|laos(?: olemas)?|(?:yra )?sandėlyje|ir (?:noliktavā|pieejams)"
    r"|在庫(?:あり|有り|有|○|◯)|有货|现货|有貨|現貨|재고 ?있음|متوفر(?: في المخزون)?|במלאי|còn hàng|tersedia"
    r"|มีสินค้า|موجود)\W*$",
    re.IGNORECASE,
)

_SKU = (
    r"sku|art(?:ikel)?[-. ]{0,2}(?:nr|nummer|no|number)|art\.?|artikelcode|artnr|bestell-?(?:nr|nummer)"
    r"|produktn(?:ummer|r)|item ?(?:no|number|#|code|nr)|product (?:code|no|number|id|sku)"
    r"|(?:r[ée]f(?:[ée]rence|erencia|erência)?)(?: (?:produit|fabricante|interne|du produit|do produto"
    r"|article))?|cód(?:igo)?(?: (?:do |de |del )?(?:produto|producto|artículo))?|código|codice(?: (?:articolo"
    r"|prodotto))?|cod\.?(?: (?:articolo|prodotto|produs))?"
    r"|kod(?: (?:produktu|towaru|katalogowy))?|indeks|symbol|nr (?:katalogowy|artykułu)|numer katalogowy"
    r"|kód(?: (?:produktu|zboží|tovaru|výrobku))?|katalogové č(?:íslo|\.)|kat\. ?č(?:íslo|\.)?|obj(?:ednací"
    r"|\.) č(?:íslo|\.)"
    r"|cikkszám|termékkód|cod produs|šifra(?: (?:artikla|proizvoda|izdelka))?|код(?: (?:товара|товару"
    r"|на продукта?|продукта))?|артикул|арт|κωδικός(?: προϊόντος)?|ürün kodu|stok kodu"
    r"|varen(?:r|ummer)|tuote(?:numero|koodi)|tootekood|prekės kodas|preces kods|商品(?:番号|コード)|品番"
    r"|货号|商品编号|貨號"
    r"|商品(?:編號|貨號)|상품(?:코드|번호)|post id|listing id|ad id|รหัสสินค้า|mã sản phẩm|mã sp|מק\"?ט"
)
_GTIN = (
    r"ean(?:[- ]?(?:13|code|kód|kod))?|gtin(?:[- ]?1[234])?|isbn(?:[- ]?13)?|upc|jan(?:コード)?|barcode"
    r"|штрих-?код|vonalkód|codice ean|kod ean|čiarový kód|código de barras"
)
_BRAND = (
    r"brand|marke|hersteller|marque|marca|fabricante|merk|značka|výrobce|výrobca|marka|producent|märit?e?"
    r"|varumärke|mærke|merke|merkki|brend|бренд|производитель|марка|виробник|μάρκα|κατασκευαστής"
    r"|márka|gyártó|producător|ブランド|メーカー|品牌|브랜드|manufacturer|proizvođač|ražotājs|gamintojas|tootja"
)
LABELS: dict[str, re.Pattern[str]] = {
    name: re.compile(
        rf"^\W*(?:{words})\.?\s{{0,3}}(?:[:：#№]\s{{0,3}}(.{{0,60}})|(?:n[.°º]|nr\.?|№)?\s{{0,3}}"
        + (r"|\s([\w./-]*\d[\w./-]*)" if name != "brand" else "")
        + ")$",
        re.IGNORECASE,
    )
    for name, words in (("gtin", _GTIN), ("sku", _SKU), ("brand", _BRAND))
}
CODE = re.compile(r"^(?=[^\s]*\d)[^\W_](?:[\w./+-]{0,38}[\w])?$")
"""What an article number looks like: a word with a digit in it."""

NET_WORDS = re.compile(
    r"(?<!\w)(?:ex(?:cl?(?:uding|usive|\.)?)?\.? ?(?:of )?(?:tax|vat|gst|btw|mwst|iva|moms|dph)|(?:ohne|zzgl\.?"
    r"|exkl\.?) (?:mwst|ust)|hors taxes?|h\.?t\.?|sin iva|\+ ?iva|iva esclusa|i\.?v\.?a\.? escl|s/ ?iva"
    r"|bez (?:dph|vat|pdv-?a)|nett[oo]?|netto"
    r"|без ндс|fără tva|exkl\.? moms|eks\.? (?:moms|mva)|alv ?0|\+ ?áfa|nettó|税抜|税別|\+ ?kdv|kdv hariç|未税"
    r"|χωρίς φπα)(?!\w)",
    re.IGNORECASE,
)
UNIT_WORDS = re.compile(
    r"^[\s|()]*(?:/|per|pro|je|par|por|al|za|på|le|la|el|the|=)\s{0,2}\|?\s{0,2}(?:\d{1,4}\s{0,2})?(?:kg"
    r"|kilo(?:gramm)?|g|gr|mg|l|lt|ltr|lit(?:er|re|ro)|ml|cl|dl|m|m2|m²|m³|mb|lfm|qm|cm|ft|sq\.? ?ft|lb|oz|yd|кг"
    r"|г|л|мл|м|м²)(?![^\W\d_])"
    r"|^[\s|]*(?:/|per)\s{0,2}100",
    re.IGNORECASE,
)
UNIT_LABEL = re.compile(
    r"grundpreis|unit price|preço por|precio por (?:kg|l|unidad)|prix (?:au|à l)|\d\s{0,2}(?:kg|g|l|ml|st|m|m2"
    r"|m²|л|кг)\s{0,2}[=:]\s{0,2}\W{0,3}$|jämförpris|cena (?:za )?(?:jednostkowa|kg|l|1)|jedn\. cena"
    r"|vertailuhinta|egységár|prezzo al",
    re.IGNORECASE,
)
TIMES = re.compile(
    r"\d\s{0,2}(?:x|×|х|rat[yą]?|rate|cuotas?|mensualidades|parcelas?|vezes|fois|pagos|taksit"
    r"|részlet)(?:\s{0,2}(?:de|da|po|à|of|por|di|sin interés))?[\s|:]{0,3}\W{0,3}$",
    re.IGNORECASE,
)
BESIDE_LABEL = re.compile(
    r"(?<!\w)(?:free (?:shipping|delivery)|shipping|delivery|versand(?:kosten)?|livraison|envío|env[ií]o gratis"
    r"|frete|spedizione|verzend(?:kosten|ing)|frakt|dostawa|doprava|доставка|save|you save|saving|sparen"
    r"|ersparnis|économi\w*|ahorr\w*|risparmi\w*"
    r"|besparing|oszczęd\w*|ušetř\w*|rabat|sconto|descuento|desconto|deposit|pfand|lowest price|niedrigster"
    r"|najniższa cena.{0,30}"
    r"|prix le plus bas|monthly|monthly payment|rata|per month|installments?"
    r"|points?|cashback|bonus|gift card|trade-?in|over|orders over|ab einem|minimum|mind\.?|economiz\w*"
    r"|ekonomi\w*|скидка|экономия|выгода)\W{0,6}$|^\W*(?:kdv|vat|mwst|tax|iva|dph|moms|btw|tva)\W{0,6}$",
    re.IGNORECASE,
)
BOUND_LABEL = re.compile(
    r"(?<!\w)(?:from|ab|starting at|as low as|desde|a partir de|à partir de|dès|od|vanaf|från|fra|от|up to"
    r"|bis zu)\W{0,6}$",
    re.IGNORECASE,
)
OLD_LABEL = re.compile(
    r"(?<!\w)(?:was|rrp|msrp|srp|uvp|list(?: price)?|retail(?: price)?|regular(?: price)?|reg\.?|old price"
    r"|original(?: price)?|before|instead of|statt|anstatt|unverb\.? preisempf\w*|bisher(?:iger preis)?|avant"
    r"|au lieu de|prix (?:conseillé|barré|public|de base)|antes|precio (?:anterior|original|normal|regular"
    r"|de lista|habitual)"
    r"|pvpr?|de|prezzo (?:consigliato|di listino|originale)|anziché|invece di|adviesprijs|van|vanprijs|ord(?:\."
    r"|inarie)?(?: ?pris)?|tidigare(?: pris)?|rek\.? pris|før(?:pris)?|normalpris|vejl\.? ?(?:pris|udsalgspris)?"
    r"|veil\.?|ennen|ovh|norm\.?|cena (?:katalogowa|regularna|poprzednia|sugerowana)|zamiast|namísto"
    r"|původní cena|běžná cena|doporučená cena|dmoc|moc|pôvodná cena|bežná cena|zamiesto"
    r"|eredeti ár|régi ár|prp|preț (?:vechi|recomandat)|stara cijena|stara cena|redovna cijena|mpc|редовна цена"
    r"|стара цена|старая цена|розничная цена|αρχική τιμή|από|eski fiyat|liste fiyatı|定価|通常価格"
    r"|メーカー希望小売価格|原價|原价"
    r"|建議售價|市場價|정가|ราคาปกติ|giá gốc|giá niêm yết)\W{0,6}$",
    re.IGNORECASE,
)
PRICE_LABEL = re.compile(
    r"(?<!\w)(?:price|preis|prix|precio|prezzo|preço|preco|prijs|cena|cenu|цена|ціна|τιμή|hinta|pris|ár|fiyat|kaina|preț|pret"
    r"|cijena|giá|ราคา|価格|价格|價格|售价|售價|가격|판매가|السعر|מחיר)\W{0,3}$",
    re.IGNORECASE,
)
LOWEST = re.compile(
    r"niedrigste|lowest|najniższ|plus bas|laagste|lägsta|laveste|nejnižší|najnižši|più basso|más bajo|mais baixo"
    r"|(?:30|60) (?:tage|dni|days|jours|dagen|dní|giorni|días|dias|dagar|dage|päivän|zile|nap)",
    re.IGNORECASE,
)
"""The lowest price of some time, which European law wants beside a reduced one."""

LABEL_KINDS = (
    ("price", PRICE_LABEL), ("old", OLD_LABEL), ("other", BESIDE_LABEL), ("other", UNIT_LABEL), ("net", NET_WORDS),
    ("bound", BOUND_LABEL),
)  # fmt: skip
"""What the words right before an amount make of it."""
