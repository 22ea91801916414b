"""Language models: text that goes on, the next words, and how probable a text is."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, overload

import numpy as np
import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.types import EOS, SPECIALS, UNK
from regard.data.token_stream import TokenStream
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.models.base import LanguageModel, Writer
from regard.search.config import SearchConfig
from regard.search.forcing import score_pairs
from regard.search.hypothesis import Hypothesis
from regard.search.search import search as search_texts
from regard.search.sliding import Passage, slides, stream_on, write_on
from regard.search.speculative import Tally, speculate
from regard.search.text_scores import mix, no_source, stream_scores
from regard.tasks.folder import load_model
from regard.tasks.next_words import NextWord, next_tokens, next_words
from regard.tasks.text_pieces import Pieces, text_after
from regard.tasks.text_settings import Method, text_settings
from regard.tasks.translation import PairScore, batches

MAX_PROMPT_CHARACTERS = 1_000_000
MOST_AT_ONCE = 2048  # tokens of a text that is scored in one piece; longer ones are read as a stream
USUAL_CONTEXT = 512  # of a window, where neither the model nor its run says one
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
UNKNOWN = SPECIALS[UNK]
WORDS = ("word", "space")  # kinds of tokenizers whose tokens are words
SHOWN = 8  # unknown words or characters that a warning names


class OtherModel(Protocol):
    """What a language model can be mixed with, such as `regard.evaluation.trigram.Trigram`."""

    def log_probs(self, tokens: Any) -> np.ndarray:
        """log P of each token of a stream (EOS ends a document)."""
        ...


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


@dataclasses.dataclass(frozen=True)
class TextScore:
    """How probable a text is.

    Words are what stands between white space, and one end per document (as Mikolov counts: 82,430 in the Penn Treebank's test
    text). Bytes are those of UTF-8, and one per document for its end. Perplexities per word and per byte compare models with
    different tokenizers, as long as `unknown` is 0 or the same: a text's unknown parts are all one and the same token, which is
    easier to write than they are. White space that a tokenizer does not keep is not predicted, but counted.
    """

    nll: float  # -log P of all tokens, natural logarithm
    tokens: int  # EOS of every document included
    words: int
    bytes: int
    documents: int
    unknown: int = 0  # tokens that stand for what the vocabulary lacks

    @property
    def perplexity(self) -> float:
        """Per token of the model's own tokenizer."""
        return _exp(self.nll / self.tokens)

    @property
    def word_perplexity(self) -> float:
        return _exp(self.nll / self.words)

    @property
    def byte_perplexity(self) -> float:
        return _exp(self.nll / self.bytes)

    @property
    def bits_per_byte(self) -> float:
        return self.nll / self.bytes / math.log(2)

    def to_plain(self) -> dict[str, Any]:
        names = ("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte")
        return {**dataclasses.asdict(self), **{name: getattr(self, name) for name in names}}


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


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

    def drafted(self, draft: TextModel, ahead: int = 4) -> TextModel:
        """The same model, which writes the same texts sooner: a small one guesses (see search/speculative.py). No beam."""
        if draft.tokenizer.fingerprint != self.tokenizer.fingerprint:
            what = "its tokenizer is another than the model's"
            raise ModelError("draft", what, "Train it with the model's (tokenizer.folder=RUN)")
        other = copy.copy(self)
        other.draft, other.ahead, other.tally = cast(Writer, draft.model.to(self.device)), ahead, Tally()
        return other

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> TextModel:
        """The model of a run folder."""
        folder = Path(folder)
        chosen = choose_device(device)
        model, tokenizers, config = load_model(folder)
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

    # --- writing

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
        passages = write_on(self._find, [self._read(text) for text in texts], config, self.model.limits.target)
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
        return self._pieces(self._read(prompt), search)  # what is wrong with the prompt is said now

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
        return find(self.model, self.tokenizer, self._read(prompt), top, self.device)

    # --- reading

    @functools.cached_property
    def _unseen(self) -> frozenset[int]:
        """Tokens with a byte or character that the training text did not have; of words, those that it did not have.

        A run's config.json lists tokens that were never read. Some of them are only parts of words that were, and are left
        out here. Imported models have no such list.
        """
        listed = self.config.get("unseen_tokens")
        unread = set(listed if isinstance(listed, list) else ())
        kind = self.config.get("tokenizer")
        if not unread or (isinstance(kind, dict) and kind.get("kind") in WORDS):
            return frozenset(unread)
        pieces = self.tokenizer.pieces(range(self.tokenizer.size))
        seen = {letter for i, piece in enumerate(pieces) if i > UNK and i not in unread for letter in piece}
        return frozenset(i for i, piece in enumerate(pieces) if i in unread and not seen.issuperset(piece))

    def _read(self, prompt: str) -> list[int]:
        """The tokens of a prompt. Parts that are not in the vocabulary, or not in the training text, are named in a warning."""
        if not isinstance(prompt, str):
            raise DataError("prompt", "it is not a text", "Give a str")
        if len(prompt) > MAX_PROMPT_CHARACTERS:
            what = f"it has {len(prompt):,} characters, more than {MAX_PROMPT_CHARACTERS:,}"
            raise DataError("prompt", what, "Give its end only")
        (ids,) = self.tokenizer.encode([prompt])
        if UNK not in ids and self._unseen.isdisjoint(ids):
            return ids
        unseen, known = self._trained_on(ids)
        unknown = self._unknown(prompt) if UNK in ids else []
        if not known and (unknown or unseen):
            what = f"all of it is unknown to the model ({_names([*unknown, *unseen])})"
            raise DataError("prompt", what, "Use words like those it was trained on")
        said = "The prompt has what the model has never seen"
        if unknown:
            warnings.warn(f"{said}, and reads as {UNKNOWN}: {_names(unknown)}.", stacklevel=3)
        if unseen:
            warnings.warn(f"{said}: {_names(unseen)}.", stacklevel=3)
        return ids

    def _trained_on(self, ids: list[int]) -> tuple[list[str], bool]:
        """Text whose tokens were never trained on, characters as wholes; and whether there is any other. UNK is neither."""
        pieces, found, known, strange = Pieces(self.tokenizer), dict[str, None](), False, False
        tokens = [i for i in ids if i != UNK]
        left = sum(i in self._unseen for i in tokens)
        for number, token in enumerate(tokens, start=1):
            strange, left = strange or token in self._unseen, left - (token in self._unseen)
            text = pieces.add(token) or (pieces.end() if number == len(tokens) else "")
            if text and strange:
                found[text.strip() or text] = None
                strange = False
            elif text.strip():
                known = True
            if known and (len(found) > SHOWN or not (left or strange)):
                break
        return list(found), known

    def _unknown(self, text: str) -> list[str]:
        """The words or characters that have no token of their own; not the word <unk>, where the tokenizer reads it as such."""
        found: dict[str, None] = {}
        meant = {UNKNOWN} if self.tokenizer.decode([[UNK]]) == [UNKNOWN] else set()
        for word in dict.fromkeys(text.split()):
            (ids,) = self.tokenizer.encode([word])
            if UNK not in ids or word in meant:
                continue
            single = dict.fromkeys(word)
            letters = [c for c, one in zip(single, self.tokenizer.encode(list(single)), strict=True) if UNK in one]
            found |= dict.fromkeys(letters if letters and (ids != [UNK] or len(word) == 1) else [word[:40]])
            if len(found) > SHOWN:
                break
        return list(found)

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
        if isinstance(texts, str):
            raise DataError("texts", "they are a single text", "Give a list of texts")
        ids = self.tokenizer.encode(list(texts))
        at_once = min(MOST_AT_ONCE, self.context)
        results: list[PairScore | None] = [None] * len(ids)
        self.model.eval()
        short = [row for row, tokens in enumerate(ids) if len(tokens) + 1 <= at_once]
        for group in batches([len(ids[row]) + 1 for row in short], batch_tokens):
            rows = [short[i] for i in group]
            scored = score_pairs(self.model, no_source(len(rows), self.device), [ids[row] for row in rows])
            for row, (total, each) in zip(rows, scored, strict=True):
                results[row] = PairScore(total, self.tokenizer.pieces(ids[row]), each)
        for row, tokens in enumerate(ids):
            if results[row] is None:
                text, stride = np.array([*tokens, EOS]), max(1, self.context // 2)
                parts = stream_scores(self.model, text, self.device, context=self.context, stride=stride)
                each = np.concatenate(list(parts)).tolist()
                results[row] = PairScore(math.fsum(each), self.tokenizer.pieces(tokens), each)
        return [result for result in results if result is not None]

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
        if isinstance(documents, str):
            raise DataError("documents", "they are a single text", "Give a list of documents")
        if not 0 <= weight <= 1:
            raise ConfigError("weight", f"{weight} is not from 0 (the trigram alone) to 1", "Give such a part")
        tokens, count = self._stream_of(documents)
        self.model.eval()
        other = None if trigram is None else np.asarray(trigram.log_probs(tokens), dtype=np.float64)
        total, done = [], 0
        for part in self._scores(tokens, context, stride):
            if other is not None:
                part = mix(part, other[done : done + len(part)], weight)
            total.append(float(part.sum()))
            done += len(part)
            if progress is not None:
                progress(done, len(tokens))
        return dataclasses.replace(count, nll=-math.fsum(total), tokens=done, unknown=int((tokens == UNK).sum()))

    def _scores(self, tokens: np.ndarray, context: int, stride: int) -> Iterator[np.ndarray]:
        if (context or stride) and self.model.carries:
            what = "this model carries its state through the whole text, and reads no windows"
            raise ConfigError("context" if context else "stride", what, "Leave context and stride out")
        limit = self.model.limits.target
        context = context or self.context
        stride = stride or max(1, context // 2)
        if context < 1 or (limit is not None and context > limit):
            raise ConfigError("context", f"{context} tokens are not from 1 to the model's {limit}", "Give fewer")
        if not 1 <= stride <= context:
            raise ConfigError("stride", f"{stride} is not from 1 to the context of {context}", "Give fewer")
        return stream_scores(self.model, tokens, self.device, context=context, stride=stride)

    def _stream_of(self, documents: Iterable[str]) -> tuple[np.ndarray, TextScore]:
        """The tokens of all documents, each followed by EOS; and what is counted of the text."""
        counts = [0, 0, 0]

        def counted() -> Iterator[str]:
            for text in documents:
                for i, more in enumerate((len(text.split()) + 1, len(text.encode()) + 1, 1)):
                    counts[i] += more
                yield text

        tokens = TokenStream.from_documents(counted(), self.tokenizer).tokens
        if not len(tokens):
            raise DataError("documents", "there are none", "Give at least one")
        words, size, count = counts
        return tokens, TextScore(0.0, 0, words, size, count)


def _names(parts: Sequence[str]) -> str:
    return ", ".join(map(repr, parts[:SHOWN])) + (", ..." if len(parts) > SHOWN else "")


__all__ = ["Generation", "NextWord", "TextModel", "TextScore"]
