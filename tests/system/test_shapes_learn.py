"""Each shape of model learns a small task that asks for it, in seconds: from files to labels, tags and texts."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch.nn.functional import pad

import regard
from regard.core.errors import ConfigError, DataError
from regard.core.files import load_tensors
from regard.core.types import BOS, EOS, PAD, Padded, pad_rows
from regard.models.base import Capability, build_model
from regard.models.recurrent_tagger import RecurrentTaggerConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.transformer_tagger import TransformerTaggerConfig
from regard.search.config import SearchConfig
from regard.search.search import search
from regard.training.progress import Reporter

LETTERS = "abcdefgh"
TRAIN = [
    "tokenizer.kind=word", "train.threads=1", "train.schedule=cosine", "train.warmup=10", "train.label_smoothing=0",
    "train.patience=0", "train.save_every=50", "train.batch_tokens=400", "data.valid_size=50", "data.test_size=100",
]  # fmt: skip
STILL = ["model.dropout=0", "model.classifier_dropout=0"]


def train(out: Path, **arguments):
    return regard.train(out=out, report=Reporter(quiet=True), **arguments)


def labelled(path: Path, rows: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    return str(path)


def first_letter(draw: random.Random) -> tuple[str, str]:
    """The label is the first word: it must be kept to the end."""
    text = [draw.choice(LETTERS[:4]) for _ in range(draw.randint(4, 9))]
    return text[0], " ".join(text)


def before_or_after(draw: random.Random) -> tuple[str, str]:
    """Whether x stands before y: a question of order, which a bag of words cannot answer."""
    text = [draw.choice(LETTERS) for _ in range(draw.randint(2, 6))]
    places = sorted(draw.sample(range(len(text) + 2), 2))
    for place, word in zip(places, draw.sample("xy", 2), strict=True):
        text.insert(place, word)
    return "yes" if text.index("x") < text.index("y") else "no", " ".join(text)


def which_word(draw: random.Random) -> tuple[str, str]:
    """Whether x or y is in it: all that a bag of words can know."""
    text = [draw.choice(LETTERS) for _ in range(draw.randint(2, 8))]
    word = draw.choice("xy")
    text.insert(draw.randint(0, len(text)), word)
    return word, " ".join(text)


def rows_of(task, count: int = 1500) -> list[tuple[str, str]]:
    draw = random.Random(1)
    return [task(draw) for _ in range(count)]


@pytest.mark.parametrize(
    ("model", "task", "settings"),
    [
        ("deep-averaging", which_word, ["model.embedding=16", "model.width=16", "train.steps=100"]),
        ("recurrent-classifier", first_letter,
         ["model.cell=rnn", "model.bidirectional=false", "model.pool=last", "model.width=32", "train.steps=300"]),
        ("recurrent-classifier", first_letter,
         ["model.cell=gru", "model.bidirectional=false", "model.pool=last", "model.width=24", "train.steps=250"]),
        ("recurrent-classifier", before_or_after, ["model.cell=lstm", "model.width=24", "train.steps=200"]),
        ("transformer-classifier", before_or_after,
         ["model.width=32", "model.layers=2", "model.heads=2", "train.steps=250", "train.lr=0.004"]),
        ("transformer-classifier", before_or_after,
         ["model.width=32", "model.layers=2", "model.heads=2", "train.steps=300", "train.lr=0.004", "model.pool=first"]),
    ],
)  # fmt: skip
def test_many_to_one_and_one_to_one(model, task, settings, tmp_path):
    data = labelled(tmp_path / "data.tsv", rows_of(task))
    result = train(
        tmp_path / "run",
        labelled=data,
        settings=[*TRAIN, *STILL, "train.lr=0.01", *settings, f"model.name={model}"],
    )
    assert result.scores["accuracy"].value >= 97
    reader = regard.load(tmp_path / "run", device="cpu")
    label, text = task(random.Random(7))
    assert reader.classify([text])[0].label == label


def test_a_bag_of_words_does_not_know_the_order(tmp_path):
    data = labelled(tmp_path / "data.tsv", rows_of(before_or_after))
    settings = [*TRAIN, *STILL, "model.name=deep-averaging", "model.embedding=16", "train.steps=100", "train.lr=0.01"]
    assert train(tmp_path / "run", labelled=data, settings=settings).scores["accuracy"].value <= 70


TAGGERS = [
    ("recurrent-tagger", RecurrentTaggerConfig, {"cell": "lstm", "width": 32, "layers": 1}),
    ("recurrent-tagger", RecurrentTaggerConfig, {"cell": "gru", "width": 32, "layers": 1}),
    ("recurrent-tagger", RecurrentTaggerConfig, {"cell": "rnn", "width": 32, "layers": 2}),
    ("transformer-tagger", TransformerTaggerConfig, {"width": 32, "layers": 2, "heads": 2, "token_dropout": 0.0}),
    ("transformer-tagger", TransformerTaggerConfig,
     {"width": 32, "layers": 2, "heads": 2, "normalise": "batch", "token_dropout": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "config", "sizes"), TAGGERS)
def test_many_to_many_in_step(name, config, sizes):
    """Each word's label is whether the next word is larger: the last word has a label of its own."""
    torch.manual_seed(1)
    made = config(**sizes, dropout=0.0, classifier_dropout=0.0)
    model = build_model(name, made, source_vocabulary=12, target_vocabulary=4, shared=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2 if name == "recurrent-tagger" else 4e-3)
    draw = torch.Generator().manual_seed(2)

    def batch(rows: int) -> tuple[Padded, torch.Tensor, torch.Tensor]:
        lengths = torch.randint(2, 9, (rows,), generator=draw).tolist()
        source = pad_rows([torch.randint(4, 12, (n,), generator=draw).tolist() for n in lengths])
        following = pad(source.tokens, (0, 1))[:, 1:]
        labels = torch.where(following == PAD, 3, 1 + (following > source.tokens).long()) * source.keep
        return source, torch.arange(labels.shape[1]).expand_as(labels), labels

    for _ in range(150):
        source, places, labels = batch(40)
        optimizer.zero_grad()
        (model.output.loss(model(source, places).hidden, labels).loss / 200).backward()
        optimizer.step()
    with torch.no_grad():
        source, places, labels = batch(200)
        written = model.output.scores(model.eval()(source, places).hidden).argmax(-1)
    right = (written == labels)[source.keep].float().mean()
    assert float(right) >= 0.97


