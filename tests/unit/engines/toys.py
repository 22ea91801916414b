"""Toy Transformers with random weights, as torch models and as what CTranslate2 reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from regard.core.config import to_plain
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.models.base import Writer, build_model
from regard.models.transformer import TransformerConfig
from regard.tasks.folder import weights_of

SIZES = {"width": 32, "layers": 2, "heads": 4, "inner": 48}
SOURCE = [*SPECIALS, *(f"s{i}" for i in range(46))]
TARGET = [*SPECIALS, *(f"t{i}" for i in range(56))]


def toy(shared: bool = True, ending: float = 1.0, **settings: Any) -> tuple[Writer, dict[str, Any], list[str]]:
    """A model, its section of a configuration and the tokens of its target."""
    torch.manual_seed(0)
    config = TransformerConfig(**{**SIZES, **settings})
    target = SOURCE if shared else TARGET
    model = build_model(
        "transformer", config, source_vocabulary=len(SOURCE), target_vocabulary=len(target), shared=shared
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn_like(parameter)
        model.output.bias[[PAD, BOS, UNK]] = -1e4  # as a trained model has it: never written
        model.output.bias[EOS] += ending
    return model, to_plain(config), target


def arrays(model: Writer) -> dict[str, np.ndarray]:
    """The weights themselves, not copies: who changes them changes the model."""
    return {name: tensor.detach().numpy() for name, tensor in weights_of(model).items()}


def texts(vocabulary: int, count: int, longest: int, seed: int = 1) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(len(SPECIALS), vocabulary, draw.integers(1, longest)).tolist() for _ in range(count)]
