"""Models that write in bfloat16: which may, where, and that all that can be asked of a translator is answered nearly as before."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import regard
from regard.core import device as devices
from regard.core.errors import ConfigError, ModelError
from regard.core.number_formats import ASKED
from regard.layers.int8_linear import Int8Matrix
from regard.models.base import build_model
from regard.models.lstmlm import LSTMLMConfig
from regard.models.transformer import TransformerConfig
from regard.serving.shelf import Shelf
from regard.tasks import language_model, lower_numbers, pretrained
from regard.tasks.ensembles import ensemble
from regard.tasks.lower_numbers import in_numbers
from regard.tasks.pretrained import bundled_model
from regard.tasks.translation import Translator
from regard.training import precision
from regard.training.config import TrainConfig

CPU = torch.device("cpu")
TEXTS = ["Where is the nearest bank?", "", "I have never seen it. Have you?", "He laughed.", "It was too tired."]


def model_of(name: str, config: object):
    torch.manual_seed(1)
    return build_model(name, config, source_vocabulary=9, target_vocabulary=9, shared=True)


@pytest.fixture(scope="module")
def low() -> Translator:
    if (reason := devices.why_no_bfloat16(CPU)) is not None:
        pytest.skip(reason)
    return regard.load(device="cpu", engine="torch", compute="bfloat16")


@pytest.fixture(scope="module")
def plain() -> Translator:
    return regard.load(device="cpu", engine="torch")


def test_weights_are_of_sixteen_bits_and_texts_the_same(low: Translator, plain: Translator) -> None:
    assert {p.dtype for p in low.model.parameters()} == {torch.bfloat16}
    assert low.translate(TEXTS) == plain.translate(TEXTS)
    streams = [[(t, [h.text for h in many]) for t, many in one.translate_stream(TEXTS)] for one in (low, plain)]
    assert streams[0] == streams[1]
    for ours, theirs in zip(low.hypotheses(TEXTS), plain.hypotheses(TEXTS), strict=True):
        assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], abs=0.1)
        assert all(isinstance(h.log_prob, float) for h in ours)


def test_what_else_is_asked_of_a_translator_is_answered(low: Translator, plain: Translator, tmp_path: Path) -> None:
    texts = [text for text in TEXTS if text]
    written = plain.translate(texts)
    assert low.align(texts, written) == plain.align(texts, written)
    for ours, theirs in zip(low.score(texts, written), plain.score(texts, written), strict=True):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=0.1)
    ours, theirs = (one.hypotheses(texts[:1], attention=True)[0][0] for one in (low, plain))
    assert ours.attention is not None
    assert torch.tensor(ours.attention).sub(torch.tensor(theirs.attention)).abs().max() < 0.03
    covering = dataclasses.replace(low.search, coverage=0.2)
    assert low.translate(texts[0], search=covering) == plain.translate(texts[0], search=covering)
    sampled = low.translate(texts, search=dataclasses.replace(low.search, method="sample", seed=3))
    assert all(sampled)
    seen = regard.look(low, texts[0])
    seen.save(tmp_path / "page.html")
    assert seen.trace.answer == written[0]
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_by_itself_a_processor_takes_another_engine_and_float32(plain: Translator) -> None:
    assert {p.dtype for p in plain.model.parameters()} == {torch.float32}
    with pytest.raises(ConfigError, match="'int4' is not one of auto, float32, bfloat16"):
        in_numbers(plain.model, CPU, "int4")  # type: ignore[arg-type]


def test_bfloat16_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_numbers, "why_no_bfloat16", lambda device: None)
    translator = regard.load(device="cpu", compute="bfloat16")
    assert (translator.engine, translator.engine_note) == ("torch", "bfloat16 is of torch")
    assert next(translator.model.parameters()).dtype == torch.bfloat16
    with pytest.raises(regard.RegardError, match="bfloat16 is of torch"):
        regard.load(device="cpu", engine="ctranslate2", compute="bfloat16")


def test_models_and_machines_that_cannot_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_numbers, "why_no_bfloat16", lambda device: None)
    recurrent = model_of("lstmlm", LSTMLMConfig(width=8))
    with pytest.raises(ConfigError, match=r"add up from step to step.*Use float32 or auto"):
        in_numbers(recurrent, CPU, "bfloat16")
    assert in_numbers(recurrent, CPU, "float32") is recurrent
    batches = model_of("transformer", TransformerConfig(width=8, layers=1, heads=2, normalise="batch"))
    with pytest.raises(ConfigError, match="batch normalisation"):
        in_numbers(batches, CPU, "bfloat16")
    monkeypatch.setattr(lower_numbers, "why_no_bfloat16", lambda device: "this CPU cannot")
    with pytest.raises(ConfigError, match="this CPU cannot"):
        in_numbers(model_of("transformer", TransformerConfig(width=8, layers=1, heads=2)), CPU, "bfloat16")
    with pytest.raises(ConfigError, match=r"int8 is for a CPU, and cuda is none.*bfloat16"):
        in_numbers(recurrent, torch.device("cuda"), "int8")
    assert devices.why_no_bfloat16(torch.device("mps")) == "on mps it was never tried"


def test_a_processor_is_tried_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; and training asks the same."""
    asked: list[list[str]] = []

    class Died:
        returncode = -4  # an illegal instruction

    def run(command: list[str], **_: object) -> Died:
        asked.append(command)
        return Died()

    monkeypatch.setattr(devices.subprocess, "run", run)
    devices._cpu_multiplies_bfloat16.cache_clear()
    try:
        for _ in range(2):
            assert devices.why_no_bfloat16(CPU) == "this CPU cannot multiply in bfloat16"
        with pytest.raises(ConfigError, match=r"train.precision: this CPU cannot multiply in bfloat16"):
            precision.uses_bfloat16(TrainConfig(precision="bfloat16"), CPU)
        assert not precision.uses_bfloat16(TrainConfig(), CPU)
        assert len(asked) == 1
        assert "bfloat16" in asked[0][2]
    finally:
        devices._cpu_multiplies_bfloat16.cache_clear()


