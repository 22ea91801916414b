"""What the benchmarks of serving share: small models to serve, a server as a process of its own, and a light HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TEXTS = [
    "The weather is nice today.",
    "Where is the station?",
    "I have never been to Berlin, but my sister lives there.",
    "He did not say a word. She left. The door was open, and nobody came back.",
    "Thank you very much!",
    "My brother has two dogs and a cat.",
    "What are you doing this evening?",
    "The children played in the garden until it was dark.",
    "I do not know what you mean.",
    "It rained all day, so we stayed at home and read books.",
    "Can you help me with this?",
    "The train to Hamburg leaves at nine.",
    "She speaks three languages.",
    "I would like a cup of tea, please.",
    "They have lived in this house for ten years.",
    "Tom was late again.",
]
SMALL: dict[str, dict[str, Any]] = {
    "gpt": {"width": 64, "layers": 2, "heads": 4, "context": 128},
    "kim": {"width": 32, "maps": 16},
    "transformer-tagger": {"width": 32, "layers": 1, "heads": 2},
    "bert": {"width": 32, "layers": 2, "heads": 2, "context": 64},
}
NAMES = {"writer": "gpt", "sorter": "kim", "tagger": "transformer-tagger", "reader": "bert"}


def small_models(place: Path) -> dict[str, Path]:
    """Untrained models of all kinds, saved as runs are."""
    import torch

    from regard.core.files import save_tensors, write_json, write_manifest
    from regard.data.tokenizer_training import TokenizerConfig
    from regard.data.tokenizers import TokenizerPair
    from regard.models.base import MODELS, build_model
    from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of

    folders = {}
    for name, kind in NAMES.items():
        tokenizers = TokenizerPair.train_on_text(TEXTS * 3, TokenizerConfig(kind="bpe", size=300), tags=("<mask>",))
        torch.manual_seed(1)
        size = tokenizers.target.size
        labels = ["a", "b", "c"] if MODELS.get(kind).capabilities & {"classifies", "tags"} else []
        config = MODELS.get(kind).Config(name=kind, **SMALL[kind])
        target = len(labels) + 1 if labels else size
        model = build_model(kind, config, source_vocabulary=size, target_vocabulary=target, shared=not labels)
        folder = folders[name] = place / name
        folder.mkdir(parents=True)
        tokenizers.save(folder)
        save_tensors(folder / WEIGHTS, weights_of(model))
        about = {"format": FORMAT, "resolved": True, "model": {"name": kind, **SMALL[kind]}}
        about |= {"vocabulary": {"source": size, "target": size, "shared": True}}
        write_json(folder / CONFIG, {**about, "labels": labels} if labels else about)
        write_manifest(folder, [WEIGHTS, CONFIG, *tokenizer_names(folder)])
    return folders


class Process(NamedTuple):
    """A server under test."""

    process: subprocess.Popen[str]
    port: int

    def memory(self) -> float:
        """Resident bytes, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def processor_seconds(self) -> float:
        """Used so far, by all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def files(self) -> int:
        """Open file descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def server(folders: Sequence[str], *words: str, limits: Mapping[str, Any] | None = None) -> Iterator[Process]:
    """`regard serve` as a process; it has to end with 0."""
    given = [f"--limit={name}={value}" for name, value in (limits or {}).items()]
    with started(["-m", "regard", "serve", "--port", "0", *folders, *words, *given]) as found:
        yield found


@contextlib.contextmanager
def started(words: Sequence[str]) -> Iterator[Process]:
    """A Python program that says where it serves, as a process; it has to end with 0."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = ""
        while not line.startswith("Serving at"):
            line = process.stdout.readline()
            if not line:
                raise SystemExit("the server did not start")
        yield Process(process, int(line.split(":")[2].split()[0]))
        process.terminate()
        if process.wait(60) != 0:
            raise SystemExit(f"the server ended with {process.returncode}")
    finally:
        process.kill()
        process.communicate()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection that is kept, and made again where it was closed."""

    def __init__(self, port: int, timeout: float = 120.0):
        self.port, self.timeout = port, timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, body: Any = None) -> Answer:
        """Status 0 where the connection broke."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        begin = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout):
                if self._streams is None:
                    self._streams = await asyncio.open_connection("127.0.0.1", self.port)
                self._streams[1].write(request)
                status, headers, found = await self._read(self._streams[0])
        except (OSError, EOFError, TimeoutError, ValueError):
            self.close()
            return Answer(0, {}, b"", time.perf_counter() - begin)
        if headers.get("connection") == "close":
            self.close()
        return Answer(status, headers, found, time.perf_counter() - begin)

    async def _read(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        if headers.get("transfer-encoding") != "chunked":
            return int(lines[0][9:12]), headers, await reader.readexactly(int(headers.get("content-length", 0)))
        found = b""
        while size := int(await reader.readline(), 16):
            found += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
        return int(lines[0][9:12]), headers, found

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
