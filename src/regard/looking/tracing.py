"""Makes traces: a task (what `regard.load` gives) reads or writes a sentence, and reads it once more with a recorder."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from regard.core.errors import DataError, ModelError
from regard.core.types import BOS, EOS, PAD, pad_rows
from regard.data.mask_text import WRITTEN
from regard.looking.beam_tree import Reference, beam_tree
from regard.looking.part import Side
from regard.looking.texts import ShownText
from regard.looking.trace import Trace, parts_of
from regard.models.base import Recorder
from regard.search.config import SearchConfig
from regard.search.search import search
from regard.tasks.classification import TextClassifier
from regard.tasks.composing import TextComposer
from regard.tasks.language_model import TextModel
from regard.tasks.masked import MaskedText
from regard.tasks.tagging import TextTagger
from regard.tasks.translation import Translator

SHOWN_LABELS = 5
MOST_TOKENS = 1024  # of a sentence that is looked at
BEGIN, END = "<s>", "</s>"
BERT_MARKS = ("[CLS]", "[SEP]")


def make_trace(task: Any, text: str, target: str | None = None, beam: int | None = None) -> Trace:
    """What a model does with a text. `target` is a translation to look at instead of the one that the model finds."""
    if not text.strip():
        raise DataError("the sentence", "it is empty", "Type one")
    if isinstance(task, Translator):
        return _translation(task, text, source_of(task, text), task.search, target, beam)
    if isinstance(task, TextComposer):  # how long a text is has nothing to do with how long its label is
        settings = dataclasses.replace(task.search, max_ratio=0.0, max_extra=MOST_TOKENS, max_repeat=0, coverage=0.0)
        return _translation(task, text, task.tokens_of(text.strip()), settings, target, beam)
    if target is not None:
        raise ModelError("the target", "this model translates nothing", "Leave it out")
    if isinstance(task, TextModel):
        return _continued(task, text)
    if isinstance(task, TextTagger | MaskedText | TextClassifier):
        return _read(task, text)
    raise ModelError(type(task).__name__, "it reads no sentences", "Choose another view")


def _bounded(name: str, ids: list[int], limit: int | None) -> list[int]:
    most = min(MOST_TOKENS, limit or MOST_TOKENS) - 1
    if len(ids) > most:
        what = f"it has {len(ids):,} tokens, and at most {most:,} can be looked at"
        raise DataError(name, what, "Give a shorter one")
    return ids


def source_of(task: Translator, text: str) -> list[int]:
    """The tokens of a sentence with what a translator reads before them, refused where there are none or too many."""
    if not text.strip():
        raise DataError("the sentence", "it is empty", "Type one")
    (ids,) = task.tokenizers.source.encode([text])
    if not ids:
        raise DataError("the sentence", "the model knows nothing in it", "Type another")
    return _bounded("the sentence", [*task.leads(None, 1)[0], *ids], task.model.limits.source)


@torch.inference_mode()
def _translation(
    task: Translator | TextComposer,
    text: str,
    source_ids: list[int],
    settings: SearchConfig,
    target: str | None,
    beam: int | None,
) -> Trace:
    source = pad_rows([[*source_ids, EOS]]).to(task.device)
    task.model.eval()
    finished = True
    settings = dataclasses.replace(settings, nbest=1)
    if beam is not None:
        settings = dataclasses.replace(settings, beam=beam)
    if target is None:
        best = search(task.model, source, settings)[0][0]
        target_ids, score, finished = list(best.tokens), best.score, best.finished
        (written,) = task.tokenizers.target.decode([target_ids])
    else:
        (target_ids,), score, written = task.tokenizers.target.encode([target]), None, target
        _bounded("the target", target_ids, task.model.limits.target)
    record = Recorder()
    read = torch.tensor([[BOS, *target_ids]], device=task.device)
    forced = task.model(source, read, record)
    wanted = torch.tensor([*target_ids, EOS], device=task.device)
    own = task.model.output.scores(forced.hidden[0]).gather(-1, wanted[:, None])[:, 0].tolist()
    kept = len(target_ids) + finished
    shown = ShownText.of(
        task.tokenizers.target, written, target_ids, after=[END] if finished else [], log_probs=own[:kept]
    )
    attends = "attends" in task.model.capabilities
    alignment = task.model.alignment(record)[0].float().cpu().numpy()[:kept] if attends else None
    parts = {name: _cut(part, kept) for name, part in parts_of(record.tensors, reads_only=False).items()}
    return Trace(
        source=ShownText.of(task.tokenizers.source, text, source_ids, after=[END]),
        target=shown,
        input=ShownText.of(task.tokenizers.target, written, target_ids[: kept - 1], before=[BEGIN]),
        parts=parts,
        alignment=alignment,
        answer=written,
        score=score,
        log_prob=sum(own[:kept]),
        finished=finished,
        halting=_halting(record, kept),
        model=task.model,
        again=lambda: task.model(source, read[:, :kept], Recorder()),
        tree=lambda: beam_tree(
            task.model,
            source,
            settings,
            task.tokenizers.target.pieces,
            None if target is None else Reference(target_ids, own, alignment),
        ),
        read=read[:, :kept],
        begin=lambda: task.model.start(source, capacity=read.shape[1]),
        pieces=task.tokenizers.target.pieces,
    )


def _halting(record: Recorder, kept: int) -> dict[Side, np.ndarray]:
    """The weights of the steps that each token took, of models that decide it themselves."""
    sides: dict[str, Side] = {"encoder": "source", "decoder": "input"}
    return {
        sides[side]: tensor[0].float().cpu().numpy()[: kept if side == "decoder" else None]
        for side in sides
        if (tensor := record.tensors.get(f"{side}.halting")) is not None
    }


def _cut(part: Any, rows: int) -> Any:
    """Without what the decoder would read after the last token of a text that was cut."""
    if part.rows == "source":
        return part
    weights = part.weights[:, :, :rows]
    return dataclasses.replace(part, weights=weights[..., :rows] if part.columns == "input" else weights)


@torch.inference_mode()
def _continued(task: TextModel, text: str) -> Trace:
    (ids,) = task.tokenizer.encode([text])
    _bounded("the text", ids, task.model.limits.target)
    record = Recorder()
    none = pad_rows([[PAD]]).to(task.device)
    read = torch.tensor([[BOS, *ids]], device=task.device)
    forced = task.model.eval()(none, read, record)
    scores = task.model.output.scores(forced.hidden[0, :-1])
    own = scores.gather(-1, torch.tensor(ids, device=task.device)[:, None])[:, 0].tolist() if ids else []
    shown = ShownText.of(task.tokenizer, text, ids, before=[BEGIN], log_probs=[0.0, *own])
    return Trace(
        shown,
        None,
        parts_of(record.tensors, reads_only=True),
        log_prob=sum(own),
        model=task.model,
        again=lambda: task.model(none, read, Recorder()),
        read=read,
        begin=lambda: task.model.start(none, capacity=read.shape[1]),
        pieces=task.tokenizer.pieces,
    )


@torch.inference_mode()
def _read(task: Any, text: str) -> Trace:
    ids = _ids_read(task, text)
    _bounded("the text", ids, task.model.limits.source)
    record = Recorder()
    source = pad_rows([ids]).to(task.device)
    task.model.eval()

    def again(record: Recorder) -> None:
        if isinstance(task, TextClassifier):
            task.model(source, torch.zeros((1, 1), dtype=torch.long, device=task.device), record)
        else:
            task.model.states(source, record)

    again(record)
    parts = parts_of(record.tensors, reads_only=True)
    around = {int(part.weights.shape[-1]) - len(ids) for part in parts.values()}
    marks = around.pop() if len(around) == 1 else 0  # what the model reads around the text: of BERT, [CLS] and [SEP]
    begin, end = BERT_MARKS if str(getattr(task.model.config, "name", "")).startswith("bert") else (BEGIN, END)
    shown = ShownText.of(task.tokenizer, text, ids, before=[begin] if marks else [], after=[end] if marks == 2 else [])
    return Trace(shown, None, parts, answer=_answer(task, text), model=task.model, again=lambda: again(Recorder()))


def _ids_read(task: Any, text: str) -> list[int]:
    """The tokens of a text; its masks are masks, where a model knows them."""
    if isinstance(task, MaskedText) and WRITTEN.search(text) and getattr(task.model.config, "head", True):
        return task.masked_row(text, "the text").ids
    (ids,) = task.tokenizer.encode([text])
    return ids


def _answer(task: Any, text: str) -> str | None:
    """The likeliest labels of a text, or the tags of its words; None where a model gives neither, or needs a second text."""
    if isinstance(task, TextTagger):
        return " ".join(f"{one.word}/{one.tag}" for one in task.tag(text))
    if isinstance(task, TextClassifier) and not task.two_texts:
        return ", ".join(f"{one.label} {one.probability:.1%}" for one in task.guesses([text], top=SHOWN_LABELS)[0])
    return None
