"""GPT-2 in Hugging Face's files: read into regard's GPT, and written from it.

`read_gpt2` and `import_gpt2` read config.json, model.safetensors (one file, or several with an index) and the tokenizer's files.
`write_gpt2` writes what transformers' GPT2LMHeadModel opens. Every weight keeps its bits: Conv1D matrices are transposed, rows of
the vocabulary are moved, nothing is computed.

The vocabulary. GPT-2 has one token, <|endoftext|>, where regard has BOS and EOS, and neither PAD nor UNK. A model that is read
has its row twice, PAD's and UNK's rows are zero, and `silent=true` keeps PAD, BOS and UNK from being written: the
log-probabilities over GPT-2's vocabulary are the same. A regard model reads BOS and writes EOS, never the other way round, so a
silent model goes back to GPT-2's vocabulary exactly, even where training has made the two rows differ: the file then has a head
of its own (tie_word_embeddings=false), in which <|endoftext|> is EOS, while in the embeddings it is BOS. Models that are not
silent are written with regard's vocabulary (pad 0, bos 1, eos 2).

What config.json says of the mathematics is done or refused by name. pytorch_model.bin is never opened: it is a pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from regard.core import config as configuration
from regard.core.errors import CheckpointError, ConfigError, ModelError
from regard.core.files import read_json, save_tensors, write_folder, write_json
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.exchange.huggingface_files import (
    check_free,
    check_tensors,
    checked_config,
    model_type,
    read_tensors,
    write_run,
)
from regard.exchange.huggingface_gpt2_tokens import (
    check_count,
    read_tokenizer,
    write_gpt2_tokenizer,
    write_regard_tokenizer,
)
from regard.models.base import Writer
from regard.models.gpt import GPT, NORM_EPS, SIZES, GPTConfig
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, load_model, put_weights, weights_of

GENERATION = "generation_config.json"
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "swish",
}
# What config.json may leave out, as transformers fills it in.
USUAL: dict[str, Any] = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": 0,  # theirs is null: four times the width
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
    "tie_word_embeddings": True,
}
# Values that regard's mathematics has; any other is refused. (reorder_and_upcast_attn only says in which precision.)
ONLY: dict[str, Any] = {
    "layer_norm_epsilon": NORM_EPS,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "auto_map": None,
    "quantization_config": None,
}
READ = "GPT-2 as transformers' GPT2LMHeadModel computes it"
HEAD = "lm_head.weight"
# regard's names beside GPT-2's; those of a block are joined with its number. True: a Conv1D, whose matrix is transposed.
WHOLE = {
    "positions.table.weight": ("wpe.weight", False),
    "norm.weight": ("ln_f.weight", False),
    "norm.bias": ("ln_f.bias", False),
}
BLOCK = {
    "attention_norm.weight": ("ln_1.weight", False),
    "attention_norm.bias": ("ln_1.bias", False),
    "attention.query_key_value.weight": ("attn.c_attn.weight", True),
    "attention.query_key_value.bias": ("attn.c_attn.bias", False),
    "attention.out.weight": ("attn.c_proj.weight", True),
    "attention.out.bias": ("attn.c_proj.bias", False),
    "feedforward_norm.weight": ("ln_2.weight", False),
    "feedforward_norm.bias": ("ln_2.bias", False),
    "feedforward.inner.weight": ("mlp.c_fc.weight", True),
    "feedforward.inner.bias": ("mlp.c_fc.bias", False),
    "feedforward.out.weight": ("mlp.c_proj.weight", True),
    "feedforward.out.bias": ("mlp.c_proj.bias", False),
}
EMBEDDING, OUTPUT, TABLE = "embedding.weight", "output.weight", "wte.weight"
Layout = Literal["gpt2", "regard"]


class Written(NamedTuple):
    """What `write_gpt2` wrote: whose vocabulary the files have, and whether input and output share one table."""

    folder: Path
    vocabulary: Layout
    tied: bool


def read_gpt2(folder: Path) -> tuple[GPT, TokenizerPair, dict[str, Any]]:
    """The model of a Hugging Face GPT-2 folder in float32 on the CPU, its tokenizer, and the configuration of a run of it."""
    theirs = _read_config(folder)
    tokenizer, foreign = read_tokenizer(folder)
    where = folder / CONFIG
    check_count(tokenizer, not foreign, theirs["vocab_size"], where)
    ends = (theirs["bos_token_id"], theirs["eos_token_id"])
    expected = (theirs["vocab_size"] - 1,) * 2 if foreign else (BOS, EOS)
    if ends != expected:
        what = f"bos_token_id and eos_token_id are {ends[0]} and {ends[1]}, not {expected[0]} and {expected[1]}"
        raise CheckpointError(where, what, "Only GPT-2's own vocabulary and regard's are read")
    tensors = read_tensors(folder, _short)
    _check_tensors(tensors, theirs, folder)
    tables = _tables(tensors, theirs, foreign, folder)
    config = _ours(theirs, silent=foreign, tie=OUTPUT not in tables, where=where)
    model = GPT(config, vocabulary=tokenizer.size).eval()
    weights = {our: tensors[their].t() if turned else tensors[their] for our, their, turned in _names(config.layers)}
    put_weights(model, {**weights, **tables}, folder)
    return model, TokenizerPair(tokenizer, tokenizer, True), _run_config(config, tokenizer.size, foreign)


def import_gpt2(folder: Path, out: Path) -> Path:
    """Makes a run folder of a Hugging Face GPT-2 folder, for `regard.load` and all commands."""
    check_free(out)
    model, tokenizers, config = read_gpt2(folder)
    write_run(out, folder, model, tokenizers, config)
    return out


def write_gpt2(run: Path | tuple[Writer, TokenizerPair], out: Path) -> Written:
    """Writes the GPT of a run folder (or a model and its tokenizer) as files that transformers opens as GPT-2."""
    check_free(out)
    model, tokenizers = load_model(run)[:2] if isinstance(run, Path) else run
    fill, vocabulary, tied = gpt2_filling(model, tokenizers)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, fill)
    return Written(out, vocabulary, tied)


def gpt2_filling(model: Writer, tokenizers: TokenizerPair) -> tuple[Callable[[Path], None], Layout, bool]:
    """What writes the files into a folder, whose vocabulary they have, and whether the tables are tied."""
    config = model.config
    _check_expressible(config)
    own = weights_of(model)
    tables = {TABLE: own[EMBEDDING]} | ({} if config.tie else {HEAD: own[OUTPUT]})
    if config.silent:
        read, written = own[EMBEDDING], own[EMBEDDING if config.tie else OUTPUT]
        tables = {TABLE: torch.cat((read[len(SPECIALS) :], read[BOS : BOS + 1]))}
        if not config.tie or not torch.equal(read[BOS], read[EOS]):
            tables[HEAD] = torch.cat((written[len(SPECIALS) :], written[EOS : EOS + 1]))
    tensors = dict(tables)
    for our, their, turned in _names(config.layers):
        tensor = own.get(our)
        if tensor is None:  # a model without biases is one whose biases are zero
            tensor = torch.zeros(len(own[our.removesuffix("bias") + "weight"]))
        tensors[their] = tensor.t() if turned else tensor
    tied = HEAD not in tensors
    named = {name if name == HEAD else f"transformer.{name}": tensor for name, tensor in tensors.items()}
    vocabulary = len(tensors[TABLE])
    ends: dict[str, int] = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    if config.silent:
        ends = {"bos_token_id": vocabulary - 1, "eos_token_id": vocabulary - 1}
    unwritten = {} if config.silent else {"suppress_tokens": [PAD, BOS, UNK]}  # as regard's own search

    def fill(place: Path) -> None:
        write_tokenizer = write_gpt2_tokenizer if config.silent else write_regard_tokenizer
        write_tokenizer(tokenizers.target, place, config.context)
        save_tensors(place / WEIGHTS, named, {"format": "pt"})
        write_json(place / GENERATION, {**ends, **unwritten})
        write_json(place / CONFIG, {**_theirs(config), **ends, "vocab_size": vocabulary, "tie_word_embeddings": tied})

    return fill, "gpt2" if config.silent else "regard", tied


def _names(layers: int) -> Iterator[tuple[str, str, bool]]:
    """Every weight but the tables: regard's name, GPT-2's, and whether the matrix is transposed."""
    for our, (their, turned) in WHOLE.items():
        yield our, their, turned
    for i in range(layers):
        for our, (their, turned) in BLOCK.items():
            yield f"decoder.{i}.{our}", f"h.{i}.{their}", turned


def _read_config(folder: Path) -> dict[str, Any]:
    """config.json with what it leaves out, checked."""
    where = folder / CONFIG
    kind = model_type(folder)
    if kind != "gpt2":
        what = "it has no model_type" if kind is None else f"model_type={kind[:60]!r} is not a GPT-2"
        raise CheckpointError(where, what, 'Give a folder whose config.json says "model_type": "gpt2"')
    given = {name: value for name, value in read_json(where).items() if name != "n_inner" or value is not None}
    theirs = checked_config(where, given, USUAL, ONLY, READ)
    if theirs["activation_function"] not in ACTIVATIONS:
        what = f"activation_function={theirs['activation_function'][:60]!r} is not supported"
        raise CheckpointError(where, what, f"Known are {', '.join(ACTIVATIONS)}")
    if not 1 <= theirs["vocab_size"] <= 1 << 24:
        raise CheckpointError(where, f"vocab_size={theirs['vocab_size']} is out of bounds", "Check the file")
    return theirs


def _ours(theirs: Mapping[str, Any], *, silent: bool, tie: bool, where: Path) -> GPTConfig:
    settings = {
        "name": "gpt",
        "width": theirs["n_embd"],
        "layers": theirs["n_layer"],
        "heads": theirs["n_head"],
        "inner": 0 if theirs["n_inner"] == 4 * theirs["n_embd"] else theirs["n_inner"],
        "context": theirs["n_positions"],
        "activation": ACTIVATIONS[theirs["activation_function"]],
        "tie": tie,
        "silent": silent,
        "dropout": theirs["resid_pdrop"],
        "attention_dropout": theirs["attn_pdrop"],
    }
    try:
        config = configuration.build(GPTConfig, settings, "model")
    except ConfigError as error:
        raise CheckpointError(where, f"{error.where}: {error.what}", "Check the file") from None
    if theirs["embd_pdrop"] != theirs["resid_pdrop"]:
        what = f"embd_pdrop={theirs['embd_pdrop']} and resid_pdrop={theirs['resid_pdrop']} become one model.dropout"
        warnings.warn(f"{where}: {what}, the latter. It counts only where the model is trained on.", stacklevel=3)
    return config


def _theirs(config: GPTConfig) -> dict[str, Any]:
    function = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}[config.activation]
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.inner or None,
        "activation_function": function,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": NORM_EPS,
        "initializer_range": 0.02,
        "scale_attn_weights": True,
        "use_cache": True,
    }


def _check_expressible(config: Any) -> None:
    """Refuses, by name, what transformers' GPT-2 cannot compute."""
    if config.name != "gpt":
        raise ModelError(f"model {config.name!r}", "it is not a GPT", "Only models with model.name=gpt become a GPT-2")
    settings = {
        "norm": ("pre",),
        "normalise": ("layer",),
        "positions": ("learned",),
        "relative": ("none",),
        "qk_norm": (False,),
        "kv_heads": (0, config.heads),
        "activation": tuple(ACTIVATIONS.values()),
    }
    for name, allowed in settings.items():
        value = getattr(config, name)
        if value not in allowed:
            what = f"transformers' GPT-2 has no model.{name}={value}"
            raise ModelError("the model", what, f"Only {' or '.join(map(str, dict.fromkeys(allowed)))} can be written")


