"""What the text of a run is: the section [data] of a recipe, checked for settings that would silently not hold."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Literal

from regard.core.errors import ConfigError
from regard.core.specials import SPECIALS
from regard.data.split import SplitBy
from regard.data.survey import FilterConfig

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
