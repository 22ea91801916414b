"""What ways of decoding give and cost: beam search, in groups, with a glossary, the guard, minimum Bayes risk, on held-out pairs.

    python benchmarks/choosing.py [--model RUN] [--sentences 500] [--samples 32] [--device cpu]

Without a model the bundled one, on the first of the 2,000 held-out pairs that come with regard. BLEU and chrF are sacreBLEU's;
seconds are wall time of translating, torch engine. The glossary is made of the references: of words that the model aligns one to
one, of four letters or more, those that its own translation lacks; all forms that occur in one entry. `terms` is the share of its
terms that a translation has. One JSON line per way, and a table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import time
from collections.abc import Callable

import sacrebleu

import regard
from regard.core import config as configuration
from regard.data.corpus import DataConfig, load_corpus
from regard.tasks.glossary import Glossary
from regard.tasks.guarding import Guard
from regard.tasks.minimum_risk import MinimumRisk
from regard.tasks.terminology import satisfied
from regard.tasks.translation import Translator

WORD = re.compile(r"[^\w]+")
LETTERS = 4


def glossary_of(plain: Translator, sources: list[str], references: list[str]) -> Glossary:
    """Words that the references have and the model's own translations have not."""
    forms: dict[str, dict[str, None]] = {}
    own = plain.translate(sources)
    for source, reference, text, links in zip(sources, references, own, plain.align(sources, references), strict=True):
        words, targets, has = WORD.split(source), WORD.split(reference), {*WORD.split(text)}
        raw, given = source.split(), reference.split()
        alone = [(i, j) for i, j in links if sum(x == i for x, _ in links) == sum(y == j for _, y in links) == 1]
        for i, j in alone:
            word, target = WORD.sub("", raw[i]), WORD.sub("", given[j])
            if min(len(word), len(target)) >= LETTERS and word in words and target in targets and target not in has:
                forms.setdefault(word.casefold(), {})[target] = None
    return Glossary.of([(word, "|".join(some)) for word, some in sorted(forms.items())])


def terms_in(glossary: Glossary, sources: list[str], texts: list[str]) -> float:
    counts = [satisfied(glossary, source, text) for source, text in zip(sources, texts, strict=True)]
    return sum(has for has, _ in counts) / max(1, sum(wanted for _, wanted in counts))


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
        "beam 6, 3 groups": lambda: plain,
        "glossary": lambda: plain.with_glossary(glossary),
        "beam 5, guarded": lambda: plain.guarded(Guard()),
        f"mbr chrf, {asked.samples}": lambda: plain.choosing(MinimumRisk(samples=asked.samples)),
        f"mbr bleu, {asked.samples}": lambda: plain.choosing(MinimumRisk(samples=asked.samples, utility="bleu")),
    }
    if not asked.samples:
        ways = {name: make for name, make in ways.items() if not name.startswith("mbr")}
    plain.translate(sources[:4])
    glossary = glossary_of(plain, sources, references)
    rows = []
    for name, make in ways.items():
        begin = time.perf_counter()
        how = {"greedy": {"beam": 1}, "beam 6, 3 groups": {"beam": 6, "groups": 3}}.get(name, {"beam": 5})
        found = make().hypotheses(sources, search=dataclasses.replace(plain.search, nbest=1, **how))
        seconds = time.perf_counter() - begin
        texts = [many[0].text for many in found]
        row = {
            "way": name,
            "bleu": round(sacrebleu.corpus_bleu(texts, [references]).score, 2),
            "chrf": round(sacrebleu.corpus_chrf(texts, [references]).score, 2),
            "terms": round(terms_in(glossary, sources, texts), 3),
            "noted": sum(bool(many[0].note) for many in found),
            "seconds": round(seconds, 1),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(f"\n{'way':<20}{'BLEU':>8}{'chrF':>8}{'terms':>8}{'noted':>8}{'seconds':>9}")
    for row in rows:
        print(f"{row['way']:<20}{row['bleu']:>8}{row['chrf']:>8}{row['terms']:>8}{row['noted']:>8}{row['seconds']:>9}")


if __name__ == "__main__":
    main()
