"""ConvS2S against float64 NumPy written from sections 3.1 to 3.5 of the paper: sentence by sentence, position by position."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.core.errors import ConfigError, ModelError
from regard.core.types import EOS, Padded, pad_rows
from regard.layers.weight_norm import NormalisedLinear
from regard.models.base import Recorder
from regard.models.convs2s import ConvS2S, ConvS2SConfig

V_X, V_Y, F, D = 11, 13, 6, 5
SOURCES = [[5, 9, 4, 7, 10, EOS], [8, EOS], [6, 6, 5, EOS]]
TARGETS = [[1, 7, 12, 4, 9], [1, 5, 5, 8, 3], [1, 11, 6, 10, 7]]
SHAPES = [
    {"layers": 2},
    {"encoder_layers": 3, "decoder_layers": 1, "kernel": 5},
    {"encoder_layers": 1, "decoder_layers": 3, "encoder_kernel": 1, "decoder_kernel": 4},
    {"layers": 2, "decoder_kernel": 1, "readout": 4},
]


def matrix(w, name: str) -> np.ndarray:
    """Each row has the direction of v and the length g."""
    return np.array([g * v / math.sqrt(v @ v) for g, v in zip(w[f"{name}.g"], w[f"{name}.v"], strict=True)])


def affine(w, name: str, x: np.ndarray) -> np.ndarray:
    return matrix(w, name) @ x + w[f"{name}.bias"]


def convolve(w, name: str, inputs: list[np.ndarray], i: int, k: int, left: int) -> np.ndarray:
    """v(W [h_{i-left}, .., h_{i-left+k-1}] + b), and zeros where there is no h; v([A B]) = A ⊗ σ(B)."""
    seen = [inputs[j] if 0 <= j < len(inputs) else np.zeros(D) for j in range(i - left, i - left + k)]
    both = affine(w, name, np.concatenate(seen))
    return np.array([both[u] / (1 + math.exp(-both[D + u])) for u in range(D)])


def embed(w, side: str, words: list[int], drop) -> list[np.ndarray]:
    """e = w + p."""
    table, positions = w[f"{side}_embedding.weight"], w[f"{side}_positions.table.weight"]
    return [drop(table[word] + positions[i]) for i, word in enumerate(words)]


def encode(w, words: list[int], config: ConvS2SConfig, drop) -> list[np.ndarray]:
    """z_1 .. z_m."""
    h = [affine(w, "encoder_in", e) for e in embed(w, "source", words, drop)]
    k = config.kernels[0]
    for layer in range(config.depth[0]):
        inputs = [drop(h_i) for h_i in h]
        new = [convolve(w, f"encoder.{layer}", inputs, i, k, k // 2) for i in range(len(h))]
        h = [(new[i] + h[i]) * math.sqrt(0.5) for i in range(len(h))]
    return [affine(w, "encoder_out", h_i) for h_i in h]


def translate(w, source: list[int], target: list[int], config: ConvS2SConfig, drop=lambda x: x, w_z=None):
    """Of one sentence: what the output layer reads, the weights of every layer, and log p of every word at every step.

    `target` starts with BOS; `drop` stands where inputs may be dropped; `w_z` are weights for the way to z, if not `w`.
    """
    z = encode(w_z or w, source, config, drop)
    e = embed(w, "source", source, drop)
    m = len(source)
    values = [(z_j + e_j) * math.sqrt(0.5) for z_j, e_j in zip(z, e, strict=True)]
    g = embed(w, "target", target, drop)
    h = [affine(w, "decoder_in", g_i) for g_i in g]
    k = config.kernels[1]
    weights = np.zeros((config.depth[1], len(target), m))
    for layer in range(config.depth[1]):
        name = f"decoder.{layer}"
        inputs = [drop(h_i) for h_i in h]
        above = []
        for i in range(len(target)):
            new = convolve(w, f"{name}.convolution", inputs, i, k, k - 1)  # nothing from the right
            d = (affine(w, f"{name}.query", new) + g[i]) * math.sqrt(0.5)  # (1)
            a = [math.exp(d @ z_j) for z_j in z]
            weights[layer, i] = [a_j / sum(a) for a_j in a]
            c = sum(weights[layer, i, j] * values[j] for j in range(m))  # (2)
            c = c * m * math.sqrt(1 / m)
            new = (new + affine(w, f"{name}.out", c)) * math.sqrt(0.5)
            above.append((new + h[i]) * math.sqrt(0.5))
        h = above
    tops = [drop(affine(w, "readout", h_i)) for h_i in h]
    log_p = []
    for top in tops:
        plain = "output.v" not in w
        logits = (w["output.weight"] if plain else matrix(w, "output")) @ top + w["output.bias"]
        log_p.append(logits - math.log(sum(math.exp(x) for x in logits)))
    return np.array(tops), weights, np.array(log_p)


def make(**choices) -> ConvS2S:
    config = ConvS2SConfig(**{"embedding": F, "width": D, "max_length": 9, "layers": 2, **choices})
    shared = config.tie == "all"
    model = ConvS2S(config, source_vocabulary=V_Y if shared else V_X, target_vocabulary=V_Y, shared=shared).double()
    generator = torch.Generator().manual_seed(3)
    for p in model.parameters():  # as they start, tables are small and mistakes stay unseen
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64)
    return model.eval()


def numpy_weights(model: ConvS2S) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def compare(model: ConvS2S, w: dict[str, np.ndarray], drop=lambda x: x) -> None:
    record = Recorder()
    hidden = model(pad_rows(SOURCES), torch.tensor(TARGETS), record).hidden
    scores = model.output.scores(hidden)
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        tops, weights, log_p = translate(w, x, y, model.config, drop)
        np.testing.assert_allclose(hidden[row].numpy(), tops, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row].numpy(), log_p, rtol=0, atol=1e-5)  # scores are float32
        for layer, expected in enumerate(weights):
            found = record.tensors[f"decoder.{layer}.cross"]
            assert found.shape == (3, 1, 5, 6)
            np.testing.assert_allclose(found[row, 0, :, : len(x)].numpy(), expected, rtol=0, atol=1e-12)
        mean = model.alignment(record)[row, :, : len(x)]
        np.testing.assert_allclose(mean.numpy(), weights.mean(0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_the_model_is_its_equations(shape):
    model = make(**shape)
    compare(model, numpy_weights(model))


@pytest.mark.parametrize("tie", ["target", "all"])
@torch.no_grad()
def test_the_model_is_its_equations_with_tied_tables(tie):
    model = make(tie=tie)
    w = numpy_weights(model)
    table = w["target_embedding.weight"]
    compare(model, w | {"output.weight": table} | ({"source_embedding.weight": table} if tie == "all" else {}))


class Half(torch.nn.Module):
    """A dropout whose every draw is known."""

    def forward(self, x):
        return x * 0.5


@torch.no_grad()
def test_dropout_is_on_embeddings_on_inputs_of_convolutions_and_on_the_readout():
    model = make(layers=3)
    model.dropout = Half()  # type: ignore[assignment]
    compare(model, numpy_weights(model), lambda x: 0.5 * x)


def test_dropout_is_that_of_the_setting_and_only_in_training():
    model = make(dropout=0.4)
    source, target = pad_rows(SOURCES * 50), torch.tensor(TARGETS * 50)
    torch.testing.assert_close(model(source, target).hidden, model(source, target).hidden, rtol=0, atol=0)
    torch.manual_seed(0)
    dropped = model.train()(source, target).hidden == 0
    assert float(dropped.double().mean()) == pytest.approx(0.4, abs=0.03)


@torch.no_grad()
def test_several_hypotheses_over_several_steps_are_each_by_itself():
    model, source = make(decoder_kernel=4), pad_rows(SOURCES)
    tokens = torch.tensor([TARGETS, TARGETS[::-1]]).transpose(0, 1)  # B K T
    memory, state = model.start(source, beams=2)
    first, second = Recorder(), Recorder()
    hidden, state = model.advance(tokens[:, :, :2], memory, state, first)
    more, _ = model.advance(tokens[:, :, 2:], memory, state, second)
    hidden = torch.cat((hidden, more), 2)
    weights = torch.cat([model.alignment(record) for record in (first, second)], 2)
    for k in range(2):
        alone = Recorder()
        torch.testing.assert_close(hidden[:, k], model(source, tokens[:, k], alone).hidden, rtol=0, atol=1e-12)
        torch.testing.assert_close(weights[:, k], model.alignment(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [{}, {"decoder_layers": 3, "kernel": 1}])
def test_gradients_are_those_of_the_equations_scaled_on_the_way_into_the_encoder(shape):
    """Every parameter, moved a little in a random direction: the loss of the equations changes as the gradient says.

    What moves the loss through z counts 1 / (2 · layers with attention) of it; what moves it through e counts in full.
    """
    model = make(**shape)
    target = torch.tensor(TARGETS)
    wanted = target.roll(-1, 1)
    hidden = model(pad_rows(SOURCES), target).hidden
    logits = hidden @ model.output.weight.t() + model.output.bias
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum").backward()
    w = numpy_weights(model)

    def loss(moved: dict[str, np.ndarray], moved_to_z: dict[str, np.ndarray]) -> float:
        total = 0.0
        for x, y, words in zip(SOURCES, TARGETS, wanted.tolist(), strict=True):
            log_p = translate(w | moved, x, y, model.config, w_z=w | moved_to_z)[2]
            total -= sum(log_p[i, word] for i, word in enumerate(words))
        return total

    rng = np.random.default_rng(1)
    for name, parameter in model.named_parameters():
        direction = rng.normal(size=parameter.shape)
        step = 1e-5 * direction / np.linalg.norm(direction)
        up, down = {name: w[name] + step}, {name: w[name] - step}
        slope = loss(up, {}) - loss(down, {})
        if name.startswith(("encoder", "source")):
            slope += (loss({}, up) - loss({}, down)) / (2 * model.config.depth[1])
        assert parameter.grad is not None, name
        expected = 2 * float((parameter.grad.numpy() * step).sum())
        assert abs(expected) > 1e-10, name  # so that the comparison says something
        assert slope == pytest.approx(expected, rel=1e-3), name


def count(source_vocabulary: int, target_vocabulary: int, **choices) -> int:
    with torch.device("meta"):
        sizes = {"source_vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary}
        model = ConvS2S(ConvS2SConfig(**choices), **sizes, shared=source_vocabulary == target_vocabulary)
    return model.parameters_count()


def layer(inputs: int, outputs: int) -> int:
    return outputs * inputs + 2 * outputs  # bias and length of every row


def test_parameter_count_of_the_architecture_for_iwslt():
    """Encoder of 4, decoder of 3 layers, all of 256 with kernel 3: the authors' `fconv_iwslt_de_en`."""
    d, v = 256, 10_000
    encoder = 2 * layer(d, d) + 4 * layer(3 * d, 2 * d)
    decoder = 2 * layer(d, d) + 3 * (layer(3 * d, 2 * d) + 2 * layer(d, d))
    positions = 2 * 1024 * d
    sizes = {"embedding": d, "width": d, "encoder_layers": 4, "decoder_layers": 3, "kernel": 3, "max_length": 1024}
    assert count(v, v, **sizes) == encoder + decoder + positions + 2 * v * d + layer(d, v) == 11_644_448
    assert count(v, v, **sizes, tie="all") == encoder + decoder + positions + v * d + v
    assert count(v, v, **sizes, readout=100) == count(v, v, **sizes) - (d - 100) * (d + 2 + v)
    assert count(v, v, **sizes, decoder_kernel=5) == count(v, v, **sizes) + 3 * 2 * d * 2 * d


