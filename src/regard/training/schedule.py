"""Learning-rate schedules: pure functions of the step, so that nothing of them needs saving."""

from __future__ import annotations

import math

from regard.training.config import TrainConfig


def rate(config: TrainConfig, step: int) -> float:
    """The part of the peak learning rate at a step (from 1): linear warm-up, then the schedule's decay.

    `inverse_sqrt` is the Transformer paper's (Noam) schedule: its d^-0.5 · min(t^-0.5, t · w^-1.5) is this one with
    lr = (d · w)^-0.5. `cosine` and `linear` reach `final_lr` at the last step; `steps` goes down in
    stairs from step `hold` + 1 on.
    """
    if step <= config.warmup:
        return step / config.warmup
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "steps":
        return config.decay ** max(0, -(-(step - config.hold) // config.decay_every))
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(1, config.warmup) / step)
    progress = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
    left = 1 - progress if config.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.final_lr + (1 - config.final_lr) * left
