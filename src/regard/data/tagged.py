"""Tagged text: sentences of words with a tag each, divided into train, valid and test. See tagged_columns.py for the files.

The text is held in memory. `bundled:NAME` is one of the package's files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from regard.core.errors import DataError
from regard.core.visible_text import visible
from regard.data.bundle import TAGGED
from regard.data.chunks import are_chunk_tags, completed
from regard.data.corpus_config import DataConfig
from regard.data.held_out import NAMES, count_repeated, hold_out_units, place_of, sizes_to_hold_out
from regard.data.tagged_columns import TaggedFile, TaggedSentences, read_tagged

Say = Callable[[str], None]
PARTS = {"train": "tagged", "valid": "valid_tagged", "test": "test_tagged"}  # part -> setting
MANY_TAGS = 50  # from so many on, a tag for every second word is no tag


@dataclass
class TaggedCorpus:
    """The three parts of a tagged text, with what identifies them."""

    train: TaggedSentences
    valid: TaggedSentences
    test: TaggedSentences
    labels: tuple[str, ...]  # all tags, by their letters; of chunks, B- and I- of every kind
    fingerprint: str  # SHA-256 of words and tags as they are used, part by part
    files: dict[str, str] = field(default_factory=dict)  # setting -> path
    set_apart: int = 0  # copies of held-out sentences: neither trained on nor held out again
    repeated: dict[str, int] = field(
        default_factory=dict
    )  # part that comes from a file -> its sentences that are trained on too


def load_tagged(config: DataConfig, say: Say | None = None) -> TaggedCorpus:
    """Reads and divides tagged text. The same text and settings always give the same parts."""
    if not config.tagged:
        raise DataError("data", "no tagged text is given", "Set data.tagged to a file of columns: word, tag")
    files = {
        setting: place_of(config, getattr(config, setting), setting, "tagged", TAGGED)
        for setting in PARTS.values()
        if getattr(config, setting)
    }
    found = {
        part: read_tagged(files[setting], str(config.tag_column)) for part, setting in PARTS.items() if setting in files
    }
    labels = _labels(files["tagged"], found["train"].part)
    for part, one in found.items():
        check_tags(files[PARTS[part]], one, labels, files["tagged"])
    parts = {part: one.part for part, one in found.items()}
    set_apart = 0
    valid_size, test_size = sizes_to_hold_out(config, parts)
    if valid_size or test_size:
        whole = parts["train"]
        name, seed = files["tagged"], config.split_seed
        train, valid, test = hold_out_units(name, whole, valid_size, test_size, seed, "sentences")
        parts = {"valid": valid, "test": test, **parts, "train": train}
        set_apart = len(whole) - len(train) - (len(valid) if valid_size else 0) - (len(test) if test_size else 0)
    train, valid, test = (parts.get(part, TaggedSentences()) for part in PARTS)
    repeated = {part: count_repeated(train, parts[part]) for part in ("valid", "test") if part in found}
    corpus = TaggedCorpus(train, valid, test, labels, _fingerprint(train, valid, test), files, set_apart, repeated)
    if say is not None:
        _report(corpus, say)
    return corpus


def _labels(name: str, part: TaggedSentences) -> tuple[str, ...]:
    """The tags of the training text, in their order."""
    tags = {tag for sentence in part.tags for tag in sentence}
    if len(tags) == 1:
        what = f"all its {part.size:,} words have one tag, {next(iter(tags))!r}"
        raise DataError(name, what, "Give text with two or more tags, or choose their column with data.tag_column")
    if len(tags) > MANY_TAGS and 2 * len(tags) > part.size:
        what = f"its {part.size:,} words have {len(tags):,} tags, such as {visible(part.tags[0][0], 40)!r}"
        raise DataError(name, what, "Choose the column of tags with data.tag_column")
    return tuple(sorted(completed(tags) if are_chunk_tags(tags) else tags))


def check_tags(name: str, found: TaggedFile, labels: Sequence[str], known_by: str) -> None:
    """Refuses a file with a tag that is not among `labels`; `known_by` says who knows those."""
    known = set(labels)
    for tags, lines in zip(found.part.tags, found.lines, strict=True):
        for tag, number in zip(tags, lines, strict=True):
            if tag not in known:
                shown = ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
                what = f"{known_by} does not have the tag {visible(tag, 40)!r}; it has {shown}"
                raise DataError(f"{name}, line {number}", what, "Mend the tag, or train on text that has it")


def _report(corpus: TaggedCorpus, say: Say) -> None:
    if corpus.set_apart:
        say(f"{corpus.set_apart:,} copies of held-out sentences are not trained on.")
    for part, count in corpus.repeated.items():
        if count:
            say(f"Note: {count:,} {NAMES[part]} sentences are trained on too.")
    counts = Counter(tag for sentence in corpus.train.tags for tag in sentence)
    if never := [label for label in corpus.labels if not counts[label]]:
        say(f"Not in the training text, so never learnt: {', '.join(visible(label, 40) for label in never[:20])}")
    shown = ", ".join(f"{visible(label, 40)} {counts[label]:,}" for label in corpus.labels[:20])
    say(f"{len(corpus.labels):,} tags: {shown}{', ...' if len(corpus.labels) > 20 else ''}")


def _fingerprint(*parts: TaggedSentences) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\n".encode())
        for words, tags in zip(part.words, part.tags, strict=True):
            rows = "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
            digest.update(rows.encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()


__all__ = ["TaggedCorpus", "TaggedFile", "TaggedSentences", "check_tags", "load_tagged", "read_tagged"]
