"""Attention step by step, with the numbers of the model: from queries, keys and values to what a layer writes.

Each step has a title, a formula and the tensors that it makes. Those inside a head are computed here, from the same inputs, as the
model computes them; all else is what the model's own parts took and gave.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from torch import Tensor

BEST = 10  # tokens that are shown with their probabilities


@dataclasses.dataclass(frozen=True)
class Shown:
    """A tensor on the page. `labels`: "keys" where its first dimension is that of the keys; "tokens": `names` are its cells."""

    name: str
    values: np.ndarray
    labels: str | None = None
    names: list[str] | None = None


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    title: str
    formula: str
    about: str
    tensors: list[Shown]
    chosen: str | None = None  # the word that was written
    argmax: str | None = None  # the likeliest one


def to_frame(steps: list[Step]) -> tuple[dict[str, Any], np.ndarray]:
    """All tensors in one block, and a header that says where each is."""
    header, blocks, offset = [], [], 0
    for step in steps:
        tensors = []
        for shown in step.tensors:
            values = np.asarray(shown.values, dtype=np.float32)
            plain = {"name": shown.name, "shape": list(values.shape), "offset": offset, "labels": shown.labels}
            tensors.append(plain if shown.names is None else {**plain, "tokens": shown.names})
            blocks.append(values.ravel())
            offset += values.size
        names = ("name", "title", "formula", "about", "chosen", "argmax")
        header.append({**{name: getattr(step, name) for name in names}, "tensors": tensors})
    return {"steps": header}, np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.float32)


@dataclasses.dataclass(frozen=True)
class HeadInputs:
    """One head, one query: what it reads. All in float32, as the model has them."""

    x: np.ndarray  # [D], what the query is made of
    query: np.ndarray  # [d]; times √d where scores are not divided by it: the model divides always
    keys: np.ndarray  # [M, d]
    values: np.ndarray  # [M, d]
    allowed: np.ndarray | None  # [M], None where there is no mask
    bias: np.ndarray | None = None  # [M], what relative positions add
    from_weights: Any = None  # weights -> [d], what relative positions add to the values
    scaled: bool = True


def head_steps(head: HeadInputs) -> tuple[list[Step], np.ndarray, np.ndarray]:
    """The six steps of the lectures, with the mask between the third and the fourth. Gives the weights and the sum, too."""
    d = head.query.shape[-1]
    raw = head.keys @ head.query / (1 if head.scaled else math.sqrt(d))
    scores = raw / math.sqrt(d) if head.scaled else raw
    steps = [
        Step(
            "project",
            "1 Make q, k, v",
            "q = x W_Q + b_Q,  k = x W_K + b_K,  v = x W_V + b_V",
            "One query of the chosen token; a key and a value of every token that it may look at.",
            [
                Shown("x", head.x),
                Shown("q", head.query / (1 if head.scaled else math.sqrt(d))),
                Shown("k", head.keys, "keys"),
                Shown("v", head.values, "keys"),
            ],
        ),
        Step("score", "2 Score", "sⱼ = q · kⱼ", "How well the query fits each key.", [Shown("scores", raw, "keys")]),
    ]
    if head.scaled:
        what = f"Divided by √{d}, so that scores do not grow with the width of a head."
        steps.append(Step("scale", "3 Divide by √d", "sⱼ / √d", what, [Shown("scaled", scores, "keys")]))
    if head.bias is not None:
        scores = scores + head.bias
        steps.append(
            Step(
                "relative",
                "Add relative positions",
                "sⱼ / √d + b(j − i)",
                "What the distance between the two tokens adds.",
                [Shown("bias", head.bias, "keys"), Shown("sum", scores, "keys")],
            )
        )
    if head.allowed is not None:
        scores = np.where(head.allowed, scores, -np.inf).astype(np.float32)
        steps.append(
            Step(
                "mask",
                "Mask",
                "sⱼ = −∞ where j may not be seen",
                "Minus infinity before the softmax is zero after it.",
                [Shown("allowed", head.allowed.astype(np.float32), "keys"), Shown("masked", scores, "keys")],
            )
        )
    powers = np.exp(scores - scores.max())
    weights = (powers / powers.sum()).astype(np.float32)
    steps.append(
        Step(
            "softmax",
            "4 Softmax",
            "αⱼ = exp(sⱼ) / Σ exp(s)",
            "Weights from 0 to 1 that sum to 1.",
            [Shown("weights", weights, "keys")],
        )
    )
    products = weights[:, None] * head.values
    mixed = products.sum(0)
    steps.append(
        Step(
            "multiply",
            "5 Multiply each value by its weight",
            "αⱼ vⱼ",
            "Values of tokens with little weight nearly vanish.",
            [Shown("products", products, "keys")],
        )
    )
    tensors = [Shown("z", mixed)]
    if head.from_weights is not None:
        added = head.from_weights(weights)
        mixed = mixed + added
        tensors = [Shown("relative", added), Shown("z", mixed)]
    formula = "z = Σ αⱼ vⱼ" if head.from_weights is None else "z = Σ αⱼ (vⱼ + a(j − i))"
    steps.append(Step("sum", "6 Sum", formula, "What this head found for the token.", tensors))
    return steps, weights, mixed


def words_steps(
    model: Any, before: Step, hidden: Tensor, tokens: Any, chosen: str | None, *, averaged: bool
) -> list[Step]:
    """From what the last layer gave to words, over what a model does after all layers. `averaged`: over the steps that it took."""
    given, h, steps = before.tensors[-1], numbers(hidden), []
    if averaged:
        about = "The states of all steps, each with its weight (see Pondering)."
        steps.append(Step("last-norm", "Average the steps", "h = norm(Σ pₙ xₙ)", about, [Shown("h", h)]))
    elif given.name == "layer output" and not np.allclose(given.values, h, atol=1e-6):
        about = "The last normalisation, after all layers."
        steps.append(Step("last-norm", "Normalise", "h = norm(x)", about, [Shown("x", given.values), Shown("h", h)]))
    return [*steps, vocabulary_step(model, hidden, tokens, chosen)]


def vocabulary_step(model: Any, hidden: Tensor, tokens: Any, chosen: str | None) -> Step:
    """From a state to words: the best tokens, which `tokens(ids)` names, and the one that was written."""
    log_probs = model.output.scores(hidden[None])[0]
    best = log_probs.topk(min(BEST, len(log_probs)))
    names = tokens(best.indices.tolist())
    shown = [Shown("h", numbers(hidden))]
    if (logits := getattr(model.output, "logits", None)) is not None:
        shown.append(Shown("logits", numbers(logits(hidden[None])[0][best.indices]), "tokens", names))
    shown += [
        Shown("log-probabilities", numbers(best.values), "tokens", names),
        Shown("probabilities", numbers(best.values.exp()), "tokens", names),
    ]
    about = "A score (logit) for every token of the vocabulary, here the ten best; the highest is what greedy search writes."
    formula = "logits = W h + b,  log P = log softmax(logits),  argmax log P"
    return Step("vocabulary", "To words", formula, about, shown, chosen, names[0])


def numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()
