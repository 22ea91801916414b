"""Linear layer, softmax and cross-entropy in one: chunks of rows go from states to a loss and all gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.core.types import PAD
from regard.layers import fused_cross_entropy
from regard.layers.cpu_products import filled, missing, product, suits, turned_product

# Logits in flight at once: small enough for a CPU's caches, large enough to fill a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 21}
CHUNK_ELEMENTS_ELSEWHERE = 1 << 27
CHUNK_ELEMENTS_FUSED = 1 << 28  # in the type of the products: float32 logits are never made
TILE = 128  # rows of a product on tensor cores
ALIGNED = 64  # rows of W are filled up to a multiple, where the kernel takes care of the rest


class LinearCrossEntropy(torch.autograd.Function):
    """Linear layer, softmax and label-smoothed cross-entropy in one: chunks of rows go all the way to their gradients.

    With z = W h + b, p = softmax(z), q = (1 - eps) onehot(y) + eps / V:
    loss = -sum_v q_v log p_v = lse(z) - (1 - eps) z_y - eps mean(z), and d loss / d z = p - q.
    With `spread`, smoothing goes by these parts, which sum to 1, instead of 1 / V. With `fused`, one kernel goes from
    logits to gradients.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, smoothing, consistency, spread=None, fused=False):
        need_gradient = any(ctx.needs_input_grad[:3])
        device = hidden.device.type
        compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        asked = _Asked(hidden, weight, bias, target, smoothing, consistency, spread, compute)
        with torch.autocast(device, enabled=False):
            if fused and need_gradient:
                loss, nll, d_hidden, d_weight, d_bias, of_all = _by_one_kernel(asked)
            else:
                loss, nll, d_hidden, d_weight, d_bias, of_all = _by_operations(asked, need_gradient)
        if need_gradient:
            d_bias = d_bias if ctx.needs_input_grad[2] else None
            ctx.dtype = weight.dtype
            d_weight = d_weight if of_all is not None else d_weight.to(weight.dtype)
            ctx.save_for_backward(d_hidden, d_weight, d_bias, of_all)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, d_loss, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        d_hidden, d_weight, d_bias, of_all = ctx.saved_tensors
        d_bias = None if d_bias is None else d_bias * d_loss
        if of_all is None:
            d_weight = d_weight * d_loss
        else:  # in one pass over what is as large as the vocabulary
            scaled = torch.empty_like(d_weight, dtype=ctx.dtype)
            d_weight = torch.addcmul(of_all * d_loss, d_weight, d_loss, out=scaled)
        return d_hidden * d_loss, d_weight, d_bias, None, None, None, None, None


class _Asked(NamedTuple):
    """What a loss is asked for: states, the weights of logits, the right tokens, and how."""

    hidden: Float[Tensor, "N D"]
    weight: Float[Tensor, "V D"]
    bias: Float[Tensor, "V"] | None
    target: Int[Tensor, "N"]
    smoothing: float
    consistency: float
    spread: Float[Tensor, "V"] | None
    compute: torch.dtype

    def means(self) -> tuple[Float[Tensor, "D"], Tensor | float]:
        """Of the weights and of the bias over tokens, by which smoothing goes."""
        if not self.smoothing:
            return self.weight.new_zeros(self.weight.shape[1], dtype=torch.float32), 0.0
        return _mean(self.weight, self.spread), 0.0 if self.bias is None else _mean(self.bias, self.spread)


class _Found(NamedTuple):
    loss: Tensor
    nll: Tensor
    d_hidden: Float[Tensor, "N D"]
    d_weight: Float[Tensor, "V D"]
    d_bias: Float[Tensor, "V"] | None
    of_all: Float[Tensor, "D"] | None  # the same for all tokens, and not yet in d_weight


