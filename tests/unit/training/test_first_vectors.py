"""Tables of words that begin with vectors from a file: which rows, which tables, frozen or not, and through a whole run."""

from __future__ import annotations

import random
import signal

import numpy as np
import pytest
import torch

import regard
from regard.core.errors import ConfigError, DataError
from regard.core.files import load_tensors
from regard.core.types import pad_rows
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.data.vectors import write_vectors
from regard.models.base import MODELS, build_model
from regard.tasks.folder import load_model
from regard.tasks.word_vectors import WordVectors
from regard.training.averaging import MovingAverage
from regard.training.config import TrainConfig
from regard.training.first_vectors import begin_with_vectors, put_vectors, sizes_for_vectors
from regard.training.labelled_sizes import choose_labelled_sizes
from regard.training.optim import Optimizer
from regard.training.progress import Reporter

TEXTS = ["the cat sees a dog, and the dog sees a cat", "a bird sang"] * 3
OTHERS = ["der Hund sah die Katze", "ein Vogel sang laut"] * 3


class Heard(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    warn = say


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return TokenizerPair.train_on_text(TEXTS, TokenizerConfig(kind="word"))


@pytest.fixture
def vectors(tmp_path):
    def put(words, width: int, binary: bool = False) -> str:
        draw = np.random.default_rng(len(words))
        write_vectors(tmp_path / "vectors", words, draw.normal(size=(len(words), width)).astype(np.float32), binary)
        return str(tmp_path / "vectors")

    return put


def model_of(name: str, tokenizers: TokenizerPair, labels: int = 0, **sizes):
    torch.manual_seed(1)
    config = MODELS.get(name).Config(**sizes)
    target = labels or tokenizers.target.size
    vocabulary = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": target}
    return build_model(name, config, **vocabulary, shared=tokenizers.joint and not labels)


def token(tokenizers: TokenizerPair, word: str) -> int:
    return tokenizers.source.encode([word])[0][0]


@pytest.mark.parametrize("binary", [False, True])
def test_rows_of_found_words_are_the_files_and_the_others_stay(tokenizers, vectors, binary):
    model, report = model_of("nplm", tokenizers, embedding=6, width=5, order=3), Heard()
    before = model.embedding.weight.detach().clone()
    path = vectors(["the", "dog", ",", "zebra"], 6, binary)
    given = WordVectors.load(path)
    assert put_vectors(model, tokenizers, path, report) == 3
    after = model.embedding.weight.detach()
    changed = {word: token(tokenizers, word) for word in ("the", "dog")} | {
        ",": tokenizers.source.encode(["dog,"])[0][1]
    }
    for word, row in changed.items():
        assert torch.equal(after[row], torch.from_numpy(given.vector(word)))
    rest = [i for i in range(len(after)) if i not in changed.values()]
    assert torch.equal(after[rest], before[rest])
    assert report.said == [f"3 of {tokenizers.source.size - 4} words have vectors in {path}."]


def test_a_tied_output_shares_the_table(tokenizers, vectors):
    model = model_of("gpt", tokenizers, width=8, heads=2, layers=1)
    put_vectors(model, tokenizers, vectors(["dog"], 8), Heard())
    assert model.output.weight is model.embedding.weight
    assert (
        model.positions.table.weight[token(tokenizers, "dog")] != model.embedding.weight[token(tokenizers, "dog")]
    ).any()


def test_of_two_vocabularies_the_sources_words_get_vectors(vectors):
    both = TokenizerPair.train(TEXTS, OTHERS, TokenizerConfig(kind="word", joint=False))
    assert both.source.size == both.target.size  # so that the tables' sizes do not tell
    model = model_of("transformer", both, width=8, heads=2, layers=1)
    before = model.target_embedding.weight.detach().clone()
    path = vectors(["sang", "dog"], 8)  # "sang" is a word of both
    assert put_vectors(model, both, path, Heard()) == 2
    assert torch.equal(model.target_embedding.weight, before)
    row = model.source_embedding.weight[token(both, "sang")]
    assert torch.equal(row.detach(), torch.from_numpy(WordVectors.load(path).vector("sang")))


def test_a_joint_vocabulary_with_two_tables_gets_both(vectors):
    both = TokenizerPair.train(TEXTS, OTHERS, TokenizerConfig(kind="word", joint=True))
    model = model_of("transformer", both, width=8, heads=2, layers=1, tie="none")
    put_vectors(model, both, vectors(["dog"], 8), Heard())
    row = token(both, "dog")
    assert torch.equal(model.source_embedding.weight[row], model.target_embedding.weight[row])


def test_the_second_channel_begins_with_the_same_vectors(tokenizers, vectors):
    model = model_of("kim", tokenizers, labels=3, width=8, maps=2, channels="multichannel")
    put_vectors(model, tokenizers, vectors(["dog"], 8), Heard())
    assert torch.equal(model.fixed, model.embedding.weight)


@pytest.mark.parametrize(
    ("name", "sizes", "setting"),
    [
        ("nplm", {"embedding": 6, "width": 6}, "model.embedding=4"),
        ("gpt", {"width": 8, "heads": 2}, "model.width=4"),
        ("lstmlm", {"width": 8}, "model.width=4"),
        ("lstmlm", {"width": 8, "embedding": 6}, "model.embedding=4"),
    ],
)
def test_another_width_is_refused_with_the_setting_that_sets_it(tokenizers, vectors, name, sizes, setting):
    with pytest.raises(ConfigError, match=f"are 4 wide.*Set {setting}"):
        put_vectors(model_of(name, tokenizers, **sizes), tokenizers, vectors(["dog"], 4), Heard())


def test_a_file_without_any_of_the_words_is_refused(tokenizers, vectors):
    with pytest.raises(DataError, match=r"none of the \d+ words of the vocabulary"):
        put_vectors(model_of("nplm", tokenizers, embedding=6), tokenizers, vectors(["DOG"], 6), Heard())


def test_freezing_needs_vectors_and_is_not_asked_for_by_default(tokenizers):
    model = model_of("nplm", tokenizers, embedding=6)
    assert begin_with_vectors(model, tokenizers, "", False, False, Heard()) == 0
    with pytest.raises(ConfigError, match="no vectors to freeze"):
        begin_with_vectors(model, tokenizers, "", True, False, Heard())


def test_a_run_that_goes_on_needs_no_file_and_stays_frozen(tokenizers):
    model = model_of("nplm", tokenizers, embedding=6)
    before = model.embedding.weight.detach().clone()
    assert begin_with_vectors(model, tokenizers, "/gone", True, True, Heard()) == 0
    assert not model.embedding.weight.requires_grad
    assert torch.equal(model.embedding.weight, before)


def test_frozen_tables_take_no_part_in_steps_norms_and_averages(tokenizers, vectors):
    model = model_of("nplm", tokenizers, embedding=6, width=5, order=3)
    begin_with_vectors(model, tokenizers, vectors(["dog"], 6), True, False, Heard())
    before = model.embedding.weight.detach().clone()
    optimizer = Optimizer(model, TrainConfig(lr=0.1, weight_decay=0.1), torch.device("cpu"))
    average = MovingAverage(model, 0.9)
    for step in (1, 2):
        hidden = model(pad_rows([[]]), torch.tensor([[1, 5, 6]])).hidden
        loss = model.output.loss(hidden, torch.tensor([[5, 6, 7]]), 0.0, 0.0).loss
        loss.backward()
        gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        norm = optimizer.step(loss, 1.0, step)
        assert float(norm) == pytest.approx(float(torch.stack(gradients).norm()), rel=1e-5)
        average.update(step)
    assert torch.equal(model.embedding.weight, before)
    assert torch.equal(average.average["embedding.weight"], before)
    assert not any(name.startswith("embedding") for name in optimizer.tensors())


SETTINGS = [
    "model.name=deep-averaging", "model.embedding=8", "model.width=8", "tokenizer.kind=word",
    "train.threads=1", "train.steps=12", "train.batch_tokens=96",
    "train.save_every=4", "data.valid_size=10", "data.test_size=10", "train.warmup=2", "train.lr=0.05", "train.select=last",
]  # fmt: skip


@pytest.fixture
def labelled(tmp_path):
    draw = random.Random(1)
    words = ["good", "bad", "film", "plot", "very", "the", "a"]
    lines = [" ".join(draw.choice(words) for _ in range(4)) for _ in range(80)]
    text = "".join(f"{'pos' if 'good' in line else 'neg'}\t{line} {i}\n" for i, line in enumerate(lines))
    (tmp_path / "labelled.tsv").write_text(text)
    return tmp_path / "labelled.tsv"


@pytest.mark.parametrize("freeze", [False, True])
def test_a_run_begins_with_vectors_and_goes_on_without_the_file(labelled, vectors, tmp_path, freeze):
    path = vectors(["good", "bad", "film"], 8)
    given = WordVectors.load(path)
    settings = [*SETTINGS, f"train.vectors={path}", f"train.freeze_vectors={str(freeze).lower()}"]

    def train(name: str, report: Reporter, *more: str):
        return regard.train(out=tmp_path / name, labelled=str(labelled), settings=[*settings, *more], report=report)

    train("whole", Reporter(quiet=True))
    model, tokenizers, _ = load_model(tmp_path / "whole")
    row = model.get_submodule("embedding").weight[token(tokenizers, "good")].detach()
    assert torch.equal(row, torch.from_numpy(given.vector("good"))) == freeze

    class Stopping(Reporter):
        """Asks the run to stop where a person would press Ctrl-C."""

        def update(self, step, values):
            super().update(step, values)
            signal.raise_signal(signal.SIGINT)

    result = train("stopped", Stopping(quiet=True), "train.log_every=5")
    assert result.interrupted is not None
    (tmp_path / "vectors").unlink()
    regard.resume(tmp_path / "stopped", report=Reporter(quiet=True))
    whole, stopped = (load_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


@pytest.mark.parametrize("name", ["kim", "recurrent-classifier"])
def test_sizes_are_chosen_to_fit_the_vectors(vectors, name):
    """Neither pieces of words nor another width: a file would give few words a vector, or none."""
    config = MODELS.get(name).Config()
    chosen = choose_labelled_sizes(1000, 100_000, config, cpu=True)
    fitted = sizes_for_vectors(chosen, vectors(["the", "dog"], 36))
    assert fitted["tokenizer"]["kind"] == "word"
    assert fitted["model"]["width" if name == "kim" else "embedding"] == 36
    assert fitted["train"] == chosen["train"]
    assert sizes_for_vectors(chosen, "") == chosen
