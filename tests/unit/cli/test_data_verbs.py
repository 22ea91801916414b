"""`regard data check`, `stats`, `clean` and `findings` as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
import regard.cli.check as check_module
from regard.data.checks.clean import FILTERS
from regard.data.checks.findings import FINDINGS
from regard.data.checks.mend import MENDS

Command = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path, text_files: Any) -> tuple[Path, Path]:
    """Two small aligned files of one's own."""
    src, tgt = tmp_path / "a.en", tmp_path / "a.de"
    src.write_bytes(text_files.src.read_bytes())
    tgt.write_bytes(text_files.tgt.read_bytes())
    return src, tgt


def break_target(tgt: Path) -> None:
    lines = tgt.read_bytes().split(b"\n")
    lines[20] = b"Das ist ein \xff Fehler."
    tgt.write_bytes(b"\n".join(lines))


# check ----------------------------------------------------------------------------------------------------------------


def test_a_whole_corpus_is_fine(command: Command, files: tuple[Path, Path]) -> None:
    done = command("data", "check", *files)
    assert done.code == 0
    assert done.lines[-1] == "no damage found"
    assert "\x1b" not in done.out
    assert all(len(line) <= 80 and line == line.rstrip() for line in done.lines)
    assert done.err == ""


def test_damage_is_exit_code_1_and_can_be_allowed(command: Command, files: tuple[Path, Path]) -> None:
    break_target(files[1])
    done = command("data", "check", *files)
    assert done.code == 1
    assert done.lines[-1] == "damaged: not-utf8"
    assert "21: " in done.out
    assert "ein ⟨FF⟩ Fehler" in done.out
    assert done.err == ""
    allowed = command("data", "check", *files, "--allow", "not-utf8")
    assert allowed.code == 0
    assert allowed.lines[-1] == "no other damage found (allowed: not-utf8)"


def test_an_unknown_name_is_refused_with_the_nearest(command: Command, files: tuple[Path, Path]) -> None:
    done = command("data", "check", *files, "--allow", "not-utf")
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("Error: --allow not-utf: there is no finding of this name. Did you mean not-utf8?")
    assert len(done.err.splitlines()) == 1


def test_json_on_standard_output_is_all_there_is(command: Command, files: tuple[Path, Path]) -> None:
    break_target(files[1])
    done = command("data", "check", *files, "--json", "-")
    assert done.code == 1
    report = json.loads(done.out)
    assert report["damaged"] is True
    assert report["findings"][0]["name"] == "not-utf8"
    assert report["findings"][0]["examples"][0]["target"] == "Das ist ein \ufffd Fehler."
    assert report["statistics"]["pairs"] == len(files[0].read_bytes().splitlines())


