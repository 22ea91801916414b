"""The page of `regard serve` in a real browser: light and dark, typing, streaming, errors, keys, and nothing from elsewhere.

Needs what test_real_viewer.py needs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.serving.keys import Keys

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "serving"))
from served_folders import listening, open_service, small_folder  # noqa: E402

SCRIPT = Path(__file__).with_name("serving.mjs")
NEEDED = {
    "node": shutil.which("node") is not None,
    "npm ci in viewer/": (ROOT / "viewer" / "node_modules" / "playwright-core").is_dir(),
    "chromium": any(Path(place).exists() for place in ("/usr/bin/chromium", "/usr/bin/chromium-browser")),
}


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    return small_folder("gpt", tmp_path_factory.mktemp("served") / "writer")


@pytest.fixture(scope="module")
def seen(writer, tmp_path_factory):
    missing = [name for name, there in NEEDED.items() if not there]
    if missing and os.environ.get("REGARD_BROWSER") == "1":
        pytest.fail(f"missing: {', '.join(missing)}")
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")
    shots = os.environ.get("REGARD_SHOTS") or str(tmp_path_factory.mktemp("shots"))
    service, keyed = open_service({"writer": writer}), open_service({})
    with listening(service) as address, listening(keyed, keys=Keys(["right-key"])) as locked:
        done = subprocess.run(
            ["node", str(SCRIPT), address, locked, shots], capture_output=True, text=True, timeout=200, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_it_translates_as_one_types(seen):
    right = regard.load(engine="auto").translate("Good morning, my friend.")
    assert seen["lightResult"] == seen["darkResult"] == right
    assert len(seen["lightOthers"]) == 2
    assert seen["copied"] == right
    assert seen["waited"]


def test_tags_are_shown_as_text(seen):
    assert "<b>Nacht</b>" in seen["markup"]
    assert seen["injected"] == 0
    assert seen["hostile"] == 0


def test_what_goes_wrong_is_said(seen):
    assert "Trying again in 1 s" in seen["busy"]
    assert seen["failed"] == "Too much."
    assert "20,001 characters" in seen["tooLong"]


def test_text_is_streamed(seen, writer):
    assert seen["streamed"].startswith("text/event-stream")
    right = "The cat sat" + regard.load(writer).generate("The cat sat", seed=3, max_tokens=20, temperature=0.8)
    assert seen["lightStory"] == seen["darkStory"] == right


def test_it_can_be_used_by_everybody(seen):
    assert seen["axe"] == {name: [] for name in seen["axe"]}
    assert len(seen["axe"]) == 7
    assert seen["tabbed"]
    assert not seen["sideways"]
    assert seen["background"] == "rgb(22, 23, 24)"


def test_a_key_opens_it(seen):
    assert seen["opened"] == regard.load(engine="auto").translate("Good night.")


def test_nothing_is_asked_of_other_places(seen):
    assert seen["foreign"] == []
    assert [error for error in seen["errors"] if "503" not in error and "400" not in error] == []


def test_the_page_is_small():
    place = ROOT / "src" / "regard" / "serving" / "assets"
    assert sum(path.stat().st_size for path in place.iterdir()) < 20_000
