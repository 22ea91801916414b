"""A distilled student of the bundled model: a small Transformer that learns from the teacher's translations, beside the teacher and
beside the same student that learns from the references.

    python benchmarks/distilled_student.py --out DIR [--device cuda] [--steps 15000] [--pairs 0] [section.key=value ...]
    python benchmarks/distilled_student.py --measure DIR/distilled DIR/references [--engines torch,ctranslate2] [--device cpu]

The teacher (the bundled model, beam 5) translates the source side of its own training text, as `regard distil` does. The students
are trained in processes of their own, with the recipe `tatoeba-en-de` but for their size (2 + 1 layers
of half the width) and the teacher's tokenizer. Held-out pairs are the recipe's: no sentence of theirs is in the training text. The
students' weights are stored in half precision, as the teacher's are. With `--begin layers`, they are the teacher with three of its
five encoder layers and one of its two decoder layers, trained further: less work, so that a CPU will do.

`--measure` reads finished folders. BLEU and chrF are sacreBLEU's over the 2,000 held-out pairs; sentences per second are over the
first `--timed` of them, in batches and one by one, the best of `--rounds` rounds. One JSON line per model, and a table.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import platform
import shutil
import tempfile
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sacrebleu
import torch

import regard
from bundled_model import RECIPE, pack
from regard.core import config as configuration
from regard.core.files import load_tensors, read_json, save_tensors, write_json, write_manifest
from regard.core.launcher import Launched
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.data.split import Pairs, gathered
from regard.tasks.big_files import Made, work_through
from regard.tasks.folder import CONFIG, DATA, RUN, WEIGHTS
from regard.tasks.pretrained import bundled_model
from regard.tasks.synthetic_pairs import make_pairs
from regard.tasks.translation import Translator
from regard.training.progress import Reporter

STUDENT = ("model.encoder_layers=2", "model.decoder_layers=1", "model.width=128", "model.heads=4", "model.inner=384",
           "model.dropout=0.1")  # fmt: skip
PARTS = ("train", "valid", "test")


def write_pairs(path: Path, pairs: Pairs) -> None:
    lines = [f"{s}\t{t}\n" for s, t in zip(pairs.sources, pairs.targets, strict=True)]
    path.write_text("".join(lines), encoding="utf-8")


def write_text(work: Path, most: int) -> None:
    """The recipe's three parts as files, so that both students get the very same ones."""
    data = read_json(bundled_model() / "config.json")["data"]
    corpus = load_corpus(configuration.build(DataConfig, {**data, "max_pairs": most}, "data"))
    for name in PARTS:
        write_pairs(work / f"{name}.tsv", gathered(getattr(corpus, name).chunks()))
    sources = [line.partition("\t")[0] for line in (work / "train.tsv").read_text(encoding="utf-8").splitlines()]
    (work / "train.en").write_text("".join(f"{one}\n" for one in sources), encoding="utf-8")


def distil(teacher: Translator, sources: Path, out: Path, beam: int) -> dict[str, Any]:
    """A file of pairs: each source and the teacher's translation of it."""
    settings = dataclasses.replace(teacher.search, beam=beam, nbest=1)

    def made(first: int, lines: list[str]) -> Made:
        return make_pairs(teacher, "distil", lines, settings, first_line=first + 1)

    began = time.perf_counter()
    counts = work_through(sources, out, {"beam": beam}, Launched(), lambda: made)
    return {**counts, "seconds": round(time.perf_counter() - began, 1)}


def teach(work: Path, device: str) -> dict[str, Any]:
    """The bundled model's translation of every training source, in distilled.tsv."""
    teacher: Translator = regard.load(bundled_model(), device, engine="torch" if device == "cuda" else "auto")
    return distil(teacher, work / "train.en", work / "distilled.tsv", beam=5)


def some_layers(out: Path) -> None:
    """The teacher with every other layer left out, as a run to begin with."""
    folder, encoder, decoder = bundled_model(), (0, 2, 4), (0,)
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in load_tensors(folder / WEIGHTS).items():
        part, _, rest = name.partition(".")
        kept = {"encoder": encoder, "decoder": decoder}.get(part)
        number, _, inside = rest.partition(".")
        if kept is None:
            weights[name] = tensor.float()
        elif int(number) in kept:
            weights[f"{part}.{kept.index(int(number))}.{inside}"] = tensor.float()
    out.mkdir(parents=True)
    config = read_json(folder / CONFIG)
    config["model"] |= {"encoder_layers": len(encoder), "decoder_layers": len(decoder)}
    write_json(out / CONFIG, config)
    save_tensors(out / WEIGHTS, weights)
    names = [DATA, *(path.name for path in folder.glob("tokenizer*.json"))]
    for name in names:
        shutil.copyfile(folder / name, out / name)
    write_manifest(out, [WEIGHTS, CONFIG, *names])


