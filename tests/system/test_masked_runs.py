"""Runs of masked models: they learn to fill in words, go on exactly where they stopped, and refuse what is wrong."""

from __future__ import annotations

import json
import random
import signal

import numpy as np
import pytest
from runs import outcome

import regard
from regard.core.errors import ConfigError, DataError, TokenizerError
from regard.core.files import load_tensors
from regard.models.bert import BertConfig
from regard.training.masked_sizes import choose_masked_sizes
from regard.training.progress import Reporter

FOOD, PLACES = ("bread", "soup", "rice"), ("gym", "park", "shop")
STEPS = 16
SMALL = ["model.name=bert", "model.width=32", "model.layers=1", "model.heads=2", "model.context=26", "model.dropout=0",
         "model.attention_dropout=0", "tokenizer.kind=word", "train.threads=1", "train.label_smoothing=0"]  # fmt: skip
SETTINGS = [
    *SMALL, f"train.steps={STEPS}", "train.batch_tokens=384", "train.save_every=5", "train.log_every=1", "train.warmup=3",
    "train.lr=0.01", "train.schedule=linear", "train.beta2=0.999", "data.documents=blank",
]  # fmt: skip


def write_text(path, seed: int = 1, documents: int = 120) -> str:
    """In a document, people eat or go out, always the same thing: what follows is of the same kind."""
    draw = random.Random(seed)
    texts = []
    for _ in range(documents):
        line = (lambda: f"we eat the {draw.choice(FOOD)} .") if draw.random() < 0.5 else None
        line = line or (lambda: f"we went to the {draw.choice(PLACES)} .")
        texts.append("\n".join(line() for _ in range(draw.randint(3, 6))))
    path.write_text("\n\n".join(texts) + "\n")
    return str(path)


def train(out, **arguments):
    return regard.train(out=out, report=Reporter(quiet=True), **arguments)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    place = tmp_path_factory.mktemp("masked")
    text = write_text(place / "text", documents=300)
    settings = [*SETTINGS, "train.steps=350", "train.save_every=350", "train.log_every=50"]
    return place / "run", train(place / "run", text=text, settings=settings)


def test_a_small_run_learns_its_language(learnt):
    folder, result = learnt
    filler = regard.load(folder, device="cpu")
    eaten = filler.fill("we eat the [MASK] .", top=3)[0]
    assert {word.word for word in eaten} == {*FOOD}
    assert sum(word.probability for word in eaten) > 0.8
    verb, place = filler.fill("we [MASK] to the [MASK] .", top=3)
    assert verb[0].word == "went"
    assert verb[0].probability > 0.8
    assert {word.word for word in place} == {*PLACES}
    assert filler.follows("we eat the soup .", "we eat the rice .") > 0.5  # 2/3: half of the others are alike
    assert filler.follows("we eat the soup .", "we went to the park .") < 0.2
    vectors = filler.embed(["we eat the soup .", "we eat the rice .", "we went to the gym ."])
    near, far = (float(vectors[0] @ vectors[i] / np.linalg.norm(vectors[i])) for i in (1, 2))
    assert near > far
    assert set(result.scores) == {"masked_accuracy", "masked_perplexity", "next_sentence_accuracy"}
    # of five words one is one of three, the others follow from what stands around
    assert 70 < result.scores["masked_accuracy"].value < 95
    assert 1 < result.scores["masked_perplexity"].value < 2.5
    assert result.scores["next_sentence_accuracy"].value > 52  # 75 at best


def test_what_a_run_writes(learnt):
    folder, _ = learnt
    config = json.loads((folder / "config.json").read_text())
    assert config["model"]["name"] == "bert"
    assert "labels" not in config
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["part"] == "test"
    assert scores["tokens"] > 50
    assert "80/10/10" in scores["scores"]["masked_accuracy"]["signature"]
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {"valid_nll", "valid_accuracy", "valid_next_sentence"} <= rows[-1].keys()
    assert regard.load(folder, device="cpu").tokenizer.tags == {"<mask>": 4}


def test_stopping_anywhere_changes_nothing(runs):
    text = write_text(runs.folder / "text")
    given = ["--text", text, *SETTINGS, "model.dropout=0.1"]

    def start(name, stop=None):
        return runs.wait(runs.start(["train", "--out", str(runs.folder / name), *given], stop))

    assert start("straight") == 0, runs.log()
    assert start("stopped", (1, signal.SIGINT)) == 130, runs.log()
    for stop in [(4, signal.SIGTERM), (5, signal.SIGINT), (11, signal.SIGTERM)]:
        runs.resume("stopped", signal_at=stop, expect=128 + stop[1])
    runs.resume("stopped")
    straight = outcome(runs.folder / "straight")
    assert max(row.get("epoch", 0) for row in straight["metrics"]) >= 1  # masks of more than one epoch
    assert outcome(runs.folder / "stopped") == straight


def test_a_run_goes_on_from_another(learnt, tmp_path):
    before, _ = learnt
    text = write_text(tmp_path / "more", seed=5, documents=40)
    settings = [word for word in SETTINGS if not word.startswith(("model", "tokenizer"))]
    result = train(tmp_path / "run", text=text, settings=[*settings, "train.steps=1", "train.lr=0"], start_from=before)
    one, two = (load_tensors(place / "model.safetensors") for place in (before, tmp_path / "run"))
    assert all((one[name] == two[name]).all() for name in one)
    assert result.scores["masked_accuracy"].value > 70
    assert (tmp_path / "run" / "tokenizer.json").read_text() == (before / "tokenizer.json").read_text()


