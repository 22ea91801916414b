"""regard's models as folders that transformers opens: translators, GPTs, and BERTs with their heads."""

from __future__ import annotations

import dataclasses
from typing import Any

from regard.core.errors import ModelError
from regard.exchange.ctranslate2_export import OTHER_SEARCH
from regard.exchange.export_plan import Plan, need
from regard.exchange.huggingface_bert import BERTS, bert_filling
from regard.exchange.huggingface_gpt2 import gpt2_filling
from regard.exchange.huggingface_marian_export import marian_filling
from regard.exchange.huggingface_readme import readme
from regard.exchange.huggingface_sides import OPENS, bert_side, gpt2_columns, gpt2_side, translator_side
from regard.exchange.parity import Side
from regard.exchange.parity_sides import live_model, plain_search

INSTALL = "Install transformers (pip install 'transformers>=5')"


def plan_huggingface(task: Any) -> Plan:
    """How what `regard.load` gave becomes a Hugging Face folder. What no class of transformers' can be is refused by name."""
    model = live_model(task)
    name = model.config.name
    if name == "transformer":
        search = plain_search(task.search)
        fill, architecture = marian_filling(model, task.tokenizers, search)
        need("transformers", "huggingface", INSTALL)
        return Plan(
            fill=fill,
            side=lambda place: translator_side(place, architecture, search),
            measure="all",
            readme=readme(OPENS[architecture], joint=task.tokenizers.joint),
            hint=f"transformers' {architecture} ({OPENS[architecture]})",
            notes=[OTHER_SEARCH],
        )
    if name == "gpt":
        fill, vocabulary, _ = gpt2_filling(model, task.tokenizers)
        need("transformers", "huggingface", INSTALL)
        foreign = vocabulary == "gpt2"
        return Plan(
            fill=fill,
            side=lambda place: gpt2_side(place, model.config.context, foreign),
            measure="all",
            readme=readme("AutoModelForCausalLM"),
            hint="transformers' GPT2LMHeadModel (AutoModelForCausalLM)",
            ours=_in_gpt2_order if foreign else lambda side: side,
        )
    if name in BERTS:
        fill, architecture = bert_filling(model, task.tokenizers, task.config, [])
        need("transformers", "huggingface", INSTALL)
        words = architecture not in ("BertModel", "BertForNextSentencePrediction")
        labels = list(task.config.get("labels", ()))
        return Plan(
            fill=fill,
            side=lambda place: bert_side(place, architecture, model.config.segments, labels, task),
            measure="all" if words else "states",
            readme=readme(OPENS[architecture]),
            hint=f"transformers' {architecture} ({OPENS[architecture]})",
        )
    what = "transformers has no class that computes what this model computes"
    raise ModelError(f"model {name!r}", what, "Only transformer, gpt and bert models are written; use --to onnx")


def _in_gpt2_order(side: Side) -> Side:
    return dataclasses.replace(side, scores=lambda cases: (gpt2_columns(scores) for scores in side.scores(cases)))
