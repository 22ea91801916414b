"""Attention in a decoding step of very many hypotheses: each way to cut its programs timed by itself.

    python benchmarks/crowd_attention.py [--sentences 512 --beams 4 --heads 8 --width 64] [--span 32 --source 32] [--seconds 60]
    TRITON_INTERPRET=1 python benchmarks/crowd_attention.py --device cpu --sentences 3 --beams 2 --heads 2 --width 16 --span 12 \
        --source 9 --candidates 2 --launches 1 --replays 1

"back" is attention over the text so far (`attention.attend_cache`), at a quarter, a half, three quarters and the end of `--span`
tokens, and the mean of these; "over" is that over the source (`attention.attend_memory`). Which cached slots are seen follows from
beams whose hypotheses each go on from one that is drawn. Numbers are bfloat16 on CUDA. The present way comes first, then others
(`attention.Cut`: places x warps x stages x whether slots that nobody sees are skipped). Each is compared with the reference and
launched some times inside one CUDA graph, over caches that the GPU's own does not hold together; the median of its replays counts.
One JSON line for each, a table of the fastest last. After --seconds nothing new is begun.

Alone, a way may be fast that is not so inside a step: `decode_gpu.py --kernels on,on+turn128+lookers4+skips1` decides.
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

from looking_logits_tiles import NO_TIME, seconds
from regard.core.processors import processors
from regard.layers.decoding import attention
from regard.layers.decoding.attention import Cut
from regard.layers.decoding.triton_here import bound_to, power_of_2

CACHE = 200 << 20  # bytes that inputs should have together
SHOWN = 6
LENGTHS = (0.25, 0.5, 0.75, 1.0)  # of the span
SCALE = 0.125


class Kind(NamedTuple):
    """Attention of one kind: what it is given, its reference, and how it can be cut."""

    name: str
    call: Callable[..., Tensor]
    plainly: Callable[..., Tensor]
    given: list[list[tuple[Any, ...]]]  # for each length, some that do not fit a cache together
    cuts: list[Cut]


def hidden_slots(s: argparse.Namespace, capacity: int, length: int, device: torch.device) -> Tensor:
    """0 where a hypothesis finds its own past, and -inf elsewhere: as a search leaves it."""
    draw = torch.Generator().manual_seed(length)
    slots = torch.full((s.sentences, s.beams, capacity, s.beams), float("-inf"))
    slots[:, :, 0] = torch.eye(s.beams).log()
    for place in range(1, length + 1):
        parents = torch.randint(s.beams, (s.sentences, s.beams), generator=draw)
        slots[:, :, :place] = slots[torch.arange(s.sentences)[:, None], parents, :place]
        if place < capacity:
            slots[:, :, place] = torch.eye(s.beams).log()
    return slots.flatten(2).to(device)


def back(s: argparse.Namespace, device: torch.device, low: torch.dtype) -> Kind:
    capacity = s.span + 1
    cache = (s.sentences, s.heads, capacity, s.beams, s.width)
    copies = 1 if device.type == "cpu" else -(-CACHE // (2 * torch.Size(cache).numel() * low.itemsize))
    given = []
    for part in LENGTHS:
        length = max(1, round(part * s.span))
        hidden = hidden_slots(s, capacity, length, device).to(low)
        positions = torch.full((s.sentences,), length, device=device)
        given.append(
            [
                (
                    torch.randn(s.sentences * s.beams, 3 * s.heads * s.width, device=device).to(low),
                    *(torch.randn(cache, device=device).to(low) for _ in range(2)),
                    hidden,
                    positions,
                    s.heads,
                    SCALE,
                    length + 1,
                )
                for _ in range(copies)
            ]
        )
    cuts = [Cut(*one) for one in itertools.product((64, 128), (2, 4, 1), (2, 1, 3), (False, True))]
    return Kind("back", attention.attend_cache, attention._attend_cache_plainly, given, first(attention.BACK, cuts))


def over(s: argparse.Namespace, device: torch.device, low: torch.dtype) -> Kind:
    memory = (s.sentences, s.heads, s.source, s.width)
    copies = 1 if device.type == "cpu" else -(-CACHE // (2 * torch.Size(memory).numel() * low.itemsize))
    keep = torch.ones(s.sentences, s.source, dtype=torch.bool, device=device)
    given = [
        (
            torch.randn(s.sentences * s.beams, s.heads * s.width, device=device).to(low),
            *(torch.randn(memory, device=device).to(low) for _ in range(2)),
            keep,
            SCALE,
        )
        for _ in range(copies)
    ]
    whole = max(16, power_of_2(s.source))  # more places in a turn are the same program
    cuts = [Cut(min(places, whole), *rest) for places in (64, 16) for rest in itertools.product((2, 1, 4), (2, 1, 3))]
    now = attention.OVER._replace(places=min(attention.OVER.places, whole))
    return Kind("over", attention.attend_memory, attention._attend_memory_plainly, [given], first(now, cuts))


def first(now: Cut, others: list[Cut]) -> list[Cut]:
    return list(dict.fromkeys([now, *others]))


def taken(kind: Kind, cut: Cut) -> Callable[..., Tensor]:
    """Attention with programs that are cut so. Several threads may ask for several at once."""

    def call(*given: Any) -> Tensor:
        return kind.call(*given, cut=cut)

    return call


def measure(kind: Kind, s: argparse.Namespace, until: float) -> Iterator[dict[str, Any]]:
    device = torch.device(s.device)
    cuts = kind.cuts[: s.candidates or None]
    some = kind.given[-1][0]
    expected = kind.plainly(*(one.clone() if isinstance(one, Tensor) and one.is_contiguous() else one for one in some))

    def compiled(cut: Cut) -> str:
        """What is wrong with it, in words."""
        try:
            apart = (taken(kind, cut)(*some) - expected).abs().max().item()
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
        return "" if apart <= (0.05 if some[0].element_size() == 2 else 1e-4) else f"another result, by {apart:.3g}"

    with ThreadPoolExecutor(
        processors() if device.type == "cuda" else 1, initializer=bound_to, initargs=(device,)
    ) as pool:
        wrong = dict(zip(cuts, pool.map(compiled, cuts), strict=True))
    for cut in cuts:
        row: dict[str, Any] = {"kind": kind.name, "way": "x".join(str(int(one)) for one in cut)}
        error = wrong[cut] or (NO_TIME if time.monotonic() > until else "")
        if not error:
            try:
                each = [round(1e6 * seconds(taken(kind, cut), given, s), 1) for given in kind.given]
                row |= {"microseconds": round(statistics.fmean(each), 1), "each": each}
            except Exception as failure:  # the others are still worth their time
                error = f"{type(failure).__name__}: {failure}"[:200]
        yield row | ({"error": error} if error else {})


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'kind':6}{'places x warps x stages x skips':34}{'us':>8}"]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        done = [row for row in rows if row["kind"] == kind and "microseconds" in row]
        now, best = done[:1], sorted(done[1:], key=lambda row: row["microseconds"])[:SHOWN]
        lines += [f"{kind:6}{row['way']:34}{row['microseconds']:8.1f}" for row in (*now, *best)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    for name, number in (("sentences", 512), ("beams", 4), ("heads", 8), ("width", 64), ("span", 32), ("source", 32)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--candidates", type=int, default=0, help="at most; 0: all")
    parser.add_argument("--launches", type=int, default=50, help="inside one recording")
    parser.add_argument("--replays", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    s = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device(s.device)
    machine = torch.cuda.get_device_name() if s.device == "cuda" else platform.platform()
    print(json.dumps({"machine": machine, "torch": torch.__version__, **vars(s)}))
    rows, until = [], time.monotonic() + s.seconds
    with torch.inference_mode():
        for kind in (back, over):
            for row in measure(kind(s, device, torch.bfloat16 if s.device == "cuda" else torch.float32), s, until):
                rows.append(row)
                print(json.dumps(row), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
