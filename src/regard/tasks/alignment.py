"""Word alignment: which source word each word of a given translation was written from, by the attention of a model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.types import EOS, pad_rows
from regard.data.word_tokens import WordTokenizer, WordTokens
from regard.search.forcing import attend_targets, check_attends
from regard.tasks.line_batches import batches
from regard.tasks.sentences import MAX_LINE_CHARACTERS
from regard.tasks.translation import Translator

Links = list[tuple[int, int]]  # (source word, target word), both from 0, sorted

MOST_TOKENS = 2000  # of a side: the attention weights of all layers take memory with the square of the length


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkRule:
    """Which words are linked, given the share of a target word's attention that each source word has.

    Each target word is linked to the source word with the largest share. Attention on the end of the source, or on a tag,
    belongs to no word: where it is larger than any word's, the target word stays alone, unless `null` is False.
    With a `threshold`, a target word is linked to all source words with at least this share instead.
    """

    threshold: float | None = None
    null: bool = True

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise ConfigError("threshold", f"{self.threshold} is not above 0 and at most 1", "Give for example 0.4")
        if self.threshold is not None and not self.null:
            what = "without null each target word takes its best source word, whatever its share"
            raise ConfigError("threshold", what, "Leave one of the two out")

    def links(self, shares: Float[np.ndarray, "Wt Ws+1"]) -> Links:
        """The links of one pair; the last column of `shares` belongs to no source word."""
        words = shares[:, :-1]
        if not words.size:
            return []
        if self.threshold is not None:
            chosen = words >= self.threshold
        else:
            best = words.max(1)
            linked = (best > 0) & ((best >= shares[:, -1]) | (not self.null))
            chosen = np.zeros(words.shape, dtype=bool)
            chosen[linked, words.argmax(1)[linked]] = True
        return sorted((int(i), int(j)) for j, i in zip(*chosen.nonzero(), strict=True))


class Aligner:
    """Links the words of given pairs with one model.

    Words are what stands between white space in the texts as given, or what `words` finds.
    """

    def __init__(self, translator: Translator, rule: LinkRule | None = None, *, words: re.Pattern[str] | None = None):
        check_attends(translator.model, "alignment")
        if translator.backwards:
            what = "words are not aligned with a model that writes from right to left"
            raise ModelError("alignment", what, "Use one that writes from left to right")
        self._translator, self._rule = translator, rule or LinkRule()
        given = () if words is None else (words,)
        self._source = WordTokenizer(translator.tokenizers.source, *given)
        self._target = WordTokenizer(translator.tokenizers.target, *given)

    def __call__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        tags: Sequence[str] | None = None,
        too_long: Callable[[int, ModelError], None] | None = None,
        first_line: int = 1,
        batch_tokens: int = 4096,
    ) -> list[Links]:
        """The links of each pair; none where a side is blank.

        Texts are read whole, never split. A pair with a text that is too long is an error, or has no links where
        `too_long` is there to hear its number and what is wrong. Pairs are counted from `first_line`.
        """
        if isinstance(sources, str) or isinstance(targets, str):
            raise DataError("alignment", "a single text is given", "Give a list of sources and a list of targets")
        if len(sources) != len(targets):
            raise DataError("alignment", f"{len(sources)} sources for {len(targets)} targets", "Give as many of each")
        translator, limits = self._translator, self._translator.model.limits
        leads = translator.leads(tags, len(sources))
        longest_lead = max(map(len, leads), default=0)
        pairs: dict[int, tuple[WordTokens, WordTokens]] = {}
        read_sources = _read(self._source, sources, limits.source, longest_lead, first_line)
        read_targets = _read(self._target, targets, limits.target, 0, first_line)
        for row, (source, target) in enumerate(zip(read_sources, read_targets, strict=True)):
            if isinstance(source, WordTokens) and isinstance(target, WordTokens):
                if source.count and target.count:
                    pairs[row] = source, target
                continue
            error = source if isinstance(source, ModelError) else target
            assert isinstance(error, ModelError)
            if too_long is None:
                raise error
            too_long(first_line + row, error)
        found: list[Links] = [[] for _ in sources]
        rows = list(pairs)
        lengths = [max(len(leads[row]) + len(pairs[row][0].ids), len(pairs[row][1].ids)) + 1 for row in rows]
        translator.model.eval()
        for places in batches(lengths, batch_tokens):
            chosen = [rows[place] for place in places]
            source = pad_rows([[*leads[row], *pairs[row][0].ids, EOS] for row in chosen]).to(translator.device)
            attention = attend_targets(translator.model, source, [pairs[row][1].ids for row in chosen])
            for row, weights in zip(chosen, attention, strict=True):
                found[row] = self._rule.links(word_shares(weights.double().numpy(), *pairs[row], len(leads[row])))
        return found


def _read(
    tokenizer: WordTokenizer, texts: Sequence[str], limit: int | None, lead: int, first_line: int
) -> list[WordTokens | ModelError]:
    """The tokens of each text, or why it is too long."""
    most = MOST_TOKENS if limit is None else min(MOST_TOKENS, limit - 1 - lead)
    short = ["" if len(text) > MAX_LINE_CHARACTERS else text for text in texts]
    result: list[WordTokens | ModelError] = []
    for number, (text, tokens) in enumerate(zip(texts, tokenizer.encode(short), strict=True), start=first_line):
        what = ""
        if len(text) > MAX_LINE_CHARACTERS:
            what = f"a text of {len(text):,} characters is longer than the {MAX_LINE_CHARACTERS:,} that can be aligned at once"
        elif len(tokens.ids) > most:
            what = f"a text of {len(tokens.ids):,} tokens is longer than the {most:,} that can be aligned at once"
        result.append(ModelError(f"line {number}", what, "Split it, or leave it out") if what else tokens)
    return result


def word_shares(
    weights: Float[np.ndarray, "T S"], source: WordTokens, target: WordTokens, lead: int = 0
) -> Float[np.ndarray, "Wt Ws+1"]:
    """Each source word's share of each target word's attention; the last column is what belongs to no source word.

    It is the sum over the tokens of a source word, and the mean over those of a target word. Rows of `weights` are the
    target's tokens and EOS, columns are `lead` tags, the source's tokens and EOS. A target word without tokens has a row
    of zeros.
    """
    columns = [*[source.count] * lead, *source.words, source.count]
    by_word = weights[: len(target.ids)] @ np.eye(source.count + 1)[columns]
    totals = np.zeros((target.count + 1, source.count + 1))
    np.add.at(totals, target.words, by_word)
    whole = totals.sum(1, keepdims=True)  # where a model's weights do not sum to 1 (local attention), shares still do
    return np.divide(totals, whole, out=np.zeros_like(totals), where=whole > 0)[:-1]


def align(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    threshold: float | None = None,
    null: bool = True,
    tags: Sequence[str] | None = None,
) -> list[Links]:
    """The linked words of each pair, as (source word, target word) from 0. `LinkRule` says which are linked."""
    return Aligner(translator, LinkRule(threshold=threshold, null=null))(sources, targets, tags=tags)
