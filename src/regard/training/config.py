"""What a run is made of: the sections of a recipe and how they come together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from regard.core import config as configuration
from regard.core.errors import ConfigError
from regard.data.augment import AugmentConfig
from regard.data.corpus_config import DataConfig
from regard.data.tokenizers import TokenizerConfig
from regard.evaluation.metrics import named_metrics
from regard.search.config import SearchConfig
from regard.training.model_section import build_model_config, config_class, models_with, settings_of

OF_LABELS = ("accuracy", "f1")  # measures of classifiers and taggers


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. The learning rate is the schedule's peak; steps are optimizer updates, counted from 1."""

    steps: int = 10_000
    batch_tokens: int = (
        4096  # per micro-batch: rows times the longer side, padding included; packed: the places of either side
    )
    accumulate: int = 1  # micro-batches per step
    max_tokens: int = 200  # longer sentences are left out of training; what classifiers read is cut
    window: int = 0  # language and masked models: tokens of a row; 0: what the model's context has room for, or 64
    seed: int = 1
    mixed_lengths: bool = False  # batches of texts of any lengths, with more padding: for model.normalise=batch
    vectors: str = ""  # a file of word vectors (word2vec's text or binary format) that the embedding table begins with
    freeze_vectors: bool = False  # the embedding table stays as it begins

    optimizer: Literal["adamw", "adam", "muon", "sgd", "adadelta", "adagrad"] = "adamw"  # sgd: without momentum
    lr: float = 1e-3
    matrix_lr: float = 0.02  # muon: for the matrices inside the layers; `lr` is for all else
    beta1: float = 0.9
    beta2: float = 0.98  # adadelta: its decay ρ
    eps: float = 1e-9
    weight_decay: float = 0.0
    clip: float = 1.0  # maximum norm of the gradient; 0 for none
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant", "steps"] = "inverse_sqrt"
    warmup: int = 1000
    hold: int = 0  # steps: the learning rate stays for so many steps,
    decay: float = 0.5  # and then is multiplied by this,
    decay_every: int = 1000  # again after so many steps
    final_lr: float = 0.0  # where cosine and linear end, as a part of lr

    label_smoothing: float = 0.1
    consistency: float = (
        0.0  # R-Drop's alpha: two dropouts of a batch are to agree; doubles the work, helps on little data
    )
    ema: float = 0.0  # decay of the exponential moving average of the weights; 0 for none
    average: int = 0  # the final weights are the mean of the last so many checkpoints; 0 for none

    save_every: int = 500  # a run that is killed loses at most so many steps
    validate_every: int = 0  # 0: whenever a checkpoint is saved
    patience: int = 0  # stop after so many validations without improvement; 0 for never
    best_by: str = "loss"  # or accuracy (of classifiers and taggers), f1 (of chunks), or a metric of translations
    select: Literal["best", "last"] = "best"  # which weights a run ends with, unless they are averaged
    valid_sentences: int = 0  # how many validation sentences are decoded for BLEU; 0: none, or 500 with best_by=bleu
    metrics: str = "bleu,chrf"  # by which translations are scored, in validation and at the end
    log_every: int = 50

    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 on CUDA, float32 elsewhere
    weights: Literal["float32", "bfloat16"] = "float32"  # bfloat16: all of a step is, beside float32 weights that learn
    fused: bool = (
        True  # on CUDA, layers of Transformers and GPTs by kernels of their own, where these know all their parts
    )
    packed: Literal["auto", True, False] = (
        "auto"  # sentence pairs one behind the other, without padding; auto: on one GPU, layers fused, sides of like lengths
    )
    compile: Literal["auto", True, False] = (
        "auto"  # the layers; auto: on CUDA, in runs long enough to earn the time back
    )
    graphs: bool = True  # on CUDA, record each shape of batch once and replay it
    deterministic: bool = (
        False  # on CUDA, the same seed gives the same weights, bit for bit; slower. On CPUs it always does
    )
    threads: int = 0  # of the CPU; 0: torch's choice. Part of what makes a run repeatable
    workers: int = 1  # threads that prepare batches; their number does not change the result
    shard: bool = (
        False  # under torchrun: each process holds a part of weights and optimizer, for models that outgrow one GPU
    )

    def __post_init__(self) -> None:
        at_least = {"steps": 1, "batch_tokens": 1, "accumulate": 1, "max_tokens": 1, "seed": 0, "save_every": 1,
                    "validate_every": 0, "patience": 0, "warmup": 0, "hold": 0, "decay_every": 1, "window": 0,
                    "average": 0, "valid_sentences": 0, "log_every": 1,
                    "threads": 0, "workers": 0, "lr": 0, "matrix_lr": 0, "weight_decay": 0, "clip": 0, "eps": 0, "final_lr": 0,
                    "consistency": 0}  # fmt: skip
        for name, low in at_least.items():
            if getattr(self, name) < low:
                raise ConfigError(
                    f"setting train.{name}", f"{getattr(self, name)} is less than {low}", f"Give {low} or more"
                )
        if self.seed >= 1 << 32:
            raise ConfigError("setting train.seed", f"{self.seed} is more than 32 bits", "Give a smaller number")
        if self.average == 1 or (self.average and self.ema):
            what = "the mean of one checkpoint is that checkpoint" if self.average == 1 else "train.ema is on too"
            raise ConfigError("setting train.average", what, "Use two or more checkpoints without ema, or 0")
        if not 0 < self.decay <= 1:
            raise ConfigError("setting train.decay", f"{self.decay} is not above 0 and at most 1", "Give such a part")
        for name in ("beta1", "beta2", "label_smoothing", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    f"setting train.{name}", f"{getattr(self, name)} is not in [0, 1)", "Give a smaller part"
                )
        if self.deterministic and self.compile is True:
            what = "compiled kernels are chosen by how fast they were, which is not the same every time"
            raise ConfigError("setting train.compile", what, "Leave train.deterministic or train.compile out")
        named_metrics(self.metrics, "setting train.metrics")
        if self.best_by not in ("loss", *OF_LABELS):
            named_metrics(self.best_by, "setting train.best_by", also=("loss", *OF_LABELS))

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """By which translations are scored: with the one that chooses the best weights, whether it is listed or not."""
        by = () if self.best_by in ("loss", *OF_LABELS) else (self.best_by,)
        return tuple(dict.fromkeys((*by, *named_metrics(self.metrics))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A whole recipe. The model's section is of the type that its `name` asks for."""

    data: DataConfig
    tokenizer: TokenizerConfig
    model: Any
    augment: AugmentConfig
    train: TrainConfig
    search: SearchConfig


SECTIONS = {
    "data": DataConfig,
    "tokenizer": TokenizerConfig,
    "augment": AugmentConfig,
    "train": TrainConfig,
    "search": SearchConfig,
}


def build_run_config(values: Mapping[str, Any]) -> RunConfig:
    """Plain nested values into a checked configuration."""
    for name, section in values.items():
        if name not in (*SECTIONS, "model"):
            raise ConfigError(f"section {name}", "there is no such section", _section_advice(name, values))
        if not isinstance(section, Mapping):
            raise ConfigError(f"section {name}", f"it is a section, got the value {section!r}", f"Set {name}.KEY=VALUE")
    model = build_model_config(values.get("model", {}))
    built = {name: configuration.build(cls, values.get(name, {}), name) for name, cls in SECTIONS.items()}
    return RunConfig(model=model, **built)


def _section_advice(name: str, values: Mapping[str, Any]) -> str:
    import difflib

    for section, cls in SECTIONS.items():  # a setting written without its section
        if name in settings_of(cls):
            return f"Perhaps you mean {section}.{name}"
    model = values.get("model")
    if name in settings_of(config_class(model if isinstance(model, Mapping) else {})):
        return f"Perhaps you mean model.{name}"
    if others := models_with(name):
        return f"Perhaps you mean model.{name}, with model.name={' or '.join(others)}"
    near = difflib.get_close_matches(name, [*SECTIONS, "model"], n=1)
    return f"Perhaps you mean {near[0]}" if near else "Known sections: " + ", ".join(sorted([*SECTIONS, "model"]))


def recipe_names() -> list[str]:
    folder = resources.files("regard.recipes")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_recipe(name: str) -> dict[str, Any]:
    """The plain values of a recipe, given by its name or as a path to a TOML file.

    `about` is text for people; `like` names a recipe that ships with regard, over whose values these go.
    """
    values = _recipe_file(name)
    about, like = values.pop("about", ""), values.pop("like", None)
    if not isinstance(about, str):
        raise ConfigError(f"recipe {name!r}", "`about` is not a text", 'Write about = "..."')
    if like is None:
        return values
    if like == name or like not in recipe_names():
        what = f"`like` is {like!r}, and no other recipe that ships with regard"
        raise ConfigError(f"recipe {name!r}", what, "`regard recipes` lists the names")
    return configuration.merge(read_recipe(like), values)


def _recipe_file(name: str) -> dict[str, Any]:
    if name in recipe_names():
        return configuration.read_toml(Path(str(resources.files("regard.recipes") / f"{name}.toml")))
    path = Path(name)
    if not path.exists() and path.suffix != ".toml":
        import difflib

        near = difflib.get_close_matches(name, recipe_names(), n=1)
        advice = (
            f"Perhaps you mean {near[0]}"
            if near
            else "`regard recipes` lists the names; or give a path to a .toml file"
        )
        raise ConfigError(f"recipe {name!r}", "there is no recipe or file of that name", advice)
    return configuration.read_toml(path)


def recipe_about(name: str) -> str:
    return str(configuration.read_toml(Path(str(resources.files("regard.recipes") / f"{name}.toml"))).get("about", ""))
