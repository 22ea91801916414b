"""Which requests CTranslate2 can answer as regard's own search does, and which of its answers cannot be taken.

Its beam search keeps regard's rule (search/beam.py) with `stop="full"`: of 2K candidates those that end among the first K are
finished, the first K others live on, and K finished ones end the search. So what is finished does not depend on how lengths are
normalised; only the ranking does, and that is done here. What it does otherwise:

- It has one maximum length for a batch, and ranks cut texts among finished ones: a text that is cut, or longer than its own
  maximum, is searched for again by torch.
- It takes what is forbidden out before the softmax, and the rest gains; regard leaves the others their own probabilities. For
  padding, BOS and UNK, which a trained model gives next to nothing, that does not matter. For the guards against repetition and
  the minimum length it would: they are off, and where a text breaks one, it is searched for again by torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.core.search_config import SearchConfig

LOOP_SIZES = (1, 2, 3, 4)  # of search/constraints.py
NO_PENALTY = 1e-7  # not 0, with which CTranslate2 stops earlier


def why_not_search(settings: SearchConfig, *, attention: bool = False, prefixes: bool = False) -> str | None:
    """Why CTranslate2 cannot answer such a request, in words; None where it can."""
    reasons: list[tuple[bool, str]] = [
        (attention, "attention was asked for"),
        (prefixes, "the beginning of the translation is given"),
        (settings.method != "beam", "it is sampled, not searched for"),
        (settings.groups > 1, "a beam in groups was asked for"),
        (settings.coverage > 0, "a coverage penalty was asked for"),
        (settings.stop != "full", f"search.stop={settings.stop} was asked for"),
    ]
    return next((reason for asked, reason in reasons if asked), None)


def search_options(settings: SearchConfig, lengths: Sequence[int], limit: int) -> dict[str, Any]:
    """The arguments of `translate_batch` for sources of these lengths, the longest of whose translations has `limit` tokens."""
    alpha = settings.alpha
    if settings.length_norm == "gnmt":  # ((5 + n) / 6)^a grows like n^(a n / (5 + n)) near n
        usual = sum(lengths) / len(lengths)
        alpha *= usual / (5 + usual)
    elif settings.length_norm == "none":
        alpha = 0.0
    return {
        "beam_size": settings.beam,
        # Where its ranking is not regard's, all are asked for and ranked again.
        "num_hypotheses": settings.beam if settings.length_norm == "gnmt" else settings.nbest,
        "length_penalty": max(alpha, NO_PENALTY),
        "max_decoding_length": limit + 1,  # it counts EOS
        "min_decoding_length": 0,
        "max_input_length": 0,
        "disable_unk": settings.ban_unknown,
        "return_scores": True,
        "return_end_token": True,
    }


def breaks_rule(tokens: Sequence[Any], limit: int, settings: SearchConfig) -> bool:
    """Whether regard's search would not have written this finished text: too long, too short, or repeating itself."""
    if not settings.min_length <= len(tokens) <= limit:
        return True
    size = settings.no_repeat_ngram
    if size and len(tokens) > size:
        grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        if len(set(grams)) < len(grams):
            return True
    return bool(settings.max_repeat) and _loops(tokens, settings.max_repeat)


def _loops(tokens: Sequence[Any], most: int) -> bool:
    """Whether some n-gram stands more than `most` times in a row."""
    if len(tokens) - len(set(tokens)) < most:  # each of its tokens would be there so many times more
        return False
    for size in LOOP_SIZES:
        run = 0
        for i in range(size, len(tokens)):
            run = run + 1 if tokens[i] == tokens[i - size] else 0
            if run >= size * most:
                return True
    return False
