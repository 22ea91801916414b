"""What is measured on a finished run, and how it is kept."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import pytest

import regard.comparing.measure as measuring
from regard.comparing.measure import fingerprints, measure, training_speed
from regard.comparing.plan import Request, measured_part, prepare_plan
from regard.comparing.results import (
    Failure,
    Plan,
    read_failure,
    read_result,
    read_results,
    read_text_lines,
    read_translations,
    result_path,
    run_folder,
    translations_path,
    write_failure,
    write_lines,
    write_plan,
    write_result,
)
from regard.core.errors import CheckpointError
from regard.core.files import read_json, write_json
from regard.data.split import Pairs
from regard.evaluation.run import evaluate
from regard.training.progress import Reporter

SETTINGS = [
    "data.valid_size=20", "data.test_size=20", "data.source_language=en", "data.target_language=de",
    "tokenizer.size=300", "model.width=16", "model.layers=1", "model.heads=2", "model.inner=32", "model.dropout=0.0",
    "train.steps=20", "train.batch_tokens=600", "train.warmup=5", "train.save_every=10", "train.threads=1",
]  # fmt: skip


@pytest.fixture
def compared(tiny_run, text_files, tmp_path) -> tuple[Path, Plan, Pairs]:
    """A comparison whose first run is finished: the tiny run's settings and text, which it shares."""
    files = {"src": str(text_files.src), "tgt": str(text_files.tgt)}
    request = Request(files=files, seeds=2, settings=SETTINGS)
    plan, corpus = prepare_plan(request, tmp_path / "out", Reporter(quiet=True))
    run = run_folder(tmp_path / "out", "transformer", 1)
    shutil.copytree(tiny_run, run, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    write_plan(tmp_path / "out", plan)
    return tmp_path / "out", plan, measured_part(corpus)[1]


def test_a_run_is_measured_as_evaluation_does(compared, tmp_path):
    folder, plan, test = compared
    result, written = measure(folder, plan, plan.entries[0], 1, test)
    run = run_folder(folder, "transformer", 1)
    write_lines(tmp_path / "s", test.sources)
    write_lines(tmp_path / "r", test.targets)
    expected = evaluate(run, src=tmp_path / "s", ref=tmp_path / "r", device="cpu").system
    assert written == expected.translations
    assert result.scores == {name: expected.scores[name] for name in ("bleu", "chrf")}
    assert result.perplexity == pytest.approx(expected.perplexity)
    assert result.scores["bleu"].value == pytest.approx(read_json(run / "scores.json")["scores"]["bleu"]["value"])
    assert result.training.steps == 20
    assert result.training.tokens_per_second > 0
    assert result.decoding.sentences == 20
    assert result.pairs + result.left_out == read_json(run / "data.json")["pairs"]["train"]
    assert result.versions == read_json(run / "run.json")["versions"]
    assert result.machine == plan.machine
    assert result.commands == ("regard train recipes/transformer.toml --out runs/transformer/seed-1 train.seed=1",)
    assert [step for step, _ in result.curve] == [10, 20]
    assert result.device == "cpu, 1 threads"
    alignment = result.alignment
    assert alignment is not None
    assert alignment.source[-1] == "</s>"
    assert len(alignment.weights) == len(alignment.target)
    for row in alignment.weights:
        assert sum(row) == pytest.approx(1, abs=0.01)

    write_result(folder, result, written)
    assert read_result(folder, "transformer", 1) == result
    assert read_translations(folder, result) == written
    write_failure(folder, Failure(entry="transformer", seed=2, reason="a\nb", details="ü", exit=-9))
    results, failures = read_results(folder)
    assert [r.seed for r in results] == [1]
    assert failures == [read_failure(folder, "transformer", 2)]
    assert failures[0].exit == -9

    translations_path(folder, "transformer", 1).write_text("one line\n")
    with pytest.raises(CheckpointError, match="it has 1 lines, the test text had 20"):
        read_translations(folder, result)
    for key, wrong in (("parameters", -1), ("scores", {}), ("perplexity", "x"), ("curve", [[1]]), ("seed", 7)):
        row = read_json(result_path(folder, "transformer", 1))
        write_json(result_path(folder, "transformer", 2), {**row, "seed": 2, key: wrong})
        with pytest.raises(CheckpointError, match="is not what it should be"):
            read_result(folder, "transformer", 2)


def test_decoding_is_timed_again_until_the_clock_has_run_long_enough(compared, monkeypatch):
    folder, test = compared[0], compared[2].head(4)
    translator = measuring.Translator.load(run_folder(folder, "transformer", 1), "cpu")
    for ticks, rounds, seconds in (
        ([0.5, 0.9, 0.7], 3, 0.7),  # the median of what is over two seconds
        ([4.0], 1, 4.0),
        ([0.1, 0.1, 0.3, 0.2, 0.1], 5, 0.1),
    ):
        clock, taken = [0.0], iter([9.0, *ticks])  # the first is the warm-up, which does not count
        really = measuring.Translator.hypotheses

        def slowly(self, texts, *, clock=clock, taken=taken, really=really, **rest):
            clock[0] += next(taken, 0.0)
            return really(self, texts, **rest)

        with monkeypatch.context() as patch:
            patch.setattr(measuring.Translator, "hypotheses", slowly)
            patch.setattr(measuring.time, "monotonic", lambda clock=clock: clock[0])
            _, decoding = measuring._decode(translator, test)
        assert (decoding.rounds, decoding.seconds) == (rounds, pytest.approx(seconds))
        assert decoding.tokens_per_second == pytest.approx(decoding.tokens / seconds, abs=0.1)
        assert decoding.sentences_per_second == pytest.approx(4 / seconds, abs=0.01)
        assert decoding.batch_tokens >= 256


def test_another_text_or_tokenizer_is_refused(compared):
    folder, plan, test = compared
    for name, what in (("data", "text"), ("tokenizer", "tokenizer")):
        prints = fingerprints(run_folder(folder, "transformer", 1)) | {name: "another"}
        with pytest.raises(CheckpointError, match=f"its {what} is not that of the other runs"):
            measure(folder, dataclasses.replace(plan, fingerprints=prints), plan.entries[0], 1, test)


def test_lines_stay_lines(tmp_path):
    write_lines(tmp_path / "x", ["a\r\nb", "", "c\u2028d\x85e", "ü"])
    assert read_text_lines(tmp_path / "x") == ["a b", "", "c d e", "ü"]


def test_speed_is_over_steps_without_the_first_line():
    rows = [
        {"step": 10, "tokens_per_second": 1},
        {"step": 10, "valid_nll": 3.0},
        {"step": 20, "tokens_per_second": 100},
        {"step": 30, "tokens_per_second": 300},
    ]
    assert training_speed(rows) == pytest.approx(2 / (1 / 100 + 1 / 300))
    assert training_speed(rows[:1]) == 1
    assert training_speed([]) == 0
    assert math.isfinite(training_speed([{"step": 5, "tokens_per_second": 0}]))
