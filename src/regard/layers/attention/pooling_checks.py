"""Refuses what attention pooling cannot mean, with words that say what to pass instead."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core.errors import ConfigError, ModelError
from regard.layers.attention.kernels import KERNELS, Kernel
from regard.layers.attention.scores import SCORES, Score
from regard.layers.attention.scores._base import EqualWidths


def rule_of(score: str | Score) -> Score | Kernel:
    """The score or the kernel that a name means."""
    if isinstance(score, Score):
        return score
    plain = tuple(name for name in SCORES.names() if issubclass(SCORES.get(name), EqualWidths))
    if score in SCORES.names() and score not in plain:
        raise ConfigError(
            f"attend, score {score!r}",
            "it has weights to learn, which a name cannot carry",
            f"Pass a module: score={SCORES.get(score).__name__}(...)",
        )
    check_choice("score", score, (*plain, *KERNELS))
    return KERNELS[score] if score in KERNELS else SCORES.get(score)()


def check_choice(name: str, got: object, known: tuple[str, ...]) -> None:
    if got not in known:
        raise ConfigError(f"attend, {name}", f"there is no {got!r}", f"Choose one of {', '.join(known)}")


def check_tensors(query: Any, keys: Any, values: Any, mask: Any) -> None:
    for name, x, least in (("query", query, 1), ("keys", keys, 2), ("values", values, 2)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise ModelError(f"attend, {name}", f"got {_kind(x)}", "Pass a tensor of floating-point numbers")
        if x.dim() < least:
            raise ModelError(
                f"attend, {name}",
                f"its shape is {tuple(x.shape)}",
                "Pass query [.. N Dq] or [Dq], keys [.. S Dk] and values [.. S Dv]",
            )
        if x.dtype != query.dtype:
            raise ModelError(f"attend, {name}", f"got {x.dtype} where the query is {query.dtype}", "Convert one")
    if keys.shape[-2] != values.shape[-2]:
        raise ModelError(
            "attend", f"there are {keys.shape[-2]} keys and {values.shape[-2]} values", "Give each key its value"
        )
    if mask is not None and not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
        raise ModelError(
            "attend, mask", f"got {_kind(mask)}", "Pass a tensor of bool that is True where a query may see a key"
        )


def check_widths(rule: Score | Kernel, query: int, key: int) -> None:
    if query != key and (rule.compares if isinstance(rule, Kernel) else isinstance(rule, EqualWidths)):
        raise ModelError(
            "attend",
            f"queries and keys must have one width here, got {query} and {key}",
            "Make the widths equal, or pass a score such as Bilinear or Additive",
        )


def check_bandwidth(rule: Score | Kernel, bandwidth: Any) -> None:
    if isinstance(bandwidth, Tensor):
        positive = bandwidth.device.type != "cpu" or bool((bandwidth > 0).all())
    else:
        positive = isinstance(bandwidth, int | float) and bandwidth > 0
    if not positive:
        raise ConfigError(
            "attend, bandwidth", f"it must be a number above 0, got {bandwidth!r}", "Give for example 1.0"
        )
    if isinstance(rule, Score) and (isinstance(bandwidth, Tensor) or bandwidth != 1):
        raise ConfigError("attend, bandwidth", f"scores have none, got {bandwidth}", "Leave it out, or choose a kernel")


def leading(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, bandwidth: float | Tensor
) -> tuple[int, ...]:
    """The leading dimensions of the result."""
    named = {"query": query, "keys": keys, "values": values}
    lead = _broadcast(*(x.shape[:-2] for x in named.values()))
    if lead is None:
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in named.items())
        raise ModelError("attend", f"leading dimensions do not match: {shapes}", "Make them equal, or 1")
    shape = (*lead, query.shape[-2], keys.shape[-2])
    for name, x in (("mask", mask), ("bandwidth", bandwidth)):
        if isinstance(x, Tensor) and _broadcast(shape, x.shape) != shape:
            raise ModelError(
                f"attend, {name}",
                f"its shape {list(x.shape)} does not broadcast to that of the weights, {list(shape)}",
                "Put 1 where it repeats: a padding mask [B S] is passed as mask[:, None]",
            )
    return lead


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return None


def _kind(x: object) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else f"a {type(x).__name__}"
