"""Training speed on a GPU beside torch.nn.Transformer, Hugging Face Marian and GPT-2, and what each of regard's means brings.

    python benchmarks/train_gpu.py [--cases "marian*,regard"] [--curve 40] [--profile 20]
    python benchmarks/train_gpu.py --device cpu --width 32 --layers 1 --rows 4 --length 8 --vocabulary 100 --steps 2 --backend eager

Transformer base (512/2048/8 heads/6+6 layers, vocabulary 32,000), batches of 2048 x 32 random tokens without padding, bf16, label
smoothing 0.1, dropout 0.1, gradients clipped, AdamW; GPT-2 small on 16 x 1024. A step is everything from tokens on the host to
changed weights. Each case is made anew, so that memory is its own; one JSON line for each, with the time to the first step done
(compiling included), and a table last. Caches of compiled code on disk, which make a second run's first step faster, are
off (--caches has them on).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

if "--caches" not in sys.argv:  # read when torch is imported
    os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.core.types import Padded
from regard.data.batching import Batch
from regard.layers.training.tiling import TILES, Tiles
from regard.models.base import build_model
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig
from regard.training.config import TrainConfig
from regard.training.gradient import Gradients
from regard.training.lowered import Lowered
from regard.training.optim import Optimizer
from regard.training.regions import CompiledRegions, repeated_layers

Step = Callable[[int], Tensor]  # the number of a step -> its loss, on the device
SMOOTHING, CLIP, RATE = 0.1, 1.0, 1e-4

# regard's means, and the cases: all of them, one left out, and other ones
MEANS = ("graphs", "layers", "loss", "unmasked", "whole")
COMPILED = ("graphs", "compile", "loss", "unmasked", "whole")
REGARD = {
    "eager": (),
    "graphs": ("graphs",),
    "": MEANS,
    **{f"without {mean}": tuple(m for m in MEANS if m != mean) for mean in MEANS},
    "bfloat16 weights": (*MEANS, "lowered"),
    "rotary": (*MEANS, "rotary"),
    "compiled": COMPILED,
    "compiled static": (*COMPILED, "static"),
    "compiled bfloat16 weights static": (*COMPILED, "lowered", "static"),
    "compiled bfloat16 weights autotuned": (*COMPILED, "lowered", "static", "autotune"),
}
GPT = ("eager", "graphs", "", "without loss", "bfloat16 weights", "compiled", "compiled bfloat16 weights static")


def names() -> list[str]:
    peers = ["torch eager", "torch compiled", "marian eager", "marian compiled"]
    ours = [f"regard {name}".strip() for name in REGARD]
    return [*peers, *ours, "gpt2 eager", "gpt2 compiled", *(f"regard-gpt {name}".strip() for name in GPT)]


class Settings(argparse.Namespace):
    device: str
    cases: str
    width: int
    inner: int
    heads: int
    layers: int
    rows: int
    length: int
    vocabulary: int
    gpt_width: int
    gpt_heads: int
    gpt_layers: int
    gpt_rows: int
    gpt_length: int
    gpt_vocabulary: int
    dropout: float
    dtype: str
    steps: int
    windows: int
    turns: int
    backend: str
    curve: int
    profile: int
    tiles: Path | None


def read() -> Settings:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", default="cuda")
    add("--cases", default="", help="names with commas between, or beginnings of names with a *; all if empty")
    add("--width", type=int, default=512)
    add("--inner", type=int, default=0, help="0: four times the width")
    add("--heads", type=int, default=8)
    add("--layers", type=int, default=6)
    add("--rows", type=int, default=2048)
    add("--length", type=int, default=32)
    add("--vocabulary", type=int, default=32_000)
    add("--gpt-width", type=int, default=768)
    add("--gpt-heads", type=int, default=12)
    add("--gpt-layers", type=int, default=12)
    add("--gpt-rows", type=int, default=16)
    add("--gpt-length", type=int, default=1024)
    add("--gpt-vocabulary", type=int, default=50_257)
    add("--dropout", type=float, default=0.1)
    add("--dtype", default="", help="bfloat16 (on CUDA) or float32")
    add("--steps", type=int, default=20, help="of a window that is timed")
    add("--windows", type=int, default=3)
    add("--turns", type=int, default=1, help="how often all cases are gone through; the medians are in the table")
    add("--backend", default="inductor", help="of torch.compile")
    add("--curve", type=int, default=0, help="instead: losses of so many steps without dropout, means on and off")
    add(
        "--caches",
        action="store_true",
        help="use compiled code that is on disk: first steps are faster the second time",
    )
    add("--profile", type=int, default=0, metavar="N", help="also list the N costliest kernels of each case")
    add("--tiles", type=Path, help="what training_kernels.py --best has written, instead of tiling.py's table")
    add("--list", action="store_true", help="only the names of the cases")
    settings = parser.parse_args(namespace=Settings())
    settings.inner = settings.inner or 4 * settings.width
    settings.dtype = settings.dtype or ("bfloat16" if settings.device.startswith("cuda") else "float32")
    if settings.list:
        print("\n".join(names()))
        raise SystemExit
    if settings.tiles is not None:
        TILES.update({kernel: Tiles(**tiles) for kernel, tiles in json.loads(settings.tiles.read_text()).items()})
    return settings


def low(s: Settings) -> contextlib.AbstractContextManager:
    dtype = getattr(torch, s.dtype)
    return torch.autocast(torch.device(s.device).type, dtype) if dtype != torch.float32 else contextlib.nullcontext()


# Peers ----------------------------------------------------------------------------------------------------------------


class TorchTransformer(nn.Module):
    """torch.nn.Transformer as its documentation uses it, with tied tables."""

    def __init__(self, s: Settings):
        super().__init__()
        self.width = s.width
        self.table = nn.Embedding(s.vocabulary, s.width)
        self.body = nn.Transformer(
            s.width, s.heads, s.layers, s.layers, s.inner, s.dropout, batch_first=True, norm_first=True
        )
        self.dropout = nn.Dropout(s.dropout)
        self.bias = nn.Parameter(torch.zeros(s.vocabulary))
        half = torch.arange(0, s.width, 2) * (-math.log(10_000.0) / s.width)
        angle = torch.arange(s.length)[:, None] * half.exp()
        self.register_buffer("places", torch.stack((angle.sin(), angle.cos()), -1).flatten(1))
        nn.init.normal_(self.table.weight, std=s.width**-0.5)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = (self.dropout(self.table(t) * math.sqrt(self.width) + self.places) for t in (source, target))
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return F.linear(self.body(x, y, tgt_mask=mask, tgt_is_causal=True), self.table.weight, self.bias)


def plain_loop(
    s: Settings,
    model: nn.Module,
    forward: Callable[..., Tensor],
    inputs: tuple[Tensor, ...],
    target: Tensor,
    compiled: bool = False,
) -> Step:
    """A training loop as tutorials write it, with fused AdamW; compiled with its loss, where most memory traffic is."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=s.device.startswith("cuda"))
    given = [pinned(t) for t in (*inputs, target)]

    def loss_of(*there: Tensor) -> Tensor:
        logits = forward(*there[:-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), there[-1].flatten(), label_smoothing=SMOOTHING)

    compute = torch.compile(loss_of, backend=s.backend) if compiled else loss_of

    def step(number: int) -> Tensor:
        there = [t.to(s.device, non_blocking=True) for t in given]
        with low(s):
            loss = compute(*there)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def tokens(rows: int, length: int, vocabulary: int, seed: int) -> Tensor:
    return pinned(torch.randint(4, vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed)))


