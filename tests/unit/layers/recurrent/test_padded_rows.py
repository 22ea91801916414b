"""Padding before the text instead of packing: against torch's packed sequences."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.recurrent.layers import Bidirectional, recurrent
from regard.layers.recurrent.padding import PaddedFirst, backwards

INPUTS, WIDTH = 3, 4
LENGTHS = torch.tensor([7, 1, 4, 7, 2])


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of several lengths, one of them full, one a single token, with rubbish in the padding."""
    torch.manual_seed(0)
    keep = torch.arange(7) < LENGTHS[:, None]
    return torch.where(keep[..., None], torch.randn(5, 7, INPUTS, dtype=torch.float64), 77.0), keep


def packed(layer: nn.Module, x: torch.Tensor):
    """Outputs (zero at padding) and last state, as torch computes them for rows of several lengths."""
    plain = nn.LSTM if isinstance(layer, nn.LSTM) else nn.GRU
    outputs, last = plain.forward(layer, pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False))
    return pad_packed_sequence(outputs, batch_first=True)[0], last


def turned(x: torch.Tensor) -> torch.Tensor:
    """Every row from its last token to its first, padding behind."""
    return torch.stack([torch.cat((row[:n].flip(0), row[n:])) for row, n in zip(x, LENGTHS.tolist(), strict=True)])


def test_there_and_back():
    x, keep = rows()
    way = PaddedFirst(keep)
    there = way.there(x)
    for row, n in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(there[row, 7 - n :], x[row, :n], rtol=0, atol=0)
        assert (there[row, : 7 - n] == 0).all()
    torch.testing.assert_close(way.back(there), x * keep[..., None], rtol=0, atol=0)


def test_backwards():
    x, keep = rows()
    found = backwards(x, keep)
    for row, n in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(found[row, 7 - n :], x[row, :n].flip(0), rtol=0, atol=0)
        assert (found[row, : 7 - n] == 0).all()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("reverse", [False, True])
def test_equals_packing(kind, reverse):
    x, keep = rows()
    x.requires_grad_()
    layers = [recurrent(kind, size, WIDTH, bias=False).double() for size in (INPUTS, WIDTH)]
    way = PaddedFirst(keep)
    ours = backwards(x, keep) if reverse else way.there(x)
    theirs = turned(x) if reverse else x
    for layer in layers:  # what a layer gives for padding is zero again, so that layers can be stacked
        ours, last = layer(ours)
        theirs, expected = packed(layer, theirs)
        for mine, other in zip(last, expected, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-13)
    torch.testing.assert_close(way.back(ours), theirs, rtol=0, atol=1e-13)
    weight = torch.randn(5, 7, WIDTH, dtype=torch.float64)
    (found,) = torch.autograd.grad((way.back(ours) * weight).sum(), x)
    (expected,) = torch.autograd.grad((theirs * weight).sum(), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    assert found[~keep].abs().max() == 0


@pytest.mark.parametrize(("kind", "whole"), [("lstm", nn.LSTM), ("gru", nn.GRU)])
def test_bidirectional_equals_torchs_packed(kind, whole):
    x, keep = rows()
    x.requires_grad_()
    theirs = whole(INPUTS, WIDTH, batch_first=True, bias=False, bidirectional=True).double()
    ours = Bidirectional(kind, INPUTS, WIDTH).double()
    with torch.no_grad():
        for part in ("ih", "hh"):
            getattr(ours.forwards, f"weight_{part}_l0").copy_(getattr(theirs, f"weight_{part}_l0"))
            getattr(ours.backwards, f"weight_{part}_l0").copy_(getattr(theirs, f"weight_{part}_l0_reverse"))
    outputs, (last, first) = ours(x, keep)
    expected, ends = packed(theirs, x)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-13)
    assert outputs[~keep].abs().max() == 0
    kinds = ((last, first, ends),) if kind == "gru" else zip(last, first, ends, strict=True)
    for mine_last, mine_first, end in kinds:
        torch.testing.assert_close(mine_last[0], end[0], rtol=0, atol=1e-13)
        torch.testing.assert_close(mine_first[0], end[1], rtol=0, atol=1e-13)
    weight = torch.randn_like(outputs)
    found = torch.autograd.grad((outputs * weight).sum(), (x, *ours.parameters()))
    wanted = (x, theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.weight_ih_l0_reverse, theirs.weight_hh_l0_reverse)
    for mine, other in zip(found, torch.autograd.grad((expected * weight).sum(), wanted), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "gru", "gru_reset_before"])
@torch.no_grad()
def test_a_row_of_padding_alone_gives_zeros(kind):
    torch.manual_seed(0)
    x, keep = torch.randn(2, 3, INPUTS), torch.tensor([[True, True, False], [False, False, False]])
    outputs, (last, first) = Bidirectional(kind, INPUTS, WIDTH)(x, keep)
    assert outputs[0, :2].abs().min() > 0
    assert outputs[1].abs().max() == 0
    for end in (last, first):
        for state in end if kind == "lstm" else (end,):
            assert state[0, 0].abs().min() > 0
            assert state[0, 1].abs().max() == 0


def test_the_kinds_of_layers():
    assert isinstance(recurrent("lstm", 3, 4, bias=True), nn.LSTM)
    assert isinstance(recurrent("gru", 3, 4, bias=True), nn.GRU)
    assert recurrent("gru", 3, 4, bias=True).bias
    for kind in ("lstm", "gru", "gru_reset_before"):
        layer = recurrent(kind, 3, 4, bias=False)
        assert {name for name, _ in layer.named_parameters()} == {"weight_ih_l0", "weight_hh_l0"}
        assert layer(torch.zeros(2, 5, 3))[0].shape == (2, 5, 4)  # batch first
    with pytest.raises(ValueError, match="no biases"):
        recurrent("gru_reset_before", 3, 4, bias=True)


def test_biases_are_the_weights_of_ones_at_tokens():
    x, keep = rows()
    torch.manual_seed(1)
    ours = Bidirectional("lstm", INPUTS, WIDTH, bias=True).double()
    theirs = nn.LSTM(INPUTS, WIDTH, batch_first=True, bidirectional=True).double()
    with torch.no_grad():
        for layer, end in ((ours.forwards, ""), (ours.backwards, "_reverse")):
            getattr(theirs, f"weight_ih_l0{end}").copy_(layer.weight_ih_l0[:, :-1])
            getattr(theirs, f"weight_hh_l0{end}").copy_(layer.weight_hh_l0)
            getattr(theirs, f"bias_ih_l0{end}").copy_(layer.weight_ih_l0[:, -1])
            getattr(theirs, f"bias_hh_l0{end}").zero_()
    outputs, (last, first) = ours(x, keep)
    expected, (h, c) = packed(theirs, x)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-13)
    for found, other in ((last[0], h[:1]), (first[0], h[1:]), (last[1], c[:1]), (first[1], c[1:])):
        torch.testing.assert_close(found, other, rtol=0, atol=1e-13)


@pytest.mark.parametrize("bias", [False, True])
def test_single_steps_are_those_of_the_library(bias):
    torch.manual_seed(2)
    layer = recurrent("lstm", INPUTS, WIDTH, bias=bias).double()
    x, h, c = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 1, INPUTS), (1, 5, WIDTH), (1, 5, WIDTH)))
    outputs, last = layer(x, (h, c))
    expected, other = nn.LSTM.forward(layer, x, (h, c))
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(last, other, rtol=0, atol=1e-13)
