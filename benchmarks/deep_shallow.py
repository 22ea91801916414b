"""Deep encoders with shallow decoders: what they cost in BLEU, learning from the references and from a teacher's translations.

    python benchmarks/deep_shallow.py --data DIR [--recipe multi30k-quick] [--layers 6+6,6+2,12+1] [--seeds 1,2,3] [--at-once 1]
        [--learns references,teacher,layers] [--pairs N] [--teacher-steps N] [--student-steps N] [--student "section.key=value ..."]
        [--out DIR] [section.key=value ...]

DIR is the recipe's data.folder. The first of --layers is the teacher. Every depth is trained on the references; each teacher then
translates its own training text (`regard distil`: its search, one hypothesis; on a GPU in bfloat16), and the other depths are
trained on that, too, with the teacher's seed, tokens and settings (--learns teacher: on that alone); with --learns layers, on that,
and beginning with layers of the teacher (`regard train --from`). All are scored on the recipe's
test files: tokenised lower-cased text for Multi30k's lower-cased files, sacreBLEU of detokenised, cased text else. Each run is a
process of its own, --at-once of them beside each other (so that seconds do not count). How fast such models decode:
`decode_cpu.py --layers`.

One JSON line for each run, a table of means and of differences from the teacher last. What is finished in OUT is not done again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import statistics
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

import regard
from distilled_student import distil
from regard.core.files import read_json, write_bytes, write_json
from regard.data.corpus import load_corpus
from regard.data.split import gathered
from regard.tasks.big_files import parts_folder
from regard.tasks.pretrained import load_translator
from regard.training.config import RunConfig, build_run_config
from regard.training.progress import Reporter
from regard.training.request import gather, nested
from timed_training import Failed, beside

REFERENCES, TEACHER, LAYERS = "references", "teacher", "layers"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A model to train: its depths, its seed, whose translations it learns, and whose layers it begins with."""

    recipe: str
    layers: str
    seed: int
    learns: str
    out: Path
    settings: tuple[str, ...]
    teaches: bool = False
    begins_with: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.layers}-{self.learns}-{self.seed}"

    @property
    def folder(self) -> Path:
        return self.out / self.name

    def taught(self) -> Path:
        """The training text as this run has translated it."""
        return self.out / f"{self.name}.tsv"

    def all_settings(self) -> list[str]:
        encoder, decoder = self.layers.split("+")
        own = [f"model.encoder_layers={encoder}", f"model.decoder_layers={decoder}", f"train.seed={self.seed}"]
        return [*self.settings, "data.check=false", *own]


def train(run: Run) -> dict[str, Any]:
    """Trains, scores and, where it is a teacher, translates its training text."""
    config = build_run_config(gather(run.recipe, {}, nested(run.all_settings()), None))
    data = config.data
    lowercase = ".lc." in data.test_src  # as the papers score it
    for begun in (run.folder, parts_folder(run.taught())):  # before, and not finished
        shutil.rmtree(begun, ignore_errors=True)
    made = regard.train(
        run.recipe,
        out=run.folder,
        settings=run.all_settings(),
        start_from=run.begins_with,
        report=Reporter(quiet=True),
    )
    row: dict[str, Any] = {"layers": run.layers, "learns": run.learns, "seed": run.seed}
    row |= {"steps": made.summary["steps"], "training_seconds": made.summary["seconds"]}
    folder = Path(data.folder)
    texts = {"valid": (data.valid_src, data.valid_tgt), "test": (data.test_src, data.test_tgt)}
    for text, (source, reference) in texts.items():
        system = regard.evaluate(
            run.folder, src=folder / source, ref=folder / reference, tokenized=lowercase, lowercase=lowercase
        ).system
        for metric in ("bleu", "chrf"):
            row[f"{text}_{metric}"] = round(system.scores[metric].value, 2)
        row |= {"signature": system.scores["bleu"].signature}
    row |= {"parameters": load_translator(run.folder).model.parameters_count(), "torch": torch.__version__}
    if run.teaches:
        translator = regard.load(run.folder, compute="bfloat16" if torch.cuda.is_available() else "auto")
        sources = run.out / f"{run.name}.sources"
        write_bytes(sources, "".join(f"{source}\n" for source, _ in training_pairs(config)).encode())
        row["distilled"] = distil(translator, sources, run.taught(), translator.search.beam)
    return row


def done(run: Run) -> dict[str, Any]:
    """What was found out before, or is now."""
    path = run.out / f"{run.name}.json"
    if not path.exists():
        write_json(path, {**beside(train, run), "asked": run.all_settings()})
    row = read_json(path)
    if row.pop("asked") != run.all_settings():
        raise Failed(f"{path}: it is of a run with other settings. Give another --out, or delete it")
    return row


def references(asked: argparse.Namespace) -> Path:
    """The recipe's training text, or its first pairs, as the file that all runs on references read."""
    path = asked.out / f"references-{asked.pairs or 'all'}.tsv"
    if not path.exists():
        values = nested([*asked.settings, f"data.folder={asked.data.absolute()}", f"data.max_pairs={asked.pairs}"])
        pairs = training_pairs(build_run_config(gather(asked.recipe, {}, values, None)))
        write_bytes(path, "".join(f"{source}\t{target}\n" for source, target in pairs).encode())
    return path


