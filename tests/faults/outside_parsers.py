"""Every parser of bytes from outside: how it is called, and something good to start from.

A parser reads a file completely and gives nothing back. It may raise a RegardError, or a refusal of the server; all else is a bug.
"""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch

Parser = Callable[[Path], object]


@dataclass(frozen=True)
class Outside:
    """A parser, the name of its file, and good contents of it."""

    parse: Parser
    name: str
    seeds: tuple[bytes, ...]


def _lines(count: int = 40) -> bytes:
    return "".join(f"Zeile {i}: ein Haus und «zwei» Bäume\n" for i in range(count)).encode()


def _pairs(path: Path) -> None:
    from regard.data.reading import open_pairs

    for chunk in open_pairs([str(path)]).chunks(raw=True):
        len(chunk)


def _two_files(path: Path) -> None:
    from regard.data.checks.check import check_pairs
    from regard.data.reading import open_pairs

    check_pairs(open_pairs([str(path), str(path)]))


def _tokenizer(path: Path) -> None:
    from regard.data.tokenizers import TokenizerPair

    pair = TokenizerPair.load(path.parent)
    pair.source.decode(pair.source.encode(["ab cd", ""]))


def _recipe(path: Path) -> None:
    from regard.training.config import build_run_config, read_recipe

    build_run_config(read_recipe(str(path)))


def _checkpoint(path: Path) -> None:
    from regard.training.checkpoint import Checkpoints

    place = path.parent / "c" / "step-000000003"
    shutil.copytree(_STEP, place)
    shutil.copy(path, place / "manifest.json")
    Checkpoints(path.parent / "c").newest(lambda _: None)


def _config(path: Path) -> None:
    from regard.tasks.run_files import read_config

    read_config(path.parent)


def _plan(path: Path) -> None:
    from regard.comparing.results import read_plan

    read_plan(path.parent)


def _keys(path: Path) -> None:
    from regard.serving.keys import Keys

    Keys.read(path)


def _torch_file(path: Path) -> None:
    from regard.exchange.restricted_unpickling import TensorView
    from regard.exchange.restricted_unpickling_torch import TorchFile

    file = TorchFile(path)
    for value in file.value.values() if isinstance(file.value, dict) else ():
        if isinstance(value, TensorView):
            file.tensor(value)


def _pickle(path: Path) -> None:
    from regard.exchange.restricted_unpickling import read_pickle

    read_pickle(memoryview(path.read_bytes()), path)


def _sentencepiece(path: Path) -> None:
    from regard.exchange.sentencepiece_model import read_sentencepiece

    read_sentencepiece(path)


def _charsmap(path: Path) -> None:
    from regard.data.charsmap import Charsmap

    Charsmap(path.read_bytes())


def _onnx(path: Path) -> None:
    from regard.onnx.protobuf import check_model

    check_model(path.read_bytes(), path)


def _ctranslate2(path: Path) -> None:
    from regard.engines.ctranslate2_reading import read_arrays

    read_arrays(path)


def _unpacked(path: Path) -> None:
    from regard.data.unpacking import extract

    extract(path, ["*"], path.parent / "unpacked")


def _text_of(path: Path) -> None:
    from regard.data.unpacking import open_text

    with open_text(path) as file:
        while file.read(1 << 16):
            pass


def _json_body(path: Path) -> None:
    from regard.serving.parsing import read_json

    read_json(path.read_bytes())


def _form_body(path: Path) -> None:
    from regard.serving.parsing import read_urlencoded

    read_urlencoded(path.read_bytes())


def _multipart(path: Path) -> None:
    from regard.serving.parsing import read_multipart

    read_multipart(path.read_bytes(), "multipart/form-data; boundary=xyz")


def _html(path: Path) -> None:
    from regard.serving.html_markup import parts_of, tokens_of

    text = path.read_bytes().decode("utf-8", "replace")
    assert "".join(token.raw for token in tokens_of(text)) == text
    parts_of(text)


def _called(module: str, name: str, *more: object) -> Parser:
    def parse(path: Path) -> None:
        import importlib

        found = getattr(importlib.import_module(module), name)(path, *more)
        if hasattr(found, "__next__") or name == "GoldFile":
            list(found)

    return parse


def _torch_saved(**how) -> bytes:
    content = io.BytesIO()
    torch.save({"w": torch.arange(6.0).reshape(2, 3), "n": 3, "words": ["a", "b"]}, content, **how)
    return content.getvalue()


def _zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("a/text.en", _lines())
        file.writestr("text.de", _lines())
    return content.getvalue()


def _ctranslate2_bytes() -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"

    one = text("w") + struct.pack("<B", 2) + struct.pack("<II", 2, 3) + struct.pack("<BI", 0, 24) + bytes(24)
    return (
        struct.pack("<I", 6)
        + text("TransformerSpec")
        + struct.pack("<I", 7)
        + struct.pack("<I", 1)
        + one
        + struct.pack("<I", 0)
    )


def _protobuf(fields: list[tuple[int, bytes]]) -> bytes:
    return b"".join(bytes([number << 3 | 2, len(value)]) + value for number, value in fields)


_ARRAYS = {"w": np.zeros((3, 4), np.float32), "n": np.arange(3)}
_RUNS = Path(__file__).parents[1] / "data" / "runs"
_STEP = _RUNS / "v1-tagging" / "checkpoints" / "step-000000003"
_TMX = (
    b'<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>a <b>c</b></seg></tuv>'
    b'<tuv xml:lang="de"><seg>d</seg></tuv></tu></body></tmx>'
)
_MULTIPART = (
    b'--xyz\r\nContent-Disposition: form-data; name="q"\r\n\r\nHaus\r\n--xyz\r\nContent-Disposition: form-data; name="file"; '
    b'filename="a.txt"\r\nContent-Type: text/plain\r\n\r\ntext\r\n--xyz--\r\n'
)
_HTML = b"<p>A <b>bold</b> word.<br/><script>x()</script> &amp; <!-- c --> <a href='x'>link</a></p>"
_VECTORS = b"2 3\nhaus 0.1 0.2 0.3\nbaum 1 2 3\n"
_PIECES = [b"\n\x05<unk>\x15\0\0\0\0\x18\x02", b"\n\x02ab\x15\0\0\x80\xbf\x18\x01"]

