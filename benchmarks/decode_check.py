"""Whether steps made of few kernels (`search.fused`) find the n-best lists that plain steps find, on the machine at hand.

    python benchmarks/decode_check.py [--device cuda] [--width 512 --layers 6 --heads 8 --vocabulary 32000]
                                      [--kernels on,whole,whole+early]

Random models of float32, without TF32, so that rounding seldom decides: a Transformer (norm before and after) and a GPT; greedy
and with beams, in batches of 1, 3, 9 and 70 (which takes every kind of kernel but that for a crowd of rows), sources of different
lengths, forced beginnings, steps recorded and not. A list that differs while all of its scores agree to 0.001 is a tie; any other
is different, and then the check has failed. A way that has a kernel for 16-bit numbers alone ("looks") is checked on a GPU in
float16, where scores may be 0.02 apart, and only if such a kernel has run. On a CPU the kernels' references are compared, or with
TRITON_INTERPRET=1 the kernels. One JSON line for each case.

Kernels can be used in several ways, each checked with models of its own; what a name means says `Way`. Those that are for few rows
are checked with few sentences. `--quick` takes three searches of four sentences, one at a time, or where a way is for many rows, of
70 at once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from regard.core.types import EOS, pad_rows
from regard.layers.decoding import (
    attention,
    kernel_choice,
    looking_logits,
    many_logits,
    narrow_attention,
    products,
    triton_here,
    vocabulary,
    whole_feed_forward,
)
from regard.layers.decoding.kernel_choice import Kernels
from regard.models.base import build_model
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig
from regard.search import Hypothesis, SearchConfig, fast_steps, search

FIRST_WORD = 4
BATCHES, FEW_BATCHES = (1, 3, 9, 70), (1, 2)
AT_LEAST = 4  # sentences
TIE, TIE_OF_16_BITS = 1e-3, 0.02
LIMITS: dict[str, Any] = {"max_ratio": 1.0, "max_extra": 4, "max_length": 24, "fused": True}
SEARCHES = {
    "greedy": SearchConfig(beam=1, **LIMITS),
    "beam 4": SearchConfig(beam=4, nbest=4, **LIMITS),
    "beam 5, exact": SearchConfig(beam=5, nbest=5, stop="exact", min_length=4, max_repeat=1, **LIMITS),
}

QUICK: dict[str, tuple[tuple[int, ...], list[str]]] = {
    "transformer, pre": ((1,), ["greedy", "beam 4"]),
    "gpt": ((1,), ["greedy"]),
}  # batches and searches of models

NUMBERED: dict[str, list[tuple[Any, ...]]] = {
    "few": [(fast_steps, "FEW_ROWS")],
    "singly": [(where, "FEWEST") for where in (products, vocabulary, fast_steps)],
    "group": [(vocabulary, "GROUP")],
    "slices": [(whole_feed_forward, name) for name in ("SLICES", "SLICES_OF_ROWS")],
    "places": [(narrow_attention, "PLACES")],
    "turn": [(attention, "BACK", "places")],
    "lookers": [(attention, "BACK", "warps")],
    "stages": [(attention, "BACK", "stages")],
    "skips": [(attention, "BACK", "skips")],
    "from": [(attention, "CROWD")],
    "overers": [(attention, "OVER", "warps")],
    "overstages": [(attention, "OVER", "stages")],
    "part": [(vocabulary, "CROWD_PART")],
    "readers": [(vocabulary, "CROWD_WARPS")],
    "crowd": [(kernel_choice, "FEWEST_LOOKING")],
}  # words with a number, and what it is of: of a tuple with names, the name


LOOKING_LAUNCHES: Counter[str] = Counter()  # by the names of ways


class Way:
    """How kernels are used, by words with "+" between them.

    - "on": as they are by default, which is what users get; "off": not at all; "parts": a few kernels for each sub-layer, none of
      which starts before the one before it has ended;
    - "early", "whole", "ahead", "tiles", "narrow", "aligned", "looks": what kernel_choice.Kernels says of these; together with
      "on", the rest is as it is by default, and otherwise as in "parts"; "looks" is then for few rows and wide states, too;
      "slicesN": so many programs share a feed-forward sub-layer of "whole"; "placesN": of "narrow", a program looks at so many
      places in a turn; "turnN", "lookersN", "stagesN", "skips1": of those that look back where they are a crowd, all that
      `attention.Cut` says, and "overersN", "overstagesN" of those that look over the source; "fromN": N programs are a crowd (with
      "from1", all, also in the small batches of a check); "partN",
      "readersN": tokens and warps of a program that reads logits, from `vocabulary.CROWD` rows on;
    - "crowdN": from N rows on (`kernel_choice.FEWEST_LOOKING`), the product with the vocabulary looks at its logits;
    - "fewN": up to N rows (`fast_steps.FEW_ROWS`), kernels have the products in them;
    - "singlyN": up to N rows (`products.FEWEST`) are multiplied one by one in these, and more by tensor cores;
    - "groupN": of tensor cores, a program has N tokens of the vocabulary (`vocabulary.GROUP`).
    """

    def __init__(self, name: str):
        self.name, self.words, self.fused = name, name.split("+"), name != "off"
        self.whole = "whole" in self.words
        self.aligned = "aligned" in self.words
        self.looks = "looks" in self.words
        self.many = self.aligned or self.looks or "narrow" in self.words
        named = {"on", "off", "parts", *Kernels._fields}
        numbered = [re.fullmatch(r"([a-z]+)(\d+)", word) for word in self.words if word not in named]
        self.numbers = {found[1]: int(found[2]) for found in numbered if found}
        if not (all(numbered) and set(self.numbers) <= set(NUMBERED)) or ("off" in self.words and len(self.words) > 1):
            words = f"on, parts, {', '.join(Kernels._fields)}, {', '.join(f'{word}N' for word in NUMBERED)}"
            raise SystemExit(f"--kernels {name}: not off, nor some of {words} with + between them")

    def used(self, model: Any) -> bool:
        """Whether all searches with a model could be taken so."""
        missing = self.looks and triton_here.usable("cuda") and not LOOKING_LAUNCHES[self.name]
        return self.fused and fast_steps.works(model) and not fast_steps.left_out(model) and not missing

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Everything that is done in it is done so."""
        forced = {name: name in self.words for name in Kernels._fields if name in self.words or "on" not in self.words}
        changes: list[tuple[Any, str, Any]] = [(kernel_choice, "FORCED", forced)]
        changes += [(kernel_choice, "FEWEST_LOOKING", 1), (looking_logits, "WIDEST", 1 << 16)] if self.looks else []
        cuts: dict[str, Any] = {}
        for word, number in self.numbers.items():
            for where, name, *field in NUMBERED[word]:
                if field:  # several words may be of one tuple
                    cuts[name] = cuts.get(name, getattr(where, name))._replace(**{field[0]: number})
                changes.append((where, name, cuts.get(name, number)))
        changes.append((looking_logits, "launch", self._counted(looking_logits.launch)))
        usual = [(where, name, getattr(where, name)) for where, name, _ in changes]
        try:
            for where, name, value in changes:
                setattr(where, name, value)
            yield
        finally:
            for where, name, value in usual:
                setattr(where, name, value)

    def _counted(self, launch: Callable[..., None]) -> Callable[..., None]:
        def counting(*arguments: Any, **named: Any) -> None:
            LOOKING_LAUNCHES[self.name] += 1
            launch(*arguments, **named)

        return counting


