"""The Universal Transformer against float64 NumPy written from section 2 and appendix C of the paper.

Sentence by sentence, step by step, position by position; halting is decided for each position on its own, line by line as in
listing 2, with the one departure that what has not halted at the last step gets the remainder.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, PAD, Padded, pad_rows
from regard.models.base import Recorder
from regard.models.universal import UniversalConfig, UniversalTransformer

V_X, V_Y, D, H, F, T = 11, 13, 8, 2, 10, 4
SOURCES = [[5, 9, 4, 7, 10, EOS], [8, EOS], [6, 6, 5, EOS]]
TARGETS = [[1, 7, 12, 4, 9], [1, 5, 5, 8, 3], [1, 11, 6, 10, 7]]
HALTING = [
    {"halting": "none"},
    {"halting": "act"},
    {"halting": "act", "average": "sum", "epsilon": 0.1},
    {"halting": "act", "steps": 7, "epsilon": 0.3},
    {"halting": "act", "steps": 1},
    {"halting": "none", "steps": 5},
]
NORMS = ("pre", "post")


class Side(NamedTuple):
    """Of one sentence and one side: outputs, and by position N, R, the weights of the steps and the attention of each."""

    outputs: list[np.ndarray]
    n: list[int]
    r: list[float]
    weights: list[list[float]]
    own: list[np.ndarray]  # by step: [heads, queries, keys]
    cross: list[np.ndarray]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def coordinates(i: int, t: int) -> np.ndarray:
    """P^t_i (6), (7), for i and t from 1."""
    p = np.zeros(D)
    for j in range(D // 2):
        rate = 10000 ** (2 * j / D)
        p[2 * j] = math.sin(i / rate) + math.sin(t / rate)
        p[2 * j + 1] = math.cos(i / rate) + math.cos(t / rate)
    return p


def layer_norm(w, name: str, x):
    mean = sum(x) / D
    variance = sum((v - mean) ** 2 for v in x) / D
    return w[f"{name}.weight"] * (x - mean) / math.sqrt(variance + 1e-5) + w[f"{name}.bias"]


def affine(w, name: str, x, part: int = 0, parts: int = 1):
    """W x + b, or one of several matrices that are stored as one."""
    rows = len(w[f"{name}.weight"]) // parts
    return w[f"{name}.weight"][part * rows :][:rows] @ x + w[f"{name}.bias"][part * rows :][:rows]


def attend(query, keys, values):
    """Softmax(q kᵀ / √d) v (1), for each head (2), (3)."""
    size = D // H
    mixed, weights = np.zeros(D), np.zeros((H, len(keys)))
    for h in range(H):
        part = slice(h * size, (h + 1) * size)
        e = [math.exp(query[part] @ key[part] / math.sqrt(size)) for key in keys]
        for s, value in enumerate(values):
            weights[h, s] = e[s] / sum(e)
            mixed[part] += weights[h, s] * value[part]
    return mixed, weights


def revise(w, name: str, words: list[int], table: str, config: UniversalConfig, memory=None, drop=lambda x: x) -> Side:
    """One side: all its steps, positions one by one. The decoder has a memory, and its positions see none after them."""
    pre = config.norm == "pre"

    def before(norm: str, x):
        return layer_norm(w, f"{name}.{norm}.norm", x) if pre else x

    def after(norm: str, x, written):
        return x + drop(written) if pre else layer_norm(w, f"{name}.{norm}.norm", x + drop(written))

    def heads_of(x, part: int):
        return affine(w, f"{name}.attention.query_key_value", before("around_attention", x), part, 3)

    memory_keys = [affine(w, f"{name}.cross.key_value", m, 0, 2) for m in memory or []]
    memory_values = [affine(w, f"{name}.cross.key_value", m, 1, 2) for m in memory or []]
    count = len(words)
    state = [drop(w[f"{table}.weight"][word] * math.sqrt(D)) for word in words]  # H^0
    probability, remainder, updates = [0.0] * count, [0.0] * count, [0] * count
    halted, weights = [False] * count, [[0.0] * config.steps for _ in words]
    result, own, cross = [np.zeros(D) for _ in words], [], []
    for t in range(1, config.steps + 1):
        signalled = [h + coordinates(i + 1, t) for i, h in enumerate(state)]
        q, k, v = ([heads_of(x, part) for x in signalled] for part in range(3))
        transformed, own_t, cross_t = [], np.zeros((H, count, count)), np.zeros((H, count, len(memory or [])))
        for i, x in enumerate(signalled):
            sees = i + 1 if memory is not None else count
            mixed, own_t[:, i, :sees] = attend(q[i], k[:sees], v[:sees])
            x = after("around_attention", x, affine(w, f"{name}.attention.out", mixed))
            if memory is not None:
                query = affine(w, f"{name}.cross.query", before("around_cross", x))
                mixed, cross_t[:, i] = attend(query, memory_keys, memory_values)
                x = after("around_cross", x, affine(w, f"{name}.cross.out", mixed))
            inner = np.maximum(affine(w, f"{name}.transition.inner", before("around_transition", x)), 0)
            transformed.append(after("around_transition", x, affine(w, f"{name}.transition.out", inner)))
        for i in range(count):
            if config.halting == "none":
                result[i] = transformed[i]
                continue
            update = 0.0
            if not halted[i]:
                p = sigmoid(float(affine(w, f"{name}.halting", signalled[i])[0]))
                updates[i] += 1
                if probability[i] + p > 1 - config.epsilon or t == config.steps:
                    remainder[i] = update = 1 - probability[i]
                    halted[i] = True
                else:
                    probability[i] += p
                    update = p
            weights[i][t - 1] = update
            kept = 1 - update if config.average == "interpolate" else 1
            result[i] = update * transformed[i] + kept * result[i]
        state = transformed  # of all, halted or not
        own.append(own_t)
        cross.append(cross_t)
    if pre:
        result = [layer_norm(w, f"{name}.norm", y) for y in result]
    return Side(result, updates, remainder, weights, own, cross)


def translate(w, source: list[int], target: list[int], config: UniversalConfig, drop=lambda x: x) -> tuple[Side, Side]:
    encoder = revise(w, "encoder", source, "source_embedding", config, drop=drop)
    return encoder, revise(w, "decoder", target, "target_embedding", config, encoder.outputs, drop)


def make(**choices) -> UniversalTransformer:
    config = UniversalConfig(
        **{"width": D, "heads": H, "inner": F, "steps": T, "tie": "none", "dropout": 0.0, **choices}
    )
    shared = config.tie == "all"
    sizes = {"source_vocabulary": V_Y if shared else V_X, "target_vocabulary": V_Y, "shared": shared}
    model = UniversalTransformer(config, **sizes).double()
    generator = torch.Generator().manual_seed(3)
    for name, p in model.named_parameters():  # as norms and biases start, mistakes there stay unseen
        p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.5
        if name.endswith("norm.weight"):
            p.data += 1
        if name.endswith("halting.bias"):
            p.data -= 1
        if name.endswith("halting.weight"):
            p.data *= 0.7
    # sinusoids are computed in float32; here they are as exact as the reference
    for i in range(20):
        exact = torch.from_numpy(coordinates(i, 0) - coordinates(0, 0) / 2)
        torch.testing.assert_close(model.positions.table[i], exact, rtol=0, atol=2e-6)
        model.positions.table[i] = exact
    for side in (model.encoder, model.decoder):
        for t, row in enumerate(side.time, start=1):
            exact = torch.from_numpy(coordinates(0, t) - coordinates(0, 0) / 2)
            torch.testing.assert_close(row, exact, rtol=0, atol=2e-6)
            row.copy_(exact)
    return model.eval()


def numpy_weights(model: UniversalTransformer) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def close(ours: torch.Tensor, theirs) -> None:
    np.testing.assert_allclose(ours.numpy(), np.array(theirs), rtol=0, atol=1e-11)


def compare(model: UniversalTransformer, w: dict[str, np.ndarray], drop=lambda x: x) -> list[int]:
    """Compares all that can be seen. Gives the numbers of steps that positions took."""
    record, config = Recorder(), model.config
    forced = model(pad_rows(SOURCES), torch.tensor(TARGETS), record)
    ponder = {"encoder": [], "decoder": []}
    taken = []
    for row, (x, y) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        sides = translate(w, x, y, config, drop)
        close(forced.hidden[row], sides[1].outputs)
        for name, side in zip(("encoder", "decoder"), sides, strict=True):
            count = len(side.outputs)
            for t in range(config.steps):
                close(record.tensors[f"{name}.{t}.self"][row, :, :count, :count], side.own[t])
                if name == "decoder":
                    close(record.tensors[f"{name}.{t}.cross"][row, ..., : len(x)], side.cross[t])
            if config.halting == "act":
                close(record.tensors[f"{name}.halting"][row, :count], side.weights)
                ponder[name] += [n + r for n, r in zip(side.n, side.r, strict=True)]
                taken += side.n
        cross = [weights.mean(0) for weights in sides[1].cross]
        if config.halting == "act":
            seen = [sum(p * cross[t][i] for t, p in enumerate(each)) for i, each in enumerate(sides[1].weights)]
        else:
            seen = cross[-1 if config.steps <= 4 else -2]
        close(model.alignment(record)[row, :, : len(x)], seen)
    assert set(forced.losses) == ({"encoder.ponder", "decoder.ponder"} if config.halting == "act" else set())
    for name, loss in forced.losses.items():
        each = ponder[name.split(".")[0]]
        assert float(loss) == pytest.approx(config.ponder * sum(each) / len(each), abs=1e-12)
    return taken


@pytest.mark.parametrize("halting", HALTING)
@pytest.mark.parametrize("norm", NORMS)
@torch.no_grad()
def test_the_model_is_its_equations(norm, halting):
    model = make(norm=norm, **halting)
    taken = compare(model, numpy_weights(model))
    if model.config.halting == "act" and model.config.steps > 1:
        assert len(set(taken)) > 1  # so that positions of one sentence halt at different steps


@pytest.mark.parametrize("tie", ["target", "all"])
@torch.no_grad()
def test_the_model_is_its_equations_with_tied_tables(tie):
    model = make(tie=tie)
    w = numpy_weights(model)
    table = w["target_embedding.weight"]
    compare(model, w | ({"source_embedding.weight": table} if tie == "all" else {}))


@pytest.mark.parametrize(("bias", "steps", "remainder"), [(60.0, 1, 1.0), (-60.0, T, 1.0)])
@pytest.mark.parametrize("average", ["interpolate", "sum"])
@torch.no_grad()
def test_positions_that_halt_at_once_and_those_that_never_do(bias, steps, remainder, average):
    """In both cases one step has all the weight: the first, or the last, which nothing but its remainder reaches."""
    model = make(halting="act", average=average)
    for side in (model.encoder, model.decoder):
        side.halting.bias.fill_(bias)
    assert set(compare(model, numpy_weights(model))) == {steps}
    forced = model(pad_rows(SOURCES), torch.tensor(TARGETS))
    for loss in forced.losses.values():
        assert float(loss) == pytest.approx(0.01 * (steps + remainder))
    plain = make(halting="none", steps=steps)
    halting = {"encoder.halting.weight", "encoder.halting.bias", "decoder.halting.weight", "decoder.halting.bias"}
    plain.load_state_dict({n: t for n, t in model.state_dict().items() if n not in halting})
    torch.testing.assert_close(
        forced.hidden, plain(pad_rows(SOURCES), torch.tensor(TARGETS)).hidden, rtol=0, atol=1e-11
    )


@torch.no_grad()
def test_halting_is_nearly_continuous_where_a_sum_crosses_the_threshold():
    """A chance that rounds to the other side costs at most about epsilon, as others read no frozen states."""
    model = make(halting="act", average="sum", epsilon=0.001, norm="post")
    hidden = []
    for nudge in (1e-9, -1e-9):
        for side in (model.encoder, model.decoder):
            side.halting.weight.zero_()
            side.halting.bias.fill_(math.log(0.4995 / 0.5005) + nudge)  # two steps make 0.999
        forced = model(pad_rows(SOURCES), torch.tensor(TARGETS))
        hidden.append(forced.hidden)
        expected = 2 + 0.5005 if nudge > 0 else 3 + 0.001
        assert float(forced.losses["encoder.ponder"]) == pytest.approx(0.01 * expected, abs=1e-7)
    assert float((hidden[0] - hidden[1]).abs().max()) < 0.05
    assert not torch.equal(hidden[0], hidden[1])


@pytest.mark.parametrize(("norm", "halting"), [("post", HALTING[0]), ("pre", HALTING[1]), ("post", HALTING[2])])
def test_gradients_are_those_of_the_equations(norm, halting):
    """Every parameter, moved a little in a random direction: loss and ponder cost change as the gradient says."""
    model = make(**{"norm": norm, "ponder": 0.5, "steps": 3, **halting})
    sources, targets = SOURCES[1:], [row[:3] for row in TARGETS[1:]]
    target = torch.tensor(targets)
    wanted = target.roll(-1, 1)
    forced = model(pad_rows(sources), target)
    logits = forced.hidden @ model.output.weight.t() + model.output.bias
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")
    (loss + sum(forced.losses.values())).backward()
    w = numpy_weights(model)

    def total(moved: dict[str, np.ndarray]) -> float:
        v, sum_of, ponder = w | moved, 0.0, ([], [])
        for x, y, z in zip(sources, targets, wanted.tolist(), strict=True):
            sides = translate(v, x, y, model.config)
            for each, side in zip(ponder, sides, strict=True):
                each += [n + r for n, r in zip(side.n, side.r, strict=True)]
            for hidden, word in zip(sides[1].outputs, z, strict=True):
                scores = v["output.weight"] @ hidden + v["output.bias"]
                sum_of += math.log(sum(math.exp(s) for s in scores)) - float(scores[word])
        return sum_of + (0.5 * sum(sum(each) / len(each) for each in ponder) if model.config.halting == "act" else 0)

    rng = np.random.default_rng(1)
    for name, parameter in model.named_parameters():
        direction = rng.normal(size=parameter.shape)
        step = 1e-5 * direction / np.linalg.norm(direction)
        slope = total({name: w[name] + step}) - total({name: w[name] - step})
        assert parameter.grad is not None, name
        expected = 2 * float((parameter.grad.numpy() * step).sum())
        assert abs(expected) > 1e-10, name  # so that the comparison says something
        assert slope == pytest.approx(expected, rel=1e-3, abs=1e-9), name


def test_ponder_cost_alone_teaches_to_halt():
    """Its gradient reaches what decides to halt, makes chances greater before the last step, and counts no padding."""
    model = make(halting="act", ponder=0.9)
    source, target = pad_rows(SOURCES), pad_rows([row[: 5 - i] for i, row in enumerate(TARGETS)])
    losses = model(source, target.tokens).losses
    torch.stack(list(losses.values())).sum().backward()
    for side in (model.encoder, model.decoder):
        assert float(side.halting.bias.grad) < 0
    alone = [model(pad_rows([x]), torch.tensor([TARGETS[i][: 5 - i]])).losses for i, x in enumerate(SOURCES)]
    for name, counts in (("encoder.ponder", source.lengths.tolist()), ("decoder.ponder", [5, 4, 3])):
        expected = sum(float(each[name].detach()) * n for each, n in zip(alone, counts, strict=True)) / sum(counts)
        assert float(losses[name].detach()) == pytest.approx(expected, abs=1e-12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = sum(float(loss.detach()) for loss in losses.values())
    for _ in range(10):
        optimizer.zero_grad()
        torch.stack(list(model(source, target.tokens).losses.values())).sum().backward()
        optimizer.step()
    assert sum(float(loss.detach()) for loss in model(source, target.tokens).losses.values()) < before - 0.3


@torch.no_grad()
def test_steps_taken_are_recorded_of_every_hypothesis():
    model = make(halting="act")
    source, target = pad_rows(SOURCES), torch.tensor(TARGETS)
    record, stepped = Recorder(), Recorder()
    model(source, target, record)
    memory, state = model.start(source, beams=2, capacity=5)
    _, state = model.advance(target[:, None, :2].expand(-1, 2, -1), memory, state)
    model.advance(target[:, None, 2:].expand(-1, 2, -1), memory, state, stepped)
    assert record.tensors["encoder.halting"].shape == (3, 6, T)
    assert stepped.tensors["decoder.halting"].shape == (3, 2, 3, T)
    for k in range(2):
        torch.testing.assert_close(stepped.tensors["decoder.halting"][:, k], record.tensors["decoder.halting"][:, 2:])


@torch.no_grad()
def test_chances_are_added_up_in_float32_whatever_the_rest_is_computed_in():
    model, record = make(halting="act").float(), Recorder()
    with torch.autocast("cpu", torch.float16):
        forced = model(pad_rows(SOURCES), torch.tensor(TARGETS), record)
    for side in ("encoder", "decoder"):
        assert record.tensors[f"{side}.halting"].dtype == torch.float32
        assert forced.losses[f"{side}.ponder"].dtype == torch.float32


def count(**choices) -> int:
    config = UniversalConfig(**{"width": 1024, "inner": 4096, "heads": 16, "norm": "post", **choices})
    with torch.device("meta"):
        model = UniversalTransformer(config, source_vocabulary=37_000, target_vocabulary=37_000, shared=True)
    return model.parameters_count() - 37_000  # the biases of the output, which the paper does not mention


def test_parameter_count_of_the_authors_base():
    """About as many as the Transformer's base model, 65 million, as section 3.6 says; steps cost none."""
    d, f, v = 1024, 4096, 37_000
    attention, transition, norm = 4 * (d * d + d), 2 * d * f + f + d, 2 * d
    encoder, decoder = attention + transition + 2 * norm, 2 * attention + transition + 3 * norm
    assert count() == encoder + decoder + v * d == 67_280_896
    assert count(steps=1) == count(steps=12) == count()
    assert count(norm="pre") == count() + 2 * norm
    assert count(halting="act") == count() + 2 * (d + 1)
    assert count(inner=0) == count()


