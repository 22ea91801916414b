"""What a launcher says about this process."""

from __future__ import annotations

import pytest

from regard.core.errors import ConfigError
from regard.core.launcher import Launched, launched


def test_a_process_by_itself():
    assert launched({}) == Launched()
    assert launched({"RANK": "0", "WORLD_SIZE": "1"}) == Launched()
    assert launched({"WORLD_SIZE": "4"}) == Launched()  # somebody else's variable


def test_one_of_several():
    given = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert launched(given) == Launched(5, 8, 1, 4)
    assert launched({**given, "TORCHELASTIC_RESTART_COUNT": "2"}) == Launched(5, 8, 1, 4, 2, True)
    assert launched({"TORCHELASTIC_RUN_ID": "none"}).again


@pytest.mark.parametrize("wrong", [{"RANK": "8"}, {"RANK": "-1"}, {"WORLD_SIZE": "many"}, {"RANK": "1" * 12}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ConfigError, match="Leave it to torchrun"):
        launched({"RANK": "1", "WORLD_SIZE": "8", **wrong})
