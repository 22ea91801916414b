"""Exports to Hugging Face: the Auto classes open the folder, and answer as regard does; what has no class is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from export_toys import LINES, bert, gpt, sentences, translator
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from regard.core.errors import ConfigError, ModelError
from regard.core.search_config import SearchConfig
from regard.core.types import BOS, EOS, PAD, UNK, pad_rows
from regard.exchange.export import Exported, export
from regard.exchange.huggingface_marian_export import generation_settings
from regard.exchange.parity import PARITY
from regard.exchange.parity_sides import live_model, weights_sha256

TRANSLATORS: list[tuple[dict[str, Any], str]] = [
    ({"norm": "post"}, "MarianMTModel"),
    ({"norm": "post", "activation": "swish", "tie": "target"}, "MarianMTModel"),
    ({"norm": "post", "activation": "gelu_tanh", "joint": False, "tie": "none"}, "MarianMTModel"),
    ({"norm": "post", "activation": "gelu", "joint": False, "encoder_layers": 1}, "MarianMTModel"),
    ({"norm": "pre", "decoder_layers": 1}, "PegasusForConditionalGeneration"),
]
BERTS: list[tuple[dict[str, Any], str]] = [
    ({}, "BertForPreTraining"),
    ({"next_sentence": False, "activation": "relu"}, "BertForMaskedLM"),
    ({"next_sentence": False, "head": False, "pooler": True}, "BertModel"),
    ({"head": False}, "BertForNextSentencePrediction"),
    ({"name": "bert-classifier"}, "BertForSequenceClassification"),
    ({"name": "bert-classifier", "two_texts": True}, "BertForSequenceClassification"),
    ({"name": "bert-tagger"}, "BertForTokenClassification"),
]
REFUSED: list[tuple[Any, str]] = [
    (lambda: translator(norm="post", normalise="rms"), "no normalise='rms'"),
    (lambda: translator(norm="post", positions="sinusoidal-halves"), "no positions='sinusoidal-halves'"),
    (lambda: translator(norm="post", relative="rotary"), "no relative='rotary'"),
    (lambda: translator(norm="post", activation="swiglu"), "no activation='swiglu'"),
    (lambda: translator(norm="post", scaling=False), "no scaling=false"),
    (lambda: translator(norm="post", residual=False), "no residual=false"),
    (lambda: translator(norm="pre", tie="target"), "Pegasus has one table"),
    (lambda: translator(name="luong"), "no class that computes"),
    (lambda: gpt(positions="none", relative="rotary"), "no model.positions=none"),
]


def exported(task: Any, folder: Path, **options: Any) -> Exported:
    return export(task, to="huggingface", out=folder / "out", sentences=sentences(folder), **options)


def check(made: Exported, task: Any, architecture: str) -> dict[str, Any]:
    found = made.certificate
    assert found == json.loads((made.folder / PARITY).read_text())
    assert found["largest_difference"] < 1e-4
    assert found["numbers"] > 20
    assert found["weights"]["before"] == found["weights"]["after"] == weights_sha256(live_model(task))
    assert architecture in made.hint
    assert json.loads((made.folder / "config.json").read_text())["architectures"] == [architecture]
    auto = re.search(r"\((\w+)\)", made.hint)
    assert auto is not None
    assert f"{auto[1]}.from_pretrained" in (made.folder / "README.md").read_text()
    assert not [path for path in made.folder.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]
    return found


def readme_prints(folder: Path, capsys: Any) -> str:
    """What README.md prints, run as it stands there with a text of ours."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    capsys.readouterr()
    exec(code.replace("FOLDER", str(folder)).replace('"..."', repr(LINES[0])), {})
    return capsys.readouterr().out


