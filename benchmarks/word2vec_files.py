"""Word vectors through gensim and back: what one writes, the other opens, in word2vec's text and binary formats.

    pip install gensim   # not a dependency of regard
    python benchmarks/word2vec_files.py [--model RUN_OR_FILE] [--words 20000] [--width 100]
        [--analogies questions-words.txt] [--similarity men.csv ...] [--out DIR]

Without --model, vectors are drawn at random, with words in several scripts. For each format, regard writes and gensim opens, then
gensim writes and regard opens: words and numbers must be the same to the last bit. With --analogies and --similarity, both
score the same vectors: the counts must be equal, and the correlations to 1e-9. One JSON line per check, a table at the end;
the exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from regard.evaluation.word_similarity import read_similarity
from regard.evaluation.word_vectors import evaluate_analogies, evaluate_similarity
from regard.tasks.word_vectors import WordVectors


def random_vectors(words: int, width: int) -> WordVectors:
    draw = np.random.default_rng(1)
    letters = "abcdefghijklmnopqrstuvwxyzäöüßéñçøłšžабвгдежзиклмноп日本語中文한국"
    found: dict[str, None] = {",": None, "</s>": None, "don't": None}
    while len(found) < words:
        found["".join(draw.choice(list(letters), draw.integers(1, 12)))] = None
    return WordVectors(list(found)[:words], draw.normal(size=(words, width)).astype(np.float32))


def compare(own: WordVectors, folder: Path, binary: bool) -> list[dict]:
    from gensim.models import KeyedVectors

    name, rows = "binary" if binary else "text", []
    path = folder / f"regard.{name}"
    own.save(path, binary=binary)
    began = time.perf_counter()
    theirs = KeyedVectors.load_word2vec_format(str(path), binary=binary)
    seconds = time.perf_counter() - began
    same = theirs.index_to_key == own.words and np.array_equal(theirs.vectors, own.matrix)
    rows.append({"format": name, "way": "regard -> gensim", "same": bool(same), "read_seconds": round(seconds, 3)})
    path = folder / f"gensim.{name}"
    theirs.save_word2vec_format(str(path), binary=binary)
    began = time.perf_counter()
    again = WordVectors.load(path)
    seconds = time.perf_counter() - began
    same = again.words == own.words and np.array_equal(again.matrix, own.matrix)
    rows.append({"format": name, "way": "gensim -> regard", "same": bool(same), "read_seconds": round(seconds, 3)})
    return rows


def scores(own: WordVectors, analogies: Path | None, similarity: list[Path], folder: Path) -> list[dict]:
    from gensim.models import KeyedVectors

    own.save(folder / "scored", binary=True)
    theirs = KeyedVectors.load_word2vec_format(str(folder / "scored"), binary=True)
    rows = []
    if analogies is not None:
        report = evaluate_analogies(own, analogies)
        _, sections = theirs.evaluate_word_analogies(str(analogies), restrict_vocab=30_000)
        for ours, other in zip([*report.sections, report.total], sections, strict=True):
            counts = len(other["correct"]), len(other["correct"]) + len(other["incorrect"])
            row = {"analogies": ours.section, "regard": [ours.right, ours.asked], "gensim": list(counts)}
            rows.append({**row, "same": (ours.right, ours.asked) == counts})
    for path in similarity:
        ours = evaluate_similarity(own, path)
        plain = folder / "pairs.tsv"
        plain.write_text("".join(f"{a}\t{b}\t{score}\n" for a, b, score in read_similarity(path)), encoding="utf-8")
        rho = float(theirs.evaluate_word_pairs(str(plain), restrict_vocab=len(own))[1][0])
        same = ours.rho is not None and abs(ours.rho - rho) < 1e-9
        rows.append({"similarity": ours.name, "regard": ours.rho, "gensim": rho, "known": ours.known, "same": same})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--analogies", type=Path)
    parser.add_argument("--similarity", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, help="Keep the files here.")
    given = parser.parse_args()
    own = WordVectors.load(given.model) if given.model else random_vectors(given.words, given.width)
    with tempfile.TemporaryDirectory() as place:
        folder = given.out or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for binary in (False, True) for row in compare(own, folder, binary)]
        rows += scores(own, given.analogies, given.similarity, folder)
    for row in rows:
        print(json.dumps({**row, "words": len(own), "width": own.width}))
    print(f"\n{'check':<44}{'same':>6}")
    for row in rows:
        name = row.get("analogies") or row.get("similarity") or f"{row.get('format')}, {row.get('way')}"
        print(f"{name:<44}{'yes' if row['same'] else 'NO':>6}")
    sys.exit(not all(row["same"] for row in rows))


if __name__ == "__main__":
    main()
