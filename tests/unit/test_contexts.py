"""Contexts: how they are declared, what sets them up, and what a page must show to be believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrape_assets.datasets import contexts, declaration, inventory
from scrape_assets.datasets.contexts import ContextFile, ContextRule
from scrape_assets.errors import DeclarationError
from scrape_assets.flow import plan
from scrape_assets.rules.context import SetupRule, request_of, setup_failed
from scrape_assets.rules.judge import Judged, judge
from scrape_assets.rules.page import Request, Response
from scrape_assets.rules.spec import ExtractRule, PageRule, ProofRule
from scrape_assets.rules.states import FailureClass, PageState
from tests.helpers import make

SITE = "https://shop.example"
PROOF = ProofRule(css=".zip", equals="28001")
FIELDS = PageRule.model_validate(
    {
        "expect": ".offer",
        "removed": ".gone",
        "fields": {"name": {"css": "h1"}, "price": {"css": ".now", "money": "EUR"}},
    }
)


def judged(body: str, *proofs: ProofRule, status: int = 200, final: str | None = None, context: str = "m") -> Judged:
    rule = ExtractRule(retailer="r", page=FIELDS, proofs={"m": proofs or (PROOF,)})
    url = f"{SITE}/p/1"
    page = Response(url, final or url, status, {"content-type": "text/html"}, body.encode(), (url,) if final else ())
    return judge(page, rule, in_context=context)


def page(
    *postcodes: str, more: str = "<article class=offer><h1>A lamp for a desk</h1><b class=now>5.00</b></article>"
) -> str:
    return "".join(f"<i class=zip> {one} </i>" for one in postcodes) + more


def test_a_page_is_read_only_when_it_proves_its_context() -> None:
    assert judged(page("28001")).failure_class is None
    wrong = judged(page("08001"))
    assert (wrong.page_state, wrong.failure_class, wrong.rows) == (
        PageState.WRONG_CONTEXT,
        FailureClass.WRONG_CONTEXT,
        (),
    )
    assert wrong.reason == "wrong context: prove: css .zip found '08001', expected '28001'"
    assert judged(page()).reason == "wrong context: prove: css .zip found nothing, expected '28001'"
    assert judged(page("", "28001")).failure_class is None, "an empty copy for small screens says nothing"
    assert judged(page("28001", "48001")).failure_class is FailureClass.WRONG_CONTEXT, "every text is the one"
    assert judged(page("08001"), context="").failure_class is None, "nothing to prove"


@pytest.mark.parametrize(
    ("proof", "holds"),
    [
        ({"css": ".zip", "match": r"(\d{5})", "equals": "28001"}, True),
        ({"css": ".zip", "match": r"(\d{4}) Madrid", "equals": "28001"}, False),
        ({"css": ".zip", "match": r"in (\d{5})", "equals": "28001"}, True),
        ({"xpath": "//i[@class='zip']/@data-zip", "equals": "28001"}, True),
        ({"xpath": "//i[@class='zip']", "equals": "Entrega en 28001 Madrid"}, False),
        ({"xpath": "//i[@class='zip']", "equals": "Entrega in 28001 Madrid"}, True),
        ({"xpath": "//i[@class='zip']", "attr": "data-zip", "equals": "28001"}, True),
        ({"css": ".zip", "attr": "data-zip", "equals": "28001"}, True),
        ({"css": ".zip", "attr": "data-other", "equals": "28001"}, False),
        ({"css": ".city", "equals": "Ma\u0301laga"}, True),
    ],
)
def test_a_proof_reads_a_text_an_attribute_or_a_part_of_it(proof: dict[str, str], holds: bool) -> None:
    body = (
        "<i class=zip data-zip=28001>Entrega in\n 28001 Madrid</i><i class=city>M\u00e1laga</i>"
        "<article class=offer><h1>Lamp</h1><b class=now>5.00</b></article>"
    )
    found = judged(body, ProofRule.model_validate(proof))
    assert (found.failure_class is None) is holds, found.reason


def test_all_proofs_must_hold() -> None:
    both = (PROOF, ProofRule(css=".currency", equals="EUR"))
    assert judged(page("28001") + "<i class=currency>USD</i>", *both).failure_class is FailureClass.WRONG_CONTEXT
    assert judged(page("28001") + "<i class=currency>EUR</i>", *both).failure_class is None


def test_what_is_no_page_of_the_shop_is_told_as_what_it_is_and_the_status_beats_the_proof() -> None:
    challenge = "<title>Just a moment...</title><script>window._cf_chl_opt={}</script>"
    assert judged(challenge).page_state is PageState.CHALLENGE
    assert judged(page(), final=f"{SITE}/login").page_state is PageState.LOGIN
    assert judged(page("08001"), status=404).failure_class is FailureClass.GONE
    assert judged("").page_state is PageState.EMPTY_SHELL


def test_what_another_context_no_longer_sells_is_not_gone() -> None:
    assert judged(page("28001", more="<p class=gone>no longer</p>")).failure_class is FailureClass.GONE
    assert judged(page("08001", more="<p class=gone>no longer</p>")).failure_class is FailureClass.WRONG_CONTEXT


def test_a_set_up_is_a_form_a_json_body_or_a_page() -> None:
    def request(**named: object) -> Request:
        return request_of(SetupRule.model_validate(named), base=f"{SITE}/", site=SITE)

    assert request(url="/zip?z=1") == Request(f"{SITE}/zip?z=1")
    assert request(url="/zip", form={"z": "a b"}) == Request(
        f"{SITE}/zip", "POST", b"z=a+b", "application/x-www-form-urlencoded"
    )
    assert request(url="/zip", json={"z": "1"}) == Request(f"{SITE}/zip", "POST", b'{"z":"1"}', "application/json")
    assert request(url="/zip", method="POST").method == "POST"
    for url in ("https://elsewhere.example/", "//elsewhere.example/x", "ftp://shop.example/"):
        with pytest.raises(ValueError, match=r"site|http"):
            request(url=url)


def test_the_status_of_a_set_up_decides_what_follows_for_the_page() -> None:
    assert [setup_failed(status) for status in (200, 204, 403, 404, 418, 429, 503)] == [
        None,
        None,
        FailureClass.ACCESS_REFUSED,
        FailureClass.WRONG_CONTEXT,
        FailureClass.WRONG_CONTEXT,
        FailureClass.RATE_LIMITED,
        FailureClass.HTTP_5XX,
    ]


def test_values_are_filled_in_and_escaped_in_an_address() -> None:
    rule = ContextRule.model_validate(
        {
            "setup": {"url": "/set/{store}", "json": {"url": "{store}", "deep": [{"who": "{name}"}], "n": 1}},
            "prove": [{"css": ".s", "equals": "store {store}"}],
        }
    )
    found, wrong = contexts.resolve(rule, {"north": ContextFile.model_validate({"store": "a/b c"})}, SITE)
    assert wrong == []
    setup = found["north"].setup
    assert setup is not None
    assert setup.url == "/set/a%2Fb%20c"
    assert setup.json_body == {"url": "a/b c", "deep": [{"who": "north"}], "n": 1}
    assert [proof.equals for proof in found["north"].prove] == ["store a/b c"]


CONTEXTS = """\
contexts:
  madrid: {postcode: "28001"}
  bilbao: {postcode: "48001"}
