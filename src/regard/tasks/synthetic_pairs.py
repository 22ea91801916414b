"""Pairs that a model makes: back-translation (Sennrich et al. 2016) and sequence-level distillation (Kim and Rush 2016).

    back-translation   text of the target language, and its translation by a model of the other direction as the source
    distillation       source text, and a teacher's translation as the target; with references, of the teacher's n-best list the one
                       most like the reference (by chrF: sequence-level interpolation)

Each pair is a line: source, tab, target. Lines whose translation is none (nothing, a loop, a copy, cut at the maximum length: see
guarding.py) make no pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from regard.core.search_config import SearchConfig
from regard.tasks.big_files import Made, joined_lines
from regard.tasks.guarding import Guard
from regard.tasks.lines import Translation
from regard.tasks.translation import Translator

Kind = Literal["back", "distil"]


def make_pairs(
    translator: Translator,
    kind: Kind,
    lines: Sequence[str],
    settings: SearchConfig,
    *,
    references: Sequence[str] | None = None,
    first_line: int = 1,
) -> Made:
    """The pairs of some lines, as bytes; with the numbers of `pairs`, and of lines that were `empty` or `refused`."""
    texts = [" ".join(line.split()) for line in lines]
    written = translator.hypotheses(texts, search=settings, first_line=first_line, details=False)
    guard = Guard()
    rows: list[str] = []
    counts = {"pairs": 0, "empty": 0, "refused": 0}
    for i, (text, many) in enumerate(zip(texts, written, strict=True)):
        if not text:
            counts["empty"] += 1
            continue
        good = [one for one in many if one.finished and not guard.fault(text, one) and one.text.strip()]
        if not good:
            counts["refused"] += 1
            continue
        one = _closest(good, references[i]) if references is not None else good[0]
        made = " ".join(one.text.split())
        rows.append(f"{made}\t{text}" if kind == "back" else f"{text}\t{made}")
        counts["pairs"] += 1
    return Made(joined_lines(rows), counts)


def _closest(many: Sequence[Translation], reference: str) -> Translation:
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return max(many, key=lambda one: metric.sentence_score(one.text, [reference]).score)  # the first of equal ones