def train_student(name: str, pairs: Path, work: Path, out: Path, settings: list[str], begin: str) -> None:
    run = work / f"run-{name}"
    files = [f"data.valid_pairs={work / 'valid.tsv'}", f"data.test_pairs={work / 'test.tsv'}"]
    if begin == "layers":
        first = work / f"first-{name}"
        some_layers(first)
        own = [*files, "data.check=false", *settings]
        regard.train(pairs=str(pairs), out=run, settings=own, start_from=first, report=Reporter(quiet=True))
        return store(run, out)
    own = [*STUDENT, *files, "data.check=false", f"tokenizer.folder={bundled_model()}", *settings]
    regard.train(RECIPE, pairs=str(pairs), out=run, settings=own, report=Reporter(quiet=True))
    store(run, out)


def store(run: Path, out: Path) -> None:
    pack(run, out)
    kept = {
        key: value for key, value in read_json(run / RUN).items() if key in ("format", "versions", "status", "summary")
    }
    write_json(out / RUN, {**kept, "command": "benchmarks/distilled_student.py"})


def training(name: str, pairs: Path, work: Path, asked: argparse.Namespace, settings: list[str]) -> BaseProcess:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=train_student, args=(name, pairs, work, asked.out / name, settings, asked.begin))
    process.start()
    return process


def make_students(work: Path, asked: argparse.Namespace, settings: list[str]) -> None:
    """Both students; one learns from the references while the teacher still writes for the other."""
    began = time.perf_counter()
    write_text(work, asked.pairs)
    steps = [f"train.steps={asked.steps}", f"train.device={asked.device}", *settings]
    running = [training("references", work / "train.tsv", work, asked, steps)]
    print(json.dumps({"distil": teach(work, asked.device)}), flush=True)
    running.append(training("distilled", work / "distilled.tsv", work, asked, steps))
    for one in running:
        one.join()
    if any(one.exitcode for one in running):
        raise SystemExit("a student was not trained: see above")
    print(json.dumps({"seconds": round(time.perf_counter() - began, 1)}), flush=True)


def speed(translator: Translator, texts: list[str], beam: int, rounds: int, *, alone: bool) -> float:
    """Sentences per second, in batches or one at a time."""
    settings = dataclasses.replace(translator.search, beam=beam, nbest=1)
    some = texts[: max(1, len(texts) // 5)] if alone else texts
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        if alone:
            for text in some:
                translator.translate(text, search=settings)
        else:
            translator.translate(some, search=settings)
        best = min(best, time.perf_counter() - began)
    return len(some) / best


def measure(name: str, folder: Path, test: Pairs, asked: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name}
    for engine in asked.engines.split(","):
        translator: Translator = regard.load(folder, asked.device, engine=engine)
        translator.translate(test.sources[:64])
        if "parameters" not in row:
            scorer = translator if engine == "torch" else regard.load(folder, asked.device, engine="torch")
            row["parameters"] = scorer.model.parameters_count()
            for beam in (5, 1):
                texts = scorer.translate(test.sources, beam=beam)
                row[f"bleu_{beam}"] = round(sacrebleu.corpus_bleu(texts, [test.targets]).score, 2)
                row[f"chrf_{beam}"] = round(sacrebleu.corpus_chrf(texts, [test.targets]).score, 2)
        texts = test.sources[: asked.timed]
        for beam in (5, 1):
            row[f"{engine}_{beam}"] = round(speed(translator, texts, beam, asked.rounds, alone=False), 1)
            row[f"{engine}_{beam}_alone"] = round(speed(translator, texts, beam, asked.rounds, alone=True), 1)
    return row


def measure_all(folders: dict[str, Path], asked: argparse.Namespace) -> list[dict[str, Any]]:
    data = read_json(bundled_model() / "config.json")["data"]
    test = gathered(load_corpus(configuration.build(DataConfig, data, "data")).test.chunks())
    if asked.sentences:
        test = test.head(asked.sentences)
    rows = []
    for name, folder in folders.items():
        rows.append(measure(name, folder, test, asked))
        print(json.dumps(rows[-1]), flush=True)
    names = list(rows[0])
    print("\n| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(f"{row[one]:,}" if not isinstance(row[one], str) else row[one] for one in names) + " |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", type=Path, nargs="+", help="finished folders; the teacher is measured, too")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=15_000)
    parser.add_argument("--begin", choices=("nothing", "layers"), default="nothing")
    parser.add_argument("--pairs", type=int, default=0, help="of the training text; 0: all")
    parser.add_argument("--engines", default="torch", help="torch, ctranslate2, by commas")
    parser.add_argument("--sentences", type=int, default=0, help="of the held-out pairs; 0: all 2,000")
    parser.add_argument("--timed", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    asked, settings = parser.parse_known_args()
    if wrong := [one for one in settings if one.startswith("-") or "=" not in one]:
        parser.error(f"not known: {' '.join(wrong)}")
    print(
        json.dumps({"torch": torch.__version__, "python": platform.python_version(), "device": asked.device}),
        flush=True,
    )
    if asked.measure:
        measure_all({"teacher": bundled_model(), **{folder.name: folder for folder in asked.measure}}, asked)
        return
    if asked.out is None:
        parser.error("give --out or --measure")
    asked.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp())
    try:
        make_students(work, asked, settings)
        folders = {name: asked.out / name for name in ("distilled", "references")}
        rows = measure_all({"teacher": bundled_model(), **folders}, asked)
        write_json(
            asked.out / "distilled_student.json", {"rows": rows, "steps": asked.steps, "torch": torch.__version__}
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
