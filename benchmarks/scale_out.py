"""How training grows with the number of processes: measured here, and a model of what many GPUs would do.

    python benchmarks/scale_out.py [--recipe demo] [--steps 60] [--processes 1,2] [--rounds 3]
    python benchmarks/scale_out.py --sending    # two processes: gradients sent during the backward pass, or after it
    python benchmarks/scale_out.py --model

Measured: `torchrun -m regard train` with as many processes, one thread each, on the bundled text; the batch and all that is learnt
are the same for any number. Rounds are taken in turns. Tokens per second are the median of what the log says, without the first
lines. Beside the clock there are the processor's seconds for each thousand tokens, of all processes together, starting included:
these are steadier where the machine is busy with something else.

The model (--model) is arithmetic, and its assumptions stand in `Machine`: see docs/scale.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIRST_LINES = 2  # of a log: they count starting, too
HELD = "--held-until-the-end"


@dataclasses.dataclass(frozen=True)
class Machine:
    """What is assumed of GPUs and of the wires between them."""

    flops: float = 2e14  # that a GPU really does a second while it trains, in bfloat16
    near: float = 4.5e11  # bytes a second and direction between GPUs of one machine (NVLink)
    far: float = 5e10  # and between machines, for each GPU (400 Gbit/s)
    delay: float = 3e-6  # seconds of one message from neighbour to neighbour
    per_machine: int = 8
    piece: int = 32 << 20  # bytes that are sent at once


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    parameters: float
    tokens: int  # of a worker in a step, padding left out
    batches: int = 1  # train.accumulate: with more than one, gradients are sent when all are through


JOBS = (
    Job("Transformer base, 25,000 tokens a worker", 65e6, 25_000),
    Job("Transformer base, 100,000 tokens a worker (accumulate=4)", 65e6, 100_000, 4),
    Job("GPT of 1.3 billion weights, 16,000 tokens a worker", 1.3e9, 16_000),
)


def sent(parameters: float, workers: int, divided: bool = False) -> float:
    """Bytes that a worker sends in a step: float32 gradients by ring all-reduce, or (train.shard) weights twice and gradients."""
    return (3 if divided else 2) * (workers - 1) / workers * 4 * parameters


def seconds(job: Job, workers: int, machine: Machine = Machine(), divided: bool = False) -> tuple[float, float]:
    """Of computing and of sending, in a step."""
    computing = 6 * job.parameters * job.tokens / machine.flops
    if workers == 1:
        return computing, 0.0
    width = machine.near if workers <= machine.per_machine else machine.far
    messages = math.ceil(4 * job.parameters / machine.piece)
    return computing, sent(job.parameters, workers, divided) / width + messages * 2 * (workers - 1) * machine.delay


def efficiency(job: Job, workers: int, machine: Machine = Machine(), divided: bool = False) -> float:
    """Tokens a second of so many workers, as a part of as many times one worker's.

    All pieces but the last (the first layers' gradients) may travel during the last backward pass, two thirds of a batch's time.
    """
    computing, sending = seconds(job, workers, machine, divided)
    pieces = math.ceil(4 * job.parameters / machine.piece)
    hidden = min(sending * (pieces - 1) / pieces, computing * 2 / 3) if job.batches == 1 else 0.0
    return computing / (computing + sending - hidden)


def table() -> str:
    rows = ["| job | MB sent a step (512) | 8 GPUs | 64 | 512 |", "|---|---|---|---|---|"]
    for job in JOBS:
        parts = " | ".join(f"{efficiency(job, workers):.0%}" for workers in (8, 64, 512))
        rows.append(f"| {job.name} | {sent(job.parameters, 512) / 1e6:,.0f} | {parts} |")
    return "\n".join(rows)


def train(recipe: str, processes: int, steps: int, folder: Path, held: bool = False) -> dict[str, float]:
    """One run: tokens a second, and processor seconds for a thousand tokens. `held`: nothing is sent before the pass is through."""
    run = folder / f"run-{processes}-{time.monotonic_ns()}"
    settings = [f"train.steps={steps}", f"train.save_every={steps}", "train.log_every=5", "train.threads=1"]
    settings += ["train.device=cpu", "data.valid_size=8", "data.test_size=8"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [
            sys.executable,
            *launcher,
            *([__file__, HELD] if held else ["-m", "regard"]),
            "train",
            recipe,
            "--out",
            str(run),
            "--quiet",
            *settings,
        ],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    speeds = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row][FIRST_LINES:]
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"tokens_per_second": statistics.median(speeds), "processor_seconds": used, "nll": rows[-2].get("nll", 0.0)}


def work_held() -> None:
    """A worker that sends its gradients when all are there."""
    from regard.cli.main import run
    from regard.training.distributed.gradient_sums import GradientSums

    GradientSums.begin = lambda sums: None
    sys.argv.remove(HELD)
    run()


def compare_sending(recipe: str, steps: int, rounds: int) -> None:
    """Two processes, in turns: as it is, and held."""
    found: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="scale-out-") as folder:
        for _ in range(rounds):
            for held, speeds in found.items():
                speeds.append(train(recipe, 2, steps, Path(folder), held)["tokens_per_second"])
                print(
                    json.dumps({"held": held, "tokens_per_second": speeds[-1], "load": os.getloadavg()[0]}), flush=True
                )
    during, after = (statistics.median(found[held]) for held in (False, True))
    print(f"during the backward pass {during:,.0f} tokens a second, after it {after:,.0f}: {during / after:.2f} times")


def main() -> None:
    if HELD in sys.argv:
        return work_held()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--sending", action="store_true")
    given = parser.parse_args()
    if given.model:
        print(table())
        return
    if given.sending:
        return compare_sending(given.recipe, given.steps, given.rounds)
    import torch

    counts = [int(count) for count in given.processes.split(",")]
    found: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    with tempfile.TemporaryDirectory(prefix="scale-out-") as folder:
        for number in range(given.rounds):
            for count in counts:
                one = train(given.recipe, count, given.steps, Path(folder))
                found[count].append(one)
                print(json.dumps({"round": number, "processes": count, **one, "load": os.getloadavg()[0]}), flush=True)
    single = statistics.median(row["tokens_per_second"] for row in found[counts[0]])
    print(f"\n{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, recipe {given.recipe}")
    print("| processes | tokens a second | as a multiple | processor seconds of the run |")
    print("|---|---|---|---|")
    for count, rows in found.items():
        speed = statistics.median(row["tokens_per_second"] for row in rows)
        used = statistics.median(row["processor_seconds"] for row in rows)
        print(f"| {count} | {speed:,.0f} | {speed / single:.2f} | {used:.1f} |")


if __name__ == "__main__":
    main()
