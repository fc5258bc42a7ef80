"""What an answered page is, when it is not the one that was asked for: general signs, read only then.

Nothing here looks at a page that gave its rows: a captcha widget, a cookie banner or "just a moment" in a
review make no product page a blocked one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from selectolax.lexbor import LexborNode

from scrape_assets.rules.document import Document, text_of
from scrape_assets.rules.page import Response
from scrape_assets.rules.row import snippet
from scrape_assets.rules.states import FailureClass, PageState

SHORT_PAGE = 2_000
"""Characters of visible text up to which a phrase speaks for the whole page."""

SHELL_TEXT = 200
"""A page of scripts alone may show this much while it loads."""

EMPTY_PAGE = 12
"""A page with fewer visible characters says nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the page is, what follows, and the sign that says so."""

    page_state: PageState | None
    failure_class: FailureClass
    reason: str


# Marks that protection services leave on their interstitials only, never on the pages behind them.
_CHALLENGE_MARKS = re.compile(
    r"_cf_chl_opt|cf-im-under-attack|cf-browser-verification|/cdn-cgi/l/chk_(?:captcha|jschl)|sucuri_cloudproxy_js"
    r"|id=\"anubis_challenge\"|id=\"challenge-form\"|id=\"px-captcha\"|captcha-delivery\.com/c(?:aptcha)?/"
    r"|_Incapsula_Resource\?(?:SWUDNSAI|CWUDNSAI)|Incapsula incident ID|awsWafCookieDomainList|gokuProps"
    r"|distil_r_captcha|/_sec/cp_challenge|/\.well-known/ddos-guard/|ddg-captcha|geetest_challenge_page"
    r"|KPSDK\.(?:configure|scriptStart)|__ddg_challenge|/sorry/index\?|vercel/security/static/challenge"
)
_CHALLENGE_TITLE = re.compile(
    r"^(?:just a moment|attention required!|one moment, please|please wait\.\.\.|checking your browser|ddos-guard"
    r"|security check|robot check|bot verification|human verification|are you (?:a )?(?:human|robot)|captcha\b"
    r"|access (?:to this page has been )?denied|pardon our interruption|request (?:blocked|rejected)"
    r"|making sure you.re not a bot|you are being redirected|verify(?:ing)? you are human|client challenge"
    r"|vercel security checkpoint|sorry, you have been blocked|один момент|un momento|einen moment)",
    re.IGNORECASE,
)
_CHALLENGE_PHRASE = re.compile(
    r"verify (?:that )?you(?:'|’)?(?: a)?re (?:a )?(?:human|not a (?:ro)?bot)|are you a (?:human|robot)\?"
    r"|(?:i'm|i’m|i am|you're|you’re|you are) not a (?:ro)?bot"
    r"|checking (?:if the site connection is secure|your browser)"
    r"|unusual (?:traffic|activity) from your|complete the (?:security check|captcha)|press (?:&|and) hold to confirm"
    r"|enable javascript and cookies to continue|please enable js and disable any ad blocker"
    r"|you have been blocked|your access (?:to this (?:site|service)|has been) (?:has been )?(?:limited|blocked|denied)"
    r"|automated (?:access|requests|queries)|enter the characters you see below",
    re.IGNORECASE,
)
_BARE_REFUSAL = re.compile(
    r"(?:(?:error )?403[\s:.-]*)?(?:forbidden|access denied|request blocked|not authorized|blocked)[.!]?", re.IGNORECASE
)
_BROWSER_PROBE = re.compile(r"navigator\.webdriver|fingerprint|指纹|HeadlessChrome|callPhantom|_phantom", re.IGNORECASE)
_CONSENT_TITLE = re.compile(
    r"^(?:before you continue|bevor sie|avant d.accéder|antes de (?:continuar|ir)|prima di continuare|voordat je"
    r"|cookie (?:consent|settings|wall|einstellungen)|your privacy|privacy (?:settings|gate)|consent\b)",
    re.IGNORECASE,
)
_CONSENT_WORD = re.compile(
    r"cookie|consent|privacy|datenschutz|einwillig|privacidad|confidentialité|zgod[aęy]|同意", re.IGNORECASE
)
_AGREE = re.compile(
    r"^(?:i agree|agree(?: and continue)?|accept(?: all| cookies| all cookies| and continue)?|allow all|got it|ok"
    r"|alle akzeptieren|akzeptieren|zustimmen|tout accepter|j.accepte|accepter|aceptar(?: todo)?|accetta(?: tutto)?"
    r"|akkoord|alles accepteren|akceptuj[eę]?|zgadzam się|souhlasím|godkend alle|godkänn alla|принять|同意する?)[.!]?$",
    re.IGNORECASE,
)
_LOGIN_SEGMENT = re.compile(
    r"^(?:log[-_]?in|sign[-_]?in|log[-_]?on|account-login|anmelden|connexion|se-connecter|acceder|iniciar-sesion|entrar"
    r"|accedi|inloggen|logowanie|zaloguj|prihlaseni|prihlasenie|kirjaudu|sso)(?:\.\w{2,5})?$",
    re.IGNORECASE,
)
_LOGIN_WORD = re.compile(
    r"(?<!\w)(?:log[- ]?in|log on|sign[- ]?in|anmelden|anmeldung|einloggen|connexion|se connecter"
    r"|identifi(?:ez-vous|cation)|iniciar sesión|acceder|entrar|accedi|inloggen|zaloguj|logowanie|přihlášení"
    r"|prihlásenie|вход|войти|giriş|logga in)(?!\w)"
    r"|ログイン|登录|登入|로그인",
    re.IGNORECASE,
)
_NOT_FOUND = re.compile(
    r"(?<!\d)404(?!\d)|nothing (?:was )?found here|no longer (?:available|exists)"
    r"|(?:page|product|item|listing|offer)(?: (?:that )?you(?:['’]re looking for| requested))?"
    r" (?:(?:was |is |could |can)?not (?:be )?(?:found|exist)|can['’]?t be found"
    r"|does(?:n['’]t| not) exist|has been removed)"
    r"|nicht gefunden|existiert nicht|nicht mehr (?:verfügbar|erhältlich)|introuvable|n['’]existe (?:pas|plus)"
    r"|no (?:se ha )?encontrad[ao]|ya no (?:está disponible|existe)|non (?:è stata )?trovat[ao]|não encontrad[ao]"
    r"|niet gevonden|nie (?:została )?(?:znaleziona|znaleziono|istnieje)|nenalezena|nebyla nalezena|neexist"
    r"|hittades inte|ikke fundet|ei löyt|не найден|見つかりません|不存在|找不到",
    re.IGNORECASE,
)
_NOT_FOUND_SEGMENT = re.compile(
    r"^(?:404|not[-_]?found|page[-_]?not[-_]?found|error[-_]?404)(?:\.\w{2,5})?$", re.IGNORECASE
)
_HOME = re.compile(r"^/?(?:[a-z]{2}(?:[-_][a-z]{2})?/?)?(?:(?:index|home|default)(?:\.\w{2,5})?/?)?$", re.IGNORECASE)
_UNSEEN = frozenset("script style noscript template svg iframe".split())


def by_status(status: int) -> Finding:
    """What a status outside 2xx means; a challenge was looked for before."""
    match status:
        case 404 | 410:
            return Finding(PageState.REMOVED, FailureClass.GONE, f"status {status}")
        case 401 | 403:
            return Finding(None, FailureClass.ACCESS_REFUSED, f"status {status}")
        case 429:
            return Finding(None, FailureClass.RATE_LIMITED, "status 429")
        case 500 | 502 | 503 | 504:
            return Finding(None, FailureClass.HTTP_5XX, f"status {status}")
        case _:
            return Finding(None, FailureClass.HTTP_OTHER, f"status {status}")


def by_redirect(response: Response) -> Finding | None:
    """Whether a redirect ended at a place that is never the page asked for: a login, a consent wall, the home page."""
    if response.final_url == response.url and not response.redirects:
        return None
    asked, final = _split(response.url), _split(response.final_url)
    shown = f"redirected to {snippet(response.final_url)}"
    if any(_LOGIN_SEGMENT.match(part) for part in final[1]) and not any(
        _LOGIN_SEGMENT.match(part) for part in asked[1]
    ):
        return Finding(PageState.LOGIN, FailureClass.LOGIN, f"login: {shown}")
    if final[0].startswith("consent.") and not asked[0].startswith("consent."):
        return Finding(PageState.CONSENT, FailureClass.CONSENT, f"consent: {shown}")
    if any(_NOT_FOUND_SEGMENT.match(part) for part in final[1]):
        return Finding(PageState.SOFT_404, FailureClass.WRONG_TEMPLATE, f"soft 404: {shown}")
    if _HOME.match("/".join(final[1])) and not final[2] and not (_HOME.match("/".join(asked[1])) and not asked[2]):
        return Finding(None, FailureClass.REDIRECTED, f"{shown}, the home page")
    return None


def _split(url: str) -> tuple[str, list[str], str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", [url], ""
    return parts.netloc.lower(), [unquote(part) for part in parts.path.split("/") if part], parts.query


def challenge(document: Document) -> Finding | None:
    """Whether the page is a robot check, by its service's marks, its title, or a short text that says so."""
    if found := challenge_title(document) or challenge_mark(document):
        return found
    seen = visible_text(document)
    if len(seen) <= SHORT_PAGE and (phrase := _CHALLENGE_PHRASE.search(seen)):
        return _challenge(f"text {phrase.group()!r}")
    if len(seen) < EMPTY_PAGE * 4 and _BARE_REFUSAL.fullmatch(seen):
        return _challenge(f"nothing but {seen!r}")
    if len(seen) < EMPTY_PAGE and (
        phrase := _CHALLENGE_PHRASE.search(" ".join(map(text_of, document.css("noscript"))))
    ):
        return _challenge(f"nothing to read but, without scripts, {phrase.group()!r}")
    if len(seen) < EMPTY_PAGE and (probe := _BROWSER_PROBE.search(document.text)):
        return _challenge(f"no text, and a script that asks for {probe.group()!r}")
    return None


