"""Output layers: they own the vocabulary, the loss and the log-probabilities, and never keep full logits for training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.core.types import PAD
from regard.layers import fused_cross_entropy

# Logits in flight at once: small enough for a CPU's caches, large enough to fill a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 21}
CHUNK_ELEMENTS_ELSEWHERE = 1 << 27
CHUNK_ELEMENTS_FUSED = 1 << 28  # in the type of the products: float32 logits are never made
ALIGNED = 64  # rows of W are filled up to a multiple, where the kernel takes care of the rest
SILENCE = -1e4  # added to a logit; float16 knows it, and exp(SILENCE) is 0


class Sums(NamedTuple):
    """A loss summed over target tokens: smoothed (what is trained), plain negative log-likelihood, and the token count."""

    loss: Tensor
    nll: Tensor
    tokens: Tensor


class OutputLayer(nn.Module, ABC):
    """Owns the vocabulary: turns hidden states into a loss or into log-probabilities."""

    vocabulary: int

    @abstractmethod
    def loss(
        self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0, consistency: float = 0.0
    ) -> Sums:
        """Exact loss summed over the targets that are not padding, without keeping full logits.

        With `consistency` (R-Drop, Liang et al. 2021), the second half of the rows repeats the first under another
        dropout, and consistency / 2 times the two-way divergence between their distributions is added to the loss.
        """

    @abstractmethod
    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Log-probabilities over the vocabulary, in float32."""


