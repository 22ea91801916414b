"""Process time of a first translation with the bundled model, beside that of importing torch alone, in the same run.

    python benchmarks/first_translation.py [--times 7]

One JSON line per case, a table at the end: median wall seconds of whole processes.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time

CASES = {
    "import torch": [sys.executable, "-c", "import torch"],
    "regard --help": [sys.executable, "-m", "regard", "--help"],
    "regard translate, one sentence": [sys.executable, "-m", "regard", "translate", "Where is the nearest bank?"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=7)
    arguments = parser.parse_args()
    medians = {}
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(arguments.times):  # in turns, so that a noisy moment hits all cases alike
        for name, command in CASES.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - began)
    for name, measured in seconds.items():
        medians[name] = statistics.median(measured)
        row = {"case": name, "median_seconds": round(medians[name], 2), "times": arguments.times}
        print(json.dumps({**row, "machine": platform.platform(), "python": platform.python_version()}))
    for name, median in medians.items():
        print(f"{name:32} {median:6.2f} s  {median / medians['import torch']:5.2f} x import torch")


if __name__ == "__main__":
    main()
