"""The certificate: what is compared, what is above a tolerance, and that nothing false is ever certified."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_toys import LINES, bert, gpt, sentences, translator

from regard.core.errors import ConfigError, DataError
from regard.core.search_config import SearchConfig
from regard.exchange.parity import FLOAT32, PARITY, About, ParityError, Questions, Side, Tolerance, certify, compare
from regard.exchange.parity_questions import questions_for
from regard.exchange.parity_sides import on_cpu, plain_search, regard_side, weights_sha256


def side(name: str, shift: float = 0.0, change: int = 0) -> Side:
    """Gives arrays of each case's length, and texts; `change` of these are others."""
    return Side(
        name=name,
        scores=lambda cases: (np.full((n, 3), -1.0 + shift) for n in cases),
        outputs=lambda texts: [text + ("!" if i < change else "") for i, text in enumerate(texts)],
    )


def about(**changes: Any) -> About:
    given = {"target": "toy", "compute": "float32", "model": "none", "measure": "numbers", "before": "a"}
    return About(**{**given, "weights": lambda: "a", **changes})


QUESTIONS = Questions(cases=[2, 5], texts=["one two three four five", "b", "c", "d"], origin="here")


def test_differences_and_outputs_are_counted():
    found = compare(side("ours"), side("theirs", 0.25, 1), QUESTIONS)
    assert (found.cases, found.numbers, found.largest, found.mean) == (2, 21, 0.25, 0.25)
    assert (found.texts, found.identical, found.share) == (4, 3, 0.75)
    assert found.different == [
        {"text": "one two three four five", "ours": "one two three four five", "theirs": "one two three four five!"}
    ]
    assert found.bleu is None


def test_bleu_is_compared_where_there_are_references():
    questions = Questions(cases=[1], texts=QUESTIONS.texts, references=QUESTIONS.texts)
    found = compare(side("ours"), side("theirs", 0, 1), questions)
    assert found.bleu is not None
    assert found.bleu["ours"] == pytest.approx(100)
    assert found.bleu["theirs"] < 100
    assert found.bleu["difference"] == pytest.approx(found.bleu["theirs"] - found.bleu["ours"], abs=1e-3)
    assert "BLEU differs by -" in " ".join(found.faults(Tolerance(bleu=0.1)))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_a_difference(wrong):
    other = Side(name="theirs", scores=lambda cases: [np.full((n, 3), wrong) for n in cases])
    found = compare(side("ours"), other, QUESTIONS)
    assert found.largest == (999 if wrong < 0 else math.inf)
    assert found.faults(FLOAT32)
    same = compare(other, other, QUESTIONS)
    assert same.largest == (math.inf if math.isnan(wrong) else 0.0)
    assert compare(side("ours", -1e4), side("theirs", -2e4), QUESTIONS).largest == 0.0  # both never


def test_sides_that_answer_something_else_are_an_error():
    short = Side(name="theirs", scores=lambda cases: [np.zeros(1)] * len(cases))
    with pytest.raises(ParityError, match=r"shape \[2, 3\], theirs of \[1\]"):
        compare(side("ours"), short, QUESTIONS)
    few = Side(name="theirs", scores=lambda cases: (np.zeros((n, 3)) for n in cases[:1]))
    with pytest.raises(ValueError, match="shorter"):
        compare(side("ours"), few, QUESTIONS)
    silent = Side(name="theirs", scores=side("x").scores, outputs=lambda texts: [])
    with pytest.raises(ParityError, match="4 and 0 outputs for 4 texts"):
        compare(side("ours"), silent, QUESTIONS)


def test_a_certificate_is_written_beside_the_files(tmp_path: Path):
    (tmp_path / "weights.bin").write_bytes(b"12345")
    found = certify(
        tmp_path,
        ours=side("ours"),
        theirs=side("theirs", 1e-6),
        questions=QUESTIONS,
        tolerance=FLOAT32,
        about=about(notes=["a note"]),
    )
    assert json.loads((tmp_path / PARITY).read_text()) == found
    assert found["passed"] is True
    assert found["largest_difference"] == pytest.approx(1e-6)
    assert found["identical_outputs"] == 1.0
    assert found["weights"] == {"before": "a", "after": "a"}
    assert found["files"]["weights.bin"]["bytes"] == 5
    assert found["tolerance"] == {"difference": 1e-3, "identical": 0.97, "bleu": 0.1}
    assert found["questions"]["from"] == "here"
    assert {"regard", "python", "torch", "numpy"} <= found["versions"].keys()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"theirs": side("theirs", 0.01)}, "largest difference is 0.01"),
        ({"theirs": side("theirs", 0, 1)}, "3 of 4 outputs are the same"),
        ({"about": about(weights=lambda: "b")}, "changed the weights of the live model"),
    ],
    ids=["numbers", "outputs", "weights"],
)
def test_above_the_tolerance_there_is_no_certificate(tmp_path: Path, changes: dict[str, Any], words: str):
    usual = {"theirs": side("theirs"), "about": about()}
    with pytest.raises(ParityError, match=words):
        certify(tmp_path, ours=side("ours"), questions=QUESTIONS, tolerance=FLOAT32, **{**usual, **changes})
    assert not (tmp_path / PARITY).exists()


