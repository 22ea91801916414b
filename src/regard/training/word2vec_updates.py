"""One change of word2vec's tables, for up to some thousand words at once: gradients written out by hand, as matrix products.

The words come in chunks of L, and their windows as bands of matrices (`layers/word_windows.py`). Rows are gathered from the
tables once for each word, and their gradients, summed over all pairs, are added to the tables at the end. Of log σ(x) the
derivative is 1 - σ(x), and of log σ(-x) it is -σ(x).

Every update has room of its own that it writes into again and again: so there is one for each thread and size.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from regard.layers.huffman import Paths
from regard.layers.word_windows import Transpose, diagonal, overlapping, window_rows
from regard.models.word2vec import Word2Vec

CHUNK = 16  # L with negative sampling: larger chunks waste products, smaller ones are slower products
TOP = 128  # nodes near the root that are scored with all inputs
MOST_TOP_CHANGES = 256.0  # of a node in a batch, before its rate is lowered
TREE_CHUNKS = {"skipgram": 16, "cbow": 8}  # L with the tree


class TreeTables:
    """The paths of a tree, cut in two: the signs of the first `TOP` nodes, [V, TOP], 0 where a path does not meet them, and
    the nodes below.

    A node's number is larger than its parent's, so the nodes below are the rest of each path.
    """

    def __init__(self, paths: Paths, often: Tensor, device: torch.device, most: float = math.inf):
        """`often`: how many times each of the top nodes is met, for each word that is told; `most`: changes of one at once."""
        top = len(often)
        inside = (paths.nodes < top) & (paths.signs != 0)
        signs = torch.zeros(len(paths.nodes), top + 1, dtype=torch.int8)  # the last is for all that is not at the top
        signs.scatter_(1, torch.where(inside, paths.nodes, top), paths.signs.to(torch.int8))
        self.signs = signs[:, :top].contiguous().to(device)
        self.above, self.longest = inside.sum(1).to(device), paths.nodes.shape[1]
        self.below = paths.lengths.to(device) - self.above
        self.nodes, self.left = paths.nodes.view(-1).to(device), (paths.signs > 0).float().view(-1).to(device)
        self.often, self.most = often.float().to(device), min(MOST_TOP_CHANGES, most)
        self._rates: dict[int, Tensor] = {}

    def rates(self, words: int) -> Tensor:
        """By how much the rate of the top nodes is lowered, [TOP, 1]: beyond so many changes at once, they overshoot."""
        if words not in self._rates:
            self._rates[words] = (self.most / (words * self.often)).clamp(max=1)[:, None]
        return self._rates[words]


class Visits(NamedTuple):
    """The inner nodes below the top on the paths of the words of each chunk, one path after the other.

    `owners` are the places in the batch of the words that the paths lead to, one beyond the last where there is no node. With
    CBOW any words may make a chunk: `order` puts them so that chunks have nearly as many nodes, and owners are places in it.
    """

    nodes: Tensor  # [C, Q]
    labels: Tensor  # [C, Q]: 1 where the path goes left, else 0
    owners: Tensor  # [C, Q]
    order: Tensor | None = None  # [M]


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


class _Windows:
    """What all updates share: tables, sizes, and the matrices that windows are put into."""

    def __init__(self, model: Word2Vec, words: int, chunk: int, rates: Tensor | None = None):
        config = model.config
        self.rates = rates  # [V, 1]
        self.vectors = model.embedding.weight.detach()
        device = self.vectors.device
        self.words, self.chunk, self.chunks, self.window = words, chunk, words // chunk, config.window
        self.width, self.inside = config.width, slice(config.window, config.window + words)
        self.bands = window_rows(config.window).to(device)
        self.sizes = self.bands.sum(1)  # of windows
        self.means = self.bands / self.sizes.clamp(min=1)[:, None]
        self.dense = torch.zeros(self.chunks, chunk, chunk + 2 * config.window, device=device)
        self.rows = torch.empty(words + 2 * config.window, config.width, device=device)
        self.turned = Transpose(self.chunks, chunk, config.window, config.width, device)

    def in_chunks(self, rows: Tensor) -> Tensor:
        return rows.view(self.chunks, self.chunk, -1)

    def on_diagonal(self, bands: Tensor) -> Tensor:
        """The matrices [C, L, L + 2W] of bands [M, 2W + 1]."""
        diagonal(self.dense).copy_(self.in_chunks(bands))
        return self.dense

    def around(self, table: Tensor, batch: WordBatch) -> Tensor:
        """The rows of all words, those around included, as overlapping chunks [C, L + 2W, D]."""
        torch.index_select(table, 0, batch.around, out=self.rows)
        return overlapping(self.rows, self.chunks, self.chunk, self.window)

    def context_means(self, batch: WordBatch) -> Tensor:
        """CBOW's h for all words, [C, L, D]: 0 where nothing is in the window."""
        means = self.on_diagonal(self.means.index_select(0, batch.codes))
        return torch.bmm(means, self.around(self.vectors, batch))

    def to_contexts(self, batch: WordBatch, rate: float) -> None:
        """Adds the gradient of each h (in `turned.rows`), undivided, to the vectors of all words in the window."""
        torch.index_select(self.bands, 0, batch.codes, out=self.turned.bands)
        self.vectors.index_add_(0, batch.around, self.lowered(self.turned(), batch.around), alpha=rate)

    def lowered(self, rows: Tensor, words: Tensor) -> Tensor:
        """Changes of words' rows, by as much as the words' rates are lowered."""
        return rows if self.rates is None else rows.mul_(self.rates.index_select(0, words))


