"""Folding and unfolding: the schedule, the convolution's gradients, and that the one is the transpose of the other."""

from __future__ import annotations

import pytest
import torch

from regard.layers.folding import ACTIVATIONS, Fold, Unfold, convolve, widest


def test_the_widest_kernel_is_the_last_that_takes_no_more_than_there_is():
    taken = [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5]  # of gaps 0, 1, ..: K² takes 1, K³ 2 more, K⁴ 3 more
    assert [widest(gap) for gap in range(11)] == taken
    for gap in range(3000):
        i = widest(gap)
        assert i * (i - 1) // 2 <= gap < (i + 1) * i // 2


@pytest.mark.parametrize("own", [False, True])
def test_the_convolution_and_its_gradients(own):
    torch.manual_seed(0)
    x = torch.randn(3, 6, 2, dtype=torch.float64, requires_grad=True)
    shape = (3, 4, 2) if own else (4, 2)
    kernel = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = convolve(x, kernel)
    assert y.shape == (3, 3, 2)
    one = kernel[1] if own else kernel
    assert y[1, 2, 1].item() == pytest.approx(sum((x[1, 2 + t, 1] * one[t, 1]).item() for t in range(4)))
    assert torch.autograd.gradcheck(convolve, (x, kernel))


def linear(cls, longest: int):
    """Without the non-linear function, each is a matrix."""
    torch.manual_seed(4)
    module = cls(3, longest, "tanh").double()
    module.activation = lambda x: x
    return module


@pytest.mark.parametrize("length", [1, 2, 3, 6, 11])
def test_unfolding_is_the_transpose_of_folding(length):
    """<fold x, y> = <x, unfold y> for equal kernels, whatever columns are left."""
    fold, unfold = linear(Fold, 12), linear(Unfold, 12)
    unfold.load_state_dict(fold.state_dict())
    for left in range(1, length + 1):
        x, y = torch.randn(1, length, 3, dtype=torch.float64), torch.randn(1, left, 3, dtype=torch.float64)
        gap, count = torch.tensor([length - left]), torch.tensor([left])
        folded, unfolded = fold(x, gap, left), unfold(y, count, gap, length)
        assert folded.shape == y.shape
        torch.testing.assert_close((folded * y).sum((0, 1)), (x * unfolded).sum((0, 1)))


@torch.no_grad()
def test_sentences_of_all_gaps_side_by_side_are_each_by_itself():
    torch.manual_seed(1)
    fold, unfold = (cls(3, 12, "sigmoid").double() for cls in (Fold, Unfold))
    x = torch.randn(10, 10, 3, dtype=torch.float64)
    gap = torch.arange(10)
    together = fold(x, gap, 10)
    spread = unfold(together, 10 - gap, gap, 12)
    for row in range(10):
        left = 10 - row
        alone = fold(x[row : row + 1], gap[row : row + 1], left)
        torch.testing.assert_close(alone[0], together[row, :left])
        torch.testing.assert_close(fold(x[row : row + 1], gap[row : row + 1], 1)[0], together[row, :1])
        back = unfold(alone, torch.tensor([left]), gap[row : row + 1], 10)
        torch.testing.assert_close(back[0], spread[row, :10])
    assert float(spread[:, 10:].abs().max()) == 0


def test_what_stands_beyond_a_sentence_is_not_read():
    torch.manual_seed(1)
    fold, unfold = Fold(3, 12, "tanh"), Unfold(3, 12, "sigmoid")
    x, gap = torch.randn(1, 9, 3), torch.tensor([5])
    other = x.clone()
    other[:, 6:] = 99.0  # a sentence of 6 columns, of which one is left
    torch.testing.assert_close(fold(x, gap, 1), fold(other, gap, 1), rtol=0, atol=0)
    y = torch.randn(1, 4, 3)
    spread = unfold(y, torch.tensor([2]), gap, 9)
    y[:, 2:] = 99.0
    torch.testing.assert_close(unfold(y, torch.tensor([2]), gap, 9), spread, rtol=0, atol=0)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@torch.no_grad()
def test_the_last_column_differs_between_sentences_at_the_start(activation):
    torch.manual_seed(3)
    fold = Fold(64, 64, activation)
    for length in (4, 7, 16, 30, 60):
        x = torch.randn(32, length, 64) / 8
        assert float(fold(x, torch.full((32,), length - 1), 1).std(0).mean()) > 0.005, length


def test_gradients_through_both():
    torch.manual_seed(2)
    fold, unfold = (cls(2, 8, "tanh").double() for cls in (Fold, Unfold))
    gap = torch.tensor([0, 3, 5, 6])

    def both(x, *_):
        return unfold(fold(x, gap, 4), (7 - gap).clamp(max=4), torch.tensor([0, 2, 4, 3]), 8)

    x = torch.randn(4, 7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(both, (x, *fold.parameters(), *unfold.parameters()))
