"""Word pieces, BERT's tokens: a vocabulary of BERT's (vocab.txt) as one of regard's tokenizers, and new ones from text.

A text is cut at white space and at punctuation, each sign of which stands alone, and as BERT does it, control characters are left
out and Chinese characters stand alone; with `lowercase` accents go, too. A word is cut from the left into the longest pieces of
the vocabulary, those within a word being written "##piece". So the spaces are not part of the tokens: decoding joins pieces, and
guesses where a sign of punctuation had a space.

regard's PAD BOS EOS UNK are BERT's [PAD], [CLS], [SEP], [UNK], and the tag <mask>, token 4, is [MASK]; the others follow in BERT's
order. A text cannot spell any of them: "[MASK]" in a text is text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import tokenizers as hf
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from regard.core.errors import TokenizerError
from regard.core.specials import SPECIALS, UNK

MASK = "<mask>"  # the tag of tokenizers that stands for a hidden word
OURS = (*SPECIALS, MASK)
THEIRS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]")
INSIDE = "##"  # before pieces that do not begin a word
MAX_BYTES = 64 << 20
MOST_CHARACTERS = 100  # of a word; a longer one is unknown
_TODO = "Use BERT's own vocab.txt"
_PRIVATE = 0xF0000  # where Unicode leaves room: two planes
_MOST_SYMBOLS = 2 * 0xFFFE
_AT_ONCE = 1000  # repetitions of a word


def read_vocabulary(path: Path) -> list[str]:
    """The tokens of a vocab.txt, one on each line, in BERT's order."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise TokenizerError(path, "the file is missing", "Check the path") from None
    except OSError as error:
        raise TokenizerError(path, f"the file cannot be read ({error.strerror})", "Check the path") from None
    if len(data) > MAX_BYTES:
        raise TokenizerError(path, "the file is too large to be a vocabulary", _TODO)
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        raise TokenizerError(path, "it is not UTF-8 text", _TODO) from None
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def order_of(tokens: Sequence[str], where: object) -> list[int]:
    """For each of regard's tokens, which of BERT's it is. What cannot be a vocabulary of BERT's is refused."""
    places = {token: i for i, token in enumerate(tokens)}
    if len(places) < len(tokens):
        double = next(token for i, token in enumerate(tokens) if places[token] != i)
        raise TokenizerError(where, f"the token {double[:40]!r} is there twice", _TODO)
    if "" in places:
        raise TokenizerError(f"{where}, line {places[''] + 1}", "there is no token", _TODO)
    for token in THEIRS:
        if token not in places:
            raise TokenizerError(where, f"the token {token} is missing", _TODO)
    for token in OURS:
        if token in places:
            raise TokenizerError(where, f"it has a token {token}, which regard needs for itself", _TODO)
    first = [places[token] for token in THEIRS]
    known = set(first)
    return [*first, *(i for i in range(len(tokens)) if i not in known)]


def wordpiece_json(
    tokens: Sequence[str],
    where: object = "the vocabulary",
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> str:
    """The JSON of the tokenizer that a vocabulary of BERT's describes. `strip_accents=None`: as `lowercase`."""
    names = [*OURS, *(tokens[i] for i in order_of(tokens, where)[len(OURS) :])]
    inner = hf.Tokenizer(piece_model(names))
    set_wordpieces(inner, lowercase=lowercase, strip_accents=strip_accents, chinese=chinese)
    inner.add_special_tokens(list(OURS))
    return inner.to_str()


def piece_model(tokens: Sequence[str], unknown: str = SPECIALS[UNK]) -> models.WordPiece:
    numbered = {token: i for i, token in enumerate(tokens)}
    return models.WordPiece(numbered, unk_token=unknown, max_input_chars_per_word=MOST_CHARACTERS)


def set_wordpieces(
    inner: hf.Tokenizer, *, lowercase: bool, strip_accents: bool | None = None, chinese: bool = True
) -> None:
    """Lets a tokenizer cut texts as BERT does."""
    inner.normalizer = normalizers.BertNormalizer(  # type: ignore[assignment]
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    inner.decoder = decoders.WordPiece(prefix=INSIDE)  # type: ignore[assignment]


def train_wordpieces(words: Mapping[str, int], room: int, least: int) -> list[str]:
    """At most `room` pieces of words and how often they occur: characters, then what joining frequent neighbours gives.

    Neighbours that occur at least so often are joined, the most frequent first, as in byte-pair encoding (and in Hugging
    Face's trainer); how Google's own was trained was never released. A character that begins a word and the same character
    within one are two symbols. Each is written as one private character while training, so that nothing depends on the order
    in which the trainer meets them, as its own way of marking pieces does.
    """
    counts: Counter[tuple[bool, str]] = Counter()
    for word, count in words.items():
        for symbol in _symbols(word):
            counts[symbol] += count
    frequent = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[: min(room, _MOST_SYMBOLS)]
    names = {symbol: chr(_place(i)) for i, symbol in enumerate(sorted(frequent))}
    inner = hf.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=least,
        initial_alphabet=list(names.values()),
        limit_alphabet=len(names),
        show_progress=False,
    )
    inner.train_from_iterator(_written(words, names), trainer)
    meant = {name: symbol for symbol, name in names.items()}
    ids = inner.get_vocab()
    return [_piece([meant[name] for name in token]) for token in sorted(ids, key=lambda token: ids[token])]


def _symbols(word: str) -> list[tuple[bool, str]]:
    """Each character of a word, and whether it is within it."""
    return [(i > 0, character) for i, character in enumerate(word)]


def _piece(symbols: Sequence[tuple[bool, str]]) -> str:
    return (INSIDE if symbols[0][0] else "") + "".join(character for _, character in symbols)


def _place(number: int) -> int:
    """The private characters, without the last two of a plane, which are none."""
    return _PRIVATE + number + 2 * (number // 0xFFFE)


def _written(words: Mapping[str, int], names: Mapping[tuple[bool, str], str]) -> Iterator[str]:
    """Every word as often as it occurs; those with a symbol that has no name are unknown, and no piece comes from them."""
    for word, count in words.items():
        symbols = _symbols(word)
        if len(word) <= MOST_CHARACTERS and all(symbol in names for symbol in symbols):
            written = "".join(names[symbol] for symbol in symbols) + " "
            for begin in range(0, count, _AT_ONCE):
                yield written * min(_AT_ONCE, count - begin)
