"""Mistakes: each ends in one clear sentence, a non-zero exit, no traceback, and nothing overwritten or lost."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from regard.core.files import write_manifest

FILES = ["model.safetensors", "config.json", "tokenizer.json"]


def one_sentence(done, *parts: object) -> None:
    """What every mistake must end in; `parts` are what the message must name."""
    assert done.code != 0, done.out
    assert len(done.err.splitlines()) == 1, done.err
    assert re.fullmatch(r"Error: .+: .+\. .+\.\n", done.err), "where: what. What to do."
    assert "Traceback" not in done.err + done.out
    for part in parts:
        assert str(part) in done.err, f"{part!r} is not in {done.err!r}"


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of good and bad text files."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "good.en").write_text("".join(f"This is line {i}.\n" for i in range(60)))
    (folder / "good.de").write_text("".join(f"Das ist Zeile {i}.\n" for i in range(60)))
    (folder / "short.de").write_text("".join(f"Das ist Zeile {i}.\n" for i in range(57)))
    (folder / "empty.en").write_text("")
    (folder / "blank.en").write_text("\n" * 60)
    (folder / "latin1.de").write_bytes(b"eins\nzwei\ndr\xfcben\n" * 20)
    (folder / "utf16.de").write_bytes("eins\nzwei\n".encode("utf-16"))
    (folder / "broken.en.gz").write_bytes(b"\x1f\x8b\x08\x00nothing of the kind")
    (folder / "folder.en").mkdir()
    return folder


BAD_TEXT = [
    ("absent.en", "good.de", ["absent.en", "no such file"]),
    ("good.en", "absent.de", ["absent.de", "no such file"]),
    ("folder.en", "good.de", ["folder.en", "is a directory"]),
    ("empty.en", "good.de", ["empty.en", "is empty"]),
    ("good.en", "short.de", ["good.en", "short.de", "60 lines", "57"]),
    ("good.en", "latin1.de", ["latin1.de", "not UTF-8", "iconv"]),
    ("good.en", "utf16.de", ["utf16.de", "UTF-16"]),
    ("broken.en.gz", "good.de", ["broken.en.gz", "corrupt"]),
]


@pytest.mark.parametrize(("src", "tgt", "parts"), BAD_TEXT, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("verb", ["train", "score", "evaluate", "align"])
def test_bad_text(
    command: Callable, files: Path, tiny_run: Path, tmp_path: Path, verb: str, src: str, tgt: str, parts: list[str]
) -> None:
    before = contents(files)
    out = tmp_path / "out"
    arguments = {
        "train": ["train", "--src", files / src, "--tgt", files / tgt, "--out", out, "train.steps=2"],
        "score": ["score", "-m", tiny_run, "--src", files / src, "--tgt", files / tgt],
        "align": ["align", "-m", tiny_run, "--src", files / src, "--tgt", files / tgt, "--out", out],
        "evaluate": ["evaluate", "-m", tiny_run, "--src", files / src, "--ref", files / tgt, "--out", out],
    }
    one_sentence(command(*arguments[verb]), *parts)
    assert not out.exists(), "a failed run leaves its folder's name free for the next try"
    assert contents(files) == before


def test_text_of_blank_lines_only(command: Callable, files: Path, tmp_path: Path) -> None:
    given = ("--src", files / "blank.en", "--tgt", files / "good.de")
    done = command("train", *given, "--out", tmp_path / "out")
    one_sentence(done, "60 pairs", "empty-side", "--allow empty-side")
    done = command("train", "-q", *given, "--allow", "empty-side", "--out", tmp_path / "out")
    one_sentence(done, "none of its 60 pairs is left", "60 have an empty side")


def test_a_mistake_in_the_text_can_be_mended(command: Callable, files: Path, tmp_path: Path) -> None:
    """The very same command works once the file is there; an empty folder that was there stays."""
    out = tmp_path / "out"
    out.mkdir()
    arguments = ("train", "--src", files / "later.en", "--tgt", files / "good.de", "--out", out, "train.steps=1")
    settings = ("model.width=16", "model.layers=1", "train.threads=1")
    one_sentence(command(*arguments, *settings), "later.en")
    assert list(out.iterdir()) == []
    shutil.copy(files / "good.en", files / "later.en")
    assert command(*arguments, *settings).code == 0


# --- settings


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("train.stepz=5", ["train.stepz", "Perhaps you mean train.steps"]),
        ("model.widht=5", ["model.widht", "model.width"]),
        ("steps=5", ["steps", "train.steps"]),
        ("tran.steps=5", ["tran", "Perhaps you mean train"]),
        ("train=5", ["train", "5"]),
        ("=5", ["=5", "section.key=value"]),
        ("train.steps=many", ["train.steps", "whole number", "'many'"]),
        ("train.steps=1.5", ["train.steps", "whole number", "1.5"]),
        ("train.steps=-3", ["train.steps", "-3"]),
        ("train.steps=0", ["train.steps", "0"]),
        ("train.lr=nan", ["train.lr", "nan"]),
        ("train.lr=-1.", ["train.lr", "-1"]),
        ("train.compile=maybe", ["train.compile", "auto, true, false", "'maybe'"]),
        ("train.graphs=maybe", ["train.graphs", "true or false", "'maybe'"]),
        ("train.seed=-1", ["train.seed", "-1"]),
        ("train.seed=99999999999999999999", ["train.seed"]),
        ("train.label_smoothing=1", ["train.label_smoothing"]),
        ("train.schedule=cosinus", ["train.schedule", "cosine"]),
        ("train.device=gpu9", ["gpu9", "cpu, cuda"]),
        ("train.device=cuda:99", ["cuda:99", "no such GPU"]),
        ("model.dropout=1.5", ["model.dropout", "1.5"]),
        ("model.heads=7", ["model.heads", "7", "width"]),
        ("model.width=0", ["model.width", "0"]),
        ("model.layers=-1", ["model.layers", "-1"]),
        ("model.name=os.system", ["os.system", "transformer"]),
        ("model.norm=before", ["model.norm", "pre, post"]),
        ("tokenizer.kind=bep", ["tokenizer.kind", "bpe"]),
        ("tokenizer.size=2", ["tokenizer.size", "2"]),
        ("search.beam=0", ["search.beam", "1 to 64"]),
        ("search.nbest=9", ["search.nbest", "9", "beam"]),
        ("data.columns=5", ["data.columns", "two columns"]),
        ('data.columns=["a"]', ["data.columns", "two columns"]),
        ("data.max_words=1", ["data.max_words", "data.min_words"]),
        ("data.pairs=bundled:tatoeba-en-dd", ["tatoeba-en-dd", "tatoeba-en-de"]),
        ("data.src=x.en", ["data.pairs", "data.src"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_settings(command: Callable, tmp_path: Path, setting: str, parts: list[str]) -> None:
    one_sentence(command("train", "demo", setting, "--out", tmp_path / "out"), *parts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["demmo", "--out", "OUT"], ["demmo", "Perhaps you mean demo"]),
        (["./nowhere.toml", "--out", "OUT"], ["nowhere.toml", "Check the path"]),
        (["demo", "multi30k-en-de", "--out", "OUT"], ["demo, multi30k-en-de"]),
        (["demo"], ["output folder", "--out DIR"]),
        (["--out", "OUT"], ["nothing to train on", "--src and --tgt"]),
        (["--src", "a.en", "--out", "OUT"], ["only one of src and tgt", "Give both"]),
        (["--tgt", "a.de", "--out", "OUT"], ["only one of src and tgt", "Give both"]),
        (["--resume", "OUT"], ["OUT", "no such folder"]),
        (["--resume", "OUT", "train.steps=5"], ["--resume", "--from"]),
        (["--resume", "OUT", "--src", "x"], ["--resume", "Leave the other arguments out"]),
        (["--from", "OUT", "demo", "--out", "OUT2"], ["OUT", "no such folder"]),
        (["--resum", "OUT"], ["--resum", "regard train --help"]),
        (["demo", "--out", "OUT", "--steps", "9"], ["--steps", "the setting train.steps=VALUE, without dashes"]),
        (["demo", "--out", "OUT", "--model", "luong"], ["--model", "model.name=NAME"]),
        (["demo", "--out", "OUT", "--max-words", "9"], ["--max-words", "data.max_words=VALUE"]),
        (["demo", "--out", "OUT", "--rotary-base", "9"], ["--rotary-base", "model.rotary_base=VALUE"]),
    ],
)
def test_bad_arguments_of_train(command: Callable, tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    out = tmp_path / "OUT"
    done = command("train", *(str(tmp_path / word) if word.startswith("OUT") else word for word in arguments))
    one_sentence(done, *parts)
    assert not out.exists()


def test_bad_recipe_file(command: Callable, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("[train]\nsteps = = 5\n")
    one_sentence(command("train", recipe, "--out", tmp_path / "out"), recipe, "line 2")


def test_fine_tuning_cannot_change_the_model(command: Callable, tiny_run: Path, files: Path, tmp_path: Path) -> None:
    texts = ("--src", files / "good.en", "--tgt", files / "good.de", "--out", tmp_path / "out")
    one_sentence(command("train", "--from", tiny_run, *texts, "model.width=32"), "model.width", "width=16")
    assert not (tmp_path / "out").exists()


def test_fine_tuning_from_damaged_weights(command: Callable, tiny_copy: Path, files: Path, tmp_path: Path) -> None:
    (tiny_copy / "model.safetensors").write_bytes(b"damaged")
    texts = ("--src", files / "good.en", "--tgt", files / "good.de", "--out", tmp_path / "out")
    one_sentence(command("train", "--from", tiny_copy, *texts), "model.safetensors", "truncated")
    assert not (tmp_path / "out").exists()


# --- output folders


@pytest.mark.parametrize("kind", ["run", "file", "full", "under a file"])
def test_output_that_is_taken(command: Callable, tiny_copy: Path, tmp_path: Path, kind: str) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("years of work")
    out = {
        "run": tiny_copy,
        "file": full / "thesis.txt",
        "full": full,
        "under a file": full / "thesis.txt" / "run",
    }[kind]
    before = contents(tmp_path)
    done = command("train", "demo", "--out", out, "train.steps=1")
    one_sentence(done, out, "another --out")
    assert ("--resume" in done.err) == (kind == "run")
    assert contents(tmp_path) == before


def test_resuming_what_is_no_run(command: Callable, files: Path, tiny_copy: Path) -> None:
    one_sentence(command("train", "--resume", files), files, "not a run folder")
    one_sentence(command("train", "--resume", files / "good.en"), "good.en", "is a file")
    (tiny_copy / "run.json").unlink()
    one_sentence(command("train", "--resume", tiny_copy), tiny_copy, "run.json", "--from")


def test_resuming_with_other_text(command: Callable, files: Path, tmp_path: Path) -> None:
    out, src, tgt = tmp_path / "out", files / "good.en", files / "good.de"
    settings = ("model.width=16", "model.layers=1", "train.threads=1", "train.steps=2")
    assert command("train", "--src", src, "--tgt", tgt, "--out", out, *settings).code == 0
    run = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**run, "status": "interrupted"}))
    src.write_text(src.read_text().replace("line 7", "line seven"))
    before = contents(out)
    one_sentence(command("train", "--resume", out), out, "not what this run was started with")
    assert {k: v for k, v in contents(out).items() if k != ".lock"} == {k: v for k, v in before.items() if k != ".lock"}


# --- models


def edit(folder: Path, **changes: object) -> None:
    """Changes sections of config.json and signs the result, as someone who means harm would."""
    config = json.loads((folder / "config.json").read_text())
    for section, values in changes.items():
        config[section] = {**config[section], **values} if isinstance(values, dict) else values
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder, FILES)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def truncate_and_sign(folder: Path) -> None:
    truncate(folder)
    write_manifest(folder, FILES)


def flip_a_bit(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)


def foreign_weights(folder: Path) -> None:
    safetensors.torch.save_file({"lm_head.weight": torch.zeros(3, 3)}, folder / "model.safetensors")
    write_manifest(folder, FILES)


def no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04 a pickle, perhaps")
    write_manifest(folder, FILES)


def edit_config_only(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"heads": 2', '"heads": 4'))


def tokenizer_of_another_size(folder: Path) -> None:
    from regard.data.tokenizers import TokenizerConfig, TokenizerPair

    texts = [f"word {i} and more of it" for i in range(50)]
    TokenizerPair.train(texts, texts, TokenizerConfig(size=40)).save(folder)
    write_manifest(folder, FILES)


def write(name: str, content: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_text(content)
        if name != "manifest.json":
            write_manifest(folder, FILES)

    return damage


def remove(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


GIANT = {"width": 1 << 30, "inner": 1 << 32, "heads": 2}
DAMAGE: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "truncated weights": (truncate, ["model.safetensors", "truncated"]),
    "truncated and signed": (truncate_and_sign, ["model.safetensors", "not a readable safetensors"]),
    "flipped bit": (flip_a_bit, ["model.safetensors", "corrupted"]),
    "foreign weights": (foreign_weights, ["model.safetensors", "do not fit"]),
    "no safetensors": (no_safetensors, ["model.safetensors", "not a readable safetensors"]),
    "no weights": (remove("model.safetensors"), ["model.safetensors", "missing"]),
    "no weights yet": (remove("model.safetensors", "manifest.json"), ["no weights yet", "--resume"]),
    "edited config": (edit_config_only, ["config.json", "corrupted"]),
    "no config": (remove("config.json"), ["config.json", "not a run folder"]),
    "config is no JSON": (write("config.json", "{"), ["config.json", "not valid JSON"]),
    "config is a list": (write("config.json", "[1]"), ["config.json", "not a configuration that regard wrote"]),
    "config of another tool": (write("config.json", '{"model": {}}'), ["config.json", "format None"]),
    "config of the future": (lambda f: edit(f, format=99), ["config.json", "format 99"]),
    "config nested too deep": (write("config.json", "[" * 200_000), ["config.json", "not valid JSON"]),
    "no tokenizer": (remove("tokenizer.json"), ["tokenizer"]),
    "tokenizer does not fit": (tokenizer_of_another_size, ["tokenizer", "the model was built for"]),
    "tokenizer is no tokenizer": (write("tokenizer.json", "{}"), ["tokenizer.json", "not a tokenizer"]),
    "no manifest": (remove("manifest.json"), ["manifest.json", "missing"]),
    "manifest is no JSON": (write("manifest.json", "no"), ["manifest.json", "not valid JSON"]),
    "manifest is a list": (write("manifest.json", "[]"), ["manifest.json", "not a manifest"]),
    "manifest points elsewhere": (
        write("manifest.json", '{"format": 1, "files": {"model.safetensors": {}, "../x": {"bytes": 1}}}'),
        ["manifest"],
    ),
    "wider than its weights": (lambda f: edit(f, model={"width": 32}), ["do not fit", "shape"]),
    "giant": (lambda f: edit(f, model=GIANT), ["model.width", "is more than"]),
    "giant within bounds": (lambda f: edit(f, model={"width": 1 << 14, "heads": 2}), ["do not fit"]),
    "giant beyond 64 bits": (lambda f: edit(f, model={"width": 1 << 80, "heads": 2}), ["model.width", "is more than"]),
    "giant depth": (lambda f: edit(f, model={"layers": 20_000}), ["model.layers", "is more than"]),
    "depth within bounds": (lambda f: edit(f, model={"layers": 900}), ["do not fit", "900 layers"]),
    "giant vocabulary": (lambda f: edit(f, vocabulary={"source": 1 << 40, "target": 1 << 40}), ["tokenizer", "tokens"]),
    "vocabulary of texts": (lambda f: edit(f, vocabulary={"source": "300"}), ["config.json", "not a configuration"]),
    "vocabulary is a list": (lambda f: edit(f, vocabulary=[300, 300]), ["config.json", "not a configuration"]),
    "import string": (lambda f: edit(f, model={"name": "os.system"}), ["os.system", "none of that name"]),
    "path as a name": (lambda f: edit(f, model={"name": "../../x"}), ["../../x", "none of that name"]),
    "unknown model setting": (lambda f: edit(f, model={"exec": "rm"}), ["model.exec", "no such setting"]),
    "unknown search setting": (lambda f: edit(f, search={"hook": "x"}), ["search.hook", "no such setting"]),
    "search is a text": (lambda f: edit(f, search="x"), ["config.json", "not a configuration"]),
    "usual length is a text": (lambda f: edit(f, usual_source_length="x"), ["config.json", "not a configuration"]),
    "negative width": (lambda f: edit(f, model={"width": -16}), ["model.width", "-16"]),
    "width is a text": (lambda f: edit(f, model={"width": "16"}), ["model.width", "whole number"]),
}


@pytest.mark.parametrize(("damage", "parts"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_models(command: Callable, tiny_copy: Path, damage: Callable[[Path], None], parts: list[str]) -> None:
    damage(tiny_copy)
    before = contents(tiny_copy)
    began = time.monotonic()
    one_sentence(command("translate", "-m", tiny_copy, "Hello."), *parts)
    assert time.monotonic() - began < 5, "refused without building it"
    assert contents(tiny_copy) == before


@pytest.mark.parametrize("name", ["run.json", "scores.json", "data.json", "config.json"])
@pytest.mark.parametrize("content", ["[]", "no"])
def test_show_damaged_runs(command: Callable, tiny_copy: Path, name: str, content: str) -> None:
    (tiny_copy / name).write_text(content)
    one_sentence(command("show", tiny_copy), name)


def test_show_looks_at_types(command: Callable, tiny_copy: Path) -> None:
    (tiny_copy / "scores.json").write_text(
        '{"scores": {"bleu": 5, "chrf": {"value": "x"}, "ter": {"value": 1, "low": "x"}}}'
    )
    (tiny_copy / "run.json").write_text('{"summary": 5, "versions": [], "command": "[/b] a"}')
    (tiny_copy / "config.json").write_text('{"model": 5}')
    done = command("show", tiny_copy)
    assert done.code == 0, done.err
    assert "command = [/b] a" in done.lines


def test_memory_is_not_taken_for_a_giant(tiny_copy: Path) -> None:
    """The same under a real limit of memory, in a process of its own."""
    pytest.importorskip("resource")
    edit(tiny_copy, model={"width": 1 << 14, "inner": 1 << 18, "heads": 2})
    code = (
        "import resource, sys, regard.tasks.pretrained\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), -1))\n"
        f"sys.argv = ['regard', 'translate', '-m', {str(tiny_copy)!r}, 'x']\n"
        "from regard.cli.main import run\nrun()"
    )
    if not Path("/proc/self/statm").exists():
        pytest.skip("there is no /proc here")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "do not fit" in done.stderr
    assert "Traceback" not in done.stderr


# --- translate


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--beam", "0"], ["--beam: 0", "1 to 64"]),
        (["--beam", "1000"], ["--beam: 1000", "1 to 64"]),
        (["--beam", "two"], ["--beam", "regard translate --help"]),
        (["--nbest", "0"], ["--nbest: 0", "1 to 64"]),
        (["--nbest", "1000"], ["--nbest: 1000", "1 to 64"]),
        (["--nbest", "4", "--beam", "2"], ["--nbest: 4 is more than the beam of 2. Widen --beam or lower it."]),
        (["--baem", "4"], ["--baem", "--beam"]),
        (["--length-norm", "bad"], ["--length-norm: 'bad'", "gnmt, plain, none"]),
        (["--length-penalty", "-1"], ["--length-penalty: -1"]),
        (["--coverage", "-1"], ["--coverage: -1"]),
        (["--no-repeat", "-1"], ["--no-repeat: -1"]),
        (["--max-length", "0"], ["--max-length: 0"]),
        (["--sample", "--temperature", "0"], ["--temperature: 0", "use --beam 1 without --sample"]),
        (["--sample", "--top-k", "-1"], ["--top-k: -1"]),
        (["--sample", "--top-p", "1.5"], ["--top-p: 1.5"]),
        (["--sample", "--min-p", "2"], ["--min-p: 2"]),
        (["--sample", "--seed", "-1"], ["--seed: -1"]),
        (["--sample", "--beam", "4"], ["--beam", "--sample"]),
        (["--temperature", "0.5"], ["--temperature", "--sample"]),
        (["--seed", "3"], ["--seed", "--sample"]),
        (["--device", "gpu9"], ["gpu9", "auto, cpu, cuda"]),
        (["--device", "cuda:99"], ["cuda:99", "no such GPU"]),
        (["--device", "meta"], ["meta", "not supported"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("-") else "",
)
def test_bad_options_of_translate(command: Callable, tiny_run: Path, arguments: list[str], parts: list[str]) -> None:
    done = command("translate", "-m", tiny_run, "Hello.", *arguments)
    one_sentence(done, *parts)
    assert done.out == ""


@pytest.mark.parametrize(
    ("stdin", "parts"),
    [
        (b"one\ntwo\ndr\xfcben\n", ["standard input, line 3", "not UTF-8 (byte 0xfc at offset 10)", "ISO-8859-1"]),
        (b"\xef\xbb\xbfdr\xfcben\n", ["standard input, line 1", "byte 0xfc at offset 5"]),
        (b"\xff\xfeo\x00n\x00e\x00", ["standard input, line 1", "not UTF-8", "iconv -f UTF-16 -t UTF-8"]),
        (b"o\x00n\x00e\x00\n\x00", ["standard input, line 1", "not UTF-8", "iconv -f UTF-16LE -t UTF-8"]),
        (gzip.compress(b"one\n"), ["standard input: it is compressed (.gz)", "gzip -dc FILE.gz | regard translate"]),
        (lzma.compress(b"one\n"), ["standard input: it is compressed (.xz)", "xz -dc FILE.xz | regard translate"]),
        (b"one\n" + b"x" * (2 << 20) + b"\n", ["standard input, line 2", "100,000", "Break it"]),
        (b"one\n" + b"long " * 40_000 + b"\n", ["standard input, line 2", "200,000 characters", "Break it"]),
    ],
    ids=["latin-1", "latin-1 after a mark", "utf-16", "utf-16 without a mark", "gzip", "xz", "2 MB", "200 kB"],
)
def test_bad_standard_input(command: Callable, tiny_run: Path, stdin: bytes, parts: list[str]) -> None:
    one_sentence(command("translate", "-m", tiny_run, stdin=stdin), *parts)


def test_closed_standard_input(
    command: Callable, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from regard.cli.main import run

    monkeypatch.setattr(sys, "argv", ["regard", "translate", "-m", str(tiny_run)])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("Error: standard input: it is closed.")


def test_text_that_is_not_unicode(command: Callable, tiny_run: Path) -> None:
    one_sentence(command("translate", "-m", tiny_run, "dr\udcfcben"), "not valid Unicode", "UTF-8")


@pytest.mark.parametrize("verb", [["translate", "Hello.", "-m"], ["show"], ["train", "--resume"]])
def test_unknown_models(command: Callable, tmp_path: Path, files: Path, verb: list[str]) -> None:
    one_sentence(command(*verb, tmp_path / "nowhere"), tmp_path / "nowhere", "no such folder")
    one_sentence(command(*verb, files), files, "not a run folder")
    one_sentence(command(*verb, files / "good.en"), "good.en", "not a run folder")


# --- evaluate


def test_evaluate_looks_before_it_works(
    command: Callable, tiny_run: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever can be known beforehand is said before the first sentence is translated."""
    from regard.tasks.translation import Translator

    monkeypatch.setattr(Translator, "translate", lambda *_, **__: pytest.fail("work was done"))
    src, ref = files / "good.en", files / "good.de"
    before = contents(files)

    def refused(*arguments: object) -> object:
        return command("evaluate", "-m", tiny_run, "--src", src, "--ref", ref, *arguments)

    one_sentence(refused("--plot", tmp_path / "p.txt"), "p.txt", ".txt", ".png, .svg, .pdf")
    one_sentence(refused("--plot", tmp_path / "p"), "no suffix", ".png, .svg, .pdf")
    one_sentence(refused("--plot", tmp_path / "no" / "p.png"), "p.png", "folder does not exist")
    one_sentence(refused("--out", tmp_path / "no" / "o.de"), "o.de", "folder does not exist")
    one_sentence(refused("--out", ref / "o.de"), "o.de", "folder does not exist")
    one_sentence(refused("--out", files), files, "directory")
    one_sentence(refused("--out", "."), "directory")
    one_sentence(refused("--out", src), src, "written over")
    one_sentence(refused("--out", files / "folder.en" / ".." / "good.de"), "good.de", "written over")
    one_sentence(refused("--against", files / "short.de"), "short.de", "57", "60")
    one_sentence(refused("--against", files / "nowhere"), "nowhere", "no such file or folder", "file of translations")
    one_sentence(command("evaluate", "-m", files / "nowhere", "--src", src, "--ref", ref), "no such file or folder")
    one_sentence(refused("--against", files), files, "not a run folder")
    one_sentence(refused("--against", files / "short.de", "--out", files / "short.de"), "written over")
    assert contents(files) == before