def pinned(tensor: Tensor) -> Tensor:
    """In memory from which copies need not wait."""
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


def peer(s: Settings, name: str) -> Step:
    kind, how = name.split()
    model: Any
    forward: Callable[..., Tensor]
    if kind == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=s.gpt_vocabulary, n_positions=s.gpt_length, n_embd=s.gpt_width, n_layer=s.gpt_layers, n_head=s.gpt_heads,
            resid_pdrop=s.dropout, embd_pdrop=s.dropout, attn_pdrop=s.dropout, use_cache=False, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        model = cast(Any, GPT2LMHeadModel)(config).to(s.device).train()
        text = tokens(s.gpt_rows, s.gpt_length + 1, s.gpt_vocabulary, 1)

        def continued(ids: Tensor) -> Tensor:
            return model(input_ids=ids).logits

        forward = continued
        inputs, target = (text[:, :-1].contiguous(),), text[:, 1:].contiguous()
    else:
        source, text = (tokens(s.rows, s.length, s.vocabulary, seed) for seed in (1, 2))
        inputs, target = (source, text), text.roll(-1, 1)
        if kind == "torch":
            model = TorchTransformer(s).to(s.device).train()
            forward = model.forward
        else:
            from transformers import MarianConfig, MarianMTModel

            config = MarianConfig(
                vocab_size=s.vocabulary, d_model=s.width, max_position_embeddings=max(64, s.length), encoder_layers=s.layers,
                decoder_layers=s.layers, encoder_attention_heads=s.heads, decoder_attention_heads=s.heads,
                encoder_ffn_dim=s.inner, decoder_ffn_dim=s.inner, dropout=s.dropout, attention_dropout=0.0,
                activation_dropout=0.0, scale_embedding=True, use_cache=False, activation_function="relu", pad_token_id=0,
                eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None,
            )  # fmt: skip
            model = cast(Any, MarianMTModel)(config).to(s.device).train()

            def translated(ids: Tensor, written: Tensor) -> Tensor:
                return model(input_ids=ids, decoder_input_ids=written).logits

            forward = translated

    return plain_loop(s, model, forward, inputs, target, compiled=how == "compiled")


