"""Marked-up text: every tag comes out once, in its place in the tree, whatever the model writes and the alignment says."""

from __future__ import annotations

import asyncio
import html
import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served_folders import small_folder

import regard
from regard.serving.html_markup import HTML, MOST_INLINE, VOID, Rules, Segment, parts_of, tokens_of
from regard.serving.html_placing import in_step, placed, units_of
from regard.serving.html_text import MarkupTranslator
from regard.serving.service import Service
from regard.serving.shelf import Shelf

XML = Rules(xml=True)


class Tree(HTMLParser):
    """The tags of a document as nested lists, their order among brothers left out: (tag with attributes, its children)."""

    def __init__(self, text: str):
        super().__init__()
        self.root: list = []
        self.path = [self.root]
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        children: list = []
        self.path[-1].append((self.get_starttag_text(), children))
        if tag not in VOID:
            self.path.append(children)

    def handle_startendtag(self, tag, attrs):
        self.path[-1].append((self.get_starttag_text(), []))

    def handle_endtag(self, tag):
        if len(self.path) > 1:
            self.path.pop()

    def handle_comment(self, data):
        self.path[-1].append((f"<!--{data}-->", []))

    def handle_data(self, data):
        self.words += data.split()

    @property
    def shape(self):
        def sorted_tree(children):
            return sorted((tag, sorted_tree(inner)) for tag, inner in children)

        return sorted_tree(self.root)


def plain(text: str) -> str:
    """A document's text as a browser shows it, without what is not translated."""
    return " ".join(Tree(text).words)


INLINE = ["b", "i", "em", "span", "a", "x-y"]
WORDS = st.sampled_from(["cat", "the", "a & b", "<", "5 > 4", "naïve", "!", "it's", " ", "\n", "日本", "one two three"])


def wrapped(inner, names=INLINE, attributes=("", ' class="a b"', " href='x?a=1&b=2'", ' title="a > b"')):
    return st.builds(
        lambda name, attribute, parts: f"<{name}{attribute}>{''.join(parts)}</{name}>",
        st.sampled_from(names),
        st.sampled_from(attributes),
        st.lists(inner, max_size=4),
    )


LEAF = st.one_of(
    WORDS.map(lambda w: html.escape(w, quote=False) + " "), st.sampled_from(["<br>", "<img src=a>", "<!-- c -->"])
)
SENTENCES = st.recursive(LEAF, wrapped, max_leaves=12)
BLOCKS = wrapped(SENTENCES, ["p", "div", "li", "h1", "td"])
DOCUMENTS = st.lists(st.one_of(SENTENCES, BLOCKS), max_size=6).map("".join)


def fake(text: str, order: str) -> str:
    """A translation that moves, repeats and drops words."""
    words = text.split()
    if order == "none":
        return ""
    if order == "twice":
        words = [word for word in words for _ in range(2)]
    return " ".join(reversed(words) if order == "back" else words)


def translated(document: str, order: str, draw) -> str:
    done = []
    for part in parts_of(document):
        if isinstance(part, Segment):
            text = fake(part.text, order)
            count, most = len(units_of(text)), len(units_of(part.text))
            sources = [draw(most) for _ in range(count)]
            done.append(placed(part, text, sources))
        else:
            done.append(part)
    return "".join(done)


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, st.sampled_from(["same", "back", "twice", "none"]), st.randoms(use_true_random=False))
def test_no_tag_is_lost_doubled_or_moved_into_another(document, order, random):
    def draw(most):
        return random.choice([None, *range(most)])

    found = translated(document, order, draw)
    assert Tree(found).shape == Tree(document).shape
    assert sorted(re.findall(r"<[^<>]*>", found)) == sorted(re.findall(r"<[^<>]*>", document))


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS)
def test_a_translation_that_is_the_text_gives_the_document_back(document):
    done = []
    for part in parts_of(document):
        if isinstance(part, Segment):
            count = len(units_of(part.text))
            done.append(placed(part, part.text, list(range(count))))
        else:
            done.append(part)
    found = "".join(done)
    assert plain(found).replace(" ", "") == plain(document).replace(" ", "")
    tags = r"</?[a-z][^<>]*>"
    assert re.findall(tags, found) == re.findall(tags, document)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="<>/!-ab \"'=&;[]?\n", max_size=60), st.booleans())
def test_pieces_in_a_row_are_the_document(text, xml):
    assert "".join(token.raw for token in tokens_of(text, XML if xml else HTML)) == text
    for part in parts_of(text, XML if xml else HTML):
        assert isinstance(part, (str, Segment))


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="<>/ab i", max_size=60))
def test_broken_markup_keeps_its_tags_too(text):
    tags = [token.raw for token in tokens_of(text) if token.kind != "text"]
    done = "".join(
        part if isinstance(part, str) else placed(part, part.text, in_step(*[len(units_of(part.text))] * 2))
        for part in parts_of(text)
    )
    assert [token.raw for token in tokens_of(done) if token.kind != "text"] == tags


@pytest.mark.parametrize(
    "hostile", ['<a "', "<b><i></b>", "<!--", "<code>", "<", "</b>", "<b>x", "<![CDATA[", "&amp", "<b/>", "<a b='"]
)
@pytest.mark.parametrize("xml", [True, False])
def test_hostile_markup_takes_no_time(hostile, xml):
    text = (hostile * 20_000)[:20_000] + ">"
    began = time.thread_time()
    for part in parts_of(text, XML if xml else HTML):
        if isinstance(part, Segment):
            placed(part, part.text, in_step(len(units_of(part.text)), len(units_of(part.text))))
    assert time.thread_time() - began < 2


