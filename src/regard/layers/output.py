"""Output layers: they own the vocabulary, the loss and the log-probabilities, and never keep full logits for training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.core.types import PAD

# Logits in flight at once: small enough for a CPU's caches, large enough to fill a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 20}
CHUNK_ELEMENTS_ELSEWHERE = 1 << 27


class Sums(NamedTuple):
    """A loss summed over target tokens: smoothed (what is trained), plain negative log-likelihood, and the token count."""

    loss: Tensor
    nll: Tensor
    tokens: Tensor


class OutputLayer(nn.Module, ABC):
    """Owns the vocabulary: turns hidden states into a loss or into log-probabilities."""

    vocabulary: int

    @abstractmethod
    def loss(self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0) -> Sums:
        """Exact loss summed over the targets that are not padding, without keeping full logits."""

    @abstractmethod
    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        """Log-probabilities over the vocabulary, in float32."""


class _LinearCrossEntropy(torch.autograd.Function):
    """Linear layer, softmax and label-smoothed cross-entropy in one: chunks of rows go all the way to their gradients.

    With z = W h + b, p = softmax(z), q = (1 - eps) onehot(y) + eps / V:
    loss = -sum_v q_v log p_v = lse(z) - (1 - eps) z_y - eps mean(z), and d loss / d z = p - q.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, smoothing):  # noqa: ANN001
        need_gradient = any(ctx.needs_input_grad[:3])
        device = hidden.device.type
        compute = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        vocabulary = weight.shape[0]
        rows = max(1, CHUNK_ELEMENTS.get(device, CHUNK_ELEMENTS_ELSEWHERE) // vocabulary)
        matrix = weight.to(compute)
        real = (target != PAD).float()
        mean_weight = weight.float().mean(0) if smoothing else None
        mean_bias = bias.float().mean() if smoothing and bias is not None else 0.0
        d_hidden = torch.empty_like(hidden) if need_gradient else None
        d_weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device) if need_gradient else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if need_gradient and bias is not None else None
        loss = torch.zeros((), device=hidden.device)
        nll = torch.zeros((), device=hidden.device)
        with torch.autocast(device, enabled=False):
            for low in range(0, hidden.shape[0], rows):
                h = hidden[low : low + rows].to(compute)
                y = target[low : low + rows, None]
                w = real[low : low + rows]
                z = (h @ matrix.t()).float()
                if bias is not None:
                    z += bias
                z_y = z.gather(1, y).squeeze(1)
                top = z.amax(1, keepdim=True)
                p = z.sub_(top).exp_()
                total = p.sum(1, keepdim=True)
                lse = (total.log() + top).squeeze(1)
                nll += ((lse - z_y) * w).sum()
                if smoothing:
                    z_mean = h.float() @ mean_weight + mean_bias
                    loss += ((lse - (1 - smoothing) * z_y - smoothing * z_mean) * w).sum()
                if not need_gradient:
                    continue
                d_z = p.mul_(w[:, None] / total)
                if smoothing:
                    d_z -= w[:, None] * (smoothing / vocabulary)
                d_z.scatter_add_(1, y, -(1 - smoothing) * w[:, None])
                d_z_compute = d_z.to(compute)
                d_hidden[low : low + rows] = (d_z_compute @ matrix).to(hidden.dtype)
                if compute == torch.float32:
                    d_weight.addmm_(d_z_compute.t(), h)
                else:
                    d_weight += d_z_compute.t() @ h
                if d_bias is not None:
                    d_bias += d_z.sum(0)
        if not smoothing:
            loss = nll.clone()
        if need_gradient:
            ctx.save_for_backward(d_hidden, d_weight.to(weight.dtype), d_bias)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, d_loss, _):  # noqa: ANN001
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * d_loss, d_weight * d_loss, None if d_bias is None else d_bias * d_loss, None, None


class SoftmaxOutput(OutputLayer):
    """softmax(W h + b). W may be tied to an embedding table."""

    def __init__(self, width: int, vocabulary: int, tied: nn.Parameter | None = None, bias: bool = True):
        super().__init__()
        self.vocabulary = vocabulary
        self.weight = tied if tied is not None else nn.Parameter(torch.empty(vocabulary, width))
        if tied is None:
            nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None

    def loss(self, hidden: Float[Tensor, "*N D"], target: Int[Tensor, "*N"], smoothing: float = 0.0) -> Sums:
        hidden, target = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
        tokens = (target != PAD).sum()
        if hidden.device.type == "cpu" and int(tokens) < len(target):  # skip the padding where asking costs nothing
            rows = (target != PAD).nonzero().squeeze(1)
            hidden, target = hidden.index_select(0, rows), target[rows]
        loss, nll = _LinearCrossEntropy.apply(hidden, self.weight, self.bias, target, smoothing)  # type: ignore[misc]
        return Sums(loss, nll, tokens)

    def scores(self, hidden: Float[Tensor, "*N D"]) -> Float[Tensor, "*N V"]:
        return nn.functional.linear(hidden, self.weight, self.bias).float().log_softmax(-1)
