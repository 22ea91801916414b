"""The bounds of a server: what a request may ask for, and what the server keeps. Each is checked before anything is allocated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from regard.core import config as configuration
from regard.core.bounds import check_bounds
from regard.core.errors import ConfigError

SIZES = {
    "body_bytes": (1, 1 << 30),
    "file_bytes": (1, 1 << 30),
    "texts": (1, 100_000),
    "characters": (1, 1_000_000),
    "request_characters": (1, 1 << 30),
    "beam": (1, 64),
    "alternatives": (0, 63),
    "samples": (2, 64),
    "choices": (1, 64),
    "new_tokens": (1, 1_000_000),
    "stops": (0, 64),
    "stop_characters": (1, 10_000),
    "logprobs": (0, 100),
    "top": (1, 10_000),
    "queue": (1, 1_000_000),
    "queue_tokens": (1, 1 << 40),
    "batch_tokens": (1, 1 << 30),
    "batch_texts": (1, 100_000),
    "wait_ms": (0, 10_000),
    "slots": (1, 4096),
    "connections": (1, 1_000_000),
    "requests_per_minute": (0, 1_000_000),
    "clients": (1, 10_000_000),
    "kept_files": (0, 100_000),
}
SECONDS = {"receive_seconds": 3600.0, "answer_seconds": 86_400.0, "drain_seconds": 86_400.0, "idle_seconds": 3600.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Every bound of a server (`regard serve --limit name=value`)."""

    # of a request
    body_bytes: int = 1 << 20
    file_bytes: int = 1 << 20  # of a file to translate; the body that brings it may be a little larger
    texts: int = 50
    characters: int = 20_000  # of a text
    request_characters: int = 100_000  # of all texts of a request
    beam: int = 16
    alternatives: int = 8
    samples: int = 32  # drawn for minimum Bayes risk
    choices: int = 8  # texts that a completion asks for: n, best_of
    new_tokens: int = 1024  # of a completion
    stops: int = 4
    stop_characters: int = 200  # of a text that ends a completion
    logprobs: int = 5  # likeliest tokens shown at each place
    top: int = 100  # labels of a text, or words for a mask

    # of the engine
    queue: int = 256  # requests that wait or are worked on
    queue_tokens: int = 200_000  # of all their texts together
    batch_tokens: int = 4096  # of a batch, padding not counted
    batch_texts: int = 128  # sentences of a batch
    wait_ms: int = 10  # how long a batch waits for company
    slots: int = 32  # completions that are written at the same time, per model

    # of connections and clients
    connections: int = 1024
    receive_seconds: float = 10.0  # for the head and the body of a request, from its first byte
    idle_seconds: float = 15.0  # a connection without a request
    answer_seconds: float = 60.0  # from the last byte of the request
    drain_seconds: float = 30.0  # for accepted requests, after SIGTERM
    requests_per_minute: int = 0  # of one client; 0: as many as it likes
    clients: int = 10_000  # whose rates are remembered
    kept_files: int = 32  # translated files that wait to be fetched

    def __post_init__(self) -> None:
        check_bounds("limit", self, SIZES)
        for name, most in SECONDS.items():
            value = getattr(self, name)
            if not 0 < value <= most:  # written so that nan fails too
                what = f"{value} is not above 0 and at most {most:g}"
                raise ConfigError(f"setting limit.{name}", what, "Give seconds")

    @property
    def most_alternatives(self) -> int:
        """A search keeps as many hypotheses as are asked for, so the bound on its width holds for them, too."""
        return min(self.alternatives, self.beam - 1)

    @classmethod
    def from_settings(cls, settings: Sequence[str]) -> Limits:
        """Those of `name=value` texts; names that are not given keep their defaults."""
        for setting in settings:
            if "=" not in setting:
                raise ConfigError("--limit", f"{setting!r} has no =", "Write name=value, such as beam=8")
        return configuration.build(cls, configuration.apply_overrides({}, settings), "limit")
