"""GPT as in 2018: pre-trained on plain text, then fine-tuned on SST-2 and TREC; beside the same model from nothing.

    python benchmarks/gpt_finetune.py --data DIR (--lm DIR | --text FILE [--recipe NAME] [--pretrain "section.key=value ..."])
        [--tasks sst2,trec] [--starts pretrained,nothing] [--seeds 1,2,3] [--out DIR]
        [--fine "section.key=value ..."] [--nothing "section.key=value ..."] [section.key=value ...]

DIR of --data holds stsa.binary.{train,dev,test} (SST-2, whole sentences) and TREC.{train,test}.all: lines whose first word is the
label. --lm is a finished run on plain text, of a gpt; without it, one is trained on --text. `nothing` begins with the same shape
and tokenizer and fresh weights; it learns with a higher rate and for longer, since three epochs teach it little.

SST-2 is validated on its dev part, TREC on 500 held-out training questions. Fine-tuning is that of Radford et al. 2018: batches of
about 32 texts, 3 epochs, warm-up over .002 of the steps, linear decay to 0, λ = 0.5, clipping at 1; its learning rate of
6.25e-5 is for a width of 768, and grows as the width shrinks. One JSON line per run, a table at the end. Runs that are finished
in OUT are not made again, so that parts can be made side by side, and the table of all of them afterwards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from pathlib import Path

import torch

import regard
from regard.core.files import read_json, save_tensors, write_json, write_manifest
from regard.data.labelled import read_labelled
from regard.data.tokenizers import TokenizerPair
from regard.models.base import build_model
from regard.tasks.folder import CONFIG, WEIGHTS, load_model, tokenizer_names, weights_of
from regard.training.progress import Reporter

FILES = {
    "sst2": {"labelled": "stsa.binary.train", "valid_labelled": "stsa.binary.dev", "test_labelled": "stsa.binary.test"},
    "trec": {"labelled": "TREC.train.all", "test_labelled": "TREC.test.all"},
}
HELD_OUT = {"trec": 500}
TEXTS = 32  # of a batch
EPOCHS = {"pretrained": 3, "nothing": 10}
RATE = {"pretrained": 6.25e-5, "nothing": 2.5e-4}  # at a width of 768


def prepare(data: Path, task: str, out: Path) -> dict[str, Path]:
    """The task's files in UTF-8; those of TREC are in Latin-1."""
    out.mkdir(parents=True, exist_ok=True)
    found = {}
    for setting, name in FILES[task].items():
        content = (data / name).read_bytes()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = content.decode("latin-1").replace("\x85", " ")  # a line break to some readers
        found[setting] = (out / name).absolute()
        found[setting].write_text(text, encoding="utf-8")
    return found


def untrained(lm: Path, out: Path, seed: int) -> Path:
    """A copy of a language model's run with fresh weights."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    model, tokenizers, config = load_model(lm)
    torch.manual_seed(seed)
    sizes = {f"{side}_vocabulary": config["vocabulary"][side] for side in ("source", "target")}
    fresh = build_model(model.config.name, model.config, **sizes, shared=config["vocabulary"]["shared"])
    tokenizers.save(out)
    write_json(out / CONFIG, config)
    save_tensors(out / WEIGHTS, weights_of(fresh))
    write_manifest(out, [WEIGHTS, CONFIG, *tokenizer_names(out)])
    return out


def schedule(lm: Path, files: dict[str, Path], start: str) -> list[str]:
    """Steps and learning rate for the task's training text."""
    texts = read_labelled(files["labelled"]).part.texts
    tokens = sum(map(len, TokenizerPair.load(lm).source.encode_many(texts))) / len(texts)
    steps = EPOCHS[start] * len(texts) // TEXTS
    width = read_json(lm / CONFIG)["model"]["width"]
    return [
        f"train.steps={steps}",
        f"train.batch_tokens={round(TEXTS * tokens * 1.1)}",  # batches are of similar lengths, not of equal ones
        f"train.lr={RATE[start] * max(1.0, 768 / width)}",
        f"train.warmup={max(1, round(steps * (0.002 if start == 'pretrained' else 0.05)))}",
        f"train.save_every={max(10, steps // 12)}",
    ]


