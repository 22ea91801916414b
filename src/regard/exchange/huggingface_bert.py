"""BERT in Hugging Face's files: read into regard's Bert, its classifier or its tagger, and written from them.

`read_bert` and `import_bert` read config.json, model.safetensors (one file, or several with an index) and the tokenizer's files.
`write_bert` writes what transformers opens. Which model it is, the weights say: BertModel (an encoder, with or without pooler),
BertForMaskedLM, BertForNextSentencePrediction and BertForPreTraining (both heads) are a `bert` with the heads that they have;
BertForSequenceClassification and BertForTokenClassification are a `bert-classifier` and a `bert-tagger`.

Every weight keeps its bits: queries, keys and values become one matrix, and rows of the vocabulary move, so that BERT's special
tokens are where regard has them (data/wordpiece.py). No row is lost. Written files keep regard's order, which their vocab.txt
tells. Of a classifier or tagger, what only pre-training needs is not written, nor read of a tagger's pooler.

What config.json says of the mathematics is done or refused by name. pytorch_model.bin is never opened: it is a pickle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.core import config as configuration
from regard.core.errors import CheckpointError, ConfigError, ModelError
from regard.core.files import read_json, save_tensors, write_folder, write_json
from regard.core.types import PAD, SPECIALS
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair
from regard.exchange.huggingface_bert_tokens import Names, read_tokenizer, write_tokenizer
from regard.exchange.huggingface_files import (
    check_free,
    check_tensors,
    checked_config,
    model_type,
    read_tensors,
    write_run,
)
from regard.models.base import MODELS
from regard.models.bert import NORM_EPS, SIZES, BertConfig
from regard.tasks.folder import CONFIG, FORMAT, MAX_LABELS, WEIGHTS, load_model, put_weights, weights_of

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "swish",
}
# What config.json may leave out, as transformers fills it in.
USUAL: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "tie_word_embeddings": True,
}
# Values that regard's mathematics has; any other is refused.
ONLY: dict[str, Any] = {
    "layer_norm_eps": NORM_EPS,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "auto_map": None,
    "quantization_config": None,
}
READ = "BERT as transformers' BertModel computes it"
TABLE, WORD_BIAS = "embeddings.word_embeddings.weight", "cls.predictions.bias"
COPIES = {
    "cls.predictions.decoder.weight": TABLE,
    "cls.predictions.decoder.bias": WORD_BIAS,
}  # tied, and there in old files
# regard's names beside BERT's, each of a weight and a bias; those of a block are joined with its number
WHOLE = {"norm": "embeddings.LayerNorm"}
TABLES = {
    "segments.weight": "embeddings.token_type_embeddings.weight",
    "positions.weight": "embeddings.position_embeddings.weight",
}
BLOCK = {
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feedforward.inner": "intermediate.dense",
    "feedforward.out": "output.dense",
    "feedforward_norm": "output.LayerNorm",
}
JOINED = ("attention.query_key_value", [f"attention.self.{name}" for name in ("query", "key", "value")])
POOLER = {"pooler.dense": "pooler.dense"}
WORDS = {"head.dense": "cls.predictions.transform.dense", "head.norm": "cls.predictions.transform.LayerNorm"}
NEXT = {"next_sentence": "cls.seq_relationship"}
LABELS = {"output": "classifier"}
HEADED = {"bert-classifier": "BertForSequenceClassification", "bert-tagger": "BertForTokenClassification"}
BERTS = ("bert", *HEADED)


class Written(NamedTuple):
    """What `write_bert` wrote: which of transformers' classes opens it, and whose names the tokens have."""

    folder: Path
    architecture: str
    tokens: Names