def test_json_and_page_are_written(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    done = command("data", "check", *files, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    assert done.code == 0
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["damaged"] is False
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "No damage found." in page
    assert done.lines[-1] == "no damage found"


def test_standard_input_and_columns(command: Command, files: tuple[Path, Path]) -> None:
    sides = [file.read_text(encoding="utf-8").splitlines() for file in files]
    text = "".join(f"x\t{target}\t{source}\n" for source, target in zip(*sides, strict=True)).encode()
    done = command("data", "check", "-", "--format", "tsv", "--columns", "2, 1", "--json", "-", stdin=text)
    assert done.code == 0, done.err
    direct = json.loads(command("data", "check", *files, "--json", "-").out)
    assert json.loads(done.out)["statistics"] == direct["statistics"]


def test_leaks_are_found(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    for file in files:
        (tmp_path / f"valid{file.suffix}").write_bytes(b"\n".join(file.read_bytes().split(b"\n")[:30]) + b"\n")
    held = ["--valid", tmp_path / "valid.en", "--valid", tmp_path / "valid.de"]
    done = command("data", "check", *files, *held, "--json", "-")
    report = json.loads(done.out)
    assert "leaked-pairs" in [finding["name"] for finding in report["findings"]]
    assert list(report["extra"]["held_out"]) == ["valid"]
    both = "".join(
        f"{s}\t{t}\n" for s, t in zip(*(f.read_text(encoding="utf-8").splitlines() for f in files), strict=True)
    )
    (tmp_path / "test.tsv").write_text(both, encoding="utf-8")
    done = command("data", "check", *files, "--test", tmp_path / "test.tsv", "--json", "-")
    assert done.code == 1
    assert "leaked-pairs" in [finding["name"] for finding in json.loads(done.out)["findings"]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{src}", "{tgt}", "{tgt}"], "the files: one or two are expected, got 3."),
        (["{src}", "{folder}/none.de"], "none.de: there is no such file."),
        (["{src}", "{folder}"], "it is a directory"),
        (["{src}"], "a.en: a single file of plain text holds only one side."),
        (["{src}", "{tgt}", "--html", "{folder}/no/r.html"], "r.html: its folder does not exist."),
        (["{src}", "{tgt}", "--html", "{folder}"], "it is a directory, and a file is to be written."),
        (["{src}", "{tgt}", "--json", "{src}"], "it is one of the files to read."),
        (
            ["{src}", "{tgt}", "--json", "{folder}/x", "--html", "{folder}/x"],
            "two files would be written under this name.",
        ),
        (["{src}", "{tgt}", "--format", "tvs"], "there is no such format."),
        (["{src}", "{tgt}", "--valid", "a", "--valid", "b", "--valid", "c"], "--valid: it is given 3 times."),
        (["{src}", "{tgt}", "--valid", "-"], "--valid: standard input is no held-out text."),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    command: Command, files: tuple[Path, Path], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    before = {path: path.read_bytes() for path in files}
    places = {"src": files[0], "tgt": files[1], "folder": tmp_path}
    done = command("data", "check", *(argument.format(**places) for argument in arguments))
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("Error: ")
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1
    assert {path: path.read_bytes() for path in files} == before


def test_ctrl_c_in_a_check_writes_nothing(
    command: Command, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = check_module.check_pairs

    def interrupted(*arguments: Any, progress: Callable[[int], None], **more: Any) -> Any:
        def stop(lines: int) -> None:
            raise KeyboardInterrupt

        return real(*arguments, progress=stop, **more)

    monkeypatch.setattr(check_module, "check_pairs", interrupted)
    done = command("data", "check", *files, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    assert done.code == 130
    assert "Traceback" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.de", "a.en"]


# stats ----------------------------------------------------------------------------------------------------------------


def test_stats_count_and_judge_nothing(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    break_target(files[1])
    picture = tmp_path / "shape.png"
    done = command("data", "stats", *files, "--plot", picture)
    assert done.code == 0
    pairs = len(files[0].read_bytes().splitlines())
    assert f"{pairs:,} pairs" in done.out
    assert "damage" not in done.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    numbers = json.loads(command("data", "stats", *files, "--json", "-").out)
    assert numbers["statistics"]["pairs"] == pairs
    assert numbers["statistics"]["source_words"] == len(files[0].read_text(encoding="utf-8").split())
    assert "findings" not in numbers


def test_stats_refuse_a_picture_of_no_kind_at_once(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    done = command("data", "stats", *files, "--plot", tmp_path / "shape.gif")
    assert done.code == 1
    assert "'.gif' is no format of pictures." in done.err


# findings -------------------------------------------------------------------------------------------------------------


def test_all_names_are_listed(command: Command) -> None:
    done = command("data", "findings")
    assert done.code == 0
    listed = {line.split()[0]: line for line in done.lines if line and line[0] != " "}
    assert {*FINDINGS, *FILTERS, *MENDS} <= set(listed)
    for name, done_about_it in (
        ("misaligned", "repairs"), ("duplicates", "drops"), ("near-duplicates", "with --drop"), ("crlf", "mends"),
        ("mojibake", "mends, drops"), ("white-space", "mends"), ("same-file", "both sides are the same text"),
    ):  # fmt: skip
        assert listed[name].removeprefix(name).strip().startswith(done_about_it)


# clean ----------------------------------------------------------------------------------------------------------------


def test_clean_says_what_it_did(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    break_target(files[1])
    out = tmp_path / "out"
    done = command("data", "clean", *files, "--out", out)
    assert done.code == 0, done.err
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert done.lines[0].startswith(f"{report['kept']:,} pairs kept of ")
    assert report["dropped"]["not-utf8"] == 1
    assert report["command"].endswith(f"data clean {files[0]} {files[1]} --out {out}")
    assert f"regard data check {out / 'a.en'} {out / 'a.de'}" in done.out
    assert command("data", "check", out / "a.en", out / "a.de").code == 0
    listed = (out / "dropped.tsv").read_text(encoding="utf-8").splitlines()
    assert report["kept"] + len(listed) - 1 == report["read"]["source_lines"]


def test_clean_reads_standard_input(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    sides = [file.read_text(encoding="utf-8").splitlines() for file in files]
    text = "".join(f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)).encode()
    out = tmp_path / "out"
    done = command("data", "clean", "-", "-f", "tsv", "--src-lang", "en", "--tgt-lang", "de", "-o", out, stdin=text)
    assert done.code == 0, done.err
    assert command("data", "clean", *files, "--out", tmp_path / "2").code == 0
    for name, other in (("pairs.en", "a.en"), ("pairs.de", "a.de"), ("dropped.tsv", "dropped.tsv")):
        assert (out / name).read_bytes() == (tmp_path / "2" / other).read_bytes()


def test_clean_keeps_and_drops_by_name(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    for file in files:
        first = file.read_text(encoding="utf-8").splitlines()[0]
        with open(file, "a", encoding="utf-8") as more:
            more.write(f"{first}\n{first.upper()}  \n")
    done = command("data", "clean", *files, "-o", tmp_path / "1", "--keep", "duplicates", "--keep", "white-space")
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "1" / "report.json").read_text(encoding="utf-8"))
    assert "duplicates" not in report["dropped"]
    assert "white-space" not in report["mended"]
    done = command("data", "clean", *files, "-o", tmp_path / "2", "--drop", "near-duplicates")
    report = json.loads((tmp_path / "2" / "report.json").read_text(encoding="utf-8"))
    assert report["dropped"]["duplicates"] == 1
    assert report["dropped"]["near-duplicates"] >= 1
    done = command("data", "clean", *files, "-o", tmp_path / "3", "--no-mends")
    assert json.loads((tmp_path / "3" / "report.json").read_text(encoding="utf-8"))["mends"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--keep", "duplicate"], "filter 'duplicate': there is none of this name. Did you mean duplicates?"),
        (["--drop", "numbers"], "filter 'numbers': there is none of this name."),
        (["--keep", "mojibake", "--drop", "mojibake"], "--keep mojibake: the same name is given to --drop."),
    ],
)
def test_clean_refuses_unknown_names(
    command: Command, files: tuple[Path, Path], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    done = command("data", "clean", *files, "--out", tmp_path / "out", *arguments)
    assert done.code == 1
    assert sentence in done.err
    assert not (tmp_path / "out").exists()


def test_clean_never_writes_over_anything(command: Command, files: tuple[Path, Path], tmp_path: Path) -> None:
    before = files[0].read_bytes()
    for out in (tmp_path, files[0]):
        done = command("data", "clean", *files, "--out", out)
        assert done.code == 1
        assert "the text to be cleaned is there (a.en), and is never changed." in done.err
    assert files[0].read_bytes() == before


# Real processes -------------------------------------------------------------------------------------------------------

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def large_files(folder: Path, text_files: Any, times: int) -> list[str]:
    """The sample again and again, each time with another word, so that no line is a copy."""
    for name, lines in (("big.en", text_files.sources), ("big.de", text_files.targets)):
        text = "".join(f"{line} {i:b}\n" for i in range(times) for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return [str(folder / "big.en"), str(folder / "big.de")]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_in_clean_leaves_nothing(tmp_path: Path, text_files: Any) -> None:
    inputs = large_files(tmp_path, text_files, 40)
    options = ["--out", str(tmp_path / "out"), "--keep", "misaligned"]
    arguments = [sys.executable, "-m", "regard", "data", "clean", *inputs, *options]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    until = time.monotonic() + 60
    while not list(tmp_path.glob(".out.partial-*/dropped.tsv")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert b"Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.de", "big.en"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_file_that_may_not_grow_is_one_sentence(tmp_path: Path, text_files: Any) -> None:
    inputs = large_files(tmp_path, text_files, 2)
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.argv = ['regard', *sys.argv[1:]]\n"
        "from regard.cli.main import run\n"
        "run()"
    )
    arguments = [
        sys.executable,
        "-c",
        code,
        "data",
        "clean",
        *inputs,
        "--out",
        str(tmp_path / "out"),
        "--keep",
        "misaligned",
    ]
    done = subprocess.run(arguments, capture_output=True, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 1, done
    assert done.stderr.decode().startswith(f"Error: {tmp_path / 'out'}: it cannot be written (File too large).")
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.de", "big.en"]
