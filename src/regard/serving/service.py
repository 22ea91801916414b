"""The engine of a server: what all facades ask, whatever shape their requests have."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from regard.serving.admission import Admission, deadline_of_visit, guess_tokens
from regard.serving.aligning import Aligning, Pair
from regard.serving.batched_tasks import (
    Classifying,
    Embedding,
    Filling,
    FindingNextWords,
    NextWords,
    Searching,
    Tagging,
    ToClassify,
    ToTranslate,
    Translating,
)
from regard.serving.batching import Kind, Order, Worker
from regard.serving.checking import check_count, check_texts, check_wishes, needs
from regard.serving.choosing import PLAIN, Choosing
from regard.serving.companions import NONE
from regard.serving.completions import Completed, Completion, Piece, TokenFacts, Wishes
from regard.serving.drafted_texts import Guessed, WritingDrafted, check_drafted
from regard.serving.limits import Limits
from regard.serving.metrics import Metrics
from regard.serving.refusals import Refused
from regard.serving.shelf import Served, Shelf
from regard.serving.writing import Scribe, Writing

if TYPE_CHECKING:
    from regard.serving.glossaries import Terms
    from regard.tasks.classification import Guess
    from regard.tasks.lines import Translation
    from regard.tasks.masked import FilledWord
    from regard.tasks.tagging import Tagged

W = TypeVar("W", Order, Writing)


class Service:
    """Served models, each with a thread of its own, behind one bounded queue. All methods are for one event loop.

    Whoever cancels a call gives up its work. `deadline` is a time of the event loop's clock (None: that of the visit, else
    `limits.answer_seconds` from now). Errors: `Refused` for what a server refuses, RegardError for what a model cannot do
    with a text.
    """

    def __init__(self, shelf: Shelf, limits: Limits | None = None, metrics: Metrics | None = None):
        self.shelf, self.limits, self.metrics = shelf, limits or Limits(), metrics or Metrics()
        self.admission = Admission(self.limits)
        self._workers: dict[str, Worker] = {}
        self._scribes: dict[str, Scribe] = {}
        self._translating, self._aligning, self._next_words = Translating(), Aligning(), FindingNextWords()
        self._drafted = WritingDrafted()
        shelf.on_load.append(self._loaded)
        self._add_gauges()

    def _loaded(self, served: Served) -> None:
        self.metrics.loads.add(served.name)
        self.admission.forget()

    def _add_gauges(self) -> None:
        gauge, admission = self.metrics.gauge, self.admission
        gauge("regard_requests_accepted", "Requests being worked on", "", lambda: {"": float(admission.requests)})
        gauge("regard_tokens_accepted", "Tokens of these, about", "", lambda: {"": float(admission.tokens)})
        gauge(
            "regard_requests_waiting",
            "Requests that wait for a batch or a place",
            "model",
            lambda: {name: float(one.waiting) for name, one in [*self._workers.items(), *self._scribes.items()]},
        )
        gauge(
            "regard_slots_used",
            "Completions being written",
            "model",
            lambda: {name: float(one.slots) for name, one in self._scribes.items()},
        )
        gauge("regard_models_loaded", "Models in memory", "", lambda: {"": float(len(self.shelf.loaded))})
        gauge("regard_models", "Models on the shelf", "", lambda: {"": float(len(self.shelf))})

    @property
    def ready(self) -> bool:
        """False while it is being stopped."""
        return not self.admission.closed

    async def start(self) -> None:
        """Lets requests in. Models are loaded when they are first asked for: see `load`."""
        self.admission.closed = False

    async def load(self, served: Served) -> None:
        """Loads a model before anybody asks for it."""
        await asyncio.to_thread(served.load)

    def visit(self) -> contextlib.AbstractContextManager[None]:
        """All that one client's request asks for: it has one deadline, and is drained as a whole."""
        return self.admission.visit(self.limits.answer_seconds)

    def check_room(self) -> None:
        """Refuses (503) a request that there is no place for, before anything is read of it."""
        try:
            self.admission.check(0, self.limits.answer_seconds)
        except Refused as error:
            self.metrics.refusals.add(error.kind)
            raise

    async def drain(self, seconds: float | None = None) -> bool:
        """Refuses what comes from now on, and waits until all that was accepted is answered, at most so many seconds.

        True: all of it was.
        """
        self.admission.closed = True
        try:
            async with asyncio.timeout(self.limits.drain_seconds if seconds is None else seconds):
                await self.admission.idle()
        except TimeoutError:
            return False
        return True

    def close(self, seconds: float | None = None) -> bool:
        """Ends the threads, after what they compute at the moment. False: one did not end within so many seconds."""
        self.admission.closed = True
        ended = [one.end(seconds) for one in [*self._workers.values(), *self._scribes.values()]]
        return all(ended)

    # --- what can be asked for

    async def translate(
        self,
        served: Served,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        alternatives: int = 0,
        terms: Terms | None = None,
        deadline: float | None = None,
    ) -> list[list[str]]:
        """Translations of whole texts: of each the best, and up to `alternatives` others, the better first; with `terms`."""
        found = await self.translations(
            served, texts, beam=beam, alternatives=alternatives, terms=terms, deadline=deadline
        )
        return [[one.text for one in many] for many in found]

    async def translations(
        self,
        served: Served,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        alternatives: int = 0,
        attention: bool = False,
        terms: Terms | None = None,
        choosing: Choosing = PLAIN,
        prefix: str = "",
        deadline: float | None = None,
    ) -> list[list[Translation]]:
        """The same with tokens, scores and, if asked for, attention weights (which torch works out, more slowly).

        `choosing` is what else is wanted; `prefix` is how the translation of a single text must begin.
        """
        needs(served, "translation")
        check_texts(texts, self.limits)
        check_texts([prefix], self.limits, "prefix")
        check_count("beam", beam, 1, self.limits.beam)
        check_count("alternatives", alternatives, 0, self.limits.most_alternatives)
        choosing = choosing.check(served, beam, alternatives, terms, self.limits)
        if prefix and len(texts) != 1:
            raise Refused(400, "`prefix`: it is for one text", "Send one text at a time", field="prefix")
        choosing = dataclasses.replace(choosing, prefixed=bool(prefix))
        beside = served.beside if choosing.rerank or choosing.draft else NONE
        key = Searching(beam, alternatives, attention, terms, choosing, beside)
        tokens = choosing.cost(self.limits) * guess_tokens(texts)
        wish = ToTranslate(list(texts), prefix)
        found = await self._batched(served, self._translating, key, wish, texts, deadline, tokens)
        self.metrics.noted.add(served.name, by=sum(bool(many[0].note) for many in found))
        return found

    async def next_words(
        self,
        served: Served,
        text: str,
        prefix: str,
        count: int,
        *,
        beam: int | None = None,
        deadline: float | None = None,
    ) -> list[Translation]:
        """The likeliest words after a prefix, each with the best translation that goes on so, the likeliest first."""
        needs(served, "translation")
        check_texts([text, prefix], self.limits)
        check_count("beam", beam, 1, self.limits.beam)
        check_count("next_words", count, 1, max(1, self.limits.alternatives))
        wish = NextWords(text, prefix, count)
        tokens = count * guess_tokens([text, prefix])
        return await self._batched(served, self._next_words, beam, wish, [text], deadline, tokens)

    async def align(
        self, served: Served, pairs: Sequence[Pair], *, deadline: float | None = None
    ) -> list[list[int | None]]:
        """For each pair of a sentence and its translation: of each unit of the translation, the unit of the sentence."""
        needs(served, "translation")
        texts = [text for pair in pairs for text in pair]
        return await self._batched(served, self._aligning, None, list(pairs), texts, deadline)

    async def classify(
        self,
        served: Served,
        texts: Sequence[str],
        second: Sequence[str] | None = None,
        *,
        top: int = 1,
        deadline: float | None = None,
    ) -> list[list[Guess]]:
        """The `top` likeliest labels of each text, the likeliest first. Some classifiers read two texts at once."""
        needs(served, "classification")
        check_texts(texts, self.limits)
        check_texts(second or (), self.limits)
        check_count("top", top, 1, self.limits.top)
        wish = ToClassify(list(texts), None if second is None else list(second), top)
        return await self._batched(served, Classifying(), None, wish, [*texts, *(second or ())], deadline)

    async def tag(self, served: Served, texts: Sequence[str], *, deadline: float | None = None) -> list[list[Tagged]]:
        """The words of each text with their likeliest tags."""
        needs(served, "tagging")
        check_texts(texts, self.limits)
        return await self._batched(served, Tagging(), None, list(texts), texts, deadline)

    async def fill(
        self, served: Served, texts: Sequence[str], *, top: int = 5, deadline: float | None = None
    ) -> list[list[list[FilledWord]]]:
        """For each mask of each text, the `top` likeliest words."""
        needs(served, "masked")
        check_texts(texts, self.limits)
        check_count("top", top, 1, self.limits.top)
        return await self._batched(served, Filling(), top, list(texts), texts, deadline)

    async def embed(self, served: Served, texts: Sequence[str], *, deadline: float | None = None) -> list[list[float]]:
        """One vector for each text, of a masked model or of word vectors (the mean of those of its words)."""
        needs(served, "masked", "vectors")
        check_texts(texts, self.limits)
        return await self._batched(served, Embedding(), None, list(texts), texts, deadline)

    async def complete(
        self, served: Served, prompt: str | Sequence[int], wishes: Wishes, *, deadline: float | None = None
    ) -> Completed:
        """Texts that go on from a prompt (a text, or tokens)."""
        needs(served, "language")
        check_wishes(prompt, wishes, self.limits)
        if wishes.draft:
            check_drafted(served, wishes)
            wish = Guessed(prompt, wishes)
            return await self._batched(
                served, self._drafted, served.beside, wish, (), deadline, _tokens(prompt, wishes)
            )
        with self._accepted(_tokens(prompt, wishes), deadline) as end:
            writing = Writing(prompt, wishes, streams=False)
            self._scribe(served).submit(writing)
            return await self._answer(served, writing, end)

    def stream(
        self, served: Served, prompt: str | Sequence[int], wishes: Wishes, *, deadline: float | None = None
    ) -> AsyncGenerator[Piece]:
        """The same in pieces, as tokens come. Closing the iterator gives the work up.

        Bounds are looked at now; whether there is room, and what the model says to the prompt, shows with the first piece.
        """
        needs(served, "language")
        check_wishes(prompt, wishes, self.limits)
        if wishes.draft:
            raise Refused(
                400, "`draft`: a text that is guessed is not streamed", "Leave one of the two out", field="draft"
            )
        if (wishes.best_of or 1) > wishes.n:
            what = "the best of several texts is known only when all of them are written"
            raise Refused(400, what, "Leave best_of out, or do not stream", field="best_of")
        return self._stream(served, prompt, wishes, deadline)

    async def _stream(
        self, served: Served, prompt: str | Sequence[int], wishes: Wishes, deadline: float | None
    ) -> AsyncGenerator[Piece]:
        with self._accepted(_tokens(prompt, wishes), deadline) as end:
            writing = Writing(prompt, wishes, streams=True)
            self._scribe(served).submit(writing)
            try:
                while True:
                    async with asyncio.timeout_at(end):  # not while whoever asked does something else
                        piece = await writing.pieces.get()
                    if piece is None:
                        break
                    yield piece
                writing.answer.result()  # raises what went wrong
            except TimeoutError:
                raise self._too_late() from None
            finally:
                self._give_up(served, writing)

    async def count_tokens(self, served: Served, texts: Sequence[str]) -> list[int]:
        """How many tokens each text is, for answers that say so. Loads the model."""
        check_texts(texts, self.limits)

        def count() -> list[int]:
            tokenizers = getattr(served.load(), "tokenizers", None)
            if tokenizers is None:  # word vectors have words
                return [len(text.split()) for text in texts]
            return [len(ids) for ids in tokenizers.source.encode(list(texts))]

        return await asyncio.to_thread(count)

    # --- how it is done

    async def _batched(
        self,
        served: Served,
        kind: Kind,
        key: Hashable,
        wish: Any,
        texts: Sequence[str],
        deadline: float | None,
        tokens: int | None = None,
    ) -> Any:
        tokens = guess_tokens(texts) if tokens is None else tokens
        with self._accepted(tokens, deadline) as end:
            order = Order(kind, key, wish, tokens)
            self._worker(served).submit(order)
            return await self._answer(served, order, end)

    async def _answer(self, served: Served, work: W, end: float) -> Any:
        try:
            async with asyncio.timeout_at(end):
                return await work.answer
        except TimeoutError:
            raise self._too_late() from None
        finally:
            self._give_up(served, work)

    def _give_up(self, served: Served, work: Order | Writing) -> None:
        """Where it is not answered: whoever works on it need not go on."""
        if not work.answer.done() or work.answer.cancelled():
            self.metrics.given_up.add(served.name)
        elif not work.answer.cancelled():
            work.answer.exception()  # looked at, so that nothing is said about it later
        work.given_up = True

    @contextlib.contextmanager
    def _accepted(self, tokens: int, deadline: float | None) -> Iterator[float]:
        """A place in the queue until the answer is there; gives the time at which it must be."""
        now = asyncio.get_running_loop().time()
        deadline = deadline_of_visit() if deadline is None else deadline
        end = now + self.limits.answer_seconds if deadline is None else deadline
        try:
            with self.admission.admitted(tokens, end - now):
                yield end
        except Refused as error:
            self.metrics.refusals.add(error.kind)
            raise

    def _too_late(self) -> Refused:
        what = "the answer was not ready in time"
        wait = max(1.0, self.admission.wait(self.admission.tokens))
        return Refused(503, what, "Send less at once, or try again later", kind="deadline", retry_after=wait)

    def _worker(self, served: Served) -> Worker:
        return self._workers.setdefault(served.name, Worker(served, self.limits, self.metrics))

    def _scribe(self, served: Served) -> Scribe:
        return self._scribes.setdefault(served.name, Scribe(served, self.limits, self.metrics))


def _tokens(prompt: str | Sequence[int], wishes: Wishes) -> int:
    read = guess_tokens([prompt]) if isinstance(prompt, str) else len(prompt)
    return read + max(wishes.n, wishes.best_of or 1) * wishes.max_tokens


__all__ = ["Completed", "Completion", "Piece", "Service", "TokenFacts", "Wishes"]
