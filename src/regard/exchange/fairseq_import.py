"""Transformer checkpoints of fairseq (.pt with dict.LANGUAGE.txt beside it) as run folders. fairseq is not needed, nothing is run.

A checkpoint holds the weights and the options (a namespace, a dictionary, or omegaconf's nodes, which come as inert records).
Decoders start from EOS there. Waves begin at position 2, after padding: they come as learned positions.

Refused by name: other architectures, adaptive softmax and input, layer norms of embeddings, factored tables, and what else the
options ask for that regard's Transformer does not compute. Any tensor without a place is an error, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.errors import CheckpointError
from regard.engines.ctranslate2_parts import position_table
from regard.exchange.huggingface_files import check_free
from regard.exchange.import_settings import Settings, Weights, plain_section, tensors_of
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
from regard.exchange.restricted_unpickling_torch import TorchFile

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "swish",
}
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
START, PADDING, END, UNKNOWN = range(4)
CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
PIECES = ("sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "spm_bpe.model")
MOST_LAYERS = 1000
MOST_POSITIONS = 1 << 14
MOST_DICTIONARY = 64 << 20  # bytes
LAYER = {
    "attention.out": "self_attn.out_proj",
    "around_attention.norm": "self_attn_layer_norm",
    "feedforward.inner": "fc1",
    "feedforward.out": "fc2",
    "around_feedforward.norm": "final_layer_norm",
}
CROSS = {"cross.out": "encoder_attn.out_proj", "around_cross.norm": "encoder_attn_layer_norm"}


def is_fairseq(value: Any) -> bool:
    return isinstance(value, dict) and "model" in value and ("args" in value or "cfg" in value)


def import_fairseq(file: TorchFile, out: Path, *, pieces: tuple[Path | None, Path | None] = (None, None)) -> Path:
    """Makes a run folder of a fairseq checkpoint; its dictionaries must be in the same folder."""
    check_free(out)
    found = read_fairseq(file)
    beside = find_pieces(file.path.parent, PIECES)
    found.pieces = pieces[0] or beside, pieces[1]
    if pieces[0] is None and beside is not None:
        found.pieces = beside, beside
    return write_translator(found, out)


def read_fairseq(file: TorchFile) -> Found:
    """The translator of a checkpoint."""
    path, value = file.path, file.value
    if not is_fairseq(value):
        raise CheckpointError(path, "it is not a checkpoint of fairseq", "Give the .pt file that it saved")
    given = value.get("args")
    section = given if given is not None else plain_section(value.get("cfg"), "model")
    options = Settings(section, path)
    settings = _settings(options)
    task = options if given is not None else Settings(plain_section(value.get("cfg"), "task") or {}, path)
    source, target = _dictionaries(path.parent, task, path)
    weights = Weights(file, tensors_of(file, value["model"], "weights"))
    found = Found(path, settings, {}, source, target)
    found.search = {"beam": 5, "length_norm": "plain", "alpha": 1.0, "ban_unknown": False, "max_repeat": 0}
    _take_all(weights, found, options)
    weights.skip("version", "_float_tensor")
    weights.done()
    return found


def _settings(options: Settings) -> dict[str, Any]:
    arch = options.text("arch", "_name", usual="transformer")
    if not arch.startswith("transformer") or arch.startswith(
        ("transformer_lm", "transformer_align", "transformer_from")
    ):
        raise CheckpointError(
            options.where, f"its architecture {arch[:60]!r} is not supported", "Only Transformers are"
        )
    for name in (
        "layernorm_embedding",
        "adaptive_input",
        "no_cross_attention",
        "cross_self_attention",
        "no_decoder_final_norm",
        "no_token_positional_embeddings",
        "character_embeddings",
        "tie_adaptive_weights",
    ):
        options.refuse(name, False)
    options.refuse("adaptive_softmax_cutoff")
    options.refuse("encoder_layers_to_keep")
    options.refuse("decoder_layers_to_keep")
    pairs = {}
    for name, usual in (
        ("embed_dim", 512),
        ("ffn_embed_dim", 2048),
        ("attention_heads", 8),
        ("layers", 6),
    ):
        encoder = options.whole(f"encoder_{name}", usual=usual)
        pairs[name] = encoder, options.whole(f"decoder_{name}", usual=encoder if name != "layers" else usual)
        if name != "layers" and pairs[name][0] != pairs[name][1]:
            what = f"encoder and decoder have other {name} ({pairs[name][0]} and {pairs[name][1]})"
            raise CheckpointError(options.where, what, "Only equal ones are read")
    width, depth = pairs["embed_dim"][0], pairs["layers"]
    for name in ("decoder_input_dim", "decoder_output_dim"):
        options.refuse(name, width)
    norms = [options.yes(f"{stack}_normalize_before") for stack in ("encoder", "decoder")]
    learned = [options.yes(f"{stack}_learned_pos") for stack in ("encoder", "decoder")]
    if norms[0] != norms[1] or learned[0] != learned[1]:
        raise CheckpointError(
            options.where, "norms or positions differ in encoder and decoder", "Only equal ones are read"
        )
    activation = options.text("activation_fn", usual="relu")
    if activation not in ACTIVATIONS:
        what = f"activation_fn={activation[:60]!r} is not supported"
        raise CheckpointError(options.where, what, f"Known are {', '.join(ACTIVATIONS)}")
    if not all(1 <= count <= MOST_LAYERS for count in depth) or not 4 <= width <= 1 << 14 or width % 2:
        raise CheckpointError(options.where, "its sizes are out of bounds", "Check the checkpoint")
    return {
        "width": width,
        "layers": depth[0],
        "encoder_layers": depth[0],
        "decoder_layers": depth[1],
        "heads": pairs["attention_heads"][0],
        "inner": pairs["ffn_embed_dim"][0],
        "norm": "pre" if norms[0] else "post",
        "activation": ACTIVATIONS[activation],
    }


def _take_all(weights: Weights, found: Found, options: Settings) -> None:
    settings, out = found.settings, found.weights
    names = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
    tied = weights.same(*names)
    out[SOURCE], out[TARGET] = (weights.take(name) for name in names)
    if out[TARGET].dim() != 2 or out[TARGET].shape[1] != settings["width"]:
        raise CheckpointError(found.where, "its table of words does not have the width of the settings", "Check it")
    if tied:
        out[SOURCE] = out[TARGET]
    shared = options.yes("share_decoder_input_output_embed") or options.yes("share_all_embeddings")
    output = next((n for n in ("decoder.output_projection.weight", "decoder.embed_out") if n in weights), None)
    if output is None and not shared:
        raise CheckpointError(found.where, "its output layer is missing", "Give a whole checkpoint")
    if output is not None:
        own, table = not weights.same(output, names[1]), weights.take(output)
        if own:
            out[OUTPUT] = table
    out[BIAS] = torch.zeros(len(found.target.tokens))
    for stack in ("encoder", "decoder"):
        for i in range(settings[f"{stack}_layers"]):
            _layer(weights, out, stack, i)
        if settings["norm"] == "pre":
            for kind in ("weight", "bias"):
                out[f"{stack}_norm.{kind}"] = weights.take(f"{stack}.layer_norm.{kind}")
    set_positions(found, *(_positions(weights, options, stack, settings["width"]) for stack in ("encoder", "decoder")))
    if options.yes("no_scale_embedding"):
        unscaled_tables(found)


def _layer(weights: Weights, out: dict[str, Tensor], stack: str, i: int) -> None:
    ours, theirs = f"{stack}.{i}", f"{stack}.layers.{i}"
    parts = LAYER | (CROSS if stack == "decoder" else {})
    old = _old_norms(weights, stack, theirs)
    for our, their in parts.items():
        for kind in ("weight", "bias"):
            out[f"{ours}.{our}.{kind}"] = weights.take(f"{theirs}.{old.get(their, their)}.{kind}")
    for kind in ("weight", "bias"):
        out[f"{ours}.attention.query_key_value.{kind}"] = torch.cat(_projections(weights, f"{theirs}.self_attn", kind))
        if stack == "decoder":
            query, key, value = _projections(weights, f"{theirs}.encoder_attn", kind)
            out[f"{ours}.cross.query.{kind}"] = query
            out[f"{ours}.cross.key_value.{kind}"] = torch.cat((key, value))


def _old_norms(weights: Weights, stack: str, theirs: str) -> dict[str, str]:
    """The names of norms in checkpoints of 2018 and before."""
    if f"{theirs}.layer_norms.0.weight" not in weights:
        return {}
    names = ["self_attn_layer_norm", *(["encoder_attn_layer_norm"] if stack == "decoder" else []), "final_layer_norm"]
    return {name: f"layer_norms.{place}" for place, name in enumerate(names)}


def _projections(weights: Weights, place: str, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: three matrices, or in older checkpoints one."""
    if f"{place}.in_proj_{kind}" in weights:
        query, key, value = weights.take(f"{place}.in_proj_{kind}").chunk(3)
    else:
        query, key, value = (weights.take(f"{place}.{name}_proj.{kind}") for name in "qkv")
    if not query.dim() == key.dim() == value.dim() or query.shape[1:] != key.shape[1:] or key.shape != value.shape:
        raise CheckpointError(weights.file.path, f"the parts of {place!r} do not fit together", "Check the checkpoint")
    return query, key, value


