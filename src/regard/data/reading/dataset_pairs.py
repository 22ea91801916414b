"""Reads two text columns of a Hugging Face dataset: a folder written by `save_to_disk`, or a name of the hub."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.errors import DataError
from regard.data.reading.columns import check_two, choose_fields, field
from regard.data.reading.files import ByteFile
from regard.data.reading.reader import Batch, RowReader, one_line

PREFIX = "hf:"
DEFAULT_SPLIT = "train"
_BATCH = 1000
_SAVED = ("state.json", "dataset_dict.json")  # what save_to_disk writes
_SPLIT = re.compile(r"(.+):([\w.-]+(?:\[[^\]]*\])?)")


class DatasetPairs(RowReader):
    """One pair in each row; columns are names, with dots into nested ones (`translation.en`). No code is ever loaded."""

    def __init__(self, path: str, columns: Sequence[str | int] = ()) -> None:
        self._columns = check_two(path, columns)
        self._dataset, self._split = _load(path)
        places = {str(entry["filename"]) for entry in self._dataset.cache_files}
        super().__init__([ByteFile(place) for place in sorted(places)], [path])

    def content_hash(self) -> str:
        """The hash of the Arrow files, or of the fingerprint of a dataset that is not on the disk."""
        digest = f"{super().content_hash()} {self._split} {len(self._dataset)}"
        # rows that were chosen or reordered stand in the fingerprint alone
        if not self.files or getattr(self._dataset, "_indices", None) is not None:
            digest += f" {self._dataset._fingerprint}"
        return hashlib.sha256(digest.encode()).hexdigest()

    def _batches(self, raw: bool) -> Iterator[Batch]:
        name, before = self.names[0], 0
        fields: tuple[str, str] | None = None
        dataset = self._dataset.with_format(None)
        for begin in range(0, len(dataset), _BATCH):
            columns: Mapping[str, list[object]] = dataset[begin : begin + _BATCH]
            if fields is None:
                fields = choose_fields(name, {key: values[0] for key, values in columns.items()}, self._columns)
                dataset = dataset.select_columns(sorted({_top(dataset.column_names, key) for key in fields}))
            source, target = (self._texts(columns, key, before) for key in fields)
            before += len(source)
            yield source, target

    def _texts(self, columns: Mapping[str, list[object]], key: str, before: int) -> list[str]:
        top = _top(list(columns), key)
        values = columns[top] if top == key else [field({top: value}, key) for value in columns[top]]
        for row, value in enumerate(values, before + 1):
            if not isinstance(value, str):
                kind = "null or missing" if value is None else type(value).__name__
                raise DataError(
                    f"{self.names[0]}, row {row}",
                    f"the value of {key} is not a text but {kind}",
                    "Mend or remove that row, or choose other columns",
                )
        return [one_line(str(value)) for value in values]


def _top(names: Sequence[str], key: str) -> str:
    return key if key in names else key.partition(".")[0]


def _load(path: str) -> tuple[Any, str]:
    """The dataset and its split. `path` is FOLDER_OR_NAME[:SPLIT], with or without `hf:` before it."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise DataError(
            path,
            "reading Hugging Face datasets needs the package datasets",
            'Install it with pip install "regard[data]"',
        ) from None
    name, split = path.removeprefix(PREFIX), ""
    if "\0" in name or not name.strip():
        raise DataError(repr(path), "it names no dataset", "Write hf:FOLDER or hf:NAME, with :SPLIT after it")
    parts = _SPLIT.fullmatch(name)
    if parts and not Path(name).is_dir():
        name, split = parts[1], parts[2]
    folder = Path(name).expanduser()
    try:
        if folder.is_dir() and any((folder / file).is_file() for file in _SAVED):
            return _choose(path, datasets.load_from_disk(str(folder)), split)
        if not folder.is_dir() and (name.startswith(("/", ".", "~")) or folder.exists()):
            raise DataError(path, "there is no such folder", "Name a folder written by save_to_disk, or a dataset")
        # versions before 4 could run a dataset's own code
        safe = {"trust_remote_code": False} if _takes_code(datasets.load_dataset) else {}
        name = str(folder) if folder.is_dir() else name
        with _without_retry_messages():
            return datasets.load_dataset(name, split=split or DEFAULT_SPLIT, **safe), split or DEFAULT_SPLIT
    except DataError:
        raise
    except Exception as error:  # whatever the package, its network or its file formats raise
        lines = str(error).strip().splitlines()
        reason = (lines[0] if lines else type(error).__name__)[:200].rstrip(".")
        raise DataError(
            path,
            f"the dataset cannot be loaded ({reason})",
            "Check name, split and connection, or give a folder written by save_to_disk",
        ) from None


@contextmanager
def _without_retry_messages() -> Iterator[None]:
    """Without the hub's warnings about each attempt to connect; what it ends with is an error of its own."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)


def _choose(path: str, loaded: Any, split: str) -> tuple[Any, str]:
    if not isinstance(loaded, dict):
        if split and split != str(loaded.split):
            raise DataError(path, f"the folder holds one dataset without a split {split}", "Leave the split away")
        return loaded, split or str(loaded.split)
    if (split or DEFAULT_SPLIT) not in loaded:
        known = ", ".join(map(str, loaded))
        raise DataError(path, f"there is no split {split or DEFAULT_SPLIT}", f"Add one of these after a colon: {known}")
    return loaded[split or DEFAULT_SPLIT], split or DEFAULT_SPLIT


def _takes_code(load: Any) -> bool:
    return "trust_remote_code" in inspect.signature(load).parameters
