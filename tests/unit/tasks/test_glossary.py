"""Glossaries: what is found in a source, what must be written, and what stays as it is."""

from __future__ import annotations

import pytest

import regard
from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.search_config import SearchConfig
from regard.tasks.glossary import MOST_TERMS, Glossary
from regard.tasks.terminology import satisfied

BANKS = [("bank|banks", "Ufer|Ufers"), ("river bank", "Flussufer"), ("Regard", "="), ("银行", "Bank")]


@pytest.fixture(scope="module")
def by_torch():
    return regard.load(engine="torch", device="cpu")


def found(glossary: Glossary, text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.source, one.forms) for one in glossary.wanted(text)]


def test_terms_are_whole_words_and_the_longest():
    glossary = Glossary.of(BANKS)
    assert found(glossary, "The BANK, two banks; a River  bank.") == [
        ("BANK", ("Ufer", "Ufers")),
        ("banks", ("Ufer", "Ufers")),
        ("River  bank", ("Flussufer",)),
    ]
    assert found(glossary, "Banker riverbank embank-ment") == []
    assert found(glossary, "regard REGARD") == [("regard", ()), ("REGARD", ())]
    assert found(glossary, "我去银行了") == [("银行", ("Bank",))]
    assert len(glossary.wanted("bank " * 40)) == MOST_TERMS


@pytest.mark.parametrize(
    ("kind", "text", "kept"),
    [
        ("url", "See https://a.example/x?y=1, or www.b.example/z.", ["https://a.example/x?y=1", "www.b.example/z"]),
        ("email", "Write to a.b+c@d.example.", ["a.b+c@d.example"]),
        ("placeholder", "Hi {name}, ${x} {{ y }} %(n)s %s 5% of $y __z__", ["{name}", "${x}", "%(n)s", "%s", "$y", "__z__"]),
        ("tag", 'a < b <b class="x">c</b>', ['<b class="x">', "</b>"]),
        ("number", "3,5 and 1.000 at 12:30 in b52", ["3,5", "1.000", "12:30", "52"]),
    ],
)  # fmt: skip
def test_kinds_that_stay(kind, text, kept):
    glossary = Glossary({}, (kind,))
    assert [one.source for one in glossary.wanted(text)] == kept
    assert {one.kind for one in glossary.wanted(text)} == {kind}


def test_a_file(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeff# bank\n\nbank|banks\tUfer|Ufers\nregard\nNew York\t=\n".encode())
    glossary = Glossary.load(path, ["url"])
    assert glossary.terms == {
        ("bank",): ("Ufer", "Ufers"),
        ("banks",): ("Ufer", "Ufers"),
        ("regard",): (),
        ("new", "york"): (),
    }
    assert glossary.keep == ("url",)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"bank\tUfer\tmore\n", "line 1.*2 tabs"),
        (b"a\tb\nNew York\n", "line 2.*no tab"),
        (b"bank\t|Ufer\n", "empty"),
        (b"\tUfer\n", "no letters"),
        (b"bank\tUfer\nBank\tBank\n", "line 2.*twice"),
        (b"a\tb\nB\xe4nke\tx\n", "line 2.*not UTF-8"),
        (b"# nothing\n", "no terms"),
        (b"bank\t" + b"x" * 300 + b"\n", "200 characters"),
    ],
)
def test_mistakes_in_a_file(tmp_path, content, what):
    path = tmp_path / "terms.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=what):
        Glossary.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        Glossary.load(tmp_path / "none.tsv")
    with pytest.raises(ConfigError, match="'names' is not one of"):
        Glossary.of([], keep=["names"])


def test_terms_are_written(by_torch):
    glossary = Glossary.of([("bank", "Ufer"), ("teacher", "Pauker|Paukers"), ("museum", "Galerie|Galerien")])
    texts = ["Where is the nearest bank?", "The teacher is in the museum.", "Nothing else."]
    plain, careful = by_torch.hypotheses(texts), by_torch.with_glossary(glossary).hypotheses(texts)
    for text, one, other in zip(texts, plain, careful, strict=True):
        has, wanted = satisfied(glossary, text, other[0].text)
        assert has == wanted
        assert wanted == 0 or satisfied(glossary, text, one[0].text)[0] < wanted
        assert other[0].finished
    # nothing changes where there are no terms; in other company, products may differ in their last bits
    assert [one.tokens for one in careful[2]] == [one.tokens for one in plain[2]]
    assert [one.score for one in careful[2]] == pytest.approx([one.score for one in plain[2]], abs=1e-5)
    alone = by_torch.with_glossary(glossary).hypotheses(texts[1:2])
    assert alone[0][0].text == careful[1][0].text


def test_what_stays_is_written_as_it_is(by_torch):
    glossary = Glossary.of([("Zxqwv", "=")], keep=["placeholder", "url", "number"])
    texts = ["Zxqwv is here.", "Hello {name}!", "It costs 250 dollars.", "See https://a.example/b17 now."]
    for text, many in zip(texts, by_torch.with_glossary(glossary).hypotheses(texts), strict=True):
        assert satisfied(glossary, text, many[0].text) == (1, 1)
    assert by_torch.with_glossary(glossary).translate("Hello {name}!") == "Hallo {name}!"


def test_a_term_that_cannot_be_written_is_named(by_torch):
    glossary = Glossary.of([("bank", "银行")])
    ((one,),) = by_torch.with_glossary(glossary).hypotheses(["Where is the bank?"])
    assert "bank" in one.note
    assert one.text == by_torch.translate("Where is the bank?")


def test_terms_that_find_no_place_are_left_out_and_named(by_torch):
    glossary = Glossary.of([("bank", " ".join(["Rhabarberbarbara"] * 6))])
    short = SearchConfig(beam=2, max_length=6)
    ((one,),) = by_torch.with_glossary(glossary).hypotheses(["Where is the bank?"], search=short)
    assert "bank" in one.note
    assert one.text == by_torch.hypotheses(["Where is the bank?"], search=short)[0][0].text


def test_what_is_said_of_texts():
    glossary = Glossary.of([("bank", "ufer"), ("x", "=")])
    assert satisfied(glossary, "the bank x", "Das Ufer x.") == (2, 2)
    assert satisfied(glossary, "the bank x", "Das Uferchen X.") == (0, 2)


def test_ctranslate2_alone_cannot():
    pytest.importorskip("ctranslate2")
    fast = regard.load(engine="ctranslate2", device="cpu").with_glossary(Glossary.of([("bank", "Ufer")]))
    with pytest.raises(ModelError, match="terms of a glossary"):
        fast.translate("Where is the bank?")
    assert fast.translate("Good morning.") == regard.load(engine="ctranslate2").translate("Good morning.")
    both = regard.load(engine="auto", device="cpu").with_glossary(Glossary.of([("bank", "Ufer")]))
    assert "Ufer" in both.translate("Where is the bank?")
