"""Training examples of masked models, "BERT", Devlin et al. 2018, section 3.1 and appendix A: pairs of segments, words hidden.

An example is two segments A and B of whole sentences that fill a row of `window` tokens with the EOS between them; one in ten
is shorter, by chance. B is what follows A in the document (code 1), or with probability 1/2 comes from another document
(code 2). Without the next-sentence task an example is one piece of text (code 0). Of a row of n tokens, max(1, round(.15 (n + 2)))
are hidden, [CLS] and [SEP] counted as in the paper's code: 80 % become the mask, 10 % a random word of the vocabulary, 10 % stay.

All of it is drawn anew in every epoch, from (seed, epoch, where the example begins) alone.

Departs from the released code:
- It draws the examples and masks once, for 5 or 10 copies of the text; here each epoch has its own (as in RoBERTa, 2019).
- The last sentence of a document, alone, has nothing behind it: half of these rows get a B from elsewhere, half are one text,
  from which the next-sentence task learns nothing. There, all get one from elsewhere.
- Segments that are too long lose the beginning of A and the end of B, the longer one first; there, ends are drawn by chance.
- Tokens for unknown words are not hidden, unless a row has nothing else: there is nothing to learn about them.
- A row longer than the window allows does not exist, so no more words are hidden than a full row has (20 of 128 there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from regard.core.errors import DataError
from regard.core.types import EOS, PAD, UNK, Padded
from regard.data.batching import ALL, Batch, BatchStream, Part, Place
from regard.data.draws import row_keys, shares
from regard.data.sentence_stream import SentenceStream
from regard.data.tokenizers import Tokenizer
from regard.data.wordpiece import MASK

HIDDEN, MASKED, CHANGED = (
    0.15,
    0.8,
    0.1,
)  # parts: of words hidden; of these, those that become the mask, or a random word
SHORT = 0.1  # part of the examples that are shorter
NO_CODE, FOLLOWS, ELSEWHERE = 0, 1, 2
ADDED = 2  # tokens that the model puts around a row: [CLS] and [SEP]
SEGMENTS, HIDING = 11, 12  # what draws are for
Draw = Callable[[int], np.ndarray]  # a number in [0, 1) for each sentence; others for another argument


class Masking(NamedTuple):
    """What hides a word: the mask's token, the words that may stand in its place, and how many are hidden in a row at most."""

    mask: int
    words: np.ndarray
    most: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, window: int) -> Masking:
        """For rows of at most `window` tokens. Random words are never special tokens or tags."""
        special = {*range(UNK + 1), *tokenizer.tags.values()}
        words = np.array([i for i in range(tokenizer.size) if i not in special])
        if not len(words):
            raise DataError("the tokenizer", "it knows no word", "Train it on more text")
        return cls(tokenizer.tag(MASK), words, hidden_of(window))


def hidden_of(length: int) -> int:
    """How many words of a row of so many tokens are hidden."""
    return max(1, round(HIDDEN * (length + ADDED)))


