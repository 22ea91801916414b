"""What an engine changes in translations: BLEU, and how many translations stay the same, of the bundled model's held-out pairs.

    python benchmarks/engine_scores.py [--pairs 2000] [--lists 80,600]

torch in float32, CTranslate2 in float32 and int8, and int8 with short lists (--lists EACH,ALWAYS, learnt from the bundled training
text). Beam 5 and length normalisation as the model's own. Processor seconds are of translating alone, one thread. One JSON line per
case, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--lists", default="80,600")
    arguments = parser.parse_args()
    import regard
    from regard.core import config as configuration
    from regard.data.corpus import load_corpus
    from regard.data.corpus_config import DataConfig
    from regard.data.short_lists import learn_short_lists
    from regard.data.store import TokenStore
    from regard.evaluation.metrics import Flavour, corpus_scores
    from regard.tasks.converted_run import SHORT_LISTS_OF_RUN
    from regard.tasks.pretrained import find_model

    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        shutil.copytree(find_model(None), run)
        torch_form = regard.load(run, "cpu", engine="torch")
        corpus = load_corpus(configuration.build(DataConfig, torch_form.config["data"], "data"))
        test = corpus.test.head(arguments.pairs)
        first: list[str] = []
        rows: list[dict[str, Any]] = []
        for name, engine, compute in (
            ("torch, float32", "torch", "float32"),
            ("ctranslate2, float32", "ctranslate2", "float32"),
            ("ctranslate2, int8", "ctranslate2", "int8"),
            ("ctranslate2, int8, short lists", "ctranslate2", "int8"),
        ):
            if "lists" in name:
                each, always = map(int, arguments.lists.split(","))
                sizes = torch_form.tokenizers.source.size, torch_form.tokenizers.target.size
                store = TokenStore.from_pairs(corpus.train, torch_form.tokenizers, 200)
                learn_short_lists(store, *sizes, each=each, always=always).save(run / SHORT_LISTS_OF_RUN)
            translator = regard.load(run, "cpu", engine=engine, compute=compute)
            translator.translate(test.sources[:8])
            began = time.process_time()
            written = translator.translate(test.sources)
            seconds = time.process_time() - began
            first = first or written
            bleu = corpus_scores(written, test.targets, Flavour(language="de"), metrics=("bleu",), confidence=True)[
                "bleu"
            ]
            same = sum(a == b for a, b in zip(first, written, strict=True)) / len(written)
            row = {"case": name, "pairs": len(written), "bleu": round(bleu.value, 2), "low": round(bleu.low or 0, 2)}
            row |= {
                "high": round(bleu.high or 0, 2),
                "same_as_torch": round(same, 4),
                "processor_seconds": round(seconds, 2),
            }
            rows.append(row | {"signature": bleu.signature})
            print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        print(f"{row['case']:32} {row['bleu']:6.2f} {row['same_as_torch']:8.2%} {row['processor_seconds']:8.2f} s")


if __name__ == "__main__":
    main()
