"""The verb `shortlist`: which target tokens each source token may become, so that the CTranslate2 engine need not score all."""

from __future__ import annotations

import time
from pathlib import Path

from regard.core import config as configuration
from regard.core.errors import ConfigError, DataError
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.data.short_lists import learn_short_lists
from regard.data.store import TokenStore
from regard.tasks.converted_run import SHORT_LISTS_OF_RUN
from regard.tasks.pretrained import load_translator

LONGEST = 200  # tokens of a pair that is learnt from


def run_shortlist(model: Path, each: int, always: int, remove: bool) -> None:
    """Learns from the run's own training text, and writes the lists into its folder."""
    place = model / SHORT_LISTS_OF_RUN
    if remove:
        if not place.is_file():
            raise ConfigError("--remove", f"{model} has no short lists", "Leave it out")
        place.unlink()
        print(f"{place} is removed: all tokens are scored again.")
        return
    for option, value, most in (("--each", each, 10_000), ("--always", always, 1_000_000)):
        if not 1 <= value <= most:
            raise ConfigError(option, f"{value} is not from 1 to {most:,}", "Give such a number")
    translator = load_translator(model, "cpu")
    data = translator.config.get("data")
    if not isinstance(data, dict):
        raise DataError(str(model), "it does not say what text it was trained on", "Give the folder of a run")
    began = time.monotonic()
    corpus = load_corpus(configuration.build(DataConfig, data, "data"))
    store = TokenStore.from_pairs(corpus.train, translator.tokenizers, LONGEST)
    sizes = translator.tokenizers.source.size, translator.tokenizers.target.size
    lists = learn_short_lists(store, *sizes, each=each, always=always)
    lists.save(place)
    held_out = corpus.test if len(corpus.test) else corpus.valid
    covered = ""
    if len(held_out):
        own = TokenStore.from_pairs(held_out.head(1000), translator.tokenizers, LONGEST)
        covered = (
            f" {lists.coverage(own):.1%} of the tokens of held-out translations are on the list of their sentence."
        )
    print(f"{place} is written ({time.monotonic() - began:.0f} s, {len(store):,} pairs).{covered}")
    print("`regard translate --engine ctranslate2` uses it from now on; `regard shortlist --remove` takes it away.")
