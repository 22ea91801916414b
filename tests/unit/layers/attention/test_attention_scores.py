"""Scores: what they promise at the edges, what they refuse, and that adding one takes one file."""

from __future__ import annotations

import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.layers.attention.scores import SCORES, Score, make_score
from regard.layers.attention.scores._base import EqualWidths
from regard.layers.attention.scores.additive import Additive
from regard.layers.attention.scores.concat import Concat
from regard.layers.attention.scores.cosine import Cosine
from regard.layers.attention.scores.location import Location

SIZES = {"query_width": 4, "key_width": 4, "width": 5, "limit": 9}


def test_all_scores_are_found_by_name():
    assert {"additive", "bilinear", "concat", "cosine", "dot", "location", "scaled_dot"} <= set(SCORES.names())
    with pytest.raises(
        ConfigError, match=r"attention score 'bilinea': there is none of that name. Perhaps .*'bilinear'"
    ):
        make_score("bilinea", **SIZES)


def test_a_new_score_takes_one_file(tmp_path, monkeypatch):
    import regard.layers.attention.scores as package

    (tmp_path / "distance_of_tests.py").write_text(
        "import torch\n"
        "from regard.layers.attention.scores._base import SCORES, EqualWidths\n"
        "@SCORES.register('distance_of_tests')\n"
        "class Distance(EqualWidths):\n"
        "    def forward(self, query, prepared):\n"
        "        return -torch.cdist(query, prepared)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    try:
        score = make_score("distance_of_tests", **SIZES)
        assert score(torch.zeros(1, 1, 4), score.prepare(torch.ones(1, 2, 4))).tolist() == [[[-2.0, -2.0]]]
    finally:
        SCORES._members.pop("distance_of_tests", None)


@pytest.mark.parametrize("name", SCORES.names())
def test_every_parameter_and_the_inputs_get_gradients(name):
    torch.manual_seed(0)
    score = make_score(name, **SIZES)
    query, keys = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
    score(query, score.prepare(keys)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in score.parameters())
    assert query.grad.abs().max() > 0
    assert name == "location" or keys.grad.abs().max() > 0  # location does not look at the keys


@pytest.mark.parametrize("name", SCORES.names())
def test_only_location_has_a_limit(name):
    score: Score = make_score(name, **SIZES)
    assert score.limit == (9 if name == "location" else None)


@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine"])
def test_scores_of_one_width_say_so(name):
    with pytest.raises(ConfigError, match=r"setting model\.score: .* one width, got 4 and 6"):
        make_score(name, query_width=4, key_width=6, width=5, limit=9)


def test_location_keeps_its_limit_with_a_clear_error():
    score = Location(4, limit=3)
    assert score(torch.zeros(1, 2, 4), score.prepare(torch.zeros(1, 3, 8))).shape == (1, 2, 3)
    with pytest.raises(ModelError, match="it has 4 positions, and this location score knows 3"):
        score.prepare(torch.zeros(1, 4, 8))


def test_cosine_stays_between_minus_one_and_one_whatever_the_sizes():
    """Also where squares overflow or vanish in float32, and where rounding would lead to 1.0000001."""
    score, generator = Cosine(), torch.Generator().manual_seed(0)
    directions = torch.randn(1, 60, 7, generator=generator)
    for scale in (1e-44, 1e-30, 1.0, 1e30):
        for sign in (1.0, -1.0):
            cosines = score(directions * scale, score.prepare(directions * sign))
            assert cosines.abs().max() <= 1
            if scale > 1e-40:  # numbers with full precision
                ones = torch.full((60,), sign)
                torch.testing.assert_close(cosines[0].diagonal(), ones, rtol=0, atol=1e-5)
                same = score(directions, score.prepare(directions * sign))
                torch.testing.assert_close(cosines, same, rtol=0, atol=1e-5)


def test_cosine_of_zero_vectors_is_zero_with_finite_gradients():
    score = Cosine()
    query, keys = torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)
    query[0, 1], keys[0, 1] = torch.tensor([1.0, 2, 3]), torch.tensor([2.0, 4, 6])
    query.requires_grad_()
    keys.requires_grad_()
    cosines = score(query, score.prepare(keys))
    torch.testing.assert_close(cosines, torch.tensor([[[0.0, 0.0], [0.0, 1.0]]]))
    cosines.sum().backward()
    for gradient in (query.grad, keys.grad):
        assert gradient.isfinite().all()
        assert gradient.abs().max() < 10


def test_a_decoder_may_project_the_query_itself():
    torch.manual_seed(0)
    for score in (Additive(4, 6, 5), Concat(4, 6, 5)):
        query, prepared = torch.randn(2, 3, 4), score.prepare(torch.randn(2, 7, 6))
        assert torch.equal(score.compare(score.query(query), prepared), score(query, prepared))
        assert {n: tuple(p.shape) for n, p in score.named_parameters()} == {
            "query.weight": (5, 4),
            "key.weight": (5, 6),
            "v": (5,),
        }


def test_concat_starts_as_one_matrix_would():
    torch.manual_seed(0)
    score = Concat(100, 300, 50)
    for part in (score.query, score.key):
        assert part.weight.abs().max().item() == pytest.approx(1 / 20, rel=0.01)  # 1/√(100 + 300)


def test_comparing_changes_neither_query_nor_keys():
    """The additive score overwrites a sum of its own, nothing that a decoder still needs."""
    torch.manual_seed(0)
    score = Additive(4, 4, 5)
    projected, prepared = torch.randn(1, 1, 5), torch.randn(1, 1, 5)
    before = projected.clone(), prepared.clone()
    score.compare(projected, prepared)
    assert torch.equal(projected, before[0])
    assert torch.equal(prepared, before[1])


def test_a_score_of_a_wrong_shape_is_refused_when_it_is_made(registered):
    class Turned(EqualWidths):
        def forward(self, query, prepared):
            return super().forward(query, prepared).transpose(1, 2)

    registered("turned_of_tests", Turned)
    with pytest.raises(
        ModelError, match=r"score 'turned_of_tests': of 2 queries and 3 keys .* \(1, 3, 2\)\. Return .*\(1, 2, 3\)"
    ):
        make_score("turned_of_tests", **SIZES)


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_trying_a_score_keeps_to_its_limit_and_draws_nothing(limit):
    torch.manual_seed(0)
    expected, after = Location(4, limit), torch.rand(1)
    torch.manual_seed(0)
    score, now = make_score("location", **{**SIZES, "limit": limit}), torch.rand(1)
    assert torch.equal(score.state_dict()["positions.weight"], expected.positions.weight)
    assert now == after


@pytest.fixture
def registered():
    """Registers a score, which is forgotten after the test."""
    added = []

    def register(name, score):
        added.append(name)
        SCORES.register(name)(score)

    yield register
    for name in added:
        del SCORES._members[name]
