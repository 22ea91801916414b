"""The model of a run folder as CTranslate2 runs it: converted once, kept, and made again where what is kept is damaged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.core.errors import CheckpointError, RegardError
from regard.core.files import MANIFEST, check_header, read_json
from regard.core.number_formats import Asked
from regard.data.prepared import cache_folder
from regard.data.tokenizers import Tokenizer
from regard.engines.ctranslate2_engine import SHORT_LISTS, CTranslate2Engine, installed
from regard.engines.ctranslate2_limits import Compute, longest, why_not
from regard.engines.model_cache import KEPT, cached, key_of
from regard.tasks.run_files import WEIGHTS, Opened

if TYPE_CHECKING:
    import numpy as np

FOLDER = "ctranslate2"  # of a run, and of the user's cache
SHORT_LISTS_OF_RUN = "short_lists.safetensors"
CONVERTER = 1  # raised when the same weights give other files
PACKAGE = Path(__file__).resolve().parents[1]


def why_not_run(opened: Opened) -> str | None:
    """Why CTranslate2 cannot run the model of a run, in words; None where it can."""
    if not installed():
        return "CTranslate2 is not installed"
    return why_not(opened.config["model"])


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, without torch; types that NumPy does not know are an error."""
    from safetensors import SafetensorError, safe_open

    check_header(path)
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(path, f"NumPy cannot read it ({error})", "Use the torch engine") from None


def ctranslate2_files(opened: Opened, compute: Compute) -> dict[str, bytes]:
    """The files of a CTranslate2 model folder, by name: a run as others can use it."""
    from regard.engines.ctranslate2_model import converted  # NumPy, which a model that is kept does not need

    tokens = [vocabulary(tokenizer) for tokenizer in (opened.tokenizers.source, opened.tokenizers.target)]
    return converted(opened.config["model"], read_weights(opened.place / WEIGHTS), tokens[0], tokens[1], compute)


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(tokenizer.size))


def open_engine(folder: Path, opened: Opened, asked: Asked) -> CTranslate2Engine:
    """The engine of a run whose files were checked against the manifest."""
    assert asked != "bfloat16"
    compute: Compute = "int8" if asked == "auto" else asked
    section = opened.config["model"]
    made_from = {
        "converter": CONVERTER,
        "compute": compute,
        "model": section,
        "weights": read_json(opened.place / MANIFEST)["files"][WEIGHTS]["sha256"],
        "tokenizers": [opened.tokenizers.source.fingerprint, opened.tokenizers.target.fingerprint],
    }
    files = cached(key_of(made_from), _places(folder), lambda: ctranslate2_files(opened, compute))
    limit = longest(section) if section.get("positions") == "learned" else None
    source, target = vocabulary(opened.tokenizers.source), vocabulary(opened.tokenizers.target)
    if (lists := folder / SHORT_LISTS_OF_RUN).is_file():
        files = {**files, SHORT_LISTS: short_lists_file(lists, source, target)}
    return CTranslate2Engine(files, source, target, longest=longest(section), limit=limit, compute=compute)


def short_lists_file(path: Path, source: list[str], target: list[str]) -> bytes:
    """A run's short lists as CTranslate2 reads them: a source token, a tab, and target tokens with spaces between.

    A token with white space in it cannot be written so: of the source it adds nothing, of the target it is never proposed.
    """
    from regard.data.short_lists import ShortLists

    lists = ShortLists.load(path, len(source), len(target))

    def line(key: str, tokens: Iterable[int]) -> str:
        return f"{key}\t{' '.join(target[i] for i in tokens if i and len(target[i].split()) == 1)}\n"

    lines = [line("", lists.always.tolist())]
    for token, row in zip(source, lists.each.tolist(), strict=True):
        if len(token.split()) == 1 and any(row):
            lines.append(line(token, row))
    return "".join(lines).encode()


def _places(folder: Path) -> list[tuple[Path, int]]:
    """Beside the run, then the user's cache. Nothing is written into the installed package."""
    places = [] if folder.resolve().is_relative_to(PACKAGE) else [(folder / FOLDER, KEPT["run"])]
    try:
        return [*places, (cache_folder() / FOLDER, KEPT["user"])]
    except RegardError:  # a user without a home
        return places
