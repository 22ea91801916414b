"""Compiles every kernel that a step launches for a GPU that is not there.

python compiled_for.py [--parts] [--early] [--whole] ... [--float32] SHAPE ROWS BEAM SPAN ...

SHAPE: base or gpt2; kernels as they are by default, or --parts and words of kernel_choice.Kernels.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import collections
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import triton
from counted_steps import SHAPES, begun, on_meta
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from regard.layers.decoding.kernel_choice import Kernels, chosen, using
from regard.search import SearchConfig

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
}
OPTIONS = ("num_warps", "num_stages", "launch_pdl")


class Launches:
    """Takes the place of launching kernels: each kind is compiled once."""

    def __init__(self) -> None:
        self.done: dict[Any, tuple[Any, float]] = {}
        self.count: collections.Counter[str] = collections.Counter()

    def __call__(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> None:
        name = kernel.fn.__name__
        self.count[name] += 1
        options = {key: named.pop(key) for key in OPTIONS if key in named}
        early = chosen().early
        if early:
            options["launch_pdl"] = True
        values = dict(zip(kernel.arg_names, arguments, strict=False)) | named | {"EARLY": early}
        signature, constants, hints = {}, {}, {}
        for i, key in enumerate(kernel.arg_names):
            value = values[key]
            if isinstance(value, torch.Tensor):
                signature[key], hints[(i,)] = TYPES[value.dtype], [["tt.divisibility", 16]]
            elif isinstance(value, TensorDescriptor):
                signature[key] = f"tensordesc<{TYPES[value.base.dtype][1:]}{value.block_shape}>".replace(" ", "")
            elif key.isupper() or value == 1:
                signature[key], constants[(i,)] = "constexpr", value
            else:
                signature[key] = "fp32" if isinstance(value, float) else "i32"
                if isinstance(value, int) and value % 16 == 0:
                    hints[(i,)] = [["tt.divisibility", 16]]
        what = (name, tuple(signature.items()), tuple(sorted(constants.items())), tuple(options.items()))
        if what not in self.done:
            start = time.perf_counter()
            source = ASTSource(kernel, signature, constants, hints)
            self.done[what] = triton.compile(source, target=TARGET, options=options), time.perf_counter() - start


def compile_steps(
    cases: list[tuple[str, int, int, int]],
    dtype: torch.dtype = torch.bfloat16,
    kernels: Kernels | None = None,
) -> Launches:
    """All kernels of steps of so many sentences, with such a beam, at a place of the texts below a span."""
    launches = Launches()
    with on_meta(launches, kernels):
        for shape, rows, beam, span in cases:
            search = SearchConfig(beam=beam, min_length=1, fused=True)
            step, (work, memory, state, _) = begun(SHAPES[shape], rows, search, span, dtype)
            assert step.fast is not None
            with using(step.fast.kernels(work, memory, state)):
                step.fast.extend(work, step.fast.logits(work, memory, state), state)
    return launches


def resources(cubin: bytes) -> dict[str, int]:
    """Registers of a thread, and bytes of its stack, which should be 0."""
    tool = Path(str(triton.__file__)).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        found = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {key: int(number) for key, number in re.findall(r"(REG|STACK):(\d+)", found)}


def main() -> None:
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    given = {word[2:] for word in sys.argv[1:] if word.startswith("--")} - {"float32"}
    kernels = Kernels(**dict.fromkeys(given - {"parts"}, True)) if given else None
    dtype = torch.float32 if "--float32" in sys.argv else torch.bfloat16
    for i in range(0, len(words), 4):
        case = (words[i], *map(int, words[i + 1 : i + 4]))
        launches = compile_steps([case], dtype, kernels)  # type: ignore[list-item]
        print(*case, dict(launches.count))
        for what, (compiled, seconds) in launches.done.items():
            used = resources(compiled.asm["cubin"])
            print(f"  {what[0]:20} {seconds:5.1f} s, shared {compiled.metadata.shared:6}, {used} {dict(what[3])}")


if __name__ == "__main__":
    main()