class _Negatives(_Windows):
    """Negative sampling: `shared` words for each group, each weighted K/shared."""

    def __init__(self, model: Word2Vec, words: int, group: int, rates: Tensor | None = None):
        super().__init__(model, words, CHUNK, rates)
        self.outputs = model.output.weight.detach()
        self.groups, self.weight = words // group, model.config.negatives / model.config.shared

    def in_groups(self, rows: Tensor) -> Tensor:
        return rows.view(self.groups, self.words // self.groups, -1)


class SkipGramNegative(_Negatives):
    """2013b, equation 4: from each word, the words around it."""

    def __init__(self, model: Word2Vec, words: int, group: int, rates: Tensor | None = None):
        super().__init__(model, words, group, rates)
        self.windows = torch.zeros_like(self.dense)

    def __call__(self, batch: WordBatch, rate: float | None, measure: bool = False) -> Measured | None:
        assert batch.negatives is not None
        words, drawn = batch.around[self.inside], batch.negatives.view(-1)
        h = torch.index_select(self.vectors, 0, words, out=self.turned.rows)
        u = self.around(self.outputs, batch)
        negatives = self.in_rows(self.outputs.index_select(0, drawn))
        bands = self.in_chunks(self.bands.index_select(0, batch.codes))
        scores = diagonal(torch.bmm(self.in_chunks(h), u.mT)).contiguous()  # u_o·h
        others = torch.bmm(self.in_groups(h), negatives.mT)  # u_k·h
        weights = self._weights(batch, bands)
        loss = (softplus(-scores) * bands).sum() + (softplus(others) * weights).sum() if measure else None
        torch.mul(scores.sigmoid_().neg_().add_(1), bands, out=self.in_chunks(self.turned.bands))
        others.sigmoid_().mul_(weights)
        slope = torch.bmm(self.on_diagonal(self.turned.bands), u)  # of h
        self.in_groups(slope).baddbmm_(others, negatives, alpha=-1)
        measured = Measured(loss, bands.sum(), slope.norm()) if loss is not None else None
        if rate is not None:
            of_negatives = torch.bmm(others.mT, self.in_groups(h))
            of_outputs = self.turned()
            self.vectors.index_add_(0, words, self.lowered(slope.view(-1, self.width), words), alpha=rate)
            self.outputs.index_add_(0, batch.around, self.lowered(of_outputs, batch.around), alpha=rate)
            self.outputs.index_add_(0, drawn, self.lowered(of_negatives.view(-1, self.width), drawn), alpha=-rate)
        return measured

    def in_rows(self, rows: Tensor) -> Tensor:
        return rows.view(self.groups, -1, self.width)

    def _weights(self, batch: WordBatch, bands: Tensor) -> Tensor:
        """K/shared for each pair of a word, but 0 for pairs whose word to be told is the negative itself."""
        assert batch.negatives is not None
        diagonal(self.windows).copy_(bands)
        here = self.chunks // self.groups
        around = batch.around.as_strided(
            (self.groups, here, self.dense.shape[2], 1),
            (here * self.chunk, self.chunk, 1, 1),
            batch.around.storage_offset(),
        )
        same = (around == batch.negatives[:, None, None]).to(bands.dtype).flatten(0, 1)
        sizes = self.in_chunks(self.sizes.index_select(0, batch.codes)).expand(-1, -1, same.shape[2])
        weights = torch.baddbmm(sizes, self.windows, same, beta=self.weight, alpha=-self.weight)
        return self.in_groups(weights)


class CBOWNegative(_Negatives):
    """2013b, equation 4, from the mean of the vectors around a word."""

    def __call__(self, batch: WordBatch, rate: float | None, measure: bool = False) -> Measured | None:
        assert batch.negatives is not None
        words, drawn = batch.around[self.inside], batch.negatives.view(-1)
        h = self.context_means(batch).view(self.words, self.width)
        u = self.outputs.index_select(0, words)
        negatives = self.outputs.index_select(0, drawn).view(self.groups, -1, self.width)
        scores = (h * u).sum(1, keepdim=True)
        others = torch.bmm(self.in_groups(h), negatives.mT)
        same = self.in_groups(words) == batch.negatives[:, None]
        loss = self._loss(scores, others, same, batch) if measure else None
        # A word with nothing around it has h = 0 and gives its slope to nobody: it changes nothing.
        others.sigmoid_().masked_fill_(same, 0)
        slope = torch.mul(u, scores.sigmoid_().neg_().add_(1), out=self.turned.rows)  # of h
        self.in_groups(slope).baddbmm_(others, negatives, alpha=-self.weight)
        measured = Measured(*loss, slope.norm()) if loss is not None else None
        if rate is not None:
            of_negatives = torch.bmm(others.mT, self.in_groups(h))
            self.to_contexts(batch, rate)
            self.outputs.index_add_(0, words, self.lowered(h.mul_(scores), words), alpha=rate)
            of_negatives = self.lowered(of_negatives.view(-1, self.width), drawn)
            self.outputs.index_add_(0, drawn, of_negatives, alpha=-rate * self.weight)
        return measured

    def _loss(self, scores: Tensor, others: Tensor, same: Tensor, batch: WordBatch) -> tuple[Tensor, Tensor]:
        """The summed loss of the words that have others around them, and how many they are."""
        some = self.sizes.index_select(0, batch.codes)[:, None].clamp(max=1)
        told = softplus(others).masked_fill(same, 0) * self.in_groups(some * self.weight)
        return (softplus(-scores) * some).sum() + told.sum(), some.sum()


class Tree(_Windows):
    """2013b, equation 3: each word's path is told from the vectors around it, one by one or (CBOW) from their mean.

    Nodes near the root are on the paths of very many words: for the first `TOP` of them, every input is scored with every node.
    What is below is scored only for the words of a chunk.
    """

    def __init__(self, model: Word2Vec, words: int, tree: TreeTables, rates: Tensor | None = None):
        super().__init__(model, words, TREE_CHUNKS[model.config.architecture], rates)
        device = self.vectors.device
        self.nodes, self.mean, self.tree = model.nodes.weight.detach(), model.config.architecture == "cbow", tree
        self.top = self.nodes[: tree.signs.shape[1]]
        inputs = self.chunk if self.mean else self.dense.shape[2]
        # which of a chunk's inputs a word is told from; the last row, of no word, stays 0
        self.told_from = torch.zeros(words + 1, inputs, device=device)
        if self.mean:  # its own
            self.told_from[:words] = torch.eye(self.chunk, device=device).repeat(self.chunks, 1)
        else:
            self.told = Transpose(self.chunks, self.chunk, self.window, 2 * len(self.top), device)

    def __call__(self, batch: WordBatch, rate: float | None, measure: bool = False) -> Measured | None:
        assert batch.visits is not None
        nodes, labels, owners, order = batch.visits
        signs = self.tree.signs.index_select(0, batch.around[self.inside]).float()
        if self.mean:
            assert order is not None
            means = self.context_means(batch).view(self.words, self.width)
            of_inputs, of_top, loss = self._top_of_means(means, signs, measure)
            h = self.in_chunks(means.index_select(0, order))
        else:
            h = self.around(self.vectors, batch)
            bands = self.bands.index_select(0, batch.codes)
            self.told_from[: self.words] = self.on_diagonal(bands).view(self.words, -1)
            of_inputs, of_top, loss = self._top_of_each(bands, signs, measure)
        pairs = self.told_from.index_select(0, owners.view(-1)).view(*owners.shape, -1)
        u = self.nodes.index_select(0, nodes.view(-1)).view(*nodes.shape, -1)
        scores = torch.bmm(u, h.mT)  # [C, Q, inputs]
        measured = None
        if measure:
            loss = loss + ((softplus(scores) - scores * labels[:, :, None]) * pairs).sum()
        slopes = scores.sigmoid_().neg_().add_(labels[:, :, None]).mul_(pairs)
        of_h = torch.bmm(slopes.mT, u).view(-1, self.width)
        if measure:
            sizes = self.sizes.index_select(0, batch.codes)
            if self.mean:  # h is 0 where nothing is in the window: each node cost ln 2, for no pair
                sizes.clamp_(max=1)
                lengths = (self.tree.above + self.tree.below)[batch.around[self.inside]]
                loss = loss - math.log(2) * (lengths * (1 - sizes)).sum()
            measured = Measured(loss, sizes.sum(), of_h.norm())
        if rate is not None:
            of_nodes = torch.bmm(slopes, h).view(-1, self.width)
            if self.mean:
                assert order is not None
                self.turned.rows.copy_(of_inputs).index_add_(0, order, of_h)
                self.to_contexts(batch, rate)
            else:
                around = batch.around.as_strided(
                    (self.chunks, self.dense.shape[2]), (self.chunk, 1), batch.around.storage_offset()
                )
                around = around.reshape(-1)
                self.vectors.index_add_(0, around, self.lowered(of_h, around), alpha=rate)
                self.vectors.index_add_(0, batch.around, self.lowered(of_inputs, batch.around), alpha=rate)
            self.nodes.index_add_(0, nodes.view(-1), of_nodes, alpha=rate)
            self.top.add_(of_top.mul_(self.tree.rates(self.words)), alpha=rate)
        return measured

    def _top_of_means(self, h: Tensor, signs: Tensor, measure: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The slopes of h and of the top nodes: [[.]] σ(-[[.]] u·h), and 0 for nodes that are not on the path."""
        scores = torch.mm(h, self.top.T).mul_(signs)
        loss = (softplus(-scores) * signs.abs()).sum() if measure else scores.new_zeros(())
        slopes = scores.neg_().sigmoid_().mul_(signs)
        return slopes @ self.top, slopes.T @ h, loss

    def _top_of_each(self, bands: Tensor, signs: Tensor, measure: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The same for each vector by itself: a node counts for all words that are told from it, whose windows it is in."""
        size = len(self.top)
        self.told.bands.copy_(bands)
        torch.abs(signs, out=self.told.rows[:, :size])
        torch.clamp(signs, min=0, out=self.told.rows[:, size:])
        met, left = self.told().split(size, 1)
        scores = self.rows @ self.top.T
        loss = (softplus(scores) * met - scores * left).sum() if measure else scores.new_zeros(())
        slopes = torch.addcmul(left, scores.sigmoid_(), met, value=-1)
        return slopes @ self.top, slopes.T @ self.rows, loss


def update_for(
    model: Word2Vec, words: int, group: int, tree: TreeTables | None = None, rates: Tensor | None = None
) -> Update:
    """The update of so many words; negatives are shared by `group` of them. `rates` [V, 1] lower those of frequent words."""
    if model.config.objective == "tree":
        assert tree is not None
        return Tree(model, words, tree, rates)
    kind = SkipGramNegative if model.config.architecture == "skipgram" else CBOWNegative
    return kind(model, words, group, rates)
