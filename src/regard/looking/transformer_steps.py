"""The steps of attention in Transformers: encoders, decoders, GPTs and BERTs, in whatever layer and head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.layers.attention.multihead import CrossAttention, SelfAttention, unscaled
from regard.layers.attention.relative import Places
from regard.looking.part import Part
from regard.looking.steps import HeadInputs, Shown, Step, head_steps
from regard.looking.watching import Watched

BEST = 10  # tokens that are shown with their probabilities
STACKS = {
    "encoder.self": ("encoder", "body.encoder"),
    "decoder.self": ("decoder", "body.decoder"),
    "decoder.cross": ("decoder",),
    "reader.self": ("layers", "encoder", "body.layers", "body.encoder"),
}


def transformer_steps(
    model: nn.Module, run: Any, part: Part, layer: int, head: int, row: int, tokens: Any
) -> list[Step]:
    """What one head does for one token. `run()` lets the model read the trace's text; `tokens(ids)` names tokens."""
    module = _layer(model, part.name, layer)
    attention = module.cross if part.name.endswith("cross") else module.attention
    watched: dict[str, nn.Module] = {"layer": module, "attention": attention, "out": attention.out}
    watched |= {"feedforward": module.feedforward, "inner": module.feedforward.inner}
    if part.name.endswith("cross"):
        watched["norm of cross"] = module.around_cross.norm
    with Watched(watched) as seen:
        run()
    x_in = seen.input("layer")
    read = seen.input("attention")
    steps, weights, _ = head_steps(_head(model, attention, seen, part, layer, head, row, read))
    recorded = part.weights[layer, head, row]
    if not np.allclose(weights, recorded, atol=1e-5):
        raise ModelError("the steps", "they do not lead to the weights that were recorded", "Report this")
    written = seen.output("out")[0, row]
    steps.append(
        Step(
            "join",
            "Join the heads",
            "[z₁; …; z_H] W_O + b_O",
            "What all heads found, side by side, mixed by one matrix.",
            [Shown("joined", _numbers(seen.input("out")[0, row])), Shown("written", _numbers(written))],
        )
    )
    before = _before(module, part.name, x_in, seen)[0, row]
    steps.append(
        Step(
            "residual",
            "Add what was there",
            "x + attention(x)",
            "The residual connection: nothing is lost that the token had before.",
            [Shown("x", _numbers(before)), Shown("sum", _numbers(before + written))],
        )
    )
    if part.name == "decoder.self" and hasattr(module, "cross"):
        return steps  # the token goes on to the attention over the source
    after = seen.output("layer")[0, row]
    steps.append(
        Step(
            "feedforward",
            "Feed-forward network",
            "W₂ f(W₁ x + b₁) + b₂, added to x and normalised",
            "Each token by itself: wider, through a function, and back.",
            [
                Shown("input", _numbers(seen.input("feedforward")[0, row])),
                Shown("inner", _numbers(seen.output("inner")[0, row])),
                Shown("written", _numbers(seen.output("feedforward")[0, row])),
                Shown("layer output", _numbers(after)),
            ],
        )
    )
    if layer == part.weights.shape[0] - 1 and part.name.startswith("decoder"):
        steps.append(_vocabulary(model, after, tokens))
    return steps


def _layer(model: nn.Module, part: str, layer: int) -> Any:
    for path in STACKS.get(part, ()):
        try:
            stack = model.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(stack, nn.ModuleList) and layer < len(stack):
            found: Any = stack[layer]
            if isinstance(getattr(found, "attention", None), SelfAttention):
                return found
    raise ModelError("the steps", f"{type(model).__name__} cannot be taken apart like this", "Choose another view")


def _head(
    model: nn.Module, attention: Any, seen: Watched, part: Part, layer: int, head: int, row: int, read: Tensor
) -> HeadInputs:
    length = part.weights.shape[-1]
    if isinstance(attention, CrossAttention):
        call = seen.calls["attention"][0].inputs
        query = attention.query(read).unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        query = query if attention.scaling else unscaled(query)
        key, value, keep = call[1], call[2], call[3]
        allowed = _allowed(keep, length)
        return HeadInputs(
            _numbers(read[0, row]),
            _numbers(query[0, head, row]),
            _numbers(key[0, head]),
            _numbers(value[0, head]),
            allowed,
            scaled=attention.scaling,
        )
    scheme = _scheme(model, part.name, layer, length, read.device)
    q, k, v = attention.project(read, scheme)
    group = head // (q.shape[1] // k.shape[1])
    bias = None if scheme is None else scheme.bias(q)
    causal = np.arange(length) <= row if part.causal else None

    def from_weights(weights: np.ndarray) -> np.ndarray:
        spread = torch.zeros((1, q.shape[1], q.shape[2], length), device=q.device)
        spread[0, head, row] = torch.from_numpy(weights).to(q.device)
        return _numbers(scheme.values(spread)[0, head, row])  # pyright: ignore[reportOptionalMemberAccess]: asked only where there is one

    return HeadInputs(
        _numbers(read[0, row]),
        _numbers(q[0, head, row]),
        _numbers(k[0, group]),
        _numbers(v[0, group]),
        causal,
        None if bias is None else _numbers(bias.expand(-1, q.shape[1], -1, -1)[0, head, row]),
        from_weights if scheme is not None and scheme.adds_values else None,
        attention.scaling,
    )


def _scheme(model: Any, part: str, layer: int, length: int, device: torch.device) -> Any:
    """The relative positions of a layer, where a model has them."""
    side = part.split(".")[0]
    for owner in (model, getattr(model, "body", None)):
        for name in (f"{side}_relative", "relative"):
            stack = getattr(owner, name, None)
            if isinstance(stack, nn.Module):
                return list(stack(Places.whole_sequence(length, device)))[layer]
    return None


def _allowed(keep: Tensor | None, length: int) -> np.ndarray | None:
    """Which keys may be seen; None where all may."""
    if keep is None:
        return None
    found = keep[0].reshape(-1, keep.shape[-1])[0]
    seen = found == 0 if found.is_floating_point() else found
    allowed = seen.cpu().numpy()[:length].astype(bool)
    return None if allowed.all() else allowed


def _before(module: Any, part: str, x_in: Tensor, seen: Watched) -> Tensor:
    """What the residual connection around the attention adds to."""
    if not part.endswith("cross"):
        return x_in
    return seen.input("norm of cross") if module.around_cross.pre else seen.input("attention")


def _vocabulary(model: Any, state: Tensor, tokens: Any) -> Step:
    norm = getattr(model, "decoder_norm", None) or getattr(model, "norm", None) or getattr(model, "body", model).norm
    hidden = norm(state[None])[0]
    log_probs = model.output.scores(hidden[None])[0]
    best = log_probs.topk(min(BEST, len(log_probs)))
    ids = best.indices.tolist()
    return Step(
        "vocabulary",
        "To words",
        "log softmax(W h + b)",
        "A score for every token of the vocabulary; the highest is the word that greedy search writes.",
        [
            Shown("h", _numbers(hidden)),
            Shown("log-probabilities", _numbers(best.values), "tokens", tokens(ids)),
            Shown("probabilities", _numbers(best.values.exp()), "tokens", tokens(ids)),
        ],
    )


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()
