"""Translation by CTranslate2, sentence by sentence; what it cannot answer is left to torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from regard.data.tokenizers import TokenizerPair
from regard.engines.ctranslate2_engine import CTranslate2Engine, Found, Started
from regard.tasks.line_batches import batches
from regard.tasks.lines import Sentence, Translation
from regard.tasks.search_request import SearchRequest

BATCH_TOKENS = 4096  # of sources, times hypotheses
SMALL_BATCH_TOKENS = 1024  # of small models, whose weights stay in the caches of a processor if all else does
FEWEST_TOKENS = 32  # of a batch: smaller ones take as long
TRIED = 32  # sentences after which it is asked whether going on is worth while


def fast_search(
    engine: CTranslate2Engine, tokenizers: TokenizerPair, sentences: Sequence[Sentence], request: SearchRequest
) -> list[list[Translation] | None]:
    """The n-best translations of each sentence; None where torch has to search.

    A model that rarely ends its texts would be searched twice: once more than half of the sentences were left to torch, all are.
    """
    found: list[list[Translation] | None] = [None] * len(sentences)
    done = left = 0
    settings = request.settings
    lengths = [len(sentence.ids) + 1 for sentence in sentences]
    most = (SMALL_BATCH_TOKENS if engine.small else BATCH_TOKENS) // settings.beam
    share = -(-sum(lengths) // engine.batches)  # that nobody has nothing to do
    waiting = batches(lengths, request.batch_tokens or max(FEWEST_TOKENS, min(most, share)))
    under_way: deque[tuple[list[int], Started]] = deque()
    while True:
        while len(under_way) <= engine.batches and (rows := next(waiting, None)):
            under_way.append((rows, engine.start([sentences[row].ids for row in rows], settings)))
        if not under_way:
            return found
        rows, started = under_way.popleft()
        results = engine.finish(started, details=request.details)
        texts = iter(tokenizers.target.decode([one.tokens for many in results for one in many or []]))
        for row, many in zip(rows, results, strict=True):
            found[row] = None if many is None else _translations(many, texts, tokenizers, sentences[row])
        done += len(rows)
        left += sum(many is None for many in results)
        if done >= TRIED and left > done // 2:
            waiting = iter(())
        if request.progress is not None:
            request.progress(done - left)


def _translations(
    many: Sequence[Found], texts: Iterator[str], tokenizers: TokenizerPair, sentence: Sentence
) -> list[Translation]:
    pieces = tokenizers.source.pieces(sentence.ids)
    return [
        Translation(
            text=next(texts),
            score=one.score,
            log_prob=one.log_prob,
            tokens=one.pieces,
            token_log_probs=one.token_log_probs,
            source_tokens=pieces,
            finished=True,
        )
        for one in many
    ]
