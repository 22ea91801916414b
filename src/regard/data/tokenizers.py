"""Tokenizers: raw text to token ids and back, trained on the corpus and kept in one JSON file.

Spaces are part of the tokens ("▁"), so that decoding gives the text back as it was, up to the normalisation: the chosen
Unicode form, the chosen case, and runs of white space as one space. Tokenizers of bytes change nothing but the case.
Word pieces (data/wordpiece.py) know no spaces: decoding guesses where punctuation had some.
Text that looks like a special token ("</s>") is text; only `space` reads a word "<unk>" as UNK, and writes it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import tokenizers as hf

from regard.core.errors import TokenizerError
from regard.core.files import write_bytes
from regard.core.specials import SPECIALS, UNK
from regard.data.charsmap import Charsmap
from regard.data.gpt2_tokens import gpt2_json
from regard.data.long_texts import parts_of
from regard.data.tokenizer_training import SPACE, TokenizerConfig, trained

if TYPE_CHECKING:
    from regard.data.split import PairStream

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
MAX_JSON_CHARACTERS = 64 << 20
MOST_WORDS = 300_000  # whose tokens are remembered
_ODD_SPACE = re.compile("[\x1c-\x1f]")  # space to Python's split, text to the tokenizer
_GONE_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")  # space to Python's split, nothing to one of word pieces
_AT_ONCE = 16  # parts of a long text
_RETRAIN = "Restore the file from a copy, or train again"


class Tokenizer:
    """Turns text into token ids and back. Neither BOS nor EOS is added."""

    def __init__(self, text: str, inner: hf.Tokenizer, charsmap: Charsmap | None = None):
        """`charsmap` is applied to texts before `inner` sees them."""
        self._text, self._inner, self._charsmap = text, inner, charsmap
        inner.encode_special_tokens = True  # "</s>" inside a text is text; this flag is not part of the JSON
        inner.no_truncation()
        inner.no_padding()
        self.size: int = inner.get_vocab_size()
        # Tags say what kind of text a sentence is. They are special tokens: no text is ever read as one.
        known = inner.get_added_tokens_decoder()
        self.tags: dict[str, int] = {
            token.content: i for i, token in sorted(known.items()) if i > UNK and token.special
        }
        about = json.loads(inner.to_str())
        self._unwritten = {*range(UNK if _writes_unknown(about) else UNK + 1), *self.tags.values()}
        self._word_by_word = _cuts_at_spaces(about)
        self._odd_space = _GONE_SPACE if _is_of_pieces(about) else _ODD_SPACE
        self._between = self._tokens_between_parts(about)
        self._words: dict[str, list[int]] = {}  # the tokens of words met in long texts
        self.fingerprint: str = hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = ()) -> Self:
        """Makes a tokenizer from text. The same text and settings give the same JSON, byte for byte.

        The text is gone through twice: give a list, or what can be gone through again.
        """
        inner = trained(texts, config, tags)
        # The trained tokenizer is the one that its JSON gives, so that training and loading cannot differ.
        return cls.from_json(inner.to_str(), "the trained tokenizer")

    @classmethod
    def from_json(cls, text: str, where: object = "tokenizer") -> Self:
        """Reads a tokenizer, checking that it is whole and has regard's special tokens."""
        if len(text) > MAX_JSON_CHARACTERS:
            raise TokenizerError(where, "the file is too large to be a tokenizer", _RETRAIN)
        charsmap, plain = _without_charsmap(text, where)
        try:
            inner = hf.Tokenizer.from_str(plain)
            inner.encode("probe ?", add_special_tokens=False)
        except BaseException as error:  # a panic of the library is not an Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
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
        return cls(text, inner, charsmap)

    def to_json(self) -> str:
        return self._text

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """What `encode` gives, for long texts: several times faster, since no word is cut twice.

        Where tokens never cross a space, a line's tokens are those of its words.
        """
        if not self.cuts_words(texts):
            return self.encode(texts)
        known = self._words
        if len(known) > MOST_WORDS:
            known.clear()
        lines = [text.split() for text in texts]
        new = list({word for line in lines for word in line}.difference(known))
        known.update(zip(new, self.encode(new), strict=True))
        return [[i for word in line for i in known[word]] for line in lines]

    def cuts_words(self, texts: Sequence[str]) -> bool:
        """Whether the tokens of each text are those of its words."""
        return self._word_by_word and not any(map(self._odd_space.search, texts))

    def encode_long(self, text: str) -> Iterator[list[int]]:
        """What `encode` gives for a text of any length, a part at a time, so that memory is bounded.

        A tokenizer that regard has not made gets the text as a whole: nothing is known of where it may be cut.
        """
        if self._between is None:
            yield from self.encode([text])
            return
        parts, begun = parts_of(text), False
        while several := list(itertools.islice(parts, _AT_ONCE)):
            for ids in self.encode_many(several):
                yield self._between + ids if begun and ids else ids
                begun = begun or bool(ids)

    def _tokens_between_parts(self, about: dict[str, Any]) -> list[int] | None:
        """What stands between the tokens of two parts of a text: nothing, or the space; None: it cannot be cut."""
        if self._word_by_word:
            return []
        cuts, merges = about.get("pre_tokenizer") or {}, (about.get("model") or {}).get("merges")
        if cuts.get("type") == "ByteLevel" and not cuts.get("add_prefix_space") and _only(about, {"Lowercase"}):
            # GPT-2's expression too cuts between a word and the space after it.
            return [] if cuts.get("use_regex") or not merges else None
        if cuts.get("type") == "Metaspace" and cuts.get("prepend_scheme") == "never" and _joins_spaces(about):
            space = self._inner.token_to_id(SPACE)
            return None if merges or space is None else [space]
        return None

    def forget_words(self) -> None:
        """Gives back the memory of the words that `encode_many` has met."""
        self._words.clear()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text."""
        read = list(texts) if self._charsmap is None else [self._charsmap(text) for text in texts]
        try:
            return [encoding.ids for encoding in self._inner.encode_batch_fast(read, add_special_tokens=False)]
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
        from regard.data.split import Pairs  # NumPy, which using tokenizers does not need

        return cls.train_on(Pairs(list(sources), list(targets)), config)

    @classmethod
    def train_on(cls, text: PairStream, config: TokenizerConfig, tags: Sequence[str] = ()) -> Self:
        """Tokenizers for the two sides of a text, in memory or not. Tags stand before source sentences only."""
        if config.folder:
            return cls.taken(config.folder, tags)
        part = text.spaced(config.lines) if config.lines else text
        if config.joint:
            both = Tokenizer.train(_Lines(part, ("sources", "targets")), config, tags)
            return cls(both, both, True)
        source = Tokenizer.train(_Lines(part, ("sources",)), config, tags)
        return cls(source, Tokenizer.train(_Lines(part, ("targets",)), config), False)

    @classmethod
    def train_on_text(cls, documents: Sequence[str], config: TokenizerConfig, tags: Sequence[str] = ()) -> Self:
        """One tokenizer for a text without a source, in both places. At most `config.lines` documents are looked at."""
        if config.folder:
            one = cls.taken(config.folder, ()).target
            for tag in tags:
                one.tag(tag)  # an error where it has none
            return cls(one, one, True)
        step = -(-len(documents) // config.lines) if config.lines else 1
        one = Tokenizer.train(_Parts(documents, max(1, step)), config, tags)
        return cls(one, one, True)

    @classmethod
    def taken(cls, folder: str, tags: Sequence[str]) -> Self:
        """The tokenizers of another run; its source's must have these tags."""
        found = cls.load(Path(folder))
        for tag in tags:
            found.source.tag(tag)
        return found

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