def test_language_models_take_what_is_theirs(low: Translator, text_run: Path) -> None:
    """In int8 only large matrices are, which this GPT has in its feed-forward layer."""
    found = {compute: regard.load(text_run, "cpu", compute=compute) for compute in ASKED}  # type: ignore[call-overload]
    kinds = {name: {p.dtype for p in one.model.parameters()} for name, one in found.items()}
    assert kinds.pop("bfloat16") == {torch.bfloat16}
    assert {torch.float32} == set().union(*kinds.values())
    rounded = {
        name
        for name, one in found.items()
        if any(isinstance(value, Int8Matrix) for part in one.model.modules() for value in vars(part).values())
    }
    assert rounded == {"int8"}
    assert len({one.generate("the", max_tokens=4, method="greedy") for one in found.values()}) == 1


def dtypes(model: torch.nn.Module) -> set[torch.dtype]:
    return {p.dtype for p in model.parameters()}


def test_models_that_write_together_compute_alike(low: Translator, tmp_path: Path) -> None:
    folders = [bundled_model(), bundled_model()]
    together = ensemble(folders, "cpu", compute="bfloat16")
    assert dtypes(together.model) == {torch.bfloat16}
    assert together.translate(TEXTS) == low.translate(TEXTS)
    assert dtypes(ensemble(folders, "cpu").model) == {torch.float32}
    with pytest.raises(ConfigError, match="'int4' is not one of"):
        ensemble(folders, "cpu", compute="int4")  # type: ignore[arg-type]
    (served,) = Shelf.open([f"both={bundled_model()}+{bundled_model()}"], device="cpu", compute="bfloat16")
    assert dtypes(served.load().model) == {torch.bfloat16}


def test_what_was_rounded_is_not_exported(low: Translator, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"rounded to 16 bits.*compute='float32'"):
        regard.export(low, to="huggingface", out=tmp_path / "out")


def test_label_writers_compute_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "read_config", lambda folder: {"model": {"name": "label-writer"}})
    with pytest.raises(ConfigError, match="a label-writer computes in float32"):
        regard.load("somewhere", compute="bfloat16")


def spied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which numbers are asked for, as often as they are."""
    asked: list[str] = []
    usual = lower_numbers.in_numbers

    def in_numbers(model, device, compute, note=""):
        asked.append(compute)
        return usual(model, device, compute, note)

    monkeypatch.setattr(lower_numbers, "in_numbers", in_numbers)
    monkeypatch.setattr(language_model, "in_numbers", in_numbers)
    return asked


def test_commands(low: Translator, command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text_run: Path) -> None:
    asked = spied(monkeypatch)
    done = command("translate", "--compute", "bfloat16", "--device", "cpu", "--verbose", TEXTS[0])
    assert (done.code, done.lines) == (0, [low.translate(TEXTS[0])])
    assert "bfloat16 is of torch" in done.err
    text, pairs = tmp_path / "text", tmp_path / "pairs.tsv"
    text.write_text("".join(f"{line}\n" for line in TEXTS))
    done = command("distil", text, "--out", pairs, "--compute", "bfloat16", "--device", "cpu")
    assert done.code == 0, done.err
    assert pairs.read_text().splitlines() == [f"{s}\t{low.translate(s)}" for s in TEXTS if s]
    greedy = ("-p", "the", "--compute", "bfloat16", "--device", "cpu", "--method", "greedy", "--json")
    done = command("generate", "-m", text_run, *greedy)
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["generations"]) == 1
    done = command("translate", "--alternatives", 2, "--compute", "bfloat16", "--device", "cpu", TEXTS[0])
    assert done.code == 0, done.err
    assert asked == ["bfloat16"] * 4
    done = command("generate", "-m", text_run, "--draft", text_run, *greedy)  # a draft is in float32
    assert done.code == 0, done.err
    assert asked[4:] == ["bfloat16", "auto"]
    for more in ((), ("--with", bundled_model()), ("--alternatives", 2)):
        done = command("translate", *more, "--compute", "int4", "x")
        assert done.code == 1
        assert "not one of" in done.err


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT trained for three steps."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text").write_text("the cat sat on the mat\n" * 60)
    settings = {
        "model": {"name": "gpt", "width": 256, "inner": 1024, "layers": 1, "heads": 2, "context": 16},
        "tokenizer": {"kind": "byte"},
        "train": {"steps": 3, "batch_tokens": 64, "threads": 1},
    }
    regard.train(out=folder / "run", text=str(folder / "text"), settings=settings)
    return folder / "run"
