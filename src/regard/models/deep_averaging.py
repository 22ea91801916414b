"""The deep averaging network: "Deep Unordered Composition Rivals Syntactic Methods for Text Classification", Iyyer et al. 2015.
With `layers=0`, the classifier of fastText: "Bag of Tricks for Efficient Text Classification", Joulin et al. 2016 (1607.01759).

One to one: a text becomes one vector of a fixed size, whatever its length and order, and that vector becomes a label.

    z_0 = mean of the vectors of the words, some of which are left out in training (word dropout)
    z_i = g(W_i z_{i-1} + b_i),   P(y | x) = softmax(W_s z_n + b)                                    (2015, sections 2 and 3)

fastText has no hidden layer, but counts pairs of neighbouring words as words too, in `bigrams` rows of a hashed table (2016, 2.2).

Departs:
- The 2015 paper begins with GloVe vectors; here vectors start at random unless train.vectors names a file.
- g is ReLU unless `activation` says tanh.
- Dropout on the hidden layers, beside word dropout: the paper uses word dropout alone (`classifier_dropout=0`).
- Of two texts each has its mean, z_0 = a + M b with a matrix M more, so that it is known which is which; EOS, which stands
  between them, is a word of neither. With one text z_0 = a, as in the papers.
- Pairs of neighbours do not cross from one text into the other. The hash is another than fastText's.
- The papers train with AdaGrad (2015) and with plain gradient descent (2016); any optimizer can be used here.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.types import EOS, PAD, Padded
from regard.layers.output import SoftmaxOutput
from regard.models.base import MODELS, Forced, Recorder
from regard.models.classifier import Classifier

SIZES = {
    "embedding": (1, 1 << 14),
    "width": (1, 1 << 14),
    "layers": (0, 1000),
    "bigrams": (0, 1 << 26),
}
_FACTOR = 1_000_003  # of the first word's number in the hash of a pair; odd, and beyond most vocabularies


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeepAveragingConfig:
    """Sizes and choices of a deep averaging network. fastText's: layers 0, bigrams 10000000, no dropout."""

    name: Literal["deep-averaging"] = "deep-averaging"
    embedding: int = 300  # of words
    width: int = 300  # of the hidden layers
    layers: int = 2  # hidden ones
    bigrams: int = 0  # rows for hashed pairs of neighbouring words; 0: none
    activation: Literal["relu", "tanh"] = "relu"  # g
    dropout: float = 0.3  # of whole words, before the mean
    classifier_dropout: float = 0.2  # of the hidden layers and of what the label is read from

    def __post_init__(self) -> None:
        check_bounds("model", self, SIZES, parts=("dropout", "classifier_dropout"))


@MODELS.register("deep-averaging")
class DeepAveraging(Classifier):
    """The mean of word vectors, and a feed-forward network that reads a label from it."""

    Config = DeepAveragingConfig

    def __init__(self, config: DeepAveragingConfig, *, vocabulary: int, labels: int):
        super().__init__()
        self.config = config
        m, d = config.embedding, config.width
        self.embedding = nn.Embedding(vocabulary, m)
        self.bigrams = nn.Embedding(config.bigrams, m) if config.bigrams else None
        self.second = nn.Linear(m, m, bias=False)  # M
        self.hidden = nn.ModuleList(nn.Linear(m if i == 0 else d, d) for i in range(config.layers))  # W_i, b_i
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.output = SoftmaxOutput(d if config.layers else m, labels, never=(PAD,))  # W_s
        self._initialise()

    def _initialise(self) -> None:
        """Vectors from N(0, 1): the mean of a text's is as small as the text is long; matrices by Glorot's rule."""
        for p in self.hidden.parameters():
            if p.dim() == 1:
                nn.init.zeros_(p)
            else:
                nn.init.xavier_uniform_(p)
        nn.init.orthogonal_(self.second.weight)

    def forward(self, source: Padded, target: Int[Tensor, "B 1"], record: Recorder | None = None) -> Forced:
        tokens = source.tokens
        words = source.keep & (tokens != EOS)
        behind = (tokens == EOS).cumsum(1) > 0  # the second text
        x, seen = self.embedding(tokens), words
        if self.bigrams is not None:  # the pair of a word and the one before it in the same text
            pairs = words & (torch.cat((torch.zeros_like(words[:, :1]), words[:, :-1]), 1))
            hashed = (tokens.roll(1, 1) * _FACTOR + tokens) % self.config.bigrams
            x, seen, behind = torch.cat((x, self.bigrams(hashed)), 1), torch.cat((words, pairs), 1), behind.repeat(1, 2)
        if self.training and self.config.dropout:
            seen = seen & (torch.rand(seen.shape, device=seen.device) >= self.config.dropout)
        z = _mean(x, seen & ~behind) + self.second(_mean(x, seen & behind))  # z_0
        for layer in self.hidden:
            z = layer(self.dropout(z))
            z = z.tanh() if self.config.activation == "tanh" else z.relu()
        return Forced(self.dropout(z)[:, None], {})


def _mean(x: Float[Tensor, "B N D"], seen: Bool[Tensor, "B N"]) -> Float[Tensor, "B D"]:
    """Of what is seen; 0 where nothing is."""
    seen = seen[..., None]
    return torch.where(seen, x, 0).sum(1) / seen.sum(1).clamp(min=1)
