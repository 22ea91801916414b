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

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import CheckpointError, DataError, ModelError, TokenizerError
from regard.core.files import check_manifest, load_tensors
from regard.core.types import PAD, UNK, pad_rows
from regard.data.labelled_tokens import token_rows
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.models.base import MODELS, build_model
from regard.models.classifier import Classifier
from regard.tasks.folder import CONFIG, WEIGHTS, put_weights, read_config, tokenizer_names, weights_folder

MAX_CHARACTERS = 1_000_000  # of a text
MAX_LABELS = 1 << 20
BATCH_TOKENS = {"cpu": 4096}
BATCH_TOKENS_ELSEWHERE = 65536


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
        model, tokenizers, config = load_classifier(folder)
        most = config.get("train", {}).get("max_tokens", 0)
        return cls(
            model,
            tokenizers,
            labels_of(config, folder),
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
        if isinstance(texts, str):
            raise DataError("texts", "one text was given where a list is expected", "Put it into a list")
        self._check(texts, second, first)
        found = token_rows(self.tokenizer, texts, second or (), self.most, first=first)
        if found.cut:
            what = f"{found.cut} of {len(texts)} texts are longer than {self.most} tokens: only their beginning is read"
            warnings.warn(what, stacklevel=3)
        if any(all(token == UNK for token in row) for row in found.rows):
            warnings.warn("A text has no word that the model has ever seen: its label is a guess", stacklevel=3)
        return np.exp(self.log_probs(found.rows))

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
        budget = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS_ELSEWHERE)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        begin = 0
        while begin < len(order):
            end = begin + 1
            while end < len(order) and (end - begin + 1) * len(rows[order[end]]) <= budget:
                end += 1
            places = order[begin:end]
            source = pad_rows([rows[i] for i in places]).to(self.device)
            hidden = self.model(source, torch.full((len(places), 1), PAD, device=self.device)).hidden
            scores: Tensor = self.model.output.scores(hidden)[:, 0, 1:]  # not the one of none
            found[places] = scores.double().cpu().numpy()
            begin = end
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


def labels_of(config: dict[str, Any], folder: Path) -> list[str]:
    """The labels that a run's configuration names."""
    labels = config.get("labels")
    if (
        not isinstance(labels, list)
        or not 2 <= len(labels) <= MAX_LABELS
        or not all(isinstance(label, str) and label for label in labels)
        or len(set(labels)) < len(labels)
    ):
        what = "it does not name the labels of a classifier"
        raise CheckpointError(folder / CONFIG, what, "Give the folder of a run on labelled text")
    return labels


def load_classifier(folder: Path) -> tuple[Classifier, TokenizerPair, dict[str, Any]]:
    """The classifier of a run in float32 on the CPU, its tokenizers and its configuration, checked against the manifest."""
    config = read_config(folder)
    place = weights_folder(folder)
    check_manifest(place, [WEIGHTS])
    check_manifest(folder, [CONFIG, *tokenizer_names(folder)])
    tokenizers = TokenizerPair.load(folder)
    vocabulary = config["vocabulary"]["source"]
    if tokenizers.source.size != vocabulary:
        what = f"the tokenizer has {tokenizers.source.size} tokens, the model was built for {vocabulary}"
        raise TokenizerError(folder, what, "Put the run's own tokenizer back")
    name = str(config["model"].get("name"))
    if "classifies" not in MODELS.get(name).capabilities:
        raise ModelError(folder, f"{name} is no classifier", "Give the folder of a run on labelled text")
    model_config = configuration.build(MODELS.get(name).Config, config["model"], "model")
    sizes = {"source_vocabulary": vocabulary, "target_vocabulary": len(labels_of(config, folder)) + 1, "shared": False}
    tensors = load_tensors(place / WEIGHTS)
    with torch.device("meta"):  # shapes first: a configuration that lies must not make us allocate
        put_weights(build_model(name, model_config, **sizes), tensors, place / WEIGHTS)
    model = build_model(name, model_config, **sizes)
    put_weights(model, tensors, place / WEIGHTS)
    return cast(Classifier, model.eval()), tokenizers, config
