"""The parts of search on small examples: ranking, scores, guards and drawing."""

from __future__ import annotations

import math

import pytest
import torch

from regard.core.types import BOS, EOS, PAD, UNK, pad_rows
from regard.search import SearchConfig
from regard.search.constraints import Constraints
from regard.search.ranking import best
from regard.search.sampling import draw, uniforms
from regard.search.scoring import coverage_penalty, normalised, reachable

torch.set_num_threads(1)
CPU = torch.device("cpu")


def test_best_ranks_equal_values_by_lower_index() -> None:
    generator = torch.Generator().manual_seed(0)
    for count in (1, 2, 5, 12):
        for size in (3, 12, 200):
            values = torch.randn(4, size, generator=generator).mul(20).round()  # with many ties
            top, index = best(values, count)
            for row in range(4):
                expected = sorted(range(size), key=lambda i: (-float(values[row, i]), i))[:count]
                if values[row].topk(min(size, count + 8)).values[-1] < values[row, expected[-1]] or size <= count + 8:
                    assert index[row].tolist() == expected
                assert top[row].tolist() == values[row, expected].tolist()


def test_length_normalisation_by_hand() -> None:
    total, n = torch.tensor([-6.0]), torch.tensor([7])
    assert float(normalised(SearchConfig(alpha=1.0), total, n)) == pytest.approx(-3.0)
    assert float(normalised(SearchConfig(length_norm="plain", alpha=0.5), total, n)) == pytest.approx(-6 / math.sqrt(7))
    assert float(normalised(SearchConfig(length_norm="none"), total, n)) == -6.0
    assert float(normalised(SearchConfig(length_norm="plain"), total, torch.tensor([0]))) == -6.0  # not a division by 0


def test_coverage_penalty_by_hand() -> None:
    covered = torch.tensor([[[0.5, 1.7, 0.25, 9.0]]])
    keep = torch.tensor([[True, True, True, False]])
    penalty = coverage_penalty(SearchConfig(coverage=0.2), covered, keep)
    assert float(penalty) == pytest.approx(0.2 * (math.log(0.5) + math.log(0.25)))
    nothing = coverage_penalty(SearchConfig(coverage=0.2), torch.zeros(1, 1, 4), keep)
    assert math.isfinite(float(nothing))
    assert coverage_penalty(SearchConfig(), None, keep) == 0.0


@pytest.mark.parametrize("norm", ["gnmt", "plain", "none"])
def test_no_continuation_scores_above_what_is_reachable(norm: str) -> None:
    config = SearchConfig(length_norm=norm, alpha=1.3)  # type: ignore[arg-type]
    total = torch.tensor([-4.0], dtype=torch.float64)
    bound = reachable(config, total, torch.tensor([9]))
    scores = [float(normalised(config, total, torch.tensor([n]))) for n in range(3, 11)]
    assert max(scores) == pytest.approx(float(bound))


def forbidden(config: SearchConfig, written: list[int], forced: list[int] | None = None) -> set[int]:
    constraints = Constraints(config, CPU)
    # another sentence is further on, and what stands beyond a history's end means nothing
    text = torch.tensor([written + [7] * 5, [4, 5, 6, 7, 8] + [9] * len(written)], dtype=torch.long)
    history = torch.cat([constraints.margin.expand(2, -1), text], 1)[:, None]
    at = torch.tensor([len(written), len(written) + 3])
    prefix = torch.tensor([forced or [], [-1] * len(forced or [])], dtype=torch.long)
    before = torch.randn(2, 1, 12)
    both = before.clone()
    constraints.apply(both, constraints.read(history, at), history, at, len(written) + 4, prefix, torch.zeros(2).long())
    before, after = before[:1], both[:1]
    gone = set(after.isinf().nonzero()[:, -1].tolist())
    allowed = [token for token in range(12) if token not in gone]
    torch.testing.assert_close(after[..., allowed], before[..., allowed], rtol=0, atol=0)
    return gone


def test_specials_and_minimum_length() -> None:
    assert forbidden(SearchConfig(), []) == {PAD, BOS, UNK}
    assert forbidden(SearchConfig(ban_unknown=False), []) == {PAD, BOS}
    assert forbidden(SearchConfig(min_length=2), [5]) == {PAD, BOS, UNK, EOS}
    assert forbidden(SearchConfig(min_length=2), [5, 5]) == {PAD, BOS, UNK}


@pytest.mark.parametrize(
    ("n", "written", "expected"),
    [
        (3, [5, 6, 7, 5, 6], {7}), (3, [5, 6, 7, 5, 6, 8, 5, 6], {7, 8}), (2, [5], set()), (2, [5, 5], {5}),
        (1, [5, 9, 5], {5, 9}), (4, [5, 6], set()),
    ],
)  # fmt: skip
def test_no_repeat(n: int, written: list[int], expected: set[int]) -> None:
    assert forbidden(SearchConfig(no_repeat_ngram=n, max_repeat=0), written) == {PAD, BOS, UNK} | expected


