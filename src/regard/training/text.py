"""From a corpus to the tokens that a run is trained on: in memory, or kept on the shelf of a large text."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers as library
import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError
from regard.data.corpus import Corpus, load_corpus
from regard.data.store import TokenStore
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.data.word_list import read_word_list
from regard.models.base import Writer, build_model
from regard.training.checking import check_before_training, keep_input
from regard.training.config import RunConfig, TrainConfig, build_run_config
from regard.training.progress import Reporter
from regard.training.request import gather
from regard.training.sizes import choose_sizes, usual_rate


class Prepared(NamedTuple):
    """What `prepare` made. The folder is None where runs hold the text in memory."""

    pairs: int
    source_tokens: int
    target_tokens: int
    valid: int
    test: int
    folder: Path | None


def prepare(
    recipe: str | None = None,
    *,
    src: str = "",
    tgt: str = "",
    pairs: str = "",
    settings: str | Mapping[str, Any] | Iterable[str] = (),
    allow: Iterable[str] = (),
    report: Reporter | None = None,
) -> Prepared:
    """Checks and tokenises the text of a run beforehand. `regard.train` with the same arguments then starts at once."""
    report = report or Reporter()
    values = with_allowed(gather(recipe, {"src": src, "tgt": tgt, "pairs": pairs}, settings, None), allow)
    with tempfile.TemporaryDirectory(prefix="regard-stdin-") as place:
        keep_input(values["data"], Path(place))
        return _prepared(recipe, values, report)


def _prepared(recipe: str | None, values: dict[str, Any], report: Reporter) -> Prepared:
    config = build_run_config(values)
    check_before_training(config.data, report)
    corpus = load_corpus(config.data, report.say)
    if recipe is None:
        config = build_run_config(configuration.merge(sizes_for(corpus, values), values))
    tokenizers = train_tokenizers(corpus, config.tokenizer, report)
    with torch.device("meta"):  # the model's limits, without its weights
        model = model_for(config, tokenizers)
    store = token_store(corpus, tokenizers, longest(config, model), report)
    return Prepared(
        len(store),
        len(store.source.flat),
        len(store.target.flat),
        len(corpus.valid),
        len(corpus.test),
        corpus.shelf.folder if corpus.shelf is not None else None,
    )


def with_allowed(values: dict[str, Any], allow: Iterable[str]) -> dict[str, Any]:
    """Values of a run with more findings allowed."""
    given = values["data"].get("allow", ())
    allowed = list(dict.fromkeys([*([given] if isinstance(given, str) else given), *allow]))
    return configuration.merge(values, {"data": {"allow": allowed}}) if allowed else values


def sizes_for(
    corpus: Corpus, values: Mapping[str, Any], fine_tuning: bool = False, student: bool = False
) -> dict[str, Any]:
    """Sizes chosen from the data, for a run without a recipe.

    A student, which begins with layers of a model of other depth, is trained as long as a new model, at half of its rate: what is
    left of the other is worth keeping, and its layers have to get used to each other.
    """
    given = build_run_config(values)
    cpu = choose_device(given.train.device).type != "cuda"
    steps = given.train.steps if "steps" in values.get("train", {}) else None
    kind = type(given.model)
    if not student:
        return choose_sizes(corpus, kind, cpu, fine_tuning=fine_tuning, steps=steps)
    train = choose_sizes(corpus, kind, cpu, steps=steps)["train"]
    train["lr"] = usual_rate(kind, given.model.width) / 2
    return {"train": {**train, "matrix_lr": TrainConfig.matrix_lr / 2} if given.train.optimizer == "muon" else train}


def train_tokenizers(corpus: Corpus, config: TokenizerConfig, report: Reporter) -> TokenizerPair:
    for tag in sorted({*corpus.valid.tags, *corpus.test.tags} - {"", *corpus.tags}):
        raise ConfigError(
            "setting data.tag",
            f"the held-out text has the tag {tag}, which no text has that is trained on",
            f"Use one of {', '.join(corpus.tags)}" if corpus.tags else "Leave it out",
        )
    if corpus.shelf is None or config.folder:  # what is not made here is not kept here
        return TokenizerPair.train_on(corpus.train, config, corpus.tags)
    listed = sorted(read_word_list(config.words)) if config.words else []  # a list may change under the same name
    detail = f"{configuration.to_plain(config)}\n{listed}\n{library.__version__}"

    def fill(folder: Path) -> None:
        report.say("Training the tokenizer...")
        TokenizerPair.train_on(corpus.train, config, corpus.tags).save(folder)

    return TokenizerPair.load(corpus.shelf.made("tokenizer", detail, fill, report.say))


def model_for(config: RunConfig, tokenizers: TokenizerPair) -> Writer:
    return build_model(
        config.model.name,
        config.model,
        source_vocabulary=tokenizers.source.size,
        target_vocabulary=tokenizers.target.size,
        shared=tokenizers.joint,
    )


def longest(config: RunConfig, model: Writer) -> int:
    """Most tokens of a sentence that is trained on."""
    return min([config.train.max_tokens, *(n - 1 for n in model.limits if n is not None)])


def token_store(corpus: Corpus, tokenizers: TokenizerPair, most: int, report: Reporter) -> TokenStore:
    name, weights = "the training text", corpus.pair_weights()
    if corpus.shelf is None:
        return TokenStore.from_pairs(corpus.train, tokenizers, most, name, weights)
    return TokenStore.on_shelf(corpus.shelf, corpus.train, tokenizers, most, name, weights, report.say)
