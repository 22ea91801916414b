"""CTranslate2 folders, written by CTranslate2's own writer: the imported model and CTranslate2 agree on the same weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
from ctranslate2.specs import common_spec, transformer_spec

import regard
from regard.core.errors import CheckpointError, TokenizerError
from regard.engines.ctranslate2_reading import read_arrays
from regard.exchange.import_ctranslate2 import read_ctranslate2
from regard.tasks.converted_run import ctranslate2_files
from regard.tasks.run_files import open_run

WORDS = [f"word{i}" for i in range(30)]
TEXTS = ["word3 word1 word11 word3 unheard", "word2", "word8 word9 word29 word0 word4 word4 word1"]
GIVEN = ["word5 word9", "word7 word7 word1", "word12"]
WIDTH, HEADS = 16, 2


def spec(**settings: Any) -> Any:
    """A model with random weights, as a converter would fill it."""
    draw = np.random.default_rng(5)
    zero, waves = settings.pop("zero", False), settings.pop("waves", "marian")
    tied, scaled = settings.pop("tied", True), settings.pop("scaled", True)
    gated, ends = settings.get("ffn_glu", False), settings.pop("ends", 0.0)
    made: Any = transformer_spec.TransformerSpec.from_config((2, 1), HEADS, **settings)
    size = len(WORDS) + 4

    def matrix(*shape: int) -> np.ndarray:
        return draw.normal(0, 0.4, shape).astype(np.float32)

    def linear(one: Any, rows: int, columns: int) -> None:
        one.weight, one.bias = matrix(rows, columns), matrix(rows)

    def norm(one: Any) -> None:
        one.gamma = 1 + matrix(WIDTH)
        if not settings.get("rms_norm"):
            one.beta = matrix(WIDTH)

    def attention(one: Any, cross: bool) -> None:
        shapes = (1, 2, 1) if cross else (3, 1)
        for part, times in zip(one.linear, shapes, strict=True):
            linear(part, times * WIDTH, WIDTH)
        norm(one.layer_norm)
        if settings.get("with_relative_position") and not cross:
            one.relative_position_keys = matrix(7, WIDTH // HEADS)
            one.relative_position_values = matrix(7, WIDTH // HEADS)

    made.encoder.embeddings[0].weight = matrix(size, WIDTH)
    made.decoder.embeddings.weight = made.encoder.embeddings[0].weight if tied else matrix(size, WIDTH)
    linear(made.decoder.projection, size, WIDTH)
    made.decoder.projection.bias[[0, -1]] += [ends, -10 * ends]  # </s>, and padding, which trained models do not write
    if tied:
        made.decoder.projection.weight = made.decoder.embeddings.weight
    made.decoder.start_from_zero_embedding = zero
    for stack in (made.encoder, made.decoder):
        stack.scale_embeddings = scaled
        if hasattr(stack, "position_encodings") and waves != "built in":
            stack.position_encodings.encodings = positions(waves)
        if hasattr(stack, "layer_norm"):
            norm(stack.layer_norm)
        for layer in stack.layer:
            attention(layer.self_attention, False)
            if stack is made.decoder:
                attention(layer.attention, True)
            linear(layer.ffn.linear_0, 24, WIDTH)
            if gated:
                linear(layer.ffn.linear_0_noact, 24, WIDTH)
            linear(layer.ffn.linear_1, WIDTH, 24)
            norm(layer.ffn.layer_norm)
    return made


def positions(kind: str) -> np.ndarray:
    rows = np.arange(60)[:, None]
    paper = 10000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    rates = {"halves": 10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2 - 1))}.get(kind, paper)
    sine, cosine = np.sin(rows * rates), np.cos(rows * rates)
    if kind == "paper":
        return np.stack((sine, cosine), -1).reshape(60, WIDTH).astype(np.float32)
    if kind == "learned":
        return np.random.default_rng(7).normal(0, 0.5, (60, WIDTH)).astype(np.float32)
    return np.concatenate((sine, cosine), 1).astype(np.float32)


def write(folder: Path, quantisation: str | None = None, *, end: bool = True, **settings: Any) -> Path:
    made = spec(**settings)
    tokens = ["</s>", "<unk>", "<s>", *WORDS, "<blank>"]
    if settings.get("zero"):
        tokens[2] = "word30"  # no start among its tokens
    made.register_source_vocabulary(tokens)
    made.register_target_vocabulary(tokens)
    made.config.add_source_eos = end
    made.validate()
    made.optimize(quantization=quantisation)
    folder.mkdir()
    made.save(str(folder))
    return folder


def scores(folder: Path, ours: Path) -> tuple[list[list[float]], list[list[float]]]:
    """The log-probabilities of given targets, by CTranslate2 in float32 and by the imported run."""
    engine = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
    theirs = engine.score_batch([text.split() for text in TEXTS], [text.split() for text in GIVEN])
    translator = regard.load(ours, "cpu", engine="torch")
    found = translator.score(TEXTS, GIVEN)
    return [list(one.log_probs) for one in theirs], [one.token_log_probs for one in found]


@pytest.mark.parametrize(
    "settings",
    [
        {"zero": True, "activation": common_spec.Activation.SWISH},
        {"waves": "paper", "pre_norm": True, "tied": False},
        {"waves": "halves", "activation": common_spec.Activation.GELU, "scaled": False},
        {"waves": "learned", "activation": common_spec.Activation.GELUTanh, "quantisation": "int16"},
        {"waves": "built in", "quantisation": "float16"},
        {"with_relative_position": True, "pre_norm": True, "end": False},
        {"ffn_glu": True, "activation": common_spec.Activation.SWISH, "rms_norm": True, "pre_norm": True},
        {"zero": True, "quantisation": "int8"},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_it_computes_what_ctranslate2_computes(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = write(tmp_path / "theirs", **{"pre_norm": False, **settings})
    theirs, ours = scores(folder, regard.import_model(folder, tmp_path / "run"))
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(other, one, atol=2e-5)


def test_beam_search_finds_the_same_texts(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", "int8", pre_norm=False, zero=True, tied=False, ends=2.0)
    translator = regard.load(regard.import_model(folder, tmp_path / "run"), "cpu", engine="torch")
    engine = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
    draw = np.random.default_rng(1)
    texts = [" ".join(draw.choice(WORDS, draw.integers(1, 8))) for _ in range(30)]
    found = engine.translate_batch(
        [text.split() for text in texts], beam_size=4, min_decoding_length=0, max_decoding_length=50
    )
    kept = [(text, one.hypotheses[0]) for text, one in zip(texts, found, strict=True) if len(one.hypotheses[0]) < 20]
    assert len(kept) > 10  # those that end
    ours = translator.translate([text for text, _ in kept], beam=4)
    assert len(set(ours)) > 5
    assert ours == [" ".join(tokens) for _, tokens in kept]


def test_regards_own_files_come_back(tmp_path: Path) -> None:
    """What regard's writer wrote, read again, has the same weights: rows and all."""
    folder = write(tmp_path / "theirs", pre_norm=True)
    run = regard.import_model(folder, tmp_path / "run")
    (tmp_path / "again").mkdir()
    for name, content in ctranslate2_files(open_run(run), "float32").items():
        (tmp_path / "again" / name).write_bytes(content)
    found = read_ctranslate2(tmp_path / "again")
    assert found.settings["source_end"] is True
    first = regard.load(run, "cpu", engine="torch").model.state_dict()
    for name in ("encoder.1.feedforward.inner.weight", "target_embedding.weight", "decoder_norm.bias"):
        np.testing.assert_array_equal(found.weights[name].numpy(), first[name].numpy())