def test_tolerances_and_questions_are_checked():
    for wrong in ({"difference": -1.0}, {"difference": math.nan}, {"identical": 1.1}, {"bleu": -0.1}):
        with pytest.raises(ConfigError, match="tolerance"):
            Tolerance(**wrong)
    with pytest.raises(ConfigError, match="nothing to compare"):
        Questions(cases=[])
    with pytest.raises(ConfigError, match="1 references for 2 sentences"):
        Questions(cases=[1], texts=["a", "b"], references=["c"])


def test_the_hash_of_weights_sees_every_bit():
    model = gpt().model
    before = weights_sha256(model)
    assert weights_sha256(gpt().model) == before
    with torch.no_grad():
        model.decoder[1].feedforward.out.weight.view(torch.int32)[3, 4] ^= 1
    assert weights_sha256(model) != before


@pytest.mark.parametrize(
    "task",
    [translator(), gpt(), bert(), bert("bert-classifier", True), bert("bert-tagger")],
    ids=lambda t: type(t).__name__,
)
def test_regard_agrees_with_itself_on_every_kind_of_question(task, tmp_path):
    questions = questions_for(task, sentences(tmp_path))
    assert questions.texts == LINES
    assert len(questions.cases) == len(LINES) + 16
    found = compare(regard_side(task), regard_side(on_cpu(task)), questions)
    assert (found.largest, found.share) == (0.0, 1.0)
    assert found.numbers >= 3 * len(questions.cases)


def test_bundled_sentences_have_references_where_the_languages_are_known():
    task = translator(search=SearchConfig(beam=1, max_length=2))
    unknown = questions_for(task)
    assert unknown.references == []
    task.config = {"data": {"source_language": "de", "target_language": "en"}}
    known = questions_for(task)
    assert len(known.references) == len(known.texts) > 30
    assert known.language == "en"
    assert known.texts[0] != unknown.texts[0]  # English, where nothing is known


def test_sentences_that_cannot_be_compared_are_named(tmp_path):
    task = gpt(context=12)
    path = tmp_path / "lines"
    path.write_text("\nRain.\n" + "rain " * 50 + "\n")
    found = questions_for(task, path)
    assert list(found.texts) == ["Rain."]
    assert "2 lines left out" in found.origin
    path.write_text("\n")
    with pytest.raises(DataError, match="none of its sentences"):
        questions_for(task, path)
    with pytest.raises(DataError, match="only translations are compared with references"):
        questions_for(task, path, path)
    with pytest.raises(DataError, match="--sentences too"):
        questions_for(translator(), None, path)
    path.write_text("a\nb\n")
    (tmp_path / "other").write_text("a\n")
    with pytest.raises(DataError, match="it has 1 lines, and"):
        questions_for(translator(), path, tmp_path / "other")


def test_the_penalty_of_other_programs_is_near_gnmts():
    task = translator()
    assert plain_search(task.search).length_norm == "plain"
    plain = plain_search(SearchConfig(alpha=0.6, no_repeat_ngram=3, nbest=2))
    assert (plain.alpha, plain.no_repeat_ngram, plain.nbest, plain.max_repeat) == (0.48, 0, 1, 0)


def test_texts_that_were_cut_are_not_compared():
    cut = Side(name="ours", scores=side("ours").scores, outputs=lambda texts: [None, *texts[1:]])
    questions = Questions(cases=[1], texts=QUESTIONS.texts, references=QUESTIONS.texts)
    found = compare(cut, side("theirs", 0, 2), questions)
    assert (found.texts, found.identical) == (3, 2)
    none = Side(name="ours", scores=side("ours").scores, outputs=lambda texts: [None] * len(texts))
    found = compare(none, side("theirs"), questions)
    assert (found.share, found.bleu, found.faults(FLOAT32)) == (None, None, [])
