"""Scores of word vectors: analogies as compute-accuracy counts them, and rank correlations."""

from __future__ import annotations

import numpy as np
import pytest

from regard.core.errors import ConfigError, DataError
from regard.evaluation.word_similarity import Pair, ranks, read_similarity, spearman
from regard.evaluation.word_vectors import evaluate_analogies, evaluate_similarity, read_analogies
from regard.tasks.word_vectors import WordVectors

# the first four make a square; "King" is a rarer spelling that points elsewhere
WORDS = ["king", "queen", "man", "woman", "noise", "King", "rare"]
VECTORS = WordVectors(
    WORDS, np.array([[3, 1, 0], [3, -1, 0], [0, 1, 3], [0, -1, 3], [-1, 0, 0], [0, 0, -1], [3, -1.1, 0]])
)


@pytest.fixture
def write(tmp_path):
    def put(content: str, name: str = "questions.txt") -> str:
        (tmp_path / name).write_text(content, encoding="utf-8")
        return str(tmp_path / name)

    return put


QUESTIONS = """: family
Man KING woman Queen
queen woman king man
man king woman noise
: gram1-nothing
man king woman unknown
: gram2-things
woman queen man king
woman rare man king
"""


def test_sections_count_right_asked_and_skipped(write):
    report = evaluate_analogies(VECTORS, write(QUESTIONS), vocabulary=6)
    rows = [(row.section, row.right, row.asked, row.skipped) for row in report.rows()]
    assert rows == [
        ("family", 2, 3, 0),
        ("gram1-nothing", 0, 0, 1),
        ("gram2-things", 1, 1, 1),
        ("semantic", 2, 3, 0),
        ("syntactic", 1, 1, 2),
        ("total", 3, 4, 2),
    ]
    assert [row.accuracy for row in report.rows()][:3] == [pytest.approx(200 / 3), None, 100.0]
    assert report.vocabulary == 6
    scores = report.scores()
    assert scores["analogies"].value == 75
    assert "asked:4|skipped:2" in scores["analogies"].signature
    assert set(scores) == {"analogies", "semantic_analogies", "syntactic_analogies"}


def test_only_the_most_frequent_words_are_asked_and_answer(write):
    path = write(": family\nman king woman rare\n")
    assert evaluate_analogies(VECTORS, path, vocabulary=6).total.skipped == 1
    whole = evaluate_analogies(VECTORS, path, vocabulary=0)
    assert (whole.total.asked, whole.vocabulary) == (1, 7)
    few = evaluate_analogies(VECTORS, write(": family\nman king woman queen\n"), vocabulary=3)
    assert (few.total.asked, few.scores()) == (0, {})


def test_words_in_another_case_are_the_same_and_no_answers(write):
    """The vector is that of the more frequent spelling, and no spelling of a question's word is an answer."""
    rows = [
        [0, 0, 1],
        [1, 0, 1],
        [0, 1, 0],
        [0.707, 1, -0.293],
        [1, 1, -0.5],
        [0, 0, -1.0],
    ]  # "C" is where b - a + c is
    vectors = WordVectors(["a", "b", "c", "C", "d", "D"], np.array(rows))
    assert evaluate_analogies(vectors, write(": s\nA B C D\n")).total.right == 1


def test_many_questions_are_asked_in_parts(write, monkeypatch):
    path = write(": family\n" + "man king woman queen\n" * 9)
    monkeypatch.setattr("regard.evaluation.word_vectors._SCORES", 12)
    assert evaluate_analogies(VECTORS, path, 6).total.right == 9


@pytest.mark.parametrize(
    ("content", "message"), [(": s\na b c\n", "line 2.*3 words stand there"), (": s\n", "no questions in it")]
)
def test_broken_questions_are_errors(write, content, message):
    with pytest.raises(DataError, match=message):
        read_analogies(write(content))


def test_a_negative_vocabulary_is_refused(write):
    with pytest.raises(ConfigError, match="vocabulary"):
        evaluate_analogies(VECTORS, write(QUESTIONS), -1)


