"""CTranslate2 Transformer folders (model.bin, config.json, vocabularies) as run folders, in float32.

What its specification can say and regard's Transformer cannot compute is refused by name. A matrix of int8 or int16 is what
CTranslate2 computes with, divided by its scales: in float32 both then have the same weights.

Texts: a SentencePiece model beside the model (or given) is read as it is; without one, texts are words between white space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.files import read_json
from regard.core.specials import SPECIALS
from regard.engines.ctranslate2_limits import ACTIVATIONS, MODEL
from regard.engines.ctranslate2_parts import position_table
from regard.engines.ctranslate2_reading import Arrays, read_arrays
from regard.exchange.huggingface_files import check_free
from regard.exchange.import_tokenizers import find_pieces
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

CONFIG = "config.json"
SOURCE_PIECES = ("source.spm", "sentencepiece.model", "../sentencepiece.model", "spm.model")
TARGET_PIECES = ("target.spm",)
MOST_LAYERS = 1000
NAMES = {number: name for name, number in ACTIVATIONS.items() if name != "swiglu"}
# Numbers that change nothing of what is computed here.
IDLE = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
BUILT_IN = 1024  # positions of CTranslate2's own waves, which start at 1, that are kept
TODO = "Only Transformer translators that regard's own can compute are read"


def is_ctranslate2(folder: Path) -> bool:
    return (folder / MODEL).is_file()


def import_ctranslate2(
    folder: Path,
    out: Path,
    *,
    pieces: tuple[Path | None, Path | None] = (None, None),
    source_end: bool | None = None,
) -> Path:
    """Makes a run folder of a CTranslate2 folder.

    `pieces` are the SentencePiece models of the two sides, where they are not beside the model. `source_end` says whether sources
    end with EOS; by default as config.json says, where it adds it.
    """
    check_free(out)
    found = read_ctranslate2(folder, source_end=source_end)
    given = pieces[0] or find_pieces(folder, SOURCE_PIECES), pieces[1] or find_pieces(folder, TARGET_PIECES)
    found.pieces = given
    return write_translator(found, out)


def read_ctranslate2(folder: Path, *, source_end: bool | None = None) -> Found:
    """The translator of a folder, dequantised."""
    if not folder.is_dir():
        raise CheckpointError(folder, "there is no such folder", "Give a folder that a CTranslate2 converter wrote")
    about = read_json(folder / CONFIG) if (folder / CONFIG).is_file() else {}
    if not isinstance(about, dict):
        raise CheckpointError(folder / CONFIG, "it is not the configuration of a model", "Restore it")
    arrays = read_arrays(folder / MODEL)
    if arrays.specification != "TransformerSpec":
        raise CheckpointError(folder, f"it is a {arrays.specification[:60]}, no translator", TODO)
    source, target = _vocabularies(folder, about, arrays)
    found = Found(folder, _settings(arrays, about, folder), {}, source, target)
    found.search = {"length_norm": "plain", "alpha": 1.0, "ban_unknown": False, "max_repeat": 0}
    if about.get("add_source_bos"):
        raise CheckpointError(folder / CONFIG, "add_source_bos=true is not supported", TODO)
    if source_end is None:  # regard's own files say nothing of it: texts end with EOS there
        source_end = bool(about.get("add_source_eos")) or list(source.tokens[: len(SPECIALS)]) == list(SPECIALS)
    found.settings["source_end"] = source_end
    _take_all(arrays, found)
    for name in arrays.left:
        if name.rpartition("/")[2] in IDLE:
            continue
        if math.prod(arrays.shape(name)) != 1 or arrays.number(name) != 0:
            raise CheckpointError(arrays.path, f"{name[:100]!r} has no place in regard's Transformer", TODO)
    return found


def _settings(arrays: Arrays, about: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What the numbers beside the matrices say, the same for both stacks or refused."""
    values: dict[str, float] = {}
    for name in ("num_heads", "pre_norm", "activation", "scale_embeddings"):
        usual = {"scale_embeddings": 1.0, "pre_norm": 1.0, "num_heads": 8.0}.get(name, 0.0)
        both = [arrays.number(f"{stack}/{name}", usual) for stack in ("encoder", "decoder")]
        if both[0] != both[1]:
            raise CheckpointError(folder, f"{name} differs in encoder and decoder ({both[0]:g} and {both[1]:g})", TODO)
        values[name] = both[0]
    number = int(values["activation"])
    if number not in NAMES:
        raise CheckpointError(folder, f"activation {number} is not supported", f"Known are {', '.join(NAMES.values())}")
    gated = "encoder/layer_0/ffn/linear_0_noact/weight" in arrays
    if gated and NAMES[number] != "swish":
        raise CheckpointError(folder, f"a gate with {NAMES[number]} is not supported", TODO)
    normal = "layer" if "encoder/layer_0/ffn/layer_norm/beta" in arrays else "rms"
    epsilon = about.get("layer_norm_epsilon")
    if epsilon is None:
        epsilon = 1e-5 if normal == "layer" else 1e-6
    if type(epsilon) is not float:
        raise CheckpointError(folder / CONFIG, f"layer_norm_epsilon={str(epsilon)[:40]} is no number", "Check the file")
    depth = [_layers(arrays, stack) for stack in ("encoder", "decoder")]
    shapes = [arrays.shape("decoder/embeddings/weight"), arrays.shape("encoder/layer_0/ffn/linear_0/weight")]
    if any(len(shape) != 2 for shape in shapes):
        raise CheckpointError(arrays.path, "its matrices have no rows and columns", "Restore it")
    return {
        "width": shapes[0][1],
        "inner": shapes[1][0],
        "layers": depth[0],
        "encoder_layers": depth[0],
        "decoder_layers": depth[1],
        "heads": int(values["num_heads"]),
        "norm": "pre" if values["pre_norm"] else "post",
        "normalise": normal,
        "norm_epsilon": epsilon,
        "activation": "swiglu" if gated else NAMES[number],
    }


