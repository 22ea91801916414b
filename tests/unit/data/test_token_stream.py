"""A text as a stream of tokens: what is read and written, lanes and windows, resuming, and windows for scoring."""

from itertools import islice, pairwise

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, DataError
from regard.core.types import BOS, EOS
from regard.data import long_texts, token_stream
from regard.data.batching import Place
from regard.data.long_texts import chunks_of, parts_of
from regard.data.token_stream import ScoringWindow, StreamBatches, StreamPlan, TokenStream, scoring_windows
from regard.data.tokenizers import Tokenizer, TokenizerConfig

BYTES = Tokenizer.train([], TokenizerConfig(kind="byte"))


def numbered(length: int) -> TokenStream:
    """A stream in which a token is its own place, from 10 on."""
    return TokenStream(np.arange(10, 10 + length, dtype=np.uint16))


def taken(length: int, rows: int, window: int, *, batches: int, carried: bool, seed: int = 1, **place: int):
    plan = StreamPlan(length, rows, window, seed=seed, carried=carried)
    return list(islice(StreamBatches(numbered(length), plan, **place), batches))


def test_documents_end_with_eos_and_eos_is_read_as_bos():
    stream = TokenStream.from_documents(["ab", "c", "def"], BYTES)
    a, b, c, d, e, f = (4 + byte for byte in b"abcdef")
    assert stream.tokens.tolist() == [a, b, EOS, c, EOS, d, e, f, EOS]
    assert stream.tokens.dtype == np.uint16
    target_in, target_out = stream.windows(np.array([0, 3, 5]), 4)
    assert target_out.tolist() == [[a, b, EOS, c], [c, EOS, d, e], [d, e, f, EOS]]
    assert target_in.tolist() == [[BOS, a, b, BOS], [BOS, c, BOS, d], [BOS, d, e, f]]
    assert stream.windows(np.array([1]), 2)[0].tolist() == [[a, b]]  # the token before the window
    assert target_in.dtype == target_out.dtype == np.int64
    assert len(TokenStream.from_documents([], BYTES)) == 0


def test_a_large_vocabulary_takes_four_bytes():
    class Large:
        size = (1 << 16) + 1

        def encode_many(self, texts):
            return [[1 << 16] for _ in texts]

        def forget_words(self):
            pass

    stream = TokenStream.from_documents(["x"], Large())  # type: ignore[arg-type]
    assert stream.tokens.tolist() == [1 << 16, EOS]
    assert stream.tokens.dtype == np.int32
    Large.size -= 1
    Large.encode_many = lambda self, texts: [[(1 << 16) - 1] for _ in texts]
    stream = TokenStream.from_documents(["x"], Large())  # type: ignore[arg-type]
    assert (stream.tokens[0], stream.tokens.dtype) == ((1 << 16) - 1, np.uint16)


def test_the_stream_does_not_depend_on_chunks(monkeypatch):
    documents = ["", "a" * 7, "bc", "", "some words to be cut", "x", "yy", "zzz", "more words\n\n  of another one "]
    whole = TokenStream.from_documents(documents, BYTES).tokens
    monkeypatch.setattr(token_stream, "CHUNK", 5)
    monkeypatch.setattr(token_stream, "chunks_of", lambda texts: chunks_of(texts, 5))
    monkeypatch.setattr("regard.data.tokenizers.parts_of", lambda text: parts_of(text, 3))
    assert TokenStream.from_documents(iter(documents), BYTES).tokens.tolist() == whole.tolist()


def test_chunks_are_bounded_and_whole():
    documents = ["x" * n for n in (3, 3, 3, 50, 1, 0, 0, 9, 10, 11)]
    chunks = list(chunks_of(documents, 10))
    assert [text for chunk in chunks for text in chunk] == documents
    assert all(sum(map(len, chunk)) <= 10 or len(chunk) == 1 for chunk in chunks)
    assert len(chunks) == 7


def test_a_batch():
    (drawn,) = taken(100, 4, 5, batches=1, carried=True)
    batch = drawn.batch
    assert batch.source.tokens.tolist() == [[EOS]] * 4
    assert batch.source.keep.all()
    assert batch.rows == [0, 25, 50, 75]
    assert batch.target_out.tolist() == [list(range(10 + begin, 15 + begin)) for begin in batch.rows]
    assert batch.target_in.tolist() == [
        [BOS, 10, 11, 12, 13], *(list(range(9 + begin, 14 + begin)) for begin in batch.rows[1:])
    ]  # fmt: skip
    assert batch.target_in.dtype == batch.target_out.dtype == batch.source.tokens.dtype == torch.long
    assert batch.to("cpu").target_in.tolist() == batch.target_in.tolist()