def test_equal_values_share_their_ranks():
    assert ranks(np.array([10.0, 20, 10, 5, 10])).tolist() == [3, 5, 3, 1, 3]


def test_spearman_is_the_textbook_formula_without_ties_and_pearson_of_ranks_with_them():
    draw = np.random.default_rng(2)
    a, b = draw.normal(size=50), draw.normal(size=50)
    differences = ranks(a) - ranks(b)
    assert spearman(a, b) == pytest.approx(1 - 6 * (differences**2).sum() / (50 * (50**2 - 1)), abs=1e-12)
    a, b = draw.integers(0, 5, 40).astype(float), draw.integers(0, 5, 40).astype(float)
    plain = [sum(y < x for y in a) + (sum(y == x for y in a) + 1) / 2 for x in a]
    others = [sum(y < x for y in b) + (sum(y == x for y in b) + 1) / 2 for x in b]
    assert spearman(a, b) == pytest.approx(float(np.corrcoef(plain, others)[0, 1]), abs=1e-12)
    assert spearman(np.ones(4), np.arange(4.0)) is None


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (",word1,word2,similarity\n0,King,queen,5.5\n1,man,noise,1\n", "like-men.csv"),
        ("Word 1,Word 2,Human (mean)\nKing,queen,5.50\nman,noise,1\n", "like-wordsim.csv"),
        ("word1\tword2\tPOS\tSimLex999\tconc(w1)\nKing\tqueen\tN\t5.5\t2\nman\tnoise\tN\t1\t3\n", "like-simlex.txt"),
        ("King queen 5.5\nman noise 1\n", "plain.txt"),
        ("King;queen;5.5\n\nman;noise;1\n", "semicolons.csv"),
        ("King-n queen-n 5.5\nman-v noise-j 1\n", "parts-of-speech.txt"),
        ("7\tKing\tqueen\t5.5\n8\tman\tnoise\t1\n", "numbered.tsv"),
    ],
)
def test_pairs_are_found_in_every_layout(write, content, name):
    assert read_similarity(write(content, name)) == [Pair("King", "queen", 5.5), Pair("man", "noise", 1.0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,1\na,b,x\n", "line 2.*'x' is no score"),
        ("a,b,1\na,b\n", "line 2.*2 columns stand there"),
        ("a,b,1\na,b,nan\n", "line 2.*no score"),
        ("a,b,1\n,b,1\n", "line 2.*a word is missing"),
        ("some,other,names,here\na,b,1,2\n", "line 1.*unclear"),
        ("one two\n", "line 1.*unclear"),
        ("5 6\n", "line 1.*two words and a score"),
        ("word1,word2,score\n", "no pairs"),
        ('a,"b,1\n', "line 1.*cannot be read"),
    ],
)
def test_broken_pairs_are_errors(write, content, message):
    with pytest.raises(DataError, match=message):
        read_similarity(write(content, "pairs.csv"))


def test_correlation_is_of_known_pairs_and_says_how_many(write):
    path = write("king,queen,9\nKing,noise,1\nman,WOMAN,8\nman,noise,2\nking,unknown,10\n", "small.csv")
    row = evaluate_similarity(VECTORS, path)
    cosines = [
        VECTORS.similarity(*pair) for pair in (("king", "queen"), ("King", "noise"), ("man", "woman"), ("man", "noise"))
    ]
    assert row.rho == pytest.approx(spearman(np.array(cosines), np.array([9.0, 1, 8, 2])))
    assert (row.name, row.known, row.pairs) == ("small", 4, 5)
    score = row.score()
    assert score is not None
    assert score.value == pytest.approx(100 * row.rho)
    assert "known:4|pairs:5" in score.signature


def test_too_few_known_pairs_have_no_correlation(write):
    row = evaluate_similarity(VECTORS, write("king,queen,9\na,b,1\nc,d,3\n", "few.csv"))
    assert (row.rho, row.known, row.score()) == (None, 1, None)
