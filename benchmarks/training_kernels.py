"""Tiles of the kernels of training: each candidate timed by itself, beside what the table says now (layers/training/tiling.py).

    python benchmarks/training_kernels.py [--kernels "norm backward,loss"] [--seconds 95]
    TRITON_INTERPRET=1 python benchmarks/training_kernels.py --device cpu --rows 3 --length 8 --width 32 --heads 2 \
        --vocabulary 100 --gpt-rows 0 --candidates 3 --launches 1 --replays 1

At the sizes of the base Transformer (2048 x 32 tokens) and GPT-2 small (16 x 1024): products in bfloat16, states in float32.
First all candidates are compiled side by side, and their results compared with those of the table's tiles; then each is
launched some times inside one CUDA graph, over inputs that do not fit into the cache together, and the graph replayed. One JSON
line for each candidate, and a table last, with what the best would save of a step. After --seconds nothing new is begun. --best
writes the tiles of each kernel that take the least time over all its shapes, for `train_gpu.py --tiles`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.core.processors import processors
from regard.core.types import PAD
from regard.layers.attention.relative.rotary import turns
from regard.layers.decoding.products import Norm
from regard.layers.decoding.triton_here import runs_on
from regard.layers.fused_cross_entropy import cross_entropy_in_place
from regard.layers.linear_cross_entropy import CHUNK_ELEMENTS_FUSED
from regard.layers.training import short_attention
from regard.layers.training.activations import activation_backward, summed
from regard.layers.training.dropped import dropped_gradient
from regard.layers.training.embedded import embed
from regard.layers.training.norms import Dropout, add_and_norm, norm_backward
from regard.layers.training.relu_product import product_through_relu
from regard.layers.training.tiles import on_device, totalled
from regard.layers.training.tiling import TILES, Tiles, using
from regard.layers.training.turned import Turning, turn_queries_and_keys

DROPOUT = 0.1
CACHE = 200 << 20  # bytes that inputs should have together: several times the cache of a large GPU
APART = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 1e-4}  # of the largest number, by rounding


@dataclass
class Case:
    """A kernel at a shape: `call` takes one set of inputs; what it changes of these is its first one."""

    kernel: str
    shape: str
    inputs: list[tuple[Any, ...]]
    call: Callable[..., Any]
    moved: int  # bytes that have to be read and written
    times: float  # in a step
    in_place: bool = False
    others: dict[str, Callable[..., Any]] = field(default_factory=dict)  # other ways to the same, without tiles
    expected: list[Tensor] = field(default_factory=list)


@dataclass
class Candidate:
    case: Case
    tiles: Tiles | None  # None: the other way of this name
    name: str
    apart: float = math.nan
    error: str = ""
    seconds: float = math.nan

    def run(self, inputs: tuple[Any, ...]) -> Any:
        if self.tiles is None:
            return self.case.others[self.name](*inputs)
        with using(self.case.kernel, self.tiles):
            return self.case.call(*inputs)


class Settings(argparse.Namespace):
    device: str
    kernels: str
    rows: int
    length: int
    width: int
    heads: int
    vocabulary: int
    gpt_rows: int
    gpt_length: int
    gpt_width: int
    gpt_vocabulary: int
    launches: int
    replays: int
    candidates: int
    seconds: float
    best: Path | None


def read() -> Settings:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", default="cuda")
    add("--kernels", default="", help=f"with commas between, all if empty: {', '.join(TILES)}")
    add("--rows", type=int, default=2048)
    add("--length", type=int, default=32)
    add("--width", type=int, default=512)
    add("--heads", type=int, default=8)
    add("--vocabulary", type=int, default=32_000)
    add("--gpt-rows", type=int, default=16, help="0: without it")
    add("--gpt-length", type=int, default=1024)
    add("--gpt-width", type=int, default=768)
    add("--gpt-vocabulary", type=int, default=50_304, help="filled up, as the loss does it")
    add("--launches", type=int, default=20, help="inside one recording")
    add("--replays", type=int, default=5, help="of which the median counts")
    add("--candidates", type=int, default=0, help="of each kernel and shape at most; 0: all")
    add("--seconds", type=float, default=95.0)
    add("--best", type=Path, help="a file for the best tiles of each kernel")
    return parser.parse_args(namespace=Settings())


# Candidates -----------------------------------------------------------------------------------------------------------


def candidates(kernel: str) -> Iterator[Tiles]:
    """What is tried of a kernel: first the table's tiles."""
    now = TILES[kernel]
    yield now
    if kernel.startswith("norm forward"):
        for cells, warps in ((512, 2), (512, 4), (1024, 2), (1024, 4), (2048, 8), (4096, 8)):
            yield now._replace(cells=cells, warps=warps)
    elif kernel.startswith("norm backward"):
        tiles = ((1024, 8), (512, 4), (512, 2), (1024, 4), (2048, 8), (512, 1))
        for stages, (cells, warps), programs in itertools.product((1, 3, 2), tiles, (528, 1056, 2112)):
            if (stages, warps) != (2, 1) and programs * warps <= 8448:
                yield now._replace(cells=cells, warps=warps, programs=programs, stages=stages)
    elif kernel in ("activation backward", "sum"):
        tiles = (
            (1024, 2, 4),
            (1024, 4, 8),
            (1024, 4, 4),
            (1024, 8, 8),
            (2048, 2, 8),
            (512, 4, 4),
            (512, 8, 4),
            (256, 8, 4),
        )
        for stages, (columns, rows, warps), programs in itertools.product((1, 3), tiles, (528, 1056)):
            yield now._replace(columns=columns, rows=rows, cells=8192, warps=warps, stages=stages, programs=programs)
    elif kernel == "dropped":
        for rows, warps, stages, programs in itertools.product((2, 4), (4, 8), (1, 3), (528, 1056)):
            yield now._replace(rows=rows, cells=4096, warps=warps, stages=stages, programs=programs)
    elif kernel == "embedded":
        for cells, warps in ((512, 2), (1024, 2), (1024, 4), (2048, 8), (4096, 8)):
            yield now._replace(cells=cells, warps=warps)
    elif kernel == "attention forward":
        for cells, registers in itertools.product((512, 1024, 2048), (0, 64)):
            yield now._replace(cells=cells, registers=registers)
    elif kernel == "attention backward":
        for cells, registers in ((1024, 128), (512, 0), (1024, 96), (512, 64), (2048, 0), (2048, 168)):
            yield now._replace(cells=cells, registers=registers)
        yield now._replace(rows=16)
    elif kernel == "product through relu":
        for columns, warps, stages in ((64, 4, 4), (64, 8, 3), (32, 4, 4), (32, 4, 5), (128, 4, 2)):
            yield now._replace(columns=columns, warps=warps, stages=stages)
    elif kernel == "turned":
        for cells, rows, warps in ((2048, 2, 4), (4096, 4, 8), (8192, 8, 4), (8192, 8, 8), (1024, 1, 4)):
            yield now._replace(cells=cells, rows=rows, warps=warps)
    else:
        for columns, warps in ((4096, 4), (4096, 8), (8192, 4), (8192, 16), (16384, 8), (16384, 16), (2048, 4)):
            yield now._replace(columns=columns, warps=warps)


