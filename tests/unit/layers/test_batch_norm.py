"""Batch normalisation against float64 NumPy from the paper's algorithms, and against torch where there is no padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from regard.core.types import EOS, Padded, pad_rows
from regard.layers.batch_norm import EPSILON, BatchNorm
from regard.layers.normalise import normaliser
from regard.models.transformer import Transformer, TransformerConfig

D = 5


def make(seed: int = 0) -> BatchNorm:
    torch.manual_seed(seed)
    norm = BatchNorm(D).double()
    for p in norm.parameters():
        nn.init.normal_(p)
    return norm


def states(rows: int = 4, length: int = 6, seed: int = 1) -> torch.Tensor:
    return 3 * torch.randn(rows, length, D, dtype=torch.double, generator=torch.Generator().manual_seed(seed)) + 1


KEEP = torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool)


def test_training_is_the_papers_algorithm_over_the_tokens_that_count():
    norm, x = make(), states()
    x[3, 1] = 1e30  # at padding, where anything may stand
    y = norm.train()(x, KEEP)
    gamma, beta = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    tokens = np.stack([x[b, s].numpy() for b in range(4) for s in range(6) if KEEP[b, s]])
    mean = sum(tokens) / len(tokens)
    variance = sum((token - mean) ** 2 for token in tokens) / len(tokens)
    for b in range(4):  # what does not count gets an output, too
        for s in range(6):
            expected = gamma * (x[b, s].numpy() - mean) / np.sqrt(variance + EPSILON) + beta
            np.testing.assert_allclose(y[b, s].detach().numpy(), expected, rtol=1e-10)
    unbiased = variance * len(tokens) / (len(tokens) - 1)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * mean, rtol=1e-10)
    np.testing.assert_allclose(norm.running_var.numpy(), 0.9 + 0.1 * unbiased, rtol=1e-10)


def test_without_padding_it_is_that_of_torch_with_its_gradients_and_running_averages():
    ours, theirs = make(), nn.BatchNorm1d(D, eps=EPSILON).double()
    theirs.load_state_dict({**ours.state_dict(), "num_batches_tracked": torch.tensor(0)})
    weight = states(seed=9)
    for step in range(3):
        x = states(seed=step).requires_grad_()
        again = x.detach().clone().requires_grad_()
        one, other = ours.train()(x), theirs.train()(again.flatten(0, 1)).unflatten(0, x.shape[:2])
        torch.testing.assert_close(one, other)
        (one * weight).sum().backward()
        (other * weight).sum().backward()
        torch.testing.assert_close(x.grad, again.grad)
        for name, p in ours.named_parameters():
            torch.testing.assert_close(p.grad, theirs.get_parameter(name).grad)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(ours.get_buffer(name), theirs.get_buffer(name))
    x = states(seed=7)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x.flatten(0, 1)).unflatten(0, x.shape[:2]))


def test_in_evaluation_neighbours_and_padding_change_nothing():
    norm = make()
    for seed in range(5):
        norm.train()(states(seed=seed), KEEP)
    kept = norm.running_mean.clone()
    x = states(seed=8)
    together = norm.eval()(x, KEEP)
    assert torch.equal(norm(x[1:2, 2:3]), together[1:2, 2:3])
    assert torch.equal(norm.running_mean, kept)


def test_gradients_do_not_come_from_tokens_that_do_not_count():
    x = states().requires_grad_()
    (make().train()(x, KEEP) * states(seed=5))[KEEP].square().sum().backward()
    assert x.grad[~KEEP].abs().max() == 0
    assert x.grad[KEEP].abs().min() > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_batch_does_not_spoil_the_running_averages(bad):
    norm, x = make(), states()
    norm.train()(x, KEEP)
    before = {n: b.clone() for n, b in norm.named_buffers()}
    x[0, 0, 2] = bad
    norm(x, KEEP)
    after = dict(norm.named_buffers())
    assert all(torch.isfinite(b).all() for b in after.values())
    assert torch.equal(after["running_mean"][2], before["running_mean"][2])
    assert not torch.equal(after["running_mean"][1], before["running_mean"][1])


def test_where_nothing_counts_the_running_averages_are_used_and_stay():
    norm, x = make(), states()
    norm.train()(x, KEEP)
    before = {n: b.clone() for n, b in norm.named_buffers()}
    y = norm(x, torch.zeros_like(KEEP))
    assert all(torch.equal(b, before[n]) for n, b in norm.named_buffers())
    torch.testing.assert_close(y, norm.eval()(x))


def test_buffers_stay_where_they_are():
    """A recorded pass writes to the places that it saw."""
    norm = make()
    places = {n: b.data_ptr() for n, b in norm.named_buffers()}
    norm.train()(states(), KEEP)
    assert {n: b.data_ptr() for n, b in norm.named_buffers()} == places


def test_sixteen_bits_are_not_enough_for_averages():
    norm = make().float()
    x = states().float()
    with torch.autocast("cpu", torch.bfloat16):
        y = norm.train()(x.bfloat16(), KEEP)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, make().float().train()(x.bfloat16().float(), KEEP))


def test_forms_are_called_alike():
    x = states().float()
    for kind in ("layer", "rms", "batch", None):
        norm = normaliser(kind, D).train()
        assert norm(x, KEEP).shape == x.shape
        if kind in ("layer", "rms"):
            assert torch.equal(norm(x, KEEP), norm(x, ~KEEP))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_of_a_transformer_in_training_padding_and_filling_rows_do_not_count(norm):
    torch.manual_seed(2)
    config = TransformerConfig(width=8, layers=1, heads=2, norm=norm, normalise="batch", dropout=0.0)
    source, target = pad_rows([[5, 6, 7, EOS], [8, EOS]]), torch.tensor([[1, 5, 6], [1, 9, 0]])
    fill = Padded(torch.tensor([[EOS, 0, 0, 0, 0, 0]] * 2), torch.tensor([[True] + [False] * 5] * 2))
    wide = [nn.functional.pad(part, (0, 2)) for part in source]
    filled = Padded(*(torch.cat(parts) for parts in zip(wide, fill, strict=True)))
    found = []
    for sources, targets in ((source, target), (filled, torch.cat([target, torch.zeros_like(target)]))):
        torch.manual_seed(3)
        model = Transformer(config, source_vocabulary=12, target_vocabulary=12, shared=True).train()
        hidden = model(sources, targets).hidden[:2]
        found.append((hidden[targets[:2] != 0], dict(model.named_buffers())))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    running = [n for n in found[0][1] if "running" in n]
    assert len(running) == 2 * (2 + 3 + 2 * (norm == "pre"))
    for n in running:
        torch.testing.assert_close(found[0][1][n], found[1][1][n], rtol=1e-4, atol=1e-5)


def test_every_norm_of_a_transformer_is_one():
    config = TransformerConfig(width=8, layers=2, heads=2, normalise="batch")
    model = Transformer(config, source_vocabulary=12, target_vocabulary=12, shared=True)
    assert not any(isinstance(module, nn.LayerNorm | nn.RMSNorm) for module in model.modules())
    assert sum(isinstance(module, BatchNorm) for module in model.modules()) == 2 * (2 + 3) + 2