def challenge_title(document: Document) -> Finding | None:
    """Whether the title alone says robot check: cheap enough for a page whose declared fields were found."""
    title = _title(document)
    return _challenge(f"title {snippet(title)}") if _CHALLENGE_TITLE.match(title) else None


def challenge_mark(document: Document) -> Finding | None:
    """Whether a protection service's own mark is on the page."""
    mark = _CHALLENGE_MARKS.search(document.text)
    return _challenge(f"mark {mark.group()[:60]!r}") if mark else None


def _challenge(sign: str) -> Finding:
    return Finding(PageState.CHALLENGE, FailureClass.CHALLENGE, f"challenge: {sign}")


def unexpected(document: Document, response: Response) -> Finding | None:
    """What the page is instead of the one asked for, by general signs; None when none of them is there."""
    if document.is_blank:
        return Finding(PageState.EMPTY_SHELL, FailureClass.EMPTY_SHELL, "the document is empty")
    seen = visible_text(document)
    return (
        challenge(document)
        or _consent(document, response, seen)
        or _login(document, response, seen)
        or _soft_404(document, seen)
        or _empty_shell(document, response, seen)
    )


def _title(document: Document) -> str:
    node = document.tree.css_first("title")
    return text_of(node)[:300] if node else ""


def visible_text(document: Document) -> str:
    """The text a reader sees, as far as the markup tells, cut where it is long enough to be a whole page."""
    body = document.tree.body
    if body is None:
        return ""
    parts: list[str] = []
    size = 0
    node = body.first_child
    while node is not None and size <= 4 * SHORT_PAGE:
        if node.is_text_node and (text := " ".join((node.text_content or "").split())):
            parts.append(text)
            size += len(text)
        # Depth first without recursion, past the insides of what is never shown.
        following = node.first_child if node.tag not in _UNSEEN else None
        while following is None and node is not None:
            following = node.next
            if following is None:
                node = node.parent
                if node is None or node.mem_id == body.mem_id:
                    return " ".join(parts)
        node = following
    return " ".join(parts)