_SIMILAR = b"Word 1,Word 2,Human (mean)\nlove,sex,6.77\ntiger,cat,7.35\n"
_RECIPE = b'about = "x"\n[model]\nwidth = 8\n[train]\nsteps = 3\nlr = 1e-3\n[data]\nsrc = "a"\ntgt = "b"\n'
_BINARY = b"2 3\n" + b"".join(word + b" " + struct.pack("<3f", 1, 2, 3) + b"\n" for word in (b"haus", b"baum"))
_GRAPH = _protobuf([(7, _protobuf([(1, b'\n\x01x\x12\x01y"\x03Add')])), (8, b"\n\0\x10\x11")])
_PLAN = (
    b'{"format": 1, "budget": {"steps": 3}, "flavour": {"language": "de"}, "entries": [{"slug": "a"}], "seeds": [1]}'
)

PARSERS: dict[str, Outside] = {}


def _add(name: str, parse: Parser, file: str, *seeds: bytes) -> None:
    PARSERS[name] = Outside(parse, file, seeds)


_add("pairs of lines", _two_files, "a.txt", _lines(), _lines().decode().encode("utf-16"))
_add("pairs, tsv", _pairs, "a.tsv", b"a b\tc d\n" * 9, b"a\tb\tc\n")
_add("pairs, csv", _pairs, "a.csv", b'source,target\n"a, b","c ""d"""\nx,y\n')
_add(
    "pairs, jsonl",
    _pairs,
    "a.jsonl",
    b'{"source": "a", "target": "b"}\n' * 5,
    b'{"translation": {"en": "a", "de": "b"}}\n',
)
_add("pairs, tmx", _pairs, "a.tmx", _TMX)
_add("pairs, compressed", _pairs, "a.tsv.gz", gzip.compress(b"a b\tc d\n" * 90), lzma.compress(b"a\tb\n" * 90))
_add("labelled text", _called("regard.data.labelled", "read_labelled"), "a.tsv", b"yes\ta b\nno\tc\n" * 4)
_add("tagged text", _called("regard.data.tagged_columns", "read_tagged"), "a.conll", b"ab O\ncd B-X\n\nef I-X\n" * 4)
_add("documents", _called("regard.data.documents", "read_documents"), "a.txt", _lines())
_add("word list", lambda path: _called("regard.data.word_list", "read_word_list")(str(path)), "words.txt", b"ab\ncd\n")  # type: ignore[arg-type]
_add(
    "word vectors, text", _called("regard.data.vectors", "read_vectors"), "a.txt", _VECTORS, b"haus 0.1 0.2\nbaum 1 2\n"
)
_add("word vectors, binary", _called("regard.data.vectors", "read_vectors"), "a.bin", _BINARY)
_add(
    "analogies", _called("regard.evaluation.word_vectors", "read_analogies"), "a.txt", b": capitals\nA B C D\nE F G H\n"
)
_add("similarities", _called("regard.evaluation.word_similarity", "read_similarity"), "a.csv", _SIMILAR)
_add("gold alignments", _called("regard.evaluation.aer", "GoldFile"), "a.txt", b"0-0 1?2 2p3\n\n3-1\n")
_add("recipe", _recipe, "r.toml", _RECIPE)
_add("manifest", _checkpoint, "manifest.json", (_STEP / "manifest.json").read_bytes())
_add("run's configuration", _config, "config.json", (_RUNS / "v1-translation" / "config.json").read_bytes())
_add("tokenizer", _tokenizer, "tokenizer.json", (_RUNS / "v1-translation" / "tokenizer.json").read_bytes())
_add("safetensors", _called("regard.core.files", "load_tensors"), "a.safetensors", safetensors.numpy.save(_ARRAYS))
_add("comparison's plan", _plan, "plan.json", _PLAN)
_add(
    "log of metrics", _called("regard.training.log", "read_metrics"), "metrics.jsonl", b'{"step": 1, "loss": 2.0}\n' * 3
)
_add("file of torch", _torch_file, "a.pt", _torch_saved(), _torch_saved(_use_new_zipfile_serialization=False))
_add("pickle", _pickle, "a.pkl", *(pickle.dumps({"a": [1, 2.5, "x", None, (True,)]}, protocol=p) for p in (2, 3, 4)))
_add("SentencePiece model", _sentencepiece, "a.model", _protobuf([(1, piece) for piece in _PIECES]))
_add("map of characters", _charsmap, "a.bin", struct.pack("<I", 8) + bytes(8) + b"ab\0")
_add("ONNX model", _onnx, "a.onnx", _GRAPH)
_add("CTranslate2 model", _ctranslate2, "model.bin", _ctranslate2_bytes())
_add("archive", _unpacked, "a.zip", _zipped())
_add("compressed text", _text_of, "a.xz", lzma.compress(_lines()))
_add("request, JSON", _json_body, "body", b'{"q": ["a", "b"], "source": "en", "alternatives": 3}')
_add("request, form", _form_body, "body", b"q=ab+cd&source=en&target=de%20")
_add("request, multipart", _multipart, "body", _MULTIPART)
_add("request, HTML", _html, "body", _HTML)
_add("keys", _keys, "keys.txt", b"# mine\nabcdefghij\n")
