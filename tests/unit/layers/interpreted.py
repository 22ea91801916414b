"""Kernels in Triton's interpreter, which has to be chosen before Triton is imported: scripts of cases in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def interpreted(script: str) -> str:
    """What a script beside this file says; its error, where it says nothing."""
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / script],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("Triton's interpreter does not get on with this numpy")
    return done.stdout.strip() or done.stderr
