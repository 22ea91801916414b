"""Relative positions: what all schemes promise (shifts, hooks, kernels, 16 bits) and what each refuses."""

from __future__ import annotations

import math
import typing

import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import ConfigError
from regard.core.types import EOS, Padded, pad_rows
from regard.layers.attention import multihead
from regard.layers.attention.cache import CacheState
from regard.layers.attention.multihead import SelfAttention, attend_heads
from regard.layers.attention.relative import (
    RELATIVE,
    Places,
    Relative,
    RelativeSettings,
    RelativeStack,
    SchemeAtPlaces,
    music,
)
from regard.layers.attention.relative.music import Music, skew_both_ways, skew_causal
from regard.layers.attention.relative.rotary import rotate, turns
from regard.layers.attention.relative.shaw import Shaw
from regard.models.transformer import Transformer, TransformerConfig

HEADS, DH = 2, 4
SETTINGS = {
    "relative_distance": 5,
    "relative_buckets": 8,
    "relative_to": "both",
    "relative_per_head": False,
    "rotary_layout": "interleaved",
    "rotary_base": 100.0,
}
VARIANTS = [
    ("shaw", {}),
    ("shaw", {"relative_to": "keys", "relative_per_head": True}),
    ("music", {}),
    ("music", {"relative_per_head": True}),
    ("t5", {}),
    ("alibi", {}),
    ("rotary", {}),
    ("rotary", {"rotary_layout": "halves"}),
]


def settings(**choices) -> RelativeSettings:
    return RelativeSettings(**(SETTINGS | choices))


def make(name: str, causal: bool = False, **choices) -> Relative:
    torch.manual_seed(0)
    scheme = RELATIVE.get(name).make(settings(**choices), heads=HEADS, head_width=DH, causal=causal).double()
    for p in scheme.parameters():
        torch.nn.init.normal_(p)
    return scheme


def model(**choices) -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(
        **{"width": 8, "layers": 2, "heads": 2, "relative_distance": 5, "relative_buckets": 8, **choices}
    )
    return Transformer(config, source_vocabulary=11, target_vocabulary=11, shared=True).eval()


def attended(scheme: Relative, places: Places, explicit: bool = True) -> torch.Tensor:
    """Self-attention of the same tokens, wherever they stand."""
    generator = torch.Generator().manual_seed(4)
    q, k, v = torch.randn(3, 2, HEADS, places.key.shape[1], DH, dtype=torch.float64, generator=generator).unbind(0)
    relative = SchemeAtPlaces(scheme, scheme.place(places))
    return attend_heads(relative.turn(q), relative.turn(k), v, explicit=explicit, relative=relative)[0]


def test_the_setting_names_all_that_are_registered():
    names = typing.get_args(typing.get_type_hints(TransformerConfig)["relative"])
    assert sorted(names) == sorted(["none", *RELATIVE.names()])


def test_a_new_scheme_takes_one_file(tmp_path, monkeypatch):
    import regard.layers.attention.relative as package

    (tmp_path / "scheme_of_tests.py").write_text(
        "from regard.layers.attention.relative import RELATIVE, Relative\n"
        "@RELATIVE.register('scheme_of_tests')\n"
        "class Constant(Relative):\n"
        "    @classmethod\n"
        "    def make(cls, settings, *, heads, head_width, causal):\n"
        "        return cls()\n"
        "    def place(self, places):\n"
        "        return None\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        stack = RelativeStack("scheme_of_tests", settings(), layers=3, heads=HEADS, head_width=DH, causal=True)
        places = Places.whole_sequence(4, torch.device("cpu"))
        assert len(stack(places)) == 3
        plain = attended(stack(places)[0].scheme, places)  # hooks that are left alone do nothing
        torch.testing.assert_close(
            plain, attended(make("shaw", relative_to="keys").requires_grad_(False).apply(_zero), places)
        )
    finally:
        RELATIVE._members.pop("scheme_of_tests", None)


def _zero(module: torch.nn.Module) -> None:
    for p in module.parameters():
        p.zero_()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("name", "choices"), VARIANTS)
@torch.no_grad()
def test_moving_all_positions_changes_nothing(name, choices, causal):
    scheme = make(name, causal, **choices)
    here = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 1, 0, 2, 5, 4]])
    expected = attended(scheme, Places(here, here))
    for shift in (1, 7, 40):
        torch.testing.assert_close(attended(scheme, Places(here + shift, here + shift)), expected, rtol=0, atol=5e-6)
    only_keys = (
        attended(scheme, Places(here + 2, here)) if name != "rotary" else attended(scheme, Places(2 * here, here))
    )
    assert not torch.allclose(only_keys, expected, atol=1e-3)


