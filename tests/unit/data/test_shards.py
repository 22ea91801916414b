"""Shards as one shuffled stream: every line once an epoch, and a stream that begins anywhere is the rest of the whole one."""

from __future__ import annotations

import gzip
import sys
from itertools import islice
from pathlib import Path

import pytest

from regard.core.errors import ConfigError, DataError
from regard.data.batching import Part
from regard.data.shards import ShardPlace, ShardStream

COUNTS = (13, 1, 40, 7)


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    paths = []
    for number, count in enumerate(COUNTS):
        content = "".join(f"{number}:{i}\n" for i in range(count)).encode()
        path = tmp_path / (f"shard{number}.txt.gz" if number == 2 else f"shard{number}.txt")
        path.write_bytes(gzip.compress(content) if number == 2 else content)
        paths.append(str(path))
    return paths


ALL_LINES = sorted(f"{number}:{i}" for number, count in enumerate(COUNTS) for i in range(count))


@pytest.mark.parametrize("buffer", [1, 5, 16, 61, 1000])
def test_every_line_comes_once_in_an_epoch(shards, buffer):
    lines = list(islice(ShardStream(shards, seed=3, buffer=buffer), 3 * 61))
    epochs = [lines[61 * i : 61 * (i + 1)] for i in range(3)]
    assert all(sorted(epoch) == ALL_LINES for epoch in epochs)
    assert epochs[0] != epochs[1]
    again = list(islice(ShardStream(shards, seed=3, buffer=buffer), 3 * 61))
    assert again == lines
    assert list(islice(ShardStream(shards, seed=4, buffer=buffer), 3 * 61)) != lines


def test_without_a_buffer_shards_stay_in_their_order_inside(shards):
    lines = list(islice(ShardStream(shards, seed=1, buffer=1), 61))
    for number, count in enumerate(COUNTS):
        assert [line for line in lines if line.startswith(f"{number}:")] == [f"{number}:{i}" for i in range(count)]


@pytest.mark.parametrize("buffer", [1, 7, 30, 100])
def test_a_stream_goes_on_exactly_from_every_place(shards, buffer):
    stream = ShardStream(shards, seed=9, buffer=buffer)
    whole = list(islice(ShardStream(shards, seed=9, buffer=buffer), 200))
    for number in range(1, 130):
        assert next(stream) == whole[number - 1]
        assert all(type(value) is int for value in stream.place)
        rest = ShardStream(shards, seed=9, buffer=buffer, place=ShardPlace(*stream.place))
        assert list(islice(rest, 9)) == whole[number : number + 9], stream.place


@pytest.mark.parametrize("size", [2, 3])
def test_workers_share_one_stream(shards, size):
    """Within a block: the first line of the next block is the first worker's again."""
    parts = [ShardStream(shards, seed=2, buffer=12, part=Part(rank, size)) for rank in range(size)]
    whole = list(islice(ShardStream(shards, seed=2, buffer=12), 61))
    expected = [
        [line for begin in range(0, 61, 12) for line in whole[begin : begin + 12][rank::size]] for rank in range(size)
    ]
    for part, lines in zip(parts, expected, strict=True):
        assert list(islice(part, len(lines))) == lines


def test_no_more_than_a_block_and_a_shard_is_read_again(shards):
    opened: list[str] = []

    def opening(address: str):
        from regard.data.shards import open_shard

        opened.append(address)
        return open_shard(address)

    first = ShardStream(shards, seed=5, buffer=4)
    for _ in range(58):
        next(first)
    again = ShardStream(shards, seed=5, buffer=4, place=first.place, opening=opening)
    next(again)
    assert len(opened) <= 2


def test_addresses_of_fsspec(shards):
    fsspec = pytest.importorskip("fsspec")
    remote = []
    for number, path in enumerate(shards):
        address = f"memory://shards/{Path(path).name}"
        with fsspec.open(address, "wb") as file:
            file.write(Path(path).read_bytes())
        remote.append(address)
        assert number < len(COUNTS)
    assert list(islice(ShardStream(remote, seed=3, buffer=8), 100)) == list(
        islice(ShardStream(shards, seed=3, buffer=8), 100)
    )
    with pytest.raises(DataError, match="it cannot be read"):
        next(ShardStream(["memory://shards/none.txt"], seed=1))


def test_without_fsspec_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DataError, match=r"fsspec, which could read it, is not installed.*Install fsspec"):
        next(ShardStream(["s3://bucket/shard.txt"], seed=1))


def test_what_makes_no_sense_is_refused(shards):
    for wrong in ([], [shards[0]] * 2):
        with pytest.raises(ConfigError, match="Give each once"):
            ShardStream(wrong, seed=1)
    with pytest.raises(ConfigError, match="buffer"):
        ShardStream(shards, seed=1, buffer=0)
    with pytest.raises(DataError, match="no place"):
        ShardStream(shards, seed=1, place=ShardPlace(0, 4))
