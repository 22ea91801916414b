"""Small models with random weights as `regard.load` would give them, of every kind that is exported."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from regard.core.config import to_plain
from regard.core.search_config import SearchConfig
from regard.core.types import BOS, EOS, PAD, UNK
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair
from regard.data.wordpiece import MASK
from regard.exchange.huggingface_files import write_run
from regard.exchange.parity_sides import live_model
from regard.models.base import MODELS, build_model
from regard.tasks.classification import TextClassifier
from regard.tasks.language_model import TextModel
from regard.tasks.masked import MaskedText
from regard.tasks.tagging import TextTagger
from regard.tasks.translation import Translator

LINES = [
    "The river is high after the rain.",
    "Nobody saw the small boat leave!",
    "Why did the lamp go out?",
    "Bread, salt and a little oil.",
]
OTHERS = [line[::-1] for line in LINES]
SIZES: dict[str, Any] = {"width": 16, "layers": 2, "heads": 4}


@functools.cache
def tokenizer(side: int = 0, kind: str = "bpe", tags: tuple[str, ...] = ()) -> Tokenizer:
    return Tokenizer.train(
        [LINES, OTHERS][side] * 3,
        TokenizerConfig(kind=kind, size=(280 if kind == "bytebpe" else 100) + 10 * side),
        tags,
    )  # type: ignore[arg-type]


def pair(joint: bool = True, **options: Any) -> TokenizerPair:
    one = tokenizer(**options)
    return TokenizerPair(one, one if joint else tokenizer(1), joint)


def sentences(folder: Path) -> Path:
    path = folder / "lines.txt"
    path.write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    return path


def shaken(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn_like(parameter)
    return model.eval()


def translator(joint: bool = True, search: SearchConfig | None = None, **settings: Any) -> Translator:
    torch.manual_seed(0)
    both = pair(joint)
    name = settings.pop("name", "transformer")
    sizes = {**SIZES, "inner": 24} if name == "transformer" else {"width": 16}
    config = MODELS.get(name).Config(**{**sizes, "dropout": 0.0, **settings})
    model = build_model(
        name, config, source_vocabulary=both.source.size, target_vocabulary=both.target.size, shared=joint
    )
    shaken(model)
    with torch.no_grad():  # as in a trained model: some tokens are never written, and texts end
        model.output.weight *= 0.5
        model.output.bias[[PAD, BOS, UNK]] = -1e4
        model.output.bias[EOS] += 2.5
    return Translator(
        model, both, search or SearchConfig(beam=4, length_norm="plain", alpha=2.0, max_repeat=0, max_length=16)
    )


def gpt(**settings: Any) -> TextModel:
    torch.manual_seed(0)
    both = pair(kind="bytebpe" if settings.get("silent") else "bpe")
    config = MODELS.get("gpt").Config(**{**SIZES, "context": 60, **settings})
    return TextModel(
        shaken(build_model("gpt", config, source_vocabulary=0, target_vocabulary=both.target.size, shared=True)), both
    )


def bert(name: str = "bert", two_texts: bool = False, **settings: Any) -> Any:
    torch.manual_seed(0)
    both = pair(kind="wordpiece" if name == "bert" else "bpe", tags=(MASK,) if name == "bert" else ())
    labels = ["good", "bad", "so-so"]
    config = MODELS.get(name).Config(**{**SIZES, "context": 80, **settings})
    model = shaken(
        build_model(
            name,
            config,
            source_vocabulary=both.source.size,
            target_vocabulary=both.target.size if name == "bert" else len(labels) + 1,
            shared=True,
        )
    )
    if name == "bert":
        return MaskedText(model, both, config={"labels": []})
    about = {"labels": labels, "two_texts": two_texts}
    if name == "bert-tagger":
        return TextTagger(model, both, labels, config=about)
    return TextClassifier(model, both, labels, two_texts=two_texts, config=about)


def run_folder(task: Translator, place: Path) -> Path:
    """A translator as a finished run."""
    model, both = live_model(task), task.tokenizers
    sizes = {"source": both.source.size, "target": both.target.size, "shared": both.joint}
    search = {"beam": 4, "length_norm": "plain", "alpha": 2.0, "max_length": 16}
    config = {"format": 1, "resolved": True, "model": to_plain(model.config), "search": search, "vocabulary": sizes}
    write_run(place, place, model, both, {"data": {}, "tokenizer": {}, **config})
    return place
