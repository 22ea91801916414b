"""BERT: pre-trained on plain text, then fine-tuned on SST-2, TREC and UD-EWT part-of-speech tags; beside the same from nothing.

    python benchmarks/bert.py --text DIR --data DIR --tagging DIR [--bert RUN] [--size gpu|cpu] [--pretrain "section.key=value ..."]
        [--tasks sst2,trec,ewt] [--starts pretrained,nothing] [--seeds 1,2,3] [--out DIR]
        [--fine "section.key=value ..."] [--nothing "section.key=value ..."] [section.key=value ...]

--text is a folder with WikiText-2 (wiki.train.tokens and the others, .xz or not) or one plain text file. Of WikiText, an article
becomes a document, the marks around "-", "," and "." inside words and numbers go ("@-@"), and "<unk>" becomes one sign. --data
holds stsa.binary.{train,dev,test} (SST-2, whole sentences) and TREC.{train,test}.all: lines whose first word is the label.
--tagging holds {train,dev,test}.conllu[.xz] of UD English EWT. --bert is a finished run of a bert; without it, one is trained.

`gpu` is the recipe wikitext2-bert, made for minutes on an H200; `cpu` is a small model, to try the script on two cores. `nothing`
begins with the same shape and tokenizer and fresh weights; it learns with a higher rate and for longer, since a few epochs teach
it little. SST-2 and EWT are validated on their dev parts, TREC on 500 held-out training questions; the best weights by validation
are tested. What is finished in --out is not done again, and what was stopped goes on. One JSON line per run, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import shutil
import statistics
from pathlib import Path

import torch

import regard
from regard.core.files import read_json, save_tensors, write_json, write_manifest
from regard.data.labelled import read_labelled
from regard.data.tokenizers import TokenizerPair
from regard.models.base import build_model
from regard.tasks.folder import CONFIG, RUN, WEIGHTS, load_model, tokenizer_names, weights_of
from regard.training.progress import Reporter
from regard.training.run_parts import RunResult

LABELLED = {
    "sst2": {"labelled": "stsa.binary.train", "valid_labelled": "stsa.binary.dev", "test_labelled": "stsa.binary.test"},
    "trec": {"labelled": "TREC.train.all", "test_labelled": "TREC.test.all"},
}
HELD_OUT = {"trec": 500}
TAGGED = {"tagged": "train", "valid_tagged": "dev", "test_tagged": "test"}
TEXTS = 32  # of a batch
EPOCHS = {"pretrained": 5, "nothing": 12}
RATE = {"pretrained": 5e-5, "nothing": 2e-4}  # at a width of 768; Devlin et al. 2018 use 2e-5 to 5e-5
RECIPE = "wikitext2-bert"
CPU = (
    "tokenizer.size=8000 model.width=192 model.layers=3 model.heads=3 model.context=66 train.steps=1500 train.batch_tokens=2048 "
    "train.lr=1e-3 train.warmup=150 train.save_every=500 train.precision=float32"
)
UNKNOWN = "⁇"


def articles(path: Path, out: Path) -> Path:
    """WikiText with an article as a document: its lines, then an empty line."""
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    found: list[list[str]] = [[]]
    for line in content.decode().split("\n"):
        line = re.sub(r" @([-,.])@ ", r"\1", line).replace("<unk>", UNKNOWN).strip()
        if re.fullmatch(r"= [^=].*[^=] =", line):
            found.append([])
        if line:
            found[-1].append(line.strip("= ") if line.startswith("= ") else line)
    out.write_text("\n\n".join("\n".join(lines) for lines in found if lines) + "\n", encoding="utf-8")
    return out


def text_settings(text: Path, out: Path) -> list[str]:
    out.mkdir(parents=True, exist_ok=True)
    settings = ["data.documents=blank"]
    for setting, part in (("text", "train"), ("valid_text", "valid"), ("test_text", "test")):
        path = next((p for p in (text / f"wiki.{part}.tokens", text / f"wiki.{part}.tokens.xz") if p.exists()), None)
        if path is None:
            raise SystemExit(f"{text}: there is no wiki.{part}.tokens, with or without .xz.")
        settings.append(f"data.{setting}={articles(path, out / f'{part}.txt').absolute()}")
    return settings


def carried_out(folder: Path, start) -> RunResult:
    """A run's result: of a finished one as it is, of a stopped one after it has gone on, else of a new one."""
    result = regard.resume(folder, report=Reporter(quiet=True)) if (folder / RUN).is_file() else start()
    if result.interrupted is not None:
        raise SystemExit(128 + result.interrupted)
    return result


