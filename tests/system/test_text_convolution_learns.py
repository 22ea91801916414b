"""Convolutional networks over texts: whole runs that learn a small task, stop and go on, and keep their bounds."""

from __future__ import annotations

import random
import signal

import pytest
from runs import outcome

import regard
from regard.core.files import load_tensors
from regard.tasks.classification import TextClassifier
from regard.training.progress import Reporter

WORDS = ("red", "blue", "tree", "house", "goes", "by", "now", "then", "up", "and")
MODELS = {
    "kim": ["model.name=kim", "model.width=16", "model.maps=8", "model.windows=[2,3]", "model.max_norm=1.5", "train.lr=1",
            "train.optimizer=adadelta", "train.beta2=0.95", "train.eps=1e-4"],
    "dcnn": ["model.name=dcnn", "model.width=8", "model.windows=[3,2]", "model.maps=[3,4]", "model.k_top=3",
             "train.optimizer=adagrad", "train.lr=0.1"],
}  # fmt: skip
SETTINGS = [
    "tokenizer.kind=space", "tokenizer.min_count=1", "train.batch_tokens=256", "train.threads=1", "train.schedule=constant",
    "train.warmup=0", "train.label_smoothing=0", "train.clip=0", "data.valid_size=40", "data.test_size=40", "train.device=cpu",
    "model.dropout=0.2",
]  # fmt: skip


@pytest.fixture
def labelled(tmp_path):
    """Which of two words comes first is the label: a network that only counts words cannot know."""
    draw = random.Random(4)
    rows = []
    for _ in range(500):
        words = [draw.choice(WORDS) for _ in range(draw.randint(0, 6))]
        pair = ["not", "good"] if (label := draw.random() < 0.5) else ["good", "not"]
        place = draw.randint(0, len(words))
        rows.append(f"{'bad' if label else 'fine'}\t{' '.join([*words[:place], *pair, *words[place:]])}\n")
    (tmp_path / "labelled.tsv").write_text("".join(rows))
    return tmp_path / "labelled.tsv"


@pytest.mark.parametrize("name", MODELS)
def test_it_learns_that_order_counts(name, labelled, tmp_path):
    settings = [*SETTINGS, *MODELS[name], f"data.labelled={labelled}", "train.steps=150", "train.save_every=50"]
    result = regard.train(out=tmp_path / "run", report=Reporter(quiet=True), settings=settings)
    assert result.scores["accuracy"].value >= 95
    classifier = TextClassifier.load(tmp_path / "run", "cpu")
    assert [guess.label for guess in classifier.classify(["not good", "up and good not then"])] == ["bad", "fine"]
    if name == "kim":
        norms = load_tensors(tmp_path / "run" / "model.safetensors")["output.weight"].norm(dim=1)
        assert 1.4 < float(norms.max()) <= 1.5 * (1 + 1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_stopping_anywhere_changes_nothing(runs, labelled, name):
    given = [
        f"data.labelled={labelled}",
        *SETTINGS,
        *MODELS[name],
        "train.steps=16",
        "train.save_every=5",
        "train.log_every=1",
    ]
    assert runs.wait(runs.start(["train", "--out", str(runs.folder / "straight"), *given], None)) == 0, runs.log()
    stop = (4, signal.SIGINT)
    assert runs.wait(runs.start(["train", "--out", str(runs.folder / "stopped"), *given], stop)) == 130, runs.log()
    runs.resume("stopped", signal_at=(11, signal.SIGTERM), expect=143)
    assert outcome(runs.resume("stopped")) == outcome(runs.folder / "straight")
