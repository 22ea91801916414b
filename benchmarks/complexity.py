"""One layer by itself: how time and memory of recurrent, convolutional and self-attention layers grow with length and width.

    python benchmarks/complexity.py [--device cuda] [--lengths 16,64,256,1024,4096] [--widths 64,256,1024] [--tokens 16384]

Lectures put it into a table (Vaswani et al. 2017, table 1), of a layer over n positions of width d:

    layer             operations    one after another    longest path between two positions
    self-attention    n² d          1                    1
    recurrent         n d²          n                    n
    convolution       k n d²        1                    n / k (stacked: log_k n with dilation)

Here each is measured as this package runs it: self-attention with 8 heads, its four projections included, fused and explicit (which
keeps the weights); an LSTM (cuDNN on CUDA); a gated convolution of kernel 3 (that of ConvS2S). Forward and backward, in float32.
The batch holds `tokens` positions in all (at least one sequence), so that the machine is as full at every length as at any other;
`--tokens 0` times one single sequence, where what must happen one after another shows. Memory is what the forward pass leaves for
the backward pass. A case that would need more than --memory GiB is left out. One JSON line per case; a table at the end
with the growth per doubling, fitted at the longest lengths; and OUT/complexity.png.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.evaluation.plots import COLOURS, LINE_STYLES, save_figure
from regard.layers.attention.multihead import SelfAttention
from regard.layers.convolution import windows
from regard.layers.recurrent.layers import recurrent

HEADS, KERNEL = 8, 3
LAYERS = ("self-attention, fused", "self-attention, explicit", "recurrent (LSTM)", "convolution (GLU)")
LEAST_SECONDS, MOST_ROUNDS = 0.4, 30


def make(layer: str, width: int) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    if layer.startswith("self-attention"):
        attention = SelfAttention(width, HEADS, 0.0)
        explicit = layer.endswith("explicit")
        return attention, lambda x: attention(x, None, False, explicit)[0]
    if layer.startswith("recurrent"):
        lstm = recurrent("lstm", width, width, bias=True)
        return lstm, lambda x: lstm(x)[0]
    linear = nn.Linear(KERNEL * width, 2 * width)
    return linear, lambda x: F.glu(linear(windows(F.pad(x, (0, 0, KERNEL // 2, KERNEL // 2)), KERNEL)))


def saved_bytes(compute: Callable[[Tensor], Tensor], x: Tensor, module: nn.Module) -> int:
    """What autograd keeps of the forward pass, without weights and the input: every tensor once."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = compute(x)
    for known in (x, *module.parameters()):
        kept.pop(known.untyped_storage().data_ptr(), None)
    del y
    return sum(kept.values())


def needed(layer: str, batch: int, length: int, width: int) -> int:
    """A generous guess of the bytes that a case takes."""
    square = 4 * batch * HEADS * length * length * 4 if layer.startswith("self-attention") else 0
    return 4 * batch * length * width * 40 + square


def one(layer: str, length: int, width: int, tokens: int, device: torch.device, most_bytes: float) -> dict[str, Any]:
    batch = max(1, tokens // length)
    row: dict[str, Any] = {"layer": layer, "length": length, "width": width, "batch": batch}
    if needed(layer, batch, length, width) > most_bytes:
        return row | {"left_out": "memory"}
    torch.manual_seed(0)
    module, compute = make(layer, width)
    module.to(device)
    x = torch.randn(batch, length, width, device=device, requires_grad=True)
    grad = torch.randn(batch, length, width, device=device)

    def step() -> None:
        compute(x).backward(grad)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    kept = saved_bytes(compute, x, module)
    step()
    wait()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < LEAST_SECONDS and len(times) < MOST_ROUNDS):
        began = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times)
    return row | {
        "milliseconds": round(1000 * seconds, 4),
        "microseconds_per_position": round(1e6 * seconds / (batch * length), 5),
        "kept_bytes_per_position": round(kept / (batch * length), 1),
        "parameters": sum(p.numel() for p in module.parameters()),
        "rounds": len(times),
    }


def growth(rows: list[dict[str, Any]], over: str, value: str) -> float | None:
    """The exponent p of value ~ over^p between the two largest cases."""
    last = sorted((row for row in rows if row.get(value)), key=lambda row: row[over])[-2:]
    if len(last) < 2:
        return None
    return math.log(last[1][value] / last[0][value]) / math.log(last[1][over] / last[0][over])


def picture(rows: list[dict[str, Any]], widths: list[int], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.3 * len(widths), 6.6), layout="constrained")
    panels = (("microseconds_per_position", "µs a position"), ("kept_bytes_per_position", "bytes kept a position"))
    for line, (key, label) in enumerate(panels):
        for column, width in enumerate(widths):
            axes = figure.add_subplot(2, len(widths), line * len(widths) + column + 1)
            for number, layer in enumerate(LAYERS):
                same = [row for row in rows if row["layer"] == layer and row["width"] == width and row.get(key)]
                axes.plot(
                    [row["length"] for row in same], [row[key] for row in same], marker="o", markersize=3.5,
                    label=layer, color=COLOURS[number], linestyle=LINE_STYLES[number % len(LINE_STYLES)],
                )  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_title(f"width {width}")
            axes.set_xlabel("length")
            axes.grid(color="#e4e8ee", linewidth=0.8)
            axes.spines[["top", "right"]].set_visible(False)
            if column == 0:
                axes.set_ylabel(label)
            axes.set_xticks(sorted({row["length"] for row in rows}))
            axes.xaxis.set_major_formatter("{x:.0f}")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(LAYERS), frameon=False, fontsize=9)
    save_figure(figure, path)


def machine(device: torch.device) -> Mapping[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": name, "torch": torch.__version__, "threads": torch.get_num_threads()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lengths", default="16,64,256,1024,4096")
    parser.add_argument("--widths", default="64,256,1024")
    parser.add_argument("--tokens", type=int, default=16384, help="positions in a batch; 0: one sequence")
    parser.add_argument("--memory", type=float, default=6.0, help="GiB that a case may take")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/complexity"))
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    lengths, widths = ([int(n) for n in text.split(",")] for text in (arguments.lengths, arguments.widths))
    print(json.dumps(machine(device)), flush=True)
    rows = []
    for width in widths:
        for layer in LAYERS:
            for length in lengths:
                rows.append(one(layer, length, width, arguments.tokens, device, arguments.memory * 2**30))
                print(json.dumps(rows[-1]), flush=True)
    print(f"{'layer':26} {'width':>6}  " + "".join(f"{n:>10}" for n in lengths) + f"{'time ~ n^':>11}{'kept ~ n^':>11}")
    for width in widths:
        for layer in LAYERS:
            same = [row for row in rows if (row["layer"], row["width"]) == (layer, width)]
            cells = "".join(f"{row.get('microseconds_per_position', '-'):>10}" for row in same)
            exponents = (
                growth(same, "length", key) for key in ("microseconds_per_position", "kept_bytes_per_position")
            )
            fitted = "".join("          -" if p is None else f"{p + 1:>11.2f}" for p in exponents)
            print(f"{layer:26} {width:6}  {cells}{fitted}")
    print("(µs a position, forward and backward; the exponents are those of a whole sequence)")
    arguments.out.mkdir(parents=True, exist_ok=True)
    picture(rows, widths, arguments.out / "complexity.png")


if __name__ == "__main__":
    main()
