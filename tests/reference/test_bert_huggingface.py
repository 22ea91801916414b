"""BERT as transformers computes it: the same states and logits from the same weights, both ways, and files that lose no bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertTokenizer,
)

from regard.core.errors import CheckpointError, ConfigError, ModelError, TokenizerError
from regard.core.types import EOS, PAD, UNK, pad_rows
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair
from regard.data.wordpiece import THEIRS, order_of
from regard.exchange import huggingface_bert
from regard.exchange.huggingface_bert import import_bert, read_bert, write_bert
from regard.models.base import MODELS, Recorder, build_model
from regard.models.bert import Bert
from regard.models.bert import BertConfig as OurConfig
from regard.models.gpt import GPT, GPTConfig
from regard.tasks.folder import load_model, weights_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [
    "rain",
    "in",
    "spain",
    "falls",
    "the",
    "plain",
    "##ly",
    "##ing",
    "main",
    "cafe",
    "café",
    "Rain",
    "中",
    "1",
    "##9",
]
SIGNS = [*".,!?'-()[]<>/"]
# the special tokens stand between others, as in BERT's own files
VOCABULARY = [
    THEIRS[PAD], "[unused0]", "[unused1]", *LETTERS, THEIRS[UNK], "[CLS]", *(f"##{c}" for c in LETTERS), "[SEP]", "[MASK]",
    *SIGNS, *WORDS,
]  # fmt: skip
TEXTS = [
    "The rain in Spain, mainly.",
    "falls  on the\tplains? (1999)",
    "Café 中国 [MASK] </s> \x00 zebra-crossing é ß 😀",
    "in",
]
PRETRAINED = [BertModel, BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining]
LABELLED = [BertForSequenceClassification, BertForTokenClassification]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TQDM_DISABLE", "1")


def theirs(kind=BertForPreTraining, rows: int = len(VOCABULARY), **settings):
    torch.manual_seed(0)
    sizes = {"vocab_size": rows, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 20}
    model = kind(BertConfig(**{**sizes, **settings})).eval()
    for p in model.parameters():  # norms and biases start at 1 and 0, where mistakes stay unseen
        torch.nn.init.normal_(p, mean=float(p.detach().mean()), std=0.2)
    return model


def put(folder: Path, model, tokens: list[str] | None = None, **settings) -> Path:
    """A folder as transformers writes it, with a vocabulary."""
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens or VOCABULARY), encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    return put(tmp_path / "bert", theirs())


def set_config(folder: Path, **values) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def rows() -> list[list[int]]:
    """Texts in regard's numbers: one text, two texts, the shortest, the longest."""
    draw = torch.Generator().manual_seed(3)
    found = [torch.randint(3, len(VOCABULARY), (n,), generator=draw).tolist() for n in (7, 12, 1, 18)]
    found[1][5] = EOS
    return found


def given(order: list[int] | None = None) -> dict[str, torch.Tensor]:
    """The same texts as transformers reads them."""
    texts = [[1, *row, EOS] for row in rows()]
    segments = [[int(EOS in text[:-1] and i > text.index(EOS)) for i in range(len(text))] for text in texts]
    ids, keep = pad_rows(texts)
    if order is not None:
        ids = torch.tensor(order)[ids]
    return {"input_ids": ids, "attention_mask": keep.long(), "token_type_ids": pad_rows(segments).tokens}


