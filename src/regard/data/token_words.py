"""Which word each token of a vocabulary is, for tables of vectors by words."""

from __future__ import annotations

import json

from regard.data.tokenizers import SPACE, Tokenizer

_CONTINUES = "##"  # WordPiece's mark


def token_words(tokenizer: Tokenizer) -> list[str | None]:
    """For each id, the word that the token is, without the mark of its space; None where it is none.

    None are special tokens and tags, a space by itself, and the pieces of words that only go on a word begun before: letters or
    digits of a subword tokenizer without the mark of a space. Two tokens may be the same word ("," after a space and without one).
    """
    about = json.loads(tokenizer.to_json())
    kind = (about.get("model") or {}).get("type")
    pieces = tokenizer.pieces(range(tokenizer.size))
    if (about.get("decoder") or {}).get("type") == "ByteLevel":
        pieces = [piece.replace(" ", SPACE, 1) if piece[:1] == " " else piece for piece in _bytes(tokenizer)]
    special = {*range(4), *tokenizer.tags.values()}
    marked = any(len(piece) > 1 and piece.startswith(SPACE) for piece in pieces)
    found: list[str | None] = []
    for i, piece in enumerate(pieces):
        word: str | None = piece.removeprefix(SPACE)
        if i in special or not piece.removeprefix(SPACE):
            word = None
        elif kind == "WordPiece":
            word = None if piece.startswith(_CONTINUES) and len(piece) > len(_CONTINUES) else piece
        elif kind != "WordLevel" and marked and not piece.startswith(SPACE) and any(map(str.isalnum, piece)):
            word = None
        found.append(word)
    return found


def first_tokens(tokenizer: Tokenizer) -> list[int]:
    """For each id, the first id of the same word: a word in quotation marks ("tea) is the one after a space."""
    first: dict[str, int] = {}
    return [i if word is None else first.setdefault(word, i) for i, word in enumerate(token_words(tokenizer))]


def _bytes(tokenizer: Tokenizer) -> list[str]:
    """The texts of tokens of bytes; special tokens have none."""
    return tokenizer.decode([[i] for i in range(tokenizer.size)])