def models(width: int, layers: int, heads: int, vocabulary: int, device: str) -> dict[str, Any]:
    """Wide enough apart in what they say that texts end by themselves."""
    shape: dict[str, Any] = {"width": width, "layers": layers, "heads": heads}
    configs: dict[str, Any] = {
        "transformer, pre": TransformerConfig(inner=4 * width, **shape),
        "transformer, post": TransformerConfig(inner=4 * width, norm="post", activation="gelu", **shape),
        "gpt": GPTConfig(context=128, **shape),
    }
    found = {}
    for name, config in configs.items():
        torch.manual_seed(0)
        model = build_model(
            config.name, config, source_vocabulary=vocabulary, target_vocabulary=vocabulary, shared=True
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
        found[name] = model.eval().to(device)
    return found


def texts(rows: int, vocabulary: int) -> tuple[list[list[int]], list[list[int]]]:
    """Sources of 1 to 20 tokens, and beginnings of 1 to 3."""
    generator = torch.Generator().manual_seed(rows)
    drawn = torch.randint(FIRST_WORD, vocabulary, (rows, 23), generator=generator).tolist()
    sources = [[*row[: 1 + i % 20], EOS] for i, row in enumerate(drawn)]
    return sources, [row[20 : 21 + i % 3] for i, row in enumerate(drawn)]


def compared(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], tie: float = TIE) -> dict[str, int]:
    counts = {"equal": 0, "ties": 0, "different": 0}
    for ours, theirs in zip(found, expected, strict=True):
        near = len(ours) == len(theirs) and all(
            abs(a.score - b.score) <= tie * max(1.0, abs(b.score)) for a, b in zip(ours, theirs, strict=True)
        )
        same = [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in theirs]
        counts["equal" if near and same else "ties" if near else "different"] += 1
    return counts


