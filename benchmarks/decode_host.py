"""What the host does in a search, besides handing recorded steps to a device.

    python benchmarks/decode_host.py [--against OTHER/src] [--profile] [--sentences 64,512,2048 --rows 512]

needs no GPU: what a tiny Transformer's recorded steps tell the host is remembered and told once more, and the time of that is left
out. What remains is the host's own work: it checks and sorts sentences, makes tensors of those that enter, looks, and makes texts
of those that are done. It is given in microseconds of processor time per sentence, greedy and with a beam of 4; `reading` is the
part that hands the reading of sources, where that is not recorded, to the device. Up to `--rows` sentences are one batch, with
texts of 32 tokens; more of them flow through the places of one batch, with texts as long as their sources. `--against` times the
package of another tree in turns, each in a process of its own; a ratio is the median over rounds.

`decode_gpu.py --host` uses the rest: where a search on a GPU spends its time, before the first replay, until the last, until the
last look, and after it.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from regard.core.types import EOS, pad_rows
from regard.models.base import build_model
from regard.models.transformer import TransformerConfig
from regard.search import SearchConfig, looks, replay, search, search_many
from regard.search.step import Step

SEARCHES = 20
FUNCTIONS = 25
ROUNDS = 3
TOKENS = 32
VOCABULARY = 50
FIRST_WORD = 4  # after the special tokens


@contextlib.contextmanager
def watched(where: Any, name: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[list[Any]]:
    """When each call of a method began and ended."""
    found: list[tuple[float, float]] = []
    usual = getattr(where, name)

    def call(*arguments: Any, **named: Any) -> Any:
        begin = clock()
        result = usual(*arguments, **named)
        found.append((begin, clock()))
        return result

    setattr(where, name, call)
    try:
        yield found
    finally:
        setattr(where, name, usual)


def host_times(run: Callable[[], Any], wait: Callable[[], None]) -> dict[str, float]:
    """Medians over some searches, in microseconds; `wait` waits for the device. Nothing where nothing is replayed.

    A replay is all that is handed to the device as one recording: a step, or the reading of sources. `waiting`: for looks.
    """
    parts: list[dict[str, float]] = []
    with watched(replay.Replayed, "_run") as replays, watched(looks.Look, "get") as gets:
        for _ in range(SEARCHES):
            wait()
            replays.clear()
            gets.clear()
            begin = time.perf_counter()
            run()
            end = time.perf_counter()
            if replays and gets:
                first, last, seen = replays[0][0], replays[-1][1], gets[-1][1]
                marks = {"total": end - begin, "before_the_first_replay": first - begin, "first_to_last": last - first}
                marks |= {"last_to_last_look": seen - last, "after_the_last_look": end - seen}
                marks |= {"waiting": sum(b - a for a, b in gets), "replays": len(replays) / 1e6}
                parts.append(marks)
    return {name: round(1e6 * statistics.median(one[name] for one in parts), 1) for name in (parts[0] if parts else ())}


def host_profile(run: Callable[[], Any], searches: int = SEARCHES) -> str:
    """The functions that take most time by themselves, over some searches; waiting for the device is one of them."""
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(searches):
        run()
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(FUNCTIONS)
    lines = [line[:150] for line in text.getvalue().splitlines() if line.strip()]
    return "\n".join(lines)


class Again:
    """In place of CUDA graphs: what is recorded is done again as it was."""

    def record(self, function: Callable[[], None], tensors: list[torch.Tensor]) -> Callable[[], None]:
        return function


class Remembered:
    """What a search's recorded parts told the host, in their order: for the same search once more, in which none of them is run."""

    def __init__(self) -> None:
        self._told: list[list[torch.Tensor] | None] = []  # None: nobody was done by it
        self._next = 0
        self._usual = replay.Replayed._run

    def learn(self, run: Callable[[], Any]) -> None:
        def learning(replayed: Any, *arguments: Any) -> None:
            before = replayed.work.done.clone()
            self._usual(replayed, *arguments)
            same = bool((before == replayed.work.done).all()) and self._told
            self._told.append(None if same else [leaf.clone() for leaf in replayed.told.leaves()])

        self._with(learning, run)

    def again(self, run: Callable[[], Any]) -> tuple[float, float]:
        """The host's seconds, and those of them in which it hands the reading of sources to the device."""
        clock, inside = time.thread_time, 0.0

        def telling(replayed: Any, *_: Any) -> None:
            nonlocal inside
            begin = clock()
            told, self._next = self._told[self._next], self._next + 1
            if told is not None:
                for mine, leaf in zip(replayed.told.leaves(), told, strict=True):
                    mine.copy_(leaf)
            inside += clock() - begin

        self._next = 0
        with watched(Step, "begin", clock) as readings:
            begin = clock()
            self._with(telling, run)
            whole = clock() - begin
        return whole - inside, sum(b - a for a, b in readings)

    def _with(self, instead: Any, run: Callable[[], Any]) -> None:
        replay.Replayed._run = instead
        try:
            run()
        finally:
            replay.Replayed._run = self._usual


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", default="64,512,2048", help="by commas")
    parser.add_argument("--rows", type=int, default=512, help="places of a batch")
    parser.add_argument("--beams", default="1,4", help="by commas")
    parser.add_argument("--searches", type=int, default=15, help="of which the median is taken")
    parser.add_argument("--against", type=Path, help="the folder of another version's package")
    parser.add_argument("--profile", action="store_true", help="also the costliest functions")
    parser.add_argument("--json", action="store_true", help="numbers only")
    return parser.parse_args()


