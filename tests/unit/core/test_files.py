"""Files that survive a crash: old or new, never half; and manifests that see every change."""

import errno
import json
import os

import pytest
import torch

from regard.core import files
from regard.core.errors import CheckpointError
from regard.core.files import (
    MANIFEST,
    check_manifest,
    load_tensors,
    read_json,
    remove_partials,
    save_tensors,
    write_bytes,
    write_folder,
    write_json,
    write_manifest,
)


def fail_once(monkeypatch, module, name: str, at: int = 1, code: int = errno.ENOSPC) -> None:
    """The n-th call of a function raises, the others go through."""
    original, count = getattr(module, name), 0

    def function(*args, **kwargs):
        nonlocal count
        count += 1
        if count == at:
            raise OSError(code, os.strerror(code))
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, function)


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path, monkeypatch, name):
    write_bytes(tmp_path / "a", b"old")
    fail_once(monkeypatch, os, name)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "a", b"new content")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]
    write_bytes(tmp_path / "a", b"new content")
    assert (tmp_path / "a").read_bytes() == b"new content"


def test_a_write_is_synced_before_it_takes_the_place_of_the_old(tmp_path, monkeypatch):
    events = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _o=original, _n=name: (events.append(_n), _o(*a))[1])
    write_bytes(tmp_path / "a", b"content")
    assert events == ["fsync", "replace", "fsync"]  # the file, the rename, the folder


def test_a_disk_that_is_full_while_writing_is_seen(tmp_path, monkeypatch):
    class FullDisk:
        def __init__(self, path, mode):
            self.file = open(path, mode)  # noqa: SIM115

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, content):
            self.file.write(content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

    save_tensors(tmp_path / "w.safetensors", {"w": torch.ones(100)})
    monkeypatch.setattr(files, "open", FullDisk, raising=False)
    with pytest.raises(OSError, match="No space left") as caught:
        save_tensors(tmp_path / "w.safetensors", {"w": torch.zeros(100)})
    assert caught.value.filename == str(tmp_path / "w.safetensors")
    monkeypatch.undo()
    assert load_tensors(tmp_path / "w.safetensors")["w"].tolist() == [1.0] * 100
    assert os.listdir(tmp_path) == ["w.safetensors"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    def broken(place):
        write_bytes(place / "first", b"1")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "f", broken)
    assert os.listdir(tmp_path) == []
    write_folder(tmp_path / "f", lambda place: write_bytes(place / "first", b"1"))
    check_manifest(tmp_path / "f", ["first"])
    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "f", broken)
    assert (tmp_path / "f" / "first").read_bytes() == b"1"
    write_folder(tmp_path / "f", lambda place: write_bytes(place / "second", b"2"))
    assert sorted(os.listdir(tmp_path / "f")) == [MANIFEST, "second"]
    assert os.listdir(tmp_path) == ["f"]


def test_a_replacement_that_fails_between_its_two_renames_puts_the_old_folder_back(tmp_path, monkeypatch):
    write_folder(tmp_path / "f", lambda place: write_bytes(place / "a", b"old"))
    fail_once(monkeypatch, os, "rename", at=2)
    with pytest.raises(OSError, match="No space"):
        write_folder(tmp_path / "f", lambda place: write_bytes(place / "a", b"new"))
    assert (tmp_path / "f" / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_what_a_killed_process_left_is_tidied_up(tmp_path):
    (tmp_path / ".a.json.partial-12").write_text("{")
    (tmp_path / ".step-1.partial-12").mkdir()
    (tmp_path / ".step-1.partial-12" / "x").write_text("x")
    for name in (".best.replaced-12", ".last.replaced-12", "last", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "from").write_text(name)
    (tmp_path / ".lock").write_text("")
    remove_partials(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".lock", "best", "last", "other"]
    assert (tmp_path / "best" / "from").read_text() == ".best.replaced-12"  # killed between the renames: the old one
    assert (tmp_path / "last" / "from").read_text() == "last"  # killed after: the new one


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(200)))
    (tmp_path / "b").write_bytes(b"text")
    write_manifest(tmp_path)
    check_manifest(tmp_path, ["a", "b"])
    return tmp_path


