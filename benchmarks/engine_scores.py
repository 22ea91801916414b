"""What an engine and its numbers change: BLEU, and how many translations stay the same, of the bundled model's held-out pairs.

    python benchmarks/engine_scores.py [--device cpu] [--pairs 2000] [--alone 300] [--lists 80,600] [--cases NAME;NAME]

torch in float32 and bfloat16 (where the machine can); on a CPU also CTranslate2 in float32 and int8, and int8 with short lists
(--lists EACH,ALWAYS, learnt from the bundled training text). Beam 5 and length normalisation as the model's. Seconds are those of
translating after a first time: of the processor and one thread on a CPU, by the clock on a GPU. --alone: of the first so many
sentences, the part whose translation is the same when each is translated by itself. One JSON line per case, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")


class Case(NamedTuple):
    name: str
    engine: str
    compute: str
    of_cpu: bool = True
    lists: bool = False


CASES = (
    Case("torch, float32", "torch", "float32", of_cpu=False),
    Case("torch, bfloat16", "torch", "bfloat16", of_cpu=False),
    Case("ctranslate2, float32", "ctranslate2", "float32"),
    Case("ctranslate2, int8", "ctranslate2", "int8"),
    Case("ctranslate2, int8, short lists", "ctranslate2", "int8", lists=True),
)


def same(some: list[str], others: list[str]) -> float:
    return sum(a == b for a, b in zip(some, others, strict=True)) / max(1, len(some))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--alone", type=int, default=300)
    parser.add_argument("--lists", default="80,600")
    parser.add_argument("--cases", default=";".join(case.name for case in CASES), help="joined by ;")
    arguments = parser.parse_args()
    import torch

    import regard
    from regard.core import config as configuration
    from regard.core.device import why_no_bfloat16
    from regard.data.corpus import load_corpus
    from regard.data.corpus_config import DataConfig
    from regard.data.short_lists import learn_short_lists
    from regard.data.store import TokenStore
    from regard.evaluation.metrics import Flavour, corpus_scores
    from regard.tasks.converted_run import SHORT_LISTS_OF_RUN
    from regard.tasks.pretrained import find_model

    on_cpu = arguments.device == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    wanted = arguments.cases.split(";")
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        shutil.copytree(find_model(None), run)
        torch_form = regard.load(run, "cpu", engine="torch")
        corpus = load_corpus(configuration.build(DataConfig, torch_form.config["data"], "data"))
        test = corpus.test.head(arguments.pairs)
        first: list[str] = []
        rows: list[dict[str, Any]] = []
        for case in CASES:
            if case.name not in wanted or (case.of_cpu and not on_cpu):
                continue
            if case.compute == "bfloat16" and (reason := why_no_bfloat16(torch.device(arguments.device))):
                print(json.dumps({"case": case.name, "left_out": reason}), flush=True)
                continue
            if case.lists:
                each, always = map(int, arguments.lists.split(","))
                sizes = torch_form.tokenizers.source.size, torch_form.tokenizers.target.size
                store = TokenStore.from_pairs(corpus.train, torch_form.tokenizers, 200)
                learn_short_lists(store, *sizes, each=each, always=always).save(run / SHORT_LISTS_OF_RUN)
            translator = regard.load(run, arguments.device, engine=case.engine, compute=case.compute)
            translator.translate(test.sources if not on_cpu else test.sources[:8])  # a GPU records every shape once
            began = clock()
            written = translator.translate(test.sources)
            seconds = clock() - began
            first = first or written
            alone = [translator.translate(source) for source in test.sources[: arguments.alone]]
            flavour = Flavour(language="de")
            bleu = corpus_scores(written, test.targets, flavour, metrics=("bleu",), confidence=True)["bleu"]
            row = {
                "case": case.name,
                "pairs": len(written),
                "bleu": round(bleu.value, 2),
                "low": round(bleu.low or 0, 2),
            }
            row |= {"high": round(bleu.high or 0, 2), "same_as_first": round(same(first, written), 4)}
            row |= {"same_alone": round(same(alone, written[: arguments.alone]), 4), "seconds": round(seconds, 2)}
            rows.append(row | {"signature": bleu.signature, "torch": torch.__version__, "device": arguments.device})
            print(json.dumps(rows[-1]), flush=True)
    print(f"{'':32} {'BLEU':>6} {'as first':>9} {'as alone':>9} {'seconds':>9}")
    for row in rows:
        print(
            f"{row['case']:32} {row['bleu']:6.2f} {row['same_as_first']:9.2%} {row['same_alone']:9.2%} {row['seconds']:9.2f}"
        )


if __name__ == "__main__":
    main()