def test_parameter_count_beside_a_plain_implementation():
    """A teaching notebook for Multi30k has 37,351,685: 10 layers of 512 on each side, without weight normalisation, and
    with one pair of matrices for the attention of all layers."""
    d, f, words = 512, 256, 5893
    sizes = {"embedding": f, "width": d, "layers": 10, "kernel": 3, "max_length": 100}
    lengths = 20 * 2 * d + 2 * d + 2 * f + 10 * (d + f) + words
    pair = d * f + f + f * d + d
    assert count(7855, words, **sizes) == 37_351_685 + 9 * pair + lengths


@pytest.mark.parametrize("tie", ["none", "all"])
@torch.no_grad()
def test_initialisation_is_the_papers(tie):
    """Section 3.5: tables N(0, 0.1²); matrices N(0, 1/n), N(0, 4/n) into gates; times what dropout leaves of inputs."""
    torch.manual_seed(0)
    config = ConvS2SConfig(embedding=60, width=50, layers=2, decoder_kernel=4, dropout=0.3, tie=tie)
    model = ConvS2S(config, source_vocabulary=400, target_vocabulary=400, shared=True)
    spreads = {
        "encoder_in": math.sqrt(0.7 / 60),
        "encoder.0": math.sqrt(4 * 0.7 / 150),
        "encoder.1": math.sqrt(4 * 0.7 / 150),
        "encoder_out": math.sqrt(1 / 50),
        "decoder_in": math.sqrt(0.7 / 60),
        "decoder.0.convolution": math.sqrt(4 * 0.7 / 200),
        "decoder.0.query": math.sqrt(1 / 50),
        "decoder.0.out": math.sqrt(1 / 60),
        "decoder.1.convolution": math.sqrt(4 * 0.7 / 200),
        "decoder.1.query": math.sqrt(1 / 50),
        "decoder.1.out": math.sqrt(1 / 60),
        "readout": math.sqrt(1 / 50),
        "output": math.sqrt(0.7 / 60) if tie == "none" else 0.1,
        "source_embedding": 0.1,
        "target_embedding": 0.1,
        "source_positions.table": 0.1,
        "target_positions.table": 0.1,
    }
    seen = set()
    for name, module in model.named_modules(remove_duplicate=False):
        if name in spreads:
            weight = module.ready().weight if isinstance(module, NormalisedLinear) else module.weight
            assert float(weight.std()) == pytest.approx(spreads[name], rel=0.04), name
            assert abs(float(weight.mean())) < 4 * spreads[name] / math.sqrt(weight.numel()), name
            bias = getattr(module, "bias", None)
            assert bias is None or float(bias.abs().max()) == 0, name
            seen.add(name)
    assert seen == spreads.keys()


