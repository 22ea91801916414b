"""Shards of a checkpoint: cut for any number of workers, put together again."""

from __future__ import annotations

import pytest
import torch

from regard.core.errors import CheckpointError
from regard.core.files import save_tensors
from regard.training.distributed.shard_files import load_shards, save_shard, shard_name, shard_names

WHOLE = {"a/exp_avg": torch.arange(21.0).reshape(7, 3), "b/exp_avg": torch.arange(2.0), "a/step": torch.tensor(5.0)}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 16])
def test_what_was_cut_is_whole_again(tmp_path, size):
    for rank in range(size):
        own = {name: t if t.dim() == 0 else torch.tensor_split(t, size)[rank] for name, t in WHOLE.items()}
        save_shard(tmp_path, rank, size, {"optimizer": own, "average": None})
    names = shard_names(tmp_path)
    assert names == [shard_name(rank, size) for rank in range(size)]
    found = load_shards(tmp_path, names)
    assert found.keys() == {"optimizer"}
    assert all(torch.equal(found["optimizer"][name], tensor) for name, tensor in WHOLE.items())


def test_a_folder_without_shards_has_none_and_one_that_lacks_some_names_all(tmp_path):
    assert shard_names(tmp_path) == []
    save_shard(tmp_path, 1, 3, {"optimizer": WHOLE})
    assert len(shard_names(tmp_path)) == 3
    with pytest.raises(CheckpointError, match="missing"):
        load_shards(tmp_path, shard_names(tmp_path))


def test_shards_that_do_not_belong_together_are_refused(tmp_path):
    save_shard(tmp_path, 0, 2, {"optimizer": {"a": torch.zeros(2, 3)}})
    save_shard(tmp_path, 1, 2, {"optimizer": {"a": torch.zeros(2, 4)}})
    with pytest.raises(CheckpointError, match="do not belong together"):
        load_shards(tmp_path, shard_names(tmp_path))
    save_tensors(tmp_path / shard_name(1, 2), {"nameless": torch.zeros(2)})
    with pytest.raises(CheckpointError, match="do not belong together"):
        load_shards(tmp_path, shard_names(tmp_path))
