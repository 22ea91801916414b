"""Every number on the page is the model's: read from a real browser, recomputed here, equal to 1e-6.

Files that the page saves hold all digits of what it shows; numbers in the text carry theirs in `data-value`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import SIZES, run_node, served, small_session

from regard.core.types import BOS, EOS, PAD, pad_rows
from regard.evaluation.lengths import by_source_length
from regard.evaluation.metrics import Flavour
from regard.looking.session import MASKED_SENTENCE, SENTENCE
from regard.looking.tracing import make_trace
from regard.models.base import Recorder
from regard.search.search import search
from regard.tasks.word_vectors import WordVectors

NUMBER = {name: str(i) for i, name in enumerate(["bundled", *SIZES])}
TOLERANCE = 1e-6
STEPPED = {
    "bundled": {"part": "decoder.cross", "layer": 1, "head": 2, "row": 3},
    "bahdanau": {"part": "decoder.cross", "layer": 0, "head": 0, "row": 2},
    "luong": {"part": "decoder.cross", "layer": 0, "head": 0, "row": 2},
    "gnmt": {"part": "decoder.cross", "layer": 0, "head": 0, "row": 2},
    "convs2s": {"part": "decoder.cross", "layer": 1, "head": 0, "row": 1},
    "universal": {"part": "encoder.self", "layer": 1, "head": 1, "row": 4},
    "gpt": {"part": "decoder.self", "layer": 1, "head": 1, "row": 3},
    "bert": {"part": "reader.self", "layer": 1, "head": 0, "row": 2},
}


def state(view: str, name: str, **more: Any) -> dict[str, str]:
    return {"view": view, "model": NUMBER[name], **{key: str(value) for key, value in more.items()}}


WANTED: dict[str, dict[str, Any]] = {
    "heads": {"state": state("heads", "bundled", part="decoder.cross", layer=1, head="all"), "save": ["JSON", 0]},
    "overview": {"state": state("heads", "bundled", part="encoder.self"), "save": ["CSV", 1]},
    "alignment": {"state": state("alignment", "bundled"), "save": ["CSV", 0]},
    "words": {"state": state("alignment", "bundled", merge="words"), "save": ["CSV", 0]},
    "hover": {
        "state": state("alignment", "bahdanau"),
        "hover": "main .matrix canvas",
        "values": "main .readout .num",
    },
    **{f"steps {name}": {"state": state("steps", name, **at), "save": ["JSON", 0]} for name, at in STEPPED.items()},
    "recurrent": {
        "state": state("recurrent", "bahdanau", rnn="decoder", gate="update gate"),
        "save": ["CSV", 0],
    },
    "recurrent state": {"state": state("recurrent", "gnmt", rnn="decoder.0", gate="cell"), "save": ["CSV", 0]},
    "local": {"state": state("local", "luong"), "save": ["CSV", 0]},
    "beam": {
        "state": state("beam", "bundled"),
        "save": ["CSV", 0],
        "values": "[data-part] td .num",
    },
    "ponder": {"state": state("ponder", "universal"), "save": ["CSV", 0]},
    "ponder input": {
        "state": state("ponder", "universal", side="input", row=2),
        "save": ["CSV", 0],
        "values": "table[data-token] td .num",
    },
    "winners": {"state": state("convolution", "kim"), "save": ["CSV", 0]},
    "glu encoder": {"state": state("convolution", "convs2s", rnn="encoder.0"), "save": ["CSV", 0]},
    "glu decoder": {"state": state("convolution", "convs2s", rnn="decoder.1"), "save": ["CSV", 0]},
    "positions": {"state": state("positions", "bundled", table="source"), "save": ["CSV", 0]},
    "learned": {"state": state("positions", "convs2s"), "save": ["CSV", 0]},
    "near": {"state": state("vectors", "bundled", word="street"), "save": ["CSV", 0]},
    "analogy": {"state": state("vectors", "bundled", analogy="is,was,are"), "save": ["CSV", 1]},
    "context": {
        "state": state("vectors", "bundled"),
        "click": ['section[aria-label="One word in two sentences"] button[type=submit]'],
        "save": ["CSV", 3],
    },
    "next": {"state": state("language", "gpt"), "save": ["JSON", 0]},
    "surprisal": {"state": state("language", "lstmlm"), "save": ["JSON", 0]},
    "fill": {"state": state("language", "bert"), "save": ["JSON", 0]},
    "training": {"state": state("training", "kim"), "save": ["CSV", 0]},
    "evaluation": {"state": state("evaluation", "bundled"), "save": ["CSV", 0]},
    "compare": {
        "state": state("compare", "bundled", other=NUMBER["gnmt"]),
        "save": ["CSV", 1],
        "values": ".one-model .facts .num, .one-model .strip .num",
    },
    "pooling": {"state": {"view": "pooling", "q": "0.3", "h": "0.5"}, "save": ["JSON", 0]},
}


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return small_session(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def page(session):
    with served(session) as address:
        found = run_node("read.mjs", address, given=WANTED)
    assert {key: one["error"] for key, one in found.items() if "error" in one} == {}
    return found


@pytest.fixture
def task(session):
    return lambda name: session.models[int(NUMBER[name])].task


def table(page, key: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(page[key]["file"])))


def matrix(page, key: str) -> np.ndarray:
    """The numbers of a saved heat map, without its labels."""
    return np.array([[float(cell) for cell in row[1:]] for row in table(page, key)[1:]])


def forced(task, text: str = SENTENCE):
    """What a translator writes, and one more pass over it: ids, hidden states and what was recorded."""
    (ids,) = task.tokenizers.source.encode([text])
    source = pad_rows([[*ids, EOS]])
    with torch.inference_mode():
        best = search(task.model, source, task.search)[0][0]
        record = Recorder()
        read = torch.tensor([[BOS, *best.tokens]])[:, : len(best.tokens) + best.finished]
        hidden = task.model(source, read, record).hidden[0]
    return best, source, read, hidden, record


def close(shown, own) -> None:
    np.testing.assert_allclose(
        np.asarray(shown, np.float64), np.asarray(own, np.float64), rtol=TOLERANCE, atol=TOLERANCE
    )


def test_heads_and_their_statistics(page, task):
    *_, record = forced(task("bundled"))
    shown = json.loads(page["heads"]["file"])
    own = record.tensors["decoder.1.cross"][0].numpy()
    close(np.array(shown["weights"]).reshape(own.shape), own)
    rows = table(page, "overview")[1:]
    assert len(rows) == 5 * 4
    for layer, head, entropy, _, first, _ in rows:
        weights = record.tensors[f"encoder.{int(layer) - 1}.self"][0, int(head) - 1].double().numpy()
        bits = -(weights * np.log2(np.maximum(weights, 1e-12))).sum(-1).mean()
        assert float(entropy) == pytest.approx(bits, abs=1e-5)
        assert float(first) == pytest.approx(weights[:, 0].mean(), abs=TOLERANCE)


def test_alignments_of_tokens_and_words_and_under_the_pointer(page, task):
    *_, record = forced(task("bundled"))
    own = task("bundled").model.alignment(record)[0].numpy()
    close(matrix(page, "alignment"), own)
    trace = make_trace(task("bundled"), SENTENCE)
    assert trace.target is not None
    merged = np.array([[own[a:b, c:d].sum(1).mean() for c, d in trace.source.words] for a, b in trace.target.words])
    close(matrix(page, "words"), merged)
    *_, record = forced(task("bahdanau"))
    own = task("bahdanau").model.alignment(record)[0].double().numpy()
    row, column = page["hover"]["place"]
    assert (row, column) != (0, 0)
    value, total, entropy = (float(one) for one in page["hover"]["values"])
    assert value == pytest.approx(own[row, column], abs=TOLERANCE)
    assert total == pytest.approx(own[row].sum(), abs=TOLERANCE)
    assert entropy == pytest.approx(-(own[row] * np.log2(own[row])).sum(), abs=1e-5)


@pytest.mark.parametrize("name", STEPPED)
def test_steps(name, page, task):
    """All tensors of all steps; the weights, and what leads to words, also from a pass of the model by itself."""
    at = STEPPED[name]
    text = MASKED_SENTENCE if name == "bert" else SENTENCE
    trace = make_trace(task(name), text)
    own = trace.steps(at["part"], at["layer"], at["head"], at["row"])
    shown = json.loads(page[f"steps {name}"]["file"])["steps"]
    assert [step["name"] for step in shown] == [step.name for step in own]
    found = {}
    for step, mine in zip(shown, own, strict=True):
        assert (step["formula"], step["chosen"]) == (mine.formula, mine.chosen)
        for tensor, values in zip(step["tensors"], mine.tensors, strict=True):
            read = np.array([float(one) for one in tensor["values"]]).reshape(tensor["shape"])
            close(read, values.values)
            found[f"{mine.name}.{tensor['name']}"] = read
    weights = found.get("gaussian.weights", found["softmax.weights"])
    close(weights, trace.head(at["part"], at["layer"], at["head"])[at["row"]])
    if name in ("bahdanau", "luong", "gnmt", "convs2s"):
        *_, hidden, record = forced(task(name))
        close(weights, record.tensors[f"decoder.{at['layer']}.cross"][0, 0, at["row"]].numpy())
        close(found["vocabulary.h"], hidden[at["row"]].numpy())
        with torch.inference_mode():
            best = task(name).model.output.scores(hidden)[at["row"]].topk(10).values
        close(found["vocabulary.log-probabilities"], best.numpy())
    assert ("vocabulary.h" in found) == at["part"].startswith("decoder")


def test_gates_and_states_of_recurrent_layers(page, task):
    trace = make_trace(task("bahdanau"), SENTENCE)
    update = matrix(page, "recurrent")
    close(update, trace.gate("decoder", "update gate"))
    model = task("bahdanau").model
    _, source, read, _, _ = forced(task("bahdanau"))
    with torch.inference_mode():  # from state to state with the gate that is shown
        memory, state = model.start(source)
        for t in range(read.shape[1]):
            before = state.s[0, 0].double().numpy().copy()
            _, state = model.advance(read[:, None, t : t + 1], memory, state)
            mixed = (1 - update[t]) * trace.gate("decoder", "candidate")[t] + update[t] * before
            np.testing.assert_allclose(state.s[0, 0].numpy(), mixed, atol=1e-5)
    close(matrix(page, "recurrent state"), make_trace(task("gnmt"), SENTENCE).gate("decoder.0", "cell"))


def test_centres_of_local_attention(page, task):
    model = task("luong").model
    _, source, read, _, _ = forced(task("luong"))
    rows = table(page, "local")[1:]
    with torch.inference_mode():
        memory, state = model.start(source)
        for t in range(read.shape[1]):
            _, state = model.advance(read[:, None, t : t + 1], memory, state)
            centre = model.centre(state.h[-1], memory.keep.sum(1))[0, 0].item()
            assert [float(one) for one in rows[t][1:]] == pytest.approx([centre, centre - 3, centre + 3], abs=1e-5)
    assert len(rows) == read.shape[1]


def test_the_beam_and_the_parts_of_a_score(page, task):
    best, *_ = forced(task("bundled"))
    names, *rows = table(page, "beam")
    nodes = [dict(zip(names, row, strict=True)) for row in rows]
    own = make_trace(task("bundled"), SENTENCE).beam()["nodes"]
    assert len(nodes) == len(own)
    for node, mine in zip(nodes, own, strict=True):
        for name in ("log_prob", "total", "divisor", "length", "score"):
            if mine[name] is not None:
                assert float(node[name]) == pytest.approx(mine[name], abs=TOLERANCE)
    last = [node for node in nodes if node["best"] == "true"][-1]
    assert float(last["total"]) == pytest.approx(best.log_prob, abs=1e-5)
    assert float(last["score"]) == pytest.approx(best.score, abs=1e-5)
    total, length, score = (float(one) for one in page["beam"]["values"])  # under the tree, of the best node
    assert total == pytest.approx(best.log_prob, abs=1e-5)
    assert total + length == pytest.approx(score, abs=1e-9)
    assert score == pytest.approx(best.score, abs=1e-5)


@pytest.mark.parametrize(("key", "side"), [("ponder", "encoder"), ("ponder input", "decoder")])
def test_pondering(key, side, page, task):
    _, _, read, _, record = forced(task("universal"))
    weights = record.tensors[f"{side}.halting"][0].double().numpy()
    rows = table(page, key)[1:]
    shown = np.array([[float(one) for one in row[1:]] for row in rows]).reshape(*weights.shape, 6)
    _, chances, sums, p, steps, remainder = np.moveaxis(shown, -1, 0)
    close(p, weights)
    close(sums, chances.cumsum(1))
    for i, n in enumerate(steps[:, 0].astype(int)):
        close(chances[i, : n - 1], weights[i, : n - 1])
        close(remainder[i, 0], 1 - chances[i, : n - 1].sum())
        assert sums[i, n - 1] > 0.99 or n == weights.shape[1]
    if key == "ponder input":
        small = np.array(page[key]["values"], dtype=float).reshape(-1, 3)  # of the chosen token
        close(small, shown[2][:, 1:4])
        assert len(rows) == read.shape[1] * weights.shape[1]


def test_convolutions(page, task):
    kim = task("kim")
    (ids,) = kim.tokenizer.encode([SENTENCE])
    with torch.inference_mode():
        words = kim.model.embedding(torch.tensor(ids)).double().numpy()
    sizes = [part.width for part in kim.model.filters]
    rows = table(page, "winners")[1:]
    assert rows
    for number, _, _, _, score in rows:
        at, which = divmod(int(number), kim.model.filters[0].weight.shape[0])
        part = kim.model.filters[at]
        around = part.around
        padded = np.vstack([np.zeros((around, words.shape[1])), words, np.zeros((around, words.shape[1]))])
        weight = part.weight[which].detach().double().numpy()
        bias = part.bias[which].item()
        values = [padded[i : i + sizes[at]].ravel() @ weight + bias for i in range(len(padded) - sizes[at] + 1)]
        assert float(score) == pytest.approx(max(values), abs=1e-5)
    trace = make_trace(task("convs2s"), SENTENCE)
    close(matrix(page, "glu encoder"), trace.convolution_gate("encoder.0", "gate σ(B)"))
    close(matrix(page, "glu decoder"), trace.convolution_gate("decoder.1", "gate σ(B)"))


def test_positions(page, task):
    shown = matrix(page, "positions")
    places, width = np.arange(shown.shape[0])[:, None], shown.shape[1]
    angles = places / 10000 ** (2 * np.arange(width // 2) / width)
    np.testing.assert_allclose(shown[:, 0::2], np.sin(angles), atol=1e-5)
    np.testing.assert_allclose(shown[:, 1::2], np.cos(angles), atol=1e-5)
    own = task("convs2s").model.source_positions
    with torch.inference_mode():
        count = matrix(page, "learned").shape[0]
        close(matrix(page, "learned"), own(torch.arange(count), count).numpy())


def test_neighbours_of_a_word(page, session):
    vectors = WordVectors.load(session.models[0].folder)
    unit = vectors.unit.astype(np.float64)
    mine = unit[vectors.place("street")]
    rows = table(page, "near")[1:]
    assert len(rows) >= 5
    for word, cosine in rows:
        assert float(cosine) == pytest.approx(float(unit[vectors.words.index(word)] @ mine), abs=TOLERANCE)


def test_analogies_and_one_word_in_two_sentences(page, session, task):
    vectors = WordVectors.load(session.models[0].folder)
    unit = vectors.unit.astype(np.float64)
    a, b, c = (unit[vectors.place(word)] for word in ("is", "was", "are"))
    asked = (b - a + c) / np.linalg.norm(b - a + c)
    rows = table(page, "analogy")[1:]
    assert rows[0][0] == "were"
    for word, cosine in rows:
        assert float(cosine) == pytest.approx(float(unit[vectors.words.index(word)] @ asked), abs=TOLERANCE)
    model, tokenizer, ends = task("bundled").model, task("bundled").tokenizers.source, []
    for before, after in (("She sat on the", " of the river."), ("He took the money to the", ".")):
        (ids,), (begin,), (end,) = (
            tokenizer.encode([text]) for text in (before + " bank" + after, before, before + " bank")
        )
        source = pad_rows([[*ids, EOS]])
        with torch.inference_mode():
            x = model._embed(source.tokens, "source", torch.arange(len(ids) + 1), len(ids) + 1, source.keep)
            states = [x]
            for layer in model.encoder:
                x, _ = layer(x, None, False)
                states.append(x)
        ends.append([one[0, len(begin) : len(end)].mean(0).double().numpy() for one in states])
    shown = table(page, "context")[1:]
    own = [float(one @ two / np.linalg.norm(one) / np.linalg.norm(two)) for one, two in zip(*ends, strict=True)]
    assert [name for name, _ in shown] == ["input", *(f"layer {i}" for i in range(1, 6))]
    np.testing.assert_allclose([float(cosine) for _, cosine in shown], own, atol=TOLERANCE)


@pytest.mark.parametrize(("key", "name"), [("next", "gpt"), ("surprisal", "lstmlm")])
def test_surprisal_and_the_next_word(key, name, page, task):
    model = task(name)
    (ids,) = model.tokenizer.encode([SENTENCE])
    with torch.inference_mode():
        hidden = model.model(pad_rows([[PAD]]), torch.tensor([[BOS, *ids]])).hidden[0]
        scores = model.model.output.scores(hidden).double()
    shown = json.loads(page[key]["file"])
    bits = [-scores[t, token].item() / math.log(2) for t, token in enumerate(ids)]
    np.testing.assert_allclose([one["surprisal"] for one in shown["tokens"]], bits, rtol=1e-5)
    best = scores[-1].exp().sort(descending=True).values
    offered = [one["probability"] for one in shown["next"]]
    for probability in offered:
        assert (best - probability).abs().min().item() < TOLERANCE
    assert offered == sorted(offered, reverse=True)


def test_masked_words(page, task):
    (own,) = task("bert").fill(MASKED_SENTENCE, 20)
    (shown,) = json.loads(page["fill"]["file"])["masks"]
    assert shown
    for one, mine in zip(shown, own, strict=False):
        assert one["word"] == mine.word
        assert one["probability"] == pytest.approx(mine.probability, abs=TOLERANCE)


def test_curves_and_evaluation(page, session):
    rows = table(page, "training")[1:]
    own = [json.loads(line) for line in session.models[int(NUMBER["kim"])].metrics.read_text().splitlines()]
    assert [(int(step), name, float(value)) for step, name, value in rows] == [
        (row["step"], "loss", row["loss"]) for row in own
    ]
    made = session.models[0].evaluation  # what the server translated and scored
    for one in made["sentences"][::20]:
        assert session.models[0].task.translate(one["source"]) == one["written"]
    sources, written, references = (
        [one[name] for one in made["sentences"]] for name in ("source", "written", "reference")
    )
    lengths = by_source_length(sources, written, references, Flavour(language="de"))
    shown = table(page, "evaluation")[1:]
    assert len(shown) == len(lengths)
    for row, mine in zip(shown, lengths, strict=True):
        assert [row[0], int(row[4])] == [mine.label, mine.sentences]
        assert float(row[1]) == pytest.approx(mine.bleu.value, abs=TOLERANCE)


def test_two_models(page, task):
    found = [float(one) for one in page["compare"]["values"]]
    for name in ("bundled", "gnmt"):
        best, _, read, hidden, record = forced(task(name))
        with torch.inference_mode():
            wanted = torch.tensor([*best.tokens, EOS])[: read.shape[1]]
            own = task(name).model.output.scores(hidden).gather(-1, wanted[:, None])[:, 0].double().numpy()
        for value in [*own, own.sum(), best.score]:
            assert min(abs(value - one) for one in found) < 1e-5
    close(matrix(page, "compare"), task("gnmt").model.alignment(record)[0].numpy())


def test_attention_by_hand(page):
    shown = json.loads(page["pooling"]["file"])
    keys, values = (np.array([pair[name] for pair in shown["pairs"]]) for name in ("key", "value"))
    powers = np.exp(-((0.3 - keys) ** 2) / (2 * 0.5**2))
    close(shown["weights"], powers / powers.sum())
    close(shown["result"], powers @ values / powers.sum())
