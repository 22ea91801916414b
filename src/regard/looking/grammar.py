"""What heads do, counted: how often a head's strongest weight follows a grammatical relation of a parsed text (CoNLL-U).

Words are what stands between white space, with the pieces of a word taken together (columns summed, rows averaged). For every
relation between two different words, a head follows it from the dependent if, of all other words, the dependent looks most at the
word that it depends on; and from the verb if that looks most at its dependent. A baseline is beside it: the best single distance,
always "the word before" or "two words on", in the same text. A head that does no better has learnt a distance, not a relation.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.core.errors import DataError, ModelError, RegardError
from regard.core.files import read_json, write_json
from regard.core.types import EOS, pad_rows
from regard.data.reading.lines import read_lines
from regard.data.word_tokens import WordTokenizer
from regard.looking.trace import parts_of
from regard.models.base import Recorder
from regard.tasks.translation import Translator

FILE = "heads.json"
RELATIONS = {"nsubj": "who", "obj": "did what", "iobj": "to whom"}
MOST_WORDS = 60  # of a sentence; longer ones are left out
MOST_SENTENCES = 5000
FAR = 10  # the longest distance of the baseline
WAYS = ("dependent", "head")


@dataclasses.dataclass(frozen=True)
class Parsed:
    """A sentence and its relations between words: (kind, dependent, head), by number from 0."""

    text: str
    relations: list[tuple[str, int, int]]


def read_parsed(path: Path) -> list[Parsed]:
    """The sentences of a CoNLL-U file that have one of the relations."""
    found: list[Parsed] = []
    for number, rows in _sentences(path):
        try:
            parsed = _parsed(rows)
        except (LookupError, ValueError):
            what = "the sentence that ends here is not in CoNLL-U's ten columns, or a HEAD is none of its words"
            raise DataError(f"{path}, line {number}", what, "Give a file with HEAD and DEPREL") from None
        if parsed.relations and len(parsed.text.split()) <= MOST_WORDS:
            found.append(parsed)
        if len(found) == MOST_SENTENCES:
            break
    if not found:
        raise DataError(str(path), f"no sentence has one of {', '.join(RELATIONS)}", "Give a parsed text in CoNLL-U")
    return found


def _sentences(path: Path) -> Iterator[tuple[int, list[list[str]]]]:
    rows: list[list[str]] = []
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            if rows:
                yield number, rows
            rows = []
        elif not line.startswith("#"):
            rows.append(line.split("\t"))
    if rows:
        yield number, rows


def _parsed(rows: list[list[str]]) -> Parsed:
    """White-space words from the columns; a contraction (1-2) is written as its own line says."""
    text, word_of, word, covered = "", {}, 0, 0
    for row in rows:
        if "." in row[0]:  # an empty node
            continue
        first, _, last = row[0].partition("-")
        glued = "SpaceAfter=No" in row[9]
        if last:
            text += row[1] + ("" if glued else " ")
            word_of |= dict.fromkeys(range(int(first), int(last) + 1), word)
            covered = int(last)
            word += not glued
        elif int(first) > covered:
            text += row[1] + ("" if glued else " ")
            word_of[int(first)] = word
            word += not glued
    relations = [
        (kind, word_of[int(row[0])], word_of[int(row[6])])
        for row in rows
        if row[0].isdecimal() and (kind := row[7].split(":")[0]) in RELATIONS and int(row[6]) > 0
    ]
    return Parsed(text.strip(), [(kind, a, b) for kind, a, b in relations if a != b])


@torch.inference_mode()
def count_heads(task: Any, sentences: Iterable[Parsed]) -> dict[str, Any]:
    """For every relation and way, the share of each encoder head [layers, heads], how many there were, and the baseline."""
    if not isinstance(task, Translator):
        raise ModelError("the model", "heads are counted for translators", "Give the folder of one")
    tokenizer = WordTokenizer(task.tokenizers.source)
    right: dict[tuple[str, str], np.ndarray] = {}
    total: Counter[str] = Counter()
    distances: dict[str, Counter[int]] = {kind: Counter() for kind in RELATIONS}
    limit = task.model.limits.source
    task.model.eval()
    for sentence in sentences:
        (tokens,) = tokenizer.encode([sentence.text])
        words = np.asarray([*tokens.words, tokens.count])  # EOS belongs to no word
        if (limit is not None and len(words) > limit) or set(range(tokens.count)) - set(tokens.words):
            continue
        record = Recorder()
        source = pad_rows([[*tokens.ids, EOS]]).to(task.device)
        task.model(source, torch.tensor([[1]], device=task.device), record)
        part = parts_of(record.tensors, reads_only=False).get("encoder.self")
        if part is None:
            raise ModelError("the model", "its encoder has no self-attention", "Give a Transformer")
        chosen = _strongest(part.weights, words, tokens.count)  # [layers, heads, words]
        for kind, a, b in sentence.relations:
            total[kind] += 1
            if 0 < abs(b - a) <= FAR:
                distances[kind][b - a] += 1
            for way, (here, there) in zip(WAYS, ((a, b), (b, a)), strict=True):
                hit = chosen[:, :, here] == there
                right[kind, way] = right.get((kind, way), 0) + hit
    shares = {
        kind: {
            "count": total[kind],
            "distance": max(distances[kind].values(), default=0) / total[kind],
            **{way: (right[kind, way] / total[kind]).tolist() for way in WAYS},
        }
        for kind in RELATIONS
        if total[kind]
    }
    if not shares:
        raise DataError("the sentences", "the model can read none of them", "Give shorter ones, or another text")
    return {"part": "encoder.self", "relations": shares}


def _strongest(weights: np.ndarray, words: np.ndarray, count: int) -> np.ndarray:
    """Which other word each word looks at most, in every head."""
    belongs = np.eye(count + 1)[words]  # tokens, words
    between = np.einsum("lhts,sw->lhtw", weights, belongs[:, :count])
    rows = np.einsum("lhtw,tv->lhvw", between, belongs[:, :count] / belongs[:, :count].sum(0))
    rows[:, :, np.arange(count), np.arange(count)] = -1
    return rows.argmax(-1)


def sayings(found: dict[str, Any]) -> dict[str, list[list[str]]]:
    """For each head how often it follows each relation, the best first: "obj 61%, nsubj 40%"."""
    relations = found["relations"]
    some = next(iter(relations.values()))[WAYS[0]]
    said: list[list[str]] = []
    for i, layer in enumerate(some):
        said.append([])
        for j in range(len(layer)):
            shares = {kind: max(float(row[way][i][j]) for way in WAYS) for kind, row in relations.items()}
            order = sorted(shares, key=lambda kind: -shares[kind])
            said[-1].append(", ".join(f"{kind} {shares[kind]:.0%}" for kind in order))
    return {str(found["part"]): said}


def baselines(found: dict[str, Any]) -> dict[str, float]:
    """Of each relation, how often one and the same distance would be right."""
    return {kind: float(row["distance"]) for kind, row in found["relations"].items()}


def best_heads(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The best head of each relation: where it is, which way it looks, how often it is right, and the baseline."""
    rows = []
    for kind, row in found["relations"].items():
        way = max(WAYS, key=lambda name: np.max(row[name]))
        layer, head = np.unravel_index(int(np.argmax(row[way])), np.shape(row[way]))
        best = float(np.max(row[way]))
        rows.append({"relation": kind, "means": RELATIONS.get(kind, ""), "count": row["count"], "layer": int(layer),
                     "head": int(head), "from": way, "share": best, "distance": row["distance"]})  # fmt: skip
    return rows


def save_heads(found: dict[str, Any], path: Path) -> None:
    write_json(path, found)


def load_heads(folder: Path) -> dict[str, Any] | None:
    """What was counted for a run; None where nothing was, or where it is not readable."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        found = read_json(path)
        sayings(found)
        baselines(found)
    except (RegardError, KeyError, TypeError, IndexError, ValueError, StopIteration, AttributeError):
        return None
    return found
