"""Settings of search: method, beam, length normalisation, limits, guards and sampling filters."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

from regard.core.errors import ConfigError
from regard.core.type_hints import type_hints

MAX_HYPOTHESES = 64  # per sentence: rows of the decoder's batch, so memory and time grow with it
UNBOUNDED = float("inf")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How text is searched for (section `search` of a recipe)."""

    method: Literal["beam", "sample"] = "beam"
    beam: int = 5  # hypotheses kept per sentence; 1 is greedy
    nbest: int = 1  # hypotheses returned per sentence: at most `beam`, or the number of samples
    length_norm: Literal["gnmt", "plain", "none"] = "gnmt"  # log-probability / ((5 + n) / 6)^alpha, / n^alpha, / 1
    alpha: float = 0.6
    coverage: float = 0.0  # GNMT's beta; above 0 it needs a model that attends
    stop: Literal["full", "exact"] = "full"  # stop at a full pool, or only when nothing can still enter it
    groups: int = 1  # of the beam; each is kept from writing what the ones before it write at the same place
    diversity: float = 0.5  # how much of a log-probability each earlier group costs
    lengths: int = 5  # of models that plan (rctm2): likeliest lengths tried, each with a beam; 1 is seldom enough

    # A sentence's maximum length depends on its own source only: min(max_ratio * source + max_extra, max_length).
    # A language model, which has no source, writes at most max_length tokens after its prompt; min_length counts those too.
    max_ratio: float = 2.0
    max_extra: int = 20
    max_length: int = 512
    min_length: int = 0

    no_repeat_ngram: int = 0  # no n-gram of this size is written twice; 0 is off
    max_repeat: int = 8  # no 1- to 4-gram is written more than this many times in a row; 0 is off
    ban_unknown: bool = True
    capture: bool = True  # on CUDA, a step is recorded once and replayed: the same texts, sooner
    fused: Literal["auto", True, False] = (
        "auto"  # steps of few kernels, of Transformer and GPT; auto: on CUDA with Triton
    )

    # Sampling only, applied in this order.
    temperature: float = 1.0
    top_k: int = 0  # 0 is off
    top_p: float = 1.0  # 1 is off
    min_p: float = 0.0  # 0 is off
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("method", "length_norm", "stop"):
            self._choice(name)
        self._between("beam", 1, MAX_HYPOTHESES)
        self._between("nbest", 1, MAX_HYPOTHESES)
        self._between("lengths", 1, MAX_HYPOTHESES)
        self._between("groups", 1, MAX_HYPOTHESES)
        self._between("diversity", 0, 100)
        self._between("alpha", 0, 10)
        self._between("coverage", 0, 100)
        self._between("max_ratio", 0, 1000)
        self._between("max_extra", 0, 1_000_000)
        self._between("max_length", 1, 1_000_000)
        self._between("min_length", 0, self.max_length)
        self._between("no_repeat_ngram", 0, 1000)
        self._between("max_repeat", 0, 1000)
        self._between("top_k", 0, UNBOUNDED)
        self._between("min_p", 0, 1)
        self._between("seed", 0, 2**63 - 1)
        if not 0 < self.temperature < UNBOUNDED:
            raise self._error("temperature", "is not above 0", "For the likeliest text use method=beam and beam=1")
        if not 0 < self.top_p <= 1:
            raise self._error("top_p", "is not above 0 and at most 1", "Use 1 to switch the nucleus off")
        if self.method == "beam" and self.nbest > self.beam:
            raise self._error("nbest", f"is more than the beam of {self.beam}", "Widen search.beam or lower it")
        if self.groups > 1 and self.method == "sample":
            raise self._error("groups", "is for searching, and this is sampling", "Leave it out")
        if self.groups > 1 and self.beam % self.groups:
            raise self._error("groups", f"does not divide the beam of {self.beam}", "Use a beam that is a multiple")

    @property
    def hypotheses(self) -> int:
        """Hypotheses followed per sentence (K)."""
        return self.beam if self.method == "beam" else self.nbest

    def length_limit(self, source: int, target: int | None = None) -> int:
        """The most tokens a translation may have, EOS not counted, by its own source's length, less EOS; at least 1.

        A model that can read `target` positions reads BOS in the first of them, which leaves one less.
        """
        most = self.max_length if target is None else min(self.max_length, target - 1)
        return max(1, min(int(self.max_ratio * source + self.max_extra), most))

    def length_divisor(self, length: Any) -> Any:
        """What the log-probability of a text of this length is divided by, for numbers and tensors alike."""
        if self.length_norm == "gnmt":
            return ((5 + length) / 6) ** self.alpha
        return length**self.alpha if self.length_norm == "plain" else 1

    def _between(self, name: str, low: int | float, high: int | float) -> None:
        value = getattr(self, name)
        if not low <= value <= high:  # written so that nan fails too
            bounds = f"at least {low}" if high == UNBOUNDED else f"from {low} to {high}"
            raise self._error(name, f"is not {bounds}", f"Choose a value {bounds}")

    def _choice(self, name: str) -> None:
        known = get_args(type_hints(type(self))[name])
        if getattr(self, name) not in known:
            raise self._error(name, f"is not one of {', '.join(known)}", "Choose one of them")

    def _error(self, name: str, what: str, todo: str) -> ConfigError:
        value: Any = getattr(self, name)
        return ConfigError(f"setting search.{name}", f"{value!r} {what}", todo)
