"""What a run would take, before it is begun: parameters, memory, time, and the largest batch that fits."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.core import config as configuration
from regard.core.errors import ConfigError, TrainingError
from regard.core.files import read_json, write_json
from regard.models.base import MODELS
from regard.tasks.folder import CONFIG, FORMAT
from regard.training.checking import keep_input
from regard.training.config import build_run_config
from regard.training.loop import Trainer
from regard.training.packed_text import longest_to_pack
from regard.training.probing import MemoryUse, Probe, Sample, sample, target_tokens
from regard.training.progress import Reporter
from regard.training.run import asked, kind_of_run, what_is_asked
from regard.training.run_parts import device_name

SHARE = {"cuda": 0.9, "cpu": 0.8}  # of the memory that there is, for a run: not all, as it comes in pieces
FACTORS = (0.5, 1.0, 2.0, 4.0)
MOST_HALVINGS, MOST_TRIES = 8, 8
LARGEST_FACTOR = 1024.0
LONGEST_PROBE = 600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchNeed:
    """What a batch of some size needs. Only where `measured` it was tried."""

    batch_tokens: int
    bytes: int
    measured: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run would take. Times are without validation, saving and what comes before the first step."""

    model: str
    parameters: int
    vocabulary: tuple[int, int]  # of both sides; of models that name labels, the labels are the second
    device: str
    fused: bool  # by kernels of sub-layers
    compiled: bool
    steps: int
    batch_tokens: int
    batches_looked_at: int
    largest_batch: tuple[int, int, int]  # rows, source and target tokens of each
    memory: MemoryUse | None  # None: the batch does not fit
    memory_is: str
    available: int | None  # bytes
    others: tuple[BatchNeed, ...]
    largest_that_fits: int | None  # train.batch_tokens; only where it was asked for
    tokens_per_second: float  # target tokens, without padding
    seconds_per_step: float
    first_step_seconds: float
    seconds: float  # of all steps
    notes: tuple[str, ...]

    def to_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def plan(
    recipe: str | None = None,
    *,
    src: str = "",
    tgt: str = "",
    pairs: str = "",
    text: str = "",
    labelled: str = "",
    tagged: str = "",
    settings: str | Mapping[str, Any] | Iterable[str] = (),
    allow: Iterable[str] = (),
    start_from: str | Path | None = None,
    seconds: float = 5.0,
    fit: bool = False,
    report: Reporter | None = None,
) -> Plan:
    """Says what `regard.train` with the same arguments would take, by trying some steps out for so many `seconds`.

    With `fit`, the largest train.batch_tokens is found whose batches fit into memory. No run folder is written; of a large text,
    the tokens are kept for the run, as `regard data prepare` keeps them.
    """
    if not 0 < seconds <= LONGEST_PROBE:
        raise ConfigError("plan", f"{seconds} seconds of trial", f"Give more than 0 and at most {LONGEST_PROBE:g}")
    report = report or Reporter(quiet=True)
    files = {"src": src, "tgt": tgt, "pairs": pairs, "text": text, "labelled": labelled, "tagged": tagged}
    values, start_from = asked(recipe, files, settings, allow, start_from)
    config = build_run_config(values)
    capabilities = MODELS.get(config.model.name).capabilities
    if "embeds" in capabilities:
        what = "its tables are changed word by word: no batch has to fit, and time goes by the text's length alone"
        raise ConfigError(f"plan of {config.model.name}", what, "Train it: its first seconds say how long it takes")
    made: list[Plan] = []
    with tempfile.TemporaryDirectory(prefix="regard-plan-") as place:
        folder = Path(place)
        keep_input(values["data"], folder)
        write_json(
            folder / CONFIG, {"format": FORMAT, "resolved": False, **configuration.to_plain(build_run_config(values))}
        )
        request = {
            **what_is_asked(recipe, values, start_from),
            "instead": lambda trainer: made.append(_tried(trainer, folder, seconds, fit)),
        }
        kind_of_run(capabilities)(folder, request, read_json(folder / CONFIG), report)
    return made[0]


