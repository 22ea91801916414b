"""What is converted for CTranslate2 computes what the torch model computes; what cannot be expressed is refused in words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toys import SOURCE, arrays, texts, toy

from regard.core.errors import CheckpointError, ModelError
from regard.core.types import BOS, EOS, SPECIALS, pad_rows
from regard.engines.ctranslate2_format import quantised
from regard.engines.ctranslate2_limits import POSITIONS, longest, why_not
from regard.engines.ctranslate2_model import converted, position_table
from regard.engines.transformer_settings import TRAINING_ONLY, TransformerSettings
from regard.layers.positions import WAVES
from regard.models.transformer import TransformerConfig
from regard.search.forcing import score_pairs

ctranslate2 = pytest.importorskip("ctranslate2")

EXPRESSED: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"normalise": "rms"},
    {"norm": "post", "normalise": "rms"},
    {"activation": "gelu"},
    {"activation": "gelu_tanh"},
    {"activation": "swish"},
    {"activation": "swiglu"},
    {"positions": "none"},
    {"positions": "sinusoidal-halves"},
    {"positions": "sine"},
    {"positions": "learned", "max_length": 60},
    {"scaling": False},
    {"encoder_layers": 3, "decoder_layers": 1},
    {"tie": "target"},
    {"tie": "none", "shared": False},
    {"shared": False},
    {"positions": "none", "relative": "shaw", "relative_distance": 3},
    {"positions": "none", "relative": "shaw", "relative_to": "keys"},
    {"positions": "none", "relative": "shaw", "relative_to": "values", "norm": "post"},
    {"positions": "none", "relative": "t5"},
    {"positions": "none", "relative": "t5", "relative_distance": 20, "relative_buckets": 8, "scaling": False},
    {"positions": "none", "relative": "alibi"},
    {"positions": "none", "relative": "alibi", "heads": 6, "width": 36},
    {"positions": "none", "relative": "rotary"},
    {"positions": "none", "relative": "rotary", "rotary_layout": "halves", "rotary_base": 500.0},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "luong"}, "no model like 'luong'"),
    ({"name": "universal"}, "no model like 'universal'"),
    ({"normalise": "batch"}, "normalise='batch'"),
    ({"residual": False}, "residual=false"),
    ({"positions": "fraction"}, "positions='fraction'"),
    ({"positions": "none", "relative": "music"}, "relative='music'"),
    ({"positions": "none", "relative": "shaw", "relative_per_head": True}, "relative_per_head=true"),
    ({"relative": "rotary"}, "positions='sinusoidal' where relative='rotary'"),
    ({"new_setting": 1}, "'new_setting'"),
    ({"width": "wide"}, "width is 'wide'"),
    ({"layers": 10**9}, "layers is 1000000000"),
    ({"heads": 3}, "3 heads do not divide"),
]


def run(section: dict[str, Any], weights: Any, target: list[str], compute: Any = "float32") -> Any:
    files = converted(section, weights, SOURCE, target, compute)
    return ctranslate2.Translator("toy", files=files, compute_type=compute, intra_threads=1)


def pieces(rows: list[list[int]], tokens: list[str], end: bool = False) -> list[list[str]]:
    return [[*(tokens[i] for i in row), *([SPECIALS[EOS]] if end else [])] for row in rows]


@pytest.mark.parametrize("settings", EXPRESSED, ids=str)
def test_log_probabilities_and_greedy_texts_are_those_of_torch(settings: dict[str, Any]) -> None:
    model, section, target = toy(**settings)
    weights = arrays(model)
    before = {name: array.copy() for name, array in weights.items()}
    assert why_not(section) is None
    translator = run(section, weights, target)
    sources, forced = texts(len(SOURCE), 8, 40), texts(len(target), 8, 40, seed=2)
    batch = pad_rows([[*row, EOS] for row in sources])
    scored = translator.score_batch(pieces(sources, SOURCE, end=True), pieces(forced, target))
    for (_, wanted), got in zip(score_pairs(model, batch, forced), scored, strict=True):
        np.testing.assert_allclose(got.log_probs, wanted, atol=1e-4)
    written = translator.translate_batch(
        pieces(sources, SOURCE, end=True),
        beam_size=1,
        max_decoding_length=12,
        min_decoding_length=0,
        return_end_token=True,
    )
    assert [result.hypotheses[0] for result in written] == pieces(_greedy(model, batch, 12), target)
    run(section, weights, target, "int8")
    assert all((weights[name] == before[name]).all() for name in weights)


@torch.inference_mode()
def _greedy(model: Any, source: Any, count: int) -> list[list[int]]:
    """The likeliest token after the likeliest tokens, by teacher forcing; up to EOS."""
    rows = torch.full((len(source.tokens), 1), BOS)
    for _ in range(count):
        rows = torch.cat([rows, model.output.scores(model(source, rows).hidden[:, -1]).argmax(-1, keepdim=True)], 1)
    written = [row[1:] for row in rows.tolist()]
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in written]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=str)
def test_what_cannot_be_expressed_is_refused_in_words(settings: dict[str, Any], words: str) -> None:
    section = {"name": "transformer", "width": 32, **settings}
    assert words in str(why_not(section))
    with pytest.raises(ModelError, match="Use the torch engine"):
        converted(section, {}, SOURCE, SOURCE, "float32")


def test_int8_is_near() -> None:
    model, section, target = toy()
    translator = run(section, arrays(model), target, "int8")
    sources, forced = texts(len(SOURCE), 8, 20), texts(len(target), 8, 20, seed=2)
    scored = translator.score_batch(pieces(sources, SOURCE, end=True), pieces(forced, target))
    wanted = score_pairs(model, pad_rows([[*row, EOS] for row in sources]), forced)
    for (_, each), got in zip(wanted, scored, strict=True):
        np.testing.assert_allclose(got.log_probs, each, atol=0.5)
    assert len(converted(section, arrays(model), SOURCE, target, "int8")["model.bin"]) < 400_000


@pytest.mark.parametrize("compute", ["float32", "int8_float32"])
@pytest.mark.parametrize("settings", [{}, {"activation": "swiglu"}, {"positions": "none", "relative": "shaw"}], ids=str)
def test_files_are_those_that_ctranslate2_itself_writes(settings: dict[str, Any], compute: str, tmp_path: Path) -> None:
    from ctranslate2.specs import TransformerSpec

    model, section, _ = toy(shared=True, **settings)
    files = converted(section, arrays(model), SOURCE, SOURCE, compute)  # type: ignore[arg-type]
    spec = TransformerSpec.from_config(
        (2, 2),
        4,
        with_relative_position=settings.get("relative") == "shaw",
        ffn_glu=settings.get("activation") == "swiglu",
        activation=2 if settings.get("activation") == "swiglu" else 0,  # type: ignore[arg-type]
    )
    _fill(spec, converted(section, arrays(model), SOURCE, SOURCE, "float32")["model.bin"])
    spec.register_source_vocabulary(SOURCE)
    spec.register_target_vocabulary(SOURCE)
    spec.validate()
    spec.optimize(quantization=compute)
    spec.save(str(tmp_path))
    assert (tmp_path / "model.bin").read_bytes() == files["model.bin"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def _fill(spec: Any, content: bytes) -> None:
    """Puts the arrays of a model.bin into a specification; each must have a place there."""
    import struct

    from ctranslate2.specs.model_spec import index_spec

    at = 0

    def read(form: str) -> tuple:
        nonlocal at
        values = struct.unpack_from(form, content, at)
        at += struct.calcsize(form)
        return values

    def text() -> str:
        nonlocal at
        (size,) = read("<H")
        at += size
        return content[at - size : at - 1].decode()

    read("<I")
    text()
    _, count = read("<II")
    arrays: dict[str, Any] = {}
    for _ in range(count):
        name = text()
        (rank,) = read("<B")
        shape = read(f"<{rank}I")
        kind, size = read("<BI")
        form = np.dtype(("<f4", "i1", "<i2", "<i4")[kind])
        arrays[name] = np.frombuffer(content, form, size // form.itemsize, at).reshape(shape).copy()
        at += size
    for _ in range(read("<I")[0]):
        alias, name = text(), text()
        arrays[alias] = arrays[name]
    for name, array in arrays.items():
        scope, _, key = name.rpartition("/")
        assert hasattr(index_spec(spec, scope), key), name
        setattr(index_spec(spec, scope), key, array if array.ndim else array[()])


def test_settings_are_those_of_the_model() -> None:
    """The copy of the defaults that can be had without torch does not drift from the model's own."""
    own = {field.name: field.default for field in dataclasses.fields(TransformerConfig)}
    copied = {field.name: field.default for field in dataclasses.fields(TransformerSettings)}
    assert copied == {name: value for name, value in own.items() if name not in TRAINING_ONLY}


