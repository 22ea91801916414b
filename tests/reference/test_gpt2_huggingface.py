"""GPT-2 and GPT as transformers computes them: the same logits from the same weights, both ways, and files that lose no bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

from regard.core.errors import CheckpointError, ModelError, TokenizerError
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK, pad_rows
from regard.data.gpt2_tokens import END_OF_TEXT
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair, gpt2_tokenizer
from regard.exchange.huggingface_gpt2 import import_gpt2, read_gpt2, write_gpt2
from regard.models.gpt import GPT, GPTConfig
from regard.tasks.folder import load_model, put_weights, weights_of

MERGED = ["Ġ t", "h e", "Ġt he", "i n", "Ġ a"]
TEXT = "the rain in spain,\n the 3 théories — in a </s> <|endoftext|> line"


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TQDM_DISABLE", "1")


def byte_letters() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def vocabulary() -> dict[str, int]:
    return {token: i for i, token in enumerate([*byte_letters(), *(m.replace(" ", "") for m in MERGED), END_OF_TEXT])}


def put_tokenizer(folder: Path, names: tuple[str, str] = ("vocab.json", "merges.txt")) -> None:
    (folder / names[0]).write_text(json.dumps(vocabulary()), encoding="utf-8")
    (folder / names[1]).write_text("\n".join(["#version: 0.2", *MERGED, ""]), encoding="utf-8")


def theirs(**settings) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    end = len(vocabulary()) - 1
    sizes = {"vocab_size": end + 1, "n_positions": 20, "n_embd": 16, "n_layer": 3, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=end, eos_token_id=end, **settings)).eval()
    return shaken(model)


def shaken(model):
    for p in model.parameters():  # norms and biases start at 1 and 0, where mistakes stay unseen
        torch.nn.init.normal_(p, mean=float(p.detach().mean()), std=0.2)
    return model


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "gpt2"
    theirs().save_pretrained(place)
    put_tokenizer(place)
    return place


def set_config(folder: Path, **values) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def tokens(seed: int = 3) -> torch.Tensor:
    """Texts in GPT-2's numbers, each begun by <|endoftext|>, which also stands within."""
    end = len(vocabulary()) - 1
    ids = torch.randint(0, end, (3, 14), generator=torch.Generator().manual_seed(seed))
    ids[:, 0] = end
    ids[1, 6] = end
    return ids


def regards(ids: torch.Tensor) -> torch.Tensor:
    return torch.where(ids == len(vocabulary()) - 1, BOS, ids + len(SPECIALS))


@torch.no_grad()
def our_scores(model: GPT, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities over GPT-2's vocabulary, in its order."""
    scores = model.output.scores(model(pad_rows([[EOS]] * len(ids)), regards(ids)).hidden)
    assert scores[..., [PAD, BOS, UNK]].exp().max() == 0
    return torch.cat((scores[..., len(SPECIALS) :], scores[..., EOS : EOS + 1]), -1)


@torch.no_grad()
def their_scores(model: GPT2LMHeadModel, ids: torch.Tensor) -> torch.Tensor:
    return model(ids).logits.log_softmax(-1)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation_function": "gelu", "n_inner": 24},
        {"activation_function": "relu", "n_inner": 64},
        {"activation_function": "silu", "reorder_and_upcast_attn": True},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_a_model_that_is_read_computes_the_same(tmp_path, settings):
    model = theirs(**settings)
    model.save_pretrained(tmp_path)
    put_tokenizer(tmp_path)
    ours, tokenizers, config = read_gpt2(tmp_path)
    assert (ours.config.silent, ours.config.tie) == (True, settings.get("tie_word_embeddings", True))
    torch.testing.assert_close(our_scores(ours, tokens()), their_scores(model, tokens()), rtol=1e-5, atol=1e-5)
    assert config["vocabulary"]["target"] == tokenizers.target.size == len(vocabulary()) + 3
    with torch.no_grad():  # the logits themselves
        ids = tokens()
        logits = ours(pad_rows([[EOS]] * 3), regards(ids)).hidden @ ours.output.weight.t()  # type: ignore[operator]
        torch.testing.assert_close(logits[..., 4:], model(ids).logits[..., :-1], rtol=1e-5, atol=1e-5)


def test_a_model_that_is_read_and_written_keeps_every_bit(folder, tmp_path):
    written = write_gpt2(read_gpt2(folder)[:2], tmp_path / "out")
    assert (written.vocabulary, written.tied) == ("gpt2", True)
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    config = [json.loads((place / "config.json").read_text()) for place in (folder, tmp_path / "out")]
    assert {k: config[0][k] for k in config[1]} == config[1]
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    assert torch.equal(their_scores(model, tokens()), their_scores(theirs(), tokens()))
    assert (model.generation_config.bos_token_id, model.generation_config.eos_token_id) == (261, 261)
    again = read_gpt2(tmp_path / "out")[0]
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), read_gpt2(folder)[0].parameters(), strict=True))


