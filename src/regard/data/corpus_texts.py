"""The texts that a configuration names, opened: from the files of a recipe to readers of pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from regard.core.errors import DataError
from regard.data.addresses import is_path
from regard.data.corpus_config import CorpusConfig, DataConfig
from regard.data.prepared import from_home
from regard.data.reading import PairReader, open_pairs
from regard.data.reading.backwards import Backwards
from regard.data.survey import FilterConfig, Text

IN_MEMORY = 64 << 20  # bytes of text
PACKED = (".gz", ".xz", ".zst", ".parquet")  # about a quarter of what they hold


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
