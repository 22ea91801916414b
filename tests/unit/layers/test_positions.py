"""Absolute positions: what each promises, and what the schemes that fail do to a Transformer."""

from __future__ import annotations

import typing

import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import EOS, Padded, pad_rows
from regard.layers.positions import Absolute, FractionPositions, SinusoidalPositions, make_positions
from regard.models.base import Limits
from regard.models.transformer import Transformer, TransformerConfig

KINDS = typing.get_args(Absolute)
SOURCE, TARGET = [[5, 6, 7, 8, EOS], [9, EOS]], torch.tensor([[1, 4, 5, 6], [1, 7, 8, 9]])


def make(**choices) -> Transformer:
    torch.manual_seed(0)
    config = TransformerConfig(**{"width": 16, "layers": 2, "heads": 2, "max_length": 20, **choices})
    model = Transformer(config, source_vocabulary=13, target_vocabulary=13, shared=True).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_positions_can_be_asked_in_any_order_and_shape(kind):
    """What comes back depends on the number, not on where it stands; decoding asks for rows of their own."""
    positions = make_positions(kind, 12, 40)
    keep = torch.ones(2, 9, dtype=torch.bool)
    in_order = positions(torch.arange(30), 30, keep).expand(2, 30, 12)
    at = torch.tensor([[7, 0, 29], [3, 3, 11]])
    rows = torch.stack([in_order[b, at[b]] for b in range(2)])
    torch.testing.assert_close(positions(at, 30, keep).expand(2, 3, 12), rows, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal-halves", "sine"])
def test_waves_beyond_the_table_go_on(kind):
    positions = make_positions(kind, 12, 1)
    assert positions.limit is None
    at = torch.tensor([0, 5, SinusoidalPositions.TABLED - 1])
    torch.testing.assert_close(positions(at, 5000), positions(at, 1024), rtol=0, atol=0)
    far = positions(torch.arange(4990, 5000), 5000)
    assert torch.isfinite(far).all()
    assert not torch.allclose(far[0], far[1], atol=1e-3)


def test_the_waves_are_not_weights():
    assert not any("positions" in name for name in make().state_dict())


def test_halves_of_the_least_width_are_one_wave():
    found = make_positions("sinusoidal-halves", 2, 1)(torch.arange(3), 3)
    torch.testing.assert_close(found, torch.stack((torch.arange(3).sin(), torch.arange(3).cos()), -1))


def test_a_fraction_is_of_the_sources_length_without_padding():
    keep = pad_rows([[5] * 5, [5] * 3, [5]]).keep
    found = FractionPositions()(torch.arange(5), 5, keep)[..., 0]
    assert found.tolist() == [[0, 0.25, 0.5, 0.75, 1], [0, 0.5, 1, 1.5, 2], [0, 1, 2, 3, 4]]


@torch.no_grad()
def test_a_fraction_is_nothing_where_the_input_is_normalised_first():
    """Layer normalisation takes away what is added to all dimensions; only post-norm's first layer sees it."""
    for norm in ("pre", "post"):
        with_fraction, without = (make(positions=kind, norm=norm) for kind in ("fraction", "none"))
        one, other = (model(pad_rows(SOURCE), TARGET).hidden for model in (with_fraction, without))
        assert torch.allclose(one, other, atol=1e-5) == (norm == "pre")


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_without_positions_the_source_is_a_bag_of_words(kind):
    model = make(positions=kind, norm="post")
    one, other = (model(pad_rows([words]), TARGET[:1]).hidden for words in ([5, 6, 7, EOS], [7, EOS, 5, 6]))
    assert torch.allclose(one, other, atol=1e-5) == (kind == "none")


@pytest.mark.parametrize("relative", ["shaw", "music", "t5", "alibi", "rotary"])
@torch.no_grad()
def test_relative_positions_alone_show_the_order_and_all_but_alibi_the_direction(relative):
    """ALiBi punishes both directions alike: a source and its mirror image are one, where no word marks an end."""
    model = make(positions="none", relative=relative).double()
    straight, shuffled, mirrored = (
        model(pad_rows([words]), TARGET[:1]).hidden for words in ([5, 6, 7, 8], [7, 5, 8, 6], [8, 7, 6, 5])
    )
    assert float((straight - shuffled).abs().max()) > 1e-5
    assert (float((straight - mirrored).abs().max()) < 1e-12) == (relative == "alibi")


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_only_learned_positions_end(kind):
    model = make(positions=kind)
    assert model.limits == (Limits(20, 20) if kind == "learned" else Limits())
    long = torch.full((1, 21), 5)
    if kind != "learned":
        assert torch.isfinite(model(Padded(long, long > 0), long).hidden).all()
        return
    with pytest.raises(ModelError, match=r"the source: 21 tokens are more than the model's learned positions, 20"):
        model(Padded(long, long > 0), TARGET[:1])
    with pytest.raises(ModelError, match="the target: 21 tokens"):
        model(pad_rows(SOURCE[:1]), long)


@pytest.mark.parametrize("kind", KINDS)
def test_which_need_an_even_width(kind):
    if "sinusoidal" not in kind:
        assert TransformerConfig(width=15, heads=3, positions=kind).width == 15
        return
    with pytest.raises(ConfigError, match=r"setting model\.width: sinusoids need an even width, got 15"):
        TransformerConfig(width=15, heads=3, positions=kind)
