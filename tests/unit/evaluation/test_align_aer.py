"""Alignment error rate: the definition, corpora, files of gold alignments and their mistakes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from regard.core.errors import DataError
from regard.evaluation.aer import AlignmentScore, Gold, GoldFile


def gold(sure: str, possible: str = "") -> Gold:
    links = [frozenset(tuple(map(int, link.split("-"))) for link in text.split()) for text in (sure, possible)]
    return Gold(links[0], links[0] | links[1])


def test_the_definition() -> None:
    """Och & Ney: A = {00, 11, 12, 22}, S = {00, 11, 33}, P = S and {12}."""
    score = AlignmentScore()
    score.add([(0, 0), (1, 1), (1, 2), (2, 2)], gold("0-0 1-1 3-3", "1-2"))
    assert score == AlignmentScore(pairs=1, links=4, sure=3, possible=4, links_sure=2, links_possible=3)
    assert score.precision == pytest.approx(3 / 4)
    assert score.recall == pytest.approx(2 / 3)
    assert score.aer == pytest.approx(1 - (2 + 3) / (4 + 3))


def test_a_corpus_is_counted_not_averaged() -> None:
    score = AlignmentScore()
    score.add([(0, 0)], gold("0-0"))
    score.add([(0, 1), (1, 0), (2, 2)], gold("0-0 1-1 2-2"))
    assert (score.pairs, score.precision, score.recall, score.aer) == (2, 0.5, 0.5, 0.5)  # the mean over lines: 1/3
    assert score.to_plain()["aer"] == 0.5
    assert str(score).startswith("AER 0.5000, precision 0.5000, recall 0.5000\n4 links in 2 pairs; gold: 4 sure,")


def test_all_right_and_nothing_to_count() -> None:
    perfect = AlignmentScore()
    perfect.add([(0, 0), (1, 1)], gold("0-0", "1-1"))
    assert (perfect.aer, perfect.precision, perfect.recall) == (0, 1, 1)
    empty = AlignmentScore()
    empty.add([], gold(""))
    assert (empty.aer, empty.precision, empty.recall) == (None, None, None)
    assert str(empty).startswith("AER undefined, precision undefined")
    silent = AlignmentScore()
    silent.add([], gold("0-0"))
    assert (silent.aer, silent.precision, silent.recall) == (1, None, 0)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("0-0 1?2  2p1 3-3 3?3\n\n 5-10\r\n")
    expected = [gold("0-0 3-3", "1-2 2-1"), gold(""), gold("5-10")]
    assert list(GoldFile(path)) == expected
    packed = tmp_path / "gold.gz"
    packed.write_bytes(gzip.compress(b"1-1 2?3 3p2 4-4\n\n6-11"))
    file = GoldFile(packed, from_one=True)
    assert list(file) == expected == list(file)
    file.check([(4, 4), (0, 0), (6, 11)])


@pytest.mark.parametrize(
    "word", ["x", "1", "1-", "-1", "1-2-3", "1:2", "1 - 2", "a-b", "-1-2", "1–2", "٣-1", "9" * 20 + "-1"]
)
def test_what_is_no_link(tmp_path: Path, word: str) -> None:
    path = tmp_path / "gold"
    path.write_text(f"0-0\n1-1 {word}\n")
    with pytest.raises(DataError, match=r"gold, line 2: '.+' is not a link\. Write links as 0-1"):
        list(GoldFile(path))


def test_counting_from_one_or_from_zero(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("1-1 2-2\n3-0\n")
    with pytest.raises(DataError, match=r"line 2: 3-0 has a 0.+Leave --gold-from-one out"):
        list(GoldFile(path, from_one=True))
    path.write_text("1-1 2-2\n")
    with pytest.raises(DataError, match=r"line 1: 2-2 is beyond .+ has 2 and 2.+add --gold-from-one"):
        GoldFile(path).check([(2, 2)])
    GoldFile(path, from_one=True).check([(2, 2)])
    for lengths, shown in (((1, 2), "2-2"), ((2, 1), "2-2"), ((0, 0), "1-1")):
        with pytest.raises(DataError, match=rf"line 1: {shown} is beyond") as caught:
            GoldFile(path, from_one=True).check([lengths])
        assert "--gold-from-one" not in str(caught.value)


@pytest.mark.parametrize(("lines", "pairs"), [(1, 3), (3, 1), (2, 0)])
def test_as_many_lines_as_pairs(tmp_path: Path, lines: int, pairs: int) -> None:
    path = tmp_path / "gold"
    path.write_text("0-0\n" * lines)
    with pytest.raises(DataError, match=f"gold: it has {lines} lines, and the text {pairs}"):
        GoldFile(path).check([(1, 1)] * pairs)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        GoldFile(tmp_path / "absent")
    (tmp_path / "empty").write_text("")
    with pytest.raises(DataError, match="is empty"):
        GoldFile(tmp_path / "empty")
