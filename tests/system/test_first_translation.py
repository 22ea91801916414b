"""A first translation does not wait for torch; the command line says which engine answered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("ctranslate2")

WITHOUT = """
import sys
sys.argv = ["regard", "translate", "--device", "cpu", *{arguments!r}]
from regard.cli.main import run
try:
    run()
except SystemExit as end:
    print("torch" in sys.modules, "numpy" in sys.modules, end.code)
"""


def _process(*arguments: str, cache: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(arguments=list(arguments))],
        capture_output=True,
        text=True,
        env={**os.environ, "REGARD_CACHE": cache},
        check=True,
    )
    return done.stdout.splitlines()


def test_translating_imports_no_torch(tmp_path) -> None:
    first = _process("Where is the nearest bank?", cache=str(tmp_path))
    assert len(first) == 2
    assert first[1].startswith("False")
    again = _process("Where is the nearest bank?", "--nbest", "3", cache=str(tmp_path))
    assert again[0].split(" ||| ")[1] == first[0]
    assert again[-1] == "False True 0"  # NumPy, by which the converted model's sizes are checked, but no torch


def test_what_answered_is_said(command: Callable[..., Any]) -> None:
    done = command("translate", "--device", "cpu", "--verbose", "He laughed.")
    assert done.err == "Engine: ctranslate2\n"
    slow = command("translate", "--device", "cpu", "-v", "--engine", "torch", "He laughed.")
    assert (slow.out, slow.err) == (done.out, "Engine: torch\n")
    whole = command("translate", "--device", "cpu", "-v", "--json", "He laughed.")
    assert whole.err == "Engine: torch (attention was asked for)\n"
    assert json.loads(whole.out)["engine"] == "torch"
    exact = command("translate", "--device", "cpu", "--compute", "float32", "He laughed.")
    assert exact.out == done.out


def test_options_are_checked(command: Callable[..., Any]) -> None:
    wrong = command("translate", "--engine", "tensorflow", "He laughed.")
    assert wrong.code == 1
    assert wrong.err == "Error: engine: 'tensorflow' is not one of auto, torch, ctranslate2. Choose one of them.\n"
    wrong = command("translate", "--compute", "int4", "--device", "cpu", "He laughed.")
    assert wrong.code == 1
    assert "int4" in wrong.err
    wrong = command("translate", "--engine", "ctranslate2", "--device", "cpu", "--sample", "He laughed.")
    assert wrong.code == 1
    assert "sampled" in wrong.err
