"""What a run's first steps launch has been tried before, and so compiled side by side: found on the meta device, without a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import regard.layers.training
from regard.core.types import Packed, Padded, Spans
from regard.data.batching import Batch, Place
from regard.data.packing import places_for_sentences
from regard.data.store import TokenRows, TokenStore
from regard.layers.decoding import triton_here
from regard.layers.training import trial
from regard.layers.training.short_attention import tiles_for
from regard.models.base import build_model
from regard.models.fused_forward import fused_forward, kernels_work, longest_packed
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig
from regard.training import loop
from regard.training.config import TrainConfig
from regard.training.loop import Trainer
from regard.training.lowered import Lowered
from regard.training.progress import Reporter
from regard.training.texts import PairText, lengths_of

pytestmark = pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
META = torch.device("meta")
SHAPE: dict[str, Any] = {"width": 64, "layers": 2, "heads": 2, "inner": 128, "dropout": 0.1}
MODELS = {
    "sinusoids": TransformerConfig(**SHAPE),
    "learned, rms, gelu": TransformerConfig(**SHAPE, positions="learned", normalise="rms", activation="gelu"),
    "rotary": TransformerConfig(**SHAPE, positions="none", relative="rotary"),
    "no dropout, another epsilon": TransformerConfig(**{**SHAPE, "dropout": 0.0}, norm_epsilon=1e-6),
    "gpt": GPTConfig(width=64, layers=2, heads=2, dropout=0.1, attention_dropout=0.0),
    "gpt, no biases": GPTConfig(width=64, layers=2, heads=2, dropout=0.1, attention_dropout=0.0, bias=False),
}
SIZES = {16: (16, 8), 32: (24, 32), 64: (40, 64), 128: (128, 120)}  # of padded batches whose attention takes such tiles


@pytest.fixture
def launched(monkeypatch) -> Iterator[set[Any]]:
    """The kinds of kernels that are launched: each is compiled once, at its first launch."""
    from triton.runtime.jit import JITFunction  # pyright: ignore[reportMissingImports]

    kinds: set[Any] = set()

    def launch(kernel: Any, grid: Any) -> Any:
        del grid

        def keep(*given: Any, **named: Any) -> None:
            names = [one.name for one in kernel.params]
            values = dict(zip(names, given, strict=False)) | {key: named.pop(key) for key in names if key in named}
            kind = tuple((one.name, known(values[one.name], one)) for one in kernel.params)
            kinds.add((kernel.fn.__name__, kind, tuple(sorted(named.items()))))

        return keep

    modules = [
        importlib.import_module(f"regard.layers.training.{found.name}")
        for found in pkgutil.iter_modules(regard.layers.training.__path__)
    ]
    monkeypatch.setattr(JITFunction, "__getitem__", launch)
    for module in [*modules, triton_here]:
        if hasattr(module, "runs_on"):
            monkeypatch.setattr(module, "runs_on", lambda _: True)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _: torch.bfloat16)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(trial, "_as_references", tried)
    for function in (trial.kernels_work, trial.packed_work):
        function.cache_clear()
    yield kinds
    for function in (trial.kernels_work, trial.packed_work):
        function.cache_clear()


def known(value: Any, parameter: Any) -> Any:
    """What a compiler knows of an argument."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if hasattr(value, "block_shape"):  # tiles that the copy engine brings
        return value.base.dtype, tuple(value.block_shape)
    if parameter.is_constexpr or isinstance(value, float):
        return value if parameter.is_constexpr else float
    if parameter.do_not_specialize:
        return int
    return 1 if value == 1 else (int, value % 16 == 0)


def tried(pieces: Any, device: torch.device, kind: Any, state: Any, low: Any, tiles: tuple[int, ...], _: str) -> bool:
    with torch.no_grad():
        for piece in pieces(device, kind, state, low, tiles=tiles):
            piece()
    return True