@pytest.mark.parametrize(("name", "choices"), VARIANTS)
@torch.no_grad()
def test_words_and_places_moved_together_change_nothing(name, choices):
    """What a scheme sees of a pair is its two positions, not where it is stored."""
    scheme = make(name, **choices)
    order = torch.tensor([3, 0, 4, 1, 2])
    x = torch.randn(2, HEADS, 3, 5, DH, dtype=torch.float64)
    q, k, v = x.unbind(2)

    def attend(q, k, v, at):
        relative = SchemeAtPlaces(scheme, scheme.place(Places(at[None], at[None])))
        return attend_heads(relative.turn(q), relative.turn(k), v, explicit=True, relative=relative)[0]

    straight = attend(q, k, v, torch.arange(5))
    mixed = attend(q[:, :, order], k[:, :, order], v[:, :, order], order)
    torch.testing.assert_close(mixed, straight[:, :, order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("name", "choices"), VARIANTS)
@torch.no_grad()
def test_a_whole_sequence_is_its_places_one_by_one(name, choices, causal):
    scheme = make(name, causal, **choices)
    for length in (1, 2, 5, 12):  # shorter and longer than the clipping distance
        whole = Places.whole_sequence(length, torch.device("cpu"))
        q, k, v = torch.randn(3, 1, HEADS, length, DH, dtype=torch.float64).unbind(0)
        results = []
        for places in (whole, whole._replace(whole=False)):
            relative = SchemeAtPlaces(scheme, scheme.place(places))
            turned = relative.turn(q), relative.turn(k)
            results.append(attend_heads(*turned, v, causal=causal, explicit=False, relative=relative)[0])
        torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_the_skewed_form_is_the_gathered_one(causal, per_head):
    huang = Music(3, heads=HEADS, head_width=DH, causal=causal, per_head=per_head).double()
    shaw = Shaw(3, heads=HEADS, head_width=DH, to="keys", per_head=per_head).double()
    shaw.load_state_dict(huang.state_dict())
    for length in range(1, 11):
        places = Places.whole_sequence(length, torch.device("cpu"))
        placed = huang.place(places)
        assert placed.shape == ((length if causal else 2 * length - 1),)  # no gather over pairs
        query = torch.randn(2, HEADS, length, DH, dtype=torch.float64)
        skewed, gathered = huang.bias(query, placed), shaw.bias(query, shaw.place(places))
        if causal:  # above the diagonal stands what is not meant
            skewed, gathered = skewed.tril(), gathered.tril()
        torch.testing.assert_close(skewed, gathered, rtol=0, atol=1e-13)


@torch.no_grad()
def test_models_skew_whole_sequences_and_gather_only_to_decode(monkeypatch):
    skewed = []
    for name in ("skew_causal", "skew_both_ways"):
        original = getattr(music, name)
        monkeypatch.setattr(music, name, lambda x, name=name, f=original: skewed.append(name) or f(x))
    network, source = model(relative="music"), pad_rows([[5, 6, EOS]])
    network(source, torch.tensor([[1, 4, 5]]))
    assert skewed == ["skew_both_ways"] * 2 + ["skew_causal"] * 2
    memory, state = network.start(source)
    network.advance(torch.tensor([[[1, 4]]]), memory, state)
    assert skewed[4:] == ["skew_both_ways"] * 2


def test_skews_by_hand():
    columns = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]])  # of the distances -2, -1, 0
    assert skew_causal(columns).tril().tolist() == [[3, 0, 0], [5, 6, 0], [7, 8, 9]]
    both = torch.arange(5.0).expand(3, 5)  # of the distances -2 .. 2
    assert skew_both_ways(both).tolist() == [[2, 3, 4], [1, 2, 3], [0, 1, 2]]


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotary_scores_depend_on_the_difference_of_positions_only(layout):
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64).unbind(0)

    def score(m: int, n: int) -> float:
        by = [turns(torch.tensor([[position]]), 8, 100.0) for position in (m, n)]
        return float((rotate(q, by[0], layout) * rotate(k, by[1], layout)).sum())

    for difference in (-3, 0, 4):
        scores = [score(n + difference, n) for n in (3, 4, 20, 60)]
        assert scores == pytest.approx([scores[0]] * 4, abs=2e-5)
    assert score(3, 3) == pytest.approx(float((q * k).sum()))
    assert abs(score(4, 0) - score(0, 4)) > 1e-3
    assert abs(score(5, 3) - score(6, 3)) > 1e-3


def test_layouts_are_not_interchangeable_but_a_permutation_apart():
    x = torch.randn(1, 1, 3, 8)
    by = turns(torch.arange(3)[None], 8, 100.0)
    one, other = rotate(x, by, "interleaved"), rotate(x, by, "halves")
    assert not torch.allclose(one, other, atol=1e-2)
    pairs = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    torch.testing.assert_close(rotate(x[..., pairs], by, "halves"), one[..., pairs])


