"""A small random model that keeps the Writer contract, and whose state matters: a wrong reordering changes its text."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.core.tree import Memory, State
from regard.core.types import EOS, PAD, Padded, pad_rows
from regard.layers.output import OutputLayer, Sums
from regard.models.base import Forced, Limits, Recorder, Writer

WIDTH = 12


class ToyOutput(OutputLayer):
    """A plain linear layer and log-softmax."""

    def __init__(self, width: int, vocabulary: int):
        super().__init__()
        self.vocabulary = vocabulary
        self.linear = nn.Linear(width, vocabulary)

    def loss(self, hidden: Tensor, target: Tensor, smoothing: float = 0.0) -> Sums:
        nll = -self.scores(hidden).gather(-1, target[..., None])[..., 0][target != PAD]
        return Sums(nll.sum(), nll.sum(), torch.tensor(len(nll)))

    def scores(self, hidden: Tensor) -> Tensor:
        return self.linear(hidden).float().log_softmax(-1)


@dataclasses.dataclass
class ToyMemory(Memory):
    keys: Tensor  # [B, S, D]
    keep: Tensor  # [B, S]


@dataclasses.dataclass
class ToyState(State):
    recurrent: Tensor  # [B, K, D]
    position: Tensor  # [B, K]


class ToyWriter(Writer):
    """A recurrent net with dot attention; EOS gets likelier with the position, so that texts end at varied lengths."""

    capabilities: ClassVar[Any] = frozenset({"translates", "attends"})

    def __init__(self, seed: int = 0, vocabulary: int = 9, target_limit: int | None = None, hurry: float = 0.5):
        super().__init__()
        self.target_limit, self.hurry = target_limit, hurry
        self.source = nn.Embedding(vocabulary, WIDTH)
        self.target = nn.Embedding(vocabulary, WIDTH)
        self.recur, self.join = nn.Linear(WIDTH, WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.output = ToyOutput(WIDTH + 1, vocabulary)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(0, 1.5 / WIDTH**0.5, generator=generator)
            self.source.weight.mul_(4)
            self.target.weight.mul_(3)
            self.output.linear.weight.mul_(2)
            self.output.linear.weight[:, -1] = 0
            self.output.linear.weight[EOS, -1] = 1.0
            self.output.linear.bias[EOS] = -1.0
        self.eval()

    @property
    def limits(self) -> Limits:
        return Limits(target=self.target_limit)

    def start(self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None) -> Any:
        b, s = source.tokens.shape
        where = torch.arange(s)[:, None] * torch.arange(1, WIDTH + 1)
        keys = self.source(source.tokens) + (where * 0.3).sin().to(source.tokens.device)
        state = ToyState(keys.new_zeros(b, beams, WIDTH), keys.new_zeros(b, beams))
        return ToyMemory(keys, source.keep), state

    def advance(self, tokens: Tensor, memory: ToyMemory, state: ToyState, record: Recorder | None = None) -> Any:
        hidden, weights = [], []
        recurrent, position = state.recurrent, state.position
        for column in tokens.unbind(-1):
            recurrent = (self.target(column) + self.recur(recurrent)).tanh()
            energy = torch.einsum("bkd,bsd->bks", recurrent, memory.keys)
            weight = energy.masked_fill(~memory.keep[:, None], float("-inf")).softmax(-1)
            context = torch.einsum("bks,bsd->bkd", weight, memory.keys)
            mixed = self.join(torch.cat([recurrent, context], -1)).tanh()
            hidden.append(torch.cat([mixed, self.hurry * position[..., None]], -1))
            weights.append(weight)
            position = position + 1
        if record is not None:
            record.add("decoder.0.cross", torch.stack(weights, 2)[:, :, None])  # [B, K, 1 head, T, S]
        return torch.stack(hidden, 2), ToyState(recurrent, position)

    def forward(self, source: Padded, target: Tensor, record: Recorder | None = None) -> Forced:
        memory, state = self.start(source)
        inner = Recorder()
        hidden, _ = self.advance(target[:, None], memory, state, inner)
        if record is not None:
            record.add("decoder.0.cross", inner.tensors["decoder.0.cross"][:, 0])  # [B, 1 head, T, S]
        return Forced(hidden[:, 0], {})

    def alignment(self, record: Recorder) -> Tensor:
        return record.tensors["decoder.0.cross"].mean(-3)


class BlindWriter(ToyWriter):
    """The same without showing its attention."""

    capabilities: ClassVar[Any] = frozenset({"translates"})


def toy_source(seed: int, sentences: int, vocabulary: int = 9, longest: int = 6) -> Padded:
    """Random sources of varied lengths, ending with EOS."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(sentences):
        length = int(torch.randint(1, longest + 1, (1,), generator=generator))
        rows.append([*torch.randint(4, vocabulary, (length,), generator=generator).tolist(), EOS])
    return pad_rows(rows)
