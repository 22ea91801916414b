"""A Transformer translator in Hugging Face's files: post-norm as a Marian, pre-norm as a Pegasus.

Both compute the paper's Transformer with the paper's waves, but rebuild these with all sines before all cosines: the dimensions of
the residual stream move (exchange/marian_mapping.py). Pegasus is Marian with the norms before the sub-layers and one behind each
stack, and one table for both sides and the output.

The tokenizer is that of the run, as AutoTokenizer opens it without SentencePiece files. Where the two sides have tokenizers of
their own, the target's lies in the folder target_tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import processors
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.files import save_tensors, write_bytes, write_json
from regard.core.search_config import SearchConfig
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.exchange.huggingface_gpt2 import GENERATION
from regard.exchange.huggingface_gpt2_tokens import TOKENIZER, TOKENIZER_CONFIG
from regard.exchange.marian_mapping import marian_order, reordered, to_marian
from regard.models.transformer import TransformerConfig
from regard.tasks.folder import CONFIG, WEIGHTS, weights_of

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "swish": "swish"}
NORM_EPSILON = 1e-5  # of both classes, which have no setting for it
POSITIONS = 1024
TARGET_TOKENIZER = "target_tokenizer"
LAST_NORMS = {"encoder_norm": "model.encoder.layer_norm", "decoder_norm": "model.decoder.layer_norm"}
CLASSES = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}


def why_not_marian(config: TransformerConfig, tied: bool) -> str | None:
    """Why no class of transformers' is such a Transformer, in words; None where one is. `tied`: all tables are one."""
    refused: list[tuple[bool, str]] = [
        (config.normalise != "layer", f"normalise={config.normalise!r}"),
        (not config.residual, "residual=false"),
        (not config.scaling, "scaling=false"),
        (config.positions != "sinusoidal", f"positions={config.positions!r}"),
        (config.relative != "none", f"relative={config.relative!r}"),
        (config.activation not in ACTIVATIONS, f"activation={config.activation!r}"),
        (config.norm_epsilon != NORM_EPSILON, f"norm_epsilon={config.norm_epsilon}"),
    ]
    for wrong, setting in refused:
        if wrong:
            return f"transformers' Marian and Pegasus have no {setting}"
    if config.norm == "pre" and not tied:
        return "transformers' Pegasus has one table for both languages and the output, this model has several"
    return None


def marian_filling(model: Any, tokenizers: TokenizerPair, search: SearchConfig) -> tuple[Callable[[Path], None], str]:
    """What writes the files into a folder, and which class opens them; a model that none can be is refused by name."""
    config: TransformerConfig = model.config
    weights = weights_of(model)
    tied = not {"source_embedding.weight", "output.weight"} & weights.keys()
    reason = why_not_marian(config, tied)
    if reason is not None:
        raise ModelError("the model", reason, "Export it with --to ctranslate2 or --to onnx")
    tensors = _tensors(config, weights)
    kind, architecture = CLASSES[config.norm]

    def fill(place: Path) -> None:
        _write_tokenizer(tokenizers.source, place)
        if not tokenizers.joint:
            (place / TARGET_TOKENIZER).mkdir()
            _write_tokenizer(tokenizers.target, place / TARGET_TOKENIZER)
        save_tensors(place / WEIGHTS, tensors, {"format": "pt"})
        write_json(place / GENERATION, generation_settings(search))
        write_json(place / CONFIG, _config(config, kind, architecture, tokenizers, weights))

    return fill, architecture


def _tensors(config: TransformerConfig, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    tensors = to_marian(weights, config.depth)
    if config.norm == "pre":
        own = {f"{our}.{kind}": f"{their}.{kind}" for our, their in LAST_NORMS.items() for kind in ("weight", "bias")}
        moved = reordered({name: weights[name] for name in own}, marian_order(config.width))
        tensors |= {own[name]: tensor for name, tensor in moved.items()}
    return tensors


def _config(
    config: TransformerConfig, kind: str, architecture: str, tokenizers: TokenizerPair, weights: dict[str, Tensor]
) -> dict[str, Any]:
    encoders, decoders = config.depth
    inner = config.inner or 4 * config.width
    settings: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": kind,
        "vocab_size": tokenizers.source.size,
        "d_model": config.width,
        "encoder_layers": encoders,
        "decoder_layers": decoders,
        "num_hidden_layers": encoders,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner,
        "activation_function": ACTIVATIONS[config.activation],
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "init_std": 0.02,
        "max_position_embeddings": POSITIONS,
        "scale_embedding": True,
        "is_encoder_decoder": True,
        "use_cache": True,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
        "tie_word_embeddings": "output.weight" not in weights,
    }
    if kind == "marian":
        settings["decoder_vocab_size"] = tokenizers.target.size
        settings["share_encoder_decoder_embeddings"] = "source_embedding.weight" not in weights
    return settings


def generation_settings(search: SearchConfig) -> dict[str, Any]:
    """generation_config.json: a beam search as regard does it, as far as transformers can. `search` divides by nᵃ."""
    beams = {"length_penalty": search.alpha, "early_stopping": True} if search.beam > 1 else {}
    return {
        "num_beams": search.beam,
        **beams,
        "max_length": min(search.max_length + 2, POSITIONS),
        "suppress_tokens": [PAD, BOS, *([UNK] if search.ban_unknown else [])],
        "decoder_start_token_id": BOS,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """The tokenizer as it is, with EOS behind each text. Text that looks like a special token is text, as in regard."""
    inner = hf.Tokenizer.from_str(tokenizer.to_json())
    end = SPECIALS[EOS]
    inner.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[(end, EOS)]
    )
    write_bytes(folder / TOKENIZER, inner.to_str().encode())
    names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "unk_token": UNK}
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": POSITIONS,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        **{name: SPECIALS[i] for name, i in names.items()},
    }
    write_json(folder / TOKENIZER_CONFIG, about)
