"""Hugging Face's Marian: a small one, taught to copy, translates after import as transformers' `generate` does."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MarianConfig, MarianMTModel

import regard
from regard.core.errors import CheckpointError, TokenizerError
from regard.core.types import BOS, EOS, pad_rows
from regard.exchange.marian_mapping import to_marian, to_regard
from regard.exchange.sentencepiece_model import read_sentencepiece
from regard.tasks.folder import load_model

RECORDED = json.loads(Path(__file__).with_name("sentencepiece_recorded.json").read_text())
WORDS = ["river", "old", "house", "green", "tree", "stone", "slowly", "bridge", "quiet", "morning", "left", "blue"]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TQDM_DISABLE", "1")


def pieces_of(folder: Path) -> list[str]:
    """Writes the SentencePiece files of both sides; gives the tokens that vocab.json gets. Three pieces are missing in it."""
    found: dict[str, None] = {}
    for name, kind in (("source.spm", "uni"), ("target.spm", "bpe")):
        (folder / name).write_bytes(base64.b64decode(RECORDED[kind]["model"]))
        found |= dict.fromkeys(read_sentencepiece(folder / name).usable)
    return list(found)[3:]


def marian(folder: Path, *, tokens: list[str] | None = None, **settings: Any) -> Any:
    """A small random model in a folder, as transformers saves it."""
    folder.mkdir(exist_ok=True)
    names = pieces_of(folder) if tokens is None else tokens
    ids = {"</s>": 0, "<unk>": 1, **{name: i + 2 for i, name in enumerate(names)}}
    ids["<pad>"] = len(ids)
    (folder / "vocab.json").write_text(json.dumps(ids))
    config = MarianConfig(
        **{
            "vocab_size": len(ids),
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "activation_function": "swish",
            "scale_embedding": True,
            "pad_token_id": len(ids) - 1,
            "decoder_start_token_id": len(ids) - 1,
            "max_position_embeddings": 64,
            "dropout": 0.0,
            **settings,
        }
    )
    torch.manual_seed(2)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.final_logits_bias.normal_()
    return model


def texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 5))) for _ in range(count)]


def their_ids(run: Any, vocabulary: dict[str, int], lines: list[str]) -> list[list[int]]:
    """What MarianTokenizer gives: pieces by source.spm, numbers by vocab.json, EOS at the end."""
    source = run.tokenizers.source
    return [[*(vocabulary.get(piece, 1) for piece in source.pieces(ids)), 0] for ids in source.encode(lines)]


def teach(model: MarianMTModel, sources: list[list[int]], pad: int) -> None:
    """A few steps of copying: enough that texts end."""
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    model.train()
    for step in range(70):
        rows = sources[step * 16 % len(sources) :][:16]
        width = max(map(len, rows))
        tokens = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
        labels = tokens.masked_fill(tokens == pad, -100)
        loss = model(input_ids=tokens, attention_mask=(tokens != pad).long(), labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def test_it_translates_as_generate_does(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    model = marian(folder)
    pad = model.config.pad_token_id
    model.generation_config.update(num_beams=4, max_length=60, bad_words_ids=[[pad]], early_stopping=True)
    vocabulary = json.loads((folder / "vocab.json").read_text())
    model.save_pretrained(folder)
    first = regard.load(regard.import_model(folder, tmp_path / "first"), "cpu", engine="torch")
    teach(model, their_ids(first, vocabulary, texts(256, 1)), pad)
    model.save_pretrained(folder)
    run = regard.load(regard.import_model(folder, tmp_path / "run"), "cpu", engine="torch")
    names = {i: token for token, i in vocabulary.items()}
    same, lines = 0, [*texts(24, 9), "café unheard Ωmega", "ﬁne ½"]
    for stop in ("full", "exact"):
        settings = regard.SearchConfig(**{**run.config["search"], "stop": stop})
        ours = run.hypotheses(lines, search=settings)
        for ids, found in zip(their_ids(run, vocabulary, lines), ours, strict=True):
            with torch.inference_mode():
                made = model.generate(torch.tensor([ids]), early_stopping=stop == "full" or "never")[0].tolist()
            if made[-1] == 0 and len(made) < 50:  # at the very end, transformers forces EOS
                assert found[0].tokens == [names[i] for i in made[1:-1] if i != pad]
                same += 1
    assert same > 40
    assert len({many[0].text for many in ours}) > 15  # they are not all alike


@pytest.mark.parametrize(
    "settings",
    [
        {"scale_embedding": False, "activation_function": "gelu"},
        {"activation_function": "relu", "encoder_layers": 2, "tie_word_embeddings": False},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "activation_function": "gelu_new"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_logits_are_the_same(tmp_path: Path, settings: dict[str, Any]) -> None:
    folder = tmp_path / "theirs"
    model = marian(folder, **settings)
    model.save_pretrained(folder)
    ours, tokenizers, _ = load_model(regard.import_model(folder, tmp_path / "run"))
    check_logits(model, ours, tokenizers, json.loads((folder / "vocab.json").read_text()))


def check_logits(model: MarianMTModel, ours: Any, tokenizers: Any, vocabulary: dict[str, int]) -> None:
    lines = ["old river house", "quiet"]
    rows, targets = tokenizers.source.encode(lines), tokenizers.target.encode(["green tree", "stone left"])
    columns = {**{t: i for i, t in enumerate(tokenizers.target.pieces(range(tokenizers.target.size)))}}
    order = [columns[token] for token in sorted(vocabulary, key=vocabulary.__getitem__)]
    back = {i: vocabulary[token] for token, i in columns.items() if token in vocabulary}
    with torch.inference_mode():
        found = ours.output.scores(
            ours(pad_rows([[*row, EOS] for row in rows]), pad_rows([[BOS, *t] for t in targets])[0]).hidden
        )
        for i, (row, target) in enumerate(zip(rows, targets, strict=True)):
            ids = [vocabulary.get(piece, 1) for piece in tokenizers.source.pieces(row)]
            given = [model.config.decoder_start_token_id, *(back[token] for token in target)]
            theirs = model(input_ids=torch.tensor([[*ids, 0]]), decoder_input_ids=torch.tensor([given])).logits[0]
            np.testing.assert_allclose(found[i, : len(given), order], theirs.log_softmax(-1), atol=5e-5)


def test_a_pickle_of_weights_is_read_without_running_it(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    model = marian(folder)
    model.save_pretrained(folder)
    run = regard.import_model(folder, tmp_path / "a")
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    again = regard.import_model(folder, tmp_path / "b")
    one, other = load_file(run / "model.safetensors"), load_file(again / "model.safetensors")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_language_codes_become_tags(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    tokens = [*pieces_of(folder), ">>xyz<<", ">>abc<<"]
    model = marian(folder, tokens=tokens)
    model.save_pretrained(folder)
    run = regard.load(regard.import_model(folder, tmp_path / "run"), "cpu", engine="torch")
    assert list(run.tokenizers.source.tags) == [">>xyz<<", ">>abc<<"]
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (ids,) = their_ids(run, vocabulary, ["old river"])
    code = vocabulary[">>abc<<"]
    with torch.inference_mode():
        scores = (
            model(input_ids=torch.tensor([[code, *ids]]), decoder_input_ids=torch.tensor([[model.config.pad_token_id]]))
            .logits[0]
            .log_softmax(-1)
        )
    found = run.score(["old river"], [""], tags=[">>abc<<"])[0]
    assert found.token_log_probs[0] == pytest.approx(float(scores[0, 0]), abs=5e-5)
    plain = run.score(["old river"], [""])[0]
    assert abs(plain.token_log_probs[0] - found.token_log_probs[0]) > 1e-3


def test_the_mapping_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    marian(folder).save_pretrained(folder)
    ours = load_file(regard.import_model(folder, tmp_path / "run") / "model.safetensors")
    again = to_regard(to_marian(ours, (1, 1)), (1, 1))
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalize_before": True}, "normalize_before='True' is not supported"),
        ({"static_position_embeddings": False}, "static_position_embeddings"),
        ({"activation_function": "quick_gelu"}, "quick_gelu"),
        ({"decoder_ffn_dim": 50}, "encoder_ffn_dim and decoder_ffn_dim differ"),
        ({"d_model": "32"}, "d_model='32' is not supported"),
        ({"d_model": 64}, "config.json says"),
        ({"encoder_layers": 900}, "900 layers"),
        ({"auto_map": {"AutoModel": "evil.Model"}}, "auto_map"),
        ({"model_type": "bart"}, "model_type='bart' is not known"),
        ({"vocab_size": 1 << 40}, "out of bounds"),
        ({"eos_token_id": 10**6}, "its token for end is not in the vocabulary"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    folder = tmp_path / "theirs"
    marian(folder).save_pretrained(folder)
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**about, **change}))
    with pytest.raises((CheckpointError, TokenizerError), match=reason):
        regard.import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_ways_of_searching_that_regard_has_not_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    marian(folder).save_pretrained(folder)
    for change, reason in (
        ({"repetition_penalty": 1.5}, "repetition_penalty"),
        ({"bad_words_ids": [[5, 6]]}, "bad_words"),
        ({"early_stopping": "later"}, "early_stopping"),
    ):
        (folder / "generation_config.json").write_text(json.dumps(change))
        with pytest.raises(CheckpointError, match=reason):
            regard.import_model(folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("theirs", "stop"),
    [
        ({"num_beams": 4, "early_stopping": "never"}, "exact"),
        ({"num_beams": 4, "early_stopping": False}, "exact"),
        ({"num_beams": 4}, "exact"),
        ({"num_beams": 4, "early_stopping": True}, "full"),
        ({"num_beams": 1}, "full"),  # the likeliest next token: nothing goes on after EOS
    ],
    ids=str,
)
def test_when_search_stops(tmp_path: Path, theirs: dict[str, Any], stop: str) -> None:
    folder = tmp_path / "theirs"
    marian(folder).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(theirs))
    run = regard.import_model(folder, tmp_path / "run")
    search = json.loads((run / "config.json").read_text())["search"]
    assert (search["stop"], search["beam"]) == (stop, theirs["num_beams"])


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    marian(folder).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.encoder.layers.0.fc1.bias"][3] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="nan or infinite"):
        regard.import_model(folder, tmp_path / "run")
