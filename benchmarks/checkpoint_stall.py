"""How much longer training takes because it saves checkpoints: in the background, and as it was, waiting for the disk.

    python benchmarks/checkpoint_stall.py                       # a small Transformer on the CPU
    python benchmarks/checkpoint_stall.py --device cuda --big   # the base Transformer on a GPU

Three kinds of run of equally many steps take turns: without checkpoints, with them in the background, and waiting. What they
cost is the difference to the run without, for each interval, in which there are two; its part of the time is that of the default.
By the clock, other work on the machine shows; beside it stand the time of the processor (of all threads, the one that writes
included) and how long a call of `save` held training up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from regard.data.store import TokenRows, TokenStore
from regard.models.base import build_model
from regard.models.transformer import TransformerConfig
from regard.training.background_saves import BackgroundSaves
from regard.training.config import TrainConfig
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.texts import PairText

DEFAULT = TrainConfig().save_every


class Cost(NamedTuple):
    """Of a step: seconds by the clock and of the processor; of an interval: seconds that training stood still in `save`."""

    clock: float
    processor: float
    held: float


class Waiting(BackgroundSaves):
    """Checkpoints for which training waits."""

    def save(self, step: int, **content) -> None:
        super().save(step, **content)
        self.settle()


def text(vocabulary: int) -> PairText:
    draw = np.random.default_rng(0)
    sides = [TokenRows.from_lists([draw.integers(4, vocabulary, 31).tolist() for _ in range(2048)]) for _ in range(2)]
    return PairText(TokenStore(*sides, np.arange(2048)))


def cost(arguments: argparse.Namespace, folder: Path, saves: type[BackgroundSaves] | None) -> Cost:
    """Of a run's steps, after a few to warm up; all of what it writes is on the disk at the end."""
    torch.manual_seed(0)
    size = {"width": 512, "layers": 6, "heads": 8} if arguments.big else {"width": 256, "layers": 3, "heads": 4}
    vocabulary = 32_000 if arguments.big else 8_000
    model = build_model(
        "transformer",
        TransformerConfig(**size),
        source_vocabulary=vocabulary,
        target_vocabulary=vocabulary,
        shared=True,
    )
    warm = 30 if arguments.device == "cuda" else 2
    steps = arguments.saves * arguments.every
    config = TrainConfig(
        steps=warm + steps,
        save_every=arguments.every if saves else 10**9,
        batch_tokens=arguments.batch_tokens,
        log_every=10**9,
    )
    trainer = Trainer(
        model, text(vocabulary), None, config, folder, torch.device(arguments.device), Reporter(quiet=True)
    )
    if saves is not None:
        trainer.saves = saves(trainer.checkpoints)
    times: list[tuple[float, float]] = []
    held: list[float] = []

    def timed(*given: object) -> None:
        if trainer.progress.step in (warm, warm + steps - 1):
            if arguments.device == "cuda":
                torch.cuda.synchronize()
            times.append((time.monotonic(), time.process_time()))
        step(*given)

    def watched(*given: object, **named: object) -> None:
        began = time.monotonic()
        save(*given, **named)
        held.append(time.monotonic() - began)

    save, trainer.saves.save = trainer.saves.save, watched

    step, trainer._step = trainer._step, timed
    trainer.run()
    arguments.megabytes = sum(p.numel() * 4 * 3 for p in model.parameters()) / 1e6
    clock, processor = ((after - before) / (steps - 1) for before, after in zip(*times, strict=True))
    return Cost(clock, processor, sum(held) / arguments.saves)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--every", type=int, default=DEFAULT, help="steps between checkpoints of the measured runs")
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    kinds = {"without": None, "in the background": BackgroundSaves, "waiting": Waiting}
    found: dict[str, list[Cost]] = {name: [] for name in kinds}
    for _ in range(arguments.rounds):
        for name, saves in kinds.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(cost(arguments, Path(folder), saves))
    plain = Cost(*(statistics.median(values) for values in zip(*found["without"], strict=True)))
    print(f"torch {torch.__version__}, {arguments.device}, {torch.get_num_threads()} threads, checkpoints of about "
          f"{arguments.megabytes:.0f} MB twice in {arguments.every} steps of {plain.clock * 1000:.0f} ms "
          f"({plain.processor * 1000:.0f} ms of the processor)")  # fmt: skip
    for name in ("in the background", "waiting"):
        median = Cost(*(statistics.median(values) for values in zip(*found[name], strict=True)))
        clock, processor = ((median[i] - plain[i]) * arguments.every for i in range(2))
        print(f"{name}: an interval costs {clock:.2f} s ({clock / (DEFAULT * plain.clock):.2%} at train.save_every={DEFAULT}), "
              f"{processor:.2f} s of the processor ({processor / (DEFAULT * plain.processor):.2%}); "
              f"`save` took {median.held:.2f} s ({median.held / (DEFAULT * plain.clock):.2%})")  # fmt: skip
    sys.stdout.flush()


if __name__ == "__main__":
    main()
