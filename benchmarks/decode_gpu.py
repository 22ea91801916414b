"""How fast text is written on a GPU: regard's search against Hugging Face `generate`, and with recorded steps against without.

    python benchmarks/decode_gpu.py [--cases transformer,gpt] [--kernels both] [--check [quick]] [--profile] [--host]
                                    [--device cpu --width 64 --layers 2 --vocabulary 500 ...]

- "transformer": the base shape of Vaswani et al. 2017 (width 512, inner 2048, 8 heads, 6 + 6 layers, vocabulary 32,000) against
  Marian of the same shape, greedy and with a beam of 4, in batches of 1, 64 and 512;
- "rotary": the same with rotary positions instead of sinusoids;
- "gpt": GPT-2 small, greedy, in batches of 1 and 64, each after a prompt, against Hugging Face's GPT-2;
- "bahdanau", "gnmt", "convs2s": regard with steps replayed (`search.capture`) against regard without;
- "flow": many sentences of different lengths through `search_many`, whose batch is kept full, against `search` in batches.

Weights are random, in bfloat16 on CUDA and float32 elsewhere; recurrent models, whose states need more than 16 bits, are in float32
everywhere, on CUDA with TF32 products. EOS is forbidden until `--tokens` tokens are written, and then texts
are cut, for both: so both write exactly as many. (regard takes a step more, in which a text may still end.) The peer runs as it
comes: `generate` with its cache, under inference mode; `--peer static` gives it a static cache, which compiles its step. After a
warm-up of each, both are timed in turns; a time is the median over rounds, and a ratio the median of the ratios within rounds.
One JSON line per case, a table at the end.

Of the Transformer and the GPT, several ways can be timed in the same turns, by commas: `--kernels off,on,parts,early`. "off": the
model's own operations, recorded; "on": steps made of few kernels (`search.fused`) as well, as users get them ("both": these two);
of the others tells `Way` in decode_check.py.
`kernels` says whether they were found to work. `agree` is how much of the texts is the same as in the first way, `apart` the mean
difference of scores: random weights make many near ties. `first_seconds` is the first search of a shape, with all that is compiled
for it. `--profile` adds the costliest kernels of a search in each way, and `--host` where the host's time goes (decode_host.py).
`--check` first compares n-best lists in each way with those of plain steps (decode_check.py), `--check quick` those of a few
searches; a way in which they differ, or kernels do not run, is not timed, and the end is an error.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from decode_check import Way, check
from decode_host import host_profile, host_times
from regard.core.types import BOS, EOS, PAD, pad_rows
from regard.models.bahdanau import BahdanauConfig
from regard.models.base import build_model
from regard.models.convs2s import ConvS2SConfig
from regard.models.gnmt import GNMTConfig
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig
from regard.search import Hypothesis, SearchConfig, search, search_many
from regard.search.text_scores import no_source

FIRST_WORD = 4  # after the special tokens
PROFILED = 25  # kernels


class Case(NamedTuple):
    """Something that regard and a peer do, and how many tokens that writes."""

    name: str
    peer: str
    tokens: int
    steps: int
    ours: dict[str, Callable[[], Any]]  # in one way or several
    theirs: Callable[[], Any] | None
    models: dict[str, Any] = {}  # of ways  # noqa: RUF012


def ways(args: argparse.Namespace) -> list[Way]:
    return [Way(name) for name in args.kernels.replace("both", "off,on").split(",")]


def taken_by(model: Any, args: argparse.Namespace) -> dict[Way, Any]:
    """Each way with a model of its own: recordings are kept with models."""
    return {way: model if i == 0 else copy.deepcopy(model) for i, way in enumerate(ways(args))}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="transformer,gpt,bahdanau,gnmt,convs2s,flow", help="which, by commas")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--gpt", default="768,12,12", help="width, layers and heads of the GPT")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--gpt-vocabulary", type=int, default=50_257)
    parser.add_argument("--batches", default="1,64,512", help="batch sizes, by commas; the GPT takes those up to 64")
    parser.add_argument("--beams", default="1,4", help="beams, by commas; the GPT is greedy")
    parser.add_argument("--source", type=int, default=32, help="tokens of a source, or of a prompt")
    parser.add_argument("--tokens", type=int, default=32, help="tokens to write")
    parser.add_argument("--sentences", type=int, default=2048, help="of the flow")
    parser.add_argument("--kernels", default="both", help="on, off, both, or ways by commas: see above")
    parser.add_argument(
        "--check",
        nargs="?",
        const="full",
        choices=("full", "quick"),
        help="first see that kernels find the same n-best lists, in all kinds of searches or in a few",
    )
    parser.add_argument("--profile", action="store_true", help="also list the costliest kernels of each case")
    parser.add_argument("--host", action="store_true", help="also say where the host's time goes in each case")
    parser.add_argument("--peer", choices=("plain", "static", "none"), default="plain")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def numbers(args: argparse.Namespace) -> torch.dtype:
    return torch.bfloat16 if args.device == "cuda" else torch.float32


def ready(model: Any, args: argparse.Namespace) -> Any:
    recurrent = any(isinstance(module, torch.nn.RNNBase) for module in model.modules())
    return model.eval().to(args.device, torch.float32 if recurrent else numbers(args))


def translator(config: Any, args: argparse.Namespace) -> Any:
    torch.manual_seed(0)
    size = args.vocabulary
    return ready(build_model(config.name, config, source_vocabulary=size, target_vocabulary=size, shared=True), args)


def sources(rows: int, args: argparse.Namespace, shortest: int = 0) -> list[list[int]]:
    """Random sentences, all as long as wanted, or from a shortest length on."""
    generator = torch.Generator().manual_seed(rows)
    longest = args.source - 1
    lengths = torch.randint(shortest or longest, longest + 1, (rows,), generator=generator).tolist()
    return [[*torch.randint(FIRST_WORD, args.vocabulary, (n,), generator=generator).tolist(), EOS] for n in lengths]


def exactly(args: argparse.Namespace, beam: int, capture: bool = True, fused: bool = False) -> SearchConfig:
    """As many tokens as wanted; no guard against repetition, which the peer has not."""
    limits: dict[str, Any] = {
        "max_ratio": 0.0,
        "max_extra": args.tokens,
        "max_length": args.tokens,
        "min_length": args.tokens,
    }
    return SearchConfig(beam=beam, max_repeat=0, ban_unknown=False, capture=capture, fused=fused, **limits)


def sizes(args: argparse.Namespace, most: int = 1 << 30) -> list[int]:
    return [size for size in map(int, args.batches.split(",")) if size <= most]


def cases(args: argparse.Namespace) -> Iterator[Case]:
    wanted = args.cases.split(",")
    beams = list(map(int, args.beams.split(",")))
    if "transformer" in wanted:
        yield from transformer_cases(args, beams, "transformer")
    if "rotary" in wanted:
        yield from transformer_cases(args, beams, "rotary", positions="none", relative="rotary")
    if "gpt" in wanted:
        yield from gpt_cases(args)
    width = args.width
    own: dict[str, Any] = {
        "bahdanau": BahdanauConfig(embedding=width, width=2 * width),
        "gnmt": GNMTConfig(width=2 * width, layers=4),
        "convs2s": ConvS2SConfig(embedding=width, width=width, layers=8, max_length=1024),
    }
    for name, config in own.items():
        if name in wanted:
            yield from own_cases(args, beams, config)
    if "flow" in wanted:
        yield from flow_cases(args, beams)


def transformer_cases(args: argparse.Namespace, beams: list[int], kind: str, **more: Any) -> Iterator[Case]:
    shape: dict[str, Any] = {"width": args.width, "inner": 4 * args.width, "heads": args.heads, "layers": args.layers}
    all_ways = taken_by(translator(TransformerConfig(**shape, **more), args), args)
    peer = None if args.peer == "none" else marian(args)
    for rows in sizes(args):
        source = pad_rows(sources(rows, args)).to(args.device)
        for beam in beams:

            def ours(way, source=source, beam=beam):
                with way.taken():
                    return search(all_ways[way], source, exactly(args, beam, fused=way.fused))

            def theirs(source=source, beam=beam):
                written = generate(peer, args, beam, input_ids=source.tokens, attention_mask=source.keep.long())
                return written[:, 1:].tolist()

            name = f"{kind}, batch {rows}, beam {beam}"
            runs = {way.name: lambda way=way, ours=ours: ours(way) for way in all_ways}
            models = {way.name: one for way, one in all_ways.items()}
            yield Case(name, "Marian", rows * args.tokens, args.tokens + 1, runs, peer and theirs, models)


def gpt_cases(args: argparse.Namespace) -> Iterator[Case]:
    torch.manual_seed(0)
    width, layers, heads = map(int, args.gpt.split(","))
    shape: dict[str, Any] = {"width": width, "layers": layers, "heads": heads, "context": 1024}
    vocabulary = args.gpt_vocabulary
    model = build_model(
        "gpt", GPTConfig(**shape), source_vocabulary=vocabulary, target_vocabulary=vocabulary, shared=True
    )
    all_ways = taken_by(ready(model, args), args)
    peer = None if args.peer == "none" else gpt2(args, shape)
    for rows in sizes(args, 64):
        generator = torch.Generator().manual_seed(rows)
        prompts = torch.randint(FIRST_WORD, vocabulary, (rows, args.source), generator=generator)
        there = prompts.to(args.device)

        def ours(way, rows=rows, prompts=prompts):
            with way.taken():
                config = exactly(args, 1, fused=way.fused)
                return search(all_ways[way], no_source(rows, args.device), config, prompts.tolist())

        def theirs(there=there):
            written = generate(peer, args, 1, input_ids=there, attention_mask=torch.ones_like(there))
            return written[:, args.source :].tolist()

        runs = {way.name: lambda way=way, ours=ours: ours(way) for way in all_ways}
        models = {way.name: one for way, one in all_ways.items()}
        name = f"gpt, batch {rows}, greedy"
        yield Case(name, "GPT-2", rows * args.tokens, args.tokens + 1, runs, peer and theirs, models)


def own_cases(args: argparse.Namespace, beams: list[int], config: Any) -> Iterator[Case]:
    model = translator(config, args)
    for rows in sizes(args):
        source = pad_rows(sources(rows, args)).to(args.device)
        for beam in beams:

            def run(capture: bool, source=source, beam=beam):
                return search(model, source, exactly(args, beam, capture))

            name = f"{config.name}, batch {rows}, beam {beam}"
            yield Case(
                name,
                "not recorded",
                rows * args.tokens,
                args.tokens + 1,
                {"own": lambda run=run: run(True)},
                lambda run=run: run(False),
            )


def flow_cases(args: argparse.Namespace, beams: list[int]) -> Iterator[Case]:
    """Sources of 4 tokens and more, and texts as long: each sentence is cut at its own length."""
    shape: dict[str, Any] = {"width": args.width, "inner": 4 * args.width, "heads": args.heads, "layers": args.layers}
    model = translator(TransformerConfig(**shape), args)
    texts = sorted(sources(args.sentences, args, shortest=3), key=len, reverse=True)
    written = sum(len(text) for text in texts)
    for beam in beams:
        config = SearchConfig(beam=beam, max_ratio=1.0, max_extra=1, min_length=args.source)

        def ours(config=config):
            found = dict(search_many(model, texts, config))
            return [found[i] for i in range(len(texts))]

        def theirs(config=config):
            found = []
            for begin in range(0, len(texts), 512):
                source = pad_rows(texts[begin : begin + 512]).to(args.device)
                found += search(model, source, config)
            return found

        yield Case(f"flow of {len(texts):,}, beam {beam}", "in batches", written, 0, {"own": ours}, theirs)


def marian(args: argparse.Namespace) -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    sides: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sides |= {
            f"{side}_layers": args.layers,
            f"{side}_attention_heads": args.heads,
            f"{side}_ffn_dim": 4 * args.width,
        }
    config = MarianConfig(
        vocab_size=args.vocabulary,
        d_model=args.width,
        activation_function="relu",
        max_position_embeddings=1024,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=BOS,
        **sides,
    )
    return ready(MarianMTModel(config), args)


def gpt2(args: argparse.Namespace, shape: dict[str, Any]) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=args.gpt_vocabulary,
        n_embd=shape["width"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
        n_positions=shape["context"],
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return ready(GPT2LMHeadModel(config), args)


@torch.inference_mode()
def generate(model: Any, args: argparse.Namespace, beam: int, **inputs: torch.Tensor) -> torch.Tensor:
    extra = {"cache_implementation": "static"} if args.peer == "static" else {}
    return model.generate(
        **inputs,
        num_beams=beam,
        do_sample=False,
        min_new_tokens=args.tokens,
        max_new_tokens=args.tokens,
        early_stopping=False,
        **extra,
    )


def seconds(run: Callable[[], Any], args: argparse.Namespace) -> float:
    _wait(args)
    begin = time.perf_counter()
    run()
    _wait(args)
    return time.perf_counter() - begin


def _wait(args: argparse.Namespace) -> None:
    if args.device == "cuda":
        torch.cuda.synchronize()


def measure(case: Case, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each way in which it is done."""
    runs = dict(case.ours) | ({} if case.theirs is None else {"peer": case.theirs})
    first, failed = {}, []
    for name, run in list(runs.items()):
        try:
            first[name] = seconds(run, args)
            found = [run() for _ in range(2)][-1]
            wrong = {size for text in found for size in [_length(text, args)]} - {args.tokens} if case.steps else set()
            if wrong:
                raise RuntimeError(f"texts of {sorted(wrong)} tokens instead of {args.tokens}")
        except Exception as error:  # the others are still worth their time
            failed.append({"case": case.name, "way": name, "error": f"{type(error).__name__}: {error}"[:400]})
            del runs[name]
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(args.rounds):
        for name in sorted(runs, reverse=bool(number % 2)):
            times[name].append(seconds(runs[name], args))
    rows, texts = [], {name: runs[name]() for name in case.ours if name in runs}
    for name, found in texts.items():
        ours = statistics.median(times[name])
        row: dict[str, Any] = {
            "case": case.name,
            "way": name,
            "tokens_per_second": round(case.tokens / ours, 1),
            "ms_per_step": round(1000 * ours / case.steps, 4) if case.steps else None,
            "first_seconds": round(first[name], 3),
        }
        if name in case.models:
            row["kernels"] = Way(name).used(case.models[name])
        if len(texts) > 1:
            row |= compared(found, next(iter(texts.values())))
        if "peer" in runs:
            ratios = [b / a for a, b in zip(times[name], times["peer"], strict=True)]
            theirs = round(case.tokens / statistics.median(times["peer"]), 1)
            row |= {"peer": case.peer, "peer_tokens_per_second": theirs, "ratio": round(statistics.median(ratios), 3)}
        rows.append(row)
    return rows + failed


