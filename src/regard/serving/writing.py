"""Completions: the thread that writes texts together, and what becomes of their tokens.

Before each step, texts that wait take free places; after it, whoever asked for a stream is given what is certain.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from regard.core.errors import DataError, RegardError
from regard.core.search_config import SearchConfig
from regard.core.specials import EOS, UNK
from regard.serving.batching import explained
from regard.serving.completions import Completed, Completion, Piece, TokenFacts, Wishes
from regard.serving.cores import CORES
from regard.serving.drafts import Draft
from regard.serving.limits import Limits
from regard.serving.metrics import Metrics
from regard.serving.refusals import Refused
from regard.serving.shelf import Served
from regard.serving.threads import Crew, call_in
from regard.tasks.text_pieces import Pieces

if TYPE_CHECKING:
    from regard.data.tokenizers import Tokenizer
    from regard.serving.continuous import Company, PromptScores, Text, Wrote
    from regard.tasks.language_model import TextModel

LOG = logging.getLogger("regard.serving")
READ_AT_ONCE = 4096  # tokens of prompts that are read between two steps


class Writing:
    """One request for completions. `deliver` is called in its event loop with pieces, `answer` is set at the end."""

    def __init__(self, prompt: str | Sequence[int], wishes: Wishes, *, streams: bool):
        self.prompt, self.wishes, self.streams = prompt, wishes, streams
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Completed] = self.loop.create_future()
        self.pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self.given_up = False
        self.seed = secrets.randbits(63) if wishes.seed is None else wishes.seed
        self._config: SearchConfig | None = None
        self.ids: list[int] = []
        self.drafts: list[Draft] = []
        self.begun = 0  # drafts that are, or were, being written
        self.echo = ""
        self.echoed: list[TokenFacts] = []

    @property
    def count(self) -> int:
        return max(self.wishes.n, self.wishes.best_of or 0)

    def config(self, model: TextModel) -> SearchConfig:
        if self._config is None:
            self._config = settings_of(model, self.wishes, self.seed)
        return self._config

    def completed(self) -> Completed:
        """The answer, when all texts have ended: with `best_of`, those with the highest log-probability per token."""
        drafts = self.drafts
        if self.count > self.wishes.n:
            ranked = sorted(drafts, key=lambda draft: (-draft.log_prob / max(1, draft.count), draft.index))
            drafts = ranked[: self.wishes.n]
        choices = tuple(
            Completion(self.echo + one.text, one.finish or "length", (*self.echoed, *one.tokens), one.log_prob)
            for one in drafts
        )
        return Completed(choices, len(self.ids), sum(draft.count for draft in self.drafts))


class Scribe(Crew[Writing]):
    """The thread of one served language model."""

    def __init__(self, served: Served, limits: Limits, metrics: Metrics):
        super().__init__(served.name)
        self.served, self.limits, self.metrics = served, limits, metrics
        self._waiting: deque[Writing] = deque()
        self._under_way: dict[Text, tuple[Writing, Draft]] = {}
        self._company: Company | None = None
        self._model: TextModel | None = None

    @property
    def waiting(self) -> int:
        return len(self.inbox) + len(self._waiting)

    @property
    def slots(self) -> int:
        """Texts that are being written."""
        return len(self._under_way)

    def run(self) -> None:
        while True:
            with self.ready:
                while not (self.inbox or self._waiting or self._under_way or self.ended):
                    self._company = self._model = None  # the shelf decides whether it stays loaded
                    self.ready.wait()
                if self.ended:
                    return
                fresh = list(self.inbox)
                self.inbox.clear()
            try:
                self._turn(fresh)
            except Exception as error:
                self._fail(error, fresh)

    def _fail(self, error: Exception, fresh: Sequence[Writing]) -> None:
        """All that is under way fails; the thread goes on with nothing."""
        if not isinstance(error, RegardError | Refused):
            LOG.exception("%s: writing failed", self.served.name)
        told = dict.fromkeys([*fresh, *self._waiting, *(writing for writing, _ in self._under_way.values())])
        self._waiting.clear()
        self._under_way.clear()
        self._company = None
        for writing in told:
            self._refuse(writing, explained(error))

    def _turn(self, fresh: list[Writing]) -> None:
        """What came is read, places are filled, one token of each text is written."""
        for writing in fresh:
            if not writing.given_up:
                self._receive(writing)
        for text, (writing, _) in list(self._under_way.items()):
            if writing.given_up:
                self._release(text)
        if self._company is None:
            return
        with CORES.share(self._company):
            self._fill()
            company = self._company
            if company is None or not self._under_way:
                return
            wrote = company.step()
        self.metrics.batches.see(self.served.name, len(wrote))
        self.metrics.tokens_out.add(self.served.name, by=len(wrote))
        self._hand_out(wrote)

    def _receive(self, writing: Writing) -> None:
        """Reads a request: its prompt as tokens, checked."""
        try:
            model = self._load()
            company = self._company
            assert company is not None
            writing.ids = prompt_tokens(model.tokenizer, writing.prompt)
            company.check(writing.ids, writing.config(model))
            for index in range(writing.count):
                writing.drafts.append(Draft(model.tokenizer, writing.ids, writing.wishes, index))
            self.metrics.tokens_in.add(self.served.name, by=len(writing.ids))
            self._waiting.append(writing)
        except Exception as error:
            self._refuse(writing, explained(error))

    def _load(self) -> TextModel:
        model = self._model
        if model is not None and self._company is not None:
            return model
        from regard.serving.continuous import Company

        try:
            model = self._model = cast("TextModel", self.served.load())
        except Exception as error:
            LOG.error("%s cannot be loaded: %s", self.served.name, error)
            what = f"the model {self.served.name} cannot be loaded"
            raise Refused(503, what, "Tell whoever runs the server", kind="busy", retry_after=30) from None
        self._company = Company(model.model, model.settings(), model.device, self.limits.slots)
        return model

    def _fill(self) -> None:
        """Gives free places to the texts of those who wait, in the order in which they came."""
        read = 0
        while self._waiting and self._company is not None and self._company.free and read < READ_AT_ONCE:
            writing = self._waiting[0]
            if writing.given_up:
                self._waiting.popleft()
                continue
            read += len(writing.ids) + 1
            try:
                self._begin(writing, self._company, self._load())
            except Exception as error:
                self._waiting.popleft()
                self._refuse(writing, explained(error))
                continue
            if writing.begun == len(writing.drafts):
                self._waiting.popleft()

    def _begin(self, writing: Writing, company: Company, model: TextModel) -> None:
        from regard.serving.continuous import Text, read_prompt

        wishes, first = writing.wishes, not writing.begun
        wanted = wishes.logprobs if wishes.echo and first else None
        if wishes.max_tokens == 0:
            scores = None if wanted is None else read_prompt(company.model, writing.ids, company.device, wanted)[1]
            self._echo(writing, model, scores)
            writing.begun = len(writing.drafts)
            for draft in writing.drafts:
                draft.finish = "length"
            self._end_of(writing)
            return
        config = writing.config(model)
        some = writing.drafts[writing.begun :][: company.free]
        texts = [Text(writing.ids, config, draft.index, wishes.logprobs or 0) for draft in some]
        scores = company.enter(texts, wanted)
        if first:
            self._echo(writing, model, scores)
        writing.begun += len(some)
        for text, draft in zip(texts, some, strict=True):
            self._under_way[text] = (writing, draft)

    def _echo(self, writing: Writing, model: TextModel, scores: PromptScores | None) -> None:
        """The prompt before the text, if it is asked for."""
        if not writing.wishes.echo:
            return
        pieces, text = Pieces(model.tokenizer), ""
        given = writing.prompt if isinstance(writing.prompt, str) else None
        for number, token in enumerate(writing.ids):
            more = pieces.add(token) or (pieces.end() if number == len(writing.ids) - 1 else "")
            if scores is not None:
                draft = writing.drafts[0]
                shown = tuple((draft.show(writing.ids[:number], one), own) for one, own in scores.top[number])
                writing.echoed.append(TokenFacts(more, scores.log_probs[number], shown, len(text)))
            text += more
        writing.echo = text if given is None else given
        for draft in writing.drafts:
            draft.offset = len(writing.echo)
        if writing.streams:
            pieces_of = [
                Piece(d.index, writing.echo, tuple(writing.echoed), None, len(writing.ids)) for d in writing.drafts
            ]
            call_in(writing.loop, _put, writing, pieces_of)

    def _hand_out(self, wrote: Sequence[Wrote]) -> None:
        streamed: dict[asyncio.AbstractEventLoop, list[tuple[Writing, Piece]]] = {}
        ended: dict[Writing, None] = {}
        for one in wrote:
            writing, draft = self._under_way[one.text]
            if one.token is None:
                draft.end("length")
            else:
                before = [*one.text.prompt[-4:], *one.text.tokens[-5:]]
                before = before[:-1] if one.token != EOS else before
                draft.add(one.token, one.log_prob, one.top, before)
            if writing.streams and (piece := draft.piece(len(writing.ids))) is not None:
                streamed.setdefault(writing.loop, []).append((writing, piece))
            if draft.finish is not None:
                self._release(one.text)
                if all(each.finish is not None for each in writing.drafts):
                    ended[writing] = None
        for loop, pieces in streamed.items():
            call_in(loop, _put_all, pieces)
        for writing in ended:
            self._end_of(writing)

    def _release(self, text: Text) -> None:
        if self._company is not None:
            self._company.leave(text)
        self._under_way.pop(text, None)

    def _end_of(self, writing: Writing) -> None:
        if writing.streams and writing.wishes.max_tokens == 0:
            pieces = [piece for draft in writing.drafts if (piece := draft.piece(len(writing.ids))) is not None]
            call_in(writing.loop, _put, writing, pieces)
        call_in(writing.loop, _answer, writing, writing.completed())

    def _refuse(self, writing: Writing, error: BaseException) -> None:
        call_in(writing.loop, _refused, writing, error)


def settings_of(model: TextModel, wishes: Wishes, seed: int) -> SearchConfig:
    """The search for one text as it is wished for."""
    tokens = max(1, wishes.max_tokens)
    if wishes.temperature == 0:
        return model.settings(method="greedy", max_tokens=tokens)
    return model.settings(
        method="sample", max_tokens=tokens, temperature=wishes.temperature, top_k=wishes.top_k, top_p=wishes.top_p,
        min_p=wishes.min_p, seed=seed,
    )  # fmt: skip


def prompt_tokens(tokenizer: Tokenizer, prompt: str | Sequence[int]) -> list[int]:
    """The tokens of a prompt. One of which nothing is known to the model is an error; so are tokens that do not exist."""
    if not isinstance(prompt, str):
        if any(type(token) is not int or not 0 <= token < tokenizer.size for token in prompt):
            raise DataError("prompt", f"it has a token that is not from 0 to {tokenizer.size - 1}", "Mend it")
        return list(prompt)
    (ids,) = tokenizer.encode([prompt])
    if ids and all(token == UNK for token in ids):
        raise DataError("prompt", "all of it is unknown to the model", "Use words like those it was trained on")
    return ids


def _put(writing: Writing, pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        writing.pieces.put_nowait(piece)


def _put_all(pieces: Sequence[tuple[Writing, Piece]]) -> None:
    for writing, piece in pieces:
        writing.pieces.put_nowait(piece)


def _answer(writing: Writing, completed: Completed) -> None:
    if not writing.answer.done():
        writing.answer.set_result(completed)
    writing.pieces.put_nowait(None)


def _refused(writing: Writing, error: BaseException) -> None:
    if not writing.answer.done():
        writing.answer.set_exception(error)
    writing.pieces.put_nowait(None)


__all__ = ["Draft", "Scribe", "Writing", "prompt_tokens", "settings_of"]