def test_a_trained_model_whose_bos_and_eos_differ_goes_back_exactly(folder, tmp_path):
    ours, tokenizers, _ = read_gpt2(folder)
    with torch.no_grad():
        ours.embedding.weight[BOS] += torch.linspace(-1, 2, 16)
    written = write_gpt2((ours, tokenizers), tmp_path / "out")
    assert (written.vocabulary, written.tied) == ("gpt2", False)
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(their_scores(model, tokens()), our_scores(ours, tokens()), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(their_scores(model, tokens()), their_scores(theirs(), tokens()))
    again = read_gpt2(tmp_path / "out")[0]
    assert again.config == ours.config  # tied still
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), ours.parameters(), strict=True))


@pytest.mark.parametrize(
    "settings", [{}, {"tie": False, "bias": False, "activation": "gelu", "inner": 20, "kv_heads": 4}]
)
def test_a_model_of_regards_own_is_opened_by_transformers(tmp_path, settings):
    text = ["the rain in spain", "falls mainly on the plain"] * 3
    tokenizer = Tokenizer.train(text, TokenizerConfig(kind="bpe", size=60))
    torch.manual_seed(1)
    ours = shaken(GPT(GPTConfig(width=16, layers=2, heads=4, context=30, **settings), vocabulary=tokenizer.size).eval())
    pair = TokenizerPair(tokenizer, tokenizer, True)
    written = write_gpt2((ours, pair), tmp_path / "out")
    assert (written.vocabulary, written.tied) == ("regard", ours.config.tie)
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(4, tokenizer.size, (3, 9))
    ids[:, 0] = BOS
    with torch.no_grad():
        hidden = ours(pad_rows([[EOS]] * 3), ids).hidden
        torch.testing.assert_close(their_scores(model, ids), ours.output.scores(hidden), rtol=1e-5, atol=1e-5)
    ends = model.generation_config
    assert (ends.bos_token_id, ends.eos_token_id, ends.pad_token_id) == (BOS, EOS, PAD)
    opened = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (opened.bos_token_id, opened.eos_token_id, opened.pad_token_id, opened.unk_token_id) == (BOS, EOS, PAD, UNK)
    for line in ("the rain on the plain", "a </s> in the text"):
        assert opened(line, add_special_tokens=False)["input_ids"] == tokenizer.encode([line])[0]
    again, tokenizers, _ = read_gpt2(tmp_path / "out")
    assert tokenizers.target.fingerprint == tokenizer.fingerprint
    assert not again.config.silent
    with torch.no_grad():
        assert torch.equal(again(pad_rows([[EOS]] * 3), ids).hidden, hidden)


def test_the_tokenizer_goes_both_ways(folder, tmp_path):
    _, tokenizers, _ = read_gpt2(folder)
    write_gpt2(read_gpt2(folder)[:2], tmp_path / "out")
    ids = tokenizers.target.encode([TEXT])[0]
    assert tokenizers.target.decode([ids]) == [TEXT]
    opened = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (opened.bos_token, opened.eos_token, opened.eos_token_id) == (END_OF_TEXT, END_OF_TEXT, 261)
    plain = TEXT.replace(END_OF_TEXT, "")  # in regard it is text
    assert opened(plain)["input_ids"] == [i - 4 for i in tokenizers.target.encode([plain])[0]]
    assert json.loads((tmp_path / "out" / "vocab.json").read_text()) == vocabulary()
    for kept in (("vocab.json", "merges.txt"), ("tokenizer.json",)):  # each alone is enough
        place = tmp_path / kept[0]
        place.mkdir()
        for name in ("config.json", "model.safetensors", *kept):
            (place / name).write_bytes((tmp_path / "out" / name).read_bytes())
        assert read_gpt2(place)[1].target.encode([TEXT])[0] == ids
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    with pytest.raises(TokenizerError, match="holds no tokenizer"):
        read_gpt2(folder)
    put_tokenizer(folder, ("encoder.json", "vocab.bpe"))
    assert read_gpt2(folder)[1].target.encode([TEXT])[0] == ids


def test_an_imported_folder_is_a_run(folder, tmp_path):
    run = import_gpt2(folder, tmp_path / "run")
    model, tokenizers, config = load_model(run)
    torch.testing.assert_close(our_scores(model, tokens()), their_scores(theirs(), tokens()), rtol=1e-5, atol=1e-5)
    assert tokenizers.joint
    assert config["model"]["silent"] is True
    assert write_gpt2(run, tmp_path / "out").tied
    with pytest.raises(CheckpointError, match="something already"):
        import_gpt2(folder, run)
    with pytest.raises(CheckpointError, match="something already"):
        write_gpt2(run, run)


