"""Products of very many rows in a decoding step: torch's beside kernels of ours, each way to cut them timed by itself.

    python benchmarks/decoding_products.py [--rows 2048] [--width 512 --inner 2048 --vocabulary 32000] [--seconds 60]
    TRITON_INTERPRET=1 python benchmarks/decoding_products.py --device cpu --rows 20 --width 32 --inner 64 --vocabulary 130 \
        --candidates 2 --launches 1 --replays 1

The shapes are those of a layer of a Transformer's decoder, and the product with the vocabulary, which is timed with the kernel
that reads its logits (`vocabulary.forbid`), beside one kernel that looks at them as it writes (`tall_products.logits`). Numbers
are bfloat16 on CUDA. Torch and the present ways of all shapes come first, then the others. They are compiled side by side,
compared with torch's result, launched some times inside one CUDA graph over inputs that a cache does not hold together, and the
graph is replayed; the median counts. One JSON line for each, a table last: the best of each shape, and what it would save of a
step. After --seconds nothing new is begun, and after three fifths of them nothing new is compiled.

Of the vocabulary, who reads the maxima later reads more of them after our kernel (a part for each tile), which is not timed here:
`decode_gpu.py --kernels on,on+looks` decides.
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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core.processors import processors
from regard.layers.decoding import tall_products
from regard.layers.decoding.kernel_choice import Kernels, using
from regard.layers.decoding.many_logits import many_logits
from regard.layers.decoding.products import Linear
from regard.layers.decoding.tall_products import Tiles
from regard.layers.feedforward import ACTIVATIONS

CACHE = 200 << 20  # bytes that inputs should have together
MEMORY = 226 << 10  # bytes of a program's tiles
FEWEST_HELD, REGISTERS = 32, 128  # a thread's part of a tile, in float32
ENOUGH = 96  # tiles
SIZES = ((128, 128), (64, 128), (128, 64), (64, 64), (64, 256), (128, 256), (256, 128))  # of tiles
TURNS = ((64, 3), (64, 4), (32, 4), (32, 5), (128, 2))  # how deep, and how many in flight
SPECIALS, ALSO = 4, 3
TORCH, NO_TIME = "torch", "no time left"


class Case(NamedTuple):
    """A product and how often a step of the decoder has it."""

    name: str
    rows: int
    inputs: int
    outputs: int
    times: int
    activation: str | None = None
    looks: bool = False


def cases(s: argparse.Namespace) -> list[Case]:
    width, layers = s.width, s.layers
    return [
        Case("vocabulary", s.rows, width, s.vocabulary, 1, looks=True),
        Case("queries, keys, values", s.rows, width, 3 * width, layers),
        Case("query or output", s.rows, width, width, 3 * layers),
        Case("inner", s.rows, width, s.inner, layers, activation="relu"),
        Case("outer", s.rows, s.inner, width, layers),
    ]


def candidates(case: Case, numbers: int) -> Iterator[Tiles]:
    """The one that is taken now first; then others that fit, and are enough for the multiprocessors of a large GPU."""
    now = tall_products.LOOKING[case.rows <= tall_products.LOOKING[1].rows] if case.looks else None
    now = now or tall_products.tiles_for(case.rows, case.outputs)
    yield now
    for (rows, columns), (depth, stages), warps in itertools.product(SIZES, TURNS, (4, 8)):
        fits = (rows + columns) * depth * numbers * stages <= MEMORY
        held = FEWEST_HELD <= rows * columns // (32 * warps) <= REGISTERS
        enough = -(-case.rows // rows) * -(-case.outputs // columns) >= ENOUGH
        tiles = Tiles(rows, columns, depth, warps, stages)
        if fits and held and (enough or case.rows < ENOUGH) and tiles != now:
            yield tiles


def inputs(case: Case, device: torch.device) -> list[tuple[Tensor, Linear, Tensor]]:
    low = torch.bfloat16 if device.type == "cuda" else torch.float32

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, device=device).to(low)

    size = (case.rows + case.outputs) * case.inputs * low.itemsize
    sets = 1 if device.type == "cpu" else -(-CACHE // size)
    return [
        (
            made(case.rows, case.inputs),
            Linear(made(case.outputs, case.inputs) * case.inputs**-0.5, made(case.outputs)),
            torch.randint(case.outputs, (case.rows, 1), device=device),
        )
        for _ in range(sets)
    ]


def by_torch(case: Case) -> Callable[..., Any]:
    if case.looks:
        return lambda x, linear, banned: many_logits(x, linear, banned, SPECIALS, ALSO)
    if case.activation == "relu":
        return lambda x, linear, _: torch._addmm_activation(linear.bias, x, linear.weight.t())  # pyright: ignore
    return lambda x, linear, _: linear(x) if case.activation is None else ACTIVATIONS[case.activation](linear(x))


def by_kernel(case: Case, tiles: Tiles) -> Callable[..., Any]:
    if case.looks:
        return lambda x, linear, banned: tall_products.logits(x, linear, banned, SPECIALS, ALSO, tiles)
    return lambda x, linear, _: tall_products.product(x, linear, case.activation, tiles)


def apart(case: Case, found: Any, expected: Any) -> float:
    """The largest difference, as a part of the largest number; of logits also of maxima and normaliser."""
    if case.looks:
        pairs = [(found.maxima, expected.maxima), (found.normaliser(), expected.normaliser())]
        pairs.append((found.values, expected.values))
    else:
        pairs = [(found, expected)]
    differences = [0.0]
    for ours, theirs in pairs:
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


def measure(case: Case, s: argparse.Namespace, first: bool, until: float, compile_until: float) -> list[dict[str, Any]]:
    """Torch's way and the present one first; the others when all shapes have had these."""
    device = torch.device(s.device)
    given = inputs(case, device)
    numbers = given[0][0].element_size()
    torch_way = by_torch(case)
    expected = torch_way(*given[0])
    now, *others = itertools.islice(candidates(case, numbers), s.candidates or None)
    ways: dict[str, Callable[..., Any]] = {TORCH: torch_way} if first else {}
    ways |= {"x".join(map(str, one)): by_kernel(case, one) for one in ([now] if first else others)}

    def compiled(way: Callable[..., Any]) -> str:
        """What is wrong with it, in words."""
        if time.monotonic() > compile_until:
            return NO_TIME
        try:
            difference = apart(case, way(*given[0]), expected)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
        return "" if difference <= (0.02 if numbers == 2 else 1e-4) else f"another result, by {difference:.3g}"

    with ThreadPoolExecutor(processors() if device.type == "cuda" else 1) as pool:
        wrong = dict(zip(ways, pool.map(compiled, ways.values()), strict=True))
    rows = []
    for name, way in ways.items():
        row: dict[str, Any] = {"product": case.name, "shape": [case.rows, case.inputs, case.outputs], "way": name}
        row["error"] = wrong[name] or (NO_TIME if time.monotonic() > until else "")
        if not row["error"]:
            try:
                row["microseconds"] = round(1e6 * seconds(way, given, s), 1)
            except Exception as error:  # the others are still worth their time
                row["error"] = f"{type(error).__name__}: {error}"[:200]
        rows.append({key: value for key, value in row.items() if value != ""})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def table(found: dict[Case, list[dict[str, Any]]]) -> str:
    lines = [f"{'product':24}{'torch us':>10}{'now us':>10}{'best us':>10}  {'tiles':20}{'saved of a step, us':>20}"]
    for case, rows in found.items():
        times = {row["way"]: row["microseconds"] for row in rows if "microseconds" in row}
        own = {way: time for way, time in times.items() if way != TORCH}
        if TORCH not in times or not own:
            continue
        best = min(own, key=lambda way: own[way])
        now = own.get(rows[1]["way"], float("nan"))  # torch is the first row, and this the second
        saved = case.times * (times[TORCH] - own[best])
        lines.append(f"{case.name:24}{times[TORCH]:10.1f}{now:10.1f}{own[best]:10.1f}  {best:20}{saved:20.1f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--inner", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--candidates", type=int, default=0, help="of each shape at most; 0: all")
    parser.add_argument("--launches", type=int, default=50, help="inside one recording")
    parser.add_argument("--replays", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    s = parser.parse_args()
    torch.manual_seed(1)
    machine = torch.cuda.get_device_name() if s.device == "cuda" else platform.platform()
    print(json.dumps({"machine": machine, "torch": torch.__version__}))
    began = time.monotonic()
    until, compile_until = began + s.seconds, began + 0.6 * s.seconds
    found: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases(s)}
    try:
        with torch.inference_mode(), using(Kernels(aligned=True)):
            for first in (True, False):
                for case, rows in found.items():
                    rows += measure(case, s, first, until, compile_until)
    finally:  # an error of the device ends everything, but not what is known
        print(table(found))


if __name__ == "__main__":
    main()