def test_initialisation_follows_the_sizes():
    torch.manual_seed(0)
    sizes = {"source_vocabulary": 500, "target_vocabulary": 500, "shared": True}
    for config in (UniversalConfig(width=64, halting="act"), UniversalConfig(width=64, halting="act", norm="post")):
        model = UniversalTransformer(config, **sizes)
        pre = config.norm == "pre"
        assert model.target_embedding.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
        fused = model.encoder.attention.query_key_value.weight
        assert fused.abs().max().item() == pytest.approx(math.sqrt(6 / (64 + 192)), rel=0.02)
        out = model.decoder.attention.out.weight
        assert out.abs().max().item() == pytest.approx(math.sqrt(6 / 128) / (math.sqrt(18) if pre else 1), rel=0.03)
        out = model.encoder.transition.out.weight
        bound = math.sqrt(6 / (64 + 256)) / (math.sqrt(12) if pre else 1)
        assert out.abs().max().item() == pytest.approx(bound, rel=0.03)
        for side in (model.encoder, model.decoder):
            assert side.halting.bias.item() == 1.0
            assert side.attention.out.bias.abs().max().item() == 0
        assert model.source_embedding is model.target_embedding


class Half(torch.nn.Module):
    """A dropout whose every draw is known."""

    def forward(self, x):
        return x * 0.5