@torch.no_grad()
def their_states(model, order: list[int] | None = None) -> torch.Tensor:
    return getattr(model, "bert", model)(**given(order)).last_hidden_state


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def compare(ours, model, order: list[int] | None) -> None:
    """States, pooled states, scores of words and of the next sentence: whatever both have."""
    source, keep = pad_rows(rows()), given()["attention_mask"].bool()
    states, kept = ours.whole_states(source)
    assert torch.equal(keep, kept)
    body = getattr(model, "bert", model)(**given(order), output_hidden_states=True)
    same(states[keep], body.last_hidden_state[keep])
    record = Recorder()
    ours.states(source, record)
    for i, layer in enumerate(body.hidden_states):
        same(record.tensors[f"reader.{i}.states"][source.keep], layer[:, 1:-1][source.keep])
    assert (ours.pooler is None) == (body.pooler_output is None)
    if ours.pooler is not None:
        same(ours.pooled(source), body.pooler_output)
    found = model(**given(order))
    logits = getattr(found, "prediction_logits", getattr(found, "logits", None) if ours.head is not None else None)
    assert (ours.head is None) == (logits is None)
    if logits is not None:
        everywhere = torch.arange(18).expand(4, -1)
        hidden = ours(source, torch.nn.functional.pad(everywhere, (1, 0))).hidden[:, 1:]
        mine = torch.nn.functional.linear(hidden, ours.output.weight, ours.output.bias)
        same(mine[source.keep], logits[:, 1:-1][..., order or slice(None)][source.keep])
    if ours.next_sentence is not None:
        nsp = found.seq_relationship_logits if ours.head is not None else found.logits
        same(ours.next_sentence_scores(source), nsp.log_softmax(-1))


@pytest.mark.parametrize("kind", PRETRAINED)
@pytest.mark.parametrize(
    "settings",
    [{}, {"hidden_act": "gelu_new", "type_vocab_size": 3, "intermediate_size": 64}],
    ids=["usual", "unusual"],
)
def test_a_model_that_is_read_computes_the_same(tmp_path, kind, settings):
    model = theirs(kind, **settings)
    ours, tokenizers, config = read_bert(put(tmp_path / "in", model))
    compare(ours, model, order_of(VOCABULARY, "here"))
    assert config["vocabulary"] == {"source": len(VOCABULARY), "target": len(VOCABULARY), "shared": True}
    assert tokenizers.source.tags == {"<mask>": 4}
    assert ours.parameters_count() == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("kind", PRETRAINED)
def test_a_model_that_is_written_computes_the_same_and_keeps_every_bit(tmp_path, kind):
    ours, tokenizers, config = read_bert(put(tmp_path / "in", theirs(kind)))
    written = write_bert((ours, tokenizers, config), tmp_path / "out")
    assert (written.architecture, written.tokens) == (kind.__name__, "bert")
    model, loading = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert {name: list(value) for name, value in loading.items() if value} == {}
    compare(ours, model.eval(), None)
    again, tokens, other = read_bert(tmp_path / "out")
    assert (again.config, other) == (ours.config, config)
    assert tokens.source.to_json() == tokenizers.source.to_json()
    both = [weights_of(ours), weights_of(again)]
    assert both[0].keys() == both[1].keys()
    assert all(torch.equal(both[0][name], both[1][name]) for name in both[0])
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("in", "out"))
    order = torch.tensor(order_of(VOCABULARY, "here"))
    moved = ("word_embeddings.weight", "cls.predictions.bias")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor[order] if name.endswith(moved) else tensor, after[name]), name


def test_a_run_goes_both_ways(folder, tmp_path):
    run = import_bert(folder, tmp_path / "run")
    model, tokenizers, config = load_model(run)
    compare(model, theirs(), order_of(VOCABULARY, "here"))
    assert tokenizers.joint
    assert config["tokenizer"]["kind"] == "wordpiece"
    assert config["tokenizer"]["lowercase"] is True
    assert write_bert(run, tmp_path / "out").architecture == "BertForPreTraining"
    for call in (import_bert, write_bert):
        with pytest.raises(CheckpointError, match="something already"):
            call(folder if call is import_bert else run, run)


