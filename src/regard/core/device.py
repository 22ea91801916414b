"""Chooses where to compute: CUDA, Apple's MPS, or the CPU."""

from __future__ import annotations

import torch

from regard.core.errors import ConfigError


def choose_device(name: str = "auto") -> torch.device:
    """`auto` takes the first of CUDA, MPS and CPU that works; any other name is taken as given and checked."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError("device", f"{name!r} is not a device", "Use auto, cpu, cuda, cuda:N or mps") from None
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise ConfigError("device", f"{name!r} was asked for, but there is no such GPU here", "Use device auto or cpu")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device", "mps was asked for, but it is not available here", "Use device auto or cpu")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError("device", f"{name!r} is not supported", "Use auto, cpu, cuda, cuda:N or mps")
    return device