@pytest.mark.parametrize("kind", list(WAVES))
def test_tables_of_positions_are_those_of_the_layers(kind: str) -> None:
    wanted = WAVES[kind](torch.arange(POSITIONS), 32).numpy()
    np.testing.assert_allclose(position_table(kind, 32)[:100], wanted[:100], atol=2e-5)
    np.testing.assert_allclose(position_table(kind, 32), wanted, atol=2e-4)  # angles of a thousand radians in float32


def test_lengths_end_where_the_table_does() -> None:
    assert longest({"name": "transformer"}) == POSITIONS
    assert longest({"name": "transformer", "positions": "learned"}) == 512
    assert longest({"name": "transformer", "positions": "learned", "max_length": 9}) == 9


def test_weights_that_do_not_fit_are_named() -> None:
    model, section, target = toy()
    weights = arrays(model)
    missing = {name: array for name, array in weights.items() if name != "decoder.1.cross.out.bias"}
    with pytest.raises(CheckpointError, match=r"decoder\.1\.cross\.out\.bias.*is missing"):
        converted(section, missing, SOURCE, target, "int8")
    with pytest.raises(CheckpointError, match=r"encoder\.9.*belongs to another model"):
        converted(section, {**weights, "encoder.9": np.zeros(1)}, SOURCE, target, "int8")
    with pytest.raises(CheckpointError, match="has shape"):
        converted({**section, "inner": 64}, weights, SOURCE, target, "int8")
    with pytest.raises(CheckpointError, match="layer 999"):
        converted({**section, "encoder_layers": 1000}, weights, SOURCE, target, "int8")


def test_quantising_changes_nothing_it_is_given() -> None:
    matrix = np.array([[1.0, -2.0], [0.0, 0.0], [1e-40, 0.0]], np.float32)
    before = matrix.copy()
    whole, scale = quantised(matrix)
    assert (matrix == before).all()
    assert whole[0].tolist() == [64, -127]
    assert whole[1].tolist() == [0, 0]
    assert np.isfinite(scale).all()
