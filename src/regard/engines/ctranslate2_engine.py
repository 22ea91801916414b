"""Beam search by CTranslate2, with regard's settings and regard's ranking."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError, ModelError
from regard.core.processors import processors
from regard.core.search_config import SearchConfig
from regard.core.specials import BOS, EOS, PAD, SPECIALS
from regard.engines.ctranslate2_limits import MODEL, Compute
from regard.engines.ctranslate2_rules import breaks_rule, search_options

MOST_THREADS = 8  # more do not make a batch of sentences faster
SHORT_LISTS = "vmap.txt"
SMALL = 24 << 20  # bytes of a model that stays in the caches of a processor if all else does
APART = 256 << 20  # bytes of a model: up to here threads take batches of their own, for in products they wait


@dataclasses.dataclass(frozen=True)
class Started:
    """A batch that is being searched."""

    sources: Sequence[Sequence[int]]
    settings: SearchConfig
    limits: list[int | None]
    results: list[Any]  # of those that have a limit
    penalty: float


@dataclasses.dataclass(frozen=True)
class Found:
    """A finished text."""

    tokens: list[int]  # without BOS and EOS
    pieces: list[str]
    log_prob: float
    score: float
    token_log_probs: list[float]  # EOS last; empty unless asked for


def installed() -> bool:
    return importlib.util.find_spec("ctranslate2") is not None


def threads() -> int:
    """As many as there are processors for this process, or as OMP_NUM_THREADS says."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return min(processors(), MOST_THREADS)


def use_wide_registers(processor: Path = Path("/proc/cpuinfo")) -> None:
    """CTranslate2 uses AVX-512 on Intel's processors only, unless it is told to: others that have it are a tenth faster with it."""
    try:
        with processor.open("rb") as file:
            flags = set(re.findall(rb"avx512\w+", file.read(1 << 13)))
    except OSError:
        return
    if {b"avx512f", b"avx512bw", b"avx512cd", b"avx512dq", b"avx512vl"} <= flags:
        os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")


class CTranslate2Engine:
    """A converted model (the content of its files) that can be searched."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        source: Sequence[str],
        target: Sequence[str],
        *,
        longest: int,
        limit: int | None,
        compute: Compute,
    ):
        use_wide_registers()
        import ctranslate2

        from regard.engines.ctranslate2_reading import arrays_of  # NumPy

        self.compute, self.longest = compute, longest
        self.source_limit = self.target_limit = limit  # that of learned positions
        self._source = source
        self._ids = {token: i for i, token in enumerate(target)}
        if len(self._ids) < len(target) or len(set(source)) < len(source):
            raise ModelError("the vocabulary", "it has a token twice", "Use the torch engine")
        self.short = SHORT_LISTS in files  # each batch may write only what its source tokens may become
        self.small = len(files[MODEL]) < SMALL
        try:  # kept files may have come with a run from elsewhere: CTranslate2 believes what they say of their sizes
            arrays_of(memoryview(files[MODEL]), Path(MODEL))
        except CheckpointError as error:
            raise ModelError("the converted model", error.what, "Delete the run's folder ctranslate2") from None
        apart = len(files[MODEL]) < APART
        self.batches = threads() if apart else 1  # searched at the same time
        try:
            self._model = ctranslate2.Translator(
                "regard",
                device="cpu",
                compute_type=compute,
                inter_threads=self.batches,
                intra_threads=1 if apart else threads(),
                files=dict(files),
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError("CTranslate2", str(error), "Use the torch engine") from None

    def limit(self, source: Sequence[int], settings: SearchConfig) -> int | None:
        """The most tokens that the translation of a source (without EOS) may have; None: too long for this engine."""
        limit = settings.length_limit(len(source), self.target_limit)
        return None if max(len(source), limit) + 1 > self.longest else limit

    def start(self, sources: Sequence[Sequence[int]], settings: SearchConfig) -> Started:
        """Begins to search for translations of these sources (without EOS); `finish` waits for them."""
        limits = [self.limit(source, settings) for source in sources]
        known = [limit for limit in limits if limit is not None]
        if not known:
            return Started(sources, settings, limits, [], 0.0)
        texts = [self._pieces(s) for s, limit in zip(sources, limits, strict=True) if limit is not None]
        options = search_options(settings, [len(text) for text in texts], max(known))
        never = [[SPECIALS[PAD]], [SPECIALS[BOS]]]
        results = self._model.translate_batch(
            texts, suppress_sequences=never, asynchronous=True, use_vmap=self.short, **options
        )
        return Started(sources, settings, limits, results, options["length_penalty"])

    def finish(self, started: Started, *, details: bool = False) -> list[list[Found] | None]:
        """The n-best list of each source; None where torch has to search. `details`: each token's log-probability."""
        results = iter(started.results)
        found = [
            None if limit is None else self._read(next(results).result(), limit, started.settings, started.penalty)
            for limit in started.limits
        ]
        return self._with_token_scores(started.sources, found, started.settings) if details else found

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        known = self._source
        return [*[known[i] for i in ids], SPECIALS[EOS]]

    def _read(self, result: Any, limit: int, settings: SearchConfig, penalty: float) -> list[Found] | None:
        many = []
        end, ids = SPECIALS[EOS], self._ids
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            length = len(pieces)
            if not pieces or pieces.pop() != end or breaks_rule(pieces, limit, settings):
                return None
            log_prob = score * length**penalty
            own = log_prob / settings.length_divisor(length)
            many.append(Found([ids[piece] for piece in pieces], pieces, log_prob, own, []))
        many.sort(key=lambda one: (-one.score, len(one.tokens)))
        return many[: settings.nbest] or None

    def _with_token_scores(
        self, sources: Sequence[Sequence[int]], found: Sequence[list[Found] | None], settings: SearchConfig
    ) -> list[list[Found] | None]:
        """The same texts with the model's own log-probabilities, nothing forbidden, of all their tokens."""
        places = [(row, one) for row, many in enumerate(found) for one in many or []]
        scored = self._model.score_batch(
            [self._pieces(sources[row]) for row, _ in places], [one.pieces for _, one in places], max_input_length=0
        )
        better: list[list[Found] | None] = [None if many is None else [] for many in found]
        for (row, one), result in zip(places, scored, strict=True):
            own = [float(value) for value in result.log_probs]
            log_prob = sum(own)
            score = log_prob / settings.length_divisor(len(own))
            better[row].append(  # type: ignore[union-attr]
                dataclasses.replace(one, log_prob=log_prob, score=score, token_log_probs=own)
            )
        return better
