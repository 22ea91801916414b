"""The tokenizer files of a Hugging Face GPT-2 folder: read as a tokenizer of regard, and written from one.

There are two numberings. GPT-2's own has <|endoftext|> last, for BOS and for EOS; its token i is i + 4 in regard. Folders that
regard wrote for a model of its own keep regard's numbering, with its four special tokens first.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import decoders, models, pre_tokenizers

from regard.core.errors import CheckpointError, TokenizerError
from regard.core.files import read_json, write_bytes, write_json
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.gpt2_tokens import END_OF_TEXT
from regard.data.tokenizers import Tokenizer, gpt2_tokenizer

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
VOCABULARY, MERGES = "vocab.json", "merges.txt"
FILES = ((VOCABULARY, MERGES), ("encoder.json", "vocab.bpe"))


def read_tokenizer(folder: Path) -> tuple[Tokenizer, bool]:
    """The tokenizer of a folder, and whether its numbers are GPT-2's (regard's are i + 4 then) or regard's own."""
    about = read_json(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else None
    if _is_regards(about):
        return Tokenizer.from_json((folder / TOKENIZER).read_text(encoding="utf-8"), folder / TOKENIZER), False
    _check_settings(folder / TOKENIZER_CONFIG)
    for vocabulary, merges in FILES:
        if (folder / vocabulary).is_file() and (folder / merges).is_file():
            return gpt2_tokenizer(folder / vocabulary, folder / merges), True
    if about is not None:
        return _of_pieces(*byte_pieces(about, folder / TOKENIZER)), True
    raise TokenizerError(
        folder,
        "it holds no tokenizer",
        f"Put {VOCABULARY} and {MERGES}, encoder.json and vocab.bpe, or {TOKENIZER} beside the weights",
    )


def _is_regards(about: Any) -> bool:
    """Whether the special tokens are regard's, where regard has them."""
    added = about.get("added_tokens") if isinstance(about, dict) else None
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        return False
    found = {token.get("id"): token.get("content") for token in added if isinstance(token.get("id"), int)}
    return [found.get(i) for i in range(len(SPECIALS))] == list(SPECIALS)


def _check_settings(path: Path) -> None:
    """Settings beside the tokenizer that change what a text's tokens are."""
    settings = read_json(path) if path.is_file() else {}
    for name in ("add_prefix_space", "do_lower_case"):
        if isinstance(settings, dict) and settings.get(name):
            raise TokenizerError(path, f"{name}={settings[name]!r} is not supported", "Use a tokenizer without it")


def byte_pieces(about: Any, where: object) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Tokens and merges of the JSON of a tokenizer, which must cut texts as GPT-2's does; else it is refused by name."""
    todo = f"Use GPT-2's {VOCABULARY} and {MERGES}"
    model = about.get("model") if isinstance(about, dict) else None
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        raise TokenizerError(where, "it is not byte-pair encoding", todo)
    cut = about.get("pre_tokenizer") or {}
    expected = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    for name, value in expected.items():
        if (cut.get(name, True if name == "use_regex" else None) if isinstance(cut, dict) else None) != value:
            raise TokenizerError(where, f"it does not cut texts as GPT-2 does: pre_tokenizer.{name}", todo)
    after = about.get("post_processor")
    unusual = {
        "normalizer": about.get("normalizer"),
        "post_processor": None if isinstance(after, dict) and after.get("type") == "ByteLevel" else after,
        **{f"model.{name}": model.get(name) for name in ("dropout", "byte_fallback", "ignore_merges")},
        **{f"model.{name}": model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix")},
    }
    for name, value in unusual.items():
        if value:
            raise TokenizerError(where, f"{name}={str(value)[:40]} is not supported", todo)
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        raise TokenizerError(where, "it has no tokens or no merges", todo)
    for token in about.get("added_tokens") or []:
        content = token.get("content") if isinstance(token, dict) else None
        if content != END_OF_TEXT and content not in SPECIALS:
            raise TokenizerError(where, f"the added token {str(content)[:40]!r} is not supported", todo)
        vocabulary = {**vocabulary, content: token.get("id")}
    pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
    if not all(len(pair) == 2 and all(isinstance(part, str) for part in pair) for pair in pairs):
        raise TokenizerError(where, "its merges are not pairs of tokens", todo)
    return vocabulary, [(a, b) for a, b in pairs]


def _of_pieces(vocabulary: Mapping[str, Any], merges: list[tuple[str, str]]) -> Tokenizer:
    with tempfile.TemporaryDirectory() as place:
        _write_pieces(Path(place), vocabulary, merges)
        return gpt2_tokenizer(Path(place) / VOCABULARY, Path(place) / MERGES)


def _write_pieces(folder: Path, vocabulary: Mapping[str, Any], merges: list[tuple[str, str]]) -> None:
    write_bytes(folder / VOCABULARY, json.dumps(dict(vocabulary), ensure_ascii=False).encode())
    write_bytes(folder / MERGES, "\n".join(["#version: 0.2", *map(" ".join, merges), ""]).encode())


def write_gpt2_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """GPT-2's files, with <|endoftext|> last in place of regard's special tokens."""
    ids, merges = byte_pieces(json.loads(tokenizer.to_json()), "the tokenizer")
    if tokenizer.tags:
        raise TokenizerError("the tokenizer", "it has tags, which GPT-2's files cannot say", "Export another model")
    vocabulary = {token: i - len(SPECIALS) for token, i in sorted(ids.items(), key=lambda item: item[1]) if i > UNK}
    vocabulary[END_OF_TEXT] = len(vocabulary)
    inner = hf.Tokenizer(models.BPE(vocabulary, merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    inner.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    inner.add_special_tokens([END_OF_TEXT])
    _write_pieces(folder, vocabulary, merges)
    write_bytes(folder / TOKENIZER, inner.to_str().encode())
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END_OF_TEXT)
    about = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": context, "add_prefix_space": False, **names}
    write_json(folder / TOKENIZER_CONFIG, about)


def write_regard_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """The tokenizer as it is. Text that looks like a special token is text, as in regard."""
    write_bytes(folder / TOKENIZER, tokenizer.to_json().encode())
    names = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD, "unk_token": UNK}
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        **{name: SPECIALS[i] for name, i in names.items()},
    }
    write_json(folder / TOKENIZER_CONFIG, about)


def check_count(tokenizer: Tokenizer, ours: bool, vocabulary: int, where: Path) -> None:
    """The model and its tokenizer must have the same number of tokens."""
    tokens = tokenizer.size if ours else tokenizer.size - len(SPECIALS) + 1
    if tokens != vocabulary:
        what = f"vocab_size={vocabulary}, but the tokenizer has {tokens} tokens"
        raise CheckpointError(where, what, "Put the model's own tokenizer beside it")