def pretrained(arguments: argparse.Namespace) -> Path:
    if arguments.bert is not None:
        return arguments.bert
    if arguments.text is None:
        raise SystemExit("Give --bert RUN or --text DIR.")
    folder = arguments.out / "bert"
    one_file = arguments.text.is_file()
    settings = [] if one_file else text_settings(arguments.text, arguments.out / "text")
    settings += [*(CPU.split() if arguments.size == "cpu" else []), *arguments.pretrain.split()]

    def start() -> RunResult:
        text = str(arguments.text.absolute()) if one_file else ""
        return regard.train(RECIPE, out=folder, text=text, settings=settings, report=Reporter())

    result = carried_out(folder, start)
    scores = {name: round(score.value, 3) for name, score in result.scores.items()}
    print(json.dumps({"task": "pre-training", **scores, "training_seconds": result.summary["seconds"]}), flush=True)
    return folder


def untrained(bert: Path, out: Path, seed: int) -> Path:
    """A copy of a run with fresh weights."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    model, tokenizers, config = load_model(bert)
    torch.manual_seed(seed)
    sizes = {f"{side}_vocabulary": config["vocabulary"][side] for side in ("source", "target")}
    fresh = build_model(model.config.name, model.config, **sizes, shared=config["vocabulary"]["shared"])
    tokenizers.save(out)
    write_json(out / CONFIG, config)
    save_tensors(out / WEIGHTS, weights_of(fresh))
    write_manifest(out, [WEIGHTS, CONFIG, *tokenizer_names(out)])
    return out


def labelled_files(data: Path, task: str, out: Path) -> dict[str, Path]:
    """The task's files in UTF-8; those of TREC are in Latin-1."""
    out.mkdir(parents=True, exist_ok=True)
    found = {}
    for setting, name in LABELLED[task].items():
        content = (data / name).read_bytes()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = content.decode("latin-1").replace("\x85", " ")  # a line break to some readers
        found[setting] = (out / name).absolute()
        found[setting].write_text(text, encoding="utf-8")
    return found


def tagged_files(tagging: Path) -> dict[str, Path]:
    found = {}
    for setting, part in TAGGED.items():
        names = [tagging / f"{part}.conllu", tagging / f"{part}.conllu.xz"]
        found[setting] = next((name for name in names if name.exists()), names[0]).absolute()
    return found


def sentences_in(path: Path) -> list[str]:
    """The sentences of a CoNLL-U file, as its comments write them."""
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    rows = [row.split("\n") for row in content.decode().split("\n\n")]
    words = [[line.split("\t")[1] for line in row if line[:1].isdigit()] for row in rows]
    return [" ".join(row) for row in words if row]


def schedule(bert: Path, texts: list[str], start: str) -> list[str]:
    """Steps and learning rate for the task's training text."""
    tokens = sum(map(len, TokenizerPair.load(bert).source.encode_many(texts))) / len(texts)
    steps = EPOCHS[start] * len(texts) // TEXTS
    width = read_json(bert / CONFIG)["model"]["width"]
    return [
        f"train.steps={steps}",
        f"train.batch_tokens={round(TEXTS * tokens * 1.1)}",  # batches are of similar lengths, not of equal ones
        f"train.lr={RATE[start] * max(1.0, 768 / width)}",
        f"train.warmup={max(1, steps // 10)}",
        "train.schedule=linear",
        "train.beta2=0.999",
        "train.eps=1e-6",
        "train.weight_decay=0.01",
        "train.label_smoothing=0",
        f"train.save_every={max(10, steps // 10)}",
        "train.best_by=accuracy",
    ]