def _length(text: Any, args: argparse.Namespace) -> int:
    """Of what was written: a prompt, which a language model's text begins with, is as long as a source."""
    tokens = text[0].tokens if text and isinstance(text[0], Hypothesis) else text
    return len(tokens) - (args.source if len(tokens) == args.source + args.tokens else 0)


def compared(found: list[list[Hypothesis]], others: list[list[Hypothesis]]) -> dict[str, float]:
    """How much of the texts is the same from the beginning on, and how far scores are apart."""
    shares, apart = [], []
    for (one, *_), (other, *_) in zip(found, others, strict=True):
        same = [a == b for a, b in zip(one.tokens, other.tokens, strict=False)]
        shares.append((same.index(False) if False in same else len(same)) / max(1, len(same)))
        apart.append(abs(one.score - other.score))
    return {"agree": round(statistics.fmean(shares), 4), "apart": round(statistics.fmean(apart), 5)}


def profile(case: Case, args: argparse.Namespace) -> None:
    """The costliest kernels of one search in each way, replayed steps among them."""
    kind = torch.profiler.ProfilerActivity
    for name, run in case.ours.items():
        try:
            with torch.profiler.profile(activities=[kind.CUDA if args.device == "cuda" else kind.CPU]) as found:
                run()
                _wait(args)
        except Exception as error:  # as above
            print(f"profile of {case.name}, {name}: {type(error).__name__}: {error}"[:400])
            continue
        on_device = args.device == "cuda"
        table = [
            (event.self_device_time_total if on_device else event.self_cpu_time_total, event.count, event.key)
            for event in found.key_averages()
        ]
        table.sort(reverse=True)
        steps = max(1, case.steps)
        total, count = sum(time for time, _, _ in table), sum(count for _, count, _ in table)
        print(f"\n{case.name}, {name}: {total / steps:.1f} us and {count / steps:.1f} kernels a step")
        for time_, count, key in table[:PROFILED]:
            print(f"  {time_ / steps:9.2f} us {count / steps:8.2f} x {time_ / max(1, count):8.2f} us  {key[:90]}")