def read_bert(folder: Path, *, two_texts: bool = False) -> tuple[Any, TokenizerPair, dict[str, Any]]:
    """The model of a Hugging Face BERT folder in float32 on the CPU, its tokenizer, and the configuration of a run of it.

    `two_texts` says that a classifier was trained on pairs of texts, which the files do not say.
    """
    where = folder / CONFIG
    kind = model_type(folder)
    if kind != "bert":
        what = "it has no model_type" if kind is None else f"model_type={kind[:60]!r} is not a BERT"
        raise CheckpointError(where, what, 'Give a folder whose config.json says "model_type": "bert"')
    given = read_json(where)
    theirs = checked_config(where, given, USUAL, ONLY, READ)
    if not 1 <= theirs["vocab_size"] <= 1 << 24:
        raise CheckpointError(where, f"vocab_size={theirs['vocab_size']} is out of bounds", "Check the file")
    tensors = read_tensors(folder, _short)
    shape = list(tensors[TABLE].shape) if TABLE in tensors else "missing"
    if shape == "missing" or shape[:1] != [theirs["vocab_size"]]:  # before a tokenizer of so many tokens is made
        what = f"tensor {TABLE!r} is {shape}, and vocab_size={theirs['vocab_size']}"
        raise CheckpointError(folder, what, f"Use the weights and the {CONFIG} of one model together")
    tokenizer, order = read_tokenizer(folder, theirs["vocab_size"])
    for copy, original in COPIES.items():
        if copy in tensors and not torch.equal(tensors.pop(copy), tensors.get(original, torch.zeros(0))):
            raise CheckpointError(folder, f"{copy} is not {original}", "Only models whose tables are tied are read")
    if not 1 <= theirs["num_hidden_layers"] <= min(len(tensors), SIZES["layers"][1]):
        what = f"num_hidden_layers={theirs['num_hidden_layers']}, but there are {len(tensors)} tensors"
        raise CheckpointError(folder, what, f"Use the weights and the {CONFIG} of one model together")
    labels = _labels(given, tensors, where)
    if two_texts and _architecture(given) != HEADED["bert-classifier"]:
        raise ConfigError(
            "two_texts", "only classifiers are trained on pairs of texts, and this is none", "Leave it out"
        )
    if labels and _architecture(given) == HEADED["bert-tagger"]:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("pooler.")}
    config = _ours(theirs, given, tensors, where)
    sizes: dict[str, int] = {"vocabulary": theirs["vocab_size"]} | ({"labels": len(labels) + 1} if labels else {})
    with torch.device("meta"):
        outline = weights_of(MODELS.get(config.name)(config, **sizes))
    check_tensors(tensors, _expected(config, outline), "BERT", folder)
    model = MODELS.get(config.name)(config, **sizes).eval()
    put_weights(model, _to_ours(config, tensors, order), folder)
    return model, TokenizerPair(tokenizer, tokenizer, True), _run_config(config, tokenizer, order, labels, two_texts)


def import_bert(folder: Path, out: Path, *, two_texts: bool = False) -> Path:
    """Makes a run folder of a Hugging Face BERT folder, for `regard.load` and all commands."""
    check_free(out)
    model, tokenizers, config = read_bert(folder, two_texts=two_texts)
    write_run(out, folder, model, tokenizers, config)
    return out


def write_bert(run: Path | tuple[Any, TokenizerPair, Mapping[str, Any]], out: Path) -> Written:
    """Writes the BERT of a run folder (or a model, its tokenizer and its run's configuration) as transformers opens it."""
    check_free(out)
    model, tokenizers, about = load_model(run) if isinstance(run, Path) else run
    names: list[Names] = []
    fill, architecture = bert_filling(model, tokenizers, about, names)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_folder(out, fill)
    return Written(out, architecture, names[0])


def bert_filling(
    model: Any, tokenizers: TokenizerPair, about: Mapping[str, Any], names: list[Names]
) -> tuple[Callable[[Path], None], str]:
    """What writes the files into a folder, and which class opens them. `names` hears whose names the tokens got."""
    config = model.config
    if config.name not in BERTS:
        todo = "Only models with model.name=bert, bert-classifier or bert-tagger become a BERT"
        raise ModelError(f"model {config.name!r}", "it is not a BERT", todo)
    architecture = HEADED.get(config.name) or _pretrained(config)
    tensors = _to_theirs(config, weights_of(model))
    if architecture != "BertModel":
        tensors = {n if n.startswith(("cls.", "classifier.")) else f"bert.{n}": t for n, t in tensors.items()}
    labels = list(about.get("labels", ()))

    def fill(place: Path) -> None:
        names.append(write_tokenizer(tokenizers.source, place, config.context))
        save_tensors(place / WEIGHTS, tensors, {"format": "pt"})
        write_json(place / CONFIG, _theirs(config, architecture, tokenizers.source.size, labels))

    return fill, architecture


