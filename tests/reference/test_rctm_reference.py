"""RCTM I and II against float64 NumPy written from sections 2 to 4 of the paper: sentence by sentence, column by column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, PAD, Padded, pad_rows
from regard.models.base import build_model
from regard.models.rctm import RCTM1, RCTM2, RCTM1Config, RCTM2Config
from regard.search.forcing import score_pairs

V_X, V_Y, Q, C = 11, 13, 5, 4  # 4 classes of 4 words, the last of one
WORDS = np.random.default_rng(1).integers(4, 11, size=40).tolist()
SOURCES = [[*WORDS[n : 2 * n], EOS] for n in range(13)]  # of 1 to 13 tokens: all the ways a stack of kernels can end
TARGETS = [[BOS, *np.random.default_rng(n).integers(3, V_Y, size=4).tolist()] for n in range(13)]
SIGMA = {"tanh": math.tanh, "sigmoid": lambda x: 1 / (1 + math.exp(-x))}


def kernels(table: np.ndarray) -> dict[int, np.ndarray]:
    """Kernels of 2, 3, .. columns, as they stand one below the other."""
    found, width = {}, 2
    while len(table):
        found[width], table = table[:width].T, table[width:]
        width += 1
    return found


def narrow(kernel, columns: np.ndarray, sigma) -> np.ndarray:
    """(K * M): each row of M with the row of K, where the kernel lies wholly inside (6)."""
    rows, width = columns.shape
    result = np.zeros((rows, width - kernel.shape[1] + 1))
    for a in range(rows):
        for b in range(result.shape[1]):
            result[a, b] = sigma(sum(kernel[a, t] * columns[a, b + t] for t in range(kernel.shape[1])))
    return result


def spread(kernel, columns: np.ndarray, sigma) -> np.ndarray:
    """The inverse: every column is spread over as many as the kernel has."""
    rows, width = columns.shape
    total = np.zeros((rows, width + kernel.shape[1] - 1))
    for a in range(rows):
        for b in range(width):
            for t in range(kernel.shape[1]):
                total[a, b + t] += kernel[a, t] * columns[a, b]
    return np.vectorize(sigma)(total)


def schedule(columns: int, until: int) -> list[tuple[str, int]]:
    """K^2, K^3, .. while the next leaves enough columns, then one L that takes the rest."""
    steps, width = [], 2
    while columns - (width - 1) >= until:
        steps.append(("k", width))
        columns, width = columns - (width - 1), width + 1
    return [*steps, ("l", columns - until + 1)] if columns > until else steps


def csm(w, e: np.ndarray, until: int, sigma) -> np.ndarray:
    for name, width in schedule(e.shape[1], until):
        e = narrow(kernels(w[f"fold.{name}"])[width], e, sigma)
    return e


def icgm(w, g: np.ndarray, m: int, sigma) -> np.ndarray:
    for name, width in reversed(schedule(m, g.shape[1])):
        g = spread(kernels(w[f"unfold.{name}"])[width], g, sigma)
    return g


def log_softmax(z):
    return z - math.log(sum(math.exp(x) for x in z))


def log_distribution(w, h, vocabulary: int) -> np.ndarray:
    """log P(c | h) + log P(w | c, h), or one softmax over all words."""
    z = w["output.weight"] @ h + w["output.bias"]
    if "output.class_weight" not in w:
        return log_softmax(z)
    of_class = log_softmax(w["output.class_weight"] @ h + w["output.class_bias"])
    size = math.ceil(vocabulary / len(of_class))
    return np.concatenate([of_class[c] + log_softmax(z[c * size : (c + 1) * size]) for c in range(len(of_class))])


def translate(w, source, target, config, drop=lambda x: x):
    """The states, and log P of every word at every step, of one sentence. `target` starts with BOS and has no padding."""
    sigma = SIGMA[config.activation]
    if isinstance(config, RCTM2Config):
        e = np.array([drop(w["source_embedding.weight"][word]) for word in source]).T
        k, m = len(source), len(target)
        until = max(1, min(k - config.gram + 1, m))
        g = np.array([[sigma(x) for x in w["translation.weight"] @ drop(c)] for c in csm(w, e, until, sigma).T]).T
        added = [w["conditioning.weight"] @ drop(f) for f in icgm(w, g, m, sigma).T]  # S F_{:,i}
    elif config.blind:
        added = [np.zeros(Q)] * len(target)
    else:
        e = np.array([drop(w["source_embedding.weight"][word]) for word in source]).T
        added = [w["conditioning.weight"] @ drop(csm(w, e, 1, sigma)[:, 0])] * len(target)  # S csm(e) (8a)
    h, states, log_p = np.zeros(Q), [], []
    for word, s in zip(target, added, strict=True):  # h = σ(R h + I v(f) + s) (8b), (8c)
        z = w["rlm.recurrent.weight"] @ h + w["rlm.recurrent.bias"] + drop(w["target_embedding.weight"][word]) + s
        h = np.array([sigma(x) for x in z])
        states.append(drop(h))
        log_p.append(log_distribution(w, drop(h), V_Y))  # o = O h (8d)
    return np.array(states), np.array(log_p)


def make(form: int, **choices) -> Any:
    sizes = {"width": Q, "max_source": 16, "classes": C, **({"max_target": 14} if form == 2 else {})}
    config = (RCTM1Config if form == 1 else RCTM2Config)(**{**sizes, **choices})
    shared = config.tie == "all"
    vocabularies = {"source_vocabulary": V_Y if shared else V_X, "target_vocabulary": V_Y}
    model = build_model(config.name, config, **vocabularies, shared=shared).double()
    generator = torch.Generator().manual_seed(3)
    for name, p in model.named_parameters():
        if name != "length.log_mean":
            p.data = torch.randn(p.shape, generator=generator, dtype=torch.float64) * 0.8
    return model.eval()


def numpy_weights(model) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def compare(model, w, drop=lambda x: x, targets=TARGETS) -> None:
    hidden = model(pad_rows(SOURCES), pad_rows(targets).tokens).hidden
    scores = model.output.scores(hidden)
    for row, (x, y) in enumerate(zip(SOURCES, targets, strict=True)):
        states, log_p = translate(w, x, y, model.config, drop)
        np.testing.assert_allclose(hidden[row, : len(y)].numpy(), states, rtol=0, atol=1e-12)
        np.testing.assert_allclose(scores[row, : len(y)].numpy(), log_p, rtol=0, atol=1e-5)  # in float32


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("output", ["classes", "softmax"])
@torch.no_grad()
def test_rctm_1_is_its_equations(activation, output):
    model = make(1, activation=activation, output=output)
    compare(model, numpy_weights(model))


@torch.no_grad()
def test_a_blind_rctm_1_is_the_recurrent_language_model():
    model = make(1, blind=True)
    w = numpy_weights(model)
    assert not any("source" in name or "fold" in name or "conditioning" in name for name in w)
    compare(model, w)
    assert model.limits.source is None


@pytest.mark.parametrize("gram", [1, 2, 4, 6])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@torch.no_grad()
def test_rctm_2_is_its_equations_for_all_lengths(activation, gram):
    """Sources of 1 to 13 tokens with targets of 1 to 14: shorter, as long and longer, alone and side by side."""
    model = make(2, activation=activation, gram=gram, output="softmax" if gram == 2 else "classes")
    w = numpy_weights(model)
    for shift in range(14) if gram == 4 else (0, 5):
        lengths = [(row * 3 + shift) % 14 + 1 for row in range(13)]
        compare(
            model, w, targets=[([*target, *target, *target])[:n] for target, n in zip(TARGETS, lengths, strict=True)]
        )


@torch.no_grad()
def test_rctm_2_folds_4_grams_and_unfolds_as_it_folded():
    """Six words and five: K² and K³ leave three 4-grams; M² makes four columns of them, J² five."""
    assert schedule(6, 3) == [("k", 2), ("k", 3)]
    assert schedule(5, 3) == [("k", 2), ("l", 2)]
    assert [schedule(n, 1)[-1:] for n in (1, 2, 3, 4, 5, 6, 7)] == [
        [], [("k", 2)], [("l", 2)], [("k", 3)], [("l", 2)], [("l", 3)], [("k", 4)]
    ]  # fmt: skip
    model = make(2)
    used = set()
    for m in (5, 6):
        model.zero_grad()
        with torch.enable_grad():
            model(pad_rows([[4, 5, 6, 7, 8, EOS]]), torch.arange(4, 4 + m)[None]).hidden.sum().backward()
        for name in ("fold.k", "fold.l", "unfold.k", "unfold.l"):
            gradient = kernels(model.get_parameter(name).grad.numpy())  # type: ignore[union-attr]
            used |= {(m, name, width) for width, g in gradient.items() if np.abs(g).max() > 0}
    both = {(m, "fold.k", width) for m in (5, 6) for width in (2, 3)}
    assert used == both | {(5, "unfold.k", 2), (5, "unfold.l", 2), (6, "unfold.k", 2), (6, "unfold.k", 3)}


@pytest.mark.parametrize("k", [7, 12, 16])
def test_a_column_sees_three_words_to_either_side(k):
    """Where the target is as long as the source, column i is unfolded from 4-grams i - 3 .. i, that is words i - 3 .. i + 3."""
    config = RCTM2Config(width=Q, max_source=16, max_target=16)
    model: Any = build_model("rctm2", config, source_vocabulary=20, target_vocabulary=20, shared=False).eval()
    memory, _ = model.start(pad_rows([[*range(4, 3 + k), EOS]]), capacity=k, target_length=k)
    words = [*range(4, 3 + k), EOS]
    for i in range(k):
        model.zero_grad()
        memory.s[0, i].sum().backward(retain_graph=True)
        seen = model.source_embedding.weight.grad[words].abs().amax(1) > 0
        assert [j for j in range(k) if seen[j]] == [j for j in range(k) if abs(i - j) <= 3]


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("tie", ["target", "all"])
@torch.no_grad()
def test_the_models_are_their_equations_with_tied_tables(form, tie):
    model = make(form, tie=tie)
    w = numpy_weights(model)
    table = w["target_embedding.weight"]
    compare(model, w | {"output.weight": table} | ({"source_embedding.weight": table} if tie == "all" else {}))


@pytest.mark.parametrize("form", [1, 2])
def test_gradients_are_those_of_the_equations(form):
    """Every parameter, moved a little in a random direction: the loss of the equations changes as the gradient says."""
    model = make(form, activation="tanh")
    sources, targets = SOURCES[2:9:2], [TARGETS[1], TARGETS[2][:4], TARGETS[3][:2], TARGETS[4]]
    padded = pad_rows(targets)
    wanted = padded.tokens.roll(-1, 1).masked_fill(~padded.keep, PAD)
    hidden = model(pad_rows(sources), padded.tokens).hidden
    loss = model.output.loss(hidden, wanted).loss
    loss.backward()
    w = numpy_weights(model)

    def plain(moved: dict[str, np.ndarray]) -> float:
        total = 0.0
        for x, y, z in zip(sources, targets, wanted.tolist(), strict=True):
            log_p = translate(w | moved, x, y, model.config)[1]
            total -= sum(log_p[i, word] for i, word in enumerate(z) if word != PAD)
        return total

    assert loss.item() == pytest.approx(plain({}), rel=1e-6)
    rng = np.random.default_rng(1)
    for name, parameter in model.named_parameters():
        if name == "length.log_mean":  # nothing but the length depends on it
            assert parameter.grad is None
            continue
        direction = rng.normal(size=parameter.shape)
        step = 1e-5 * direction / np.linalg.norm(direction)
        slope = plain({name: w[name] + step}) - plain({name: w[name] - step})
        assert parameter.grad is not None, name
        expected = 2 * float((parameter.grad.numpy() * step).sum())
        assert abs(expected) > 1e-9, name  # so that the comparison says something
        assert slope == pytest.approx(expected, rel=2e-3), name


class Half(torch.nn.Module):
    """A dropout whose every draw is known."""

    def forward(self, x):
        return x * 0.5


@pytest.mark.parametrize("form", [1, 2])
@torch.no_grad()
def test_dropout_is_on_words_columns_and_outputs(form):
    model = make(form)
    model.dropout = Half()  # type: ignore[assignment]
    compare(model, numpy_weights(model), lambda x: 0.5 * x)


@pytest.mark.parametrize("form", [1, 2])
@torch.no_grad()
def test_what_padding_holds_changes_nothing(form):
    model, source, target = make(form), pad_rows(SOURCES), torch.tensor(TARGETS)
    other = Padded(source.tokens.masked_fill(~source.keep, 9), source.keep)
    torch.testing.assert_close(model(other, target).hidden, model(source, target).hidden, rtol=0, atol=1e-13)


# --- lengths


def log_poisson(words: int, mean: float) -> float:
    return math.log(mean**words * math.exp(-mean) / math.factorial(words))


@torch.no_grad()
def test_lengths_are_poisson_with_a_mean_for_each_source_length():
    model, source = make(2), pad_rows(SOURCES[:4])
    means = [0.7, 2.5, 3.0, 9.25]
    model.length.log_mean[:4] = torch.tensor(means, dtype=torch.float64).log()
    scores = model.length_scores(source, 7)
    for row, mean in enumerate(means):
        assert scores[row].tolist() == pytest.approx([log_poisson(words, mean) for words in range(7)], abs=1e-6)
    assert scores.exp().sum(1)[:2].tolist() == pytest.approx([1, 1], abs=0.02)


def test_the_length_loss_is_that_of_real_rows_per_token():
    model = make(2)
    source, target = pad_rows(SOURCES[:4]), pad_rows([[BOS, 5], [BOS, 5, 6, 7], [], []]).tokens
    loss = model(source, target).losses["length"]
    assert loss.item() == pytest.approx(-(log_poisson(1, 1) + log_poisson(3, 2)) / 6, rel=1e-6)  # at first λ_k = k
    loss.backward()
    gradient = model.length.log_mean.grad
    assert gradient.nonzero().flatten().tolist() == [1]  # source length 1 has its mean already
    assert gradient[1].item() == pytest.approx((2 - 3) / 6)  # (λ - words) / tokens
    assert torch.isfinite(model(source, torch.zeros_like(target)).losses["length"])


@torch.no_grad()
def test_the_score_of_a_text_counts_its_length():
    model = make(2)
    texts = [target[1 : 2 + row % 4] for row, target in enumerate(TARGETS)]
    w = numpy_weights(model)
    for row, (total, each) in enumerate(score_pairs(model, pad_rows(SOURCES), texts)):
        log_p = translate(w, SOURCES[row], [BOS, *texts[row]], model.config)[1]
        expected = [log_p[i, word] for i, word in enumerate([*texts[row], EOS])]
        assert each == pytest.approx(expected, abs=1e-5)
        assert total == pytest.approx(sum(expected) + log_poisson(len(texts[row]), row + 1), abs=1e-5)


@torch.no_grad()
def test_a_start_is_for_the_length_asked_or_the_likeliest():
    model, source = make(2), pad_rows(SOURCES[:3])
    model.length.log_mean[:3] = torch.tensor([0.5, 3.9, 30.0]).log()
    lengths = torch.tensor([1, 4, 12])  # ⌊λ⌋ words and EOS, at most as many as there is room for
    chosen, state = model.start(source, beams=2, capacity=12)
    given, _ = model.start(source, capacity=12, target_length=lengths)
    torch.testing.assert_close(chosen.s, given.s)
    assert state.h.shape == (3, 2, Q)
    same, _ = model.start(source, capacity=12, target_length=4)
    torch.testing.assert_close(same.s[1], given.s[1])
    assert float((same.s[0] - given.s[0]).abs().max()) > 0.01
    assert float(given.s[1, 4:].abs().max()) == 0


@torch.no_grad()
def test_a_length_that_there_is_no_room_for_is_refused():
    model, source = make(2), pad_rows(SOURCES[:3])
    for length, capacity, most in ((13, 12, 12), (15, 40, 14), (0, 12, 12)):
        message = f"target_length: a text of {length} tokens, EOS included, was asked for, .* room for 1 to {most}"
        with pytest.raises(ModelError, match=message):
            model.start(source, capacity=capacity, target_length=length)
        cut, _ = model.start(source, capacity=capacity, target_length=torch.full((3,), length))
        same, _ = model.start(source, capacity=capacity, target_length=max(1, min(length, most)))
        torch.testing.assert_close(cut.s, same.s, rtol=0, atol=0)


@torch.no_grad()
def test_what_a_blind_model_remembers_is_its_own():
    memory, state = make(1, blind=True).start(pad_rows(SOURCES[:3]))
    assert float(memory.s.abs().max()) == 0
    assert memory.s.data_ptr() != state.h.data_ptr()


# --- sizes


def count(form: int, **choices) -> int:
    config = (RCTM1Config if form == 1 else RCTM2Config)(**choices)
    with torch.device("meta"):
        model = build_model(config.name, config, source_vocabulary=3000, target_vocabulary=2500, shared=False)
    return model.parameters_count()


def test_parameter_counts_are_those_of_the_equations():
    q, words = 256, (3000 + 2500 + 2500) * 256
    matrices, biases = 2 * q * q, q + 2500  # R and S; their biases and those of the words are not in the equations
    # K², .. K²³ and as many L. The paper's ⌈√(2 · 256)⌉ is 23, too. For some other lengths it is one more (9 for 36 columns),
    # a kernel that is never used: K², .. K⁹ take 36 columns away, and of 36 one has to be left.
    folding = 2 * q * sum(range(2, 24))
    classes = 50 * q + 50
    rctm1 = words + matrices + biases + folding + classes
    assert count(1) == rctm1
    assert count(1, output="softmax") == rctm1 - classes
    assert count(1, blind=True) == rctm1 - folding - q * q - 3000 * q
    assert count(1, tie="target") == rctm1 - 2500 * q
    assert count(2) == rctm1 + q * q + folding + 256  # T, the inverse, and a mean for each source length
    assert count(2, gram=7) == count(2)
    assert count(2, max_target=40) == count(2) - 2 * q * sum(range(10, 24))
    assert count(2, max_target=36) == count(2) - 2 * q * sum(range(9, 24))


def fresh(form: int, activation: Any) -> Any:
    torch.manual_seed(0)
    config = (RCTM1Config if form == 1 else RCTM2Config)(width=64, activation=activation)
    return build_model(config.name, config, source_vocabulary=300, target_vocabulary=400, shared=False).eval()


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("form", [1, 2])
def test_initialisation(form, activation):
    model = fresh(form, activation)
    for name, p in model.named_parameters():
        p = p.detach()
        if name == "length.log_mean":
            torch.testing.assert_close(p.exp(), torch.arange(1.0, 257))
        elif p.dim() == 1:
            assert float(p.abs().max()) == 0, name
        elif name == "rlm.recurrent.weight":
            torch.testing.assert_close(p @ p.t(), torch.eye(64), rtol=0, atol=1e-5)
        elif "fold" in name:
            for width, kernel in kernels(p.numpy()).items():
                if activation == "tanh":
                    assert (kernel**2).mean() == pytest.approx(1 / width, rel=0.4), name
                    assert kernel.min() >= 0, name
                else:  # the mean takes 1 / width of the variance with it
                    assert (kernel**2).mean() == pytest.approx(16 / width * (1 - 1 / width), rel=0.4), name
                    assert np.abs(kernel.mean(1)).max() < 1e-6, name
        elif "embedding" in name or name.startswith("output."):
            assert float(p.std()) == pytest.approx(1 / 8, rel=0.05), name
        else:
            assert float(p.std()) == pytest.approx(math.sqrt(2 / 128), rel=0.05), name


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("form", [1, 2])
@torch.no_grad()
def test_what_is_added_differs_between_long_sources_at_the_start(form, activation):
    model = fresh(form, activation)
    for length in (4, 16, 30, 60):
        source = pad_rows(torch.randint(4, 300, (32, length)).tolist())
        memory, _ = model.start(source, capacity=length)
        assert float(memory.s.std(0).mean()) > 0.001, length


@pytest.mark.parametrize(
    ("config", "setting", "values", "message"),
    [
        (RCTM1Config, "width", {"width": 0}, "less than 1"),
        (RCTM1Config, "max_source", {"max_source": 1 << 20}, "more than 16384"),
        (RCTM1Config, "classes", {"classes": -1}, "negative"),
        (RCTM2Config, "gram", {"gram": 0}, "less than 1"),
        (RCTM2Config, "max_target", {"max_target": 1}, "less than 2"),
        (RCTM2Config, "dropout", {"dropout": 1.0}, "not in [0, 1)"),
    ],
)
def test_sizes_that_cannot_be_are_refused(config, setting, values, message):
    with pytest.raises(ConfigError) as error:
        config(**values)
    assert str(error.value).startswith(f"setting model.{setting}: ")
    assert message in str(error.value)


def test_texts_longer_than_the_kernels_reach_are_refused():
    for form in (1, 2):
        message = (
            "source: 17 tokens are more than the model's 16. Give shorter text, or train with a larger model.max_source"
        )
        with pytest.raises(ModelError, match=message):
            make(form)(pad_rows([[5] * 16 + [EOS]]), torch.tensor([[BOS, 5]]))
    with pytest.raises(ModelError, match="target: 15 tokens are more than the model's 14"):
        make(2)(pad_rows([[5, EOS]]), torch.full((1, 15), 5))
    assert make(1)(pad_rows([[5] * 15 + [EOS]]), torch.full((1, 40), 5)).hidden.isfinite().all()


def test_only_the_second_has_to_know_lengths():
    assert isinstance(make(1), RCTM1)
    assert isinstance(make(2), RCTM2)
    assert "plans" not in RCTM1.capabilities
    assert "plans" in RCTM2.capabilities
