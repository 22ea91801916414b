"""Any model of regard as ONNX graphs, for onnxruntime: what `regard export --to onnx` writes.

    encoder.onnx, step.onnx, lengths.onnx or model.onnx   the graphs (exchange/onnx_graphs.py)
    onnx.json                                             what goes in and comes out, and the settings (onnx/manifest.py)
    tokenizer.json, or one for each side                  as in a run
    parity.json, manifest.json, README.md                 the certificate, hashes, how to open it

With int8, the matrices of products are kept in 8 bits (onnxruntime's dynamic quantisation); tables of words, recurrent layers'
matrices and all else stay in float32.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.core.errors import ModelError
from regard.core.files import write_json
from regard.core.search_config import SearchConfig
from regard.core.types import EOS
from regard.exchange.export_plan import Plan, batches_of, need
from regard.exchange.onnx_graphs import Functions
from regard.exchange.onnx_making import OPSET, write_graphs
from regard.exchange.onnx_readme import readme
from regard.exchange.parity import Side
from regard.exchange.parity_sides import composed, kind_of, live_model, on_cpu, prompts_of, text_pairs, written_after
from regard.onnx.folder import read_folder
from regard.onnx.manifest import NAME, Manifest
from regard.onnx.reading import OnnxClassifier, OnnxMaskedText, OnnxTagger
from regard.onnx.searching import forced_scores
from regard.onnx.text import OnnxComposer, OnnxTextModel
from regard.onnx.translator import OnnxTranslator

ROWS = 16  # cases that are compared at once
INSTALL = "Install it with `pip install regard[export]`"
QUANTISED = ("MatMul", "Gemm")
OPENED = {
    "translates": OnnxTranslator,
    "continues": OnnxTextModel,
    "classifies": OnnxClassifier,
    "tags": OnnxTagger,
    "fills": OnnxMaskedText,
    "composes": OnnxComposer,
}


def plan_onnx(task: Any, quantise: str) -> Plan:
    """How a model is written as graphs, in float32 or int8."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        need(package, "onnx", INSTALL)
    model, kind = live_model(task), _kind(live_model(task))
    notes = []
    if getattr(task, "search", None) is not None and task.search.coverage:
        notes.append("The graphs give no attention weights: search.coverage is 0 in the exported settings.")
    measure = "states" if kind == "fills" and not model.config.head else "all"
    compared = on_cpu(task)

    def fill(place: Path) -> None:
        functions = write_graphs(live_model(compared), place)
        if quantise == "int8":
            for function in functions.functions.values():
                _quantise(place / function.graph.file)
        task.tokenizers.save(place)
        from regard import __version__

        write_json(place / NAME, _manifest(task, model, kind, functions, quantise).to_plain(__version__))

    return Plan(
        fill=fill,
        side=lambda place: _side(place, kind, measure),
        ours=lambda side: _ours(side, compared, kind),
        measure=measure,
        readme=readme(model.config.name, kind, quantise),
        hint="regard.onnx.load, which needs no torch",
        notes=notes,
    )


def _kind(model: Any) -> str:
    if "embeds" in model.capabilities:
        what = "word vectors are a table, and there is nothing to run"
        raise ModelError(f"model {model.config.name!r}", what, "Write them with --to word2vec")
    return kind_of(model)


def _manifest(task: Any, model: Any, kind: str, functions: Functions, quantise: str) -> Manifest:
    search: SearchConfig | None = getattr(task, "search", None)
    settings = dataclasses.asdict(dataclasses.replace(search or SearchConfig(), coverage=0.0))
    habits, limits = getattr(task, "habits", None), model.limits
    return Manifest(
        task=kind,
        model=model.config.name,
        compute=quantise,  # type: ignore[arg-type]
        graphs={name: function.graph for name, function in functions.functions.items()},
        memory=functions.memory,
        state=functions.state,
        source_vocabulary=task.tokenizers.source.size,
        target_vocabulary=task.tokenizers.target.size,
        source_limit=limits.source,
        target_limit=limits.target,
        least_source=functions.least_source,
        opset=OPSET,
        search=settings,
        usual_source_length=getattr(habits, "usual_length", 0),
        one_sentence_lines=getattr(habits, "one_sentence", False),
        labels=tuple(getattr(task, "labels", ())),
        two_texts=getattr(task, "two_texts", False),
        most_tokens=getattr(task, "most", 0) or 0,
    )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.setLevel(level)


