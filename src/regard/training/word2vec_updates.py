"""One change of word2vec's tables, for up to some thousand words at once: gradients written out by hand.

Windows are bands of matrices for skip-gram with negatives, where every word meets every other of its window, and sums of rows for
CBOW (`layers/word_windows.py`); the nodes of a tree are met one by one (`training/word2vec_tree.py`). Rows are gathered from the
tables once for each word, and their gradients, summed over all pairs, are added to the tables at the end. Of log σ(x) the
derivative is 1 - σ(x), and of log σ(-x) it is -σ(x).

On several workers, each has some columns of the tables (`training/distributed/columns.py`): products of rows are summed over them.

Updates have room of their own that they write into again and again: so there is one for each thread and size.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from regard.core.workers import norm_over_all_workers, over_all_workers
from regard.layers.sparse_rows import met_dots, met_sums
from regard.layers.word_windows import Transpose, WindowSums, diagonal, overlapping, window_rows
from regard.models.word2vec import Word2Vec
from regard.training.word2vec_tree import TreeTables, Visits

CHUNK = 16  # L of skip-gram: larger chunks waste products, smaller ones are slower products
MOST_CHANGES = {"skipgram": 4.0, "cbow": 8.0}  # of one word's vectors at once, beyond which its rate is lowered


class WordBatch(NamedTuple):
    """M words with W more on each side, the code of each word's window, and what the words are told from: one of the two."""

    around: Tensor  # [M + 2W]
    codes: Tensor  # [M]
    negatives: Tensor | None = None  # [G, N]: N for each of G groups of words
    visits: Visits | None = None


class Measured(NamedTuple):
    """The summed loss of a batch, over how many pairs (CBOW: words) it is, and the norm of the gradient of the vectors."""

    loss: Tensor
    pairs: Tensor
    norm: Tensor


class Update(Protocol):
    """Changes the tables by a batch; without a rate, leaves them. The loss is measured only when asked for."""

    def __call__(self, batch: WordBatch, rate: float | None, measure: bool = False) -> Measured | None: ...


class _Tables:
    """What all updates share: tables, sizes, and how rows are changed."""

    def __init__(self, model: Word2Vec, words: int, rates: Tensor | None = None):
        config = model.config
        self.most = MOST_CHANGES[config.architecture]
        self.vectors = model.embedding.weight.detach()
        device = self.vectors.device
        self.least = self.most / rates if rates is not None else None  # so often each word is taken to come, at least
        self.often, self.ones = torch.zeros(len(self.vectors), device=device), torch.ones(1, device=device)
        self.words, self.window, self.width = words, config.window, config.width
        self.inside = slice(config.window, config.window + words)
        self.bands = window_rows(config.window).to(device)
        self.sizes = self.bands.sum(1)  # of windows

    def count(self, batch: WordBatch) -> None:
        """Counts the words of a batch: rare words may come often in one place of a text."""
        if self.least is not None:
            self.often.zero_().index_add_(0, batch.around, self.ones.expand(len(batch.around)))

    def add(self, table: Tensor, words: Tensor, rows: Tensor, rate: float) -> None:
        """Changes words' rows of a table, by as much as the words' rates are lowered. `rows` is written over."""
        if self.least is None:
            rows.mul_(rate)  # adding with a factor (alpha) takes three times as long
        else:
            often = torch.maximum(self.often.index_select(0, words), self.least.index_select(0, words))
            rows.mul_((self.most * rate / often)[:, None])
        table.index_add_(0, words, rows)


