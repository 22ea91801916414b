"""Folders of ONNX graphs: a certificate, the runner without torch, 8 bits, and nothing that a hostile folder could do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_toys import LINES, pair, sentences, shaken, tokenizer, translator
from onnx_models import one_registry  # noqa: F401

import regard.onnx
from regard.core.errors import ModelError, RegardError
from regard.core.files import MANIFEST, write_manifest
from regard.core.search_config import SearchConfig
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair
from regard.data.wordpiece import MASK
from regard.exchange import onnx_export, onnx_making
from regard.exchange.export import export
from regard.exchange.parity import PARITY, ParityError
from regard.exchange.parity_sides import live_model, weights_sha256
from regard.models.base import MODELS, build_model
from regard.onnx.manifest import NAME
from regard.tasks.classification import TextClassifier
from regard.tasks.composing import TextComposer
from regard.tasks.language_model import TextModel
from regard.tasks.masked import MaskedText
from regard.tasks.tagging import TextTagger

pytestmark = pytest.mark.usefixtures("one_registry")
LABELS = ["good", "bad", "so-so"]
KINDS = ("translates", "continues", "classifies", "tags", "fills", "composes")


def _model(name: str, target: int, source: int, **settings: Any) -> Any:
    torch.manual_seed(0)
    config = MODELS.get(name).Config(**settings)
    return shaken(build_model(name, config, source_vocabulary=source, target_vocabulary=target, shared=True))


def task_of(kind: str) -> Any:
    both = pair(kind="wordpiece", tags=(MASK,)) if kind == "fills" else pair()
    size = both.target.size
    if kind == "translates":
        return translator(name="cho", embedding=12, search=SearchConfig(beam=4, max_length=16))
    if kind == "continues":
        return TextModel(_model("nplm", size, 0, embedding=8, width=12), both)
    if kind == "fills":
        model = _model("bert", size, size, width=16, layers=1, heads=2, context=50)
        return MaskedText(model, both, config={"labels": []})
    if kind == "composes":
        source = Tokenizer.train(LABELS, TokenizerConfig(kind="space", size=50, min_count=1))
        apart = TokenizerPair(source, both.target, False)
        model = _model("label-writer", size, source.size, width=12, label=4)
        return TextComposer(model, apart, LABELS, SearchConfig(max_length=20))
    if kind == "tags":
        model = _model("recurrent-tagger", len(LABELS) + 1, size, width=12, layers=1)
        return TextTagger(model, both, LABELS, most=9)
    model = _model("kim", len(LABELS) + 1, size, width=8, maps=4)
    return TextClassifier(model, both, LABELS, two_texts=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_registry) -> dict[str, tuple[Any, Path]]:  # noqa: F811
    """What each kind of model was, and its folder."""
    folder = tmp_path_factory.mktemp("onnx")
    tasks = {kind: task_of(kind) for kind in KINDS}
    return {kind: (task, _exported(task, folder / kind).folder) for kind, task in tasks.items()}


def _exported(task: Any, out: Path, **options: Any) -> Any:
    return export(task, to="onnx", out=out, sentences=sentences(out.parent), **options)


def answers(kind: str, model: Any) -> Any:
    """What a user asks, of torch or of the graphs."""
    if kind == "translates":
        found = model.hypotheses(LINES, search=SearchConfig(beam=4, nbest=3, max_length=16))
        return [[(t.text, round(t.score, 3), t.tokens, t.finished) for t in many] for many in found]
    if kind == "continues":
        likeliest = model.generate(LINES[0], method="greedy", max_tokens=12)
        return [likeliest, model.generate(LINES[1], samples=3, seed=5, max_tokens=12, top_p=0.9)]
    if kind == "composes":
        texts = [one for label in model.labels for one in model.write(label, 2, seed=3, max_tokens=12, top_p=0.9)]
        texts += model.write(model.labels[0], 2, beam=3)
        return [(one.text, round(one.log_prob, 3), one.finished) for one in texts]
    if kind == "classifies":
        found = model.guesses(LINES, LINES[::-1])
        return [[(guess.label, round(guess.probability, 4)) for guess in many] for many in found]
    if kind == "tags":
        found = model.tag([*LINES, LINES[0].split() * 5])
        return [[(one.word, one.tag, round(one.probability, 4)) for one in words] for words in found]
    found = model.fill(f"The river {MASK} high after the {MASK}.", top=4)
    words = [[(one.word, round(one.probability, 4), one.goes_on) for one in many] for many in found]
    vectors = model.embed(LINES[:2]).round(3) + 0.0
    return [words, round(model.follows(LINES[0], LINES[1]), 4), vectors.tolist()]


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate(made, kind):
    task, folder = made[kind]
    certificate = json.loads((folder / PARITY).read_text())
    assert (certificate["passed"], certificate["identical_outputs"]) == (True, 1)
    assert certificate["largest_difference"] < 1e-4
    assert certificate["weights"]["before"] == certificate["weights"]["after"] == weights_sha256(live_model(task))
    assert "onnxruntime" in certificate["versions"]
    assert certificate["sides"] == ["regard", "onnxruntime"]
    assert {NAME, "README.md"} <= set(certificate["files"])
    assert set(json.loads((folder / MANIFEST).read_text())["files"]) == {*certificate["files"], PARITY}


def test_the_same_answers_without_torch(made, tmp_path):
    """Another process, in which torch cannot be imported."""
    script = tmp_path / "ask.py"
    lines = Path(__file__).read_text(encoding="utf-8")
    ask = lines[lines.index("def answers(") : lines.index("def plain(")]
    script.write_text(
        "from __future__ import annotations\nimport json, sys\n"
        "sys.modules['torch'] = None\n"  # an import of it is an error now
        "import regard.onnx\nfrom regard.core.search_config import SearchConfig\nfrom typing import Any\n"
        f"LINES, MASK = {LINES!r}, {MASK!r}\n{ask}\n"
        "found = {kind: answers(kind, regard.onnx.load(folder)) for kind, folder in json.loads(sys.argv[1]).items()}\n"
        "odd = [name for name in ('onnx', 'onnxscript', 'transformers', 'ctranslate2') if name in sys.modules]\n"
        "print(json.dumps([found, odd]))\n",
        encoding="utf-8",
    )
    folders = json.dumps({kind: str(folder) for kind, (_, folder) in made.items()})
    source = str(Path(regard.onnx.__file__).parents[2])
    run = subprocess.run(
        [sys.executable, str(script), folders],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found, odd = json.loads(run.stdout)
    assert odd == []
    for kind, (task, _) in made.items():
        assert found[kind] == plain(answers(kind, task)), kind


def test_a_translator_does_what_others_do(made):
    task, folder = made["translates"]
    runs = regard.onnx.load(folder)
    assert runs.engine == "onnxruntime"
    assert runs.translate(LINES[0], beam=2) == task.translate(LINES[0], beam=2)
    text = f"{LINES[0]}\n\n{LINES[1]} {LINES[2]}"
    assert runs.translate([text, "", LINES[3]]) == task.translate([text, "", LINES[3]])
    forced = runs.hypotheses(LINES[:2], prefixes=["The river", ""])
    assert [many[0].text for many in forced] == [
        many[0].text for many in task.hypotheses(LINES[:2], prefixes=["The river", ""])
    ]
    for one, other in zip(runs.score(LINES, LINES[::-1]), task.score(LINES, LINES[::-1]), strict=True):
        assert one.tokens == other.tokens
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-3)
    assert [found for _, found in runs.translate_stream(iter(LINES))] != []
    with pytest.raises(ModelError, match="no attention weights"):
        runs.hypotheses(LINES, attention=True)
    with pytest.raises(ModelError, match="without a torch model"):
        _ = runs.model


def test_eight_bits(tmp_path):
    task = task_of("translates")
    made = _exported(task, tmp_path / "small", quantise="int8")
    assert made.certificate["compute"] == "int8"
    assert 0 < made.certificate["largest_difference"] < 2
    assert b"MatMulInteger" in (tmp_path / "small" / "step.onnx").read_bytes()
    assert len(regard.onnx.load(tmp_path / "small").translate(LINES)) == len(LINES)


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    task = task_of("continues")
    monkeypatch.setattr(onnx_making, "CLOSE", -1.0)
    with pytest.raises(ParityError, match=r"graph step: at sizes .* its output log_probs is not what the model gives"):
        _exported(task, tmp_path / "out")
    monkeypatch.setattr(onnx_making, "CLOSE", 1e-3)
    plain_scores = onnx_export.forced_scores
    monkeypatch.setattr(onnx_export, "forced_scores", lambda *a: [x + np.float32(0.01) for x in plain_scores(*a)])
    with pytest.raises(ParityError, match=r"the largest difference is 0\.01"):
        _exported(task, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt"]


def _edit(folder: Path, change: Any) -> None:
    path = folder / NAME
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def _external(folder: Path) -> None:
    import onnx

    model = onnx.load_model(folder / "step.onnx")
    tensor = model.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, location="../../secret.bin")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    (folder / "step.onnx").write_bytes(model.SerializeToString())


def _foreign(folder: Path) -> None:
    import onnx

    model = onnx.load_model(folder / "step.onnx")
    model.graph.node[0].domain = "evil.ops"
    (folder / "step.onnx").write_bytes(model.SerializeToString())


def _linked(folder: Path) -> None:
    (folder / "step.onnx").rename(folder.parent / "elsewhere.onnx")
    (folder / "step.onnx").symlink_to(folder.parent / "elsewhere.onnx")


HOSTILE: dict[str, tuple[Any, str]] = {
    "unknown field": (lambda f: _edit(f, lambda v: v.update(trust="me")), "has the unknown field 'trust'"),
    "missing field": (lambda f: _edit(f, lambda v: v.pop("memory")), "lacks 'memory'"),
    "climbing path": (lambda f: _edit(f, lambda v: v["graphs"]["step"].update(file="../step.onnx")), r"is '\.\./step"),
    "giant state": (lambda f: _edit(f, lambda v: v["state"][0].update(shape=["B", "K", 1 << 40])), "a size is 1099511"),
    "odd kind": (lambda f: _edit(f, lambda v: v["state"][0].update(kind="pickle")), "kind is 'pickle'"),
    "import string": (lambda f: _edit(f, lambda v: v.update(task="os.system")), "task is 'os.system'"),
    "other format": (lambda f: _edit(f, lambda v: v.update(format=9)), "it has format 9"),
    "unknown search": (lambda f: _edit(f, lambda v: v["search"].update(hook="x")), "hook"),
    "wide beam": (lambda f: _edit(f, lambda v: v["search"].update(beam=10**9)), "search.beam"),
    "other inputs": (
        lambda f: _edit(f, lambda v: v["graphs"]["encoder"]["inputs"][0].update(type="float32")),
        "its inputs are not those",
    ),
    "deep json": (lambda f: (f / NAME).write_text("[" * 100_000), "not valid JSON"),
    "no json": (lambda f: (f / NAME).write_bytes(b"\x80\x04pickle"), "not valid JSON"),
    "external data": (_external, "it has data in another file"),
    "foreign operator": (_foreign, "operators of a domain that is not known"),
    "cut graph": (lambda f: (f / "step.onnx").write_bytes((f / "step.onnx").read_bytes()[:-9]), "cut off|damaged|take"),
    "no graph": (lambda f: (f / "step.onnx").write_bytes(b"PK\x03\x04" * 99), "ONNX model"),
    "a link": (_linked, "missing"),
    "other tokenizer": (lambda f: TokenizerPair(tokenizer(1), tokenizer(1), True).save(f), "not those of the graphs"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_folders(made, tmp_path, name):
    """Each with hashes that fit, as its author would write them."""
    change, message = HOSTILE[name]
    folder = tmp_path / "folder"
    shutil.copytree(made["translates"][1], folder)
    change(folder)
    write_manifest(folder)
    with pytest.raises(RegardError, match=message) as caught:
        regard.onnx.load(folder)
    assert len(str(caught.value)) < 600


def test_hashes_come_first(made, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(made["continues"][1], folder)
    content = bytearray((folder / "step.onnx").read_bytes())
    content[-20] ^= 1
    (folder / "step.onnx").write_bytes(bytes(content))
    with pytest.raises(RegardError, match="its SHA-256 is not the one in the manifest"):
        regard.onnx.load(folder)
    with pytest.raises(RegardError, match=r"it has no onnx\.json"):
        regard.onnx.load(tmp_path)
    with pytest.raises(RegardError, match="there is no such folder"):
        regard.onnx.load(tmp_path / "nothing")
