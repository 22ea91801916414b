"""Weights for a model of other depth: whose layers its layers begin as, and that nothing else changes."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from regard.core.types import pad_rows
from regard.models.base import MODELS, build_model
from regard.tasks.folder import put_weights, weights_of
from regard.training.other_depth import at_depth, differs_in_depth, in_words, origins


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (6, 2, [0, 5]),
        (6, 3, [0, 2, 5]),
        (12, 4, [0, 4, 7, 11]),
        (6, 1, [5]),
        (6, 6, [0, 1, 2, 3, 4, 5]),
        (2, 5, [0, 0, 0, 1, 1]),
        (6, 12, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        (1, 3, [0, 0, 0]),
    ],
)
def test_which_layers(theirs: int, ours: int, expected: list[int]) -> None:
    assert origins(theirs, ours) == expected


def translator(relative: str, encoder: int, decoder: int) -> nn.Module:
    torch.manual_seed(encoder)
    config = MODELS.get("transformer").Config(
        width=16, heads=2, encoder_layers=encoder, decoder_layers=decoder, relative=relative
    )
    return build_model("transformer", config, source_vocabulary=20, target_vocabulary=20, shared=True).eval()


def put(model: nn.Module, other: nn.Module, tmp_path) -> None:
    put_weights(model, at_depth(weights_of(other), list(weights_of(model))), tmp_path)


@pytest.mark.parametrize("relative", ["none", "shaw", "t5", "rotary"])
def test_a_shallower_translator_is_the_other_without_some_layers(relative: str, tmp_path) -> None:
    """Layers are taken out of the other by hand; so nothing of it but these is missing."""
    other, model = translator(relative, 6, 5), translator(relative, 3, 2)
    put(model, other, tmp_path)
    for side, kept in (("encoder", [0, 2, 5]), ("decoder", [0, 4])):
        setattr(other, side, nn.ModuleList(getattr(other, side)[i] for i in kept))
        if (stack := getattr(other, f"{side}_relative")) is not None:
            stack.layers = len(kept)
            if len(stack.schemes) > 1:
                stack.schemes = nn.ModuleList(stack.schemes[i] for i in kept)
    source, target = pad_rows([[5, 6, 7, 2], [8, 2]]), torch.tensor([[1, 9, 10], [1, 11, 0]])
    with torch.no_grad():
        hidden, expected = (one(source, target).hidden for one in (model, other))
    torch.testing.assert_close(hidden, expected, rtol=0, atol=0)


def test_a_deeper_translator_repeats_layers(tmp_path) -> None:
    other, model = translator("shaw", 2, 1), translator("shaw", 4, 3)
    put(model, other, tmp_path)
    for stack, kept in {
        "encoder": [0, 0, 1, 1],
        "encoder_relative.schemes": [0, 0, 1, 1],
        "decoder": [0, 0, 0],
    }.items():
        for layer, origin in enumerate(kept):
            ours, theirs = model.get_submodule(f"{stack}.{layer}"), other.get_submodule(f"{stack}.{origin}")
            assert weights_of(ours).keys() == weights_of(theirs).keys() != set()
            assert all(torch.equal(tensor, weights_of(theirs)[name]) for name, tensor in weights_of(ours).items())
    assert torch.equal(model.get_parameter("output.bias"), other.get_parameter("output.bias"))


def test_the_same_depth_changes_nothing() -> None:
    weights = weights_of(translator("none", 2, 2))
    assert at_depth(weights, list(weights)) == weights
    assert in_words(weights, list(weights)) == ""


def test_what_begins_as_what_is_told() -> None:
    theirs, ours = weights_of(translator("shaw", 6, 3)), weights_of(translator("shaw", 12, 2))
    assert in_words(theirs, list(ours)) == "decoder 1, 3 of 3; encoder 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6 of 6"


@pytest.mark.parametrize("name", [name for name in MODELS.names() if MODELS.get(name).depths])
def test_every_model_that_says_so_has_layers_that_are_alike(name: str, tmp_path) -> None:
    kind = MODELS.get(name)
    sizes = {"source_vocabulary": 20, "target_vocabulary": 20, "shared": False}
    assert set(kind.depths) <= {field.name for field in dataclasses.fields(kind.Config)}
    for depth in kind.depths:
        deep, shallow = (build_model(name, kind.Config(width=16, heads=2, **{depth: n}), **sizes) for n in (5, 2))
        put(shallow, deep, tmp_path)
        put(deep, shallow, tmp_path)


def test_what_differs_otherwise_is_left_to_be_refused() -> None:
    weights = {
        "embedding.weight": torch.zeros(2, 3),
        "filters.0.weight": torch.zeros(3),
        "filters.1.weight": torch.zeros(4),
    }
    assert at_depth(weights, ["embedding.weight", "gate.weight"]) == weights


def test_what_is_another_depth() -> None:
    kind = MODELS.get("transformer").Config
    saved = {"name": "transformer", "layers": 6, "encoder_layers": 0, "decoder_layers": 0}
    assert not differs_in_depth(kind(layers=6), saved)
    assert differs_in_depth(kind(layers=2), saved)
    assert differs_in_depth(kind(layers=6, decoder_layers=2), saved)
    assert not differs_in_depth(kind(layers=6, encoder_layers=6), saved)  # said in another way
    assert not differs_in_depth(kind(layers=3, encoder_layers=6, decoder_layers=6), saved)
    assert not differs_in_depth(
        kind(layers=6), {"name": "transformer", "layers": 6}
    )  # saved before there were more settings
    assert not differs_in_depth(MODELS.get("gnmt").Config(layers=2), {"name": "gnmt", "layers": 6})
