"""Translation memories: languages, inline codes, encodings, and files that attack their reader."""

import gzip
import time
import tracemalloc

import pytest

from regard.core.errors import DataError
from regard.data.reading import open_pairs, tmx_pairs
from regard.data.split import Pairs


def unit(**segments):
    """A translation unit; the languages' underscores become hyphens."""
    variants = "".join(f'<tuv xml:lang="{k.replace("_", "-")}"><seg>{v}</seg></tuv>' for k, v in segments.items())
    return f"<tu>{variants}</tu>"


def document(*units, head='<?xml version="1.0"?>', begin='<tmx version="1.4"><header srclang="en"/><body>'):
    return f"{head}\n{begin}\n" + "\n".join(units) + "\n</body></tmx>\n"


@pytest.fixture
def read(tmp_path):
    """Reads a document (text or bytes) given as the content of a file."""

    def read(content, columns=(), **settings):
        path = tmp_path / "memory.tmx"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        reader = open_pairs([path], columns=columns)
        chunks = list(reader.chunks(**settings))
        found = Pairs([s for c in chunks for s in c.sources], [t for c in chunks for t in c.targets])
        return found, reader.skipped

    return read


@pytest.fixture
def refused(read, tmp_path):
    """The sentence with which a document is refused, without the path."""

    def refused(content, columns=()):
        with pytest.raises(DataError) as caught:
            read(content, columns)
        said = str(caught.value)
        assert "\n" not in said
        assert said.startswith(str(tmp_path / "memory.tmx"))
        return said.removeprefix(str(tmp_path / "memory.tmx"))

    return refused


def test_the_first_two_languages_that_meet(read):
    units = (unit(en_US="only"), unit(en_US="a", de_AT="b", fr="c"), unit(EN_gb="d", DE="e"), unit(fr="f", de="g"))
    assert read(document(*units)) == (Pairs(["a", "d"], ["b", "e"]), 2)


@pytest.mark.parametrize(
    ("columns", "sources", "targets", "skipped"),
    [
        (("en", "de"), ["a", "c"], ["b", "d"], 1),
        (("de", "en"), ["b", "d"], ["a", "c"], 1),
        (("EN_gb", "de"), ["c"], ["d"], 2),
        (("en-US", "en-GB"), ["a"], ["x"], 2),
        (("fr", "en"), ["e"], ["f"], 2),
    ],
)
def test_languages_by_name(read, columns, sources, targets, skipped):
    units = (unit(en_US="a", de="b", en_GB="x"), unit(de_DE="d", en_GB="c"), unit(eng="no", en="f", fr="e"))
    if columns[0] == "EN_gb":
        units = (unit(en_US="a", de="b"), *units[1:])
    assert read(document(*units), columns) == (Pairs(sources, targets), skipped)


def test_an_exact_language_goes_before_its_regions(read):
    assert read(document(unit(en_GB="x", en="a", de="b")), ("en", "de"))[0].sources == ["a"]


def test_units_of_one_language_in_two_regions(read):
    assert read(document(unit(pt_BR="a", pt_PT="b"), unit(pt_PT="d", pt_BR="c")))[0] == Pairs(["a", "c"], ["b", "d"])


def test_inline_elements(read):
    source = (
        'Press <bpt i="1">{\\b <sub>code</sub></bpt><hi type="key">Enter <ph x="1"/>now</hi><ept i="1">}</ept>'
        '<it pos="begin">&lt;i&gt;</it>, then<ut>{\\f1}</ut> wait &amp; see&#33;<![CDATA[ <ok> ]]><foo>!</foo>'
    )
    found, _ = read(document(unit(en=source, de="<ph>alles</ph>")))
    assert found == Pairs(["Press Enter now, then wait & see! <ok> !"], [""])


def test_line_breaks_and_indentation(read):
    source = "\n      Two lines\r\n\t of text  \n\n  and&#13;&#10;more \u2028 .\n    "
    found, _ = read(document(unit(en=source, de=" Ein Text ")))
    assert found == Pairs(["Two lines of text and more \u2028 ."], [" Ein Text "])


def test_other_elements_and_older_versions(read):
    content = """<tmx version="1.1"><header><note>head</note><prop type="x">y</prop></header><body>
      <tu tuid="1"><note>note</note><prop type="p">prop</prop>
        <tuv lang="EN"><prop type="q">prop</prop><seg>a</seg></tuv>
        <tuv lang="DE"><seg>b</seg><seg>second</seg></tuv></tu>
      <seg>stray</seg><tuv xml:lang="en"><seg>stray</seg></tuv></body></tmx>"""
    assert read(content) == (Pairs(["a"], ["b"]), 0)


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "iso-8859-1", "windows-1252"])
def test_encodings(read, codec):
    declared = "utf-8" if codec == "utf-8-sig" else "utf-16" if codec.startswith("utf-16") else codec
    content = document(unit(en="caf\u00e9 \u00fc", de="b"), head=f'<?xml version="1.0" encoding="{declared}"?>')
    data = content.encode(codec)
    data = b"\xfe\xff" + data if codec == "utf-16-be" else data
    assert read(data)[0] == Pairs(["caf\u00e9 \u00fc"], ["b"])


@pytest.mark.parametrize("codec", ["nonsense", "shift_jis"])
def test_unknown_encodings(refused, codec):
    said = refused(document(unit(en="a", de="b"), head=f'<?xml version="1.0" encoding="{codec}"?>'))
    assert said.endswith((" Convert the file to UTF-8.", " Export the translation memory again."))
    assert "encoding" in said