def _by_one_kernel(asked: _Asked) -> _Found:
    """One kernel from logits to gradients. What smoothing adds is the same for all rows, or for all tokens, and added last."""
    hidden, weight, bias, target, smoothing, consistency, spread, compute = asked
    vocabulary, device = len(weight), hidden.device.type
    mean_weight, mean_bias = asked.means()
    matrix, added = weight.to(compute), bias
    if vocabulary % 8:  # products of other sizes are several times slower on tensor cores
        matrix, added, _ = _filled_up(matrix, bias, None, -vocabulary % ALIGNED)
    d_hidden, d_weight = torch.empty_like(hidden), None
    of_smoothing = (-smoothing * mean_weight).to(compute)
    hidden_sum = torch.zeros(hidden.shape[1], device=hidden.device)
    nll, right, divergence = (torch.zeros((), device=hidden.device) for _ in range(3))
    d_bias = None if bias is None else torch.zeros(len(matrix), device=hidden.device)
    for places in _chunks(len(hidden), vocabulary, device, halves=2 if consistency else 1, fused=True):
        h, y = _gather(hidden, places).to(compute), _gather(target, places)
        real = y != PAD
        z = h @ matrix.t()
        if consistency:
            lse, z_y, apart = fused_cross_entropy.consistent_cross_entropy_in_place(
                z, added, y, smoothing, consistency / 2
            )
            divergence += apart.sum()
        else:
            lse, z_y = fused_cross_entropy.cross_entropy_in_place(z, added, y, smoothing)
        nll += (lse - z_y).sum()  # rows of padding are 0 in both, and in z from here on
        right += z_y.sum()
        d_h = torch.addmm(of_smoothing, z, matrix) * real[:, None]
        for place, part in zip(places, d_h.chunk(len(places)), strict=True):
            d_hidden[place] = part
        d_weight = _add_product(d_weight, z.t(), h)
        if smoothing:
            hidden_sum = _add_product(hidden_sum[None], real.to(compute)[None], h)[0]
        if d_bias is not None:
            d_bias += z.sum(0, dtype=torch.float32)
    assert d_weight is not None
    d_weight, count = d_weight[:vocabulary], (target != PAD).sum()
    d_bias = None if d_bias is None else d_bias[:vocabulary]
    loss = nll + divergence
    of_all = None
    if smoothing:
        loss = loss + smoothing * (right - hidden_sum @ mean_weight - count * mean_bias)
        if spread is None:
            of_all = hidden_sum * (-smoothing / vocabulary)
        else:
            d_weight -= hidden_sum * (smoothing * spread[:, None])
        if d_bias is not None:
            d_bias -= count * (smoothing / vocabulary if spread is None else smoothing * spread)
    return _Found(loss, nll, d_hidden, d_weight, d_bias, of_all)


def _add_product(
    total: Float[Tensor, "V D"] | None, a: Float[Tensor, "V N"], b: Float[Tensor, "N D"]
) -> Float[Tensor, "V D"]:
    """total + a b, summed up in float32."""
    if not a.is_cuda or a.dtype == torch.float32:
        return a.float() @ b.float() if total is None else total.addmm_(a.float(), b.float())
    if total is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.addmm(total, a, b, out_dtype=torch.float32)


def _by_operations(asked: _Asked, need_gradient: bool) -> _Found:
    """By torch's own operations, where there is no kernel, or no gradient is wanted."""
    hidden, weight, bias, target, smoothing, consistency, spread, compute = asked
    device, vocabulary = hidden.device.type, len(weight)
    in_place = device == "cpu" and not consistency
    matrix = weight.to(compute)
    mean_weight, mean_bias = asked.means()
    d_hidden = torch.empty_like(hidden) if need_gradient else hidden.new_zeros(0)
    d_weight = torch.zeros(weight.shape if need_gradient else 0, dtype=torch.float32, device=weight.device)
    d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    loss = torch.zeros((), device=hidden.device)
    nll = torch.zeros((), device=hidden.device)
    # Whatever is the same for a whole row of logits (smoothing, padding) is applied to hidden states instead: a pass
    # over rows x vocabulary costs more than anything else here.
    for places in _chunks(len(hidden), vocabulary, device, halves=2 if consistency else 1):
        h, y = _gather(hidden, places).to(compute), _gather(target, places)
        if not consistency and suits(h, matrix):
            h, y = filled(h), nn.functional.pad(y, (0, missing(len(y))), value=PAD)
        y = y[:, None]
        real = (y != PAD).float()
        total, share = 1.0, real  # a row's logits become exponentials of this sum; each counts by its share
        z = product(h, matrix.t()).float()
        if bias is not None:
            z += bias
        z_y = z.gather(1, y)
        if in_place:
            most = z.amax(1, keepdim=True)
            d_z = log_p = z.sub_(most).exp_()
            total = d_z.sum(1, keepdim=True)
            share, log_p_y = real / total, z_y - most - total.log()
        else:
            d_z = log_p = z.log_softmax(1)
            log_p_y = log_p.gather(1, y)
        del z
        nll -= (log_p_y * real).sum()
        if smoothing:
            lse = z_y - log_p_y
            z_mean = (h.float() @ mean_weight + mean_bias)[:, None]
            loss += ((lse - (1 - smoothing) * z_y - smoothing * z_mean) * real).sum()
        else:
            loss -= (log_p_y * real).sum()
        if consistency:
            divergence, d_z = _with_divergence(log_p, consistency / 2, real)
            loss += divergence
        elif not in_place:
            d_z = log_p.exp_()  # p
        if not need_gradient:
            continue
        d_z.scatter_add_(1, y, torch.full_like(real, smoothing - 1) * total)
        d_z_compute = d_z.to(compute)
        d_h = product(d_z_compute, matrix).float() * share
        if smoothing:
            d_h -= smoothing * mean_weight * real
        count = sum(place.stop - place.start for place in places)
        for place, part in zip(places, d_h[:count].to(hidden.dtype).chunk(len(places)), strict=True):
            d_hidden[place] = part
        h_share = h * share.to(compute)
        if compute == torch.float32 and not suits(d_z_compute, h_share):
            d_weight.addmm_(d_z_compute.t(), h_share)
        else:
            d_weight += turned_product(d_z_compute, h_share)
        if smoothing:
            part = smoothing / vocabulary if spread is None else smoothing * spread[:, None]
            d_weight -= (h * real.to(compute)).float().sum(0) * part
        if d_bias is not None:
            part = smoothing / vocabulary if spread is None else smoothing * spread
            d_bias += (d_z.t() @ share).squeeze(1) - real.sum() * part
    return _Found(loss, nll, d_hidden, d_weight, d_bias, None)


