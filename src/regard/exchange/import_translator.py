"""How a Transformer translator of another program becomes a run folder, once its weights have regard's names.

Readers (import_ctranslate2, huggingface_marian_import, opennmt_import, fairseq_import) say what the settings are, which weights
there are, and what their vocabularies look like; here tables get regard's rows, everything is checked against the settings
before anything is written, and the folder appears whole or not at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.core import config as configuration
from regard.core.errors import CheckpointError, ConfigError
from regard.core.files import save_tensors, write_folder, write_json
from regard.core.search_config import SearchConfig
from regard.data.tokenizers import TokenizerPair
from regard.engines.ctranslate2_parts import position_table
from regard.exchange.huggingface_files import check_free, check_tensors
from regard.exchange.import_tokenizers import read_sentencepiece, source_pieces, target_pieces, words
from regard.exchange.import_vocabulary import Foreign, Rows, source_rows, taken_rows, target_rows, written_bias
from regard.exchange.marian_mapping import marian_order, regard_order, reordered
from regard.models.transformer import TransformerConfig
from regard.tasks.folder import shapes_of
from regard.tasks.run_files import CONFIG, DATA, FORMAT, RUN, WEIGHTS

SOURCE, TARGET, OUTPUT, BIAS = "source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias"
LEARNED = ("source_positions.table.weight", "target_positions.table.weight")
WAVES_AGREE = 1e-3  # two tables of waves, rounded in float32 at angles of a thousand


@dataclasses.dataclass
class Found:
    """A translator as a reader found it.

    `weights` have regard's names; tables have the rows of the foreign vocabularies. Without OUTPUT the output is tied to the
    target's table. One and the same tensor as SOURCE and TARGET is a tied table.
    """

    where: Path
    settings: dict[str, Any]
    weights: dict[str, Tensor]
    source: Foreign
    target: Foreign
    search: dict[str, Any] = dataclasses.field(default_factory=dict)
    pieces: tuple[Path | None, Path | None] = (None, None)  # SentencePiece models of the two sides
    tags: Sequence[str] = ()  # tokens of the source that stand before texts


def unscaled_tables(found: Found) -> None:
    """For models that do not multiply embeddings by √width, as regard's does: the tables are divided by it instead."""
    found.weights.setdefault(OUTPUT, found.weights[TARGET])
    scale = math.sqrt(found.weights[TARGET].shape[1])
    tied = found.weights[SOURCE] is found.weights[TARGET]
    found.weights[TARGET] = found.weights[TARGET] / scale
    found.weights[SOURCE] = found.weights[TARGET] if tied else found.weights[SOURCE] / scale


def set_positions(found: Found, encoder: Tensor, decoder: Tensor) -> None:
    """Absolute positions by their tables: waves that regard knows, waves in Marian's order, or else learned ones."""
    width = encoder.shape[1] if encoder.dim() == 2 else 0
    if not width or encoder.shape[1:] != decoder.shape[1:] or not len(encoder) or not len(decoder):
        raise CheckpointError(found.where, "its tables of positions do not fit together", "Check the model")
    rows = min(len(encoder), len(decoder), 1024)
    tables = [table[:rows].float().numpy() for table in (encoder, decoder)]
    if width % 2 == 0 and width >= 4:
        for kind in ("sinusoidal", "sinusoidal-halves"):
            waves = position_table(kind, width, rows)
            if all(np.abs(table - waves).max() < WAVES_AGREE for table in tables):
                found.settings["positions"] = kind
                return
        waves = position_table("sinusoidal", width, rows)[:, marian_order(width).numpy()]
        if all(np.abs(table - waves).max() < WAVES_AGREE for table in tables):
            found.settings["positions"] = "sinusoidal"
            tied = found.weights[SOURCE] is found.weights[TARGET]
            found.weights = reordered(found.weights, regard_order(width))
            if tied:
                found.weights[SOURCE] = found.weights[TARGET]
            return
    limit = min(len(encoder), len(decoder))  # one limit for both sides
    found.settings |= {"positions": "learned", "max_length": limit}
    found.weights |= dict(zip(LEARNED, (encoder[:limit], decoder[:limit]), strict=True))