def _short(name: str) -> str | None:
    """BERT's name of a weight without prefix; the oldest files have TensorFlow's names of norms, some have positions' numbers."""
    if name.endswith("embeddings.position_ids"):
        return None
    short = name.removeprefix("bert.")
    for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
        short = short.removesuffix(old) + new if short.endswith(old) else short
    return short


def _pairs(config: BertConfig) -> Iterator[tuple[str, list[str]]]:
    """Every weight: regard's name, and BERT's; three of BERT's where they are one matrix in regard."""
    labelled = config.name in HEADED
    body = "body." if labelled else ""
    yield f"{body}embedding.weight", [TABLE]
    for our, their in TABLES.items():
        yield body + our, [their]
    parts = {body + our: [their] for our, their in WHOLE.items()}
    for i in range(config.layers):
        ours, theirs = f"{body}encoder.{i}.", f"encoder.layer.{i}."
        parts |= {ours + our: [theirs + their] for our, their in BLOCK.items()}
        parts[ours + JOINED[0]] = [theirs + their for their in JOINED[1]]
    if (config.pooler or config.next_sentence) and config.name != "bert-tagger":  # which reads none
        parts |= {body + our: [their] for our, their in POOLER.items()}
    elif config.name == "bert-classifier":  # it has a pooler of its own
        parts |= {our: [their] for our, their in POOLER.items()}
    if labelled:
        parts |= {our: [their] for our, their in LABELS.items()}
    else:
        parts |= {our: [their] for our, their in NEXT.items() if config.next_sentence}
        parts |= {our: [their] for our, their in WORDS.items() if config.head}
    for our, theirs in parts.items():
        for kind in ("weight", "bias"):
            yield f"{our}.{kind}", [f"{their}.{kind}" for their in theirs]
    if config.head and not labelled:
        yield "output.bias", [WORD_BIAS]