class _LinearCrossEntropy(torch.autograd.Function):
    """Linear layer, softmax and label-smoothed cross-entropy in one: chunks of rows go all the way to their gradients.

    With z = W h + b, p = softmax(z), q = (1 - eps) onehot(y) + eps / V:
    loss = -sum_v q_v log p_v = lse(z) - (1 - eps) z_y - eps mean(z), and d loss / d z = p - q.
    With `spread`, smoothing goes by these parts, which sum to 1, instead of 1 / V. With `fused`, one kernel goes from
    logits to gradients.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, smoothing, consistency, spread=None, fused=False):
        need_gradient = any(ctx.needs_input_grad[:3])
        fused = fused and need_gradient
        device = hidden.device.type
        compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        in_place = device == "cpu" and not consistency and not fused
        vocabulary = weight.shape[0]
        matrix = weight.to(compute)
        mean_weight = _mean(weight, spread) if smoothing else weight.new_zeros(weight.shape[1]).float()
        mean_bias = _mean(bias, spread) if smoothing and bias is not None else 0.0
        d_hidden = torch.empty_like(hidden) if need_gradient else hidden.new_zeros(0)
        if fused and vocabulary % 8:  # products of other sizes are several times slower on tensor cores
            matrix, bias, spread = _filled_up(matrix, bias, spread, -vocabulary % ALIGNED)
        size = matrix.shape if need_gradient else 0
        d_weight = torch.zeros(size, dtype=torch.float32, device=weight.device)
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if bias is not None and ctx.needs_input_grad[2] else None
        loss = torch.zeros((), device=hidden.device)
        nll = torch.zeros((), device=hidden.device)
        # Whatever is the same for a whole row of logits (smoothing, padding) is applied to hidden states instead: a pass
        # over rows x vocabulary costs more than anything else here.
        with torch.autocast(device, enabled=False):
            for places in _chunks(len(hidden), vocabulary, device, halves=2 if consistency else 1, fused=fused):
                h = _gather(hidden, places).to(compute)
                y = _gather(target, places)[:, None]
                real = (y != PAD).float()
                total, share = 1.0, real  # a row's logits become exponentials of this sum; each counts by its share
                z = h @ matrix.t()
                if fused:
                    d_z = log_p = z
                    if consistency:
                        lse, z_y, divergence = fused_cross_entropy.consistent_cross_entropy_in_place(
                            d_z, bias, y[:, 0], smoothing, consistency / 2
                        )
                        loss += divergence.sum()
                    else:
                        lse, z_y = fused_cross_entropy.cross_entropy_in_place(d_z, bias, y[:, 0], smoothing)
                    z_y = z_y[:, None]
                    log_p_y = z_y - lse[:, None]
                else:
                    z = z.float()
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
                if consistency and not fused:
                    divergence, d_z = _with_divergence(log_p, consistency / 2, real)
                    loss += divergence
                elif not fused and not in_place:
                    d_z = log_p.exp_()  # p
                if not need_gradient:
                    continue
                if not fused:
                    d_z.scatter_add_(1, y, torch.full_like(real, smoothing - 1) * total)
                d_z_compute = d_z.to(compute)
                d_h = (d_z_compute @ matrix).float() * share
                if smoothing:
                    d_h -= smoothing * mean_weight * real
                for place, part in zip(places, d_h.to(hidden.dtype).chunk(len(places)), strict=True):
                    d_hidden[place] = part
                h_share = h * share.to(compute)
                if compute == torch.float32:
                    d_weight.addmm_(d_z_compute.t(), h_share)
                else:
                    d_weight += d_z_compute.t() @ h_share
                if smoothing:
                    part = smoothing / vocabulary if spread is None else smoothing * spread[:, None]
                    d_weight -= (h * real.to(compute)).float().sum(0) * part
                if d_bias is not None:
                    part = smoothing / vocabulary if spread is None else smoothing * spread
                    of_rows = d_z.sum(0, dtype=torch.float32) if fused else (d_z.t() @ share).squeeze(1)
                    d_bias += of_rows - real.sum() * part
        if need_gradient:
            d_bias = None if d_bias is None else d_bias[:vocabulary]
            ctx.save_for_backward(d_hidden, d_weight[:vocabulary].to(weight.dtype), d_bias)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, d_loss, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        d_bias = None if d_bias is None else d_bias * d_loss
        return d_hidden * d_loss, d_weight * d_loss, d_bias, None, None, None, None, None


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


class SoftmaxOutput(OutputLayer):
    """softmax(W h + b). W may be tied to an embedding table.

    The tokens in `never` are not written: their logits are lowered by 10,000, which leaves them no probability in float32 and
    their rows of W no gradient, and is finite, so that nothing becomes NaN. Label smoothing goes to the others only.
    """

    fused = True  # training takes one kernel from logits to gradients where there is one (fused_cross_entropy.py)

    def __init__(
        self,
        width: int,
        vocabulary: int,
        tied: Tensor | None = None,
        bias: bool = True,
        never: Sequence[int] = (),
    ):
        super().__init__()
        self.vocabulary = vocabulary
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(vocabulary, width))
        if tied is None:
            nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None
        if never:
            silent = torch.zeros(vocabulary, device="cpu")
            silent[list(never)] = 1.0
            self.register_buffer("silent", silent, persistent=False)

    @property
    def _silent(self) -> Float[Tensor, "V"] | None:
        """1 for every token that is never written."""
        return self._buffers.get("silent")

    def _added(self) -> Float[Tensor, "V"] | None:
        """What is added to W h."""
        if self._silent is None:
            return self.bias
        return self._silent * SILENCE if self.bias is None else self.bias + self._silent * SILENCE

    def loss(
        self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0, consistency: float = 0.0
    ) -> Sums:
        hidden, target = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
        tokens = (target != PAD).sum()
        if hidden.device.type == "cpu" and int(tokens) < len(target):  # skip the padding where asking costs nothing
            rows = (target != PAD).nonzero().squeeze(1)
            hidden, target = hidden.index_select(0, rows), target[rows]
        written = None if self._silent is None else 1 - self._silent.float()
        spread = None if written is None else written / written.sum()
        fused = self.fused and fused_cross_entropy.usable(hidden.device.type, self.vocabulary)
        loss, nll = _LinearCrossEntropy.apply(  # type: ignore[misc]
            hidden, self.weight, self._added(), target, smoothing, consistency, spread, fused
        )
        return Sums(loss, nll, tokens)

    def matrix(self) -> tuple[Float[Tensor, "V D"], Float[Tensor, "V"] | None]:
        """W and b, of the logits."""
        return self.weight, self._added()

    def logits(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """W h + b: all that a search needs where it normalises only the tokens that it chooses."""
        return nn.functional.linear(hidden, self.weight, self._added())

    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return self.logits(hidden).float().log_softmax(-1)