def _short(name: str) -> str | None:
    """GPT-2's name of a weight without prefix; masks that old files keep among the weights are left out."""
    short = name.removeprefix("transformer.")
    return None if short.endswith((".attn.bias", ".attn.masked_bias")) else short


def _check_tensors(tensors: Mapping[str, Tensor], theirs: Mapping[str, Any], folder: Path) -> None:
    """Names and shapes against config.json, before anything is built from it."""
    layers, width = theirs["n_layer"], theirs["n_embd"]
    if not 1 <= layers <= min(len(tensors), SIZES["layers"][1]):
        what = f"n_layer={layers}, but there are {len(tensors)} tensors"
        raise CheckpointError(folder, what, f"Use the weights and the {CONFIG} of one model together")
    inner = theirs["n_inner"] or 4 * width
    wide = {"attn.c_attn": 3 * width, "mlp.c_fc": inner}
    expected: dict[str, tuple[int, ...]] = {TABLE: (theirs["vocab_size"], width)}
    for _, their, turned in _names(layers):
        part = ".".join(their.split(".")[-3:-1])
        if their == "wpe.weight":
            expected[their] = (theirs["n_positions"], width)
        elif turned:  # Conv1D: [from, to]
            expected[their] = (inner if part == "mlp.c_proj" else width, wide.get(part, width))
        else:
            expected[their] = (wide.get(part, width),)
    if HEAD in tensors or not theirs["tie_word_embeddings"]:
        expected[HEAD] = expected[TABLE]
    check_tensors(tensors, expected, "GPT-2", folder)


