"""Checkpoints of OpenNMT-py and fairseq: their own log-probabilities, by an independent float64 computation, and refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from import_checkpoints import (
    WORDS,
    fairseq,
    fairseq_log_probs,
    opennmt,
    opennmt_log_probs,
    save_fairseq,
    save_opennmt,
)

import regard
from regard.core.errors import CheckpointError
from regard.core.types import BOS, EOS, pad_rows
from regard.tasks.folder import load_model

TEXTS = ("word3 word1 word11 word3", "word2")
GIVEN = ("word5 word9 word0", "word7 word7 word1")


def log_probs(run: Path) -> tuple[list[np.ndarray], list[list[int]], Any]:
    """What the imported model computes for the texts above, all in one batch."""
    model, tokenizers, _ = load_model(run)
    sources, targets = tokenizers.source.encode(TEXTS), tokenizers.target.encode(GIVEN)
    with torch.inference_mode():
        hidden = model(
            pad_rows([[*ids, EOS] for ids in sources]), torch.tensor([[BOS, *ids] for ids in targets])
        ).hidden
        return list(model.output.scores(hidden).numpy()), targets, tokenizers


def check_same(run: Path, expected: list[np.ndarray], tokens: list[str], names: dict[str, str]) -> None:
    """Every token of theirs has its log-probability in ours; nothing else has any."""
    found, _, tokenizers = log_probs(run)
    ours = {name: i for i, name in enumerate(tokenizers.target.pieces(range(tokenizers.target.size)))}
    columns = [ours[names.get(token, f"▁{token}")] for token in tokens]
    assert len(set(columns)) == len(columns)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine[:, columns], theirs, atol=2e-5)
        np.testing.assert_allclose(np.exp(mine[:, columns]).sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("version", "old", "settings"),
    [
        (1, True, {}),
        (2, False, {}),
        (3, False, {"layers": (1, 3)}),
        (2, True, {"relative": 2}),
        (3, False, {"gated": True}),
    ],
)
def test_opennmt_checkpoints_compute_what_they_did(
    tmp_path: Path, version: int, old: bool, settings: dict[str, Any]
) -> None:
    parts = opennmt(version=version, **settings)
    path = save_opennmt(parts, tmp_path / "model.pt", version=version, old=old)
    run = regard.import_model(path, tmp_path / "run")
    source, target = parts["tokens"]
    expected = [
        opennmt_log_probs(
            parts,
            [source.index(word) if word in source else 0 for word in text.split()],
            [target.index("<s>"), *(target.index(word) for word in given.split())],
        )
        for text, given in zip(TEXTS, GIVEN, strict=True)
    ]
    specials = {"<unk>": "<unk>", "<blank>": "<pad>", "<s>": "<s>", "</s>": "</s>"}
    check_same(run, expected, target, specials)
    assert regard.load(run, "cpu", engine="torch").config["model"]["source_end"] is False
    assert not {"torchtext", "onmt"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("form", "old", "settings"),
    [
        ("args", True, {}),
        ("cfg", False, {"pre": True}),
        ("nodes", False, {"shared": False}),
        ("args", False, {"learned": True, "pre": True, "layers": (3, 1)}),
    ],
)
def test_fairseq_checkpoints_compute_what_they_did(
    tmp_path: Path, form: str, old: bool, settings: dict[str, Any]
) -> None:
    parts = fairseq(**settings)
    save_fairseq(parts, tmp_path / "theirs", form=form, old=old)
    run = regard.import_model(tmp_path / "theirs", tmp_path / "run")
    sources, targets = (["<s>", "<pad>", "</s>", "<unk>", *words] for words in parts["words"])
    expected = [
        fairseq_log_probs(
            parts,
            [*(sources.index(word) for word in text.split()), 2],
            [2, *(targets.index(word) for word in given.split())],
        )
        for text, given in zip(TEXTS, GIVEN, strict=True)
    ]
    specials = {"<unk>": "<unk>", "<pad>": "<pad>", "<s>": "▁<s>#1", "</s>": "</s>"}
    check_same(run, expected, targets, specials)
    translator = regard.load(run, "cpu", engine="torch")
    assert all(word in {*WORDS, "<unk>", "<s>#1"} for word in translator.translate(TEXTS[0]).split())


def test_old_files_of_fairseq_have_other_names(tmp_path: Path) -> None:
    """One matrix for queries, keys and values, and numbered norms: the same model."""
    parts = fairseq()
    weights = dict(parts["model"])
    for side, layers in (("encoder", 1), ("decoder", 2)):
        for i in range(layers):
            place = f"{side}.layers.{i}"
            norms = ["self_attn", *(["encoder_attn"] if side == "decoder" else []), "final"]
            for kind in ("weight", "bias"):
                for attention in norms[:-1]:
                    three = [weights.pop(f"{place}.{attention}.{part}_proj.{kind}") for part in "qkv"]
                    weights[f"{place}.{attention}.in_proj_{kind}"] = torch.cat(three)
                for number, name in enumerate(norms):
                    weights[f"{place}.layer_norms.{number}.{kind}"] = weights.pop(f"{place}.{name}_layer_norm.{kind}")
    new = regard.import_model(save_fairseq(parts, tmp_path / "new"), tmp_path / "a")
    old = regard.import_model(save_fairseq({**parts, "model": weights}, tmp_path / "old", old=True), tmp_path / "b")
    for one, other in zip(log_probs(new)[0], log_probs(old)[0], strict=True):
        np.testing.assert_array_equal(one, other)


def test_search_ends_and_is_that_of_the_weights(tmp_path: Path) -> None:
    """A text's score is its teacher-forced log-probability: the start, the end and the mask of the source's end are the same."""
    run = regard.import_model(save_opennmt(opennmt(), tmp_path / "m.pt"), tmp_path / "run")
    translator = regard.load(run, "cpu", engine="torch")
    best = translator.hypotheses([TEXTS[0]], beam=3)[0][0]
    ids = [translator.tokenizers.target._inner.token_to_id(token) for token in best.tokens]
    model, tokenizers, _ = load_model(run)
    source = pad_rows([[*tokenizers.source.encode([TEXTS[0]])[0], EOS], [5, 6, 7, 8, 9, 10, 4, EOS]])
    with torch.inference_mode():
        forced = model.output.scores(model(source, torch.tensor([[BOS, *ids]] * 2)).hidden)[0]
    wanted = [float(forced[i, token]) for i, token in enumerate([*ids, EOS][: len(best.token_log_probs)])]
    np.testing.assert_allclose(best.token_log_probs, wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"copy_attn": True}, "copy_attn=.True. is not supported"),
        ({"encoder_type": "brnn"}, "encoder_type=.brnn. is not supported"),
        ({"max_relative_positions": -1, "position_encoding": False}, "rotary positions"),
        ({"pos_ffn_activation_fn": "gated-gelu"}, "gated-gelu"),
        ({"enc_layers": 3}, "'encoder.transformer.2.self_attn.linear_query.weight' is missing"),
        ({"enc_layers": 1}, "'encoder.transformer.1.*no place in regard's Transformer"),
        ({"enc_layers": 10**9}, "layers"),
        ({"heads": 3}, "3 heads do not divide"),
        ({"heads": "2"}, "heads='2' is of the wrong kind"),
        ({"num_kv": 4}, "num_kv"),
    ],
)
def test_opennmt_models_that_cannot_be_computed_are_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    path = save_opennmt(opennmt(**options), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=reason):
        regard.import_model(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"layernorm_embedding": True}, "layernorm_embedding"),
        ({"adaptive_softmax_cutoff": "10000,20000"}, "adaptive_softmax_cutoff"),
        ({"decoder_input_dim": 4}, "decoder_input_dim"),
        ({"decoder_attention_heads": 4}, "attention_heads"),
        ({"activation_fn": "tanh"}, "tanh"),
        ({"encoder_normalize_before": True}, "differ in encoder and decoder"),
        ({"encoder_layers": 0}, "out of bounds"),
        ({"decoder_layers": 3}, "is missing"),
    ],
)
def test_fairseq_models_that_cannot_be_computed_are_refused(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    parts = fairseq()
    parts["options"] |= options
    path = save_fairseq(parts, tmp_path / "theirs")
    with pytest.raises(CheckpointError, match=reason):
        regard.import_model(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_dictionaries_must_fit(tmp_path: Path) -> None:
    path = save_fairseq(fairseq(), tmp_path / "theirs")
    (tmp_path / "theirs" / "dict.yy.txt").write_text("word1 3\n")
    with pytest.raises(CheckpointError, match="its vocabulary has 5 tokens"):
        regard.import_model(path, tmp_path / "run")
    (tmp_path / "theirs" / "dict.yy.txt").write_text("no count\n")
    with pytest.raises(CheckpointError, match="line 1: it is not a word and a count"):
        regard.import_model(path, tmp_path / "run")
    (tmp_path / "theirs" / "dict.yy.txt").unlink()
    with pytest.raises(CheckpointError, match=r"there is no dict\.yy\.txt or dict\.txt beside it"):
        regard.import_model(path, tmp_path / "run")
