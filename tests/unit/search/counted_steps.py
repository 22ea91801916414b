"""How many operations a step takes: kernels by name, and torch's own that are not views. On the meta device: no GPU is needed.

python counted_steps.py        a table for the base Transformer and GPT-2 small
"""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.core.types import EOS
from regard.layers.decoding import kernel_choice, triton_here
from regard.layers.decoding.kernel_choice import Kernels
from regard.models.base import build_model
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig
from regard.search import SearchConfig, fast_steps
from regard.search.step import Begun, Entry, Room, Step

META = torch.device("meta")
SHAPES: dict[str, Any] = {
    "base": TransformerConfig(width=512, heads=8, layers=6, inner=2048),
    "rotary": TransformerConfig(width=512, heads=8, layers=6, inner=2048, positions="none", relative="rotary"),
    "gpt2": GPTConfig(width=768, heads=12, layers=12, context=1024),
}


class _Counter(TorchDispatchMode):
    def __init__(self, found: collections.Counter[str]):
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and "empty" not in name and name not in ("detach", "_unsafe_view"):
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def on_meta(launch: Any, kernels: Kernels | None) -> Iterator[None]:
    """Fast steps are taken on the meta device as on an H200, and kernels given to `launch`: of this kind (None: by default)."""
    modules = [module for name, module in sys.modules.items() if name.startswith("regard.")]
    new: list[tuple[Any, str, Any]] = [(module, "launch", launch) for module in modules if hasattr(module, "launch")]
    new += [(module, "runs_on", lambda tensor: True) for module in modules if hasattr(module, "runs_on")]
    new += [(fast_steps, "DEVICES", {"meta"}), (triton_here, "usable", lambda device: True)]
    new += [(torch, "is_autocast_enabled", lambda device: False)]
    new += [(kernel_choice, "FORCED", {} if kernels is None else kernels._asdict())]
    new += [(kernel_choice, "starts_early", lambda device: True)]
    old = [(module, name, getattr(module, name)) for module, name, _ in new]
    try:
        for module, name, value in new:
            setattr(module, name, value)
        with torch.inference_mode():
            yield
    finally:
        for module, name, value in old:
            setattr(module, name, value)


def begun(config: Any, rows: int, search: SearchConfig, span: int, dtype: torch.dtype) -> tuple[Step, Begun]:
    """A search on the meta device, at a place of the texts below `span`."""
    size = 50_257 if config.name == "gpt" else 32_000
    with META:
        model = build_model(config.name, config, source_vocabulary=size, target_vocabulary=size, shared=True)
    model = model.eval().to(META, dtype)
    step = Step(model, search, META, Room(span, 0))
    source = torch.full((rows, 32), EOS, device=META)
    number = source[:, 0]
    work, _ = step.start(Entry(source, source == EOS, number, number, source[:, :0], number == 0, None))
    model.kept = step  # a step holds its model weakly
    begun.model = model  # type: ignore[attr-defined]
    return step, work._replace(state=work.state.within(span))


def count(
    shape: str, rows: int, beam: int, fused: bool = True, kernels: Kernels | None = None, **settings: Any
) -> collections.Counter[str]:
    """Of one step."""
    found: collections.Counter[str] = collections.Counter()

    def launch(kernel: Any, grid: Any, *arguments: Any, **named: Any) -> None:
        found[getattr(kernel, "fn", kernel).__name__] += 1

    with on_meta(launch, kernels):
        search = SearchConfig(beam=beam, fused=fused, **settings)
        step, (work, memory, state, _) = begun(SHAPES[shape], rows, search, 32, torch.bfloat16)
        with _Counter(found):
            if step.fast is not None:
                with kernel_choice.using(step.fast.kernels(work, memory, state)):
                    step.fast.extend(work, step.fast.logits(work, memory, state), state)
            else:
                step(work, memory, state, 32, False)
    return found


def main() -> None:
    for shape in SHAPES:
        for rows, beam in ((1, 1), (1, 4), (64, 1), (64, 4), (512, 4)):
            plain, fused = count(shape, rows, beam, fused=False), count(shape, rows, beam, kernels=Kernels())
            whole = count(shape, rows, beam, kernels=Kernels(whole=True))
            print(
                f"{shape:5} {rows:4} x {beam}: {plain.total():4} operations, {fused.total():4} with kernels: {dict(fused)}"
            )
            if whole != fused:
                print(f"{'':15} {whole.total():4} with one for each sub-layer: {dict(whole)}")


if __name__ == "__main__":
    main()
