"""Sizes and speeds of exports: the bundled translator and small models, by torch, CTranslate2, ONNX Runtime and transformers.

    python benchmarks/export_table.py [--sentences 100] [--rounds 3] [--models translator,gpt,bert] [--targets ...]

Every model is exported with its certificate, then all programs take turns; speeds are texts per second of the processor, so that
they hold on a busy machine, and the best round counts. One thread. The translator is the bundled one and translates with beam 5,
one sentence at a time and all at once; the small GPT and BERT (width 256, 4 layers, the bundled vocabulary, random weights) score
one text at a time. One JSON line for each case, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
CASES = (
    ("ctranslate2", "float32"),
    ("ctranslate2", "int8"),
    ("onnx", "float32"),
    ("onnx", "int8"),
    ("huggingface", "float32"),
)
SIZES = {"width": 256, "layers": 4, "heads": 4}
WEIGHTS = (".bin", ".onnx", ".safetensors", ".data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default="translator,gpt,bert")
    parser.add_argument("--targets", default="ctranslate2,onnx,huggingface")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    rows = []
    for name in arguments.models.split(","):
        rows += measured(name, arguments.targets.split(","), arguments.sentences, arguments.rounds)
    print(table(rows))


def model(name: str) -> Any:
    """What is exported, as `regard.load` gives it."""
    import torch

    import regard
    from regard.models.base import MODELS, build_model
    from regard.tasks.language_model import TextModel
    from regard.tasks.masked import MaskedText

    bundled = regard.load(device="cpu", engine="torch")
    if name == "translator":
        return bundled
    torch.manual_seed(0)
    words = bundled.tokenizers.target.size
    config = MODELS.get(name).Config(**SIZES, context=128)
    made = build_model(name, config, source_vocabulary=words, target_vocabulary=words, shared=True).eval()
    return (TextModel if name == "gpt" else MaskedText)(made, bundled.tokenizers)


def measured(name: str, targets: list[str], sentences: int, rounds: int) -> list[dict[str, Any]]:
    """A row for torch, and for each export that can be made."""
    from regard.core.errors import RegardError
    from regard.data.corpus import read_tsv
    from regard.exchange.export import export, plan_export
    from regard.exchange.parity_questions import cases_of
    from regard.exchange.parity_sides import live_model, regard_side

    task = model(name)
    pairs = read_tsv("bundled:tatoeba-en-de")
    texts = list(pairs.take(list(range(7, len(pairs), len(pairs) // sentences))[:sentences]).sources)
    live = sum(p.numel() * p.element_size() for p in live_model(task).parameters())
    rows = [{"model": name, "case": "torch float32", "megabytes": live / 1e6}]
    sides = [regard_side(task, "states" if name == "bert" else "all")]
    with tempfile.TemporaryDirectory() as place:
        for target, quantise in CASES:
            if target not in targets:
                continue
            case, out = f"{target} {quantise}", Path(place) / f"{target}-{quantise}"
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    made = export(task, to=target, out=out, quantise=quantise)  # type: ignore[arg-type]
                    sides.append(plan_export(task, target, quantise).side(out))  # type: ignore[arg-type]
            except (RegardError, ImportError) as error:
                print(json.dumps({"model": name, "case": case, "error": str(error)[:200]}), flush=True)
                continue
            size = sum(path.stat().st_size for path in out.rglob("*") if path.suffix in WEIGHTS)
            found = made.certificate
            rows.append(
                {
                    "model": name,
                    "case": case,
                    "megabytes": size / 1e6,
                    "largest_difference": found["largest_difference"],
                    "identical_outputs": found["identical_outputs"],
                    "bleu_difference": (found["bleu"] or {}).get("difference"),
                }
            )
        work = works(name, sides, texts, [] if name == "translator" else cases_of(task, texts))
        for what, runs in work.items():
            best = [float("inf")] * len(runs)
            for _ in range(rounds):
                for i, run in enumerate(runs):
                    began = time.process_time()
                    run()
                    best[i] = min(best[i], time.process_time() - began)
            for row, seconds in zip(rows, best, strict=True):
                row[what] = len(texts) / seconds
    for row in rows:
        print(
            json.dumps({key: round(value, 7) if isinstance(value, float) else value for key, value in row.items()}),
            flush=True,
        )
    return rows


def works(name: str, sides: list[Any], texts: list[str], cases: list[Any]) -> dict[str, list[Callable[[], Any]]]:
    """What is timed, by name: for each program a call that does it all."""

    def one_by_one(ask: Callable[[Any], Any], items: list[Any]) -> Callable[[], Any]:
        return lambda: [list(ask([item])) for item in items]

    if name == "translator":
        return {
            "singly": [one_by_one(side.outputs, texts) for side in sides],
            "together": [lambda side=side: side.outputs(texts) for side in sides],
        }
    return {"singly": [one_by_one(side.scores, cases) for side in sides]}


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | program | weights, MB | largest difference | same outputs | texts/s singly | together |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        same = row.get("identical_outputs")
        cells = [
            row["model"],
            row["case"],
            f"{row['megabytes']:.1f}",
            f"{row['largest_difference']:.1e}" if "largest_difference" in row else "",
            "" if same is None else f"{same:.1%}",
            f"{row['singly']:.1f}",
            f"{row['together']:.1f}" if "together" in row else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