def searches(args: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """What is timed: its name, how many sentences it has, and itself."""
    torch.manual_seed(0)
    shape = TransformerConfig(width=16, inner=16, heads=2, layers=1)
    model = build_model(
        "transformer", shape, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, shared=True
    ).eval()
    for count in map(int, args.sentences.split(",")):
        flows = count > args.rows
        generator = torch.Generator().manual_seed(count)
        lengths = torch.randint(3 if flows else TOKENS - 1, TOKENS, (count,), generator=generator).tolist()
        sources = [[*torch.randint(FIRST_WORD, VOCABULARY, (n,), generator=generator).tolist(), EOS] for n in lengths]
        for beam in map(int, args.beams.split(",")):
            limits: dict[str, Any] = {"max_ratio": 1.0, "max_extra": 1, "max_length": TOKENS, "min_length": TOKENS}
            config = SearchConfig(beam=beam, max_repeat=0, ban_unknown=False, **limits)
            if flows:
                yield (
                    f"{count} sentences through {args.rows} places, beam {beam}",
                    count,
                    _flow(model, sources, config, args),
                )
            else:
                yield f"{count} sentences, beam {beam}", count, _batch(model, sources, config)


def _batch(model: Any, sources: list[list[int]], config: SearchConfig) -> Callable[[], Any]:
    source = pad_rows(sources)
    return lambda: search(model, source, config)


def _flow(model: Any, sources: list[list[int]], config: SearchConfig, args: argparse.Namespace) -> Callable[[], Any]:
    return lambda: dict(search_many(model, sources, config, rows=args.rows))


def per_sentence(run: Callable[[], Any], sentences: int, times: int) -> dict[str, float]:
    """The host's microseconds, without those of what is recorded."""
    for _ in range(2):  # the second records
        run()
    remembered = Remembered()
    remembered.learn(run)
    found = [remembered.again(run) for _ in range(times)]
    host, reading = (1e6 / sentences * statistics.median(part) for part in zip(*found, strict=True))
    return {"host": host, "reading": reading}


def here(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    replay.CAPTURES["cpu"] = Again
    found = {}
    for name, sentences, run in searches(args):
        found[name] = per_sentence(run, sentences, args.searches)
        if args.profile:
            print(f"\n{name}\n{host_profile(run, args.searches)}")
    return found


def elsewhere(package: Path, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The same with the package of a tree, in a process of its own."""
    same = ("sentences", "rows", "beams", "searches")
    command = [sys.executable, __file__, "--json", *(f"--{name}={getattr(args, name)}" for name in same)]
    output = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True, check=True
    )
    return json.loads(output.stdout)


def main() -> None:
    args = options()
    if args.against is None:
        found = here(args)
        if args.json:
            print(json.dumps(found))
            return
        print("| microseconds a sentence | host | reading |\n|---|---:|---:|")
        for name, times in found.items():
            print(f"| {name} | {times['host']:.1f} | {times['reading']:.1f} |")
        return
    own = Path(looks.__file__).parents[2]
    rounds = [(elsewhere(args.against, args), elsewhere(own, args)) for _ in range(ROUNDS)]
    print("| host's microseconds a sentence | before | after | ratio |\n|---|---:|---:|---:|")
    for name in rounds[0][0]:
        before, after = ([one[side][name]["host"] for one in rounds] for side in range(2))
        ratio = statistics.median(a / b for a, b in zip(before, after, strict=True))
        print(f"| {name} | {statistics.median(before):.1f} | {statistics.median(after):.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
