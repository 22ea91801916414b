"""Matrices of 8-bit integers in the place of a model's weights, for decoding on a CPU.

A decoding step reads every matrix for a few rows: the time goes into memory traffic, of which int8 needs a quarter, and the
products of integers are faster, too. Each row of a matrix W has a scale of its own, the largest of its numbers / 127, and so
has each row of the input x, at every call:

    x Wᵀ ≈ s_x s_W (q_x q_Wᵀ),  q = round(x / s)

The sums of integers are exact, and no row's scale depends on another row: a row's result is the same whatever is computed
beside it. A product is within about 1% of the float32 one (root mean square, of numbers from a normal distribution).

`quantise` gives a copy of a model in which an `Int8Matrix` stands wherever a large matrix stood that inputs are multiplied
by: it is used like the tensor it was made from, and no model knows of it. Such a copy writes and scores; it is not trained.

Products are those of FBGEMM, which torch has on x86 with AVX2 or AVX-512. The oneDNN ones, faster nowhere, end the process with
an illegal instruction on virtual machines that report AMX without giving it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from regard.core.errors import ModelError
from regard.layers.cpu_products import is_plain
from regard.layers.output import SoftmaxOutput
from regard.layers.output_classes import ClassOutput
from regard.layers.recurrent.layers import LSTM
from regard.layers.weight_norm import Affine, NormalisedLinear, NormalisedOutput

Model = TypeVar("Model", bound=nn.Module)

SMALLEST = 1 << 18  # numbers of a matrix below which the scales of the inputs cost more than the products save
LEVELS = 127  # of weights, on either side of 0
TINY = 1e-30  # the scale of a row of zeros of a matrix is this instead of 0


_packet: Any = getattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32", None)
_int8_product: Any = getattr(_packet, "default", None)  # the packet would look through all arguments at every call


def why_not() -> str | None:
    """Why int8 products cannot be computed here; None where they can."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return "this build of torch, or this processor, has no int8 products"
    if _int8_product is None:
        return f"torch {torch.__version__} has no int8 products with scales of one's own"
    return None


def quantise(model: Model) -> Model:
    """A copy of a model on the CPU with int8 matrices, to write and to score with; the given one stays as it is.

    Exchanged are matrices of linear layers, of output layers, and of LSTMs for single steps. All else (embeddings, also those that
    are one with the output layer's matrix, and small matrices) stays in float32 and is not copied: both models share it.
    """
    if (reason := why_not()) is not None:
        raise ModelError("int8", reason, 'Use compute="float32"')
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        raise ModelError("int8", "the model is not on the CPU in float32", "Move it there first")
    shared: dict[int, Any] = {id(p): p for p in model.parameters()}  # what is not exchanged is not copied either
    made = copy.deepcopy(model, shared).eval()
    for module in list(made.modules()):
        _settle(module)
    for module in made.modules():
        for name in _multiplied(module):
            weight = getattr(module, name)
            if weight.numel() >= SMALLEST:
                # not by setattr: an LSTM reads whole sequences with the float32 matrices that it has registered
                module.__dict__[name] = Int8Matrix(weight.detach())
                if not isinstance(module, LSTM):
                    del module._parameters[name]
                if is_plain(module):
                    module.__class__ = Int8Linear
    return made


def _settle(module: nn.Module) -> None:
    """Layers with weight normalisation get the matrix that they would compute from its parts."""
    if isinstance(module, NormalisedLinear) and module.v.numel() >= SMALLEST:
        plain = module.ready()
        ready = Affine(Int8Matrix(plain.weight.detach()), plain.bias.detach())
        module.__dict__["ready"] = lambda: ready
    for name, child in list(module.named_children()):
        if isinstance(child, NormalisedOutput):
            weight = nn.Parameter(child.weight.detach())
            plain = SoftmaxOutput(weight.shape[1], len(weight), weight)
            plain.bias = child.bias
            setattr(module, name, plain)


