"""Laws that hold for whatever is drawn: configurations, tokenizers, search, the order of batches, file formats."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from fault_runs import SOAK
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from toy_writer import ToyWriter, toy_source

from regard.core import config as configuration
from regard.core.errors import ConfigError, RegardError
from regard.core.files import load_tensors, read_json, save_tensors, write_json
from regard.core.types import BOS, EOS
from regard.data.batching import BatchPlan, BatchStream
from regard.data.store import TokenRows, TokenStore
from regard.data.token_stream import StreamPlan, scoring_windows
from regard.data.tokenizers import Tokenizer, TokenizerConfig
from regard.data.vectors import read_vectors, write_vectors
from regard.search.config import SearchConfig
from regard.search.search import search
from regard.training.config import build_run_config
from regard.training.request import nested

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def law(examples: int = 25):
    """The same draws every time in CI; many more, and other ones, in `make soak`."""
    many = examples * 40 if SOAK else examples
    return settings(max_examples=many, deadline=None, derandomize=not SOAK, database=None, suppress_health_check=QUIET)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SECTIONS = st.sampled_from(["model", "train", "data", "tokenizer", "search", "augment", "other"])
KEYS = st.sampled_from(
    ["name", "width", "steps", "lr", "src", "corpora", "kind", "beam", "allow", "compile", "seed"]
) | st.text(max_size=5)


# Configurations


@law(40)
@given(st.dictionaries(SECTIONS, st.dictionaries(KEYS, PLAIN, max_size=3) | PLAIN, max_size=3))
def test_values_become_a_configuration_or_one_sentence(values):
    try:
        config = build_run_config(values)
    except ConfigError:  # anything else fails
        return
    plain = configuration.to_plain(config)
    assert repr(build_run_config(plain)) == repr(config)  # NaN is not itself, but looks the same


@law(60)
@given(st.text(max_size=30) | st.builds("{}.{}={}".format, SECTIONS, KEYS, st.text(max_size=12)))
def test_a_setting_is_read_or_refused(text):
    try:
        found = nested([text])
    except ConfigError:
        return
    assert len(found) == 1
    path, value = configuration.parse_override(text)
    for key in path:
        found = found[key]
    assert found == value or (isinstance(value, float) and math.isnan(value))


@law()
@given(st.integers(1, 10**9), st.floats(0, 1e6, allow_subnormal=False), st.booleans(), st.text(max_size=10))
def test_a_setting_of_each_type_comes_back_as_it_was_written(steps, rate, silent, text):
    given_ = [f"train.steps={steps}", f"train.lr={rate!r}", f"train.graphs={str(silent).lower()}"]
    config = build_run_config(nested(given_))
    assert (config.train.steps, config.train.lr, config.train.graphs) == (steps, rate, silent)
    assert build_run_config(nested({"data": {"src": text}})).data.src == text


# Tokenizers

SENTENCES = ["the quick brown fox", "jumps over the lazy dog", "größer als früher", "a 12 b 345", "x y z , . !"] * 8
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer.train(SENTENCES, TokenizerConfig(kind=kind, size=400, min_count=1))  # type: ignore[arg-type]


TOKENIZERS = {kind: tokenizer(kind) for kind in ("bpe", "unigram", "word", "char", "byte", "bytebpe", "space")}


@pytest.mark.parametrize("kind", TOKENIZERS)
@law(20)
@given(words=st.lists(st.sampled_from(WORDS), max_size=12))
def test_text_of_known_words_comes_back(kind, words):
    text = " ".join(words)
    assert TOKENIZERS[kind].decode(TOKENIZERS[kind].encode([text])) == [text]


@pytest.mark.parametrize("kind", TOKENIZERS)
@law(30)
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=3))
def test_any_text_becomes_tokens_and_text_again(kind, texts):
    one = TOKENIZERS[kind]
    rows = one.encode(texts)
    assert len(rows) == len(texts)
    assert all(3 <= token < one.size for row in rows for token in row)  # no PAD, BOS or EOS out of a text
    assert one.encode_many(texts) == rows
    back = one.decode(rows)
    assert all(isinstance(text, str) for text in back)
    if kind in ("byte", "bytebpe"):
        assert one.encode(back) == rows


@law(40)
@given(st.text(max_size=40))
@example("\U0002f800e\u0301 \n\t x ")  # also what is not in a normal form, and white space
def test_bytes_lose_nothing(text):
    for kind in ("byte", "bytebpe"):
        one = TOKENIZERS[kind]
        assert one.decode(one.encode([text])) == [text]


@law(30)
@given(st.lists(st.integers(-3, 500), max_size=20))
def test_any_tokens_become_text(tokens):
    for one in TOKENIZERS.values():
        known = [token for token in tokens if 0 <= token < one.size]
        assert isinstance(one.decode([known])[0], str)


# Search


@law(15)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 8), st.sampled_from([0.0, 0.6, 1.0]))
@torch.inference_mode()
def test_what_search_finds_is_what_the_model_says_of_it(seed, beam, longest, alpha):
    model, source = ToyWriter(seed=seed % 97), toy_source(seed, 3)
    config = SearchConfig(beam=beam, nbest=beam, max_length=longest, alpha=alpha, max_repeat=0, ban_unknown=False)
    for row, found in enumerate(search(model, source, config)):
        assert 1 <= len(found) <= beam
        order = [(not h.finished, -h.score) for h in found]  # finished ones before cut ones
        assert order == sorted(order)
        assert len({(*h.tokens, h.finished) for h in found}) == len(found)
        for h in found:
            assert len(h.tokens) <= longest
            one = type(source)(source.tokens[row : row + 1], source.keep[row : row + 1])
            written = [*h.tokens, *([EOS] if h.finished else [])]
            scores = model.output.scores(model(one, torch.tensor([[BOS, *written][: len(written)] or [BOS]])).hidden)[0]
            forced = sum(float(scores[i, token]) for i, token in enumerate(written))
            assert h.log_prob == pytest.approx(forced, abs=1e-4)


@law(10)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([0, 3]), st.sampled_from([1.0, 0.7]))
@torch.inference_mode()
def test_samples_are_those_of_their_seed(seed, drawn, top_k, top_p):
    model, source = ToyWriter(seed=seed % 97), toy_source(seed, 2)
    config = SearchConfig(method="sample", beam=2, nbest=2, max_length=5, seed=drawn, top_k=top_k, top_p=top_p)
    one, two = (search(model, source, config) for _ in range(2))
    assert [[h.tokens for h in found] for found in one] == [[h.tokens for h in found] for found in two]


# The order of batches

LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=60)


def store(lengths) -> TokenStore:
    sides = [TokenRows.from_lists([[4 + i % 9] * pair[side] for i, pair in enumerate(lengths)]) for side in range(2)]
    return TokenStore(*sides, np.arange(len(lengths)))


@law(40)
@given(
    LENGTHS, st.integers(1, 200), st.integers(0, 2**32 - 1), st.integers(0, 5), st.sampled_from([1, 8]), st.booleans()
)
def test_an_epoch_has_every_row_once_within_the_budget(lengths, tokens, seed, epoch, multiple, mixed):
    plan = BatchPlan.of(store(lengths), tokens, seed, multiple=multiple, mixed=mixed)
    batches = plan.epoch(epoch)
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(lengths)))
    assert [batch.tolist() for batch in plan.epoch(epoch)] == [batch.tolist() for batch in batches]
    for batch in batches:
        width = max(-(-(max(lengths[row]) + 1) // multiple) * multiple for row in batch)
        assert len(batch) == 1 or width * len(batch) <= tokens


@law(15)
@given(LENGTHS, st.integers(20, 200), st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(0, 2))
def test_a_stream_goes_on_from_any_place(lengths, tokens, seed, taken, workers):
    text = store(lengths)
    plan = BatchPlan.of(text, tokens, seed)
    with BatchStream(text, plan) as straight:
        drawn = [next(straight) for _ in range(taken + 3)]
    place = drawn[taken - 1].next if taken else (0, 0)
    with BatchStream(text, plan, *place, workers=workers) as resumed:
        for expected in drawn[taken:]:
            found = next(resumed)
            assert found.batch.rows == expected.batch.rows
            assert torch.equal(found.batch.target_out, expected.batch.target_out)
            assert found.next == expected.next


@law(40)
@given(
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 200),
    st.integers(0, 2**32 - 1),
    st.integers(0, 4),
    st.booleans(),
)
def test_windows_of_a_text_never_overlap_within_an_epoch(rows, window, more, seed, epoch, carried):
    length = rows * window + more
    begins = StreamPlan(length, rows, window, seed=seed, carried=carried).epoch(epoch)
    assert begins.shape[1] == rows
    places = sorted(begins.ravel().tolist())
    assert places[0] >= 0
    assert places[-1] + window <= length
    assert all(b - a >= window for a, b in itertools.pairwise(places))


@law(60)
@given(st.integers(0, 300), st.integers(1, 40), st.data())
def test_every_position_of_a_text_is_scored_once(length, context, data):
    stride = data.draw(st.integers(1, context))
    scored = [i for window in scoring_windows(length, context, stride) for i in range(window.first, window.end)]
    assert scored == list(range(length))
    assert all(w.end - w.begin <= context for w in scoring_windows(length, context, stride))


# File formats

DTYPES = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
)


@law(25)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
            lambda name: name != "__metadata__"
        ),
        st.tuples(DTYPES, st.lists(st.integers(0, 4), max_size=3)),
        max_size=4,
    ),
    st.integers(0, 99),
)
def test_tensors_come_back_as_they_were(tmp_path, shapes, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = {n: torch.randint(0, 2, shape, generator=generator).to(kind) for n, (kind, shape) in shapes.items()}
    save_tensors(tmp_path / "a", tensors)
    found = load_tensors(tmp_path / "a")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@law(40)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), PLAIN, max_size=4))
def test_json_comes_back_or_is_refused_in_one_sentence(tmp_path, value):
    try:
        write_json(tmp_path / "a", value)
    except UnicodeEncodeError:  # halves of characters are no text
        return
    try:
        found = read_json(tmp_path / "a")
    except RegardError:  # a number of thousands of digits
        return
    assert repr(found) == repr(value)


WORD = st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=8)


@law(20)
@given(st.lists(WORD, min_size=1, max_size=6, unique=True), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_word_vectors_come_back(tmp_path, words, width, binary, seed):
    """Binary ones of a few numbers may look like text, and no one can tell: real ones are wider."""
    width *= 8 if binary else 1
    matrix = np.random.default_rng(seed).standard_normal((len(words), width)).astype(np.float32)
    write_vectors(tmp_path / "v", words, matrix, binary)
    found = read_vectors(tmp_path / "v")
    assert found.words == words
    np.testing.assert_allclose(found.matrix, matrix, rtol=1e-5, atol=1e-6)
