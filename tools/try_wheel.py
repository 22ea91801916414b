"""Installs a wheel in a fresh virtual environment, on every Python that is here, and uses it from another folder.

    python tools/try_wheel.py dist [--python 3.12 ...] [--seconds 20] [--index-option=--index-url=URL ...]

Nothing of the repository is used but constraints.txt. Each Python: install, version and type marker, translate, look, serve
(asked over HTTP, then ended by SIGTERM), demo (training for so many seconds). Exit status 0: all that were found passed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
SENTENCE = "Where is the station?"


def interpreter(version: str) -> str | None:
    """The Python of a version: on the path, or one that pyenv has installed."""
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(roots.glob(f"{version}.*/bin/python"), key=lambda path: path.parts[-3])
    candidates = [shutil.which(f"python{version}"), *(str(path) for path in reversed(installed))]
    for candidate in filter(None, candidates):
        says = subprocess.run(
            [candidate, "--version"], capture_output=True, text=True, check=False
        )  # a shim may refuse
        if says.returncode == 0 and says.stdout.startswith(f"Python {version}."):
            return candidate
    return None


class Installed:
    """A wheel in a virtual environment of its own, used from an empty folder."""

    def __init__(self, folder: Path):
        self.folder, self.bin = folder, folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir()
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        self.environment = {**kept, "REGARD_CACHE": str(folder / "cache"), "NO_COLOR": "1", "COLUMNS": "120"}

    def run(self, *command: str, minutes: float = 10) -> str:
        """What a command prints; it must succeed."""
        path = str(self.bin / command[0])
        done = subprocess.run(
            [path, *command[1:]], cwd=self.work, env=self.environment, capture_output=True, text=True,
            timeout=60 * minutes, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-800:]}{done.stderr[-1500:]}"
            )
        return done.stdout


def install(python: str, wheel: Path, folder: Path, options: Sequence[str]) -> Installed:
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    installed = Installed(folder)
    constraints = ["-c", str(ROOT / "constraints.txt")]
    installed.run("pip", "install", "--quiet", *constraints, *options, str(wheel), minutes=30)
    return installed


def version(installed: Installed) -> str:
    said = installed.run("regard", "--version").split()[-1]
    code = "import pathlib, regard; place = pathlib.Path(regard.__file__); print((place.parent / 'py.typed').exists(), place)"
    typed, place = installed.run("python", "-c", code).split()
    metadata = installed.run(
        "python", "-c", "import importlib.metadata as found; print(found.version('regard'))"
    ).strip()
    assert (said, typed) == (metadata, "True"), (said, metadata, typed)
    assert Path(place).is_relative_to(installed.folder), place
    return said


def translate(installed: Installed) -> str:
    written = installed.run("regard", "translate", SENTENCE).strip()
    assert "Bahnhof" in written, written
    return written


def look(installed: Installed) -> str:
    installed.run("regard", "look", "--save", "page.html", "--text", SENTENCE)
    page = (installed.work / "page.html").read_text(encoding="utf-8")
    assert "Bahnhof" in page
    installed.run("regard", "plot", "alignment", SENTENCE, "--out", "alignment.png")
    assert (installed.work / "alignment.png").read_bytes().startswith(b"\x89PNG")
    return f"a page of {len(page) / 1e6:.1f} MB, a picture"


def demo(installed: Installed, seconds: int) -> str:
    said = installed.run("regard", "demo", "--seconds", str(seconds), "--out", "trained")
    score = re.search(r"BLEU ([\d.]+)", said)
    assert score, said[-800:]
    assert installed.run("regard", "translate", "--model", "trained", "Good morning.").strip()
    return f"trained for {seconds} s: BLEU {score[1]}"


def serve(installed: Installed) -> str:
    command = [str(installed.bin / "regard"), "serve", "--port", "0"]
    log = installed.folder / "serve.log"
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=installed.work, env=installed.environment, stdout=file, stderr=file)
        try:
            address = _address(log, server)
            body = json.dumps({"q": SENTENCE, "source": "en", "target": "de"}).encode()
            request = urllib.request.Request(f"{address}/translate", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                written = json.load(answer)["translatedText"]
            assert "Bahnhof" in written, written
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert b"<html" in answer.read().lower()
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0, log.read_text()[-800:]
        finally:
            server.kill()
    return "answers, shows its page, ends with SIGTERM"


def _address(log: Path, server: subprocess.Popen[bytes]) -> str:
    for _ in range(1200):
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        if found:
            return found[0]
        assert server.poll() is None, log.read_text()[-800:]
        time.sleep(0.1)
    raise RuntimeError("the server does not say where it is")


def attempt(wheel: Path, python: str, seconds: int, options: Sequence[str]) -> bool:
    """Whether a wheel installs and works on one Python."""
    with tempfile.TemporaryDirectory(prefix="regard-wheel-") as name:
        began = time.monotonic()
        try:
            installed = install(python, wheel, Path(name), options)
            torch = installed.run("python", "-c", "import torch; print(torch.__version__)").strip()
            print(f"  installed in {time.monotonic() - began:.0f} s, torch {torch}", flush=True)
            steps: dict[str, Callable[[Installed], str]] = {
                "version": version,
                "translate": translate,
                "look": look,
                "serve": serve,
            }
            for step, work in {**steps, "demo": lambda place: demo(place, seconds)}.items():
                began = time.monotonic()
                print(f"  {step}: {work(installed)} ({time.monotonic() - began:.0f} s)", flush=True)
        except (AssertionError, RuntimeError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            print(f"  failed: {type(error).__name__}: {error}", flush=True)
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wheel", type=Path, help="a wheel, or the folder it is in")
    parser.add_argument("--python", nargs="+", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--seconds", type=int, default=20, help="how long the demo trains")
    parser.add_argument(
        "--index-option", action="append", default=[], help="an option of pip install, such as --index-url=URL"
    )
    given = parser.parse_args()
    wheels = sorted(given.wheel.glob("*.whl")) if given.wheel.is_dir() else [given.wheel]
    if len(wheels) != 1 or not wheels[0].is_file():
        print(f"{given.wheel}: one wheel is expected there, found {len(wheels)}")
        return 1
    outcomes = {}
    for name in given.python:
        python = interpreter(name)
        print(f"Python {name}: {python or 'not here'}", flush=True)
        outcomes[name] = python and attempt(wheels[0].resolve(), python, given.seconds, given.index_option)
    words = {True: "passed", False: "failed", None: "not here"}
    print(", ".join(f"{name} {words[outcome]}" for name, outcome in outcomes.items()))
    return 0 if True in outcomes.values() and False not in outcomes.values() else 1


if __name__ == "__main__":
    sys.exit(main())