def _layers(arrays: Arrays, stack: str) -> int:
    count = 0
    while f"{stack}/layer_{count}/ffn/linear_0/weight" in arrays and count < MOST_LAYERS:
        count += 1
    if not count:
        raise CheckpointError(arrays.path, f"its {stack} has no layers", TODO)
    return count


def _take_all(arrays: Arrays, found: Found) -> None:
    """All weights, under regard's names."""
    settings, weights = found.settings, found.weights
    width, heads = settings["width"], settings["heads"]
    if not 1 <= heads <= width or width % heads:
        raise CheckpointError(arrays.path, f"{heads} heads do not divide the width {width}", "Restore it")
    part = _Part(arrays, settings, weights)
    for stack in ("encoder", "decoder"):
        for i in range(settings[f"{stack}_layers"]):
            part.layer(stack, i)
        if settings["norm"] == "pre":
            part.norm(f"{stack}/layer_norm", f"{stack}_norm")
    _tables(arrays, found)
    _positions(arrays, found)
    if arrays.number("encoder/scale_embeddings", 1) == 0:
        unscaled_tables(found)
    elif arrays.number("encoder/scale_embeddings", 1) not in (1.0, round(math.sqrt(width), 12)):
        scale = arrays.number("encoder/scale_embeddings", 1)
        if not math.isclose(scale, math.sqrt(width), rel_tol=1e-5):
            raise CheckpointError(arrays.path, f"scale_embeddings={scale:g} is not supported", TODO)


