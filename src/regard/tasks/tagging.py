"""Tagging: text or words in, a tag for each word out, with whatever tagger a run folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import numpy as np
import torch
from jaxtyping import Float, Int

from regard.core.device import choose_device
from regard.core.errors import DataError, ModelError
from regard.core.types import pad_rows
from regard.data.cut_words import cut_words
from regard.data.tagged_tokens import Pieces, Window, WordEncoder, row_of, windows_of
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.models.reader import Tagger
from regard.tasks.folder import load_model
from regard.tasks.row_batches import row_batches

MAX_CHARACTERS = 1_000_000  # of a text


class Tagged(NamedTuple):
    """A word, its likeliest tag and how probable that is."""

    word: str
    tag: str
    probability: float


class Found(NamedTuple):
    """Of each word of a sentence: the number of the likeliest label, its log-probability, and that of the right label."""

    best: Int[np.ndarray, " W"]
    log_probs: Float[np.ndarray, " W"]
    right: Float[np.ndarray, " W"]  # empty where none was named


class TextTagger:
    """A tagger with its tokenizer and the names of its labels. `regard.load(folder)` makes one.

    `most` is how many tokens are read together, as in training. A longer text is read in windows that overlap, so that every
    word gets its tag. 0: as many as the model can.
    """

    def __init__(
        self,
        model: Any,
        tokenizers: TokenizerPair,
        labels: Sequence[str],
        *,
        most: int = 0,
        device: torch.device | str = "cpu",
        config: dict[str, Any] | None = None,
        folder: Path | None = None,
    ):
        if "tags" not in model.capabilities:
            raise ModelError(type(model).__name__, "this model is no tagger", "Use one, such as recurrent-tagger")
        if model.output.vocabulary != len(labels) + 1:
            what = f"it has {model.output.vocabulary - 1} labels, and {len(labels)} names are given"
            raise ModelError(type(model).__name__, what, "Give the labels that it was trained with")
        self.model: Tagger = cast(Tagger, model.to(device).eval())
        self.tokenizers, self.labels = tokenizers, tuple(labels)
        self.most = min([n for n in (most, self.model.limits.source) if n], default=0)
        self.device = torch.device(device)
        self.config, self.folder = config or {}, folder
        self._encoder = WordEncoder(tokenizers.source)

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> TextTagger:
        """The model of a run folder."""
        folder = Path(folder)
        chosen = choose_device(device)
        model, tokenizers, config = load_model(folder)
        most = config.get("train", {}).get("max_tokens", 0)
        return cls(
            model,
            tokenizers,
            config.get("labels", ()),  # load_model has checked them
            most=most if type(most) is int and most > 0 else 0,
            device=chosen,
            config=config,
            folder=folder,
        )

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.source

    @overload
    def tag(  # pyright: ignore[reportOverlappingOverload]: a str is a Sequence[str] too
        self, texts: str, *, split: bool = True, first: int = 1
    ) -> list[Tagged]: ...
    @overload
    def tag(
        self, texts: Sequence[str | Sequence[str]], *, split: bool = True, first: int = 1
    ) -> list[list[Tagged]]: ...
    def tag(
        self, texts: str | Sequence[str | Sequence[str]], *, split: bool = True, first: int = 1
    ) -> list[Tagged] | list[list[Tagged]]:
        """The words of each text with their likeliest tags. A single text, as a str, gives a single list.

        A text is a str, which is cut into words (see data/cut_words.py), or a list of words. Without `split`, the words of a str
        are what stands between white space. Errors count texts from `first`.
        """
        if isinstance(texts, str):
            return self.tag([texts], split=split, first=first)[0]
        sentences = [self._words(text, split, number) for number, text in enumerate(texts, start=first)]
        found = self.find(self.pieces(sentences))
        return [
            [
                Tagged(word, self.labels[label], float(np.exp(log_prob)))
                for word, label, log_prob in zip(words, one.best, one.log_probs, strict=True)
            ]
            for words, one in zip(sentences, found, strict=True)
        ]

    def _words(self, text: str | Sequence[str], split: bool, number: int) -> list[str]:
        where = f"text {number}"
        if not isinstance(text, str) and not all(isinstance(word, str) for word in text):
            raise DataError(where, "it is neither a text nor a list of words", "Give a str, or a list of them")
        length = len(text) if isinstance(text, str) else sum(map(len, text))
        if length > MAX_CHARACTERS:
            what = f"it has {length:,} characters, more than {MAX_CHARACTERS:,}"
            raise DataError(where, what, "Give less of it")
        if isinstance(text, str):
            words = cut_words(text) if split else text.split()
        else:
            words = list(text)
            if not all(word.strip() for word in words):
                raise DataError(where, "one of its words is empty", "Leave it out")
        if not words:
            raise DataError(where, "nothing stands in it", "Give a text with a word in it")
        return words

    def pieces(self, sentences: Sequence[Sequence[str]]) -> list[Pieces]:
        """The tokens of each word."""
        return self._encoder.encode(sentences)

    @torch.inference_mode()
    def find(self, sentences: Sequence[Pieces], right: Sequence[Sequence[int]] | None = None) -> list[Found]:
        """The likeliest label of each word, as its place in `labels`; `right` are the places of the right ones."""
        found = [
            Found(np.empty(len(one), int), np.empty(len(one)), np.empty(len(one) if right else 0)) for one in sentences
        ]
        spans = [
            (place, window) for place, one in enumerate(sentences) for window in windows_of(one, self.most)
        ]  # fmt: skip
        rows = [row_of(sentences[place][window.begin : window.end], self.most) for place, window in spans]
        for chosen in row_batches([len(row.tokens) for row in rows], self.device):
            source = pad_rows([rows[i].tokens for i in chosen]).to(self.device)
            places = pad_rows([rows[i].places for i in chosen]).tokens.to(self.device)
            scores = self.model.output.scores(self.model(source, places).hidden)[..., 1:]  # not the one of none
            best = scores.max(-1)
            log_probs, labels = best.values.double().cpu().numpy(), best.indices.cpu().numpy()
            gold = None
            if right is not None:
                known = [right[spans[i][0]][spans[i][1].begin : spans[i][1].end] for i in chosen]
                numbers = pad_rows(known).tokens.to(self.device)
                gold = scores.gather(-1, numbers[..., None])[..., 0].double().cpu().numpy()
            for row, i in enumerate(chosen):
                place, window = spans[i]
                _put(found[place].best, labels[row], window)
                _put(found[place].log_probs, log_probs[row], window)
                if gold is not None:
                    _put(found[place].right, gold[row], window)
        return found


def _put(into: np.ndarray, row: np.ndarray, window: Window) -> None:
    """What a window found for the words that count in it."""
    into[window.first : window.last] = row[window.first - window.begin : window.last - window.begin]


__all__ = ["Found", "Tagged", "TextTagger"]
