"""What the ways of choosing among translations give and cost: beam search, minimum Bayes risk, the guard, on held-out pairs.

    python benchmarks/choosing.py [--model RUN] [--sentences 500] [--samples 32] [--device cpu]

Without a model the bundled one, on the first of the 2,000 held-out pairs that come with regard. BLEU and chrF are sacreBLEU's;
seconds are wall time of translating, torch engine. One JSON line per way, and a table.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import sacrebleu

import regard
from regard.core import config as configuration
from regard.data.corpus import DataConfig, load_corpus
from regard.tasks.guarding import Guard
from regard.tasks.minimum_risk import MinimumRisk
from regard.tasks.translation import Translator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    plain: Translator = regard.load(asked.model, engine="torch", device=asked.device)  # type: ignore[arg-type]
    test = load_corpus(configuration.build(DataConfig, plain.config["data"], "data")).test.head(asked.sentences)
    sources, references = test.sources, test.targets
    ways: dict[str, Callable[[], Translator]] = {
        "greedy": lambda: plain,
        "beam 5": lambda: plain,
        "beam 5, guarded": lambda: plain.guarded(Guard()),
        f"mbr chrf, {asked.samples}": lambda: plain.choosing(MinimumRisk(samples=asked.samples)),
        f"mbr bleu, {asked.samples}": lambda: plain.choosing(MinimumRisk(samples=asked.samples, utility="bleu")),
    }
    plain.translate(sources[:4])
    rows = []
    for name, make in ways.items():
        begin = time.perf_counter()
        found = make().hypotheses(sources, beam=1 if name == "greedy" else 5)
        seconds = time.perf_counter() - begin
        texts = [many[0].text for many in found]
        row = {
            "way": name,
            "bleu": round(sacrebleu.corpus_bleu(texts, [references]).score, 2),
            "chrf": round(sacrebleu.corpus_chrf(texts, [references]).score, 2),
            "guarded": sum(bool(many[0].note) for many in found),
            "seconds": round(seconds, 1),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(f"\n{'way':<20}{'BLEU':>8}{'chrF':>8}{'guarded':>9}{'seconds':>9}")
    for row in rows:
        print(f"{row['way']:<20}{row['bleu']:>8}{row['chrf']:>8}{row['guarded']:>9}{row['seconds']:>9}")


if __name__ == "__main__":
    main()
