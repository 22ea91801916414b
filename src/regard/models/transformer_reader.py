"""What Transformers that name labels share: the encoder of "Attention Is All You Need" (transformer.py) and nothing behind it.

Departs: as transformer.py. `token_dropout` leaves out whole words in training, as in recurrent_reader.py. Dropout is larger by
default: labelled text is small.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.bounds import check_bounds
from regard.core.errors import ModelError
from regard.core.types import Padded
from regard.layers.attention.relative import Places
from regard.layers.normalise import normaliser
from regard.layers.positions import make_positions
from regard.models.base import Recorder
from regard.models.recurrent_reader import without_tokens
from regard.models.transformer import BlockConfig, EncoderLayer, counted_tokens, relative_stack, start_layers

LABEL_START = 0.02  # the deviation that output layers over labels start from: states are about as long as √width


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerReaderConfig(BlockConfig):
    """Sizes and choices of a Transformer that reads."""

    dropout: float = 0.2
    token_dropout: float = 0.0  # of whole words
    classifier_dropout: float = 0.2  # of the states that labels are read from

    def __post_init__(self) -> None:
        check_bounds("model", self, {}, parts=("token_dropout", "classifier_dropout"))
        super().__post_init__()


class TransformerBody(nn.Module):
    """Words with positions, and the layers of an encoder. With `first`, a vector of its own stands before every text."""

    def __init__(self, config: TransformerReaderConfig, vocabulary: int, first: bool = False):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.width)
        nn.init.normal_(self.embedding.weight, std=config.width**-0.5)
        self.first = nn.Parameter(torch.empty(1, 1, config.width)) if first else None
        if self.first is not None:
            nn.init.normal_(self.first, std=config.width**-0.5)
        self.positions = make_positions(config.positions, config.width, config.max_length)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.relative = relative_stack(config, config.layers, causal=False)
        self.norm = normaliser(config.normalise if config.norm == "pre" else None, config.width, config.norm_epsilon)
        start_layers(config, self.encoder, 2)

    @property
    def limit(self) -> int | None:
        """Most tokens of a text."""
        limit = self.positions.limit
        return limit if limit is None or self.first is None else limit - 1

    def states(self, source: Padded, record: Recorder | None = None) -> Float[Tensor, "B N D"]:
        """The last layer's states, that of the first vector before the others. A recorder gets those of all layers."""
        counted, keep = counted_tokens(source), source.keep
        x = without_tokens(self.embedding(source.tokens), self.config.token_dropout, self.training)
        if self.first is not None:
            x = torch.cat((self.first.expand(x.shape[0], -1, -1), x), 1)
            counted, keep = (torch.cat((one[:, :1], one), 1) for one in (counted, keep))
        length, device = x.shape[1], x.device
        if self.limit is not None and source.tokens.shape[1] > self.limit:
            what = f"{source.tokens.shape[1]} tokens are more than the {self.limit} that the model has positions for"
            raise ModelError("the text", what, "Give shorter text, or train with a larger model.max_length")
        places = torch.arange(length, device=device)
        x = x * math.sqrt(self.config.width) + self.positions(places, length, keep).to(x.dtype)
        found, x = [x], self.dropout(x)
        relative = [None] * len(self.encoder)
        if self.relative is not None:
            relative = self.relative(Places.whole_sequence(length, device))
        mask = None if source.mask is None else keep[:, None, None, :]
        for i, layer in enumerate(self.encoder):
            x, weights = layer(x, mask, record is not None, relative[i], counted)
            found.append(x)
            if record is not None and weights is not None:
                record.add(f"encoder.{i}.self", weights)
        found[-1] = self.norm(x, counted)
        if record is not None:
            for i, states in enumerate(found):
                record.add(f"reader.{i}.states", states)
        return found[-1]
