"""bfloat16 is taken where it works, and refused in words where it would end the process."""

from __future__ import annotations

import pytest
import torch

from regard.core import device as devices
from regard.core.errors import ConfigError
from regard.training import precision
from regard.training.config import TrainConfig


def test_the_cpu_trains_in_float32_unless_asked():
    assert not precision.uses_bfloat16(TrainConfig(), torch.device("cpu"))
    assert not precision.uses_bfloat16(TrainConfig(precision="float32"), torch.device("cpu"))


@pytest.fixture
def probing(monkeypatch):
    """What is run in another process to see whether the CPU can; what was found out before is forgotten, and afterwards again."""
    devices._cpu_multiplies_bfloat16.cache_clear()
    yield lambda code: monkeypatch.setattr(devices, "_PROBE", code)
    devices._cpu_multiplies_bfloat16.cache_clear()


def test_a_cpu_that_dies_of_bfloat16_is_refused(probing):
    probing("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    with pytest.raises(ConfigError, match="cannot multiply in bfloat16"):
        precision.uses_bfloat16(TrainConfig(precision="bfloat16"), torch.device("cpu"))


def test_a_cpu_that_can_may(probing):
    probing("print(1)")
    assert precision.uses_bfloat16(TrainConfig(precision="bfloat16"), torch.device("cpu"))
