"""The work of time_to_quality.py, each piece in a process of its own: training and translating, and regard's trials."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import regard
from regard.comparing.budget import Vocabulary, count_parameters, step_seconds, steps_within, trial_seconds, with_steps
from regard.core import config as configuration
from regard.core.errors import RegardError
from regard.core.files import read_json, write_bytes
from regard.data.corpus import load_corpus
from regard.data.reading import read_lines
from regard.data.store import TokenStore
from regard.data.tokenizers import TokenizerPair
from regard.tasks.folder import CONFIG, METRICS, WEIGHTS
from regard.training.config import RunConfig, build_run_config
from regard.training.log import read_metrics
from regard.training.progress import Reporter
from regard.training.regions import COMPILE_SECONDS, SAVED
from regard.training.request import gather, nested
from regard.training.text import token_store, train_tokenizers

RECIPE = "europarl-en-de"
MARGIN = 0.01  # of the time: for validation, and for shapes of batches that a trial did not meet
LONGEST_TRIAL = 40.0  # seconds after the first line of its log: the first half still meets new shapes of batches
NEVER = 1_000_000_000
# Marian's memory grows, instead of new pieces for every length of batch, each of which the driver takes long to give
ENVIRONMENT = {"marian": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "regard": {}}
SAME_SPEED = {f"train.{name}" for name in ("lr", "matrix_lr", "beta1", "beta2", "eps", "weight_decay", "clip", "schedule", "warmup",
              "final_lr", "label_smoothing", "seed")}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One system to train, with all that its process needs to know."""

    name: str
    system: str
    seconds: float
    data: Path
    newstest: Path | None
    out: Path
    settings: tuple[str, ...]
    peer: tuple[tuple[str, Any], ...] = ()

    def values(self) -> dict[str, Any]:
        """Settings over the recipe. The run itself is scored on lines of dev."""
        own = {
            "folder": str(self.data.absolute()),
            "store": str((self.out / "prepared").absolute()),
            "test_src": str((self.out / "dev.src").absolute()),
            "test_tgt": str((self.out / "dev.ref").absolute()),
            "check": False,
        }
        given = nested(self.settings)
        values = configuration.merge({"data": own}, given)
        if "compile" not in given.get("train", {}):  # by the time, which the number of steps will follow from
            pays = torch.cuda.is_available() and self.seconds * SAVED > COMPILE_SECONDS
            values = configuration.merge(values, {"train": {"compile": pays}})
        return values

    def config(self) -> RunConfig:
        return build_run_config(gather(RECIPE, {}, self.values(), None))

    def asked(self) -> dict[str, Any]:
        """What a result is of, as JSON has it."""
        peer = {name: value for name, value in self.peer if value}
        asked = {"seconds": float(self.seconds), "settings": list(self.settings), **({"peer": peer} if peer else {})}
        return asked if self.system == "regard" else {**asked, "by": "the clock"}

    def path(self, ending: str) -> Path:
        return self.out / f"{self.name}.{ending}"

    def trial_path(self) -> Path:
        """Jobs that differ in nothing that changes the speed share a trial."""
        told = [setting for setting in self.settings if setting.partition("=")[0] not in SAME_SPEED]
        key = json.dumps([self.system, sorted(told), self.values()["train"]["compile"]])
        return self.out / "trials" / f"{self.system}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """What a trial has found, in seconds: a step, all that comes before steps go evenly, and all that comes after the last."""

    step: float
    start: float
    end: float

    def to_plain(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in dataclasses.asdict(self).items()}

    def steps(self, seconds: float) -> int:
        return steps_within(max(self.step, seconds * (1 - MARGIN) - self.start - self.end), self.step)


class Clock(Reporter):
    """Notes when training begins and, in a trial, ends it so many seconds after the first line of the log."""

    def __init__(self, trial: float = 0.0):
        super().__init__(quiet=True)
        self.trial, self.said, self.first = trial, time.time(), 0.0

    def say(self, text: str) -> None:
        del text
        self.said = time.time()

    def begin(self, steps: int, done: int) -> None:
        super().begin(steps, done)
        self.start = self.said  # the last that is said before the model is put on the device

    def update(self, step: int, values: dict[str, Any]) -> None:
        super().update(step, values)
        self.last = time.time()
        self.first = self.first or self.last
        if self.trial and self.last - self.first >= self.trial and step > 3:
            self.trial = 0.0
            signal.raise_signal(signal.SIGTERM)


class Failed(Exception):
    """What a process could not do."""


def apart(
    work: Callable[..., dict[str, Any]], *arguments: Any, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Does work in a process of its own that finds no compiled code, with these variables of the environment besides."""
    with tempfile.TemporaryDirectory(prefix="time-to-quality-") as place:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{place}/inductor", "TRITON_CACHE_DIR": f"{place}/triton"}
        with mock.patch.dict(os.environ, {**caches, **(environment or {})}):
            return beside(work, *arguments)