def _consent(document: Document, response: Response, seen: str) -> Finding | None:
    def found(sign: str) -> Finding:
        return Finding(PageState.CONSENT, FailureClass.CONSENT, f"consent: {sign}")

    if len(seen) > SHORT_PAGE:
        return None
    if _CONSENT_TITLE.match(title := _title(document)):
        return found(f"title {snippet(title)}")
    host, path, _ = _split(response.final_url)
    if host.startswith("consent.") or any(
        part in ("consent", "cookie-wall", "cookiewall", "privacy-gate") for part in path
    ):
        return found(f"address {snippet(response.final_url)}")
    for form in document.css("form[action]"):
        if _split(form.attributes.get("action") or "")[0].startswith("consent."):
            return found("a form that goes to a consent host")
    # A banner on a page is no wall: the wall has the question, the button, and hardly a way elsewhere.
    if _CONSENT_WORD.search(seen) and len(document.css("a[href]")) <= 10:
        for button in document.css("button, input[type=submit], input[type=button], a"):
            label = text_of(button) or button.attributes.get("value") or ""
            if len(label) < 40 and _AGREE.match(label):
                return found(f"a short page with the button {label!r}")
    return None


def _login(document: Document, response: Response, seen: str) -> Finding | None:
    forms = [form for form in document.css("form") if _is_real(form)]
    passwords = [form for form in forms if form.css_first('input[type="password"]') is not None]
    if len(passwords) != 1 or len(forms) > 1 or len(passwords[0].css('input[type="password"]')) > 1:
        return None
    heading = document.tree.css_first("h1")
    named = f"{_title(document)} {text_of(heading) if heading else ''}"
    path = _split(response.final_url)[1]
    if _LOGIN_WORD.search(named) or any(_LOGIN_SEGMENT.match(part) for part in path) or len(seen) <= SHORT_PAGE:
        return Finding(PageState.LOGIN, FailureClass.LOGIN, "login: the only form on the page asks for a password")
    return None