@pytest.mark.parametrize("kind", LABELLED)
@torch.no_grad()
def test_classifiers_and_taggers_go_both_ways(tmp_path, kind):
    names = {0: "wet", 1: "dry", 2: "so-so"}
    model = theirs(kind, id2label=names, label2id={v: k for k, v in names.items()}, classifier_dropout=0.3)
    two_texts = kind is BertForSequenceClassification
    ours, tokenizers, config = read_bert(put(tmp_path / "in", model), two_texts=two_texts)
    assert config["labels"] == list(names.values())
    assert ours.config.classifier_dropout == 0.3
    source = pad_rows(rows())
    if kind is BertForSequenceClassification:
        assert config["two_texts"] is True
        target, expected = (
            torch.zeros(4, 1, dtype=torch.long),
            model(**given(order_of(VOCABULARY, "")))["logits"][:, None],
        )
    else:
        assert "two_texts" not in config
        target, expected = torch.arange(18).expand(4, -1), model(**given(order_of(VOCABULARY, "")))["logits"][:, 1:-1]
    scores = ours.output.scores(ours(source, target).hidden)[..., 1:]
    keep = source.keep[:, : target.shape[1]]
    same(scores[keep], expected.log_softmax(-1)[keep])
    written = write_bert((ours, tokenizers, config), tmp_path / "out")
    assert written.architecture == kind.__name__
    again, loading = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert {name: list(value) for name, value in loading.items() if value} == {}
    assert again.config.id2label == names
    assert all(
        torch.equal(a, b) for a, b in zip(read_bert(tmp_path / "out")[0].parameters(), ours.parameters(), strict=True)
    )
    loaded = load_model(import_bert(tmp_path / "out", tmp_path / "run"))
    assert loaded[2]["labels"] == list(names.values())


def test_a_tagger_has_no_pooler(tmp_path):
    _, tokenizers, config = read_bert(put(tmp_path / "in", theirs()))
    section = MODELS.get("bert-tagger").Config(**{**config["model"], "name": "bert-tagger"})
    assert section.next_sentence
    tagger = MODELS.get("bert-tagger")(section, vocabulary=len(VOCABULARY), labels=4).eval()
    write_bert((tagger, tokenizers, {"labels": ["a", "b", "c"]}), tmp_path / "out")
    model, loading = BertForTokenClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert {name: list(value) for name, value in loading.items() if value} == {}
    old = load_file(tmp_path / "out" / "model.safetensors") | {"bert.pooler.dense.weight": torch.ones(16, 16)}
    save_file(old | {"bert.pooler.dense.bias": torch.ones(16)}, tmp_path / "out" / "model.safetensors")
    again = read_bert(tmp_path / "out")[0]
    assert torch.equal(again.states(pad_rows(rows())), tagger.states(pad_rows(rows())))
    torch.testing.assert_close(their_states(model)[0, 1:8], again.states(pad_rows(rows()))[0, :7], rtol=1e-5, atol=1e-5)


def test_a_classifier_whose_pooler_is_new_and_heads_are_kept_is_written(tmp_path):
    _, tokenizers, config = read_bert(put(tmp_path / "in", theirs(BertForMaskedLM)))
    section = {**config["model"], "name": "bert-classifier"}
    classifier = build_model(
        "bert-classifier",
        MODELS.get("bert-classifier").Config(**section),
        source_vocabulary=len(VOCABULARY),
        target_vocabulary=3,
        shared=False,
    ).eval()
    written = write_bert((classifier, tokenizers, {"labels": ["a", "b"]}), tmp_path / "out")
    model, loading = BertForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert written.architecture == "BertForSequenceClassification"
    assert {name: list(value) for name, value in loading.items() if value} == {}
    with torch.no_grad():
        mine = classifier.output.scores(classifier(pad_rows(rows()), torch.zeros(4, 1, dtype=torch.long)).hidden)
        same(mine[:, 0, 1:], model.eval()(**given()).logits.log_softmax(-1))


def test_the_base_model_has_as_many_parameters():
    with torch.device("meta"):
        for settings, kind in (
            ({}, BertForPreTraining),
            ({"next_sentence": False}, BertForMaskedLM),
            ({"next_sentence": False, "head": False, "pooler": True}, BertModel),
        ):
            ours = Bert(OurConfig(**settings), vocabulary=30522)
            assert ours.parameters_count() == sum(p.numel() for p in kind(BertConfig()).parameters())
        assert Bert(OurConfig(next_sentence=False), vocabulary=30522).parameters_count() == 109_514_298


