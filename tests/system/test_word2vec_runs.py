"""Runs of word2vec: words used alike become neighbours, a stopped run goes on exactly, and what means nothing is refused."""

from __future__ import annotations

import json
import random
import shutil
import signal

import pytest
import torch
from runs import outcome

import regard
from regard.core.errors import ConfigError, DataError, TrainingError
from regard.core.files import load_tensors
from regard.data.tokenizers import TokenizerPair
from regard.training.progress import Reporter

ANIMALS, FOODS = ("cat", "dog", "horse", "cow"), ("bread", "cheese", "apple", "soup")
ACTS, TASTES = ("runs", "sleeps", "barks", "jumps", "plays"), ("tastes", "smells", "cooks", "burns", "rots")
STEPS = 12
SETTINGS = [
    "model.name=word2vec", "model.width=12", "model.shared=16", "model.sample=0", "train.threads=1", "train.batch_tokens=1024",
    f"train.steps={STEPS}", "train.save_every=5", "train.log_every=1",
]  # fmt: skip


def lines(count: int) -> str:
    draw, found = random.Random(1), []
    for _ in range(count):
        things, verbs = (ANIMALS, ACTS) if draw.random() < 0.5 else (FOODS, TASTES)
        found.append(f"the {draw.choice(things)} {draw.choice(verbs)} now and {draw.choice(verbs)}\n")
    return "".join(found)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(lines(2000))
    return path


def train(out, text, *more, **arguments):
    settings = [*SETTINGS, *more]
    return regard.train(out=out, text=str(text), settings=settings, report=Reporter(quiet=True), **arguments)


@pytest.mark.parametrize("objective", ["negative", "tree"])
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_words_used_alike_become_neighbours(text, tmp_path, architecture, objective):
    more = [
        f"model.architecture={architecture}",
        f"model.objective={objective}",
        "train.steps=150",
        "train.save_every=75",
    ]
    result = train(tmp_path / "run", text, *more)
    weights = load_tensors(tmp_path / "run" / "model.safetensors")
    tokenizer = TokenizerPair.load(tmp_path / "run").source
    assert set(weights) == {"counts", "embedding.weight", "nodes.weight" if objective == "tree" else "output.weight"}
    vectors = torch.nn.functional.normalize(weights["embedding.weight"], dim=1)
    names = [name.removeprefix("▁") for name in tokenizer.pieces(range(tokenizer.size))]
    for things in (ANIMALS, FOODS):
        for word in things:
            other = [names.index(one) for one in (*ANIMALS, *FOODS)]
            near = vectors[other] @ vectors[names.index(word)]
            best = {(*ANIMALS, *FOODS)[i] for i in near.argsort(descending=True)[:4].tolist()}
            assert best == set(things)
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["valid_nll"] for row in rows if "valid_nll" in row]
    assert losses[-1] < losses[0]
    assert result.scores["loss"].value == pytest.approx(losses[-1], rel=0.1)
    counts = weights["counts"]
    assert int(counts[names.index("the")]) == 1801
    assert not counts[:4].any()


@pytest.mark.parametrize(("objective", "fine_tuned"), [("negative", False), ("tree", True)])
def test_one_thread_goes_on_exactly_where_it_stopped(runs, text, tmp_path, objective, fine_tuned):
    given = ["--text", str(text), *SETTINGS, f"model.objective={objective}"]
    if fine_tuned:
        other = tmp_path / "other.txt"
        other.write_text("".join(f"{line} today\n" for line in lines(900).splitlines()))
        train(tmp_path / "first", other, f"model.objective={objective}", "train.steps=3")
        given = [*given[:2], "--from", str(tmp_path / "first"), *(word for word in SETTINGS if "model." not in word)]

    def start(name, stop=None):
        return runs.wait(runs.start(["train", "--out", str(runs.folder / name), *given], stop))

    assert start("straight") == 0, runs.log()
    assert start("stopped", (3, signal.SIGINT)) == 130, runs.log()
    if fine_tuned:
        shutil.rmtree(tmp_path / "first")  # the run has a copy of what it needs
    runs.resume("stopped", signal_at=(9, signal.SIGTERM), expect=128 + signal.SIGTERM)
    straight = outcome(runs.folder / "straight")
    assert len(straight["metrics"]) > STEPS
    assert outcome(runs.resume("stopped")) == straight


