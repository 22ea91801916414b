"""How tokenizers are made from text: what each kind is built of, and how its vocabulary is chosen.

The same text and settings always give the same vocabulary.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tokenizers as hf
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.core.errors import ConfigError, TokenizerError
from regard.core.specials import SPECIALS, UNK
from regard.data.wordpiece import piece_model, set_wordpieces, train_wordpieces

PUNCTUATION = "▁?[\\p{P}$+<=>^`|~]"
SPACE = "▁"
BYTES = 256
OF_BYTES = ("byte", "bytebpe")
OF_WORDS = ("space", "word")
WORDS_OF_A_TEXT = 4096  # which the library takes at once


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What the tokens are.

    `word` cuts punctuation off, `space` takes what stands between white space as it is (for text that is tokenised already),
    `bytebpe` is GPT-2's: pieces of bytes, which give every text back to the last line break. `wordpiece` is BERT's: it forgets
    where punctuation had spaces, and with `lowercase` accents.
    """

    kind: Literal["bpe", "unigram", "word", "char", "byte", "space", "bytebpe", "wordpiece"] = "bpe"
    size: int = 8000  # at most so many tokens; char and byte take what they need
    joint: bool = True  # one vocabulary for both languages
    lowercase: bool = False
    normalize: Literal["nfc", "nfkc", "none"] = "nfc"  # byte, bytebpe, space and wordpiece never normalise
    min_count: int = 2  # how often a word (or a pair that BPE merges) must occur
    split_digits: bool = True  # of bpe, unigram and word
    lines: int = 250_000  # of each side, at most so many are looked at, evenly spaced; 0 looks at all
    folder: str = ""  # a run whose tokenizer is taken as it is; the settings above then count for nothing
    words: str = (
        ""  # of space and word: a file of words, one on each line, that belong to the vocabulary beside the text's
    )

    def __post_init__(self) -> None:
        least = BYTES + len(SPECIALS) if self.kind == "bytebpe" else 2 * len(SPECIALS) + 1
        if self.size < least:
            what = f"{self.size} tokens are too few"
            if self.kind == "bytebpe":
                what += f": bytes and special tokens are {least}"
            raise ConfigError("setting tokenizer.size", what, f"Use at least {max(100, least)}")
        if self.min_count < 1:
            raise ConfigError("setting tokenizer.min_count", f"it is {self.min_count}", "Use 1 or more")
        if self.lines < 0:
            raise ConfigError("setting tokenizer.lines", f"it is {self.lines}", "Use 0 or more")
        if self.words and self.kind not in OF_WORDS:
            what = f"the tokens of tokenizer.kind={self.kind} are not words"
            raise ConfigError("setting tokenizer.words", what, f"Leave it out, or use {' or '.join(OF_WORDS)}")


def trained(texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str]) -> hf.Tokenizer:
    """A tokenizer made from text, which may be gone through twice."""
    inner = _untrained(config)
    if config.kind == "bytebpe":
        _train_bytes(inner, texts, config, tags)
    elif config.kind == "byte":
        inner.model = models.BPE(_numbered([*SPECIALS, *tags, *byte_names()]), [], unk_token=SPECIALS[UNK])
    else:
        words = _count_words(texts, inner)
        if not words:
            raise _no_text()
        if config.kind == "bpe":
            _train_bpe(inner, words, config, tags)
        else:
            from regard.data.word_list import read_word_list  # as below: who only uses tokenizers need not wait for it

            # what a text of the listed words is made of
            listed = _count_words(read_word_list(config.words), inner) if config.words else {}
            inner.model = _model(words, listed, config, tags)
    inner.add_special_tokens([*SPECIALS, *tags])
    return inner


def word_tokenizer(words: Sequence[str]) -> hf.Tokenizer:
    """A tokenizer of kind `space` with these words, which are numbered after the special tokens."""
    inner = _untrained(TokenizerConfig(kind="space"))
    inner.model = models.WordLevel(_numbered([*SPECIALS, *(SPACE + word for word in words)]), SPECIALS[UNK])
    inner.add_special_tokens(list(SPECIALS))
    return inner


