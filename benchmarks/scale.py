"""How cost grows: tokens a second and memory of training and decoding, as one size of a Transformer at a time is changed.

    python benchmarks/scale.py --out scale.jsonl --plot scale.png
    python benchmarks/scale.py --device cpu --width 32 --inner 64 --heads 2 --layers 1 --rows 4 --length 8 --vocabulary 100
        --widths 16,32 --lengths 4,8 --batches 1,4 --vocabularies 50,100 --seconds 0.2 --out s.jsonl --plot s.png

Around the base shape (width 512, inner 2048, 8 heads, 6+6 layers, batches of 512 x 32 tokens, vocabulary 32,000) the width, the
length, the batch and the vocabulary are swept, each alone. The inner width stays four times the width and a head as wide as it
is; with the length the rows change so that a batch keeps its tokens (but for --fixed-rows). Random tokens. Training is as
`regard train` does it by default (bf16 on CUDA, kernels of sub-layers, recorded steps), decoding that of a model of bfloat16 on
CUDA: greedy, as many tokens out as the length. One JSON line for each point; the plot shows where a curve bends: the knee is the
first point from which twice the size brings less than a quarter more tokens a second (rows), or costs more than a quarter of
them (all else).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.types import Padded
from regard.data.batching import Batch
from regard.models.base import build_model
from regard.models.fused_forward import kernels_work
from regard.models.transformer import TransformerConfig
from regard.search.config import SearchConfig
from regard.search.search import search
from regard.training.config import TrainConfig
from regard.training.gradient import Gradients
from regard.training.optim import Optimizer
from regard.training.probing import forget_peak, peak_bytes, resident_bytes

KNEE = 0.25


@dataclasses.dataclass(frozen=True)
class Shape:
    width: int
    inner: int
    heads: int
    layers: int
    rows: int
    length: int
    vocabulary: int


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", default="cuda")
    for name, value in dataclasses.asdict(Shape(512, 2048, 8, 6, 512, 32, 32_000)).items():
        add(f"--{name}", type=int, default=value)
    add("--widths", type=numbers, default=[256, 384, 512, 768, 1024, 1536, 2048])
    add("--lengths", type=numbers, default=[16, 32, 64, 128, 256, 512, 1024, 2048])
    add("--batches", type=numbers, default=[1, 4, 16, 64, 128, 256, 512, 1024, 2048])
    add("--vocabularies", type=numbers, default=[8_000, 16_000, 32_000, 64_000, 128_000])
    add("--fixed-rows", action="store_true", help="longer rows make larger batches")
    add("--work", default="train,decode")
    add("--sweeps", default="width,length,rows,vocabulary")
    add("--seconds", type=float, default=2.0, help="of each point")
    add("--compile", action="store_true", help="train with compiled layers instead")
    add("--out", type=Path, default=None)
    add("--plot", type=Path, default=None)
    add("--replot", type=Path, default=None, help="only draw the plot of these JSON lines again")
    return parser.parse_args()


def points(a: argparse.Namespace, sweep: str) -> list[tuple[int, Shape]]:
    """The shapes of a sweep, each with the size that is changed."""
    base = Shape(**{field.name: getattr(a, field.name) for field in dataclasses.fields(Shape)})
    if sweep == "width":
        part, head = base.inner / base.width, base.width // base.heads
        shapes = {n: {"width": n, "inner": round(n * part), "heads": max(1, n // head)} for n in a.widths}
        return [(n, dataclasses.replace(base, **shapes[n])) for n in a.widths]
    if sweep == "length":
        tokens = base.rows * base.length
        rows = {n: base.rows if a.fixed_rows else max(1, tokens // n) for n in a.lengths}
        return [(n, dataclasses.replace(base, length=n, rows=rows[n])) for n in a.lengths]
    sizes = a.batches if sweep == "rows" else a.vocabularies
    return [(n, dataclasses.replace(base, **{sweep: n})) for n in sizes]


def made(shape: Shape, device: torch.device) -> Any:
    config = TransformerConfig(width=shape.width, inner=shape.inner, heads=shape.heads, layers=shape.layers)
    sizes = {"source_vocabulary": shape.vocabulary, "target_vocabulary": shape.vocabulary, "shared": True}
    return build_model("transformer", config, **sizes).to(device)


def tokens(shape: Shape, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, shape.vocabulary, (shape.rows, shape.length), generator=generator)


def training(shape: Shape, device: torch.device, compile: bool) -> Callable[[], None]:
    model = made(shape, device).train()
    cuda = device.type == "cuda"
    optimizer = Optimizer(model, TrainConfig(lr=1e-4), device, record=cuda)
    fuse = not compile and kernels_work(model, device, cuda, False)
    gradients = Gradients(
        model, autocast(device), 0.1, record=cuda, compile=compile, fuse=fuse, finish=optimizer.apply if cuda else None
    )
    source, target = tokens(shape, 1), tokens(shape, 2)
    batch = Batch(Padded(source, torch.ones_like(source, dtype=torch.bool)), target, target.roll(-1, 1), [])

    def step() -> None:
        optimizer.prepare(1.0, 1)
        computed = gradients(batch, 1 / target.numel())
        if computed.norm is None:
            optimizer.apply(computed.loss)
        if gradients.split:
            raise torch.OutOfMemoryError("the batch had to be cut")

    return step


def decoding(shape: Shape, device: torch.device) -> Callable[[], None]:
    model = made(shape, device).eval().to(torch.bfloat16 if device.type == "cuda" else torch.float32)
    source = tokens(shape, 1)
    source[:, -1] = 2  # EOS
    there = Padded(source, torch.ones_like(source, dtype=torch.bool)).to(device)
    length = shape.length
    config = SearchConfig(beam=1, min_length=length - 1, max_length=length, max_repeat=0)

    def step() -> None:
        with torch.no_grad():
            search(model, there, config)

    return step


def autocast(device: torch.device) -> Callable[[], contextlib.AbstractContextManager]:
    return (lambda: torch.autocast("cuda", torch.bfloat16)) if device.type == "cuda" else contextlib.nullcontext


def measure(step: Callable[[], None], shape: Shape, device: torch.device, seconds: float) -> dict[str, Any]:
    cuda = device.type == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    for _ in range(4 if cuda else 1):
        step()
    wait()
    began, count = time.monotonic(), 0
    while time.monotonic() - began < seconds or not count:
        for _ in range(4 if cuda else 1):
            step()
            count += 1
        wait()
    took = (time.monotonic() - began) / count
    return {"tokens_per_second": round(shape.rows * shape.length / took), "ms": round(1000 * took, 3)}


def point(a: argparse.Namespace, work: str, shape: Shape) -> dict[str, Any]:
    device = torch.device(a.device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    forget_peak()
    before = resident_bytes()
    try:
        step = training(shape, device, a.compile) if work == "train" else decoding(shape, device)
        found = measure(step, shape, device, a.seconds)
    except torch.OutOfMemoryError:
        return {"error": "out of memory"}
    except RuntimeError as error:  # the other points are still worth their time
        return {"error": str(error)[:400]}
    peak = torch.cuda.max_memory_reserved() if device.type == "cuda" else max(0, peak_bytes() - before)
    return {**found, "memory_gb": round(peak / 1e9, 3)}


def knee(sizes: list[int], speeds: list[float], rising: bool) -> int | None:
    """The first size from which twice as much gives less than a quarter more (rising), or takes more than a quarter away."""
    for i in range(len(sizes) - 1):
        change = (speeds[i + 1] / speeds[i]) ** (1 / math.log2(sizes[i + 1] / sizes[i])) - 1  # with each doubling
        if (rising and change < KNEE) or (not rising and change < -KNEE):
            return sizes[i]
    return None


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter, LogLocator

    sweeps, works = (list(dict.fromkeys(row[key] for row in rows)) for key in ("sweep", "work"))
    figure, axes = plt.subplots(len(works), len(sweeps), figsize=(3.6 * len(sweeps), 3.2 * len(works)), squeeze=False)
    for i, work in enumerate(works):
        for j, sweep in enumerate(sweeps):
            mine = [r for r in rows if r["work"] == work and r["sweep"] == sweep and "error" not in r]
            if not mine:
                continue
            sizes, speeds = [r["size"] for r in mine], [r["tokens_per_second"] for r in mine]
            left = axes[i][j]
            left.plot(sizes, speeds, marker="o", color="tab:blue")
            left.set(
                xscale="log",
                yscale="log",
                xlabel=sweep,
                title=f"{work} by {sweep}",
                ylabel="tokens/s" if j == 0 else "",
            )
            left.set_xticks(sizes, [str(n) for n in sizes], rotation=60, fontsize=7)
            left.minorticks_off()
            left.set_ylim(min(speeds) / 1.4, max(speeds) * 1.4)
            left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            left.yaxis.set_major_formatter(EngFormatter(sep=""))
            right = left.twinx()
            right.plot(sizes, [r["memory_gb"] for r in mine], marker=".", color="tab:red", alpha=0.5)
            right.set_ylim(bottom=0)
            right.set_ylabel("GB" if j == len(sweeps) - 1 else "", color="tab:red")
            if (bend := knee(sizes, speeds, rising=sweep == "rows")) is not None:
                left.axvline(bend, color="grey", linestyle="--", linewidth=1)
                left.annotate(f"knee {bend}", (bend, min(speeds)), fontsize=8, color="grey")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    a = read()
    if a.replot is not None:
        draw([json.loads(line) for line in a.replot.read_text().splitlines()], a.plot or Path("scale.png"))
        return
    rows: list[dict[str, Any]] = []
    out = a.out.open("w") if a.out is not None else contextlib.nullcontext()
    with out as file:
        for work in a.work.split(","):
            for sweep in a.sweeps.split(","):
                for size, shape in points(a, sweep):
                    row = {
                        "work": work,
                        "sweep": sweep,
                        "size": size,
                        **point(a, work, shape),
                        **dataclasses.asdict(shape),
                    }
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    if file is not None:
                        file.write(json.dumps(row) + "\n")
                        file.flush()
    for work in a.work.split(","):
        for sweep in a.sweeps.split(","):
            mine = [r for r in rows if r["work"] == work and r["sweep"] == sweep and "error" not in r]
            if len(mine) > 1:
                bend = knee([r["size"] for r in mine], [r["tokens_per_second"] for r in mine], rising=sweep == "rows")
                print(f"{work} by {sweep}: " + ("no knee" if bend is None else f"knee at {bend}"))
    if a.plot is not None:
        draw(rows, a.plot)


if __name__ == "__main__":
    main()
