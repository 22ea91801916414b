"""Comparisons made by hand, in memory and on disk: systems that miss words at a rate of their own."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from regard.comparing.results import (
    TEST_REFERENCE,
    TEST_SOURCE,
    Alignment,
    Budget,
    Decoding,
    Entry,
    Failure,
    Plan,
    RunResult,
    Training,
    write_failure,
    write_lines,
    write_plan,
    write_result,
)
from regard.evaluation.metrics import Flavour, corpus_scores

WORDS = [f"{a}{b}" for a in ("k", "l", "m", "st", "w") for b in ("a", "eil", "in", "ott")]
HOSTILE = "<script>alert(1)</script>\"'&amp; | `x` $\\n$ _%#~^{} \u202e\x1b[31m"


def references(count: int = 60, seed: int = 0, longest: int = 15) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, longest))) + "." for _ in range(count)]


def noisy(texts: Sequence[str], rate: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < rate else word for word in text.split()) for text in texts]


def plan_of(names: Mapping[str, str], seeds: Sequence[int], **changes) -> Plan:
    """A plan with an entry for each slug and name; a name with settings behind it is a variant."""
    entries = tuple(
        Entry(
            name=name,
            slug=slug,
            model=name.split()[0],
            changes=tuple(name.split()[1:]),
            values={},
            steps=1000,
        )
        for slug, name in names.items()
    )
    plan = {
        "recipe": "demo",
        "budget": Budget(),
        "seeds": tuple(seeds),
        "flavour": Flavour(language="de"),
        "part": "test",
        "sentence": 3,
        "commands": (
            {
                "command": "regard compare demo --models luong,transformer --seeds 3 --out compared",
                "folder": "/home/someone/work",
            },
        ),
        "created": "2025-01-02T03:04:05+00:00",
        "versions": {"regard": "0.1.0", "python": "3.13.1", "torch": "2.11.0"},
        "machine": "Linux x86_64, 2 cores",
        "entries": entries,
    }
    return Plan(**(plan | changes))


def result_of(
    plan: Plan, slug: str, seed: int, texts: Sequence[str], references: Sequence[str], attends: bool = True, **changes
) -> RunResult:
    flavour = Flavour(language="de", bootstrap=100)
    source, target = references[plan.sentence].split(), texts[plan.sentence].split()
    weights = np.full((len(target), len(source)), 0.05)
    for j in range(len(target)):
        weights[j, min(j, len(source) - 1)] = 1.0
    weights /= weights.sum(1, keepdims=True)
    number = 1 + [entry.slug for entry in plan.entries].index(slug)
    result = {
        "entry": slug,
        "seed": seed,
        "folder": f"runs/{slug}/seed-{seed}",
        "parameters": 1_000_000 + 123_456 * number,
        "pairs": 20_000,
        "left_out": 0,
        "device": "cpu, 2 threads",
        "machine": plan.machine,
        "versions": dict(plan.versions),
        "training": Training(steps=1000, seconds=40.0 + 7 * number + seed, tokens_per_second=9000.0 / number),
        "decoding": Decoding(
            sentences=len(references),
            tokens=12 * len(references),
            seconds=3.0,
            tokens_per_second=4000.0 / number,
            sentences_per_second=4000.0 / number / 12,
            rounds=3,
            batch_tokens=4096,
            beam=5,
        ),
        "scores": corpus_scores(texts, references, flavour, metrics=("bleu", "chrf")),
        "perplexity": 3.0 + 0.1 * number + 0.01 * seed,
        "alignment": Alignment(
            source=tuple(f"▁{word}" for word in source),
            target=tuple(f"▁{word}" for word in target),
            weights=tuple(tuple(round(float(w), 4) for w in row) for row in weights),
        )
        if attends
        else None,
        "fingerprints": {"data": "d" * 64, "tokenizer": "e" * 64},
        "commands": (f"regard train recipes/{slug}.toml --out runs/{slug}/seed-{seed} train.seed={seed}",),
        "curve": tuple((step, 2.0 + 3.0 * 0.997**step + 0.05 * number + 0.02 * seed) for step in range(100, 1001, 100)),
    }
    return RunResult(**(result | changes))


def write_comparison(
    folder: Path,
    rates: Mapping[str, float],
    names: Mapping[str, str] | None = None,
    seeds: Sequence[int] = (1, 2, 3),
    failed: Sequence[tuple[str, int]] = (),
    left: Sequence[tuple[str, int]] = (),
    blind: Sequence[str] = (),
    count: int = 60,
    longest: int = 15,
    reason: str = "out of memory",
    **changes,
) -> Plan:
    """A folder as a comparison leaves it. Each system (by slug) has lost the given share of words."""
    names = {slug: slug for slug in rates} if names is None else names
    plan = plan_of(names, seeds, **changes)
    texts = references(count, longest=longest)
    folder.mkdir(parents=True, exist_ok=True)
    write_plan(folder, plan)
    write_lines(folder / TEST_SOURCE, texts)
    write_lines(folder / TEST_REFERENCE, texts)
    for number, (slug, rate) in enumerate(rates.items()):
        (folder / "runs" / slug).mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            if (slug, seed) in failed:
                write_failure(folder, Failure(entry=slug, seed=seed, reason=reason, details=f"...\n{reason}\n", exit=1))
            elif (slug, seed) not in left:
                written = noisy(texts, rate, 100 * number + seed)
                write_result(folder, result_of(plan, slug, seed, written, texts, slug not in blind), written)
    return plan
