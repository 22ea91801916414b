"""Candidates from logits, of which only those are normalised: as from log-probabilities."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from test_replay import make, same, texts
from torch import Tensor

from regard.core.types import BOS, PAD, UNK, pad_rows
from regard.search import SearchConfig, fused_scores, search
from regard.search.ranking import GROUP, best, largest

torch.set_num_threads(1)
INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"


def plainly(logits: Tensor, banned: Tensor, unknown: bool) -> tuple[Tensor, Tensor]:
    """What the kernel does, by torch's own operations."""
    norm = logits.float().logsumexp(-1, keepdim=True)
    logits.scatter_(1, banned, -torch.inf)
    logits[:, [PAD, BOS, UNK] if unknown else [PAD, BOS]] = -torch.inf
    groups = logits.shape[1] // GROUP
    return norm, logits[:, : groups * GROUP].unflatten(-1, (groups, GROUP)).amax(-1)


@pytest.mark.parametrize("settings", [{"ban_unknown": False}, {"min_length": 5}, {"max_repeat": 1, "min_length": 3}])
@pytest.mark.parametrize(("name", "beam"), [("lstmlm", 1), ("convs2s", 3)])
def test_the_same_is_found(monkeypatch: pytest.MonkeyPatch, name: str, beam: int, settings: dict) -> None:
    model, source = make(name), pad_rows(texts(4, 1))
    limits = {"max_ratio": 1.0, "max_extra": 6, "max_length": 12}
    config = SearchConfig(beam=beam, nbest=beam, **limits, **settings)
    prompts = [[5, 6], [7], [], [8, 9, 4]]
    expected = search(model, source, config, prompts)
    asked: list[int] = []

    def counted(logits: Tensor, banned: Tensor, unknown: bool) -> tuple[Tensor, Tensor]:
        asked.append(len(logits))
        return plainly(logits, banned, unknown)

    monkeypatch.setattr(fused_scores, "usable", lambda device: True)
    monkeypatch.setattr(fused_scores, "normalise_and_ban", counted)
    same(search(model, source, config, prompts), expected)
    assert asked
    asked.clear()
    for other in (dataclasses.replace(config, no_repeat_ngram=2), SearchConfig(method="sample", nbest=2, **limits)):
        search(model, source, other)
    assert not asked  # these need more than a few candidates


@pytest.mark.parametrize("count", [1, 2, 10])
@pytest.mark.parametrize("width", [6000, 6050])
def test_groups_rank_as_the_whole_row_does(count: int, width: int) -> None:
    generator = torch.Generator().manual_seed(count)
    values = torch.randn((5, width), generator=generator).mul(4).round()  # with many ties
    values[:, ::7] = -torch.inf
    values[0, 3::GROUP] = 50.0 + torch.arange(len(values[0, 3::GROUP])) % 60  # one large value in every group
    values[1, -3:] = torch.tensor([60.0, 70.0, 65.0])  # in the rest
    top, index = best(values, count)
    for row in range(5):
        expected = sorted(range(width), key=lambda i: (-float(values[row, i]), i))[:count]
        assert top[row].tolist() == values[row, expected].tolist()
        if float((values[row] == top[row, -1]).sum()) <= 8:
            assert index[row].tolist() == expected
    maxima = values[:, : width // GROUP * GROUP].unflatten(-1, (-1, GROUP)).amax(-1)
    assert all(
        torch.equal(one, two) for one, two in zip(largest(values, count), largest(values, count, maxima), strict=True)
    )


def test_a_cpu_has_no_kernel() -> None:
    assert not fused_scores.usable("cpu")


INTERPRETED = """
import torch
from regard.search import fused_scores
torch.manual_seed(0)
for vocabulary in (64, 500, 5000):
    for unknown in (False, True):
        logits = torch.randn(3, vocabulary)
        banned = torch.tensor([[0, 5], [3, vocabulary - 1], [7, 0]])
        norm = logits.logsumexp(-1, keepdim=True)
        left = logits.scatter(1, banned, -torch.inf)
        left[:, [0, 1, 3] if unknown else [0, 1]] = -torch.inf
        groups = left[:, : vocabulary // 64 * 64].unflatten(-1, (-1, 64)).amax(-1)
        found, maxima = fused_scores.normalise_and_ban(logits, banned, unknown)
        torch.testing.assert_close(found, norm)
        assert torch.equal(maxima, groups) and torch.equal(logits, left)
"""


@pytest.mark.skipif(fused_scores.triton is None, reason="needs Triton")
def test_the_kernel_in_triton_s_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", INTERPRETED], check=True, env=environment, timeout=120)


@pytest.mark.skipif(fused_scores.triton is None or INTERPRETING, reason="needs Triton's compiler")
def test_the_kernel_compiles_for_a_gpu() -> None:
    """Under the shape checks of tests, too, which wrap functions."""
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
    from triton.compiler import ASTSource, compile  # pyright: ignore[reportMissingImports]

    kernel: Any = fused_scores._normalise_and_ban
    sizes = {"VOCABULARY": 32_001, "UNKNOWN": 3, "FIRST": 2, "BANNED": 5, "GROUPS": 64, "WIDTH": 64}
    types = {"logits": "*bf16", "banned": "*i64", "norm": "*fp32", "maxima": "*bf16"} | dict.fromkeys(
        sizes, "constexpr"
    )
    source = ASTSource(kernel, types, {(kernel.arg_names.index(name),): size for name, size in sizes.items()})
    assert compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["cubin"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_kernel_on_a_gpu() -> None:
    assert fused_scores.usable("cuda") == (fused_scores.triton is not None)


def test_a_kernel_that_does_not_run_is_left_out_with_one_warning(monkeypatch, caplog) -> None:
    def fails(device):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(fused_scores, "triton", object())
    monkeypatch.setattr(fused_scores, "_is_right", fails)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    fused_scores.usable.cache_clear()
    try:
        assert not fused_scores.usable("cuda")
        assert not fused_scores.usable("cuda")
    finally:
        fused_scores.usable.cache_clear()
    (record,) = caplog.records
    assert "no compiler" in record.getMessage()
