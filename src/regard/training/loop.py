"""The training loop: one for every model.

A step is a pure function of the weights, the optimizer state, the seed and the step's number: batches come from
(seed, epoch, position), and the random numbers of dropout from (seed, step). So a checkpoint needs no generator state,
and a run that was killed and resumed ends in the same weights, bit for bit, as one that was not.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import TrainingError
from regard.core.types import PAD
from regard.core.workers import working_together
from regard.data.batching import Drawn, Place
from regard.models.base import Writer
from regard.models.fused_forward import kernels_work, longest_packed
from regard.tasks.folder import CHECKPOINTS, METRICS, put_weights, weights_of
from regard.tasks.run_files import RESUMED
from regard.training.averaging import MovingAverage
from regard.training.background_saves import BackgroundSaves
from regard.training.checkpoint import Checkpoints
from regard.training.config import TrainConfig
from regard.training.distributed.gradient_sums import GradientSums, worth_hiding
from regard.training.distributed.sharding import Sharded
from regard.training.distributed.team import Several, current_team
from regard.training.final_weights import final_weights
from regard.training.gradient import Gradients
from regard.training.log import MetricsLog, NoLog
from regard.training.log_window import LogWindow
from regard.training.lowered import Lowered
from regard.training.optim import Optimizer
from regard.training.packed_text import in_batches, may_pack
from regard.training.precision import low_weights, uses_bfloat16
from regard.training.progress import Reporter
from regard.training.regions import compile_pays
from regard.training.run_progress import Progress
from regard.training.schedule import rate
from regard.training.signals import Interruption
from regard.training.skipped import SkippedBatches
from regard.training.texts import TrainingText, lengths_of
from regard.training.validation import Measure, goodness

SIGNALS = (int(signal.SIGINT), int(signal.SIGTERM))
MOST_BAD_STEPS = 100  # in a row, before a run gives up


class Trainer:
    """Trains a model inside a run folder, from its newest checkpoint if there is one."""

    def __init__(
        self,
        model: Writer,
        text: TrainingText,
        validation: Measure | None,
        config: TrainConfig,
        folder: Path,
        device: torch.device,
        report: Reporter,
        *,
        optimizer: Any = None,
        gradients: Any = None,
    ):
        """A model with a way of its own to be trained gives what takes the places of `Optimizer` and `Gradients`."""
        self.config, self.folder, self.device, self.report = config, folder, device, report
        self.team = team = current_team()
        team.let_others_begin()
        team.meet()
        self.model, self.text, self.validation = model.to(device), text, validation
        self.on_cuda = device.type == "cuda"
        self.sharded = self._divide(model) if config.shard and optimizer is None else None
        trained: Any = model if self.sharded is None else self.sharded.own
        record = self.on_cuda and config.graphs and config.accumulate == 1 and self.sharded is None
        record = record and not (team.several and worth_hiding(model))
        self.optimizer = optimizer or Optimizer(trained, config, device, record and not team.several)
        self.whole = record and optimizer is None and self.optimizer.recordable  # a recording takes the step, too
        self.average = MovingAverage(trained, config.ema) if config.ema else None
        self.checkpoints = Checkpoints(folder / CHECKPOINTS, keep=config.average, every=config.save_every)
        self.saves = BackgroundSaves(self.checkpoints)
        self.progress = Progress()
        self.saved_step = -1
        low = uses_bfloat16(config, device)
        self.autocast = (lambda: torch.autocast(device.type, torch.bfloat16)) if low else contextlib.nullcontext
        if self.on_cuda:
            torch.set_float32_matmul_precision("high")  # TF32 where float32 is asked for
        self.lowered = Lowered(model, torch.bfloat16) if low_weights(config, device) and gradients is None else None
        self.gradients = gradients or Gradients(
            model,
            self.autocast,
            config.label_smoothing,
            config.consistency,
            record,
            self.sharded is None and compile_pays(config, model, device),
            fuse=config.fused and self.sharded is None and kernels_work(trained, *self._what_to_try()),
            lowered=self.lowered,
            finish=self._finish if self.whole else None,
            within=None if self.sharded is None else self.sharded.whole,
        )
        self._told_of_splitting = False
        self._resume()
        self.window = LogWindow(self.progress, device)
        self.skipped = SkippedBatches(self.optimizer, report)
        self.sums: Callable[[list[Tensor]], list[Tensor]] | None = None
        self.sending: GradientSums | None = None
        if self.sharded is not None:
            self.optimizer.norm, self.sums = self.sharded.norm, self.sharded.take_gradients
        elif self._divides_weights:
            team.give_weights(model)
        elif isinstance(team, Several):
            team.give_weights(model)
            self.sums = self.sending = GradientSums(team, model.named_parameters())
        if self.lowered is not None:
            self.lowered.refresh()

    def _what_to_try(self) -> tuple[torch.device, bool, bool, list[int] | None]:
        """What trials of kernels go by: the device, the numbers of products and states, and how long texts are, if known."""
        low, lowered = uses_bfloat16(self.config, self.device), self.lowered is not None
        return self.device, low, lowered, lengths_of(self.text) if self.on_cuda and self.config.fused else None

    @property
    def _divides_weights(self) -> bool:
        """Whether workers read the same batches, each for a part of the weights: of word vectors, some columns."""
        return getattr(self.text, "whole", False)

    def _gather(self) -> None:
        if self._divides_weights:
            cast(Any, self.optimizer).gather()

    def _divide(self, model: Writer) -> Sharded | None:
        """The model in parts, where there are several workers to hold them."""
        if not isinstance(self.team, Several):
            return None
        self.team.give_weights(model)
        return Sharded(self.team, model, self.config, self.device)

    def _resume(self) -> None:
        newest = self.team.tell(self.checkpoints.newest(self.report.warn) if self.team.leads else None)
        if newest is None:
            return
        weights, optimizer, average, carried, state = self.checkpoints.load(newest)
        where = self.checkpoints.path(newest)
        if self.sharded is not None:
            self.sharded.put(weights, where)
            optimizer = self.sharded.own_state(optimizer)
            average = None if average is None else self.sharded.own_state(average)
        else:
            put_weights(self.model, weights, where)
        self.optimizer.load(optimizer, str(where))
        if self.average is not None and average is not None:
            for name, tensor in self.average.average.items():
                tensor.copy_(average[name])
        if carried is not None:
            rank, size = self.team.part
            self.gradients.carried.load({name: rows[rank::size] for name, rows in carried.items()}, str(where))
        self.progress = Progress.of(state, where)
        self.saved_step = self.saves.on_disk = newest
        if self.team.leads:
            with contextlib.suppress(OSError), open(self.folder / RESUMED, "a", encoding="utf-8") as file:
                file.write(json.dumps({"step": newest, "event": "resumed"}) + "\n")  # for who looks at the curves
        self.report.say(f"Going on after step {newest}.")

    def run(self) -> int | None:
        """Trains to the end and leaves the final weights in the model. Gives the signal's number if interrupted."""
        config, progress = self.config, self.progress
        place = (self.folder / METRICS, progress.step, self.folder / "tensorboard")
        log = MetricsLog(*place) if self.team.leads else NoLog()
        text = self._text()
        progress.multiple = progress.multiple or text.multiple(self.model, self.on_cuda)
        self.model.train()
        self.report.begin(config.steps, progress.step)
        place = Place(progress.epoch, progress.position)
        stream = text.open(config, place, progress.multiple, self.on_cuda, self.team.part)
        try:
            with Interruption(self.folder) as interruption, stream:
                self.window.begin()
                while progress.step < config.steps and not self._patience_is_out():
                    self.saves.check()
                    self.saves.allow(progress.step + 1)
                    self._step([next(stream) for _ in range(config.accumulate)], interruption.received)
                    step = progress.step
                    if step % config.log_every == 0 or step == config.steps:
                        self._log(log)
                    last = step == config.steps
                    if last or step % (config.validate_every or config.save_every) == 0:
                        self._validate(log)
                    if last or self._due(step) or self._patience_is_out():
                        self._save(log)
                    received = self._received if self.team.several else interruption.received
                    if received is not None and not last:
                        self._save(log)
                        self.saves.settle()
                        return received
                self.saves.settle()  # while a signal still does not end the process
        finally:
            self.saves.close()
            self.report.end()
            log.close()
        if self._patience_is_out():
            self.report.say(
                f"Stopped early: {progress.worse} validations without improvement; step {progress.best_step} was the best."
            )
        self._final_weights()
        return None

    def _text(self) -> TrainingText:
        """The text, packed or not."""
        about = self.text, self.config, self.progress, self.team.several
        return in_batches(*about, self.longest_packed(), self.report)

    def longest_packed(self) -> int:
        """How long sentences may be that kernels here read packed; 0 where none are, or would be if they could."""
        about = self.text, self.config, self.progress, self.team.several
        if not getattr(self.gradients, "fused", False) or not may_pack(*about):
            return 0
        return longest_packed(self.model, *self._what_to_try())

    def _step(self, drawn: list[Drawn], received: int | None = None) -> None:
        """A step with one worker's parts of batches. `received` is the signal that this worker has got, if any."""
        config, progress = self.config, self.progress
        progress.step += 1
        self.skipped.remember(progress.step, progress.epoch, progress.position, drawn)
        torch.manual_seed(self.team.seed(config.seed, progress.step))
        # by NumPy: a second thread that torch asked to count would wait in a loop, and word2vec's threads need its core
        tokens = sum(int(np.count_nonzero(batch.target_out.cpu().numpy() != PAD)) for batch, _, _ in drawn)
        tokens = self._agree(0 if self._divides_weights and not self.team.leads else tokens, received)
        total, norm = torch.zeros((), device=self.device), None
        sums = [torch.zeros((), device=self.device) for _ in range(2)]
        part_of_peak = rate(config, progress.step)
        if self.whole:
            self.optimizer.prepare(part_of_peak, progress.step)
        if self.sending is not None and len(drawn) == 1:
            self.sending.begin()
        for batch, _, following in drawn:
            if progress.position == 0:
                self.gradients.carried.forget()
            with working_together(self.team.sum if self.team.several else None):
                computed = self.gradients(batch, 1 / tokens, 1 / len(drawn))
            total, norm = total + computed.loss, computed.norm
            sums = [sums[0] + computed.smoothed, sums[1] + computed.nll]
            progress.epoch, progress.position = following
        if self.sums is not None:
            total, *sums = self.sums([total, *sums])
        self.window.add(tokens, *sums)
        if norm is None:
            norm = self.optimizer.step(total, part_of_peak, progress.step)
            if self.lowered is not None:
                self.lowered.refresh()
        self._norm = norm
        if self.average is not None:
            self.average.update(progress.step)
        self._tell_of_splitting()

    def _agree(self, tokens: int, received: int | None) -> int:
        """The tokens of the whole step, of all workers; and any worker's signal is everyone's."""
        if not self.team.several:
            return tokens
        tokens, *signals = self.team.add([tokens, *(int(received == number) for number in SIGNALS)])
        self._received = next((number for number, count in zip(SIGNALS, signals, strict=True) if count), None)
        return tokens

    def _finish(self, loss: Tensor) -> Tensor:
        """Takes the prepared step with the gradients that are there, and gives their norm: the end of a recording."""
        norm = self.optimizer.apply(loss)
        if self.lowered is not None:
            self.lowered.refresh()
        return norm

    def _tell_of_splitting(self) -> None:
        """Once: the step is the same, but slower."""
        if self._split and not self._told_of_splitting:
            self._told_of_splitting = True
            self.report.warn(
                f"step {self.progress.step}: the batch does not fit into memory; it and others as large are cut into pieces. "
                "Only dropout's random numbers differ. `regard plan` finds the train.batch_tokens that fits."
            )

    @property
    def _split(self) -> int:
        return getattr(self.gradients, "split", 0)

    def _log(self, log: MetricsLog | NoLog) -> None:
        progress = self.progress
        self.window.read()
        bad = int(self.optimizer.in_a_row)
        values = {
            "loss": progress.loss / progress.tokens,
            "nll": progress.nll / progress.tokens,
            "lr": self.config.lr * rate(self.config, progress.step),
            "gradient_norm": float(self._norm),
            "epoch": progress.epoch,
            "skipped": int(self.optimizer.skipped),
            "tokens_per_second": self.window.tokens_per_second(),
            "seconds": round(progress.seconds, 3),
        }
        if self._split:
            values["split_batches"] = self._split
        if values["skipped"]:
            values["last_skipped_step"] = int(self.optimizer.last_bad)
        log.add(progress.step, values)
        self.report.update(progress.step, values)
        self.skipped.tell()
        if bad >= MOST_BAD_STEPS:
            raise TrainingError(
                f"step {progress.step}",
                f"loss or gradient was not finite for {bad} steps in a row",
                "Lower train.lr, or lengthen train.warmup",
            )
        self.window.clear()

    def _validate(self, log: MetricsLog | NoLog) -> None:
        if self.validation is None:
            return
        progress = self.progress
        with self.window.left_out():
            values = self._measure(self.validation)
        log.add(progress.step, {**values, "best_step": progress.best_step})
        shown = "  ".join(f"{name.removeprefix('valid_')} {value:.3f}" for name, value in values.items())
        self.report.say(
            f"step {progress.step}: validation {shown}{'  (best)' if progress.best_step == progress.step else ''}"
        )

    def _measure(self, validation: Measure) -> dict[str, float]:
        """The values of a validation; the weights are kept if they are the best so far."""
        progress = self.progress
        self._gather()
        with self._averaged(), self._opened():
            self.model.eval()
            with self.autocast():
                values = self.team.tell(validation.measure(self.model, self.device))
            self.model.train()
            value = goodness(values, self.config.best_by)
            if math.isfinite(value) and (progress.best is None or value > progress.best):
                progress.best, progress.best_step, progress.worse = value, progress.step, 0
                if self.team.leads:
                    self.saves.save_best(weights_of(self.model), {"step": progress.step, **values})
            else:
                progress.worse += 1
        return values

    def _averaged(self) -> contextlib.AbstractContextManager[None]:
        return self.average.applied() if self.average is not None else contextlib.nullcontext()

    def _opened(self) -> contextlib.AbstractContextManager[None]:
        """While all of the model's weights are here."""
        return self.sharded.opened() if self.sharded is not None else contextlib.nullcontext()

    def _due(self, step: int) -> bool:
        """Whether a step is followed by a checkpoint. For those of a divided model training waits: one in an interval is enough."""
        return step % self.config.save_every == 0 if self.sharded is not None else self.saves.due(step)

    def _patience_is_out(self) -> bool:
        return bool(self.config.patience) and self.progress.worse >= self.config.patience

    def _save(self, log: MetricsLog | NoLog) -> None:
        if self.saved_step == self.progress.step:
            return
        self.skipped.tell()
        log.sync()  # whoever goes on from here does not write these lines again
        self.window.read()
        with self.window.left_out():
            self._write_checkpoint()
        self.saved_step = self.progress.step

    def _write_checkpoint(self) -> None:
        self._gather()
        if self.sharded is None:
            self.team.check_same(self.model, self.progress.step)
        carried = self.team.rows(self.gradients.carried.tensors())
        facts = {"threads": torch.get_num_threads(), "torch": torch.__version__}
        if self.team.several:
            facts["workers"] = self.team.size
        if self.sharded is not None:
            self.saves.settle()
            state = {"progress": vars(self.progress), **facts}
            self.sharded.save(
                self.checkpoints, self.progress.step, self.optimizer.tensors(), self._averages(), carried, state
            )
        elif self.team.leads:
            self.saves.save(
                self.progress.step,
                weights=weights_of(self.model),
                optimizer=self.optimizer.tensors(),
                average=self._averages(),
                carried=carried,
                state={"progress": vars(self.progress), **facts},
            )

    def _averages(self) -> dict[str, Tensor] | None:
        return self.average.average if self.average is not None else None

    def _final_weights(self) -> None:
        """Puts into the model what the run ends with: an average of checkpoints, the best, or the last weights."""
        if self.sharded is not None:
            if self.average is not None:
                self.average.put()
            self.sharded.open()
        if self.team.leads:
            chosen = final_weights(self.checkpoints, self.config, self.progress, self.report.warn)
            if chosen is None and self.average is not None and self.sharded is None:
                chosen = {**weights_of(self.model), **self.average.average}
            if chosen is not None:
                put_weights(self.model, chosen, self.folder)
        self.team.give_weights(self.model)
        self.model.eval()

    def summary(self) -> dict[str, Any]:
        return {
            "steps": self.progress.step,
            "seconds": round(self.progress.seconds, 1),
            "best_step": self.progress.best_step,
        }
