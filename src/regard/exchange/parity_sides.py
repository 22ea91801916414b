"""regard's own side of a parity certificate, for every kind of model. What both sides are asked is in parity_questions.py.

What a case is, by what the model can do:

    translates   (source, target): tokens without BOS and EOS        continues   tokens of a text, without BOS and EOS
    classifies   a row of tokens                                     tags        (tokens, places of the words' first tokens)
    fills        a row of tokens, without [CLS] and [SEP]            composes    (tokens of a label, tokens of a text)
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from regard.core.errors import ModelError
from regard.core.search_config import SearchConfig
from regard.core.types import BOS, EOS, Padded, pad_rows
from regard.data.tokenizers import Tokenizer
from regard.exchange.parity import Side
from regard.search.many import search_many
from regard.search.text_scores import no_source
from regard.tasks.folder import weights_of
from regard.tasks.translation import Translator

Measure = Literal["all", "tokens", "states"]
MEASURES: dict[Measure, str] = {
    "all": "log-probabilities of everything that could be written, at every place",
    "tokens": "log-probabilities of the tokens of forced texts, and of their ends",
    "states": "last states of all tokens",
}
WRITTEN, PROMPT = 16, 12  # most tokens that language models write, and of what stands before
COMPOSED = 40  # most tokens that are written from a label
USUAL_LENGTH = 20  # tokens of a sentence, for one penalty in place of another


def weights_sha256(model: torch.nn.Module) -> str:
    """A hash of the names, types, shapes and bits of a model's weights, now."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights_of(model).items()):
        plain = tensor.detach().to("cpu", copy=False).contiguous()
        digest.update(f"{name} {plain.dtype} {list(plain.shape)}\n".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def live_model(task: Any) -> Any:
    """The torch model of what `regard.load` gives, without taking it out of a translator's hands."""
    return task.engines.torch.engine.model if isinstance(task, Translator) else task.model


def on_cpu(task: Any) -> Any:
    """The same with its weights in float32 on the CPU, where exports are compared; itself where they are there already."""
    model = live_model(task)
    if all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters()):
        moved = model
    else:
        moved = copy.deepcopy(model).cpu().float()
    if isinstance(task, Translator):
        return Translator(
            moved,
            task.tokenizers,
            task.search,
            device="cpu",
            habits=task.habits,
            config=task.config,
            folder=task.folder,
        )
    other = copy.copy(task)
    other.model, other.device = moved.eval(), torch.device("cpu")
    return other


def plain_search(settings: SearchConfig) -> SearchConfig:
    """The settings of a beam search that other programs can do as well: one text, log P divided by nᵃ, no guard against loops.

    GNMT's ((5 + n) / 6)ᵃ grows like n^(a n / (5 + n)): a is chosen so for texts of the usual length.
    """
    alpha = {"gnmt": settings.alpha * USUAL_LENGTH / (5 + USUAL_LENGTH), "plain": settings.alpha, "none": 0.0}
    return dataclasses.replace(
        settings,
        method="beam",
        nbest=1,
        length_norm="plain",
        alpha=round(alpha[settings.length_norm], 4),
        coverage=0.0,
        stop="full",
        max_repeat=0,
        no_repeat_ngram=0,
        min_length=0,
        capture=False,
        fused=False,
    )


def regard_side(task: Any, measure: Measure = "all") -> Side:
    """What regard's torch model answers. `task` is what `regard.load` gives, on the CPU."""
    model = live_model(task).eval()
    kind = kind_of(model)
    if kind == "translates":
        return Side(
            name="regard",
            scores=functools.partial(_translation_scores, model, measure == "tokens"),
            outputs=functools.partial(translations, task, model),
        )
    if kind == "composes":
        scores = functools.partial(_translation_scores, model, measure == "tokens")
        return Side(name="regard", scores=scores, outputs=functools.partial(composed, task))
    if kind == "continues":
        scores = functools.partial(_text_scores, model, measure == "tokens")
        return Side(name="regard", scores=scores, outputs=functools.partial(_continued, task, model))
    if kind == "classifies":
        return Side(
            name="regard",
            scores=lambda cases: (row for case in cases for row in task.log_probs([case])),
            outputs=lambda texts: [guess.label for guess in task.classify(*text_pairs(task, texts))],
        )
    if kind == "tags":
        return Side(
            name="regard",
            scores=functools.partial(_tag_scores, model),
            outputs=lambda texts: [[one.tag for one in words] for words in task.tag(list(texts))],
        )
    if measure == "states":
        return Side(name="regard", scores=functools.partial(_states, model))
    return Side(
        name="regard",
        scores=functools.partial(_word_scores, model),
        outputs=lambda texts: [
            scores.argmax(-1).tolist() for scores in _word_scores(model, task.tokenizer.encode(list(texts)))
        ],
    )


