"""Calibrating a translator's confidence on held-out pairs: see confidence.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sacrebleu.metrics.chrf import CHRF

from regard.core.errors import DataError, ModelError
from regard.tasks.confidence import Calibration, Reliability, features, fit, logit
from regard.tasks.given_translations import certainties

if TYPE_CHECKING:
    from regard.tasks.translation import Translator

FEWEST = 20  # pairs


def calibrate(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Fits on the first, third, ... pair and measures on the others. Translations are those of the translator's own search."""
    if len(sources) != len(targets):
        raise DataError("calibrate", f"{len(sources)} source and {len(targets)} target lines", "Give as many of each")
    pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    if len(pairs) < FEWEST:
        raise DataError("calibrate", f"there are {len(pairs)} pairs with text", f"Give {FEWEST} or more; 500 are good")
    if translator.backwards:
        raise ModelError("calibrate", "the model writes from right to left", "Use one that writes from left to right")
    texts, references = [s for s, _ in pairs], [t for _, t in pairs]
    written = [many[0] for many in translator.on_torch().hypotheses(texts, progress=progress)]
    metric = CHRF()
    good = [metric.sentence_score(w.text, [r]).score / 100 for w, r in zip(written, references, strict=True)]
    rows = [features(w.token_log_probs) if w.token_log_probs else (0.0, 0.0) for w in written]
    certain = certainties(translator.on_torch(), texts, references)
    logits = [[logit(log_prob) for log_prob, _ in one] for one in certain]
    right = [[float(is_right) for _, is_right in one] for one in certain]
    half = range(0, len(pairs), 2)
    constant, weight = fit([[x] for i in half for x in logits[i]], [y for i in half for y in right[i]])
    sentence = fit([rows[i] for i in half], [good[i] for i in half])
    made = Calibration((weight, constant), (sentence[0], sentence[1], sentence[2]))
    return dataclasses.replace(made, measured=_measured(made, written, good, certain))


def _measured(
    made: Calibration, written: Any, good: list[float], certain: list[list[tuple[float, bool]]]
) -> dict[str, Any]:
    import math

    rest = range(1, len(good), 2)
    tokens = [one for i in rest for one in certain[i]]
    truths = [float(is_right) for _, is_right in tokens]
    sentences = [written[i].token_log_probs for i in rest]
    quality = [good[i] for i in rest]
    found = {
        "tokens_before": Reliability.of([math.exp(log_prob) for log_prob, _ in tokens], truths),
        "tokens": Reliability.of([made.of_token(log_prob) for log_prob, _ in tokens], truths),
        "sentences_before": Reliability.of([math.exp(features(one)[0]) for one in sentences], quality),
        "sentences": Reliability.of([made.of_sentence(one) for one in sentences], quality),
    }
    return {name: dataclasses.asdict(one) for name, one in found.items()}
