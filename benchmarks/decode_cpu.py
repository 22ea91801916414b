"""Decoding on a CPU: tokens per second of a Transformer base, beside Hugging Face and bare CTranslate2, in turns of one run.

    python benchmarks/decode_cpu.py [--threads 2] [--turns 5] [--batches 1,32] [--beams 1,4] [--torch float32] [--layers 12+1,6+2]
        [--shape 512,2048,8,32000] [--lists train.en train.de]

Shape: 512/2048/8 heads/6+6 layers, vocabulary 32,000, random weights, 24 tokens out of sources of 24 (--shape: width, inner width,
heads and vocabulary). Cases:

- huggingface: a Marian of the same shape in float32, `generate` on token ids;
- bare: CTranslate2 in int8, `translate_batch` on tokens, all threads in each product; of the same converted model that regard uses;
- bare-apart: the same, each thread with a part of the batch of its own, which is better for small models;
- regard: `Translator.translate` from text to text with its ctranslate2 engine, tokenisation included;
- torch-NAME: the same by torch, for every NAME of --torch (see TORCH);
- regard-E+D, torch-NAME-E+D: likewise with E layers of the encoder and D of the decoder, for all of --layers;
- regard-lists, regard-E+D-lists: with short lists learnt from the parallel text of --lists (the first 250,000 pairs). The tokenizer
  is then learnt from it, too, and sources are its sentences of 24 tokens, for all cases.

The model ends every text after 24 tokens by itself: the vector of that position points to EOS. One JSON line per case, then a
table of ratios; a ratio is the median over turns of what two cases took in the same turn. Only ratios count on a busy machine,
and where it is very busy only those of `--threads 1 --clock cpu`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

LENGTH = 24
MOST_PAIRS = 250_000  # that short lists are learnt from


class Shape(NamedTuple):
    width: int = 512
    inner: int = 2048
    heads: int = 8
    vocabulary: int = 32_000


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: for busy machines, with --threads 1"
    )
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--beams", default="1,4")
    parser.add_argument("--torch", default="float32", help="which torch cases to run, by name; empty: none")
    parser.add_argument("--layers", default="", help="other shapes, as 12+1,6+2")
    parser.add_argument("--shape", default=",".join(map(str, Shape())), help="width, inner width, heads, vocabulary")
    parser.add_argument(
        "--lists", nargs=2, type=Path, metavar=("SOURCE", "TARGET"), help="parallel text for short lists"
    )
    parser.add_argument("--peers", default="hf,ct2", help="hf and ct2, or one of them, or nothing")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(arguments.threads)  # before any of the libraries is imported
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        shape = Shape(*map(int, arguments.shape.split(",")))
        tokenizers = tokenizers_of(shape, arguments.lists)
        names = {"6+6": "", **{name: f"-{name}" for name in filter(None, arguments.layers.split(","))}}
        runs = {ending: write_run(Path(folder) / name, shape, tokenizers, name) for name, ending in names.items()}
        texts = source_texts(shape)
        if arguments.lists:
            texts, learnt = texts_and_lists(tokenizers, arguments.lists, max(map(int, arguments.batches.split(","))))
            runs |= {f"{ending}-lists": with_lists(run, learnt) for ending, run in runs.items()}
        rows, seconds = [], {}
        for batch in map(int, arguments.batches.split(",")):
            for beam in map(int, arguments.beams.split(",")):
                cases = make_cases(runs, shape, texts[:batch], beam, arguments)
                seconds[batch, beam] = in_turns(cases, arguments.turns, arguments.clock)
                for name, each in seconds[batch, beam].items():
                    rows.append(row(name, batch, beam, each, arguments))
                    print(json.dumps(rows[-1]), flush=True)
    table(seconds)


def row(name: str, batch: int, beam: int, each: list[float], arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "case": name,
        "batch": batch,
        "beam": beam,
        "tokens_per_second": round(batch * LENGTH / statistics.median(each), 1),
        "median_seconds": round(statistics.median(each), 4),
        "turns": arguments.turns,
        "threads": arguments.threads,
        "clock": arguments.clock,
        "versions": versions(),
        "machine": platform.platform(),
    }


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "transformers", "ctranslate2", "tokenizers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "-"
    return found


def in_turns(cases: dict[str, Callable[[], int]], turns: int, clock: str) -> dict[str, list[float]]:
    """Seconds of every case in every turn. A case gives the tokens that it wrote, which must be the right number."""
    wanted = {name: case() for name, case in cases.items()}  # warms up
    if len(set(wanted.values())) != 1:
        raise SystemExit(f"the cases did not write equally many tokens: {wanted}")
    now = time.perf_counter if clock == "wall" else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(turns):
        for name, case in cases.items():
            began = now()
            case()
            seconds[name].append(now() - began)
    return seconds


def table(seconds: dict[tuple[int, int], dict[str, list[float]]]) -> None:
    names = list(next(iter(seconds.values())))
    against = [name for name in ("huggingface", "bare", "bare-apart") if name in names]
    print(f"\n{'batch':>5} {'beam':>4}  {'case':22}" + "".join(f"{'x ' + name:>16}" for name in against))
    for (batch, beam), cases in seconds.items():
        for name, each in cases.items():
            ratios = [
                statistics.median(peer / own for peer, own in zip(cases[other], each, strict=True)) for other in against
            ]
            print(f"{batch:5} {beam:4}  {name:22}" + "".join(f"{ratio:16.2f}" for ratio in ratios))


def make_cases(
    runs: dict[str, Path], shape: Shape, texts: list[str], beam: int, arguments: argparse.Namespace
) -> dict[str, Callable[[], int]]:
    import regard
    from regard.search.config import SearchConfig

    peers = set(filter(None, arguments.peers.split(",")))
    search = SearchConfig(beam=beam, length_norm="plain", alpha=1.0, max_repeat=0)  # random weights repeat themselves
    cases: dict[str, Callable[[], int]] = {}
    if "hf" in peers:
        cases["huggingface"] = huggingface(shape, len(texts), beam)
    if "ct2" in peers:
        cases["bare"] = bare(runs[""], texts, beam, arguments.threads, 1)
        if arguments.threads > 1:
            cases["bare-apart"] = bare(runs[""], texts, beam, 1, arguments.threads)
    for ending, one in runs.items():
        if "ct2" in peers:
            cases[f"regard{ending}"] = through(regard.load(one, "cpu", engine="ctranslate2"), texts, search)
        for name in filter(None, arguments.torch.split(",") if not ending.endswith("-lists") else ()):
            cases[f"torch-{name}{ending}"] = through(TORCH[name](one), texts, search)
    return cases


def through(translator: Any, texts: list[str], search: Any) -> Callable[[], int]:
    engine = translator.engine

    def call() -> int:
        translator.translate(texts, search=search)
        return len(texts) * LENGTH

    found = translator.hypotheses(texts, search=search)
    if any(len(many[0].tokens) != LENGTH for many in found) or (translator.engine, translator.engine_note) != (
        engine,
        "",
    ):
        raise SystemExit(f"{engine}: not all texts have {LENGTH} tokens, or another engine wrote them")
    return call


def bare(run: Path, texts: list[str], beam: int, threads: int, parts: int) -> Callable[[], int]:
    import ctranslate2

    from regard.tasks.converted_run import ctranslate2_files
    from regard.tasks.run_files import open_run

    opened = open_run(run)
    files = ctranslate2_files(opened, "int8")
    translator = ctranslate2.Translator(
        "base", files=files, compute_type="int8", intra_threads=threads, inter_threads=parts
    )
    tokenizer = opened.tokenizers.source
    sources = [[*tokenizer.pieces(ids), "</s>"] for ids in tokenizer.encode(texts)]

    def call() -> int:
        results = translator.translate_batch(sources, beam_size=beam, max_batch_size=-(-len(sources) // parts))
        return sum(len(result.hypotheses[0]) for result in results)

    return call


def huggingface(shape: Shape, batch: int, beam: int) -> Callable[[], int]:
    import torch
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.inner,
        decoder_ffn_dim=shape.inner,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    model: Any = MarianMTModel(config)
    model.eval()
    sources = torch.randint(4, shape.vocabulary, (batch, LENGTH + 1))
    options = {"max_new_tokens": LENGTH + 1, "min_new_tokens": LENGTH + 1, "num_beams": beam, "do_sample": False}

    def call() -> int:
        with torch.inference_mode():
            written = model.generate(sources, attention_mask=torch.ones_like(sources), **options)
        return len(written) * (written.shape[1] - 2)  # less the start, and what stands for EOS

    return call


def by_torch(run: Path) -> Any:
    import regard

    return regard.load(run, "cpu", engine="torch")


def by_torch_in_int8(run: Path) -> Any:
    """The same with matrices of 8-bit integers."""
    from regard.layers.int8_linear import quantise, why_not
    from regard.tasks.translation import Translator

    if (reason := why_not()) is not None:
        raise SystemExit(f"int8 by torch: {reason}")
    plain = by_torch(run)
    return Translator(quantise(plain.model.eval()), plain.tokenizers, plain.search, device="cpu", folder=run)


TORCH: dict[str, Callable[[Path], Any]] = {"float32": by_torch, "int8": by_torch_in_int8}


def words(vocabulary: int) -> list[str]:
    """As many words as fill the vocabulary, each a token: syllables, so that none begins like too many others."""
    parts = [first + vowel for first in "bdfgklmnprstvwz" for vowel in "aeiou"]
    return [a + b + c for a in parts for b in parts for c in parts][: vocabulary - 4]


def source_texts(shape: Shape) -> list[str]:
    import random

    draw, known = random.Random(1), words(shape.vocabulary)
    return [" ".join(draw.choices(known, k=LENGTH)) for _ in range(64)]


def tokenizers_of(shape: Shape, text: list[Path] | None) -> Any:
    """Every word a token; or, where there is text, BPE."""
    from regard.data.tokenizers import TokenizerConfig, TokenizerPair

    if text:
        config = TokenizerConfig(kind="bpe", size=shape.vocabulary)
        return TokenizerPair.train_on_text([line for path in text for line in lines_of(path)], config)
    config = TokenizerConfig(kind="word", size=shape.vocabulary, min_count=1)
    return TokenizerPair.train_on_text(words(shape.vocabulary), config)


def lines_of(path: Path) -> list[str]:
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in itertools.islice(file, MOST_PAIRS)]


def texts_and_lists(tokenizers: Any, text: list[Path], count: int) -> tuple[list[str], Any]:
    """Sources of as many tokens as are to be written, evenly from the whole text; and its short lists."""
    import numpy as np

    from regard.data.short_lists import learn_short_lists
    from regard.data.store import TokenRows, TokenStore

    sources, targets = map(lines_of, text)
    kept = [i for i, pair in enumerate(zip(sources, targets, strict=True)) if all(pair)]
    sources, targets = [sources[i] for i in kept], [targets[i] for i in kept]
    ids = tokenizers.source.encode(sources)
    fitting = [line for line, tokens in zip(sources, ids, strict=True) if len(tokens) == LENGTH]
    if len(fitting) < count:
        raise SystemExit(
            f"--lists: the text has {len(fitting)} sentences of {LENGTH} tokens, and {count} are to be translated"
        )
    texts = fitting[:: max(1, len(fitting) // count)][:count]
    sides = (TokenRows.from_lists(side) for side in (ids, tokenizers.target.encode(targets)))
    store = TokenStore(*sides, kept=np.arange(len(ids)))
    lists = learn_short_lists(store, tokenizers.source.size, tokenizers.target.size)
    each = [len(lists.tokens([tokenizers.source.encode([line])[0]])) for line in texts]
    together = len(lists.tokens(tokenizers.source.encode(texts)))
    print(
        f"short lists: {statistics.mean(each):.0f} tokens for a sentence, {together} for {count} together", flush=True
    )
    return texts, lists


def with_lists(run: Path, lists: Any) -> Path:
    """The same run with short lists."""
    from regard.tasks.converted_run import SHORT_LISTS_OF_RUN

    copy = run.with_name(f"{run.name}-lists")
    shutil.copytree(run, copy)
    lists.save(copy / SHORT_LISTS_OF_RUN)
    return copy


def write_run(folder: Path, shape: Shape, tokenizers: Any, layers: str = "6+6") -> Path:
    """A run folder with a Transformer of random weights that writes 24 tokens, then EOS."""
    import torch

    from regard.core.config import to_plain
    from regard.core.files import save_tensors, write_json, write_manifest
    from regard.core.types import EOS
    from regard.models.base import build_model
    from regard.models.transformer import TransformerConfig
    from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of

    folder.mkdir()
    encoder, decoder = map(int, layers.split("+"))
    config = TransformerConfig(
        width=shape.width,
        inner=shape.inner,
        heads=shape.heads,
        dropout=0.0,
        positions="learned",
        max_length=256,
        encoder_layers=encoder,
        decoder_layers=decoder,
    )
    sizes = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": tokenizers.target.size, "shared": True}
    model = build_model("transformer", config, **sizes)
    with torch.no_grad():
        towards = torch.nn.functional.normalize(torch.randn(shape.width), dim=0)
        towards -= towards.mean()
        model.target_embedding.weight[EOS] = 3 * (512 / shape.width) ** 0.5 * towards
        model.target_positions.table.weight[LENGTH] = 1000 * towards
        model.output.bias[EOS] = -30.0
    tokenizers.save(folder)
    save_tensors(folder / WEIGHTS, weights_of(model))
    vocabulary = {"source": tokenizers.source.size, "target": tokenizers.target.size, "shared": True}
    write_json(
        folder / CONFIG, {"format": FORMAT, "resolved": True, "model": to_plain(config), "vocabulary": vocabulary}
    )
    write_manifest(folder, [CONFIG, WEIGHTS, *tokenizer_names(folder)])
    if tokenizers.source.size != shape.vocabulary:
        raise SystemExit(f"the tokenizer has {tokenizers.source.size} tokens, not {shape.vocabulary}")
    return folder


if __name__ == "__main__":
    main()
