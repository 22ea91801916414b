"""Which numbers to train with: bfloat16 where the machine really can, float32 elsewhere."""

from __future__ import annotations

import subprocess
import sys

import torch

from regard.core.errors import ConfigError
from regard.training.config import TrainConfig

PROBE = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); print(float((a @ a).sum()))"


def uses_bfloat16(config: TrainConfig, device: torch.device) -> bool:
    """`auto` takes bfloat16 on CUDA only. Some CPUs end the process at such a product, so they are tried in another one."""
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    if config.precision == "bfloat16" and device.type == "cpu" and not _cpu_can():
        raise ConfigError(
            "setting train.precision", "this CPU cannot multiply in bfloat16", "Use train.precision=float32 here"
        )
    return config.precision == "bfloat16"


def low_weights(config: TrainConfig, device: torch.device) -> bool:
    """Whether the weights that do the work are bfloat16, beside float32 ones that learn."""
    if config.weights == "bfloat16" and not uses_bfloat16(config, device):
        what = f"training on this {device.type.replace('cpu', 'CPU')} is in float32"
        raise ConfigError("setting train.weights", what, "Use float32, or set train.precision=bfloat16")
    return config.weights == "bfloat16"


def _cpu_can() -> bool:
    probe = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, timeout=120, check=False)
    return probe.returncode == 0