def stream_for_rows(documents: Iterable[str], tokenizer: Tokenizer, window: int, *, lines: bool) -> SentenceStream:
    """A text for rows of `window` tokens: two of its sentences always fit into one, with the EOS between them."""
    return SentenceStream.from_documents(documents, tokenizer, most=max(1, (window - 1) // 2), lines=lines)


# columns of an example: tokens a .. a + a_length, then EOS and b .. b + b_length if there is a second segment
A, A_LENGTH, B, B_LENGTH, CODE = range(5)


class ExamplePlan:
    """Which segments form which row, and which rows form a batch, in every epoch.

    The last batch of an epoch may have fewer rows than the others.
    """

    def __init__(self, stream: SentenceStream, rows: int, window: int, *, seed: int, pairs: bool):
        documents = len(stream.documents) - 1
        if pairs and documents < 2:
            what = "it is one document, and a sentence that does not follow has to come from another"
            raise DataError(
                "the text", what, "Give more text, divide it with data.documents, or set model.next_sentence=false"
            )
        if pairs and window < 3:
            raise DataError("setting train.window", f"{window} tokens are too few for two segments", "Use 3 or more")
        self.stream, self.rows, self.window, self.seed, self.pairs = stream, rows, window, seed, pairs
        sizes = np.diff(stream.documents)
        self._document = np.repeat(np.arange(documents), sizes)  # of each sentence
        self._last = np.repeat(stream.documents[1:], sizes)  # where its document ends

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch: each an array [rows, 5] of examples, in random order."""
        examples = self.examples(epoch)
        keys = row_keys(self.seed, SEGMENTS, epoch, examples[:, A], examples[:, A_LENGTH])
        examples = examples[np.argsort(shares(keys, np.full(len(keys), 9)), kind="stable")]
        return [examples[begin : begin + self.rows] for begin in range(0, len(examples), self.rows)]

    def examples(self, epoch: int) -> np.ndarray:
        """All examples of an epoch, in the order of the text.

        Each sentence draws what an example would be that begins with it; then the text is gone through from one to the next.
        """
        first = np.arange(self.stream.sentences)
        keys = row_keys(self.seed, SEGMENTS, epoch, first, np.zeros_like(first))

        def draw(number: int) -> np.ndarray:
            return shares(keys, np.full(len(keys), number))

        room = self.window - 1 if self.pairs else self.window
        least = min(2, room)
        shorter = least + (draw(1) * (room + 1 - least)).astype(np.int64)
        target = np.where(draw(0) < SHORT, shorter, room)
        found, after = self._pairs(first, target, room, draw) if self.pairs else self._pieces(first, target)
        return found[_chain(after)]

    def _pieces(self, first: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As many tokens as there is room for; a sentence that is cut begins the next piece."""
        begins = self.stream.begins
        stop = np.minimum(begins[first] + target, begins[self._last])
        after = np.maximum(np.searchsorted(begins, stop, side="right") - 1, first + 1)
        nothing = np.zeros_like(first)
        columns = (begins[first], stop - begins[first], nothing, nothing, np.full_like(first, NO_CODE))
        return np.stack(columns, axis=1), after

    def _pairs(self, first: np.ndarray, target: np.ndarray, room: int, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """Sentences up to the first that reaches the target, but at least two, are cut in two behind a random one."""
        begins = self.stream.begins
        end = np.searchsorted(begins, begins[first] + target, side="left")
        end = np.minimum(np.maximum(end, first + 2), self._last)
        count = end - first
        middle = np.where(count > 1, first + 1 + (draw(2) * (count - 1)).astype(np.int64), end)
        elsewhere = draw(3) < 0.5
        a_length = begins[middle] - begins[first]
        other, other_end = self._other(first, target - a_length, draw)
        b = np.where(elsewhere, other, middle)
        b_end = np.where(elsewhere, other_end, end)
        b_length = begins[b_end] - begins[b]
        b_kept = np.minimum(b_length, np.maximum(room // 2, room - a_length))
        a_kept = np.minimum(a_length, room - b_kept)
        code = np.where(elsewhere, ELSEWHERE, np.where(b_length > 0, FOLLOWS, NO_CODE))
        columns = (begins[first] + a_length - a_kept, a_kept, begins[b], b_kept, code)
        return np.stack(columns, axis=1), np.where(elsewhere, middle, end)

    def _other(self, first: np.ndarray, wanted: np.ndarray, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """Sentences of another document, from a random one on, up to the first that makes them long enough."""
        documents, begins = self.stream.documents, self.stream.begins
        own = self._document[first]
        other = (draw(4) * (len(documents) - 2)).astype(np.int64)
        other += other >= own
        begin = documents[other] + (draw(5) * (documents[other + 1] - documents[other])).astype(np.int64)
        end = np.searchsorted(begins, begins[begin] + np.maximum(wanted, 1), side="left")
        return begin, np.minimum(end, self._last[begin])


def _chain(after: np.ndarray) -> np.ndarray:
    """The sentences that are met when each says which comes next."""
    following = after.tolist()
    met = []
    place = 0
    while place < len(following):
        met.append(place)
        place = following[place]
    return np.array(met, dtype=np.int64)


def collate_masked(
    stream: SentenceStream, examples: np.ndarray, masking: Masking, *, window: int, rows: int, seed: int, epoch: int
) -> Batch:
    """Examples as a batch of `rows` rows of `window` tokens: fewer examples are filled up with rows that count for nothing.

    target_in: the next-sentence code, then the hidden places; target_out: padding, then what stood there.
    """
    count = len(examples)
    a, a_length, b, b_length, code = examples.T
    place = np.arange(window)
    in_a, middle = place < a_length[:, None], a_length[:, None]
    lengths = a_length + np.where(b_length > 0, b_length + 1, 0)
    where = np.where(in_a, a[:, None] + place, b[:, None] + place - middle - 1)
    real = place < lengths[:, None]
    words = np.where(real, stream.tokens[np.where(real, where, 0)].astype(np.int64), PAD)
    words[(place == middle) & real] = EOS
    keys = row_keys(seed, HIDING, epoch, a, a_length)
    hidden = _hidden(words, real, lengths, keys, masking)
    source = np.full((rows, window), PAD, dtype=np.int64)
    source[count:, 0] = EOS  # attention must have something to look at
    keep = source != PAD
    target_in = np.zeros((rows, 1 + masking.most), dtype=np.int64)
    target_out = np.full((rows, 1 + masking.most), PAD, dtype=np.int64)
    taken = hidden < window
    places = np.where(taken, hidden, 0)
    target_in[:count, 0] = code
    target_in[:count, 1:] = places
    target_out[:count, 1:] = np.where(taken, np.take_along_axis(words, places, axis=1), PAD)
    source[:count] = _covered(words, hidden, keys, masking)
    keep[:count] = real
    tokens, kept, into, out = (torch.from_numpy(each) for each in (source, keep, target_in, target_out))
    return Batch(Padded(tokens, kept), into, out, a.tolist())


def _hidden(words: np.ndarray, real: np.ndarray, lengths: np.ndarray, keys: np.ndarray, masking: Masking) -> np.ndarray:
    """The places of each row that are hidden, in their order; the window's width where a row has fewer."""
    window = words.shape[1]
    able = real & (words != EOS)
    known = able & (words != UNK)
    able = np.where(known.any(1, keepdims=True), known, able)
    drawn = np.where(able, shares(keys[:, None], np.arange(window)[None]), 2.0)
    wanted = np.minimum(np.maximum(np.rint(HIDDEN * (lengths + ADDED)).astype(np.int64), 1), able.sum(1))
    order = np.argsort(drawn, axis=1, kind="stable")[:, : masking.most]
    order = np.where(np.arange(order.shape[1]) < wanted[:, None], order, window)
    return np.sort(order, axis=1)


def _covered(words: np.ndarray, hidden: np.ndarray, keys: np.ndarray, masking: Masking) -> np.ndarray:
    """Rows as the model reads them: what stands at a hidden place is the mask, a random word, or as it was."""
    window = words.shape[1]
    kind = shares(keys[:, None], hidden + window)
    number = (shares(keys[:, None], hidden + 2 * window + 1) * len(masking.words)).astype(np.int64)
    wide = np.concatenate([words, words[:, :1]], axis=1)  # one column more, for places that are none
    was = np.take_along_axis(wide, hidden, axis=1)
    now = np.where(kind < MASKED, masking.mask, np.where(kind < MASKED + CHANGED, masking.words[number], was))
    np.put_along_axis(wide, hidden, now, axis=1)
    return wide[:, :window]


class MaskedBatches(BatchStream):
    """Batches of masked rows without end, all of one shape, from any place."""

    def __init__(self, plan: ExamplePlan, masking: Masking, place: Place, workers: int = 0, part: Part = ALL):
        self._examples, self._masking = plan, masking
        super().__init__(plan.stream, plan, place.epoch, place.position, workers, part=part)  # pyright: ignore[reportArgumentType]

    def _collate(self, rows: np.ndarray, place: Place, slots: Sequence[int]) -> Batch:
        plan = self._examples
        return collate_masked(
            plan.stream,
            rows,
            self._masking,
            window=plan.window,
            rows=self._part.share(plan.rows),
            seed=plan.seed,
            epoch=place.epoch,
        )
