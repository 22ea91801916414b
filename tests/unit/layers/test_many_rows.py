"""What steps of many rows can be made of: by Triton's interpreter against references, and the references themselves."""

from __future__ import annotations

import pytest
import torch
from interpreted import interpreted

from regard.layers.decoding import many_logits, narrow_attention, triton_here
from regard.layers.decoding.kernel_choice import Kernels, using
from regard.layers.decoding.products import Linear
from regard.layers.decoding.vocabulary import forbid


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_the_kernels_by_tritons_interpreter() -> None:
    assert interpreted("many_rows_cases.py") == "equal"


@pytest.mark.parametrize("tokens", [5, 64, 70, 151])
@pytest.mark.parametrize("bias", [True, False])
def test_the_reference_of_logits_in_round_rows(tokens: int, bias: bool) -> None:
    """Only where tokens are no multiple of 8, and enough for a product."""
    x, linear = torch.randn(4, 12), Linear(torch.randn(tokens, 12), torch.randn(tokens) if bias else None)
    banned = torch.randint(0, tokens, (4, 2))
    expected = forbid(linear(x), banned, 2, 3)
    for aligned in (False, True):
        with using(Kernels(aligned=aligned)):
            found = many_logits.many_logits(x, linear, banned, 2, 3)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
        apart = aligned and tokens % 8 and tokens >= 8
        assert found.values.stride() == (-(-tokens // 64) * 64 if apart else tokens, 1)


def test_the_matrix_is_read_in_place() -> None:
    """So what training makes of it between two searches is seen, in the product and in what it leaves."""
    weight, x = torch.randn(70, 12), torch.randn(4, 12)
    none = torch.zeros(4, 0, dtype=torch.long)
    with using(Kernels(aligned=True)):
        for _ in range(2):
            weight *= 2
            found = many_logits.many_logits(x, Linear(weight, None), none, 2, 3)
            torch.testing.assert_close(found.values[:, 4:], (x @ weight.t())[:, 4:])


def test_where_attention_is_narrow() -> None:
    assert not narrow_attention.fits(8, 1)
    with using(Kernels(narrow=True)):
        assert narrow_attention.fits(narrow_attention.MOST_PLACES, 1)
        assert not narrow_attention.fits(narrow_attention.MOST_PLACES + 1, 1)
        assert not narrow_attention.fits(8, 2)
