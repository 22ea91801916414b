"""Reading and dividing tagged text."""

from __future__ import annotations

import gzip
import lzma

import pytest

from regard.core.errors import ConfigError, DataError
from regard.data.bundle import TAGGED, bundled_names, bundled_path
from regard.data.corpus_config import DataConfig
from regard.data.tagged import load_tagged, read_tagged

COLUMNS = "the DT B-NP\ncat NN I-NP\nsleeps VBZ B-VP\n\nit PRP B-NP\nruns VBZ B-VP\n. . O\n"
CONLLU = """# sent_id = invented-1
# text = They don't swim.
1\tThey\tthey\tPRON\tPRP\t_\t4\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tswim\tswim\tVERB\tVB\t_\t0\troot\t_\tSpaceAfter=No
4.1\tswim\tswim\tVERB\tVB\t_\t_\t_\t_\t_
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_

# sent_id = invented-2
1\t#\t#\tSYM\t#\t_\t0\troot\t_\t_
2\t1\t1\tNUM\tCD\t_\t1\tnummod\t_\t_
"""


@pytest.fixture
def write(tmp_path):
    def put(content: str | bytes, name: str = "text.conll") -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    return put


def many(count: int) -> str:
    return "".join(f"word{i} A\nmore B\n\n" for i in range(count))


def test_the_first_column_is_the_word_and_the_last_its_tag(write):
    found = read_tagged(write(COLUMNS))
    assert found.part.words == [["the", "cat", "sleeps"], ["it", "runs", "."]]
    assert found.part.tags == [["B-NP", "I-NP", "B-VP"], ["B-NP", "B-VP", "O"]]
    assert found.lines == [[1, 2, 3], [5, 6, 7]]
    assert (len(found.part), found.part.size) == (2, 6)


@pytest.mark.parametrize(("column", "expected"), [("2", "DT"), ("3", "B-NP")])
def test_another_column_may_be_the_tag(write, column, expected):
    assert read_tagged(write(COLUMNS), column).part.tags[0][0] == expected


def test_with_tabs_a_word_may_have_a_space(write):
    assert read_tagged(write("10 000\tNUM\r\nmen\tNOUN\r\n")).part.words == [["10 000", "men"]]


def test_documents_and_comments_are_left_out(write):
    text = "# a comment of this kind\n-DOCSTART- -X- O O\n\n# sent_id = 5 6\nthe DT O\n-DOCSTART-\na DT O\n# # O\n"
    found = read_tagged(write(text)).part
    assert found.words == [["the"], ["a", "#"]]


def test_a_pound_sign_is_a_word_where_it_has_the_columns_of_one(write):
    assert read_tagged(write("# # O\n5 CD B-NP\n\n# # I-NP\n")).part.words == [["#", "5"], ["#"]]
    assert read_tagged(write("#\tSYM\nx\tNOUN\n")).part.tags == [["SYM", "NOUN"]]


@pytest.mark.parametrize("name", ["text.conllu", "text.txt"])
def test_conllu_is_known_by_its_ending_and_by_its_content(write, name):
    found = read_tagged(write(CONLLU, name))
    assert found.part.words == [["They", "do", "n't", "swim", "."], ["#", "1"]]
    assert found.part.tags == [["PRON", "AUX", "PART", "VERB", "PUNCT"], ["SYM", "NUM"]]
    assert found.lines[0] == [3, 5, 6, 7, 9]


@pytest.mark.parametrize(("column", "expected"), [("upos", "PRON"), ("XPOS", "PRP"), ("3", "they"), ("8", "nsubj")])
def test_columns_of_conllu_have_names(write, column, expected):
    assert read_tagged(write(CONLLU), column).part.tags[0][0] == expected


