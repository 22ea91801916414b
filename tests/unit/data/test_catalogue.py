"""The catalogue of known corpora: whole, safe, current in the documentation, and found by name."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from regard.core.errors import DataError
from regard.data.catalogue import Corpus, catalogue, find_corpus, parse_catalogue, readable_size

ROOT = Path(__file__).parents[3]
ENTRY = """
[toy]
about = "a"
task = "translation"
languages = ["en"]
amount = "1"
licence = "none"
attribution = "nobody"
home = "https://example.org/"
facts = "made up"
base = "https://example.org/data/"
downloads = { "a.zip" = { bytes = 7, checksum = "md5:00000000000000000000000000000000" }, "b.txt" = {} }
files = { "x" = { from = ["a.zip!in/x", "a.zip!in/y"] }, "b.txt" = { from = "b.txt", bytes = 3 } }
"""
CORPORA = list(catalogue().values())


def test_documentation_is_current():
    spec = importlib.util.spec_from_file_location("make_corpora", ROOT / "docs" / "make_corpora.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "corpora.md").read_text(encoding="utf-8") == module.text(), "run docs/make_corpora.py"


def test_what_later_work_needs_is_known():
    names = set(catalogue())
    needed = {"multi30k", "multi30k-tok", "tatoeba-en-de", "europarl-de-en", "wmt14-en-de", "wmt-dev", "iwslt14-de-en"}
    assert needed | {"wikitext-2", "wikitext-103", "ptb", "tinyshakespeare", "text8", "conll2000", "sst2"} <= names


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)
def test_every_entry_says_everything(corpus: Corpus):
    for field in ("about", "task", "amount", "licence", "attribution", "home", "facts"):
        text = getattr(corpus, field)
        assert text, field
        assert "|" not in text  # it would break the table of the documentation
    assert corpus.languages
    assert corpus.home.startswith("https://")
    names = [file.name for file in corpus.files]
    assert len(names) == len(set(names))
    assert not {"SOURCE.json", "LICENCE.txt"} & set(names)
    if any(file.checksum or file.size for file in (*corpus.downloads, *corpus.files)):
        assert re.search("SHA-256|MD5", corpus.facts), "a checksum needs a source"


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: corpus.name)
def test_commands_to_go_on_with_exist(corpus: Corpus):
    from typer.main import get_command

    from regard.cli.main import app
    from regard.training.config import SECTIONS, recipe_names

    options = {option for parameter in get_command(app).commands["train"].params for option in parameter.opts}
    files = {file.name for file in corpus.files}
    for command in corpus.commands(Path("DIR")):
        words = shlex.split(command)
        assert words[0] == "regard"
        assert words[1:3] == ["data", "check"] or words[1] == "train"
        assert set(re.findall(r"DIR/(\S+)", command)) <= files
        if words[1] == "train":
            assert {word for word in words if word.startswith("--")} <= options
            settings = [word for word in words if "=" in word]
            for setting in settings:
                section, key = setting.split("=")[0].split(".")
                assert key in {field.name for field in dataclasses.fields(SECTIONS[section])}
            plain = [w for w, before in zip(words[2:], words[1:], strict=False) if w[0] != "-" and before[0] != "-"]
            assert {word for word in plain if "=" not in word} <= set(recipe_names())


def test_commands_are_quoted():
    commands = find_corpus("tatoeba").commands(Path("my data"))
    assert commands[0] == "regard data check 'my data/eng-deu.tsv'"
    assert commands[1].endswith("'data.pairs=my data/eng-deu.tsv' 'data.columns=[0,1]'")


def test_names_and_aliases():
    assert find_corpus("wmt14").name == "wmt14-en-de"
    assert find_corpus(" PTB ").name == "ptb"
    aliases = [alias for corpus in CORPORA for alias in corpus.aliases]
    assert len(set(aliases) | set(catalogue())) == len(aliases) + len(catalogue())
    with pytest.raises(DataError, match=r"^corpus 'multi3k': no corpus of this name is known\. Did you mean multi30k"):
        find_corpus("multi3k")
    with pytest.raises(DataError, match="opus100-de-en"):
        find_corpus("op")  # too short to be near anything
    with pytest.raises(DataError, match="regard data get --list"):
        find_corpus("zzzzzz")


def test_an_entry_is_read():
    corpus = parse_catalogue(ENTRY)["toy"]
    archive, text = corpus.downloads
    assert archive.url == "https://example.org/data/a.zip"
    assert (archive.size, archive.checksum) == (7, "md5:" + 32 * "0")
    assert [piece.member for piece in corpus.files[0].pieces] == ["in/x", "in/y"]
    assert text.size == 3  # the download is the text itself
    assert corpus.download_size == 10


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("https://example.org/data/", "http://example.org/data/"),
        ('"x" =', '"../x" ='),
        ('"x" =', '"/x" ='),
        ("a.zip!in/x", "a.zip!../x"),
        ("a.zip!in/x", "other.zip!in/x"),
        ("md5:00", "md5:0"),
        ("md5:", "crc:"),
        ("bytes = 3", 'bytes = 3, as = "magic"'),
        ("bytes = 3", "bites = 3"),
        ("[toy]", "[Toy]"),
    ],
)
def test_a_wrong_entry_is_refused(old: str, new: str):
    assert old in ENTRY
    with pytest.raises(ValueError, match=r"."):
        parse_catalogue(ENTRY.replace(old, new))


def test_sizes_in_words():
    sizes = [None, 0, 999, 1000, 12_345_678, 1_700_000_000]
    assert [readable_size(n) for n in sizes] == ["not known", "0 bytes", "999 bytes", "1 kB", "12.3 MB", "1.7 GB"]