def write_translator(found: Found, out: Path) -> Path:
    """Writes the run folder of a translator."""
    check_free(out)
    found.source.check(found.where)
    found.target.check(found.where)
    _check_tables(found)
    tokenizers, of_source, of_target = _tokenizers(found)
    weights = _with_rows(found, of_source, of_target, tokenizers.joint)
    tied = OUTPUT not in weights
    tie = "all" if SOURCE not in weights else "target" if tied else "none"
    try:
        config = configuration.build(TransformerConfig, {**found.settings, "name": "transformer", "tie": tie}, "model")
        search = configuration.build(SearchConfig, found.search, "search")
    except ConfigError as error:
        raise CheckpointError(found.where, f"{error.where}: {error.what}", "Check the model") from None
    sizes = {"source": tokenizers.source.size, "target": tokenizers.target.size, "shared": tokenizers.joint}
    _check_weights(config, weights, sizes, found.where)
    about = {
        "format": FORMAT,
        "resolved": True,
        "data": {},
        "tokenizer": {},
        "model": configuration.to_plain(config),
        "search": configuration.to_plain(search),
        "vocabulary": sizes,
    }

    def fill(place: Path) -> None:
        save_tensors(place / WEIGHTS, weights)
        tokenizers.save(place)
        write_json(place / CONFIG, about)
        write_json(place / DATA, {"format": FORMAT, "imported": str(found.where)})
        write_json(place / RUN, {"format": FORMAT, "status": "finished", "imported": str(found.where)})

    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, fill)
    return out


def _check_tables(found: Found) -> None:
    """Tables against vocabularies, before rows are taken."""
    width = found.weights[TARGET].shape[1] if found.weights[TARGET].dim() == 2 else -1
    sides = {SOURCE: found.source, TARGET: found.target, OUTPUT: found.target}
    for name, foreign in sides.items():
        if name in found.weights and tuple(found.weights[name].shape) != (len(foreign.tokens), width):
            what = f"its vocabulary has {len(foreign.tokens)} tokens, and table {name!r} is "
            what += str(list(found.weights[name].shape))
            raise CheckpointError(found.where, what, "Use the weights and the vocabulary of one model together")
    if tuple(found.weights[BIAS].shape) != (len(found.target.tokens),):
        raise CheckpointError(found.where, "the output's bias does not fit the vocabulary", "Check the model")


def _tokenizers(found: Found) -> tuple[TokenizerPair, list[int], Rows]:
    """The tokenizers, and the rows of both sides."""
    source, target = found.pieces
    rows = target_rows(found.target)
    same = found.weights[SOURCE] is found.weights[TARGET] and list(found.source.tokens) == list(found.target.tokens)
    if source is None:
        one = words(rows.names, found.where)
        if same and not found.tags:
            return TokenizerPair(one, one, True), rows.read, rows
        names = target_rows(found.source).names
        return TokenizerPair(words(names, found.where), one, False), source_rows(found.source, names), rows
    model = read_sentencepiece(source)
    if same and target is None and not found.tags and set(rows.names) == {*model.usable}:  # one model for both sides
        one = target_pieces(model, rows, found.target.unknown, source, own=True)
        return TokenizerPair(one, one, True), rows.read, rows
    first, names = source_pieces(model, found.source, source, found.tags)
    own = target is not None
    second = target_pieces(
        read_sentencepiece(target) if target is not None else model,
        rows,
        found.target.unknown,
        target or source,
        own=own,
    )
    return TokenizerPair(first, second, False), source_rows(found.source, names), rows


def _with_rows(found: Found, of_source: list[int], of_target: Rows, joint: bool) -> dict[str, Tensor]:
    weights = dict(found.weights)
    weights[TARGET] = _table(found, TARGET, of_target.read, of_target.written)
    if joint:
        del weights[SOURCE]
    else:
        weights[SOURCE] = taken_rows(found.weights[SOURCE], of_source)
    if OUTPUT in weights:
        weights[OUTPUT] = taken_rows(found.weights[OUTPUT], of_target.written)
        if joint:  # tables of the two sides can be one only where the output's is the same
            weights[SOURCE] = weights[TARGET].clone()
    weights[BIAS] = written_bias(found.weights[BIAS], of_target.written)
    return {name: tensor.float().contiguous() for name, tensor in weights.items()}


def _table(found: Found, name: str, read: list[int], written: list[int]) -> Tensor:
    """A table that may be tied to the output: rows that are not written are silent, whatever is read from them."""
    assert all(row == other or other == -1 for row, other in zip(read, written, strict=True))
    return taken_rows(found.weights[name], read)


def _check_weights(
    config: TransformerConfig, weights: Mapping[str, Tensor], sizes: dict[str, Any], where: Path
) -> None:
    """Names and shapes against the settings, on a model that has no memory; and that all numbers are numbers."""
    if max(config.depth) > len(weights):
        raise CheckpointError(where, f"it has {max(config.depth)} layers, and {len(weights)} tensors", "Check it")
    vocabulary = {
        "source_vocabulary": sizes["source"],
        "target_vocabulary": sizes["target"],
        "shared": sizes["shared"],
    }
    check_tensors(weights, shapes_of(config, vocabulary, where), "Transformer", where)
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise CheckpointError(where, f"tensor {name!r} holds numbers that are none (nan or infinite)", "Restore it")