def host(case: Case, args: argparse.Namespace) -> None:
    """The host's time in each way: until the first replay, until the last, after it; and its costliest functions."""
    for name, run in case.ours.items():
        times = host_times(run, lambda: _wait(args))
        print(json.dumps({"host": case.name, "way": name, "microseconds": times}), flush=True)
        print(host_profile(run), flush=True)


def checked(way: Way, args: argparse.Namespace) -> bool:
    """Whether kernels find the same lists, with models of fewer layers."""
    try:
        return check(
            args.width, min(2, args.layers), args.heads, args.vocabulary, args.device, way, quick=args.check == "quick"
        )
    except Exception as error:  # plain steps are still worth their time
        print(json.dumps({"check": "failed", "error": f"{type(error).__name__}: {error}"[:400]}), flush=True)
        return False


def main() -> None:
    args = options()
    torch.set_float32_matmul_precision("high")
    machine = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine()
    about = {"machine": machine, "torch": torch.__version__, "numbers": str(numbers(args)), **vars(args)}
    print(json.dumps(about), flush=True)
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    if args.check:
        wrong = [way.name for way in ways(args) if way.fused and not checked(way, args)]
        args.kernels = ",".join(way.name for way in ways(args) if way.name not in wrong) or "off"
        print(json.dumps({"check": "done", "failed": wrong, "kernels": args.kernels}), flush=True)
        failed += [f"the check of {name}" for name in wrong]
    for case in cases(args):
        try:
            found = measure(case, args)
            if args.profile:
                profile(case, args)
            if args.host:
                host(case, args)
        except Exception as error:  # the others are still worth their time
            print(json.dumps({"case": case.name, "error": f"{type(error).__name__}: {error}"[:400]}), flush=True)
            failed.append(case.name)
            continue
        for row in found:
            print(json.dumps(row), flush=True)
            if "error" in row:
                failed.append(f"{row['case']}, {row['way']}")
            else:
                rows.append(row)
    print(f"\n{'case':34} {'way':20} {'tokens/s':>11} {'ms/step':>9} {'peer':>13} {'tokens/s':>11} {'ratio':>7}")
    for row in rows:
        step = "" if row["ms_per_step"] is None else f"{row['ms_per_step']:.3f}"
        line = f"{row['case']:34} {row['way']:20} {row['tokens_per_second']:>11,.0f} {step:>9}"
        if "peer" in row:
            line += f" {row['peer']:>13} {row['peer_tokens_per_second']:>11,.0f} {row['ratio']:>7.2f}"
        print(line)
    if failed:
        raise SystemExit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
