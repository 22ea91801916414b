"""Exports to CTranslate2: every setting that it can express gives the same numbers and texts; all else is refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_toys import LINES, bert, gpt, sentences, translator

from regard.core.errors import ModelError
from regard.core.types import pad_rows
from regard.exchange import ctranslate2_export, ctranslate2_gpt
from regard.exchange.export import Exported, export
from regard.exchange.parity import PARITY, ParityError
from regard.exchange.parity_sides import live_model, weights_sha256

ctranslate2 = pytest.importorskip("ctranslate2")

TRANSLATORS: list[dict[str, Any]] = [  # tests/unit/engines has the others
    {},
    {"norm": "post", "activation": "gelu", "joint": False},
    {"normalise": "rms", "activation": "swiglu", "tie": "none"},
    {"positions": "none", "relative": "t5"},
]
GPTS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "tie": False},
    {"normalise": "rms", "activation": "swiglu", "bias": False},
    {"silent": True},
    {"qk_norm": True, "kv_heads": 2},
    {"positions": "none", "activation": "relu"},
    {"positions": "none", "relative": "shaw", "relative_to": "keys", "kv_heads": 1},
    {"positions": "none", "relative": "alibi", "kv_heads": 2},
    {"positions": "none", "relative": "rotary", "rotary_layout": "halves", "qk_norm": True},
]
REFUSED: list[tuple[Any, str]] = [
    (lambda: translator(normalise="batch"), "normalise='batch'"),
    (lambda: translator(relative="rotary"), "positions='sinusoidal' where relative='rotary'"),
    (lambda: translator(name="bahdanau"), "no model like 'bahdanau'"),
    (lambda: translator(name="universal", heads=4), "no model like 'universal'"),
    (lambda: gpt(positions="none", relative="music"), "relative='music'"),
    (lambda: gpt(positions="none", relative="shaw", relative_per_head=True), "relative_per_head=true"),
    (lambda: gpt(positions="none", relative="t5"), "T5's distances wrongly"),
    (lambda: gpt(relative="alibi"), "positions='learned' where relative='alibi'"),
    (lambda: bert("bert-classifier"), "no model like 'bert-classifier'"),
    (lambda: bert("bert-tagger"), "no model like 'bert-tagger'"),
]


def exported(task: Any, folder: Path, **options: Any) -> Exported:
    return export(task, to="ctranslate2", out=folder / "out", sentences=sentences(folder), **options)


def check(made: Exported, task: Any) -> dict[str, Any]:
    """A certificate that says what float32 can do."""
    found = made.certificate
    assert found == json.loads((made.folder / PARITY).read_text())
    assert found["largest_difference"] < 1e-4
    assert found["weights"]["before"] == found["weights"]["after"] == weights_sha256(live_model(task))
    assert {"model.bin", "config.json", "README.md"} <= found["files"].keys()
    assert "pip install ctranslate2" in (made.folder / "README.md").read_text()
    return found


@pytest.mark.parametrize("settings", TRANSLATORS, ids=str)
def test_translators(settings, tmp_path):
    task = translator(**settings)
    found = check(exported(task, tmp_path), task)
    assert found["identical_outputs"] == 1.0
    assert found["outputs"] > 1


def readme_code(folder: Path) -> dict[str, Any]:
    """What README.md defines, run as it stands there."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code.replace("FOLDER", str(folder)), names)
    return names


@pytest.mark.parametrize("joint", [True, False])
def test_a_translator_is_opened_as_its_readme_says(joint, tmp_path):
    task = translator(joint=joint)
    names = readme_code(exported(task, tmp_path).folder)
    assert "regard" not in names
    assert names["translate"](LINES) == task.translate(LINES)


def test_a_language_model_is_opened_as_its_readme_says(tmp_path):
    names = readme_code(exported(gpt(), tmp_path).folder)
    assert isinstance(names["go_on"](LINES[0], 10), str)


@pytest.mark.parametrize("settings", GPTS, ids=str)
def test_language_models(settings, tmp_path):
    task = gpt(**settings)
    found = check(exported(task, tmp_path), task)
    assert (found["identical_outputs"], found["outputs"]) == (1.0, len(LINES))


@pytest.mark.parametrize("settings", [{}, {"next_sentence": False, "head": False, "activation": "relu"}], ids=str)
def test_berts_give_their_states(settings, tmp_path):
    task = bert(**settings)
    made = exported(task, tmp_path)
    found = check(made, task)
    assert found["measure"] == "last states of all tokens"
    assert found["identical_outputs"] is None
    assert "masked-word" in found["notes"][0]
    assert "are not in the file" in (made.folder / "README.md").read_text()
    states = readme_code(made.folder)["states"](LINES[0])
    np.testing.assert_allclose(states[1:-1], task.states(LINES[0]), atol=1e-5)
    if not settings:  # the pooler came along
        ids = [1, *task.tokenizer.encode([LINES[0]])[0], 2]
        output = ctranslate2.Encoder(str(made.folder)).forward_batch([ids], token_type_ids=[[0] * len(ids)])
        wanted = task.model.pooled(pad_rows([ids[1:-1]])).detach().numpy()
        np.testing.assert_allclose(np.asarray(output.pooler_output), wanted, atol=1e-5)


@pytest.mark.parametrize("make", [translator, gpt, bert], ids=lambda make: make.__name__)
def test_int8_is_smaller_and_leaves_the_live_model_alone(make, tmp_path):
    task = make(width=64)
    before = {name: tensor.clone() for name, tensor in live_model(task).state_dict().items()}
    wide = exported(task, tmp_path).folder
    small = export(
        task, to="ctranslate2", out=tmp_path / "int8", quantise="int8", sentences=tmp_path / "lines.txt", tolerance=9.0
    )
    assert all(torch.equal(before[name], tensor) for name, tensor in live_model(task).state_dict().items())
    sizes = [(folder / "model.bin").stat().st_size for folder in (wide, small.folder)]
    assert sizes[1] < 0.6 * sizes[0]
    assert 1e-4 < small.certificate["largest_difference"] < 1.0
    assert small.certificate["compute"] == "int8"


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_expressed_is_refused_in_words(make, words, tmp_path):
    with pytest.raises(ModelError, match=words.replace("(", r"\(")):
        exported(make(), tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_wrong_file_is_found_out_and_does_not_stay(tmp_path, monkeypatch):
    task, right = gpt(), ctranslate2_gpt.gpt_files

    def wrong(config: Any, weights: Any, tokens: Any, compute: Any) -> dict[str, bytes]:
        name = "decoder.1.attention.out.bias"
        other = {**weights, name: weights[name] + np.linspace(0, 0.02, len(weights[name]), dtype=np.float32)}
        return right(config, other, tokens, compute)

    monkeypatch.setattr(ctranslate2_export, "gpt_files", wrong)
    with pytest.raises(ParityError, match="the largest difference is"):
        exported(task, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]


def test_a_live_model_that_changes_is_found_out(tmp_path, monkeypatch):
    task, right = gpt(), ctranslate2_gpt.gpt_files

    def careless(config: Any, weights: Any, tokens: Any, compute: Any) -> dict[str, bytes]:
        files = right(config, weights, tokens, compute)
        weights["decoder.0.attention.out.bias"] *= 1 + 2**-20  # these arrays are the model's own memory
        return files

    monkeypatch.setattr(ctranslate2_export, "gpt_files", careless)
    with pytest.raises(ParityError, match="changed the weights of the live model"):
        exported(task, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lines.txt"]
