"""Batches of a text in shards: exactly resumable from a run's two numbers, and shared by workers."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch

import regard
from regard.core.errors import ConfigError, DataError
from regard.data.batching import Part, Place
from regard.data.shards import ShardPlace
from regard.training import sharded_text
from regard.training.log import read_metrics
from regard.training.progress import Reporter
from regard.training.sharded_text import ShardedBatches, packed, unpacked

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "once", "i", "caught", "a", "fish", "alive"]


class Letters:
    """A tokenizer whose tokens are letters."""

    size = 300

    def encode_many(self, texts):
        return [[ord(letter) for letter in text] for text in texts]

    def forget_words(self):
        pass


class Text:
    def __init__(self, shards, rows=4, window=6):
        self.shards, self.rows, self.window, self.tokenizer = shards, rows, window, Letters()


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch):
    monkeypatch.setattr(sharded_text, "BUFFER_LINES", 9)


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    for number in range(3):
        lines = [" ".join(WORDS[(number + i * k) % len(WORDS)] for k in range(1, 6)) for i in range(20 + 7 * number)]
        (tmp_path / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return [str(tmp_path / f"{number}.txt") for number in range(3)]


def test_places_are_packed_into_two_numbers():
    for place in (ShardPlace(), ShardPlace(3), ShardPlace(1, 5, 70_000_000_000, 9, 2), ShardPlace(0, 0, 0, 0, 1)):
        assert unpacked(packed(place)) == place
    assert packed(ShardPlace(2)) == Place(2, 0)
    assert packed(ShardPlace(2, 0, 0, 0, 1)).position > 0


def test_a_stream_goes_on_from_every_place(shards):
    with ShardedBatches(Text(shards), 5, ShardPlace(), Part()) as stream:
        whole = list(islice(stream, 120))
    assert whole[-1].epoch >= 1
    for number in range(0, 110, 7):
        place = unpacked(whole[number].next)
        with ShardedBatches(Text(shards), 5, place, Part()) as stream:
            for expected in whole[number + 1 : number + 6]:
                drawn = next(stream)
                assert torch.equal(drawn.batch.target_out, expected.batch.target_out)
                assert torch.equal(drawn.batch.target_in, expected.batch.target_in)
                assert drawn.next == expected.next


def test_workers_share_the_rows_of_a_batch(shards):
    with ShardedBatches(Text(shards), 5, ShardPlace(), Part()) as stream:
        whole = list(islice(stream, 30))
    for rank in range(3):
        with ShardedBatches(Text(shards), 5, ShardPlace(), Part(rank, 3)) as stream:
            for expected in whole:
                assert torch.equal(next(stream).batch.target_out, expected.batch.target_out[rank::3])
    with pytest.raises(ConfigError, match="there are 5 workers"):
        ShardedBatches(Text(shards), 5, ShardPlace(), Part(0, 5))


def test_too_little_text_is_an_error_and_no_endless_search(shards):
    with (
        ShardedBatches(Text(shards, rows=1000), 5, ShardPlace(), Part()) as stream,
        pytest.raises(DataError, match="less"),
    ):
        next(stream)


def test_a_run_on_shards_is_resumed_exactly(shards, tmp_path, monkeypatch):
    """From the command's setting to a model; stopped in the middle, it ends in the same weights."""
    monkeypatch.setattr(sharded_text, "BUFFER_LINES", 30)
    listed = tmp_path / "shards.txt"
    listed.write_text("0.txt\n1.txt\n\n2.txt\n")
    (tmp_path / "valid.txt").write_text("one two three four five\n" * 5)
    settings = [
        "model.name=gpt", "model.width=16", "model.heads=2", "model.layers=1", "model.context=8", "tokenizer.kind=space",
        "tokenizer.min_count=1", "train.batch_tokens=64", "train.steps=14", "train.save_every=7", "train.log_every=1",
        "train.threads=1", "train.device=cpu", "train.lr=0.02", "train.warmup=2", f"data.valid_text={tmp_path / 'valid.txt'}",
    ]  # fmt: skip
    files = {"text": f"shards:{listed}", "settings": settings, "report": Reporter(quiet=True)}
    regard.train(out=tmp_path / "straight", **files)
    regard.train(out=tmp_path / "stopped", **files)
    for path in (tmp_path / "stopped" / "checkpoints" / "step-000000014").glob("*"):
        path.unlink()
    (tmp_path / "stopped" / "checkpoints" / "step-000000014").rmdir()
    state = (tmp_path / "stopped" / "run.json").read_text()
    (tmp_path / "stopped" / "run.json").write_text(state.replace('"finished"', '"interrupted"'))
    regard.resume(tmp_path / "stopped", report=Reporter(quiet=True))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "stopped")]
    assert weights[0] == weights[1]
    curve = [row["nll"] for row in read_metrics(tmp_path / "straight" / "metrics.jsonl") if "nll" in row]
    assert curve[-1] < curve[0] - 0.2
    for name in ("lstmlm", "word2vec"):
        with pytest.raises(ConfigError, match="shards"):
            regard.train(
                out=tmp_path / name, text=files["text"], settings=[f"model.name={name}"], report=Reporter(quiet=True)
            )
