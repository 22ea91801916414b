"""Language models: text that goes on, the next words, and how probable a text is."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast, overload

import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError, ModelError
from regard.core.number_formats import Asked
from regard.core.types import EOS
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.models.base import LanguageModel, Writer
from regard.search.config import SearchConfig
from regard.search.hypothesis import Hypothesis
from regard.search.search import search as search_texts
from regard.search.sliding import Passage, slides, stream_on, write_on
from regard.search.speculative import Tally, speculate
from regard.search.text_scores import no_source
from regard.tasks.folder import load_model
from regard.tasks.line_batches import batches
from regard.tasks.lower_numbers import in_numbers
from regard.tasks.next_words import NextWord, next_tokens, next_words
from regard.tasks.pair_score import PairScore
from regard.tasks.prompt_reading import PromptReader
from regard.tasks.text_pieces import Pieces, text_after
from regard.tasks.text_score import TextScore
from regard.tasks.text_scoring import OtherModel, perplexity_of, score_texts
from regard.tasks.text_settings import Method, text_settings

USUAL_CONTEXT = 512  # of a window, where neither the model nor its run says one


@dataclasses.dataclass(frozen=True)
class Generation:
    """One text that goes on from a prompt.

    Log-probabilities are given all before or, beyond the model's context, what its window shows (search/sliding.py).
    """

    text: str  # what comes after the prompt
    log_prob: float  # of what was written and, if finished, of the end
    tokens: list[str]
    token_log_probs: list[float]  # one per token, and one for the end if finished
    finished: bool  # False: cut at the maximum length

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class TextModel:
    """A language model with its tokenizer and search settings. `regard.load(folder)` makes one."""

    def __init__(
        self,
        model: Writer,
        tokenizers: TokenizerPair,
        search: SearchConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        config: dict[str, Any] | None = None,
        folder: Path | None = None,
    ):
        if "continues" not in model.capabilities:
            raise ModelError(type(model).__name__, "this model is no language model", "Use one, such as gpt or lstmlm")
        self.model: LanguageModel = cast(LanguageModel, model.to(device).eval())
        self.tokenizers = tokenizers
        self.search = search or SearchConfig()
        self.device = torch.device(device)
        self.config, self.folder = config or {}, folder
        self.draft: Writer | None = None  # guesses what the model writes
        self.ahead = 0
        self.tally = Tally()

    def drafted(self, draft: TextModel, ahead: int = 2) -> TextModel:
        """The same model, which writes the same texts sooner: a small one guesses (see search/speculative.py). No beam."""
        if draft.tokenizer.fingerprint != self.tokenizer.fingerprint:
            what = "its tokenizer is another than the model's"
            raise ModelError("draft", what, "Train it with the model's (tokenizer.folder=RUN)")
        other = copy.copy(self)
        other.draft, other.ahead, other.tally = cast(Writer, draft.model.to(self.device)), ahead, Tally()
        return other

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto", compute: Asked = "auto") -> TextModel:
        """The model of a run folder. `compute`, in which numbers: float32 (auto), bfloat16, or on a CPU int8."""
        folder = Path(folder)
        chosen = choose_device(device)
        model, tokenizers, config = load_model(folder)
        model = in_numbers(model, chosen, compute)
        settings = configuration.build(SearchConfig, config.get("search", {}), "search")
        return cls(model, tokenizers, settings, device=chosen, config=config, folder=folder)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.target

    @property
    def context(self) -> int:
        """Tokens of a window in which the model reads running text: its limit, or what it was trained with, if that is less."""
        train = self.config.get("train")
        trained = train.get("window") if isinstance(train, dict) else None
        known = (self.model.limits.target, getattr(getattr(self.model, "config", None), "context", None), trained)
        return min([value for value in known if isinstance(value, int) and value > 0], default=USUAL_CONTEXT)

    @functools.cached_property
    def prompts(self) -> PromptReader:
        """Makes tokens of prompts, and says what of them the model does not know."""
        return PromptReader(self.tokenizer, self.config)

    def settings(
        self,
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
    ) -> SearchConfig:
        """The settings of search for these wishes; what is not given is the model's own.

        Without a method, text is drawn at random, or searched for if a beam is given. Text may repeat itself as it likes
        (`max_repeat` is 0): a guard against loops would forbid legal text such as a row of dots.
        """
        return text_settings(
            self.search, samples=samples, method=method, max_tokens=max_tokens, temperature=temperature, top_k=top_k,
            top_p=top_p, min_p=min_p, seed=seed, beam=beam,
        )  # fmt: skip

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
        """Text that follows a prompt: one, or a list where more than one sample is asked for. See `settings`.

        An empty prompt is the beginning of a text; so is one of white space alone, unless the tokenizer keeps white space.
        The same prompt, settings and seed give the same text. Where the model's context is full before `max_tokens` are
        written, the text goes on from the context's last half; only a beam search stops there, which is said beforehand.
        """
        config = self.settings(
            samples=samples, method=method, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p,
            min_p=min_p, seed=seed, beam=beam,
        )  # fmt: skip
        self.check_room(prompt, config, max_tokens)
        texts = [found.text for found in self.generations(prompt, search=config)]
        return texts[0] if samples == 1 else texts

    @overload
    def generations(self, prompts: str, *, search: SearchConfig | None = None) -> list[Generation]: ...  # pyright: ignore[reportOverlappingOverload]: a str is a Sequence[str] too
    @overload
    def generations(self, prompts: Sequence[str], *, search: SearchConfig | None = None) -> list[list[Generation]]: ...
    def generations(
        self, prompts: str | Sequence[str], *, search: SearchConfig | None = None
    ) -> list[Generation] | list[list[Generation]]:
        """Texts that follow a prompt, or each of several, with tokens and log-probabilities. `search`: see `settings`.

        What is written after a prompt does not depend on the others.
        """
        config = search or self.settings()
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        self.model.eval()
        passages = write_on(self._find, [self.prompts.read(text) for text in texts], config, self.model.limits.target)
        found = [[self._generation(passage) for passage in many] for many in passages]
        return found[0] if isinstance(prompts, str) else found

    def passage(self, prompt: Sequence[int], search: SearchConfig) -> Passage:
        """What follows tokens, as tokens: one text, or the best of a beam."""
        self.model.eval()
        return write_on(self._find, [list(prompt)], search, self.model.limits.target)[0][0]

    def _find(self, prompts: list[list[int]], config: SearchConfig) -> list[list[Hypothesis]]:
        """What follows each prompt within the model's context."""
        if self.draft is not None:
            return [[self._speculated(prompt, config)] for prompt in prompts]
        found: list[list[Hypothesis]] = [[] for _ in prompts]
        budget = max(1, (1 << (12 if self.device.type == "cpu" else 17)) // config.hypotheses)
        scores = 1 << (25 if self.device.type == "cpu" else 28)
        most_rows = max(1, scores // (config.hypotheses * self.model.output.vocabulary))
        for rows in batches([len(tokens) + min(config.max_length, 256) for tokens in prompts], budget, most_rows):
            source = no_source(len(rows), self.device)
            results = search_texts(self.model, source, config, [prompts[row] for row in rows])
            for row, many in zip(rows, results, strict=True):
                found[row] = many
        return found

    def _speculated(self, prompt: list[int], config: SearchConfig) -> Hypothesis:
        assert self.draft is not None
        source = no_source(1, self.device)
        found = speculate(cast(Writer, self.model), self.draft, source, config, prompt, self.ahead)
        self.tally.add(found)
        return found.hypothesis

    def _generation(self, passage: Passage) -> Generation:
        text = text_after(self.tokenizer, passage.prompt, passage.tokens)
        pieces = self.tokenizer.pieces(passage.tokens)
        return Generation(text, math.fsum(passage.log_probs), pieces, passage.log_probs, passage.finished)

    def stream(
        self,
        prompt: str = "",
        *,
        method: Method | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[str]:
        """What `generate` gives for one sample, or greedily, in pieces of text as the tokens come."""
        if method == "beam":
            raise ConfigError(
                "method", "a beam search knows its text only at the end", "Use greedy or sample, or generate()"
            )
        config = self.settings(
            method=method,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
        )
        return self.pieces(prompt, search=config)

    def pieces(self, prompt: str, *, search: SearchConfig) -> Iterator[str]:
        """The same with whole settings: those of one sample, or of a beam of one."""
        return self._pieces(self.prompts.read(prompt), search)  # what is wrong with the prompt is said now

    def _pieces(self, prompt: list[int], config: SearchConfig) -> Iterator[str]:
        pieces = Pieces(self.tokenizer, prompt)
        self.model.eval()
        limit = self.model.limits.target
        for written in stream_on(self.model, no_source(1, self.device), config, prompt, limit):
            if written.token != EOS and (text := pieces.add(written.token)):
                yield text
        if text := pieces.end():
            yield text

    def next_words(self, prompt: str = "", top: int = 10, *, tokens: bool = False) -> list[NextWord]:
        """The most probable next words with their probabilities; with `tokens`, the next tokens, which may be parts of words.

        Rows unpack as (text, probability, kind); see `NextWord`. A word's text has the white space before it, if there is any:
        without it, the word goes on where the prompt stops. The end of the text is shown as `</s>`, kind "end".
        """
        self.model.eval()
        find = next_tokens if tokens else next_words
        return find(self.model, self.tokenizer, self.prompts.read(prompt), top, self.device)

    def check_room(self, prompt: str, search: SearchConfig, max_tokens: int | None) -> None:
        """Warns where fewer tokens can follow a prompt than are asked for: in a beam search, which stops at the context."""
        limit = self.model.limits.target
        if max_tokens is None or limit is None or slides(search):
            return
        room = limit - 1 - len(self.tokenizer.encode([prompt])[0])
        if 0 < room < max_tokens:
            warnings.warn(
                f"At most {room} tokens are written after this prompt, not {max_tokens}: the model's context is {limit} tokens, "
                "and a beam search ends there.",
                stacklevel=3,
            )

    def score(self, texts: Sequence[str], *, batch_tokens: int = 4096) -> list[PairScore]:
        """How probable the model finds each text by itself, from its beginning to its end: of every token, the end last.

        A text longer than the model's context is read in windows, as by `perplexity`.
        """
        return score_texts(self, texts, batch_tokens)

    def perplexity(
        self,
        documents: Iterable[str],
        *,
        context: int = 0,
        stride: int = 0,
        trigram: OtherModel | None = None,
        weight: float = 0.5,
        progress: Callable[[int, int], None] | None = None,
    ) -> TextScore:
        """How probable documents are, read as one text, as in training: each is followed by EOS, which is read as BOS.

        A model that carries its state in training (rnnlm, lstmlm, nplm) reads it from end to end. Any other reads windows of
        `context` tokens (0: its own), each `stride` after the one before (0: half the context); of each window only what the
        one before has not scored counts, so that every token is scored once, with at least `context - stride` tokens before it.
        With `trigram`, P = weight P(model) + (1 - weight) P(trigram). `progress` hears how many of all tokens are done.
        See `TextScore` for what counts as a word and as a byte.
        """
        return perplexity_of(
            self, documents, context=context, stride=stride, trigram=trigram, weight=weight, progress=progress
        )
