"""The text of a run: read from files of every format, filtered, and divided into train, valid and test.

A small text is held in memory. A larger one is surveyed once, and what was found is kept (see prepared.py), so that
neither memory nor the next run has to bear it again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.core.errors import DataError
from regard.data.corpus_config import DataConfig
from regard.data.corpus_texts import is_small, texts_of
from regard.data.prepared import Shelf, read_plain, write_plain
from regard.data.reading import open_pairs
from regard.data.split import Division, Pairs, PairStream, divide, gathered
from regard.data.survey import FileStream, Survey, Text, sample_mask, survey


class Weighted(NamedTuple):
    """So many training pairs, one after the other, come so often in an epoch."""

    pairs: int
    weight: float


@dataclass
class Corpus:
    """The three parts of a corpus, with what identifies them."""

    train: PairStream
    valid: Pairs
    test: Pairs
    fingerprint: str  # SHA-256 of the text as it is used, and of how it is divided
    files: dict[str, str] = field(default_factory=dict)  # setting -> path
    dropped: int = 0  # pairs with an empty side
    filtered: dict[str, int] = field(default_factory=dict)  # pairs left out, by the filter's name
    weights: tuple[Weighted, ...] = ()  # of the training pairs, in their order; empty: all alike
    tags: tuple[str, ...] = ()  # of the training pairs
    set_apart: int = 0  # pairs neither trained on nor held out, since they would leak
    shelf: Shelf | None = None  # where what is made of a large text is kept

    def pair_weights(self) -> np.ndarray | None:
        """The weight of each training pair, or None where all are 1."""
        if all(part.weight == 1 for part in self.weights):
            return None
        return np.repeat([part.weight for part in self.weights], [part.pairs for part in self.weights])


def load_corpus(config: DataConfig, say: Callable[[str], None] | None = None) -> Corpus:
    """Reads, filters and divides a corpus. The same text and settings always give the same parts."""
    files: dict[str, str] = {}
    sources = texts_of(config, files)
    if is_small(config.store, [text.reader for text in sources["train"]]):
        return _divided(config, sources, files)
    shelf = Shelf.for_text(config.store, _key(config, sources))
    made = shelf.made("text", "", lambda folder: _survey_into(folder, config, sources), say)
    return _from_shelf(made, config, sources["train"], files, shelf)


def _key(config: DataConfig, texts: dict[str, list[Text]]) -> str:
    """What a survey depends on: the files' content, and every setting that chooses among their pairs.

    Weights choose none: runs that differ in nothing else share what is made.
    """
    settings = {
        f.name: getattr(config, f.name)
        for f in dataclasses.fields(config)
        if f.name not in ("folder", "source_language", "target_language", "check", "allow", "store", "corpora")
        and not f.name.endswith(("src", "tgt", "pairs"))  # paths; max_pairs is added below
    }
    settings["max_pairs"] = config.max_pairs
    parts = {
        name: [
            [t.reader.content_hash(), type(t.reader).__name__, t.columns, dataclasses.asdict(t.filters), t.tag, t.most]
            for t in several
        ]
        for name, several in texts.items()
    }
    plain = json.dumps([settings, parts], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def _divided(config: DataConfig, texts: dict[str, list[Text]], files: dict[str, str]) -> Corpus:
    found, held, division = _survey(config, texts, keep=True)
    pairs = found.pairs
    assert pairs is not None
    train = np.flatnonzero(division.train)
    parts = {
        "valid": held.get("valid", pairs.take(division.valid.tolist())),
        "test": held.get("test", pairs.take(division.test.tolist())),
    }
    return Corpus(
        train=pairs if len(train) == len(pairs) else pairs.take(train.tolist()),
        valid=parts["valid"],
        test=parts["test"],
        fingerprint=_fingerprint(config, found, held),
        files=files,
        dropped=found.dropped,
        filtered=dict(found.filtered),
        weights=_weights(texts["train"], found, division),
        tags=tuple(dict.fromkeys(text.tag for text in texts["train"] if text.tag)),
        set_apart=_set_apart(config, found, division),
    )


def _survey(
    config: DataConfig, texts: dict[str, list[Text]], *, keep: bool
) -> tuple[Survey, dict[str, Pairs], Division]:
    """The survey of the training text, the held-out parts that come from files, and how the former is divided."""
    held: dict[str, Pairs] = {}
    dropped, filtered = 0, {}
    for name in ("valid", "test"):
        if name in texts:
            part = survey(texts[name], keep=True, draw=False, by="source", seed=0)
            assert part.pairs is not None
            _refuse_nothing(part, "validation" if name == "valid" else name)
            held[name] = part.pairs
            dropped += part.dropped
            filtered = {**filtered, **part.filtered}
    valid_size = 0 if "valid" in held else max(0, config.valid_size) if config.valid_size else None
    test_size = config.test_size or (-1 if "valid" in held else 0)
    test_size = 0 if "test" in held or test_size < 0 else test_size or None
    draw = valid_size != 0 or test_size != 0
    found = survey(texts["train"], keep=keep, draw=draw, by=config.split_by, seed=config.split_seed)
    _refuse_nothing(found, "training")
    count = sum(found.counts)
    if draw:
        division = divide(found.sources, found.targets, valid_size, test_size)
    else:
        none = np.zeros(0, dtype=np.int64)
        division = Division(np.ones(count, dtype=bool), none, none)
    if config.max_pairs:
        places = np.flatnonzero(division.train)
        division.train[places[~sample_mask(len(places), config.max_pairs, config.split_seed)]] = False
    found.dropped += dropped
    found.filtered.update(filtered)
    return found, held, division


def _refuse_nothing(found: Survey, name: str) -> None:
    if sum(found.counts):
        return
    every = sum(map(len, found.masks))
    others = ", ".join(f"{count} by {reason}" for reason, count in found.filtered.items())
    raise DataError(
        f"the {name} text",
        f"none of its {every} pairs is left ({found.dropped} have an empty side{', ' + others if others else ''})",
        "Check the files and the filters: data.min_words, data.max_words, data.max_ratio, data.filters",
    )


def _set_apart(config: DataConfig, found: Survey, division: Division) -> int:
    held = len(division.valid) + len(division.test)
    return 0 if config.max_pairs else sum(found.counts) - int(division.train.sum()) - held


def _weights(texts: Sequence[Text], found: Survey, division: Division) -> tuple[Weighted, ...]:
    borders = np.cumsum([0, *found.counts])
    spans = itertools.pairwise(borders)
    return tuple(
        Weighted(int(division.train[begin:end].sum()), text.weight)
        for text, (begin, end) in zip(texts, spans, strict=True)
    )


def _fingerprint(config: DataConfig, found: Survey, held: dict[str, Pairs]) -> str:
    digest = hashlib.sha256(found.fingerprint.encode())
    for name, part in sorted(held.items()):
        digest.update(f"\n{name} {len(part)}\n".encode())
        for lines in (part.sources, part.targets):
            digest.update(("\n".join(lines) + "\n").encode(errors="surrogatepass"))
    if len(found.masks) > 1:  # a line that moves from one text to the next gets another weight and tag
        digest.update(json.dumps(found.counts).encode())
    sizes = [config.valid_size if "valid" not in held else 0, config.test_size if "test" not in held else 0]
    digest.update(json.dumps([sizes, config.split_by, config.split_seed, config.max_pairs]).encode())
    return digest.hexdigest()


def _survey_into(folder: Path, config: DataConfig, texts: dict[str, list[Text]]) -> None:
    """Writes what a survey found, so that the next run need not look again."""
    found, held, division = _survey(config, texts, keep=False)
    borders = np.cumsum([0, *found.counts])
    chosen = {"train": division.train}
    for name, places in (("valid", division.valid), ("test", division.test)):
        chosen[name] = np.zeros(len(division.train), dtype=bool)
        chosen[name][places] = True
    masks = {}
    for name, mask in chosen.items():
        masks[name] = []
        for i, kept in enumerate(found.masks):
            whole = np.zeros(len(kept), dtype=bool)
            whole[kept] = mask[borders[i] : borders[i + 1]]
            masks[name].append(whole)
    for i, mask in enumerate(masks["train"]):
        np.save(folder / f"train-{i}.npy", np.packbits(mask), allow_pickle=False)
    for name in ("valid", "test"):
        part = held[name] if name in held else gathered(FileStream(texts["train"], masks[name]).chunks())
        write_plain(folder / f"{name}.json", [part.sources, part.targets, part.tags])
    write_plain(
        folder / "corpus.json",
        {
            "fingerprint": _fingerprint(config, found, held),
            "lines": [len(mask) for mask in found.masks],
            "dropped": found.dropped,
            "filtered": dict(found.filtered),
            "train": [part.pairs for part in _weights(texts["train"], found, division)],
            "set_apart": _set_apart(config, found, division),
        },
    )


def _from_shelf(folder: Path, config: DataConfig, texts: list[Text], files: dict[str, str], shelf: Shelf) -> Corpus:
    known = read_plain(folder / "corpus.json")
    masks = []
    for i, lines in enumerate(known["lines"]):
        bits = np.load(folder / f"train-{i}.npy", allow_pickle=False)
        masks.append(np.unpackbits(bits, count=lines).astype(bool))
    held = {name: Pairs(*read_plain(folder / f"{name}.json")) for name in ("valid", "test")}
    return Corpus(
        train=FileStream(texts, masks),
        valid=held["valid"],
        test=held["test"],
        fingerprint=known["fingerprint"],
        files=files,
        dropped=known["dropped"],
        filtered=known["filtered"],
        weights=tuple(Weighted(count, text.weight) for count, text in zip(known["train"], texts, strict=True)),
        tags=tuple(dict.fromkeys(text.tag for text in texts if text.tag)),
        set_apart=known["set_apart"],
        shelf=shelf,
    )


def read_pairs(src: str | Path, tgt: str | Path) -> Pairs:
    """Reads two files whose lines belong together."""
    return gathered(open_pairs([src, tgt], "text").chunks())


def read_tsv(path: str | Path, columns: Sequence[int] = (0, 1)) -> Pairs:
    """Reads the source and the target column of a tab-separated file, without any quoting rules."""
    return gathered(open_pairs([path], "tsv", [str(c) for c in columns]).chunks())