def one(task: str, start: str, seed: int, lm: Path, data: Path, out: Path, extra: list[str]) -> dict:
    told = out / f"{task}-{start}-{seed}.json"
    if told.exists():
        return read_json(told)
    files = prepare(data, task, out / f"data-{task}-{start}")
    begin = lm if start == "pretrained" else untrained(lm, out / f"untrained-{task}-{seed}", seed)
    settings = [f"data.{setting}={path}" for setting, path in files.items()]
    if task in HELD_OUT:
        settings += [f"data.valid_size={HELD_OUT[task]}", "data.test_size=-1"]
    settings += [*schedule(lm, files, start), f"train.seed={seed}", *extra]
    folder = out / f"{task}-{start}-{seed}"
    result = regard.train(out=folder, start_from=begin, settings=settings, report=Reporter(quiet=True))
    accuracy, f1 = result.scores["accuracy"], result.scores["macro_f1"]
    best = read_json(folder / "run.json")["summary"]["best_step"]
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    valid = next(row["valid_accuracy"] for row in logged if row["step"] == best and "valid_accuracy" in row)
    row = {
        "task": task,
        "start": start,
        "seed": seed,
        "valid_accuracy": round(valid, 2),
        "accuracy": round(accuracy.value, 2),
        "low": round(accuracy.low or 0, 2),
        "high": round(accuracy.high or 0, 2),
        "macro_f1": round(f1.value, 2),
        "steps": result.summary["steps"],
        "best_step": best,
        "training_seconds": result.summary["seconds"],
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }
    write_json(told, row)
    return row


def language_model(arguments: argparse.Namespace) -> Path:
    if arguments.lm is not None:
        return arguments.lm
    if arguments.text is None:
        raise SystemExit("Give --lm DIR or --text FILE.")
    folder = arguments.out / "lm"
    if not (folder / WEIGHTS).exists():
        result = regard.train(
            arguments.recipe,
            out=folder,
            text=str(arguments.text.absolute()),
            settings=arguments.pretrain.split(),
            report=Reporter(quiet=True),
        )
        scores = {name: round(score.value, 4) for name, score in result.scores.items()}
        print(json.dumps({"task": "pre-training", **scores, "training_seconds": result.summary["seconds"]}), flush=True)
    return folder


def table(rows: list[dict]) -> None:
    print(
        f"{'task':6} {'start':11} {'seeds':>5} {'valid':>7} {'accuracy':>9} {'± sd':>6} {'macro F1':>9} {'seconds':>8}"
    )
    for task, start in dict.fromkeys((row["task"], row["start"]) for row in rows):
        same = [row for row in rows if (row["task"], row["start"]) == (task, start)]
        mean = {
            key: statistics.mean(row[key] for row in same)
            for key in ("valid_accuracy", "accuracy", "macro_f1", "training_seconds")
        }
        spread = statistics.stdev(row["accuracy"] for row in same) if len(same) > 1 else 0.0
        print(
            f"{task:6} {start:11} {len(same):5} {mean['valid_accuracy']:7.2f} {mean['accuracy']:9.2f} {spread:6.2f} "
            f"{mean['macro_f1']:9.2f} {mean['training_seconds']:8.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lm", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--recipe")
    parser.add_argument("--pretrain", default="", help="settings of pre-training")
    parser.add_argument("--tasks", default="sst2,trec")
    parser.add_argument("--starts", default="pretrained,nothing")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=Path, default=Path("runs/gpt-finetune"))
    parser.add_argument("--fine", default="", help="settings of the runs that begin pre-trained")
    parser.add_argument("--nothing", default="", help="settings of the runs that begin with nothing")
    parser.add_argument("settings", nargs="*", help="section.key=value over all fine-tuning")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    lm = language_model(arguments)
    extra = {"pretrained": arguments.fine.split(), "nothing": arguments.nothing.split()}
    rows = []
    for task in arguments.tasks.split(","):
        for start in arguments.starts.split(","):
            for seed in map(int, arguments.seeds.split(",")):
                settings = [*extra[start], *arguments.settings]
                rows.append(one(task, start, seed, lm, arguments.data, arguments.out, settings))
                print(json.dumps(rows[-1]), flush=True)
    table(rows)


if __name__ == "__main__":
    main()