# Cases ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """The sizes of one, and how often a step of it runs each kernel."""

    name: str
    tokens: int
    width: int
    vocabulary: int
    activation: str
    norms: int
    layers: int
    tables: int
    sums: tuple[tuple[int, int], ...]  # widths, in model widths, and how often they are summed


def cases(s: Settings) -> Iterator[Case]:
    device = torch.device(s.device)
    low = torch.float32 if device.type == "cpu" else torch.bfloat16
    base = Model("base", s.rows * s.length, s.width, s.vocabulary, "relu", 32, 12, 2, ((3, 12), (2, 6), (1, 6)))
    yield from _of_norms(base, device, torch.float32, low)
    yield from _of_norms(base, device, torch.bfloat16 if low != torch.float32 else torch.half, low)
    yield from _of_sub_layers(base, s.length, device, low)
    yield from _of_attention(s, device, low)
    yield from _of_turning(s, device, low)
    yield from _of_loss(base, device, low, bias=True)
    yield from _of_loss(base, device, low, bias=False)
    if s.gpt_rows:
        gpt = Model(
            "gpt2", s.gpt_rows * s.gpt_length, s.gpt_width, s.gpt_vocabulary, "gelu_tanh", 25, 12, 1, ((3, 12),)
        )
        yield from _of_norms(gpt, device, torch.float32, low)
        yield from _of_sub_layers(gpt, s.gpt_length, device, low)
        yield from _of_loss(gpt, device, low, bias=True)


def _numbers(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, device=device, dtype=dtype)


