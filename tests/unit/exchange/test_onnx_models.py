"""Every architecture as ONNX graphs: onnxruntime gives what torch gives, at any size, and the same n-best lists."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx_models import LABELS, V, make, one_registry, runner  # noqa: F401

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, pad_rows
from regard.exchange.onnx_graphs import functions_of
from regard.exchange.onnx_making import write_graphs
from regard.models.base import MODELS
from regard.onnx.searching import forced_scores, search
from regard.onnx.sessions import open_graph
from regard.onnx.writing import padded
from regard.search.config import SearchConfig
from regard.search.search import search as torch_search
from regard.search.text_scores import no_source

pytestmark = pytest.mark.usefixtures("one_registry")
BLOCK = {"width": 16, "layers": 1, "heads": 2}
WRITERS = {
    "bahdanau": {"embedding": 6, "width": 8, "reset": "before"},
    "cho": {"embedding": 6, "width": 8},
    "convs2s": {"embedding": 6, "width": 8, "layers": 1, "max_length": 30},
    "gnmt": {"embedding": 6, "width": 8, "layers": 2},
    "label-writer": {"width": 8, "cell": "rnn", "label": 4},
    "luong": {"width": 8, "layers": 1, "attention": "local-p"},
    "rctm1": {"width": 6, "max_source": 8},
    "rctm2": {"width": 6, "max_source": 8, "max_target": 9},
    "sutskever": {"width": 8, "layers": 1},
    "transformer": {**BLOCK, "decoder_layers": 2, "relative": "shaw", "norm": "post"},
    "universal": {"width": 8, "steps": 2, "heads": 2, "halting": "act"},
    "gpt": {**BLOCK, "context": 30, "positions": "none", "relative": "rotary", "kv_heads": 1},
    "lstmlm": {"width": 8, "layers": 1},
    "nplm": {"embedding": 6, "width": 8},
    "rnnlm": {"width": 8},
}
READERS = {
    "bert": {**BLOCK, "context": 30},
    "bert-classifier": {**BLOCK, "context": 30},
    "bert-tagger": {**BLOCK, "context": 30},
    "dcnn": {"width": 8, "windows": [3, 2], "maps": [2, 3], "k_top": 2},
    "deep-averaging": {"embedding": 8, "width": 8, "bigrams": 11},
    "gpt-classifier": {**BLOCK, "context": 30},
    "kim": {"width": 8, "maps": 3, "windows": [2, 3], "border": "narrow"},
    "recurrent-classifier": {"width": 8, "layers": 1, "cell": "gru"},
    "recurrent-tagger": {"width": 8, "layers": 1},
    "transformer-classifier": {**BLOCK, "pool": "first"},
    "transformer-tagger": {**BLOCK},
}
SOURCES = [[5, 9, 4, 11, 7, EOS], [6, EOS], [8, 8, 10, EOS]]


def test_every_model_is_tried():
    """A new architecture must be added here, or say that there is nothing to run."""
    assert {*WRITERS, *READERS, "word2vec"} == set(MODELS.names())


@pytest.mark.parametrize("name", WRITERS)
def test_graphs_of_models_that_write(name: str, tmp_path: Path):
    model = make(name, **WRITERS[name])
    writer = runner(model, tmp_path)
    assert all(path.suffix == ".onnx" for path in tmp_path.iterdir())
    targets = [[7, 5, 12], [], [9, 4, 6, 13, 5]]
    found = forced_scores(writer, SOURCES, targets)
    for source, target, scores in zip(SOURCES, targets, found, strict=True):
        given = no_source(1, "cpu") if writer.continues else pad_rows([source])
        with torch.no_grad():
            wanted = model.output.scores(model(given, torch.tensor([[BOS, *target]])).hidden[0]).numpy()
        assert scores.shape == wanted.shape
        assert np.abs(scores - wanted).max() < 1e-4
    config = SearchConfig(beam=3, nbest=3, max_length=7, lengths=2)
    prefixes = [[7, 5], [4], [9, 6, 8]] if writer.continues else [[], [4, 5], []]
    same_lists(search(writer, SOURCES, config, prefixes), torch_lists(model, config, prefixes))


def torch_lists(model, config, prefixes):
    source = no_source(len(SOURCES), "cpu") if "continues" in model.capabilities else pad_rows(SOURCES)
    return torch_search(model, source, config, prefixes)


def same_lists(found, wanted):
    assert [len(many) for many in found] == [len(many) for many in wanted]
    for one, other in zip(chain.from_iterable(found), chain.from_iterable(wanted), strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-4)


@pytest.mark.parametrize("name", READERS)
def test_graphs_of_models_that_read(name: str, tmp_path: Path):
    model = make(name, **READERS[name])
    made = write_graphs(model, tmp_path)
    graph = made.functions["model"].graph
    path = tmp_path / graph.file
    session = open_graph(path, path.read_bytes(), graph)
    rows = [[5], [9, 4, 7, 8, 12, 6, 15, 4, 20, 11, 9], [6, 7, 13]]
    tokens, keep = padded(rows, made.least_source)
    inputs = {"tokens": tokens, "keep": keep}
    if any(port.name == "places" for port in graph.inputs):
        inputs["places"] = np.array([[0, 0], [3, 10], [2, 1]])
    found = session.run(inputs)
    for i, row in enumerate(rows):  # alone, without padding
        source = pad_rows([row])
        with torch.no_grad():
            if "classifies" in model.capabilities:
                wanted = model.output.scores(model(source, torch.tensor([[0]])).hidden)[0, 0, 1:]
                assert wanted.shape == (LABELS - 1,)
            else:
                places = torch.from_numpy(inputs["places"][i : i + 1])
                fills = "fills" in model.capabilities
                target = torch.cat((torch.zeros_like(places[:, :1]), places), 1) if fills else places
                wanted = model.output.scores(model(source, target).hidden)[0]
                wanted = wanted[1:] if fills else wanted[:, 1:]
        assert np.abs(found["log_probs"][i] - wanted.numpy()).max() < 1e-4
        if "states" in found:
            whole = model.whole_states(source)[0][0].detach().numpy()
            assert np.abs(found["states"][i, : len(row) + 2] - whole).max() < 1e-4


def test_word_vectors_are_refused():
    from regard.models.word2vec import Word2VecConfig

    model = MODELS.get("word2vec")(Word2VecConfig(), vocabulary=V)
    with pytest.raises(ModelError, match="there is nothing to run"):
        functions_of(model)
