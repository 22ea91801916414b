"""How the workers of one attempt find each other, whatever an earlier attempt has left behind."""

from __future__ import annotations

import threading

import pytest
import torch.distributed as dist

from regard.core.errors import TrainingError
from regard.training.distributed.joining import common_name


def named(store, size: int) -> list[str]:
    names = [""] * size

    def join(rank: int) -> None:
        names[rank] = common_name(store, rank, size, 20)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return names


def test_all_get_one_name_and_every_attempt_another():
    store = dist.HashStore()
    found = []
    for size in (3, 3, 2, 4):
        names = named(store, size)
        assert len(set(names)) == 1
        found.append(names[0])
    assert len({*found, ""}) == 5


def test_a_hello_of_a_worker_that_is_gone_is_not_taken_for_the_new_one():
    store = dist.HashStore()
    with pytest.raises(TrainingError, match="worker 1: not all of 2 workers were there"):
        common_name(store, 1, 2, 0.05)  # it has said hello, and was killed
    with pytest.raises(TrainingError, match="worker 0: not all of 2 workers"):
        common_name(store, 0, 2, 0.3)
    names = named(store, 2)
    assert names[0] == names[1]
