"""Text written from a label, with whatever model a run folder holds that composes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.types import EOS, pad_rows
from regard.core.visible_text import visible
from regard.data.tokenizers import TokenizerPair
from regard.models.base import Writer
from regard.search.config import SearchConfig
from regard.search.search import search
from regard.tasks.folder import labels_of, load_model

Method = Literal["greedy", "sample", "beam"]
USUAL_TOKENS = 200  # most of a text, where nobody says how many


@dataclasses.dataclass(frozen=True)
class Composition:
    """A text that was written from a label. Where it is not finished, it was cut at the most tokens."""

    text: str
    log_prob: float
    finished: bool

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class TextComposer:
    """A model that writes texts from labels, with its tokenizers. `regard.load(folder)` makes one."""

    def __init__(
        self,
        model: Writer,
        tokenizers: TokenizerPair,
        labels: Sequence[str],
        search: SearchConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        folder: Path | None = None,
        config: dict[str, Any] | None = None,
    ):
        if "composes" not in model.capabilities:
            raise ModelError(type(model).__name__, "this model does not write from labels", "Use a label-writer")
        self.model, self.tokenizers, self.labels = model.to(device), tokenizers, tuple(labels)
        self.search = search or SearchConfig(max_length=USUAL_TOKENS)
        self.device, self.folder, self.config = torch.device(device), folder, config or {}

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> TextComposer:
        """The model of a run folder."""
        folder = Path(folder)
        chosen = choose_device(device)
        model, tokenizers, config = load_model(folder)
        settings = configuration.build(SearchConfig, config.get("search", {}), "search")
        labels = labels_of(config, folder) if "composes" in model.capabilities else ()
        return cls(model, tokenizers, labels, settings, device=chosen, folder=folder, config=config)

    def write(
        self,
        label: str,
        samples: int = 1,
        *,
        method: Method | None = None,
        max_tokens: int | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 1,
        beam: int | None = None,
    ) -> list[Composition]:
        """Texts for a label: drawn at random, unless a method or a beam says otherwise. A label that is not known is an error."""
        chosen = method or ("beam" if beam is not None else "sample")
        if chosen not in ("greedy", "sample", "beam"):
            raise ConfigError("method", f"{chosen!r} is not one of greedy, sample, beam", "Choose one of them")
        if chosen == "greedy" and samples != 1:
            what = f"{samples} texts, and the likeliest next token gives only one"
            raise ConfigError("samples", what, "Use another method")
        if beam is not None and chosen != "beam":
            raise ConfigError(
                "beam", f"it is for a beam search, and the method is {chosen}", "Leave one of the two out"
            )
        width = {"greedy": 1, "sample": self.search.beam}.get(chosen, max(samples, beam or self.search.beam))
        changes: dict[str, Any] = {
            "method": "sample" if chosen == "sample" else "beam",
            "beam": width,
            "nbest": samples,
            "max_ratio": 0.0,  # how long a text is has nothing to do with how long its label is
            "max_extra": 1_000_000,
            "max_length": self.search.max_length if max_tokens is None else max_tokens,
            "max_repeat": 0,
            "coverage": 0.0,
        }
        drawn = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
        settings = dataclasses.replace(self.search, **changes, **drawn)
        source = pad_rows([[*self.tokens_of(label), EOS]]).to(self.device)
        self.model.eval()
        with torch.inference_mode():
            found = search(self.model, source, settings)[0]
        texts = self.tokenizers.target.decode([h.tokens for h in found])
        return [Composition(text, h.log_prob, h.finished) for text, h in zip(texts, found, strict=True)]

    def tokens_of(self, label: str) -> list[int]:
        """The tokens of a label that the model was trained with."""
        if label not in self.labels:
            shown = ", ".join(map(repr, self.labels[:10])) + (", ..." if len(self.labels) > 10 else "")
            what = f"the model was not trained with it; it knows {shown}"
            raise DataError(f"label {visible(str(label), 60)!r}", what, "Give one of these")
        return self.tokenizers.source.encode([label])[0]
