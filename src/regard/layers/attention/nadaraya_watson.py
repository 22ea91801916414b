"""Nadaraya-Watson regression (Nadaraya 1964, Watson 1964): attention pooling with a kernel, the training set its database."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.core.errors import ModelError
from regard.layers.attention.kernels import KERNELS
from regard.layers.attention.pooling import Empty, attend
from regard.layers.attention.pooling_checks import check_choice


def nadaraya_watson(
    x: Tensor,
    x_train: Tensor,
    y_train: Tensor,
    *,
    kernel: str = "gaussian",
    bandwidth: float | Tensor = 1.0,
    empty: Empty = "nan",
) -> Tensor:
    """f(x) = Σ_i K(x, x_i) y_i / Σ_j K(x, x_j): at each x the mean of the y_i, weighted by how near their x_i are.

    Points are numbers, x [N] and x_train [S], or vectors, x [N D] and x_train [S D]; y_train is [S] or [S Dy]. The result is
    [N] or [N Dy]. Where a compact kernel finds no neighbour there is nothing to estimate from: NaN, unless `empty` says
    otherwise (as in `attend`, where it is zero unless told: a context of zero is harmless, an estimate of zero is a claim).
    """
    check_choice("kernel", kernel, tuple(KERNELS))
    for name, points in (("x", x), ("x_train", x_train), ("y_train", y_train)):
        _check(name, points)
    columns = [t[:, None] if t.dim() == 1 else t for t in (x, x_train, y_train)]
    found = attend(*columns, score=kernel, bandwidth=bandwidth, empty=empty).values
    return found[:, 0] if y_train.dim() == 1 else found


def _check(name: str, points: Any) -> None:
    if not isinstance(points, Tensor) or points.dim() not in (1, 2):
        got = f"shape {tuple(points.shape)}" if isinstance(points, Tensor) else f"a {type(points).__name__}"
        raise ModelError(f"nadaraya_watson, {name}", f"got {got}", "Pass a tensor [points] or [points, coordinates]")