def one(task: str, start: str, seed: int, bert: Path, arguments: argparse.Namespace, extra: list[str]) -> dict:
    out: Path = arguments.out
    if task == "ewt":
        files = tagged_files(arguments.tagging)
        texts = sentences_in(files["tagged"])
    else:
        files = labelled_files(arguments.data, task, out / "data")
        texts = list(read_labelled(files["labelled"]).part.texts)
    folder = out / f"{task}-{start}-{seed}"

    def begin() -> RunResult:
        from_run = bert if start == "pretrained" else untrained(bert, out / f"untrained-{seed}", seed)
        settings = [f"data.{setting}={path}" for setting, path in files.items()]
        if task in HELD_OUT:
            settings += [f"data.valid_size={HELD_OUT[task]}", "data.test_size=-1"]
        settings += [*schedule(bert, texts, start), f"train.seed={seed}", *extra]
        return regard.train(out=folder, start_from=from_run, settings=settings, report=Reporter(quiet=True))

    result = carried_out(folder, begin)
    best = read_json(folder / RUN)["summary"]["best_step"]
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    valid = next(row["valid_accuracy"] for row in logged if row["step"] == best and "valid_accuracy" in row)
    score = result.scores["accuracy"]
    return {
        "task": task,
        "start": start,
        "seed": seed,
        "valid_accuracy": round(valid, 2),
        "accuracy": round(score.value, 2),
        "low": round(score.low or 0, 2),
        "high": round(score.high or 0, 2),
        "steps": result.summary["steps"],
        "best_step": best,
        "training_seconds": result.summary["seconds"],
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }


def table(rows: list[dict]) -> None:
    print(f"{'task':6} {'start':11} {'seeds':>5} {'valid':>7} {'accuracy':>9} {'± sd':>6} {'seconds':>8}")
    for task, start in dict.fromkeys((row["task"], row["start"]) for row in rows):
        same = [row for row in rows if (row["task"], row["start"]) == (task, start)]
        valid, accuracy, seconds = (
            statistics.mean(row[key] for row in same) for key in ("valid_accuracy", "accuracy", "training_seconds")
        )
        spread = statistics.stdev(row["accuracy"] for row in same) if len(same) > 1 else 0.0
        print(f"{task:6} {start:11} {len(same):5} {valid:7.2f} {accuracy:9.2f} {spread:6.2f} {seconds:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="WikiText-2's folder, or a plain text file")
    parser.add_argument("--data", type=Path, help="the folder of SST-2 and TREC")
    parser.add_argument("--tagging", type=Path, help="the folder of UD-EWT")
    parser.add_argument("--bert", type=Path, help="a run of a bert, instead of --text")
    parser.add_argument("--size", choices=("gpu", "cpu"), default="gpu" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pretrain", default="", help="settings of pre-training")
    parser.add_argument("--tasks", default="sst2,trec,ewt")
    parser.add_argument("--starts", default="pretrained,nothing")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=Path, default=Path("runs/bert"))
    parser.add_argument("--fine", default="", help="settings of the runs that begin pre-trained")
    parser.add_argument("--nothing", default="", help="settings of the runs that begin with nothing")
    parser.add_argument("settings", nargs="*", help="section.key=value over all fine-tuning")
    arguments = parser.parse_args()
    tasks = [task for task in arguments.tasks.split(",") if task]
    for task in tasks:
        if (arguments.tagging if task == "ewt" else arguments.data) is None:
            raise SystemExit(f"{task}: give --{'tagging' if task == 'ewt' else 'data'} DIR.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    bert = pretrained(arguments)
    extra = {"pretrained": arguments.fine.split(), "nothing": arguments.nothing.split()}
    rows = []
    for task in tasks:
        for start in arguments.starts.split(","):
            for seed in map(int, arguments.seeds.split(",")):
                rows.append(one(task, start, seed, bert, arguments, [*extra[start], *arguments.settings]))
                print(json.dumps(rows[-1]), flush=True)
    if rows:
        table(rows)


if __name__ == "__main__":
    main()
