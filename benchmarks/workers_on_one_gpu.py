"""What several workers do, as far as one GPU shows it: NCCL in a team of one, and two processes that share the GPU.

    python benchmarks/workers_on_one_gpu.py [--steps 60] [--device cuda]

A team of one goes through all that a team of many does (NCCL's sums of gradients, weights divided by FSDP2, sharded checkpoints,
going on from them), but for waiting for others. Two processes under torchrun share the GPU; NCCL refuses that, so they send by
gloo. Each line says how far the losses are from those of a plain run, as a part of them, at worst. Recipe `demo` (no dropout), in
float32 with kernels that add up in order, so that the plain run twice is the same run. With --device cpu, the team uses gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist

from regard.training.distributed.joining import backend_for
from regard.training.distributed.team import Several, as_member
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.run import resume, train


class OneOfOne(Several):
    """A team that works as if there were others."""

    several = property(lambda self: True)


def settings(given: argparse.Namespace, *more: str) -> list[str]:
    half = given.steps // 2
    return [
        f"train.steps={given.steps}", f"train.save_every={half}", "train.log_every=5", f"train.device={given.device}",
        "train.precision=float32", "train.deterministic=true", "train.batch_tokens=4000", "data.max_pairs=8000",
        "data.valid_size=100", "data.test_size=10", "train.select=last", "train.packed=false", *more,
    ]  # fmt: skip


def curve(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row[name] for row in rows for name in ("nll", "gradient_norm", "valid_nll") if name in row]


def said(name: str, work: Callable[[], Path], plain: list[float]) -> None:
    try:
        found = curve(work())
        far = max(abs(one - other) / abs(other) for one, other in zip(found, plain, strict=True))
        print(f"{name}: {len(found)} numbers of the log, at most {far:.1e} away", flush=True)
    except Exception as error:
        print(f"{name}: FAILED with {type(error).__name__}: {' '.join(str(error).split())[:600]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="workers-"))

    def alone(name: str, *more: str) -> Path:
        return train("demo", out=place / name, settings=settings(given, *more), report=Reporter(quiet=True)).folder

    def gone_on(name: str, *more: str) -> Path:
        """Stopped by a signal in the middle, and gone on with."""
        step, at = Trainer._step, given.steps * 2 // 3

        def stopping(trainer: Trainer, *drawn: object) -> None:
            step(trainer, *drawn)  # type: ignore[arg-type]
            if trainer.progress.step == at:
                signal.raise_signal(signal.SIGTERM)

        Trainer._step = stopping  # type: ignore[method-assign]
        try:
            alone(name, *more)
        finally:
            Trainer._step = step  # type: ignore[method-assign]
        shards = [path.name for path in (place / name).glob("checkpoints/step-*/shard-*")]
        print(f"  stopped after {at} steps; files of shards: {shards[:1] or 'none'}")
        return resume(place / name, Reporter(quiet=True)).folder

    def under_torchrun(name: str, *more: str) -> Path:
        launcher = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "-m",
            "regard",
            "train",
            "demo",
        ]
        command = [sys.executable, *launcher, "--out", str(place / name), "--quiet", *settings(given, *more)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=240)
        if done.returncode:
            raise RuntimeError(done.stderr[-600:])
        return place / name

    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if given.device == 'cuda' else 'CPU'}", flush=True)
    plain = curve(alone("plain"))
    said("the plain run again", lambda: alone("again"), plain)
    said("two processes on one device, gloo", lambda: under_torchrun("two"), plain)
    if given.device == "cpu":  # on GPUs, NCCL alone divides weights
        name = "two processes on one device, gloo, train.shard=true"
        said(name, lambda: under_torchrun("divided", "train.shard=true"), plain)
    store = dist.HashStore()
    backend = backend_for(1)
    dist.init_process_group(backend, store=dist.PrefixStore("groups", store), rank=0, world_size=1)
    with as_member(OneOfOne(0, 1, dist.PrefixStore("team", store))):
        said(f"a team of one, {backend}", lambda: alone("team"), plain)
        said(f"a team of one, {backend}, gone on", lambda: gone_on("team-gone-on"), plain)
        said(f"a team of one, {backend}, train.shard=true", lambda: alone("shard", "train.shard=true"), plain)
        said(f"a team of one, {backend}, train.shard=true, gone on",
             lambda: gone_on("shard-gone-on", "train.shard=true"), plain)  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
