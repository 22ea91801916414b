"""Checkpoints of OpenNMT-py and fairseq made by hand, and what they compute, in float64 NumPy from the raw weights.

The classes that their pickles name (torchtext's vocabularies, omegaconf's nodes, argparse's namespace) are stand-ins, made under
the same module names while a file is written and gone afterwards.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

WORDS = [f"word{i}" for i in range(20)]
WIDTH, HEADS, INNER = 8, 2, 12
Get = Callable[[str], np.ndarray]


@contextlib.contextmanager
def stand_ins(**classes: list[str]) -> Iterator[dict[str, type]]:
    """Classes of modules that are not installed; a module's dots are written as double underscores."""
    made, modules = {}, {}
    for module, names in classes.items():
        path = module.replace("__", ".")
        for i in range(1, path.count(".") + 2):
            part = ".".join(path.split(".")[:i])
            modules.setdefault(part, types.ModuleType(part))
        for name in names:
            made[name] = type(name, (), {"__module__": path})
            setattr(modules[path], name, made[name])
    assert not modules.keys() & sys.modules.keys()
    sys.modules.update(modules)
    try:
        yield made
    finally:
        for module in modules:
            del sys.modules[module]


def _numbers(names: dict[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    found = collections.OrderedDict()
    for name, shape in names.items():
        base = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        found[name] = base + 0.4 * torch.randn(shape)
    return found


def opennmt(
    *, version: int = 3, relative: int = 0, gated: bool = False, layers: tuple[int, int] = (2, 1), **options: Any
) -> dict[str, Any]:
    """The parts of a checkpoint: weights, generator, tokens of both sides, options. Versions differ in vocabularies and biases."""
    source, target = ["<unk>", "<blank>", *WORDS[:15]], ["<unk>", "<blank>", "<s>", "</s>", *WORDS]
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, rows: int, columns: int, bias: bool = True) -> None:
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (rows,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (WIDTH,)

    for side, tokens in (("encoder", source), ("decoder", target)):
        shapes[f"{side}.embeddings.make_embedding.emb_luts.0.weight"] = (len(tokens), WIDTH)
        norm(f"{side}.layer_norm")
        for i in range(layers[side == "decoder"]):
            place = f"encoder.transformer.{i}" if side == "encoder" else f"decoder.transformer_layers.{i}"
            for attention in ("self_attn", "context_attn")[: 1 if side == "encoder" else 2]:
                for part in ("linear_query", "linear_keys", "linear_values", "final_linear"):
                    linear(f"{place}.{attention}.{part}", WIDTH, WIDTH, bias=version < 3)
            if relative:
                shapes[f"{place}.self_attn.relative_positions_embeddings.weight"] = (2 * relative + 1, WIDTH // HEADS)
            for part in ("layer_norm",) if side == "encoder" else ("layer_norm_1", "layer_norm_2"):
                norm(f"{place}.{part}")
            norm(f"{place}.feed_forward.layer_norm")
            for part in ("w_1", "w_3")[: 1 + gated]:
                linear(f"{place}.feed_forward.{part}", INNER, WIDTH)
            linear(f"{place}.feed_forward.w_2", WIDTH, INNER)
    weights = _numbers(shapes, 3)
    if not relative:
        for side in ("encoder", "decoder"):
            weights[f"{side}.embeddings.make_embedding.pe.pe"] = torch.tensor(waves(40)).float()[:, None]
    prefix = "0." if version < 3 else ""
    generator = _numbers({f"{prefix}weight": (len(target), WIDTH), f"{prefix}bias": (len(target),)}, 4)
    given = {
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": layers[0],
        "dec_layers": layers[1],
        "heads": HEADS,
        "position_encoding": not relative,
        "max_relative_positions": relative,
        "pos_ffn_activation_fn": "silu" if gated else "relu",
        "copy_attn": False,
    }
    return {"model": weights, "generator": generator, "tokens": (source, target), "opt": given | options}


def save_opennmt(parts: dict[str, Any], path: Path, *, version: int = 3, old: bool = False) -> Path:
    """Writes a checkpoint as a version of OpenNMT-py would; `old`: in the file format without an archive."""
    source, target = parts["tokens"]
    with stand_ins(
        torchtext__vocab=["Vocab"], torchtext__data__field=["Field"], onmt__inputters=["TextMultiField"]
    ) as made:

        def vocab(tokens: list[str]) -> Any:
            one = made["Vocab"]()
            one.itos, one.freqs = tokens, collections.Counter(tokens)
            one.stoi = collections.defaultdict(int, {token: i for i, token in enumerate(tokens)})
            return one

        def field(side: str, tokens: list[str]) -> Any:
            inner = made["Field"]()
            inner.vocab, inner.pad_token, inner.sequential = vocab(tokens), "<blank>", True
            outer = made["TextMultiField"]()
            outer.fields = [(side, inner)]
            return outer

        kinds: dict[int, Any] = {
            1: [("src", vocab(source)), ("tgt", vocab(target))],
            2: {"src": field("src", source), "tgt": field("tgt", target), "indices": None},
            3: {"src": source, "tgt": target, "data_task": "seq2seq"},
        }
        whole = {
            "model": parts["model"],
            "generator": parts["generator"],
            "vocab": kinds[version],
            "opt": argparse.Namespace(**parts["opt"]),
            "optim": {"step": 3, "state": [torch.zeros(4)]},
        }
        torch.save(whole, path, _use_new_zipfile_serialization=not old)
    return path


def fairseq(
    *, pre: bool = False, learned: bool = False, shared: bool = True, layers: tuple[int, int] = (1, 2)
) -> dict[str, Any]:
    """The parts of a checkpoint: weights, options, words of both dictionaries."""
    words = (WORDS[:16], WORDS[:16]) if shared else (WORDS[:12], WORDS[:16])
    shapes: dict[str, tuple[int, ...]] = {}
    for side, count in (("encoder", len(words[0]) + 4), ("decoder", len(words[1]) + 4)):
        shapes[f"{side}.embed_tokens.weight"] = (count, WIDTH)
        if learned:
            shapes[f"{side}.embed_positions.weight"] = (32, WIDTH)
        names = [
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "self_attn.out_proj",
            "self_attn_layer_norm",
        ]
        names += ["fc1", "fc2", "final_layer_norm"]
        if side == "decoder":
            names += [f"encoder_attn.{part}_proj" for part in ("q", "k", "v", "out")] + ["encoder_attn_layer_norm"]
        for i in range(layers[side == "decoder"]):
            for name in names:
                rows, columns = (INNER, WIDTH) if name == "fc1" else (WIDTH, INNER) if name == "fc2" else (WIDTH, WIDTH)
                shapes[f"{side}.layers.{i}.{name}.weight"] = (rows,) if "norm" in name else (rows, columns)
                shapes[f"{side}.layers.{i}.{name}.bias"] = (rows,)
        if pre:
            shapes[f"{side}.layer_norm.weight"] = shapes[f"{side}.layer_norm.bias"] = (WIDTH,)
    if not shared:
        shapes["decoder.output_projection.weight"] = shapes["decoder.embed_tokens.weight"]
    weights = _numbers(shapes, 5)
    if shared:
        for name in ("encoder.embed_tokens.weight", "decoder.output_projection.weight"):
            weights[name] = weights["decoder.embed_tokens.weight"]
    for side in ("encoder", "decoder"):
        weights[f"{side}.version"] = torch.tensor([3.0])
        if not learned:
            weights[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
    options: dict[str, Any] = {"share_all_embeddings": shared, "activation_fn": "relu", "max_source_positions": 30}
    options |= {"max_target_positions": 25, "adaptive_softmax_cutoff": None, "dropout": 0.3}
    for side in ("encoder", "decoder"):
        options |= {f"{side}_embed_dim": WIDTH, f"{side}_ffn_embed_dim": INNER, f"{side}_attention_heads": HEADS}
        options |= {f"{side}_layers": layers[side == "decoder"], f"{side}_normalize_before": pre}
        options[f"{side}_learned_pos"] = learned
    return {"model": weights, "options": options, "words": words}


def save_fairseq(parts: dict[str, Any], folder: Path, *, form: str = "args", old: bool = False) -> Path:
    """Writes a checkpoint and its dictionaries. `form`: args (a namespace), cfg (dictionaries) or nodes (omegaconf's)."""
    folder.mkdir(exist_ok=True)
    for language, words in zip(("xx", "yy"), parts["words"], strict=True):
        lines = "".join(f"{word} {100 - i}\n" for i, word in enumerate(words))
        (folder / f"dict.{language}.txt").write_text(lines)
    languages = {"source_lang": "xx", "target_lang": "yy"}
    whole: dict[str, Any] = {"model": parts["model"], "extra_state": {"epoch": 2}, "args": None}
    with stand_ins(omegaconf__dictconfig=["DictConfig"], omegaconf__nodes=["AnyNode"]) as made:

        def node(value: Any) -> Any:
            if not isinstance(value, dict):
                one = made["AnyNode"]()
                one._val = value
                return one
            one = made["DictConfig"]()
            one._content = {key: node(inner) for key, inner in value.items()}
            return one

        options = {"_name": "transformer", **parts["options"]}
        if form == "args":
            whole["args"] = argparse.Namespace(arch="transformer_iwslt_de_en", **parts["options"], **languages)
        elif form == "cfg":
            whole["cfg"] = {"model": argparse.Namespace(**options), "task": languages}
        else:
            whole["cfg"] = node({"model": options, "task": languages})
        torch.save(whole, folder / "checkpoint_best.pt", _use_new_zipfile_serialization=not old)
    return folder / "checkpoint_best.pt"


def waves(count: int, *, halves: bool = False) -> np.ndarray:
    """The paper's waves for positions 0, 1, ..; `halves`: Tensor2Tensor's, as fairseq has them."""
    if halves:
        rates = 10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2 - 1))
        angles = np.arange(count)[:, None] * rates
        return np.concatenate((np.sin(angles), np.cos(angles)), 1)
    angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(0, WIDTH, 2) / WIDTH)
    return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(count, WIDTH)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return np.log(softmax(x))


def normal(get: Get, name: str, x: np.ndarray, epsilon: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return centred / deviation * get(f"{name}.weight") + get(f"{name}.bias")


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool = False, vectors: np.ndarray | None = None
) -> np.ndarray:
    """Multi-head attention of projected vectors; `vectors` are Shaw's, the same for keys and values."""
    size, mixed = WIDTH // HEADS, np.zeros_like(q)
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        for i in range(len(q)):
            scores = np.full(len(k), -np.inf)
            limit = i + 1 if causal else len(k)
            extra = np.zeros((len(k), size))
            if vectors is not None:
                reach = len(vectors) // 2
                extra = vectors[np.clip(np.arange(len(k)) - i, -reach, reach) + reach]
            scores[:limit] = ((k[:, part] + extra) @ q[i, part])[:limit] / math.sqrt(size)
            weights = softmax(scores)
            mixed[i, part] = weights @ (v[:, part] + extra)
    return mixed


def opennmt_log_probs(parts: dict[str, Any], source: list[int], target: list[int]) -> np.ndarray:
    """What OpenNMT-py computes for a source (without EOS) and a target that begins with <s>."""
    zeros = {name: tensor.double().numpy() for name, tensor in parts["model"].items()}
    relative, gated = parts["opt"]["max_relative_positions"], parts["opt"]["pos_ffn_activation_fn"] == "silu"

    def get(name: str) -> np.ndarray:
        return zeros[name]

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ get(f"{name}.weight").T + zeros.get(f"{name}.bias", 0.0)

    def embed(side: str, ids: list[int]) -> np.ndarray:
        x = get(f"{side}.embeddings.make_embedding.emb_luts.0.weight")[ids]
        return x if relative else x * math.sqrt(WIDTH) + waves(len(ids))

    def look(name: str, x: np.ndarray, memory: np.ndarray, causal: bool) -> np.ndarray:
        vectors = zeros.get(f"{name}.relative_positions_embeddings.weight")
        q, k, v = (
            linear(f"{name}.linear_{part}", one) for part, one in (("query", x), ("keys", memory), ("values", memory))
        )
        return linear(f"{name}.final_linear", attention(q, k, v, causal=causal, vectors=vectors))

    def feed(name: str, x: np.ndarray) -> np.ndarray:
        read = normal(get, f"{name}.layer_norm", x, 1e-6)
        inner = linear(f"{name}.w_1", read)
        inner = inner / (1 + np.exp(-inner)) * linear(f"{name}.w_3", read) if gated else np.maximum(inner, 0)
        return x + linear(f"{name}.w_2", inner)

    x = embed("encoder", source)
    for i in range(parts["opt"]["enc_layers"]):
        place = f"encoder.transformer.{i}"
        read = normal(get, f"{place}.layer_norm", x, 1e-6)
        x = feed(f"{place}.feed_forward", x + look(f"{place}.self_attn", read, read, False))
    memory = normal(get, "encoder.layer_norm", x, 1e-6)
    x = embed("decoder", target)
    for i in range(parts["opt"]["dec_layers"]):
        place = f"decoder.transformer_layers.{i}"
        read = normal(get, f"{place}.layer_norm_1", x, 1e-6)
        x = x + look(f"{place}.self_attn", read, read, True)
        x = x + look(f"{place}.context_attn", normal(get, f"{place}.layer_norm_2", x, 1e-6), memory, False)
        x = feed(f"{place}.feed_forward", x)
    x = normal(get, "decoder.layer_norm", x, 1e-6)
    weight, bias = (tensor.double().numpy() for tensor in parts["generator"].values())
    return log_softmax(x @ weight.T + bias)


def fairseq_log_probs(parts: dict[str, Any], source: list[int], target: list[int]) -> np.ndarray:
    """What fairseq computes for a source (which ends with EOS) and a target that begins with EOS."""
    numbers = {name: tensor.double().numpy() for name, tensor in parts["model"].items()}
    options = parts["options"]
    pre = options["encoder_normalize_before"]

    def get(name: str) -> np.ndarray:
        return numbers[name]

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ get(f"{name}.weight").T + get(f"{name}.bias")

    def embed(side: str, ids: list[int]) -> np.ndarray:
        table = numbers.get(f"{side}.embed_positions.weight")
        table = waves(len(ids) + 2, halves=True) if table is None else table
        return get(f"{side}.embed_tokens.weight")[ids] * math.sqrt(WIDTH) + table[2 : 2 + len(ids)]

    def around(name: str, x: np.ndarray, sublayer: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        if pre:
            return x + sublayer(normal(get, name, x, 1e-5))
        return normal(get, name, x + sublayer(x), 1e-5)

    def look(name: str, x: np.ndarray, memory: np.ndarray, causal: bool) -> np.ndarray:
        q, k, v = (linear(f"{name}.{part}_proj", one) for part, one in (("q", x), ("k", memory), ("v", memory)))
        return linear(f"{name}.out_proj", attention(q, k, v, causal=causal))

    def stack(side: str, x: np.ndarray, memory: np.ndarray | None) -> np.ndarray:
        for i in range(options[f"{side}_layers"]):
            place = f"{side}.layers.{i}"
            causal = memory is not None
            x = around(f"{place}.self_attn_layer_norm", x, lambda y: look(f"{place}.self_attn", y, y, causal))  # noqa: B023
            if memory is not None:
                x = around(
                    f"{place}.encoder_attn_layer_norm",
                    x,
                    lambda y: look(f"{place}.encoder_attn", y, memory, False),  # noqa: B023
                )
            x = around(
                f"{place}.final_layer_norm",
                x,
                lambda y: linear(f"{place}.fc2", np.maximum(linear(f"{place}.fc1", y), 0)),  # noqa: B023
            )
        return normal(get, f"{side}.layer_norm", x, 1e-5) if pre else x

    x = stack("decoder", embed("decoder", target), stack("encoder", embed("encoder", source), None))
    return log_softmax(x @ get("decoder.output_projection.weight").T)
