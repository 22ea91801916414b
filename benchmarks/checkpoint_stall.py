"""How much longer training takes because it saves checkpoints: in the background, and as it was, waiting for the disk.

    python benchmarks/checkpoint_stall.py                       # a small Transformer on the CPU
    python benchmarks/checkpoint_stall.py --device cuda --big   # the base Transformer on a GPU

Three kinds of run of equally many steps take turns: without checkpoints, with them in the background, and waiting. What a
checkpoint costs is the difference to the run without, for each checkpoint; its part of the time is that of the default interval.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

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


class Waiting(BackgroundSaves):
    """Checkpoints for which training waits."""

    def save(self, step: int, **content) -> None:
        super().save(step, **content)
        self.settle()


def text(vocabulary: int) -> PairText:
    draw = np.random.default_rng(0)
    sides = [TokenRows.from_lists([draw.integers(4, vocabulary, 31).tolist() for _ in range(2048)]) for _ in range(2)]
    return PairText(TokenStore(*sides, np.arange(2048)))


def seconds(arguments: argparse.Namespace, folder: Path, saves: type[BackgroundSaves] | None) -> float:
    """The time of a run's steps, after a few to warm up; all of what it writes is on the disk at the end."""
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
    times = []

    def timed(*given: object) -> None:
        if trainer.progress.step in (warm, warm + steps - 1):
            if arguments.device == "cuda":
                torch.cuda.synchronize()
            times.append(time.monotonic())
        step(*given)

    step, trainer._step = trainer._step, timed
    trainer.run()
    arguments.megabytes = sum(p.numel() * 4 * 3 for p in model.parameters()) / 1e6
    return (times[1] - times[0]) / (steps - 1)


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
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(arguments.rounds):
        for name, saves in kinds.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(seconds(arguments, Path(folder), saves))
    plain = statistics.median(found["without"])
    print(f"torch {torch.__version__}, {arguments.device}, {torch.get_num_threads()} threads, a checkpoint of about "
          f"{arguments.megabytes:.0f} MB every {arguments.every} steps of {plain * 1000:.1f} ms")  # fmt: skip
    for name in ("in the background", "waiting"):
        each = (statistics.median(found[name]) - plain) * arguments.every
        part = each / (DEFAULT * plain)
        spread = ", ".join(f"{(value - plain) * arguments.every:.3f}" for value in found[name])
        print(
            f"{name}: {each:.3f} s for each checkpoint ({spread}), {part:.2%} of the time at train.save_every={DEFAULT}"
        )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
