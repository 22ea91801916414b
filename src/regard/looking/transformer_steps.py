"""The steps of attention in Transformers: encoders, decoders, GPTs and BERTs, in whatever layer and head."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.core.errors import ModelError
from regard.layers.attention.multihead import CrossAttention, SelfAttention, unscaled
from regard.layers.attention.relative import Places
from regard.looking.part import Part
from regard.looking.steps import HeadInputs, Shown, Step, head_steps, numbers
from regard.looking.watching import Watched

STACKS = {
    "encoder.self": ("encoder", "body.encoder"),
    "decoder.self": ("decoder", "body.decoder"),
    "decoder.cross": ("decoder",),
    "reader.self": ("encoder", "body.encoder"),
}


class Block(NamedTuple):
    """The parts of a layer, by what they do; of a layer that is used again and again, `call` says which use is meant."""

    attention: Any
    norm: Any
    pre: bool
    residual: bool
    feedforward: Any
    last_norm: Any
    goes_on: bool  # to the attention over the source, before the feed-forward network
    call: int


def transformer_steps(model: nn.Module, run: Any, part: Part, layer: int, head: int, row: int) -> list[Step]:
    """What one head does for one token. `run()` lets the model read the trace's text."""
    block = _block(model, part.name, layer)
    attention, call = block.attention, block.call
    watched: dict[str, nn.Module] = {"attention": attention, "out": attention.out, "norm": block.norm}
    watched["query"] = attention.query if isinstance(attention, CrossAttention) else attention.query_key_value
    watched |= {"feedforward": block.feedforward, "inner": block.feedforward.inner, "last norm": block.last_norm}
    with Watched(watched) as seen:
        run()
    read = seen.input("query", call)
    steps, weights, _ = head_steps(_head(model, attention, seen, part, layer, head, row, read, call))
    if not np.allclose(weights, part.weights[layer, head, row], atol=1e-5):
        raise ModelError("the steps", "they do not lead to the weights that were recorded", "Report this")
    written = seen.output("out", call)[0, row]
    before = (seen.input("norm", call) if block.pre else read)[0, row]
    steps.append(
        Step(
            "join",
            "Join the heads",
            "[z₁; …; z_H] W_O + b_O",
            "What all heads found, side by side, mixed by one matrix.",
            [Shown("joined", numbers(seen.input("out", call)[0, row])), Shown("written", numbers(written))],
        )
    )
    steps.append(_added(before, written, block.residual))
    if not block.pre:
        steps.append(_normed(seen.output("norm", call)[0, row]))
    if block.goes_on:
        return steps
    if block.pre:
        steps.append(_normed(seen.output("last norm", call)[0, row]))
    steps.append(_feedforward(seen, row, block))
    return steps


def _added(before: Tensor, written: Tensor, residual: bool) -> Step:
    if not residual:
        about = "This model has no residual connections: what attention wrote takes the token's place."
        return Step("residual", "Nothing is added", "attention(x)", about, [Shown("sum", numbers(written))])
    return Step(
        "residual",
        "Add what was there",
        "x + attention(x)",
        "The residual connection: nothing is lost that the token had before.",
        [Shown("x", numbers(before)), Shown("sum", numbers(before + written))],
    )


def _normed(values: Tensor) -> Step:
    return Step(
        "norm",
        "Normalise",
        "norm(x)",
        "Brought to one size, and stretched and moved as the model has learnt.",
        [Shown("normed", numbers(values))],
    )


def _feedforward(seen: Watched, row: int, block: Block) -> Step:
    call, inner = block.call, "W₂ f(W₁ norm(x) + b₁) + b₂" if block.pre else "W₂ f(W₁ x + b₁) + b₂"
    added = f"x + {inner}" if block.residual else inner
    return Step(
        "feedforward",
        "Feed-forward network",
        added if block.pre else f"norm({added})",
        "Each token by itself: wider, through a function, and back.",
        [
            Shown("input", numbers(seen.input("feedforward", call)[0, row])),
            Shown("inner", numbers(seen.output("inner", call)[0, row])),
            Shown("written", numbers(seen.output("feedforward", call)[0, row])),
            Shown("layer output", numbers(_layer_output(seen, block, call)[0, row])),
        ],
    )