@torch.no_grad()
def test_what_padding_holds_changes_nothing():
    model, source = make(), pad_rows(SOURCES)
    other = Padded(source.tokens.masked_fill(~source.keep, 9), source.keep)
    target = torch.tensor(TARGETS)
    torch.testing.assert_close(model(other, target).hidden, model(source, target).hidden, rtol=0, atol=1e-13)


@torch.no_grad()
def test_every_step_is_the_same_work_on_a_state_of_the_same_size():
    model = make(decoder_kernel=4, max_length=40)
    memory, state = model.start(pad_rows(SOURCES), beams=2, capacity=40)
    work, sizes = set(), set()
    for t in range(40):
        with FlopCounterMode(display=False) as counter:
            _, state = model.step(torch.full((3, 2), 4 + t % 9), memory, state)
        work.add(counter.get_total_flops())
        sizes.add(tuple(past.shape for past in state.past))
        assert (state.positions == t + 1).all()
    assert len(work) == 1
    assert min(work) > 0
    assert sizes == {((3, 2, 3, D),) * 2}


@torch.no_grad()
def test_a_step_normalises_no_matrix(monkeypatch):
    model = make()
    memory, state = model.start(pad_rows(SOURCES))
    monkeypatch.setattr(NormalisedLinear, "ready", lambda self: pytest.fail("it was computed again"))
    model.step(torch.tensor([[1], [1], [1]]), memory, state)


