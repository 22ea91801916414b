"""How long a large text takes to be checked and prepared, and how much memory: real files, or synthetic lines.

    python benchmarks/prepare.py --src FILE [FILE ...] --tgt FILE [FILE ...] [--pieces 32000]
    python benchmarks/prepare.py --synthetic 10000000
    python benchmarks/prepare.py --bundled --stages vocabulary,pack

Each stage is a process of its own, as a user would start it: `regard data check` of all pairs, then `regard data prepare`
without the check and with an empty cache, then the same again, which finds everything made. Two more stages have a peer, in
turns (see `prepare_peer.py`): `vocabulary` learns the pieces, `pack` tokenises the text with these pieces and writes the ids; the
peer goes line by line with sentencepiece, as fairseq and OpenNMT-py prepare text. Times are by the clock and of the processor,
memory is the largest resident set of the process. One JSON line per stage, a table at the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from regard.data.corpus import load_corpus
from regard.data.reading import open_pairs
from regard.training.config import build_run_config, read_recipe

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "ol")]


def synthesise(folder: Path, pairs: int, seed: int = 1) -> tuple[Path, Path]:
    """Two files in invented languages: words by Zipf's law, each with a translation, in another order of words."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(60_000)]
    others = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 5))) for _ in range(60_000)]
    src, tgt = folder / "synthetic.a", folder / "synthetic.b"
    block = [min(int(draw.paretovariate(0.9)) - 1, 59_999) for _ in range(2_000_000)]
    with open(src, "w") as left, open(tgt, "w") as right:
        for _ in range(pairs):
            begin = draw.randrange(len(block) - 32)
            chosen = block[begin : begin + draw.randint(4, 20)]
            left.write(" ".join(words[i] for i in chosen) + ".\n")
            right.write(" ".join(others[i] for i in reversed(chosen)) + ".\n")
    return src, tgt


def measured(arguments: list[str], cache: Path) -> dict:
    """Runs `python ARGUMENTS` and watches its time and its memory, that of its children included."""
    environment = {**os.environ, "REGARD_CACHE": str(cache)}
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said: list[str] = []
        reading = threading.Thread(target=lambda: said.extend(process.stderr or ()))
        reading.start()
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        reading.join()
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {process.returncode}: {out}{''.join(said)}")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "resident_mib": round(usage.ru_maxrss / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", nargs="*", type=Path, default=[])
    parser.add_argument("--tgt", nargs="*", type=Path, default=[])
    parser.add_argument("--synthetic", type=int, default=0, metavar="PAIRS")
    parser.add_argument("--bundled", action="store_true", help="the English-German text inside the package")
    parser.add_argument("--most", type=int, default=0, metavar="PAIRS", help="of real files, their first lines; 0: all")
    parser.add_argument("--pieces", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=1, help="of the stages with a peer")
    parser.add_argument("--stages", default="check,prepare,again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="regard-prepare-") as name:
        folder = Path(name)
        if arguments.synthetic:
            src, tgt = synthesise(folder, arguments.synthetic)
        elif arguments.bundled:
            src, tgt = folder / "bundled.en", folder / "bundled.de"
            corpus = load_corpus(build_run_config(read_recipe("tatoeba-en-de")).data)
            with open(src, "w") as left, open(tgt, "w") as right:
                for chunk in corpus.train.chunks():
                    left.writelines(line + "\n" for line in chunk.sources)
                    right.writelines(line + "\n" for line in chunk.targets)
        else:  # one pair of files, plain: `data check` takes one
            src, tgt = folder / "text.src", folder / "text.tgt"
            for place, several in ((src, arguments.src), (tgt, arguments.tgt)):
                with open(place, "wb") as file:
                    for path in several:
                        with subprocess.Popen(
                            ["xzcat" if path.suffix == ".xz" else "cat", path], stdout=subprocess.PIPE
                        ) as one:
                            file.writelines(itertools.islice(one.stdout or (), arguments.most or None))
                            one.kill()
        size = (src.stat().st_size + tgt.stat().st_size) / 1e6
        pairs = sum(len(chunk) for chunk in open_pairs([src, tgt], "text").chunks())
        files = ["--src", str(src), "--tgt", str(tgt)]
        settings = [
            f"tokenizer.size={arguments.pieces}",
            "data.check=false",
            "train.device=cpu",
            "data.valid_size=2000",
        ]
        prepare = [
            "-m",
            "regard",
            "data",
            "prepare",
            *files,
            *settings,
            "data.test_size=2000",
            f"data.store={folder / 'shelf'}",
        ]
        stages = {
            "check": ["-m", "regard", "data", "check", str(src), str(tgt), "--json", str(folder / "r.json")],
            "prepare": prepare,
            "again": prepare,
        }
        peer = str(Path(__file__).with_name("prepare_peer.py"))
        wanted = []
        for stage in arguments.stages.split(","):
            if stage in stages:
                wanted.append((stage, stages[stage]))
                continue
            for who in ("regard", "sentencepiece") * arguments.rounds:
                wanted.append((f"{stage}, {who}", [peer, stage, who, name, str(src), str(tgt), str(arguments.pieces)]))
        rows = []
        for stage, command in wanted:
            if stage.startswith("pack"):
                shutil.rmtree(folder / "shelf", ignore_errors=True)
            row = {"stage": stage, "pairs": pairs, "mb": round(size, 1), **measured(command, folder / "cache")}
            row["mb_per_second"] = round(size / max(0.1, row["seconds"]), 2)
            row["mb_per_cpu_second"] = round(size / max(0.1, row["cpu_seconds"]), 2)
            if stage == "prepare":
                row["kept_mib"] = round(
                    sum(p.stat().st_size for p in (folder / "shelf").rglob("*") if p.is_file()) / 2**20
                )
            rows.append(row)
            print(json.dumps(row), flush=True)
    print(
        f"{'stage':26} {'pairs':>11} {'MB':>8} {'seconds':>8} {'CPU s':>8} {'MB/s':>7} {'MB/CPU s':>9} {'MiB resident':>13}"
    )
    for row in rows:
        print(
            f"{row['stage']:26} {row['pairs']:11,} {row['mb']:8,.0f} {row['seconds']:8.1f} {row['cpu_seconds']:8.1f} "
            f"{row['mb_per_second']:7.1f} {row['mb_per_cpu_second']:9.1f} {row['resident_mib']:13,}"
        )


if __name__ == "__main__":
    main()
