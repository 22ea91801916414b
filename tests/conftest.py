"""One thread per worker, shapes and types of public signatures checked at run time, and what test modules share.

Shared are a tiny trained run, its text, and the command line run inside the process.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a script: tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["REGARD_CACHE"] = str(Path(tempfile.gettempdir()) / f"regard-tests-{os.getpid()}")  # not the user's own
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from jaxtyping import install_import_hook  # noqa: E402

# Before anything of regard is imported. Checks cost time and stop torch.compile: tests only.
_hook = install_import_hook(["regard.layers", "regard.models", "regard.search"], "beartype.beartype")
_hook.__enter__()

import torch  # noqa: E402

torch.set_num_threads(1)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are named by a checksum that the clock inside a gzip header does not change: workers must agree on names."""
    if not isinstance(val, bytes):
        return None
    steady = val[:4] + bytes(4) + val[8:] if val.startswith(b"\x1f\x8b") else val
    return f"{argname}-{zlib.crc32(steady):08x}"


TINY = {
    "data": {"valid_size": 20, "test_size": 20, "source_language": "en", "target_language": "de"},
    "tokenizer": {"size": 300},
    "model": {"width": 16, "layers": 1, "heads": 2, "inner": 32, "dropout": 0.0},
    "train": {"steps": 20, "batch_tokens": 600, "warmup": 5, "save_every": 10, "threads": 1},
}


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass(frozen=True)
class TextFiles:
    """Two aligned files of English and German sentences."""

    src: Path
    tgt: Path
    sources: list[str]
    targets: list[str]


@pytest.fixture(scope="session")
def text_files(tmp_path_factory: pytest.TempPathFactory) -> TextFiles:
    from regard.data.corpus import read_tsv

    pairs = read_tsv("bundled:tatoeba-en-de")
    pairs = pairs.take(list(range(0, len(pairs), len(pairs) // 340)))
    folder = tmp_path_factory.mktemp("text")
    src, tgt = folder / "pairs.en", folder / "pairs.de"
    src.write_text("".join(line + "\n" for line in pairs.sources), encoding="utf-8")
    tgt.write_text("".join(line + "\n" for line in pairs.targets), encoding="utf-8")
    return TextFiles(src, tgt, pairs.sources, pairs.targets)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, text_files: TextFiles) -> Path:
    """A finished run of a very small Transformer. Never change it: `tiny_copy` gives one to break."""
    from regard.training.progress import Reporter
    from regard.training.run import train

    folder = tmp_path_factory.mktemp("runs") / "tiny"
    files = (str(text_files.src), str(text_files.tgt))
    train(
        out=folder, src=files[0], tgt=files[1], settings=TINY, report=Reporter(quiet=True), command="regard train ..."
    )
    return folder


@pytest.fixture
def tiny_copy(tiny_run: Path, tmp_path: Path) -> Path:
    """A model of one's own, without its checkpoints."""
    folder = tmp_path / "copy"
    shutil.copytree(tiny_run, folder, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs `regard ARGUMENTS` inside this process, with the given bytes as standard input."""
    from regard.cli.main import run

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run()
        captured = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return call
