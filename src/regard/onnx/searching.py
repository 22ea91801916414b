"""Search with graphs: what `regard.search` finds with a torch model, by the same rules.

Coverage and attention weights are not here: the graphs do not give what they need.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np

from regard.core.errors import ModelError
from regard.core.search_config import SearchConfig
from regard.core.specials import BOS, EOS, PAD
from regard.onnx.beam import Beam
from regard.onnx.constraints import end_at, forbid
from regard.onnx.hypothesis import Hypothesis, normalised
from regard.onnx.sampling import Samples, draw, uniforms
from regard.onnx.writing import Texts, Writer

NONE = -np.inf


@dataclasses.dataclass(frozen=True)
class Asked:
    """Sentences to search for at once."""

    sources: list[list[int]]  # each ends with EOS
    limits: list[int]  # most tokens of each, EOS not counted
    forced: list[list[int]]  # how each must begin

    def take(self, rows: Sequence[int]) -> Asked:
        return Asked([self.sources[i] for i in rows], [self.limits[i] for i in rows], [self.forced[i] for i in rows])


def search(
    writer: Writer,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Texts for every source (which ends with EOS): `config.nbest` each, best first, or as they were drawn.

    `prefixes` force how texts begin; of a language model they are the prompts, whose tokens are in what is returned, but not in
    the score.
    """
    if config.groups > 1:
        raise ModelError(
            "setting search.groups", "graphs are searched with one beam", "Set it to 1, or use the torch model"
        )
    if config.coverage:
        what = "coverage needs attention weights, which the graphs do not give"
        raise ModelError("setting search.coverage", what, "Set it to 0, or use the torch model")
    if not sources:
        return []
    limits, forced = _bounds(writer, sources, config, prefixes)
    asked = Asked([list(source) for source in sources], limits, forced)
    return _run_lengths(writer, asked, config) if writer.plans else _run(writer, asked, config)


def _bounds(
    writer: Writer,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None,
) -> tuple[list[int], list[list[int]]]:
    """The most tokens of each sentence, and how each must begin, checked."""
    given = [[] for _ in sources] if prefixes is None else [list(prefix) for prefix in prefixes]
    if len(given) != len(sources):
        what = f"{len(given)} prefixes for {len(sources)} sentences"
        raise ModelError("prefix", what, "Give one per sentence, empty where nothing is forced")
    context = writer.target_limit
    if writer.continues:
        most = [len(prompt) + config.max_length for prompt in given]
        limits = most if context is None else [min(n, context - 1) for n in most]
        for i, prompt in enumerate(given):
            if context is not None and len(prompt) > context - 2:
                what = (
                    f"it has {len(prompt)} tokens, and the model reads at most {max(0, context - 2)} to write one more"
                )
                raise ModelError(f"prompt {i + 1}", what, f"Shorten it to its last {max(0, context - 2)} tokens")
    else:
        limits = [config.length_limit(len(source) - 1, context) for source in sources]
        for i, source in enumerate(sources):
            if writer.source_limit is not None and len(source) > writer.source_limit:
                what = f"it has {len(source)} tokens, the model reads at most {writer.source_limit}"
                raise ModelError(f"sentence {i + 1}", what, "Split it")
    for i, (tokens, limit) in enumerate(zip(given, limits, strict=True)):
        if len(tokens) > limit:
            what = f"it has {len(tokens)} tokens, the sentence may have {limit}"
            raise ModelError(f"prefix of sentence {i + 1}", what, "Shorten it or raise search.max_extra")
        if any(not 0 <= token < writer.vocabulary or token in (PAD, BOS, EOS) for token in tokens):
            what = "it has a token that is padding, BOS, EOS or outside the vocabulary"
            raise ModelError(f"prefix of sentence {i + 1}", what, "Give text tokens only")
    return limits, given


def _run(writer: Writer, asked: Asked, config: SearchConfig, planned: bool = False) -> list[list[Hypothesis]]:
    """Step by step; sentences that are done leave. `planned`: texts get as many tokens as their limits say."""
    lengths = [limit + 1 for limit in asked.limits] if planned else None
    texts = writer.start(asked.sources, lengths)
    limit = np.array(asked.limits)
    given = np.array([len(tokens) if writer.continues else 0 for tokens in asked.forced])
    longest = max(map(len, asked.forced))
    forced = np.full((len(limit), longest + 1), -1)
    for row, tokens in zip(forced, asked.forced, strict=True):
        row[: len(tokens)] = tokens
    read, own, texts = _read(writer, asked, texts, forced[:, : int(given.min())])
    begun: Beam | Samples
    if config.method == "sample":
        named = [[BOS, *tokens] for tokens in asked.forced] if writer.continues else asked.sources
        begun = Samples.begin(config, limit, given, read, own, named)
    else:
        begun = Beam.begin(config, limit, given, read, own)
    texts = texts.widened(config.hypotheses)
    found: list[list[Hypothesis]] = [[] for _ in limit]
    rows = np.arange(len(limit))
    while len(rows):
        at = begun.history.shape[2]
        token = begun.history[..., -1] if at else np.full(begun.total.shape, BOS)
        scores, texts = writer.step(texts, token)
        forbid(config, scores, begun.history, begun.given, forced[rows, at] if at < longest else None)
        if planned:
            end_at(scores, begun.limit, at)
        parents, done = begun.extend(scores)
        if parents is not None:
            texts = texts.reordered(parents)
        if done.any():
            for i in np.flatnonzero(done):
                found[rows[i]] = begun.collect(int(i))
            left = np.flatnonzero(~done)
            begun, texts, rows = begun.take(left), texts.take(left), rows[left]
    return found


