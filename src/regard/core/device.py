"""Chooses where to compute: CUDA, Apple's MPS, or the CPU; and says whether bfloat16 can be computed there."""

from __future__ import annotations

import functools
import subprocess
import sys

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


_PROBE = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); print(float((a @ a).sum()))"


def why_no_bfloat16(device: torch.device) -> str | None:
    """Why products of bfloat16 cannot be computed on a device, in words; None where they can."""
    if device.type == "cuda":
        emulates = torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0)
        return f"{torch.cuda.get_device_name(device)} has no such products" if emulates else None
    if device.type == "cpu":
        return None if _cpu_multiplies_bfloat16() else "this CPU cannot multiply in bfloat16"
    return f"on {device.type} it was never tried"


@functools.cache
def _cpu_multiplies_bfloat16() -> bool:
    """Some CPUs end the process at such a product, so it is tried in another one."""
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, timeout=120, check=False)
    return probe.returncode == 0