# regard ---------------------------------------------------------------------------------------------------------------


def ours(s: Settings, name: str) -> Step:
    kind, _, variant = name.partition(" ")
    means = REGARD[variant]
    device = torch.device(s.device)
    if kind == "regard-gpt":
        config: Any = GPTConfig(
            width=s.gpt_width, layers=s.gpt_layers, heads=s.gpt_heads, context=s.gpt_length, dropout=s.dropout,
            attention_dropout=s.dropout,
        )  # fmt: skip
        text = tokens(s.gpt_rows, s.gpt_length + 1, s.gpt_vocabulary, 1)
        written, target, vocabulary = text[:, :-1].contiguous(), text[:, 1:].contiguous(), s.gpt_vocabulary
        source = torch.full((s.gpt_rows, 1), 2)
    else:
        places: dict[str, Any] = {"positions": "none", "relative": "rotary"} if "rotary" in means else {}
        config = TransformerConfig(
            width=s.width, inner=s.inner, heads=s.heads, layers=s.layers, dropout=s.dropout, **places
        )
        source, written = (tokens(s.rows, s.length, s.vocabulary, seed) for seed in (1, 2))
        target, vocabulary = written.roll(-1, 1), s.vocabulary
    sizes = {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary, "shared": True}
    model = build_model(config.name, config, **sizes).to(device).train()
    model.output.fused = "loss" in means
    record = "graphs" in means and device.type == "cuda"
    whole = record and "whole" in means
    optimizer = Optimizer(model, TrainConfig(lr=RATE, clip=CLIP), device, record=whole)
    lowered = Lowered(model, getattr(torch, s.dtype)) if "lowered" in means else None

    def finish(loss: Tensor) -> Tensor:
        norm = optimizer.apply(loss)
        if lowered is not None:
            lowered.refresh()
        return norm

    options: dict[str, Any] = {}
    if "compile" in means:
        mode = {"mode": "max-autotune-no-cudagraphs"} if "autotune" in means else {}
        layers = repeated_layers(lowered.model if lowered is not None else model)
        shapes = "static" if "static" in means else "auto"
        options["regions"] = CompiledRegions(layers, shapes=shapes, backend=s.backend, **mode)
    gradients = Gradients(
        model,
        lambda: low(s),
        SMOOTHING,
        record=record,
        compile="compile" in means,
        fuse="layers" in means,
        lowered=lowered,
        finish=finish if whole else None,
        **options,
    )
    gradients.asks_for_padding = "unmasked" in means
    batch = Batch(Padded(source, torch.ones_like(source, dtype=torch.bool)), written, target, [])
    count = target.numel()

    def step(number: int) -> Tensor:
        optimizer.prepare(1.0, number)
        computed = gradients(batch, 1 / count)
        if computed.norm is None:
            finish(computed.loss)
        return computed.loss

    return step