def _read(writer: Writer, asked: Asked, texts: Texts, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, Texts]:
    """The beginning that all prompts have tokens for, read with one hypothesis: tokens, log-probabilities, and the texts then.

    Where a token is impossible, nothing is read here: the search finds out step by step.
    """
    own, last, begun = [], np.full(len(tokens), BOS), texts
    for token in tokens.T:
        scores, texts = writer.step(texts, last[:, None])
        own.append(scores[np.arange(len(token)), 0, token])
        last = token
    log_probs = np.array(own, np.float32).reshape(tokens.shape[::-1]).T
    if not np.isfinite(log_probs).all():
        return tokens[:, :0], log_probs[:, :0], begun
    return tokens, log_probs, texts


def _run_lengths(writer: Writer, asked: Asked, config: SearchConfig) -> list[list[Hypothesis]]:
    """One search for each length that is tried; texts of all lengths compete, with log P(length) in their scores."""
    found: list[list[Hypothesis]] = [[] for _ in asked.limits]
    for settings, rows, limits, log_probs in _tries(writer, asked, config):
        texts = _run(writer, dataclasses.replace(asked.take(rows), limits=limits), settings, planned=True)
        for row, many, log_prob in zip(rows, texts, log_probs, strict=True):
            found[row] += [_with_length(settings, one, log_prob) for one in many]
    if config.method == "beam":
        found = [sorted(many, key=lambda one: (not one.finished, -one.score)) for many in found]
    return [many[: config.nbest] for many in found]


def _tries(
    writer: Writer, asked: Asked, config: SearchConfig
) -> Iterator[tuple[SearchConfig, list[int], list[int], list[float]]]:
    """Settings, sentences, their most tokens and the lengths' log-probabilities: the likeliest lengths, or drawn ones."""
    scores = writer.length_scores(asked.sources)[:, : max(asked.limits) + 1]
    for row, (limit, forced) in enumerate(zip(asked.limits, asked.forced, strict=True)):
        scores[row, : min(limit, max(len(forced), config.min_length))] = NONE  # column j is j tokens and EOS
        scores[row, limit + 1 :] = NONE
    if not np.isfinite(scores.max(1)).all():
        raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
    everyone = list(range(len(scores)))
    if config.method == "sample":
        for sample in range(config.nbest):
            plain = SearchConfig(method="sample", seed=_seed(config.seed, sample, "length"))
            words = dataclasses.replace(config, nbest=1, seed=_seed(config.seed, sample, "words"))
            numbers = uniforms(plain, asked.sources, [0] * len(scores))[:, 0, 0]
            drawn = draw(plain, scores, numbers)
            yield words, everyone, drawn.tolist(), scores[everyone, drawn].tolist()
        return
    order = np.argsort(-scores, 1, kind="stable")[:, : config.lengths]
    for tokens in order.T:
        values = scores[everyone, tokens]
        rows = np.flatnonzero(values > NONE)
        if len(rows):
            yield config, rows.tolist(), tokens[rows].tolist(), values[rows].tolist()


def _seed(seed: int, sample: int, what: str) -> int:
    name = hashlib.blake2b(f"{what} {sample} {seed}".encode(), digest_size=8).digest()
    return int.from_bytes(name, "little") >> 1


def _with_length(config: SearchConfig, one: Hypothesis, log_prob: float) -> Hypothesis:
    if not one.finished:
        return one
    more = float(normalised(config, np.array(log_prob), len(one.token_log_probs)))
    return one._replace(score=one.score + more, log_prob=one.log_prob + log_prob)


def forced_scores(
    writer: Writer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[np.ndarray]:
    """Log-probabilities [T + 1, V] at every place of given targets (without BOS and EOS), and after the last."""
    lengths = [len(target) + 1 for target in targets]
    texts = writer.start([list(source) for source in sources], lengths if writer.plans else None)
    inputs = np.full((len(targets), max(lengths)), BOS)
    for row, target in zip(inputs, targets, strict=True):
        row[1 : len(target) + 1] = target
    found = []
    for tokens in inputs.T:
        scores, texts = writer.step(texts, tokens[:, None])
        found.append(scores[:, 0])
    return [np.stack([step[i] for step in found[:length]]) for i, length in enumerate(lengths)]