class _Parts:
    """Every so-manieth document, long ones in parts."""

    def __init__(self, documents: Sequence[str], step: int):
        self._documents, self._step = documents, step

    def __iter__(self) -> Iterator[str]:
        for i in range(0, len(self._documents), self._step):
            yield from parts_of(self._documents[i])


def _without_charsmap(text: str, where: object) -> tuple[Charsmap | None, str]:
    """The map of characters with which a tokenizer begins (a SentencePiece model's), and the JSON without it."""
    if '"Precompiled"' not in text:
        return None, text
    try:
        about = json.loads(text)
        steps = about["normalizer"]["normalizers"]
        first, others = steps[0], steps[1:]
        if first["type"] != "Precompiled" or any(step["type"] == "Precompiled" for step in others):
            raise TokenizerError(where, "its map of characters is not the first of its steps", _RETRAIN)
        charsmap = Charsmap(base64.b64decode(first["precompiled_charsmap"], validate=True), where)
        about["normalizer"]["normalizers"] = others
        return charsmap, json.dumps(about, ensure_ascii=False)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise TokenizerError(where, "it is not a tokenizer, or a damaged one", _RETRAIN) from None


def gpt2_tokenizer(encoder_json: Path, vocab_bpe: Path) -> Tokenizer:
    """GPT-2's own tokenizer from its two files: its token i is i + 4, and <|endoftext|> is left out."""
    return Tokenizer.from_json(gpt2_json(encoder_json, vocab_bpe), encoder_json)


def _cuts_at_spaces(about: dict[str, Any]) -> bool:
    """Whether a text's tokens are those of its words, one after the other: regard's own subwords and words, word pieces."""
    if _is_of_pieces(about):
        return _only(about, {"BertNormalizer"})
    cuts = about.get("pre_tokenizer") or {}
    first = (cuts.get("pretokenizers") or [{}])[0]
    return _joins_spaces(about) and {name: first.get(name) for name in ("type", "prepend_scheme", "split")} == {
        "type": "Metaspace",
        "prepend_scheme": "always",
        "split": True,
    }


def _is_of_pieces(about: dict[str, Any]) -> bool:
    return (about.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"


def _joins_spaces(about: dict[str, Any]) -> bool:
    """Whether runs of white space become one space, or none at the ends of a text, as regard's own tokenizers do it."""
    own = {"Replace", "Strip"}
    return own <= _steps(about) and _only(about, {*own, "NFC", "NFKC", "Lowercase"})


def _only(about: dict[str, Any], steps: set[str]) -> bool:
    """Whether nothing but these steps is done to a text before it is cut, and nothing afterwards."""
    dropout = (about.get("model") or {}).get("dropout")
    return _steps(about) <= steps and not about.get("post_processor") and dropout is None


def _steps(about: dict[str, Any]) -> set[str]:
    normalizer = about.get("normalizer")
    return {step["type"] for step in normalizer.get("normalizers", [normalizer])} if normalizer else set()


def _writes_unknown(about: dict[str, Any]) -> bool:
    """Whether "<unk>" is a word that decoding writes: where words are what stands between white space."""
    steps = (about.get("decoder") or {}).get("decoders") or [{}]
    return steps[0].get("type") == "Replace" and steps[0].get("content") == SPACE + SPECIALS[UNK]


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


__all__ = ["SPACE", "Tokenizer", "TokenizerConfig", "TokenizerPair", "gpt2_tokenizer"]
