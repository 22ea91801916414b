"""One step of an LSTM and of a GRU, after the matrix products: what is left is one kernel on CUDA.

Gates stand in torch's order, i f g o and r z n, so that weights fit `nn.LSTM` and `nn.GRU`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

_seen: ContextVar[list[dict[str, Tensor]] | None] = ContextVar("seen", default=None)


@contextmanager
def watched_cells() -> Iterator[list[dict[str, Tensor]]]:
    """The gates and states of every step that is taken by itself in this block, in order: for those who look inside."""
    seen: list[dict[str, Tensor]] = []
    token = _seen.set(seen)
    try:
        yield seen
    finally:
        _seen.reset(token)


def lstm_gates(from_input: Float[Tensor, "*N G"], from_state: Float[Tensor, "*N G"]) -> dict[str, Tensor]:
    i, f, g, o = (from_input + from_state).chunk(4, -1)
    return {"input gate": i.sigmoid(), "forget gate": f.sigmoid(), "output gate": o.sigmoid(), "candidate": g.tanh()}


def gru_gates(from_input: Float[Tensor, "*N G"], from_state: Float[Tensor, "*N G"]) -> dict[str, Tensor]:
    (r, z, n), (from_r, from_z, from_n) = from_input.chunk(3, -1), from_state.chunk(3, -1)
    r, z = (r + from_r).sigmoid(), (z + from_z).sigmoid()
    return {"reset gate": r, "update gate": z, "candidate": (n + r * from_n).tanh()}


def precise(state: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
    """A state in float32 at least: what is added up over many steps does not survive in 16 bits."""
    return state.to(torch.promote_types(state.dtype, torch.float32))


def without_autocast(tensor: Tensor) -> AbstractContextManager:
    """Numbers as they are given, also under autocast, on the tensor's device; a device without values has no autocast."""
    kind = tensor.device.type
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)


def open_forget_gate(bias: Float[Tensor, "G"]) -> None:
    """Biases of an LSTM to start from: 1 for the forget gate, so that it keeps what it has (Jozefowicz et al. 2015), else 0."""
    with torch.no_grad():
        bias.zero_()
        bias.chunk(4)[1].fill_(1.0)


def lstm_step(
    from_input: Float[Tensor, "*N G"], from_state: Float[Tensor, "*N G"], c: Float[Tensor, "*N D"]
) -> tuple[Float[Tensor, "*N D"], Float[Tensor, "*N D"]]:
    """i, f, o = σ(..), g = tanh(..), c' = f c + i g, h' = o tanh(c'). Gives h' and c'."""
    from_input, from_state = from_input.to(c.dtype), from_state.to(c.dtype)
    h, new = _lstm_step(from_input, from_state, c)
    if (seen := _seen.get()) is not None:
        seen.append({**lstm_gates(from_input, from_state), "cell": new, "state": h})
    return h, new


