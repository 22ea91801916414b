"""Learning-rate schedules against their formulas."""

import math

import pytest

from regard.training.config import TrainConfig
from regard.training.schedule import rate


def config(schedule: str, **changes) -> TrainConfig:
    return TrainConfig(**{"schedule": schedule, "steps": 100, "warmup": 10, **changes})


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_warm_up_is_linear_and_meets_the_schedule_at_its_peak(schedule):
    settings = config(schedule)
    assert [rate(settings, step) for step in range(1, 11)] == pytest.approx([step / 10 for step in range(1, 11)])
    assert 0.9 < rate(settings, 11) <= 1


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_without_warm_up_the_first_step_is_near_the_peak(schedule):
    assert rate(config(schedule, warmup=0), 1) == pytest.approx(1, abs=0.011)


@pytest.mark.parametrize(("width", "warmup"), [(512, 4000), (128, 100)])
def test_inverse_sqrt_is_the_papers_schedule(width, warmup):
    settings = config("inverse_sqrt", warmup=warmup, lr=(width * warmup) ** -0.5)
    for step in (1, 7, warmup - 1, warmup, warmup + 1, 5 * warmup):
        noam = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert settings.lr * rate(settings, step) == pytest.approx(noam, rel=1e-12)


def test_linear_ends_where_it_is_told():
    assert rate(config("linear"), 55) == pytest.approx(0.5)
    assert rate(config("linear"), 100) == 0
    assert rate(config("linear", final_lr=0.2), 55) == pytest.approx(0.6)
    assert rate(config("linear", final_lr=0.2), 100) == pytest.approx(0.2)


def test_cosine_ends_where_it_is_told():
    assert rate(config("cosine"), 55) == pytest.approx(0.5)
    assert rate(config("cosine"), 40) == pytest.approx((1 + math.cos(math.pi / 3)) / 2)
    assert rate(config("cosine", final_lr=0.1), 100) == pytest.approx(0.1)


def test_constant_stays():
    assert [rate(config("constant"), step) for step in (11, 50, 100, 1000)] == [1.0] * 4


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_step_beyond_the_last_does_not_rise_again(schedule):
    assert rate(config(schedule, final_lr=0.1), 500) == pytest.approx(0.1)
    assert rate(config(schedule, steps=5), 5) == 0.5  # still warming up
