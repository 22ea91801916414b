"""Classifiers, taggers and masked models as ONNX graphs, without torch: as `regard.load` has them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.specials import EOS, UNK
from regard.data.cut_words import cut_words
from regard.data.labelled_tokens import token_rows
from regard.data.mask_text import MaskReader
from regard.data.tagged_tokens import WordEncoder, row_of, windows_of
from regard.onnx.folder import Opened
from regard.onnx.writing import padded
from regard.tasks.line_batches import batches

BATCH_TOKENS = 4096
MAX_CHARACTERS = 1_000_000  # of a text


class Guess(NamedTuple):
    """A label and how probable it is."""

    label: str
    probability: float


class Tagged(NamedTuple):
    """A word, its likeliest tag and how probable that is."""

    word: str
    tag: str
    probability: float


class FilledWord(NamedTuple):
    """What may stand for a mask, and how probable it is; `goes_on`: with the word before it."""

    word: str
    probability: float
    goes_on: bool = False


class _Reader:
    """One graph that reads texts."""

    def __init__(self, opened: Opened, folder: Path):
        self.manifest, self.tokenizers, self.folder = opened.manifest, opened.tokenizers, folder
        self._session = opened.sessions["model"]
        self.labels = opened.manifest.labels
        limit = opened.manifest.source_limit
        self.most = min([n for n in (opened.manifest.most_tokens, limit) if n], default=0)

    @property
    def tokenizer(self) -> Any:
        return self.tokenizers.source

    def run(
        self,
        rows: Sequence[Sequence[int]],
        places: Sequence[Sequence[int]] | None = None,
        outputs: list[str] | None = None,
    ) -> dict[str, np.ndarray]:
        """What the graph gives for a batch of rows of tokens, and places in them where it asks for some."""
        tokens, keep = padded(rows, self.manifest.least_source)
        inputs = {"tokens": tokens, "keep": keep}
        if any(port.name == "places" for port in self._session.graph.inputs):
            inputs["places"] = padded(places if places is not None else [[0]] * len(rows))[0]
        return self._session.run(inputs, outputs)


class OnnxClassifier(_Reader):
    """A classifier in onnxruntime. `regard.onnx.load(folder)` makes one."""

    def classify(self, texts: Any, second: Any = None) -> Any:
        """The likeliest label of each text and its probability; a single text gives a single guess."""
        if isinstance(texts, str):
            return self.guesses([texts], None if second is None else [second], top=1)[0][0]
        return [best[0] for best in self.guesses(texts, second, top=1)]

    def guesses(self, texts: Sequence[str], second: Sequence[str] | None = None, *, top: int = 0) -> list[list[Guess]]:
        """The `top` likeliest labels of each text (0: all), the likeliest first."""
        probabilities = self.probabilities(texts, second)
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, : top or None]
        return [
            [Guess(self.labels[i], float(row[i])) for i in places]
            for row, places in zip(probabilities, order, strict=True)
        ]

    def probabilities(self, texts: Sequence[str], second: Sequence[str] | None = None) -> np.ndarray:
        """The probability of every label, in the order of `labels`, for each text."""
        if self.manifest.two_texts != (second is not None):
            what = "two texts at once, and one is" if self.manifest.two_texts else "one text at once, and a second is"
            raise DataError("texts", f"the model reads {what} given", "Give as many as it reads")
        if second is not None and len(second) != len(texts):
            raise DataError("texts", f"{len(second)} second texts for {len(texts)} texts", "Give one for each")
        for column in (texts, second or ()):
            _check(column)
        found = token_rows(self.tokenizer, texts, second or (), self.most)
        if found.cut:
            what = f"{found.cut} of {len(texts)} texts are longer than {self.most} tokens: only their beginning is read"
            warnings.warn(what, stacklevel=3)
        if any(all(token == UNK for token in row) for row in found.rows):
            warnings.warn("A text has no word that the model has ever seen: its label is a guess", stacklevel=3)
        return np.exp(self.log_probs(found.rows))

    def log_probs(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Log-probabilities of all labels for rows of tokens."""
        found = np.empty((len(rows), len(self.labels)))
        for places in batches([len(row) for row in rows], BATCH_TOKENS):
            found[places] = self.run([rows[i] for i in places])["log_probs"]
        return found


