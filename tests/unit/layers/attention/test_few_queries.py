"""Attention of few queries: what the fused kernel gives, whatever sentences are beside, and taken where it should be."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.core.types import EOS, pad_rows
from regard.layers.attention import few_queries, multihead
from regard.layers.attention.few_queries import attend_few, is_few, is_short
from regard.layers.attention.multihead import as_added, attend_heads
from regard.models.base import build_model
from regard.models.transformer import TransformerConfig
from regard.search import search
from regard.search.config import SearchConfig


@pytest.fixture(autouse=True)
def _of_few_sentences(monkeypatch):
    monkeypatch.setattr(few_queries, "FEWEST_SENTENCES", 2)


def _heads(queries=4, keys=9):
    torch.manual_seed(3)
    query = torch.randn(5, queries, 2, 8).transpose(1, 2)
    key, value = torch.randn(2, 5, 2, keys + 3, 8)[:, :, :, :keys]  # as of a cache that is not full
    keep = torch.rand(5, 1, 1, keys) < 0.6
    keep[..., 0] = True
    return query, key, value, keep


@pytest.mark.parametrize("masked", ["no", "mask", "added", "each"])
def test_it_is_what_the_fused_kernel_gives(masked):
    query, key, value, keep = _heads()
    if masked == "each":  # query a mask of its own
        keep = keep & (torch.rand(5, 1, 4, 9) < 0.8)
        keep[..., 0] = True
    mask = None if masked == "no" else as_added(keep, query) if masked == "added" else keep
    with torch.inference_mode():
        assert is_few(query, key, value)
        found = attend_few(query, key, value, mask)
        wanted = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert torch.allclose(found, wanted, atol=1e-6)
    assert found.shape == query.shape


def test_a_sentence_does_not_depend_on_those_beside_it():
    query, key, value, keep = _heads()
    with torch.inference_mode():
        whole = attend_few(query, key, value, keep)
        for i in range(5):
            rows = slice(i, i + 1)
            assert torch.allclose(attend_few(query[rows], key[rows], value[rows], keep[rows]), whole[rows], atol=1e-6)


def test_it_is_not_taken_where_something_is_learned_or_would_be_copied_or_is_not_few():
    query, key, value, _ = _heads()
    assert not is_few(query, key, value)  # gradients are wanted
    with torch.inference_mode():
        assert is_few(query, key, value)
        assert not is_few(query[:, :, :1], key, value)
        assert not is_few(query[:1], key[:1], value[:1])
        assert not is_few(query.repeat(1, 1, 5, 1), key, value)
        assert not is_few(query.half(), key.half(), value.half())
        apart = key.transpose(1, 2).contiguous().transpose(1, 2)
        assert not is_few(query, apart, value)
        assert not is_few(query, key, apart)
        many = torch.zeros(5, 2, 600, 8)
        assert not is_few(query, many, many)


@pytest.mark.parametrize("masked", ["no", "mask", "added", "each"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_are_those_of_the_fused_kernel(monkeypatch, masked, causal, groups):
    query, key, value, keep = _heads(queries=9)
    if masked == "each":
        keep = keep & (torch.rand(5, 1, 9, 9) < 0.8)
        keep[..., 0] = True
    mask = None if masked == "no" else as_added(keep, query) if masked == "added" else keep
    key, value = key[:, ::groups], value[:, ::groups]
    taken, found = [], []

    def told(*given, **how):
        taken.append(given)
        return attend_few(*given, **how)

    monkeypatch.setattr(multihead, "attend_few", told)
    for short in (True, False):
        if not short:
            if causal and mask is not None:  # which torch does not take together
                hidden = torch.zeros(9, 9).masked_fill(torch.ones(9, 9).triu(1) > 0, float("-inf"))
                mask, causal = hidden + (mask if masked == "added" else as_added(mask, query)), False
            monkeypatch.setattr(multihead, "is_short", lambda *_: False)
        own = [one.clone().requires_grad_() for one in (query, key, value)]
        mixed, weights = attend_heads(*own, mask, causal=causal)
        (mixed * torch.linspace(-1, 1, mixed.numel()).view_as(mixed)).sum().backward()
        found.append([mixed.detach(), *(one.grad for one in own)])
        assert weights is None
    assert len(taken) == (0 if groups == 2 and masked == "no" else 1)  # torch takes groups where nothing is hidden
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_sentence_of_which_all_is_hidden_spoils_no_gradient():
    query, key, value, keep = _heads()
    keep[1] = False
    own = [one.clone().requires_grad_() for one in (query, key, value)]
    attend_few(*own, keep).sum().backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in own)
    mine = attend_few(query, key, value, keep)
    with torch.inference_mode():
        assert torch.allclose(attend_few(query, key, value, keep)[2:], mine[2:])


def test_dropout_is_of_the_weights():
    query, key, _, _ = _heads()
    value = torch.eye(9).expand(5, 2, 9, 9)  # so that the weights come out
    torch.manual_seed(1)
    found = attend_few(query, key, value, None, dropout=0.25)
    weights = attend_few(query, key, value, None)
    kept = found != 0
    assert torch.allclose(found[kept], (weights / 0.75)[kept])
    assert 0.6 < kept.float().mean() < 0.9


def test_gradients_of_long_sentences_and_elsewhere_are_the_fused_kernels():
    query, key, _, _ = _heads()
    assert is_short(query, key)
    assert not is_short(query, torch.zeros(5, 2, 129, 8))
    assert not is_short(torch.zeros(5, 2, 129, 8), key)
    assert not is_short(query.double(), key.double())
    with torch.no_grad():
        assert not is_short(query, key)


def test_a_graph_is_for_any_number_of_sentences():
    class Attends(torch.nn.Module):
        def forward(self, query, key, value):
            return attend_heads(query, key, value)[0]

    sentences = torch.export.Dim("B", min=1, max=100)
    heads = _heads()[:3]
    with torch.no_grad():
        graph = torch.export.export(Attends(), heads, dynamic_shapes=({0: sentences},) * 3).module()
        assert torch.allclose(graph(*(x[:1] for x in heads)), Attends()(*(x[:1] for x in heads)), atol=1e-6)


def test_causal_attention_and_recorded_weights_do_not_take_it(monkeypatch):
    monkeypatch.setattr(multihead, "attend_few", None)  # calling it would fail
    query, key, value, keep = _heads(queries=9)
    with torch.inference_mode():
        attend_heads(query, key, value, causal=True)
        assert attend_heads(query, key, value, keep, explicit=True)[1] is not None


def test_a_beam_takes_it_in_every_layer_and_finds_the_same(monkeypatch):
    torch.manual_seed(4)
    config = TransformerConfig(width=16, heads=2, layers=2, dropout=0.0)
    model = build_model("transformer", config, source_vocabulary=30, target_vocabulary=30, shared=False).eval()
    source = pad_rows([[5, 6, 7, EOS], [8, EOS], [9, 10, 11, 12, 13, EOS]])
    settings = SearchConfig(beam=4, nbest=4, max_length=6)
    taken = []

    def told(*given):
        taken.append(given)
        return attend_few(*given)

    monkeypatch.setattr(multihead, "attend_few", told)
    found = search(model, source, settings)
    # the first step looks at its own tokens alone; in every step, each layer looks at the target and at the source
    assert len(taken) % 4 == 0
    assert {given[1].shape[2] for given in taken} >= {6, 4, 8}
    monkeypatch.setattr(multihead, "is_few", lambda *given: False)
    for new, old in zip(found, search(model, source, settings), strict=True):
        assert [one.tokens for one in new] == [one.tokens for one in old]
        assert [one.score for one in new] == pytest.approx([one.score for one in old], abs=1e-5)
