"""Which numbers to train with: bfloat16 where the machine really can, float32 elsewhere."""

from __future__ import annotations

import torch

from regard.core.device import why_no_bfloat16
from regard.core.errors import ConfigError
from regard.training.config import TrainConfig


def uses_bfloat16(config: TrainConfig, device: torch.device) -> bool:
    """`auto` takes bfloat16 on CUDA only."""
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    if config.precision == "bfloat16" and device.type == "cpu" and (reason := why_no_bfloat16(device)) is not None:
        raise ConfigError("setting train.precision", reason, "Use train.precision=float32 here")
    return config.precision == "bfloat16"


def low_weights(config: TrainConfig, device: torch.device) -> bool:
    """Whether the weights that do the work are bfloat16, beside float32 ones that learn."""
    if config.weights == "bfloat16" and not uses_bfloat16(config, device):
        what = f"training on this {device.type.replace('cpu', 'CPU')} is in float32"
        raise ConfigError("setting train.weights", what, "Use float32, or set train.precision=bfloat16")
    return config.weights == "bfloat16"