def _filled_up(
    matrix: Float[Tensor, "V D"], bias: Float[Tensor, "V"] | None, spread: Float[Tensor, "V"] | None, more: int
) -> tuple[Float[Tensor, "W D"], Float[Tensor, "W"], Float[Tensor, "W"] | None]:
    """With more rows, of tokens that have no probability."""
    pad = nn.functional.pad
    bias = matrix.new_zeros(len(matrix), dtype=torch.float32) if bias is None else bias.float()
    spread = None if spread is None else pad(spread, (0, more))
    return pad(matrix, (0, 0, 0, more)), pad(bias, (0, more), value=float("-inf")), spread


def _mean(rows: Float[Tensor, "V *D"], spread: Float[Tensor, "V"] | None) -> Float[Tensor, "*D"]:
    if spread is None:
        return rows.float().mean(0)
    with torch.autocast(rows.device.type, enabled=False):
        return spread @ rows.float()


def _chunks(count: int, vocabulary: int, device: str, halves: int, fused: bool = False) -> Iterator[list[slice]]:
    """Slices of rows whose logits fit the budget; with two halves, the same rows of each."""
    half = count // halves
    elements = CHUNK_ELEMENTS_FUSED if fused else CHUNK_ELEMENTS.get(device, CHUNK_ELEMENTS_ELSEWHERE)
    rows = max(1, elements // vocabulary // halves)
    if fused and half > rows:  # chunks of like size, in whole tiles: each reads and writes the gradient of all weights
        rows = -(-half // -(-half // rows))
        rows = min(half, -(-rows // TILE) * TILE)
    for low in range(0, half, rows):
        high = min(half, low + rows)
        yield [slice(start + low, start + high) for start in range(0, count, half)]


def _gather(tensor: Tensor, places: list[slice]) -> Tensor:
    return tensor[places[0]] if len(places) == 1 else torch.cat([tensor[place] for place in places])


def _with_divergence(
    log_p: Float[Tensor, "N V"], weight: float, real: Float[Tensor, "N 1"]
) -> tuple[Tensor, Float[Tensor, "N V"]]:
    """weight * (KL(a || b) + KL(b || a)) summed over rows, where a and b are the halves of p; and p plus its gradient.

    By the logits of a, the gradient is a (log a - log b - KL(a || b)) + a - b; by those of b likewise.
    """
    log_a, log_b = log_p.chunk(2)
    gap = log_a - log_b
    a, b = log_p.exp().chunk(2)
    a_to_b, b_to_a = (a * gap).sum(1, keepdim=True), -(b * gap).sum(1, keepdim=True)
    d_a = gap.mul(weight).add_(1 + weight * (1 - a_to_b)).mul_(a).sub_(b, alpha=weight)
    d_b = gap.mul_(-weight).add_(1 + weight * (1 - b_to_a)).mul_(b).sub_(a, alpha=weight)
    divergence = weight * ((a_to_b + b_to_a) * real.chunk(2)[0]).sum()
    return divergence, torch.cat((d_a, d_b))
