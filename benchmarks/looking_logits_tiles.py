"""The product with the vocabulary in a decoding step of very many rows: torch's beside ours, each way to cut it timed by itself.

    python benchmarks/looking_logits_tiles.py [--rows 2048] [--width 512 --vocabulary 32000] [--seconds 60]
    TRITON_INTERPRET=1 python benchmarks/looking_logits_tiles.py --device cpu --rows 20 --width 32 --vocabulary 130 \
        --candidates 2 --launches 1 --replays 1

Torch's product is timed with the kernel that reads its logits (`vocabulary.forbid`), ours looks at them as it writes
(`looking_logits.logits`). Numbers are bfloat16 on CUDA. Torch and the present way come first, then the others. They are compiled
side by side, compared with torch's result, launched some times inside one CUDA graph over inputs that a cache does not hold
together, and the graph is replayed; the median counts. One JSON line for each, a table of the fastest last. After --seconds nothing
new is begun, and after three fifths of them nothing new is compiled.

Alone, ours may be no faster than torch's two kernels, and faster inside a step: `decode_gpu.py --kernels on,on+looks` decides.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from regard.core.processors import processors
from regard.layers.decoding import looking_logits
from regard.layers.decoding.kernel_choice import Kernels, using
from regard.layers.decoding.looking_logits import Tiles
from regard.layers.decoding.many_logits import many_logits
from regard.layers.decoding.products import Linear
from regard.layers.decoding.triton_here import bound_to
from regard.layers.decoding.vocabulary import Logits

CACHE = 200 << 20  # bytes that inputs should have together
MEMORY = 226 << 10  # bytes of a program's tiles
FEWEST_HELD, REGISTERS = 32, 128  # a thread's part of a tile, in float32
ENOUGH = 96  # tiles
SIZES = ((128, 128), (64, 128), (128, 64), (64, 64), (64, 256), (128, 256), (256, 128))  # of tiles
TURNS = ((64, 3), (64, 4), (32, 4), (32, 5), (128, 2))  # how deep, and how many in flight
SPECIALS, ALSO = 4, 3
SHOWN = 10
TORCH, NO_TIME = "torch", "no time left"


def candidates(rows: int, vocabulary: int, numbers: int) -> Iterator[Tiles]:
    """The one that is taken now first; then others that fit, and are enough for the multiprocessors of a large GPU."""
    now = Tiles()
    yield now
    for (tall, columns), (depth, stages), warps in itertools.product(SIZES, TURNS, (4, 8)):
        fits = (tall + columns) * depth * numbers * stages <= MEMORY
        held = FEWEST_HELD <= tall * columns // (32 * warps) <= REGISTERS
        enough = -(-rows // tall) * -(-vocabulary // columns) >= ENOUGH
        tiles = Tiles(tall, columns, depth, warps, stages)
        if fits and held and (enough or rows < ENOUGH) and tiles != now:
            yield tiles


def inputs(s: argparse.Namespace, device: torch.device) -> list[tuple[Tensor, Linear, Tensor]]:
    low = torch.bfloat16 if device.type == "cuda" else torch.float32

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, device=device).to(low)

    size = (s.rows + s.vocabulary) * s.width * low.itemsize
    return [
        (
            made(s.rows, s.width),
            Linear(made(s.vocabulary, s.width) * s.width**-0.5, made(s.vocabulary)),
            torch.randint(s.vocabulary, (s.rows, 1), device=device),
        )
        for _ in range(1 if device.type == "cpu" else -(-CACHE // size))
    ]


def by_torch(x: Tensor, linear: Linear, banned: Tensor) -> Logits:
    return many_logits(x, linear, banned, SPECIALS, ALSO)


def by_kernel(tiles: Tiles) -> Callable[..., Logits]:
    return lambda x, linear, banned: looking_logits.logits(x, linear, banned, SPECIALS, ALSO, tiles)


def apart(found: Logits, expected: Logits) -> float:
    """The largest difference of logits, maxima and normaliser, as a part of the largest number."""
    pairs = [(found.maxima, expected.maxima), (found.normaliser(), expected.normaliser())]
    differences = [0.0]
    for ours, theirs in [*pairs, (found.values, expected.values)]:
        if not torch.equal(ours == float("-inf"), theirs == float("-inf")):
            return float("inf")
        ours, theirs = (one.float().masked_fill(one == float("-inf"), 0.0) for one in (ours, theirs))
        differences.append(((ours - theirs).abs().max() / theirs.abs().max()).item())
    return max(differences)


def seconds(call: Callable[..., Any], given: list[Any], s: argparse.Namespace) -> float:
    """Of one launch."""
    if s.device == "cpu":
        began = time.perf_counter()
        call(*given[0])
        return time.perf_counter() - began
    call(*given[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(*given[i % len(given)]) for i in range(s.launches)]
    found = []
    for _ in range(s.replays + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / s.launches)
    del kept
    return statistics.median(found[1:])


def measure(s: argparse.Namespace, until: float, compile_until: float) -> list[dict[str, Any]]:
    device = torch.device(s.device)
    given = inputs(s, device)
    numbers = given[0][0].element_size()
    expected = by_torch(*given[0])
    tried = itertools.islice(candidates(s.rows, s.vocabulary, numbers), s.candidates or None)
    ways: dict[str, Callable[..., Any]] = {TORCH: by_torch}
    ways |= {"x".join(map(str, one)): by_kernel(one) for one in tried}

    def compiled(way: Callable[..., Any]) -> str:
        """What is wrong with it, in words."""
        if time.monotonic() > compile_until:
            return NO_TIME
        try:
            difference = apart(way(*given[0]), expected)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
        return "" if difference <= (0.02 if numbers == 2 else 1e-4) else f"another result, by {difference:.3g}"

    threads = processors() if device.type == "cuda" else 1
    with ThreadPoolExecutor(threads, initializer=bound_to, initargs=(device,)) as pool:
        wrong = dict(zip(ways, pool.map(compiled, ways.values()), strict=True))
    rows = []
    for name, way in ways.items():
        row: dict[str, Any] = {"shape": [s.rows, s.width, s.vocabulary], "way": name}
        row["error"] = wrong[name] or (NO_TIME if time.monotonic() > until else "")
        if not row["error"]:
            try:
                row["microseconds"] = round(1e6 * seconds(way, given, s), 1)
            except Exception as error:  # the others are still worth their time
                row["error"] = f"{type(error).__name__}: {error}"[:200]
        rows.append({key: value for key, value in row.items() if value != ""})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    times = {row["way"]: row["microseconds"] for row in rows if "microseconds" in row}
    best = sorted(times, key=lambda way: times[way])[:SHOWN]
    shown = [TORCH, rows[1]["way"], *(way for way in best if way not in (TORCH, rows[1]["way"]))]
    return "\n".join([f"{'way':20}{'us':>10}", *(f"{way:20}{times[way]:10.1f}" for way in shown if way in times)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--candidates", type=int, default=0, help="at most; 0: all")
    parser.add_argument("--launches", type=int, default=50, help="inside one recording")
    parser.add_argument("--replays", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    s = parser.parse_args()
    torch.manual_seed(1)
    machine = torch.cuda.get_device_name() if s.device == "cuda" else platform.platform()
    print(json.dumps({"machine": machine, "torch": torch.__version__}))
    began = time.monotonic()
    until, compile_until = began + s.seconds, began + 0.6 * s.seconds
    with torch.inference_mode(), using(Kernels(aligned=True)):
        print(table(measure(s, until, compile_until)))


if __name__ == "__main__":
    main()
