"""Random numbers without state: the published sequence, one key for each purpose, shares that are uniform."""

import numpy as np
import pytest

from regard.data.draws import Draws, row_keys, shares

# The first outputs of SplitMix64 for the seeds 0 and 1234567, as published with the generator.
PUBLISHED = {
    0: [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F],
    1234567: [6457827717110365317, 3203168211198807973, 9817491932198370423],
}


@pytest.mark.parametrize("seed", PUBLISHED)
def test_numbers_are_those_of_splitmix64(seed):
    expected = [(value >> 11) * 2.0**-53 for value in PUBLISHED[seed]]
    one_by_one = Draws(seed)
    assert [one_by_one.share() for _ in expected] == expected
    assert shares(np.full(3, seed, dtype=np.uint64), np.arange(3)).tolist() == expected


def test_choosing_takes_as_many_numbers_as_there_are_things():
    draws, plain = Draws(99), Draws(99)
    chosen = draws.chosen(1000, 0.3)
    assert chosen == [i for i in range(1000) if plain.share() < 0.3]
    assert 230 < len(chosen) < 370
    assert draws.share() == plain.share()
    assert Draws(5).chosen(20, 0.0) == []
    assert Draws(5).chosen(20, 1.0) == [*range(20)]
    assert Draws(5).chosen(0, 1.0) == []


def test_whole_numbers_are_uniform():
    draws = Draws(7)
    counts = np.bincount([draws.below(4) for _ in range(4000)], minlength=4)
    assert len(counts) == 4
    assert counts.min() > 900


def test_every_part_of_a_key_matters_and_so_does_its_place():
    rows, copies = np.array([5, 5, 6, 0]), np.array([0, 1, 0, 0])
    base = row_keys(3, 1, 2, rows, copies)
    others = [row_keys(*parts, rows, copies) for parts in [(4, 1, 2), (3, 2, 2), (3, 1, 3), (1, 3, 2), (-3, 1, 2)]]
    every = np.concatenate([base, *others])
    assert len(set(every.tolist())) == len(every)
    assert row_keys(3, 1, 2, rows[::-1], copies[::-1]).tolist() == base[::-1].tolist()
    assert row_keys(3, 1, 2, np.array([0]), np.array([5])) != row_keys(3, 1, 2, np.array([5]), np.array([0]))


def test_neighbouring_rows_are_not_alike():
    keys = row_keys(1, 0, 0, np.arange(20_000), np.zeros(20_000, dtype=np.int64))
    first, second = shares(keys, np.zeros(20_000)), shares(keys, np.ones(20_000))
    for values in (first, second):
        assert np.histogram(values, bins=20, range=(0, 1))[0].min() > 850
    for a, b in [(first[:-1], first[1:]), (first, second), (first[1:], second[:-1])]:
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.03


def test_keys_never_change():
    """Runs that are resumed with a later version go on as they began."""
    keys = row_keys(-1, 2, 3, np.array([4, 10**12]), np.array([0, 1]))
    assert keys.tolist() == [13140289530581434485, 16557909724594247214]