def training_pairs(config: RunConfig) -> list[tuple[str, str]]:
    """Its training text, blanks in a row as one: a tab is between the sides."""
    pairs = gathered(load_corpus(config.data).train.chunks())
    return [(" ".join(s.split()), " ".join(t.split())) for s, t in zip(pairs.sources, pairs.targets, strict=True)]


def runs(asked: argparse.Namespace) -> tuple[list[Run], dict[str, list[Run]]]:
    """Those that learn from the references, the teachers first; and by the name of a teacher, those that learn from it."""
    first, *others = asked.layers.split(",")
    common = [*asked.settings, f"data.folder={asked.data.absolute()}", "data.src=", "data.tgt="]
    text = f"data.pairs={references(asked).absolute()}"
    steps = {
        name: [f"train.steps={n}"] if n else [] for name, n in (("t", asked.teacher_steps), ("s", asked.student_steps))
    }

    def run(layers: str, seed: int, learns: str, *settings: str, **more: Any) -> Run:
        given = (*common, *settings)
        return Run(recipe=asked.recipe, layers=layers, seed=seed, learns=learns, out=asked.out, settings=given, **more)

    def learners(teacher: Run) -> list[Run]:
        own = [*steps["s"], *asked.student.split(), f"data.pairs={teacher.taught().absolute()}"]
        tokens = f"tokenizer.folder={teacher.folder.absolute()}"
        from_nothing = [run(layers, teacher.seed, TEACHER, tokens, *own) for layers in others]
        begun = [run(layers, teacher.seed, LAYERS, *own, begins_with=teacher.folder) for layers in others]
        return [*(from_nothing if TEACHER in learns else []), *(begun if LAYERS in learns else [])]

    seeds = [int(seed) for seed in asked.seeds.split(",")]
    teachers = [run(first, seed, REFERENCES, text, *steps["t"], teaches=True) for seed in seeds]
    learns = [word.strip() for word in asked.learns.split(",")]
    if unknown := {*learns} - {REFERENCES, TEACHER, LAYERS}:
        raise SystemExit(
            f"--learns {asked.learns}: there is no {unknown.pop()!r}. Give {REFERENCES}, {TEACHER} or {LAYERS}"
        )
    alone = [run(layers, seed, REFERENCES, text, *steps["s"]) for layers in others for seed in seeds]
    taught = {one.name: learners(one) for one in teachers}
    return [*teachers, *(alone if REFERENCES in learns else [])], taught


def work(asked: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """What was found out, and the names of runs that failed."""
    first, taught = runs(asked)
    rows: list[dict[str, Any]] = []
    failed: list[str] = []
    with ThreadPoolExecutor(asked.at_once) as pool:
        waiting: dict[Future[dict[str, Any]], Run] = {pool.submit(done, run): run for run in first}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                run = waiting.pop(future)
                try:
                    rows.append(future.result())
                except Failed as error:  # the others are still worth their time
                    print(json.dumps({"failed": run.name, "error": str(error)}), flush=True)
                    failed.append(run.name)
                    continue
                print(json.dumps(rows[-1]), flush=True)
                waiting |= {pool.submit(done, student): student for student in taught.get(run.name, [])}
    return rows, failed


def table(rows: list[dict[str, Any]], teacher: str) -> str:
    lines = [
        f"{'layers':8}{'learns from':14}{'seeds':>6}{'BLEU':>8}{'to teacher':>12}{'valid':>8}{'chrF':>8}{'M par.':>8}"
    ]
    kinds = dict.fromkeys(
        (row["layers"], row["learns"]) for row in sorted(rows, key=lambda row: row["layers"] != teacher)
    )
    best = None
    for layers, learns in kinds:
        same = [row for row in rows if (row["layers"], row["learns"]) == (layers, learns)]
        mean = {
            name: statistics.mean(row[name] for row in same)
            for name in ("test_bleu", "valid_bleu", "test_chrf", "parameters")
        }
        best = mean["test_bleu"] if best is None else best
        lines.append(
            f"{layers:8}{learns:14}{len(same):6}{mean['test_bleu']:8.2f}{mean['test_bleu'] - best:+12.2f}"
            f"{mean['valid_bleu']:8.2f}{mean['test_chrf']:8.2f}{mean['parameters'] / 1e6:8.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="multi30k-quick")
    parser.add_argument("--layers", default="6+6,6+2,12+1")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--learns", default=f"{REFERENCES},{TEACHER}", help="what others than the teacher learn from")
    parser.add_argument("--pairs", type=int, default=0, help="a sample of the training text; 0: all of it")
    parser.add_argument("--teacher-steps", type=int, help="instead of the recipe's")
    parser.add_argument("--student-steps", type=int, help="likewise")
    parser.add_argument("--student", default="", help="settings of those that learn from a teacher")
    parser.add_argument("--out", type=Path, default=Path("runs/deep-shallow"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    asked = parser.parse_intermixed_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    rows, failed = work(asked)
    print(table(rows, asked.layers.partition(",")[0]))
    if failed:
        raise SystemExit(f"these failed, see above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
