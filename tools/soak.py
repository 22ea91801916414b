"""Thousands of faults, spread over the cores: the full counts of tests/faults, where the test suite takes a seeded sample.

    python tools/soak.py [--processes N] [--only WORD,WORD] [--log FOLDER]

Long tests are parts of their own, all others one part for each file; N parts run at a time, each in a process of its own with one
thread. A line for each part: how it ended, how long it took, and what its tests counted. Ends with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = [
    "tests/faults",
    "tests/system/test_kill.py",
    "tests/system/test_several_workers.py",
    "tests/system/test_torchrun.py",
    "tests/system/test_word2vec_workers.py",
]
ALONE = (
    "test_going_on_after_any_step",
    "test_killing",
    "test_sigterm",
    "test_an_error_at_any_moment",
    "test_whatever_comes",
)
FIRST = (
    "test_kill.py",
    "test_killing",
    "test_corruption",
    "test_properties",
    "test_going_on",
    "test_power_cut",
)  # long ones
PYTEST = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q"]
LONGEST = 3600


def environment() -> dict[str, str]:
    found = {**os.environ, "REGARD_SOAK": "500", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    found["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return found


def parts(words: list[str]) -> dict[str, list[str]]:
    """Names of tests by the name of the part that they belong to."""
    listed = subprocess.run(
        [*PYTEST, "--collect-only", *PLACES], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    found: dict[str, list[str]] = {}
    for line in listed.stdout.splitlines():
        if "::" in line and not line.startswith(("ERROR", " ")):
            alone = any(f"::{word}" in line for word in ALONE)
            found.setdefault(line.split("::")[1] if alone else line.split("::")[0], []).append(line)
    if not found:
        sys.exit(f"no tests were found:\n{listed.stdout[-2000:]}{listed.stderr[-2000:]}")
    found = {name: tests for name, tests in found.items() if not words or any(word in name for word in words)}
    return dict(sorted(found.items(), key=lambda part: not any(word in part[0] for word in FIRST)))


def counted(output: str) -> str:
    """What tests have said, and how many there were."""
    said = [
        line for line in output.splitlines() if re.match(r"\S+.*: .*\d", line) and not line.startswith(("E ", "tests/"))
    ]
    last = next(
        (line for line in reversed(output.splitlines()) if re.search(r"\d+ (passed|failed|error|skipped)", line)), ""
    )
    return "; ".join([*said, last.strip("= ")])


def run(name: str, tests: list[str], log: Path | None) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        try:
            command = [*PYTEST, "-s", "--basetemp", f"{place}/t", *tests]
            done = subprocess.run(
                command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", timeout=LONGEST,
            )  # fmt: skip
            output, well = done.stdout, done.returncode == 0
        except subprocess.TimeoutExpired as error:
            output, well = f"{(error.stdout or b'')[-3000:]!r}\nit took longer than {LONGEST} s", False
    said = counted(output) if well else output[-3000:]
    with _speaking:
        print(f"{'ok' if well else 'FAILED'} {time.monotonic() - began:.0f} s {name}: {said}", flush=True)
    if log is not None and not well:
        log.mkdir(parents=True, exist_ok=True)
        (log / (re.sub(r"\W+", "-", name) + ".txt")).write_text(output[-200_000:])
    return well


_speaking = threading.Lock()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--only", default="", help="parts whose names contain one of these words, with commas between")
    parser.add_argument("--log", type=Path, help="a folder for the output of parts that fail")
    given = parser.parse_args()
    began = time.monotonic()
    found = parts([word for word in given.only.split(",") if word])
    print(f"{len(found)} parts, {given.processes} at a time", flush=True)
    with ThreadPoolExecutor(given.processes) as pool:
        ended = list(pool.map(lambda part: run(*part, given.log), found.items()))
    print(f"{sum(ended)} of {len(ended)} parts went well, in {time.monotonic() - began:.0f} s")
    sys.exit(not all(ended))


if __name__ == "__main__":
    main()