@pytest.mark.parametrize(
    ("repeat", "written", "expected"),
    [
        (3, [5, 5], set()), (3, [5, 5, 5], {5}), (3, [4, 5, 5, 5], {5}), (3, [5, 5, 5, 6], set()), (1, [5], {5}),
        (2, [5, 6, 5, 6, 5], {6}), (2, [5, 6, 5, 6], set()), (2, [6, 6, 5, 6, 5], set()),
        (2, [9, 5, 6, 7, 5, 6, 7, 5, 6], {7}),
        (1, [5, 6, 7, 8, 5, 6, 7], {7, 8}), (1, [5, 6, 7, 8, 9, 5, 6, 7, 8], {8}), (0, [5] * 40, set()),
    ],
)  # fmt: skip
def test_no_loop(repeat: int, written: list[int], expected: set[int]) -> None:
    assert forbidden(SearchConfig(max_repeat=repeat), written) == {PAD, BOS, UNK} | expected


def test_a_forced_token_is_the_only_one_even_if_banned() -> None:
    config = SearchConfig(no_repeat_ngram=1, min_length=5)
    for token in (UNK, 5, 7):
        assert forbidden(config, [5], [5, token]) == set(range(12)) - {token}
    assert forbidden(config, [5], [5, -1]) == forbidden(config, [5])


LOG_PROBS = torch.tensor([0.5, 0.05, 0.3, 0.15]).log()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {0: 0.5, 2: 0.3, 3: 0.15, 1: 0.05}),
        ({"top_k": 3}, {0: 0.5 / 0.95, 2: 0.3 / 0.95, 3: 0.15 / 0.95}),
        ({"top_p": 0.7}, {0: 0.625, 2: 0.375}),
        ({"top_p": 0.49}, {0: 1.0}),
        ({"min_p": 0.2}, {0: 0.5 / 0.95, 2: 0.3 / 0.95, 3: 0.15 / 0.95}),
        ({"top_k": 2, "top_p": 0.62}, {0: 1.0}),  # the nucleus is that of the renormalised two: 0.625 reaches it
        ({"temperature": 0.5}, {0: 0.25 / 0.365, 2: 0.09 / 0.365, 3: 0.0225 / 0.365, 1: 0.0025 / 0.365}),
        ({"temperature": 0.5, "min_p": 0.2}, {0: 0.25 / 0.34, 2: 0.09 / 0.34}),  # min-p sees the tempered distribution
    ],
)  # fmt: skip
def test_drawing_inverts_the_filtered_distribution(filters: dict[str, float], expected: dict[int, float]) -> None:
    config = SearchConfig(method="sample", **filters)  # type: ignore[arg-type]
    steps = 4000
    uniform = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    counts = draw(config, LOG_PROBS.expand(steps, 4), uniform).bincount(minlength=4) / steps
    for token in range(4):
        assert float(counts[token]) == pytest.approx(expected.get(token, 0.0), abs=2 / steps)
    edges = torch.tensor([0.0, 1 - 2**-53, 1.0], dtype=torch.float64)  # 1 as rounding to float32 may make it
    assert set(draw(config, LOG_PROBS.expand(3, 4), edges).tolist()) <= set(expected)


@pytest.mark.parametrize("filters", [{}, {"top_k": 50}, {"top_p": 0.8}, {"top_k": 300, "top_p": 0.99, "min_p": 0.01}])
def test_only_what_the_filters_keep_is_drawn(filters: dict[str, float]) -> None:
    """Over a vocabulary wider than the nucleus that is looked at first, flat and peaked, with forbidden tokens."""
    config = SearchConfig(method="sample", **filters)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    log_probs = (torch.randn(40, 1000, generator=generator) * torch.linspace(0.1, 8, 40)[:, None]).log_softmax(-1)
    log_probs[:, :20] = -math.inf
    drawn = draw(config, log_probs, torch.rand(40, generator=generator, dtype=torch.float64))
    for row, token in zip(log_probs.double().exp().tolist(), drawn.tolist(), strict=True):
        ranked = sorted(range(1000), key=lambda i: -row[i])
        ranked = [i for i in ranked if row[i] > 0][: config.top_k or 1000]
        whole, before, kept = sum(row[i] for i in ranked), 0.0, set()
        for i in ranked:
            if before < config.top_p * whole + 1e-9 and row[i] >= config.min_p * row[ranked[0]]:
                kept.add(i)
            before += row[i]
        assert token in kept


def test_drawing_where_everything_is_forbidden_does_not_fail() -> None:
    token = draw(SearchConfig(method="sample"), torch.full((1, 4), -math.inf), torch.tensor([0.3], dtype=torch.float64))
    assert 0 <= int(token) < 4


def test_random_numbers_depend_on_the_sentence_alone() -> None:
    config = SearchConfig(method="sample", nbest=2)
    both = uniforms(config, pad_rows([[5, 6, EOS], [7, EOS]]), [4, 9])
    alone = uniforms(config, pad_rows([[7, EOS]]), [9])
    assert torch.equal(both[1], alone[0])
    assert not torch.equal(both[0, 0, :5], both[0, 1, :5])
    assert torch.equal(uniforms(config, pad_rows([[7, EOS]]), [3])[0], alone[0, :, :4])
    assert both[0, 0, 0].item() == pytest.approx(0.1343436952541227)  # a change here changes everyone's samples