def test_another_activation_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", pre_norm=False, activation=common_spec.Activation.GELUSigmoid)
    with pytest.raises(CheckpointError, match="activation 4 is not supported"):
        regard.import_model(folder, tmp_path / "run")


def test_what_has_no_place_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", pre_norm=False)
    path = folder / "model.bin"
    whole = path.read_bytes()
    edit(path, b"decoder/alibi\0", 2 + 4, b"\x01")
    with pytest.raises(CheckpointError, match="'decoder/alibi' has no place in regard's Transformer"):
        regard.import_model(folder, tmp_path / "run")
    path.write_bytes(whole)
    add_array(path, b"decoder/layernorm_embedding/gamma\0", np.ones(WIDTH, np.float32))
    with pytest.raises(CheckpointError, match="'decoder/layernorm_embedding/gamma' has no place"):
        regard.import_model(folder, tmp_path / "run")
    path.write_bytes(whole)
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, "add_source_bos": True}))
    with pytest.raises(CheckpointError, match="add_source_bos=true is not supported"):
        regard.import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def add_array(path: Path, name: bytes, values: np.ndarray) -> None:
    """Puts an array before all others."""
    content = path.read_bytes()
    at = 4 + 2 + len("TransformerSpec\0") + 4
    count = struct.unpack_from("<I", content, at)[0]
    extra = struct.pack("<H", len(name)) + name + struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)
    extra += struct.pack("<BI", 0, values.nbytes) + values.tobytes()
    path.write_bytes(content[:at] + struct.pack("<I", count + 1) + extra + content[at + 4 :])


def edit(path: Path, after: bytes, skip: int, content: bytes) -> None:
    """Changes the bytes that stand `skip` after a name."""
    whole = bytearray(path.read_bytes())
    at = whole.index(after) + len(after) + skip
    whole[at : at + len(content)] = content
    path.write_bytes(whole)


def test_pieces_without_their_model_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", pre_norm=False)
    tokens = json.loads((folder / "shared_vocabulary.json").read_text())
    (folder / "shared_vocabulary.json").write_text(json.dumps([t.replace("word", "▁word") for t in tokens]))
    with pytest.raises(TokenizerError, match="Give it with --pieces FILE"):
        regard.import_model(folder, tmp_path / "run")


def test_sizes_are_checked_before_anything_is_believed(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", pre_norm=False)
    path = folder / "model.bin"
    whole = path.read_bytes()
    assert len(read_arrays(path).left) > 20
    for cut in range(0, len(whole) - 1, 997):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError):
            read_arrays(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="1 bytes are left over"):
        read_arrays(path)