# Measuring ------------------------------------------------------------------------------------------------------------


def operations(s: Settings, gpt: bool) -> tuple[int, int]:
    """Target tokens of a step, and floating-point operations: 6 for each weight and token, and those of attention."""
    if gpt:
        weights = s.gpt_layers * 12 * s.gpt_width**2 + s.gpt_vocabulary * s.gpt_width
        attention = s.gpt_layers * 12 * s.gpt_length * s.gpt_width // 2  # each looks at half of the others
        count = s.gpt_rows * s.gpt_length
    else:
        square, inner = s.width**2, 2 * s.width * s.inner
        weights = s.layers * (4 * square + inner + 8 * square + inner) + s.vocabulary * s.width
        attention = s.layers * 3 * 12 * s.length * s.width
        count = s.rows * s.length
    return count, count * (6 * weights + attention)


def measure(s: Settings, name: str) -> dict[str, Any]:
    cuda = s.device.startswith("cuda")
    wait = torch.cuda.synchronize if cuda else lambda: None
    torch.manual_seed(0)
    torch._dynamo.reset()  # type: ignore[attr-defined]
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    step = (ours if name.startswith("regard") else peer)(s, name)
    made = time.monotonic()
    loss = step(1)
    float(loss)
    first = time.monotonic() - made
    number = 1
    for _ in range(4):  # on CUDA a shape is computed, then recorded, then replayed
        number += 1
        step(number)
    wait()
    times = []
    for _ in range(s.windows):
        start = time.monotonic()
        for _ in range(s.steps):
            number += 1
            loss = step(number)
        wait()
        times.append((time.monotonic() - start) / s.steps)
    if s.profile and cuda:
        profile(s, name, step, number)
    count, work = operations(s, "gpt" in name)
    seconds = statistics.median(times)
    return {
        "case": name,
        "tokens_per_second": round(count / seconds),
        "ms_per_step": round(1000 * seconds, 3),
        "spread": round((max(times) - min(times)) / seconds, 3),
        "tflops": round(work / seconds / 1e12, 1),
        "first_step_seconds": round(first, 2),
        "making_seconds": round(made - began, 2),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if cuda else None,
        "reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2) if cuda else None,
        "loss": round(float(loss), 4),
    }


KINDS = {
    "products": r"gemm|nvjet|cutlass|xmma|cublas|splitK",
    "attention": r"flash|fmha|attention|sdp",
    "loss": r"_cross_entropy|_consistent",
    "optimizer": r"multi_tensor|foreach",
    "compiled": r"^triton_",
    "copies": r"[Mm]emcpy|[Mm]emset|copy",
}


