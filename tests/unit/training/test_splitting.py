"""Batches that do not fit into memory: cut by rows, with the gradients of the whole."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch
from test_gradient import LANGUAGE_MODELS, TRANSLATORS, batches, make, taken, windows

from regard.core.errors import TrainingError
from regard.models.base import MODELS
from regard.training.gradient import Gradients

WITH_MEANS = {"rctm1", "rctm2"}  # their extra losses are means over a batch


def limit(model, most: int, late: bool = False) -> list[int]:
    """The model runs out of memory with more than so many rows; `late`: only in the backward pass. The rows it was asked for."""
    asked: list[int] = []

    def refuse(rows: int) -> None:
        asked.append(rows)
        if rows > most and not late:
            raise torch.OutOfMemoryError(f"{rows} rows")

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.rows = len(x)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):  # pyright: ignore[reportIncompatibleMethodOverride]
            if ctx.rows > most:
                raise torch.OutOfMemoryError("late")
            return gradient

    forward, advance = model.forward, model.advance

    def limited_forward(source, target, record=None):
        refuse(len(target))
        forced = forward(source, target, record)
        return forced._replace(hidden=Late.apply(forced.hidden)) if late else forced

    def limited_advance(tokens, memory, state, record=None):
        refuse(len(tokens))
        hidden, state = advance(tokens, memory, state, record)
        return Late.apply(hidden) if late else hidden, state

    if getattr(model, "carries", False):
        model.advance = limited_advance
    else:
        model.forward = limited_forward
    return asked


def small(name: str):
    known = {field.name for field in dataclasses.fields(MODELS.get(name).Config)}
    sizes = {"width": 16, "embedding": 16, "inner": 16, "layers": 2, "heads": 2, "attention_dropout": 0.0}
    return make(name=name, **{key: value for key, value in sizes.items() if key in known})


def subject(model, **options) -> Gradients:
    return Gradients(model, contextlib.nullcontext, **{"smoothing": 0.1, **options})


@pytest.mark.parametrize(
    ("name", "consistency", "late"),
    [
        *((name, 0.0, True) for name in TRANSLATORS if name not in WITH_MEANS),
        *(("transformer", consistency, late) for consistency in (0.0, 5.0) for late in (False, True)),
    ],
)
def test_the_pieces_have_the_gradients_of_the_whole(name, consistency, late):
    batch = batches(1)[0]
    whole, cut = small(name), small(name)
    expected = subject(whole, consistency=consistency)(batch, 0.01)
    gradients = taken(whole)
    asked = limit(cut, 3 * (2 if consistency else 1), late)
    compute = subject(cut, consistency=consistency)
    for _ in range(2):  # what was there is kept: micro-batches add up
        found = compute(batch, 0.01)
    assert len(batch.target_in) == 8
    times = 2 if consistency else 1
    assert [n // times for n in asked] == [8, 4, 2, 2, 2, 2] + [2] * 4, "the second time, what fits is known"
    assert compute.split == 2
    for a, b in zip(found, expected, strict=True):
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    for a, b in zip(taken(cut), gradients, strict=True):
        torch.testing.assert_close(a / 2, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_states_are_carried_by_rows(name, late):
    whole, cut = small(name), small(name)
    limit(cut, 2, late)
    plain, pieces = subject(whole), subject(cut)
    for batch in windows(3):
        expected, found = plain(batch, 0.01), pieces(batch, 0.01)
        torch.testing.assert_close(found.nll, expected.nll, rtol=1e-5, atol=1e-5)
        for a, b in zip(taken(cut), taken(whole), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert pieces.split == 3


def test_what_cannot_be_cut_says_so():
    batch = batches(1)[0]
    for choices, why in (({"normalise": "batch"}, "batch normalisation"), ({"name": "rctm2"}, "mean over the batch")):
        model = make(**choices)
        limit(model, 3)
        with pytest.raises(TrainingError, match=rf"{why}.*Lower train\.batch_tokens"):
            subject(model)(batch, 0.01)
    model = make()
    asked = limit(model, 0)
    with pytest.raises(TrainingError, match=r"not even 1 of its rows.*Lower"):
        subject(model)(batch, 0.01)
    assert asked == [8, 4, 2, 1]


def test_other_errors_are_not_taken_for_it():
    model = make()
    model.forward = lambda *_: (_ for _ in ()).throw(RuntimeError("something else"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="something else"):
        subject(model)(batches(1)[0], 0.01)
