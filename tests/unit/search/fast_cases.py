"""Models and settings by which fast steps are compared with plain ones; also for Triton's interpreter (see test_fast_steps)."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any
from unittest.mock import Mock

import torch

from regard.core import config as configuration
from regard.core.types import EOS, pad_rows
from regard.layers.decoding import kernel_choice, looking_logits, products
from regard.models.base import MODELS, build_model
from regard.search import Hypothesis, SearchConfig, fast_steps, search, search_many

V = 150
SMALL = {"width": 16, "layers": 2, "heads": 2, "inner": 20}
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "pre": {"name": "transformer", **SMALL},
    "post": {"name": "transformer", "norm": "post", "activation": "gelu", **SMALL},
    "rms untied": {"name": "transformer", "normalise": "rms", "tie": "none", "activation": "swish", **SMALL},
    "post rms, learned": {"name": "transformer", "norm": "post", "normalise": "rms", "positions": "learned", **SMALL},
    "unscaled": {"name": "transformer", "scaling": False, "positions": "none", **SMALL},
    "rotary": {"name": "transformer", "positions": "none", "relative": "rotary", **SMALL},
    "odd sizes": {"name": "transformer", "width": 24, "layers": 1, "heads": 3, "inner": 37},
    "gpt": {"name": "gpt", "width": 16, "layers": 2, "heads": 2, "context": 60},
    "gpt post": {"name": "gpt", "norm": "post", "tie": False, "width": 16, "layers": 2, "heads": 2, "context": 60},
    "gpt, rotary": {
        "name": "gpt", "relative": "rotary", "rotary_layout": "halves", "rotary_base": 50.0, "positions": "none", "kv_heads": 2,
        "width": 24, "layers": 2, "heads": 4, "context": 60,
    },
    "gpt, few biases": {
        "name": "gpt", "bias": False, "silent": True, "kv_heads": 2, "width": 16, "layers": 1, "heads": 4, "context": 60,
    },
}  # fmt: skip
LIMITS: dict[str, Any] = {"max_ratio": 1.0, "max_extra": 6, "max_length": 14, "fused": True}
SEARCHES = {
    "greedy": SearchConfig(beam=1, **LIMITS),
    "greedy, long": SearchConfig(beam=1, min_length=9, max_repeat=1, ban_unknown=False, **LIMITS),
    "beam": SearchConfig(beam=3, nbest=3, **LIMITS),
    "beam, exact": SearchConfig(beam=4, nbest=2, stop="exact", min_length=3, max_repeat=1, alpha=1.0, **LIMITS),
    "beam, no loops": SearchConfig(beam=2, nbest=2, max_repeat=0, length_norm="plain", **LIMITS),
    "one, exact": SearchConfig(beam=1, stop="exact", **LIMITS),
}
OTHERS = {
    "n-grams": SearchConfig(beam=2, nbest=2, no_repeat_ngram=2, **LIMITS),
    "sample": SearchConfig(method="sample", nbest=2, top_p=0.9, **LIMITS),
}


def make(name: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    settings = MODEL_SETTINGS[name]
    config = configuration.build(MODELS.get(settings["name"]).Config, settings, "model")
    model = build_model(settings["name"], config, source_vocabulary=V, target_vocabulary=V, shared=False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def texts(count: int, seed: int, longest: int = 8) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [[*torch.randint(4, V, (n,), generator=generator).tolist(), EOS] for n in lengths]


def plainly(config: SearchConfig) -> SearchConfig:
    return dataclasses.replace(config, fused=False, capture=False)


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], apart: float = 1e-5) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert abs(one.score - other.score) <= apart * max(1.0, abs(other.score))
            for a, b in zip(one.token_log_probs, other.token_log_probs, strict=True):
                assert abs(a - b) <= apart * max(1.0, abs(b))


def compare(
    model: Any, config: SearchConfig, rows: int = 4, forced: bool = False, ways: tuple[str, ...] = ("batch", "slots")
) -> None:
    """A batch, with and without forced prefixes, and sentences that enter and leave."""
    sources = texts(rows, 1)
    prompted = "continues" in model.capabilities
    prefixes = [[4 + i % 5, 7][: i % 3] for i in range(rows)] if forced else [[5] if prompted else []] * rows
    expected = [search(model, pad_rows([s]), plainly(config), [p])[0] for s, p in zip(sources, prefixes, strict=True)]
    if "batch" in ways:
        same(search(model, pad_rows(sources), config, prefixes), expected)
    if "slots" in ways:
        found = dict(search_many(model, sources, config, prefixes, rows=2))
        same([found[i] for i in range(rows)], expected)
    assert fast_steps.works(model)


def main() -> None:
    """All of it by kernels, where TRITON_INTERPRET=1: for two limits of few rows, or others.

    These are those of sub-layers (--whole), few rows that meet the vocabulary in tensor cores (--tiles), or those of many rows
    (--many, and with a product that looks at its logits --looks), with memory that is full of nan where nothing was written.
    """
    fast_steps.DEVICES.add("cpu")
    products.PROGRAMS = 1  # interpreted, a program takes as long as it would with more to do
    torch.set_num_threads(1)
    whole, tiles, looks = (f"--{word}" in sys.argv for word in ("whole", "tiles", "looks"))
    many = looks or "--many" in sys.argv
    kernel_choice.FORCED |= {
        "whole": whole,
        "tiles": tiles,
        "narrow": many,
        "aligned": many,
        "looks": looks,
    }
    kernel_choice.FEWEST_NARROW = kernel_choice.FEWEST_LOOKING = 1
    torch.use_deterministic_algorithms(many)
    looking_logits.launch = launched = Mock(wraps=looking_logits.launch)
    for name, search_name in (pair.split("/") for pair in sys.argv[1:] if not pair.startswith("--")):
        MODEL_SETTINGS[name]["layers"] = 1
        for few, way in ((0 if many else 64, "batch"), *([] if whole or tiles else [(0, "slots")])):
            fast_steps.FEW_ROWS = few
            config = dataclasses.replace(SEARCHES[search_name], max_length=4, min_length=0)
            model = make(name)
            with torch.inference_mode():
                compare(model, config, rows=2, ways=(way,))
            assert not fast_steps.left_out(model)
    assert launched.called == looks
    print("same")


if __name__ == "__main__":
    main()
