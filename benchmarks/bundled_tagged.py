"""Makes the bundled part of UD English EWT: tagged sentences, and the same with their genre as the label.

    python benchmarks/bundled_tagged.py --data DIR --out src/regard/data/bundled

DIR holds {train,dev,test}.conllu.xz. Of each genre whole documents are taken, spread evenly over their order, until its share of
4,000, 500 and 500 sentences is full. Words and tags are columns; a labelled sentence has five words or more, and a held-out one
does not stand in an earlier part. The same files give the same bytes.
"""

from __future__ import annotations

import argparse
import lzma
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.split import sentence_key

SIZES = {"train": 4000, "dev": 500, "test": 500}
NAMES = {"train": "train", "dev": "valid", "test": "test"}
LEAST_WORDS = 5  # of a labelled sentence


@dataclass
class Sentence:
    identity: str
    text: str = ""
    words: list[tuple[str, str]] = field(default_factory=list)

    @property
    def genre(self) -> str:
        return self.identity.split("-")[0]


def documents(path: Path) -> list[list[Sentence]]:
    found: list[list[Sentence]] = []
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            name, _, value = line.rstrip("\n").partition(" = ")
            if name.startswith("# newdoc"):
                found.append([])
            elif name == "# sent_id":
                found[-1].append(Sentence(value))
            elif name == "# text":
                found[-1][-1].text = value
            elif line[:1].isdigit():
                cells = line.split("\t")
                if cells[0].isdigit():
                    found[-1][-1].words.append((cells[1], cells[3]))
    return found


def chosen(whole: list[list[Sentence]], size: int) -> list[Sentence]:
    genres: defaultdict[str, list[list[Sentence]]] = defaultdict(list)
    for document in whole:
        genres[document[0].genre].append(document)
    every = sum(map(len, whole))
    found: list[Sentence] = []
    for _, group in sorted(genres.items()):
        sentences = sum(map(len, group))
        step = sentences / round(size * sentences / every)
        taken = passed = 0
        for document in group:
            passed += len(document)
            if taken + len(document) / 2 <= passed / step:
                found += document
                taken += len(document)
    return found


def write(path: Path, text: str) -> None:
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    seen: set[str] = set()
    for part, size in SIZES.items():
        sentences = chosen(documents(arguments.data / f"{part}.conllu.xz"), size)
        columns = []
        labelled = []
        for one in sentences:
            columns.append(
                f"# sent_id = {one.identity}\n" + "".join(f"{word}\t{tag}\n" for word, tag in one.words) + "\n"
            )
            text = " ".join(one.text.split())
            key = sentence_key(text)
            if len(one.words) < LEAST_WORDS or (part != "train" and key in seen):
                continue
            seen.add(key)
            labelled.append(f"{one.genre}\t{text}\n")
        write(arguments.out / f"ud-ewt-{NAMES[part]}.tagged.xz", "".join(columns))
        write(arguments.out / f"ud-ewt-genres-{NAMES[part]}.labelled.xz", "".join(labelled))
        print(f"{part}: {len(sentences):,} sentences, {len(labelled):,} labelled")


if __name__ == "__main__":
    main()