@pytest.mark.parametrize(("place", "bit"), [(0, 0), (100, 3), (199, 7)])
def test_a_flipped_bit_is_seen(folder, place, bit):
    content = bytearray((folder / "a").read_bytes())
    content[place] ^= 1 << bit
    (folder / "a").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"/a: the file is corrupted: its SHA-256"):
        check_manifest(folder)


def test_truncation_loss_and_links_are_seen(folder):
    (folder / "a").write_bytes(bytes(range(199)))
    with pytest.raises(CheckpointError, match=r"/a: the file is truncated or changed \(199 bytes, not 200\)"):
        check_manifest(folder)
    (folder / "a").unlink()
    with pytest.raises(CheckpointError, match=r"/a: the file is missing"):
        check_manifest(folder)
    (folder / "elsewhere").write_bytes(bytes(range(200)))
    (folder / "a").symlink_to(folder / "elsewhere")
    with pytest.raises(CheckpointError, match=r"/a: the file is missing"):  # the same bytes, but not here
        check_manifest(folder)
    (folder / "a").unlink()
    (folder / "a").mkdir()
    with pytest.raises(CheckpointError, match=r"/a: the file is missing"):
        check_manifest(folder)


def test_a_needed_file_must_be_listed(folder):
    (folder / "c").write_bytes(b"unlisted")
    check_manifest(folder)
    with pytest.raises(CheckpointError, match="/c: the manifest does not list it"):
        check_manifest(folder, ["a", "c"])


def test_an_unreadable_file_is_an_error_of_ours(folder, monkeypatch):
    fail_once(monkeypatch, files, "sha256_of", code=errno.EIO)
    with pytest.raises(CheckpointError, match=r"/a: the file cannot be read \(Input/output error\)"):
        check_manifest(folder)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "files": []}', '{"format": 2, "files": {}}',
     '{"files": {}}', '{"format": 1, "files": {"a": 3}}', '{"format": 1, "files": {"a": {}}}', "[" * 100_000,
     "1" * 5000, "\x00", '{"format": 1, "files": {"../a": {"bytes": 0, "sha256": ""}}}'],
)  # fmt: skip
def test_what_is_not_a_manifest_is_refused(folder, content):
    (folder / MANIFEST).write_text(content)
    with pytest.raises(CheckpointError):
        check_manifest(folder)


def test_a_manifest_does_not_reach_outside(folder):
    inner = folder / "inner"
    inner.mkdir()
    write_manifest(inner)
    listed = json.loads((folder / MANIFEST).read_text())["files"]["a"]
    for name in ("../a", str(folder / "a")):
        write_json(inner / MANIFEST, {"format": 1, "files": {name: listed}})
        with pytest.raises(CheckpointError, match="does not list"):
            check_manifest(inner)


def test_damaged_json_and_tensors_are_errors_of_ours(tmp_path):
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    for name in ("missing.json", "bytes.json"):
        with pytest.raises(CheckpointError, match=name):
            read_json(tmp_path / name)
    save_tensors(tmp_path / "w", {"w": torch.arange(6).reshape(2, 3).t()})
    assert load_tensors(tmp_path / "w")["w"].tolist() == [[0, 3], [1, 4], [2, 5]]
    whole = (tmp_path / "w").read_bytes()
    for damaged in (b"", whole[:5], whole[:-1], whole + b"x", b"\xff" * 8 + whole[8:], b"\x80\x02}q\x00."):
        (tmp_path / "w").write_bytes(damaged)
        with pytest.raises(CheckpointError):
            load_tensors(tmp_path / "w")
    for name in ("missing", "."):
        with pytest.raises(CheckpointError):
            load_tensors(tmp_path / name)
