"""The optimizer: against torch's by hand, refusing what is not finite, and its state as tensors."""

import pytest
import torch
from torch import Tensor, nn

from regard.core.errors import CheckpointError
from regard.core.files import load_tensors, save_tensors
from regard.layers.attention.multihead import CrossAttention, SelfAttention
from regard.models.kim import shrink_rows
from regard.training.config import TrainConfig
from regard.training.muon import Muon, _iterate, _iterate_products, orthogonalize
from regard.training.optim import Optimizer

CPU = torch.device("cpu")


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 8), nn.LayerNorm(8))


def backward(model: nn.Module, step: int, factor: float = 1.0) -> Tensor:
    rows = torch.randint(7, (11,), generator=torch.Generator().manual_seed(step))
    loss = (model(rows) * torch.randn(11, 8, generator=torch.Generator().manual_seed(step))).sum() * factor
    loss.backward()
    return loss.detach()


def copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.allclose(a[name], b[name], rtol=0, atol=tolerance), name


@pytest.mark.parametrize(("name", "reference"), [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam)])
@pytest.mark.parametrize("clip", [0.5, 0.0])
def test_steps_equal_torchs_with_clipping_schedule_and_decay_of_matrices_only(name, reference, clip):
    config = TrainConfig(optimizer=name, lr=0.01, beta1=0.8, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=clip)
    ours, theirs = network(), network()
    optimizer = Optimizer(ours, config, CPU)
    groups = [
        {"params": [p for p in theirs.parameters() if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in theirs.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    other = reference(groups, betas=(0.8, 0.95), eps=1e-8, foreach=False, fused=False)
    for step in range(1, 6):
        factor = 0.001 if step == 3 else 1.0
        loss = backward(ours, step, factor)
        backward(theirs, step, factor)
        norm = torch.cat([p.grad.flatten() for p in theirs.parameters()]).norm()
        assert (norm > 1) == (step != 3)  # what is clipped and what is not
        if clip:
            nn.utils.clip_grad_norm_(theirs.parameters(), clip)
        for group in other.param_groups:
            group["lr"] = 0.01 * step / 5
        other.step()
        other.zero_grad()
        assert float(optimizer.step(loss, step / 5, step)) == pytest.approx(float(norm), rel=1e-6)
        assert all(p.grad is None for p in ours.parameters())
        assert_same(dict(ours.named_parameters()), dict(theirs.named_parameters()), 1e-6)


@pytest.mark.parametrize("kind", ["adamw", "muon", "sgd", "adadelta", "adagrad"])
@pytest.mark.parametrize("bad", ["nan loss", "inf loss", "nan gradient", "inf gradient", "overflowing norm"])
def test_what_is_not_finite_changes_nothing_but_the_counters(kind, bad):
    model = network()
    optimizer = Optimizer(model, TrainConfig(optimizer=kind, clip=1.0), CPU)
    optimizer.step(backward(model, 1), 1.0, 1)
    weights, state = copy(dict(model.named_parameters())), copy(optimizer.tensors())
    loss = backward(model, 2)
    gradient = model[1].weight.grad
    if bad == "nan loss":
        loss = loss * float("nan")
    elif bad == "inf loss":
        loss = loss.abs() * float("inf")
    else:
        gradient[2, 3] = {"nan gradient": float("nan"), "inf gradient": float("-inf"), "overflowing norm": 3e38}[bad]
    optimizer.step(loss, 1.0, 2)
    after = optimizer.tensors()
    assert (int(after.pop("skipped")), int(after.pop("in_a_row")), int(after.pop("last_bad"))) == (1, 1, 2)
    assert_same(dict(model.named_parameters()), weights)
    assert_same(after, {name: tensor for name, tensor in state.items() if "/" in name})
    optimizer.step(backward(model, 3), 1.0, 3)
    assert (int(optimizer.skipped), int(optimizer.in_a_row), int(optimizer.last_bad)) == (1, 0, 2)
    assert not torch.equal(model[1].weight, weights["1.weight"])
    assert all(bool(p.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("kind", ["adamw", "adam", "muon", "sgd", "adadelta", "adagrad"])
def test_state_goes_through_a_file_and_training_goes_on_identically(kind, tmp_path):
    config = TrainConfig(optimizer=kind, lr=0.01, weight_decay=0.01)
    straight = network()
    optimizer = Optimizer(straight, config, CPU)
    for step in range(1, 4):
        optimizer.step(backward(straight, step, float("inf") if step == 2 else 1.0), 1.0, step)
    save_tensors(tmp_path / "optimizer.safetensors", optimizer.tensors())
    resumed = network()
    resumed.load_state_dict(straight.state_dict())
    other = Optimizer(resumed, config, CPU)
    other.load(load_tensors(tmp_path / "optimizer.safetensors"), "here")
    assert (int(other.skipped), int(other.in_a_row), int(other.last_bad)) == (1, 0, 2)
    for step in range(4, 8):
        optimizer.step(backward(straight, step), 0.5, step)
        other.step(backward(resumed, step), 0.5, step)
    assert_same(dict(straight.named_parameters()), dict(resumed.named_parameters()))
    assert_same(optimizer.tensors(), other.tensors())


def test_muon_has_the_matrices_inside_and_adam_the_rest():
    model = network()
    optimizer = Optimizer(model, TrainConfig(optimizer="muon"), CPU)
    optimizer.step(backward(model, 1), 1.0, 1)
    with_momentum = {name.split("/")[0] for name in optimizer.tensors() if name.endswith("momentum_buffer")}
    with_moments = {name.split("/")[0] for name in optimizer.tensors() if name.endswith("exp_avg_sq")}
    assert with_momentum == {"1.weight", "3.weight"}
    assert with_moments == {"0.weight", "1.bias", "3.bias", "4.weight", "4.bias"}


def test_state_of_another_model_is_refused():
    model = network()
    optimizer = Optimizer(model, TrainConfig(), CPU)
    optimizer.step(backward(model, 1), 1.0, 1)
    tensors = optimizer.tensors()
    with pytest.raises(CheckpointError, match="does not fit"):
        Optimizer(model, TrainConfig(), CPU).load({**tensors, "1.weight/exp_avg": torch.zeros(2, 2)}, "here")
    with pytest.raises(CheckpointError, match="does not fit"):
        Optimizer(model, TrainConfig(), CPU).load({k: v for k, v in tensors.items() if k != "skipped"}, "here")


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6)])
def test_orthogonalize_brings_singular_values_near_one(shape):
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    u, s, vh = torch.linalg.svd(matrices, full_matrices=False)
    result = orthogonalize(matrices)
    a, b, c = 3.4445, -4.7750, 2.0315
    s = s / s.norm(dim=-1, keepdim=True)
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5  # what the iteration does to each singular value
    assert torch.allclose(result, u @ torch.diag_embed(s) @ vh, atol=2e-3)
    assert torch.allclose(orthogonalize(matrices[1:2])[0], result[1], atol=1e-6)


def test_wide_matrices_are_orthogonalized_by_their_products_with_themselves():
    """Also where some directions are a hundred times weaker than others, as gradients have them."""
    draw = torch.Generator().manual_seed(0)
    weak = torch.logspace(0, -2, 6)[:, None]
    wide = torch.randn(2, 6, 6, generator=draw) @ (weak * torch.randn(2, 6, 30, generator=draw))
    x = wide / wide.norm(dim=(-2, -1), keepdim=True)
    expected = _iterate(x)
    assert torch.allclose(_iterate_products(x), expected, atol=1e-3)
    for matrices, result in ((wide, _iterate_products(x)), (wide.mT, _iterate_products(x).mT)):
        assert torch.equal(orthogonalize(matrices), result)
    even = torch.randn(2, 6, 30, generator=draw)
    even = even / even.norm(dim=(-2, -1), keepdim=True)
    assert torch.allclose(_iterate_products(even), _iterate(even), atol=5e-6)


def test_muon_step_by_hand():
    weight = nn.Parameter(torch.randn(8, 2, generator=torch.Generator().manual_seed(1)))
    expected, momentum = weight.detach().clone(), torch.zeros(8, 2)
    muon = Muon([weight], lr=0.1, weight_decay=0.2)
    for step in range(3):
        weight.grad = torch.randn(8, 2, generator=torch.Generator().manual_seed(10 + step))
        momentum = 0.95 * momentum + 0.05 * weight.grad
        update = orthogonalize((0.05 * weight.grad + 0.95 * momentum)[None])[0]
        expected = expected * (1 - 0.1 * 0.2) - 0.1 * 2 * update  # a matrix four times as tall as wide: twice the rate
        muon.step()
    assert torch.allclose(weight, expected, atol=1e-6)


@pytest.mark.parametrize("heights", [(4, 4, 4), (6, 3, 3)])
def test_muon_takes_matrices_that_lie_in_one_apart(heights):
    """As though each were a parameter of its own, the momentum too; two such weights and one that is whole go together."""
    draw = torch.Generator().manual_seed(1)
    packed = [nn.Parameter(torch.randn(12, 5, generator=draw)) for _ in range(2)]
    whole = nn.Parameter(torch.randn(12, 5, generator=draw))
    parts = [[nn.Parameter(part.detach().clone()) for part in weight.split(heights)] for weight in packed]
    alone = nn.Parameter(whole.detach().clone())
    together = Muon([*packed, whole], lr=0.1, weight_decay=0.2, packed={id(weight): heights for weight in packed})
    each = Muon([*parts[0], *parts[1], alone], lr=0.1, weight_decay=0.2)
    for _ in range(3):
        for weight in (*packed, whole):
            weight.grad = torch.randn(12, 5, generator=draw)
        for weight, own in zip(packed, parts, strict=True):
            for part, gradient in zip(own, weight.grad.split(heights), strict=True):
                part.grad = gradient.clone()
        alone.grad = whole.grad.clone()
        together.step()
        each.step()
    for weight, own in zip(packed, parts, strict=True):
        assert torch.allclose(weight, torch.cat(own), atol=1e-6)
        momenta = [each.state[part]["momentum_buffer"] for part in own]
        assert torch.allclose(together.state[weight]["momentum_buffer"], torch.cat(momenta), atol=1e-7)
    assert torch.allclose(whole, alone, atol=1e-6)


def test_queries_keys_and_values_are_matrices_of_their_own_for_muon():
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.text = SelfAttention(8, 4, kv_heads=2)
            self.source = CrossAttention(8, 2, memory_width=6)

    model = Layers()
    optimizer = Optimizer(model, TrainConfig(optimizer="muon"), CPU)
    muon = optimizer.parts[1][0]
    assert muon.packed == {id(model.text.query_key_value.weight): (8, 4, 4), id(model.source.key_value.weight): (8, 8)}


@pytest.mark.parametrize("kind", ["sgd", "adadelta", "adagrad"])
def test_the_papers_optimizers_are_their_equations(kind):
    """SGD: w - lr g. Adagrad (Duchi 2011): w - lr g / (√Σg² + ε).

    Adadelta (Zeiler 2012): E[g²] and E[Δ²] decay by ρ, Δ = -√(E[Δ²] + ε) / √(E[g²] + ε) g.
    """
    model = network()
    rate = {"sgd": 0.7, "adadelta": 1.0, "adagrad": 0.1}[kind]
    config = TrainConfig(optimizer=kind, lr=rate, beta2=0.95, eps=1e-6, clip=0.0)
    optimizer = Optimizer(model, config, CPU)
    weights = {name: p.detach().double() for name, p in model.named_parameters()}
    squares, deltas = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    for step in range(1, 5):
        loss = backward(model, step)
        gradients = {name: p.grad.double() for name, p in model.named_parameters()}
        optimizer.step(loss, 0.5, step)
        for name, g in gradients.items():
            if kind == "sgd":
                weights[name] = weights[name] - 0.35 * g
                continue
            if kind == "adagrad":
                squares[name] = squares[name] + g * g
                weights[name] = weights[name] - 0.05 * g / (squares[name].sqrt() + 1e-6)
                continue
            squares[name] = 0.95 * squares[name] + 0.05 * g * g
            delta = -((deltas[name] + 1e-6).sqrt() / (squares[name] + 1e-6).sqrt()) * g
            deltas[name] = 0.95 * deltas[name] + 0.05 * delta * delta
            weights[name] = weights[name] + 0.5 * delta
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach().double(), weights[name], rtol=1e-4, atol=1e-6)


def test_gradient_descent_that_does_not_wait_for_the_device_is_the_same(monkeypatch):
    """Away from the CPU, gradients of a bad step are set to 0 where they are, and the step is taken."""
    outcomes = []
    for without_waiting in (False, True):
        monkeypatch.setattr(Optimizer, "_stays_without_gradient", lambda *_, yes=without_waiting: yes)
        model = network()
        optimizer = Optimizer(model, TrainConfig(optimizer="sgd", lr=0.1), CPU)
        for number, factor in enumerate((1.0, float("nan"), float("inf"), 1.0), start=1):
            optimizer.step(backward(model, number, factor), 1.0, number)
        assert int(optimizer.skipped) == 2
        outcomes.append(copy(dict(model.named_parameters())))
    assert all(torch.isfinite(tensor).all() for tensor in outcomes[1].values())
    assert_same(*outcomes)


class Bounded(nn.Sequential):
    """Rows of its first table have a norm of at most 0.5."""

    def constrain(self) -> None:
        with torch.no_grad():
            shrink_rows(self[0].weight, 0.5)


@pytest.mark.parametrize("kind", ["adamw", "muon", "sgd", "adadelta", "adagrad"])
def test_a_model_that_has_bounds_is_within_them_after_every_step(kind):
    model = Bounded(*network())
    optimizer = Optimizer(model, TrainConfig(optimizer=kind, lr=0.3, clip=0.0), CPU)
    for step in range(1, 5):
        optimizer.step(backward(model, step), 1.0, step)
        assert float(model[0].weight.detach().norm(dim=1).max()) <= 0.5 * (1 + 1e-5)
    assert float(model[0].weight.detach().norm(dim=1).max()) > 0.49  # it would go beyond


def test_a_step_that_is_not_taken_leaves_a_bounded_model_as_it_was():
    model = Bounded(*network())
    optimizer = Optimizer(model, TrainConfig(optimizer="sgd", lr=0.3, clip=0.0), CPU)
    for number, factor in enumerate((float("nan"), 1.0, float("inf")), start=1):  # at first it is beyond its bounds
        before = copy(dict(model.named_parameters()))
        optimizer.step(backward(model, number, factor), 1.0, number)
        if number != 2:
            assert_same(dict(model.named_parameters()), before)
            model.constrain()  # on other devices it is called after every step, taken or not
            assert (number == 3) == torch.equal(model[0].weight, before["0.weight"])
    assert int(optimizer.skipped) == 2


def test_adadelta_in_pieces_is_torchs_to_the_last_bit(monkeypatch):
    monkeypatch.setattr("regard.training.adadelta.PIECE", 7)  # several pieces of each matrix, the last one shorter
    ours, theirs = network(), network()
    for model in (ours, theirs):  # one that does not lie in one row
        model[3].weight = nn.Parameter(model[3].weight.detach().T.contiguous().T)
    assert not ours[3].weight.is_contiguous()
    optimizer = Optimizer(ours, TrainConfig(optimizer="adadelta", weight_decay=0.01, clip=0.0, eps=1e-6), CPU)
    groups = [
        {"params": [p for p in theirs.parameters() if p.dim() == 2], "weight_decay": 0.01},
        {"params": [p for p in theirs.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    other = torch.optim.Adadelta(groups, lr=0.5e-3, rho=0.98, eps=1e-6, foreach=False)
    for step in range(1, 5):
        loss = backward(ours, step)
        backward(theirs, step)
        optimizer.step(loss, 0.5, step)
        other.step()
        other.zero_grad()
    assert_same(dict(ours.named_parameters()), dict(theirs.named_parameters()))
    names = dict(theirs.named_parameters())
    for key, tensor in optimizer.tensors().items():
        if "/" in key:
            name, field = key.rsplit("/", 1)
            assert torch.equal(tensor, other.state[names[name]][field]), key
