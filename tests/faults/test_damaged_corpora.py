"""Corpora damaged by a generator: each damage is found by the check of data, or listed with the reason why it cannot be.

The generator and the figures are those of benchmarks/damaged_corpora.py.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest
from fault_runs import SOAK

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "damaged_corpora.py"
spec = importlib.util.spec_from_file_location("damaged_corpora", BENCHMARK)
assert spec is not None
assert spec.loader is not None
damaged_corpora = importlib.util.module_from_spec(spec)
sys.modules["damaged_corpora"] = damaged_corpora
spec.loader.exec_module(damaged_corpora)
KINDS = damaged_corpora.KINDS
SURE = [name for name, kind in KINDS.items() if not kind.reason]
CHOSEN = SURE if SOAK else sorted(random.Random(6).sample(SURE, 8))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Two sides, and what the check finds in them as they are."""
    (sides,) = damaged_corpora.samples(800, 1, seed=7)
    return (*sides, damaged_corpora.counts(tmp_path_factory.mktemp("corpus"), *sides))


@pytest.mark.parametrize("name", CHOSEN)
def test_the_damage_is_found(sample, tmp_path, name):
    source, target, before = sample
    for seed in range(10 if SOAK else 1):
        damage = KINDS[name].damage(list(source), list(target), random.Random(seed))
        assert damage != (source, target)
        after = damaged_corpora.counts(tmp_path, *damage)
        assert damaged_corpora.is_found(KINDS[name], before, after), after


def test_without_damage_nothing_is_found(sample, tmp_path):
    source, target, before = sample
    after = damaged_corpora.counts(tmp_path, source, target)
    assert not any(damaged_corpora.is_found(kind, before, after) for kind in KINDS.values())


def test_every_kind_is_to_be_found_or_has_a_reason():
    assert len(KINDS) >= 30
    assert all(kind.findings or kind.reason for kind in KINDS.values())
    from regard.data.checks.findings import FINDINGS

    assert all(set(kind.findings) <= set(FINDINGS) for kind in KINDS.values())


def test_the_command_refuses_a_deleted_line(sample, tmp_path, command):
    source, target, _ = sample
    damage = KINDS["a line deleted"].damage(list(source), list(target), random.Random(1))
    damaged_corpora.counts(tmp_path, *damage)  # which writes the files
    outcome = command("data", "check", tmp_path / "corpus.en", tmp_path / "corpus.de")
    assert outcome.code == 1
    assert "799" in outcome.out
