"""Which of its checkpoints a run ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from regard.core.errors import CheckpointError
from regard.training.averaging import mean_of
from regard.training.checkpoint import Checkpoints
from regard.training.config import TrainConfig
from regard.training.run_progress import Progress


def final_weights(
    checkpoints: Checkpoints, config: TrainConfig, progress: Progress, warn: Callable[[str], None]
) -> dict[str, Tensor] | None:
    """The mean of the last checkpoints, or the best weights; None: those that the run has now."""
    if config.average > 1:
        return mean_of(_last(checkpoints, progress.step, config.average, warn))
    if config.select == "last" or progress.best is None:
        return None
    try:
        return checkpoints.best()
    except CheckpointError as error:
        warn(f"The best weights are damaged, the run ends with its last ones. {error}")
        return None


def _last(
    checkpoints: Checkpoints, newest: int, count: int, warn: Callable[[str], None]
) -> Iterator[dict[str, Tensor]]:
    """The weights of the last checkpoints, without damaged ones. The newest was written just now."""
    for step in checkpoints.regular(newest)[:count]:
        try:
            yield checkpoints.weights(step)
        except CheckpointError as error:
            warn(f"The checkpoint of step {step} is damaged and left out of the average. {error}")