def _expected(config: BertConfig, outline: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shapes of BERT's tensors, from those of regard's."""
    found = {}
    for our, theirs in _pairs(config):
        first, *rest = outline[our].shape
        first = first - 1 if theirs[0].startswith("classifier.") else first // len(theirs)
        found |= dict.fromkeys(theirs, (first, *rest))
    return found


def _to_ours(config: BertConfig, tensors: Mapping[str, Tensor], order: list[int] | None) -> dict[str, Tensor]:
    weights = {our: torch.cat([tensors[their] for their in theirs]) for our, theirs in _pairs(config)}
    if order is not None:
        for our, theirs in _pairs(config):
            if theirs[0] in (TABLE, WORD_BIAS):
                weights[our] = weights[our][torch.tensor(order)]
    for our, theirs in _pairs(config):
        if theirs[0].startswith("classifier."):  # and the label of none, which is never written
            weights[our] = torch.cat((torch.zeros_like(weights[our][:1]), weights[our]))
    return weights


def _to_theirs(config: BertConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for our, theirs in _pairs(config):
        tensor = weights[our][1:] if theirs[0].startswith("classifier.") else weights[our]
        found |= dict(zip(theirs, tensor.chunk(len(theirs)), strict=True))
    return found


def _labels(given: Mapping[str, Any], tensors: Mapping[str, Tensor], where: Path) -> list[str]:
    """The names of the labels of a classifier or tagger; none for others."""
    if "classifier.weight" not in tensors:
        return []
    count = len(tensors["classifier.weight"]) if tensors["classifier.weight"].dim() else 0
    if _architecture(given) not in HEADED.values():
        what = f"architectures={str(given.get('architectures'))[:60]} does not say what its classifier is for"
        raise CheckpointError(where, what, f"Only {' and '.join(HEADED.values())} are read")
    if given.get("problem_type") not in (None, "single_label_classification") or not 2 <= count <= MAX_LABELS:
        what = f"its classifier has {count} outputs, and problem_type={given.get('problem_type')!r}"
        raise CheckpointError(where, what, "Only models that choose one of several labels are read")
    names = given.get("id2label", {str(i): f"LABEL_{i}" for i in range(count)})
    found = [names.get(str(i)) for i in range(count)] if isinstance(names, dict) else []
    labels = [name for name in found if isinstance(name, str) and name]
    if len(set(labels)) < count or len(names) != count:
        raise CheckpointError(where, f"id2label does not name the {count} labels", "Check the file")
    return labels


def _architecture(given: Mapping[str, Any]) -> Any:
    named = given.get("architectures")
    return named[0] if isinstance(named, list) and len(named) == 1 else None


def _ours(
    theirs: Mapping[str, Any], given: Mapping[str, Any], tensors: Mapping[str, Tensor], where: Path
) -> BertConfig:
    """The settings that config.json and the weights ask for."""
    named = {architecture: name for name, architecture in HEADED.items()}
    name = named[_architecture(given)] if "classifier.weight" in tensors else "bert"
    if theirs["hidden_act"] not in ACTIVATIONS:
        what = f"hidden_act={theirs['hidden_act'][:60]!r} is not supported"
        raise CheckpointError(where, what, f"Known are {', '.join(ACTIVATIONS)}")
    settings = {
        "name": name,
        "width": theirs["hidden_size"],
        "layers": theirs["num_hidden_layers"],
        "heads": theirs["num_attention_heads"],
        "inner": 0 if theirs["intermediate_size"] == 4 * theirs["hidden_size"] else theirs["intermediate_size"],
        "context": theirs["max_position_embeddings"],
        "segments": theirs["type_vocab_size"],
        "activation": ACTIVATIONS[theirs["hidden_act"]],
        "head": name == "bert" and any(our.startswith("cls.predictions.") for our in tensors),
        "next_sentence": name == "bert" and "cls.seq_relationship.weight" in tensors,
        "pooler": "pooler.dense.weight" in tensors and "cls.seq_relationship.weight" not in tensors,
        "dropout": theirs["hidden_dropout_prob"],
        "attention_dropout": theirs["attention_probs_dropout_prob"],
    }
    if name != "bert":
        dropout = given.get("classifier_dropout")
        settings["classifier_dropout"] = theirs["hidden_dropout_prob"] if dropout is None else dropout
    try:
        return configuration.build(MODELS.get(name).Config, settings, "model")
    except ConfigError as error:
        raise CheckpointError(where, f"{error.where}: {error.what}", "Check the file") from None


def _pretrained(config: BertConfig) -> str:
    if config.next_sentence:
        return "BertForPreTraining" if config.head else "BertForNextSentencePrediction"
    return "BertForMaskedLM" if config.head else "BertModel"


def _theirs(config: BertConfig, architecture: str, vocabulary: int, labels: list[str]) -> dict[str, Any]:
    function = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}[config.activation]
    named = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
        "classifier_dropout": getattr(config, "classifier_dropout", None),
    }
    return {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.inner_width,
        "hidden_act": function,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "max_position_embeddings": config.context,
        "type_vocab_size": config.segments,
        "initializer_range": 0.02,
        "layer_norm_eps": NORM_EPS,
        "pad_token_id": PAD,
        "tie_word_embeddings": True,
        **(named if labels else {}),
    }


def _run_config(
    config: BertConfig, tokenizer: Tokenizer, order: list[int] | None, labels: list[str], two_texts: bool
) -> dict[str, Any]:
    """What config.json of a run says."""
    size, made = tokenizer.size, {}
    if order is not None:
        lowercase = json.loads(tokenizer.to_json())["normalizer"]["lowercase"]
        least = 2 * len(SPECIALS) + 1
        made = configuration.to_plain(TokenizerConfig(kind="wordpiece", size=max(size, least), lowercase=lowercase))
    return {
        "format": FORMAT,
        "resolved": True,
        "data": {},
        "tokenizer": made,
        "model": configuration.to_plain(config),
        "search": {},
        "vocabulary": {"source": size, "target": size, "shared": True},
        **({"labels": labels} if labels else {}),
        **({"two_texts": two_texts} if config.name == "bert-classifier" else {}),
    }
