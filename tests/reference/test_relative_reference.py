"""Positions, absolute and relative, against float64 NumPy loops from the papers' equations, and against Hugging Face's code."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch

from regard.core.types import EOS, pad_rows
from regard.layers.attention.multihead import SelfAttention, attend_heads
from regard.layers.attention.relative import RELATIVE, Places, Relative, RelativeSettings, SchemeAtPlaces
from regard.layers.attention.relative.alibi import slopes
from regard.layers.attention.relative.relations import RelationAttention
from regard.layers.attention.relative.rotary import rotate, turns
from regard.layers.attention.relative.t5 import T5
from regard.layers.positions import make_positions
from regard.models.base import Recorder
from regard.models.transformer import Transformer, TransformerConfig

B, H, N, DH = 2, 3, 7, 4
SLOPES = [2**-4, 2**-8, 2**-2]  # of three heads: those of two, then the first of every second of four
SETTINGS = {
    "relative_distance": 0,
    "relative_buckets": 8,
    "relative_to": "both",
    "relative_per_head": False,
    "rotary_layout": "interleaved",
    "rotary_base": 10000.0,
}
CASES = [
    ("shaw", {"relative_distance": 2}),
    ("shaw", {"relative_distance": 9, "relative_per_head": True}),
    ("shaw", {"relative_distance": 3, "relative_to": "keys"}),
    ("shaw", {"relative_distance": 1, "relative_to": "values", "relative_per_head": True}),
    ("music", {"relative_distance": 2}),
    ("music", {"relative_distance": 9, "relative_per_head": True}),
    ("t5", {"relative_distance": 6}),
    ("t5", {"relative_buckets": 4, "relative_distance": 5}),
    ("alibi", {}),
    ("rotary", {}),
    ("rotary", {"rotary_layout": "halves", "rotary_base": 37.0}),
]


def make(name: str, causal: bool, **choices) -> Relative:
    torch.manual_seed(3)
    settings = RelativeSettings(**(SETTINGS | choices))
    scheme = RELATIVE.get(name).make(settings, heads=H, head_width=DH, causal=causal).double()
    for p in scheme.parameters():
        torch.nn.init.normal_(p)
    return scheme


def t5_bucket(distance: int, both_ways: bool, buckets: int, longest: int) -> int:
    """Section 2.1 and its code: half for single distances, half logarithmic, and half of all for what comes later."""
    first = 0
    if both_ways:
        buckets //= 2
        first = buckets if distance > 0 else 0
    n = abs(distance) if both_ways else max(-distance, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    large = exact + math.floor(math.log(n / exact) / math.log(longest / exact) * (buckets - exact) + 1e-12)
    return first + min(large, buckets - 1)


def rotated(x: np.ndarray, m: int, layout: str, base: float) -> np.ndarray:
    """Every pair as a complex number, times e^(i m θ)."""
    d, out = len(x), np.zeros(len(x))
    for i in range(d // 2):
        one, other = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + d // 2)
        z = complex(x[one], x[other]) * cmath.exp(1j * m * base ** (-2 * i / d))
        out[one], out[other] = z.real, z.imag
    return out


def reference(name, choices, w, q, k, v, at, there, visible, both_ways):
    """One head h of one sentence, query by query: mixture and weights. `at` and `there` are the positions i and j."""
    s = SETTINGS | choices
    clip = s["relative_distance"] or (128 if name == "t5" else 16)
    heads, _, d = q.shape
    mixed, weights = np.zeros((heads, len(at), v.shape[-1])), np.zeros((heads, len(at), len(there)))
    for h, t in np.ndindex(heads, len(at)):

        def vector(table, j, h=h, t=t):
            table = w[table] if w[table].ndim == 2 else w[table][h if len(w[table]) > 1 else 0]
            return table[max(-clip, min(clip, there[j] - at[t])) + clip]

        scores = {}
        for j in np.flatnonzero(visible[t]):
            query, key = q[h, t], k[h, j]
            if name == "rotary":
                query = rotated(query, at[t], s["rotary_layout"], s["rotary_base"])
                key = rotated(key, there[j], s["rotary_layout"], s["rotary_base"])
            if "a_key" in w:
                key = key + vector("a_key", j)
            scores[j] = query @ key / math.sqrt(d)
            if name == "t5":
                scores[j] += w["table.weight"][t5_bucket(there[j] - at[t], both_ways, s["relative_buckets"], clip), h]
            if name == "alibi":
                scores[j] -= SLOPES[h] * abs(at[t] - there[j])
        total = sum(math.exp(score) for score in scores.values())
        for j, score in scores.items():
            weights[h, t, j] = math.exp(score) / total
            mixed[h, t] += weights[h, t, j] * (v[h, j] + (vector("a_value", j) if "a_value" in w else 0))
    return mixed, weights


def numpy_weights(module: torch.nn.Module, prefix: str = "") -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): t.detach().numpy().copy()
        for name, t in module.state_dict().items()
        if name.startswith(prefix)
    }


def close(ours: torch.Tensor | None, expected: np.ndarray, name: str) -> None:
    assert ours is not None
    # angles are float32, all else float64
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=0, atol=3e-6 if name == "rotary" else 1e-12)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("name", "choices"), CASES)
@torch.no_grad()
def test_attention_over_a_whole_sequence_is_the_equation(name, choices, causal, explicit):
    scheme = make(name, causal, **choices)
    q, k, v = torch.randn(3, B, H, N, DH, dtype=torch.float64).unbind(0)
    keep = None if causal else torch.arange(N) < torch.tensor([N, 4])[:, None]
    relative = SchemeAtPlaces(scheme, scheme.place(Places.whole_sequence(N, q.device)))
    mixed, weights = attend_heads(
        relative.turn(q),
        relative.turn(k),
        v,
        None if keep is None else keep[:, None, None],
        causal=causal,
        explicit=explicit,
        relative=relative,
    )
    for b in range(B):
        visible = np.tril(np.ones((N, N))) if keep is None else np.tile(keep[b].numpy(), (N, 1))
        places = list(range(N))
        parts = (x[b].numpy() for x in (q, k, v))
        expected = reference(name, choices, numpy_weights(scheme), *parts, places, places, visible, not causal)
        close(mixed[b], expected[0], name)
        if explicit:
            close(weights[b], expected[1], name)
        else:
            assert weights is None


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize(("name", "choices"), CASES)
@torch.no_grad()
def test_attention_at_given_places_is_the_equation(name, choices, explicit):
    """Queries of sentences that stand at different places, keys in two slots for every place: decoding with a beam."""
    scheme = make(name, True, **choices)
    at = torch.tensor([[4, 5, 4], [2, 3, 0]])
    there = torch.arange(6).repeat_interleave(2)
    q = torch.randn(B, H, 3, DH, dtype=torch.float64)
    k, v = torch.randn(2, B, H, 12, DH, dtype=torch.float64).unbind(0)
    visible = (there <= at[..., None]) & (torch.rand(B, 3, 12) > 0.3)
    visible[..., 0] = True
    stored = torch.stack(  # a key is turned where it is computed, by the position of its own token
        [scheme.turn(k[:, :, [j]], scheme.place(Places(there[None, [j]], there[None, [j]]))) for j in range(12)], 2
    )[..., 0, :]
    relative = SchemeAtPlaces(scheme, scheme.place(Places(at, there[None])))
    mixed, weights = attend_heads(relative.turn(q), stored, v, visible[:, None], explicit=explicit, relative=relative)
    for b in range(B):
        parts = (x[b].numpy() for x in (q, k, v))
        places = (at[b].tolist(), there.tolist())
        expected = reference(name, choices, numpy_weights(scheme), *parts, *places, visible[b].numpy(), False)
        close(mixed[b], expected[0], name)
        if explicit:
            close(weights[b], expected[1], name)


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("to", ["both", "keys", "values"])
@torch.no_grad()
def test_attention_over_a_labelled_graph_is_the_equation(to, per_head):
    """Shaw 2018, (3) and (4), with labels that are no distances."""
    torch.manual_seed(1)
    ours = RelationAttention(H * DH, H, labels=5, to=to, per_head=per_head).double()
    x = torch.randn(B, N, H * DH, dtype=torch.float64)
    labels = torch.randint(0, 5, (B, N, N))
    keep = torch.rand(B, 1, N, N) > 0.4
    keep[..., 2] = True
    out, weights = ours(x, labels, keep, explicit=True)
    again, nothing = ours(x, labels, keep)
    torch.testing.assert_close(again, out, rtol=0, atol=1e-12)
    assert nothing is None
    w = numpy_weights(ours)
    for b in range(B):
        projected = x[b].numpy() @ w["attention.query_key_value.weight"].T + w["attention.query_key_value.bias"]
        mixed = np.zeros((N, H * DH))
        for h, i in np.ndindex(H, N):
            own = slice(h * DH, (h + 1) * DH)
            q, k, v = (projected[:, part * H * DH : (part + 1) * H * DH][:, own] for part in range(3))
            g = h if per_head else 0
            scores = {}
            for j in range(N):
                a = w["relations.a_key"][g, labels[b, i, j]] if to != "values" else 0
                if keep[b, 0, i, j]:
                    scores[j] = q[i] @ (k[j] + a) / math.sqrt(DH)
            total = sum(math.exp(e) for e in scores.values())
            for j, e in scores.items():
                a = w["relations.a_value"][g, labels[b, i, j]] if to != "keys" else 0
                mixed[i, own] += math.exp(e) / total * (v[j] + a)
                assert weights[b, h, i, j] == pytest.approx(math.exp(e) / total, abs=1e-12)
        close(out[b], mixed @ w["attention.out.weight"].T + w["attention.out.bias"], "relations")


# --- the whole model


def absolute(kind: str, p: int, d: int, length: int, learned: np.ndarray | None) -> np.ndarray:
    """The vector of position p; `length` is that of the source."""
    if kind == "none":
        return np.zeros(d)
    if kind == "learned":
        assert learned is not None
        return learned[p]
    if kind == "fraction":
        return np.full(d, p / max(length - 1, 1))
    if kind == "sine":
        return np.array([math.sin(p / 10000 ** (i / d)) for i in range(d)])
    if kind == "sinusoidal-halves":
        angles = [p / 10000 ** (i / (d // 2 - 1)) for i in range(d // 2)]
        return np.array([*map(math.sin, angles), *map(math.cos, angles)])
    return np.array([(math.sin, math.cos)[i % 2](p / 10000 ** ((i - i % 2) / d)) for i in range(d)])


class InNumpy:
    """The Transformer of one sentence, from the weights of a model."""

    def __init__(self, model: Transformer):
        self.config, self.w = model.config, numpy_weights(model)
        self.w.setdefault("source_embedding.weight", self.w["target_embedding.weight"])

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def around(self, name: str, x: np.ndarray, sublayer) -> np.ndarray:
        if self.config.norm == "pre":
            return x + sublayer(self.norm(name, x))
        return self.norm(name, x + sublayer(x))

    def embed(self, side: str, tokens: list[int], length: int) -> np.ndarray:
        table, d = self.w[f"{side}_embedding.weight"], self.config.width
        learned = self.w.get(f"{side}_positions.table.weight")
        return np.stack(
            [
                table[token] * math.sqrt(d) + absolute(self.config.positions, p, d, length, learned)
                for p, token in enumerate(tokens)
            ]
        )

    def heads(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), self.config.heads, -1).transpose(1, 0, 2)

    def self_attention(self, stack: str, layer: int, x: np.ndarray, visible: np.ndarray) -> np.ndarray:
        c, name = self.config, f"{stack}.{layer}.attention"
        q, k, v = (self.heads(part) for part in np.split(self.linear(f"{name}.query_key_value", x), 3, axis=-1))
        choices = {key: getattr(c, key) for key in SETTINGS}
        own = 0 if c.relative == "t5" else layer  # T5's numbers are those of all layers
        start = f"{stack}_relative.schemes.{own}."
        w = {key.removeprefix(start): value for key, value in self.w.items() if key.startswith(start)}
        places = list(range(len(x)))
        mixed, _ = reference(c.relative, choices, w, q, k, v, places, places, visible, stack == "encoder")
        return self.linear(f"{name}.out", mixed.transpose(1, 0, 2).reshape(x.shape))

    def cross_attention(self, layer: int, x: np.ndarray, memory: np.ndarray) -> np.ndarray:
        name = f"decoder.{layer}.cross"
        q = self.heads(self.linear(f"{name}.query", x))
        k, v = (self.heads(part) for part in np.split(self.linear(f"{name}.key_value", memory), 2, axis=-1))
        everything = np.ones((len(x), len(memory)))
        places = ([0] * len(x), [0] * len(memory))
        mixed, _ = reference("none", {}, {}, q, k, v, *places, everything, True)
        return self.linear(f"{name}.out", mixed.transpose(1, 0, 2).reshape(x.shape))

    def inner(self, name: str, x: np.ndarray) -> np.ndarray:
        return self.linear(f"{name}.out", np.maximum(self.linear(f"{name}.inner", x), 0))

    def hidden(self, source: list[int], target: list[int]) -> np.ndarray:
        x = self.embed("source", source, len(source))
        for i in range(self.config.depth[0]):
            name, everything = f"encoder.{i}", np.ones((len(x), len(x)))
            x = self.around(
                f"{name}.around_attention.norm", x, lambda y, i=i, e=everything: self.self_attention("encoder", i, y, e)
            )
            x = self.around(f"{name}.around_feedforward.norm", x, lambda y, n=name: self.inner(f"{n}.feedforward", y))
        memory = self.norm("encoder_norm", x) if self.config.norm == "pre" else x
        x = self.embed("target", target, len(source))
        for i in range(self.config.depth[1]):
            name, past = f"decoder.{i}", np.tril(np.ones((len(x), len(x))))
            x = self.around(
                f"{name}.around_attention.norm", x, lambda y, i=i, p=past: self.self_attention("decoder", i, y, p)
            )
            x = self.around(f"{name}.around_cross.norm", x, lambda y, i=i, m=memory: self.cross_attention(i, y, m))
            x = self.around(f"{name}.around_feedforward.norm", x, lambda y, n=name: self.inner(f"{n}.feedforward", y))
        return self.norm("decoder_norm", x) if self.config.norm == "pre" else x


MODELS = [
    *({"relative": name, "positions": "none", **choices} for name, choices in CASES),
    {"relative": "rotary", "positions": "learned", "norm": "post"},
    {"positions": "none"},
    {"positions": "sinusoidal"},
    {"positions": "sinusoidal-halves"},
    {"positions": "sine"},
    {"positions": "fraction", "norm": "post"},
    {"positions": "fraction"},
    {"positions": "learned"},
]


@pytest.mark.parametrize("choices", MODELS, ids=lambda choices: "-".join(map(str, choices.values())))
@torch.no_grad()
def test_the_whole_model_is_the_equations(choices):
    config = TransformerConfig(
        **{"relative_buckets": 8, **choices}, width=H * DH, heads=H, layers=2, inner=8, max_length=12
    )
    model = Transformer(config, source_vocabulary=11, target_vocabulary=13, shared=False).double().eval()
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.5)
    sources = [[5, 9, 4, 7, 10, 5, EOS], [8, EOS], [6, 6, 5, EOS], [EOS]]
    targets = [[1, 7, 12, 4, 9, 4], [1, 5, 5, 8, 3, 3], [1, 11, 6, 10, 7, 7], [1, 4, 5, 6, 7, 8]]
    hidden = model(pad_rows(sources), torch.tensor(targets)).hidden
    seen = model(pad_rows(sources), torch.tensor(targets), Recorder()).hidden
    torch.testing.assert_close(seen, hidden, rtol=0, atol=1e-12)
    plain = InNumpy(model)
    exact = config.relative != "rotary" and config.positions in ("none", "learned")  # waves and angles are float32
    for row, (x, y) in enumerate(zip(sources, targets, strict=True)):
        np.testing.assert_allclose(hidden[row].numpy(), plain.hidden(x, y), rtol=0, atol=1e-11 if exact else 2e-5)


def test_parameter_counts():
    """Shaw: 2 (2k+1) d numbers per layer, or H times that; T5: one per bucket and head of a stack; the others none."""

    def count(**choices) -> int:
        config = TransformerConfig(width=24, heads=4, layers=3, decoder_layers=2, **choices)
        with torch.device("meta"):
            return Transformer(config, source_vocabulary=9, target_vocabulary=9, shared=True).parameters_count()

    plain = count()
    assert count(positions="none") == count(positions="sine") == count(positions="fraction") == plain
    assert count(positions="learned", max_length=50) == plain + 2 * 50 * 24
    assert count(relative="rotary") == count(relative="alibi") == plain
    assert count(relative="shaw") == plain + 5 * 2 * 33 * 6
    assert count(relative="shaw", relative_distance=4, relative_per_head=True) == plain + 5 * 2 * 4 * 9 * 6
    assert count(relative="shaw", relative_to="keys") == count(relative="music") == plain + 5 * 33 * 6
    assert count(relative="shaw", relative_to="values") == plain + 5 * 33 * 6
    assert count(relative="t5") == plain + 2 * 32 * 4
    assert count(relative="t5", relative_buckets=10) == plain + 2 * 10 * 4


# --- Hugging Face


@pytest.mark.parametrize("causal", [True, False])
def test_t5_buckets_are_those_of_hugging_face_and_of_the_formula(causal):
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-700, 701)
    for buckets, longest in ((32, 128), (32, 20), (8, 16), (64, 256), (4, 10), (16, 128), (12, 40), (7, 30)):
        ours = T5(buckets, longest, heads=2, head_width=4, causal=causal).buckets(distances)
        theirs = T5Attention._relative_position_bucket(distances, not causal, buckets, longest)
        assert torch.equal(ours, theirs), (buckets, longest)
        assert ours.tolist() == [t5_bucket(d, not causal, buckets, longest) for d in distances.tolist()]


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_t5_attention_is_that_of_hugging_face(causal):
    """Theirs does not divide by √d: our query matrix is √d times theirs."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    torch.manual_seed(0)
    config = T5Config(
        d_model=H * DH,
        d_kv=DH,
        num_heads=H,
        dropout_rate=0.0,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
        is_decoder=causal,
        attn_implementation="eager",
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double().eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.5)
    ours, scheme = SelfAttention(H * DH, H).double(), make("t5", causal, relative_distance=6)
    ours.query_key_value.weight.copy_(torch.cat((theirs.q.weight * math.sqrt(DH), theirs.k.weight, theirs.v.weight)))
    ours.out.weight.copy_(theirs.o.weight)
    ours.query_key_value.bias.zero_()
    ours.out.bias.zero_()
    scheme.table.weight.copy_(theirs.relative_attention_bias.weight)
    x = torch.randn(B, N, H * DH, dtype=torch.float64)
    relative = SchemeAtPlaces(scheme, scheme.place(Places.whole_sequence(N, x.device)))
    mixed, _ = ours(x, None, causal, False, relative)
    mask = torch.zeros(B, 1, N, N, dtype=torch.float64)
    if causal:
        mask.masked_fill_(torch.ones(N, N).triu(1).bool(), torch.finfo(torch.float64).min)
    torch.testing.assert_close(mixed, theirs(x, mask=mask)[0], rtol=0, atol=1e-12)