@pytest.mark.parametrize(("packed", "ending"), [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
def test_packed_files_are_read(write, packed, ending):
    assert len(read_tagged(write(packed(CONLLU.encode()), f"text.conllu{ending}")).part) == 2


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("the DT O\ncat NN\n", 2, "3 columns are expected, got 2"),
        ("the DT O\ncat NN O O\n", 2, "3 columns are expected, got 4"),
        ("the\tDT\n\ncat NN\n", 3, "2 tab-separated columns are expected, got 1"),
        ("the\tDT\ncat\t\n", 2, "the word 'cat' has no tag"),
        ("the\tDT\n \tNN\n", 2, "the tag 'NN' has no word"),
        ("the DT\n# a comment inside\ncat NN\n", 2, "2 columns are expected, got 4"),
        ("the\n", 1, "a word and its tag are expected"),
        ("the DT\nc\0t NN\n", 2, "null character"),
        (f"the DT\ncat {'N' * 201}\n", 2, "201 characters"),
        ("a A\n" * 10_001, 10_001, "more than 10,000 words"),
        (b"the DT\ncr\xe8me NN\n", 2, "not UTF-8"),
        (CONLLU.replace("\tnsubj\t_\t_", "\tnsubj\t_"), 3, "10 tab-separated columns are expected, got 9"),
        (CONLLU.replace("2\t1\t1", "3\t1\t1"), 13, "word 2 of the sentence is expected, got 3"),
        (CONLLU.replace("\n\n", "\n"), 10, "10 tab-separated columns are expected, got 1"),
        (CONLLU.replace("2\t1\t1", "x\t1\t1"), 13, "number of a word"),
        (CONLLU.replace("\tNUM\t", "\t_\t"), 13, r"no tag \(_\) in column 4"),
        (CONLLU + "\n# sent_id = invented-3\n\n", 15, "has no words"),
        (CONLLU + "\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n", 15, "has no words"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number(write, content, line, message):
    path = write(
        content, "text.conllu" if b"\t_\t" in (content if isinstance(content, bytes) else content.encode()) else "t"
    )
    with pytest.raises(DataError, match=message) as caught:
        read_tagged(path)
    assert caught.value.where == f"{path}, line {line}"


@pytest.mark.parametrize("content", ["", "\n \n", "# only\n", "-DOCSTART- O\n\n"])
def test_a_file_without_words_is_refused(write, content):
    with pytest.raises(DataError, match=r"empty|no word|a word and its tag"):
        read_tagged(write(content))


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl.gz", "conll2000.zip"])
def test_other_formats_are_refused(write, name):
    with pytest.raises(DataError, match="from columns only"):
        read_tagged(write(COLUMNS, name))


@pytest.mark.parametrize("address", ["-", "hf:conll2003"])
def test_only_files_are_read(address):
    with pytest.raises(DataError, match="files only"):
        load_tagged(DataConfig(tagged=address))


@pytest.mark.parametrize(("content", "column"), [(COLUMNS, "upos"), (COLUMNS, "4"), (COLUMNS, "1"), (COLUMNS, "x")])
def test_a_column_that_is_none_is_refused(write, content, column):
    with pytest.raises(ConfigError, match="tag_column"):
        read_tagged(write(content), column)
    with pytest.raises(ConfigError, match="words stand in column 2"):
        read_tagged(write(CONLLU), "2")


def test_one_tag_only_is_refused(write):
    with pytest.raises(DataError, match="all its 2 words have one tag, 'A'"):
        load_tagged(DataConfig(tagged=write("a A\nb A\n")))


def test_a_column_of_words_is_refused(write):
    text = "".join(f"w{i} {i % 7} x{i}\n\n" for i in range(60))
    with pytest.raises(DataError, match=r"60 words have 60 tags.*data\.tag_column"):
        load_tagged(DataConfig(tagged=write(text)))
    assert len(load_tagged(DataConfig(tagged=write(text), tag_column="2")).labels) == 7


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_tag_that_training_does_not_have_is_refused_with_its_line(write, part):
    held = write("a A\n\nb B\nc C\n", "held.conll")
    with pytest.raises(DataError, match=r"does not have the tag 'C'; it has 'A', 'B'") as caught:
        load_tagged(DataConfig(tagged=write(many(30)), **{f"{part}_tagged": held}))
    assert caught.value.where == f"{held}, line 4"


def test_of_chunks_both_marks_of_a_kind_are_labels(write):
    held = write("( B-LST\na I-LST\n", "held.conll")
    corpus = load_tagged(DataConfig(tagged=write("a B-LST\nb O\n"), valid_size=-1, test_tagged=held))
    assert corpus.labels == ("B-LST", "I-LST", "O")


def test_parts_are_held_out_so_that_no_sentence_stands_on_two_sides(write):
    text = many(300) + "Word7 A\nmore! B\n\n" * 5
    corpus = load_tagged(DataConfig(tagged=write(text), valid_size=100, test_size=100))
    assert (len(corpus.valid), len(corpus.test)) == (100, 100)
    sides = [set(part.draws(0).tolist()) for part in (corpus.train, corpus.valid, corpus.test)]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 300
    assert len(corpus.train) + 200 + corpus.set_apart == 305
    assert corpus.labels == ("A", "B")


def test_the_same_text_gives_the_same_parts_and_fingerprint(write):
    first, second = (load_tagged(DataConfig(tagged=write(many(40), name))) for name in ("a.txt", "b.txt"))
    assert first.fingerprint == second.fingerprint
    assert first.valid == second.valid
    other = load_tagged(DataConfig(tagged=write(many(40).replace("more B", "more C", 1))))
    assert other.fingerprint != first.fingerprint


def test_holding_out_everything_is_refused(write):
    with pytest.raises(DataError, match="3 validation and 2 test sentences of 5"):
        load_tagged(DataConfig(tagged=write(many(5)), valid_size=3, test_size=2))


def test_what_matters_is_said(write):
    said: list[str] = []
    held = write("A B-X\n", "held.conll")
    load_tagged(DataConfig(tagged=write("a B-X\n\nb O\n"), test_tagged=held, valid_size=-1), said.append)
    assert said == [
        "Note: 1 test sentences are trained on too.",
        "Not in the training text, so never learnt: I-X",
        "3 tags: B-X 1, I-X 0, O 1",
    ]


def test_settings_of_other_text_are_refused_beside_tagged_text():
    with pytest.raises(ConfigError, match="tagged text"):
        DataConfig(tagged="t.conll", pairs="p.tsv")
    with pytest.raises(ConfigError, match="tag_column"):
        DataConfig(labelled="l.tsv", tag_column="2")


def test_the_bundled_part_of_the_web_treebank():
    assert bundled_names((TAGGED,)) == ["ud-ewt-test", "ud-ewt-train", "ud-ewt-valid"]
    config = DataConfig(
        tagged="bundled:ud-ewt-train", valid_tagged="bundled:ud-ewt-valid", test_tagged="bundled:ud-ewt-test"
    )
    corpus = load_tagged(config)
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [3983, 507, 530]
    assert len(corpus.labels) == 17
    about = bundled_path("ud-ewt-train").with_name("ud-ewt.LICENSE.md").read_text()
    assert "CC BY-SA 4.0" in about
    assert "Stanford" in about
    with pytest.raises(DataError, match="no tagged text of this name is bundled"):
        load_tagged(DataConfig(tagged="bundled:tinyshakespeare"))
