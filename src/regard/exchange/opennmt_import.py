"""Transformer checkpoints of OpenNMT-py (.pt of versions 1 to 3) as run folders. It is not needed, and nothing is run.

A checkpoint holds the model's weights, those of its generator, the vocabularies (lists of tokens, or torchtext's objects, which
come as inert records) and the options. Sources have no EOS there: the run's model has `source_end=false`.

What it computes: pre-norm, the paper's positions (or Shaw's distances), layer norms with an epsilon of 1e-6. Refused by name:
copy attention, features, other encoders and decoders, other ways of seeing positions, gates other than SwiGLU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.exchange.huggingface_files import check_free
from regard.exchange.import_settings import Settings, Weights, tensors_of
from regard.exchange.import_translator import (
    BIAS,
    OUTPUT,
    SOURCE,
    TARGET,
    Found,
    set_positions,
    unscaled_tables,
    write_translator,
)
from regard.exchange.import_vocabulary import Foreign
from regard.exchange.restricted_unpickling import Record
from regard.exchange.restricted_unpickling_torch import TorchFile

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "fast_gelu": "gelu_tanh", "silu": "swiglu"}
EPSILON = 1e-6
TABLE = "{}.embeddings.make_embedding.emb_luts.0.weight"
POSITIONS = "{}.embeddings.make_embedding.pe.pe"
UNKNOWN, PADDING, START, END = "<unk>", ("<blank>", "<pad>"), "<s>", "</s>"
MOST_LAYERS = 1000


def is_opennmt(value: Any) -> bool:
    return isinstance(value, dict) and {"model", "generator", "vocab", "opt"} <= value.keys()


def import_opennmt(file: TorchFile, out: Path, *, pieces: tuple[Path | None, Path | None] = (None, None)) -> Path:
    """Makes a run folder of an OpenNMT-py checkpoint. `pieces` are SentencePiece models, if its texts were cut by them."""
    check_free(out)
    found = read_opennmt(file)
    found.pieces = pieces
    return write_translator(found, out)


def read_opennmt(file: TorchFile) -> Found:
    """The translator of a checkpoint."""
    path, value = file.path, file.value
    if not is_opennmt(value):
        raise CheckpointError(path, "it is not a checkpoint of OpenNMT-py", "Give the .pt file that it saved")
    options = Settings(value["opt"], path)
    settings = _settings(options)
    source, target = _vocabularies(value["vocab"], path)
    views = tensors_of(file, value["model"], "weights")
    views |= {f"generator.{name}": view for name, view in tensors_of(file, value["generator"], "generator").items()}
    weights = Weights(file, views)
    found = Found(path, settings, {}, source, target)
    found.search = {"beam": 5, "length_norm": "none", "ban_unknown": False, "max_repeat": 0}
    _Parts(weights, found).take_all()
    weights.skip(".mask")
    weights.done()
    return found


def _settings(options: Settings) -> dict[str, Any]:
    options.refuse("encoder_type", "transformer")
    options.refuse("decoder_type", "transformer")
    options.refuse("model_task", "seq2seq")
    options.refuse("self_attn_type", "scaled-dot", "scaled-dot-flash")
    for name in ("copy_attn", "multiquery", "parallel_residual", "shared_layer_norm", "add_estimator"):
        options.refuse(name, False)
    for name in ("num_kv", "sliding_window", "num_experts", "lambda_coverage"):
        options.refuse(name, 0)
    relative = options.whole("max_relative_positions", usual=0)
    if relative < 0:
        what = f"max_relative_positions={relative} (rotary positions, ALiBi) is not supported"
        raise CheckpointError(options.where, what, "Only the paper's positions and Shaw's distances are read")
    activation = options.text("pos_ffn_activation_fn", usual="relu")
    if activation not in ACTIVATIONS:
        what = f"pos_ffn_activation_fn={activation[:60]!r} is not supported"
        raise CheckpointError(options.where, what, f"Known are {', '.join(ACTIVATIONS)}")
    norm = options.text("layer_norm", usual="standard")
    if norm not in ("standard", "rms"):
        raise CheckpointError(options.where, f"layer_norm={norm[:60]!r} is not supported", "Known: standard, rms")
    layers = options.whole("layers", usual=-1)
    depth = [options.whole(name, usual=layers if layers > 0 else 6) for name in ("enc_layers", "dec_layers")]
    if not all(1 <= count <= MOST_LAYERS for count in depth):
        raise CheckpointError(options.where, f"it has {depth[0]} and {depth[1]} layers", "Check the checkpoint")
    both = options.yes("position_encoding"), relative > 0
    if both == (True, True):
        raise CheckpointError(options.where, "it has positions and distances together", "Only one of them is read")
    found = {
        "layers": depth[0],
        "encoder_layers": depth[0],
        "decoder_layers": depth[1],
        "heads": options.whole("heads", usual=8),
        "norm": "pre",
        "normalise": "rms" if norm == "rms" else "layer",
        "norm_epsilon": options.fraction("norm_eps", EPSILON),
        "activation": ACTIVATIONS[activation],
        "source_end": False,
        "positions": "sinusoidal" if both[0] else "none",
    }
    return found | ({"relative": "shaw", "relative_distance": relative} if relative else {})


class _Parts:
    """Takes the weights of a checkpoint under regard's names."""

    def __init__(self, weights: Weights, found: Found):
        self.weights, self.found, self.out = weights, found, found.weights

    def take_all(self) -> None:
        settings, weights = self.found.settings, self.weights
        names = [TABLE.format(side) for side in ("encoder", "decoder")]
        if any(TABLE.format(side).replace(".0.", ".1.") in weights for side in ("encoder", "decoder")):
            raise CheckpointError(weights.file.path, "it has features beside words", "Only models of words are read")
        tied = weights.same(*names)
        self.out[SOURCE], self.out[TARGET] = (weights.take(name) for name in names)
        if self.out[TARGET].dim() != 2:
            raise CheckpointError(weights.file.path, "its table of words has no rows", "Give a whole checkpoint")
        if tied:
            self.out[SOURCE] = self.out[TARGET]
        settings["width"] = self.out[TARGET].shape[1]
        generator = "generator.0" if "generator.0.weight" in weights else "generator"
        own = not weights.same(f"{generator}.weight", names[1])
        output = weights.take(f"{generator}.weight")
        if own:
            self.out[OUTPUT] = output
        size = len(self.found.target.tokens)
        bias = f"{generator}.bias"
        self.out[BIAS] = weights.take(bias) if bias in weights else torch.zeros(size)
        inner = weights.take("encoder.transformer.0.feed_forward.w_1.weight")
        settings["inner"] = len(inner)
        if settings["heads"] < 1 or settings["width"] % settings["heads"]:
            raise CheckpointError(weights.file.path, f"{settings['heads']} heads do not divide the width", "Check it")
        for stack, name in (("encoder", "encoder.transformer"), ("decoder", "decoder.transformer_layers")):
            for i in range(settings[f"{stack}_layers"]):
                self.layer(stack, i, f"{name}.{i}")
            self.norm(f"{stack}_norm", f"{stack}.layer_norm")
        self.positions()

    def layer(self, stack: str, i: int, theirs: str) -> None:
        ours, of_query = f"{stack}.{i}", ("linear_query", "linear_keys", "linear_values")
        self.joined(f"{ours}.attention.query_key_value", [f"{theirs}.self_attn.{name}" for name in of_query])
        self.joined(f"{ours}.attention.out", [f"{theirs}.self_attn.final_linear"])
        if stack == "decoder":
            self.joined(f"{ours}.cross.query", [f"{theirs}.context_attn.linear_query"])
            self.joined(f"{ours}.cross.key_value", [f"{theirs}.context_attn.{name}" for name in of_query[1:]])
            self.joined(f"{ours}.cross.out", [f"{theirs}.context_attn.final_linear"])
            self.norm(f"{ours}.around_attention.norm", f"{theirs}.layer_norm_1")
            self.norm(f"{ours}.around_cross.norm", f"{theirs}.layer_norm_2")
        else:
            self.norm(f"{ours}.around_attention.norm", f"{theirs}.layer_norm")
        gated = self.found.settings["activation"] == "swiglu"  # w_1 goes through the activation
        self.joined(f"{ours}.feedforward.inner", [f"{theirs}.feed_forward.{n}" for n in ("w_1", "w_3")[: 1 + gated]])
        self.joined(f"{ours}.feedforward.out", [f"{theirs}.feed_forward.w_2"])
        self.norm(f"{ours}.around_feedforward.norm", f"{theirs}.feed_forward.layer_norm")
        if self.found.settings.get("relative") == "shaw":  # the same vectors for keys and for values
            vectors = self.weights.take(f"{theirs}.self_attn.relative_positions_embeddings.weight")[None]
            for part in ("a_key", "a_value"):
                self.out[f"{stack}_relative.schemes.{i}.{part}"] = vectors.clone()

    def joined(self, ours: str, theirs: list[str]) -> None:
        """Matrices below each other, and their biases: zeros where there are none."""
        matrices = [self.weights.take(f"{name}.weight") for name in theirs]
        biases = [
            self.weights.take(f"{name}.bias") if f"{name}.bias" in self.weights else torch.zeros(len(matrix))
            for name, matrix in zip(theirs, matrices, strict=True)
        ]
        if any(matrix.dim() != 2 or matrix.shape[1] != matrices[0].shape[1] for matrix in matrices):
            raise CheckpointError(self.weights.file.path, f"{theirs[0]!r} and its like do not fit together", "Check it")
        self.out[f"{ours}.weight"], self.out[f"{ours}.bias"] = torch.cat(matrices), torch.cat(biases)

    def norm(self, ours: str, theirs: str) -> None:
        if f"{theirs}.a_2" in self.weights:
            what = "its layer norms are those of OpenNMT-py before 0.5, which divide by another deviation"
            raise CheckpointError(self.weights.file.path, what, "Train on with a later version, and save again")
        self.out[f"{ours}.weight"] = self.weights.take(f"{theirs}.weight")
        if self.found.settings["normalise"] == "layer":
            self.out[f"{ours}.bias"] = self.weights.take(f"{theirs}.bias")

    def positions(self) -> None:
        if self.found.settings["positions"] == "none":
            unscaled_tables(self.found)  # OpenNMT-py scales where it adds positions only
            return
        tables: list[Tensor] = []
        for side in ("encoder", "decoder"):
            table = self.weights.take(POSITIONS.format(side))
            tables.append(table.squeeze(1) if table.dim() == 3 else table)
        set_positions(self.found, tables[0], tables[1])


