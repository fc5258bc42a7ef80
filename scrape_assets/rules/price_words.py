"""Words around a number that say what it is: a bound, an instalment, a saving, an older price, a count.

Lists of words have holes. They only ever refuse: what they miss is read as before, what they know is not taken.
All of them read folded text (`money.fold`), in which the texts of different elements are divided by `|`.
"""

from __future__ import annotations

import re

_STARTING = re.compile(
    r"(?<!\w)(?:from|starting at|starts at|as low as|up to|ab|bis|desde|hasta|a partir de|à partir de|dès|jusqu.à"
    r"|a partire da|da|od|vanaf|fra|från|(?-i:fr\.)|alkaen|от|до|από|から|起|min\.|max\.)(?![^\W\d_])"
    # A plus at the number or its sign, or a swung dash anywhere: "$349+", "~20".
    r"|[0-9€$£¥￥円元]\+(?!\w)|[~～〜]|[0-9][^\w]*and (?:up|more|above)(?!\w)|[0-9][^\w]*or (?:more|less)(?!\w)",
    re.IGNORECASE,
)
_INSTALMENT = re.compile(
    r"(?:/[\s|]*|\b(?:per|pro|par|al|por)[\s|]+)"
    r"(?:mo|month|mth|monat|mes|mois|mese|mnd|miesiąc|měsíc|year|yr|jahr|año|an|week|wk|woche|semaine|semana)\b"
    r"|\b(?:a|an|each|every|im|je|jeden|au|al|em|cada|chaque)[\s|]+"
    r"(?:mo|month|mth|monat|mois|mes|mês|mese|year|yr|jahr|year|année|año|week|woche|semaine|semana)\b"
    r"|monthly|monatlich|mensuel|mensual|weekly|wöchentlich",
    re.IGNORECASE,
)
_MAGNITUDE = re.compile(
    r"[0-9][\s|]*(?:mio|mln|mill?ion(?:en|es|s|i)?|mrd|mld|bn|billion(?:en|s)?|tsd|thousand|tys|lakhs?|lacs?|crores?)(?!\w)",
    re.IGNORECASE,
)

_CHARGE = (
    r"shipping|delivery|postage|deposit|versand(?:kosten)?|lieferung|pfand|kaution|livraison|frais de port|consigne"
    r"|envío|gastos de envío|spedizione|verzend(?:kosten|ing)|statiegeld|frakt|porto|pant|dostawa|doprava|доставка"
)
_BESIDE = re.compile(
    # What stands before the number, with nothing but a few words between: a saving, or a charge.
    r"(?<!\w)(?:(?:you )?sav(?:e|es|ings?)|sie sparen|du sparst|sparen?|ersparnis|rabatt|économi(?:e|sez)|remise"
    r"|ahorr[ae]s?|descuento|risparmi[ao]?|sconto|bespaar|korting|discount|coupon|voucher|cashback|bonus|spara"
    rf"|oszczędzasz|ušetříte|sleva|скидка|{_CHARGE})(?!\w)[^0-9]{{0,30}}[0-9]"
    # What stands right behind it and its currency.
    rf"|[0-9][\s|]*(?:[A-Z]{{3}}|[€$£¥]|kr|zł)?[\s|]*(?:off|discount|rabatt|korting|sconto|{_CHARGE})(?!\w)"
    r"(?![\s|:]*(?:free|gratis|gratuit|kostenlos|frei|offerte?|incl|inkl|inbegriffen|inclus|included))"
    r"|[0-9][\s|]*(?:EUR|[€$£])?[\s|]*de (?:descuento|remise|desconto)(?!\w)",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"(?<!\w)(?:was|uvp|rrp|msrp|srp|statt|anstatt|instead of|list price|old price|previous(?:ly)?|before|avant"
    r"|antes|au lieu de|prix (?:conseillé|barré)|ancien prix|prezzo (?:consigliato|di listino)|anziché|invece di"
    r"|adviesprijs|tidigare|ord\.? ?pris|før|ennen|cena katalogowa|zamiast|namísto|původní cena|старая цена)(?!\w)"
    r"[^0-9]{0,30}[0-9]",
    re.IGNORECASE,
)
# Words that may stand beside a whole number which names no currency; any other makes it a count: "2 left".
_LABELS = frozenset(
    "price prices preis prix precio prezzo prijs preço preco pris cena cenu hinta fiyat ár цена ціна τιμή our your my"
    " now only just nur jetzt unser notre nuestro nuestra ora adesso nu nyt teď the le la el il de der das die final"
    " current aktuell sale special offer deal angebot sonderpreis oferta offerta promo promotion aktion akce regular"
    " incl inkl including inc excl exkl excluding exclusive tax taxes vat mwst tva iva btw moms dph gst ttc ht ust"
    " brutto netto gross net each member club online".split()
)

OLDER = "an older or a recommended price"

_WORD = re.compile(r"[^\W\d_]{2,}")


def not_a_price(folded: str) -> str | None:
    """What the number is, where it is no price of anything."""
    for sign, what in (
        (_STARTING, "a bound of a range"),
        (_INSTALMENT, "an instalment"),
        (_MAGNITUDE, "a rounded number of thousands or millions"),
    ):
        if sign.search(folded):
            return what
    return None


def not_asked(folded: str) -> str | None:
    """What the number is, where it is an amount of money, but not the one that is asked now."""
    if _BESIDE.search(folded):
        return "a saving or a charge"
    return OLDER if _BEFORE.search(folded) else None


def is_instalment(folded: str) -> bool:
    """Whether the words say that an amount is paid again and again."""
    return _INSTALMENT.search(folded) is not None


def counts(folded: str) -> bool:
    """Whether a whole number without a currency may count something: words stand there that are no labels."""
    return not _LABELS.issuperset(word.lower() for word in _WORD.findall(folded))