class OnnxTagger(_Reader):
    """A tagger in onnxruntime. `regard.onnx.load(folder)` makes one."""

    def __init__(self, opened: Opened, folder: Path):
        super().__init__(opened, folder)
        self._encoder = WordEncoder(opened.tokenizers.source)

    def tag(self, texts: Any, *, split: bool = True) -> Any:
        """The words of each text with their likeliest tags. A single text, as a str, gives a single list.

        A text is a str, which is cut into words, or a list of words. Without `split`, the words of a str are what stands between
        white space.
        """
        if isinstance(texts, str):
            return self.tag([texts], split=split)[0]
        sentences = [_words(text, split, number) for number, text in enumerate(texts, start=1)]
        pieces = self._encoder.encode(sentences)
        spans = [(place, window) for place, one in enumerate(pieces) for window in windows_of(one, self.most)]
        rows = [row_of(pieces[place][window.begin : window.end], self.most) for place, window in spans]
        found: list[list[Tagged | None]] = [[None] * len(words) for words in sentences]
        for chosen in batches([len(row.tokens) for row in rows], BATCH_TOKENS):
            scores = self.run([rows[i].tokens for i in chosen], [rows[i].places for i in chosen])["log_probs"]
            best = scores.argmax(-1)
            for row, i in enumerate(chosen):
                place, window = spans[i]
                for word in range(window.first, window.last):
                    at = word - window.begin
                    label = int(best[row, at])
                    probability = float(np.exp(np.float64(scores[row, at, label])))
                    found[place][word] = Tagged(sentences[place][word], self.labels[label], probability)
        return found


class OnnxMaskedText(_Reader):
    """A masked model in onnxruntime. `regard.onnx.load(folder)` makes one."""

    def __init__(self, opened: Opened, folder: Path):
        super().__init__(opened, folder)
        self.outputs = {port.name for port in self._session.graph.outputs}
        self._mask_reader: MaskReader | None = None

    def fill(self, text: str, top: int = 5) -> list[list[FilledWord]]:
        """For each [MASK] or <mask> of a text, the `top` most probable words, the likeliest first."""
        if top < 1:
            raise ConfigError("top", f"it is {top}", "Ask for at least 1 word")
        self._need("log_probs", "it has no masked-word head, and fills in no words")
        _check([text])
        if self._mask_reader is None:
            self._mask_reader = MaskReader(self.tokenizers.target)
        reader = self._mask_reader
        row = reader.read(text, "the text")
        self._check_length(row.ids)
        scores = self.run([row.ids], [row.places], ["log_probs"])["log_probs"][0]
        probabilities = np.exp(scores.astype(np.float64))
        found = []
        for values, begins, joined in zip(probabilities, row.begins, row.joined, strict=True):
            able = np.flatnonzero(reader.candidates(begins))
            best = able[np.argsort(-values[able], kind="stable")[:top]].tolist()
            found.append([FilledWord(reader.shown(i), float(values[i]), joined) for i in best])
        return found

    def follows(self, first: str, second: str) -> float:
        """The probability that the second text follows the first."""
        self._need("next_sentence", "it did not learn which text follows another")
        _check([first, second])
        a, b = self.tokenizers.target.encode([first, second])
        row = [*a, EOS, *b]
        self._check_length(row)
        return float(np.exp(np.float64(self.run([row], None, ["next_sentence"])["next_sentence"][0, 0])))

    def embed(self, texts: str | Sequence[str], pooling: Literal["mean", "first"] = "mean") -> np.ndarray:
        """One vector for each text: the mean of its last states, of [CLS] and [SEP] too, or the first of them."""
        if pooling not in ("mean", "first"):
            raise ConfigError("pooling", f"{pooling!r} is unknown", "Use mean or first")
        lines = [texts] if isinstance(texts, str) else list(texts)
        _check(lines)
        rows = self.tokenizers.target.encode(lines)
        vectors = []
        for row in rows:
            self._check_length(row)
            states = self.run([row], None, ["states"])["states"][0, : len(row) + 2]
            vectors.append(states[0] if pooling == "first" else states.astype(np.float64).mean(0))
        return np.array(vectors, np.float32)

    def states(self, text: str) -> np.ndarray:
        """The last state of each token of a text."""
        _check([text])
        row = self.tokenizers.target.encode([text])[0]
        self._check_length(row)
        return self.run([row], None, ["states"])["states"][0, 1 : len(row) + 1]

    def _need(self, output: str, what: str) -> None:
        if output not in self.outputs:
            raise ModelError(f"model {self.manifest.model!r}", what, "Use another model")

    def _check_length(self, row: Sequence[int]) -> None:
        limit = self.manifest.source_limit
        if not row:
            raise DataError("the text", "nothing stands in it", "Give a text with a word in it")
        if limit is not None and len(row) > limit:
            what = f"{len(row)} tokens are more than the {limit} that the model can read at once"
            raise DataError("the text", what, "Give less of it")


def _check(texts: Sequence[Any]) -> None:
    if isinstance(texts, str):
        raise DataError("texts", "one text was given where a list is expected", "Put it into a list")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError("texts", "they are not all texts", "Give a list of str")
        if len(text) > MAX_CHARACTERS:
            what = f"it has {len(text):,} characters, more than {MAX_CHARACTERS:,}"
            raise DataError(f"text {number}", what, "Give less of it")


def _words(text: Any, split: bool, number: int) -> list[str]:
    if isinstance(text, str):
        _check([text])
        words = cut_words(text) if split else text.split()
    else:
        words = list(text)
        _check(words)
        if not all(word.strip() for word in words):
            raise DataError(f"text {number}", "one of its words is empty", "Leave it out")
    if not words:
        raise DataError(f"text {number}", "nothing stands in it", "Give a text with a word in it")
    return words
