"""Plain text for language models in shards: `data.text=shards:FILE`, where FILE lists paths and addresses, one on a line.

A sample of the beginning stands for the whole where something has to be counted or learnt before training: sizes and tokenizer.
"""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path

from regard.core.errors import ConfigError, DataError
from regard.data.addresses import SHARDS, is_path
from regard.data.corpus_config import DataConfig
from regard.data.documents import Say, TextCorpus, TextCount, read_documents
from regard.data.prepared import from_home
from regard.data.reading.lines import read_lines
from regard.data.shards import MOST_SHARDS, ShardStream

SAMPLE_LINES, SAMPLE_CHARACTERS = 20_000, 16 << 20


def load_sharded(config: DataConfig, say: Say | None = None) -> TextCorpus:
    """The list of shards, a sample of them, and held-out text, which must be in files of its own."""
    if config.documents not in ("auto", "line"):
        raise ConfigError("setting data.documents", "each line of a shard is a document", "Leave it out")
    place = from_home(config.folder) / from_home(config.text.removeprefix(SHARDS))
    shards = read_list(place)
    held: dict[str, list[str]] = {}
    files = {"text": SHARDS + str(place)}
    for part, setting in (("valid", "valid_text"), ("test", "test_text")):
        given = getattr(config, setting)
        if given:
            files[setting] = str(from_home(config.folder) / from_home(given)) if is_path(given) else given
            held[part] = read_documents(files[setting], config.documents, say).texts
    sample = _sample(shards)
    digest = hashlib.sha256()
    for name, texts in (("shards", shards), *held.items()):
        digest.update(f"{name} {len(texts)}\n".encode())
        for text in texts:
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    count = TextCount(len(sample), sum(map(len, sample)), sum(len(line.encode()) for line in sample))
    return TextCorpus(
        sample,
        held.get("valid", []),
        held.get("test", []),
        digest.hexdigest(),
        files=files,
        counts={"train": count},
        shards=tuple(shards),
    )


def read_list(path: Path) -> list[str]:
    """The shards that a file lists: addresses, and paths from the list's own folder."""
    lines = [line.strip() for line in read_lines(path)]
    found = [line if "://" in line else str(path.parent / from_home(line)) for line in lines if line]
    if not 1 <= len(found) <= MOST_SHARDS or len(set(found)) < len(found):
        what = f"it lists {len(found):,} shards, {len(set(found)):,} of them different"
        raise DataError(path, what, "Name each shard once, on a line of its own")
    return found


def _sample(shards: list[str]) -> list[str]:
    lines: list[str] = []
    characters = 0
    stream = ShardStream(shards, seed=0, buffer=1)
    for line in islice(stream, SAMPLE_LINES):
        if stream.place.epoch:  # a short text, from its beginning again
            break
        if line.strip():
            lines.append(line)
            characters += len(line)
        if characters > SAMPLE_CHARACTERS:
            break
    if not lines:
        raise DataError(shards[0], "the first lines of the shards are empty", "Give shards with text in them")
    return lines


def refuse_shards(corpus: TextCorpus, who: str) -> None:
    if corpus.shards:
        what = f"{who} are trained on text in memory, not on shards"
        raise ConfigError("setting data.text", what, "Give a file or a folder")