def test_a_run_from_another_keeps_its_vectors_and_its_tree(text, tmp_path):
    train(tmp_path / "first", text, "model.objective=tree", "train.steps=40")
    other = tmp_path / "other.txt"
    other.write_text("the soup smells\n" * 200)
    settings = ["train.threads=1", "train.steps=3", "train.lr=1e-5", "train.batch_tokens=256"]
    report = Reporter(quiet=True)
    regard.train(
        out=tmp_path / "next", text=str(other), settings=settings, start_from=tmp_path / "first", report=report
    )
    before, after = (load_tensors(tmp_path / name / "model.safetensors") for name in ("first", "next"))
    assert torch.equal(before["counts"], after["counts"])
    torch.testing.assert_close(after["embedding.weight"], before["embedding.weight"], atol=1e-3, rtol=0)
    assert not torch.equal(after["embedding.weight"], before["embedding.weight"])


class Heard(Reporter):
    def __init__(self):
        super().__init__(quiet=True)
        self.said: list[str] = []
        self.warned: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)


@pytest.mark.parametrize(("threads", "expected"), [(1, 0), (2, 1)])
def test_a_run_of_several_threads_says_that_it_is_not_repeatable(text, tmp_path, threads, expected):
    report = Heard()
    settings = [*SETTINGS, f"train.threads={threads}", "train.steps=30"]
    regard.train(out=tmp_path / "run", text=str(text), settings=settings, report=report)
    assert sum("no two such runs end in the same bits" in line for line in report.said) == expected
    assert any("; 2.3 epochs;" in line for line in report.said)
    vectors = load_tensors(tmp_path / "run" / "model.safetensors")["embedding.weight"]
    assert vectors.isfinite().all()
    assert float(vectors[4:].norm(dim=1).mean()) > 0.2  # both threads have learned: they begin with 0.08
    torch.set_num_threads(1)


def test_a_text_is_gone_through_five_times_unless_steps_are_given(text, tmp_path):
    """However short its lines are: the end of each is a place of the text."""
    report = Heard()
    settings = [word for word in SETTINGS if "steps" not in word and "batch" not in word and "save" not in word]
    regard.train(out=tmp_path / "run", text=str(text), settings=settings, report=report)
    assert any("; 5.0 epochs;" in line for line in report.said), report.said


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.optimizer=adamw", "setting train.optimizer: .*plain gradient descent.* Set train.optimizer=sgd"),
        ("train.clip=1", "setting train.clip"),
        ("train.label_smoothing=0.1", "setting train.label_smoothing"),
        ("train.weight_decay=0.1", "setting train.weight_decay"),
        ("train.window=5", "setting train.window"),
        ("train.mixed_lengths=true", "setting train.mixed_lengths"),
        ("train.best_by=bleu", "setting train.best_by"),
        ("train.vectors=some.txt", "setting train.vectors"),
        ("train.precision=bfloat16", "float32"),
        ("train.batch_tokens=8", "8 words are too few"),
        ("model.window=0", "setting model.window: 0 is less than 1"),
        ("model.width=0", "setting model.width"),
        ("model.negatives=0", "setting model.negatives"),
        ("model.sample=-1", "setting model.sample: -1.0 is not from 0 to 1"),
        ("model.power=9", "setting model.power"),
        ("model.architecture=glove", "setting model.architecture"),
    ],
)
def test_settings_that_mean_nothing_are_refused(text, tmp_path, setting, message):
    with pytest.raises(ConfigError, match=message):
        train(tmp_path / "run", text, setting)


def test_patience_needs_held_out_text(text, tmp_path):
    with pytest.raises(ConfigError, match="early stopping needs validation text"):
        train(tmp_path / "run", text, "train.patience=2", "data.valid_part=0", "data.test_part=0")


def test_a_text_without_frequent_words_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("only one line here\n")
    with pytest.raises(DataError, match="0 different words"):
        train(tmp_path / "run", tmp_path / "text.txt", "data.valid_part=0", "data.test_part=0")


def test_held_out_text_in_which_no_known_words_meet_has_no_loss(text, tmp_path):
    (tmp_path / "strange.txt").write_text("cat\nunheard of\ndog\n")
    report = Heard()
    settings = [*SETTINGS, f"data.valid_text={tmp_path / 'strange.txt'}", f"data.test_text={tmp_path / 'strange.txt'}"]
    result = regard.train(out=tmp_path / "run", text=str(text), settings=settings, report=report)
    assert result.scores == {}
    assert sum("it is not measured" in line for line in report.warned) == 2
    assert "valid_nll" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(ConfigError, match="early stopping needs validation text"):
        regard.train(out=tmp_path / "patient", text=str(text), settings=[*settings, "train.patience=1"], report=report)


def test_a_rate_that_is_too_high_ends_the_run(text, tmp_path):
    with pytest.raises(TrainingError, match=r"the loss is .*: they diverge. Lower train.lr"):
        train(tmp_path / "run", text, "train.lr=1e6", "train.steps=200")
