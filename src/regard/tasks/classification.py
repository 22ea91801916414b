"""Classification: raw text in, a label out, with whatever classifier a run folder holds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.device import choose_device
from regard.core.errors import DataError, ModelError
from regard.core.types import PAD, UNK, pad_rows
from regard.data.labelled_tokens import TextRows, token_rows
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.models.classifier import Classifier
from regard.tasks.folder import load_model
from regard.tasks.row_batches import row_batches

MAX_CHARACTERS = 1_000_000  # of a text


class Guess(NamedTuple):
    """A label and how probable it is."""

    label: str
    probability: float


class TextClassifier:
    """A classifier with its tokenizer and the names of its labels. `regard.load(folder)` makes one.

    `most` is how many tokens of a text are read, as in training: what stands behind them is left out, with a warning. 0: as
    many as the model can.
    """

    def __init__(
        self,
        model: Any,
        tokenizers: TokenizerPair,
        labels: Sequence[str],
        *,
        two_texts: bool = False,
        most: int = 0,
        device: torch.device | str = "cpu",
        config: dict[str, Any] | None = None,
        folder: Path | None = None,
    ):
        if "classifies" not in model.capabilities:
            what = "this model is no classifier"
            raise ModelError(type(model).__name__, what, "Use one, such as gpt-classifier")
        if model.output.vocabulary != len(labels) + 1:
            what = f"it has {model.output.vocabulary - 1} labels, and {len(labels)} names are given"
            raise ModelError(type(model).__name__, what, "Give the labels that it was trained with")
        self.model: Classifier = cast(Classifier, model.to(device).eval())
        self.tokenizers, self.labels, self.two_texts = tokenizers, tuple(labels), two_texts
        self.most = min([n for n in (most, self.model.limits.source) if n], default=0)
        self.device = torch.device(device)
        self.config, self.folder = config or {}, folder

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> TextClassifier:
        """The model of a run folder."""
        folder = Path(folder)
        chosen = choose_device(device)
        model, tokenizers, config = load_model(folder)
        most = config.get("train", {}).get("max_tokens", 0)
        return cls(
            model,
            tokenizers,
            config.get("labels", ()),  # load_model has checked them
            two_texts=config.get("two_texts") is True,
            most=most if type(most) is int and most > 0 else 0,
            device=chosen,
            config=config,
            folder=folder,
        )

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.source

    @overload
    def classify(  # pyright: ignore[reportOverlappingOverload]: a str is a Sequence[str] too
        self, texts: str, second: str | None = None
    ) -> Guess: ...
    @overload
    def classify(self, texts: Sequence[str], second: Sequence[str] | None = None) -> list[Guess]: ...
    def classify(self, texts: str | Sequence[str], second: str | Sequence[str] | None = None) -> Guess | list[Guess]:
        """The likeliest label of each text and its probability; a single text gives a single guess.

        Models that were trained on pairs of texts need the second text of each.
        """
        if isinstance(texts, str):
            return self.guesses([texts], None if second is None else [cast(str, second)], top=1)[0][0]
        return [best[0] for best in self.guesses(texts, second, top=1)]

    def guesses(
        self, texts: Sequence[str], second: Sequence[str] | None = None, *, top: int = 0, first: int = 1
    ) -> list[list[Guess]]:
        """The `top` likeliest labels of each text (0: all), the likeliest first. Errors count texts from `first`."""
        probabilities = self.probabilities(texts, second, first=first)
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, : top or None]
        return [
            [Guess(self.labels[i], float(row[i])) for i in places]
            for row, places in zip(probabilities, order, strict=True)
        ]

    def probabilities(
        self, texts: Sequence[str], second: Sequence[str] | None = None, *, first: int = 1
    ) -> Float[np.ndarray, "N L"]:
        """The probability of every label, in the order of `labels`, for each text."""
        found = self.rows(texts, second, first=first)
        if found.cut:
            what = f"{found.cut} of {len(texts)} texts are longer than {self.most} tokens: only their beginning is read"
            warnings.warn(what, stacklevel=3)
        if any(all(token == UNK for token in row) for row in found.rows):
            warnings.warn("A text has no word that the model has ever seen: its label is a guess", stacklevel=3)
        return np.exp(self.log_probs(found.rows))

    def rows(self, texts: Sequence[str], second: Sequence[str] | None = None, *, first: int = 1) -> TextRows:
        """The tokens of each text as the model reads them, and how many texts are longer than that: see `log_probs`."""
        if isinstance(texts, str):
            raise DataError("texts", "one text was given where a list is expected", "Put it into a list")
        self._check(texts, second, first)
        return token_rows(self.tokenizer, texts, second or (), self.most, first=first)

    def accuracy(self, texts: Sequence[str], labels: Sequence[str], second: Sequence[str] | None = None) -> float:
        """How many of 100 texts get the label that is given for them."""
        if len(texts) != len(labels) or not labels:
            raise DataError("labels", f"{len(labels)} labels for {len(texts)} texts", "Give one for each, and some")
        self.numbers(labels)
        guesses = self.classify(list(texts), second)
        return 100 * sum(guess.label == label for guess, label in zip(guesses, labels, strict=True)) / len(labels)

    def numbers(self, labels: Sequence[str]) -> list[int]:
        """The places of labels in `labels`; one that the model does not know is an error."""
        places = {label: i for i, label in enumerate(self.labels)}
        for number, label in enumerate(labels, start=1):
            if label not in places:
                known = ", ".join(map(repr, self.labels[:10])) + (", ..." if len(self.labels) > 10 else "")
                raise DataError(f"label {number}", f"the model does not know {label!r}; it knows {known}", "Mend it")
        return [places[label] for label in labels]

    @torch.inference_mode()
    def log_probs(self, rows: Sequence[Sequence[int]]) -> Float[np.ndarray, "N L"]:
        """Log-probabilities of all labels for rows of tokens."""
        found = np.empty((len(rows), len(self.labels)))
        for places in row_batches([len(row) for row in rows], self.device):
            source = pad_rows([rows[i] for i in places]).to(self.device)
            hidden = self.model(source, torch.full((len(places), 1), PAD, device=self.device)).hidden
            scores: Tensor = self.model.output.scores(hidden)[:, 0, 1:]  # not the one of none
            found[places] = scores.double().cpu().numpy()
        return found

    def _check(self, texts: Sequence[str], second: Sequence[str] | None, first: int) -> None:
        if self.two_texts != (second is not None):
            if self.two_texts:
                raise DataError("texts", "the model reads two texts at once, and one is given", "Give a second text")
            raise DataError("texts", "the model reads one text at once, and a second is given", "Leave it out")
        if second is not None and len(second) != len(texts):
            raise DataError("texts", f"{len(second)} second texts for {len(texts)} texts", "Give one for each")
        for column in (texts, second or ()):
            for number, text in enumerate(column, start=first):
                if not isinstance(text, str):
                    raise DataError("texts", "they are not all texts", "Give a list of str")
                if len(text) > MAX_CHARACTERS:
                    what = f"it has {len(text):,} characters, more than {MAX_CHARACTERS:,}"
                    raise DataError(f"text {number}", what, "Give less of it")
