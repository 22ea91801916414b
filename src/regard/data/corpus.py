"""The text of a run: read from files of every format, filtered, and divided into train, valid and test.

A small text is held in memory. A larger one is surveyed once, and what was found is kept (see prepared.py), so that
neither memory nor the next run has to bear it again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from regard.core.errors import ConfigError, DataError
from regard.core.specials import SPECIALS
from regard.data.addresses import is_path
from regard.data.prepared import Shelf, from_home, read_plain, write_plain
from regard.data.reading import PairReader, open_pairs, read_lines
from regard.data.reading.backwards import Backwards
from regard.data.split import Division, Pairs, PairStream, SplitBy, divide, gathered
from regard.data.survey import FileStream, FilterConfig, Survey, Text, sample_mask, survey

IN_MEMORY = 64 << 20  # bytes of text
PACKED = (".gz", ".xz", ".zst", ".parquet")  # about a quarter of what they hold
_SIDES = tuple(f"{part}{side}" for part in ("", "valid_", "test_") for side in ("src", "tgt", "pairs"))
_OF_PAIRS = {
    *_SIDES,
    "corpora",
    "format",
    "columns",
    "tag",
    "valid_size",
    "test_size",
    "split_by",
    "max_pairs",
    "target_order",
}
_OF_PAIRS |= {field_.name for field_ in dataclasses.fields(FilterConfig)}
_OF_TEXT = {"text", "valid_text", "test_text", "documents", "valid_part", "test_part"}
_OF_LABELLED = {"labelled", "valid_labelled", "test_labelled"}
_OF_TAGGED = {"tagged", "valid_tagged", "test_tagged"}
_TAG = re.compile(r"<[^\s<>]{1,60}>")  # no piece of text looks like this: punctuation is always a piece of its own


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(FilterConfig):
    """One of several texts that are trained on together: a table [[data.corpora]] of a recipe."""

    src: str = ""
    tgt: str = ""
    pairs: str = ""  # instead of src and tgt: one file that holds both sides
    format: str = "auto"
    columns: tuple[str | int, ...] = ()
    weight: float = 1.0  # how often its pairs come in an epoch: 2 is twice, 0.5 a new half every time
    tag: str = ""  # a token put before its source sentences, which `regard translate --tag` takes too
    max_pairs: int = 0  # a seeded sample of its pairs; 0 takes all


@dataclass(frozen=True, kw_only=True)
class DataConfig(FilterConfig):
    """Where the text is and how it is divided. Held-out parts come from files, or else from the training text."""

    folder: str = ""  # relative paths start here
    src: str = ""
    tgt: str = ""
    pairs: str = ""  # instead of src and tgt: one file that holds both sides; `bundled:NAME` is one of the package's
    format: str = "auto"  # by the file's ending, or: text, tsv, csv, jsonl, tmx, parquet, datasets
    columns: tuple[str | int, ...] = ()  # source and target: names, or numbers from 0 (TMX: languages)
    corpora: tuple[CorpusConfig, ...] = ()  # instead of one text: several, each with its weight, tag and filters
    text: str = ""  # for language models, instead of pairs: a file, a folder of files, or shards:LIST (docs/scale.md)
    valid_text: str = ""
    test_text: str = ""
    documents: Literal["auto", "line", "file", "blank"] = "auto"  # auto: each file of a folder, each line of a file
    valid_part: float = 0.05  # of `text`, held out where no file is given; of a single file, its end
    test_part: float = 0.05  # likewise
    labelled: str = ""  # for classifiers, instead of pairs: a file of lines, label, tab, text (and a second text)
    valid_labelled: str = ""
    test_labelled: str = ""
    tagged: str = (
        ""  # for taggers, instead of pairs: a file in columns (CoNLL or CoNLL-U), a word and its tag on each line
    )
    valid_tagged: str = ""
    test_tagged: str = ""
    tag_column: str | int = (
        ""  # which column is the tag: upos, xpos, or a number from 1; "": upos of CoNLL-U, else the last
    )
    valid_src: str = ""
    valid_tgt: str = ""
    valid_pairs: str = ""
    test_src: str = ""
    test_tgt: str = ""
    test_pairs: str = ""
    valid_size: int = (
        0  # pairs or texts to hold out where no files are given; 0 chooses from the corpus size, -1 holds out none
    )
    test_size: int = 0  # likewise
    split_by: SplitBy = "source"
    split_seed: int = 1
    max_pairs: int = 0  # a seeded sample of the training part; 0 takes all
    tag: str = ""  # a token put before the source sentences of src, valid and test files
    target_order: Literal["forward", "reversed"] = "forward"  # reversed: the model writes the last word first
    source_language: str = ""  # for display and for the checks
    target_language: str = ""
    check: bool = True  # look for damage before training, and refuse it
    allow: tuple[str, ...] = ()  # findings of the check that do not refuse
    store: str = ""  # a folder to keep the prepared text in, or "memory"; "": the cache folder, for large texts only

    def __post_init__(self) -> None:
        for name in ("valid_size", "test_size"):
            if getattr(self, name) < -1:
                raise ConfigError(f"setting data.{name}", f"it is {getattr(self, name)}", "Use -1, 0 or more")
        if self.max_pairs < 0:
            raise ConfigError("setting data.max_pairs", f"it is negative ({self.max_pairs})", "Use 0 or more")
        self.check_limits("data")
        _check_source(self, "data")
        for i, corpus in enumerate(self.corpora):
            where = f"data.corpora[{i}]"
            corpus.check_limits(where)
            _check_source(corpus, where)
            if not 0 < corpus.weight <= 1000:
                raise ConfigError(f"setting {where}.weight", f"it is {corpus.weight}", "Use more than 0, at most 1000")
            if corpus.max_pairs < 0:
                raise ConfigError(f"setting {where}.max_pairs", f"it is negative ({corpus.max_pairs})", "Use 0 or more")
        if self.corpora:
            self._check_beside_corpora()
        for name in ("valid_part", "test_part"):
            if not 0 <= getattr(self, name) <= 0.5:
                raise ConfigError(
                    f"setting data.{name}", f"it is {getattr(self, name)}", "Use a part of the text, from 0 to 0.5"
                )
        if any(getattr(self, name) for name in _OF_LABELLED):
            self._check_beside_labels(_OF_LABELLED, "labelled text")
        elif any(getattr(self, name) for name in _OF_TAGGED):
            self._check_beside_labels(_OF_TAGGED, "tagged text")
        elif self.text or self.valid_text or self.test_text:
            self._check_beside_text()
        if self.tag_column and not any(getattr(self, name) for name in _OF_TAGGED):
            raise ConfigError("setting data.tag_column", "it is about tagged text", "Leave it out, or set data.tagged")

    def _check_beside_labels(self, own: set[str], kind: str) -> None:
        """Refuses other text beside labelled or tagged text, and settings about it, which would silently not hold."""
        given = next(
            field_.name for field_ in dataclasses.fields(self) if field_.name in own and getattr(self, field_.name)
        )
        kinds = {"sentence pairs": _OF_PAIRS - {"valid_size", "test_size"}, "plain text": _OF_TEXT}
        kinds |= {"labelled text": _OF_LABELLED, "tagged text": _OF_TAGGED}
        for field_ in dataclasses.fields(self):
            for other, names in kinds.items():
                if field_.name in names - own and getattr(self, field_.name) != field_.default:
                    todo = {"valid_part": "Set data.valid_size", "test_part": "Set data.test_size"}
                    what = f"it is about {other}, and data.{given} is {kind}"
                    raise ConfigError(f"setting data.{field_.name}", what, todo.get(field_.name, "Leave it out"))

    def _check_beside_text(self) -> None:
        """Refuses files of pairs beside plain text, and settings about pairs, which would silently not hold."""
        given = next(name for name in ("text", "valid_text", "test_text") if getattr(self, name))
        for field_ in dataclasses.fields(self):
            name = field_.name
            if name in _OF_PAIRS and getattr(self, name) != field_.default:
                size = name.removesuffix("_size")
                what = f"it is about sentence pairs, and data.{given} is plain text"
                todo = f"Set data.{size}_part" if size != name else "Leave it out"
                raise ConfigError(f"setting data.{name}", what, f"{todo}, or give pairs and no data.{given}")

    def _check_beside_corpora(self) -> None:
        """Refuses settings of a single text that would silently not hold for several."""
        if self.src or self.tgt or self.pairs:
            raise ConfigError(
                "setting data.corpora", "other training files are given beside it", "Put them into data.corpora too"
            )
        own = [f.name for f in dataclasses.fields(FilterConfig)]
        if not any(getattr(self, f"{part}_{name}") for part in ("valid", "test") for name in ("src", "pairs")):
            own += ["format", "columns", "tag"]  # beside corpora, these are about held-out files
        plain = CorpusConfig()
        for name in own:
            if getattr(self, name) != getattr(plain, name):
                raise ConfigError(
                    f"setting data.{name}",
                    "it does not hold for data.corpora, each of which has its own",
                    f"Set {name} in every table of data.corpora that it is meant for",
                )


def _check_source(config: CorpusConfig | DataConfig, where: str) -> None:
    if config.columns and len(config.columns) != 2:
        raise ConfigError(
            f"setting {where}.columns",
            f"two columns are expected, got {list(config.columns)}",
            f'Write for example {where}.columns=["en","de"]',
        )
    if config.tag and not _TAG.fullmatch(config.tag):
        raise ConfigError(f"setting {where}.tag", f"{config.tag!r} is not a word in <>", "Use one such as <news>")
    if config.tag in SPECIALS:
        raise ConfigError(f"setting {where}.tag", f"{config.tag} has another meaning already", "Use another word in <>")
    held = [] if isinstance(config, CorpusConfig) else [config.valid_pairs, config.test_pairs]
    if config.src and not any(held):
        for name, none in (("format", ("auto", "text")), ("columns", ((),))):
            if getattr(config, name) not in none:
                raise ConfigError(
                    f"setting {where}.{name}",
                    f"{where}.src and {where}.tgt are plain text, got {getattr(config, name)!r}",
                    f"Leave it out, or give one file with both sides as {where}.pairs",
                )


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


def texts_of(config: DataConfig, files: dict[str, str] | None = None) -> dict[str, list[Text]]:
    """The texts that a configuration names: `train` and, where given, `valid` and `test`."""
    files = {} if files is None else files
    limits = _limits(config)
    found = {}
    for part in ("train", "valid", "test"):
        prefix = "" if part == "train" else f"{part}_"
        given = {name: getattr(config, f"{prefix}{name}") for name in ("src", "tgt", "pairs")}
        reader = _open(config, given, f"data.{prefix}", files, prefix, config.format, config.columns)
        if reader is not None:
            found[part] = [Text(reader, limits, config.tag, columns=config.columns)]
    for i, one in enumerate(config.corpora):
        given = {name: getattr(one, name) for name in ("src", "tgt", "pairs")}
        where = f"corpora[{i}]."
        reader = _open(config, given, f"data.{where}", files, where, one.format, one.columns)
        if reader is None:
            raise DataError(f"data.corpora[{i}]", "it names no files", "Set its src and tgt, or its pairs")
        text = Text(reader, _limits(one), one.tag, one.weight, one.max_pairs, one.columns)
        found.setdefault("train", []).append(text)
    if "train" not in found:
        raise DataError(
            "data", "no training text is given", "Set data.src and data.tgt, or data.pairs, or data.corpora"
        )
    return found


def _limits(config: CorpusConfig | DataConfig) -> FilterConfig:
    return FilterConfig(**{f.name: getattr(config, f.name) for f in dataclasses.fields(FilterConfig)})


def _open(
    config: DataConfig,
    given: dict[str, str],
    where: str,
    files: dict[str, str],
    prefix: str,
    format: str,
    columns: Sequence[str | int],
) -> PairReader | None:
    """The reader of one text, or None where no file is given."""
    src, tgt, pairs = given["src"], given["tgt"], given["pairs"]
    if pairs and (src or tgt):
        raise DataError(
            f"{where}pairs",
            "both a file of pairs and files of one side are given",
            f"Keep {where}pairs or {where}src/tgt",
        )
    if bool(src) != bool(tgt):
        one, missing = ("src", "tgt") if src else ("tgt", "src")
        raise DataError(f"{where}{one}", f"it is given without {where}{missing}", "Give both files, or a file of pairs")
    names = ("pairs",) if pairs else ("src", "tgt") if src else ()
    for name in names:
        files[f"{prefix}{name}"] = _in_folder(config, given[name])
    if not names:
        return None
    if src:
        format, columns = "text", ()
    reader = open_pairs([files[f"{prefix}{name}"] for name in names], format, columns)
    return Backwards(reader) if config.target_order == "reversed" else reader


def _in_folder(config: DataConfig, name: str) -> str:
    if not is_path(name):
        return name
    return str(from_home(config.folder) / from_home(name))


def is_small(store: str, readers: Sequence[PairReader]) -> bool:
    """Whether a text is held in memory, given where the user wants it to be kept."""
    if store:
        return store == "memory"
    sizes = [r.size_on_disk() * (4 if any(n.lower().endswith(PACKED) for n in r.names) else 1) for r in readers]
    return sum(sizes) <= IN_MEMORY


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


__all__ = ["Corpus", "CorpusConfig", "DataConfig", "load_corpus", "read_lines", "read_pairs", "read_tsv", "texts_of"]
