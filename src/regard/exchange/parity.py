"""The certificate of an export: both programs answer the same questions, and parity.json says how far their answers differ.

    certify(place, ours=regard_side(task), theirs=Side(...), questions=questions_for(task), tolerance=FLOAT32, about=about)

It is made inside the new folder while that is still being filled: above the tolerance a ParityError is raised, and the folder
never appears. What a question is, only the two sides know; this file compares numbers, outputs and, with references, BLEU.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import ConfigError, ModelError
from regard.core.files import MANIFEST, sha256_of, write_json

PARITY = "parity.json"
FORMAT = 1
NEVER = -1e3  # a log-probability below it means never, on either side
SHOWN = 3  # outputs that differ, shown in the certificate
DISTRIBUTIONS = ("torch", "numpy", "tokenizers", "safetensors", "ctranslate2", "transformers", "onnx", "onnxruntime")


class ParityError(ModelError):
    """An export that does not do what the model does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What may differ: any number, the share of outputs that are the same, and BLEU. None: it may be whatever it is."""

    difference: float | None = None
    identical: float | None = None
    bleu: float | None = None

    def __post_init__(self) -> None:
        for name, most in (("difference", math.inf), ("identical", 1.0), ("bleu", 100.0)):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:  # written so that nan fails too
                raise ConfigError(f"tolerance.{name}", f"{value} is not from 0 to {most}", "Give another number")


FLOAT32 = Tolerance(difference=1e-3, identical=0.97, bleu=0.1)
INT8 = Tolerance(difference=2.0, identical=0.5, bleu=2.0)  # whole numbers from -127 to 127 for each weight


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """A program that runs the model.

    `scores` gives for each case an array of numbers of one shape on both sides, at once or one after the other. `outputs` gives
    for each text what a user gets: a translation, a label, tags. None: there is nothing to compare. A single output may be None
    on regard's side: its search reached the maximum length, where programs differ in what they give, and it is not compared.
    """

    name: str
    scores: Callable[[Sequence[Any]], Iterable[np.ndarray]]
    outputs: Callable[[Sequence[str]], Sequence[Any]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
    """What both sides are asked."""

    cases: Sequence[Any]
    texts: Sequence[str] = ()
    references: Sequence[str] = ()  # right answers to the texts, for BLEU
    origin: str = ""  # where the texts come from, in words
    language: str = ""  # of the references

    def __post_init__(self) -> None:
        if not self.cases:
            raise ConfigError("parity", "there is nothing to compare", "Give at least one sentence")
        if self.references and len(self.references) != len(self.texts):
            what = f"{len(self.references)} references for {len(self.texts)} sentences"
            raise ConfigError("references", what, "Give one for each sentence")

    @property
    def sha256(self) -> str:
        plain = json.dumps([list(self.texts), list(self.references)], ensure_ascii=True)
        return hashlib.sha256(plain.encode()).hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far two sides differ."""

    cases: int
    numbers: int
    largest: float  # difference of two numbers
    mean: float
    texts: int = 0
    identical: int = 0
    different: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    bleu: dict[str, Any] | None = None

    @property
    def share(self) -> float | None:
        return self.identical / self.texts if self.texts else None

    def faults(self, tolerance: Tolerance) -> list[str]:
        """What is beyond the tolerance, in words."""
        found = []
        if tolerance.difference is not None and not self.largest <= tolerance.difference:  # nan is a fault
            found.append(f"the largest difference is {self.largest:.3g}, and {tolerance.difference:g} is allowed")
        if tolerance.identical is not None and self.share is not None and self.share < tolerance.identical:
            found.append(
                f"{self.identical} of {self.texts} outputs are the same, and {tolerance.identical:.0%} are asked for"
            )
        if tolerance.bleu is not None and self.bleu is not None and abs(self.bleu["difference"]) > tolerance.bleu:
            found.append(f"BLEU differs by {self.bleu['difference']:+.2f}, and {tolerance.bleu:g} is allowed")
        return found