COMPOSES = pytest.mark.skipif("composes" not in get_args(Capability), reason="no run can be asked for it yet")
FOOD, SKY = ("soup", "bread", "cake"), ("moon", "star", "cloud")


def phrase(draw: random.Random) -> tuple[str, str]:
    label = draw.choice(("of food", "sky"))
    words = FOOD if label == "of food" else SKY
    return (
        label,
        f"the {draw.choice(words)} is {draw.choice(('old', 'round', 'bright'))} and so is the {draw.choice(words)}",
    )


@COMPOSES
def test_one_to_many(tmp_path):
    data = labelled(tmp_path / "data.tsv", rows_of(phrase, 600))
    settings = [
        "model.name=label-writer", "model.width=32", "model.label=8", "train.steps=120", "train.lr=0.01",
        "train.batch_tokens=500", "train.threads=1", "tokenizer.kind=word", "data.valid_size=5", "data.test_size=5",
    ]  # fmt: skip
    result = train(tmp_path / "run", labelled=data, settings=settings)
    assert 1 < result.scores["perplexity"].value < 2.2
    writer = regard.load(tmp_path / "run", device="cpu")
    assert writer.labels == ("of food", "sky")
    for label, own, others in (("of food", FOOD, SKY), ("sky", SKY, FOOD)):
        texts = [found.text for found in writer.write(label, 20, seed=3)]
        assert len(set(texts)) > 5
        wrong = [text for text in texts if set(text.split()) & set(others) or not set(text.split()) & set(own)]
        assert len(wrong) <= 1
        assert writer.write(label, 20, seed=3)[4].text == texts[4]
        best = writer.write(label, 2, beam=4)
        assert best[0].log_prob >= best[1].log_prob >= writer.write(label, 1, seed=5)[0].log_prob - 10
        assert writer.write(label, method="greedy")[0].text.startswith("the ")
        assert len(writer.write(label, max_tokens=2)[0].text.split()) == 2
    with pytest.raises(DataError, match=r"label 'sea'.*'of food', 'sky'"):
        writer.write("sea")
    with pytest.raises(ConfigError, match="gives only one"):
        writer.write("sky", 2, method="greedy")
    with pytest.raises(ConfigError, match=r"search\.nbest.*99"):
        writer.write("sky", 99)
    with pytest.raises(ConfigError, match=r"beam.*method is sample"):
        writer.write("sky", method="sample", beam=3)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["labels"] == ["of food", "sky"]