def kind_of(model: Any) -> str:
    """Which of the cases of this file a model is asked about."""
    for kind in ("translates", "continues", "classifies", "tags", "fills", "composes"):
        if kind in model.capabilities:
            return kind
    raise ModelError(f"model {model.config.name!r}", "it has no answers that could be compared", "Use another model")


@torch.inference_mode()
def _translation_scores(model: Any, tokens_only: bool, cases: Sequence[tuple[list[int], list[int]]]) -> list:
    found = []
    for source, target in cases:
        hidden = model(pad_rows([[*source, EOS]]), torch.tensor([[BOS, *target]])).hidden[0]
        found.append(_chosen(model.output.scores(hidden), target, tokens_only))
    return found


@torch.inference_mode()
def _text_scores(model: Any, tokens_only: bool, cases: Sequence[list[int]]) -> list[np.ndarray]:
    found = []
    for text in cases:
        hidden = model(no_source(1, "cpu"), torch.tensor([[BOS, *text]])).hidden[0]
        found.append(_chosen(model.output.scores(hidden), text, tokens_only))
    return found


def _chosen(scores: torch.Tensor, tokens: Sequence[int], only: bool) -> np.ndarray:
    return (scores.gather(-1, torch.tensor([*tokens, EOS])[:, None])[:, 0] if only else scores).numpy()


@torch.inference_mode()
def _tag_scores(model: Any, cases: Sequence[tuple[list[int], list[int]]]) -> list[np.ndarray]:
    return [
        model.output.scores(model(pad_rows([tokens]), torch.tensor([places])).hidden)[0, :, 1:].numpy()
        for tokens, places in cases
    ]


@torch.inference_mode()
def _word_scores(model: Any, cases: Sequence[list[int]]) -> list[np.ndarray]:
    found = []
    for row in cases:
        hidden = model(pad_rows([row]), torch.tensor([[0, *range(len(row))]])).hidden[0, 1:]
        found.append(model.output.scores(hidden).numpy())
    return found


@torch.inference_mode()
def _states(model: Any, cases: Sequence[list[int]]) -> list[np.ndarray]:
    whole: Callable[[Padded], Any] | None = getattr(getattr(model, "body", model), "whole_states", None)
    if whole is None:
        return [model.states(pad_rows([row]))[0].numpy() for row in cases]
    return [whole(pad_rows([row]))[0][0].numpy() for row in cases]


def translations(task: Translator, model: Any, texts: Sequence[str]) -> list[str | None]:
    """None where the search was cut at the maximum length."""
    sources = [[*row, EOS] for row in task.tokenizers.source.encode(list(texts))]
    settings = plain_search(task.search)
    found = dict(search_many(model, sources, dataclasses.replace(settings, nbest=settings.beam)))
    every = [found[i] for i in range(len(sources))]
    decoded = task.tokenizers.target.decode([many[0].tokens for many in every])
    return [text if all(one.finished for one in many) else None for text, many in zip(decoded, every, strict=True)]


def prompts_of(tokenizer: Tokenizer, texts: Sequence[str], limit: int | None) -> list[list[int]]:
    """The beginnings of texts that language models go on with, as tokens, with room for what is written."""
    most = PROMPT if limit is None else max(1, min(PROMPT, limit - 1 - WRITTEN))
    return [row[:most] for row in tokenizer.encode(list(texts))]


def written_after(limit: int | None) -> int:
    """How many tokens a language model is asked to write."""
    return WRITTEN if limit is None else max(1, min(WRITTEN, limit - 2))


def _continued(task: Any, model: Any, texts: Sequence[str]) -> list[str]:
    """The likeliest token after the likeliest tokens."""
    limit = model.limits.target
    settings = task.settings(method="greedy", max_tokens=written_after(limit))
    settings = dataclasses.replace(settings, min_length=0, no_repeat_ngram=0, capture=False)
    prompts = prompts_of(task.tokenizer, texts, limit)
    found = dict(search_many(model, [[EOS]] * len(prompts), settings, prompts))
    return task.tokenizer.decode([found[i][0].tokens[len(prompt) :] for i, prompt in enumerate(prompts)])


def composed(task: Any, labels: Sequence[str]) -> list[str]:
    """What a model writes from each label, by the likeliest tokens: what `regard.load` gave, or what runs graphs."""
    return [task.write(label, method="greedy", max_tokens=COMPOSED)[0].text for label in labels]


def text_pairs(task: Any, texts: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The texts, and for a classifier of two texts with each the next one."""
    return list(texts), [*texts[1:], texts[0]] if task.two_texts else None