def compare(ours: Side, theirs: Side, questions: Questions) -> Comparison:
    """Asks both sides."""
    count, numbers, largest, total = 0, 0, 0.0, 0.0
    for one, other in zip(ours.scores(questions.cases), theirs.scores(questions.cases), strict=True):
        one, other = (np.maximum(np.asarray(scores, np.float64), NEVER) for scores in (one, other))
        if one.shape != other.shape:
            what = f"{ours.name} gives numbers of shape {list(one.shape)}, {theirs.name} of {list(other.shape)}"
            raise ParityError("parity", what, "This is a mistake in the export: report it")
        count += 1
        if one.size:
            with np.errstate(invalid="ignore"):
                difference = np.where(one == other, 0.0, np.abs(one - other))  # of two infinities it is nan
            numbers += one.size
            total += float(difference.sum())
            largest = max(largest, float(difference.max())) if np.isfinite(difference).all() else math.inf
    found = {"cases": count, "numbers": numbers, "largest": largest, "mean": total / max(1, numbers)}
    if ours.outputs is None or theirs.outputs is None or not questions.texts:
        return Comparison(**found)
    own, foreign = list(ours.outputs(questions.texts)), list(theirs.outputs(questions.texts))
    if not len(own) == len(foreign) == len(questions.texts):
        what = f"{len(own)} and {len(foreign)} outputs for {len(questions.texts)} texts"
        raise ParityError("parity", what, "This is a mistake in the export: report it")
    counted = [i for i, one in enumerate(own) if one is not None]
    differ = [i for i in counted if own[i] != foreign[i]]
    shown = [{"text": questions.texts[i], ours.name: own[i], theirs.name: foreign[i]} for i in differ[:SHOWN]]
    scores = None
    if counted and questions.references and all(isinstance(one[i], str) for one in (own, foreign) for i in counted):
        texts = (own, foreign, questions.references)
        mine, others, references = ([one[i] for i in counted] for one in texts)
        scores = _bleu(mine, others, references, questions.language, (ours.name, theirs.name))
    return Comparison(
        **found, texts=len(counted), identical=len(counted) - len(differ), different=shown, bleu=scores
    )  # fmt: skip


def _bleu(
    own: list[str], foreign: list[str], references: list[str], language: str, names: tuple[str, str]
) -> dict[str, Any]:
    from regard.evaluation.metrics import Flavour, corpus_scores

    flavour = Flavour(bootstrap=0, language=language)
    both = [corpus_scores(texts, references, flavour, ("bleu",))["bleu"] for texts in (own, foreign)]
    difference = both[1].value - both[0].value
    values = {name: round(score.value, 4) for name, score in zip(names, both, strict=True)}
    return {**values, "difference": round(difference, 4), "signature": both[0].signature}


def versions() -> dict[str, str]:
    """Of regard, of Python, and of the libraries that are installed."""
    from regard import __version__

    found = {"regard": __version__, "python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What an export was made of and into. `weights` gives the hash of the live model's weights, now; `before`: at the start."""

    target: str  # ctranslate2, huggingface, onnx
    compute: str  # float32, int8
    model: str  # the model's name
    measure: str  # what the numbers compared are, in words
    before: str
    weights: Callable[[], str]
    tokenizers: Sequence[str] = ()  # fingerprints
    notes: Sequence[str] = ()  # what the target cannot do, in words


def certify(
    place: Path, *, ours: Side, theirs: Side, questions: Questions, tolerance: Tolerance, about: About
) -> dict[str, Any]:
    """Compares, and writes parity.json beside the files that are in `place`; raises a ParityError above the tolerance.

    Call it last: the certificate has the hashes of all files of the folder.
    """
    found = compare(ours, theirs, questions)
    after = about.weights()
    faults = found.faults(tolerance)
    if after != about.before:
        faults.append("exporting has changed the weights of the live model")
    certificate = {
        "format": FORMAT,
        "passed": not faults,
        "model": about.model,
        "target": about.target,
        "compute": about.compute,
        "measure": about.measure,
        "largest_difference": found.largest,
        "mean_difference": found.mean,
        "numbers": found.numbers,
        "cases": found.cases,
        "identical_outputs": found.share,
        "outputs": found.texts,
        "bleu": found.bleu,
        "tolerance": dataclasses.asdict(tolerance),
        "sides": [ours.name, theirs.name],
        "different": found.different,
        "questions": {"from": questions.origin, "texts": len(questions.texts), "sha256": questions.sha256},
        "weights": {"before": about.before, "after": after},
        "tokenizers": list(about.tokenizers),
        "files": _files(place),
        "versions": versions(),
        "notes": list(about.notes),
    }
    if faults:
        todo = "Nothing was written. Report it, or allow more with --tolerance"
        raise ParityError(f"{about.target} {about.compute}", "; ".join(faults), todo)
    write_json(place / PARITY, certificate)
    return certificate


def _files(place: Path) -> Mapping[str, dict[str, Any]]:
    paths = sorted(path for path in place.rglob("*") if path.is_file() and path.name not in (MANIFEST, PARITY))
    return {
        path.relative_to(place).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in paths
    }