def test_rotation_keeps_lengths_and_angles_are_exact_in_sixteen_bits():
    x = torch.randn(1, 1, 1, 8)
    far = turns(torch.tensor([[1001]]), 8, 10000.0)
    torch.testing.assert_close(rotate(x, far, "halves").norm(), x.norm())
    half = rotate(x.half(), far, "halves")
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), rotate(x, far, "halves"), rtol=2e-3, atol=2e-3)


def test_angles_of_far_positions_are_those_of_the_equation():
    """Positions above 2048 that float16 does not know, angles that it would round by radians."""
    by = turns(torch.tensor([[4001, 5003]]), 4, 10000.0)
    for t, position in enumerate((4001, 5003)):
        for i in range(2):
            angle = position * 10000 ** (-2 * i / 4)
            assert float(by.cos[0, 0, t, i]) == pytest.approx(math.cos(angle), abs=1e-3)
            assert float(by.sin[0, 0, t, i]) == pytest.approx(math.sin(angle), abs=1e-3)


@pytest.mark.parametrize(("name", "choices"), VARIANTS)
def test_the_fused_kernel_is_kept_where_the_mathematics_allows(name, choices, monkeypatch):
    calls = []
    original = F.scaled_dot_product_attention
    monkeypatch.setattr(
        multihead.F, "scaled_dot_product_attention", lambda *a, **k: calls.append(k) or original(*a, **k)
    )
    scheme = make(name, causal=True, **choices)
    places = Places.whole_sequence(5, torch.device("cpu"))
    relative = SchemeAtPlaces(scheme, scheme.place(places))
    q = torch.randn(1, HEADS, 5, DH, dtype=torch.float64)
    mixed, weights = attend_heads(relative.turn(q), relative.turn(q), q, causal=True, relative=relative)
    assert weights is None
    fused = not (name == "shaw" and choices.get("relative_to") != "keys")
    assert len(calls) == fused
    if name == "rotary":  # nothing but the queries and keys is changed: not even a mask
        assert calls[0]["attn_mask"] is None
        assert calls[0]["is_causal"]
    explicit, _ = attend_heads(relative.turn(q), relative.turn(q), q, causal=True, explicit=True, relative=relative)
    torch.testing.assert_close(mixed, explicit, rtol=0, atol=1e-12)


