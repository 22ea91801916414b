"""Confidences: the regression against its definition, reliability against a count, and a translator calibrated."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

import regard
from regard.core.errors import CheckpointError, DataError
from regard.data.reading import open_pairs
from regard.tasks.calibrating import calibrate
from regard.tasks.confidence import FILE, Calibration, Reliability, features, fit
from regard.tasks.pretrained import bundled_model


def test_the_regression_finds_the_weights_that_made_the_data():
    draw = np.random.default_rng(1)
    x = draw.normal(size=(20_000, 2))
    truth = 1 / (1 + np.exp(-(0.5 + 1.5 * x[:, 0] - 0.7 * x[:, 1])))
    assert fit(x.tolist(), truth.tolist()) == pytest.approx([0.5, 1.5, -0.7], abs=1e-3)
    assert fit(x.tolist(), (draw.random(20_000) < truth).tolist()) == pytest.approx([0.5, 1.5, -0.7], abs=0.1)
    assert all(map(math.isfinite, fit([[0.0], [1.0]], [0.0, 1.0])))  # told apart without error


def test_reliability_is_counted():
    said, true = [0.05, 0.05, 0.95, 0.95, 1.0], [0.0, 1.0, 1.0, 1.0, 0.0]
    found = Reliability.of(said, true)
    assert found.bins[0] == (2, pytest.approx(0.05), 0.5)
    assert found.bins[9] == (3, pytest.approx(2.9 / 3), pytest.approx(2 / 3))
    assert found.error == pytest.approx((2 * 0.45 + 3 * abs(2.9 / 3 - 2 / 3)) / 5)
    assert Reliability.of([], []).error == 0


def test_a_translator_is_calibrated(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(bundled_model(), run)
    model = regard.load(run, "cpu", engine="torch")
    assert model.hypotheses(["Good morning."])[0][0].confidence is None
    pairs = open_pairs(["bundled:tatoeba-en-de"], "auto", ()).read()
    made = calibrate(model, pairs.sources[:60], pairs.targets[:60])
    assert made.token[0] > 0  # what the model finds probable is right more often
    assert set(made.measured) == {"tokens", "tokens_before", "sentences", "sentences_before"}
    made.save(run)
    again = regard.load(run, "cpu", engine="torch")
    one = again.hypotheses(["Where is the bank? Good morning."])[0][0]
    assert one.token_confidences is not None
    assert len(one.token_confidences) == len(one.token_log_probs)
    assert one.token_confidences[0] == pytest.approx(made.of_token(one.token_log_probs[0]))
    first = again.hypotheses(["Good morning."])[0][0]
    assert first.confidence == pytest.approx(made.of_sentence(first.token_log_probs))
    a, b, c = made.sentence
    mean, low = features(first.token_log_probs)
    assert first.confidence == pytest.approx(1 / (1 + math.exp(-(a + b * mean + c * low))))
    fast = regard.load(run, "cpu", engine="auto").hypotheses(["Good morning."])[0][0]
    assert fast.confidence == pytest.approx(first.confidence, abs=0.1)  # int8
    json.dumps(one.to_plain())


def test_a_wrong_file_is_refused(tmp_path):
    assert Calibration.load(tmp_path) is None
    for content in (
        '{"format": 2}',
        "[]",
        '{"format": 1, "token": [1], "sentence": [1, 2, 3]}',
        '{"format": 1, "token": "ab", "sentence": 3}',
    ):
        (tmp_path / FILE).write_text(content)
        with pytest.raises(CheckpointError, match="calibrate"):
            Calibration.load(tmp_path)


def test_too_few_pairs_are_refused():
    model = regard.load(engine="torch", device="cpu")
    with pytest.raises(DataError, match="2 pairs"):
        calibrate(model, ["a", "b", ""], ["a", "b", "c"])
    with pytest.raises(DataError, match="3 source and 2"):
        calibrate(model, ["a", "b", ""], ["a", "b"])