def test_lanes_go_on_from_batch_to_batch():
    every = taken(1003, 4, 7, batches=200, carried=True)
    for before, after in pairwise(every):
        if before.epoch == after.epoch:
            assert torch.equal(after.batch.target_in[:, 0], before.batch.target_out[:, -1])
        else:
            assert before.next == Place(after.epoch, 0)
    for epoch in range(3):
        lanes = torch.cat([drawn.batch.target_out for drawn in every if drawn.epoch == epoch], 1)
        begins = lanes[:, 0]
        assert lanes.tolist() == [list(range(begin, begin + lanes.shape[1])) for begin in begins]
        offset = int(begins[0]) - 10
        assert (begins - begins[0]).tolist() == [i * ((1003 - offset) // 4) for i in range(4)]
        assert lanes.shape[1] == (1003 - offset) // 4 // 7 * 7
        assert offset < 7
        assert (offset == 0) == (epoch == 0) or epoch > 1


def test_windows_cover_the_stream_once_in_random_order():
    plan = StreamPlan(1003, 4, 7, seed=3, carried=False)
    begins = plan.epoch(0)
    assert begins.shape == (1003 // 7 // 4, 4)
    assert set(begins.ravel() % 7) == {0}
    assert len(set(begins.ravel().tolist())) == begins.size
    assert begins.ravel().tolist() != sorted(begins.ravel().tolist())
    for epoch in range(1, 30):
        begins = plan.epoch(epoch).ravel()
        assert len(set(begins % 7)) == 1
        assert len(set(begins.tolist())) == len(begins)
        assert 0 <= begins.min() <= begins.max() <= 1003 - 7


@pytest.mark.parametrize("carried", [True, False])
def test_every_token_is_trained_on_in_some_epoch(carried):
    plan = StreamPlan(333, 3, 10, seed=2, carried=carried)
    seen, offsets = set(), set()
    for epoch in range(60):
        begins = plan.epoch(epoch).ravel()
        seen |= {place for begin in begins.tolist() for place in range(begin, begin + 10)}
        offsets.add(int(begins.min()) % 10)
    assert seen == set(range(333))
    assert offsets == set(range(10))


@pytest.mark.parametrize("carried", [True, False])
def test_order_is_a_function_of_seed_and_epoch(carried):
    plans = [StreamPlan(5000, 4, 50, seed=seed, carried=carried) for seed in (1, 1, 2)]
    for epoch in (1, 2):
        first, same, other = (plan.epoch(epoch) for plan in plans)
        assert np.array_equal(first, same)
        assert not np.array_equal(first, other)
    assert not np.array_equal(plans[0].epoch(1), plans[0].epoch(2))


@pytest.mark.parametrize("carried", [True, False])
def test_resuming_goes_on_exactly(carried):
    every = taken(700, 3, 11, batches=70, carried=carried)
    assert {drawn.epoch for drawn in every} >= {0, 1, 2}
    place = Place()
    for drawn in every:
        (again,) = taken(700, 3, 11, batches=1, carried=carried, epoch=place.epoch, position=place.position)
        assert torch.equal(again.batch.target_in, drawn.batch.target_in)
        assert torch.equal(again.batch.target_out, drawn.batch.target_out)
        assert (again.epoch, again.next) == (drawn.epoch, drawn.next)
        place = drawn.next
    last = len(StreamPlan(700, 3, 11, seed=1, carried=carried).epoch(0))
    (at_end,) = taken(700, 3, 11, batches=1, carried=carried, position=last)
    assert (at_end.epoch, at_end.batch.rows) == (1, every[last].batch.rows)
    for position in (-1, last + 1):
        with pytest.raises(DataError, match=f"epoch 0, position {position}: an epoch of this text has {last} batches"):
            taken(700, 3, 11, batches=1, carried=carried, position=position)


@pytest.mark.parametrize("carried", [True, False])
def test_a_text_of_just_one_batch(carried):
    for extra in (0, 1, 5):
        for epoch in range(40):
            begins = StreamPlan(60 + extra, 4, 15, seed=1, carried=carried).epoch(epoch)
            assert begins.shape == (1, 4)
            assert begins.max() <= 45 + extra
            assert begins.min() >= 0


def test_a_text_smaller_than_a_batch_is_refused():
    with pytest.raises(
        DataError, match=r"it has 59 tokens, and a batch takes 60 \(4 rows of 15\).*train\.batch_tokens or"
    ):
        StreamPlan(59, 4, 15, seed=1, carried=True)
    for rows, window in ((0, 5), (5, 0)):
        with pytest.raises(ConfigError, match="positive"):
            StreamPlan(100, rows, window, seed=1, carried=False)
    with pytest.raises(DataError, match="the plan is for 100 tokens, and the stream has 99"):
        StreamBatches(numbered(99), StreamPlan(100, 1, 5, seed=1, carried=True))


def test_closing_ends_the_stream():
    with StreamBatches(numbered(100), StreamPlan(100, 2, 5, seed=1, carried=True)) as batches:
        assert next(batches).next == Place(0, 1)
    assert list(batches) == []


@pytest.mark.parametrize(("context", "stride"), [(8, 4), (8, 8), (8, 1), (1, 1), (5, 3)])
def test_scoring_windows_score_each_position_once(context, stride):
    for length in range(40):
        windows = list(scoring_windows(length, context, stride))
        scored = [place for window in windows for place in range(window.first, window.end)]
        assert scored == list(range(length))
        for number, (begin, end, first) in enumerate(windows):
            assert 0 <= begin <= first < end <= length
            assert end - begin == min(context, length)  # few shapes
            assert number == 0 or first - begin >= context - stride
        assert not windows or windows[0] == ScoringWindow(0, min(context, length), 0)


def test_scoring_windows_refuse_a_stride_beyond_the_context():
    for stride in (0, 9):
        with pytest.raises(ConfigError, match=f"{stride} is not from 1 to the context, 8"):
            list(scoring_windows(10, 8, stride))


def test_parts_join_to_the_text_and_begin_with_white_space():
    text = "one two\u00a0 three\n\n four  five\tsix \n seven" * 3
    for size in range(1, 30):
        parts = list(parts_of(text, size))
        assert "".join(parts) == text
        assert all(part[0] in " \n" and not before[-1].isspace() for before, part in pairwise(parts))
        assert all(len(part) >= size for part in parts[:-1])
    assert list(parts_of("x" * 100, 10)) == ["x" * 100]
    assert list(parts_of("", 10)) == [""]
    assert long_texts.PART < long_texts.CHUNK
