"""word2vec: "Efficient Estimation of Word Representations in Vector Space", Mikolov, Chen, Corrado and Dean 2013 (skip-gram and
CBOW), and "Distributed Representations of Words and Phrases and their Compositionality", Mikolov et al. 2013 (negative
sampling, subsampling).

Every word has a vector v_w and takes part in the output by another. From h, a word o is to be told:

    skip-gram    h = v_c, for every word o in the window around c        (2013b, equation 1)
    CBOW         h = mean of v_w over the words w in the window around o (2013a, section 3.1)

    negative     log σ(u_o·h) + Σ_{k=1..K} E_{w_k ~ P_n} log σ(-u_{w_k}·h),   P_n(w) ∝ count(w)^0.75     (2013b, equation 4)
    tree         p(o | h) = Π_j σ([[n(o, j+1) = left child of n(o, j)]] u_{n(o,j)}·h)                    (2013b, equation 3)

with [[x]] = 1 if x, else -1, and n(o, j) the inner nodes on the way from the root of a Huffman tree to o.

The window of each word reaches 1 .. W words to both sides, drawn anew every time, and ends with the document. Before windows
are looked at, a word of relative frequency f is dropped unless it is drawn with probability √(t/f) + t/f.

Departs (from the papers, and from their C code, whose defaults are the defaults here):
- Subsampling keeps with √(t/f) + t/f, as the C code does; the paper has √(t/f).
- CBOW divides the sum of the vectors by their number, but gives the undivided gradient to each, as the C code does: that of
  h, times their number.
- Negatives are shared: `shared` words are drawn for 128 words of the text and weighted K/shared, so that the expected gradient
  is that of K negatives for each pair. A negative that is the word to be told counts 0 there, as in the C code.
- Up to some thousand words are gone through at once, as products and sums of rows, and their gradients added up
  (`training/word2vec_updates.py`); words that come more than a few times among them have a lower rate, so that the sum does not
  overshoot. The C code changes its vectors after each pair.
- Nodes near the root of the tree are met by nearly all words of such a batch: beyond 64 changes at once, or
  fewer in a text of few words, their rate is lowered.
- In skip-gram with negative sampling the word in the middle is the input, as in the paper; in the C code, the words around it.
  Over a text, both are the same pairs. With the tree it is as in the C code.
- σ is computed; the C code has a table, of [-6, 6], beyond which the tree's nodes are not changed. P_n is exact: the C code has a
  table of 10^8 words.
- The learning rate is that of the step (`train.batch_tokens` words); the C code's falls every 10,000 words.
- A document's end is no word: the C code learns a vector for "</s>".
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError, ModelError
from regard.layers.huffman import Paths, huffman_paths
from regard.models.base import MODELS, Capability, Limits

SIZES = {"width": (1, 1 << 14), "window": (1, 64), "negatives": (1, 1024), "shared": (1, 4096)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Word2VecConfig:
    """Sizes and choices of word2vec."""

    name: Literal["word2vec"] = "word2vec"
    architecture: Literal["skipgram", "cbow"] = "skipgram"
    objective: Literal["negative", "tree"] = "negative"  # tree: hierarchical softmax
    width: int = 100
    window: int = 5  # W: words on each side, at most
    negatives: int = 5  # K, for each pair
    shared: int = 32  # negatives that 128 words of the text share, weighted as K for each pair
    sample: float = 1e-3  # t: words more frequent than this are dropped now and then; 0: none
    power: float = 0.75  # of counts, for the distribution of negatives

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES)
        for name, most in (("sample", 1.0), ("power", 4.0)):
            if not 0 <= getattr(self, name) <= most:
                what = f"{getattr(self, name)} is not from 0 to {most:g}"
                raise ConfigError(f"setting model.{name}", what, "Give for example 0.75" if most > 1 else "Give 1e-3")


@MODELS.register("word2vec")
class Word2Vec(nn.Module):
    """A table of word vectors, and what they are trained with: the words' other vectors, or those of a tree's inner nodes.

    It has no forward pass over a text: `training/word2vec_updates.py` changes the tables.
    """

    Config = Word2VecConfig
    capabilities: ClassVar[frozenset[Capability]] = frozenset({"embeds"})
    depths: ClassVar[tuple[str, ...]] = ()
    counts: Tensor

    def __init__(self, config: Word2VecConfig, *, vocabulary: int):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.width)  # v
        nn.init.uniform_(self.embedding.weight, -0.5 / config.width, 0.5 / config.width)
        if config.objective == "tree":
            self.nodes = nn.Embedding(max(1, vocabulary - 1), config.width)  # u of inner nodes
            nn.init.zeros_(self.nodes.weight)
        else:
            self.output = nn.Embedding(vocabulary, config.width)  # u of words
            nn.init.zeros_(self.output.weight)
        # how often each word occurs in the text that it was first trained on: the tree is made of it
        self.register_buffer("counts", torch.zeros(vocabulary, dtype=torch.long))

    @property
    def limits(self) -> Limits:
        return Limits()

    def parameters_count(self) -> int:
        return sum(p.numel() for p in self.parameters())

    def paths(self) -> Paths:
        """Where the tree's paths go."""
        if self.config.objective != "tree":
            raise ModelError("model.objective=negative", "there is no tree of words", "Train with model.objective=tree")
        return huffman_paths(self.counts.cpu())

    def tree_log_probs(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """log p(w | h) of all words by the tree (2013b, equation 3); -inf for words that never occur."""
        paths = Paths(*(part.to(hidden.device) for part in self.paths()))
        scores = (hidden @ self.nodes.weight.T)[:, paths.nodes]  # [N, V, P]
        steps = functional.logsigmoid(paths.signs * scores) * (paths.signs != 0)
        return steps.sum(2).masked_fill(paths.lengths == 0, -torch.inf)
