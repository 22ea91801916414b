"""How the cost of checking and preparing text grows with the text: pairs a second and memory, plotted.

    python benchmarks/prepare_growth.py --out growth.jsonl --plot growth.png [--pairs 10000,100000,...] [--pieces 32000]
    python benchmarks/prepare_growth.py --read growth.jsonl --plot growth.png

Each size is synthetic text of `prepare.py`, made and measured in a process of its own: `regard data check`, then `regard data
prepare` without the check and with nothing made before. Largest resident memory is that of one process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

STAGES = ("check", "prepare")


def measured(pairs: int, pieces: int) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("prepare.py")
    command = [sys.executable, script, "--synthetic", pairs, "--pieces", pieces, "--stages", ",".join(STAGES)]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (speed, memory) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for stage in STAGES:
        own = sorted((row for row in rows if row["stage"] == stage), key=lambda row: row["pairs"])
        pairs = [row["pairs"] for row in own]
        speed.plot(pairs, [row["pairs"] / row["seconds"] for row in own], marker="o", label=f"data {stage}")
        memory.plot(pairs, [row["resident_mib"] for row in own], marker="o", label=f"data {stage}")
    for axes, title in ((speed, "pairs a second"), (memory, "resident memory, MiB")):
        axes.set(xscale="log", xlabel="pairs", title=title, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", default="10000,100000,1000000,10000000")
    parser.add_argument("--pieces", type=int, default=32_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, help="what --out wrote before, instead of measuring")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.read:
        rows = [json.loads(line) for line in arguments.read.read_text().splitlines()]
    else:
        for pairs in map(int, arguments.pairs.split(",")):
            rows += measured(pairs, arguments.pieces)
            if arguments.out:
                arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{'stage':10}{'pairs':>12}{'seconds':>9}{'CPU s':>9}{'pairs/s':>10}{'MiB':>8}")
    for row in rows:
        print(
            f"{row['stage']:10}{row['pairs']:12,}{row['seconds']:9.1f}{row['cpu_seconds']:9.1f}"
            f"{row['pairs'] / row['seconds']:10,.0f}{row['resident_mib']:8,}"
        )
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
