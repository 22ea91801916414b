"""Plain text as masked rows for models that fill in words: a stream of batches of one shape that can begin anywhere."""

from __future__ import annotations

from regard.core.errors import ConfigError
from regard.data.batching import ALL, Part, Place
from regard.data.masking import ExamplePlan, MaskedBatches, Masking
from regard.data.sentence_stream import SentenceStream
from regard.evaluation.masked import USUAL_WINDOW
from regard.models.base import Writer
from regard.models.reader import MaskedModel
from regard.training.config import TrainConfig
from regard.training.texts import rows_of


class MaskedTrainingText:
    """Rows of `window` tokens, whose pairs of segments and hidden words are new in every epoch."""

    def __init__(self, stream: SentenceStream, masking: Masking, window: int, config: TrainConfig, *, pairs: bool):
        self.masking = masking
        self.plan = ExamplePlan(stream, rows_of(config, window), window, seed=config.seed, pairs=pairs)

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        return 1

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL) -> MaskedBatches:
        return MaskedBatches(self.plan, self.masking, place, config.workers, part)


def masked_window(config: TrainConfig, model: MaskedModel) -> int:
    """Tokens of a row: what the model has room for, or fewer."""
    limit = model.limits.source
    if limit is not None and config.window > limit:
        what = f"{config.window} tokens are more than the {limit} that the model's context has room for"
        raise ConfigError("setting train.window", what, "Lower it, or raise model.context")
    return config.window or limit or USUAL_WINDOW
