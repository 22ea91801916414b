"""How good a translator is after some minutes of one GPU: regard beside Hugging Face's Marian of the same shape, on Europarl.

    python benchmarks/time_to_quality.py --data DIR [--newstest DIR] [--seconds 480] [--systems regard,marian] [--out DIR]
        [--stages prepare,trial,train,translate,score] [section.key=value ...]
    python benchmarks/time_to_quality.py --data DIR --ablate FILE [--seconds 120] [--out DIR] [section.key=value ...]

DIR holds train-1, dev and test files as recipe `europarl-en-de` reads them; the other one newstest2013.en and .de. Settings go
over the recipe; sizes, batch, dropout, label smoothing and search hold for both systems, all else for regard alone, and
--marian-... for the other (see marian_training.py). The text is not checked for damage: `regard data check` does that.

The time of training begins when the text is tokenised and the model has its first weights on the CPU, and ends when the final
weights are on the disk: compiling, recording, validation and saving count, and caches of compiled code are empty. The learning
rate has to end with the time: regard's number of steps comes from a trial (or from --steps), Marian's rate goes by the clock. The
seconds in the rows are what the run really took. Both systems read the same tokens, each in a process of its own.

Texts: the first 1,000 lines of dev (to choose settings by), test and newstest2013, translated by each system's own search with
the recipe's beam and length normalisation. Scores are sacreBLEU's of detokenised, cased text with 95 % intervals; the paired
tests are two-sided (evaluation/significance.py). With --ablate, each line `name | settings` of FILE is trained by regard for
--seconds and scored on those lines of dev.

One JSON line per system and text, a table last. What is finished in OUT is not done again, so stages may be called one by one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from regard.core.files import read_json, write_json
from regard.data.reading import read_lines
from regard.evaluation.metrics import Flavour, corpus_scores
from regard.evaluation.significance import paired_tests
from regard.training.progress import Reporter
from regard.training.text import prepare
from timed_training import ENVIRONMENT, RECIPE, WORK, Failed, Job, Pace, apart, texts_of, write_lines

SYSTEMS = ("regard", "marian")
STAGES = ("prepare", "trial", "train", "translate", "score")
DEV_LINES = 1000
OF_TEXT = ("data.", "tokenizer.", "train.max_tokens", "model.max_length")  # settings that other tokens follow from


def prepare_texts(jobs: list[Job]) -> None:
    """Makes the lines of dev, and the tokens of all jobs, which are the same for most of them."""
    done = set()
    for job in jobs:
        for name, ending in (("en", "src"), ("de", "ref")):
            if not (job.out / f"dev.{ending}").exists():
                write_lines(job.out / f"dev.{ending}", read_lines(job.data / f"dev.{name}")[:DEV_LINES])
        key = tuple(setting for setting in job.settings if setting.startswith(OF_TEXT))
        if key not in done:
            done.add(key)
            began = time.monotonic()
            made = prepare(RECIPE, settings=job.values(), report=Reporter(quiet=True))
            row = {"prepared": list(key), "pairs": made.pairs, "target_tokens": made.target_tokens}
            show({**row, "seconds": round(time.monotonic() - began, 1)})


def do(job: Job, stage: str, steps: int | None = None) -> dict[str, Any]:
    """The result of a stage of a job: found in OUT, or made now."""
    path = job.trial_path() if stage == "trial" else job.path(f"{stage}.json")
    if path.exists():
        found = read_json(path)
        if stage == "train" and found["asked"] != job.asked():
            sys.exit(
                f"{path}: it is of a run with other settings. Give another --out, or delete {job.out / job.name}.*"
            )
        return found
    if (job.system, stage) == ("regard", "train"):
        chosen = steps or Pace(**do(job, "trial")).steps(job.seconds)
        write_json(job.path("steps.json"), {"steps": chosen})
    print(f"{job.name}: {stage}", file=sys.stderr, flush=True)
    made = apart(WORK[job.system, stage], job, environment=ENVIRONMENT[job.system])
    if stage == "trial":
        show(
            {
                "trial": job.name,
                **{name: round(value, 4) for name, value in made.items()},
                "steps": Pace(**made).steps(job.seconds),
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**made, "asked": job.asked()} if stage == "train" else made)
    return read_json(path)


def show(row: dict[str, Any]) -> None:
    print(json.dumps(row, ensure_ascii=False), flush=True)


def flat(scores: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """BLEU and chrF of plain scores, for one line."""
    row: dict[str, Any] = {}
    for name in ("bleu", "chrf"):
        one = scores[name]
        row[name], row[f"{name}_interval"] = round(one["value"], 2), [round(one["low"], 2), round(one["high"], 2)]
        row[f"{name}_signature"] = one["signature"]
    return row


def cells(row: dict[str, Any]) -> str:
    found = ""
    for name in ("bleu", "chrf"):
        low, high = row[f"{name}_interval"]
        found += f"{row[name]:7.2f} {f'[{low:.1f}, {high:.1f}]':14}"
    return f"{found}{row['steps']:8}{row['seconds']:9.1f}"


HEAD = f"{'BLEU':>7} {'95 %':14}{'chrF':>7} {'95 %':14}{'steps':>8}{'seconds':>9}"


def score(jobs: list[Job]) -> None:
    flavour = Flavour(language="de")
    table = [f"{'text':14}{'system':10}{HEAD}"]
    for text, (_, reference) in texts_of(jobs[0]).items():
        references = read_lines(reference)
        written = {job.name: read_lines(job.path(f"{text}.txt")) for job in jobs}
        for job in jobs:
            scores = corpus_scores(written[job.name], references, flavour, ("bleu", "chrf"))
            row = {"system": job.name, "text": text, **flat({name: one.to_plain() for name, one in scores.items()})}
            row |= {**do(job, "train"), **do(job, "translate")}
            row |= {"decoding_seconds": row["decoding_seconds"][text]}
            row.pop("dev", None)
            show(row)
            table.append(f"{text:14}{job.name:10}{cells(row)}")
        if len(jobs) == 2:
            old, new = (written[job.name] for job in reversed(jobs))
            for test in paired_tests(references, old, new, flavour, ("bleu", "chrf")):
                show({"compared": [jobs[0].name, jobs[1].name], "text": text, **test.to_plain()})
                table.append(f"{'':14}{jobs[0].name} against {jobs[1].name}: {test}")
    print("\n".join(table))


def ablate(jobs: list[Job], stages: list[str], steps: dict[str, int]) -> None:
    table = [f"{'':28}{HEAD}{'nll':>8}{'M par.':>8}"]
    for job in jobs:
        row: dict[str, Any] = {"name": job.name, "asked": job.asked()}
        try:
            if "trial" in stages and job.name not in steps:
                do(job, "trial")
            if "train" not in stages:
                continue
            made = do(job, "train", steps.get(job.name))
        except Failed as error:  # it diverges, or does not fit
            show({**row, "error": str(error)})
            table.append(f"{job.name:28}  {error}")
            continue
        row |= {"text": "dev", **flat(made.pop("dev")), **made}
        show(row)
        table.append(f"{job.name:28}{cells(row)}{row['valid_nll'] or 0:8.4f}{row['parameters'] / 1e6:8.1f}")
    if "train" in stages:
        print("\n".join(table))


def read_ablations(path: Path) -> list[tuple[str, list[str]]]:
    """Names and settings of lines `name | settings`; empty lines and those that begin with # are left out."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, settings = line.partition("|")
            name = "-".join(name.split())
            if not name or name in found or "/" in name:
                sys.exit(f"{path}: {line!r} has no name of its own. Write `name | settings`.")
            found[name] = settings.split()
    return list(found.items())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--newstest", type=Path)
    parser.add_argument("--seconds", type=float, help="480, with --ablate 120")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--ablate", type=Path, metavar="FILE")
    parser.add_argument("--steps", default="", help="NAME=STEPS,...: instead of trials")
    parser.add_argument("--out", type=Path, default=Path("runs/time-to-quality"))
    parser.add_argument("--marian-rows", type=int, help="sentence pairs in a batch; else as many tokens as regard has")
    parser.add_argument("--marian-lr", type=float)
    parser.add_argument("--marian-warmup", type=float, help="a part of the time")
    parser.add_argument("--marian-dropout", type=float, help="else as regard has it")
    parser.add_argument("--marian-schedule", choices=["linear", "cosine"])
    parser.add_argument("--marian-compile", action="store_true")
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    return parser.parse_intermixed_args()


