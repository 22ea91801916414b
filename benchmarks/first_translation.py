"""Time of a first translation with the bundled model, beside that of importing torch alone, in the same run.

    python benchmarks/first_translation.py [--times 7]

One JSON line per case, a table at the end: median seconds of whole processes, by the clock and of the processor. "auto" is the
ctranslate2 engine where it is installed (its first run, which converts the model, is not counted), else torch.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time

CASES = {
    "import torch": [sys.executable, "-c", "import torch"],
    "regard --help": [sys.executable, "-m", "regard", "--help"],
    "regard translate, auto": [sys.executable, "-m", "regard", "translate", "Where is the nearest bank?"],
    "regard translate, torch": [sys.executable, "-m", "regard", "translate", "--engine", "torch", "Where is the bank?"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=7)
    arguments = parser.parse_args()
    medians = {}
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    work: dict[str, list[float]] = {name: [] for name in CASES}
    for command in CASES.values():  # files into memory, the converted model into its cache
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(arguments.times):  # in turns, so that a noisy moment hits all cases alike
        for name, command in CASES.items():
            began, before = time.perf_counter(), processor_seconds()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - began)
            work[name].append(processor_seconds() - before)
    for name, measured in seconds.items():
        medians[name] = statistics.median(measured)
        processor = statistics.median(work[name])
        row = {"case": name, "median_seconds": round(medians[name], 2), "median_processor_seconds": round(processor, 2)}
        row["times"] = arguments.times
        print(json.dumps({**row, "machine": platform.platform(), "python": platform.python_version()}))
    for name, median in medians.items():
        processor = statistics.median(work[name])
        print(f"{name:32} {median:6.2f} s {processor:6.2f} s  {median / medians['import torch']:5.2f} x import torch")


def processor_seconds() -> float:
    """Of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
