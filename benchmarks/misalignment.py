"""Measures the alignment check: damage found by kind, how exactly it is located, and false alarms on clean text.

    python benchmarks/misalignment.py --tatoeba eng-deu.tsv.xz --europarl train.en train.de \
        [--tsv NAME FILE SOURCE_COLUMN TARGET_COLUMN] [--samples 10] [--clean 100] [--out results.jsonl]

Samples of 4,000 lines in a row are drawn from each corpus (Tatoeba as it is, sorted by length, and shuffled), damaged
at a place with a given number of lines after it, and judged. "Found" means refused, with the right lines and shift; for
two swapped lines, which are warned of but not refused, it means warned of. Files may be gzip or xz.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.data.checks.alignment import AlignmentFeatures, AlignmentVerdict, Misaligned, judge, repair
from regard.data.reading import read_lines
from regard.data.split import Pairs

LINES = 4_000
AFTER = (50, 200, 1_000, 2_500)  # lines after the damage


@dataclass(frozen=True)
class Damage:
    """A damaged sample with what is true of it."""

    pairs: Pairs
    partners: list[str | None]  # of the source lines, None where they are lost
    begin: tuple[int, int]  # between which lines the first damaged stretch may be said to begin
    shift: int | None  # of that stretch


def deleted(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    return _spliced(pairs, place, place + 1, [], -1)


def deleted_source(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    sources = pairs.sources[:place] + pairs.sources[place + 1 :]
    partners: list[str | None] = [*pairs.targets[:place], *pairs.targets[place + 1 :]]
    return Damage(Pairs(sources, pairs.targets), partners, (place, place), 1)


def doubled(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    return _spliced(pairs, place, place + 1, [place, place], 1)


def merged(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    targets = list(pairs.targets)
    targets[place : place + 2] = [f"{targets[place]} {targets[place + 1]}"]
    partners: list[str | None] = [*pairs.targets[:place], None, None, *pairs.targets[place + 2 :]]
    return Damage(Pairs(pairs.sources, targets), partners, (place, place + 2), -1)


def swapped(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    return _spliced(pairs, place, place + 2, [place + 1, place], 1)


def block_moved(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    """A block of 5 to 40 lines trades places with the block of the same size after it."""
    size = min(rng.randint(5, 40), (len(pairs) - place) // 2)
    order = [*range(place + size, place + 2 * size), *range(place, place + size)]
    return _spliced(pairs, place, place + 2 * size, order, size)


def compensated(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    """A line is deleted, and 50 to 1,000 lines later (or in the last one) a line is doubled."""
    end = min(place + rng.randint(50, 1_000), len(pairs) - 1)
    return _spliced(pairs, place, end + 1, [*range(place + 1, end + 1), end], -1)


def missing_block(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    """10 to 40 lines are missing."""
    size = rng.randint(10, 40)
    return _spliced(pairs, place, place + size, [], -size)


def shuffled_rest(pairs: Pairs, place: int, rng: random.Random) -> Damage:
    order = list(range(place, len(pairs)))
    rng.shuffle(order)
    return _spliced(pairs, place, len(pairs), order, None)


KINDS: dict[str, Callable[[Pairs, int, random.Random], Damage]] = {
    "deleted": deleted,
    "deleted source": deleted_source,
    "doubled": doubled,
    "merged": merged,
    "compensated": compensated,
    "block moved": block_moved,
    "block missing": missing_block,
    "rest shuffled": shuffled_rest,
    "two swapped": swapped,
}


def _spliced(pairs: Pairs, begin: int, end: int, order: list[int], shift: int | None) -> Damage:
    """The target lines begin..end replaced by those in `order`."""
    lines = [*range(begin), *order, *range(end, len(pairs))]
    there = set(lines)
    partners = [target if i in there else None for i, target in enumerate(pairs.targets)]
    missing = max(end - begin - len(order), 1)
    return Damage(Pairs(pairs.sources, [pairs.targets[i] for i in lines]), partners, (begin, begin + missing), shift)


def check(pairs: Pairs) -> AlignmentVerdict:
    features = AlignmentFeatures()
    features.add(pairs)
    return judge(features)


def measure(kind: str, damage: Damage) -> dict:
    """Whether the damage was found, how far off its beginning was named, and what a repair keeps."""
    verdict = check(damage.pairs)
    stretches = verdict.damage + verdict.doubtful if kind == "two swapped" else verdict.damage
    low, high = damage.begin
    matching = [one for one in stretches if one.shift == damage.shift and one.end > low - 20 and one.begin < high + 20]
    errors = [_error(one, low, high) for one in matching]
    kept = [
        (piece.source_begin + i, piece.target_begin + i)
        for piece in repair(verdict, len(damage.pairs.sources), len(damage.pairs.targets))
        for i in range(piece.length)
    ]
    true = sum(partner is not None for partner in damage.partners)
    right = sum(damage.partners[source] == damage.pairs.targets[target] for source, target in kept)
    return {
        "found": bool(matching),
        "refused": bool(verdict.damage),
        "warned": bool(verdict.doubtful),
        "nats": round(verdict.nats, 1),
        "error": min(errors, default=None),
        "kept": round(right / true, 4),
        "wrong": len(kept) - right,
    }


def _error(one: Misaligned, low: int, high: int) -> int:
    return max(low - one.begin, one.begin - high, 0)


def samples(corpus: Pairs, count: int, seed: str) -> list[tuple[Pairs, random.Random]]:
    """Stretches of the corpus, each with its own source of chance."""
    drawn = []
    for i in range(count):
        rng = random.Random(f"{seed} {i}")
        begin = rng.randrange(max(1, len(corpus) - LINES + 1))
        drawn.append((Pairs(corpus.sources[begin : begin + LINES], corpus.targets[begin : begin + LINES]), rng))
    return drawn


def percentile(values: list[int], share: float) -> int | None:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


def report(name: str, corpus: Pairs, count: int, clean: int, write: Callable[[dict], None]) -> None:
    print(f"\n{name}: {len(corpus):,} pairs")
    print(
        f"{'kind':16}{'after':>7}{'found':>8}{'refused':>9}{'least nats':>12}{'off by':>8}{'90 %':>6}{'kept':>8}{'wrong':>7}"
    )
    for kind, inflict in KINDS.items():
        for after in AFTER:
            rows = []
            for sample, rng in samples(corpus, count, f"{name} {kind} {after}"):
                rows.append(measure(kind, inflict(sample, len(sample) - after, rng)))
                write({"corpus": name, "kind": kind, "after": after, **rows[-1]})
            errors = [row["error"] for row in rows if row["error"] is not None]
            print(
                f"{kind:16}{after:7}{sum(row['found'] for row in rows) / len(rows):8.0%}"
                f"{sum(row['refused'] for row in rows) / len(rows):9.0%}{min(row['nats'] for row in rows):12.0f}"
                f"{statistics.median(errors) if errors else '-':>8}{percentile(errors, 0.9) if errors else '-':>6}"
                f"{statistics.mean(row['kept'] for row in rows):8.1%}{sum(row['wrong'] for row in rows):7}",
                flush=True,
            )
    nats, refused, warned = [], 0, 0
    began = time.process_time()
    for sample, _ in samples(corpus, clean, f"{name} clean"):
        verdict = check(sample)
        nats.append(verdict.nats)
        refused += bool(verdict.damage)
        warned += bool(verdict.doubtful)
        write({"corpus": name, "kind": "clean", "refused": bool(verdict.damage), "nats": round(verdict.nats, 1)})
    if clean:
        seconds = (time.process_time() - began) / clean
        print(
            f"clean: {refused} of {clean} refused, {warned} warned of, most nats {max(nats):.1f}; {seconds:.2f} s each"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tatoeba", type=Path, help="english<TAB>other, sorted by length")
    parser.add_argument("--europarl", type=Path, nargs=2, metavar=("SRC", "TGT"))
    parser.add_argument("--tsv", nargs=4, action="append", default=[], metavar=("NAME", "FILE", "SRC", "TGT"))
    parser.add_argument("--samples", type=int, default=10, help="of each kind and place")
    parser.add_argument("--clean", type=int, default=100, help="clean samples of each corpus")
    parser.add_argument("--out", type=Path, help="file for a line of JSON per sample")
    arguments = parser.parse_args()
    corpora: dict[str, Pairs] = {}
    if arguments.tatoeba:
        corpora["Tatoeba, sorted"] = corpus = read_columns(arguments.tatoeba, 0, 1)
        order = list(range(len(corpus)))
        random.Random(0).shuffle(order)
        corpora["Tatoeba, shuffled"] = corpus.take(order)
    if arguments.europarl:
        corpora["Europarl"] = Pairs(*(read_lines(path) for path in arguments.europarl))
    for name, path, source, target in arguments.tsv:
        corpora[name] = read_columns(Path(path), int(source), int(target))
    if not corpora:
        parser.error("no corpus is given")
    written = []
    for name, corpus in corpora.items():
        report(name, corpus, arguments.samples, arguments.clean, written.append)
    if arguments.out:
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in written), encoding="utf-8")


def read_columns(path: Path, source: int, target: int) -> Pairs:
    rows = [line.split("\t") for line in read_lines(path)]
    return Pairs([row[source] for row in rows], [row[target] for row in rows])


if __name__ == "__main__":
    main()