def _quantise(path: Path) -> None:
    """The matrices of a graph's products in 8 bits, in place."""
    with _quietly():
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        small = path.with_suffix(".int8")
        quantize_dynamic(
            onnx.load_model_from_string(path.read_bytes()),
            small,
            op_types_to_quantize=list(QUANTISED),
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
        small.replace(path)


def _ours(side: Side, task: Any, kind: str) -> Side:
    """regard's side; translations are what its users get, by its own search."""
    if kind != "translates":
        return side
    settings = dataclasses.replace(task.search, coverage=0.0, nbest=1, capture=False, fused=False)
    return dataclasses.replace(side, outputs=lambda texts: task.translate(list(texts), search=settings))


def _side(place: Path, kind: str, measure: str) -> Side:
    """What the new graphs answer."""
    opened: Any = OPENED[kind](read_folder(place), place)
    name = "onnxruntime"
    if kind == "translates":
        settings = dataclasses.replace(opened.search, nbest=1)
        return Side(
            name=name,
            scores=lambda cases: _pairs(opened.writer, cases),
            outputs=lambda texts: opened.translate(list(texts), search=settings),
        )
    if kind == "continues":
        return Side(
            name=name,
            scores=lambda cases: _pairs(opened.writer, [([], case) for case in cases]),
            outputs=lambda texts: _continued(opened, texts),
        )
    if kind == "composes":
        return Side(
            name=name,
            scores=lambda cases: _pairs(opened.writer, cases),
            outputs=lambda labels: composed(opened, labels),
        )
    if kind == "classifies":
        return Side(
            name=name,
            scores=lambda cases: list(opened.log_probs(cases)),
            outputs=lambda texts: [guess.label for guess in opened.classify(*text_pairs(opened.manifest, texts))],
        )
    if kind == "tags":
        return Side(
            name=name,
            scores=lambda cases: [opened.run([row], [places])["log_probs"][0] for row, places in cases],
            outputs=lambda texts: [[one.tag for one in words] for words in opened.tag(list(texts))],
        )
    if measure == "states":
        return Side(name=name, scores=lambda cases: [opened.run([row])["states"][0] for row in cases])

    def words(rows: Sequence[list[int]]) -> list[np.ndarray]:
        return [opened.run([row], [range(len(row))])["log_probs"][0] for row in rows]

    return Side(
        name=name,
        scores=words,
        outputs=lambda texts: [found.argmax(-1).tolist() for found in words(opened.tokenizer.encode(list(texts)))],
    )


def _pairs(writer: Any, cases: Sequence[tuple[list[int], list[int]]]) -> Iterator[np.ndarray]:
    for some in batches_of(cases, ROWS):
        yield from forced_scores(writer, [[*source, EOS] for source, _ in some], [target for _, target in some])


def _continued(opened: OnnxTextModel, texts: Sequence[str]) -> list[str]:
    from regard.tasks.text_settings import text_settings

    limit = opened.writer.target_limit
    settings = text_settings(opened.search, method="greedy", max_tokens=written_after(limit))
    settings = dataclasses.replace(settings, min_length=0, no_repeat_ngram=0)
    prompts = prompts_of(opened.tokenizer, texts, limit)
    found = zip(prompts, opened.find(prompts, settings), strict=True)
    return opened.tokenizer.decode([many[0].tokens[len(prompt) :] for prompt, many in found])