def _sets(make: Callable[[], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Inputs enough that a cache does not hold them from one launch to the next, up to four."""
    first = make()
    size = sum(t.nbytes for t in first if isinstance(t, Tensor))
    more = 0 if first[0].device.type == "cpu" else min(3, -(-CACHE // size) - 1)
    return [first, *(make() for _ in range(more))]


def _of_norms(m: Model, device: torch.device, state: torch.dtype, low: torch.dtype) -> Iterator[Case]:
    """Of states in float32, or in 16 bits as with `train.weights=bfloat16`."""
    n, width, ending = m.tokens, m.width, "" if state.itemsize == 4 else " of 16 bits"
    shape, size = f"{m.name} {n} x {width}", low.itemsize
    norm = Norm(torch.ones(width, device=device), torch.zeros(width, device=device), 1e-5, rms=False)
    dropout = Dropout(DROPOUT, torch.tensor(1234567890123, device=device))
    given = _sets(lambda: (*(_numbers(device, kind, n, width) for kind in (low, state, state)),))
    yield Case(
        f"norm backward{ending}", shape, given, lambda d, x, past: norm_backward(d, x, norm, past, dropout),
        n * width * (3 * state.itemsize + 2 * size), m.norms if not ending else 0,
    )  # fmt: skip
    yield Case(
        f"norm forward{ending}", shape, given, lambda d, x, _: add_and_norm(x, d, dropout, norm, low),
        n * width * (2 * state.itemsize + 2 * size), m.norms if not ending else 0,
    )  # fmt: skip


def _of_sub_layers(m: Model, length: int, device: torch.device, low: torch.dtype) -> Iterator[Case]:
    n, width, inner, state = m.tokens, m.width, 4 * m.width, torch.float32
    shape, size = f"{m.name} {n} x {width}", low.itemsize
    seed = torch.tensor(1234567890123, device=device)
    pair = _sets(lambda: (_numbers(device, low, n, inner), _numbers(device, low, n, inner)))
    yield Case(
        "activation backward", f"{m.name} {n} x {inner} {m.activation}", pair,
        lambda d, seen: activation_backward(d, seen, m.activation), 3 * size * n * inner, m.layers, in_place=True,
    )  # fmt: skip
    if m.activation == "relu":
        scale = width**-0.5
        three = _sets(
            lambda: (
                _numbers(device, low, n, width),
                _numbers(device, low, width, inner) * scale,
                _numbers(device, low, n, inner).relu(),
            )
        )
        yield Case(
            "product through relu", f"{m.name} {n} x {width} x {inner}", three, product_through_relu,
            size * (n * width + 2 * n * inner), m.layers,
            others={"two kernels": lambda d, weight, active: activation_backward(d @ weight, active, m.activation)},
        )  # fmt: skip
    for parts, times in m.sums:
        one = _sets(lambda parts=parts: (_numbers(device, low, n, parts * width),))
        yield Case(
            "sum", f"{m.name} {n} x {parts * width}", one, summed, size * n * parts * width, times,
            others={"torch": lambda d: d.sum(0, dtype=torch.float32)},
        )  # fmt: skip
    yield Case(
        "dropped", shape, _sets(lambda: (_numbers(device, state, n, width),)),
        lambda x: dropped_gradient(x, DROPOUT, seed, state, 1.5),
        n * width * 8, m.tables,
    )  # fmt: skip
    table, places = _numbers(device, state, m.vocabulary, width), _numbers(device, state, length, width)

    def tokens() -> tuple[Any, ...]:
        return (torch.randint(m.vocabulary, (n // length, length), device=device),)

    yield Case(
        "embedded", shape, _sets(tokens), lambda t: embed(t, table, 2.0, places, DROPOUT, seed), n * width * 8, m.tables
    )  # fmt: skip


def _of_attention(s: Settings, device: torch.device, low: torch.dtype) -> Iterator[Case]:
    """Of a sequence to itself, with a mask, as encoders have it."""
    shape, cells = f"base {s.rows} x {s.length} x {s.width}", s.rows * s.length * s.width * low.itemsize
    keep = torch.ones((s.rows, s.length), dtype=torch.bool, device=device)

    def made() -> tuple[Any, ...]:
        return tuple(_numbers(device, low, s.rows, s.length, times * s.width) for times in (3, 1))

    def forward(packed: Tensor, _: Tensor) -> Tensor:
        query, key_value = short_attention._split(packed)
        way = short_attention.attention_forward if runs_on(packed) else short_attention.plainly
        return way(query, key_value, s.heads, keep, False)

    def backward(packed: Tensor, d_out: Tensor) -> tuple[Tensor, ...]:
        if not runs_on(packed):
            return (torch.zeros_like(packed),)  # tests compare it
        d = torch.empty_like(packed)
        sums = short_attention.sums_of(*short_attention._split(d))
        parts = (*short_attention._split(packed), s.heads, keep, False, *short_attention._split(d))
        short_attention.attention_backward(d_out, *parts, *sums)
        return d, *(totalled(one) for one in sums)

    given = _sets(made)
    yield Case("attention backward", shape, given, backward, 7 * cells, 18)
    yield Case("attention forward", shape, given, forward, 4 * cells, 18)


def _of_turning(s: Settings, device: torch.device, low: torch.dtype) -> Iterator[Case]:
    """Queries and keys, by their places."""
    shape, cells = f"base {s.rows} x {s.length} x {s.width}", s.rows * s.length * s.width
    by = turns(torch.arange(s.length, device=device)[None], s.width // s.heads, 10_000.0)

    def turned(packed: Tensor) -> Tensor:
        turn_queries_and_keys(packed, s.heads, Turning(by, "interleaved"))
        return packed

    given = _sets(lambda: (_numbers(device, low, s.rows, s.length, 3 * s.width),))
    yield Case("turned", shape, given, turned, 4 * cells * low.itemsize, 0, in_place=True)


def _of_loss(m: Model, device: torch.device, low: torch.dtype, bias: bool) -> Iterator[Case]:
    """Of one chunk of logits, and the sum of their gradients, which is that of a bias."""
    if device.type == "cpu" and not runs_on(torch.empty(0)):
        return  # it has no reference
    rows = min(m.tokens, max(1, CHUNK_ELEMENTS_FUSED // m.vocabulary))
    added = _numbers(device, torch.float32, m.vocabulary) if bias else None
    logits = _sets(
        lambda: (
            _numbers(device, low, rows, m.vocabulary),
            torch.randint(PAD + 1, m.vocabulary, (rows,), device=device),
        )
    )
    shape, size, times = f"{m.name} {rows} x {m.vocabulary}", low.itemsize * rows * m.vocabulary, m.tokens / rows

    def loss(z: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return z, *cross_entropy_in_place(z, added, y, DROPOUT)

    yield Case("loss", shape + (" with bias" if bias else ""), logits, loss, 2 * size, times, in_place=True)
    if bias:
        torch_sum = {"torch": lambda z, _: z.sum(0, dtype=torch.float32)}
        yield Case("sum", shape, logits, lambda z, _: summed(z), size, times, others=torch_sum)


# Measuring ------------------------------------------------------------------------------------------------------------


def outcome(candidate: Candidate) -> list[Tensor]:
    given, case = candidate.case.inputs[0], candidate.case
    given = (given[0].clone(), *given[1:]) if case.in_place else given
    found = candidate.run(given)
    return [t for t in (found if isinstance(found, tuple) else (found,)) if t is not None]


def expect(candidate: Candidate) -> None:
    """What the others are compared with."""
    with torch.no_grad(), on_device(candidate.case.inputs[0][0].device):
        candidate.case.expected = outcome(candidate)


def apart(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference, in parts of what rounding may bring; in pieces, since some are large."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        scale = max(float(b.abs().max()), 1e-9) * APART[b.dtype]
        pieces = zip(a.flatten().split(1 << 25), b.flatten().split(1 << 25), strict=True)
        far = torch.stack([(one.float() - other.float()).abs().max() for one, other in pieces]).max()
        worst = max(worst, float(far) / scale if bool(far.isfinite()) else math.inf)
    return worst


def prepare(candidate: Candidate, until: float) -> Candidate:
    """Compiles a candidate and compares what it gives."""
    if time.monotonic() > until:
        candidate.error = "no time left"
        return candidate
    device = candidate.case.inputs[0][0].device
    try:
        with torch.no_grad(), on_device(device):
            candidate.apart = apart(outcome(candidate), candidate.case.expected)
        candidate.error = "" if candidate.apart <= 1 else "another result"
    except Exception as error:  # too much for a program, most often
        candidate.error = f"{type(error).__name__}: {error}"[:200]
    return candidate


def timed(candidate: Candidate, launches: int, replays: int) -> float:
    """Seconds of one launch."""
    sets = candidate.case.inputs
    work: Callable[[], Any]

    def plain() -> None:
        for i in range(launches):
            candidate.run(sets[i % len(sets)])

    if sets[0][0].device.type == "cpu":
        begin = time.perf_counter()
        for _ in range(replays):
            plain()
        return (time.perf_counter() - begin) / launches / replays
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plain()
    work, found = graph.replay, []
    work()
    for _ in range(replays):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1000 / launches)
    return statistics.median(found)


def row_of(candidate: Candidate) -> dict[str, Any]:
    case = candidate.case
    row: dict[str, Any] = {"kernel": case.kernel, "shape": case.shape, "candidate": candidate.name}
    if candidate.error:
        return {**row, "error": candidate.error}
    speed = case.moved / candidate.seconds / 1e9
    return {
        **row,
        "us": round(1e6 * candidate.seconds, 2),
        "gb_per_second": round(speed),
        "apart": round(candidate.apart, 3),
    }


def name_of(tiles: Tiles, kernel: str) -> str:
    """What differs from the table's."""
    now = TILES[kernel]._asdict()
    return " ".join(f"{key}={value}" for key, value in tiles._asdict().items() if value != now[key]) or "as it is"


def table(found: list[Candidate]) -> None:
    print(
        f"\n{'kernel':20} {'shape':34} {'MB':>6} {'now us':>8} {'GB/s':>6} {'best us':>8} {'GB/s':>6} {'saves ms':>8}  best"
    )
    for _, group in itertools.groupby(found, key=lambda one: id(one.case)):
        timed_ones = [one for one in group if not math.isnan(one.seconds)]
        if not timed_ones or timed_ones[0].name != "as it is":
            continue
        now, best, case = timed_ones[0], min(timed_ones, key=lambda one: one.seconds), timed_ones[0].case
        speeds = [f"{1e6 * one.seconds:>8.1f} {case.moved / one.seconds / 1e9:>6.0f}" for one in (now, best)]
        saved = 1000 * case.times * (now.seconds - best.seconds)
        print(f"{case.kernel:20} {case.shape:34} {case.moved >> 20:>6} {' '.join(speeds)} {saved:>8.2f}  {best.name}")


def best_of(found: list[Candidate]) -> dict[str, dict[str, Any]]:
    """Of kernels, the tiles with which all its shapes together take the least of a step, where they are other than now."""
    chosen = {}
    for kernel in dict.fromkeys(one.case.kernel for one in found):
        own = [one for one in found if one.case.kernel == kernel and one.tiles and not math.isnan(one.seconds)]
        shapes, totals = len({id(one.case) for one in own}), dict[Tiles, list[float]]()
        for one in own:
            totals.setdefault(one.tiles or Tiles(), []).append((one.case.times or 1) * one.seconds)
        totals = {tiles: times for tiles, times in totals.items() if len(times) == shapes}
        best = min(totals, key=lambda tiles: sum(totals[tiles]), default=TILES[kernel])
        if best != TILES[kernel]:
            chosen[kernel] = best._asdict()
    return chosen


def main() -> None:
    s, began = read(), time.monotonic()
    wanted = {part.strip() for part in s.kernels.split(",") if part.strip()}
    if not wanted <= set(TILES):
        raise SystemExit(f"There is no such kernel. The kernels: {', '.join(TILES)}")
    cuda = s.device.startswith("cuda")
    torch.manual_seed(0)
    where = torch.cuda.get_device_name() if cuda else platform.machine()
    print(json.dumps({"device": where, "torch": torch.__version__, **vars(s)}, default=str), flush=True)
    found: list[Candidate] = []
    for case in cases(s):
        if wanted and case.kernel not in wanted:
            continue
        tiles = list(dict.fromkeys(candidates(case.kernel)))[: s.candidates or None]
        own = [Candidate(case, one, name_of(one, case.kernel)) for one in tiles]
        own += [Candidate(case, None, name) for name in case.others]
        found += own
    until = began + 0.65 * s.seconds
    with ThreadPoolExecutor(processors() if cuda else 1) as pool:  # Triton's interpreter takes one at a time
        list(pool.map(expect, (one for one in found if one.name == "as it is")))
        list(pool.map(lambda one: prepare(one, until), found))
    print(json.dumps({"compiled_after": round(time.monotonic() - began, 1), "candidates": len(found)}), flush=True)
    for candidate in found:
        if not candidate.error and time.monotonic() > began + s.seconds:
            candidate.error = "no time left"
        if not candidate.error:
            candidate.seconds = timed(candidate, s.launches, s.replays)
        print(json.dumps(row_of(candidate)), flush=True)
    table(found)
    if s.best is not None:
        s.best.write_text(json.dumps(best_of(found), indent=1))
    if any(one.error and one.name == "as it is" for one in found):
        raise SystemExit("What the table says does not run, or gives other results the second time.")


if __name__ == "__main__":
    main()