def test_a_deeper_classifier_begins_with_its_layers(learnt, tmp_path):
    before, _ = learnt
    (tmp_path / "labelled").write_text("".join(f"{FOOD[i % 3]}\twe eat the {FOOD[i % 3]} {i}\n" for i in range(60)))
    settings = ["train.steps=1", "train.lr=0", "train.threads=1", "model.layers=2"]
    train(tmp_path / "run", labelled=str(tmp_path / "labelled"), settings=settings, start_from=before)
    given, taken = (load_tensors(place / "model.safetensors") for place in (before, tmp_path / "run"))
    layers = [name for name in given if name.startswith("encoder.0.")]
    assert layers
    assert all(
        (taken[f"body.{name.replace('.0.', f'.{i}.', 1)}"] == given[name]).all() for name in layers for i in (0, 1)
    )


@pytest.mark.parametrize("kind", ["labelled", "tagged"])
def test_a_classifier_and_a_tagger_begin_with_it(learnt, tmp_path, kind):
    """At a rate of 0 the body is what it was, and all that is new is the layer over labels."""
    before, _ = learnt
    draw = random.Random(4)
    rows = [(draw.choice(FOOD), "food") if draw.random() < 0.5 else (draw.choice(PLACES), "place") for _ in range(60)]
    if kind == "labelled":
        content = "".join(f"{label}\twe eat the {word} {i}\n" for i, (word, label) in enumerate(rows))
    else:
        content = "".join(f"the\tother\n{word}\t{label}\n{i}\tother\n\n" for i, (word, label) in enumerate(rows))
    (tmp_path / kind).write_text(content)
    settings = ["train.steps=1", "train.lr=0", "train.threads=1"]
    train(tmp_path / "run", **{kind: str(tmp_path / kind)}, settings=settings, start_from=before)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"]["name"] == {"labelled": "bert-classifier", "tagged": "bert-tagger"}[kind]
    one, two = (load_tensors(place / "model.safetensors") for place in (before, tmp_path / "run"))
    assert all((one[name] == two[f"body.{name}"]).all() for name in one)


def test_without_next_sentences_and_without_held_out_text(tmp_path):
    text = write_text(tmp_path / "text", documents=30)
    settings = [*SETTINGS, "model.next_sentence=false", "data.valid_part=0", "data.test_part=0", "train.steps=2"]
    assert train(tmp_path / "run", text=text, settings=settings).scores == {}
    result = train(tmp_path / "held", text=text, settings=[*SETTINGS, "model.next_sentence=false", "train.steps=2"])
    assert set(result.scores) == {"masked_accuracy", "masked_perplexity"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.window=25"], "25 tokens are more than the 24 that the model's context has room for"),
        (["data.documents=file"], "it is one document"),
        (["train.batch_tokens=20"], "20 tokens are less than one row of 24"),
        (["model.head=false"], "setting model.head"),
        (["train.best_by=accuracy"], "train.best_by"),
        (["train.patience=2", "data.valid_part=0"], "early stopping needs validation text"),
    ],
)
def test_settings_that_are_refused(tmp_path, settings, message):
    text = write_text(tmp_path / "text", documents=20)
    with pytest.raises((ConfigError, DataError), match=message):
        train(tmp_path / "run", text=text, settings=[*SETTINGS, *settings])
    assert not (tmp_path / "run").exists()


def test_a_language_model_is_no_beginning(tmp_path):
    text = write_text(tmp_path / "text", documents=20)
    small = ["model.width=8", "model.layers=1", "model.heads=2", "model.context=16", "tokenizer.kind=word"]
    train(tmp_path / "lm", text=text, settings=[*small, "train.steps=1", "train.batch_tokens=64", "train.threads=1"])
    with pytest.raises((ConfigError, TokenizerError)):
        train(tmp_path / "run", text=text, settings=["model.name=bert", "train.steps=1"], start_from=tmp_path / "lm")


@pytest.mark.parametrize("cpu", [True, False])
def test_sizes_grow_with_the_text(cpu):
    found = [choose_masked_sizes(characters, BertConfig, cpu) for characters in (10**5, 10**7, 10**8)]
    widths = [sizes["model"]["width"] for sizes in found]
    assert widths == sorted(widths)
    assert widths[0] < widths[1]
    for sizes in found:
        assert sizes["train"]["lr"] <= 1e-3
        assert sizes["train"]["batch_tokens"] >= sizes["model"]["context"]
        assert (sizes["train"]["eps"], sizes["train"]["beta2"], sizes["train"]["weight_decay"]) == (1e-6, 0.999, 0.01)
    more = choose_masked_sizes(10**7, BertConfig, cpu, fine_tuning=True)
    assert set(more) == {"train"}
    assert more["train"]["lr"] <= 1e-4
    assert choose_masked_sizes(10**7, BertConfig, cpu, steps=77)["train"]["steps"] == 77
    assert choose_masked_sizes(10**7, BertConfig, cpu, kind="word")["tokenizer"]["size"] >= 10_000