def test_rotary_halves_are_those_of_llama():
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    torch.manual_seed(0)
    q, k = torch.randn(2, B, H, N, 8).unbind(0)
    positions = torch.tensor([[0, 1, 5, 200, 3, 2, 900], [7, 6, 5, 4, 3, 2, 1]])
    config = LlamaConfig(
        hidden_size=H * 8,
        num_attention_heads=H,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    cos, sin = LlamaRotaryEmbedding(config)(q, positions)
    theirs = apply_rotary_pos_emb(q, k, cos, sin)
    by = turns(positions, 8, 500.0)
    for mine, other in zip((rotate(q, by, "halves"), rotate(k, by, "halves")), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=3e-4)  # 900 radians in float32
        torch.testing.assert_close(mine[1], other[1], rtol=0, atol=5e-6)


def test_interleaved_rotary_is_that_of_gpt_j():
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    torch.manual_seed(0)
    x = torch.randn(B, H, N, 8)
    sin, cos = create_sinusoidal_positions(N, 8).expand(B, N, 8).chunk(2, -1)
    theirs = apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)
    ours = rotate(x, turns(torch.arange(N)[None], 8, 10000.0), "interleaved")
    torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-6)


def test_alibi_slopes_are_those_of_bloom_and_of_the_paper():
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    for heads in range(1, 70):
        theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]  # slope times position 1
        torch.testing.assert_close(torch.tensor(slopes(heads)), theirs, rtol=1e-5, atol=0)
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert slopes(3) == SLOPES


def test_waves_are_the_equations():
    positions = torch.tensor([0, 1, 7, 500, 1023])
    for kind in ("sinusoidal", "sinusoidal-halves", "sine"):
        for longest in (1024, 1025):  # tabled, and computed
            table = make_positions(kind, 10, 1)(positions, longest).numpy()
            for row, p in enumerate(positions.tolist()):
                np.testing.assert_allclose(table[row], absolute(kind, p, 10, 0, None), rtol=0, atol=2e-4)