@pytest.mark.parametrize(
    "settings", [{}, {"do_lower_case": False}, {"do_lower_case": True, "strip_accents": False}], ids=str
)
def test_texts_get_the_tokens_of_berts_own_tokenizer(folder, tmp_path, settings):
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    _, tokenizers, _ = read_bert(folder)
    order = order_of(VOCABULARY, "here")
    numbers = {token: i for i, token in enumerate(VOCABULARY)}
    expected = BertTokenizer(vocab=numbers, **settings)
    for text in TEXTS:
        for plain in (text, text.replace("[MASK]", "")):
            mine = [order[i] for i in tokenizers.source.encode([plain])[0]]
            if "[MASK]" not in plain:  # in regard it is text
                assert mine == expected(plain, add_special_tokens=False)["input_ids"]
            assert numbers["[MASK]"] not in mine
    write_bert(read_bert(folder), tmp_path / "out")
    opened = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(opened) is BertTokenizer
    for text in TEXTS:
        plain = text.replace("[MASK]", "")
        mine = tokenizers.source.encode([plain])[0]
        assert opened(plain)["input_ids"] == [1, *mine, EOS]
    pair = opened("the rain", "in spain")
    first, second = tokenizers.source.encode(["the rain", "in spain"])
    assert pair["input_ids"] == [1, *first, EOS, *second, EOS]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert [opened.pad_token_id, opened.cls_token_id, opened.sep_token_id, opened.unk_token_id, opened.mask_token_id] == [
        0, 1, 2, 3, 4,
    ]  # fmt: skip


def test_the_tokenizer_is_read_from_either_file(folder, tmp_path):
    write_bert(read_bert(folder), tmp_path / "out")
    expected = read_bert(tmp_path / "out")[1].source.to_json()
    for kept in ("vocab.txt", "tokenizer.json"):
        place = tmp_path / kept
        place.mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer_config.json", kept):
            (place / name).write_bytes((tmp_path / "out" / name).read_bytes())
        assert read_bert(place)[1].source.to_json() == expected
    (folder / "vocab.txt").unlink()
    with pytest.raises(TokenizerError, match="holds no tokenizer"):
        read_bert(folder)


@torch.no_grad()
def test_rows_without_a_token_are_kept(tmp_path):
    model = theirs(rows=len(VOCABULARY) + 3)
    ours, tokenizers, config = read_bert(put(tmp_path / "in", model))
    assert tokenizers.source.size == len(VOCABULARY) + 3
    assert tokenizers.source.pieces([len(VOCABULARY) + 2]) == [f"[row{len(VOCABULARY) + 2}]"]
    write_bert((ours, tokenizers, config), tmp_path / "out")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("in", "out"))
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(before[name][-3:], after[name][-3:])


@torch.no_grad()
def test_a_model_of_regards_own_is_opened_by_transformers(tmp_path):
    text = ["the rain in spain", "falls mainly on the plain"] * 3
    for kind in ("bpe", "wordpiece"):
        tokenizer = Tokenizer.train(text, TokenizerConfig(kind=kind, size=60, min_count=1), ("<mask>",))
        torch.manual_seed(1)
        ours = Bert(OurConfig(width=16, layers=2, heads=4, context=20), vocabulary=tokenizer.size).eval()
        pair = TokenizerPair(tokenizer, tokenizer, True)
        written = write_bert((ours, pair, {}), tmp_path / kind)
        assert written.tokens == ("bert" if kind == "wordpiece" else "regard")
        opened = AutoTokenizer.from_pretrained(tmp_path / kind)
        ids = opened("the rain on the plain", return_tensors="pt")
        (mine,) = tokenizer.encode(["the rain on the plain"])
        assert ids["input_ids"].tolist() == [[1, *mine, EOS]]
        assert (opened.mask_token_id, opened.pad_token_id) == (4, PAD)
        model = BertForPreTraining.from_pretrained(tmp_path / kind).eval()
        same(model.bert(**ids).last_hidden_state, ours.whole_states(pad_rows([mine]))[0])
        again, tokens, _ = read_bert(tmp_path / kind)
        assert tokens.source.fingerprint == tokenizer.fingerprint
        assert all(torch.equal(a, b) for a, b in zip(again.parameters(), ours.parameters(), strict=True))


