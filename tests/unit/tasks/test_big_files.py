"""A large file in parts: the result is that of one pass, whoever made which part and however often it was stopped."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path

import pytest

from regard.core.errors import DataError
from regard.core.launcher import Launched
from regard.tasks import big_files
from regard.tasks.big_files import Made, joined_lines, parts_folder, work_through

LINES = [f"line {i} é" if i % 7 else "" for i in range(103)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(big_files, "PART_LINES", 10)
    monkeypatch.setattr(big_files, "GLANCE_SECONDS", 0.005)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")  # the last line has no end
    return path


class Worker:
    """Writes lines in capitals with their numbers, and dies at the part that it is told to."""

    def __init__(self, dies_at: int = -1):
        self.dies_at, self.seen, self.called = dies_at, [], 0

    def __call__(self):
        self.called += 1
        return self.work

    def work(self, first: int, lines: list[str]) -> Made:
        assert len(lines) <= 10
        if first == self.dies_at:
            raise KeyboardInterrupt
        self.seen.append(first)
        rows = [f"{first + i} {line.upper()}" for i, line in enumerate(lines)]
        return Made(joined_lines(rows), {"empty": lines.count("")})


EXPECTED = "".join(f"{i} {line.upper()}\n" for i, line in enumerate(LINES)).encode()


def test_one_process_makes_what_one_pass_would(source, tmp_path):
    out, heard = tmp_path / "out.txt", []
    counts = work_through(source, out, {}, Launched(), Worker(), heard.append)
    assert out.read_bytes() == EXPECTED
    assert counts == {"lines": 103, "empty": LINES.count("")}
    assert heard == [*range(10, 101, 10), 103]
    assert not parts_folder(out).exists()
    packed = tmp_path / "source.txt.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    work_through(packed, tmp_path / "other.txt", {}, Launched(), Worker())
    assert (tmp_path / "other.txt").read_bytes() == EXPECTED


def test_killed_at_every_part_it_goes_on_and_makes_nothing_twice(source, tmp_path):
    out, made = tmp_path / "out.txt", []
    for death in range(0, 110, 10):
        worker = Worker(death)
        with pytest.raises(KeyboardInterrupt):
            work_through(source, out, {}, Launched(), worker)
        assert not out.exists()
        made += worker.seen
    last = Worker()
    counts = work_through(source, out, {}, Launched(), last)
    assert out.read_bytes() == EXPECTED
    assert counts["lines"] == 103
    assert sorted(made + last.seen) == list(range(0, 110, 10))


def test_killed_while_the_parts_are_put_together(source, tmp_path, monkeypatch):
    out = tmp_path / "out.txt"

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(big_files, "_put_together", die)
        with pytest.raises(KeyboardInterrupt):
            work_through(source, out, {}, Launched(), Worker())
    again = Worker()
    work_through(source, out, {}, Launched(), again)
    assert out.read_bytes() == EXPECTED
    assert again.called == 0, "nothing was left to translate, so no model was needed"


@pytest.mark.parametrize("count", [2, 3, 16])
def test_several_workers_share_the_parts(source, tmp_path, monkeypatch, count):
    """After one worker was killed, on another number of them."""
    monkeypatch.setattr(big_files, "BEGIN_SECONDS", 2)  # who comes when all is done and put away waits so long
    out = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        work_through(source, out, {}, Launched(), Worker(20))
    workers = [Worker() for _ in range(count)]
    threads = [
        threading.Thread(target=work_through, args=(source, out, {}, Launched(rank, count), worker))
        for rank, worker in enumerate(workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert out.read_bytes() == EXPECTED
    assert sorted(first for worker in workers for first in worker.seen) == list(range(20, 110, 10))
    for rank, worker in enumerate(workers):
        assert all(first // 10 % count == rank for first in worker.seen)


def test_parts_of_another_job_are_refused(source, tmp_path):
    out = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        work_through(source, out, {"beam": 4}, Launched(), Worker(30))
    with pytest.raises(DataError, match=r"parts of another translation \(beam is not the same\).*rm -r"):
        work_through(source, out, {"beam": 5}, Launched(), Worker())
    source.write_text("another text\n")
    with pytest.raises(DataError, match="source is not the same"):
        work_through(source, out, {"beam": 4}, Launched(), Worker())


def test_a_worker_does_not_wait_for_ever(source, tmp_path, monkeypatch):
    monkeypatch.setattr(big_files, "BEGIN_SECONDS", 0.05)
    with pytest.raises(DataError, match="the first worker has not begun"):
        work_through(source, tmp_path / "out.txt", {}, Launched(1, 2), Worker())
    (tmp_path / "out.txt").write_text("done")
    assert work_through(source, tmp_path / "out.txt", {}, Launched(1, 2), Worker()) == {}


def test_the_verb_writes_what_standard_output_would_get(tiny_run, text_files, tmp_path, command, monkeypatch):
    text = tmp_path / "some.en"
    text.write_text("".join(line + "\n" for line in text_files.sources[:25]), encoding="utf-8")
    for options in ([], ["--nbest", "2"], ["--engine", "torch", "--sample", "--seed", "3"]):
        plain = command("translate", "--model", tiny_run, "--device", "cpu", *options, stdin=text.read_bytes())
        out = tmp_path / "out.de"
        files = ["--input", text, "--output", out]
        outcome = command("translate", "--model", tiny_run, "--device", "cpu", *options, *files)
        assert outcome.code == 0, outcome.err
        assert out.read_text(encoding="utf-8") == plain.out
        assert not parts_folder(out).exists()
    assert "it goes with --output" in command("translate", "--model", tiny_run, "--input", text).err
    assert "text is given, too" in command("translate", "Hello", "--input", text, "--output", tmp_path / "x").err
    assert "one of the files to read" in command("translate", "--input", text, "--output", text).err
