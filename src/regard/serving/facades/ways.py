"""Fields of /translate that are regard's own: how a translation is chosen, and what is told of it. See docs/decoding.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.serving.choosing import PLAIN, UTILITIES, Choosing
from regard.serving.fields import Choice, Field, Flag, ListOf, Number, OneOf, Text, Whole, wrong
from regard.serving.limits import Limits
from regard.serving.operations import Asked
from regard.tasks.glossary import KEPT

if TYPE_CHECKING:
    from regard.tasks.lines import Translation

OWN = "(not LibreTranslate's)"
LEAST = -9999.0  # of log-probabilities in JSON, which has no infinity
STRING: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
NUMBERS: dict[str, Any] = {"type": "array", "items": NUMBER}
STRINGS: dict[str, Any] = {"type": "array", "items": STRING}


def way_fields(limits: Limits) -> tuple[Field, ...]:
    kept = Choice(tuple(KEPT))
    return (
        Field("keep", OneOf((kept, ListOf(kept, len(KEPT)))), f"kinds of words that are left as they are {OWN}"),
        Field("groups", Whole(1, limits.beam), f"of the beam, which avoid each other's words {OWN}", default=1),
        Field("diversity", Number(0, 100), f"how much they avoid them {OWN}"),
        Field("mbr", Choice(UTILITIES), f"draw translations, and take the one most like all others {OWN}"),
        Field("samples", Whole(2, limits.samples), f"drawn for mbr {OWN}"),
        Field("rerank", Flag(), f"order what is found by the models given for that {OWN}", default=False),
        Field("draft", Flag(), f"let a small model guess: a beam of 1, the same text sooner {OWN}", default=False),
        Field("prefix", Text(limits.characters), f"how the translation of a single text must begin {OWN}", default=""),
        Field("next_words", Whole(0, max(0, limits.alternatives)), f"that could stand after the prefix {OWN}", default=0),
        Field("details", Flag(), f"tokens, scores, confidences, what the guard says {OWN}", default=False),
        Field("alignment", Flag(), f"which words were written from which {OWN}", default=False),
    )  # fmt: skip


def kept_kinds(asked: Asked) -> tuple[str, ...]:
    given = asked["keep"] or ()
    return (given,) if isinstance(given, str) else tuple(given)


def choosing_of(asked: Asked, many: bool) -> Choosing:
    """What a request wants; `many` texts are asked for. What cannot be had together is refused."""
    chosen = Choosing(
        groups=asked["groups"],
        diversity=asked["diversity"],
        mbr=asked["mbr"],
        samples=asked["samples"],
        rerank=asked["rerank"],
        draft=asked["draft"],
        details=asked["details"],
        alignment=asked["alignment"],
    )
    given = {"prefix": bool(asked["prefix"]), "next_words": asked["next_words"] > 0}
    for name in given:
        if given[name] and many:
            raise wrong(name, "it is for one text", "Send one text, not a list")
    if asked["format"] == "html" and (chosen != PLAIN or any(given.values())):
        names = [name for name in asked.values if name in _NAMES and (given.get(name) or _set(chosen, name))]
        raise wrong(names[0], "marked-up text is translated plainly", "Send format=text, or leave it out")
    if given["next_words"]:
        for name in ("mbr", "rerank", "draft", "glossary", "keep"):
            if asked[name]:
                raise wrong(name, "next words are searched for plainly", "Leave one of the two out")
    return chosen


_NAMES = ("groups", "diversity", "mbr", "samples", "rerank", "draft", "details", "alignment", "prefix", "next_words")


def _set(chosen: Choosing, name: str) -> bool:
    return hasattr(chosen, name) and getattr(chosen, name) != getattr(PLAIN, name)


def told(many: Sequence[Translation], choosing: Choosing) -> list[dict[str, Any]]:
    """What is told of the translations of one text."""
    return [_told(one, choosing) for one in many]


def _told(one: Translation, choosing: Choosing) -> dict[str, Any]:
    found: dict[str, Any] = {"text": one.text, "score": _finite(one.score)}
    if choosing.details:
        found |= {
            "log_prob": _finite(one.log_prob),
            "tokens": one.tokens,
            "token_log_probs": [_finite(value) for value in one.token_log_probs],
            "source_tokens": one.source_tokens,
            "finished": one.finished,
            "note": one.note,
            "confidence": one.confidence,
            "token_confidences": one.token_confidences,
        }
    if choosing.alignment:
        found["alignment"] = None if one.alignment is None else [list(link) for link in one.alignment]
    return found


def _finite(value: float) -> float:
    return LEAST if math.isnan(value) else min(max(value, LEAST), -LEAST)


def told_schema() -> dict[str, Any]:
    """Of one translation."""
    link = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}
    share = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "null"}]}
    return {
        "type": "object",
        "properties": {
            "text": STRING,
            "score": NUMBER,
            "log_prob": NUMBER,
            "tokens": STRINGS,
            "token_log_probs": NUMBERS,
            "source_tokens": STRINGS,
            "finished": {"type": "boolean"},
            "note": STRING,
            "confidence": share,
            "token_confidences": {"anyOf": [NUMBERS, {"type": "null"}]},
            "alignment": {"anyOf": [{"type": "array", "items": link}, {"type": "null"}]},
        },
        "required": ["text", "score"],
    }
