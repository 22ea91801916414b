"""What ways of decoding give and cost, on held-out pairs: every option of `regard translate`, beside a plain beam in one run.

    python benchmarks/choosing.py [--model RUN] [--sentences 300] [--samples 16] [--draft RUN] [--device cpu] [--only mbr,beam]

Without a model the bundled one, on the first of the 2,000 held-out pairs that come with regard. BLEU and chrF are sacreBLEU's;
seconds are wall time of translating, torch engine. `cost` is the time over that of a plain beam of 5 on the same sentences: both
take turns, block by block, so that a busy machine slows both down. Next words and drafts go sentence by sentence. Costs alone
mean something, and not what they give, of these: the ensemble is
the model twice, the model that reranks is the model itself, and the language model that is fused is an untrained GPT with weight 0.
A prefix is the first word of the reference. The glossary is made of the references: of words that the model aligns one to
one, of four letters or more, those that its own translation lacks; all forms that occur in one entry. `terms` is the share of its
terms that a translation has. One JSON line per way, and a table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import sacrebleu
import torch

import regard
from regard.core import config as configuration
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.models.base import build_model
from regard.models.gpt import GPTConfig
from regard.search.ensembles import Ensemble
from regard.tasks.glossary import Glossary
from regard.tasks.guarding import Guard
from regard.tasks.lines import Translation
from regard.tasks.minimum_risk import MinimumRisk
from regard.tasks.reranking import Reranker
from regard.tasks.terminology import satisfied
from regard.tasks.translation import Translator

WORD = re.compile(r"[^\w]+")
LETTERS = 4
BLOCK = 50  # sentences between turns
NEXT_WORDS = 5
Found = list[list[Translation]]
Way = Callable[[Sequence[str], Sequence[str]], Found]  # of sources and references


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


def searched(translator: Translator, plain: Translator, asked: dict[str, Any] | None = None, **how: Any) -> Way:
    """A way that is a translator and settings; with `asked`, more is asked of it."""
    settings = dataclasses.replace(plain.search, **{"beam": 5, "nbest": 1, **how})
    return lambda sources, references: translator.hypotheses(
        sources, search=settings, **{"details": False, **(asked or {})}
    )


def together(plain: Translator, fused: bool) -> Translator:
    """The model twice, or with an untrained language model that has no say."""
    if fused:
        size = plain.tokenizers.target.size
        config = GPTConfig(width=256, layers=2, heads=4, context=256)
        beside: Any = build_model("gpt", config, source_vocabulary=size, target_vocabulary=size, shared=True)
        model = Ensemble([plain.model], None, "log", beside.to(plain.device), 0.0)
    else:
        model = Ensemble([plain.model, plain.model], None, "log")
    return Translator(model.eval(), plain.tokenizers, plain.search, device=plain.device, habits=plain.habits)


def ways(plain: Translator, glossary: Glossary, samples: int, draft: Translator | None) -> dict[str, Way]:
    def prefixed(sources: Sequence[str], references: Sequence[str]) -> Found:
        prefixes = [reference.split()[0] if reference.split() else "" for reference in references]
        return plain.hypotheses(sources, search=dataclasses.replace(plain.search, beam=5, nbest=1), prefixes=prefixes)

    def next_words(sources: Sequence[str], references: Sequence[str]) -> Found:
        settings = dataclasses.replace(plain.search, beam=5, nbest=1)
        return [plain.alternatives(source, "", NEXT_WORDS, search=settings) for source in sources]

    found: dict[str, Way] = {
        "greedy": searched(plain, plain, beam=1),
        "beam 5, 5 best": searched(plain, plain, nbest=5),
        "beam 6": searched(plain, plain, beam=6),
        "beam 6, 3 groups": searched(plain, plain, beam=6, groups=3),
        "glossary": searched(plain.with_glossary(glossary), plain),
        "guarded": searched(plain.guarded(Guard()), plain),
        "prefix": prefixed,
        f"{NEXT_WORDS} next words": next_words,
        "details": searched(plain, plain, {"details": True}),
        "attention": searched(plain, plain, {"attention": True}),
        "alignment": searched(plain, plain, {"alignment": True}),
        "ensemble of 2": searched(together(plain, fused=False), plain),
        "fused": searched(together(plain, fused=True), plain),
        "rerank, 8": searched(plain.choosing(Reranker(other=plain)), plain),
    }
    if draft is not None:
        found["greedy, draft"] = searched(plain.drafted(draft), plain, beam=1, stop="full")
    if samples:
        for utility in ("chrf", "bleu"):
            chooser = MinimumRisk(samples=samples, utility=utility)
            found[f"mbr {utility}, {samples}"] = searched(plain.choosing(chooser), plain)
    return found


def timed(way: Way, beam: Way, sources: list[str], references: list[str]) -> tuple[Found, float, float]:
    """What a way finds, its seconds, and those of a plain beam, block by block in turns."""
    found: Found = []
    seconds = [0.0, 0.0]
    for number, begin in enumerate(range(0, len(sources), BLOCK)):
        block = sources[begin : begin + BLOCK], references[begin : begin + BLOCK]
        for which in (0, 1) if number % 2 else (1, 0):
            began = time.perf_counter()
            some = (way, beam)[which](*block)
            seconds[which] += time.perf_counter() - began
            if which == 0:
                found += some
    return found, seconds[0], seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--draft", default=None)
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--only", default="", help="ways whose names begin so, by commas")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    plain: Translator = regard.load(asked.model, engine="torch", device=asked.device)  # type: ignore[arg-type]
    draft = None if asked.draft is None else regard.load(asked.draft, engine="torch", device=asked.device)
    test = load_corpus(configuration.build(DataConfig, plain.config["data"], "data")).test.head(asked.sentences)
    sources, references = test.sources, test.targets
    glossary = glossary_of(plain, sources, references)
    beam = searched(plain, plain)
    chosen = {"beam 5": beam, **ways(plain, glossary, asked.samples, draft)}
    wanted = tuple(asked.only.split(",")) if asked.only else ("",)
    rows = []
    for name, way in chosen.items():
        if not name.startswith(wanted):
            continue
        way(sources[:4], references[:4])
        found, seconds, beside = timed(way, beam, sources, references)
        texts = [many[0].text if many else "" for many in found]
        row = {
            "way": name,
            "bleu": round(sacrebleu.corpus_bleu(texts, [references]).score, 2),
            "chrf": round(sacrebleu.corpus_chrf(texts, [references]).score, 2),
            "terms": round(terms_in(glossary, sources, texts), 3),
            "noted": sum(bool(many and many[0].note) for many in found),
            "seconds": round(seconds, 1),
            "cost": round(seconds / beside, 2),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(f"\n{'way':<20}{'BLEU':>8}{'chrF':>8}{'terms':>8}{'noted':>8}{'seconds':>9}{'cost':>7}")
    for row in rows:
        numbers = (
            f"{row['bleu']:>8}{row['chrf']:>8}{row['terms']:>8}{row['noted']:>8}{row['seconds']:>9}{row['cost']:>7}"
        )
        print(f"{row['way']:<20}{numbers}")


if __name__ == "__main__":
    main()