def test_dropped_weights_are_dropped_from_the_values_of_relations_too(monkeypatch):
    scheme = make("shaw")
    places = Places.whole_sequence(5, torch.device("cpu"))
    q = torch.randn(1, HEADS, 5, DH, dtype=torch.float64)
    monkeypatch.setattr(multihead.F, "dropout", lambda x, p, training: x * 0 if training and p == 0.4 else x)
    relative = SchemeAtPlaces(scheme, scheme.place(places))
    assert attend_heads(q, q, q, dropout=0.4, relative=relative)[0].abs().max() == 0
    assert attend_heads(q, q, q, relative=relative)[0].abs().max() > 0


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("name", "choices"), VARIANTS)
def test_gradients_reach_queries_keys_values_and_tables(name, choices, causal):
    scheme = make(name, causal, **choices)
    attention = SelfAttention(HEADS * DH, HEADS).double()
    x = torch.randn(1, 4, HEADS * DH, dtype=torch.float64, requires_grad=True)
    tables = list(scheme.parameters())

    def run(x, *tables):
        names = [name for name, _ in scheme.named_parameters()]

        class Called(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scheme = scheme

            def forward(self, x):
                relative = SchemeAtPlaces(scheme, scheme.place(Places.whole_sequence(4, x.device)))
                return attention(x, None, causal, False, relative)[0]

        given = {f"scheme.{name}": table for name, table in zip(names, tables, strict=True)}
        return torch.func.functional_call(Called(), given, (x,))

    assert torch.autograd.gradcheck(run, (x, *tables), atol=1e-5)


@pytest.mark.parametrize(("name", "choices"), VARIANTS)
def test_training_asks_the_device_for_nothing(name, choices):
    """On the meta device no tensor has a value to ask for: steps can be recorded."""
    network = model(relative=name, positions="none", **choices).train().to("meta")
    tokens = torch.ones(3, 6, dtype=torch.long, device="meta")
    assert network(Padded(tokens, tokens > 0), tokens).hidden.shape == (3, 6, 8)
    memory, state = network.start(Padded(tokens, tokens > 0), beams=2, capacity=9)
    assert network.advance(tokens[:, None].expand(3, 2, 6), memory, state)[0].shape == (3, 2, 6, 8)


def test_the_cache_knows_the_positions_of_what_it_stores():
    """Keys written into a cache that say where they were written come back in the order of their positions."""
    state = CacheState.empty(2, beams=3, capacity=5, layers=1, heads=1, width=1, like=torch.zeros(1))
    for count in (2, 1):
        at = state.next_positions(count)[:, None].expand(2, 3, count).flatten(1)
        keys, _ = state.write(0, at[:, None, :, None].float(), at[:, None, :, None].float(), count)
        assert state.stored_positions(count).shape == (1, keys.shape[2])
        assert (keys[:, 0, :, 0] == state.stored_positions(count)).all()
        state = state.advanced(count)


def test_layers_share_what_their_papers_share():
    for name, count in (("shaw", 3), ("music", 3), ("t5", 1), ("alibi", 1), ("rotary", 1)):
        stack = RelativeStack(name, settings(), layers=3, heads=HEADS, head_width=DH, causal=True)
        assert len(stack.schemes) == count
        placed = stack(Places.whole_sequence(4, torch.device("cpu")))
        assert [p.scheme for p in placed] == (list(stack.schemes) if count == 3 else [stack.schemes[0]] * 3)


@torch.no_grad()
def test_relative_positions_are_for_self_attention_only():
    """Without self-attention's part in the sum, the source is a bag of words: cross-attention sees no distances."""
    for name in RELATIVE.names():
        network = model(relative=name, positions="none")
        for layer in network.encoder:
            layer.attention.out.weight.zero_()
        target = torch.tensor([[1, 4, 5, 6]])
        one, other = (network(pad_rows([words]), target).hidden for words in ([5, 6, 7, EOS], [7, EOS, 5, 6]))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_the_encoder_looks_both_ways_and_the_decoder_back():
    for name in ("music", "t5"):
        network = model(relative=name)
        assert [scheme.causal for scheme in network.encoder_relative.schemes] == [False] * (2 if name == "music" else 1)
        assert [scheme.causal for scheme in network.decoder_relative.schemes] == [True] * (2 if name == "music" else 1)


def test_tables_start_by_their_sizes():
    torch.manual_seed(0)
    network = model(relative="shaw", width=64, relative_distance=100, relative_per_head=True)
    for scheme in (*network.encoder_relative.schemes, *network.decoder_relative.schemes):
        for table in (scheme.a_key, scheme.a_value):
            assert table.shape == (2, 201, 32)
            assert float(table.detach().std()) == pytest.approx((2 / (201 + 32)) ** 0.5, rel=0.05)
    network = model(relative="t5", width=64, heads=16, relative_buckets=100, relative_distance=200)
    assert float(network.encoder_relative.schemes[0].table.weight.detach().std()) == pytest.approx(1 / 8, rel=0.1)


def test_usual_distances():
    network = model(relative="shaw", relative_distance=0)
    assert network.encoder_relative.schemes[0].distance == 16
    network = model(relative="music", relative_distance=0)
    assert network.encoder_relative.schemes[0].distance == 16
    network = model(relative="t5", relative_distance=0, relative_buckets=32)
    t5 = network.decoder_relative.schemes[0]
    assert t5.buckets(torch.tensor([-112, -113, -128, -1000])).tolist() == [30, 31, 31, 31]
    assert t5.buckets(torch.tensor([0, -1, -15, 3])).tolist() == [0, 1, 15, 0]


def test_models_without_relative_positions_have_none_of_their_weights():
    names = set(model().state_dict())
    assert not any("relative" in name for name in names)
    assert names == set(model(relative="rotary").state_dict()) == set(model(relative="alibi").state_dict())


@pytest.mark.parametrize(
    ("setting", "values", "message"),
    [
        ("heads", {"relative": "rotary", "width": 15, "heads": 3, "positions": "none"}, "an even width, got 5"),
        ("rotary_base", {"relative": "rotary", "rotary_base": 1.0}, "1.0 is not above 1"),
        ("rotary_base", {"relative": "rotary", "rotary_base": float("nan")}, "nan is not above 1"),
        ("rotary_base", {"relative": "rotary", "rotary_base": float("inf")}, "inf is not above 1"),
        ("relative_distance", {"relative": "t5", "relative_distance": 16}, "16 leaves no distances"),
        ("relative_distance", {"relative": "shaw", "relative_distance": 1 << 20}, "more than 16384"),
        ("relative_distance", {"relative": "shaw", "relative_distance": -1}, "negative"),
        ("relative_buckets", {"relative": "t5", "relative_buckets": 3}, "less than 4"),
        ("relative_buckets", {"relative": "t5", "relative_buckets": 1 << 20}, "more than 16384"),
    ],
)
def test_settings_that_cannot_be_are_refused(setting, values, message):
    with pytest.raises(ConfigError) as error:
        TransformerConfig(**values)
    assert str(error.value).startswith(f"setting model.{setting}: ")
    assert message in str(error.value)
    other = {**values, "relative": "alibi"} if setting in ("heads", "rotary_base") else None
    assert other is None or TransformerConfig(**other)  # a setting of another scheme stops nobody
