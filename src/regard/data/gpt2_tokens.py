"""GPT-2's own vocabulary (encoder.json, vocab.bpe; elsewhere vocab.json, merges.txt) as one of regard's tokenizers.

GPT-2's token i is token i + 4 here, after regard's four special tokens. Its one special token, <|endoftext|>, is left out:
BOS and EOS do its work. In a text, "<|endoftext|>" is text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers as hf
from tokenizers import models

from regard.core.errors import TokenizerError
from regard.core.specials import SPECIALS, UNK
from regard.data.tokenizer_training import BYTES, byte_names, set_bytes

END_OF_TEXT = "<|endoftext|>"
MAX_BYTES = 64 << 20
_TODO = "Use GPT-2's own encoder.json and vocab.bpe, or vocab.json and merges.txt"


def gpt2_json(encoder_json: Path, vocab_bpe: Path) -> str:
    """The JSON of the tokenizer that two files of GPT-2's kind describe."""
    vocabulary = _vocabulary(encoder_json)
    merges = _merges(vocab_bpe, vocabulary)
    ids = {special: i for i, special in enumerate(SPECIALS)}
    ids |= {token: i + len(SPECIALS) for token, i in vocabulary.items()}
    inner = hf.Tokenizer(models.BPE(ids, merges, unk_token=SPECIALS[UNK]))
    set_bytes(inner, cut=True)
    inner.add_special_tokens(list(SPECIALS))
    return inner.to_str()


def _vocabulary(path: Path) -> dict[str, int]:
    """The tokens and their numbers in GPT-2, from 0 on without gaps."""
    try:
        value: Any = json.loads(_read(path))
    except (ValueError, RecursionError):
        raise TokenizerError(path, "it is not JSON", _TODO) from None
    if not isinstance(value, dict) or not all(type(i) is int for i in value.values()):
        raise TokenizerError(path, "it is no table of tokens and their numbers", _TODO)
    if sorted(value.values()) != list(range(len(value))):
        raise TokenizerError(path, f"its {len(value)} tokens are not numbered from 0 on, without gaps", _TODO)
    if value.pop(END_OF_TEXT, len(value)) != len(value):
        raise TokenizerError(path, f"{END_OF_TEXT} is not its last token", _TODO)
    names = set(byte_names())
    if missing := len(names - value.keys()):
        raise TokenizerError(path, f"{missing} of the {BYTES} bytes are not among its tokens", _TODO)
    for token in value:
        if token in SPECIALS or not token or not names.issuperset(token):
            raise TokenizerError(path, f"the token {token[:40]!r} is not made of bytes", _TODO)
    return value


def _merges(path: Path, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The merges, in their order; each makes a token of two."""
    try:
        lines = _read(path).decode().split("\n")
    except UnicodeDecodeError:
        raise TokenizerError(path, "it is not UTF-8 text", _TODO) from None
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not {*parts, "".join(parts)} <= vocabulary.keys():
            what = f"{line[:40]!r} does not make a token of two"
            raise TokenizerError(f"{path}, line {number}", what, _TODO)
        merges.append((parts[0], parts[1]))
    return merges


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise TokenizerError(path, "the file is missing", "Check the path") from None
    except OSError as error:
        raise TokenizerError(path, f"the file cannot be read ({error.strerror})", "Check the path") from None
    if len(data) > MAX_BYTES:
        raise TokenizerError(path, "the file is too large to be a vocabulary", _TODO)
    return data