def _vocabularies(vocab: Any, path: Path) -> tuple[Foreign, Foreign]:
    found = []
    for number, side in enumerate(("src", "tgt")):
        tokens = _tokens(vocab, number, side)
        if tokens is None or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(path, f"its vocabulary of {side} is none that is known", "Give a whole checkpoint")
        places = {token: i for i, token in enumerate(tokens)}
        if UNKNOWN not in places or (side == "tgt" and not {START, END} <= places.keys()):
            raise CheckpointError(path, f"its vocabulary of {side} lacks special tokens", "Check the checkpoint")
        padding = next((places[name] for name in PADDING if name in places), None)
        found.append(
            Foreign(
                tokens=tokens,
                unknown=places[UNKNOWN],
                end=places.get(END),
                start=places.get(START),
                padding=padding,
            )
        )
    return found[0], found[1]


def _tokens(vocab: Any, number: int, side: str) -> list[Any] | None:
    """The tokens of a side: a list (version 3), torchtext's fields (2), or pairs of names and vocabularies (1)."""
    if isinstance(vocab, dict) and side in vocab:
        one = vocab[side]
        if isinstance(one, list):
            return one
        if isinstance(one, Record) and isinstance(fields := one.get("fields"), list) and len(fields) == 1:
            return _listed(fields[0])
        return _listed((side, one))
    if isinstance(vocab, list):
        named = [pair for pair in vocab if isinstance(pair, tuple) and len(pair) == 2 and pair[0] == side]
        return _listed(named[0]) if named else None
    return None


def _listed(pair: Any) -> list[Any] | None:
    """The tokens of a torchtext field or vocabulary."""
    one = pair[1] if isinstance(pair, tuple) and len(pair) == 2 else None
    if isinstance(one, Record) and isinstance(inside := one.get("vocab"), Record):
        one = inside
    tokens = one.get("itos") if isinstance(one, Record) else None
    return tokens if isinstance(tokens, list) else None
