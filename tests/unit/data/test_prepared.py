"""The shelf: made once, whole or not at all, whatever happens to the process that makes it."""

import errno
import multiprocessing
import os
import signal
import time

import pytest

from regard.core.errors import ConfigError, DataError
from regard.data.prepared import Shelf, cache_folder

fork = multiprocessing.get_context("fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # of Python 3.12 on


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "shelf", "the text")


def test_it_is_made_once_and_found_again(shelf):
    calls = []

    def fill(folder):
        calls.append(folder)
        (folder / "thing").write_text("made")

    place = shelf.made("kind", "detail", fill)
    assert (place / "thing").read_text() == "made"
    assert shelf.made("kind", "detail", fill) == place
    assert len(calls) == 1


def test_its_name_follows_everything_it_is_made_of(shelf):
    others = [
        shelf.place("kind", "other"),
        shelf.place("other", "detail"),
        Shelf(shelf.folder, "text").place("kind", "detail"),
    ]
    assert len({shelf.place("kind", "detail"), *others}) == 4


def _slowly(shelf, tally, ready):
    def fill(folder):
        with open(tally, "a") as file:
            file.write("x")
        (folder / "thing").write_text("half")
        ready.set()
        time.sleep(0.3)
        (folder / "thing").write_text("whole")

    place = shelf.made("kind", "", fill)
    os._exit(0 if (place / "thing").read_text() == "whole" else 1)


def test_processes_at_once_make_one(shelf, tmp_path):
    ready = fork.Event()
    processes = [fork.Process(target=_slowly, args=(shelf, tmp_path / "tally", ready)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0] * 4
    assert (tmp_path / "tally").read_text() == "x"


def test_killed_half_way_leaves_nothing_under_the_final_name(shelf, tmp_path):
    ready = fork.Event()
    process = fork.Process(target=_slowly, args=(shelf, tmp_path / "tally", ready))
    process.start()
    assert ready.wait(20)
    os.kill(process.pid, signal.SIGKILL)
    process.join(20)
    assert not shelf.place("kind", "").exists()
    assert list(shelf.folder.glob(".*.partial-*"))
    place = shelf.made("kind", "", lambda folder: (folder / "thing").write_text("later"))
    assert (place / "thing").read_text() == "later"
    assert not list(shelf.folder.glob(".*.partial-*"))


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_thing_is_made_again_and_said(shelf, damage):
    place = shelf.made("kind", "", lambda folder: (folder / "thing").write_bytes(b"0123456789"))
    if damage == "flip":
        (place / "thing").write_bytes(b"0123x56789")
    elif damage == "cut":
        (place / "thing").write_bytes(b"01234")
    else:
        (place / "thing").unlink()
    said = []
    again = shelf.made("kind", "", lambda folder: (folder / "thing").write_bytes(b"new"), said.append)
    assert (again, (again / "thing").read_bytes()) == (place, b"new")
    assert "damaged" in said[0]


def test_a_full_disk_is_one_sentence_and_leaves_nothing(shelf):
    def fill(folder):
        (folder / "thing").write_text("some")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "thing"))

    with pytest.raises(DataError, match=r"preparing the text failed \(No space left on device\).*data\.store"):
        shelf.made("kind", "", fill)
    assert [path.name for path in shelf.folder.iterdir() if path.suffix != ".lock"] == []


def test_a_full_disk_as_numpy_tells_it(shelf):
    def fill(folder):
        raise OSError("100000 requested and 8176 written")  # what np.save says: no number, no file

    with pytest.raises(DataError, match=r"preparing the text failed \(100000 requested.*data\.store"):
        shelf.made("kind", "", fill)


def test_what_is_made_is_found_where_nothing_can_be_written(shelf, monkeypatch):
    place = shelf.made("kind", "", lambda folder: (folder / "thing").write_text("made"))

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("regard.data.prepared.open", read_only, raising=False)
    monkeypatch.setattr("regard.data.prepared.write_folder", read_only)
    assert shelf.made("kind", "", lambda _: None) == place
    with pytest.raises(DataError, match="Read-only file system"):
        shelf.made("kind", "other", lambda _: None)


def test_without_locks_it_is_made_and_nobody_elses_work_removed(shelf, monkeypatch):
    import fcntl

    def none(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    others = shelf.folder / f".{shelf.place('kind', '').name}.partial-999999"
    others.mkdir(parents=True)
    place = shelf.made("kind", "", lambda folder: (folder / "thing").write_text("made"))
    assert (place / "thing").read_text() == "made"
    assert others.is_dir()


def test_what_was_being_replaced_is_removed_too(shelf):
    old = shelf.folder / f".{shelf.place('kind', '').name}.replaced-999999"
    old.mkdir(parents=True)
    shelf.made("kind", "", lambda folder: (folder / "thing").write_text("made"))
    assert not old.exists()


def test_a_user_without_a_home_is_told(monkeypatch, tmp_path):
    def nobody(path):
        raise RuntimeError("Could not determine home directory.")

    for name in ("REGARD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.expanduser", nobody)
    with pytest.raises(ConfigError, match=r"home folder .* is not known.*Set HOME, data\.store or \$REGARD_CACHE"):
        cache_folder()
    with pytest.raises(ConfigError, match=r"data\.store: 'a\\x00b' is no path"):
        Shelf.for_text("a\0b", "key")


def test_other_errors_pass_and_leave_nothing(shelf):
    def fill(folder):
        raise DataError("here", "it is bad", "Mend it")

    with pytest.raises(DataError, match="it is bad"):
        shelf.made("kind", "", fill)
    assert not shelf.place("kind", "").exists()


def test_the_cache_folder_is_the_users_choice(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    assert Shelf.for_text("", "key").folder == tmp_path / "prepared"
    assert Shelf.for_text(str(tmp_path / "mine"), "key").folder == tmp_path / "mine"
    monkeypatch.delenv("REGARD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "regard"
