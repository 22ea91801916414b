"""Language models from a file of text to text: they learn, go on exactly after a stop, and refuse what they cannot use."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from runs import Runs, outcome

import regard
from regard.core.errors import ConfigError, DataError, RegardError
from regard.core.files import load_tensors, read_json
from regard.training.progress import Reporter

MODELS = {
    "nplm": ["model.embedding=12", "model.width=16", "model.dropout=0.1", "model.direct=true"],
    "rnnlm": ["model.width=16", "model.dropout=0.1", "model.bptt=3"],
    "lstmlm": ["model.width=16", "model.dropout=0.1", "model.initialise_range=0.4", "model.layers=1"],
    "gpt": ["model.width=16", "model.heads=2", "model.layers=1", "model.context=8", "train.ema=0.9"],
}
SMALL = ["tokenizer.kind=space", "tokenizer.min_count=1", "train.threads=1", "train.window=8", "train.batch_tokens=64"]
VERSE = "one two three four five six seven once i caught a fish alive"


def write(folder: Path, lines: int = 120) -> Path:
    """Counting rhymes that begin anywhere: all but the first word of a line follow from the word before."""
    words = VERSE.split()
    path = folder / "rhymes.txt"
    path.write_text("".join(" ".join(words[i % len(words) :]) + "\n" for i in range(lines)))
    return path


def train(folder: Path, text: Path, name: str, *settings: str, **more) -> Path:
    run = folder / name
    known = [f"model.name={name}", *MODELS[name], *SMALL, *settings]
    regard.train(out=run, text=str(text), settings=known, report=Reporter(quiet=True), **more)
    return run


@pytest.mark.parametrize("name", MODELS)
def test_stopping_anywhere_changes_nothing(runs: Runs, name):
    text = write(runs.folder)
    steps = ["train.steps=30", "train.save_every=5", "train.log_every=1", "train.lr=0.01", "train.accumulate=2"]
    settings = [f"model.name={name}", *MODELS[name], *SMALL, *steps]

    def start(where: str) -> list[str]:
        return ["train", "--text", str(text), "--out", str(runs.folder / where), *settings]

    assert runs.wait(runs.start(start("straight"))) == 0, runs.log()
    straight = outcome(runs.folder / "straight")
    carried = [key for key in straight if key.endswith("carried.safetensors")]
    assert bool(carried) == (name != "gpt")
    assert runs.wait(runs.start(start("stopped"), (3, signal.SIGINT))) == 130, runs.log()
    for stop in ((8, signal.SIGTERM), (13, signal.SIGINT), (24, signal.SIGTERM)):
        runs.resume("stopped", signal_at=stop, expect=128 + stop[1])
    assert outcome(runs.resume("stopped")) == straight


@pytest.mark.parametrize("name", MODELS)
def test_learns_what_follows_what_and_writes_it(tmp_path, name):
    settings = ["train.steps=300", "train.save_every=300", "train.lr=0.02", "train.warmup=10", "train.schedule=cosine",
                "train.label_smoothing=0", "model.dropout=0", "train.ema=0"]  # fmt: skip
    if name == "rnnlm":
        settings.append("model.bptt=0")
    run = train(tmp_path, write(tmp_path), name, *settings)
    model = regard.load(run, device="cpu")
    assert model.generate("once i", method="greedy") == " caught a fish alive"
    (first, *_) = model.next_words("three four", top=3)
    assert first.text.strip() == "five"
    assert first.probability > 0.9
    score = model.perplexity(["two three four five six seven once i caught a fish alive"] * 5)
    assert score.words == 65
    assert score.word_perplexity < 1.5  # one word in 13 is not to be guessed: 13 ** (1 / 13) is 1.22
    stored = read_json(run / "scores.json")["scores"]
    assert set(stored) == {"perplexity", "word_perplexity", "bits_per_byte"}
    assert 1 < stored["word_perplexity"]["value"] < 4  # held-out rhymes are short, and their first words are open


def test_a_text_without_a_recipe_becomes_a_gpt_that_can_be_trained_further(tmp_path):
    text = write(tmp_path)
    small = ["train.steps=4", "model.width=16", "model.layers=1", "train.batch_tokens=256", "train.threads=1"]
    regard.train(out=tmp_path / "run", text=str(text), settings=small, report=Reporter(quiet=True))
    config = read_json(tmp_path / "run" / "config.json")
    assert config["model"]["name"] == "gpt"
    assert config["tokenizer"]["kind"] == "bytebpe"
    further = ["train.steps=2", "train.lr=0", "train.batch_tokens=256", "train.threads=1"]
    regard.train(
        out=tmp_path / "on", text=str(text), settings=further, start_from=tmp_path / "run", report=Reporter(quiet=True)
    )
    before, after = (load_tensors(tmp_path / name / "model.safetensors") for name in ("run", "on"))
    assert all((before[key] == after[key]).all() for key in before)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("one two\nthree four\n", ["data.valid_part=0", "data.test_part=0"], "it has 6 tokens, and a batch takes 64"),
        ("", [], "empty|no text|nothing"),
        (None, ["model.name=transformer"], "needs pairs"),
        (None, ["train.window=9", "model.context=8"], "more than the model's context"),
        (None, ["train.window=65", "model.context=100"], "less than one row"),
        (None, ["train.best_by=bleu"], "no BLEU"),
        (None, ["data.src=x", "data.tgt=y"], "data.text"),
    ],
)
def test_what_cannot_be_trained_is_said(tmp_path, content, settings, message):
    text = write(tmp_path)
    if content is not None:
        text.write_text(content)
    known = ["model.name=gpt", *MODELS["gpt"], *SMALL, "train.steps=2", *settings]
    if "model.name=transformer" in settings:
        known = ["model.name=transformer"]
    with pytest.raises(RegardError, match=message):
        regard.train(out=tmp_path / "run", text=str(text), settings=known, report=Reporter(quiet=True))
    assert not (tmp_path / "run").exists()


def test_kinds_of_text_and_of_models_are_not_mixed_up(tmp_path, tiny_run):
    with pytest.raises(DataError, match=r"no such file"):
        train(tmp_path, tmp_path / "nowhere.txt", "rnnlm")
    pairs = {"src": "a", "tgt": "b"}
    with pytest.raises(ConfigError, match="learns from plain text"):
        regard.train(out=tmp_path / "run", settings=["model.name=rnnlm"], report=Reporter(quiet=True), **pairs)
    with pytest.raises(ConfigError, match="both text and pairs"):
        regard.train(out=tmp_path / "run", text="c", report=Reporter(quiet=True), **pairs)
    with pytest.raises(RegardError, match="needs pairs"):
        regard.train(out=tmp_path / "run", text=str(write(tmp_path)), start_from=tiny_run, report=Reporter(quiet=True))