def profile(s: Settings, name: str, step: Step, number: int) -> None:
    """Where a step's time goes: by kind of kernel, and the costliest ones."""
    steps = 3
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for i in range(steps):
            step(number + 1 + i)
        torch.cuda.synchronize()
    rows = [(event.self_device_time_total / steps, event.count / steps, event.key) for event in found.key_averages()]
    kinds: dict[str, list[float]] = {}
    for spent, count, key in rows:
        kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, key)), "other")
        total = kinds.setdefault(kind, [0.0, 0.0])
        total[0], total[1] = total[0] + spent, total[1] + count
    print(json.dumps({"profile": name, "ms": {k: round(t / 1000, 2) for k, (t, _) in sorted(kinds.items())}}))
    for spent, count, key in sorted(rows, reverse=True)[: s.profile]:
        print(f"  {spent / 1000:8.3f} ms {count:7.1f} x {spent / max(count, 1e-9):8.1f} us  {key[:110]}")


def curve(s: Settings, chosen: list[str]) -> None:
    """Losses of the first steps on one batch, with the same start: they have to fall alike."""
    s.dropout, reference = 0.0, None
    for name in ["regard eager", *(name for name in chosen if name.split()[0] == "regard" and name != "regard eager")]:
        torch.manual_seed(0)
        torch._dynamo.reset()  # type: ignore[attr-defined]
        step = ours(s, name)
        losses = [float(step(number)) for number in range(1, s.curve + 1)]
        reference = reference or losses
        apart = max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))
        shown = [round(loss, 4) for loss in losses[:: max(1, s.curve // 8)]]
        print(json.dumps({"case": name, "losses": shown, "apart_at_most": round(apart, 6)}), flush=True)


def table(rows: dict[str, list[dict[str, Any]]]) -> None:
    best: dict[bool, float] = {}
    middle = {name: statistics.median(row["tokens_per_second"] for row in found) for name, found in rows.items()}
    for name, speed in middle.items():
        if not name.startswith("regard"):
            best["gpt" in name] = max(best.get("gpt" in name, 0.0), speed)
    print(f"\n{'case':34} {'tokens/s':>10} {'x best peer':>11} {'TFLOP/s':>8} {'ms':>9} {'first s':>8} {'GB':>6}")
    for name, found in rows.items():
        row = found[-1]
        peer_speed = best.get("gpt" in name)
        ratio = f"{middle[name] / peer_speed:.2f}" if peer_speed else "-"
        memory = "-" if row["peak_gb"] is None else f"{row['peak_gb']:.1f}"
        print(
            f"{name:34} {middle[name]:>10,.0f} {ratio:>11} {row['tflops']:>8} {row['ms_per_step']:>9} "
            f"{found[0]['first_step_seconds']:>8} {memory:>6}"
        )


def main() -> None:
    s = read()
    wanted = [part.strip() for part in s.cases.split(",") if part.strip()]
    chosen = [
        n for n in names() if not wanted or any(n == w or (w[-1] == "*" and n.startswith(w[:-1])) for w in wanted)
    ]
    if not chosen:
        raise SystemExit(f"There is no such case. The cases: {', '.join(names())}")
    if s.device == "cpu" and s.dtype != "float32":
        raise SystemExit("bfloat16 ends the process on some CPUs: use --dtype float32")
    import transformers

    if s.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")  # for all cases alike
    where = (
        torch.cuda.get_device_name()
        if s.device.startswith("cuda")
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    print(
        json.dumps(
            {"device": where, "torch": torch.__version__, "transformers": transformers.__version__, **vars(s)},
            default=str,
        )
    )
    if s.curve:
        curve(s, chosen)
        return
    rows: dict[str, list[dict[str, Any]]] = {}
    failed: list[str] = []
    for _ in range(s.turns):
        for name in chosen:
            try:
                row = measure(s, name)
            except Exception as error:  # the others are still worth their time
                print(json.dumps({"case": name, "error": f"{type(error).__name__}: {error}"[:400]}), flush=True)
                failed.append(name)
                continue
            print(json.dumps(row), flush=True)
            rows.setdefault(name, []).append(row)
    table(rows)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
