"""Hugging Face's Marian folders (OPUS-MT and others) as run folders that translate as transformers' `generate` does.

Read are config.json and generation_config.json (what they say of the mathematics and of search is done, or refused by name), the
weights (model.safetensors, or pytorch_model.bin by a reader that runs nothing), source.spm, target.spm and vocab.json as they are.

Language codes (">>fra<<") of models with several target languages become tags of the source: `regard translate --tag '>>fra<<'`.
Search starts from the settings of the folder. What transformers does otherwise: with `early_stopping` off it stops by a rule of
thumb, where `search.stop=exact` goes on until nothing better can come, as "never" does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.core.files import read_json
from regard.exchange.huggingface_files import (
    INDEX,
    PICKLE,
    check_free,
    check_tensors,
    checked_config,
    model_type,
    read_tensors,
)
from regard.exchange.import_translator import SOURCE, TARGET, Found, unscaled_tables, write_translator
from regard.exchange.import_vocabulary import Foreign
from regard.exchange.marian_mapping import BIAS, HEAD, SHARED, layer_names, to_regard
from regard.exchange.marian_mapping import SOURCE as OF_SOURCE
from regard.exchange.marian_mapping import TARGET as OF_TARGET
from regard.tasks.run_files import CONFIG, WEIGHTS

GENERATION = "generation_config.json"
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
# What config.json may leave out, as transformers fills it in.
USUAL: dict[str, Any] = {
    "vocab_size": 58101,
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "activation_function": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "scale_embedding": False,
    "decoder_start_token_id": 58100,
    "pad_token_id": 58100,
    "eos_token_id": 0,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
# Values that regard's mathematics has; any other is refused.
ONLY: dict[str, Any] = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "extra_pos_embeddings": 0,
    "is_decoder": False,
    "auto_map": None,
    "quantization_config": None,
}
# Ways of searching that regard has not; any other value than these is refused.
SEARCHED: dict[str, Any] = {
    "do_sample": False,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "penalty_alpha": None,
    "forced_bos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "force_words_ids": None,
    "constraints": None,
}
KNOWN_STOPS = (True, False, "never")
READ = "Marian as transformers' MarianMTModel computes it"
WAVES = "embed_positions.weight"
CODE = re.compile(r">>.+<<")
MOST_WIDTH, MOST_LAYERS = 1 << 14, 1000


def import_marian(folder: Path, out: Path) -> Path:
    """Makes a run folder of a Hugging Face Marian folder."""
    check_free(out)
    return write_translator(read_marian(folder), out)


def read_marian(folder: Path) -> Found:
    """The translator of a Hugging Face folder."""
    where = folder / CONFIG
    kind = model_type(folder)
    if kind != "marian":
        what = "it has no model_type" if kind is None else f"model_type={kind[:60]!r} is not a Marian"
        raise CheckpointError(where, what, 'Give a folder whose config.json says "model_type": "marian"')
    given = read_json(where)
    theirs = checked_config(where, given, USUAL, ONLY, READ)
    sizes = theirs["vocab_size"], given.get("decoder_vocab_size") or theirs["vocab_size"]
    _check_sizes(theirs, sizes, where)
    source, target, tags = _vocabularies(folder, theirs, sizes)
    tensors = _tensors(folder, theirs, sizes)
    depth = theirs["encoder_layers"], theirs["decoder_layers"]
    weights = to_regard(tensors, depth)
    weights.setdefault(SOURCE, weights[TARGET])
    settings = {
        "width": theirs["d_model"],
        "layers": depth[0],
        "encoder_layers": depth[0],
        "decoder_layers": depth[1],
        "heads": theirs["encoder_attention_heads"],
        "inner": theirs["encoder_ffn_dim"],
        "norm": "post",
        "positions": "sinusoidal",
        "activation": ACTIVATIONS[theirs["activation_function"]],
        "dropout": float(theirs["dropout"]),
        "attention_dropout": float(theirs["attention_dropout"]),
        "activation_dropout": float(theirs["activation_dropout"]),
    }
    pieces = tuple(folder / name for name in ("source.spm", "target.spm"))
    found = Found(folder, settings, weights, source, target, _search(folder, given, target), pieces, tags)  # type: ignore[arg-type]
    if not theirs["scale_embedding"]:
        unscaled_tables(found)
    return found


def _check_sizes(theirs: Mapping[str, Any], sizes: tuple[int, int], where: Path) -> None:
    if theirs["activation_function"] not in ACTIVATIONS:
        what = f"activation_function={theirs['activation_function'][:60]!r} is not supported"
        raise CheckpointError(where, what, f"Known are {', '.join(ACTIVATIONS)}")
    for one, other in (
        ("encoder_attention_heads", "decoder_attention_heads"),
        ("encoder_ffn_dim", "decoder_ffn_dim"),
    ):
        if theirs[one] != theirs[other]:
            raise CheckpointError(where, f"{one} and {other} differ", "Only models with equal ones are read")
    bounds = {
        "d_model": MOST_WIDTH,
        "encoder_layers": MOST_LAYERS,
        "decoder_layers": MOST_LAYERS,
        "encoder_ffn_dim": 1 << 18,
        "encoder_attention_heads": MOST_WIDTH,
    }
    for name, most in bounds.items():
        if not 1 <= theirs[name] <= most:
            raise CheckpointError(where, f"{name}={theirs[name]} is out of bounds", "Check the file")
    if any(type(size) is not int or not 2 <= size <= 1 << 22 for size in sizes):
        raise CheckpointError(where, "its sizes of vocabularies are out of bounds", "Check the file")


def _vocabularies(
    folder: Path, theirs: Mapping[str, Any], sizes: tuple[int, int]
) -> tuple[Foreign, Foreign, list[str]]:
    tables = [_tokens(folder / "vocab.json", sizes[0])]
    other = folder / "target_vocab.json"
    tables.append(_tokens(other, sizes[1]) if other.is_file() else tables[0])
    found = []
    for tokens in tables:
        if "<unk>" not in tokens:
            raise CheckpointError(folder / "vocab.json", "it has no <unk>", "Restore it")
        special = {"end": theirs["eos_token_id"], "padding": theirs["pad_token_id"]}
        special["start"] = theirs["decoder_start_token_id"]
        found.append(Foreign(tokens=tokens, unknown=tokens.index("<unk>"), **special))
    return found[0], found[1], [token for token in tables[0] if CODE.fullmatch(token)]


def _tokens(path: Path, size: int) -> list[str]:
    """Tokens by number, from a table of token and number; rows of the model that have no token get a name that is none."""
    ids = read_json(path)
    if not isinstance(ids, dict) or not all(type(i) is int and 0 <= i < size for i in ids.values()):
        raise CheckpointError(path, "it is no table of tokens and their numbers", "Use the model's own vocab.json")
    if len(set(ids.values())) < len(ids):
        raise CheckpointError(path, "two of its tokens have one number", "Use the model's own vocab.json")
    tokens = [f"<row {i}>" for i in range(size)]
    for token, i in ids.items():
        tokens[i] = token
    return tokens


def _tensors(folder: Path, theirs: Mapping[str, Any], sizes: tuple[int, int]) -> dict[str, Tensor]:
    """The tensors as `marian_mapping` names them, checked against config.json."""
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file() and (folder / PICKLE).is_file():
        tensors = _unpickled(folder / PICKLE)
    else:
        tensors = read_tensors(folder, lambda name: None if name.endswith(WAVES) else name)
    width = theirs["d_model"]
    shared = theirs["share_encoder_decoder_embeddings"]
    if not theirs["tie_word_embeddings"] and {OF_SOURCE, OF_TARGET} <= tensors.keys():
        shared = False  # transformers then ties nothing, and the shared table is of no use
        tensors.pop(SHARED, None)
    tensors.setdefault(BIAS, torch.zeros(1, sizes[1]))
    originals = {OF_SOURCE: SHARED, OF_TARGET: SHARED} if shared else {}
    if theirs["tie_word_embeddings"]:
        originals[HEAD] = SHARED if shared else OF_TARGET
    for copy, original in originals.items():
        if original not in tensors and copy in tensors:
            tensors[original] = tensors[copy]
        if copy in tensors and not torch.equal(tensors.pop(copy), tensors.get(original, torch.zeros(0))):
            raise CheckpointError(folder, f"{copy} is not {original}", "Set what config.json says of tied tables right")
    expected: dict[str, tuple[int, ...]] = {BIAS: (1, sizes[1])}
    expected |= {SHARED: (sizes[0], width)} if shared else {OF_SOURCE: (sizes[0], width), OF_TARGET: (sizes[1], width)}
    if not theirs["tie_word_embeddings"]:
        expected[HEAD] = (sizes[1], width)
    inner = theirs["encoder_ffn_dim"]
    depth = theirs["encoder_layers"], theirs["decoder_layers"]
    if max(depth) > len(tensors):
        raise CheckpointError(folder, f"it has {max(depth)} layers, and {len(tensors)} tensors", "Restore it")
    for _, names in layer_names(depth):
        for name in names:
            rows = inner if ".fc1." in name else width
            matrix = name.endswith(".weight") and "norm" not in name
            expected[name] = (rows, inner if ".fc2." in name else width) if matrix else (rows,)
    check_tensors(tensors, expected, "Marian", folder)
    return tensors


def _unpickled(path: Path) -> dict[str, Tensor]:
    from regard.exchange.restricted_unpickling import TensorView
    from regard.exchange.restricted_unpickling_torch import TorchFile

    file = TorchFile(path)
    if not isinstance(file.value, dict) or not all(isinstance(name, str) for name in file.value):
        raise CheckpointError(path, "it is not a table of weights", "Use the model's own file")
    found = {}
    for name, view in file.value.items():
        if not name.endswith(WAVES):
            if not isinstance(view, TensorView):
                raise CheckpointError(path, f"{name[:60]!r} is no tensor", "Use the model's own file")
            found[name] = file.tensor(view)
    return found


def _search(folder: Path, given: Mapping[str, Any], target: Foreign) -> dict[str, Any]:
    """How `generate` would search."""
    where = folder / GENERATION if (folder / GENERATION).is_file() else folder / CONFIG
    about = read_json(where)
    if not isinstance(about, dict):
        raise CheckpointError(where, "it is not a configuration", "Restore it")
    about = {**given, **about}
    checked_config(where, about, {}, SEARCHED, "what regard's search does")
    usual = {"num_beams": 1, "length_penalty": 1.0, "max_length": 512, "no_repeat_ngram_size": 0, "min_length": 0}
    values = checked_config(where, {k: v for k, v in about.items() if v is not None}, usual, {}, "")
    early = about.get("early_stopping") or False
    banned = about.get("bad_words_ids") or []
    known = [[target.padding], [target.unknown]]
    if not isinstance(banned, list) or any(words not in known for words in banned) or early not in KNOWN_STOPS:
        what = "bad_words_ids or early_stopping asks for what regard's search does not do"
        raise CheckpointError(where, what, "Take it out to import the model without it")
    longest = max(1, min(values["max_length"], 1 << 16) - 2)  # theirs counts the start and EOS
    return {
        "beam": values["num_beams"],
        "length_norm": "plain",
        "alpha": float(values["length_penalty"]),
        "stop": "exact" if early in (False, "never") and values["num_beams"] > 1 else "full",  # greedy ends at EOS
        "max_ratio": 0.0,
        "max_extra": longest,
        "max_length": longest,
        "min_length": max(0, values["min_length"] - 2),
        "no_repeat_ngram": values["no_repeat_ngram_size"],
        "max_repeat": 0,
        "ban_unknown": [target.unknown] in banned,
    }