@pytest.mark.parametrize("norm", NORMS)
@torch.no_grad()
def test_dropout_is_on_embeddings_and_on_what_sublayers_write(norm):
    model = make(norm=norm, halting="act")
    model.dropout = Half()
    for module in model.modules():
        if hasattr(module, "before"):
            module.dropout = Half()
    compare(model, numpy_weights(model), lambda x: 0.5 * x)


@pytest.mark.parametrize("setting", ["dropout", "attention_dropout", "activation_dropout"])
@torch.no_grad()
def test_dropouts_are_those_of_the_settings_and_only_in_training(setting):
    model, still = make(**{setting: 0.4}), make().train()
    source, target = pad_rows(SOURCES), torch.tensor(TARGETS)
    for steady in (model, still):
        torch.testing.assert_close(steady(source, target).hidden, steady(source, target).hidden, rtol=0, atol=0)
    torch.manual_seed(0)
    model.train()
    assert not torch.allclose(model(source, target).hidden, model(source, target).hidden)


@pytest.mark.parametrize("part", ["encoder.attention", "decoder.attention", "decoder.cross"])
@torch.no_grad()
def test_every_attention_has_its_dropout(part):
    """Also where nothing of the other two comes through."""
    model = make(attention_dropout=0.4).train()
    source, target = pad_rows(SOURCES), torch.tensor(TARGETS)
    for other in {"encoder.attention", "decoder.attention", "decoder.cross"} - {part}:
        if (part, other) != ("encoder.attention", "decoder.cross"):
            model.get_submodule(other).out.weight.zero_()
    if part == "encoder.attention":
        model.decoder.cross.dropout = 0.0
    torch.manual_seed(0)
    assert not torch.allclose(model(source, target).hidden, model(source, target).hidden)