def numbers(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


def padded(tile: int) -> tuple[Padded, torch.Tensor]:
    source, target = SIZES[tile]
    return Padded(numbers(48, source), numbers(48, source, dtype=torch.bool)), numbers(48, target)


def packed(room: int, tokens: int = 1024) -> tuple[Packed, torch.Tensor]:
    count = places_for_sentences(room, tokens)
    places = (numbers(count + 1, dtype=torch.int32), numbers(tokens, dtype=torch.int32))
    return Packed(numbers(1, tokens), Spans(*places, room), Spans(*places, room)), numbers(1, tokens)


def model_of(name: str, **other: Any) -> Any:
    config = dataclasses.replace(MODELS[name], **other)
    with META:
        model = build_model(config.name, config, source_vocabulary=96, target_vocabulary=96, shared=True)
    return model.train()


def step(model: Any, source: Any, target: torch.Tensor, lowered: bool = False) -> None:
    if lowered:
        model = Lowered(model, torch.bfloat16).model
    forward = fused_forward(model)
    assert forward is not None
    forward(source, target).hidden.float().sum().backward()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("tiles", [(16,), (16, 32, 64), (32, 128)])
def test_nothing_is_left_to_compile_in_steps(launched, name: str, tiles: tuple[int, ...], lowered: bool) -> None:
    model = model_of(name)
    assert kernels_work(model, META, True, lowered, tiles)
    before = set(launched)
    for tile in tiles:
        step(model, *padded(tile), lowered)
    assert {kind[0] for kind in launched} >= {"attend", "attend_backward", "_forward", "_backward", "_embed"}
    assert launched == before
    other = next(iter({16, 32, 64, 128} - {*tiles}))
    step(model, *padded(other), lowered)
    assert {kind[0] for kind in launched - before} == {"attend", "attend_backward"}


def test_attention_that_has_dropout_is_the_library_s_and_ours_is_not_tried(launched) -> None:
    model = model_of("gpt", attention_dropout=0.1)
    assert kernels_work(model, META, True, False, (16, 64))
    before = set(launched)
    step(model, *padded(64))
    assert launched == before
    assert not {kind[0] for kind in launched} & {"attend", "attend_backward"}


@pytest.mark.parametrize("name", [name for name, config in MODELS.items() if config.name == "transformer"])
@pytest.mark.parametrize("lowered", [False, True])
def test_nothing_is_left_to_compile_in_packed_steps(launched, name: str, lowered: bool) -> None:
    model, rooms = model_of(name), (8, 16, 32, 64, 128)
    assert kernels_work(model, META, True, lowered, ())
    assert longest_packed(model, META, True, lowered, rooms) == 128
    before = set(launched)
    for room in rooms:
        step(model, *packed(room), lowered)
    assert launched == before


def lopsided(growth: float = 1.0) -> PairText:
    """Sources of 15 to 40 tokens, targets of up to 7: (16, 8), (24, 8), (32, 8) and (48, 8) with what is behind them."""
    draw = np.random.default_rng(1)
    sides = (draw.integers(15, 41, 200), draw.integers(0, 8, 200))
    source, target = (TokenRows.from_lists(draw.integers(4, 20, n).tolist() for n in side) for side in sides)
    return PairText(TokenStore(source, target, kept=np.arange(200)), growth=growth)


@pytest.mark.parametrize("growth", [1.0, 1.6])
def test_tiles_of_the_text_are_those_of_its_batches(growth: float) -> None:
    text = lopsided(growth)
    lengths = lengths_of(text)
    assert lengths is not None
    met = set()
    with text.open(TrainConfig(batch_tokens=400, workers=0), Place(), 8, True) as stream:
        for drawn in stream:
            batch = cast(Batch, drawn.batch)
            source, target = batch.source.tokens.shape[1], batch.target_in.shape[1]
            met |= set(tiles_for((source, target, max(source, target))))
            if drawn.next.epoch:
                break
    assert met == set(tiles_for(lengths)) if growth == 1.0 else met <= set(tiles_for(lengths))


def test_a_language_model_reads_windows_and_of_other_texts_nothing_is_known() -> None:
    class Windows:
        window = 70

    assert lengths_of(Windows()) == [70]  # type: ignore[arg-type]
    assert lengths_of(object()) is None  # type: ignore[arg-type]
    assert tiles_for([70, 1024]) == (128,)


@pytest.mark.parametrize("fused", [False, True])
def test_a_run_has_kernels_tried_for_its_text(monkeypatch, tmp_path: Path, fused: bool) -> None:
    asked: list[Any] = []
    for where, answer in (("kernels_work", True), ("longest_packed", 0)):
        monkeypatch.setattr(loop, where, lambda model, *given, answer=answer: asked.append(given) or answer)
    torch.manual_seed(0)
    model = build_model("transformer", MODELS["sinusoids"], source_vocabulary=20, target_vocabulary=20, shared=True)
    config = TrainConfig(steps=2, fused=fused, packed=True, threads=1, workers=0, batch_tokens=64)
    text, cpu = lopsided(), torch.device("cpu")
    subject = Trainer(model, text, None, config, tmp_path, cpu, Reporter(quiet=True))
    subject.on_cuda = True  # from here on
    assert subject._what_to_try() == (cpu, False, False, lengths_of(text) if fused else None)
    subject._text()
    assert asked == ([(cpu, False, False, None), (cpu, False, False, lengths_of(text))] if fused else [])
