"""Training runs as real processes, and what is compared between them."""

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

STEPS = 30
SETTINGS = [
    "model.width=16", "model.layers=1", "model.heads=2", "model.dropout=0.1", "tokenizer.kind=word",
    f"train.steps={STEPS}", "train.save_every=5", "train.log_every=1", "train.warmup=5", "train.lr=0.01",
    "train.batch_tokens=64", "train.threads=1", "train.patience=0", "data.valid_size=12", "data.test_size=3",
    "search.beam=1", "search.max_length=8",
]  # fmt: skip
TRANSFORMERS = ("model.layers", "model.heads")  # settings that not every model has
TIMES = ("seconds", "tokens_per_second")


@contextlib.contextmanager
def serving() -> Iterator[subprocess.Popen]:
    """A process that starts runs: see fork_server.py."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "fork_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert server.stdout is not None
    assert server.stdin is not None
    assert server.stdout.readline() == "ready\n"
    yield server
    server.stdin.close()
    server.stdout.close()
    server.send_signal(signal.SIGTERM)
    server.wait(20)


class Runs:
    """Starts, signals and compares runs. Folders are named inside a directory of the test's own."""

    def __init__(self, server: subprocess.Popen, folder: Path):
        self.server, self.folder = server, folder
        self.write_corpus(1)

    def write_corpus(self, seed: int) -> None:
        """A language whose translation is its words backwards and in capitals."""
        draw = random.Random(seed)
        words = ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op")
        lines = [[draw.choice(words) for _ in range(draw.randint(2, 6))] for _ in range(250)]
        (self.folder / "text.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (self.folder / "text.tgt").write_text("".join(" ".join(reversed(line)).upper() + "\n" for line in lines))

    def _ask(self, **request) -> int:
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def argv(self, name: str, *words: str) -> list[str]:
        files = ["--src", str(self.folder / "text.src"), "--tgt", str(self.folder / "text.tgt")]
        another = any(word.startswith("model.name=") for word in words)
        settings = [word for word in SETTINGS if not (another and word.startswith(TRANSFORMERS))]
        return ["train", *files, "--out", str(self.folder / name), *settings, *words]

    def start(
        self,
        argv: list[str],
        signal_at: tuple[int, int] | None = None,
        environment: dict[str, str] | None = None,
        log: str = "log",
    ) -> int:
        """Starts `regard ARGV` in our folder; it signals itself after a step, if asked to. Gives its process id."""
        (self.folder / log).write_text("")
        at = {"step": signal_at[0], "signal": signal_at[1]} if signal_at else None
        place = {"log": str(self.folder / log), "cwd": str(self.folder)}
        return self._ask(argv=argv, **place, signal_at=at, environment=environment)

    def wait(self, pid: int) -> int:
        return self._ask(wait=pid)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def train(self, name: str, *words: str, signal_at: tuple[int, int] | None = None, expect: int = 0) -> Path:
        assert self.wait(self.start(self.argv(name, *words), signal_at)) == expect, self.log()
        return self.folder / name

    def resume(self, name: str, signal_at: tuple[int, int] | None = None, expect: int = 0) -> Path:
        assert self.wait(self.start(["train", "--resume", str(self.folder / name)], signal_at)) == expect, self.log()
        return self.folder / name


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def outcome(run: Path) -> dict[str, object]:
    """All that must not depend on how often a run was stopped: weights, newest checkpoint, best, metrics."""
    newest = max((run / "checkpoints").glob("step-*"))
    paths = [run / "model.safetensors", *newest.glob("*.safetensors"), *run.glob("checkpoints/best/*.safetensors")]
    tensors = {str(path.relative_to(run)): digest(path) for path in paths}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    metrics = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    return {**tensors, "metrics": metrics, "scores": json.loads((run / "scores.json").read_text())["scores"]}


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) * 3 // 4] ^= 16
    path.write_bytes(content)


def await_file(path: Path, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} did not appear"
        time.sleep(0.005)


def await_step(run: Path, step: int, seconds: float = 30) -> None:
    """Until a run has a checkpoint of a step, or of a later one."""
    until = time.monotonic() + seconds
    while max(((run / "checkpoints").glob("step-*")), default=Path()).name < f"step-{step:09d}":
        assert time.monotonic() < until, f"{run} has not come to step {step}"
        time.sleep(0.002)
