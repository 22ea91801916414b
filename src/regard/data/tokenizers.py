"""Tokenizers: raw text to token ids and back, trained on the corpus and kept in one JSON file.

Spaces are part of the tokens ("▁"), so that decoding gives the text back as it was, up to the normalisation: the chosen
Unicode form, the chosen case, and runs of white space as one space. Byte tokenizers change nothing but the case.
Text that looks like a special token ("</s>") is text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import tokenizers as hf
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.core.errors import ConfigError, TokenizerError
from regard.core.files import write_bytes
from regard.core.types import SPECIALS, UNK
from regard.data.split import Pairs, PairStream
from regard.data.unigram import train_unigram

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
MAX_JSON_CHARACTERS = 64 << 20
PUNCTUATION = "▁?[\\p{P}$+<=>^`|~]"
SPACE = "▁"
MOST_WORDS = 300_000  # whose tokens are remembered
_ODD_SPACE = re.compile("[\x1c-\x1f]")  # space to Python's split, text to the tokenizer
_RETRAIN = "Restore the file from a copy, or train again"


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """What the tokens are."""

    kind: Literal["bpe", "unigram", "word", "char", "byte"] = "bpe"
    size: int = 8000  # at most so many tokens; char and byte take what they need
    joint: bool = True  # one vocabulary for both languages
    lowercase: bool = False
    normalize: Literal["nfc", "nfkc", "none"] = "nfc"  # bytes are never normalised
    min_count: int = 2  # how often a word (or a pair that BPE merges) must occur
    split_digits: bool = True
    lines: int = 250_000  # of each side, at most so many are looked at, evenly spaced; 0 looks at all

    def __post_init__(self) -> None:
        if self.size <= 2 * len(SPECIALS):
            raise ConfigError("setting tokenizer.size", f"{self.size} tokens are too few", "Use at least 100")
        if self.min_count < 1:
            raise ConfigError("setting tokenizer.min_count", f"it is {self.min_count}", "Use 1 or more")
        if self.lines < 0:
            raise ConfigError("setting tokenizer.lines", f"it is {self.lines}", "Use 0 or more")


class Tokenizer:
    """Turns text into token ids and back. Neither BOS nor EOS is added."""

    def __init__(self, text: str, inner: hf.Tokenizer):
        self._text, self._inner = text, inner
        inner.encode_special_tokens = True  # "</s>" inside a text is text; this flag is not part of the JSON
        inner.no_truncation()
        inner.no_padding()
        self.size: int = inner.get_vocab_size()
        # Tags say what kind of text a sentence is. They are special tokens: no text is ever read as one.
        known = inner.get_added_tokens_decoder()
        self.tags: dict[str, int] = {
            token.content: i for i, token in sorted(known.items()) if i > UNK and token.special
        }
        self._unwritten = {*range(UNK + 1), *self.tags.values()}
        self._word_by_word = _cuts_at_spaces(inner)
        self._words: dict[str, list[int]] = {}  # the tokens of words met in long texts
        self.fingerprint: str = hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = ()) -> Self:
        """Makes a tokenizer from text. The same text and settings give the same JSON, byte for byte.

        The text is gone through twice: give a list, or what can be gone through again.
        """
        inner = _untrained(config)
        words = _count_words(texts, inner) if config.kind != "byte" else Counter()
        if not words and config.kind != "byte":
            raise TokenizerError("tokenizer", "there is no text to train it on", "Give a corpus that is not empty")
        if config.kind == "bpe":
            _train_bpe(inner, texts, words, config, tags)
        else:
            inner.model = _model(words, config, tags)
        inner.add_special_tokens([*SPECIALS, *tags])
        # The trained tokenizer is the one that its JSON gives, so that training and loading cannot differ.
        return cls.from_json(inner.to_str(), "the trained tokenizer")

    @classmethod
    def from_json(cls, text: str, where: object = "tokenizer") -> Self:
        """Reads a tokenizer, checking that it is whole and has regard's special tokens."""
        if len(text) > MAX_JSON_CHARACTERS:
            raise TokenizerError(where, "the file is too large to be a tokenizer", _RETRAIN)
        try:
            inner = hf.Tokenizer.from_str(text)
            inner.encode("probe ?", add_special_tokens=False)
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            raise TokenizerError(where, f"it is not a tokenizer, or a damaged one ({reason})", _RETRAIN) from None
        found = [inner.id_to_token(i) for i in range(len(SPECIALS))]
        if found != list(SPECIALS):
            raise TokenizerError(
                where,
                f"tokens 0 to {len(SPECIALS) - 1} must be {' '.join(SPECIALS)}, got {' '.join(map(str, found))}",
                "Use a tokenizer that regard has trained",
            )
        if sorted(inner.get_vocab().values()) != list(range(inner.get_vocab_size())):
            raise TokenizerError(where, "its token ids have gaps", "Use a tokenizer that regard has trained")
        return cls(text, inner)

    def to_json(self) -> str:
        return self._text

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """What `encode` gives, for long texts: several times faster, since no word is cut twice.

        Where tokens never cross a space, a line's tokens are those of its words.
        """
        if not self._word_by_word or any(map(_ODD_SPACE.search, texts)):
            return self.encode(texts)
        known = self._words
        if len(known) > MOST_WORDS:
            known.clear()
        lines = [text.split() for text in texts]
        new = list({word for line in lines for word in line}.difference(known))
        known.update(zip(new, self.encode(new), strict=True))
        return [[i for word in line for i in known[word]] for line in lines]

    def forget_words(self) -> None:
        """Gives back the memory of the words that `encode_many` has met."""
        self._words.clear()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text."""
        try:
            return [encoding.ids for encoding in self._inner.encode_batch_fast(list(texts), add_special_tokens=False)]
        except TypeError:  # a lone surrogate, as undecodable bytes on the command line give
            for text in texts:
                if not isinstance(text, str):
                    raise
                if any("\ud800" <= character <= "\udfff" for character in text):
                    shown = text.encode(errors="replace").decode()
                    raise TokenizerError(f"text {shown!r}", "it is not valid Unicode", "Give it as UTF-8") from None
            raise

    def tag(self, name: str) -> int:
        """The id of a tag."""
        if name not in self.tags:
            known = f"it knows {', '.join(self.tags)}" if self.tags else "it knows none"
            raise TokenizerError(
                f"tag {name!r}", f"the model was not trained with this tag, {known}", "Use another tag, or none"
            )
        return self.tags[name]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids; special tokens are left out."""
        rows = [[i for i in row if i not in self._unwritten] for row in ids]
        return self._inner.decode_batch(rows, skip_special_tokens=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The token strings, for display; an id outside the vocabulary shows as unknown."""
        return [self._inner.id_to_token(i) or SPECIALS[UNK] for i in ids]


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of the source and the target; one and the same where the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer
    joint: bool

    @classmethod
    def train(cls, sources: Sequence[str], targets: Sequence[str], config: TokenizerConfig) -> Self:
        """Tokenizers for the two sides of a text."""
        return cls.train_on(Pairs(list(sources), list(targets)), config)

    @classmethod
    def train_on(cls, text: PairStream, config: TokenizerConfig, tags: Sequence[str] = ()) -> Self:
        """Tokenizers for the two sides of a text, in memory or not. Tags stand before source sentences only."""
        part = text.spaced(config.lines) if config.lines else text
        if config.joint:
            both = Tokenizer.train(_Lines(part, ("sources", "targets")), config, tags)
            return cls(both, both, True)
        source = Tokenizer.train(_Lines(part, ("sources",)), config, tags)
        return cls(source, Tokenizer.train(_Lines(part, ("targets",)), config), False)

    def save(self, folder: Path) -> None:
        """Writes `tokenizer.json`, or one file for each side where they differ."""
        for name, tokenizer in self._files():
            write_bytes(folder / name, tokenizer.to_json().encode())

    def _files(self) -> list[tuple[str, Tokenizer]]:
        if self.joint:
            return [("tokenizer.json", self.source)]
        return [("tokenizer.src.json", self.source), ("tokenizer.tgt.json", self.target)]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Reads what `save` has written."""
        if (folder / "tokenizer.json").exists():
            both = _read(folder / "tokenizer.json")
            return cls(both, both, True)
        if not (folder / "tokenizer.src.json").exists():
            raise TokenizerError(folder, "it holds no tokenizer", "Check that the folder is a whole run")
        return cls(_read(folder / "tokenizer.src.json"), _read(folder / "tokenizer.tgt.json"), False)


class _Lines:
    """The lines of one side or of both, one side after the other in each chunk."""

    def __init__(self, text: PairStream, sides: Sequence[str]):
        self._text, self._sides = text, sides

    def __iter__(self) -> Iterator[str]:
        for chunk in self._text.chunks():
            for side in self._sides:
                yield from getattr(chunk, side)


def _cuts_at_spaces(inner: hf.Tokenizer) -> bool:
    """Whether a text's tokens are those of its words, one after the other: regard's own subwords and words."""
    value = json.loads(inner.to_str())
    cuts, model = value.get("pre_tokenizer") or {}, value.get("model") or {}
    first = (cuts.get("pretokenizers") or [{}])[0]
    known = {"NFC", "NFKC", "Replace", "Strip", "Lowercase"}
    steps = (value.get("normalizer") or {}).get("normalizers") or [{}]
    return (
        {name: first.get(name) for name in ("type", "prepend_scheme", "split")}
        == {"type": "Metaspace", "prepend_scheme": "always", "split": True}
        and {step.get("type") for step in steps} <= known
        and not value.get("post_processor")
        and model.get("dropout") is None
    )


def _read(path: Path) -> Tokenizer:
    try:
        if path.stat().st_size > 4 * MAX_JSON_CHARACTERS:
            raise TokenizerError(path, "the file is too large to be a tokenizer", _RETRAIN)
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise TokenizerError(path, "the file is missing", "Check that the folder is a whole run") from None
    except OSError as error:
        raise TokenizerError(path, f"the file cannot be read ({error.strerror})", "Check the path") from None
    except UnicodeDecodeError:
        raise TokenizerError(path, "the file is damaged: it is not UTF-8 text", _RETRAIN) from None
    return Tokenizer.from_json(text, path)


def _untrained(config: TokenizerConfig) -> hf.Tokenizer:
    """A tokenizer with everything but its vocabulary."""
    inner = hf.Tokenizer(models.BPE(unk_token=SPECIALS[UNK]))
    steps: list[normalizers.Normalizer] = []
    if config.kind != "byte":
        steps += {"nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()], "none": []}[config.normalize]
        # A literal "▁" would turn into a space.
        steps += [normalizers.Replace(SPACE, "_"), normalizers.Replace(hf.Regex(r"\s+"), " ")]
        steps += [normalizers.Strip()]
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if steps:
        inner.normalizer = normalizers.Sequence(steps)  # type: ignore[assignment]
    if config.kind == "byte":
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # type: ignore[assignment]
        inner.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    elif config.kind == "char":
        inner.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "never", split=True)  # type: ignore[assignment]
        inner.decoder = decoders.Metaspace(SPACE, "never", split=True)  # type: ignore[assignment]
    else:
        # Punctuation stands alone, so that no piece joins a word with its comma, nor spells a special token.
        # The space before it goes with it: text that is tokenised already (" ,") does not get twice the pieces.
        punctuation = pre_tokenizers.Split(Regex(PUNCTUATION), "isolated")
        cuts: list[Any] = [pre_tokenizers.Metaspace(SPACE, "always", split=True), punctuation]
        cuts += [pre_tokenizers.Digits(individual_digits=True)] if config.split_digits else []
        inner.pre_tokenizer = pre_tokenizers.Sequence(cuts)  # type: ignore[assignment]
        inner.decoder = decoders.Metaspace(SPACE, "always", split=True)  # type: ignore[assignment]
    return inner


def _count_words(texts: Iterable[str], inner: hf.Tokenizer) -> Counter[str]:
    """How often each unit between the pre-tokenizer's cuts occurs."""
    written: Counter[str] = Counter()
    for text in texts:
        written.update(text.split())
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


def _train_bpe(
    inner: hf.Tokenizer, texts: Iterable[str], words: Mapping[str, int], config: TokenizerConfig, tags: Sequence[str]
) -> None:
    # The trainer's own choice of an alphabet breaks ties by the order of a hash table: give it a fixed one.
    alphabet = _alphabet(words, config.size - len(SPECIALS) - len(tags))
    trainer = trainers.BpeTrainer(
        vocab_size=config.size,
        min_frequency=config.min_count,
        special_tokens=[*SPECIALS, *tags],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)


def _model(words: Mapping[str, int], config: TokenizerConfig, tags: Sequence[str]) -> models.Model:
    """The model of every kind but BPE."""
    unknown = SPECIALS[UNK]
    specials = [*SPECIALS, *tags]
    if config.kind == "unigram":
        pieces = train_unigram(words, config.size - len(specials))
        return models.Unigram([*((special, 0.0) for special in specials), *pieces], unk_id=UNK, byte_fallback=False)
    if config.kind == "word":
        frequent = [word for word, count in words.items() if count >= config.min_count]
        frequent.sort(key=lambda word: (-words[word], word))
        return models.WordLevel(_numbered([*specials, *frequent[: config.size - len(specials)]]), unk_token=unknown)
    units = _byte_names() if config.kind == "byte" else sorted({SPACE, *_alphabet(words, 1 << 24)})
    return models.BPE(_numbered([*specials, *units]), [], unk_token=unknown)


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: i for i, token in enumerate(tokens)}


def _byte_names() -> list[str]:
    """The printable character by which Hugging Face writes each byte: itself, or the next one free from 256 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]
