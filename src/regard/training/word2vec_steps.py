"""Steps of word2vec for the trainer: the tables are changed in place while the text is read, by one thread or by several.

Several threads change the same tables at the same time and do not wait for each other (Hogwild: Recht et al. 2011). Words are
many and changes few, so they seldom meet; but who comes first is chance, and no two such runs are the same to the last bit.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Self, cast

import torch
from torch import Tensor

from regard.core.errors import CheckpointError, TrainingError
from regard.core.workers import working_together
from regard.data.batching import Batch
from regard.models.word2vec import Word2Vec
from regard.training.config import TrainConfig
from regard.training.distributed.columns import Columns
from regard.training.distributed.team import ALONE, current_team
from regard.training.gradient import Computed
from regard.training.schedule import rate
from regard.training.word2vec_draws import WordDraws, most_threads
from regard.training.word2vec_text import WordText
from regard.training.word2vec_updates import Measured, Update, update_for

PART = 1 << 15  # words that a thread goes through before it takes the next: nobody waits long for the last one
MOST_LOSS = (
    10.0  # of a step, as a multiple of what it is before anything is learnt: a run from another may begin with some
)


class NothingCarried:
    """No state goes on from batch to batch."""

    def forget(self) -> None: ...
    def tensors(self) -> None: ...

    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        what = "it holds a state that word vectors do not have"
        raise CheckpointError(where, what, "Use the version of regard that wrote it")


class _Own(threading.local):
    """What each thread has for itself: updates by size, made when first asked for."""

    def __init__(self) -> None:
        self.updates: dict[int, Update] = {}


class WordSteps:
    """Takes the places of both `Gradients` and `Optimizer`: reading a batch changes the tables at once.

    A batch is cut into parts, of which each thread takes the next when it is done with one, and goes through it some hundred words
    at a time. The loss is that of the last of them.
    """

    def __init__(self, model: Word2Vec, counts: Tensor, config: TrainConfig, device: torch.device, threads: int):
        self.config, self.device, self.model = config, device, model.to(device)
        self.counts = counts
        self.carried = NothingCarried()
        self.team = current_team()
        self._random, self._drawn_for = torch.Generator(), 0
        self.done = torch.zeros((), dtype=torch.long)  # steps
        self.skipped = self.in_a_row = self.last_bad = torch.zeros((), dtype=torch.long)  # none ever is
        self._before = torch.get_num_threads()
        alone = device.type == "cpu" and not self.team.several  # chance decides among threads, and workers must agree
        self.threads = most_threads(model.config, counts, threads) if alone else 1
        if self.threads < threads and device.type == "cpu":
            torch.set_num_threads(self.threads)
        self._own = _Own()
        self._pool = ThreadPoolExecutor(self.threads, "word2vec", _alone) if self.threads > 1 else None
        self._norm = torch.zeros((), device=device)

    @cached_property
    def draws(self) -> WordDraws:
        """Made when first asked for: a checkpoint may bring the tree of another text."""
        return WordDraws(self.model, self.counts, self.device, self.threads)

    @cached_property
    def columns(self) -> Columns | None:
        """What this worker has of the tables, where there are several. The model itself has what `gather` last found."""
        return Columns(self.model, self.team) if self.team.several else None

    def gather(self) -> None:
        """The model's tables become what all workers have made of them."""
        if self.columns is not None:
            self.columns.give()

    @torch.no_grad()
    def __call__(self, batch: Batch, scale: float, auxiliary: float = 1.0) -> Computed:
        """Changes the tables by a batch. The loss is a mean over pairs, in place of one over the words of the text."""
        words = batch.target_out[0].to(self.device)
        self.draws  # noqa: B018 (before there are threads)
        step = int(self.done) + 1
        now = self.config.lr * rate(self.config, step)
        if self._drawn_for != step:  # a step of several batches goes on drawing
            self._drawn_for = step
            self._random.manual_seed(ALONE.seed(self.config.seed, step))  # the same on all workers
        most = PART * self.threads if self.device.type == "cpu" else len(words)
        parts = words.tensor_split(self.threads * -(-len(words) // most))
        seeds = torch.randint(1 << 62, (len(parts),), generator=self._random).tolist()
        last = len(parts) - self.threads
        given = [(part, seed, now, i >= last) for i, (part, seed) in enumerate(zip(parts, seeds, strict=True))]
        if self._pool is None:
            found = [self._go_through(*one) for one in given]
        else:
            waiting = [self._pool.submit(self._go_through, *one) for one in given]
            found = [future.result() for future in waiting]
        measured = [one for one in found if one is not None]
        if not measured:  # all words were left out
            none = torch.zeros((), device=self.device)
            return Computed(none, none, none)
        mean = sum(one.loss for one in measured) / sum(one.pairs for one in measured).clamp(min=1)  # type: ignore[union-attr]
        self._norm = measured[0].norm
        total = mean / scale
        return Computed(mean, total, total)

    def _go_through(self, words: Tensor, seed: int, now: float, measure: bool) -> Measured | None:
        """Changes the tables by a part of the text. The loss is that of its last batch, if it is measured."""
        batches, measured = self.draws.batches(words, seed), None
        following = next(batches, None)
        while following is not None:
            batch, following = following, next(batches, None)
            measured = self.update(len(batch.codes))(batch, now, measure=measure and following is None)
        return measured

    def update(self, words: int) -> Update:
        """The update of so many words that belongs to this thread."""
        known = self._own.updates
        if words not in known:
            draws = self.draws
            known[words] = update_for(
                cast(Word2Vec, self.columns or self.model), words, min(words, draws.unit), draws.tables, draws.rates
            )
        return known[words]

    def step(self, loss: Tensor, part_of_peak: float, number: int) -> Tensor:
        """All is done but counting. What went wrong cannot be taken back."""
        mean, unlearnt = float(loss) / self.config.accumulate, self.draws.unlearnt
        if not mean <= MOST_LOSS * unlearnt:
            what = f"the loss is {mean:.3g}, and vectors that have learnt nothing have {unlearnt:.3g}: they diverge"
            todo = "Lower train.lr, and begin a new run: the vectors of this one are lost"
            raise TrainingError(f"step {number}", what, todo)
        self.done.fill_(number)
        return self._norm

    def tensors(self) -> dict[str, Tensor]:
        return {"done": self.done}

    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        if set(tensors) != {"done"}:
            what = "the optimizer state does not fit the model"
            raise CheckpointError(where, what, "Use the run's own checkpoint")
        self.done.copy_(tensors["done"])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        torch.set_num_threads(self._before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class WordValidation:
    """The loss on held-out text for each pair, with the same windows and negatives every time."""

    PIECE = 1 << 16  # words

    def __init__(self, text: WordText, steps: WordSteps, seed: int = 0):
        self.text, self.steps, self.seed = text, steps, seed

    @torch.no_grad()
    def measure(self, model: object, device: torch.device) -> dict[str, float]:
        if self.steps.columns is not None:
            self.steps.columns.take()
        with working_together(self.steps.team.sum if self.steps.team.several else None):
            return self._measured(device)

    def _measured(self, device: torch.device) -> dict[str, float]:
        loss = pairs = 0.0
        for begin in range(0, len(self.text.words), self.PIECE):
            words = torch.from_numpy(self.text.words[begin : begin + self.PIECE].astype("int64")).to(device)
            for batch in self.steps.draws.batches(words, self.seed + begin):
                found = self.steps.update(len(batch.codes))(batch, None, measure=True)
                assert found is not None
                loss, pairs = loss + float(found.loss), pairs + float(found.pairs)
        return {"valid_nll": loss / pairs if pairs else math.nan}  # nan: all words were left out


def _alone() -> None:
    """Of a thread that works beside others: its operations use no more threads."""
    torch.set_num_threads(1)
