"""The verbs of vectors: `embed`, `nearest` and `analogy`, `evaluate` of word vectors, and `export` of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.classify import line_chunks
from regard.cli.embed_in_context import show_uses
from regard.cli.outputs import check_outputs
from regard.cli.translate import as_they_come, stdin_lines
from regard.core.errors import ConfigError, DataError
from regard.evaluation.word_vectors import SectionScore, evaluate_analogies, evaluate_similarity
from regard.models.base import MODELS
from regard.tasks.folder import read_config
from regard.tasks.pretrained import find_model, load
from regard.tasks.word_in_context import compare_uses
from regard.tasks.word_vectors import Neighbour, WordVectors

Give = Callable[[list[str], int], Iterable[Float[np.ndarray, " D"]]]  # texts, the first one's number -> their vectors


def run_embed(
    texts: list[str] | None, model: Path, in_context: str, vectors: Path | None, as_json: bool, device: str
) -> None:
    """Writes a line for each text: the text, a tab, and the numbers of its vector with spaces between them.

    A text is an argument, or a line of standard input. Word vectors give a word's own vector, and for several words their mean.
    """
    if vectors is not None and not in_context:
        raise ConfigError("--vectors", "it goes with --in-context only", "Leave it out, or name a word")
    reader = _reader(model, device)
    if in_context:
        if reader is None:
            what = "its vectors are of words alone, the same in every sentence"
            if (name := _name_of_others(model)) is not None:
                what = f"of {name} only the table of words can be had, which is the same in every sentence"
            raise ConfigError(f"--model {model}", what, "Give the run folder of a bert")
        lines = texts or list(stdin_lines())
        static = WordVectors.load(vectors) if vectors is not None else None
        show_uses(compare_uses(reader, lines, in_context, static), as_json)
        return
    give = _words_given(WordVectors.load(find_model(model))) if reader is None else _texts_given(reader)
    if reader is None and (name := _name_of_others(model)) is not None:
        print(f"Note: these are vectors of {name}'s table of words, not of texts as it reads them.", file=sys.stderr)
    if not texts and sys.stdin is not None and sys.stdin.isatty():
        print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
    chunks: Iterable[list[str]] = [texts] if texts else line_chunks(as_they_come(stdin_lines()))
    done = 0
    for chunk in chunks:
        for number, text in enumerate(chunk, start=done + 1):
            if not text.strip():
                raise DataError(f"text {number}", "it is empty", "Give a text with words")
        for text, vector in zip(chunk, give(chunk, done + 1), strict=True):
            _write(text, vector, as_json)
        done += len(chunk)
        sys.stdout.flush()


def run_nearest(words: list[str], model: Path, top: int, as_json: bool) -> None:
    """The words nearest to each word, with their cosines."""
    _check_top(top)
    vectors = WordVectors.load(find_model(model))
    found = {word: vectors.nearest(word, top) for word in words}
    for word, neighbours in found.items():
        title = word if len(found) > 1 else ""
        _show({"word": word, "nearest": [one._asdict() for one in neighbours]}, title, neighbours, as_json)


def run_analogy(a: str, b: str, c: str, model: Path, top: int, as_json: bool) -> None:
    """What is to `c` as `b` is to `a`."""
    _check_top(top)
    answers = WordVectors.load(find_model(model)).analogy(a, b, c, top)
    _show({"a": a, "b": b, "c": c, "answers": [one._asdict() for one in answers]}, "", answers, as_json)


def run_evaluate_vectors(
    analogies: Path | None, similarity: list[Path], model: Path | None, vocabulary: int, as_json: bool
) -> None:
    """Prints analogy accuracy by section, and correlations with people's judgements of similarity."""
    if model is None:
        what = "no word vectors come with regard"
        raise ConfigError("--model", what, "Give the folder of a run, or a file of word vectors")
    vectors = WordVectors.load(find_model(model))
    report = evaluate_analogies(vectors, analogies, vocabulary) if analogies is not None else None
    alike = [evaluate_similarity(vectors, path) for path in similarity]
    if as_json:
        scores = report.scores() if report is not None else {}
        scores |= {row.name: score for row in alike if (score := row.score()) is not None}
        plain = {
            "words": len(vectors),
            "width": vectors.width,
            "analogies": report.to_plain() if report is not None else None,
            "similarity": [row.to_plain() for row in alike],
            "scores": {name: score.to_plain() for name, score in scores.items()},
        }
        print(json.dumps(plain, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{model}: {len(vectors):,} words, {vectors.width} numbers each", markup=False)
    if report is not None:
        table = Table("analogies", "right", "asked", "skipped", "accuracy")
        for row in report.rows():
            table.add_row(*_cells(row), end_section=row == report.sections[-1])
        console.print(table)
        console.print(f"Asked and answered among the {report.vocabulary:,} most frequent words.", markup=False)
    if alike:
        table = Table("similarity", "known pairs", "of", "Spearman")
        for one in alike:
            table.add_row(
                Text(one.name), f"{one.known:,}", f"{one.pairs:,}", "—" if one.rho is None else f"{one.rho:.4f}"
            )
        console.print(table)


def run_export_vectors(model: Path, out: Path, binary: bool) -> int:
    """Writes the word vectors of a run in word2vec's text or binary format. Gives their number."""
    check_outputs([out], [model])
    vectors = WordVectors.load(model)
    vectors.save(out, binary)
    return len(vectors)


def _reader(model: Path, device: str) -> Any:
    """The model of a run that reads whole texts; None for word vectors, as a file or as a run's table of words."""
    place = find_model(model)
    if place.is_file() or "fills" not in MODELS.get(str(read_config(place)["model"].get("name"))).capabilities:
        return None
    return load(place, device)


def _name_of_others(model: Path) -> str | None:
    """The name of a run's model that is made for something else than vectors of words."""
    place = find_model(model)
    if place.is_file():
        return None
    name = str(read_config(place)["model"].get("name"))
    return None if "embeds" in MODELS.get(name).capabilities else name


def _texts_given(reader: Any) -> Give:
    return lambda texts, first: np.asarray(reader.embed(texts, first=first), dtype=np.float32)


def _words_given(words: WordVectors) -> Give:
    def means(texts: list[str], first: int) -> Iterator[Float[np.ndarray, " D"]]:
        for text in texts:
            vector, unknown = words.mean(text.strip())
            if unknown:
                print(f"Note: without a vector, and left out: {', '.join(unknown)}", file=sys.stderr)
            yield vector

    return means


def _write(text: str, vector: Float[np.ndarray, " D"], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"text": text, "vector": [float(str(x)) for x in vector]}, ensure_ascii=False))
    else:
        print(f"{' '.join(text.split())}\t{' '.join(map(str, vector))}")


def _show(plain: dict[str, Any], title: str, neighbours: list[Neighbour], as_json: bool) -> None:
    if as_json:
        print(json.dumps(plain, ensure_ascii=False))
        return
    if title:
        print(f"{title}:")
    for word, similarity in neighbours:
        print(f"{word}\t{similarity:.4f}")


def _check_top(top: int) -> None:
    if top < 1:
        raise ConfigError("--top", f"it is {top}", "Give the number of words to show, 1 or more")


def _cells(row: SectionScore) -> tuple[Text, str, str, str, str]:
    accuracy = "—" if row.accuracy is None else f"{row.accuracy:.1f}"
    return Text(row.section or "(no section)"), f"{row.right:,}", f"{row.asked:,}", f"{row.skipped:,}", accuracy
