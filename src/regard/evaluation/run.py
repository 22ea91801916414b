"""Evaluates a translator on a test set, and against another system on the same text."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import DataError, ModelError
from regard.data.corpus import read_pairs
from regard.data.reading import read_lines
from regard.evaluation.lengths import LengthBin, by_source_length
from regard.evaluation.metrics import USUAL, Flavour, Score, corpus_scores, named_metrics, perplexity
from regard.evaluation.significance import TESTED, PairedResult, paired_tests
from regard.tasks.folder import read_config
from regard.tasks.pretrained import find_model, load_translator
from regard.tasks.translation import Translator


@dataclasses.dataclass(frozen=True)
class System:
    """One system's translations of the test set, and their scores."""

    name: str
    translations: list[str]
    scores: dict[str, Score]
    lengths: list[LengthBin]
    perplexity: float | None  # per target token of the system's own tokenizer; None for a file of translations
    seconds: float | None  # spent on decoding

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "scores": {name: score.to_plain() for name, score in self.scores.items()},
            "perplexity": self.perplexity,
            "by_length": [part.to_plain() for part in self.lengths],
            "seconds": self.seconds,
        }


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The outcome of `evaluate`; `other` and `tests` are there when a second system was given."""

    system: System
    other: System | None
    tests: list[PairedResult]

    def to_plain(self) -> dict[str, Any]:
        return {
            "system": self.system.to_plain(),
            "against": self.other.to_plain() if self.other is not None else None,
            "paired_tests": [test.to_plain() for test in self.tests],
        }


def evaluate(
    model: str | Path | None = None,
    *,
    src: str | Path,
    ref: str | Path,
    against: str | Path | None = None,
    tokenized: bool = False,
    lowercase: bool = False,
    metrics: str | Sequence[str] | None = None,
    beam: int | None = None,
    tag: str = "",
    device: str = "auto",
) -> Evaluation:
    """Translates `src` and scores it against `ref`: BLEU, chrF, TER, perplexity, and BLEU by source length.

    `metrics` names others (docs/howto/add_a_metric.md); two systems are then tested by each of them, else by BLEU and chrF.

    `model` and `against` are run folders, or files of translations, one line for each of `src`. By default detokenised
    text is compared with raw references; `tokenized` and `lowercase` are for comparison with old papers, and the
    signature says so. `tag` is put before every source for `model`, and for `against` if that knows it too.
    """
    chosen, tested = (USUAL, TESTED) if metrics is None else (named_metrics(metrics),) * 2
    pairs = read_pairs(src, ref)
    languages = [_check_system(place, len(pairs)) for place in ([model] if against is None else [model, against])]
    flavour = Flavour(tokenized=tokenized, lowercase=lowercase, language=next(filter(None, languages), ""))
    first = _system(model, pairs.sources, pairs.targets, flavour, chosen, beam, tag, device)
    if against is None:
        return Evaluation(first, None, [])
    tag = tag if _knows(against, tag) else ""
    second = _system(Path(against), pairs.sources, pairs.targets, flavour, chosen, beam, tag, device)
    tests = paired_tests(pairs.targets, second.translations, first.translations, flavour, tested)
    return Evaluation(first, second, tests)


def _check_system(place: str | Path | None, lines: int) -> str:
    """Finds what is wrong with a system before any long work is done; gives its target language, where it says one."""
    if place is None or not Path(place).is_file():
        if not find_model(place).exists():
            raise DataError(
                place,
                "there is no such file or folder",
                "Give a run folder, or a file of translations with a line for each line of the source",
            )
        return str((read_config(find_model(place)).get("data") or {}).get("target_language", ""))
    written = len(read_lines(place))
    if written != lines:
        raise DataError(place, f"it has {written} lines, the references {lines}", "Give one translation per line")
    return ""


def _knows(place: str | Path, tag: str) -> bool:
    return not Path(place).is_file() and tag in load_translator(place).tokenizers.source.tags


def _system(
    place: str | Path | None,
    sources: list[str],
    references: list[str],
    flavour: Flavour,
    metrics: Sequence[str],
    beam: int | None,
    tag: str,
    device: str,
) -> System:
    if place is not None and Path(place).is_file():
        written = read_lines(place)
        name, loss, seconds = str(place), None, None
    else:
        translator = load_translator(place, device).tagged(tag)
        began = time.monotonic()
        written = translator.translate(sources, beam=beam)
        seconds = time.monotonic() - began
        loss = text_perplexity(translator, sources, references)
        name = str(place or "bundled model")
    scores = corpus_scores(written, references, flavour, metrics)
    return System(name, written, scores, by_source_length(sources, written, references, flavour), loss, seconds)


def text_perplexity(
    translator: Translator, sources: Sequence[str], references: Sequence[str], tags: Sequence[str] | None = None
) -> float | None:
    """Per target token; None, with a warning, where a line is longer than the model can read at once."""
    try:
        scored = translator.score(sources, references, tags=tags)
    except ModelError as error:
        warnings.warn(f"There is no perplexity. {error}", stacklevel=2)
        return None
    return perplexity(-sum(s.log_prob for s in scored), sum(len(s.token_log_probs) for s in scored))