def _positions(weights: Weights, options: Settings, stack: str, width: int) -> Tensor:
    """The vectors of positions 0, 1, .. of a text: theirs come after the one of padding."""
    name = f"{stack}.embed_positions.weight"
    if name in weights:
        table = weights.take(name)
        if table.dim() != 2 or len(table) <= PADDING + 1:
            raise CheckpointError(weights.file.path, f"{name!r} is no table of positions", "Check the checkpoint")
        return table[PADDING + 1 :]
    if options.yes(f"{stack}_learned_pos"):
        raise CheckpointError(weights.file.path, f"{name!r} is missing", "Give a whole checkpoint")
    longest = max(options.whole(f"max_{side}_positions", usual=1024) for side in ("source", "target"))
    rows = max(1, min(longest, MOST_POSITIONS))
    return torch.from_numpy(position_table("sinusoidal-halves", width, rows + PADDING + 1)[PADDING + 1 :].copy())


def _dictionaries(folder: Path, task: Settings, path: Path) -> tuple[Foreign, Foreign]:
    languages = [task.text(name) for name in ("source_lang", "target_lang")]
    found = []
    for language in languages:
        if Path(language).name != language:
            raise CheckpointError(path, f"its language {language[:40]!r} is no name", "Check the checkpoint")
        names = [f"dict.{language}.txt"] if language else []
        file = find_pieces(folder, [*names, "dict.txt"])
        if file is None:
            what = f"there is no {' or '.join([*names, 'dict.txt'])} beside it"
            raise CheckpointError(path, what, "Put the dictionaries of the model into its folder")
        tokens = [*SPECIALS, *_words(file)]
        found.append(Foreign(tokens=tokens, unknown=UNKNOWN, end=END, start=END, padding=PADDING))
    return found[0], found[1]


def _words(path: Path) -> list[str]:
    """The words of a dictionary: a word and a count on each line."""
    try:
        if path.stat().st_size > MOST_DICTIONARY:
            raise CheckpointError(path, "the file is too large to be a dictionary", "Restore it")
        lines = path.read_bytes().decode().split("\n")
    except (OSError, UnicodeDecodeError):
        raise CheckpointError(path, "it cannot be read as UTF-8 text", "Restore it") from None
    words = []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r").removesuffix(" #fairseq:overwrite")
        if not line:
            continue
        word, _, count = line.rpartition(" ")
        if not word or not count.isdigit():
            raise CheckpointError(f"{path}, line {number}", "it is not a word and a count", "Restore the file")
        words.append(word)
    return words