def _multiplied(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's matrices that inputs are multiplied by."""
    if isinstance(module, LSTM):
        return ("weight_ih_l0", "weight_hh_l0")
    if isinstance(module, (nn.Linear, SoftmaxOutput, ClassOutput)) and isinstance(
        module._parameters.get("weight"), Tensor
    ):
        return ("weight",)
    return ()


class Int8Matrix(Tensor):
    """A matrix [O, I] of int8 numbers with a scale for each row, that stands where a float32 one stood.

    `linear(x, W, b)`, `x @ W.t()` and blocks of columns are computed in integers. All else that is done with it happens to the
    float32 matrix that it stands for, made anew at every call.
    """

    _packed: Any
    _blocks: dict[tuple[int, int], Int8Matrix]
    _turned: bool

    @staticmethod
    def __new__(cls, weight: Float[Tensor, "O I"]) -> Int8Matrix:
        return cls._around(_pack(weight), weight.shape)

    @classmethod
    def _around(cls, packed: Any, shape: tuple[int, ...], turned: bool = False) -> Int8Matrix:
        made = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)
        made._packed, made._blocks, made._turned = packed, {}, turned
        return made

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"Int8Matrix{tuple(self.shape)}"

    def __deepcopy__(self, memo: Any) -> Int8Matrix:
        return self  # it never changes

    def float32(self) -> Float[Tensor, "O I"]:
        """The matrix that it stands for."""
        plain = torch.ops.quantized.linear_unpack(self._packed)[0].dequantize()
        return plain.t() if self._turned else plain

    def product(self, x: Float[Tensor, "*N I"], bias: Float[Tensor, "O"] | None) -> Float[Tensor, "*N O"]:
        """x Wᵀ + b."""
        levels = _input_levels()
        scale = x.abs().amax(-1, keepdim=True)
        rows = _int8_product(x / scale, 1 / levels, levels + 1, self._packed)
        # a row of zeros has become numbers that are none, and any integer times 0 is 0 again
        return rows.mul_(scale) if bias is None else torch.addcmul(bias, rows, scale, out=rows)

    def columns(self, low: int, high: int) -> Int8Matrix:
        """Some of the columns, packed once."""
        if (low, high) not in self._blocks:
            self._blocks[low, high] = Int8Matrix(self.float32()[:, low:high])
        return self._blocks[low, high]

    def turned(self) -> Int8Matrix:
        return Int8Matrix._around(self._packed, tuple(reversed(self.shape)), not self._turned)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (known := _KNOWN.get(func)) is not None:
            found = known(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        if func in _ABOUT:
            return super().__torch_function__(func, types, args, kwargs)
        return _in_float32(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _in_float32(func, args, kwargs)


class Int8Linear(nn.Linear):
    """A linear layer whose weight is an `Int8Matrix`, of which it asks the product itself: torch's way there takes longer."""

    def forward(self, input: Float[Tensor, "*N I"]) -> Float[Tensor, "*N O"]:
        if input.dtype != torch.float32:
            return super().forward(input)
        return self.__dict__["weight"].product(input, self._parameters["bias"])


def _in_float32(func: Any, args: Any, kwargs: Any) -> Any:
    def plain(value: Any) -> Any:
        return value.float32() if isinstance(value, Int8Matrix) else value

    args, kwargs = tree_map(plain, (args, kwargs or {}))
    return func(*args, **kwargs)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(weight, Int8Matrix) or weight._turned or isinstance(x, Int8Matrix) or x.dtype != torch.float32:
        return NotImplemented
    return weight.product(x, bias)


def _matmul(x: Tensor, weight: Tensor) -> Any:
    if (
        not isinstance(weight, Int8Matrix)
        or not weight._turned
        or isinstance(x, Int8Matrix)
        or x.dtype != torch.float32
    ):
        return NotImplemented
    return weight.product(x, None)


def _getitem(weight: Tensor, where: Any) -> Any:
    """W[:, low:high]."""
    if not isinstance(weight, Int8Matrix) or weight._turned or not isinstance(where, tuple) or len(where) != 2:
        return NotImplemented
    rows, columns = where
    if rows != slice(None) or not isinstance(columns, slice) or columns.step not in (None, 1):
        return NotImplemented
    low, high, _ = columns.indices(weight.shape[1])
    return weight.columns(low, high)


def _split(weight: Tensor, sizes: Any, dim: int = 0) -> Any:
    if not isinstance(weight, Int8Matrix) or weight._turned or dim not in (1, -1) or isinstance(sizes, int):
        return NotImplemented
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return tuple(weight.columns(end - size, end) for end, size in zip(ends, sizes, strict=True))


def _to(weight: Tensor, to: Any) -> Any:
    return weight if to is torch.float32 else NotImplemented


# called with an Int8Matrix among the arguments; NotImplemented where it is not what is meant here
_KNOWN: dict[Any, Callable[..., Any]] = {
    nn.functional.linear: _linear,
    Tensor.matmul: _matmul,
    torch.matmul: _matmul,
    Tensor.__matmul__: _matmul,
    Tensor.t: Int8Matrix.turned,
    Tensor.__getitem__: _getitem,
    Tensor.split: _split,
    Tensor.to: _to,
    Tensor.detach: lambda weight: weight,
}
_ABOUT = {
    getattr(Tensor, name).__get__
    for name in ("shape", "dtype", "device", "requires_grad", "is_leaf", "grad", "layout", "ndim", "is_cuda")
} | {Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.requires_grad_}


def _pack(weight: Float[Tensor, "O I"]) -> Any:
    scale = (weight.abs().amax(1) / LEVELS).clamp_min(TINY)
    numbers = (weight / scale[:, None]).round_().to(torch.int8)
    chosen = torch.backends.quantized.engine
    with warnings.catch_warnings():  # torch 2.13 announces another kind of tensor for int8 numbers
        warnings.simplefilter("ignore", UserWarning)
        torch.backends.quantized.engine = "fbgemm"
        try:
            made = torch._make_per_channel_quantized_tensor(  # pyright: ignore[reportPrivateImportUsage]
                numbers, scale.double(), torch.zeros(len(scale), dtype=torch.long), 0
            )
            return torch.ops.quantized.linear_prepack(made, None)
        finally:
            torch.backends.quantized.engine = chosen


@cache
def _input_levels() -> int:
    """Levels of inputs on either side of 0: 127, or 63 on processors whose sums of two products of 8 bits end at 32,767."""
    ones = torch.ones(8, 64)
    most = _int8_product(ones, 1 / 127, 128, _pack(ones))
    return 127 if bool((most - 64).abs().max() < 0.1) else 63
