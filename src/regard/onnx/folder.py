"""How a model comes out of a folder of ONNX graphs: hashes first, then the manifest, then tokenizers and graphs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from regard.core import config as configuration
from regard.core.errors import CheckpointError, TokenizerError
from regard.core.files import MANIFEST, check_manifest
from regard.core.search_config import SearchConfig
from regard.data.tokenizers import TokenizerPair
from regard.onnx.manifest import NAME, Manifest, read_manifest
from regard.onnx.sessions import MOST_BYTES, Session, open_graph

_GIVE = "Give the folder that `regard export --to onnx` wrote"


class Opened(NamedTuple):
    """A folder's manifest, tokenizers and graphs."""

    manifest: Manifest
    tokenizers: TokenizerPair
    sessions: dict[str, Session]
    search: SearchConfig


def open_folder(folder: Path) -> Opened:
    """All that a folder holds; a file that is not what its hash says, a link, or data elsewhere is an error."""
    if not folder.is_dir():
        raise CheckpointError(folder, "there is no such folder", _GIVE)
    if not (folder / NAME).is_file() or not (folder / MANIFEST).is_file():
        raise CheckpointError(folder, f"it has no {NAME} and {MANIFEST}", _GIVE)
    check_manifest(folder, [NAME, *_tokenizers(folder)])
    check_manifest(folder, [graph.file for graph in read_manifest(folder).graphs.values()])
    return read_folder(folder)


def _tokenizers(folder: Path) -> list[str]:
    return [name for name in ("tokenizer.json", "tokenizer.src.json", "tokenizer.tgt.json") if (folder / name).exists()]


def read_folder(folder: Path) -> Opened:
    """The same of a folder that nobody but this process has written: hashes are not looked at."""
    manifest = read_manifest(folder)
    search = configuration.build(SearchConfig, manifest.search, "search")
    tokenizers = TokenizerPair.load(folder)
    if (tokenizers.source.size, tokenizers.target.size) != (manifest.source_vocabulary, manifest.target_vocabulary):
        what = (
            f"the tokenizer has {tokenizers.source.size} and {tokenizers.target.size} tokens, not those of the graphs"
        )
        raise TokenizerError(folder, what, "Put the folder's own tokenizer back")
    sessions = {}
    for name, graph in manifest.graphs.items():
        path = folder / graph.file
        if path.stat().st_size > MOST_BYTES:
            raise CheckpointError(path, "the file is too large to be a graph", "Restore it from a copy")
        sessions[name] = open_graph(path, path.read_bytes(), graph)
    return Opened(manifest, tokenizers, sessions, search)
