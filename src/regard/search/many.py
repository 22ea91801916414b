"""Search for many sentences, in whatever batches the device likes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch

from regard.core.types import pad_rows
from regard.models.base import Writer
from regard.search.bounds import bounds
from regard.search.config import SearchConfig
from regard.search.forcing import check_attends, check_sources
from regard.search.hypothesis import Hypothesis
from regard.search.jobs import Jobs
from regard.search.recordings import can_replay
from regard.search.replay import CannotReplay
from regard.search.search import search
from regard.search.slots import MOST_ROWS, Found, fill_slots
from regard.search.terms import NO_TERMS, Letters, Term

BATCH_TOKENS = {"cpu": 4096}  # padded source tokens of all hypotheses of a batch
BATCH_TOKENS_ELSEWHERE = 65536
FEWEST_TOKENS = 256
STEP_SCORES = {"cpu": 1 << 23}  # of all hypotheses of a batch: in float32 as large as the caches of many processors
STEP_SCORES_ELSEWHERE = 1 << 28


def search_many(
    model: Writer,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    prefix: Sequence[Sequence[int]] | None = None,
    *,
    rows: int = 0,
    batch_tokens: int = 0,
    terms: Sequence[Sequence[Term]] | None = None,
    letters: Letters | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """What `search` finds for each of many sources (which end with EOS), with its number, in the order in which they are done.

    On CUDA a batch is kept full: where a sentence is done, the next one enters. Elsewhere there are batches of like length.
    `rows` sentences are searched for at a time at most, and without CUDA `batch_tokens` padded source tokens (0: as many as are
    usual for the device). A language model's sources only count: give `[EOS]` for each.
    """
    lengths = [len(source) for source in sources]
    check_sources(model, lengths)
    if config.coverage:
        check_attends(model, "setting search.coverage")
    limits, forced = bounds(model, lengths, config, prefix, terms)
    wanted = [NO_TERMS] * len(sources) if terms is None else list(map(tuple, terms))
    sizes = [length + len(tokens) for length, tokens in zip(lengths, forced, strict=True)]
    waiting = sorted(range(len(sources)), key=lambda i: (-sizes[i], i))
    device = next(model.parameters()).device
    if "plans" not in model.capabilities and can_replay(model, config, device):
        done: set[int] = set()

        def jobs(some: list[int]) -> Jobs:
            texts, most, begins = [sources[i] for i in some], [limits[i] for i in some], [forced[i] for i in some]
            return Jobs.of(texts, most, begins, [wanted[i] for i in some])

        with contextlib.suppress(CannotReplay):
            for group in _alike(waiting, sizes):
                for i, found in _replayed(model, group, jobs, config, device, rows or MOST_ROWS, letters):
                    done.add(i)
                    yield i, found
        waiting = [i for i in waiting if i not in done]
    per_batch = batch_tokens or usual_tokens(device, config.hypotheses)
    most = min(rows or len(sources), most_rows(device, config.hypotheses * model.output.vocabulary))
    while waiting:
        count = min(most, max(1, per_batch // sizes[waiting[0]]))
        batch, waiting = waiting[:count], waiting[count:]
        source = pad_rows([list(sources[i]) for i in batch]).to(device)
        some = None if terms is None else [wanted[i] for i in batch]
        found = search(model, source, config, [forced[i] for i in batch], terms=some, letters=letters)
        yield from zip(batch, found, strict=True)


def usual_tokens(device: torch.device, hypotheses: int) -> int:
    """Padded source tokens of a batch, with so many hypotheses of each sentence."""
    return max(FEWEST_TOKENS, BATCH_TOKENS.get(device.type, BATCH_TOKENS_ELSEWHERE) // hypotheses)


def most_rows(device: torch.device, scores: int) -> int:
    """Sentences in a batch, with so many scores of each in a step."""
    return max(1, STEP_SCORES.get(device.type, STEP_SCORES_ELSEWHERE) // scores)


def _replayed(
    model: Writer,
    group: list[int],
    jobs: Callable[[list[int]], Jobs],
    config: SearchConfig,
    device: torch.device,
    rows: int,
    letters: Letters | None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Some of the jobs, fewer at a time where the device has not the memory for so many."""
    while group:
        done: set[int] = set()
        try:
            for some in _inferring(fill_slots(model, jobs(group), config, device, rows=rows, letters=letters)):
                for number, found in some:
                    done.add(group[number])
                    yield group[number], found
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            rows = min(rows, len(group)) // 2 or 1
        group = [i for i in group if i not in done]


def _inferring(found: Iterator[Found]) -> Iterator[Found]:
    """The same, worked out in inference mode, which is not that of whoever asks."""
    while True:
        with torch.inference_mode():
            some = next(found, None)
        if some is None:
            return
        yield some


def _alike(order: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Consecutive ones, of which the shortest is longer than half of the longest: they share the places of a batch."""
    group: list[int] = []
    for i in order:
        if group and 2 * sizes[i] <= sizes[group[0]]:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