def main() -> None:
    arguments = parse()
    stages = arguments.stages.split(",")
    if unknown := {*stages} - {*STAGES} or {*arguments.systems.split(",")} - {*SYSTEMS}:
        sys.exit(
            f"There is no {', '.join(sorted(unknown))}. Stages: {', '.join(STAGES)}; systems: {', '.join(SYSTEMS)}."
        )
    steps = {
        name: int(number) for name, _, number in (part.partition("=") for part in arguments.steps.split(",") if part)
    }
    if "marian" in steps:
        sys.exit("--steps marian=...: Marian is trained by the clock. Leave it out.")
    common = {name: getattr(arguments, name) for name in ("data", "newstest", "out")}
    common["seconds"] = arguments.seconds or (120 if arguments.ablate else 480)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.ablate:
        lines = read_ablations(arguments.ablate)
        jobs = [
            Job(name=name, system="regard", settings=(*arguments.settings, *more), **common) for name, more in lines
        ]
    else:
        peer = tuple(
            (name, getattr(arguments, f"marian_{name}"))
            for name in ("rows", "lr", "warmup", "schedule", "dropout", "compile")
        )
        jobs = [
            Job(
                name=name,
                system=name,
                settings=tuple(arguments.settings),
                peer=peer if name == "marian" else (),
                **common,
            )
            for name in arguments.systems.split(",")
        ]
    if "prepare" in stages:
        prepare_texts(jobs)
    try:
        if arguments.ablate:
            ablate(jobs, stages, steps)
            return
        for job in jobs:
            for stage in ("trial", "train", "translate"):
                if stage in stages and not (stage == "trial" and (job.name in steps or job.system == "marian")):
                    do(job, stage, steps.get(job.name))
        if "score" in stages:
            score(jobs)
    except Failed as error:
        sys.exit(f"It failed. {error}")


if __name__ == "__main__":
    main()
