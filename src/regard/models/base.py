"""The contracts that models keep, so that search, training, serving and the viewer are written once.

A model that writes text (from the RNN language model to the Transformer) is a `Writer`:

- `start(source)` reads the source once and gives a `Memory` (one row per sentence) and an empty `State`;
- `advance(tokens[B, K, T], memory, state)` reads T more target tokens of K hypotheses per sentence and gives their hidden
  states; with T = 1 it is a decoding step;
- `forward(source, target)` is teacher forcing: all target positions at once.

Stepping, advancing in chunks and teacher forcing agree. Models return hidden states; the output layer (`model.output`)
owns the vocabulary. Attention weights are kept only when a `Recorder` is passed in. Nothing is cached on modules.

Dimensions: B sentences, S source positions, T target positions, D width, H heads, K hypotheses per sentence, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.registry import Registry
from regard.core.tree import Memory, State
from regard.core.types import Padded
from regard.layers.cpu_products import quicken
from regard.layers.output import OutputLayer

MODELS: Registry[Any] = Registry("model", "regard.models")

# a Planner plans, a LanguageModel continues, a Classifier (classifier.py) classifies; a Tagger tags and a MaskedModel fills
# (reader.py); word vectors embed; what writes from a label composes
Capability = Literal[
    "translates", "attends", "plans", "continues", "classifies", "tags", "fills", "embeds", "composes"
]  # fmt: skip

LABELLING: frozenset[Capability] = frozenset({"classifies", "tags"})  # models whose output is over labels


class Recorder:
    """Collects named tensors while a model runs, 16 bits as float32. Passing one switches from fused to explicit attention.

    Names are `part.layer.what`, such as `decoder.1.cross`; attention weights are [B, H, T, S] in `forward`
    and [B, K, H, T, S] in `advance`.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        self.tensors[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor


class Limits(NamedTuple):
    """The longest sequences a model can read and write; None where the architecture sets no limit."""

    source: int | None = None
    target: int | None = None


class Forced(NamedTuple):
    """The result of teacher forcing: hidden states, and named auxiliary losses already weighted (mean per token)."""

    hidden: Float[Tensor, "B T D"]
    losses: dict[str, Tensor]


class Writer(nn.Module, ABC):
    """A model that writes text. See the module's docstring for the contract."""

    Config: ClassVar[type]
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    depths: ClassVar[tuple[str, ...]] = ()  # settings of how deep stacks of layers are whose layers are all alike
    config: Any
    output: OutputLayer

    @property
    def limits(self) -> Limits:
        return Limits()

    @classmethod
    def needs_float32(cls, config: Any) -> str | None:
        """Why a model of this configuration cannot write in bfloat16, in words; None where it can."""
        return "its states add up from step to step, which needs more than 16 bits"

    def forward(self, source: Padded, target: Int[Tensor, "B T"], record: Recorder | None = None) -> Forced:
        """Teacher forcing: hidden states for every position of the decoder input (which starts with BOS).

        Models that go through time step by step keep this: one `advance` over the whole target.
        """
        memory, state = self.start(source, capacity=target.shape[1])
        seen = None if record is None else Recorder()
        hidden, _ = self.advance(target[:, None], memory, state, seen)
        if record is not None and seen is not None:
            for name, tensor in seen.tensors.items():
                record.add(name, tensor[:, 0])
        return Forced(hidden[:, 0], {})

    @abstractmethod
    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[Memory, State]:
        """Reads the source. The state has room for `capacity` target tokens of `beams` hypotheses per sentence."""

    @abstractmethod
    def advance(
        self, tokens: Int[Tensor, "B K T"], memory: Any, state: Any, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K T D"], Any]:
        """Reads T more tokens of every hypothesis. Consumes the state it is given: `clone` it to keep one."""

    def step(
        self, tokens: Int[Tensor, "B K"], memory: Any, state: Any, record: Recorder | None = None
    ) -> tuple[Float[Tensor, "B K D"], Any]:
        """`advance` by one token."""
        hidden, state = self.advance(tokens[:, :, None], memory, state, record)
        return hidden[:, :, 0], state

    def alignment(self, record: Recorder) -> Float[Tensor, "B *K T S"]:
        """The recorded attention that best says which source positions each target position was written from."""
        raise NotImplementedError(f"{type(self).__name__} does not attend")

    def parameters_count(self) -> int:
        return sum(p.numel() for p in self.parameters())


class Planner(Writer):
    """A writer that has to know how long a text will be before it writes the first word of it.

    A length counts what is written, EOS included: as many tokens as `forward` is given, where the length of each row is that
    of its target without padding. P(text) = P(its length) P(text | its length), and all that score texts count both.
    """

    @abstractmethod
    def start(
        self,
        source: Padded,
        *,
        beams: int = 1,
        capacity: int = 256,
        target_length: Int[Tensor, "B"] | int | None = None,
    ) -> tuple[Memory, State]:
        """As any writer's, for texts of the given lengths (None: of each source's likeliest length).

        There is room for the length 1 and for those up to `capacity` or the model's limit. A number beyond raises ModelError; a
        tensor's, which only the device knows, are cut. What `advance` reads beyond a text's length means nothing.
        """

    @abstractmethod
    def length_scores(self, source: Padded, most: int) -> Float[Tensor, "B L"]:
        """log P(length | source) of the lengths 1 .. `most`."""


@dataclasses.dataclass
class NoMemory(Memory):
    """What a language model keeps of a source: nothing, once per text."""

    rows: Int[Tensor, "B"]


class LanguageModel(Writer):
    """A writer without a source: it goes on with the text so far.

    Of the source that `start` and `forward` are given, only the number of rows counts. A text begins with BOS, and where texts
    follow each other, the end of one is read as the BOS of the next: a model writes EOS and never reads it.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"continues"})
    carries: ClassVar[bool] = False  # in training, the state at the end of a piece of text goes on into the next piece

    def start(
        self, source: Padded, *, beams: int = 1, capacity: int = 256, target_length: int | None = None
    ) -> tuple[NoMemory, State]:
        rows = source.tokens.new_zeros(len(source.tokens))
        return NoMemory(rows), self.begin(len(rows), beams=beams, capacity=capacity)

    @abstractmethod
    def begin(self, rows: int, *, beams: int = 1, capacity: int = 256) -> State:
        """The state before the first token of each text, on the model's device."""


def build_model(name: str, config: Any, *, source_vocabulary: int, target_vocabulary: int, shared: bool) -> Any:
    """A freshly initialised model. `shared` says that both vocabularies are one, so that embeddings may be tied.

    The source vocabulary of a classifier or tagger is that of its texts, its target vocabulary the labels and the one of none.
    """
    kind = MODELS.get(name)
    if kind.capabilities & {"continues", "fills", "embeds"}:
        model = kind(config, vocabulary=target_vocabulary)
    elif kind.capabilities & LABELLING:
        model = kind(config, vocabulary=source_vocabulary, labels=target_vocabulary)
    else:
        model = kind(config, source_vocabulary=source_vocabulary, target_vocabulary=target_vocabulary, shared=shared)
    quicken(model)
    return model
