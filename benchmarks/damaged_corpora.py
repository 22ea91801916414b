"""Damages corpora in every way that we know of, and counts how many `regard data check` finds, by kind.

    python benchmarks/damaged_corpora.py [--corpora 1000] [--lines 1000] [--out results.jsonl]

Samples of lines are drawn from the bundled English-German sentences, written to two files, and the bytes of these are damaged.
Found means that the check says something of the right name that it does not say of the undamaged sample, or says it of more
lines. Kinds for which nothing can be found are listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import DataError
from regard.data.checks.check import check_pairs
from regard.data.corpus import read_tsv
from regard.data.reading import open_pairs

Lines = list[bytes]  # without their line feeds
Sides = tuple[Lines, Lines]


@dataclass(frozen=True)
class Kind:
    """A kind of damage, and the findings that would be right. `reason`: why it cannot always be found."""

    damage: Callable[[Lines, Lines, random.Random], tuple[bytes | Lines, bytes | Lines]]
    findings: tuple[str, ...]
    reason: str = ""


def _joined(lines: Lines) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _place(lines: Lines, draw: random.Random, margin: int = 60) -> int:
    return draw.randrange(min(margin, len(lines) // 4), len(lines) - min(margin, len(lines) // 4))


def deleted(source: Lines, target: Lines, draw: random.Random):
    at = _place(target, draw)
    return source, target[:at] + target[at + 1 :]


def doubled(source: Lines, target: Lines, draw: random.Random):
    at = _place(target, draw)
    return source, target[: at + 1] + target[at:]


def merged(source: Lines, target: Lines, draw: random.Random):
    at = _place(target, draw)
    return source, [*target[:at], target[at] + b" " + target[at + 1], *target[at + 2 :]]


def split(source: Lines, target: Lines, draw: random.Random):
    at = max(range(len(target)), key=lambda i: len(target[i]) * draw.random())
    words = target[at].split()
    half = max(1, len(words) // 2)
    return source, [*target[:at], b" ".join(words[:half]), b" ".join(words[half:]), *target[at + 1 :]]


def compensated(source: Lines, target: Lines, draw: random.Random):
    """A line is gone, and one is there twice more than 200 lines later: the files are of one length."""
    at = draw.randrange(60, len(target) - 300)
    end = draw.randrange(at + 200, len(target) - 20)
    return source, target[:at] + target[at + 1 : end + 1] + target[end:]


def swapped_lines(source: Lines, target: Lines, draw: random.Random):
    at = _place(target, draw)
    return source, [*target[:at], target[at + 1], target[at], *target[at + 2 :]]


def moved_block(source: Lines, target: Lines, draw: random.Random):
    size, at = 100, draw.randrange(50, len(target) - 260)
    return source, target[:at] + target[at + size : at + 2 * size] + target[at : at + size] + target[at + 2 * size :]


def shuffled(source: Lines, target: Lines, draw: random.Random):
    at = len(target) // 2
    rest = target[at:]
    draw.shuffle(rest)
    return source, target[:at] + rest


def swapped_files(source: Lines, target: Lines, draw: random.Random):
    return target, source


def same_file(source: Lines, target: Lines, draw: random.Random):
    return source, list(source)


def tail_missing(source: Lines, target: Lines, draw: random.Random):
    whole = _joined(target)
    return source, whole[: draw.randrange(len(whole) // 2, len(whole) - 200)]


def latin_1(source: Lines, target: Lines, draw: random.Random):
    return source, [line.decode().encode("latin-1", "replace") for line in target]


def utf_16(source: Lines, target: Lines, draw: random.Random):
    return source, _joined(target).decode().encode(draw.choice(["utf-16", "utf-16-le"]))


def mojibake(source: Lines, target: Lines, draw: random.Random):
    def twice(line: bytes) -> bytes:
        return line.decode("latin-1").encode() if draw.random() < 0.2 else line

    return source, [twice(line) for line in target]


def _some(change: Callable[[bytes, random.Random], bytes], count: int = 5):
    def damage(source: Lines, target: Lines, draw: random.Random):
        changed = list(target)
        for at in draw.sample(range(len(target)), count):
            changed[at] = change(target[at], draw)
        return source, changed

    return damage


def _inserted(piece: bytes):
    def change(line: bytes, draw: random.Random) -> bytes:
        places = [0, *(i for i, byte in enumerate(line) if byte == 0x20), len(line)]
        at = draw.choice(places)
        return line[:at] + piece + line[at:]

    return _some(change)


def zeroed_page(source: Lines, target: Lines, draw: random.Random):
    whole = bytearray(_joined(target))
    at = draw.randrange(0, len(whole) - 512, 512)
    whole[at : at + 512] = bytes(512)
    return source, bytes(whole)


def bit_flips(source: Lines, target: Lines, draw: random.Random):
    whole = bytearray(_joined(target))
    for _ in range(8):
        whole[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
    return source, bytes(whole)


def giant_line(source: Lines, target: Lines, draw: random.Random):
    at = _place(target, draw)
    return source, [*target[:at], b"word " * draw.choice([3_000, 200_000]), *target[at + 1 :]]


def line_feeds_lost(source: Lines, target: Lines, draw: random.Random):
    """As of a file with the line ends of old Macintoshes."""
    return source, b"\r".join(target) + b"\n"


def windows_half(source: Lines, target: Lines, draw: random.Random):
    half = len(target) // 2
    return source, [line + b"\r" for line in target[:half]] + target[half:]


def decomposed_half(source: Lines, target: Lines, draw: random.Random):
    half = len(target) // 2
    return source, target[:half] + [unicodedata.normalize("NFD", line.decode()).encode() for line in target[half:]]


def doubled_pairs(source: Lines, target: Lines, draw: random.Random):
    at = sorted(draw.sample(range(len(source)), len(source) // 10))
    return source + [source[i] for i in at], target + [target[i] for i in at]


def deleted_pair(source: Lines, target: Lines, draw: random.Random):
    at = _place(target, draw)
    return source[:at] + source[at + 1 :], target[:at] + target[at + 1 :]


def moved_pairs(source: Lines, target: Lines, draw: random.Random):
    order = list(range(len(source)))
    draw.shuffle(order)
    return [source[i] for i in order], [target[i] for i in order]


def _without_last_word(line: bytes, draw: random.Random) -> bytes:
    return b" ".join(line.split()[:-1]) or b"x"


KINDS: dict[str, Kind] = {
    "a line deleted": Kind(deleted, ("line-counts",)),
    "a line doubled": Kind(doubled, ("line-counts",)),
    "two lines merged": Kind(merged, ("line-counts",)),
    "a line split": Kind(split, ("line-counts",)),
    "deleted here, doubled there": Kind(compensated, ("misaligned", "unrelated")),
    "two neighbours swapped": Kind(
        swapped_lines, ("misaligned", "unrelated"), "two lines are little evidence, and may have a like meaning"
    ),
    "blocks of 100 lines swapped": Kind(moved_block, ("misaligned", "unrelated")),
    "half shuffled": Kind(shuffled, ("misaligned", "unrelated")),
    "files swapped": Kind(swapped_files, ("swapped-languages", "unexpected-language")),
    "one file given twice": Kind(same_file, ("same-file",)),
    "the end missing": Kind(tail_missing, ("line-counts",)),
    "Latin-1": Kind(latin_1, ("not-utf8",)),
    "UTF-16": Kind(utf_16, ("not-utf8", "null-characters", "line-counts")),
    "read as Latin-1, saved as UTF-8": Kind(mojibake, ("mojibake",)),
    "null characters": Kind(_inserted(b"\0"), ("null-characters",)),
    "a zeroed page": Kind(zeroed_page, ("null-characters",)),
    "bytes that are no UTF-8": Kind(_inserted(b"\xff\xc3"), ("not-utf8",)),
    "lone surrogates": Kind(_inserted(b"\xed\xa0\x80"), ("not-utf8", "lone-surrogates")),
    "replacement characters": Kind(_inserted("�".encode()), ("replacement-characters",)),
    "control characters": Kind(_inserted(b"\x07"), ("control-characters",)),
    "byte order marks inside": Kind(_inserted("\ufeff".encode()), ("byte-order-marks",)),
    "line separators inside": Kind(_inserted("\u2028".encode()), ("line-separators",)),
    "a giant line": Kind(giant_line, ("long-lines",)),
    "line ends of old Macintoshes": Kind(line_feeds_lost, ("line-counts", "long-lines")),
    "half with Windows line ends": Kind(windows_half, ("mixed-line-ends",)),
    "half in another normal form": Kind(decomposed_half, ("mixed-normal-forms",)),
    "lines emptied": Kind(_some(lambda line, draw: b""), ("empty-side",)),
    "pairs doubled": Kind(doubled_pairs, ("duplicates",)),
    "eight bits flipped": Kind(
        bit_flips,
        ("not-utf8", "control-characters", "line-counts", "null-characters", "line-separators"),
        "a flip may make another letter, which is a word misspelt and no more",
    ),
    "a pair deleted": Kind(deleted_pair, (), "what is left is a corpus without any damage"),
    "pairs in another order": Kind(moved_pairs, (), "the order of pairs means nothing"),
    "last words cut off": Kind(
        _some(_without_last_word), ("misaligned", "unrelated", "length-ratio"), "a shorter sentence is a sentence, too"
    ),
}


def samples(lines: int, count: int, seed: int) -> Iterator[Sides]:
    """Samples of the bundled pairs, drawn from all of them."""
    pairs = read_tsv("bundled:tatoeba-en-de")
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        rows = sorted(draw.sample(range(len(pairs)), lines))
        yield [pairs.sources[i].encode() for i in rows], [pairs.targets[i].encode() for i in rows]


def counts(folder: Path, source: bytes | Lines, target: bytes | Lines) -> dict[str, int]:
    """What the check finds in the files, and in how many lines; refusing to read them is a finding, too."""
    paths = []
    for name, side in (("corpus.en", source), ("corpus.de", target)):
        (folder / name).write_bytes(side if isinstance(side, bytes) else _joined(side))
        paths.append(str(folder / name))
    try:
        report = check_pairs(open_pairs(paths))
    except DataError as error:
        return {"refused": 1, str(error): 1}
    return {finding.name: max(1, finding.count) for finding in report.findings}


def is_found(kind: Kind, before: dict[str, int], after: dict[str, int]) -> bool:
    return "refused" in after or any(after.get(name, 0) > before.get(name, 0) for name in kind.findings)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpora", type=int, default=1000)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    began, tried, found = time.monotonic(), dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    with tempfile.TemporaryDirectory() as place:
        kept = [
            (*sides, counts(Path(place), *sides))
            for sides in samples(arguments.lines, arguments.samples, arguments.seed)
        ]
        for number in range(arguments.corpora):
            name = list(KINDS)[number % len(KINDS)]
            source, target, before = kept[(number // len(KINDS)) % len(kept)]
            draw = random.Random(f"{arguments.seed} {number}")
            after = counts(Path(place), *KINDS[name].damage(list(source), list(target), draw))
            tried[name] += 1
            found[name] += is_found(KINDS[name], before, after)
            if arguments.out is not None:
                with open(arguments.out, "a", encoding="utf-8") as file:
                    file.write(
                        json.dumps({"kind": name, "found": is_found(KINDS[name], before, after), "after": after}) + "\n"
                    )
    print("| damage | corpora | found | |\n|---|---|---|---|")
    for name, kind in KINDS.items():
        print(f"| {name} | {tried[name]} | {found[name] / max(1, tried[name]):.0%} | {kind.reason} |")
    sure = [name for name, kind in KINDS.items() if not kind.reason]
    print(f"\n{sum(found[name] for name in sure)} of {sum(tried[name] for name in sure)} found of the {len(sure)} kinds that can "
          f"be; {arguments.corpora} corpora of {arguments.lines} lines in {time.monotonic() - began:.0f} s")  # fmt: skip


if __name__ == "__main__":
    main()