def beside(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Does work in a process of its own, in this environment: several threads may ask at the same time."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            made = pool.submit(_guarded, work, arguments).result()
        except BrokenProcessPool as error:
            raise Failed(str(error)) from error
    if "error" in made:
        raise Failed(made["error"])
    return made


def _guarded(work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Errors as text: not all of them can travel between processes."""
    try:
        return work(*arguments)
    except RegardError as error:
        return {"error": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def log_every() -> int:
    return 10 if torch.cuda.is_available() else 2


def machine() -> dict[str, str]:
    return {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu", "torch": torch.__version__}


# Texts ----------------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], list[str]]) -> tuple[list[str], float]:
    began = time.monotonic()
    return work(), time.monotonic() - began


def texts_of(job: Job) -> dict[str, tuple[Path, Path]]:
    """Sources and references by the name of the text."""
    texts = {"dev": (job.out / "dev.src", job.out / "dev.ref"), "test": (job.data / "test.en", job.data / "test.de")}
    if job.newstest is not None:
        texts["newstest2013"] = (job.newstest / "newstest2013.en", job.newstest / "newstest2013.de")
    return texts


def write_translations(job: Job, translate: Callable[[list[str]], tuple[list[str], float]]) -> dict[str, Any]:
    seconds = {}
    for text, (source, _) in texts_of(job).items():
        lines, took = translate(read_lines(source))
        write_lines(job.path(f"{text}.txt"), lines)
        seconds[text] = round(took, 2)
    return {"decoding_seconds": seconds}


def write_lines(path: Path, lines: list[str]) -> None:
    write_bytes(path, "".join(f"{line}\n" for line in lines).encode())


# regard ---------------------------------------------------------------------------------------------------------------


def regard_trial(job: Job) -> dict[str, Any]:
    clock = Clock(min(LONGEST_TRIAL, trial_seconds(job.seconds)))
    endless = {"train": {"steps": NEVER, "save_every": NEVER, "validate_every": 0, "log_every": log_every()}}
    with tempfile.TemporaryDirectory(prefix="trial-", dir=job.out) as place:
        run = Path(place) / "run"
        regard.train(RECIPE, out=run, settings=configuration.merge(job.values(), endless), report=clock)
        ended = time.time()
        rows = read_metrics(run / METRICS)
    step = step_seconds(rows)
    assert step is not None
    start = max(0.0, clock.last - clock.start - rows[-1]["step"] * step)
    return Pace(step=step, start=start, end=ended - clock.last).to_plain()


def regard_train(job: Job) -> dict[str, Any]:
    steps = read_json(job.path("steps.json"))["steps"]
    given = nested(job.settings).get("train", {})
    plain = configuration.to_plain(job.config())
    train = with_steps(plain, steps, {f"train.{name}" for name in given})["train"]
    if not train["average"]:
        train |= {name: steps for name in ("save_every", "validate_every") if name not in given}
    run = job.path("run")
    shutil.rmtree(run, ignore_errors=True)  # begun before, and not finished in its time
    clock = Clock()
    result = regard.train(RECIPE, out=run, settings=configuration.merge(job.values(), {"train": train}), report=clock)
    seconds = (run / WEIGHTS).stat().st_mtime - clock.start
    rows = read_metrics(run / METRICS)
    saved = read_json(run / CONFIG)
    return {
        "trainer": "regard",
        "seconds": round(seconds, 1),
        "steps": result.summary["steps"],
        "compiled": train["compile"],
        "epochs": rows[-1].get("epoch") or next(row["epoch"] for row in reversed(rows) if "epoch" in row),
        "parameters": count_parameters(saved["model"], Vocabulary(**saved["vocabulary"])),
        "target_tokens_per_second": statistics.median(
            row["tokens_per_second"] for row in rows if "tokens_per_second" in row
        ),
        "valid_nll": next((round(row["valid_nll"], 4) for row in reversed(rows) if "valid_nll" in row), None),
        "dev": {name: score.to_plain() for name, score in result.scores.items()},
        **machine(),
    }


def regard_translate(job: Job) -> dict[str, Any]:
    translator = regard.load(job.path("run"))
    return write_translations(job, lambda lines: timed(lambda: translator.translate(lines)))


# Marian ---------------------------------------------------------------------------------------------------------------


def tokens_of(job: Job) -> tuple[RunConfig, TokenizerPair, TokenStore]:
    """What the runs of regard find on the shelf, too."""
    config, quiet = job.config(), Reporter(quiet=True)
    corpus = load_corpus(config.data)
    tokenizers = train_tokenizers(corpus, config.tokenizer, quiet)
    return config, tokenizers, token_store(corpus, tokenizers, config.train.max_tokens, quiet)


def marian_parts(job: Job) -> tuple[Any, Any, Any]:
    """The model, its data and how it is trained: as many tokens in a batch as regard has."""
    from marian_training import Pairs, Peer, build

    config, tokenizers, store = tokens_of(job)
    options = {name: value for name, value in job.peer if value is not None}
    if "rows" not in options:
        width = statistics.mean((store.source.lengths + 1).tolist() + (store.target.lengths + 1).tolist())
        options["rows"] = max(8, round(config.train.batch_tokens * config.train.accumulate / width / 8) * 8)
    peer = Peer(**options, label_smoothing=config.train.label_smoothing, seed=config.train.seed,
                workers=4 if torch.cuda.is_available() else 0)  # fmt: skip
    return build(config, tokenizers, peer.dropout), Pairs(store), peer


def marian_train(job: Job) -> dict[str, Any]:
    """By the clock: it needs no trial."""
    from marian_training import fit, has_trainer

    model, data, peer = marian_parts(job)
    folder = job.path("run")
    shutil.rmtree(folder, ignore_errors=True)
    steps, began = fit(model, data, peer, job.seconds * (1 - MARGIN), folder)
    model.save_pretrained(folder)
    seconds = time.monotonic() - began
    import transformers

    return {
        "trainer": "Seq2SeqTrainer" if has_trainer() else "plain loop",
        "seconds": round(seconds, 1),
        "steps": steps,
        "compiled": peer.compile,
        "epochs": round(steps * peer.rows / len(data), 2),
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),  # without sinusoids
        "target_tokens_per_second_of_all": round(data.target_tokens * steps * peer.rows / len(data) / seconds),
        "peer": dataclasses.asdict(peer),
        "transformers": transformers.__version__,
        **machine(),
    }


def marian_translate(job: Job) -> dict[str, Any]:
    from marian_training import translate

    config, tokenizers, _ = tokens_of(job)
    return write_translations(job, lambda lines: translate(job.path("run"), tokenizers, lines, config.search))


WORK = {
    ("regard", "trial"): regard_trial,
    ("regard", "train"): regard_train,
    ("regard", "translate"): regard_translate,
    ("marian", "train"): marian_train,
    ("marian", "translate"): marian_translate,
}
