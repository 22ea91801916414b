"""What a translator says of given translations: how probable they are, and how certain it would have been at each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.errors import DataError
from regard.data.word_order import backwards
from regard.tasks.pair_score import PairScore

if TYPE_CHECKING:
    from regard.tasks.translation import Translator


def score(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    tags: Sequence[str] | None,
    batch_tokens: int,
) -> list[PairScore]:
    """How probable the model finds each target. `tags` are those of the sources."""
    if len(sources) != len(targets):
        raise DataError("score", f"{len(sources)} source and {len(targets)} target lines", "Give as many of each")
    source_ids = _source_ids(translator, sources, tags)
    targets = [backwards(text) for text in targets] if translator.backwards else targets
    target_ids = translator.tokenizers.target.encode(list(targets))
    scored = translator.engines.torch.engine.score(source_ids, target_ids, batch_tokens)
    return [
        PairScore(total, translator.tokenizers.target.pieces(ids), each)
        for ids, (total, each) in zip(target_ids, scored, strict=True)
    ]


def certainties(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> list[list[tuple[float, bool]]]:
    """At each token of given translations, the log-probability of the likeliest one, and whether it stands there."""
    target_ids = translator.tokenizers.target.encode(list(targets))
    return translator.engines.torch.engine.certainties(_source_ids(translator, sources, None), target_ids)


def _source_ids(translator: Translator, sources: Sequence[str], tags: Sequence[str] | None) -> list[list[int]]:
    leads = translator.leads(tags, len(sources))
    ids = translator.tokenizers.source.encode(list(sources))
    return [lead + one for lead, one in zip(leads, ids, strict=True)]
