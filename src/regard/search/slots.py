"""Many searches in a batch of constant shape: sentences that are done leave, and waiting ones take their places.

The host never waits for a step. It looks at what was done some steps ago, from a copy that has arrived meanwhile, and so some
steps are taken for nothing; sentences that are done do not change by them. Texts are made of what has arrived while the next steps
are under way.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.core.errors import ModelError
from regard.search.config import SearchConfig
from regard.search.hypothesis import Hypothesis
from regard.search.jobs import Jobs
from regard.search.looks import Arriving, Look
from regard.search.pace import Pace
from regard.search.recordings import Loan, Shape, borrow, rule
from regard.search.replay import CAPTURES, Replayed
from regard.search.step import Asked, Room, Step
from regard.search.terms import Letters, TermSize

STEPS_PER_LOOK = 2
REFILL_SHARE = 8  # waiting sentences enter once this part of the places is free: reading sources one by one takes long
MOST_ROWS = 512
MOST_SCORES = 1 << 28  # of one step, over all hypotheses
MOST_FETCHED = 1 << 22  # bytes of a whole batch, which is fetched at once rather than some of its rows tensor by tensor
NEVER = 1 << 62

Found = list[tuple[int, list[Hypothesis]]]


def fill_slots(
    model: Any,
    jobs: Jobs,
    config: SearchConfig,
    device: torch.device,
    planned: bool = False,
    rows: int = 0,
    letters: Letters | None = None,
) -> Iterator[Found]:
    """What is found for each job, by its number, some at a time as they are done; `rows` in a batch at most (0: as many as fit).

    To be asked for each result under `torch.inference_mode`.
    """
    if not len(jobs.limits):
        return
    shape = _shape(model, jobs, config, device, planned, rows, letters is not None)
    with borrow(model, shape) as loan:
        if loan.replayed is None or shape.terms.phrases:
            room = Room(shape.tokens, shape.prefix, shape.terms)
            step = Step(model, config, device, room, planned, waits=False, letters=letters)
        else:
            step = loan.replayed.step.under(config)
        yield from _Slots(step, loan, shape, jobs.within(shape.width)).run()


class _Fetched(NamedTuple):
    """Sentences that are done, and what of them is here or on its way."""

    numbers: list[int]
    places: NDArray[np.int64] | None  # of these in what arrives; None: it is nothing else
    coming: Look | Arriving


class _Slots:
    """The places of a batch, and who is in them."""

    def __init__(self, step: Step, loan: Loan, shape: Shape, jobs: Jobs):
        self.step, self.shape, self.jobs = step, shape, jobs
        self.waiting = np.arange(len(jobs.limits))
        self.job = np.full(shape.rows, -1)  # -1: free
        self.there = 0  # how many are not
        self.begun, self.limit, self.forced = (np.zeros(shape.rows, np.int64) for _ in range(3))  # see Pace
        self.entered = np.full(shape.rows, NEVER)  # how many looks had been taken then
        self.steps = self.looks = 0
        self.pace: Pace | None = None  # None where somebody came or went
        self.group = max(1, shape.rows // REFILL_SHARE)
        self.fetched: collections.deque[_Fetched] = collections.deque()
        if loan.replayed is None:
            places, asked = self._next(shape.rows, whole=True)
            begun = step.begin(self._on_device(asked), fresh=len(places))
            loan.replayed = Replayed(step, begun, CAPTURES[step.device.type]())
            self.begun[places] = -begun.read
        self.replayed = loan.replayed
        if len(self.waiting) == len(jobs.limits):
            self._enter_all()

    def _enter_all(self, reads: bool = True) -> None:
        """Gives all places to the next jobs. `reads`: whether prompts may be read at once."""
        places, asked = self._next(self.shape.rows, whole=True)
        read = self.step.shared(asked) if reads else 0
        self.replayed.restart(self.step.entry(asked, len(places), asked.source.tokens.device), read, self._brief)
        self.begun[places] = self.steps - read

    def _enter(self) -> None:
        """Gives free places to the next jobs, if there are enough of both."""
        if not self.there:
            self._enter_all()
            return
        while len(self.waiting) and self.shape.rows - self.there >= min(len(self.waiting), self.group):
            self._enter_some()

    def _enter_some(self) -> None:
        step, replayed = self.step, self.replayed
        # prompts are read plainly as a rule: as many as there are places for
        places, asked = self._next(self.shape.rows if step.continues else self.group)
        rows = torch.from_numpy(places)
        if len(places) == self.group and not step.shared(asked):
            replayed.join(rows, step.entry(asked, device=rows.device), self._brief)
            self.begun[places] = self.steps
            return
        begun = step.begin(self._on_device(asked), brief=self._brief)
        replayed.put(rows.to(step.device, non_blocking=True), begun)
        self.begun[places] = self.steps - begun.read

    @property
    def _brief(self) -> bool:
        return self.replayed.state.brief and not self.shape.planned

    def _next(self, most: int, whole: bool = False) -> tuple[NDArray[np.int64], Asked]:
        """Free places for some of the next jobs, and what these ask; if `whole`, with rows that do not count for all others."""
        places = np.flatnonzero(self.job < 0)[: min(most, len(self.waiting))]
        numbers, self.waiting = self.waiting[: len(places)], self.waiting[len(places) :]
        jobs = self.jobs
        self.job[places], self.entered[places] = numbers, self.looks
        self.limit[places], self.forced[places] = jobs.limits[numbers], jobs.forced_lengths[numbers]
        self.there, self.pace = self.there + len(places), None
        if whole:
            numbers = np.concatenate([numbers, np.full(self.shape.rows - len(numbers), numbers[0])])
        each = numbers.tolist()
        terms = [jobs.terms[number] for number in each] if self.shape.terms.phrases else []
        forced = [jobs.forced[number] for number in each]
        return places, Asked(jobs.sources(numbers), jobs.limits[numbers].tolist(), forced, terms)

    def _on_device(self, asked: Asked) -> Asked:
        return asked._replace(source=asked.source.to(self.step.device))

    def run(self) -> Iterator[Found]:
        looking: collections.deque[tuple[int, Look]] = collections.deque()
        while self.there:
            stepped = self._advance()
            self.looks += 1
            looking.append((self.looks, self.replayed.look()))
            yield from self._arrived()
            while looking and (len(looking) > 1 or not stepped):
                number, look = looking.popleft()
                look.get()
                here = self.entered < number  # who came later was not seen
                if not look.fine.all() and not look.fine[here].all():
                    self._begin_again()
                    looking.clear()
                    break
                if look.broken.any() and look.broken[here].any():
                    raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
                self._leave(np.flatnonzero(look.done & here), look)
            if len(self.waiting):
                self._enter()
        yield from self._arrived(wait=True)

    def _advance(self) -> bool:
        """Some steps, unless all sentences must be done."""
        if self.pace is None:
            there = self.job >= 0
            self.pace = Pace(self.begun[there], self.limit[there], self.forced[there])
        for _ in range(STEPS_PER_LOOK):
            now = self.pace.at(self.steps)
            if now is None:
                return False
            at, forcing = now
            self.replayed.advance(_span(at + 1, self.shape.tokens), forcing)
            self.steps += 1
        return True

    def _leave(self, places: NDArray[np.int64], look: Look) -> None:
        """Sentences that are done: their texts are asked for, unless they came with the look, and their places are free."""
        if not len(places):
            return
        replayed, numbers = self.replayed, self.job[places].tolist()
        some = None if len(places) == self.shape.rows else places
        if look.whole:
            self.fetched.append(_Fetched(numbers, some, look))
        elif len(replayed.piece) <= MOST_FETCHED or len(places) * REFILL_SHARE >= self.shape.rows:
            self.fetched.append(_Fetched(numbers, some, replayed.fetch()))
        else:
            rows = torch.from_numpy(places).to(self.step.device, non_blocking=True)
            self.fetched.append(_Fetched(numbers, None, Arriving(replayed.work.take(rows))))
        self.job[places], self.entered[places] = -1, NEVER
        self.there, self.pace = self.there - len(places), None

    def _arrived(self, wait: bool = False) -> Iterator[Found]:
        """The texts of sentences that are done; `wait`: of all of them."""
        while self.fetched and (wait or self.fetched[0].coming.arrived()):
            numbers, places, coming = self.fetched.popleft()
            work = coming.get().work
            found = self.step.method.collect(work if places is None else work.take(torch.from_numpy(places)))
            self.replayed.give_back(coming)
            yield list(zip(numbers, found, strict=True))

    def _begin_again(self) -> None:
        """Some prompt could not be read at once: all who are there begin anew, and theirs are read step by step."""
        self.waiting = np.concatenate([np.sort(self.job[self.job >= 0]), self.waiting])
        self.job[:], self.entered[:], self.there = -1, NEVER, 0
        self._enter_all(reads=False)


def _shape(
    model: Any,
    jobs: Jobs,
    config: SearchConfig,
    device: torch.device,
    planned: bool,
    rows: int,
    words: bool,
) -> Shape:
    """Rounded up, so that few shapes occur."""
    limits = model.limits
    width = _rounded(int(jobs.lengths.max()), 16)
    tokens = _rounded(int(jobs.limits.max()) + 1, 32)
    width = width if limits.source is None else min(width, limits.source)
    tokens = tokens if limits.target is None else min(tokens, limits.target)
    most = min(rows or MOST_ROWS, max(1, MOST_SCORES // (config.hypotheses * model.output.vocabulary)))
    terms = TermSize(*(_rounded(number, 4) for number in TermSize.of(jobs.terms)))
    weight = next(iter(model.parameters()), None)
    autocast = torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
    return Shape(
        rows=min(most, _rows(min(len(jobs.limits), most))),
        width=width,
        tokens=tokens,
        prefix=_rounded(int(jobs.forced_lengths.max()), 32),
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