def _is_real(form: LexborNode) -> bool:
    """Whether the form asks the reader for something: not a search box, a newsletter or a button."""
    asked = [
        field
        for field in form.css("input, textarea")
        if (field.attributes.get("type") or "text").lower() in ("text", "email", "password", "tel", "number", "url")
    ]
    return len(asked) > 1 or any((field.attributes.get("type") or "").lower() == "password" for field in asked)


def _soft_404(document: Document, seen: str) -> Finding | None:
    heading = document.tree.css_first("h1")
    for where, text in (("title", _title(document)), ("heading", text_of(heading)[:300] if heading else "")):
        if hit := _NOT_FOUND.search(text):
            sign = f"soft 404: {where} says {hit.group()!r}"
            return Finding(PageState.SOFT_404, FailureClass.WRONG_TEMPLATE, sign)
    if len(seen) <= 300 and (hit := _NOT_FOUND.search(seen)):
        return Finding(PageState.SOFT_404, FailureClass.WRONG_TEMPLATE, f"soft 404: text says {hit.group()!r}")
    return None


def _empty_shell(document: Document, response: Response, seen: str) -> Finding | None:
    def found(sign: str) -> Finding:
        if response.status != 200 and document.has("script"):
            # "Accepted", and a script to run: no shop answers so, a check of the browser does.
            return _challenge(f"status {response.status}, and only scripts")
        return Finding(PageState.EMPTY_SHELL, FailureClass.EMPTY_SHELL, f"empty shell: {sign}")

    if len(seen) < EMPTY_PAGE:
        return found(f"{len(seen)} characters of visible text")
    scripts = 'script:not([type*="json"])'
    if len(seen) <= SHELL_TEXT and document.has(scripts) and not document.has("a[href], form, h1, p + p"):
        return found(f"scripts, and only {snippet(seen)} to read")
    return None