def test_evaluate_names_its_option(command: Callable, tiny_run: Path, files: Path) -> None:
    src, ref = files / "good.en", files / "good.de"
    one_sentence(command("evaluate", "-m", tiny_run, "--src", src, "--ref", ref, "--beam", 0), "--beam: 0", "1 to 64")


def test_missing_and_unknown_words(command: Callable) -> None:
    one_sentence(command("score", "--src", "x"), "--tgt", "regard score --help")
    one_sentence(command("evaluate"), "--src", "--text")
    one_sentence(command("trian"), "trian", "train", "regard --help")
    one_sentence(command("recipes", "dem"), "dem", "demo")


# --- the edges of the command line


def test_a_full_disk_is_one_sentence(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import regard.cli.show

    def full() -> None:
        raise OSError(28, "No space left on device", "/somewhere/file")

    monkeypatch.setattr(regard.cli.show, "run_models", full)
    one_sentence(command("models"), "/somewhere/file", "No space left on device")


def test_too_little_memory_is_one_sentence(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    import regard.cli.show

    for error in (
        MemoryError(),
        torch.OutOfMemoryError("CUDA\nout of memory"),
        RuntimeError("[...] can't allocate memory: you"),
    ):

        def fail(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(regard.cli.show, "run_models", fail)
        one_sentence(command("models"), "memory", "train.batch_tokens")


def test_bugs_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    import regard.cli.show
    from regard.cli.main import run

    def bug() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(regard.cli.show, "run_models", bug)
    monkeypatch.setattr(sys, "argv", ["regard", "models"])
    with pytest.raises(RuntimeError, match="a bug"):
        run()


def test_messages_are_one_line_whatever_a_name_holds(command: Callable, tmp_path: Path) -> None:
    one_sentence(command("show", tmp_path / "two\nlines"), "two lines", "no such folder")
