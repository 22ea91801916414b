"""The optimizer over parameter groups: a step that refuses non-finite gradients, and its state as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from regard.core.errors import CheckpointError
from regard.training.adadelta import PiecewiseAdadelta
from regard.training.config import TrainConfig
from regard.training.muon import Muon

COUNTERS = ("skipped", "in_a_row", "last_bad")


class Optimizer:
    """One or two torch optimizers that share a schedule. Weight decay is for matrices only.

    A model whose weights must stay within bounds has a method `constrain`, which brings them back after each step. What is
    within bounds already, it leaves as it is to the last bit.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, device: torch.device, record: bool = False):
        """With `record`, all that changes from step to step is in tensors, where the kind of optimizer allows: see `recordable`."""
        self.norm: Callable[[list[Tensor]], Tensor] = torch.nn.utils.get_total_norm  # of all gradients
        self.config, self.device = config, device
        self.recordable = record and config.optimizer in ("adam", "adamw", "muon")
        self.constrain: Callable[[], None] | None = getattr(model, "constrain", None)
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        linear = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
        muon_names = (
            {name for name, p in self.named.items() if id(p) in linear} if config.optimizer == "muon" else set()
        )
        rest = {name: p for name, p in self.named.items() if name not in muon_names}
        groups = [
            {"params": [p for p in rest.values() if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in rest.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        main = _main(groups, config, device, self.recordable)
        self.parts: list[tuple[torch.optim.Optimizer, float]] = [(main, config.lr)]
        if muon_names:
            matrices = [self.named[name] for name in self.named if name in muon_names]
            rate = torch.tensor(config.matrix_lr, device=device) if self.recordable else config.matrix_lr
            packed = {id(weight): heights for module in model.modules() for weight, heights in _packed(module)}
            muon = Muon(matrices, lr=rate, weight_decay=config.weight_decay, packed=packed)
            self.parts.append((muon, config.matrix_lr))
        # counted where the loss is, read when the log is written: no waiting for the device at every step
        self.skipped = torch.zeros((), dtype=torch.long, device=device)
        self.in_a_row = torch.zeros((), dtype=torch.long, device=device)
        self.last_bad = torch.zeros((), dtype=torch.long, device=device)
        self.number = torch.zeros((), dtype=torch.long, device=device)

    def step(self, loss: Tensor, part_of_peak: float, number: int) -> Tensor:
        """Clips and applies the gradients, unless loss or gradients are not finite: then the weights stay as they are."""
        self.prepare(part_of_peak, number)
        return self.apply(loss)

    def prepare(self, part_of_peak: float, number: int) -> None:
        """Before a step: its learning rate and its number. The rest of it, `apply`, is the same for every step."""
        self.number.fill_(number)
        for optimizer, peak in self.parts:
            for group in optimizer.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(peak * part_of_peak)
                else:
                    group["lr"] = peak * part_of_peak

    def apply(self, loss: Tensor) -> Tensor:
        """A prepared step: gives the norm of the gradient. Where the optimizer is `recordable`, the host decides nothing in it."""
        gradients = [p.grad for p in self.named.values() if p.grad is not None]
        norm = self.norm(gradients)
        bad = ~torch.isfinite(norm + loss.detach())
        if self.config.clip:
            scale = (self.config.clip / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(gradients, scale)  # type: ignore[attr-defined]
        self.skipped += bad
        self.in_a_row.copy_((self.in_a_row + 1) * bad)
        self.last_bad.copy_(torch.where(bad, self.number, self.last_bad))
        for optimizer, _ in self.parts:
            if self._skips_on_device(optimizer):
                optimizer.grad_scale = None  # type: ignore[attr-defined]
                optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
                optimizer.step()
            elif self._stays_without_gradient(optimizer):
                for gradient in gradients:
                    gradient.masked_fill_(bad, 0.0)
                optimizer.step()
            elif not bool(bad):
                optimizer.step()
        # once more after a skipped step changes nothing: no waiting to know, except where it costs nothing
        if self.constrain is not None and (self.recordable or self.device.type != "cpu" or not bool(bad)):
            self.constrain()
        for p in self.named.values():
            p.grad = None
        return norm

    def _skips_on_device(self, optimizer: torch.optim.Optimizer) -> bool:
        """Fused Adam on CUDA skips by itself, as under gradient scaling, and so does Muon: the host need not wait to know."""
        return (self.device.type == "cuda" or self.recordable) and isinstance(optimizer, torch.optim.Adam | Muon)

    def _stays_without_gradient(self, optimizer: torch.optim.Optimizer) -> bool:
        """Plain gradient descent stays where it is if gradients are 0: no waiting either."""
        plain = isinstance(optimizer, torch.optim.SGD) and not self.config.weight_decay
        return plain and self.device.type != "cpu"

    def tensors(self) -> dict[str, Tensor]:
        """The optimizer's state by parameter name, and the skip counters."""
        names = {id(p): name for name, p in self.named.items()}
        result: dict[str, Tensor] = {name: getattr(self, name) for name in COUNTERS}
        for optimizer, _ in self.parts:
            for p, state in optimizer.state.items():
                for key, value in state.items():
                    if value is not None:
                        result[f"{names[id(p)]}/{key}"] = torch.as_tensor(value)
        return result

    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        try:
            for name in COUNTERS:
                getattr(self, name).copy_(tensors[name])
            by_name: dict[str, dict[str, Tensor]] = {}
            for key, value in tensors.items():
                if "/" in key:
                    name, field = key.rsplit("/", 1)
                    by_name.setdefault(name, {})[field] = value
            for optimizer, _ in self.parts:
                for group in optimizer.param_groups:
                    for p in group["params"]:
                        name = next(n for n, q in self.named.items() if q is p)
                        if name in by_name:
                            state = {k: v.clone() if v.dim() == 0 else v.to(p.device) for k, v in by_name[name].items()}
                            for value in state.values():
                                if value.dim() and value.shape != p.shape:
                                    raise KeyError(name)
                            if optimizer.defaults.get("fused"):
                                state["step"] = state["step"].to(p.device)
                            optimizer.state[p] = state
        except KeyError as error:
            raise CheckpointError(
                where, f"the optimizer state does not fit the model ({error})", "Use the run's own checkpoint"
            ) from None


def _packed(module: nn.Module) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Weights of a module that are several matrices below each other, for the sake of a single product, with their heights."""
    return module.packed() if hasattr(module, "packed") else []  # type: ignore[operator]


def _main(
    groups: list[dict], config: TrainConfig, device: torch.device, recordable: bool = False
) -> torch.optim.Optimizer:
    """All but Muon, whose matrices go beside AdamW."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.lr)
    if config.optimizer == "adadelta":
        adadelta = PiecewiseAdadelta if device.type == "cpu" else torch.optim.Adadelta
        return adadelta(groups, lr=config.lr, rho=config.beta2, eps=config.eps)
    if config.optimizer == "adagrad":
        return torch.optim.Adagrad(groups, lr=config.lr, eps=config.eps, fused=device.type == "cpu")
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    fused = device.type in ("cpu", "cuda")
    betas = (config.beta1, config.beta2)
    if not recordable:
        return kind(groups, lr=config.lr, betas=betas, eps=config.eps, fused=fused)
    groups = [{**group, "lr": torch.tensor(config.lr, device=device)} for group in groups]  # one of its own for each
    cuda = device.type == "cuda"
    optimizer = kind(groups, lr=config.lr, betas=betas, eps=config.eps, fused=fused, capturable=cuda)
    optimizer._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]  # first steps are not recorded
    return optimizer
