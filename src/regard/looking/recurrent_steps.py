"""The steps of attention in recurrent translators: a state asks, every source position answers (Bahdanau, Luong, GNMT)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import ModelError
from regard.layers.attention.windows import gaussian, window_keep
from regard.looking.part import Part
from regard.looking.recurrent_readouts import Moment, readout_steps
from regard.looking.steps import Shown, Step, numbers


class Asked(NamedTuple):
    """Where a model's attention finds what it needs: the state's field, whose value before or after the step, and the values."""

    field: str
    after: bool
    values: str


FORMULAS = {  # keys are shown as the model keeps them: what does not depend on the query is done once
    "Additive": "sⱼ = vᵀ tanh(W q + kⱼ),  kⱼ = U hⱼ",
    "Dot": "sⱼ = q · kⱼ,  kⱼ = hⱼ",
    "ScaledDot": "sⱼ = q · kⱼ,  kⱼ = hⱼ / √d",
    "Bilinear": "sⱼ = qᵀ W hⱼ = q · kⱼ,  kⱼ = W hⱼ",
    "Concat": "sⱼ = vᵀ tanh(W [q; hⱼ]) = vᵀ tanh(W₁ q + kⱼ),  kⱼ = W₂ hⱼ",
    "Location": "sⱼ = (W q)ⱼ",
    "Cosine": "sⱼ = cos(q, hⱼ) = q / |q| · kⱼ,  kⱼ = hⱼ / |hⱼ|",
}


def asks(model: Any, name: str) -> Asked | None:
    """None: the model is not one of these."""
    known = {
        "bahdanau": Asked("s", False, "annotations"),
        "luong": Asked("h", True, "states"),
        "gnmt": Asked("m", getattr(model.config, "query", "") == "current", "x"),
    }
    return known.get(name)


def recurrent_steps(model: Any, name: str, read: Tensor, begin: Any, part: Part, row: int) -> list[Step]:
    """What the decoder sees of the source before it writes one token, step by step."""
    asked = asks(model, name)
    if asked is None:
        raise ModelError("the steps", f"{name} cannot be taken apart like this", "Choose another view")
    memory, state = begin()
    if row:
        _, state = model.advance(read[:, None, :row], memory, state)
    before = _field(state, asked.field)
    start = state.clone()  # `advance` consumes what it is given
    hidden, after = model.advance(read[:, None, row : row + 1], memory, state)
    query = (_field(after, asked.field) if asked.after else before).clone()  # 1 1 n
    scores = model.score(query, memory.keys)[0, 0]
    values = getattr(memory, asked.values)[0]
    steps = [
        Step(
            "project",
            "1 The state asks",
            f"q = the decoder's state {'after' if asked.after else 'before'} this step,  vⱼ = hⱼ, what was read at j",
            "A key kⱼ of every source position is made from hⱼ once, when the source is read; the score says how.",
            [
                Shown("q", numbers(query[0, 0])),
                *([Shown("k", numbers(memory.keys[0]), "keys")] if memory.keys.shape[-1] else []),
                Shown("v", numbers(values), "keys"),
            ],
        ),
        Step(
            "score",
            "2 Score",
            FORMULAS.get(type(model.score).__name__, "sⱼ = score(q, kⱼ)"),
            "How well the state fits each source position.",
            [Shown("scores", numbers(scores), "keys")],
        ),
    ]
    steps += _window_steps(model, query, read, row, memory, scores)
    weights = part.weights[0, 0, row]
    soft, bell = _weights(model, query, row, memory, scores)
    if not np.allclose(soft if bell is None else soft * bell, weights, atol=1e-5):
        raise ModelError("the steps", "they do not lead to the weights that were recorded", "Report this")
    products = weights[:, None] * numbers(values)
    steps += [
        Step(
            "softmax",
            "4 Softmax",
            "αⱼ = exp(sⱼ) / Σ exp(s)",
            "Weights from 0 to 1 that sum to 1.",
            [Shown("weights", weights if bell is None else soft, "keys")],
        ),
        *([] if bell is None else [_bell_step(bell, weights, model.config.window)]),
        Step(
            "multiply",
            "5 Multiply each value by its weight",
            "αⱼ vⱼ",
            "What was read at positions with little weight nearly vanishes.",
            [Shown("products", products, "keys")],
        ),
        Step(
            "sum",
            "6 Sum",
            "c = Σ αⱼ vⱼ",
            "The context: what the decoder learns of the source now.",
            [Shown("c", products.sum(0))],
        ),
    ]
    context = torch.from_numpy(weights).to(values) @ values
    return steps + readout_steps(model, name, Moment(start, after, read[0, row], context, hidden[0, 0, 0]))


def _bell_step(bell: np.ndarray, weights: np.ndarray, window: int) -> Step:
    about = f"Positions near the centre p count most (σ = {window / 2:g}). The weights now sum to less than 1."
    shown = [Shown("Gaussian", bell, "keys"), Shown("weights", weights, "keys")]
    return Step("gaussian", "Gaussian", "αⱼ exp(−(j − p)² / 2σ²)", about, shown)


def _window_steps(model: Any, query: Tensor, read: Tensor, row: int, memory: Any, scores: Tensor) -> list[Step]:
    centre, allowed = window_of(model, query, row, memory)
    if allowed is None:
        return []
    masked = np.where(allowed, numbers(scores), -np.inf)
    about = f"Only positions within {model.config.window} of the centre {centre:.2f} are seen."
    shown = [Shown("allowed", allowed.astype(np.float32), "keys"), Shown("masked", masked, "keys")]
    return [Step("mask", "Window", "sⱼ = −∞ where |j − p| > D", about, shown)]


def window_of(model: Any, query: Tensor, row: int, memory: Any) -> tuple[float, np.ndarray | None]:
    """The centre of local attention and which positions are seen; None where all are."""
    if getattr(model.config, "attention", "") not in ("local-m", "local-p"):
        return 0.0, None
    p = _centre(model, query, row, memory)
    keep = window_keep(p, memory.keep.shape[-1], model.config.window, memory.keep)
    return float(p[0, 0]), keep[0, 0].cpu().numpy()


def _centre(model: Any, query: Tensor, row: int, memory: Any) -> Tensor:
    if model.centre is None:
        return torch.tensor([[row]], device=query.device)
    return model.centre(query, memory.keep.sum(1))


def _weights(model: Any, query: Tensor, row: int, memory: Any, scores: Tensor) -> tuple[np.ndarray, np.ndarray | None]:
    """The softmax of the scores, and the Gaussian that local attention by prediction multiplies it by."""
    _, allowed = window_of(model, query, row, memory)
    values = numbers(scores).astype(np.float64)
    if allowed is not None:
        values = np.where(allowed, values, -np.inf)
    powers = np.exp(values - values.max())
    weights = powers / powers.sum()
    if allowed is None or model.centre is None:
        return weights, None
    p = _centre(model, query, row, memory)
    return weights, numbers(gaussian(p, memory.keep.shape[-1], model.config.window / 2)[0, 0])


@torch.inference_mode()
def local_windows(model: Any, name: str, read: Tensor, begin: Any) -> dict[str, Any]:
    """The centre of local attention for each token that is written, half the window, and the spread of its Gaussian (0: none)."""
    if getattr(model.config, "attention", "") not in ("local-m", "local-p"):
        raise ModelError("the trace", "this model's attention is not local", "Choose another view")
    memory, state = begin()
    centres = []
    for row in range(read.shape[1]):
        _, state = model.advance(read[:, None, row : row + 1], memory, state)
        centres.append(window_of(model, _field(state, "h"), row, memory)[0])
    sigma = model.config.window / 2 if model.centre is not None else 0.0
    return {"centres": centres, "window": model.config.window, "sigma": sigma}


def _field(state: Any, name: str) -> Tensor:
    """A state's vector [1, 1, n]: of the top layer for `h`, of the bottom for `m`."""
    value = getattr(state, name)
    if isinstance(value, tuple):
        value = value[0] if name == "m" else value[-1]
    return value.clone()