@torch.no_grad()
def test_residual_sums_stay_out_of_sixteen_bits():
    model, read = make().float(), []
    model.encoder[1].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    with torch.autocast("cpu", torch.float16):
        memory, state = model.start(pad_rows(SOURCES))
        _, state = model.advance(torch.tensor(TARGETS)[:, None], memory, state)
    for x in (read[0], state.past[1]):
        assert x.dtype == torch.float32
        assert not torch.equal(x.half().float(), x), "it has the precision, too"


@torch.no_grad()
def test_positions_end_where_the_table_does():
    model = make(max_length=6, tie="all")  # one table for both sides: the message names the right one
    source = pad_rows(SOURCES)
    memory, state = model.start(source)
    _, state = model.advance(torch.tensor(TARGETS)[:, None], memory, state)
    _, state = model.advance(torch.tensor([[[4]]] * 3), memory, state)
    with pytest.raises(ModelError, match="the target: 7 tokens are more than the model's learned positions, 6"):
        model.advance(torch.tensor([[[4]]] * 3), memory, state)
    with pytest.raises(ModelError, match="the source: 7 tokens"):
        model.start(pad_rows([[5] * 7]))
    late, early = model.start(source)[1], model.start(source)[1]
    _, late = model.advance(torch.tensor(TARGETS)[:, None], memory, late)
    rows = torch.tensor([1])
    mixed = early.put(rows, late.take(rows))  # one sentence is further than the others
    assert mixed.positions.tolist() == [[0], [5], [0]]
    with pytest.raises(ModelError, match="7 tokens"):
        model.advance(torch.tensor([[[4, 4]]] * 3), memory, mixed)


@pytest.mark.parametrize(
    ("setting", "values", "message"),
    [
        ("layers", {"layers": 0}, "less than 1"),
        ("width", {"width": 1 << 20}, "more than 16384"),
        ("kernel", {"kernel": 4}, "4 is even"),
        ("encoder_kernel", {"encoder_kernel": 2}, "2 is even"),
        ("kernel", {"kernel": 0}, "less than 1"),
        ("decoder_kernel", {"decoder_kernel": -1}, "negative"),
        ("max_length", {"max_length": 1 << 21}, "more than 1048576"),
        ("tie", {"tie": "all", "readout": 100}, "readout (100) equals embedding (256)"),
        ("dropout", {"dropout": 1.0}, "not in [0, 1)"),
    ],
)
def test_sizes_that_cannot_be_are_refused(setting, values, message):
    with pytest.raises(ConfigError) as error:
        ConvS2SConfig(**values)
    assert str(error.value).startswith(f"setting model.{setting}: ")
    assert message in str(error.value)


def test_a_decoder_may_have_an_even_kernel():
    assert ConvS2SConfig(decoder_kernel=4).kernels == (3, 4)
    assert ConvS2SConfig(kernel=4, encoder_kernel=5).kernels == (5, 4)