context:
  setup: {url: /set-zip, form: {zip: "{postcode}"}}
  prove: {css: .zip, equals: "{postcode}"}
"""
BILBAO = 'bilbao: {postcode: "48001"}'


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            '"{postcode}"}}',
            '"{postcod}"}}',
            "8: context.setup: context madrid has no value 'postcod'; did you mean 'post",
        ),
        ("  prove: {css: .zip, equals: ", "  prov: {css: .zip, equals: ", "9: context.prov: unknown key 'prov'"),
        (", equals: ", ", equal: ", "9: context.prove.0.equal: unknown key 'equal'"),
        ("/set-zip", "https://elsewhere.example/x", "8: context.setup.url: https://elsewhere.example/x is not on"),
        (BILBAO, "bilbao: {api_key: abc}", "6: contexts.bilbao: 'api_key' names a secret"),
        (BILBAO, "bilbao: {postcode: true}", "6: contexts.bilbao: postcode is True; expected text"),
        (BILBAO, 'bilbao: {postcode: ""}', "6: contexts.bilbao: postcode is ''; expected text"),
        (BILBAO, "Bilbao: {postcode: 48001}", "6: contexts.Bilbao: 'Bilbao' is not a name"),
        (BILBAO, "bilbao: {postcode: 48001, prove: []}", "6: contexts.bilbao.prove: the key is missing"),
        ("css: .zip", "css: '.zip['", "9: context.prove: '.zip[' is not a CSS selector"),
        ("url: /set-zip,", "url: /set-zip, method: GET,", "8: context.setup: a GET has no form"),
        ('form: {zip: "{postcode}"}', "page_function: 'pages.py:none'", "8: context.setup.page_function: there is no"),
    ],
)
def test_a_wrong_context_is_one_line_with_file_line_and_field(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in CONTEXTS
    with pytest.raises(DeclarationError) as error:
        make.dataset(tmp_path, {"north": (SITE, ["/p/1"])}, more=CONTEXTS.replace(old, new))
    assert f"retailers/north.yaml:{line}" in str(error.value), str(error.value)


def test_a_proof_without_contexts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="there are no contexts"):
        make.dataset(tmp_path, {"north": (SITE, ["/p/1"])}, more="context: {prove: {css: .zip, equals: x}}")


def test_the_manifest_of_a_retailer_without_contexts_is_what_it_was(tmp_path: Path) -> None:
    plain = make.dataset(tmp_path, {"north": (SITE, ["/p/1"])})
    frozen = plan.freeze(plain, plain.retailers["north"])
    assert frozen.manifest["scope"].keys() == {"site", "urls"}
    assert "contexts" not in frozen.manifest
    assert "proofs" not in frozen.manifest["extract"]
    assert frozen.manifest_hash == "1b7d1a81471cb45376163aaec7736062"


def test_a_frozen_context_comes_back_as_it_was(tmp_path: Path) -> None:
    was = make.dataset(tmp_path, {"north": (SITE, ["/p/1"])}, more=CONTEXTS)
    frozen = plan.freeze(was, was.retailers["north"])
    edited = make.dataset(tmp_path, {"north": (SITE, ["/p/1"])}, more=CONTEXTS.replace("28001", "28002"))
    _, thawed = declaration.thaw(edited, edited.retailers["north"], frozen.manifest)
    assert thawed.contexts == was.retailers["north"].contexts
    assert plan.freeze(edited, thawed).manifest_hash == frozen.manifest_hash


def test_a_line_is_asked_for_in_all_contexts_or_in_the_one_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(f"url,context\n{SITE}/1,\n{SITE}/2,b\n{SITE}/2,\n{SITE}/3,c\n")
    found = list(inventory.read(file, site=SITE, contexts=("b", "a")))
    assert [(one.number, one.canonical_url[-1], one.context) for one in found if isinstance(one, inventory.Line)] == [
        (2, "1", "a"),
        (2, "1", "b"),
        (3, "2", "b"),
        (4, "2", "a"),
    ]
    (refused,) = [one for one in found if isinstance(one, inventory.Rejected)]
    assert refused.reason == "no context 'c' is declared; expected one of a, b"