def _no_text() -> TokenizerError:
    return TokenizerError("tokenizer", "there is no text to train it on", "Give a corpus that is not empty")


def _untrained(config: TokenizerConfig) -> hf.Tokenizer:
    """A tokenizer with everything but its vocabulary."""
    inner = hf.Tokenizer(models.BPE(unk_token=SPECIALS[UNK]))
    if config.kind == "wordpiece":
        set_wordpieces(inner, lowercase=config.lowercase)
        return inner
    steps: list[normalizers.Normalizer] = []
    if config.kind not in OF_BYTES:
        if config.kind != "space":
            steps += {"nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()], "none": []}[config.normalize]
        # A literal "▁" would turn into a space.
        steps += [normalizers.Replace(SPACE, "_"), normalizers.Replace(Regex(r"\s+"), " ")]
        steps += [normalizers.Strip()]
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if steps:
        inner.normalizer = normalizers.Sequence(steps)  # type: ignore[assignment]
    if config.kind in OF_BYTES:
        set_bytes(inner, cut=config.kind == "bytebpe")
    elif config.kind == "char":
        inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never", split=True)  # type: ignore[assignment]
        inner.decoder = decoders.Metaspace(SPACE, "never", split=True)  # type: ignore[assignment]
    elif config.kind == "space":
        # The space before it is part of a word, so that no word, "</s>" neither, is the same as a special token.
        words: list[Any] = [pre_tokenizers.Metaspace(SPACE, "always", split=True)]
        inner.pre_tokenizer = pre_tokenizers.Sequence(words)  # type: ignore[assignment]
        unknown = decoders.Replace(Regex(f"^{SPECIALS[UNK]}$"), SPACE + SPECIALS[UNK])  # a word like others
        joined: list[Any] = [unknown, decoders.Metaspace(SPACE, "always", split=True)]
        inner.decoder = decoders.Sequence(joined)  # type: ignore[assignment]
    else:
        # Punctuation stands alone, so that no piece joins a word with its comma, nor spells a special token.
        # The space before it goes with it: text that is tokenised already (" ,") does not get twice the pieces.
        punctuation = pre_tokenizers.Split(Regex(PUNCTUATION), "isolated")
        cuts: list[Any] = [pre_tokenizers.Metaspace(SPACE, "always", split=True), punctuation]
        cuts += [pre_tokenizers.Digits(individual_digits=True)] if config.split_digits else []
        inner.pre_tokenizer = pre_tokenizers.Sequence(cuts)  # type: ignore[assignment]
        inner.decoder = decoders.Metaspace(SPACE, "always", split=True)  # type: ignore[assignment]
    return inner


def set_bytes(inner: hf.Tokenizer, *, cut: bool) -> None:
    """Lets a tokenizer work on the bytes of a text, `cut` into words by GPT-2's regular expression or not."""
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut)  # type: ignore[assignment]
    inner.decoder = decoders.ByteLevel()  # type: ignore[assignment]


def _count_words(texts: Iterable[str], inner: hf.Tokenizer) -> Counter[str]:
    """How often each unit between the pre-tokenizer's cuts occurs."""
    written = Counter(itertools.chain.from_iterable(map(str.split, texts)))
    words: Counter[str] = Counter()
    for word, count in written.items():
        normal = inner.normalizer.normalize_str(word) if inner.normalizer else word
        for unit, _ in inner.pre_tokenizer.pre_tokenize_str(normal):
            words[unit] += count
    return words


def _alphabet(words: Mapping[str, int], most: int) -> list[str]:
    """The most frequent characters, in the order of their code points."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return sorted(sorted(counts, key=lambda character: (-counts[character], character))[:most])


def _train_bpe(inner: hf.Tokenizer, words: Mapping[str, int], config: TokenizerConfig, tags: Sequence[str]) -> None:
    """Merges words that were counted: the library's own way from the lines to these counts takes thrice as long."""
    counted = hf.Tokenizer(inner.model)
    counted.pre_tokenizer = pre_tokenizers.CharDelimiterSplit("\n")  # type: ignore[assignment]
    # The trainer's own choice of an alphabet breaks ties by the order of a hash table: give it a fixed one.
    alphabet = _alphabet(words, config.size - len(SPECIALS) - len(tags))
    _merge(counted, _written_out(words), config, tags, alphabet)
    inner.model = counted.model


