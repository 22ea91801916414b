"""The verb `plan`: for people, as JSON, and what it says of mistakes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.core.errors import ConfigError

SMALL = [
    "tokenizer.kind=space", "model.width=16", "model.layers=1", "model.heads=2", "train.steps=40", "train.batch_tokens=64",
    "train.device=cpu", "train.patience=0",
]  # fmt: skip


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("\n".join(f"a small boat {'b ' * (i % 5)}{i}\tein kleines boot {i}" for i in range(80)))
    return path


def test_a_plan_for_people_and_as_json(pairs):
    words = ["plan", *SMALL, "--pairs", str(pairs), "--seconds", "0.05", "-q"]
    shown = CliRunner().invoke(app, words, catch_exceptions=False)
    assert shown.exit_code == 0
    for part in ("parameters", "train.batch_tokens=64", "weights", "optimizer", "target tokens/s", "for 40 steps"):
        assert part in shown.output
    plain = json.loads(CliRunner().invoke(app, [*words, "--json", "--fit"], catch_exceptions=False).stdout)
    assert plain["model"] == "transformer"
    assert plain["memory"]["weights"] >= 4 * plain["parameters"]
    assert plain["seconds"] == pytest.approx(40 * plain["seconds_per_step"])
    assert list(pairs.parent.iterdir()) == [pairs]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo", "demo-lm"], "more than one recipe"),
        (["demo", "train.batch_tokens=0"], "less than 1"),
        (["demo-embed"], "word2vec"),
        ([], "nothing to train on"),
    ],
)
def test_mistakes(words, said):
    with pytest.raises(ConfigError, match=said):
        CliRunner().invoke(app, ["plan", *words, "-q"], catch_exceptions=False)
