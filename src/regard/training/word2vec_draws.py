"""What word2vec draws at random: which words are left out, how far windows reach, and negatives."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.core.types import PAD
from regard.layers.word_windows import window_codes
from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.training.word2vec_tree import TreeTables, Visits, places_of, visits_of
from regard.training.word2vec_updates import CHUNK, MOST_CHANGES, WordBatch

GROUP = 128  # words that share their negatives
# Of a thread's batch; words under way (of all threads) that are the same as a given one, on average; and changes of one word's
# vectors at once, beyond which its rate is lowered. Measured on Europarl, where 0.0023 of all pairs of words are the same, with 2
# threads: from 1024 words at once on, skip-gram diverged before rates were lowered.
MOST_WORDS, MOST_SAME = 2048, 10.0
# Of changes of one node at once, those by the same word. CBOW over 50 words in a circle held at 0.64, not at 1.28.
MOST_NODE_SAME = 0.6
TOGETHER = {
    "skipgram": 1,
    "cbow": 8,
}  # batches of a tree whose paths are looked up at once: small ones cost more than the work


def keep_probabilities(counts: Tensor, sample: float) -> Tensor:
    """√(t/f) + t/f for a word of relative frequency f: 1 and more is always; 0 for words that do not occur."""
    if not sample:
        return (counts > 0).float()
    part = sample * counts.sum().double() / counts.clamp(min=1)
    return torch.where(counts > 0, part.sqrt() + part, 0).float()


def parts_kept(counts: Tensor, sample: float) -> Tensor:
    """What part of the words that are kept is each word, in float64."""
    kept = counts * keep_probabilities(counts, sample).clamp(max=1).double()
    return kept / kept.sum()


def lowered_rates(config: Word2VecConfig, counts: Tensor, words: int) -> Tensor:
    """The part of the learning rate that each word keeps, [V], where so many words are under way at once.

    The gradients of a word that comes more often than a few times in them would add up to a step that overshoots. All that moves
    its vectors is lowered alike, so that it moves to the same place, in smaller steps.
    """
    often = words * parts_kept(counts, config.sample)
    return (MOST_CHANGES[config.architecture] / often.clamp(min=1e-9)).clamp(max=1).float()


def words_at_once(config: Word2VecConfig, counts: Tensor, threads: int = 1) -> int:
    """How many words are gone through at once: fewer where a few words are most of the text.

    Gradients of one batch are added up before anything changes. Where the same words meet the same words again and again, such
    a sum overshoots; how often two words of a text are the same says how soon. Threads do not see what the others are adding
    up, so it is the words of all of them together that count.
    """
    same = float(parts_kept(counts, config.sample).square().sum())
    most = min(MOST_WORDS, int(MOST_SAME / same) // threads)
    unit = GROUP if most >= GROUP and config.objective == "negative" else CHUNK
    return max(unit, most // unit * unit)


def most_threads(config: Word2VecConfig, counts: Tensor, threads: int) -> int:
    """How many of the threads can take part: each goes through a chunk of words at once at least."""
    return max(1, min(threads, words_at_once(config, counts) // CHUNK))


class WordDraws:
    """Turns pieces of text into batches of words: a pure function of the piece and a seed."""

    def __init__(self, model: Word2Vec, counts: Tensor, device: torch.device, threads: int = 1):
        config = self.config = model.config
        self.device, self.tree = device, config.objective == "tree"
        self.most = words_at_once(config, counts, threads)
        self.unit = CHUNK if self.tree else min(GROUP, self.most)  # batches are multiples of it
        self.keep = keep_probabilities(counts, config.sample).to(device)
        self.rates = lowered_rates(config, counts, self.most * threads).to(device)
        drawn = counts.double() ** config.power * (counts > 0)
        self.drawn = drawn.cumsum(0).to(device)
        self.tables = tree_tables(model, counts, device) if self.tree else None
        self.unlearnt = math.log(2) * self.told(counts)

    def told(self, counts: Tensor) -> float:
        """How many times left or right, or right or wrong, is told for each pair, on average."""
        if self.tables is None:
            return 1.0 + self.config.negatives
        return float((parts_kept(counts, self.config.sample) * self.tables.lengths).sum())

    def batches(self, words: Tensor, seed: int) -> Iterator[WordBatch]:
        """The batches of a piece of text [N], with PAD where documents end."""
        random = torch.Generator(self.device).manual_seed(seed)
        window = self.config.window
        kept, codes = self.windows(words, random)
        units = -(-len(kept) // self.unit)
        if not units:
            return
        count = -(-units * self.unit // self.most)
        if self.tree:
            units = -(-units // count) * count  # all batches of one size
        visits: deque[Visits] = deque()
        around = kept.new_full((units * self.unit + 2 * window,), PAD)
        around[window : window + len(kept)] = kept
        all_codes = codes.new_zeros(units * self.unit)  # code 0: an empty window
        all_codes[: len(kept)] = codes
        drawn = None if self.tree else self.negatives(units, random)
        for i in range(count):  # of nearly one size
            first, last = units * i // count, units * (i + 1) // count
            begin, end = first * self.unit, last * self.unit
            part = around[begin : end + 2 * window]
            if self.tree and not visits:
                visits = self.visits(around[begin + window : -window], all_codes[begin:], end - begin)
            negatives = drawn[first:last] if drawn is not None else None
            yield WordBatch(part, all_codes[begin:end], negatives, visits.popleft() if visits else None)

    def visits(self, words: Tensor, codes: Tensor, size: int) -> deque[Visits]:
        """Of the next batches, of `size` words each."""
        assert self.tables is not None
        some = TOGETHER[self.config.architecture] * size
        words, codes = words[:some].view(-1, size), codes[:some].view(-1, size)
        return deque(visits_of(words, codes, self.config.window, self.tables, self.config.architecture == "cbow"))

    def windows(self, words: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """The words that are kept, and the codes of their windows."""
        chance = torch.rand(len(words), generator=random, device=self.device)
        places = places_of(chance < self.keep.index_select(0, words))
        documents = (words == PAD).cumsum(0, dtype=torch.int32).index_select(0, places)
        reach = torch.randint(1, self.config.window + 1, (len(places),), generator=random, device=self.device)
        return words.index_select(0, places), window_codes(reach, documents, self.config.window)

    def negatives(self, groups: int, random: torch.Generator) -> Tensor:
        """Words drawn with P_n, [groups, shared]."""
        shape = (groups, self.config.shared)
        chance = torch.rand(shape, generator=random, device=self.device, dtype=torch.float64)
        return torch.searchsorted(self.drawn, chance * self.drawn[-1], right=True)


def tree_tables(model: Word2Vec, counts: Tensor, device: torch.device) -> TreeTables:
    """The tables of a model's tree, for a text of these counts."""
    same = float(parts_kept(counts, model.config.sample).square().sum())
    return TreeTables(model.paths(), device, MOST_NODE_SAME / same)