def _tables(tensors: Mapping[str, Tensor], theirs: Mapping[str, Any], foreign: bool, folder: Path) -> dict[str, Tensor]:
    """The embeddings and, where it has one of its own, the output's table, with regard's rows."""
    table, head = tensors[TABLE], tensors.get(HEAD)
    if theirs["tie_word_embeddings"]:
        if head is not None and not torch.equal(head, table):
            what = f"{HEAD} is not {TABLE}, though tie_word_embeddings is true"
            raise CheckpointError(folder, what, "Set tie_word_embeddings to what was trained")
        head = None
    if not foreign:
        return {EMBEDDING: table} | ({} if head is None else {OUTPUT: head})
    if head is None or torch.equal(head[:-1], table[:-1]):  # only <|endoftext|> is read and written by two rows
        return {EMBEDDING: _rows(table, bos=table[-1], eos=(table if head is None else head)[-1])}
    return {EMBEDDING: _rows(table, table[-1], table[-1]), OUTPUT: _rows(head, head[-1], head[-1])}


def _rows(table: Tensor, bos: Tensor, eos: Tensor) -> Tensor:
    rows = table.new_zeros(len(table) - 1 + len(SPECIALS), table.shape[1])
    rows[len(SPECIALS) :] = table[:-1]
    rows[BOS], rows[EOS] = bos, eos
    return rows


def _run_config(config: GPTConfig, vocabulary: int, foreign: bool) -> dict[str, Any]:
    """What config.json of a run says."""
    tokenizer = configuration.to_plain(TokenizerConfig(kind="bytebpe", size=vocabulary)) if foreign else {}
    return {
        "format": FORMAT,
        "resolved": True,
        "data": {},
        "tokenizer": tokenizer,
        "model": configuration.to_plain(config),
        "search": {},
        "vocabulary": {"source": vocabulary, "target": vocabulary, "shared": True},
    }
