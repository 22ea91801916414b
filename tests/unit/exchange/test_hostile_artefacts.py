"""More than fifty hostile artefacts: no code runs, nothing outside is touched, memory stays low, and each is one clear error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_artefacts import CASES, MARK, SECRET, Bases, run_of, unfinished
from test_import_ctranslate2 import write
from test_import_marian import marian

from regard.core.files import sha256_of

ALLOWANCE = 12 << 20  # for what a loader itself needs, however small the file: buffers, messages, modules
SOURCE = Path(__file__).resolve().parents[3] / "src"


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
    return sum(min(file.stat().st_size, file.stat().st_blocks * 512 + 4096) for file in files)


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path, text_files: Any) -> dict[str, dict[str, Any]]:
    """What happened with each artefact, all opened by one process of their own."""
    place = tmp_path_factory.mktemp("hostile").resolve()
    os.environ.setdefault("TQDM_DISABLE", "1")
    bases = Bases(tiny_run, write(place / "ctranslate2", "int8", pre_norm=False), place / "marian")
    marian(bases.marian).save_pretrained(bases.marian)
    cases, sizes = [], {}
    # Good ones first: what is imported then does not count against the others.
    good = {"load": tiny_run, "import": bases.ctranslate2}
    folders = {name: place / f"case {name}" for name in CASES}
    (place / SECRET).write_text("secret")
    for loader, path in good.items():
        (place / f"good {loader}").mkdir()
        cases.append(
            {"name": f"good {loader}", "loader": loader, "path": str(path), "folder": str(place / f"good {loader}")}
        )
    (place / "good marian").mkdir()
    cases.append(
        {"name": "good marian", "loader": "import", "path": str(bases.marian), "folder": str(place / "good marian")}
    )
    (place / "good resume").mkdir()
    again = unfinished(run_of(place / "good resume", bases, checkpoints=True))
    cases.append({"name": "good resume", "loader": "resume", "path": str(again), "folder": str(place / "good resume")})
    for name, (loader, make) in CASES.items():
        folders[name].mkdir()
        path = make(folders[name], bases)
        sizes[name] = size_of(path if path.is_dir() else path.parent)
        cases.append({"name": name, "loader": loader, "path": str(path), "folder": str(folders[name])})
    outside = [path for path in place.iterdir() if path.is_file()]
    before = {path: sha256_of(path) for path in outside}
    (place / "cases.json").write_text(json.dumps({"cases": cases, "text": str(text_files.src.parent)}))
    home = place / "home"
    home.mkdir()
    runner = Path(__file__).with_name("hostile_runner.py")
    done = subprocess.run(
        [sys.executable, str(runner), str(place / "cases.json"), str(place / "results.json")],
        env={
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home),
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    results = json.loads((place / "results.json").read_text()) if (place / "results.json").exists() else []
    found = {one["name"]: one for one in results}
    assert done.returncode == 0, f"it ended with {done.returncode} after {list(found)[-1:]}: {done.stderr[-2000:]}"
    for name in CASES:
        found[name]["bytes"] = sizes[name]
    found["marks"] = {"there": (place / MARK).exists(), "same": before == {path: sha256_of(path) for path in outside}}
    return found


def test_there_are_fifty() -> None:
    assert len(CASES) >= 50


@pytest.mark.parametrize("name", ["good load", "good import", "good marian", "good resume"])
def test_good_ones_are_opened(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    """Else nothing would be shown by the others' failing."""
    assert outcomes[name]["error"] is None, outcomes[name]


@pytest.mark.parametrize("name", list(CASES))
def test_a_hostile_artefact_is_one_clear_error_and_nothing_else(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    found = outcomes[name]
    assert found["regards"], f"{found['error']}: {found['message']}"
    assert found["events"] == []
    assert not found["imported"]
    assert found["grown"] <= 2 * found["bytes"] + ALLOWANCE
    assert found["message"].count("\n") == 0
    assert len(found["message"]) < 1500


def test_nothing_ran_and_nothing_outside_was_touched(outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes["marks"] == {"there": False, "same": True}
