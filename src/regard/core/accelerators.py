"""Whether this machine may have something faster than its processors, found out without torch, which takes seconds to import."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

NONE = ("", "-1")  # of CUDA_VISIBLE_DEVICES: nothing is visible
SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd", "/proc/driver/nvidia/version")


def may_have_accelerator() -> bool:
    """False only where torch would find neither CUDA nor MPS: who hears True has to ask torch."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in NONE:
        return False
    if os.name == "nt":
        return (Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "nvcuda.dll").exists()
    return any(os.path.exists(sign) for sign in SIGNS)


def is_cpu(device: str) -> bool:
    """Whether `device`, as a user names it, is sure to be the CPU."""
    return device == "cpu" or (device == "auto" and not may_have_accelerator())