class _Negatives(_Tables):
    """Negative sampling: `shared` words for each group, each weighted K/shared."""

    def __init__(self, model: Word2Vec, words: int, group: int, rates: Tensor | None = None):
        super().__init__(model, words, rates)
        self.outputs = model.output.weight.detach()
        self.groups, self.weight = words // group, model.config.negatives / model.config.shared

    def in_groups(self, rows: Tensor) -> Tensor:
        return rows.view(self.groups, self.words // self.groups, -1)

    def of_negatives(self, batch: WordBatch) -> tuple[Tensor, Tensor]:
        """The negatives one after the other, and their rows, [G, N, D]."""
        assert batch.negatives is not None
        drawn = batch.negatives.view(-1)
        return drawn, self.outputs.index_select(0, drawn).view(self.groups, -1, self.width)


class _Means:
    """CBOW's inputs: the means of the vectors in the windows."""

    def __init__(self, tables: _Tables):
        self.tables, device = tables, tables.vectors.device
        self.weights = tables.bands / tables.sizes.clamp(min=1)[:, None]
        self.sums = WindowSums(tables.words, tables.window, device)

    def __call__(self, batch: WordBatch) -> Tensor:
        """h of all words, [M, D]: 0 where nothing is in the window."""
        rows = self.tables.vectors.index_select(0, batch.around)
        return self.sums.over(rows, self.weights.index_select(0, batch.codes))

    def back(self, batch: WordBatch, slopes: Tensor, rate: float) -> None:
        """Adds the gradient of each h, undivided, to the vectors of all words in the window."""
        tables = self.tables
        rows = self.sums.back(slopes, tables.bands.index_select(0, batch.codes))
        tables.add(tables.vectors, batch.around, rows, rate)


class SkipGramNegative(_Negatives):
    """2013b, equation 4: from each word, the words around it."""

    def __init__(self, model: Word2Vec, words: int, group: int, rates: Tensor | None = None):
        super().__init__(model, words, group, rates)
        device, window = self.vectors.device, self.window
        self.chunks = words // CHUNK
        self.dense = torch.zeros(self.chunks, CHUNK, CHUNK + 2 * window, device=device)
        self.windows = torch.zeros_like(self.dense)
        self.rows = torch.empty(words + 2 * window, self.width, device=device)
        self.turned = Transpose(self.chunks, CHUNK, window, self.width, device)

    def __call__(self, batch: WordBatch, rate: float | None, measure: bool = False) -> Measured | None:
        words = batch.around[self.inside]
        h = torch.index_select(self.vectors, 0, words, out=self.turned.rows)
        torch.index_select(self.outputs, 0, batch.around, out=self.rows)
        u = overlapping(self.rows, self.chunks, CHUNK, self.window)  # [C, L + 2W, D]
        drawn, negatives = self.of_negatives(batch)
        bands = self.in_chunks(self.bands.index_select(0, batch.codes))
        scores = over_all_workers(diagonal(torch.bmm(self.in_chunks(h), u.mT)).contiguous())  # u_o·h
        others = over_all_workers(torch.bmm(self.in_groups(h), negatives.mT))  # u_k·h
        weights = self._weights(batch, bands)
        loss = (softplus(-scores) * bands).sum() + (softplus(others) * weights).sum() if measure else None
        slopes = torch.mul(scores.sigmoid_().neg_().add_(1), bands, out=self.in_chunks(self.turned.bands))
        others.sigmoid_().mul_(weights)
        diagonal(self.dense).copy_(slopes)
        slope = torch.bmm(self.dense, u)  # of h
        self.in_groups(slope).baddbmm_(others, negatives, alpha=-1)
        measured = Measured(loss, bands.sum(), norm_over_all_workers(slope.norm())) if loss is not None else None
        if rate is not None:
            self.count(batch)
            of_negatives = torch.bmm(others.mT, self.in_groups(h))
            self.add(self.vectors, words, slope.view(-1, self.width), rate)
            self.add(self.outputs, batch.around, self.turned(), rate)
            self.add(self.outputs, drawn, of_negatives.view(-1, self.width), -rate)
        return measured

    def in_chunks(self, rows: Tensor) -> Tensor:
        return rows.view(self.chunks, CHUNK, -1)

    def _weights(self, batch: WordBatch, bands: Tensor) -> Tensor:
        """K/shared for each pair of a word, but 0 for pairs whose word to be told is the negative itself."""
        assert batch.negatives is not None
        diagonal(self.windows).copy_(bands)
        here = self.chunks // self.groups
        around = batch.around.as_strided(
            (self.groups, here, self.dense.shape[2], 1), (here * CHUNK, CHUNK, 1, 1), batch.around.storage_offset()
        )
        same = (around == batch.negatives[:, None, None]).to(bands.dtype).flatten(0, 1)
        sizes = self.in_chunks(self.sizes.index_select(0, batch.codes)).expand(-1, -1, same.shape[2])
        weights = torch.baddbmm(sizes, self.windows, same, beta=self.weight, alpha=-self.weight)
        return self.in_groups(weights)


class CBOWNegative(_Negatives):
    """2013b, equation 4, from the mean of the vectors around a word."""

    def __init__(self, model: Word2Vec, words: int, group: int, rates: Tensor | None = None):
        super().__init__(model, words, group, rates)
        self.means = _Means(self)

    def __call__(self, batch: WordBatch, rate: float | None, measure: bool = False) -> Measured | None:
        assert batch.negatives is not None
        words = batch.around[self.inside]
        h = self.means(batch)
        u = self.outputs.index_select(0, words)
        drawn, negatives = self.of_negatives(batch)
        scores = over_all_workers(torch.linalg.vecdot(h, u)[:, None])
        others = over_all_workers(torch.bmm(self.in_groups(h), negatives.mT))
        same = self.in_groups(words) == batch.negatives[:, None]
        loss = self._loss(scores, others, same, batch) if measure else None
        # A word with nothing around it has h = 0 and gives its slope to nobody: it changes nothing.
        others.sigmoid_().masked_fill_(same, 0)
        slope = u.mul_(scores.sigmoid_().neg_().add_(1))  # of h
        self.in_groups(slope).baddbmm_(others, negatives, alpha=-self.weight)
        measured = Measured(*loss, norm_over_all_workers(slope.norm())) if loss is not None else None
        if rate is not None:
            self.count(batch)
            of_negatives = torch.bmm(others.mT, self.in_groups(h))
            self.means.back(batch, slope, rate)
            self.add(self.outputs, words, h.mul_(scores), rate)
            self.add(self.outputs, drawn, of_negatives.view(-1, self.width), -rate * self.weight)
        return measured

    def _loss(self, scores: Tensor, others: Tensor, same: Tensor, batch: WordBatch) -> tuple[Tensor, Tensor]:
        """The summed loss of the words that have others around them, and how many they are."""
        some = self.sizes.index_select(0, batch.codes)[:, None].clamp(max=1)
        told = softplus(others).masked_fill(same, 0) * self.in_groups(some * self.weight)
        return (softplus(-scores) * some).sum() + told.sum(), some.sum()


class Tree(_Tables):
    """2013b, equation 3: each word's path is told from the vectors around it, one by one or (CBOW) from their mean."""

    def __init__(self, model: Word2Vec, words: int, tree: TreeTables, rates: Tensor | None = None):
        super().__init__(model, words, rates)
        self.nodes, self.tree = model.nodes.weight.detach(), tree
        self.means = _Means(self) if model.config.architecture == "cbow" else None

    def __call__(self, batch: WordBatch, rate: float | None, measure: bool = False) -> Measured | None:
        assert batch.visits is not None
        met, labels, nodes, slowed, offsets, places, inputs = batch.visits
        h = self.means(batch) if self.means is not None else self.vectors.index_select(0, batch.around)
        scores = over_all_workers(met_dots(h, self.nodes, met))
        loss = (softplus(scores) - scores * labels).sum() if measure else None
        slopes = torch.sub(labels, scores.sigmoid_(), out=scores)
        of_h = met_sums(self.nodes, met.offsets, met.hits, slopes)
        measured = None
        if loss is not None:
            pairs = self.sizes.index_select(0, batch.codes)
            measured = Measured(
                loss, (pairs.clamp(max=1) if self.means else pairs).sum(), norm_over_all_workers(of_h.norm())
            )
        if rate is not None:
            self.count(batch)
            of_nodes = met_sums(h, offsets, inputs, slopes.index_select(0, places))
            if self.means is not None:
                self.means.back(batch, of_h, rate)
            else:
                self.add(self.vectors, batch.around, of_h, rate)
            self.nodes.index_add_(0, nodes, of_nodes.mul_((slowed * rate)[:, None]))
        return measured


def update_for(
    model: Word2Vec, words: int, group: int, tree: TreeTables | None = None, rates: Tensor | None = None
) -> Update:
    """The update of so many words; negatives are shared by `group` of them. `rates` [V] lower those of frequent words."""
    if model.config.objective == "tree":
        assert tree is not None
        return Tree(model, words, tree, rates)
    kind = SkipGramNegative if model.config.architecture == "skipgram" else CBOWNegative
    return kind(model, words, group, rates)