@torch.no_grad()
def test_old_names_copies_and_parts_are_read(folder):
    weights = load_file(folder / "model.safetensors")
    gone = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {}
    for name, tensor in weights.items():
        kind = ".".join(name.split(".")[-2:])
        old[name.removesuffix(kind) + gone.get(kind, kind)] = tensor
    old |= {"bert.embeddings.position_ids": torch.arange(20)[None]}
    old |= {"cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"].clone()}
    old |= {"cls.predictions.decoder.bias": weights["cls.predictions.bias"].clone()}
    expected = read_bert(folder)[0].whole_states(pad_rows(rows()))[0]
    (folder / "model.safetensors").unlink()
    names = sorted(old)
    random.Random(0).shuffle(names)
    files = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, part in files.items():
        save_file({name: old[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(read_bert(folder)[0].whole_states(pad_rows(rows()))[0], expected)
    index["weight_map"]["x"] = "../other.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="not parts of a model"):
        read_bert(folder)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"model_type": "roberta"}, "model_type='roberta' is not a BERT"),
        ({"model_type": None}, "no model_type"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"hidden_act": "quick_gelu"}, "hidden_act"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        ({"vocab_size": 40}, "vocab_size"),
        ({"vocab_size": 10**9}, "vocab_size"),
        ({"vocab_size": 200}, "word_embeddings"),
        ({"num_hidden_layers": 2}, r"encoder\.layer\.2"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers"),
        ({"hidden_size": 32}, "word_embeddings"),
        ({"num_attention_heads": 3}, "heads"),
        ({"max_position_embeddings": 1 << 30}, "context"),
        ({"max_position_embeddings": 30}, "position_embeddings"),
        ({"intermediate_size": 65}, "intermediate"),
        ({"type_vocab_size": 1}, "token_type_embeddings"),
        ({"hidden_dropout_prob": 1.5}, "dropout"),
        ({"hidden_dropout_prob": None}, "hidden_dropout_prob"),
    ],
    ids=str,
)
def test_what_would_change_the_mathematics_is_refused_by_name(folder, values, told):
    set_config(folder, **values)
    with pytest.raises(CheckpointError, match=told):
        read_bert(folder)


def test_a_vocabulary_that_the_weights_do_not_have_is_refused_before_it_is_made(folder, monkeypatch):
    monkeypatch.setattr(huggingface_bert, "read_tokenizer", lambda *_: pytest.fail("a tokenizer was made"))
    set_config(folder, vocab_size=1 << 24)
    with pytest.raises(CheckpointError, match=r"word_embeddings.*vocab_size=16777216"):
        read_bert(folder)


def test_only_a_classifier_reads_two_texts(tmp_path):
    for kind in (BertModel, BertForTokenClassification):
        place = put(tmp_path / kind.__name__, theirs(kind))
        with pytest.raises(ConfigError, match="two_texts: only classifiers"):
            read_bert(place, two_texts=True)
    place = put(tmp_path / "classifier", theirs(BertForSequenceClassification))
    assert read_bert(place, two_texts=True)[2]["two_texts"] is True


def test_foreign_weights_are_refused(folder, tmp_path):
    path = folder / "model.safetensors"
    weights = load_file(path)
    table = "bert.embeddings.word_embeddings.weight"
    for more, told in (
        ({"qa_outputs.weight": torch.ones(2, 16)}, "qa_outputs"),
        ({"cls.predictions.decoder.weight": weights[table] + 1}, "decoder"),
        ({"classifier.weight": torch.ones(2, 16)}, "does not say what its classifier is for"),
        ({table.removeprefix("bert."): weights[table] + 1}, "twice"),
        ({"bert.pooler.dense.bias": torch.ones(16, dtype=torch.int8)}, "int8"),
    ):
        save_file({**weights, **more}, path)
        with pytest.raises(CheckpointError, match=told):
            read_bert(folder)
    path.write_bytes(b"no weights")
    with pytest.raises(CheckpointError, match="safetensors"):
        read_bert(folder)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        read_bert(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CheckpointError, match=r"pickle.*save_pretrained"):
        read_bert(folder)
    with pytest.raises(CheckpointError, match="no such folder"):
        read_bert(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"problem_type": "regression"}, "problem_type='regression'"),
        ({"id2label": {"0": "a"}}, "id2label"),
        ({"id2label": {"0": "a", "1": "a"}}, "id2label"),
        ({"id2label": [1, 2]}, "id2label"),
        ({"architectures": ["BertForMultipleChoice"]}, "BertForMultipleChoice"),
        ({"classifier_dropout": "much"}, "classifier_dropout"),
    ],
    ids=str,
)
def test_labels_that_are_none_are_refused(tmp_path, values, told):
    folder = put(tmp_path / "in", theirs(BertForSequenceClassification))
    assert read_bert(folder)[2]["labels"] == ["LABEL_0", "LABEL_1"]
    set_config(folder, **values)
    with pytest.raises(CheckpointError, match=told):
        read_bert(folder)


