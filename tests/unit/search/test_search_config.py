"""Settings of search: bounds and messages."""

from __future__ import annotations

from typing import Any

import pytest

from regard.core.config import build, to_plain
from regard.core.errors import ConfigError
from regard.search import SearchConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("method", "depth"), ("length_norm", "mean"), ("stop", "never"), ("beam", 0), ("beam", 65), ("nbest", 0),
        ("nbest", 6), ("alpha", -0.1), ("temperature", -1.0), ("coverage", -1.0), ("max_ratio", -1.0),
        ("max_extra", -1), ("max_length", 0), ("min_length", -1), ("min_length", 513), ("no_repeat_ngram", -1),
        ("max_repeat", -1), ("temperature", 0.0), ("top_k", -1), ("top_p", 0.0), ("top_p", 1.1), ("min_p", -0.1),
        ("min_p", 1.1), ("seed", -1), ("lengths", 0), ("lengths", 65),
    ],
)  # fmt: skip
def test_out_of_bounds_is_an_error_that_names_setting_and_value(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        build(SearchConfig, {name: value}, "search")
    assert str(error.value).startswith(f"setting search.{name}: {value!r} is ")


def test_direct_construction_is_checked_too() -> None:
    for name, value in (("alpha", float("nan")), ("temperature", float("inf"))):
        with pytest.raises(ConfigError, match=f"setting search.{name}"):
            SearchConfig(**{name: value})


def test_samples_may_outnumber_the_beam() -> None:
    assert SearchConfig(method="sample", nbest=64).hypotheses == 64
    with pytest.raises(ConfigError, match="65"):
        SearchConfig(method="sample", nbest=65)


def test_round_trip() -> None:
    config = SearchConfig(beam=3, nbest=2, coverage=0.25, stop="exact")
    assert build(SearchConfig, to_plain(config), "search") == config