def _lstm_step(from_input: Tensor, from_state: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    if c.device.type == "cuda":
        shape = c.shape
        gates = (from_input.flatten(0, -2), from_state.flatten(0, -2))
        h, new, _ = torch.ops.aten._thnn_fused_lstm_cell(*gates, c.reshape(-1, shape[-1]), None, None)
        return h.view(shape), new.view(shape)
    return _LSTMStep.apply(from_input + from_state, c)  # type: ignore[return-value]


def reset_before_step(
    from_input: Float[Tensor, "*N G"],
    gates: Callable[[Tensor], Tensor],
    candidate: Callable[[Tensor], Tensor],
    h: Float[Tensor, "*N D"],
) -> Float[Tensor, "*N D"]:
    """r, z = σ(W x + U h), n = tanh(W x + U (r h)), h' = (1 - z) n + z h; U is given as two products."""
    width = h.shape[-1]
    r, z = (from_input[..., : 2 * width] + gates(h)).to(h.dtype).sigmoid().chunk(2, -1)
    n = (from_input[..., 2 * width :] + candidate(r * h)).to(h.dtype).tanh()
    new = torch.lerp(n, h, z)
    if (seen := _seen.get()) is not None:
        seen.append({"reset gate": r, "update gate": z, "candidate": n, "state": new})
    return new


def gru_step(
    from_input: Float[Tensor, "*N G"], from_state: Float[Tensor, "*N G"], h: Float[Tensor, "*N D"]
) -> Float[Tensor, "*N D"]:
    """r, z = σ(..), n = tanh(W x + r (U h)), h' = (1 - z) n + z h: the reset gate acts after the product, as in cuDNN."""
    from_input, from_state = from_input.to(h.dtype), from_state.to(h.dtype)
    new = _gru_step(from_input, from_state, h)
    if (seen := _seen.get()) is not None:
        seen.append({**gru_gates(from_input, from_state), "state": new})
    return new


def _gru_step(from_input: Tensor, from_state: Tensor, h: Tensor) -> Tensor:
    if h.device.type == "cuda":
        shape = h.shape
        gates = (from_input.flatten(0, -2), from_state.flatten(0, -2))
        new, _ = torch.ops.aten._thnn_fused_gru_cell(*gates, h.reshape(-1, shape[-1]), None, None)
        return new.view(shape)
    return _GRUStep.apply(from_input, from_state, h)  # type: ignore[return-value]


class _LSTMStep(torch.autograd.Function):
    """The step by hand: half the passes over memory that autograd would make."""

    @staticmethod
    def forward(ctx, gates, c):
        i, f, g, o = gates.chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        new = torch.addcmul(f * c, i, g)
        tanh = new.tanh()
        ctx.save_for_backward(i, f, g, o, c, tanh)
        return o * tanh, new

    @staticmethod
    @once_differentiable
    def backward(ctx, d_h, d_new):  # pyright: ignore[reportIncompatibleMethodOverride]
        i, f, g, o, c, tanh = ctx.saved_tensors
        d_c = torch.addcmul(d_new, d_h * o, 1 - tanh * tanh)
        d_gates = torch.empty((*c.shape[:-1], 4 * c.shape[-1]), dtype=c.dtype, device=c.device)
        d_i, d_f, d_g, d_o = d_gates.chunk(4, -1)
        torch.mul(d_c * g, torch.addcmul(i, i, i, value=-1), out=d_i)
        torch.mul(d_c * c, torch.addcmul(f, f, f, value=-1), out=d_f)
        torch.mul(d_c * i, 1 - g * g, out=d_g)
        torch.mul(d_h * tanh, torch.addcmul(o, o, o, value=-1), out=d_o)
        return d_gates, d_c * f


class _GRUStep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, from_input, from_state, h):
        width = h.shape[-1]
        r, z = (from_input[..., : 2 * width] + from_state[..., : 2 * width]).sigmoid_().chunk(2, -1)
        u = from_state[..., 2 * width :]
        n = torch.addcmul(from_input[..., 2 * width :], r, u).tanh_()
        ctx.save_for_backward(r, z, n, u, h)
        return torch.lerp(n, h, z)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_new):  # pyright: ignore[reportIncompatibleMethodOverride]
        r, z, n, u, h = ctx.saved_tensors
        width = h.shape[-1]
        d_input = torch.empty((*h.shape[:-1], 3 * width), dtype=h.dtype, device=h.device)
        d_r, d_z, d_n = d_input.chunk(3, -1)
        keep = 1 - z
        torch.mul(d_new * keep, torch.addcmul(torch.ones_like(n), n, n, value=-1), out=d_n)
        torch.mul(d_n * u, torch.addcmul(r, r, r, value=-1), out=d_r)
        torch.mul(d_new * (h - n), z * keep, out=d_z)
        d_state = d_input.clone()
        d_state[..., 2 * width :] *= r
        return d_input, d_state, d_new * z
