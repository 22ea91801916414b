"""Converted models are kept: once made they are read, damaged ones are made again, and no place fills up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from regard.engines import model_cache
from regard.engines.model_cache import cached, key_of

FILES = {"model.bin": b"weights" * 100, "config.json": b"{}"}


class Maker:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, bytes]:
        self.times += 1
        return FILES


def test_what_is_kept_is_not_made_again(tmp_path: Path) -> None:
    make = Maker()
    for _ in range(3):
        assert cached("key", [(tmp_path / "a", 3), (tmp_path / "b", 3)], make) == FILES
    assert make.times == 1
    assert not (tmp_path / "b").exists()
    assert cached("key", [(tmp_path / "b", 3), (tmp_path / "a", 3)], make) == FILES
    assert make.times == 1


@pytest.mark.parametrize("damage", ["flip", "truncate", "missing", "manifest", "link", "escape"])
def test_damage_is_seen_and_mended(tmp_path: Path, damage: str) -> None:
    make, place = Maker(), [(tmp_path / "a", 3)]
    cached("key", place, make)
    entry = tmp_path / "a" / "key"
    model = entry / "model.bin"
    if damage == "flip":
        content = bytearray(model.read_bytes())
        content[7] ^= 1
        model.write_bytes(content)
    elif damage == "truncate":
        model.write_bytes(b"")
    elif damage == "missing":
        model.unlink()
    elif damage == "manifest":
        (entry / "manifest.json").write_text("[]")
    elif damage == "link":
        model.rename(tmp_path / "elsewhere")
        model.symlink_to(tmp_path / "elsewhere")
    else:
        manifest = entry / "manifest.json"
        manifest.write_text(manifest.read_text().replace("model.bin", "../key/model.bin"))
    assert cached("key", place, make) == FILES
    assert make.times == 2
    assert cached("key", place, make) == FILES
    assert make.times == 2


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(6):
        cached(f"key{number}", [(tmp_path, 3)], Maker())
        os.utime(tmp_path / f"key{number}", (number, number))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["key3", "key4", "key5"]
    make = Maker()
    assert cached("key3", [(tmp_path, 3)], make) == FILES  # used, so the newest
    cached("key6", [(tmp_path, 3)], make)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["key3", "key5", "key6"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".key.partial-4194305").mkdir()
    (tmp_path / f".other.partial-{os.getppid()}").mkdir()
    cached("key", [(tmp_path, 3)], Maker())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [f".other.partial-{os.getppid()}", "key"]


def test_the_next_place_is_taken_where_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    make = Maker()
    assert cached("key", [(tmp_path / "file" / "a", 3), (tmp_path / "b", 3)], make) == FILES
    assert (tmp_path / "b" / "key").is_dir()
    assert cached("key", [(tmp_path / "file" / "a", 3)], make) == FILES


def test_a_full_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_cache, "write_folder", full)
    assert cached("key", [(tmp_path / "a", 3)], Maker()) == FILES


def test_keys_are_of_content() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}) != key_of({"a": 1, "b": 3})
