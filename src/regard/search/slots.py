"""Many searches in a batch of constant shape: sentences that are done leave, and waiting ones take their places.

The host never waits for a step. It looks at what was done some steps ago, from a copy that has arrived meanwhile, and so some
steps are taken for nothing; sentences that are done do not change by them.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from regard.core.errors import ModelError
from regard.core.types import pad_rows
from regard.search.config import SearchConfig
from regard.search.hypothesis import Hypothesis
from regard.search.looks import Arriving, Look, Told
from regard.search.recordings import Loan, Shape, borrow, rule
from regard.search.replay import CAPTURES, Replayed
from regard.search.step import Asked, Room, Step
from regard.search.terms import NO_TERMS, Letters, Term, TermSize

STEPS_PER_LOOK = 2
REFILL_SHARE = 8  # waiting sentences enter once this part of the places is free: reading sources one by one takes long
MOST_ROWS = 512
MOST_SCORES = 1 << 28  # of one step, over all hypotheses


class Job(NamedTuple):
    """One sentence to search for."""

    source: list[int]
    limit: int  # most tokens, EOS not counted
    forced: list[int]  # how the text must begin
    terms: tuple[Term, ...] = NO_TERMS  # what it must have


def fill_slots(
    model: Any,
    jobs: Sequence[Job],
    config: SearchConfig,
    device: torch.device,
    planned: bool = False,
    rows: int = 0,
    letters: Letters | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """What is found for each job, by its number, as it is done; `rows` at most at a time (0: as many as fit).

    To be asked for each result under `torch.inference_mode`.
    """
    if not jobs:
        return
    shape = _shape(model, jobs, config, device, planned, rows, letters is not None)
    with borrow(model, shape) as loan:
        if loan.replayed is None or shape.terms.phrases:
            room = Room(shape.tokens, shape.prefix, shape.terms)
            step = Step(model, config, device, room, planned, waits=False, letters=letters)
        else:
            step = loan.replayed.step.under(config)
        yield from _Slots(step, loan, shape, jobs).run()


class _Slots:
    """The places of a batch, and who is in them."""

    def __init__(self, step: Step, loan: Loan, shape: Shape, jobs: Sequence[Job]):
        self.step, self.shape, self.jobs = step, shape, jobs
        self.waiting = collections.deque(range(len(jobs)))
        self.job = np.full(shape.rows, -1)  # -1: free
        self.at, self.limit, self.forced = (np.zeros(shape.rows, np.int64) for _ in range(3))
        self.entered = np.zeros(shape.rows, np.int64)  # how many looks had been taken then
        self.looks = 0
        if loan.replayed is None:
            some, asked = self._next(whole=True)
            begun = step.begin(self._there(asked), fresh=some)
            loan.replayed = Replayed(step, begun, CAPTURES[step.device.type]())
            self.at[:some] = begun.read
        self.replayed = loan.replayed
        if len(self.waiting) == len(jobs):
            self._enter()

    def _enter(self, reads: bool = True) -> None:
        """Gives free places to the next jobs. `reads`: whether prompts may be read at once."""
        step, replayed = self.step, self.replayed
        whole = not (self.job >= 0).any()  # nobody is there: the other places, too, must be made such as are done
        places = np.flatnonzero(self.job < 0)
        some, asked = self._next(whole)
        brief = replayed.state.brief and not self.shape.planned
        if whole:
            read = step.shared(asked) if reads else 0
            replayed.restart(step.entry(asked, some, asked.source.tokens.device), read, brief)
            self.at[places[:some]] = read
            return
        begun = step.begin(self._there(asked), fresh=some, brief=brief)
        rows = torch.from_numpy(places[: len(asked.limits)]).to(step.device, non_blocking=True)
        replayed.put(rows, begun)
        self.at[places[:some]] = begun.read

    def _next(self, whole: bool) -> tuple[int, Asked]:
        """As many of the next jobs as there are free places; if `whole`, with rows that do not count for the other places."""
        places = np.flatnonzero(self.job < 0)[: len(self.waiting)]
        numbers = [self.waiting.popleft() for _ in places]
        some = [self.jobs[number] for number in numbers]
        self.job[places], self.entered[places] = numbers, self.looks
        self.limit[places] = [job.limit for job in some]
        self.forced[places] = [len(job.forced) for job in some]
        filled = [*some, *[some[0]] * (self.shape.rows - len(some))] if whole else some
        source = pad_rows([job.source for job in filled], self.shape.width)
        terms = [job.terms for job in filled] if self.shape.terms.phrases else []
        return len(some), Asked(source, [job.limit for job in filled], [job.forced for job in filled], terms)

    def _there(self, asked: Asked) -> Asked:
        return asked._replace(source=asked.source.to(self.step.device))

    def run(self) -> Iterator[tuple[int, list[Hypothesis]]]:
        looking: collections.deque[tuple[int, Look]] = collections.deque()
        fetched: collections.deque[tuple[list[int], Arriving | None, Any]] = collections.deque()
        while (self.job >= 0).any():
            stepped = self._advance()
            self.looks += 1
            looking.append((self.looks, self.replayed.look()))
            while looking and (len(looking) > 1 or not stepped):
                number, look = looking.popleft()
                told = look.get()
                here = (self.job >= 0) & (self.entered < number)  # who came later was not seen
                if not (told.fine.numpy() | ~here).all():
                    self._begin_again()
                    looking.clear()
                    break
                places = self._done(here, told)
                if len(places):
                    fetched.append((self.job[places].tolist(), *self._fetch(places, look)))
                    self.job[places] = -1
            free = int((self.job < 0).sum())
            enough = max(1, min(len(self.waiting), self.shape.rows // REFILL_SHARE))
            if self.waiting and free >= enough:
                self._enter()
            while fetched and (fetched[0][1] is None or fetched[0][1].here() or not (self.job >= 0).any()):
                numbers, coming, gone = fetched.popleft()
                gone = gone if coming is None else coming.get()
                yield from zip(numbers, self.step.method.collect(gone), strict=True)

    def _advance(self) -> bool:
        """Some steps, unless all sentences must be done."""
        for _ in range(STEPS_PER_LOOK):
            open_still = (self.job >= 0) & (self.at <= self.limit)
            if not open_still.any():
                return False
            span = _span(int(self.at[open_still].max()) + 1, self.shape.tokens)
            self.replayed.advance(span, bool((self.at < self.forced)[open_still].any()))
            self.at += 1
        return True

    def _done(self, here: np.ndarray, told: Told) -> np.ndarray:
        if (told.work.broken.numpy() & here).any():
            raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
        return np.flatnonzero(told.work.done.numpy() & here)

    def _fetch(self, places: np.ndarray, look: Look) -> tuple[Arriving | None, Any]:
        """What becomes of sentences that are done: on its way, or here."""
        if not look.whole:
            rows = torch.from_numpy(places).to(self.step.device, non_blocking=True)
            return Arriving(self.replayed.work.take(rows)), None
        work = look.told.work
        return None, work if len(places) == self.shape.rows else work.take(torch.from_numpy(places))

    def _begin_again(self) -> None:
        """Some prompt could not be read at once: all who are there begin anew, and theirs are read step by step."""
        self.waiting.extendleft(sorted(self.job[self.job >= 0].tolist(), reverse=True))
        self.job[:] = -1
        self._enter(reads=False)


def _shape(
    model: Any,
    jobs: Sequence[Job],
    config: SearchConfig,
    device: torch.device,
    planned: bool,
    rows: int,
    words: bool,
) -> Shape:
    """Rounded up, so that few shapes occur."""
    limits = model.limits
    width = _rounded(max(len(job.source) for job in jobs), 16)
    tokens = _rounded(max(job.limit for job in jobs) + 1, 32)
    width = width if limits.source is None else min(width, limits.source)
    tokens = tokens if limits.target is None else min(tokens, limits.target)
    most = min(rows or MOST_ROWS, max(1, MOST_SCORES // (config.hypotheses * model.output.vocabulary)))
    terms = TermSize(*(_rounded(number, 4) for number in TermSize.of([job.terms for job in jobs])))
    weight = next(iter(model.parameters()), None)
    autocast = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    return Shape(
        rows=min(most, _rows(min(len(jobs), most))),
        width=width,
        tokens=tokens,
        prefix=_rounded(max(len(job.forced) for job in jobs), 32),
        terms=terms,
        words=words and bool(terms.phrases),
        planned=planned,
        rule=rule(config, bool(terms.phrases)),
        numbers=(device, torch.float32 if weight is None else weight.dtype, autocast),
    )


def _rounded(number: int, multiple: int) -> int:
    """Up to a multiple; of large numbers, to a larger one."""
    while number > 8 * multiple:
        multiple *= 2
    return -(-number // multiple) * multiple


def _rows(number: int) -> int:
    """Up to a power of 2, or beyond 128 to a multiple of 64."""
    return 1 << (number - 1).bit_length() if number <= 128 else -(-number // 64) * 64


def _span(number: int, most: int) -> int:
    """How far caches are read: up to a multiple of 16, of large numbers to a larger one, and no further than they go."""
    return min(most, _rounded(number, 16))