def test_names_without_prefix_masks_and_parts_are_read(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    old = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    old |= {"lm_head.weight": old["wte.weight"].clone()}
    old |= {f"h.{i}.attn.bias": torch.ones(1, 1, 20, 20) for i in range(3)} | {"h.0.attn.masked_bias": torch.ones(1)}
    expected = our_scores(read_gpt2(folder)[0], tokens())
    (folder / "model.safetensors").unlink()
    save_file(old, folder / "model.safetensors")
    assert torch.equal(our_scores(read_gpt2(folder)[0], tokens()), expected)
    (folder / "model.safetensors").unlink()
    names = sorted(old)
    random.Random(0).shuffle(names)
    files = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, part in files.items():
        save_file({name: old[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(our_scores(read_gpt2(folder)[0], tokens()), expected)
    index["weight_map"]["wte.weight"] = "../other.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="not parts of a model"):
        read_gpt2(folder)


def test_sixteen_bit_weights_are_read_exactly(folder):
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors")
    model = read_gpt2(folder)[0]
    assert model.norm.weight.dtype == torch.float32
    assert torch.equal(model.norm.weight.bfloat16(), weights["transformer.ln_f.weight"])


@pytest.mark.parametrize(
    "values",
    [
        {"model_type": "gpt_neo"},
        {"layer_norm_epsilon": 1e-6},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"add_cross_attention": True},
        {"activation_function": "quick_gelu"},
        {"quantization_config": {"bits": 4}},
        {"auto_map": {"AutoModel": "code.Model"}},
        {"vocab_size": 300},
        {"eos_token_id": 5},
        {"bos_token_id": 0},
        {"n_layer": 2},
        {"n_layer": 10**9},
        {"n_layer": "3"},
        {"n_embd": 32},
        {"n_head": 3},
        {"n_positions": 1 << 30},
        {"n_inner": 65},
        {"resid_pdrop": 1.5},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_what_would_change_the_mathematics_is_refused_by_name(folder, values):
    set_config(folder, **values)
    name = next(iter(values))
    told = {"n_embd": "wte", "n_head": "heads", "n_positions": "wpe", "n_inner": "mlp", "resid_pdrop": "dropout"}
    told |= {"tie_word_embeddings": "lm_head"}
    if values == {"n_layer": 2}:
        told = {"n_layer": r"h\.2"}
    with pytest.raises(CheckpointError, match=told.get(name, name)):
        read_gpt2(folder)


def test_a_folder_that_does_not_say_it_is_a_gpt2_is_refused(folder):
    set_config(folder, model_type="bert")
    with pytest.raises(CheckpointError, match=r"config\.json: model_type='bert' is not a GPT-2\. Give a folder whose"):
        read_gpt2(folder)
    set_config(folder, model_type=None)
    with pytest.raises(
        CheckpointError, match=r"config\.json: it has no model_type\. Give a folder whose config\.json says"
    ):
        read_gpt2(folder)
    with pytest.raises(CheckpointError, match="something already"):
        write_gpt2((None, None), Path("."))


def test_two_dropouts_that_become_one_are_said(folder):
    set_config(folder, embd_pdrop=0.2)
    with pytest.warns(UserWarning, match="embd_pdrop=0.2 and resid_pdrop=0.1"):
        assert read_gpt2(folder)[0].config.dropout == 0.1


def test_foreign_weights_are_refused(folder, tmp_path):
    path = folder / "model.safetensors"
    weights = load_file(path)
    save_file({**weights, "score.weight": torch.ones(2, 16)}, path)
    with pytest.raises(CheckpointError, match=r"score\.weight"):
        read_gpt2(folder)
    save_file({**weights, "lm_head.weight": weights["transformer.wte.weight"] + 1}, path)
    with pytest.raises(CheckpointError, match="tie_word_embeddings is true"):
        read_gpt2(folder)
    save_file({**weights, "wte.weight": weights["transformer.wte.weight"] + 1}, path)
    with pytest.raises(CheckpointError, match="twice"):
        read_gpt2(folder)
    save_file({**weights, "transformer.ln_f.bias": torch.ones(16, dtype=torch.int8)}, path)
    with pytest.raises(CheckpointError, match="int8"):
        read_gpt2(folder)
    path.write_bytes(b"no weights")
    with pytest.raises(CheckpointError, match="safetensors"):
        read_gpt2(folder)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        read_gpt2(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CheckpointError, match=r"pickle.*save_pretrained"):
        read_gpt2(folder)
    with pytest.raises(CheckpointError, match="no such folder"):
        read_gpt2(tmp_path / "nowhere")


def test_other_tokenizers_are_refused_by_name(folder, tmp_path):
    write_gpt2(read_gpt2(folder)[:2], tmp_path / "out")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "out" / name).unlink()
    path = tmp_path / "out" / "tokenizer.json"
    good = json.loads(path.read_text())
    changes = {
        "byte-pair": {"model": {**good["model"], "type": "WordPiece"}},
        "add_prefix_space": {"pre_tokenizer": {**good["pre_tokenizer"], "add_prefix_space": True}},
        "use_regex": {"pre_tokenizer": {**good["pre_tokenizer"], "use_regex": False}},
        "normalizer": {"normalizer": {"type": "Lowercase"}},
        "ignore_merges": {"model": {**good["model"], "ignore_merges": True}},
        "<mask>": {
            "added_tokens": [*good["added_tokens"], {**good["added_tokens"][0], "id": 262, "content": "<mask>"}]
        },
    }
    for told, change in changes.items():
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(TokenizerError, match=told):
            read_gpt2(tmp_path / "out")
    (folder / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    with pytest.raises(TokenizerError, match="add_prefix_space"):
        read_gpt2(folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "post"},
        {"normalise": "rms"},
        {"positions": "none"},
        {"relative": "rotary"},
        {"qk_norm": True},
        {"kv_heads": 2},
        {"activation": "swiglu"},
    ],
    ids=str,
)
def test_forms_that_gpt2_does_not_have_are_not_written(tmp_path, folder, settings):
    tokenizers = read_gpt2(folder)[1]
    model = GPT(GPTConfig(width=16, layers=1, heads=4, **settings), vocabulary=tokenizers.target.size)
    name, value = next(iter(settings.items()))
    with pytest.raises(ModelError, match=f"model.{name}={value}"):
        write_gpt2((model, tokenizers), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_silent_model_needs_a_tokenizer_of_gpt2s_form(tmp_path):
    tokenizer = Tokenizer.train(["the rain in spain"] * 3, TokenizerConfig(kind="bpe", size=60))
    model = GPT(GPTConfig(width=16, layers=1, heads=4, silent=True), vocabulary=tokenizer.size)
    with pytest.raises(TokenizerError, match="as GPT-2 does"):
        write_gpt2((model, TokenizerPair(tokenizer, tokenizer, True)), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []  # neither a part of it nor an empty folder
    trained = Tokenizer.train(["the rain in spain"] * 3, TokenizerConfig(kind="bytebpe", size=264))
    model = GPT(GPTConfig(width=16, layers=1, heads=4, silent=True), vocabulary=trained.size)
    write_gpt2((model, TokenizerPair(trained, trained, True)), tmp_path / "bytes")
    ids = AutoTokenizer.from_pretrained(tmp_path / "bytes")("the rain")["input_ids"]
    assert ids == [i - 4 for i in trained.encode(["the rain"])[0]]


@torch.no_grad()
def test_the_form_of_2018_is_openai_gpts():
    torch.manual_seed(0)
    model = shaken(
        OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=40, n_positions=20, n_embd=16, n_layer=3, n_head=4)).eval()
    )
    ours = GPT(GPTConfig(width=16, layers=3, heads=4, context=20, norm="post"), vocabulary=40).eval()
    given = model.transformer.state_dict()
    weights = {
        "embedding.weight": given["tokens_embed.weight"],
        "positions.table.weight": given["positions_embed.weight"],
    }
    parts = {
        "attention.query_key_value": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "attention_norm": "ln_1",
        "feedforward.inner": "mlp.c_fc",
        "feedforward.out": "mlp.c_proj",
        "feedforward_norm": "ln_2",
    }
    for i in range(3):
        for mine, part in parts.items():
            for kind in ("weight", "bias"):
                weights[f"decoder.{i}.{mine}.{kind}"] = given[f"h.{i}.{part}.{kind}"].t()  # vectors stay as they are
    put_weights(ours, weights, Path("openai-gpt"))
    ids = torch.randint(0, 40, (3, 14))
    hidden = ours(pad_rows([[EOS]] * 3), ids).hidden
    torch.testing.assert_close(
        hidden @ weights_of(ours)["embedding.weight"].t(), model(ids).logits, rtol=1e-5, atol=1e-5
    )


def test_tokens_are_four_further_here(folder):
    tokenizer = gpt2_tokenizer(folder / "vocab.json", folder / "merges.txt")
    assert tokenizer.encode(["the in a"])[0] == [
        vocabulary()["t"] + 4,
        vocabulary()["he"] + 4,
        vocabulary()["Ġ"] + 4,
        vocabulary()["in"] + 4,
        vocabulary()["Ġa"] + 4,
    ]