def check(width: int, layers: int, heads: int, vocabulary: int, device: str, way: Way, quick: bool = False) -> bool:
    """Prints what is found; true where nothing differs, and kernels were used throughout."""
    precision, tf32 = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32
    usual = set(fast_steps.DEVICES)
    torch.set_float32_matmul_precision("highest")
    fast_steps.DEVICES.add(device)
    try:
        vocabulary -= way.aligned and vocabulary % many_logits.ROUND == 0  # otherwise there is nothing to align
        found = models(width, layers, heads, vocabulary, device)
        if way.looks and device == "cuda":
            found = {name: model.half() for name, model in found.items()}
        batches = FEW_BATCHES if way.whole else BATCHES
        wanted = {name: (batches, list(SEARCHES)) for name in found}
        if quick:
            wanted = {name: (BATCHES[-1:] if way.many else few, methods) for name, (few, methods) in QUICK.items()}
        with way.taken():
            done = [
                _check(name, found[name], case, device, way, vocabulary)
                for name, (batches, methods) in wanted.items()
                for case in cases(batches, methods, quick)
            ]
        return all(done)
    finally:
        fast_steps.DEVICES.intersection_update(usual)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cuda.matmul.allow_tf32 = tf32


class Case(NamedTuple):
    batch: int
    search: str
    forced: bool
    recorded: bool


def cases(batches: tuple[int, ...], methods: list[str], quick: bool) -> Iterator[Case]:
    for batch in batches:
        for method in methods:
            for forced in (True,) if quick else (False, True):
                for recorded in (True,) if quick else (False, True):
                    yield Case(batch, method, forced, recorded)


def _check(name: str, model: Any, case: Case, device: str, way: Way, vocabulary: int) -> bool:
    config = SEARCHES[case.search]
    plain = dataclasses.replace(config, fused=False, capture=False)
    counts = {"equal": 0, "ties": 0, "different": 0}
    sources, beginnings = texts(max(case.batch, AT_LEAST), vocabulary)
    for first in range(
        0, len(sources), case.batch
    ):  # what is the same in the second batch on was recorded in the first
        some = slice(first, first + case.batch)
        source, forced = pad_rows(sources[some]).to(device), beginnings[some] if case.forced else None
        expected = search(model, source, plain, forced)
        ours = dataclasses.replace(config, capture=case.recorded)
        times = 2 if case.recorded else 1  # recorded, then replayed from the beginning
        tie = TIE if next(model.parameters()).dtype == torch.float32 else TIE_OF_16_BITS
        found = [compared(search(model, source, ours, forced), expected, tie) for _ in range(times)][-1]
        counts = {key: counts[key] + found[key] for key in counts}
    used = way.used(model)
    print(json.dumps({"check": name, "way": way.name, **case._asdict(), "kernels": used, **counts}), flush=True)
    return used and not counts["different"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, size in (("width", 512), ("layers", 6), ("heads", 8), ("vocabulary", 32_000)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--kernels", default="on", help="ways by commas: see Way")
    parser.add_argument(
        "--quick", action="store_true", help="one sentence at a time, forced and recorded, three searches"
    )
    args = parser.parse_args()
    ways = [Way(name) for name in args.kernels.split(",") if name != "off"]
    shape = args.width, args.layers, args.heads, args.vocabulary, args.device
    wrong = [way.name for way in ways if not check(*shape, way, args.quick)]
    if wrong:
        raise SystemExit(f"fused steps differ from plain ones, or did not run ({', '.join(wrong)}): see above")
    print("fused steps find what plain ones find")


if __name__ == "__main__":
    main()