@pytest.mark.parametrize(("settings", "architecture"), TRANSLATORS, ids=str)
def test_translators(settings, architecture, tmp_path, capsys):
    """The folder alone, with transformers' own classes and nothing said about the search, gives regard's translations."""
    task = translator(**settings)
    made = exported(task, tmp_path)
    found = check(made, task, architecture)
    assert found["identical_outputs"] == 1.0
    assert found["outputs"] > 1
    tokenizer, model = AutoTokenizer.from_pretrained(made.folder), AutoModelForSeq2SeqLM.from_pretrained(made.folder)
    other = (
        tokenizer if settings.get("joint", True) else AutoTokenizer.from_pretrained(made.folder / "target_tokenizer")
    )
    written = model.generate(**tokenizer(LINES, return_tensors="pt", padding=True))
    assert other.batch_decode(written, skip_special_tokens=True) == task.translate(LINES)
    assert readme_prints(made.folder, capsys) == f"{[task.translate(LINES[0])]}\n"
    rows = task.tokenizers.source.encode([*LINES, "a </s> in <pad> a text"])
    assert tokenizer([*LINES, "a </s> in <pad> a text"])["input_ids"] == [[*row, EOS] for row in rows]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.unk_token_id) == (PAD, BOS, UNK)
    source, target = pad_rows([[5, 6, 7, EOS], [8, EOS]]), torch.tensor([[BOS, 9, 10], [BOS, 11, 12]])
    with torch.no_grad():
        ours = live_model(task).output.logits(live_model(task)(source, target).hidden)
        theirs = model(input_ids=source.tokens, attention_mask=source.keep.long(), decoder_input_ids=target).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_settings_of_search_come_along(tmp_path):
    search = SearchConfig(beam=3, alpha=0.5, ban_unknown=False, max_length=40)
    made = exported(translator(norm="post", search=search), tmp_path)
    found = json.loads((made.folder / "generation_config.json").read_text())
    wanted = {"num_beams": 3, "length_penalty": 0.4, "early_stopping": True, "max_length": 42}
    assert wanted.items() <= found.items()
    assert found["suppress_tokens"] == [PAD, BOS]
    assert (found["decoder_start_token_id"], found["eos_token_id"]) == (BOS, EOS)
    assert "length_penalty" not in generation_settings(SearchConfig(beam=1))  # of which transformers would warn


@pytest.mark.parametrize("settings", [{}, {"silent": True}, {"tie": False, "bias": False}], ids=str)
def test_language_models(settings, tmp_path, capsys):
    task = gpt(**settings)
    made = exported(task, tmp_path)
    found = check(made, task, "GPT2LMHeadModel")
    assert LINES[0][:4] in readme_prints(made.folder, capsys)
    assert (found["identical_outputs"], found["outputs"]) == (1.0, len(LINES))


@pytest.mark.parametrize(("settings", "architecture"), BERTS, ids=str)
def test_berts(settings, architecture, tmp_path, capsys):
    task = bert(**settings)
    made = exported(task, tmp_path)
    found = check(made, task, architecture)
    printed = readme_prints(made.folder, capsys)
    assert printed
    if architecture == "BertForSequenceClassification" and not settings.get("two_texts"):
        assert printed == f"{task.classify(LINES[0]).label}\n"
    headless = architecture in ("BertModel", "BertForNextSentencePrediction")
    assert found["identical_outputs"] == (None if headless else 1.0)


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_has_no_class_is_refused_in_words(make, words, tmp_path):
    with pytest.raises(ModelError, match=words):
        exported(make(), tmp_path)
    assert not (tmp_path / "out").exists()


def test_weights_are_not_quantised(tmp_path):
    with pytest.raises(ConfigError, match="keep the weights as they are"):
        exported(translator(norm="post"), tmp_path, quantise="int8")


def test_without_transformers_nothing_is_written(tmp_path, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else found(name))
    with pytest.raises(ModelError, match=r"transformers is not installed.*pip install"):
        exported(translator(norm="post"), tmp_path)
    assert not (tmp_path / "out").exists()
