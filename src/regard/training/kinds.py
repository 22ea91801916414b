"""The kinds of text that runs are trained on, and which models read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.core.errors import ConfigError
from regard.data.corpus_config import DataConfig
from regard.models.base import MODELS, Capability


@dataclass(frozen=True)
class Kind:
    """One kind of text. `idle` are settings, by section, that would silently do nothing for it."""

    name: str  # as of the setting in the data section, and of the option
    readers: frozenset[Capability]  # what models of it can do; empty: those that can do none of the others' things
    default: str  # the model of a run that names none
    need: str  # what is said of text of another kind
    give: str  # how to give text of this kind
    idle: dict[str, tuple[str, ...]]


_NO_PAIRS = {"data": ("source_language", "target_language"), "tokenizer": ("joint",)}
PAIRS = Kind("pairs", frozenset(), "", "translates: it needs pairs", "give --src and --tgt", {})
TEXT = Kind(
    "text",
    frozenset({"continues", "fills", "embeds"}),
    "gpt",
    "learns from plain text",
    "give --text, or set data.text",
    {**_NO_PAIRS, "train": ("max_tokens", "valid_sentences", "metrics", "mixed_lengths")},
)
LABELLED = Kind(
    "labelled",
    frozenset({"classifies", "composes"}),
    "gpt-classifier",
    "learns from labelled text",
    "give --labelled, or set data.labelled",
    {**_NO_PAIRS, "train": ("valid_sentences", "metrics")},
)
TAGGED = Kind(
    "tagged",
    frozenset({"tags"}),
    "recurrent-tagger",
    "learns from tagged text",
    "give --tagged, or set data.tagged",
    {**_NO_PAIRS, "train": ("valid_sentences", "metrics")},
)
KINDS = (TEXT, LABELLED, TAGGED, PAIRS)


def kind_given(data: DataConfig) -> Kind:
    return next((kind for kind in (TEXT, LABELLED, TAGGED) if getattr(data, kind.name)), PAIRS)


def kind_read(model: str) -> Kind:
    """What a model reads, by its name."""
    capabilities = MODELS.get(model).capabilities
    return next((kind for kind in KINDS if kind.readers & capabilities), PAIRS)


def begins_with(name: Any) -> str:
    """The model whose weights the body of a classifier or tagger can begin with; empty for all others."""
    return getattr(MODELS.get(name), "begins_with", "") if isinstance(name, str) else ""


def model_after(theirs: str, kind: Kind) -> str:
    """The model for labelled or tagged text that can begin with another's weights."""
    if kind.readers & MODELS.get(theirs).capabilities:
        return theirs
    for name in MODELS.names():
        if begins_with(name) == theirs and kind.readers & MODELS.get(name).capabilities:
            return name
    known = sorted(
        {begins_with(name) for name in MODELS.names() if kind.readers & MODELS.get(name).capabilities} - {""}
    )
    what = f"no model for {kind.name} text can begin with {theirs}"
    raise ConfigError("train", what, f"Start from a {' or a '.join(known)}" if known else "Leave --from out")