class _Part:
    """The parts of layers."""

    def __init__(self, arrays: Arrays, settings: dict[str, Any], weights: dict[str, Tensor]):
        self.arrays, self.settings, self.weights = arrays, settings, weights
        self.width, self.inner = settings["width"], settings["inner"]
        self.head = self.width // settings["heads"]

    def layer(self, stack: str, i: int) -> None:
        place, here, width = f"{stack}/layer_{i}", f"{stack}.{i}", self.width
        self.linear(f"{place}/self_attention/linear_0", f"{here}.attention.query_key_value", 3 * width, width)
        self.linear(f"{place}/self_attention/linear_1", f"{here}.attention.out", width, width)
        self.norm(f"{place}/self_attention/layer_norm", f"{here}.around_attention.norm")
        self.scale(f"{place}/self_attention", f"{here}.attention.query_key_value")
        self.relative(f"{place}/self_attention", f"{stack}_relative.schemes.{i}")
        if stack == "decoder":
            self.linear(f"{place}/attention/linear_0", f"{here}.cross.query", width, width)
            self.linear(f"{place}/attention/linear_1", f"{here}.cross.key_value", 2 * width, width)
            self.linear(f"{place}/attention/linear_2", f"{here}.cross.out", width, width)
            self.norm(f"{place}/attention/layer_norm", f"{here}.around_cross.norm")
            self.scale(f"{place}/attention", f"{here}.cross.query")
        if self.settings["activation"] == "swiglu":  # one matrix, the first half of which goes through the activation
            for name in ("weight", "bias"):
                halves = [
                    self.take(f"{place}/ffn/{one}/{name}", self.inner, *([width] if name == "weight" else []))
                    for one in ("linear_0", "linear_0_noact")
                ]
                self.weights[f"{here}.feedforward.inner.{name}"] = torch.cat(halves)
        else:
            self.linear(f"{place}/ffn/linear_0", f"{here}.feedforward.inner", self.inner, width)
        self.linear(f"{place}/ffn/linear_1", f"{here}.feedforward.out", width, self.inner)
        self.norm(f"{place}/ffn/layer_norm", f"{here}.around_feedforward.norm")

    def take(self, name: str, *shape: int) -> Tensor:
        """An array, or zeros for a bias that is not there."""
        if name.endswith("/bias") and name not in self.arrays:
            return torch.zeros(shape)
        return torch.from_numpy(self.arrays.take(name, *shape))

    def linear(self, place: str, name: str, rows: int, columns: int) -> None:
        self.weights[f"{name}.weight"] = self.take(f"{place}/weight", rows, columns)
        self.weights[f"{name}.bias"] = self.take(f"{place}/bias", rows)

    def norm(self, place: str, name: str) -> None:
        self.weights[f"{name}.weight"] = self.take(f"{place}/gamma", self.width)
        if self.settings["normalise"] == "layer":
            self.weights[f"{name}.bias"] = self.take(f"{place}/beta", self.width)

    def scale(self, place: str, name: str) -> None:
        """Another factor of the dot products than 1/√d goes into the queries."""
        factor = self.arrays.number(f"{place}/queries_scale", self.head**-0.5) * math.sqrt(self.head)
        if not math.isclose(factor, 1.0, rel_tol=1e-6):
            for kind in ("weight", "bias"):
                self.weights[f"{name}.{kind}"][: self.width] *= factor

    def relative(self, place: str, name: str) -> None:
        keys = f"{place}/relative_position_keys"
        if keys in self.arrays:
            labels = self.arrays.shape(keys)[0]
            self._choose("shaw", relative_distance=(labels - 1) // 2)
            for ours, theirs in (("a_key", keys), ("a_value", f"{place}/relative_position_values")):
                self.weights[f"{name}.{ours}"] = self.take(theirs, labels, self.head)[None]
        elif f"{place}/rotary_dim" in self.arrays:
            layout = "interleaved" if self.arrays.number(f"{place}/rotary_interleave", 1) else "halves"
            if int(self.arrays.number(f"{place}/rotary_dim")) not in (0, self.head):
                raise CheckpointError(self.arrays.path, "it turns only a part of each head's dimensions", TODO)
            base = self.arrays.number(f"{place}/rotary_base", 10000.0)
            self._choose("rotary", rotary_layout=layout, rotary_base=base)

    def _choose(self, scheme: str, **more: Any) -> None:
        chosen = {"relative": scheme, "positions": "none", **more}
        if self.settings.get("relative", scheme) != scheme or any(
            self.settings.get(k, v) != v for k, v in chosen.items()
        ):
            raise CheckpointError(self.arrays.path, "its layers see distances in several ways", TODO)
        self.settings |= chosen


def _tables(arrays: Arrays, found: Found) -> None:
    width, weights = found.settings["width"], found.weights
    sizes = len(found.source.tokens), len(found.target.tokens)
    names = "encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight"
    if names[0] not in arrays:  # files of older converters
        names = "encoder/embeddings/weight", *names[1:]
    weights[TARGET] = torch.from_numpy(arrays.take(names[1], sizes[1], width))
    if arrays.same(names[0], names[1]):
        arrays.number("", 0)
        arrays._left.discard(names[0])
        weights[SOURCE] = weights[TARGET]
    else:
        weights[SOURCE] = torch.from_numpy(arrays.take(names[0], sizes[0], width))
    if arrays.same(names[2], names[1]) or names[2] not in arrays:
        arrays._left.discard(names[2])
    else:
        weights[OUTPUT] = torch.from_numpy(arrays.take(names[2], sizes[1], width))
    bias = "decoder/projection/bias"
    weights[BIAS] = torch.from_numpy(arrays.take(bias, sizes[1])) if bias in arrays else torch.zeros(sizes[1])


def _positions(arrays: Arrays, found: Found) -> None:
    width = found.settings["width"]
    names = [f"{stack}/position_encodings/encodings" for stack in ("encoder", "decoder")]
    if "relative" in found.settings:
        if any(name in arrays for name in names):
            raise CheckpointError(arrays.path, "it has positions and distances together", TODO)
        return
    tables = []
    for name in names:
        if name not in arrays:  # CTranslate2's own, which begin at position 1
            tables.append(torch.from_numpy(position_table("sinusoidal-halves", width, BUILT_IN + 1)[1:].copy()))
            continue
        shape = arrays.shape(name)
        if len(shape) != 2 or shape[1] != width:
            raise CheckpointError(arrays.path, f"{name!r} is {list(shape)}, and the width is {width}", "Restore it")
        tables.append(torch.from_numpy(np.asarray(arrays.take(name, *shape))))
    set_positions(found, tables[0], tables[1])


def _vocabularies(folder: Path, about: Mapping[str, Any], arrays: Arrays) -> tuple[Foreign, Foreign]:
    shared = _tokens(folder, "shared_vocabulary")
    source = shared or _tokens(folder, "source_vocabulary") or _tokens(folder, "source_1_vocabulary")
    target = shared or _tokens(folder, "target_vocabulary")
    if not source or not target:
        raise CheckpointError(folder, "its vocabularies are missing", "Put shared_vocabulary.json beside model.bin")
    specials = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    names = {key: about.get(key) or value for key, value in specials.items()}
    start = about.get("decoder_start_token", names["bos_token"]) or names["bos_token"]
    zero = bool(arrays.number("decoder/start_from_zero_embedding"))

    def foreign(tokens: list[str]) -> Foreign:
        places = {token: i for i, token in enumerate(tokens)}
        for key in ("unk_token", "eos_token"):
            if names[key] not in places:
                raise CheckpointError(folder, f"{str(names[key])[:40]!r} is not in its vocabulary", "Check config.json")
        if not zero and tokens is target and start not in places:
            raise CheckpointError(folder, f"{str(start)[:40]!r} is not in its vocabulary", "Check config.json")
        padding = next((places[name] for name in ("<pad>", "<blank>") if name in places), None)
        first = None if zero else places.get(start)
        return Foreign(
            tokens=tokens,
            end=places[names["eos_token"]],
            unknown=places[names["unk_token"]],
            start=first,
            padding=padding,
        )

    return foreign(source), foreign(target)


def _tokens(folder: Path, name: str) -> list[str]:
    """The tokens of a vocabulary's file: JSON, or in older models lines."""
    if (folder / f"{name}.json").is_file():
        tokens = read_json(folder / f"{name}.json")
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(folder / f"{name}.json", "it is not a list of tokens", "Restore it")
        return tokens
    path = folder / f"{name}.txt"
    if not path.is_file():
        return []
    try:
        if path.stat().st_size > 64 << 20:
            raise CheckpointError(path, "the file is too large to be a vocabulary", "Restore it")
        return path.read_bytes().decode().removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        raise CheckpointError(path, "it is not UTF-8 text", "Restore it") from None
