"""Windows side by side times a matrix are a convolution, forwards and backwards; texts keep the windows they have alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.layers.convolution import RowConvolution, TextConvolution, windows

SLIDING = [  # border, stride, padding
    ("wide", 1, 0),
    ("narrow", 1, 0),
    ("narrow", 1, 1),
    ("wide", 2, 0),
    ("narrow", 3, 2),
]
LENGTHS = [6, 1, 3, 4]  # shorter and longer than the windows


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


def alone(x: list[list[float]], width: int, border: str, stride: int, padding: int) -> list[list[list[float]]]:
    """The windows of one text: zeros around it, and behind it as many as one window needs."""
    around = padding + (width - 1 if border == "wide" else 0)
    zeros = [[0.0] * len(x[0])]
    whole = zeros * around + x + zeros * around
    whole += zeros * (width - len(whole))
    return [whole[i : i + width] for i in range(0, len(whole) - width + 1, stride)]


def batch(features: int) -> torch.Tensor:
    x = torch.randn(
        len(LENGTHS), max(LENGTHS), features, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    return x * (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None])[..., None]


@pytest.mark.parametrize(("border", "stride", "padding"), SLIDING)
@pytest.mark.parametrize("width", [1, 3, 4, 9])
def test_every_text_has_the_maps_that_it_has_alone(border, stride, padding, width):
    torch.manual_seed(3)
    convolution = TextConvolution(2, 3, width, border=border, stride=stride, padding=padding).double()
    torch.nn.init.normal_(convolution.bias)
    x = batch(2)
    found, counts = convolution(x, torch.tensor(LENGTHS))
    for row, length in enumerate(LENGTHS):
        expected = torch.tensor(alone(x[row, :length].tolist(), width, border, stride, padding), dtype=torch.float64)
        assert int(counts[row]) == len(expected)
        product = expected.flatten(1) @ convolution.weight.T + convolution.bias
        torch.testing.assert_close(found[row, : len(expected)], product)
    if (border, stride, padding) == ("wide", 1, 0):
        assert counts.tolist() == [length + width - 1 for length in LENGTHS]


@pytest.mark.parametrize(("border", "stride", "padding"), SLIDING)
def test_rows_are_convolved_each_by_itself_over_all_maps(border, stride, padding):
    torch.manual_seed(4)
    rows, inputs, maps, width = 3, 2, 4, 3
    convolution = RowConvolution(rows, inputs, maps, width, border=border, stride=stride, padding=padding).double()
    x = batch(rows * inputs).unflatten(-1, (rows, inputs)).permute(2, 0, 1, 3)
    with torch.no_grad():
        found, counts = convolution(x, torch.tensor(LENGTHS))
    kernel = convolution.weight.detach().unflatten(1, (width, inputs))  # of each row
    for text, length in enumerate(LENGTHS):
        for row in range(rows):
            pieces = alone(x[row, text, :length].tolist(), width, border, stride, padding)
            assert int(counts[text]) == len(pieces)
            for t, piece in enumerate(pieces):
                for j in range(maps):
                    expected = sum(
                        piece[i][k] * float(kernel[row, i, k, j]) for i in range(width) for k in range(inputs)
                    )
                    assert float(found[row, text, t, j]) == pytest.approx(expected, abs=1e-12)