def _written_out(words: Mapping[str, int]) -> Iterator[str]:
    """Texts in which each word occurs as often as was counted, one word on a line."""
    text: list[str] = []
    room = WORDS_OF_A_TEXT
    for word, count in words.items():
        while count:
            now = min(count, room)
            text.append(f"{word}\n" * now)
            count, room = count - now, room - now
            if not room:
                yield "".join(text)
                text, room = [], WORDS_OF_A_TEXT
    yield "".join(text)


def _train_bytes(inner: hf.Tokenizer, texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str]) -> None:
    for tag in tags:
        if not any(character.isalnum() for character in tag):
            # GPT-2's expression cuts between letters and punctuation, so that only such a tag could be one piece of text.
            what = "a text may spell it as one piece of bytes"
            raise ConfigError(f"tag {tag}", what, "Use a tag with letters, or tokenizer.kind=bpe")
    if config.size < BYTES + len(SPECIALS) + len(tags):
        what = f"{config.size} tokens are too few for bytes, special tokens and {len(tags)} tags"
        raise ConfigError("setting tokenizer.size", what, f"Use at least {BYTES + len(SPECIALS) + len(tags)}")
    if not any(texts):
        raise _no_text()
    _merge(inner, texts, config, tags, byte_names())


def _merge(
    inner: hf.Tokenizer, texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str], alphabet: list[str]
) -> None:
    trainer = trainers.BpeTrainer(
        vocab_size=config.size,
        min_frequency=config.min_count,
        special_tokens=[*SPECIALS, *tags],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)


def _model(
    words: Mapping[str, int], listed: Collection[str], config: TokenizerConfig, tags: Sequence[str]
) -> models.Model:
    """The model of every kind that is not merged."""
    unknown = SPECIALS[UNK]
    specials = [*SPECIALS, *tags]
    if config.kind == "unigram":
        from regard.data.unigram import train_unigram

        pieces = train_unigram(words, config.size - len(specials))
        return models.Unigram([*((special, 0.0) for special in specials), *pieces], unk_id=UNK, byte_fallback=False)
    if config.kind == "wordpiece":
        return piece_model([*specials, *train_wordpieces(words, config.size - len(specials), config.min_count)])
    if config.kind in OF_WORDS:
        return models.WordLevel(_numbered([*specials, *_vocabulary(words, listed, config, len(specials))]), unknown)
    return models.BPE(_numbered([*specials, *sorted({SPACE, *_alphabet(words, 1 << 24)})]), [], unk_token=unknown)


def _vocabulary(words: Mapping[str, int], listed: Collection[str], config: TokenizerConfig, taken: int) -> list[str]:
    """All listed words and as many of the text's frequent ones as there is room for, by their frequency in the text."""
    room = config.size - taken
    # "<unk>" between spaces is what others wrote for an unknown word: not in the vocabulary, it is unknown here too
    kept = {*listed} - {SPACE + SPECIALS[UNK]}
    if kept and len(kept) > room:
        what = f"its {len(kept):,} words do not fit into tokenizer.size={config.size}"
        raise ConfigError(f"setting tokenizer.words, {config.words}", what, f"Use at least {len(kept) + taken}")

    def order(word: str) -> tuple[int, str]:
        return -words.get(word, 0), word

    frequent = [word for word, count in words.items() if count >= config.min_count and word != SPACE + SPECIALS[UNK]]
    more = sorted({*frequent} - kept, key=order)
    return sorted([*kept, *more[: max(0, room - len(kept))]], key=order)


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: i for i, token in enumerate(tokens)}


def byte_names() -> list[str]:
    """The printable character by which Hugging Face writes each byte: itself, or the next one free from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(BYTES) if byte not in printable]
    return [chr(byte) if byte in printable else chr(BYTES + others.index(byte)) for byte in range(BYTES)]