def _tried(trainer: Trainer, folder: Path, seconds: float, fit: bool) -> Plan:
    """The plan of a run that is about to begin."""
    config = trainer.config
    packed, _ = longest_to_pack(config, trainer.text, trainer.team.several, trainer.longest_packed())  # of a new run
    sizes = read_json(folder / CONFIG)
    found, probe = sample(trainer), Probe(trainer)
    notes: list[str] = []
    available = probe.available()
    measured = _measured(probe, found, config.batch_tokens)
    memory = measured.get(1.0)
    if memory is None:
        notes.append(
            "The chosen batch does not fit: training would cut it into pieces. Lower train.batch_tokens (--fit)."
        )
    fixed, slope = _line(measured)
    others = tuple(
        BatchNeed(
            batch_tokens=round(factor * config.batch_tokens),
            bytes=use.total if (use := measured.get(factor)) is not None else round(fixed + slope * factor),
            measured=factor in measured,
        )
        for factor in FACTORS
    )
    each, first = probe.seconds_per_step(found.usual, seconds)
    pipeline = found.seconds_per_batch * config.accumulate
    if pipeline > each:
        notes.append("Batches are prepared more slowly than steps are taken: raise train.workers.")
    each = max(each, pipeline)
    if packed:
        notes.append(
            "Measured on padded batches: packed ones (train.packed) are fuller, so there are fewer of them to a text."
        )
    largest = None
    if fit:
        largest = _largest(probe, found, config.batch_tokens, fixed, slope, available, notes)
    of_batch = max(found.largest, key=lambda batch: batch.target_out.numel() + batch.source.tokens.numel())
    labels = sizes.get("labels")
    vocabulary = sizes.get("vocabulary", {})
    if probe.trainer.gradients.split and memory is not None:
        notes.append("Some batches were cut into pieces while trying.")
    return Plan(
        model=str(sizes["model"]["name"]),
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        vocabulary=(int(vocabulary.get("source", 0)), len(labels) if labels else int(vocabulary.get("target", 0))),
        device=device_name(trainer.device),
        fused=getattr(trainer.gradients, "fused", False),
        compiled=getattr(trainer.gradients, "compiled", False),
        steps=config.steps,
        batch_tokens=config.batch_tokens,
        batches_looked_at=found.looked_at,
        largest_batch=(len(of_batch.target_in), of_batch.source.tokens.shape[1], of_batch.target_in.shape[1]),
        memory=memory,
        memory_is="torch's allocator at its peak" if trainer.on_cuda else "growth of the process, which is coarse",
        available=available,
        others=others,
        largest_that_fits=largest,
        tokens_per_second=target_tokens(found.usual) * config.accumulate / each,
        seconds_per_step=each,
        first_step_seconds=first,
        seconds=each * config.steps,
        notes=tuple(notes),
    )


def _measured(probe: Probe, found: Sample, batch_tokens: int) -> dict[float, MemoryUse]:
    """Memory by part of the batch: of half and the whole, or of the two largest parts that fit.

    Less comes before more: memory that was used once may stay with the process.
    """
    measured: dict[float, MemoryUse] = {}
    for factor in (0.5, 1.0, *(0.5**n for n in range(2, MOST_HALVINGS + 1))):
        use = probe.memory(found.largest, factor)
        if use is not None:
            measured[factor] = use
        if len(measured) == 2:
            return measured
    if not measured:
        what = f"not even a batch of {batch_tokens >> MOST_HALVINGS} tokens fits into memory"
        raise TrainingError("plan", what, "Lower the model's sizes, or use another device")
    return measured


def _line(measured: Mapping[float, MemoryUse]) -> tuple[float, float]:
    """Bytes = fixed + slope * factor, through two measured points; the slope is at least 0."""
    points = sorted((factor, use.total) for factor, use in measured.items())
    if len(points) == 1:
        return 0.0, points[0][1] / points[0][0]
    (low, less), (high, more) = points
    slope = max(0.0, (more - less) / (high - low))
    return more - slope * high, slope


def _largest(
    probe: Probe,
    found: Sample,
    batch_tokens: int,
    fixed: float,
    slope: float,
    available: int | None,
    notes: list[str],
) -> int | None:
    """The largest train.batch_tokens that fits: on CUDA tried out, elsewhere by what was measured of smaller ones."""
    if available is None or slope <= 0:
        notes.append("The largest batch that fits is not known: the batch is too small to measure what it takes.")
        return None
    share = SHARE.get(probe.device.type, SHARE["cpu"])
    factor = min(LARGEST_FACTOR, (available * share - fixed) / slope)
    if found.epoch_tokens is not None and factor * batch_tokens > found.epoch_tokens:
        factor = found.epoch_tokens / batch_tokens
        notes.append("The largest batch is the whole text: memory would allow for more.")
    if factor <= 0:
        notes.append("Nothing fits: the weights alone take more memory than there is.")
        return None
    if probe.trainer.on_cuda:
        for _ in range(MOST_TRIES):
            if probe.memory(found.largest, factor) is not None:
                return _rounded(factor * batch_tokens)
            factor *= 0.9
        return None
    notes.append("The largest batch was not tried out: on a CPU it is found from what smaller ones took.")
    return _rounded(factor * batch_tokens)


def _rounded(tokens: float) -> int:
    """Down to two or three digits in powers of two."""
    step = 1 << max(0, int(tokens).bit_length() - 5)
    return max(1, int(tokens) // step * step)