def test_a_document_type_without_entities(read):
    doctypes = (
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd">',
        '<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for Translation Memory eXchange//EN" "http://192.0.2.1/tmx14.dtd">',
        '<!DOCTYPE tmx [<!ELEMENT tmx (header, body)><!ATTLIST tmx version CDATA #REQUIRED oops CDATA "default">]>',
    )
    for doctype in doctypes:
        assert read(document(unit(en="a &lt; c", de="b"), head=doctype))[0] == Pairs(["a < c"], ["b"])


LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))


@pytest.mark.parametrize(
    ("inside", "text", "entity"),
    [
        (f'<!ENTITY l0 "lol">{LAUGHS}', "&l9;", "l0"),
        (f'<!ENTITY long "{"x" * 100_000}">', "&long;" * 10_000, "long"),
        ('<!ENTITY harmless "a">', "no use of it", "harmless"),
        ('<!ENTITY outside SYSTEM "SECRET">', "&outside;", "outside"),
        ('<!ENTITY outside PUBLIC "x" "http://192.0.2.1/x">', "&outside;", "outside"),
        ('<!ENTITY % outside SYSTEM "SECRET"> %outside;', "text", "outside"),
        ('<!NOTATION n SYSTEM "n"><!ENTITY picture SYSTEM "SECRET" NDATA n>', "text", "picture"),
    ],
)
def test_entities_are_refused_where_they_are_declared(refused, tmp_path, inside, text, entity):
    secret = tmp_path / "secret"
    secret.write_text('<!ENTITY a "the secret">the secret')
    inside = inside.replace("SECRET", f"file://{secret}")
    begin = time.perf_counter()
    said = refused(document(unit(en="a", de="b"), unit(en=text, de="b"), head=f"<!DOCTYPE tmx [\n{inside}]>"))
    assert said == (
        f", line 2: the file declares an entity ({entity}), which could grow without end or point to another file. "
        "Write the text itself instead of the entity."
    )
    assert time.perf_counter() - begin < 2


def test_entities_of_a_document_type_outside(refused, tmp_path):
    dtd = tmp_path / "evil.dtd"
    dtd.write_text('<!ENTITY outside "from the other file">')
    said = refused(document(unit(en="&outside;", de="b"), head=f'<!DOCTYPE tmx SYSTEM "file://{dtd}">'))
    assert said == ", line 3: the entity outside is not defined. Write the text itself instead of the entity."
    said = refused(document(unit(en="&outside;", de="b")))
    assert said.startswith(", line 3: the file is not well-formed XML (undefined entity).")


def test_long_defaults_are_refused(refused):
    doctype = f'<!DOCTYPE tmx [<!ATTLIST seg x CDATA "{"y" * 9_000}" z CDATA "{"y" * 9_000}">]>'
    said = refused(document(unit(en="a", de="b"), head=doctype))
    assert said == ", line 1: the DOCTYPE declares long default values. Remove the DOCTYPE."


def test_deep_nesting(refused, read):
    deep = "<hi>" * 50 + "a" + "</hi>" * 50
    assert read(document(unit(en=deep, de="b")))[0] == Pairs(["a"], ["b"])
    deep = "<hi>" * 100_000
    assert (
        refused(document(unit(en=deep, de="b"))) == ", line 3: elements are nested more than 64 deep. Give a TMX file."
    )


def test_long_units_and_tags(refused, monkeypatch, read):
    long = "x" * (3 << 20)
    assert len(read(document(unit(en=long, de="b")))[0].sources[0]) == 3 << 20
    monkeypatch.setattr(tmx_pairs, "MAX_UNIT", 2 << 20)
    assert refused(document(unit(en=long, de="b"))) == (
        ", line 3: the translation unit is longer than 2 MiB. Remove it."
    )
    assert refused(document(unit(en="a", de="b"), unit(en=long[:1_200_000], de=long[:1_200_000]))).startswith(
        ", line 4: the translation unit"
    )
    for evil in (f"<tu x='{long * 3}'></tu>", f"<!-- {long * 3} -->", f"<?pi {long * 3}?>"):
        said = refused(document(unit(en="a", de="b"), evil))
        assert said == ", line 4: a tag or comment is longer than 2 MiB. Remove it."


def test_memory_stays_small(tmp_path):
    path = tmp_path / "memory.tmx.gz"
    one = unit(en="some words of a sentence" * 40, de="noch ein paar Wörter" * 40)
    path.write_bytes(gzip.compress(document(*[one] * 12_000).encode(), 1))
    tracemalloc.start()
    try:
        assert sum(len(chunk) for chunk in open_pairs([path]).chunks(size=500)) == 12_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 14 << 20 < 12_000 * len(one)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (document(unit(en="a", de="b"))[:-9], "unclosed token"),
        (document(unit(en="a", de="b"))[:-15], "no element found"),
        (document(unit(en="a", de="b")).replace("</seg>", "", 1), "mismatched tag"),
        (document(unit(en="a & b", de="b")), "not well-formed (invalid token)"),
        (document(unit(en="a", de="b")).encode().replace(b">a<", b">\xff<"), "not well-formed (invalid token)"),
        ("no XML", "syntax error"),
    ],
)
def test_broken_xml(refused, content, said):
    assert refused(content).endswith(
        f": the file is not well-formed XML ({said}). Export the translation memory again."
    )


def test_what_is_no_translation_memory(refused):
    assert (
        refused("<html><body/></html>")
        == ", line 1: a TMX file begins with the element tmx, not html. Give a TMX file."
    )
    none = ": no translation unit holds {} (languages met: {}). Choose two languages of the file with columns."
    assert refused(document()) == none.format("two languages", "none")
    assert refused(document(unit(en="a"), unit(de="b"))) == none.format("two languages", "en, de")
    assert refused(document(unit(en="a", de="b")), ("en", "fr")) == none.format("en and fr", "en, de")