@COMPOSES
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("train.best_by=accuracy", "train.best_by"),
        ("train.best_by=bleu", "no right answer"),
        ("train.window=8", "max_tokens"),
        ("train.vectors=v", "this one writes"),
    ],
)
def test_what_means_nothing_for_texts_from_labels_is_refused(more, message, tmp_path):
    data = labelled(tmp_path / "data.tsv", rows_of(phrase, 40))
    with pytest.raises(ConfigError, match=message):
        train(tmp_path / "run", labelled=data, settings=["model.name=label-writer", more])


@COMPOSES
def test_two_texts_of_a_line_cannot_be_written(tmp_path):
    data = labelled(tmp_path / "data.tsv", [("a", "x\ty"), ("b", "z\tw")] * 20)
    with pytest.raises(ConfigError, match="two texts"):
        train(
            tmp_path / "run",
            labelled=data,
            settings=["model.name=label-writer", "data.valid_size=-1", "data.test_size=-1"],
        )


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_transformer_with_batch_normalisation_reverses(norm):
    torch.manual_seed(1)
    config = TransformerConfig(width=48, layers=1, heads=4, inner=96, dropout=0.0, norm=norm, normalise="batch")
    model = Transformer(config, source_vocabulary=12, target_vocabulary=12, shared=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.9, 0.98))
    draw = torch.Generator().manual_seed(2)

    def batch(rows: int) -> tuple[Padded, torch.Tensor]:
        """Sequences, and their reverse between BOS and EOS."""
        texts = [torch.randint(4, 12, (2 + i % 4,), generator=draw).tolist() for i in range(rows)]
        return pad_rows([[*text, EOS] for text in texts]), pad_rows([[BOS, *text[::-1], EOS] for text in texts]).tokens

    for step in range(220):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (step + 1) / 20, (220 - step) / 110)
        source, target = batch(64)
        optimizer.zero_grad()
        (model.output.loss(model(source, target[:, :-1]).hidden, target[:, 1:]).loss / 300).backward()
        optimizer.step()
    source, target = batch(200)
    found = search(model.eval(), source, SearchConfig(beam=1))
    right = sum(one[0].tokens == row[1 : row.index(EOS)] for one, row in zip(found, target.tolist(), strict=True))
    assert right >= 180


def test_running_averages_are_part_of_a_run_that_goes_on(tmp_path):
    """A run that lost its last steps ends with the same weights and averages as one that did not."""
    data = labelled(tmp_path / "data.tsv", rows_of(which_word, 200))
    settings = [
        *TRAIN, "model.name=transformer-classifier", "model.normalise=batch", "model.width=16", "model.layers=1",
        "model.heads=2", "train.steps=8", "train.save_every=4", "train.ema=0.9", "data.valid_size=20", "data.test_size=20",
    ]  # fmt: skip
    for name in ("whole", "half"):
        train(tmp_path / name, labelled=data, settings=settings)
    shutil.rmtree(tmp_path / "half" / "checkpoints" / "step-000000008")
    request = json.loads((tmp_path / "half" / "run.json").read_text())
    (tmp_path / "half" / "run.json").write_text(json.dumps({**request, "status": "started"}))
    regard.resume(tmp_path / "half", Reporter(quiet=True))
    one, other = (load_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "half"))
    running = [n for n in one if "running" in n]
    assert len(running) == 2 * (2 + 1)
    for n, tensor in one.items():
        assert torch.equal(tensor, other[n]), n
    steps = [
        load_tensors(tmp_path / "half" / "checkpoints" / f"step-00000000{n}" / "average.safetensors") for n in (6, 8)
    ]
    assert not torch.equal(steps[0][running[0]], steps[1][running[0]])
