"""Windows side by side times a matrix are a convolution, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.layers.convolution import windows


@pytest.mark.parametrize(("length", "width"), [(7, 3), (7, 1), (5, 5), (4, 2)])
def test_products_with_windows_are_a_convolution(length, width):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, length, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(3, width, 4, generator=generator, dtype=torch.float64)  # outputs, places, inputs
    found = F.linear(windows(x, width), kernel.flatten(1))
    expected = F.conv1d(x.transpose(1, 2), kernel.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    gradient = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    (of_found,) = torch.autograd.grad(found, x, gradient)
    (of_expected,) = torch.autograd.grad(expected, x, gradient)
    torch.testing.assert_close(of_found, of_expected)


def test_windows_keep_their_order_and_any_dimensions_before():
    x = torch.arange(2 * 3 * 4 * 1).reshape(2, 3, 4, 1).float()
    assert windows(x, 3).shape == (2, 3, 2, 3)
    assert windows(x, 3)[1, 2].tolist() == [[20, 21, 22], [21, 22, 23]]
    assert windows(x, 4)[1, 2].tolist() == [[20, 21, 22, 23]]
