"""A model whose weights, gradients and optimizer state are divided among the workers (FSDP2, torch's `fully_shard`).

Between steps a worker holds its rows of every weight and no more. Within a step the layers get all of their weights when they are
reached, and give them back after. The optimizer works on a worker's own rows, as on any tensors: nothing but the norm of the
gradient needs the others. To validate, to save and to end, the whole model is put together for a while: `opened`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import CheckpointError, ConfigError
from regard.core.launcher import launched
from regard.layers.attention.multihead import CrossAttention
from regard.tasks.folder import weights_of
from regard.training.checkpoint import Checkpoints
from regard.training.config import TrainConfig
from regard.training.distributed.shard_files import save_shard
from regard.training.distributed.team import Several
from regard.training.regions import repeated_layers


class Whole(nn.Module):
    """All that a step does with a model, so that no weight is used outside of it."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        return work()


class OwnRows:
    """As much of a module as optimizer and averages ask for: this worker's rows of every weight."""

    def __init__(self, model: nn.Module):
        self._buffers, self._kept = dict(model.named_buffers()), set(model.state_dict())
        self.divided: dict[str, Any] = dict(model.named_parameters())
        self.rows: dict[str, nn.Parameter] = {
            name: nn.Parameter(p.detach().to_local(), requires_grad=p.requires_grad) for name, p in self.divided.items()
        }

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, rows) for name, rows in self.rows.items() if rows.numel())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return iter(self._buffers.items())

    def state_dict(self) -> set[str]:
        return self._kept

    def modules(self) -> Iterator[nn.Module]:
        return iter(())


class Sharded:
    """A model, divided. It is done in place: names and classes of its parts stay as they are."""

    def __init__(self, team: Several, model: nn.Module, config: TrainConfig, device: torch.device):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        _check(model, config)
        if device.type == "cuda" and launched().local_size > torch.cuda.device_count():
            what = "workers share a GPU, and only NCCL, which needs one for each, divides what is on GPUs"
            raise ConfigError("setting train.shard", what, "Start as many processes as there are GPUs")
        self.team, self.model = team, model
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        mesh = init_device_mesh(device.type, (team.size,))
        self.whole = Whole(model)
        self._parts: list[Any] = [*_called_early(model), *repeated_layers(model), self.whole]
        # keys and values are looked at in parts, and never changed in place
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        for part in self._parts:
            fully_shard(part, mesh=mesh)
        # The backward pass fetches the layer before while it works on one. Left to itself, torch goes by the forward passes that it
        # has seen, those of validation too: of these, workers have different numbers, and would wait for each other for ever.
        layers = repeated_layers(model)
        before: dict[Any, Any] = dict(zip(layers[1:], layers, strict=False))
        before[self.whole] = layers[-1] if layers else self.whole
        for part in self._parts:
            part.set_modules_to_backward_prefetch([before.get(part, part)])  # itself: it is there already
        self.own = OwnRows(model)

    def take_gradients(self, numbers: Sequence[Tensor]) -> list[Tensor]:
        """Gives this worker's rows their gradients, which are sums over all workers; and sums a few numbers beside."""
        for name, rows in self.own.rows.items():
            p = self.own.divided[name]
            # what torch gives is a mean over workers, and the loss is a sum over them
            rows.grad = None if p.grad is None or not rows.numel() else p.grad.to_local().mul_(self.team.size)
            p.grad = None
        return list(self.team.sum(torch.stack([number.detach().float() for number in numbers])).unbind())

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Of the whole gradient, of which each worker has some rows."""
        if gradients:
            own = torch.nn.utils.get_total_norm(list(gradients)).float().square()
        else:
            own = torch.zeros((), device=next(iter(self.own.rows.values())).device)
        return self.team.sum(own).sqrt()

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """While the model has all of its weights; what is done to them is forgotten after."""
        self.open()
        try:
            yield
        finally:
            for part in self._parts:
                part.set_reshard_after_forward(part is not self.whole, recurse=False)
                part.reshard()

    def open(self) -> None:
        for part in self._parts:
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        for module in self.whole.modules():  # torch's own: asking for the names of weights must not divide them again
            module._state_dict_pre_hooks.clear()

    @torch.no_grad()
    def put(self, weights: Mapping[str, Tensor], where: Path) -> None:
        """Takes this worker's rows of whole weights, and all that is not divided."""
        for name, tensor in weights.items():
            if name in self.own.rows:
                if tensor.shape != self.shapes[name]:
                    what = f"tensor {name!r} has shape {list(tensor.shape)}, not {list(self.shapes[name])}"
                    raise CheckpointError(where, what, "Use the run's own checkpoint")
                self.own.rows[name].copy_(self.rows_of(name, tensor))
            else:
                dict(self.own.named_buffers())[name].copy_(tensor)

    def save(
        self,
        checkpoints: Checkpoints,
        step: int,
        optimizer: Mapping[str, Tensor],
        average: Mapping[str, Tensor] | None,
        carried: Mapping[str, Tensor] | None,
        state: Mapping[str, Any],
    ) -> None:
        """A checkpoint: the leader writes the whole weights, and every worker its rows of all else."""
        team = self.team
        if average is not None and not team.leads:  # what is not divided, the leader writes
            average = {name: rows for name, rows in average.items() if name in self.shapes}

        def write(folder: Path | None = None) -> None:
            place = Path(team.tell(str(folder)))
            save_shard(place, team.rank, team.size, {"optimizer": optimizer, "average": average})
            team.add([0])  # until all have written

        with self.opened():
            if team.leads:
                checkpoints.save_divided(
                    step, weights=weights_of(self.model), carried=carried, state=state, shards=write
                )
            else:
                write()

    def rows_of(self, name: str, tensor: Tensor) -> Tensor:
        """This worker's rows of a tensor that is as large as a weight."""
        each = -(-self.shapes[name][0] // self.team.size)
        return tensor[each * self.team.rank : each * (self.team.rank + 1)]

    def own_state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This worker's part of an optimizer's whole state, or of averages."""
        found = {}
        for key, tensor in tensors.items():
            name = key if key in self.shapes else key.rpartition("/")[0]
            if tensor.dim() == 0 or name not in self.shapes:
                found[key] = tensor
            elif (rows := self.rows_of(name, tensor)).numel():
                found[key] = rows.clone()
        return found


def _called_early(model: nn.Module) -> list[nn.Module]:
    """Parts of layers that are called before their layer is: keys and values of what a decoder looks at."""
    return [module.key_value for module in model.modules() if isinstance(module, CrossAttention)]


def _check(model: nn.Module, config: TrainConfig) -> None:
    """Refuses what cannot be divided."""
    setting = "setting train.shard"
    if config.optimizer == "muon":
        raise ConfigError(setting, "muon needs whole matrices", "Use train.optimizer=adamw")
    if config.weights != "float32":
        raise ConfigError(setting, "the copy in lower precision is not divided", "Use train.weights=float32")
    if hasattr(model, "constrain"):
        raise ConfigError(setting, "the model's weights have bounds over whole matrices", "Use train.shard=false")
    if scalar := next((name for name, p in model.named_parameters() if p.dim() == 0), None):
        raise ConfigError(setting, f"the weight {scalar} is a single number", "Use train.shard=false")
