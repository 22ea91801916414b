"""Text with ONNX graphs, without torch: language models that go on with a prompt, and models that write from a label."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import DataError
from regard.core.passages import Passage, write_on
from regard.core.search_config import SearchConfig
from regard.core.specials import EOS
from regard.onnx.folder import Opened
from regard.onnx.hypothesis import Hypothesis
from regard.onnx.searching import forced_scores, search
from regard.onnx.writing import Writer
from regard.tasks.line_batches import batches
from regard.tasks.text_pieces import text_after
from regard.tasks.text_settings import Method, text_settings

MAX_CHARACTERS = 1_000_000  # of a prompt
BATCH_TOKENS = 4096
STEP_SCORES = 1 << 25


class Generation(NamedTuple):
    """One text that goes on from a prompt, or from a label."""

    text: str  # what comes after the prompt
    log_prob: float
    tokens: list[str]
    token_log_probs: list[float]  # one per token, and one for the end if finished
    finished: bool  # False: cut at the maximum length


class _Texts:
    def __init__(self, opened: Opened, folder: Path):
        self.manifest, self.tokenizers, self.search = opened.manifest, opened.tokenizers, opened.search
        self.writer, self.folder = Writer(opened.manifest, opened.sessions), folder


class OnnxTextModel(_Texts):
    """A language model in onnxruntime. `regard.onnx.load(folder)` makes one. The same prompt, settings and seed give the text that
    `regard.load` gives, up to rounding."""

    @property
    def tokenizer(self) -> Any:
        return self.tokenizers.target

    def generate(
        self,
        prompt: str = "",
        *,
        samples: int = 1,
        method: Method | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        beam: int | None = None,
    ) -> str | list[str]:
        """Text that follows a prompt: one, or a list where more than one sample is asked for.

        Without a method, text is drawn at random, or searched for if a beam is given.
        """
        settings = text_settings(
            self.search, samples=samples, method=method, max_tokens=max_tokens, temperature=temperature, top_k=top_k,
            top_p=top_p, min_p=min_p, seed=seed, beam=beam,
        )  # fmt: skip
        texts = [found.text for found in self.generations([prompt], search=settings)[0]]
        return texts[0] if samples == 1 else texts

    def generations(self, prompts: Sequence[str], *, search: SearchConfig | None = None) -> list[list[Generation]]:
        """Texts that follow each prompt, with tokens and log-probabilities."""
        settings = search or text_settings(self.search)
        rows = self.tokenizer.encode([_checked(prompt) for prompt in prompts])
        found = write_on(self.find, rows, settings, self.writer.target_limit)
        return [[self._generation(passage) for passage in many] for many in found]

    def find(self, prompts: Sequence[list[int]], settings: SearchConfig) -> list[list[Hypothesis]]:
        """What follows each prompt (as tokens) within the model's context."""
        found: list[list[Hypothesis]] = [[] for _ in prompts]
        budget = max(1, BATCH_TOKENS // settings.hypotheses)
        most = max(1, STEP_SCORES // (settings.hypotheses * self.writer.vocabulary))
        for rows in batches([len(tokens) + min(settings.max_length, 256) for tokens in prompts], budget, most):
            results = search(self.writer, [[EOS]] * len(rows), settings, [prompts[row] for row in rows])
            for row, many in zip(rows, results, strict=True):
                found[row] = many
        return found

    def _generation(self, passage: Passage) -> Generation:
        text = text_after(self.tokenizer, passage.prompt, passage.tokens)
        pieces = self.tokenizer.pieces(passage.tokens)
        return Generation(text, math.fsum(passage.log_probs), pieces, passage.log_probs, passage.finished)

    def score(self, texts: Sequence[str]) -> list[list[float]]:
        """The log-probability of every token of each text, and of its end."""
        rows: Iterable[list[int]] = self.tokenizer.encode([_checked(text) for text in texts])
        limit, found = self.writer.target_limit, []
        for number, row in enumerate(rows, start=1):
            if limit is not None and len(row) + 1 > limit:
                what = f"{len(row)} tokens are more than the {limit - 1} that the model can read"
                raise DataError(f"text {number}", what, "Give less of it")
            scores = forced_scores(self.writer, [[EOS]], [row])[0]
            found.append([float(one[token]) for one, token in zip(scores, [*row, EOS], strict=True)])
        return found


class OnnxComposer(_Texts):
    """A model that writes texts from labels, in onnxruntime."""

    def __init__(self, opened: Opened, folder: Path):
        super().__init__(opened, folder)
        self.labels = opened.manifest.labels

    def write(
        self,
        label: str,
        samples: int = 1,
        *,
        method: Method | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        beam: int | None = None,
    ) -> list[Generation]:
        """Texts for a label: drawn at random, unless a method or a beam says otherwise. A label that is not known is an error."""
        settings = text_settings(
            self.search, samples=samples, method=method, max_tokens=max_tokens, temperature=temperature, top_k=top_k,
            top_p=top_p, min_p=min_p, seed=seed, beam=beam,
        )  # fmt: skip
        if label not in self.labels:
            shown = ", ".join(map(repr, self.labels[:10])) + (", ..." if len(self.labels) > 10 else "")
            what = f"the model was not trained with it; it knows {shown}"
            raise DataError(f"label {label!r:.60}", what, "Give one of these")
        # how long a text is has nothing to do with how long its label is
        settings = dataclasses.replace(settings, max_ratio=0.0, max_extra=1_000_000)
        source = [*self.tokenizers.source.encode([label])[0], EOS]
        found = search(self.writer, [source], settings)[0]
        target = self.tokenizers.target
        texts = target.decode([one.tokens for one in found])
        return [
            Generation(text, one.log_prob, target.pieces(one.tokens), one.token_log_probs, one.finished)
            for text, one in zip(texts, found, strict=True)
        ]


def _checked(text: Any) -> str:
    if not isinstance(text, str):
        raise DataError("the text", "it is no text", "Give a str")
    if len(text) > MAX_CHARACTERS:
        raise DataError("the text", f"it has {len(text):,} characters, more than {MAX_CHARACTERS:,}", "Give less of it")
    return text
