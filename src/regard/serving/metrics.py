"""Counts of what a server does, in Prometheus' text format. Labels are few and fixed: neither keys nor texts get in."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
OTHER = "other"
FACADES = ("libretranslate", "deepl", "openai", "plain", OTHER)
MOST_SERIES = 2000  # of one metric
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Counter:
    """Numbers that only grow, one for each combination of label values."""

    kind = "counter"

    def __init__(self, name: str, about: str, labels: Sequence[str] = ()):
        self.name, self.about, self.labels = name, about, tuple(labels)
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}
        self._lock = threading.Lock()

    def add(self, *values: str, by: float = 1.0) -> None:
        with self._lock:
            if values not in self.values and len(self.values) >= MOST_SERIES:
                values = (OTHER,) * len(self.labels)
            self.values[values] = self.values.get(values, 0.0) + by

    def total(self) -> float:
        with self._lock:
            return sum(self.values.values())

    def lines(self) -> Iterable[str]:
        with self._lock:
            found = sorted(self.values.items())
        return [f"{self.name}{_labels(self.labels, values)} {_number(value)}" for values, value in found]


class Gauge:
    """Numbers that are asked for when somebody looks, by label value."""

    kind = "gauge"

    def __init__(self, name: str, about: str, label: str, ask: Callable[[], dict[str, float]]):
        self.name, self.about, self.label, self.ask = name, about, label, ask

    def lines(self) -> Iterable[str]:
        labels = (self.label,) if self.label else ()
        return [
            f"{self.name}{_labels(labels, (key,) if labels else ())} {_number(value)}"
            for key, value in sorted(self.ask().items())
        ]


class Histogram:
    """How often values were at most so large."""

    kind = "histogram"

    def __init__(self, name: str, about: str, label: str, bounds: Sequence[float]):
        self.name, self.about, self.label, self.bounds = name, about, label, (*bounds, math.inf)
        self.counts: dict[str, list[int]] = {}
        self.sums: dict[str, float] = {}
        self._lock = threading.Lock()

    def see(self, key: str, value: float) -> None:
        with self._lock:
            if key not in self.counts and len(self.counts) >= MOST_SERIES:
                key = OTHER
            counts = self.counts.setdefault(key, [0] * len(self.bounds))
            counts[next(i for i, bound in enumerate(self.bounds) if value <= bound)] += 1
            self.sums[key] = self.sums.get(key, 0.0) + value

    def lines(self) -> Iterable[str]:
        with self._lock:
            found = [(key, list(counts), self.sums[key]) for key, counts in sorted(self.counts.items())]
        lines: list[str] = []
        for key, counts, total in found:
            below = 0
            for bound, count in zip(self.bounds, counts, strict=True):
                below += count
                labels = _labels((self.label, "le"), (key, _number(bound)))
                lines.append(f"{self.name}_bucket{labels} {below}")
            labels = _labels((self.label,), (key,))
            lines += [f"{self.name}_sum{labels} {_number(total)}", f"{self.name}_count{labels} {below}"]
        return lines


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        self.requests = Counter("regard_requests_total", "Requests answered", ("facade", "status"))
        self.seconds = Histogram("regard_request_seconds", "Seconds from request to answer", "facade", SECONDS)
        self.refusals = Counter("regard_refusals_total", "Requests refused, by kind", ("kind",))
        self.given_up = Counter("regard_given_up_total", "Requests whose client went away", ("model",))
        self.noted = Counter(
            "regard_noted_total", "Texts whose best translation was none (a loop, a copy), or lacks a term", ("model",)
        )
        self.tokens_in = Counter("regard_tokens_read_total", "Tokens of texts that were worked on", ("model",))
        self.tokens_out = Counter("regard_tokens_written_total", "Tokens that were written", ("model",))
        self.batches = Histogram("regard_batch_texts", "Sentences, texts or completions of a batch", "model", SIZES)
        self.loads = Counter("regard_model_loads_total", "How often weights were loaded", ("model",))
        self.slow = Counter("regard_slow_connections_total", "Connections closed because a request came too slowly")
        self._gauges: list[Gauge] = []

    def gauge(self, name: str, about: str, label: str, ask: Callable[[], dict[str, float]]) -> None:
        """Adds a number that is asked for at each look."""
        self._gauges.append(Gauge(name, about, label, ask))

    def answered(self, facade: str, status: int, seconds: float) -> None:
        """Counts a request. `facade` is one of `FACADES`."""
        known = facade if facade in FACADES else OTHER
        self.requests.add(known, str(status))
        self.seconds.see(known, seconds)

    def text(self) -> str:
        """What GET /metrics answers, of type `CONTENT_TYPE`."""
        all_of_them = (
            self.requests, self.seconds, self.refusals, self.given_up, self.noted, self.tokens_in, self.tokens_out, self.batches,
            self.loads, self.slow, *self._gauges,
        )  # fmt: skip
        lines: list[str] = []
        for metric in all_of_them:
            lines += [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
        return "\n".join(lines) + "\n"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
