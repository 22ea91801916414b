"""Masked models in use: hidden words filled in, texts as vectors, and the states of every layer."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import tokenizers as hf
import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.device import choose_device
from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.types import EOS, Padded, pad_rows
from regard.data.mask_text import MaskedRow, MaskReader
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.models.base import Recorder
from regard.models.reader import MaskedModel
from regard.tasks.folder import load_model
from regard.tasks.row_batches import row_batches

MAX_CHARACTERS = 1_000_000  # of a text
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
Pooling = Literal["mean", "first"]


class FilledWord(NamedTuple):
    """What may stand for a mask, and how probable it is among all tokens; `goes_on`: with the word before it, as in play[MASK]."""

    word: str
    probability: float
    goes_on: bool = False


class WordSpan(NamedTuple):
    """A word of a text, and its pieces: begin .. end - 1."""

    word: str
    begin: int
    end: int


class MaskedText:
    """A masked model with its tokenizer. `regard.load(folder)` makes one.

    A text that is longer than the model can read is an error, but for `embed` by the mean.
    """

    def __init__(
        self,
        model: Any,
        tokenizers: TokenizerPair,
        *,
        device: torch.device | str = "cpu",
        config: dict[str, Any] | None = None,
        folder: Path | None = None,
    ):
        if "fills" not in model.capabilities:
            raise ModelError(type(model).__name__, "this model fills in no words", "Use one that does, such as bert")
        self.model: MaskedModel = cast(MaskedModel, model.to(device).eval())
        self.tokenizers, self.device = tokenizers, torch.device(device)
        self.config, self.folder = config or {}, folder
        self._reader: MaskReader | None = None
        self._offsets: hf.Tokenizer | None = None

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> MaskedText:
        """The model of a run folder."""
        folder = Path(folder)
        chosen = choose_device(device)
        model, tokenizers, config = load_model(folder)
        return cls(model, tokenizers, device=chosen, config=config, folder=folder)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.target

    @property
    def limit(self) -> int | None:
        """Most tokens of a text."""
        return self.model.limits.source

    def fill(self, text: str, top: int = 5) -> list[list[FilledWord]]:
        """For each [MASK] or <mask> of a text, the `top` most probable words, the likeliest first.

        A mask stands for one token, as `regard.data.mask_text` says. All are filled in at once, each without knowing what
        stands for the others.
        """
        return self.fill_rows([self.masked_row(text)], top)[0]

    def masked_row(self, text: str, name: str = "the text") -> MaskedRow:
        """A text with masks as the model reads it, checked. `name` is what errors call it."""
        row = self._mask_reader().read(self._checked(text, name), name)
        self._check_length(len(row.ids), name)
        return row

    @torch.inference_mode()
    def fill_rows(self, rows: Sequence[MaskedRow], top: int = 5) -> list[list[list[FilledWord]]]:
        """What `fill` says, for several texts."""
        if top < 1:
            raise ConfigError("top", f"it is {top}", "Ask for at least 1 word")
        reader = self._mask_reader()
        found: list[list[list[FilledWord]]] = [[] for _ in rows]
        for places in row_batches([len(row.ids) for row in rows], self.device):
            source = pad_rows([rows[i].ids for i in places]).to(self.device)
            target = pad_rows([[0, *rows[i].places] for i in places]).tokens.to(self.device)
            hidden = self.model(source, target).hidden
            for i, states in zip(places, hidden, strict=True):
                found[i] = self._words_for(rows[i], states[1 : 1 + len(rows[i].places)], reader, top)
        return found

    def _words_for(
        self, row: MaskedRow, states: Float[Tensor, "M D"], reader: MaskReader, top: int
    ) -> list[list[FilledWord]]:
        probabilities = self.model.output.scores(states).double().exp().cpu().numpy()
        found: list[list[FilledWord]] = []
        for values, begins, joined in zip(probabilities, row.begins, row.joined, strict=True):
            able = np.flatnonzero(reader.candidates(begins))
            best = able[np.argsort(-values[able], kind="stable")[:top]].tolist()
            found.append([FilledWord(reader.shown(i), float(values[i]), joined) for i in best])
        return found

    @torch.inference_mode()
    def follows(self, first: str, second: str) -> float:
        """The probability that the second text follows the first, for models that learnt to tell."""
        scores = getattr(self.model, "next_sentence_scores", None)
        if scores is None or getattr(self.model.config, "next_sentence", True) is False:
            what = "it did not learn which text follows another"
            raise ModelError(type(self.model).__name__, what, "Use one with model.next_sentence=true")
        rows = self._rows([first, second])
        self._check_length(len(rows[0]) + 1 + len(rows[1]), "the two texts")
        return float(scores(pad_rows([[*rows[0], EOS, *rows[1]]]).to(self.device))[0, 0].exp())

    def embed(
        self, texts: str | Sequence[str], pooling: Pooling = "mean", *, first: int = 1
    ) -> Float[np.ndarray, "N D"]:
        """One vector for each text: the mean of its last states, or the first of them.

        Both as BERT-type sentence encoders have it, of all that is read: [CLS], the tokens and [SEP]. A text longer than the
        model can read is read in parts, and the mean is that of all parts; with `first`, it is an error. Errors count texts
        from `first` on.
        """
        if pooling not in ("mean", "first"):
            raise ConfigError("pooling", f"{pooling!r} is unknown", "Use mean or first")
        rows = self._rows([texts] if isinstance(texts, str) else texts, first)
        limit = self.limit or max(map(len, rows), default=1)
        parts: list[list[int]] = []
        owners: list[int] = []
        for number, row in enumerate(rows):
            if pooling == "first":
                self._check_length(len(row), f"text {first + number}")
            for begin in range(0, len(row), limit):
                parts.append(row[begin : begin + limit])
                owners.append(number)
        sums: np.ndarray | None = None
        counts = np.zeros((len(rows), 1))
        for places in row_batches([len(part) for part in parts], self.device):
            source = pad_rows([parts[i] for i in places]).to(self.device)
            vectors, sizes = self._pooled(source, pooling)
            if sums is None:
                sums = np.zeros((len(rows), vectors.shape[1]))
            whose = [owners[i] for i in places]
            np.add.at(sums, whose, vectors)
            np.add.at(counts, whose, sizes)
        return np.zeros((0, 0), dtype=np.float32) if sums is None else (sums / counts).astype(np.float32)

    def states(self, text: str) -> Float[np.ndarray, "S D"]:
        """The last state of each token of a text."""
        return self.layers(text)[1][-1]

    @torch.inference_mode()
    def layers(self, text: str) -> tuple[list[WordSpan], list[Float[np.ndarray, "S D"]]]:
        """The words of a text with the spans of their pieces; and for each layer the pieces' states, 0 being the embeddings.

        A word is a run of letters and digits (with apostrophes inside), or one other sign.
        """
        ids, words = self._words(self._checked(text, "the text"))
        self._check_length(len(ids), "the text")
        record = Recorder()
        self.model.states(pad_rows([ids]).to(self.device), record)
        found: list[np.ndarray] = []
        while (states := record.tensors.get(f"reader.{len(found)}.states")) is not None:
            found.append(states[0].float().cpu().numpy())
        if not found:
            raise ModelError(type(self.model).__name__, "it does not say what its layers see", "Use another model")
        return words, found

    def check_head(self) -> None:
        """Refuses a model that fills in no words."""
        if getattr(self.model.config, "head", True) is False:
            what = "it has no masked-word head: it gives vectors of texts, and fills in no words"
            todo = "Use `embed`, or a model that was trained to fill in words"
            raise ModelError(type(self.model).__name__, what, todo)

    def _mask_reader(self) -> MaskReader:
        self.check_head()
        if self._reader is None:
            self._reader = MaskReader(self.tokenizer)
        return self._reader

    def _pooled(self, source: Padded, pooling: Pooling) -> tuple[np.ndarray, np.ndarray]:
        """Sums of states and how many they are of; or the first states, once each."""
        with torch.inference_mode():
            whole = getattr(self.model, "whole_states", None)
            states, keep = whole(source) if whole is not None else (self.model.states(source), source.keep)
            if pooling == "first":
                return states[:, 0].double().cpu().numpy(), np.ones((len(states), 1))
            kept = keep[..., None]
            summed: Tensor = states.double().masked_fill(~kept, 0.0).sum(1)
            return summed.cpu().numpy(), kept.sum(1).cpu().numpy()

    def _rows(self, texts: Sequence[str], first: int = 1) -> list[list[int]]:
        for number, text in enumerate(texts, start=first):
            self._checked(text, f"text {number}")
        rows = self.tokenizer.encode(list(texts))
        for number, row in enumerate(rows, start=first):
            if not row:
                raise DataError(f"text {number}", "nothing stands in it", "Give a text with a word in it")
        return rows

    def _words(self, text: str) -> tuple[list[int], list[WordSpan]]:
        """A text's tokens, and which of them each word is. White space belongs to the word behind it."""
        ids = self._rows([text])[0]
        if self._offsets is None:
            self._offsets = hf.Tokenizer.from_str(self.tokenizer.to_json())
            self._offsets.encode_special_tokens = True
            self._offsets.no_truncation()
            self._offsets.no_padding()
        offsets = self._offsets.encode(text, add_special_tokens=False).offsets
        matches = list(_WORD.finditer(text))
        ends = [match.end() for match in matches]
        owners = [bisect_right(ends, start) for start, _ in offsets]
        spans: list[WordSpan] = []
        for number, match in enumerate(matches):
            begin, end = bisect_right(owners, number - 1), bisect_right(owners, number)
            if begin < end:
                spans.append(WordSpan(match.group(), begin, end))
        return ids, spans

    def _checked(self, text: Any, name: str) -> str:
        if not isinstance(text, str):
            raise DataError(name, "it is no text", "Give a str")
        if not text.strip():
            raise DataError(name, "nothing stands in it", "Give a text with a word in it")
        if len(text) > MAX_CHARACTERS:
            raise DataError(name, f"it has {len(text):,} characters, more than {MAX_CHARACTERS:,}", "Give less of it")
        return text

    def _check_length(self, tokens: int, name: str) -> None:
        if self.limit is not None and tokens > self.limit:
            what = f"{tokens} tokens are more than the {self.limit} that the model can read at once"
            raise DataError(name, what, "Give less of it")
