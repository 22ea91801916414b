"""Small random language models for tests, one that carries its state and one that reads windows, and tokenizers for them."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.core.tree import State
from regard.data.tokenizer_training import TokenizerConfig
from regard.data.tokenizers import TokenizerPair
from regard.layers.output import SoftmaxOutput
from regard.models.base import LanguageModel, Limits, NoMemory, Recorder

WIDTH = 12
LINES = ["the cat sat on the mat", "the dog sat", "a cat and a dog, and the mat", "naïve Ärger – don't!"]


@dataclasses.dataclass
class ToyState(State):
    hidden: Tensor  # [B, K, D]


class ToyTextModel(LanguageModel):
    """A recurrent net of tanh."""

    carries: ClassVar[bool] = True

    def __init__(self, vocabulary: int, seed: int = 0, limit: int | None = None, sharpness: float = 1.5):
        super().__init__()
        self.limit = limit
        self.embedding, self.recur = nn.Embedding(vocabulary, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.output = SoftmaxOutput(WIDTH, vocabulary)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(0, 1 / WIDTH**0.5, generator=generator)
            self.embedding.weight.mul_(4)
            self.output.weight.mul_(sharpness * 2)
        self.eval()

    @property
    def limits(self) -> Limits:
        return Limits(target=self.limit)

    def begin(self, rows: int, *, beams: int = 1, capacity: int = 256) -> ToyState:
        return ToyState(self.embedding.weight.new_zeros(rows, beams, WIDTH))

    def advance(
        self, tokens: Tensor, memory: NoMemory, state: ToyState, record: Recorder | None = None
    ) -> tuple[Tensor, ToyState]:
        hidden, steps = state.hidden, []
        for column in tokens.unbind(-1):
            hidden = (self.embedding(column) + 1.5 * self.recur(hidden)).tanh()
            steps.append(hidden)
        return torch.stack(steps, 2), ToyState(hidden)


class ToyWindowModel(ToyTextModel):
    """The same, read in windows."""

    carries: ClassVar[bool] = False


def toy_tokenizers(kind: Any = "bpe", lines: list[str] = LINES, **settings: Any) -> TokenizerPair:
    return TokenizerPair.train_on_text(
        lines * 3, TokenizerConfig(kind=kind, **{"size": 60, "min_count": 1, **settings})
    )