@pytest.mark.parametrize("halting", HALTING[:2])
@torch.no_grad()
def test_what_padding_holds_changes_nothing(halting):
    model = make(**halting)
    source, target = pad_rows(SOURCES), torch.tensor(TARGETS)
    other = Padded(source.tokens.masked_fill(~source.keep, 9), source.keep)
    one, two = model(source, target), model(other, target)
    torch.testing.assert_close(two.hidden, one.hidden, rtol=0, atol=1e-13)
    for name in one.losses:
        torch.testing.assert_close(two.losses[name], one.losses[name], rtol=0, atol=1e-13)
    longer = torch.cat((target, torch.full((3, 2), PAD)), 1)
    torch.testing.assert_close(model(source, longer).losses, one.losses, rtol=0, atol=1e-13)


@torch.no_grad()
def test_more_tokens_than_the_state_has_room_for_are_refused():
    model = make()
    memory, state = model.start(pad_rows(SOURCES), capacity=3)
    with pytest.raises(ModelError, match="4 tokens exceed the state's capacity 3"):
        model.advance(torch.full((3, 1, 4), BOS), memory, state)


@pytest.mark.parametrize(
    ("setting", "values", "message"),
    [
        ("steps", {"steps": 0}, "less than 1"),
        ("steps", {"steps": 100_000}, "more than 1000"),
        ("width", {"width": 1 << 20}, "more than 16384"),
        ("width", {"width": 9, "heads": 3}, "even width, got 9"),
        ("heads", {"width": 16, "heads": 3}, "3 heads do not divide the width 16"),
        ("epsilon", {"epsilon": 1.0}, "not in [0, 1)"),
        ("ponder", {"ponder": -0.1}, "not in [0, 1)"),
        ("dropout", {"dropout": 1.0}, "not in [0, 1)"),
    ],
)
def test_sizes_that_cannot_be_are_refused(setting, values, message):
    with pytest.raises(ConfigError) as error:
        UniversalConfig(**values)
    assert str(error.value).startswith(f"setting model.{setting}: ")
    assert message in str(error.value)