def segments(text: str, rules: Rules = HTML) -> list[str]:
    return [part.text for part in parts_of(text, rules) if isinstance(part, Segment)]


def test_text_stops_at_blocks_not_at_inline_tags():
    assert segments("<p>One <b>two</b></p>three<br>four<ul><li>five") == ["One two", "three", "four", "five"]


def test_what_is_not_text_is_not_translated():
    untouched = "<script>if (a < b) '<p>x</p>'</script><style>p {}</style><pre>a\n b</pre><!-- no --><p></p> \n "
    assert segments(untouched) == []
    assert "".join(map(str, parts_of(untouched))) == untouched
    assert segments("<title>a <b> c</title>") == ["a <b> c"]
    assert segments('<div translate="no">no <b>more</b></div><p class="x notranslate">no</p>yes') == ["yes"]
    assert segments("<p class='notranslated'>yes</p><p data-translate=no>yes</p>") == ["yes", "yes"]


def test_white_space_is_as_a_browser_shows_it():
    (part,) = [p for p in parts_of("<p>\n  One\n  two <b> three</b>\n</p>") if isinstance(p, Segment)]
    assert part.text == "One two three"
    assert placed(part, "Eins zwei drei", [0, 1, 2]) == "\n  Eins zwei <b>drei</b>\n"


def test_in_xml_tags_with_text_beside_them_are_inline():
    text = "<doc><title>One <i>two</i></title><par>Three</par></doc>"
    assert segments(text, XML) == ["One two", "Three"]
    assert segments(text, Rules(xml=True, splitting=frozenset("i"))) == ["One", "two", "Three"]
    assert segments(text, Rules(xml=True, untouched=frozenset(["par"]))) == ["One two"]
    assert segments("<a>One</a><a>two</a>", Rules(xml=True, outline=False)) == ["Onetwo"]


def test_more_tags_than_a_sentence_has_end_the_text():
    many = "<b>x</b> " * (MOST_INLINE // 2 + 1)
    assert len(segments(many)) == MOST_INLINE // 2 + 1
    assert len(segments("<b>x</b> " * (MOST_INLINE // 2))) == 1


def part_of(text: str) -> Segment:
    (part,) = [part for part in parts_of(text) if isinstance(part, Segment)]
    return part


@pytest.mark.parametrize(
    ("source", "target", "sources", "expected"),
    [
        ("a <b>red</b> car", "ein rotes Auto", [0, 1, 2], "ein <b>rotes</b> Auto"),
        ("a <b>red car</b>", "Auto rotes ein", [2, 1, 0], "<b>Auto rotes</b> ein"),
        ("<b>not <i>good</i></b>!", "nicht sehr gut!", [0, None, 1, 2], "<b>nicht sehr <i>gut</i></b>!"),
        ("I <b>gave</b> it <i>up</i>.", "Ich gab es auf.", [0, 1, 2, 3, 4], "Ich <b>gab</b> es <i>auf</i>."),
        ("a <b>x</b> c", "eins drei", [0, 2], "eins <b></b>drei"),
        ("a <img> b", "eins zwei", [0, 1], "eins <img> zwei"),
        ("run <code>ls -l</code> now", "jetzt ls -l starten", [2, 1, 1, 1, 0], "jetzt <code>ls -l</code> starten"),
        ("run <code>ls</code> now", "jetzt machen", [2, 0], "jetzt machen <code>ls</code>"),
        ("&lt;b&gt; <i>x</i>", "<b> x & y", [0, 1, 2, 3, None, None], "&lt;b&gt; <i>x</i> &amp; y"),
        ("un<b>believ</b>able", "unglaublich", [0], "<b>unglaublich</b>"),
    ],
)
def test_tags_follow_their_words(source, target, sources, expected):
    assert placed(part_of(source), target, sources) == expected


# --- with models


@pytest.fixture(scope="module")
def translate(service):
    markup = MarkupTranslator(service)
    served = service.shelf.of("translation")[0]

    def call(text: str, **how) -> list[str]:
        return asyncio.run(markup.translate(served, [text], **how))[0]

    return call


def test_text_without_tags_is_translated_as_plain_text_is(translate):
    translator = regard.load(engine="auto")
    for text in ("Good morning, my friend.", "It is late. He sleeps.", "", "   ", "One & two"):
        expected = html.escape(translator.translate(text), quote=False) if text.strip() else text
        assert translate(html.escape(text, quote=False)) == [expected]
    assert translate("<p>Good morning.</p>") == [f"<p>{translator.translate('Good morning.')}</p>"]


def test_the_models_attention_moves_tags(translate):
    (found,) = translate("He did not give <em>the book</em> to <strong>his sister</strong>.")
    assert "<em>das Buch</em>" in found
    assert "<strong>seiner Schwester</strong>" in found


def test_alternatives_have_their_tags_too(translate):
    found = translate("Good <b>morning</b>, my friend.", alternatives=2)
    assert len(found) == 3
    assert all(Tree(one).shape == [("<b>", [])] for one in found)


def test_looking_into_the_model_leaves_the_engine_alone(service, translate):
    translate("Good <b>morning</b>.")
    translator = service.shelf.of("translation")[0].load()
    translator.translate("Good morning.")
    assert translator.engine == "ctranslate2"


def test_a_model_without_attention_keeps_tags_in_step(tmp_path):
    service = Service(Shelf.open([small_folder("cho", tmp_path / "cho", languages=("en", "de"))]))
    markup, served = MarkupTranslator(service), service.shelf.of("translation")[0]
    document = "<p>The <b>cat</b> <i>sat</i> on the mat.</p>"
    ((found,),) = asyncio.run(markup.translate(served, [document]))
    assert Tree(found).shape == Tree(document).shape
    service.close()
