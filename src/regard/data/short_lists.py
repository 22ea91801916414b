"""Short lists: the target tokens that each source token may become, learnt from parallel text, so that search need not score all.

The lexicon is that of IBM Model 1 (Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.2), a
target token coming from one of the source tokens or from none, by expectation-maximisation:

    P(i | j) = t(f_j | e_i) / sum_i' t(f_j | e_i')
    t(f | e) = sum of P(i | j) over all places where e_i = e and f_j = f, normalised

A batch of sentences gets the tokens that are always allowed (specials and the most frequent) and the likeliest of each of its
source tokens. Departs: the frequent ones, which are allowed anyway, take no part in the counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from regard.core.errors import CheckpointError, DataError
from regard.core.files import write_bytes
from regard.core.types import PAD
from regard.data.store import TokenStore

MOST_CELLS = 40_000_000  # pairs of places (source, target) that are counted; 12 bytes each
LEAST = 0.1  # expected number of times that a pair of tokens must have
MOST_BYTES = 1 << 30  # of a file
SPECIALS = 4  # PAD, BOS, EOS, UNK


@dataclasses.dataclass(frozen=True)
class ShortLists:
    """`each[s]`: what source token s may become, likeliest first, filled up with PAD; `always`: what is allowed anyway."""

    each: np.ndarray  # [source vocabulary, N], int32
    always: np.ndarray  # [A], int32, in order
    target_vocabulary: int

    def tokens(self, sources: Iterable[Sequence[int]]) -> np.ndarray:
        """The target tokens for a batch of sentences, in order."""
        seen = np.unique(np.concatenate([np.asarray(row, dtype=np.int64) for row in [*sources, [PAD]]]))
        return np.union1d(self.always, self.each[seen].ravel()).astype(np.int64)

    def coverage(self, store: TokenStore) -> float:
        """The share of a text's target tokens that are on the list of their own sentence."""
        found = total = 0
        for row in range(len(store)):
            target = np.asarray(store.target[row])
            found += int(np.isin(target, self.tokens([store.source[row]])).sum())
            total += len(target)
        return found / max(1, total)

    def save(self, path: Path) -> None:
        vocabulary = np.asarray([self.target_vocabulary], dtype=np.int64)
        arrays = {"each": self.each, "always": self.always, "target_vocabulary": vocabulary}
        write_bytes(path, safetensors.numpy.save(arrays))

    @classmethod
    def load(cls, path: Path, source_vocabulary: int, target_vocabulary: int) -> ShortLists:
        """Lists for vocabularies of these sizes; others, and damaged ones, are refused."""
        wrong = CheckpointError(path, "it holds no short lists for this model", "Make it again with `regard shortlist`")
        try:
            if path.stat().st_size > MOST_BYTES:
                raise wrong
            arrays = safetensors.numpy.load_file(path)
        except (OSError, SafetensorError):
            raise wrong from None
        if set(arrays) != {"each", "always", "target_vocabulary"}:
            raise wrong
        each, always, size = arrays["each"], arrays["always"], arrays["target_vocabulary"]
        shapes = each.ndim == 2 and always.ndim == 1 and size.shape == (1,) and len(each) == source_vocabulary
        if not shapes or int(size[0]) != target_vocabulary or each.dtype != np.int32 or always.dtype != np.int32:
            raise wrong
        for tokens in (each, always):
            if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < target_vocabulary:
                raise wrong
        return cls(each, always, target_vocabulary)


def learn_short_lists(
    store: TokenStore,
    source_vocabulary: int,
    target_vocabulary: int,
    *,
    each: int = 80,
    always: int = 600,
    rounds: int = 5,
    most_cells: int = MOST_CELLS,
) -> ShortLists:
    """Learns lists of at most `each` tokens; a text too large for `most_cells` is taken in even steps."""
    if not len(store):
        raise DataError("short lists", "there is no text", "Give some")
    flat = np.asarray(store.target.flat)
    counts = np.bincount(flat, minlength=target_vocabulary)
    order = np.argsort(-counts, kind="stable")
    frequent = order[: max(0, always)][counts[order[: max(0, always)]] > 0]
    allowed = np.union1d(frequent, np.arange(SPECIALS)).astype(np.int32)
    source, target, spans = _cells(store, np.isin(np.arange(target_vocabulary), allowed), most_cells)
    lists = np.full((source_vocabulary, each), PAD, dtype=np.int32)
    if len(source):
        sources, targets, weight = _model_1(source, target, spans, target_vocabulary, rounds)
        keep = (weight >= LEAST) & (sources != PAD)  # PAD stands for no source token
        sources, targets, weight = sources[keep], targets[keep], weight[keep]
        best = np.lexsort((targets, -weight, sources))
        sources, targets = sources[best], targets[best]
        begins = np.searchsorted(sources, sources)  # where each source token's own begin
        rank = np.arange(len(sources)) - begins
        few = rank < each
        lists[sources[few], rank[few]] = targets[few]
    return ShortLists(lists, allowed, target_vocabulary)


def _cells(store: TokenStore, left_out: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every pair of places in sampled sentences: source tokens (PAD: none), target tokens; how many a target place has."""
    sizes = (store.source.lengths.astype(np.int64) + 1) * store.target.lengths
    stride = max(1, -(-int(sizes.sum()) // most))
    sources, targets, spans = [], [], []
    for row in range(0, len(store), stride):
        read = np.asarray([PAD, *store.source[row]], dtype=np.int64)
        written = np.asarray(store.target[row], dtype=np.int64)
        written = written[~left_out[written]]
        sources.append(np.tile(read, len(written)))
        targets.append(np.repeat(written, len(read)))
        spans.append(np.full(len(written), len(read)))
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(spans)


def _model_1(
    source: np.ndarray, target: np.ndarray, spans: np.ndarray, vocabulary: int, rounds: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of tokens with their expected counts after some rounds of expectation-maximisation."""
    codes, cell = np.unique(source * vocabulary + target, return_inverse=True)
    sources, targets = codes // vocabulary, codes % vocabulary
    begins = np.cumsum(spans) - spans
    t = np.ones(len(codes))
    weight = t
    for _ in range(max(1, rounds)):
        share = t[cell]
        share /= np.repeat(np.add.reduceat(share, begins), spans)
        weight = np.bincount(cell, weights=share, minlength=len(codes))
        t = weight / np.bincount(sources, weights=weight)[sources]
    return sources, targets, weight
