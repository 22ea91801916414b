"""Tokens by several processes are those of one, whatever becomes of the processes."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.data import encoding_workers
from regard.data.encoding_workers import cut_into_tokens
from regard.data.split import Pairs
from regard.data.store import TokenStore
from regard.data.tokenizers import TokenizerConfig, TokenizerPair

ODD = ["", "  two  spaces ", "a\x1cb c", "😀 naïve “quotes”", "line\u2028break", "</s> <unk>", "x" * 3000, "4 711,50"]


def some_pairs(count: int) -> Pairs:
    sources = [f"{ODD[i % len(ODD)]} the {i % 97} houses of {i % 31}" for i in range(count)]
    return Pairs(sources, [f"die {i % 89} Häuser von {ODD[i % 7]}" for i in range(count)])


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "apart"])
def tokenizers(request: pytest.FixtureRequest) -> TokenizerPair:
    text = some_pairs(300)
    return TokenizerPair.train(text.sources, text.targets, TokenizerConfig(size=150, joint=request.param))


@pytest.fixture
def two_workers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Texts of any size are large, and there are two cores; gives the workers that are started."""
    started: list[Any] = []

    class Seen(encoding_workers._Worker):
        def __init__(self, tokenizers: TokenizerPair):
            super().__init__(tokenizers)
            self.failed = 0
            started.append(self)

        def cut(self, pairs: Pairs) -> encoding_workers.Cut | None:
            found = super().cut(pairs)
            self.failed += found is None
            return found

    monkeypatch.setattr(encoding_workers, "LEAST_PAIRS", 1)
    monkeypatch.setattr(encoding_workers, "processors", lambda: 2)
    monkeypatch.setattr(encoding_workers, "_Worker", Seen)
    return started


def chunked(pairs: Pairs, size: int = 40) -> list[Pairs]:
    return [
        Pairs(pairs.sources[at : at + size], pairs.targets[at : at + size]) for at in range(0, len(pairs.sources), size)
    ]


def check(found: list[encoding_workers.Cut], pairs: Pairs, tokenizers: TokenizerPair) -> None:
    assert [text for part in found for text in part.pairs.sources] == pairs.sources  # in order
    for side, tokenizer, texts in (
        ("source", tokenizers.source, pairs.sources),
        ("target", tokenizers.target, pairs.targets),
    ):
        flat = np.concatenate([getattr(part, side)[0] for part in found])
        lengths = np.concatenate([getattr(part, side)[1] for part in found])
        rows = np.split(flat, np.cumsum(lengths)[:-1])
        assert [row.tolist() for row in rows] == tokenizer.encode(texts)


def test_tokens_are_those_of_one_process(tokenizers, two_workers):
    pairs = some_pairs(700)
    check(list(cut_into_tokens(chunked(pairs), tokenizers, 700)), pairs, tokenizers)
    assert len(two_workers) == 2
    assert all(worker.process is None and not worker.begin for worker in two_workers)  # both worked, and have ended
    assert [worker.failed for worker in two_workers] == [0, 0]


def test_a_process_that_is_killed_is_done_without(tokenizers, two_workers):
    pairs = some_pairs(700)
    parts = cut_into_tokens(chunked(pairs), tokenizers, 700)
    first = next(parts)
    process = two_workers[0].process
    assert process is not None
    process.kill()
    check([first, *parts], pairs, tokenizers)
    assert two_workers[0].failed


def test_where_none_can_be_started(tokenizers, two_workers, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/there/is/no/python")
    pairs = some_pairs(100)
    check(list(cut_into_tokens(chunked(pairs), tokenizers, 100)), pairs, tokenizers)
    assert [worker.process for worker in two_workers] == [None, None]


def test_who_stops_early_leaves_no_process(tokenizers, two_workers):
    parts = cut_into_tokens(itertools.repeat(some_pairs(20)), tokenizers, 1 << 40)
    next(parts)
    processes = [worker.process for worker in two_workers]
    parts.close()
    assert all(process is not None and process.returncode is not None for process in processes)


def test_files_of_the_working_folder_do_not_matter(tokenizers, two_workers, tmp_path: Path, monkeypatch):
    for name in ("numpy", "regard", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('mine')")
    monkeypatch.chdir(tmp_path)
    pairs = some_pairs(100)
    check(list(cut_into_tokens(chunked(pairs), tokenizers, 100)), pairs, tokenizers)
    assert [worker.failed for worker in two_workers] == [0, 0]


def test_small_texts_are_cut_here(tokenizers, monkeypatch):
    monkeypatch.setattr(encoding_workers, "_Worker", None)  # calling it would fail
    pairs = some_pairs(100)
    check(list(cut_into_tokens(chunked(pairs), tokenizers, 100)), pairs, tokenizers)


def test_the_store_is_the_same(tokenizers, two_workers, monkeypatch):
    monkeypatch.setattr("regard.data.store.CHUNK", 100)
    pairs = some_pairs(450)
    by_two = TokenStore.from_pairs(pairs, tokenizers, max_length=9)
    assert [worker.failed for worker in two_workers] == [0, 0]
    monkeypatch.setattr(encoding_workers, "LEAST_PAIRS", 1 << 60)
    by_one = TokenStore.from_pairs(pairs, tokenizers, max_length=9)
    assert len(two_workers) == 2
    assert 0 < len(by_one) < len(pairs)
    for side in ("source", "target"):
        assert np.array_equal(getattr(by_two, side).flat, getattr(by_one, side).flat)
        assert np.array_equal(getattr(by_two, side).offsets, getattr(by_one, side).offsets)
    assert np.array_equal(by_two.kept, by_one.kept)