def test_other_tokenizers_are_refused_by_name(folder, tmp_path):
    write_bert(read_bert(folder), tmp_path / "out")
    path = tmp_path / "out" / "tokenizer.json"
    good = json.loads(path.read_text())
    more = {**good["added_tokens"][0], "id": len(VOCABULARY), "content": "[NEW]"}
    changes = {
        "model.type": {"model": {**good["model"], "type": "BPE"}},
        "continuing_subword_prefix": {"model": {**good["model"], "continuing_subword_prefix": "@@"}},
        "max_input_chars": {"model": {**good["model"], "max_input_chars_per_word": 30}},
        "clean_text": {"normalizer": {**good["normalizer"], "clean_text": False}},
        "normalizer.type": {"normalizer": {"type": "Lowercase"}},
        "pre_tokenizer.type": {"pre_tokenizer": {"type": "Whitespace"}},
        "NEW": {"added_tokens": [*good["added_tokens"], more]},
        "without gaps": {"model": {**good["model"], "vocab": {**good["model"]["vocab"], "new": 10**6}}},
        "do_lower_case": {"normalizer": {**good["normalizer"], "lowercase": False}},
        "strip_accents": {"normalizer": {**good["normalizer"], "strip_accents": False}},
        "tokenize_chinese_chars": {"normalizer": {**good["normalizer"], "handle_chinese_chars": False}},
    }
    for told, change in changes.items():
        path.write_text(json.dumps({**good, **change}))
        with pytest.raises(TokenizerError, match=told):
            read_bert(tmp_path / "out")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": "yes"}')
    with pytest.raises(TokenizerError, match="do_lower_case"):
        read_bert(folder)


def test_only_berts_are_written(tmp_path):
    tokenizer = Tokenizer.train(["the rain in spain"] * 3, TokenizerConfig(kind="bpe", size=60))
    model = GPT(GPTConfig(width=16, layers=1, heads=4), vocabulary=tokenizer.size)
    with pytest.raises(ModelError, match="not a BERT"):
        write_bert((model, TokenizerPair(tokenizer, tokenizer, True), {}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_commands(folder, tmp_path, command):
    done = command("import", folder, "--out", tmp_path / "run")
    assert (done.code, done.out) == (0, "")
    assert f"regard fill --model {tmp_path / 'run'}" in done.err
    done = command("export", tmp_path / "run", "--out", tmp_path / "out")
    assert done.code == 0
    assert "transformers' BertForPreTraining" in done.err
    encoder = put(tmp_path / "encoder", theirs(BertModel))
    assert "regard embed --model" in command("import", encoder, "--out", tmp_path / "encoder-run").err
    pairs = put(tmp_path / "pairs", theirs(BertForSequenceClassification))
    done = command("import", pairs, "--out", tmp_path / "pairs-run", "--two-texts")
    assert "regard classify --model" in done.err
    assert load_model(tmp_path / "pairs-run")[2]["two_texts"] is True
    tagger = put(tmp_path / "tagger", theirs(BertForTokenClassification))
    assert "regard tag --model" in command("import", tagger, "--out", tmp_path / "tagger-run").err
    set_config(folder, model_type="roberta")
    done = command("import", folder, "--out", tmp_path / "other")
    assert done.code != 0
    assert "model_type='roberta' is not known" in done.err
    assert "no such file or folder" in command("import", tmp_path / "none", "--out", tmp_path / "other").err