def layer_states(model: nn.Module, run: Any, part: str) -> list[Tensor]:
    """What goes into the lowest layer, and what comes out of every one: [1, tokens, width] each."""
    stack = _stack(model, part)
    if isinstance(stack, nn.ModuleList):
        with Watched({str(i): block for i, block in enumerate(stack)}) as seen:
            run()
        return [seen.input("0"), *(seen.output(str(i)) for i in range(len(stack)))]
    block = _parts(stack, False, 0)  # one layer, used again and again
    with Watched({"stack": stack, "feedforward": block.feedforward, "last norm": block.last_norm}) as seen:
        run()
    calls = range(len(seen.calls["feedforward"]))
    return [seen.input("stack"), *(_layer_output(seen, block, call) for call in calls)]


def _layer_output(seen: Watched, block: Block, call: int) -> Tensor:
    """[1, tokens, width]"""
    if not block.pre:
        return seen.output("last norm", call)
    written = seen.output("feedforward", call)
    return seen.input("last norm", call) + written if block.residual else written


def _stack(model: nn.Module, part: str) -> Any:
    """The layers of a part, or the only one."""
    for path in STACKS.get(part, ()):
        try:
            stack: Any = model.get_submodule(path)
        except AttributeError:
            continue
        first = stack[0] if isinstance(stack, nn.ModuleList) else stack
        if isinstance(getattr(first, "attention", None), SelfAttention):
            return stack
    raise ModelError("the steps", f"{type(model).__name__} cannot be taken apart like this", "Choose another view")


def _block(model: nn.Module, part: str, layer: int) -> Block:
    stack = _stack(model, part)
    again = not isinstance(stack, nn.ModuleList)  # one layer, used again and again
    return _parts(stack if again else stack[layer], part.endswith("cross"), layer if again else 0)


def _parts(layer: Any, cross: bool, call: int) -> Block:
    around = getattr(layer, "around_cross" if cross else "around_attention", None)
    last = getattr(layer, "around_feedforward", None) or getattr(layer, "around_transition", None)
    return Block(
        attention=layer.cross if cross else layer.attention,
        norm=layer.attention_norm if around is None else around.norm,
        pre=bool(getattr(layer, "pre", False)) if around is None else around.pre,
        residual=bool(getattr(around, "residual", True)),
        feedforward=getattr(layer, "feedforward", None) or layer.transition,
        last_norm=layer.feedforward_norm if last is None else last.norm,
        goes_on=not cross and getattr(layer, "cross", None) is not None,
        call=call,
    )


def _head(
    model: nn.Module, attention: Any, seen: Watched, part: Part, layer: int, head: int, row: int, read: Tensor, use: int
) -> HeadInputs:
    length = part.weights.shape[-1]
    if isinstance(attention, CrossAttention):
        call = seen.calls["attention"][use].inputs
        query = attention.query(read).unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        query = query if attention.scaling else unscaled(query)
        key, value, keep = call[1], call[2], call[3]
        allowed = _allowed(keep, length)
        return HeadInputs(
            numbers(read[0, row]),
            numbers(query[0, head, row]),
            numbers(key[0, head]),
            numbers(value[0, head]),
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
        return numbers(scheme.values(spread)[0, head, row])  # pyright: ignore[reportOptionalMemberAccess]: asked only where there is one

    return HeadInputs(
        numbers(read[0, row]),
        numbers(q[0, head, row]),
        numbers(k[0, group]),
        numbers(v[0, group]),
        causal,
        None if bias is None else numbers(bias.expand(-1, q.shape[1], -1, -1)[0, head, row]),
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
